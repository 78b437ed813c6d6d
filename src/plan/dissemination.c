/* SPDX-License-Identifier: Apache-2.0 */
/* Dissemination: in round i everybody tells the rank 2^i ahead that all it knows of have arrived; after
 * ⌈log2 n⌉ rounds everybody knows of everybody. */
#include "plan/steps.h"

static bool shape(struct weft_plan *plan)
{
    (void)plan;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)rank;
    return log2_up(plan->ranks);
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    if (take_one(&index, true)) {
        return step_send(step_p, rank_after(plan, rank, 1u << round), ref_none());
    }
    return take_one(&index, true) &&
           step_recv(step_p, rank_before(plan, rank, 1u << round), ref_none());
}

const struct weft_plan_builder weft_plan_dissemination = {
    .name = "dissemination",
    .summary = "everybody tells the ranks 1, 2, 4, ... ahead; log2 n messages in a row",
    .colls = COLL(BARRIER),
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
