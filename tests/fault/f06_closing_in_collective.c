/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank leaves, by exit(0) in the middle of a collective or by closing early: the others hear ERR_PEER
 * "closed" and its number at once, not at a deadline.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#include <pthread.h>

#define SMALL ((size_t)32)
#define LARGE ((size_t)8 << 20)

#define INSIDE 0
#define GO 1
#define RETURNED 2
#define ROUNDS 3
#define VERDICT 4 /* + rank: its number */

enum end {
    END_CLOSE, /* instead of the next call */
    END_EXIT,
    END_EXIT_INSIDE /* of another thread, while the call runs */
};

struct plan {
    const char *path;
    struct deed deed;
    enum end end;
    int ranks, victim;
};

/* ---- the one that leaves ---- */

static void *exit_soon(void *arg)
{
    struct harness_shared *shared = arg;
    harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    exit(0);
}

static int leave(weft_comm_t comm, struct harness_shared *shared, const struct plan *plan,
                 struct hands *hands)
{
    pthread_t thread;
    weft_status_t status = WEFT_OK;
    if (plan->end == END_EXIT_INSIDE) {
        bool is_there = pthread_create(&thread, NULL, exit_soon, shared) == 0;
        while (status == WEFT_OK && is_there) {
            status = deed_do(comm, &plan->deed, hands, plan->ranks);
        }
        harness_wait_for(&shared->word[GO], 99, MESSAGES_WAIT_MS); /* gone by now */
        hands_close(hands);
        return -1;
    }
    for (int round = 0; round < 3 && status == WEFT_OK; round++) {
        status = deed_do(comm, &plan->deed, hands, plan->ranks);
    }
    harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    if (plan->end == END_EXIT) {
        exit(0);
    }
    job_close(plan->victim, shared, comm);
    hands_close(hands);
    return (int)status;
}

/* ---- the others ---- */

static void tell_number(int rank, struct harness_shared *shared, weft_comm_t comm)
{
    weft_error_t error;
    bool is_told = weft_comm_get_error(comm, &error) == WEFT_OK;
    atomic_store(&shared->word[VERDICT + rank], is_told ? error.verdict : 0);
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct hands hands;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    hands_open(&hands, &plan->deed);
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (rank == plan->victim) {
        return leave(comm, shared, plan, &hands);
    }
    do {
        job_calls(rank, shared);
        status = deed_do(comm, &plan->deed, &hands, plan->ranks);
        atomic_fetch_add(&shared->word[ROUNDS], status == WEFT_OK);
    } while (status == WEFT_OK);
    job_returned(rank, shared, status);
    tell_number(rank, shared, comm);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], (uint32_t)shared->ranks - 1, MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    hands_close(&hands);
    return 0;
}

/* All returned with the same verdict, not each with its own. */
static void check_numbers(struct harness_shared *shared, const struct plan *plan, const char *what)
{
    uint32_t first = 0;
    for (int rank = 0; rank < plan->ranks; rank++) {
        uint32_t number = atomic_load(&shared->word[VERDICT + rank]);
        if (rank == plan->victim) {
            continue;
        }
        first = first == 0 ? number : first;
        if (number == 0 || number != first) {
            fail_msg("%s: rank %d has verdict %u, another one %u", what, rank, number, first);
        }
    }
}

/* A close that the others have not heard may end in ERR_TIMEOUT: the one that leaves is not judged. */
static void check(struct plan plan)
{
    static const char *const ends[] = {"closes", "exits", "exits inside"};
    char deed[128], what[192];
    struct harness *harness = harness_start(plan.ranks, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    struct messages_verdict verdict = {WEFT_ERR_PEER, plan.victim, "closed", 0};
    deed_describe(&plan.deed, plan.path, deed, sizeof(deed));
    snprintf(what, sizeof(what), "%s, rank %d of %d %s", deed, plan.victim, plan.ranks,
             ends[plan.end]);
    collectives_await(harness, &shared->word[INSIDE], (uint32_t)plan.ranks, what);
    collectives_await(harness, &shared->word[ROUNDS], 3, what);
    messages_let_pass(5); /* so that calls stand, most of the time; right either way */
    verdict.since_ns = harness_now_ns();
    atomic_store(&shared->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < plan.ranks; rank++) {
        if (rank != plan.victim) {
            messages_check_verdict(harness, rank, &verdict, what);
        }
    }
    check_numbers(shared, &plan, what);
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void check_all(enum end end, size_t len, int ranks, int victim)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
            struct deed deed = {coll, coll == WEFT_BARRIER ? SMALL : len, MANNER_BLOCKING, false,
                                victim};
            check((struct plan){messages_paths[path], deed, end, ranks, victim});
        }
    }
}

static void an_early_close_is_told_as_closed(void **state)
{
    (void)state;
    check_all(END_CLOSE, SMALL, 3, 1);
    check_all(END_CLOSE, LARGE, 3, 0);
}

static void an_exit_instead_of_a_call_is_told_as_closed(void **state)
{
    (void)state;
    check_all(END_EXIT, SMALL, 3, 2);
    check_all(END_EXIT, LARGE, 2, 0);
}

static void an_exit_in_the_middle_of_a_call_is_told_as_closed(void **state)
{
    (void)state;
    check_all(END_EXIT_INSIDE, SMALL, 3, 0);
    check_all(END_EXIT_INSIDE, LARGE, 3, 2);
}

static void every_manner_of_calling_hears_it(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum manner manner = MANNER_REQUEST; manner < MANNERS; manner++) {
            struct deed deed = {WEFT_ALLREDUCE, SMALL, manner, false, 0};
            check((struct plan){messages_paths[path], deed, END_CLOSE, 3, 1});
            deed.len = LARGE;
            check((struct plan){messages_paths[path], deed, END_EXIT, 3, 2});
        }
    }
}

/* ---- another one is late ---- */

#define LATE 0 /* and before the one that leaves in the order of most plans */
#define LEAVES 2

/* Everybody gets a message of everybody. */
static weft_status_t all_to_all(weft_comm_t comm, const struct plan *plan,
                                const struct hands *hands)
{
    weft_call_t call = deed_call(&plan->deed, hands, plan->ranks);
    call.algorithm = "spread";
    return weft_collective(comm, &call, NULL);
}

static int late_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct hands hands;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    hands_open(&hands, &plan->deed);
    status = all_to_all(comm, plan, &hands); /* they know each other */
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (rank == LATE) { /* as long as it takes */
        harness_wait_reach(&shared->word[RETURNED], 1, MESSAGES_WAIT_MS);
    } else if (rank != LEAVES && status == WEFT_OK) {
        job_calls(rank, shared);
        status = all_to_all(comm, plan, &hands);
        job_returned(rank, shared, status);
        atomic_fetch_add(&shared->word[RETURNED], 1);
    } else {
        harness_wait_reach(&shared->word[INSIDE], (uint32_t)plan->ranks, MESSAGES_WAIT_MS);
    }
    job_close(rank, shared, comm);
    hands_close(&hands);
    return 0;
}

/* Its messages will never come, so there is nothing to wait for. */
static void a_close_is_told_also_while_another_rank_is_waited_for(void **state)
{
    static const weft_coll_t colls[] = {WEFT_ALLGATHER, WEFT_ALLTOALL};
    (void)state;
    for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
        struct plan plan = {.path = "tcp",
                            .deed = {colls[i], SMALL, MANNER_BLOCKING, false, 0},
                            .ranks = 3,
                            .victim = LEAVES};
        struct messages_verdict verdict = {WEFT_ERR_PEER, LEAVES, "closed", 0};
        struct harness *harness = harness_start(3, late_body, &plan);
        const char *what = weft_coll_name(colls[i]);
        messages_wait(harness, MESSAGES_WAIT_MS, what);
        verdict.since_ns = job_report(harness, LEAVES)->closing_ns;
        messages_check_verdict(harness, 1, &verdict, what);
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

/* ---- leaving when the work is done ---- */

/* Whoever has its result may leave: the others still get theirs. */
static int done_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct hands hands;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    hands_open(&hands, &plan->deed);
    messages_fill(hands.in, hands.len, 3);
    status = deed_do(comm, &plan->deed, &hands, plan->ranks);
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status), weft_error_text());
    job_close(rank, shared, comm);
    if (status == WEFT_OK && !messages_are_right(hands.out, plan->deed.len, 3)) {
        status = WEFT_ERR_PROTOCOL;
    }
    hands_close(&hands);
    return (int)status;
}

/* The root of the job stays to the end of this: others may need it to reach each other. */
static void a_last_broadcast_reaches_all_though_its_root_closes_at_once(void **state)
{
    static const size_t lens[] = {SMALL, 4096, 60000, LARGE};
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
            struct deed deed = {WEFT_BROADCAST, lens[i], MANNER_BLOCKING, false, 0};
            struct plan plan = {messages_paths[path], deed, END_CLOSE, 2, 0};
            struct harness *harness = harness_start(2, done_body, &plan);
            messages_wait(harness, MESSAGES_WAIT_MS, messages_paths[path]);
            messages_check_fine(harness, messages_paths[path]);
            harness_close(harness);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_early_close_is_told_as_closed),
        cmocka_unit_test(an_exit_instead_of_a_call_is_told_as_closed),
        cmocka_unit_test(an_exit_in_the_middle_of_a_call_is_told_as_closed),
        cmocka_unit_test(every_manner_of_calling_hears_it),
        cmocka_unit_test(a_close_is_told_also_while_another_rank_is_waited_for),
        cmocka_unit_test(a_last_broadcast_reaches_all_though_its_root_closes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
