/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers where they lie. Before plans that could do without slots the ranks show each other where their
 * buffers are. Memory from weft_alloc() is mapped, and read and written like our own; of private memory the
 * inputs can be pulled, by CMA: the kernel copies them from one process to the other.
 */
#include "exec/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERDICT_MS 1000
#define MAP_WAIT_NS 20000

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

static void describe(const void *memory, size_t len, uint64_t *region_p, uint64_t *offset_p)
{
    struct weft_mem_place place = {.offset = (uintptr_t)memory};
    if (memory != NULL && len > 0 && weft_mem_find(memory, len, &place)) {
        *region_p = place.id;
    }
    *offset_p = place.offset;
}

void weft_exec_show_buffers(struct weft_exec_run *run)
{
    struct weft_board_line *line = weft_board_line(run->board, run->board->rank);
    const struct weft_exec_data *data = run->binding.data;
    struct weft_board_descriptor buffers = {.process = run->exec->process, .pid = run->exec->pid};
    struct extent extent = extent_of(run, run->board->rank);
    describe(data->in, extent.in, &buffers.in_region, &buffers.in_offset);
    describe(data->out, extent.out, &buffers.out_region, &buffers.out_offset);
    if (run->board->rank == 0 && run->job->stage[run->stage].may_pull) {
        buffers.is_pulled = weft_exec_way_begin(run);
    }
    line->buffers = buffers;
    weft_exec_show(run, WEFT_EXEC_ENTRY_SHOWS);
}

bool weft_exec_can_map(const struct weft_exec_run *run)
{
    bool is_pulled = weft_board_line(run->board, 0)->buffers.is_pulled != 0;
    for (uint32_t rank = 0; rank < run->board->ranks; rank++) {
        const struct weft_board_descriptor *buffers = &weft_board_line(run->board, rank)->buffers;
        struct extent extent = extent_of(run, rank);
        if ((extent.in > 0 && buffers->in_region == 0 && !is_pulled) ||
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
    void *memory = NULL;
    weft_status_t status;
    for (bool is_first = true;; is_first = false) {
        const _Atomic uint32_t never = 0;
        weft_engine_lock(exec->engine);
        status = weft_p2p_map(exec->spec.messages, weft_exec_member(run->group, rank), place,
                              &memory, held_p);
        weft_engine_unlock(exec->engine);
        if (status != WEFT_ERR_BUSY) {
            break;
        }
        if (is_first) {
            weft_exec_await_end(run);
            run->await.rank = rank;
            weft_exec_begin_time(run);
        }
        weft_engine_wait(exec->engine, &never, weft_clock_ns() + MAP_WAIT_NS);
        weft_exec_glance(run);
        if (run->state == WEFT_RUN_DRAINS) {
            return run->status;
        }
    }
    if (status == WEFT_OK && *held_p != NULL) {
        weft_mem_mapping_warm(*held_p, memory, place->len);
    }
    *memory_p = memory;
    return status;
}

bool weft_exec_is_here(const struct weft_exec_run *run, uint32_t rank)
{
    const struct weft_board_descriptor *buffers = &weft_board_line(run->board, rank)->buffers;
    return buffers->process == run->exec->process && buffers->pid == run->exec->pid;
}

static weft_status_t map_rank(struct weft_exec_run *run, uint32_t rank)
{
    const struct weft_board_descriptor *buffers = &weft_board_line(run->board, rank)->buffers;
    struct weft_exec_view *view = &run->exec->views[rank];
    struct extent extent = extent_of(run, rank);
    const struct weft_p2p_place in = {buffers->in_region, buffers->in_offset, extent.in};
    const struct weft_p2p_place out = {buffers->out_region, buffers->out_offset, extent.out};
    weft_status_t status = WEFT_OK;
    if (extent.in > 0 && buffers->in_region == 0) {
        view->in = weft_mem_there(buffers->in_offset);
        view->pid = weft_exec_is_here(run, rank) ? 0 : buffers->pid;
    } else if (extent.in > 0) {
        status = map(run, rank, &in, &view->in, &view->held[0]);
    }
    return status == WEFT_OK && extent.out > 0 ? map(run, rank, &out, &view->out, &view->held[1])
                                               : status;
}

static bool fail(struct weft_exec_run *run, weft_status_t status)
{
    weft_exec_fail(run, status, WEFT_WIRE_NO_RANK, weft_error_text());
    return false;
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
    return status == WEFT_OK || fail(run, status);
}

void weft_exec_unmap(struct weft_exec_run *run)
{
    for (uint32_t rank = 0; rank < run->group->ranks; rank++) {
        struct weft_exec_view *view = &run->exec->views[rank];
        weft_mem_mapping_close(view->held[0]);
        weft_mem_mapping_close(view->held[1]);
    }
    run->is_mapped = false;
}

/* Whoever dies takes its memory along: its end is on its way then, and says more. */
static bool is_end_heard(struct weft_exec_run *run, uint32_t peer)
{
    uint64_t deadline_ns = weft_clock_after_ms(VERDICT_MS);
    _Atomic uint32_t never = 0;
    weft_exec_await_end(run);
    run->await.rank = peer;
    while (!weft_exec_look_around(run)) {
        if (weft_clock_ns() > deadline_ns) {
            return false;
        }
        weft_engine_wait(run->exec->engine, &never, weft_clock_after_ms(5));
    }
    return true;
}

bool weft_exec_pull(struct weft_exec_run *run, uint32_t peer, const struct weft_slice *from,
                    void *to)
{
    const size_t most = WEFT_EXEC_WORK / 2;
    pid_t pid = run->exec->views[peer].pid;
    bool is_there = true;
    int error;
    run->exec->moved += 2 * from->len;
    for (size_t at = 0; at < from->len && is_there; at += most) {
        const struct weft_slice slice = {.data = (uint8_t *)to + at,
                                         .len = from->len - at < most ? from->len - at : most};
        is_there = weft_mem_pull(pid, (uintptr_t)from->data + at, &slice);
        if (is_there && !weft_exec_worked(run, 2 * slice.len)) {
            return false;
        }
    }
    if (is_there) {
        return true;
    }
    error = errno;
    if (is_end_heard(run, peer)) {
        return false;
    }
    errno = error;
    return fail(run, weft_fail_errno("cannot read %zu bytes of the memory of rank %u", from->len,
                                     weft_exec_member(run->group, peer)));
}
