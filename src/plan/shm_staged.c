/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory, in pieces that go through the slots: round t moves segment t of everything. Rounds overlap:
 * while others take what this rank put into its slots in round t - 1, it fills those of round t.
 *
 *   two phases (reduce_scatter, allgather, gather, scatter, alltoall, broadcast), iteration i:
 *       put segment i, SHOW i + 1, take segment i - 1
 *   three phases (allreduce, reduce), iteration i:
 *       put segment i, SHOW 2i + 1; reduce the own slice of segment i - 1 into OUT and, where the others
 *       find it, into the hole that the own slice leaves in the slot, SHOW 2i + 2; take the others' slices of
 *       segment i - 2
 *
 * plan->radix is how many segments the slots hold. A slot is filled again when everybody has taken what was
 * in it, which is shown by the next SHOW after that. The own slice is never put: it is read in place. Sums
 * are in rank order.
 */
#include "plan/shm.h"

#define DEPTH 4 /* unless the plan says otherwise; the least of three phases, of two it is 3 */

static bool has_three_phases(const struct weft_plan *plan)
{
    return plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_REDUCE;
}

/* Does a slot hold a block for each rank? */
static bool is_fanned(const struct weft_plan *plan)
{
    return plan->coll == WEFT_REDUCE_SCATTER || plan->coll == WEFT_ALLTOALL ||
           plan->coll == WEFT_SCATTER;
}

static bool shape(struct weft_plan *plan)
{
    uint32_t depth = plan->radix != 0 ? plan->radix : DEPTH;
    if (plan->ranks < 2 || plan->coll == WEFT_BARRIER ||
        depth < (has_three_phases(plan) ? 4u : 3u)) {
        return false;
    }
    plan->radix = depth;
    plan->parts = plan->coll == WEFT_BROADCAST ? plan->segments
                  : has_three_phases(plan)     ? plan->segments * plan->ranks
                                               : 0;
    plan->slots = is_fanned(plan) ? depth * plan->ranks : depth;
    plan->slot_blocks = has_three_phases(plan) ? plan->ranks : 1;
    plan->shows = has_three_phases(plan) ? 2 * plan->segments + 2 : plan->segments;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)rank;
    return plan->segments + (has_three_phases(plan) ? 2 : 1);
}

/* The block of segment t that belongs to rank q. */
static uint32_t block_of(const struct weft_plan *plan, uint32_t t, uint32_t q)
{
    return plan->coll == WEFT_BROADCAST ? t
           : has_three_phases(plan)     ? t * plan->ranks + q
                                        : q * plan->segments + t;
}

/* Where it lies in the slots of whoever put it there. */
static struct weft_plan_ref in_slot(const struct weft_plan *plan, uint32_t t, uint32_t q,
                                    uint32_t blocks)
{
    uint32_t depth = plan->radix;
    uint32_t block = block_of(plan, t, q);
    return (struct weft_plan_ref){.space = WEFT_SPACE_SLOT,
                                  .at = is_fanned(plan) ? t % depth * plan->ranks + q : t % depth,
                                  .origin = has_three_phases(plan) ? t * plan->ranks : block,
                                  .block = block,
                                  .blocks = blocks};
}

static bool put_range(const struct weft_plan *plan, uint32_t rank, uint32_t t, uint32_t first,
                      uint32_t end, struct weft_plan_list *list)
{
    return first < end &&
           weft_plan_take(list, weft_plan_copy(in_slot(plan, t, first, end - first),
                                               weft_plan_in(WEFT_SPACE_IN, block_of(plan, t, first),
                                                            end - first),
                                               rank));
}

/* Segment t into the slots, but for what only this rank needs. */
static bool put(const struct weft_plan *plan, uint32_t rank, uint32_t t,
                struct weft_plan_list *list)
{
    if (has_three_phases(plan)) {
        return put_range(plan, rank, t, 0, rank, list) ||
               put_range(plan, rank, t, rank + 1, plan->ranks, list);
    }
    if (!is_fanned(plan)) {
        return put_range(plan, rank, t, rank, rank + 1, list);
    }
    if (weft_plan_skip(list, plan->ranks - 1)) {
        return false;
    }
    uint32_t q = list->left < rank ? list->left : list->left + 1;
    list->left = 0;
    return put_range(plan, rank, t, q, q + 1, list);
}

static bool gives(const struct weft_plan *plan, uint32_t rank)
{
    switch (plan->coll) {
    case WEFT_BROADCAST:
    case WEFT_SCATTER:
        return rank == plan->root;
    case WEFT_GATHER:
        return rank != plan->root;
    default:
        return true;
    }
}

/* Waits until the slots of segment t are free, fills them. */
static bool fill(const struct weft_plan *plan, uint32_t rank, uint32_t t,
                 struct weft_plan_list *list)
{
    uint32_t depth = plan->radix;
    if (t == 0 &&
        weft_plan_take(list, (struct weft_plan_step){.kind = WEFT_STEP_AWAIT_FREE, .value = 1})) {
        return true;
    }
    if (t >= depth) {
        uint32_t value = has_three_phases(plan) ? 2 * (t - depth + 3) + 1 : t - depth + 3;
        if (weft_plan_take(list, weft_plan_await(WEFT_PLAN_ALL, value))) {
            return true;
        }
    }
    return put(plan, rank, t, list);
}

/* The own slice of segment t, summed. */
static struct weft_plan_step sum(const struct weft_plan *plan, uint32_t rank, uint32_t t)
{
    uint32_t block = block_of(plan, t, rank);
    bool has_out = plan->coll != WEFT_REDUCE || rank == plan->root;
    struct weft_plan_step step = {.kind = WEFT_STEP_REDUCE,
                                  .flags = WEFT_STEP_FINAL,
                                  .to = weft_plan_in(WEFT_SPACE_OUT, block, 1),
                                  .from = in_slot(plan, t, rank, 1),
                                  .from2 = weft_plan_in(WEFT_SPACE_IN, block, 1),
                                  .sources = plan->ranks,
                                  .self = rank};
    if (!has_out) {
        step.to = in_slot(plan, t, rank, 1);
    } else if (plan->coll == WEFT_ALLREDUCE) {
        step.also = in_slot(plan, t, rank, 1);
    }
    return step;
}

static struct weft_plan_step keep(const struct weft_plan *plan, uint32_t rank, uint32_t t)
{
    uint32_t block = block_of(plan, t, rank);
    return weft_plan_copy(weft_plan_in(WEFT_SPACE_OUT, block, 1),
                          weft_plan_in(WEFT_SPACE_IN, block, 1), rank);
}

/* Everybody else's block of segment t that is for this rank. */
static bool collect(const struct weft_plan *plan, uint32_t rank, uint32_t t,
                    struct weft_plan_list *list)
{
    bool is_from_root = plan->coll == WEFT_BROADCAST || plan->coll == WEFT_SCATTER;
    uint32_t peer = plan->root;
    uint32_t mine, theirs;
    if (weft_plan_skip(list, is_from_root ? 1 : plan->ranks - 1)) {
        return false;
    }
    if (!is_from_root) {
        peer = list->left < rank ? list->left : list->left + 1;
    }
    list->left = 0;
    mine = is_from_root ? rank : peer;      /* where it goes in OUT */
    theirs = is_fanned(plan) ? rank : peer; /* whose it is in their slots */
    return weft_plan_take(list,
                          weft_plan_copy(weft_plan_in(WEFT_SPACE_OUT, block_of(plan, t, mine), 1),
                                         in_slot(plan, t, theirs, 1), peer));
}

static bool takes(const struct weft_plan *plan, uint32_t rank)
{
    switch (plan->coll) {
    case WEFT_BROADCAST:
    case WEFT_SCATTER:
        return rank != plan->root;
    case WEFT_GATHER:
    case WEFT_REDUCE:
        return rank == plan->root;
    default:
        return true;
    }
}

/* The second phase of two, of segment t. */
static bool take(const struct weft_plan *plan, uint32_t rank, uint32_t t,
                 struct weft_plan_list *list)
{
    bool is_from_root = plan->coll == WEFT_BROADCAST || plan->coll == WEFT_SCATTER;
    bool keeps =
        plan->coll != WEFT_REDUCE_SCATTER &&
        (plan->coll == WEFT_ALLGATHER || plan->coll == WEFT_ALLTOALL || rank == plan->root);
    if (keeps && weft_plan_take(list, keep(plan, rank, t))) {
        return true;
    }
    if (!takes(plan, rank)) {
        return false;
    }
    if (weft_plan_take(list, weft_plan_await(is_from_root ? plan->root : WEFT_PLAN_ALL, t + 1))) {
        return true;
    }
    return plan->coll == WEFT_REDUCE_SCATTER ? weft_plan_take(list, sum(plan, rank, t))
                                             : collect(plan, rank, t, list);
}

static bool step_of_two(const struct weft_plan *plan, uint32_t rank, uint32_t i,
                        struct weft_plan_list *list)
{
    return (i < plan->segments && gives(plan, rank) && fill(plan, rank, i, list)) ||
           (i < plan->segments && weft_plan_take(list, weft_plan_show(i + 1))) ||
           (i >= 1 && take(plan, rank, i - 1, list));
}

static bool step_of_three(const struct weft_plan *plan, uint32_t rank, uint32_t i,
                          struct weft_plan_list *list)
{
    if (i < plan->segments &&
        (fill(plan, rank, i, list) || weft_plan_take(list, weft_plan_show(2 * i + 1)))) {
        return true;
    }
    if (i >= 1 && i <= plan->segments &&
        (weft_plan_take(list, weft_plan_await(WEFT_PLAN_ALL, 2 * i - 1)) ||
         weft_plan_take(list, sum(plan, rank, i - 1)) ||
         weft_plan_take(list, weft_plan_show(2 * i + 2)))) {
        return true;
    }
    return i >= 2 && takes(plan, rank) &&
           (weft_plan_take(list, weft_plan_await(WEFT_PLAN_ALL, 2 * i)) ||
            collect(plan, rank, i - 2, list));
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    struct weft_plan_list list = {.left = index, .step = step_p};
    return has_three_phases(plan) ? step_of_three(plan, rank, round, &list)
                                  : step_of_two(plan, rank, round, &list);
}

const struct weft_plan_builder weft_plan_staged = {
    .name = "staged",
    .summary = "shared memory: segments through slots, each rank reduces its slice of all of them",
    .colls = 0xff,
    .traits =
        WEFT_PLAN_SHARED | WEFT_PLAN_IN_RANK_ORDER | WEFT_PLAN_EQUAL_ONLY | WEFT_PLAN_PIPELINED,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
