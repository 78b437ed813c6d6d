/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lane, from the call to its end.
 *
 *   dialler: DIALLING -> SETTING_UP -> UP -> LOST        acceptor: SETTING_UP -> UP -> LOST
 *
 * The connection is authenticated as all are; then its descriptor is taken out and carries mail.
 * The dialler sends its inbox first, the acceptor answers with its own and may speak at once.
 * Between two ranks there is one lane: when both call each other, the call of the lower rank
 * stands, and the other one's lane is served by it.
 *
 * A lane that ends is drained first: what the peer published before it died is delivered, then
 * LOST. A lane that is closed here while the peer still reads slots of ours lingers until the peer
 * is gone, because a slot that is read must not be written.
 */
#include "lane/shm/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Waiting 1, 2, 4 … ms between them, a quarter of a second in all: whoever can be reached otherwise
 * should not be kept waiting by a host where shared memory cannot work. */
#define SETUP_TRIES 1000
#define TRIES 9
#define CMA_OFF 2 /* index into the parameter's choices */

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns);
static void dial(struct weft_shm_lane *lane);

static uint32_t find_local(const struct weft_shm_port *port, uint32_t rank)
{
    for (uint32_t i = 0; i < port->local_count; i++) {
        if (port->local_ranks[i] == rank) {
            return i;
        }
    }
    return UINT32_MAX;
}

void weft_shm_add_news(struct weft_shm_lane *lane)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    if (!lane->is_closing && weft_list_is_empty(&lane->news)) {
        weft_list_append(&port->news, &lane->news);
    }
    port->has_chores = true;
}

/* ---- the end ---- */

static void stop_dialling(struct weft_shm_lane *lane)
{
    struct weft_net_conn *conn = lane->conn;
    lane->conn = NULL;
    weft_net_conn_close(conn);
    weft_engine_timer_cancel(weft_shm_port_of(lane)->engine, &lane->timer);
}

/* The share lock: freeing memory writes into the socket from any thread. */
static void close_socket(struct weft_shm_lane *lane)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    if (lane->fd < 0) {
        return;
    }
    weft_engine_remove(port->engine, &lane->source);
    pthread_mutex_lock(&port->share_lock);
    weft_fd_close(lane->fd);
    lane->fd = -1;
    pthread_mutex_unlock(&port->share_lock);
}

void weft_shm_lose(struct weft_shm_lane *lane, weft_status_t status, const char *fmt, ...)
{
    va_list args;
    if (lane->state == WEFT_SHM_LOST) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(lane->text, sizeof(lane->text), fmt, args);
    va_end(args);
    if (!lane->is_known && (status == WEFT_ERR_MEMORY || status == WEFT_ERR_SYSTEM)) {
        weft_lane_lacks(weft_shm_port_of(lane)->lack, status,
                        lane->text); /* before the peer knows */
    }
    stop_dialling(lane);
    lane->state = WEFT_SHM_LOST;
    lane->base.is_up = false;
    lane->status = status;
    if (lane->fd >= 0 && !lane->has_ended) {
        shutdown(lane->fd, SHUT_WR); /* the peer learns it; we still want to see its end */
    }
    weft_list_remove(&lane->waiting);
    weft_list_remove(&lane->ended);
    lane->is_lost_news = true;
    weft_shm_add_news(lane);
}

void weft_shm_end(struct weft_shm_lane *lane)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    lane->has_ended = true;
    /* Our end stays open until the lane is closed: the peer takes it for the sign that its slots are not
     * read here any more. */
    weft_engine_remove(port->engine, &lane->source);
    if (lane->is_lingering) {
        weft_list_remove(&lane->news);
        weft_shm_lane_free(lane);
    } else if (lane->state == WEFT_SHM_UP) {
        lane->drain_end = atomic_load_explicit(&port->inbox.header->tail, memory_order_acquire);
        weft_list_append(&port->ended, &lane->ended);
        port->has_chores = true;
    } else if (lane->state == WEFT_SHM_SETTING_UP) {
        weft_shm_lose(lane, WEFT_ERR_PEER, "closed before the lane was up");
    }
}

void weft_shm_lane_free(struct weft_shm_lane *lane)
{
    if (weft_shm_port_of(lane)->slots != NULL) {
        weft_shm_reclaim(lane);
    }
    close_socket(lane);
    weft_fd_close(lane->in_fd);
    weft_shm_regions_close(lane);
    weft_shm_segment_close(lane->pool.segment);
    weft_shm_segment_close(lane->there.segment);
    free(lane->generations);
    free(lane);
}

static void drop_sent(struct weft_shm_port *port, const struct weft_shm_lane *lane)
{
    struct weft_list *node = port->sent.next;
    while (node != &port->sent) {
        struct weft_shm_slot *slot = WEFT_CONTAINER_OF(node, struct weft_shm_slot, sent);
        node = node->next;
        if (slot->lane == lane) {
            weft_list_remove(&slot->sent);
        }
    }
}

void weft_shm_close(struct weft_lane *base)
{
    struct weft_shm_lane *lane = (struct weft_shm_lane *)base;
    struct weft_shm_port *port;
    if (base == NULL) {
        return;
    }
    port = weft_shm_port_of(lane);
    lane->is_closing = true;
    lane->state = WEFT_SHM_LOST;
    stop_dialling(lane);
    weft_list_remove(&lane->news);
    if (!weft_list_is_empty(&lane->copying)) {
        /* Nothing of ours reads the user's memory after this. Lets go of the lock meanwhile. */
        weft_engine_work_flush(port->engine);
    }
    weft_shm_send_copied(lane);
    drop_sent(port, lane);
    pthread_mutex_lock(&port->share_lock);
    port->lanes[find_local(port, lane->base.peer)] = NULL;
    pthread_mutex_unlock(&port->share_lock);
    weft_list_remove(&lane->waiting);
    weft_list_remove(&lane->ended);
    if (lane->fd >= 0 && !lane->has_ended &&
        lane->held[WEFT_SHM_SMALL] + lane->held[WEFT_SHM_BIG] > 0) {
        shutdown(lane->fd, SHUT_WR);
        lane->is_lingering = true;
        weft_list_append(&port->lingering, &lane->news);
    } else {
        weft_shm_lane_free(lane);
    }
}

/* ---- set-up ---- */

static weft_status_t lane_new(struct weft_shm_port *port, uint32_t index,
                              struct weft_shm_lane **lane_p)
{
    struct weft_shm_lane *lane = calloc(1, sizeof(*lane));
    if (lane == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a lane");
    }
    lane->base.ops = &weft_lane_shm;
    lane->base.port = (struct weft_lane_port *)port;
    lane->base.peer = port->local_ranks[index];
    lane->base.caps = WEFT_LANE_SURE | WEFT_LANE_MAPS | WEFT_LANE_SAYS;
    lane->base.chunk_max = WEFT_SHM_BIG_LEN;
    lane->number = ++port->lane_numbers;
    lane->fd = lane->in_fd = -1;
    lane->source.fd = -1;
    lane->source.ready = weft_shm_mail_ready;
    weft_engine_timer_open(&lane->timer, timer_fired);
    weft_list_open(&lane->copying);
    weft_list_open(&lane->news);
    weft_list_open(&lane->waiting);
    weft_list_open(&lane->ended);
    /* What a lane before this one left; the peer writes it again only after our set-up. */
    lane->line_here = &port->inbox.lines[index];
    atomic_store(&lane->line_here->claiming, 0);
    atomic_store(&lane->line_here->consumed, 0);
    pthread_mutex_lock(&port->share_lock);
    port->lanes[index] = lane;
    pthread_mutex_unlock(&port->share_lock);
    *lane_p = lane;
    return WEFT_OK;
}

/* The socket is new and empty: only the kernel's memory can be short, and not for long. */
static weft_status_t send_mail(struct weft_shm_lane *lane, const struct weft_shm_mail *mail, int fd)
{
    for (int i = 0; i < SETUP_TRIES; i++) {
        if (weft_shm_mail_send(lane->fd, mail, fd)) {
            return WEFT_OK;
        }
        if (errno != ENOBUFS && errno != ENOMEM && errno != EAGAIN && errno != ETOOMANYREFS) {
            return weft_fail(WEFT_ERR_PEER, "closed before the lane was up");
        }
        sched_yield();
    }
    return weft_fail_errno("cannot send shared memory to rank %u", lane->base.peer);
}

static weft_status_t send_setup(struct weft_shm_lane *lane)
{
    const struct weft_shm_port *port = weft_shm_port_of(lane);
    weft_status_t status;
    struct weft_shm_mail mail = {.magic = WEFT_SHM_MAGIC,
                                 .kind = WEFT_SHM_SETUP,
                                 .id = port->inbox.segment->id,
                                 .len = port->inbox.segment->region.len};
    mail.setup.version = WEFT_SHM_VERSION;
    mail.setup.rank = port->self->rank;
    mail.setup.local_count = port->local_count;
    mail.setup.lane = lane->number;
    mail.setup.probe_address = (uint64_t)(uintptr_t)port->probe;
    memcpy(mail.setup.probe, port->probe, sizeof(mail.setup.probe));
    status = send_mail(lane, &mail, port->inbox.segment->region.fd);
    if (status == WEFT_OK) {
        weft_shm_describe_pool(port, &mail);
        status = send_mail(lane, &mail, port->pool.segment->region.fd);
    }
    return status;
}

static weft_status_t check_setup(const struct weft_shm_lane *lane, const struct weft_shm_mail *mail)
{
    const struct weft_shm_port *port = weft_shm_port_of(lane);
    if (lane->there.segment != NULL) {
        return weft_fail(WEFT_ERR_PROTOCOL, "sent a second inbox");
    }
    if (mail->setup.version != WEFT_SHM_VERSION) {
        return weft_fail(WEFT_ERR_VERSION, "its shared memory has layout %u, ours %u",
                         mail->setup.version, WEFT_SHM_VERSION);
    }
    if (mail->setup.rank != lane->base.peer || mail->setup.lane > UINT16_MAX) {
        return weft_fail(WEFT_ERR_PROTOCOL, "says it is rank %u", mail->setup.rank);
    }
    if (mail->setup.local_count != port->local_count ||
        mail->len != weft_shm_inbox_len(port->local_count)) {
        return weft_fail(WEFT_ERR_PROTOCOL, "knows %u ranks on this host where we know %u",
                         mail->setup.local_count, port->local_count);
    }
    return WEFT_OK;
}

static weft_status_t map_inbox(struct weft_shm_lane *lane, const struct weft_shm_mail *mail, int fd)
{
    const struct weft_shm_port *port = weft_shm_port_of(lane);
    struct weft_shm_segment *segment;
    const struct weft_shm_header *header;
    weft_status_t status = weft_shm_segment_map(fd, mail->id, mail->len, &segment);
    if (status != WEFT_OK) {
        return status;
    }
    weft_shm_inbox_lay_out(&lane->there, segment, port->local_count);
    header = lane->there.header;
    if (header->magic != WEFT_SHM_MAGIC || header->version != WEFT_SHM_VERSION ||
        header->rank != lane->base.peer || header->local_count != port->local_count) {
        return weft_fail(WEFT_ERR_PROTOCOL, "its shared memory is no inbox of rank %u",
                         lane->base.peer);
    }
    lane->line_there = &lane->there.lines[port->index];
    lane->head_seen = atomic_load_explicit(&header->head, memory_order_acquire);
    return WEFT_OK;
}

weft_status_t weft_shm_take_setup(struct weft_shm_lane *lane, const struct weft_shm_mail *mail,
                                  int fd)
{
    const struct weft_shm_port *port = weft_shm_port_of(lane);
    weft_status_t status = check_setup(lane, mail);
    if (status != WEFT_OK) {
        weft_fd_close(fd);
        return status;
    }
    status = map_inbox(lane, mail, fd);
    if (status != WEFT_OK) {
        return status;
    }
    lane->number_there = (uint16_t)mail->setup.lane;
    lane->is_same_process = weft_shm_segment_is_local(lane->there.segment);
    if (port->params->number[WEFT_PARAM_CMA] != CMA_OFF &&
        weft_mem_can_pull(lane->pid, mail->setup.probe_address, mail->setup.probe)) {
        lane->base.caps |= WEFT_LANE_PULLS;
    }
    return WEFT_OK;
}

/* All of the peer's is mapped here. Nothing is sent before both sides can say so: whoever cannot map
 * takes another way, and nothing is lost. */
weft_status_t weft_shm_set_up(struct weft_shm_lane *lane)
{
    return lane->is_dialler ? weft_shm_take_ready(lane) : send_setup(lane);
}

weft_status_t weft_shm_take_ready(struct weft_shm_lane *lane)
{
    const struct weft_shm_mail mail = {.magic = WEFT_SHM_MAGIC, .kind = WEFT_SHM_READY};
    if (lane->state != WEFT_SHM_SETTING_UP || lane->pool.segment == NULL) {
        return weft_fail(WEFT_ERR_PROTOCOL, "is ready before it was asked");
    }
    if (lane->is_dialler) {
        weft_status_t status = send_mail(lane, &mail, -1);
        if (status != WEFT_OK) {
            return status;
        }
    }
    lane->state = WEFT_SHM_UP;
    lane->base.is_up = true;
    lane->is_opened_news = true;
    weft_shm_add_news(lane);
    return WEFT_OK;
}

/* The handshake is done: from here on the socket is ours. */
static void attach(struct weft_shm_lane *lane, int fd, pid_t pid)
{
    weft_status_t status;
    lane->fd = fd;
    lane->pid = pid;
    lane->state = WEFT_SHM_SETTING_UP;
    snprintf(lane->base.peer_text, sizeof(lane->base.peer_text), "pid %d on this host", (int)pid);
    status = weft_engine_add(weft_shm_port_of(lane)->engine, &lane->source, fd, EPOLLIN);
    if (status == WEFT_OK && lane->is_dialler) {
        status = send_setup(lane);
    }
    if (status != WEFT_OK) {
        weft_shm_lose(lane, status, "%s", weft_error_text());
    }
}

/* ---- a peer calls ---- */

static void caller_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    weft_log(lane, DEBUG, "a call from rank %u failed: %s: %s", conn->peer_rank,
             weft_status_name(status), why);
    weft_net_conn_close(conn);
}

/* Which lane a call is for; NULL: none, *why_p says why. */
static struct weft_shm_lane *lane_for(struct weft_shm_port *port, uint32_t rank, const char **why_p)
{
    uint32_t index = find_local(port, rank);
    struct weft_shm_lane *lane = NULL;
    if (index == UINT32_MAX || rank == port->self->rank) {
        *why_p = "you are no rank of this host";
        return NULL;
    }
    lane = port->lanes[index];
    if (lane == NULL) {
        *why_p = "no memory for a lane";
        if (lane_new(port, index, &lane) != WEFT_OK) {
            weft_lane_lacks(port->lack, WEFT_ERR_MEMORY, *why_p);
            return NULL;
        }
        return lane;
    }
    *why_p = "there is a lane to you already, or we are calling you";
    if (lane->state != WEFT_SHM_DIALLING || rank > port->self->rank) {
        return NULL;
    }
    stop_dialling(lane);
    lane->is_dialler = false;
    return lane;
}

static void caller_hello(struct weft_net_conn *conn)
{
    struct weft_shm_port *port = conn->owner;
    uint8_t send_key[WEFT_WIRE_KEY_LEN], recv_key[WEFT_WIRE_KEY_LEN]; /* zero: the kernel vouches */
    const char *why;
    struct weft_shm_lane *lane;
    pid_t pid = conn->peer_pid;
    int fd;
    if (conn->purpose != WEFT_WIRE_LANE) {
        weft_net_conn_refuse(conn, WEFT_ERR_PROTOCOL, "only lanes end here");
        return;
    }
    lane = lane_for(port, conn->peer_rank, &why);
    if (lane == NULL) {
        weft_net_conn_refuse(conn, WEFT_ERR_BUSY, why);
        return;
    }
    weft_net_conn_accept(conn);
    fd = weft_net_conn_detach(conn, send_key, recv_key);
    if (fd < 0) {
        weft_shm_lose(lane, WEFT_ERR_PEER, "closed before the lane was up");
    } else {
        attach(lane, fd, pid);
    }
}

const struct weft_net_conn_ops weft_shm_caller_ops = {.hello = caller_hello, .lost = caller_lost};

/* ---- we call ---- */

static void try_again(struct weft_shm_lane *lane, weft_status_t status, const char *why)
{
    unsigned wait_ms = 1u << lane->tries;
    bool is_worth_it =
        status == WEFT_ERR_NETWORK || status == WEFT_ERR_BUSY || status == WEFT_ERR_PEER;
    if (!is_worth_it || ++lane->tries >= TRIES) {
        weft_shm_lose(lane, status, "%s", why);
        return;
    }
    weft_engine_timer_set(weft_shm_port_of(lane)->engine, &lane->timer,
                          weft_clock_after_ms(wait_ms));
}

/* Time for the next try; or the peer, which the kernel has let us connect to, takes no calls. */
static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_shm_lane *lane = WEFT_CONTAINER_OF(timer, struct weft_shm_lane, timer);
    (void)now_ns;
    if (lane->conn != NULL) {
        lane->tries = TRIES;
        try_again(lane, WEFT_ERR_NETWORK, "did not answer in time");
    } else {
        dial(lane);
    }
}

static void dial_opened(struct weft_net_conn *conn)
{
    struct weft_shm_lane *lane = conn->owner;
    uint8_t send_key[WEFT_WIRE_KEY_LEN], recv_key[WEFT_WIRE_KEY_LEN];
    pid_t pid = conn->peer_pid;
    int fd = weft_net_conn_detach(conn, send_key, recv_key);
    if (fd >= 0) {
        lane->conn = NULL;
        weft_engine_timer_cancel(weft_shm_port_of(lane)->engine, &lane->timer);
        attach(lane, fd, pid);
    }
}

static void dial_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct weft_shm_lane *lane = conn->owner;
    try_again(lane, status, why);
    if (lane->conn != NULL) { /* losing the lane has closed it */
        lane->conn = NULL;
        weft_net_conn_close(conn);
    }
}

static const struct weft_net_conn_ops dial_ops = {.opened = dial_opened, .lost = dial_lost};

static void dial(struct weft_shm_lane *lane)
{
    const struct weft_shm_port *port = weft_shm_port_of(lane);
    char name[WEFT_WIRE_NAME_LEN];
    struct weft_net_dial call;
    weft_status_t status;
    weft_wire_local_name(port->self->key, port->self->job, port->self->epoch, "shm",
                         lane->base.peer, name);
    status = weft_net_connect_local(name, weft_clock_ns(), &call);
    if (status == WEFT_OK) {
        call.self = port->self;
        call.purpose = WEFT_WIRE_LANE;
        call.ops = &dial_ops;
        call.owner = lane;
        status = weft_net_conn_open(port->engine, &call, &lane->conn);
    }
    if (status != WEFT_OK) {
        try_again(lane, status, weft_error_text());
    } else {
        weft_engine_timer_set(
            port->engine, &lane->timer,
            weft_clock_after_ms((uint64_t)port->params->number[WEFT_PARAM_START_TIMEOUT]));
    }
}

weft_status_t weft_shm_open(struct weft_lane_port *base, const struct weft_lane_call *call,
                            struct weft_lane **lane_p)
{
    struct weft_shm_port *port = (struct weft_shm_port *)base;
    uint32_t peer = call->peer;
    uint32_t index = find_local(port, peer);
    struct weft_shm_lane *lane;
    weft_status_t status;
    if (index == UINT32_MAX || index == port->index || call->address->len == 0) {
        return weft_fail(WEFT_ERR_INVALID, "rank %u cannot be reached through shared memory", peer);
    }
    lane = port->lanes[index];
    if (lane != NULL && lane->is_known) {
        return weft_fail(WEFT_ERR_BUSY, "there is a lane to rank %u already", peer);
    }
    if (lane == NULL) {
        status = lane_new(port, index, &lane);
        if (status != WEFT_OK) {
            return status;
        }
        lane->is_dialler = true;
        dial(lane);
    }
    lane->is_known = true; /* the peer's call was faster: its lane is the one */
    *lane_p = &lane->base;
    return WEFT_OK;
}
