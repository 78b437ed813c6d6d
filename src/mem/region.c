/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that processes of one host share: a memfd, handed over as a descriptor, never by a path.
 *
 * Two things could kill the one who touches it later, by SIGBUS: that the file became shorter, and
 * that the host had no page left. Against the first it is sealed before anybody else sees it, and
 * whoever maps it looks for the seal before the length: what is read afterwards cannot shrink.
 * Against the second all pages are taken at once. The kernel's answer to that, when there are not
 * enough, is often not an error but the OOM killer; so what cannot be had is refused before asking.
 */
#include "mem/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older ones refuse it */
#endif
#define HUGE_LEN ((size_t)2 << 20)
/* On many kernels a signal makes fallocate() undo everything and return EINTR. In pieces of 0.2 ms it
 * gets done even under a profiler's clock, and takes no longer. */
#define RESERVE_LEN ((size_t)1 << 20)
#define ASK_FIRST_LEN ((size_t)16 << 20) /* shorter ones are not worth reading /proc for */

static size_t whole_pages(size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (len + page - 1) & ~(page - 1);
}

/* Long regions begin at a multiple of 2 MiB and ask for huge pages. Whether they get some is the
 * system's choice (transparent_hugepage/shmem_enabled, by default "never"): then it neither helps
 * nor harms, measured. Where it is "always", an unaligned mapping could not use them. */
static void *map_aligned(int fd, size_t len)
{
    size_t room = len + HUGE_LEN;
    uint8_t *space =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *base;
    size_t before;

    if (space == MAP_FAILED) {
        return MAP_FAILED;
    }
    before = (HUGE_LEN - (uintptr_t)space % HUGE_LEN) % HUGE_LEN;
    base = mmap(space + before, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;

        munmap(space, room);
        errno = error;
        return MAP_FAILED;
    }
    if (before > 0) {
        munmap(space, before);
    }
    munmap(base + len, HUGE_LEN - before);
    (void)madvise(base, len, MADV_HUGEPAGE);
    return base;
}

static void *map_shared(int fd, size_t len)
{
    len = whole_pages(len);
    if (len >= HUGE_LEN) {
        return map_aligned(fd, len);
    }
    return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static weft_status_t reserve(int fd, const char *name, size_t len)
{
    size_t done = 0;

    while (done < len) {
        size_t piece = len - done < RESERVE_LEN ? len - done : RESERVE_LEN;

        if (fallocate(fd, 0, (off_t)done, (off_t)piece) == 0) {
            done += piece;
        } else if (errno == ENOSPC || errno == ENOMEM) {
            return weft_fail(WEFT_ERR_MEMORY,
                             "shared memory '%s': the host or its cgroup has no page left after "
                             "%zu of %zu bytes; ask for less or run fewer ranks here",
                             name, done, len);
        } else if (errno != EINTR) {
            return weft_fail_errno("shared memory '%s': cannot reserve %zu bytes", name, len);
        }
    }
    return WEFT_OK;
}

static weft_status_t check_obtainable(const char *name, size_t len)
{
    uint64_t obtainable;

    if (len > PTRDIFF_MAX - 2 * HUGE_LEN) { /* so that no sum here overflows */
        return weft_fail(WEFT_ERR_MEMORY, "shared memory '%s': %zu bytes are no length", name, len);
    }
    if (len < ASK_FIRST_LEN) {
        return WEFT_OK;
    }
    obtainable = weft_mem_obtainable();
    if (len > obtainable) {
        return weft_fail(WEFT_ERR_MEMORY,
                         "shared memory '%s': %zu bytes wanted, at most %llu can be had on this "
                         "host and in its cgroup; ask for less or raise the limit",
                         name, len, (unsigned long long)obtainable);
    }
    return WEFT_OK;
}

/* A memfd of whole pages, all there, sealed. */
static weft_status_t create_file(const char *name, size_t len, int *fd_p)
{
    weft_status_t status;
    int fd = weft_fd_own(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd < 0) {
        return weft_fail_errno("shared memory '%s': cannot create it", name);
    }
    if (weft_file_exceeds_limit(len)) { /* else it would be a signal */
        status =
            weft_fail(WEFT_ERR_SYSTEM,
                      "shared memory '%s': %zu bytes are more than a file may have here; raise "
                      "the limit (ulimit -f)",
                      name, len);
        goto err_close;
    }
    if (ftruncate(fd, (off_t)len) != 0) {
        status = weft_fail_errno("shared memory '%s': cannot make it %zu bytes long", name, len);
        goto err_close;
    }
    status = reserve(fd, name, len);
    if (status != WEFT_OK) {
        goto err_close;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
        status = weft_fail_errno("shared memory '%s': cannot seal it", name);
        goto err_close;
    }
    *fd_p = fd;
    return WEFT_OK;
err_close:
    weft_fd_close(fd);
    return status;
}

weft_status_t weft_mem_region_open(const char *name, size_t len, struct weft_mem_region *region_p)
{
    weft_status_t status;
    void *base;
    int fd = -1;

    if (len == 0) {
        return weft_fail(WEFT_ERR_INVALID, "shared memory '%s': 0 bytes wanted", name);
    }
    status = check_obtainable(name, len);
    if (status == WEFT_OK) {
        status = create_file(name, whole_pages(len), &fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    base = map_shared(fd, len);
    if (base == MAP_FAILED) {
        status = weft_fail_errno("shared memory '%s': cannot map %zu bytes", name, len);
        weft_fd_close(fd);
        return status;
    }
    *region_p = (struct weft_mem_region){.fd = fd, .base = base, .len = len};
    return WEFT_OK;
}

/* What a peer handed us may be any descriptor. Seals first, see above. Huge-page files have seals
 * too, but lengths of their own, which unmapping would trip over. */
static weft_status_t check_foreign(int fd, size_t len)
{
    struct stat stat;
    struct statfs statfs;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
        return weft_fail(WEFT_ERR_PROTOCOL,
                         "a peer's shared memory is not sealed against shrinking");
    }
    if (fstatfs(fd, &statfs) != 0 || statfs.f_type != TMPFS_MAGIC) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a peer's shared memory is of an unknown kind");
    }
    if (fstat(fd, &stat) != 0 || stat.st_size < 0) {
        return weft_fail_errno("cannot learn the length of a peer's shared memory");
    }
    if (len == 0 || len > (uint64_t)stat.st_size) {
        return weft_fail(WEFT_ERR_PROTOCOL,
                         "a peer's shared memory has %lld bytes where %zu were named",
                         (long long)stat.st_size, len);
    }
    return WEFT_OK;
}

weft_status_t weft_mem_region_map(int fd, size_t len, struct weft_mem_region *region_p)
{
    weft_status_t status = check_foreign(fd, len);
    void *base = MAP_FAILED;

    if (status == WEFT_OK) {
        base = map_shared(fd, len);
        if (base == MAP_FAILED && (errno == EPERM || errno == EACCES)) {
            status = weft_fail(WEFT_ERR_PROTOCOL, "a peer's shared memory cannot be written");
        } else if (base == MAP_FAILED) {
            status = weft_fail_errno("cannot map %zu bytes of a peer's shared memory", len);
        }
    }
    /* The mapping holds the memory; a descriptor more per peer would be one too many. */
    weft_fd_close(fd);
    if (status != WEFT_OK) {
        return status;
    }
    *region_p = (struct weft_mem_region){.fd = -1, .base = base, .len = len};
    return WEFT_OK;
}

void weft_mem_region_close(struct weft_mem_region *region)
{
    if (!region->base) {
        return;
    }
    munmap(region->base, whole_pages(region->len));
    weft_fd_close(region->fd);
    *region = (struct weft_mem_region){.fd = -1, .base = NULL, .len = 0};
}

weft_status_t weft_mem_mapping_open(int fd, size_t len, struct weft_mem_mapping **mapping_p)
{
    struct weft_mem_mapping *mapping = malloc(sizeof(*mapping));
    weft_status_t status;

    if (!mapping) {
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a mapping");
    }
    status = weft_mem_region_map(fd, len, &mapping->region);
    if (status != WEFT_OK) {
        free(mapping);
        return status;
    }
    atomic_init(&mapping->holders, 1);
    atomic_init(&mapping->warm_from, 0);
    atomic_init(&mapping->warm_to, 0);
    *mapping_p = mapping;
    return WEFT_OK;
}

void weft_mem_mapping_hold(struct weft_mem_mapping *mapping)
{
    atomic_fetch_add_explicit(&mapping->holders, 1, memory_order_relaxed);
}

void weft_mem_mapping_close(struct weft_mem_mapping *mapping)
{
    if (mapping && atomic_fetch_sub_explicit(&mapping->holders, 1, memory_order_acq_rel) == 1) {
        weft_mem_region_close(&mapping->region);
        free(mapping);
    }
}

void weft_mem_warm(void *memory, size_t len)
{
    size_t into = (uintptr_t)memory % (size_t)sysconf(_SC_PAGESIZE);
    (void)madvise((uint8_t *)memory - into, len + into, MADV_POPULATE_READ);
}

/* Threads that do so at the same time do it twice, or once too often later. */
void weft_mem_mapping_warm(struct weft_mem_mapping *mapping, void *memory, size_t len)
{
    size_t from = (size_t)((uint8_t *)memory - mapping->region.base), to = from + len;
    size_t warm_from = atomic_load_explicit(&mapping->warm_from, memory_order_relaxed);
    size_t warm_to = atomic_load_explicit(&mapping->warm_to, memory_order_relaxed);

    if (from >= warm_from && to <= warm_to) {
        return;
    }
    weft_mem_warm(memory, len);
    if (from <= warm_to && to >= warm_from) { /* they touch: it grows */
        from = from < warm_from ? from : warm_from;
        to = to > warm_to ? to : warm_to;
    }
    atomic_store_explicit(&mapping->warm_from, from, memory_order_relaxed);
    atomic_store_explicit(&mapping->warm_to, to, memory_order_relaxed);
}
