/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls for messages. Usually a request is filled in and begun; a blocking one lives on the stack.
 *
 * The shortest messages have a shorter way: no request, no list, no frame. Sending, where the lane copies
 * at once; receiving, where the very next thing that comes is what the caller waits for. When it is
 * otherwise they take the usual way, which comes to the same.
 */
#include "p2p/internal.h"

#include <string.h>

#define PROBE_MS 100 /* who probes for less than that cannot hang, and would fill the recorder */

/* ---- the short way; false: nothing was done, or for others ---- */

static inline bool send_quickly(struct weft_p2p_comm *comm, struct weft_slice slice, uint32_t to,
                                uint32_t tag)
{
    struct weft_p2p_peer *peer = comm->peers[to];
    struct weft_p2p_member *member = &comm->states[to];
    struct weft_lane *lane;
    enum weft_post how;
    if (peer == NULL || peer->link.state != WEFT_LINK_UP || !weft_list_is_empty(&peer->waiting) ||
        peer->link.keep_unsent > 0 || member->is_closed ||
        !weft_link_has_credit(&peer->link, slice.len) ||
        atomic_load_explicit(&comm->ended, memory_order_relaxed) != WEFT_OK) {
        return false;
    }
    lane = peer->link.lane;
    if (slice.len <= WEFT_LANE_SAY_MAX && (lane->caps & WEFT_LANE_SAYS) != 0) {
        how = lane->ops->say(lane, comm->id, tag, slice);
    } else if ((lane->caps & WEFT_LANE_SURE) != 0) {
        struct weft_wire_data frame = {.type = WEFT_DATA_EAGER, .comm = comm->id, .tag = tag};
        how = weft_link_send(&peer->link, &frame, &slice, NULL);
    } else {
        return false;
    }
    if (how != WEFT_POST_SENT) {
        return false; /* the long way finds it full too, and asks to be told */
    }
    member->sent++;
    if (member->hinted == 0 || !weft_p2p_hint_take(member, tag)) {
        member->unhinted = member->sent;
    }
    weft_link_spend(&peer->link, slice.len);
    return true;
}

static inline bool try_send(struct weft_p2p_comm *comm, struct weft_slice slice, uint32_t to,
                            uint32_t tag)
{
    struct weft_engine *engine = comm->p2p->engine;
    bool is_sent = false;
    if (weft_engine_enter(engine)) {
        is_sent = send_quickly(comm, slice, to, tag);
        weft_engine_unlock(engine);
    }
    return is_sent;
}

/* Nobody else waits for a message here and none is kept, so the next one is the caller's if it fits. */
static inline bool may_recv_quickly(const struct weft_p2p_comm *comm, uint32_t from)
{
    const struct weft_p2p_peer *peer = from < comm->ranks ? comm->peers[from] : NULL;
    return peer != NULL && peer->link.state == WEFT_LINK_UP &&
           (peer->link.lane->caps & WEFT_LANE_SAYS) != 0 && comm->match.receive_count == 0 &&
           comm->match.arrival_count == 0 && comm->p2p->going == 0 &&
           atomic_load_explicit(&comm->ended, memory_order_relaxed) == WEFT_OK;
}

static inline void take_word(struct weft_p2p_comm *comm, const struct weft_lane_word *word,
                             const struct weft_request_args *args)
{
    if (word->len == sizeof(uint64_t)) {
        memcpy(args->slice.data, word->payload, sizeof(uint64_t));
    } else if (word->len > 0) {
        memcpy(args->slice.data, word->payload, word->len);
    }
    if (args->message_p != NULL) {
        *args->message_p =
            (weft_message_t){.source = (int)args->rank, .tag = (int)word->tag, .len = word->len};
    }
    comm->states[args->rank].received++;
    weft_link_consumed(word->lane->owner, word->len);
}

static inline bool recv_quickly(struct weft_p2p_comm *comm, const struct weft_request_args *args)
{
    struct weft_p2p *p2p = comm->p2p;
    struct weft_lane_word word;
    const _Atomic uint32_t *next;
    uint32_t value;
    if (++p2p->polls % WEFT_P2P_HEARD_BETWEEN == 0 || !may_recv_quickly(comm, args->rank)) {
        return false;
    }
    next = weft_links_ear(p2p->links, &value);
    if (next == NULL || !weft_engine_look(p2p->engine, next, value) ||
        !weft_links_hear(p2p->links, &word)) {
        return false;
    }
    if (word.lane->owner != &comm->peers[args->rank]->link || word.comm != comm->id ||
        (word.tag != args->tag && args->tag != WEFT_MATCH_ANY) || word.len > args->slice.len) {
        weft_p2p_word_heard(p2p, &word);
        return false;
    }
    take_word(comm, &word, args);
    return true;
}

static inline bool try_recv(struct weft_p2p_comm *comm, const struct weft_request_args *args)
{
    struct weft_engine *engine = comm->p2p->engine;
    bool is_here = false;
    if (weft_engine_enter(engine)) {
        is_here = recv_quickly(comm, args);
        weft_engine_unlock(engine);
    }
    return is_here;
}

/* ---- the usual way ---- */

static weft_status_t begin_async(struct weft_request *request, weft_request_t *request_p)
{
    weft_request_t handle;
    weft_status_t status = weft_p2p_request_run(request, &handle);
    if (request_p != NULL) {
        *request_p = handle;
    } else {
        weft_p2p_group_add(request->comm, request);
    }
    return status;
}

static struct weft_request *take(struct weft_p2p_comm *comm, enum weft_request_kind kind,
                                 weft_status_t *status_p)
{
    struct weft_request *request = weft_p2p_request_take(comm, kind);
    *status_p = request != NULL ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for a request");
    return request;
}

static void fill(struct weft_request *request, const struct weft_request_args *args)
{
    request->data = args->slice.data;
    request->len = args->slice.len;
    request->rank = args->rank;
    request->tag = args->tag;
    request->message_p = args->message_p;
}

static enum weft_record_kind record_kind(enum weft_request_kind kind)
{
    return kind == REQUEST_SEND ? WEFT_RECORD_SEND : WEFT_RECORD_RECV;
}

/* Apart, so that the short way has nothing of a request on its stack. */
static __attribute__((noinline)) weft_status_t block(struct weft_p2p_comm *comm,
                                                     enum weft_request_kind kind,
                                                     const struct weft_request_args *args)
{
    struct weft_request now;
    weft_p2p_request_init(&now, comm, kind);
    fill(&now, args);
    weft_p2p_request_record(&now, record_kind(kind));
    return weft_p2p_request_run(&now, NULL);
}

static __attribute__((noinline)) weft_status_t begin(struct weft_p2p_comm *comm,
                                                     enum weft_request_kind kind,
                                                     const struct weft_request_args *args,
                                                     weft_request_t *request_p)
{
    weft_status_t status;
    struct weft_request *request = take(comm, kind, &status);
    if (status == WEFT_OK) {
        fill(request, args);
        weft_p2p_request_record(request, record_kind(kind));
        status = begin_async(request, request_p);
    }
    return status;
}

weft_status_t weft_p2p_send(struct weft_p2p_comm *comm, const void *data, size_t len, uint32_t to,
                            uint32_t tag, weft_request_t *request_p)
{
    const struct weft_slice slice = {.data = (void *)data, .len = len}; /* only read */
    bool is_blocking = request_p == NULL && !weft_p2p_group_is_open(comm);
    if (is_blocking && len <= comm->p2p->eager && try_send(comm, slice, to, tag)) {
        return WEFT_OK;
    }
    const struct weft_request_args args = {.slice = slice, .rank = to, .tag = tag};
    return is_blocking ? block(comm, REQUEST_SEND, &args)
                       : begin(comm, REQUEST_SEND, &args, request_p);
}

weft_status_t weft_p2p_recv(struct weft_p2p_comm *comm, const struct weft_slice *room,
                            uint32_t from, uint32_t tag, weft_message_t *message_p,
                            weft_request_t *request_p)
{
    const struct weft_request_args args = {
        .slice = *room, .rank = from, .tag = tag, .message_p = message_p};
    if (request_p != NULL || weft_p2p_group_is_open(comm)) {
        return begin(comm, REQUEST_RECV, &args, request_p);
    }
    return try_recv(comm, &args) ? WEFT_OK : block(comm, REQUEST_RECV, &args);
}

weft_status_t weft_p2p_probe(struct weft_p2p_comm *comm, uint32_t from, uint32_t tag,
                             uint32_t timeout_ms, weft_message_t *message_p)
{
    const struct weft_request_args args = {.rank = from, .tag = tag, .message_p = message_p};
    weft_status_t status;
    struct weft_request *request = take(comm, REQUEST_PROBE, &status);
    weft_request_t handle = request;
    timeout_ms = timeout_ms < comm->timeout_ms ? timeout_ms : (uint32_t)comm->timeout_ms;
    if (status != WEFT_OK) {
        return status;
    }
    fill(request, &args);
    if (timeout_ms >= PROBE_MS) {
        weft_p2p_request_record(request, WEFT_RECORD_PROBE);
    }
    weft_engine_poll(comm->p2p->engine); /* what is there already counts, also without waiting */
    weft_p2p_request_run(request, &handle);
    status = weft_p2p_wait(&handle, timeout_ms);
    if (handle != NULL) { /* nothing came, and nobody must come any more */
        weft_engine_lock(comm->p2p->engine);
        weft_engine_run_tasks(comm->p2p->engine);
        request->message_p = NULL;
        weft_p2p_request_end(request, WEFT_OK, "");
        weft_engine_unlock(comm->p2p->engine);
        weft_p2p_request_give(comm->p2p, request);
        return weft_fail(WEFT_ERR_TIMEOUT, "no such message came within %u ms", timeout_ms);
    }
    return status;
}
