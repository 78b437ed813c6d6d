/* SPDX-License-Identifier: Apache-2.0 */
/* The binary tree, in segments: depth log2 n, and nobody sends a segment more than twice. */
#include "plan/trees.h"

static void place(const struct weft_plan *plan, uint32_t tree, uint32_t rank,
                  struct tree_place *place_p)
{
    uint32_t at = from_root(plan, rank), first = 2 * at + 1;
    (void)tree;
    place_p->parent = at == 0 ? TREE_NOBODY : to_rank(plan, (at - 1) / 2);
    place_p->depth = log2_down(at + 1);
    place_p->children = 0;
    /* The second child's subtree is never the larger one. */
    for (uint32_t child = first + 2; child-- > first;) {
        if (child < plan->ranks) {
            place_p->child[place_p->children++] = to_rank(plan, child);
        }
    }
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

const struct weft_plan_builder weft_plan_binary = {
    .name = "binary",
    .summary = "a tree of two children each, in segments",
    .colls = COLL(BROADCAST) | COLL(REDUCE) | COLL(ALLREDUCE),
    .traits = WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
