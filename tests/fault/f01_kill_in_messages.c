/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank is killed while the others send to it, receive from it, or wait for somebody who does:
 * every call of a survivor returns ERR_PEER and names the dead within a second, whatever the path
 * and the size; closing takes no longer, and nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <signal.h>

#define SMALL 24
#define TAG 3
#define SECOND ((size_t)1 << 20) /* the second request of calls that wait for several */

/* What a survivor does over and over until it fails. */
enum deed {
    DEED_RECV_SMALL,
    DEED_RECV_LARGE,
    DEED_SEND_SMALL, /* until the credit is spent */
    DEED_SEND_LARGE,
    DEED_RECV_STREAM, /* large ones come, one after the other */
    DEED_SEND_STREAM,
    DEED_ANY_SOURCE,
    DEED_WAIT_ALL,
    DEED_WAIT_ANY,
    DEED_TEST,
    DEED_PROBE,
    DEED_GROUP,
    DEED_CHAIN, /* each waits for its neighbour, only the last one for the victim */
    DEED_PUT,
    DEED_GET,
    DEED_SIGNAL,
    DEEDS
};

static const char *const deed_names[DEEDS] = {
    "recv small", "recv large",  "send small",  "send large", "recv stream", "send stream",
    "any source", "wait_all",    "wait_any",    "test",       "probe",       "group",
    "chain",      "put + quiet", "get + quiet", "wait_signal"};

struct plan {
    const char *path;
    enum deed deed;
    int ranks, victim;
    unsigned pause_us; /* of the kill, so that it falls into another moment */
};

#define INSIDE 0   /* how many are about to call */
#define ROUNDS 1   /* deeds that were done */
#define RETURNED 2 /* how many survivors know: only then they close, for closing is news too */
#define DEAD 3     /* the victim has ended */

struct rank {
    struct harness_shared *shared;
    const struct plan *plan;
    weft_comm_t comm;
    int number;
    uint8_t *data;
    weft_mem_t *mem; /* of all ranks */
};

/* ---- the survivors ---- */

static weft_status_t wait_for_two(struct rank *rank, bool is_any)
{
    weft_request_t requests[2] = {NULL, NULL};
    int victim = rank->plan->victim, index = -1;
    weft_status_t status =
        weft_recv(rank->comm, rank->data, SECOND, victim, TAG, NULL, &requests[0]);
    status = status == WEFT_OK
                 ? weft_send(rank->comm, rank->data + SECOND, SECOND, victim, TAG, &requests[1])
                 : status;
    if (status != WEFT_OK) {
        return status;
    }
    if (!is_any) {
        return weft_wait_all(requests, 2, WEFT_NO_LIMIT);
    }
    status = weft_wait_any(requests, 2, WEFT_NO_LIMIT, &index);
    return index >= 0 && weft_wait(&requests[1 - index], WEFT_NO_LIMIT) == status
               ? status
               : WEFT_ERR_INVALID;
}

static weft_status_t test_until_done(struct rank *rank)
{
    weft_request_t request;
    int is_done = 0;
    weft_status_t status =
        weft_recv(rank->comm, rank->data, MESSAGES_LARGE, rank->plan->victim, TAG, NULL, &request);
    while (status == WEFT_OK && !is_done) {
        status = weft_test(&request, &is_done);
    }
    return status;
}

static weft_status_t exchange_in_group(struct rank *rank)
{
    weft_status_t status = weft_group_begin(rank->comm);
    for (int peer = 0; peer < rank->plan->ranks && status == WEFT_OK; peer++) {
        status = weft_send(rank->comm, rank->data, SECOND, peer, TAG, NULL);
        status = status == WEFT_OK ? weft_recv(rank->comm, rank->data + SECOND * (size_t)(1 + peer),
                                               SECOND, peer, TAG, NULL, NULL)
                                   : status;
    }
    weft_status_t end = weft_group_end(rank->comm);
    return status != WEFT_OK ? status : end;
}

static int neighbour(const struct plan *plan, int rank)
{
    int next = (rank + 1) % plan->ranks;
    return next;
}

/* A number no data has: what comes must be what was sent. */
static weft_status_t receive_checked(struct rank *rank)
{
    weft_status_t status =
        weft_recv(rank->comm, rank->data, MESSAGES_LARGE, rank->plan->victim, TAG, NULL, NULL);
    if (status == WEFT_OK && !messages_are_right(rank->data, MESSAGES_LARGE, 1)) {
        return WEFT_ERR_PROTOCOL;
    }
    return status;
}

static weft_status_t do_deed(struct rank *rank)
{
    const struct plan *plan = rank->plan;
    weft_message_t message;
    weft_status_t status;
    switch (plan->deed) {
    case DEED_RECV_SMALL:
        return weft_recv(rank->comm, rank->data, SMALL, plan->victim, TAG, NULL, NULL);
    case DEED_RECV_LARGE:
        return weft_recv(rank->comm, rank->data, MESSAGES_LARGE, plan->victim, TAG, NULL, NULL);
    case DEED_RECV_STREAM:
        return receive_checked(rank);
    case DEED_SEND_SMALL:
        return weft_send(rank->comm, rank->data, SMALL, plan->victim, TAG, NULL);
    case DEED_SEND_LARGE:
    case DEED_SEND_STREAM:
        return weft_send(rank->comm, rank->data, MESSAGES_LARGE, plan->victim, TAG, NULL);
    case DEED_ANY_SOURCE:
        return weft_recv(rank->comm, rank->data, SMALL, WEFT_ANY_SOURCE, WEFT_ANY_TAG, NULL, NULL);
    case DEED_WAIT_ALL:
    case DEED_WAIT_ANY:
        return wait_for_two(rank, plan->deed == DEED_WAIT_ANY);
    case DEED_TEST:
        return test_until_done(rank);
    case DEED_PROBE:
        return weft_probe(rank->comm, plan->victim, TAG, MESSAGES_WAIT_MS, &message);
    case DEED_GROUP:
        return exchange_in_group(rank);
    case DEED_CHAIN:
        return weft_recv(rank->comm, rank->data, SMALL, neighbour(plan, rank->number), TAG, NULL,
                         NULL);
    case DEED_PUT:
        status = weft_put(rank->comm, &rank->mem[plan->victim], 0, rank->data + SECOND, SECOND);
        return status == WEFT_OK ? weft_quiet(rank->comm) : status;
    case DEED_GET:
        status = weft_get(rank->comm, &rank->mem[plan->victim], 0, rank->data + SECOND, SECOND);
        return status == WEFT_OK ? weft_quiet(rank->comm) : status;
    case DEED_SIGNAL:
        return weft_wait_signal(rank->comm, (const uint64_t *)(void *)rank->data, UINT64_MAX,
                                MESSAGES_WAIT_MS);
    case DEEDS:
        break;
    }
    return WEFT_ERR_INVALID;
}

/* ---- the victim ---- */

static bool victim_takes_part(enum deed deed)
{
    return deed == DEED_RECV_STREAM || deed == DEED_SEND_STREAM;
}

/* In turn with each survivor, for ever. */
static void stream(struct rank *rank)
{
    weft_status_t status = WEFT_OK;
    messages_fill(rank->data, MESSAGES_LARGE, 1);
    for (int peer = 0; status == WEFT_OK; peer = (peer + 1) % rank->plan->ranks) {
        if (peer == rank->number) {
            continue;
        }
        status = rank->plan->deed == DEED_RECV_STREAM
                     ? weft_send(rank->comm, rank->data, MESSAGES_LARGE, peer, TAG, NULL)
                     : weft_recv(rank->comm, rank->data, MESSAGES_LARGE, peer, TAG, NULL, NULL);
    }
}

static int be_victim(struct rank *rank)
{
    atomic_fetch_add(&rank->shared->word[INSIDE], 1);
    if (victim_takes_part(rank->plan->deed)) {
        stream(rank);
    }
    harness_wait_for(&rank->shared->word[DEAD], 1, MESSAGES_WAIT_MS); /* killed here */
    return -1;
}

/* ---- ranks ---- */

static weft_status_t share_memory(struct rank *rank)
{
    weft_mem_t mine;
    weft_status_t status = weft_mem_register(rank->comm, rank->data, SECOND, &mine);
    return status == WEFT_OK ? weft_control_allgather(rank->comm, &mine, sizeof(mine), rank->mem)
                             : status;
}

static int body(int number, struct harness_shared *shared, void *arg)
{
    weft_mem_t mem[8];
    struct rank rank = {.shared = shared, .plan = arg, .number = number, .mem = mem};
    weft_status_t status =
        messages_join(number, shared, rank.plan->path, MESSAGES_TIMEOUT_MS, &rank.comm);
    rank.data = messages_buffer(MESSAGES_LARGE);
    status = status == WEFT_OK ? share_memory(&rank) : status;
    if (status != WEFT_OK) {
        free(rank.data);
        return harness_say(shared, number, -1, "could not start: %s", weft_error_text());
    }
    if (number == rank.plan->victim) {
        return be_victim(&rank);
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    do {
        job_calls(number, shared);
        status = do_deed(&rank);
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    } while (status == WEFT_OK);
    job_returned(number, shared, status);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], (uint32_t)shared->ranks - 1, MESSAGES_WAIT_MS);
    if (messages_final_status(rank.comm) != status ||
        weft_send(rank.comm, rank.data, SMALL, number == 0 ? 1 : 0, TAG, NULL) != status) {
        job_returned(number, shared,
                     WEFT_ERR_BUSY); /* the communicator goes on as if nothing was */
    }
    job_close(number, shared, rank.comm);
    free(rank.data);
    return (int)status;
}

static void check(struct plan plan)
{
    char what[96];
    snprintf(what, sizeof(what), "%s over %s, rank %d of %d", deed_names[plan.deed], plan.path,
             plan.victim, plan.ranks);
    struct harness *harness = harness_start(plan.ranks, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    struct messages_verdict verdict = {WEFT_ERR_PEER, plan.victim, NULL, 0};
    uint32_t rounds = victim_takes_part(plan.deed) ? (uint32_t)plan.ranks : 0;
    assert_harness(
        harness, harness_wait_reach(&shared->word[INSIDE], (uint32_t)plan.ranks, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_wait_reach(&shared->word[ROUNDS], rounds, MESSAGES_WAIT_MS));
    verdict.since_ns = harness_now_ns() + plan.pause_us * UINT64_C(1000);
    harness_wait_until(messages_is_past, &verdict.since_ns, 1000);
    verdict.since_ns = harness_now_ns();
    assert_harness(harness, harness_kill(harness, plan.victim, SIGKILL));
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < plan.ranks; rank++) {
        if (rank != plan.victim) {
            messages_check_verdict(harness, rank, &verdict, what);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void check_all(enum deed first, enum deed last, int ranks, int victim)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum deed deed = first; deed <= last; deed++) {
            check((struct plan){messages_paths[path], deed, ranks, victim, 20000});
        }
    }
}

static void receivers_and_senders_that_wait_hear_of_it(void **state)
{
    (void)state;
    check_all(DEED_RECV_SMALL, DEED_SEND_LARGE, 3, 2);
}

static void large_transfers_end_in_the_middle(void **state)
{
    (void)state;
    for (unsigned pause_us = 0; pause_us < 20000; pause_us += 6500) {
        for (size_t path = 0; path < MESSAGES_PATHS; path++) {
            check((struct plan){messages_paths[path], DEED_RECV_STREAM, 3, 1, pause_us});
            check((struct plan){messages_paths[path], DEED_SEND_STREAM, 3, 1, pause_us + 3000});
        }
    }
}

static void every_way_to_wait_hears_of_it(void **state)
{
    (void)state;
    check_all(DEED_ANY_SOURCE, DEED_GROUP, 3, 1);
}

static void who_waits_for_a_survivor_hears_of_it_too(void **state)
{
    (void)state;
    check_all(DEED_CHAIN, DEED_CHAIN, 5, 4);
}

static void one_sided_operations_hear_of_it(void **state)
{
    (void)state;
    check_all(DEED_PUT, DEED_SIGNAL, 3, 1);
}

static void the_root_may_be_the_one_that_dies(void **state)
{
    (void)state;
    check_all(DEED_RECV_SMALL, DEED_RECV_STREAM, 4, 0);
    check_all(DEED_CHAIN, DEED_CHAIN, 4, 0);
}

/* ---- two at once ---- */

static int pair_body(int number, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm;
    uint8_t data[SMALL];
    weft_status_t status = messages_join(number, shared, arg, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, number, -1, "could not join: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    job_calls(number, shared);
    status = weft_recv(comm, data, sizeof(data), number < 3 ? 3 : 0, TAG, NULL, NULL);
    job_returned(number, shared, status);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], 3, MESSAGES_WAIT_MS);
    job_close(number, shared, comm);
    return (int)status;
}

static void two_killed_at_once_give_one_verdict_to_all(void **state)
{
    static const int survivors[] = {0, 2, 4};
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct harness *harness = harness_start(5, pair_body, (void *)messages_paths[path]);
        struct harness_shared *shared = harness_shared(harness);
        assert_harness(harness, harness_wait_for(&shared->word[INSIDE], 5, MESSAGES_WAIT_MS));
        for (int rank = 0; rank < 5; rank++) {
            assert_harness(harness, job_wait_asleep(harness, rank, 5000));
        }
        struct messages_verdict verdict = {WEFT_ERR_PEER, -1, NULL, harness_now_ns()};
        assert_harness(harness, harness_kill(harness, 1, SIGKILL));
        assert_harness(harness, harness_kill(harness, 3, SIGKILL));
        messages_wait(harness, MESSAGES_WAIT_MS, messages_paths[path]);
        const char *words = harness_result(harness, 0)->text;
        assert_true(messages_names(words, 1) || messages_names(words, 3));
        for (size_t i = 0; i < 3; i++) {
            messages_check_verdict(harness, survivors[i], &verdict, messages_paths[path]);
            assert_string_equal(harness_result(harness, survivors[i])->text, words);
        }
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receivers_and_senders_that_wait_hear_of_it),
        cmocka_unit_test(large_transfers_end_in_the_middle),
        cmocka_unit_test(every_way_to_wait_hears_of_it),
        cmocka_unit_test(who_waits_for_a_survivor_hears_of_it_too),
        cmocka_unit_test(one_sided_operations_hear_of_it),
        cmocka_unit_test(the_root_may_be_the_one_that_dies),
        cmocka_unit_test(two_killed_at_once_give_one_verdict_to_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
