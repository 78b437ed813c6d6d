/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake on a local socket among strangers and ranks that do not fit together: all that the
 * challenged handshake promises, but for the protection against a recorded hello, which the kernel
 * gives there.
 */
#include "support.h"

/* Gives the bytes of a message another version; it stands where it stands in all versions. */
static void message_set_version(uint8_t *message, uint16_t version)
{
    message[4] = (uint8_t)version;
    message[5] = (uint8_t)(version >> 8);
}

/* ---- F18, F17: damaged and cut ---- */

static void every_flipped_bit_of_a_local_hello_is_refused(void **state)
{
    struct talk talk;
    size_t len;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    len = talk.client.out_len;
    for (size_t bit = 0; bit < BITS(len); bit++) {
        talk_prepare(&talk);
        talk_open_local(&talk);
        flip_bit(talk.client.out, bit);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, bit / 16 == 2               ? WEFT_ERR_VERSION
                                             : bit / 8 < HELLO_FIXED_LEN ? WEFT_ERR_PROTOCOL
                                                                         : WEFT_ERR_AUTH);
    }
}

/* The CRC is no secret: with one that fits, the proof must still notice. */
static void every_flipped_bit_of_a_local_hello_with_a_new_crc_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    for (size_t bit = 0; bit < BITS(68); bit++) {
        talk_prepare(&talk);
        talk_open_local(&talk);
        flip_bit(talk.client.out, bit);
        hello_reseal(talk.client.out);
        /* a longer payload waits for more bytes: cut off, so as good as refused */
        assert_int_not_equal(carry(&talk.client, &talk.server), WEFT_WIRE_HELLO);
        assert_int_not_equal(talk.server.state, WEFT_WIRE_DONE);
    }
}

/* Behind the head come the rank and the proof: a false rank must be found out as well. */
static void every_flipped_bit_of_a_local_accept_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    for (size_t bit = 0; bit < BITS(ACCEPT_LEN); bit++) {
        talk_prepare(&talk);
        talk_to_local_hello(&talk);
        weft_wire_accept(&talk.server);
        assert_int_equal(talk.server.out_len, ACCEPT_LEN);
        flip_bit(talk.server.out, bit);
        assert_int_not_equal(carry(&talk.server, &talk.client), WEFT_WIRE_DONE);
        assert_true(bit < 64 || talk.client.status == WEFT_ERR_AUTH);
        assert_int_equal(talk.client.peer_rank, WEFT_WIRE_NO_RANK);
    }
}

static void every_flipped_bit_of_a_local_refuse_is_noticed(void **state)
{
    struct talk talk;
    size_t len = 20 + strlen("taken") + WEFT_WIRE_PROOF_LEN;

    (void)state;
    for (size_t bit = 0; bit < BITS(len); bit++) {
        talk_prepare(&talk);
        talk_to_local_hello(&talk);
        weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "taken");
        assert_int_equal(talk.server.out_len, len);
        flip_bit(talk.server.out, bit);
        carry(&talk.server, &talk.client);
        assert_int_not_equal(talk.client.state, WEFT_WIRE_DONE);
        assert_int_not_equal(talk.client.status, WEFT_ERR_DUPLICATE);
        assert_false(talk.client.is_proved);
    }
}

static void cut_local_messages_are_never_enough(void **state)
{
    struct talk talk;
    size_t used;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    for (size_t k = 0; k < talk.client.out_len; k++) {
        weft_wire_server_open(&talk.server, &talk.server_self, NULL);
        assert_int_equal(weft_wire_feed(&talk.server, talk.client.out, k, &used),
                         WEFT_WIRE_WANT_BYTES);
        assert_int_equal(used, k);
        assert_int_equal(talk.server.out_len, 0);
    }
    for (size_t k = 0; k < ACCEPT_LEN; k++) {
        talk_to_local_hello(&talk);
        weft_wire_accept(&talk.server);
        assert_int_equal(weft_wire_feed(&talk.client, talk.server.out, k, &used),
                         WEFT_WIRE_WANT_BYTES);
        assert_int_equal(used, k);
    }
}

/* ---- F13, F16: out of turn, replayed, spliced ---- */

static void foreign_bytes_on_a_local_socket_get_no_answer(void **state)
{
    static const char greeting[] = "GET / HTTP/1.1\r\n";
    struct talk talk;
    size_t used;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    talk.client.out_len = 0;
    weft_wire_feed(&talk.server, greeting, strlen(greeting), &used);
    weft_wire_feed(&talk.client, greeting, strlen(greeting), &used);
    assert_int_equal(talk.server.status, WEFT_ERR_PROTOCOL);
    assert_int_equal(talk.server.out_len, 0);
    assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
    assert_int_equal(talk.client.out_len, 0);
}

static void challenge_to_a_client_that_spoke_first_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    talk.client.out_len = 0; /* the owner sent it */
    weft_wire_server_open(&talk.server, &talk.server_self, talk.server_nonce);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
    assert_int_equal(talk.client.out_len, 0);
}

static void reflected_local_hello_is_refused(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    assert_int_equal(carry(&talk.client, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
}

static void local_hello_is_worth_nothing_to_a_server_that_challenges(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    weft_wire_server_open(&talk.server, &talk.server_self, talk.server_nonce);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
}

static void answer_to_a_challenge_is_worth_nothing_on_a_local_socket(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    carry(&talk.server, &talk.client);
    weft_wire_server_open(&talk.server, &talk.server_self, NULL);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
}

/* A false listener on the network chooses its challenge: a nonce of zeroes, no rank, no ranks. The
 * job's tag and the epoch stand in every challenge. What it is answered must open no local socket.
 */
static void no_challenge_wins_a_hello_that_a_local_socket_believes(void **state)
{
    static const uint8_t no_nonce[WEFT_WIRE_NONCE_LEN];
    struct weft_wire_self liar;
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    liar = talk.server_self;
    liar.rank = WEFT_WIRE_NO_RANK;
    liar.ranks = 0;
    weft_wire_server_open(&talk.server, &liar, no_nonce);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_WANT_BYTES);
    weft_wire_server_open(&talk.server, &talk.server_self, NULL);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
}

static void accept_of_another_conversation_is_refused_locally(void **state)
{
    struct talk talk, other;

    (void)state;
    for (int i = 0; i < 2; i++) {
        talk_prepare(&talk);
        talk_prepare(&other);
        talk_to_local_hello(&talk);
        if (i == 0) {
            other.client_nonce[5] ^= 1;
            talk_to_local_hello(&other);
        } else {
            talk_to_hello(&other); /* the same nonce, but the other way */
        }
        weft_wire_accept(&other.server);
        assert_int_equal(carry(&other.server, &talk.client), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
    }
}

/* ---- F15, F20, F21: secrets, jobs, epochs, versions ---- */

static void wrong_secret_is_told_to_both_sides_locally(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.client_key[31] ^= 1;
    talk_open_local(&talk);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
    assert_non_null(strstr(talk.server.reason, "rank 3"));
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
    assert_non_null(strstr(talk.client.reason, "secret"));
}

static void local_listener_without_the_secret_is_found_out(void **state)
{
    struct talk talk, liar;

    (void)state;
    talk_prepare(&talk);
    talk_prepare(&liar);
    memset(liar.server_key, 0x44, sizeof(liar.server_key));
    memset(liar.client_key, 0x44, sizeof(liar.client_key));
    talk_to_local_hello(&talk);
    talk_to_local_hello(&liar);
    weft_wire_accept(&liar.server);
    assert_int_equal(carry(&liar.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
    assert_string_equal(talk.client.reason, "the listener does not know the job's secret");
}

static void missing_secret_is_told_to_both_sides_locally(void **state)
{
    struct talk talk;

    (void)state;
    for (int who = 0; who < 2; who++) {
        const char *why = who == 0 ? "rank 3 has no secret" : "rank 3 has a secret";

        talk_prepare(&talk);
        talk.server_self.is_authenticated = who == 0;
        talk.client_self.is_authenticated = who == 1;
        talk_open_local(&talk);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
        assert_non_null(strstr(talk.server.reason, why));
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
        assert_non_null(strstr(talk.client.reason, why));
    }
}

static void other_jobs_and_epochs_are_told_to_both_sides_locally(void **state)
{
    struct talk talk;

    (void)state;
    for (int i = 0; i < 2; i++) {
        talk_prepare(&talk);
        talk.client_self.job[15] ^= i == 0;
        talk.client_self.epoch += i == 1;
        talk_open_local(&talk);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, WEFT_ERR_MISMATCH);
        assert_non_null(strstr(talk.server.reason, i == 0 ? "another job" : "epoch 8"));
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, WEFT_ERR_MISMATCH);
        assert_non_null(strstr(talk.client.reason, i == 0 ? "another job" : "epoch 7"));
    }
}

/* A client of another version spoke: the listener answers at its head, whatever may follow. */
static void hello_of_another_version_is_refused_with_both_versions(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open_local(&talk);
    message_set_version(talk.client.out, 99);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_VERSION);
    assert_int_equal(talk.server.peer_version, 99);
    assert_non_null(strstr(talk.server.reason, "version 99"));
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_VERSION);
    assert_string_equal(talk.client.reason, "the listener speaks version 1, this rank version 99");
}

/* The listener is of another version: its head is enough. The client has said its word, and a second
 * one would meet a closed socket, whose error would hide the reason. */
static void answer_of_another_version_ends_the_client_without_a_word(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_local_hello(&talk);
    weft_wire_refuse(&talk.server, WEFT_ERR_VERSION, "any");
    message_set_version(talk.server.out, 770);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_VERSION);
    assert_int_equal(talk.client.peer_version, 770);
    assert_non_null(strstr(talk.client.reason, "version 770"));
    assert_int_equal(talk.client.out_len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_of_a_local_hello_is_refused),
        cmocka_unit_test(every_flipped_bit_of_a_local_hello_with_a_new_crc_is_refused),
        cmocka_unit_test(every_flipped_bit_of_a_local_accept_is_refused),
        cmocka_unit_test(every_flipped_bit_of_a_local_refuse_is_noticed),
        cmocka_unit_test(cut_local_messages_are_never_enough),
        cmocka_unit_test(foreign_bytes_on_a_local_socket_get_no_answer),
        cmocka_unit_test(challenge_to_a_client_that_spoke_first_is_refused),
        cmocka_unit_test(reflected_local_hello_is_refused),
        cmocka_unit_test(local_hello_is_worth_nothing_to_a_server_that_challenges),
        cmocka_unit_test(answer_to_a_challenge_is_worth_nothing_on_a_local_socket),
        cmocka_unit_test(no_challenge_wins_a_hello_that_a_local_socket_believes),
        cmocka_unit_test(accept_of_another_conversation_is_refused_locally),
        cmocka_unit_test(wrong_secret_is_told_to_both_sides_locally),
        cmocka_unit_test(local_listener_without_the_secret_is_found_out),
        cmocka_unit_test(missing_secret_is_told_to_both_sides_locally),
        cmocka_unit_test(other_jobs_and_epochs_are_told_to_both_sides_locally),
        cmocka_unit_test(hello_of_another_version_is_refused_with_both_versions),
        cmocka_unit_test(answer_of_another_version_ends_the_client_without_a_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
