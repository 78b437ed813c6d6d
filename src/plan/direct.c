/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct: everybody sends every part of its input to the part's owner, all at once; the owner adds all of
 * them in rank order, in one pass. So the bits do not depend on who came first, nor on n being a power of
 * two, and small floats are rounded once. Then the result stays (reduce_scatter), goes to everybody
 * (allreduce) or to the root (reduce).
 *
 * In segments: in round t segment t is sent and segment t - 1, which is there, is reduced and handed on.
 * What comes lies in two sets of n - 1 units, in turn.
 */
#include "plan/steps.h"

static uint32_t set_count(const struct weft_plan *plan)
{
    return plan->segments > 1 ? 2 : 1;
}

static bool shape(struct weft_plan *plan)
{
    uint32_t sets = set_count(plan), others = plan->ranks - 1;
    if (plan->coll != WEFT_REDUCE_SCATTER) {
        plan->parts = plan->ranks * plan->segments;
    }
    plan->tmp_units = sets * others;
    if (plan->coll == WEFT_REDUCE && others > 0) {
        plan->tmp_units += sets; /* results on their way to the root */
    }
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)rank;
    return plan->ranks == 1 ? 1 : plan->segments + 1;
}

/* The parts that come and go in segment t. */
static bool take_inputs(const struct weft_plan *plan, uint32_t rank, uint32_t segment,
                        uint32_t *index, struct weft_plan_step *step_p)
{
    uint32_t others = plan->ranks - 1, set = segment % set_count(plan), i;
    if (take(index, others, &i)) {
        uint32_t peer = rank_before(plan, rank, i + 1);
        uint32_t unit = set * others + (peer < rank ? peer : peer - 1);
        return step_recv(step_p, peer, ref_tmp(unit, rank * plan->segments + segment, 1));
    }
    if (take(index, others, &i)) {
        uint32_t peer = rank_after(plan, rank, i + 1);
        return step_send(step_p, peer, ref_in(peer * plan->segments + segment, 1));
    }
    return false;
}

static bool take_results(const struct weft_plan *plan, uint32_t rank, uint32_t segment,
                         uint32_t *index, struct weft_plan_step *step_p)
{
    uint32_t others = plan->ranks - 1, set = segment % set_count(plan), i;
    uint32_t mine = rank * plan->segments + segment;
    bool is_sent_on = plan->coll == WEFT_REDUCE && rank != plan->root;
    struct weft_plan_ref result =
        is_sent_on ? ref_tmp(set_count(plan) * others + set, mine, 1) : ref_out(mine, 1);
    if (take_one(index, true)) {
        return step_reduce_all(step_p, plan, rank, result, ref_in(mine, 1),
                               ref_tmp(set * others, mine, 1));
    }
    if (take_one(index, is_sent_on)) {
        return step_send(step_p, plan->root, result);
    }
    if (plan->coll == WEFT_ALLREDUCE && take(index, others, &i)) {
        return step_send(step_p, rank_after(plan, rank, i + 1), result);
    }
    /* After everything that does not wait: OUT may be IN, of which parts are still being sent. */
    if ((plan->coll == WEFT_ALLREDUCE || (plan->coll == WEFT_REDUCE && !is_sent_on)) &&
        take(index, others, &i)) {
        uint32_t peer = rank_before(plan, rank, i + 1);
        return step_recv(step_p, peer, ref_out(peer * plan->segments + segment, 1));
    }
    return false;
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    if (round < plan->segments && take_inputs(plan, rank, round, &index, step_p)) {
        return true;
    }
    return round > 0 && take_results(plan, rank, round - 1, &index, step_p);
}

const struct weft_plan_builder weft_plan_direct = {
    .name = "direct",
    .summary = "every part to its owner at once, who adds in rank order; the same bits every time",
    .colls = COLL(ALLREDUCE) | COLL(REDUCE_SCATTER) | COLL(REDUCE),
    .traits = WEFT_PLAN_IN_RANK_ORDER | WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
