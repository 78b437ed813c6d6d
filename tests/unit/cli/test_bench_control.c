/* SPDX-License-Identifier: Apache-2.0 */
/* The control must do the work it is timed for, or it would be no control. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench.h"
#include "harness/harness.h"

#define MEETINGS 3
#define DEADLINE_MS 10000

enum { PORT, ARRIVED };

/* A barrier by counting up: the k-th opens at k × ranks. */
static bool all_here(struct harness_shared *shared, uint32_t *passed)
{
    atomic_fetch_add(&shared->word[ARRIVED], 1);
    *passed += (uint32_t)shared->ranks;
    return harness_wait_reach(&shared->word[ARRIVED], *passed, DEADLINE_MS);
}

static int meet(int rank, struct harness_shared *shared, void *arg)
{
    struct weft_bench_star star;
    uint16_t port = 0;
    uint32_t passed = 0;
    int status = 0;
    (void)arg;
    if (!weft_bench_star_open(&star, rank, shared->ranks, &port)) {
        return harness_say(shared, rank, 1, "open: %s", strerror(errno));
    }
    if (rank == 0) {
        atomic_store(&shared->word[PORT], port);
    }
    all_here(shared, &passed);
    port = (uint16_t)atomic_load(&shared->word[PORT]);
    for (uint32_t stamp = 1; status == 0 && stamp <= MEETINGS; stamp++) {
        if (!weft_bench_star_meet(&star, port, stamp)) {
            status = harness_say(shared, rank, 2, "meet %u: %s", stamp, strerror(errno));
        } else if (!weft_bench_star_is_right(&star, stamp)) {
            status = harness_say(shared, rank, 3, "meet %u: wrong table", stamp);
        } else if (weft_bench_star_is_right(&star, stamp + 1)) {
            status = harness_say(shared, rank, 4, "the check sees nothing");
        } else if (!all_here(shared, &passed)) {
            status = harness_say(shared, rank, 5, "meet %u: alone", stamp);
        }
        weft_bench_star_part(&star);
        all_here(shared, &passed);
    }
    weft_bench_star_close(&star);
    return status;
}

static void expect_meeting(int ranks)
{
    struct harness *harness = harness_start(ranks, meet, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void every_rank_gets_every_record(void **state)
{
    (void)state;
    expect_meeting(1);
    expect_meeting(2);
    expect_meeting(9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_every_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
