/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put, get, signal, quiet.
 *
 * Memory from weft_alloc() on the same host is written and read directly by who wants to; then quiet
 * has nothing to do. Otherwise frames go: PUT carries bytes to a registration, SIGNAL adds to a word
 * after them, GET asks for PARTs, FLUSH is answered by FLUSHED when everything before it is applied.
 * What is written directly and what travels must not overtake each other: a signal is only added
 * directly when nothing to that rank is on its way.
 */
#include "p2p/handle.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the origin ---- */

static void note_side_error(struct weft_p2p_comm *comm, weft_status_t status, const char *text)
{
    if (comm->side_status == WEFT_OK) {
        comm->side_status = status;
        snprintf(comm->side_text, sizeof(comm->side_text), "%s", text);
    }
}

void weft_p2p_get_ended(struct weft_request *request)
{
    struct weft_p2p_comm *comm = request->comm;
    struct weft_list *node;
    if (request->status != WEFT_OK) {
        note_side_error(comm, request->status,
                        request->text != NULL ? request->text : "a get failed");
    }
    comm->gets_open--;
    while (comm->gets_open == 0 && (node = weft_list_take(&comm->quiets)) != NULL) {
        weft_p2p_request_end(WEFT_CONTAINER_OF(node, struct weft_request, node), WEFT_OK, "");
    }
}

static struct weft_request *find_get(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    for (struct weft_list *node = peer->gets.next; node != &peer->gets; node = node->next) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, node);
        if (request->id == frame->c) {
            return request;
        }
    }
    return NULL;
}

void weft_p2p_part_landed(struct weft_request *request, size_t len)
{
    request->moved += len;
    if (request->moved >= request->len && request->works == 0) {
        weft_p2p_request_end(request, WEFT_OK, "");
    }
}

static void part_copied(struct weft_p2p_job *job)
{
    job->request->works--;
    if (job->request->is_ended) {
        weft_p2p_request_settle(job->request);
    } else {
        weft_p2p_part_landed(job->request, job->len);
    }
}

/* The get a PART belongs to, if it fits; NULL: to the sink. */
static struct weft_request *check_part(struct weft_p2p_peer *peer,
                                       const struct weft_wire_data *frame)
{
    struct weft_request *request = find_get(peer, frame);
    if (request == NULL || request->is_ended) {
        return NULL;
    }
    if (frame->b == UINT64_MAX) {
        weft_p2p_take_back(request, false); /* other lanes may be bringing pieces of it */
        weft_p2p_request_end(request, WEFT_ERR_INVALID,
                             "a get of memory that is not registered there (any more)");
        return NULL;
    }
    return frame->len <= request->len && frame->b <= request->len - frame->len ? request : NULL;
}

static void part_arrived(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    struct weft_request *request = check_part(peer, &done->frame);
    if (request != NULL) {
        weft_p2p_copy_payload(request, done, WEFT_COPY_PLAIN, part_copied);
    } else if (done->token != 0) {
        done->lane->ops->release(done->lane, done->token);
    }
}

static void flushed(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    for (struct weft_list *node = peer->flushes.next; node != &peer->flushes; node = node->next) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, node);
        if (request->id == frame->a) {
            struct weft_p2p_member *member = &request->comm->states[request->rank];
            bool is_fine = frame->b == WEFT_OK;
            /* Their memory is the user's again, whatever acknowledgements are still to come. */
            weft_link_forget_landed(&peer->link, weft_p2p_puts_cookie(member),
                                    (uint32_t)request->total);
            member->flushed = (uint32_t)request->value;
            weft_p2p_request_end(request, is_fine ? WEFT_OK : WEFT_ERR_INVALID,
                                 is_fine ? ""
                                         : "the target refused a put: outside of what is "
                                           "registered there, or deregistered");
            return;
        }
    }
}

void weft_p2p_origin_arrived(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    if (done->frame.type == WEFT_DATA_PART) {
        part_arrived(peer, done);
        return; /* the job releases the payload */
    }
    flushed(peer, &done->frame);
    if (done->token != 0) {
        done->lane->ops->release(done->lane, done->token);
    }
}

void weft_p2p_part_place(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    struct weft_request *request = check_part(peer, &done->frame);
    peer->pieces[done->lane->slot].request = request;
    weft_p2p_place(peer, done, PLACE_PART, request != NULL ? request->data + done->frame.b : NULL);
}

/* ---- frames of the origin, in the order of the calls ---- */

static bool send_put(struct weft_request *request)
{
    struct weft_p2p_peer *peer = request->peer;
    struct weft_p2p_member *member = &request->comm->states[request->rank];
    while (request->moved < request->len) {
        size_t left = request->len - request->moved;
        size_t most = weft_link_chunk_max(&peer->link);
        size_t len = left < most ? left : most;
        struct weft_wire_data frame = {.type = WEFT_DATA_PUT,
                                       .comm = request->comm->id,
                                       .a = request->registration,
                                       .b = request->offset + request->moved};
        const struct weft_slice slice = {.data = request->data + request->moved, .len = len};
        /* The user's memory is lent until quiet: nobody waits for SENT. */
        if (weft_link_stream(&peer->link, &frame, &slice, weft_p2p_puts_cookie(member)) ==
            WEFT_POST_FULL) {
            return false;
        }
        request->moved += len;
        member->puts++;
    }
    if (request->has_signal) {
        struct weft_wire_data frame = {.type = WEFT_DATA_SIGNAL,
                                       .comm = request->comm->id,
                                       .seq = weft_link_chunks_sent(&peer->link),
                                       .a = request->signal_registration,
                                       .b = request->signal_offset,
                                       .c = request->add};
        const struct weft_slice nothing = {0};
        if (weft_link_send(&peer->link, &frame, &nothing, NULL) == WEFT_POST_FULL) {
            return false;
        }
        member->puts++;
    }
    weft_p2p_request_end(request, WEFT_OK, "");
    return true;
}

static bool send_get(struct weft_request *request)
{
    struct weft_p2p_peer *peer = request->peer;
    struct weft_wire_data frame = {.type = WEFT_DATA_GET,
                                   .comm = request->comm->id,
                                   .tag = (uint32_t)request->len,
                                   .seq = (uint32_t)(request->len >> 32),
                                   .a = request->registration,
                                   .b = request->offset,
                                   .c = weft_p2p_next_id(peer)};
    const struct weft_slice nothing = {0};
    if (weft_link_send(&peer->link, &frame, &nothing, NULL) == WEFT_POST_FULL) {
        return false;
    }
    request->id = peer->next_id = (uint32_t)frame.c;
    weft_list_remove(&request->node);
    weft_list_append(&peer->gets, &request->node);
    return true;
}

static bool send_flush(struct weft_request *request)
{
    struct weft_p2p_peer *peer = request->peer;
    struct weft_wire_data frame = {.type = WEFT_DATA_FLUSH,
                                   .comm = request->comm->id,
                                   .seq = weft_link_chunks_sent(&peer->link),
                                   .a = peer->flush_number + 1};
    const struct weft_slice nothing = {0};
    if (weft_link_send(&peer->link, &frame, &nothing, NULL) == WEFT_POST_FULL) {
        return false;
    }
    request->id = ++peer->flush_number;
    request->value = request->comm->states[request->rank].puts;
    request->total = frame.seq;
    weft_list_remove(&request->node);
    weft_list_append(&peer->flushes, &request->node);
    return true;
}

bool weft_p2p_side_advance(struct weft_request *request)
{
    if (request->peer->link.state != WEFT_LINK_UP) {
        weft_link_want(&request->peer->link);
        return false;
    }
    switch (request->kind) {
    case REQUEST_PUT:
        return send_put(request);
    case REQUEST_GET:
        return send_get(request);
    default:
        return send_flush(request);
    }
}

void weft_p2p_signals_check(struct weft_p2p *p2p)
{
    struct weft_list *node = p2p->signals.next;
    while (node != &p2p->signals) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, node);
        node = node->next;
        if (atomic_load_explicit(request->word, memory_order_acquire) >= request->value) {
            weft_p2p_request_end(request, WEFT_OK, "");
        }
    }
}

static void begin_local(struct weft_request *request)
{
    struct weft_p2p_comm *comm = request->comm; /* one that is done is its owner's */
    struct weft_p2p *p2p = comm->p2p;
    if (request->kind == REQUEST_SIGNAL) {
        weft_list_append(&p2p->signals, &request->node);
        weft_p2p_request_list(request);
        weft_p2p_signals_check(p2p);
        weft_p2p_fail_of_anybody(comm);
    } else if (comm->gets_open == 0) {
        weft_p2p_request_end(request, WEFT_OK, "");
    } else {
        weft_list_append(&comm->quiets, &request->node);
        weft_p2p_request_list(request);
    }
}

void weft_p2p_side_begin(struct weft_request *request)
{
    struct weft_p2p_peer *peer = request->peer;
    if (request->kind == REQUEST_SIGNAL || request->kind == REQUEST_QUIET) {
        begin_local(request);
        return;
    }
    if (weft_p2p_end_if_gone(request)) {
        return;
    }
    weft_p2p_request_list(request);
    if (!weft_list_is_empty(&peer->waiting) || !weft_p2p_side_advance(request)) {
        weft_list_append(&peer->waiting, &request->node);
    }
    /* A lane that was lost just now: the control plane may know why, and says so soon. */
    if (peer->link.state == WEFT_LINK_DOWN && weft_list_is_empty(&peer->grace.node)) {
        weft_p2p_peer_fail(peer, peer->link.status, peer->link.text);
    }
}
