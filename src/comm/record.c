/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank's flight recorder: opened with its first operation. A start has no time for it, so the first calls of
 * the control plane are only counted; one of them that does not return is recorded once it has waited for half a
 * second, as of when it began.
 */
#include "comm/internal.h"
#include "topo/topo.h"

#include <pthread.h>
#include <string.h>

#define START_CALLS                                                                                \
    4 /* control calls that belong to the start of a program: memory for them can wait */
#define EARLY_NS UINT64_C(500000000) /* … unless one of them does */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* ---- operations ---- */

static void open_recorder(struct weft_job *job, const struct weft_recorder_time *since)
{
    char host[64];
    uint8_t
        hash[32]; /* the job's id is not for everybody who reads the recorder or a file's name */
    struct weft_recorder_spec spec = {.entries = (uint32_t)job->params.number[WEFT_PARAM_RECORDER],
                                      .epoch = job->self.epoch,
                                      .rank = job->self.rank,
                                      .ranks = job->self.ranks,
                                      .host = host,
                                      .since = since};
    weft_topo_hostname(host);
    weft_wire_derive(job->key, "recorder", job->self.job, sizeof(job->self.job), hash);
    memcpy(spec.job, hash, sizeof(spec.job));
    weft_recorder_open(&spec, &job->recorder);
    atomic_store(&job->is_recorded, true);
}

/* Under `opening`. */
static void introduce(struct weft_comm *comm, const struct weft_recorder_time *since)
{
    struct weft_recorder *recorder = &comm->job->recorder;
    if (!atomic_load(&comm->job->is_recorded)) {
        open_recorder(comm->job, since);
    }
    if (!atomic_load(&comm->is_recorded)) {
        weft_recorder_comm_open(recorder, comm->id, comm->rank, comm->ranks);
        weft_recorder_comm_calls(recorder, comm->id, atomic_load(&comm->control_calls));
        atomic_store(&comm->is_recorded, true);
    }
}

struct weft_recorder *weft_comm_recorder(struct weft_comm *comm)
{
    if (!atomic_load_explicit(&comm->is_recorded, memory_order_acquire)) {
        pthread_mutex_lock(&opening);
        introduce(comm, NULL);
        pthread_mutex_unlock(&opening);
    }
    return &comm->job->recorder;
}

/* ---- calls of the control plane ---- */

/* A call from before there was a recorder may have waited so long that somebody will ask for it. */
static void look_early(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_comm_early *early = WEFT_CONTAINER_OF(timer, struct weft_comm_early, timer);
    struct weft_comm *comm = WEFT_CONTAINER_OF(early, struct weft_comm, early);
    pthread_mutex_lock(&opening);
    if (early->is_going && now_ns >= early->began.ns + EARLY_NS) {
        introduce(comm, &early->began);
        comm->control_record =
            weft_recorder_begun(&comm->job->recorder, &early->call, early->began.ticks);
        early->is_going = false;
    } else if (early->is_going) { /* a later one than it was set for */
        weft_engine_timer_set(comm->job->engine, timer, early->began.ns + EARLY_NS);
    }
    pthread_mutex_unlock(&opening);
}

/* Under the engine's lock. It is not taken back when the call ends: most often that is sooner than it takes. */
static void set_timer(struct weft_comm *comm)
{
    struct weft_comm_early *early = &comm->early;
    pthread_mutex_lock(&opening);
    if (weft_list_is_empty(&early->timer.node)) {
        weft_engine_timer_set(comm->job->engine, &early->timer, early->began.ns + EARLY_NS);
    }
    pthread_mutex_unlock(&opening);
}

static void set_timer_later(struct weft_engine_task *task)
{
    struct weft_comm_early *early = WEFT_CONTAINER_OF(task, struct weft_comm_early, task);
    atomic_store(&early->is_posted, false);
    set_timer(WEFT_CONTAINER_OF(early, struct weft_comm, early));
}

void weft_comm_record_open(struct weft_comm *comm)
{
    weft_engine_timer_open(&comm->early.timer, look_early);
    comm->early.task.run = set_timer_later;
}

void weft_comm_record_close(struct weft_comm *comm)
{
    struct weft_engine *engine = comm->job->engine;
    weft_engine_lock(engine);
    weft_engine_run_tasks(engine);
    weft_engine_timer_cancel(engine, &comm->early.timer);
    weft_engine_unlock(engine);
    if (atomic_load(&comm->is_recorded)) {
        weft_recorder_comm_close(&comm->job->recorder, comm->id);
    }
}

/* Whoever holds the lock may not let go of it for longer than the call may take. */
static void begin_early(struct weft_comm *comm, const struct weft_record_call *call)
{
    struct weft_comm_early *early = &comm->early;
    struct weft_engine *engine = comm->job->engine;
    pthread_mutex_lock(&opening);
    early->began = weft_recorder_now();
    early->call = *call;
    early->is_going = true;
    pthread_mutex_unlock(&opening);
    comm->is_early = true;
    if (weft_engine_enter(engine)) {
        set_timer(comm);
        weft_engine_unlock(engine);
    } else if (!atomic_exchange(&early->is_posted, true)) {
        weft_engine_post(engine, &early->task);
    }
}

static bool is_early(struct weft_comm *comm)
{
    return !atomic_load(&comm->job->is_recorded) && comm->calls++ < START_CALLS &&
           comm->job->params.text[WEFT_PARAM_DUMP][0] == '\0';
}

void weft_comm_record_control(struct weft_comm *comm, enum weft_record_kind kind, size_t count,
                              uint32_t peer, uint32_t tag)
{
    bool is_numbered = weft_record_is_control((uint8_t)kind);
    const struct weft_record_call call = {
        .comm = comm->id,
        .count = count,
        .what = weft_record_what(kind, WEFT_U8, 0, 0, peer),
        .number = is_numbered ? atomic_fetch_add(&comm->control_calls, 1) : 0,
        .signature = ((uint32_t)kind * 31 + (uint32_t)count) * 31 + peer + 1,
        .chain = tag};
    if (is_early(comm)) {
        begin_early(comm, &call);
        return;
    }
    comm->control_record = weft_recorder_begin(weft_comm_recorder(comm), &call);
    if (is_numbered) {
        weft_recorder_comm_calls(&comm->job->recorder, comm->id, call.number + 1);
    }
}

void weft_comm_record_control_end(struct weft_comm *comm, weft_status_t status)
{
    if (comm->is_early) { /* a timer of another thread may have recorded it */
        pthread_mutex_lock(&opening);
        comm->early.is_going = false;
        pthread_mutex_unlock(&opening);
        comm->is_early = false;
    }
    weft_recorder_end(&comm->job->recorder, comm->control_record, status);
    comm->control_record = 0;
}

uint64_t weft_comm_record_closing(struct weft_comm *comm)
{
    const struct weft_record_call call = {
        .comm = comm->id, .what = weft_record_what(WEFT_RECORD_CLOSE, WEFT_U8, 0, 0, 0)};
    return atomic_load(&comm->job->is_recorded)
               ? weft_recorder_begin(weft_comm_recorder(comm), &call)
               : 0;
}
