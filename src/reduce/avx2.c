/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in AVX2 and F16C; compiled with their flags (CMakeLists.txt). */
#if defined(__x86_64__)
#define WIDTH 32
#define ISA "avx2"
#define KERNELS weft_reduce_avx2
#include "reduce/kernels.h"
#endif
