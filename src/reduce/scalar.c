/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in what every machine of the architecture has: SSE2, NEON. */
#define WIDTH 16
#define ISA "scalar"
#define KERNELS weft_reduce_scalar
#include "reduce/kernels.h"
