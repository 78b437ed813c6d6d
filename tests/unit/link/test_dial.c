/* SPDX-License-Identifier: Apache-2.0 */
/* Which of our NICs leads to which of the peer's, where several of both are in one network. */
#include "played.h"

static int stage_end(void **state)
{
    stage_close(state);
    cast = (struct cast){0};
    return 0;
}

/* We dial; the peer has so many addresses, all in one network, as ours are. */
static void call_from(uint32_t addresses)
{
    struct weft_wire_dialling here = {.kind = WEFT_DIALLING_HERE,
                                      .tcp_len = (uint8_t)(addresses * WEFT_WIRE_ADDR_LEN)};
    uint8_t bytes[WEFT_WIRE_DIALLING_MAX];
    for (uint32_t i = 0; i < addresses; i++) {
        const struct weft_wire_addr there = {
            .family = 4, .port = 1, .bytes = {10, 0, 0, (uint8_t)(100 + i)}};
        weft_wire_addr_encode(&there, here.tcp + (size_t)i * WEFT_WIRE_ADDR_LEN);
    }
    weft_links_called(stage.links, 1, bytes, weft_wire_dialling_encode(&here, bytes));
}

/* The first `dark` have lost their carrier before. */
static void open_dark(uint32_t nics, uint32_t addresses, uint32_t dark)
{
    cast = (struct cast){.nics = nics, .is_flat = true};
    stage_open_as(2);
    for (uint32_t i = 0; i < dark; i++) {
        stage.links->down_ns[i] = weft_clock_ns();
    }
    call_from(addresses);
}

static void open_flat(uint32_t nics, uint32_t addresses)
{
    open_dark(nics, addresses, 0);
}

static int open_one_of_two(void **state)
{
    (void)state;
    open_dark(2, 2, 1);
    return 0;
}

static int open_none_of_two(void **state)
{
    (void)state;
    open_dark(2, 2, 2);
    return 0;
}

static weft_status_t (*open_any)(struct weft_lane_port *, const struct weft_lane_call *,
                                 struct weft_lane **);

static weft_status_t open_by_the_first(struct weft_lane_port *port,
                                       const struct weft_lane_call *call, struct weft_lane **lane_p)
{
    return port == port_of(0) ? open_any(port, call, lane_p)
                              : weft_fail(WEFT_ERR_NETWORK, "no route by the second");
}

static int open_two(void **state)
{
    (void)state;
    open_flat(2, 2);
    return 0;
}

static int open_three_to_two(void **state)
{
    (void)state;
    open_flat(3, 2);
    return 0;
}

static struct weft_slot *slot_at(uint32_t index)
{
    return &stage.link.bundle->slots[index];
}

/* Slots of bulk that end at this address of the peer. */
static uint32_t count_at(uint32_t there)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i < stage.link.bundle->count; i++) {
        count += slot_at(i)->there == there;
    }
    return count;
}

static void comes_up(uint16_t slot)
{
    stage.player[slot].lane.is_up = true;
    add(slot, WEFT_DONE_OPENED);
    poll();
    assert_int_equal(slot_at(slot)->state, SLOT_UP);
}

/* A connection ends, or a dial had no answer. */
static void ends(uint16_t slot)
{
    add(slot, WEFT_DONE_LOST)->status = WEFT_ERR_NETWORK;
    stage.script[0].text = "over";
    poll();
    assert_int_equal(slot_at(slot)->state, SLOT_DOWN);
}

static void tick(void)
{
    stage.link.bundle->tick.fire(&stage.link.bundle->tick, weft_clock_ns());
}

static void each_nic_gets_a_partner_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(stage.link.bundle->count, 3);
    assert_int_equal(count_at(0), 1);
    assert_int_equal(count_at(1), 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(slot_at(i)->there, slot_at(i)->nic);
    }
}

static void who_has_more_nics_uses_all_of_the_peers(void **state)
{
    (void)state;
    assert_int_equal(stage.link.bundle->count, 4);
    assert_int_equal(count_at(0), 2);
    assert_int_equal(count_at(1), 1);
}

/* It carries a little when it is back, or at least its end is known then. */
static void a_nic_without_carrier_is_dialled_when_no_other_can_be(void **state)
{
    static struct weft_lane_ops ops;
    (void)state;
    cast = (struct cast){.nics = 2, .is_flat = true};
    stage_open_as(2);
    ops = *stage.links->tcp_ops;
    open_any = ops.open;
    ops.open = open_by_the_first;
    stage.links->tcp_ops = &ops;
    stage.links->down_ns[0] = weft_clock_ns();
    call_from(2);
    assert_int_not_equal(stage.link.state, WEFT_LINK_DOWN);
    assert_int_equal(slot_at(1)->nic == 0 ? slot_at(1)->state : slot_at(2)->state, SLOT_DIALLING);
}

/* The NIC of slot 0 is dead here, that of slot 1 there: only across is a way. */
static void another_address_is_tried_when_nothing_gets_through(void **state)
{
    uint32_t home = slot_at(1)->home;
    (void)state;
    for (uint16_t i = 0; i < 3; i++) {
        comes_up(i);
    }
    for (uint16_t i = 0; i < 3; i++) {
        ends(i);
    }
    tick();
    assert_int_equal(slot_at(1)->there, home); /* first where it was */
    ends(1);
    tick();
    assert_int_equal(slot_at(1)->there, 1 - home);
    ends(1);
    tick();
    assert_int_equal(slot_at(1)->there, home); /* by turns */
    ends(1);
    tick();
    comes_up(1);
    assert_int_equal(slot_at(1)->there, 1 - home);
    tick();
    assert_int_equal(slot_at(1)->state, SLOT_UP);
}

static void it_returns_when_another_is_up_at_its_own(void **state)
{
    (void)state;
    another_address_is_tried_when_nothing_gets_through(state);
    comes_up(0);
    tick();
    assert_int_equal(slot_at(1)->state, SLOT_DOWN);
    assert_true(stage.player[1].is_closed);
    slot_at(1)->retry_ns = 0;
    tick();
    assert_int_equal(slot_at(1)->state, SLOT_DIALLING);
    assert_int_equal(slot_at(1)->there, slot_at(1)->home);
}

static void while_another_gets_through_it_waits_for_its_own(void **state)
{
    (void)state;
    for (uint16_t i = 0; i < 3; i++) {
        comes_up(i);
    }
    ends(1);
    for (int i = 0; i < 4; i++) {
        slot_at(1)->retry_ns = 0;
        tick();
        assert_int_equal(slot_at(1)->state, SLOT_DIALLING);
        assert_int_equal(slot_at(1)->there, slot_at(1)->home);
        ends(1);
    }
}

/* The first connections are dialled for as long as a start may take: one by a dead NIC would hang so long. */
static void a_nic_without_carrier_is_dialled_when_it_is_back(void **state)
{
    (void)state;
    assert_int_equal(stage.link.bundle->count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        bool is_dark = slot_at(i)->nic == 0;
        assert_int_equal(slot_at(i)->state, is_dark ? SLOT_DOWN : SLOT_DIALLING);
        assert_int_equal(stage.player[i].opens, is_dark ? 0 : 1);
    }
    comes_up(1);
    assert_int_equal(stage.link.state, WEFT_LINK_UP);
    slot_at(0)->retry_ns = 0;
    tick();
    assert_int_equal(slot_at(0)->state, SLOT_DOWN);
    weft_links_carrier(stage.links, "a", true);
    tick();
    assert_int_equal(slot_at(0)->state, SLOT_DIALLING);
    comes_up(0);
    assert_ptr_equal(stage.link.lane, &stage.player[0].lane);
}

static void without_any_carrier_all_are_dialled(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(slot_at(i)->state, SLOT_DIALLING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_nic_gets_a_partner_of_its_own, open_two, stage_end),
        cmocka_unit_test_setup_teardown(who_has_more_nics_uses_all_of_the_peers, open_three_to_two,
                                        stage_end),
        cmocka_unit_test_setup_teardown(a_nic_without_carrier_is_dialled_when_it_is_back,
                                        open_one_of_two, stage_end),
        cmocka_unit_test_setup_teardown(without_any_carrier_all_are_dialled, open_none_of_two,
                                        stage_end),
        cmocka_unit_test_teardown(a_nic_without_carrier_is_dialled_when_no_other_can_be, stage_end),
        cmocka_unit_test_setup_teardown(another_address_is_tried_when_nothing_gets_through,
                                        open_two, stage_end),
        cmocka_unit_test_setup_teardown(it_returns_when_another_is_up_at_its_own, open_two,
                                        stage_end),
        cmocka_unit_test_setup_teardown(while_another_gets_through_it_waits_for_its_own, open_two,
                                        stage_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
