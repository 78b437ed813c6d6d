/* SPDX-License-Identifier: Apache-2.0 */
/* Spread: every piece straight to where it belongs, all at once, in one round. */
#include "plan/steps.h"

static bool shape(struct weft_plan *plan)
{
    (void)plan;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan;
    (void)rank;
    return 1;
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    uint32_t others = plan->ranks - 1, i;
    (void)round;
    if (take(&index, others, &i)) {
        uint32_t peer = rank_before(plan, rank, i + 1);
        return step_recv(step_p, peer, ref_out(peer, 1));
    }
    if (take(&index, others, &i)) { /* everybody begins with somebody else */
        uint32_t peer = rank_after(plan, rank, i + 1);
        return step_send(step_p, peer, ref_in(plan->coll == WEFT_ALLTOALL ? peer : rank, 1));
    }
    return take_one(&index, true) && step_copy(step_p, ref_out(rank, 1), ref_in(rank, 1));
}

const struct weft_plan_builder weft_plan_spread = {
    .name = "spread",
    .summary = "every piece straight to where it belongs, all at once",
    .colls = COLL(ALLTOALL) | COLL(ALLGATHER),
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
