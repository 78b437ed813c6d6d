/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a collective would take at least, by what ranks 0 and 1 find while the others sleep:
 *
 *   shm   a flag from core to core, and the bytes that must be read and written at the rate of two
 *         processes that compute c = a + b over as many bytes
 *   tcp   half a round trip over a bare loopback socket, and the bytes that must be sent at the rate of
 *         two processes that send to each other over it
 */
#include "bench_coll.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADD_NS (10 * WEFT_NS_PER_MS)
#define ADD_MOST ((size_t)96 << 20)
#define ROUND_TRIPS 100
#define MOVES 5
#define MOVE_BYTES ((size_t)16 << 20) /* at least so much each way */

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

static bool move(struct coll_rank *rank, size_t buffer_len, size_t out, size_t in)
{
    const struct weft_bench_stream stream = {
        .fd = rank->socket, .send = rank->in, .recv = rank->out, .buffer_len = buffer_len};
    return weft_bench_socket_move(&stream, out, in) ||
           weft_bench_coll_fail(rank, "bare socket: %s", strerror(errno));
}

static bool measure_socket(struct coll_rank *rank, struct coll_limit *limit)
{
    double us[MOVES];
    size_t len = limit->bytes > 0 ? limit->bytes : 1, total = len;
    bool is_first = rank->rank == 0;
    while (total < MOVE_BYTES) {
        total += len * (1 + MOVE_BYTES / len / 4);
    }
    uint64_t begin_ns = weft_clock_ns();
    for (int i = 0; i < ROUND_TRIPS; i++) {
        if (!move(rank, 1, is_first, !is_first) || !move(rank, 1, !is_first, is_first)) {
            return false;
        }
    }
    limit->one_way_us = (double)(weft_clock_ns() - begin_ns) / 2e3 / ROUND_TRIPS;
    for (int i = 0; i < MOVES; i++) {
        begin_ns = weft_clock_ns();
        if (!move(rank, len, total, total)) {
            return false;
        }
        us[i] = (double)(weft_clock_ns() - begin_ns) / 1e3;
    }
    limit->gbs = 2 * (double)total / weft_bench_median(us, MOVES) / 1e3;
    return true;
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
    size_t bytes = is_tcp ? cell->bytes : footprint(rank, cell);
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
        double bytes = weft_bench_coll_wire_bytes(coll, plan->ranks, cell->bytes);
        return limit->one_way_us + bytes / limit->gbs / 1e3;
    }
    double bytes = weft_bench_coll_memory_bytes(coll, plan->ranks, cell);
    bool has_flag = probe_ns<WEFT_BENCH_BUSY_NS, has_rate = limit->gbs> 0;
    if (!has_flag && !has_rate) {
        return NAN;
    }
    return (has_flag ? probe_ns / 1e3 : 0) + (has_rate ? bytes / limit->gbs / 1e3 : 0);
}
