/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request: begun under the lock, ended by a round, done when nothing of ours holds its
 * memory any more, waited for by whoever owns it.
 */
#include "p2p/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static void lock_pool(struct weft_p2p *p2p)
{
    while (atomic_exchange_explicit(&p2p->pool_lock, 1, memory_order_acquire) != 0) {
    }
}

static void unlock_pool(struct weft_p2p *p2p)
{
    atomic_store_explicit(&p2p->pool_lock, 0, memory_order_release);
}

/* Only what is read before it is written: this is on the way of every message. */
void weft_p2p_request_init(struct weft_request *request, struct weft_p2p_comm *comm,
                           enum weft_request_kind kind)
{
    atomic_store_explicit(&request->is_done, 0, memory_order_relaxed);
    request->magic = WEFT_REQUEST_MAGIC;
    request->kind = kind;
    request->status = WEFT_OK;
    request->comm = comm;
    request->peer = NULL;
    request->message_p = NULL;
    request->text = NULL;
    request->bell = NULL;
    request->lent = request->works = 0;
    request->is_ended = request->is_late = request->is_pooled = request->has_signal = false;
    request->total = request->moved = 0;
    request->id = request->pass = request->guard = 0;
    request->record = 0;
    request->timeout_ms = comm->timeout_ms;
    request->deadline_ns = 0;
    weft_list_open(&request->node);
    weft_list_open(&request->stream);
    weft_list_open(&request->active);
    weft_list_open(&request->receive.node);
}

struct weft_request *weft_p2p_request_take(struct weft_p2p_comm *comm, enum weft_request_kind kind)
{
    struct weft_p2p *p2p = comm->p2p;
    struct weft_request *request;
    lock_pool(p2p);
    request = p2p->pool;
    if (request != NULL) {
        p2p->pool = request->next;
    }
    unlock_pool(p2p);
    if (request == NULL) {
        request = calloc(1, sizeof(*request));
        if (request == NULL) {
            return NULL;
        }
        lock_pool(p2p);
        request->older = p2p->newest;
        p2p->newest = request;
        unlock_pool(p2p);
    }
    weft_p2p_request_init(request, comm, kind);
    request->is_pooled = true;
    return request;
}

void weft_p2p_request_give(struct weft_p2p *p2p, struct weft_request *request)
{
    request->magic = 0;
    free(request->text);
    request->text = NULL;
    lock_pool(p2p);
    request->next = p2p->pool;
    p2p->pool = request;
    unlock_pool(p2p);
}

void weft_p2p_requests_end_with(const struct weft_p2p_comm *comm)
{
    struct weft_p2p *p2p = comm->p2p;
    lock_pool(p2p);
    for (struct weft_request *it = p2p->newest; it != NULL; it = it->older) {
        if (it->comm == comm) {
            it->magic = 0;
        }
    }
    unlock_pool(p2p);
}

bool weft_p2p_request_is_valid(weft_request_t request)
{
    return request->magic == WEFT_REQUEST_MAGIC;
}

bool weft_p2p_request_is_ours(weft_request_t request)
{
    return request->comm->p2p->generation ==
           atomic_load_explicit(&weft_process_number, memory_order_relaxed);
}

void *weft_p2p_request_context(weft_request_t request)
{
    return request->comm->p2p->spec.context;
}

void weft_p2p_request_record(struct weft_request *request, enum weft_record_kind kind)
{
    struct weft_recorder *recorder = request->comm->p2p->spec.recorder;
    if (recorder != NULL) {
        const struct weft_record_call call = {
            .comm = request->comm->id,
            .count = request->len,
            .what = weft_record_what(kind, WEFT_U8, 0, 0, request->rank),
            .chain = request->tag};
        request->record = weft_recorder_begin(recorder, &call);
    }
}

/* ---- ending ---- */

void weft_p2p_request_settle(struct weft_request *request)
{
    struct weft_p2p *p2p = request->comm->p2p;
    _Atomic uint32_t *bell = request->bell; /* once it is done it is not ours any more */
    bool is_answer = request->kind == REQUEST_ANSWER;
    if (!request->is_ended || request->lent > 0 || request->works > 0) {
        return;
    }
    weft_list_remove(&request->node);
    weft_list_remove(&request->stream);
    weft_list_remove(&request->active);
    if (request->message_p != NULL &&
        (request->status == WEFT_OK || request->status == WEFT_ERR_TRUNCATED)) {
        *request->message_p = request->message;
    }
    if (request->record != 0) {
        weft_recorder_end(p2p->spec.recorder, request->record, request->status);
    }
    if (request->kind == REQUEST_GET) {
        weft_p2p_get_ended(request);
        is_answer = true; /* nobody waits for it either */
    }
    if (is_answer) {
        weft_p2p_request_give(p2p, request);
        return;
    }
    atomic_store_explicit(&request->is_done, 1, memory_order_release);
    if (bell != NULL) { /* after it: who is rung for looks at is_done, and then sleeps */
        atomic_store_explicit(bell, 1, memory_order_release);
    }
    weft_engine_completed(p2p->engine);
}

void weft_p2p_request_end(struct weft_request *request, weft_status_t status, const char *text)
{
    if (request->is_ended) {
        return;
    }
    request->is_ended = true;
    request->status = status;
    weft_list_remove(&request->stream); /* nothing more of it goes */
    if (request->guard != 0) {
        weft_p2p_guard_give(request);
    }
    if (status != WEFT_OK && text[0] != '\0' && request->text == NULL) {
        request->text = strdup(text);
    }
    if (!weft_list_is_empty(&request->receive.node)) {
        weft_match_withdraw(&request->comm->match, &request->receive);
    }
    weft_p2p_request_settle(request);
}

/* What its owner gets to hear; frees it. */
static weft_status_t report(struct weft_request *request)
{
    struct weft_p2p *p2p = request->comm->p2p;
    weft_status_t status = request->status;
    if (status != WEFT_OK) {
        weft_fail_record(status, "%s",
                         request->text != NULL ? request->text : weft_status_text(status));
    }
    if (request->is_pooled) {
        weft_p2p_request_give(p2p, request);
    } else {
        free(request->text);
    }
    return status;
}

/* ---- beginning ---- */

static void begin(struct weft_request *request)
{
    struct weft_p2p_comm *comm = request->comm;
    weft_status_t ended = atomic_load_explicit(&comm->ended, memory_order_acquire);
    if (ended != WEFT_OK) {
        weft_p2p_request_end(request, ended, comm->text);
        return;
    }
    switch (request->kind) {
    case REQUEST_SEND:
        weft_p2p_send_begin(request);
        break;
    case REQUEST_RECV:
        weft_p2p_recv_begin(request);
        break;
    case REQUEST_PROBE:
        weft_p2p_probe_begin(request);
        break;
    default:
        weft_p2p_side_begin(request);
    }
}

static void begin_task(struct weft_engine_task *task)
{
    begin(WEFT_CONTAINER_OF(task, struct weft_request, task));
}

/* Under the lock now, or by who holds it. */
static void begin_soon(struct weft_request *request)
{
    struct weft_engine *engine = request->comm->p2p->engine;
    if (weft_engine_enter(engine)) {
        begin(request);
        weft_engine_unlock(engine);
    } else {
        request->task.run = begin_task;
        weft_engine_post(engine, &request->task);
    }
}

weft_status_t weft_p2p_request_run(struct weft_request *request, weft_request_t *request_p)
{
    struct weft_engine *engine = request->comm->p2p->engine;
    begin_soon(request);
    if (request_p != NULL) {
        *request_p = request;
        return WEFT_OK;
    }
    if (atomic_load_explicit(&request->is_done, memory_order_acquire) == 0) {
        weft_engine_wait(engine, &request->is_done, WEFT_NEVER); /* the sweep keeps deadlines */
    }
    return request->status == WEFT_OK && !request->is_pooled ? WEFT_OK : report(request);
}

/* ---- for their owners ---- */

weft_status_t weft_p2p_test(weft_request_t *request, int *is_done_p)
{
    struct weft_request *it = *request;
    if (atomic_load_explicit(&it->is_done, memory_order_acquire) == 0) {
        weft_engine_poll(it->comm->p2p->engine);
    }
    *is_done_p = atomic_load_explicit(&it->is_done, memory_order_acquire) != 0;
    if (!*is_done_p) {
        return WEFT_OK;
    }
    *request = NULL;
    return report(it);
}

weft_status_t weft_p2p_wait(weft_request_t *request, uint32_t timeout_ms)
{
    struct weft_request *it = *request;
    uint64_t deadline_ns =
        timeout_ms == WEFT_NO_LIMIT ? WEFT_NEVER : weft_clock_after_ms(timeout_ms);
    if (weft_engine_wait(it->comm->p2p->engine, &it->is_done, deadline_ns) != WEFT_OK) {
        return weft_fail(WEFT_ERR_TIMEOUT, "the operation goes on after %u ms", timeout_ms);
    }
    *request = NULL;
    return report(it);
}

/* The first that is done, -1: none; *first_p: one that is not; NULL: there is none at all. */
static int find_done(weft_request_t *requests, int count, struct weft_request **first_p)
{
    *first_p = NULL;
    for (int i = 0; i < count; i++) {
        if (requests[i] == NULL) {
            continue;
        }
        if (*first_p == NULL) {
            *first_p = requests[i];
        }
        if (atomic_load_explicit(&requests[i]->is_done, memory_order_acquire) != 0) {
            return i;
        }
    }
    return -1;
}

static void set_bells(weft_request_t *requests, int count, const struct weft_engine *engine,
                      _Atomic uint32_t *bell)
{
    for (int i = 0; i < count; i++) {
        if (requests[i] != NULL && requests[i]->comm->p2p->engine == engine) {
            requests[i]->bell = bell;
            if (bell != NULL && atomic_load(&requests[i]->is_done) != 0) {
                atomic_store(bell, 1);
            }
        }
    }
}

/* Polls the engines of the others; true: there are some. */
static bool drive_others(weft_request_t *requests, int count, const struct weft_engine *engine)
{
    bool has_others = false;
    for (int i = 0; i < count; i++) {
        if (requests[i] != NULL && requests[i]->comm->p2p->engine != engine) {
            weft_engine_poll(requests[i]->comm->p2p->engine);
            has_others = true;
        }
    }
    return has_others;
}

/* Until one of this engine's is done; with several engines not for long. */
static void wait_for_bell(weft_request_t *requests, int count, struct weft_engine *engine,
                          uint64_t deadline_ns)
{
    _Atomic uint32_t bell = 0;
    bool has_others = drive_others(requests, count, engine);
    uint64_t until_ns = has_others ? weft_clock_after_ms(1) : deadline_ns;
    weft_engine_lock(engine);
    set_bells(requests, count, engine, &bell);
    weft_engine_unlock(engine);
    weft_engine_wait(engine, &bell, until_ns < deadline_ns ? until_ns : deadline_ns);
    weft_engine_lock(engine);
    set_bells(requests, count, engine, NULL);
    weft_engine_unlock(engine);
}

weft_status_t weft_p2p_wait_any(weft_request_t *requests, int count, uint32_t timeout_ms,
                                int *index_p)
{
    uint64_t deadline_ns =
        timeout_ms == WEFT_NO_LIMIT ? WEFT_NEVER : weft_clock_after_ms(timeout_ms);
    struct weft_request *first;
    for (bool is_late = false;; is_late = weft_clock_ns() >= deadline_ns) {
        int index = find_done(requests, count, &first);
        *index_p = index;
        if (index >= 0) {
            struct weft_request *it = requests[index];
            requests[index] = NULL;
            return report(it);
        }
        if (first == NULL) {
            return WEFT_OK;
        }
        if (is_late) {
            return weft_fail(WEFT_ERR_TIMEOUT, "none of %d operations ended within %u ms", count,
                             timeout_ms);
        }
        wait_for_bell(requests, count, first->comm->p2p->engine, deadline_ns);
    }
}

weft_status_t weft_p2p_wait_all(weft_request_t *requests, int count, uint32_t timeout_ms)
{
    uint64_t deadline_ns =
        timeout_ms == WEFT_NO_LIMIT ? WEFT_NEVER : weft_clock_after_ms(timeout_ms);
    weft_status_t first = WEFT_OK;
    char text[WEFT_ERROR_TEXT_LEN];
    for (int i = 0; i < count; i++) {
        weft_status_t status;
        uint32_t left_ms = WEFT_NO_LIMIT;
        if (requests[i] == NULL) {
            continue;
        }
        if (deadline_ns != WEFT_NEVER) {
            left_ms = (uint32_t)weft_clock_ms_until(deadline_ns);
        }
        status = weft_p2p_wait(&requests[i], left_ms);
        if (first == WEFT_OK && status != WEFT_OK) {
            first = status;
            snprintf(text, sizeof(text), "%s", weft_error_text());
        }
    }
    return first == WEFT_OK ? WEFT_OK : weft_fail(first, "%s", text);
}

weft_status_t weft_p2p_cancel(weft_request_t *request)
{
    struct weft_request *it = *request;
    struct weft_p2p *p2p = it->comm->p2p;
    bool is_free = false;
    weft_engine_lock(p2p->engine);
    weft_engine_run_tasks(p2p->engine);
    if (!it->is_ended) {
        is_free = it->kind == REQUEST_RECV
                      ? !weft_list_is_empty(&it->receive.node)
                      : it->kind == REQUEST_SEND && it->id == 0 && it->peer != NULL &&
                            it->lent == 0 && !weft_list_is_empty(&it->node);
        if (is_free) {
            it->message_p = NULL;
            weft_p2p_request_end(it, WEFT_OK, "");
        }
    }
    weft_engine_unlock(p2p->engine);
    if (!is_free) {
        return weft_fail(WEFT_ERR_BUSY, "the operation has matched, is on its way or is over; wait "
                                        "for it");
    }
    *request = NULL;
    weft_p2p_request_give(p2p, it);
    return WEFT_OK;
}
