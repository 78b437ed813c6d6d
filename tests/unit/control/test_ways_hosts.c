/* SPDX-License-Identifier: Apache-2.0 */
/* Where the hosts above listen is known to all below, not only to who is connected to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/start.h"
#include "control/ways.h"
#include "lone.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DOORS 2
#define PORT 4711
#define HOPE_MS 800 /* then an orphan judges what nobody above hears */

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

/* It had to wait for its own children, while we were told. */
static void who_attaches_in_the_start_after_we_were_told_is_told(void **state)
{
    struct weft_control *control = *state;
    struct weft_control_start start = {
        .control = control, .table_bytes = (uint8_t[]){0}, .table_len = 1};
    struct weft_net_conn *conn = child(control);
    control->children[0].conn = NULL;
    hears_doors(control, control->parent, 0, DOORS * WEFT_WIRE_ADDR_LEN);
    assert_int_equal(((struct weft_control_mend *)conn->edge)->kept_len, 0);
    weft_list_open(&conn->node);
    weft_list_open(&start.arrivals);
    control->child_count = 1;
    start.children_ready = 1; /* of more than there are: the start is not over */
    weft_engine_lock(control->engine);
    weft_control_place_attached(&start, conn);
    weft_engine_unlock(control->engine);
    assert_ptr_equal(control->children[0].conn, conn);
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

/* ---- who looks for somebody there ---- */

/* A listener whose queue is full: its host does not answer, at any of 127.0.0.0/8. */
struct silence {
    int listener, queued[2];
    uint16_t port;
};

static struct silence silence_open(void)
{
    struct silence silence;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof(at);
    silence.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(silence.listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(silence.listener, 0), 0);
    assert_int_equal(getsockname(silence.listener, (struct sockaddr *)&at, &len), 0);
    silence.port = ntohs(at.sin_port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < WEFT_COUNT_OF(silence.queued); i++) {
        silence.queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(silence.queued[i], (struct sockaddr *)&at, len);
    }
    return silence;
}

static void silence_close(const struct silence *silence)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(silence->queued); i++) {
        close(silence->queued[i]);
    }
    close(silence->listener);
}

/* 127.0.0.1, 127.0.0.2, … */
static struct weft_wire_addr silent_door(const struct silence *silence, uint32_t i)
{
    struct weft_wire_addr wire = door(0);
    const uint32_t loopback = htonl(INADDR_LOOPBACK + i);
    memcpy(wire.bytes, &loopback, sizeof(loopback));
    wire.port = silence->port;
    return wire;
}

static void learns(struct weft_control *control, const struct silence *silence, uint32_t count)
{
    uint8_t bytes[WEFT_CONTROL_NICS * WEFT_WIRE_ADDR_LEN];
    for (uint32_t i = 0; i < count; i++) {
        struct weft_wire_addr addr = silent_door(silence, i + 1);
        weft_wire_addr_encode(&addr, bytes + (size_t)i * WEFT_WIRE_ADDR_LEN);
    }
    control->table.group[0].addr = silent_door(silence, 0);
    weft_engine_lock(control->engine);
    weft_ways_learn(control, 0, bytes, count);
    weft_engine_unlock(control->engine);
    assert_int_equal(weft_control_ways_count(control, 0), count);
}

/* From way `first` on, until its host is given up; returns after how long, and by which ways it was looked for. */
static uint64_t looks_for_parent(struct weft_control *control, uint32_t first, uint32_t *ways_p)
{
    const uint64_t from_ns = weft_clock_ns();
    uint64_t now_ns = from_ns;
    lone_ends(control, control->parent); /* it never spoke, and is sought again */
    control->heal->way = first;
    *ways_p = 0;
    weft_engine_lock(control->engine);
    while (!control->is_top && now_ns < from_ns + 10 * (uint64_t)HOPE_MS * WEFT_NS_PER_MS) {
        control->heal->timer.fire(&control->heal->timer, now_ns);
        *ways_p |= control->heal->attempt != NULL ? 1U << control->heal->way : 0;
        now_ns += RETRY_MS * WEFT_NS_PER_MS;
    }
    weft_engine_unlock(control->engine);
    assert_true(control->is_top);
    return now_ns - from_ns;
}

static void a_host_of_many_silent_ways_is_given_up_while_there_is_hope(void **state)
{
    struct weft_control *control = *state;
    struct silence silence = silence_open();
    uint32_t ways;
    learns(control, &silence, WEFT_CONTROL_NICS);
    assert_in_range(looks_for_parent(control, 0, &ways), 1, (HOPE_MS - 200) * WEFT_NS_PER_MS);
    assert_int_equal(ways, (1U << (WEFT_CONTROL_NICS + 1)) - 1);
    silence_close(&silence);
}

/* The way that the host before was looked for by last is none of this one's. */
static void a_host_of_fewer_ways_is_looked_for_by_each(void **state)
{
    struct weft_control *control = *state;
    struct silence silence = silence_open();
    uint32_t ways;
    learns(control, &silence, WEFT_CONTROL_NICS - 3);
    (void)looks_for_parent(control, WEFT_CONTROL_NICS, &ways);
    assert_int_equal(ways, (1U << (WEFT_CONTROL_NICS - 2)) - 1);
    silence_close(&silence);
}

static void is_refused_by(struct weft_control *control, uint32_t rank)
{
    struct weft_net_conn *conn = lone_conn(control, rank, ROLE_HEALING, WEFT_WIRE_HEAL);
    conn->is_refused = conn->is_proved = true;
    control->heal->target = 0;
    control->heal->attempt = conn;
    lone_ends(control, conn);
    assert_null(control->heal->attempt);
}

static void who_refuses_us_is_not_asked_again(void **state)
{
    struct weft_control *control = *state;
    is_refused_by(control, 0);
    assert_int_equal(control->is_out[0], 1);
}

/* A rank of another host has the port now. */
static void a_refusal_by_somebody_else_is_not_the_word_of_whom_we_asked(void **state)
{
    struct weft_control *control = *state;
    is_refused_by(control, 2);
    assert_int_equal(control->is_out[0], 0);
    assert_true(control->heal->is_target_refusing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_below_are_told, on_two_hosts, lone_tear_down),
        cmocka_unit_test_setup_teardown(who_comes_below_later_is_told, on_two_hosts,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(who_attaches_in_the_start_after_we_were_told_is_told,
                                        on_two_hosts, lone_tear_down),
        cmocka_unit_test_setup_teardown(what_comes_later_is_right, on_two_hosts, lone_tear_down),
        cmocka_unit_test_setup_teardown(a_connection_is_known_by_its_door, on_two_hosts,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_above_says_of_another_host_is_not_learnt,
                                        on_two_hosts, lone_tear_down),
        cmocka_unit_test_setup_teardown(a_host_of_many_silent_ways_is_given_up_while_there_is_hope,
                                        on_two_hosts, lone_tear_down),
        cmocka_unit_test_setup_teardown(a_host_of_fewer_ways_is_looked_for_by_each, on_two_hosts,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(who_refuses_us_is_not_asked_again, on_two_hosts,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_by_somebody_else_is_not_the_word_of_whom_we_asked,
                                        on_two_hosts, lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
