/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the kernels this machine can run, once, and the one a call needs. */
#include "reduce/internal.h"

#include <assert.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

static bool has_f16c(void) /* a name that not every compiler's __builtin_cpu_supports() knows */
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

/* The index-th best; NULL: there are no more. */
static const struct weft_reduce_kernels *kernels_at(unsigned index)
{
    const struct weft_reduce_kernels *usable[3];
    unsigned count = 0;

#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        usable[count++] = &weft_reduce_avx512;
    }
    if (__builtin_cpu_supports("avx2") && has_f16c()) {
        usable[count++] = &weft_reduce_avx2;
    }
#endif
    usable[count++] = &weft_reduce_scalar;
    return index < count ? usable[index] : NULL;
}

static _Atomic(const struct weft_reduce_kernels *) chosen;

static __attribute__((noinline)) const struct weft_reduce_kernels *choose(void)
{
    const struct weft_reduce_kernels *best = kernels_at(0); /* every thread finds the same */

    atomic_store_explicit(&chosen, best, memory_order_relaxed);
    return best;
}

static inline const struct weft_reduce_kernels *kernels(void)
{
    const struct weft_reduce_kernels *known = atomic_load_explicit(&chosen, memory_order_relaxed);

    return __builtin_expect(known != NULL, 1) ? known : choose();
}

/* AddressSanitizer does not look into the kernels (CMakeLists.txt; it would not see loads under a mask
 * either). So whole vectors are shown to it here: a bad byte, if there is one, is read, which it reports. */
#if defined(__SANITIZE_ADDRESS__) /* gcc */
#define IS_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) /* clang */
#define IS_SANITIZED
#endif
#endif

#if defined(IS_SANITIZED)
#include <sanitizer/asan_interface.h>

static void check_vector(const void *vector, size_t len)
{
    const volatile char *bad = __asan_region_is_poisoned((void *)(uintptr_t)vector, len);

    if (bad) {
        (void)*bad;
    }
}

static void check_vectors(const struct weft_reduce *what, size_t count)
{
    size_t len = count * weft_dtype_size(what->dtype);

    for (uint32_t s = 0; s < what->sources; s++) {
        check_vector(what->source[s], len);
    }
    for (uint32_t o = 0; o < what->outputs; o++) {
        check_vector(what->output[o], len);
    }
}
#else
static inline void check_vectors(const struct weft_reduce *what, size_t count)
{
    (void)what;
    (void)count;
}
#endif

void weft_reduce_run(const struct weft_reduce *what, size_t count)
{
    weft_reduce_kernel *kernel = kernels()->run[what->dtype][what->op];

    assert(kernel && what->sources - 1 < WEFT_REDUCE_SOURCES && what->outputs >= 1);
    check_vectors(what, count);
    kernel(what, count);
}

void weft_reduce_widen(weft_dtype_t dtype, const void *from, float *to, size_t count)
{
    assert(kernels()->widen[dtype]);
    kernels()->widen[dtype](from, to, count);
}

void weft_reduce_narrow(weft_dtype_t dtype, const float *from, void *to, size_t count)
{
    assert(kernels()->narrow[dtype]);
    kernels()->narrow[dtype](from, to, count);
}

const char *weft_reduce_isa(void)
{
    return kernels()->name;
}

bool weft_reduce_set_isa(const char *name)
{
    const struct weft_reduce_kernels *known;

    if (!name) {
        choose();
        return true;
    }
    for (unsigned i = 0; (known = kernels_at(i)); i++) {
        if (strcmp(known->name, name) == 0) {
            atomic_store_explicit(&chosen, known, memory_order_relaxed);
            return true;
        }
    }
    return false;
}
