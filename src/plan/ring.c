/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring: everybody sends to the rank after it and receives from the rank before it. n pieces go round,
 * n - 1 phases each; every link carries (n - 1)/n of the data per turn, which is the least there is.
 *
 *   reduce_scatter   in phase t rank r passes on piece r-1-t, and adds its own share to piece r-2-t, which
 *                    comes: after n - 1 phases that is piece r, complete
 *   allgather        in phase t rank r passes on piece r-t and receives piece r-t-1
 *   allreduce        one after the other; the vector is cut into n pieces
 *
 * Pieces are cut into B segments, a round each: what is sent in a round came B rounds ago, so that reducing
 * and sending overlap.
 */
#include "plan/steps.h"

static bool shape(struct weft_plan *plan)
{
    bool is_apart = plan->coll == WEFT_REDUCE_SCATTER && plan->ranks > 2;
    if (plan->coll == WEFT_ALLREDUCE) {
        plan->parts = plan->ranks * plan->segments;
    }
    /* Sums on their way: those of this phase and those of the one before, which may still be sent. */
    plan->tmp_units = is_apart ? 2 * plan->segments : 0;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    uint32_t turn = (plan->ranks - 1) * plan->segments;
    (void)rank;
    return plan->ranks == 1 ? 1 : plan->coll == WEFT_ALLREDUCE ? 2 * turn : turn;
}

/* Where the sum of a block is while it goes round. */
static struct weft_plan_ref sum_at(const struct weft_plan *plan, uint32_t phase, uint32_t block)
{
    uint32_t unit = phase % 2 * plan->segments + block % plan->segments;
    return plan->coll == WEFT_ALLREDUCE ? ref_out(block, 1) : ref_tmp(unit, block, 1);
}

static bool scatter_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                         uint32_t index, struct weft_plan_step *step_p)
{
    uint32_t n = plan->ranks, phase = round / plan->segments, segment = round % plan->segments;
    uint32_t sent = rank_before(plan, rank, phase + 1) * plan->segments + segment;
    uint32_t came =
        rank_before(plan, rank_before(plan, rank, 1), phase + 1) * plan->segments + segment;
    bool is_last = phase == n - 2;
    if (take_one(&index, true)) {
        return step_send(step_p, rank_after(plan, rank, 1),
                         phase == 0 ? ref_in(sent, 1) : sum_at(plan, phase - 1, sent));
    }
    if (take_one(&index, true)) {
        return step_recv_reduce(step_p, rank_before(plan, rank, 1),
                                is_last ? ref_out(came, 1) : sum_at(plan, phase, came),
                                ref_in(came, 1), is_last);
    }
    return false;
}

static bool gather_step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                        struct weft_plan_step *step_p)
{
    uint32_t b = plan->segments, phase = round / b, segment = round % b;
    uint32_t sent = rank_before(plan, rank, phase) * b + segment;
    uint32_t came = rank_before(plan, rank, phase + 1) * b + segment;
    bool is_input = plan->coll == WEFT_ALLGATHER;
    if (take_one(&index, true)) {
        return step_send(step_p, rank_after(plan, rank, 1),
                         phase == 0 && is_input ? ref_in(sent, 1) : ref_out(sent, 1));
    }
    if (take_one(&index, true)) {
        return step_recv(step_p, rank_before(plan, rank, 1), ref_out(came, 1));
    }
    if (take_one(&index, is_input && round == b - 1)) {
        return step_copy(step_p, ref_out(rank * b, b), ref_in(rank * b, b));
    }
    return false;
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    uint32_t turn = (plan->ranks - 1) * plan->segments;
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    if (plan->coll == WEFT_ALLGATHER) {
        return gather_step(plan, rank, round, index, step_p);
    }
    return round < turn ? scatter_step(plan, rank, round, index, step_p)
                        : gather_step(plan, rank, round - turn, index, step_p);
}

const struct weft_plan_builder weft_plan_ring = {
    .name = "ring",
    .summary = "pieces go round from rank to rank; the fewest bytes, 2(n-1) messages in a row",
    .colls = COLL(ALLREDUCE) | COLL(REDUCE_SCATTER) | COLL(ALLGATHER),
    .traits = WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
