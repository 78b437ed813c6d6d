/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive doubling: in round i the ranks at distance 2^i exchange all they have; ⌈log2 n⌉ rounds, the
 * least latency where messages are free of each other. For n that is no power of two see `struct fold`.
 *
 *   allreduce   the sum so far is sent from one place while the next is made in another: nothing that is
 *               being sent is written to. The last sum is made in OUT.
 *   allgather   a seat answers for the pieces [start(seat), start(seat + 1)), so that the pieces of 2^i
 *               neighbouring seats lie one after another
 */
#include "plan/steps.h"

static bool shape(struct weft_plan *plan)
{
    if (plan->coll == WEFT_ALLREDUCE) {
        plan->parts = 1;
        plan->tmp_units = plan->ranks > 1 ? 2 : 0;
    }
    return true;
}

/* With one addition in all, IN would be sent while OUT, which may be the same, is written: a copy is sent. */
static bool is_copied_first(const struct weft_plan *plan, const struct fold *fold)
{
    return plan->coll == WEFT_ALLREDUCE && fold->bits == 1 && !fold->has_folded && !fold->is_folded;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    struct fold fold = fold_of(plan, rank);
    if (plan->ranks == 1) {
        return 1;
    }
    return fold.is_folded ? 2
                          : fold.bits + (fold.has_folded ? 2 : 0) + is_copied_first(plan, &fold);
}

/* The sum after so many additions of `all`. */
static struct weft_plan_ref sum_after(uint32_t additions, uint32_t all)
{
    return additions == 0     ? ref_in(0, 1)
           : additions == all ? ref_out(0, 1)
                              : ref_tmp(additions % 2, 0, 1);
}

static bool exchange_sums(const struct fold *fold, uint32_t bit, uint32_t index,
                          struct weft_plan_step *step_p)
{
    uint32_t before = bit + fold->has_folded, all = fold->bits + fold->has_folded;
    uint32_t peer = fold_rank(fold, fold->seat ^ 1u << bit);
    if (take_one(&index, true)) {
        return step_send(step_p, peer, all == 1 ? ref_tmp(0, 0, 1) : sum_after(before, all));
    }
    if (take_one(&index, true)) {
        return step_recv_reduce(step_p, peer, sum_after(before + 1, all), sum_after(before, all),
                                bit == fold->bits - 1);
    }
    return false;
}

static bool allreduce_step(const struct weft_plan *plan, const struct fold *fold, uint32_t rank,
                           uint32_t round, uint32_t index, struct weft_plan_step *step_p)
{
    if (fold->is_folded) {
        return take_one(&index, true) && (round == 0 ? step_send(step_p, rank + 1, ref_in(0, 1))
                                                     : step_recv(step_p, rank + 1, ref_out(0, 1)));
    }
    if (fold->has_folded && round == 0) {
        return take_one(&index, true) &&
               step_recv_reduce(step_p, rank - 1, sum_after(1, fold->bits + 1), ref_in(0, 1),
                                false);
    }
    if (is_copied_first(plan, fold)) {
        if (round == 0) {
            return take_one(&index, true) && step_copy(step_p, ref_tmp(0, 0, 1), ref_in(0, 1));
        }
        round--;
    }
    round -= fold->has_folded;
    if (round == fold->bits) {
        return take_one(&index, true) && step_send(step_p, rank - 1, ref_out(0, 1));
    }
    return exchange_sums(fold, round, index, step_p);
}

static struct weft_plan_ref pieces_of(const struct fold *fold, uint32_t bit, uint32_t seat)
{
    uint32_t first = seat >> bit << bit;
    uint32_t from = fold_start(fold, first), to = fold_start(fold, first + (1u << bit));
    return ref_out(from, to - from);
}

static bool exchange_pieces(const struct fold *fold, uint32_t rank, uint32_t bit, uint32_t index,
                            struct weft_plan_step *step_p)
{
    uint32_t peer = fold_rank(fold, fold->seat ^ 1u << bit);
    bool is_first = bit == 0 && !fold->has_folded;
    if (take_one(&index, true)) {
        return step_send(step_p, peer,
                         is_first ? ref_in(rank, 1) : pieces_of(fold, bit, fold->seat));
    }
    if (take_one(&index, true)) {
        return step_recv(step_p, peer, pieces_of(fold, bit, fold->seat ^ 1u << bit));
    }
    if (take_one(&index, is_first)) {
        return step_copy(step_p, ref_out(rank, 1), ref_in(rank, 1));
    }
    return false;
}

static bool allgather_step(const struct weft_plan *plan, const struct fold *fold, uint32_t rank,
                           uint32_t round, uint32_t index, struct weft_plan_step *step_p)
{
    if (fold->is_folded) {
        return take_one(&index, true) &&
               (round == 0 ? step_send(step_p, rank + 1, ref_in(rank, 1))
                           : step_recv(step_p, rank + 1, ref_out(0, plan->ranks)));
    }
    if (fold->has_folded && round == 0) {
        if (take_one(&index, true)) {
            return step_recv(step_p, rank - 1, ref_out(rank - 1, 1));
        }
        return take_one(&index, true) && step_copy(step_p, ref_out(rank, 1), ref_in(rank, 1));
    }
    round -= fold->has_folded;
    if (round == fold->bits) {
        return take_one(&index, true) && step_send(step_p, rank - 1, ref_out(0, plan->ranks));
    }
    return exchange_pieces(fold, rank, round, index, step_p);
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    struct fold fold = fold_of(plan, rank);
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    return plan->coll == WEFT_ALLREDUCE ? allreduce_step(plan, &fold, rank, round, index, step_p)
                                        : allgather_step(plan, &fold, rank, round, index, step_p);
}

const struct weft_plan_builder weft_plan_doubling = {
    .name = "doubling",
    .summary = "ranks at distance 1, 2, 4, ... exchange all they have; log2 n messages in a row",
    .colls = COLL(ALLREDUCE) | COLL(ALLGATHER),
    .traits = WEFT_PLAN_EQUAL_ONLY,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
