/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tagged messages between two members, routed along the tree. A sender may have WINDOW bytes on
 * their way to one receiver that were not received yet, so that nobody's memory depends on a
 * receiver's mood: at most WINDOW bytes per pair lie in an inbox or in the buffers on the way.
 */
#include "control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW (64u << 10)
#define MESSAGE_COST 64 /* also an empty message takes room */

struct message {
    struct weft_list node;
    uint32_t from, tag;
    size_t len;
    uint8_t data[];
};

struct mail_op {
    struct weft_control_op op;
    bool is_send;
    uint32_t peer, tag;
    const void *data; /* to send */
    void *buffer;     /* to receive */
    size_t len;       /* of the message, or the buffer's room; afterwards what came */
};

static uint32_t cost(size_t len)
{
    return (uint32_t)len + MESSAGE_COST;
}

static void cut_text(const struct weft_control_channel *channel, uint32_t peer, uint32_t gone,
                     char *text)
{
    char name[128];
    weft_control_name_rank(channel->control, gone, name, sizeof(name));
    if (gone == channel->members[peer]) {
        snprintf(text, TEXT_LEN, "%s closed or died", name);
    } else {
        snprintf(text, TEXT_LEN, "%s closed or died; rank %u cannot be reached", name, peer);
    }
}

/* ---- receiving ---- */

static void acknowledge(struct weft_control_channel *channel, uint32_t from, size_t len)
{
    struct weft_control *control = channel->control;
    struct weft_wire_frame frame = {.type = WEFT_WIRE_MAIL_ACK,
                                    .comm = channel->id,
                                    .src = control->self.rank,
                                    .dst = channel->members[from]};
    uint8_t bytes[4];
    put32(bytes, cost(len));
    weft_control_route(control, &frame, bytes, sizeof(bytes));
}

/* false: too long, and the message stays. */
static bool hand_to(struct mail_op *op, const uint8_t *data, size_t len)
{
    char text[TEXT_LEN];
    if (len > op->len) {
        snprintf(text, sizeof(text),
                 "the message from rank %u with tag %u has %zu bytes, the buffer %zu", op->peer,
                 op->tag, len, op->len);
        weft_control_op_done(&op->op, WEFT_ERR_TRUNCATED, text);
        return false;
    }
    if (len > 0) {
        memcpy(op->buffer, data, len);
    }
    op->len = len;
    return true;
}

static struct message *find_message(struct weft_control_channel *channel, uint32_t from,
                                    uint32_t tag)
{
    for (struct weft_list *node = channel->inbox.next; node != &channel->inbox; node = node->next) {
        struct message *message = WEFT_CONTAINER_OF(node, struct message, node);
        if (message->from == from && message->tag == tag) {
            return message;
        }
    }
    return NULL;
}

static void run_recv(struct mail_op *op)
{
    struct weft_control_channel *channel = op->op.channel;
    struct message *message = find_message(channel, op->peer, op->tag);
    char text[TEXT_LEN];
    uint32_t gone;
    if (message == NULL) {
        if (weft_control_is_cut(channel->control, channel->members[op->peer], &gone)) {
            cut_text(channel, op->peer, gone, text);
            weft_control_op_done(&op->op, WEFT_ERR_PEER, text);
        } else {
            weft_list_append(&channel->mail_ops, &op->op.node);
        }
        return;
    }
    if (hand_to(op, message->data, message->len)) {
        weft_list_remove(&message->node);
        acknowledge(channel, message->from, message->len);
        free(message);
        weft_control_op_done(&op->op, WEFT_OK, "");
    }
}

static void keep_message(struct weft_control_channel *channel, uint32_t from,
                         const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct message *message = malloc(sizeof(*message) + frame->len);
    if (message == NULL) {
        struct weft_wire_notice notice = {.status = WEFT_ERR_MEMORY,
                                          .rank = channel->members[channel->rank],
                                          .text = "no memory for a control message"};
        weft_control_report_own(channel->control, channel->id, &notice);
        return;
    }
    message->from = from;
    message->tag = frame->number;
    message->len = frame->len;
    if (frame->len > 0) {
        memcpy(message->data, payload, frame->len);
    }
    weft_list_append(&channel->inbox, &message->node);
}

static void take_mail(struct weft_control_channel *channel, uint32_t from,
                      const struct weft_wire_frame *frame, const uint8_t *payload)
{
    for (struct weft_list *node = channel->mail_ops.next; node != &channel->mail_ops;
         node = node->next) {
        struct mail_op *op = WEFT_CONTAINER_OF(node, struct mail_op, op.node);
        if (op->is_send || op->peer != from || op->tag != frame->number) {
            continue;
        }
        weft_list_remove(&op->op.node);
        if (hand_to(op, payload, frame->len)) {
            acknowledge(channel, from, frame->len);
            weft_control_op_done(&op->op, WEFT_OK, "");
        } else {
            keep_message(channel, from, frame, payload);
        }
        return;
    }
    keep_message(channel, from, frame, payload);
}

/* ---- sending ---- */

static bool has_room(const struct weft_control_channel *channel, const struct mail_op *op)
{
    uint32_t unreceived = channel->unreceived[op->peer];
    return unreceived == 0 || unreceived + cost(op->len) <= WINDOW;
}

static void send_now(struct mail_op *op)
{
    struct weft_control_channel *channel = op->op.channel;
    struct weft_control *control = channel->control;
    struct weft_wire_frame frame = {.type = WEFT_WIRE_MAIL,
                                    .comm = channel->id,
                                    .src = control->self.rank,
                                    .dst = channel->members[op->peer],
                                    .number = op->tag};
    char text[TEXT_LEN];
    uint32_t gone;
    if (weft_control_is_cut(control, frame.dst, &gone)) {
        cut_text(channel, op->peer, gone, text);
        weft_control_op_done(&op->op, WEFT_ERR_PEER, text);
        return;
    }
    channel->unreceived[op->peer] += cost(op->len);
    weft_control_route(control, &frame, op->data, op->len);
    weft_control_op_done(&op->op, WEFT_OK, "");
}

static void run_send(struct mail_op *op)
{
    struct weft_control_channel *channel = op->op.channel;
    if (channel->unreceived == NULL) {
        channel->unreceived = calloc(channel->count, sizeof(*channel->unreceived));
    }
    if (channel->unreceived == NULL) {
        weft_control_op_done(&op->op, WEFT_ERR_MEMORY, "no memory for a control message");
    } else if (has_room(channel, op)) {
        send_now(op);
    } else {
        weft_list_append(&channel->mail_ops, &op->op.node);
    }
}

static void take_ack(struct weft_control_channel *channel, uint32_t from,
                     const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_list *node = channel->mail_ops.next;
    uint32_t received = frame->len == 4 ? get32(payload) : 0;
    if (channel->unreceived == NULL || received > channel->unreceived[from]) {
        return;
    }
    channel->unreceived[from] -= received;
    while (node != &channel->mail_ops) {
        struct mail_op *op = WEFT_CONTAINER_OF(node, struct mail_op, op.node);
        node = node->next;
        if (op->is_send && op->peer == from && has_room(channel, op)) {
            weft_list_remove(&op->op.node);
            send_now(op);
        }
    }
}

void weft_control_mail_arrived(struct weft_control_channel *channel,
                               const struct weft_wire_frame *frame, const uint8_t *payload)
{
    uint32_t from;
    if (atomic_load(&channel->ended) != 0 ||
        !weft_control_channel_is_member(channel, frame->src, &from)) {
        return;
    }
    if (frame->type == WEFT_WIRE_MAIL && frame->len <= WEFT_CONTROL_MAX) {
        take_mail(channel, from, frame, payload);
    } else if (frame->type == WEFT_WIRE_MAIL_ACK) {
        take_ack(channel, from, frame, payload);
    }
}

/* ---- ending ---- */

void weft_control_mail_end(struct weft_control_channel *channel, weft_status_t status,
                           const char *text)
{
    while (!weft_list_is_empty(&channel->mail_ops)) {
        struct weft_list *node = channel->mail_ops.next;
        weft_list_remove(node);
        weft_control_op_done(WEFT_CONTAINER_OF(node, struct weft_control_op, node), status, text);
    }
}

void weft_control_mail_cut(struct weft_control_channel *channel)
{
    struct weft_list *node = channel->mail_ops.next;
    while (node != &channel->mail_ops) {
        struct mail_op *op = WEFT_CONTAINER_OF(node, struct mail_op, op.node);
        char text[TEXT_LEN];
        uint32_t gone;
        node = node->next;
        if (weft_control_is_cut(channel->control, channel->members[op->peer], &gone)) {
            weft_list_remove(&op->op.node);
            cut_text(channel, op->peer, gone, text);
            weft_control_op_done(&op->op, WEFT_ERR_PEER, text);
        }
    }
}

void weft_control_mail_close(struct weft_control_channel *channel)
{
    struct weft_list *node;
    while ((node = weft_list_take(&channel->inbox)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct message, node));
    }
}

/* ---- the caller ---- */

static void run_mail(struct weft_engine_task *task)
{
    struct mail_op *op = WEFT_CONTAINER_OF(task, struct mail_op, op.task);
    struct weft_control_channel *channel = op->op.channel;
    if (atomic_load(&channel->ended) != 0) {
        weft_control_op_done(&op->op, (weft_status_t)atomic_load(&channel->ended), channel->text);
    } else if (op->is_send) {
        run_send(op);
    } else {
        run_recv(op);
    }
}

/* An operation's deadline ends its communicator. */
static uint64_t give_up(struct weft_control_op *waiting)
{
    struct mail_op *op = WEFT_CONTAINER_OF(waiting, struct mail_op, op);
    struct weft_control_channel *channel = waiting->channel;
    struct weft_wire_notice notice = {.status = WEFT_ERR_TIMEOUT,
                                      .rank = channel->members[op->peer]};
    char name[128];
    weft_control_name_rank(channel->control, notice.rank, name, sizeof(name));
    snprintf(notice.text, sizeof(notice.text),
             "rank %u waited in vain for %s to %s a message with tag %u",
             channel->control->self.rank, name, op->is_send ? "receive" : "send", op->tag);
    memcpy(waiting->text, notice.text, sizeof(waiting->text));
    waiting->blamed = notice.rank;
    weft_control_report_own(channel->control, channel->id, &notice);
    return 0;
}

weft_status_t weft_control_mail_send(struct weft_control_channel *channel, uint32_t to,
                                     uint32_t tag, const void *data, size_t len,
                                     uint64_t timeout_ms)
{
    struct mail_op op = {.op = {.task = {.run = run_mail}, .channel = channel},
                         .is_send = true,
                         .peer = to,
                         .tag = tag,
                         .data = data,
                         .len = len};
    weft_list_open(&op.op.node);
    return weft_control_op_run(&op.op, timeout_ms, give_up);
}

weft_status_t weft_control_mail_recv(struct weft_control_channel *channel, uint32_t from,
                                     uint32_t tag, void *data, size_t room, size_t *len_p,
                                     uint64_t timeout_ms)
{
    struct mail_op op = {.op = {.task = {.run = run_mail}, .channel = channel},
                         .peer = from,
                         .tag = tag,
                         .buffer = data,
                         .len = room};
    weft_status_t status;
    weft_list_open(&op.op.node);
    status = weft_control_op_run(&op.op, timeout_ms, give_up);
    if (status == WEFT_OK && len_p != NULL) {
        *len_p = op.len;
    }
    return status;
}
