/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   | gap, with its head at the end | block | gap, head | block | … | poison to the end
 *
 * This file is compiled without sanitizers, since heads lie in poison, and without the compiler's own idea of
 * memcpy(), which AddressSanitizer would take for its: copies here go over poison, too.
 */
#include "arena.h"

#include <sanitizer/asan_interface.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ROOM ((size_t)1 << 20) /* an input that needs more gets it of malloc() */
#define ALIGN ((size_t)64)
#define PAGE ((size_t)4096)
#define GAP ((size_t)64)
#define FILL 0xbe /* what was never written, as AddressSanitizer has it */
#define FILL_MAX 4096

enum { LIVE = 0x4c495645, FREED = 0x46524545 };

struct head {
    size_t len;
    uint32_t state;
    uint32_t zero;
};

static struct {
    _Alignas(PAGE) uint8_t memory[ROOM], kept[ROOM];
    uint8_t kept_shadow[ROOM / 8];
    size_t used, live, kept_used, kept_live;
    bool is_open;
} arena;

void *__real_malloc(size_t len);
void *__real_calloc(size_t count, size_t len);
void *__real_realloc(void *block, size_t len);
void *__real_aligned_alloc(size_t align, size_t len);
void __real_free(void *block);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t count, size_t len);
void *__wrap_realloc(void *block, size_t len);
void *__wrap_reallocarray(void *block, size_t count, size_t len);
void *__wrap_aligned_alloc(size_t align, size_t len);
int __wrap_vasprintf(char **text_p, const char *fmt, va_list args);
void __wrap_free(void *block);

/* ---- without sanitizers ---- */

/* Whole words: lengths are rounded up, and there is room. */
static void copy(void *to, const void *from, size_t len)
{
    uint64_t *into = to;
    const uint64_t *out = from;
    for (size_t i = 0; i < (len + 7) / 8; i++) {
        into[i] = out[i];
    }
}

static void fill(void *to, uint8_t byte, size_t len)
{
    uint64_t *into = to;
    for (size_t i = 0; i < (len + 7) / 8; i++) {
        into[i] = byte * UINT64_C(0x0101010101010101);
    }
}

static uint8_t *shadow(void)
{
    size_t scale, offset;
    __asan_get_shadow_mapping(&scale, &offset);
    return (uint8_t *)(((uintptr_t)arena.memory >> scale) + offset);
}

static bool is_ours(const void *block)
{
    uintptr_t at = (uintptr_t)block, begin = (uintptr_t)arena.memory;
    return at >= begin && at < begin + ROOM;
}

static struct head *head_of(void *block)
{
    return (struct head *)block - 1;
}

/* ---- blocks ---- */

/* align: at least ALIGN, up to a page. NULL: it is closed, or full. */
static void *take(size_t align, size_t len)
{
    size_t at = (arena.used + GAP + align - 1) & ~(align - 1);
    uint8_t *block = arena.memory + at;
    if (!arena.is_open || len > ROOM || at + len + GAP > ROOM) {
        return NULL;
    }
    *head_of(block) = (struct head){.len = len, .state = LIVE};
    arena.used = at + len;
    arena.live++;
    __asan_unpoison_memory_region(block, len);
    return block;
}

static void give(void *block)
{
    struct head *head = head_of(block);
    if (((uintptr_t)block & (ALIGN - 1)) != 0 || head->state != LIVE) {
        fprintf(stderr, "free(%p): %s\n", block,
                head->state == FREED ? "it was freed before" : "no block begins there");
        abort();
    }
    head->state = FREED;
    arena.live--;
    __asan_poison_memory_region(block, head->len);
}

static void *take_filled(size_t align, size_t len)
{
    void *block = take(align, len);
    if (block != NULL) {
        fill(block, FILL, len < FILL_MAX ? len : FILL_MAX);
    }
    return block;
}

void *__wrap_malloc(size_t len)
{
    void *block = take_filled(ALIGN, len);
    return block != NULL ? block : __real_malloc(len);
}

void *__wrap_calloc(size_t count, size_t len)
{
    size_t all;
    void *block = __builtin_mul_overflow(count, len, &all) ? NULL : take(ALIGN, all);
    if (block == NULL) {
        return __real_calloc(count, len);
    }
    fill(block, 0, all);
    return block;
}

void *__wrap_aligned_alloc(size_t align, size_t len)
{
    void *block = align <= PAGE ? take_filled(align > ALIGN ? align : ALIGN, len) : NULL;
    return block != NULL ? block : __real_aligned_alloc(align, len);
}

void *__wrap_realloc(void *block, size_t len)
{
    void *grown;
    if (block == NULL) {
        return __wrap_malloc(len);
    }
    if (!is_ours(block)) {
        return __real_realloc(block, len);
    }
    grown = __wrap_malloc(len);
    if (grown != NULL) {
        size_t was = head_of(block)->len;
        copy(grown, block, was < len ? was : len);
        give(block);
    }
    return grown;
}

void *__wrap_reallocarray(void *block, size_t count, size_t len)
{
    size_t all;
    return __builtin_mul_overflow(count, len, &all) ? NULL : __wrap_realloc(block, all);
}

void __wrap_free(void *block)
{
    if (is_ours(block)) {
        give(block);
    } else {
        __real_free(block);
    }
}

/* The C library's would take it from malloc() in two steps. */
int __wrap_vasprintf(char **text_p, const char *fmt, va_list args)
{
    _Alignas(8) char text[1024];
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(text, sizeof(text), fmt, args);
    char *block = len >= 0 ? __wrap_malloc((size_t)len + 1) : NULL;
    if (block != NULL && (size_t)len < sizeof(text)) {
        copy(block, text, (size_t)len + 1);
    } else if (block != NULL) {
        vsnprintf(block, (size_t)len + 1, fmt, again);
    }
    va_end(again);
    *text_p = block;
    return block != NULL ? len : -1;
}

/* ---- the arena ---- */

bool arena_open(void)
{
    arena.is_open = getenv("WEFT_FUZZ_MALLOC") == NULL;
    if (arena.is_open) {
        __asan_poison_memory_region(arena.memory, ROOM);
    }
    return arena.is_open;
}

void arena_keep(void)
{
    arena.kept_used = arena.used;
    arena.kept_live = arena.live;
    copy(arena.kept, arena.memory, arena.used);
    copy(arena.kept_shadow, shadow(), arena.used / 8 + 1);
}

void arena_restore(void)
{
    size_t begin = (arena.kept_used / 8 + 1) * 8;
    if (arena.used > begin) {
        __asan_poison_memory_region(arena.memory + begin, arena.used - begin);
    }
    copy(arena.memory, arena.kept, arena.kept_used);
    copy(shadow(), arena.kept_shadow, arena.kept_used / 8 + 1);
    arena.used = arena.kept_used;
    arena.live = arena.kept_live;
}

size_t arena_live(void)
{
    return arena.live;
}
