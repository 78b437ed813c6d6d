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

#include "fault/kill.h"

#define SMALL ((size_t)32)
#define MIDDLE ((size_t)96 << 10)
#define LARGE ((size_t)16 << 20)

static void check(const char *path, struct deed deed, int ranks, int victim, unsigned pause_us)
{
    kill_check((struct kill_plan){
        .path = path, .deed = deed, .ranks = ranks, .victim = victim, .pause_us = pause_us});
}

static void check_every(size_t len, int ranks, int victim, int root, unsigned pause_us)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
            if (coll == WEFT_BARRIER && len != SMALL) {
                continue;
            }
            struct deed deed = {coll, len, MANNER_BLOCKING, false, root};
            check(messages_paths[path], deed, ranks, victim, pause_us);
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
            kill_check((struct kill_plan){.path = messages_paths[path],
                                          .deed = deed,
                                          .ranks = 3,
                                          .victim = 1,
                                          .is_absent = true,
                                          .pause_us = 20000});
        }
    }
}

static void every_manner_of_calling_hears_of_it(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum manner manner = MANNER_REQUEST; manner < MANNERS; manner++) {
            struct deed deed = {WEFT_ALLREDUCE, SMALL, manner, false, 0};
            check(messages_paths[path], deed, 3, 1, 400);
            deed.coll = WEFT_ALLTOALL;
            deed.len = LARGE;
            check(messages_paths[path], deed, 3, 2, 4000);
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
            check("shm", deed, 3, 1, pause_us);
        }
    }
}

/* With more ranks than cores somebody else may hold the core when it happens. */
static void a_crowd_hears_of_it(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct deed deed = {WEFT_ALLREDUCE, SMALL, MANNER_BLOCKING, false, 0};
        check(messages_paths[path], deed, 8, 5, 2000);
        deed.len = MIDDLE;
        check(messages_paths[path], deed, 8, 7, 2000);
        deed.len = LARGE / 4;
        check(messages_paths[path], deed, 7, 0, 2000);
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
    atomic_fetch_add(&shared->word[KILL_INSIDE], 1);
    if (rank == 3) {
        harness_wait_for(&shared->word[KILL_INSIDE], 99, MESSAGES_WAIT_MS); /* killed here */
        return -1;
    }
    if (rank < 2) { /* until rank 2 has heard of it, and a hundred calls more */
        while (status == WEFT_OK && (rounds < 100 || in != 0)) {
            in = rank == 0 && atomic_load(&shared->word[KILL_RETURNED]) != 0 ? 0 : 1;
            status = weft_broadcast(parting.half, &in, &in, 1, WEFT_I32, 0, NULL);
            rounds += in == 0;
        }
    } else {
        job_calls(rank, shared);
        status = weft_allreduce(parting.half, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL);
        job_returned(rank, shared, status);
        atomic_store(&shared->word[KILL_RETURNED], 1);
    }
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status), weft_error_text());
    atomic_fetch_add(&shared->word[KILL_DEAD], 1);
    harness_wait_for(&shared->word[KILL_DEAD], 3, MESSAGES_WAIT_MS);
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
        collectives_await(harness, &shared->word[KILL_INSIDE], 4, messages_paths[path]);
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
