/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake among friends: what is said, byte by byte, and what both ends know afterwards. The
 * expected bytes were computed with another implementation (Python, hashlib.blake2b).
 */
#include "support.h"

static void challenge_has_the_written_down_bytes(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    assert_int_equal(talk.client.out_len, 0);
    assert_hex(talk.server.out, talk.server.out_len,
               "574546540100010151fc33bb4a31c37207000000000000000800000022222222"
               "2222222222222222222222222222222222222222222222222222222278c251a9");
}

static void hello_has_the_written_down_bytes(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    carry(&talk.server, &talk.client);
    assert_hex(talk.client.out, talk.client.out_len,
               "57454654010002010100020003000000080000000700000051fc33bb4a31c372"
               "3333333333333333333333333333333333333333333333333333333333333333"
               "09000000e5eea82761207061796c6f61643735edb08c693032a9130dcace89f7"
               "b8b6a24c5c269ad05e6d894d9fdfb20221");
}

static void accept_has_the_written_down_bytes(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_accept(&talk.server);
    assert_hex(talk.server.out, talk.server.out_len,
               "574546540100030000000000b3d7ff526b88a6de5ee34e91adadde2bd06213c4"
               "11b7dc1759b0353477ff439b");
}

static void refuse_has_the_written_down_bytes(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "taken");
    assert_hex(talk.server.out, talk.server.out_len,
               "57454654010004040b00000005000000769f625e74616b656edd7dba0a2bff050a"
               "237d0b72fa56d83075597846501f45b263e3be1e3df0d111");
}

static void keys_have_the_written_down_bytes(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_accept(&talk.server);
    assert_hex(talk.server.recv_key, WEFT_WIRE_KEY_LEN,
               "10969f6c5aff16d94c7e32516e6c35cfcfce4d2579fad4bd1a3eeb7444f84330");
    assert_hex(talk.server.send_key, WEFT_WIRE_KEY_LEN,
               "1673ef898771eea90694b39dab2377b32bf0cca2481ac9d5823cae8aa05a33bb");
}

static void server_learns_who_calls(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    assert_int_equal(talk.server.status, WEFT_OK);
    assert_int_equal(talk.server.peer_version, WEFT_WIRE_VERSION);
    assert_int_equal(talk.server.peer_rank, 3);
    assert_int_equal(talk.server.peer_ranks, 8);
    assert_int_equal(talk.server.peer_epoch, 7);
    assert_int_equal(talk.server.purpose, WEFT_WIRE_JOIN);
    assert_int_equal(talk.server.lane, 2);
    assert_int_equal(talk.server.payload_len, strlen(talk.payload));
    assert_memory_equal(talk.server.payload, talk.payload, strlen(talk.payload));
}

static void both_ends_hold_the_same_two_keys(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_accept(&talk.server);
    assert_int_equal(talk.server.state, WEFT_WIRE_DONE);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
    assert_int_equal(talk.client.peer_rank, 0);
    assert_int_equal(talk.client.peer_ranks, 8);
    assert_int_equal(talk.client.out_len, 0);
    assert_memory_equal(talk.server.send_key, talk.client.recv_key, WEFT_WIRE_KEY_LEN);
    assert_memory_equal(talk.server.recv_key, talk.client.send_key, WEFT_WIRE_KEY_LEN);
    assert_memory_not_equal(talk.server.send_key, talk.server.recv_key, WEFT_WIRE_KEY_LEN);
}

/* Both flags are under the proof: what one side thinks the other thinks, too. */
static void aes_is_used_where_both_ends_have_it(void **state)
{
    (void)state;
    for (unsigned who = 0; who < 4; who++) {
        struct talk talk;
        talk_prepare(&talk);
        talk.server_self.has_aes = (who & 1) != 0;
        talk.client_self.has_aes = (who & 2) != 0;
        talk_to_hello(&talk);
        weft_wire_accept(&talk.server);
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
        assert_int_equal(talk.server.is_aes, who == 3);
        assert_int_equal(talk.client.is_aes, who == 3);
    }
}

static void only_lanes_have_a_level_and_only_one_that_is_known(void **state)
{
    (void)state;
    for (unsigned level = 0; level <= WEFT_SECURITY_ENCRYPT + 1; level++) {
        for (int is_lane = 0; is_lane < 2; is_lane++) {
            struct talk talk;
            bool is_fine = level == 0 || (is_lane && level <= WEFT_SECURITY_ENCRYPT);
            talk_prepare(&talk);
            talk.purpose = is_lane ? WEFT_WIRE_LANE : WEFT_WIRE_ATTACH;
            talk_open(&talk);
            talk.client.security = (uint8_t)level;
            carry(&talk.server, &talk.client);
            assert_int_equal(carry(&talk.client, &talk.server),
                             is_fine ? WEFT_WIRE_HELLO : WEFT_WIRE_FAILED);
            assert_int_equal(talk.server.security, is_fine ? level : 0);
        }
    }
}

/* A listener may be open before its rank is known: what counts is the rank that it proves. */
static void rank_that_comes_with_the_accept_is_the_one_that_counts(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.server_self.rank = WEFT_WIRE_NO_RANK;
    talk_to_hello(&talk);
    assert_int_equal(talk.client.peer_rank, WEFT_WIRE_NO_RANK);
    talk.server_self.rank = 5;
    weft_wire_accept(&talk.server);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
    assert_int_equal(talk.client.peer_rank, 5);
    assert_memory_equal(talk.server.send_key, talk.client.recv_key, WEFT_WIRE_KEY_LEN);
    assert_memory_equal(talk.server.recv_key, talk.client.send_key, WEFT_WIRE_KEY_LEN);
}

/* One change after another to one end's or both ends' facts: the keys must differ each time. */
static void keys_depend_on_every_fact(void **state)
{
    uint8_t keys[10][WEFT_WIRE_KEY_LEN];
    struct talk talk;

    (void)state;
    for (int i = 0; i < 10; i++) {
        talk_prepare(&talk);
        talk.server_nonce[31] ^= i == 1;
        talk.client_nonce[31] ^= i == 2;
        talk.server_self.rank += i == 3;
        talk.client_self.rank += i == 4;
        talk.client_self.ranks += i == 5;
        talk.server_self.epoch += i == 6;
        talk.client_self.epoch += i == 6;
        talk.server_self.job[15] ^= i == 7;
        talk.client_self.job[15] ^= i == 7;
        talk.lane = i == 8 ? 3 : talk.lane;
        talk.purpose = i == 9 ? WEFT_WIRE_LANE : talk.purpose;
        talk_to_hello(&talk);
        weft_wire_accept(&talk.server);
        memcpy(keys[i], talk.server.send_key, WEFT_WIRE_KEY_LEN);
        for (int j = 0; j < i; j++) {
            assert_memory_not_equal(keys[i], keys[j], WEFT_WIRE_KEY_LEN);
        }
    }
}

static void open_jobs_shake_hands_too(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.server_self.is_authenticated = talk.client_self.is_authenticated = false;
    weft_wire_open_key(talk.server_self.job, talk.server_key);
    weft_wire_open_key(talk.client_self.job, talk.client_key);
    talk_to_hello(&talk);
    weft_wire_accept(&talk.server);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
}

static void bytes_that_drip_in_give_the_same_result(void **state)
{
    struct talk talk, whole;

    (void)state;
    talk_prepare(&whole);
    talk_to_hello(&whole);
    weft_wire_accept(&whole.server);

    talk_prepare(&talk);
    talk_open(&talk);
    assert_int_equal(drip(&talk.server, &talk.client), WEFT_WIRE_WANT_BYTES);
    assert_int_equal(drip(&talk.client, &talk.server), WEFT_WIRE_HELLO);
    assert_int_equal(talk.server.payload_len, whole.server.payload_len);
    assert_memory_equal(talk.server.payload, talk.payload, strlen(talk.payload));
    weft_wire_accept(&talk.server);
    assert_memory_equal(talk.server.out, whole.server.out, whole.server.out_len);
    assert_int_equal(drip(&talk.server, &talk.client), WEFT_WIRE_DONE);
    assert_memory_equal(talk.client.send_key, whole.server.recv_key, WEFT_WIRE_KEY_LEN);
}

static void refusals_that_drip_in_give_the_same_result(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "rank 3 is taken by 10.0.0.7");
    assert_int_equal(talk.server.state, WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_DUPLICATE);
    assert_int_equal(drip(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_DUPLICATE);
    assert_string_equal(talk.client.reason, "rank 3 is taken by 10.0.0.7");
    assert_true(talk.client.is_proved);
    assert_false(talk.client.is_elsewhere);
}

static void bytes_after_the_handshake_are_left_alone(void **state)
{
    struct talk talk;
    uint8_t bytes[200];
    size_t len, used;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    carry(&talk.server, &talk.client);
    len = talk.client.out_len;
    memcpy(bytes, talk.client.out, len);
    memset(bytes + len, 'x', sizeof(bytes) - len);
    assert_int_equal(weft_wire_feed(&talk.server, bytes, sizeof(bytes), &used), WEFT_WIRE_HELLO);
    assert_int_equal(used, len);
    assert_int_equal(weft_wire_feed(&talk.server, bytes + len, 5, &used), WEFT_WIRE_HELLO);
    assert_int_equal(used, 0);

    weft_wire_accept(&talk.server);
    len = talk.server.out_len;
    memcpy(bytes, talk.server.out, len);
    assert_int_equal(weft_wire_feed(&talk.client, bytes, sizeof(bytes), &used), WEFT_WIRE_DONE);
    assert_int_equal(used, len);
    assert_int_equal(weft_wire_feed(&talk.client, bytes, sizeof(bytes), &used), WEFT_WIRE_DONE);
    assert_int_equal(used, 0);
}

static void payloads_of_every_length_arrive(void **state)
{
    uint8_t payload[WEFT_WIRE_PAYLOAD_MAX];
    uint64_t seed = 7;

    (void)state;
    fill_random(&seed, payload, sizeof(payload));
    for (size_t len = 0; len <= sizeof(payload); len += len < 40 || len > 1000 ? 1 : 41) {
        struct talk talk;

        talk_prepare(&talk);
        weft_wire_server_open(&talk.server, &talk.server_self, talk.server_nonce);
        weft_wire_client_open(&talk.client, &talk.client_self, talk.client_nonce, WEFT_WIRE_ATTACH,
                              0, len == 0 ? NULL : payload, len);
        carry(&talk.server, &talk.client);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_HELLO);
        assert_int_equal(talk.server.payload_len, len);
        assert_memory_equal(talk.server.payload, payload, len);
    }
}

static void reasons_are_cut_and_made_printable(void **state)
{
    char longer[2 * WEFT_WIRE_REASON_LEN];
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    memset(longer, 'r', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    memcpy(longer, "a\nb\x1b[2J\xc2\x9b\xc3\xa9\xff", 12);
    weft_wire_refuse(&talk.server, WEFT_ERR_INVALID, longer);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(strlen(talk.client.reason), WEFT_WIRE_REASON_LEN - 1);
    assert_memory_equal(talk.client.reason, "a?b?[2J??\xc3\xa9?rr", 14);
}

static void close_wipes_the_keys(void **state)
{
    static const uint8_t zero[WEFT_WIRE_KEY_LEN];
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_accept(&talk.server);
    assert_memory_not_equal(talk.server.send_key, zero, sizeof(zero));
    weft_wire_handshake_close(&talk.server);
    assert_memory_equal(talk.server.send_key, zero, sizeof(zero));
    assert_memory_equal(talk.server.recv_key, zero, sizeof(zero));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(challenge_has_the_written_down_bytes),
        cmocka_unit_test(hello_has_the_written_down_bytes),
        cmocka_unit_test(accept_has_the_written_down_bytes),
        cmocka_unit_test(refuse_has_the_written_down_bytes),
        cmocka_unit_test(keys_have_the_written_down_bytes),
        cmocka_unit_test(server_learns_who_calls),
        cmocka_unit_test(both_ends_hold_the_same_two_keys),
        cmocka_unit_test(aes_is_used_where_both_ends_have_it),
        cmocka_unit_test(only_lanes_have_a_level_and_only_one_that_is_known),
        cmocka_unit_test(rank_that_comes_with_the_accept_is_the_one_that_counts),
        cmocka_unit_test(keys_depend_on_every_fact),
        cmocka_unit_test(open_jobs_shake_hands_too),
        cmocka_unit_test(bytes_that_drip_in_give_the_same_result),
        cmocka_unit_test(refusals_that_drip_in_give_the_same_result),
        cmocka_unit_test(bytes_after_the_handshake_are_left_alone),
        cmocka_unit_test(payloads_of_every_length_arrive),
        cmocka_unit_test(reasons_are_cut_and_made_printable),
        cmocka_unit_test(close_wipes_the_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
