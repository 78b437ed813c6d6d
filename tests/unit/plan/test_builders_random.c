/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of ranks to 1,000, from the same seed every time. */
#include "support.h"

#define RANKS_MOST 1000
#define DRAWS 2
/* Messages and blocks, all ranks together: what a run may cost. */
#define COST_MOST 200000.0

/* What all ranks do, told from a few of them. */
static double cost_of(const struct weft_plan *plan)
{
    double cost = 0;

    for (uint32_t i = 0; i < 3; i++) {
        uint32_t rank = (plan->root + i * plan->ranks / 3) % plan->ranks;
        uint32_t rounds = plan->builder->rounds(plan, rank);
        struct weft_plan_step step;
        for (uint32_t round = 0; round < rounds; round++) {
            for (uint32_t at = 0; plan->builder->step(plan, rank, round, at, &step); at++) {
                cost += 1 + 0.2 * (step.to.blocks + step.from.blocks);
            }
        }
    }
    return cost / 3 * plan->ranks;
}

static void verify_random(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    uint64_t seed = (uint64_t)coll * 1000 + strlen(builder->name);

    for (unsigned draw = 0; draw < DRAWS; draw++) {
        uint32_t ranks = 65 + random_below(&seed, RANKS_MOST - 64), least = 65;
        uint32_t segments = 1 + random_below(&seed, 9);
        struct weft_plan plan;
        do { /* as many of them as can be afforded */
            ranks = ranks < least ? least : ranks;
            assert_true(
                weft_plan_shape(builder, coll, ranks, random_below(&seed, ranks), segments, &plan));
            segments = 1;
            ranks = ranks * 4 / 5;
        } while (cost_of(&plan) > COST_MOST && plan.ranks > least);
        expect_right(&plan, 1, next_random(&seed));
    }
}

static void every_builder_is_right_for_random_numbers_of_ranks(void **state)
{
    (void)state;
    for_every_pair(verify_random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_builder_is_right_for_random_numbers_of_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
