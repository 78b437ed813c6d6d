/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <stdlib.h>

#define SAMPLES 10000U

/* static: too large for a stack */
static struct weft_histogram one, other, both;

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static int compare_values(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* the nearest-rank rule, in integers: percent is in tenths */
static uint64_t exact_percentile(const uint64_t *sorted, uint64_t count, unsigned tenths)
{
    uint64_t rank = (count * tenths + 999) / 1000;

    return sorted[rank > 0 ? rank - 1 : 0];
}

static void assert_near(uint64_t value, uint64_t exact, uint64_t part)
{
    uint64_t off = value > exact ? value - exact : exact - value;

    assert_true(off <= exact / part);
}

static void check_percentiles(const struct weft_histogram *histogram, uint64_t *values,
                              uint64_t count)
{
    static const unsigned tenths[] = {1, 10, 100, 250, 500, 750, 900, 990, 999};

    qsort(values, count, sizeof(*values), compare_values);
    for (size_t i = 0; i < WEFT_COUNT_OF(tenths); i++) {
        assert_near(weft_histogram_percentile(histogram, tenths[i] / 10.0),
                    exact_percentile(values, count, tenths[i]), 32);
    }
    assert_true(weft_histogram_percentile(histogram, 0) == values[0]);
    assert_true(weft_histogram_percentile(histogram, 100) == values[count - 1]);
}

static void percentiles_are_within_a_32nd_of_the_sorted_samples(void **state)
{
    static uint64_t values[SAMPLES];
    uint64_t seed = 42;

    (void)state;
    /* from values all below 2 to values of all 64 bits */
    for (unsigned bits = 1; bits <= 64; bits += 3) {
        weft_histogram_reset(&one);
        for (unsigned i = 0; i < SAMPLES; i++) {
            values[i] = next_random(&seed) >> (64 - bits);
            values[i] >>= next_random(&seed) % bits; /* all magnitudes, not only the largest */
            weft_histogram_add(&one, values[i]);
        }
        check_percentiles(&one, values, SAMPLES);
    }
}

static void small_values_are_exact(void **state)
{
    (void)state;
    weft_histogram_reset(&one);
    for (uint64_t i = 1; i <= 63; i++) {
        weft_histogram_add(&one, i);
    }
    for (uint64_t i = 1; i <= 63; i++) {
        double percent = ((double)i - 0.5) / 63.0 * 100.0;

        assert_true(weft_histogram_percentile(&one, percent) == i);
    }
}

static void the_borders_of_every_octave_fit(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t power = UINT64_C(1) << bit;

        for (uint64_t value = power - 1; value <= power + (power != UINT64_MAX); value++) {
            weft_histogram_reset(&one);
            weft_histogram_add(&one, 0);
            weft_histogram_add(&one, value);
            weft_histogram_add(&one, UINT64_MAX);
            assert_near(weft_histogram_percentile(&one, 50), value, 32);
        }
    }
}

static void an_empty_histogram_says_zero(void **state)
{
    (void)state;
    weft_histogram_reset(&one);
    assert_true(weft_histogram_percentile(&one, 50) == 0);
    assert_true(weft_histogram_mean(&one) == 0.0);
    assert_true(weft_histogram_stddev(&one) == 0.0);
}

static void one_sample_is_every_percentile(void **state)
{
    (void)state;
    weft_histogram_reset(&one);
    weft_histogram_add(&one, 123456789);
    assert_true(weft_histogram_percentile(&one, 0) == 123456789);
    assert_true(weft_histogram_percentile(&one, 50) == 123456789);
    assert_true(weft_histogram_percentile(&one, 100) == 123456789);
    assert_true(weft_histogram_stddev(&one) == 0.0);
}

static void percents_out_of_range_are_the_ends(void **state)
{
    (void)state;
    weft_histogram_reset(&one);
    weft_histogram_add(&one, 10);
    weft_histogram_add(&one, 20);
    weft_histogram_add(&one, 30);
    assert_true(weft_histogram_percentile(&one, -5) == 10);
    assert_true(weft_histogram_percentile(&one, 250) == 30);
    assert_true(weft_histogram_percentile(&one, 50) == 20);
}

static void mean_and_spread_follow_their_formulas(void **state)
{
    static const uint64_t values[] = {2, 4, 4, 4, 5, 5, 7, 9};

    (void)state;
    weft_histogram_reset(&one);
    for (size_t i = 0; i < WEFT_COUNT_OF(values); i++) {
        weft_histogram_add(&one, values[i]);
    }
    assert_true(weft_histogram_mean(&one) == 5.0);
    assert_true(weft_histogram_stddev(&one) > 2.0 - 1e-9);
    assert_true(weft_histogram_stddev(&one) < 2.0 + 1e-9);
}

static void merging_is_adding_to_one(void **state)
{
    uint64_t seed = 7;

    (void)state;
    weft_histogram_reset(&one);
    weft_histogram_reset(&other);
    weft_histogram_reset(&both);
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t value = next_random(&seed) >> 40;

        weft_histogram_add(i % 3 ? &one : &other, value);
        weft_histogram_add(&both, value);
    }
    weft_histogram_merge(&one, &other);
    assert_true(one.count == both.count && one.sum == both.sum);
    assert_true(one.min == both.min && one.max == both.max);
    assert_memory_equal(one.buckets, both.buckets, sizeof(one.buckets));
}

static void merging_nothing_changes_nothing(void **state)
{
    (void)state;
    weft_histogram_reset(&one);
    weft_histogram_reset(&other);
    weft_histogram_add(&other, 5);
    weft_histogram_merge(&other, &one);
    assert_true(other.min == 5 && other.max == 5 && other.count == 1);
    weft_histogram_merge(&one, &other);
    assert_true(one.min == 5 && one.max == 5 && one.count == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_within_a_32nd_of_the_sorted_samples),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(the_borders_of_every_octave_fit),
        cmocka_unit_test(an_empty_histogram_says_zero),
        cmocka_unit_test(one_sample_is_every_percentile),
        cmocka_unit_test(percents_out_of_range_are_the_ends),
        cmocka_unit_test(mean_and_spread_follow_their_formulas),
        cmocka_unit_test(merging_is_adding_to_one),
        cmocka_unit_test(merging_nothing_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
