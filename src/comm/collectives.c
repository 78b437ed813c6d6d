/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives of a communicator: set up with the first one (meet.c), then one call after another, each
 * with a shape that most calls find ready. What is chosen depends on nothing that differs between ranks.
 */
#include "comm/collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static weft_status_t open_messages(struct weft_collectives *it)
{
    struct weft_comm *comm = it->comm;
    struct weft_job *job = comm->job;
    weft_status_t status = weft_control_channel_status(comm->channel);
    status = status == WEFT_OK ? weft_control_engage(job->control) : status;
    status = status == WEFT_OK
                 ? weft_p2p_comm_open(job->p2p, comm->id ^ WEFT_COMM_COLLECTIVE, comm->rank,
                                      comm->ranks, comm->members, &it->messages)
                 : status;
    if (status == WEFT_OK) {
        weft_p2p_comm_set_channel(it->messages, comm->id);
        weft_p2p_comm_set_timeout(it->messages, WEFT_NO_LIMIT); /* exec keeps the time */
        status = weft_control_channel_status(comm->channel);    /* it may have ended meanwhile */
    }
    return status;
}

static weft_status_t open_exec(struct weft_collectives *it)
{
    enum { ON = 1 }; /* of WEFT_CMA */
    struct weft_comm *comm = it->comm;
    const struct weft_exec_spec spec = {
        .messages = it->messages,
        .recorder = it->recorder,
        .ranks = comm->ranks,
        .is_crowded = comm->job->local_count > weft_comm_cpus(),
        .is_pulled = comm->job->params.number[WEFT_PARAM_CMA] == ON,
        .owner = it,
        .stuck = weft_comm_stuck,
        .is_gone = weft_comm_has_gone,
        .name = weft_comm_name_job,
        .differs = weft_comm_differs,
        .differs_in_length = weft_comm_differs_in_length,
    };
    if (it->has_board) {
        it->local.board = &it->board;
        if (it->local.ranks == comm->ranks) {
            it->whole.board = &it->board;
        }
    }
    it->ended = weft_p2p_comm_ended(it->messages);
    return weft_exec_open(&spec, &it->exec);
}

static void set_down(struct weft_collectives *it)
{
    struct weft_engine *engine = it->comm->job->engine;
    weft_engine_lock(engine);
    weft_list_remove(&it->node);
    weft_engine_unlock(engine);
    weft_comm_inquiry_close(it);
    weft_exec_stop(it->exec);
    (void)weft_p2p_comm_close(it->messages); /* what it could not flush, nobody waits for */
    weft_exec_close(it->exec);
    weft_comm_drop_board(it);
    free(it->local_members);
    free(it->cross_members);
    free(it->host_of);
    free(it->reports);
    free(it);
}

static uint64_t timeout_of(const struct weft_comm *comm, const weft_call_t *call)
{
    return call->timeout_ms != 0 ? call->timeout_ms : comm->timeout_ms;
}

static weft_status_t set_up(struct weft_comm *comm, const weft_call_t *first)
{
    uint64_t call_ns = weft_clock_after_ms(timeout_of(comm, first));
    struct weft_collectives *it = calloc(1, sizeof(*it));
    weft_status_t status;
    if (it == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for collectives");
    }
    it->comm = comm;
    it->recorder = weft_comm_recorder(comm);
    it->algorithm = "";
    it->latest = &it->shapes[0];
    weft_list_open(&it->node);
    weft_comm_inquiry_open(it);
    status = weft_comm_find_local(it);
    status = status == WEFT_OK ? weft_comm_find_cross(it) : status;
    status = status == WEFT_OK ? open_messages(it) : status;
    weft_plan_facts_default(comm->ranks, weft_comm_cpus(), &it->facts);
    status =
        status == WEFT_OK && comm->ranks > 1 ? weft_comm_meet(it, first->coll, call_ns) : status;
    status = status == WEFT_OK ? open_exec(it) : status;
    if (status != WEFT_OK) {
        set_down(it);
        return status;
    }
    weft_engine_lock(comm->job->engine);
    weft_list_append(&comm->job->collectives, &it->node);
    weft_engine_unlock(comm->job->engine);
    weft_p2p_comm_set_stray(it->messages, weft_comm_stray, it);
    comm->collectives = it;
    return WEFT_OK;
}

void weft_comm_collectives_end(struct weft_comm *comm)
{
    if (comm->collectives != NULL) {
        set_down(comm->collectives);
        comm->collectives = NULL;
    } else if (comm->job->p2p != NULL) {
        weft_engine_lock(comm->job->engine);
        weft_p2p_forget(comm->job->p2p, comm->id ^ WEFT_COMM_COLLECTIVE);
        weft_engine_unlock(comm->job->engine);
    }
}

uint64_t weft_comm_moved(const struct weft_comm *comm)
{
    return comm->collectives != NULL ? weft_exec_moved(comm->collectives->exec) : 0;
}

const char *weft_comm_algorithm(const struct weft_comm *comm)
{
    return comm->collectives != NULL ? comm->collectives->algorithm : "";
}

/* ---- a call ---- */

/* What makes a shape, but for arrays: those are as long as there are ranks. */
static bool is_keepable(const weft_call_t *call)
{
    return call->in_counts == NULL && call->out_counts == NULL && call->in_places == NULL &&
           call->out_places == NULL && weft_comm_wish_fits(call->algorithm);
}

static struct weft_comm_shape *find_shape(struct weft_collectives *it, const weft_call_t *call)
{
    size_t hash = call->count * 31 + (size_t)call->coll * 7 + (size_t)call->dtype * 3 +
                  (size_t)call->op + (size_t)call->root * 17 + weft_comm_wish_hash(call->algorithm);
    return &it->shapes[(hash ^ hash >> 6 ^ hash >> 12) % WEFT_COLLECTIVE_SHAPES];
}

static bool is_same(const struct weft_comm_shape *shape, const weft_call_t *call)
{
    return shape->is_used && shape->coll == call->coll && shape->count == call->count &&
           shape->dtype == call->dtype && shape->op == call->op &&
           shape->root == (uint32_t)call->root && shape->scale == call->scale &&
           weft_comm_wish_is(&shape->wish, call->algorithm);
}

/* Pieces that all ranks must give alike; other arrays only some of them have. */
static uint32_t sign_pieces(const struct weft_collectives *it, const weft_call_t *call,
                            uint32_t signature)
{
    const size_t *counts = call->coll == WEFT_ALLGATHER        ? call->out_counts
                           : call->coll == WEFT_REDUCE_SCATTER ? call->in_counts
                                                               : NULL;
    for (uint32_t i = 0; counts != NULL && i < it->comm->ranks; i++) {
        signature = (signature ^ (uint32_t)counts[i]) * 0x9e3779b1u;
        signature ^= signature >> 15 ^ (uint32_t)((uint64_t)counts[i] >> 32);
    }
    return signature;
}

static void remember(struct weft_collectives *it, const weft_call_t *call,
                     struct weft_comm_shape *shape)
{
    uint32_t number = atomic_load_explicit(&it->number, memory_order_relaxed);
    struct weft_exec_job *job = &shape->job;
    struct weft_comm_note *note = &it->notes[number % WEFT_COLLECTIVE_KEPT];
    it->chain = (it->chain ^ shape->note.signature) * 0x9e3779b1u;
    it->chain ^= it->chain >> 15;
    *note = shape->note;
    note->number = number;
    note->chain = it->chain;
    note->controls = weft_control_channel_calls(it->comm->channel);
    job->signature = it->chain;
    job->number = job->call.number = number;
    job->call.chain = it->chain;
    job->timeout_ms = timeout_of(it->comm, call);
    atomic_store_explicit(&it->number, number + 1, memory_order_release);
}

/* Every error begins with the call. */
static __attribute__((noinline)) weft_status_t name_error(const weft_call_t *call, uint32_t number,
                                                          weft_status_t status)
{
    char name[128], text[WEFT_ERROR_TEXT_LEN];
    weft_comm_name_call(call, number, name, sizeof(name));
    snprintf(text, sizeof(text), "%s", weft_error_text());
    return strncmp(text, name, strlen(name)) == 0 ? status
                                                  : weft_fail(status, "%s: %s", name, text);
}

/* Behind what runs already, or because the caller does not want to wait. */
static weft_status_t begin(struct weft_collectives *it, const struct weft_exec_job *job,
                           weft_request_t *request_p)
{
    weft_status_t status = WEFT_OK;
    struct weft_p2p_comm *messages = weft_comm_messages(it->comm, &status);
    bool is_grouped = request_p == NULL && messages != NULL && weft_p2p_has_group(messages);
    weft_request_t request = messages != NULL ? weft_p2p_outer_open(messages, is_grouped) : NULL;
    if (request == NULL) {
        status = status != WEFT_OK ? status : weft_fail(WEFT_ERR_MEMORY, "no memory for a request");
        weft_recorder_end(it->recorder, job->record, status);
        return status;
    }
    weft_p2p_outer_record(request, job->record);
    status = weft_exec_begin(it->exec, job, request);
    if (status != WEFT_OK) {
        weft_engine_lock(it->comm->job->engine);
        weft_p2p_outer_end(request, status, weft_error_text());
        weft_engine_unlock(it->comm->job->engine);
        return weft_p2p_wait(&request, WEFT_NO_LIMIT);
    }
    if (request_p != NULL) {
        *request_p = request;
        return WEFT_OK;
    }
    return is_grouped ? WEFT_OK : weft_p2p_wait(&request, WEFT_NO_LIMIT);
}

static bool is_grouped(const struct weft_comm *comm)
{
    struct weft_p2p_comm *messages = atomic_load_explicit(&comm->messages, memory_order_acquire);
    return messages != NULL && weft_p2p_has_group(messages);
}

static uint64_t what_of(const weft_call_t *call, uint8_t name)
{
    return weft_record_what(call->coll, call->dtype, call->op, name, (uint32_t)call->root);
}

static weft_status_t make_shape(struct weft_collectives *it, const weft_call_t *call,
                                struct weft_comm_shape *shape)
{
    weft_status_t status = weft_comm_make_job(it, call, shape);
    if (status == WEFT_OK) {
        shape->note =
            (struct weft_comm_note){.signature = sign_pieces(it, call, shape->job.signature),
                                    .coll = (uint8_t)call->coll,
                                    .dtype = (uint8_t)call->dtype,
                                    .op = (uint8_t)call->op,
                                    .root = (uint32_t)call->root,
                                    .count = call->count};
        shape->job.call = (struct weft_record_call){
            .comm = it->comm->id,
            .count = call->count,
            .what = what_of(call, weft_recorder_name(it->recorder, shape->algorithm)),
            .signature = shape->note.signature};
    } else {
        shape->is_used = false;
    }
    return status;
}

static weft_status_t run_shape(struct weft_collectives *it, struct weft_comm_shape *shape,
                               const weft_call_t *call, weft_request_t *request_p)
{
    struct weft_exec_job *job = &shape->job;
    weft_comm_bind_job(it, job, call);
    it->algorithm = shape->algorithm;
    remember(it, call, shape);
    if (request_p != NULL || is_grouped(it->comm) || weft_exec_is_queued(it->exec)) {
        job->record = weft_recorder_begin(it->recorder, &job->call);
        return begin(it, job, request_p);
    }
    return weft_exec_run(it->exec, job);
}

/* Apart: a shape is long, and most calls find theirs. */
static __attribute__((noinline)) weft_status_t run_once(struct weft_collectives *it,
                                                        const weft_call_t *call,
                                                        weft_request_t *request_p)
{
    struct weft_comm_shape shape;
    weft_status_t status = make_shape(it, call, &shape);
    return status == WEFT_OK ? run_shape(it, &shape, call, request_p) : status;
}

static weft_status_t run(struct weft_collectives *it, const weft_call_t *call,
                         weft_request_t *request_p)
{
    struct weft_comm_shape *shape = it->latest;
    weft_status_t status = atomic_load_explicit(it->ended, memory_order_acquire);
    if (status != WEFT_OK) {
        return weft_fail(status, "%s", weft_p2p_comm_text(it->messages));
    }
    if (!is_keepable(call)) {
        return run_once(it, call, request_p);
    }
    if (!is_same(shape, call)) {
        shape = it->latest = find_shape(it, call);
        status = is_same(shape, call) ? WEFT_OK : make_shape(it, call, shape);
    }
    return status == WEFT_OK ? run_shape(it, shape, call, request_p) : status;
}

/* The others count on us, and have no other way to hear why we do not come. */
static void give_up(const struct weft_comm *comm, weft_status_t status)
{
    char name[128], error[WEFT_ERROR_TEXT_LEN], text[sizeof(name) + sizeof(error) + 2];
    uint32_t rank = weft_comm_job_rank(comm, comm->rank);
    const struct weft_control_failure failure = {
        .channel = comm->id, .status = status, .rank = WEFT_WIRE_NO_RANK, .text = text};
    snprintf(error, sizeof(error), "%s", weft_error_text());
    if (weft_control_channel_status(comm->channel) == WEFT_OK) {
        weft_engine_lock(comm->job->engine);
        weft_control_name_rank(comm->job->control, rank, name, sizeof(name));
        snprintf(text, sizeof(text), "%s: %s", name, error);
        weft_control_fail(comm->job->control, &failure, false);
        weft_control_fail(comm->job->control, &failure, true); /* here it ends now */
        weft_engine_unlock(comm->job->engine);
    }
    (void)weft_fail(status, "%s", error);
}

/* All ranks meet: also that is waited for, so it is recorded, as a call whose signature is not known. */
static weft_status_t set_up_recorded(struct weft_comm *comm, const weft_call_t *call)
{
    struct weft_recorder *recorder = weft_comm_recorder(comm);
    const struct weft_record_call recorded = {
        .comm = comm->id, .count = call->count, .what = what_of(call, 0)};
    uint64_t record = weft_recorder_begin(recorder, &recorded);
    weft_status_t status = set_up(comm, call);
    weft_recorder_end(recorder, record, status);
    return status;
}

/* Meeting is part of it, and of its time. */
static __attribute__((noinline)) weft_status_t run_first(struct weft_comm *comm,
                                                         const weft_call_t *call,
                                                         weft_request_t *request_p)
{
    uint64_t since_ns = weft_clock_ns();
    weft_status_t status = set_up_recorded(comm, call);
    if (status == WEFT_OK) {
        weft_exec_set_since(comm->collectives->exec, since_ns);
        status = run(comm->collectives, call, request_p);
        weft_exec_set_since(comm->collectives->exec, 0); /* it may not have come to a job */
    }
    return status;
}

weft_status_t weft_comm_collective(struct weft_comm *comm, const weft_call_t *call,
                                   weft_request_t *request_p)
{
    struct weft_collectives *it = comm->collectives;
    uint32_t number = it != NULL ? it->number : 0;
    weft_status_t status = it != NULL ? run(it, call, request_p) : run_first(comm, call, request_p);
    if (status == WEFT_OK) {
        return WEFT_OK;
    }
    status = name_error(call, number, status);
    if (status == WEFT_ERR_MEMORY || status == WEFT_ERR_SYSTEM) {
        give_up(comm, status);
    }
    weft_comm_dump_await(comm->job);
    return status;
}
