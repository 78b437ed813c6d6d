/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

static void addr_has_the_written_down_bytes(void **state)
{
    const struct weft_wire_addr v4 = {.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}};
    const struct weft_wire_addr v6 = {
        .family = 6, .port = 4411, .scope = 2, .bytes = {0xfe, 0x80, [15] = 1}};
    uint8_t out[WEFT_WIRE_ADDR_LEN];

    (void)state;
    weft_wire_addr_encode(&v4, out);
    assert_hex(out, sizeof(out), "04003b11000000000a000001000000000000000000000000");
    weft_wire_addr_encode(&v6, out);
    assert_hex(out, sizeof(out), "06003b1102000000fe800000000000000000000000000001");
}

static void addr_survives_the_round_trip(void **state)
{
    uint64_t seed = 3;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct weft_wire_addr addr, back;
        uint8_t out[WEFT_WIRE_ADDR_LEN];

        fill_addr(&seed, &addr);
        weft_wire_addr_encode(&addr, out);
        memset(&back, 0xa5, sizeof(back));
        assert_int_equal(weft_wire_addr_decode(out, &back), WEFT_OK);
        assert_memory_equal(&addr, &back, sizeof(addr));
    }
}

/* One address has one encoding, so whatever decodes must encode to the same bytes. */
static void addr_decode_refuses_every_other_spelling(void **state)
{
    const struct weft_wire_addr v4 = {.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}};
    struct weft_wire_addr back;
    uint8_t out[WEFT_WIRE_ADDR_LEN];
    unsigned refused = 0;

    (void)state;
    weft_wire_addr_encode(&v4, out);
    for (size_t bit = 0; bit < sizeof(out) * 8; bit++) {
        uint8_t again[WEFT_WIRE_ADDR_LEN];

        flip_bit(out, bit);
        if (weft_wire_addr_decode(out, &back) == WEFT_OK) {
            weft_wire_addr_encode(&back, again);
            assert_memory_equal(out, again, sizeof(out));
        } else {
            refused++;
        }
        flip_bit(out, bit);
    }
    /* all but the port and the four bytes, and the one flip that makes 4 into 6 */
    assert_int_equal(refused, 24 * 8 - 16 - 32 - 1);
}

static void addr_prints_as_people_write_it(void **state)
{
    const struct {
        struct weft_wire_addr addr;
        const char *text;
    } cases[] = {
        {{.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}}, "10.0.0.1:4411"},
        {{.family = 6, .port = 1, .bytes = {[15] = 1}}, "[::1]:1"},
        {{.family = 6, .port = 65535, .scope = 2, .bytes = {0xfe, 0x80, [15] = 1}},
         "[fe80::1%2]:65535"},
        {{.family = 0}, "nowhere"},
        {{.family = 9}, "nowhere"},
    };
    char text[WEFT_WIRE_ADDR_TEXT_LEN];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        weft_wire_addr_print(&cases[i].addr, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void addr_print_has_room_for_the_longest(void **state)
{
    struct weft_wire_addr addr = {.family = 6, .port = UINT16_MAX, .scope = UINT32_MAX};
    char text[WEFT_WIRE_ADDR_TEXT_LEN];

    (void)state;
    memset(addr.bytes, 0xee, sizeof(addr.bytes));
    weft_wire_addr_print(&addr, text);
    assert_string_equal(text, "[eeee:eeee:eeee:eeee:eeee:eeee:eeee:eeee%4294967295]:65535");
}

static void networks_are_compared_by_their_first_bits(void **state)
{
    const uint8_t here[16] = {10, 1, 0xf0, 7}, there[16] = {10, 1, 0xf8, 9};

    (void)state;
    assert_true(weft_wire_addr_is_same_net(here, here, 128));
    assert_true(weft_wire_addr_is_same_net(here, there, 0));
    assert_true(weft_wire_addr_is_same_net(here, there, 16));
    assert_true(weft_wire_addr_is_same_net(here, there, 20));
    assert_false(weft_wire_addr_is_same_net(here, there, 21));
    assert_false(weft_wire_addr_is_same_net(here, there, 24));
    assert_false(weft_wire_addr_is_same_net(here, there, 32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addr_has_the_written_down_bytes),
        cmocka_unit_test(addr_survives_the_round_trip),
        cmocka_unit_test(addr_decode_refuses_every_other_spelling),
        cmocka_unit_test(addr_prints_as_people_write_it),
        cmocka_unit_test(addr_print_has_room_for_the_longest),
        cmocka_unit_test(networks_are_compared_by_their_first_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
