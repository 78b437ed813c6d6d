/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on their way out.
 *
 *   eager      EAGER ->                            done when the link has taken it
 *   announced  ANNOUNCE ->  <- GRANT  CHUNK… ->  <- DONE
 *   hinted     ANNOUNCE (FOLLOWS) CHUNK… ->      <- DONE
 *   pulled     ANNOUNCE ->  (the receiver copies)  <- DONE
 *
 * A hint says that a long receive is posted; it is only a promise of speed: when it was wrong, the
 * receiver lets the chunks go by and grants them again, as pass 1.
 */
#include "p2p/internal.h"

#include <stdio.h>
#include <string.h>

/* ---- hints ---- */

void weft_p2p_hint_arrived(struct weft_p2p_comm *comm, uint32_t source,
                           const struct weft_wire_data *frame)
{
    struct weft_p2p_member *member = &comm->states[source];
    struct weft_p2p_hint *empty = NULL;
    /* Something that went out since may have taken that receive already. */
    if ((int32_t)(member->unhinted - frame->seq) > 0) {
        return;
    }
    for (int i = 0; i < WEFT_P2P_HINTS; i++) {
        struct weft_p2p_hint *hint = &member->hints[i];
        if (hint->count > 0 && hint->tag == frame->tag) {
            hint->count++;
            member->hinted++;
            return;
        }
        if (hint->count == 0) {
            empty = hint;
        }
    }
    if (empty != NULL) {
        *empty = (struct weft_p2p_hint){.tag = frame->tag, .count = 1};
        member->hinted++;
    }
}

/* An envelope goes out: was its receive announced? */
bool weft_p2p_hint_take(struct weft_p2p_member *member, uint32_t tag)
{
    for (int i = 0; i < WEFT_P2P_HINTS; i++) {
        if (member->hints[i].count > 0 && member->hints[i].tag == tag) {
            member->hints[i].count--;
            member->hinted--;
            return true;
        }
    }
    return false;
}

/* ---- envelopes ---- */

static enum weft_p2p_step send_eager(struct weft_request *request, struct weft_p2p_member *member)
{
    struct weft_p2p_peer *peer = request->peer;
    struct weft_wire_data frame = {.type = WEFT_DATA_EAGER,
                                   .comm = request->comm->id,
                                   .tag = request->tag,
                                   .seq = member->sent + 1};
    const struct weft_slice slice = {.data = request->data, .len = request->len};
    enum weft_post how = weft_link_send(&peer->link, &frame, &slice, request);
    if (how == WEFT_POST_FULL) {
        return STEP_FULL;
    }
    member->sent++;
    if (!weft_p2p_hint_take(member, request->tag)) {
        member->unhinted = member->sent;
    }
    weft_link_spend(&peer->link, request->len);
    request->moved = request->len;
    request->lent = how == WEFT_POST_LENT;
    if (how == WEFT_POST_LENT) {
        weft_p2p_request_list(request);
    }
    weft_p2p_request_end(request, WEFT_OK, "");
    return STEP_TAKEN;
}

/* Where the receiver could read it by itself; false: nowhere. */
static bool find_source(struct weft_request *request, struct weft_p2p_source *source_p)
{
    struct weft_lane *lane = request->peer->link.lane;
    struct weft_mem_place place;
    *source_p = (struct weft_p2p_source){0};
    if ((lane->caps & WEFT_LANE_MAPS) == 0) {
        return false; /* the guard must be seen too */
    }
    if (weft_mem_find(request->data, request->len, &place) &&
        lane->ops->share(lane, &place) == WEFT_OK) {
        source_p->region = place.id;
        source_p->offset = place.offset;
    }
    if ((lane->caps & WEFT_LANE_PULLS) != 0 && request->comm->p2p->may_pull) {
        source_p->address = (uint64_t)(uintptr_t)request->data;
    }
    return (source_p->region != 0 || source_p->address != 0) &&
           weft_p2p_guard_take(request, lane, source_p);
}

static enum weft_p2p_step announce(struct weft_request *request, struct weft_p2p_member *member)
{
    struct weft_p2p_peer *peer = request->peer;
    struct weft_wire_data frame = {.type = WEFT_DATA_ANNOUNCE,
                                   .comm = request->comm->id,
                                   .tag = request->tag,
                                   .seq = member->sent + 1,
                                   .b = request->len};
    struct weft_p2p_source source;
    struct weft_slice slice = {.data = &source, .len = sizeof(source)};
    bool is_hinted;
    if (peer->link.state != WEFT_LINK_UP) {
        weft_link_want(&peer->link); /* OPENED lets it go on */
        return STEP_FULL;
    }
    if (!find_source(request, &source)) {
        slice.len = 0;
    }
    is_hinted = weft_p2p_hint_take(member, request->tag);
    frame.a = weft_p2p_next_id(peer);
    /* Over several lanes its chunks could be there first. */
    frame.flags =
        is_hinted && slice.len == 0 && weft_link_keeps_order(&peer->link) ? WEFT_DATA_FOLLOWS : 0;
    if (weft_link_send(&peer->link, &frame, &slice, NULL) == WEFT_POST_FULL) {
        if (request->guard != 0) {
            weft_p2p_guard_give(request);
        }
        if (is_hinted) {
            weft_p2p_hint_arrived(request->comm, request->rank, &frame); /* put back */
        }
        return STEP_FULL;
    }
    peer->next_id = (uint32_t)frame.a;
    member->sent++;
    if (!is_hinted) {
        member->unhinted = member->sent;
    }
    request->id = peer->next_id;
    weft_list_remove(&request->node);
    weft_list_append(&peer->sends, &request->node);
    if ((frame.flags & WEFT_DATA_FOLLOWS) != 0) {
        weft_p2p_stream_start(request, 0);
    }
    return STEP_BEGUN;
}

enum weft_p2p_step weft_p2p_send_advance(struct weft_request *request)
{
    struct weft_p2p_member *member = &request->comm->states[request->rank];
    if (request->len <= request->comm->p2p->eager &&
        weft_link_has_credit(&request->peer->link, request->len)) {
        return send_eager(request, member);
    }
    return announce(request, member);
}

void weft_p2p_send_begin(struct weft_request *request)
{
    struct weft_p2p_comm *comm = request->comm;
    struct weft_p2p_peer *peer;
    enum weft_p2p_step step;
    if (request->rank == comm->rank) {
        weft_p2p_self_arrived(request);
        return;
    }
    peer = weft_p2p_comm_peer(comm, request->rank);
    if (peer == NULL) {
        weft_p2p_request_end(request, WEFT_ERR_MEMORY, "");
        return;
    }
    request->peer = peer;
    if (weft_p2p_end_if_gone(request)) {
        return;
    }
    step = weft_list_is_empty(&peer->waiting) ? weft_p2p_send_advance(request) : STEP_FULL;
    if (step == STEP_TAKEN) {
        return;
    }
    if (step == STEP_FULL) {
        weft_list_append(&peer->waiting, &request->node);
    }
    weft_p2p_request_list(request);
    if (!weft_list_is_empty(&peer->streams)) {
        weft_p2p_pump(peer);
    }
    /* A lane that was lost just now: the control plane may know why, and says so soon. */
    if (peer->link.state == WEFT_LINK_DOWN && weft_list_is_empty(&peer->grace.node)) {
        weft_p2p_peer_fail(peer, peer->link.status, peer->link.text);
    }
}

/* ---- chunks ---- */

void weft_p2p_stream_start(struct weft_request *request, uint32_t pass)
{
    request->pass = pass;
    request->moved = 0;
    if (weft_list_is_empty(&request->stream)) {
        weft_list_append(&request->peer->streams, &request->stream);
    }
}

bool weft_p2p_stream_advance(struct weft_request *request)
{
    struct weft_p2p_peer *peer = request->peer;
    bool is_send = request->kind == REQUEST_SEND;
    size_t left = request->len - request->moved;
    size_t most = weft_link_chunk_max(&peer->link);
    size_t len = left < most ? left : most;
    struct weft_wire_data frame = {.type = is_send ? WEFT_DATA_CHUNK : WEFT_DATA_PART,
                                   .comm = request->comm->id,
                                   .tag = request->pass,
                                   .a = request->id,
                                   .b = request->moved,
                                   .c = is_send ? 0 : request->offset};
    const struct weft_slice slice = {.data = request->data + request->moved, .len = len};
    enum weft_post how = weft_link_stream(&peer->link, &frame, &slice, request);
    if (how == WEFT_POST_FULL) {
        return false;
    }
    request->moved += len;
    if (how == WEFT_POST_LENT) {
        request->lent++;
        peer->lent++;
    }
    if (request->moved == request->len) {
        weft_list_remove(&request->stream);
        if (!is_send) { /* a send waits for DONE */
            weft_p2p_request_end(request, WEFT_OK, "");
        }
    } else if (request->moved % WEFT_P2P_TURN < len) { /* others have their turn */
        weft_list_remove(&request->stream);
        weft_list_append(&peer->streams, &request->stream);
    }
    return true;
}

void weft_p2p_sent(struct weft_p2p_peer *peer, struct weft_request *request)
{
    bool is_stream = request->id != 0 || request->kind != REQUEST_SEND;
    request->lent--;
    if (is_stream) {
        peer->lent--;
    }
    weft_p2p_request_settle(request);
    if (is_stream) {
        weft_p2p_pump(peer);
    }
}

static struct weft_request *find_send(struct weft_p2p_peer *peer, uint64_t id)
{
    for (struct weft_list *node = peer->sends.next; node != &peer->sends; node = node->next) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, node);
        if (request->id == id) {
            return request;
        }
    }
    return NULL;
}

void weft_p2p_grant_arrived(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    struct weft_request *request = find_send(peer, frame->a);
    if (request != NULL && !request->is_ended) {
        weft_p2p_stream_start(request, 1);
        weft_p2p_pump(peer);
    }
}

void weft_p2p_done_arrived(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    struct weft_request *request = find_send(peer, frame->a);
    char name[128], text[WEFT_P2P_TEXT];
    if (request == NULL) {
        return;
    }
    weft_list_remove(&request->node);
    weft_list_remove(&request->stream);
    weft_p2p_take_back(
        request, frame->b == WEFT_OK); /* all of it is there: copies on their way are not needed */
    if (frame->b == WEFT_OK) {
        weft_p2p_request_end(request, WEFT_OK, "");
        return;
    }
    weft_p2p_name(request->comm, request->rank, name, sizeof(name));
    snprintf(text, sizeof(text),
             "%s closed the communicator without receiving a message of %zu bytes", name,
             request->len);
    weft_p2p_request_end(request, WEFT_ERR_PEER, text);
}
