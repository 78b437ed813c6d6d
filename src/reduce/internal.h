/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of kernels per instruction set. scalar.c, avx2.c and avx512.c are the same source (kernels.h)
 * compiled for registers of 16, 32 and 64 bytes; run.c chooses.
 */
#ifndef WEFT_REDUCE_INTERNAL_H
#define WEFT_REDUCE_INTERNAL_H

#include "reduce/reduce.h"

typedef void weft_reduce_kernel(const struct weft_reduce *what, size_t count);
typedef void weft_reduce_widener(const void *from, float *to, size_t count);
typedef void weft_reduce_narrower(const float *from, void *to, size_t count);

struct weft_reduce_kernels {
    const char *name;
    weft_reduce_kernel *run[WEFT_DTYPES][WEFT_REDOPS]; /* NULL: not defined */
    weft_reduce_widener *widen[WEFT_DTYPES];           /* NULL: not f16, bf16, f8 */
    weft_reduce_narrower *narrow[WEFT_DTYPES];
};

extern const struct weft_reduce_kernels weft_reduce_scalar;
#if defined(__x86_64__)
extern const struct weft_reduce_kernels weft_reduce_avx2, weft_reduce_avx512;
#endif

/* Divides len bytes of integers, towards zero. */
void weft_reduce_divide(weft_dtype_t dtype, void *integers, size_t len, uint32_t by);

#endif
