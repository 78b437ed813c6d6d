/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what collectives are made of, in about two seconds: two ranks for messages, flags, copies and
 * additions, then four ranks to a core for what waiting costs. All figures are the best of several tries, as
 * whatever else runs here only makes things slower.
 */
#include "tune_coll.h"

#include "bench.h"
#include "crew.h"
#include "topo/topo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STALL_MS 20000
#define TRIES 7
#define PINGS 300
#define BURST 64
#define LONG_LEN ((size_t)1 << 20)
#define LONGS 8
#define CACHED_LEN ((size_t)256 << 10)
#define PAST_LEN ((size_t)32 << 20)
#define RING_LEN ((size_t)4 << 20)
#define CHUNK_LEN ((size_t)256 << 10)
#define ADD_NS 20000000
#define CROWD_MAX 16
#define CROWD_OPS 200

struct shared {
    struct tune_coll_seen seen; /* rank 0's, but for the rates that both add to */
    weft_id_t id;
    double rate[CROWD_MAX];
    struct weft_bench_flags flags;
    _Alignas(64) uint8_t ring[RING_LEN];
};

struct rank {
    struct weft_crew *crew;
    struct shared *shared;
    int number, ranks;
    weft_comm_t comm; /* of the path that is measured */
};

static double now_s(void)
{
    return (double)weft_clock_ns() * 1e-9;
}

static void keep_least(double *best, double value)
{
    *best = *best == 0 || value < *best ? value : *best;
}

static bool fail(const struct rank *rank, const char *what)
{
    return weft_crew_fail(rank->crew, "%s: %.400s", what, weft_error_text());
}

/* ---- memory ---- */

static double copy_rate(void *to, const void *from, size_t len, unsigned times)
{
    double best = 0;

    for (unsigned i = 0; i < TRIES; i++) {
        double began = now_s();
        for (unsigned k = 0; k < times; k++) {
            memcpy(to, from, len);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        keep_least(&best, (now_s() - began) / times);
    }
    return (double)len / best;
}

/* Both at once: a rank has a core, not the machine. */
static bool measure_memory(struct rank *rank)
{
    float *past = malloc(3 * PAST_LEN), *cached = malloc(3 * CACHED_LEN);
    size_t far = PAST_LEN / sizeof(float), near = CACHED_LEN / sizeof(float);
    bool is_fine = past != NULL && cached != NULL;

    if (!is_fine) {
        weft_crew_fail(rank->crew, "no memory to measure in");
    } else {
        memset(past, 0, 3 * PAST_LEN);
        memset(cached, 0, 3 * CACHED_LEN);
        is_fine = weft_crew_barrier(rank->crew);
    }
    if (is_fine) {
        double copy = copy_rate(cached, cached + near, CACHED_LEN, 50);
        double add = weft_bench_add_gbs(cached, cached + near, cached + 2 * near, near, ADD_NS);
        is_fine = weft_crew_barrier(rank->crew);
        rank->shared->rate[rank->number] =
            weft_bench_add_gbs(past, past + far, past + 2 * far, far, 4 * (uint64_t)ADD_NS) * 1e9;
        if (rank->number == 0) {
            rank->shared->seen.copy_rate = copy;
            rank->shared->seen.add_rate = add * 1e9 / 3;
        }
    }
    free(past);
    free(cached);
    return is_fine && weft_crew_barrier(rank->crew);
}

/* Rank 0 fills the ring, rank 1 empties it, chunk by chunk. */
static bool measure_slots(struct rank *rank)
{
    uint8_t *own = malloc(CHUNK_LEN);
    double best = 0;

    if (own == NULL) {
        return weft_crew_fail(rank->crew, "no memory to measure in");
    }
    memset(own, 1, CHUNK_LEN);
    for (unsigned i = 0; i < 4 * RING_LEN / CHUNK_LEN; i++) {
        uint8_t *slot = rank->shared->ring + i * CHUNK_LEN % RING_LEN;
        for (int turn = 0; turn < 2; turn++) {
            double began = now_s();
            if (turn == rank->number) {
                memcpy(turn == 0 ? slot : own, turn == 0 ? own : slot, CHUNK_LEN);
                if (i >= RING_LEN / CHUNK_LEN) { /* the first round touches the pages */
                    keep_least(&best, now_s() - began);
                }
            }
            if (!weft_crew_barrier(rank->crew)) {
                free(own);
                return false;
            }
        }
    }
    *(rank->number == 0 ? &rank->shared->seen.write_rate : &rank->shared->seen.read_rate) =
        (double)CHUNK_LEN / best;
    free(own);
    return true;
}

/* ---- messages ---- */

static bool join(struct rank *rank, const char *path)
{
    weft_config_t config = WEFT_CONFIG_INIT;

    setenv("WEFT_PATH", path, 1);
    if (rank->number == 0 && weft_id_create(NULL, &rank->shared->id) != WEFT_OK) {
        return fail(rank, "making an id");
    }
    if (!weft_crew_barrier(rank->crew)) {
        return false;
    }
    config.start_timeout_ms = config.timeout_ms = STALL_MS;
    return weft_comm_create(&rank->shared->id, rank->number, rank->ranks, &config, &rank->comm) ==
               WEFT_OK ||
           fail(rank, "joining");
}

static bool part(struct rank *rank)
{
    bool is_fine = weft_control_barrier(rank->comm) == WEFT_OK || fail(rank, "parting");

    weft_comm_close(rank->comm);
    return is_fine;
}

static bool to_other(const struct rank *rank, void *data, size_t len)
{
    return weft_send(rank->comm, data, len, 1 - rank->number, 1, NULL) == WEFT_OK;
}

static bool from_other(const struct rank *rank, void *data, size_t len)
{
    return weft_recv(rank->comm, data, len, 1 - rank->number, 1, NULL, NULL) == WEFT_OK;
}

static bool ping(const struct rank *rank)
{
    uint64_t word = 0;

    return rank->number == 0
               ? to_other(rank, &word, sizeof(word)) && from_other(rank, &word, sizeof(word))
               : from_other(rank, &word, sizeof(word)) && to_other(rank, &word, sizeof(word));
}

/* count messages of len from rank 0 to rank 1, each to a place of its own, then an answer. */
static bool stream(const struct rank *rank, uint8_t *data, size_t len, unsigned count)
{
    weft_request_t requests[BURST];
    uint64_t word = 0;

    for (unsigned i = 0; i < count; i++) {
        uint8_t *at = data + i * len;
        weft_status_t status = rank->number == 0
                                   ? weft_send(rank->comm, at, len, 1, 2, &requests[i])
                                   : weft_recv(rank->comm, at, len, 0, 2, NULL, &requests[i]);
        if (status != WEFT_OK) {
            return false;
        }
    }
    if (weft_wait_all(requests, (int)count, WEFT_NO_LIMIT) != WEFT_OK) {
        return false;
    }
    return rank->number == 0 ? from_other(rank, &word, sizeof(word))
                             : to_other(rank, &word, sizeof(word));
}

static bool measure_path(struct rank *rank, const char *name, struct tune_coll_path *path)
{
    uint8_t *data = calloc(LONGS, LONG_LEN);
    bool is_fine =
        data != NULL ? join(rank, name) : weft_crew_fail(rank->crew, "no memory to measure in");
    double half = 0, burst = 0, longs = 0;

    if (!is_fine) {
        free(data);
        return false;
    }
    for (unsigned i = 0; i < TRIES && is_fine; i++) {
        double began = now_s();
        for (unsigned k = 0; k < PINGS && is_fine; k++) {
            is_fine = ping(rank);
        }
        keep_least(&half, (now_s() - began) / PINGS / 2);
        began = now_s();
        is_fine = is_fine && stream(rank, data, sizeof(uint64_t), BURST);
        keep_least(&burst, now_s() - began);
        began = now_s();
        is_fine = is_fine && stream(rank, data, LONG_LEN, LONGS);
        keep_least(&longs, now_s() - began);
        weft_crew_step(rank->crew, name);
    }
    free(data);
    if (!is_fine) {
        return fail(rank, name);
    }
    if (rank->number == 0) {
        path->half_s = half;
        path->message_s = burst > 2 * half ? (burst - 2 * half) / (BURST - 1) : 0;
        path->rate = (double)LONG_LEN * LONGS / (longs - half);
    }
    return part(rank);
}

static bool pair_body(struct weft_crew *crew, int number, void *context)
{
    struct rank rank = {crew, weft_crew_shared(crew), number, 2, NULL};
    uint32_t value = 0;

    (void)context;
    weft_crew_step(crew, "memory");
    if (!measure_memory(&rank) || !measure_slots(&rank)) {
        return false;
    }
    for (unsigned i = 0; i < TRIES; i++) {
        double flag_ns = weft_bench_probe(&rank.shared->flags, number == 0, &value);
        if (number == 0 && flag_ns > 0 && flag_ns < WEFT_BENCH_BUSY_NS) {
            keep_least(&rank.shared->seen.flag_s, flag_ns * 1e-9);
        }
    }
    return measure_path(&rank, "shm", &rank.shared->seen.shm) &&
           measure_path(&rank, "tcp", &rank.shared->seen.tcp);
}

/* ---- a crowd ---- */

static bool measure_crowd(struct rank *rank, const char *path, const char *algo, double *best)
{
    float in[2] = {1, 1}, out[2]; /* 8 bytes, as the model is asked for */
    double least = 0;
    weft_call_t call = WEFT_CALL_INIT;
    bool is_fine = join(rank, path);

    if (!is_fine) {
        return false;
    }
    call.coll = WEFT_ALLREDUCE;
    call.dtype = WEFT_F32;
    call.in = in;
    call.out = out;
    call.count = 2;
    call.algorithm = algo;
    for (unsigned i = 0; i < TRIES && is_fine; i++) {
        double began = now_s();
        for (unsigned k = 0; k < CROWD_OPS && is_fine; k++) {
            is_fine = weft_collective(rank->comm, &call, NULL) == WEFT_OK;
        }
        keep_least(&least, (now_s() - began) / CROWD_OPS);
        weft_crew_step(rank->crew, algo);
    }
    if (rank->number == 0) {
        *best = least;
    }
    return is_fine ? part(rank) : fail(rank, algo);
}

static bool crowd_body(struct weft_crew *crew, int number, void *context)
{
    struct rank rank = {crew, weft_crew_shared(crew), number, weft_crew_ranks(crew), NULL};

    (void)context;
    return measure_crowd(&rank, "tcp", "doubling", &rank.shared->seen.crowd_tcp_s) &&
           measure_crowd(&rank, "shm", "oneshot", &rank.shared->seen.crowd_shm_s);
}

static bool run_crew(int ranks, weft_crew_fn body, struct tune_coll_seen *seen, char *why)
{
    struct weft_crew_spec spec = {
        .ranks = ranks, .shared_len = sizeof(struct shared), .stall_ms = STALL_MS, .body = body};
    struct weft_crew *crew = weft_crew_open(&spec);
    bool is_fine = false;

    if (crew == NULL) {
        snprintf(why, WEFT_CREW_TEXT_LEN, "no shared memory for %d ranks: %s", ranks,
                 strerror(errno));
        return false;
    }
    struct shared *shared = weft_crew_shared(crew);
    shared->seen = *seen;
    is_fine = weft_crew_run(crew, NULL, NULL, why);
    if (is_fine) {
        *seen = shared->seen;
        for (int i = 0; i < ranks && body == pair_body; i++) {
            seen->memory_rate += shared->rate[i];
        }
    }
    weft_crew_close(crew);
    return is_fine;
}

bool weft_tune_coll_measure(struct tune_coll_seen *seen_p, char *why)
{
    struct tune_coll_seen seen = {.cores = weft_topo_cpus(""), .crowd = 4};

    while (seen.crowd < 4 * seen.cores && seen.crowd < CROWD_MAX) {
        seen.crowd *= 2;
    }
    /* alone on a core two ranks are a crowd too, and say nothing of messages */
    weft_cli_progress("messages, copies, flags: two ranks");
    if (seen.cores > 1 && !run_crew(2, pair_body, &seen, why)) {
        return false;
    }
    weft_cli_progress("waiting: %u ranks on %u cores", seen.crowd, seen.cores);
    if (seen.crowd > seen.cores && !run_crew((int)seen.crowd, crowd_body, &seen, why)) {
        return false;
    }
    weft_cli_progress_clear();
    *seen_p = seen;
    return true;
}
