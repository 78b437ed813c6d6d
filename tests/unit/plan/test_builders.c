/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdlib.h>

#define SMALL 16 /* up to so many ranks: every number of segments, more roots and seeds */
#define LARGE 64

static const uint32_t segment_counts[] = {1, 2, 3, 8};

static void expect_shape(const struct weft_plan_builder *builder, weft_coll_t coll, uint32_t ranks,
                         uint32_t root, uint32_t segments, struct weft_plan *plan_p)
{
    if (!weft_plan_shape(builder, coll, ranks, root, segments, plan_p)) {
        fail_msg("%s has no %s of %u", builder->name, weft_coll_name(coll), ranks);
    }
}

static void verify_small(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    size_t segmentings = is_pipelined(builder) ? WEFT_COUNT_OF(segment_counts) : 1;
    uint64_t seed = 1;

    for (uint32_t ranks = 1; ranks <= SMALL; ranks++) {
        uint32_t roots = !has_root(coll) ? 1 : ranks < 4 ? ranks : 4;
        for (size_t i = 0; i < segmentings; i++) {
            for (uint32_t root = 0; root < roots; root++) {
                struct weft_plan plan;
                expect_shape(builder, coll, ranks, root * (ranks - 1) / (roots > 1 ? roots - 1 : 1),
                             segment_counts[i], &plan);
                expect_right(&plan, 2, seed++);
                expect_right(&plan, 1, seed++);
            }
        }
    }
}

static void every_builder_is_right_for_up_to_16_ranks(void **state)
{
    (void)state;
    for_every_pair(verify_small);
}

/* In one piece and in segments, in turn where it takes long. */
static void verify_large(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    for (uint32_t ranks = SMALL + 1; ranks <= LARGE; ranks++) {
        uint32_t most = is_pipelined(builder) ? segment_counts[1 + ranks % 3] : 1;
        bool is_both = ranks <= LARGE / 2;
        struct weft_plan plan;
        if (is_both || most == 1 || ranks % 2 == 0) {
            expect_shape(builder, coll, ranks, ranks * 5 / 7, 1, &plan);
            expect_right(&plan, 1, ranks);
        }
        if (most > 1 && (is_both || ranks % 2 == 1)) {
            expect_shape(builder, coll, ranks, ranks * 2 / 7, most, &plan);
            expect_right(&plan, 1, ranks / 2);
        }
    }
}

static void every_builder_is_right_for_up_to_64_ranks(void **state)
{
    (void)state;
    for_every_pair(verify_large);
}

/* ---- shapes ---- */

static void builders_are_found_by_name(void **state)
{
    (void)state;
    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        assert_ptr_equal(weft_plan_find((*at)->name), *at);
        assert_true(strlen((*at)->summary) > 10);
    }
    assert_null(weft_plan_find("rin"));
    assert_null(weft_plan_find(""));
}

static void a_shape_that_cannot_be_is_refused(void **state)
{
    const struct weft_plan_builder *ring = weft_plan_find("ring");
    struct weft_plan plan;

    (void)state;
    assert_false(weft_plan_shape(ring, WEFT_BROADCAST, 4, 0, 1, &plan));
    assert_false(weft_plan_shape(ring, WEFT_ALLREDUCE, 0, 0, 1, &plan));
    assert_false(weft_plan_shape(weft_plan_find("chain"), WEFT_BROADCAST, 4, 4, 1, &plan));
}

static void what_makes_no_difference_is_not_in_the_shape(void **state)
{
    struct weft_plan a, b;

    (void)state;
    assert_true(weft_plan_shape(weft_plan_find("ring"), WEFT_ALLREDUCE, 4, 3, 0, &a));
    assert_true(weft_plan_shape(weft_plan_find("ring"), WEFT_ALLREDUCE, 4, 0, 1, &b));
    assert_memory_equal(&a, &b, sizeof(a));
    assert_true(weft_plan_shape(weft_plan_find("bruck"), WEFT_ALLTOALL, 4, 0, 8, &a));
    assert_true(weft_plan_shape(weft_plan_find("bruck"), WEFT_ALLTOALL, 4, 0, 1, &b));
    assert_memory_equal(&a, &b, sizeof(a));
}

struct hashes {
    uint64_t hash[20000];
    size_t count;
};
static struct hashes hashes;

static void add_hashes(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    for (uint32_t ranks = 1; ranks <= 40; ranks++) {
        for (uint32_t segments = 1; segments <= (is_pipelined(builder) ? 3u : 1u); segments++) {
            for (uint32_t root = 0; root < (has_root(coll) ? ranks : 1) && root < 5; root++) {
                struct weft_plan plan, again;
                expect_shape(builder, coll, ranks, root, segments, &plan);
                expect_shape(builder, coll, ranks, root, segments, &again);
                assert_int_equal(weft_plan_hash(&plan), weft_plan_hash(&again));
                if (plan.segments == segments) {
                    assert_true(hashes.count < WEFT_COUNT_OF(hashes.hash));
                    hashes.hash[hashes.count++] = weft_plan_hash(&plan);
                }
            }
        }
    }
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void different_shapes_have_different_hashes(void **state)
{
    (void)state;
    for_every_pair(add_hashes);
    assert_true(hashes.count > 4000);
    qsort(hashes.hash, hashes.count, sizeof(hashes.hash[0]), compare_hashes);
    for (size_t i = 1; i < hashes.count; i++) {
        assert_true(hashes.hash[i - 1] != hashes.hash[i]);
    }
}

/* Ranks of different machines compare it. */
static void a_hash_is_the_same_everywhere(void **state)
{
    struct weft_plan plan;

    (void)state;
    assert_true(weft_plan_shape(weft_plan_find("ring"), WEFT_ALLREDUCE, 8, 0, 4, &plan));
    assert_int_equal(plan.parts, 32);
    assert_true(weft_plan_hash(&plan) == UINT64_C(0xc94cbec389e2b03d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_builder_is_right_for_up_to_16_ranks),
        cmocka_unit_test(every_builder_is_right_for_up_to_64_ranks),
        cmocka_unit_test(builders_are_found_by_name),
        cmocka_unit_test(a_shape_that_cannot_be_is_refused),
        cmocka_unit_test(what_makes_no_difference_is_not_in_the_shape),
        cmocka_unit_test(different_shapes_have_different_hashes),
        cmocka_unit_test(a_hash_is_the_same_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
