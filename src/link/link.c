/* SPDX-License-Identifier: Apache-2.0 */
/* Frames down to the lanes and events up from them, with numbers, acknowledgements and credit. */
#include "link/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_SEVERAL (512u << 10)

void weft_link_open(struct weft_links *links, uint32_t peer, struct weft_link *link)
{
    *link = (struct weft_link){.links = links, .peer = peer, .state = WEFT_LINK_IDLE};
    weft_list_open(&link->roomy);
    weft_list_open(&link->calling);
    weft_list_open(&link->broken);
}

/* So that the peer does not wait for us to come back. */
static void say_end(struct weft_link *link)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_ACK, .flags = WEFT_DATA_END};
    const struct weft_slice nothing = {0};
    if (link->state == WEFT_LINK_UP && link->keep_unsent == 0) {
        weft_link_post(link, &frame, &nothing, NULL);
    }
}

void weft_link_close(struct weft_link *link)
{
    if (link->bundle != NULL) {
        say_end(link);
        weft_bundle_close(link->bundle);
    } else if (link->lane != NULL) {
        link->lane->ops->close(link->lane);
    }
    link->lane = link->placed_lane = NULL;
    link->placed_number = 0;
    weft_list_remove(&link->roomy);
    weft_list_remove(&link->calling);
    weft_list_remove(&link->broken);
    free(link->keep);
    link->keep = NULL;
    link->state = WEFT_LINK_DOWN;
}

static bool is_sure(const struct weft_link *link)
{
    return link->bundle == NULL;
}

/* Has there been one lane so far? The next moment there may be others. */
static bool is_single(const struct weft_link *link)
{
    return is_sure(link) || link->bundle->count <= 1;
}

uint32_t weft_link_chunk_max(const struct weft_link *link)
{
    uint32_t wanted = (uint32_t)link->links->spec.port.params->number[WEFT_PARAM_CHUNK];
    if (is_sure(link)) {
        return link->lane->chunk_max;
    }
    return wanted > 0 ? wanted : is_single(link) ? WEFT_LANE_CHUNK : CHUNK_SEVERAL;
}

/* Only who dials knows how many there will be, and says it with its lead. */
bool weft_link_keeps_order(const struct weft_link *link)
{
    const struct weft_bundle *bundle = link->bundle;
    if (bundle == NULL) {
        return link->lane != NULL;
    }
    return (bundle->is_dialler ? bundle->count : bundle->told_count) == 1;
}

/* ---- down ---- */

static void note_told(struct weft_link *link, bool tells_credit)
{
    link->told = link->received;
    link->untold_len = 0;
    if (tells_credit) {
        link->eager_told = link->eager_consumed;
    }
}

/* A lane that becomes the lead says so first: whatever numbered frames the former one still brings do not
 * count from there on. */
static bool say_lead(struct weft_link *link)
{
    const struct weft_wire_data frame = {.type = WEFT_DATA_ACK,
                                         .flags = WEFT_DATA_LEAD,
                                         .seq = link->lead_count,
                                         .a = link->eager_consumed,
                                         .b = link->bundle->is_dialler ? link->bundle->count : 0,
                                         .c = weft_bundle_slow(link->bundle),
                                         .ack = link->received};
    const struct weft_slice nothing = {0};
    link->owes_lead = link->lane->ops->post(link->lane, &frame, &nothing, NULL) == WEFT_POST_FULL;
    return !link->owes_lead;
}

enum weft_post weft_link_post(struct weft_link *link, struct weft_wire_data *frame,
                              const struct weft_slice *slice, void *cookie)
{
    /* Short messages in shared memory have no room for it. */
    bool tells_credit =
        frame->type == WEFT_DATA_ACK || (frame->type == WEFT_DATA_EAGER && !is_sure(link));
    enum weft_post how;
    if (link->owes_lead && !say_lead(link)) {
        link->wants_room = true;
        return WEFT_POST_FULL;
    }
    frame->ack = link->received;
    if (tells_credit) {
        frame->a = link->eager_consumed;
    }
    how = link->lane->ops->post(link->lane, frame, slice, cookie);
    if (how == WEFT_POST_FULL) {
        link->wants_room = true;
    } else {
        note_told(link, tells_credit);
    }
    return how;
}

/* Without memory for one the link is of no use, and its user hears of it: room would never come. */
static bool has_keep(struct weft_link *link)
{
    weft_status_t status = weft_link_keep_open(link);
    if (status != WEFT_OK && link->status == WEFT_OK) {
        link->status = status;
        snprintf(link->text, sizeof(link->text), "%s", weft_error_text());
        weft_link_broke(link);
    }
    return status == WEFT_OK;
}

/* No lane yet, or others wait for it: into the keep. */
static enum weft_post put_by(struct weft_link *link, struct weft_wire_data *frame,
                             const struct weft_slice *slice)
{
    if (!has_keep(link) || !weft_link_keep_has_room(link, slice->len)) {
        link->wants_room = true;
        return WEFT_POST_FULL;
    }
    frame->number = ++link->sent;
    weft_link_keep_add(link, frame, slice, false);
    return WEFT_POST_SENT;
}

static enum weft_post send_kept(struct weft_link *link, struct weft_wire_data *frame,
                                const struct weft_slice *slice, void *cookie)
{
    enum weft_post how;
    void *kept;
    if (!has_keep(link) || !weft_link_keep_has_room(link, slice->len)) {
        link->wants_room = true;
        return WEFT_POST_FULL;
    }
    frame->number = link->sent + 1;
    how = weft_link_post(link, frame, slice, cookie);
    if (how == WEFT_POST_FULL) {
        return WEFT_POST_FULL;
    }
    kept = weft_link_keep_add(link, frame, slice, true); /* the peer is at work with it already */
    link->sent++;
    if (how == WEFT_POST_LENT) {
        link->lane->ops->relocate(link->lane, kept);
    }
    weft_bundle_watch(link->bundle);
    return WEFT_POST_SENT;
}

enum weft_post weft_link_send(struct weft_link *link, struct weft_wire_data *frame,
                              const struct weft_slice *slice, void *cookie)
{
    frame->len = (uint32_t)slice->len;
    if (link->state != WEFT_LINK_UP || link->keep_unsent > 0) {
        weft_link_want(link);
        return link->state == WEFT_LINK_DOWN ? WEFT_POST_FULL : put_by(link, frame, slice);
    }
    return is_sure(link) ? weft_link_post(link, frame, slice, cookie)
                         : send_kept(link, frame, slice, cookie);
}

enum weft_post weft_link_stream(struct weft_link *link, struct weft_wire_data *frame,
                                const struct weft_slice *slice, void *cookie)
{
    frame->len = (uint32_t)slice->len;
    frame->number = 0;
    if (link->state != WEFT_LINK_UP || link->keep_unsent > 0) {
        link->wants_room = true;
        return WEFT_POST_FULL;
    }
    return is_sure(link) ? weft_link_post(link, frame, slice, cookie)
                         : weft_chunk_send(link->bundle, frame, slice, cookie);
}

unsigned weft_link_forget(struct weft_link *link, const void *cookie, bool is_there)
{
    if (!is_sure(link)) {
        return weft_chunks_forget(link->bundle, cookie, is_there);
    }
    return link->lane != NULL ? link->lane->ops->forget(link->lane, cookie, is_there) : 0;
}

/* ---- acknowledgements and credit ---- */

void weft_link_tell(struct weft_link *link)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_ACK};
    const struct weft_slice nothing = {0};
    link->owes_ack = link->state == WEFT_LINK_UP &&
                     weft_link_post(link, &frame, &nothing, NULL) == WEFT_POST_FULL;
}

bool weft_link_is_flushed(const struct weft_link *link, uint64_t comm)
{
    return link->state == WEFT_LINK_IDLE || link->state == WEFT_LINK_DOWN ||
           (!weft_link_keep_holds(link, comm) &&
            (link->bundle == NULL || !weft_chunks_fly(link->bundle, comm)));
}

bool weft_link_reaches(struct weft_link *link, bool *is_alive_p)
{
    if (link->bundle == NULL || link->state == WEFT_LINK_DOWN || link->bundle->count < 2) {
        return false;
    }
    weft_link_tell(link); /* on the way, so that it is known when nothing gets through */
    weft_bundle_watch(link->bundle);
    *is_alive_p = weft_bundle_is_through(link->bundle);
    return true;
}

/* ---- the lead ---- */

void weft_link_set_lead(struct weft_link *link, struct weft_lane *lane)
{
    if (link->lane == lane) {
        return;
    }
    link->lane = lane;
    if (link->state == WEFT_LINK_DOWN) {
        return; /* its user has heard, or will: nothing brings it back */
    }
    if (lane == NULL) {
        link->state = WEFT_LINK_CALLING;
        return;
    }
    link->state = WEFT_LINK_UP;
    link->was_up = true;
    link->owes_lead = true;
    link->lead_count++;
    say_lead(link);
    weft_link_keep_rewind(link);
    weft_link_keep_flush(link);
    weft_chunks_tell_again(link->bundle); /* the former one may have lost our word */
    weft_link_tell(link);
}

void weft_link_broke(struct weft_link *link)
{
    if (weft_list_is_empty(&link->broken)) {
        weft_list_append(&link->links->broken, &link->broken);
    }
}

/* ---- where envelopes land ---- */

void weft_link_place(struct weft_link *link, struct weft_done const *done,
                     const struct weft_slice *slice)
{
    struct weft_lane *lane = done->lane;
    if (!is_sure(link)) {
        weft_slot_of(lane)->is_asked = false;
    }
    if (!is_sure(link) && !weft_wire_data_is_bulk(&done->frame)) {
        link->placed_number = done->frame.number;
        link->placed = *slice;
        link->placed_lane = lane;
    }
    lane->ops->place(lane, slice);
}

void weft_link_unplace_envelope(struct weft_link *link)
{
    const struct weft_slice sink = {0};
    if (is_sure(link)) {
        if (link->lane != NULL) {
            link->lane->ops->place(link->lane, &sink);
        }
        return;
    }
    link->placed = sink;
    if (link->placed_lane != NULL) {
        link->placed_lane->ops->place(link->placed_lane, &sink);
    }
}

void weft_link_unplace_slot(struct weft_link *link, uint32_t slot)
{
    const struct weft_slice sink = {0};
    struct weft_lane *lane = is_sure(link) ? link->lane : link->bundle->slots[slot].lane;
    bool is_next = !is_sure(link) && link->bundle->slots[slot].is_asked; /* that piece is through */
    if (lane != NULL && lane->is_up && !is_next) {
        lane->ops->place(lane, &sink);
    }
}
