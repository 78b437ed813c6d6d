/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The star: everything goes through one rank (the root, or rank 0), who adds in rank order in one pass. Two
 * messages deep and 2(n - 1) in all: where ranks share cores, or messages are dear, nothing is faster for
 * little data.
 *
 * In segments: in round t the centre receives segment t of all, and adds and hands on segment t - 1. What
 * comes lies in two sets of n - 1 units, in turn.
 */
#include "plan/steps.h"

static uint32_t set_count(const struct weft_plan *plan)
{
    return plan->segments > 1 ? 2 : 1;
}

static bool is_reduction(const struct weft_plan *plan)
{
    return plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_REDUCE;
}

static bool shape(struct weft_plan *plan)
{
    if (plan->coll == WEFT_GATHER || plan->coll == WEFT_BARRIER) {
        plan->segments = 1;
        return true;
    }
    plan->parts = plan->segments;
    plan->tmp_units = is_reduction(plan) ? set_count(plan) * (plan->ranks - 1) : 0;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    bool is_centre = rank == plan->root;
    bool is_late = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BARRIER ||
                   (plan->coll == WEFT_REDUCE && is_centre);
    return plan->ranks == 1 ? 1 : plan->segments + (is_late ? 1 : 0);
}

/* ---- reductions ---- */

static bool centre_adds(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                        struct weft_plan_step *step_p)
{
    uint32_t others = plan->ranks - 1, i;
    if (round < plan->segments && take(&index, others, &i)) {
        uint32_t peer = rank_after(plan, rank, i + 1);
        uint32_t unit = round % set_count(plan) * others + (peer < rank ? peer : peer - 1);
        return step_recv(step_p, peer, ref_tmp(unit, round, 1));
    }
    if (round == 0) {
        return false;
    }
    round--;
    if (take_one(&index, true)) {
        return step_reduce_all(step_p, plan, rank, ref_out(round, 1), ref_in(round, 1),
                               ref_tmp(round % set_count(plan) * others, round, 1));
    }
    return plan->coll == WEFT_ALLREDUCE && take(&index, others, &i) &&
           step_send(step_p, rank_after(plan, rank, i + 1), ref_out(round, 1));
}

/* Sends segment t, then takes the result of the one before: OUT may be IN. */
static bool other_adds(const struct weft_plan *plan, uint32_t round, uint32_t index,
                       struct weft_plan_step *step_p)
{
    if (round < plan->segments && take_one(&index, true)) {
        return step_send(step_p, plan->root, ref_in(round, 1));
    }
    return plan->coll == WEFT_ALLREDUCE && round > 0 && take_one(&index, true) &&
           step_recv(step_p, plan->root, ref_out(round - 1, 1));
}

/* ---- the others ---- */

static bool broadcast_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                           uint32_t index, struct weft_plan_step *step_p)
{
    uint32_t i;
    if (rank != plan->root) {
        return take_one(&index, true) && step_recv(step_p, plan->root, ref_out(round, 1));
    }
    if (take(&index, plan->ranks - 1, &i)) {
        return step_send(step_p, rank_after(plan, rank, i + 1), ref_in(round, 1));
    }
    return round == plan->segments - 1 && take_one(&index, true) &&
           step_copy(step_p, ref_out(0, plan->parts), ref_in(0, plan->parts));
}

static bool gather_step(const struct weft_plan *plan, uint32_t rank, uint32_t index,
                        struct weft_plan_step *step_p)
{
    uint32_t i;
    if (rank != plan->root) {
        return take_one(&index, true) && step_send(step_p, plan->root, ref_in(rank, 1));
    }
    if (take(&index, plan->ranks - 1, &i)) {
        uint32_t peer = rank_after(plan, rank, i + 1);
        return step_recv(step_p, peer, ref_out(peer, 1));
    }
    return take_one(&index, true) && step_copy(step_p, ref_out(rank, 1), ref_in(rank, 1));
}

static bool barrier_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                         uint32_t index, struct weft_plan_step *step_p)
{
    uint32_t i;
    bool is_centre = rank == plan->root, is_in = round == 0;
    uint32_t peer;
    if (!take(&index, is_centre ? plan->ranks - 1 : 1, &i)) {
        return false;
    }
    peer = is_centre ? rank_after(plan, rank, i + 1) : plan->root;
    return is_centre == is_in ? step_recv(step_p, peer, ref_none())
                              : step_send(step_p, peer, ref_none());
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    if (is_reduction(plan)) {
        return rank == plan->root ? centre_adds(plan, rank, round, index, step_p)
                                  : other_adds(plan, round, index, step_p);
    }
    return plan->coll == WEFT_BROADCAST ? broadcast_step(plan, rank, round, index, step_p)
           : plan->coll == WEFT_GATHER  ? gather_step(plan, rank, index, step_p)
                                        : barrier_step(plan, rank, round, index, step_p);
}

const struct weft_plan_builder weft_plan_star = {
    .name = "star",
    .summary = "everything through one rank, who adds in rank order; the fewest messages in a row",
    .colls = COLL(ALLREDUCE) | COLL(REDUCE) | COLL(BROADCAST) | COLL(GATHER) | COLL(BARRIER),
    .traits = WEFT_PLAN_IN_RANK_ORDER | WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
