/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

static const uint8_t key[WEFT_WIRE_KEY_LEN] = {1, 2, 3};

static void crypto_opens_twice(void **state)
{
    (void)state;
    assert_int_equal(weft_wire_crypto_open(), WEFT_OK);
    assert_int_equal(weft_wire_crypto_open(), WEFT_OK);
}

/* Python: hashlib.blake2b(b"label\0data", digest_size=32, key=bytes([1, 2, 3]) + bytes(29)) */
static void derive_is_keyed_blake2b_over_label_and_data(void **state)
{
    uint8_t out[32];

    (void)state;
    weft_wire_derive(key, "label", "data", 4, out);
    assert_hex(out, 32, "ee9898308a94a1e1ae3928e90c53eedbee7539e8d59004bacb103818af6f796d");
}

static void derive_tells_label_and_data_apart(void **state)
{
    uint8_t a[32], b[32];

    (void)state;
    weft_wire_derive(key, "ab", "c", 1, a);
    weft_wire_derive(key, "a", "bc", 2, b);
    assert_memory_not_equal(a, b, sizeof(a));
}

static void open_key_differs_between_jobs(void **state)
{
    uint8_t job[16] = {9};
    uint8_t a[WEFT_WIRE_KEY_LEN], b[WEFT_WIRE_KEY_LEN], again[WEFT_WIRE_KEY_LEN];

    (void)state;
    weft_wire_open_key(job, a);
    weft_wire_open_key(job, again);
    job[15] = 1;
    weft_wire_open_key(job, b);
    assert_memory_equal(a, again, sizeof(a));
    assert_memory_not_equal(a, b, sizeof(a));
}

/* the same Python, digest_size=16, over number and header length (eight bytes each), header,
 * payload */
static void seal_has_the_written_down_value(void **state)
{
    uint8_t seal[WEFT_WIRE_SEAL_LEN];

    (void)state;
    weft_wire_seal(key, 5, "head", 4, "body", 4, seal);
    assert_hex(seal, sizeof(seal), "fb46d466a7975966603342c6c8265337");
}

static void seal_covers_number_header_payload_and_key(void **state)
{
    static const uint8_t other_key[WEFT_WIRE_KEY_LEN] = {1, 2, 4};
    uint8_t seals[6][WEFT_WIRE_SEAL_LEN];

    (void)state;
    weft_wire_seal(key, 5, "head", 4, "body", 4, seals[0]);
    weft_wire_seal(key, 6, "head", 4, "body", 4, seals[1]);
    weft_wire_seal(key, 5, "heaD", 4, "body", 4, seals[2]);
    weft_wire_seal(key, 5, "head", 4, "bodY", 4, seals[3]);
    weft_wire_seal(other_key, 5, "head", 4, "body", 4, seals[4]);
    weft_wire_seal(key, 5, "headb", 5, "ody", 3, seals[5]);
    for (size_t i = 0; i < WEFT_COUNT_OF(seals); i++) {
        for (size_t j = 0; j < i; j++) {
            assert_false(weft_wire_is_equal(seals[i], seals[j], WEFT_WIRE_SEAL_LEN));
        }
    }
}

static void is_equal_sees_every_byte(void **state)
{
    uint8_t a[32], b[32];

    (void)state;
    memset(a, 7, sizeof(a));
    memcpy(b, a, sizeof(b));
    assert_true(weft_wire_is_equal(a, b, sizeof(a)));
    for (size_t bit = 0; bit < 256; bit++) {
        flip_bit(b, bit);
        assert_false(weft_wire_is_equal(a, b, sizeof(a)));
        flip_bit(b, bit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crypto_opens_twice),
        cmocka_unit_test(derive_is_keyed_blake2b_over_label_and_data),
        cmocka_unit_test(derive_tells_label_and_data_apart),
        cmocka_unit_test(open_key_differs_between_jobs),
        cmocka_unit_test(seal_has_the_written_down_value),
        cmocka_unit_test(seal_covers_number_header_payload_and_key),
        cmocka_unit_test(is_equal_sees_every_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
