/* SPDX-License-Identifier: Apache-2.0 */
/* At the deadline every rank that joined says which ranks are missing, in time and in one voice. */
#include "start_job.h"

#define RANKS 8
#define DEADLINE_MS 1000

static bool is_missing(int rank)
{
    return rank == 3 || rank == 6;
}

/* Everybody but the missing; returns how many. */
static int crew(struct actor actors[RANKS], bool is_direct)
{
    int count = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        if (!is_missing(rank)) {
            actors[count++] = (struct actor){.is_root = rank == 0,
                                             .rank = rank,
                                             .ranks = RANKS,
                                             .start_timeout_ms = DEADLINE_MS,
                                             .is_direct = is_direct};
        }
    }
    return count;
}

static void assert_in_time(const struct job *job, int index, uint32_t deadline_ms)
{
    const struct harness_result *result = harness_result(job->harness, index);
    double took_ms = (double)(result->end_ns - result->begin_ns) / 1e6;
    if (took_ms > deadline_ms + 300) {
        fail_msg("actor %d took %.0f ms, its deadline is %u ms", index, took_ms, deadline_ms);
    }
}

static void check_missing(bool is_direct)
{
    struct job job;
    struct actor actors[RANKS] = {{0}};
    int count = crew(actors, is_direct);
    job_start(&job, actors, count);
    job_end(&job);
    for (int i = 0; i < count; i++) {
        assert_said(&job, i, WEFT_ERR_TIMEOUT, "2 of 8 ranks did not join in time: 3, 6", NULL);
        assert_in_time(&job, i, DEADLINE_MS);
    }
    job_close(&job);
}

static void the_deadline_names_the_missing_ranks_to_all_others(void **state)
{
    (void)state;
    check_missing(false);
}

static void the_deadline_names_the_missing_ranks_over_tcp_too(void **state)
{
    (void)state;
    check_missing(true);
}

static void the_most_impatient_rank_still_hears_who_is_missing(void **state)
{
    struct job job;
    struct actor actors[RANKS] = {{0}};
    int count = crew(actors, false);
    (void)state;
    for (int i = 0; i < count; i++) {
        actors[i].start_timeout_ms = i == 2 ? 400 : START_MS;
    }
    job_start(&job, actors, count);
    job_end(&job);
    for (int i = 0; i < count; i++) {
        assert_said(&job, i, WEFT_ERR_TIMEOUT, "3, 6", NULL);
        assert_in_time(&job, i, 400);
    }
    job_close(&job);
}

/* The id is there, its process never creates a communicator. */
static void a_root_that_never_serves_is_named_at_the_deadline(void **state)
{
    struct job job;
    struct actor actors[2] = {
        {.is_root = true, .rank = 0, .ranks = 2, .gate = 1},
        {.rank = 1, .ranks = 2, .start_timeout_ms = 300},
    };
    (void)state;
    job_start(&job, actors, 2);
    assert_harness(job.harness, harness_wait_rank(job.harness, 1, WAIT_MS));
    assert_said(&job, 1, WEFT_ERR_TIMEOUT, "root", NULL);
    assert_in_time(&job, 1, 300);
    assert_true(harness_kill(job.harness, 0, SIGKILL));
    assert_harness(job.harness, harness_wait(job.harness, WAIT_MS));
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_deadline_names_the_missing_ranks_to_all_others),
        cmocka_unit_test(the_deadline_names_the_missing_ranks_over_tcp_too),
        cmocka_unit_test(the_most_impatient_rank_still_hears_who_is_missing),
        cmocka_unit_test(a_root_that_never_serves_is_named_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
