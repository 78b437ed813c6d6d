/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier runs all ranks of a plan, in turns that a seed draws, on symbols instead of numbers. It is
 * stricter than any machine:
 *   - Nothing is buffered: a SEND is over when its RECV is posted, and not before. RECV_REDUCEs of a round
 *     are taken one after another. A rank has no more SENDs under way than its busiest round so far has
 *     messages. So a plan that ends here ends everywhere.
 *   - Steps of a round that would be right only in one order of arrival are wrong, whatever came first.
 *   - Shared memory: every rank has a clock of what has happened before its present (verify_shared.c), so
 *     that two ranks which touch the same memory unordered are found even if this run was lucky.
 * Every element knows what it is made of (verify_values.c), and in the end is looked at.
 *
 * Two runs: blocks of one element, IN and OUT apart; then blocks of 1 and 2 elements, in place wherever that
 * is possible. With an odd seed a third: some blocks are empty, some ranks in place.
 */
#include "plan/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_MOST 8 /* steps of one rank before it is another's turn */

/* ---- words ---- */

uint64_t weft_verify_mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

uint64_t weft_verify_random(struct run *run)
{
    run->random += UINT64_C(0x9e3779b97f4a7c15);
    return weft_verify_mix(run->random);
}

void weft_verify_say(struct run *run, const struct actor *actor, const char *fmt, ...)
{
    struct weft_plan_verdict *verdict = run->verdict;
    const struct weft_plan *plan = run->plan;
    size_t room = sizeof(verdict->text), len;
    va_list args;
    if (!verdict->is_right) {
        return;
    }
    verdict->is_right = false;
    len = (size_t)snprintf(verdict->text, room, "%s %s of %u: ", plan->builder->name,
                           weft_coll_name((weft_coll_t)plan->coll), plan->ranks);
    if (actor != NULL && len < room) {
        len += (size_t)snprintf(verdict->text + len, room - len,
                                "operation %u, rank %u, round %u, step %u: ", actor->op,
                                actor->rank, actor->round, actor->index);
    }
    if (len < room) {
        va_start(args, fmt);
        (void)vsnprintf(verdict->text + len, room - len, fmt, args);
        va_end(args);
    }
}

void weft_verify_wake(struct run *run, uint32_t rank)
{
    struct actor *actor = &run->actors[rank];
    actor->waiting = WAIT_NOT;
    if (!actor->is_ready) {
        actor->is_ready = true;
        run->ready[run->ready_count++] = rank;
    }
}

/* ---- one step ---- */

static bool is_message(const struct weft_plan_step *step)
{
    return step->kind <= WEFT_STEP_RECV_REDUCE;
}

/* Is it a step of this kind of plan? */
static bool is_step(struct run *run, const struct actor *actor, const struct weft_plan_step *step)
{
    bool is_local = step->kind == WEFT_STEP_COPY || step->kind == WEFT_STEP_REDUCE;
    bool is_reduction = step->kind == WEFT_STEP_RECV_REDUCE || step->kind == WEFT_STEP_REDUCE;
    if (step->kind > WEFT_STEP_AWAIT_ANY) {
        return weft_verify_fail(run, actor, "there is no step of kind %u", step->kind);
    }
    if (is_message(step) && run->is_shared) {
        return weft_verify_fail(run, actor, "a message in a plan of shared memory");
    }
    if (!is_message(step) && !is_local && !run->is_shared) {
        return weft_verify_fail(run, actor, "a flag in a plan of messages");
    }
    if (is_message(step) && (step->peer >= run->ranks || step->peer == actor->rank)) {
        return weft_verify_fail(run, actor, "a message with rank %u", step->peer);
    }
    if (is_reduction && !run->is_reduced) {
        return weft_verify_fail(run, actor, "a reduction where nothing is reduced");
    }
    if ((step->flags & WEFT_STEP_FINAL) != 0 && !is_reduction) {
        return weft_verify_fail(run, actor, "FINAL where nothing is reduced");
    }
    if ((step->flags & WEFT_STEP_ANY) != 0 && (!is_local || !run->is_shared)) {
        return weft_verify_fail(run, actor, "ANY on a step that only this rank can do");
    }
    return true;
}

static enum turn do_local(struct run *run, struct actor *actor, const struct weft_plan_step *step)
{
    bool is_any = (step->flags & WEFT_STEP_ANY) != 0, is_mine = true;
    enum turn turn = is_any ? weft_verify_claim(run, actor, step, &is_mine) : TURN_ON;
    if (turn != TURN_ON || !is_mine) {
        return turn;
    }
    turn = step->kind == WEFT_STEP_COPY ? weft_verify_copy(run, actor, step)
                                        : weft_verify_reduce(run, actor, step);
    if (turn == TURN_ON && is_any) {
        weft_verify_any_done(run, actor);
    }
    return turn;
}

static enum turn do_step(struct run *run, struct actor *actor, const struct weft_plan_step *step)
{
    if (!is_step(run, actor, step)) {
        return TURN_FAILED;
    }
    switch ((enum weft_step_kind)step->kind) {
    case WEFT_STEP_SEND:
        return weft_verify_send(run, actor, step);
    case WEFT_STEP_RECV:
    case WEFT_STEP_RECV_REDUCE:
        return weft_verify_recv(run, actor, step);
    case WEFT_STEP_COPY:
    case WEFT_STEP_REDUCE:
        return do_local(run, actor, step);
    case WEFT_STEP_SHOW:
        return weft_verify_show(run, actor, step);
    case WEFT_STEP_AWAIT:
    case WEFT_STEP_AWAIT_FREE:
    case WEFT_STEP_AWAIT_ANY:
        return weft_verify_await(run, actor, step);
    }
    return TURN_FAILED;
}

/* ---- operations and rounds of a rank ---- */

static bool get_step(const struct run *run, const struct actor *actor, uint32_t index,
                     struct weft_plan_step *step_p)
{
    const struct weft_plan *plan = run->plan;
    return plan->builder->step(plan, actor->rank, actor->round, index, step_p);
}

static bool begin_round(struct run *run, struct actor *actor)
{
    struct weft_plan_step step;
    uint32_t messages = 0;
    actor->is_round_begun = true;
    actor->is_waited_for = false;
    actor->index = 0;
    actor->reduces = (struct queue){NOWHERE, NOWHERE};
    actor->mark = ++run->marks;
    if (run->is_shared) {
        return true;
    }
    for (uint32_t i = 0; get_step(run, actor, i, &step); i++) {
        bool is_recv = step.kind == WEFT_STEP_RECV || step.kind == WEFT_STEP_RECV_REDUCE;
        messages += is_message(&step);
        actor->index = i; /* for what is said */
        if (is_recv && !weft_verify_mark_recv(run, actor, &step)) {
            return false;
        }
    }
    actor->index = 0;
    actor->sends_most = messages > actor->sends_most ? messages : actor->sends_most;
    return true;
}

static bool begin_operation(struct run *run, struct actor *actor)
{
    actor->is_begun = true;
    actor->is_entered = actor->is_round_begun = false;
    actor->round = actor->index = 0;
    actor->rounds = run->plan->builder->rounds(run->plan, actor->rank);
    actor->shown = actor->anys = 0;
    weft_verify_fill(run, actor);
    return !run->has_clocks || weft_verify_shared_begin(run, actor);
}

static enum turn end_operation(struct run *run, struct actor *actor)
{
    if (actor->sends > 0) { /* the memory is lent until then */
        actor->waiting = WAIT_SENDS;
        return TURN_WAIT;
    }
    if (run->has_clocks && !weft_verify_shared_end(run, actor)) {
        return TURN_FAILED;
    }
    if (run->plan->coll == WEFT_BARRIER ? !weft_verify_has_met_all(run, actor)
                                        : !weft_verify_result(run, actor)) {
        return TURN_FAILED;
    }
    actor->is_begun = false;
    if (++actor->op == run->operations) {
        run->over++;
        return TURN_WAIT;
    }
    return TURN_ON;
}

static enum turn end_round(struct run *run, struct actor *actor)
{
    if (actor->recvs > 0) {
        actor->waiting = WAIT_RECVS;
        return TURN_WAIT;
    }
    if (run->has_clocks) {
        weft_verify_clock_join(run, actor);
    }
    actor->round++;
    actor->is_round_begun = false;
    return TURN_ON;
}

static enum turn advance(struct run *run, struct actor *actor)
{
    struct weft_plan_step step;
    enum turn turn;
    if (!actor->is_begun && !begin_operation(run, actor)) {
        return TURN_FAILED;
    }
    if (run->is_mapped && !actor->is_entered) {
        return weft_verify_shared_enter(run, actor);
    }
    if (actor->round == actor->rounds) {
        return end_operation(run, actor);
    }
    if (!actor->is_round_begun && !begin_round(run, actor)) {
        return TURN_FAILED;
    }
    if (actor->is_waited_for) {
        return end_round(run, actor);
    }
    if (!get_step(run, actor, actor->index, &step)) {
        actor->is_waited_for = true;
        return TURN_ON;
    }
    turn = do_step(run, actor, &step);
    actor->index += turn == TURN_ON;
    return turn;
}

/* ---- all of them ---- */

static void say_deadlock(struct run *run)
{
    static const char *const what[] = {
        [WAIT_NOT] = "nothing",
        [WAIT_RECVS] = "messages of its round",
        [WAIT_SENDS] = "its sends to be received",
        [WAIT_SENT] = "earlier sends to be received",
        [WAIT_SHARED] = "another rank's count or end",
    };
    const struct actor *actor = run->actors;
    while (actor->op == run->operations) {
        actor++;
    }
    if (actor->waits_for != NOBODY) {
        weft_verify_say(run, actor, "deadlock: it waits for %s, from or to rank %u",
                        what[actor->waiting], actor->waits_for);
    } else {
        weft_verify_say(run, actor, "deadlock: it waits for %s", what[actor->waiting]);
    }
}

static void run_all(struct run *run)
{
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        weft_verify_wake(run, rank);
    }
    while (run->ready_count > 0 && run->verdict->is_right) {
        uint64_t draw = weft_verify_random(run);
        uint32_t pick = (uint32_t)(draw >> 32) % run->ready_count, steps = draw % TURN_MOST + 1;
        struct actor *actor = &run->actors[run->ready[pick]];
        enum turn turn = TURN_ON;
        run->ready[pick] = run->ready[--run->ready_count];
        actor->is_ready = false;
        for (uint32_t i = 0; i < steps && turn == TURN_ON; i++) {
            turn = advance(run, actor);
        }
        if (turn == TURN_ON) {
            weft_verify_wake(run, actor->rank);
        }
    }
    if (run->verdict->is_right && run->over < run->ranks) {
        say_deadlock(run);
    }
}

static bool open_run(struct run *run)
{
    size_t operations = run->operations;
    run->actors = calloc(run->ranks, sizeof(*run->actors));
    run->ready = calloc(run->ranks, sizeof(*run->ready));
    run->key = calloc(operations * run->ranks, sizeof(*run->key));
    run->all_keys = calloc(operations, sizeof(*run->all_keys));
    run->sources = calloc(run->ranks, sizeof(*run->sources));
    if (run->actors == NULL || run->ready == NULL || run->key == NULL || run->all_keys == NULL ||
        run->sources == NULL) {
        return weft_verify_no_memory(run);
    }
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        run->actors[rank].rank = rank;
        run->actors[rank].waits_for = NOBODY;
        run->actors[rank].sends_most = 1;
    }
    for (size_t i = 0; i < operations * run->ranks; i++) {
        run->key[i] = weft_verify_random(run);
        run->all_keys[i / run->ranks] += run->key[i];
    }
    return weft_verify_memory_open(run) && weft_verify_message_open(run) &&
           weft_verify_shared_open(run);
}

static void close_run(struct run *run)
{
    weft_verify_shared_close(run);
    weft_verify_message_close(run);
    weft_verify_memory_close(run);
    free(run->actors);
    free(run->ready);
    free(run->key);
    free(run->all_keys);
    free(run->sources);
}

void weft_plan_verify(const struct weft_plan *plan, uint32_t operations, uint64_t seed,
                      struct weft_plan_verdict *verdict_p)
{
    static const uint32_t sizes[][2] = {{1, 1}, {1, 2}, {0, 2}}, in_place[] = {0, 100, 50};
    uint32_t traits = plan->builder->traits;
    unsigned runs = (seed & 1) != 0 ? 3 : 2;
    *verdict_p = (struct weft_plan_verdict){.is_right = true};
    for (unsigned again = 0; again < runs && verdict_p->is_right; again++) {
        struct run run = {
            .plan = plan,
            .verdict = verdict_p,
            .operations = operations,
            .ranks = plan->ranks,
            .random = weft_verify_mix(seed + again * UINT64_C(0x632be59bd9b4e019)),
            .is_vector = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST ||
                         plan->coll == WEFT_REDUCE,
            .is_reduced = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_REDUCE ||
                          plan->coll == WEFT_REDUCE_SCATTER,
            .size_least = sizes[again][0],
            .size_most = sizes[again][1],
            .in_place = in_place[again],
            .is_shared = (traits & WEFT_PLAN_SHARED) != 0,
            .is_mapped = (traits & WEFT_PLAN_MAPPED) != 0,
            .has_clocks = (traits & WEFT_PLAN_SHARED) != 0 || plan->coll == WEFT_BARRIER,
        };
        if (open_run(&run)) {
            run_all(&run);
        }
        close_run(&run);
    }
}
