/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that make different calls all hear of it, and of both calls, whoever came first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#define RANKS_MAX 7

enum kind { BARRIER, ALLGATHER, BROADCAST };

struct call {
    enum kind kind;
    size_t len;
    int root;
};

struct plan {
    int ranks;
    struct call call[RANKS_MAX];
    int order[RANKS_MAX]; /* who calls when; each sleeps in its call before the next one calls */
    const char *degree;
    const char *words[2]; /* both calls, as the text must name them */
};

static weft_status_t make_call(weft_comm_t comm, const struct call *call)
{
    uint8_t mine[64] = {0}, all[64 * RANKS_MAX];
    switch (call->kind) {
    case BARRIER:
        return weft_control_barrier(comm);
    case ALLGATHER:
        return weft_control_allgather(comm, mine, call->len, all);
    case BROADCAST:
        return weft_control_broadcast(comm, mine, call->len, call->root);
    }
    return WEFT_ERR_INVALID;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_config_t config = job_config(5000, 3000);
    weft_comm_t comm;
    uint32_t turn = 0;
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    while (plan->order[turn] != rank) {
        turn++;
    }
    harness_wait_reach(&shared->word[0], turn + 1, 10000);
    atomic_fetch_add(&shared->word[1], 1);
    int status = job_returned(rank, shared, make_call(comm, &plan->call[rank]));
    weft_status_t after = weft_comm_status(comm);
    job_close(rank, shared, comm);
    return after == WEFT_ERR_MISMATCH || status != WEFT_ERR_MISMATCH ? status : -1;
}

struct turn {
    const struct harness *harness;
    int rank;
};

/* It sleeps in its call, or has its error already. */
static bool is_through(void *arg)
{
    const struct turn *turn = arg;
    pid_t pid = harness_pid(turn->harness, turn->rank);
    return harness_result(turn->harness, turn->rank)->is_returned || job_is_asleep(&pid);
}

static void check(struct plan plan)
{
    struct harness *harness = harness_start(plan.ranks, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness,
                   harness_wait_for(&shared->word[JOB_READY_WORD], (uint32_t)plan.ranks, 5000));
    for (int turn = 0; turn < plan.ranks; turn++) {
        atomic_store(&shared->word[0], (uint32_t)turn + 1);
        assert_harness(harness, harness_wait_reach(&shared->word[1], (uint32_t)turn + 1, 5000));
        struct turn at = {harness, plan.order[turn]};
        assert_harness(harness, harness_wait_until(is_through, &at, 5000));
    }
    assert_harness(harness, harness_wait(harness, 8000));
    assert_harness(harness, harness_check_status(harness, WEFT_ERR_MISMATCH));
    for (int rank = 0; rank < plan.ranks; rank++) {
        const char *text = harness_result(harness, rank)->text;
        if (strstr(text, plan.words[0]) == NULL || strstr(text, plan.words[1]) == NULL) {
            fail_msg("rank %d does not hear of both calls: %s", rank, text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void different_collectives(void **state)
{
    struct plan plan = {.ranks = 3,
                        .call = {{BARRIER, 0, 0}, {BARRIER, 0, 0}, {ALLGATHER, 8, 0}},
                        .order = {0, 1, 2},
                        .degree = "64",
                        .words = {"barrier #0", "allgather #0 of 8 B"}};
    (void)state;
    check(plan);
    plan.order[0] = 2;
    plan.order[2] = 0;
    check(plan);
}

static void different_lengths(void **state)
{
    (void)state;
    check((struct plan){.ranks = 3,
                        .call = {{ALLGATHER, 8, 0}, {ALLGATHER, 16, 0}, {ALLGATHER, 8, 0}},
                        .order = {2, 0, 1},
                        .degree = "64",
                        .words = {"of 8 B", "of 16 B"}});
}

static void different_roots(void **state)
{
    (void)state;
    check((struct plan){.ranks = 3,
                        .call = {{BROADCAST, 8, 1}, {BROADCAST, 8, 1}, {BROADCAST, 8, 2}},
                        .order = {0, 1, 2},
                        .degree = "64",
                        .words = {"from rank 1", "from rank 2"}});
}

/* The root agrees with one of the two that came before it; both calls are still named. */
static void two_that_differ_before_the_root_comes(void **state)
{
    struct plan plan = {.ranks = 3,
                        .call = {{ALLGATHER, 8, 0}, {BARRIER, 0, 0}, {ALLGATHER, 8, 0}},
                        .order = {1, 2, 0},
                        .degree = "64",
                        .words = {"barrier #0", "allgather #0"}};
    (void)state;
    check(plan);
    plan.order[0] = 2;
    plan.order[1] = 1;
    check(plan);
}

/* Rank 5 hangs below rank 2, which finds the difference; ranks 0, 1, 3 and 4 hear of it. */
static void deep_in_the_tree(void **state)
{
    struct plan plan = {.ranks = 7, .order = {0, 1, 2, 3, 4, 6, 5}, .degree = "2"};
    (void)state;
    plan.call[5] = (struct call){BROADCAST, 4, 0};
    plan.words[0] = "barrier #0";
    plan.words[1] = "broadcast #0 of 4 B from rank 0";
    check(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(different_collectives),
        cmocka_unit_test(different_lengths),
        cmocka_unit_test(different_roots),
        cmocka_unit_test(two_that_differ_before_the_root_comes),
        cmocka_unit_test(deep_in_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
