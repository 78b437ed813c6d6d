/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that nobody needs: how many each peer gets, when they are closed, who opens them again. */
#include "unit/link/user.h"

static uint32_t count_up(struct end *end)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end->link.bundle->count; i++) {
        count += end->link.bundle->slots[i].state == SLOT_UP;
    }
    return count;
}

static uint32_t count_resting(struct end *end)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end->link.bundle->count; i++) {
        count += end->link.bundle->slots[i].state == SLOT_RESTING;
    }
    return count;
}

static void make_idle(struct pair *pair)
{
    for (int k = 0; k < 2; k++) {
        pair->end[k].link.bundle->bulk_ns = 0;
    }
}

/* Without dialling anew: what is down stays down, what rests rests. */
static void run_quietly(struct pair *pair)
{
    for (int i = 0; i < 60; i++) {
        for (int k = 0; k < 2; k++) {
            tick(&pair->end[k]);
            take(&pair->end[k]);
            each_lane(&pair->end[k], move);
            take(&pair->end[k]);
        }
    }
}

static void idle_lanes_rest_but_for_two_over_two_nics(void **state)
{
    static struct pair pair;
    (void)state;
    pair_up(&pair, 4);
    assert_int_equal(count_up(&pair.end[1]), 5);
    run_quietly(&pair);
    assert_int_equal(count_up(&pair.end[1]), 5); /* not yet */
    make_idle(&pair);
    run_quietly(&pair);
    for (int k = 0; k < 2; k++) {
        struct weft_bundle *bundle = pair.end[k].link.bundle;
        assert_int_equal(count_up(&pair.end[k]), 2);
        assert_int_equal(count_resting(&pair.end[k]), 3);
        assert_int_equal(bundle->slots[0].state, SLOT_UP);
        assert_int_not_equal(bundle->slots[1].nic, bundle->slots[0].nic);
        assert_int_equal(bundle->slots[1].state, SLOT_UP);
    }
    pair_down(&pair);
}

static void with_one_nic_lane_0_is_all_that_stays(void **state)
{
    static struct pair pair;
    (void)state;
    memset(&pair, 0, sizeof(pair));
    setenv("WEFT_LANES", "3", 1);
    pair_up(&pair, 1);
    unsetenv("WEFT_LANES");
    assert_int_equal(count_up(&pair.end[1]), 4);
    make_idle(&pair);
    run_quietly(&pair);
    assert_int_equal(count_up(&pair.end[1]), 1);
    assert_int_equal(count_up(&pair.end[0]), 1);
    pair_down(&pair);
}

static void they_stay_when_they_are_told_to(void **state)
{
    static struct pair pair;
    (void)state;
    pair_up(&pair, 4);
    pair.end[1].params.number[WEFT_PARAM_LANE_IDLE] = 0;
    make_idle(&pair);
    run_quietly(&pair);
    assert_int_equal(count_up(&pair.end[1]), 5);
    pair_down(&pair);
}

static void what_is_on_its_way_keeps_its_lane(void **state)
{
    static struct pair pair;
    struct weft_bundle *bundle;
    (void)state;
    pair_up(&pair, 4);
    bundle = pair.end[1].link.bundle;
    for (int i = 0; i < 8; i++) {
        assert_true(stream(&pair.end[1]));
    }
    bundle->bulk_ns = 0;
    weft_bundle_rest(bundle, weft_clock_ns());
    for (uint32_t i = 1; i < bundle->count; i++) {
        assert_int_equal(bundle->slots[i].state == SLOT_RESTING,
                         i > 1 && bundle->slots[i].flying_count == 0);
    }
    settle(&pair);
    pair_down(&pair);
}

/* By whoever has bulk: the dialler by itself, the other one by a call. */
static void bulk_opens_them_again_and_does_not_wait_for_them(void **state)
{
    static struct pair pair;
    (void)state;
    for (int who = 0; who < 2; who++) {
        uint32_t pool = pair_up(&pair, 4);
        make_idle(&pair);
        run_quietly(&pair);
        assert_int_equal(count_up(&pair.end[who]), 2);
        assert_true(stream(&pair.end[who])); /* by the one that is up */
        run_quietly(&pair);
        assert_int_equal(user_of(&pair.end[1 - who])->landed, 1);
        settle(&pair);
        assert_int_equal(count_up(&pair.end[0]), 5);
        assert_int_equal(count_up(&pair.end[1]), 5);
        check_settled(&pair, pool);
        pair_down(&pair);
    }
}

/* The acceptor sends by a lane in the same moment as the dialler closes it. */
static void what_crosses_the_rest_goes_again(void **state)
{
    static struct pair pair;
    uint32_t pool = pair_up(&pair, 4);
    (void)state;
    for (int i = 0; i < 12; i++) {
        assert_true(stream(&pair.end[0]));
    }
    make_idle(&pair);
    tick(&pair.end[1]);
    assert_int_equal(count_up(&pair.end[1]), 2);
    settle(&pair);
    assert_int_equal(user_of(&pair.end[1])->landed, 12);
    check_settled(&pair, pool);
    pair_down(&pair);
}

static void a_death_wakes_them(void **state)
{
    static struct pair pair;
    (void)state;
    pair_up(&pair, 4);
    make_idle(&pair);
    run_quietly(&pair);
    fake_end(lane_of(&pair.end[1], 0));
    take(&pair.end[1]);
    assert_int_equal(pair.end[1].link.lane->slot, 1);
    assert_int_equal(count_resting(&pair.end[1]), 0);
    settle(&pair);
    assert_int_equal(count_up(&pair.end[0]), 5);
    pair_down(&pair);
}

/* The word that a lane rests may be lost with the lane that carried it. */
static void who_missed_it_is_told_again(void **state)
{
    static struct pair pair;
    (void)state;
    pair_up(&pair, 4);
    make_idle(&pair);
    tick(&pair.end[1]);
    fake_list_empty(&lane_of(&pair.end[0], 0)->pipe, true);
    run_quietly(&pair); /* it sees their end, and says that they are down */
    assert_int_equal(count_resting(&pair.end[0]), 3);
    pair_down(&pair);
}

/* ---- many peers ---- */

static void each_peer_gets_its_share_and_two_lanes_at_least(void **state)
{
    static const struct {
        int64_t most;
        uint32_t peers, share;
    } cases[] = {{512, 1, 511}, {512, 100, 4},   {512, 128, 3},
                 {512, 200, 1}, {512, 10000, 1}, {8, 2, 3},
                 {8, 3, 1},     {1, 1, 1},       {0, 10000, WEFT_LINK_SLOTS}};
    static struct pair pair;
    (void)state;
    pair_up(&pair, 4);
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct weft_links *links = pair.end[1].links;
        pair.end[1].params.number[WEFT_PARAM_LANES_MAX] = cases[i].most;
        links->bundle_count = cases[i].peers - 1;
        weft_links_bundle_added(links);
        assert_int_equal(links->share, cases[i].share);
    }
    pair.end[1].links->bundle_count = 1;
    pair_down(&pair);
}

/* Another peer comes: surplus lanes drain and close; their bulk goes by those that stay. */
static void more_peers_means_fewer_lanes(void **state)
{
    static struct pair pair;
    struct weft_links *links;
    uint32_t pool = pair_up(&pair, 4);
    (void)state;
    links = pair.end[1].links;
    pair.end[1].params.number[WEFT_PARAM_LANES_MAX] = 6;
    for (int i = 0; i < 12; i++) {
        assert_true(stream(&pair.end[1]));
    }
    weft_links_bundle_added(links);
    assert_int_equal(links->share, 2);
    for (int i = 0; i < 4; i++) {
        assert_true(stream(&pair.end[1]));
    }
    run_quietly(&pair);
    assert_int_equal(count_up(&pair.end[1]), 3);
    assert_int_equal(count_up(&pair.end[0]), 3);
    for (int i = 0; i < 4; i++) {
        assert_true(stream(&pair.end[0]));
        assert_true(stream(&pair.end[1]));
    }
    settle(&pair);
    assert_int_equal(count_up(&pair.end[1]), 3); /* nor does bulk open what is too many */
    check_settled(&pair, pool);
    weft_links_bundle_removed(links);
    pair_down(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_lanes_rest_but_for_two_over_two_nics),
        cmocka_unit_test(with_one_nic_lane_0_is_all_that_stays),
        cmocka_unit_test(they_stay_when_they_are_told_to),
        cmocka_unit_test(what_is_on_its_way_keeps_its_lane),
        cmocka_unit_test(bulk_opens_them_again_and_does_not_wait_for_them),
        cmocka_unit_test(what_crosses_the_rest_goes_again),
        cmocka_unit_test(a_death_wakes_them),
        cmocka_unit_test(who_missed_it_is_told_again),
        cmocka_unit_test(each_peer_gets_its_share_and_two_lanes_at_least),
        cmocka_unit_test(more_peers_means_fewer_lanes),
    };
    setenv("WEFT_LOG", "error", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
