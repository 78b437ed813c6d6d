/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How lanes come and go. The handshake is net's; a listener whose house is full puts silent callers
 * out, so a dialler that was closed without a word dials again until its deadline. Only words of
 * the peer (a refusal), a path that is not there and the deadline end the attempt. Nor is a host that says nothing
 * left to the kernel, which asks again only after a second: paths come and go in less.
 */
#include "lane/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 500
#define ANSWER_MS                                                                                  \
    100 /* until another connection is tried; then twice as long, for hosts far away */

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns);
static void lane_ready(struct weft_engine_source *source, uint32_t events);

/* ---- sockets ---- */

static bool set_one(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

static void set_congestion(struct weft_lane_tcp_port *port, int fd)
{
    const char *name = port->spec.params->text[WEFT_PARAM_TCP_CC];
    if (strcmp(name, "auto") == 0) {
        if (weft_net_is_one_host(fd) && !set_one(fd, "cubic")) {
            set_one(fd, "reno");
        }
    } else if (name[0] != '\0' && !set_one(fd, name) && !port->has_warned) {
        port->has_warned = true;
        weft_log(lane, WARN, "WEFT_TCP_CC=%s: %s; the kernel's default is used", name,
                 strerror(errno));
    }
}

static void set_options(struct weft_lane_tcp *lane, int fd)
{
    struct weft_lane_tcp_port *port = weft_lane_tcp_port_of(lane->lane.port);
    int64_t zerocopy_min = port->spec.params->number[WEFT_PARAM_TCP_ZEROCOPY];
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    set_congestion(port, fd);
    /* What is sealed is a copy already, and the buffer it lies in is used again. */
    if (zerocopy_min > 0 && lane->seal == NULL &&
        setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) == 0) {
        lane->zerocopy_min = (size_t)zerocopy_min;
    }
}

/* A host that acknowledges nothing: bytes were sent again and still no word. A peer that is only stopped
 * has a kernel that goes on acknowledging, the probes of a full window too. */
uint32_t weft_lane_tcp_silent_ms(struct weft_lane *base)
{
    struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    struct tcp_info info = {0}; /* older kernels fill less */
    socklen_t len = sizeof(info);
    uint64_t now_ns = weft_clock_ns(), waited_ms;
    if (lane->source.fd < 0 ||
        getsockopt(lane->source.fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) {
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

bool weft_lane_tcp_is_held(const struct weft_lane *base)
{
    const struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    struct tcp_info info = {0}; /* older kernels fill less */
    socklen_t len = sizeof(info);
    if (lane->source.fd < 0 ||
        getsockopt(lane->source.fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) {
        return false;
    }
    /* A peer that does not read lets its window fill; a path that does not carry leaves it open. */
    return (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0) &&
           (uint64_t)info.tcpi_unacked * info.tcpi_snd_mss < info.tcpi_snd_wnd / 2;
}

/* ---- a lane's life ---- */

static struct weft_lane_tcp *lane_new(struct weft_lane_tcp_port *port, uint32_t peer,
                                      enum weft_lane_tcp_state state)
{
    struct weft_lane_tcp *lane = malloc(sizeof(*lane));
    if (lane == NULL) {
        return NULL;
    }
    memset(lane, 0, offsetof(struct weft_lane_tcp, posts)); /* ring and buffer are written first */
    lane->lane.port = (struct weft_lane_port *)port;
    lane->security = (enum weft_wire_security)port->spec.params->number[WEFT_PARAM_SECURITY];
    lane->is_checked = port->spec.params->number[WEFT_PARAM_CHECKSUM] != 0 &&
                       lane->security == WEFT_SECURITY_AUTH; /* a tag finds more */
    if (lane->is_checked && weft_lane_tcp_copies_open(lane) != WEFT_OK) {
        free(lane);
        return NULL;
    }
    lane->lane.ops = &weft_lane_tcp;
    lane->lane.peer = peer;
    lane->lane.chunk_max = WEFT_WIRE_DATA_MAX;
    lane->state = state;
    lane->source.ready = lane_ready;
    lane->source.fd = -1;
    lane->zerocopy_min = SIZE_MAX;
    lane->pause_ms = PAUSE_MIN_MS;
    lane->answer_ms = ANSWER_MS;
    weft_engine_timer_open(&lane->timer, timer_fired);
    weft_list_open(&lane->ready_node);
    weft_list_append(&port->lanes, &lane->node);
    return lane;
}

static void disconnect(struct weft_lane_tcp *lane)
{
    struct weft_engine *engine = weft_lane_tcp_port_of(lane->lane.port)->spec.engine;
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    int fd = lane->source.fd;
    weft_engine_timer_cancel(engine, &lane->timer);
    weft_net_conn_close(lane->conn);
    lane->conn = NULL;
    if (fd >= 0) {
        if (lane->zero_done != lane->zero_sent || lane->lane.is_given_up) {
            /* The kernel would go on reading memory that is the user's again, or trying. */
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        }
        weft_engine_remove(engine, &lane->source);
        weft_fd_close(fd);
    }
    weft_lane_tcp_drop_posts(lane);
    weft_lane_tcp_seal_close(lane);
}

void weft_lane_tcp_lose(struct weft_lane_tcp *lane, weft_status_t status, const char *text)
{
    if (lane->state == WEFT_LANE_TCP_LOST) {
        return;
    }
    snprintf(lane->lost_text, sizeof(lane->lost_text), "%s", text);
    lane->lost_status = status;
    lane->state = WEFT_LANE_TCP_LOST;
    lane->lane.is_up = false;
    disconnect(lane);
    weft_lane_tcp_make_ready(lane, 0);
}

void weft_lane_tcp_close(struct weft_lane *base)
{
    struct weft_lane_tcp *lane;
    struct weft_lane_tcp_port *port;
    if (base == NULL) {
        return;
    }
    lane = weft_lane_tcp_of(base);
    port = weft_lane_tcp_port_of(base->port);
    disconnect(lane);
    for (unsigned i = 0; i < WEFT_LANE_TCP_HOT; i++) {
        if (port->hot[i] == lane) {
            port->hot[i] = NULL;
        }
    }
    weft_list_remove(&lane->ready_node);
    weft_list_remove(&lane->node);
    weft_lane_tcp_copies_close(lane);
    free(lane);
}

static void lane_ready(struct weft_engine_source *source, uint32_t events)
{
    weft_lane_tcp_make_ready(WEFT_CONTAINER_OF(source, struct weft_lane_tcp, source), events);
}

/* Takes the descriptor out of a connection that is open. The keys go where frames are not sealed: nobody needs
 * them. */
static bool take_over(struct weft_lane_tcp *lane, struct weft_net_conn *conn)
{
    struct weft_engine *engine = weft_lane_tcp_port_of(lane->lane.port)->spec.engine;
    uint8_t keys[2][WEFT_WIRE_KEY_LEN];
    bool is_aes = conn->is_aes;
    weft_status_t status = WEFT_OK;
    int fd;
    if (lane->state == WEFT_LANE_TCP_GREETING) { /* the dialler knows whom it dialled */
        snprintf(lane->lane.peer_text, sizeof(lane->lane.peer_text), "%s", conn->peer_text);
    }
    fd = weft_net_conn_detach(conn, keys[0], keys[1]);
    if (fd >= 0 && lane->security != WEFT_SECURITY_AUTH) {
        status = weft_lane_tcp_seal_open(lane, keys[0], keys[1], is_aes);
    }
    weft_secret_wipe(keys, sizeof(keys));
    if (fd < 0) {
        return false;
    }
    lane->conn = NULL;
    set_options(lane, fd);
    if (status == WEFT_OK) {
        status = weft_engine_add(engine, &lane->source, fd, EPOLLIN);
    }
    if (status != WEFT_OK) {
        weft_fd_close(fd);
        weft_lane_tcp_lose(lane, status, weft_error_text());
        return false;
    }
    return true;
}

/* ---- accepting ---- */

/* Comparing settings at the start finds it sooner, where there is a start. */
static void refuse_security(const struct weft_lane_tcp_port *port, struct weft_net_conn *conn)
{
    static const char *const names[] = {"auth", "integrity", "encrypt"};
    char reason[160];
    snprintf(reason, sizeof(reason),
             "rank %u has WEFT_SECURITY=%s, rank %u has %s: give all ranks the same",
             conn->peer_rank, names[weft_net_conn_hello(conn)->security], port->spec.self->rank,
             names[port->spec.params->number[WEFT_PARAM_SECURITY]]);
    weft_net_conn_refuse(conn, WEFT_ERR_MISMATCH, reason);
}

static void server_hello(struct weft_net_conn *conn)
{
    struct weft_lane_tcp_port *port = conn->owner;
    struct weft_lane_tcp *lane;
    if (conn->purpose != WEFT_WIRE_LANE) {
        weft_net_conn_refuse(conn, WEFT_ERR_PROTOCOL, "data lanes only are served here");
        return;
    }
    if (conn->peer_rank >= port->spec.self->ranks || conn->peer_rank == port->spec.self->rank) {
        weft_net_conn_refuse(conn, WEFT_ERR_INVALID, "no other rank of this job has that number");
        return;
    }
    if (weft_net_conn_hello(conn)->security != port->spec.params->number[WEFT_PARAM_SECURITY]) {
        refuse_security(port, conn);
        return;
    }
    lane = lane_new(port, conn->peer_rank, WEFT_LANE_TCP_GREETING);
    if (lane == NULL) {
        weft_lane_lacks(port->spec.lack, WEFT_ERR_MEMORY, "no memory for a lane");
        weft_net_conn_refuse(conn, WEFT_ERR_MEMORY, "no memory for a lane");
        return;
    }
    weft_net_conn_accept(conn);
    if (!take_over(lane, conn)) {
        weft_lane_lacks(port->spec.lack,
                        lane->lost_status != WEFT_OK ? lane->lost_status : WEFT_ERR_SYSTEM,
                        weft_error_text());
        weft_lane_tcp_close(&lane->lane); /* nobody knows it yet */
    }
}

static void server_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    weft_log(lane, DEBUG, "%s: %s: %s", conn->peer_text, weft_status_name(status), why);
    weft_net_conn_close(conn);
}

/* Calls that cannot come: a client has no hello, a server is never opened, frames are read here. */
static void never(struct weft_net_conn *conn)
{
    (void)conn;
    assert(false);
}

static void never_frame(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                        const uint8_t *payload)
{
    (void)frame;
    (void)payload;
    never(conn);
}

const struct weft_net_conn_ops weft_lane_tcp_server_ops = {
    .hello = server_hello, .opened = never, .frame = never_frame, .lost = server_lost};

/* ---- dialling ---- */

static void client_opened(struct weft_net_conn *conn)
{
    struct weft_lane_tcp *lane = conn->owner;
    char text[128];
    if (conn->peer_rank != lane->lane.peer) {
        snprintf(text, sizeof(text), "rank %u answers there instead of rank %u", conn->peer_rank,
                 lane->lane.peer);
        weft_lane_tcp_lose(lane, WEFT_ERR_PROTOCOL, text);
        return;
    }
    if (!take_over(lane, conn)) {
        return; /* it is lost, and knows why */
    }
    weft_engine_timer_cancel(weft_lane_tcp_port_of(lane->lane.port)->spec.engine, &lane->timer);
    lane->state = WEFT_LANE_TCP_UP;
    weft_lane_tcp_greet(lane);
    weft_lane_tcp_make_ready(lane, 0);
}

static void client_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct weft_lane_tcp *lane = conn->owner;
    struct weft_engine *engine = weft_lane_tcp_port_of(lane->lane.port)->spec.engine;
    if (status != WEFT_ERR_PEER || conn->is_refused || weft_clock_ns() >= lane->deadline_ns) {
        weft_lane_tcp_lose(lane, status, why);
        return;
    }
    weft_net_conn_close(conn);
    lane->conn = NULL;
    weft_engine_timer_set(engine, &lane->timer, weft_clock_after_ms(lane->pause_ms));
    lane->pause_ms = lane->pause_ms < PAUSE_MAX_MS ? 2 * lane->pause_ms : lane->pause_ms;
}

static const struct weft_net_conn_ops client_ops = {
    .hello = never, .opened = client_opened, .frame = never_frame, .lost = client_lost};

static weft_status_t dial(struct weft_lane_tcp *lane)
{
    const struct weft_lane_tcp_port *port = weft_lane_tcp_port_of(lane->lane.port);
    struct weft_net_dial dial;
    weft_status_t status =
        port->spec.nic[0] != '\0'
            ? weft_net_connect_from(port->spec.addr, port->spec.nic, &lane->addr, &dial)
            : weft_net_connect(&lane->addr, &dial);
    if (status != WEFT_OK) {
        return status;
    }
    dial.self = port->spec.self;
    dial.purpose = WEFT_WIRE_LANE;
    dial.lane = lane->lane.slot;
    dial.security = (uint8_t)lane->security;
    dial.ops = &client_ops;
    dial.owner = lane;
    status = weft_net_conn_open(port->spec.engine, &dial, &lane->conn);
    if (status == WEFT_OK) {
        uint64_t next_ns = weft_clock_after_ms(lane->answer_ms);
        weft_engine_timer_set(port->spec.engine, &lane->timer,
                              next_ns < lane->deadline_ns ? next_ns : lane->deadline_ns);
    }
    return status;
}

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_lane_tcp *lane = WEFT_CONTAINER_OF(timer, struct weft_lane_tcp, timer);
    weft_status_t status;
    if (now_ns >= lane->deadline_ns) {
        weft_lane_tcp_lose(lane, WEFT_ERR_NETWORK, "did not answer in time");
        return;
    }
    if (lane->conn != NULL && weft_net_conn_is_answered(lane->conn)) {
        weft_engine_timer_set(weft_lane_tcp_port_of(lane->lane.port)->spec.engine, timer,
                              lane->deadline_ns);
        return;
    }
    if (lane->conn != NULL) {
        weft_net_conn_close(lane->conn);
        lane->conn = NULL;
        lane->answer_ms *= 2;
    }
    status = dial(lane);
    if (status != WEFT_OK) {
        weft_lane_tcp_lose(lane, status, weft_error_text());
    }
}

weft_status_t weft_lane_tcp_open(struct weft_lane_port *base, const struct weft_lane_call *call,
                                 struct weft_lane **lane_p)
{
    struct weft_lane_tcp_port *port = weft_lane_tcp_port_of(base);
    struct weft_lane_tcp *lane;
    struct weft_wire_addr wire;
    struct sockaddr_storage addr;
    weft_status_t status;
    if (call->address->len != WEFT_WIRE_ADDR_LEN) {
        return weft_fail(WEFT_ERR_INVALID, "rank %u has no tcp address", call->peer);
    }
    status = weft_wire_addr_decode(call->address->bytes, &wire);
    status = status == WEFT_OK ? weft_net_addr_from_wire(&wire, &addr) : status;
    if (status != WEFT_OK) {
        return status;
    }
    lane = lane_new(port, call->peer, WEFT_LANE_TCP_DIALLING);
    if (lane == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a lane to rank %u", call->peer);
    }
    lane->is_known = true;
    lane->lane.slot = call->slot;
    lane->lane.generation = call->generation;
    lane->addr = addr;
    lane->deadline_ns = weft_clock_after_ms(call->timeout_ms);
    weft_net_addr_print(&addr, lane->lane.peer_text);
    status = dial(lane);
    if (status != WEFT_OK) {
        weft_lane_tcp_close(&lane->lane);
        return status;
    }
    *lane_p = &lane->lane;
    return WEFT_OK;
}
