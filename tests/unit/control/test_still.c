/* SPDX-License-Identifier: Apache-2.0 */
/* Of whom a rank says that it stands still, when a deadline has passed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lone.h"

#define COMM 5

static void beats(struct weft_control *control, struct weft_net_conn *conn, uint32_t still)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_HEARTBEAT, .src = conn->peer_rank, .dst = still};
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, NULL);
    weft_engine_unlock(control->engine);
}

static uint32_t found(struct weft_control *control)
{
    bool is_member;
    uint32_t rank;
    weft_engine_lock(control->engine);
    rank = weft_control_still_find(control, COMM, &is_member);
    weft_engine_unlock(control->engine);
    assert_false(is_member); /* no such communicator is open here */
    return rank;
}

static void what_a_child_says_of_those_below_it_is_known_until_it_says_otherwise(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    beats(control, child, 0);
    assert_int_equal(found(control), 0);
    assert_int_equal(control->still, 0); /* and what we say ourselves */
    beats(control, child, WEFT_WIRE_NO_RANK);
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    assert_int_equal(control->still, WEFT_WIRE_NO_RANK);
}

/* A beat of one that has not taken us for its parent yet is addressed to us. */
static void a_child_does_not_say_of_us_that_we_stand_still(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    beats(control, child, LONE_SELF);
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    assert_int_equal(control->still, WEFT_WIRE_NO_RANK);
}

static void who_is_gone_or_is_no_rank_does_not_stand_still(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    beats(control, child, LONE_RANKS);
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    beats(control, child, 0);
    control->is_gone[0] = WEFT_GONE_CLOSED;
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
}

/* Who waits names rank 2, which waits for rank 0. */
static void the_verdict_on_a_deadline_blames_who_stands_still(void **state)
{
    const struct weft_wire_notice late = {
        .status = WEFT_ERR_TIMEOUT, .rank = 2, .text = "rank 2 has not come within 1000 ms"};
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    struct weft_control_channel *channel = NULL;
    uint32_t blamed, number;
    assert_int_equal(weft_control_channel_open(control, COMM, NULL, LONE_RANKS, &channel), WEFT_OK);
    beats(control, child, 0);
    weft_engine_lock(control->engine);
    weft_control_report(control, COMM, &late);
    weft_engine_unlock(control->engine);
    assert_int_equal(weft_control_channel_error(channel, &blamed, &number), WEFT_ERR_TIMEOUT);
    assert_int_equal(blamed, 0);
    assert_int_not_equal(number, 0);
    assert_non_null(strstr(weft_error_text(), "rank 2 has not come within 1000 ms; rank 0 ("));
    assert_non_null(strstr(weft_error_text(), ") stands still"));
    weft_control_channel_close(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_a_child_says_of_those_below_it_is_known_until_it_says_otherwise, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(a_child_does_not_say_of_us_that_we_stand_still, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(who_is_gone_or_is_no_rank_does_not_stand_still, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(the_verdict_on_a_deadline_blames_who_stands_still,
                                        lone_set_up, lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
