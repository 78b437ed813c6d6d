/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/bytes.h"

#include "support.h"

static void text_get_keeps_what_can_be_printed(void **state)
{
    static const char *const texts[] = {
        "", "plain ~ text", "caf\xc3\xa9", "\xe2\x82\xac 5", "\xf0\x9f\xa7\xb5 thread", "\xc2\xa0"};
    char text[64];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        weft_wire_text_get((const uint8_t *)texts[i], strlen(texts[i]), text);
        assert_string_equal(text, texts[i]);
    }
}

static void text_get_replaces_what_steers_terminals(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a\nb\rc\td", "a?b?c?d"},
        {"\x1b[31m", "?[31m"},
        {"\x7f", "?"},
        {"\x9b", "?"},                /* a control character of eight-bit terminals */
        {"\xc2\x9b", "??"},           /* the same in UTF-8 */
        {"\xc0\x8a", "??"},           /* a newline spelled in two bytes */
        {"\xe0\x80\x8a", "???"},      /* and in three */
        {"\xed\xa0\x80", "???"},      /* half of a surrogate pair */
        {"\xf4\x90\x80\x80", "????"}, /* beyond Unicode */
        {"\xf5\x80\x80\x80", "????"},
        {"\xe2\x82", "??"}, /* cut off */
        {"\xe2\x82x", "??x"},
        {"\xc3", "?"},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        weft_wire_text_get((const uint8_t *)cases[i].in, strlen(cases[i].in), text);
        assert_string_equal(text, cases[i].out);
    }
    weft_wire_text_get((const uint8_t *)"a\0b", 3, text);
    assert_string_equal(text, "a?b");
}

/* Cleaning once is enough, and the length stays, whatever the bytes are. */
static void text_get_is_stable(void **state)
{
    uint64_t seed = 8;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[24];
        char once[25], twice[25];

        fill_random(&seed, bytes, sizeof(bytes));
        weft_wire_text_get(bytes, sizeof(bytes), once);
        assert_int_equal(strlen(once), sizeof(bytes));
        weft_wire_text_get((const uint8_t *)once, sizeof(bytes), twice);
        assert_string_equal(once, twice);
    }
}

static void reader_gives_no_more_than_there_is(void **state)
{
    const uint8_t bytes[4] = {1, 2, 3, 4};
    struct weft_wire_reader reader = {bytes, sizeof(bytes)};

    (void)state;
    assert_ptr_equal(reader_take(&reader, 3), bytes);
    assert_null(reader_take(&reader, 2));
    assert_null(reader_take(&reader, SIZE_MAX));
    assert_int_equal(reader.left, 1);
    assert_ptr_equal(reader_take(&reader, 1), bytes + 3);
    assert_ptr_equal(reader_take(&reader, 0), bytes + 4);
    assert_null(reader_take(&reader, 1));
}

static void integers_are_little_endian(void **state)
{
    uint8_t bytes[8];

    (void)state;
    put_u16(bytes, 0x0102);
    assert_hex(bytes, 2, "0201");
    assert_int_equal(get_u16(bytes), 0x0102);
    put_u32(bytes, 0x01020304);
    assert_hex(bytes, 4, "04030201");
    assert_int_equal(get_u32(bytes), 0x01020304);
    put_u64(bytes, UINT64_C(0x0102030405060708));
    assert_hex(bytes, 8, "0807060504030201");
    assert_int_equal(get_u64(bytes), UINT64_C(0x0102030405060708));
}

static void only_our_errors_are_errors(void **state)
{
    (void)state;
    assert_false(weft_wire_is_error(WEFT_OK));
    assert_true(weft_wire_is_error(WEFT_ERR_INVALID));
    assert_true(weft_wire_is_error(WEFT_ERR_UNSUPPORTED));
    assert_false(weft_wire_is_error(WEFT_ERR_UNSUPPORTED + 1));
    assert_false(weft_wire_is_error(UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_get_keeps_what_can_be_printed),
        cmocka_unit_test(text_get_replaces_what_steers_terminals),
        cmocka_unit_test(text_get_is_stable),
        cmocka_unit_test(reader_gives_no_more_than_there_is),
        cmocka_unit_test(integers_are_little_endian),
        cmocka_unit_test(only_our_errors_are_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
