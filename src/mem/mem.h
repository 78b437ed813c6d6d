/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem: memory as it crosses rooms. Slices, memory shared between processes of one host, copying by
 * the kernel that suits. Knows no peers, no engine.
 */
#ifndef WEFT_MEM_H
#define WEFT_MEM_H

#include "base/base.h"

#include <assert.h>
#include <string.h>
#include <sys/types.h>

/* A piece of memory; whose it is, the one who hands it over says. */
struct weft_slice {
    void *data;
    size_t len;
};

/* ---- shared regions (region.c): memfd, sealed against shrinking, pages reserved ---- */

struct weft_mem_region {
    int fd; /* owned, registered with weft_fd_own(); -1: the mapping is enough */
    uint8_t *base;
    size_t len;
};
/* Zeroed; every page is reserved now: ERR_MEMORY or ERR_SYSTEM here, never SIGBUS later. name shows in
 * /proc/…/maps. */
weft_status_t weft_mem_region_open(const char *name, size_t len, struct weft_mem_region *region_p);
/* Maps another process's region; takes fd over, also when it fails. Checks that it is a memfd of at
 * least `len` bytes and sealed against shrinking: ERR_PROTOCOL otherwise. */
weft_status_t weft_mem_region_map(int fd, size_t len, struct weft_mem_region *region_p);
void weft_mem_region_close(struct weft_mem_region *region); /* twice is harmless */

/* Another process's region, mapped as long as anybody needs it: who copies without a lock holds it, for
 * whoever mapped it may let go meanwhile. Any thread. */
struct weft_mem_mapping {
    struct weft_mem_region region;
    _Atomic uint32_t holders;
    _Atomic size_t warm_from, warm_to; /* in this process's page tables already */
};
/* As weft_mem_region_map(), and ERR_MEMORY; held once. */
weft_status_t weft_mem_mapping_open(int fd, size_t len, struct weft_mem_mapping **mapping_p);
void weft_mem_mapping_hold(struct weft_mem_mapping *mapping);
void weft_mem_mapping_close(
    struct weft_mem_mapping *mapping); /* the last one unmaps; NULL is fine */

/* Pages of shared memory that will be touched soon go into the page tables at once: one by one, as they are
 * touched, takes three times as long. What the kernel refuses is left for then. */
void weft_mem_warm(void *memory, size_t len);
/* The same for a part of a mapping, unless that was done. */
void weft_mem_mapping_warm(struct weft_mem_mapping *mapping, void *memory, size_t len);

/* ---- weft_alloc (alloc.c): regions users have, known by address; any thread ---- */

weft_status_t weft_mem_alloc(size_t len, void **memory_p);
/* ERR_INVALID: not from weft_mem_alloc(); ERR_BUSY: somebody holds it. */
weft_status_t weft_mem_free(void *memory);
/* The allocation that the address lies in is not freed until it is let go as often. Returns its id; 0: none. */
uint64_t weft_mem_hold(const void *address);
void weft_mem_let_go(uint64_t id); /* 0 is fine */

/* From now on the pages of [memory, memory + len), which lies in one allocation, are this process's alone,
 * with the content they had: whoever has mapped them keeps the old ones. Not found any more. ERR_MEMORY. */
weft_status_t weft_mem_disown(void *memory, size_t len);

struct weft_mem_place {
    uint64_t id;     /* of the allocation; never used twice in a process, never 0 */
    int fd;          /* lent while the allocation lives */
    size_t len;      /* of the whole allocation */
    uint64_t offset; /* of the address asked for */
};
/* Does [address, address + len) lie in one allocation? O(log n). */
bool weft_mem_find(const void *address, size_t len, struct weft_mem_place *place_p);
bool weft_mem_find_id(uint64_t id, struct weft_mem_place *place_p); /* offset 0 */
/* Told before an allocation goes, without any lock of ours held. */
struct weft_mem_watcher {
    struct weft_list node;
    void (*freed)(struct weft_mem_watcher *watcher, uint64_t id);
};
void weft_mem_watch(struct weft_mem_watcher *watcher);
void weft_mem_unwatch(struct weft_mem_watcher *watcher); /* returns when `freed` is not running */

/* ---- another process's memory (pull.c) ---- */

/* For the kernel: in this process it means nothing. */
static inline void *weft_mem_there(uint64_t address)
{
    void *pointer;
    static_assert(sizeof(pointer) == sizeof(address), "addresses travel as 64 bits");
    memcpy(&pointer, &address, sizeof(pointer));
    return pointer;
}
/* Copies slice->len bytes from `address` there. false: errno says why, and part of it may be here. */
bool weft_mem_pull(pid_t pid, uint64_t address, const struct weft_slice *slice);
/* Are these 16 bytes there, and may we read them? */
bool weft_mem_can_pull(pid_t pid, uint64_t address, const uint8_t expected[16]);

/* ---- copying (copy.c) ---- */

enum weft_mem_copy {
    WEFT_COPY_PLAIN, /* what the C library does */
    WEFT_COPY_STREAM, /* stores that go around the cache: for lines another core still caches, and for
                         outputs larger than the cache; fenced at the end */
    WEFT_COPY_FETCH, /* loads with prefetch a page ahead: for lines in another core's cache */
    WEFT_COPY_FETCH_STREAM, /* both */
};
void weft_mem_copy(void *to, const void *from, size_t len, enum weft_mem_copy how);
/* Bytes of the last-level cache, from the system; 32 MiB when it does not say. */
size_t weft_mem_cache_len(void);

#endif
