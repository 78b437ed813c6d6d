/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop. A run goes through its stages, a stage through its rounds, a round through its steps; it stops
 * where a step must wait and goes on there. Whoever calls advance() owns the run meanwhile: the caller of a
 * blocking operation, or whoever drives the engine (queue.c).
 */
#include "exec/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what a shape needs ---- */

void weft_exec_measure(const struct weft_plan *plan, uint32_t rank, struct weft_exec_needs *needs_p)
{
    uint32_t rounds = plan->builder->rounds(plan, rank);
    struct weft_exec_needs needs = {0};
    struct weft_plan_step step;
    if ((plan->builder->traits & WEFT_PLAN_SHARED) != 0) {
        *needs_p = needs;
        return;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t items = 0, staged = 0;
        for (uint32_t i = 0; plan->builder->step(plan, rank, round, i, &step); i++) {
            items += step.kind <= WEFT_STEP_RECV_REDUCE;
            staged += step.kind == WEFT_STEP_RECV_REDUCE ? step.to.blocks : 0;
        }
        needs.items = items > needs.items ? items : needs.items;
        needs.staged = staged > needs.staged ? staged : needs.staged;
    }
    *needs_p = needs;
}

static weft_status_t grow_items(struct weft_exec *exec, uint32_t room)
{
    struct weft_exec_item *sends = calloc(room, sizeof(*sends));
    struct weft_exec_item *recvs = calloc(room, sizeof(*recvs));
    if (sends == NULL || recvs == NULL) {
        free(sends);
        free(recvs);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a collective of %u messages", room);
    }
    free(exec->sends);
    free(exec->recvs);
    exec->sends = sends;
    exec->recvs = recvs;
    exec->item_room = room;
    return WEFT_OK;
}

/* Room for at least `len` bytes, whose content does not matter. */
static weft_status_t grow(uint8_t **memory, size_t *room, size_t len)
{
    uint8_t *grown;
    if (len <= *room) {
        return WEFT_OK;
    }
    len = (len + 4095) / 4096 * 4096;
    grown = aligned_alloc(4096, len);
    if (grown == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a collective: %zu bytes of scratch", len);
    }
    free(*memory);
    *memory = grown;
    *room = len;
    return WEFT_OK;
}

static weft_status_t reserve(struct weft_exec *exec, const struct weft_exec_job *job)
{
    size_t most = 0, copies = 0;
    uint32_t items = 0;
    weft_status_t status;
    for (uint32_t i = 0; i < job->stages; i++) {
        const struct weft_exec_stage *stage = &job->stage[i];
        struct weft_exec_data data = stage->data;
        struct weft_binding binding;
        size_t len = weft_exec_prelude_len(stage);
        copies = len > copies ? len : copies;
        if (stage->needs.items == 0 && stage->plan.tmp_units == 0) {
            continue;
        }
        data.dtype = data.prelude == WEFT_PRELUDE_WIDEN ? WEFT_F32 : data.dtype;
        weft_bind(&stage->plan, stage->group, &data, &binding);
        len = weft_bind_unit(&binding);
        len = stage->plan.tmp_units * len + stage->needs.staged * weft_exec_staged_len(len);
        most = len > most ? len : most;
        items = stage->needs.items > items ? stage->needs.items : items;
    }
    status = grow(&exec->scratch, &exec->scratch_room, most);
    status = status == WEFT_OK ? grow(&exec->copies, &exec->copies_room, copies) : status;
    return status == WEFT_OK && items > exec->item_room ? grow_items(exec, items + 16) : status;
}

void weft_exec_prepare(struct weft_exec_run *run)
{
    const struct weft_exec_group *group = run->job->stage[0].group;
    weft_status_t status = reserve(run->exec, run->job);
    char name[128], text[WEFT_ERROR_TEXT_LEN + sizeof(name)];
    if (status != WEFT_OK) {
        weft_p2p_comm_name(run->exec->spec.messages, weft_exec_member(group, group->rank), name,
                           sizeof(name));
        snprintf(text, sizeof(text), "%s: %s", name, weft_error_text());
        weft_exec_fail(run, status, WEFT_WIRE_NO_RANK, text);
    }
}

/* ---- the loop ---- */

void weft_exec_run_open(struct weft_exec_run *run, struct weft_exec *exec,
                        const struct weft_exec_job *job)
{
    run->exec = exec;
    run->job = job;
    run->state = WEFT_RUN_GOES;
    run->status = WEFT_OK;
    run->stage = run->round = run->index = run->entry = 0;
    run->board = NULL;
    run->is_begun = run->is_mapped = false;
    run->is_overdue = false;
    run->withdrawn_ns = run->judge_ns = 0;
    run->worked = 0;
    run->sends = run->recvs = run->next_recv = 0;
}

/* false: it has failed, or must wait. */
static bool begin_stage(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    struct weft_exec *exec = run->exec;
    run->plan = &stage->plan;
    run->group = stage->group;
    run->round = run->index = 0;
    run->sends = run->recvs = run->next_recv = 0;
    run->staged_len = 0;
    if (run->entry == 0 && !weft_exec_prelude(run)) {
        return false;
    }
    weft_bind(run->plan, run->group, &run->data, &run->binding);
    run->is_out_streamed = run->binding.total_len > (size_t)1 << 20 &&
                           (size_t)2 * run->group->ranks * run->binding.total_len > exec->cache_len;
    exec->tmp_len = (size_t)run->plan->tmp_units * weft_bind_unit(&run->binding);
    if ((run->plan->builder->traits & WEFT_PLAN_SHARED) != 0 && run->group->ranks > 1 &&
        !weft_exec_shared_begin(run)) {
        return false;
    }
    run->rounds = run->plan->builder->rounds(run->plan, run->group->rank);
    run->is_begun = true;
    return true;
}

/* false: it must wait, or has failed; the same step comes again. */
static bool do_step(struct weft_exec_run *run, const struct weft_plan_step *step)
{
    switch (step->kind) {
    case WEFT_STEP_SEND:
        return weft_exec_send(run, step);
    case WEFT_STEP_RECV:
    case WEFT_STEP_RECV_REDUCE:
        return weft_exec_recv(run, step);
    case WEFT_STEP_SHOW:
        if (run->board != NULL) { /* else alone */
            weft_exec_show(run, step->value);
        }
        return true;
    case WEFT_STEP_AWAIT:
    case WEFT_STEP_AWAIT_FREE:
    case WEFT_STEP_AWAIT_ANY:
        return weft_exec_await_step(run, step);
    default:
        break;
    }
    if (run->sends > 0) {
        struct weft_slice to = weft_exec_resolve(run, &step->to, run->group->rank);
        if (!weft_exec_is_writable(run, &to)) {
            return false;
        }
    }
    return step->kind == WEFT_STEP_COPY ? weft_exec_copy(run, step) : weft_exec_reduce(run, step);
}

/* It may take a message to everybody and back: whoever withdraws its memory meanwhile need not wait for us. */
static bool map_for_claim(struct weft_exec_run *run)
{
    weft_board_end_claims(run->board);
    return weft_exec_map(run) && weft_board_resume_claims(run->board);
}

/* The steps that anyone may do, as many as fall to us. They follow each other in their round. false: it goes
 * no further. */
static bool do_anys(struct weft_exec_run *run, struct weft_plan_step *step)
{
    uint32_t first = run->index;
    uint32_t count = run->plan->parts;
    uint32_t claimed, done = 0;
    weft_board_begin_claims(run->board);
    while ((claimed = weft_board_claim(run->board, count)) < count) {
        if (!run->is_mapped && !map_for_claim(run)) {
            break; /* it has failed, and the communicator; or somebody else has, and the verdict comes */
        }
        run->plan->builder->step(run->plan, run->group->rank, run->round, first + claimed, step);
        if (!do_step(run, step)) {
            break; /* nobody gets the half of it */
        }
        done++;
    }
    if (done > 0 && weft_exec_has_withdrawn(run)) {
        done = 0; /* what we read there may not be what it was: nobody gets it */
    }
    weft_board_tell_tsan(WEFT_BOARD_ANYBODY);
    atomic_fetch_add(&run->board->table->any_done, done);
    weft_board_end_claims(run->board);
    /* … with whoever says that it sleeps, then looks */
    if (atomic_load_explicit(&run->board->table->sleepers, memory_order_relaxed) != 0) {
        weft_exec_ring(run->exec, run->group);
    }
    if (run->state == WEFT_RUN_DRAINS || run->is_overdue) {
        return false;
    }
    run->anys = count;
    run->index = first + count;
    return true;
}

/* false: it must wait, or has failed. */
static bool do_round(struct weft_exec_run *run)
{
    struct weft_plan_step step;
    while (run->plan->builder->step(run->plan, run->group->rank, run->round, run->index, &step)) {
        if ((step.flags & WEFT_STEP_ANY) != 0) {
            if (!do_anys(run, &step)) {
                return false;
            }
            continue;
        }
        if (!do_step(run, &step)) {
            return false;
        }
        run->index++;
    }
    if (run->recvs > 0 && !weft_exec_reap(run)) {
        return false;
    }
    run->staged_len = 0;
    return true;
}

/* Apart: its steps are most of the time in nobody's way. */
static bool do_stage(struct weft_exec_run *run)
{
    if (!run->is_begun && !begin_stage(run)) {
        return false;
    }
    for (; run->round < run->rounds; run->round++, run->index = 0) {
        if (!do_round(run)) {
            return false;
        }
    }
    if (run->sends > 0 && !weft_exec_sends_are_over(run)) {
        return false;
    }
    if (run->board != NULL) {
        if (run->is_mapped && run->anys == 0 && weft_exec_has_withdrawn(run)) {
            weft_exec_await_end(run);
            return false; /* the same */
        }
        weft_exec_shared_end(run);
        run->board = NULL;
    }
    if (!weft_exec_postlude(run)) {
        return false;
    }
    run->is_begun = false;
    return true;
}

void weft_exec_advance(struct weft_exec_run *run)
{
    if (run->state == WEFT_RUN_WAITS) {
        run->state = WEFT_RUN_GOES;
    }
    if (run->is_overdue) {
        weft_exec_await_verdict(run);
    }
    while (run->state == WEFT_RUN_GOES && !run->is_overdue) {
        if (!do_stage(run)) {
            break;
        }
        if (++run->stage == run->job->stages) {
            run->state = WEFT_RUN_OVER;
        }
    }
    if (run->state == WEFT_RUN_DRAINS && weft_exec_is_judged(run) && weft_exec_is_drained(run) &&
        weft_exec_withdraw(run)) {
        if (run->is_mapped) {
            weft_exec_unmap(run);
        }
        run->state = WEFT_RUN_OVER;
    } else if (run->state == WEFT_RUN_GOES) {
        run->state = WEFT_RUN_WAITS;
    }
}

/* ---- life ---- */

weft_status_t weft_exec_open(const struct weft_exec_spec *spec, struct weft_exec **exec_p)
{
    struct weft_exec *exec;
    uint64_t process;
    weft_status_t status = weft_process_id(&process);
    if (status != WEFT_OK) {
        return status;
    }
    exec = calloc(1, sizeof(*exec));
    if (exec == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for collectives");
    }
    exec->spec = *spec;
    exec->engine = weft_p2p_engine(spec->messages);
    exec->ended = weft_p2p_comm_ended(spec->messages);
    exec->cache_len = weft_mem_cache_len();
    exec->process = process;
    exec->pid = getpid();
    weft_exec_queue_open(exec);
    *exec_p = exec;
    return WEFT_OK;
}

void weft_exec_close(struct weft_exec *exec)
{
    if (exec == NULL) {
        return;
    }
    free(exec->sends);
    free(exec->recvs);
    free(exec->scratch);
    free(exec->copies);
    free(exec->views);
    weft_exec_queue_close(exec);
    free(exec);
}

uint64_t weft_exec_moved(const struct weft_exec *exec)
{
    return exec->moved;
}

weft_status_t weft_exec_finish(struct weft_exec_run *run)
{
    for (weft_exec_advance(run); run->state != WEFT_RUN_OVER; weft_exec_advance(run)) {
        weft_exec_wait(run);
    }
    return run->status == WEFT_OK ? WEFT_OK : weft_fail(run->status, "%s", run->exec->text);
}

weft_status_t weft_exec_run(struct weft_exec *exec, struct weft_exec_job *job)
{
    struct weft_exec_run run;
    weft_status_t status;
    if (job->quick != NULL) {
        return weft_exec_run_quickly(exec, job);
    }
    job->record = weft_recorder_begin(exec->spec.recorder, &job->call);
    weft_exec_run_open(&run, exec, job);
    weft_exec_prepare(&run);
    status = weft_exec_finish(&run);
    weft_recorder_end(exec->spec.recorder, job->record, status);
    return status;
}
