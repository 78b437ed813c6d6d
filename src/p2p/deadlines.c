/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines of requests. The short way costs no clock: a sweep looks at the active requests a few times per timeout, and
 * gives a new one its deadline when it meets it first. The first that is late ends its communicator on all ranks, by the
 * coordinator's verdict if that comes.
 */
#include "p2p/internal.h"

#include <stdio.h>

#define SWEEP_MS_MAX 100
#define SWEEP_MS_MIN 2

static uint64_t sweep_ms(const struct weft_p2p *p2p)
{
    uint64_t ms = SWEEP_MS_MAX;
    for (struct weft_list *node = p2p->comms.next; node != &p2p->comms; node = node->next) {
        uint64_t part = WEFT_CONTAINER_OF(node, struct weft_p2p_comm, node)->timeout_ms / 8;
        ms = part < ms ? part : ms;
    }
    return ms < SWEEP_MS_MIN ? SWEEP_MS_MIN : ms;
}

void weft_p2p_request_list(struct weft_request *request)
{
    struct weft_p2p *p2p = request->comm->p2p;
    if (weft_list_is_empty(&request->active)) {
        weft_list_append(&request->comm->active, &request->active);
    }
    if (weft_list_is_empty(&p2p->sweep.node)) {
        weft_engine_timer_set(p2p->engine, &p2p->sweep, weft_clock_after_ms(sweep_ms(p2p)));
    }
}

static void describe(const struct weft_request *request, char *text, size_t room)
{
    char name[128], part[64] = "";
    if (request->rank == WEFT_MATCH_ANY) {
        snprintf(name, sizeof(name), "no rank");
    } else {
        weft_p2p_name(request->comm, request->rank, name, sizeof(name));
    }
    switch (request->kind) {
    case REQUEST_SEND:
        if (request->len > 0) {
            snprintf(part, sizeof(part), " (%llu bytes went)", (unsigned long long)request->moved);
        }
        snprintf(text, room, "%s has not taken a message of %zu bytes with tag %u within %llu ms%s",
                 name, request->len, request->tag, (unsigned long long)request->timeout_ms, part);
        break;
    case REQUEST_RECV:
        if (request->total > 0) { /* else nothing was announced */
            snprintf(part, sizeof(part), " (%llu of %llu bytes came)",
                     (unsigned long long)request->moved, (unsigned long long)request->total);
        }
        snprintf(text, room,
                 "%s has%s sent what a receive of up to %zu bytes waits for within %llu ms%s", name,
                 request->rank == WEFT_MATCH_ANY ? "" : " not", request->len,
                 (unsigned long long)request->timeout_ms, part);
        break;
    case REQUEST_SIGNAL:
        snprintf(text, room,
                 "no rank has added to a signal within %llu ms: it is %llu, and %llu is waited for",
                 (unsigned long long)request->timeout_ms,
                 (unsigned long long)atomic_load_explicit(request->word, memory_order_relaxed),
                 (unsigned long long)request->value);
        break;
    default:
        snprintf(text, room, "%s has not answered a one-sided operation within %llu ms", name,
                 (unsigned long long)request->timeout_ms);
    }
}

/* First the coordinator is asked to end the communicator, so that all ranks hear the same words; if its word does not
 * come, it ends here. */
static void expire(struct weft_request *request, uint64_t now_ns)
{
    struct weft_p2p_comm *comm = request->comm;
    struct weft_p2p *p2p = comm->p2p;
    char text[WEFT_P2P_TEXT];
    uint32_t rank = request->rank == WEFT_MATCH_ANY ? WEFT_WIRE_NO_RANK
                                                    : weft_p2p_job_rank(comm, request->rank);
    bool is_final = request->is_late;
    describe(request, text, sizeof(text));
    request->is_late = true;
    request->deadline_ns = now_ns + p2p->spec.verdict_ms * WEFT_NS_PER_MS;
    p2p->spec.fail(
        p2p->spec.context,
        &(struct weft_p2p_failure){
            .comm = comm->channel, .status = WEFT_ERR_TIMEOUT, .rank = rank, .text = text},
        is_final);
}

/* The oldest that is late; NULL: none. */
static struct weft_request *find_late(struct weft_p2p_comm *comm, uint64_t now_ns)
{
    for (struct weft_list *node = comm->active.next; node != &comm->active; node = node->next) {
        struct weft_request *request = WEFT_CONTAINER_OF(node, struct weft_request, active);
        if (request->deadline_ns == 0) {
            request->deadline_ns = now_ns + request->timeout_ms * WEFT_NS_PER_MS;
        }
        if (request->deadline_ns <= now_ns && !request->is_ended &&
            request->timeout_ms != WEFT_NO_LIMIT) {
            return request;
        }
    }
    return NULL;
}

void weft_p2p_sweep(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_p2p *p2p = WEFT_CONTAINER_OF(timer, struct weft_p2p, sweep);
    bool is_busy = false;
    for (struct weft_list *node = p2p->comms.next; node != &p2p->comms; node = node->next) {
        struct weft_p2p_comm *comm = WEFT_CONTAINER_OF(node, struct weft_p2p_comm, node);
        struct weft_request *late;
        weft_p2p_ask(comm); /* before new ones get their deadline: those have not waited yet */
        late = find_late(comm, now_ns);
        if (late != NULL) {
            expire(late, now_ns); /* ends all of the communicator's */
        }
        is_busy |= weft_p2p_strays_look(comm);
        is_busy |= !weft_list_is_empty(&comm->active);
    }
    if (is_busy) {
        weft_engine_timer_set(p2p->engine, timer, weft_clock_after_ms(sweep_ms(p2p)));
    }
}

weft_status_t weft_p2p_request_set_timeout(weft_request_t request, uint32_t timeout_ms)
{
    struct weft_p2p *p2p = request->comm->p2p;
    uint64_t at_ns = weft_clock_after_ms(timeout_ms);
    weft_engine_lock(p2p->engine);
    weft_engine_run_tasks(p2p->engine);
    if (!request->is_ended) {
        request->timeout_ms = timeout_ms;
        request->deadline_ns = at_ns;
        if (request->kind != REQUEST_OUTER) { /* whoever made it keeps its time */
            weft_p2p_request_list(request);
        }
        if (request->kind != REQUEST_OUTER && at_ns < p2p->sweep.at_ns) {
            weft_engine_timer_set(p2p->engine, &p2p->sweep, at_ns);
        }
    }
    weft_engine_unlock(p2p->engine);
    return WEFT_OK;
}
