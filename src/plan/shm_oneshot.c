/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory, one shot: everybody puts what others need into its slot and shows it; whoever needs it
 * takes it from there. One round trip of flags, no second phase: each rank reduces for itself what it wants.
 * For what is short enough that doing the same sum n times costs less than telling each other the result.
 *
 * Slots are laid out as IN is, so that a block is found where it would be there. Sums are in rank order.
 */
#include "plan/shm.h"

/* What a rank gives to others, by coll: nothing, all of IN, or only on root. */
static bool gives(const struct weft_plan *plan, uint32_t rank)
{
    if (plan->ranks == 1) {
        return false;
    }
    switch (plan->coll) {
    case WEFT_BROADCAST:
    case WEFT_SCATTER:
        return rank == plan->root;
    case WEFT_REDUCE:
    case WEFT_GATHER:
        return rank != plan->root;
    case WEFT_BARRIER:
        return false;
    default:
        return true;
    }
}

static bool takes(const struct weft_plan *plan, uint32_t rank)
{
    if (plan->ranks == 1) {
        return false;
    }
    switch (plan->coll) {
    case WEFT_BROADCAST:
    case WEFT_SCATTER:
        return rank != plan->root;
    case WEFT_REDUCE:
    case WEFT_GATHER:
        return rank == plan->root;
    default:
        return true;
    }
}

static bool shape(struct weft_plan *plan)
{
    plan->segments = 1;
    plan->parts = weft_plan_is_vector(plan) ? 1 : 0;
    plan->slots = plan->coll == WEFT_BARRIER ? 0 : 1;
    plan->slot_blocks = weft_plan_is_vector(plan) || weft_plan_has_own_in(plan) ? 1 : plan->ranks;
    plan->shows = 1;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan, (void)rank;
    return 1;
}

/* A range of blocks in a slot that begins where IN (or the own piece) begins. */
static struct weft_plan_ref in_slot(const struct weft_plan *plan, uint32_t block, uint32_t blocks)
{
    return (struct weft_plan_ref){.space = WEFT_SPACE_SLOT,
                                  .origin = weft_plan_has_own_in(plan) ? block : 0,
                                  .block = block,
                                  .blocks = blocks};
}

/* What goes into the slot: IN but for what nobody else needs. */
static bool give(const struct weft_plan *plan, uint32_t rank, struct weft_plan_list *list)
{
    uint32_t block = weft_plan_has_own_in(plan) ? rank : 0;
    if (weft_plan_take(list, (struct weft_plan_step){.kind = WEFT_STEP_AWAIT_FREE, .value = 1})) {
        return true;
    }
    if (weft_plan_is_vector(plan) || weft_plan_has_own_in(plan)) {
        return weft_plan_take(list, weft_plan_copy(in_slot(plan, block, 1),
                                                   weft_plan_in(WEFT_SPACE_IN, block, 1), rank));
    }
    return (rank > 0 &&
            weft_plan_take(list, weft_plan_copy(in_slot(plan, 0, rank),
                                                weft_plan_in(WEFT_SPACE_IN, 0, rank), rank))) ||
           (rank + 1 < plan->ranks &&
            weft_plan_take(
                list, weft_plan_copy(in_slot(plan, rank + 1, plan->ranks - rank - 1),
                                     weft_plan_in(WEFT_SPACE_IN, rank + 1, plan->ranks - rank - 1),
                                     rank)));
}

static bool is_summed(const struct weft_plan *plan)
{
    return plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_REDUCE ||
           plan->coll == WEFT_REDUCE_SCATTER;
}

/* What only this rank's own IN is needed for. */
static bool keep(const struct weft_plan *plan, uint32_t rank, struct weft_plan_list *list)
{
    bool is_rooted = plan->coll == WEFT_BROADCAST || plan->coll == WEFT_SCATTER ||
                     plan->coll == WEFT_GATHER || plan->coll == WEFT_REDUCE;
    uint32_t block = weft_plan_is_vector(plan) ? 0 : rank;
    struct weft_plan_step step = weft_plan_copy(weft_plan_in(WEFT_SPACE_OUT, block, 1),
                                                weft_plan_in(WEFT_SPACE_IN, block, 1), rank);
    if (plan->coll == WEFT_BARRIER || (is_rooted && rank != plan->root) ||
        (is_summed(plan) && plan->ranks > 1)) {
        return false;
    }
    if (is_summed(plan)) { /* alone: still scaled and divided */
        step.kind = WEFT_STEP_REDUCE;
        step.flags = WEFT_STEP_FINAL;
        step.sources = 1;
        step.from2 = step.from;
    }
    return weft_plan_take(list, step);
}

static bool take_sum(const struct weft_plan *plan, uint32_t rank, struct weft_plan_list *list)
{
    uint32_t own = weft_plan_is_vector(plan) ? 0 : rank;
    return weft_plan_take(list,
                          (struct weft_plan_step){.kind = WEFT_STEP_REDUCE,
                                                  .flags = WEFT_STEP_FINAL,
                                                  .to = weft_plan_in(WEFT_SPACE_OUT, own, 1),
                                                  .from = in_slot(plan, own, 1),
                                                  .from2 = weft_plan_in(WEFT_SPACE_IN, own, 1),
                                                  .sources = plan->ranks,
                                                  .self = rank});
}

static bool take(const struct weft_plan *plan, uint32_t rank, struct weft_plan_list *list)
{
    uint32_t own = weft_plan_is_vector(plan) ? 0 : rank;
    bool is_rooted = plan->coll == WEFT_BROADCAST || plan->coll == WEFT_SCATTER;
    uint32_t peer = is_rooted ? plan->root : WEFT_PLAN_ALL;
    if (weft_plan_take(list, weft_plan_await(peer, 1))) {
        return true;
    }
    if (is_summed(plan)) {
        return take_sum(plan, rank, list);
    }
    if (plan->coll == WEFT_BARRIER || list->left >= (is_rooted ? 1 : plan->ranks - 1)) {
        return false;
    }
    if (!is_rooted) {
        peer = list->left < rank ? list->left : list->left + 1;
    }
    list->left = 0;
    /* broadcast: the vector; scatter, alltoall: mine of theirs; allgather, gather: theirs */
    return weft_plan_take(
        list, weft_plan_copy(weft_plan_in(WEFT_SPACE_OUT, is_rooted ? own : peer, 1),
                             in_slot(plan, weft_plan_has_own_in(plan) ? peer : own, 1), peer));
}

/* Give, show, keep, take. */
static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    struct weft_plan_list list = {.left = index, .step = step_p};
    (void)round;
    return (gives(plan, rank) && give(plan, rank, &list)) ||
           weft_plan_take(&list, weft_plan_show(1)) || keep(plan, rank, &list) ||
           (takes(plan, rank) && take(plan, rank, &list));
}

const struct weft_plan_builder weft_plan_oneshot = {
    .name = "oneshot",
    .summary = "shared memory: post, then each takes or reduces for itself what it needs",
    .colls = 0x1ff,
    .traits = WEFT_PLAN_SHARED | WEFT_PLAN_IN_RANK_ORDER | WEFT_PLAN_EQUAL_ONLY,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
