/* SPDX-License-Identifier: Apache-2.0 */
/* What a link makes of what its lanes report in one poll. */
#include "played.h"

/* ---- envelopes ---- */

static void a_copy_in_the_same_poll_is_the_only_one_asked_about(void **state)
{
    (void)state;
    begin(1);
    envelope(1, WEFT_DONE_HEADER, 1);
    opens(0);
    leads(0);
    envelope(0, WEFT_DONE_HEADER, 1);
    poll();
    assert_int_equal(stage.count, 2);
    assert_saw(0, WEFT_DONE_OPENED, 0);
    assert_saw(1, WEFT_DONE_HEADER, 0);
    assert_sinks(1);
    answer(1);
    assert_ptr_equal(stage.player[0].into, stage.memory);
    envelope(1, WEFT_DONE_LANDED, 1); /* what went to the sink */
    envelope(0, WEFT_DONE_LANDED, 1);
    poll();
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_LANDED, 0);
}

static void a_whole_copy_in_the_same_poll_is_the_only_one(void **state)
{
    (void)state;
    begin(1);
    envelope(1, WEFT_DONE_HEADER, 1);
    opens(0);
    leads(0);
    envelope(0, WEFT_DONE_ARRIVED, 1);
    envelope(0, WEFT_DONE_HEADER, 2);
    poll();
    assert_int_equal(stage.count, 3);
    assert_saw(1, WEFT_DONE_ARRIVED, 0);
    assert_int_equal(stage.seen[1].frame.number, 1);
    assert_saw(2, WEFT_DONE_HEADER, 0);
    assert_int_equal(stage.seen[2].frame.number, 2);
    assert_sinks(1);
}

static void a_copy_is_asked_about_when_the_first_lane_went_in_the_same_poll(void **state)
{
    (void)state;
    begin(2);
    envelope(1, WEFT_DONE_HEADER, 1);
    gives_up(1, 2);
    poll();
    assert_int_equal(stage.count, 0);
    leads(2);
    envelope(2, WEFT_DONE_HEADER, 1);
    poll();
    assert_true(stage.player[1].is_closed);
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_HEADER, 2);
}

static void a_copy_that_comes_later_goes_where_the_first_was_to_go(void **state)
{
    (void)state;
    begin(1);
    envelope(1, WEFT_DONE_HEADER, 1);
    poll();
    answer(0);
    opens(0);
    leads(0);
    envelope(0, WEFT_DONE_HEADER, 1);
    poll();
    assert_int_equal(stage.count, 1); /* OPENED: nobody is asked twice */
    assert_ptr_equal(stage.player[0].into, stage.memory);
    assert_null(stage.player[1].into);
}

/* ---- chunks ---- */

static void a_copy_of_a_chunk_in_the_same_poll_is_the_only_one_asked_about(void **state)
{
    (void)state;
    begin(3);
    chunk(2, WEFT_DONE_HEADER, 1, 1);
    chunk(3, WEFT_DONE_HEADER, 1, 2);
    poll();
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_HEADER, 3);
    assert_sinks(2);
    assert_int_equal(stage.unplaced, 0); /* it was never placed */
    answer(0);
    chunk(2, WEFT_DONE_LANDED, 1, 1);
    chunk(3, WEFT_DONE_LANDED, 1, 2);
    poll();
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_LANDED, 3);
}

/* The user of the link has not heard of the landing yet: it must find what it had placed. */
static void what_landed_counts_though_its_lane_goes_with_the_next_header(void **state)
{
    (void)state;
    begin(2);
    chunk(2, WEFT_DONE_HEADER, 1, 1);
    poll();
    answer(0);
    chunk(2, WEFT_DONE_LANDED, 1, 1);
    chunk(2, WEFT_DONE_HEADER, 2, 1);
    gives_up(2, 1);
    poll();
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_LANDED, 2);
    assert_int_equal(stage.unplaced, 0);
}

static void what_landed_counts_though_the_next_came_by_another_lane_too(void **state)
{
    (void)state;
    begin(3);
    chunk(2, WEFT_DONE_HEADER, 1, 1);
    poll();
    answer(0);
    chunk(2, WEFT_DONE_LANDED, 1, 1);
    chunk(2, WEFT_DONE_HEADER, 2, 1);
    chunk(3, WEFT_DONE_HEADER, 2, 2);
    poll();
    assert_int_equal(stage.count, 2);
    assert_saw(0, WEFT_DONE_LANDED, 2);
    assert_saw(1, WEFT_DONE_HEADER, 3);
    assert_int_equal(stage.unplaced, 0);
}

static void a_chunk_on_its_way_is_taken_from_a_lane_that_goes(void **state)
{
    (void)state;
    begin(2);
    chunk(2, WEFT_DONE_HEADER, 1, 1);
    poll();
    answer(0);
    gives_up(2, 1);
    poll();
    assert_int_equal(stage.unplaced, 1);
}

/* A message that ends before it is told of its last chunk does not spoil the next one's. */
static void what_is_asked_next_is_not_sunk_with_what_was_before(void **state)
{
    (void)state;
    begin(2);
    chunk(2, WEFT_DONE_HEADER, 1, 1);
    poll();
    answer(0);
    chunk(2, WEFT_DONE_LANDED, 1, 1);
    chunk(2, WEFT_DONE_HEADER, 2, 1);
    poll();
    assert_int_equal(stage.count, 2);
    weft_link_unplace_slot(&stage.link, 2);
    assert_int_equal(stage.player[2].places, 1); /* only the answer of before */
    answer(1);
    assert_ptr_equal(stage.player[2].into, stage.memory);
    weft_link_unplace_slot(&stage.link, 2);
    assert_null(stage.player[2].into);
}

/* ---- shared memory ---- */

/* The peer may do as it likes: its frames come by shared memory still, and are taken as what they are. */
static void tcp_beside_shared_memory_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    opens(0);
    stage.player[0].lane.caps = WEFT_LANE_SURE;
    poll();
    assert_int_equal(stage.count, 1);
    assert_ptr_equal(stage.link.lane, &stage.player[0].lane);
    opens(1);
    poll();
    assert_int_equal(stage.count, 0);
    assert_null(stage.link.bundle);
    poll();
    assert_true(stage.player[1].is_closed);
    envelope(0, WEFT_DONE_ARRIVED, 0);
    poll();
    assert_saw(0, WEFT_DONE_ARRIVED, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_open, stage_close)
    const struct CMUnitTest tests[] = {
        TEST(a_copy_in_the_same_poll_is_the_only_one_asked_about),
        TEST(a_whole_copy_in_the_same_poll_is_the_only_one),
        TEST(a_copy_is_asked_about_when_the_first_lane_went_in_the_same_poll),
        TEST(a_copy_that_comes_later_goes_where_the_first_was_to_go),
        TEST(a_copy_of_a_chunk_in_the_same_poll_is_the_only_one_asked_about),
        TEST(what_landed_counts_though_its_lane_goes_with_the_next_header),
        TEST(what_landed_counts_though_the_next_came_by_another_lane_too),
        TEST(a_chunk_on_its_way_is_taken_from_a_lane_that_goes),
        TEST(what_is_asked_next_is_not_sunk_with_what_was_before),
        TEST(tcp_beside_shared_memory_is_refused_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
