/* SPDX-License-Identifier: Apache-2.0 */
/* The chain: a tree without branches. With many segments every link is busy all the time. */
#include "plan/trees.h"

static void place(const struct weft_plan *plan, uint32_t tree, uint32_t rank,
                  struct tree_place *place_p)
{
    uint32_t at = from_root(plan, rank);
    (void)tree;
    place_p->parent = at == 0 ? TREE_NOBODY : to_rank(plan, at - 1);
    place_p->depth = at;
    place_p->children = at + 1 < plan->ranks ? 1 : 0;
    place_p->child[0] = to_rank(plan, at + 1);
}

static const struct tree_form form = {.trees = 1, .place = place};

static bool shape(struct weft_plan *plan)
{
    return weft_tree_shape(&form, plan);
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    return weft_tree_rounds(&form, plan, rank);
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    return weft_tree_step(&form, plan, rank, round, index, step_p);
}

const struct weft_plan_builder weft_plan_chain = {
    .name = "chain",
    .summary = "from rank to rank in segments; every link carries the data once",
    .colls = COLL(BROADCAST) | COLL(REDUCE),
    .traits = WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
