/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The register of our descriptors, one bit each, so that a forked child can close them: a child
 * that kept a copy of a socket would hide its parent's death from the other ranks. The child's
 * handler runs between fork() and the user's next line, where only async-signal-safe calls are
 * allowed; hence a static bitmap of atomic words, no lock and no allocation.
 *
 * A fork that falls between a creating call and weft_fd_own(), or inside weft_fd_close(), lets that
 * one descriptor slip into the child. It closes at exec, for all are CLOEXEC.
 */
#include "base/base.h"

#include <pthread.h>
#include <unistd.h>

#define WORD_BITS 64U
#define WORDS ((1U << 20) / WORD_BITS) /* the kernel's default fs.nr_open */

static _Atomic uint64_t owned[WORDS];
static _Atomic unsigned words_used; /* none is set from here on; spares the child most of the map */
static _Atomic unsigned owned_count;
_Atomic uint32_t weft_process_number = 1; /* a zeroed handle belongs to no process */
static _Atomic uint64_t process_id;       /* 0: not drawn yet */
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;

static void forget_parent(void)
{
    unsigned words = atomic_load_explicit(&words_used, memory_order_relaxed);

    for (unsigned i = 0; i < words; i++) {
        uint64_t bits = atomic_exchange_explicit(&owned[i], 0, memory_order_relaxed);

        for (; bits != 0; bits &= bits - 1) {
            close((int)(i * WORD_BITS + (unsigned)__builtin_ctzll(bits)));
        }
    }
    atomic_store_explicit(&words_used, 0, memory_order_relaxed);
    atomic_store_explicit(&owned_count, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&weft_process_number, 1, memory_order_relaxed);
    atomic_store_explicit(&process_id, 0, memory_order_relaxed);
}

static void install_handler(void)
{
    if (pthread_atfork(NULL, NULL, forget_parent) != 0) {
        weft_log(base, ERROR, "no memory for the fork handler: forked children keep our sockets");
    }
}

/* NULL for what the map does not cover: such a descriptor lives on in forked children */
static _Atomic uint64_t *word_of(int fd, uint64_t *bit_p)
{
    unsigned word = (unsigned)fd / WORD_BITS;

    if (fd < 0 || word >= WORDS) {
        return NULL;
    }
    *bit_p = UINT64_C(1) << ((unsigned)fd % WORD_BITS);
    return &owned[word];
}

static void raise_words_used(unsigned words)
{
    unsigned used = atomic_load_explicit(&words_used, memory_order_relaxed);

    while (used < words &&
           !atomic_compare_exchange_weak_explicit(&words_used, &used, words, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

int weft_fd_own(int fd)
{
    uint64_t bit;
    _Atomic uint64_t *word = word_of(fd, &bit);

    if (!word) {
        return fd;
    }
    pthread_once(&handler_once, install_handler);
    raise_words_used((unsigned)fd / WORD_BITS + 1);
    if (!(atomic_fetch_or_explicit(word, bit, memory_order_relaxed) & bit)) {
        atomic_fetch_add_explicit(&owned_count, 1, memory_order_relaxed);
    }
    return fd;
}

int weft_fd_release(int fd)
{
    uint64_t bit;
    _Atomic uint64_t *word = word_of(fd, &bit);

    if (word && (atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed) & bit)) {
        atomic_fetch_sub_explicit(&owned_count, 1, memory_order_relaxed);
    }
    return fd;
}

void weft_fd_close(int fd)
{
    if (fd < 0) {
        return;
    }
    /* first: once closed, the number may be another thread's */
    weft_fd_release(fd);
    close(fd);
}

unsigned weft_fd_count(void)
{
    return atomic_load_explicit(&owned_count, memory_order_relaxed);
}

uint32_t weft_process_generation(void)
{
    pthread_once(&handler_once, install_handler);
    return atomic_load_explicit(&weft_process_number, memory_order_relaxed);
}

weft_status_t weft_process_id(uint64_t *id_p)
{
    uint64_t id = atomic_load_explicit(&process_id, memory_order_relaxed), none = 0;

    pthread_once(&handler_once, install_handler);
    while (id == 0) {
        weft_status_t status = weft_random(&id, sizeof(id));
        if (status != WEFT_OK) {
            return status;
        }
        if (id != 0 && !atomic_compare_exchange_strong_explicit(
                           &process_id, &none, id, memory_order_relaxed, memory_order_relaxed)) {
            id = none; /* another thread was faster */
        }
    }
    *id_p = id;
    return WEFT_OK;
}
