/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a tree of ranks, whatever its form (trees.c). */
#ifndef WEFT_PLAN_TREES_H
#define WEFT_PLAN_TREES_H

#include "plan/steps.h"

#define TREE_CHILDREN 32
#define TREE_NOBODY UINT32_MAX

struct tree_place {
    uint32_t parent; /* NOBODY: the root */
    uint32_t depth;
    uint32_t children; /* whose subtrees are the smaller the earlier they come */
    uint32_t child[TREE_CHILDREN];
};

/* The form of one or two trees over all ranks, with the same root. When there are two, nobody but the root
 * may have children in both. */
struct tree_form {
    uint32_t trees;
    void (*place)(const struct weft_plan *plan, uint32_t tree, uint32_t rank,
                  struct tree_place *place_p);
};

/* broadcast, reduce, allreduce (root 0), barrier. Each tree has plan->segments blocks of its own. */
bool weft_tree_shape(const struct tree_form *form, struct weft_plan *plan);
uint32_t weft_tree_rounds(const struct tree_form *form, const struct weft_plan *plan,
                          uint32_t rank);
bool weft_tree_step(const struct tree_form *form, const struct weft_plan *plan, uint32_t rank,
                    uint32_t round, uint32_t index, struct weft_plan_step *step_p);

#endif
