/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that wait for one-sided operations: a signal, quiet, the fence. */
#include "p2p/internal.h"

#include <stdio.h>
#include <string.h>

weft_status_t weft_p2p_side_check(const struct weft_p2p_comm *comm)
{
    weft_status_t ended = atomic_load_explicit(&comm->ended, memory_order_acquire);
    return ended == WEFT_OK ? WEFT_OK : weft_fail(ended, "%s", comm->text);
}

weft_status_t weft_p2p_side_settle(struct weft_p2p_comm *comm, weft_status_t status)
{
    char text[WEFT_P2P_TEXT];
    if (status == WEFT_OK || atomic_load(&comm->ended) == WEFT_OK) {
        return status;
    }
    snprintf(text, sizeof(text), "%s", weft_error_text());
    weft_engine_lock(comm->p2p->engine); /* who ends it has taken back what lanes had */
    weft_engine_work_flush(comm->p2p->engine);
    weft_engine_unlock(comm->p2p->engine);
    weft_fail_record(status, "%s", text);
    return status;
}

weft_status_t weft_p2p_wait_signal(struct weft_p2p_comm *comm, const uint64_t *signal,
                                   uint64_t value, uint32_t timeout_ms)
{
    struct weft_request *request;
    weft_request_t handle = NULL;
    weft_status_t status;
    const _Atomic uint64_t *word = (const _Atomic uint64_t *)(const void *)signal;
    if (atomic_load_explicit(word, memory_order_acquire) >= value) {
        return WEFT_OK;
    }
    request = weft_p2p_request_take(comm, REQUEST_SIGNAL);
    if (request == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to wait for a signal");
    }
    request->word = word;
    request->value = value;
    request->rank = WEFT_MATCH_ANY;
    request->tag = 0;
    request->len = sizeof(uint64_t);
    weft_p2p_request_record(request, WEFT_RECORD_WAIT_SIGNAL);
    if (timeout_ms != WEFT_NO_LIMIT) {
        request->timeout_ms = WEFT_NO_LIMIT; /* the wait ends, not the communicator */
    }
    status = weft_p2p_request_run(request, &handle);
    status = status == WEFT_OK ? weft_p2p_wait(&handle, timeout_ms) : status;
    if (handle != NULL) { /* the wait is over, and so is the request */
        weft_engine_lock(comm->p2p->engine);
        weft_engine_run_tasks(comm->p2p->engine); /* its beginning may wait there still */
        weft_p2p_request_end(request, WEFT_OK, "");
        if (timeout_ms > 0) { /* who waits again and again, a little each time, has waited too */
            weft_p2p_ask_anybody(comm);
        }
        weft_engine_unlock(comm->p2p->engine);
        weft_p2p_request_give(comm->p2p, request);
        return weft_fail(WEFT_ERR_TIMEOUT, "the signal is below %llu after %u ms",
                         (unsigned long long)value, timeout_ms);
    }
    return status;
}

/* What comes after the fence may take a lane that is not up yet; so how many are up now says nothing. */
static bool needs_fence(const struct weft_p2p_peer *peer)
{
    const struct weft_lane *lane = peer->link.lane;
    return !weft_link_keeps_order(&peer->link) ||
           (lane != NULL && (lane->caps & WEFT_LANE_MAPS) != 0);
}

/* The next rank from `rank` on that has not confirmed all frames; ranks: none. */
static uint32_t next_unconfirmed(struct weft_p2p_comm *comm, uint32_t rank, bool is_fence)
{
    weft_engine_lock(comm->p2p->engine);
    while (rank < comm->ranks && (comm->states[rank].puts == comm->states[rank].flushed ||
                                  (is_fence && !needs_fence(comm->peers[rank])))) {
        rank++;
    }
    weft_engine_unlock(comm->p2p->engine);
    return rank;
}

/* A rank that is gone, or has closed, confirms nothing any more: that is told once. */
static void forget_unconfirmed(struct weft_p2p_comm *comm, uint32_t rank)
{
    weft_engine_lock(comm->p2p->engine);
    if (comm->peers[rank]->is_gone || comm->states[rank].is_closed) {
        comm->states[rank].flushed = comm->states[rank].puts;
    }
    weft_engine_unlock(comm->p2p->engine);
}

/* Asks all of them at once, then waits for each. */
static weft_status_t flush_peers(struct weft_p2p_comm *comm, bool is_fence)
{
    uint32_t rank = next_unconfirmed(comm, 0, is_fence);
    struct weft_request *asked = NULL;
    weft_status_t first = WEFT_OK;
    char text[WEFT_P2P_TEXT];
    for (; rank < comm->ranks; rank = next_unconfirmed(comm, rank + 1, is_fence)) {
        struct weft_request *request = weft_p2p_request_take(comm, REQUEST_FLUSH);
        weft_request_t handle;
        if (request == NULL) {
            first = weft_fail(WEFT_ERR_MEMORY, "no memory to flush puts");
            break;
        }
        request->peer = comm->peers[rank];
        request->rank = rank;
        request->tag = 0;
        request->len = 0;
        weft_p2p_request_record(request, is_fence ? WEFT_RECORD_FENCE : WEFT_RECORD_QUIET);
        weft_p2p_request_run(request, &handle);
        request->next = asked;
        asked = request;
    }
    while (asked != NULL) {
        weft_request_t handle = asked;
        uint32_t asked_rank = asked->rank;
        weft_status_t status;
        asked = asked->next;
        status = weft_p2p_wait(&handle, WEFT_NO_LIMIT);
        if (first == WEFT_OK && status != WEFT_OK) {
            first = status;
            snprintf(text, sizeof(text), "%s", weft_error_text());
        }
        if (status != WEFT_OK) {
            forget_unconfirmed(comm, asked_rank);
        }
    }
    return first == WEFT_OK || first == WEFT_ERR_MEMORY ? first : weft_fail(first, "%s", text);
}

weft_status_t weft_p2p_quiet(struct weft_p2p_comm *comm)
{
    struct weft_request request;
    weft_status_t status = weft_p2p_side_check(comm);
    weft_status_t side, gets;
    char text[WEFT_P2P_TEXT];
    if (status != WEFT_OK) {
        return weft_p2p_side_settle(comm, status);
    }
    status = flush_peers(comm, false);
    snprintf(text, sizeof(text), "%s", status != WEFT_OK ? weft_error_text() : "");
    weft_p2p_request_init(&request, comm, REQUEST_QUIET);
    request.rank = WEFT_MATCH_ANY;
    gets = weft_p2p_request_run(&request, NULL); /* also after an error: the memory must be free */
    if (status == WEFT_OK) {
        status = gets;
    } else {
        weft_fail_record(status, "%s", text);
    }
    weft_engine_lock(comm->p2p->engine);
    side = comm->side_status;
    memcpy(text, comm->side_text, sizeof(text));
    comm->side_status = WEFT_OK;
    weft_engine_unlock(comm->p2p->engine);
    if (status == WEFT_OK && side != WEFT_OK) {
        status = weft_fail(side, "%s", text);
    }
    return weft_p2p_side_settle(comm, status);
}

/* Over one lane frames keep their order, and direct writes theirs; only a mixture, and lanes that may become several,
 * need care. */
weft_status_t weft_p2p_fence(struct weft_p2p_comm *comm)
{
    weft_status_t status = weft_p2p_side_check(comm);
    return status == WEFT_OK ? flush_peers(comm, true) : status;
}
