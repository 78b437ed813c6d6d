/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake between ranks that do not fit together: other secret, job, epoch or version, or
 * lengths that no rank sends. Both sides must learn why.
 */
#include "support.h"

/* Gives the server a version that is not ours, by way of its challenge. */
static void challenge_set_version(uint8_t *challenge, uint16_t version)
{
    challenge[4] = (uint8_t)version;
    challenge[5] = (uint8_t)(version >> 8);
    store_u32(challenge + 60, weft_wire_crc32c(0, challenge, 60));
}

/* ---- F15: secrets ---- */

static void wrong_secret_is_told_to_both_sides(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.client_key[31] ^= 1;
    talk_open(&talk);
    carry(&talk.server, &talk.client);
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
    assert_non_null(strstr(talk.server.reason, "rank 3"));
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
    assert_non_null(strstr(talk.client.reason, "secret"));
}

/* A false listener that accepts everybody: it cannot prove that it knows the secret. */
static void listener_without_the_secret_is_found_out(void **state)
{
    struct talk talk, liar;

    (void)state;
    talk_prepare(&talk);
    talk_prepare(&liar);
    memset(liar.server_key, 0x44, sizeof(liar.server_key));
    memset(liar.client_key, 0x44, sizeof(liar.client_key));
    talk_to_hello(&talk);
    talk_to_hello(&liar);
    weft_wire_accept(&liar.server);
    assert_int_equal(carry(&liar.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
    assert_string_equal(talk.client.reason, "the listener does not know the job's secret");
}

static void missing_secret_is_told_to_both_sides(void **state)
{
    struct talk talk;

    (void)state;
    for (int who = 0; who < 2; who++) {
        talk_prepare(&talk);
        talk.server_self.is_authenticated = who == 0;
        talk.client_self.is_authenticated = who == 1;
        talk_open(&talk);
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, WEFT_ERR_AUTH);
        assert_non_null(
            strstr(talk.client.reason, who == 0 ? "this rank has none" : "this rank has a secret"));
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, WEFT_ERR_AUTH);
        assert_non_null(
            strstr(talk.server.reason, who == 0 ? "rank 3 has no secret" : "rank 3 has a secret"));
    }
}

/* Nothing that depends on the secret may reach a listener that has none. */
static void hello_to_an_open_listener_gives_no_proof_away(void **state)
{
    static const uint8_t zero[WEFT_WIRE_PROOF_LEN];
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.server_self.is_authenticated = false;
    talk_open(&talk);
    carry(&talk.server, &talk.client);
    assert_int_equal(talk.client.out_len, HELLO_FIXED_LEN + WEFT_WIRE_PROOF_LEN);
    assert_memory_equal(talk.client.out + HELLO_FIXED_LEN, zero, sizeof(zero));
}

/* ---- F20: another job, another epoch ---- */

static void other_job_is_a_mismatch_for_the_client(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.client_self.job[15] ^= 1;
    talk_open(&talk);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_MISMATCH);
    assert_string_equal(talk.client.reason, "the listener belongs to another job");
    assert_int_equal(talk.client.out_len, 0);
}

static void other_epoch_is_a_mismatch_for_the_client(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk.client_self.epoch = 9;
    talk_open(&talk);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_MISMATCH);
    assert_non_null(strstr(talk.client.reason, "epoch 7"));
    assert_non_null(strstr(talk.client.reason, "epoch 9"));
}

/* A client that does not look would send its hello anyway: the server refuses, and says why. */
static void server_refuses_hellos_of_other_jobs_and_epochs(void **state)
{
    struct talk talk;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct weft_wire_self other;

        talk_prepare(&talk);
        talk_open(&talk);
        carry(&talk.server, &talk.client);
        other = talk.server_self;
        other.job[0] ^= i == 0;
        other.epoch += i == 1;
        weft_wire_server_open(&talk.server, &other, talk.server_nonce);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, WEFT_ERR_MISMATCH);
        assert_non_null(strstr(talk.server.reason, i == 0 ? "another job" : "epoch 7"));
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, WEFT_ERR_MISMATCH);
        assert_non_null(strstr(talk.client.reason, i == 0 ? "another job" : "epoch 8"));
    }
}

/* Strangers see neither the job id nor anything of the secret. */
static void challenge_does_not_show_the_job(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    for (size_t at = 0; at + 4 <= talk.server.out_len; at++) {
        for (size_t from = 0; from + 4 <= 16; from++) {
            assert_memory_not_equal(talk.server.out + at, talk.server_self.job + from, 4);
        }
    }
}

/* ---- F21: versions ---- */

static void version_mismatch_is_told_to_both_sides(void **state)
{
    struct talk talk;
    char theirs[32];

    (void)state;
    snprintf(theirs, sizeof(theirs), "version %u", (unsigned)WEFT_WIRE_VERSION);
    talk_prepare(&talk);
    talk_open(&talk);
    challenge_set_version(talk.server.out, 770);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_VERSION);
    assert_int_equal(talk.client.peer_version, 770);
    assert_non_null(strstr(talk.client.reason, "version 770"));
    assert_non_null(strstr(talk.client.reason, theirs));
    assert_hex(talk.client.out, talk.client.out_len, "5745465401000200");

    talk.client.out[4] = 99; /* what a client of version 99 would have sent */
    assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
    assert_int_equal(talk.server.status, WEFT_ERR_VERSION);
    assert_int_equal(talk.server.peer_version, 99);
    assert_non_null(strstr(talk.server.reason, "version 99"));
    assert_non_null(strstr(talk.server.reason, theirs));
    assert_memory_equal(talk.server.out, "WEFT\x01\x00\x04", 7);
    assert_int_equal(talk.server.out[8], WEFT_ERR_VERSION);
}

static void refuse_of_a_version_mismatch_names_both(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_open(&talk);
    carry(&talk.server, &talk.client);
    assert_int_equal(feed(&talk.server, "WEFT\x63\x00\x02\x00", 8), WEFT_WIRE_FAILED);
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_int_equal(talk.client.status, WEFT_ERR_VERSION);
    assert_string_equal(talk.client.reason, "the listener speaks version 1, this rank version 99");
}

/* ---- F14: lengths and values that no rank sends ---- */

static void oversized_payload_is_refused_at_its_announcement(void **state)
{
    static const uint32_t lengths[] = {WEFT_WIRE_PAYLOAD_MAX + 1, 0x10000, 0x7fffffff, 0x80000000,
                                       UINT32_MAX};
    struct talk talk;
    size_t used;

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lengths); i++) {
        talk_prepare(&talk);
        talk_open(&talk);
        carry(&talk.server, &talk.client);
        store_u32(talk.client.out + 64, lengths[i]);
        hello_reseal(talk.client.out);
        assert_int_equal(weft_wire_feed(&talk.server, talk.client.out, HELLO_FIXED_LEN, &used),
                         WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, WEFT_ERR_PROTOCOL);
        assert_int_equal(talk.server.out_len, 0);
    }
}

static void unknown_purposes_and_flags_get_no_answer(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {{8, 0}, {8, WEFT_WIRE_ASIDE + 1}, {8, 255}, {9, 1}, {7, 3}, {7, 0x80}, {6, 9}};
    struct talk talk;

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        talk_prepare(&talk);
        talk_open(&talk);
        carry(&talk.server, &talk.client);
        talk.client.out[cases[i].at] = cases[i].value;
        hello_reseal(talk.client.out);
        assert_int_equal(carry(&talk.client, &talk.server), WEFT_WIRE_FAILED);
        assert_int_equal(talk.server.status, WEFT_ERR_PROTOCOL);
        assert_int_equal(talk.server.out_len, 0);
    }
}

static void refusals_with_impossible_lengths_or_status_are_protocol_errors(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } cases[] = {
        {12, WEFT_WIRE_REASON_LEN}, {12, UINT32_MAX}, {8, WEFT_OK}, {8, 17}, {8, UINT32_MAX}};
    struct talk talk;

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        uint8_t *out;

        talk_prepare(&talk);
        talk_to_hello(&talk);
        weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "taken");
        out = talk.server.out;
        store_u32(out + cases[i].at, cases[i].value);
        store_u32(out + 16, weft_wire_crc32c(weft_wire_crc32c(0, out, 16), out + 20, 5));
        assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
        assert_int_equal(talk.client.status, WEFT_ERR_PROTOCOL);
    }
}

static void refusal_without_words_gets_the_general_sentence(void **state)
{
    struct talk talk;

    (void)state;
    talk_prepare(&talk);
    talk_to_hello(&talk);
    weft_wire_refuse(&talk.server, WEFT_ERR_DUPLICATE, "");
    assert_int_equal(carry(&talk.server, &talk.client), WEFT_WIRE_FAILED);
    assert_string_equal(talk.client.reason, weft_status_text(WEFT_ERR_DUPLICATE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_secret_is_told_to_both_sides),
        cmocka_unit_test(listener_without_the_secret_is_found_out),
        cmocka_unit_test(missing_secret_is_told_to_both_sides),
        cmocka_unit_test(hello_to_an_open_listener_gives_no_proof_away),
        cmocka_unit_test(other_job_is_a_mismatch_for_the_client),
        cmocka_unit_test(other_epoch_is_a_mismatch_for_the_client),
        cmocka_unit_test(server_refuses_hellos_of_other_jobs_and_epochs),
        cmocka_unit_test(challenge_does_not_show_the_job),
        cmocka_unit_test(version_mismatch_is_told_to_both_sides),
        cmocka_unit_test(refuse_of_a_version_mismatch_names_both),
        cmocka_unit_test(oversized_payload_is_refused_at_its_announcement),
        cmocka_unit_test(unknown_purposes_and_flags_get_no_answer),
        cmocka_unit_test(refusals_with_impossible_lengths_or_status_are_protocol_errors),
        cmocka_unit_test(refusal_without_words_gets_the_general_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
