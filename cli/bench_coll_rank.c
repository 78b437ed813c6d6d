/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank of a collective's benchmark does: joins, takes its buffers, and measures cell after cell.
 * A cell is the probe, the limit, a warm-up that says how long one operation takes, batches back to back,
 * the check, and the probe again. A batch begins behind a barrier; its time is the mean of its operations
 * on each rank, and the slowest rank's counts. Filling and checking are outside the clock.
 */
#include "bench_coll.h"
#include "comm/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096

/* ---- words ---- */

bool weft_bench_coll_fail(struct coll_rank *rank, const char *fmt, ...)
{
    char text[WEFT_CREW_TEXT_LEN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return rank->ground->fail(rank, text);
}

bool weft_bench_coll_fail_status(struct coll_rank *rank, const char *what, weft_status_t status)
{
    return weft_bench_coll_fail(rank, "%s: %s: %s", what, weft_status_name(status),
                                weft_error_text());
}

static const char *op_name(const struct coll_rank *rank)
{
    return weft_coll_name(rank->plan->arguments->coll);
}

/* ---- the clock ---- */

static bool begin_together(struct coll_rank *rank)
{
    weft_status_t status = weft_barrier(rank->comm, NULL);
    return status == WEFT_OK || weft_bench_coll_fail_status(rank, "weft_barrier", status);
}

static bool run(struct coll_rank *rank, const struct coll_cell *cell, int count, uint64_t *ticks)
{
    weft_status_t status = weft_bench_coll_run(rank, cell, count, ticks);
    return status == WEFT_OK || weft_bench_coll_fail_status(rank, op_name(rank), status);
}

/* One batch: picoseconds of one operation, this rank's mean. */
static bool time_batch(struct coll_rank *rank, const struct coll_cell *cell, int iters,
                       uint64_t *sample_ps)
{
    if (!begin_together(rank)) {
        return false;
    }
    uint64_t begin_ns = weft_clock_ns();
    if (!run(rank, cell, iters, NULL)) {
        return false;
    }
    *sample_ps = (weft_clock_ns() - begin_ns) * 1000 / (uint64_t)iters;
    return true;
}

static bool time_singles(struct coll_rank *rank, const struct coll_cell *cell, int count)
{
    uint64_t *ticks = rank->samples_ps;
    if (!begin_together(rank)) {
        return false;
    }
    uint64_t begin_ns = weft_clock_ns(), begin = weft_bench_ticks();
    if (!run(rank, cell, count, ticks)) {
        return false;
    }
    uint64_t end = weft_bench_ticks(), end_ns = weft_clock_ns();
    double ps_per_tick = (double)(end_ns - begin_ns) * 1e3 / (double)(end - begin);
    for (int i = 0; i < count; i++) {
        ticks[i] = (uint64_t)((double)ticks[i] * ps_per_tick);
    }
    return true;
}

/* Of each sample the slowest rank's, on every rank. */
static bool keep_slowest(struct coll_rank *rank, int count)
{
    size_t samples = (size_t)count, len = samples * sizeof(uint64_t);
    if (len > WEFT_CONTROL_MAX) {
        return weft_bench_coll_fail(rank, "%d samples are too many", count);
    }
    weft_status_t status = weft_control_allgather(rank->comm, rank->samples_ps, len, rank->all_ps);
    if (status != WEFT_OK) {
        return weft_bench_coll_fail_status(rank, "weft_control_allgather", status);
    }
    for (int from = 0; from < rank->plan->ranks; from++) {
        const uint64_t *theirs = rank->all_ps + (size_t)from * samples;
        for (size_t i = 0; i < samples; i++) {
            rank->samples_ps[i] = theirs[i] > rank->samples_ps[i] ? theirs[i] : rank->samples_ps[i];
        }
    }
    return true;
}

/* The same on every rank, because all must agree on how often. */
static bool time_agreed(struct coll_rank *rank, const struct coll_cell *cell, int iters,
                        double *seconds_p)
{
    if (!time_batch(rank, cell, iters, rank->samples_ps) || !keep_slowest(rank, 1)) {
        return false;
    }
    *seconds_p = (double)(rank->samples_ps[0] > 0 ? rank->samples_ps[0] : 1) / 1e12;
    return true;
}

/* The first few find everything cold, and any batch may meet other work: again until one has lasted. */
static bool warm_up(struct coll_rank *rank, const struct coll_cell *cell, double *seconds_p)
{
    int64_t asked = rank->plan->arguments->warmup;
    int count = cell->bytes >= COLL_ONCE_BYTES ? 1 : COLL_ITERS_MIN;
    if (asked > 0) {
        return time_agreed(rank, cell, (int)asked, seconds_p);
    }
    if (weft_bench_coll_turns(rank->plan->arguments) && count < rank->plan->ranks) {
        count = rank->plan->ranks; /* every root */
    }
    *seconds_p = INFINITY;
    for (int tries = 0; count > 0; tries++) {
        double seconds = 0;
        if (!time_agreed(rank, cell, count, &seconds)) {
            return false;
        }
        *seconds_p = fmin(*seconds_p, seconds);
        count = weft_bench_coll_warm(tries, count, *seconds_p);
    }
    return true;
}

/* ---- a cell ---- */

struct findings {
    uint64_t cpu_ns, wrong;
    double copies;
    char why[COLL_TEXT_LEN];
};

/* Bytes that this rank has copied so far; NaN: nobody counts them. */
static double copied_bytes(const struct coll_rank *rank)
{
    return (double)weft_comm_moved(rank->comm) / 2; /* a copy reads and writes */
}

/* Which algorithm the latest operation took; "": nobody says. */
static void read_algorithm(const struct coll_rank *rank, char *name, size_t len)
{
    snprintf(name, len, "%s", weft_comm_algorithm(rank->comm));
}

static bool time_cell(struct coll_rank *rank, const struct coll_cell *cell,
                      struct coll_counts counts, struct findings *mine)
{
    double copied = copied_bytes(rank);
    uint64_t cpu_ns = weft_clock_cpu_ns();
    if (rank->plan->arguments->is_single && !time_singles(rank, cell, counts.samples)) {
        return false;
    }
    for (int i = 0; !rank->plan->arguments->is_single && i < counts.samples; i++) {
        rank->ground->step(rank, op_name(rank));
        if (!time_batch(rank, cell, counts.iters, &rank->samples_ps[i])) {
            return false;
        }
    }
    mine->cpu_ns = weft_clock_cpu_ns() - cpu_ns;
    mine->copies = copied_bytes(rank) - copied;
    return true;
}

/* Out of place the timed operations' own results; in place those of one more. */
static bool check_cell(struct coll_rank *rank, const struct coll_cell *cell, struct findings *mine)
{
    if (rank->plan->arguments->check == 0) {
        return true;
    }
    if (cell->is_inplace) {
        weft_bench_coll_prepare(rank, cell, true);
        if (!run(rank, cell, 1, NULL)) {
            return false;
        }
    }
    mine->wrong = weft_bench_coll_check(rank, cell, mine->why);
    return true;
}

/* What all ranks have found comes to rank 0. */
static bool collect(struct coll_rank *rank, const struct findings *mine,
                    struct coll_outcome *outcome)
{
    size_t ranks = (size_t)rank->plan->ranks;
    struct findings *all = weft_cli_alloc(ranks, sizeof(*all));
    weft_status_t status = weft_control_allgather(rank->comm, mine, sizeof(*mine), all);
    for (size_t i = 0; status == WEFT_OK && rank->rank == 0 && i < ranks; i++) {
        if (all[i].wrong > 0 && outcome->wrong == 0) {
            memcpy(outcome->why, all[i].why, sizeof(outcome->why));
        }
        outcome->wrong += all[i].wrong;
        outcome->cpu_s += (double)all[i].cpu_ns / 1e9;
        outcome->copies += all[i].copies;
    }
    free(all);
    return status == WEFT_OK || weft_bench_coll_fail_status(rank, "weft_control_allgather", status);
}

/* Figures take nanoseconds for microseconds, samples are picoseconds. */
static void keep_figures(struct coll_rank *rank, const struct coll_cell *cell,
                         struct coll_counts counts, struct coll_outcome *outcome)
{
    struct weft_bench_figures *us = &outcome->figures;
    weft_bench_figures(rank->samples_ps, (size_t)counts.samples, us);
    double *const all[] = {&us->min, &us->p50, &us->avg, &us->p90, &us->p99, &us->max, &us->stddev};
    for (size_t i = 0; i < WEFT_COUNT_OF(all); i++) {
        *all[i] /= 1e3;
    }
    outcome->counts = counts;
    outcome->bytes_done = (double)cell->bytes * counts.iters * counts.samples;
    outcome->is_done = true;
}

/* Can the algorithm do it at all? All ranks get the same answer. */
static bool try_once(struct coll_rank *rank, const struct coll_cell *cell,
                     struct coll_outcome *outcome, bool *is_refused_p)
{
    weft_status_t status = cell->algo != NULL ? weft_bench_coll_run(rank, cell, 1, NULL) : WEFT_OK;
    *is_refused_p = (status == WEFT_ERR_UNSUPPORTED || status == WEFT_ERR_INVALID) &&
                    weft_comm_status(rank->comm) == WEFT_OK;
    if (*is_refused_p && rank->rank == 0) {
        snprintf(outcome->why, sizeof(outcome->why), "%.*s", COLL_TEXT_LEN - 1, weft_error_text());
    }
    return status == WEFT_OK || *is_refused_p ||
           weft_bench_coll_fail_status(rank, op_name(rank), status);
}

/* outcome: rank 0's; the others have one to throw away. */
static bool measure_cell(struct coll_rank *rank, const struct coll_cell *cell,
                         struct coll_outcome *outcome)
{
    const struct coll_limit *limit = NULL;
    struct findings mine = {0};
    double seconds = 0;
    bool is_refused = false;
    rank->ground->step(rank, op_name(rank));
    if (!weft_bench_coll_probe(rank, &outcome->probe_ns[0]) ||
        !weft_bench_coll_limit(rank, cell, &limit)) {
        return false;
    }
    weft_bench_coll_prepare(rank, cell, false);
    if (!begin_together(rank) || !try_once(rank, cell, outcome, &is_refused)) {
        return false;
    }
    if (is_refused) {
        return true;
    }
    if (!warm_up(rank, cell, &seconds)) {
        return false;
    }
    struct coll_counts counts = weft_bench_coll_counts(rank->plan->arguments, seconds);
    if (!time_cell(rank, cell, counts, &mine) || !keep_slowest(rank, counts.samples) ||
        !check_cell(rank, cell, &mine) || !collect(rank, &mine, outcome)) {
        return false;
    }
    keep_figures(rank, cell, counts, outcome);
    read_algorithm(rank, outcome->algo, sizeof(outcome->algo));
    outcome->limit_us = weft_bench_coll_limit_us(rank->plan, cell, limit, outcome->probe_ns[0]);
    outcome->floor_gbs = limit != NULL ? limit->gbs : NAN;
    return weft_bench_coll_probe(rank, &outcome->probe_ns[1]);
}

static bool measure_all(struct coll_rank *rank)
{
    for (size_t i = 0; i < rank->plan->count; i++) {
        struct coll_outcome *outcome = weft_cli_alloc(1, sizeof(*outcome));
        bool is_fine = measure_cell(rank, &rank->plan->cell[i], outcome);
        if (is_fine && rank->rank == 0) {
            rank->shared->outcome[i] = *outcome;
            atomic_fetch_add(&rank->shared->cells_done, 1);
        }
        free(outcome);
        if (!is_fine) {
            return false;
        }
    }
    return true;
}

/* ---- joining and leaving ---- */

static bool take_buffer(struct coll_rank *rank, uint8_t **buffer_p)
{
    size_t len = rank->plan->buffer_len;
    void *memory = NULL;
    if (rank->plan->arguments->is_shared_alloc) {
        weft_status_t status = weft_alloc(len, &memory);
        if (status != WEFT_OK) {
            return weft_bench_coll_fail_status(rank, "weft_alloc", status);
        }
    } else if (posix_memalign(&memory, PAGE, len) != 0) {
        return weft_bench_coll_fail(rank, "no memory for a buffer of %zu bytes", len);
    }
    memset(memory, 0, len); /* pages must be there before the clock */
    *buffer_p = memory;
    return true;
}

static void give_buffer(const struct coll_rank *rank, uint8_t *buffer)
{
    if (rank->plan->arguments->is_shared_alloc) {
        weft_free(buffer);
    } else {
        free(buffer);
    }
}

static void take_lists(struct coll_rank *rank)
{
    const struct coll_arguments *arguments = rank->plan->arguments;
    int ranks = rank->plan->ranks;
    bool is_reduced = weft_bench_coll_reduces(arguments->coll);
    weft_redop_t redop = is_reduced ? arguments->redop : WEFT_SUM;
    rank->samples_ps = weft_cli_alloc(COLL_SAMPLES_MAX, sizeof(uint64_t));
    rank->all_ps = weft_cli_alloc((size_t)ranks * COLL_SAMPLES_MAX, sizeof(uint64_t));
    rank->given = weft_cli_alloc(1, sizeof(*rank->given));
    rank->wanted = weft_cli_alloc(1, sizeof(*rank->wanted));
    weft_bench_coll_given(arguments->dtype, redop, ranks, rank->rank, rank->given);
    if (is_reduced) {
        weft_bench_coll_wanted(arguments->dtype, redop, ranks, rank->wanted);
    }
}

static void give_all(struct coll_rank *rank)
{
    give_buffer(rank, rank->in);
    give_buffer(rank, rank->out);
    free(rank->samples_ps);
    free(rank->all_ps);
    free(rank->given);
    free(rank->wanted);
}

static bool leave(struct coll_rank *rank)
{
    if (!rank->ground->meet(rank)) { /* nobody closes while another one still needs it */
        return false;
    }
    weft_status_t status = weft_comm_close(rank->comm);
    return status == WEFT_OK || weft_bench_coll_fail_status(rank, "weft_comm_close", status);
}

bool weft_bench_coll_serve(struct coll_rank *rank)
{
    rank->socket = -1;
    take_lists(rank);
    rank->ground->step(rank, "joining");
    bool is_fine = take_buffer(rank, &rank->in) && take_buffer(rank, &rank->out) &&
                   rank->ground->create(rank) && weft_bench_coll_socket_open(rank) &&
                   measure_all(rank) && leave(rank);
    if (rank->socket >= 0) {
        close(rank->socket);
    }
    if (is_fine) { /* otherwise something may still be in flight in them */
        give_all(rank);
    }
    return is_fine;
}

bool weft_bench_coll_rank(struct weft_crew *crew, int number, void *context)
{
    struct coll_rank rank = {
        .ground = &weft_bench_coll_crew_ground,
        .crew = crew,
        .plan = context,
        .shared = weft_crew_shared(crew),
        .rank = number,
    };
    return weft_bench_coll_serve(&rank);
}
