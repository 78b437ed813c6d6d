/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks need not be run. In many plans rank r does what rank 0 does, with every peer moved by r
 * (a ring) or exclusive-or r (recursive doubling): then, on hosts that are all alike, the ranks of one host
 * stand for those of every other, and on one host rank 0 stands for all.
 *
 * That a plan is of this kind is found by looking at some ranks in some rounds: all of them would be as
 * much work as running the plan. The tests compare with full runs for every builder.
 */
#include "plan/sim.h"

#define RANKS_LOOKED_AT 6
#define ROUNDS_LOOKED_AT 10
#define STEPS_LOOKED_AT 10
#define SMALL 9 /* ranks, rounds, steps up to here: all */

static uint32_t offset_of(uint32_t symmetry, uint32_t ranks, uint32_t from, uint32_t to)
{
    return symmetry == WEFT_SYMMETRY_XOR ? from ^ to : to >= from ? to - from : to + (ranks - from);
}

static bool is_same_copy(const struct weft_plan_step *a, const struct weft_plan_step *b)
{
    return a->kind == WEFT_STEP_COPY && b->kind == WEFT_STEP_COPY && a->to.space == b->to.space &&
           a->from.space == b->from.space;
}

/* How a copy is cut may differ from rank to rank (around the own block, say), its length does not. */
bool weft_sim_read(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t *index,
                   struct weft_plan_step *step_p)
{
    struct weft_plan_step next;

    if (!plan->builder->step(plan, rank, round, *index, step_p)) {
        return false;
    }
    ++*index;
    while (step_p->kind == WEFT_STEP_COPY &&
           plan->builder->step(plan, rank, round, *index, &next) && is_same_copy(step_p, &next)) {
        step_p->to.blocks += next.to.blocks;
        step_p->from.blocks += next.from.blocks;
        ++*index;
    }
    return true;
}

uint32_t weft_sim_offset(const struct weft_plan_sim *sim, uint32_t from, uint32_t to)
{
    return offset_of(sim->symmetry, sim->plan->ranks, from, to);
}

uint32_t weft_sim_back(const struct weft_plan_sim *sim, uint32_t to, uint32_t offset)
{
    return sim->symmetry == WEFT_SYMMETRY_XOR ? to ^ offset
           : to >= offset                     ? to - offset
                                              : to + (sim->plan->ranks - offset);
}

static bool has_peer(const struct weft_plan_step *step)
{
    return step->kind == WEFT_STEP_SEND || step->kind == WEFT_STEP_RECV ||
           step->kind == WEFT_STEP_RECV_REDUCE ||
           (step->kind == WEFT_STEP_AWAIT && step->peer != WEFT_PLAN_ALL);
}

/* Do both cost the same, with peers at the same offset? */
static bool is_alike(const struct weft_plan *plan, uint32_t symmetry, uint32_t rank,
                     const struct weft_plan_step *mine, const struct weft_plan_step *first)
{
    return mine->kind == first->kind && mine->value == first->value &&
           mine->to.space == first->to.space && mine->to.blocks == first->to.blocks &&
           mine->from.space == first->from.space && mine->from.blocks == first->from.blocks &&
           mine->also.space == first->also.space && mine->sources == first->sources &&
           has_peer(mine) == has_peer(first) &&
           (!has_peer(mine) || offset_of(symmetry, plan->ranks, rank, mine->peer) ==
                                   offset_of(symmetry, plan->ranks, 0, first->peer));
}

/* The i-th of `looked` numbers below count: all when there are few; else both ends and some between. */
static uint32_t sample(uint32_t i, uint32_t looked, uint32_t count)
{
    uint32_t scatter = i * 2654435761u ^ count * 40503u;

    return count <= looked   ? i
           : i < 3           ? i
           : i >= looked - 3 ? count - (looked - i)
                             : 3 + scatter % (count - 6);
}

static bool round_is_alike(const struct weft_plan *plan, uint32_t symmetry, uint32_t rank,
                           uint32_t round)
{
    struct weft_plan_step mine, first;
    uint32_t its = 0, firsts = 0;

    for (uint32_t i = 0; i < STEPS_LOOKED_AT; i++) {
        bool is_there = weft_sim_read(plan, 0, round, &firsts, &first);
        if (weft_sim_read(plan, rank, round, &its, &mine) != is_there) {
            return false;
        }
        if (!is_there) {
            return true;
        }
        if (!is_alike(plan, symmetry, rank, &mine, &first)) {
            return false;
        }
    }
    return true;
}

static bool is_symmetric(const struct weft_plan *plan, uint32_t symmetry)
{
    uint32_t ranks = plan->ranks <= SMALL ? plan->ranks : RANKS_LOOKED_AT;
    uint32_t rounds = plan->builder->rounds(plan, 0);
    uint32_t looked = rounds <= ROUNDS_LOOKED_AT ? rounds : ROUNDS_LOOKED_AT;

    for (uint32_t i = 1; i < ranks; i++) {
        uint32_t rank = sample(i, ranks, plan->ranks);
        if (plan->builder->rounds(plan, rank) != rounds) {
            return false;
        }
        for (uint32_t k = 0; k < looked; k++) {
            if (!round_is_alike(plan, symmetry, rank, sample(k, looked, rounds))) {
                return false;
            }
        }
    }
    return true;
}

uint32_t weft_sim_symmetry(const struct weft_plan *plan)
{
    if (is_symmetric(plan, WEFT_SYMMETRY_ROTATE)) {
        return WEFT_SYMMETRY_ROTATE;
    }
    if ((plan->ranks & (plan->ranks - 1)) == 0 && is_symmetric(plan, WEFT_SYMMETRY_XOR)) {
        return WEFT_SYMMETRY_XOR;
    }
    return WEFT_SYMMETRY_NONE;
}

uint32_t weft_sim_classes(const struct weft_plan_facts *facts, uint32_t symmetry)
{
    uint32_t mine = facts->host_ranks;

    if (symmetry == WEFT_SYMMETRY_NONE) {
        return facts->ranks;
    }
    if (facts->hosts == 1) {
        return 1;
    }
    if (facts->host_of != NULL || (uint64_t)mine * facts->hosts != facts->ranks) {
        return facts->ranks;
    }
    return mine;
}
