/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdlib.h>

static void calling_random(uint64_t *seed, struct weft_wire_calling *calling)
{
    *calling = (struct weft_wire_calling){
        .about = (uint8_t)random_below(seed, WEFT_CALLING_ABOUTS),
        .coll = (uint8_t)random_below(seed, WEFT_COLLS),
        .dtype = (uint8_t)random_below(seed, WEFT_DTYPES),
        .op = (uint8_t)random_below(seed, WEFT_REDOPS),
        .channel = next_random(seed),
        .rank = (uint32_t)next_random(seed),
        .missing = (uint32_t)next_random(seed),
        .number = (uint32_t)next_random(seed),
        .root = (uint32_t)next_random(seed),
        .signature = (uint32_t)next_random(seed),
        .tag = (uint32_t)next_random(seed),
        .count = next_random(seed),
        .timeout_ms = next_random(seed),
        .came = next_random(seed),
        .expected = next_random(seed),
        .chain = (uint32_t)next_random(seed),
        .controls = (uint32_t)next_random(seed),
        .is_waiting = random_below(seed, 2) != 0,
    };
}

static void assert_same(const struct weft_wire_calling *a, const struct weft_wire_calling *b)
{
    assert_int_equal(a->about, b->about);
    assert_int_equal(a->coll, b->coll);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->op, b->op);
    assert_true(a->channel == b->channel);
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->missing, b->missing);
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->root, b->root);
    assert_int_equal(a->signature, b->signature);
    assert_int_equal(a->tag, b->tag);
    assert_true(a->count == b->count);
    assert_true(a->timeout_ms == b->timeout_ms);
    assert_true(a->came == b->came);
    assert_true(a->expected == b->expected);
    assert_int_equal(a->chain, b->chain);
    assert_int_equal(a->controls, b->controls);
    assert_int_equal(a->is_waiting, b->is_waiting);
}

static void a_report_has_the_written_down_bytes(void **state)
{
    const struct weft_wire_calling calling = {.about = WEFT_CALLING_LENGTH,
                                              .coll = WEFT_GATHER,
                                              .dtype = WEFT_F32,
                                              .op = WEFT_MAX,
                                              .channel = UINT64_C(0x1122334455667788),
                                              .rank = 1,
                                              .missing = WEFT_WIRE_NO_RANK,
                                              .number = 7,
                                              .root = 2,
                                              .signature = 0xa1b2c3d4,
                                              .tag = 0x01020304,
                                              .count = 100,
                                              .timeout_ms = 900,
                                              .came = 400,
                                              .expected = 404,
                                              .chain = 0x0a0b0c0d,
                                              .controls = 0x00000e0f,
                                              .is_waiting = true};
    uint8_t out[WEFT_WIRE_CALLING_LEN];

    (void)state;
    weft_wire_calling_encode(&calling, out);
    assert_hex(out, sizeof(out),
               "c002050a03010000"
               "8877665544332211"
               "01000000ffffffff"
               "0700000002000000"
               "d4c3b2a104030201"
               "6400000000000000"
               "8403000000000000"
               "9001000000000000"
               "9401000000000000"
               "0d0c0b0a0f0e0000");
}

static void a_report_survives_the_round_trip(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct weft_wire_calling calling, back;
        uint8_t out[WEFT_WIRE_CALLING_LEN];

        calling_random(&seed, &calling);
        weft_wire_calling_encode(&calling, out);
        assert_int_equal(weft_wire_calling_decode(out, sizeof(out), &back), WEFT_OK);
        assert_same(&calling, &back);
    }
}

static void another_length_is_refused(void **state)
{
    const struct weft_wire_calling calling = {.coll = WEFT_BARRIER};
    struct weft_wire_calling back = {.number = 77};
    uint8_t out[WEFT_WIRE_CALLING_LEN + 8] = {0};

    (void)state;
    weft_wire_calling_encode(&calling, out);
    for (size_t len = 0; len <= sizeof(out); len++) {
        weft_status_t expected = len == WEFT_WIRE_CALLING_LEN ? WEFT_OK : WEFT_ERR_PROTOCOL;
        uint8_t *exact = malloc(len + 1); /* so that a sanitizer sees what is read beyond it */

        assert_non_null(exact);
        memcpy(exact + 1, out, len);
        assert_int_equal(weft_wire_calling_decode(exact + 1, len, &back), expected);
        free(exact);
        assert_int_equal(back.number, len < WEFT_WIRE_CALLING_LEN ? 77 : 0);
    }
}

/* Every value of the bytes that say which: readers index tables with them. */
static void numbers_that_are_none_are_refused(void **state)
{
    static const struct {
        size_t at;
        unsigned end; /* of the values that are fine */
    } bytes[] = {{1, WEFT_CALLING_ABOUTS},
                 {2, WEFT_COLLS},
                 {3, WEFT_DTYPES},
                 {4, WEFT_REDOPS},
                 {5, 2},
                 {6, 1},
                 {7, 1}};
    const struct weft_wire_calling calling = {.coll = WEFT_ALLREDUCE};
    struct weft_wire_calling back;
    uint8_t out[WEFT_WIRE_CALLING_LEN];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        for (unsigned value = 0; value < 256; value++) {
            weft_wire_calling_encode(&calling, out);
            out[bytes[i].at] = (uint8_t)value;
            assert_int_equal(weft_wire_calling_decode(out, sizeof(out), &back),
                             value < bytes[i].end ? WEFT_OK : WEFT_ERR_PROTOCOL);
        }
    }
    for (unsigned value = 0; value < 256; value++) {
        weft_wire_calling_encode(&calling, out);
        out[0] = (uint8_t)value;
        assert_int_equal(weft_wire_calling_decode(out, sizeof(out), &back),
                         value == WEFT_WIRE_CALLING_KIND ? WEFT_OK : WEFT_ERR_PROTOCOL);
    }
}

/* The two kinds of calls come by the same way. */
static void a_call_for_a_lane_is_no_report(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        const struct weft_wire_dialling dialling = {.kind = (uint8_t)kind};
        uint8_t out[WEFT_WIRE_DIALLING_MAX] = {0};

        weft_wire_dialling_encode(&dialling, out);
        assert_int_not_equal(out[0], WEFT_WIRE_CALLING_KIND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_has_the_written_down_bytes),
        cmocka_unit_test(a_report_survives_the_round_trip),
        cmocka_unit_test(another_length_is_refused),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(a_call_for_a_lane_is_no_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
