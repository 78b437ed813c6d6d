/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairwise: in round t everybody sends to the rank t + 1 places ahead and receives from the rank as far
 * behind; one message each way at a time, every piece straight to where it belongs. Allreduce: so to the
 * owners of the n parts of the vector, who then give them to everybody at once.
 */
#include "plan/steps.h"

static bool shape(struct weft_plan *plan)
{
    if (plan->coll == WEFT_ALLREDUCE) {
        plan->parts = plan->ranks;
    }
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)rank;
    return plan->ranks == 1 ? 1 : plan->ranks - 1 + (plan->coll == WEFT_ALLREDUCE ? 1 : 0);
}

static bool give_step(const struct weft_plan *plan, uint32_t rank, uint32_t index,
                      struct weft_plan_step *step_p)
{
    uint32_t others = plan->ranks - 1, i;
    if (take(&index, others, &i)) {
        return step_send(step_p, rank_after(plan, rank, i + 1), ref_out(rank, 1));
    }
    if (take(&index, others, &i)) {
        uint32_t peer = rank_before(plan, rank, i + 1);
        return step_recv(step_p, peer, ref_out(peer, 1));
    }
    return false;
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    uint32_t others = plan->ranks - 1;
    uint32_t to = rank_after(plan, rank, round + 1), from;
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    if (round == others) {
        return give_step(plan, rank, index, step_p);
    }
    from = rank_before(plan, rank, round + 1);
    if (take_one(&index, true)) {
        return step_send(step_p, to, ref_in(to, 1));
    }
    if (take_one(&index, true)) {
        return plan->coll == WEFT_ALLTOALL
                   ? step_recv(step_p, from, ref_out(from, 1))
                   : step_recv_reduce(step_p, from, ref_out(rank, 1),
                                      round == 0 ? ref_in(rank, 1) : ref_none(),
                                      round == others - 1);
    }
    return take_one(&index, plan->coll == WEFT_ALLTOALL && round == 0) &&
           step_copy(step_p, ref_out(rank, 1), ref_in(rank, 1));
}

const struct weft_plan_builder weft_plan_pairwise = {
    .name = "pairwise",
    .summary = "every piece straight to its owner, one peer after another",
    .colls = COLL(ALLTOALL) | COLL(REDUCE_SCATTER) | COLL(ALLREDUCE),
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
