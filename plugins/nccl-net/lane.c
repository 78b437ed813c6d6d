/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One TCP connection of a comm, and who may touch it. A lane has at most one owner at a time, who does what is wanted
 * of it; who comes meanwhile leaves a bit and goes, and the owner does that too before it lets go. So nobody
 * waits for a lane, and nothing that was wanted is forgotten.
 */
#include "nccl.h"

#include <errno.h>
#include <linux/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEPALIVE_S 1 /* a path that is dead is known after KEEPALIVE_S + KEEPALIVE_COUNT … */
#define KEEPALIVE_COUNT 4

/* ---- ownership ---- */

/* Comm's lock. */
static void set_state(struct weft_nccl_lane *lane, enum weft_nccl_lane_state state)
{
    struct weft_nccl_comm *comm = lane->comm;
    uint32_t bit = UINT32_C(1) << lane->index;
    bool is_up = state == WEFT_NCCL_LANE_UP || state == WEFT_NCCL_LANE_RETIRING;
    atomic_fetch_add(&weft_nccl_core.lanes, (uint32_t)(state != WEFT_NCCL_LANE_DEAD) -
                                                (uint32_t)(lane->state != WEFT_NCCL_LANE_DEAD));
    lane->state = state;
    atomic_fetch_and(&comm->by_callers, ~bit);
    atomic_fetch_and(&comm->by_helpers, ~bit);
    comm->parked &= ~bit;
    if (is_up) {
        comm->deaf |=
            bit; /* until the dialler has spoken: before, it could not tell notes from the handshake */
        atomic_fetch_or(lane->helper != NULL ? &comm->by_helpers : &comm->by_callers, bit);
    }
}

/* A sender that goes on resets what it gives up: an end without a reset means that it has closed, or is no more. */
static void hang_up(struct weft_nccl_lane *lane)
{
    const struct linger reset = {.l_onoff = 1};
    if (lane->comm->is_sender && atomic_load(&lane->comm->result) == NCCL_SUCCESS) {
        setsockopt(lane->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    weft_fd_close(lane->fd);
}

static void lose(struct weft_nccl_lane *lane, const char *why)
{
    struct weft_nccl_comm *comm = lane->comm;
    pthread_mutex_lock(&comm->lock);
    set_state(lane, WEFT_NCCL_LANE_DEAD);
    if (comm->is_sender) {
        weft_nccl_send_lost(lane);
    } else {
        weft_nccl_recv_lost(lane);
    }
    pthread_mutex_unlock(&comm->lock);
    weft_nccl_helper_unwatch(lane);
    hang_up(lane);
    lane->fd = -1;
    weft_nccl_count(WEFT_NCCL_COUNT_LANES_LOST, 1);
    if (atomic_load(&comm->result) == NCCL_SUCCESS) {
        weft_nccl_say(weft_nccl_news_level(), "lane %u %s %s by %s was lost: %s", lane->id,
                      comm->is_sender ? "to" : "from", comm->peer_text,
                      weft_nccl_core.devices.nics[lane->nic].name, why);
    }
    weft_nccl_comm_poke(comm);
}

static void work(struct weft_nccl_lane *lane, uint32_t bits)
{
    const char *why = atomic_load(&lane->kill_why);
    bool is_more = false, is_fine = (bits & WEFT_NCCL_KILL) == 0;
    if (lane->fd < 0) {
        return;
    }
    lane->is_ending |= (bits & WEFT_NCCL_END) != 0;
    if (is_fine && (bits & WEFT_NCCL_NOTES) != 0) {
        is_fine = weft_nccl_recv_notes(lane, &why);
    }
    if (is_fine && (bits & WEFT_NCCL_READ) != 0) {
        is_fine = lane->comm->is_sender ? weft_nccl_send_read(lane, &why)
                                        : weft_nccl_recv_read(lane, &is_more, &why);
    }
    if (is_fine && (bits & WEFT_NCCL_WRITE) != 0) {
        is_fine = weft_nccl_send_write(lane, &is_more, &why);
    }
    if (!is_fine) {
        lose(lane, why);
    } else if (is_more && lane->helper != NULL) {
        weft_nccl_helper_kick(lane, bits & (WEFT_NCCL_READ | WEFT_NCCL_WRITE));
    }
}

/* The owner does what was wanted meanwhile, and lets go. */
static void disown(struct weft_nccl_lane *lane)
{
    for (;;) {
        uint32_t owned = WEFT_NCCL_OWNED;
        uint32_t bits = atomic_fetch_and(&lane->wanted, WEFT_NCCL_OWNED);
        if ((bits & ~WEFT_NCCL_OWNED) != 0) {
            work(lane, bits);
        } else if (atomic_compare_exchange_strong(&lane->wanted, &owned, 0)) {
            return;
        }
    }
}

void weft_nccl_lane_drive(struct weft_nccl_lane *lane, uint32_t bits)
{
    if ((atomic_fetch_or(&lane->wanted, bits | WEFT_NCCL_OWNED) & WEFT_NCCL_OWNED) == 0) {
        disown(lane);
    }
}

static bool try_own(struct weft_nccl_lane *lane)
{
    return (atomic_fetch_or(&lane->wanted, WEFT_NCCL_OWNED) & WEFT_NCCL_OWNED) == 0;
}

/* Owners do not block, so this is soon. */
static void own(struct weft_nccl_lane *lane)
{
    while (!try_own(lane)) {
        sched_yield();
    }
}

void weft_nccl_lane_settle(struct weft_nccl_lane *lane)
{
    own(lane);
    disown(lane);
}

/* ---- its life ---- */

static bool is_place_free(struct weft_nccl_lane *lane)
{
    return lane->state == WEFT_NCCL_LANE_DEAD && atomic_load(&lane->wanted) == 0 &&
           lane->conn == NULL;
}

static struct weft_nccl_lane *find_place(struct weft_nccl_comm *comm)
{
    uint32_t count = atomic_load(&comm->lane_count);
    struct weft_nccl_lane *lane = NULL;
    pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < count && lane == NULL; i++) {
        lane = is_place_free(comm->lanes[i]) ? comm->lanes[i] : NULL;
    }
    pthread_mutex_unlock(&comm->lock);
    if (lane != NULL || count == WEFT_NCCL_LANES) {
        return lane;
    }
    lane = calloc(1, sizeof(*lane));
    if (lane != NULL) {
        lane->comm = comm;
        lane->index = (uint8_t)count;
        lane->fd = -1;
        comm->lanes[count] = lane;
        atomic_store(&comm->lane_count, count + 1);
    }
    return lane;
}

struct weft_nccl_lane *weft_nccl_lane_new(struct weft_nccl_comm *comm)
{
    struct weft_nccl_lane *lane = find_place(comm);
    if (lane == NULL) {
        return NULL;
    }
    own(lane);
    pthread_mutex_lock(&comm->lock);
    set_state(lane, WEFT_NCCL_LANE_DIALLING);
    lane->last_number = 0;
    lane->rate = 0;
    lane->sampled_ns = lane->backlog = lane->looked_ns = lane->since_ns = lane->drained = 0;
    pthread_mutex_unlock(&comm->lock);
    lane->is_parked = lane->has_frame = lane->is_sunk = false;
    lane->is_ending = lane->has_ended = false;
    lane->head_left = lane->left = lane->in_start = lane->in_end = 0;
    lane->stuck_ns = lane->written = 0;
    atomic_store(&lane->kill_why, NULL);
    disown(lane);
    return lane;
}

void weft_nccl_lane_drop(struct weft_nccl_lane *lane)
{
    pthread_mutex_lock(&lane->comm->lock);
    set_state(lane, WEFT_NCCL_LANE_DEAD);
    pthread_mutex_unlock(&lane->comm->lock);
}

static bool set_congestion(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

static void set_options(int fd, bool is_sender)
{
    unsigned gone_ms = (unsigned)weft_nccl_core.params.number[WEFT_PARAM_PATH_TIMEOUT];
    const char *name = weft_nccl_core.params.text[WEFT_PARAM_TCP_CC];
    const int on = 1, keepalive_s = KEEPALIVE_S, keepalive_count = KEEPALIVE_COUNT;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &keepalive_s, sizeof(keepalive_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &keepalive_s, sizeof(keepalive_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &keepalive_count, sizeof(keepalive_count));
    if (!is_sender) { /* notes are short: a peer that is only stopped has room for them */
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone_ms, sizeof(gone_ms));
    }
    if (strcmp(name, "auto") != 0) {
        set_congestion(fd, name);
    } else if (weft_net_is_one_host(fd) && !set_congestion(fd, "cubic")) {
        set_congestion(fd, "reno");
    }
}

void weft_nccl_lane_begin(struct weft_nccl_lane *lane, int fd)
{
    struct weft_nccl_comm *comm = lane->comm;
    set_options(fd, comm->is_sender);
    own(lane);
    lane->fd = fd;
    lane->helper = weft_nccl_helper_for(comm, lane->slot);
    if (lane->helper != NULL && weft_nccl_helper_watch(lane) != WEFT_OK) {
        lane->helper = NULL; /* then callers drive it */
    }
    if (comm->is_sender) {
        weft_nccl_send_open(lane);
    }
    pthread_mutex_lock(&comm->lock);
    set_state(lane, WEFT_NCCL_LANE_UP);
    pthread_mutex_unlock(&comm->lock);
    disown(lane);
    weft_nccl_count(WEFT_NCCL_COUNT_LANES_OPENED, 1);
}

static uint32_t silent_ms(struct weft_nccl_lane *lane)
{
    struct tcp_info info = {0}; /* older kernels fill less */
    socklen_t len = sizeof(info);
    uint64_t now_ns = weft_clock_ns(), waited_ms;
    if (lane->fd < 0 || getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) {
        return 0;
    }
    if (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0) {
        lane->stuck_ns = 0;
        return 0;
    }
    /* After a rest the last word is old, and no sign of anything. */
    if (lane->stuck_ns == 0 || lane->stuck_bytes != info.tcpi_bytes_acked) {
        lane->stuck_ns = now_ns;
        lane->stuck_bytes = info.tcpi_bytes_acked;
    }
    waited_ms = (now_ns - lane->stuck_ns) / WEFT_NS_PER_MS;
    if ((info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes > 1) {
        return waited_ms < info.tcpi_last_ack_recv ? (uint32_t)waited_ms : info.tcpi_last_ack_recv;
    }
    return 0;
}

uint32_t weft_nccl_lane_silent_ms(struct weft_nccl_lane *lane)
{
    uint32_t ms = 0;
    if (try_own(lane)) { /* else something moves */
        ms = silent_ms(lane);
        disown(lane);
    }
    return ms;
}

/* ---- ends ---- */

void weft_nccl_lane_hush(struct weft_nccl_lane *lane)
{
    own(lane);
    if (lane->fd >= 0) {
        shutdown(lane->fd, SHUT_WR); /* its end tells the sender that no note comes behind it */
    }
    disown(lane);
}

void weft_nccl_lane_stop(struct weft_nccl_lane *lane)
{
    weft_net_conn_close(lane->conn);
    lane->conn = NULL;
    own(lane);
    pthread_mutex_lock(&lane->comm->lock);
    set_state(lane, WEFT_NCCL_LANE_DEAD);
    if (lane->comm->is_sender) {
        weft_nccl_send_lost(lane); /* it may be in the middle of a chunk that nobody needs */
    } else {
        weft_nccl_recv_lost(lane);
    }
    pthread_mutex_unlock(&lane->comm->lock);
    if (lane->fd >= 0) {
        weft_nccl_helper_unwatch(lane);
        if (lane->comm->is_sender && lane->comm->is_closing) {
            weft_nccl_leave(lane->comm, lane->fd);
        } else {
            hang_up(lane);
        }
    }
    lane->fd = -1;
    disown(lane);
}
