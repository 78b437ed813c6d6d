/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks are killed inside a collective: every survivor returns ERR_PEER within a second and names a dead one, its
 * host and the operation; closing takes no longer, and nothing is left behind. Who is killed when, in which call,
 * is the test's.
 */
#ifndef WEFT_TESTS_FAULT_KILL_H
#define WEFT_TESTS_FAULT_KILL_H

#include "fault/collectives.h"

#define KILL_ROUNDS 0   /* calls that ended well, of all ranks */
#define KILL_RETURNED 1 /* how many survivors know: only then they close, for closing is news too */
#define KILL_DEAD 2     /* the victim has ended */
#define KILL_INSIDE 3   /* how many are about to call */
#define KILL_CHILD 4    /* the process that the victim forked; 0: none */

struct kill_plan {
    const char *path;
    struct deed deed;
    int ranks, victim;
    bool is_absent;    /* the victim never calls; else it dies somewhere in the middle */
    unsigned pause_us; /* of the kill, so that it falls into another moment */
    bool has_child;    /* the victim has forked a process that outlives it */
    int second; /* killed too, gap_us later; 0: nobody, for it comes after the victim in number */
    unsigned gap_us;
    bool is_one_verdict;       /* all hear the same, word for word */
    const char *join, *degree; /* NULL: as ever */
};

/* ---- ranks ---- */

static inline bool kill_is_victim(const struct kill_plan *plan, int rank)
{
    return rank == plan->victim || (plan->second > 0 && rank == plan->second);
}

/* A worker of a data loader: it holds whatever a fork leaves it, and sleeps. */
static inline void kill_fork_sleeper(struct harness_shared *shared)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* should nobody end it */
        for (;;) {
            pause();
        }
    }
    atomic_store(&shared->word[KILL_CHILD], (uint32_t)(child > 0 ? child : 0));
}

static inline int kill_be_victim(weft_comm_t comm, int rank, struct harness_shared *shared,
                                 const struct kill_plan *plan, const struct hands *hands)
{
    weft_status_t status = WEFT_OK;
    while (status == WEFT_OK && !plan->is_absent) {
        status = deed_do(comm, &plan->deed, hands, plan->ranks);
    }
    harness_wait_for(&shared->word[KILL_DEAD], 1, MESSAGES_WAIT_MS); /* killed here, or before */
    return harness_say(shared, rank, -1, "it lives: %s", weft_error_text());
}

/* The communicator has ended, for good. */
static inline bool kill_is_over(weft_comm_t comm, weft_status_t status)
{
    weft_comm_t child = NULL;
    int32_t in = 1, out = 0;
    return messages_final_status(comm) == status &&
           weft_allreduce(comm, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL) == status &&
           weft_barrier(comm, NULL) == status && weft_comm_duplicate(comm, &child) == status;
}

static inline void kill_set(const struct kill_plan *plan)
{
    if (plan->join != NULL) {
        setenv("WEFT_JOIN", plan->join, 1);
    }
    if (plan->degree != NULL) {
        setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    }
}

static inline int kill_body(int number, struct harness_shared *shared, void *arg)
{
    const struct kill_plan *plan = arg;
    uint32_t survivors = (uint32_t)shared->ranks - (plan->second > 0 ? 2 : 1);
    struct hands hands;
    weft_comm_t comm;
    kill_set(plan);
    weft_status_t status = messages_join(number, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, number, -1, "could not start: %s", weft_error_text());
    }
    hands_open(&hands, &plan->deed);
    if (number == plan->victim && plan->has_child) {
        kill_fork_sleeper(shared);
    }
    atomic_fetch_add(&shared->word[KILL_INSIDE], 1);
    if (kill_is_victim(plan, number)) {
        int result = kill_be_victim(comm, number, shared, plan, &hands);
        hands_close(&hands);
        return result;
    }
    do {
        job_calls(number, shared);
        status = deed_do(comm, &plan->deed, &hands, plan->ranks);
        atomic_fetch_add(&shared->word[KILL_ROUNDS], 1);
    } while (status == WEFT_OK);
    job_returned(number, shared, status);
    atomic_fetch_add(&shared->word[KILL_RETURNED], 1);
    harness_wait_reach(&shared->word[KILL_RETURNED], survivors, MESSAGES_WAIT_MS);
    if (!kill_is_over(comm, status)) {
        harness_say(shared, number, 0, "%s, but then: %s", weft_status_name(status),
                    weft_error_text());
        job_board(shared)->report[number].status = WEFT_ERR_BUSY;
    }
    job_close(number, shared, comm);
    hands_close(&hands);
    return (int)status;
}

/* ---- the test ---- */
#ifdef CMOCKA_H_

static inline void kill_describe(const struct kill_plan *plan, char *what, size_t room)
{
    char deed[128], second[64] = "";
    deed_describe(&plan->deed, plan->path, deed, sizeof(deed));
    if (plan->second > 0) {
        snprintf(second, sizeof(second), " and, %u us later, rank %d", plan->gap_us, plan->second);
    }
    snprintf(what, room, "%s, rank %d of %d %s%s%s", deed, plan->victim, plan->ranks,
             plan->is_absent ? "outside" : "inside", plan->has_child ? " with a child" : "",
             second);
}

static inline void kill_let_pass(unsigned us)
{
    uint64_t until_ns = harness_now_ns() + us * UINT64_C(1000);
    harness_wait_until(messages_is_past, &until_ns, 1000);
}

static inline void kill_at_the_moment(struct harness *harness, const struct kill_plan *plan,
                                      const char *what)
{
    struct harness_shared *shared = harness_shared(harness);
    uint32_t rounds = plan->is_absent ? 0 : (uint32_t)plan->ranks * 2;
    collectives_await(harness, &shared->word[KILL_INSIDE], (uint32_t)plan->ranks, what);
    collectives_await(harness, &shared->word[KILL_ROUNDS], rounds, what);
    kill_let_pass(plan->pause_us);
    assert_harness(harness, harness_kill(harness, plan->victim, SIGKILL));
    if (plan->second > 0) {
        kill_let_pass(plan->gap_us);
        assert_harness(harness, harness_kill(harness, plan->second, SIGKILL));
    }
}

/* In a group a barrier follows the call, and may be what stands. */
static inline const char *kill_word(const struct kill_plan *plan)
{
    return plan->deed.manner == MANNER_GROUP ? " #" : weft_coll_name(plan->deed.coll);
}

static inline void kill_check_survivor(struct harness *harness, const struct kill_plan *plan,
                                       int rank, uint64_t since_ns, const char *what)
{
    const char *text = harness_result(harness, rank)->text;
    struct messages_verdict verdict = {WEFT_ERR_PEER, plan->victim, kill_word(plan), since_ns};
    char host[72], place[80];
    const char *at;
    if (plan->second > 0 && !messages_names(text, plan->victim)) {
        verdict.blamed = plan->second;
    }
    messages_check_verdict(harness, rank, &verdict, what);
    gethostname(host, sizeof(host));
    snprintf(place, sizeof(place), " on %.64s", host);
    at = strstr(text, place); /* behind it the address, if there is one */
    if (at == NULL || strchr("),", at[strlen(place)]) == NULL) {
        fail_msg("%s: rank %d does not name the host: %s", what, rank, text);
    }
}

/* Who reaches the coordinator gets its verdict, and no other. Where ranks of the tree died in between, some do not. */
static inline void kill_check_one_verdict(struct harness *harness, const struct kill_plan *plan,
                                          const char *what)
{
    const char *first = NULL;
    for (int rank = 0; rank < plan->ranks && plan->is_one_verdict; rank++) {
        const char *text = harness_result(harness, rank)->text;
        if (kill_is_victim(plan, rank)) {
            continue;
        }
        /* The number of the call in front of it may differ: some were one call ahead. */
        const char *verdict = strstr(text, ": rank ");
        verdict = verdict != NULL ? verdict : text;
        if (first != NULL && strcmp(first, verdict) != 0) {
            fail_msg("%s: rank %d has another verdict%s, not%s", what, rank, verdict, first);
        }
        first = verdict;
    }
}

static inline void kill_check(struct kill_plan plan)
{
    char what[320];
    struct harness *harness = harness_start(plan.ranks, kill_body, &plan);
    kill_describe(&plan, what, sizeof(what));
    uint64_t since_ns;
    kill_at_the_moment(harness, &plan, what);
    since_ns = harness_now_ns();
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < plan.ranks; rank++) {
        if (!kill_is_victim(&plan, rank)) {
            kill_check_survivor(harness, &plan, rank, since_ns, what);
        }
    }
    kill_check_one_verdict(harness, &plan, what);
    assert_harness(harness, harness_check_clean(harness));
    pid_t child = (pid_t)atomic_load(&harness_shared(harness)->word[KILL_CHILD]);
    if (plan.has_child && (child <= 0 || kill(child, SIGKILL) != 0)) {
        fail_msg("%s: the child did not outlive its rank", what);
    }
    harness_close(harness);
    assert_int_equal(count_dev_shm(), 0);
}

#endif
#endif
