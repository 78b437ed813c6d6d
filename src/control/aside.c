/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words around one who stands still. A rank that is stopped lives, and the tree waits for it: what others wait for over
 * it comes when it goes on. But what became of a rank and that a communicator was aborted must be heard meanwhile. So
 * who has a parent that stands still (the kernel says so on this host; on another its engine is silent while its kernel
 * answers) opens one connection more, to the next one above that does not, as heal.c would if the parent were gone:
 *
 *   below                                the next one above
 *     | == ASIDE ========================> |    nothing else goes here: nobody must hear that a rank closed before
 *     | -- REPORT …, CLOSED -------------> |    what that one sent, and it went by the tree. CLOSED only says that
 *     | <------------------- VERDICT … --- |    the end of that process will be no death
 *
 * Who finds nobody above stands in for the coordinator: it judges, and its verdicts, with their numbers, lie before
 * the parent when it goes on. A coordinator that has slept reads what lies there before it judges itself. Leaders of
 * other hosts, who cannot find such a one, are called by it.
 *
 * The stopped one would have noticed the end of those below it; instead the first of them looks at the processes of all
 * others, and each of these at the next one's.
 */
#include "control/heal.h"

#include <stdlib.h>
#include <string.h>

#define SOON_MS 10 /* a coordinator that runs has answered by then, mostly */
#define LOOK_MS 50
#define NEAR_MS 120 /* so long one on this host may take to answer */
#define FAR_MS 500
#define FORGET_MS 1000 /* then those who did not answer are asked again */

enum { STILL_NOT, STILL_OUT, STILL_MUTE }; /* MUTE: it did not answer; not asked for FORGET_MS */

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns);

static struct weft_control_aside *aside_of(struct weft_control *control)
{
    struct weft_control_aside *aside = control->aside;
    if (aside == NULL &&
        (aside = calloc(1, sizeof(*aside) + 2 * (size_t)control->self.ranks)) != NULL) {
        aside->control = control;
        aside->is_leaving = aside->is_still + control->self.ranks;
        weft_list_open(&aside->edges);
        weft_engine_timer_open(&aside->timer, timer_fired);
        control->aside = aside;
    }
    return aside;
}

static struct weft_control_edge *edge_at(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct weft_control_edge, node);
}

/* Two ranks may call each other at once: both connections stay, for either may have brought something already. */
static struct weft_control_edge *find(struct weft_control_aside *aside, uint32_t rank, bool is_ours)
{
    for (struct weft_list *node = aside->edges.next; node != &aside->edges; node = node->next) {
        if (edge_at(node)->rank == rank && edge_at(node)->is_ours == is_ours) {
            return edge_at(node);
        }
    }
    return NULL;
}

static struct weft_control_edge *find_by(struct weft_control_aside *aside,
                                         const struct weft_net_conn *conn)
{
    for (struct weft_list *node = aside->edges.next; node != &aside->edges; node = node->next) {
        if (edge_at(node)->conn == conn) {
            return edge_at(node);
        }
    }
    return NULL;
}

static bool is_open_to(struct weft_control_aside *aside, uint32_t rank)
{
    const struct weft_control_edge *ours = find(aside, rank, true);
    return find(aside, rank, false) != NULL || (ours != NULL && ours->is_open);
}

static void edge_close(struct weft_control_edge *edge)
{
    weft_list_remove(&edge->node);
    weft_net_conn_close(edge->conn);
    free(edge);
}

/* Is this one above us? */
static bool is_above(const struct weft_control *control, const struct weft_control_edge *edge)
{
    return weft_control_tree_precedes(&control->tree, edge->rank, control->self.rank);
}

/* ---- who stands still ---- */

/* From another host: its engine is silent, and its kernel is not, for a second now: a path that was dead brings our
 * words back before its own. Where words wait, it is enough that what we said since its beat was overdue was acknowledged at
 * the first try. */
static bool is_silent_only(struct weft_control_aside *aside, uint64_t now_ns)
{
    struct weft_control *control = aside->control;
    bool is_silent = weft_control_watch_is_silent(control->parent_watch);
    if (weft_control_heal_has_reports(control)) {
        if (weft_control_still_is_answered(control, control->parent)) {
            return true;
        }
        weft_control_still_ask(control, control->parent);
    }
    if (is_silent && weft_net_conn_is_path_dead(control->parent, DEAD_MS)) {
        aside->cut_ns = now_ns;
    }
    return is_silent && now_ns > aside->cut_ns + FORGET_MS * WEFT_NS_PER_MS;
}

/* Its first word ends it, whatever we have found before. */
static bool is_around(const struct weft_control *control)
{
    const struct weft_control_aside *aside = control->aside;
    return aside != NULL && aside->around_ns != 0 && control->parent != NULL &&
           control->parent->heard_ns <= aside->around_ns;
}

/* Not before a beat of its is overdue: so one that was stood in for finds that it has slept. One of another host that stood
 * still does so until it speaks: that no words wait any more, because they were judged, says nothing of it. */
static bool is_parent_still(struct weft_control_aside *aside, uint64_t now_ns)
{
    struct weft_control *control = aside->control;
    if (control->parent != NULL) { /* what it has said, and we have not read */
        control->parent->source.ready(&control->parent->source, EPOLLIN);
    }
    if (control->parent == NULL || control->is_gone[control->parent_rank] ||
        weft_clock_ns() < control->parent->heard_ns + weft_control_heart_overdue_ns(control)) {
        return false;
    }
    return weft_heal_is_stopped(control, control->parent_rank) ||
           (is_around(control) && !weft_heal_is_near(control, control->parent_rank) &&
            !weft_net_conn_is_path_dead(control->parent, DEAD_MS)) ||
           is_silent_only(aside, now_ns);
}

bool weft_control_aside_stands_in(const struct weft_control *control)
{
    return is_around(control) && control->aside->up == WEFT_WIRE_NO_RANK;
}

/* The next one above that does not stand still. */
static uint32_t find_up(struct weft_control_aside *aside)
{
    struct weft_control *control = aside->control;
    uint32_t up;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (control->is_out[rank] || aside->is_still[rank] != STILL_MUTE) {
            aside->is_still[rank] = control->is_out[rank] ? STILL_OUT : STILL_NOT;
        }
    }
    aside->is_still[control->parent_rank] = STILL_OUT;
    do {
        up = weft_control_tree_up(&control->tree, aside->is_still, control->self.rank);
        if (up == WEFT_WIRE_NO_RANK || !weft_heal_is_stopped(control, up)) {
            return up;
        }
        aside->is_still[up] = STILL_OUT;
    } while (true);
}

/* ---- connections ---- */

static void tell_leaving(const struct weft_control *control, const struct weft_control_edge *edge,
                         uint32_t rank)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_CLOSED, .src = control->self.rank, .dst = WEFT_WIRE_NO_RANK};
    uint8_t bytes[4];
    put32(bytes, rank);
    weft_net_conn_send(edge->conn, &frame, bytes, sizeof(bytes));
}

static void greet(struct weft_control *control, struct weft_control_edge *edge)
{
    edge->is_open = true;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (control->aside->is_leaving[rank]) {
            tell_leaving(control, edge, rank);
        }
    }
    if (is_above(control, edge)) {
        weft_control_history_tell(control, edge->conn, WEFT_WIRE_REPORT);
        weft_heal_reports_say(control, edge->conn);
    } else {
        weft_control_history_tell(control, edge->conn, WEFT_WIRE_VERDICT);
    }
}

static struct weft_control_edge *edge_open(struct weft_control_aside *aside, uint32_t rank,
                                           struct weft_net_conn *conn)
{
    struct weft_control_edge *edge = calloc(1, sizeof(*edge));
    if (edge != NULL) {
        edge->rank = rank;
        edge->conn = conn;
        edge->since_ns = weft_clock_ns();
        weft_list_append(&aside->edges, &edge->node);
    }
    return edge;
}

static void dial(struct weft_control_aside *aside, uint32_t rank)
{
    struct weft_net_conn *conn = NULL;
    bool is_refused;
    struct weft_control_edge *edge;
    if (find(aside, rank, true) != NULL || find(aside, rank, false) != NULL) {
        return;
    }
    if (weft_heal_dial(aside->control, rank, WEFT_WIRE_ASIDE, &conn, &is_refused) != WEFT_OK) {
        aside->is_still[rank] = STILL_MUTE;
        return;
    }
    edge = edge_open(aside, rank, conn);
    if (edge == NULL) {
        weft_net_conn_close(conn);
    } else {
        edge->is_ours = true;
    }
}

/* Those who were called and do not answer; and all that we made, once they are not needed. */
static void tidy(struct weft_control_aside *aside, uint64_t now_ns)
{
    struct weft_list *node = aside->edges.next;
    while (node != &aside->edges) {
        struct weft_control_edge *edge = edge_at(node);
        uint64_t patience_ms = weft_heal_is_near(aside->control, edge->rank) ? NEAR_MS : FAR_MS;
        bool is_mute = !edge->is_open && now_ns > edge->since_ns + patience_ms * WEFT_NS_PER_MS;
        node = node->next;
        if (is_mute) {
            aside->is_still[edge->rank] = STILL_MUTE;
        }
        if (is_mute || (edge->is_ours && aside->around_ns == 0) ||
            aside->control->is_gone[edge->rank]) {
            edge_close(edge);
        }
    }
}

void weft_control_aside_take(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_edge *edge = find(aside_of(control), conn->peer_rank, false);
    if (edge != NULL) { /* it comes again */
        edge_close(edge);
    }
    conn->tag = ROLE_ASIDE;
    edge = edge_open(control->aside, conn->peer_rank, conn);
    if (edge == NULL) {
        weft_net_conn_close(conn);
        return;
    }
    greet(control, edge);
}

void weft_control_aside_hello(struct weft_control *control, struct weft_net_conn *conn)
{
    const struct weft_control_aside *aside = control->start == NULL ? aside_of(control) : NULL;
    if (control->is_closing || aside == NULL || conn->peer_rank >= control->self.ranks ||
        conn->peer_rank == control->self.rank || control->is_gone[conn->peer_rank]) {
        weft_net_conn_refuse(conn, WEFT_ERR_BUSY, "it starts or closes, or this rank was given up");
        return;
    }
    weft_net_conn_watch(conn);
    weft_net_conn_accept(conn);
    weft_control_aside_take(control, conn);
}

void weft_control_aside_opened(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_edge *edge = find_by(control->aside, conn);
    if (edge->rank == conn->peer_rank) {
        greet(control, edge);
    } else { /* somebody else listens there now */
        control->aside->is_still[edge->rank] = STILL_MUTE;
        edge_close(edge);
    }
}

void weft_control_aside_lost(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_edge *edge = find_by(control->aside, conn);
    if (!edge->is_open) {
        control->aside->is_still[edge->rank] = STILL_MUTE;
    }
    edge_close(edge);
}

/* Whoever judges must know it, and whoever does so when that one has left, too: all tell all. */
static void leaves(struct weft_control *control, uint32_t rank)
{
    if (rank < control->self.ranks && !control->aside->is_leaving[rank]) {
        control->aside->is_leaving[rank] = 1;
        for (struct weft_list *node = control->aside->edges.next; node != &control->aside->edges;
             node = node->next) {
            if (edge_at(node)->is_open) {
                tell_leaving(control, edge_at(node), rank);
            }
        }
    }
}

bool weft_control_aside_is_leaving(const struct weft_control *control, uint32_t rank)
{
    return control->aside != NULL && rank < control->self.ranks && control->aside->is_leaving[rank];
}

void weft_control_aside_frame(struct weft_control *control, struct weft_net_conn *conn,
                              const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_control_edge *edge = find_by(control->aside, conn);
    switch (frame->type) {
    case WEFT_WIRE_REPORT:
    case WEFT_WIRE_VERDICT:
        weft_control_notice_arrived(control, conn, frame, payload);
        break;
    case WEFT_WIRE_CLOSED:
        leaves(control, frame->len == 4 ? get32(payload) : WEFT_WIRE_NO_RANK);
        break;
    default: /* nothing else belongs here */
        edge_close(edge);
    }
}

static void say_to(const struct weft_control *control, bool is_up, struct weft_wire_frame *frame,
                   const void *payload, size_t len)
{
    struct weft_control_aside *aside = control->aside;
    for (struct weft_list *node = aside != NULL ? aside->edges.next : NULL;
         aside != NULL && node != &aside->edges; node = node->next) {
        if (edge_at(node)->is_open && is_above(control, edge_at(node)) == is_up) {
            weft_net_conn_send(edge_at(node)->conn, frame, payload, len);
        }
    }
}

void weft_control_aside_flood(const struct weft_control *control, struct weft_wire_frame *frame,
                              const void *payload, size_t len)
{
    say_to(control, false, frame, payload, len);
}

void weft_control_aside_up(const struct weft_control *control, struct weft_wire_frame *frame,
                           const void *payload, size_t len)
{
    say_to(control, true, frame, payload, len);
}

/* ---- looking ---- */

/* A leader of another host that is below us now. */
static bool is_far_below(const struct weft_control_aside *aside, uint32_t rank)
{
    struct weft_control *control = aside->control;
    return aside->is_still[rank] == STILL_NOT && !weft_heal_is_near(control, rank) &&
           weft_heal_has_port(control, rank) && weft_control_conn_to(control, rank) == NULL &&
           weft_control_tree_up(&control->tree, aside->is_still, rank) == control->self.rank;
}

/* Our host's port may be the stopped one's, and they cannot find us. */
static void call_far(struct weft_control_aside *aside)
{
    for (uint32_t rank = 0; rank < aside->control->self.ranks; rank++) {
        if (is_far_below(aside, rank)) {
            dial(aside, rank);
        }
    }
}

static bool is_beside(const struct weft_control *control, uint32_t rank)
{
    return rank != control->self.rank && !control->is_out[rank] &&
           weft_heal_is_near(control, rank) &&
           weft_control_tree_up(&control->tree, control->is_out, rank) == control->parent_rank;
}

/* Of our parent's children on this host: has their process ended? The first looks at all, for some may not look; each of
 * the others at the next one, in case it is the first. */
static void look_beside(struct weft_control *control)
{
    uint32_t ranks = control->self.ranks;
    uint32_t up = control->aside->up;
    bool is_first = up == WEFT_WIRE_NO_RANK || !weft_heal_is_near(control, up);
    for (uint32_t i = 1; i < ranks; i++) {
        uint32_t rank = (control->self.rank + i) % ranks;
        if (!is_beside(control, rank) || weft_control_heal_check(control, rank)) {
            continue;
        }
        if (!is_first && !control->aside->is_leaving[rank] &&
            !weft_heal_is_stopped(control, rank)) {
            return; /* it looks at the one behind it */
        }
    }
}

static void go_around(struct weft_control_aside *aside, uint64_t now_ns)
{
    struct weft_control *control = aside->control;
    bool was_standing_in = aside->around_ns != 0 && aside->up == WEFT_WIRE_NO_RANK;
    if (aside->around_ns == 0) {
        weft_log(control, INFO, "rank %u stands still: what happens goes around it",
                 control->parent_rank);
    }
    if (now_ns > aside->forgot_ns + FORGET_MS * WEFT_NS_PER_MS) {
        aside->forgot_ns = now_ns;
        memset(aside->is_still, STILL_NOT, control->self.ranks);
    }
    aside->around_ns = now_ns;
    aside->up = find_up(aside);
    if (aside->up == WEFT_WIRE_NO_RANK) {
        if (!was_standing_in && weft_control_heart_has_slept(control, 0)) {
            /* another one may stand in, who did not find us, and asks again */
            control->quiet_ns = now_ns + (FORGET_MS + LOOK_MS * 4) * WEFT_NS_PER_MS;
        }
        call_far(aside);
        weft_heal_report_again(control->heal, false);
    } else if (weft_heal_is_near(control, aside->up) || weft_heal_has_port(control, aside->up)) {
        dial(aside, aside->up);
    }
    look_beside(control);
}

/* A coordinator that has slept: as soon as it may judge. */
static void look_again(struct weft_control_aside *aside, uint64_t at_ns)
{
    const struct weft_control *control = aside->control;
    bool is_quiet = control->is_top && control->quiet_ns > weft_clock_ns();
    weft_engine_timer_set(control->engine, &aside->timer, is_quiet ? control->quiet_ns : at_ns);
}

static void look(struct weft_control *control, uint64_t now_ns)
{
    struct weft_control_aside *aside = aside_of(control);
    if (aside == NULL || control->heal == NULL || control->start != NULL) {
        return;
    }
    if (control->is_top && !weft_control_heart_is_waking(control)) {
        weft_heal_report_again(control->heal, false);
    }
    if (is_parent_still(aside, now_ns)) {
        go_around(aside, now_ns);
    } else if (aside->around_ns != 0) {
        aside->around_ns = 0;
        memset(aside->is_still, STILL_NOT, control->self.ranks);
    }
    tidy(aside, now_ns);
    if (weft_list_is_empty(&control->heal->reports)) {
        control->heal->few_ns = 0;
    } else {
        look_again(aside, now_ns + LOOK_MS * WEFT_NS_PER_MS);
    }
}

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    look(WEFT_CONTAINER_OF(timer, struct weft_control_aside, timer)->control, now_ns);
}

bool weft_control_aside_due(struct weft_control *control)
{
    struct weft_control_aside *aside = aside_of(control);
    if (aside != NULL && weft_list_is_empty(&aside->timer.node)) {
        look_again(aside, weft_clock_after_ms(SOON_MS));
    }
    return aside != NULL;
}

void weft_control_aside_beat(struct weft_control *control, uint64_t now_ns)
{
    uint64_t period_ns = (uint64_t)control->params->number[WEFT_PARAM_HEARTBEAT] * WEFT_NS_PER_MS;
    bool is_unheard = control->parent != NULL && now_ns > control->parent->heard_ns + period_ns;
    if (is_unheard || (control->aside != NULL && control->aside->around_ns != 0)) {
        look(control, now_ns);
    }
}

bool weft_control_aside_has_left(struct weft_control *control)
{
    if (!weft_control_aside_is_needed(control)) {
        return true; /* it hears that we close */
    }
    look(control, weft_clock_ns());
    if (!is_around(control)) {
        return false;
    }
    leaves(control, control->self.rank);
    if (control->aside->up != WEFT_WIRE_NO_RANK) {
        return is_open_to(control->aside, control->aside->up);
    }
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if ((is_beside(control, rank) || is_far_below(control->aside, rank)) &&
            !control->aside->is_leaving[rank] && !is_open_to(control->aside, rank)) {
            return false; /* any of these may stand in next */
        }
    }
    return true;
}

bool weft_control_aside_is_needed(struct weft_control *control)
{
    return control->parent != NULL &&
           (weft_heal_is_stopped(control, control->parent_rank) || is_around(control));
}

void weft_control_aside_close(struct weft_control *control)
{
    struct weft_control_aside *aside = control->aside;
    struct weft_list *node;
    if (aside == NULL) {
        return;
    }
    weft_engine_timer_cancel(control->engine, &aside->timer);
    while ((node = weft_list_take(&aside->edges)) != NULL) {
        edge_close(edge_at(node));
    }
    free(aside);
    control->aside = NULL;
}
