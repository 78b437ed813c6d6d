/* SPDX-License-Identifier: Apache-2.0 */
/* What lanes report, made into what links report: duplicates go, acknowledgements are taken, a lane's end is
 * the link's only when no other is left. */
#include "link/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TELL_FRAMES 32

/* ---- frames ---- */

/* What waits for room may go on. */
static void note_room(struct weft_link *link)
{
    bool has_replay = link->bundle != NULL && !weft_list_is_empty(&link->bundle->replay);
    if ((link->wants_room || has_replay) && weft_list_is_empty(&link->roomy)) {
        weft_list_append(&link->links->roomy, &link->roomy);
    }
}

static void sink_stale(struct weft_lane *lane)
{
    const struct weft_slice sink = {0};
    weft_slot_of(lane)->is_stale = true;
    lane->ops->place(lane, &sink);
}

/* The former lane of an envelope brings the rest of it for nobody. If it is not reported yet, it is as if it had
 * not come: its copy will be the first. */
static void make_stale(struct weft_link *link)
{
    struct weft_bundle *bundle = link->bundle;
    struct weft_lane *former = bundle->slots[link->peer_lead].lane;
    if (link->placed_lane != NULL) {
        sink_stale(link->placed_lane);
        link->placed_lane = NULL;
    } else if (former != NULL && !bundle->slots[link->peer_lead].is_placing &&
               weft_links_withdraw(link->links, former)) {
        sink_stale(former);
    }
}

/* Numbered frames come by this lane from now on. */
static void take_lead(struct weft_link *link, const struct weft_done *done)
{
    if ((int32_t)(done->frame.seq - link->peer_lead_count) > 0) {
        make_stale(link); /* a copy of what is on its way follows */
        link->peer_lead_count = done->frame.seq;
        link->peer_lead = done->lane->slot;
        link->bundle->told_count = (uint32_t)done->frame.b;
        weft_bundle_told_slow(link->bundle, (uint32_t)done->frame.c);
    }
}

static void take_ack(struct weft_link *link, const struct weft_done *done)
{
    const struct weft_wire_data *frame = &done->frame;
    if ((int32_t)(frame->ack - link->acked) > 0 && (int32_t)(frame->ack - link->sent) <= 0 &&
        link->keep != NULL) {
        weft_link_keep_acked(link, frame->ack);
        note_room(link);
    }
    if ((frame->type == WEFT_DATA_EAGER || frame->type == WEFT_DATA_ACK) &&
        frame->a > link->eager_freed && frame->a <= link->eager_sent) {
        link->eager_freed = frame->a;
    }
    if (frame->type == WEFT_DATA_ACK && link->bundle != NULL) {
        if ((frame->flags & WEFT_DATA_SLOT) != 0) {
            weft_chunks_acked(link->bundle, frame);
        } else if ((frame->flags & WEFT_DATA_DOWN) != 0) {
            weft_bundle_told_down(link->bundle, frame);
        } else if ((frame->flags & WEFT_DATA_REST) != 0) {
            weft_bundle_told_rest(link->bundle, frame);
        } else if ((frame->flags & WEFT_DATA_END) != 0) {
            link->is_ended = true;
        } else if ((frame->flags & WEFT_DATA_LEAD) != 0) {
            take_lead(link, done);
        }
        note_room(link);
    }
}

static void note_received(struct weft_link *link, const struct weft_wire_data *frame)
{
    if (frame->number == 0) {
        return;
    }
    link->received = frame->number;
    weft_bundle_watch(link->bundle); /* it is told within a tick, if not before */
    link->untold_len += frame->len + WEFT_WIRE_DATA_LEN;
    if (frame->type == WEFT_DATA_BYE && link->bundle != NULL) {
        weft_chunks_tell_again(link->bundle); /* who closes waits for it */
    }
    if (link->received - link->told >= TELL_FRAMES || link->untold_len >= link->links->tell_len ||
        frame->type == WEFT_DATA_BYE) {
        weft_link_tell(link);
    }
}

static void protocol_error(struct weft_done *done, const char *text)
{
    done->kind = WEFT_DONE_LOST;
    done->status = WEFT_ERR_PROTOCOL;
    done->text = text;
}

/* A copy of the envelope that is on its way into memory goes to the same place. */
static bool take_copy(struct weft_link *link, struct weft_done *done)
{
    if (done->kind == WEFT_DONE_HEADER) {
        link->placed_lane = done->lane;
        done->lane->ops->place(done->lane, &link->placed);
        return false;
    }
    if (link->placed.data != NULL && done->frame.len == link->placed.len && done->frame.len > 0) {
        memcpy(link->placed.data, done->payload, done->frame.len);
    }
    link->placed_number = 0;
    done->kind = WEFT_DONE_LANDED;
    note_received(link, &done->frame);
    return true;
}

/* Numbers come without gaps; what has been here before goes to the sink. false: nothing for the user of the
 * link. done may be a LOST afterwards. */
static bool check_number(struct weft_link *link, struct weft_done *done)
{
    static const struct weft_slice sink = {0};
    int32_t ahead = (int32_t)(done->frame.number - link->received);
    bool is_by_lead = done->lane->slot == link->peer_lead && link->peer_lead_count != 0;
    if (done->frame.number == 0) {
        return true;
    }
    if (ahead == 1 && is_by_lead) {
        return link->placed_number != done->frame.number || take_copy(link, done);
    }
    if (ahead > 1 && is_by_lead) {
        protocol_error(done, "left out a frame");
        return true;
    }
    if (done->kind == WEFT_DONE_HEADER) {
        weft_slot_of(done->lane)->is_stale = true;
        done->lane->ops->place(done->lane, &sink);
    }
    if (is_by_lead) {
        weft_link_tell(link); /* it went again because our word was lost */
    }
    return false;
}

static bool envelope_landed(struct weft_link *link, const struct weft_done *done)
{
    struct weft_slot *slot = weft_slot_of(done->lane);
    if (slot->is_stale) {
        slot->is_stale = false;
        return false;
    }
    link->placed_number = 0;
    link->placed_lane = NULL;
    note_received(link, &done->frame);
    return true;
}

/* ---- lanes ---- */

static bool attach(struct weft_link *link, struct weft_lane *lane)
{
    if ((lane->caps & WEFT_LANE_SURE) == 0) {
        return (link->lane == NULL || (link->lane->caps & WEFT_LANE_SURE) == 0) &&
               (link->bundle != NULL || weft_bundle_open(link) == WEFT_OK) &&
               weft_bundle_opened(link->bundle, lane);
    }
    if (link->bundle != NULL || (link->lane != NULL && link->lane != lane)) {
        return false;
    }
    lane->owner = link;
    link->lane = lane;
    link->state = WEFT_LINK_UP;
    weft_log(link, INFO, "rank %u by %s (%s)", link->peer, lane->ops->name, lane->peer_text);
    weft_link_keep_flush(link);
    return true;
}

/* The link has failed while its lane was dialled: it is not the slot's any more, which would close it, too. */
static void let_go(struct weft_link *link, struct weft_lane *lane)
{
    if (lane->owner == NULL) {
        return; /* nobody's yet */
    }
    if ((lane->caps & WEFT_LANE_SURE) != 0) {
        link->lane = NULL;
    } else if (weft_slot_of(lane)->lane == lane) {
        weft_bundle_leave(link->bundle, weft_slot_of(lane));
        weft_slot_retry_later(weft_slot_of(lane));
    }
}

static bool lane_opened(struct weft_links *links, struct weft_done *done)
{
    struct weft_lane *lane = done->lane;
    struct weft_link *link =
        lane->owner != NULL ? lane->owner : links->spec.find(links->spec.context, lane->peer);
    if (link != NULL && link->state == WEFT_LINK_DOWN) {
        let_go(link, lane);
        link = NULL;
    }
    if (link == NULL || !attach(link, lane)) {
        weft_link_refuse(links, lane); /* not wanted (any more) */
        return false;
    }
    done->owner = link;
    link->wants_room = false; /* OPENED says it too */
    return true;
}

/* Every way is over: the user of the link hears it, and closes the link. */
static bool link_lost(struct weft_link *link, const struct weft_done *done)
{
    weft_link_fail(link, done->status, done->text);
    return true;
}

/* It is of no use to dial again. Not so where the path went, or this rank gave the lane up for reasons of its own:
 * memory of one message was wanted back, or there was none. What the link carries for others goes again. */
static bool is_damage(weft_status_t status)
{
    return status != WEFT_ERR_PEER && status != WEFT_ERR_NETWORK && status != WEFT_ERR_ABORTED &&
           status != WEFT_ERR_MEMORY && status != WEFT_ERR_SYSTEM;
}

static bool tcp_lost(struct weft_link *link, struct weft_done *done)
{
    struct weft_bundle *bundle = link->bundle;
    struct weft_slot *slot = weft_slot_of(done->lane);
    bool was_up = link->state == WEFT_LINK_UP;
    bool is_last;
    if (slot->lane != done->lane) {
        return false;
    }
    is_last = weft_bundle_lost(bundle, slot, done->text);
    weft_link_refuse(link->links, done->lane);
    if (is_damage(done->status) || (is_last && (link->is_ended || !link->was_up))) {
        link_lost(link, done);
        if (!was_up && !link->is_ended) {
            weft_link_give_up(link);
        }
        return true;
    }
    return false;
}

static bool shm_lost(struct weft_link *link, struct weft_done *done)
{
    struct weft_lane *lane = done->lane;
    if (link->state != WEFT_LINK_CALLING) {
        return link_lost(link, done);
    }
    link->lane = NULL;
    weft_link_fail(link, done->status, done->text);
    if (weft_link_try_elsewhere(link)) {
        weft_link_refuse(link->links, lane);
        return false;
    }
    weft_link_give_up(link);
    link->lane = lane;
    return true;
}

static bool lane_lost(struct weft_done *done)
{
    struct weft_link *link = done->lane->owner;
    return (done->lane->caps & WEFT_LANE_SURE) != 0 ? shm_lost(link, done) : tcp_lost(link, done);
}

/* ---- the poll ---- */

/* Of a lane that was refused, in this poll or before anybody knew it. */
static bool drop(struct weft_links *links, const struct weft_done *done)
{
    struct weft_lane *lane = done->lane;
    bool is_refused = false;
    for (struct weft_lane *other = links->refused; other != NULL; other = other->next_refused) {
        is_refused |= other == lane;
    }
    if (done->kind == WEFT_DONE_ARRIVED && done->token != 0) {
        lane->ops->release(lane, done->token);
    } else if (done->kind == WEFT_DONE_LOST && !is_refused) {
        weft_link_refuse(links, lane);
    }
    return false;
}

static bool filter_sure(struct weft_link *link, struct weft_done *done)
{
    switch (done->kind) {
    case WEFT_DONE_ARRIVED:
        take_ack(link, done);
        return done->frame.type != WEFT_DATA_ACK || done->token != 0;
    case WEFT_DONE_HEADER:
        take_ack(link, done);
        return true;
    case WEFT_DONE_SENT:
        return done->cookie != NULL;
    default:
        return true;
    }
}

static bool filter_frame(struct weft_link *link, struct weft_done *done)
{
    bool is_bulk = weft_wire_data_is_bulk(&done->frame);
    take_ack(link, done);
    if (done->lane->owner == NULL) {
        return false; /* the peer has just given it up */
    }
    if (is_bulk) {
        return weft_chunk_arriving(link->bundle, done);
    }
    if (!check_number(link, done)) {
        return false;
    }
    if (done->kind == WEFT_DONE_LOST) {
        return lane_lost(done);
    }
    if (done->kind == WEFT_DONE_ARRIVED) {
        note_received(link, &done->frame);
    } else if (done->kind == WEFT_DONE_HEADER) {
        weft_slot_of(done->lane)->is_asked = true;
    }
    return done->frame.type != WEFT_DATA_ACK;
}

static bool filter_tcp(struct weft_link *link, struct weft_done *done)
{
    if (done->kind != WEFT_DONE_SENT) {
        link->bundle->mute_ns = 0; /* it can be heard */
    }
    switch (done->kind) {
    case WEFT_DONE_ARRIVED:
    case WEFT_DONE_HEADER:
        return filter_frame(link, done);
    case WEFT_DONE_LANDED:
        return weft_wire_data_is_bulk(&done->frame) ? weft_chunk_landed(link->bundle, done)
                                                    : envelope_landed(link, done);
    default:
        return false; /* SENT: its acknowledgement counts */
    }
}

bool weft_link_writable(struct weft_link *link)
{
    if (link->state != WEFT_LINK_UP) {
        return false;
    }
    if (link->owes_ack) {
        weft_link_tell(link);
    }
    if (!weft_link_keep_flush(link) ||
        (link->bundle != NULL && !weft_chunks_replay(link->bundle)) || !link->wants_room) {
        return false;
    }
    link->wants_room = false;
    return true;
}

/* false: nothing for the user of the link */
static bool filter(struct weft_links *links, struct weft_done *done)
{
    struct weft_link *link = done->lane->owner;
    if (done->kind == WEFT_DONE_OPENED) {
        return lane_opened(links, done);
    }
    if (link == NULL) {
        return drop(links, done);
    }
    done->owner = link;
    if (done->kind == WEFT_DONE_WRITABLE) {
        return weft_link_writable(link);
    }
    if (done->kind == WEFT_DONE_LOST) {
        return lane_lost(done);
    }
    return link->bundle == NULL ? filter_sure(link, done) : filter_tcp(link, done);
}

/* Behind what the batch holds already there are `count` more. */
void weft_links_filter(struct weft_links *links, unsigned count)
{
    struct weft_done *done = links->batch + links->batch_count;
    for (unsigned i = 0; i < count; i++) {
        if (filter(links, &done[i])) {
            if (&links->batch[links->batch_count] != &done[i]) {
                links->batch[links->batch_count] = done[i];
            }
            links->batch_count++;
        }
    }
}
