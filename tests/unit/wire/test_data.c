/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#define CRC_AT 60

static const struct weft_wire_data sample = {.type = WEFT_DATA_CHUNK,
                                             .flags = WEFT_DATA_CHECKED,
                                             .len = 0x020304,
                                             .comm = UINT64_C(0x1122334455667788),
                                             .tag = 7,
                                             .seq = 812,
                                             .a = UINT64_C(0xa1a2a3a4a5a6a7a8),
                                             .b = 0x80000,
                                             .c = UINT64_C(0xc1c2c3c4c5c6c7c8),
                                             .number = 0x01020304,
                                             .ack = 0x05060708,
                                             .payload_crc = 0x8a9136aa};

/* A header with a CRC that fits, whatever it says. */
static void reseal(uint8_t header[WEFT_WIRE_DATA_LEN])
{
    store_u32(header + CRC_AT, weft_wire_crc32c(0, header, CRC_AT));
}

static void random_data(uint64_t *seed, struct weft_wire_data *data)
{
    data->type = (uint8_t)(1 + random_below(seed, WEFT_DATA_TYPE_END - 1));
    data->flags = (uint8_t)next_random(seed);
    data->len = random_below(seed, WEFT_WIRE_DATA_MAX + 1);
    data->comm = next_random(seed);
    data->tag = (uint32_t)next_random(seed);
    data->seq = (uint32_t)next_random(seed);
    data->a = next_random(seed);
    data->b = next_random(seed);
    data->c = next_random(seed);
    data->number = (uint32_t)next_random(seed);
    data->ack = (uint32_t)next_random(seed);
    data->payload_crc = (uint32_t)next_random(seed);
}

static void data_has_the_written_down_bytes(void **state)
{
    uint8_t out[WEFT_WIRE_DATA_LEN];

    (void)state;
    weft_wire_data_encode(&sample, out);
    assert_hex(out, CRC_AT,
               "5764040204030200"
               "8877665544332211"
               "070000002c030000"
               "a8a7a6a5a4a3a2a1"
               "0000080000000000"
               "c8c7c6c5c4c3c2c1"
               "0403020108070605"
               "aa36918a");
    assert_hex(out + CRC_AT, 4, "0c4c9ecf");
}

static void data_survives_the_round_trip(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        struct weft_wire_data data, back;
        uint8_t out[WEFT_WIRE_DATA_LEN];

        memset(&data, 0, sizeof(data)); /* padding too: compared as memory */
        memset(&back, 0, sizeof(back));
        random_data(&seed, &data);
        weft_wire_data_encode(&data, out);
        assert_int_equal(weft_wire_data_decode(out, &back), WEFT_OK);
        assert_memory_equal(&back, &data, sizeof(data));
    }
}

static void data_decode_refuses_one_and_two_flipped_bits(void **state)
{
    uint8_t out[WEFT_WIRE_DATA_LEN];
    struct weft_wire_data back;

    (void)state;
    weft_wire_data_encode(&sample, out);
    for (size_t a = 0; a < BITS(sizeof(out)); a++) {
        flip_bit(out, a);
        assert_int_equal(weft_wire_data_decode(out, &back), WEFT_ERR_PROTOCOL);
        for (size_t b = 0; b < a; b++) {
            flip_bit(out, b);
            assert_int_equal(weft_wire_data_decode(out, &back), WEFT_ERR_PROTOCOL);
            flip_bit(out, b);
        }
        flip_bit(out, a);
    }
}

static void data_decode_refuses_a_million_random_flips(void **state)
{
    uint64_t seed = 6;
    unsigned accepted = 0;

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        uint8_t good[WEFT_WIRE_DATA_LEN], bad[WEFT_WIRE_DATA_LEN];
        struct weft_wire_data data, back;
        uint32_t flips = 1 + random_below(&seed, 4);

        random_data(&seed, &data);
        weft_wire_data_encode(&data, good);
        memcpy(bad, good, sizeof(bad));
        while (flips-- > 0) {
            flip_bit(bad, random_below(&seed, BITS(sizeof(bad))));
        }
        if (memcmp(good, bad, sizeof(good)) == 0) {
            flip_bit(bad, 0); /* the flips cancelled each other out */
        }
        accepted += weft_wire_data_decode(bad, &back) == WEFT_OK;
    }
    assert_int_equal(accepted, 0);
}

static void data_decode_refuses_unknown_types(void **state)
{
    struct weft_wire_data back;
    uint8_t out[WEFT_WIRE_DATA_LEN];

    (void)state;
    weft_wire_data_encode(&sample, out);
    for (unsigned type = 0; type < 256; type++) {
        bool is_known = type > 0 && type < WEFT_DATA_TYPE_END;

        out[2] = (uint8_t)type;
        reseal(out);
        assert_int_equal(weft_wire_data_decode(out, &back), is_known ? WEFT_OK : WEFT_ERR_PROTOCOL);
    }
}

static void data_decode_refuses_oversized_lengths(void **state)
{
    static const uint32_t lengths[] = {WEFT_WIRE_DATA_MAX + 1, 0x7fffffff, 0x80000000, UINT32_MAX};
    struct weft_wire_data back;
    uint8_t out[WEFT_WIRE_DATA_LEN];

    (void)state;
    weft_wire_data_encode(&sample, out);
    store_u32(out + 4, WEFT_WIRE_DATA_MAX);
    reseal(out);
    assert_int_equal(weft_wire_data_decode(out, &back), WEFT_OK);
    for (size_t i = 0; i < WEFT_COUNT_OF(lengths); i++) {
        store_u32(out + 4, lengths[i]);
        reseal(out);
        assert_int_equal(weft_wire_data_decode(out, &back), WEFT_ERR_PROTOCOL);
    }
}

/* A control frame on a data lane is a stream out of step, however good its CRC. */
static void data_decode_refuses_the_magic_of_control_frames(void **state)
{
    struct weft_wire_data back;
    uint8_t out[WEFT_WIRE_DATA_LEN];

    (void)state;
    weft_wire_data_encode(&sample, out);
    out[1] = 0x66;
    reseal(out);
    assert_int_equal(weft_wire_data_decode(out, &back), WEFT_ERR_PROTOCOL);
}

static void data_decode_writes_nothing_on_failure(void **state)
{
    struct weft_wire_data back, before;
    uint8_t out[WEFT_WIRE_DATA_LEN];

    (void)state;
    memset(&back, 0x5a, sizeof(back));
    memcpy(&before, &back, sizeof(before));
    weft_wire_data_encode(&sample, out);
    out[CRC_AT + 2] ^= 1;
    assert_int_equal(weft_wire_data_decode(out, &back), WEFT_ERR_PROTOCOL);
    assert_memory_equal(&back, &before, sizeof(back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_has_the_written_down_bytes),
        cmocka_unit_test(data_survives_the_round_trip),
        cmocka_unit_test(data_decode_refuses_one_and_two_flipped_bits),
        cmocka_unit_test(data_decode_refuses_a_million_random_flips),
        cmocka_unit_test(data_decode_refuses_unknown_types),
        cmocka_unit_test(data_decode_refuses_oversized_lengths),
        cmocka_unit_test(data_decode_refuses_the_magic_of_control_frames),
        cmocka_unit_test(data_decode_writes_nothing_on_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
