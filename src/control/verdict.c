/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to a rank, and how everybody hears of it.
 *
 * Dead: a neighbour sees the end of its connection (or of its process) without a good-bye. It
 * reports to the coordinator, the root of the tree, which numbers the verdict and floods it down,
 * so that all ranks get the same one. Who has lost its way to the coordinator judges for its own
 * subtree.
 *
 * Closed in good order: no verdict. The news goes up and then down, gathered for a few
 * milliseconds, because at the end of a job all ranks close and nobody needs to hear of it. Because
 * frames keep their order along the tree, nobody hears that a rank closed before what it sent.
 */
#include "control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEWS_MS 5

static bool is_root(const struct weft_control *control)
{
    return control->self.rank == control->table.root;
}

static void mark_gone(struct weft_control *control, uint32_t rank)
{
    control->gone_count += control->is_gone[rank] == 0;
    control->is_gone[rank] = 1;
}

/* ---- verdicts ---- */

static bool is_concerned(const struct weft_control_channel *channel)
{
    char text[TEXT_LEN];
    return weft_control_channel_is_cut(channel, text);
}

static void apply(struct weft_control *control, uint64_t comm,
                  const struct weft_wire_notice *notice)
{
    if (comm == 0 && notice->rank < control->self.ranks) {
        mark_gone(control, notice->rank);
        weft_log(control, WARN, "%s", notice->text);
        if (control->observer != NULL) {
            control->observer->gone(control->observer, notice->rank, notice->status, notice->text);
        }
    }
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        struct weft_control_channel *channel =
            WEFT_CONTAINER_OF(node, struct weft_control_channel, node);
        if (comm == 0 ? is_concerned(channel) : channel->id == comm) {
            weft_control_channel_end(channel, notice->status, notice->text);
        }
    }
}

static bool is_open_here(const struct weft_control *control, uint64_t comm)
{
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        if (WEFT_CONTAINER_OF(node, struct weft_control_channel, node)->id == comm) {
            return true;
        }
    }
    return false;
}

static void judge(struct weft_control *control, uint64_t comm,
                  const struct weft_wire_notice *notice)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_VERDICT,
                                    .comm = comm,
                                    .src = control->self.rank,
                                    .dst = WEFT_WIRE_NO_RANK};
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    size_t len = weft_wire_notice_encode(notice, bytes);
    weft_control_flood(control, &frame, bytes, len);
    if (comm == 0 || is_open_here(control, comm)) {
        apply(control, comm, notice);
    } else {
        /* A channel that this rank is about to open ends as soon as it does. */
        frame.len = (uint32_t)len;
        weft_control_deliver(control, &frame, bytes);
    }
}

void weft_control_report(struct weft_control *control, uint64_t comm,
                         const struct weft_wire_notice *notice)
{
    struct weft_wire_notice verdict = *notice;
    struct weft_wire_frame frame = {.type = WEFT_WIRE_REPORT,
                                    .comm = comm,
                                    .src = control->self.rank,
                                    .dst = WEFT_WIRE_NO_RANK};
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    if (comm == 0 && notice->rank < control->self.ranks && control->is_gone[notice->rank]) {
        return; /* known already */
    }
    if (is_root(control)) {
        verdict.number = ++control->verdicts;
        judge(control, comm, &verdict);
    } else if (control->parent != NULL) {
        weft_control_say(control->parent, &frame, bytes, weft_wire_notice_encode(notice, bytes));
    } else {
        judge(control, comm, notice);
    }
}

void weft_control_notice_arrived(struct weft_control *control, const struct weft_wire_frame *frame,
                                 const uint8_t *payload)
{
    struct weft_wire_notice notice;
    if (weft_wire_notice_decode(payload, frame->len, &notice) != WEFT_OK) {
        weft_log(control, ERROR, "rank %u sent a verdict that cannot be read", frame->src);
        return;
    }
    if (frame->type == WEFT_WIRE_REPORT) {
        weft_control_report(control, frame->comm, &notice);
        return;
    }
    judge(control, frame->comm, &notice);
}

void weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                 weft_status_t status, const char *why)
{
    struct weft_wire_notice notice = {.status = status, .rank = conn->peer_rank};
    char name[96];
    conn->edge = NULL;
    weft_control_ways_forget(control, conn->peer_rank);
    if (conn == control->parent) {
        control->parent = NULL;
    }
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn == conn) {
            control->children[i].conn = NULL;
        }
    }
    if (conn->peer_rank < control->self.ranks && control->is_gone != NULL && !control->is_closing) {
        weft_control_name_rank(control, conn->peer_rank, name, sizeof(name));
        snprintf(notice.text, sizeof(notice.text), "%s %s", name, why);
        weft_net_conn_close(conn);
        weft_control_report(control, 0, &notice);
        return;
    }
    weft_net_conn_close(conn);
}

/* ---- good-byes ---- */

static void send_closed(struct weft_control *control, struct weft_net_conn *conn,
                        const uint32_t *ranks, uint32_t count)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_CLOSED, .src = control->self.rank, .dst = WEFT_WIRE_NO_RANK};
    uint8_t *bytes = malloc((size_t)count * 4);
    if (bytes == NULL) {
        return; /* who waits for them finds out at the deadline */
    }
    for (uint32_t i = 0; i < count; i++) {
        put32(bytes + (size_t)i * 4, ranks[i]);
    }
    if (conn != NULL) {
        weft_control_say(conn, &frame, bytes, (size_t)count * 4);
    } else {
        weft_control_flood(control, &frame, bytes, (size_t)count * 4);
    }
    free(bytes);
}

static void apply_closed(struct weft_control *control, uint32_t rank)
{
    char name[96];
    char text[TEXT_LEN];
    mark_gone(control, rank);
    if (control->observer != NULL) {
        weft_control_name_rank(control, rank, name, sizeof(name));
        snprintf(text, sizeof(text), "%s closed its communicator", name);
        control->observer->gone(control->observer, rank, WEFT_ERR_PEER, text);
    }
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        weft_control_channel_rank_closed(WEFT_CONTAINER_OF(node, struct weft_control_channel, node),
                                         rank);
    }
}

void weft_control_news_flush(struct weft_control *control)
{
    if (control->closed_count > 0) {
        send_closed(control, NULL, control->closed, control->closed_count);
        control->closed_count = 0;
    }
}

void weft_control_news_fire(struct weft_engine_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    weft_control_news_flush(WEFT_CONTAINER_OF(timer, struct weft_control, news));
}

static void keep_news(struct weft_control *control, uint32_t rank)
{
    if (control->closed_count == control->closed_room) {
        uint32_t room = control->closed_room == 0 ? 64 : control->closed_room * 2;
        uint32_t *grown = realloc(control->closed, room * sizeof(*grown));
        if (grown == NULL) {
            return;
        }
        control->closed = grown;
        control->closed_room = room;
    }
    control->closed[control->closed_count++] = rank;
}

/* Up to the root, which tells all; without a way up, to those below. */
static void pass_on(struct weft_control *control, uint32_t rank)
{
    keep_news(control, rank);
    if (is_root(control) || control->parent == NULL || rank == control->parent_rank) {
        if (weft_list_is_empty(&control->news.node)) {
            weft_engine_timer_set(control->engine, &control->news, weft_clock_after_ms(NEWS_MS));
        }
    } else {
        /* Kept too: should we close before the root's word comes, our children hear it from us. */
        send_closed(control, control->parent, &rank, 1);
    }
}

void weft_control_rank_closed(struct weft_control *control, uint32_t rank)
{
    if (rank >= control->self.ranks || control->is_gone == NULL || control->is_gone[rank] ||
        control->is_closing) {
        return;
    }
    apply_closed(control, rank);
    pass_on(control, rank);
}

void weft_control_closed_arrived(struct weft_control *control, struct weft_net_conn *from,
                                 const struct weft_wire_frame *frame, const uint8_t *payload)
{
    bool is_from_above = from == control->parent;
    struct weft_wire_frame onward = *frame;
    for (uint32_t i = 0; i + 4 <= frame->len && !control->is_closing; i += 4) {
        uint32_t rank = get32(payload + i);
        if (rank >= control->self.ranks || rank == control->self.rank) {
            continue;
        }
        apply_closed(control, rank);
        if (!is_from_above) {
            pass_on(control, rank);
        }
    }
    if (is_from_above) {
        weft_control_flood(control, &onward, payload, frame->len);
    }
}
