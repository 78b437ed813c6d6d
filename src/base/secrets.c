/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vault: pages of 64 slots of 64 bytes, left out of core dumps and zero in forked children. The
 * bookkeeping (one bit per slot) lives outside of them and survives a fork; it is lock-free,
 * because a lock that another thread holds at the moment of the fork would stay locked in the child
 * for ever. Pages are never given back: a process needs few, and needs them until its end.
 */
#include "base/base.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#define SCRUB_LEN 8192
#define SLOT_LEN 64U
#define SLOTS 64U /* one bit each in a word */
#define PAGE_LEN ((size_t)SLOT_LEN * SLOTS)
#define PAGES_MAX 4096U /* 262,144 secrets */

static struct vault_page {
    _Atomic(unsigned char *) memory; /* owned; set once */
    _Atomic uint64_t taken;
} vault[PAGES_MAX];

void *weft_secret_map(size_t len)
{
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (madvise(memory, len, MADV_DONTDUMP) != 0 || madvise(memory, len, MADV_WIPEONFORK) != 0) {
        /* only kernels before 4.14; a job with a weaker vault is better than none */
        weft_log(base, WARN, "the kernel cannot keep secrets out of core dumps or forked children");
    }
    return memory;
}

void weft_secret_unmap(void *memory, size_t len)
{
    if (memory) {
        weft_secret_wipe(memory, len);
        munmap(memory, len);
    }
}

/* The page's memory, mapped now when it was not; NULL: no memory. */
static unsigned char *open_page(struct vault_page *page)
{
    unsigned char *memory = atomic_load_explicit(&page->memory, memory_order_acquire);
    unsigned char *mapped;

    if (memory) {
        return memory;
    }
    mapped = weft_secret_map(PAGE_LEN);
    if (mapped && !atomic_compare_exchange_strong_explicit(
                      &page->memory, &memory, mapped, memory_order_acq_rel, memory_order_acquire)) {
        munmap(mapped, PAGE_LEN); /* another thread was quicker */
        return memory;
    }
    return mapped;
}

/* Number of a slot that was free, or SLOTS when the page is full. */
static unsigned claim_slot(struct vault_page *page)
{
    uint64_t taken = atomic_load_explicit(&page->taken, memory_order_relaxed);

    while (taken != UINT64_MAX) {
        unsigned slot = (unsigned)__builtin_ctzll(~taken);

        if (atomic_compare_exchange_weak_explicit(&page->taken, &taken, taken | UINT64_C(1) << slot,
                                                  memory_order_acquire, memory_order_relaxed)) {
            return slot;
        }
    }
    return SLOTS;
}

void *weft_secret_take(void)
{
    for (unsigned i = 0; i < PAGES_MAX; i++) {
        unsigned char *memory = open_page(&vault[i]);
        unsigned slot;

        if (!memory) {
            return NULL;
        }
        slot = claim_slot(&vault[i]);
        if (slot < SLOTS) {
            return memory + (size_t)slot * SLOT_LEN;
        }
    }
    return NULL;
}

void weft_secret_give(void *secret)
{
    if (!secret) {
        return;
    }
    for (unsigned i = 0; i < PAGES_MAX; i++) {
        unsigned char *memory = atomic_load_explicit(&vault[i].memory, memory_order_acquire);
        size_t offset = (size_t)((uintptr_t)secret - (uintptr_t)memory);

        if (!memory) {
            break;
        }
        if (offset < PAGE_LEN) {
            weft_secret_wipe(secret, SLOT_LEN);
            atomic_fetch_and_explicit(&vault[i].taken, ~(UINT64_C(1) << (offset / SLOT_LEN)),
                                      memory_order_release);
            return;
        }
    }
    assert(false && "not a secret of the vault");
}

void weft_secret_wipe(void *memory, size_t len)
{
    explicit_bzero(memory, len);
}

weft_status_t weft_random(void *out, size_t len)
{
    unsigned char *next = out;

    while (len > 0) {
        ssize_t got = getrandom(next, len, 0);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return weft_fail_errno("getrandom of %zu bytes", len);
        }
        next += got;
        len -= (size_t)got;
    }
    return WEFT_OK;
}

/* Out of line, so that its frame lies where theirs lay. */
__attribute__((noinline)) void weft_secret_scrub_stack(void)
{
    uint8_t frames[SCRUB_LEN];
    weft_secret_wipe(frames, sizeof(frames));
}
