/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/crew.h"

#define ROUNDS 50
#define STALL_MS 10000 /* never reached unless something is broken */

struct shared {
    _Atomic uint32_t count;
    _Atomic uint32_t wrong;
};

static struct weft_crew *crew_of(int ranks, weft_crew_fn body, uint32_t stall_ms)
{
    struct weft_crew_spec spec = {
        .ranks = ranks,
        .shared_len = sizeof(struct shared),
        .stall_ms = stall_ms,
        .body = body,
    };
    struct weft_crew *crew = weft_crew_open(&spec);
    assert_non_null(crew);
    return crew;
}

/* Everybody adds one; between the barriers everybody must see everybody's. */
static bool count_in_step(struct weft_crew *crew, int rank, void *context)
{
    struct shared *shared = weft_crew_shared(crew);
    uint32_t ranks = (uint32_t)weft_crew_ranks(crew);
    (void)rank;
    (void)context;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        weft_crew_step(crew, "a round");
        atomic_fetch_add(&shared->count, 1);
        if (!weft_crew_barrier(crew)) {
            return false;
        }
        if (atomic_load(&shared->count) != round * ranks) {
            atomic_fetch_add(&shared->wrong, 1);
        }
        if (!weft_crew_barrier(crew)) {
            return false;
        }
    }
    return true;
}

static void a_barrier_opens_when_all_are_there(void **state)
{
    char why[WEFT_CREW_TEXT_LEN];
    (void)state;
    struct weft_crew *crew = crew_of(5, count_in_step, STALL_MS);
    assert_true(weft_crew_run(crew, NULL, NULL, why));
    struct shared *shared = weft_crew_shared(crew);
    assert_int_equal(atomic_load(&shared->count), 5 * ROUNDS);
    assert_int_equal(atomic_load(&shared->wrong), 0);
    weft_crew_close(crew);
}

/* Runs a crew in which rank 2 misbehaves while the others sit in a barrier. */
static void expect_failure(weft_crew_fn body, uint32_t stall_ms, const char *text)
{
    char why[WEFT_CREW_TEXT_LEN] = "";
    struct weft_crew *crew = crew_of(4, body, stall_ms);
    assert_false(weft_crew_run(crew, NULL, NULL, why));
    if (strstr(why, text) == NULL) {
        fail_msg("expected \"%s\" in \"%s\"", text, why);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    weft_crew_close(crew);
}

static bool rank_2_complains(struct weft_crew *crew, int rank, void *context)
{
    (void)context;
    return rank == 2 ? weft_crew_fail(crew, "no luck with %d", 42) : weft_crew_barrier(crew);
}

static bool rank_2_is_killed(struct weft_crew *crew, int rank, void *context)
{
    (void)context;
    weft_crew_step(crew, "the deed");
    return rank == 2 ? raise(SIGKILL) == 0 : weft_crew_barrier(crew);
}

static bool rank_2_exits(struct weft_crew *crew, int rank, void *context)
{
    (void)context;
    if (rank == 2) {
        _exit(0);
    }
    return weft_crew_barrier(crew);
}

static bool rank_2_hangs(struct weft_crew *crew, int rank, void *context)
{
    (void)context;
    weft_crew_step(crew, "a nap");
    if (rank == 2) {
        pause(); /* no signal comes but the parent's last */
    }
    return weft_crew_barrier(crew);
}

static void a_failing_rank_is_named_with_its_words(void **state)
{
    (void)state;
    expect_failure(rank_2_complains, STALL_MS, "rank 2 of 4: no luck with 42");
}

static void a_killed_rank_is_named_with_its_signal(void **state)
{
    (void)state;
    expect_failure(rank_2_is_killed, STALL_MS, "rank 2 of 4: died of signal 9");
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    expect_failure(rank_2_exits, STALL_MS, "rank 2 of 4: exited with status 0");
}

static void a_rank_that_hangs_is_named_not_those_that_wait_for_it(void **state)
{
    (void)state;
    expect_failure(rank_2_hangs, 300, "rank 2 of 4: stands still in a nap");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_opens_when_all_are_there),
        cmocka_unit_test(a_failing_rank_is_named_with_its_words),
        cmocka_unit_test(a_killed_rank_is_named_with_its_signal),
        cmocka_unit_test(a_rank_that_leaves_early_is_named),
        cmocka_unit_test(a_rank_that_hangs_is_named_not_those_that_wait_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
