/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_abort() from another thread while messages wait: every call on every rank returns
 * ERR_ABORTED with who and why within a second. And whatever ended an operation: when it has
 * returned, nothing touches its memory any more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <pthread.h>

#define RANKS 3
#define ABORTER 1
#define TAG 2
#define LEN ((size_t)1 << 20)

#define INSIDE 0
#define GO 1
#define RETURNED 2
#define ROUNDS 3
#define WATCHED 4

/* ---- abort ---- */

enum deed {
    DEED_RECV,
    DEED_SEND,
    DEED_WAIT,
    DEED_WAIT_ANY,
    DEED_PROBE,
    DEED_SIGNAL,
    DEED_GROUP,
    DEED_STREAM,
    DEEDS
};

static const char *const deed_names[DEEDS] = {"recv",  "send",   "wait",  "wait_any",
                                              "probe", "signal", "group", "stream"};

struct plan {
    const char *path;
    enum deed deed;
    bool is_threads;
};

struct aborter {
    struct harness_shared *shared;
    weft_comm_t comm;
    weft_status_t status;
};

static void *run_aborter(void *arg)
{
    struct aborter *aborter = arg;
    harness_wait_for(&aborter->shared->word[GO], 1, MESSAGES_WAIT_MS);
    aborter->status = weft_abort(aborter->comm, "the test said so");
    return NULL;
}

static weft_status_t wait_for_next(weft_comm_t comm, int rank, uint8_t *data, bool is_any)
{
    weft_request_t request;
    int index;
    weft_status_t status = weft_recv(comm, data, LEN, (rank + 1) % RANKS, TAG, NULL, &request);
    if (status != WEFT_OK) {
        return status;
    }
    return is_any ? weft_wait_any(&request, 1, WEFT_NO_LIMIT, &index)
                  : weft_wait(&request, WEFT_NO_LIMIT);
}

/* Round and round, without an end. */
static weft_status_t stream(weft_comm_t comm, int rank, uint8_t *data, bool has_end)
{
    weft_status_t status = WEFT_OK;
    do {
        status = weft_group_begin(comm);
        status =
            status == WEFT_OK ? weft_send(comm, data, LEN, (rank + 1) % RANKS, TAG, NULL) : status;
        if (status == WEFT_OK && !has_end) {
            status = weft_recv(comm, data + LEN, LEN, (rank + RANKS - 1) % RANKS, TAG, NULL, NULL);
        }
        weft_status_t end = weft_group_end(comm);
        status = status == WEFT_OK ? end : status;
    } while (status == WEFT_OK && !has_end);
    return status;
}

static weft_status_t do_deed(weft_comm_t comm, int rank, enum deed deed, uint8_t *data)
{
    int next = (rank + 1) % RANKS;
    weft_message_t message;
    switch (deed) {
    case DEED_RECV:
        return weft_recv(comm, data, LEN, next, TAG, NULL, NULL);
    case DEED_SEND:
        return weft_send(comm, data, LEN, next, TAG, NULL);
    case DEED_WAIT:
    case DEED_WAIT_ANY:
        return wait_for_next(comm, rank, data, deed == DEED_WAIT_ANY);
    case DEED_PROBE:
        return weft_probe(comm, next, TAG, MESSAGES_TIMEOUT_MS, &message);
    case DEED_SIGNAL:
        return weft_wait_signal(comm, (const uint64_t *)(void *)data, 1, WEFT_NO_LIMIT);
    case DEED_GROUP:
    case DEED_STREAM:
        return stream(comm, rank, data, deed == DEED_GROUP);
    case DEEDS:
        break;
    }
    return WEFT_ERR_INVALID;
}

static int abort_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    uint8_t *data = messages_buffer(2 * LEN);
    struct aborter aborter = {.shared = shared};
    pthread_t thread;
    weft_mem_t mem;
    weft_status_t status =
        messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &aborter.comm);
    status = status == WEFT_OK ? weft_mem_register(aborter.comm, data, LEN, &mem) : status;
    if (status != WEFT_OK ||
        (rank == ABORTER && pthread_create(&thread, NULL, run_aborter, &aborter) != 0)) {
        free(data);
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    job_calls(rank, shared);
    status = do_deed(aborter.comm, rank, plan->deed, data);
    job_returned(rank, shared, status);
    memset(data, 0x77, 2 * LEN); /* ours again */
    if (rank == ABORTER) {
        pthread_join(thread, NULL);
    }
    bool is_ended = weft_comm_status(aborter.comm) == WEFT_ERR_ABORTED &&
                    weft_send(aborter.comm, data, 8, 0, TAG, NULL) == WEFT_ERR_ABORTED;
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_for(&shared->word[RETURNED], RANKS, MESSAGES_WAIT_MS);
    job_close(rank, shared, aborter.comm);
    for (size_t i = 0; i < 2 * LEN && is_ended; i++) {
        is_ended = data[i] == 0x77;
    }
    free(data);
    return aborter.status == WEFT_OK && is_ended ? 0 : -1;
}

static void check_abort(struct plan plan)
{
    char what[64];
    messages_set("WEFT_PATH", plan.path);
    messages_set("WEFT_LOG", "error");
    struct harness *harness = plan.is_threads ? harness_start_threads(RANKS, abort_body, &plan)
                                              : harness_start(RANKS, abort_body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    snprintf(what, sizeof(what), "%s over %s", deed_names[plan.deed], plan.path);
    assert_harness(harness, harness_wait_for(&shared->word[INSIDE], RANKS, MESSAGES_WAIT_MS));
    messages_let_pass(10); /* so that calls stand, most of the time; right either way */
    struct messages_verdict verdict = {WEFT_ERR_ABORTED, ABORTER, "the test said so",
                                       harness_now_ns()};
    atomic_store(&shared->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < RANKS; rank++) {
        messages_check_verdict(harness, rank, &verdict, what);
    }
    messages_check_fine(harness, what);
    harness_close(harness);
}

static void abort_ends_every_call_on_all_ranks(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum deed deed = 0; deed < DEEDS; deed++) {
            check_abort((struct plan){messages_paths[path], deed, false});
        }
    }
}

static void abort_ends_calls_of_ranks_that_are_threads(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        check_abort((struct plan){messages_paths[path], DEED_RECV, true});
        check_abort((struct plan){messages_paths[path], DEED_STREAM, true});
    }
}

/* ---- memory after an error ---- */

enum end { END_ABORT, END_TIMEOUT, END_KILL, ENDS };
static const char *const end_names[ENDS] = {"abort", "deadline", "death of a third rank"};

struct flow {
    const char *path, *cma;
    enum end end;
};

#define FLOW_LEN ((size_t)32 << 20)

/* Rank 0 to rank 1, one after the other, until it fails. */
static weft_status_t flow(weft_comm_t comm, int rank, struct harness_shared *shared, uint8_t *data)
{
    weft_status_t status = WEFT_OK;
    for (uint64_t round = 0; status == WEFT_OK; round++) {
        if (rank == 0) {
            messages_fill(data, FLOW_LEN, round);
            status = weft_send(comm, data, FLOW_LEN, 1, TAG, NULL);
        } else {
            status = weft_recv(comm, data, FLOW_LEN, 0, TAG, NULL, NULL);
            if (status == WEFT_OK && !messages_are_right(data, FLOW_LEN, round)) {
                return WEFT_ERR_PROTOCOL; /* what the sender wrote after its error, perhaps */
            }
        }
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    }
    return status;
}

/* The third rank ends it all. */
static int end_flow(weft_comm_t comm, struct harness_shared *shared, const struct flow *plan)
{
    uint8_t byte;
    weft_request_t request;
    weft_status_t status = WEFT_OK;
    harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    if (plan->end == END_ABORT) {
        status = weft_abort(comm, "enough");
    } else if (plan->end == END_TIMEOUT) {
        status = weft_recv(comm, &byte, 1, 0, 99, NULL, &request);
        status = status == WEFT_OK ? weft_request_set_timeout(request, 30) : status;
        status = status == WEFT_OK && weft_wait(&request, WEFT_NO_LIMIT) == WEFT_ERR_TIMEOUT
                     ? WEFT_OK
                     : WEFT_ERR_INVALID;
    } else {
        raise(SIGKILL);
    }
    harness_wait_reach(&shared->word[WATCHED], 2, MESSAGES_WAIT_MS);
    weft_comm_close(comm);
    return (int)status;
}

/* Until both have looked: the other side may be slow to stop. */
static bool stays(uint8_t *data, struct harness_shared *shared)
{
    memset(data, 0xa5, FLOW_LEN);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], 2, MESSAGES_WAIT_MS);
    messages_let_pass(50); /* the stretch that is watched */
    for (size_t i = 0; i < FLOW_LEN; i++) {
        if (data[i] != 0xa5) {
            return false;
        }
    }
    return true;
}

static int flow_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct flow *plan = arg;
    uint8_t *data = messages_buffer(FLOW_LEN);
    weft_comm_t comm;
    setenv("WEFT_CMA", plan->cma, 1);
    if (messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm) != WEFT_OK) {
        free(data);
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    if (rank == 2) {
        free(data);
        return end_flow(comm, shared, plan);
    }
    weft_status_t status = flow(comm, rank, shared, data);
    harness_say(shared, rank, 0, "%s",
                status == WEFT_ERR_PROTOCOL ? "received, and wrong" : weft_error_text());
    bool is_quiet = stays(data, shared);
    atomic_fetch_add(&shared->word[WATCHED], 1);
    weft_comm_close(comm);
    free(data);
    if (!is_quiet) {
        return harness_say(shared, rank, -1, "memory was touched after the error");
    }
    return status == WEFT_ERR_ABORTED || status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_PEER ? 0
                                                                                               : -1;
}

static void check_flow(struct flow plan, unsigned pause_us)
{
    char what[96];
    struct harness *harness = harness_start(3, flow_body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    snprintf(what, sizeof(what), "%s over %s (cma %s)", end_names[plan.end], plan.path, plan.cma);
    assert_harness(harness, harness_wait_reach(&shared->word[ROUNDS], 4, MESSAGES_WAIT_MS));
    uint64_t at_ns = harness_now_ns() + pause_us * UINT64_C(1000);
    harness_wait_until(messages_is_past, &at_ns, 1000);
    atomic_store(&shared->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < (plan.end == END_KILL ? 2 : 3); rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (!result->is_returned || result->status != 0) {
            fail_msg("%s: rank %d: %d, %s", what, rank, result->status, result->text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void after_an_error_nothing_touches_the_memory(void **state)
{
    static const struct flow flows[] = {{"shm", "off", 0}, {"shm", "on", 0}, {"tcp", "off", 0}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (enum end end = 0; end < ENDS; end++) {
            for (unsigned pause_us = 0; pause_us < 9000; pause_us += 4100) {
                check_flow((struct flow){flows[i].path, flows[i].cma, end}, pause_us);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_ends_every_call_on_all_ranks),
        cmocka_unit_test(abort_ends_calls_of_ranks_that_are_threads),
        cmocka_unit_test(after_an_error_nothing_touches_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
