/* SPDX-License-Identifier: Apache-2.0 */
/* Long copies, which run without the lock. */
#include "p2p/internal.h"

enum weft_mem_copy weft_p2p_copy_kind(size_t total)
{
    static _Atomic size_t cache_len;
    size_t len = atomic_load_explicit(&cache_len, memory_order_relaxed);
    if (len == 0) {
        len = weft_mem_cache_len();
        atomic_store_explicit(&cache_len, len, memory_order_relaxed);
    }
    return total >= len / 2 ? WEFT_COPY_STREAM : WEFT_COPY_PLAIN;
}

/* The sender's memory stays mapped until the copy is over, also when the sender frees it or is gone.
 * false: it was not there any more. */
static bool hold(struct weft_p2p_job *job)
{
    const struct weft_lane *lane = job->guard != NULL ? job->peer->link.lane : NULL;
    job->held[0] = job->held[1] = NULL;
    if (lane == NULL) {
        return job->guard == NULL;
    }
    job->held[0] = lane->ops->hold(lane, (const void *)job->guard, sizeof(*job->guard));
    if (job->address == 0) {
        job->held[1] = lane->ops->hold(lane, job->from, job->len);
    }
    return job->held[0] != NULL && (job->address != 0 || job->held[1] != NULL);
}

static void let_go(struct weft_p2p_job *job)
{
    weft_mem_mapping_close(job->held[0]);
    weft_mem_mapping_close(job->held[1]);
}

static void run_job(struct weft_p2p_job *job)
{
    const struct weft_slice slice = {.data = job->to, .len = job->len};
    job->status = WEFT_OK;
    if (job->address != 0) {
        job->status = job->lane->ops->pull(job->lane, job->address, &slice);
    } else if (job->len > 0) {
        weft_mem_copy(job->to, job->from, job->len, job->how);
    }
    /* The loads of the copy come before this one: what the guard still covers was the message. */
    if (job->guard != NULL) {
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(job->guard, memory_order_relaxed) != job->guard_value) {
            job->status = WEFT_ERR_ABORTED;
        }
    }
}

/* Under the lock again. */
static void finish(struct weft_p2p_job *job)
{
    let_go(job);
    if (job->lane != NULL && job->token != 0) {
        job->lane->ops->release(job->lane, job->token);
    }
    job->done(job);
}

static void job_run(struct weft_engine_work *work)
{
    run_job(WEFT_CONTAINER_OF(work, struct weft_p2p_job, work));
}

static void job_done(struct weft_engine_work *work)
{
    struct weft_p2p_job *job = WEFT_CONTAINER_OF(work, struct weft_p2p_job, work);
    struct weft_p2p *p2p = job->p2p;
    struct weft_p2p_job copy = *job;
    job->next = p2p->free_jobs;
    p2p->free_jobs = job;
    finish(&copy);
}

void weft_p2p_copy(struct weft_p2p *p2p, const struct weft_p2p_job *what)
{
    struct weft_p2p_job *job = p2p->free_jobs;
    struct weft_p2p_job now = *what;
    /* A payload without a token is only there until the next poll. */
    bool is_short = what->len <= WEFT_P2P_BULK ||
                    (what->lane != NULL && what->token == 0 && what->address == 0);
    if (!hold(&now)) {
        now.status = WEFT_ERR_ABORTED;
        finish(&now);
        return;
    }
    if (is_short || job == NULL) {
        run_job(&now);
        finish(&now);
        return;
    }
    p2p->free_jobs = job->next;
    *job = now;
    job->p2p = p2p;
    weft_list_open(&job->work.node);
    job->work.run = job_run;
    job->work.done = job_done;
    weft_engine_work_add(p2p->engine, &job->work);
}

void weft_p2p_copy_payload(struct weft_request *request, const struct weft_done *done,
                           enum weft_mem_copy how, void (*copied)(struct weft_p2p_job *job))
{
    const struct weft_p2p_job job = {.request = request,
                                     .peer = request->peer,
                                     .to = request->data + done->frame.b,
                                     .from = done->payload,
                                     .len = done->frame.len,
                                     .how = how,
                                     .lane = done->lane,
                                     .token = done->token,
                                     .done = copied};
    request->works++;
    weft_p2p_copy(request->comm->p2p, &job);
}
