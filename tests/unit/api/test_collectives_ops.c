/* SPDX-License-Identifier: Apache-2.0 */
/* Persistent operations: made once, started many times, with the data of that moment. */
#include "unit/api/collectives_flight.h"

#define MOST (IS_THREAD_SANITIZED ? 3000 : 60000)

static int make_op(struct flight *flight, uint64_t seed, weft_comm_t comm, int rank,
                   struct harness_shared *shared)
{
    int ranks = 0;
    EXPECT_OK(weft_comm_ranks(comm, &ranks));
    flight_draw(flight, seed, MOST, rank, ranks);
    flight->trial.desk = &flight->desk;
    trial_prepare(&flight->trial);
    EXPECT_OK(weft_op_create(comm, &flight->trial.call, &flight->op));
    EXPECT(flight->op != NULL);
    return 0;
}

/* The inputs again, and nothing of the result before. */
static void repaint(struct flight *flight)
{
    trial_paint(&flight->trial, flight->desk.in, flight->desk.out, false);
}

static int end_op(struct flight *flight, int rank, struct harness_shared *shared)
{
    EXPECT_OK(weft_op_destroy(flight->op));
    desk_close(&flight->desk);
    return 0;
}

/* ---- started again and again ---- */

static int run_repeats(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint64_t seed = 0; seed < 24; seed++) {
        struct flight flight = {0};
        EXPECT_PASS(make_op(&flight, seed, comm, rank, shared));
        EXPECT_OK(weft_op_wait(flight.op, 0)); /* nothing runs: nothing to wait for */
        for (int round = 0; round < 8; round++) {
            repaint(&flight);
            EXPECT_OK(weft_op_start(flight.op));
            EXPECT_PASS(
                trial_expect_ok(&flight.trial, weft_op_wait(flight.op, WAIT_MS), rank, shared));
            EXPECT_PASS(trial_check(&flight.trial, rank, shared));
        }
        EXPECT_PASS(end_op(&flight, rank, shared));
    }
    return 0;
}

static void an_operation_may_be_started_many_times(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, run_repeats);
    run_ways(EVERY_WAY, 3, run_repeats);
    run_ways(PROCESSES, 8, run_repeats);
    run_ways(SHM_PROCESSES, 1, run_repeats);
}

/* The data of the moment of the start counts, not that of the making. */
static int run_changing(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { COUNT = 1000 };
    static _Thread_local int64_t in[COUNT], out[COUNT];
    weft_call_t call = WEFT_CALL_INIT;
    weft_op_t op = NULL;
    int ranks = shared->ranks;
    call.coll = WEFT_ALLREDUCE;
    call.dtype = WEFT_I64;
    call.in = in;
    call.out = out;
    call.count = COUNT;
    EXPECT_OK(weft_op_create(comm, &call, &op));
    memset(&call, 0x5a, sizeof(call)); /* the description was only lent for the making */
    for (int64_t round = 0; round < 200; round++) {
        for (int64_t i = 0; i < COUNT; i++) {
            in[i] = round * 1000 + i + rank;
        }
        EXPECT_OK(weft_op_start(op));
        EXPECT_OK(weft_op_wait(op, WAIT_MS));
        for (int64_t i = 0; i < COUNT; i++) {
            EXPECT(out[i] == ranks * (round * 1000 + i) + ranks * (ranks - 1) / 2);
        }
    }
    EXPECT_OK(weft_op_destroy(op));
    return 0;
}

static void each_start_takes_the_data_of_its_moment(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 4, run_changing);
}

/* The name of its algorithm too. */
static int run_named(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    char name[] = "ring";
    weft_call_t call = WEFT_CALL_INIT;
    weft_op_t op = NULL;
    int32_t in = rank, out = 0;
    call.coll = WEFT_ALLREDUCE;
    call.dtype = WEFT_I32;
    call.in = &in;
    call.out = &out;
    call.count = 1;
    call.algorithm = name;
    EXPECT_OK(weft_op_create(comm, &call, &op));
    memset(name, '?', sizeof(name) - 1);
    for (int round = 0; round < 3; round++) {
        out = 0;
        EXPECT_OK(weft_op_start(op));
        EXPECT_OK(weft_op_wait(op, WAIT_MS));
        EXPECT(out == shared->ranks * (shared->ranks - 1) / 2);
    }
    EXPECT_OK(weft_op_destroy(op));
    return 0;
}

static void the_name_of_an_algorithm_is_lent_for_the_making_only(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_named);
}

/* ---- several at once, and beside calls ---- */

static int run_several(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { COUNT = 5 };
    struct flight ops[COUNT] = {0}, calls[2];
    for (int i = 0; i < COUNT; i++) {
        EXPECT_PASS(make_op(&ops[i], 100 + (uint64_t)i, comm, rank, shared));
    }
    for (uint64_t round = 0; round < 8; round++) {
        for (int i = 0; i < COUNT; i++) {
            repaint(&ops[i]);
            EXPECT_OK(weft_op_start(ops[i].op));
            if (i % 3 == 0) { /* beside ops 0 and 3 */
                flight_draw(&calls[i / 3], 700 + round * 2 + (uint64_t)i, 500, rank, shared->ranks);
                EXPECT_PASS(flight_begin(&calls[i / 3], comm, rank, shared));
            }
        }
        EXPECT_PASS(flight_end_all(calls, 2, values_mix((uint64_t)rank + round), rank, shared));
        for (int k = 0; k < COUNT; k++) {
            struct flight *op = &ops[(k + rank + (int)round) % COUNT];
            EXPECT_PASS(trial_expect_ok(&op->trial, weft_op_wait(op->op, WAIT_MS), rank, shared));
            EXPECT_PASS(trial_check(&op->trial, rank, shared));
        }
    }
    for (int i = 0; i < COUNT; i++) {
        EXPECT_PASS(end_op(&ops[i], rank, shared));
    }
    return 0;
}

static void several_operations_and_calls_may_be_in_flight(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_several);
}

/* One rank starts what the others call: it is the same call. */
static int run_beside(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint64_t seed = 40; seed < 60; seed++) {
        struct flight flight = {0};
        EXPECT_PASS(make_op(&flight, seed, comm, rank, shared));
        repaint(&flight);
        if ((uint64_t)rank == seed % 3) {
            EXPECT_OK(weft_op_start(flight.op));
            EXPECT_PASS(
                trial_expect_ok(&flight.trial, weft_op_wait(flight.op, WAIT_MS), rank, shared));
        } else {
            EXPECT_PASS(trial_expect_ok(&flight.trial, trial_begin(&flight.trial, comm, NULL), rank,
                                        shared));
        }
        EXPECT_PASS(trial_check(&flight.trial, rank, shared));
        EXPECT_PASS(end_op(&flight, rank, shared));
    }
    return 0;
}

static void a_start_is_the_same_as_a_call(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_beside);
}

/* ---- what is refused ---- */

/* It runs until the last rank comes; meanwhile it can neither be started nor destroyed. */
static int run_busy(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_call_t call = WEFT_CALL_INIT;
    weft_op_t op = NULL;
    int32_t in = rank + 1, out = 0;
    call.coll = WEFT_ALLREDUCE;
    call.dtype = WEFT_I32;
    call.in = &in;
    call.out = &out;
    call.count = 1;
    EXPECT_OK(weft_op_create(comm, &call, &op));
    EXPECT_OK(weft_barrier(comm, NULL)); /* the first one of a communicator waits for everybody */
    for (uint32_t round = 1; round <= 5; round++) {
        if (rank == 0) {
            EXPECT(harness_wait_reach(&shared->word[0], round * (uint32_t)(shared->ranks - 1),
                                      WAIT_MS));
        }
        out = 0;
        EXPECT_OK(weft_op_start(op));
        if (rank != 0) {
            EXPECT(weft_op_start(op) == WEFT_ERR_BUSY);
            EXPECT(strlen(weft_error_text()) > 0);
            EXPECT(weft_op_wait(op, 2) == WEFT_ERR_TIMEOUT);
            EXPECT(weft_op_destroy(op) == WEFT_ERR_BUSY);
            EXPECT_OK(weft_comm_status(comm));
            atomic_fetch_add(&shared->word[0], 1);
        }
        EXPECT_OK(weft_op_wait(op, WAIT_MS));
        EXPECT_OK(weft_op_wait(op, WAIT_MS)); /* it is done already */
        EXPECT(out == shared->ranks * (shared->ranks + 1) / 2);
    }
    EXPECT_OK(weft_op_destroy(op));
    return 0;
}

static void an_operation_that_runs_is_busy(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_busy);
}

/* It runs while its communicator ends, and nobody waits for it. */
static int run_ended(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_call_t call = WEFT_CALL_INIT;
    weft_comm_t closed = NULL, failed = NULL;
    weft_op_t cut = NULL, late = NULL, idle = NULL;
    EXPECT_OK(weft_comm_duplicate(comm, &closed));
    EXPECT_OK(weft_comm_duplicate(comm, &failed));
    EXPECT_OK(weft_barrier(closed, NULL));
    EXPECT_OK(weft_barrier(failed, NULL));
    EXPECT_OK(weft_op_create(closed, &call, &idle));
    EXPECT_OK(weft_op_create(closed, &call, &cut));
    EXPECT_OK(weft_op_create(failed, &call, &late));
    EXPECT_OK(weft_control_barrier(comm)); /* or the abort would meet the barriers */
    if (rank == 0) {
        EXPECT_OK(weft_op_start(cut));
        EXPECT_OK(weft_op_start(late));
        EXPECT(weft_op_destroy(late) == WEFT_ERR_BUSY);
        EXPECT_OK(weft_abort(failed, "enough"));
    }
    EXPECT_OK(weft_op_destroy(late));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(failed));
    EXPECT_OK(weft_comm_close(closed));
    EXPECT(weft_op_start(cut) == WEFT_ERR_INVALID);
    EXPECT(strstr(weft_error_text(), "closed") != NULL);
    EXPECT(weft_op_wait(cut, 0) == WEFT_ERR_INVALID);
    EXPECT(strstr(weft_error_text(), "weft_op_wait: ") != NULL);
    EXPECT_OK(weft_op_destroy(cut));
    EXPECT_OK(weft_op_destroy(idle));
    return 0;
}

static void an_operation_ends_with_its_communicator(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_ended);
}

static int run_refused(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_call_t call = WEFT_CALL_INIT;
    weft_op_t op = NULL;
    int32_t in = 1, out = 0;
    EXPECT_OK(weft_op_destroy(NULL));
    EXPECT(weft_op_start(NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_op_create(comm, NULL, &op) == WEFT_ERR_INVALID);
    EXPECT(weft_op_create(NULL, &call, &op) == WEFT_ERR_INVALID);
    EXPECT(weft_op_create(comm, &call, NULL) == WEFT_ERR_INVALID);
    call.size = 8;
    EXPECT(weft_op_create(comm, &call, &op) == WEFT_ERR_INVALID);
    EXPECT(strstr(weft_error_text(), "WEFT_CALL_INIT") != NULL);
    call.size = sizeof(call);
    call.coll = WEFT_ALLREDUCE;
    call.dtype = WEFT_I32;
    call.count = 1;
    EXPECT(weft_op_create(comm, &call, &op) == WEFT_ERR_INVALID); /* no buffers */
    call.in = &in;
    call.out = &out;
    call.op = WEFT_SCALED;
    EXPECT(weft_op_create(comm, &call, &op) == WEFT_ERR_INVALID); /* integers are not scaled */
    EXPECT(op == NULL);
    call.op = WEFT_SUM;
    EXPECT_OK(weft_op_create(comm, &call, &op)); /* making it is local: nobody else does */
    EXPECT_OK(weft_op_destroy(op));
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

static void operations_that_cannot_be_are_refused(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_refused);
}

/* ---- a start that failed ---- */

static int run_failed(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct flight flight = {0};
    weft_comm_t other = NULL;
    EXPECT_OK(weft_comm_duplicate(comm, &other));
    EXPECT_PASS(make_op(&flight, 1, other, rank, shared));
    EXPECT_OK(weft_abort(other, "enough"));
    EXPECT(weft_op_start(flight.op) == WEFT_ERR_ABORTED);
    EXPECT(weft_op_wait(flight.op, WAIT_MS) == WEFT_ERR_ABORTED);
    EXPECT_PASS(end_op(&flight, rank, shared));
    EXPECT_OK(weft_comm_close(other));
    return 0;
}

static void who_waits_for_what_did_not_start_hears_so(void **state)
{
    (void)state;
    run_ways(SHM_PROCESSES, 1, run_failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_may_be_started_many_times),
        cmocka_unit_test(each_start_takes_the_data_of_its_moment),
        cmocka_unit_test(the_name_of_an_algorithm_is_lent_for_the_making_only),
        cmocka_unit_test(several_operations_and_calls_may_be_in_flight),
        cmocka_unit_test(a_start_is_the_same_as_a_call),
        cmocka_unit_test(an_operation_that_runs_is_busy),
        cmocka_unit_test(an_operation_ends_with_its_communicator),
        cmocka_unit_test(operations_that_cannot_be_are_refused),
        cmocka_unit_test(who_waits_for_what_did_not_start_hears_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
