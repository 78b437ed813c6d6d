/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank closes while another waits for it in a barrier; a third one calls the same barrier in the
 * milliseconds in which some have heard of the closing and others have not. Whoever hears first
 * gives up first, and must not take the call of the one behind it for one that is ahead: both
 * calls end with ERR_PEER and name the rank that closed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#define RANKS 3
#define WAITS 0  /* the root, in the barrier when rank 2 closes */
#define LATE 1   /* calls it a little later */
#define CLOSES 2 /* instead of calling it */
#define DEADLINE_MS 20000
#define CALL_MS 10000 /* no call under test may need it */
#define REPEATS 5

enum { WORD_CALLS, WORD_CLOSE, WORD_CLOSED, WORD_TOLD };

struct late {
    uint64_t closed_ns, delay_ns;
};

static bool is_time(void *arg)
{
    const struct late *late = arg;
    return harness_now_ns() >= late->closed_ns + late->delay_ns;
}

static bool is_my_turn(int rank, struct harness_shared *shared, uint64_t delay_ns)
{
    struct late late = {.delay_ns = delay_ns};
    if (rank == WAITS) {
        atomic_store(&shared->word[WORD_CALLS], 1);
        return true;
    }
    if (rank == CLOSES) {
        return harness_wait_for(&shared->word[WORD_CLOSE], 1, DEADLINE_MS);
    }
    if (!harness_wait_for(&shared->word[WORD_CLOSED], 1, DEADLINE_MS)) {
        return false;
    }
    late.closed_ns = job_board(shared)->report[CLOSES].closed_ns;
    return harness_wait_until(is_time, &late, DEADLINE_MS);
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(DEADLINE_MS, CALL_MS);
    weft_comm_t comm;
    weft_status_t status = job_join(rank, 0, shared, &config, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "no job: %s", weft_error_text());
    }
    status = weft_control_barrier(comm);
    if (status != WEFT_OK || !is_my_turn(rank, shared, *(const uint64_t *)arg)) {
        return harness_say(shared, rank, -1, "no turn: %s", weft_error_text());
    }
    if (rank != CLOSES) {
        job_calls(rank, shared);
        status = weft_control_barrier(comm);
        job_returned(rank, shared, status);
        atomic_fetch_add(&shared->word[WORD_TOLD], 1);
        /* who is told first stays: its own closing would be news too */
        harness_wait_reach(&shared->word[WORD_TOLD], RANKS - 1, DEADLINE_MS);
    }
    job_close(rank, shared, comm);
    if (rank == CLOSES) {
        atomic_store(&shared->word[WORD_CLOSED], 1);
    }
    return (int)status;
}

static void check_told(struct harness *harness, int rank)
{
    const struct harness_result *result = harness_result(harness, rank);
    if (!result->is_returned || result->status != WEFT_ERR_PEER ||
        strstr(result->text, "rank 2 ") == NULL || strstr(result->text, "closed") == NULL) {
        fail_msg("rank %d: expected ERR_PEER that names rank 2 as closed, got %d: %s", rank,
                 result->status, result->text);
    }
}

static void race(uint64_t delay_ns)
{
    struct harness *harness = harness_start(RANKS, body, &delay_ns);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[WORD_CALLS], 1, DEADLINE_MS));
    assert_harness(harness, job_wait_asleep(harness, WAITS, DEADLINE_MS));
    atomic_store(&shared->word[WORD_CLOSE], 1);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    check_told(harness, WAITS);
    check_told(harness, LATE);
    assert_int_equal(harness_result(harness, CLOSES)->status, WEFT_OK);
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void race_after_ms(uint64_t delay_ms)
{
    for (int i = 0; i < REPEATS; i++) {
        race(delay_ms * JOB_MS_NS);
    }
}

static void a_barrier_called_right_after_a_closing_names_who_closed(void **state)
{
    (void)state;
    race_after_ms(0);
}

static void a_barrier_called_1_ms_after_a_closing_names_who_closed(void **state)
{
    (void)state;
    race_after_ms(1);
}

static void a_barrier_called_2_ms_after_a_closing_names_who_closed(void **state)
{
    (void)state;
    race_after_ms(2);
}

static void a_barrier_called_4_ms_after_a_closing_names_who_closed(void **state)
{
    (void)state;
    race_after_ms(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_called_right_after_a_closing_names_who_closed),
        cmocka_unit_test(a_barrier_called_1_ms_after_a_closing_names_who_closed),
        cmocka_unit_test(a_barrier_called_2_ms_after_a_closing_names_who_closed),
        cmocka_unit_test(a_barrier_called_4_ms_after_a_closing_names_who_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
