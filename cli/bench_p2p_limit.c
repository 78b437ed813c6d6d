/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine itself gives, measured between the same two ranks, on the same buffers, right
 * before Weft is: without that a figure says more about the minute than about the library (cores of
 * a virtual machine move near and far).
 *
 *   shm   a flag from core to core (the probe), and one core's memcpy of the message
 *   tcp   a bare loopback socket: no delay, Weft's congestion control, 1 MiB writes, both sides
 *         spinning on it
 */
#include "bench_p2p.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define COPY_SAMPLES 9
#define COPY_BYTES ((size_t)256 << 10) /* at least so much between two readings of the clock */
#define COPIES_MAX 4096
#define MOVES_MAX 301
#define MOVES_MIN 5
#define MOVE_BYTES ((size_t)256 << 20) /* no more than this for one limit, moves permitting */

double weft_bench_p2p_probe(struct p2p_rank *rank)
{
    return rank->ground->is_shared
               ? weft_bench_probe(&rank->shared->flags, rank->rank == 0, &rank->say)
               : NAN;
}

/* ---- memcpy ---- */

/* One core copies a message, buffer after buffer as the transfer does; microseconds. */
static double copy_us(struct p2p_rank *rank, const struct p2p_series *series)
{
    double us[COPY_SAMPLES] = {0};
    size_t wanted = COPY_BYTES / series->bytes + 1;
    size_t copies = wanted < COPIES_MAX ? wanted : COPIES_MAX;
    size_t slots = (size_t)series->slots;
    for (int sample = -1; sample < COPY_SAMPLES; sample++) { /* the first one warms up */
        uint64_t begin_ns = weft_clock_ns();
        for (size_t i = 0; i < copies; i++) {
            size_t at = (i % slots) * series->bytes;
            memcpy(rank->recv + at, rank->send + at, series->bytes);
            __asm__ volatile("" ::: "memory"); /* the compiler must not drop a copy */
        }
        if (sample >= 0) {
            us[sample] = (double)(weft_clock_ns() - begin_ns) / 1e3 / (double)copies;
        }
    }
    return weft_bench_median(us, COPY_SAMPLES);
}

static double shm_limit(struct p2p_rank *rank, const struct p2p_series *series, double probe_ns)
{
    bool is_both = series->op == P2P_BIBW; /* then both cores copy, at the same time */
    if (rank->rank != 0 && !is_both) {
        return NAN;
    }
    double copy = copy_us(rank, series);
    switch (series->op) {
    case P2P_LAT:
        return probe_ns / 1e3 + copy;
    case P2P_RTT:
    case P2P_MESH:
        return 2 * (probe_ns / 1e3 + copy);
    default:
        return copy;
    }
}

/* ---- the bare socket ---- */

/* Rank 1 listens, rank 0 connects. false: errno, or tell() has said why. */
static bool connect_pair(struct p2p_rank *rank)
{
    uint16_t *port = &rank->shared->port;
    int listener = rank->rank == 1 ? weft_bench_socket_listen(port) : -1;
    if (rank->rank == 1 && listener < 0) {
        return false;
    }
    if (!rank->ground->tell(rank, port, sizeof(*port))) {
        if (listener >= 0) {
            close(listener);
        }
        return false;
    }
    rank->socket =
        rank->rank == 1 ? weft_bench_socket_accept(listener) : weft_bench_socket_connect(*port);
    return rank->socket >= 0;
}

bool weft_bench_p2p_socket_open(struct p2p_rank *rank)
{
    if (rank->plan->path != P2P_TCP || rank->rank > 1 || !rank->has_limit) {
        return true;
    }
    return connect_pair(rank) ||
           weft_bench_p2p_fail(rank, "no bare socket over loopback: %s", strerror(errno));
}

/* One sample of the series, over the bare socket. */
static bool move_sample(struct p2p_rank *rank, const struct p2p_series *series)
{
    const struct weft_bench_stream stream = {.fd = rank->socket,
                                             .send = rank->send,
                                             .recv = rank->recv,
                                             .buffer_len = series->bytes * (size_t)series->slots};
    size_t total = series->bytes * (size_t)series->per_clock;
    bool is_first = rank->rank == 0;
    switch (series->op) {
    case P2P_LAT:
    case P2P_RTT:
    case P2P_MESH:
        return weft_bench_socket_move(&stream, is_first ? total : 0, is_first ? 0 : total) &&
               weft_bench_socket_move(&stream, is_first ? 0 : total, is_first ? total : 0);
    case P2P_BIBW:
        return weft_bench_socket_move(&stream, total, total);
    default: /* one way, and an answer of one byte */
        return weft_bench_socket_move(&stream, is_first ? total : 0, is_first ? 0 : total) &&
               weft_bench_socket_move(&stream, is_first ? 0 : 1, is_first ? 1 : 0);
    }
}

static bool tcp_limit(struct p2p_rank *rank, const struct p2p_series *series, double *us_p)
{
    double us[MOVES_MAX] = {0};
    size_t moves = MOVE_BYTES / (series->bytes * (size_t)series->per_clock);
    moves = moves < MOVES_MIN ? MOVES_MIN : moves > MOVES_MAX ? MOVES_MAX : moves;
    for (size_t i = 0; i <= moves; i++) {
        uint64_t begin_ns = weft_clock_ns();
        if (!move_sample(rank, series)) {
            return weft_bench_p2p_fail(rank, "bare socket: %s", strerror(errno));
        }
        if (i > 0) { /* the first one warms up */
            us[i - 1] = (double)(weft_clock_ns() - begin_ns) / 1e3;
        }
    }
    int messages = series->op == P2P_LAT ? 2 : series->per_clock;
    *us_p = weft_bench_median(us, moves) / messages;
    return true;
}

bool weft_bench_p2p_limit(struct p2p_rank *rank, const struct p2p_series *series, double probe_ns,
                          double *us_p)
{
    struct p2p_series bare = *series;
    if (weft_bench_p2p_is_mesh(series->op)) {
        bare.slots = 1; /* its slots are what partners sent; two ranks need one */
    }
    if (rank->plan->path == P2P_TCP) {
        return tcp_limit(rank, &bare, us_p);
    }
    *us_p = shm_limit(rank, &bare, probe_ns);
    return true;
}
