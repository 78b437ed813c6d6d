/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank is killed inside a collective: every survivor returns ERR_PEER within a second and names the dead
 * and the operation, whatever the collective, the size, the path, the way the call was made and the place
 * of the dead in it; closing takes no longer, and nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#define SMALL ((size_t)32)
#define MIDDLE ((size_t)96 << 10)
#define LARGE ((size_t)16 << 20)

#define ROUNDS 0   /* calls that ended well, of all ranks */
#define RETURNED 1 /* how many survivors know: only then they close, for closing is news too */
#define DEAD 2     /* the victim has ended */
#define INSIDE 3   /* how many are about to call */

struct plan {
    const char *path;
    struct deed deed;
    int ranks, victim;
    bool is_absent;    /* the victim never calls; else it dies somewhere in the middle */
    unsigned pause_us; /* of the kill, so that it falls into another moment */
};

/* ---- ranks ---- */

static int be_victim(weft_comm_t comm, struct harness_shared *shared, const struct plan *plan,
                     const struct hands *hands)
{
    weft_status_t status = WEFT_OK;
    while (status == WEFT_OK && !plan->is_absent) {
        status = deed_do(comm, &plan->deed, hands, plan->ranks);
    }
    harness_wait_for(&shared->word[DEAD], 1, MESSAGES_WAIT_MS); /* killed here, or before */
    return harness_say(shared, plan->victim, -1, "it lives: %s", weft_error_text());
}

/* The communicator has ended, for good. */
static bool is_over(weft_comm_t comm, weft_status_t status)
{
    weft_comm_t child = NULL;
    int32_t in = 1, out = 0;
    return messages_final_status(comm) == status &&
           weft_allreduce(comm, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL) == status &&
           weft_barrier(comm, NULL) == status && weft_comm_duplicate(comm, &child) == status;
}

static int body(int number, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct hands hands;
    weft_comm_t comm;
    weft_status_t status = messages_join(number, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, number, -1, "could not start: %s", weft_error_text());
    }
    hands_open(&hands, &plan->deed);
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (number == plan->victim) {
        return be_victim(comm, shared, plan, &hands);
    }
    do {
        job_calls(number, shared);
        status = deed_do(comm, &plan->deed, &hands, plan->ranks);
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    } while (status == WEFT_OK);
    job_returned(number, shared, status);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], (uint32_t)shared->ranks - 1, MESSAGES_WAIT_MS);
    if (!is_over(comm, status)) {
        harness_say(shared, number, 0, "%s, but then: %s", weft_status_name(status),
                    weft_error_text());
        job_board(shared)->report[number].status = WEFT_ERR_BUSY;
    }
    job_close(number, shared, comm);
    hands_close(&hands);
    return (int)status;
}

/* ---- the test ---- */

static void wait_for_the_moment(struct harness *harness, const struct plan *plan, const char *what)
{
    struct harness_shared *shared = harness_shared(harness);
    uint32_t rounds = plan->is_absent ? 0 : (uint32_t)plan->ranks * 2;
    uint64_t until_ns;
    collectives_await(harness, &shared->word[INSIDE], (uint32_t)plan->ranks, what);
    collectives_await(harness, &shared->word[ROUNDS], rounds, what);
    until_ns = harness_now_ns() + plan->pause_us * UINT64_C(1000);
    harness_wait_until(messages_is_past, &until_ns, 1000);
}

static void check(struct plan plan)
{
    char deed[128], what[192];
    struct harness *harness = harness_start(plan.ranks, body, &plan);
    /* In a group a barrier follows the call, and may be what stands. */
    const char *word = plan.deed.manner == MANNER_GROUP ? " #" : weft_coll_name(plan.deed.coll);
    struct messages_verdict verdict = {WEFT_ERR_PEER, plan.victim, word, 0};
    deed_describe(&plan.deed, plan.path, deed, sizeof(deed));
    snprintf(what, sizeof(what), "%s, rank %d of %d %s", deed, plan.victim, plan.ranks,
             plan.is_absent ? "outside" : "inside");
    wait_for_the_moment(harness, &plan, what);
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
    assert_int_equal(count_dev_shm(), 0);
}

static void check_every(size_t len, int ranks, int victim, int root, unsigned pause_us)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
            if (coll == WEFT_BARRIER && len != SMALL) {
                continue;
            }
            struct deed deed = {coll, len, MANNER_BLOCKING, false, root};
            check((struct plan){messages_paths[path], deed, ranks, victim, false, pause_us});
        }
    }
}

static void every_small_collective_hears_of_it(void **state)
{
    (void)state;
    check_every(SMALL, 4, 2, 0, 300);
    check_every(SMALL, 2, 1, 0, 1100);
}

static void every_middle_collective_hears_of_it(void **state)
{
    (void)state;
    check_every(MIDDLE, 3, 1, 0, 700);
}

static void every_large_collective_ends_in_the_middle(void **state)
{
    (void)state;
    check_every(LARGE, 3, 2, 1, 3000);
    check_every(LARGE, 2, 0, 1, 9000);
}

static void the_root_may_be_the_one_that_dies(void **state)
{
    (void)state;
    check_every(SMALL, 3, 0, 0, 500);
    check_every(LARGE, 4, 0, 0, 5000);
}

/* It never came: the others wait inside their first call. */
static void one_that_never_came_may_die_too(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
            struct deed deed = {coll, coll % 2 == 0 ? SMALL : LARGE, MANNER_BLOCKING, false, 1};
            check((struct plan){messages_paths[path], deed, 3, 1, true, 20000});
        }
    }
}

static void every_manner_of_calling_hears_of_it(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum manner manner = MANNER_REQUEST; manner < MANNERS; manner++) {
            struct deed deed = {WEFT_ALLREDUCE, SMALL, manner, false, 0};
            check((struct plan){messages_paths[path], deed, 3, 1, false, 400});
            deed.coll = WEFT_ALLTOALL;
            deed.len = LARGE;
            check((struct plan){messages_paths[path], deed, 3, 2, false, 4000});
        }
    }
}

/* Survivors may be reading the memory of the dead at that moment, or it theirs. */
static void shared_memory_of_the_dead_harms_nobody(void **state)
{
    static const weft_coll_t colls[] = {WEFT_ALLREDUCE, WEFT_REDUCE_SCATTER, WEFT_ALLGATHER,
                                        WEFT_BROADCAST, WEFT_ALLTOALL};
    (void)state;
    for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
        for (unsigned pause_us = 0; pause_us < 8000; pause_us += 3700) {
            struct deed deed = {colls[i], LARGE, MANNER_BLOCKING, true, 1};
            check((struct plan){"shm", deed, 3, 1, false, pause_us});
        }
    }
}

/* With more ranks than cores somebody else may hold the core when it happens. */
static void a_crowd_hears_of_it(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct deed deed = {WEFT_ALLREDUCE, SMALL, MANNER_BLOCKING, false, 0};
        check((struct plan){messages_paths[path], deed, 8, 5, false, 2000});
        deed.len = MIDDLE;
        check((struct plan){messages_paths[path], deed, 8, 7, false, 2000});
        deed.len = LARGE / 4;
        check((struct plan){messages_paths[path], deed, 7, 0, false, 2000});
    }
}

/* ---- who is in no communicator with the dead ---- */

struct parting {
    const char *path;
    weft_comm_t job, half;
};

/* Ranks 0 and 1 are one half, 2 and 3 the other; 3 dies. The first half goes on by itself. */
static int half_body(int rank, struct harness_shared *shared, void *arg)
{
    struct parting parting = {.path = arg};
    int32_t in = 1, out = 0;
    int rounds = 0;
    weft_status_t status =
        messages_join(rank, shared, parting.path, MESSAGES_TIMEOUT_MS, &parting.job);
    status =
        status == WEFT_OK ? weft_comm_split(parting.job, rank / 2, rank, &parting.half) : status;
    status = status == WEFT_OK ? weft_barrier(parting.half, NULL) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (rank == 3) {
        harness_wait_for(&shared->word[INSIDE], 99, MESSAGES_WAIT_MS); /* killed here */
        return -1;
    }
    if (rank < 2) { /* until rank 2 has heard of it, and a hundred calls more */
        while (status == WEFT_OK && (rounds < 100 || in != 0)) {
            in = rank == 0 && atomic_load(&shared->word[RETURNED]) != 0 ? 0 : 1;
            status = weft_broadcast(parting.half, &in, &in, 1, WEFT_I32, 0, NULL);
            rounds += in == 0;
        }
    } else {
        job_calls(rank, shared);
        status = weft_allreduce(parting.half, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL);
        job_returned(rank, shared, status);
        atomic_store(&shared->word[RETURNED], 1);
    }
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status), weft_error_text());
    atomic_fetch_add(&shared->word[DEAD], 1);
    harness_wait_for(&shared->word[DEAD], 3, MESSAGES_WAIT_MS);
    weft_comm_close(parting.half);
    weft_comm_close(parting.job);
    return (int)status;
}

static void a_communicator_without_the_dead_goes_on(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct harness *harness = harness_start(4, half_body, (void *)messages_paths[path]);
        struct harness_shared *shared = harness_shared(harness);
        collectives_await(harness, &shared->word[INSIDE], 4, messages_paths[path]);
        assert_harness(harness, harness_kill(harness, 3, SIGKILL));
        messages_wait(harness, MESSAGES_WAIT_MS, messages_paths[path]);
        for (int rank = 0; rank < 3; rank++) {
            const struct harness_result *result = harness_result(harness, rank);
            if (result->status != (rank < 2 ? (int)WEFT_OK : (int)WEFT_ERR_PEER)) {
                fail_msg("over %s: rank %d: %s", messages_paths[path], rank, result->text);
            }
        }
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_collective_hears_of_it),
        cmocka_unit_test(every_middle_collective_hears_of_it),
        cmocka_unit_test(every_large_collective_ends_in_the_middle),
        cmocka_unit_test(the_root_may_be_the_one_that_dies),
        cmocka_unit_test(one_that_never_came_may_die_too),
        cmocka_unit_test(every_manner_of_calling_hears_of_it),
        cmocka_unit_test(shared_memory_of_the_dead_harms_nobody),
        cmocka_unit_test(a_crowd_hears_of_it),
        cmocka_unit_test(a_communicator_without_the_dead_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
