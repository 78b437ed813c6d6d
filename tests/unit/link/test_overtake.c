/* SPDX-License-Identifier: Apache-2.0 */
/* A lane whose rate collapsed: when others take over, what becomes of what it holds, where the lead goes. */
#include "unit/link/user.h"

#define TICK_NS UINT64_C(100000000)

static struct weft_slot *slot_at(struct end *end, uint32_t i)
{
    return &end->link.bundle->slots[i];
}

/* Three chunks on slot 1, and nothing elsewhere. */
static void load_slot(struct end *end)
{
    for (uint32_t i = 0; i < end->link.bundle->count; i++) {
        slot_at(end, i)->rate = i == 1 ? 1e12 : 1; /* all of them go there */
    }
    for (int i = 0; i < 3; i++) {
        assert_true(stream(end));
    }
    assert_int_equal(slot_at(end, 1)->flying_count, 3);
    for (uint32_t i = 0; i < end->link.bundle->count; i++) {
        slot_at(end, i)->rate = 1e9;
    }
    lane_of(end, 1)->is_held = true;
}

static uint64_t due_of(struct end *end)
{
    return WEFT_CONTAINER_OF(slot_at(end, 1)->flying.next, struct weft_link_chunk, node)->due_ns;
}

/* Ticks in time, the latest at now_ns. */
static void overtake_at(struct end *end, uint64_t now_ns, int ticks)
{
    end->link.bundle->tick_ns = now_ns - (uint64_t)ticks * TICK_NS;
    for (int i = 1; i <= ticks; i++) {
        weft_chunks_overtake(end->link.bundle, now_ns - (uint64_t)(ticks - i) * TICK_NS);
    }
}

static void it_takes_two_ticks_in_time_that_find_it_overdue_and_held(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    uint64_t due_ns;
    (void)state;
    pair_up(&pair, 3);
    load_slot(end);
    due_ns = due_of(end);
    overtake_at(end, due_ns - 1, 3); /* not due yet */
    assert_int_equal(slot_at(end, 1)->ghost_count, 0);
    overtake_at(end, due_ns + 1, 1); /* once may be chance */
    assert_int_equal(slot_at(end, 1)->ghost_count, 0);
    end->link.bundle->tick_ns = due_ns;
    weft_chunks_overtake(end->link.bundle, due_ns + 5 * TICK_NS); /* it was we who slept */
    assert_int_equal(slot_at(end, 1)->overdue, 0);
    lane_of(end, 1)->is_held = false; /* the peer does not read: others would not help */
    overtake_at(end, due_ns + 9 * TICK_NS, 3);
    assert_int_equal(slot_at(end, 1)->ghost_count, 0);
    lane_of(end, 1)->is_held = true;
    overtake_at(end, due_ns + 9 * TICK_NS, 2);
    assert_int_equal(slot_at(end, 1)->ghost_count, 3);
    settle(&pair);
    pair_down(&pair);
}

static void without_one_that_gets_through_nothing_is_gained(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    pair_up(&pair, 2);
    load_slot(end);
    slot_at(end, 2)->rate = 1e12;
    assert_true(stream(end)); /* busy, and has got nothing through lately */
    slot_at(end, 2)->acked_ns = 0;
    overtake_at(end, due_of(end) + 10 * TICK_NS, 3);
    assert_int_equal(slot_at(end, 1)->ghost_count, 0);
    slot_at(end, 2)->acked_ns = due_of(end) + 10 * TICK_NS;
    overtake_at(end, due_of(end) + 10 * TICK_NS, 3);
    assert_int_equal(slot_at(end, 1)->ghost_count, 3);
    settle(&pair);
    pair_down(&pair);
}

/* What is in the pipe stays there; what is not becomes a byte; the memory is the user's when the copies are there. */
static void copies_bring_it_and_the_slow_one_drains_to_the_sink(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3);
    (void)state;
    load_slot(end);
    fake_leave(lane_of(other, 1));
    fake_arrive(lane_of(other, 1)); /* the first has begun to arrive */
    take(other);
    assert_true(other->pieces[1].is_there);
    overtake_at(end, due_of(end) + TICK_NS + 1, 2);
    assert_int_equal(slot_at(end, 1)->flying_count, 3);
    assert_int_equal(slot_at(end, 1)->flying_len, CHUNK_LEN + 2);
    assert_true(weft_chunks_replay(end->link.bundle));
    for (uint32_t i = 2; i < end->link.bundle->count; i++) {
        while (fake_arrive(lane_of(other, i)) || fake_body(lane_of(other, i))) {
            take(other);
        }
    }
    take(other);
    assert_false(other->pieces[1].is_there); /* a copy has taken it over */
    assert_int_equal(user_of(other)->landed, 3);
    tick(other); /* tells what came */
    while (fake_arrive(lane_of(end, 0))) {
    }
    take(end);
    take(end);
    assert_int_equal(user_of(end)->sent, 3); /* and scribbled over by its owner */
    assert_int_equal(slot_at(end, 1)->flying_count, 3);
    assert_true(weft_link_is_flushed(&end->link, 0)); /* nobody waits for ghosts */
    settle(&pair);
    assert_int_equal(user_of(other)->landed, 3);
    check_settled(&pair, pool);
    pair_down(&pair);
}

/* Its bytes went to the sink because a copy was on its way; that copy has not landed. */
static void a_ghosts_acknowledgement_is_not_taken_for_its_copys(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3), by = 0;
    (void)state;
    load_slot(end);
    while (fake_leave(lane_of(other, 1))) {
    }
    overtake_at(end, due_of(end) + TICK_NS + 1, 2);
    weft_chunks_replay(end->link.bundle);
    for (uint32_t i = 2; i < end->link.bundle->count; i++) {
        by = slot_at(end, i)->flying_count > 0 ? i : by;
    }
    fake_arrive(lane_of(other, by)); /* its copy's header is the first to come */
    take(other);
    while (fake_arrive(lane_of(other, 1)) || fake_body(lane_of(other, 1))) {
        take(other);
    }
    take(other);
    tick(other);
    while (fake_arrive(lane_of(end, 0))) {
    }
    take(end);
    take(end);
    assert_int_equal(slot_at(end, 1)->flying_count, 0); /* all of them were counted … */
    assert_true(user_of(end)->sent < 3);                /* … and one has not landed */
    assert_int_equal(slot_at(end, 1)->rate_len, 0); /* nor do they say what the lane drains now */
    settle(&pair);
    assert_int_equal(user_of(other)->landed, 3);
    check_settled(&pair, pool);
    pair_down(&pair);
}

static void the_lead_leaves_a_slow_nic_on_both_sides_and_comes_back(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3), last = 0;
    (void)state;
    for (uint32_t i = 1; i < end->link.bundle->count; i++) {
        last = slot_at(end, i)->nic == slot_at(end, 0)->nic ? i : last; /* bulk over lane 0's NIC */
    }
    for (uint32_t i = 1; i < end->link.bundle->count; i++) {
        slot_at(end, i)->rate = i == last ? 1e12 : 1;
    }
    assert_true(stream(end));
    for (uint32_t i = 1; i < end->link.bundle->count; i++) {
        slot_at(end, i)->rate = 1e9;
    }
    lane_of(end, last)->is_held = true;
    slot_at(end, last)->rate_ns -= 10 * TICK_NS;
    overtake_at(end, weft_clock_ns() + 50 * TICK_NS, 2);
    weft_link_set_lead(&end->link, weft_bundle_find_lead(end->link.bundle));
    assert_int_equal(end->link.lane->slot, 1);
    settle(&pair);
    assert_int_equal(end->link.lane->slot, 1); /* lane 0 lives, and is avoided */
    assert_int_equal(other->link.lane->slot, 1);
    slot_at(end, last)->rate = 1e9; /* as bulk finds out that tries it */
    settle(&pair);
    assert_int_equal(end->link.lane->slot, 0);
    assert_int_equal(other->link.lane->slot, 0);
    check_settled(&pair, pool);
    pair_down(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_takes_two_ticks_in_time_that_find_it_overdue_and_held),
        cmocka_unit_test(without_one_that_gets_through_nothing_is_gained),
        cmocka_unit_test(copies_bring_it_and_the_slow_one_drains_to_the_sink),
        cmocka_unit_test(a_ghosts_acknowledgement_is_not_taken_for_its_copys),
        cmocka_unit_test(the_lead_leaves_a_slow_nic_on_both_sides_and_comes_back),
    };
    setenv("WEFT_LOG", "error", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
