/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between neighbours in the tree: mine, somebody else's, or for everybody below. */
#include "control/internal.h"

#include <stdlib.h>
#include <string.h>

#define EARLY_MAX 65536
#define EARLY_VERDICTS 1024 /* of communicators that are not ours, most of them */

struct early_frame {
    struct weft_list node;
    struct weft_wire_frame frame;
    uint8_t payload[];
};

struct weft_net_conn *weft_control_conn_to(struct weft_control *control, uint32_t rank)
{
    if (rank == control->parent_rank) {
        return control->parent;
    }
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].rank == rank) {
            return control->children[i].conn;
        }
    }
    return NULL;
}

/* Nothing goes to who has said good-bye. */
static struct weft_net_conn *way_up(const struct weft_control *control)
{
    return control->parent != NULL && !control->is_gone[control->parent_rank] ? control->parent
                                                                              : NULL;
}

static struct weft_net_conn *child_at(const struct weft_control *control, uint32_t rank)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].rank == rank) {
            return control->children[i].conn;
        }
    }
    return NULL;
}

/* One who should be below us and is not may hang elsewhere. */
struct weft_net_conn *weft_control_way_to(struct weft_control *control, uint32_t to)
{
    uint32_t at = to;
    struct weft_net_conn *known = control->via != NULL && control->via[to] != WEFT_WIRE_NO_RANK
                                      ? child_at(control, control->via[to])
                                      : NULL;
    if (known != NULL) {
        return known;
    }
    while (at != WEFT_WIRE_NO_RANK && at != control->self.rank) {
        struct weft_net_conn *child = child_at(control, at);
        if (child != NULL) {
            return child;
        }
        at = weft_control_tree_up(&control->tree, control->is_out, at);
    }
    return way_up(control);
}

/* On the way as it was in the start. */
static uint32_t gone_on_the_way(const struct weft_control *control, uint32_t to)
{
    uint32_t at = control->self.rank;
    while (at != to) {
        at = weft_control_tree_hop(&control->tree, at, to);
        if (control->is_gone[at]) {
            return at;
        }
    }
    return to;
}

bool weft_control_is_cut(struct weft_control *control, uint32_t to, uint32_t *gone_p)
{
    bool is_on_its_way =
        weft_control_heal_has_reports(control); /* a verdict, which ends the call */
    if (to == control->self.rank ||
        (!control->is_gone[to] && (is_on_its_way || weft_control_way_to(control, to) != NULL))) {
        return false;
    }
    *gone_p = control->is_gone[to] ? to : gone_on_the_way(control, to);
    return true;
}

bool weft_control_route(struct weft_control *control, struct weft_wire_frame *frame,
                        const void *payload, size_t len)
{
    struct weft_net_conn *conn;
    if (frame->dst == control->self.rank) {
        frame->len = (uint32_t)len;
        weft_control_deliver(control, frame, payload);
        return true;
    }
    conn = weft_control_way_to(control, frame->dst);
    return conn != NULL && weft_control_say(conn, frame, payload, len) == WEFT_OK;
}

void weft_control_flood(struct weft_control *control, struct weft_wire_frame *frame,
                        const void *payload, size_t len)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn != NULL) {
            weft_control_say(control->children[i].conn, frame, payload, len);
            control->children[i].told += frame->type == WEFT_WIRE_VERDICT;
        }
    }
}

static void dispatch(struct weft_control *control, struct weft_net_conn *from,
                     const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_wire_frame onward = *frame;
    if (frame->dst >= control->self.ranks || frame->src >= control->self.ranks) {
        weft_control_neighbour_lost(control, from, WEFT_ERR_PROTOCOL,
                                    "sent a frame for a rank that does not exist");
    } else if (frame->dst == control->self.rank && frame->type == WEFT_WIRE_CALL) {
        weft_control_call_arrived(control, frame, payload);
    } else if (frame->dst == control->self.rank) {
        weft_control_deliver(control, frame, payload);
    } else if (weft_control_way_to(control, frame->dst) !=
               from) { /* where ranks disagree who is above whom */
        weft_count(weft_engine_counters(control->engine), WEFT_COUNTER_FORWARDED, 1);
        weft_control_route(control, &onward, payload, frame->len);
    }
}

/* ---- who hangs where ---- */

void weft_control_via_open(struct weft_control *control)
{
    if (control->via == NULL && control->is_gone != NULL) {
        control->via = malloc(control->self.ranks * sizeof(*control->via));
    }
    for (uint32_t rank = 0; control->via != NULL && rank < control->self.ranks; rank++) {
        control->via[rank] = WEFT_WIRE_NO_RANK;
    }
}

/* A word of `rank` came from there. Nobody who precedes us is below us: such a word was on its way down, and came back. */
static void note_via(struct weft_control *control, const struct weft_net_conn *from, uint32_t rank)
{
    if (control->via != NULL && rank < control->self.ranks && rank != control->self.rank &&
        (from == control->parent ||
         !weft_control_tree_precedes(&control->tree, rank, control->self.rank))) {
        control->via[rank] = from == control->parent ? WEFT_WIRE_NO_RANK : from->peer_rank;
    }
}

bool weft_control_is_telling(const struct weft_control *control, const struct weft_net_conn *way)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn == way) {
            return control->children[i].is_telling;
        }
    }
    return false;
}

static void has_told(struct weft_control *control, const struct weft_net_conn *conn)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn == conn) {
            control->children[i].is_telling = false;
        }
    }
}

/* Those below who have not told everything yet are named when they have. */
void weft_control_tell_below(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_BELOW, .src = control->self.rank, .dst = conn->peer_rank};
    uint8_t *bytes = calloc(control->self.ranks, 4);
    size_t count = 0;
    for (uint32_t rank = 0; bytes != NULL && rank < control->self.ranks; rank++) {
        const struct weft_net_conn *way =
            rank != control->self.rank ? weft_control_way_to(control, rank) : NULL;
        if (rank == control->self.rank || (way != NULL && way != conn && !control->is_gone[rank] &&
                                           !weft_control_is_telling(control, way))) {
            put32(bytes + 4 * count++, rank);
        }
    }
    if (bytes != NULL) {
        weft_control_say(conn, &frame, bytes, 4 * count);
    }
    free(bytes);
}

static void below_arrived(struct weft_control *control, struct weft_net_conn *from,
                          const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_wire_frame onward = *frame;
    if (frame->src == from->peer_rank) {
        has_told(control, from);
    }
    for (uint32_t i = 0; from != control->parent && i + 4 <= frame->len; i += 4) {
        note_via(control, from, get32(payload + i));
    }
    if (from != control->parent && way_up(control) != NULL) {
        weft_control_say(control->parent, &onward, payload, frame->len);
    } else if (from != control->parent) {
        weft_control_heal_told(control, payload, frame->len / 4);
        weft_control_shrink_check(control); /* there may be a way to everybody now */
    }
    weft_control_word_check(control);
}

void weft_control_arrived(struct weft_control *control, struct weft_net_conn *from,
                          const struct weft_wire_frame *frame, const uint8_t *payload)
{
    if (!from->is_beating) {
        from->is_beating = true;
        weft_control_heal_heard(control);
    }
    note_via(control, from, frame->src);
    if (frame->type != WEFT_WIRE_HEARTBEAT && frame->type != WEFT_WIRE_WAYS &&
        frame->type != WEFT_WIRE_RESUME) {
        weft_control_mend_count(from, frame);
    }
    switch (frame->type) {
    case WEFT_WIRE_HEARTBEAT:
        weft_control_mend_acked(from, frame->number);
        weft_control_word_arrived(control, from, frame);
        weft_control_still_arrived(control, from, frame);
        break;
    case WEFT_WIRE_WAYS:
        weft_control_ways_arrived(control, from, frame, payload);
        break;
    case WEFT_WIRE_DOORS:
        weft_control_ways_doors_arrived(control, from, frame, payload);
        break;
    case WEFT_WIRE_RESUME:
        weft_control_ways_resumed(control, from, frame);
        break;
    case WEFT_WIRE_BYE:
        weft_control_rank_closed(control, from->peer_rank);
        break;
    case WEFT_WIRE_CLOSED:
        weft_control_closed_arrived(control, from, frame, payload);
        break;
    case WEFT_WIRE_REPORT:
    case WEFT_WIRE_VERDICT:
        weft_control_notice_arrived(control, from, frame, payload);
        break;
    case WEFT_WIRE_BELOW:
        below_arrived(control, from, frame, payload);
        break;
    case WEFT_WIRE_SHRINK:
    case WEFT_WIRE_SHRUNK:
        weft_control_shrink_arrived(control, from, frame, payload);
        break;
    case WEFT_WIRE_GATHER:
    case WEFT_WIRE_SPREAD:
    case WEFT_WIRE_MAIL:
    case WEFT_WIRE_MAIL_ACK:
    case WEFT_WIRE_CALL:
        dispatch(control, from, frame, payload);
        break;
    default:
        weft_control_neighbour_lost(control, from, WEFT_ERR_PROTOCOL,
                                    "sent a frame that belongs to the start");
    }
}

/* ---- to channels ---- */

static void hand_over(struct weft_control_channel *channel, const struct weft_wire_frame *frame,
                      const uint8_t *payload)
{
    struct weft_wire_notice notice;
    if (frame->type == WEFT_WIRE_GATHER || frame->type == WEFT_WIRE_SPREAD) {
        weft_control_collect_arrived(channel, frame, payload);
    } else if (frame->type == WEFT_WIRE_VERDICT) {
        if (weft_wire_notice_decode(payload, frame->len, &notice) == WEFT_OK) {
            weft_control_channel_end_by(channel, &notice);
        }
    } else {
        weft_control_mail_arrived(channel, frame, payload);
    }
}

/* Who waits for the answer to it must not wait for ever: the communicator ends for everybody. The verdict on that
 * has a place that is always there. */
static void lose_early(struct weft_control *control, const struct weft_wire_frame *frame,
                       const uint8_t *payload)
{
    struct weft_wire_notice notice = {.status = WEFT_ERR_MEMORY,
                                      .rank = control->self.rank,
                                      .text = "no memory for what came before its communicator"};
    weft_log(control, ERROR, "a frame from rank %u for a communicator not known here is lost",
             frame->src);
    if (frame->type != WEFT_WIRE_VERDICT) {
        weft_control_report_own(control, frame->comm, &notice);
    } else if (frame->len <= sizeof(control->last_verdict)) {
        control->last_verdict_frame = *frame;
        memcpy(control->last_verdict, payload, frame->len);
    }
}

static void take_early(struct weft_control *control, struct early_frame *early)
{
    weft_list_remove(&early->node);
    control->early_count--;
    control->early_verdicts -= early->frame.type == WEFT_WIRE_VERDICT;
}

/* Verdicts on communicators come to all, and nobody knows which of them it will open. */
static void forget_oldest_verdict(struct weft_control *control)
{
    struct weft_list *node = control->early.next;
    while (WEFT_CONTAINER_OF(node, struct early_frame, node)->frame.type != WEFT_WIRE_VERDICT) {
        node = node->next;
    }
    take_early(control, WEFT_CONTAINER_OF(node, struct early_frame, node));
    free(WEFT_CONTAINER_OF(node, struct early_frame, node));
}

static void keep_early(struct weft_control *control, const struct weft_wire_frame *frame,
                       const uint8_t *payload)
{
    struct early_frame *early = NULL;
    bool is_verdict = frame->type == WEFT_WIRE_VERDICT;
    for (size_t i = 0; i < WEFT_COUNT_OF(control->ended); i++) {
        if (control->ended[i] == frame->comm) {
            weft_count(weft_engine_counters(control->engine), WEFT_COUNTER_SUNK, 1);
            return;
        }
    }
    if (is_verdict && control->early_verdicts == EARLY_VERDICTS) {
        forget_oldest_verdict(control);
    }
    if (control->early_count < EARLY_MAX) {
        early = malloc(sizeof(*early) + frame->len);
    }
    if (early == NULL) {
        lose_early(control, frame, payload);
        return;
    }
    early->frame = *frame;
    if (frame->len > 0) {
        memcpy(early->payload, payload, frame->len);
    }
    weft_list_append(&control->early, &early->node);
    control->early_count++;
    control->early_verdicts += is_verdict;
}

void weft_control_deliver(struct weft_control *control, const struct weft_wire_frame *frame,
                          const uint8_t *payload)
{
    struct weft_control_channel *channel = weft_control_channel_find(control, frame->comm);
    if (channel != NULL) {
        hand_over(channel, frame, payload);
    } else {
        keep_early(control, frame, payload);
    }
}

void weft_control_deliver_early(struct weft_control *control, struct weft_control_channel *channel)
{
    struct weft_list *node = control->early.next;
    while (node != &control->early) {
        struct early_frame *early = WEFT_CONTAINER_OF(node, struct early_frame, node);
        node = node->next;
        if (early->frame.comm == channel->id) {
            take_early(control, early);
            hand_over(channel, &early->frame, early->payload);
            free(early);
        }
    }
    if (control->last_verdict_frame.len > 0 && control->last_verdict_frame.comm == channel->id) {
        hand_over(channel, &control->last_verdict_frame, control->last_verdict);
        control->last_verdict_frame.len = 0;
    }
}

void weft_control_early_close(struct weft_control *control)
{
    struct weft_list *node;
    while ((node = weft_list_take(&control->early)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct early_frame, node));
    }
}
