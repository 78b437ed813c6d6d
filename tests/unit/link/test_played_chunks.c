/* SPDX-License-Identifier: Apache-2.0 */
/* What a link learns of its lanes from what the peer acknowledges. */
#include "played.h"

#define MUCH ((size_t)512 << 10)
#define RATE 1e8 /* bytes per second, as known before */

static uint8_t bytes[MUCH];
static int owner;

/* Slot 1 carries bulk, and so much is known of it. */
static struct weft_slot *begin_with_rate(double rate)
{
    struct weft_slot *slot;
    begin(1);
    slot = &stage.link.bundle->slots[1];
    slot->rate = rate;
    slot->known_ns = weft_clock_ns();
    return slot;
}

static void sends(size_t len)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_CHUNK, .tag = 1};
    const struct weft_slice slice = {.data = bytes, .len = len};
    assert_int_equal(weft_link_stream(&stage.link, &frame, &slice, &owner), WEFT_POST_LENT);
}

/* All up to the count-th are there, so long after now. */
static void acknowledges(uint32_t count, uint64_t after_ms)
{
    uint64_t then_ns = weft_clock_after_ms(after_ms);
    while (weft_clock_ns() < then_ns) {
    }
    add(1, WEFT_DONE_ARRIVED)->frame = (struct weft_wire_data){
        .type = WEFT_DATA_ACK, .flags = WEFT_DATA_SLOT, .tag = 1, .seq = 1, .c = count};
    poll();
}

static void short_pieces_do_not_make_a_lane_slow(void **state)
{
    struct weft_slot *slot = begin_with_rate(RATE);
    uint64_t known_ns = slot->known_ns;
    (void)state;
    for (uint32_t i = 1; i <= 20; i++) {
        sends(17);
        acknowledges(i, 3);
    }
    sends(17);
    sends(17);
    acknowledges(21, 3);
    assert_true(slot->rate >= RATE);
    assert_int_equal(slot->known_ns, known_ns); /* what is known grows old all the same */
}

static void a_lone_piece_does_not_make_a_lane_slow(void **state)
{
    struct weft_slot *slot = begin_with_rate(RATE);
    (void)state;
    sends(MUCH);
    acknowledges(1, 50);
    assert_true(slot->rate >= RATE);
}

static void a_lone_piece_shows_that_a_lane_is_quicker(void **state)
{
    struct weft_slot *slot = begin_with_rate(1);
    (void)state;
    sends(MUCH);
    acknowledges(1, 3);
    assert_true(slot->rate > 1000);
}

static void a_lane_that_is_busy_and_drains_slowly_is_known_to(void **state)
{
    struct weft_slot *slot = begin_with_rate(RATE);
    (void)state;
    sends(MUCH);
    sends(MUCH);
    acknowledges(1, 50);
    assert_true(slot->rate < 0.9 * RATE);
}

static void the_first_that_is_measured_counts(void **state)
{
    struct weft_slot *slot = begin_with_rate(0);
    (void)state;
    sends(MUCH);
    acknowledges(1, 10);
    assert_true(slot->rate > 0 && slot->rate <= (double)MUCH * 100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_open, stage_close)
    const struct CMUnitTest tests[] = {
        TEST(short_pieces_do_not_make_a_lane_slow),
        TEST(a_lone_piece_does_not_make_a_lane_slow),
        TEST(a_lone_piece_shows_that_a_lane_is_quicker),
        TEST(a_lane_that_is_busy_and_drains_slowly_is_known_to),
        TEST(the_first_that_is_measured_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
