/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying long pieces of memory. One loop, made for three widths of register and compiled for each
 * way to copy; the widest the CPU has is chosen once, at the first copy.
 *
 * Stores around the cache must fill whole lines: a line written in part is read from memory first,
 * which costs more than such stores save. So the head up to the destination's next line and the tail
 * after its last go through memcpy(). Loads may be unaligned; nothing is read beyond the source, and
 * nothing beyond it is prefetched, where lines that somebody else is writing may lie.
 *
 * What pays, on a CPU whose cores share a cache: storing into lines that another core has read is
 * four times as fast around the cache (34 against 9 GB/s), storing more than the cache holds half as
 * fast again (21 against 14), everything else half as fast; fetching ahead changes nothing there.
 *
 * Stores around the cache are not ordered with later stores, hence the fence at the end: who then
 * sets a flag may rely on it.
 */
#include "mem/internal.h"

#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define LINE ((size_t)64)
#define BLOCK (4 * LINE)         /* copied per turn */
#define AHEAD ((size_t)4096)     /* how far loads are prefetched */
#define WORTH_LEN ((size_t)1024) /* below, memcpy() is as good */

/* copy_<isa>() and the three ways to call it. The compiler sees is_fetch and is_stream as
 * constants. */
#define DEFINE_KERNELS(isa, isa_target, vector, load, store, stream)                               \
    __attribute__((target(isa_target), always_inline)) static inline void copy_##isa(              \
        uint8_t *to, const uint8_t *from, size_t len, bool is_fetch, bool is_stream)               \
    {                                                                                              \
        size_t head = (LINE - (uintptr_t)to % LINE) % LINE;                                        \
        if (len < WORTH_LEN) {                                                                     \
            memcpy(to, from, len);                                                                 \
            return;                                                                                \
        }                                                                                          \
        memcpy(to, from, head);                                                                    \
        to += head, from += head, len -= head;                                                     \
        for (; len >= BLOCK; to += BLOCK, from += BLOCK, len -= BLOCK) {                           \
            if (is_fetch && len >= AHEAD + BLOCK) {                                                \
                for (size_t i = 0; i < BLOCK; i += LINE) {                                         \
                    _mm_prefetch((const char *)from + AHEAD + i, _MM_HINT_T0);                     \
                }                                                                                  \
            }                                                                                      \
            for (size_t i = 0; i < BLOCK; i += LINE) {                                             \
                vector words[LINE / sizeof(vector)];                                               \
                for (size_t j = 0; j < LINE / sizeof(vector); j++) {                               \
                    words[j] = load((const void *)(from + i + j * sizeof(vector)));                \
                }                                                                                  \
                for (size_t j = 0; j < LINE / sizeof(vector); j++) {                               \
                    if (is_stream) {                                                               \
                        stream((void *)(to + i + j * sizeof(vector)), words[j]);                   \
                    } else {                                                                       \
                        store((void *)(to + i + j * sizeof(vector)), words[j]);                    \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        memcpy(to, from, len);                                                                     \
        if (is_stream) {                                                                           \
            _mm_sfence();                                                                          \
        }                                                                                          \
    }                                                                                              \
    __attribute__((target(isa_target))) static void fetch_##isa(uint8_t *to, const uint8_t *from,  \
                                                                size_t len)                        \
    {                                                                                              \
        copy_##isa(to, from, len, true, false);                                                    \
    }                                                                                              \
    __attribute__((target(isa_target))) static void stream_##isa(uint8_t *to, const uint8_t *from, \
                                                                 size_t len)                       \
    {                                                                                              \
        copy_##isa(to, from, len, false, true);                                                    \
    }                                                                                              \
    __attribute__((target(isa_target))) static void fetch_stream_##isa(                            \
        uint8_t *to, const uint8_t *from, size_t len)                                              \
    {                                                                                              \
        copy_##isa(to, from, len, true, true);                                                     \
    }                                                                                              \
    static const struct weft_mem_kernels kernels_##isa = {#isa, fetch_##isa, stream_##isa,         \
                                                          fetch_stream_##isa};

DEFINE_KERNELS(sse2, "sse2", __m128i, _mm_loadu_si128, _mm_store_si128, _mm_stream_si128)
DEFINE_KERNELS(avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_stream_si256)
DEFINE_KERNELS(avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_store_si512,
               _mm512_stream_si512)

const struct weft_mem_kernels *weft_mem_kernels_at(unsigned index)
{
    const struct weft_mem_kernels *usable[3];
    unsigned count = 0;

    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        usable[count++] = &kernels_avx512;
    }
    if (__builtin_cpu_supports("avx2")) {
        usable[count++] = &kernels_avx2;
    }
    usable[count++] = &kernels_sse2;
    return index < count ? usable[index] : NULL;
}

#else

/* aarch64: the C library's copy, until something else has been measured there. */
static void plain(uint8_t *to, const uint8_t *from, size_t len)
{
    memcpy(to, from, len);
}

const struct weft_mem_kernels *weft_mem_kernels_at(unsigned index)
{
    static const struct weft_mem_kernels kernels_plain = {"plain", plain, plain, plain};

    return index == 0 ? &kernels_plain : NULL;
}

#endif

static const struct weft_mem_kernels *kernels(void)
{
    static _Atomic(const struct weft_mem_kernels *) chosen; /* every thread would choose the same */
    const struct weft_mem_kernels *known = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (!known) {
        known = weft_mem_kernels_at(0);
        atomic_store_explicit(&chosen, known, memory_order_relaxed);
    }
    return known;
}

void weft_mem_copy(void *to, const void *from, size_t len, enum weft_mem_copy how)
{
    if (len == 0) { /* then even NULL is fine, which memcpy() does not promise */
        return;
    }
    switch (how) {
    case WEFT_COPY_STREAM:
        kernels()->stream(to, from, len);
        break;
    case WEFT_COPY_FETCH:
        kernels()->fetch(to, from, len);
        break;
    case WEFT_COPY_FETCH_STREAM:
        kernels()->fetch_stream(to, from, len);
        break;
    case WEFT_COPY_PLAIN:
    default:
        memcpy(to, from, len);
        break;
    }
}
