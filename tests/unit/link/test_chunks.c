/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk over the slots: acknowledged by count and generation, sent again, taken over, given up; and where it goes. */
#include "unit/link/user.h"

static struct weft_slot *slot_at(struct end *end, uint32_t i)
{
    return &end->link.bundle->slots[i];
}

static void deliver(struct end *to, const struct weft_wire_data *frame)
{
    const struct weft_slice nothing = {0};
    fake_post(&lane_of(to->other, 0)->lane, frame, &nothing, NULL);
    while (fake_arrive(lane_of(to, 0))) {
    }
    take(to);
}

/* Which slot holds all that is on its way; -1: none or several. */
static int flying_slot(struct end *end)
{
    int found = -1;
    for (uint32_t i = 0; i < end->link.bundle->count; i++) {
        if (slot_at(end, i)->flying_count > 0) {
            found = found < 0 ? (int)i : -2;
        }
    }
    return found;
}

static void acknowledgements_count_for_their_connection_only(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    struct weft_wire_data ack = {.type = WEFT_DATA_ACK, .flags = WEFT_DATA_SLOT, .c = 1};
    uint32_t pool = pair_up(&pair, 2);
    int slot;
    (void)state;
    assert_true(stream(end));
    slot = flying_slot(end);
    assert_true(slot > 0); /* lane 0 is for envelopes */
    ack.tag = (uint32_t)slot;
    ack.seq = slot_at(end, (uint32_t)slot)->generation - 1; /* of the connection before */
    deliver(end, &ack);
    assert_int_equal(flying_slot(end), slot);
    ack.seq++;
    ack.c = 2; /* more than were sent */
    deliver(end, &ack);
    assert_int_equal(flying_slot(end), slot);
    ack.tag = WEFT_LINK_SLOTS + (uint32_t)slot; /* no slot at all */
    ack.c = 1;
    deliver(end, &ack);
    assert_int_equal(flying_slot(end), slot);
    assert_int_equal(user_of(end)->sent, 0);
    settle(&pair);
    check_settled(&pair, pool);
    pair_down(&pair);
}

static void what_was_on_a_slot_that_dies_goes_by_another_once(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3);
    int slot;
    (void)state;
    assert_true(stream(end));
    slot = flying_slot(end);
    fake_arrive(lane_of(other, (uint32_t)slot)); /* its header is there, and placed */
    take(other);
    assert_true(other->pieces[slot].is_there);
    fake_end(lane_of(end, (uint32_t)slot)); /* the sender knows, the receiver not yet */
    take(end);
    assert_true(flying_slot(end) > 0 && flying_slot(end) != slot);
    fake_arrive(lane_of(other, (uint32_t)flying_slot(end)));
    take(other);
    assert_false(other->pieces[slot].is_there); /* the copy has taken it over */
    settle(&pair);
    assert_int_equal(user_of(other)->landed, 1);
    check_settled(&pair, pool);
    pair_down(&pair);
}

/* The word that it came is lost with the lane that carried it. */
static void what_has_landed_is_told_again_by_a_new_lead(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3), slot;
    (void)state;
    assert_true(stream(end));
    slot = (uint32_t)flying_slot(end);
    fake_arrive(lane_of(other, slot));
    take(other);
    fake_body(lane_of(other, slot));
    take(other);
    tick(other);
    assert_true(fake_queued(other->link.lane) > 0);
    fake_end(lane_of(other, 0)); /* with what it was to say */
    take(other);
    settle(&pair);
    assert_int_equal(user_of(end)->sent, 1);
    check_settled(&pair, pool);
    pair_down(&pair);
}

/* The former owner's header comes after the copy's: it must not take it back. */
static void an_older_copy_takes_nothing_over(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3);
    int old, new;
    (void)state;
    assert_true(stream(end));
    old = flying_slot(end);
    fake_leave(lane_of(other, (uint32_t)old));
    fake_end(lane_of(end, (uint32_t)old));
    take(end);
    new = flying_slot(end);
    fake_arrive(lane_of(other, (uint32_t) new));
    take(other);
    fake_arrive(lane_of(other, (uint32_t)old));
    take(other);
    assert_true(other->pieces[new].is_there);
    assert_false(other->pieces[old].is_there);
    settle(&pair);
    assert_int_equal(user_of(other)->landed, 1);
    check_settled(&pair, pool);
    pair_down(&pair);
}

static void a_chunk_that_is_wanted_back_leaves_no_hole(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    uint32_t pool = pair_up(&pair, 3);
    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_true(stream(end));
    }
    for (uint32_t i = 1; i < end->link.bundle->count; i++) {
        fake_end(lane_of(end, i)); /* all of them wait to go again */
    }
    forget(end, 2);
    take(end);
    forget(end, 4);
    settle(&pair);
    assert_true(user_of(&pair.end[0])->landed < 6); /* one went as nothing, at least */
    check_settled(&pair, pool);
    pair_down(&pair);
}

static void the_window_binds(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    uint32_t pool, flying = 0;
    (void)state;
    pool = pair_up(&pair, 2);
    end->params.number[WEFT_PARAM_WINDOW] = 3;
    end->params.number[WEFT_PARAM_CHUNK] = CHUNK_LEN;
    while (stream(end)) {
    }
    for (uint32_t i = 0; i < end->link.bundle->count; i++) {
        assert_true(slot_at(end, i)->flying_count <= 3);
        flying += slot_at(end, i)->flying_count;
    }
    assert_int_equal(flying, 6);
    settle(&pair);
    assert_true(stream(end)); /* and there is room again */
    settle(&pair);
    check_settled(&pair, pool);
    pair_down(&pair);
}

static void a_slot_of_half_the_rate_gets_half(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    pair_up(&pair, 2);
    slot_at(end, 1)->rate = 100e6;
    slot_at(end, 2)->rate = 50e6;
    slot_at(end, 1)->known_ns = slot_at(end, 2)->known_ns = weft_clock_ns();
    for (int i = 0; i < 30; i++) {
        assert_true(stream(end));
    }
    assert_in_range(slot_at(end, 1)->flying_count, 19, 21);
    assert_int_equal(slot_at(end, 1)->flying_count + slot_at(end, 2)->flying_count, 30);
    settle(&pair);
    pair_down(&pair);
}

/* Of 200 bytes in 2 ms nobody learns what a lane could carry. */
static void a_few_bytes_say_nothing_of_the_rate(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    int slot;
    (void)state;
    pair_up(&pair, 2);
    slot_at(end, 1)->rate = slot_at(end, 2)->rate = 100e6;
    for (int i = 0; i < 5; i++) {
        assert_true(stream(end));
        slot = flying_slot(end);
        slot_at(end, (uint32_t)slot)->rate_ns -= 5000000;
        settle(&pair);
        assert_true(slot_at(end, (uint32_t)slot)->rate == 100e6);
    }
    pair_down(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acknowledgements_count_for_their_connection_only),
        cmocka_unit_test(what_was_on_a_slot_that_dies_goes_by_another_once),
        cmocka_unit_test(what_has_landed_is_told_again_by_a_new_lead),
        cmocka_unit_test(an_older_copy_takes_nothing_over),
        cmocka_unit_test(a_chunk_that_is_wanted_back_leaves_no_hole),
        cmocka_unit_test(the_window_binds),
        cmocka_unit_test(a_slot_of_half_the_rate_gets_half),
        cmocka_unit_test(a_few_bytes_say_nothing_of_the_rate),
    };
    setenv("WEFT_LOG", "error", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
