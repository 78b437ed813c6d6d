/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of many shapes: ranks as processes and as threads, every way to join, trees of small
 * degree, several roots. In each shape every operation of the control plane must work.
 */
#include "comm_support.h"

/* Joins, checks who it is, does everything, leaves when all are done. */
static int whole_life(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    int me = -1, ranks = -1, local = -1, locals = -1;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    EXPECT_OK(weft_comm_rank(comm, &me));
    EXPECT_OK(weft_comm_ranks(comm, &ranks));
    EXPECT_OK(weft_comm_local(comm, &local, &locals));
    EXPECT(me == rank && ranks == shared->ranks);
    EXPECT(local == rank && locals == ranks); /* all on this host */
    EXPECT_PASS(check_all_operations(comm, 1, &shared->word[0], rank, shared));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void jobs_of_1_2_3_8_and_17_processes_work(void **state)
{
    static const int sizes[] = {1, 2, 3, 8, 17};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        run_processes(sizes[i], whole_life, NULL);
    }
}

static void jobs_of_1_2_3_8_and_17_threads_work(void **state)
{
    static const int sizes[] = {1, 2, 3, 8, 17};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        run_threads(sizes[i], whole_life, NULL);
    }
}

static void the_root_may_be_any_rank(void **state)
{
    (void)state;
    for (int root = 1; root < 5; root += 3) {
        struct job job = {.root = root};
        run_processes(5, whole_life, &job);
    }
}

static void sixty_four_ranks_on_one_host_work(void **state)
{
    (void)state;
    run_processes(64, whole_life, NULL);
}

static void with_env(const char *name, const char *value, int ranks, struct job *job)
{
    setenv(name, value, 1);
    run_processes(ranks, whole_life, job);
    run_threads(ranks, whole_life, job);
    unsetenv(name);
}

static void ranks_that_join_directly_by_tcp_work(void **state)
{
    (void)state;
    with_env("WEFT_JOIN", "direct", 8, NULL);
}

static void ranks_that_join_through_a_local_socket_work(void **state)
{
    (void)state;
    with_env("WEFT_JOIN", "local", 8, NULL);
}

/* Most ranks are told another parent than the one they joined through, and attach there. */
static void trees_of_degree_two_and_three_work_with_17_ranks(void **state)
{
    (void)state;
    with_env("WEFT_TREE_DEGREE", "2", 17, NULL);
    with_env("WEFT_TREE_DEGREE", "3", 17, NULL);
}

static void trees_of_small_degree_work_when_ranks_join_directly(void **state)
{
    (void)state;
    setenv("WEFT_JOIN", "direct", 1);
    with_env("WEFT_TREE_DEGREE", "2", 17, NULL);
    with_env("WEFT_TREE_DEGREE", "3", 17, NULL);
    unsetenv("WEFT_JOIN");
}

static void two_and_three_roots_serve_nine_ranks(void **state)
{
    (void)state;
    for (int ids = 2; ids <= 3; ids++) {
        struct job job = {.ids = ids};
        run_processes(9, whole_life, &job);
        run_threads(9, whole_life, &job);
    }
}

static void two_and_three_roots_serve_nine_ranks_that_join_directly(void **state)
{
    (void)state;
    for (int ids = 2; ids <= 3; ids++) {
        struct job job = {.ids = ids, .root = 1};
        with_env("WEFT_JOIN", "direct", 9, &job);
    }
}

static void several_roots_and_small_trees_go_together(void **state)
{
    struct job job = {.ids = 3};
    (void)state;
    with_env("WEFT_TREE_DEGREE", "2", 9, &job);
    setenv("WEFT_JOIN", "direct", 1);
    with_env("WEFT_TREE_DEGREE", "2", 9, &job);
    unsetenv("WEFT_JOIN");
}

/* ---- one process, several jobs; one job after the other ---- */

static int two_jobs_at_once(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t first = NULL, second = NULL;
    weft_config_t config = job_config();
    (void)arg;
    for (int k = 0; k < 2 && rank == 0; k++) {
        EXPECT_OK(weft_id_create(&config, &job_ids(shared)[k]));
    }
    atomic_fetch_add(&shared->word[ID_WORD], rank == 0);
    EXPECT(harness_wait_reach(&shared->word[ID_WORD], 1, DEADLINE_MS));
    EXPECT_OK(weft_comm_create(&job_ids(shared)[0], rank, shared->ranks, &config, &first));
    EXPECT_OK(weft_comm_create(&job_ids(shared)[1], rank, shared->ranks, &config, &second));
    EXPECT_PASS(check_all_operations(second, 2, &shared->word[1], rank, shared));
    EXPECT_PASS(check_all_operations(first, 3, &shared->word[0], rank, shared));
    EXPECT_OK(weft_control_barrier(second));
    EXPECT_OK(weft_comm_close(second));
    EXPECT_PASS(check_all_operations(first, 4, &shared->word[2], rank, shared));
    EXPECT_OK(weft_control_barrier(first));
    EXPECT_OK(weft_comm_close(first));
    return 0;
}

static void two_jobs_of_the_same_processes_do_not_disturb_each_other(void **state)
{
    (void)state;
    run_processes(4, two_jobs_at_once, NULL);
}

static int twenty_jobs_in_a_row(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config();
    (void)arg;
    for (uint32_t i = 0; i < 20; i++) {
        weft_comm_t comm = NULL;
        if (rank == 0) {
            EXPECT_OK(weft_id_create(&config, &job_ids(shared)[i]));
            atomic_store(&shared->word[ID_WORD], i + 1);
        }
        EXPECT(harness_wait_reach(&shared->word[ID_WORD], i + 1, DEADLINE_MS));
        EXPECT_OK(weft_comm_create(&job_ids(shared)[i], rank, shared->ranks, &config, &comm));
        EXPECT_OK(weft_control_barrier(comm));
        EXPECT_OK(weft_comm_close(comm));
    }
    return 0;
}

static void twenty_jobs_in_a_row_leave_nothing_behind(void **state)
{
    (void)state;
    run_processes(4, twenty_jobs_in_a_row, NULL);
    run_threads(4, twenty_jobs_in_a_row, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_1_2_3_8_and_17_processes_work),
        cmocka_unit_test(jobs_of_1_2_3_8_and_17_threads_work),
        cmocka_unit_test(the_root_may_be_any_rank),
        cmocka_unit_test(sixty_four_ranks_on_one_host_work),
        cmocka_unit_test(ranks_that_join_directly_by_tcp_work),
        cmocka_unit_test(ranks_that_join_through_a_local_socket_work),
        cmocka_unit_test(trees_of_degree_two_and_three_work_with_17_ranks),
        cmocka_unit_test(trees_of_small_degree_work_when_ranks_join_directly),
        cmocka_unit_test(two_and_three_roots_serve_nine_ranks),
        cmocka_unit_test(two_and_three_roots_serve_nine_ranks_that_join_directly),
        cmocka_unit_test(several_roots_and_small_trees_go_together),
        cmocka_unit_test(two_jobs_of_the_same_processes_do_not_disturb_each_other),
        cmocka_unit_test(twenty_jobs_in_a_row_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
