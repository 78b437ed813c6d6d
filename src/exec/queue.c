/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting and driving. A blocking call advances its run itself: it looks at the word it waits for, yields
 * when there are more ranks than CPUs, lets the engine have a turn now and then, and in the end sleeps in it.
 * Jobs that were begun only stand in a queue; the first one is advanced as a work of the engine, by whoever
 * drives, without the lock.
 *
 * While somebody waits in the engine for a word of the board a poller looks at the word; before the driver
 * sleeps it says so on the board, so that whoever writes there rings.
 */
#include "exec/internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_BETWEEN 16 /* of looking, between two turns of the engine */
#define SPIN_TURNS 8
#define PATIENCE_NS UINT64_C(1000000)
#define CROSSINGS 16              /* before we go to another CPU, … */
#define STEP_NS UINT64_C(5000000) /* … and not again within this time */

struct weft_exec_entry {
    struct weft_list node;
    struct weft_exec_job job;
    weft_request_t request;
};

/* ---- the board's doorbell ---- */

/* Says so on the board of the run that waits, and nowhere else. */
static void set_asleep(struct weft_exec *exec, bool is_asleep)
{
    const struct weft_exec_run *run = exec->waiting;
    struct weft_board *board = is_asleep && run != NULL ? run->board : NULL;
    exec->is_armed = is_asleep;
    if (exec->armed == board) {
        return;
    }
    if (exec->armed != NULL) {
        atomic_store(&exec->armed->seats[exec->armed->rank].asleep, 0);
        atomic_fetch_sub(&exec->armed->table->sleepers, 1);
    }
    if (board != NULL) {
        atomic_fetch_add(&board->table->sleepers, 1);
        atomic_store(&board->seats[board->rank].asleep, 1);
    }
    exec->armed = board;
}

static bool is_due(const struct weft_exec *exec)
{
    const struct weft_exec_run *run = exec->waiting;
    return run != NULL && (weft_exec_is_reached(exec, &run->await) ||
                           (run->state != WEFT_RUN_DRAINS && atomic_load(exec->ended) != WEFT_OK));
}

static bool arm(struct weft_engine_poller *poller)
{
    struct weft_exec *exec = WEFT_CONTAINER_OF(poller, struct weft_exec, poller);
    if (exec->is_at_work) {
        return false; /* what it waits for is not known: it is not ours to look at */
    }
    set_asleep(exec, true);
    atomic_thread_fence(memory_order_seq_cst); /* with weft_exec_show() */
    return !is_due(exec);
}

static void disarm(struct weft_engine_poller *poller)
{
    set_asleep(WEFT_CONTAINER_OF(poller, struct weft_exec, poller), false);
}

static bool poll_words(struct weft_engine_poller *poller)
{
    struct weft_exec *exec = WEFT_CONTAINER_OF(poller, struct weft_exec, poller);
    if (exec->is_at_work || !is_due(exec)) {
        return false;
    }
    set_asleep(exec, false);
    if (exec->is_active && exec->waiting == &exec->active) {
        exec->is_at_work = true;
        weft_engine_work_add(exec->engine, &exec->work);
    } else {
        atomic_store_explicit(&exec->bell, 1, memory_order_release);
        weft_engine_completed(exec->engine);
    }
    return true;
}

/* Under the lock. */
static void watch(struct weft_exec *exec, struct weft_exec_run *run)
{
    if (run == NULL) {
        set_asleep(exec, false);
    }
    exec->waiting = run;
    if (run != NULL && !exec->is_polled) {
        weft_engine_poller_add(exec->engine, &exec->poller);
        exec->is_polled = true;
    } else if (run == NULL && exec->is_polled) {
        weft_engine_poller_remove(exec->engine, &exec->poller);
        exec->is_polled = false;
    }
}

/* ---- two ranks on one CPU ---- */

/* The kernel leaves two ranks that take turns every microsecond where they are, though another CPU is idle:
 * both are hot there. So we leave, for one that no rank of this board was seen on, and may return at once. */
static void step_aside(const struct weft_board *board)
{
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return; /* more CPUs than the set has bits */
    }
    others = allowed;
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        uint32_t cpu = atomic_load_explicit(&board->seats[rank].cpu, memory_order_relaxed);
        if (cpu != 0) {
            CPU_CLR(cpu - 1, &others);
        }
    }
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0) {
        (void)sched_setaffinity(0, sizeof(allowed), &allowed);
    }
}

/* Whoever we wait for is on our CPU: one of both, the later rank, finds another. */
static bool is_beside(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    const struct weft_board *board = run->board;
    uint64_t now_ns;
    if (board == NULL || run->await.rank >= board->ranks || run->await.rank == board->rank ||
        !weft_exec_is_beside(board, run->await.rank)) {
        exec->crossings = 0;
        return false;
    }
    if (board->rank > run->await.rank && ++exec->crossings >= CROSSINGS &&
        (now_ns = weft_clock_ns()) - exec->stepped_ns > STEP_NS) {
        exec->stepped_ns = now_ns;
        exec->crossings = 0;
        step_aside(board);
    }
    return true;
}

/* ---- blocking calls ---- */

static void sleep_long(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    bool is_word = run->await.word != NULL;
    weft_engine_lock(exec->engine);
    if (is_word) {
        atomic_store(&exec->bell, 0);
    }
    watch(exec, run);
    weft_engine_unlock(exec->engine);
    weft_engine_wait(exec->engine, &exec->bell, weft_clock_after_ms(WEFT_EXEC_TICK_MS));
    weft_engine_lock(exec->engine);
    watch(exec, NULL);
    weft_engine_unlock(exec->engine);
}

static __attribute__((noinline)) void wait_on(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    uint64_t since_ns = weft_clock_ns();
    bool is_crossed = !exec->spec.is_crowded && is_beside(run);
    weft_exec_begin_time(run);
    for (uint32_t turn = 1;; turn++) {
        uint64_t now_ns;
        if (weft_exec_is_reached(exec, &run->await) || weft_exec_check_end(run)) {
            return;
        }
        now_ns = weft_clock_ns();
        if (now_ns - since_ns > PATIENCE_NS) {
            sleep_long(run);
            if (weft_exec_look_around(run)) {
                return;
            }
        } else if (turn % TURNS_BETWEEN == 0) {
            weft_engine_poll(exec->engine);
        } else if (exec->spec.is_crowded || turn > SPIN_TURNS || is_crossed) {
            sched_yield(); /* where nobody else wants the CPU it returns at once */
        } else {
            for (int i = 0; i < 100 && !weft_exec_is_reached(exec, &run->await); i++) {
                weft_exec_relax();
            }
        }
    }
}

/* Messages: the engine knows best how to wait for them. */
static void wait_for_messages(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    weft_exec_begin_time(run);
    while (weft_engine_wait(exec->engine, &exec->bell, weft_clock_after_ms(WEFT_EXEC_TICK_MS)) !=
           WEFT_OK) {
        if (weft_exec_look_around(run)) {
            return;
        }
    }
}

void weft_exec_wait(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    int looks = exec->spec.is_crowded ? WEFT_EXEC_CROWDED_LOOKS : WEFT_EXEC_LOOKS;
    if (run->await.word == NULL) {
        wait_for_messages(run);
        return;
    }
    for (int i = 0; i < looks; i++) {
        if (weft_exec_is_reached(exec, &run->await)) {
            return;
        }
        if (i == WEFT_EXEC_FIRST_LOOKS && run->board != NULL &&
            run->await.rank < run->board->ranks &&
            weft_exec_is_beside(run->board, run->await.rank)) {
            break;
        }
        if (!exec->spec.is_crowded) {
            weft_exec_relax();
        }
    }
    wait_on(run);
}

/* ---- the queue ---- */

static struct weft_exec_entry *first_entry(struct weft_exec *exec)
{
    return WEFT_CONTAINER_OF(exec->queue.next, struct weft_exec_entry, node);
}

void weft_exec_find_limit(struct weft_exec *exec, uint64_t *deadline_ns_p, uint64_t *timeout_ms_p)
{
    weft_engine_lock(exec->engine);
    for (struct weft_list *node = exec->queue.next; node != &exec->queue; node = node->next) {
        uint64_t deadline_ns, timeout_ms;
        if (weft_p2p_outer_limit(WEFT_CONTAINER_OF(node, struct weft_exec_entry, node)->request,
                                 &deadline_ns, &timeout_ms) &&
            deadline_ns < *deadline_ns_p) {
            *deadline_ns_p = deadline_ns;
            *timeout_ms_p = timeout_ms;
        }
    }
    weft_engine_unlock(exec->engine);
}

/* Under the lock. */
static void start_next(struct weft_exec *exec)
{
    struct weft_exec_entry *entry;
    exec->is_active = !weft_list_is_empty(&exec->queue);
    if (!exec->is_active) {
        watch(exec, NULL);
        weft_engine_timer_cancel(exec->engine, &exec->timer);
        return;
    }
    entry = first_entry(exec);
    weft_exec_run_open(&exec->active, exec, &entry->job);
    weft_exec_begin_time(&exec->active);
    exec->is_at_work = true;
    weft_engine_work_add(exec->engine, &exec->work);
    weft_engine_timer_set(exec->engine, &exec->timer, weft_clock_after_ms(WEFT_EXEC_TICK_MS));
}

static void end_entry(struct weft_exec *exec, weft_status_t status, const char *text)
{
    struct weft_list *node = weft_list_take(&exec->queue);
    struct weft_exec_entry *entry = WEFT_CONTAINER_OF(node, struct weft_exec_entry, node);
    weft_p2p_outer_end(entry->request, status, text);
    weft_list_append(&exec->spare, node);
}

/* Without the lock: the run is ours while is_at_work. */
static void work_run(struct weft_engine_work *work)
{
    struct weft_exec *exec = WEFT_CONTAINER_OF(work, struct weft_exec, work);
    struct weft_exec_run *run = &exec->active;
    if (run->state == WEFT_RUN_GOES && run->stage == 0 && !run->is_begun && run->entry == 0) {
        weft_exec_prepare(run);
    }
    if (run->state == WEFT_RUN_WAITS) {
        weft_exec_glance(run);
    }
    weft_exec_advance(run);
}

static void work_done(struct weft_engine_work *work)
{
    struct weft_exec *exec = WEFT_CONTAINER_OF(work, struct weft_exec, work);
    struct weft_exec_run *run = &exec->active;
    exec->is_at_work = false;
    if (run->state == WEFT_RUN_OVER) {
        end_entry(exec, run->status, run->status == WEFT_OK ? "" : exec->text);
        start_next(exec);
        return;
    }
    watch(exec, run);
    if (exec->is_armed) { /* somebody sleeps, and the run has moved on: perhaps to another board */
        set_asleep(exec, true);
        atomic_thread_fence(memory_order_seq_cst); /* with weft_exec_show() */
    }
    (void)poll_words(&exec->poller); /* it may have come meanwhile */
}

/* The clock of what nobody waits for is kept by work_run(). */
static void tick(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_exec *exec = WEFT_CONTAINER_OF(timer, struct weft_exec, timer);
    if (!exec->is_active) {
        return;
    }
    if (!exec->is_at_work) {
        exec->is_at_work = true;
        weft_engine_work_add(exec->engine, &exec->work);
    }
    weft_engine_timer_set(exec->engine, timer, now_ns + WEFT_EXEC_TICK_MS * WEFT_NS_PER_MS);
}

/* Nothing runs yet, or nothing that has not begun its time: no lock. */
void weft_exec_set_since(struct weft_exec *exec, uint64_t since_ns)
{
    exec->since_ns = since_ns;
}

bool weft_exec_is_queued(const struct weft_exec *exec)
{
    return exec->is_active;
}

/* There are as many as were in flight at once. */
static struct weft_exec_entry *take_entry(struct weft_exec *exec)
{
    struct weft_list *node;
    weft_engine_lock(exec->engine);
    node = weft_list_is_empty(&exec->spare) ? NULL : weft_list_take(&exec->spare);
    weft_engine_unlock(exec->engine);
    return node != NULL ? WEFT_CONTAINER_OF(node, struct weft_exec_entry, node)
                        : malloc(sizeof(struct weft_exec_entry));
}

weft_status_t weft_exec_begin(struct weft_exec *exec, const struct weft_exec_job *job,
                              weft_request_t request)
{
    struct weft_exec_entry *entry = take_entry(exec);
    if (entry == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a collective");
    }
    entry->job = *job;
    entry->job.quick = NULL; /* its owner may forget it */
    entry->request = request;
    weft_list_open(&entry->node);
    weft_engine_lock(exec->engine);
    weft_list_append(&exec->queue, &entry->node);
    if (!exec->is_active) {
        start_next(exec);
    }
    weft_engine_unlock(exec->engine);
    return WEFT_OK;
}

void weft_exec_queue_open(struct weft_exec *exec)
{
    exec->poller = (struct weft_engine_poller){.poll = poll_words, .arm = arm, .disarm = disarm};
    weft_list_open(&exec->poller.node);
    weft_list_open(&exec->queue);
    weft_list_open(&exec->spare);
    exec->work = (struct weft_engine_work){.run = work_run, .done = work_done};
    weft_list_open(&exec->work.node);
    weft_engine_timer_open(&exec->timer, tick);
}

void weft_exec_queue_close(struct weft_exec *exec)
{
    while (!weft_list_is_empty(&exec->spare)) {
        struct weft_list *node = weft_list_take(&exec->spare);
        free(WEFT_CONTAINER_OF(node, struct weft_exec_entry, node));
    }
}

void weft_exec_stop(struct weft_exec *exec)
{
    if (exec == NULL) {
        return;
    }
    weft_engine_lock(exec->engine);
    weft_engine_work_flush(exec->engine); /* the present one is not at work then */
    watch(exec, NULL);
    weft_engine_timer_cancel(exec->engine, &exec->timer);
    if (exec->is_active) {
        weft_engine_unlock(exec->engine);
        weft_exec_abandon(&exec->active);
        weft_engine_lock(exec->engine);
    }
    while (!weft_list_is_empty(&exec->queue)) {
        end_entry(exec, WEFT_ERR_INVALID, "the communicator was closed");
    }
    exec->is_active = false;
    weft_engine_unlock(exec->engine);
}
