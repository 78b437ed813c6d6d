/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: who holds how many, coming back late and in any order, lent posts and their order. */
#include "shm_support.h"

#define MEDIUM 3000u /* goes into a small slot */

static uint8_t source[4 << 20];

static uint32_t slot_count(const struct node *node, enum weft_shm_kind kind)
{
    return shm_port(node)->pool_count[kind];
}

static void release_at(struct node *node, uint32_t i)
{
    weft_engine_lock(node->engine);
    OPS->release(node->log[i].lane, node->log[i].token);
    weft_engine_unlock(node->engine);
}

/* Posts until refused, taking what arrives and holding it. */
static uint32_t post_until_full(struct node *from, uint32_t peer, struct node *to)
{
    uint32_t posted = 0;
    while (post_eager(from, peer, posted, MEDIUM) == WEFT_POST_SENT) {
        posted++;
        while (node_poll(to, 32) > 0) {
        }
    }
    return posted;
}

static void test_held_slots_bound_the_sender_and_come_back_in_any_order(void **state)
{
    struct pair pair;
    uint32_t held;
    (void)state;
    pair_open(&pair);
    pair.b.does_release = false;
    held = post_until_full(&pair.a, 1, &pair.b);
    assert_int_equal(held, slot_count(&pair.a, WEFT_SHM_SMALL) * 3 / 4);
    assert_int_equal(pair.b.arrived, held);
    assert_int_equal(node_poll(&pair.a, 4), 0);
    /* short messages still pass: an unexpected payload never stops them */
    assert_int_equal(post_eager(&pair.a, 1, 9999, 8), WEFT_POST_SENT);
    for (uint32_t i = 0; i < held; i++) { /* every seventh first, then the rest backwards */
        assert_true(is_pattern(pair.b.log[i].payload, MEDIUM, i));
        if (i % 7 == 0) {
            release_at(&pair.b, i);
        }
    }
    assert_int_equal(node_poll(&pair.a, 4), 1);
    assert_int_equal(pair.a.writable, 1);
    for (uint32_t i = 0; i < (held + 6) / 7; i++) {
        assert_int_equal(post_eager(&pair.a, 1, 20000 + i, MEDIUM), WEFT_POST_SENT);
    }
    assert_int_equal(post_eager(&pair.a, 1, 1, MEDIUM), WEFT_POST_FULL);
    for (uint32_t i = held; i-- > 0;) {
        if (i % 7 != 0) {
            assert_true(
                is_pattern(pair.b.log[i].payload, MEDIUM, i)); /* nobody has overwritten it */
            release_at(&pair.b, i);
        }
    }
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, held + 1 + (held + 6) / 7));
    for (uint32_t i = held + 1; i < pair.b.arrived; i++) {
        assert_true(is_pattern(pair.b.log[i].payload, MEDIUM, pair.b.log[i].frame.tag));
        release_at(&pair.b, i);
    }
    assert_true(step_until(&pair.a, NULL, &pair.a.writable, 2));
    assert_int_equal(post_until_full(&pair.a, 1, &pair.b), held);
    pair_close(&pair);
}

static void test_one_peer_that_holds_leaves_slots_for_others(void **state)
{
    struct node nodes[3];
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        node_open(&nodes[i], i, 3);
    }
    connect_nodes(&nodes[0], &nodes[1]);
    connect_nodes(&nodes[0], &nodes[2]);
    nodes[1].does_release = false;
    post_until_full(&nodes[0], 1, &nodes[1]);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(post_eager(&nodes[0], 2, i, MEDIUM), WEFT_POST_SENT);
        assert_int_equal(node_poll(&nodes[2], 4), 1);
    }
    /* the holder is gone: its share comes back */
    node_hang_up(&nodes[1], 0);
    assert_true(step_until(&nodes[0], NULL, &nodes[0].lost, 1));
    node_hang_up(&nodes[0], 1);
    nodes[2].does_release = false;
    assert_int_equal(post_until_full(&nodes[0], 2, &nodes[2]),
                     slot_count(&nodes[0], WEFT_SHM_SMALL) * 3 / 4);
    for (uint32_t i = 0; i < 3; i++) {
        node_close(&nodes[i]);
    }
}

static void test_slots_a_peer_reads_are_not_reused_when_the_lane_is_closed_here(void **state)
{
    struct node nodes[3];
    uint32_t held;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        node_open(&nodes[i], i, 3);
    }
    connect_nodes(&nodes[0], &nodes[1]);
    connect_nodes(&nodes[0], &nodes[2]);
    nodes[1].does_release = false;
    held = post_until_full(&nodes[0], 1, &nodes[1]);
    node_hang_up(&nodes[0], 1);
    for (uint32_t i = 0; i < 1000; i++) { /* all other slots, many times */
        assert_int_equal(post_eager(&nodes[0], 2, 70000 + i, MEDIUM), WEFT_POST_SENT);
        assert_int_equal(node_poll(&nodes[2], 4), 1);
    }
    for (uint32_t i = 0; i < held; i++) {
        assert_true(is_pattern(nodes[1].log[i].payload, MEDIUM, i));
    }
    assert_false(weft_list_is_empty(&shm_port(&nodes[0])->lingering));
    assert_true(step_until(&nodes[1], NULL, &nodes[1].lost, 1));
    node_hang_up(&nodes[1], 0);
    for (uint64_t end_ns = weft_clock_after_ms(DEADLINE_MS);
         !weft_list_is_empty(&shm_port(&nodes[0])->lingering) && weft_clock_ns() < end_ns;) {
        node_step(&nodes[0]);
    }
    assert_true(weft_list_is_empty(&shm_port(&nodes[0])->lingering));
    nodes[2].does_release = false;
    assert_int_equal(post_until_full(&nodes[0], 2, &nodes[2]), held);
    for (uint32_t i = 0; i < 3; i++) {
        node_close(&nodes[i]);
    }
}

/* The sender has closed the lane, and the receiver has seen that before it has taken everything. */
static void test_slots_are_not_reused_before_their_receiver_has_closed_too(void **state)
{
    struct node nodes[3];
    uint64_t end_ns = weft_clock_after_ms(DEADLINE_MS);
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        node_open(&nodes[i], i, 3);
    }
    connect_nodes(&nodes[0], &nodes[1]);
    connect_nodes(&nodes[0], &nodes[2]);
    nodes[1].does_release = false;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(post_eager(&nodes[0], 1, i, MEDIUM), WEFT_POST_SENT);
    }
    node_hang_up(&nodes[0], 1);
    while (!shm_lane(&nodes[1], 0)->has_ended && weft_clock_ns() < end_ns) {
        weft_engine_poll(nodes[1].engine); /* the socket, not the inbox */
    }
    assert_true(shm_lane(&nodes[1], 0)->has_ended);
    for (uint32_t i = 0; i < 1000; i++) {
        node_step(&nodes[0]);
        assert_int_equal(post_eager(&nodes[0], 2, 70000 + i, MEDIUM), WEFT_POST_SENT);
        assert_int_equal(node_poll(&nodes[2], 4), 1);
    }
    assert_true(step_until(&nodes[1], &nodes[0], &nodes[1].lost, 1));
    assert_int_equal(nodes[1].arrived, 4);
    for (uint32_t i = 0; i < 1000; i++) { /* what is held after the end is still there */
        node_step(&nodes[0]);
        assert_int_equal(post_eager(&nodes[0], 2, 80000 + i, MEDIUM), WEFT_POST_SENT);
        assert_int_equal(node_poll(&nodes[2], 4), 1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(is_pattern(nodes[1].log[i].payload, MEDIUM, i));
    }
    node_hang_up(&nodes[1], 0);
    while (!weft_list_is_empty(&shm_port(&nodes[0])->lingering) && weft_clock_ns() < end_ns) {
        node_step(&nodes[0]);
    }
    assert_true(weft_list_is_empty(&shm_port(&nodes[0])->lingering));
    for (uint32_t i = 0; i < 3; i++) {
        node_close(&nodes[i]);
    }
}

static void test_chunks_are_lent_copied_outside_and_published_in_order(void **state)
{
    struct pair pair;
    struct weft_wire_data chunk = {.type = WEFT_DATA_CHUNK, .a = 7};
    const struct weft_wire_data signal = {.type = WEFT_DATA_SIGNAL, .a = 1, .c = 5};
    const uint32_t lengths[] = {WEFT_SHM_BIG_LEN, 20000, 100, WEFT_SHM_BIG_LEN};
    uint64_t offset = 0;
    (void)state;
    pair_open(&pair);
    pair.b.does_release = false;
    fill_pattern(source, sizeof(source), 3);
    for (unsigned i = 0; i < 4; i++) {
        chunk.len = lengths[i];
        chunk.b = offset;
        assert_int_equal(post_from(&pair.a, 1, &chunk, source + offset, &source[i]),
                         WEFT_POST_LENT);
        offset += lengths[i];
    }
    /* nothing was copied yet; a signal may not pass, a short message may */
    assert_int_equal(node_poll(&pair.b, 4), 0);
    assert_int_equal(post_from(&pair.a, 1, &signal, NULL, NULL), WEFT_POST_FULL);
    assert_int_equal(post_eager(&pair.a, 1, 1, 8), WEFT_POST_SENT);
    assert_int_equal(node_poll(&pair.b, 4), 1);
    assert_true(step_until(&pair.a, NULL, &pair.a.sent, 4));
    assert_true(step_until(&pair.a, NULL, &pair.a.writable, 1));
    for (unsigned i = 0; i < 4; i++) {
        assert_ptr_equal(pair.a.sent_cookie[i], &source[i]);
    }
    assert_int_equal(post_from(&pair.a, 1, &signal, NULL, NULL), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 6));
    offset = 0;
    for (unsigned i = 0; i < 4; i++) {
        const struct arrival *arrival = &pair.b.log[1 + i];
        assert_int_equal(arrival->frame.b, offset);
        assert_int_equal(arrival->frame.len, lengths[i]);
        assert_memory_equal(arrival->payload, source + offset, lengths[i]);
        offset += lengths[i];
    }
    assert_int_equal(pair.b.log[5].frame.type, WEFT_DATA_SIGNAL);
    pair_close(&pair);
}

static void test_a_stream_of_chunks_larger_than_the_pool(void **state)
{
    struct pair pair;
    struct weft_wire_data chunk = {.type = WEFT_DATA_CHUNK, .len = WEFT_SHM_BIG_LEN, .a = 7};
    const unsigned count = 200;
    unsigned posted = 0, refused = 0, checked = 0;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    (void)state;
    pair_open(&pair);
    pair.b.does_release = false;
    fill_pattern(source, sizeof(source), 3);
    while (checked < count && weft_clock_ns() < deadline_ns) {
        chunk.b = posted;
        if (posted < count) {
            const uint8_t *from = source + (size_t)(posted % 31) * 4096;
            enum weft_post post = post_from(&pair.a, 1, &chunk, from, NULL);
            posted += post != WEFT_POST_FULL;
            refused += post == WEFT_POST_FULL;
        }
        if (posted == count || refused % 3 == 2) {
            node_step(&pair.b);
            for (; checked < pair.b.arrived; checked++) {
                const struct arrival *arrival = &pair.b.log[checked];
                assert_int_equal(arrival->frame.b, checked);
                assert_memory_equal(arrival->payload, source + (size_t)(checked % 31) * 4096,
                                    WEFT_SHM_BIG_LEN);
                release_at(&pair.b, checked);
            }
        }
        node_step(&pair.a);
    }
    assert_int_equal(checked, count);
    assert_true(refused > 0); /* otherwise this test has shown nothing */
    assert_true(step_until(&pair.a, NULL, &pair.a.sent, count));
    pair_close(&pair);
}

static void test_closing_ends_every_use_of_lent_memory(void **state)
{
    struct pair pair;
    struct weft_wire_data chunk = {.type = WEFT_DATA_CHUNK, .len = WEFT_SHM_BIG_LEN, .a = 7};
    uint8_t *lent = malloc(WEFT_SHM_BIG_LEN);
    (void)state;
    pair_open(&pair);
    memset(lent, 1, WEFT_SHM_BIG_LEN);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(post_from(&pair.a, 1, &chunk, lent, NULL), WEFT_POST_LENT);
    }
    node_hang_up(&pair.a, 1);
    free(lent); /* the address sanitizer sees who reads it now */
    for (int i = 0; i < 10; i++) {
        node_step(&pair.a);
    }
    assert_int_equal(pair.a.sent, 0);
    pair_close(&pair);
}

static void test_tokens_that_are_not_held_are_harmless(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    OPS->release(pair.b.lane[0], 1); /* before there is a pool */
    assert_int_equal(post_eager(&pair.a, 1, 5, MEDIUM), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
    release_at(&pair.b, 0); /* a second time */
    OPS->release(pair.b.lane[0], 0);
    OPS->release(pair.b.lane[0], UINT32_MAX);
    OPS->release(pair.b.lane[0], 100);
    assert_int_equal(post_eager(&pair.a, 1, 6, MEDIUM), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 2));
    assert_int_equal(pair.b.log[1].frame.tag, 6);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_slots_bound_the_sender_and_come_back_in_any_order),
        cmocka_unit_test(test_one_peer_that_holds_leaves_slots_for_others),
        cmocka_unit_test(test_slots_a_peer_reads_are_not_reused_when_the_lane_is_closed_here),
        cmocka_unit_test(test_slots_are_not_reused_before_their_receiver_has_closed_too),
        cmocka_unit_test(test_chunks_are_lent_copied_outside_and_published_in_order),
        cmocka_unit_test(test_a_stream_of_chunks_larger_than_the_pool),
        cmocka_unit_test(test_closing_ends_every_use_of_lent_memory),
        cmocka_unit_test(test_tokens_that_are_not_held_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
