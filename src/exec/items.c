/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that are messages. Sends are not waited for before the end of the stage, except by a step that
 * writes to what they read; receives are waited for at the end of their round, and what is to be reduced is
 * applied in the order of the steps, as soon as it and all before it are here.
 */
#include "exec/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TAG_MASK 0x7fffffffu

/* Their messages wait, and then both calls are named. */
uint32_t weft_exec_tag(uint32_t signature, uint32_t number, uint32_t stage)
{
    uint32_t mixed = signature ^ (number * 0x9e3779b1u) ^ (stage * 0x85ebca77u);
    mixed ^= mixed >> 15;
    mixed *= 0x2c1b3c6du;
    mixed ^= mixed >> 12;
    return mixed & TAG_MASK;
}

static uint32_t member(const struct weft_exec_run *run, uint32_t peer)
{
    return run->group->members != NULL ? run->group->members[peer] : peer;
}

static void await_bell(struct weft_exec_run *run, uint32_t rank)
{
    run->await = (struct weft_exec_await){.word = NULL, .rank = rank};
}

/* Before we look at requests: who is done afterwards rings again. If this takes a ring away, it also sees
 * what was rung for. */
static void clear_bell(struct weft_exec *exec)
{
    (void)atomic_exchange_explicit(&exec->bell, 0, memory_order_acq_rel);
}

/* Has it another length than we expected? Then its sender called something else, and both are to be named:
 * the sender is told, and its verdict is waited for. Nobody gets the data. */
static bool is_disputed(struct weft_exec_run *run, const struct weft_exec_item *item)
{
    struct weft_exec *exec = run->exec;
    weft_status_t status = weft_p2p_result(item->request);
    const struct weft_exec_lengths lengths = {.came = weft_p2p_received(item->request),
                                              .expected = item->slice.len};
    if ((status != WEFT_OK && status != WEFT_ERR_TRUNCATED) || lengths.came == lengths.expected) {
        return false;
    }
    if (exec->disputed != run->job->number + 1) {
        exec->disputed = run->job->number + 1;
        exec->disputed_ns = weft_clock_ns();
        exec->spec.differs_in_length(exec->spec.owner, run->job, member(run, item->peer), &lengths);
    }
    return true;
}

/* Its result; false: the run goes no further. */
static bool finish(struct weft_exec_run *run, struct weft_exec_item *item)
{
    weft_status_t status = weft_p2p_wait(&item->request, WEFT_NO_LIMIT); /* it is done */
    item->request = NULL;
    if (status != WEFT_OK) {
        char text[WEFT_ERROR_TEXT_LEN];
        snprintf(text, sizeof(text), "%s", weft_error_text());
        weft_exec_fail(run, status, member(run, item->peer), text);
    }
    return status == WEFT_OK && weft_exec_worked(run, item->slice.len);
}

/* Forgets sends that are over. */
static void clean_sends(struct weft_exec_run *run)
{
    struct weft_exec_item *sends = run->exec->sends;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < run->sends; i++) {
        if (weft_p2p_is_done(sends[i].request)) {
            finish(run, &sends[i]);
        } else {
            sends[kept++] = sends[i];
        }
    }
    run->sends = kept;
}

static bool post(struct weft_exec_run *run, struct weft_exec_item *item, uint32_t peer)
{
    const struct weft_p2p_item what = {
        .is_send = item->is_send,
        .slice = item->slice,
        .rank = member(run, peer),
        .tag = weft_exec_tag(run->job->signature, run->job->number, run->stage),
        .bell = &run->exec->bell};
    weft_status_t status = weft_p2p_post(run->exec->spec.messages, &what, &item->request);
    if (status != WEFT_OK) {
        weft_exec_fail(run, status, WEFT_WIRE_NO_RANK, weft_error_text());
    }
    return status == WEFT_OK;
}

/* An empty block goes without a message where everybody knows that it is empty. */
static bool is_left_out(const struct weft_exec_run *run, const struct weft_plan_ref *ref,
                        size_t len)
{
    return len == 0 && ref->blocks > 0 && !run->job->stage[run->stage].sends_empty;
}

bool weft_exec_send(struct weft_exec_run *run, const struct weft_plan_step *step)
{
    struct weft_exec *exec = run->exec;
    struct weft_exec_item *item;
    struct weft_slice slice = weft_exec_resolve(run, &step->from, run->group->rank);
    if (is_left_out(run, &step->from, slice.len)) {
        return true;
    }
    if (run->sends == exec->item_room) {
        clear_bell(exec);
        clean_sends(run);
        if (run->sends == exec->item_room || run->state == WEFT_RUN_DRAINS) {
            await_bell(run, step->peer);
            return false;
        }
    }
    item = &exec->sends[run->sends];
    item->is_send = true;
    item->peer = step->peer;
    item->slice = slice;
    if (!post(run, item, step->peer)) {
        return false;
    }
    if (weft_p2p_is_done(item->request)) {
        return finish(run, item);
    }
    run->sends++;
    return true;
}

bool weft_exec_recv(struct weft_exec_run *run, const struct weft_plan_step *step)
{
    struct weft_exec *exec = run->exec;
    struct weft_exec_item *item = &exec->recvs[run->recvs];
    struct weft_slice to = weft_exec_resolve(run, &step->to, run->group->rank);
    if (is_left_out(run, &step->to, to.len)) {
        return true;
    }
    if (run->sends > 0 && !weft_exec_is_writable(run, &to)) {
        return false;
    }
    item->is_send = false;
    item->peer = step->peer;
    item->is_reduced = step->kind == WEFT_STEP_RECV_REDUCE;
    item->slice = to;
    item->step = *step;
    if (item->is_reduced) {
        item->slice.data = exec->scratch + exec->tmp_len + run->staged_len;
        run->staged_len += weft_exec_staged_len(to.len);
        assert(exec->tmp_len + run->staged_len <= exec->scratch_room);
    }
    if (!post(run, item, step->peer)) {
        return false;
    }
    run->recvs++;
    return true;
}

bool weft_exec_reap(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    clear_bell(exec);
    while (run->next_recv < run->recvs) {
        struct weft_exec_item *item = &exec->recvs[run->next_recv];
        if (!weft_p2p_is_done(item->request) || is_disputed(run, item)) {
            await_bell(run, item->step.peer);
            return false;
        }
        run->next_recv++;
        if (!finish(run, item)) {
            return false;
        }
        if (item->is_reduced && !weft_exec_apply(run, item)) {
            return false;
        }
    }
    run->recvs = run->next_recv = 0;
    return true;
}

bool weft_exec_has_lost_recv(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    for (uint32_t i = run->next_recv; i < run->recvs; i++) {
        struct weft_exec_item *item = &exec->recvs[i];
        if (item->request != NULL && weft_p2p_is_done(item->request)) {
            weft_status_t status = weft_p2p_result(item->request);
            if (status != WEFT_OK && status != WEFT_ERR_TRUNCATED) {
                (void)finish(run, item);
                return true;
            }
        }
    }
    return false;
}

bool weft_exec_is_writable(struct weft_exec_run *run, const struct weft_slice *slice)
{
    struct weft_exec *exec = run->exec;
    const uint8_t *from = slice->data;
    clear_bell(exec);
    clean_sends(run);
    for (uint32_t i = 0; i < run->sends; i++) {
        const uint8_t *read = exec->sends[i].slice.data;
        if (read < from + slice->len && from < read + exec->sends[i].slice.len) {
            await_bell(run, exec->sends[i].peer);
            return false;
        }
    }
    return run->state != WEFT_RUN_DRAINS;
}

bool weft_exec_sends_are_over(struct weft_exec_run *run)
{
    clear_bell(run->exec);
    clean_sends(run);
    if (run->sends > 0) {
        await_bell(run, run->exec->sends[0].peer);
    }
    return run->sends == 0 && run->state != WEFT_RUN_DRAINS;
}

void weft_exec_await_verdict(struct weft_exec_run *run)
{
    clear_bell(run->exec);
    await_bell(run, WEFT_WIRE_NO_RANK);
}

bool weft_exec_is_drained(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    clear_bell(exec);
    clean_sends(run);
    for (; run->next_recv < run->recvs; run->next_recv++) {
        struct weft_exec_item *item = &exec->recvs[run->next_recv];
        if (item->request != NULL && !weft_p2p_is_done(item->request)) {
            break;
        }
        if (item->request != NULL) {
            (void)weft_p2p_wait(&item->request, WEFT_NO_LIMIT);
        }
    }
    await_bell(run, WEFT_WIRE_NO_RANK);
    return run->sends == 0 && run->next_recv == run->recvs;
}
