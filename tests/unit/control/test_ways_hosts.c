/* SPDX-License-Identifier: Apache-2.0 */
/* Where the hosts above listen is known to all below, not only to who is connected to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/ways.h"
#include "lone.h"

#include <string.h>

#define DOORS 2
#define PORT 4711

/* Rank 0 on a host of its own, ranks 1 (we) and 2 on another. */
static int on_two_hosts(void **state)
{
    struct weft_control *control;
    struct weft_wire_table *table;
    if (lone_set_up(state) != 0) {
        return -1;
    }
    control = *state;
    table = &control->table;
    weft_control_tree_close(&control->tree);
    weft_wire_table_close(table);
    assert_int_equal(weft_wire_table_open(LONE_RANKS, 2, table), WEFT_OK);
    table->group_of[1] = table->group_of[2] = 1;
    table->group[1].leader = 1;
    table->group[0].addr = (struct weft_wire_addr){.family = 4, .port = PORT};
    weft_control_tree_fans(1, 1, 2, &table->fan_groups, &table->fan_local);
    assert_int_equal(weft_control_tree_open(table, &control->tree), WEFT_OK);
    lone_parent(control);
    return 0;
}

/* 10.0.0.1, 10.0.1.1, … */
static struct weft_wire_addr door(uint8_t net)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons(80),
                                   .sin_addr.s_addr = htonl(10U << 24 | (uint32_t)net << 8 | 1)};
    struct sockaddr_storage addr = {0};
    struct weft_wire_addr wire;
    memcpy(&addr, &at, sizeof(at));
    weft_net_addr_to_wire(&addr, &wire);
    return wire;
}

static void hears_doors(struct weft_control *control, struct weft_net_conn *from, uint32_t src,
                        uint32_t len)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_DOORS, .src = src, .dst = LONE_SELF, .len = len};
    uint8_t bytes[DOORS * WEFT_WIRE_ADDR_LEN];
    for (uint8_t i = 0; i < DOORS; i++) {
        struct weft_wire_addr addr = door(i);
        weft_wire_addr_encode(&addr, bytes + (size_t)i * WEFT_WIRE_ADDR_LEN);
    }
    weft_engine_lock(control->engine);
    from->ops->frame(from, &frame, bytes);
    weft_engine_unlock(control->engine);
}

/* What is said on it is kept. */
static struct weft_net_conn *child(struct weft_control *control)
{
    struct weft_net_conn *conn = lone_conn(control, 2, ROLE_CHILD, WEFT_WIRE_ATTACH);
    struct weft_control_mend *mend = weft_control_mend_open(control, 2);
    assert_non_null(mend);
    mend->counts_out = mend->is_resuming = true;
    conn->edge = mend;
    control->children[0] = (struct weft_control_child){.rank = 2, .conn = conn, .mend = mend};
    control->child_count = 1;
    return conn;
}

static void assert_is_told(const struct weft_net_conn *conn)
{
    const struct weft_control_mend *mend = conn->edge;
    struct weft_wire_frame frame;
    struct weft_wire_addr addr, right = door(DOORS - 1);
    assert_int_equal(mend->kept_len, WEFT_WIRE_FRAME_LEN + DOORS * WEFT_WIRE_ADDR_LEN);
    assert_int_equal(weft_wire_frame_decode(mend->kept, &frame), WEFT_OK);
    assert_int_equal(frame.type, WEFT_WIRE_DOORS);
    assert_int_equal(frame.src, 0);
    assert_int_equal(frame.dst, 2);
    assert_int_equal(weft_wire_addr_decode(mend->kept + WEFT_WIRE_FRAME_LEN +
                                               (size_t)(DOORS - 1) * WEFT_WIRE_ADDR_LEN,
                                           &addr),
                     WEFT_OK);
    assert_memory_equal(addr.bytes, right.bytes, sizeof(addr.bytes));
}

static void those_below_are_told(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = child(control);
    hears_doors(control, control->parent, 0, DOORS * WEFT_WIRE_ADDR_LEN);
    assert_int_equal(weft_control_ways_count(control, 0), DOORS);
    assert_is_told(conn);
}

static void who_comes_below_later_is_told(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn;
    hears_doors(control, control->parent, 0, DOORS * WEFT_WIRE_ADDR_LEN);
    conn = child(control);
    weft_engine_lock(control->engine);
    weft_control_ways_tell(control, conn);
    weft_engine_unlock(control->engine);
    assert_is_told(conn);
}

static void what_comes_later_is_right(void **state)
{
    struct weft_control *control = *state;
    hears_doors(control, control->parent, 0, DOORS * WEFT_WIRE_ADDR_LEN);
    hears_doors(control, control->parent, 0, 1 * WEFT_WIRE_ADDR_LEN);
    assert_int_equal(weft_control_ways_count(control, 0), 1);
    hears_doors(control, control->parent, 0, 0); /* says nothing */
    assert_int_equal(weft_control_ways_count(control, 0), 1);
}

/* A connection found by a door goes on to be known by it, whatever its port. */
static void a_connection_is_known_by_its_door(void **state)
{
    struct weft_control *control = *state;
    hears_doors(control, control->parent, 0, DOORS * WEFT_WIRE_ADDR_LEN);
    control->parent->peer_addr = door(1);
    control->parent->peer_addr.port = PORT;
    assert_int_equal(weft_control_ways_used(control, control->parent), 2);
    control->parent->peer_addr = door(7);
    assert_int_equal(weft_control_ways_used(control, control->parent), 0);
}

static void what_nobody_above_says_of_another_host_is_not_learnt(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *below = child(control);
    hears_doors(control, below, 0, DOORS * WEFT_WIRE_ADDR_LEN);
    hears_doors(control, control->parent, LONE_RANKS, DOORS * WEFT_WIRE_ADDR_LEN);
    hears_doors(control, control->parent, WEFT_WIRE_NO_RANK, DOORS * WEFT_WIRE_ADDR_LEN);
    hears_doors(control, control->parent, LONE_SELF, DOORS * WEFT_WIRE_ADDR_LEN);
    hears_doors(control, control->parent, 2, DOORS * WEFT_WIRE_ADDR_LEN);
    hears_doors(control, control->parent, 0, WEFT_WIRE_ADDR_LEN - 1);
    for (uint32_t rank = 0; rank < LONE_RANKS; rank++) {
        assert_int_equal(weft_control_ways_count(control, rank), 0);
    }
    assert_int_equal(((struct weft_control_mend *)below->edge)->kept_len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_below_are_told, on_two_hosts, lone_tear_down),
        cmocka_unit_test_setup_teardown(who_comes_below_later_is_told, on_two_hosts,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(what_comes_later_is_right, on_two_hosts, lone_tear_down),
        cmocka_unit_test_setup_teardown(a_connection_is_known_by_its_door, on_two_hosts,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_above_says_of_another_host_is_not_learnt,
                                        on_two_hosts, lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
