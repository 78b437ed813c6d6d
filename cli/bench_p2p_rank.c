/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank of `weft bench p2p` does: joins, takes its buffers, and runs series after series.
 * A series is the probe, the limit, a warm-up, then batches of samples and the probe again. Buffers
 * are filled before a batch and checked behind it, both outside the clock; the first operations of
 * a batch are not counted, since they find cold caches and a sleeping peer.
 */
#include "bench_p2p.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Shorter than the parent's patience, so that Weft's own error, which names ranks, is the one
 * shown. */
#define TIMEOUT_MS 20000
#define SPIN_NS (10 * WEFT_NS_PER_MS)
#define LEAD 2 /* operations before the clock of a batch */
#define STALE 0xa5
#define PAGE 4096

/* ---- words and barriers ---- */

bool weft_bench_p2p_fail(struct p2p_rank *rank, const char *fmt, ...)
{
    char text[WEFT_CREW_TEXT_LEN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (rank->plan->is_threads) { /* the crew knows only the process */
        return weft_crew_fail(rank->crew, "rank %d of %d: %s", rank->rank, rank->plan->ranks, text);
    }
    return weft_crew_fail(rank->crew, "%s", text);
}

bool weft_bench_p2p_fail_status(struct p2p_rank *rank, const char *what, weft_status_t status)
{
    return weft_bench_p2p_fail(rank, "%s: %s: %s", what, weft_status_name(status),
                               weft_error_text());
}

/* Not the crew's: with threads the crew has one member. Whoever fails makes the parent kill all, so
 * nobody needs to be told here. */
void weft_bench_p2p_barrier(struct p2p_barrier *barrier, int ranks)
{
    uint32_t generation = atomic_load(&barrier->generation);
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 == (uint32_t)ranks) {
        atomic_store(&barrier->arrived, 0);
        atomic_fetch_add(&barrier->generation, 1);
        syscall(SYS_futex, &barrier->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return;
    }
    /* Two spin for a while, as they will when measured: a sleeper may be woken on its waker's core,
     * and the scheduler takes its time to part them. More sleep: they would be in the way. */
    uint64_t until_ns = ranks == 2 ? weft_clock_ns() + SPIN_NS : 0;
    while (atomic_load(&barrier->generation) == generation && weft_clock_ns() < until_ns) {
    }
    while (atomic_load(&barrier->generation) == generation) {
        syscall(SYS_futex, &barrier->generation, FUTEX_WAIT, generation, NULL, NULL, 0);
    }
}

static void meet(struct p2p_rank *rank)
{
    weft_bench_p2p_barrier(&rank->shared->all, rank->plan->ranks);
}

static void meet_other(struct p2p_rank *rank)
{
    weft_bench_p2p_barrier(&rank->shared->pair, 2);
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
    if (!op(rank, series, LEAD, NULL)) {
        return false;
    }
    uint64_t cpu_ns = weft_clock_cpu_ns();
    uint64_t begin_ns = weft_clock_ns(), begin = weft_bench_p2p_ticks();
    if (!op(rank, series, count, rank->rank == 0 ? rank->ticks : NULL)) {
        return false;
    }
    uint64_t end = weft_bench_p2p_ticks(), end_ns = weft_clock_ns();
    cpu_ns = weft_clock_cpu_ns() - cpu_ns;
    if (rank->rank == 0 || !rank->plan->is_threads) { /* threads share one process's time */
        atomic_fetch_add(&outcome->cpu_ns, cpu_ns);
    }
    if (rank->rank == 0) {
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
        weft_crew_step(rank->crew, weft_bench_p2p_op_name(series->op));
        if (is_checked || batch == 0) {
            fill(rank, series, batch);
        }
        meet_other(rank);
        if (!run_timed(rank, series, outcome, done, count)) {
            return false;
        }
        meet_other(rank);
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
    weft_crew_step(rank->crew, weft_bench_p2p_op_name(series->op));
    meet_other(rank);
    double probe_ns = weft_bench_p2p_probe(rank);
    if (!weft_bench_p2p_limit(rank, series, probe_ns, &limit_us) ||
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
        if (series->op == P2P_MESH) {
            is_fine = weft_bench_p2p_mesh(rank, series, outcome);
        } else if (rank->rank < 2) {
            is_fine = run_series(rank, series, outcome);
        }
        if (!is_fine) {
            return false;
        }
        meet(rank);
        if (rank->rank == 0) {
            atomic_fetch_add(&rank->shared->series_done, 1);
        }
    }
    return true;
}

/* ---- joining and leaving ---- */

static bool take_buffer(struct p2p_rank *rank, uint8_t **buffer_p)
{
    void *memory = NULL;
    size_t len = rank->plan->buffer_len;
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
    weft_config_t config = WEFT_CONFIG_INIT;
    config.start_timeout_ms = TIMEOUT_MS;
    config.timeout_ms = TIMEOUT_MS;
    weft_status_t status = rank->rank == 0 ? weft_id_create(NULL, &rank->shared->id) : WEFT_OK;
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "weft_id_create", status);
    }
    meet(rank);
    status =
        weft_comm_create(&rank->shared->id, rank->rank, rank->plan->ranks, &config, &rank->comm);
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "weft_comm_create", status);
    }
    if (rank->rank == 1 && rank->plan->has_puts) {
        status =
            weft_mem_register(rank->comm, rank->recv, rank->plan->buffer_len, &rank->shared->mem);
    }
    meet(rank);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_mem_register", status);
}

static bool leave(struct p2p_rank *rank)
{
    meet(rank); /* nobody closes while another one still needs it */
    weft_status_t status = WEFT_OK;
    if (rank->rank == 1 && rank->plan->has_puts) {
        status = weft_mem_deregister(rank->comm, &rank->shared->mem);
    }
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "weft_mem_deregister", status);
    }
    status = weft_comm_close(rank->comm);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_comm_close", status);
}

static size_t longest_batch(const struct p2p_plan *plan)
{
    int longest = 1;
    for (size_t i = 0; i < plan->count; i++) {
        longest = plan->series[i].batch > longest ? plan->series[i].batch : longest;
    }
    return (size_t)longest;
}

static bool be_rank(struct weft_crew *crew, const struct p2p_plan *plan, int number)
{
    size_t window = (size_t)plan->window_max;
    struct p2p_rank rank = {
        .crew = crew,
        .plan = plan,
        .shared = weft_crew_shared(crew),
        .rank = number,
        .requests = weft_cli_alloc(2 * window, sizeof(weft_request_t)),
        .messages = weft_cli_alloc(window, sizeof(weft_message_t)),
        .ticks = weft_cli_alloc(longest_batch(plan), sizeof(uint64_t)),
        .socket = -1,
    };
    weft_crew_step(crew, "joining");
    bool is_fine = take_buffer(&rank, &rank.send) && take_buffer(&rank, &rank.recv) &&
                   join(&rank) &&
                   (plan->path != P2P_TCP || number > 1 || weft_bench_p2p_socket_open(&rank)) &&
                   run_all_series(&rank) && leave(&rank);
    if (rank.socket >= 0) {
        close(rank.socket);
    }
    if (is_fine) { /* otherwise something may still be in flight in them */
        give_buffer(&rank, rank.send);
        give_buffer(&rank, rank.recv);
        free(rank.requests);
        free(rank.messages);
        free(rank.ticks);
    }
    return is_fine;
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
