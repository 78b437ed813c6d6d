/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the builders: short words for references and steps, and all builders that send messages.
 *
 * A builder answers "step number `index` of this round" without walking there: it takes runs of steps off
 * the index, one after another, in the order in which the round has them.
 */
#ifndef WEFT_PLAN_STEPS_H
#define WEFT_PLAN_STEPS_H

#include "plan/plan.h"

#define COLL(name) (1u << WEFT_##name)

extern const struct weft_plan_builder weft_plan_ring, weft_plan_doubling, weft_plan_halving,
    weft_plan_binomial, weft_plan_binary, weft_plan_double_binary, weft_plan_chain, weft_plan_bruck,
    weft_plan_pairwise, weft_plan_spread, weft_plan_direct, weft_plan_star, weft_plan_linear,
    weft_plan_dissemination;

/* Is it one of the next `count` steps? Then which of them; otherwise they are behind us. */
static inline bool take(uint32_t *index, uint32_t count, uint32_t *which_p)
{
    if (*index < count) {
        *which_p = *index;
        return true;
    }
    *index -= count;
    return false;
}
static inline bool take_one(uint32_t *index, bool is_there)
{
    uint32_t which;
    return take(index, is_there ? 1 : 0, &which);
}

/* ---- references ---- */

static inline struct weft_plan_ref ref_in(uint32_t block, uint32_t blocks)
{
    return (struct weft_plan_ref){.space = WEFT_SPACE_IN, .block = block, .blocks = blocks};
}
static inline struct weft_plan_ref ref_out(uint32_t block, uint32_t blocks)
{
    return (struct weft_plan_ref){.space = WEFT_SPACE_OUT, .block = block, .blocks = blocks};
}
/* These blocks, from the beginning of unit `at` on. */
static inline struct weft_plan_ref ref_tmp(uint32_t at, uint32_t block, uint32_t blocks)
{
    return (struct weft_plan_ref){
        .space = WEFT_SPACE_TMP, .at = at, .origin = block, .block = block, .blocks = blocks};
}
/* These blocks of an image that has block `origin` at unit `at`. */
static inline struct weft_plan_ref ref_image(uint32_t at, uint32_t origin, uint32_t block,
                                             uint32_t blocks)
{
    return (struct weft_plan_ref){
        .space = WEFT_SPACE_TMP, .at = at, .origin = origin, .block = block, .blocks = blocks};
}
static inline struct weft_plan_ref ref_none(void)
{
    return (struct weft_plan_ref){.space = WEFT_SPACE_NONE};
}

/* ---- steps; true: so that a builder returns them ---- */

static inline bool step_send(struct weft_plan_step *step_p, uint32_t peer,
                             struct weft_plan_ref from)
{
    *step_p = (struct weft_plan_step){.kind = WEFT_STEP_SEND, .peer = peer, .from = from};
    return true;
}
static inline bool step_recv(struct weft_plan_step *step_p, uint32_t peer, struct weft_plan_ref to)
{
    *step_p = (struct weft_plan_step){.kind = WEFT_STEP_RECV, .peer = peer, .to = to};
    return true;
}
/* to = from op what comes; from NONE: to itself */
static inline bool step_recv_reduce(struct weft_plan_step *step_p, uint32_t peer,
                                    struct weft_plan_ref to, struct weft_plan_ref from,
                                    bool is_final)
{
    *step_p = (struct weft_plan_step){.kind = WEFT_STEP_RECV_REDUCE,
                                      .flags = is_final ? WEFT_STEP_FINAL : 0,
                                      .peer = peer,
                                      .to = to,
                                      .from = from};
    return true;
}
static inline bool step_copy(struct weft_plan_step *step_p, struct weft_plan_ref to,
                             struct weft_plan_ref from)
{
    *step_p = (struct weft_plan_step){.kind = WEFT_STEP_COPY, .to = to, .from = from};
    return true;
}
/* Everybody's contribution in rank order: mine from `own`, the others' in TMP from `from` on, unit by unit.
 * With one rank: its own, so that what an operation does to inputs is done then too. */
static inline bool step_reduce_all(struct weft_plan_step *step_p, const struct weft_plan *plan,
                                   uint32_t rank, struct weft_plan_ref to, struct weft_plan_ref own,
                                   struct weft_plan_ref from)
{
    *step_p = (struct weft_plan_step){.kind = WEFT_STEP_REDUCE,
                                      .flags = WEFT_STEP_FINAL,
                                      .to = to,
                                      .from = from,
                                      .from2 = own,
                                      .sources = plan->ranks,
                                      .self = rank};
    return true;
}

/* ---- arithmetic ---- */

/* The rank `ahead` places after `rank`, in a circle; ahead ≤ ranks. */
static inline uint32_t rank_after(const struct weft_plan *plan, uint32_t rank, uint32_t ahead)
{
    uint32_t left = plan->ranks - rank;
    return ahead < left ? rank + ahead : ahead - left;
}
static inline uint32_t rank_before(const struct weft_plan *plan, uint32_t rank, uint32_t back)
{
    return back <= rank ? rank - back : rank + (plan->ranks - back);
}
/* Ranks counted from the root on: rooted plans are written for root 0. */
static inline uint32_t from_root(const struct weft_plan *plan, uint32_t rank)
{
    return rank_before(plan, rank, plan->root);
}
static inline uint32_t to_rank(const struct weft_plan *plan, uint32_t from_root_on)
{
    return rank_after(plan, plan->root, from_root_on);
}
static inline uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static inline uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}
/* ⌈log2 n⌉ and ⌊log2 n⌋, n ≥ 1 */
static inline uint32_t log2_up(uint32_t n)
{
    return n <= 1 ? 0 : 32 - (uint32_t)__builtin_clz(n - 1);
}
static inline uint32_t log2_down(uint32_t n)
{
    return 31 - (uint32_t)__builtin_clz(n);
}

/* ---- one rank alone: every builder ---- */

/* The only step of the only round. */
static inline bool step_alone(const struct weft_plan *plan, uint32_t index,
                              struct weft_plan_step *step_p)
{
    bool is_vector =
        plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_REDUCE || plan->coll == WEFT_BROADCAST;
    bool is_reduced = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_REDUCE ||
                      plan->coll == WEFT_REDUCE_SCATTER;
    uint32_t blocks = is_vector ? plan->parts : plan->segments;
    if (index > 0 || plan->coll == WEFT_BARRIER) {
        return false;
    }
    return is_reduced
               ? step_reduce_all(step_p, plan, 0, ref_out(0, blocks), ref_in(0, blocks), ref_none())
               : step_copy(step_p, ref_out(0, blocks), ref_in(0, blocks));
}

/* ---- any number of ranks for what wants a power of two ----
 * With p the largest power of two ≤ ranks and rest = ranks - p, each even rank below 2·rest hands its data
 * to the odd one after it and takes the result from it in the end; p seats are left. */
struct fold {
    uint32_t seats, rest; /* p, ranks - p */
    uint32_t bits;        /* log2 p */
    uint32_t seat;        /* of the rank, if it has one */
    bool is_folded;       /* it has none: rank + 1 acts for it */
    bool has_folded;      /* it acts for rank - 1 too */
};
static inline struct fold fold_of(const struct weft_plan *plan, uint32_t rank)
{
    uint32_t bits = log2_down(plan->ranks), seats = 1u << bits, rest = plan->ranks - seats;
    bool is_paired = rank < 2 * rest;
    return (struct fold){
        .seats = seats,
        .rest = rest,
        .bits = bits,
        .seat = is_paired ? rank / 2 : rank - rest,
        .is_folded = is_paired && rank % 2 == 0,
        .has_folded = is_paired && rank % 2 == 1,
    };
}
static inline uint32_t fold_rank(const struct fold *fold, uint32_t seat)
{
    return seat < fold->rest ? 2 * seat + 1 : seat + fold->rest;
}
/* The first rank whose piece a seat answers for: a range of seats is a range of ranks. */
static inline uint32_t fold_start(const struct fold *fold, uint32_t seat)
{
    return seat < fold->rest ? 2 * seat : seat + fold->rest;
}

#endif
