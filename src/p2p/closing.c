/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators that members have closed. Who closes says BYE to the members it has a link to; whatever needs it
 * there fails, and what it sent before is still received. Frames of a closed communicator are sunk, and those that
 * somebody waits for an answer to are answered by BYE, too.
 *
 * A member without a link hears nothing. So a receive that has waited for a while asks, once for each rank: with
 * the question there is a link. It is kept like any early frame where the communicator is not open yet. Who waits for
 * anybody's message or signal asks one of them.
 */
#include "p2p/internal.h"

#include <stdio.h>

#define QUESTION 1 /* BYE: is it closed there? Answered by BYE, when it is. */

static void say(struct weft_p2p_peer *peer, uint64_t comm, uint64_t what)
{
    const struct weft_wire_data bye = {.type = WEFT_DATA_BYE, .comm = comm, .a = what};
    weft_p2p_reply(peer, &bye);
}

static bool is_within_reach(const struct weft_p2p_peer *peer)
{
    return !peer->is_gone && !peer->is_going && peer->link.state != WEFT_LINK_DOWN;
}

/* ---- closed here ---- */

void weft_p2p_say_closed(struct weft_p2p *p2p, uint64_t id, const uint32_t *members, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct weft_p2p_peer *peer = p2p->peers[members != NULL ? members[rank] : rank];
        if (peer != NULL && is_within_reach(peer) && peer->link.state != WEFT_LINK_IDLE) {
            say(peer, id, 0);
        }
    }
}

bool weft_p2p_is_closed(const struct weft_p2p *p2p, uint64_t id)
{
    for (int i = 0; i < WEFT_P2P_CLOSED; i++) {
        if (p2p->closed[i] == id) {
            return true;
        }
    }
    return false;
}

void weft_p2p_sink(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    weft_count(weft_engine_counters(peer->p2p->engine), WEFT_COUNTER_SUNK, 1);
    switch (frame->type) {
    case WEFT_DATA_ANNOUNCE: {
        const struct weft_wire_data answer = {
            .type = WEFT_DATA_DONE, .comm = frame->comm, .a = frame->a, .b = WEFT_ERR_PEER};
        weft_p2p_reply(peer, &answer);
        break;
    }
    case WEFT_DATA_EAGER:
        weft_link_consumed(&peer->link, frame->len);
        break;
    case WEFT_DATA_GET:
    case WEFT_DATA_FLUSH:
        say(peer, frame->comm, 0);
        break;
    case WEFT_DATA_BYE:
        if (frame->a == QUESTION) {
            say(peer, frame->comm, 0);
        }
        break;
    default:
        break;
    }
}

/* ---- closed there ---- */

static void end_as_closed(struct weft_request *request, uint32_t rank)
{
    char name[128], text[WEFT_P2P_TEXT];
    weft_p2p_name(request->comm, rank, name, sizeof(name));
    snprintf(text, sizeof(text), "%s has closed the communicator", name);
    weft_p2p_request_end(request, WEFT_ERR_PEER, text);
}

bool weft_p2p_end_if_gone(struct weft_request *request)
{
    const struct weft_p2p_peer *peer = request->peer;
    uint32_t rank;
    if (peer == NULL) {
        return false;
    }
    if (peer->is_gone) {
        weft_p2p_request_end(request, peer->gone_status, peer->gone_text);
        return true;
    }
    rank = weft_p2p_source(request->comm, peer);
    if (request->comm->states[rank].is_closed) {
        end_as_closed(request, rank);
        return true;
    }
    return false;
}

/* What waits for this rank; what it sent before has come before its word. */
static void end_all(struct weft_p2p_comm *comm, const struct weft_p2p_peer *peer, uint32_t rank)
{
    struct weft_list all; /* ending one may end others, which then leave this list too */
    struct weft_list *node;
    weft_list_move(&comm->active, &all);
    while ((node = weft_list_take(&all)) != NULL) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, active);
        weft_list_append(&comm->active, node);
        if (request->peer == peer && !request->is_ended) {
            weft_p2p_take_back(request, false);
            end_as_closed(request, rank);
        }
    }
}

void weft_p2p_bye_arrived(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                          const struct weft_wire_data *frame)
{
    uint32_t rank = weft_p2p_source(comm, peer);
    struct weft_p2p_member *member = &comm->states[rank];
    if (frame->a == QUESTION || member->is_closed) {
        return;
    }
    member->is_closed = true;
    comm->closed_count++;
    if (member->puts != member->flushed) {
        weft_link_forget(&peer->link, weft_p2p_puts_cookie(member), false);
    }
    end_all(comm, peer, rank);
    weft_p2p_fail_of_anybody(comm);
    weft_p2p_ask(comm); /* who waited for anybody: the next one */
}

static void ask(struct weft_p2p_comm *comm, uint32_t rank)
{
    struct weft_p2p_peer *peer = weft_p2p_comm_peer(comm, rank);
    if (!comm->states[rank].is_asked && peer != NULL && is_within_reach(peer)) {
        comm->states[rank].is_asked = true;
        say(peer, comm->id, QUESTION);
    }
}

/* Somebody is left as long as one is: only the first behind us is asked, so that who waits for anybody costs one
 * link, and the next one when that has closed. */
void weft_p2p_ask_anybody(struct weft_p2p_comm *comm)
{
    for (uint32_t i = 1; i < comm->ranks; i++) {
        uint32_t rank = (uint32_t)(((uint64_t)comm->rank + i) % comm->ranks);
        if (!weft_p2p_has_left(comm, rank)) {
            ask(comm, rank);
            return;
        }
    }
}

/* Collectives have other ways to learn why nothing comes. */
static bool has_waited(const struct weft_request *request)
{
    return request->deadline_ns != 0 &&
           (request->kind == REQUEST_SIGNAL ||
            (request->kind == REQUEST_RECV && !weft_list_is_empty(&request->receive.node)));
}

void weft_p2p_ask(struct weft_p2p_comm *comm)
{
    struct weft_list *node = comm->active.next;
    while (comm->channel == comm->id && node != &comm->active) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, active);
        node = node->next;
        if (has_waited(request) && request->rank == WEFT_MATCH_ANY) {
            weft_p2p_ask_anybody(comm);
        } else if (has_waited(request) && request->peer != NULL) {
            ask(comm, request->rank);
        }
    }
}
