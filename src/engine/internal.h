/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine: the object itself. */
#ifndef WEFT_ENGINE_INTERNAL_H
#define WEFT_ENGINE_INTERNAL_H

#include "engine/engine.h"

#include <pthread.h>

#define WEFT_ENGINE_BATCH 64
#define WEFT_ENGINE_QUICK_ROUNDS 64 /* over memory alone, in one turn of the lock */
/* Who always finds at once what it waits for must look at timers and descriptors all the same: after so
 * many quick rounds (100 µs of the shortest messages), or when the background thread asks for it. */
#define WEFT_ENGINE_FULL_EVERY 1024

struct weft_engine {
    struct weft_engine_front front;
    int epfd;
    /* eventfd, -1: none yet; rung only when `asleep` is set or the background thread is armed */
    _Atomic int doorbell;
    pthread_mutex_t bell_lock; /* its making */
    struct weft_engine_source bell_source;

    /* under the lock */
    struct weft_list timers;
    struct epoll_event batch[WEFT_ENGINE_BATCH]; /* events of the round in progress */
    int batch_len, batch_next;
    struct weft_list pollers;
    bool are_pollers_armed;
    struct weft_list works; /* long copies that wait for a driver */
    uint32_t works_running;
    uint32_t polls; /* by weft_engine_poll() */

    /* any thread */
    _Atomic uint64_t drives;   /* rounds so far: the background thread sees that somebody drives */
    _Atomic uint64_t full_due; /* a full round is due when `drives` has come this far */
    _Atomic uint64_t next_timer_ns;
    _Atomic uint32_t drivers;   /* threads inside weft_engine_wait */
    _Atomic uint32_t asleep;    /* one of them sleeps in epoll, or is about to */
    _Atomic uint32_t waiters;   /* threads asleep on `turn` because another one drives */
    _Atomic uint32_t turn;      /* futex word */
    _Atomic uint64_t driven_ns; /* when a wait last ended */
    /* The background thread sleeps on our epfd, and the pollers are armed for it; set under the lock. */
    _Atomic uint32_t armed;
    _Atomic bool is_joined; /* it serves us */

    unsigned cpus;
    int64_t spin_us; /* parameter; -1: by load */
    _Atomic uint64_t spin_ns, yield_ns;
    _Atomic bool has_pollers, is_costly;
    _Atomic uint32_t quick_turns;
    struct weft_counters counters;

    /* the background thread's, under its lock */
    struct weft_list background_node;
    unsigned background_naps;
    uint64_t background_seen; /* `drives` when it last looked */
    uint64_t background_full; /* full rounds by then */
};

_Static_assert(offsetof(struct weft_engine, front) == 0, "the front comes first");

/* Without a word about completions: for who knows that there were none, or has told. */
void weft_engine_release(struct weft_engine *engine);
/* One poll round under the lock; true when anything happened. quick: memory and tasks only, no system
 * call and no clock (unless there is nothing but descriptors). */
bool weft_engine_round(struct weft_engine *engine);
bool weft_engine_quick_round(struct weft_engine *engine);
/* Under the lock: quick rounds have gone on for long enough. */
static inline bool weft_engine_is_full_due(const struct weft_engine *engine)
{
    return atomic_load_explicit(&engine->drives, memory_order_relaxed) >=
           atomic_load_explicit(&engine->full_due, memory_order_relaxed);
}
/* Under the lock: false when no poller has anything, as far as its word says. */
static inline bool weft_engine_is_worth_a_look(const struct weft_engine *engine)
{
    for (const struct weft_list *node = engine->pollers.next; node != &engine->pollers;
         node = node->next) {
        const struct weft_engine_poller *poller =
            WEFT_CONTAINER_OF(node, struct weft_engine_poller, node);
        if (poller->word == NULL ||
            atomic_load_explicit(poller->word, memory_order_acquire) == poller->value) {
            return true;
        }
    }
    return false;
}
/* Under the lock: one long copy that waits is run, with the lock let go meanwhile. */
bool weft_engine_work_run(struct weft_engine *engine);
/* The same, and the quick rounds for what it led to: its driver may leave, and who sleeps does not know. */
bool weft_engine_work_follow(struct weft_engine *engine);
void weft_engine_announce_works(struct weft_engine *engine);
/* Under the lock, before a sleep: false when a poller has something. */
bool weft_engine_arm_pollers(struct weft_engine *engine);
/* Somebody drives an engine that the background thread believes idle: it should look again later. */
void weft_background_step_back(struct weft_engine *engine);
weft_status_t weft_engine_open_bell(struct weft_engine *engine, unsigned rings);
void weft_engine_ring(struct weft_engine *engine);
/* Without the lock. A driver leaves after a long wait: if the background thread had stepped back, it
 * watches again. */
void weft_background_take_back(struct weft_engine *engine);
/* Wakes one (or all) of the threads asleep on `turn`. */
void weft_engine_pass_turn(struct weft_engine *engine, int count);

#endif
