/* SPDX-License-Identifier: Apache-2.0 */
/* Records of sealed lanes, at both levels and with both ciphers: what was sealed opens, once, in its place, and
 * nothing else does. */
#include "support.h"

#include "wire/bytes.h"

#include <stdlib.h>

#define RECORD_ROOM (WEFT_WIRE_RECORD_MAX + 64)

static const uint8_t the_key[WEFT_WIRE_KEY_LEN] = "the key of one direction of lane";
static const uint8_t another_key[WEFT_WIRE_KEY_LEN] = "the key of one direction of lanf";

/* Two ends of one direction. */
struct ends {
    struct weft_wire_sealer sender, receiver;
    enum weft_wire_security security;
    bool is_aes;
};

static void ends_open(struct ends *ends, unsigned kind)
{
    ends->security = kind % 2 == 0 ? WEFT_SECURITY_INTEGRITY : WEFT_SECURITY_ENCRYPT;
    ends->is_aes = kind / 2 == 1;
    weft_wire_sealer_open(&ends->sender, the_key, ends->security, ends->is_aes);
    weft_wire_sealer_open(&ends->receiver, the_key, ends->security, ends->is_aes);
}

/* Level and cipher; without AES in the CPU half of them. */
static unsigned kinds(void)
{
    assert_int_equal(weft_wire_crypto_open(), WEFT_OK);
    return weft_wire_has_aes() ? 4 : 2;
}

static uint8_t pattern_at(size_t i)
{
    return (uint8_t)(i * UINT32_C(2654435761) >> 24);
}

static bool opens(struct weft_wire_sealer *receiver, const uint8_t *record, uint8_t *out)
{
    size_t len = 0;
    return weft_wire_record_peek(record, &len) == WEFT_OK &&
           weft_wire_record_open(receiver, record, len, out) == WEFT_OK;
}

/* ---- what was sealed opens ---- */

static void pass(struct ends *ends, size_t len, bool is_in_place)
{
    static uint8_t bytes[WEFT_WIRE_RECORD_MAX], record[RECORD_ROOM], out[RECORD_ROOM];
    uint8_t *plain = is_in_place ? record + WEFT_WIRE_RECORD_HEAD_LEN : bytes;
    uint8_t *opened = is_in_place ? record + WEFT_WIRE_RECORD_HEAD_LEN : out;
    size_t peeked = 0;
    memset(record, 0xee, sizeof(record));
    memset(out, 0xee, sizeof(out));
    for (size_t i = 0; i < len; i++) {
        plain[i] = pattern_at(i);
    }
    assert_int_equal(weft_wire_record_seal(&ends->sender, plain, len, record),
                     weft_wire_record_len(len));
    assert_int_equal(record[weft_wire_record_len(len)], 0xee); /* not a byte further */
    assert_int_equal(weft_wire_record_peek(record, &peeked), WEFT_OK);
    assert_int_equal(peeked, len);
    assert_int_equal(weft_wire_record_open(&ends->receiver, record, len, opened), WEFT_OK);
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(opened[i], pattern_at(i));
    }
    assert_true(is_in_place || out[len] == 0xee);
}

static void records_of_all_lengths_open_again(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends;
        ends_open(&ends, kind);
        for (size_t len = 1; len <= 300; len++) {
            pass(&ends, len, len % 2 == 0);
        }
        for (size_t len = 512; len < WEFT_WIRE_RECORD_MAX; len *= 2) {
            for (size_t at = len - 17; at <= len + 17; at++) {
                pass(&ends, at, at % 2 == 0);
            }
        }
        for (size_t len = WEFT_WIRE_RECORD_MAX - 33; len <= WEFT_WIRE_RECORD_MAX; len++) {
            pass(&ends, len, len % 2 == 0);
        }
    }
}

static bool occurs(const uint8_t *bytes, size_t len, const char *text)
{
    return memmem(bytes, len, text, strlen(text)) != NULL;
}

static void only_encryption_hides_the_bytes(void **state)
{
    static const char text[] = "what the ranks have to say to each other";
    uint8_t record[128];
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends;
        ends_open(&ends, kind);
        size_t len = weft_wire_record_seal(&ends.sender, text, sizeof(text), record);
        assert_int_equal(occurs(record, len, text), ends.security == WEFT_SECURITY_INTEGRITY);
        assert_int_equal(occurs(record, len, "each"), ends.security == WEFT_SECURITY_INTEGRITY);
    }
}

/* ---- and nothing else does ---- */

static void no_flipped_bit_is_accepted(void **state)
{
    static const size_t lens[] = {1, 15, 16, 64, 100, 257};
    uint8_t bytes[257] = {7}, record[512], out[512];
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
            struct ends ends;
            ends_open(&ends, kind);
            size_t total = weft_wire_record_seal(&ends.sender, bytes, lens[i], record);
            for (size_t bit = 0; bit < 8 * total; bit++) {
                record[bit / 8] ^= (uint8_t)(1u << bit % 8);
                assert_false(opens(&ends.receiver, record, out));
                record[bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
            assert_true(opens(&ends.receiver, record, out)); /* it was the flips */
        }
    }
}

/* The CRC of a length can be made right by anybody; the tag cannot. */
static void a_length_that_was_forged_is_refused(void **state)
{
    uint8_t bytes[64] = {7}, record[512] = {0}, out[512];
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends;
        ends_open(&ends, kind);
        weft_wire_record_seal(&ends.sender, bytes, sizeof(bytes), record);
        for (uint32_t len = 1; len <= 200; len++) {
            put_u32(record, len);
            put_u32(record + 4, weft_wire_crc32c(0, record, 4));
            assert_int_equal(opens(&ends.receiver, record, out), len == sizeof(bytes));
            ends.receiver.number = 0;
        }
    }
}

static void lengths_that_claim_too_much_are_refused_before_they_count(void **state)
{
    static const uint32_t lens[] = {0, WEFT_WIRE_RECORD_MAX + 1, 1u << 30, UINT32_MAX};
    uint8_t head[WEFT_WIRE_RECORD_HEAD_LEN];
    size_t len = 99;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
        put_u32(head, lens[i]);
        put_u32(head + 4, weft_wire_crc32c(0, head, 4));
        assert_int_equal(weft_wire_record_peek(head, &len), WEFT_ERR_PROTOCOL);
        assert_int_equal(len, 99);
    }
}

#define COUNT 6

static void seal_some(struct ends *ends, uint8_t records[COUNT][128])
{
    const uint8_t bytes[40] = {1, 2, 3}; /* the same each time */
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(weft_wire_record_seal(&ends->sender, bytes, sizeof(bytes), records[i]),
                         weft_wire_record_len(sizeof(bytes)));
    }
}

/* Each of six at each moment: only the one whose turn it is opens. So none is repeated, moved or left out. */
static void a_record_opens_in_its_turn_only(void **state)
{
    uint8_t records[COUNT][128], out[128];
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends;
        ends_open(&ends, kind);
        seal_some(&ends, records);
        for (int turn = 0; turn < COUNT; turn++) {
            for (int i = 0; i < COUNT; i++) {
                assert_true(i == turn || !opens(&ends.receiver, records[i], out));
            }
            assert_true(opens(&ends.receiver, records[turn], out));
        }
    }
}

/* The tag of one record behind the bytes of another. */
static void spliced_records_are_refused(void **state)
{
    const uint8_t bytes[2][40] = {{1}, {2}};
    uint8_t records[2][128], spliced[128], out[128];
    const size_t body = WEFT_WIRE_RECORD_HEAD_LEN + sizeof(bytes[0]);
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends;
        ends_open(&ends, kind);
        weft_wire_record_seal(&ends.sender, bytes[0], sizeof(bytes[0]), records[0]);
        weft_wire_record_seal(&ends.sender, bytes[1], sizeof(bytes[1]), records[1]);
        memcpy(spliced, records[1], sizeof(spliced));
        memcpy(spliced + body, records[0] + body, WEFT_WIRE_RECORD_TAG_LEN);
        assert_false(opens(&ends.receiver, spliced, out));
        memcpy(spliced, records[0], sizeof(spliced));
        memcpy(spliced + body, records[1] + body, WEFT_WIRE_RECORD_TAG_LEN);
        assert_false(opens(&ends.receiver, spliced, out));
        assert_true(opens(&ends.receiver, records[0], out));
    }
}

static void records_of_another_lane_level_or_cipher_are_refused(void **state)
{
    uint8_t bytes[40] = {0}, record[128], out[128];
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends, others;
        ends_open(&ends, kind);
        weft_wire_record_seal(&ends.sender, bytes, sizeof(bytes), record);
        for (unsigned other = 0; other < kinds(); other++) {
            ends_open(&others, other);
            assert_int_equal(opens(&others.receiver, record, out), other == kind);
        }
        weft_wire_sealer_open(&others.receiver, another_key, ends.security, ends.is_aes);
        assert_false(opens(&others.receiver, record, out));
    }
}

/* ---- numbers and keys ---- */

/* Under one nonce and key equal bytes would give equal records, also across renewals of the key. */
static void no_nonce_is_used_twice(void **state)
{
    enum { RECORDS = 500 };
    static uint8_t records[RECORDS][64];
    const uint8_t bytes[16] = {0};
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends;
        ends_open(&ends, kind);
        ends.sender.renewed_after = 7;
        for (unsigned i = 0; i < RECORDS; i++) {
            assert_int_equal(ends.sender.number, i);
            weft_wire_record_seal(&ends.sender, bytes, sizeof(bytes), records[i]);
            for (unsigned k = 0; k < i; k++) {
                assert_memory_not_equal(records[i] + 24, records[k] + 24, WEFT_WIRE_RECORD_TAG_LEN);
            }
        }
    }
}

static void both_sides_renew_their_keys_at_the_same_record(void **state)
{
    uint8_t bytes[40] = {0}, record[128], out[128], first[WEFT_WIRE_KEY_LEN];
    (void)state;
    for (unsigned kind = 0; kind < kinds(); kind++) {
        struct ends ends;
        ends_open(&ends, kind);
        ends.sender.renewed_after = ends.receiver.renewed_after = 3;
        memcpy(first, ends.sender.key, sizeof(first));
        for (unsigned i = 0; i < 20; i++) {
            weft_wire_record_seal(&ends.sender, bytes, sizeof(bytes), record);
            assert_int_equal(memcmp(ends.sender.key, first, sizeof(first)) == 0, i < 3);
            record[20] ^= 1;
            assert_false(opens(&ends.receiver, record, out)); /* does not renew a second time */
            record[20] ^= 1;
            assert_true(opens(&ends.receiver, record, out));
        }
        ends.receiver.renewed_after =
            1000; /* one that does not: record 20 is the last it can open */
        weft_wire_record_seal(&ends.sender, bytes, sizeof(bytes), record);
        assert_true(opens(&ends.receiver, record, out));
        weft_wire_record_seal(&ends.sender, bytes, sizeof(bytes), record);
        assert_false(opens(&ends.receiver, record, out));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_all_lengths_open_again),
        cmocka_unit_test(only_encryption_hides_the_bytes),
        cmocka_unit_test(no_flipped_bit_is_accepted),
        cmocka_unit_test(a_length_that_was_forged_is_refused),
        cmocka_unit_test(lengths_that_claim_too_much_are_refused_before_they_count),
        cmocka_unit_test(a_record_opens_in_its_turn_only),
        cmocka_unit_test(spliced_records_are_refused),
        cmocka_unit_test(records_of_another_lane_level_or_cipher_are_refused),
        cmocka_unit_test(no_nonce_is_used_twice),
        cmocka_unit_test(both_sides_renew_their_keys_at_the_same_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
