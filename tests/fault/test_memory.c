/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory runs out at the Nth allocation, for every N of a start: an error, in time; no crash, no
 * leak, and the same processes start a job as soon as there is memory again. The executable is
 * linked so that the library's allocations come through here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <errno.h>
#include <pthread.h>

#define START_MS 300
#define N_MAX 200 /* more than a start of two ranks ever needs */

void *__real_malloc(size_t len);
void *__real_calloc(size_t count, size_t len);
void *__real_realloc(void *old, size_t len);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t count, size_t len);
void *__wrap_realloc(void *old, size_t len);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);

static _Atomic int left = -1; /* this many go well, then one fails; below 0: all go well */
static _Atomic int failed;    /* how many failed */
static _Atomic int fails_threads;

static bool is_the_one(void)
{
    if (atomic_load(&left) < 0 || atomic_fetch_sub(&left, 1) != 0) {
        return false;
    }
    atomic_fetch_add(&failed, 1);
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t len)
{
    return is_the_one() ? NULL : __real_malloc(len);
}

void *__wrap_calloc(size_t count, size_t len)
{
    return is_the_one() ? NULL : __real_calloc(count, len);
}

void *__wrap_realloc(void *old, size_t len)
{
    return is_the_one() ? NULL : __real_realloc(old, len);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    if (atomic_load(&fails_threads) != 0) {
        atomic_fetch_add(&failed, 1);
        return EAGAIN;
    }
    return __real_pthread_create(thread, attr, run, arg);
}

struct plan {
    int victim;
    int n; /* the allocation that fails; -1: the thread */
};

#define FIRST_ID 0 /* words: 1 there, 2 there will be none */
#define SECOND_ID 1
#define THROUGH 2
#define HAS_FAILED 3

static weft_status_t start(int rank, struct harness_shared *shared, unsigned number,
                           weft_comm_t *comm_p)
{
    weft_config_t config = job_config(START_MS * JOB_SLOWNESS, 1000);
    weft_id_t *id = &job_board(shared)->id + number; /* the reports' room, unused here */
    weft_status_t status = WEFT_OK;
    if (rank == 0) {
        status = weft_id_create(&config, id);
        atomic_store(&shared->word[number], status == WEFT_OK ? 1 : 2);
    } else if (!harness_wait_reach(&shared->word[number], 1, 5000) ||
               atomic_load(&shared->word[number]) != 1) {
        return WEFT_ERR_PEER;
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_comm_create(id, rank, shared->ranks, &config, comm_p);
    if (status != WEFT_OK && rank == 0) {
        weft_id_destroy(id); /* harmless when the start took it */
    }
    return status;
}

static void fail_later(const struct plan *plan)
{
    atomic_store(&fails_threads, plan->n < 0);
    atomic_store(&left, plan->n);
}

static void fail_no_more(void)
{
    atomic_store(&left, -1);
    atomic_store(&fails_threads, 0);
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm = NULL;
    setenv("WEFT_LOG", "error", 1);
    if (rank == plan->victim) {
        fail_later(plan);
    }
    weft_status_t status = start(rank, shared, FIRST_ID, &comm);
    if (status == WEFT_OK) {
        status = weft_control_barrier(comm);
        weft_comm_close(comm);
    }
    fail_no_more();
    if (rank == plan->victim) {
        atomic_store(&shared->word[HAS_FAILED], (uint32_t)atomic_load(&failed));
    }
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status),
                status == WEFT_OK ? "" : weft_error_text());
    atomic_fetch_add(&shared->word[THROUGH], 1);
    harness_wait_for(&shared->word[THROUGH], 2, 10000);
    weft_status_t again = start(rank, shared, SECOND_ID, &comm);
    again = again == WEFT_OK ? weft_control_barrier(comm) : again;
    if (again != WEFT_OK) {
        return harness_say(shared, rank, -1, "with memory again: %s", weft_error_text());
    }
    weft_comm_close(comm);
    return (int)status;
}

/* true: the allocation number n was made, and failed */
static bool run(const struct plan *plan)
{
    struct harness *harness = harness_start(2, body, (void *)plan);
    assert_harness(harness, harness_wait(harness, 15000));
    bool has_failed = atomic_load(&harness_shared(harness)->word[HAS_FAILED]) != 0;
    for (int rank = 0; rank < 2; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (!result->is_returned || result->status < 0) {
            fail_msg("allocation %d of rank %d failed; rank %d (signal %d): %s", plan->n,
                     plan->victim, rank, result->signal, result->text);
        }
        if (!has_failed && result->status != WEFT_OK) {
            fail_msg("nothing failed, but rank %d returned %s", rank, result->text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    return has_failed;
}

static void run_all(int victim)
{
    int n = 0;
    while (n < N_MAX && run(&(struct plan){.victim = victim, .n = n})) {
        n++;
    }
    assert_in_range(n, 5, N_MAX - 1); /* or nothing came through here */
}

static void every_allocation_of_the_root_may_fail(void **state)
{
    (void)state;
    run_all(0);
}

static void every_allocation_of_a_rank_that_joins_may_fail(void **state)
{
    (void)state;
    run_all(1);
}

static void the_background_thread_may_fail_to_start(void **state)
{
    (void)state;
    assert_true(run(&(struct plan){.victim = 0, .n = -1}));
    assert_true(run(&(struct plan){.victim = 1, .n = -1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_the_root_may_fail),
        cmocka_unit_test(every_allocation_of_a_rank_that_joins_may_fail),
        cmocka_unit_test(the_background_thread_may_fail_to_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
