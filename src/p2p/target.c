/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided operations of other ranks, as their target sees them. */
#include "p2p/handle.h"

#include <stdlib.h>
#include <string.h>

/* Memory of ours that a frame names; NULL: no such bytes. */
static uint8_t *registered(struct weft_p2p *p2p, const struct weft_wire_data *frame, uint64_t len)
{
    const struct weft_p2p_registration *it = weft_p2p_registration_find(p2p, frame->a);
    return it != NULL && it->comm == frame->comm && len <= it->len && frame->b <= it->len - len
               ? it->memory + frame->b
               : NULL;
}

/* What a peer's frame is about: its place among the communicator's members. frame_arrived() has looked
 * it up just before. */
static struct weft_p2p_member *member_of(const struct weft_p2p_peer *peer, uint64_t comm)
{
    struct weft_p2p_comm *it = weft_p2p_find_comm(peer->p2p, comm);
    return it != NULL ? &it->states[weft_p2p_source(it, peer)] : NULL;
}

static void note_refused(struct weft_p2p_peer *peer, uint64_t comm)
{
    struct weft_p2p_member *member = member_of(peer, comm);
    if (member != NULL && member->refused == WEFT_OK) {
        member->refused = WEFT_ERR_INVALID;
        weft_log(p2p, WARN, "rank %u puts outside of what is registered here", peer->link.peer);
    }
}

static void add_signal(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    uint8_t *word = registered(peer->p2p, frame, sizeof(uint64_t));
    const struct weft_p2p_member *member = member_of(peer, frame->comm);
    if (member == NULL || member->refused != WEFT_OK) {
        return; /* what it announces may not be there: the next quiet says so */
    }
    if (word == NULL || (uintptr_t)word % sizeof(uint64_t) != 0) {
        note_refused(peer, frame->comm);
        return;
    }
    atomic_fetch_add_explicit((_Atomic uint64_t *)(void *)word, frame->c, memory_order_release);
    weft_p2p_signals_check(peer->p2p);
}

static void answer_flush(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    struct weft_p2p_member *member = member_of(peer, frame->comm);
    const struct weft_wire_data answer = {.type = WEFT_DATA_FLUSHED,
                                          .comm = frame->comm,
                                          .a = frame->a,
                                          .b = member != NULL ? (uint64_t)member->refused : 0};
    if (member != NULL) {
        member->refused = WEFT_OK;
    }
    weft_p2p_reply(peer, &answer);
}

static void apply(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    if (frame->type == WEFT_DATA_SIGNAL) {
        add_signal(peer, frame);
    } else {
        answer_flush(peer, frame);
    }
}

static bool is_due(const struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    return peer->put_works == 0 && weft_link_has_landed(&peer->link, frame->seq);
}

void weft_p2p_held_check(struct weft_p2p_peer *peer)
{
    struct weft_list *node;
    bool is_news = false;
    while ((node = weft_list_take(&peer->held)) != NULL) {
        struct weft_p2p_reply *held = WEFT_CONTAINER_OF(node, struct weft_p2p_reply, node);
        if (!is_due(peer, &held->frame)) {
            weft_list_append(peer->held.next, node); /* first again */
            return;
        }
        apply(peer, &held->frame);
        free(held);
        is_news = true;
    }
    if (is_news && !weft_list_is_empty(&peer->p2p->signals)) { /* it may have closed since */
        weft_p2p_fail_of_anybody_everywhere(peer->p2p);
    }
}

/* SIGNAL and FLUSH come after what came before them, and its copies. */
static void apply_in_order(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    struct weft_p2p_reply *held;
    if (is_due(peer, frame) && weft_list_is_empty(&peer->held)) {
        apply(peer, frame);
        return;
    }
    held = malloc(sizeof(*held));
    if (held == NULL) {
        weft_p2p_peer_fail(peer, WEFT_ERR_MEMORY, "no memory for a signal that must wait");
        return;
    }
    held->frame = *frame;
    weft_list_append(&peer->held, &held->node);
}

static void put_copied(struct weft_p2p_job *job)
{
    job->peer->put_works--;
    weft_p2p_held_check(job->peer);
}

static void put_arrived(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    struct weft_p2p_job job = {.to = registered(peer->p2p, &done->frame, done->frame.len),
                               .from = done->payload,
                               .len = done->frame.len,
                               .lane = done->lane,
                               .token = done->token,
                               .peer = peer,
                               .done = put_copied};
    if (job.to == NULL) {
        note_refused(peer, done->frame.comm);
        job.len = 0;
    }
    peer->put_works++;
    weft_p2p_copy(peer->p2p, &job);
}

static void refuse_get(struct weft_p2p_peer *peer, uint64_t comm, uint64_t id)
{
    const struct weft_wire_data refusal = {
        .type = WEFT_DATA_PART, .comm = comm, .c = id, .b = UINT64_MAX};
    weft_p2p_reply(peer, &refusal);
}

static void get_arrived(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    uint64_t len = done->frame.tag | (uint64_t)done->frame.seq << 32;
    uint8_t *memory;
    struct weft_request *request;
    memory = registered(peer->p2p, &done->frame, len);
    request = memory == NULL || len == 0 ? NULL
                                         : weft_p2p_request_take(peer->p2p->latest, REQUEST_ANSWER);
    if (request == NULL) {
        refuse_get(peer, done->frame.comm, done->frame.c);
        return;
    }
    request->peer = peer;
    request->rank = request->tag = 0;
    request->data = memory;
    request->len = len;
    request->offset = done->frame.c; /* the operation's id at the origin */
    request->registration = done->frame.a;
    request->timeout_ms = WEFT_NO_LIMIT; /* the origin has a deadline */
    weft_list_append(&request->comm->active, &request->active);
    weft_list_append(&peer->streams, &request->stream);
    weft_p2p_pump(peer);
}

void weft_p2p_target_arrived(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    if (done->frame.type == WEFT_DATA_PUT) {
        put_arrived(peer, done);
        return; /* the job releases the payload */
    }
    if (done->frame.type == WEFT_DATA_GET) {
        get_arrived(peer, done);
    } else {
        apply_in_order(peer, &done->frame);
    }
    if (done->token != 0) {
        done->lane->ops->release(done->lane, done->token);
    }
}

void weft_p2p_put_place(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    uint8_t *memory = registered(peer->p2p, &done->frame, done->frame.len);
    if (memory == NULL) {
        note_refused(peer, done->frame.comm);
    }
    peer->pieces[done->lane->slot].registration = done->frame.a;
    weft_p2p_place(peer, done, memory != NULL ? PLACE_PUT : PLACE_SINK, memory);
}

static void stop_answer(struct weft_request *request)
{
    /* Also when all of it was given to the link: what was not there is void if its lane dies. */
    if (!request->is_ended || request->lent > 0) {
        refuse_get(request->peer, request->comm->id, request->offset);
    }
    weft_p2p_take_back(request, false);
    if (request->is_ended) {
        weft_p2p_request_settle(request);
    } else {
        weft_p2p_request_end(request, WEFT_ERR_INVALID, "");
    }
}

static void stop_placing(struct weft_p2p_peer *peer, uint64_t comm, uint64_t registration)
{
    for (uint32_t i = 0; i < WEFT_LINK_SLOTS; i++) {
        if (peer->pieces[i].placing == PLACE_PUT && peer->pieces[i].registration == registration) {
            peer->pieces[i].placing = PLACE_SINK;
            note_refused(peer, comm);
            weft_link_unplace_slot(&peer->link, i);
        }
    }
}

void weft_p2p_target_stop(struct weft_p2p_comm *comm, uint64_t registration)
{
    struct weft_p2p *p2p = comm->p2p;
    struct weft_list all;
    struct weft_list *node;
    weft_engine_work_flush(p2p->engine);
    for (node = p2p->all_peers.next; node != &p2p->all_peers; node = node->next) {
        struct weft_p2p_peer *peer = WEFT_CONTAINER_OF(node, struct weft_p2p_peer, node);
        stop_placing(peer, comm->id, registration);
    }
    weft_list_move(&comm->active, &all);
    while ((node = weft_list_take(&all)) != NULL) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, active);
        weft_list_append(&comm->active, node);
        if (request->kind == REQUEST_ANSWER && request->registration == registration) {
            stop_answer(request);
        }
    }
}
