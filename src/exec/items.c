/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that are messages. Sends are not waited for before the end of the stage, except by a step that
 * writes to what they read; receives are waited for at the end of their round, and what is to be reduced is
 * applied in the order of the steps, as soon as it and all before it are here.
 */
#include "exec/internal.h"

#include <stdio.h>
#include <string.h>

#define TAG_MASK 0x7fffffffu

/* Two calls that differ never match: their messages wait, and then both are named. */
static uint32_t tag_of(const struct weft_exec_run *run)
{
    uint32_t mixed =
        run->job->signature ^ (run->job->number * 0x9e3779b1u) ^ (run->stage * 0x85ebca77u);
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

/* Its result; false: the run has failed. */
static bool finish(struct weft_exec_run *run, struct weft_exec_item *item)
{
    weft_status_t status;
    size_t len = item->is_send ? item->slice.len : weft_p2p_received(item->request);
    status = weft_p2p_wait(&item->request, WEFT_NO_LIMIT); /* it is done */
    item->request = NULL;
    if (status == WEFT_OK && len != item->slice.len) {
        char text[128];
        snprintf(text, sizeof(text), "a rank sent %zu bytes where %zu were expected", len,
                 item->slice.len);
        status = WEFT_ERR_MISMATCH;
        weft_exec_fail(run, status, text);
        weft_p2p_comm_fail(run->exec->spec.messages, status, WEFT_WIRE_NO_RANK, text, true);
    } else if (status != WEFT_OK) {
        char text[WEFT_ERROR_TEXT_LEN];
        snprintf(text, sizeof(text), "%s", weft_error_text());
        weft_exec_fail(run, status, text);
        if (atomic_load(run->exec->ended) == WEFT_OK) { /* the others count on us */
            weft_p2p_comm_fail(run->exec->spec.messages, status, member(run, item->peer), text,
                               true);
        }
    }
    return status == WEFT_OK;
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
    const struct weft_p2p_item what = {.is_send = item->is_send,
                                       .slice = item->slice,
                                       .rank = member(run, peer),
                                       .tag = tag_of(run),
                                       .bell = &run->exec->bell};
    weft_status_t status = weft_p2p_post(run->exec->spec.messages, &what, &item->request);
    if (status != WEFT_OK) {
        weft_exec_fail(run, status, weft_error_text());
        weft_p2p_comm_fail(run->exec->spec.messages, status, WEFT_WIRE_NO_RANK, run->exec->text,
                           true);
    }
    return status == WEFT_OK;
}

bool weft_exec_send(struct weft_exec_run *run, const struct weft_plan_step *step)
{
    struct weft_exec *exec = run->exec;
    struct weft_exec_item *item;
    struct weft_slice slice = weft_exec_resolve(run, &step->from, run->group->rank);
    if (slice.len == 0 && step->from.blocks > 0) {
        return true; /* an empty block: nobody waits for it */
    }
    if (run->sends == exec->item_room) {
        atomic_store_explicit(&exec->bell, 0, memory_order_relaxed);
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
    if (to.len == 0 && step->to.blocks > 0) {
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
        run->staged_len += (to.len + 63) / 64 * 64;
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
    atomic_store_explicit(&exec->bell, 0, memory_order_seq_cst); /* before we look */
    while (run->next_recv < run->recvs) {
        struct weft_exec_item *item = &exec->recvs[run->next_recv];
        if (!weft_p2p_is_done(item->request)) {
            await_bell(run, item->step.peer);
            return false;
        }
        run->next_recv++;
        if (!finish(run, item)) {
            return false;
        }
        if (item->is_reduced) {
            weft_exec_apply(run, item);
        }
    }
    run->recvs = run->next_recv = 0;
    return true;
}

bool weft_exec_is_writable(struct weft_exec_run *run, const struct weft_slice *slice)
{
    struct weft_exec *exec = run->exec;
    const uint8_t *from = slice->data;
    atomic_store_explicit(&exec->bell, 0, memory_order_seq_cst);
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
    atomic_store_explicit(&run->exec->bell, 0, memory_order_seq_cst);
    clean_sends(run);
    if (run->sends > 0) {
        await_bell(run, run->exec->sends[0].peer);
    }
    return run->sends == 0 && run->state != WEFT_RUN_DRAINS;
}

bool weft_exec_is_drained(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    atomic_store_explicit(&exec->bell, 0, memory_order_seq_cst);
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
