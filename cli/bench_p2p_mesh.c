/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The full mesh: every rank exchanges a message with every other. In step s of a pass rank i meets
 * rank (s - i) mod n, so that every pair meets exactly once and all pairs of a step are different
 * ranks; the lower rank sends first. All ranks go through the steps in the same order: the pair
 * with the lowest step can always go on, so nobody waits in a circle.
 *
 * Each iteration makes two passes. The first is timed as a whole (the slowest rank counts). In the
 * second every pair bounces twice: the first bounce waits until the partner has come to this step,
 * the second is the round trip that is kept.
 *
 * P2P_MESHBW (bench_p2p_meshbw.c) is the same with another pass: all messages at once.
 */
#include "bench_p2p.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

#define TAG 5

struct pass {
    uint32_t iteration;
    bool is_kept; /* of pairs: round trips are samples */
    uint64_t *samples;
};

static bool bounce(struct p2p_rank *rank, const struct p2p_series *series, int partner)
{
    uint8_t *slot = rank->recv + (size_t)partner * series->bytes;
    bool is_first = rank->rank < partner;
    weft_message_t message;
    weft_status_t status = WEFT_OK;
    if (is_first) {
        status = weft_send(rank->comm, rank->send, series->bytes, partner, TAG, NULL);
    }
    if (status == WEFT_OK) {
        status = weft_recv(rank->comm, slot, series->bytes, partner, TAG, &message, NULL);
    }
    if (status == WEFT_OK && !is_first) {
        status = weft_send(rank->comm, rank->send, series->bytes, partner, TAG, NULL);
    }
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "the mesh", status);
    }
    return message.len == series->bytes ||
           weft_bench_p2p_fail(rank, "mesh: a message of %zu bytes came from rank %d as %zu",
                               series->bytes, partner, message.len);
}

/* Pairs in rows: (0,1) (0,2) … (1,2) … */
static size_t pair_index(int low, int high, int ranks)
{
    size_t before = (size_t)low * (size_t)(2 * ranks - low - 1) / 2;
    return before + (size_t)(high - low - 1);
}

bool weft_bench_p2p_is_mesh(enum p2p_op op)
{
    return op == P2P_MESH || op == P2P_MESHBW;
}

/* The pairs with higher ranks; of P2P_MESHBW what comes to this rank. */
void weft_bench_p2p_mesh_own(const struct p2p_series *series, int rank, int ranks, size_t *first_p,
                             size_t *count_p)
{
    if (series->op == P2P_MESHBW) {
        *first_p = weft_bench_p2p_flood_index(rank == 0, rank, ranks);
        *count_p = (size_t)(ranks - 1);
    } else {
        *first_p = pair_index(rank, rank + 1, ranks);
        *count_p = (size_t)(ranks - 1 - rank);
    }
}

static bool pass_whole(struct p2p_rank *rank, const struct p2p_series *series)
{
    int ranks = rank->plan->ranks;
    for (int step = 0; step < ranks; step++) {
        int partner = (step - rank->rank + ranks) % ranks;
        if (partner != rank->rank && !bounce(rank, series, partner)) {
            return false;
        }
    }
    return true;
}

static bool pass_pairs(struct p2p_rank *rank, const struct p2p_series *series,
                       const struct pass *pass)
{
    int ranks = rank->plan->ranks;
    for (int step = 0; step < ranks; step++) {
        int partner = (step - rank->rank + ranks) % ranks;
        if (partner == rank->rank) {
            continue;
        }
        if (!bounce(rank, series, partner)) {
            return false;
        }
        uint64_t begin_ns = weft_clock_ns();
        if (!bounce(rank, series, partner)) {
            return false;
        }
        if (pass->is_kept && rank->rank < partner) {
            pass->samples[pair_index(rank->rank, partner, ranks)] =
                (weft_clock_ns() - begin_ns) * 1000;
        }
    }
    return true;
}

static void check(struct p2p_rank *rank, const struct p2p_series *series, uint32_t iteration)
{
    for (int partner = 0; partner < rank->plan->ranks; partner++) {
        size_t at = 0, base = (size_t)partner * series->bytes;
        uint64_t seed = weft_bench_p2p_seed(series->bytes, iteration, partner);
        uint64_t wrong = partner == rank->rank
                             ? 0
                             : weft_bench_p2p_differ(rank->recv + base, series->bytes, seed, &at);
        if (wrong > 0) {
            weft_bench_p2p_found_wrong(rank, series, base + at, wrong);
        }
    }
}

static void fill(struct p2p_rank *rank, const struct p2p_series *series, uint32_t iteration)
{
    uint64_t seed = weft_bench_p2p_seed(series->bytes, iteration, rank->rank);
    weft_bench_p2p_fill(rank->send, series->bytes, seed);
    memset(rank->recv, (int)~seed & 0xff, series->bytes * (size_t)rank->plan->ranks);
}

static bool iterate(struct p2p_rank *rank, const struct p2p_series *series, const struct pass *pass,
                    struct p2p_outcome *outcome)
{
    struct p2p_shared *shared = rank->shared;
    struct p2p_nics nics_before, nics_after;
    fill(rank, series, pass->iteration);
    weft_bench_p2p_nics_read(rank->net_dev, &nics_before);
    if (!rank->ground->meet(rank)) {
        return false;
    }
    uint64_t cpu_ns = weft_clock_cpu_ns(), begin_ns = weft_clock_ns();
    bool is_flood = series->op == P2P_MESHBW;
    if (is_flood ? !weft_bench_p2p_flood(rank, series, pass->samples) : !pass_whole(rank, series)) {
        return false;
    }
    weft_bench_keep_slowest(&shared->pass_ns, weft_clock_ns() - begin_ns);
    cpu_ns = weft_clock_cpu_ns() - cpu_ns;
    if (pass->is_kept && (rank->rank == 0 || !rank->plan->is_threads)) {
        atomic_fetch_add(&outcome->cpu_ns, cpu_ns);
    }
    if (!rank->ground->meet(rank)) {
        return false;
    }
    if (pass->is_kept && rank->rank == 0) {
        weft_bench_p2p_nics_read(rank->net_dev, &nics_after);
        weft_bench_p2p_nics_add(&outcome->nics, &nics_before, &nics_after);
    }
    if (!is_flood && (!pass_pairs(rank, series, pass) || !rank->ground->meet(rank))) {
        return false;
    }
    if (rank->plan->is_checked) {
        check(rank, series, pass->iteration);
    }
    return true;
}

/* Warm-up included. */
static bool iterate_all(struct p2p_rank *rank, const struct p2p_series *series,
                        struct p2p_outcome *outcome)
{
    size_t pairs = series->samples / (size_t)series->iters;
    uint64_t *samples = weft_bench_p2p_samples(rank->shared, rank->plan) + series->first;
    for (int i = -series->warmup; i < series->iters; i++) {
        struct pass pass = {
            .iteration = (uint32_t)(i + series->warmup),
            .is_kept = i >= 0,
            .samples = i >= 0 ? samples + (size_t)i * pairs : NULL,
        };
        rank->ground->step(rank, "the mesh");
        if (!iterate(rank, series, &pass, outcome)) {
            return false;
        }
        /* the others come here again only after the next barrier */
        if (rank->rank == 0 || !rank->ground->is_shared) {
            uint64_t slowest_ns = atomic_exchange(&rank->shared->pass_ns, 0);
            if (i >= 0) {
                rank->pass_us[i] = (double)slowest_ns / 1e3;
            }
        }
    }
    return true;
}

bool weft_bench_p2p_mesh(struct p2p_rank *rank, const struct p2p_series *series,
                         struct p2p_outcome *outcome)
{
    /* ranks that share a core do not reach what two cores reach */
    bool has_limit = rank->has_limit && series->op == P2P_MESH &&
                     (unsigned)rank->plan->ranks <= weft_topo_cpus("");
    double probe_ns = 0, limit_us = NAN;
    if (rank->rank < 2) {
        if (!rank->ground->meet_pair(rank)) {
            return false;
        }
        probe_ns = weft_bench_p2p_probe(rank);
        if (has_limit && !weft_bench_p2p_limit(rank, series, probe_ns, &limit_us)) {
            return false;
        }
    }
    if (!rank->ground->meet(rank) || !iterate_all(rank, series, outcome)) {
        return false;
    }
    if (rank->rank < 2) {
        double probe_after_ns = weft_bench_p2p_probe(rank);
        if (rank->rank == 0) {
            outcome->probe_ns[0] = probe_ns;
            outcome->probe_ns[1] = probe_after_ns;
            outcome->limit_us = limit_us;
            outcome->moved = (series->op == P2P_MESH ? 2 : 1) * series->bytes * series->samples;
        }
    }
    return true;
}
