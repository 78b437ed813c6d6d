/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WEFT_DUMP names a directory that does not answer, as one on a file server that is down: here mkdir() does not
 * return before the test says so. The failure that would be written there is heard in time all the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

#define RANKS 3
#define DEAD 2
#define READY 0
#define HANGS 1    /* calls of mkdir() */
#define THAW 2     /* they return */
#define RETURNED 3 /* from the call that failed */
#define PROMISE_MS (1500U * JOB_SLOWNESS)

static struct harness_shared *board; /* of a rank */

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    if (board != NULL) {
        atomic_fetch_add(&board->word[HANGS], 1);
        harness_wait_reach(&board->word[THAW], 1, MESSAGES_WAIT_MS);
    }
    return __real_mkdir(path, mode);
}

struct plan {
    char folder[64];
    bool is_aborted; /* … else a rank dies */
};

static weft_status_t await_failure(weft_comm_t comm)
{
    float in = 1, out;
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < 1000000 && status == WEFT_OK; i++) {
        status = weft_allreduce(comm, &in, &out, 1, WEFT_F32, WEFT_SUM, NULL);
    }
    return status;
}

/* The threads that write have ended: then the files are there. */
static bool is_written(void *arg)
{
    struct harness_holdings now;
    harness_count(&now);
    return now.threads <= *(const unsigned *)arg;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct harness_holdings before;
    weft_comm_t comm, other;
    weft_status_t status;
    setenv("WEFT_DUMP", plan->folder, 1);
    board = shared;
    status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? weft_comm_duplicate(comm, &other) : status;
    status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    harness_count(&before);
    atomic_fetch_add(&shared->word[READY], 1);
    job_calls(rank, shared);
    if (plan->is_aborted && rank == DEAD) {
        harness_wait_reach(&shared->word[READY], RANKS, MESSAGES_WAIT_MS);
        job_calls(rank, shared);
        status = weft_abort(comm, "enough");
    } else {
        status = await_failure(comm);
    }
    job_returned(rank, shared, status);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    /* The directory hangs still: what has not failed works, also for longer than a heartbeat takes. */
    for (int i = 0; plan->is_aborted && i < 20; i++) {
        if (weft_barrier(other, NULL) != WEFT_OK) {
            return harness_say(shared, rank, -1, "another communicator: %s", weft_error_text());
        }
        messages_let_pass(10);
    }
    harness_wait_reach(&shared->word[THAW], 1, MESSAGES_WAIT_MS);
    harness_wait_until(is_written, &before.threads, MESSAGES_WAIT_MS);
    weft_comm_close(other);
    job_close(rank, shared, comm);
    return 0;
}

/* ---- the test's side ---- */

static void open_plan(struct plan *plan, bool is_aborted)
{
    *plan = (struct plan){.folder = "/tmp/weft-test-hangs-XXXXXX", .is_aborted = is_aborted};
    assert_non_null(mkdtemp(plan->folder));
}

/* Files of so many ranks. */
static void close_plan(const struct plan *plan, unsigned expected)
{
    const struct dirent *entry;
    unsigned count = 0;
    DIR *folder = opendir(plan->folder);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        count += strstr(entry->d_name, ".dump") != NULL;
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    assert_int_equal(rmdir(plan->folder), 0);
    assert_int_equal(count, expected);
}

static void check_in_time(struct harness *harness, int rank, uint64_t since_ns)
{
    const struct job_report *report = job_report(harness, rank);
    uint64_t from_ns = since_ns > report->called_ns ? since_ns : report->called_ns;
    if (report->returned_ns - from_ns > (uint64_t)PROMISE_MS * JOB_MS_NS) {
        fail_msg("rank %d returned after %llu ms: %s", rank,
                 (unsigned long long)((report->returned_ns - from_ns) / JOB_MS_NS),
                 harness_result(harness, rank)->text);
    }
}

static void calls_return_in_time_when_a_rank_dies(void **state)
{
    struct plan plan;
    struct harness *harness;
    struct harness_shared *shared;
    uint64_t killed_ns;
    (void)state;
    open_plan(&plan, false);
    harness = harness_start(RANKS, body, &plan);
    shared = harness_shared(harness);
    assert_harness(harness, harness_wait_reach(&shared->word[READY], RANKS, MESSAGES_WAIT_MS));
    killed_ns = harness_now_ns();
    harness_kill(harness, DEAD, SIGKILL);
    assert_harness(harness, harness_wait_reach(&shared->word[RETURNED], RANKS - 1, PROMISE_MS * 4));
    assert_harness(harness, harness_wait_reach(&shared->word[HANGS], RANKS - 1, MESSAGES_WAIT_MS));
    atomic_store(&shared->word[THAW], 1);
    assert_harness(harness, harness_wait(harness, MESSAGES_WAIT_MS));
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != DEAD) {
            check_in_time(harness, rank, killed_ns);
            assert_int_equal(job_report(harness, rank)->status, WEFT_ERR_PEER);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    close_plan(&plan, RANKS - 1);
}

static void abort_returns_and_other_communicators_go_on(void **state)
{
    struct plan plan;
    struct harness *harness;
    struct harness_shared *shared;
    (void)state;
    open_plan(&plan, true);
    harness = harness_start(RANKS, body, &plan);
    shared = harness_shared(harness);
    assert_harness(harness, harness_wait_reach(&shared->word[RETURNED], RANKS, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_wait_reach(&shared->word[HANGS], RANKS, MESSAGES_WAIT_MS));
    for (int rank = 0; rank < RANKS; rank++) {
        check_in_time(harness, rank, job_report(harness, DEAD)->called_ns);
    }
    atomic_store(&shared->word[THAW], 1);
    assert_harness(harness, harness_wait(harness, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    close_plan(&plan, RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_return_in_time_when_a_rank_dies),
        cmocka_unit_test(abort_returns_and_other_communicators_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
