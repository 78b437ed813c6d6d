/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weft bench p2p` as one rank of a job that a launcher has started (weft run, weft lab, srun,
 * mpirun, torchrun), also over several hosts. Ranks share nothing but the job: they meet by its
 * control plane, and each keeps what it finds until the series is over; then rank 0 gets it.
 */
#include "bench_p2p.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAG_MEET 1u   /* control messages */
#define TAG_SAMPLES 9 /* a message */

/* ---- the ground ---- */

static bool is_fine(struct p2p_rank *rank, const char *what, weft_status_t status)
{
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, what, status);
}

static bool meet(struct p2p_rank *rank)
{
    return is_fine(rank, "weft_control_barrier", weft_control_barrier(rank->comm));
}

static bool say(struct p2p_rank *rank, const void *data, size_t len)
{
    return is_fine(rank, "weft_control_send",
                   weft_control_send(rank->comm, 1 - rank->rank, TAG_MEET, data, len));
}

static bool hear(struct p2p_rank *rank, void *data, size_t len)
{
    return is_fine(rank, "weft_control_recv",
                   weft_control_recv(rank->comm, 1 - rank->rank, TAG_MEET, data, len, NULL));
}

static bool meet_pair(struct p2p_rank *rank)
{
    uint8_t mine = 0, theirs = 0;
    return say(rank, &mine, sizeof(mine)) && hear(rank, &theirs, sizeof(theirs));
}

static bool tell(struct p2p_rank *rank, void *data, size_t len)
{
    return rank->rank == 1 ? say(rank, data, len) : hear(rank, data, len);
}

/* Ranks of a host are numbered in their order: rank 1 is its host's second exactly when it is on
 * rank 0's. */
static bool find_hosts(struct p2p_rank *rank)
{
    int here = 0, local = 0, hosts = 0, ranks = rank->plan->ranks;
    int *all = weft_cli_alloc((size_t)ranks, sizeof(all[0]));
    weft_status_t status = weft_comm_local(rank->comm, &local, &here);
    if (status == WEFT_OK) {
        status = weft_control_allgather(rank->comm, &local, sizeof(local), all);
    }
    for (int i = 0; i < ranks; i++) {
        hosts += all[i] == 0;
    }
    rank->has_limit = all[1] == 1;
    rank->shared->hosts = hosts;
    free(all);
    return is_fine(rank, "finding the hosts", status);
}

static bool create(struct p2p_rank *rank)
{
    int number = -1, ranks = -1;
    if (!is_fine(rank, "weft_init", weft_init(NULL, &rank->comm)) ||
        !is_fine(rank, "weft_comm_rank", weft_comm_rank(rank->comm, &number)) ||
        !is_fine(rank, "weft_comm_ranks", weft_comm_ranks(rank->comm, &ranks))) {
        return false;
    }
    if (number != rank->rank || ranks != rank->plan->ranks) {
        return weft_bench_p2p_fail(rank, "joined as rank %d of %d", number, ranks);
    }
    return find_hosts(rank);
}

/* Not by the control plane, whose messages are short: a thousand ranks have half a million pairs.
 */
static bool send_samples(struct p2p_rank *rank, const struct p2p_series *series)
{
    size_t first = 0, count = 0, iters = (size_t)series->iters, pairs = series->samples / iters;
    const uint64_t *samples = weft_bench_p2p_samples(rank->shared, rank->plan) + series->first;
    weft_bench_p2p_mesh_own(series, rank->rank, rank->plan->ranks, &first, &count);
    uint64_t *packed = weft_cli_alloc(iters * (count + 1), sizeof(packed[0]));
    for (size_t i = 0; i < iters; i++) {
        memcpy(packed + i * count, samples + i * pairs + first, count * sizeof(packed[0]));
    }
    memcpy(packed + iters * count, rank->pass_us, iters * sizeof(rank->pass_us[0]));
    weft_status_t status = weft_send(rank->comm, packed, iters * (count + 1) * sizeof(packed[0]), 0,
                                     TAG_SAMPLES, NULL);
    free(packed);
    return is_fine(rank, "sending samples", status);
}

static bool recv_samples(struct p2p_rank *rank, const struct p2p_series *series, int from)
{
    size_t first = 0, count = 0, iters = (size_t)series->iters, pairs = series->samples / iters;
    uint64_t *samples = weft_bench_p2p_samples(rank->shared, rank->plan) + series->first;
    weft_bench_p2p_mesh_own(series, from, rank->plan->ranks, &first, &count);
    size_t len = iters * (count + 1) * sizeof(uint64_t);
    uint64_t *packed = weft_cli_alloc(len, 1);
    weft_status_t status = weft_recv(rank->comm, packed, len, from, TAG_SAMPLES, NULL, NULL);
    for (size_t i = 0; i < iters; i++) {
        double pass_us;
        memcpy(samples + i * pairs + first, packed + i * count, count * sizeof(packed[0]));
        memcpy(&pass_us, packed + iters * count + i, sizeof(pass_us));
        rank->pass_us[i] = fmax(rank->pass_us[i], pass_us); /* the slowest rank counts */
    }
    free(packed);
    return is_fine(rank, "receiving samples", status);
}

struct findings {
    uint64_t cpu_ns, wrong;
    char wrong_text[P2P_TEXT_LEN];
};

static void add_findings(struct p2p_rank *rank, struct p2p_outcome *outcome,
                         const struct findings *theirs)
{
    struct p2p_shared *shared = rank->shared;
    atomic_fetch_add(&outcome->cpu_ns, theirs->cpu_ns);
    atomic_fetch_add(&outcome->wrong, theirs->wrong);
    if (theirs->wrong > 0 && !atomic_exchange(&shared->is_wrong, true)) {
        memcpy(shared->wrong_text, theirs->wrong_text, sizeof(shared->wrong_text));
    }
}

static bool collect_findings(struct p2p_rank *rank, struct p2p_outcome *outcome)
{
    size_t ranks = (size_t)rank->plan->ranks;
    struct findings mine = {.cpu_ns = atomic_load(&outcome->cpu_ns),
                            .wrong = atomic_load(&outcome->wrong)};
    memcpy(mine.wrong_text, rank->shared->wrong_text, sizeof(mine.wrong_text));
    struct findings *all = weft_cli_alloc(ranks, sizeof(*all));
    weft_status_t status = weft_control_allgather(rank->comm, &mine, sizeof(mine), all);
    for (size_t i = 1; status == WEFT_OK && rank->rank == 0 && i < ranks; i++) {
        add_findings(rank, outcome, &all[i]);
    }
    free(all);
    return is_fine(rank, "collecting what the ranks found", status);
}

static bool collect(struct p2p_rank *rank, const struct p2p_series *series)
{
    size_t index = (size_t)(series - rank->plan->series);
    bool is_mesh = weft_bench_p2p_is_mesh(series->op);
    if (is_mesh && rank->rank > 0 && !send_samples(rank, series)) {
        return false;
    }
    for (int from = 1; is_mesh && rank->rank == 0 && from < rank->plan->ranks; from++) {
        if (!recv_samples(rank, series, from)) {
            return false;
        }
    }
    return collect_findings(rank, &weft_bench_p2p_outcomes(rank->shared)[index]);
}

static void step(struct p2p_rank *rank, const char *what)
{
    (void)what;
    if (rank->rank == 0) {
        weft_bench_p2p_progress(rank->plan, (size_t)atomic_load(&rank->shared->series_done));
    }
}

/* The others must not wait for their deadlines. */
static bool fail(struct p2p_rank *rank, const char *text)
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

const struct p2p_ground weft_bench_p2p_job_ground = {
    .create = create,
    .meet = meet,
    .meet_pair = meet_pair,
    .tell = tell,
    .collect = collect,
    .step = step,
    .fail = fail,
    .is_shared = false,
};

bool weft_bench_p2p_run_in_job(const struct weft_bench_job *job, struct p2p_plan *plan,
                               struct p2p_report *report, char *why)
{
    size_t len = (weft_bench_p2p_shared_len(plan) + 63) / 64 * 64;
    struct p2p_shared *shared = aligned_alloc(64, len);
    if (shared == NULL) {
        snprintf(why, WEFT_CREW_TEXT_LEN, "no memory for the samples");
        return false;
    }
    memset(shared, 0, len);
    struct p2p_rank rank = {
        .ground = &weft_bench_p2p_job_ground,
        .plan = plan,
        .shared = shared,
        .rank = job->rank,
        .why = why,
    };
    why[0] = '\0';
    bool is_done = weft_bench_p2p_serve(&rank);
    weft_cli_progress_clear();
    if (is_done && job->rank == 0) {
        report->hosts = shared->hosts;
        weft_bench_p2p_report_add(report, plan, shared);
    }
    free(shared);
    return is_done;
}
