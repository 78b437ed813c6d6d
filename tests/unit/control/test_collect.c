/* SPDX-License-Identifier: Apache-2.0 */
/* Barrier, allgather and broadcast with every length, root and order of arrival. */
#include "unit/comm/comm_support.h"

static const size_t lens[] = {0,    1,    2,    3,    4,    7,     8,     15,    16,    31,
                              63,   64,   65,   127,  255,  256,   1000,  4047,  4048,  4095,
                              4096, 4097, 8191, 8192, 9999, 16384, 32767, 32768, 65535, 65536};
enum { LENS = sizeof(lens) / sizeof(lens[0]) };

static int every_length(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (size_t i = 0; i < LENS; i++) {
        int root = (int)(i % (size_t)shared->ranks);
        EXPECT_PASS(check_allgather(comm, rank, shared->ranks, lens[i], i, rank, shared));
        EXPECT_PASS(check_broadcast(comm, rank, root, lens[i], i, rank, shared));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void allgather_and_broadcast_carry_every_length(void **state)
{
    (void)state;
    run_processes(4, every_length, NULL);
    run_processes(1, every_length, NULL);
}

static void allgather_and_broadcast_carry_every_length_over_a_deep_tree(void **state)
{
    (void)state;
    setenv("WEFT_TREE_DEGREE", "2", 1);
    run_processes(7, every_length, NULL);
    unsetenv("WEFT_TREE_DEGREE");
}

/* The receive buffer may be the send buffer's neighbour, or the send buffer itself lie in it. */
static int in_place(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    uint8_t all[8 * 32];
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    fill_bytes((uint64_t)rank, all + (size_t)rank * 32, 32);
    EXPECT_OK(weft_control_allgather(comm, all + (size_t)rank * 32, 32, all));
    for (int r = 0; r < shared->ranks; r++) {
        EXPECT(are_bytes((uint64_t)r, all + (size_t)r * 32, 32));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void allgather_works_in_place(void **state)
{
    (void)state;
    run_processes(5, in_place, NULL);
}

static int many_barriers(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (int i = 0; i < 50; i++) {
        EXPECT_PASS(check_barrier(comm, shared->ranks, &shared->word[0], rank, shared));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void nobody_passes_a_barrier_before_the_last_has_come(void **state)
{
    (void)state;
    run_processes(5, many_barriers, NULL);
    run_threads(5, many_barriers, NULL);
}

/* One rank is late to every call: the others wait for it, whoever it is. */
static int one_is_late(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (int late = 0; late < shared->ranks; late++) {
        uint32_t passed;
        if (rank == late) {
            uint64_t until_ns = harness_now_ns() + 3000000;
            while (harness_now_ns() < until_ns) {
            }
            passed = atomic_load(&shared->word[2]);
            EXPECT(passed == (uint32_t)(late * shared->ranks)); /* they are all waiting for me */
        }
        EXPECT_PASS(check_allgather(comm, rank, shared->ranks, 10, (uint64_t)late, rank, shared));
        atomic_fetch_add(&shared->word[2], 1);
        EXPECT_OK(weft_control_barrier(comm));
    }
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void everybody_waits_for_the_last_to_contribute(void **state)
{
    (void)state;
    run_processes(4, one_is_late, NULL);
}

/* ---- deadlines and mistakes ---- */

static int one_never_calls(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    weft_status_t status;
    (void)arg;
    config.timeout_ms = 200;
    if (rank == 0) {
        EXPECT_OK(weft_id_create(&config, job_ids(shared)));
        atomic_store(&shared->word[ID_WORD], 1);
    }
    EXPECT(harness_wait_for(&shared->word[ID_WORD], 1, DEADLINE_MS));
    EXPECT_OK(weft_comm_create(job_ids(shared), rank, shared->ranks, &config, &comm));
    if (rank == 2) {
        EXPECT(harness_wait_for(&shared->word[0], (uint32_t)shared->ranks - 1, DEADLINE_MS));
    } else {
        uint64_t begin_ns = harness_now_ns();
        status = weft_control_barrier(comm);
        EXPECT(status == WEFT_ERR_TIMEOUT);
        EXPECT(strstr(weft_error_text(), "absent: rank 2 (pid ") != NULL);
        EXPECT(harness_now_ns() - begin_ns >= UINT64_C(190) * 1000000);
        EXPECT(weft_comm_status(comm) == WEFT_ERR_TIMEOUT); /* it has ended */
        EXPECT(weft_control_barrier(comm) == WEFT_ERR_TIMEOUT);
        atomic_fetch_add(&shared->word[0], 1);
    }
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_call_that_one_rank_never_makes_times_out_and_names_it(void **state)
{
    (void)state;
    run_processes(4, one_never_calls, NULL);
}

/* One waits for a message of the other, which waits for it in a barrier: the deadline was the message's. */
static int each_waits_for_the_other(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    weft_error_t error;
    weft_status_t status;
    uint8_t byte = 0;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_set_timeout(comm, rank == 0 ? DEADLINE_MS : 300));
    status = rank == 0 ? weft_control_barrier(comm) : weft_recv(comm, &byte, 1, 0, 7, NULL, NULL);
    EXPECT(status == WEFT_ERR_TIMEOUT);
    EXPECT(strstr(weft_error_text(), "receive of up to 1 byte") != NULL);
    EXPECT_OK(weft_comm_get_error(comm, &error));
    EXPECT(error.rank == 0);
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void who_waits_elsewhere_is_named_for_what_does_not_come(void **state)
{
    (void)state;
    run_processes(2, each_waits_for_the_other, NULL);
}

/* Who makes another call, and which. The root of the tree makes it after it has heard the others. */
struct odd_call {
    int rank, way;
};

static int calls_differ(int rank, struct harness_shared *shared, void *arg)
{
    static const char *const words[] = {"barrier #1", "allgather #1 of 9 B",
                                        "broadcast #1 of 8 B from rank 1"};
    const struct odd_call *odd = arg;
    weft_comm_t comm = NULL;
    weft_status_t status;
    uint8_t data[64] = {0}, all[64 * 8];
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    atomic_fetch_add(&shared->word[1], 1);
    if (rank == 0 && odd->rank == 0) {
        uint64_t until_ns;
        EXPECT(harness_wait_reach(&shared->word[1], (uint32_t)shared->ranks, DEADLINE_MS));
        until_ns = harness_now_ns() + 20000000;
        while (harness_now_ns() < until_ns) {
        }
    }
    if (rank != odd->rank) {
        status = weft_control_allgather(comm, data, 8, all);
    } else if (odd->way == 0) {
        status = weft_control_barrier(comm);
    } else if (odd->way == 1) {
        status = weft_control_allgather(comm, data, 9, all);
    } else {
        status = weft_control_broadcast(comm, data, 8, 1);
    }
    EXPECT(status == WEFT_ERR_MISMATCH);
    EXPECT(strstr(weft_error_text(), "allgather #1 of 8 B") != NULL);
    EXPECT(strstr(weft_error_text(), words[odd->way]) != NULL);
    EXPECT(weft_comm_status(comm) == WEFT_ERR_MISMATCH);
    atomic_fetch_add(&shared->word[0], 1);
    EXPECT(harness_wait_reach(&shared->word[0], (uint32_t)shared->ranks, DEADLINE_MS));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void different_calls_end_in_a_mismatch_that_names_both(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        for (int rank = 0; rank < 4; rank += 3) {
            struct odd_call odd = {.rank = rank, .way = way};
            run_processes(4, calls_differ, &odd);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allgather_and_broadcast_carry_every_length),
        cmocka_unit_test(allgather_and_broadcast_carry_every_length_over_a_deep_tree),
        cmocka_unit_test(allgather_works_in_place),
        cmocka_unit_test(nobody_passes_a_barrier_before_the_last_has_come),
        cmocka_unit_test(everybody_waits_for_the_last_to_contribute),
        cmocka_unit_test(a_call_that_one_rank_never_makes_times_out_and_names_it),
        cmocka_unit_test(who_waits_elsewhere_is_named_for_what_does_not_come),
        cmocka_unit_test(different_calls_end_in_a_mismatch_that_names_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
