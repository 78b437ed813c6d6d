/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a call to a job: which plan, over which group, with which data. Everything the choice depends on is
 * the same on all ranks: facts that they exchanged, and the call itself. How long the pieces of a gather, a
 * scatter or an alltoall with arrays are, only some ranks know: there the length does not choose.
 */
#include "comm/collectives.h"
#include "reduce/reduce.h"

#include <stdio.h>
#include <string.h>

#define MAPPED_CHUNK ((size_t)64 << 10)
#define PULL_MIN ((size_t)16 << 10) /* below, asking the kernel takes longer than two copies */

static bool is_uneven(const weft_call_t *call)
{
    return call->in_counts != NULL || call->out_counts != NULL || call->in_places != NULL ||
           call->out_places != NULL;
}

static bool is_reduction(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE || coll == WEFT_REDUCE_SCATTER;
}

static void fill_data(const weft_call_t *call, uint32_t ranks, struct weft_exec_data *data)
{
    *data = (struct weft_exec_data){
        .dtype = call->dtype,
        .op = call->op == WEFT_AVG || call->op == WEFT_SCALED ? WEFT_SUM : call->op,
        .before = call->op == WEFT_SCALED ? call->scale : 1.0,
        .divide_by = call->op == WEFT_AVG ? ranks : 1,
        .in = call->in,
        .out = call->out,
        .count = call->coll == WEFT_BARRIER ? 0 : call->count,
        .in_counts = call->in_counts,
        .in_places = call->in_places,
        .out_counts = call->out_counts,
        .out_places = call->out_places,
    };
}

/* The pieces that all ranks give alike; NULL: there are no arrays of them. */
static const size_t *known_counts(const weft_call_t *call)
{
    return call->coll == WEFT_ALLGATHER        ? call->out_counts
           : call->coll == WEFT_REDUCE_SCATTER ? call->in_counts
                                               : NULL;
}

/* ---- what a call wishes ---- */

static struct weft_comm_wish take_wish(const char *algorithm)
{
    struct weft_comm_wish wish = {.is_said = algorithm != NULL};
    if (wish.is_said) {
        snprintf(wish.text, sizeof(wish.text), "%s", algorithm);
    }
    return wish;
}

/* ---- asking ---- */

static double all_bytes(const struct weft_collectives *it, const weft_call_t *call)
{
    bool is_vector = call->coll == WEFT_ALLREDUCE || call->coll == WEFT_BROADCAST ||
                     call->coll == WEFT_REDUCE || call->coll == WEFT_BARRIER;
    const size_t *counts = known_counts(call);
    double elements = (double)call->count * (is_vector ? 1 : it->whole.ranks);
    if (counts != NULL) {
        elements = 0;
        for (uint32_t i = 0; i < it->whole.ranks; i++) {
            elements += (double)counts[i];
        }
    }
    return elements * (double)weft_dtype_size(call->dtype);
}

static bool is_narrow(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F8E4M3 || dtype == WEFT_F8E5M2;
}

static bool is_widened(const struct weft_collectives *it, weft_dtype_t dtype)
{
    enum { F32 = 1 }; /* of WEFT_ACC */
    return is_narrow(dtype) && it->comm->job->params.number[WEFT_PARAM_ACC] == F32;
}

/* Slots are of one host, and hold what was widened if its ranks are more than one pass adds. */
static double widening_of(const struct weft_collectives *it, const weft_call_t *call)
{
    bool is_wide = is_reduction(call->coll) && it->facts.host_ranks > WEFT_REDUCE_SOURCES &&
                   is_widened(it, call->dtype);
    return is_wide ? (double)sizeof(float) / (double)weft_dtype_size(call->dtype) : 1;
}

static struct weft_plan_ask ask_for(const struct weft_collectives *it, const weft_call_t *call)
{
    const struct weft_params *params = &it->comm->job->params;
    struct weft_plan_ask ask = {
        .coll = call->coll,
        .root = (uint32_t)call->root,
        .widening = widening_of(it, call),
        .is_deterministic = params->number[WEFT_PARAM_DETERMINISTIC] != 0,
        .algo = call->algorithm != NULL ? call->algorithm : params->text[WEFT_PARAM_ALGO],
        .is_demanded = call->algorithm != NULL,
    };
    weft_plan_ask_lengths(&ask, all_bytes(it, call), is_uneven(call));
    if (ask.is_private) {
        ask.bytes = 0; /* every rank has another idea of it */
    }
    return ask;
}

/* Running the model takes a while: what it said for a size holds for those about as large. */
static weft_status_t choose(struct weft_collectives *it, const struct weft_plan_ask *ask,
                            const char *algorithm, struct weft_plan *plan_p)
{
    uint32_t bucket = weft_plan_bucket(ask->bytes);
    uint32_t index = bucket * WEFT_COLLS + (uint32_t)ask->coll + weft_comm_wish_hash(algorithm);
    struct weft_comm_choice *kept = &it->choices[index % WEFT_COLLECTIVE_CHOICES];
    bool is_kept = weft_comm_wish_fits(algorithm);
    weft_status_t status;
    if (is_kept && kept->is_used && kept->bucket == bucket &&
        kept->plan.coll == (uint32_t)ask->coll && kept->is_equal == ask->is_equal &&
        weft_comm_wish_is(&kept->wish, algorithm) &&
        (kept->plan.builder->traits & WEFT_PLAN_SHARED) == 0 &&
        kept->plan.builder != &weft_plan_hierarchical) {
        return weft_plan_shape(kept->plan.builder, ask->coll, it->whole.ranks, ask->root,
                               kept->plan.segments, plan_p)
                   ? WEFT_OK
                   : weft_plan_choose(&it->facts, ask, plan_p, NULL);
    }
    status = weft_plan_choose(&it->facts, ask, plan_p, NULL);
    if (status == WEFT_OK && is_kept) {
        *kept = (struct weft_comm_choice){.is_used = true,
                                          .bucket = bucket,
                                          .is_equal = ask->is_equal,
                                          .wish = take_wish(algorithm),
                                          .plan = *plan_p};
    }
    return status;
}

/* ---- stages ---- */

/* What the plan cannot do while it adds. */
static uint8_t prelude_of(const struct weft_collectives *it, const struct weft_exec_stage *stage)
{
    const struct weft_exec_data *data = &stage->data;
    bool is_one_pass = (stage->plan.builder->traits & WEFT_PLAN_IN_RANK_ORDER) != 0 &&
                       stage->group->ranks <= WEFT_REDUCE_SOURCES;
    if (!is_reduction((weft_coll_t)stage->plan.coll) || is_one_pass) {
        return WEFT_PRELUDE_NONE;
    }
    /* The slices of a vector that is cut are of its own type: longer elements would be cut elsewhere. */
    if (is_widened(it, data->dtype) && !data->is_cut) {
        return WEFT_PRELUDE_WIDEN;
    }
    return data->before != 1.0 ? WEFT_PRELUDE_SCALE : WEFT_PRELUDE_NONE;
}

/* Copies alone; what is added goes through slots, where several sources are read at once. */
static bool may_pull(const struct weft_collectives *it, const struct weft_exec_stage *stage,
                     size_t len)
{
    uint32_t coll = stage->plan.coll;
    return it->can_pull && len >= PULL_MIN &&
           (coll == WEFT_ALLGATHER || coll == WEFT_ALLTOALL || coll == WEFT_BROADCAST);
}

/* When ranks outnumber the CPUs, showing the buffers first costs a round of scheduling more. */
static bool can_map(const struct weft_collectives *it, const struct weft_exec_stage *stage)
{
    const char *name = stage->plan.builder->name;
    bool is_crowded = weft_plan_facts_oversubscribed(&it->facts); /* as all ranks know it */
    return !stage->data.is_cut && stage->group->ranks <= WEFT_REDUCE_SOURCES &&
           (strcmp(name, "staged") == 0 ||
            (strcmp(name, "oneshot") == 0 && stage->may_pull && !is_crowded));
}

static void finish_stage(struct weft_collectives *it, struct weft_exec_stage *stage)
{
    size_t len = stage->data.count * weft_dtype_size(stage->data.dtype);
    uint32_t parts = (uint32_t)((len + MAPPED_CHUNK - 1) / MAPPED_CHUNK);
    weft_exec_measure(&stage->plan, stage->group->rank, &stage->needs);
    stage->data.prelude = prelude_of(it, stage);
    stage->sends_empty = false;
    stage->may_pull = may_pull(it, stage, len);
    stage->has_mapped =
        can_map(it, stage) &&
        weft_plan_shape(weft_plan_find("mapped"), (weft_coll_t)stage->plan.coll,
                        stage->group->ranks, stage->plan.root, parts, &stage->mapped);
}

/* The vector is cut into as many slices as a host has ranks; the one with my number there is mine. */
static void fill_phase(const struct weft_collectives *it, const struct weft_plan_phase *phase,
                       const struct weft_exec_data *whole, struct weft_exec_stage *stage)
{
    struct weft_exec_data *data = &stage->data;
    size_t element = weft_dtype_size(whole->dtype);
    size_t total = whole->count * element;
    size_t slice = ((total + it->local.ranks - 1) / it->local.ranks + 63) / 64 * 64;
    size_t from = it->local.rank * slice < total ? it->local.rank * slice : total;
    uint8_t *mine = (uint8_t *)whole->out + from;
    *data = *whole;
    stage->group = phase->is_between ? (struct weft_exec_group *)&it->cross
                                     : (struct weft_exec_group *)&it->local;
    if (phase->is_between) {
        data->in = data->out = mine;
        data->count = (total - from < slice ? total - from : slice) / element;
        data->before = 1.0;
        return;
    }
    data->is_cut = true;
    data->divide_by = 1;
    if (stage->plan.coll == WEFT_REDUCE_SCATTER) {
        data->out = mine;
    } else {
        data->in = mine;
        data->before = 1.0;
    }
}

/* Inside the hosts, between them, inside again. */
static weft_status_t compose(struct weft_collectives *it, const struct weft_plan_ask *ask,
                             const weft_call_t *call, struct weft_exec_job *job)
{
    struct weft_plan_phase phase[WEFT_PLAN_PHASES];
    struct weft_exec_data whole;
    uint32_t count = weft_plan_phases(&it->facts, ask, phase);
    fill_data(call, it->whole.ranks, &whole);
    for (uint32_t i = 0; i < count; i++) {
        weft_status_t status =
            weft_plan_choose(&phase[i].facts, &phase[i].ask, &job->stage[i].plan, NULL);
        if (status != WEFT_OK) {
            return status;
        }
        fill_phase(it, &phase[i], &whole, &job->stage[i]);
        finish_stage(it, &job->stage[i]);
    }
    job->stages = count;
    return count > 0 ? WEFT_OK : weft_fail(WEFT_ERR_UNSUPPORTED, "hierarchical is not possible");
}

/* ---- the whole ---- */

static uint32_t mix(uint32_t hash, uint64_t value)
{
    hash ^= (uint32_t)value ^ (uint32_t)(value >> 32);
    hash *= 0x9e3779b1u;
    return hash ^ hash >> 15;
}

/* Arrays are signed elsewhere, or by nobody: then the lengths of messages tell. */
static uint32_t sign(const struct weft_exec_job *job, const weft_call_t *call, bool is_private)
{
    uint32_t hash = mix(0x77656674u, (uint64_t)call->coll << 32 | (uint64_t)call->dtype << 8 |
                                         (uint64_t)call->op);
    uint64_t scale;
    memcpy(&scale, &call->scale, sizeof(scale));
    hash = mix(hash, (uint64_t)call->root);
    hash = mix(hash, is_private || known_counts(call) != NULL ? UINT64_MAX : call->count);
    hash = mix(hash, call->op == WEFT_SCALED ? scale : 0);
    for (uint32_t i = 0; i < job->stages; i++) {
        hash = mix(hash, weft_plan_hash(&job->stage[i].plan));
        hash = mix(hash, job->stage[i].has_mapped); /* then the ranks show their buffers first */
    }
    return hash;
}

weft_status_t weft_comm_make_job(struct weft_collectives *it, const weft_call_t *call,
                                 struct weft_comm_shape *shape)
{
    struct weft_exec_job *job = &shape->job;
    struct weft_exec_stage *stage = &job->stage[0];
    const struct weft_plan_ask ask = ask_for(it, call);
    weft_status_t status = choose(it, &ask, call->algorithm, &stage->plan);
    shape->is_used = false;
    if (status != WEFT_OK) {
        return status;
    }
    shape->coll = (uint8_t)call->coll;
    shape->dtype = (uint8_t)call->dtype;
    shape->op = (uint8_t)call->op;
    shape->root = (uint32_t)call->root;
    shape->count = call->count;
    shape->scale = call->scale;
    shape->wish = take_wish(call->algorithm);
    shape->algorithm = stage->plan.builder->name;
    job->stages = 1;
    job->quick = NULL;
    if (stage->plan.builder == &weft_plan_hierarchical) {
        status = compose(it, &ask, call, job);
    } else {
        stage->group = &it->whole;
        fill_data(call, it->whole.ranks, &stage->data);
        finish_stage(it, stage);
        stage->sends_empty = ask.is_private;
    }
    if (status == WEFT_OK) {
        job->signature = sign(job, call, ask.is_private);
        weft_exec_compile(job, &shape->quick);
        shape->is_used = true;
    }
    return status;
}

void weft_comm_bind_phases(const struct weft_collectives *it, struct weft_exec_job *job,
                           const weft_call_t *call)
{
    struct weft_exec_data whole;
    fill_data(call, it->whole.ranks, &whole);
    for (uint32_t i = 0; i < job->stages; i++) {
        const struct weft_plan_phase phase = {.is_between = job->stage[i].group == &it->cross};
        uint8_t prelude = job->stage[i].data.prelude;
        fill_phase(it, &phase, &whole, &job->stage[i]);
        job->stage[i].data.prelude = prelude;
    }
}
