/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small floats (f16, bf16, f8) in lanes of 32 bits: widened exactly, narrowed to nearest even.
 *
 * All but bf16 are the same with other numbers: below the smallest normal value the bits count multiples of
 * one unit, above they are those of f32, shortened, with another bias. Computed so that the CPU's flags which
 * flush denormals, and which some libraries set, change nothing: an f32 that is denormal here is as good as 0.
 */
#ifndef WEFT_REDUCE_SMALL_H
#define WEFT_REDUCE_SMALL_H

#include "reduce/vectors.h"

#define F32_SIGN 0x80000000U
#define F32_INFINITY 0x7f800000U
#define F32_QUIET 0x00400000U
#define TO_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* a where the mask's lanes are all ones, b where they are all zeros. */
INLINE vu32 choose(vi32 mask, vu32 a, vu32 b)
{
    return ((vu32)mask & a) | (~(vu32)mask & b);
}

/* Of values whose sign bit is 0: compared as signed ones, which is cheaper. */
INLINE vi32 is_below(vu32 a, uint32_t limit)
{
    return (vi32)a < (int32_t)limit;
}

INLINE bool is_small(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F8E4M3 || dtype == WEFT_F8E5M2;
}

/* The numbers of f16, e4m3, e5m2. */
struct format {
    unsigned drop;       /* bits of an f32's fraction that do not fit */
    uint32_t sign;       /* the sign's bit */
    uint32_t normal;     /* the smallest normal value, as f32's bits */
    uint32_t unit_maker; /* an f32 whose last bit is worth the smallest denormal */
    uint32_t beyond;     /* from here on (f32's bits) there is only overflow */
    uint32_t overflow;   /* what it becomes: infinity; e4m3 has none: NaN */
};

INLINE struct format format_of(weft_dtype_t dtype)
{
    return dtype == WEFT_F16
               ? (struct format){13, 0x8000, 113U << 23, 126U << 23, 143U << 23, 0x7c00}
           : dtype == WEFT_F8E5M2
               ? (struct format){21, 0x80, 113U << 23, 134U << 23, 143U << 23, 0x7c}
               : (struct format){20, 0x80, 121U << 23, 141U << 23, 0x43f00000U, 0x7f};
}

INLINE vf32 widen_lanes(weft_dtype_t dtype, vu32 bits)
{
    if (dtype == WEFT_BF16) {
        return (vf32)(bits << 16);
    }

    const struct format format = format_of(dtype);
    vu32 sign = (bits & format.sign) << (format.sign == 0x8000 ? 16 : 24);
    vu32 value = (bits & (format.sign - 1)) << format.drop;
    vu32 normal = value + (format.normal - (1U << 23));
    vf32 units = (vf32)(value + format.normal) - (vf32)(value * 0 + format.normal);
    vu32 wide = choose(is_below(value, 1U << 23), (vu32)units, normal);
    vu32 quiet = value | (F32_INFINITY | F32_QUIET);

    if (dtype == WEFT_F8E4M3) {
        wide = choose(is_below(value, 0x7fU << 20), wide, quiet);
    } else {
        vi32 is_nan = (vi32)value > (int32_t)(format.overflow << format.drop);
        wide = choose(is_below(value, format.overflow << format.drop), wide,
                      choose(is_nan, quiet, value | F32_INFINITY));
    }
    return (vf32)(wide | sign);
}

/* The upper half of each lane is the result. */
INLINE vu32 round_bf16(vf32 value)
{
    vu32 bits = (vu32)value;
    vu32 rounded = bits + 0x7fff + (bits >> 16 & 1);
    vi32 is_nan = (vi32)(bits & ~F32_SIGN) > (int32_t)F32_INFINITY;

    return choose(is_nan, bits | F32_QUIET, rounded);
}

INLINE vu32 narrow_lanes(weft_dtype_t dtype, vf32 value)
{
    vu32 bits = (vu32)value, size = bits & ~F32_SIGN;

    if (dtype == WEFT_BF16) {
        return round_bf16(value) >> 16;
    }

    const struct format format = format_of(dtype);
    vu32 sign = bits >> (format.sign == 0x8000 ? 16 : 24) & format.sign;
    vu32 half = (size >> format.drop & 1) + ((1U << (format.drop - 1)) - 1);
    vu32 normal = (size - (format.normal - (1U << 23)) + half) >> format.drop;
    vf32 maker = (vf32)(size * 0 + format.unit_maker);
    vu32 units = (vu32)((vf32)size + maker) - (vu32)maker;
    vu32 small = choose(is_below(size, format.normal), units, normal);
    vi32 is_nan = (vi32)size > (int32_t)F32_INFINITY;
    vu32 nan = dtype == WEFT_F16 ? (size >> 13 & 0x3ff) | 0x7e00 : size * 0 + 0x7f;
    vu32 large = choose(is_nan, nan, size * 0 + format.overflow);

    return sign | choose(is_below(size, format.beyond), small, large);
}

/* ---- bf16: a register of them is two of f32, the even ones and the odd ones; nothing changes lanes ---- */

INLINE void widen_halves(vec raw, vec *even_p, vec *odd_p)
{
    *even_p = (vec)((vu32)raw << 16);
    *odd_p = (vec)((vu32)raw & 0xffff0000U);
}

INLINE vec narrow_halves(vec even, vec odd)
{
    return (vec)(round_bf16((vf32)even) >> 16 | (round_bf16((vf32)odd) & 0xffff0000U));
}

/* ---- whole registers; in hardware where f16 is, with the same bits ---- */

INLINE vec widen_lanes16(weft_dtype_t dtype, lanes16 raw)
{
#if WIDTH == 64
    if (dtype == WEFT_F16) {
        return (vec)_mm512_cvtph_ps((__m256i)raw);
    }
#elif WIDTH == 32
    if (dtype == WEFT_F16) {
        return (vec)_mm256_cvtph_ps((__m128i)raw);
    }
#endif
    return (vec)widen_lanes(dtype, extend16(raw));
}

INLINE lanes16 narrow_lanes16(weft_dtype_t dtype, vec value)
{
#if WIDTH == 64
    if (dtype == WEFT_F16) {
        return (lanes16)_mm512_cvtps_ph((__m512)value, TO_NEAREST);
    }
#elif WIDTH == 32
    if (dtype == WEFT_F16) {
        return (lanes16)_mm256_cvtps_ph((__m256)value, TO_NEAREST);
    }
#endif
    return shorten16(narrow_lanes(dtype, (vf32)value));
}

/* e5m2 is the upper half of an f16; e4m3 is one with an exponent that is 8 too low. */
INLINE vec widen_lanes8(weft_dtype_t dtype, lanes8 raw)
{
#if WIDTH >= 32
    lanes16 bits = extend8_to_16(raw);
    vf32 value;

    if (dtype == WEFT_F8E5M2) {
        return widen_lanes16(WEFT_F16, bits << 8);
    }
    value = (vf32)widen_lanes16(WEFT_F16, (bits & 0x80) << 8 | (bits & 0x7f) << 7) * 256;
    return (vec)((vu32)value | extend16((lanes16)((bits & 0x7f) == 0x7f) & 0x7ff) << 20);
#else
    return (vec)widen_lanes(dtype, extend8(raw));
#endif
}

INLINE lanes8 narrow_lanes8(weft_dtype_t dtype, vec value)
{
    return shorten8(narrow_lanes(dtype, (vf32)value));
}

#endif
