/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that others see, after a failure. When a failed call returns its memory is its caller's alone:
 *
 *   who reads our memory   looks at the end whether we have failed; then what was read counts for nothing
 *   who writes to it       has claimed a step that anyone may do: we stop the claims, and wait for those that
 *                          were made
 *
 * Who was stopped in the middle of such a step cannot be waited for. It keeps the pages that it has mapped,
 * and we get others with the same content in their place.
 */
#include "exec/internal.h"

#define LINGER_NS UINT64_C(100000000) /* a step takes a thousandth of it */

/* Have the others been told where it is? */
static bool is_written_by_others(const struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    bool is_shown = run->entry > 1 || (run->entry == 0 && run->is_begun);
    return run->board != NULL && is_shown && stage->has_mapped &&
           stage->mapped.coll == WEFT_ALLREDUCE;
}

static bool is_process_gone(const struct weft_exec_run *run, uint32_t rank)
{
    const struct weft_exec_spec *spec = &run->exec->spec;
    struct weft_exec_gone gone;
    return spec->is_gone(spec->owner, run->group, weft_exec_member(run->group, rank), &gone);
}

/* A rank at a claimed step, or the board's own: none is. */
static uint32_t find_writer(const struct weft_exec_run *run)
{
    const struct weft_board *board = run->board;
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        if (rank != board->rank && weft_board_is_at_claim(board, rank) &&
            !is_process_gone(run, rank)) {
            return rank;
        }
    }
    return board->rank;
}

static void leave_pages(const struct weft_exec_run *run, uint32_t rank)
{
    const struct weft_exec_data *data = run->binding.data;
    weft_status_t status = weft_mem_disown(data->out, run->binding.total_len);
    weft_log(comm, WARN, "rank %u stopped while it wrote to our memory: %s",
             weft_exec_member(run->group, rank),
             status == WEFT_OK ? "those pages were replaced" : weft_error_text());
}

bool weft_exec_withdraw(struct weft_exec_run *run)
{
    struct weft_board *board = run->board;
    uint64_t now_ns;
    uint32_t rank;
    if (!is_written_by_others(run)) {
        return true;
    }
    weft_board_stop_claims(board);
    rank = find_writer(run);
    if (rank == board->rank) {
        return true;
    }
    /* Nobody stops a thread of this process alone. */
    now_ns = weft_clock_ns();
    run->withdrawn_ns = run->withdrawn_ns == 0 ? now_ns : run->withdrawn_ns;
    if (now_ns - run->withdrawn_ns > LINGER_NS && !weft_exec_is_here(run, rank)) {
        leave_pages(run, rank);
        return true;
    }
    run->await = (struct weft_exec_await){
        .word = &board->seats[rank].claims, .value = board->operation + 1, .rank = rank};
    return false;
}

void weft_exec_abandon(struct weft_exec_run *run)
{
    const _Atomic uint32_t never = 0;
    weft_exec_show_failure(run);
    while (!weft_exec_withdraw(run)) {
        weft_engine_wait(run->exec->engine, &never, weft_clock_after_ms(1));
    }
    if (run->is_mapped) {
        weft_exec_unmap(run);
    }
}

bool weft_exec_has_withdrawn(const struct weft_exec_run *run)
{
    const struct weft_board *board = run->board;
    uint32_t end = board->clock + run->plan->shows;
    atomic_thread_fence(memory_order_acquire); /* what we have read was read before */
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        const struct weft_board_seat *seat = &board->seats[rank];
        /* Who has ended this operation needed everybody for it, and failed later. */
        if (rank != board->rank && atomic_load(&seat->failed) != 0 &&
            !weft_board_is_past(atomic_load(&seat->ended), end)) {
            return true;
        }
    }
    return false;
}

void weft_exec_await_end(struct weft_exec_run *run)
{
    const struct weft_board *board = run->board;
    run->await = (struct weft_exec_await){.word = &board->table->any_done,
                                          .value = board->any_base + (UINT32_C(1) << 30),
                                          .rank = WEFT_WIRE_NO_RANK};
}
