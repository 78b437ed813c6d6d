/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collective itself, as the timed loop calls it, and the data before and behind it. Without an
 * algorithm it is the plain call that users make (weft_allreduce …), with one it is spelled out
 * (weft_collective).
 *
 * In place: as the public header defines it, with the output buffer as the one; broadcast and gather,
 * scatter on other ranks than the root keep a buffer for what they give and one for what they get, so that
 * the check sees what came.
 */
#include "bench_coll.h"

#include <stdlib.h>
#include <string.h>

#define STALE 0xa5

/* ---- where things are ---- */

static size_t piece_len(const struct coll_rank *rank, const struct coll_cell *cell)
{
    return cell->count * weft_dtype_size(rank->plan->arguments->dtype);
}

/* This rank's piece of a whole buffer. */
static uint8_t *own_piece(const struct coll_rank *rank, const struct coll_cell *cell,
                          uint8_t *buffer)
{
    return buffer + (size_t)rank->rank * piece_len(rank, cell);
}

static void place(const struct coll_rank *rank, const struct coll_cell *cell, weft_call_t *call)
{
    bool is_root = rank->rank == rank->root;
    call->in = rank->in;
    call->out = rank->out;
    if (!cell->is_inplace) {
        return;
    }
    switch (call->coll) {
    case WEFT_ALLREDUCE:
    case WEFT_REDUCE:
        call->in = rank->out;
        break;
    case WEFT_REDUCE_SCATTER:
        call->in = rank->out;
        call->out = own_piece(rank, cell, rank->out);
        break;
    case WEFT_ALLGATHER:
        call->in = own_piece(rank, cell, rank->out);
        break;
    case WEFT_BROADCAST:
        call->out = is_root ? rank->in : rank->out;
        call->in = call->out;
        break;
    case WEFT_GATHER:
        call->in = is_root ? own_piece(rank, cell, rank->out) : rank->in;
        break;
    case WEFT_SCATTER:
        call->out = is_root ? own_piece(rank, cell, rank->in) : rank->out;
        break;
    default:
        break;
    }
}

/* ---- calling ---- */

static weft_status_t call_plain(weft_comm_t comm, const weft_call_t *call)
{
    const void *in = call->in;
    void *out = call->out;
    size_t count = call->count;
    weft_dtype_t dtype = call->dtype;
    switch (call->coll) {
    case WEFT_ALLREDUCE:
        return weft_allreduce(comm, in, out, count, dtype, call->op, NULL);
    case WEFT_REDUCE_SCATTER:
        return weft_reduce_scatter(comm, in, out, count, dtype, call->op, NULL);
    case WEFT_ALLGATHER:
        return weft_allgather(comm, in, out, count, dtype, NULL);
    case WEFT_BROADCAST:
        return weft_broadcast(comm, in, out, count, dtype, call->root, NULL);
    case WEFT_REDUCE:
        return weft_reduce(comm, in, out, count, dtype, call->op, call->root, NULL);
    case WEFT_GATHER:
        return weft_gather(comm, in, out, count, dtype, call->root, NULL);
    case WEFT_SCATTER:
        return weft_scatter(comm, in, out, count, dtype, call->root, NULL);
    case WEFT_ALLTOALL:
        return weft_alltoall(comm, in, out, count, dtype, NULL);
    case WEFT_BARRIER:
        return weft_barrier(comm, NULL);
    }
    return WEFT_ERR_INVALID;
}

weft_status_t weft_bench_coll_run(struct coll_rank *rank, const struct coll_cell *cell, int count,
                                  uint64_t *ticks)
{
    const struct coll_arguments *arguments = rank->plan->arguments;
    bool is_turning = weft_bench_coll_turns(arguments);
    bool is_plain = cell->algo == NULL && arguments->redop != WEFT_SCALED;
    weft_call_t call = WEFT_CALL_INIT;
    call.coll = arguments->coll;
    call.dtype = arguments->dtype;
    call.op = arguments->redop;
    call.count = cell->count;
    call.scale = COLL_SCALE;
    call.algorithm = cell->algo;
    if (!is_turning) {
        rank->root = arguments->root > 0 ? (int)arguments->root : 0;
    }
    call.root = rank->root;
    place(rank, cell, &call);
    uint64_t before = weft_bench_ticks();
    for (int i = 0; i < count; i++) {
        if (is_turning) {
            rank->root = rank->root + 1 < rank->plan->ranks ? rank->root + 1 : 0;
            call.root = rank->root;
            place(rank, cell, &call);
        }
        weft_status_t status =
            is_plain ? call_plain(rank->comm, &call) : weft_collective(rank->comm, &call, NULL);
        if (status != WEFT_OK) {
            return status;
        }
        if (ticks != NULL) {
            uint64_t now = weft_bench_ticks();
            ticks[i] = now - before;
            before = now;
        }
    }
    return WEFT_OK;
}

/* ---- data ---- */

void weft_bench_coll_prepare(struct coll_rank *rank, const struct coll_cell *cell,
                             bool is_for_check)
{
    weft_coll_t coll = rank->plan->arguments->coll;
    size_t len = weft_dtype_size(rank->plan->arguments->dtype);
    bool is_reduced_in_place = cell->is_inplace && weft_bench_coll_reduces(coll);
    weft_bench_coll_fill(rank->given, rank->in, cell->bytes / len, 0);
    memset(rank->out, is_reduced_in_place && !is_for_check ? 0 : STALE, cell->bytes);
    if (is_reduced_in_place && is_for_check) {
        weft_bench_coll_fill(rank->given, rank->out, cell->bytes / len, 0);
    } else if (cell->is_inplace && (coll == WEFT_ALLGATHER || coll == WEFT_GATHER)) {
        weft_bench_coll_fill(rank->given, own_piece(rank, cell, rank->out), cell->count, 0);
    }
}

struct wrongs {
    const struct coll_rank *rank;
    const struct coll_cell *cell;
    uint64_t count;
    char *why;
};

/* data: what should be `pattern`, from its element number `first` on. */
static void look(struct wrongs *wrongs, const struct coll_pattern *pattern, const uint8_t *data,
                 size_t first)
{
    size_t at = 0, len = weft_dtype_size(pattern->dtype), elements = wrongs->cell->count;
    uint64_t wrong = weft_bench_coll_differ(pattern, data, elements, first, &at);
    if (wrong > 0 && wrongs->count == 0) {
        size_t index = (size_t)(data - wrongs->rank->out) / len + at;
        snprintf(wrongs->why, COLL_TEXT_LEN,
                 "%s of %zu bytes, %s: elements of rank %d are wrong, the first is number %zu",
                 weft_coll_name(wrongs->rank->plan->arguments->coll), wrongs->cell->bytes,
                 wrongs->cell->is_inplace ? "in place" : "out of place", wrongs->rank->rank, index);
    }
    wrongs->count += wrong;
}

/* One piece of each rank. first: of the element in each one's data. */
static void look_at_pieces(struct wrongs *wrongs, size_t first)
{
    const struct coll_rank *rank = wrongs->rank;
    struct coll_pattern *pattern = weft_cli_alloc(1, sizeof(*pattern));
    for (int from = 0; from < rank->plan->ranks; from++) {
        weft_bench_coll_given(rank->plan->arguments->dtype, WEFT_SUM, rank->plan->ranks, from,
                              pattern);
        look(wrongs, pattern, rank->out + (size_t)from * piece_len(rank, wrongs->cell), first);
    }
    free(pattern);
}

static void look_at_roots(struct wrongs *wrongs, size_t first)
{
    const struct coll_rank *rank = wrongs->rank;
    struct coll_pattern *pattern = weft_cli_alloc(1, sizeof(*pattern));
    weft_bench_coll_given(rank->plan->arguments->dtype, WEFT_SUM, rank->plan->ranks, rank->root,
                          pattern);
    look(wrongs, pattern, rank->out, first);
    free(pattern);
}

uint64_t weft_bench_coll_check(struct coll_rank *rank, const struct coll_cell *cell, char *why)
{
    struct wrongs wrongs = {.rank = rank, .cell = cell, .why = why};
    bool is_root = rank->rank == rank->root;
    size_t mine = (size_t)rank->rank * cell->count;
    switch (rank->plan->arguments->coll) {
    case WEFT_ALLREDUCE:
        look(&wrongs, rank->wanted, rank->out, 0);
        break;
    case WEFT_REDUCE:
        if (is_root) {
            look(&wrongs, rank->wanted, rank->out, 0);
        }
        break;
    case WEFT_REDUCE_SCATTER:
        look(&wrongs, rank->wanted, cell->is_inplace ? own_piece(rank, cell, rank->out) : rank->out,
             mine);
        break;
    case WEFT_ALLGATHER:
        look_at_pieces(&wrongs, 0);
        break;
    case WEFT_GATHER:
        if (is_root) {
            look_at_pieces(&wrongs, 0);
        }
        break;
    case WEFT_ALLTOALL:
        look_at_pieces(&wrongs, mine);
        break;
    case WEFT_BROADCAST:
    case WEFT_SCATTER:
        if (!is_root || !cell->is_inplace) {
            look_at_roots(&wrongs, rank->plan->arguments->coll == WEFT_SCATTER ? mine : 0);
        }
        break;
    case WEFT_BARRIER:
        break;
    }
    return wrongs.count;
}
