/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions for collectives: arguments checked, then one call down. */
#include "api/check.h"
#include "reduce/reduce.h"

#include <stdlib.h>
#include <string.h>

static bool is_rooted(weft_coll_t coll)
{
    return coll == WEFT_BROADCAST || coll == WEFT_REDUCE || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER;
}

static bool is_summed(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE || coll == WEFT_REDUCE_SCATTER;
}

static weft_status_t check_kinds(weft_comm_t comm, const weft_call_t *call, const char *name)
{
    if ((unsigned)call->coll >= WEFT_COLLS) {
        return weft_fail(WEFT_ERR_INVALID, "%s: collective %d; there are 0 to %d", name,
                         (int)call->coll, WEFT_COLLS - 1);
    }
    if ((unsigned)call->dtype >= WEFT_DTYPES) {
        return weft_fail(WEFT_ERR_INVALID, "%s: dtype %d; there are 0 (i8) to %d (f8e5m2)", name,
                         (int)call->dtype, WEFT_DTYPES - 1);
    }
    if (is_summed(call->coll) && !weft_reduce_is_defined(call->dtype, call->op)) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %s of %s is not defined%s", name,
                         weft_redop_name(call->op), weft_dtype_name(call->dtype),
                         call->op == WEFT_SCALED ? "; scaled sums are of floats"
                                                 : "; bitwise ones are of integers");
    }
    return is_rooted(call->coll) ? weft_api_check_rank(comm, call->root, name) : WEFT_OK;
}

static weft_status_t check_sum(const size_t *counts, uint32_t ranks, size_t element,
                               const char *name, size_t *sum_p)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        if (counts[i] > (SIZE_MAX / 2 - sum) / element) {
            return weft_fail(WEFT_ERR_INVALID, "%s: the pieces are more than memory can hold",
                             name);
        }
        sum += counts[i] * element;
    }
    *sum_p = sum;
    return WEFT_OK;
}

static weft_status_t check_places(const size_t *places, uint32_t ranks, size_t element,
                                  const char *name)
{
    for (uint32_t i = 0; i < ranks; i++) {
        if (places[i] > SIZE_MAX / 2 / element) {
            return weft_fail(WEFT_ERR_INVALID, "%s: place %zu of piece %u is beyond all memory",
                             name, places[i], i);
        }
    }
    return WEFT_OK;
}

/* Bytes of a buffer, as far as it matters whether there are any. */
static weft_status_t measure(weft_comm_t comm, const weft_call_t *call, const char *name,
                             bool is_in, size_t *len_p)
{
    size_t element = weft_dtype_size(call->dtype);
    const size_t *counts = is_in ? call->in_counts : call->out_counts;
    bool is_whole = is_in ? call->coll == WEFT_REDUCE_SCATTER || call->coll == WEFT_SCATTER ||
                                call->coll == WEFT_ALLTOALL
                          : call->coll == WEFT_ALLGATHER || call->coll == WEFT_GATHER ||
                                call->coll == WEFT_ALLTOALL;
    const size_t *places = is_in ? call->in_places : call->out_places;
    if (is_whole && places != NULL) {
        weft_status_t status = check_places(places, comm->ranks, element, name);
        if (status != WEFT_OK) {
            return status;
        }
    }
    if (is_whole && counts != NULL) {
        return check_sum(counts, comm->ranks, element, name, len_p);
    }
    if (call->count > UINT32_MAX && /* no division on the usual way */
        call->count > SIZE_MAX / 2 / element / (is_whole ? comm->ranks : 1)) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %zu elements are more than memory can hold", name,
                         call->count);
    }
    *len_p = call->count * element * (is_whole ? comm->ranks : 1);
    return WEFT_OK;
}

static weft_status_t check_buffers(weft_comm_t comm, const weft_call_t *call, const char *name)
{
    bool is_root = (uint32_t)call->root == comm->rank;
    bool has_in = (call->coll != WEFT_BROADCAST && call->coll != WEFT_SCATTER) || is_root;
    bool has_out = (call->coll != WEFT_REDUCE && call->coll != WEFT_GATHER) || is_root;
    size_t in_len = 0, out_len = 0;
    weft_status_t status = measure(comm, call, name, true, &in_len);
    status = status == WEFT_OK ? measure(comm, call, name, false, &out_len) : status;
    if (status != WEFT_OK || call->coll == WEFT_BARRIER) {
        return status;
    }
    if (has_in && in_len > 0 && call->in == NULL) {
        return weft_fail(WEFT_ERR_INVALID, "%s: the input of %zu bytes is NULL", name, in_len);
    }
    if (has_out && out_len > 0 && call->out == NULL) {
        return weft_fail(WEFT_ERR_INVALID, "%s: the output of %zu bytes is NULL", name, out_len);
    }
    if (call->coll == WEFT_ALLTOALL && call->in == call->out && in_len > 0) {
        return weft_fail(WEFT_ERR_INVALID, "%s: not in place; give it two buffers", name);
    }
    return WEFT_OK;
}

/* Would the checks find nothing? Without a call or a division, for the way of every short operation. */
static inline bool is_plainly_good(weft_comm_t comm, const weft_call_t *call)
{
    return (unsigned)call->coll < WEFT_COLLS && (unsigned)call->dtype < WEFT_DTYPES &&
           (unsigned)call->op <= WEFT_AVG && call->count <= UINT32_MAX && call->in != NULL &&
           call->out != NULL && call->in != call->out && call->in_counts == NULL &&
           call->out_counts == NULL && call->in_places == NULL && call->out_places == NULL &&
           (uint32_t)call->root < comm->ranks;
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
    call->root = is_rooted(call->coll) ? call->root : 0;
    call->op = is_summed(call->coll) ? call->op : WEFT_SUM;
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
        status = check_kinds(comm, call, name);
        status = status == WEFT_OK ? check_buffers(comm, call, name) : status;
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

weft_status_t weft_allreduce(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, weft_redop_t op, weft_request_t *request_p)
{
    const weft_call_t call = {.coll = WEFT_ALLREDUCE,
                              .dtype = dtype,
                              .op = op,
                              .in = in,
                              .out = out,
                              .count = count,
                              .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_reduce_scatter(weft_comm_t comm, const void *in, void *out, size_t count,
                                  weft_dtype_t dtype, weft_redop_t op, weft_request_t *request_p)
{
    const weft_call_t call = {.coll = WEFT_REDUCE_SCATTER,
                              .dtype = dtype,
                              .op = op,
                              .in = in,
                              .out = out,
                              .count = count,
                              .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_allgather(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, weft_request_t *request_p)
{
    const weft_call_t call = {
        .coll = WEFT_ALLGATHER, .dtype = dtype, .in = in, .out = out, .count = count, .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_broadcast(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, int root, weft_request_t *request_p)
{
    const weft_call_t call = {.coll = WEFT_BROADCAST,
                              .dtype = dtype,
                              .root = root,
                              .in = in,
                              .out = out,
                              .count = count,
                              .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_reduce(weft_comm_t comm, const void *in, void *out, size_t count,
                          weft_dtype_t dtype, weft_redop_t op, int root, weft_request_t *request_p)
{
    const weft_call_t call = {.coll = WEFT_REDUCE,
                              .dtype = dtype,
                              .op = op,
                              .root = root,
                              .in = in,
                              .out = out,
                              .count = count,
                              .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_gather(weft_comm_t comm, const void *in, void *out, size_t count,
                          weft_dtype_t dtype, int root, weft_request_t *request_p)
{
    const weft_call_t call = {.coll = WEFT_GATHER,
                              .dtype = dtype,
                              .root = root,
                              .in = in,
                              .out = out,
                              .count = count,
                              .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_scatter(weft_comm_t comm, const void *in, void *out, size_t count,
                           weft_dtype_t dtype, int root, weft_request_t *request_p)
{
    const weft_call_t call = {.coll = WEFT_SCATTER,
                              .dtype = dtype,
                              .root = root,
                              .in = in,
                              .out = out,
                              .count = count,
                              .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_alltoall(weft_comm_t comm, const void *in, void *out, size_t count,
                            weft_dtype_t dtype, weft_request_t *request_p)
{
    const weft_call_t call = {
        .coll = WEFT_ALLTOALL, .dtype = dtype, .in = in, .out = out, .count = count, .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_barrier(weft_comm_t comm, weft_request_t *request_p)
{
    const weft_call_t call = {.coll = WEFT_BARRIER, .dtype = WEFT_U8, .scale = 1.0};
    return run(comm, &call, request_p, __func__);
}

weft_status_t weft_comm_duplicate(weft_comm_t comm, weft_comm_t *comm_p)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    return status == WEFT_OK ? weft_comm_split(comm, 0, (int)comm->rank, comm_p) : status;
}

/* ---- made ready once, started often ---- */

#define OP_MAGIC 0x6f702121u

struct weft_op {
    uint32_t magic;
    weft_comm_t comm;
    weft_call_t call;
    weft_request_t request; /* NULL: it does not run */
    char algorithm[];       /* call.algorithm, which was lent */
};

static weft_status_t check_op(weft_op_t op, const char *name)
{
    return op != NULL && op->magic == OP_MAGIC
               ? WEFT_OK
               : weft_fail(WEFT_ERR_INVALID, "%s: no such operation, or it was destroyed", name);
}

static struct weft_op *op_open(weft_comm_t comm, const weft_call_t *call)
{
    size_t len = call->algorithm != NULL ? strlen(call->algorithm) + 1 : 0;
    struct weft_op *op = calloc(1, sizeof(*op) + len);
    if (op == NULL) {
        return NULL;
    }
    op->magic = OP_MAGIC;
    op->comm = comm;
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
    status = status == WEFT_OK ? check_kinds(comm, &used, __func__) : status;
    status = status == WEFT_OK ? check_buffers(comm, &used, __func__) : status;
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
    weft_status_t status = check_op(op, __func__);
    if (status == WEFT_OK && op->request != NULL) {
        return weft_fail(WEFT_ERR_BUSY, "weft_op_start: it still runs; wait for it first");
    }
    return status == WEFT_OK ? run(op->comm, &op->call, &op->request, __func__) : status;
}

weft_status_t weft_op_wait(weft_op_t op, uint32_t timeout_ms)
{
    weft_status_t status = check_op(op, __func__);
    return status == WEFT_OK ? weft_wait(&op->request, timeout_ms) : status;
}

weft_status_t weft_op_destroy(weft_op_t op)
{
    weft_status_t status = op == NULL ? WEFT_OK : check_op(op, __func__);
    if (status == WEFT_OK && op != NULL && op->request != NULL) {
        return weft_fail(WEFT_ERR_BUSY, "weft_op_destroy: it still runs; wait for it first");
    }
    if (status == WEFT_OK && op != NULL) {
        op->magic = 0;
        free(op);
    }
    return status;
}
