/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All kernels, for registers of WIDTH bytes, from one piece of source: run(), which the compiler makes into
 * a function for each kind of reduction (dtype × op, scaled or not).
 *
 * One pass over memory: a block of each source is loaded and combined in registers, then stored to every
 * output. All loads of a block come before its stores, so that an output may be a source.
 *
 * Stores around the cache must be aligned, and fill whole lines (a line written in part is read first): a
 * few elements go singly, up to the next line of output 0. Outputs that lie otherwise get plain stores, and
 * so do those kinds whose blocks are shorter than a line (half a line at a time takes a hundred times as long).
 *
 * Short blocks for long vectors: four registers of each source in turn are up to twice as fast as one while
 * everything lies in the first cache, but a tenth to a fifth slower where it comes from memory; in between
 * they are 5 % apart. With eight sources nothing is gained, nor with small floats, which compute for longer.
 *
 * Nothing is fetched ahead: measured with sources that another core had just written, through its cache or
 * around it, 512 bytes to two pages ahead changed little with two sources, and cost up to half of the rate
 * with more (a page ahead, eight sources fill the first cache) or with what this core has in its own cache.
 */
#ifndef WEFT_REDUCE_KERNELS_H
#define WEFT_REDUCE_KERNELS_H

#include "reduce/ops.h"

#define BLOCK ((size_t)4)           /* registers per source and turn, at most */
#define ALIGN_LEN ((size_t)1 << 12) /* below, aligning the stores does not pay */
#define LINES_LEN ((size_t)1 << 15) /* from here on short blocks, of one line … */
#define LINES_SOURCES 4             /* … with so many sources at most */

/* Constants in every kernel. dtype is what is computed with: for bits, bytes. */
struct kind {
    weft_dtype_t dtype;
    weft_redop_t op;
    bool is_scaled;   /* something is multiplied before or divided after */
    bool is_by_lines; /* blocks of one line */
};

/* Registers per source and turn. */
INLINE size_t block_of(struct kind kind)
{
    bool is_divided = kind.is_scaled && !is_float(kind.dtype);
    bool is_long_code = WIDTH == 16 && is_small(kind.dtype) && kind.dtype != WEFT_BF16;
    bool is_by_lines = kind.is_by_lines && !is_small(kind.dtype);

    return is_divided || is_long_code ? 1 : is_by_lines ? LINE / WIDTH : BLOCK;
}

/* Bytes per turn. */
INLINE size_t block_len(struct kind kind)
{
    return block_of(kind) * place_of(kind.dtype);
}

/* ---- scales: before the op, and after it ---- */

struct scales {
    double before;     /* 1.0: not */
    double after;      /* of floats; 1.0: not */
    bool is_quotient;  /* divide by it */
    uint32_t integers; /* divide these by it; 0, 1: not */
};

INLINE struct scales scales_of(const struct weft_reduce *what, struct kind kind)
{
    const uint32_t by = what->divide_by;
    struct scales scales = {.before = 1.0, .after = 1.0};

    if (!kind.is_scaled) {
        return scales;
    }
    if (!is_float(kind.dtype)) {
        scales.integers = by;
        return scales;
    }
    scales.before = what->before;
    if (by > 1) { /* a power of two is exact both ways, and multiplying is faster */
        scales.is_quotient = (by & (by - 1)) != 0;
        scales.after = scales.is_quotient ? by : 1.0 / by;
    }
    return scales;
}

INLINE vec times(weft_dtype_t dtype, vec a, double b)
{
    return dtype == WEFT_F64 ? (vec)((vf64)a * b) : (vec)((vf32)a * (float)b);
}

INLINE vec divided(weft_dtype_t dtype, vec a, double b)
{
    return dtype == WEFT_F64 ? (vec)((vf64)a / b) : (vec)((vf32)a / (float)b);
}

INLINE vec scaled_before(struct kind kind, const struct scales *scales, vec value)
{
    return kind.is_scaled && is_float(kind.dtype) ? times(kind.dtype, value, scales->before)
                                                  : value;
}

INLINE vec scaled_after(const struct weft_reduce *what, struct kind kind,
                        const struct scales *scales, vec value)
{
    vec quotients = value;

    if (!kind.is_scaled) {
        return value;
    }
    if (is_float(kind.dtype)) {
        return scales->is_quotient ? divided(kind.dtype, value, scales->after)
                                   : times(kind.dtype, value, scales->after);
    }
    weft_reduce_divide(what->dtype, &quotients, sizeof(quotients), scales->integers);
    return quotients;
}

/* ---- between memory and what is computed with: one step ---- */

INLINE void load(weft_dtype_t dtype, const uint8_t *from, vec *values)
{
    switch (dtype) {
    case WEFT_BF16:
        widen_halves(load_vec(from), &values[0], &values[1]);
        break;
    case WEFT_F16:
        values[0] = widen_lanes16(dtype, load_lanes16(from));
        break;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
        values[0] = widen_lanes8(dtype, load_lanes8(from));
        break;
    default:
        values[0] = load_vec(from);
        break;
    }
}

INLINE void load_few(weft_dtype_t dtype, const uint8_t *from, size_t count, vec *values)
{
    switch (dtype) {
    case WEFT_BF16:
        widen_halves(load_vec_part(from, count, 2), &values[0], &values[1]);
        break;
    case WEFT_F16:
        values[0] = widen_lanes16(dtype, load_lanes16_part(from, count));
        break;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
        values[0] = widen_lanes8(dtype, load_lanes8_part(from, count));
        break;
    default:
        values[0] = load_vec_part(from, count, size_of(dtype));
        break;
    }
}

INLINE void store(weft_dtype_t dtype, uint8_t *to, const vec *values, bool is_streamed)
{
    switch (dtype) {
    case WEFT_BF16:
        store_vec(to, narrow_halves(values[0], values[1]), is_streamed);
        break;
    case WEFT_F16:
        store_lanes16(to, narrow_lanes16(dtype, values[0]), is_streamed);
        break;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
        store_lanes8(to, narrow_lanes8(dtype, values[0]), is_streamed);
        break;
    default:
        store_vec(to, values[0], is_streamed);
        break;
    }
}

INLINE void store_few(weft_dtype_t dtype, uint8_t *to, const vec *values, size_t count)
{
    switch (dtype) {
    case WEFT_BF16:
        store_vec_part(to, narrow_halves(values[0], values[1]), count, 2);
        break;
    case WEFT_F16:
        store_lanes16_part(to, narrow_lanes16(dtype, values[0]), count);
        break;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
        store_lanes8_part(to, narrow_lanes8(dtype, values[0]), count);
        break;
    default:
        store_vec_part(to, values[0], count, size_of(dtype));
        break;
    }
}

/* ---- the pass ---- */

/* What run_block() and run_few() share: the registers of a step meet the sums. */
INLINE void gather(struct kind kind, const struct scales *scales, bool is_first, const vec *values,
                   vec *sums)
{
    UNROLLED
    for (size_t i = 0; i < parts_of(kind.dtype); i++) {
        vec value = scaled_before(kind, scales, values[i]);

        sums[i] = is_first ? value : combine(kind.dtype, kind.op, sums[i], value);
    }
}

INLINE void gather_block(struct kind kind, const struct scales *scales, bool is_first,
                         const uint8_t *from, vec *sums)
{
    vec values[2];

    UNROLLED
    for (size_t i = 0; i < block_of(kind); i += parts_of(kind.dtype)) {
        load(kind.dtype, from + i * place_of(kind.dtype), values);
        gather(kind, scales, is_first, values, sums + i);
    }
}

INLINE void store_block(struct kind kind, uint8_t *to, const vec *sums, bool is_streamed)
{
    if (is_streamed && (uintptr_t)to % LINE == 0 && block_len(kind) % LINE == 0) {
        UNROLLED
        for (size_t i = 0; i < block_of(kind); i += parts_of(kind.dtype)) {
            store(kind.dtype, to + i * place_of(kind.dtype), sums + i, true);
        }
        return;
    }
    UNROLLED
    for (size_t i = 0; i < block_of(kind); i += parts_of(kind.dtype)) {
        store(kind.dtype, to + i * place_of(kind.dtype), sums + i, false);
    }
}

/* A block; `at`: bytes from the beginnings. */
INLINE void run_block(const struct weft_reduce *what, struct kind kind, const struct scales *scales,
                      size_t at)
{
    vec sums[BLOCK];

    gather_block(kind, scales, true, (const uint8_t *)what->source[0] + at, sums);
    for (uint32_t s = 1; s < what->sources; s++) {
        gather_block(kind, scales, false, (const uint8_t *)what->source[s] + at, sums);
    }
    UNROLLED
    for (size_t i = 0; i < block_of(kind); i++) {
        sums[i] = scaled_after(what, kind, scales, sums[i]);
    }
    for (uint32_t o = 0; o < what->outputs; o++) {
        store_block(kind, (uint8_t *)what->output[o] + at, sums, what->is_streamed);
    }
}

/* The same for count elements, of one step or less. */
INLINE void run_few(const struct weft_reduce *what, struct kind kind, const struct scales *scales,
                    size_t at, size_t count)
{
    vec sums[2], values[2];

    load_few(kind.dtype, (const uint8_t *)what->source[0] + at, count, values);
    gather(kind, scales, true, values, sums);
    for (uint32_t s = 1; s < what->sources; s++) {
        load_few(kind.dtype, (const uint8_t *)what->source[s] + at, count, values);
        gather(kind, scales, false, values, sums);
    }
    UNROLLED
    for (size_t i = 0; i < parts_of(kind.dtype); i++) {
        sums[i] = scaled_after(what, kind, scales, sums[i]);
    }
    for (uint32_t o = 0; o < what->outputs; o++) {
        store_few(kind.dtype, (uint8_t *)what->output[o] + at, sums, count);
    }
}

/* Bytes up to the next line of output 0; 0 if no element begins there. */
INLINE size_t head_len(const struct weft_reduce *what, size_t len)
{
    size_t head = -(uintptr_t)what->output[0] % LINE;

    return (head & (weft_dtype_size(what->dtype) - 1)) != 0 ? 0 : head < len ? head : len;
}

/* As many whole blocks as there are. Returns where they end. */
INLINE size_t run_blocks(const struct weft_reduce *what, struct kind kind,
                         const struct scales *scales, size_t at, size_t len)
{
    const size_t block = block_len(kind);

    for (; len - at >= block; at += block) {
        run_block(what, kind, scales, at);
    }
    return at;
}

/* One word, as the shortest calls have: no masks, and nothing to find out. */
INLINE void run_word(const struct weft_reduce *what, struct kind kind)
{
    vec sum = load_word(what->source[0]);

    for (uint32_t s = 1; s < what->sources; s++) {
        sum = combine(kind.dtype, kind.op, sum, load_word(what->source[s]));
    }
    for (uint32_t o = 0; o < what->outputs; o++) {
        store_word(what->output[o], sum);
    }
}

INLINE void run(const struct weft_reduce *call, size_t len, struct kind kind)
{
    /* A copy: no store can change it, so that the loops keep it in registers. */
    const struct weft_reduce copy = *call, *what = &copy;
    const struct scales scales = scales_of(what, kind);
    const struct kind by_lines = {kind.dtype, kind.op, kind.is_scaled, true};
    const bool is_short =
        len < LINES_LEN || what->sources > LINES_SOURCES || block_len(by_lines) == block_len(kind);
    const size_t step = parts_of(kind.dtype) * place_of(kind.dtype);
    size_t at = 0, stop = len;

    if (len >= block_len(kind)) {
        stop = what->is_streamed || len >= ALIGN_LEN ? head_len(what, len) : 0;
    }
    for (;;) {
        while (at < stop) {
            size_t few = stop - at < step ? stop - at : step;

            run_few(what, kind, &scales, at, few / size_of(kind.dtype));
            at += few;
        }
        if (at == len) {
            break;
        }
        at = is_short ? run_blocks(what, kind, &scales, at, len)
                      : run_blocks(what, by_lines, &scales, at, len);
        stop = len;
    }
    if (what->is_streamed) {
        stream_end();
    }
}

INLINE void widen(weft_dtype_t dtype, const uint8_t *from, float *to, size_t count)
{
    const size_t lanes = lanes_of(dtype), size = size_of(dtype);

    for (; count >= lanes; from += lanes * size, to += lanes, count -= lanes) {
        vec value = size == 2 ? widen_lanes16(dtype, load_lanes16(from))
                              : widen_lanes8(dtype, load_lanes8(from));
        store_vec((uint8_t *)to, value, false);
    }
    if (count > 0) {
        vec value = size == 2 ? widen_lanes16(dtype, load_lanes16_part(from, count))
                              : widen_lanes8(dtype, load_lanes8_part(from, count));
        store_vec_part((uint8_t *)to, value, count, sizeof(float));
    }
}

INLINE void narrow(weft_dtype_t dtype, const float *from, uint8_t *to, size_t count)
{
    const size_t lanes = lanes_of(dtype), size = size_of(dtype);

    for (; count >= lanes; from += lanes, to += lanes * size, count -= lanes) {
        vec value = load_vec((const uint8_t *)from);

        if (size == 2) {
            store_lanes16(to, narrow_lanes16(dtype, value), false);
        } else {
            store_lanes8(to, narrow_lanes8(dtype, value), false);
        }
    }
    if (count > 0) {
        vec value = load_vec_part((const uint8_t *)from, count, sizeof(float));

        if (size == 2) {
            store_lanes16_part(to, narrow_lanes16(dtype, value), count);
        } else {
            store_lanes8_part(to, narrow_lanes8(dtype, value), count);
        }
    }
}

/* ---- one function for each pair that is computed differently ---- */

/* The long part apart: what it keeps in registers would be saved for every word, too. */
#define KERNEL_OF(name, computed, op, size)                                                        \
    static __attribute__((noinline)) void long_##name(const struct weft_reduce *what, size_t len)  \
    {                                                                                              \
        run(what, len, (struct kind){WEFT_##computed, WEFT_##op, false, false});                   \
    }                                                                                              \
    static void name(const struct weft_reduce *what, size_t count)                                 \
    {                                                                                              \
        const size_t len = count * (size);                                                         \
                                                                                                   \
        if (len == sizeof(uint64_t) && !is_small(WEFT_##computed)) {                               \
            run_word(what, (struct kind){WEFT_##computed, WEFT_##op, false, false});               \
        } else {                                                                                   \
            long_##name(what, len);                                                                \
        }                                                                                          \
    }
#define KERNEL(op, dtype) KERNEL_OF(op##_##dtype, dtype, op, size_of(WEFT_##dtype))
#define BIT_KERNEL(op) KERNEL_OF(op##_bits, U8, op, weft_dtype_size(what->dtype))
/* A sum may be scaled. Two functions, so that the plain one is short and quick for a few elements. */
#define SUM_KERNEL(dtype)                                                                          \
    KERNEL_OF(plain_##dtype, dtype, SUM, size_of(WEFT_##dtype))                                    \
    static __attribute__((noinline)) void scaled_##dtype(const struct weft_reduce *what,           \
                                                         size_t count)                             \
    {                                                                                              \
        run(what, count *size_of(WEFT_##dtype),                                                    \
            (struct kind){WEFT_##dtype, WEFT_SUM, true, false});                                   \
    }                                                                                              \
    static void SUM_##dtype(const struct weft_reduce *what, size_t count)                          \
    {                                                                                              \
        if (what->divide_by > 1 || (is_float(WEFT_##dtype) && what->before != 1.0)) {              \
            scaled_##dtype(what, count);                                                           \
        } else {                                                                                   \
            plain_##dtype(what, count);                                                            \
        }                                                                                          \
    }

/* Sums and products of signed and unsigned integers have the same bits. */
#define INTEGER_KERNELS(signed_dtype, unsigned_dtype)                                              \
    SUM_KERNEL(unsigned_dtype)                                                                     \
    KERNEL(PROD, unsigned_dtype)                                                                   \
    KERNEL(MIN, unsigned_dtype)                                                                    \
    KERNEL(MAX, unsigned_dtype)                                                                    \
    KERNEL(MIN, signed_dtype)                                                                      \
    KERNEL(MAX, signed_dtype)
#define FLOAT_KERNELS(dtype)                                                                       \
    SUM_KERNEL(dtype)                                                                              \
    KERNEL(PROD, dtype)                                                                            \
    KERNEL(MIN, dtype)                                                                             \
    KERNEL(MAX, dtype)
#define SMALL_KERNELS(dtype)                                                                       \
    FLOAT_KERNELS(dtype)                                                                           \
    static void widen_##dtype(const void *from, float *to, size_t count)                           \
    {                                                                                              \
        widen(WEFT_##dtype, from, to, count);                                                      \
    }                                                                                              \
    static void narrow_##dtype(const float *from, void *to, size_t count)                          \
    {                                                                                              \
        narrow(WEFT_##dtype, from, to, count);                                                     \
    }

INTEGER_KERNELS(I8, U8)
INTEGER_KERNELS(I16, U16)
INTEGER_KERNELS(I32, U32)
INTEGER_KERNELS(I64, U64)
BIT_KERNEL(BAND)
BIT_KERNEL(BOR)
BIT_KERNEL(BXOR)
SMALL_KERNELS(F16)
SMALL_KERNELS(BF16)
FLOAT_KERNELS(F32)
FLOAT_KERNELS(F64)
SMALL_KERNELS(F8E4M3)
SMALL_KERNELS(F8E5M2)

/* Columns in the order of WEFT_REDOP_LIST, rows in that of WEFT_DTYPE_LIST. */
#define INTEGER_ROW(dtype, unsigned_dtype)                                                         \
    {                                                                                              \
        SUM_##unsigned_dtype, PROD_##unsigned_dtype, MIN_##dtype, MAX_##dtype,                     \
            SUM_##unsigned_dtype, BAND_bits, BOR_bits, BXOR_bits, NULL                             \
    }
#define FLOAT_ROW(dtype)                                                                           \
    {                                                                                              \
        SUM_##dtype, PROD_##dtype, MIN_##dtype, MAX_##dtype, SUM_##dtype, NULL, NULL, NULL,        \
            SUM_##dtype                                                                            \
    }
#define NO_INTEGERS NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL

const struct weft_reduce_kernels KERNELS = {
    .name = ISA,
    .run = {INTEGER_ROW(I8, U8), INTEGER_ROW(U8, U8), INTEGER_ROW(I16, U16), INTEGER_ROW(U16, U16),
            INTEGER_ROW(I32, U32), INTEGER_ROW(U32, U32), INTEGER_ROW(I64, U64),
            INTEGER_ROW(U64, U64), FLOAT_ROW(F16), FLOAT_ROW(BF16), FLOAT_ROW(F32), FLOAT_ROW(F64),
            FLOAT_ROW(F8E4M3), FLOAT_ROW(F8E5M2)},
    .widen = {NO_INTEGERS, widen_F16, widen_BF16, NULL, NULL, widen_F8E4M3, widen_F8E5M2},
    .narrow = {NO_INTEGERS, narrow_F16, narrow_BF16, NULL, NULL, narrow_F8E4M3, narrow_F8E5M2},
};

#endif
