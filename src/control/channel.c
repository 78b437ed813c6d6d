/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel: one communicator's part of the control plane. Its collectives run over a tree of its
 * members: the job's own tree for a channel of all ranks, else a heap over the members' order, its
 * edges routed along the job's tree.
 */
#include "control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Who aborts waits so long for the coordinator's words, where nobody stands still on the way. */
#define ABORT_MS 100

/* ---- one waiting call ---- */

void weft_control_op_done(struct weft_control_op *op, weft_status_t status, const char *text)
{
    op->status = status;
    if (status != WEFT_OK) {
        snprintf(op->text, sizeof(op->text), "%s", text);
    }
    weft_engine_completed(op->channel->control->engine);
    atomic_store_explicit(&op->is_done, 1,
                          memory_order_release); /* the caller may be gone from here on */
}

static uint64_t give_up_or_wait(struct weft_control_op *op, weft_control_give_up_fn give_up)
{
    struct weft_engine *engine = op->channel->control->engine;
    uint64_t longer_ms = 0;
    weft_engine_lock(engine);
    weft_engine_run_tasks(engine); /* ours may not have had its turn */
    if (atomic_load(&op->is_done) == 0) {
        longer_ms = give_up(op);
    }
    weft_engine_unlock(engine);
    return longer_ms;
}

/* The deadline passed: say so to the coordinator, and leave nothing of the call behind. */
static void end_by_deadline(struct weft_control_op *op, weft_control_give_up_fn give_up)
{
    struct weft_control *control = op->channel->control;
    struct weft_engine *engine = control->engine;
    char text[TEXT_LEN];
    uint64_t longer_ms = give_up_or_wait(op, give_up);
    uint64_t verdict_ms = weft_control_verdict_ms(control);
    if (longer_ms > 0 &&
        weft_engine_wait(engine, &op->is_done, weft_clock_after_ms(longer_ms)) != WEFT_OK) {
        give_up_or_wait(op, give_up);
    }
    if (weft_engine_wait(engine, &op->is_done, weft_clock_after_ms(verdict_ms)) != WEFT_OK) {
        weft_engine_lock(engine);
        memcpy(text, op->text, sizeof(text));
        weft_control_channel_end(op->channel, WEFT_ERR_TIMEOUT, op->blamed, text);
        weft_engine_unlock(engine);
    }
}

weft_status_t weft_control_op_run(struct weft_control_op *op, uint64_t timeout_ms,
                                  weft_control_give_up_fn give_up)
{
    struct weft_engine *engine = op->channel->control->engine;
    weft_status_t status = weft_control_engage(op->channel->control);
    if (status != WEFT_OK) {
        return status;
    }
    op->blamed = WEFT_WIRE_NO_RANK;
    weft_engine_post(engine, &op->task);
    if (weft_engine_wait(engine, &op->is_done, weft_clock_after_ms(timeout_ms)) != WEFT_OK) {
        end_by_deadline(op, give_up);
    }
    return op->status == WEFT_OK ? WEFT_OK : weft_fail(op->status, "%s", op->text);
}

/* ---- members ---- */

struct weft_control_channel *weft_control_channel_find(const struct weft_control *control,
                                                       uint64_t id)
{
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        struct weft_control_channel *channel =
            WEFT_CONTAINER_OF(node, struct weft_control_channel, node);
        if (channel->id == id) {
            return channel;
        }
    }
    return NULL;
}

bool weft_control_channel_is_member(const struct weft_control_channel *channel, uint32_t job_rank,
                                    uint32_t *rank_p)
{
    uint32_t rank = channel->rank_of != NULL ? channel->rank_of[job_rank] : job_rank;
    *rank_p = rank;
    return rank != WEFT_WIRE_NO_RANK;
}

bool weft_control_channel_is_cut(const struct weft_control_channel *channel, char text[TEXT_LEN])
{
    struct weft_control *control = channel->control;
    uint32_t gone;
    char name[128];
    for (uint32_t i = 0; control->gone_count > 0 && i < channel->count; i++) {
        if (weft_control_is_cut(control, channel->members[i], &gone)) {
            weft_control_name_rank(control, gone, name, sizeof(name));
            snprintf(text, TEXT_LEN, "%s closed or died; this call needs it", name);
            return true;
        }
    }
    return false;
}

void weft_control_channel_rank_closed(struct weft_control_channel *channel, uint32_t job_rank)
{
    char name[128];
    char text[TEXT_LEN];
    bool is_waiting = channel->collect != NULL || !weft_list_is_empty(&channel->mail_ops);
    if (!is_waiting || !weft_control_channel_is_cut(channel, text)) {
        return;
    }
    weft_control_name_rank(channel->control, job_rank, name, sizeof(name));
    snprintf(text, sizeof(text), "%s closed its communicator; this call needs it", name);
    weft_control_collect_end(channel, WEFT_ERR_PEER, text);
    weft_control_mail_cut(channel);
}

/* ---- ending ---- */

static void ring(const struct weft_control_channel *channel)
{
    uint64_t one = 1;
    if (channel->ended_fd >= 0) {
        (void)!write(channel->ended_fd, &one, sizeof(one));
    }
}

void weft_control_channel_end_by(struct weft_control_channel *channel,
                                 const struct weft_wire_notice *notice)
{
    weft_status_t status = (weft_status_t)notice->status;
    if (atomic_load(&channel->ended) != 0) {
        return;
    }
    snprintf(channel->text, sizeof(channel->text), "%s", notice->text);
    channel->ended_rank = notice->rank;
    channel->ended_number = notice->number;
    atomic_store_explicit(&channel->ended, status, memory_order_release);
    ring(channel);
    weft_control_collect_end(channel, status, channel->text);
    weft_control_mail_end(channel, status, channel->text);
    if (status == WEFT_ERR_ABORTED) { /* other ends are why ranks shrink */
        weft_control_shrink_abort(channel, channel->text);
    }
    if (channel->control->observer != NULL) {
        const struct weft_control_failure failure = {
            .channel = channel->id, .status = status, .rank = notice->rank, .text = channel->text};
        channel->control->observer->ended(channel->control->observer, &failure);
    }
    while (!weft_list_is_empty(&channel->aborts)) {
        struct weft_list *node = channel->aborts.next;
        weft_list_remove(node);
        weft_control_op_done(WEFT_CONTAINER_OF(node, struct weft_control_op, node), WEFT_OK, "");
    }
}

void weft_control_channel_end(struct weft_control_channel *channel, weft_status_t status,
                              uint32_t rank, const char *text)
{
    struct weft_wire_notice notice = {.status = status, .rank = rank};
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    weft_control_channel_end_by(channel, &notice);
}

weft_status_t weft_control_channel_fd(struct weft_control_channel *channel, int *fd_p)
{
    weft_status_t status = weft_control_engage(channel->control); /* somebody must hear of it */
    if (status != WEFT_OK) {
        return status;
    }
    weft_engine_lock(channel->control->engine);
    if (channel->ended_fd < 0) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0) {
            status = weft_fail_errno("eventfd");
        } else {
            channel->ended_fd = weft_fd_own(fd);
        }
        if (atomic_load(&channel->ended) != 0) {
            ring(channel);
        }
    }
    *fd_p = status == WEFT_OK ? channel->ended_fd : *fd_p;
    weft_engine_unlock(channel->control->engine);
    return status;
}

weft_status_t weft_control_channel_error(struct weft_control_channel *channel, uint32_t *rank_p,
                                         uint32_t *number_p)
{
    weft_status_t status = weft_control_channel_status(channel);
    *rank_p = WEFT_WIRE_NO_RANK;
    *number_p = 0;
    if (status != WEFT_OK) {
        *number_p = channel->ended_number;
        if (channel->ended_rank < channel->control->self.ranks) {
            (void)weft_control_channel_is_member(channel, channel->ended_rank, rank_p);
        }
    }
    return status;
}

weft_status_t weft_control_channel_status(struct weft_control_channel *channel)
{
    uint32_t ended;
    if (!atomic_load(&channel->control->is_engaged)) {
        weft_engine_poll(channel->control->engine); /* nobody else reads our news yet */
    }
    ended = atomic_load_explicit(&channel->ended, memory_order_acquire);
    return ended == 0 ? WEFT_OK : weft_fail((weft_status_t)ended, "%s", channel->text);
}

struct abort_op {
    struct weft_control_op op;
    bool is_late;
    char text[TEXT_LEN];
};

/* Waits in the list of calls: the verdict that ends the channel completes it. */
static void run_abort(struct weft_engine_task *task)
{
    struct abort_op *abort = WEFT_CONTAINER_OF(task, struct abort_op, op.task);
    struct weft_control_channel *channel = abort->op.channel;
    struct weft_wire_notice notice = {.status = WEFT_ERR_ABORTED,
                                      .rank = channel->members[channel->rank]};
    memcpy(notice.text, abort->text, sizeof(notice.text));
    weft_control_shrink_abort(channel, notice.text);
    if (atomic_load(&channel->ended) != 0) {
        weft_control_op_done(&abort->op, WEFT_OK, "");
        return;
    }
    weft_list_append(&channel->aborts, &abort->op.node);
    weft_control_report(channel->control, channel->id, &notice);
}

static uint64_t give_up_abort(struct weft_control_op *op)
{
    struct abort_op *abort = WEFT_CONTAINER_OF(op, struct abort_op, op);
    if (!abort->is_late && (weft_control_aside_is_needed(op->channel->control) ||
                            weft_control_heal_is_hopeful(op->channel->control) ||
                            weft_control_heal_is_hearing(op->channel->control))) {
        abort->is_late = true;
        /* it goes around who stands still, or to a coordinator that is found in a moment */
        return weft_control_verdict_ms(op->channel->control);
    }
    weft_control_channel_end(op->channel, WEFT_ERR_ABORTED, op->channel->control->self.rank,
                             abort->text);
    return 0;
}

weft_status_t weft_control_channel_abort(struct weft_control_channel *channel, const char *reason)
{
    struct abort_op abort = {.op = {.task = {.run = run_abort}, .channel = channel}};
    char name[128];
    weft_control_name_rank(channel->control, channel->members[channel->rank], name, sizeof(name));
    snprintf(abort.text, sizeof(abort.text), "%s aborted%s%.120s", name, reason != NULL ? ": " : "",
             reason != NULL ? reason : "");
    weft_list_open(&abort.op.node);
    return weft_control_op_run(&abort.op, ABORT_MS, give_up_abort);
}

/* ---- opening ---- */

static void channel_free(struct weft_control_channel *channel)
{
    weft_control_mail_close(channel);
    weft_fd_close(channel->ended_fd);
    free(channel->members);
    free(channel->rank_of);
    free(channel->gathered);
    free(channel->unreceived);
    free(channel);
}

static weft_status_t open_members(struct weft_control_channel *channel, const uint32_t *members,
                                  uint32_t count)
{
    const struct weft_control *control = channel->control;
    channel->count = members != NULL ? count : control->self.ranks;
    channel->members = malloc(channel->count * sizeof(*channel->members));
    if (channel->members == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %u members", channel->count);
    }
    if (members == NULL) {
        for (uint32_t rank = 0; rank < channel->count; rank++) {
            channel->members[rank] = rank;
        }
        channel->rank = control->self.rank;
        return WEFT_OK;
    }
    channel->rank_of = malloc(control->self.ranks * sizeof(*channel->rank_of));
    if (channel->rank_of == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %u members", channel->count);
    }
    memset(channel->rank_of, 0xff, control->self.ranks * sizeof(*channel->rank_of));
    memcpy(channel->members, members, count * sizeof(*members));
    for (uint32_t rank = 0; rank < count; rank++) {
        channel->rank_of[members[rank]] = rank;
    }
    channel->rank = channel->rank_of[control->self.rank];
    return WEFT_OK;
}

static uint32_t depth_of(const struct weft_control_channel *channel, uint32_t rank)
{
    const struct weft_control_tree *tree = &channel->control->tree;
    uint32_t depth = 0;
    if (channel->rank_of != NULL) {
        for (; rank > 0; rank = (rank - 1) / DEGREE_MAX) {
            depth++;
        }
        return depth;
    }
    for (; rank != tree->root; rank = weft_control_tree_parent(tree, rank)) {
        depth++;
    }
    return depth;
}

static void open_tree(struct weft_control_channel *channel)
{
    const struct weft_control *control = channel->control;
    uint64_t first = (uint64_t)channel->rank * DEGREE_MAX + 1;
    if (channel->rank_of == NULL) {
        /* as in the start: ranks that are gone meanwhile are members */
        channel->parent = weft_control_tree_parent(&control->tree, control->self.rank);
        channel->child_count = weft_control_tree_children(&control->tree, control->self.rank,
                                                          channel->children, DEGREE_MAX);
    } else {
        channel->parent = channel->rank == 0 ? WEFT_WIRE_NO_RANK : (channel->rank - 1) / DEGREE_MAX;
        while (channel->child_count < DEGREE_MAX && first + channel->child_count < channel->count) {
            channel->children[channel->child_count] = (uint32_t)first + channel->child_count;
            channel->child_count++;
        }
    }
    channel->depth = depth_of(channel, channel->rank);
    for (uint32_t rank = 0; rank < channel->count; rank++) {
        uint32_t depth = depth_of(channel, rank);
        channel->height = depth > channel->height ? depth : channel->height;
    }
}

/* The verdict on a member came before its communicator was made. */
static void end_if_late(struct weft_control_channel *channel)
{
    const struct weft_control *control = channel->control;
    for (uint32_t i = 0; control->gone_count > 0 && i < channel->count; i++) {
        const struct weft_wire_notice *verdict =
            control->is_gone[channel->members[i]] != 0
                ? weft_control_history_find(control, channel->members[i])
                : NULL;
        if (verdict != NULL) {
            weft_control_channel_end_by(channel, verdict);
            return;
        }
    }
}

weft_status_t weft_control_channel_open(struct weft_control *control, uint64_t id,
                                        const uint32_t *members, uint32_t count,
                                        struct weft_control_channel **channel_p)
{
    struct weft_control_channel *channel = calloc(1, sizeof(*channel));
    weft_status_t status;
    if (channel == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a channel");
    }
    channel->control = control;
    channel->id = id;
    channel->ended_fd = -1;
    weft_list_open(&channel->node);
    weft_list_open(&channel->inbox);
    weft_list_open(&channel->mail_ops);
    weft_list_open(&channel->aborts);
    status = open_members(channel, members, count);
    if (status != WEFT_OK) {
        channel_free(channel);
        return status;
    }
    weft_engine_lock(control->engine);
    open_tree(channel);
    weft_list_append(&control->channels, &channel->node);
    weft_control_deliver_early(control, channel);
    end_if_late(channel);
    weft_engine_unlock(control->engine);
    *channel_p = channel;
    return WEFT_OK;
}

void weft_control_channel_close(struct weft_control_channel *channel)
{
    struct weft_control *control;
    if (channel == NULL) {
        return;
    }
    control = channel->control;
    weft_engine_lock(control->engine);
    weft_list_remove(&channel->node);
    control->ended[control->ended_next++ % WEFT_COUNT_OF(control->ended)] = channel->id;
    weft_engine_unlock(control->engine);
    channel_free(channel);
}
