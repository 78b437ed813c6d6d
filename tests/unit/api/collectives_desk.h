/* SPDX-License-Identifier: Apache-2.0 */
/* Where the memory of a test's collective comes from: every kind that a user may have. */
#ifndef WEFT_TESTS_API_COLLECTIVES_DESK_H
#define WEFT_TESTS_API_COLLECTIVES_DESK_H

#include "weft/weft.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum memory {
    MEMORY_PRIVATE,
    MEMORY_SHARED,    /* weft_alloc() */
    MEMORY_FILE,      /* a mapped file, shared with nobody */
    MEMORY_READ_ONLY, /* as PRIVATE, but inputs may not even be looked at with a pen in the hand */
    MEMORIES
};

/* Room for the input and the output of one call. */
struct desk {
    enum memory in_kind, out_kind;
    size_t len; /* of each */
    uint8_t *in, *out;
    uint8_t *in_image, *out_image; /* what they must be in the end */
};

static inline uint8_t *desk_take(enum memory kind, size_t len)
{
    void *memory = MAP_FAILED;
    int fd;
    switch (kind) {
    case MEMORY_SHARED:
        if (weft_alloc(len, &memory) != WEFT_OK) {
            abort();
        }
        break;
    case MEMORY_FILE:
        fd = memfd_create("desk", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, (off_t)len) == 0) {
            memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        }
        close(fd);
        break;
    default:
        memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED) {
        abort();
    }
    return memory;
}

static inline void desk_return(enum memory kind, uint8_t *memory, size_t len)
{
    if (kind == MEMORY_SHARED) {
        weft_free(memory);
    } else {
        munmap(memory, len);
    }
}

static inline void desk_open(struct desk *desk, size_t len, enum memory in_kind,
                             enum memory out_kind)
{
    *desk = (struct desk){in_kind, out_kind, len, NULL, NULL, NULL, NULL};
    desk->in = desk_take(in_kind, len);
    desk->out = desk_take(out_kind, len);
    desk->in_image = desk_take(MEMORY_PRIVATE, len);
    desk->out_image = desk_take(MEMORY_PRIVATE, len);
}

static inline void desk_close(struct desk *desk)
{
    desk_return(desk->in_kind, desk->in, desk->len);
    desk_return(desk->out_kind, desk->out, desk->len);
    desk_return(MEMORY_PRIVATE, desk->in_image, desk->len);
    desk_return(MEMORY_PRIVATE, desk->out_image, desk->len);
}

#endif
