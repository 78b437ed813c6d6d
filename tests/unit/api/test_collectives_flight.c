/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives that are begun and waited for later: several at once, in any order and by any way to wait,
 * in groups, beside messages, by another thread, while a rank computes.
 */
#include "unit/api/collectives_flight.h"

#include <pthread.h>

#define FLIGHTS 12
#define ROUNDS (IS_THREAD_SANITIZED ? 3 : 12)
#define MOST (IS_THREAD_SANITIZED ? 5000 : 100000)

struct job_facts {
    int me, ranks;
};

static struct job_facts facts_of(weft_comm_t comm)
{
    struct job_facts facts = {-1, 0};
    weft_comm_rank(comm, &facts.me);
    weft_comm_ranks(comm, &facts.ranks);
    return facts;
}

/* ---- many in flight ---- */

static int begin_some(struct flight *flights, int count, uint64_t seed, weft_comm_t comm, int rank,
                      struct harness_shared *shared)
{
    struct job_facts facts = facts_of(comm);
    for (int i = 0; i < count; i++) {
        flight_draw(&flights[i], seed + (uint64_t)i, MOST, facts.me, facts.ranks);
        EXPECT_PASS(flight_begin(&flights[i], comm, rank, shared));
    }
    return 0;
}

static int run_any_order(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct flight flights[FLIGHTS];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        EXPECT_PASS(begin_some(flights, FLIGHTS, round * 100, comm, rank, shared));
        EXPECT_PASS(flight_end_all(flights, FLIGHTS, values_mix(round * 64 + (uint64_t)rank), rank,
                                   shared));
    }
    return 0;
}

static void several_in_flight_may_be_waited_for_in_any_order(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, run_any_order);
    run_ways(EVERY_WAY, 5, run_any_order);
}

/* More than anybody would hold ready: begun all the same, or done meanwhile. */
static int run_crowd(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { CROWD = 300 };
    static _Thread_local struct flight flights[CROWD];
    struct job_facts facts = facts_of(comm);
    for (int i = 0; i < CROWD; i++) {
        flight_draw(&flights[i], 7000 + (uint64_t)i, 200, facts.me, facts.ranks);
        EXPECT_PASS(flight_begin(&flights[i], comm, rank, shared));
    }
    return flight_end_all(flights, CROWD, values_mix((uint64_t)rank), rank, shared);
}

static void hundreds_in_flight_are_right(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_crowd);
}

/* wait_any says which one; and waits for messages and collectives alike. */
static int run_wait_any(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct flight flights[FLIGHTS];
    weft_request_t requests[FLIGHTS + 2];
    struct job_facts facts = facts_of(comm);
    int next = (facts.me + 1) % facts.ranks, before = (facts.me + facts.ranks - 1) % facts.ranks;
    uint64_t mine = values_mix((uint64_t)facts.me), theirs = 0;
    int index = -1, seen = 0;
    EXPECT_PASS(begin_some(flights, FLIGHTS, 9000, comm, rank, shared));
    for (int i = 0; i < FLIGHTS; i++) {
        requests[i] = flights[i].request;
        flights[i].request = NULL;
    }
    EXPECT_OK(weft_recv(comm, &theirs, 8, before, 3, NULL, &requests[FLIGHTS]));
    EXPECT_OK(weft_send(comm, &mine, 8, next, 3, &requests[FLIGHTS + 1]));
    for (;;) {
        EXPECT_OK(weft_wait_any(requests, FLIGHTS + 2, WAIT_MS, &index));
        if (index < 0) {
            break;
        }
        EXPECT(requests[index] == NULL);
        seen += index < FLIGHTS;
        if (index < FLIGHTS) {
            EXPECT_PASS(flight_end(&flights[index], WEFT_OK, rank, shared));
        }
    }
    for (int i = 0; i < FLIGHTS; i++) { /* those that were done at once */
        if (flights[i].is_up) {
            EXPECT_PASS(flight_end(&flights[i], WEFT_OK, rank, shared));
        }
    }
    EXPECT(seen <= FLIGHTS && theirs == values_mix((uint64_t)before));
    return 0;
}

static void wait_any_takes_collectives_and_messages(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_wait_any);
}

static int run_wait_all(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct flight flights[FLIGHTS];
    weft_request_t requests[FLIGHTS];
    EXPECT_PASS(begin_some(flights, FLIGHTS, 9500, comm, rank, shared));
    for (int i = 0; i < FLIGHTS; i++) {
        requests[FLIGHTS - 1 - i] = flights[i].request;
        flights[i].request = NULL;
    }
    EXPECT_OK(weft_wait_all(requests, FLIGHTS, WAIT_MS));
    for (int i = 0; i < FLIGHTS; i++) {
        EXPECT(requests[i] == NULL);
        EXPECT_PASS(flight_end(&flights[i], WEFT_OK, rank, shared));
    }
    return 0;
}

static void wait_all_ends_all(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 4, run_wait_all);
}

/* ---- waits that end before the operation does ---- */

/* The last rank comes only when all others have seen their waits end early. */
static int run_patience(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    EXPECT_OK(weft_barrier(comm, NULL)); /* the first one of a communicator waits for everybody */
    for (uint64_t round = 0; round < 6; round++) {
        struct job_facts facts = facts_of(comm);
        struct flight flight;
        int late = (int)(round % (uint64_t)facts.ranks), is_done = 1;
        uint32_t turns = (uint32_t)(facts.ranks - 1) * ((uint32_t)round + 1);
        flight_draw(&flight, round, MOST, facts.me, facts.ranks);
        flight.trial.coll = round % 2 == 0 ? WEFT_ALLREDUCE : WEFT_BARRIER;
        flight.trial.has_gaps = false;
        if (rank == late) {
            EXPECT(harness_wait_reach(&shared->word[0], turns, WAIT_MS));
        }
        EXPECT_PASS(flight_begin(&flight, comm, rank, shared));
        if (rank != late) {
            EXPECT_OK(weft_test(&flight.request, &is_done));
            EXPECT(is_done == 0 && flight.request != NULL);
            EXPECT(weft_wait(&flight.request, 3) == WEFT_ERR_TIMEOUT && flight.request != NULL);
            EXPECT(weft_wait_all(&flight.request, 1, 0) == WEFT_ERR_TIMEOUT);
            EXPECT(flight.request != NULL && weft_comm_status(comm) == WEFT_OK);
            EXPECT(weft_cancel(&flight.request) != WEFT_OK && flight.request != NULL);
            atomic_fetch_add(&shared->word[0], 1);
        }
        weft_status_t status = weft_wait(&flight.request, WAIT_MS);
        EXPECT_PASS(flight_end(&flight, status, rank, shared));
    }
    return 0;
}

static void a_wait_that_ends_early_leaves_the_operation_alive(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_patience);
}

/* ---- another thread ---- */

struct waiter {
    struct flight *flight;
    weft_status_t status;
};

static void *wait_elsewhere(void *arg)
{
    struct waiter *waiter = arg;
    waiter->status = weft_wait(&waiter->flight->request, WAIT_MS);
    return NULL;
}

static int run_elsewhere(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { COUNT = 4 };
    struct flight flights[COUNT];
    struct waiter waiters[COUNT];
    pthread_t threads[COUNT];
    for (uint64_t round = 0; round < 10; round++) {
        EXPECT_PASS(begin_some(flights, COUNT, 500 + round * 10, comm, rank, shared));
        for (int i = 0; i < COUNT; i++) {
            waiters[i] = (struct waiter){&flights[i], WEFT_ERR_INVALID};
            EXPECT(pthread_create(&threads[i], NULL, wait_elsewhere, &waiters[i]) == 0);
        }
        for (int i = 0; i < COUNT; i++) {
            EXPECT(pthread_join(threads[i], NULL) == 0);
        }
        for (int i = 0; i < COUNT; i++) {
            EXPECT_PASS(flight_end(&flights[i], waiters[i].status, rank, shared));
        }
    }
    return 0;
}

static void requests_may_be_waited_for_by_other_threads(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_elsewhere);
}

/* ---- a rank that computes ---- */

/* The others come to an end while one of them makes no calls at all. */
static int run_computing(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t counts[] = {1, 700, 40000, 1000000};
    for (uint64_t round = 0; round < 2 * LENS(counts); round++) {
        struct job_facts facts = facts_of(comm);
        struct flight flight;
        uint32_t turns = (uint32_t)(facts.ranks - 1) * ((uint32_t)round + 1);
        int busy = (int)(round % (uint64_t)facts.ranks);
        weft_status_t status;
        flight_draw(&flight, round, 0, facts.me, facts.ranks);
        desk_close(&flight.desk);
        flight.trial.coll = round % 2 == 0 ? WEFT_ALLREDUCE : WEFT_BROADCAST;
        flight.trial.root = busy;
        flight.trial.has_gaps = false;
        flight.trial.count = counts[round / 2] / (IS_THREAD_SANITIZED ? 100 : 1) + 1;
        desk_open(&flight.desk, flight.trial.count * 8 + 1024, MEMORY_PRIVATE, MEMORY_PRIVATE);
        EXPECT_PASS(flight_begin(&flight, comm, rank, shared));
        if (rank == busy) {
            EXPECT(harness_wait_reach(&shared->word[0], turns, WAIT_MS));
        }
        status = weft_wait(&flight.request, WAIT_MS);
        EXPECT_PASS(flight_end(&flight, status, rank, shared));
        if (rank != busy) {
            atomic_fetch_add(&shared->word[0], 1);
        }
    }
    return 0;
}

static void a_rank_that_computes_does_not_hold_up_the_others(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_computing);
    run_ways(PROCESSES, 2, run_computing);
}

/* ---- groups ---- */

static int run_group(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { COUNT = 6 };
    struct job_facts facts = facts_of(comm);
    int next = (facts.me + 1) % facts.ranks, before = (facts.me + facts.ranks - 1) % facts.ranks;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct flight flights[COUNT];
        uint64_t mine[2] = {round, (uint64_t)facts.me}, theirs[2] = {99, 99};
        EXPECT_OK(weft_group_begin(comm));
        for (int i = 0; i < COUNT; i++) {
            struct flight *flight = &flights[i];
            flight_draw(flight, 3000 + round * 10 + (uint64_t)i, MOST / 4, facts.me, facts.ranks);
            flight->trial.desk = &flight->desk;
            trial_prepare(&flight->trial);
            if (i == 2) { /* before or after the others: the group has no order between them */
                EXPECT_OK(weft_recv(comm, theirs, sizeof(theirs), before, 8, NULL, NULL));
                EXPECT_OK(weft_group_begin(comm));
            }
            EXPECT_OK(trial_begin(&flight->trial, comm, NULL));
            if (i == 4) {
                EXPECT_OK(weft_group_end(comm)); /* an inner one does not wait */
                EXPECT_OK(weft_send(comm, mine, sizeof(mine), next, 8, NULL));
            }
        }
        EXPECT_OK(weft_group_end(comm));
        for (int i = 0; i < COUNT; i++) {
            EXPECT_PASS(trial_check(&flights[i].trial, rank, shared));
            desk_close(&flights[i].desk);
        }
        EXPECT(theirs[0] == round && theirs[1] == (uint64_t)before);
    }
    return 0;
}

static void a_group_takes_collectives_and_messages(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, run_group);
    run_ways(EVERY_WAY, 4, run_group);
}

/* ---- beside messages ---- */

/* A receive that takes anything does not take what belongs to a collective. */
static int run_wild(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { COUNT = 6 };
    struct job_facts facts = facts_of(comm);
    int next = (facts.me + 1) % facts.ranks, before = (facts.me + facts.ranks - 1) % facts.ranks;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct flight flights[COUNT];
        weft_request_t wild = NULL;
        weft_message_t message = {-7, -7, 77};
        size_t len = (size_t)(values_mix(round) % (round % 2 == 0 ? 60 : 100000));
        uint8_t *room = make_room(len), *bytes = make_bytes(round * 16 + (uint64_t)facts.me, len);
        EXPECT_OK(weft_recv(comm, room, len, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &message, &wild));
        EXPECT_PASS(begin_some(flights, COUNT, 4000 + round * 10, comm, rank, shared));
        if (facts.ranks == 1 || round % 3 == 0) {
            EXPECT_PASS(flight_end_all(flights, COUNT, values_mix(round), rank, shared));
            EXPECT(is_untouched(room, len));
            /* Through the engine's lock: that a message comes after the barrier, which is in memory of
             * several processes, is nothing a tool can see that looks at one. */
            EXPECT(weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message) ==
                   WEFT_ERR_TIMEOUT);
            EXPECT_OK(weft_barrier(comm, NULL)); /* now a message may come */
        }
        EXPECT_OK(weft_send(comm, bytes, len, next, (int)round, NULL));
        EXPECT_OK(weft_wait(&wild, WAIT_MS));
        EXPECT(message.source == before && message.tag == (int)round && message.len == len);
        EXPECT(are_bytes(round * 16 + (uint64_t)before, room, len) && are_guards_whole(room, len));
        EXPECT(weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message) == WEFT_ERR_TIMEOUT);
        EXPECT_PASS(flight_end_all(flights, COUNT, values_mix(round), rank, shared));
        free_room(room);
        free(bytes);
        EXPECT_OK(weft_barrier(comm, NULL)); /* or the next wild receive takes a late one's */
    }
    return 0;
}

static void messages_and_collectives_do_not_mix(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, run_wild);
    run_ways(PROCESSES, 4, run_wild);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_in_flight_may_be_waited_for_in_any_order),
        cmocka_unit_test(hundreds_in_flight_are_right),
        cmocka_unit_test(wait_any_takes_collectives_and_messages),
        cmocka_unit_test(wait_all_ends_all),
        cmocka_unit_test(a_wait_that_ends_early_leaves_the_operation_alive),
        cmocka_unit_test(requests_may_be_waited_for_by_other_threads),
        cmocka_unit_test(a_rank_that_computes_does_not_hold_up_the_others),
        cmocka_unit_test(a_group_takes_collectives_and_messages),
        cmocka_unit_test(messages_and_collectives_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
