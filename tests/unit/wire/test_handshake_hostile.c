/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake among strangers: damaged, cut, replayed and spliced messages, wrong secrets, other
 * versions. The rows of the fault table are named where they are shown.
 */
#include "support.h"

/* A good hello for a fresh server of `talk`, not yet carried. */
static void talk_to_answer(struct talk *talk)
{
    talk_open(talk);
    assert_int_equal(carry(&talk->server, &talk->client), WEFT_WIRE_WANT_BYTES);
    assert_true(talk->client.out_len > 0);
}

/* ---- F13: strangers ---- */

static void first_foreign_byte_fails_without_an_answer(void **state)
{
    static const char *const greetings[] = {
        "GET / HTTP/1.1\r\n", "\x16\x03\x01\x02", "", "WEF ", "weft", "WEFX", "SSH-2.0-", "WWEFT"};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(greetings); i++) {
        struct talk talk;
        size_t used;
        /* with its final zero, which is what the empty one consists of */
        size_t len = strlen(greetings[i]) + 1;

        talk_prepare(&talk);
        talk_open(&talk);
        talk.server.out_len = 0;
        assert_int_equal(weft_wire_feed(&talk.server, greetings[i], len, &used), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, WEFT_ERR_PROTOCOL);
        assert_int_equal(talk.server.out_len, 0);
        assert_int_equal(weft_wire_feed(&talk.client, greetings[i], len, &used), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
        assert_int_equal(talk.client.out_len, 0);
    }
}

static void one_foreign_byte_is_enough(void **state)
{
    struct talk talk;
    size_t used;

    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t first = (uint8_t)byte;

        talk_prepare(&talk);
        talk_open(&talk);
        weft_wire_feed(&talk.server, &first, 1, &used);
        assert_int_equal(talk.server.state, byte == 'W' ? WEFT_WIRE_WANT_BYTES : WEFT_WIRE_FAILED);
    }
}

static void nothing_is_consumed_after_failing(void **state)
{
    struct talk talk;
    size_t used;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    assert_int_equal(weft_wire_feed(&talk.server, "X", 1, &used), WEFT_WIRE_FAILED);
    assert_int_equal(weft_wire_feed(&talk.server, "WEFT", 4, &used), WEFT_WIRE_FAILED);
    assert_int_equal(used, 0);
}

/* ---- F18: bit flips ---- */

static void every_flipped_bit_of_a_challenge_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    for (size_t bit = 0; bit < BITS(WEFT_WIRE_CHALLENGE_LEN); bit++) {
        talk_prepare(&talk);
        talk_open(&talk);
        flip_bit(talk.server.out, bit);
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, bit / 16 == 2 ? WEFT_ERR_VERSION : WEFT_ERR_PROTOCOL);
    }
}

static void every_flipped_bit_of_a_hello_is_refused(void **state)
{
    struct talk talk;
    size_t len;

    (void)state;
    talk_prepare(&talk);
    talk_to_answer(&talk);
    len = talk.client.out_len;
    for (size_t bit = 0; bit < BITS(len); bit++) {
        talk_prepare(&talk);
        talk_to_answer(&talk);
        flip_bit(talk.client.out, bit);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, bit / 16 == 2               ? WEFT_ERR_VERSION
                                             : bit / 8 < HELLO_FIXED_LEN ? WEFT_ERR_PROTOCOL
                                                                         : WEFT_ERR_AUTH);
    }
}

/* The CRC is no secret: with one that fits, the proof must still notice. */
static void every_flipped_bit_of_a_hello_with_a_new_crc_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    for (size_t bit = 0; bit < BITS(68); bit++) {
        talk_prepare(&talk);
        talk_to_answer(&talk);
        flip_bit(talk.client.out, bit);
        hello_reseal(talk.client.out);
        /* a longer payload waits for more bytes: cut off, so as good as refused */
        assert_int_not_equal(carry(&talk.client, &talk.server), WEFT_WIRE_HELLO);
        assert_int_not_equal(talk.server.state, WEFT_WIRE_DONE);
    }
}

static void every_flipped_bit_of_an_accept_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    for (size_t bit = 0; bit < BITS(ACCEPT_LEN); bit++) {
        talk_prepare(&talk);
        talk_to_hello(&talk);
        weft_wire_accept(&talk.server);
        assert_int_equal(talk.server.out_len, ACCEPT_LEN);
        flip_bit(talk.server.out, bit);
        assert_int_not_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
        assert_true(bit < 64 || talk.client.status == WEFT_ERR_AUTH);
    }
}

static void every_flipped_bit_of_a_refuse_is_noticed(void **state)
{
    struct talk talk;
    size_t len;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "taken");
    len = talk.server.out_len;
    for (size_t bit = 0; bit < BITS(len); bit++) {
        talk_prepare(&talk);
        talk_to_hello(&talk);
        weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "taken");
        flip_bit(talk.server.out, bit);
        carry(&talk.server, &talk.client);
        assert_int_not_equal(talk.client.state, WEFT_WIRE_DONE);
        assert_int_not_equal(talk.client.status, WEFT_ERR_DUPLICATE);
    }
}

/* ---- F17: cut after every byte ---- */

static void cut_messages_are_never_enough(void **state)
{
    struct talk talk;
    size_t used;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    for (size_t k = 0; k < WEFT_WIRE_CHALLENGE_LEN; k++) {
        talk_open(&talk);
        assert_int_equal(weft_wire_feed(&talk.client, talk.server.out, k, &used),
                         WEFT_WIRE_WANT_BYTES);
        assert_int_equal(talk.client.out_len, 0);
    }
    talk_to_answer(&talk);
    for (size_t k = 0; k < talk.client.out_len; k++) {
        weft_wire_server_open(&talk.server, &talk.server_self, talk.server_nonce);
        assert_int_equal(weft_wire_feed(&talk.server, talk.client.out, k, &used),
                         WEFT_WIRE_WANT_BYTES);
    }
    for (size_t k = 0; k < ACCEPT_LEN; k++) {
        talk_to_hello(&talk);
        weft_wire_accept(&talk.server);
        assert_int_equal(weft_wire_feed(&talk.client, talk.server.out, k, &used),
                         WEFT_WIRE_WANT_BYTES);
    }
}

/* ---- F16: replay and splice ---- */

static void replayed_hello_is_refused_by_a_new_challenge(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_answer(&talk);
    talk.server_nonce[0] ^= 1;
    weft_wire_server_open(&talk.server, &talk.server_self, talk.server_nonce);
    talk.server.out_len = 0;
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
}

/* The same nonces, but the challenge came from another rank: a hello for one is none for the other.
 */
static void hello_meant_for_another_rank_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_answer(&talk);
    talk.server_self.rank = 5;
    weft_wire_server_open(&talk.server, &talk.server_self, talk.server_nonce);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
}

static void proof_spliced_from_another_rank_is_refused(void **state)
{
    struct talk talk, other;
    size_t proof_at;

    (void)state;
    talk_prepare(&talk);
    talk_prepare(&other);
    other.client_self.rank = 4;
    talk_to_answer(&talk);
    talk_to_answer(&other);
    proof_at = talk.client.out_len - WEFT_WIRE_PROOF_LEN;
    memcpy(talk.client.out + proof_at, other.client.out + proof_at, WEFT_WIRE_PROOF_LEN);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
}

static void payload_spliced_from_another_hello_is_refused(void **state)
{
    struct talk talk, other;

    (void)state;
    talk_prepare(&talk);
    talk_prepare(&other);
    other.payload = "b payload";
    talk_to_answer(&talk);
    talk_to_answer(&other);
    memcpy(talk.client.out + HELLO_FIXED_LEN, other.client.out + HELLO_FIXED_LEN, 9);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
}

static void accept_of_another_conversation_is_refused(void **state)
{
    struct talk talk, other;

    (void)state;
    talk_prepare(&talk);
    talk_prepare(&other);
    other.client_nonce[5] ^= 1;
    talk_to_hello(&talk);
    talk_to_hello(&other);
    weft_wire_accept(&other.server);
    assert_int_equal(carry(&other.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
    assert_non_null(strstr(talk.client.reason, "the listener does not know the job's secret"));
}

/* A hello sent back to its sender, as if it were an answer, and a challenge sent to a server. */
static void reflected_messages_are_refused(void **state)
{
    struct talk talk;
    uint8_t challenge[WEFT_WIRE_CHALLENGE_LEN];

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    memcpy(challenge, talk.server.out, sizeof(challenge));
    carry(&talk.server, &talk.client);
    assert_int_equal(carry(&talk.client, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
    assert_int_equal(feed(&talk.server, challenge, sizeof(challenge)), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_PROTOCOL);
    talk_to_answer(&talk);
    assert_int_equal(feed(&talk.client, challenge, sizeof(challenge)), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
}

static void accept_before_the_challenge_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_accept(&talk.server);
    weft_wire_client_open(&talk.client, &talk.client_self, talk.client_nonce, WEFT_WIRE_JOIN, 2,
                          NULL, 0);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_foreign_byte_fails_without_an_answer),
        cmocka_unit_test(one_foreign_byte_is_enough),
        cmocka_unit_test(nothing_is_consumed_after_failing),
        cmocka_unit_test(every_flipped_bit_of_a_challenge_is_refused),
        cmocka_unit_test(every_flipped_bit_of_a_hello_is_refused),
        cmocka_unit_test(every_flipped_bit_of_a_hello_with_a_new_crc_is_refused),
        cmocka_unit_test(every_flipped_bit_of_an_accept_is_refused),
        cmocka_unit_test(every_flipped_bit_of_a_refuse_is_noticed),
        cmocka_unit_test(cut_messages_are_never_enough),
        cmocka_unit_test(replayed_hello_is_refused_by_a_new_challenge),
        cmocka_unit_test(hello_meant_for_another_rank_is_refused),
        cmocka_unit_test(proof_spliced_from_another_rank_is_refused),
        cmocka_unit_test(payload_spliced_from_another_hello_is_refused),
        cmocka_unit_test(accept_of_another_conversation_is_refused),
        cmocka_unit_test(reflected_messages_are_refused),
        cmocka_unit_test(accept_before_the_challenge_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
