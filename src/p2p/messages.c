/* SPDX-License-Identifier: Apache-2.0 */
/* The calls for messages: a request is filled in and begun. A blocking one lives on the stack. */
#include "p2p/internal.h"

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

static void fill(struct weft_request *request, const struct weft_slice *slice, uint32_t rank,
                 uint32_t tag)
{
    request->data = slice->data;
    request->len = slice->len;
    request->rank = rank;
    request->tag = tag;
}

weft_status_t weft_p2p_send(struct weft_p2p_comm *comm, const void *data, size_t len, uint32_t to,
                            uint32_t tag, weft_request_t *request_p)
{
    const struct weft_slice slice = {.data = (void *)data, .len = len}; /* only read */
    struct weft_request now;
    struct weft_request *request;
    weft_status_t status = WEFT_OK;
    if (request_p == NULL && !weft_p2p_group_is_open(comm)) {
        if (len <= comm->p2p->eager && weft_engine_enter(comm->p2p->engine)) {
            bool is_sent = weft_p2p_send_quickly(comm, &slice, to, tag);
            weft_engine_unlock(comm->p2p->engine);
            if (is_sent) {
                return WEFT_OK;
            }
        }
        weft_p2p_request_init(&now, comm, REQUEST_SEND);
        fill(&now, &slice, to, tag);
        return weft_p2p_request_run(&now, NULL);
    }
    request = take(comm, REQUEST_SEND, &status);
    if (status != WEFT_OK) {
        return status;
    }
    fill(request, &slice, to, tag);
    return begin_async(request, request_p);
}

weft_status_t weft_p2p_recv(struct weft_p2p_comm *comm, const struct weft_slice *room,
                            uint32_t from, uint32_t tag, weft_message_t *message_p,
                            weft_request_t *request_p)
{
    struct weft_request now;
    struct weft_request *request;
    weft_status_t status = WEFT_OK;
    if (request_p == NULL && !weft_p2p_group_is_open(comm)) {
        weft_p2p_request_init(&now, comm, REQUEST_RECV);
        fill(&now, room, from, tag);
        now.message_p = message_p;
        return weft_p2p_request_run(&now, NULL);
    }
    request = take(comm, REQUEST_RECV, &status);
    if (status != WEFT_OK) {
        return status;
    }
    fill(request, room, from, tag);
    request->message_p = message_p;
    return begin_async(request, request_p);
}

weft_status_t weft_p2p_probe(struct weft_p2p_comm *comm, uint32_t from, uint32_t tag,
                             uint32_t timeout_ms, weft_message_t *message_p)
{
    const struct weft_slice nothing = {0};
    weft_status_t status;
    struct weft_request *request = take(comm, REQUEST_PROBE, &status);
    weft_request_t handle = request;
    if (status != WEFT_OK) {
        return status;
    }
    fill(request, &nothing, from, tag);
    request->message_p = message_p;
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
