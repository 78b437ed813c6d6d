/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that the command has forked (or made as threads) meet in the memory of their crew. What
 * they find goes straight to where the parent reads it. Whoever fails makes the parent kill all, so
 * nobody needs to be told here.
 */
#include "bench_p2p.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Shorter than the parent's patience, so that Weft's own error, which names ranks, is the one
 * shown. */
#define TIMEOUT_MS 20000
#define SPIN_NS (10 * WEFT_NS_PER_MS)

/* Not the crew's: with threads the crew has one member. */
static bool wait_in(struct p2p_barrier *barrier, int ranks)
{
    uint32_t generation = atomic_load(&barrier->generation);
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 == (uint32_t)ranks) {
        atomic_store(&barrier->arrived, 0);
        atomic_fetch_add(&barrier->generation, 1);
        syscall(SYS_futex, &barrier->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return true;
    }
    /* Two spin for a while, as they will when measured: a sleeper may be woken on its waker's core,
     * and the scheduler takes its time to part them. More sleep: they would be in the way. */
    uint64_t until_ns = ranks == 2 ? weft_clock_ns() + SPIN_NS : 0;
    while (atomic_load(&barrier->generation) == generation && weft_clock_ns() < until_ns) {
    }
    while (atomic_load(&barrier->generation) == generation) {
        syscall(SYS_futex, &barrier->generation, FUTEX_WAIT, generation, NULL, NULL, 0);
    }
    return true;
}

static bool meet(struct p2p_rank *rank)
{
    return wait_in(&rank->shared->all, rank->plan->ranks);
}

static bool meet_pair(struct p2p_rank *rank)
{
    return wait_in(&rank->shared->pair, 2);
}

static bool tell(struct p2p_rank *rank, void *data, size_t len)
{
    (void)data;
    (void)len;
    return meet_pair(rank);
}

static bool collect(struct p2p_rank *rank, const struct p2p_series *series)
{
    (void)series;
    return meet(rank);
}

static bool create(struct p2p_rank *rank)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    config.start_timeout_ms = TIMEOUT_MS;
    config.timeout_ms = TIMEOUT_MS;
    rank->has_limit = true;
    weft_status_t status = rank->rank == 0 ? weft_id_create(NULL, &rank->shared->id) : WEFT_OK;
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "weft_id_create", status);
    }
    meet(rank);
    status =
        weft_comm_create(&rank->shared->id, rank->rank, rank->plan->ranks, &config, &rank->comm);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_comm_create", status);
}

static void step(struct p2p_rank *rank, const char *what)
{
    weft_crew_step(rank->crew, what);
}

static bool fail(struct p2p_rank *rank, const char *text)
{
    if (rank->plan->is_threads) { /* the crew knows only the process */
        return weft_crew_fail(rank->crew, "rank %d of %d: %s", rank->rank, rank->plan->ranks, text);
    }
    return weft_crew_fail(rank->crew, "%s", text);
}

const struct p2p_ground weft_bench_p2p_crew_ground = {
    .create = create,
    .meet = meet,
    .meet_pair = meet_pair,
    .tell = tell,
    .collect = collect,
    .step = step,
    .fail = fail,
    .is_shared = true,
};
