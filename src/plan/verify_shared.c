/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts of shared memory, and steps that anybody may do.
 *
 * AWAIT sees the first SHOW that reaches its value, not a later one that may have been there by chance.
 * The user's memory is the rank's own before an operation and after it: beginning and ending count as
 * writing to it.
 */
#include "plan/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- counts ---- */

static void wake_waiting(struct run *run)
{
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        if (run->actors[rank].waiting == WAIT_SHARED) {
            weft_verify_wake(run, rank);
        }
    }
}

static bool keep(struct run *run, void *memory)
{
    if (run->owned_count == run->owned_room) {
        size_t room = 2 * run->owned_room + 64;
        void **grown = realloc(run->owned, room * sizeof(*grown));
        if (grown == NULL) {
            free(memory);
            return weft_verify_no_memory(run);
        }
        run->owned = grown;
        run->owned_room = room;
    }
    run->owned[run->owned_count++] = memory;
    return true;
}

enum turn weft_verify_show(struct run *run, struct actor *actor, const struct weft_plan_step *step)
{
    struct shared_op *op = &run->shared[actor->op];
    uint32_t **shown = &op->shown[(size_t)actor->rank * (run->plan->shows + 1)], *clock;
    if (step->value <= actor->shown || step->value > run->plan->shows) {
        weft_verify_say(run, actor, "shows %u after %u; the plan has %u", step->value, actor->shown,
                        run->plan->shows);
        return TURN_FAILED;
    }
    clock = weft_verify_clock_copy(run, weft_verify_publish(run, actor));
    if (clock == NULL || !keep(run, clock)) {
        return TURN_FAILED;
    }
    for (uint32_t value = actor->shown + 1; value <= step->value; value++) {
        shown[value] = clock;
        op->shown_by[value]++;
    }
    actor->shown = step->value;
    wake_waiting(run);
    return TURN_ON;
}

static enum turn wait_shared(struct actor *actor, uint32_t rank)
{
    actor->waiting = WAIT_SHARED;
    actor->waits_for = rank;
    return TURN_WAIT;
}

/* The clocks of everybody's SHOW of this value, joined once for all who wait for it. */
static const uint32_t *all_shown(struct run *run, struct shared_op *op, uint32_t value)
{
    if (op->all[value] == NULL) {
        uint32_t *all = calloc(run->ranks, sizeof(*all));
        if (all == NULL) {
            (void)weft_verify_no_memory(run);
            return NULL;
        }
        if (!keep(run, all)) {
            return NULL;
        }
        for (uint32_t rank = 0; rank < run->ranks; rank++) {
            weft_verify_join(run, all, op->shown[(size_t)rank * (run->plan->shows + 1) + value]);
        }
        op->all[value] = all;
    }
    return op->all[value];
}

static enum turn await_shown(struct run *run, struct actor *actor,
                             const struct weft_plan_step *step)
{
    struct shared_op *op = &run->shared[actor->op];
    const uint32_t *clock;
    if (step->value == 0 || step->value > run->plan->shows ||
        (step->peer != WEFT_PLAN_ALL && step->peer >= run->ranks)) {
        weft_verify_say(run, actor, "awaits %u of rank %u; the plan has %u", step->value,
                        step->peer, run->plan->shows);
        return TURN_FAILED;
    }
    if (step->peer == WEFT_PLAN_ALL) {
        if (op->shown_by[step->value] < run->ranks) {
            return wait_shared(actor, NOBODY);
        }
        clock = all_shown(run, op, step->value);
    } else {
        clock = op->shown[(size_t)step->peer * (run->plan->shows + 1) + step->value];
        if (clock == NULL) {
            return wait_shared(actor, step->peer);
        }
    }
    if (clock == NULL) {
        return TURN_FAILED;
    }
    weft_verify_join(run, weft_verify_clock(run, actor->rank), clock);
    return TURN_ON;
}

enum turn weft_verify_await(struct run *run, struct actor *actor, const struct weft_plan_step *step)
{
    struct shared_op *op = &run->shared[actor->op];
    if (step->kind == WEFT_STEP_AWAIT) {
        return await_shown(run, actor, step);
    }
    if (step->kind == WEFT_STEP_AWAIT_ANY) {
        if (op->any_done < actor->anys) {
            return wait_shared(actor, NOBODY);
        }
        weft_verify_join(run, weft_verify_clock(run, actor->rank), op->any_clock);
        return TURN_ON;
    }
    if (actor->op < step->value) {
        return TURN_ON; /* there was no such operation */
    }
    op = &run->shared[actor->op - step->value];
    if (op->ended < run->ranks) {
        return wait_shared(actor, NOBODY);
    }
    weft_verify_join(run, weft_verify_clock(run, actor->rank), op->end);
    return TURN_ON;
}

/* ---- ANY ---- */

static bool is_same_ref(const struct weft_plan_ref *a, const struct weft_plan_ref *b)
{
    return a->space == b->space && a->at == b->at && a->origin == b->origin &&
           a->block == b->block && a->blocks == b->blocks;
}

static bool is_same_step(const struct weft_plan_step *a, const struct weft_plan_step *b)
{
    return a->kind == b->kind && a->flags == b->flags && a->peer == b->peer &&
           a->sources == b->sources && a->self == b->self && is_same_ref(&a->to, &b->to) &&
           is_same_ref(&a->from, &b->from);
}

static bool is_for_anybody(const struct weft_plan_step *step)
{
    bool is_read_by_all =
        step->from.space == WEFT_SPACE_SLOT || step->from.space == WEFT_SPACE_THEIR_IN;
    bool is_without_self = step->kind == WEFT_STEP_COPY || step->self >= step->sources;
    return is_read_by_all && is_without_self && step->to.space == WEFT_SPACE_ALL_OUT &&
           step->also.space == WEFT_SPACE_NONE;
}

/* The i-th ANY step of an operation is the same step on every rank: who comes first does it. */
enum turn weft_verify_claim(struct run *run, struct actor *actor, const struct weft_plan_step *step,
                            bool *is_mine_p)
{
    struct shared_op *op = &run->shared[actor->op];
    uint32_t number = actor->anys;
    if (!is_for_anybody(step)) {
        weft_verify_say(run, actor, "an ANY step that depends on who does it");
        return TURN_FAILED;
    }
    if (number == op->any_room) {
        uint32_t room = 2 * op->any_room + 16;
        struct any_step *grown = realloc(op->any, room * sizeof(*grown));
        if (grown == NULL) {
            (void)weft_verify_no_memory(run);
            return TURN_FAILED;
        }
        memset(grown + op->any_room, 0, (room - op->any_room) * sizeof(*grown));
        op->any = grown;
        op->any_room = room;
    }
    *is_mine_p = !op->any[number].is_claimed;
    if (*is_mine_p) {
        op->any[number] = (struct any_step){.is_claimed = true, .step = *step};
    } else if (!is_same_step(step, &op->any[number].step)) {
        weft_verify_say(run, actor, "ANY step %u is not the same on every rank", number);
        return TURN_FAILED;
    }
    actor->anys++;
    actor->any_now = *is_mine_p ? number + 1 : 0;
    return TURN_ON;
}

void weft_verify_any_done(struct run *run, struct actor *actor)
{
    struct shared_op *op = &run->shared[actor->op];
    actor->any_now = 0;
    op->any_done++;
    weft_verify_join(run, op->any_clock, weft_verify_publish(run, actor));
    wake_waiting(run);
}

/* ---- operations ---- */

bool weft_verify_has_met_all(struct run *run, const struct actor *actor)
{
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        if (!weft_verify_has_seen(run, actor, rank, run->shared[actor->op].began_at[rank])) {
            return weft_verify_fail(run, actor, "leaves the barrier without knowing of rank %u",
                                    rank);
        }
    }
    return true;
}

static bool touch_user_memory(struct run *run, const struct actor *actor)
{
    const uint32_t *in = actor->in_offset, *out = actor->out_offset;
    struct extent input = {actor->in_base + in[actor->in_from],
                           in[actor->in_to] - in[actor->in_from]};
    struct extent output = {actor->out_base + out[actor->out_from],
                            out[actor->out_to] - out[actor->out_from]};
    return weft_verify_touch_write(run, actor, &input) &&
           weft_verify_touch_write(run, actor, &output);
}

bool weft_verify_shared_begin(struct run *run, struct actor *actor)
{
    struct shared_op *op = &run->shared[actor->op];
    op->began_at[actor->rank] = weft_verify_clock(run, actor->rank)[actor->rank];
    if (!run->is_mapped) {
        return true;
    }
    if (!touch_user_memory(run, actor)) {
        return false;
    }
    weft_verify_join(run, op->begin, weft_verify_publish(run, actor));
    op->begun++;
    wake_waiting(run);
    return true;
}

enum turn weft_verify_shared_enter(struct run *run, struct actor *actor)
{
    struct shared_op *op = &run->shared[actor->op];
    if (op->begun < run->ranks) {
        return wait_shared(actor, NOBODY);
    }
    weft_verify_join(run, weft_verify_clock(run, actor->rank), op->begin);
    actor->is_entered = true;
    return TURN_ON;
}

bool weft_verify_shared_end(struct run *run, struct actor *actor)
{
    struct shared_op *op = &run->shared[actor->op];
    if (run->is_shared && actor->shown != run->plan->shows) {
        return weft_verify_fail(run, actor, "ends at count %u; the plan has %u", actor->shown,
                                run->plan->shows);
    }
    if (op->ended == 0) {
        op->anys = actor->anys;
    }
    if (actor->anys != op->anys) {
        return weft_verify_fail(run, actor, "has %u ANY steps, others have %u", actor->anys,
                                op->anys);
    }
    if (run->is_mapped && !touch_user_memory(run, actor)) {
        return false;
    }
    weft_verify_join(run, op->end, weft_verify_publish(run, actor));
    op->ended++;
    wake_waiting(run);
    return true;
}

static bool open_op(struct run *run, struct shared_op *op)
{
    size_t ranks = run->ranks, values = (size_t)run->plan->shows + 1;
    op->shown = calloc(ranks * values, sizeof(*op->shown));
    op->shown_by = calloc(values, sizeof(*op->shown_by));
    op->all = calloc(values, sizeof(*op->all));
    op->began_at = calloc(ranks, sizeof(*op->began_at));
    op->begin = calloc(ranks, sizeof(*op->begin));
    op->end = calloc(ranks, sizeof(*op->end));
    op->any_clock = calloc(ranks, sizeof(*op->any_clock));
    return op->shown != NULL && op->shown_by != NULL && op->all != NULL && op->began_at != NULL &&
           op->begin != NULL && op->end != NULL && op->any_clock != NULL;
}

bool weft_verify_shared_open(struct run *run)
{
    size_t square = (size_t)run->ranks * run->ranks;
    if (!run->has_clocks) {
        return true;
    }
    run->clock = calloc(square, sizeof(*run->clock));
    run->incoming = calloc(square, sizeof(*run->incoming));
    run->shared = calloc(run->operations, sizeof(*run->shared));
    if (run->clock == NULL || run->incoming == NULL || run->shared == NULL) {
        return weft_verify_no_memory(run);
    }
    for (uint32_t i = 0; i < run->operations; i++) {
        if (!open_op(run, &run->shared[i])) {
            return weft_verify_no_memory(run);
        }
    }
    return true;
}

void weft_verify_shared_close(struct run *run)
{
    for (uint32_t i = 0; run->shared != NULL && i < run->operations; i++) {
        struct shared_op *op = &run->shared[i];
        free(op->shown);
        free(op->shown_by);
        free(op->all);
        free(op->began_at);
        free(op->begin);
        free(op->end);
        free(op->any);
        free(op->any_clock);
    }
    for (size_t i = 0; i < run->owned_count; i++) {
        free(run->owned[i]);
    }
    free(run->owned);
    free(run->shared);
    free(run->incoming);
    free(run->clock);
}
