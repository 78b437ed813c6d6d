/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that only move bytes: each has some lanes, is told by epoll when bytes or room have come, and by a kick when there
 * is something to send or a receive was posted. Idle, it sleeps in the kernel.
 *
 * What epoll has told is worked off under the helper's lock, and nothing is fetched outside it: who has stopped
 * a lane and then passes through that lock knows that the helper does not remember it.
 */
#include "nccl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS 16

struct weft_nccl_helper {
    pthread_t thread;
    int epfd, bell;
    pthread_mutex_t lock; /* while lanes are driven */
    pthread_mutex_t kick_lock;
    struct weft_nccl_lane *kicked; /* kick lock; the latest first */
    _Atomic bool is_asleep, is_stopping;
};

static uint64_t spin_ns; /* how long a helper looks before it sleeps */

/* ---- kicks ---- */

static struct weft_nccl_lane *take_kicked(struct weft_nccl_helper *helper, uint32_t *bits_p)
{
    struct weft_nccl_lane *lane;
    pthread_mutex_lock(&helper->kick_lock);
    lane = helper->kicked;
    if (lane != NULL) {
        helper->kicked = lane->next_kicked;
        *bits_p = lane->kicked;
        lane->kicked = 0;
    }
    pthread_mutex_unlock(&helper->kick_lock);
    return lane;
}

static struct weft_nccl_lane **last_kicked(struct weft_nccl_helper *helper)
{
    struct weft_nccl_lane **at = &helper->kicked;
    while (*at != NULL) {
        at = &(*at)->next_kicked;
    }
    return at;
}

void weft_nccl_helper_kick(struct weft_nccl_lane *lane, uint32_t bits)
{
    struct weft_nccl_helper *helper = lane->helper;
    const uint64_t one = 1;
    if (helper == NULL) {
        return; /* it was another lane a moment ago */
    }
    pthread_mutex_lock(&helper->kick_lock);
    if (lane->kicked == 0) {
        *last_kicked(helper) = lane;
        lane->next_kicked = NULL;
    }
    lane->kicked |= bits;
    pthread_mutex_unlock(&helper->kick_lock);
    if (atomic_exchange(&helper->is_asleep, false)) {
        weft_nccl_count(WEFT_NCCL_COUNT_HELPER_WAKES, 1);
        (void)!write(helper->bell, &one, sizeof(one)); /* full: it rings already */
    }
}

static bool is_kicked(struct weft_nccl_helper *helper)
{
    bool is_any;
    pthread_mutex_lock(&helper->kick_lock);
    is_any = helper->kicked != NULL;
    pthread_mutex_unlock(&helper->kick_lock);
    return is_any;
}

/* ---- the thread ---- */

static uint32_t bits_of(uint32_t events)
{
    const uint32_t end = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    return ((events & (EPOLLIN | end)) != 0 ? WEFT_NCCL_READ : 0) |
           ((events & end) != 0 ? WEFT_NCCL_END : 0) |
           ((events & EPOLLOUT) != 0 ? WEFT_NCCL_WRITE : 0);
}

/* Everything that is due, once; was there anything? */
static bool look(struct weft_nccl_helper *helper)
{
    struct epoll_event events[EVENTS];
    struct weft_nccl_lane *lane;
    uint32_t bits, budget = EVENTS; /* a lane that kicks itself again must not starve the others */
    uint64_t rings;
    int count;
    bool is_busy = false;
    pthread_mutex_lock(&helper->lock);
    while (budget-- > 0 && (lane = take_kicked(helper, &bits)) != NULL) {
        weft_nccl_lane_drive(lane, bits);
        is_busy = true;
    }
    count = epoll_wait(helper->epfd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        lane = events[i].data.ptr;
        if (lane == NULL) {
            (void)!read(helper->bell, &rings, sizeof(rings));
        } else {
            weft_nccl_lane_drive(lane, bits_of(events[i].events));
            is_busy = true;
        }
    }
    pthread_mutex_unlock(&helper->lock);
    return is_busy;
}

static void sleep_until_wanted(struct weft_nccl_helper *helper)
{
    struct pollfd ready = {.fd = helper->epfd, .events = POLLIN};
    atomic_store(&helper->is_asleep, true);
    if (!is_kicked(helper) && !atomic_load(&helper->is_stopping)) {
        poll(&ready, 1, -1);
    }
    atomic_store(&helper->is_asleep, false);
}

static void *helper_main(void *argument)
{
    struct weft_nccl_helper *helper = argument;
    uint64_t idle_ns = 0;
    while (!atomic_load(&helper->is_stopping)) {
        if (look(helper)) {
            idle_ns = 0;
        } else if (spin_ns > 0 && idle_ns == 0) {
            idle_ns = weft_clock_ns();
        } else if (spin_ns == 0 || weft_clock_ns() - idle_ns >= spin_ns) {
            sleep_until_wanted(helper);
        }
    }
    return NULL;
}

/* ---- opening and closing ---- */

static weft_status_t helper_open(struct weft_nccl_helper *helper)
{
    const struct weft_thread spec = {
        .run = helper_main,
        .arg = helper,
        .cpus = weft_nccl_core.devices.has_cpus ? &weft_nccl_core.devices.cpus : NULL};
    struct epoll_event event = {.events = EPOLLIN};
    int error;
    helper->epfd = epoll_create1(EPOLL_CLOEXEC);
    helper->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (helper->epfd < 0 || helper->bell < 0 ||
        epoll_ctl(helper->epfd, EPOLL_CTL_ADD, helper->bell, &event) != 0) {
        weft_status_t status = weft_fail_errno("no descriptors for a helper thread");
        close(helper->epfd);
        close(helper->bell);
        return status;
    }
    weft_fd_own(helper->epfd);
    weft_fd_own(helper->bell);
    pthread_mutex_init(&helper->lock, NULL);
    pthread_mutex_init(&helper->kick_lock, NULL);
    error = weft_thread_start(&spec, &helper->thread);
    if (error != 0) {
        weft_fd_close(helper->epfd);
        weft_fd_close(helper->bell);
        errno = error;
        return weft_fail_errno("cannot start a helper thread");
    }
    pthread_setname_np(helper->thread, "weft-nccl");
    return WEFT_OK;
}

/* As launchers say; NCCL does not. Without a word: a rank for each GPU. */
static unsigned local_ranks(void)
{
    static const char *const names[] = {"WEFT_LOCAL_RANKS", "LOCAL_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "SLURM_NTASKS_PER_NODE"};
    struct weft_topo_gpu *gpus;
    unsigned count = 0;
    for (size_t i = 0; i < WEFT_COUNT_OF(names) && count == 0; i++) {
        const char *value = getenv(names[i]);
        count = value != NULL ? (unsigned)strtoul(value, NULL, 10) : 0;
    }
    if (count == 0 && weft_topo_gpus("", &gpus, &count) == WEFT_OK) {
        free(gpus);
    }
    return count > 0 ? count : 1;
}

uint32_t weft_nccl_helpers_wanted(unsigned cpus)
{
    int64_t wanted = weft_nccl_core.params.number[WEFT_PARAM_NCCL_HELPERS];
    unsigned share = cpus / local_ranks();
    return wanted >= 0 ? (uint32_t)wanted : share >= 8 ? 4 : share >= 4 ? 2 : 1;
}

weft_status_t weft_nccl_helpers_open(uint32_t count)
{
    int64_t spin_us = weft_nccl_core.params.number[WEFT_PARAM_SPIN];
    weft_status_t status = WEFT_OK;
    spin_ns = spin_us > 0 ? (uint64_t)spin_us * 1000 : 0;
    weft_nccl_core.helper_count = 0;
    weft_nccl_core.helpers = calloc(count > 0 ? count : 1, sizeof(struct weft_nccl_helper));
    if (weft_nccl_core.helpers == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for helper threads");
    }
    while (weft_nccl_core.helper_count < count && status == WEFT_OK) {
        status = helper_open(&weft_nccl_core.helpers[weft_nccl_core.helper_count]);
        weft_nccl_core.helper_count += status == WEFT_OK;
    }
    if (status != WEFT_OK) {
        weft_nccl_helpers_close();
    }
    return status;
}

void weft_nccl_helpers_close(void)
{
    const uint64_t one = 1;
    for (uint32_t i = 0; i < weft_nccl_core.helper_count; i++) {
        struct weft_nccl_helper *helper = &weft_nccl_core.helpers[i];
        atomic_store(&helper->is_stopping, true);
        (void)!write(helper->bell, &one, sizeof(one));
        pthread_join(helper->thread, NULL);
        pthread_mutex_destroy(&helper->lock);
        pthread_mutex_destroy(&helper->kick_lock);
        weft_fd_close(helper->epfd);
        weft_fd_close(helper->bell);
    }
    free(weft_nccl_core.helpers);
    weft_nccl_core.helpers = NULL;
    weft_nccl_core.helper_count = 0;
}

/* ---- their lanes ---- */

struct weft_nccl_helper *weft_nccl_helper_for(const struct weft_nccl_comm *comm, uint32_t slot)
{
    uint32_t count = weft_nccl_core.helper_count;
    return slot == 0 || count == 0 ? NULL
                                   : &weft_nccl_core.helpers[(comm->turn + slot - 1) % count];
}

weft_status_t weft_nccl_helper_watch(struct weft_nccl_lane *lane)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = lane};
    event.events |= lane->comm->is_sender ? EPOLLOUT : 0;
    return epoll_ctl(atomic_load(&lane->helper)->epfd, EPOLL_CTL_ADD, lane->fd, &event) == 0
               ? WEFT_OK
               : weft_fail_errno("epoll_ctl");
}

void weft_nccl_helper_unwatch(struct weft_nccl_lane *lane)
{
    struct weft_nccl_helper *helper = lane->helper;
    if (helper != NULL) {
        epoll_ctl(helper->epfd, EPOLL_CTL_DEL, lane->fd, NULL);
    }
}

static void forget(struct weft_nccl_helper *helper, const struct weft_nccl_comm *comm)
{
    pthread_mutex_lock(&helper->kick_lock);
    for (struct weft_nccl_lane **at = &helper->kicked; *at != NULL;) {
        if ((*at)->comm == comm) {
            *at = (*at)->next_kicked;
        } else {
            at = &(*at)->next_kicked;
        }
    }
    pthread_mutex_unlock(&helper->kick_lock);
}

void weft_nccl_helpers_forget(struct weft_nccl_comm *comm)
{
    for (uint32_t i = 0; i < weft_nccl_core.helper_count; i++) {
        struct weft_nccl_helper *helper = &weft_nccl_core.helpers[i];
        forget(helper, comm); /* nobody kicks any more: from now on it can fetch none of them … */
        pthread_mutex_lock(&helper->lock); /* … and what it had fetched is worked off */
        pthread_mutex_unlock(&helper->lock);
    }
}
