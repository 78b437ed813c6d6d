/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in AVX-512 F, BW, DQ and VL; compiled with their flags (CMakeLists.txt). */
#if defined(__x86_64__)
#define WIDTH 64
#define ISA "avx512"
#define KERNELS weft_reduce_avx512
#include "reduce/kernels.h"
#endif
