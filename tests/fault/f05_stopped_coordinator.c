/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator, or whoever passes words on, stands still while something happens to another rank: the others hear of
 * it all the same, with one verdict, and so does the stopped one when it goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <signal.h>

#define RANKS 7
#define WITNESS 5 /* never stopped, nothing ever happens to it */
#define WAITS                                                                                      \
    4 /* for a message of the actor, if it is not that itself; the others are in a collective */
#define LONG_NS UINT64_C(1200000000)
#define LIMIT_NS (UINT64_C(1500000000) * JOB_SLOWNESS) /* 1 s, on a machine that others use too */

#define READY 0
#define GO 1
#define RETURNED 2
#define CONTINUED 3
#define LEAVE 4
#define VERDICT 8 /* + rank: number */

enum deed { DIES, ABORTS, CLOSES };

struct plan {
    const char *path;
    const char *degree; /* of the tree */
    enum deed deed;
    int stopped, actor;
    int leaver;    /* closes and ends before; 0: nobody does */
    bool is_early; /* the stopped one stands still for long before */
    bool is_new;   /* it stops so soon after the start that nobody can be its child yet */
};

static weft_status_t sum(weft_comm_t comm)
{
    int32_t in = 1, out = 0;
    return weft_allreduce(comm, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL);
}

static weft_status_t await_word(weft_comm_t comm, int from)
{
    int32_t word;
    return weft_recv(comm, &word, sizeof(word), from, 7, NULL, NULL);
}

static int act(int rank, struct harness_shared *shared, const struct plan *plan, weft_comm_t comm)
{
    weft_status_t status = WEFT_OK;
    if (plan->deed == DIES) {
        raise(SIGKILL);
    } else if (plan->deed == ABORTS) {
        job_calls(rank, shared);
        status = weft_abort(comm, "the test said so");
        job_returned(rank, shared, status);
        harness_wait_for(&shared->word[CONTINUED], 1, MESSAGES_WAIT_MS);
    }
    weft_comm_close(comm);
    return (int)status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm;
    weft_error_t error = {0};
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? sum(comm) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[READY], 1);
    if (plan->is_new && rank == plan->stopped) {
        raise(SIGSTOP);
    }
    if (plan->leaver != 0 && rank == plan->leaver) {
        harness_wait_for(&shared->word[LEAVE], 1, MESSAGES_WAIT_MS);
        weft_comm_close(comm);
        return 0;
    }
    /* the stopped one stands here */
    harness_wait_for(&shared->word[rank == plan->stopped ? CONTINUED : GO], 1, MESSAGES_WAIT_MS);
    if (rank == plan->actor) {
        return act(rank, shared, plan, comm);
    }
    job_calls(rank, shared);
    status = plan->deed == CLOSES || rank == WAITS ? await_word(comm, plan->actor) : sum(comm);
    job_returned(rank, shared, status);
    weft_comm_get_error(comm, &error);
    atomic_store(&shared->word[VERDICT + rank], error.verdict);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_for(&shared->word[CONTINUED], 1, MESSAGES_WAIT_MS);
    harness_wait_reach(&shared->word[RETURNED], RANKS - 1 - (plan->leaver != 0), MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    return (int)status;
}

/* ---- the test ---- */

static void check_rank(struct harness *harness, const struct plan *plan, int rank)
{
    static const char *const words[] = {
        [DIES] = "closed", [ABORTS] = "the test said so", [CLOSES] = "closed"};
    static const int32_t statuses[] = {
        [DIES] = WEFT_ERR_PEER, [ABORTS] = WEFT_ERR_ABORTED, [CLOSES] = WEFT_ERR_PEER};
    const struct job_report *report = job_report(harness, rank);
    const char *text = harness_result(harness, rank)->text;
    uint32_t number = atomic_load(&harness_shared(harness)->word[VERDICT + rank]);
    uint32_t first = atomic_load(&harness_shared(harness)->word[VERDICT + WITNESS]);
    char name[32];
    snprintf(name, sizeof(name), "rank %d (", plan->actor);
    if (report->status != statuses[plan->deed] || strstr(text, name) == NULL ||
        strstr(text, words[plan->deed]) == NULL) {
        fail_msg("rank %d: does not say %s %s: %s", rank, name, words[plan->deed], text);
    }
    if (plan->deed == CLOSES && strstr(text, "ended") != NULL) {
        fail_msg("rank %d takes a closing for a death: %s", rank, text);
    }
    if (plan->deed != CLOSES && (number == 0 || number != first)) {
        fail_msg("rank %d has verdict %u, rank %d %u: %s", rank, number, WITNESS, first, text);
    }
    if (rank != plan->stopped && plan->deed != CLOSES &&
        report->returned_ns - report->called_ns > LIMIT_NS) {
        fail_msg("rank %d returned after %.3f s: %s", rank,
                 messages_seconds(report->called_ns, report->returned_ns), text);
    }
}

static bool has_been_long(void *since_ns)
{
    return harness_now_ns() - *(uint64_t *)since_ns > LONG_NS;
}

static void let_pass(void)
{
    uint64_t since_ns = harness_now_ns();
    harness_wait_until(has_been_long, &since_ns, 10000);
}

/* Its process ends, in good order, and there is time to take that for a death. */
static void let_it_leave(struct harness *harness, const struct plan *plan)
{
    assert_harness(harness, harness_wait_rank(harness, plan->actor, MESSAGES_WAIT_MS));
    let_pass();
}

static void check(struct plan plan)
{
    uint32_t others = RANKS - 2 - (plan.leaver != 0);
    struct harness *harness = harness_start(RANKS, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_reach(&shared->word[READY], RANKS, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_stop(harness, plan.stopped));
    if (plan.is_early) {
        let_pass();
    }
    if (plan.leaver != 0) {
        atomic_store(&shared->word[LEAVE], 1);
        assert_harness(harness, harness_wait_rank(harness, plan.leaver, MESSAGES_WAIT_MS));
    }
    atomic_store(&shared->word[GO], 1);
    if (plan.deed == CLOSES) {
        let_it_leave(harness, &plan);
    } else if (!harness_wait_reach(&shared->word[RETURNED], others, MESSAGES_WAIT_MS)) {
        fail_msg("of %u ranks %u have returned", others, atomic_load(&shared->word[RETURNED]));
    }
    atomic_store(&shared->word[CONTINUED], 1);
    assert_harness(harness, harness_continue(harness, plan.stopped));
    messages_wait(harness, MESSAGES_WAIT_MS, "a stopped coordinator");
    for (int rank = RANKS - 1; rank >= 0; rank--) {
        if (rank != plan.actor && (plan.leaver == 0 || rank != plan.leaver)) {
            check_rank(harness, &plan, rank);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void a_death_is_heard_while_the_coordinator_stands_still(void **state)
{
    for (int i = 0; i < 2; i++) {
        check((struct plan){
            .path = *state, .degree = "64", .deed = DIES, .actor = 3, .is_early = i == 1});
    }
    check((struct plan){.path = *state, .degree = "64", .deed = DIES, .actor = 1});
}

static void an_abort_is_heard_while_the_coordinator_stands_still(void **state)
{
    for (int i = 0; i < 2; i++) {
        check((struct plan){
            .path = *state, .degree = "64", .deed = ABORTS, .actor = 2, .is_early = i == 1});
    }
    check((struct plan){.path = *state, .degree = "64", .deed = ABORTS, .actor = 1});
}

static void a_closing_is_no_death_while_the_coordinator_stands_still(void **state)
{
    for (int actor = 1; actor <= 4; actor += 3) { /* also of the one that stands in */
        check((struct plan){.path = *state, .degree = "64", .deed = CLOSES, .actor = actor});
        check((struct plan){
            .path = *state, .degree = "64", .deed = CLOSES, .actor = actor, .is_early = true});
    }
}

/* Ranks 3 and 4 are below rank 1, 5 and 6 below rank 2. */
static void words_go_around_a_rank_of_the_tree(void **state)
{
    check((struct plan){.path = *state, .degree = "2", .deed = DIES, .stopped = 1, .actor = 3});
    check((struct plan){.path = *state, .degree = "2", .deed = ABORTS, .stopped = 1, .actor = 4});
    check((struct plan){.path = *state, .degree = "2", .deed = ABORTS, .stopped = 1, .actor = 0});
    check((struct plan){.path = *state, .degree = "2", .deed = DIES, .actor = 6});
    check((struct plan){.path = *state, .degree = "2", .deed = DIES, .actor = 1, .is_early = true});
}

/* Who looked at the process of rank 3 was rank 2. */
static void a_death_is_heard_when_who_would_have_seen_it_has_left(void **state)
{
    check((struct plan){
        .path = *state, .degree = "64", .deed = DIES, .leaver = 2, .actor = 3, .is_early = true});
}

/* Rank 1 would coordinate; rank 2 does, until it goes on. */
static void the_root_dies_while_the_next_one_stands_still(void **state)
{
    for (int i = 0; i < 2; i++) {
        check((struct plan){
            .path = *state, .degree = "64", .deed = DIES, .stopped = 1, .is_early = i == 1});
    }
    check(
        (struct plan){.path = *state, .degree = "64", .deed = DIES, .stopped = 1, .is_new = true});
}

int main(void)
{
    static char shm[] = "shm", tcp[] = "tcp";
    const struct CMUnitTest tests[] = {
        {"a_death_is_heard_while_the_coordinator_stands_still",
         a_death_is_heard_while_the_coordinator_stands_still, NULL, NULL, shm},
        {"a_death_over_tcp_is_heard_while_the_coordinator_stands_still",
         a_death_is_heard_while_the_coordinator_stands_still, NULL, NULL, tcp},
        {"an_abort_is_heard_while_the_coordinator_stands_still",
         an_abort_is_heard_while_the_coordinator_stands_still, NULL, NULL, shm},
        {"a_closing_is_no_death_while_the_coordinator_stands_still",
         a_closing_is_no_death_while_the_coordinator_stands_still, NULL, NULL, shm},
        {"words_go_around_a_rank_of_the_tree", words_go_around_a_rank_of_the_tree, NULL, NULL, shm},
        {"a_death_is_heard_when_who_would_have_seen_it_has_left",
         a_death_is_heard_when_who_would_have_seen_it_has_left, NULL, NULL, shm},
        {"the_root_dies_while_the_next_one_stands_still",
         the_root_dies_while_the_next_one_stands_still, NULL, NULL, shm},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
