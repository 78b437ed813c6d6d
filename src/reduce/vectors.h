/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers of WIDTH bytes as the compiler's vectors, and how they meet memory: whole or in part, through
 * the cache or around it. Included by kernels.h only, with WIDTH set.
 *
 * A `vec` is bytes; whoever computes casts it to the lanes it wants, which costs nothing.
 */
#ifndef WEFT_REDUCE_VECTORS_H
#define WEFT_REDUCE_VECTORS_H

#include "reduce/internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE __attribute__((always_inline)) static inline
#define LINE ((size_t)64)

#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

#define LANES(type, bytes) type __attribute__((vector_size(bytes)))
typedef LANES(uint8_t, WIDTH) vec;
typedef LANES(int8_t, WIDTH) vi8;
typedef LANES(int16_t, WIDTH) vi16;
typedef LANES(uint16_t, WIDTH) vu16;
typedef LANES(int32_t, WIDTH) vi32;
typedef LANES(uint32_t, WIDTH) vu32;
typedef LANES(int64_t, WIDTH) vi64;
typedef LANES(uint64_t, WIDTH) vu64;
typedef LANES(float, WIDTH) vf32;
typedef LANES(double, WIDTH) vf64;
/* As many lanes as vu32 has, of 2 and of 1 byte: what a vector of small floats takes in memory. */
typedef LANES(uint16_t, WIDTH / 2) lanes16;
typedef LANES(uint8_t, WIDTH / 4) lanes8;

#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef vec vec_anywhere ANYWHERE;
typedef lanes16 lanes16_anywhere ANYWHERE;
typedef lanes8 lanes8_anywhere ANYWHERE;

/* ---- whole registers ---- */

INLINE vec load_vec(const uint8_t *from)
{
    return *(const vec_anywhere *)from;
}

INLINE lanes16 load_lanes16(const uint8_t *from)
{
    return *(const lanes16_anywhere *)from;
}

INLINE lanes8 load_lanes8(const uint8_t *from)
{
    return *(const lanes8_anywhere *)from;
}

/* Stores around the cache; `to` is aligned to the size of what is stored. */
INLINE void stream(uint8_t *to, const void *piece, size_t len)
{
#if defined(__x86_64__)
    long long word;
    int half;

    switch (len) {
#if WIDTH == 64
    case 64:
        _mm512_stream_si512((void *)to, _mm512_loadu_si512(piece));
        return;
#endif
#if WIDTH >= 32
    case 32:
        _mm256_stream_si256((void *)to, _mm256_loadu_si256(piece));
        return;
#endif
    case 16:
        _mm_stream_si128((void *)to, _mm_loadu_si128(piece));
        return;
    case 8:
        memcpy(&word, piece, sizeof(word));
        _mm_stream_si64((void *)to, word);
        return;
    default:
        memcpy(&half, piece, sizeof(half));
        _mm_stream_si32((void *)to, half);
        return;
    }
#else
    memcpy(to, piece, len);
#endif
}

INLINE void stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

INLINE void store_vec(uint8_t *to, vec value, bool is_streamed)
{
    if (is_streamed) {
        stream(to, &value, sizeof(value));
    } else {
        *(vec_anywhere *)to = value;
    }
}

INLINE void store_lanes16(uint8_t *to, lanes16 value, bool is_streamed)
{
    if (is_streamed) {
        stream(to, &value, sizeof(value));
    } else {
        *(lanes16_anywhere *)to = value;
    }
}

INLINE void store_lanes8(uint8_t *to, lanes8 value, bool is_streamed)
{
    if (is_streamed) {
        stream(to, &value, sizeof(value));
    } else {
        *(lanes8_anywhere *)to = value;
    }
}

/* ---- the first `count` ≥ 1 lanes of `size` bytes; nothing beyond them is touched ---- */

#if WIDTH == 64

#define FIRST(count) (~0ULL >> (64 - (count)))

INLINE vec load_vec_part(const uint8_t *from, size_t count, size_t size)
{
    return size == 1   ? (vec)_mm512_maskz_loadu_epi8(FIRST(count), from)
           : size == 2 ? (vec)_mm512_maskz_loadu_epi16((__mmask32)FIRST(count), from)
           : size == 4 ? (vec)_mm512_maskz_loadu_epi32((__mmask16)FIRST(count), from)
                       : (vec)_mm512_maskz_loadu_epi64((__mmask8)FIRST(count), from);
}

INLINE lanes16 load_lanes16_part(const uint8_t *from, size_t count)
{
    return (lanes16)_mm256_maskz_loadu_epi16((__mmask16)FIRST(count), from);
}

INLINE lanes8 load_lanes8_part(const uint8_t *from, size_t count)
{
    return (lanes8)_mm_maskz_loadu_epi8((__mmask16)FIRST(count), from);
}

INLINE void store_vec_part(uint8_t *to, vec value, size_t count, size_t size)
{
    switch (size) {
    case 1:
        _mm512_mask_storeu_epi8(to, FIRST(count), (__m512i)value);
        break;
    case 2:
        _mm512_mask_storeu_epi16(to, (__mmask32)FIRST(count), (__m512i)value);
        break;
    case 4:
        _mm512_mask_storeu_epi32(to, (__mmask16)FIRST(count), (__m512i)value);
        break;
    default:
        _mm512_mask_storeu_epi64(to, (__mmask8)FIRST(count), (__m512i)value);
        break;
    }
}

INLINE void store_lanes16_part(uint8_t *to, lanes16 value, size_t count)
{
    _mm256_mask_storeu_epi16(to, (__mmask16)FIRST(count), (__m256i)value);
}

INLINE void store_lanes8_part(uint8_t *to, lanes8 value, size_t count)
{
    _mm_mask_storeu_epi8(to, (__mmask16)FIRST(count), (__m128i)value);
}

#else

/* Less than a register: memcpy() would take longer to find out. */
static __attribute__((noinline)) void copy_few(void *to, const void *from, size_t len)
{
    uint8_t *t = to;
    const uint8_t *f = from;

    for (; len >= 16; t += 16, f += 16, len -= 16) {
        memcpy(t, f, 16);
    }
    for (size_t piece = 8; piece > 0; piece /= 2) {
        if ((len & piece) != 0) {
            switch (piece) {
            case 8:
                memcpy(t, f, 8);
                break;
            case 4:
                memcpy(t, f, 4);
                break;
            case 2:
                memcpy(t, f, 2);
                break;
            default:
                *t = *f;
                break;
            }
            t += piece, f += piece;
        }
    }
}

INLINE vec load_vec_part(const uint8_t *from, size_t count, size_t size)
{
    vec value = {0};

    copy_few(&value, from, count * size);
    return value;
}

INLINE lanes16 load_lanes16_part(const uint8_t *from, size_t count)
{
    lanes16 value = {0};

    copy_few(&value, from, count * 2);
    return value;
}

INLINE lanes8 load_lanes8_part(const uint8_t *from, size_t count)
{
    lanes8 value = {0};

    copy_few(&value, from, count);
    return value;
}

INLINE void store_vec_part(uint8_t *to, vec value, size_t count, size_t size)
{
    copy_few(to, &value, count * size);
}

INLINE void store_lanes16_part(uint8_t *to, lanes16 value, size_t count)
{
    copy_few(to, &value, count * 2);
}

INLINE void store_lanes8_part(uint8_t *to, lanes8 value, size_t count)
{
    copy_few(to, &value, count);
}

#endif

#endif
