/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps on the board. A stage begins when this rank's line is free again; before plans that could read and
 * write all buffers where they lie, the ranks first show each other where that is, and those plans take over
 * if everybody's is memory from weft_alloc().
 */
#include "exec/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft_exec_ring(struct weft_exec *exec, struct weft_exec_group *group)
{
    struct weft_board *board = group->board;
    weft_engine_lock(exec->engine);
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        if (rank != group->rank &&
            atomic_load_explicit(&board->seats[rank].asleep, memory_order_acquire) != 0) {
            weft_p2p_nudge(exec->spec.messages, weft_exec_member(group, rank));
        }
    }
    weft_engine_unlock(exec->engine);
}

void weft_exec_show(struct weft_exec_run *run, uint32_t value)
{
    weft_exec_show_line(run->group, run->job->signature + run->stage, value);
    weft_exec_settle(run->exec, run->group);
}

static __attribute__((noinline)) bool differs(struct weft_exec_run *run, uint32_t rank)
{
    struct weft_exec *exec = run->exec;
    exec->spec.differs(exec->spec.owner, run->job, weft_exec_member(run->group, rank));
    /* Both calls go to the coordinator, whose verdict names them. */
    run->await = (struct weft_exec_await){.word = NULL, .rank = rank};
    atomic_store_explicit(&exec->bell, 0, memory_order_relaxed);
    return false;
}

/* Is this rank as far? */
static inline bool has_shown(struct weft_exec_run *run, uint32_t rank, uint32_t clock)
{
    struct weft_board *board = run->board;
    struct weft_board_line *line = weft_board_line(board, rank);
    if (!weft_board_is_past(atomic_load_explicit(&line->head, memory_order_acquire), clock)) {
        run->await = (struct weft_exec_await){.word = &line->head, .value = clock, .rank = rank};
        return false;
    }
    weft_board_ask_tsan(rank);
    if (line->signature != run->job->signature + run->stage) {
        return differs(run, rank);
    }
    board->known[rank] = board->clock;
    return true;
}

static bool have_all_shown(struct weft_exec_run *run, uint32_t clock)
{
    struct weft_board *board = run->board;
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        if (rank != board->rank && !has_shown(run, rank, clock)) {
            return false;
        }
    }
    board->everybody = board->clock;
    return true;
}

bool weft_exec_await_step(struct weft_exec_run *run, const struct weft_plan_step *step)
{
    struct weft_board *board = run->board;
    if (step->kind == WEFT_STEP_AWAIT_FREE) {
        return true; /* as the stage began */
    }
    if (step->kind == WEFT_STEP_AWAIT_ANY) {
        run->await = (struct weft_exec_await){.word = &board->table->any_done,
                                              .value = board->any_base + run->anys,
                                              .rank = WEFT_WIRE_NO_RANK};
        if (!weft_exec_is_reached(run->exec, &run->await)) {
            return false;
        }
        weft_board_ask_tsan(WEFT_BOARD_ANYBODY);
        return true;
    }
    return step->peer == WEFT_PLAN_ALL ? have_all_shown(run, board->clock + step->value)
                                       : has_shown(run, step->peer, board->clock + step->value);
}

/* ---- beginning and end of a stage ---- */

static void switch_plan(struct weft_exec_run *run, const struct weft_plan *plan)
{
    run->plan = plan;
    weft_bind(plan, run->group, &run->data, &run->binding);
}

static bool enter(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    struct weft_board *board = run->board;
    if (!have_all_shown(run, board->clock + WEFT_EXEC_ENTRY_SHOWS)) {
        return false;
    }
    if (weft_exec_can_map(run)) {
        /* Steps that anyone may do: who does none needs no buffers, and may come when they are gone. */
        if (stage->mapped.coll != WEFT_ALLREDUCE && !weft_exec_map(run)) {
            return false;
        }
        switch_plan(run, &stage->mapped);
    }
    board->clock += WEFT_EXEC_ENTRY_SHOWS; /* on every rank alike */
    return true;
}

static bool take_slots(struct weft_exec_run *run)
{
    size_t len = run->plan->slots * run->binding.slot_len;
    if (len > run->board->ring_len) {
        weft_exec_fail(run, WEFT_ERR_UNSUPPORTED, WEFT_WIRE_NO_RANK,
                       "the plan needs more shared memory than there is");
        return false;
    }
    run->is_short = len <= WEFT_BOARD_LINE_DATA && !run->job->stage[run->stage].has_mapped;
    run->slots_free = run->is_short || len == 0
                          ? weft_board_take_line(run->board)
                          : weft_board_take(run->board, len, &run->slot_offset);
    return true;
}

bool weft_exec_shared_begin(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    uint32_t slow;
    if (run->entry == 0) {
        run->board = run->group->board;
        run->is_mapped = false;
        run->anys = 0;
        run->entered_ns = 0;
        if (!take_slots(run)) {
            return false;
        }
        run->entry = 1;
    }
    run->board = run->group->board;
    if (run->entry == 1) {
        if (!weft_board_has_ended(run->board, run->slots_free, &slow)) {
            run->await = (struct weft_exec_await){
                .word = &run->board->seats[slow].ended, .value = run->slots_free, .rank = slow};
            return false;
        }
        run->entry = 2;
        if (stage->has_mapped) {
            weft_exec_show_buffers(run);
        }
    }
    if (stage->has_mapped && !enter(run)) {
        return false;
    }
    run->entry = 0;
    return true;
}

void weft_exec_shared_end(struct weft_exec_run *run)
{
    if (run->is_mapped) {
        weft_exec_unmap(run);
    }
    weft_board_end(run->board, run->plan->shows, run->anys);
    if (run->entered_ns != 0) {
        weft_exec_way_end(run);
    }
    run->entry = 0;
}
