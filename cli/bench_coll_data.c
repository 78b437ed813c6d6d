/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks give and must get. Elements are small whole numbers that depend on the rank and the place,
 * chosen so that every sum on the way is exact in the type: then the order of additions does not matter
 * and every bit of the result is known. Only an average of floats is rounded, once. The numbers repeat
 * after COLL_PERIOD elements, so that filling and checking run at the speed of memory.
 */
#include "bench_coll.h"

#include <math.h>
#include <string.h>

#define ODD UINT64_C(0x9e3779b97f4a7c15) /* spreads neighbours over all 64 bits */

struct format {
    int exponent, mantissa; /* bits; 0: an integer */
    int most;               /* whole numbers up to here are exact; no more are needed */
};

static const struct format formats[WEFT_DTYPES] = {
    [WEFT_I8] = {0, 0, 127},    [WEFT_U8] = {0, 0, 255},    [WEFT_I16] = {0, 0, 4096},
    [WEFT_U16] = {0, 0, 4096},  [WEFT_I32] = {0, 0, 4096},  [WEFT_U32] = {0, 0, 4096},
    [WEFT_I64] = {0, 0, 4096},  [WEFT_U64] = {0, 0, 4096},  [WEFT_F16] = {5, 10, 2048},
    [WEFT_BF16] = {8, 7, 256},  [WEFT_F32] = {8, 23, 4096}, [WEFT_F64] = {11, 52, 4096},
    [WEFT_F8E4M3] = {4, 3, 16}, [WEFT_F8E5M2] = {5, 2, 8},
};

static bool is_float(weft_dtype_t dtype)
{
    return formats[dtype].exponent > 0;
}

/* ---- elements ---- */

static int bias_of(const struct format *format)
{
    return (1 << (format->exponent - 1)) - 1;
}

/* The smallest number above 0. */
static double least_of(const struct format *format)
{
    return ldexp(1, 1 - bias_of(format) - format->mantissa);
}

/* value: not negative, within the type; what does not fit is cut off. */
static uint64_t encode(weft_dtype_t dtype, double value)
{
    const struct format *format = &formats[dtype];
    int power;
    if (!is_float(dtype) || value == 0) {
        return (uint64_t)value;
    }
    int bias = bias_of(format);
    double part = frexp(value, &power) * 2 - 1; /* value = (1 + part) · 2^(power-1) */
    if (power - 1 + bias < 1) {
        return (uint64_t)(value / least_of(format)); /* subnormal */
    }
    return ((uint64_t)(power - 1 + bias) << format->mantissa) |
           (uint64_t)ldexp(part, format->mantissa);
}

/* Of floats; without infinities: whatever they are, they are wrong. */
static double decode(weft_dtype_t dtype, uint64_t bits)
{
    const struct format *format = &formats[dtype];
    int bias = bias_of(format);
    uint64_t mantissa = bits & ((UINT64_C(1) << format->mantissa) - 1);
    uint64_t raw = bits >> format->mantissa & ((UINT64_C(1) << format->exponent) - 1);
    bool is_negative = bits >> (format->mantissa + format->exponent) & 1;
    double part = ldexp((double)mantissa, -format->mantissa);
    double value = raw > 0 ? ldexp(1 + part, (int)raw - bias) : ldexp(part, 1 - bias);
    return is_negative ? -value : value;
}

static void put(struct coll_pattern *pattern, size_t index, double value)
{
    size_t len = weft_dtype_size(pattern->dtype);
    uint64_t bits = encode(pattern->dtype, value); /* little-endian: the low bytes come first */
    memcpy(pattern->bytes + index * len, &bits, len);
}

/* ---- what is given, what is wanted ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t word = (a * 1000003 + b + 1) * ODD;
    word ^= word >> 29;
    return (word * ODD) >> 32;
}

/* Which rank alone gives something at this place, where all together would be too much. */
static bool is_chosen(int ranks, int rank, size_t index)
{
    return (int)(mix(77, index) % (uint64_t)ranks) == rank;
}

static double given(weft_dtype_t dtype, weft_redop_t redop, int ranks, int rank, size_t index)
{
    uint64_t random = mix((uint64_t)rank, index), most = (uint64_t)formats[dtype].most;
    uint64_t each = most / (uint64_t)ranks; /* so that the sum stays below */
    switch (redop) {
    case WEFT_SUM:
    case WEFT_AVG:
    case WEFT_SCALED:
        if (each == 0) {
            return is_chosen(ranks, rank, index) ? (double)(1 + random % most) : 0;
        }
        return (double)(random % (each + 1));
    case WEFT_PROD:
        return is_chosen(ranks, rank, index) ? (double)(2 + random % 2) : 1;
    default:
        return (double)(1 + random % most);
    }
}

static double combine(weft_redop_t redop, double a, double b)
{
    switch (redop) {
    case WEFT_PROD:
        return a * b;
    case WEFT_MIN:
        return fmin(a, b);
    case WEFT_MAX:
        return fmax(a, b);
    case WEFT_BAND:
        return (double)((uint64_t)a & (uint64_t)b);
    case WEFT_BOR:
        return (double)((uint64_t)a | (uint64_t)b);
    case WEFT_BXOR:
        return (double)((uint64_t)a ^ (uint64_t)b);
    default:
        return a + b;
    }
}

void weft_bench_coll_given(weft_dtype_t dtype, weft_redop_t redop, int ranks, int rank,
                           struct coll_pattern *pattern_p)
{
    pattern_p->dtype = dtype;
    pattern_p->tolerance = 0;
    for (size_t i = 0; i < COLL_PERIOD; i++) {
        put(pattern_p, i, given(dtype, redop, ranks, rank, i));
    }
}

void weft_bench_coll_wanted(weft_dtype_t dtype, weft_redop_t redop, int ranks,
                            struct coll_pattern *pattern_p)
{
    bool is_rounded = redop == WEFT_AVG && is_float(dtype);
    pattern_p->dtype = dtype;
    pattern_p->tolerance = is_rounded ? ldexp(1, -formats[dtype].mantissa) : 0;
    for (size_t i = 0; i < COLL_PERIOD; i++) {
        double value = given(dtype, redop, ranks, 0, i);
        for (int rank = 1; rank < ranks; rank++) {
            value = combine(redop, value, given(dtype, redop, ranks, rank, i));
        }
        if (redop == WEFT_AVG) {
            value = is_float(dtype) ? value / ranks : trunc(value / ranks);
        } else if (redop == WEFT_SCALED) {
            value *= COLL_SCALE;
        }
        put(pattern_p, i, value);
    }
}

/* ---- memory ---- */

void weft_bench_coll_fill(const struct coll_pattern *pattern, void *data, size_t count,
                          size_t first)
{
    size_t len = weft_dtype_size(pattern->dtype);
    for (size_t done = 0; done < count;) {
        size_t phase = (first + done) % COLL_PERIOD;
        size_t part = COLL_PERIOD - phase < count - done ? COLL_PERIOD - phase : count - done;
        memcpy((uint8_t *)data + done * len, pattern->bytes + phase * len, part * len);
        done += part;
    }
}

static bool is_right(const struct coll_pattern *pattern, const uint8_t *got, const uint8_t *want)
{
    size_t len = weft_dtype_size(pattern->dtype);
    uint64_t got_bits = 0, want_bits = 0;
    if (pattern->tolerance == 0) {
        return memcmp(got, want, len) == 0;
    }
    memcpy(&got_bits, got, len);
    memcpy(&want_bits, want, len);
    double value = decode(pattern->dtype, want_bits);
    double off = fabs(decode(pattern->dtype, got_bits) - value);
    return off <= fmax(pattern->tolerance * value, least_of(&formats[pattern->dtype]));
}

uint64_t weft_bench_coll_differ(const struct coll_pattern *pattern, const void *data, size_t count,
                                size_t first, size_t *at_p)
{
    size_t len = weft_dtype_size(pattern->dtype);
    const uint8_t *bytes = data;
    uint64_t wrong = 0;
    for (size_t done = 0; done < count;) {
        size_t phase = (first + done) % COLL_PERIOD;
        size_t part = COLL_PERIOD - phase < count - done ? COLL_PERIOD - phase : count - done;
        const uint8_t *got = bytes + done * len, *want = pattern->bytes + phase * len;
        bool is_same = memcmp(got, want, part * len) == 0;
        for (size_t i = 0; !is_same && i < part; i++) {
            if (!is_right(pattern, got + i * len, want + i * len)) {
                *at_p = wrong == 0 ? done + i : *at_p;
                wrong++;
            }
        }
        done += part;
    }
    return wrong;
}
