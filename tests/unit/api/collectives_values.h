/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the elements of a test's collective are, and what must come out: a plain reference, written for
 * being right and not for speed. Knows no ranks, no library beyond the public words.
 *
 * Values of reductions are chosen so that the result is exact in any order and with any rounding in
 * between: integers wrap, sums of floats are sums of small integers, products are of powers of two. So a
 * wrong result is wrong, never "close". Values that are only moved are any bits, NaNs too.
 *
 * A vector repeats after PERIOD elements (prime: no block or chunk is a multiple of it), so that long
 * ones cost a copy.
 */
#ifndef WEFT_TESTS_API_COLLECTIVES_VALUES_H
#define WEFT_TESTS_API_COLLECTIVES_VALUES_H

#include "weft/weft.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_PERIOD ((size_t)1021)

static inline uint64_t values_mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- one element: its bits, and what they mean ---- */

static inline bool values_is_float(weft_dtype_t dtype)
{
    return dtype >= WEFT_F16;
}

static inline bool values_is_signed(weft_dtype_t dtype)
{
    return dtype == WEFT_I8 || dtype == WEFT_I16 || dtype == WEFT_I32 || dtype == WEFT_I64;
}

/* Are this dtype and this op a pair? As the public header says. */
static inline bool values_is_defined(weft_dtype_t dtype, weft_redop_t op)
{
    bool is_bitwise = op == WEFT_BAND || op == WEFT_BOR || op == WEFT_BXOR;
    return values_is_float(dtype) ? !is_bitwise : op != WEFT_SCALED;
}

struct values_format {
    int bits, mantissa, bias;
    bool has_infinity;
};

static inline struct values_format values_format(weft_dtype_t dtype)
{
    switch (dtype) {
    case WEFT_F16:
        return (struct values_format){16, 10, 15, true};
    case WEFT_BF16:
        return (struct values_format){16, 7, 127, true};
    case WEFT_F32:
        return (struct values_format){32, 23, 127, true};
    case WEFT_F8E4M3:
        return (struct values_format){8, 3, 7, false};
    case WEFT_F8E5M2:
        return (struct values_format){8, 2, 15, true};
    default:
        return (struct values_format){64, 52, 1023, true};
    }
}

/* What bits of a float say. */
static inline double values_decode(weft_dtype_t dtype, uint64_t bits)
{
    struct values_format format = values_format(dtype);
    double value;
    if (dtype == WEFT_F64) {
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
    uint64_t top = (UINT64_C(1) << (format.bits - 1 - format.mantissa)) - 1;
    uint64_t ones = (UINT64_C(1) << format.mantissa) - 1;
    uint64_t exponent = bits >> format.mantissa & top, fraction = bits & ones;
    if (exponent == top && (format.has_infinity || fraction == ones)) {
        value = format.has_infinity && fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        value = ldexp((double)fraction, 1 - format.bias - format.mantissa);
    } else {
        value =
            ldexp((double)(fraction | (ones + 1)), (int)exponent - format.bias - format.mantissa);
    }
    return (bits >> (format.bits - 1) & 1) != 0 ? -value : value;
}

/* The nearest float of a dtype, to even; values that are too large for it are the caller's mistake. */
static inline uint64_t values_encode(weft_dtype_t dtype, double value)
{
    struct values_format format = values_format(dtype);
    uint64_t sign = signbit(value) != 0 ? UINT64_C(1) << (format.bits - 1) : 0, bits;
    uint64_t infinity = ((UINT64_C(1) << (format.bits - 1 - format.mantissa)) - 1)
                        << format.mantissa;
    int exponent;
    if (dtype == WEFT_F64) {
        memcpy(&bits, &value, sizeof(bits));
        return bits;
    }
    if (isnan(value)) {
        return format.has_infinity ? infinity | UINT64_C(1) << (format.mantissa - 1) : 0x7f;
    }
    if (isinf(value)) {
        return sign | infinity;
    }
    frexp(value, &exponent);
    if (value == 0 || exponent < 2 - format.bias) {
        exponent = 2 - format.bias; /* subnormal */
    }
    int quantum = exponent - 1 - format.mantissa;
    uint64_t steps = (uint64_t)nearbyint(ldexp(fabs(value), -quantum));
    uint64_t biased = (uint64_t)exponent + (uint64_t)format.bias - 1;
    return sign | ((biased << format.mantissa) + steps - (UINT64_C(1) << format.mantissa));
}

static inline void values_store(weft_dtype_t dtype, uint64_t bits, uint8_t *to)
{
    memcpy(to, &bits, weft_dtype_size(dtype)); /* little-endian hosts only, like the wire */
}

static inline uint64_t values_load(weft_dtype_t dtype, const uint8_t *from)
{
    uint64_t bits = 0;
    memcpy(&bits, from, weft_dtype_size(dtype));
    return bits;
}

/* ---- what the ranks contribute ---- */

/* A vector of one reduction: which one, and of how many ranks. */
struct values {
    weft_dtype_t dtype;
    weft_redop_t op;
    int ranks;
    double scale; /* of WEFT_SCALED: a power of two, or the result is not exact */
    uint64_t seed;
};

static inline uint64_t values_raw(const struct values *values, int rank, size_t i)
{
    uint64_t salt = (uint64_t)rank << 32 ^ (uint64_t)(i % VALUES_PERIOD);
    return values_mix(values->seed ^ values_mix(salt));
}

/* Integers so small that the sum over any of the ranks is exact. */
static inline double values_summand(const struct values *values, int rank, size_t i, uint64_t raw)
{
    int digits = values_format(values->dtype).mantissa + 1;
    int64_t most = INT64_C(1) << (digits < 30 ? digits : 30), ranks = values->ranks;
    int64_t place = ((int64_t)rank + (int64_t)(i % VALUES_PERIOD)) % ranks;
    int64_t bound = most / ranks > 0 ? most / ranks : place < most ? 1 : 0;
    return (double)((int64_t)(raw >> 8 & 0xffffffff) % (2 * bound + 1) - bound);
}

/* Powers of two, not one in at most four ranks: also e4m3 holds every product. */
static inline double values_factor(const struct values *values, int rank, size_t i, uint64_t raw)
{
    int place = (rank + (int)(i % VALUES_PERIOD)) % values->ranks;
    double factor = place < 4 ? ((raw & 16) != 0 ? 2.0 : 0.5) : 1.0;
    return (raw & 32) != 0 ? -factor : factor;
}

/* Any float that is not NaN. */
static inline uint64_t values_comparable(const struct values *values, uint64_t raw)
{
    struct values_format format = values_format(values->dtype);
    uint64_t bits = format.bits == 64 ? raw : raw & ((UINT64_C(1) << format.bits) - 1);
    return isnan(values_decode(values->dtype, bits)) ? bits & ~(UINT64_C(1) << format.mantissa)
                                                     : bits;
}

/* Element i of what a rank contributes. */
static inline uint64_t values_bits(const struct values *values, int rank, size_t i)
{
    uint64_t raw = values_raw(values, rank, i);
    if (!values_is_float(values->dtype)) {
        uint64_t more = values_mix(raw);
        return values->op == WEFT_BAND ? raw | more : values->op == WEFT_BOR ? raw & more : raw;
    }
    switch (values->op) {
    case WEFT_MIN:
    case WEFT_MAX:
        return values_comparable(values, raw);
    case WEFT_PROD:
        return values_encode(values->dtype, values_factor(values, rank, i, raw));
    default:
        return values_encode(values->dtype, values_summand(values, rank, i, raw));
    }
}

/* ---- the reference ---- */

/* A word of a small integer dtype as a 64-bit one: the sign goes along. */
static inline uint64_t values_widen(weft_dtype_t dtype, uint64_t bits)
{
    unsigned unused = 64 - 8 * (unsigned)weft_dtype_size(dtype);
    return values_is_signed(dtype) ? (uint64_t)((int64_t)(bits << unused) >> unused)
                                   : bits << unused >> unused;
}

static inline uint64_t values_fold_word(weft_dtype_t dtype, weft_redop_t op, uint64_t a, uint64_t b)
{
    bool is_less = values_is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case WEFT_PROD:
        return a * b;
    case WEFT_MIN:
        return is_less ? a : b;
    case WEFT_MAX:
        return is_less ? b : a;
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

static inline double values_fold_float(weft_redop_t op, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    switch (op) {
    case WEFT_PROD:
        return a * b;
    case WEFT_MIN:
        return a < b ? a : b;
    case WEFT_MAX:
        return a < b ? b : a;
    default:
        return a + b;
    }
}

static inline uint64_t values_reduce_words(const struct values *values, const uint64_t *bits)
{
    weft_dtype_t dtype = values->dtype;
    uint64_t word = values_widen(dtype, bits[0]);
    for (int rank = 1; rank < values->ranks; rank++) {
        word = values_fold_word(dtype, values->op, word, values_widen(dtype, bits[rank]));
    }
    word = values_widen(dtype, word);
    if (values->op == WEFT_AVG) {
        word = values_is_signed(dtype) ? (uint64_t)((int64_t)word / values->ranks)
                                       : word / (uint64_t)values->ranks;
    }
    return word;
}

/* What comes out of these contributions of all ranks. */
static inline uint64_t values_reduce(const struct values *values, const uint64_t *bits)
{
    double scale = values->op == WEFT_SCALED ? values->scale : 1.0, result;
    if (!values_is_float(values->dtype)) {
        return values_reduce_words(values, bits);
    }
    result = values_decode(values->dtype, bits[0]) * scale;
    for (int rank = 1; rank < values->ranks; rank++) {
        result =
            values_fold_float(values->op, result, values_decode(values->dtype, bits[rank]) * scale);
    }
    return values_encode(values->dtype, values->op == WEFT_AVG ? result / values->ranks : result);
}

/* ---- vectors ---- */

/* The rest of a vector whose first period is there. */
static inline void values_repeat(uint8_t *to, size_t size, size_t count)
{
    size_t period = VALUES_PERIOD * size, len = count * size;
    for (size_t at = period; at < len; at += period) {
        memcpy(to + at, to, len - at < period ? len - at : period);
    }
}

static inline size_t values_distinct(size_t count)
{
    return count < VALUES_PERIOD ? count : VALUES_PERIOD;
}

static inline void values_fill(const struct values *values, int rank, size_t count, uint8_t *to)
{
    size_t size = weft_dtype_size(values->dtype);
    for (size_t i = 0; i < values_distinct(count); i++) {
        values_store(values->dtype, values_bits(values, rank, i), to + i * size);
    }
    values_repeat(to, size, count);
}

static inline void values_fill_reduced(const struct values *values, size_t count, uint8_t *to)
{
    size_t size = weft_dtype_size(values->dtype);
    uint64_t bits[64];
    for (size_t i = 0; i < values_distinct(count); i++) {
        for (int rank = 0; rank < values->ranks; rank++) {
            bits[rank] = values_bits(values, rank, i);
        }
        values_store(values->dtype, values_reduce(values, bits), to + i * size);
    }
    values_repeat(to, size, count);
}

/* Bits that are moved and mean nothing. */
static inline void values_fill_any(weft_dtype_t dtype, uint64_t seed, size_t count, uint8_t *to)
{
    size_t size = weft_dtype_size(dtype);
    for (size_t i = 0; i < values_distinct(count); i++) {
        values_store(dtype, values_mix(seed ^ values_mix(i)), to + i * size);
    }
    values_repeat(to, size, count);
}

/* Is this what had to come? Zeros have two signs, NaNs many faces, and a quotient that no float of the
 * dtype is may be rounded twice. */
static inline bool values_are_same(weft_dtype_t dtype, weft_redop_t op, uint64_t got, uint64_t want)
{
    double a, b;
    if (got == want || !values_is_float(dtype)) {
        return got == want;
    }
    a = values_decode(dtype, got);
    b = values_decode(dtype, want);
    return a == b || (isnan(a) && isnan(b)) ||
           (op == WEFT_AVG && (got - want == 1 || want - got == 1) && signbit(a) == signbit(b));
}

#endif
