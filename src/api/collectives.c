/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions for collectives: arguments checked, then one call down. */
#include "api/check.h"

#include <stdlib.h>
#include <string.h>

/* One buffer where that is allowed, or so far apart that they do not overlap, whatever the dtype. */
static inline bool are_apart(weft_comm_t comm, const weft_call_t *call)
{
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    bool is_even =
        call->coll == WEFT_ALLREDUCE || call->coll == WEFT_BROADCAST || call->coll == WEFT_REDUCE;
    return (is_even && in == out) ||
           (in != out && (in < out ? out - in : in - out) >=
                             call->count * (is_even ? 1 : comm->ranks) * sizeof(uint64_t));
}

/* Would the checks find nothing? Without a call or a division, for the way of every short operation. */
static inline bool is_plainly_good(weft_comm_t comm, const weft_call_t *call)
{
    if (call->coll == WEFT_BARRIER) {
        return true; /* the rest is cleared */
    }
    return (unsigned)call->coll < WEFT_COLLS && (unsigned)call->dtype < WEFT_DTYPES &&
           (unsigned)call->op <= WEFT_AVG && call->count <= UINT32_MAX && call->in != NULL &&
           call->out != NULL && call->in_counts == NULL && call->out_counts == NULL &&
           call->in_places == NULL && call->out_places == NULL &&
           (uint32_t)call->root < comm->ranks && are_apart(comm, call);
}

/* Where arrays say how long the pieces are, `count` is the own one: the rest of the library reads nothing
 * else there. An alltoall with one array has pieces of `count` on the other side. */
static void count_own_piece(weft_comm_t comm, weft_call_t *call)
{
    const size_t *counts = call->in_counts != NULL ? call->in_counts : call->out_counts;
    bool is_half =
        call->coll == WEFT_ALLTOALL && (call->in_counts == NULL || call->out_counts == NULL);
    if (counts != NULL && !is_half) {
        call->count = counts[comm->rank];
    }
}

/* What a call does not use is not compared. */
static void clear_unused(weft_comm_t comm, weft_call_t *call)
{
    call->root = weft_api_is_rooted(call->coll) ? call->root : 0;
    call->op = weft_api_is_summed(call->coll) ? call->op : WEFT_SUM;
    call->scale = call->op == WEFT_SCALED ? call->scale : 1.0;
    if (call->coll == WEFT_BARRIER) {
        call->count = 0;
        call->dtype = WEFT_U8;
    }
    if (call->coll != WEFT_REDUCE_SCATTER && call->coll != WEFT_SCATTER &&
        call->coll != WEFT_ALLTOALL) {
        call->in_counts = call->in_places = NULL;
    }
    if (call->coll != WEFT_ALLGATHER && call->coll != WEFT_GATHER && call->coll != WEFT_ALLTOALL) {
        call->out_counts = call->out_places = NULL;
    }
    count_own_piece(comm, call);
}

/* One thread at a time. */
static weft_status_t run(weft_comm_t comm, const weft_call_t *call, weft_request_t *request_p,
                         const char *name)
{
    weft_status_t status = weft_api_is_usable(comm) ? WEFT_OK : weft_api_check_comm(comm, name);
    if (status == WEFT_OK && !is_plainly_good(comm, call)) {
        status = weft_api_check_kinds(comm, call, name);
        status = status == WEFT_OK ? weft_api_check_buffers(comm, call, name) : status;
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (atomic_exchange_explicit(&comm->is_in_call, true, memory_order_acquire)) {
        return weft_fail(WEFT_ERR_BUSY,
                         "%s: another thread is in a call on this communicator; split it, "
                         "duplicate it, or take turns",
                         name);
    }
    status = weft_comm_collective(comm, call, request_p);
    atomic_store_explicit(&comm->is_in_call, false, memory_order_release);
    return status;
}

/* Of one that its caller has spelled out: *used_p is what is left of it. */
static weft_status_t read_call(weft_comm_t comm, const weft_call_t *call, const char *name,
                               weft_call_t *used_p)
{
    weft_status_t status = weft_api_check_comm(comm, name);
    status = status == WEFT_OK ? weft_api_check_pointer(call, name, "call") : status;
    if (status == WEFT_OK && call->size != sizeof(*call)) {
        return weft_fail(WEFT_ERR_INVALID,
                         "%s: call.size is %zu, expected %zu; begin with WEFT_CALL_INIT", name,
                         call->size, sizeof(*call));
    }
    if (status == WEFT_OK) {
        *used_p = *call;
        clear_unused(comm, used_p);
    }
    return status;
}

weft_status_t weft_collective(weft_comm_t comm, const weft_call_t *call, weft_request_t *request_p)
{
    weft_call_t used;
    weft_status_t status = read_call(comm, call, __func__, &used);
    return status == WEFT_OK ? run(comm, &used, request_p, __func__) : status;
}

/* Every field by name: with one left out all are cleared first, by an instruction (rep stos) that takes 14 ns. */
static inline weft_call_t plain_call(weft_coll_t coll, const void *in, void *out, size_t count,
                                     weft_dtype_t dtype)
{
    return (weft_call_t){.size = sizeof(weft_call_t),
                         .coll = coll,
                         .dtype = dtype,
                         .op = WEFT_SUM,
                         .root = 0,
                         .in = in,
                         .out = out,
                         .count = count,
                         .scale = 1.0,
                         .in_counts = NULL,
                         .in_places = NULL,
                         .out_counts = NULL,
                         .out_places = NULL,
                         .timeout_ms = 0,
                         .algorithm = NULL};
}

weft_status_t weft_allreduce(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, weft_redop_t op, weft_request_t *request_p)
{
    weft_call_t call = plain_call(WEFT_ALLREDUCE, in, out, count, dtype);
    call.op = op;
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_reduce_scatter(weft_comm_t comm, const void *in, void *out, size_t count,
                                  weft_dtype_t dtype, weft_redop_t op, weft_request_t *request_p)
{
    weft_call_t call = plain_call(WEFT_REDUCE_SCATTER, in, out, count, dtype);
    call.op = op;
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_allgather(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, weft_request_t *request_p)
{
    const weft_call_t call = plain_call(WEFT_ALLGATHER, in, out, count, dtype);
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_broadcast(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, int root, weft_request_t *request_p)
{
    weft_call_t call = plain_call(WEFT_BROADCAST, in, out, count, dtype);
    call.root = root;
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_reduce(weft_comm_t comm, const void *in, void *out, size_t count,
                          weft_dtype_t dtype, weft_redop_t op, int root, weft_request_t *request_p)
{
    weft_call_t call = plain_call(WEFT_REDUCE, in, out, count, dtype);
    call.op = op;
    call.root = root;
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_gather(weft_comm_t comm, const void *in, void *out, size_t count,
                          weft_dtype_t dtype, int root, weft_request_t *request_p)
{
    weft_call_t call = plain_call(WEFT_GATHER, in, out, count, dtype);
    call.root = root;
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_scatter(weft_comm_t comm, const void *in, void *out, size_t count,
                           weft_dtype_t dtype, int root, weft_request_t *request_p)
{
    weft_call_t call = plain_call(WEFT_SCATTER, in, out, count, dtype);
    call.root = root;
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_alltoall(weft_comm_t comm, const void *in, void *out, size_t count,
                            weft_dtype_t dtype, weft_request_t *request_p)
{
    const weft_call_t call = plain_call(WEFT_ALLTOALL, in, out, count, dtype);
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_barrier(weft_comm_t comm, weft_request_t *request_p)
{
    const weft_call_t call = plain_call(WEFT_BARRIER, NULL, NULL, 0, WEFT_U8);
    return run(comm, &call, request_p, __func__);
}

/* ---- made ready once, started often ---- */

#define OP_MAGIC 0x6f702121u

#define LAST_MS 1000 /* after its communicator's end, until nothing touches its memory any more */

struct weft_op {
    uint32_t magic;
    struct weft_comm_tie tie;
    weft_call_t call;
    weft_status_t started; /* what the latest start said */
    char algorithm[];      /* call.algorithm, which was lent */
};

static weft_status_t check_op(weft_op_t op, const char *name)
{
    return op != NULL && op->magic == OP_MAGIC
               ? WEFT_OK
               : weft_fail(WEFT_ERR_INVALID, "%s: no such operation, or it was destroyed", name);
}

/* With a communicator that is still there. */
static weft_status_t check_tied(weft_op_t op, const char *name)
{
    weft_status_t status = check_op(op, name);
    return status == WEFT_OK && op->tie.comm == NULL
               ? weft_fail(WEFT_ERR_INVALID, "%s: its communicator was closed", name)
               : status;
}

static struct weft_op *op_open(weft_comm_t comm, const weft_call_t *call)
{
    size_t len = call->algorithm != NULL ? strlen(call->algorithm) + 1 : 0;
    struct weft_op *op = calloc(1, sizeof(*op) + len);
    if (op == NULL) {
        return NULL;
    }
    op->magic = OP_MAGIC;
    weft_comm_tie_open(comm, &op->tie);
    op->call = *call;
    if (len > 0) {
        memcpy(op->algorithm, call->algorithm, len);
        op->call.algorithm = op->algorithm;
    }
    return op;
}

weft_status_t weft_op_create(weft_comm_t comm, const weft_call_t *call, weft_op_t *op_p)
{
    struct weft_op *op;
    weft_call_t used;
    weft_status_t status = read_call(comm, call, __func__, &used);
    status = status == WEFT_OK ? weft_api_check_pointer(op_p, __func__, "op_p") : status;
    status = status == WEFT_OK ? weft_api_check_kinds(comm, &used, __func__) : status;
    status = status == WEFT_OK ? weft_api_check_buffers(comm, &used, __func__) : status;
    if (status != WEFT_OK) {
        return status;
    }
    op = op_open(comm, &used);
    if (op == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for an operation");
    }
    *op_p = op;
    return WEFT_OK;
}

weft_status_t weft_op_start(weft_op_t op)
{
    weft_status_t status = check_tied(op, __func__);
    if (status == WEFT_OK && op->tie.request != NULL) {
        return weft_fail(WEFT_ERR_BUSY, "weft_op_start: it still runs; wait for it first");
    }
    if (status == WEFT_OK) {
        status = op->started = run(op->tie.comm, &op->call, &op->tie.request, __func__);
    }
    return status;
}

weft_status_t weft_op_wait(weft_op_t op, uint32_t timeout_ms)
{
    weft_status_t status = check_tied(op, __func__);
    status = status == WEFT_OK ? weft_api_check_comm(op->tie.comm, __func__) : status;
    if (status == WEFT_OK && op->tie.request != NULL) {
        return weft_api_settle(op->tie.comm, weft_p2p_wait(&op->tie.request, timeout_ms));
    }
    if (status == WEFT_OK && op->started != WEFT_OK) {
        return weft_fail(op->started, "weft_op_wait: it did not start: %s",
                         weft_status_name(op->started));
    }
    return status;
}

/* Nobody waits for its result any more; false: it still runs. */
static bool let_go(struct weft_op *op)
{
    struct weft_comm_tie *tie = &op->tie;
    if (tie->request == NULL) {
        return true;
    }
    if (!weft_p2p_is_done(tie->request)) {
        uint32_t wait_ms = weft_control_channel_status(tie->comm->channel) != WEFT_OK ? LAST_MS : 0;
        (void)weft_p2p_wait(&tie->request, wait_ms);
        return tie->request == NULL;
    }
    (void)weft_p2p_wait(&tie->request, WEFT_NO_LIMIT);
    return true;
}

weft_status_t weft_op_destroy(weft_op_t op)
{
    weft_status_t status = op == NULL ? WEFT_OK : check_op(op, __func__);
    if (status != WEFT_OK || op == NULL) {
        return status;
    }
    if (op->tie.comm != NULL && weft_api_is_usable(op->tie.comm)) { /* else a child's copy */
        if (!let_go(op)) {
            return weft_fail(WEFT_ERR_BUSY, "weft_op_destroy: it still runs; wait for it first");
        }
        weft_comm_tie_close(&op->tie);
    }
    op->magic = 0;
    free(op);
    return WEFT_OK;
}
