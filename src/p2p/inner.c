/* SPDX-License-Identifier: Apache-2.0 */
/* What collectives need of messages: requests that ring a bell, requests that somebody else ends, and the
 * memory of peers of this host. */
#include "p2p/internal.h"

#include <string.h>

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

bool weft_p2p_has_group(const struct weft_p2p_comm *comm)
{
    return weft_p2p_group_is_open(comm);
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
    if (peer == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a peer");
    }
    if (peer->is_gone || peer->link.state == WEFT_LINK_DOWN) {
        return weft_fail(WEFT_ERR_PEER, "rank %u is gone", rank);
    }
    if (peer->link.state != WEFT_LINK_UP) {
        weft_link_want(&peer->link);
        return weft_fail(WEFT_ERR_BUSY, "the link to rank %u opens", rank);
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
    return *mapping_p != NULL ? WEFT_OK : weft_fail(WEFT_ERR_BUSY, "the mapping is going");
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
