/* SPDX-License-Identifier: Apache-2.0 */
/* Values of weft lab as people write them. */
#include "cli_support.h"

#include "cli/lab.h"

static void rates_are_decimal_and_one_or_many(void **state)
{
    (void)state;
    uint64_t rate[WEFT_LAB_NICS_MAX];
    unsigned count = 0;

    assert_true(weft_lab_read_rates("1G", rate, &count));
    assert_int_equal(count, 1);
    assert_int_equal(rate[0], 1000000000);
    assert_true(weft_lab_read_rates("2.5g,250M,64K,none,100000", rate, &count));
    assert_int_equal(count, 5);
    assert_int_equal(rate[0], 2500000000);
    assert_int_equal(rate[1], 250000000);
    assert_int_equal(rate[2], 64000);
    assert_int_equal(rate[3], 0);
    assert_int_equal(rate[4], 100000);
}

static void bad_rates_are_refused_and_write_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      ",",
                                      "1G,",
                                      ",1G",
                                      "1 G",
                                      "-1G",
                                      "+1G",
                                      "1.2.3G",
                                      "nan",
                                      "inf",
                                      "G",
                                      "1Gbit",
                                      "63K",
                                      "2000G",
                                      "0",
                                      "none,",
                                      "1e9",
                                      " 1G",
                                      "0x10M",
                                      "1T",
                                      "1G,1G,1G,1G,1G,1G,1G,1G,1G,1G,1G,1G,1G,1G,1G,1G,1G",
                                      "1000000000000000000000000000000G"};
    uint64_t rate[WEFT_LAB_NICS_MAX] = {7};
    unsigned count = 9;

    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        if (weft_lab_read_rates(bad[i], rate, &count)) {
            fail_msg("\"%s\" was taken for a rate", bad[i]);
        }
    }
    assert_int_equal(rate[0], 7);
    assert_int_equal(count, 9);
}

static void percentages_go_to_millionths(void **state)
{
    (void)state;
    unsigned ppm = 0;

    assert_true(weft_lab_read_percent("0.1", &ppm));
    assert_int_equal(ppm, 1000);
    assert_true(weft_lab_read_percent("100%", &ppm));
    assert_int_equal(ppm, 1000000);
    assert_true(weft_lab_read_percent("0.0001", &ppm));
    assert_int_equal(ppm, 1);
    assert_false(weft_lab_read_percent("100.1", &ppm));
    assert_false(weft_lab_read_percent("-1", &ppm));
    assert_false(weft_lab_read_percent("1%%", &ppm));
    assert_false(weft_lab_read_percent("", &ppm));
    assert_int_equal(ppm, 1);
}

static void a_bare_delay_is_in_milliseconds(void **state)
{
    (void)state;
    uint64_t ns = 0;

    assert_true(weft_lab_read_delay("5", &ns));
    assert_int_equal(ns, 5000000);
    assert_true(weft_lab_read_delay("0.25ms", &ns));
    assert_int_equal(ns, 250000);
    assert_true(weft_lab_read_delay("200us", &ns));
    assert_int_equal(ns, 200000);
    assert_true(weft_lab_read_delay("10s", &ns));
    assert_int_equal(ns, UINT64_C(10000000000));
    assert_false(weft_lab_read_delay("10.1s", &ns));
    assert_false(weft_lab_read_delay("5min", &ns));
    assert_int_equal(ns, UINT64_C(10000000000));
}

static void a_printed_rate_reads_back(void **state)
{
    (void)state;
    static const uint64_t rates[] = {0, 64000, 250000000, 1000000000, 2500000000};
    uint64_t back[WEFT_LAB_NICS_MAX];
    unsigned count;
    char text[24];

    for (size_t i = 0; i < WEFT_COUNT_OF(rates); i++) {
        assert_true(weft_lab_read_rates(weft_lab_print_rate(rates[i], text), back, &count));
        assert_int_equal(back[0], rates[i]);
    }
    assert_string_equal(weft_lab_print_rate(2500000000, text), "2.5G");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_decimal_and_one_or_many),
        cmocka_unit_test(bad_rates_are_refused_and_write_nothing),
        cmocka_unit_test(percentages_go_to_millionths),
        cmocka_unit_test(a_bare_delay_is_in_milliseconds),
        cmocka_unit_test(a_printed_rate_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
