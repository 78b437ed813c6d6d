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

/* The first eight bytes of one; the others are 0. */
INLINE vec load_word(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof(word));
    return (vec)(vu64){word};
}

INLINE void store_word(uint8_t *to, vec value)
{
    uint64_t word = ((vu64)value)[0];
    memcpy(to, &word, sizeof(word));
}

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

/* ---- lanes of 32 bits from and to shorter ones: left to themselves, compilers take ten times as long ---- */

#if WIDTH == 64

INLINE vu32 extend16(lanes16 value)
{
    return (vu32)_mm512_cvtepu16_epi32((__m256i)value);
}

INLINE vu32 extend8(lanes8 value)
{
    return (vu32)_mm512_cvtepu8_epi32((__m128i)value);
}

INLINE lanes16 extend8_to_16(lanes8 value)
{
    return (lanes16)_mm256_cvtepu8_epi16((__m128i)value);
}

INLINE lanes16 shorten16(vu32 value)
{
    return (lanes16)_mm512_cvtepi32_epi16((__m512i)value);
}

INLINE lanes8 shorten8(vu32 value)
{
    return (lanes8)_mm512_cvtepi32_epi8((__m512i)value);
}

#elif WIDTH == 32

INLINE vu32 extend16(lanes16 value)
{
    return (vu32)_mm256_cvtepu16_epi32((__m128i)value);
}

INLINE vu32 extend8(lanes8 value)
{
    return (vu32)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)value));
}

INLINE lanes16 extend8_to_16(lanes8 value)
{
    return (lanes16)_mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)value));
}

INLINE lanes16 shorten16(vu32 value)
{
    __m256i halves = _mm256_packus_epi32((__m256i)value, (__m256i)value);

    return (lanes16)_mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0x08));
}

INLINE lanes8 shorten8(vu32 value)
{
    __m128i words = (__m128i)shorten16(value);

    return (lanes8)_mm_cvtsi128_si64(_mm_packus_epi16(words, words));
}

#elif defined(__x86_64__)

INLINE vu32 extend16(lanes16 value)
{
    return (vu32)_mm_unpacklo_epi16(_mm_cvtsi64_si128((long long)value), _mm_setzero_si128());
}

INLINE vu32 extend8(lanes8 value)
{
    __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128((int)value), _mm_setzero_si128());

    return (vu32)_mm_unpacklo_epi16(words, _mm_setzero_si128());
}

INLINE lanes16 shorten16(vu32 value)
{
    __m128i words = (__m128i)((vi32)(value << 16) >> 16); /* packing is of signed ones only */

    return (lanes16)_mm_cvtsi128_si64(_mm_packs_epi32(words, words));
}

INLINE lanes8 shorten8(vu32 value)
{
    __m128i words = _mm_packs_epi32((__m128i)value, (__m128i)value);

    return (lanes8)_mm_cvtsi128_si32(_mm_packus_epi16(words, words));
}

#else

INLINE vu32 extend16(lanes16 value)
{
    return __builtin_convertvector(value, vu32);
}

INLINE vu32 extend8(lanes8 value)
{
    return __builtin_convertvector(value, vu32);
}

INLINE lanes16 shorten16(vu32 value)
{
    return __builtin_convertvector(value, lanes16);
}

INLINE lanes8 shorten8(vu32 value)
{
    return __builtin_convertvector(value, lanes8);
}

#endif

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

    for (; len >= 8; t += 8, f += 8, len -= 8) {
        memcpy(t, f, 8);
    }
    if ((len & 4) != 0) {
        memcpy(t, f, 4);
        t += 4, f += 4;
    }
    if ((len & 2) != 0) {
        memcpy(t, f, 2);
        t += 2, f += 2;
    }
    if ((len & 1) != 0) {
        *t = *f;
    }
}

INLINE vec load_vec_part(const uint8_t *from, size_t count, size_t size)
{
    vec value = {0};

    if (count * size == sizeof(value)) {
        return load_vec(from);
    }
#if WIDTH == 32
    const vi32 lane = {0, 1, 2, 3, 4, 5, 6, 7};

    if (size >= 4) {
        return (vec)_mm256_maskload_epi32((const int *)from,
                                          (__m256i)(lane < (int)(count * size / 4)));
    }
#endif
    copy_few(&value, from, count * size);
    return value;
}

INLINE lanes16 load_lanes16_part(const uint8_t *from, size_t count)
{
    lanes16 value = {0};

    if (count * 2 == sizeof(value)) {
        return load_lanes16(from);
    }
    copy_few(&value, from, count * 2);
    return value;
}

INLINE lanes8 load_lanes8_part(const uint8_t *from, size_t count)
{
    lanes8 value = {0};

    if (count == sizeof(value)) {
        return load_lanes8(from);
    }
    copy_few(&value, from, count);
    return value;
}

INLINE void store_vec_part(uint8_t *to, vec value, size_t count, size_t size)
{
    if (count * size == sizeof(value)) {
        store_vec(to, value, false);
    } else {
        copy_few(to, &value, count * size);
    }
}

INLINE void store_lanes16_part(uint8_t *to, lanes16 value, size_t count)
{
    if (count * 2 == sizeof(value)) {
        store_lanes16(to, value, false);
    } else {
        copy_few(to, &value, count * 2);
    }
}

INLINE void store_lanes8_part(uint8_t *to, lanes8 value, size_t count)
{
    if (count == sizeof(value)) {
        store_lanes8(to, value, false);
    } else {
        copy_few(to, &value, count);
    }
}

#endif

#endif
