/* SPDX-License-Identifier: Apache-2.0 */
/* One communicator's part: opened, ended by the control plane, closed after a flush. */
#include "p2p/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_MS 500
#define SETTLE_POLLS 1000

static weft_status_t comm_alloc(struct weft_p2p_comm *comm)
{
    const struct weft_p2p *p2p = comm->p2p;
    comm->states = calloc(comm->ranks, sizeof(*comm->states));
    comm->peers = calloc(comm->ranks, sizeof(struct weft_p2p_peer *));
    if (comm->members != NULL) {
        comm->rank_of = malloc(p2p->ranks * sizeof(*comm->rank_of));
    }
    if (comm->states == NULL || comm->peers == NULL ||
        (comm->members != NULL && comm->rank_of == NULL)) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a communicator of %u ranks", comm->ranks);
    }
    if (comm->members != NULL) {
        memset(comm->rank_of, 0xff, p2p->ranks * sizeof(*comm->rank_of));
        for (uint32_t rank = 0; rank < comm->ranks; rank++) {
            comm->rank_of[comm->members[rank]] = rank;
        }
    }
    return WEFT_OK;
}

static void comm_free(struct weft_p2p_comm *comm)
{
    free(comm->states);
    free(comm->peers);
    free(comm->rank_of);
    free(comm);
}

weft_status_t weft_p2p_comm_open(struct weft_p2p *p2p, uint64_t id, uint32_t rank, uint32_t ranks,
                                 const uint32_t *members, struct weft_p2p_comm **comm_p)
{
    struct weft_p2p_comm *comm = calloc(1, sizeof(*comm));
    weft_status_t status;
    if (comm == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a communicator");
    }
    comm->p2p = p2p;
    comm->id = comm->channel = id;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->members = members;
    comm->timeout_ms = (uint64_t)p2p->spec.links.port.params->number[WEFT_PARAM_TIMEOUT];
    status = comm_alloc(comm);
    if (status != WEFT_OK) {
        comm_free(comm);
        return status;
    }
    weft_match_open(&comm->match);
    weft_list_open(&comm->active);
    weft_list_open(&comm->probes);
    weft_list_open(&comm->quiets);
    weft_engine_lock(p2p->engine);
    weft_list_append(&p2p->comms, &comm->node);
    weft_p2p_adopt_orphans(p2p, comm);
    for (struct weft_list *node = p2p->all_peers.next; node != &p2p->all_peers; node = node->next) {
        weft_p2p_tell_members(comm, WEFT_CONTAINER_OF(node, struct weft_p2p_peer, node));
    }
    weft_engine_unlock(p2p->engine);
    *comm_p = comm;
    return WEFT_OK;
}

void weft_p2p_comm_set_timeout(struct weft_p2p_comm *comm, uint64_t timeout_ms)
{
    weft_engine_lock(comm->p2p->engine);
    comm->timeout_ms = timeout_ms;
    weft_engine_unlock(comm->p2p->engine);
}

void weft_p2p_take_back(struct weft_request *request, bool is_there)
{
    struct weft_p2p_peer *peer = request->peer;
    if (peer == NULL || peer->is_gone) {
        return;
    }
    if (request->lent > 0) {
        unsigned count = weft_link_forget(&peer->link, request, is_there);
        request->lent -= count;
        peer->lent -= request->id != 0 || request->kind != REQUEST_SEND ? count : 0;
    }
    if (peer->placing_request == request) {
        peer->placing_request = NULL;
        weft_link_unplace_envelope(&peer->link);
    }
    weft_p2p_unplace_pieces(peer, request);
    if (peer->placing_arrival != NULL && peer->placing_arrival->receive == request) {
        weft_p2p_arrival_drop(peer->placing_arrival);
    }
}

static void take_back_puts(struct weft_p2p_comm *comm)
{
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct weft_p2p_peer *peer = comm->peers[rank];
        const struct weft_p2p_member *member = &comm->states[rank];
        if (peer != NULL && !peer->is_gone && member->puts != member->flushed) {
            weft_link_forget(&peer->link, weft_p2p_puts_cookie(member), false);
        }
    }
}

static void end_comm(struct weft_p2p_comm *comm, weft_status_t status, const char *text)
{
    struct weft_list all; /* ending one may end others, which then leave this list too */
    struct weft_list *node;
    snprintf(comm->text, sizeof(comm->text), "%s", text);
    atomic_store_explicit(&comm->ended, status, memory_order_release);
    take_back_puts(comm);
    weft_list_move(&comm->active, &all);
    while ((node = weft_list_take(&all)) != NULL) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, active);
        weft_list_append(&comm->active, node); /* what still holds memory stays */
        weft_p2p_take_back(request, false);
        if (request->is_ended) {
            weft_p2p_request_settle(request);
        } else {
            weft_p2p_request_end(request, status, text);
        }
    }
}

void weft_p2p_ended(struct weft_p2p *p2p, uint64_t id, weft_status_t status, const char *text)
{
    struct weft_p2p_comm *comm = weft_p2p_find_comm(p2p, id);
    if (comm != NULL && atomic_load(&comm->ended) == WEFT_OK) {
        end_comm(comm, status, text);
        if (comm->channel != comm->id) { /* of collectives: their members wait for each other */
            weft_p2p_tell_ended(comm, status);
        }
    }
}

static bool has_reply(const struct weft_p2p_peer *peer, uint64_t comm)
{
    const struct weft_list *replies = &peer->replies;
    for (struct weft_list *node = replies->next; node != replies; node = node->next) {
        if (WEFT_CONTAINER_OF(node, struct weft_p2p_reply, node)->frame.comm == comm) {
            return true;
        }
    }
    return false;
}

/* A member that has not got all; NULL: none. */
static struct weft_p2p_peer *find_unflushed(struct weft_p2p_comm *comm)
{
    struct weft_p2p_peer *found = NULL;
    weft_engine_lock(comm->p2p->engine);
    for (uint32_t rank = 0; rank < comm->ranks && found == NULL; rank++) {
        struct weft_p2p_peer *peer = comm->peers[rank];
        if (peer != NULL && !peer->is_gone && !peer->is_going &&
            (!weft_link_is_flushed(&peer->link, comm->id) || has_reply(peer, comm->id))) {
            found = peer;
        }
    }
    weft_engine_unlock(comm->p2p->engine);
    return found;
}

/* Waits until all is on its way, but not for long. */
static weft_status_t flush(struct weft_p2p_comm *comm)
{
    struct weft_p2p *p2p = comm->p2p;
    uint64_t deadline_ns = weft_clock_after_ms(FLUSH_MS);
    _Atomic uint32_t never = 0;
    struct weft_p2p_peer *peer;
    char name[128];
    while ((peer = find_unflushed(comm)) != NULL) {
        if (weft_clock_ns() >= deadline_ns) {
            p2p->spec.name(p2p->spec.context, peer->link.peer, name, sizeof(name));
            return weft_fail(
                WEFT_ERR_TIMEOUT,
                "closed, but %s has not taken the last messages to it within %d ms: they "
                "are lost",
                name, FLUSH_MS);
        }
        weft_engine_wait(p2p->engine, &never, weft_clock_after_ms(1));
    }
    return WEFT_OK;
}

static void say_bye(struct weft_p2p_comm *comm)
{
    const struct weft_wire_data bye = {.type = WEFT_DATA_BYE};
    struct weft_p2p *p2p = comm->p2p;
    weft_engine_lock(p2p->engine);
    weft_engine_run_tasks(p2p->engine); /* what was begun is sent before the bye */
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct weft_p2p_peer *peer = comm->peers[rank];
        bool is_kept =
            peer != NULL && (peer->link.bundle != NULL || peer->link.state == WEFT_LINK_CALLING);
        if (is_kept && !peer->is_gone && peer->link.state != WEFT_LINK_DOWN) {
            weft_p2p_reply(peer, &bye); /* asks for an acknowledgement of everything before it */
        }
    }
    weft_engine_unlock(p2p->engine);
}

static void drop_arrivals(struct weft_p2p_comm *comm)
{
    struct weft_match_arrival *match;
    while ((match = weft_match_any_arrival(&comm->match, WEFT_MATCH_ANY)) != NULL) {
        weft_p2p_arrival_drop(WEFT_CONTAINER_OF(match, struct weft_p2p_arrival, match));
    }
}

/* What has ended but was lent memory is reported by the next polls, once its copy is over: nothing may
 * come back to a communicator that is gone. */
static void settle_all(struct weft_p2p_comm *comm)
{
    struct weft_p2p *p2p = comm->p2p;
    for (int i = 0; i < SETTLE_POLLS && !weft_list_is_empty(&comm->active); i++) {
        weft_engine_work_flush(p2p->engine);
        p2p->poller.poll(&p2p->poller);
    }
}

weft_status_t weft_p2p_comm_close(struct weft_p2p_comm *comm)
{
    struct weft_p2p *p2p;
    weft_status_t status = WEFT_OK;
    bool is_news;
    if (comm == NULL) {
        return WEFT_OK;
    }
    p2p = comm->p2p;
    if (atomic_load(&comm->ended) == WEFT_OK) {
        say_bye(comm);
        status = flush(comm);
    }
    weft_p2p_groups_forget(comm);
    weft_engine_lock(p2p->engine);
    weft_engine_run_tasks(p2p->engine); /* none of them may find the communicator gone */
    is_news = atomic_load(&comm->ended) == WEFT_OK && comm->channel == comm->id;
    end_comm(comm, WEFT_ERR_INVALID, "the communicator was closed");
    weft_p2p_forget(p2p, comm->id);
    if (is_news) { /* what ended it is known everywhere; members of a collective ask otherwise */
        weft_p2p_say_closed(p2p, comm->id, comm->members, comm->ranks);
    }
    p2p->latest = p2p->latest == comm ? NULL : p2p->latest;
    weft_list_remove(&comm->node);
    weft_p2p_registrations_close(comm); /* its peers hear of the closing, not of a refusal */
    settle_all(comm);
    weft_p2p_requests_end_with(comm);
    drop_arrivals(comm);
    weft_engine_unlock(p2p->engine);
    comm_free(comm);
    return status;
}
