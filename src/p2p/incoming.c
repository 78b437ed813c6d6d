/* SPDX-License-Identifier: Apache-2.0 */
/* Long messages on their way in: pulled by the receiver where it can read the sender's memory, else
 * granted and received in chunks. */
#include "p2p/internal.h"

static void tell_done(struct weft_p2p_peer *peer, uint64_t comm, uint64_t id)
{
    const struct weft_wire_data frame = {.type = WEFT_DATA_DONE, .comm = comm, .a = id};
    weft_p2p_reply(peer, &frame);
}

static void long_one_done(struct weft_request *request)
{
    struct weft_p2p_peer *peer = request->peer;
    uint64_t comm = request->comm->id;
    uint64_t id = request->id;
    weft_list_remove(&request->node);
    weft_p2p_recv_end(request);
    tell_done(peer, comm, id);
}

static void pull_next(struct weft_request *request, const struct weft_p2p_job *model);

static void grant(struct weft_request *request)
{
    struct weft_p2p_peer *peer = request->peer;
    const struct weft_wire_data frame = {
        .type = WEFT_DATA_GRANT, .comm = request->comm->id, .a = request->id};
    request->pass = 1;
    request->moved = 0;
    weft_list_remove(&request->node);
    weft_list_append(&peer->incoming, &request->node);
    weft_p2p_reply(peer, &frame);
}

static void pulled(struct weft_p2p_job *job)
{
    struct weft_request *request = job->request;
    struct weft_p2p_job model = *job;
    request->works--;
    if (request->is_ended) {
        weft_p2p_request_settle(request);
        return;
    }
    if (job->status == WEFT_ERR_ABORTED) {
        return; /* its sender has given up: so will this communicator, or the deadline ends it */
    }
    if (job->status != WEFT_OK) {
        /* Refused after all: let it be sent, and do not try again. */
        request->peer->link.lane->caps &= ~(uint32_t)WEFT_LANE_PULLS;
        weft_log(p2p, WARN, "cannot read rank %u's memory, it sends instead: %s",
                 request->peer->link.peer, weft_error_text());
        grant(request);
        return;
    }
    request->moved += job->len;
    if (request->moved == request->total) {
        long_one_done(request);
    } else {
        pull_next(request, &model);
    }
}

static void pull_next(struct weft_request *request, const struct weft_p2p_job *model)
{
    struct weft_p2p_job job = *model;
    size_t left = request->total - request->moved;
    job.from += model->len;
    job.address += model->address != 0 ? model->len : 0;
    job.to = request->data + request->moved;
    job.len = left < WEFT_P2P_PIECE ? left : WEFT_P2P_PIECE;
    job.done = pulled;
    request->works++;
    weft_p2p_copy(request->comm->p2p, &job);
}

/* true: the receiver copies by itself */
static bool begin_pull(struct weft_request *request, const struct weft_p2p_arrival *arrival)
{
    struct weft_p2p *p2p = request->comm->p2p;
    struct weft_lane *lane = request->peer->link.lane;
    const struct weft_p2p_source *source = &arrival->source;
    struct weft_p2p_job job = {
        .request = request, .peer = request->peer, .how = weft_p2p_copy_kind(arrival->len)};
    void *memory;
    if (request->peer->link.state != WEFT_LINK_UP) {
        return false;
    }
    if ((source->region == 0 && source->address == 0) || (lane->caps & WEFT_LANE_MAPS) == 0 ||
        lane->ops->map(lane, source->guard_region, source->guard * sizeof(uint64_t),
                       sizeof(uint64_t), &memory) != WEFT_OK) {
        return false;
    }
    job.guard = memory;
    job.guard_value = source->guard_value;
    if (source->region != 0 &&
        lane->ops->map(lane, source->region, source->offset, arrival->len, &memory) == WEFT_OK) {
        job.from = memory;
    } else if (source->address != 0 && (lane->caps & WEFT_LANE_PULLS) != 0 && p2p->may_pull) {
        job.address = source->address;
        job.lane = lane;
    } else {
        return false;
    }
    weft_list_remove(&request->node);
    weft_list_append(&request->peer->incoming, &request->node);
    request->pass = UINT32_MAX; /* no chunk is ours */
    pull_next(request, &job);
    return true;
}

/* Receive and announcement have met. */
void weft_p2p_begin_long(struct weft_request *request, const struct weft_p2p_arrival *arrival)
{
    request->peer = arrival->peer;
    request->id = arrival->id;
    if (!request->peer->is_gone &&
        (arrival->len > request->len || arrival->len == 0)) { /* 0: announced for want of credit */
        tell_done(request->peer, request->comm->id, arrival->id);
        weft_p2p_recv_end(request);
        return;
    }
    if (weft_p2p_end_if_gone(request)) {
        return;
    }
    weft_p2p_request_list(request);
    if (begin_pull(request, arrival)) {
        return;
    }
    if ((arrival->flags & WEFT_DATA_FOLLOWS) != 0) {
        request->pass = 0;
        request->moved = 0;
        weft_list_append(&request->peer->incoming, &request->node);
    } else {
        grant(request);
    }
}

static struct weft_request *find_incoming(struct weft_p2p_peer *peer,
                                          const struct weft_wire_data *frame)
{
    for (struct weft_list *node = peer->incoming.next; node != &peer->incoming; node = node->next) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, node);
        if (request->id == frame->a && request->comm->id == frame->comm) {
            bool fits = frame->len <= request->total && frame->b <= request->total - frame->len;
            return fits && request->pass == frame->tag && !request->is_ended ? request : NULL;
        }
    }
    return NULL;
}

void weft_p2p_chunk_landed(struct weft_request *request, size_t len)
{
    request->moved += len;
    if (request->moved >= request->total && request->works == 0) {
        long_one_done(request);
    }
}

static void chunk_copied(struct weft_p2p_job *job)
{
    struct weft_request *request = job->request;
    request->works--;
    if (request->is_ended) {
        weft_p2p_request_settle(request);
    } else {
        weft_p2p_chunk_landed(request, job->len);
    }
}

void weft_p2p_chunk_arrived(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    struct weft_request *request = find_incoming(peer, &done->frame);
    if (request != NULL) {
        weft_p2p_copy_payload(request, done, weft_p2p_copy_kind(request->total), chunk_copied);
    } else if (done->token != 0) {
        done->lane->ops->release(done->lane, done->token);
    }
}

void weft_p2p_chunk_place(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    struct weft_request *request = find_incoming(peer, &done->frame);
    if (request == NULL) {
        weft_p2p_place(peer, done, PLACE_SINK, NULL);
    } else {
        peer->pieces[done->lane->slot].request = request;
        weft_p2p_place(peer, done, PLACE_CHUNK, request->data + done->frame.b);
    }
}
