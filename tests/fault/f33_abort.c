/* SPDX-License-Identifier: Apache-2.0 */
/* weft_abort() from another thread ends calls that wait, on all ranks; clean under TSan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>

#define RANKS 3
#define ABORTER 1
#define ROUNDS 20
#define CLOSES 200

struct aborter {
    struct harness_shared *shared;
    weft_comm_t comm;
    uint32_t pause; /* how many looks before it aborts: another moment each time */
    weft_status_t status;
};

/* Looks at the communicator, as any thread may, and ends it. */
static void *run_aborter(void *arg)
{
    struct aborter *aborter = arg;
    for (uint32_t i = 0; i < aborter->pause; i++) {
        weft_comm_status(aborter->comm);
    }
    aborter->status = weft_abort(aborter->comm, "the test said so");
    weft_comm_status(aborter->comm);
    return NULL;
}

/* The others may close it from then on. */
static void *run_watchdog(void *arg)
{
    struct aborter *aborter = arg;
    for (uint32_t i = 0; i < aborter->pause; i++) {
        sched_yield();
    }
    aborter->status = weft_abort(aborter->comm, "the test said so");
    return NULL;
}

/* ---- a rank that is late to open its communicator ---- */

struct weft_control;
struct weft_control_channel;
weft_status_t __real_weft_control_channel_open(struct weft_control *control, uint64_t id,
                                               const uint32_t *members, uint32_t count,
                                               struct weft_control_channel **channel_p);
weft_status_t __wrap_weft_control_channel_open(struct weft_control *control, uint64_t id,
                                               const uint32_t *members, uint32_t count,
                                               struct weft_control_channel **channel_p);

static const _Atomic uint32_t *late_until; /* this rank opens when the word is 1; NULL: at once */

weft_status_t __wrap_weft_control_channel_open(struct weft_control *control, uint64_t id,
                                               const uint32_t *members, uint32_t count,
                                               struct weft_control_channel **channel_p)
{
    if (late_until != NULL) {
        harness_wait_for(late_until, 1, 10000);
    }
    return __real_weft_control_channel_open(control, id, members, count, channel_p);
}

#define HEARD 0

static int late_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 5000);
    const int *late = arg;
    weft_comm_t comm;
    late_until = rank == *late ? &shared->word[HEARD] : NULL;
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    if (rank == ABORTER) {
        weft_abort(comm, "the test said so");
    }
    int status = job_returned(rank, shared, weft_control_barrier(comm));
    if (rank != ABORTER && rank != *late) {
        atomic_store(&shared->word[HEARD], 1); /* so the coordinator has judged */
    }
    harness_wait_for(&shared->word[HEARD], 1, 10000);
    weft_comm_close(comm);
    return status;
}

static void check_late(int late)
{
    struct harness *harness = harness_start(RANKS, late_body, &late);
    assert_harness(harness, harness_wait(harness, 15000));
    assert_harness(harness, harness_check_status(harness, WEFT_ERR_ABORTED));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void a_root_that_opens_late_hears_of_the_abort(void **state)
{
    (void)state;
    check_late(0);
}

static void a_rank_that_opens_late_hears_of_the_abort(void **state)
{
    (void)state;
    check_late(2);
}

/* ---- while the first thread waits ---- */

static int wait_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 20000);
    struct aborter aborter = {.shared = shared, .pause = 10};
    weft_comm_t comm;
    pthread_t thread;
    const char *degree = arg;
    setenv("WEFT_TREE_DEGREE", degree, 1);
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[0], 1);
    if (rank == shared->ranks - 1) { /* nobody gets through before it calls too */
        harness_wait_for(&shared->word[1], 1, 10000);
    }
    if (rank == ABORTER) {
        harness_wait_for(&shared->word[2], 1, 10000);
        aborter.comm = comm;
        pthread_create(&thread, NULL, run_aborter, &aborter);
    }
    job_calls(rank, shared);
    int status = job_returned(rank, shared, weft_control_barrier(comm));
    weft_status_t after = weft_comm_status(comm);
    if (rank == ABORTER) {
        pthread_join(thread, NULL);
    }
    job_close(rank, shared, comm);
    return aborter.status == WEFT_OK && after == WEFT_ERR_ABORTED ? status : -1;
}

static void check_wait(int ranks, const char *degree)
{
    struct harness *harness = harness_start(ranks, wait_body, (void *)degree);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[0], (uint32_t)ranks, 10000));
    uint64_t begin_ns = harness_now_ns();
    atomic_store(&shared->word[2], 1);
    for (int rank = 0; rank < ranks - 1; rank++) {
        assert_harness(harness, harness_wait_rank(harness, rank, 5000));
    }
    atomic_store(&shared->word[1], 1); /* who calls afterwards hears the same */
    assert_harness(harness, harness_wait(harness, 5000));
    assert_harness(harness, harness_check_status(harness, WEFT_ERR_ABORTED));
    for (int rank = 0; rank < ranks; rank++) {
        const char *text = harness_result(harness, rank)->text;
        const struct job_report *report = job_report(harness, rank);
        uint64_t since_ns = report->called_ns > begin_ns ? report->called_ns : begin_ns;
        if (strstr(text, "rank 1 (") == NULL || strstr(text, "the test said so") == NULL) {
            fail_msg("rank %d hears neither who nor why: %s", rank, text);
        }
        assert_true(report->returned_ns - since_ns < JOB_CLOSE_NS * JOB_SLOWNESS);
        assert_true(report->closed_ns - report->closing_ns < JOB_CLOSE_NS * JOB_SLOWNESS);
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void abort_ends_a_barrier_on_all_ranks(void **state)
{
    (void)state;
    check_wait(RANKS, "64");
}

/* Rank 1 has ranks 3 and 4 below it: they hear of the abort before they hear that it closed. */
static void abort_by_an_inner_rank_reaches_those_below_it(void **state)
{
    (void)state;
    check_wait(7, "2");
}

/* ---- while the first thread posts one call after the other ---- */

static int post_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(10000, 20000);
    (void)arg;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        weft_id_t *id = (weft_id_t *)(void *)shared->scratch + round;
        struct aborter aborter = {.shared = shared, .pause = round * 40};
        weft_status_t status = WEFT_OK;
        pthread_t thread;
        if (rank == 0) {
            status = weft_id_create(&config, id);
            atomic_store(&shared->word[round], 1);
        } else if (!harness_wait_for(&shared->word[round], 1, 20000)) {
            return harness_say(shared, rank, -1, "no id in round %u", round);
        }
        status =
            status == WEFT_OK ? weft_comm_create(id, rank, RANKS, &config, &aborter.comm) : status;
        if (status != WEFT_OK) {
            return harness_say(shared, rank, -1, "round %u: %s", round, weft_error_text());
        }
        if (rank == ABORTER && pthread_create(&thread, NULL, run_aborter, &aborter) != 0) {
            return harness_say(shared, rank, -1, "no thread");
        }
        while (status == WEFT_OK) {
            status = weft_control_barrier(aborter.comm);
        }
        if (rank == ABORTER) {
            pthread_join(thread, NULL);
        }
        harness_say(shared, rank, 0, "round %u: %s", round, weft_error_text());
        weft_comm_close(aborter.comm);
        if (status != WEFT_ERR_ABORTED) {
            return (int)status;
        }
    }
    return 0;
}

static void abort_at_any_moment_while_calls_are_posted(void **state)
{
    (void)state;
    struct harness *harness = harness_start_threads(RANKS, post_body, NULL);
    assert_harness(harness, harness_wait(harness, 60000));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void abort_at_any_moment_between_processes(void **state)
{
    (void)state;
    struct harness *harness = harness_start(RANKS, post_body, NULL);
    assert_harness(harness, harness_wait(harness, 60000));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

/* ---- closing because of an abort that is still on its way back ---- */

static int close_body(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    mallopt(M_PERTURB, 165); /* what is freed is not there any more */
    for (uint32_t round = 0; round < CLOSES; round++) {
        struct aborter aborter = {.pause = round % 16};
        weft_id_t id;
        pthread_t thread;
        if (weft_id_create(NULL, &id) != WEFT_OK ||
            weft_comm_create(&id, 0, 1, NULL, &aborter.comm) != WEFT_OK ||
            pthread_create(&thread, NULL, run_watchdog, &aborter) != 0) {
            return harness_say(shared, rank, 1, "round %u: %s", round, weft_error_text());
        }
        while (weft_comm_status(aborter.comm) == WEFT_OK) {
        }
        weft_comm_close(aborter.comm);
        pthread_join(thread, NULL);
        if (aborter.status != WEFT_OK) {
            return harness_say(shared, rank, 2, "round %u", round);
        }
    }
    return 0;
}

static void who_closes_because_of_an_abort_waits_for_it(void **state)
{
    (void)state;
    struct harness *harness = harness_start(1, close_body, NULL);
    assert_harness(harness, harness_wait(harness, 60000));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_ends_a_barrier_on_all_ranks),
        cmocka_unit_test(abort_by_an_inner_rank_reaches_those_below_it),
        cmocka_unit_test(a_root_that_opens_late_hears_of_the_abort),
        cmocka_unit_test(a_rank_that_opens_late_hears_of_the_abort),
        cmocka_unit_test(abort_at_any_moment_while_calls_are_posted),
        cmocka_unit_test(abort_at_any_moment_between_processes),
        cmocka_unit_test(who_closes_because_of_an_abort_waits_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
