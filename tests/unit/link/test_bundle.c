/* SPDX-License-Identifier: Apache-2.0 */
/* Slots come and go: which one leads, what replaces what, what is given up and what is not. */
#include "unit/base/capture.h"
#include "unit/link/user.h"

static struct weft_slot *slot_at(struct end *end, uint32_t i)
{
    return &end->link.bundle->slots[i];
}

static uint32_t lead_of(const struct end *end)
{
    return end->link.lane != NULL ? end->link.lane->slot : UINT32_MAX;
}

static void every_nic_has_its_lane_and_two_lanes_are_never_one_nic(void **state)
{
    static struct pair pair;
    (void)state;
    for (uint32_t nics = 1; nics <= NICS_MAX; nics++) {
        uint32_t seen = 0;
        pair_up(&pair, nics);
        assert_int_equal(pair.end[1].link.bundle->count, nics > 1 ? nics + 1 : 1);
        for (uint32_t i = nics > 1; i < pair.end[1].link.bundle->count; i++) {
            seen |= 1u << slot_at(&pair.end[1], i)->nic;
            assert_int_equal(slot_at(&pair.end[1], i)->nic, slot_at(&pair.end[0], i)->nic);
        }
        assert_int_equal(seen, (1u << nics) - 1);
        assert_true(nics == 1 || slot_at(&pair.end[1], 1)->nic != slot_at(&pair.end[1], 0)->nic);
        pair_down(&pair);
    }
}

static void the_first_that_lives_leads_and_lane_0_again_when_it_is_back(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    pair_up(&pair, 3);
    assert_int_equal(lead_of(end), 0);
    for (uint32_t i = 0; i < 3; i++) {
        fake_end(lane_of(end, i));
        take(end);
        assert_int_equal(lead_of(end), i + 1);
    }
    settle(&pair);
    assert_int_equal(lead_of(end), 0);
    assert_int_equal(lead_of(&pair.end[0]), 0);
    pair_down(&pair);
}

/* Half of it is in the user's memory when its lane dies. */
static void an_envelope_that_was_half_way_is_completed_by_its_copy(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 2);
    (void)state;
    while (envelope_len(user_of(end)->said + 1) <= WHOLE_MAX) {
        assert_true(say(end));
    }
    settle(&pair);
    assert_true(say(end)); /* a long one */
    fake_arrive(lane_of(other, 0));
    take(other);
    assert_true(other->link.placed_lane != NULL);
    fake_end(lane_of(end, 0));
    take(end);
    settle(&pair);
    check_settled(&pair, pool);
    pair_down(&pair);
}

/* The dialler dials again before the other one knows that the old connection is over. */
static void a_later_generation_replaces_an_earlier_one_and_never_the_reverse(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[0];
    struct fake_port *port;
    struct fake_lane *late;
    struct weft_lane *now;
    uint32_t generation;
    (void)state;
    pair_up(&pair, 2);
    generation = slot_at(end, 1)->generation;
    fake_end(lane_of(&pair.end[1], 1));
    take(&pair.end[1]);
    dial_now(&pair.end[1]);
    tick(&pair.end[1]);
    each_lane(&pair.end[1], connect_dialled);
    take(end);
    assert_int_equal(slot_at(end, 1)->generation, generation + 1);
    now = slot_at(end, 1)->lane;
    port = (struct fake_port *)(void *)now->port;
    late = fake_lane_new(port, 1, 1, generation); /* was on its way all the time */
    late->lane.is_up = true;
    take(end);
    assert_ptr_equal(slot_at(end, 1)->lane, now);
    late = fake_lane_new(port, 1, WEFT_LINK_SLOTS, 1); /* there is no such slot */
    late->lane.is_up = true;
    take(end);
    take(end); /* refused ones are closed by the next poll */
    settle(&pair);
    pair_down(&pair);
}

static void what_the_peer_gave_up_is_given_up_if_it_is_the_same_connection(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[0];
    struct weft_wire_data down = {.type = WEFT_DATA_ACK, .flags = WEFT_DATA_DOWN, .tag = 1};
    (void)state;
    pair_up(&pair, 2);
    down.seq = slot_at(end, 1)->generation - 1;
    weft_bundle_told_down(end->link.bundle, &down);
    assert_int_equal(slot_at(end, 1)->state, SLOT_UP);
    down.tag = WEFT_LINK_SLOTS + 1;
    down.seq++;
    weft_bundle_told_down(end->link.bundle, &down);
    assert_int_equal(slot_at(end, 1)->state, SLOT_UP);
    down.tag = 1;
    weft_bundle_told_down(end->link.bundle, &down);
    assert_int_equal(slot_at(end, 1)->state, SLOT_DOWN);
    settle(&pair);
    assert_int_equal(slot_at(end, 1)->state, SLOT_UP);
    pair_down(&pair);
}

static void a_silent_lane_is_given_up_but_the_last_one_is_kept(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    pair_up(&pair, 2);
    for (uint32_t i = 0; i < 3; i++) {
        lane_of(end, i)->silent_ms = 499;
    }
    tick(end);
    assert_int_equal(slot_at(end, 1)->state, SLOT_UP);
    for (uint32_t i = 0; i < 3; i++) {
        lane_of(end, i)->silent_ms = 500;
    }
    tick(end);
    assert_int_equal(slot_at(end, 0)->state, SLOT_DOWN);
    assert_int_equal(slot_at(end, 1)->state, SLOT_DOWN);
    assert_int_equal(slot_at(end, 2)->state, SLOT_UP);
    lane_of(end, 2)->silent_ms = 5000;
    end->link.bundle->opened_ns -= 5 * UINT64_C(1000000000);
    tick(end);
    take(end);
    assert_int_equal(end->lost, 1);
    assert_int_equal(end->link.status, WEFT_ERR_NETWORK);
    assert_non_null(strstr(end->link.text, "n0"));
    assert_non_null(strstr(end->link.text, "n1"));
    pair_down(&pair);
}

/* Not even the last one was heard of in all that time, but another was up for a moment. */
static void a_link_lives_on_while_lanes_come_up(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    pair_up(&pair, 2);
    for (uint32_t i = 0; i < 3; i++) {
        lane_of(end, i)->silent_ms = 5000;
    }
    end->link.bundle->opened_ns -= 4 * UINT64_C(1000000000);
    tick(end);
    take(end);
    assert_int_equal(end->lost, 0);
    assert_int_equal(slot_at(end, 2)->state, SLOT_DOWN); /* it is dialled, as the others are */
    settle(&pair);
    assert_int_equal(slot_at(end, 2)->state, SLOT_UP);
    pair_down(&pair);
}

/* Two lanes were given up for their silence, six seconds ago. */
static void fall_silent(struct pair *pair)
{
    struct end *end = &pair->end[1];
    pair_up(pair, 2);
    lane_of(end, 0)->silent_ms = lane_of(end, 1)->silent_ms = 500;
    tick(end);
    assert_int_equal(slot_at(end, 1)->state, SLOT_DOWN);
    assert_int_equal(slot_at(end, 2)->state, SLOT_UP);
    end->link.bundle->mute_ns -= 6 * UINT64_C(1000000000);
    end->link.bundle->opened_ns -= 6 * UINT64_C(1000000000);
}

static void the_time_of_the_last_one_began_when_the_first_fell_silent(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    fall_silent(&pair);
    lane_of(end, 2)->silent_ms = 499; /* it may have been resting all the time */
    tick(end);
    assert_int_equal(slot_at(end, 2)->state, SLOT_UP);
    lane_of(end, 2)->silent_ms = 500;
    tick(end);
    take(end);
    assert_int_equal(end->lost, 1);
    pair_down(&pair);
}

static void it_begins_anew_when_anything_came_since(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    fall_silent(&pair);
    assert_true(say(end));
    take(&pair.end[0]);
    while (each_lane(&pair.end[0], move) + take(&pair.end[0]) > 0) {
    }
    tick(&pair.end[0]); /* tells that it came */
    fake_arrive(lane_of(end, 2));
    take(end);
    lane_of(end, 2)->silent_ms = 500;
    tick(end);
    take(end);
    assert_int_equal(end->lost, 0);
    assert_int_equal(slot_at(end, 2)->state, SLOT_UP);
    lane_of(end, 2)->silent_ms = 0;
    settle(&pair);
    pair_down(&pair);
}

static void it_begins_anew_when_nobody_had_anything_to_say(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    (void)state;
    fall_silent(&pair);
    end->link.bundle->stir_ns -= 2 * UINT64_C(1000000000);
    tick(end);
    lane_of(end, 2)->silent_ms = 500;
    tick(end);
    take(end);
    assert_int_equal(end->lost, 0);
    assert_int_equal(slot_at(end, 2)->state, SLOT_UP);
    lane_of(end, 2)->silent_ms = 0;
    settle(&pair);
    pair_down(&pair);
}

/* They were down for so long that the pauses have grown. */
static void nobody_pauses_when_nothing_gets_through(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    struct weft_slot *slot;
    (void)state;
    pair_up(&pair, 2);
    slot = slot_at(end, 1);
    fake_end(lane_of(end, 1));
    take(end);
    slot->retry_ns = weft_clock_after_ms(1000);
    tick(end);
    assert_int_equal(slot->state, SLOT_DOWN); /* there are others */
    for (uint32_t i = 0; i < 3; i += 2) {
        lane_of(end, i)->silent_ms = 500;
    }
    tick(end); /* one is given up, one is kept */
    tick(end);
    assert_int_equal(slot->state, SLOT_DIALLING);
    settle(&pair);
    assert_int_equal(slot->state, SLOT_UP);
    pair_down(&pair);
}

static void a_nic_without_carrier_takes_all_its_lanes_along(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    uint32_t generation;
    (void)state;
    pair_up(&pair, 3);
    weft_links_carrier(end->links, "n0", false);
    for (uint32_t i = 0; i < end->link.bundle->count; i++) {
        assert_int_equal(slot_at(end, i)->state == SLOT_UP, slot_at(end, i)->nic != 0);
    }
    weft_links_carrier(end->links, "n0", true);
    tick(end); /* it is dialled at once */
    assert_int_equal(slot_at(end, 0)->state, SLOT_DIALLING);
    generation = slot_at(end, 0)->generation;
    weft_links_carrier(end->links, "n0", false);
    weft_links_carrier(end->links, "n0", true); /* that call may be lost */
    tick(end);
    assert_int_equal(slot_at(end, 0)->state, SLOT_DIALLING);
    assert_int_equal(slot_at(end, 0)->generation, generation + 1);
    settle(&pair);
    pair_down(&pair);
}

/* How often this was said. */
static uint32_t count_said(const char *text, const char *words)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) {
        count++;
    }
    return count;
}

static void the_warning_of_the_last_lane_names_no_others(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    struct capture capture;
    char text[4096];
    (void)state;
    pair_up(&pair, 2);
    for (uint32_t i = 0; i < 3; i++) {
        lane_of(end, i)->silent_ms = 1000000;
    }
    weft_log_configure("warn");
    capture_begin(&capture);
    tick(end);
    capture_end(&capture, text, sizeof(text));
    weft_log_configure("off");
    assert_int_equal(count_said(text, "is given up"), 3);
    assert_int_equal(count_said(text, "the others take over"), 2);
    assert_int_equal(count_said(text, "no other is left"), 1);
    pair_down(&pair);
}

/* Several ways may be tried, though none is known to work. */
static void whether_any_way_is_alive_is_known(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    bool is_alive = false;
    (void)state;
    pair_up(&pair, 2);
    assert_true(weft_link_reaches(&end->link, &is_alive));
    assert_true(is_alive);
    for (uint32_t i = 0; i < 3; i++) {
        lane_of(end, i)->silent_ms = 1000; /* the last one of them is not given up so soon */
    }
    tick(end);
    assert_true(weft_link_reaches(&end->link, &is_alive));
    assert_false(is_alive);
    pair_down(&pair);
}

static void the_other_way_is_taken_with_a_reason(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1];
    struct capture capture;
    char text[4096];
    (void)state;
    pair_up(&pair, 2);
    end->link.is_shm_tried = true;
    weft_link_fail(&end->link, WEFT_ERR_SYSTEM, "no file is left");
    weft_log_configure("warn");
    capture_begin(&capture);
    assert_true(weft_link_try_elsewhere(&end->link));
    capture_end(&capture, text, sizeof(text));
    weft_log_configure("off");
    assert_int_equal(count_said(text, "no shared memory with rank 0, tcp instead: no file is left"),
                     1);
    pair_down(&pair);
}

static void pauses_between_dials_grow(void **state)
{
    struct weft_slot slot = {0};
    (void)state;
    for (uint64_t pause = 100; pause <= 1600; pause *= 2) {
        weft_slot_retry_later(&slot);
        assert_int_equal(slot.pause_ms, pause < 1000 ? pause : 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_nic_has_its_lane_and_two_lanes_are_never_one_nic),
        cmocka_unit_test(the_first_that_lives_leads_and_lane_0_again_when_it_is_back),
        cmocka_unit_test(an_envelope_that_was_half_way_is_completed_by_its_copy),
        cmocka_unit_test(a_later_generation_replaces_an_earlier_one_and_never_the_reverse),
        cmocka_unit_test(what_the_peer_gave_up_is_given_up_if_it_is_the_same_connection),
        cmocka_unit_test(a_silent_lane_is_given_up_but_the_last_one_is_kept),
        cmocka_unit_test(a_link_lives_on_while_lanes_come_up),
        cmocka_unit_test(the_time_of_the_last_one_began_when_the_first_fell_silent),
        cmocka_unit_test(it_begins_anew_when_anything_came_since),
        cmocka_unit_test(it_begins_anew_when_nobody_had_anything_to_say),
        cmocka_unit_test(nobody_pauses_when_nothing_gets_through),
        cmocka_unit_test(a_nic_without_carrier_takes_all_its_lanes_along),
        cmocka_unit_test(the_warning_of_the_last_lane_names_no_others),
        cmocka_unit_test(whether_any_way_is_alive_is_known),
        cmocka_unit_test(the_other_way_is_taken_with_a_reason),
        cmocka_unit_test(pauses_between_dials_grow),
    };
    setenv("WEFT_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
