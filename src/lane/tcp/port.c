/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port: its listener, and which of its lanes are looked at. epoll says which ones have something;
 * asking it costs as much as looking, so the few lanes on which bytes came last are looked at with
 * every poll, until they stay silent for long. That is what a ping-pong needs; everybody else waits
 * for epoll.
 */
#include "lane/tcp/tcp.h"

#include <stdlib.h>
#include <string.h>

#define MISSES_MAX 2000  /* fruitless looks, about a millisecond: cold again */
#define MISSES_CROWDED 2 /* … when there are more ranks than CPUs */
#define MISSES_WEAK 16   /* so many, and a lane with bytes takes its place */

/* ---- which lanes to look at ---- */

void weft_lane_tcp_make_ready(struct weft_lane_tcp *lane, uint32_t events)
{
    lane->events |= events;
    if (weft_list_is_empty(&lane->ready_node)) {
        weft_list_append(&weft_lane_tcp_port_of(lane->lane.port)->ready, &lane->ready_node);
    }
}

/* Bytes came: more are likely, and it is looked at without waiting for epoll for a while. */
static void warm(struct weft_lane_tcp *lane)
{
    struct weft_lane_tcp_port *port = weft_lane_tcp_port_of(lane->lane.port);
    lane->misses = 0;
    for (unsigned i = 0; i < WEFT_LANE_TCP_HOT && !lane->is_hot; i++) {
        struct weft_lane_tcp *other = port->hot[i];
        if (other == NULL || other->misses > MISSES_WEAK) {
            if (other != NULL) {
                other->is_hot = false;
            }
            port->hot[i] = lane;
            lane->is_hot = true;
        }
    }
}

/* ---- the poll ---- */

static void tell_lost(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    struct weft_done *done;
    if (!lane->is_known) {
        weft_log(lane, DEBUG, "%s: %s before it was open", lane->lane.peer_text, lane->lost_text);
        weft_lane_tcp_close(&lane->lane);
        return;
    }
    if (lane->is_told) {
        return;
    }
    lane->is_told = true;
    done = weft_lane_tcp_tell(tell, lane, WEFT_DONE_LOST);
    done->status = lane->lost_status;
    done->text = lane->lost_text;
}

/* Room for one is there. Frees a lane that ended before anybody knew it. */
static void look_at(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    uint32_t events = lane->events;
    bool has_more = false;
    lane->events = 0;
    lane->round = weft_lane_tcp_port_of(lane->lane.port)->round;
    if (lane->state == WEFT_LANE_TCP_UP && !lane->lane.is_up) {
        lane->lane.is_up = true;
        weft_lane_tcp_tell(tell, lane, WEFT_DONE_OPENED);
    }
    if (lane->state == WEFT_LANE_TCP_GREETING || lane->state == WEFT_LANE_TCP_UP) {
        if ((events & EPOLLERR) != 0) {
            weft_lane_tcp_reap(lane);
        }
        if ((events & EPOLLOUT) != 0) {
            weft_lane_tcp_flush(lane);
        }
        has_more = weft_lane_tcp_tell_sent(lane, tell);
        if (lane->state != WEFT_LANE_TCP_LOST && weft_lane_tcp_receive(lane, tell)) {
            warm(lane);
        }
        has_more |= lane->has_more;
    }
    if (lane->state == WEFT_LANE_TCP_LOST && weft_lane_tcp_can_tell(tell)) {
        tell_lost(lane, tell);
    } else if (has_more || lane->state == WEFT_LANE_TCP_LOST) {
        weft_lane_tcp_make_ready(lane, 0);
    }
}

static void look_at_ready(struct weft_lane_tcp_port *port, struct weft_lane_tcp_tell *tell)
{
    while (weft_lane_tcp_can_tell(tell) && !weft_list_is_empty(&port->ready)) {
        struct weft_lane_tcp *lane =
            WEFT_CONTAINER_OF(port->ready.next, struct weft_lane_tcp, ready_node);
        if (lane->round == port->round) {
            return; /* the others come first in the next poll */
        }
        weft_list_remove(&lane->ready_node);
        look_at(lane, tell);
    }
}

static void look_at_hot(struct weft_lane_tcp_port *port, struct weft_lane_tcp_tell *tell)
{
    uint32_t limit = weft_engine_is_crowded(port->spec.engine) ? MISSES_CROWDED : MISSES_MAX;
    for (unsigned i = 0; i < WEFT_LANE_TCP_HOT && weft_lane_tcp_can_tell(tell); i++) {
        struct weft_lane_tcp *lane = port->hot[i];
        if (lane == NULL || lane->round == port->round) {
            continue;
        }
        if (lane->state == WEFT_LANE_TCP_LOST || ++lane->misses > limit) {
            lane->is_hot = false;
            port->hot[i] = NULL;
            continue;
        }
        look_at(lane, tell);
    }
}

static unsigned port_poll(struct weft_lane_port *base, struct weft_done *done, unsigned room)
{
    struct weft_lane_tcp_port *port = weft_lane_tcp_port_of(base);
    struct weft_lane_tcp_tell tell = {.done = done, .room = room};
    port->round++;
    look_at_ready(port, &tell);
    look_at_hot(port, &tell);
    return tell.count;
}

static const _Atomic uint32_t *port_watch(const struct weft_lane_port *base, uint32_t *value_p)
{
    (void)base;
    (void)value_p;
    return NULL;
}

static bool port_arm(struct weft_lane_port *base)
{
    return weft_list_is_empty(&weft_lane_tcp_port_of(base)->ready);
}

static void port_disarm(struct weft_lane_port *base)
{
    (void)base;
}

/* ---- opening and closing ---- */

static void port_close(struct weft_lane_port *base)
{
    struct weft_lane_tcp_port *port = weft_lane_tcp_port_of(base);
    if (port == NULL) {
        return;
    }
    weft_net_acceptor_close(port->acceptor);
    while (!weft_list_is_empty(&port->lanes)) { /* peers' that nobody has heard of yet */
        weft_lane_tcp_close(&WEFT_CONTAINER_OF(port->lanes.next, struct weft_lane_tcp, node)->lane);
    }
    free(port);
}

/* Callers wait at the door, and give up in the end. */
static void note_trouble(void *owner, const char *error)
{
    struct weft_lane_tcp_port *port = owner;
    weft_lane_lacks(port->spec.lack, WEFT_ERR_SYSTEM, error);
}

static weft_status_t start_listening(struct weft_lane_tcp_port *port)
{
    const struct weft_params *params = port->spec.params;
    struct sockaddr_storage bound;
    uint16_t first, last;
    int fd;
    weft_status_t status = weft_net_port_range(params->text[WEFT_PARAM_PORT_RANGE], &first, &last);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_net_listen(port->spec.addr, first, last, &fd, &bound);
    if (status != WEFT_OK) {
        return status;
    }
    weft_net_addr_to_wire(&bound, &port->addr);
    status = weft_net_acceptor_open(port->spec.engine, fd, port->spec.self,
                                    (uint64_t)params->number[WEFT_PARAM_HANDSHAKE_TIMEOUT],
                                    &weft_lane_tcp_server_ops, port, &port->acceptor);
    if (status == WEFT_OK) {
        weft_net_acceptor_tell_trouble(port->acceptor, note_trouble);
    }
    if (status == WEFT_OK && port->spec.nic[0] != '\0') {
        weft_net_acceptor_keep_to(port->acceptor, port->spec.nic, port->spec.prefix_len);
    }
    return status;
}

static weft_status_t port_open(const struct weft_lane_port_spec *spec,
                               struct weft_lane_port **port_p)
{
    struct weft_lane_tcp_port *port = calloc(1, sizeof(*port));
    weft_status_t status;
    if (port == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a tcp port");
    }
    port->spec = *spec;
    weft_list_open(&port->lanes);
    weft_list_open(&port->ready);
    status = start_listening(port);
    if (status != WEFT_OK) {
        free(port);
        return status;
    }
    *port_p = (struct weft_lane_port *)port;
    return WEFT_OK;
}

static void port_address(const struct weft_lane_port *base, struct weft_lane_address *address_p)
{
    memset(address_p, 0, sizeof(*address_p));
    weft_wire_addr_encode(&weft_lane_tcp_port_of(base)->addr, address_p->bytes);
    address_p->len = WEFT_WIRE_ADDR_LEN;
}

/* ---- abilities that bytes on a wire do not have ---- */

static void release(struct weft_lane *lane, uint32_t token)
{
    (void)lane;
    (void)token; /* the buffer is free again with the next poll */
}

static weft_status_t map(struct weft_lane *lane, uint64_t region, uint64_t offset, size_t len,
                         void **memory_p)
{
    (void)region;
    (void)offset;
    (void)len;
    (void)memory_p;
    return weft_fail(WEFT_ERR_UNSUPPORTED, "memory of %s cannot be mapped over tcp",
                     lane->peer_text);
}

static struct weft_mem_mapping *hold(const struct weft_lane *lane, const void *memory, size_t len)
{
    (void)lane;
    (void)memory;
    (void)len;
    return NULL;
}

static weft_status_t share(struct weft_lane *lane, const struct weft_mem_place *place)
{
    (void)place;
    return weft_fail(WEFT_ERR_UNSUPPORTED, "memory cannot be shared with %s over tcp",
                     lane->peer_text);
}

static weft_status_t pull(struct weft_lane *lane, uint64_t address, const struct weft_slice *slice)
{
    (void)address;
    (void)slice;
    return weft_fail(WEFT_ERR_UNSUPPORTED, "memory of %s cannot be read over tcp", lane->peer_text);
}

static enum weft_post say(struct weft_lane *lane, uint64_t comm, uint32_t tag,
                          struct weft_slice slice)
{
    (void)lane;
    (void)comm;
    (void)tag;
    (void)slice;
    return WEFT_POST_FULL;
}

static bool hear(struct weft_lane_port *port, struct weft_lane_word *word_p)
{
    (void)port;
    (void)word_p;
    return false;
}

static void nudge(struct weft_lane *lane)
{
    (void)lane;
}

const struct weft_lane_ops weft_lane_tcp = {.name = "tcp",
                                            .port_open = port_open,
                                            .port_close = port_close,
                                            .address = port_address,
                                            .poll = port_poll,
                                            .watch = port_watch,
                                            .arm = port_arm,
                                            .disarm = port_disarm,
                                            .open = weft_lane_tcp_open,
                                            .post = weft_lane_tcp_post,
                                            .place = weft_lane_tcp_place,
                                            .say = say,
                                            .hear = hear,
                                            .release = release,
                                            .map = map,
                                            .hold = hold,
                                            .share = share,
                                            .pull = pull,
                                            .nudge = nudge,
                                            .forget = weft_lane_tcp_forget,
                                            .replace = weft_lane_tcp_replace,
                                            .relocate = weft_lane_tcp_relocate,
                                            .silent_ms = weft_lane_tcp_silent_ms,
                                            .is_held = weft_lane_tcp_is_held,
                                            .queued = weft_lane_tcp_queued,
                                            .close = weft_lane_tcp_close};
