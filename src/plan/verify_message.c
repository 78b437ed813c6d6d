/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: between two ranks in order, from the sender's memory to the receiver's at the moment when both
 * are there, without anything between. */
#include "plan/verify.h"

#include <stdlib.h>

bool weft_verify_message_open(struct run *run)
{
    size_t pairs = run->is_shared ? 1 : (size_t)run->ranks * run->ranks;
    run->message_free = NOWHERE;
    run->sent = malloc(pairs * sizeof(*run->sent));
    run->posted = malloc(pairs * sizeof(*run->posted));
    if (run->sent == NULL || run->posted == NULL) {
        return weft_verify_no_memory(run);
    }
    for (size_t i = 0; i < pairs; i++) {
        run->sent[i] = run->posted[i] = (struct queue){NOWHERE, NOWHERE};
    }
    return true;
}

void weft_verify_message_close(struct run *run)
{
    for (uint32_t i = 0; i < run->message_count; i++) {
        free(run->messages[i].clock);
    }
    free(run->messages);
    free(run->sent);
    free(run->posted);
}

static struct message *message_at(const struct run *run, uint32_t number)
{
    return &run->messages[number];
}

static uint32_t new_message(struct run *run)
{
    uint32_t number = run->message_free;
    if (number != NOWHERE) {
        run->message_free = message_at(run, number)->next;
        return number;
    }
    if (run->message_count == run->message_room) {
        uint32_t room = 2 * run->message_room + 64;
        struct message *grown = realloc(run->messages, room * sizeof(*grown));
        if (grown == NULL) {
            (void)weft_verify_no_memory(run);
            return NOWHERE;
        }
        run->messages = grown;
        run->message_room = room;
    }
    return run->message_count++;
}

static void free_message(struct run *run, uint32_t number)
{
    struct message *message = message_at(run, number);
    free(message->clock);
    message->clock = NULL;
    message->next = run->message_free;
    run->message_free = number;
}

static void append(struct run *run, struct queue *queue, uint32_t number)
{
    message_at(run, number)->next = NOWHERE;
    if (queue->first == NOWHERE) {
        queue->first = number;
    } else {
        message_at(run, queue->last)->next = number;
    }
    queue->last = number;
}

/* ---- both are there ---- */

static bool reduce_one(struct run *run, const struct actor *actor, uint8_t flags,
                       const struct value *came, uint32_t own, uint32_t to)
{
    struct value sum;
    if (!weft_verify_read(run, actor, own, &sum) || !weft_verify_add(run, actor, came, &sum) ||
        !weft_verify_finish(run, actor, flags, &sum)) {
        return false;
    }
    sum.is_in_order = false;
    run->value[to] = sum;
    return true;
}

static bool move(struct run *run, const struct actor *receiver, const struct message *send,
                 const struct message *recv)
{
    for (uint32_t i = 0; i < send->extent.len; i++) {
        uint32_t to = recv->extent.cell + i;
        struct value came;
        if (!weft_verify_read(run, &run->actors[send->from], send->extent.cell + i, &came)) {
            return false;
        }
        if (recv->kind == WEFT_STEP_RECV) {
            run->value[to] = came;
        } else if (!reduce_one(run, receiver, recv->flags, &came, recv->own.cell + i, to)) {
            return false;
        }
    }
    return true;
}

static bool fits(struct run *run, const struct actor *receiver, const struct message *send,
                 const struct message *recv)
{
    if (send->op != recv->op) {
        return weft_verify_fail(run, receiver, "receives what rank %u sent in operation %u",
                                send->from, send->op);
    }
    if (send->extent.len != recv->extent.len) {
        return weft_verify_fail(
            run, receiver, "rank %u sent %u elements (round %u, step %u), step %u expects %u",
            send->from, send->extent.len, send->round, send->index, recv->index, recv->extent.len);
    }
    return true;
}

static bool deliver(struct run *run, uint32_t sent, uint32_t posted)
{
    const struct message *send = message_at(run, sent), *recv = message_at(run, posted);
    struct actor *sender = &run->actors[send->from], *receiver = &run->actors[send->to];
    if (!fits(run, receiver, send, recv) || !move(run, receiver, send, recv)) {
        return false;
    }
    for (uint32_t i = 0; i < send->extent.len; i++) {
        run->sending[send->extent.cell + i]--;
    }
    if (run->has_clocks) {
        weft_verify_clock_recv(run, receiver, send->clock);
    }
    sender->sends--;
    receiver->recvs--;
    if (sender->waiting != WAIT_NOT) {
        weft_verify_wake(run, sender->rank);
    }
    if (receiver->waiting != WAIT_NOT) {
        weft_verify_wake(run, receiver->rank);
    }
    return true;
}

/* Moves what can be moved from one rank to another; a RECV_REDUCE lets the next one go ahead. */
static bool match(struct run *run, uint32_t to, uint32_t from)
{
    struct queue *sent = &run->sent[(size_t)to * run->ranks + from];
    struct queue *posted = &run->posted[(size_t)to * run->ranks + from];
    struct actor *receiver = &run->actors[to];
    while (sent->first != NOWHERE && posted->first != NOWHERE) {
        uint32_t send = sent->first, recv = posted->first;
        bool is_reduce = message_at(run, recv)->kind == WEFT_STEP_RECV_REDUCE;
        if (is_reduce && receiver->reduces.first != recv) {
            return true;
        }
        if (!deliver(run, send, recv)) {
            return false;
        }
        sent->first = message_at(run, send)->next;
        posted->first = message_at(run, recv)->next;
        if (is_reduce) {
            receiver->reduces.first = message_at(run, recv)->next_reduce;
        }
        free_message(run, send);
        free_message(run, recv);
        if (is_reduce && receiver->reduces.first != NOWHERE &&
            !match(run, to, message_at(run, receiver->reduces.first)->from)) {
            return false;
        }
    }
    return true;
}

/* ---- one is there ---- */

static bool open_message(struct run *run, const struct actor *actor,
                         const struct weft_plan_ref *ref, struct extent *extent_p)
{
    bool is_equal = (run->plan->builder->traits & WEFT_PLAN_EQUAL_ONLY) != 0;
    if (!is_equal && !weft_verify_is_one_piece(run, ref)) {
        return weft_verify_fail(run, actor,
                                "a message over several pieces without the trait EQUAL_ONLY");
    }
    return weft_verify_find(run, actor, ref, actor->rank, extent_p);
}

enum turn weft_verify_send(struct run *run, struct actor *actor, const struct weft_plan_step *step)
{
    struct extent extent;
    struct value value;
    uint32_t number;
    if (!open_message(run, actor, &step->from, &extent) ||
        !weft_verify_may_read(run, actor, &extent)) {
        return TURN_FAILED;
    }
    if (actor->sends >= actor->sends_most) {
        actor->waiting = WAIT_SENT;
        return TURN_WAIT;
    }
    for (uint32_t i = 0; i < extent.len; i++) {
        if (!weft_verify_read(run, actor, extent.cell + i, &value)) {
            return TURN_FAILED;
        }
        run->sending[extent.cell + i]++;
    }
    number = new_message(run);
    if (number == NOWHERE) {
        return TURN_FAILED;
    }
    *message_at(run, number) = (struct message){
        .from = actor->rank,
        .to = step->peer,
        .op = actor->op,
        .round = actor->round,
        .index = actor->index,
        .extent = extent,
        .clock = run->has_clocks ? weft_verify_clock_send(run, actor) : NULL,
    };
    actor->sends++;
    actor->waits_for = step->peer;
    append(run, &run->sent[(size_t)step->peer * run->ranks + actor->rank], number);
    return match(run, step->peer, actor->rank) ? TURN_ON : TURN_FAILED;
}

enum turn weft_verify_recv(struct run *run, struct actor *actor, const struct weft_plan_step *step)
{
    bool is_added = step->kind == WEFT_STEP_RECV_REDUCE && step->from.space != WEFT_SPACE_NONE;
    struct extent extent, own;
    uint32_t number;
    if (!open_message(run, actor, &step->to, &extent) ||
        !weft_verify_find(run, actor, is_added ? &step->from : &step->to, actor->rank, &own)) {
        return TURN_FAILED;
    }
    if (weft_verify_is_sent(run, &extent)) {
        actor->waiting = WAIT_SENT;
        return TURN_WAIT;
    }
    number = new_message(run);
    if (number == NOWHERE) {
        return TURN_FAILED;
    }
    *message_at(run, number) = (struct message){
        .from = step->peer,
        .to = actor->rank,
        .op = actor->op,
        .round = actor->round,
        .index = actor->index,
        .extent = extent,
        .kind = step->kind,
        .flags = step->flags,
        .own = own,
        .next_reduce = NOWHERE,
    };
    if (step->kind == WEFT_STEP_RECV_REDUCE) {
        if (actor->reduces.first == NOWHERE) {
            actor->reduces.first = number;
        } else {
            message_at(run, actor->reduces.last)->next_reduce = number;
        }
        actor->reduces.last = number;
    }
    actor->recvs++;
    actor->waits_for = step->peer;
    append(run, &run->posted[(size_t)actor->rank * run->ranks + step->peer], number);
    return match(run, actor->rank, step->peer) ? TURN_ON : TURN_FAILED;
}
