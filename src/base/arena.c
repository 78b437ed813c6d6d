/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena is a chain of blocks; pieces are cut off the head block. A piece that does not fit an
 * empty block gets one of its own, hung behind the head, so that the head's rest stays in use.
 */
#include "base/base.h"

#include <stdalign.h>
#include <stdlib.h>

#define PIECE_ALIGN ((size_t)16)

struct weft_arena_block {
    struct weft_arena_block *next; /* owned */
    size_t used, len;
    alignas(16) unsigned char bytes[];
};

static struct weft_arena_block *block_open(size_t len)
{
    struct weft_arena_block *block;

    if (len > SIZE_MAX - sizeof(*block)) {
        return NULL;
    }
    block = calloc(1, sizeof(*block) + len);
    if (block) {
        block->len = len;
    }
    return block;
}

void weft_arena_open(struct weft_arena *arena, size_t block_len)
{
    arena->head = NULL;
    arena->block_len = block_len;
}

void *weft_arena_take(struct weft_arena *arena, size_t len)
{
    struct weft_arena_block *block = arena->head;

    if (len > SIZE_MAX - PIECE_ALIGN) {
        return NULL;
    }
    len = len == 0 ? PIECE_ALIGN : (len + PIECE_ALIGN - 1) & ~(PIECE_ALIGN - 1);
    if (!block || len > block->len - block->used) {
        block = block_open(len > arena->block_len ? len : arena->block_len);
        if (!block) {
            return NULL;
        }
        if (arena->head && len > arena->block_len) {
            block->next = arena->head->next;
            arena->head->next = block;
        } else {
            block->next = arena->head;
            arena->head = block;
        }
    }
    block->used += len;
    return block->bytes + block->used - len;
}

void weft_arena_close(struct weft_arena *arena)
{
    while (arena->head) {
        struct weft_arena_block *block = arena->head;

        arena->head = block->next;
        free(block);
    }
}
