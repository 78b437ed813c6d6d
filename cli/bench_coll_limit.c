/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a collective would take at least, by what ranks 0 and 1 find while the others sleep:
 *
 *   shm   a flag from core to core, and the bytes that must be read and written at the rate of two
 *         processes that compute c = a + b over as many bytes
 *   tcp   two processes that send the bytes that must be sent to each other, half each, over a bare
 *         loopback socket
 */
#include "bench_coll.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADD_NS (10 * WEFT_NS_PER_MS)
#define ADD_MOST ((size_t)96 << 20)
#define MOVES_MIN 3
#define MOVES_MAX 101
#define MOVE_BYTES ((size_t)32 << 20) /* each way, about; of one move at most */

static bool is_one_host(const struct coll_rank *rank)
{
    return rank->hosts == 1 && rank->plan->ranks > 1;
}

/* ---- the flag ---- */

bool weft_bench_coll_probe(struct coll_rank *rank, double *ns_p)
{
    *ns_p = NAN;
    if (!rank->ground->meet(rank)) {
        return false;
    }
    if (rank->ground->is_shared && rank->plan->ranks > 1 && rank->rank < 2) {
        *ns_p = weft_bench_probe(&rank->shared->flags, rank->rank == 0, &rank->flag);
    }
    return rank->ground->meet(rank);
}

/* ---- memory ---- */

/* What one of the two processes goes through: half of all bytes, and no more than it takes to be far beyond
 * any cache. */
static size_t footprint(const struct coll_rank *rank, const struct coll_cell *cell)
{
    double bytes =
        weft_bench_coll_memory_bytes(rank->plan->arguments->coll, rank->plan->ranks, cell) / 2;
    return bytes < (double)ADD_MOST ? (size_t)bytes : ADD_MOST;
}

/* NaN: too small to be measured, or no memory. */
static double add_gbs(size_t bytes)
{
    size_t count = bytes / 3 / sizeof(float) / 16 * 16; /* each third begins a cache line */
    float *memory = NULL;
    if (count == 0 || posix_memalign((void **)&memory, 64, 3 * count * sizeof(float)) != 0) {
        return NAN;
    }
    memset(memory, 0, 3 * count * sizeof(float));
    double gbs = weft_bench_add_gbs(memory, memory + count, memory + 2 * count, count, ADD_NS);
    free(memory);
    return gbs;
}

/* ---- sockets ---- */

bool weft_bench_coll_socket_open(struct coll_rank *rank)
{
    uint16_t port = 0;
    if (rank->plan->arguments->path != COLL_TCP || !is_one_host(rank)) {
        return true;
    }
    int listener = rank->rank == 0 ? weft_bench_socket_listen(&port) : -1;
    weft_status_t status = weft_control_broadcast(rank->comm, &port, sizeof(port), 0);
    if (status != WEFT_OK) {
        return weft_bench_coll_fail_status(rank, "weft_control_broadcast", status);
    }
    if (rank->rank > 1) {
        return true;
    }
    if (rank->rank == 1 || listener >= 0) {
        rank->socket =
            rank->rank == 0 ? weft_bench_socket_accept(listener) : weft_bench_socket_connect(port);
    }
    return rank->socket >= 0 ||
           weft_bench_coll_fail(rank, "no bare socket over loopback: %s", strerror(errno));
}

static bool move(struct coll_rank *rank, size_t buffer_len, size_t bytes)
{
    const struct weft_bench_stream stream = {
        .fd = rank->socket, .send = rank->in, .recv = rank->out, .buffer_len = buffer_len};
    return weft_bench_socket_move(&stream, bytes, bytes) ||
           weft_bench_coll_fail(rank, "bare socket: %s", strerror(errno));
}

/* Each of the two sends limit->bytes and receives as many, at once. */
static bool measure_socket(struct coll_rank *rank, struct coll_limit *limit)
{
    double us[MOVES_MAX];
    size_t bytes = limit->bytes, room = rank->plan->buffer_len;
    size_t wanted = MOVE_BYTES / bytes;
    size_t moves = wanted < MOVES_MIN ? MOVES_MIN : wanted > MOVES_MAX ? MOVES_MAX : wanted;
    for (size_t i = 0; i <= moves; i++) {
        uint64_t begin_ns = weft_clock_ns();
        if (!move(rank, bytes < room ? bytes : room, bytes)) {
            return false;
        }
        if (i > 0) { /* the first one warms up */
            us[i - 1] = (double)(weft_clock_ns() - begin_ns) / 1e3;
        }
    }
    limit->us = weft_bench_median(us, moves);
    limit->gbs = 2 * (double)bytes / limit->us / 1e3;
    return true;
}

/* Half of what must be sent, by each of the two; of much, enough to know the rate. A barrier: one byte. */
static size_t wire_bytes(const struct coll_rank *rank, const struct coll_cell *cell)
{
    double bytes =
        weft_bench_coll_wire_bytes(rank->plan->arguments->coll, rank->plan->ranks, cell->bytes) / 2;
    return bytes < 1 ? 1 : bytes < (double)MOVE_BYTES ? (size_t)bytes : MOVE_BYTES;
}

/* ---- both ---- */

static struct coll_limit *find(struct coll_rank *rank, size_t bytes)
{
    for (int i = 0; i < rank->limit_count; i++) {
        if (rank->limit[i].bytes == bytes) {
            return &rank->limit[i];
        }
    }
    return NULL;
}

static bool measure_memory(struct coll_rank *rank, struct coll_limit *limit)
{
    double gbs = rank->rank < 2 ? add_gbs(limit->bytes) : NAN;
    double *all = weft_cli_alloc((size_t)rank->plan->ranks, sizeof(gbs));
    weft_status_t status = weft_control_allgather(rank->comm, &gbs, sizeof(gbs), all);
    limit->gbs = all[0] + all[1];
    free(all);
    return status == WEFT_OK || weft_bench_coll_fail_status(rank, "weft_control_allgather", status);
}

bool weft_bench_coll_limit(struct coll_rank *rank, const struct coll_cell *cell,
                           const struct coll_limit **limit_p)
{
    bool is_tcp = rank->plan->arguments->path == COLL_TCP;
    size_t bytes = is_tcp ? wire_bytes(rank, cell) : footprint(rank, cell);
    *limit_p = NULL;
    if (!is_one_host(rank)) {
        return true;
    }
    struct coll_limit *limit = find(rank, bytes);
    if (limit == NULL && rank->limit_count < COLL_LIMITS_MAX) {
        limit = &rank->limit[rank->limit_count++];
        limit->bytes = bytes;
        bool is_fine = rank->ground->meet(rank) &&
                       (is_tcp ? rank->rank > 1 || measure_socket(rank, limit)
                               : measure_memory(rank, limit)) &&
                       rank->ground->meet(rank);
        if (!is_fine) {
            return false;
        }
    }
    *limit_p = rank->rank == 0 ? limit : NULL;
    return true;
}

double weft_bench_coll_limit_us(const struct coll_plan *plan, const struct coll_cell *cell,
                                const struct coll_limit *limit, double probe_ns)
{
    weft_coll_t coll = plan->arguments->coll;
    if (limit == NULL) {
        return NAN;
    }
    if (plan->arguments->path == COLL_TCP) {
        double each = weft_bench_coll_wire_bytes(coll, plan->ranks, cell->bytes) / 2;
        return limit->us * fmax(1, each / (double)limit->bytes);
    }
    double bytes = weft_bench_coll_memory_bytes(coll, plan->ranks, cell);
    bool has_flag = probe_ns<WEFT_BENCH_BUSY_NS, has_rate = limit->gbs> 0;
    if (!has_flag && !has_rate) {
        return NAN;
    }
    return (has_flag ? probe_ns / 1e3 : 0) + (has_rate ? bytes / limit->gbs / 1e3 : 0);
}
