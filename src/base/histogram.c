/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-linear buckets: values below 32 have one each, every octave above is cut into 32. A bucket is
 * at most 1/32 of its lower end wide, and a percentile is its middle, so its error is at most 1/64.
 * 32 + 59 octaves × 32 = 1920 buckets cover 64 bits.
 */
#include "base/base.h"

#include <assert.h>
#include <string.h>

#define CUT_BITS 5
#define CUTS (UINT64_C(1) << CUT_BITS)

static_assert(WEFT_HISTOGRAM_BUCKETS == CUTS * (64 - CUT_BITS + 1), "an octave is missing");

static unsigned bucket_of(uint64_t value)
{
    unsigned octave;

    if (value < CUTS) {
        return (unsigned)value;
    }
    octave = 63U - (unsigned)__builtin_clzll(value);
    /* the leading one and CUT_BITS bits after it */
    return (octave - CUT_BITS) * (unsigned)CUTS + (unsigned)(value >> (octave - CUT_BITS));
}

static uint64_t middle_of(unsigned bucket)
{
    unsigned shift;

    if (bucket < CUTS) {
        return bucket;
    }
    shift = bucket / (unsigned)CUTS - 1;
    return ((bucket % CUTS + CUTS) << shift) + ((UINT64_C(1) << shift) >> 1);
}

void weft_histogram_reset(struct weft_histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
}

void weft_histogram_add(struct weft_histogram *histogram, uint64_t value)
{
    if (histogram->count == 0 || value < histogram->min) {
        histogram->min = value;
    }
    if (value > histogram->max) {
        histogram->max = value;
    }
    histogram->count++;
    histogram->sum += value;
    histogram->square_sum += (double)value * (double)value;
    histogram->buckets[bucket_of(value)]++;
}

void weft_histogram_merge(struct weft_histogram *into, const struct weft_histogram *from)
{
    if (from->count == 0) {
        return;
    }
    if (into->count == 0 || from->min < into->min) {
        into->min = from->min;
    }
    if (from->max > into->max) {
        into->max = from->max;
    }
    into->count += from->count;
    into->sum += from->sum;
    into->square_sum += from->square_sum;
    for (unsigned i = 0; i < WEFT_HISTOGRAM_BUCKETS; i++) {
        into->buckets[i] += from->buckets[i];
    }
}

/* Which sample, counted from 1 in rising order, is the percentile: the nearest-rank rule. */
static uint64_t nearest_rank(uint64_t count, double percent)
{
    double exact = percent / 100.0 * (double)count;
    uint64_t rank;

    if (!(exact > 1.0)) {
        return 1;
    }
    if (exact >= (double)count) {
        return count;
    }
    rank = (uint64_t)exact;
    return (double)rank < exact ? rank + 1 : rank;
}

uint64_t weft_histogram_percentile(const struct weft_histogram *histogram, double percent)
{
    uint64_t rank, seen = 0, value;
    unsigned bucket = 0;

    if (histogram->count == 0) {
        return 0;
    }
    rank = nearest_rank(histogram->count, percent);
    if (rank == 1) {
        return histogram->min;
    }
    if (rank == histogram->count) {
        return histogram->max;
    }
    for (; bucket < WEFT_HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen >= rank) {
            break;
        }
    }
    value = middle_of(bucket);
    if (value < histogram->min) {
        return histogram->min;
    }
    return value > histogram->max ? histogram->max : value;
}

double weft_histogram_mean(const struct weft_histogram *histogram)
{
    return histogram->count == 0 ? 0.0 : (double)histogram->sum / (double)histogram->count;
}

/* Newton's; one square root is not worth linking libm into every program of the user. */
static double square_root(double x)
{
    double next = x > 1.0 ? x : 1.0;
    double root;

    do {
        root = next;
        next = (root + x / root) / 2.0;
    } while (next < root);
    return root;
}

double weft_histogram_stddev(const struct weft_histogram *histogram)
{
    double mean = weft_histogram_mean(histogram);
    double variance;

    if (histogram->count == 0) {
        return 0.0;
    }
    variance = histogram->square_sum / (double)histogram->count - mean * mean;
    /* rounding can push a spread of zero below it */
    return variance > 0.0 ? square_root(variance) : 0.0;
}
