/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing a plan runs a model, and is done once for calls that are alike, whether they name an algorithm or
 * have arrays; operations that are begun need no memory of their own from the second one on.
 */
#include "comm/comm.h"
#include "plan/model.h"
#include "unit/api/collectives.h"

#define COUNT 1000

static _Thread_local unsigned choices;

weft_status_t __real_weft_plan_choose(const struct weft_plan_facts *facts,
                                      const struct weft_plan_ask *ask, struct weft_plan *plan_p,
                                      struct weft_plan_choice *why_p);
weft_status_t __wrap_weft_plan_choose(const struct weft_plan_facts *facts,
                                      const struct weft_plan_ask *ask, struct weft_plan *plan_p,
                                      struct weft_plan_choice *why_p);
weft_status_t __wrap_weft_plan_choose(const struct weft_plan_facts *facts,
                                      const struct weft_plan_ask *ask, struct weft_plan *plan_p,
                                      struct weft_plan_choice *why_p)
{
    choices++;
    return __real_weft_plan_choose(facts, ask, plan_p, why_p);
}

static _Thread_local unsigned mallocs;

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_malloc(size_t len)
{
    mallocs++;
    return __real_malloc(len);
}

static _Thread_local int32_t in[COUNT * 4], out[COUNT * 4];

static weft_call_t call_of(weft_coll_t coll, const char *algorithm)
{
    weft_call_t call = WEFT_CALL_INIT;
    call.coll = coll;
    call.dtype = WEFT_I32;
    call.in = in;
    call.out = out;
    call.count = COUNT;
    call.algorithm = algorithm;
    return call;
}

static int check_chosen_once(weft_comm_t comm, const weft_call_t *call, int rank,
                             struct harness_shared *shared)
{
    choices = 0;
    for (int i = 0; i < 5; i++) {
        EXPECT_OK(weft_collective(comm, call, NULL));
    }
    if (choices > 1) {
        return harness_say(shared, rank, FAILED, "%s by %s was chosen %u times",
                           weft_coll_name(call->coll),
                           call->algorithm != NULL ? call->algorithm : "the best", choices);
    }
    return 0;
}

static int run_alike(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t counts[3] = {COUNT, 10, 0};
    size_t in_counts[3], out_counts[3];
    static const char *const names[] = {NULL, "ring", "direct"};
    for (size_t i = 0; i < LENS(names); i++) {
        weft_call_t call = call_of(WEFT_ALLREDUCE, names[i]);
        EXPECT_PASS(check_chosen_once(comm, &call, rank, shared));
    }
    for (int q = 0; q < 3; q++) {
        in_counts[q] = counts[(rank + q) % 3];
        out_counts[q] = counts[(rank + q) % 3];
    }
    for (int i = 0; i < 2; i++) {
        weft_call_t call = call_of(WEFT_ALLTOALL, i == 0 ? NULL : "pairwise");
        call.in_counts = in_counts;
        call.out_counts = out_counts;
        EXPECT_PASS(check_chosen_once(comm, &call, rank, shared));
        call = call_of(WEFT_ALLGATHER, i == 0 ? NULL : "ring");
        call.out_counts = counts;
        EXPECT_PASS(check_chosen_once(comm, &call, rank, shared));
    }
    return 0;
}

static void calls_that_are_alike_choose_once(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_alike);
}

/* Another name is another choice, also between the same. */
static int run_by_turns(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_call_t ring = call_of(WEFT_ALLREDUCE, "ring"), direct = call_of(WEFT_ALLREDUCE, "direct");
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(weft_collective(comm, &ring, NULL));
        EXPECT(strcmp(weft_comm_algorithm(comm), "ring") == 0);
        EXPECT_OK(weft_collective(comm, &direct, NULL));
        EXPECT(strcmp(weft_comm_algorithm(comm), "direct") == 0);
    }
    direct.algorithm = "allreduce:direct, and words that are longer than any name";
    EXPECT(weft_collective(comm, &direct, NULL) == WEFT_ERR_INVALID);
    return 0;
}

static void each_name_has_its_own_plan(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_by_turns);
}

/* What a start needs is there after the first ones; what comes in later may be a message that nobody waits
 * for yet. */
static int check_starts(weft_comm_t comm, const weft_call_t *call, int rank,
                        struct harness_shared *shared)
{
    weft_op_t op = NULL;
    EXPECT_OK(weft_op_create(comm, call, &op));
    for (int i = 0; i < 8; i++) {
        choices = mallocs = 0;
        EXPECT_OK(weft_op_start(op));
        if (i > 0 && (choices > 0 || mallocs > 0)) {
            return harness_say(shared, rank, FAILED, "start %d of %s: %u choices, %u mallocs", i,
                               weft_coll_name(call->coll), choices, mallocs);
        }
        EXPECT_OK(weft_op_wait(op, WAIT_MS));
    }
    EXPECT_OK(weft_op_destroy(op));
    return 0;
}

static int run_ops(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t counts[3] = {COUNT, 10, 0};
    weft_call_t call = call_of(WEFT_ALLREDUCE, NULL);
    EXPECT_PASS(check_starts(comm, &call, rank, shared));
    call.algorithm = "ring";
    EXPECT_PASS(check_starts(comm, &call, rank, shared));
    call = call_of(WEFT_ALLGATHER, NULL);
    call.out_counts = counts;
    EXPECT_PASS(check_starts(comm, &call, rank, shared));
    return 0;
}

static void an_operation_is_started_again_without_memory_or_choice(void **state)
{
    (void)state;
    run_ways(SHM_PROCESSES, 3, run_ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_are_alike_choose_once),
        cmocka_unit_test(each_name_has_its_own_plan),
        cmocka_unit_test(an_operation_is_started_again_without_memory_or_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
