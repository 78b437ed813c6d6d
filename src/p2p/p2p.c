/* SPDX-License-Identifier: Apache-2.0 */
/* The room's spine: what a poll round brings goes to the file that knows it, what waits for a link goes
 * on when it can, what needs a peer that is gone fails. */
#include "p2p/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS 8

/* ---- events ---- */

struct weft_p2p_comm *weft_p2p_find_comm(struct weft_p2p *p2p, uint64_t id)
{
    if (p2p->latest != NULL && p2p->latest->id == id) {
        return p2p->latest;
    }
    for (struct weft_list *node = p2p->comms.next; node != &p2p->comms; node = node->next) {
        struct weft_p2p_comm *comm = WEFT_CONTAINER_OF(node, struct weft_p2p_comm, node);
        if (comm->id == id) {
            p2p->latest = comm;
            return comm;
        }
    }
    return NULL;
}

void weft_p2p_place(struct weft_p2p_peer *peer, const struct weft_done *done,
                    enum weft_p2p_placing placing, void *data)
{
    const struct weft_slice slice = {.data = data, .len = done->frame.len};
    if (weft_wire_data_is_bulk(&done->frame)) {
        peer->pieces[done->lane->slot].placing = placing;
    } else {
        peer->placing = placing;
    }
    weft_link_place(&peer->link, done, &slice);
}

void weft_p2p_unplace_pieces(struct weft_p2p_peer *peer, const struct weft_request *request)
{
    for (uint32_t i = 0; i < WEFT_LINK_SLOTS; i++) {
        if (peer->pieces[i].request == request) {
            peer->pieces[i] = (struct weft_p2p_piece){.placing = PLACE_SINK};
            weft_link_unplace_slot(&peer->link, i);
        }
    }
}

/* What came by that slot comes again by another. */
static void unplace(void *context, struct weft_link *link, uint32_t slot)
{
    struct weft_p2p_peer *peer = WEFT_CONTAINER_OF(link, struct weft_p2p_peer, link);
    (void)context;
    peer->pieces[slot] = (struct weft_p2p_piece){.placing = PLACE_NOTHING};
}

static void hold_orphan(struct weft_p2p_peer *peer, const struct weft_wire_data *frame)
{
    if (frame->type == WEFT_DATA_EAGER && !weft_link_hold(&peer->link, frame->len)) {
        weft_p2p_peer_fail(peer, WEFT_ERR_PROTOCOL, "sent more ahead of our receives than it may");
    }
}

static void unhold_orphan(const struct weft_p2p_orphan *orphan)
{
    if (orphan->done.frame.type == WEFT_DATA_EAGER) {
        weft_link_unhold(&orphan->peer->link, orphan->done.frame.len);
    }
}

void weft_p2p_forget(struct weft_p2p *p2p, uint64_t id)
{
    struct weft_list *node = p2p->orphans.next;
    p2p->closed[p2p->closed_next++ % WEFT_P2P_CLOSED] = id;
    while (node != &p2p->orphans) {
        struct weft_p2p_orphan *orphan = WEFT_CONTAINER_OF(node, struct weft_p2p_orphan, node);
        node = node->next;
        if (orphan->done.frame.comm == id && orphan->is_whole) {
            weft_list_remove(&orphan->node);
            unhold_orphan(orphan);
            weft_p2p_sink(orphan->peer, &orphan->done.frame);
            free(orphan);
        }
    }
}

/* Envelopes of a communicator that is about to be opened wait for it, and so does the word that a rank has closed
 * it; of a closed one they go. */
static void keep_orphan(struct weft_p2p *p2p, struct weft_p2p_peer *peer,
                        const struct weft_done *done)
{
    const struct weft_wire_data *frame = &done->frame;
    struct weft_p2p_orphan *orphan = NULL;
    bool is_kept = frame->type == WEFT_DATA_EAGER || frame->type == WEFT_DATA_ANNOUNCE ||
                   frame->type == WEFT_DATA_HINT ||
                   (frame->type == WEFT_DATA_BYE && frame->comm != 0);
    if (is_kept && !weft_p2p_is_closed(p2p, frame->comm)) {
        orphan = malloc(sizeof(*orphan) + frame->len);
        if (orphan == NULL) {
            weft_p2p_peer_fail(peer, WEFT_ERR_MEMORY, "no memory for an early message");
        } else {
            hold_orphan(peer, frame);
            orphan->peer = peer;
            orphan->is_whole = true;
            orphan->done = *done;
            orphan->done.token = 0;
            orphan->done.payload = orphan->payload;
            if (frame->len > 0) {
                memcpy(orphan->payload, done->payload, frame->len);
            }
            weft_list_append(&p2p->orphans, &orphan->node);
        }
    } else {
        weft_p2p_sink(peer, frame);
    }
    if (done->token != 0) {
        done->lane->ops->release(done->lane, done->token);
    }
}

/* Before anything is allocated for it. */
static bool is_too_long(struct weft_p2p *p2p, struct weft_p2p_peer *peer,
                        const struct weft_wire_data *frame)
{
    if (frame->type != WEFT_DATA_EAGER || frame->len <= p2p->eager) {
        return false;
    }
    weft_p2p_peer_fail(peer, WEFT_ERR_PROTOCOL,
                       "sent a longer message ahead of its receive than was agreed (WEFT_EAGER)");
    return true;
}

static void frame_arrived(struct weft_p2p *p2p, struct weft_p2p_peer *peer,
                          const struct weft_done *done)
{
    struct weft_p2p_comm *comm = weft_p2p_find_comm(p2p, done->frame.comm);
    if (is_too_long(p2p, peer, &done->frame)) {
        return;
    }
    if (comm == NULL || weft_p2p_source(comm, peer) == WEFT_WIRE_NO_RANK) {
        keep_orphan(p2p, peer, done);
        return;
    }
    switch (done->frame.type) {
    case WEFT_DATA_EAGER:
    case WEFT_DATA_ANNOUNCE:
        weft_p2p_envelope_arrived(comm, peer, done);
        return;
    case WEFT_DATA_CHUNK:
        weft_p2p_chunk_arrived(peer, done);
        return;
    case WEFT_DATA_PUT:
    case WEFT_DATA_GET:
    case WEFT_DATA_SIGNAL:
    case WEFT_DATA_FLUSH:
        weft_p2p_target_arrived(peer, done);
        return;
    case WEFT_DATA_PART:
    case WEFT_DATA_FLUSHED:
        weft_p2p_origin_arrived(peer, done);
        return;
    case WEFT_DATA_GRANT:
        weft_p2p_grant_arrived(peer, &done->frame);
        break;
    case WEFT_DATA_DONE:
        weft_p2p_done_arrived(peer, &done->frame);
        break;
    case WEFT_DATA_HINT:
        weft_p2p_hint_arrived(comm, weft_p2p_source(comm, peer), &done->frame);
        break;
    case WEFT_DATA_ENDED:
        weft_p2p_ended_arrived(comm, &done->frame);
        break;
    case WEFT_DATA_BYE:
        weft_p2p_bye_arrived(comm, peer, &done->frame);
        break;
    default: /* what later versions may add */
        break;
    }
    if (done->token != 0) {
        done->lane->ops->release(done->lane, done->token);
    }
}

/* It joins the orphans now, so that their order is kept, and is looked at when it is whole. */
static void early_header(struct weft_p2p *p2p, struct weft_p2p_peer *peer,
                         const struct weft_done *done)
{
    bool is_wanted =
        done->frame.type == WEFT_DATA_EAGER && !weft_p2p_is_closed(p2p, done->frame.comm);
    struct weft_p2p_orphan *orphan = is_wanted ? malloc(sizeof(*orphan) + done->frame.len) : NULL;
    if (orphan == NULL) {
        if (is_wanted) {
            weft_p2p_peer_fail(peer, WEFT_ERR_MEMORY, "no memory for an early message");
        } else {
            weft_p2p_sink(peer, &done->frame);
        }
        weft_p2p_place(peer, done, PLACE_SINK, NULL);
        return;
    }
    hold_orphan(peer, &done->frame);
    orphan->peer = peer;
    orphan->done = *done;
    orphan->done.kind = WEFT_DONE_ARRIVED;
    orphan->done.token = 0;
    orphan->done.payload = orphan->payload;
    orphan->is_whole = false;
    weft_list_append(&p2p->orphans, &orphan->node);
    peer->placing_orphan = orphan;
    weft_p2p_place(peer, done, PLACE_ORPHAN, orphan->payload);
}

void weft_p2p_orphan_landed(struct weft_p2p_peer *peer)
{
    struct weft_p2p_orphan *orphan = peer->placing_orphan;
    peer->placing_orphan = NULL;
    orphan->is_whole = true;
    if (weft_p2p_find_comm(peer->p2p, orphan->done.frame.comm) != NULL ||
        weft_p2p_is_closed(peer->p2p, orphan->done.frame.comm)) {
        weft_list_remove(&orphan->node);
        unhold_orphan(orphan);
        frame_arrived(peer->p2p, peer, &orphan->done);
        free(orphan);
    }
}

static void header_arrived(struct weft_p2p *p2p, struct weft_p2p_peer *peer,
                           const struct weft_done *done)
{
    struct weft_p2p_comm *comm = weft_p2p_find_comm(p2p, done->frame.comm);
    bool is_bulk = weft_wire_data_is_bulk(&done->frame);
    if (is_too_long(p2p, peer, &done->frame)) {
        weft_p2p_place(peer, done, PLACE_SINK, NULL);
        return;
    }
    if (is_bulk) {
        peer->pieces[done->lane->slot] = (struct weft_p2p_piece){.placing = PLACE_NOTHING};
    }
    if (comm == NULL || weft_p2p_source(comm, peer) == WEFT_WIRE_NO_RANK) {
        early_header(p2p, peer, done);
        return;
    }
    if (done->frame.type == WEFT_DATA_EAGER) {
        weft_p2p_envelope_place(comm, peer, done);
    } else if (done->frame.type == WEFT_DATA_CHUNK) {
        weft_p2p_chunk_place(peer, done);
    } else if (done->frame.type == WEFT_DATA_PUT) {
        weft_p2p_put_place(peer, done);
    } else if (done->frame.type == WEFT_DATA_PART) {
        weft_p2p_part_place(peer, done);
    } else {
        weft_p2p_peer_fail(peer, WEFT_ERR_PROTOCOL, "sent a frame that is too long");
    }
    if ((is_bulk ? peer->pieces[done->lane->slot].placing : peer->placing) == PLACE_NOTHING) {
        weft_p2p_place(peer, done, PLACE_SINK, NULL); /* refused */
    }
}

static void peer_lost(struct weft_p2p_peer *peer, const struct weft_done *done)
{
    char text[WEFT_P2P_TEXT];
    if (done->lane == NULL) {
        weft_p2p_peer_fail(peer, done->status, done->text);
        return;
    }
    snprintf(text, sizeof(text), "the connection (%s) is lost: %s", done->lane->peer_text,
             done->text);
    weft_p2p_peer_lost(peer, done->status, text);
}

static void event(struct weft_p2p *p2p, const struct weft_done *done)
{
    struct weft_link *link = done->owner;
    struct weft_p2p_peer *peer = WEFT_CONTAINER_OF(link, struct weft_p2p_peer, link);
    switch (done->kind) {
    case WEFT_DONE_ARRIVED:
        frame_arrived(p2p, peer, done);
        break;
    case WEFT_DONE_HEADER:
        header_arrived(p2p, peer, done);
        break;
    case WEFT_DONE_LANDED:
        weft_p2p_landed(peer, done);
        break;
    case WEFT_DONE_SENT:
        if (weft_p2p_is_puts_cookie(done->cookie)) {
            weft_p2p_pump(peer);
        } else {
            weft_p2p_sent(peer, done->cookie);
        }
        break;
    case WEFT_DONE_WRITABLE:
    case WEFT_DONE_OPENED:
        weft_p2p_pump(peer);
        break;
    case WEFT_DONE_LOST:
        peer_lost(peer, done);
        break;
    }
}

/* ---- the poller ---- */

void weft_p2p_word_heard(struct weft_p2p *p2p, const struct weft_lane_word *word)
{
    struct weft_p2p_peer *peer =
        WEFT_CONTAINER_OF((struct weft_link *)word->lane->owner, struct weft_p2p_peer, link);
    struct weft_p2p_comm *comm = weft_p2p_find_comm(p2p, word->comm);
    if (comm != NULL && weft_p2p_source(comm, peer) != WEFT_WIRE_NO_RANK) {
        weft_p2p_word_arrived(comm, peer, word);
    } else {
        const struct weft_done done = {.kind = WEFT_DONE_ARRIVED,
                                       .lane = word->lane,
                                       .frame = {.type = WEFT_DATA_EAGER,
                                                 .len = word->len,
                                                 .comm = word->comm,
                                                 .tag = word->tag},
                                       .payload = word->payload};
        keep_orphan(p2p, peer, &done);
    }
}

static bool poll(struct weft_engine_poller *poller)
{
    struct weft_p2p *p2p = WEFT_CONTAINER_OF(poller, struct weft_p2p, poller);
    struct weft_done done[EVENTS];
    struct weft_lane_word word;
    unsigned count;
    /* One of the shortest messages, if that is what comes next: then nothing else is looked at. */
    if (++p2p->polls % WEFT_P2P_HEARD_BETWEEN != 0 && weft_links_hear(p2p->links, &word)) {
        weft_p2p_word_heard(p2p, &word);
        poller->word = NULL; /* more may be there */
        return true;
    }
    count = weft_links_poll(p2p->links, done, EVENTS);
    for (unsigned i = 0; i < count; i++) {
        event(p2p, &done[i]);
    }
    if (!weft_list_is_empty(&p2p->signals)) {
        weft_p2p_signals_check(p2p);
    }
    poller->word = p2p->going == 0 && weft_list_is_empty(&p2p->signals)
                       ? weft_links_watch(p2p->links, &poller->value)
                       : NULL;
    if (count == 0 && p2p->going > 0 && !weft_engine_has_works(p2p->engine)) {
        weft_p2p_fail_going(p2p);
        return true;
    }
    return count > 0;
}

static bool arm(struct weft_engine_poller *poller)
{
    struct weft_p2p *p2p = WEFT_CONTAINER_OF(poller, struct weft_p2p, poller);
    bool is_quiet = weft_links_arm(p2p->links) && p2p->going == 0;
    weft_p2p_signals_check(p2p); /* a word that was written before we said that we sleep */
    return is_quiet;
}

static void disarm(struct weft_engine_poller *poller)
{
    weft_links_disarm(WEFT_CONTAINER_OF(poller, struct weft_p2p, poller)->links);
}

/* ---- opening and closing ---- */

static bool call_peer(void *context, uint32_t to, const void *payload, size_t len)
{
    const struct weft_p2p *p2p = context;
    return p2p->spec.call(p2p->spec.context, to, payload, len);
}

static struct weft_link *find_link(void *context, uint32_t rank)
{
    struct weft_p2p_peer *peer = weft_p2p_peer_of(context, rank);
    return peer != NULL ? &peer->link : NULL;
}

void weft_p2p_called(struct weft_p2p *p2p, uint32_t from, const uint8_t *payload, size_t len)
{
    struct weft_p2p_peer *peer = weft_p2p_peer_of(p2p, from);
    weft_links_called(p2p->links, from, payload, len);
    if (peer != NULL && peer->link.state == WEFT_LINK_DOWN) {
        weft_p2p_peer_fail(peer, peer->link.status, peer->link.text);
    }
}

weft_status_t weft_p2p_open(const struct weft_p2p_spec *spec, struct weft_p2p **p2p_p)
{
    struct weft_p2p *p2p = calloc(1, sizeof(*p2p));
    const struct weft_params *params = spec->links.port.params;
    int64_t cma = params->number[WEFT_PARAM_CMA];
    struct weft_links_spec links;
    weft_status_t status;
    if (p2p == NULL || (p2p->peers = calloc(spec->links.port.self->ranks,
                                            sizeof(struct weft_p2p_peer *))) == NULL) {
        free(p2p);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for messages");
    }
    p2p->spec = *spec;
    p2p->engine = spec->links.port.engine;
    p2p->generation = weft_process_generation();
    p2p->self = spec->links.port.self->rank;
    p2p->ranks = spec->links.port.self->ranks;
    p2p->eager = (size_t)params->number[WEFT_PARAM_EAGER];
    p2p->may_pull = cma == 1 || (cma == 0 && spec->is_crowded);
    weft_list_open(&p2p->comms);
    weft_list_open(&p2p->all_peers);
    weft_list_open(&p2p->orphans);
    weft_list_open(&p2p->signals);
    weft_p2p_arrivals_open(p2p);
    for (int i = 0; i < WEFT_P2P_JOBS; i++) {
        p2p->jobs[i].next = p2p->free_jobs;
        p2p->free_jobs = &p2p->jobs[i];
    }
    weft_engine_timer_open(&p2p->sweep, weft_p2p_sweep);
    p2p->poller = (struct weft_engine_poller){.poll = poll, .arm = arm, .disarm = disarm};
    weft_list_open(&p2p->poller.node);
    links = spec->links;
    links.context = p2p;
    links.call = call_peer;
    links.find = find_link;
    links.unplace = unplace;
    status = weft_links_open(&links, &p2p->links);
    if (status != WEFT_OK) {
        free(p2p->peers);
        free(p2p);
        return status;
    }
    *p2p_p = p2p;
    return WEFT_OK;
}

/* Also those that their owners never asked for again. */
static void free_requests(struct weft_p2p *p2p)
{
    while (p2p->newest != NULL) {
        struct weft_request *request = p2p->newest;
        p2p->newest = request->older;
        free(request->text);
        free(request);
    }
}

void weft_p2p_close(struct weft_p2p *p2p)
{
    struct weft_list *node;
    if (p2p == NULL) {
        return;
    }
    weft_engine_lock(p2p->engine);
    weft_engine_work_flush(p2p->engine);
    weft_engine_poller_remove(p2p->engine, &p2p->poller);
    weft_engine_timer_cancel(p2p->engine, &p2p->sweep);
    while ((node = weft_list_take(&p2p->orphans)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct weft_p2p_orphan, node));
    }
    while ((node = weft_list_take(&p2p->all_peers)) != NULL) {
        struct weft_p2p_peer *peer = WEFT_CONTAINER_OF(node, struct weft_p2p_peer, node);
        weft_engine_timer_cancel(p2p->engine, &peer->grace);
        weft_link_close(&peer->link);
        weft_p2p_replies_free(&peer->replies);
        weft_p2p_replies_free(&peer->held);
        free(peer);
    }
    weft_links_close(p2p->links);
    weft_engine_unlock(p2p->engine);
    free_requests(p2p);
    weft_p2p_arrivals_close(p2p);
    weft_mem_free((void *)p2p->valid);
    free(p2p->registrations);
    free(p2p->peers);
    free(p2p);
}

void weft_p2p_adopt_orphans(struct weft_p2p *p2p, struct weft_p2p_comm *comm)
{
    struct weft_list *node = p2p->orphans.next;
    while (node != &p2p->orphans) {
        struct weft_p2p_orphan *orphan = WEFT_CONTAINER_OF(node, struct weft_p2p_orphan, node);
        node = node->next;
        if (orphan->done.frame.comm == comm->id && orphan->is_whole) {
            weft_list_remove(&orphan->node);
            unhold_orphan(orphan);
            frame_arrived(p2p, orphan->peer, &orphan->done);
            free(orphan);
        }
    }
}
