/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels must compute, written as plainly as possible and in other ways than theirs: small floats
 * are values in a table, narrowing looks for the nearest one.
 */
#ifndef TEST_REDUCE_REFERENCE_H
#define TEST_REDUCE_REFERENCE_H

#include "reduce/reduce.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const isas[] = {"scalar", "avx2", "avx512"};

/* What follows is done with each instruction set that this machine has. */
#define FOR_EACH_ISA                                                                               \
    for (size_t isa_at = 0; isa_at < WEFT_COUNT_OF(isas); isa_at++)                                \
        if (weft_reduce_set_isa(isas[isa_at]))

static inline uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* ---- small floats ---- */

struct small_format {
    weft_dtype_t dtype;
    int bits, fraction; /* of all; of the fraction */
    uint32_t infinity;  /* positive; of e4m3, the only NaN */
    double *values;     /* by pattern, without sign */
};

static struct small_format small_formats[] = {
    {WEFT_F16, 16, 10, 0x7c00, NULL},
    {WEFT_BF16, 16, 7, 0x7f80, NULL},
    {WEFT_F8E4M3, 8, 3, 0x7f, NULL},
    {WEFT_F8E5M2, 8, 2, 0x7c, NULL},
};

/* The value of a finite positive pattern, from its fields. */
static inline double small_value(const struct small_format *format, uint32_t pattern)
{
    int exponent_bits = format->bits - 1 - format->fraction;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(pattern >> format->fraction);
    double fraction = (double)(pattern & ((1U << format->fraction) - 1));

    if (exponent == 0) {
        return ldexp(fraction, 1 - bias - format->fraction);
    }
    return ldexp(fraction + ldexp(1, format->fraction), exponent - bias - format->fraction);
}

/* NULL: the dtype is not small. */
static inline const struct small_format *small_format_of(weft_dtype_t dtype)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(small_formats); i++) {
        struct small_format *format = &small_formats[i];

        if (format->dtype != dtype) {
            continue;
        }
        if (!format->values) { /* one more: what would come after the largest */
            format->values = malloc(sizeof(double) * (format->infinity + 1));
            assert_non_null(format->values);
            for (uint32_t pattern = 0; pattern <= format->infinity; pattern++) {
                format->values[pattern] = small_value(format, pattern);
            }
        }
        return format;
    }
    return NULL;
}

static inline float small_widen(const struct small_format *format, uint32_t pattern)
{
    uint32_t sign = pattern >> (format->bits - 1),
             size = pattern & ((1U << (format->bits - 1)) - 1);
    bool has_infinity = format->dtype != WEFT_F8E4M3;
    float value = size < format->infinity                    ? (float)format->values[size]
                  : size == format->infinity && has_infinity ? INFINITY
                                                             : NAN;

    return sign ? -value : value;
}

/* Nearest, ties to the even pattern. A NaN becomes any one. */
static inline uint32_t small_narrow(const struct small_format *format, float value)
{
    uint32_t sign = (signbit(value) ? 1U : 0U) << (format->bits - 1);
    uint32_t low = 0, high = format->infinity;
    double size = fabs((double)value), middle;

    if (isnan(value)) {
        return format->dtype == WEFT_F8E4M3 ? 0x7f : format->infinity + 1;
    }
    if (size >= format->values[high]) {
        return sign | high;
    }
    while (high - low > 1) { /* values[low] <= size < values[high] */
        uint32_t between = (low + high) / 2;

        if (format->values[between] <= size) {
            low = between;
        } else {
            high = between;
        }
    }
    middle = (format->values[low] + format->values[high]) / 2;
    return sign | (size < middle ? low : size > middle ? high : low % 2 == 0 ? low : high);
}

/* ---- elements ---- */

static inline bool is_float_dtype(weft_dtype_t dtype)
{
    return dtype >= WEFT_F16;
}

static inline uint64_t element_bits(weft_dtype_t dtype, const void *elements, size_t at)
{
    size_t size = weft_dtype_size(dtype);
    uint64_t bits = 0;

    memcpy(&bits, (const char *)elements + at * size, size); /* little endian */
    return bits;
}

static inline bool is_nan_element(weft_dtype_t dtype, uint64_t bits)
{
    const struct small_format *format = small_format_of(dtype);
    float f32;
    double f64;

    if (!is_float_dtype(dtype)) {
        return false;
    }
    if (format) {
        return isnan(small_widen(format, (uint32_t)bits));
    }
    memcpy(&f32, &bits, sizeof(f32));
    memcpy(&f64, &bits, sizeof(f64));
    return dtype == WEFT_F32 ? isnan(f32) : isnan(f64);
}

/* Equal bits; a NaN equals any NaN. */
static inline bool is_same_element(weft_dtype_t dtype, uint64_t a, uint64_t b)
{
    return a == b || (is_nan_element(dtype, a) && is_nan_element(dtype, b));
}

/* ---- one element of the result ---- */

/* The least of two values, -0 below +0, unless one is NaN. */
static inline double least(double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    return a < b || (a == b && signbit(a)) ? a : b;
}

/* With as many bits as the dtype is computed with. */
static inline double rounded(weft_dtype_t dtype, double value)
{
    volatile float narrow = (float)value;

    return dtype == WEFT_F64 ? value : (double)narrow;
}

static inline double float_op(weft_dtype_t dtype, weft_redop_t op, double a, double b)
{
    switch (op) {
    case WEFT_PROD:
        return rounded(dtype, a * b);
    case WEFT_MIN:
        return least(a, b);
    case WEFT_MAX:
        return -least(-a, -b);
    default:
        return rounded(dtype, a + b);
    }
}

static inline double float_element(weft_dtype_t dtype, uint64_t bits)
{
    const struct small_format *format = small_format_of(dtype);
    float f32;
    double f64;

    if (format) {
        return (double)small_widen(format, (uint32_t)bits);
    }
    memcpy(&f32, &bits, sizeof(f32));
    memcpy(&f64, &bits, sizeof(f64));
    return dtype == WEFT_F32 ? (double)f32 : f64;
}

static inline uint64_t float_result(const struct weft_reduce *what, size_t at)
{
    const struct small_format *format = small_format_of(what->dtype);
    double before = rounded(what->dtype, what->before), sum = 0;
    uint64_t bits = 0;
    float f32;

    for (uint32_t s = 0; s < what->sources; s++) {
        double value = float_element(what->dtype, element_bits(what->dtype, what->source[s], at));

        value = rounded(what->dtype, value * before);
        sum = s == 0 ? value : float_op(what->dtype, what->op, sum, value);
    }
    if (what->divide_by > 1) {
        sum = rounded(what->dtype, sum / rounded(what->dtype, what->divide_by));
    }
    f32 = (float)sum;
    if (format) {
        return small_narrow(format, f32);
    }
    if (what->dtype == WEFT_F32) {
        memcpy(&bits, &f32, sizeof(f32));
    } else {
        memcpy(&bits, &sum, sizeof(sum));
    }
    return bits;
}

/* Sign or zeros above the element's bits. */
static inline int64_t extended(weft_dtype_t dtype, uint64_t bits)
{
    switch (dtype) {
    case WEFT_I8:
        return (int8_t)bits;
    case WEFT_I16:
        return (int16_t)bits;
    case WEFT_I32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static inline bool is_less_integer(weft_dtype_t dtype, uint64_t a, uint64_t b)
{
    bool is_signed =
        dtype == WEFT_I8 || dtype == WEFT_I16 || dtype == WEFT_I32 || dtype == WEFT_I64;

    return is_signed ? extended(dtype, a) < extended(dtype, b) : a < b;
}

static inline uint64_t integer_op(weft_dtype_t dtype, weft_redop_t op, uint64_t a, uint64_t b)
{
    switch (op) {
    case WEFT_PROD:
        return a * b;
    case WEFT_MIN:
        return is_less_integer(dtype, b, a) ? b : a;
    case WEFT_MAX:
        return is_less_integer(dtype, a, b) ? b : a;
    case WEFT_BAND:
        return a & b;
    case WEFT_BOR:
        return a | b;
    case WEFT_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static inline uint64_t integer_result(const struct weft_reduce *what, size_t at)
{
    uint64_t mask = ~0ULL >> (64 - 8 * weft_dtype_size(what->dtype)), sum = 0;

    for (uint32_t s = 0; s < what->sources; s++) {
        uint64_t bits = element_bits(what->dtype, what->source[s], at);

        sum = s == 0 ? bits : integer_op(what->dtype, what->op, sum, bits) & mask;
    }
    if (what->divide_by > 1) {
        sum = what->dtype == WEFT_U64
                  ? sum / what->divide_by
                  : (uint64_t)(extended(what->dtype, sum) / (int64_t)what->divide_by);
    }
    return sum & mask;
}

static inline uint64_t expected_element(const struct weft_reduce *what, size_t at)
{
    return is_float_dtype(what->dtype) ? float_result(what, at) : integer_result(what, at);
}

#endif
