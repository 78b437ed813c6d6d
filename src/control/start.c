/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start, as one rank sees it: it goes up (join.c), gathers others if it is root or leader
 * (gather.c), and when the table comes takes its place in the tree (place.c). This file holds the
 * pieces together: what connections tell, what frames mean during a start, and the two ends,
 * success and failure.
 */
#include "control/start.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTACHES_MAX 100

static void over(struct weft_control_start *start)
{
    atomic_store_explicit(&start->is_over, 1, memory_order_release);
    weft_engine_completed(start->control->engine);
}

void weft_control_start_over(struct weft_control_start *start)
{
    if (start->is_over == 0) {
        start->status = WEFT_OK;
        over(start);
    }
}

/* First failure wins; those who joined through us hear the same words. */
void weft_control_start_fail(struct weft_control *control, weft_status_t status, uint32_t rank,
                             const char *fmt, ...)
{
    struct weft_control_start *start = control->start;
    va_list args;
    (void)rank;
    if (start->is_over != 0) {
        return;
    }
    start->status = status;
    va_start(args, fmt);
    vsnprintf(start->text, sizeof(start->text), fmt, args);
    va_end(args);
    over(start);
    weft_control_gather_fail(start);
}

/* ---- what comes down ---- */

static void take_table(struct weft_control_start *start, struct weft_net_conn *conn,
                       const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_control *control = start->control;
    struct weft_control_attempt *attempt = weft_control_join_attempt(start, conn);
    weft_status_t status = weft_wire_table_decode(payload, frame->len, &control->table);
    if (status == WEFT_OK && control->table.ranks != control->self.ranks) {
        status = weft_fail(WEFT_ERR_PROTOCOL, "the table is for %u ranks", control->table.ranks);
    }
    if (status == WEFT_OK) {
        start->table_len = frame->len;
        start->table_bytes = malloc(frame->len);
        status = start->table_bytes != NULL ? WEFT_OK
                                            : weft_fail(WEFT_ERR_MEMORY, "no memory for the table");
    }
    if (status != WEFT_OK) {
        weft_control_start_fail(control, status, conn->peer_rank, "%s", weft_error_text());
        return;
    }
    memcpy(start->table_bytes, payload, frame->len);
    control->parent = conn;
    conn->tag = ROLE_PARENT;
    if (attempt != NULL) { /* the first connection stays, as the tree's */
        attempt->conn = NULL;
        start->first = NULL;
        start->has_answer = true;
    }
    weft_control_place(start);
}

/* To the parent in the tree, which is not the one we joined through. */
static weft_status_t connect_parent(struct weft_control_start *start,
                                    const struct weft_wire_answer *answer,
                                    struct weft_net_dial *dial_p)
{
    const struct weft_wire_self *self = &start->control->self;
    struct sockaddr_storage addr;
    char name[WEFT_WIRE_NAME_LEN];
    weft_status_t status;
    if (answer->is_local) {
        weft_wire_local_name(self->key, self->job, self->epoch, "rank", answer->parent, name);
        return weft_net_connect_local(name, start->spec.deadline_ns, dial_p);
    }
    status = weft_net_addr_from_wire(&answer->addr, &addr);
    return status == WEFT_OK ? weft_net_connect(&addr, dial_p) : status;
}

static void attach(struct weft_control_start *start)
{
    struct weft_control *control = start->control;
    struct weft_net_dial dial;
    weft_status_t status = connect_parent(start, &start->answer, &dial);
    if (status == WEFT_OK) {
        dial.self = &control->self;
        dial.purpose = WEFT_WIRE_ATTACH;
        dial.ops = &weft_control_conn_ops;
        dial.owner = control;
        status = weft_net_conn_open(control->engine, &dial, &control->parent);
    }
    if (status != WEFT_OK) {
        weft_control_start_fail(control, status, start->answer.parent,
                                "cannot attach to rank %u: %s", start->answer.parent,
                                weft_error_text());
        return;
    }
    control->parent->tag = ROLE_PARENT;
}

static void take_answer(struct weft_control_start *start, const struct weft_wire_frame *frame,
                        const uint8_t *payload)
{
    if (weft_wire_answer_decode(payload, frame->len, &start->answer) != WEFT_OK) {
        weft_control_start_fail(start->control, WEFT_ERR_PROTOCOL, frame->src, "%s",
                                weft_error_text());
        return;
    }
    start->has_answer = true;
    attach(start);
}

static void take_reject(struct weft_control_start *start, const struct weft_wire_frame *frame,
                        const uint8_t *payload)
{
    struct weft_wire_notice notice;
    if (weft_wire_notice_decode(payload, frame->len, &notice) == WEFT_OK) {
        if (frame->type == WEFT_WIRE_REJECT && frame->dst == start->me.rank &&
            start->spec.door == NULL) {
            weft_control_gather_drop(start); /* it is only we who must go */
        }
        start->is_for_all |= frame->type == WEFT_WIRE_REJECT && frame->dst == WEFT_WIRE_NO_RANK;
        weft_control_start_fail(start->control, notice.status, notice.rank, "%s", notice.text);
    }
}

static void start_frame(struct weft_control_start *start, struct weft_net_conn *conn,
                        const struct weft_wire_frame *frame, const uint8_t *payload)
{
    bool is_from_above = conn->tag == ROLE_UP || conn->tag == ROLE_PARENT;
    bool is_for_me = frame->dst == start->me.rank || frame->dst == WEFT_WIRE_NO_RANK;
    if (is_from_above && !is_for_me && start->is_gatherer) {
        weft_control_gather_forward(start, frame, payload);
    } else if (is_from_above && frame->type == WEFT_WIRE_TABLE && start->table_bytes == NULL) {
        take_table(start, conn, frame, payload);
    } else if (is_from_above && frame->type == WEFT_WIRE_ANSWER && !start->has_answer) {
        take_answer(start, frame, payload);
    } else if (is_from_above && frame->type == WEFT_WIRE_REJECT) {
        take_reject(start, frame, payload);
    } else if (conn->tag == ROLE_ARRIVAL && frame->type == WEFT_WIRE_MEMBERS &&
               start->table_bytes == NULL) {
        weft_control_gather_members(start, conn, payload, frame->len);
    } else if (conn->tag == ROLE_ARRIVAL && frame->type == WEFT_WIRE_REPORT) {
        take_reject(start, frame, payload);
    } else if (start->table_bytes != NULL && conn->tag != ROLE_ARRIVAL) {
        /* A child or the parent has started already and is ahead of us. */
        weft_control_arrived(start->control, conn, frame, payload);
    } else {
        weft_control_start_fail(start->control, WEFT_ERR_PROTOCOL, conn->peer_rank,
                                "rank %u (%s) sent a frame of type %u during the start",
                                conn->peer_rank, conn->peer_text, frame->type);
    }
}

/* ---- what connections tell ---- */

/* Who comes after a start that failed hears why, as those do who waited for it; and who would join through this rank, whose own
 * way to the root failed, goes there itself. */
static void refuse_late(const struct weft_control *control, struct weft_net_conn *conn)
{
    const struct weft_control_start *start = control->start;
    if (start == NULL || start->status == WEFT_OK) {
        weft_net_conn_refuse(conn, WEFT_ERR_BUSY, "the start is over");
    } else if (conn->purpose == WEFT_WIRE_JOIN && !control->has_door && !start->is_for_all) {
        weft_net_conn_close(conn);
    } else {
        weft_net_conn_refuse(conn, start->status, start->text);
    }
}

static void on_hello(struct weft_net_conn *conn)
{
    struct weft_control *control = conn->owner;
    if (conn->purpose == WEFT_WIRE_RETURN) {
        weft_control_ways_hello(control, conn);
    } else if (conn->purpose == WEFT_WIRE_ASIDE) {
        weft_control_aside_hello(control, conn);
    } else if (conn->purpose == WEFT_WIRE_HEAL || conn->purpose == WEFT_WIRE_ADOPT) {
        weft_control_heal_hello(control, conn);
    } else if (conn->purpose == WEFT_WIRE_JOIN && !conn->is_local && !control->has_door) {
        weft_net_conn_close(conn); /* it looks for the root, perhaps at several ports */
    } else if (control->start == NULL || control->start->is_over != 0) {
        refuse_late(control, conn);
    } else if (conn->purpose == WEFT_WIRE_JOIN && control->start->is_gatherer) {
        weft_control_gather_hello(control->start, conn);
    } else if (conn->purpose == WEFT_WIRE_ATTACH) {
        weft_control_place_attached(control->start, conn);
    } else {
        weft_net_conn_refuse(conn, WEFT_ERR_PROTOCOL, "this listener is for starting a job");
    }
}

static void on_opened(struct weft_net_conn *conn)
{
    struct weft_control *control = conn->owner;
    if (control->start != NULL && conn->tag == ROLE_UP) {
        control->start->first = conn;
        weft_control_gather_up_opened(control->start);
    } else if (conn->tag == ROLE_SEEKING) {
        weft_control_ways_opened(control, conn);
    } else if (conn->tag == ROLE_ASIDE) {
        weft_control_aside_opened(control, conn);
    } else if (conn->tag == ROLE_HEALING || conn->tag == ROLE_ADOPTING) {
        weft_control_heal_opened(control, conn);
    }
}

static void on_frame(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                     const uint8_t *payload)
{
    struct weft_control *control = conn->owner;
    if (control->start != NULL && control->start->is_over != 0 &&
        control->start->status != WEFT_OK) {
        return; /* it failed, and is about to be taken apart */
    }
    if ((conn->tag == ROLE_VISITOR || conn->tag == ROLE_ADOPTER) &&
        !weft_control_heal_first(control, conn)) {
        return;
    }
    if (conn->tag == ROLE_ASIDE) {
        weft_control_aside_frame(control, conn, frame, payload);
    } else if (conn->tag == ROLE_RETURNING && frame->type != WEFT_WIRE_RESUME) {
        weft_control_ways_left(conn);
    } else if (control->start != NULL && control->start->is_over == 0) {
        start_frame(control->start, conn, frame, payload);
    } else if (conn->tag != ROLE_PARTING) {
        weft_control_arrived(control, conn, frame, payload);
    }
}

static void on_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct weft_control *control = conn->owner;
    struct weft_control_start *start = control->start;
    if (conn->tag == ROLE_PARTING) {
        weft_list_remove(&conn->node);
        weft_net_conn_close(conn);
    } else if (conn->tag == ROLE_SEEKING) {
        weft_control_ways_missed(control, conn);
    } else if (conn->tag == ROLE_RETURNING) {
        weft_control_ways_left(conn);
    } else if (conn->tag == ROLE_ASIDE) {
        weft_control_aside_lost(control, conn);
    } else if (conn->tag >= ROLE_HEALING) {
        weft_control_heal_missed(control, conn);
    } else if (start != NULL && conn->tag == ROLE_UP) {
        weft_control_join_lost(start, conn, status, why);
    } else if (start != NULL && (conn->tag == ROLE_ARRIVAL || conn->tag == ROLE_ATTACHED)) {
        weft_control_gather_lost(start, conn, status, why);
    } else if (start != NULL && start->is_over == 0 && conn == control->parent &&
               start->table_bytes == NULL && !conn->is_refused && status == WEFT_ERR_PEER &&
               start->attaches++ < ATTACHES_MAX) {
        control->parent = NULL; /* put out by a crowd at the parent's door */
        weft_net_conn_close(conn);
        attach(start);
    } else if (start != NULL && start->is_over == 0) {
        weft_control_start_fail(control, status, conn->peer_rank,
                                "rank %u (%s): %s during the start", conn->peer_rank,
                                conn->peer_text, why);
        weft_control_neighbour_lost(control, conn, status, why);
    } else if (status == WEFT_ERR_MEMORY || (!weft_control_ways_replace(control, conn) &&
                                             !weft_control_heal_again(control, conn))) {
        weft_control_neighbour_lost(control, conn, status, why);
    }
}

const struct weft_net_conn_ops weft_control_conn_ops = {
    .hello = on_hello,
    .opened = on_opened,
    .frame = on_frame,
    .lost = on_lost,
};

/* ---- opening ---- */

static weft_status_t start_new(const struct weft_control_spec *spec, struct weft_control *control)
{
    struct weft_control_start *start = calloc(1, sizeof(*start));
    if (start == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to start");
    }
    start->control = control;
    start->spec = *spec;
    control->has_door = spec->door != NULL;
    weft_list_open(&start->arrivals);
    weft_list_open(&start->attached);
    weft_list_open(&start->leaders);
    weft_engine_timer_open(&start->deadline, NULL);
    weft_engine_timer_open(&start->watch, NULL);
    start->me.rank = spec->self.rank;
    start->me.ranks = spec->self.ranks;
    start->me.pid = (uint32_t)getpid();
    start->me.timeout_ms = spec->timeout_ms;
    snprintf(start->me.host, sizeof(start->me.host), "%s", spec->host);
    control->start = start;
    return weft_params_agreed(spec->params, start->me.settings, sizeof(start->me.settings));
}

static void start_free(struct weft_control *control)
{
    struct weft_control_start *start = control->start;
    weft_control_join_close(start);
    weft_control_close_list(&start->arrivals);
    weft_control_close_list(&start->attached);
    weft_control_gather_close(start);
    free(start);
    control->start = NULL;
}

static void list_unattached(const struct weft_control *control, char *text, size_t room)
{
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < control->child_count && len < room; i++) {
        char name[128];
        if (control->children[i].conn == NULL) {
            weft_control_name_rank(control, control->children[i].rank, name, sizeof(name));
            len += (size_t)snprintf(text + len, room - len, "%s%s", len > 0 ? ", " : "", name);
        }
    }
}

/* Our own deadline: nobody above told us why. */
static void time_out(struct weft_control_start *start)
{
    struct weft_control *control = start->control;
    uint32_t rank = start->me.rank;
    char missing[160];
    if (start->latest[0] != '\0') {
        weft_control_start_fail(control, WEFT_ERR_TIMEOUT, rank,
                                "rank %u could not join within %u ms; %s", rank,
                                start->spec.timeout_ms, start->latest);
    } else if (start->table_bytes == NULL && !weft_control_join_has_spoken(start)) {
        weft_control_start_fail(control, WEFT_ERR_TIMEOUT, rank,
                                "rank %u: somebody listens where the root should be, but has not "
                                "answered as this job's root within %u ms",
                                rank, start->spec.timeout_ms);
    } else if (start->table_bytes != NULL) {
        list_unattached(control, missing, sizeof(missing));
        weft_control_start_fail(control, WEFT_ERR_TIMEOUT, rank,
                                "rank %u: %s, which it serves, did not attach within %u ms", rank,
                                missing, start->spec.timeout_ms);
    } else {
        weft_control_start_fail(control, WEFT_ERR_TIMEOUT, rank,
                                "rank %u joined, but the root did not answer within %u ms; is the "
                                "process that made the id creating its communicator?",
                                rank, start->spec.timeout_ms);
    }
}

static weft_status_t run_start(struct weft_control *control)
{
    struct weft_control_start *start = control->start;
    weft_status_t status;
    weft_engine_lock(control->engine);
    status = weft_control_join(start);
    weft_engine_unlock(control->engine);
    if (status != WEFT_OK) {
        return status;
    }
    if (weft_engine_wait(control->engine, &start->is_over, start->spec.deadline_ns) != WEFT_OK) {
        weft_engine_lock(control->engine);
        time_out(start); /* those who joined through us hear the same */
        weft_engine_unlock(control->engine);
    }
    return start->status == WEFT_OK ? WEFT_OK : weft_fail(start->status, "%s", start->text);
}

static unsigned ranks_on_this_host(const struct weft_control *control)
{
    unsigned count = 0;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        count += weft_control_is_same_host(control, control->self.rank, rank);
    }
    return count;
}

/* A rank with children or with a parent on another host needs the background thread from the start (it
 * beats and relays), a local leaf with its first call: a thread costs 30 µs, which a start of many
 * ranks on few CPUs would feel. */
weft_status_t weft_control_engage(struct weft_control *control)
{
    weft_status_t status;
    if (atomic_exchange(&control->is_engaged, true)) {
        return WEFT_OK;
    }
    status = weft_background_join(control->engine);
    if (status != WEFT_OK) {
        atomic_store(&control->is_engaged, false); /* the next call tries again */
    }
    return status;
}

/* A local parent sees by itself how a leaf is; over a network only beats tell. */
static bool needs_beats(const struct weft_control *control)
{
    return control->parent != NULL && !control->parent->is_local;
}

weft_status_t weft_control_open(const struct weft_control_spec *spec,
                                struct weft_control **control_p)
{
    struct weft_control *control = calloc(1, sizeof(*control));
    weft_status_t status;
    if (control == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the control plane");
    }
    control->engine = spec->engine;
    control->params = spec->params;
    control->self = spec->self;
    control->parent_rank = WEFT_WIRE_NO_RANK;
    weft_list_open(&control->parting);
    weft_list_open(&control->channels);
    weft_list_open(&control->early);
    weft_list_open(&control->early_calls);
    weft_engine_timer_open(&control->news, weft_control_news_fire);
    weft_engine_timer_open(&control->heart, NULL);
    status = start_new(spec, control);
    if (status == WEFT_OK) {
        status = run_start(control);
    }
    weft_engine_lock(control->engine);
    if (status == WEFT_OK && !spec->is_root) {
        weft_control_heal_take(control, control->start->tcp);
        control->start->tcp = NULL;
    }
    if (control->start != NULL) {
        start_free(control);
    }
    if (status == WEFT_OK) {
        weft_engine_set_load(control->engine, ranks_on_this_host(control));
        weft_control_heal_open(control);
        status = weft_control_heart_open(control);
    }
    weft_engine_unlock(control->engine);
    if (status == WEFT_OK && (control->child_count > 0 || needs_beats(control))) {
        status = weft_control_engage(control);
    }
    if (status != WEFT_OK) {
        control->is_closing = true;
        weft_control_close(control);
        return status;
    }
    *control_p = control;
    return WEFT_OK;
}
