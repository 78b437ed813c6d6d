/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two binary trees, each for half of the data: whoever has children in one is a leaf in the other, so that
 * everybody sends and receives all of the time, at the depth of a tree (Sanders, Speck, Träff).
 *
 * The root has one child in each tree; the others have labels 1 … m in each. A label's lowest set bit is its
 * height: odd labels are leaves, the parent of x is the nearest label in which that bit moves up by one (if
 * there is none above, the one below). The second tree gives the labels in reverse when m is even, moved by
 * one when m is odd: odd labels become even, except that for odd m one rank is a leaf in both.
 */
#include "plan/trees.h"

static uint32_t label_of(const struct weft_plan *plan, uint32_t tree, uint32_t at)
{
    uint32_t m = plan->ranks - 1;
    if (tree == 0) {
        return at;
    }
    return m % 2 == 0 ? m + 1 - at : at == 1 ? m : at - 1;
}

static uint32_t rank_of(const struct weft_plan *plan, uint32_t tree, uint32_t label)
{
    uint32_t m = plan->ranks - 1, at = label;
    if (tree == 1) {
        at = m % 2 == 0 ? m + 1 - label : label == m ? 1 : label + 1;
    }
    return to_rank(plan, at);
}

/* 0: the root of all. */
static uint32_t parent_of(uint32_t m, uint32_t label)
{
    uint32_t bit = label & (0u - label), without = label ^ bit;
    uint32_t above = without | bit << 1;
    return above <= m ? above : without;
}

static uint32_t depth_of(uint32_t m, uint32_t label)
{
    uint32_t depth = 0;
    while (label != 0) {
        label = parent_of(m, label);
        depth++;
    }
    return depth;
}

static void place(const struct weft_plan *plan, uint32_t tree, uint32_t rank,
                  struct tree_place *place_p)
{
    uint32_t m = plan->ranks - 1, at = from_root(plan, rank), label, half, up;
    if (at == 0) {
        *place_p = (struct tree_place){.parent = TREE_NOBODY, .children = 1};
        place_p->child[0] = rank_of(plan, tree, 1u << log2_down(m));
        return;
    }
    label = label_of(plan, tree, at);
    half = (label & (0u - label)) >> 1;
    up = parent_of(m, label);
    place_p->parent = up == 0 ? plan->root : rank_of(plan, tree, up);
    place_p->depth = depth_of(m, label);
    place_p->children = 0;
    /* Above, labels may be missing: the highest there is of what would be that subtree. */
    for (uint32_t bit = half; bit > 0; bit >>= 1) {
        if (label + bit <= m) {
            place_p->child[place_p->children++] = rank_of(plan, tree, label + bit);
            break;
        }
    }
    if (half > 0) {
        place_p->child[place_p->children++] = rank_of(plan, tree, label - half);
    }
}

static const struct tree_form form = {.trees = 2, .place = place};

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

const struct weft_plan_builder weft_plan_double_binary = {
    .name = "double_binary",
    .summary = "two trees, each for half of the data, inner ranks of one are leaves of the other",
    .colls = COLL(BROADCAST) | COLL(REDUCE) | COLL(ALLREDUCE),
    .traits = WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
