/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks we have to do with: what waits for their link goes on when it can, and what needs one that
 * is gone fails. */
#include "p2p/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_MS 300
#define GRACES 3 /* more, where the control plane knows that it has ended */

/* ---- peers ---- */

static void grace_is_over(struct weft_engine_timer *timer, uint64_t now_ns);

static void peer_open(struct weft_p2p *p2p, uint32_t rank, struct weft_p2p_peer *peer)
{
    weft_link_open(p2p->links, rank, &peer->link);
    peer->p2p = p2p;
    weft_list_open(&peer->waiting);
    weft_list_open(&peer->streams);
    weft_list_open(&peer->sends);
    weft_list_open(&peer->incoming);
    weft_list_open(&peer->gets);
    weft_list_open(&peer->flushes);
    weft_list_open(&peer->replies);
    weft_list_open(&peer->held);
    weft_engine_timer_open(&peer->grace, grace_is_over);
    weft_list_append(&p2p->all_peers, &peer->node);
    if (!p2p->is_polled) { /* the first one: from now on there is something to poll */
        p2p->is_polled = true;
        weft_engine_poller_add(p2p->engine, &p2p->poller);
    }
}

struct weft_p2p_peer *weft_p2p_peer_of(struct weft_p2p *p2p, uint32_t job_rank)
{
    struct weft_p2p_peer *peer = p2p->peers[job_rank];
    if (peer == NULL) {
        peer = calloc(1, sizeof(*peer));
        if (peer == NULL) {
            weft_fail_record(WEFT_ERR_MEMORY, "no memory for a link to rank %u", job_rank);
            return NULL;
        }
        peer_open(p2p, job_rank, peer);
        p2p->peers[job_rank] = peer;
        if (p2p->spec.is_gone(p2p->spec.context, job_rank)) {
            weft_p2p_peer_fail(peer, WEFT_ERR_PEER, "it has closed or died");
        }
    }
    return peer;
}

uint32_t weft_p2p_job_rank(const struct weft_p2p_comm *comm, uint32_t rank)
{
    return comm->members != NULL ? comm->members[rank] : rank;
}

struct weft_p2p_peer *weft_p2p_comm_peer(struct weft_p2p_comm *comm, uint32_t rank)
{
    if (comm->peers[rank] == NULL) {
        comm->peers[rank] = weft_p2p_peer_of(comm->p2p, weft_p2p_job_rank(comm, rank));
    }
    return comm->peers[rank];
}

void weft_p2p_name(const struct weft_p2p_comm *comm, uint32_t rank, char *text, size_t room)
{
    const struct weft_p2p_spec *spec = &comm->p2p->spec;
    spec->name(spec->context, weft_p2p_job_rank(comm, rank), text, room);
}

/* ---- what waits for a link ---- */

void weft_p2p_reply(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    struct weft_wire_data sent = *frame;
    const struct weft_slice nothing = {0};
    struct weft_p2p_reply *reply;
    if (peer->is_gone) {
        return;
    }
    if (weft_list_is_empty(&peer->replies) &&
        weft_link_send(&peer->link, &sent, &nothing, NULL) != WEFT_POST_FULL) {
        return;
    }
    reply = malloc(sizeof(*reply));
    if (reply == NULL) {
        weft_p2p_peer_fail(peer, WEFT_ERR_MEMORY, "no memory for an answer");
        return;
    }
    reply->frame = *frame;
    weft_list_append(&peer->replies, &reply->node);
}

static bool pump_replies(struct weft_p2p_peer *peer)
{
    const struct weft_slice nothing = {0};
    while (!weft_list_is_empty(&peer->replies)) {
        struct weft_p2p_reply *reply =
            WEFT_CONTAINER_OF(peer->replies.next, struct weft_p2p_reply, node);
        if (weft_link_send(&peer->link, &reply->frame, &nothing, NULL) == WEFT_POST_FULL) {
            return false;
        }
        weft_list_remove(&reply->node);
        free(reply);
    }
    return true;
}

static bool pump_waiting(struct weft_p2p_peer *peer)
{
    while (!weft_list_is_empty(&peer->waiting)) {
        struct weft_request *request =
            WEFT_CONTAINER_OF(peer->waiting.next, struct weft_request, node);
        /* Taken out first: once it is sent it is not ours any more. */
        weft_list_remove(&request->node);
        if (!(request->kind == REQUEST_SEND ? weft_p2p_send_advance(request) != STEP_FULL
                                            : weft_p2p_side_advance(request))) {
            weft_list_append(peer->waiting.next, &request->node); /* first again */
            return false;
        }
    }
    return true;
}

void weft_p2p_pump(struct weft_p2p_peer *peer)
{
    if (peer->link.state != WEFT_LINK_UP || !pump_replies(peer) || !pump_waiting(peer)) {
        return;
    }
    while (!weft_list_is_empty(&peer->streams) &&
           (peer->lent < WEFT_P2P_WINDOW || peer->link.bundle != NULL)) {
        struct weft_request *request =
            WEFT_CONTAINER_OF(peer->streams.next, struct weft_request, stream);
        if (!weft_p2p_stream_advance(request)) {
            return;
        }
    }
}

/* ---- peers that are gone ---- */

static void fail_list(struct weft_list *list, size_t offset, const struct weft_p2p_peer *peer)
{
    while (!weft_list_is_empty(list)) {
        struct weft_list *node = list->next;
        struct weft_request *request = (struct weft_request *)(void *)((char *)node - offset);
        weft_list_remove(node);
        request->lent = 0; /* its lane is closed: nothing of it is read any more */
        weft_p2p_request_end(request, peer->gone_status, peer->gone_text);
    }
}

bool weft_p2p_has_left(const struct weft_p2p_comm *comm, uint32_t rank)
{
    const struct weft_p2p_spec *spec = &comm->p2p->spec;
    uint32_t job_rank = weft_p2p_job_rank(comm, rank);
    const struct weft_p2p_peer *peer = comm->p2p->peers[job_rank];
    return comm->states[rank].is_closed ||
           (spec->is_gone(spec->context, job_rank) && (peer == NULL || !peer->is_going));
}

static bool are_all_gone(const struct weft_p2p_comm *comm)
{
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        if (rank != comm->rank && !weft_p2p_has_left(comm, rank)) {
            return false;
        }
    }
    return true;
}

static void fail_receives(struct weft_p2p_comm *comm, const struct weft_p2p_peer *peer)
{
    uint32_t source = weft_p2p_source(comm, peer);
    struct weft_match_receive *receive;
    if (source == WEFT_WIRE_NO_RANK) {
        return;
    }
    while ((receive = weft_match_any_receive(&comm->match, source)) != NULL) {
        struct weft_request *request = WEFT_CONTAINER_OF(receive, struct weft_request, receive);
        weft_p2p_request_end(request, peer->gone_status, peer->gone_text);
    }
}

bool weft_p2p_is_alone(const struct weft_p2p_comm *comm)
{
    return (comm->p2p->has_gone || comm->closed_count > 0) && comm->ranks > 1 && are_all_gone(comm);
}

/* Are there signals whose puts have come, but not landed? */
static bool has_held(const struct weft_p2p_comm *comm)
{
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        const struct weft_p2p_peer *peer = comm->p2p->peers[weft_p2p_job_rank(comm, rank)];
        if (peer != NULL && !weft_list_is_empty(&peer->held)) {
            return true;
        }
    }
    return false;
}

/* Words may have been written directly until the last of them left. */
static void fail_signals(const struct weft_p2p_comm *comm)
{
    struct weft_p2p *p2p = comm->p2p;
    struct weft_list *node;
    char text[WEFT_P2P_TEXT];
    if (weft_list_is_empty(&p2p->signals) || has_held(comm)) {
        return; /* … and once those have landed this is asked again */
    }
    weft_p2p_signals_check(p2p);
    for (node = p2p->signals.next; node != &p2p->signals;) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, node);
        node = node->next;
        if (request->comm == comm) {
            snprintf(text, sizeof(text),
                     WEFT_P2P_ALONE ": the signal is %llu, and stays below %llu",
                     (unsigned long long)atomic_load_explicit(request->word, memory_order_relaxed),
                     (unsigned long long)request->value);
            weft_p2p_request_end(request, WEFT_ERR_PEER, text);
        }
    }
}

void weft_p2p_fail_of_anybody(struct weft_p2p_comm *comm)
{
    struct weft_match_receive *receive;
    struct weft_list probes;
    struct weft_list *node;
    if (!weft_p2p_is_alone(comm)) {
        return;
    }
    while ((receive = weft_match_any_receive(&comm->match, WEFT_MATCH_ANY)) != NULL) {
        weft_p2p_request_end(WEFT_CONTAINER_OF(receive, struct weft_request, receive),
                             WEFT_ERR_PEER, WEFT_P2P_ALONE);
    }
    weft_list_move(&comm->probes, &probes);
    while ((node = weft_list_take(&probes)) != NULL) {
        weft_p2p_request_end(WEFT_CONTAINER_OF(node, struct weft_request, node), WEFT_ERR_PEER,
                             WEFT_P2P_ALONE);
    }
    fail_signals(comm);
}

void weft_p2p_fail_of_anybody_everywhere(struct weft_p2p *p2p)
{
    for (struct weft_list *node = p2p->comms.next; node != &p2p->comms; node = node->next) {
        weft_p2p_fail_of_anybody(WEFT_CONTAINER_OF(node, struct weft_p2p_comm, node));
    }
}

void weft_p2p_replies_free(struct weft_list *list)
{
    struct weft_list *node;
    while ((node = weft_list_take(list)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct weft_p2p_reply, node));
    }
}

/* Requests that are in no list of the peer but wait for its lane. */
static void fail_active(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer)
{
    struct weft_list all; /* ending one may end others, which then leave this list too */
    struct weft_list *node;
    weft_list_move(&comm->active, &all);
    while ((node = weft_list_take(&all)) != NULL) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, active);
        weft_list_append(&comm->active, node);
        if (request->peer == peer) {
            request->lent = 0;
            if (request->is_ended) {
                weft_p2p_request_settle(request);
            } else {
                weft_p2p_request_end(request, peer->gone_status, peer->gone_text);
            }
        }
    }
}

/* What this rank lacks is not the other one's fault. */
static bool is_ours(weft_status_t status)
{
    return status == WEFT_ERR_SYSTEM || status == WEFT_ERR_MEMORY;
}

void weft_p2p_tell_members(const struct weft_p2p_comm *comm, const struct weft_p2p_peer *peer)
{
    const struct weft_p2p_spec *spec = &comm->p2p->spec;
    if (peer->is_gone && !spec->is_gone(spec->context, peer->link.peer) &&
        weft_p2p_source(comm, peer) != WEFT_WIRE_NO_RANK) {
        spec->fail(spec->context,
                   &(struct weft_p2p_failure){.comm = comm->channel,
                                              .status = peer->gone_status,
                                              .rank = is_ours(peer->gone_status)
                                                          ? weft_p2p_job_rank(comm, comm->rank)
                                                          : peer->link.peer,
                                              .text = peer->gone_text},
                   false);
    }
}

/* When no copy from or to its memory is under way. */
static void peer_fail_now(struct weft_p2p_peer *peer)
{
    static const size_t lists[] = {
        offsetof(struct weft_p2p_peer, waiting), offsetof(struct weft_p2p_peer, sends),
        offsetof(struct weft_p2p_peer, incoming), offsetof(struct weft_p2p_peer, gets),
        offsetof(struct weft_p2p_peer, flushes)};
    struct weft_p2p *p2p = peer->p2p;
    peer->is_gone = true;
    peer->is_going = false;
    p2p->going--;
    weft_link_close(&peer->link);
    peer->lent = 0;
    peer->placing_request = NULL;
    if (peer->placing_arrival != NULL) {
        weft_p2p_arrival_drop(peer->placing_arrival);
    }
    if (peer->placing_orphan != NULL) {
        weft_list_remove(&peer->placing_orphan->node);
        free(peer->placing_orphan);
        peer->placing_orphan = NULL;
    }
    peer->placing = PLACE_NOTHING;
    memset(peer->pieces, 0, sizeof(peer->pieces));
    fail_list(&peer->streams, offsetof(struct weft_request, stream), peer);
    for (size_t i = 0; i < WEFT_COUNT_OF(lists); i++) {
        fail_list((struct weft_list *)(void *)((char *)peer + lists[i]),
                  offsetof(struct weft_request, node), peer);
    }
    weft_p2p_replies_free(&peer->replies);
    weft_p2p_replies_free(&peer->held);
    for (struct weft_list *node = p2p->comms.next; node != &p2p->comms; node = node->next) {
        struct weft_p2p_comm *comm = WEFT_CONTAINER_OF(node, struct weft_p2p_comm, node);
        fail_receives(comm, peer);
        weft_p2p_fail_of_anybody(comm);
        fail_active(comm, peer);
        weft_p2p_tell_members(comm, peer);
    }
}

/* Only marks it: what it sent before is taken first, and the end is made between two polls. */
static void mark_going(struct weft_p2p_peer *peer, weft_status_t status, const char *text)
{
    if (!peer->is_gone && !peer->is_going) {
        weft_engine_timer_cancel(peer->p2p->engine, &peer->grace);
        peer->is_going = true;
        peer->p2p->going++;
        peer->gone_status = status;
        snprintf(peer->gone_text, sizeof(peer->gone_text), "%s", text);
    }
}

void weft_p2p_peer_fail(struct weft_p2p_peer *peer, weft_status_t status, const char *text)
{
    const struct weft_p2p_spec *spec = &peer->p2p->spec;
    char name[128];
    char words[WEFT_P2P_TEXT];
    spec->name(spec->context, peer->link.peer, name, sizeof(name));
    snprintf(words, sizeof(words), "%s: %s", name, text);
    mark_going(peer, status, words);
}

bool weft_p2p_reaches(struct weft_p2p *p2p, uint32_t rank, bool *is_alive_p)
{
    struct weft_p2p_peer *peer = p2p->peers[rank];
    return peer != NULL && !peer->is_gone && !peer->is_going &&
           weft_link_reaches(&peer->link, is_alive_p);
}

void weft_p2p_gone(struct weft_p2p *p2p, uint32_t rank, weft_status_t status, const char *text)
{
    p2p->has_gone = true;
    if (p2p->peers[rank] != NULL) { /* who comes to know it later asks */
        mark_going(p2p->peers[rank], status, text);
    } else {
        weft_p2p_fail_of_anybody_everywhere(p2p);
    }
}

/* A rank that closes or dies loses its lanes too, and the control plane says so a little later, in
 * better words. Only when it stays silent is it the path that is lost. */
void weft_p2p_peer_lost(struct weft_p2p_peer *peer, weft_status_t status, const char *text)
{
    if (peer->is_gone || peer->is_going) {
        return;
    }
    if (status != WEFT_ERR_PEER && status != WEFT_ERR_NETWORK) {
        weft_p2p_peer_fail(peer, status, text);
        return;
    }
    snprintf(peer->gone_text, sizeof(peer->gone_text), "%s", text);
    peer->graces = 0;
    weft_engine_timer_set(peer->p2p->engine, &peer->grace, weft_clock_after_ms(GRACE_MS));
}

/* Who has closed in good order says so over the control plane, too, and the path of that may be dead just now: it comes back,
 * or is found dead. */
static bool is_word_due(struct weft_p2p_peer *peer)
{
    const struct weft_p2p_spec *spec = &peer->p2p->spec;
    int64_t path_ms = spec->links.port.params->number[WEFT_PARAM_PATH_TIMEOUT];
    bool is_ending = spec->is_ending != NULL && peer->graces < GRACES &&
                     spec->is_ending(spec->context, peer->link.peer);
    return is_ending || (peer->link.is_ended && peer->graces <= path_ms / GRACE_MS);
}

static void grace_is_over(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_p2p_peer *peer = WEFT_CONTAINER_OF(timer, struct weft_p2p_peer, grace);
    char text[WEFT_P2P_TEXT];
    (void)now_ns;
    if (is_word_due(peer)) {
        peer->graces++;
        if (!peer->is_going) { /* who must tell us stands still, perhaps */
            weft_engine_timer_set(peer->p2p->engine, timer, weft_clock_after_ms(GRACE_MS));
        }
        return;
    }
    memcpy(text, peer->gone_text, sizeof(text));
    weft_p2p_peer_fail(peer, WEFT_ERR_NETWORK, text);
}

void weft_p2p_fail_going(struct weft_p2p *p2p)
{
    for (struct weft_list *node = p2p->all_peers.next; node != &p2p->all_peers; node = node->next) {
        struct weft_p2p_peer *peer = WEFT_CONTAINER_OF(node, struct weft_p2p_peer, node);
        if (peer->is_going) {
            peer_fail_now(peer);
        }
    }
}
