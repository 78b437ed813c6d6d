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

#define ENTRY_SHOWS 1 /* of showing each other the buffers */

static uint32_t member(const struct weft_exec_group *group, uint32_t rank)
{
    return group->members != NULL ? group->members[rank] : rank;
}

void weft_exec_ring(struct weft_exec *exec, struct weft_exec_group *group)
{
    struct weft_board *board = group->board;
    weft_engine_lock(exec->engine);
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        if (rank != group->rank &&
            atomic_load_explicit(&board->seats[rank].asleep, memory_order_acquire) != 0) {
            weft_p2p_nudge(exec->spec.messages, member(group, rank));
        }
    }
    weft_engine_unlock(exec->engine);
}

void weft_exec_show(struct weft_exec_run *run, uint32_t value)
{
    weft_exec_show_line(run->exec, run->group, run->job->signature + run->stage, value);
}

static __attribute__((noinline)) bool differs(struct weft_exec_run *run, uint32_t rank)
{
    struct weft_exec *exec = run->exec;
    exec->spec.differs(exec->spec.owner, run->job, member(run->group, rank));
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
        return weft_exec_is_reached(run->exec, &run->await);
    }
    return step->peer == WEFT_PLAN_ALL ? have_all_shown(run, board->clock + step->value)
                                       : has_shown(run, step->peer, board->clock + step->value);
}

/* ---- buffers that everybody can touch ---- */

static void describe(const void *memory, size_t len, uint64_t *region_p, uint64_t *offset_p)
{
    struct weft_mem_place place = {.id = 0};
    if (memory != NULL && len > 0 && weft_mem_find(memory, len, &place)) {
        *region_p = place.id;
        *offset_p = place.offset;
    }
}

struct extent {
    size_t in, out; /* bytes of a rank's buffers that others touch */
};

/* Only a sum for all writes to others' outputs. */
static struct extent extent_of(const struct weft_exec_run *run, uint32_t rank)
{
    const struct weft_binding *binding = &run->binding;
    const struct weft_plan *plan = run->plan;
    size_t all = binding->is_vector ? binding->total_len : binding->total_len * binding->ranks;
    bool is_read = plan->coll != WEFT_BROADCAST || rank == plan->root;
    return (struct extent){.in = !is_read             ? 0
                                 : binding->is_in_own ? binding->total_len
                                                      : all,
                           .out = plan->coll == WEFT_ALLREDUCE ? all : 0};
}

static void show_buffers(struct weft_exec_run *run)
{
    struct weft_board_line *line = weft_board_line(run->board, run->board->rank);
    const struct weft_exec_data *data = run->binding.data;
    struct weft_board_descriptor buffers = {0};
    struct extent extent = extent_of(run, run->board->rank);
    describe(data->in, extent.in, &buffers.in_region, &buffers.in_offset);
    describe(data->out, extent.out, &buffers.out_region, &buffers.out_offset);
    line->buffers = buffers;
    weft_exec_show(run, ENTRY_SHOWS);
}

static bool are_all_shared(const struct weft_exec_run *run)
{
    for (uint32_t rank = 0; rank < run->board->ranks; rank++) {
        const struct weft_board_descriptor *buffers = &weft_board_line(run->board, rank)->buffers;
        struct extent extent = extent_of(run, rank);
        if ((extent.in > 0 && buffers->in_region == 0) ||
            (extent.out > 0 && buffers->out_region == 0)) {
            return false;
        }
    }
    return true;
}

/* Once per allocation and peer this takes a message to the peer and back. */
static weft_status_t map(struct weft_exec_run *run, uint32_t rank,
                         const struct weft_p2p_place *place, uint8_t **memory_p,
                         struct weft_mem_mapping **held_p)
{
    struct weft_exec *exec = run->exec;
    uint64_t deadline_ns = weft_clock_after_ms(1000);
    void *memory = NULL;
    for (;;) {
        weft_status_t status;
        weft_engine_lock(exec->engine);
        status =
            weft_p2p_map(exec->spec.messages, member(run->group, rank), place, &memory, held_p);
        weft_engine_unlock(exec->engine);
        if (status == WEFT_OK) {
            *memory_p = memory;
            return WEFT_OK;
        }
        if (status != WEFT_ERR_BUSY || weft_clock_ns() > deadline_ns ||
            atomic_load(exec->ended) != WEFT_OK) {
            return status;
        }
        _Atomic uint32_t never = 0;
        weft_engine_wait(exec->engine, &never, weft_clock_ns() + 20000);
    }
}

static weft_status_t map_rank(struct weft_exec_run *run, uint32_t rank)
{
    const struct weft_board_descriptor *buffers = &weft_board_line(run->board, rank)->buffers;
    struct weft_exec_view *view = &run->exec->views[rank];
    struct extent extent = extent_of(run, rank);
    const struct weft_p2p_place in = {buffers->in_region, buffers->in_offset, extent.in};
    const struct weft_p2p_place out = {buffers->out_region, buffers->out_offset, extent.out};
    weft_status_t status = extent.in > 0 ? map(run, rank, &in, &view->in, &view->held[0]) : WEFT_OK;
    return status == WEFT_OK && extent.out > 0 ? map(run, rank, &out, &view->out, &view->held[1])
                                               : status;
}

static void let_go(struct weft_exec_run *run)
{
    for (uint32_t rank = 0; rank < run->group->ranks; rank++) {
        struct weft_exec_view *view = &run->exec->views[rank];
        weft_mem_mapping_close(view->held[0]);
        weft_mem_mapping_close(view->held[1]);
    }
    run->is_mapped = false;
}

bool weft_exec_map(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    weft_status_t status = WEFT_OK;
    if (exec->views == NULL) {
        exec->views = calloc(exec->spec.ranks, sizeof(*exec->views));
        status = exec->views != NULL ? WEFT_OK : weft_fail(WEFT_ERR_MEMORY, "no memory for views");
    }
    if (status == WEFT_OK) {
        memset(exec->views, 0, run->group->ranks * sizeof(*exec->views));
        run->is_mapped = true;
    }
    for (uint32_t rank = 0; status == WEFT_OK && rank < run->group->ranks; rank++) {
        if (rank == run->group->rank) {
            exec->views[rank].in = (uint8_t *)run->binding.data->in;
            exec->views[rank].out = run->binding.data->out;
        } else {
            status = map_rank(run, rank);
        }
    }
    if (status != WEFT_OK) { /* the others count on us */
        weft_exec_fail(run, status, weft_error_text());
        weft_p2p_comm_fail(exec->spec.messages, status, WEFT_WIRE_NO_RANK, exec->text, true);
    }
    return status == WEFT_OK;
}

static void switch_plan(struct weft_exec_run *run, const struct weft_plan *plan)
{
    run->plan = plan;
    weft_bind(plan, run->group, &run->data, &run->binding);
}

/* ---- beginning and end of a stage ---- */

static bool enter(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    struct weft_board *board = run->board;
    if (!have_all_shown(run, board->clock + ENTRY_SHOWS)) {
        return false;
    }
    if (are_all_shared(run)) {
        /* Steps that anyone may do: who does none needs no buffers, and may come when they are gone. */
        if (stage->mapped.coll != WEFT_ALLREDUCE && !weft_exec_map(run)) {
            return false;
        }
        switch_plan(run, &stage->mapped);
    }
    board->clock += ENTRY_SHOWS; /* on every rank alike */
    return true;
}

static bool take_slots(struct weft_exec_run *run)
{
    size_t len = run->plan->slots * run->binding.slot_len;
    if (len > run->board->ring_len) {
        weft_exec_fail(run, WEFT_ERR_UNSUPPORTED,
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
            show_buffers(run);
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
        let_go(run);
    }
    weft_board_end(run->board, run->plan->shows, run->anys);
    run->entry = 0;
}
