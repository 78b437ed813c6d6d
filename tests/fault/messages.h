/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For fault tests of messages: how ranks get into a job whose messages take a given path, bytes
 * that can be recognized, and the judgement on a rank that has seen another one fail.
 */
#ifndef WEFT_TESTS_FAULT_MESSAGES_H
#define WEFT_TESTS_FAULT_MESSAGES_H

#include "fault/job.h"

#include <pthread.h>
#include <signal.h>

#define MESSAGES_LARGE ((size_t)64 << 20)
#define MESSAGES_WAIT_MS 15000    /* after this the test itself has failed */
#define MESSAGES_TIMEOUT_MS 30000 /* of operations that must not end by their deadline */

static const char *const messages_paths[] = {"shm", "tcp"};
#define MESSAGES_PATHS (sizeof(messages_paths) / sizeof(messages_paths[0]))

/* ---- the rank's side ---- */

/* Ranks that are threads share an environment: the first to come sets it, and nobody changes it afterwards. */
static inline void messages_set_unless(const char *name, const char *value, bool is_set_enough)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    const char *old = getenv(name);
    if (old == NULL || (!is_set_enough && strcmp(old, value) != 0)) {
        setenv(name, value, 1);
    }
    pthread_mutex_unlock(&lock);
}

static inline void messages_set(const char *name, const char *value)
{
    messages_set_unless(name, value, false);
}

/* timeout_ms 0: as the environment says. That ranks die is the subject, not news to be logged. */
static inline weft_status_t messages_join(int rank, struct harness_shared *shared, const char *path,
                                          uint32_t timeout_ms, weft_comm_t *comm_p)
{
    weft_config_t config = job_config(20000, timeout_ms);
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
        signal(deadly[i], SIG_DFL); /* cmocka's handler would run the test again, in the rank */
    }
    messages_set("WEFT_PATH", path);
    messages_set_unless("WEFT_LOG", "error", true);
    return job_join(rank, 0, shared, &config, comm_p);
}

static inline bool messages_has_ended(void *arg)
{
    return weft_comm_status((weft_comm_t)arg) != WEFT_OK;
}

/* The verdict on a failure may come a little after a lane has seen it. */
static inline weft_status_t messages_final_status(weft_comm_t comm)
{
    harness_wait_until(messages_has_ended, comm, 1000 * JOB_SLOWNESS);
    return weft_comm_status(comm);
}

static inline uint64_t messages_mix(uint64_t seed)
{
    uint64_t z = seed + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Word i of what `seed` means. One multiplication, for long messages are made of them. */
static inline uint64_t messages_word(uint64_t key, size_t i)
{
    return (key + i) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline void messages_fill(void *data, size_t len, uint64_t seed)
{
    uint64_t key = messages_mix(seed), word;
    uint8_t *bytes = data;
    size_t i;
    for (i = 0; i < len / sizeof(word); i++) {
        word = messages_word(key, i);
        memcpy(bytes + i * sizeof(word), &word, sizeof(word));
    }
    word = messages_word(key, i);
    memcpy(bytes + i * sizeof(word), &word, len % sizeof(word));
}

/* The first byte that is not as messages_fill() wrote it; len: all are. */
static inline size_t messages_wrong(const void *data, size_t len, uint64_t seed)
{
    uint64_t key = messages_mix(seed), word, found;
    const uint8_t *bytes = data;
    for (size_t at = 0; at < len; at += sizeof(word)) {
        size_t part = len - at < sizeof(word) ? len - at : sizeof(word);
        word = messages_word(key, at / sizeof(word));
        found = word;
        memcpy(&found, bytes + at, part);
        for (size_t i = 0; found != word && i < part; i++) {
            if (bytes[at + i] != (uint8_t)(word >> (8 * i))) {
                return at + i;
            }
        }
    }
    return len;
}

static inline bool messages_are_right(const void *data, size_t len, uint64_t seed)
{
    return messages_wrong(data, len, seed) == len;
}

/* Zeroed, and pages nobody touches cost nothing. */
static inline uint8_t *messages_buffer(size_t len)
{
    uint8_t *data = calloc(1, len);
    if (data == NULL) {
        abort();
    }
    return data;
}

/* ---- the test's side ---- */

static inline bool messages_is_past(void *arg)
{
    return harness_now_ns() >= *(const uint64_t *)arg;
}

/* For stretches of time that are themselves the subject. */
static inline void messages_let_pass(unsigned ms)
{
    uint64_t until_ns = harness_now_ns() + ms * JOB_MS_NS;
    harness_wait_until(messages_is_past, &until_ns, 2 * ms + 1000);
}

static inline bool messages_names(const char *text, int rank)
{
    char name[32];
    size_t len = (size_t)snprintf(name, sizeof(name), "rank %d", rank);
    const char *named = strstr(text, name);
    while (named != NULL && named[len] >= '0' && named[len] <= '9') {
        named = strstr(named + 1, name);
    }
    return named != NULL;
}

static inline double messages_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return (double)((int64_t)(to_ns - from_ns)) / 1e9;
}

#ifdef CMOCKA_H_

/* What a rank must have seen: a status, the rank to blame (-1: nobody), a word (NULL: none), within
 * a second after since_ns or after it called, whichever was later. */
struct messages_verdict {
    weft_status_t status;
    int blamed;
    const char *word;
    uint64_t since_ns;
};

static inline void messages_check_verdict(struct harness *harness, int rank,
                                          const struct messages_verdict *verdict, const char *what)
{
    const struct job_report *report = job_report(harness, rank);
    const char *text = harness_result(harness, rank)->text;
    uint64_t since_ns =
        report->called_ns > verdict->since_ns ? report->called_ns : verdict->since_ns;
    if (report->status != (int32_t)verdict->status ||
        (verdict->blamed >= 0 && !messages_names(text, verdict->blamed)) ||
        (verdict->word != NULL && strstr(text, verdict->word) == NULL)) {
        fail_msg("%s: rank %d should get %s, rank %d, \"%s\"; it got %s", what, rank,
                 weft_status_name(verdict->status), verdict->blamed,
                 verdict->word != NULL ? verdict->word : "", text);
    }
    if (report->returned_ns > since_ns + JOB_CLOSE_NS * JOB_SLOWNESS) {
        fail_msg("%s: rank %d returned after %.3f s: %s", what, rank,
                 messages_seconds(since_ns, report->returned_ns), text);
    }
    if (report->close_status != WEFT_OK ||
        report->closed_ns - report->closing_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
        fail_msg("%s: rank %d closed with %d in %.3f s", what, rank, report->close_status,
                 messages_seconds(report->closing_ns, report->closed_ns));
    }
}

/* After all ranks have ended. */
static inline void messages_check_fine(struct harness *harness, const char *what)
{
    if (!harness_check_status(harness, 0) || !harness_check_clean(harness)) {
        fail_msg("%s: %s", what, harness_error(harness));
    }
}

static inline void messages_wait(struct harness *harness, unsigned deadline_ms, const char *what)
{
    if (!harness_wait(harness, deadline_ms)) {
        fail_msg("%s: %s", what, harness_error(harness));
    }
}

#endif
#endif
