/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's life, its requests, and what both ends share. */
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>

#define CHUNK_LEN ((uint32_t)256 << 10)

static void poked(struct weft_engine_task *task)
{
    struct weft_nccl_comm *comm = WEFT_CONTAINER_OF(task, struct weft_nccl_comm, poke);
    atomic_store(&comm->is_poked, false);
    if (!comm->is_closing) {
        weft_nccl_tend(comm, weft_clock_ns());
    }
}

struct weft_nccl_comm *weft_nccl_comm_new(bool is_sender, const struct weft_nccl_device *device)
{
    static _Atomic uint32_t turns;
    const struct weft_params *params = &weft_nccl_core.params;
    struct weft_nccl_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        return NULL;
    }
    comm->is_sender = is_sender;
    comm->process = weft_nccl_core.process;
    comm->device = device;
    comm->turn = atomic_fetch_add(&turns, 1);
    comm->chunk_len = params->number[WEFT_PARAM_CHUNK] > 0
                          ? (uint32_t)params->number[WEFT_PARAM_CHUNK]
                          : CHUNK_LEN;
    comm->eager_len = (uint32_t)params->number[WEFT_PARAM_NCCL_EAGER];
    comm->is_checked = params->number[WEFT_PARAM_CHECKSUM] != 0;
    comm->poke.run = poked;
    comm->alone_ns = weft_clock_ns();
    weft_list_open(&comm->node);
    weft_list_open(&comm->pending);
    if (is_sender) {
        comm->sends = calloc(WEFT_NCCL_SENDS, sizeof(*comm->sends));
        comm->copies = malloc(WEFT_NCCL_COPIES);
        comm->handle = weft_secret_map(sizeof(*comm->handle));
    } else {
        comm->receives = calloc(WEFT_NCCL_RECEIVES, sizeof(*comm->receives));
    }
    if (is_sender ? comm->sends == NULL || comm->copies == NULL || comm->handle == NULL
                  : comm->receives == NULL) {
        free(comm->sends);
        free(comm->copies);
        free(comm->receives);
        weft_secret_unmap(comm->handle, sizeof(*comm->handle));
        free(comm);
        return NULL;
    }
    pthread_mutex_init(&comm->lock, NULL);
    return comm;
}

void weft_nccl_comm_free(struct weft_nccl_comm *comm)
{
    struct weft_engine *engine = weft_nccl_core.engine;
    uint32_t count;
    if (comm->is_sender) {
        weft_nccl_send_flush(comm);
    }
    weft_engine_lock(engine);
    comm->is_closing = true;
    weft_list_remove(&comm->node);
    weft_list_remove(&comm->pending);
    if (!comm->is_sender) {
        weft_nccl_recv_tell(
            comm); /* a helper may have landed the last one, and not told of it yet */
    }
    count = atomic_load(&comm->lane_count);
    for (uint32_t i = 0; i < count; i++) {
        weft_nccl_lane_stop(comm->lanes[i]);
    }
    weft_nccl_helpers_forget(comm);
    weft_engine_run_tasks(engine); /* nobody pokes it any more, but somebody may have */
    weft_engine_unlock(engine);
    for (uint32_t i = 0; i < count; i++) {
        free(comm->lanes[i]);
    }
    pthread_mutex_destroy(&comm->lock);
    weft_secret_unmap(comm->handle, sizeof(*comm->handle));
    free(comm->sends);
    free(comm->copies);
    free(comm->receives);
    free(comm);
}

void weft_nccl_comm_fail(struct weft_nccl_comm *comm, int result, const char *fmt, ...)
{
    int fine = NCCL_SUCCESS;
    char text[192];
    va_list args;
    if (!atomic_compare_exchange_strong(&comm->result, &fine, result)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    weft_nccl_say(NCCL_LOG_WARN, "%s %s: %s", comm->is_sender ? "sending to" : "receiving from",
                  comm->peer_text, text);
    weft_nccl_comm_poke(comm);
}

void weft_nccl_comm_poke(struct weft_nccl_comm *comm)
{
    if (!atomic_exchange(&comm->is_poked, true)) {
        weft_engine_post(weft_nccl_core.engine, &comm->poke);
    }
}

void weft_nccl_comm_drive(struct weft_nccl_comm *comm, uint32_t bits)
{
    uint32_t lanes = atomic_load(&comm->by_callers), others;
    if (lanes ==
        0) { /* it is missing for the moment: the helpers' lanes are there, and nobody else would tell them */
        for (others = atomic_load(&comm->by_helpers); others != 0; others &= others - 1) {
            weft_nccl_helper_kick(comm->lanes[__builtin_ctz(others)], bits);
        }
    }
    for (; lanes != 0; lanes &= lanes - 1) {
        weft_nccl_lane_drive(comm->lanes[__builtin_ctz(lanes)], bits);
    }
}

/* ---- requests; comm's lock ---- */

struct weft_nccl_request *weft_nccl_request_new(struct weft_nccl_comm *comm)
{
    for (uint32_t i = 0; i < NCCL_REQUESTS; i++) {
        if (!comm->requests[i].is_used) {
            comm->requests[i].is_used = true;
            comm->requests[i].comm = comm;
            return &comm->requests[i];
        }
    }
    return NULL;
}

static bool reap(struct weft_nccl_request *request, int *lens)
{
    struct weft_nccl_comm *comm = request->comm;
    bool is_done = atomic_load(&request->landed) == request->count;
    if (is_done) {
        pthread_mutex_lock(&comm->lock);
        for (uint32_t i = 0; lens != NULL && i < request->count; i++) {
            lens[i] = (int)request->place[i].len;
        }
        request->is_used = false;
        pthread_mutex_unlock(&comm->lock);
    }
    return is_done;
}

/* When it has failed, nobody touches the memory of its requests any more. */
static int result_of(struct weft_nccl_comm *comm)
{
    int result = atomic_load(&comm->result);
    if (result != NCCL_SUCCESS) {
        for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
            weft_nccl_lane_settle(comm->lanes[i]);
        }
    }
    return result;
}

int weft_nccl_test(void *handle, int *is_done_p, int *lens)
{
    struct weft_nccl_request *request = handle;
    struct weft_nccl_comm *comm = request->comm;
    *is_done_p = 0;
    if (weft_nccl_is_foreign(comm->process)) {
        return NCCL_SYSTEM_ERROR;
    }
    if (!reap(request, lens)) {
        weft_nccl_comm_drive(comm,
                             comm->is_sender ? WEFT_NCCL_READ | WEFT_NCCL_WRITE : WEFT_NCCL_READ);
        if (atomic_load(&comm->has_left)) {
            weft_nccl_rate_offer(comm);
        }
        if (!reap(request, lens)) {
            return result_of(comm);
        }
    }
    *is_done_p = 1;
    return NCCL_SUCCESS;
}

int weft_nccl_close(void *handle)
{
    struct weft_nccl_comm *comm = handle;
    if (comm == NULL) {
        return NCCL_SUCCESS;
    }
    if (weft_nccl_is_foreign(comm->process)) {
        return NCCL_SYSTEM_ERROR;
    }
    weft_nccl_comm_free(comm);
    weft_nccl_core_give();
    return NCCL_SUCCESS;
}

/* ---- host memory needs no registration; nothing of ours may be NULL, though ---- */

int weft_nccl_reg_mr(void *comm, void *data, size_t len, int type, void **region_p)
{
    (void)data;
    (void)len;
    if (type != NCCL_POINTER_HOST) {
        weft_nccl_say(NCCL_LOG_WARN, "memory of type %d: only host memory is served", type);
        return NCCL_INVALID_ARGUMENT;
    }
    *region_p = comm;
    return NCCL_SUCCESS;
}

int weft_nccl_dereg_mr(void *comm, void *region)
{
    (void)comm;
    (void)region;
    return NCCL_SUCCESS;
}

int weft_nccl_iflush(void *comm, int count, void **data, int *lens, void **regions,
                     void **request_p)
{
    (void)comm;
    (void)count;
    (void)data;
    (void)lens;
    (void)regions;
    *request_p = NULL; /* host memory: there is nothing to wait for */
    return NCCL_SUCCESS;
}
