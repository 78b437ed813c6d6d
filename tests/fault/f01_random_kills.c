/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of any rank, inside any collective of any size, over any path, by any manner of calling, with and without
 * a forked child that outlives it: all drawn from a seed that is printed. Each must be as kill.h says, every time.
 *
 *     fault.f01_random_kills [--children] [runs [seed [first]]]       `make fault N=300`
 *
 * --children: every victim has a child, not a third of them. Without arguments the seed is always the same, with them it is the clock's unless it is told. A complaint is about
 * the run that was printed last; the same seed with that run as the first one does it again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/kill.h"

static unsigned runs = 30 / JOB_SLOWNESS;
static unsigned first;
static bool has_children;
static uint64_t seed = 1;

struct dice {
    uint64_t key, count;
};

static uint64_t roll(struct dice *dice, uint64_t sides)
{
    return messages_mix(dice->key + ++dice->count) % sides;
}

/* As many of each order of magnitude: 4 bytes to 8 MiB. */
static size_t roll_len(struct dice *dice)
{
    uint64_t order = roll(dice, 22);
    return (size_t)4 + (size_t)((UINT64_C(4) << order) / 2 + roll(dice, UINT64_C(2) << order));
}

static struct kill_plan draw(unsigned run)
{
    static const char *const paths[] = {"shm", "tcp", "auto"};
    struct dice dice = {.key = messages_mix(seed) + messages_mix(run)};
    struct kill_plan plan = {.ranks = 2 + (int)roll(&dice, 5)};
    plan.path = paths[roll(&dice, 3)];
    plan.deed.coll = (weft_coll_t)(WEFT_ALLREDUCE + roll(&dice, WEFT_BARRIER - WEFT_ALLREDUCE + 1));
    plan.deed.len = roll_len(&dice);
    plan.deed.manner = (enum manner)roll(&dice, MANNERS);
    plan.deed.is_shared = roll(&dice, 4) == 0;
    plan.deed.root = (int)roll(&dice, (uint64_t)plan.ranks);
    plan.victim = (int)roll(&dice, (uint64_t)plan.ranks);
    plan.is_absent = roll(&dice, 8) == 0;
    plan.pause_us = (unsigned)roll(&dice, 10000);
    plan.has_child = roll(&dice, 3) == 0 || has_children;
    plan.join = roll(&dice, 3) == 0 ? "direct" : "auto";
    plan.degree = roll(&dice, 3) == 0 ? "2" : "64";
    return plan;
}

static void every_survivor_names_the_killed_rank_every_time(void **state)
{
    uint64_t begin_ns = harness_now_ns();
    (void)state;
    print_message("%u runs, seed %llu\n", runs, (unsigned long long)seed);
    for (unsigned run = first; run < first + runs; run++) {
        struct kill_plan plan = draw(run);
        char what[320];
        kill_describe(&plan, what, sizeof(what));
        print_message("run %u: %s, %s, degree %s\n", run, what, plan.join, plan.degree);
        kill_check(plan);
    }
    print_message("%u of %u kills were named by every survivor within a second, in %.1f s\n", runs,
                  runs, messages_seconds(begin_ns, harness_now_ns()));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_survivor_names_the_killed_rank_every_time),
    };
    if (argc > 1 && strcmp(argv[1], "--children") == 0) {
        has_children = true;
        argc--;
        argv++;
    }
    runs = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : runs;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : argc > 1 ? harness_now_ns() : seed;
    first = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : first;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
