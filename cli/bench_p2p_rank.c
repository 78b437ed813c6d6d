/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank of `weft bench p2p` does: joins, takes its buffers, and runs series after series.
 * A series is the probe, the limit, a warm-up, then batches of samples and the probe again. Buffers
 * are filled before a batch and checked behind it, both outside the clock; the first operations of
 * a batch are not counted, since they find cold caches and a sleeping peer.
 */
#include "bench_p2p.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAD 2 /* operations before the clock of a batch */
#define STALE 0xa5
#define PAGE 4096

/* ---- words ---- */

bool weft_bench_p2p_fail(struct p2p_rank *rank, const char *fmt, ...)
{
    char text[WEFT_CREW_TEXT_LEN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return rank->ground->fail(rank, text);
}

bool weft_bench_p2p_fail_status(struct p2p_rank *rank, const char *what, weft_status_t status)
{
    return weft_bench_p2p_fail(rank, "%s: %s: %s", what, weft_status_name(status),
                               weft_error_text());
}

/* ---- the bytes ---- */

static bool does_receive(const struct p2p_rank *rank, const struct p2p_series *series)
{
    bool is_two_way = series->op == P2P_LAT || series->op == P2P_RTT || series->op == P2P_BIBW;
    return is_two_way || rank->rank == 1;
}

static void fill(struct p2p_rank *rank, const struct p2p_series *series, uint32_t batch)
{
    size_t len = series->bytes * (size_t)series->slots;
    weft_bench_p2p_fill(rank->send, len, weft_bench_p2p_seed(series->bytes, batch, rank->rank));
    memset(rank->recv, STALE, len);
}

void weft_bench_p2p_found_wrong(struct p2p_rank *rank, const struct p2p_series *series, size_t at,
                                uint64_t wrong)
{
    struct p2p_shared *shared = rank->shared;
    size_t index = (size_t)(series - rank->plan->series);
    atomic_fetch_add(&weft_bench_p2p_outcomes(shared)[index].wrong, wrong);
    if (!atomic_exchange(&shared->is_wrong, true)) {
        snprintf(shared->wrong_text, sizeof(shared->wrong_text),
                 "%s of %zu bytes: %llu bytes at rank %d are wrong, the first at %zu of buffer %zu"
                 " (0x%02x)",
                 weft_bench_p2p_op_name(series->op), series->bytes, (unsigned long long)wrong,
                 rank->rank, at % series->bytes, at / series->bytes, rank->recv[at]);
    }
}

static void check(struct p2p_rank *rank, const struct p2p_series *series, uint32_t batch)
{
    size_t at = 0, len = series->bytes * (size_t)series->slots;
    if (!does_receive(rank, series)) {
        return;
    }
    uint64_t seed = weft_bench_p2p_seed(series->bytes, batch, 1 - rank->rank);
    uint64_t wrong = weft_bench_p2p_differ(rank->recv, len, seed, &at);
    if (wrong > 0) {
        weft_bench_p2p_found_wrong(rank, series, at, wrong);
    }
}

/* ---- batches ---- */

static void keep_samples(struct p2p_rank *rank, const struct p2p_series *series, int done,
                         int count, double ps_per_tick)
{
    uint64_t *samples = weft_bench_p2p_samples(rank->shared, rank->plan) + series->first + done;
    int messages = series->op == P2P_LAT ? 2 : series->per_clock;
    for (int i = 0; i < count; i++) {
        samples[i] = (uint64_t)((double)rank->ticks[i] * ps_per_tick / messages);
    }
}

/* The timed part: count samples, of which rank 0 keeps the times. */
static bool run_timed(struct p2p_rank *rank, const struct p2p_series *series,
                      struct p2p_outcome *outcome, int done, int count)
{
    p2p_op_fn op = weft_bench_p2p_op(series->op);
    struct p2p_nics nics_before, nics_after;
    if (!op(rank, series, LEAD, NULL)) {
        return false;
    }
    weft_bench_p2p_nics_read(rank->net_dev, &nics_before);
    uint64_t cpu_ns = weft_clock_cpu_ns();
    uint64_t begin_ns = weft_clock_ns(), begin = weft_bench_ticks();
    if (!op(rank, series, count, rank->rank == 0 ? rank->ticks : NULL)) {
        return false;
    }
    uint64_t end = weft_bench_ticks(), end_ns = weft_clock_ns();
    cpu_ns = weft_clock_cpu_ns() - cpu_ns;
    if (rank->rank == 0 || !rank->plan->is_threads) { /* threads share one process's time */
        atomic_fetch_add(&outcome->cpu_ns, cpu_ns);
    }
    if (rank->rank == 0) {
        weft_bench_p2p_nics_read(rank->net_dev, &nics_after);
        weft_bench_p2p_nics_add(&outcome->nics, &nics_before, &nics_after);
        double ps_per_tick = (double)(end_ns - begin_ns) * 1e3 / (double)(end - begin);
        keep_samples(rank, series, done, count, ps_per_tick);
    }
    return true;
}

static bool run_batches(struct p2p_rank *rank, const struct p2p_series *series,
                        struct p2p_outcome *outcome)
{
    bool is_checked = rank->plan->is_checked;
    uint32_t batch = 0;
    for (int done = 0; done < series->iters; batch++) {
        int left = series->iters - done;
        int count = left < series->batch ? left : series->batch;
        rank->ground->step(rank, weft_bench_p2p_op_name(series->op));
        if (is_checked || batch == 0) {
            fill(rank, series, batch);
        }
        if (!rank->ground->meet_pair(rank) || !run_timed(rank, series, outcome, done, count) ||
            !rank->ground->meet_pair(rank)) {
            return false;
        }
        if (is_checked) {
            check(rank, series, batch);
        }
        done += count;
    }
    return true;
}

static uint64_t moved(const struct p2p_series *series)
{
    bool is_one_way = series->op == P2P_BW || series->op == P2P_PUT_NBI ||
                      series->op == P2P_PUT_QUIET || series->op == P2P_PUT_BATCH;
    uint64_t messages = (uint64_t)series->per_clock * (uint64_t)series->iters;
    return (is_one_way ? 1 : 2) * messages * series->bytes;
}

/* Ranks 0 and 1. */
static bool run_series(struct p2p_rank *rank, const struct p2p_series *series,
                       struct p2p_outcome *outcome)
{
    double limit_us = NAN;
    rank->ground->step(rank, weft_bench_p2p_op_name(series->op));
    if (!rank->ground->meet_pair(rank)) {
        return false;
    }
    double probe_ns = weft_bench_p2p_probe(rank);
    if ((rank->has_limit && !weft_bench_p2p_limit(rank, series, probe_ns, &limit_us)) ||
        !weft_bench_p2p_op(series->op)(rank, series, series->warmup, NULL) ||
        !run_batches(rank, series, outcome)) {
        return false;
    }
    double probe_after_ns = weft_bench_p2p_probe(rank);
    if (rank->rank == 0) {
        outcome->probe_ns[0] = probe_ns;
        outcome->probe_ns[1] = probe_after_ns;
        outcome->limit_us = limit_us;
        outcome->moved = moved(series);
    }
    return true;
}

static bool run_all_series(struct p2p_rank *rank)
{
    const struct p2p_plan *plan = rank->plan;
    for (size_t i = 0; i < plan->count; i++) {
        const struct p2p_series *series = &plan->series[i];
        struct p2p_outcome *outcome = &weft_bench_p2p_outcomes(rank->shared)[i];
        bool is_fine = true;
        if (weft_bench_p2p_is_mesh(series->op)) {
            is_fine = weft_bench_p2p_mesh(rank, series, outcome);
        } else if (rank->rank < 2) {
            is_fine = run_series(rank, series, outcome);
        }
        if (!is_fine || !rank->ground->collect(rank, series)) {
            return false;
        }
        if (rank->rank == 0) {
            if (weft_bench_p2p_is_mesh(series->op)) {
                outcome->pass_us = weft_bench_median(rank->pass_us, (size_t)series->iters);
            }
            atomic_fetch_add(&rank->shared->series_done, 1);
        }
    }
    return true;
}

/* ---- joining and leaving ---- */

static bool take_buffer(struct p2p_rank *rank, size_t len, uint8_t **buffer_p)
{
    void *memory = NULL;
    if (rank->plan->is_shared_alloc) {
        weft_status_t status = weft_alloc(len, &memory);
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_alloc", status);
        }
    } else {
        if (posix_memalign(&memory, PAGE, len) != 0) {
            return weft_bench_p2p_fail(rank, "no memory for a buffer of %zu bytes", len);
        }
        memset(memory, 0, len); /* pages must be there before the clock */
    }
    *buffer_p = memory;
    return true;
}

static void give_buffer(const struct p2p_rank *rank, uint8_t *buffer)
{
    if (rank->plan->is_shared_alloc) {
        weft_free(buffer);
    } else {
        free(buffer);
    }
}

static bool join(struct p2p_rank *rank)
{
    weft_status_t status = WEFT_OK;
    if (!rank->ground->create(rank)) {
        return false;
    }
    if (rank->plan->has_puts && rank->rank < 2) {
        weft_mem_t *mem = &rank->shared->mem;
        if (rank->rank == 1) {
            status = weft_mem_register(rank->comm, rank->recv, rank->plan->buffer_len, mem);
        }
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_mem_register", status);
        }
        if (!rank->ground->tell(rank, mem, sizeof(*mem))) {
            return false;
        }
    }
    return rank->ground->meet(rank);
}

static bool leave(struct p2p_rank *rank)
{
    weft_status_t status = WEFT_OK;
    if (!rank->ground->meet(rank)) { /* nobody closes while another one still needs it */
        return false;
    }
    if (rank->rank == 1 && rank->plan->has_puts) {
        status = weft_mem_deregister(rank->comm, &rank->shared->mem);
    }
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "weft_mem_deregister", status);
    }
    status = weft_comm_close(rank->comm);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_comm_close", status);
}

static void take_lists(struct p2p_rank *rank)
{
    const struct p2p_plan *plan = rank->plan;
    size_t inflight = (size_t)plan->inflight_max;
    int batch = 1, iters = 1;
    for (size_t i = 0; i < plan->count; i++) {
        batch = plan->series[i].batch > batch ? plan->series[i].batch : batch;
        iters = plan->series[i].iters > iters ? plan->series[i].iters : iters;
    }
    rank->requests = weft_cli_alloc(2 * inflight, sizeof(weft_request_t));
    rank->messages = weft_cli_alloc(inflight, sizeof(weft_message_t));
    rank->ticks = weft_cli_alloc((size_t)batch, sizeof(uint64_t));
    rank->pass_us = weft_cli_alloc((size_t)iters, sizeof(double));
}

static void give_all(struct p2p_rank *rank)
{
    give_buffer(rank, rank->send);
    give_buffer(rank, rank->recv);
    free(rank->requests);
    free(rank->messages);
    free(rank->ticks);
    free(rank->pass_us);
}

bool weft_bench_p2p_serve(struct p2p_rank *rank)
{
    rank->socket = rank->net_dev = -1;
    if (rank->rank == 0) {
        rank->net_dev = open("/proc/self/net/dev", O_RDONLY | O_CLOEXEC);
    }
    take_lists(rank);
    rank->ground->step(rank, "joining");
    bool is_fine = take_buffer(rank, rank->plan->send_len, &rank->send) &&
                   take_buffer(rank, rank->plan->buffer_len, &rank->recv) && join(rank) &&
                   weft_bench_p2p_socket_open(rank) && run_all_series(rank) && leave(rank);
    if (rank->socket >= 0) {
        close(rank->socket);
    }
    if (rank->net_dev >= 0) {
        close(rank->net_dev);
    }
    if (is_fine) { /* otherwise something may still be in flight in them */
        give_all(rank);
    }
    return is_fine;
}

static bool be_rank(struct weft_crew *crew, const struct p2p_plan *plan, int number)
{
    struct p2p_rank rank = {
        .ground = &weft_bench_p2p_crew_ground,
        .crew = crew,
        .plan = plan,
        .shared = weft_crew_shared(crew),
        .rank = number,
    };
    return weft_bench_p2p_serve(&rank);
}

/* ---- ranks as threads ---- */

struct thread {
    struct weft_crew *crew;
    const struct p2p_plan *plan;
    pthread_t id;
    int rank;
    bool is_fine;
};

static void *thread_body(void *context)
{
    struct thread *thread = context;
    thread->is_fine = be_rank(thread->crew, thread->plan, thread->rank);
    return NULL;
}

static bool be_threads(struct weft_crew *crew, const struct p2p_plan *plan)
{
    struct thread *threads = weft_cli_alloc((size_t)plan->ranks, sizeof(threads[0]));
    bool is_fine = true;
    for (int i = 0; i < plan->ranks; i++) {
        threads[i] = (struct thread){.crew = crew, .plan = plan, .rank = i};
        int error = pthread_create(&threads[i].id, NULL, thread_body, &threads[i]);
        if (error != 0) {
            return weft_crew_fail(crew, "no thread for rank %d: %s", i, strerror(error));
        }
    }
    for (int i = 0; i < plan->ranks; i++) { /* if one fails, the parent kills us while we wait */
        pthread_join(threads[i].id, NULL);
        is_fine = is_fine && threads[i].is_fine;
    }
    free(threads);
    return is_fine;
}

bool weft_bench_p2p_rank(struct weft_crew *crew, int rank, void *context)
{
    const struct p2p_plan *plan = context;
    return plan->is_threads ? be_threads(crew, plan) : be_rank(crew, plan, rank);
}
