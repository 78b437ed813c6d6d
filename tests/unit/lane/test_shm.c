/* SPDX-License-Identifier: Apache-2.0 */
/* The shared-memory lane: opening, messages of all lengths, order, room and its lack, the end. */
#include "shm_support.h"

static void test_messages_of_every_length_arrive_as_they_were_sent(void **state)
{
    const uint32_t lengths[] = {0, 1, 8, 39, 40, 41, 64, 4096, 8192, 8193, 65536, WEFT_SHM_BIG_LEN};
    struct pair pair;
    (void)state;
    pair_open(&pair);
    pair.b.does_release = false;
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const struct arrival *arrival = &pair.b.log[i];
        assert_int_equal(post_eager(&pair.a, 1, 100 + i, lengths[i]), WEFT_POST_SENT);
        assert_true(step_until(&pair.b, NULL, &pair.b.arrived, i + 1));
        assert_int_equal(arrival->frame.type, WEFT_DATA_EAGER);
        assert_int_equal(arrival->frame.tag, 100 + i);
        assert_int_equal(arrival->frame.comm, 77);
        assert_int_equal(arrival->frame.len, lengths[i]);
        assert_ptr_equal(arrival->lane, pair.b.lane[0]);
        if (lengths[i] <= WEFT_SHM_INLINE) {
            assert_int_equal(arrival->token, 0);
            assert_true(is_pattern(arrival->bytes, lengths[i], 100 + i));
        } else {
            assert_int_not_equal(arrival->token, 0);
            assert_true(is_pattern(arrival->payload, lengths[i], 100 + i));
        }
    }
    pair_close(&pair);
}

/* Field by field: what lies between them is nobody's. */
static void assert_same_frame(const struct weft_wire_data *got, const struct weft_wire_data *want)
{
    uint8_t bytes[2][WEFT_WIRE_DATA_LEN];
    weft_wire_data_encode(got, bytes[0]);
    weft_wire_data_encode(want, bytes[1]);
    assert_memory_equal(bytes[0], bytes[1], WEFT_WIRE_DATA_LEN);
}

static void test_numbers_of_other_frames_are_carried(void **state)
{
    const struct weft_wire_data frame = {.type = WEFT_DATA_HINT,
                                         .flags = WEFT_DATA_FOLLOWS,
                                         .comm = UINT64_MAX - 1,
                                         .tag = UINT32_MAX,
                                         .seq = 9,
                                         .a = UINT64_MAX,
                                         .b = 2,
                                         .c = UINT64_C(1) << 40};
    struct weft_wire_data with_bytes = {.type = WEFT_DATA_GET, .len = 8, .a = 1, .b = 2, .c = 3};
    struct weft_wire_data envelope = {.type = WEFT_DATA_ANNOUNCE, .seq = 5, .a = 1, .b = 1 << 20};
    struct pair pair;
    const struct arrival *log;
    (void)state;
    pair_open(&pair);
    log = pair.b.log;
    assert_int_equal(post_from(&pair.a, 1, &frame, NULL, NULL), WEFT_POST_SENT);
    assert_int_equal(post_from(&pair.a, 1, &with_bytes, "8 bytes.", NULL), WEFT_POST_SENT);
    assert_int_equal(post_from(&pair.a, 1, &envelope, NULL, NULL), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 3));
    assert_same_frame(&log[0].frame, &frame);
    assert_same_frame(&log[1].frame, &with_bytes);
    assert_memory_equal(log[1].bytes, "8 bytes.", 8);
    assert_int_equal(log[2].frame.seq, 0); /* the lane keeps the order of envelopes by itself */
    pair_close(&pair);
}

static void test_order_holds_over_many_rounds_of_the_ring(void **state)
{
    struct pair pair;
    uint32_t posted = 0;
    (void)state;
    pair_open(&pair);
    pair.a.arrived = pair.b.arrived = 0;
    while (posted < 5 * WEFT_SHM_CELLS_MAX) {
        /* lengths inline and in slots, in bursts that do not divide the ring */
        for (uint32_t i = 0; i < 37; i++) {
            uint32_t len = posted % 11 == 0 ? 300 : posted % 41;
            if (post_eager(&pair.a, 1, posted, len) == WEFT_POST_FULL) {
                break;
            }
            posted++;
        }
        while (pair.b.arrived < posted) {
            uint32_t next = pair.b.arrived;
            const struct arrival *arrival = &pair.b.log[next % LOG_MAX];
            assert_int_equal(node_poll(&pair.b, 1), 1);
            assert_int_equal(arrival->frame.tag, next);
            assert_true(is_pattern(arrival->bytes,
                                   arrival->frame.len < 64 ? arrival->frame.len : 64, next));
        }
        node_poll(&pair.a, 4);
    }
    pair_close(&pair);
}

static void test_positions_wrap_around_32_bits(void **state)
{
    struct pair pair;
    struct weft_shm_port *port;
    const uint64_t near_the_end = UINT64_C(0xffffffff) - 200;
    (void)state;
    pair_open(&pair);
    port = shm_port(&pair.b);
    port->head = port->head_told = near_the_end;
    atomic_store(&port->inbox.header->head, near_the_end);
    atomic_store(&port->inbox.header->tail, near_the_end);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(post_eager(&pair.a, 1, i, 8), WEFT_POST_SENT);
        assert_int_equal(node_poll(&pair.b, 4), 1);
        assert_int_equal(pair.b.log[i].frame.tag, i);
    }
    pair_close(&pair);
}

static void test_a_full_inbox_refuses_and_tells_when_it_has_room(void **state)
{
    struct pair pair;
    uint32_t posted = 0;
    (void)state;
    pair_open(&pair);
    while (post_eager(&pair.a, 1, posted, 8) == WEFT_POST_SENT) {
        posted++;
        assert_true(posted <= WEFT_SHM_CELLS_MAX);
    }
    assert_in_range(posted, 32, shm_port(&pair.a)->mask);
    assert_int_equal(node_poll(&pair.a, 4), 0);
    assert_int_equal(pair.a.writable, 0);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, posted));
    assert_int_equal(node_poll(&pair.a, 4), 1);
    assert_int_equal(pair.a.writable, 1);
    assert_int_equal(post_eager(&pair.a, 1, posted, 8), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, posted + 1));
    for (uint32_t i = 0; i <= posted; i++) {
        assert_int_equal(pair.b.log[i].frame.tag, i);
    }
    pair_close(&pair);
}

static void test_several_senders_each_keep_their_order(void **state)
{
    enum { SENDERS = 5, EACH = 3000 };
    struct node nodes[SENDERS + 1];
    uint32_t posted[SENDERS + 1] = {0}, taken[SENDERS + 1] = {0};
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    unsigned seen = 0, fds_before = weft_fd_count();
    (void)state;
    for (uint32_t i = 0; i <= SENDERS; i++) {
        node_open(&nodes[i], i, SENDERS + 1);
    }
    for (uint32_t i = 1; i <= SENDERS; i++) {
        connect_nodes(&nodes[i], &nodes[0]);
    }
    while (seen < SENDERS * EACH && weft_clock_ns() < deadline_ns) {
        for (uint32_t i = 1; i <= SENDERS; i++) {
            /* the fuller the inbox, the more often one of them is refused */
            while (posted[i] < EACH && post_eager(&nodes[i], 0, posted[i],
                                                  posted[i] % 7 == 0 ? 100 : 8) != WEFT_POST_FULL) {
                posted[i]++;
            }
            node_poll(&nodes[i], 4);
        }
        node_poll(&nodes[0], 32);
        for (; seen < nodes[0].arrived; seen++) {
            const struct arrival *arrival = &nodes[0].log[seen % LOG_MAX];
            assert_int_equal(arrival->frame.tag, taken[arrival->lane->peer]);
            taken[arrival->lane->peer]++;
        }
    }
    assert_int_equal(seen, SENDERS * EACH);
    for (uint32_t i = 0; i <= SENDERS; i++) {
        node_close(&nodes[i]);
    }
    assert_int_equal(weft_fd_count(), fds_before);
}

static void test_both_call_each_other_and_share_one_lane(void **state)
{
    struct pair pair = {.fds_before = weft_fd_count()};
    (void)state;
    node_open(&pair.a, 0, 2);
    node_open(&pair.b, 1, 2);
    node_dial(&pair.b, 0);
    node_dial(&pair.a, 1);
    assert_true(step_until(&pair.a, &pair.b, &pair.a.opened, 1));
    assert_true(step_until(&pair.a, &pair.b, &pair.b.opened, 1));
    assert_int_equal(post_eager(&pair.a, 1, 1, 8), WEFT_POST_SENT);
    assert_int_equal(post_eager(&pair.b, 0, 2, 8), WEFT_POST_SENT);
    assert_true(step_until(&pair.a, &pair.b, &pair.a.arrived, 1));
    assert_true(step_until(&pair.a, &pair.b, &pair.b.arrived, 1));
    assert_int_equal(pair.a.opened + pair.b.opened, 2);
    assert_int_equal(pair.a.lost + pair.b.lost, 0);
    pair_close(&pair);
}

static void test_what_was_sent_before_closing_arrives_before_lost(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    pair.b.does_release = false;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(post_eager(&pair.a, 1, i, i % 2 == 0 ? 8 : 5000), WEFT_POST_SENT);
    }
    node_hang_up(&pair.a, 1);
    assert_true(step_until(&pair.b, NULL, &pair.b.lost, 1));
    assert_int_equal(pair.b.arrived, 20);
    assert_int_equal(pair.b.lost_status, WEFT_ERR_PEER);
    assert_non_null(strstr(pair.b.lost_text, "closed"));
    /* Slots stay readable, and may be released, until the lane is closed. */
    for (uint32_t i = 1; i < 20; i += 2) {
        assert_true(is_pattern(pair.b.log[i].payload, 5000, i));
        OPS->release(pair.b.lane[0], pair.b.log[i].token);
    }
    pair_close(&pair);
}

/* Sockets and timers only: the inbox of `node` is not looked at, until its lane is that far. */
static void drive_without_polling(struct node *node, struct node *other, enum weft_shm_state state)
{
    uint32_t index = other->self.rank;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while ((shm_port(node)->lanes[index] == NULL || shm_port(node)->lanes[index]->state != state) &&
           weft_clock_ns() < deadline_ns) {
        weft_engine_poll(node->engine);
        node_step(other);
    }
    assert_int_equal(shm_port(node)->lanes[index]->state, state);
}

static void test_a_lane_is_opened_again_and_old_messages_do_not_leak_into_it(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(post_eager(&pair.a, 1, i, 8), WEFT_POST_SENT);
    }
    node_hang_up(&pair.b, 0); /* without having taken them */
    assert_true(step_until(&pair.a, NULL, &pair.a.lost, 1));
    node_hang_up(&pair.a, 1);
    node_dial(&pair.a, 1);
    drive_without_polling(&pair.b, &pair.a, WEFT_SHM_UP);
    assert_true(step_until(&pair.a, NULL, &pair.a.opened, 2));
    assert_int_equal(post_eager(&pair.a, 1, 4711, 8), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
    assert_int_equal(pair.b.log[0].frame.tag, 4711);
    assert_int_equal(pair.b.arrived, 1);
    pair_close(&pair);
}

static void test_a_lane_is_open_before_what_it_sent_arrives(void **state)
{
    struct pair pair = {.fds_before = weft_fd_count()};
    (void)state;
    node_open(&pair.a, 0, 2);
    node_open(&pair.b, 1, 2);
    node_dial(&pair.b, 0);
    drive_without_polling(&pair.b, &pair.a, WEFT_SHM_UP);
    /* The dialler is up first and speaks at once; that it is ready is still in the other's socket. */
    assert_true(step_until(&pair.b, NULL, &pair.b.opened, 1));
    assert_int_equal(post_eager(&pair.b, 0, 1, 100), WEFT_POST_SENT);
    while (pair.a.opened == 0) {
        node_poll(&pair.a, 1);
        assert_int_equal(pair.a.arrived, 0);
    }
    assert_true(step_until(&pair.a, NULL, &pair.a.arrived, 1));
    pair_close(&pair);
}

static void test_ranks_of_one_process_use_one_mapping(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    assert_int_equal(post_eager(&pair.a, 1, 1, 100), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
    assert_ptr_equal(shm_lane(&pair.a, 1)->there.header, shm_port(&pair.b)->inbox.header);
    assert_ptr_equal(shm_lane(&pair.b, 0)->pool.lines, shm_port(&pair.a)->pool.lines);
    assert_true(shm_lane(&pair.a, 1)->is_same_process);
    pair_close(&pair);
}

static void test_nobody_there_is_lost_after_some_tries(void **state)
{
    struct node node;
    unsigned fds_before = weft_fd_count();
    (void)state;
    node_open(&node, 0, 2);
    node_dial(&node, 1);
    assert_true(step_until(&node, NULL, &node.lost, 1));
    assert_int_equal(node.lost_status, WEFT_ERR_NETWORK);
    assert_int_equal(post_eager(&node, 1, 0, 8), WEFT_POST_FULL);
    node_close(&node);
    assert_int_equal(weft_fd_count(), fds_before);
}

static void test_a_late_listener_is_found(void **state)
{
    struct pair pair = {.fds_before = weft_fd_count()};
    (void)state;
    node_open(&pair.a, 0, 2);
    node_dial(&pair.a, 1);
    node_step(&pair.a);
    node_open(&pair.b, 1, 2);
    assert_true(step_until(&pair.a, &pair.b, &pair.a.opened, 1));
    assert_true(step_until(&pair.a, &pair.b, &pair.b.opened, 1));
    pair_close(&pair);
}

static void test_strangers_ranks_and_oneself_cannot_be_opened(void **state)
{
    struct node node;
    struct weft_lane_address address, none = {.len = 0};
    struct weft_lane *lane;
    (void)state;
    node_open(&node, 0, 2);
    OPS->address(node.port, &address);
    assert_int_equal(address.len, 1);
    assert_int_equal(OPS->open(node.port, CALL(7, &address), &lane), WEFT_ERR_INVALID);
    assert_int_equal(OPS->open(node.port, CALL(0, &address), &lane), WEFT_ERR_INVALID);
    assert_int_equal(OPS->open(node.port, CALL(1, &none), &lane), WEFT_ERR_INVALID);
    node_close(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_of_every_length_arrive_as_they_were_sent),
        cmocka_unit_test(test_numbers_of_other_frames_are_carried),
        cmocka_unit_test(test_order_holds_over_many_rounds_of_the_ring),
        cmocka_unit_test(test_positions_wrap_around_32_bits),
        cmocka_unit_test(test_a_full_inbox_refuses_and_tells_when_it_has_room),
        cmocka_unit_test(test_several_senders_each_keep_their_order),
        cmocka_unit_test(test_both_call_each_other_and_share_one_lane),
        cmocka_unit_test(test_what_was_sent_before_closing_arrives_before_lost),
        cmocka_unit_test(test_a_lane_is_opened_again_and_old_messages_do_not_leak_into_it),
        cmocka_unit_test(test_a_lane_is_open_before_what_it_sent_arrives),
        cmocka_unit_test(test_ranks_of_one_process_use_one_mapping),
        cmocka_unit_test(test_nobody_there_is_lost_after_some_tries),
        cmocka_unit_test(test_a_late_listener_is_found),
        cmocka_unit_test(test_strangers_ranks_and_oneself_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
