/* SPDX-License-Identifier: Apache-2.0 */
/* Linear: the root takes one piece after another, or gives them: never more than one message on its way in,
 * however many ranks there are. */
#include "plan/steps.h"

static bool shape(struct weft_plan *plan)
{
    (void)plan;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    return rank == plan->root && plan->ranks > 1 ? plan->ranks - 1 : 1;
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    bool is_gather = plan->coll == WEFT_GATHER;
    uint32_t peer = rank_after(plan, rank, round + 1);
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    if (rank != plan->root) {
        return take_one(&index, true) &&
               (is_gather ? step_send(step_p, plan->root, ref_in(rank, 1))
                          : step_recv(step_p, plan->root, ref_out(rank, 1)));
    }
    if (take_one(&index, true)) {
        return is_gather ? step_recv(step_p, peer, ref_out(peer, 1))
                         : step_send(step_p, peer, ref_in(peer, 1));
    }
    return take_one(&index, round == plan->ranks - 2) &&
           step_copy(step_p, ref_out(rank, 1), ref_in(rank, 1));
}

const struct weft_plan_builder weft_plan_linear = {
    .name = "linear",
    .summary = "the root takes or gives one piece after another",
    .colls = COLL(GATHER) | COLL(SCATTER),
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
