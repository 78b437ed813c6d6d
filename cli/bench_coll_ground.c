/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the ranks of a collective's benchmark meet. Those that the command has forked sleep on the crew's
 * futex; those that a launcher has started (weft run, weft lab, srun, mpirun, torchrun) meet by the
 * control plane of their job.
 */
#include "bench_coll.h"

#include <stdlib.h>
#include <string.h>

/* Shorter than the parent's patience, so that Weft's own error, which names ranks, is the one shown. */
#define TIMEOUT_MS 20000

static bool is_fine(struct coll_rank *rank, const char *what, weft_status_t status)
{
    return status == WEFT_OK || weft_bench_coll_fail_status(rank, what, status);
}

/* ---- forked ---- */

static bool crew_meet(struct coll_rank *rank)
{
    return weft_crew_barrier(rank->crew);
}

static bool crew_create(struct coll_rank *rank)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    config.start_timeout_ms = TIMEOUT_MS;
    config.timeout_ms = TIMEOUT_MS;
    rank->hosts = 1;
    if (rank->rank == 0 &&
        !is_fine(rank, "weft_id_create", weft_id_create(NULL, &rank->shared->id))) {
        return false;
    }
    return crew_meet(rank) && is_fine(rank, "weft_comm_create",
                                      weft_comm_create(&rank->shared->id, rank->rank,
                                                       rank->plan->ranks, &config, &rank->comm));
}

static void crew_step(struct coll_rank *rank, const char *what)
{
    weft_crew_step(rank->crew, what);
}

static bool crew_fail(struct coll_rank *rank, const char *text)
{
    return weft_crew_fail(rank->crew, "%s", text);
}

const struct coll_ground weft_bench_coll_crew_ground = {
    .create = crew_create,
    .meet = crew_meet,
    .step = crew_step,
    .fail = crew_fail,
    .is_shared = true,
};

/* ---- of a job ---- */

static bool job_meet(struct coll_rank *rank)
{
    return is_fine(rank, "weft_control_barrier", weft_control_barrier(rank->comm));
}

/* Every host has one rank that is its first. */
static bool count_hosts(struct coll_rank *rank)
{
    int here = 0, local = 0, ranks = rank->plan->ranks;
    int *all = weft_cli_alloc((size_t)ranks, sizeof(all[0]));
    weft_status_t status = weft_comm_local(rank->comm, &local, &here);
    if (status == WEFT_OK) {
        status = weft_control_allgather(rank->comm, &local, sizeof(local), all);
    }
    for (int i = 0; i < ranks; i++) {
        rank->hosts += all[i] == 0;
    }
    free(all);
    rank->shared->hosts = rank->hosts;
    return is_fine(rank, "finding the hosts", status);
}

static bool job_create(struct coll_rank *rank)
{
    int number = -1, ranks = -1;
    if (!is_fine(rank, "weft_init", weft_init(NULL, &rank->comm)) ||
        !is_fine(rank, "weft_comm_rank", weft_comm_rank(rank->comm, &number)) ||
        !is_fine(rank, "weft_comm_ranks", weft_comm_ranks(rank->comm, &ranks))) {
        return false;
    }
    if (number != rank->rank || ranks != rank->plan->ranks) {
        return weft_bench_coll_fail(rank, "joined as rank %d of %d", number, ranks);
    }
    return count_hosts(rank);
}

static void job_step(struct coll_rank *rank, const char *what)
{
    (void)what;
    if (rank->rank == 0) {
        weft_bench_coll_progress(rank->plan, (size_t)atomic_load(&rank->shared->cells_done));
    }
}

/* The others must not wait for their deadlines. */
static bool job_fail(struct coll_rank *rank, const char *text)
{
    if (rank->why[0] == '\0') {
        snprintf(rank->why, WEFT_CREW_TEXT_LEN, "rank %d of %d: %.*s", rank->rank,
                 rank->plan->ranks, WEFT_CREW_TEXT_LEN - 48, text);
        if (rank->comm != NULL && weft_comm_status(rank->comm) == WEFT_OK) {
            weft_abort(rank->comm, rank->why);
        }
    }
    return false;
}

const struct coll_ground weft_bench_coll_job_ground = {
    .create = job_create,
    .meet = job_meet,
    .step = job_step,
    .fail = job_fail,
    .is_shared = false,
};
