/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long copies, which run without the lock.
 *
 * A receiver may read a sender's private memory. When the sender gives up it clears its guard and takes
 * the memory back. The kernel, asked to read another process, then says that there is nothing; but ranks
 * that are threads of one process read where it lies, and would crash. So readers are counted, by the
 * phase in which they began, and look at the guard once they are counted: who has cleared its guard
 * begins a new phase and waits for the readers of the old one, a few MiB at most.
 */
#include "p2p/internal.h"

#include <pthread.h>
#include <sched.h>

static _Atomic uint32_t readers[2]; /* of this process; by phase */
static _Atomic uint32_t phase;
static pthread_mutex_t phase_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t begin_reading(void)
{
    uint32_t now = atomic_load(&phase) % 2;
    atomic_fetch_add(&readers[now], 1);
    atomic_thread_fence(
        memory_order_seq_cst); /* either the guard is seen cleared, or we are seen */
    return now;
}

static void end_reading(uint32_t begun)
{
    atomic_fetch_sub_explicit(&readers[begun], 1, memory_order_release);
}

void weft_p2p_readers_leave(void)
{
    pthread_mutex_lock(&phase_lock);
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < 2;
         i++) { /* twice: a reader may be late to count itself to an older phase */
        uint32_t old = atomic_fetch_add(&phase, 1) % 2;
        while (atomic_load(&readers[old]) != 0) {
            sched_yield();
        }
    }
    pthread_mutex_unlock(&phase_lock);
}

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

static bool is_guarded(const struct weft_p2p_job *job)
{
    return job->guard == NULL ||
           atomic_load_explicit(job->guard, memory_order_relaxed) == job->guard_value;
}

static weft_status_t pull(struct weft_p2p_job *job)
{
    const struct weft_slice slice = {.data = job->to, .len = job->len};
    uint32_t begun = begin_reading();
    weft_status_t status = WEFT_ERR_ABORTED;
    if (is_guarded(job)) {
        status = job->lane->ops->pull(job->lane, job->address, &slice);
    }
    end_reading(begun);
    return status;
}

static void run_job(struct weft_p2p_job *job)
{
    job->status = WEFT_OK;
    if (job->address != 0) {
        job->status = pull(job);
    } else if (job->len > 0) {
        weft_mem_copy(job->to, job->from, job->len, job->how);
    }
    /* The loads of the copy come before this one: what the guard still covers was the message. */
    atomic_thread_fence(memory_order_acquire);
    if (!is_guarded(job)) {
        job->status = WEFT_ERR_ABORTED;
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
