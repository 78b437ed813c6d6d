/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive halving (Rabenseifner): two ranks share the work on a range, each gives the other the half that
 * it does not keep and adds what comes to the half it keeps; log2 n rounds later everybody has one reduced
 * block. For allreduce the same way back: halves become wholes. The fewest bytes in few messages. For n that
 * is no power of two see `struct fold`.
 *
 *   allreduce        distance 1 first: the largest exchange is between neighbours, who are near each other
 *   reduce_scatter   the largest distance first: then the block that is left is the rank's own piece
 */
#include "plan/steps.h"

static bool shape(struct weft_plan *plan)
{
    if (plan->coll == WEFT_ALLREDUCE) {
        plan->parts = 1u << log2_down(plan->ranks);
    } else {
        plan->tmp_units = plan->ranks > 1 ? plan->ranks : 0;
    }
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    struct fold fold = fold_of(plan, rank);
    if (plan->ranks == 1) {
        return 1;
    }
    if (fold.is_folded) {
        return 2;
    }
    return (plan->coll == WEFT_ALLREDUCE ? 2 * fold.bits : fold.bits) + (fold.has_folded ? 2 : 0);
}

/* ---- allreduce ---- */

struct halves {
    uint32_t peer, size;
    uint32_t kept, given; /* where the halves begin */
};

/* Who shares which halves in the i-th halving. */
static struct halves halves_at(const struct fold *fold, uint32_t i)
{
    uint32_t from = 0, half;
    for (uint32_t j = 0; j < i; j++) {
        from += (fold->seat >> j & 1) * (fold->seats >> (j + 1));
    }
    half = fold->seats >> (i + 1);
    return (struct halves){
        .peer = fold_rank(fold, fold->seat ^ 1u << i),
        .size = half,
        .kept = from + (fold->seat >> i & 1) * half,
        .given = from + (~fold->seat >> i & 1) * half,
    };
}

static bool exchange_halves(const struct fold *fold, uint32_t round, uint32_t index,
                            struct weft_plan_step *step_p)
{
    bool is_back = round >= fold->bits;
    uint32_t i = is_back ? 2 * fold->bits - 1 - round : round;
    struct halves halves = halves_at(fold, i);
    bool is_first = round == 0 && !fold->has_folded;
    if (take_one(&index, true)) {
        uint32_t block = is_back ? halves.kept : halves.given;
        return step_send(step_p, halves.peer,
                         is_first ? ref_in(block, halves.size) : ref_out(block, halves.size));
    }
    if (take_one(&index, true)) {
        if (is_back) {
            return step_recv(step_p, halves.peer, ref_out(halves.given, halves.size));
        }
        return step_recv_reduce(step_p, halves.peer, ref_out(halves.kept, halves.size),
                                is_first ? ref_in(halves.kept, halves.size) : ref_none(),
                                i == fold->bits - 1);
    }
    return false;
}

static bool allreduce_step(const struct weft_plan *plan, const struct fold *fold, uint32_t rank,
                           uint32_t round, uint32_t index, struct weft_plan_step *step_p)
{
    struct weft_plan_ref in = ref_in(0, plan->parts), out = ref_out(0, plan->parts);
    if (fold->is_folded) {
        return take_one(&index, true) &&
               (round == 0 ? step_send(step_p, rank + 1, in) : step_recv(step_p, rank + 1, out));
    }
    if (fold->has_folded && round == 0) {
        return take_one(&index, true) && step_recv_reduce(step_p, rank - 1, out, in, false);
    }
    round -= fold->has_folded;
    if (round == 2 * fold->bits) {
        return take_one(&index, true) && step_send(step_p, rank - 1, out);
    }
    return exchange_halves(fold, round, index, step_p);
}

/* ---- reduce_scatter ---- */

/* Pieces of the seats [seat, seat + size): of the input, or of its image in TMP. */
static struct weft_plan_ref pieces_of(const struct fold *fold, bool is_input, uint32_t seat,
                                      uint32_t size)
{
    uint32_t from = fold_start(fold, seat), to = fold_start(fold, seat + size);
    return is_input ? ref_in(from, to - from) : ref_image(0, 0, from, to - from);
}

static bool exchange_pieces(const struct fold *fold, uint32_t rank, uint32_t round, uint32_t index,
                            struct weft_plan_step *step_p)
{
    uint32_t size = fold->seats >> (round + 1);
    uint32_t kept = fold->seat & ~(size - 1), given = kept ^ size;
    uint32_t peer = fold_rank(fold, fold->seat ^ size);
    bool is_first = round == 0 && !fold->has_folded, is_last = size == 1;
    if (take_one(&index, true)) {
        return step_send(step_p, peer, pieces_of(fold, is_first, given, size));
    }
    if (take_one(&index, true)) {
        bool is_output = is_last && !fold->has_folded;
        return step_recv_reduce(step_p, peer,
                                is_output ? ref_out(rank, 1) : pieces_of(fold, false, kept, size),
                                pieces_of(fold, is_first, kept, size), is_last);
    }
    return false;
}

static bool scatter_step(const struct weft_plan *plan, const struct fold *fold, uint32_t rank,
                         uint32_t round, uint32_t index, struct weft_plan_step *step_p)
{
    if (fold->is_folded) {
        return take_one(&index, true) &&
               (round == 0 ? step_send(step_p, rank + 1, ref_in(0, plan->ranks))
                           : step_recv(step_p, rank + 1, ref_out(rank, 1)));
    }
    if (fold->has_folded && round == 0) {
        return take_one(&index, true) &&
               step_recv_reduce(step_p, rank - 1, ref_image(0, 0, 0, plan->ranks),
                                ref_in(0, plan->ranks), false);
    }
    round -= fold->has_folded;
    if (round < fold->bits) {
        return exchange_pieces(fold, rank, round, index, step_p);
    }
    if (take_one(&index, true)) {
        return step_send(step_p, rank - 1, ref_image(0, 0, rank - 1, 1));
    }
    return take_one(&index, true) && step_copy(step_p, ref_out(rank, 1), ref_image(0, 0, rank, 1));
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    struct fold fold = fold_of(plan, rank);
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    return plan->coll == WEFT_ALLREDUCE ? allreduce_step(plan, &fold, rank, round, index, step_p)
                                        : scatter_step(plan, &fold, rank, round, index, step_p);
}

const struct weft_plan_builder weft_plan_halving = {
    .name = "halving",
    .summary =
        "ranks halve their ranges pairwise, then join them again; few bytes, 2 log2 n messages",
    .colls = COLL(ALLREDUCE) | COLL(REDUCE_SCATTER),
    .traits = WEFT_PLAN_EQUAL_ONLY,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
