/* SPDX-License-Identifier: Apache-2.0 */
#include "toy_plans.h"

#include <string.h>

static void the_default_is_no_text(void **state)
{
    struct weft_plan_calibration calibration, read;
    char text[WEFT_PLAN_CALIBRATION_LEN];
    const char *why = NULL;

    (void)state;
    weft_plan_calibration_default(&calibration);
    weft_plan_calibration_print(&calibration, text);
    assert_string_equal(text, "");
    assert_true(weft_plan_calibration_parse("", &read, &why));
    assert_memory_equal(&read, &calibration, sizeof(read));
}

static void what_is_printed_can_be_read(void **state)
{
    static const char text[] =
        "shm=120.5ns:13.25G:41ns:1us loopback=4.1us:5.5G:2us:3us net=1.25ms:250M:7us:9us flag=24ns "
        "copy=9.125G reduce=800M write=3G read=999.999M memory=40.5G wait=2s duplex=0.75 "
        "oneshot=32.768K";
    struct weft_plan_calibration read;
    char again[WEFT_PLAN_CALIBRATION_LEN];
    const char *why = NULL;

    (void)state;
    assert_true(weft_plan_calibration_parse(text, &read, &why));
    assert_true(read.shm.latency_s == 120.5 * 1e-9);
    assert_true(read.net.rate == 250e6);
    assert_true(read.flag_wait_s == 2);
    assert_true(read.oneshot_max == 32768);
    weft_plan_calibration_print(&read, again);
    assert_string_equal(again, text);
}

static void measured_numbers_are_rounded_once(void **state)
{
    struct weft_plan_calibration calibration, first, second;
    char text[WEFT_PLAN_CALIBRATION_LEN], again[WEFT_PLAN_CALIBRATION_LEN];
    const char *why = NULL;

    (void)state;
    weft_plan_calibration_default(&calibration);
    calibration.loopback.latency_s = 1.23456789e-6;
    calibration.copy_rate = 9.99999999e9;
    calibration.reduce_rate = 1e9 / 3;
    calibration.flag_s = 9.999999e-7;
    weft_plan_calibration_print(&calibration, text);
    assert_string_equal(text, "loopback=1.235us:5G:2.2us:4.5us flag=1us copy=10G reduce=333.333M");
    assert_true(weft_plan_calibration_parse(text, &first, &why));
    weft_plan_calibration_print(&first, again);
    assert_string_equal(again, text);
    assert_true(weft_plan_calibration_parse(again, &second, &why));
    assert_memory_equal(&first, &second, sizeof(first));
}

static void what_is_not_understood_is_refused(void **state)
{
    static const char *const bad[] = {
        "speed=3G",
        "copy",
        "copy=",
        "copy=G",
        "copy=3us",
        "flag=3G",
        "flag=3",
        "copy=-1G",
        "copy=0",
        "copy=3G,flag=1us",
        "shm=1us",
        "shm=1us:2G",
        "shm=1us:2G:3us",
        "shm=1us:2G:3us:4us:5",
        "copy=3G x",
        "copy= 3G",
        "copy=nan",
        "copy=inf",
        "copy=1e9",
        "copy=3T",
        "copy=1.2.3G",
        "copy=0x3G",
        "copy=1234567890123456",
    };
    struct weft_plan_calibration read, untouched;

    (void)state;
    memset(&untouched, 0x5a, sizeof(untouched));
    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        const char *why = NULL;
        read = untouched;
        assert_false(weft_plan_calibration_parse(bad[i], &read, &why));
        assert_non_null(why);
        assert_memory_equal(&read, &untouched, sizeof(read));
    }
}

/* Whoever gives a path too few numbers learns how many it has. */
static void the_reason_shows_how_it_is_written(void **state)
{
    struct weft_plan_calibration read;
    const char *why = "";

    (void)state;
    assert_false(weft_plan_calibration_parse("shm=1us:2G", &read, &why));
    assert_non_null(strstr(why, "latency:rate:cost:wait"));
    assert_false(weft_plan_calibration_parse("flag=3G", &read, &why));
    assert_non_null(strstr(why, "a time"));
    assert_false(weft_plan_calibration_parse("copy=fast", &read, &why));
    assert_non_null(strstr(why, "a rate"));
}

/* A profile that was tuned before is as good as it was. */
static void names_of_before_are_read(void **state)
{
    struct weft_plan_calibration read;
    const char *why = "";

    (void)state;
    assert_true(weft_plan_calibration_parse("near=60ns copy=9G", &read, &why));
    assert_true(read.flag_s == 60 * 1e-9 && read.copy_rate == 9e9);
    assert_true(weft_plan_calibration_parse("far=200ns", &read, &why));
    assert_true(read.flag_s == 200 * 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_is_no_text),
        cmocka_unit_test(what_is_printed_can_be_read),
        cmocka_unit_test(measured_numbers_are_rounded_once),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(names_of_before_are_read),
        cmocka_unit_test(the_reason_shows_how_it_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
