/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bruck: log2 n messages per rank, each of many pieces: for small pieces, where messages cost more than
 * bytes. Pieces must be equal, as they lie packed.
 *
 *   allgather   after round i rank r has the pieces r … r + 2^(i+1) - 1 (in a circle), packed from its own
 *               on; at the end they are turned to where they belong
 *   alltoall    the piece for rank r + d travels the distances of the bits of d: in round i all pieces that
 *               a rank has with bit i of d set go on by 2^i. Each round has a place of its own for what
 *               comes; a piece lies where it came last, until it is packed to go on or is at its end.
 */
#include "plan/steps.h"

static uint32_t packed_most(const struct weft_plan *plan)
{
    return plan->ranks / 2; /* of two distances that differ in one bit only one has it */
}

static bool shape(struct weft_plan *plan)
{
    uint32_t exchanges = log2_up(plan->ranks);
    if (plan->ranks == 1) {
        return true;
    }
    /* Two places to pack, in turn: the one may still be sent. */
    plan->tmp_units =
        plan->coll == WEFT_ALLGATHER ? plan->ranks : (exchanges + 2) * packed_most(plan);
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)rank;
    return log2_up(plan->ranks) + 1;
}

/* ---- alltoall ---- */

/* How many distances below `distance` have the bit. */
static uint32_t count_below(uint32_t bit, uint32_t distance)
{
    uint32_t in_last = distance & ((2u << bit) - 1);
    return (distance >> (bit + 1) << bit) + (in_last > 1u << bit ? in_last - (1u << bit) : 0);
}

/* The distance with that number among those that have the bit. */
static uint32_t with_bit(uint32_t bit, uint32_t number)
{
    return number >> bit << (bit + 1) | 1u << bit | (number & ((1u << bit) - 1));
}

static struct weft_plan_ref unit_at(uint32_t unit)
{
    return ref_tmp(unit, 0, 1);
}

/* Where the piece with this distance lies before round i. */
static struct weft_plan_ref piece_at(const struct weft_plan *plan, uint32_t rank, uint32_t i,
                                     uint32_t distance)
{
    uint32_t gone = distance & ((1u << i) - 1), bit;
    if (gone == 0) {
        return ref_in(rank_after(plan, rank, distance), 1);
    }
    bit = log2_down(gone);
    return unit_at((bit + 2) * packed_most(plan) + count_below(bit, distance));
}

static bool alltoall_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                          uint32_t index, struct weft_plan_step *step_p)
{
    uint32_t i, count;
    if (round == log2_up(plan->ranks)) { /* what came from rank - distance */
        return take(&index, plan->ranks, &i) &&
               step_copy(step_p, ref_out(rank_before(plan, rank, i), 1),
                         piece_at(plan, rank, round, i));
    }
    count = count_below(round, plan->ranks);
    uint32_t packed = round % 2 * packed_most(plan), came = (round + 2) * packed_most(plan);
    if (take(&index, count, &i)) {
        return step_copy(step_p, unit_at(packed + i),
                         piece_at(plan, rank, round, with_bit(round, i)));
    }
    if (take_one(&index, true)) {
        return step_send(step_p, rank_after(plan, rank, 1u << round), ref_tmp(packed, 0, count));
    }
    if (take_one(&index, true)) {
        return step_recv(step_p, rank_before(plan, rank, 1u << round), ref_tmp(came, 0, count));
    }
    return false;
}

/* ---- allgather ---- */

static bool allgather_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                           uint32_t index, struct weft_plan_step *step_p)
{
    uint32_t n = plan->ranks, have = 1u << round, count;
    if (round == log2_up(n)) {
        if (take_one(&index, true)) {
            return step_copy(step_p, ref_out(rank, n - rank), ref_tmp(0, 0, n - rank));
        }
        return take_one(&index, rank > 0) &&
               step_copy(step_p, ref_out(0, rank), ref_tmp(n - rank, 0, rank));
    }
    count = least(have, n - have);
    if (take_one(&index, round == 0)) {
        return step_copy(step_p, ref_tmp(0, 0, 1), ref_in(rank, 1));
    }
    if (take_one(&index, true)) {
        return step_send(step_p, rank_before(plan, rank, have), ref_tmp(0, 0, count));
    }
    if (take_one(&index, true)) {
        return step_recv(step_p, rank_after(plan, rank, have), ref_tmp(have, 0, count));
    }
    return false;
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    return plan->coll == WEFT_ALLTOALL ? alltoall_step(plan, rank, round, index, step_p)
                                       : allgather_step(plan, rank, round, index, step_p);
}

const struct weft_plan_builder weft_plan_bruck = {
    .name = "bruck",
    .summary =
        "pieces travel packed by the bits of their distance; log2 n messages, for small pieces",
    .colls = COLL(ALLTOALL) | COLL(ALLGATHER),
    .traits = WEFT_PLAN_EQUAL_ONLY,
    .shape = shape,
    .rounds = rounds,
    .step = step,
};
