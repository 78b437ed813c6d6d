/* SPDX-License-Identifier: Apache-2.0 */
/* The builders of shared memory, several operations in a row on the same slots. */
#include "planted.h"

#define OPERATIONS 3

static const uint32_t segment_counts[] = {1, 2, 3, 8};

static void for_every_shared_pair(pair_fn fn)
{
    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
            if (((*at)->colls & 1u << coll) != 0 && ((*at)->traits & WEFT_PLAN_SHARED) != 0) {
                fn(*at, (weft_coll_t)coll);
            }
        }
    }
}

static void verify_one(const struct weft_plan_builder *builder, weft_coll_t coll, uint32_t ranks,
                       uint32_t segments)
{
    struct weft_plan plan;

    if (!weft_plan_shape(builder, coll, ranks, ranks * 2 / 3, segments, &plan)) {
        assert_int_equal(ranks, 1); /* there are others for one rank alone */
        return;
    }
    expect_right(&plan, OPERATIONS, ranks + segments);
}

static void verify_small(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    for (uint32_t ranks = 1; ranks <= 12; ranks++) {
        for (size_t i = 0; i < (is_pipelined(builder) ? WEFT_COUNT_OF(segment_counts) : 1); i++) {
            verify_one(builder, coll, ranks, segment_counts[i]);
        }
    }
}

static void every_plan_of_shared_memory_is_right(void **state)
{
    (void)state;
    for_every_shared_pair(verify_small);
}

static void verify_large(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    for (uint32_t ranks = 13; ranks <= 64; ranks += ranks < 32 ? 1 : 8) {
        verify_one(builder, coll, ranks, is_pipelined(builder) ? segment_counts[ranks % 4] : 1);
    }
}

static void every_plan_of_shared_memory_is_right_for_more_ranks(void **state)
{
    (void)state;
    for_every_shared_pair(verify_large);
}

/* Without any of the steps that move data; of `oneshot`, without any step at all. (Others have flags that
 * are sometimes implied by earlier ones.) */
static void drop_steps(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    struct weft_plan_builder wrong = *builder;
    bool is_spare = strcmp(builder->name, "oneshot") == 0;
    struct weft_plan right, plan;
    uint32_t count = 0;

    assert_true(weft_plan_shape(builder, coll, 5, 1, 6, &right));
    wrong.rounds = planted_rounds;
    wrong.step = planted_step;
    plan = right;
    plan.builder = &wrong;
    for (uint32_t rank = 0; rank < right.ranks; rank++) {
        for (uint32_t round = 0; round < builder->rounds(&right, rank); round++) {
            struct weft_plan_step step;
            for (uint32_t i = 0; builder->step(&right, rank, round, i, &step); i++) {
                struct weft_plan_verdict verdict;
                if (!is_spare && step.kind != WEFT_STEP_COPY && step.kind != WEFT_STEP_REDUCE) {
                    continue;
                }
                planted = (struct planted){builder, BUG_DROPPED, rank, round, i, 0, 0, 0};
                weft_plan_verify(&plan, OPERATIONS, i, &verdict);
                if (verdict.is_right) {
                    fail_msg("%s %s, rank %u, round %u without step %u, and nobody saw it",
                             builder->name, weft_coll_name(coll), rank, round, i);
                }
                count++;
            }
        }
    }
    assert_true(count > 0);
}

static void a_plan_of_shared_memory_without_one_of_its_steps_is_caught(void **state)
{
    (void)state;
    for_every_shared_pair(drop_steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_of_shared_memory_is_right),
        cmocka_unit_test(every_plan_of_shared_memory_is_right_for_more_ranks),
        cmocka_unit_test(a_plan_of_shared_memory_without_one_of_its_steps_is_caught),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
