/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Abort while ranks are in collectives: every call on every rank ends with ERR_ABORTED and the reason within
 * a second, also of the thread that makes it; and after an error, whichever, nothing touches the memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#include <pthread.h>

#define RANKS 3
#define SMALL ((size_t)32)
#define LARGE ((size_t)16 << 20)

#define INSIDE 0
#define GO 1
#define RETURNED 2
#define ROUNDS 3

enum end { END_ABORT, END_KILL, END_TIMEOUT, ENDS };
static const char *const end_names[ENDS] = {"abort", "death", "deadline"};

struct plan {
    const char *path;
    struct deed deed;
    bool is_threads; /* the ranks are */
    int absent;      /* a rank that never calls, so that the others stand; -1: none */
    enum end end;
};

struct aborter {
    struct harness_shared *shared;
    weft_comm_t comm;
    weft_status_t status;
};

static void *run_aborter(void *arg)
{
    struct aborter *aborter = arg;
    harness_wait_for(&aborter->shared->word[GO], 1, MESSAGES_WAIT_MS);
    aborter->status = weft_abort(aborter->comm, "the test said so");
    return NULL;
}

static weft_status_t call_on(weft_comm_t comm, const struct plan *plan, const struct hands *hands,
                             int rank, struct harness_shared *shared)
{
    weft_status_t status = WEFT_OK;
    if (rank == plan->absent) {
        harness_wait_reach(&shared->word[RETURNED], RANKS - 1, MESSAGES_WAIT_MS);
    }
    while (status == WEFT_OK) {
        job_calls(rank, shared);
        status = deed_do(comm, &plan->deed, hands, RANKS);
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    }
    return status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct aborter aborter = {.shared = shared};
    struct hands hands;
    pthread_t thread = 0;
    weft_status_t status =
        messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &aborter.comm);
    if (status != WEFT_OK ||
        (rank == 1 && pthread_create(&thread, NULL, run_aborter, &aborter) != 0)) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    hands_open(&hands, &plan->deed);
    atomic_fetch_add(&shared->word[INSIDE], 1);
    status = call_on(aborter.comm, plan, &hands, rank, shared);
    job_returned(rank, shared, status);
    if (rank == 1) {
        pthread_join(thread, NULL);
    }
    bool is_ended = weft_comm_status(aborter.comm) == WEFT_ERR_ABORTED &&
                    weft_barrier(aborter.comm, NULL) == WEFT_ERR_ABORTED;
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_for(&shared->word[RETURNED], RANKS, MESSAGES_WAIT_MS);
    job_close(rank, shared, aborter.comm);
    hands_close(&hands);
    return aborter.status == WEFT_OK && is_ended ? 0 : -1;
}

static void check_abort(struct plan plan)
{
    char what[160];
    struct harness *harness;
    struct messages_verdict verdict = {WEFT_ERR_ABORTED, 1, "the test said so", 0};
    messages_set("WEFT_PATH", plan.path);
    messages_set("WEFT_LOG", "error");
    harness = plan.is_threads ? harness_start_threads(RANKS, body, &plan)
                              : harness_start(RANKS, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    deed_describe(&plan.deed, plan.path, what, sizeof(what));
    collectives_await(harness, &shared->word[INSIDE], RANKS, what);
    if (plan.absent < 0) {
        collectives_await(harness, &shared->word[ROUNDS], RANKS, what);
    }
    messages_let_pass(3); /* so that calls stand, most of the time; right either way */
    verdict.since_ns = harness_now_ns();
    atomic_store(&shared->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < RANKS; rank++) {
        messages_check_verdict(harness, rank, &verdict, what);
    }
    messages_check_fine(harness, what);
    harness_close(harness);
}

static void abort_ends_every_collective_on_all_ranks(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
            struct deed deed = {coll, SMALL, MANNER_BLOCKING, false, 0};
            check_abort((struct plan){messages_paths[path], deed, false, -1, END_ABORT});
            deed.len = LARGE;
            check_abort((struct plan){messages_paths[path], deed, false, -1, END_ABORT});
        }
    }
}

static void abort_ends_calls_that_wait_for_somebody(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum manner manner = MANNER_BLOCKING; manner < MANNERS; manner++) {
            struct deed deed = {WEFT_ALLREDUCE, SMALL, manner, false, 0};
            check_abort((struct plan){messages_paths[path], deed, false, 2, END_ABORT});
            deed.len = LARGE;
            check_abort((struct plan){messages_paths[path], deed, false, 0, END_ABORT});
        }
    }
}

static void abort_ends_calls_of_ranks_that_are_threads(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct deed deed = {WEFT_ALLREDUCE, SMALL, MANNER_BLOCKING, false, 0};
        check_abort((struct plan){messages_paths[path], deed, true, 2, END_ABORT});
        check_abort((struct plan){messages_paths[path], deed, true, -1, END_ABORT});
        deed.len = LARGE / 4;
        check_abort((struct plan){messages_paths[path], deed, true, -1, END_ABORT});
    }
}

/* ---- memory after an error ---- */

/* The third rank ends it all. */
static int end_it(weft_comm_t comm, struct harness_shared *shared, const struct plan *plan,
                  struct hands *hands)
{
    weft_status_t status = WEFT_OK;
    while (status == WEFT_OK && atomic_load(&shared->word[GO]) == 0) {
        status = deed_do(comm, &plan->deed, hands, RANKS);
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    }
    if (plan->end == END_KILL) {
        raise(SIGKILL);
    } else if (plan->end == END_ABORT) {
        status = weft_abort(comm, "enough");
    }
    harness_wait_for(&shared->word[RETURNED], 4, MESSAGES_WAIT_MS); /* and never comes again */
    weft_comm_close(comm);
    hands_close(hands);
    return (int)status;
}

static bool is_kept(const struct hands *hands)
{
    for (size_t i = 0; i < hands->len; i++) {
        if (hands->in[i] != 0xa5 || hands->out[i] != 0xa5) {
            return false;
        }
    }
    return true;
}

static int memory_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct hands hands;
    weft_comm_t comm;
    weft_status_t status = messages_join(
        rank, shared, plan->path, plan->end == END_TIMEOUT ? 1500 : MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    hands_open(&hands, &plan->deed);
    if (rank == 2) {
        return end_it(comm, shared, plan, &hands);
    }
    while (status == WEFT_OK) {
        status = deed_do(comm, &plan->deed, &hands, RANKS);
    }
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status), weft_error_text());
    memset(hands.in, 0xa5, hands.len); /* ours again */
    memset(hands.out, 0xa5, hands.len);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], 2, MESSAGES_WAIT_MS);
    messages_let_pass(50); /* the stretch that is watched */
    bool is_quiet = is_kept(&hands);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_for(&shared->word[RETURNED], 4, MESSAGES_WAIT_MS);
    weft_comm_close(comm);
    hands_close(&hands);
    if (!is_quiet) {
        return harness_say(shared, rank, -1, "memory was touched after the error");
    }
    return status == WEFT_ERR_ABORTED || status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_PEER ? 0
                                                                                               : -1;
}

static void check_memory(struct plan plan, unsigned pause_us)
{
    char deed[128], what[160];
    struct harness *harness = harness_start(RANKS, memory_body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    uint64_t until_ns;
    deed_describe(&plan.deed, plan.path, deed, sizeof(deed));
    snprintf(what, sizeof(what), "%s of %s", end_names[plan.end], deed);
    collectives_await(harness, &shared->word[ROUNDS], 2, what);
    until_ns = harness_now_ns() + pause_us * UINT64_C(1000);
    harness_wait_until(messages_is_past, &until_ns, 1000);
    atomic_store(&shared->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < (plan.end == END_ABORT ? 3 : 2); rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (!result->is_returned || result->status != 0) {
            fail_msg("%s: rank %d: %d, %s", what, rank, result->status, result->text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void after_an_error_nothing_touches_the_memory(void **state)
{
    static const weft_coll_t colls[] = {WEFT_ALLREDUCE, WEFT_ALLGATHER, WEFT_BROADCAST,
                                        WEFT_ALLTOALL};
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (size_t i = 0; i < 8; i++) {
            struct deed deed = {colls[i / 2], LARGE, MANNER_BLOCKING,
                                i % 2 == 0 && messages_paths[path][0] == 's', 2};
            for (enum end end = 0; end < (i == 0 ? ENDS : END_TIMEOUT); end++) {
                check_memory((struct plan){messages_paths[path], deed, false, -1, end},
                             (unsigned)i * 1300);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_ends_every_collective_on_all_ranks),
        cmocka_unit_test(abort_ends_calls_that_wait_for_somebody),
        cmocka_unit_test(abort_ends_calls_of_ranks_that_are_threads),
        cmocka_unit_test(after_an_error_nothing_touches_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
