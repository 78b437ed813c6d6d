/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a child whose path to its parent died comes back by another NIC, without a verdict.
 *
 *   child                                   parent
 *     | -- WAYS: I have so many NICs ------> |    when it begins to send messages, if it is on another host
 *     | <-- WAYS: I listen here too -------- |    an address per NIC; none: one NIC on each side
 *     |                                      |
 *     X    nothing acknowledged for WEFT_LANE_TIMEOUT: one way after the other is dialled
 *     | == RETURN, round 7, since 4 =======> |    proofs as for joining; of one round the first counts
 *     | -- RESUME -------------------------> |    the child has left the old connection, …
 *     | <------------------------ RESUME --- |    … now the parent does; what had not come follows
 *
 * Always the child dials, so there is one who decides. The parent keeps the old connection until RESUME:
 * a call that the child gave up again (the old path came back, another was quicker) is nothing. If the end
 * of the old one comes first, it is the child who left it, and the new one takes its place already. If the
 * new path dies too before RESUME has come, the next call tells: "since 4" is the round of the connection
 * that the child uses, 0 the first one.
 *
 * The old connection stays in charge of verdicts while nobody answers by another way: a peer that is really
 * gone is found as ever.
 */
#include "control/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGGER_MS 100 /* before the next way is tried beside those that have not answered */
#define CALL_LEN 8     /* round, since */
#define ROUND_MS 1000  /* an attempt takes no longer: paths come back */

struct way {
    const struct weft_control_nic *nic;   /* lent: one of ours; NULL: as the routes say */
    const struct sockaddr_storage *there; /* lent: one of the parent's doors */
    struct weft_net_conn *attempt;        /* owned */
    bool is_refused;                      /* in this round */
};

struct weft_control_ways {
    struct weft_control *control;
    struct weft_control_nic nics[WEFT_CONTROL_NICS]; /* ours */
    uint32_t nic_count;
    /* the parent's */
    struct weft_net_acceptor *doors[WEFT_CONTROL_NICS]; /* owned */
    struct weft_wire_addr door_addrs[WEFT_CONTROL_NICS];
    uint32_t door_count;
    bool is_served; /* doors were opened, as far as they could be */
    /* the child's */
    bool has_asked;
    struct sockaddr_storage there[WEFT_CONTROL_NICS];
    uint32_t there_count;
    struct way way[WEFT_CONTROL_WAYS];
    uint32_t way_count;
    struct weft_engine_timer timer;
    bool is_seeking;
    uint32_t first, begun; /* of this round: the way to begin with, how many were begun */
    uint64_t since_ns;
};

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns);

/* NULL: nobody knows our NICs (yet), or no memory. */
static struct weft_control_ways *ways_of(struct weft_control *control)
{
    struct weft_control_observer *observer = control->observer;
    struct weft_control_ways *ways = control->ways;
    if (ways != NULL || observer == NULL) {
        return ways;
    }
    ways = calloc(1, sizeof(*ways));
    if (ways != NULL) {
        ways->control = control;
        weft_engine_timer_open(&ways->timer, timer_fired);
        ways->nic_count = observer->nics(observer, ways->nics);
        control->ways = ways;
    }
    return ways;
}

static bool is_elsewhere(const struct weft_control *control, const struct weft_net_conn *conn)
{
    return !conn->is_local &&
           !weft_control_is_same_host(control, control->self.rank, conn->peer_rank);
}

/* ---- what the two tell each other ---- */

static void ask(struct weft_control *control)
{
    struct weft_net_conn *conn = control->parent;
    struct weft_control_ways *ways = is_elsewhere(control, conn) ? ways_of(control) : NULL;
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_WAYS, .src = control->self.rank, .dst = control->parent_rank};
    if (ways == NULL || ways->has_asked) {
        return;
    }
    ways->has_asked = true;
    frame.number = ways->nic_count;
    if (ways->nic_count == 0) {
        return;
    }
    control->parent_mend = weft_control_mend_open(control, control->parent_rank);
    if (control->parent_mend != NULL && weft_net_conn_send(conn, &frame, NULL, 0) == WEFT_OK) {
        conn->edge = control->parent_mend;
        control->parent_mend->counts_out = true;
    }
}

static void open_door(struct weft_control_ways *ways, const struct weft_control_nic *nic)
{
    struct weft_control *control = ways->control;
    struct weft_control_door door;
    weft_status_t status = weft_control_door_open(
        &nic->addr, control->params->text[WEFT_PARAM_PORT_RANGE], NULL, &door);
    if (status == WEFT_OK) {
        status =
            weft_net_acceptor_open(control->engine, door.tcp, &control->self,
                                   (uint64_t)control->params->number[WEFT_PARAM_HANDSHAKE_TIMEOUT],
                                   &weft_control_conn_ops, control, &ways->doors[ways->door_count]);
    }
    if (status != WEFT_OK) {
        weft_log(control, INFO, "no way back over %s: %s", nic->name, weft_error_text());
        return;
    }
    if (nic->name[0] != '\0') {
        weft_net_acceptor_keep_to(ways->doors[ways->door_count], nic->name, nic->prefix_len);
    }
    ways->door_addrs[ways->door_count++] = door.addr;
}

static void serve(struct weft_control_ways *ways)
{
    for (uint32_t i = 0; i < ways->nic_count && !ways->is_served; i++) {
        open_door(ways, &ways->nics[i]);
    }
    ways->is_served = true;
}

static void answer(struct weft_control *control, struct weft_control_child *child)
{
    struct weft_control_ways *ways = ways_of(control);
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_WAYS, .src = control->self.rank, .dst = child->rank};
    uint8_t bytes[WEFT_CONTROL_NICS * WEFT_WIRE_ADDR_LEN];
    size_t len = 0;
    if (ways == NULL || child->conn == NULL) {
        return;
    }
    child->mend->is_asking = false;
    if (ways->nic_count > 1 || child->mend->nics_there > 1) {
        serve(ways);
    }
    for (uint32_t i = 0; i < ways->door_count; i++, len += WEFT_WIRE_ADDR_LEN) {
        weft_wire_addr_encode(&ways->door_addrs[i], bytes + len);
    }
    if (weft_net_conn_send(child->conn, &frame, bytes, len) == WEFT_OK && len > 0) {
        child->mend->counts_out = true;
        return;
    }
    child->conn->edge = NULL;
    weft_control_mend_close(child->mend);
    child->mend = NULL;
}

static struct weft_control_child *find_child(struct weft_control *control, uint32_t rank)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].rank == rank) {
            return &control->children[i];
        }
    }
    return NULL;
}

/* Answered at once, or with the next beat: while we start there is nobody to ask for our NICs. */
static void asked(struct weft_control *control, struct weft_net_conn *from, uint32_t nic_count)
{
    struct weft_control_child *child = find_child(control, from->peer_rank);
    if (child == NULL || child->mend != NULL) {
        return;
    }
    child->mend = weft_control_mend_open(control, child->rank);
    if (child->mend != NULL) {
        child->mend->counts_in = child->mend->is_asking = true;
        child->mend->nics_there = nic_count;
        from->edge = child->mend;
        answer(control, child);
    }
}

static void find_ways(struct weft_control_ways *ways)
{
    struct weft_control_pair pairs[WEFT_CONTROL_WAYS];
    ways->way_count =
        weft_control_pair(ways->nics, ways->nic_count, ways->there, ways->there_count, pairs);
    for (uint32_t i = 0; i < ways->way_count; i++) {
        ways->way[i].nic = pairs[i].nic < WEFT_CONTROL_NICS ? &ways->nics[pairs[i].nic] : NULL;
        ways->way[i].there = &ways->there[pairs[i].door];
    }
}

static void told(struct weft_control *control, struct weft_net_conn *from,
                 const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_control_ways *ways = control->ways;
    struct weft_control_mend *mend = from->edge;
    uint32_t count = frame->len / WEFT_WIRE_ADDR_LEN;
    if (ways == NULL || mend == NULL || mend->counts_in) {
        return;
    }
    for (uint32_t i = 0; i < count && ways->there_count < WEFT_CONTROL_NICS; i++) {
        struct weft_wire_addr addr;
        if (weft_wire_addr_decode(payload + (size_t)i * WEFT_WIRE_ADDR_LEN, &addr) == WEFT_OK &&
            weft_net_addr_from_wire(&addr, &ways->there[ways->there_count]) == WEFT_OK) {
            ways->there_count++;
        }
    }
    find_ways(ways);
    mend->counts_in = count > 0;
    weft_log(control, INFO, "%u ways back to rank %u, should the path die", ways->way_count,
             from->peer_rank);
    if (count == 0) {
        from->edge = NULL;
        weft_control_mend_close(mend);
        control->parent_mend = NULL;
    }
}

void weft_control_ways_arrived(struct weft_control *control, struct weft_net_conn *from,
                               const struct weft_wire_frame *frame, const uint8_t *payload)
{
    if (from == control->parent) {
        told(control, from, frame, payload);
    } else {
        asked(control, from, frame->number);
    }
}

/* ---- the child seeks ---- */

static void close_attempts(struct weft_control_ways *ways)
{
    for (uint32_t i = 0; i < ways->way_count; i++) {
        weft_net_conn_close(ways->way[i].attempt);
        ways->way[i].attempt = NULL;
    }
}

static void stop(struct weft_control_ways *ways)
{
    ways->is_seeking = false;
    weft_engine_timer_cancel(ways->control->engine, &ways->timer);
    close_attempts(ways);
}

static bool dial(struct weft_control_ways *ways, struct way *way)
{
    struct weft_control *control = ways->control;
    struct weft_net_dial dial;
    uint8_t call[CALL_LEN];
    weft_status_t status =
        way->nic != NULL ? weft_net_connect_from(&way->nic->addr, way->nic->name, way->there, &dial)
                         : weft_net_connect(way->there, &dial);
    if (status != WEFT_OK) {
        return false;
    }
    put32(call, control->parent_mend->round);
    put32(call + 4, control->parent_mend->since);
    dial.self = &control->self;
    dial.purpose = WEFT_WIRE_RETURN;
    dial.payload = call;
    dial.payload_len = sizeof(call);
    dial.ops = &weft_control_conn_ops;
    dial.owner = control;
    if (weft_net_conn_open(control->engine, &dial, &way->attempt) != WEFT_OK) {
        way->attempt = NULL;
        return false;
    }
    way->attempt->tag = ROLE_SEEKING;
    return true;
}

/* The next one that can be dialled at all. */
static void begin_next(struct weft_control_ways *ways)
{
    bool is_dialled = false;
    while (!is_dialled && ways->begun < ways->way_count) {
        is_dialled = dial(ways, &ways->way[(ways->first + ways->begun++) % ways->way_count]);
    }
    weft_engine_timer_set(ways->control->engine, &ways->timer, weft_clock_after_ms(STAGGER_MS));
}

/* By which it goes, counted from 1; 0: by none of them. */
static uint32_t way_of(const struct weft_control_ways *ways, const struct weft_net_conn *conn)
{
    for (uint32_t i = 0; i < ways->way_count; i++) {
        struct weft_wire_addr there;
        weft_net_addr_to_wire(ways->way[i].there, &there);
        if (there.family == conn->peer_addr.family &&
            memcmp(there.bytes, conn->peer_addr.bytes, sizeof(there.bytes)) == 0) {
            return i + 1;
        }
    }
    return 0;
}

uint32_t weft_control_ways_used(const struct weft_control *control,
                                const struct weft_net_conn *conn)
{
    return control->ways != NULL ? way_of(control->ways, conn) : 0;
}

uint32_t weft_control_ways_count(const struct weft_control *control)
{
    return control->ways != NULL ? control->ways->way_count : 0;
}

weft_status_t weft_control_ways_connect(const struct weft_control *control, uint32_t way,
                                        uint16_t port, struct weft_net_dial *dial_p)
{
    const struct way *by = &control->ways->way[way - 1];
    struct sockaddr_storage there = *by->there;
    weft_net_addr_set_port(&there, port);
    return by->nic != NULL ? weft_net_connect_from(&by->nic->addr, by->nic->name, &there, dial_p)
                           : weft_net_connect(&there, dial_p);
}

static void begin_round(struct weft_control_ways *ways)
{
    struct weft_control *control = ways->control;
    ways->is_seeking = true;
    ways->first = way_of(ways, control->parent); /* the one after it */
    ways->begun = 0;
    ways->since_ns = weft_clock_ns();
    control->parent_mend->round++;
    for (uint32_t i = 0; i < ways->way_count; i++) {
        ways->way[i].is_refused = false;
    }
    begin_next(ways);
}

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_control_ways *ways = WEFT_CONTAINER_OF(timer, struct weft_control_ways, timer);
    if (!ways->is_seeking) {
        return;
    }
    if (ways->begun < ways->way_count) {
        begin_next(ways);
    } else if (now_ns - ways->since_ns >= ROUND_MS * WEFT_NS_PER_MS) {
        close_attempts(ways);
        begin_round(ways);
    } else {
        weft_engine_timer_set(ways->control->engine, timer, weft_clock_after_ms(STAGGER_MS));
    }
}

bool weft_control_ways_seek(struct weft_control *control)
{
    struct weft_control_ways *ways = control->ways;
    if (ways == NULL || ways->way_count == 0 || ways->is_seeking || control->parent == NULL ||
        control->parent_mend == NULL) {
        return false;
    }
    begin_round(ways);
    return true;
}

static void look_at_parent(struct weft_control *control)
{
    struct weft_control_ways *ways = control->ways;
    uint64_t limit_ms = (uint64_t)control->params->number[WEFT_PARAM_LANE_TIMEOUT];
    if (ways == NULL || ways->way_count == 0) {
        return;
    }
    if (weft_net_conn_is_path_dead(control->parent, limit_ms)) {
        weft_control_ways_seek(control);
    } else if (ways->is_seeking && control->parent->heard_ns > ways->since_ns) {
        stop(ways); /* it is back by itself */
    }
}

void weft_control_ways_beat(struct weft_control *control)
{
    if (control->parent != NULL) {
        ask(control);
        look_at_parent(control);
    }
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].mend != NULL && control->children[i].mend->is_asking) {
            answer(control, &control->children[i]);
        }
    }
}

void weft_control_ways_opened(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_ways *ways = control->ways;
    struct weft_net_conn *old = control->parent;
    char name[128];
    for (uint32_t i = 0; i < ways->way_count; i++) {
        if (ways->way[i].attempt == conn) {
            ways->way[i].attempt = NULL;
        }
    }
    if (conn->peer_rank != control->parent_rank) {
        weft_net_conn_close(conn); /* somebody else listens there now */
        return;
    }
    stop(ways);
    conn->tag = ROLE_PARENT;
    conn->is_beating = old->is_beating;
    weft_net_conn_persist(conn);
    control->parent = conn;
    control->parent_mend->since = control->parent_mend->round;
    weft_control_mend_move(control->parent_mend, conn);
    old->edge = NULL;
    weft_net_conn_close(old);
    weft_control_mend_resume(conn);
    weft_control_name_rank(control, conn->peer_rank, name, sizeof(name));
    weft_log(control, WARN, "the path of the control connection to %s died; it goes by %s now",
             name, conn->peer_text);
}

/* The parent's doors are open as long as it lives. But one that refuses may be a firewall's doing: the NIC that we came in by
 * was none, and all together are the host's word. */
static bool is_parent_over(const struct weft_control_ways *ways)
{
    uint32_t used = way_of(ways, ways->control->parent);
    bool is = true;
    for (uint32_t i = 0; i < ways->way_count; i++) {
        is = is && ways->way[i].is_refused;
    }
    return is || (used != 0 && ways->way[used - 1].is_refused);
}

void weft_control_ways_missed(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_ways *ways = control->ways;
    for (uint32_t i = 0; i < ways->way_count; i++) {
        if (ways->way[i].attempt == conn) {
            ways->way[i].attempt = NULL; /* the round goes on without it */
            ways->way[i].is_refused = conn->error == ECONNREFUSED;
        }
    }
    weft_net_conn_close(conn);
    if (control->parent != NULL && is_parent_over(ways)) {
        weft_control_neighbour_lost(control, control->parent, WEFT_ERR_PEER,
                                    "closed (its host refuses connections where it listened)");
    }
}

/* ---- the parent takes it back ---- */

/* It is the child's connection from now on. */
static void promote(struct weft_control *control, struct weft_control_child *child)
{
    struct weft_net_conn *conn = child->mend->returning;
    struct weft_net_conn *old = child->conn;
    char name[128];
    child->mend->returning = NULL;
    child->conn = conn;
    conn->tag = ROLE_CHILD;
    conn->is_beating = old->is_beating;
    weft_net_conn_persist(conn);
    weft_control_mend_move(child->mend, conn);
    old->edge = NULL;
    weft_net_conn_close(old);
    weft_control_name_rank(control, child->rank, name, sizeof(name));
    weft_log(control, INFO, "the control connection of %s comes from %s now", name,
             conn->peer_text);
}

void weft_control_ways_hello(struct weft_control *control, struct weft_net_conn *conn)
{
    const struct weft_wire_handshake *shake = weft_net_conn_hello(conn);
    struct weft_control_child *child = find_child(control, conn->peer_rank);
    uint32_t round = shake->payload_len == CALL_LEN ? get32(shake->payload) : 0;
    if (child == NULL || child->mend == NULL || !child->mend->counts_out || child->conn == NULL) {
        weft_net_conn_refuse(conn, WEFT_ERR_PROTOCOL, "nobody here waits for this rank");
        return;
    }
    if ((int32_t)(round - child->mend->round) <= 0) {
        weft_net_conn_refuse(conn, WEFT_ERR_DUPLICATE, "a call of this round or later was taken");
        return;
    }
    if (child->mend->returning != NULL && get32(shake->payload + 4) == child->mend->round) {
        promote(control, child); /* the child uses it, though its RESUME has not come */
    }
    child->mend->round = round;
    weft_net_conn_close(child->mend->returning);
    child->mend->returning = conn;
    conn->tag = ROLE_RETURNING;
    conn->edge = child->mend;
    weft_net_conn_watch(conn);
    weft_net_conn_accept(conn);
}

bool weft_control_ways_replace(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_child *child = find_child(control, conn->peer_rank);
    if (child == NULL || child->conn != conn || child->mend == NULL ||
        child->mend->returning == NULL) {
        return false;
    }
    promote(control, child);
    return true;
}

void weft_control_ways_resumed(struct weft_control *control, struct weft_net_conn *conn,
                               const struct weft_wire_frame *frame)
{
    bool is_child = conn != control->parent;
    if (conn->tag == ROLE_RETURNING) {
        promote(control, find_child(control, conn->peer_rank));
    }
    if (is_child && conn->edge != NULL) {
        weft_control_mend_resume(conn);
    }
    if (!weft_control_mend_resumed(conn, frame->number)) {
        weft_control_neighbour_lost(control, conn, WEFT_ERR_PROTOCOL,
                                    "cannot say what has come by its former connection");
    }
}

void weft_control_ways_left(struct weft_net_conn *conn)
{
    struct weft_control_mend *mend = conn->edge;
    mend->returning = NULL;
    weft_net_conn_close(conn);
}

/* ---- the end ---- */

void weft_control_ways_renew(struct weft_control *control)
{
    struct weft_control_ways *ways = control->ways;
    if (ways != NULL) {
        stop(ways);
        ways->has_asked = false;
        ways->there_count = ways->way_count = 0;
    }
}

void weft_control_ways_forget(struct weft_control *control, uint32_t rank)
{
    struct weft_control_child *child = find_child(control, rank);
    if (rank == control->parent_rank) {
        if (control->ways != NULL) {
            stop(control->ways);
        }
        weft_control_mend_close(control->parent_mend);
        control->parent_mend = NULL;
    } else if (child != NULL) {
        weft_control_mend_close(child->mend);
        child->mend = NULL;
    }
}

bool weft_control_ways_is_seeking(const struct weft_control *control)
{
    return control->ways != NULL && control->ways->is_seeking;
}

void weft_control_ways_close(struct weft_control *control)
{
    struct weft_control_ways *ways = control->ways;
    weft_control_ways_forget(control, control->parent_rank);
    for (uint32_t i = 0; i < control->child_count; i++) {
        weft_control_ways_forget(control, control->children[i].rank);
    }
    for (uint32_t i = 0; ways != NULL && i < ways->door_count; i++) {
        weft_net_acceptor_close(ways->doors[i]);
    }
    free(ways);
    control->ways = NULL;
}
