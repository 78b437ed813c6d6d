/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between neighbours in the tree: mine, somebody else's, or for everybody below. */
#include "control/internal.h"

#include <stdlib.h>
#include <string.h>

#define EARLY_MAX 65536

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

bool weft_control_is_cut(const struct weft_control *control, uint32_t to, uint32_t *gone_p)
{
    uint32_t at = control->self.rank;
    while (at != to) {
        at = weft_control_tree_hop(&control->tree, at, to);
        if (control->is_gone[at]) {
            *gone_p = at;
            return true;
        }
    }
    return false;
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
    conn = weft_control_conn_to(
        control, weft_control_tree_hop(&control->tree, control->self.rank, frame->dst));
    return conn != NULL && weft_control_say(conn, frame, payload, len) == WEFT_OK;
}

void weft_control_flood(struct weft_control *control, struct weft_wire_frame *frame,
                        const void *payload, size_t len)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn != NULL) {
            weft_control_say(control->children[i].conn, frame, payload, len);
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
    } else {
        weft_count(weft_engine_counters(control->engine), WEFT_COUNTER_FORWARDED, 1);
        weft_control_route(control, &onward, payload, frame->len);
    }
}

void weft_control_arrived(struct weft_control *control, struct weft_net_conn *from,
                          const struct weft_wire_frame *frame, const uint8_t *payload)
{
    from->is_beating = true;
    if (frame->type != WEFT_WIRE_HEARTBEAT && frame->type != WEFT_WIRE_WAYS &&
        frame->type != WEFT_WIRE_RESUME) {
        weft_control_mend_count(from, frame);
    }
    switch (frame->type) {
    case WEFT_WIRE_HEARTBEAT:
        weft_control_mend_acked(from, frame->number);
        break;
    case WEFT_WIRE_WAYS:
        weft_control_ways_arrived(control, from, frame, payload);
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
        weft_control_notice_arrived(control, frame, payload);
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
            weft_control_channel_end(channel, notice.status, notice.text);
        }
    } else {
        weft_control_mail_arrived(channel, frame, payload);
    }
}

static void keep_early(struct weft_control *control, const struct weft_wire_frame *frame,
                       const uint8_t *payload)
{
    struct early_frame *early = NULL;
    for (size_t i = 0; i < WEFT_COUNT_OF(control->ended); i++) {
        if (control->ended[i] == frame->comm) {
            weft_count(weft_engine_counters(control->engine), WEFT_COUNTER_SUNK, 1);
            return;
        }
    }
    if (control->early_count < EARLY_MAX) {
        early = malloc(sizeof(*early) + frame->len);
    }
    if (early == NULL) {
        weft_log(control, ERROR, "a frame from rank %u for a communicator not known here is lost",
                 frame->src);
        return;
    }
    early->frame = *frame;
    if (frame->len > 0) {
        memcpy(early->payload, payload, frame->len);
    }
    weft_list_append(&control->early, &early->node);
    control->early_count++;
}

void weft_control_deliver(struct weft_control *control, const struct weft_wire_frame *frame,
                          const uint8_t *payload)
{
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        struct weft_control_channel *channel =
            WEFT_CONTAINER_OF(node, struct weft_control_channel, node);
        if (channel->id == frame->comm) {
            hand_over(channel, frame, payload);
            return;
        }
    }
    keep_early(control, frame, payload);
}

void weft_control_deliver_early(struct weft_control *control, struct weft_control_channel *channel)
{
    struct weft_list *node = control->early.next;
    while (node != &control->early) {
        struct early_frame *early = WEFT_CONTAINER_OF(node, struct early_frame, node);
        node = node->next;
        if (early->frame.comm == channel->id) {
            weft_list_remove(&early->node);
            control->early_count--;
            hand_over(channel, &early->frame, early->payload);
            free(early);
        }
    }
}

void weft_control_early_close(struct weft_control *control)
{
    struct weft_list *node;
    while ((node = weft_list_take(&control->early)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct early_frame, node));
    }
}
