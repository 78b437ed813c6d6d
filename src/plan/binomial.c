/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binomial tree: counted from the root on, the parent of v is v without its lowest set bit, and v stands
 * for the ranks [v, v + that bit). log2 n rounds, n - 1 messages: the fewest there are. The vector
 * operations are those of every tree (trees.c); here is how pieces are collected and dealt out.
 *
 * Gather: a rank collects the pieces of its subtree, which follow each other in a circle, and sends them in
 * one message (two where the circle begins anew). Scatter: the same backwards.
 */
#include "plan/trees.h"

/* Ranks [v, v + size) from the root on. */
struct subtree {
    uint32_t at, size;
};

static struct subtree subtree_of(const struct weft_plan *plan, uint32_t at)
{
    uint32_t all = at == 0 ? plan->ranks : at & (0u - at);
    return (struct subtree){.at = at, .size = least(all, plan->ranks - at)};
}

static uint32_t child_count(const struct weft_plan *plan, uint32_t at)
{
    return log2_up(subtree_of(plan, at).size);
}

static void place(const struct weft_plan *plan, uint32_t tree, uint32_t rank,
                  struct tree_place *place_p)
{
    uint32_t at = from_root(plan, rank);
    (void)tree;
    place_p->parent = at == 0 ? TREE_NOBODY : to_rank(plan, at & (at - 1));
    place_p->depth = (uint32_t)__builtin_popcount(at);
    place_p->children = child_count(plan, at);
    for (uint32_t i = 0; i < place_p->children; i++) {
        place_p->child[i] = to_rank(plan, at + (1u << i));
    }
}

static const struct tree_form form = {.trees = 1, .place = place};

static bool has_pieces(const struct weft_plan *plan)
{
    return plan->coll == WEFT_GATHER || plan->coll == WEFT_SCATTER;
}

static bool shape(struct weft_plan *plan)
{
    if (!has_pieces(plan)) {
        return weft_tree_shape(&form, plan);
    }
    plan->segments = 1;
    plan->tmp_units = plan->ranks > 2 ? plan->ranks / 2 : 0; /* no subtree is larger */
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    uint32_t at = from_root(plan, rank);
    if (!has_pieces(plan)) {
        return weft_tree_rounds(&form, plan, rank);
    }
    return at == 0 || child_count(plan, at) == 0 ? 1 : 2;
}

/* ---- pieces ---- */

/* Pieces that follow each other: the first part of a subtree, or the second, after the circle's beginning. */
struct span {
    uint32_t piece, count;
};

static struct span span_of(const struct weft_plan *plan, const struct subtree *subtree,
                           uint32_t part)
{
    uint32_t first = to_rank(plan, subtree->at);
    uint32_t count = least(subtree->size, plan->ranks - first);
    return part == 0 ? (struct span){first, count} : (struct span){0, subtree->size - count};
}

static uint32_t span_count(const struct weft_plan *plan, const struct subtree *subtree)
{
    return span_of(plan, subtree, 1).count > 0 ? 2 : 1;
}

/* Where rank v has these pieces, which are some of its subtree: the root in the user's memory, the others in
 * two images, the second after the first. */
static struct weft_plan_ref pieces_at(const struct weft_plan *plan, uint32_t at,
                                      const struct span *span)
{
    struct subtree subtree = subtree_of(plan, at);
    struct span first = span_of(plan, &subtree, 0);
    if (at == 0) {
        return plan->coll == WEFT_GATHER ? ref_out(span->piece, span->count)
                                         : ref_in(span->piece, span->count);
    }
    return span->piece >= first.piece ? ref_image(0, first.piece, span->piece, span->count)
                                      : ref_image(first.count, 0, span->piece, span->count);
}

/* Messages between v and its children, the largest subtrees first when dealing out. */
static bool take_children(const struct weft_plan *plan, uint32_t at, uint32_t *index,
                          struct weft_plan_step *step_p)
{
    uint32_t children = child_count(plan, at), part;
    for (uint32_t i = 0; i < children; i++) {
        uint32_t bit = plan->coll == WEFT_GATHER ? i : children - 1 - i;
        uint32_t peer = to_rank(plan, at + (1u << bit));
        struct subtree subtree = subtree_of(plan, at + (1u << bit));
        if (take(index, span_count(plan, &subtree), &part)) {
            struct span span = span_of(plan, &subtree, part);
            struct weft_plan_ref pieces = pieces_at(plan, at, &span);
            return plan->coll == WEFT_GATHER ? step_recv(step_p, peer, pieces)
                                             : step_send(step_p, peer, pieces);
        }
    }
    return false;
}

static bool take_parent(const struct weft_plan *plan, uint32_t at, uint32_t *index,
                        struct weft_plan_step *step_p)
{
    uint32_t peer = to_rank(plan, at & (at - 1)), rank = to_rank(plan, at), part;
    struct subtree subtree = subtree_of(plan, at);
    if (take(index, span_count(plan, &subtree), &part)) {
        struct span span = span_of(plan, &subtree, part);
        struct weft_plan_ref pieces = pieces_at(plan, at, &span);
        bool is_leaf = subtree.size == 1;
        return plan->coll == WEFT_GATHER
                   ? step_send(step_p, peer, is_leaf ? ref_in(rank, 1) : pieces)
                   : step_recv(step_p, peer, is_leaf ? ref_out(rank, 1) : pieces);
    }
    return false;
}

static bool piece_step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                       struct weft_plan_step *step_p)
{
    uint32_t at = from_root(plan, rank);
    bool is_leaf = subtree_of(plan, at).size == 1, is_gather = plan->coll == WEFT_GATHER;
    struct span own = {.piece = rank, .count = 1};
    struct weft_plan_ref kept = pieces_at(plan, at, &own);
    if (at != 0 && (is_leaf || (round == 1) == is_gather)) {
        return take_parent(plan, at, &index, step_p);
    }
    if (take_children(plan, at, &index, step_p)) {
        return true;
    }
    return take_one(&index, true) && (is_gather ? step_copy(step_p, kept, ref_in(rank, 1))
                                                : step_copy(step_p, ref_out(rank, 1), kept));
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    return has_pieces(plan) ? piece_step(plan, rank, round, index, step_p)
                            : weft_tree_step(&form, plan, rank, round, index, step_p);
}

const struct weft_plan_builder weft_plan_binomial = {
    .name = "binomial",
    .summary = "a tree of depth log2 n with as few messages as there can be",
    .colls = COLL(BROADCAST) | COLL(REDUCE) | COLL(ALLREDUCE) | COLL(GATHER) | COLL(SCATTER) |
             COLL(BARRIER),
    .traits = WEFT_PLAN_PIPELINED | WEFT_PLAN_EQUAL_ONLY,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
