/* SPDX-License-Identifier: Apache-2.0 */
/* What the builders promise besides being right: how many messages, how many blocks, how deep. */
#include "support.h"

struct count {
    uint32_t messages, blocks; /* sent */
    uint32_t most_in_round;
};

static struct weft_plan plan_of(const char *name, weft_coll_t coll, uint32_t ranks,
                                uint32_t segments)
{
    struct weft_plan plan;

    assert_true(weft_plan_shape(weft_plan_find(name), coll, ranks, 0, segments, &plan));
    return plan;
}

static struct count count_rank(const struct weft_plan *plan, uint32_t rank)
{
    uint32_t rounds = plan->builder->rounds(plan, rank);
    struct count count = {0, 0, 0};

    for (uint32_t round = 0; round < rounds; round++) {
        struct weft_plan_step step;
        uint32_t here = 0;
        for (uint32_t i = 0; plan->builder->step(plan, rank, round, i, &step); i++) {
            if (step.kind == WEFT_STEP_SEND) {
                here++;
                count.blocks += step.from.blocks;
            }
        }
        count.messages += here;
        count.most_in_round = here > count.most_in_round ? here : count.most_in_round;
    }
    return count;
}

static struct count count_all(const struct weft_plan *plan)
{
    struct count all = {0, 0, 0};

    for (uint32_t rank = 0; rank < plan->ranks; rank++) {
        struct count count = count_rank(plan, rank);
        all.messages += count.messages;
        all.blocks += count.blocks;
    }
    return all;
}

static void ring_and_halving_send_the_fewest_bytes(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 64; ranks *= 2) {
        struct weft_plan ring = plan_of("ring", WEFT_ALLREDUCE, ranks, 3);
        struct weft_plan halving = plan_of("halving", WEFT_ALLREDUCE, ranks, 1);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            struct count count = count_rank(&ring, rank);
            assert_int_equal(count.blocks, 2 * (ring.parts - ring.parts / ranks));
            assert_int_equal(count.most_in_round, 1);
            count = count_rank(&halving, rank);
            assert_int_equal(count.blocks, 2 * (halving.parts - 1));
            assert_int_equal(halving.parts, ranks);
            assert_int_equal(1u << count.messages / 2, ranks);
        }
    }
}

static void doubling_and_bruck_send_a_logarithm_of_messages(void **state)
{
    (void)state;
    for (uint32_t log = 1; log <= 9; log++) {
        uint32_t ranks = 1u << log;
        struct weft_plan doubling = plan_of("doubling", WEFT_ALLREDUCE, ranks, 1);
        struct weft_plan alltoall = plan_of("bruck", WEFT_ALLTOALL, ranks - ranks / 4, 1);
        struct weft_plan allgather = plan_of("bruck", WEFT_ALLGATHER, ranks - ranks / 4, 1);
        struct weft_plan barrier = plan_of("dissemination", WEFT_BARRIER, ranks - ranks / 4, 1);
        for (uint32_t rank = 0; rank < alltoall.ranks; rank += 7) {
            assert_int_equal(count_rank(&doubling, rank).messages, log);
            assert_int_equal(count_rank(&alltoall, rank).messages, log);
            assert_int_equal(count_rank(&allgather, rank).messages, log);
            assert_int_equal(count_rank(&allgather, rank).blocks, alltoall.ranks - 1);
            assert_int_equal(count_rank(&barrier, rank).messages, log);
        }
    }
}

static void star_and_trees_send_the_fewest_messages(void **state)
{
    static const char *const trees[] = {"binomial", "binary", "star"};

    (void)state;
    for (uint32_t ranks = 2; ranks <= 70; ranks++) {
        for (size_t i = 0; i < WEFT_COUNT_OF(trees); i++) {
            struct weft_plan both = plan_of(trees[i], WEFT_ALLREDUCE, ranks, 1);
            struct weft_plan down = plan_of(trees[i], WEFT_BROADCAST, ranks, 1);
            assert_int_equal(count_all(&both).messages, 2 * (ranks - 1));
            assert_int_equal(count_all(&down).messages, ranks - 1);
        }
    }
}

/* Nobody but the root has children in both trees: all have at most two segments to send for each that they
 * have, of half of them; the root one of each. */
static void double_binary_shares_the_work(void **state)
{
    (void)state;
    for (uint32_t ranks = 3; ranks <= 200; ranks++) {
        struct weft_plan plan = plan_of("double_binary", WEFT_BROADCAST, ranks, 4);
        assert_int_equal(plan.parts, 8);
        assert_int_equal(count_all(&plan).blocks, 8 * (ranks - 1));
        for (uint32_t rank = 0; rank < ranks; rank++) {
            assert_true(count_rank(&plan, rank).blocks <= 8);
            assert_true(plan.builder->rounds(&plan, rank) <= 4 + 12);
        }
    }
}

/* A rank of a chain passes on a segment while the next one comes. */
static void segments_overlap(void **state)
{
    struct weft_plan plan = plan_of("chain", WEFT_BROADCAST, 9, 20);
    struct weft_plan_step step;

    (void)state;
    assert_int_equal(plan.builder->rounds(&plan, 4), 21);
    assert_true(plan.builder->step(&plan, 4, 7, 0, &step));
    assert_int_equal(step.kind, WEFT_STEP_SEND);
    assert_int_equal(step.peer, 5);
    assert_int_equal(step.from.block, 6);
    assert_true(plan.builder->step(&plan, 4, 7, 1, &step));
    assert_int_equal(step.kind, WEFT_STEP_RECV);
    assert_int_equal(step.peer, 3);
    assert_int_equal(step.to.block, 7);
    assert_false(plan.builder->step(&plan, 4, 7, 2, &step));
}

static void direct_and_star_add_in_one_pass(void **state)
{
    static const char *const names[] = {"direct", "star"};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(names); i++) {
        struct weft_plan plan = plan_of(names[i], WEFT_REDUCE, 6, 1);
        struct weft_plan_step step;
        assert_true((plan.builder->traits & WEFT_PLAN_IN_RANK_ORDER) != 0);
        assert_true(plan.builder->step(&plan, 0, 1, 0, &step));
        assert_int_equal(step.kind, WEFT_STEP_REDUCE);
        assert_int_equal(step.sources, 6);
        assert_int_equal(step.flags, WEFT_STEP_FINAL);
    }
}

/* ---- a hundred thousand ranks are looked at one by one ---- */

#define MANY 100000

static void expect_ref(const struct weft_plan *plan, const struct weft_plan_ref *ref)
{
    bool is_vector =
        plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST || plan->coll == WEFT_REDUCE;
    uint32_t blocks = is_vector ? plan->parts : plan->ranks * plan->segments;

    if (ref->blocks > 0) {
        assert_in_range(ref->block, 0, blocks - 1);
        assert_in_range(ref->blocks, 1, blocks - ref->block);
    }
    if (ref->space == WEFT_SPACE_TMP) {
        assert_in_range(ref->at + (ref->block - ref->origin) + ref->blocks, 1, plan->tmp_units);
    }
}

static void look_at_many(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    static const uint32_t ranks[] = {0, 1, 65535, 70000, MANY - 1};
    struct weft_plan plan;

    assert_true(weft_plan_shape(builder, coll, MANY, 70000, 4, &plan));
    for (size_t i = 0; i < WEFT_COUNT_OF(ranks); i++) {
        uint32_t rounds = builder->rounds(&plan, ranks[i]);
        uint32_t stride = rounds / 50 + 1;
        for (uint32_t round = 0; round < rounds; round += stride) {
            struct weft_plan_step step;
            for (uint32_t at = 0; builder->step(&plan, ranks[i], round, at, &step); at += 997) {
                bool is_message = step.kind <= WEFT_STEP_RECV_REDUCE;
                assert_true(!is_message || (step.peer < MANY && step.peer != ranks[i]));
                expect_ref(&plan, &step.to);
                expect_ref(&plan, &step.from);
                expect_ref(&plan, &step.from2);
            }
        }
    }
}

static void a_hundred_thousand_ranks_have_steps(void **state)
{
    (void)state;
    for_every_pair(look_at_many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_and_halving_send_the_fewest_bytes),
        cmocka_unit_test(doubling_and_bruck_send_a_logarithm_of_messages),
        cmocka_unit_test(star_and_trees_send_the_fewest_messages),
        cmocka_unit_test(double_binary_shares_the_work),
        cmocka_unit_test(segments_overlap),
        cmocka_unit_test(direct_and_star_add_in_one_pass),
        cmocka_unit_test(a_hundred_thousand_ranks_have_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
