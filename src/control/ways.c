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
#include "control/ways.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGGER_MS 100 /* before the next way is tried beside those that have not answered */
#define ROUND_MS 1000  /* an attempt takes no longer: paths come back */

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns);

struct weft_control_ways *weft_ways_of(struct weft_control *control)
{
    struct weft_control_ways *ways = control->ways;
    if (ways == NULL && (ways = calloc(1, sizeof(*ways))) != NULL) {
        ways->control = control;
        weft_engine_timer_open(&ways->timer, timer_fired);
        control->ways = ways;
    }
    return ways;
}

struct weft_control_ways *weft_ways_with_nics(struct weft_control *control)
{
    struct weft_control_observer *observer = control->observer;
    struct weft_control_ways *ways =
        control->ways != NULL || observer != NULL ? weft_ways_of(control) : NULL;
    if (ways != NULL && !ways->has_nics && observer != NULL) {
        ways->nic_count = observer->nics(observer, ways->nics);
        ways->has_nics = ways->nic_count > 0;
    }
    return ways != NULL && ways->has_nics ? ways : NULL;
}

void weft_control_ways_note_nics(struct weft_control *control)
{
    if (control->tree.groups > 1) {
        (void)weft_ways_with_nics(control);
    }
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
    struct weft_control_ways *ways =
        is_elsewhere(control, conn) ? weft_ways_with_nics(control) : NULL;
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_WAYS, .src = control->self.rank, .dst = control->parent_rank};
    if (ways == NULL || ways->has_asked) {
        return;
    }
    ways->has_asked = true;
    frame.number = ways->nic_count;
    control->parent_mend = weft_control_mend_open(control, control->parent_rank);
    if (control->parent_mend != NULL && weft_net_conn_send(conn, &frame, NULL, 0) == WEFT_OK) {
        conn->edge = control->parent_mend;
        control->parent_mend->counts_out = true;
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
    weft_ways_learn(control, from->peer_rank, payload, count);
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
        weft_ways_asked(control, from, frame->number);
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

static bool dial(struct weft_control_ways *ways, struct weft_way *way)
{
    struct weft_control *control = ways->control;
    struct weft_net_dial dial;
    uint8_t call[WEFT_WAYS_CALL_LEN];
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
    weft_ways_answer_all(control);
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

/* Somebody else of the parent's host listens where it did: it would not let us in. */
static bool is_heir(const struct weft_control *control, const struct weft_net_conn *conn)
{
    const uint32_t *group_of = control->table.group_of;
    return conn->is_refused && conn->is_proved && conn->peer_rank < control->self.ranks &&
           conn->peer_rank != control->parent_rank &&
           group_of[conn->peer_rank] == group_of[control->parent_rank];
}

void weft_control_ways_missed(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_ways *ways = control->ways;
    for (uint32_t i = 0; i < ways->way_count; i++) {
        if (ways->way[i].attempt == conn) {
            ways->way[i].attempt = NULL; /* the round goes on without it */
            ways->way[i].is_refused = conn->error == ECONNREFUSED || is_heir(control, conn);
        }
    }
    weft_net_conn_close(conn);
    if (control->parent != NULL && is_parent_over(ways)) {
        weft_control_neighbour_lost(control, control->parent, WEFT_ERR_PEER,
                                    "closed (its host refuses connections where it listened)");
    }
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
    if (rank != control->parent_rank) {
        weft_ways_forget_child(control, rank);
        return;
    }
    if (control->ways != NULL) {
        stop(control->ways);
    }
    weft_control_mend_close(control->parent_mend);
    control->parent_mend = NULL;
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
    if (ways != NULL) {
        weft_ways_doors_close(ways);
        free(ways->hosts);
    }
    free(ways);
    control->ways = NULL;
}
