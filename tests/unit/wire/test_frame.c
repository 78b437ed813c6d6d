/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

static const struct weft_wire_frame sample = {.type = WEFT_WIRE_MAIL,
                                              .flags = 0x80,
                                              .len = 0x020304,
                                              .comm = UINT64_C(0x1122334455667788),
                                              .src = 3,
                                              .dst = 5,
                                              .number = 812};

/* A header with a CRC that fits, whatever it says. */
static void reseal(uint8_t header[WEFT_WIRE_FRAME_LEN])
{
    store_u32(header + 28, weft_wire_crc32c(0, header, 28));
}

static void frame_has_the_written_down_bytes(void **state)
{
    uint8_t out[WEFT_WIRE_FRAME_LEN];

    (void)state;
    weft_wire_frame_encode(&sample, out);
    assert_hex(out, sizeof(out),
               "57660880040302008877665544332211"
               "03000000050000002c0300000a39958e");
}

static void frame_survives_the_round_trip(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        struct weft_wire_frame frame = {0}, back = {0};
        uint8_t out[WEFT_WIRE_FRAME_LEN];

        frame.type = (uint8_t)(1 + random_below(&seed, WEFT_WIRE_TYPE_END - 1));
        frame.flags = (uint8_t)next_random(&seed);
        frame.len = random_below(&seed, WEFT_WIRE_FRAME_MAX + 1);
        frame.comm = next_random(&seed);
        frame.src = (uint32_t)next_random(&seed);
        frame.dst = (uint32_t)next_random(&seed);
        frame.number = (uint32_t)next_random(&seed);
        weft_wire_frame_encode(&frame, out);
        assert_int_equal(weft_wire_frame_decode(out, &back), WEFT_OK);
        assert_int_equal(back.type, frame.type);
        assert_int_equal(back.flags, frame.flags);
        assert_int_equal(back.len, frame.len);
        assert_int_equal(back.comm, frame.comm);
        assert_int_equal(back.src, frame.src);
        assert_int_equal(back.dst, frame.dst);
        assert_int_equal(back.number, frame.number);
    }
}

static void frame_decode_refuses_one_and_two_flipped_bits(void **state)
{
    uint8_t out[WEFT_WIRE_FRAME_LEN];
    struct weft_wire_frame back;

    (void)state;
    weft_wire_frame_encode(&sample, out);
    for (size_t a = 0; a < sizeof(out) * 8; a++) {
        flip_bit(out, a);
        assert_int_equal(weft_wire_frame_decode(out, &back), WEFT_ERR_PROTOCOL);
        for (size_t b = 0; b < a; b++) {
            flip_bit(out, b);
            assert_int_equal(weft_wire_frame_decode(out, &back), WEFT_ERR_PROTOCOL);
            flip_bit(out, b);
        }
        flip_bit(out, a);
    }
}

static void frame_decode_refuses_a_million_random_flips(void **state)
{
    uint64_t seed = 6;
    unsigned accepted = 0;

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        uint8_t good[WEFT_WIRE_FRAME_LEN], bad[WEFT_WIRE_FRAME_LEN];
        struct weft_wire_frame frame = sample, back;
        uint32_t flips = 1 + random_below(&seed, 4);

        frame.comm = next_random(&seed);
        frame.number = (uint32_t)next_random(&seed);
        weft_wire_frame_encode(&frame, good);
        memcpy(bad, good, sizeof(bad));
        while (flips-- > 0) {
            flip_bit(bad, random_below(&seed, sizeof(bad) * 8));
        }
        if (memcmp(good, bad, sizeof(good)) == 0) {
            flip_bit(bad, 0); /* the flips cancelled each other out */
        }
        accepted += weft_wire_frame_decode(bad, &back) == WEFT_OK;
    }
    assert_int_equal(accepted, 0);
}

static void frame_decode_refuses_unknown_types(void **state)
{
    struct weft_wire_frame back;
    uint8_t out[WEFT_WIRE_FRAME_LEN];

    (void)state;
    weft_wire_frame_encode(&sample, out);
    for (unsigned type = 0; type < 256; type++) {
        bool is_known = type > 0 && type < WEFT_WIRE_TYPE_END;

        out[2] = (uint8_t)type;
        reseal(out);
        assert_int_equal(weft_wire_frame_decode(out, &back),
                         is_known ? WEFT_OK : WEFT_ERR_PROTOCOL);
    }
}

static void frame_decode_refuses_oversized_lengths(void **state)
{
    static const uint32_t lengths[] = {WEFT_WIRE_FRAME_MAX + 1, 0x7fffffff, 0x80000000, UINT32_MAX};
    struct weft_wire_frame back;
    uint8_t out[WEFT_WIRE_FRAME_LEN];

    (void)state;
    weft_wire_frame_encode(&sample, out);
    for (size_t i = 0; i < WEFT_COUNT_OF(lengths); i++) {
        store_u32(out + 4, lengths[i]);
        reseal(out);
        assert_int_equal(weft_wire_frame_decode(out, &back), WEFT_ERR_PROTOCOL);
    }
}

static void frame_decode_writes_nothing_on_failure(void **state)
{
    struct weft_wire_frame back, before;
    uint8_t out[WEFT_WIRE_FRAME_LEN];

    (void)state;
    memset(&back, 0x5a, sizeof(back));
    memcpy(&before, &back, sizeof(before));
    weft_wire_frame_encode(&sample, out);
    out[30] ^= 1;
    assert_int_equal(weft_wire_frame_decode(out, &back), WEFT_ERR_PROTOCOL);
    assert_memory_equal(&back, &before, sizeof(back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_has_the_written_down_bytes),
        cmocka_unit_test(frame_survives_the_round_trip),
        cmocka_unit_test(frame_decode_refuses_one_and_two_flipped_bits),
        cmocka_unit_test(frame_decode_refuses_a_million_random_flips),
        cmocka_unit_test(frame_decode_refuses_unknown_types),
        cmocka_unit_test(frame_decode_refuses_oversized_lengths),
        cmocka_unit_test(frame_decode_writes_nothing_on_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
