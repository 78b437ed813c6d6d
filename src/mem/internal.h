/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of mem tell each other. */
#ifndef WEFT_MEM_INTERNAL_H
#define WEFT_MEM_INTERNAL_H

#include "mem/mem.h"

/* Bytes that this process could get at most, by what the host has left and what its cgroups allow;
 * UINT64_MAX when the system does not say. (system.c) */
uint64_t weft_mem_obtainable(void);

/* copy.c: the ways to copy, for one width of register. */
typedef void weft_mem_copy_function(uint8_t *to, const uint8_t *from, size_t len);
struct weft_mem_kernels {
    const char *name;
    weft_mem_copy_function *fetch, *stream, *fetch_stream;
};
/* Those this CPU can run, best first; NULL: no more. weft_mem_copy() takes the first, tests all. */
const struct weft_mem_kernels *weft_mem_kernels_at(unsigned index);

#endif
