/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine: the object itself. */
#ifndef WEFT_ENGINE_INTERNAL_H
#define WEFT_ENGINE_INTERNAL_H

#include "engine/engine.h"

#include <pthread.h>

#define WEFT_ENGINE_BATCH 64

struct weft_engine {
    pthread_mutex_t lock; /* covers one poll round; try-locked by drivers */
    int epfd;
    /* eventfd, -1: none yet; rung only when `asleep` is set or the background thread is armed */
    _Atomic int doorbell;
    pthread_mutex_t bell_lock; /* its making */
    struct weft_engine_source bell_source;

    /* under the lock */
    struct weft_list timers;
    struct epoll_event batch[WEFT_ENGINE_BATCH]; /* events of the round in progress */
    int batch_len, batch_next;
    bool has_completed;

    /* any thread */
    struct weft_queue tasks;
    _Atomic uint64_t next_timer_ns;
    _Atomic uint32_t drivers;   /* threads inside weft_engine_wait */
    _Atomic uint32_t asleep;    /* one of them sleeps in epoll, or is about to */
    _Atomic uint32_t waiters;   /* threads asleep on `turn` because another one drives */
    _Atomic uint32_t turn;      /* futex word */
    _Atomic uint64_t driven_ns; /* when a wait last ended */
    _Atomic uint32_t armed;     /* the background thread sleeps on our epfd */

    unsigned cpus;
    int64_t spin_us; /* parameter; -1: by load */
    _Atomic uint64_t spin_ns, yield_ns;
    struct weft_counters counters;

    /* the background thread's, under its lock */
    struct weft_list background_node;
    unsigned background_naps;
};

/* One poll round under the lock; true when anything happened. */
bool weft_engine_round(struct weft_engine *engine);
weft_status_t weft_engine_open_bell(struct weft_engine *engine, unsigned rings);
void weft_engine_ring(struct weft_engine *engine);
/* A driver leaves after a long wait: if the background thread had stepped back, it watches again. */
void weft_background_take_back(struct weft_engine *engine);
/* Wakes one (or all) of the threads asleep on `turn`. */
void weft_engine_pass_turn(struct weft_engine *engine, int count);

#endif
