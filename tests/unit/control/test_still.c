/* SPDX-License-Identifier: Apache-2.0 */
/* Of whom a rank says that it stands still, when a deadline has passed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lone.h"

#define COMM 5

static void beats_of(struct weft_control *control, struct weft_net_conn *conn, uint32_t still,
                     uint8_t flags)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_HEARTBEAT, .flags = flags, .src = conn->peer_rank, .dst = still};
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, NULL);
    weft_engine_unlock(control->engine);
}

static void beats(struct weft_control *control, struct weft_net_conn *conn, uint32_t still)
{
    beats_of(control, conn, still, 0);
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
    assert_int_equal(control->still.rank, 0); /* and what we say ourselves */
    beats(control, child, WEFT_WIRE_NO_RANK);
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    assert_int_equal(control->still.rank, WEFT_WIRE_NO_RANK);
}

/* A beat of one that has not taken us for its parent yet is addressed to us. */
static void a_child_does_not_say_of_us_that_we_stand_still(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    beats(control, child, LONE_SELF);
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    assert_int_equal(control->still.rank, WEFT_WIRE_NO_RANK);
}

static void who_is_gone_or_is_no_rank_does_not_stand_still(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    beats(control, child, LONE_RANKS);
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    assert_int_equal(control->still.rank, WEFT_WIRE_NO_RANK);
    beats(control, child, 0);
    control->is_gone[0] = WEFT_GONE_CLOSED;
    assert_int_equal(found(control), WEFT_WIRE_NO_RANK);
    weft_engine_lock(control->engine);
    weft_control_still_look(control);
    weft_engine_unlock(control->engine);
    assert_int_equal(control->still.rank, WEFT_WIRE_NO_RANK);
}

static struct weft_control_channel *open_channel(struct weft_control *control)
{
    struct weft_control_channel *channel = NULL;
    assert_int_equal(weft_control_channel_open(control, COMM, NULL, LONE_RANKS, &channel), WEFT_OK);
    return channel;
}

/* The verdict on rank 2, which somebody waits for: whom it blames. The words are in weft_error_text(). */
static uint32_t blamed_for(struct weft_control_channel *channel, const char *text)
{
    struct weft_wire_notice late = {.status = WEFT_ERR_TIMEOUT, .rank = 2};
    uint32_t blamed, number;
    snprintf(late.text, sizeof(late.text), "%s", text);
    weft_engine_lock(channel->control->engine);
    weft_control_report(channel->control, COMM, &late);
    weft_engine_unlock(channel->control->engine);
    assert_int_equal(weft_control_channel_error(channel, &blamed, &number), WEFT_ERR_TIMEOUT);
    assert_int_not_equal(number, 0);
    return blamed;
}

/* Who waits names rank 2, which waits for rank 0. */
static void the_verdict_on_a_deadline_blames_who_stands_still(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    struct weft_control_channel *channel = open_channel(control);
    beats(control, child, 0);
    assert_int_equal(blamed_for(channel, "rank 2 has not come within 1000 ms"), 0);
    assert_non_null(strstr(weft_error_text(), "rank 2 has not come within 1000 ms; rank 0 ("));
    assert_non_null(strstr(weft_error_text(), ") stands still"));
    weft_control_channel_close(channel);
}

/* Not only rank 0 stands still there: rank 2 may, too. */
static void who_may_stand_still_itself_is_blamed(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    struct weft_control_channel *channel = open_channel(control);
    beats_of(control, child, 0, WEFT_WIRE_FLAG_STILL_MORE);
    assert_true(control->still.are_more);
    assert_int_equal(blamed_for(channel, "rank 2 has not come within 1000 ms"), 2);
    assert_non_null(strstr(weft_error_text(), ") stands still"));
    weft_control_channel_close(channel);
}

static void long_words_make_room_for_who_stands_still(void **state)
{
    char text[sizeof(((struct weft_wire_notice *)NULL)->text)];
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    struct weft_control_channel *channel = open_channel(control);
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    beats(control, child, 0);
    assert_int_equal(blamed_for(channel, text), 0);
    assert_non_null(strstr(weft_error_text(), "xx; rank 0 ("));
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
        cmocka_unit_test_setup_teardown(who_may_stand_still_itself_is_blamed, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(long_words_make_room_for_who_stands_still, lone_set_up,
                                        lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
