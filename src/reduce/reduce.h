/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce: kernels that combine vectors: every dtype × op, several inputs and several outputs in one pass.
 * Memory in, memory out; knows no plans, no ranks.
 */
#ifndef WEFT_REDUCE_H
#define WEFT_REDUCE_H

#include "base/base.h"

#define WEFT_REDUCE_SOURCES 64 /* in one pass; more are folded by several passes of the caller */

/*
 * out = (source 0 · before) op (source 1 · before) op …, in this order; then divided. So the same sources
 * give the same bits on every machine and with every instruction set; only which NaN a NaN is may differ.
 *
 * Integers wrap around, and are divided towards zero. f16, bf16 and f8 are computed in f32 and rounded once
 * at the end, to nearest even: what is too large becomes infinity; in f8e4m3, which has none, NaN (0x7f).
 * min and max: a NaN wins; -0 is less than +0.
 */
struct weft_reduce {
    weft_dtype_t dtype;
    weft_redop_t op;    /* AVG and SCALED are sums here; what they add is in the two scales */
    uint32_t divide_by; /* sums only; 0, 1: not */
    double before;      /* sums of floats only; 1.0: not. Multiplied in f32 (f64 for f64). */
    bool is_streamed;   /* stores go around the cache; fenced at the end */
    uint32_t sources, outputs; /* ≥ 1 each; an output may be one of the sources, exactly */
    const void *const *source; /* [sources] */
    void *const *output;       /* [outputs] */
};
/* count elements; any alignment. */
void weft_reduce_run(const struct weft_reduce *what, size_t count);
/* Is this pair defined? (bitwise ops of floats, scaled of integers are not) */
bool weft_reduce_is_defined(weft_dtype_t dtype, weft_redop_t op);
/* f16, bf16, f8 ↔ f32, elementwise (WEFT_ACC=f32). Exact, and as the results of weft_reduce_run(). A NaN
 * stays one: of f8 always 0x7f or 0xff, of the others quiet with what fits of its other bits. */
void weft_reduce_widen(weft_dtype_t dtype, const void *from, float *to, size_t count);
void weft_reduce_narrow(weft_dtype_t dtype, const float *from, void *to, size_t count);
/* "avx512", "avx2", "scalar": what this machine runs; set (NULL: the best) for tests and benchmarks. */
const char *weft_reduce_isa(void);
bool weft_reduce_set_isa(const char *name);

#endif
