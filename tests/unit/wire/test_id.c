/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

static void id_fill(struct weft_wire_id *id)
{
    memset(id, 0, sizeof(*id));
    id->root = (struct weft_wire_addr){.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}};
    id->flags = WEFT_WIRE_ID_AUTHENTICATED;
    id->epoch = 5;
    for (uint8_t i = 0; i < 16; i++) {
        id->job[i] = (uint8_t)(0x50 + i);
    }
    for (uint8_t i = 0; i < WEFT_SECRET_LEN; i++) {
        id->secret[i] = (uint8_t)(0xc0 + i);
    }
}

static void id_has_the_written_down_bytes(void **state)
{
    struct weft_wire_id id;
    weft_id_t bytes;

    (void)state;
    id_fill(&id);
    weft_wire_id_encode(&id, &bytes);
    assert_hex(bytes.bytes, 128,
               "5746494401000000"
               "0100000005000000"
               "04003b11000000000a000001000000000000000000000000"
               "505152535455565758595a5b5c5d5e5f"
               "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf"
               "000000000000000000000000000000000000000000000000000000000000000000000000"
               "b7385127");
}

static void id_survives_both_round_trips(void **state)
{
    uint64_t seed = 4;

    (void)state;
    for (int i = 0; i < 500; i++) {
        struct weft_wire_id id, back;
        weft_id_t bytes, parsed;
        char text[WEFT_ID_TEXT_LEN];

        memset(&id, 0, sizeof(id));
        memset(&back, 0, sizeof(back));
        fill_addr(&seed, &id.root);
        id.flags = random_below(&seed, 2);
        id.epoch = (uint32_t)next_random(&seed);
        fill_random(&seed, id.job, sizeof(id.job));
        if (id.flags != 0) {
            fill_random(&seed, id.secret, sizeof(id.secret));
        }
        weft_wire_id_encode(&id, &bytes);
        weft_wire_id_print(&bytes, text);
        assert_int_equal(weft_wire_id_parse(text, &parsed), WEFT_OK);
        assert_memory_equal(&bytes, &parsed, sizeof(bytes));
        assert_int_equal(weft_wire_id_decode(&parsed, &back), WEFT_OK);
        assert_memory_equal(&id, &back, sizeof(id));
    }
}

static void id_without_authentication_carries_no_secret(void **state)
{
    struct weft_wire_id id, back;
    static const uint8_t zero[WEFT_SECRET_LEN];
    weft_id_t bytes;

    (void)state;
    id_fill(&id);
    id.flags = 0;
    weft_wire_id_encode(&id, &bytes);
    assert_int_equal(weft_wire_id_decode(&bytes, &back), WEFT_OK);
    assert_memory_equal(back.secret, zero, sizeof(zero));
}

static void id_decode_refuses_every_bit_flip(void **state)
{
    struct weft_wire_id id, back;
    weft_id_t bytes;

    (void)state;
    id_fill(&id);
    weft_wire_id_encode(&id, &bytes);
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bool is_version = bit / 8 == 4 || bit / 8 == 5;

        flip_bit(bytes.bytes, bit);
        assert_int_equal(weft_wire_id_decode(&bytes, &back),
                         is_version ? WEFT_ERR_VERSION : WEFT_ERR_INVALID);
        flip_bit(bytes.bytes, bit);
    }
}

/* Fields that must be zero, with a CRC that fits: only the check of the field itself can refuse. */
static void id_decode_refuses_what_it_does_not_understand(void **state)
{
    static const size_t offsets[] = {6, 9, 16, 17, 88, 123};
    struct weft_wire_id id, back;
    weft_id_t bytes;

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(offsets); i++) {
        id_fill(&id);
        weft_wire_id_encode(&id, &bytes);
        bytes.bytes[offsets[i]] = 0x40;
        store_u32(bytes.bytes + 124, weft_wire_crc32c(0, bytes.bytes, 124));
        assert_int_equal(weft_wire_id_decode(&bytes, &back), WEFT_ERR_INVALID);
    }
}

static void id_parse_refuses_cut_long_and_foreign_text(void **state)
{
    struct weft_wire_id id;
    weft_id_t bytes, parsed;
    char text[WEFT_ID_TEXT_LEN], longer[2 * WEFT_ID_TEXT_LEN];
    size_t len;

    (void)state;
    id_fill(&id);
    weft_wire_id_encode(&id, &bytes);
    weft_wire_id_print(&bytes, text);
    len = strlen(text);
    for (size_t cut = 0; cut < len; cut++) {
        char kept = text[cut];

        text[cut] = '\0';
        assert_int_equal(weft_wire_id_parse(text, &parsed), WEFT_ERR_INVALID);
        text[cut] = kept;
    }
    for (size_t at = 0; at < len; at++) {
        char kept = text[at];

        text[at] = kept == 'A' ? 'B' : 'A';
        assert_int_not_equal(weft_wire_id_parse(text, &parsed), WEFT_OK);
        text[at] = '=';
        assert_int_equal(weft_wire_id_parse(text, &parsed), WEFT_ERR_INVALID);
        text[at] = kept;
    }
    snprintf(longer, sizeof(longer), "%sA", text);
    assert_int_equal(weft_wire_id_parse(longer, &parsed), WEFT_ERR_INVALID);
    snprintf(longer, sizeof(longer), "%s%s", text, text);
    assert_int_equal(weft_wire_id_parse(longer, &parsed), WEFT_ERR_INVALID);
    assert_int_equal(weft_wire_id_parse("", &parsed), WEFT_ERR_INVALID);
    assert_int_equal(weft_wire_id_parse("weft2:AAAA", &parsed), WEFT_ERR_VERSION);
    assert_int_equal(weft_wire_id_parse("weftx:AAAA", &parsed), WEFT_ERR_INVALID);
}

/* libsodium reads some bytes above 127 as letters, so a damaged text could decode to the same id.
 */
static void id_parse_refuses_every_other_byte(void **state)
{
    struct weft_wire_id id;
    weft_id_t bytes, parsed;
    char text[WEFT_ID_TEXT_LEN];

    (void)state;
    id_fill(&id);
    weft_wire_id_encode(&id, &bytes);
    weft_wire_id_print(&bytes, text);
    for (size_t at = 0; text[at] != '\0'; at++) {
        char kept = text[at];

        for (int other = 1; other < 256; other++) {
            text[at] = (char)other;
            if (text[at] != kept) {
                assert_int_not_equal(weft_wire_id_parse(text, &parsed), WEFT_OK);
            }
        }
        text[at] = kept;
    }
    assert_int_equal(weft_wire_id_parse(text, &parsed), WEFT_OK);
}

static void id_public_form_hides_the_secret(void **state)
{
    struct weft_wire_id id;
    weft_id_t bytes, other;
    char text[WEFT_ID_TEXT_LEN], other_text[WEFT_ID_TEXT_LEN];

    (void)state;
    id_fill(&id);
    weft_wire_id_encode(&id, &bytes);
    assert_int_equal(weft_wire_id_print_public(&bytes, text), WEFT_OK);
    assert_string_equal(text, "job 50515253 at 10.0.0.1:4411, epoch 5, authenticated");
    /* neither secret nor the rest of the job id has any influence on it */
    memset(id.secret, 0x99, sizeof(id.secret));
    memset(id.job + 4, 0x99, 12);
    weft_wire_id_encode(&id, &other);
    assert_int_equal(weft_wire_id_print_public(&other, other_text), WEFT_OK);
    assert_string_equal(text, other_text);
    id.flags = 0;
    weft_wire_id_encode(&id, &other);
    assert_int_equal(weft_wire_id_print_public(&other, other_text), WEFT_OK);
    assert_string_equal(other_text, "job 50515253 at 10.0.0.1:4411, epoch 5, unauthenticated");
    memset(&other, 0, sizeof(other));
    assert_int_equal(weft_wire_id_print_public(&other, other_text), WEFT_ERR_INVALID);
}

static void local_name_depends_on_every_fact(void **state)
{
    const uint8_t key[WEFT_WIRE_KEY_LEN] = {1}, other_key[WEFT_WIRE_KEY_LEN] = {2};
    const uint8_t job[16] = {1}, other_job[16] = {2};
    char names[6][WEFT_WIRE_NAME_LEN];

    (void)state;
    weft_wire_local_name(key, job, 1, "root", 1, names[0]);
    weft_wire_local_name(other_key, job, 1, "root", 1, names[1]);
    weft_wire_local_name(key, other_job, 1, "root", 1, names[2]);
    weft_wire_local_name(key, job, 2, "root", 1, names[3]);
    weft_wire_local_name(key, job, 1, "rank", 1, names[4]);
    weft_wire_local_name(key, job, 1, "root", 2, names[5]);
    for (size_t i = 0; i < WEFT_COUNT_OF(names); i++) {
        assert_int_equal(strlen(names[i]), 37);
        assert_int_equal(strncmp(names[i], "weft-", 5), 0);
        assert_int_equal(strspn(names[i] + 5, "0123456789abcdef"), 32);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(names[i], names[j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(id_has_the_written_down_bytes),
        cmocka_unit_test(id_survives_both_round_trips),
        cmocka_unit_test(id_without_authentication_carries_no_secret),
        cmocka_unit_test(id_decode_refuses_every_bit_flip),
        cmocka_unit_test(id_decode_refuses_what_it_does_not_understand),
        cmocka_unit_test(id_parse_refuses_cut_long_and_foreign_text),
        cmocka_unit_test(id_parse_refuses_every_other_byte),
        cmocka_unit_test(id_public_form_hides_the_secret),
        cmocka_unit_test(local_name_depends_on_every_fact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
