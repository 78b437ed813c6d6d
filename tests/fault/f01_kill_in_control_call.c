/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank dies or leaves while the others wait for it: every survivor hears of it by name within a
 * second, closes within a second, and keeps nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <signal.h>

enum call { CALL_BARRIER, CALL_ALLGATHER, CALL_RECV, CALL_BROADCAST };
enum end { END_KILLED, END_EXIT, END_CLOSE };

struct plan {
    enum call call;
    enum end end;
    int ranks, victim, root;
    const char *join, *degree;
};

#define INSIDE 0   /* how many are about to call */
#define GO 1       /* the victim leaves */
#define LATE 2     /* the late rank calls */
#define RETURNED 3 /* how many survivors know: only then they close, for closing is news too */

static weft_status_t make_call(weft_comm_t comm, int rank, const struct plan *plan)
{
    uint64_t mine = (uint64_t)rank;
    uint64_t all[JOB_RANKS_MAX];
    switch (plan->call) {
    case CALL_BARRIER:
        return weft_control_barrier(comm);
    case CALL_ALLGATHER:
        return weft_control_allgather(comm, &mine, sizeof(mine), all);
    case CALL_RECV:
        return weft_control_recv(comm, plan->victim, 7, all, sizeof(all), NULL);
    case CALL_BROADCAST:
        return weft_control_broadcast(comm, &mine, sizeof(mine), plan->victim);
    }
    return WEFT_ERR_INVALID;
}

/* The victim of a kill is inside the call; somebody else is late, or the call would succeed. */
static int late_rank(const struct plan *plan)
{
    return plan->victim == plan->ranks - 1 ? plan->ranks - 2 : plan->ranks - 1;
}

static int victim_body(struct harness_shared *shared, const struct plan *plan, weft_comm_t comm)
{
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (plan->end == END_KILLED && plan->call != CALL_RECV) {
        make_call(comm, plan->victim, plan); /* never returns */
    }
    if (!harness_wait_for(&shared->word[GO], 1, 10000)) {
        return -1;
    }
    if (plan->end == END_EXIT) {
        exit(0); /* without closing */
    }
    job_close(plan->victim, shared, comm);
    return 0;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_config_t config = job_config(5000, 20000);
    weft_comm_t comm;
    setenv("WEFT_JOIN", plan->join, 1);
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    weft_status_t status = job_join(rank, plan->root, shared, &config, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    if (rank == plan->victim) {
        return victim_body(shared, plan, comm);
    }
    if (rank == late_rank(plan) && plan->end == END_KILLED) {
        harness_wait_for(&shared->word[LATE], 1, 10000);
    } else {
        atomic_fetch_add(&shared->word[INSIDE], 1);
    }
    job_calls(rank, shared);
    status = make_call(comm, rank, plan);
    job_returned(rank, shared, status);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], (uint32_t)shared->ranks - 1, 10000);
    job_close(rank, shared, comm);
    return (int)status;
}

static void check_survivor(struct harness *harness, const struct plan *plan, int rank,
                           uint64_t end_ns)
{
    const struct job_report *report = job_report(harness, rank);
    const char *text = harness_result(harness, rank)->text;
    char name[32];
    snprintf(name, sizeof(name), "rank %d (", plan->victim);
    if (report->status != WEFT_ERR_PEER || strstr(text, name) == NULL) {
        fail_msg("rank %d returned %d: %s", rank, report->status, text);
    }
    if (plan->end == END_EXIT && strstr(text, "closed") == NULL) {
        fail_msg("rank %d does not hear that the other one closed: %s", rank, text);
    }
    /* its good-bye says so, not the end of its connection */
    if (plan->end == END_CLOSE && strstr(text, "closed its communicator") == NULL &&
        strstr(text, "closed or died") == NULL) {
        fail_msg("rank %d does not hear that the other one closed: %s", rank, text);
    }
    uint64_t since_ns = report->called_ns > end_ns ? report->called_ns : end_ns;
    if (report->returned_ns > since_ns + JOB_CLOSE_NS * JOB_SLOWNESS) {
        fail_msg("rank %d returned after %.3f s", rank,
                 (double)(report->returned_ns - since_ns) / 1e9);
    }
    if (report->closed_ns - report->closing_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
        fail_msg("rank %d closed in %.3f s", rank,
                 (double)(report->closed_ns - report->closing_ns) / 1e9);
    }
    assert_int_equal(report->close_status, WEFT_OK);
}

static void check(struct plan plan)
{
    struct harness *harness = harness_start(plan.ranks, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    uint32_t inside = (uint32_t)plan.ranks - (plan.end == END_KILLED ? 1 : 0);
    uint64_t end_ns;
    assert_harness(harness, harness_wait_for(&shared->word[INSIDE], inside, 10000));
    for (int rank = 0; rank < plan.ranks; rank++) {
        assert_harness(harness, job_wait_asleep(harness, rank, 5000));
    }
    end_ns = harness_now_ns();
    if (plan.end == END_KILLED) {
        assert_harness(harness, harness_kill(harness, plan.victim, SIGKILL));
    }
    atomic_store(&shared->word[GO], 1);
    /* What the victim contributed before it died counts: had the late rank called before the others
     * knew, the call might have succeeded. */
    if (plan.end == END_KILLED) {
        uint32_t punctual = (uint32_t)plan.ranks - 2;
        assert_harness(harness, harness_wait_for(&shared->word[RETURNED], punctual, 5000));
    }
    atomic_store(&shared->word[LATE], 1);
    assert_harness(harness, harness_wait(harness, 8000));
    for (int rank = 0; rank < plan.ranks; rank++) {
        if (rank != plan.victim) {
            check_survivor(harness, &plan, rank, end_ns);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

#define LOCAL .root = 0, .join = "auto", .degree = "64"
#define TCP .root = 0, .join = "direct", .degree = "64"
#define DEEP .root = 0, .join = "auto", .degree = "2"

static void barrier_names_the_killed_rank(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_KILLED, 4, 2, LOCAL});
    check((struct plan){CALL_BARRIER, END_KILLED, 4, 2, TCP});
}

static void barrier_names_the_killed_root(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_KILLED, 4, 0, LOCAL});
    check((struct plan){CALL_BARRIER, END_KILLED, 4, 0, TCP});
}

static void barrier_names_the_killed_root_that_is_not_rank_0(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_KILLED, 4, 2, .root = 2, .join = "auto", .degree = "64"});
    check((struct plan){CALL_BARRIER, END_KILLED, 4, 0, .root = 2, .join = "auto", .degree = "64"});
}

static void allgather_names_the_killed_rank(void **state)
{
    (void)state;
    check((struct plan){CALL_ALLGATHER, END_KILLED, 4, 1, LOCAL});
    check((struct plan){CALL_ALLGATHER, END_KILLED, 4, 0, TCP});
}

static void broadcast_names_the_killed_source(void **state)
{
    (void)state;
    check((struct plan){CALL_BROADCAST, END_KILLED, 4, 3, LOCAL});
}

static void recv_names_the_killed_sender(void **state)
{
    (void)state;
    check((struct plan){CALL_RECV, END_KILLED, 4, 2, LOCAL});
    check((struct plan){CALL_RECV, END_KILLED, 4, 0, TCP});
}

/* Ranks 3 and 4 hang below rank 1, 5 and 6 below rank 2: verdicts must cross the tree, and the
 * orphans of a dead inner rank must hear of it too. */
static void a_deep_tree_names_the_killed_inner_rank(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_KILLED, 7, 1, DEEP});
}

static void a_deep_tree_names_the_killed_leaf(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_KILLED, 7, 5, DEEP});
    check((struct plan){CALL_RECV, END_KILLED, 7, 3, DEEP});
}

static void a_deep_tree_names_the_killed_root(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_KILLED, 7, 0, DEEP});
}

static void exit_in_the_middle_is_told_as_closed(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_EXIT, 3, 1, LOCAL});
    check((struct plan){CALL_BARRIER, END_EXIT, 3, 0, TCP});
    check((struct plan){CALL_RECV, END_EXIT, 3, 2, TCP});
}

static void early_close_is_told_as_closed(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_CLOSE, 3, 1, LOCAL});
    check((struct plan){CALL_ALLGATHER, END_CLOSE, 3, 0, LOCAL});
    check((struct plan){CALL_BARRIER, END_CLOSE, 3, 2, TCP});
    check((struct plan){CALL_RECV, END_CLOSE, 3, 0, TCP});
}

static void early_close_in_a_deep_tree_is_told_as_closed(void **state)
{
    (void)state;
    check((struct plan){CALL_BARRIER, END_CLOSE, 7, 5, DEEP});
    check((struct plan){CALL_RECV, END_CLOSE, 7, 4, DEEP});
}

/* ---- two at once ---- */

static int pair_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 20000);
    weft_comm_t comm;
    (void)arg;
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    if (rank == 4) {
        atomic_fetch_add(&shared->word[INSIDE], 1);
        harness_wait_for(&shared->word[GO], 1, 10000);
    } else {
        atomic_fetch_add(&shared->word[INSIDE], 1);
    }
    int status = job_returned(rank, shared, weft_control_barrier(comm));
    job_close(rank, shared, comm);
    return status;
}

static void two_ranks_killed_at_once_give_one_verdict_to_all(void **state)
{
    (void)state;
    struct harness *harness = harness_start(5, pair_body, NULL);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[INSIDE], 5, 10000));
    for (int rank = 0; rank < 4; rank++) {
        assert_harness(harness, job_wait_asleep(harness, rank, 5000));
    }
    uint64_t end_ns = harness_now_ns();
    assert_harness(harness, harness_kill(harness, 1, SIGKILL));
    assert_harness(harness, harness_kill(harness, 3, SIGKILL));
    assert_harness(harness, harness_wait_rank(harness, 0, 5000));
    assert_harness(harness, harness_wait_rank(harness, 2, 5000));
    for (int rank = 0; rank <= 2; rank += 2) {
        const char *text = harness_result(harness, rank)->text;
        assert_int_equal(job_report(harness, rank)->status, WEFT_ERR_PEER);
        assert_true(strstr(text, "rank 1 (") != NULL || strstr(text, "rank 3 (") != NULL);
        assert_true(job_report(harness, rank)->returned_ns - end_ns < JOB_CLOSE_NS * JOB_SLOWNESS);
    }
    assert_string_equal(harness_result(harness, 0)->text, harness_result(harness, 2)->text);
    atomic_store(&shared->word[GO], 1); /* rank 0 has closed by now: the verdict stays the first */
    assert_harness(harness, harness_wait(harness, 5000));
    assert_string_equal(harness_result(harness, 0)->text, harness_result(harness, 4)->text);
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

/* ---- who does not wait for the dead ---- */

static int bystander_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 20000);
    weft_comm_t comm, part;
    int word = 0;
    (void)arg;
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK ||
        weft_comm_split(comm, rank == 3, rank, &part) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    harness_wait_for(&shared->word[GO], 1, 10000);
    if (rank == 3) {
        return -1;
    }
    /* The communicator with the dead rank has ended; the one without it goes on. */
    weft_status_t whole = weft_control_barrier(comm);
    job_returned(rank, shared, whole);
    weft_status_t half = weft_control_broadcast(part, &word, sizeof(word), 0);
    weft_status_t status = weft_comm_status(comm);
    weft_comm_close(part);
    weft_comm_close(comm);
    if (whole != WEFT_ERR_PEER || status != WEFT_ERR_PEER || half != WEFT_OK) {
        return harness_say(shared, rank, -1, "whole %d, its status %d, half %d", whole, status,
                           half);
    }
    return 0;
}

static void a_part_without_the_dead_rank_goes_on(void **state)
{
    (void)state;
    struct harness *harness = harness_start(4, bystander_body, NULL);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[INSIDE], 4, 10000));
    assert_harness(harness, harness_kill(harness, 3, SIGKILL));
    assert_harness(harness, harness_wait_rank(harness, 3, 5000));
    atomic_store(&shared->word[GO], 1);
    assert_harness(harness, harness_wait(harness, 8000));
    for (int rank = 0; rank < 3; rank++) {
        if (harness_result(harness, rank)->status != 0) {
            fail_msg("rank %d: %s", rank, harness_result(harness, rank)->text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier_names_the_killed_rank),
        cmocka_unit_test(barrier_names_the_killed_root),
        cmocka_unit_test(barrier_names_the_killed_root_that_is_not_rank_0),
        cmocka_unit_test(allgather_names_the_killed_rank),
        cmocka_unit_test(broadcast_names_the_killed_source),
        cmocka_unit_test(recv_names_the_killed_sender),
        cmocka_unit_test(a_deep_tree_names_the_killed_inner_rank),
        cmocka_unit_test(a_deep_tree_names_the_killed_leaf),
        cmocka_unit_test(a_deep_tree_names_the_killed_root),
        cmocka_unit_test(exit_in_the_middle_is_told_as_closed),
        cmocka_unit_test(early_close_is_told_as_closed),
        cmocka_unit_test(early_close_in_a_deep_tree_is_told_as_closed),
        cmocka_unit_test(two_ranks_killed_at_once_give_one_verdict_to_all),
        cmocka_unit_test(a_part_without_the_dead_rank_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
