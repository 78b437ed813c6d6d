/* SPDX-License-Identifier: Apache-2.0 */
/* A fence waits for what was put before it, unless lanes keep the order by themselves. Nothing moves here, so who
 * waits is late. */
#include "unit/p2p/two.h"

#define LATE_MS 20

static uint8_t window[64], data[64];

static void put(struct rank *from, struct rank *to)
{
    weft_mem_t mem;
    const struct weft_p2p_target target = {&mem, 0};
    assert_int_equal(weft_p2p_register(to->world, window, sizeof(window), &mem), WEFT_OK);
    assert_int_equal(weft_p2p_put(from->world, &target, data, sizeof(data), NULL, 0), WEFT_OK);
    weft_p2p_comm_set_timeout(from->world, LATE_MS);
}

static void one_lane_for_good_needs_no_word_from_the_peer(void **state)
{
    static struct two two;
    (void)state;
    for (int i = 0; i < 2; i++) { /* who dials, and who is dialled */
        two_open(&two, 1);
        put(&two.rank[i], &two.rank[1 - i]);
        assert_int_equal(weft_p2p_fence(two.rank[i].world), WEFT_OK);
        two_close(&two);
    }
}

/* The others are still dialled: what is put next may take one of them. */
static void the_first_of_several_lanes_is_not_the_only_one(void **state)
{
    static struct two two;
    (void)state;
    for (int i = 0; i < 2; i++) {
        two_open_lanes(&two, 2, connect_lane_0);
        put(&two.rank[i], &two.rank[1 - i]);
        assert_int_equal(weft_p2p_fence(two.rank[i].world), WEFT_ERR_TIMEOUT);
        two_close(&two);
    }
}

static void nor_is_it_in_order_when_all_lanes_are_down(void **state)
{
    static struct two two;
    (void)state;
    two_open(&two, 2);
    put(&two.rank[0], &two.rank[1]);
    for (uint32_t i = 0; i < 3; i++) {
        fake_end(lane_at(&two.rank[0], i));
    }
    poll_rank(&two.rank[0]);
    assert_int_equal(link_of(&two.rank[0])->state, WEFT_LINK_CALLING);
    assert_int_equal(weft_p2p_fence(two.rank[0].world), WEFT_ERR_TIMEOUT);
    two_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_lane_for_good_needs_no_word_from_the_peer),
        cmocka_unit_test(the_first_of_several_lanes_is_not_the_only_one),
        cmocka_unit_test(nor_is_it_in_order_when_all_lanes_are_down),
    };
    setenv("WEFT_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
