/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first collective of a communicator makes ready what its ranks share. When that does not come about, because a rank
 * whose memory is to be mapped stands still, the call keeps its deadline all the same, and does without.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include "p2p/p2p.h"

#define RANKS 2
#define TIMEOUT_MS (2000 * JOB_SLOWNESS)

/* The memory of the other rank is never there. */
weft_status_t __wrap_weft_p2p_map(struct weft_p2p_comm *comm, uint32_t rank,
                                  const struct weft_p2p_place *place, void **memory_p,
                                  struct weft_mem_mapping **mapping_p);
weft_status_t __wrap_weft_p2p_map(struct weft_p2p_comm *comm, uint32_t rank,
                                  const struct weft_p2p_place *place, void **memory_p,
                                  struct weft_mem_mapping **mapping_p)
{
    (void)comm;
    (void)rank;
    (void)place;
    (void)memory_p;
    (void)mapping_p;
    return WEFT_ERR_BUSY;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    int32_t in = rank + 1, out = 0;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, "auto", TIMEOUT_MS, &comm);
    (void)arg;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    job_calls(rank, shared);
    status = weft_allreduce(comm, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL);
    job_returned(rank, shared, status);
    status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
    weft_comm_close(comm);
    return status == WEFT_OK && out == 3 ? 0 : (int)WEFT_ERR_PROTOCOL;
}

static void memory_that_cannot_be_mapped_in_time_is_done_without(void **state)
{
    struct harness *harness = harness_start(RANKS, body, NULL);
    (void)state;
    messages_wait(harness, MESSAGES_WAIT_MS, "the first collective");
    messages_check_fine(harness, "the first collective");
    for (int rank = 0; rank < RANKS; rank++) {
        const struct job_report *report = job_report(harness, rank);
        assert_true(messages_seconds(report->called_ns, report->returned_ns) * 1000 < TIMEOUT_MS);
    }
    harness_close(harness);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_cannot_be_mapped_in_time_is_done_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
