/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by tests whose ranks form a job: how they find each other through the harness, and checks
 * of every control operation that a rank can make (ranks cannot use cmocka's asserts).
 */
#ifndef WEFT_TESTS_COMM_SUPPORT_H
#define WEFT_TESTS_COMM_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/harness.h"
#include "weft/weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 40000 /* never reached unless something is broken */
#define ID_WORD (HARNESS_WORDS - 1)
#define FAILED 99 /* what a rank returns whose check failed; it has said why */

/* Fails the rank's function with words when a claim does not hold. */
#define EXPECT(claim)                                                                              \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            return harness_say(shared, rank, FAILED, "%s:%d: %s (%s)", __FILE__, __LINE__, #claim, \
                               weft_error_text());                                                 \
        }                                                                                          \
    } while (0)
#define EXPECT_OK(call) EXPECT((call) == WEFT_OK)
/* For functions that return 0, or FAILED after having said why. */
#define EXPECT_PASS(call)                                                                          \
    do {                                                                                           \
        int result_ = (call);                                                                      \
        if (result_ != 0) {                                                                        \
            return result_;                                                                        \
        }                                                                                          \
    } while (0)

/* ---- joining ---- */

struct job {
    int ids;  /* how many roots; 0 means one */
    int root; /* where an id is made: the root-th rank of its segment */
};

static inline weft_config_t job_config(void)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    config.interface = "lo";
    config.start_timeout_ms = 20000;
    config.timeout_ms = 20000;
    return config;
}

static inline weft_id_t *job_ids(struct harness_shared *shared)
{
    return (weft_id_t *)(void *)shared->scratch;
}

/* Makes the ids that are this rank's to make, waits for the others, joins. */
static inline weft_status_t job_join(int rank, struct harness_shared *shared, const struct job *job,
                                     weft_comm_t *comm_p)
{
    int ids = job != NULL && job->ids > 0 ? job->ids : 1;
    int root = job != NULL ? job->root : 0;
    weft_config_t config = job_config();
    for (int k = 0; k < ids; k++) {
        if (rank == k * shared->ranks / ids + root) {
            weft_status_t status = weft_id_create(&config, &job_ids(shared)[k]);
            if (status != WEFT_OK) {
                return status;
            }
            atomic_fetch_add(&shared->word[ID_WORD], 1);
        }
    }
    if (!harness_wait_reach(&shared->word[ID_WORD], (uint32_t)ids, DEADLINE_MS)) {
        return WEFT_ERR_TIMEOUT;
    }
    return weft_comm_create_scalable(job_ids(shared), ids, rank, shared->ranks, &config, comm_p);
}

/* ---- what bytes are: every rank can compute everybody's ---- */

static inline uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#define PERIOD 509 /* of the pattern: no frame or buffer is a multiple of it */

static inline uint8_t byte_at(uint64_t seed, size_t i)
{
    return (uint8_t)((uint8_t)(seed >> 8 * (i % 8)) ^ (uint8_t)(i * 7 >> 3));
}

static inline void fill_bytes(uint64_t seed, uint8_t *bytes, size_t len)
{
    seed = mix(seed);
    for (size_t i = 0; i < len && i < PERIOD; i++) {
        bytes[i] = byte_at(seed, i);
    }
    for (size_t i = PERIOD; i < len; i += PERIOD) {
        memcpy(bytes + i, bytes, len - i < PERIOD ? len - i : PERIOD);
    }
}

static inline bool are_bytes(uint64_t seed, const uint8_t *bytes, size_t len)
{
    seed = mix(seed);
    for (size_t i = 0; i < len && i < PERIOD; i++) {
        if (bytes[i] != byte_at(seed, i)) {
            return false;
        }
    }
    return len <= PERIOD || memcmp(bytes, bytes + PERIOD, len - PERIOD) == 0;
}

/* ---- operations, checked ---- */

/* me, ranks: of the communicator; rank, shared: the harness's, to say what is wrong. */
static inline int check_allgather(weft_comm_t comm, int me, int ranks, size_t len, uint64_t seed,
                                  int rank, struct harness_shared *shared)
{
    uint8_t *mine = malloc(len + 1), *all = malloc(len * (size_t)ranks + 1);
    weft_status_t status;
    bool is_right = true;
    if (mine == NULL || all == NULL) {
        abort();
    }
    fill_bytes(seed + (uint64_t)me, mine, len);
    status = weft_control_allgather(comm, mine, len, all);
    for (int r = 0; status == WEFT_OK && r < ranks; r++) {
        is_right &= are_bytes(seed + (uint64_t)r, all + (size_t)r * len, len);
    }
    free(mine);
    free(all);
    EXPECT(status == WEFT_OK);
    EXPECT(is_right);
    return 0;
}

static inline int check_broadcast(weft_comm_t comm, int me, int root, size_t len, uint64_t seed,
                                  int rank, struct harness_shared *shared)
{
    uint8_t *data = malloc(len + 1);
    weft_status_t status;
    bool is_right;
    EXPECT(data != NULL);
    fill_bytes(me == root ? seed : ~seed, data, len);
    status = weft_control_broadcast(comm, data, len, root);
    is_right = status != WEFT_OK || are_bytes(seed, data, len);
    free(data);
    EXPECT(status == WEFT_OK);
    EXPECT(is_right);
    return 0;
}

/* Everybody sends to the next one, with tag and length of the sender's. */
static inline int check_ring(weft_comm_t comm, int me, int ranks, size_t len, uint64_t seed,
                             int rank, struct harness_shared *shared)
{
    int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
    uint8_t *data = malloc(len + 1);
    size_t got = 0;
    bool is_right;
    weft_status_t status;
    EXPECT(data != NULL);
    fill_bytes(seed + (uint64_t)me, data, len);
    status = weft_control_send(comm, next, (uint32_t)me, data, len);
    if (status == WEFT_OK) {
        status = weft_control_recv(comm, before, (uint32_t)before, data, len, &got);
    }
    is_right = status != WEFT_OK || (got == len && are_bytes(seed + (uint64_t)before, data, len));
    free(data);
    EXPECT(status == WEFT_OK);
    EXPECT(is_right);
    return 0;
}

/* Nobody is behind a barrier before the last has reached it. */
static inline int check_barrier(weft_comm_t comm, int ranks, _Atomic uint32_t *word, int rank,
                                struct harness_shared *shared)
{
    uint32_t before;
    EXPECT_OK(weft_control_barrier(comm));
    before = atomic_fetch_add(word, 1) + 1; /* nobody adds its next before all have added this */
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(atomic_load(word) >= (before + (uint32_t)ranks - 1) / (uint32_t)ranks * (uint32_t)ranks);
    return 0;
}

/* All of them once, on any communicator; word is only this communicator's. */
static inline int check_all_operations(weft_comm_t comm, uint64_t seed, _Atomic uint32_t *word,
                                       int rank, struct harness_shared *shared)
{
    static const size_t lens[] = {0, 1, 64, 1000, 65536};
    int me = -1, ranks = -1;
    EXPECT_OK(weft_comm_rank(comm, &me));
    EXPECT_OK(weft_comm_ranks(comm, &ranks));
    EXPECT_PASS(check_barrier(comm, ranks, word, rank, shared));
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        uint64_t salt = mix(seed + i);
        if (lens[i] * (size_t)ranks <= 2 << 20) {
            EXPECT_PASS(check_allgather(comm, me, ranks, lens[i], salt, rank, shared));
        }
        EXPECT_PASS(
            check_broadcast(comm, me, (int)(salt % (uint64_t)ranks), lens[i], salt, rank, shared));
        EXPECT_PASS(check_ring(comm, me, ranks, lens[i], salt, rank, shared));
    }
    EXPECT_OK(weft_comm_status(comm));
    return 0;
}

/* ---- running ---- */

static inline void finish(struct harness *harness)
{
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static inline void run_processes(int ranks, harness_fn fn, void *arg)
{
    finish(harness_start(ranks, fn, arg));
}

static inline void run_threads(int ranks, harness_fn fn, void *arg)
{
    finish(harness_start_threads(ranks, fn, arg));
}

#endif
