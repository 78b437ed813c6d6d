/* SPDX-License-Identifier: Apache-2.0 */
/* What collectives need of messages: requests that ring a bell, requests that somebody else ends, and the
 * memory of peers of this host. */
#include "p2p/internal.h"

#include <string.h>

#define STRAY_SWEEP_MS 100

struct weft_engine *weft_p2p_engine(const struct weft_p2p_comm *comm)
{
    return comm->p2p->engine;
}

void weft_p2p_comm_set_channel(struct weft_p2p_comm *comm, uint64_t channel)
{
    comm->channel = channel;
}

const _Atomic uint32_t *weft_p2p_comm_ended(const struct weft_p2p_comm *comm)
{
    return &comm->ended;
}

const char *weft_p2p_comm_text(const struct weft_p2p_comm *comm)
{
    return comm->text;
}

void weft_p2p_comm_name(const struct weft_p2p_comm *comm, uint32_t rank, char *text, size_t room)
{
    weft_p2p_name(comm, rank, text, room);
}

void weft_p2p_comm_fail(struct weft_p2p_comm *comm, weft_status_t status, uint32_t rank,
                        const char *text, bool is_final)
{
    struct weft_p2p *p2p = comm->p2p;
    const struct weft_p2p_failure failure = {
        .comm = comm->channel,
        .status = status,
        .rank = rank < comm->ranks ? weft_p2p_job_rank(comm, rank) : WEFT_WIRE_NO_RANK,
        .text = text};
    weft_engine_lock(p2p->engine);
    p2p->spec.fail(p2p->spec.context, &failure, false); /* the others must hear of it */
    if (is_final) {
        p2p->spec.fail(p2p->spec.context, &failure, true);
    }
    weft_engine_unlock(p2p->engine);
}

/* ---- members tell each other ---- */

const _Atomic uint32_t *weft_p2p_comm_told(const struct weft_p2p_comm *comm)
{
    return &comm->told;
}

void weft_p2p_tell_ended(struct weft_p2p_comm *comm, weft_status_t status)
{
    const struct weft_wire_data frame = {
        .type = WEFT_DATA_ENDED, .comm = comm->id, .a = (uint64_t)status};
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        struct weft_p2p_peer *peer = comm->peers[rank];
        if (peer != NULL && !peer->is_gone && !peer->is_going && peer->link.state == WEFT_LINK_UP) {
            weft_p2p_reply(peer, &frame);
        }
    }
}

void weft_p2p_ended_arrived(struct weft_p2p_comm *comm, const struct weft_wire_data *frame)
{
    bool is_status = frame->a > WEFT_OK && frame->a <= WEFT_ERR_UNSUPPORTED;
    atomic_store(&comm->told, is_status ? (uint32_t)frame->a : WEFT_ERR_PROTOCOL);
}

void weft_p2p_comm_set_stray(struct weft_p2p_comm *comm, weft_p2p_stray_fn ask, void *owner)
{
    weft_engine_lock(comm->p2p->engine);
    comm->strays = (struct weft_p2p_strays){.ask = ask, .owner = owner};
    if (ask != NULL && comm->match.arrival_count > 0) {
        weft_p2p_strays_watch(comm);
    }
    weft_engine_unlock(comm->p2p->engine);
}

void weft_p2p_strays_watch(const struct weft_p2p_comm *comm)
{
    struct weft_p2p *p2p = comm->p2p;
    if (weft_list_is_empty(&p2p->sweep.node)) {
        weft_engine_timer_set(p2p->engine, &p2p->sweep, weft_clock_after_ms(STRAY_SWEEP_MS));
    }
}

bool weft_p2p_strays_look(struct weft_p2p_comm *comm)
{
    struct weft_p2p_strays *strays = &comm->strays;
    const struct weft_match_arrival *oldest;
    if (strays->ask == NULL || atomic_load(&comm->ended) != WEFT_OK ||
        (oldest = weft_match_any_arrival(&comm->match, WEFT_MATCH_ANY)) == NULL) {
        return false;
    }
    if (strays->sweeps == 0 || strays->source != oldest->source || strays->tag != oldest->tag) {
        strays->source = oldest->source;
        strays->tag = oldest->tag;
        strays->sweeps = 1;
        return true;
    }
    strays->sweeps++;
    if ((strays->sweeps & (strays->sweeps - 1)) == 0) {
        strays->ask(strays->owner, strays->source, strays->tag);
    }
    return true;
}

/* ---- requests ---- */

weft_status_t weft_p2p_post(struct weft_p2p_comm *comm, const struct weft_p2p_item *item,
                            weft_request_t *request_p)
{
    struct weft_request *request =
        weft_p2p_request_take(comm, item->is_send ? REQUEST_SEND : REQUEST_RECV);
    if (request == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a request");
    }
    request->data = item->slice.data;
    request->len = item->slice.len;
    request->rank = item->rank;
    request->tag = item->tag;
    request->bell = item->bell;
    return weft_p2p_request_run(request, request_p);
}

bool weft_p2p_is_done(weft_request_t request)
{
    return atomic_load_explicit(&request->is_done, memory_order_acquire) != 0;
}

weft_status_t weft_p2p_result(weft_request_t request)
{
    return request->status;
}

size_t weft_p2p_received(weft_request_t request)
{
    return request->message.len;
}

weft_request_t weft_p2p_outer_open(struct weft_p2p_comm *comm, bool is_grouped)
{
    struct weft_request *request = weft_p2p_request_take(comm, REQUEST_OUTER);
    if (request != NULL) {
        request->rank = WEFT_MATCH_ANY;
        if (is_grouped) {
            weft_p2p_group_add(comm, request);
        }
    }
    return request;
}

void weft_p2p_outer_record(weft_request_t request, uint64_t record)
{
    request->record = record;
}

bool weft_p2p_has_group(const struct weft_p2p_comm *comm)
{
    return weft_p2p_group_is_open(comm);
}

bool weft_p2p_outer_limit(weft_request_t request, uint64_t *deadline_ns_p, uint64_t *timeout_ms_p)
{
    *deadline_ns_p = request->deadline_ns;
    *timeout_ms_p = request->timeout_ms;
    return request->deadline_ns != 0;
}

void weft_p2p_outer_end(weft_request_t request, weft_status_t status, const char *text)
{
    weft_p2p_request_end(request, status, text);
}

/* ---- the memory of peers, under the lock ---- */

weft_status_t weft_p2p_map(struct weft_p2p_comm *comm, uint32_t rank,
                           const struct weft_p2p_place *place, void **memory_p,
                           struct weft_mem_mapping **mapping_p)
{
    struct weft_p2p_peer *peer = weft_p2p_comm_peer(comm, rank);
    struct weft_lane *lane;
    weft_status_t status;
    void *memory;
    char name[128];
    if (peer == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a peer");
    }
    if (peer->is_gone || peer->link.state == WEFT_LINK_DOWN) {
        weft_p2p_name(comm, rank, name, sizeof(name));
        return weft_fail(WEFT_ERR_PEER, "%s is gone", name);
    }
    if (peer->link.state != WEFT_LINK_UP) {
        weft_link_want(&peer->link);
        return WEFT_ERR_BUSY; /* it opens: not a failure, so no words */
    }
    lane = peer->link.lane;
    if ((lane->caps & WEFT_LANE_MAPS) == 0) {
        return weft_fail(WEFT_ERR_UNSUPPORTED, "memory of rank %u cannot be mapped", rank);
    }
    status = lane->ops->map(lane, place->region, place->offset, place->len, &memory);
    if (status != WEFT_OK) {
        return status;
    }
    *mapping_p = lane->ops->hold(lane, memory, place->len);
    *memory_p = memory;
    return *mapping_p != NULL ? WEFT_OK : WEFT_ERR_BUSY; /* it is going */
}

void weft_p2p_nudge(struct weft_p2p_comm *comm, uint32_t rank)
{
    struct weft_p2p_peer *peer = weft_p2p_comm_peer(comm, rank);
    if (peer == NULL || peer->is_gone) {
        return;
    }
    if (peer->link.state == WEFT_LINK_UP) {
        peer->link.lane->ops->nudge(peer->link.lane);
    } else {
        weft_link_want(&peer->link); /* being dialled wakes it too */
    }
}
