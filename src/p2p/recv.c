/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on their way in. An envelope (EAGER, ANNOUNCE) is matched when its header is here, so that
 * its bytes land once, in the receive's own memory; one that nobody waits for is kept.
 */
#include "p2p/internal.h"

#include <stdio.h>
#include <string.h>

static void consume_kept(const struct weft_p2p_arrival *arrival)
{
    weft_link_unhold(&arrival->peer->link, arrival->len);
    weft_link_consumed(&arrival->peer->link, arrival->len);
}

void weft_p2p_arrival_drop(struct weft_p2p_arrival *arrival)
{
    struct weft_p2p_peer *peer = arrival->peer;
    if (!weft_list_is_empty(&arrival->match.node)) {
        weft_match_drop(&arrival->comm->match, &arrival->match);
    }
    if (peer != NULL && arrival->type == WEFT_DATA_EAGER) {
        consume_kept(arrival);
    }
    if (peer != NULL && peer->placing_arrival == arrival) {
        peer->placing_arrival = NULL;
        peer->placing = PLACE_SINK;
        weft_link_unplace_envelope(&peer->link);
    }
    weft_p2p_arrival_give(arrival);
}

static struct weft_request *request_of(struct weft_match_receive *receive)
{
    return receive == NULL ? NULL : WEFT_CONTAINER_OF(receive, struct weft_request, receive);
}

static void note_message(struct weft_request *request, uint32_t source, uint32_t tag, uint64_t len)
{
    request->message = (weft_message_t){.source = (int)source, .tag = (int)tag, .len = (size_t)len};
    request->total = len;
}

/* ---- the end of a receive ---- */

void weft_p2p_recv_end(struct weft_request *request)
{
    char text[WEFT_P2P_TEXT];
    if (request->total <= request->len) {
        weft_p2p_request_end(request, WEFT_OK, "");
        return;
    }
    snprintf(text, sizeof(text),
             "a message of %llu bytes from rank %d with tag %d is longer than the buffer of %zu",
             (unsigned long long)request->total, request->message.source, request->message.tag,
             request->len);
    weft_p2p_request_end(request, WEFT_ERR_TRUNCATED, text);
}

static void eager_into(struct weft_request *request, const void *payload, size_t len)
{
    size_t copied = len < request->len ? len : request->len;
    if (copied > 0) {
        memcpy(request->data, payload, copied);
    }
    request->moved = copied;
    weft_p2p_recv_end(request);
}

/* ---- envelopes ---- */

static struct weft_p2p_arrival *arrival_new(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                                            const struct weft_wire_data *frame, size_t len)
{
    struct weft_p2p_arrival *arrival = weft_p2p_arrival_take(comm->p2p, len);
    if (arrival == NULL) {
        return NULL;
    }
    *arrival = (struct weft_p2p_arrival){.comm = comm,
                                         .size = arrival->size,
                                         .peer = peer,
                                         .len = frame->type == WEFT_DATA_EAGER ? len : frame->b,
                                         .type = frame->type,
                                         .flags = frame->flags,
                                         .id = (uint32_t)frame->a,
                                         .is_whole = true};
    weft_list_open(&arrival->match.node);
    arrival->match.source = peer != NULL ? weft_p2p_source(comm, peer) : comm->rank;
    arrival->match.tag = frame->tag;
    return arrival;
}

static void read_source(struct weft_p2p_arrival *arrival, const struct weft_done *done)
{
    arrival->source = (struct weft_p2p_source){0};
    if (done->frame.len == sizeof(arrival->source) && done->payload != NULL) {
        memcpy(&arrival->source, done->payload, sizeof(arrival->source));
    }
}

static void answer_probes(struct weft_p2p_comm *comm)
{
    struct weft_list *node = comm->probes.next;
    while (node != &comm->probes) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, node);
        node = node->next;
        weft_p2p_probe_begin(request);
    }
}

static void keep(struct weft_p2p_comm *comm, struct weft_p2p_arrival *arrival)
{
    struct weft_p2p_peer *peer = arrival->peer;
    if (peer != NULL && arrival->type == WEFT_DATA_EAGER &&
        !weft_link_hold(&peer->link, arrival->len)) {
        weft_p2p_peer_fail(peer, WEFT_ERR_PROTOCOL, "sent more ahead of our receives than it may");
    }
    weft_match_keep(&comm->match, &arrival->match);
    if (comm->strays.ask != NULL) {
        weft_p2p_strays_watch(comm);
    }
    if (!weft_list_is_empty(&comm->probes)) {
        answer_probes(comm);
    }
}

static void lose_for_memory(struct weft_p2p_peer *peer)
{
    weft_p2p_peer_fail(peer, WEFT_ERR_MEMORY, "no memory for a message that nobody waits for yet");
}

static void announced(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                      const struct weft_done *done, struct weft_request *request)
{
    uint32_t source = weft_p2p_source(comm, peer);
    struct weft_p2p_arrival *kept;
    if (request != NULL) {
        struct weft_p2p_arrival arrival = {.peer = peer,
                                           .len = done->frame.b,
                                           .flags = done->frame.flags,
                                           .id = (uint32_t)done->frame.a};
        read_source(&arrival, done);
        note_message(request, source, done->frame.tag, done->frame.b);
        weft_p2p_begin_long(request, &arrival);
        return;
    }
    kept = arrival_new(comm, peer, &done->frame, 0);
    if (kept == NULL) {
        lose_for_memory(peer);
        return;
    }
    read_source(kept, done);
    kept->flags &= (uint8_t)~WEFT_DATA_FOLLOWS; /* those chunks go by: they are granted again */
    keep(comm, kept);
}

static bool check_seq(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer, uint32_t source,
                      const struct weft_wire_data *frame)
{
    struct weft_p2p_member *member = &comm->states[source];
    member->received++;
    if (frame->seq != member->received && frame->seq != 0) {
        weft_p2p_peer_fail(peer, WEFT_ERR_PROTOCOL, "sent messages out of order");
        return false;
    }
    return true;
}

/* An envelope whose payload is here meets its receive; NULL: nobody waits for it. */
static void envelope_matched(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                             const struct weft_done *done, struct weft_request *request)
{
    const struct weft_wire_data *frame = &done->frame;
    struct weft_p2p_arrival *arrival;
    if (frame->type == WEFT_DATA_ANNOUNCE) {
        announced(comm, peer, done, request);
    } else if (request != NULL) {
        note_message(request, weft_p2p_source(comm, peer), frame->tag, frame->len);
        eager_into(request, done->payload, frame->len);
        weft_link_consumed(&peer->link, frame->len);
    } else if ((arrival = arrival_new(comm, peer, frame, frame->len)) != NULL) {
        if (frame->len > 0) {
            memcpy(arrival->data, done->payload, frame->len);
        }
        keep(comm, arrival);
    } else {
        lose_for_memory(peer);
    }
}

void weft_p2p_envelope_arrived(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                               const struct weft_done *done)
{
    uint32_t source = weft_p2p_source(comm, peer);
    if (check_seq(comm, peer, source, &done->frame)) {
        envelope_matched(
            comm, peer, done,
            request_of(weft_match_take_receive(&comm->match, source, done->frame.tag)));
        if (done->token != 0) {
            done->lane->ops->release(done->lane, done->token);
        }
    }
}

/* Nothing is lent and nothing runs: the end of it in a few stores, in the order of weft_p2p_request_settle(). */
static void end_quickly(struct weft_request *request)
{
    _Atomic uint32_t *bell = request->bell;
    request->is_ended = true;
    if (!weft_list_is_empty(&request->active)) {
        weft_list_remove(&request->active);
    }
    if (request->message_p != NULL) {
        *request->message_p = request->message;
    }
    if (request->record != 0) {
        weft_recorder_end(request->comm->p2p->spec.recorder, request->record, WEFT_OK);
    }
    atomic_store_explicit(&request->is_done, 1, memory_order_release);
    if (bell != NULL) {
        atomic_store_explicit(bell, 1, memory_order_release);
    }
}

void weft_p2p_word_arrived(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                           const struct weft_lane_word *word)
{
    uint32_t source = weft_p2p_source(comm, peer);
    struct weft_request *request =
        request_of(weft_match_take_receive(&comm->match, source, word->tag));
    if (request == NULL || word->len > request->len) { /* kept, or too long: the usual way */
        const struct weft_done done = {.kind = WEFT_DONE_ARRIVED,
                                       .lane = word->lane,
                                       .frame = {.type = WEFT_DATA_EAGER,
                                                 .len = word->len,
                                                 .comm = word->comm,
                                                 .tag = word->tag},
                                       .payload = word->payload};
        comm->states[source].received++;
        envelope_matched(comm, peer, &done, request);
        return;
    }
    comm->states[source].received++;
    request->message =
        (weft_message_t){.source = (int)source, .tag = (int)word->tag, .len = word->len};
    if (word->len == sizeof(uint64_t)) {
        memcpy(request->data, word->payload, sizeof(uint64_t));
    } else if (word->len > 0) {
        memcpy(request->data, word->payload, word->len);
    }
    end_quickly(request);
    weft_engine_completed(comm->p2p->engine);
    weft_link_consumed(&peer->link, word->len);
}

void weft_p2p_envelope_place(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                             const struct weft_done *done)
{
    const struct weft_wire_data *frame = &done->frame;
    uint32_t source = weft_p2p_source(comm, peer);
    struct weft_request *request;
    struct weft_p2p_arrival *arrival;
    if (!check_seq(comm, peer, source, frame)) {
        return;
    }
    request = request_of(weft_match_take_receive(&comm->match, source, frame->tag));
    if (request != NULL) {
        note_message(request, source, frame->tag, frame->len);
        request->peer = peer;
        weft_p2p_request_list(request);
        peer->placing_request = request;
        weft_p2p_place(peer, done, PLACE_RECV, frame->len <= request->len ? request->data : NULL);
        return;
    }
    arrival = arrival_new(comm, peer, frame, frame->len);
    if (arrival == NULL) {
        lose_for_memory(peer);
        return;
    }
    arrival->is_whole = false;
    peer->placing_arrival = arrival;
    weft_p2p_place(peer, done, PLACE_ARRIVAL, arrival->data);
    keep(comm, arrival);
}

static void arrival_landed(struct weft_p2p_arrival *arrival)
{
    struct weft_request *request = arrival->receive;
    arrival->is_whole = true;
    if (request != NULL) { /* matched while it was on its way */
        consume_kept(arrival);
        eager_into(request, arrival->data, arrival->len);
        weft_p2p_arrival_give(arrival);
    }
}

static void envelope_landed(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    enum weft_p2p_placing placing = peer->placing;
    struct weft_request *request = peer->placing_request;
    peer->placing = PLACE_NOTHING;
    peer->placing_request = NULL;
    switch (placing) {
    case PLACE_RECV:
        weft_link_consumed(&peer->link, done->frame.len);
        if (request != NULL) {
            request->moved = done->frame.len;
            weft_p2p_recv_end(request);
        }
        break;
    case PLACE_ARRIVAL:
        arrival_landed(peer->placing_arrival);
        peer->placing_arrival = NULL;
        break;
    case PLACE_ORPHAN:
        weft_p2p_orphan_landed(peer);
        break;
    default: /* to the sink */
        break;
    }
}

static void piece_landed(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    struct weft_p2p_piece piece = peer->pieces[done->lane->slot];
    peer->pieces[done->lane->slot] = (struct weft_p2p_piece){.placing = PLACE_NOTHING};
    if (piece.placing == PLACE_CHUNK && piece.request != NULL) {
        weft_p2p_chunk_landed(piece.request, done->frame.len);
    } else if (piece.placing == PLACE_PART && piece.request != NULL) {
        weft_p2p_part_landed(piece.request, done->frame.len);
    }
    if (!weft_list_is_empty(&peer->held)) {
        weft_p2p_held_check(peer);
    }
}

void weft_p2p_landed(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    if (weft_wire_data_is_bulk(&done->frame)) {
        piece_landed(peer, done);
    } else {
        envelope_landed(peer, done);
    }
}

/* ---- receives ---- */

static void self_copied(struct weft_p2p_job *job)
{
    job->request->works--;
    job->other->works--;
    if (job->request->is_ended) { /* the communicator ended meanwhile */
        weft_p2p_request_settle(job->request);
    } else {
        weft_p2p_recv_end(job->request);
    }
    if (job->other->is_ended) {
        weft_p2p_request_settle(job->other);
    } else {
        weft_p2p_request_end(job->other, WEFT_OK, "");
    }
}

/* A message to oneself, straight from buffer to buffer. */
static void copy_self(struct weft_request *receive, struct weft_request *sender)
{
    struct weft_p2p_job job = {.request = receive,
                               .other = sender,
                               .to = receive->data,
                               .from = sender->data,
                               .len = sender->len < receive->len ? sender->len : receive->len,
                               .how = weft_p2p_copy_kind(sender->len),
                               .done = self_copied};
    note_message(receive, sender->rank, sender->tag, sender->len);
    receive->works++;
    sender->works++;
    weft_p2p_request_list(receive);
    weft_p2p_request_list(sender);
    weft_p2p_copy(receive->comm->p2p, &job);
}

void weft_p2p_self_arrived(struct weft_request *sender)
{
    struct weft_p2p_comm *comm = sender->comm;
    struct weft_request *receive =
        request_of(weft_match_take_receive(&comm->match, sender->rank, sender->tag));
    bool is_eager = sender->len <= comm->p2p->eager;
    const struct weft_wire_data frame = {.type = is_eager ? WEFT_DATA_EAGER : WEFT_DATA_ANNOUNCE,
                                         .tag = sender->tag,
                                         .b = sender->len};
    struct weft_p2p_arrival *arrival;
    if (receive != NULL) {
        copy_self(receive, sender);
        return;
    }
    arrival = arrival_new(comm, NULL, &frame, is_eager ? sender->len : 0);
    if (arrival == NULL) {
        weft_p2p_request_end(sender, WEFT_ERR_MEMORY, "");
        return;
    }
    if (is_eager) {
        if (sender->len > 0) {
            memcpy(arrival->data, sender->data, sender->len);
        }
        weft_p2p_request_end(sender, WEFT_OK, "");
    } else {
        arrival->sender = sender;
        sender->id = UINT32_MAX; /* too late to cancel */
        weft_p2p_request_list(sender);
    }
    keep(comm, arrival);
}

/* true: the arrival is used up */
static bool take_arrival(struct weft_request *request, struct weft_p2p_arrival *arrival)
{
    note_message(request, arrival->match.source, arrival->match.tag, arrival->len);
    if (arrival->sender != NULL) {
        copy_self(request, arrival->sender);
    } else if (arrival->type == WEFT_DATA_ANNOUNCE) {
        weft_p2p_begin_long(request, arrival);
    } else if (arrival->is_whole) {
        if (arrival->peer != NULL) {
            consume_kept(arrival);
        }
        eager_into(request, arrival->data, arrival->len);
    } else {
        arrival->receive = request;
        request->peer = arrival->peer;
        weft_p2p_request_list(request);
        return false;
    }
    return true;
}

/* So that the sender of something long need not wait for a grant. Wildcards could take the message
 * first: then no promise is given. */
static void send_hint(struct weft_request *request)
{
    struct weft_p2p_comm *comm = request->comm;
    const struct weft_wire_data frame = {.type = WEFT_DATA_HINT,
                                         .comm = comm->id,
                                         .tag = request->tag,
                                         .seq = comm->states[request->rank].received,
                                         .a = request->len,
                                         .b = comm->states[request->rank].received};
    if (request->len > comm->p2p->eager && request->tag != WEFT_MATCH_ANY &&
        weft_list_is_empty(&comm->match.wild) && request->peer->link.state == WEFT_LINK_UP) {
        weft_p2p_reply(request->peer, &frame);
    }
}

void weft_p2p_recv_begin(struct weft_request *request)
{
    struct weft_p2p_comm *comm = request->comm;
    struct weft_match_arrival *match =
        weft_match_take_arrival(&comm->match, request->rank, request->tag);
    struct weft_p2p_arrival *arrival;
    if (match != NULL) {
        arrival = WEFT_CONTAINER_OF(match, struct weft_p2p_arrival, match);
        if (take_arrival(request, arrival)) {
            weft_p2p_arrival_give(arrival);
        }
        return;
    }
    if (request->rank != WEFT_MATCH_ANY && request->rank != comm->rank) {
        request->peer = weft_p2p_comm_peer(comm, request->rank);
        if (request->peer == NULL) {
            weft_p2p_request_end(request, WEFT_ERR_MEMORY, "");
            return;
        }
        if (weft_p2p_end_if_gone(request)) {
            return;
        }
        send_hint(request);
    } else if (request->rank == WEFT_MATCH_ANY && weft_p2p_is_alone(comm)) {
        weft_p2p_request_end(request, WEFT_ERR_PEER, WEFT_P2P_ALONE);
        return;
    }
    request->receive.source = request->rank;
    request->receive.tag = request->tag;
    weft_match_post(&comm->match, &request->receive);
    weft_p2p_request_list(request);
}

void weft_p2p_probe_begin(struct weft_request *request)
{
    struct weft_p2p_comm *comm = request->comm;
    struct weft_match_arrival *match = weft_match_peek(&comm->match, request->rank, request->tag);
    if (match != NULL) {
        const struct weft_p2p_arrival *arrival =
            WEFT_CONTAINER_OF(match, struct weft_p2p_arrival, match);
        note_message(request, match->source, match->tag, arrival->len);
        weft_list_remove(&request->node);
        weft_p2p_request_end(request, WEFT_OK, "");
    } else if (weft_list_is_empty(&request->node)) {
        request->peer = request->rank != WEFT_MATCH_ANY && request->rank != comm->rank
                            ? weft_p2p_comm_peer(comm, request->rank)
                            : NULL;
        if (weft_p2p_end_if_gone(request)) {
            return;
        }
        if (request->rank == WEFT_MATCH_ANY && weft_p2p_is_alone(comm)) {
            weft_p2p_request_end(request, WEFT_ERR_PEER, WEFT_P2P_ALONE);
            return;
        }
        weft_list_append(&comm->probes, &request->node);
        weft_list_append(&comm->active, &request->active); /* for failures; it has no deadline */
        request->timeout_ms = WEFT_NO_LIMIT;
    }
}
