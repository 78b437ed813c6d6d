/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: whoever waits, drives. One engine per rank; poll rounds, timers, tasks from other
 * threads, waiting (spin, yield, sleep), and the process's one background thread, which drives
 * engines that nobody else drives. Knows sources (a descriptor and a function), not what they
 * carry.
 *
 * Everything called back from here (ready, fire, run) runs under the engine's lock, inside one poll
 * round, and must not block.
 */
#ifndef WEFT_ENGINE_H
#define WEFT_ENGINE_H

#include "base/base.h"
#include "watch/watch.h"

#include <sched.h>
#include <sys/epoll.h>

struct weft_engine;

/* Where every message passes: in the open, so that it costs no call. An engine begins with it. */
struct weft_engine_front {
    _Atomic uint32_t lock;    /* covers one poll round; 1: held; a futex word */
    _Atomic uint32_t lockers; /* threads that sleep for it */
    uint32_t news; /* under the lock: what is told before it goes; enum weft_engine_news */
    struct weft_queue tasks;
};

enum weft_engine_news {
    WEFT_ENGINE_COMPLETED = 1, /* a word that somebody may wait for was set */
    WEFT_ENGINE_WORKS = 2,     /* a long copy was added: nobody may sleep while it waits */
};

/* A descriptor that is polled. Embedded in its owner, lent to the engine between add and remove. */
struct weft_engine_source {
    void (*ready)(struct weft_engine_source *source, uint32_t events); /* EPOLLIN … */
    int fd;
    uint32_t events; /* what is asked for now; kept by the engine */
};

/* Fires once at at_ns. Embedded in its owner. */
struct weft_engine_timer {
    void (*fire)(struct weft_engine_timer *timer, uint64_t now_ns);
    uint64_t at_ns;
    struct weft_list node; /* the engine's */
};

/* Something another thread wants done under the lock. Embedded in its owner; not touched after run.
 */
struct weft_engine_task {
    struct weft_queue_node node;
    void (*run)(struct weft_engine_task *task);
};

/* Memory that is polled, where a descriptor would cost a system call. Embedded in its owner. */
struct weft_engine_poller {
    bool (*poll)(struct weft_engine_poller *poller); /* every round; true: something happened */
    /* Somebody is about to sleep: false when there is something to poll after all; otherwise whoever
     * writes must wake us by a descriptor from now on. disarm: somebody drives again. */
    bool (*arm)(struct weft_engine_poller *poller);
    void (*disarm)(struct weft_engine_poller *poller);
    /* Set by poll: there is probably nothing before *word is `value`, so quick rounds only look there,
     * and poll the first time of each turn. NULL: poll every time. */
    const _Atomic uint32_t *word;
    uint32_t value;
    struct weft_list node; /* the engine's */
};

/* A long copy: run without the lock by whoever drives, then done under it. Embedded in its owner. */
struct weft_engine_work {
    struct weft_list node; /* the engine's */
    void (*run)(struct weft_engine_work *work);
    void (*done)(struct weft_engine_work *work);
};

/* cpus: how many this process may use. */
weft_status_t weft_engine_open(unsigned cpus, int64_t spin_us, struct weft_engine **engine_p);
void weft_engine_close(struct weft_engine *engine); /* sources must be gone; NULL is fine */
/* While a job starts: who serves it yields instead of sleeping however many ranks there are, because
 * work for it keeps coming. */
void weft_engine_set_starting(struct weft_engine *engine, unsigned ranks, bool is_serving);
/* Ranks that share the CPUs with this one: more ranks than CPUs, and waiting yields instead of
 * spinning. */
void weft_engine_set_load(struct weft_engine *engine, unsigned ranks_here);
/* More ranks than CPUs: whoever looks in vain keeps another from running. */
bool weft_engine_is_crowded(const struct weft_engine *engine);
struct weft_counters *weft_engine_counters(struct weft_engine *engine);

/* ---- under the lock, or before anybody else knows the engine ---- */

weft_status_t weft_engine_add(struct weft_engine *engine, struct weft_engine_source *source, int fd,
                              uint32_t events);
/* The same without asking the kernel yet: nothing is reported before weft_engine_watch(). */
void weft_engine_adopt(struct weft_engine_source *source, int fd, uint32_t events);
weft_status_t weft_engine_watch(struct weft_engine *engine, struct weft_engine_source *source);
void weft_engine_want(struct weft_engine *engine, struct weft_engine_source *source,
                      uint32_t events);
/* Also forgets events of this round that were not delivered yet. Does not close the fd. */
void weft_engine_remove(struct weft_engine *engine, struct weft_engine_source *source);
void weft_engine_timer_open(struct weft_engine_timer *timer,
                            void (*fire)(struct weft_engine_timer *, uint64_t now_ns));
/* Wakes whoever sleeps until a later one. */
void weft_engine_timer_set(struct weft_engine *engine, struct weft_engine_timer *timer,
                           uint64_t at_ns);
void weft_engine_timer_cancel(struct weft_engine *engine, struct weft_engine_timer *timer);
void weft_engine_poller_add(struct weft_engine *engine, struct weft_engine_poller *poller);
void weft_engine_poller_remove(struct weft_engine *engine, struct weft_engine_poller *poller);
/* Polling makes system calls from now on: fewer quick rounds. */
void weft_engine_set_costly(struct weft_engine *engine);
/* Runs in turn, soon: somebody who sleeps is woken when the lock goes. Several may run at once on several
 * threads. */
void weft_engine_work_add(struct weft_engine *engine, struct weft_engine_work *work);
bool weft_engine_has_works(const struct weft_engine *engine); /* waiting or running */
/* Runs all works that wait, here and under the lock, and waits for those that run: for closing. */
void weft_engine_work_flush(struct weft_engine *engine);
/* A word that a waiter waits for became non-zero in this round: the round wakes waiters at its end.
 */
void weft_engine_completed(struct weft_engine *engine);

/* Looks at *word for about as long as an answer takes; false: it is not `value`, somebody else wants
 * the engine, or a full round is due: then the caller waits, which runs it. */
bool weft_engine_look(struct weft_engine *engine, const _Atomic uint32_t *word, uint32_t value);
/* Runs all that was posted, without polling: after a timeout the caller's own task may still be queued. */
void weft_engine_run_tasks(struct weft_engine *engine);

/* ---- any thread ---- */

static inline bool weft_engine_try_lock(struct weft_engine *engine)
{
    uint32_t is_free = 0;
    return atomic_compare_exchange_strong_explicit(&((struct weft_engine_front *)engine)->lock,
                                                   &is_free, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Lock-free; wakes the sleeping driver if there is one. */
void weft_engine_post(struct weft_engine *engine, struct weft_engine_task *task);
/* Drives until *word is not zero (WEFT_OK) or the deadline (ERR_TIMEOUT, without error text: the
 * caller knows what it waited for). */
weft_status_t weft_engine_wait(struct weft_engine *engine, const _Atomic uint32_t *word,
                               uint64_t deadline_ns);
/* One round and at most one long copy, unless somebody else drives. */
void weft_engine_poll(struct weft_engine *engine);
/* For the rare cases outside rounds (set-up, timeouts, closing): waits for the round in progress.
 */
void weft_engine_lock(struct weft_engine *engine);
void weft_engine_unlock_and_tell(struct weft_engine *engine);
static inline void weft_engine_unlock(struct weft_engine *engine)
{
    struct weft_engine_front *front = (struct weft_engine_front *)engine;
    if (front->news != 0 || atomic_load_explicit(&front->lockers, memory_order_relaxed) != 0) {
        weft_engine_unlock_and_tell(engine);
    } else {
        atomic_store_explicit(&front->lock, 0, memory_order_release);
    }
}
/* The same as lock if it is free: to post something without a task. What this thread posted before comes
 * first. */
static inline bool weft_engine_enter(struct weft_engine *engine)
{
    struct weft_engine_front *front = (struct weft_engine_front *)engine;
    if (!weft_engine_try_lock(engine)) {
        return false;
    }
    if (!weft_queue_is_empty(&front->tasks)) {
        weft_engine_run_tasks(engine);
    }
    return true;
}

/* ---- the background thread (background.c) ---- */

/* The CPUs it runs on, from now on and when it starts. */
void weft_background_bind(const cpu_set_t *cpus);
/* From now on the background thread serves this engine; starts the thread with the first.
 * ERR_SYSTEM. */
weft_status_t weft_background_join(struct weft_engine *engine);
/* Returns when the thread cannot touch the engine any more; the last one ends the thread. */
void weft_background_leave(struct weft_engine *engine);

#endif
