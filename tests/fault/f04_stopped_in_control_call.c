/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that is stopped is not dead: the others wait and are warned once; only the operation's
 * deadline ends the wait, and then it names the rank that stood.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <signal.h>

#define INSIDE 0
#define GO 1

#define STOP_MS 2000
#define TIMEOUT_MS 800
#define SLACK_MS 300 /* of the deadline, as promised */

struct plan {
    int ranks, victim, root;
    bool is_recv;
    const char *join, *degree;
    uint32_t timeout_ms;
    int log_fd;
};

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_config_t config = job_config(5000, plan->timeout_ms);
    weft_comm_t comm;
    weft_status_t status;
    dup2(plan->log_fd, STDERR_FILENO);
    setenv("WEFT_JOIN", plan->join, 1);
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    /* a leaf beats from its first call on */
    if (job_join(rank, plan->root, shared, &config, &comm) != WEFT_OK ||
        weft_control_barrier(comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (rank == plan->victim) {
        harness_wait_for(&shared->word[GO], 1, 10000);
    }
    job_calls(rank, shared);
    status = plan->is_recv && rank != plan->victim
                 ? weft_control_recv(comm, plan->victim, 1, &config, sizeof(config), NULL)
                 : weft_control_barrier(comm);
    job_returned(rank, shared, status);
    job_close(rank, shared, comm);
    return (int)status;
}

static struct harness *start(const struct plan *plan)
{
    struct harness *harness = harness_start(plan->ranks, body, (void *)plan);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[INSIDE], (uint32_t)plan->ranks, 10000));
    assert_harness(harness, harness_stop(harness, plan->victim));
    return harness;
}

static bool is_past(void *arg)
{
    return harness_now_ns() >= *(const uint64_t *)arg;
}

static void resume(struct plan plan)
{
    char log[8192], name[32];
    plan.timeout_ms = 20000;
    plan.log_fd = job_log_open();
    struct harness *harness = start(&plan);
    uint64_t until_ns = harness_now_ns() + STOP_MS * JOB_MS_NS;
    harness_wait_until(is_past, &until_ns, 2 * STOP_MS); /* the length of the stop is the subject */
    job_log_read(plan.log_fd, log, sizeof(log));
    snprintf(name, sizeof(name), "rank %d (", plan.victim);
    const char *warning = strstr(log, "has been silent");
    if (warning == NULL || strstr(log, name) == NULL) {
        fail_msg("no warning names the stopped rank: %s", log);
    }
    assert_harness(harness, harness_continue(harness, plan.victim));
    atomic_store(&harness_shared(harness)->word[GO], 1);
    assert_harness(harness, harness_wait(harness, 8000));
    assert_harness(harness, harness_check_status(harness, WEFT_OK));
    assert_harness(harness, harness_check_clean(harness));
    job_log_read(plan.log_fd, log, sizeof(log));
    if (job_count_lines(log, "has been silent") != 1) {
        fail_msg("more than one warning: %s", log);
    }
    close(plan.log_fd);
    harness_close(harness);
}

static void a_rank_stopped_for_two_seconds_is_waited_for_with_one_warning(void **state)
{
    (void)state;
    resume((struct plan){.ranks = 3, .victim = 2, .join = "auto", .degree = "64"});
}

static void over_tcp_too(void **state)
{
    (void)state;
    resume((struct plan){.ranks = 3, .victim = 1, .join = "direct", .degree = "64"});
}

/* ---- for ever ---- */

static void check_timeout(struct harness *harness, const struct plan *plan, int rank)
{
    const struct job_report *report = job_report(harness, rank);
    const char *text = harness_result(harness, rank)->text;
    int64_t late_ns = (int64_t)(report->returned_ns - report->called_ns) -
                      (int64_t)(plan->timeout_ms * JOB_MS_NS);
    char name[32];
    size_t len = (size_t)snprintf(name, sizeof(name), "rank %d", plan->victim);
    const char *named = strstr(text, name);
    if (report->status != WEFT_ERR_TIMEOUT) {
        fail_msg("rank %d returned %d: %s", rank, report->status, text);
    }
    if (named == NULL || (named[len] >= '0' && named[len] <= '9')) {
        fail_msg("rank %d does not hear that rank %d is absent: %s", rank, plan->victim, text);
    }
    if (late_ns < -(int64_t)(JOB_MS_NS * SLACK_MS) ||
        late_ns > (int64_t)(JOB_MS_NS * SLACK_MS * JOB_SLOWNESS)) {
        fail_msg("rank %d returned %.3f s off the deadline", rank, (double)late_ns / 1e9);
    }
    assert_true(report->closed_ns - report->closing_ns < JOB_CLOSE_NS * JOB_SLOWNESS);
}

static void stand(struct plan plan)
{
    plan.timeout_ms = TIMEOUT_MS;
    plan.log_fd = job_log_open();
    struct harness *harness = start(&plan);
    for (int rank = 0; rank < plan.ranks; rank++) {
        if (rank != plan.victim) {
            assert_harness(harness, harness_wait_rank(harness, rank, 10000));
        }
    }
    assert_harness(harness, harness_kill(harness, plan.victim, SIGKILL));
    assert_harness(harness, harness_wait(harness, 2000));
    for (int rank = 0; rank < plan.ranks; rank++) {
        if (rank != plan.victim) {
            check_timeout(harness, &plan, rank);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    close(plan.log_fd);
    harness_close(harness);
}

static void at_the_deadline_the_stopped_rank_is_named(void **state)
{
    (void)state;
    stand((struct plan){.ranks = 3, .victim = 2, .join = "auto", .degree = "64"});
    stand((struct plan){.ranks = 3, .victim = 1, .join = "direct", .degree = "64"});
}

static void at_the_deadline_the_stopped_root_is_named(void **state)
{
    (void)state;
    stand((struct plan){.ranks = 3, .victim = 0, .join = "auto", .degree = "64"});
}

static void at_the_deadline_the_silent_sender_is_named(void **state)
{
    (void)state;
    stand((struct plan){.ranks = 3, .victim = 1, .is_recv = true, .join = "auto", .degree = "64"});
}

/* The rank that gathers knows who is absent, whatever its number. */
static void also_when_the_root_is_not_rank_0(void **state)
{
    (void)state;
    stand((struct plan){.ranks = 4, .victim = 1, .root = 2, .join = "auto", .degree = "64"});
}

/* Ranks 3 and 4 hang below rank 1, 5 and 6 below rank 2: rank 1 is there, only rank 3 is not. */
static void in_a_deep_tree_the_stopped_leaf_is_named_not_its_parent(void **state)
{
    (void)state;
    stand((struct plan){.ranks = 7, .victim = 3, .join = "auto", .degree = "2"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_stopped_for_two_seconds_is_waited_for_with_one_warning),
        cmocka_unit_test(over_tcp_too),
        cmocka_unit_test(at_the_deadline_the_stopped_rank_is_named),
        cmocka_unit_test(at_the_deadline_the_stopped_root_is_named),
        cmocka_unit_test(at_the_deadline_the_silent_sender_is_named),
        cmocka_unit_test(also_when_the_root_is_not_rank_0),
        cmocka_unit_test(in_a_deep_tree_the_stopped_leaf_is_named_not_its_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
