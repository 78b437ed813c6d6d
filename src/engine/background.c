/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background thread: one per process, from the first engine that needs it to the last. It serves
 * engines that nobody drives, so that heartbeats, verdicts and strangers are served while the
 * application computes.
 *
 * It sleeps in an epoll of the engines' epolls, each armed for one event. When an event comes while
 * a driver is at work it steps back: the engine stays unarmed and is looked at again after a nap
 * (1 ms, doubling to 4 ms while the driver stays), so that a driven engine costs no double
 * wake-ups. Once nobody has driven for 100 µs it drives the engine itself and arms it again.
 *
 * Armed means two things at once, so both change under the engine's lock: events of its epoll wake the
 * thread, and its pollers were told that somebody sleeps. Were only the first true, what arrives in
 * memory would wait for a timer.
 */
#include "engine/internal.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IDLE_NS UINT64_C(100000)
#define NAP_MS 1
#define FIRST_LOOK_MS 10 /* the first engine is armed already; its timers are not nearer */
#define STACK_LEN ((size_t)1 << 20) /* reductions run on it too, also unoptimised ones */
#define NAP_DOUBLINGS 2 /* 4 ms: how long what arrives may wait once the application computes */
#define ROUNDS 16       /* then other engines have their turn */

static struct {
    pthread_mutex_t life; /* held while the thread is started or ended; the thread never takes it */
    cpu_set_t cpus;       /* under `life` */
    bool is_bound;        /* … to them */
    pthread_mutex_t lock; /* what follows; the thread holds it while it serves */
    pthread_t thread;
    int epfd;         /* -1: no thread */
    _Atomic int bell; /* eventfd in it: look at the engines again; -1: nobody has rung yet */
    bool is_stopping;
    struct weft_list engines;
} background = {
    .life = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .epfd = -1, .bell = -1};

static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;

static void watch(struct weft_engine *engine)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = engine};
    epoll_ctl(background.epfd, EPOLL_CTL_MOD, engine->epfd, &event);
}

/* Under the engine's lock; false: there is something to do. */
static bool arm(struct weft_engine *engine)
{
    if (!weft_list_is_empty(&engine->works) || !weft_engine_arm_pollers(engine)) {
        return false;
    }
    atomic_store(&engine->armed, 1);
    watch(engine);
    /* As in weft_engine_post(): a task pushed before `armed` was seen must not wait for a bell. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!weft_queue_is_empty(&engine->front.tasks)) {
        atomic_store(&engine->armed, 0);
        return false;
    }
    return true;
}

static bool is_driven(struct weft_engine *engine)
{
    uint64_t drives = atomic_load_explicit(&engine->drives, memory_order_relaxed);
    bool has_been_driven = drives != engine->background_seen;
    engine->background_seen = drives;
    return has_been_driven || atomic_load(&engine->drivers) != 0 ||
           weft_clock_ns() - atomic_load(&engine->driven_ns) < IDLE_NS;
}

/* Under the engine's lock: true when all is done and the engine is armed. Our own rounds do not count as
 * somebody's who drives it. */
static bool drive(struct weft_engine *engine)
{
    bool is_armed;
    atomic_store(&engine->armed, 0);
    for (int i = 0; i < ROUNDS; i++) {
        bool has_moved = weft_engine_round(engine);
        has_moved |= weft_engine_work_run(engine);
        if (!has_moved) {
            break;
        }
    }
    is_armed = arm(engine);
    engine->background_seen = atomic_load_explicit(&engine->drives, memory_order_relaxed);
    return is_armed;
}

/* Somebody drives, but only by quick rounds since we last looked? Then the next one is a full one. */
static void ask_for_full_round(struct weft_engine *engine)
{
    uint64_t full = weft_counter_read(&engine->counters, WEFT_COUNTER_ROUNDS);
    if (full == engine->background_full) {
        atomic_store_explicit(&engine->full_due, 0, memory_order_relaxed);
    }
    engine->background_full = full;
}

/* Until when may the thread sleep as far as this engine is concerned? */
static uint64_t serve(struct weft_engine *engine, uint64_t now_ns)
{
    bool is_armed;
    if (is_driven(engine) || !weft_engine_try_lock(engine)) { /* whoever has the lock drives */
        unsigned doublings =
            engine->background_naps < NAP_DOUBLINGS ? engine->background_naps : NAP_DOUBLINGS;
        engine->background_naps++;
        ask_for_full_round(engine);
        return now_ns + ((NAP_MS * WEFT_NS_PER_MS) << doublings);
    }
    engine->background_naps = 0;
    is_armed = drive(engine);
    weft_engine_unlock(engine);
    return is_armed ? atomic_load(&engine->next_timer_ns) : now_ns;
}

/* An engine may have left since its event was fetched: only those still listed are touched. */
static bool has_event(const struct weft_engine *engine, const struct epoll_event *events, int count)
{
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == engine) {
            return true;
        }
    }
    return false;
}

static uint64_t serve_all(const struct epoll_event *events, int count)
{
    uint64_t now_ns = weft_clock_ns();
    uint64_t wake_ns = WEFT_NEVER;
    for (struct weft_list *node = background.engines.next; node != &background.engines;
         node = node->next) {
        struct weft_engine *engine = WEFT_CONTAINER_OF(node, struct weft_engine, background_node);
        uint64_t next = atomic_load(&engine->next_timer_ns);
        if (has_event(engine, events, count)) {
            atomic_store(&engine->armed, 0);
        }
        if (atomic_load(&engine->armed) == 0 || next <= now_ns) {
            next = serve(engine, now_ns);
        }
        wake_ns = next < wake_ns ? next : wake_ns;
    }
    return wake_ns;
}

static void empty_bell(const struct epoll_event *events, int count)
{
    uint64_t rings;
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == NULL && read(atomic_load(&background.bell), &rings, 8) < 0) {
            return; /* empty already, or not known yet: then it wakes us again */
        }
    }
}

static void *background_main(void *unused)
{
    struct epoll_event events[16];
    uint64_t wake_ns = weft_clock_after_ms(FIRST_LOOK_MS);
    (void)unused;
    for (;;) {
        int count = epoll_wait(background.epfd, events, WEFT_COUNT_OF(events),
                               weft_clock_ms_until(wake_ns));
        pthread_mutex_lock(&background.lock);
        if (background.is_stopping) {
            pthread_mutex_unlock(&background.lock);
            return NULL;
        }
        empty_bell(events, count);
        wake_ns = serve_all(events, count > 0 ? count : 0);
        pthread_mutex_unlock(&background.lock);
    }
}

void weft_background_bind(const cpu_set_t *cpus)
{
    pthread_mutex_lock(&background.life);
    background.cpus = *cpus;
    background.is_bound = true;
    if (background.epfd >= 0) {
        pthread_setaffinity_np(background.thread, sizeof(*cpus), cpus);
    }
    pthread_mutex_unlock(&background.life);
}

static int start_thread(void)
{
    const struct weft_thread spec = {.run = background_main,
                                     .stack_len = STACK_LEN,
                                     .cpus = background.is_bound ? &background.cpus : NULL};
    return weft_thread_start(&spec, &background.thread);
}

static weft_status_t open_thread(void)
{
    int error;
    background.epfd = epoll_create1(EPOLL_CLOEXEC);
    if (background.epfd < 0) {
        return weft_fail_errno("epoll_create1");
    }
    weft_fd_own(background.epfd);
    weft_list_open(&background.engines);
    background.is_stopping = false;
    error = start_thread();
    if (error != 0) {
        weft_fd_close(background.epfd);
        background.epfd = -1;
        errno = error;
        return weft_fail_errno("cannot start the background thread");
    }
    return WEFT_OK;
}

/* A forked child inherits the bookkeeping but not the thread, which may have held the locks. */
static void start_afresh_in_child(void)
{
    pthread_mutex_init(&background.life, NULL);
    pthread_mutex_init(&background.lock, NULL);
    background.epfd = -1;
    atomic_store(&background.bell, -1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, start_afresh_in_child);
}

static void ring(int bell)
{
    const uint64_t one = 1;
    if (write(bell, &one, sizeof(one)) < 0) {
        weft_log(engine, ERROR, "cannot tell the background thread, errno %d", errno);
    }
}

/* Made with its first use; adding it, rung, wakes the thread. An engine that is joined keeps the thread
 * alive, so epfd is good. */
static void open_bell(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int bell = -1;
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        return; /* it will look when its timer says so */
    }
    weft_fd_own(fd);
    /* Known to others only when it works: they would write into whoever gets the number next. */
    if (epoll_ctl(background.epfd, EPOLL_CTL_ADD, fd, &event) != 0) {
        weft_fd_close(fd);
    } else if (!atomic_compare_exchange_strong(&background.bell, &bell, fd)) {
        weft_fd_close(fd); /* another thread was faster */
        ring(bell);
    }
}

void weft_background_step_back(struct weft_engine *engine)
{
    int bell;
    if (atomic_load(&engine->armed) == 0 || atomic_exchange(&engine->armed, 0) == 0 ||
        pthread_equal(pthread_self(), background.thread)) {
        return;
    }
    bell = atomic_load(&background.bell);
    if (bell < 0) {
        open_bell();
    } else {
        ring(bell);
    }
}

static void wake_thread(struct weft_engine *engine)
{
    weft_engine_ring(engine);
    watch(engine);
}

/* Without the thread's lock, which it holds while it copies for other engines. Whatever keeps us from
 * arming is looked at when its nap is over. */
void weft_background_take_back(struct weft_engine *engine)
{
    if (!atomic_load(&engine->is_joined) || atomic_load(&engine->armed) != 0 ||
        atomic_load(&engine->drivers) != 0 || !weft_engine_try_lock(engine)) {
        return;
    }
    arm(engine);
    weft_engine_unlock(engine);
}

weft_status_t weft_background_join(struct weft_engine *engine)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = engine};
    weft_status_t status = WEFT_OK;
    bool is_first;
    pthread_once(&forks_watched, watch_forks);
    pthread_mutex_lock(&background.life);
    pthread_mutex_lock(&background.lock);
    is_first = background.epfd < 0;
    status = weft_engine_open_bell(engine, 0);
    if (status == WEFT_OK && is_first) {
        status = open_thread();
    }
    if (status == WEFT_OK && epoll_ctl(background.epfd, EPOLL_CTL_ADD, engine->epfd, &event) != 0) {
        status = weft_fail_errno("epoll_ctl(add)");
    }
    if (status == WEFT_OK) {
        atomic_store(&engine->armed, 1);
        atomic_store(&engine->is_joined, true);
        weft_list_append(&background.engines, &engine->background_node);
        if (!is_first || atomic_load(&engine->has_pollers)) {
            wake_thread(engine); /* its timers are not known there yet, its pollers not armed */
        }
    }
    pthread_mutex_unlock(&background.lock);
    pthread_mutex_unlock(&background.life);
    return status;
}

/* true: that was the last engine, and the thread is on its way out */
static bool leave_list(struct weft_engine *engine)
{
    bool is_last = false;
    pthread_mutex_lock(&background.lock);
    if (!weft_list_is_empty(&engine->background_node)) {
        atomic_store(&engine->is_joined, false);
        atomic_store(&engine->armed,
                     0); /* who drives it from now on has nobody to step back from */
        weft_list_remove(&engine->background_node);
        is_last = weft_list_is_empty(&background.engines);
        if (is_last) {
            background.is_stopping = true;
            wake_thread(engine);
        } else {
            epoll_ctl(background.epfd, EPOLL_CTL_DEL, engine->epfd, NULL);
        }
    }
    pthread_mutex_unlock(&background.lock);
    return is_last;
}

void weft_background_leave(struct weft_engine *engine)
{
    pthread_mutex_lock(&background.life);
    if (leave_list(engine)) {
        pthread_join(background.thread, NULL);
        weft_fd_close(atomic_exchange(&background.bell, -1));
        weft_fd_close(background.epfd);
        background.epfd = -1;
    }
    pthread_mutex_unlock(&background.life);
}
