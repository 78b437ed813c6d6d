/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of a collective: known kinds, sizes that memory can hold, buffers that are there and apart. */
#include "api/check.h"
#include "reduce/reduce.h"

weft_status_t weft_api_check_kinds(weft_comm_t comm, const weft_call_t *call, const char *name)
{
    if ((unsigned)call->coll >= WEFT_COLLS) {
        return weft_fail(WEFT_ERR_INVALID, "%s: collective %d; there are 0 to %d", name,
                         (int)call->coll, WEFT_COLLS - 1);
    }
    if ((unsigned)call->dtype >= WEFT_DTYPES) {
        return weft_fail(WEFT_ERR_INVALID, "%s: dtype %d; there are 0 (i8) to %d (f8e5m2)", name,
                         (int)call->dtype, WEFT_DTYPES - 1);
    }
    if (weft_api_is_summed(call->coll) && (unsigned)call->op >= WEFT_REDOPS) {
        return weft_fail(WEFT_ERR_INVALID, "%s: redop %d; there are 0 (sum) to %d (scaled)", name,
                         (int)call->op, WEFT_REDOPS - 1);
    }
    if (weft_api_is_summed(call->coll) && !weft_reduce_is_defined(call->dtype, call->op)) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %s of %s is not defined%s", name,
                         weft_redop_name(call->op), weft_dtype_name(call->dtype),
                         call->op == WEFT_SCALED ? "; scaled sums are of floats"
                                                 : "; bitwise ones are of integers");
    }
    return weft_api_is_rooted(call->coll) ? weft_api_check_rank(comm, call->root, name) : WEFT_OK;
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

/* ---- in and out may be the same, or apart ---- */

struct range {
    uintptr_t from;
    size_t len;
};

static struct range range_of(const void *memory, size_t len)
{
    return (struct range){(uintptr_t)memory, len};
}

static bool do_overlap(struct range a, struct range b)
{
    return a.len > 0 && b.len > 0 &&
           (a.from < b.from ? b.from - a.from < a.len : a.from - b.from < b.len);
}

/* One buffer of a single piece, the other of as many as there are ranks: in place, the own one is the same. */
static weft_status_t check_pieces(weft_comm_t comm, const weft_call_t *call, struct range single,
                                  struct range whole, const char *name)
{
    bool is_in =
        call->coll == WEFT_REDUCE_SCATTER || call->coll == WEFT_SCATTER; /* the whole one */
    const size_t *counts = is_in ? call->in_counts : call->out_counts;
    const size_t *places = is_in ? call->in_places : call->out_places;
    size_t element = weft_dtype_size(call->dtype), row = 0;
    if (places == NULL && !do_overlap(single, whole)) {
        return WEFT_OK;
    }
    for (uint32_t i = 0; i < comm->ranks; i++) {
        size_t len = (counts != NULL ? counts[i] : call->count) * element;
        struct range piece = {whole.from + (places != NULL ? places[i] * element : row), len};
        row += len;
        if (do_overlap(single, piece) && (i != comm->rank || piece.from != single.from)) {
            return weft_fail(
                WEFT_ERR_INVALID,
                "%s: the %s overlaps with piece %u of the %s; in place it is piece %u, "
                "from its beginning",
                name, is_in ? "output" : "input", i, is_in ? "input" : "output", comm->rank);
        }
    }
    return WEFT_OK;
}

/* Both are used on this rank. Pieces with places on both sides may lie between each other: those are not looked
 * at. */
static weft_status_t check_overlap(weft_comm_t comm, const weft_call_t *call, struct range in,
                                   struct range out, const char *name)
{
    switch (call->coll) {
    case WEFT_ALLGATHER:
    case WEFT_GATHER:
        return check_pieces(comm, call, in, out, name);
    case WEFT_REDUCE_SCATTER:
    case WEFT_SCATTER:
        return check_pieces(comm, call, out, in, name);
    default:
        break;
    }
    if ((call->coll != WEFT_ALLTOALL && in.from == out.from) || call->in_places != NULL ||
        call->out_places != NULL || !do_overlap(in, out)) {
        return WEFT_OK;
    }
    return weft_fail(WEFT_ERR_INVALID, "%s: input and output overlap%s", name,
                     call->coll == WEFT_ALLTOALL ? "; give it two buffers"
                                                 : "; give it one buffer for both, or two apart");
}

weft_status_t weft_api_check_buffers(weft_comm_t comm, const weft_call_t *call, const char *name)
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
    return has_in && has_out ? check_overlap(comm, call, range_of(call->in, in_len),
                                             range_of(call->out, out_len), name)
                             : WEFT_OK;
}
