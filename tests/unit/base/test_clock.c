/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <limits.h>

static void clock_does_not_run_backwards(void **state)
{
    uint64_t before = weft_clock_ns();

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t now = weft_clock_ns();

        assert_true(now >= before);
        before = now;
    }
}

static void after_lies_that_far_ahead(void **state)
{
    uint64_t before = weft_clock_ns();
    uint64_t deadline = weft_clock_after_ms(250);
    uint64_t after = weft_clock_ns();

    (void)state;
    assert_in_range(deadline, before + 250 * WEFT_NS_PER_MS, after + 250 * WEFT_NS_PER_MS);
}

static void never_stays_never(void **state)
{
    (void)state;
    assert_true(weft_clock_after_ms(WEFT_NEVER) == WEFT_NEVER);
    assert_true(weft_clock_after_ms(UINT64_MAX / WEFT_NS_PER_MS) == WEFT_NEVER);
    assert_int_equal(weft_clock_ms_until(WEFT_NEVER), -1);
}

static void a_past_deadline_is_zero_away(void **state)
{
    (void)state;
    assert_int_equal(weft_clock_ms_until(0), 0);
    assert_int_equal(weft_clock_ms_until(weft_clock_ns()), 0);
}

static void the_rest_is_rounded_up(void **state)
{
    uint64_t deadline = weft_clock_ns() + 3600000 * WEFT_NS_PER_MS;
    uint64_t before = weft_clock_ns();
    int left = weft_clock_ms_until(deadline);
    uint64_t after = weft_clock_ns();

    (void)state;
    /* sleeping for the answer never ends before the deadline, and less than 1 ms after it */
    assert_true(after + (uint64_t)left * WEFT_NS_PER_MS >= deadline);
    assert_true(before + (uint64_t)(left - 1) * WEFT_NS_PER_MS < deadline);
    assert_int_equal(weft_clock_ms_until(weft_clock_ns() + WEFT_NS_PER_MS / 2) <= 1, 1);
}

static void a_far_deadline_fits_an_int(void **state)
{
    (void)state;
    assert_int_equal(weft_clock_ms_until(WEFT_NEVER - 1), INT_MAX);
}

static void cpu_time_grows_with_work(void **state)
{
    uint64_t begin = weft_clock_cpu_ns();
    uint64_t deadline = weft_clock_after_ms(10000);

    (void)state;
    while (weft_clock_cpu_ns() < begin + WEFT_NS_PER_MS) {
        assert_true(weft_clock_ns() < deadline);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_does_not_run_backwards),
        cmocka_unit_test(after_lies_that_far_ahead),
        cmocka_unit_test(never_stays_never),
        cmocka_unit_test(a_past_deadline_is_zero_away),
        cmocka_unit_test(the_rest_is_rounded_up),
        cmocka_unit_test(a_far_deadline_fits_an_int),
        cmocka_unit_test(cpu_time_grows_with_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
