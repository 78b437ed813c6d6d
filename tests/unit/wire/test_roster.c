/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

static void member_random(uint64_t *seed, struct weft_wire_member *member)
{
    memset(member, 0, sizeof(*member));
    member->rank = (uint32_t)next_random(seed);
    member->ranks = (uint32_t)next_random(seed);
    member->leader = (uint32_t)next_random(seed);
    member->pid = (uint32_t)next_random(seed);
    member->timeout_ms = (uint32_t)next_random(seed);
    fill_addr(seed, &member->addr);
    fill_text(seed, member->host, sizeof(member->host));
    fill_text(seed, member->settings, sizeof(member->settings));
}

static void notice_random(uint64_t *seed, struct weft_wire_notice *notice)
{
    memset(notice, 0, sizeof(*notice));
    notice->status = 1 + random_below(seed, WEFT_ERR_UNSUPPORTED);
    notice->rank = (uint32_t)next_random(seed);
    notice->number = (uint32_t)next_random(seed);
    fill_text(seed, notice->text, sizeof(notice->text));
}

/* ---- member ---- */

static void member_has_the_written_down_bytes(void **state)
{
    const struct weft_wire_member member = {
        .rank = 1,
        .ranks = 8,
        .leader = 2,
        .pid = 0x1234,
        .timeout_ms = 30000,
        .addr = {.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}},
        .host = "node7",
        .settings = "WEFT_A=1",
    };
    uint8_t out[WEFT_WIRE_MEMBER_MAX];

    (void)state;
    assert_int_equal(weft_wire_member_encode(&member, out, sizeof(out)), 61);
    assert_hex(out, 61,
               "0100000008000000020000003412000030750000"
               "04003b11000000000a000001000000000000000000000000"
               "05000800"
               "6e6f646537"
               "574546545f413d31");
}

static void member_survives_the_round_trip(void **state)
{
    uint64_t seed = 9;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct weft_wire_member member, back;
        uint8_t out[WEFT_WIRE_MEMBER_MAX + 3];
        size_t len, used;

        member_random(&seed, &member);
        len = weft_wire_member_encode(&member, out, WEFT_WIRE_MEMBER_MAX);
        assert_in_range(len, 48, WEFT_WIRE_MEMBER_MAX);
        memset(&back, 0, sizeof(back));
        /* several may stand behind each other: only the first is read */
        assert_int_equal(weft_wire_member_decode(out, len + 3, &back, &used), WEFT_OK);
        assert_int_equal(used, len);
        assert_int_equal(back.rank, member.rank);
        assert_int_equal(back.ranks, member.ranks);
        assert_int_equal(back.leader, member.leader);
        assert_int_equal(back.pid, member.pid);
        assert_int_equal(back.timeout_ms, member.timeout_ms);
        assert_memory_equal(&back.addr, &member.addr, sizeof(back.addr));
        assert_string_equal(back.host, member.host);
        assert_string_equal(back.settings, member.settings);
    }
}

static void member_encode_needs_all_its_room(void **state)
{
    struct weft_wire_member member;
    uint8_t out[WEFT_WIRE_MEMBER_MAX];
    uint64_t seed = 10;
    size_t len;

    (void)state;
    member_random(&seed, &member);
    len = weft_wire_member_encode(&member, out, sizeof(out));
    memset(out, 0x77, sizeof(out));
    for (size_t room = 0; room < len; room++) {
        assert_int_equal(weft_wire_member_encode(&member, out, room), 0);
        assert_int_equal(out[0], 0x77);
    }
    assert_int_equal(weft_wire_member_encode(&member, NULL, 0), 0);
    assert_int_equal(weft_wire_member_encode(&member, out, len), len);
}

static void member_encode_cuts_texts_that_have_no_end(void **state)
{
    struct weft_wire_member member = {.rank = 1}, back;
    uint8_t out[WEFT_WIRE_MEMBER_MAX];
    size_t used;

    (void)state;
    memset(member.host, 'h', sizeof(member.host));
    memset(member.settings, 's', sizeof(member.settings));
    assert_int_equal(weft_wire_member_encode(&member, out, sizeof(out)), 48 + 63 + 383);
    assert_int_equal(weft_wire_member_decode(out, 48 + 63 + 383, &back, &used), WEFT_OK);
    assert_int_equal(strlen(back.host), 63);
    assert_int_equal(strlen(back.settings), 383);
}

static void member_decode_refuses_cuts_and_long_texts(void **state)
{
    struct weft_wire_member member, back;
    uint8_t out[WEFT_WIRE_MEMBER_MAX];
    uint64_t seed = 11;
    size_t len, used;

    (void)state;
    member_random(&seed, &member);
    len = weft_wire_member_encode(&member, out, sizeof(out));
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(weft_wire_member_decode(out, cut, &back, &used), WEFT_ERR_PROTOCOL);
    }
    out[44] = WEFT_WIRE_HOST_LEN;
    assert_int_equal(weft_wire_member_decode(out, sizeof(out), &back, &used), WEFT_ERR_PROTOCOL);
    out[44] = 0;
    out[46] = WEFT_WIRE_SETTINGS_LEN & 0xff;
    out[47] = WEFT_WIRE_SETTINGS_LEN >> 8;
    assert_int_equal(weft_wire_member_decode(out, sizeof(out), &back, &used), WEFT_ERR_PROTOCOL);
    out[46] = out[47] = 0;
    assert_int_equal(weft_wire_member_decode(out, sizeof(out), &back, &used), WEFT_OK);
    out[20] = 5; /* an address family that there is not */
    assert_int_equal(weft_wire_member_decode(out, sizeof(out), &back, &used), WEFT_ERR_PROTOCOL);
}

/* ---- answer ---- */

static void answer_has_the_written_down_bytes(void **state)
{
    const struct weft_wire_answer answer = {
        .parent = 5,
        .root = 1,
        .fan_groups = 64,
        .fan_local = 300,
        .is_local = true,
        .addr = {.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}},
    };
    uint8_t out[WEFT_WIRE_ANSWER_LEN];

    (void)state;
    weft_wire_answer_encode(&answer, out);
    assert_hex(out, sizeof(out),
               "05000000010000004000"
               "2c0101000000"
               "04003b11000000000a000001000000000000000000000000");
}

static void answer_survives_the_round_trip(void **state)
{
    uint64_t seed = 12;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct weft_wire_answer answer, back;
        uint8_t out[WEFT_WIRE_ANSWER_LEN];

        memset(&answer, 0, sizeof(answer));
        memset(&back, 0, sizeof(back));
        answer.parent = (uint32_t)next_random(&seed);
        answer.root = (uint32_t)next_random(&seed);
        answer.fan_groups = (uint16_t)(1 + random_below(&seed, UINT16_MAX));
        answer.fan_local = (uint16_t)(1 + random_below(&seed, UINT16_MAX));
        answer.is_local = random_below(&seed, 2) == 1;
        fill_addr(&seed, &answer.addr);
        weft_wire_answer_encode(&answer, out);
        assert_int_equal(weft_wire_answer_decode(out, sizeof(out), &back), WEFT_OK);
        assert_int_equal(back.parent, answer.parent);
        assert_int_equal(back.root, answer.root);
        assert_int_equal(back.fan_groups, answer.fan_groups);
        assert_int_equal(back.fan_local, answer.fan_local);
        assert_int_equal(back.is_local, answer.is_local);
        assert_memory_equal(&back.addr, &answer.addr, sizeof(back.addr));
    }
}

static void answer_decode_refuses_what_makes_no_sense(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {{8, 0}, {10, 0}, {12, 2}, {13, 1}, {15, 1}, {16, 7}, {17, 1}};
    const struct weft_wire_answer answer = {.fan_groups = 1, .fan_local = 1};
    struct weft_wire_answer back;
    uint8_t out[WEFT_WIRE_ANSWER_LEN + 1] = {0};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        weft_wire_answer_encode(&answer, out);
        out[cases[i].at] = cases[i].value;
        assert_int_equal(weft_wire_answer_decode(out, WEFT_WIRE_ANSWER_LEN, &back),
                         WEFT_ERR_PROTOCOL);
    }
    weft_wire_answer_encode(&answer, out);
    assert_int_equal(weft_wire_answer_decode(out, WEFT_WIRE_ANSWER_LEN, &back), WEFT_OK);
    assert_int_equal(weft_wire_answer_decode(out, WEFT_WIRE_ANSWER_LEN + 1, &back),
                     WEFT_ERR_PROTOCOL);
    for (size_t cut = 0; cut < WEFT_WIRE_ANSWER_LEN; cut++) {
        assert_int_equal(weft_wire_answer_decode(out, cut, &back), WEFT_ERR_PROTOCOL);
    }
}

/* ---- notice ---- */

static void notice_has_the_written_down_bytes(void **state)
{
    const struct weft_wire_notice notice = {
        .status = WEFT_ERR_PEER, .rank = 3, .number = 9, .text = "gone"};
    uint8_t out[WEFT_WIRE_NOTICE_MAX];

    (void)state;
    assert_int_equal(weft_wire_notice_encode(&notice, out), 20);
    assert_hex(out, 20, "05000000030000000900000004000000676f6e65");
}

static void notice_survives_the_round_trip(void **state)
{
    uint64_t seed = 13;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct weft_wire_notice notice, back;
        uint8_t out[WEFT_WIRE_NOTICE_MAX];
        size_t len;

        notice_random(&seed, &notice);
        len = weft_wire_notice_encode(&notice, out);
        assert_true(len <= sizeof(out));
        assert_int_equal(weft_wire_notice_decode(out, len, &back), WEFT_OK);
        assert_int_equal(back.status, notice.status);
        assert_int_equal(back.rank, notice.rank);
        assert_int_equal(back.number, notice.number);
        assert_string_equal(back.text, notice.text);
    }
}

static void notice_decode_refuses_lengths_that_do_not_fit(void **state)
{
    struct weft_wire_notice notice = {.status = WEFT_ERR_PEER, .text = "rank 3 died"}, back;
    uint8_t out[WEFT_WIRE_NOTICE_MAX + 16] = {0};
    size_t len = weft_wire_notice_encode(&notice, out);

    (void)state;
    for (size_t other = 0; other <= sizeof(out); other++) {
        assert_int_equal(weft_wire_notice_decode(out, other, &back),
                         other == len ? WEFT_OK : WEFT_ERR_PROTOCOL);
    }
    /* consistent with itself, but longer than a text may be */
    store_u32(out + 12, WEFT_WIRE_REASON_LEN);
    assert_int_equal(weft_wire_notice_decode(out, 16 + WEFT_WIRE_REASON_LEN, &back),
                     WEFT_ERR_PROTOCOL);
    store_u32(out + 12, WEFT_WIRE_REASON_LEN - 1);
    assert_int_equal(weft_wire_notice_decode(out, 16 + WEFT_WIRE_REASON_LEN - 1, &back), WEFT_OK);
}

static void notice_decode_refuses_unknown_status(void **state)
{
    static const uint32_t unknown[] = {WEFT_OK, WEFT_ERR_UNSUPPORTED + 1, UINT32_MAX};
    struct weft_wire_notice notice = {.status = WEFT_ERR_PEER}, back;
    uint8_t out[WEFT_WIRE_NOTICE_MAX];
    size_t len = weft_wire_notice_encode(&notice, out);

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(unknown); i++) {
        store_u32(out, unknown[i]);
        assert_int_equal(weft_wire_notice_decode(out, len, &back), WEFT_ERR_PROTOCOL);
    }
}

static void notice_decode_makes_text_printable(void **state)
{
    struct weft_wire_notice notice = {.status = WEFT_ERR_PEER, .text = "a\nb\x1b[0m"}, back;
    uint8_t out[WEFT_WIRE_NOTICE_MAX];
    size_t len = weft_wire_notice_encode(&notice, out);

    (void)state;
    assert_int_equal(weft_wire_notice_decode(out, len, &back), WEFT_OK);
    assert_string_equal(back.text, "a?b?[0m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(member_has_the_written_down_bytes),
        cmocka_unit_test(member_survives_the_round_trip),
        cmocka_unit_test(member_encode_needs_all_its_room),
        cmocka_unit_test(member_encode_cuts_texts_that_have_no_end),
        cmocka_unit_test(member_decode_refuses_cuts_and_long_texts),
        cmocka_unit_test(answer_has_the_written_down_bytes),
        cmocka_unit_test(answer_survives_the_round_trip),
        cmocka_unit_test(answer_decode_refuses_what_makes_no_sense),
        cmocka_unit_test(notice_has_the_written_down_bytes),
        cmocka_unit_test(notice_survives_the_round_trip),
        cmocka_unit_test(notice_decode_refuses_lengths_that_do_not_fit),
        cmocka_unit_test(notice_decode_refuses_unknown_status),
        cmocka_unit_test(notice_decode_makes_text_printable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
