/* SPDX-License-Identifier: Apache-2.0 */
/* From a call to a job: which plan, over which group, with which data. */
#include "comm/collectives.h"
#include "reduce/reduce.h"

#include <string.h>

#define ONESHOT_MAX ((size_t)64 << 10)
#define CHUNK ((size_t)256 << 10)
#define MAPPED_CHUNK ((size_t)64 << 10)

static bool is_vector(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_BROADCAST || coll == WEFT_REDUCE ||
           coll == WEFT_BARRIER;
}

static bool is_uneven(const weft_call_t *call)
{
    return call->in_counts != NULL || call->out_counts != NULL || call->in_places != NULL ||
           call->out_places != NULL;
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

/* Bytes that one rank puts where others take them. */
static size_t slot_bytes(const struct weft_collectives *it, const weft_call_t *call)
{
    size_t len = call->count * weft_dtype_size(call->dtype);
    return is_vector(call->coll) || call->coll == WEFT_ALLGATHER || call->coll == WEFT_GATHER
               ? len
               : len * it->whole.ranks;
}

/* Segments of about CHUNK, as many at once as the ring holds. */
static bool shape_staged(const struct weft_collectives *it, const weft_call_t *call,
                         struct weft_plan *plan_p)
{
    size_t len = slot_bytes(it, call);
    size_t ring_len = it->board.ring_len;
    size_t chunk = CHUNK < ring_len / 4 ? CHUNK : ring_len / 4;
    uint32_t segments = (uint32_t)((len + chunk - 1) / chunk);
    const struct weft_plan_builder *builder = weft_plan_find("staged");
    struct weft_plan plan = {.builder = builder,
                             .coll = (uint32_t)call->coll,
                             .ranks = it->whole.ranks,
                             .root = (uint32_t)call->root,
                             .segments = segments > 0 ? segments : 1};
    struct weft_exec_data data;
    fill_data(call, plan.ranks, &data);
    for (uint32_t depth = 16; depth >= 3; depth--) {
        plan.radix = depth;
        if (!builder->shape(&plan)) {
            return false;
        }
        if (weft_exec_slots_len(&plan, &it->whole, &data) <= ring_len) {
            *plan_p = plan;
            return true;
        }
    }
    return false;
}

static weft_status_t choose_shared(struct weft_collectives *it, const weft_call_t *call,
                                   struct weft_comm_shape *shape)
{
    struct weft_exec_stage *stage = &shape->job.stage[0];
    size_t len = slot_bytes(it, call);
    uint32_t ranks = it->whole.ranks;
    uint32_t parts = (uint32_t)((len + MAPPED_CHUNK - 1) / MAPPED_CHUNK);
    if (len <= ONESHOT_MAX || ranks == 1) {
        if (weft_plan_shape(weft_plan_find("oneshot"), call->coll, ranks, (uint32_t)call->root, 1,
                            &stage->plan)) {
            return WEFT_OK;
        }
    }
    if (!shape_staged(it, call, &stage->plan)) {
        return weft_fail(WEFT_ERR_UNSUPPORTED, "no plan for %s of %zu bytes in shared memory",
                         weft_coll_name(call->coll), len);
    }
    stage->has_mapped = weft_plan_shape(weft_plan_find("mapped"), call->coll, ranks,
                                        (uint32_t)call->root, parts, &stage->mapped);
    return WEFT_OK;
}

static weft_status_t choose_messages(struct weft_collectives *it, const weft_call_t *call,
                                     struct weft_comm_shape *shape)
{
    static const char *const names[] = {
        [WEFT_ALLREDUCE] = "direct",     [WEFT_REDUCE_SCATTER] = "direct",
        [WEFT_ALLGATHER] = "spread",     [WEFT_BROADCAST] = "binomial",
        [WEFT_REDUCE] = "binomial",      [WEFT_GATHER] = "linear",
        [WEFT_SCATTER] = "linear",       [WEFT_ALLTOALL] = "spread",
        [WEFT_BARRIER] = "dissemination"};
    const char *name = call->algorithm != NULL ? call->algorithm : names[call->coll];
    const struct weft_plan_builder *builder = weft_plan_find(name);
    if (builder == NULL || !weft_plan_shape(builder, call->coll, it->whole.ranks,
                                            (uint32_t)call->root, 1, &shape->job.stage[0].plan)) {
        return weft_fail(WEFT_ERR_UNSUPPORTED, "%s cannot do %s", name, weft_coll_name(call->coll));
    }
    return WEFT_OK;
}

static uint32_t mix(uint32_t hash, uint64_t value)
{
    hash ^= (uint32_t)value ^ (uint32_t)(value >> 32);
    hash *= 0x9e3779b1u;
    return hash ^ hash >> 15;
}

static uint32_t sign(const struct weft_comm_shape *shape, const weft_call_t *call)
{
    const struct weft_plan *plan = &shape->job.stage[0].plan;
    uint32_t hash = mix(0x77656674u, (uint64_t)call->coll << 32 | (uint64_t)call->dtype << 8 |
                                         (uint64_t)call->op);
    uint64_t scale;
    memcpy(&scale, &call->scale, sizeof(scale));
    hash = mix(hash, call->root >= 0 ? (uint64_t)call->root : 0);
    if (!is_uneven(call)) {
        hash = mix(hash, call->count);
    }
    hash = mix(hash, call->op == WEFT_SCALED ? scale : 0);
    for (const char *c = plan->builder->name; *c != '\0'; c++) {
        hash = mix(hash, (uint8_t)*c);
    }
    return mix(hash, (uint64_t)plan->segments << 32 | plan->radix);
}

weft_status_t weft_comm_make_job(struct weft_collectives *it, const weft_call_t *call,
                                 struct weft_comm_shape *shape)
{
    weft_status_t status;
    memset(shape, 0, sizeof(*shape));
    shape->coll = (uint8_t)call->coll;
    shape->dtype = (uint8_t)call->dtype;
    shape->op = (uint8_t)call->op;
    shape->root = (uint32_t)call->root;
    shape->count = call->count;
    shape->scale = call->scale;
    shape->job.stages = 1;
    shape->job.stage[0].group = &it->whole;
    if (call->algorithm == NULL && !is_uneven(call) &&
        (it->whole.board != NULL || it->whole.ranks == 1)) {
        status = choose_shared(it, call, shape);
    } else {
        status = choose_messages(it, call, shape);
    }
    if (status == WEFT_OK) {
        weft_exec_measure(&shape->job.stage[0].plan, it->whole.rank, &shape->job.stage[0].needs);
        fill_data(call, it->whole.ranks, &shape->job.stage[0].data);
        shape->job.signature = sign(shape, call);
        weft_exec_compile(&shape->job, &shape->quick);
        shape->is_used = true;
    }
    return status;
}

void weft_comm_bind_job(struct weft_comm_shape *shape, const weft_call_t *call)
{
    struct weft_exec_data *data = &shape->job.stage[0].data;
    data->in = call->in;
    data->out = call->out;
}
