/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/cli.h"

static void sizes_are_binary(void **state)
{
    (void)state;
    uint64_t bytes;

    assert_true(weft_cli_read_size("64", &bytes) && bytes == 64);
    assert_true(weft_cli_read_size("4K", &bytes) && bytes == 4096);
    assert_true(weft_cli_read_size("1m", &bytes) && bytes == 1048576);
    assert_true(weft_cli_read_size("2G", &bytes) && bytes == UINT64_C(2147483648));
}

static void durations_are_in_milliseconds_and_bare_ones_in_seconds(void **state)
{
    (void)state;
    uint64_t ms;

    assert_true(weft_cli_read_duration("250ms", &ms) && ms == 250);
    assert_true(weft_cli_read_duration("5s", &ms) && ms == 5000);
    assert_true(weft_cli_read_duration("5", &ms) && ms == 5000);
    assert_true(weft_cli_read_duration("2min", &ms) && ms == 120000);
    assert_true(weft_cli_read_duration("0.5s", &ms) && ms == 500);
    assert_true(weft_cli_read_duration("1.5", &ms) && ms == 1500);
    assert_false(weft_cli_read_duration("0.5ms", &ms));
    assert_false(weft_cli_read_duration("1.2.3", &ms));
    assert_false(weft_cli_read_duration(".", &ms));
}

static void malformed_and_overflowing_values_are_refused_and_write_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "K", "4X", "4KK", "-1", " 4", "4 ", "1.5.", "99999999999999999999", "99999999999999G",
    };
    uint64_t value = 77;

    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        assert_false(weft_cli_read_size(bad[i], &value));
        assert_false(weft_cli_read_duration(bad[i], &value));
        assert_int_equal(value, 77);
    }
}

static void integers_are_read_whole_or_not_at_all(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "-",  "x",    "1x",
                                      " 1", "+1", "0x10", "99999999999999999999"};
    int64_t value = 77;

    assert_true(weft_cli_read_int("-12", &value) && value == -12);
    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        assert_false(weft_cli_read_int(bad[i], &value));
    }
    assert_int_equal(value, -12);
}

static void lists_keep_their_order(void **state)
{
    (void)state;
    struct weft_cli_list list;

    assert_true(weft_cli_read_list("2,64,8", &list));
    assert_int_equal(list.count, 3);
    assert_int_equal(list.value[0], 2);
    assert_int_equal(list.value[1], 64);
    assert_int_equal(list.value[2], 8);
    assert_true(weft_cli_read_list("7", &list));
    assert_int_equal(list.count, 1);
}

static void malformed_lists_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ",", "1,", ",1", "1,,2", "1,x", "1;2"};
    struct weft_cli_list list;
    char long_list[2 * WEFT_CLI_LIST_MAX + 2];

    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        assert_false(weft_cli_read_list(bad[i], &list));
    }
    for (size_t i = 0; i <= WEFT_CLI_LIST_MAX; i++) {
        long_list[2 * i] = '1';
        long_list[2 * i + 1] = ',';
    }
    long_list[2 * WEFT_CLI_LIST_MAX + 1] = '\0';
    assert_false(weft_cli_read_list(long_list, &list));
    long_list[2 * WEFT_CLI_LIST_MAX - 1] = '\0';
    assert_true(weft_cli_read_list(long_list, &list));
    assert_int_equal(list.count, WEFT_CLI_LIST_MAX);
}

static void sizes_print_in_the_largest_exact_unit(void **state)
{
    (void)state;
    char text[24];

    assert_string_equal(weft_cli_print_size(0, text), "0");
    assert_string_equal(weft_cli_print_size(1000, text), "1000");
    assert_string_equal(weft_cli_print_size(1536, text), "1536");
    assert_string_equal(weft_cli_print_size(524288, text), "512K");
    assert_string_equal(weft_cli_print_size(UINT64_C(3) << 30, text), "3G");
    assert_string_equal(weft_cli_print_size(UINT64_MAX, text), "18446744073709551615");
}

static void nearest_finds_slips_and_leaves_other_words(void **state)
{
    (void)state;
    static const char *const names[] = {"run", "bench", "params"};

    assert_string_equal(weft_cli_nearest("rnu", names, 3), "run");
    assert_string_equal(weft_cli_nearest("parms", names, 3), "params");
    assert_string_equal(weft_cli_nearest("bnech", names, 3), "bench");
    assert_null(weft_cli_nearest("frobnicate", names, 3));
    assert_null(weft_cli_nearest("xyz", names, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_binary),
        cmocka_unit_test(durations_are_in_milliseconds_and_bare_ones_in_seconds),
        cmocka_unit_test(malformed_and_overflowing_values_are_refused_and_write_nothing),
        cmocka_unit_test(integers_are_read_whole_or_not_at_all),
        cmocka_unit_test(lists_keep_their_order),
        cmocka_unit_test(malformed_lists_are_refused),
        cmocka_unit_test(sizes_print_in_the_largest_exact_unit),
        cmocka_unit_test(nearest_finds_slips_and_leaves_other_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
