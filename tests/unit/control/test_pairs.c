/* SPDX-License-Identifier: Apache-2.0 */
/* The ways back to a parent: which NICs and doors belong together, and which pair comes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static struct weft_control_nic nics[WEFT_CONTROL_NICS];
static struct sockaddr_storage doors[WEFT_CONTROL_NICS];
static struct weft_control_pair pairs[WEFT_CONTROL_WAYS];

static struct sockaddr_storage address(uint32_t net, uint32_t host)
{
    struct sockaddr_storage addr = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&addr;
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(10u << 24 | net << 16 | host);
    return addr;
}

/* "00": two, both in 10.0.0.0/24; "01": the second in 10.1.0.0/24. Returns how many pairs there are. */
static uint32_t pair(const char *ours, const char *theirs)
{
    uint32_t nic_count = (uint32_t)strlen(ours), door_count = (uint32_t)strlen(theirs);
    memset(nics, 0, sizeof(nics));
    for (uint32_t i = 0; i < nic_count; i++) {
        snprintf(nics[i].name, sizeof(nics[i].name), "eth%u", i);
        nics[i].addr = address((uint32_t)(ours[i] - '0'), 1 + i);
        nics[i].prefix_len = 24;
    }
    for (uint32_t i = 0; i < door_count; i++) {
        doors[i] = address((uint32_t)(theirs[i] - '0'), 101 + i);
    }
    return weft_control_pair(nics, nic_count, doors, door_count, pairs);
}

static void assert_pair(uint32_t at, uint32_t nic, uint32_t door)
{
    assert_int_equal(pairs[at].nic, nic);
    assert_int_equal(pairs[at].door, door);
}

static void in_one_network_all_nics_are_tried(void **state)
{
    (void)state;
    assert_int_equal(pair("00", "00"), 4);
    assert_pair(0, 0, 0);
    assert_pair(1, 1, 1); /* neither the NIC nor the door of the first */
    assert_pair(2, 1, 0);
    assert_pair(3, 0, 1);
}

static void one_door_is_tried_from_every_nic(void **state)
{
    (void)state;
    assert_int_equal(pair("000", "0"), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_pair(i, i, 0);
    }
}

static void in_networks_of_their_own_each_door_has_one_nic(void **state)
{
    (void)state;
    assert_int_equal(pair("012", "102"), 3);
    assert_pair(0, 1, 0);
    assert_pair(1, 0, 1);
    assert_pair(2, 2, 2);
}

static void doors_of_two_networks_in_turn_use_all_nics(void **state)
{
    (void)state;
    assert_int_equal(pair("0101", "0101"), 8);
    for (uint32_t i = 0; i < 4; i++) {
        assert_pair(i, i, i);
    }
}

static void where_no_network_is_shared_nics_come_in_turn(void **state)
{
    (void)state;
    assert_int_equal(pair("01", "234"), 3);
    assert_pair(0, 0, 0);
    assert_pair(1, 1, 1);
    assert_pair(2, 0, 2);
    assert_int_equal(pair("0", "23"), 2);
    assert_pair(0, WEFT_CONTROL_NICS, 0); /* as the routes say */
}

static void there_are_never_more_than_fit(void **state)
{
    (void)state;
    assert_int_equal(pair("00000000", "00000000"), WEFT_CONTROL_WAYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_one_network_all_nics_are_tried),
        cmocka_unit_test(one_door_is_tried_from_every_nic),
        cmocka_unit_test(in_networks_of_their_own_each_door_has_one_nic),
        cmocka_unit_test(doors_of_two_networks_in_turn_use_all_nics),
        cmocka_unit_test(where_no_network_is_shared_nics_come_in_turn),
        cmocka_unit_test(there_are_never_more_than_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
