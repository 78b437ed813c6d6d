/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of messages and of one-sided operations: runs one function on every path and
 * with ranks of either kind, and sends and receives messages whose bytes both sides can compute.
 */
#ifndef WEFT_TESTS_API_MESSAGES_H
#define WEFT_TESTS_API_MESSAGES_H

#include "unit/comm/comm_support.h"

#include <pthread.h>

#define WAIT_MS 30000          /* never reached unless something is broken */
#define WATCH_MS 120000        /* of a whole job, on a machine with other things to do */
#define GUARD_LEN ((size_t)64) /* bytes around a buffer that nobody may write */
#define GUARD_BYTE 0xa5
#define LENS(array) (sizeof(array) / sizeof((array)[0]))

/* Sanitizers slow everything down; the one for threads cannot see what other processes order. */
#if defined(__SANITIZE_THREAD__)
#define IS_THREAD_SANITIZED 1
#elif defined(__SANITIZE_ADDRESS__)
#define IS_ADDRESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_THREAD_SANITIZED 1
#elif __has_feature(address_sanitizer)
#define IS_ADDRESS_SANITIZED 1
#endif
#endif
#ifndef IS_THREAD_SANITIZED
#define IS_THREAD_SANITIZED 0
#endif
#ifndef IS_ADDRESS_SANITIZED
#define IS_ADDRESS_SANITIZED 0
#endif

/* Around every limit that an implementation may have: cells, slots, eager, chunks. */
static const size_t message_lens[] = {
    0,    1,     8,     39,    40,     41,     4096,   8191,          8192,
    8193, 65535, 65536, 65537, 131071, 131072, 131073, (1 << 20) + 3, (9 << 20) + 5};

/* ---- every way to run a job ---- */

typedef int (*messages_fn)(weft_comm_t comm, int rank, struct harness_shared *shared);

enum {
    SHM_PROCESSES = 1,
    TCP_PROCESSES = 2,
    SHM_THREADS = 4,
    TCP_THREADS = 8,
    PROCESSES = SHM_PROCESSES | TCP_PROCESSES,
    EVERY_WAY = PROCESSES | SHM_THREADS | TCP_THREADS,
};

/* What a failing test adds to its words: the seed of a random one. */
static char run_note[64];

/* Joins, runs the function, meets the others, closes. */
static inline int run_joined(int rank, struct harness_shared *shared, void *arg)
{
    messages_fn fn = *(messages_fn *)arg;
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    EXPECT_PASS(fn(comm, rank, shared));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static inline void run_one_way(int way, int ranks, harness_fn body, void *arg)
{
    bool is_shm = (way & (SHM_PROCESSES | SHM_THREADS)) != 0;
    bool is_threads = (way & (SHM_THREADS | TCP_THREADS)) != 0;
    struct harness *harness;
    char error[2048];
    const char *only = getenv("TEST_PATH"); /* for people: shm or tcp, nothing else */
    if (only != NULL && strcmp(only, is_shm ? "shm" : "tcp") != 0) {
        return;
    }
    setenv("WEFT_PATH", is_shm ? "shm" : "tcp", 1);
    harness =
        is_threads ? harness_start_threads(ranks, body, arg) : harness_start(ranks, body, arg);
    if (harness_wait(harness, WATCH_MS) && harness_check_status(harness, 0) &&
        harness_check_clean(harness)) {
        harness_close(harness);
        return;
    }
    snprintf(error, sizeof(error), "%s", harness_error(harness));
    harness_close(harness); /* or later ranks would inherit it as a leak */
    fail_msg("over %s, %d ranks as %s%s: %s", is_shm ? "shm" : "tcp", ranks,
             is_threads ? "threads" : "processes", run_note, error);
}

/* A body that joins (or does not) by itself. */
static inline void run_bodies(int ways, int ranks, harness_fn body)
{
    for (int way = SHM_PROCESSES; way <= TCP_THREADS; way <<= 1) {
        if ((ways & way) != 0) {
            run_one_way(way, ranks, body, NULL);
        }
    }
}

static inline void run_ways(int ways, int ranks, messages_fn fn)
{
    for (int way = SHM_PROCESSES; way <= TCP_THREADS; way <<= 1) {
        if ((ways & way) != 0) {
            run_one_way(way, ranks, run_joined, &fn);
        }
    }
}

/* ---- messages whose bytes both sides know ---- */

static inline uint64_t seed_of(int source, int tag, int number)
{
    return mix((uint64_t)source << 48 ^ (uint64_t)tag << 32 ^ (uint64_t)number);
}

/* Where a check fails, the rank's memory goes with its process; so nobody need free it there. */
static _Atomic(void *) kept_memory;

/* Zeroed; never NULL. */
static inline void *allocate(size_t len)
{
    void *memory = calloc(1, len > 0 ? len : 1);
    if (memory == NULL) {
        abort();
    }
    atomic_store(&kept_memory, memory);
    return memory;
}

static inline uint8_t *make_bytes(uint64_t seed, size_t len)
{
    uint8_t *bytes = allocate(len);
    fill_bytes(seed, bytes, len);
    return bytes;
}

/* Room for len bytes, with guards on both sides; nothing in it looks like a message. */
static inline uint8_t *make_room(size_t len)
{
    uint8_t *memory = allocate(len + 2 * GUARD_LEN);
    memset(memory, GUARD_BYTE, len + 2 * GUARD_LEN);
    return memory + GUARD_LEN;
}

static inline void free_room(uint8_t *room)
{
    free(room - GUARD_LEN);
}

static inline bool is_untouched(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

static inline bool are_guards_whole(const uint8_t *room, size_t len)
{
    return is_untouched(room - GUARD_LEN, GUARD_LEN) && is_untouched(room + len, GUARD_LEN);
}

struct expected {
    int source, tag;
    size_t len;
    uint64_t seed;
};

static inline bool is_message(const weft_message_t *message, const struct expected *want)
{
    return message->source == want->source && message->tag == want->tag &&
           message->len == want->len;
}

/* Receives, blocking, with `from` and `tag` possibly wild, and checks that it was this message. */
static inline int check_recv(weft_comm_t comm, int from, int tag, const struct expected *want,
                             int rank, struct harness_shared *shared)
{
    uint8_t *room = make_room(want->len);
    weft_message_t message = {-7, -7, 77};
    weft_status_t status = weft_recv(comm, room, want->len, from, tag, &message, NULL);
    bool is_right = are_bytes(want->seed, room, want->len) && are_guards_whole(room, want->len);
    free_room(room);
    if (status != WEFT_OK || !is_message(&message, want) || !is_right) {
        return harness_say(shared, rank, FAILED,
                           "want %zu bytes of rank %d tag %d: %s, %zu of %d tag %d, bytes %s (%s)",
                           want->len, want->source, want->tag, weft_status_name(status),
                           message.len, message.source, message.tag, is_right ? "right" : "wrong",
                           status != WEFT_OK ? weft_error_text() : "");
    }
    return 0;
}

/* The bytes leave with the send: nothing to keep. */
static inline weft_status_t send_pattern(weft_comm_t comm, size_t len, int to, int tag,
                                         uint64_t seed)
{
    uint8_t *bytes = make_bytes(seed, len);
    weft_status_t status = weft_send(comm, bytes, len, to, tag, NULL);
    free(bytes);
    return status;
}

#endif
