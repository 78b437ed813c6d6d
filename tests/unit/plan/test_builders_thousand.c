/* SPDX-License-Identifier: Apache-2.0 */
/* A thousand ranks, with every builder. */
#include "support.h"

static void verify_thousand(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    struct weft_plan plan;

    assert_true(weft_plan_shape(builder, coll, 1000, 617, 1, &plan));
    expect_right(&plan, 1, 1000);
}

static void every_builder_is_right_for_a_thousand_ranks(void **state)
{
    (void)state;
    for_every_pair(verify_thousand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_builder_is_right_for_a_thousand_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
