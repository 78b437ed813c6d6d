/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory where all buffers lie in memory from weft_alloc(): nothing is staged. The ranks have shown
 * each other where their buffers are (the executor does that before), so everybody's input is there.
 *
 * allreduce: short blocks that anyone may do, straight from all inputs to all outputs; ranks that hold a
 * core do the work of those that do not. The others: each takes what it needs, and nobody whose input is
 * read leaves before everybody has.
 */
#include "plan/shm.h"

static bool shape(struct weft_plan *plan)
{
    if (plan->ranks < 2) {
        return false;
    }
    plan->parts = weft_plan_is_vector(plan) ? plan->segments : 0;
    plan->segments = weft_plan_is_vector(plan) ? plan->segments : 1;
    if (plan->coll == WEFT_BROADCAST) {
        plan->parts = plan->segments = 1;
    }
    plan->shows = plan->coll == WEFT_ALLREDUCE ? 0 : 1;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan, (void)rank;
    return 1;
}

static struct weft_plan_step sum(const struct weft_plan *plan, uint8_t to, uint32_t block)
{
    return (struct weft_plan_step){.kind = WEFT_STEP_REDUCE,
                                   .flags = WEFT_STEP_FINAL,
                                   .to = weft_plan_in(to, block, 1),
                                   .from = weft_plan_in(WEFT_SPACE_THEIR_IN, block, 1),
                                   .sources = plan->ranks,
                                   .self = plan->ranks};
}

static bool allreduce_step(const struct weft_plan *plan, uint32_t index,
                           struct weft_plan_step *step_p)
{
    if (index < plan->parts) {
        *step_p = sum(plan, WEFT_SPACE_ALL_OUT, index);
        step_p->flags |= WEFT_STEP_ANY;
        return true;
    }
    *step_p = (struct weft_plan_step){.kind = WEFT_STEP_AWAIT_ANY};
    return index == plan->parts;
}

static bool take(const struct weft_plan *plan, uint32_t rank, struct weft_plan_list *list)
{
    uint32_t peer, block;
    if (plan->coll == WEFT_REDUCE_SCATTER) {
        return weft_plan_take(list, sum(plan, WEFT_SPACE_OUT, rank));
    }
    if (plan->coll == WEFT_BROADCAST) {
        return weft_plan_take(list,
                              weft_plan_copy(weft_plan_in(WEFT_SPACE_OUT, 0, 1),
                                             weft_plan_in(WEFT_SPACE_THEIR_IN, 0, 1), plan->root));
    }
    if (weft_plan_skip(list, plan->ranks)) {
        return false;
    }
    peer = (rank + list->left) % plan->ranks; /* not all from the same one at once */
    list->left = 0;
    block = plan->coll == WEFT_ALLTOALL ? rank : peer;
    return weft_plan_take(list, weft_plan_copy(weft_plan_in(WEFT_SPACE_OUT, peer, 1),
                                               weft_plan_in(WEFT_SPACE_THEIR_IN, block, 1), peer));
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    struct weft_plan_list list = {.left = index, .step = step_p};
    (void)round;
    if (plan->coll == WEFT_ALLREDUCE) {
        return allreduce_step(plan, index, step_p);
    }
    return take(plan, rank, &list) || weft_plan_take(&list, weft_plan_show(1)) ||
           ((plan->coll != WEFT_BROADCAST || rank == plan->root) &&
            weft_plan_take(&list, weft_plan_await(WEFT_PLAN_ALL, 1)));
}

const struct weft_plan_builder weft_plan_mapped = {
    .name = "mapped",
    .summary = "memory from weft_alloc: straight from all inputs to all outputs",
    .colls = 1u << WEFT_ALLREDUCE | 1u << WEFT_REDUCE_SCATTER | 1u << WEFT_ALLGATHER |
             1u << WEFT_BROADCAST | 1u << WEFT_ALLTOALL,
    .traits = WEFT_PLAN_SHARED | WEFT_PLAN_IN_RANK_ORDER | WEFT_PLAN_EQUAL_ONLY | WEFT_PLAN_MAPPED |
              WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
