/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce: kernels that combine vectors: every dtype × op, several inputs and several outputs in one pass.
 * Memory in, memory out; knows no plans, no ranks.
 */
#ifndef WEFT_REDUCE_H
#define WEFT_REDUCE_H

#include "base/base.h"

#define WEFT_REDUCE_SOURCES 64 /* in one pass; more are folded by several passes of the caller */

struct weft_reduce {
    weft_dtype_t dtype;
    weft_redop_t op; /* AVG and SCALED are sums here; what they add is in the two scales */
    /* out = (source 0 · before) op (source 1 · before) op …, in this order; then, if divide_by > 1, divided
     * (integers: towards zero). f16, bf16, f8: computed in f32, rounded once at the end (to nearest even). */
    uint32_t divide_by;        /* 0, 1: not */
    double before;             /* floats only; 1.0: not. Multiplied in f32 (f64 for f64). */
    bool is_streamed;          /* stores go around the cache; fenced at the end */
    uint32_t sources, outputs; /* ≥ 1 each; an output may be one of the sources, exactly */
    const void *const *source; /* [sources] */
    void *const *output;       /* [outputs] */
};
/* count elements; any alignment. */
void weft_reduce_run(const struct weft_reduce *what, size_t count);
/* Is this pair defined? (bitwise ops of floats, scaled of integers are not) */
bool weft_reduce_is_defined(weft_dtype_t dtype, weft_redop_t op);
/* f16, bf16, f8 ↔ f32, elementwise (WEFT_ACC=f32). */
void weft_reduce_widen(weft_dtype_t dtype, const void *from, float *to, size_t count);
void weft_reduce_narrow(weft_dtype_t dtype, const float *from, void *to, size_t count);
/* "avx512", "avx2", "scalar": what this machine runs; set (NULL: the best) for tests and benchmarks. */
const char *weft_reduce_isa(void);
bool weft_reduce_set_isa(const char *name);

#endif
