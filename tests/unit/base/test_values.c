/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

struct reading {
    enum weft_param_type type;
    const char *text;
    int64_t number;
};

static void numbers_are_read_as_people_write_them(void **state)
{
    static const struct reading readings[] = {
        {WEFT_PARAM_INT, "0", 0},
        {WEFT_PARAM_INT, "-1", -1},
        {WEFT_PARAM_INT, "2147483647", INT32_MAX},
        {WEFT_PARAM_SIZE, "0", 0},
        {WEFT_PARAM_SIZE, "4096", 4096},
        {WEFT_PARAM_SIZE, "8K", 8192},
        {WEFT_PARAM_SIZE, "8k", 8192},
        {WEFT_PARAM_SIZE, "3M", INT64_C(3) << 20},
        {WEFT_PARAM_SIZE, "2G", INT64_C(2) << 30},
        {WEFT_PARAM_SIZE, "1.5K", 1536},
        {WEFT_PARAM_DURATION, "250ms", 250},
        {WEFT_PARAM_DURATION, "5s", 5000},
        {WEFT_PARAM_DURATION, "5", 5000},
        {WEFT_PARAM_DURATION, "0.25", 250},
        {WEFT_PARAM_DURATION, "2min", 120000},
        {WEFT_PARAM_DURATION, "1h", 3600000},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(readings); i++) {
        int64_t number = INT64_MIN;

        assert_true(weft_value_parse(readings[i].type, readings[i].text, &number));
        assert_true(number == readings[i].number);
    }
}

static void what_is_no_number_is_refused(void **state)
{
    static const struct reading readings[] = {
        {WEFT_PARAM_INT, "", 0},
        {WEFT_PARAM_INT, "abc", 0},
        {WEFT_PARAM_INT, "-", 0},
        {WEFT_PARAM_INT, "--1", 0},
        {WEFT_PARAM_INT, " 1", 0},
        {WEFT_PARAM_INT, "1 ", 0},
        {WEFT_PARAM_INT, "+1", 0},
        {WEFT_PARAM_INT, "0x10", 0},
        {WEFT_PARAM_INT, "1K", 0},
        {WEFT_PARAM_INT, "1.5", 0},
        {WEFT_PARAM_INT, "99999999999999999999", 0},
        {WEFT_PARAM_SIZE, "-1", 0},
        {WEFT_PARAM_SIZE, "K", 0},
        {WEFT_PARAM_SIZE, "1T", 0},
        {WEFT_PARAM_SIZE, "1KK", 0},
        {WEFT_PARAM_SIZE, "0.1K", 0}, /* 102.4 bytes */
        {WEFT_PARAM_SIZE, "9223372036854775807G", 0},
        {WEFT_PARAM_SIZE, "9223372036854776", 0}, /* too large in thousandths */
        {WEFT_PARAM_DURATION, "1.s", 0},
        {WEFT_PARAM_DURATION, ".5s", 0},
        {WEFT_PARAM_DURATION, "1.2.3s", 0},
        {WEFT_PARAM_DURATION, "0.0005s", 0},
        {WEFT_PARAM_DURATION, "0.5ms", 0},
        {WEFT_PARAM_DURATION, "5 s", 0},
        {WEFT_PARAM_DURATION, "5us", 0},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(readings); i++) {
        int64_t number = 77;

        assert_false(weft_value_parse(readings[i].type, readings[i].text, &number));
        assert_true(number == 77);
    }
}

static void numbers_are_printed_with_the_unit_that_suits(void **state)
{
    static const struct reading readings[] = {
        {WEFT_PARAM_INT, "-1", -1},
        {WEFT_PARAM_INT, "1024", 1024},
        {WEFT_PARAM_SIZE, "0", 0},
        {WEFT_PARAM_SIZE, "1000", 1000},
        {WEFT_PARAM_SIZE, "1K", 1024},
        {WEFT_PARAM_SIZE, "512K", 512 << 10},
        {WEFT_PARAM_SIZE, "1025K", 1025 << 10},
        {WEFT_PARAM_SIZE, "64M", 64 << 20},
        {WEFT_PARAM_SIZE, "3G", INT64_C(3) << 30},
        {WEFT_PARAM_DURATION, "0ms", 0},
        {WEFT_PARAM_DURATION, "250ms", 250},
        {WEFT_PARAM_DURATION, "1s", 1000},
        {WEFT_PARAM_DURATION, "1500ms", 1500},
        {WEFT_PARAM_DURATION, "60s", 60000},
        {WEFT_PARAM_DURATION, "90s", 90000},
        {WEFT_PARAM_DURATION, "5min", 300000},
        {WEFT_PARAM_DURATION, "24h", 86400000},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(readings); i++) {
        char text[32];
        int64_t number;

        weft_value_print(readings[i].type, readings[i].number, text, sizeof(text));
        assert_string_equal(text, readings[i].text);
        assert_true(weft_value_parse(readings[i].type, text, &number));
        assert_true(number == readings[i].number);
    }
}

static void what_is_printed_can_be_read_again(void **state)
{
    uint64_t seed = 99;

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        enum weft_param_type type = i % 2 ? WEFT_PARAM_SIZE : WEFT_PARAM_DURATION;
        int64_t number, again;
        char text[32];

        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        number = (int64_t)((seed >> 24) >> (seed >> 59)) << (seed >> 40) % 12;
        weft_value_print(type, number, text, sizeof(text));
        assert_true(weft_value_parse(type, text, &again));
        assert_true(again == number);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_as_people_write_them),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(numbers_are_printed_with_the_unit_that_suits),
        cmocka_unit_test(what_is_printed_can_be_read_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
