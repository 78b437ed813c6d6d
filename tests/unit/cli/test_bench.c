/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench.h"

static void figures_of_known_samples(void **state)
{
    uint64_t samples[] = {4000, 1000, 10000, 2000, 3000, 5000, 6000, 7000, 9000, 8000};
    struct weft_bench_figures us;
    (void)state;
    weft_bench_figures(samples, WEFT_COUNT_OF(samples), &us);
    assert_float_equal(us.min, 1, 1e-9);
    assert_float_equal(us.p50, 5.5, 1e-9);
    assert_float_equal(us.avg, 5.5, 1e-9);
    assert_float_equal(us.p90, 9, 1e-9);
    assert_float_equal(us.p99, 10, 1e-9);
    assert_float_equal(us.max, 10, 1e-9);
    assert_float_equal(us.stddev, 3.02765, 1e-4);
}

static void figures_of_one_sample(void **state)
{
    uint64_t sample = 2500;
    struct weft_bench_figures us;
    (void)state;
    weft_bench_figures(&sample, 1, &us);
    assert_float_equal(us.min, 2.5, 1e-9);
    assert_float_equal(us.p50, 2.5, 1e-9);
    assert_float_equal(us.p90, 2.5, 1e-9);
    assert_float_equal(us.max, 2.5, 1e-9);
    assert_float_equal(us.stddev, 0, 1e-9);
}

static void the_median_of_an_odd_number_is_the_middle(void **state)
{
    uint64_t samples[] = {9000, 1000, 2000};
    struct weft_bench_figures us;
    (void)state;
    weft_bench_figures(samples, WEFT_COUNT_OF(samples), &us);
    assert_float_equal(us.p50, 2, 1e-9);
}

static void the_slowest_counts(void **state)
{
    _Atomic uint64_t sample = 0;
    (void)state;
    weft_bench_keep_slowest(&sample, 5);
    weft_bench_keep_slowest(&sample, 3);
    assert_int_equal(atomic_load(&sample), 5);
    weft_bench_keep_slowest(&sample, 8);
    assert_int_equal(atomic_load(&sample), 8);
}

static int bench(const char *first, const char *second)
{
    char name[] = "bench", a[64], b[64];
    char *argv[] = {name, a, b, NULL};
    snprintf(a, sizeof(a), "%s", first);
    snprintf(b, sizeof(b), "%s", second != NULL ? second : "");
    return weft_cli_bench(second != NULL ? 3 : 2, argv);
}

static void bad_usage_is_refused(void **state)
{
    (void)state;
    assert_int_equal(bench("bootstra", NULL), WEFT_CLI_USAGE);
    assert_int_equal(bench("bootstrap", "--join=sideways"), WEFT_CLI_USAGE);
    assert_int_equal(bench("bootstrap", "operand"), WEFT_CLI_USAGE);
    assert_int_equal(bench("bootstrap", "-n0"), WEFT_CLI_USAGE);
    assert_int_equal(bench("--help", NULL), WEFT_CLI_OK);
    assert_int_equal(bench("bootstrap", "--help"), WEFT_CLI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_known_samples),
        cmocka_unit_test(figures_of_one_sample),
        cmocka_unit_test(the_median_of_an_odd_number_is_the_middle),
        cmocka_unit_test(the_slowest_counts),
        cmocka_unit_test(bad_usage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
