/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port: one rank's end of all its shared-memory lanes, and what poll gives besides messages.
 * All that is seldom (lanes that opened, that have room again, that are lost; memory that came
 * back) waits in lists, behind one flag that poll looks at.
 */
#include "lane/shm/internal.h"

#include <stdlib.h>
#include <string.h>

#define POOL_MAX_LEN ((size_t)62 << 20) /* of big slots; with small ones and lines below 64 MiB */
#define SMALL_MAX_LEN ((size_t)1 << 20)

static struct weft_shm_port *port_of(const struct weft_lane_port *base)
{
    return (struct weft_shm_port *)base;
}

/* ---- chores ---- */

static bool has_what_it_wants(struct weft_shm_lane *lane)
{
    bool is_turn = weft_list_is_empty(&lane->copying);
    if (!weft_shm_has_room(lane)) {
        return false;
    }
    return ((lane->wants & WEFT_SHM_WANT_CELL) != 0) ||
           ((lane->wants & WEFT_SHM_WANT_TURN) != 0 && is_turn) ||
           ((lane->wants & WEFT_SHM_WANT_SMALL) != 0 && weft_shm_has_slot(lane, WEFT_SHM_SMALL)) ||
           ((lane->wants & WEFT_SHM_WANT_BIG) != 0 && weft_shm_has_slot(lane, WEFT_SHM_BIG));
}

static void settle_waiting(struct weft_shm_port *port)
{
    struct weft_list *node = port->waiting.next;
    while (node != &port->waiting) {
        struct weft_shm_lane *lane = WEFT_CONTAINER_OF(node, struct weft_shm_lane, waiting);
        node = node->next;
        if (has_what_it_wants(lane)) {
            weft_list_remove(&lane->waiting);
            lane->wants = 0;
            weft_shm_send_copied(lane); /* first what was posted before; it may wait again */
            lane->is_writable_news = true;
            weft_shm_add_news(lane);
        }
    }
}

/* What the peer published before its end is delivered; what it claimed and did not publish is not.
 * */
static void settle_ended(struct weft_shm_port *port)
{
    struct weft_list *node = port->ended.next;
    if (node != &port->ended) {
        weft_shm_inbox_unblock(port);
        node = port->ended.next;
    }
    while (node != &port->ended) {
        struct weft_shm_lane *lane = WEFT_CONTAINER_OF(node, struct weft_shm_lane, ended);
        uint64_t left = lane->drain_end - port->head;
        node = node->next;
        if (left == 0 || left > (uint64_t)port->mask + 1) {
            weft_shm_lose(lane, WEFT_ERR_PEER, "closed (its process has ended or it closed)");
        }
    }
}

static void settle(struct weft_shm_port *port)
{
    if (atomic_exchange_explicit(&port->has_gone, false, memory_order_relaxed)) {
        for (uint32_t i = 0; i < port->local_count; i++) {
            if (port->lanes[i] != NULL) {
                weft_shm_tell_gone(port->lanes[i]);
            }
        }
    }
    settle_waiting(port);
    settle_ended(port);
}

/* One piece of a lane's news. */
static void tell(struct weft_shm_lane *lane, struct weft_done *done)
{
    *done = (struct weft_done){.lane = &lane->base};
    if (lane->is_opened_news) {
        lane->is_opened_news = false;
        lane->is_known = true;
        done->kind = WEFT_DONE_OPENED;
    } else if (lane->is_writable_news && lane->state == WEFT_SHM_UP) {
        lane->is_writable_news = false;
        done->kind = WEFT_DONE_WRITABLE;
    } else {
        lane->is_lost_news = lane->is_writable_news = false;
        done->kind = WEFT_DONE_LOST;
        done->status = lane->status;
        done->text = lane->text;
    }
    if (!lane->is_opened_news && !lane->is_writable_news && !lane->is_lost_news) {
        weft_list_remove(&lane->news);
    }
}

static unsigned tell_news(struct weft_shm_port *port, struct weft_done *done, unsigned room)
{
    unsigned count = 0;
    while (count < room && !weft_list_is_empty(&port->sent)) {
        struct weft_shm_slot *slot =
            WEFT_CONTAINER_OF(weft_list_take(&port->sent), struct weft_shm_slot, sent);
        done[count++] = (struct weft_done){
            .kind = WEFT_DONE_SENT, .lane = &slot->lane->base, .cookie = slot->cookie};
    }
    while (count < room && !weft_list_is_empty(&port->news)) {
        struct weft_shm_lane *lane = WEFT_CONTAINER_OF(port->news.next, struct weft_shm_lane, news);
        if (!lane->is_known && lane->state == WEFT_SHM_LOST) {
            weft_shm_close(&lane->base); /* nobody above has heard of it */
        } else {
            tell(lane, &done[count++]);
        }
    }
    return count;
}

static bool has_news(const struct weft_shm_port *port)
{
    return !weft_list_is_empty(&port->sent) || !weft_list_is_empty(&port->news);
}

static unsigned do_chores(struct weft_shm_port *port, struct weft_done *done, unsigned room)
{
    unsigned count;
    settle(port);
    count = tell_news(port, done, room);
    port->has_chores =
        has_news(port) || !weft_list_is_empty(&port->waiting) || !weft_list_is_empty(&port->ended);
    return count;
}

static unsigned port_poll(struct weft_lane_port *base, struct weft_done *done, unsigned room)
{
    struct weft_shm_port *port = port_of(base);
    unsigned count = 0;
    if (port->has_chores || atomic_load_explicit(&port->has_gone, memory_order_relaxed)) {
        count = do_chores(port, done, room);
    }
    return count + weft_shm_inbox_poll(port, done + count, room - count);
}

static bool port_hear(struct weft_lane_port *base, struct weft_lane_word *word_p)
{
    struct weft_shm_port *port = port_of(base);
    return !port->has_chores && weft_shm_inbox_hear(port, word_p);
}

static const _Atomic uint32_t *port_watch(const struct weft_lane_port *base, uint32_t *value_p)
{
    const struct weft_shm_port *port = (const struct weft_shm_port *)base;
    *value_p = (uint32_t)port->head + 1;
    return port->has_chores ? NULL : &port->cells[port->head & port->mask].stamp;
}

static void port_disarm(struct weft_lane_port *base)
{
    struct weft_shm_port *port = port_of(base);
    if (port->is_armed) {
        port->is_armed = false;
        atomic_store_explicit(&port->inbox.header->asleep, WEFT_SHM_AWAKE, memory_order_relaxed);
    }
}

static bool port_arm(struct weft_lane_port *base)
{
    struct weft_shm_port *port = port_of(base);
    bool is_wanting = !weft_list_is_empty(&port->waiting);
    port->is_armed = true;
    atomic_store_explicit(&port->inbox.header->asleep,
                          is_wanting ? WEFT_SHM_ASLEEP_WANTING_ROOM : WEFT_SHM_ASLEEP,
                          memory_order_relaxed);
    if (port->head != port->head_told) {
        weft_shm_inbox_tell_head(port); /* a sender may wait for what the next poll would tell */
    }
    atomic_thread_fence(memory_order_seq_cst);
    weft_shm_inbox_unblock(port);
    settle(port);
    if (weft_shm_inbox_has_cell(port) || has_news(port)) {
        port_disarm(base);
        return false;
    }
    return true;
}

/* ---- opening and closing ---- */

static void size_pool(struct weft_shm_port *port)
{
    size_t len = (size_t)port->params->number[WEFT_PARAM_SHM_POOL];
    size_t small_len = len / 4 < SMALL_MAX_LEN ? len / 4 : SMALL_MAX_LEN;
    len = len < POOL_MAX_LEN ? len : POOL_MAX_LEN;
    port->pool_count[WEFT_SHM_SMALL] = (uint32_t)(small_len / WEFT_SHM_SMALL_LEN);
    port->pool_count[WEFT_SHM_BIG] = (uint32_t)(len / WEFT_SHM_BIG_LEN);
}

static weft_status_t open_inbox(struct weft_shm_port *port)
{
    struct weft_shm_segment *segment;
    weft_status_t status =
        weft_shm_segment_create("weft-inbox", weft_shm_inbox_len(port->local_count), &segment);
    if (status != WEFT_OK) {
        return status;
    }
    weft_shm_inbox_lay_out(&port->inbox, segment, port->local_count);
    port->inbox.header->magic = WEFT_SHM_MAGIC;
    port->inbox.header->version = WEFT_SHM_VERSION;
    port->inbox.header->rank = port->self->rank;
    port->inbox.header->local_count = port->local_count;
    port->cells = port->inbox.cells;
    port->mask = weft_shm_cell_count(port->local_count) - 1;
    return WEFT_OK;
}

/* Callers wait at the door, and give up in the end. */
static void note_trouble(void *owner, const char *error)
{
    struct weft_shm_port *port = owner;
    weft_lane_lacks(port->lack, WEFT_ERR_SYSTEM, error);
}

static weft_status_t open_door(struct weft_shm_port *port)
{
    char name[WEFT_WIRE_NAME_LEN];
    int fd;
    weft_status_t status;
    weft_wire_local_name(port->self->key, port->self->job, port->self->epoch, "shm",
                         port->self->rank, name);
    status = weft_net_listen_local(name, &fd);
    if (status == WEFT_ERR_BUSY) {
        return weft_fail(WEFT_ERR_BUSY,
                         "rank %u of this job listens for shared memory in another process",
                         port->self->rank);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_net_acceptor_open(port->engine, fd, port->self,
                                    (uint64_t)port->params->number[WEFT_PARAM_HANDSHAKE_TIMEOUT],
                                    &weft_shm_caller_ops, port, &port->acceptor);
    if (status == WEFT_OK) {
        weft_net_acceptor_tell_trouble(port->acceptor, note_trouble);
    }
    return status;
}

static weft_status_t copy_ranks(struct weft_shm_port *port, const struct weft_lane_port_spec *spec)
{
    port->lanes = calloc(spec->local_count, sizeof(struct weft_shm_lane *));
    port->local_ranks = calloc(spec->local_count, sizeof(*port->local_ranks));
    if (port->lanes == NULL || port->local_ranks == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %u ranks of this host", spec->local_count);
    }
    memcpy(port->local_ranks, spec->local_ranks, spec->local_count * sizeof(*port->local_ranks));
    port->local_count = spec->local_count;
    while (port->index < port->local_count && port->local_ranks[port->index] != spec->self->rank) {
        port->index++;
    }
    return port->index < port->local_count
               ? WEFT_OK
               : weft_fail(WEFT_ERR_INVALID, "rank %u is not among the ranks of its host",
                           spec->self->rank);
}

static weft_status_t port_fill(struct weft_shm_port *port, const struct weft_lane_port_spec *spec)
{
    weft_status_t status;
    if (spec->local_count == 0 || spec->local_count > UINT16_MAX) {
        return weft_fail(WEFT_ERR_INVALID, "%u ranks on one host", spec->local_count);
    }
    status = copy_ranks(port, spec);
    if (status == WEFT_OK) {
        status = weft_random(port->probe, sizeof(port->probe));
    }
    if (status == WEFT_OK) {
        status = open_inbox(port);
    }
    return status == WEFT_OK ? open_door(port) : status;
}

/* Also one that was opened halfway, but for the watcher. */
static void port_free(struct weft_shm_port *port)
{
    weft_net_acceptor_close(port->acceptor);
    weft_shm_segment_close(port->inbox.segment);
    weft_shm_pool_close(port);
    pthread_mutex_destroy(&port->share_lock);
    free(port->local_ranks);
    free(port->lanes);
    free(port);
}

static weft_status_t port_open(const struct weft_lane_port_spec *spec,
                               struct weft_lane_port **port_p)
{
    struct weft_shm_port *port = aligned_alloc(64, (sizeof(*port) + 63) / 64 * 64);
    weft_status_t status;
    if (port == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a port");
    }
    memset(port, 0, sizeof(*port));
    port->engine = spec->engine;
    port->params = spec->params;
    port->lack = spec->lack;
    port->self = spec->self;
    pthread_mutex_init(&port->share_lock, NULL);
    weft_list_open(&port->news);
    weft_list_open(&port->sent);
    weft_list_open(&port->waiting);
    weft_list_open(&port->ended);
    weft_list_open(&port->lingering);
    for (int kind = 0; kind < WEFT_SHM_KINDS; kind++) {
        weft_list_open(&port->idle[kind]);
        weft_list_open(&port->flying[kind]);
    }
    size_pool(port);
    status = port_fill(port, spec);
    status = status == WEFT_OK ? weft_shm_pool_open(port) : status;
    if (status != WEFT_OK) {
        port_free(port);
        return status;
    }
    port->watcher.freed = weft_shm_freed;
    weft_mem_watch(&port->watcher);
    *port_p = (struct weft_lane_port *)port;
    return WEFT_OK;
}

static void port_close(struct weft_lane_port *base)
{
    struct weft_shm_port *port = port_of(base);
    struct weft_list *node;
    if (base == NULL) {
        return;
    }
    weft_mem_unwatch(&port->watcher);
    for (uint32_t i = 0; i < port->local_count; i++) {
        if (port->lanes[i] != NULL) { /* one that nobody above has heard of */
            weft_shm_close(&port->lanes[i]->base);
        }
    }
    while ((node = weft_list_take(&port->lingering)) != NULL) {
        weft_shm_lane_free(WEFT_CONTAINER_OF(node, struct weft_shm_lane, news));
    }
    port_free(port);
}

static void port_address(const struct weft_lane_port *port, struct weft_lane_address *address_p)
{
    (void)port;
    memset(address_p, 0, sizeof(*address_p));
    address_p->bytes[0] = 1; /* the rank is address enough */
    address_p->len = 1;
}

/* ---- the rest of the table ---- */

static void place(struct weft_lane *lane, const struct weft_slice *slice)
{
    (void)lane;
    (void)slice; /* there is no HEADER to answer */
}

static void nudge(struct weft_lane *base)
{
    struct weft_shm_lane *lane = (struct weft_shm_lane *)base;
    if (lane->state == WEFT_SHM_UP) {
        weft_shm_wake(lane);
    }
}

/* Copies that were lent their memory are over soon, whatever the peer does. */
/* SURE: nothing is kept. */
static void relocate(struct weft_lane *lane, void *memory)
{
    (void)lane;
    (void)memory;
}

static uint32_t silent_ms(struct weft_lane *lane)
{
    (void)lane;
    return 0;
}

static bool is_held(const struct weft_lane *lane)
{
    (void)lane;
    return false;
}

static bool replace(struct weft_lane *lane, const void *cookie, const struct weft_wire_data *frame)
{
    (void)lane;
    (void)cookie;
    (void)frame;
    return false;
}

static unsigned forget(struct weft_lane *lane, const void *cookie, bool is_there)
{
    (void)is_there;
    (void)lane;
    (void)cookie;
    return 0;
}

static size_t queued(const struct weft_lane *lane)
{
    (void)lane;
    return 0;
}

const struct weft_lane_ops weft_lane_shm = {
    .name = "shm",
    .port_open = port_open,
    .port_close = port_close,
    .address = port_address,
    .poll = port_poll,
    .say = weft_shm_say,
    .hear = port_hear,
    .watch = port_watch,
    .arm = port_arm,
    .disarm = port_disarm,
    .open = weft_shm_open,
    .post = weft_shm_post,
    .place = place,
    .release = weft_shm_release,
    .map = weft_shm_map,
    .hold = weft_shm_hold,
    .share = weft_shm_share,
    .pull = weft_shm_pull,
    .nudge = nudge,
    .forget = forget,
    .replace = replace,
    .relocate = relocate,
    .silent_ms = silent_ms,
    .is_held = is_held,
    .queued = queued,
    .close = weft_shm_close,
};
