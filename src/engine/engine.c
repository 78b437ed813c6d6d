/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources, timers, tasks, pollers and the poll round.
 *
 * A round runs tasks, then due timers, then pollers, then whatever epoll reports, and never blocks; long
 * copies come after it, without the lock (works.c). Sources may be removed by the handlers of the same
 * round: the batch is then searched for events that are still to be delivered, so that a handler never
 * sees a source that is gone.
 */
#include "engine/internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void bell_ready(struct weft_engine_source *source, uint32_t events)
{
    const struct weft_engine *engine = WEFT_CONTAINER_OF(source, struct weft_engine, bell_source);
    uint64_t rings;
    (void)events;
    /* Only empties the counter: the tasks it announces are run by the round itself. While another
     * thread sleeps the ring is left for it, else it would sleep on. */
    if (atomic_load(&engine->asleep) != 0 || read(source->fd, &rings, sizeof(rings)) < 0) {
        return;
    }
}

weft_status_t weft_engine_open(unsigned cpus, int64_t spin_us, struct weft_engine **engine_p)
{
    struct weft_engine *engine = calloc(1, sizeof(*engine));
    weft_status_t status;
    if (engine == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for an engine");
    }
    engine->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (engine->epfd < 0) {
        status = weft_fail_errno("epoll_create1");
        goto err_free;
    }
    weft_fd_own(engine->epfd);
    atomic_store(&engine->doorbell, -1);
    pthread_mutex_init(&engine->bell_lock, NULL);
    weft_list_open(&engine->timers);
    weft_list_open(&engine->pollers);
    weft_list_open(&engine->works);
    weft_list_open(&engine->background_node);
    weft_queue_open(&engine->front.tasks);
    atomic_store(&engine->next_timer_ns, WEFT_NEVER);
    engine->cpus = cpus;
    engine->spin_us = spin_us;
    weft_engine_set_load(engine, cpus + 1);
    engine->bell_source.ready = bell_ready;
    engine->bell_source.fd = -1;
    *engine_p = engine;
    return WEFT_OK;
err_free:
    free(engine);
    return status;
}

void weft_engine_close(struct weft_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    pthread_mutex_destroy(&engine->bell_lock);
    weft_fd_close(atomic_load(&engine->doorbell));
    weft_fd_close(engine->epfd);
    free(engine);
}

struct weft_counters *weft_engine_counters(struct weft_engine *engine)
{
    return &engine->counters;
}

/* ---- the lock: mostly free, held for less than it costs to sleep ---- */

#define LOCK_SPINS 200
#define TORN_SPINS 100 /* for a producer that is between its two steps on another CPU */

void weft_engine_lock(struct weft_engine *engine)
{
    for (int i = 0; i < LOCK_SPINS; i++) {
        if (weft_engine_try_lock(engine)) {
            return;
        }
        if (i >= LOCK_SPINS / 2) {
            sched_yield();
        }
    }
    atomic_fetch_add(&engine->front.lockers, 1);
    while (!weft_engine_try_lock(engine)) {
        /* A release that does not see us yet wakes nobody: then this ends by itself. */
        const struct timespec soon = {.tv_nsec = 200000};
        syscall(SYS_futex, &engine->front.lock, FUTEX_WAIT_PRIVATE, 1, &soon, NULL, 0);
    }
    atomic_fetch_sub(&engine->front.lockers, 1);
}

/* A plain store, because it is on the way of every message; see weft_engine_lock(). */
void weft_engine_release(struct weft_engine *engine)
{
    atomic_store_explicit(&engine->front.lock, 0, memory_order_release);
    if (atomic_load_explicit(&engine->front.lockers, memory_order_relaxed) != 0) {
        syscall(SYS_futex, &engine->front.lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

void weft_engine_adopt(struct weft_engine_source *source, int fd, uint32_t events)
{
    source->fd = fd;
    source->events = events;
}

weft_status_t weft_engine_watch(struct weft_engine *engine, struct weft_engine_source *source)
{
    struct epoll_event event = {.events = source->events, .data.ptr = source};
    if (epoll_ctl(engine->epfd, EPOLL_CTL_ADD, source->fd, &event) != 0 && errno != EEXIST) {
        return weft_fail_errno("epoll_ctl(add)");
    }
    return WEFT_OK;
}

weft_status_t weft_engine_add(struct weft_engine *engine, struct weft_engine_source *source, int fd,
                              uint32_t events)
{
    weft_status_t status;
    weft_engine_adopt(source, fd, events);
    status = weft_engine_watch(engine, source);
    if (status != WEFT_OK) {
        source->fd = -1;
    }
    return status;
}

void weft_engine_want(struct weft_engine *engine, struct weft_engine_source *source,
                      uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (source->fd < 0 || source->events == events) {
        return;
    }
    source->events = events;
    if (epoll_ctl(engine->epfd, EPOLL_CTL_MOD, source->fd, &event) != 0 &&
        (errno != ENOENT || weft_engine_watch(engine, source) != WEFT_OK)) {
        weft_log(engine, ERROR, "epoll_ctl(mod) of descriptor %d failed, errno %d", source->fd,
                 errno);
    }
}

void weft_engine_remove(struct weft_engine *engine, struct weft_engine_source *source)
{
    if (source->fd < 0) {
        return;
    }
    epoll_ctl(engine->epfd, EPOLL_CTL_DEL, source->fd, NULL);
    source->fd = -1;
    for (int i = engine->batch_next; i < engine->batch_len; i++) {
        if (engine->batch[i].data.ptr == source) {
            engine->batch[i].data.ptr = NULL;
        }
    }
}

/* ---- timers: few per engine, so a list and its minimum ---- */

static void update_next_timer(struct weft_engine *engine)
{
    uint64_t next = WEFT_NEVER;
    for (struct weft_list *node = engine->timers.next; node != &engine->timers; node = node->next) {
        const struct weft_engine_timer *timer =
            WEFT_CONTAINER_OF(node, struct weft_engine_timer, node);
        next = timer->at_ns < next ? timer->at_ns : next;
    }
    atomic_store(&engine->next_timer_ns, next);
}

void weft_engine_timer_open(struct weft_engine_timer *timer,
                            void (*fire)(struct weft_engine_timer *, uint64_t now_ns))
{
    timer->fire = fire;
    timer->at_ns = WEFT_NEVER;
    weft_list_open(&timer->node);
}

void weft_engine_timer_set(struct weft_engine *engine, struct weft_engine_timer *timer,
                           uint64_t at_ns)
{
    uint64_t before = atomic_load_explicit(&engine->next_timer_ns, memory_order_relaxed);
    weft_list_remove(&timer->node);
    timer->at_ns = at_ns;
    weft_list_append(&engine->timers, &timer->node);
    update_next_timer(engine);
    /* Whoever sleeps until the former one has read it under this lock, or after it was armed. */
    if (at_ns < before && (atomic_load(&engine->asleep) != 0 || atomic_load(&engine->armed) != 0)) {
        weft_engine_ring(engine);
    }
}

void weft_engine_timer_cancel(struct weft_engine *engine, struct weft_engine_timer *timer)
{
    if (weft_list_is_empty(&timer->node)) {
        return;
    }
    weft_list_remove(&timer->node);
    update_next_timer(engine);
}

static bool run_timers(struct weft_engine *engine)
{
    uint64_t next = atomic_load_explicit(&engine->next_timer_ns, memory_order_relaxed);
    uint64_t now_ns;
    bool has_fired = false;
    if (next == WEFT_NEVER) {
        return false;
    }
    now_ns = weft_clock_ns();
    while (atomic_load_explicit(&engine->next_timer_ns, memory_order_relaxed) <= now_ns) {
        struct weft_list *node = engine->timers.next;
        struct weft_engine_timer *timer;
        while (WEFT_CONTAINER_OF(node, struct weft_engine_timer, node)->at_ns > now_ns) {
            node = node->next;
        }
        timer = WEFT_CONTAINER_OF(node, struct weft_engine_timer, node);
        weft_engine_timer_cancel(engine, timer);
        timer->fire(timer, now_ns);
        has_fired = true;
    }
    return has_fired;
}

/* ---- tasks ---- */

static bool run_tasks(struct weft_engine *engine)
{
    bool has_run = false;
    struct weft_queue_node *node;
    while ((node = weft_queue_pop(&engine->front.tasks)) != NULL) {
        struct weft_engine_task *task = WEFT_CONTAINER_OF(node, struct weft_engine_task, node);
        task->run(task);
        has_run = true;
    }
    return has_run;
}

/* A producer that was interrupted between its two steps hides what lies behind it, perhaps the very task
 * that the caller must not leave behind: it is waited for, and soon gets the CPU. */
void weft_engine_run_tasks(struct weft_engine *engine)
{
    unsigned idle_turns = 0;
    while (!weft_queue_is_empty(&engine->front.tasks)) {
        if (!run_tasks(engine) && ++idle_turns > TORN_SPINS) {
            sched_yield();
        }
    }
}

/* Made with its first use: most starts end without one. Adding it, rung, to the epoll wakes a sleeper. */
weft_status_t weft_engine_open_bell(struct weft_engine *engine, unsigned rings)
{
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&engine->bell_lock);
    if (atomic_load(&engine->doorbell) < 0) {
        int fd = eventfd(rings, EFD_CLOEXEC | EFD_NONBLOCK);
        status = fd < 0 ? weft_fail_errno("eventfd") : WEFT_OK;
        if (status == WEFT_OK) {
            atomic_store(&engine->doorbell, weft_fd_own(fd));
            status = weft_engine_add(engine, &engine->bell_source, fd, EPOLLIN);
            if (status != WEFT_OK) {
                atomic_store(&engine->doorbell, -1);
                weft_fd_close(fd);
            }
        }
    }
    pthread_mutex_unlock(&engine->bell_lock);
    return status;
}

void weft_engine_ring(struct weft_engine *engine)
{
    const uint64_t one = 1;
    int fd = atomic_load(&engine->doorbell);
    if (fd < 0) {
        if (weft_engine_open_bell(engine, 1) != WEFT_OK) {
            weft_log(engine, ERROR, "cannot wake a sleeping thread: %s", weft_error_text());
        }
    } else if (write(fd, &one, sizeof(one)) < 0) {
        weft_log(engine, ERROR, "cannot ring the doorbell, errno %d", errno);
    }
}

/* Whoever sleeps has said so under this lock: without a fence either we see it, or it sees the word. */
static void announce_completions(struct weft_engine *engine)
{
    if ((engine->front.news & WEFT_ENGINE_COMPLETED) != 0) {
        engine->front.news &= ~(uint32_t)WEFT_ENGINE_COMPLETED;
        if (atomic_load_explicit(&engine->waiters, memory_order_relaxed) != 0) {
            weft_engine_pass_turn(engine, INT32_MAX);
        }
        if (atomic_load_explicit(&engine->asleep, memory_order_relaxed) != 0) {
            weft_engine_ring(engine); /* what completed may be the sleeper's */
        }
    }
}

/* ---- memory that is polled ---- */

void weft_engine_poller_add(struct weft_engine *engine, struct weft_engine_poller *poller)
{
    weft_list_append(&engine->pollers, &poller->node);
    engine->are_pollers_armed = true; /* the next round disarms them, whatever they are */
    atomic_store(&engine->has_pollers, true);
    weft_background_step_back(engine); /* this one is not armed */
}

void weft_engine_set_costly(struct weft_engine *engine)
{
    atomic_store(&engine->is_costly, true);
}

void weft_engine_poller_remove(struct weft_engine *engine, struct weft_engine_poller *poller)
{
    weft_list_remove(&poller->node);
    atomic_store(&engine->has_pollers, !weft_list_is_empty(&engine->pollers));
}

static struct weft_engine_poller *poller_at(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct weft_engine_poller, node);
}

bool weft_engine_arm_pollers(struct weft_engine *engine)
{
    engine->are_pollers_armed = true;
    for (struct weft_list *node = engine->pollers.next; node != &engine->pollers;
         node = node->next) {
        if (!poller_at(node)->arm(poller_at(node))) {
            return false;
        }
    }
    return true;
}

/* Whoever sleeps in epoll relies on being woken: then they stay armed, and the sleeper is woken for
 * nothing now and then. */
static void disarm_pollers(struct weft_engine *engine)
{
    if (atomic_load(&engine->asleep) != 0) {
        return;
    }
    engine->are_pollers_armed = false;
    for (struct weft_list *node = engine->pollers.next; node != &engine->pollers;
         node = node->next) {
        poller_at(node)->disarm(poller_at(node));
    }
    weft_background_step_back(engine);
}

static bool run_pollers(struct weft_engine *engine)
{
    bool has_moved = false;
    if (engine->are_pollers_armed) {
        disarm_pollers(engine);
    }
    for (struct weft_list *node = engine->pollers.next; node != &engine->pollers;
         node = node->next) {
        has_moved |= poller_at(node)->poll(poller_at(node));
    }
    return has_moved;
}

/* ---- the rounds ---- */

static void note_drive(struct weft_engine *engine)
{
    /* One writer at a time: a plain addition, seen by others as a value that changes. */
    uint64_t drives = atomic_load_explicit(&engine->drives, memory_order_relaxed);
    atomic_store_explicit(&engine->drives, drives + 1, memory_order_relaxed);
}

bool weft_engine_look(struct weft_engine *engine, const _Atomic uint32_t *word, uint32_t value)
{
    uint32_t looks =
        atomic_load_explicit(&engine->quick_turns, memory_order_relaxed) * WEFT_ENGINE_QUICK_ROUNDS;
    if (engine->are_pollers_armed) {
        disarm_pollers(engine);
    }
    note_drive(engine);
    if (weft_engine_is_full_due(engine)) {
        return false;
    }
    for (uint32_t i = 0; i < looks; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) == value) {
            return true;
        }
        if (!weft_queue_is_empty(&engine->front.tasks) || !weft_list_is_empty(&engine->works) ||
            atomic_load_explicit(&engine->front.lockers, memory_order_relaxed) != 0) {
            return false;
        }
    }
    return false;
}

bool weft_engine_quick_round(struct weft_engine *engine)
{
    bool has_moved = false;
    if (weft_list_is_empty(&engine->pollers)) {
        return weft_engine_round(engine);
    }
    if (!weft_queue_is_empty(&engine->front.tasks)) {
        has_moved = run_tasks(engine);
    }
    has_moved |= run_pollers(engine);
    note_drive(engine);
    announce_completions(engine);
    return has_moved;
}

/* Who has something, says the kernel. */
static bool run_sources(struct weft_engine *engine)
{
    bool has_moved = false;
    engine->batch_len = epoll_wait(engine->epfd, engine->batch, WEFT_ENGINE_BATCH, 0);
    for (engine->batch_next = 0; engine->batch_next < engine->batch_len;) {
        const struct epoll_event *event = &engine->batch[engine->batch_next++];
        struct weft_engine_source *source = event->data.ptr;
        if (source != NULL) {
            source->ready(source, event->events);
            has_moved = true;
        }
    }
    engine->batch_len = 0;
    return has_moved;
}

/* As long as pollers find something by themselves the kernel is asked now and then only. */
bool weft_engine_round(struct weft_engine *engine)
{
    bool has_moved = run_tasks(engine);
    bool has_found;
    has_moved |= run_timers(engine);
    has_found = run_pollers(engine);
    has_moved |= has_found;
    if (!has_found || weft_engine_is_full_due(engine)) {
        if (run_sources(engine)) {
            has_moved = true;
            (void)run_pollers(engine); /* it is theirs, mostly */
        }
        atomic_store_explicit(&engine->full_due,
                              atomic_load_explicit(&engine->drives, memory_order_relaxed) +
                                  WEFT_ENGINE_FULL_EVERY,
                              memory_order_relaxed);
    }
    weft_count(&engine->counters, WEFT_COUNTER_ROUNDS, 1);
    note_drive(engine);
    announce_completions(engine);
    return has_moved;
}

/* What was completed outside a round has waiters too. */
void weft_engine_unlock_and_tell(struct weft_engine *engine)
{
    announce_completions(engine);
    weft_engine_announce_works(engine);
    weft_engine_release(engine);
}

void weft_engine_completed(struct weft_engine *engine)
{
    engine->front.news |= WEFT_ENGINE_COMPLETED;
}

void weft_engine_post(struct weft_engine *engine, struct weft_engine_task *task)
{
    weft_queue_push(&engine->front.tasks, &task->node);
    /* Pairs with the fence before a sleeper looks at the queue a last time: either it sees the task
     * or we see that it sleeps. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&engine->asleep, memory_order_relaxed) == 0 &&
        atomic_load_explicit(&engine->armed, memory_order_relaxed) == 0) {
        return;
    }
    weft_engine_ring(engine);
}
