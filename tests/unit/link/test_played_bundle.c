/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that come and go with their NICs. Lanes 1 and 3 go by NIC a, 0 and 2 by NIC b. */
#include "played.h"

#include <string.h>

static enum weft_slot_state state_of(uint16_t slot)
{
    return stage.link.bundle->slots[slot].state;
}

/* ---- we are dialled ---- */

static void a_lane_that_opens_when_its_nic_is_dead_already_is_refused(void **state)
{
    (void)state;
    begin(2);
    weft_links_carrier(stage.links, "a", false);
    assert_int_equal(state_of(1), SLOT_DOWN);
    opens(3);
    poll();
    assert_int_equal(stage.count, 0);
    assert_int_equal(state_of(3), SLOT_EMPTY);
    poll();
    assert_true(stage.player[3].is_closed);
}

static void it_is_welcome_when_the_nic_is_back(void **state)
{
    (void)state;
    begin(2);
    weft_links_carrier(stage.links, "a", false);
    weft_links_carrier(stage.links, "a", true);
    opens(3);
    poll();
    assert_int_equal(stage.count, 1);
    assert_int_equal(state_of(3), SLOT_UP);
}

static void a_lane_of_another_nic_is_welcome(void **state)
{
    (void)state;
    begin(2);
    weft_links_carrier(stage.links, "a", false);
    opens(0);
    poll();
    assert_int_equal(stage.count, 1);
    assert_int_equal(state_of(0), SLOT_UP);
}

static void the_only_lane_is_welcome_whatever_is_said_of_its_nic(void **state)
{
    (void)state;
    weft_links_carrier(stage.links, "a", false);
    begin(1);
    assert_int_equal(state_of(1), SLOT_UP);
}

static void the_peer_hears_that_later_ones_are_dead_too(void **state)
{
    (void)state;
    begin(2);
    weft_links_carrier(stage.links, "a", false);
    assert_int_equal(stage.down.tag, 1);
    assert_int_equal(stage.down.seq, 1);
    assert_int_equal(stage.down.c, 1);
    gives_up(2, 2); /* of a living NIC: only that one */
    poll();
    assert_int_equal(state_of(2), SLOT_DOWN);
}

/* ---- we dial ---- */

static int stage_open_dialler(void **state)
{
    struct weft_wire_dialling here = {.kind = WEFT_DIALLING_HERE,
                                      .tcp_len = 2 * WEFT_WIRE_ADDR_LEN};
    uint8_t bytes[WEFT_WIRE_DIALLING_MAX];
    const struct weft_wire_addr there = {.family = 4, .port = 1};
    (void)state;
    stage_open_as(2);
    weft_wire_addr_encode(&there, here.tcp);
    weft_wire_addr_encode(&there, here.tcp + WEFT_WIRE_ADDR_LEN);
    weft_links_called(stage.links, 1, bytes, weft_wire_dialling_encode(&here, bytes));
    return 0;
}

static void is_open(uint16_t slot)
{
    stage.player[slot].lane.is_up = true;
    add(slot, WEFT_DONE_OPENED);
}

static uint32_t nic_of(uint16_t slot)
{
    return stage.link.bundle->slots[slot].nic;
}

static void what_is_dialled_when_its_nic_dies_is_left_until_the_nic_is_back(void **state)
{
    struct weft_bundle *bundle = stage.link.bundle;
    const char *nic = stage.links->nics[nic_of(0)].name;
    (void)state;
    assert_int_equal(state_of(0), SLOT_DIALLING);
    assert_int_equal(state_of(1), SLOT_DIALLING);
    assert_int_not_equal(nic_of(0), nic_of(1));
    is_open(1);
    poll();
    weft_links_carrier(stage.links, nic, false);
    assert_true(stage.player[0].is_closed);
    assert_int_equal(state_of(0), SLOT_DOWN);
    assert_ptr_equal(stage.link.lane, &stage.player[1].lane);
    bundle->slots[0].retry_ns = 0;
    bundle->tick.fire(&bundle->tick, weft_clock_ns());
    assert_int_equal(state_of(0), SLOT_DOWN);
    weft_links_carrier(stage.links, nic, true);
    bundle->tick.fire(&bundle->tick, weft_clock_ns());
    assert_int_equal(state_of(0), SLOT_DIALLING);
}

/* An old connection is tried again by the kernel after pauses that grow; a new one is not. */
static void the_last_lane_is_given_up_with_its_nic_and_dialled_when_it_is_back(void **state)
{
    struct weft_bundle *bundle = stage.link.bundle;
    const char *nic = stage.links->nics[nic_of(1)].name;
    (void)state;
    is_open(1);
    poll();
    weft_links_carrier(stage.links, stage.links->nics[nic_of(0)].name, false);
    weft_links_carrier(stage.links, nic, false);
    assert_int_equal(state_of(1), SLOT_DOWN);
    assert_true(stage.player[1].is_closed);
    assert_true(stage.player[1].lane.is_given_up);
    assert_int_not_equal(stage.link.state, WEFT_LINK_DOWN);
    weft_links_carrier(stage.links, nic, true);
    bundle->tick.fire(&bundle->tick, weft_clock_ns());
    assert_int_equal(state_of(1), SLOT_DIALLING);
    is_open(1);
    poll();
    assert_ptr_equal(stage.link.lane, &stage.player[1].lane);
}

/* The peer's NIC has died before it knew that we are open. */
static void what_was_dialled_since_the_peers_nic_died_is_down(void **state)
{
    (void)state;
    is_open(0);
    is_open(2);
    poll();
    assert_int_equal(state_of(0), SLOT_UP);
    gives_up(0, 2);
    stage.script[0].frame.seq = 0; /* the one before */
    poll();
    assert_int_equal(state_of(0), SLOT_UP);
    gives_up(0, 2);
    stage.script[0].frame.seq = 0;
    stage.script[0].frame.c = 1;
    poll();
    assert_int_equal(state_of(0), SLOT_DOWN);
    assert_ptr_equal(stage.link.lane, &stage.player[2].lane);
}

static void is_lost(uint16_t slot, weft_status_t status)
{
    struct weft_done *done = add(slot, WEFT_DONE_LOST);
    stage.player[slot].lane.is_up = false;
    done->status = status;
    done->text = "refused";
}

static void one_that_is_refused_is_no_error_while_others_are_dialled(void **state)
{
    (void)state;
    is_lost(0, WEFT_ERR_PEER);
    poll();
    assert_int_equal(stage.count, 0);
    assert_int_equal(stage.link.state, WEFT_LINK_CALLING);
    is_open(1);
    poll();
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_OPENED, 1);
    assert_int_equal(stage.link.state, WEFT_LINK_UP);
}

static void when_all_that_were_dialled_are_refused_the_link_is_lost(void **state)
{
    (void)state;
    is_lost(0, WEFT_ERR_PEER);
    is_lost(1, WEFT_ERR_PEER);
    poll();
    assert_int_equal(stage.count, 0);
    is_lost(2, WEFT_ERR_PEER);
    poll();
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_LOST, 2);
    assert_int_equal(stage.link.state, WEFT_LINK_DOWN);
}

/* Memory of one message was wanted back in the middle of it. */
static void what_we_give_up_ourselves_is_no_error_and_is_dialled_again(void **state)
{
    (void)state;
    is_open(0);
    is_open(1);
    poll();
    is_lost(0, WEFT_ERR_ABORTED);
    poll();
    assert_int_equal(stage.count, 0);
    assert_int_equal(state_of(0), SLOT_DOWN);
    assert_ptr_equal(stage.link.lane, &stage.player[1].lane);
    is_lost(1, WEFT_ERR_MEMORY);
    is_lost(2, WEFT_ERR_SYSTEM);
    poll();
    assert_int_equal(stage.count, 0);
    assert_int_equal(stage.link.state, WEFT_LINK_CALLING);
    poll(); /* they are closed */
    stage.link.bundle->tick.fire(&stage.link.bundle->tick, weft_clock_ns());
    assert_int_equal(state_of(1), SLOT_DIALLING);
    is_open(1);
    poll();
    assert_int_equal(stage.link.state, WEFT_LINK_UP);
}

static void damage_is_the_end_whatever_is_left(void **state)
{
    (void)state;
    is_open(0);
    is_open(1);
    poll();
    is_lost(0, WEFT_ERR_PROTOCOL);
    poll();
    assert_int_equal(stage.count, 1);
    assert_saw(0, WEFT_DONE_LOST, 0);
    assert_int_equal(stage.link.state, WEFT_LINK_DOWN);
}

static void one_that_opens_when_the_link_is_over_is_closed_once(void **state)
{
    (void)state;
    is_lost(0, WEFT_ERR_PROTOCOL);
    poll();
    assert_int_equal(stage.link.state, WEFT_LINK_DOWN);
    is_open(1);
    poll();
    assert_int_equal(stage.count, 0);
    assert_null(stage.link.bundle->slots[1].lane);
    poll();
    assert_true(stage.player[1].is_closed);
    assert_int_equal(stage.link.state, WEFT_LINK_DOWN);
} /* and not again with the link */

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_open, stage_close)
#define TEST_DIALLER(name) cmocka_unit_test_setup_teardown(name, stage_open_dialler, stage_close)
    const struct CMUnitTest tests[] = {
        TEST(a_lane_that_opens_when_its_nic_is_dead_already_is_refused),
        TEST(it_is_welcome_when_the_nic_is_back),
        TEST(a_lane_of_another_nic_is_welcome),
        TEST(the_only_lane_is_welcome_whatever_is_said_of_its_nic),
        TEST(the_peer_hears_that_later_ones_are_dead_too),
        TEST_DIALLER(what_is_dialled_when_its_nic_dies_is_left_until_the_nic_is_back),
        TEST_DIALLER(the_last_lane_is_given_up_with_its_nic_and_dialled_when_it_is_back),
        TEST_DIALLER(what_was_dialled_since_the_peers_nic_died_is_down),
        TEST_DIALLER(one_that_is_refused_is_no_error_while_others_are_dialled),
        TEST_DIALLER(when_all_that_were_dialled_are_refused_the_link_is_lost),
        TEST_DIALLER(what_we_give_up_ourselves_is_no_error_and_is_dialled_again),
        TEST_DIALLER(damage_is_the_end_whatever_is_left),
        TEST_DIALLER(one_that_opens_when_the_link_is_over_is_closed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
