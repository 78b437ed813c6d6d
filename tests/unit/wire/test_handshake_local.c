/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake on a local socket, where the client speaks first and there is no challenge: what is
 * said, byte by byte, and what both ends know afterwards. The expected bytes were computed with
 * another implementation (Python, hashlib.blake2b).
 */
#include "support.h"

static void listener_says_nothing_and_the_hello_has_the_written_down_bytes(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    assert_int_equal(talk.server.out_len, 0);
    assert_int_equal(talk.server.state, WEFT_WIRE_WANT_BYTES);
    assert_hex(talk.client.out, talk.client.out_len,
               "57454654010002010100020003000000080000000700000051fc33bb4a31c372"
               "3333333333333333333333333333333333333333333333333333333333333333"
               "09000000e5eea82761207061796c6f6164a2e502f0b24531c33ca74a3f859bd3"
               "0f632854b78ef69e2441281845a1e69c63");
}

static void accept_has_the_written_down_bytes(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.server_self.rank = 5;
    talk_to_local_hello(&talk);
    weft_wire_accept(&talk.server);
    assert_hex(talk.server.out, talk.server.out_len,
               "574546540100030005000000708233e15cf8f2539d76028c47cd3d86d9ca7bb2"
               "895043be4d1469831d2aeb60");
}

static void both_ends_learn_who_the_other_is_and_make_no_keys(void **state)
{
    static const uint32_t ranks[] = {0, 5, 0x01020304, WEFT_WIRE_NO_RANK};
    static const uint8_t no_key[WEFT_WIRE_KEY_LEN]; /* nothing is sealed on a local socket */
    struct talk talk;

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(ranks); i++) {
        talk_prepare(&talk);
        talk.server_self.rank = ranks[i];
        talk_to_local_hello(&talk);
        assert_int_equal(talk.server.peer_version, WEFT_WIRE_VERSION);
        assert_int_equal(talk.server.peer_rank, 3);
        assert_int_equal(talk.server.peer_ranks, 8);
        assert_int_equal(talk.server.peer_epoch, 7);
        assert_int_equal(talk.server.purpose, WEFT_WIRE_JOIN);
        assert_int_equal(talk.server.lane, 2);
        assert_int_equal(talk.server.payload_len, strlen(talk.payload));
        assert_memory_equal(talk.server.payload, talk.payload, strlen(talk.payload));
        assert_int_equal(talk.client.peer_rank, WEFT_WIRE_NO_RANK);

        weft_wire_accept(&talk.server);
        assert_int_equal(talk.server.state, WEFT_WIRE_DONE);
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
        assert_int_equal(talk.client.out_len, 0);
        assert_int_equal(talk.client.peer_version, WEFT_WIRE_VERSION);
        assert_int_equal(talk.client.peer_rank, ranks[i]);
        assert_memory_equal(talk.server.send_key, no_key, WEFT_WIRE_KEY_LEN);
        assert_memory_equal(talk.server.recv_key, no_key, WEFT_WIRE_KEY_LEN);
        assert_memory_equal(talk.client.send_key, no_key, WEFT_WIRE_KEY_LEN);
        assert_memory_equal(talk.client.recv_key, no_key, WEFT_WIRE_KEY_LEN);
    }
}

static void open_jobs_shake_hands_locally_too(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.server_self.is_authenticated = talk.client_self.is_authenticated = false;
    weft_wire_open_key(talk.server_self.job, talk.server_key);
    weft_wire_open_key(talk.client_self.job, talk.client_key);
    talk_to_local_hello(&talk);
    weft_wire_accept(&talk.server);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
}

static void local_bytes_that_drip_in_give_the_same_result(void **state)
{
    struct talk talk, whole;

    (void)state;
    talk_prepare(&whole);
    talk_to_local_hello(&whole);
    weft_wire_accept(&whole.server);

    talk_prepare(&talk);
    talk_open_local(&talk);
    assert_int_equal(drip(&talk.client, &talk.server), WEFT_WIRE_HELLO);
    assert_memory_equal(talk.server.payload, talk.payload, strlen(talk.payload));
    weft_wire_accept(&talk.server);
    assert_memory_equal(talk.server.out, whole.server.out, whole.server.out_len);
    assert_int_equal(drip(&talk.server, &talk.client), WEFT_WIRE_DONE);
    assert_memory_equal(talk.client.send_key, whole.server.recv_key, WEFT_WIRE_KEY_LEN);
}

static void local_refusals_that_drip_in_give_the_same_result(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_local_hello(&talk);
    weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "rank 3 is taken by pid 77");
    assert_int_equal(talk.server.status, WEFT_ERR_DUPLICATE);
    assert_int_equal(drip(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_DUPLICATE);
    assert_string_equal(talk.client.reason, "rank 3 is taken by pid 77");
    assert_int_equal(talk.client.out_len, 0);
}

static void bytes_after_a_local_handshake_are_left_alone(void **state)
{
    struct talk talk;
    uint8_t bytes[200];
    size_t len, used;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    len = talk.client.out_len;
    memset(bytes, 'x', sizeof(bytes));
    memcpy(bytes, talk.client.out, len);
    assert_int_equal(weft_wire_feed(&talk.server, bytes, sizeof(bytes), &used), WEFT_WIRE_HELLO);
    assert_int_equal(used, len);
    weft_wire_accept(&talk.server);
    memcpy(bytes, talk.server.out, talk.server.out_len);
    assert_int_equal(weft_wire_feed(&talk.client, bytes, sizeof(bytes), &used), WEFT_WIRE_DONE);
    assert_int_equal(used, ACCEPT_LEN);
}

static void local_hellos_carry_empty_and_full_payloads(void **state)
{
    uint8_t payload[WEFT_WIRE_PAYLOAD_MAX];
    uint64_t seed = 11;

    (void)state;
    fill_random(&seed, payload, sizeof(payload));
    for (size_t len = 0; len <= sizeof(payload); len += sizeof(payload)) {
        struct talk talk;

        talk_prepare(&talk);
        weft_wire_server_open(&talk.server, &talk.server_self, NULL);
        weft_wire_client_open(&talk.client, &talk.client_self, talk.client_nonce, WEFT_WIRE_ATTACH,
                              0, len == 0 ? NULL : payload, len);
        weft_wire_client_speak(&talk.client);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_HELLO);
        assert_int_equal(talk.server.payload_len, len);
        assert_memory_equal(talk.server.payload, payload, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listener_says_nothing_and_the_hello_has_the_written_down_bytes),
        cmocka_unit_test(accept_has_the_written_down_bytes),
        cmocka_unit_test(both_ends_learn_who_the_other_is_and_make_no_keys),
        cmocka_unit_test(open_jobs_shake_hands_locally_too),
        cmocka_unit_test(local_bytes_that_drip_in_give_the_same_result),
        cmocka_unit_test(local_refusals_that_drip_in_give_the_same_result),
        cmocka_unit_test(bytes_after_a_local_handshake_are_left_alone),
        cmocka_unit_test(local_hellos_carry_empty_and_full_payloads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
