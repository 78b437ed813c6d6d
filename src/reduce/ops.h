/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ops do with two registers. dtype and op are constants wherever these are called, so that of each
 * choice one line remains. Integers are computed unsigned: they wrap around.
 */
#ifndef WEFT_REDUCE_OPS_H
#define WEFT_REDUCE_OPS_H

#include "reduce/small.h"

INLINE size_t size_of(weft_dtype_t dtype)
{
    switch (dtype) {
#define SIZE(name, number, bytes, text)                                                            \
    case WEFT_##name:                                                                              \
        return (bytes);
        WEFT_DTYPE_LIST(SIZE)
#undef SIZE
    default:
        return 0;
    }
}

INLINE bool is_float(weft_dtype_t dtype)
{
    return dtype >= WEFT_F16;
}

/* Lanes of a register; small floats are f32 there. */
INLINE size_t lanes_of(weft_dtype_t dtype)
{
    return WIDTH / (is_small(dtype) ? sizeof(float) : size_of(dtype));
}

/* What a register's elements take in memory. */
INLINE size_t place_of(weft_dtype_t dtype)
{
    return lanes_of(dtype) * size_of(dtype);
}

/* Registers that are loaded and stored together: a step. */
INLINE size_t parts_of(weft_dtype_t dtype)
{
    return dtype == WEFT_BF16 ? 2 : 1;
}

INLINE vec add(weft_dtype_t dtype, vec a, vec b)
{
    if (is_float(dtype)) {
        return dtype == WEFT_F64 ? (vec)((vf64)a + (vf64)b) : (vec)((vf32)a + (vf32)b);
    }
    switch (size_of(dtype)) {
    case 1:
        return a + b;
    case 2:
        return (vec)((vu16)a + (vu16)b);
    case 4:
        return (vec)((vu32)a + (vu32)b);
    default:
        return (vec)((vu64)a + (vu64)b);
    }
}

INLINE vec multiply(weft_dtype_t dtype, vec a, vec b)
{
    if (is_float(dtype)) {
        return dtype == WEFT_F64 ? (vec)((vf64)a * (vf64)b) : (vec)((vf32)a * (vf32)b);
    }
    switch (size_of(dtype)) {
    case 1: { /* no CPU multiplies bytes: the odd ones and the even ones, as 16 bits */
        vu16 low = (vu16)a * (vu16)b & 0xff;
        vu16 high = ((vu16)a >> 8) * ((vu16)b & 0xff00);

        return (vec)(low | high);
    }
    case 2:
        return (vec)((vu16)a * (vu16)b);
    case 4:
        return (vec)((vu32)a * (vu32)b);
    default:
        return (vec)((vu64)a * (vu64)b);
    }
}

/* All ones where a < b. */
INLINE vec integer_is_less(weft_dtype_t dtype, vec a, vec b)
{
    switch (dtype) {
    case WEFT_I8:
        return (vec)((vi8)a < (vi8)b);
    case WEFT_U8:
        return (vec)(a < b);
    case WEFT_I16:
        return (vec)((vi16)a < (vi16)b);
    case WEFT_U16:
        return (vec)((vu16)a < (vu16)b);
    case WEFT_I32:
        return (vec)((vi32)a < (vi32)b);
    case WEFT_U32:
        return (vec)((vu32)a < (vu32)b);
    case WEFT_I64:
        return (vec)((vi64)a < (vi64)b);
    default:
        return (vec)((vu64)a < (vu64)b);
    }
}

/*
 * Floats. The CPU's min(a, b) gives b when they are equal (also +0 and -0) or one is NaN. Both orders
 * together are what we want: equal values or'ed are that value, and -0 of two zeros; a NaN or'ed with
 * anything stays NaN. So min and max do not depend on the order, except for the bits of a NaN.
 */
#if WIDTH == 64
#define CPU_MIN_F32(a, b) ((vec)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define CPU_MIN_F64(a, b) ((vec)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#elif WIDTH == 32
#define CPU_MIN_F32(a, b) ((vec)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define CPU_MIN_F64(a, b) ((vec)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#elif defined(__x86_64__)
#define CPU_MIN_F32(a, b) ((vec)_mm_min_ps((__m128)(a), (__m128)(b)))
#define CPU_MIN_F64(a, b) ((vec)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#else
INLINE vec min_or_second(vec is_less, vec a, vec b)
{
    return (is_less & a) | (~is_less & b);
}
#define CPU_MIN_F32(a, b) min_or_second((vec)((vf32)(a) < (vf32)(b)), a, b)
#define CPU_MIN_F64(a, b) min_or_second((vec)((vf64)(a) < (vf64)(b)), a, b)
#endif

INLINE vec float_min(weft_dtype_t dtype, vec a, vec b)
{
    return dtype == WEFT_F64 ? CPU_MIN_F64(a, b) | CPU_MIN_F64(b, a)
                             : CPU_MIN_F32(a, b) | CPU_MIN_F32(b, a);
}

INLINE vec negate(weft_dtype_t dtype, vec a)
{
    return dtype == WEFT_F64 ? (vec)((vu64)a ^ 1ULL << 63) : (vec)((vu32)a ^ F32_SIGN);
}

INLINE vec min(weft_dtype_t dtype, vec a, vec b)
{
    if (is_float(dtype)) {
        return float_min(dtype, a, b);
    }

    vec is_less = integer_is_less(dtype, a, b);
    return (is_less & a) | (~is_less & b);
}

INLINE vec max(weft_dtype_t dtype, vec a, vec b)
{
    if (is_float(dtype)) {
        return negate(dtype, float_min(dtype, negate(dtype, a), negate(dtype, b)));
    }

    vec is_less = integer_is_less(dtype, a, b);
    return (is_less & b) | (~is_less & a);
}

INLINE vec combine(weft_dtype_t dtype, weft_redop_t op, vec a, vec b)
{
    switch (op) {
    case WEFT_PROD:
        return multiply(dtype, a, b);
    case WEFT_MIN:
        return min(dtype, a, b);
    case WEFT_MAX:
        return max(dtype, a, b);
    case WEFT_BAND:
        return a & b;
    case WEFT_BOR:
        return a | b;
    case WEFT_BXOR:
        return a ^ b;
    default:
        return add(dtype, a, b);
    }
}

#endif
