/* SPDX-License-Identifier: Apache-2.0 */
/* A rank has done its part and stands still; what others say to each other goes over it. The deadline's words name it beside
 * those whose part does not come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <stdlib.h>

#define RANKS 5
#define CALL_MS 1500 /* more than a rank of another host would have to be silent */

#define CALLS 0
#define GO 1
#define RETURNED 2

struct plan {
    int stopped;
    const char *degree; /* of the tree */
};

/* The last rank gathers. */
static weft_status_t turn_around(weft_comm_t comm, int rank, weft_comm_t *turned_p)
{
    weft_status_t status = weft_comm_split(comm, 0, RANKS - rank, turned_p);
    return status == WEFT_OK ? weft_comm_set_timeout(*turned_p, CALL_MS) : status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm, turned;
    weft_status_t status;
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? turn_around(comm, rank, &turned) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    if (rank == plan->stopped) {
        atomic_store(&shared->word[CALLS], 1);
    } else {
        harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    }
    job_calls(rank, shared);
    status = weft_control_barrier(turned);
    job_returned(rank, shared, status);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], RANKS, MESSAGES_WAIT_MS);
    weft_comm_close(turned);
    weft_comm_close(comm);
    return (int)status;
}

static void check(struct plan plan)
{
    struct harness *harness = harness_start(RANKS, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    char name[32];
    snprintf(name, sizeof(name), "rank %d (", plan.stopped);
    assert_harness(harness, harness_wait_for(&shared->word[CALLS], 1, MESSAGES_WAIT_MS));
    assert_harness(harness, job_wait_asleep(harness, plan.stopped, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_stop(harness, plan.stopped));
    atomic_store(&shared->word[GO], 1);
    assert_harness(harness,
                   harness_wait_reach(&shared->word[RETURNED], RANKS - 1, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_continue(harness, plan.stopped));
    messages_wait(harness, MESSAGES_WAIT_MS, "a rank that stood still on the way");
    for (int rank = 0; rank < RANKS; rank++) {
        const char *text = harness_result(harness, rank)->text;
        if (job_report(harness, rank)->status != WEFT_ERR_TIMEOUT || strstr(text, name) == NULL) {
            fail_msg("rank %d of %d, degree %s, does not name %s: %s", rank, RANKS, plan.degree,
                     name, text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void the_deadline_names_the_coordinator_that_stands_still(void **state)
{
    (void)state;
    check((struct plan){.stopped = 0, .degree = "64"});
}

/* Ranks 3 and 4 are below rank 1. */
static void the_deadline_names_who_stands_still_below_the_coordinator(void **state)
{
    (void)state;
    check((struct plan){.stopped = 1, .degree = "2"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_deadline_names_the_coordinator_that_stands_still),
        cmocka_unit_test(the_deadline_names_who_stands_still_below_the_coordinator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
