/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting: spin, then yield, then sleep.
 *
 * Several threads may wait on one engine. One of them holds the lock for a round and drives; at
 * most one sleeps in epoll (without the lock); the others sleep on the futex word `turn`. A round
 * in which something completed wakes them all, a driver that leaves wakes exactly one, which drives
 * on.
 *
 * Spinning pays while ranks ≤ CPUs. With more ranks than CPUs a spinning rank keeps the very peer
 * from running that it waits for, so it yields a few times and then sleeps.
 */
#include "engine/internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A sleep and wake costs 20–35 µs. Where nobody else wants the CPU a yield returns at once, so yielding is
 * spinning with manners: pure spinning pays only for the very shortest waits. */
#define LONG_WAIT_NS UINT64_C(4000000)
#define SPIN_NS UINT64_C(10000)
#define YIELD_NS UINT64_C(150000)
/* A message that is being answered comes within a microsecond: so many turns of so many rounds over
 * memory alone come before the clock and the descriptors are looked at. Crowded: whoever we wait for
 * needs this CPU. */
#define QUICK_TURNS 8
#define CROWDED_TURNS 1
#define COSTLY_TURNS 24 /* of one round each, when that is a system call */
#define FULL_EVERY 16

void weft_engine_set_load(struct weft_engine *engine, unsigned ranks_here)
{
    bool is_crowded = ranks_here > engine->cpus;
    uint64_t spin_ns = is_crowded ? 0 : SPIN_NS;
    if (engine->spin_us >= 0) {
        spin_ns = (uint64_t)engine->spin_us * 1000;
    }
    atomic_store(&engine->spin_ns, spin_ns);
    atomic_store(&engine->quick_turns, is_crowded ? CROWDED_TURNS : QUICK_TURNS);
    /* Far more ranks than CPUs: a full turn of yields takes longer than a wake-up. */
    atomic_store(&engine->yield_ns, ranks_here > 8 * engine->cpus ? 0 : YIELD_NS);
}

bool weft_engine_is_crowded(const struct weft_engine *engine)
{
    return atomic_load_explicit(&engine->quick_turns, memory_order_relaxed) == CROWDED_TURNS;
}

void weft_engine_set_starting(struct weft_engine *engine, unsigned ranks, bool is_serving)
{
    weft_engine_set_load(engine, ranks);
    if (is_serving) {
        atomic_store(&engine->yield_ns, YIELD_NS);
    }
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void weft_engine_pass_turn(struct weft_engine *engine, int count)
{
    atomic_fetch_add(&engine->turn, 1);
    if (atomic_load(&engine->waiters) != 0) {
        syscall(SYS_futex, &engine->turn, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
    }
}

/* Another thread drives or sleeps in epoll: wait until it passes the turn. */
static void sleep_for_turn(struct weft_engine *engine, const _Atomic uint32_t *word,
                           uint64_t deadline_ns)
{
    uint32_t turn = atomic_load(&engine->turn);
    uint64_t now_ns = weft_clock_ns();
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    struct timespec left = {.tv_sec = 1};
    if (left_ns < UINT64_C(1000000000)) {
        left = (struct timespec){.tv_nsec = (long)left_ns};
    }
    if (!weft_engine_try_lock(engine)) {
        return; /* somebody drives, perhaps for us */
    }
    atomic_fetch_add(&engine->waiters, 1); /* under the lock: see announce_completions() */
    weft_engine_release(engine);
    if (atomic_load(word) == 0 && atomic_load(&engine->asleep) != 0) {
        syscall(SYS_futex, &engine->turn, FUTEX_WAIT_PRIVATE, turn, &left, NULL, 0);
    }
    atomic_fetch_sub(&engine->waiters, 1);
}

static void sleep_in_epoll(struct weft_engine *engine, const _Atomic uint32_t *word,
                           uint64_t deadline_ns)
{
    uint64_t next_ns;
    struct epoll_event event;
    bool is_quiet;
    if (!weft_engine_try_lock(engine)) {
        return; /* somebody drives */
    }
    is_quiet = weft_list_is_empty(&engine->works) && weft_engine_arm_pollers(engine) &&
               engine->front.news == 0;
    next_ns =
        atomic_load(&engine->next_timer_ns); /* a nearer one rings: we have said that we sleep */
    weft_engine_unlock(engine);
    if (!is_quiet) {
        return;
    }
    atomic_thread_fence(memory_order_seq_cst); /* see weft_engine_post() */
    if (weft_queue_is_empty(&engine->front.tasks) && atomic_load(word) == 0) {
        weft_count(&engine->counters, WEFT_COUNTER_SLEEPS, 1);
        /* Level-triggered: the event is left for the round that follows. */
        epoll_wait(engine->epfd, &event, 1,
                   weft_clock_ms_until(next_ns < deadline_ns ? next_ns : deadline_ns));
    }
}

static void sleep_now(struct weft_engine *engine, const _Atomic uint32_t *word,
                      uint64_t deadline_ns)
{
    uint32_t nobody = 0;
    if (atomic_compare_exchange_strong(&engine->asleep, &nobody, 1)) {
        sleep_in_epoll(engine, word, deadline_ns);
        atomic_store(&engine->asleep, 0);
    } else {
        sleep_for_turn(engine, word, deadline_ns);
    }
}

void weft_engine_poll(struct weft_engine *engine)
{
    if (weft_engine_try_lock(engine)) {
        /* Who asks again and again gets an answer from memory, and the rest of the world now and then. */
        if (engine->polls++ % FULL_EVERY == 0) {
            weft_engine_round(engine);
        } else {
            weft_engine_quick_round(engine);
        }
        weft_engine_work_follow(engine); /* one: a transfer of gigabytes is a chain of them */
        weft_engine_unlock(engine);
    }
}

/* One driver's turn: true when anything happened. quick: how many quick rounds at most; 0, or one is due:
 * a full one. */
static bool drive(struct weft_engine *engine, unsigned quick)
{
    bool has_moved = false;
    if (weft_engine_try_lock(engine)) {
        if (quick == 0 || weft_engine_is_full_due(engine)) {
            has_moved = weft_engine_round(engine);
            quick = 0;
        }
        /* No pause: on some CPUs it takes as long as the message. */
        for (unsigned i = 0; i < quick && !has_moved; i++) {
            if (i == 0 || weft_engine_is_worth_a_look(engine)) {
                has_moved = weft_engine_quick_round(engine);
            }
        }
        if (!weft_list_is_empty(&engine->works)) {
            has_moved |= weft_engine_work_follow(engine);
        }
        weft_engine_unlock(engine);
    }
    return has_moved;
}

/* The common case: what is waited for comes at once, and nobody needs to know that we waited. */
static bool wait_quickly(struct weft_engine *engine, const _Atomic uint32_t *word)
{
    uint32_t turns = atomic_load_explicit(&engine->quick_turns, memory_order_relaxed);
    bool is_costly = atomic_load_explicit(&engine->is_costly, memory_order_relaxed);
    if (!atomic_load_explicit(&engine->has_pollers, memory_order_relaxed)) {
        return false;
    }
    if (is_costly && turns > CROWDED_TURNS) {
        turns = COSTLY_TURNS;
    }
    for (uint32_t i = 0; i < turns; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != 0) {
            return true;
        }
        drive(engine, is_costly ? 1 : WEFT_ENGINE_QUICK_ROUNDS);
    }
    return atomic_load_explicit(word, memory_order_acquire) != 0;
}

static weft_status_t wait_long(struct weft_engine *engine, const _Atomic uint32_t *word,
                               uint64_t deadline_ns)
{
    uint64_t idle_since_ns = 0;
    while (atomic_load_explicit(word, memory_order_acquire) == 0) {
        unsigned between = atomic_load(&engine->spin_ns) == 0 ? 0
                           : atomic_load(&engine->is_costly)  ? 1
                                                              : WEFT_ENGINE_QUICK_ROUNDS;
        uint64_t now_ns;
        bool has_moved = drive(engine, 0);
        if (between > 0 && !has_moved) {
            has_moved = drive(engine, between);
        }
        now_ns = weft_clock_ns();
        if (now_ns >= deadline_ns && atomic_load_explicit(word, memory_order_acquire) == 0) {
            return WEFT_ERR_TIMEOUT;
        }
        if (has_moved || idle_since_ns == 0) {
            idle_since_ns = now_ns;
        }
        if (has_moved || now_ns - idle_since_ns < atomic_load(&engine->spin_ns)) {
            relax();
        } else if (now_ns - idle_since_ns <
                   atomic_load(&engine->spin_ns) + atomic_load(&engine->yield_ns)) {
            sched_yield();
        } else {
            sleep_now(engine, word, deadline_ns);
        }
    }
    return WEFT_OK;
}

weft_status_t weft_engine_wait(struct weft_engine *engine, const _Atomic uint32_t *word,
                               uint64_t deadline_ns)
{
    uint64_t since_ns;
    weft_status_t status;
    if (wait_quickly(engine, word)) {
        return WEFT_OK;
    }
    since_ns = weft_clock_ns();
    atomic_fetch_add(&engine->drivers, 1);
    status = wait_long(engine, word, deadline_ns);
    atomic_store(&engine->driven_ns, weft_clock_ns());
    atomic_fetch_sub(&engine->drivers, 1);
    if (atomic_load(&engine->driven_ns) - since_ns > LONG_WAIT_NS) {
        weft_background_take_back(engine); /* it naps long by now */
    }
    weft_engine_pass_turn(engine, 1);
    return status;
}
