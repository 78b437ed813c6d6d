/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks are killed within ten milliseconds of each other, rank 0 or a rank that others hang below among them:
 * as with one, every survivor hears of one of them within a second. While the coordinator and all ways to it live, the
 * survivors get the same verdict, word for word. (Leaders of hosts: net.host_faults.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/kill.h"

#define GAP_US_MAX 10000

struct pair {
    int one, other;
};

static void check(const struct pair *pair, const char *path, unsigned gap_us, bool is_flat)
{
    static const weft_coll_t colls[] = {WEFT_ALLREDUCE, WEFT_ALLTOALL, WEFT_BARRIER};
    static const size_t lens[] = {32, 100000, 4};
    for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
        struct deed deed = {.coll = colls[i], .len = lens[i]};
        kill_check((struct kill_plan){.path = path,
                                      .deed = deed,
                                      .ranks = 7,
                                      .victim = pair->one,
                                      .second = pair->other,
                                      .pause_us = 700,
                                      .gap_us = gap_us,
                                      .join = "auto",
                                      .is_one_verdict = true,
                                      .degree = is_flat ? "64" : "2"});
    }
}

static void check_all(const struct pair *pairs, size_t count, bool is_flat)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (size_t i = 0; i < count; i++) {
            check(&pairs[i], messages_paths[path], 0, is_flat);
            check(&pairs[i], messages_paths[path], GAP_US_MAX / 2 + (unsigned)i * 1000, is_flat);
        }
    }
}

static void two_of_many_give_one_verdict(void **state)
{
    static const struct pair pairs[] = {{1, 2}, {3, 6}};
    (void)state;
    check_all(pairs, 2, true);
}

/* Ranks 3 and 4 hang below rank 1, 5 and 6 below rank 2. */
static void ranks_that_others_hang_below_are_named(void **state)
{
    static const struct pair pairs[] = {{1, 3}, {1, 5}, {1, 2}};
    (void)state;
    check_all(pairs, 3, false);
}

static void rank_0_and_another_are_named(void **state)
{
    static const struct pair pairs[] = {{0, 4}};
    (void)state;
    check_all(pairs, 1, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_of_many_give_one_verdict),
        cmocka_unit_test(ranks_that_others_hang_below_are_named),
        cmocka_unit_test(rank_0_and_another_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
