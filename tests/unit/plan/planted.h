/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with one mistake in them: a builder that passes on what another says, except in one place. */
#ifndef WEFT_TESTS_PLAN_PLANTED_H
#define WEFT_TESTS_PLAN_PLANTED_H

#include "support.h"

/* clang-format off */
#define BUGS(X)                                                                                    \
    X(DROPPED, "a step is left out")                                                               \
    X(REPEATED, "a message step is done twice")                                                    \
    X(REPEATED_BOTH, "a contribution is sent and added twice")                                     \
    X(PEER, "a message goes to or is expected from another rank")                                  \
    X(PEERS_SWAPPED, "two steps of a round have exchanged their peers")                            \
    X(BLOCK, "another block")                                                                      \
    X(SHORT, "one block less")                                                                     \
    X(UNIT, "another unit of TMP")                                                                 \
    X(STALE, "the input is sent instead of the sum, or the other way round")                       \
    X(NOT_FINAL, "FINAL is missing")                                                               \
    X(TOO_FINAL, "FINAL too early")                                                                \
    X(NOT_REDUCED, "what comes overwrites instead of being added")                                 \
    X(NOT_OWN, "what comes is added to something else")                                            \
    X(ORDER, "sources are added in another order")                                                 \
    X(FUSED, "two rounds are one: what is received is used or overwritten too early")              \
    X(ROUNDS_SWAPPED, "two rounds are exchanged")                                                  \
    X(NO_LAST, "the last round is missing")
/* clang-format on */

enum bug {
#define BUG_ENUM(name, text) BUG_##name,
    BUGS(BUG_ENUM)
#undef BUG_ENUM
        BUG_COUNT
};

struct planted {
    const struct weft_plan_builder *builder; /* the right one */
    enum bug bug;
    uint32_t rank, round, index; /* where */
    uint32_t rank2, round2,
        index2; /* REPEATED_BOTH: the receiver; PEERS_SWAPPED: the other index */
};

#define NOBODY_PLANTED UINT32_MAX
static struct planted planted;

static inline bool is_recv(const struct weft_plan_step *step)
{
    return step->kind == WEFT_STEP_RECV || step->kind == WEFT_STEP_RECV_REDUCE;
}

static inline bool is_message(const struct weft_plan_step *step)
{
    return step->kind == WEFT_STEP_SEND || is_recv(step);
}

/* The reference that a step is mostly about. */
static inline struct weft_plan_ref *main_ref(struct weft_plan_step *step)
{
    return is_recv(step) ? &step->to : &step->from;
}

static inline uint32_t block_count(const struct weft_plan *plan)
{
    bool is_vector =
        plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST || plan->coll == WEFT_REDUCE;
    return is_vector ? plan->parts : plan->ranks * plan->segments;
}

/* ---- the mistakes ---- */

static inline bool spoil_block(const struct weft_plan *plan, struct weft_plan_ref *ref)
{
    if (ref->blocks == 0 || ref->space == WEFT_SPACE_TMP || ref->blocks == block_count(plan)) {
        return false;
    }
    ref->block += ref->block + ref->blocks < block_count(plan) ? 1 : UINT32_MAX;
    return true;
}

static inline bool spoil_unit(const struct weft_plan *plan, struct weft_plan_step *step)
{
    struct weft_plan_ref *ref = step->to.space == WEFT_SPACE_TMP ? &step->to : &step->from;
    if (ref->space != WEFT_SPACE_TMP || plan->tmp_units < 2) {
        return false;
    }
    ref->at = (ref->at + 1) % plan->tmp_units;
    return true;
}

static inline bool spoil_stale(const struct weft_plan *plan, struct weft_plan_step *step)
{
    bool has_both = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_REDUCE_SCATTER ||
                    plan->coll == WEFT_REDUCE;
    if (step->kind != WEFT_STEP_SEND || !has_both) {
        return false;
    }
    if (step->from.space == WEFT_SPACE_IN) {
        step->from.space = WEFT_SPACE_OUT;
    } else {
        step->from = (struct weft_plan_ref){
            .space = WEFT_SPACE_IN, .block = step->from.block, .blocks = step->from.blocks};
    }
    return true;
}

static inline bool spoil_own(struct weft_plan_step *step)
{
    if (step->kind != WEFT_STEP_RECV_REDUCE) {
        return false;
    }
    if (step->from.space == WEFT_SPACE_NONE) { /* its own again, not what came before */
        step->from = (struct weft_plan_ref){
            .space = WEFT_SPACE_IN, .block = step->to.block, .blocks = step->to.blocks};
        return true;
    }
    if (step->from.space == WEFT_SPACE_IN) { /* what lies there by chance */
        step->from = (struct weft_plan_ref){.space = WEFT_SPACE_NONE};
        return true;
    }
    return false;
}

/* Changes one step. false: this mistake cannot be made here. */
static inline bool spoil(const struct weft_plan *plan, uint32_t rank, struct weft_plan_step *step)
{
    bool is_reduction = step->kind == WEFT_STEP_RECV_REDUCE || step->kind == WEFT_STEP_REDUCE;
    switch (planted.bug) {
    case BUG_PEER:
        if (!is_message(step) || plan->ranks < 3) {
            return false;
        }
        do {
            step->peer = (step->peer + 1) % plan->ranks;
        } while (step->peer == rank);
        return true;
    case BUG_BLOCK:
        return spoil_block(plan, main_ref(step));
    case BUG_SHORT:
        if (main_ref(step)->blocks == 0 || step->kind == WEFT_STEP_REDUCE) {
            return false;
        }
        main_ref(step)->blocks--;
        return true;
    case BUG_UNIT:
        return spoil_unit(plan, step);
    case BUG_STALE:
        return spoil_stale(plan, step);
    case BUG_NOT_FINAL:
    case BUG_TOO_FINAL:
        if (!is_reduction ||
            ((step->flags & WEFT_STEP_FINAL) != 0) != (planted.bug == BUG_NOT_FINAL)) {
            return false;
        }
        step->flags ^= WEFT_STEP_FINAL;
        return true;
    case BUG_NOT_REDUCED:
        if (step->kind != WEFT_STEP_RECV_REDUCE) {
            return false;
        }
        step->kind = WEFT_STEP_RECV;
        step->flags = 0;
        return true;
    case BUG_NOT_OWN:
        return spoil_own(step);
    case BUG_ORDER:
        if (step->kind != WEFT_STEP_REDUCE || step->sources < 2) {
            return false;
        }
        step->self = (step->self + 1) % step->sources;
        return true;
    default:
        return true;
    }
}

/* ---- the builder ---- */

static inline uint32_t steps_of(const struct weft_plan *plan, uint32_t rank, uint32_t round)
{
    uint32_t count = 0;
    struct weft_plan_step step;
    while (planted.builder->step(plan, rank, round, count, &step)) {
        count++;
    }
    return count;
}

static inline uint32_t planted_rounds(const struct weft_plan *plan, uint32_t rank)
{
    uint32_t rounds = planted.builder->rounds(plan, rank);
    return planted.bug == BUG_NO_LAST && rank == planted.rank ? rounds - 1 : rounds;
}

static inline bool swapped_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                                uint32_t index, struct weft_plan_step *step_p)
{
    struct weft_plan_step other;
    bool is_there = planted.builder->step(plan, rank, round, index, step_p);
    if (is_there && (index == planted.index || index == planted.index2)) {
        (void)planted.builder->step(
            plan, rank, round, index == planted.index ? planted.index2 : planted.index, &other);
        step_p->peer = other.peer;
    }
    return is_there;
}

/* The sender's step twice, and the receiver's: what came is added once more. */
static inline bool repeated_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                                 uint32_t index, struct weft_plan_step *step_p)
{
    bool is_sender = rank == planted.rank && round == planted.round && index > planted.index;
    bool is_receiver = rank == planted.rank2 && round == planted.round2 && index > planted.index2;
    bool is_there =
        planted.builder->step(plan, rank, round, index - (is_sender || is_receiver), step_p);
    if (is_receiver && index == planted.index2 + 1) {
        step_p->from = (struct weft_plan_ref){.space = WEFT_SPACE_NONE};
    }
    return is_there;
}

static inline bool planted_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                                uint32_t index, struct weft_plan_step *step_p)
{
    const struct weft_plan_builder *right = planted.builder;
    bool is_here = rank == planted.rank && round == planted.round;
    switch (planted.bug) {
    case BUG_DROPPED:
        return right->step(plan, rank, round, index + (is_here && index >= planted.index), step_p);
    case BUG_REPEATED:
        return right->step(plan, rank, round, index - (is_here && index > planted.index), step_p);
    case BUG_REPEATED_BOTH:
        return repeated_step(plan, rank, round, index, step_p);
    case BUG_PEERS_SWAPPED:
        return is_here ? swapped_step(plan, rank, round, index, step_p)
                       : right->step(plan, rank, round, index, step_p);
    case BUG_FUSED:
        if (is_here && index >= steps_of(plan, rank, round)) {
            return right->step(plan, rank, round + 1, index - steps_of(plan, rank, round), step_p);
        }
        return (rank != planted.rank || round != planted.round + 1) &&
               right->step(plan, rank, round, index, step_p);
    case BUG_ROUNDS_SWAPPED:
        if (rank == planted.rank && (round == planted.round || round == planted.round + 1)) {
            round = 2 * planted.round + 1 - round;
        }
        return right->step(plan, rank, round, index, step_p);
    default:
        if (!right->step(plan, rank, round, index, step_p)) {
            return false;
        }
        if (is_here && index == planted.index) {
            (void)spoil(plan, rank, step_p);
        }
        return true;
    }
}

/* ---- where they can be ---- */

/* The receiver's step for message number `number` from rank to rank. */
static inline bool find_recv(const struct weft_plan *plan, uint32_t from, uint32_t to,
                             uint32_t number)
{
    uint32_t rounds = planted.builder->rounds(plan, to);
    struct weft_plan_step step;
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; planted.builder->step(plan, to, round, i, &step); i++) {
            if (is_recv(&step) && step.peer == from && number-- == 0) {
                planted.rank2 = to;
                planted.round2 = round;
                planted.index2 = i;
                return step.kind == WEFT_STEP_RECV_REDUCE;
            }
        }
    }
    return false;
}

static inline uint32_t sends_before(const struct weft_plan *plan, uint32_t peer)
{
    uint32_t count = 0;
    struct weft_plan_step step;
    for (uint32_t round = 0; round <= planted.round; round++) {
        for (uint32_t i = 0; (round < planted.round || i < planted.index) &&
                             planted.builder->step(plan, planted.rank, round, i, &step);
             i++) {
            count += step.kind == WEFT_STEP_SEND && step.peer == peer;
        }
    }
    return count;
}

static inline bool overlaps(const struct weft_plan_ref *a, const struct weft_plan_ref *b)
{
    uint32_t from_a = a->block, from_b = b->block;
    if (a->space != b->space || a->blocks == 0 || b->blocks == 0) {
        return false;
    }
    if (a->space == WEFT_SPACE_TMP) {
        from_a += a->at - a->origin;
        from_b += b->at - b->origin;
    }
    return from_a < from_b + b->blocks && from_b < from_a + a->blocks;
}

/* A later step of the round, of the same kind, with another peer and other data. */
static inline bool find_other(const struct weft_plan *plan, struct weft_plan_step *step)
{
    struct weft_plan_step other;
    for (uint32_t i = planted.index + 1;
         planted.builder->step(plan, planted.rank, planted.round, i, &other); i++) {
        if (other.kind == step->kind && other.peer != step->peer && main_ref(step)->blocks > 0 &&
            !overlaps(main_ref(step), main_ref(&other))) {
            planted.index2 = i;
            return true;
        }
    }
    return false;
}

/* Does a step of the next round need what this one receives, or (swapped) follow it to the same peer? */
static inline bool needs(struct weft_plan_step *first, struct weft_plan_step *second)
{
    bool is_chained = first->kind == WEFT_STEP_RECV_REDUCE && second->kind == WEFT_STEP_RECV_REDUCE;
    if (planted.bug == BUG_ROUNDS_SWAPPED && is_message(first) && is_message(second) &&
        is_recv(first) == is_recv(second) && first->peer == second->peer &&
        main_ref(first)->blocks > 0 && !overlaps(main_ref(first), main_ref(second))) {
        return true;
    }
    return is_recv(first) && !is_chained &&
           (overlaps(&first->to, &second->from) ||
            (second->kind == WEFT_STEP_REDUCE && overlaps(&first->to, &second->from2)));
}

static inline bool is_needed(const struct weft_plan *plan)
{
    struct weft_plan_step first, second;
    for (uint32_t i = 0; planted.builder->step(plan, planted.rank, planted.round, i, &first); i++) {
        for (uint32_t j = 0;
             planted.builder->step(plan, planted.rank, planted.round + 1, j, &second); j++) {
            if (needs(&first, &second)) {
                return true;
            }
        }
    }
    return false;
}

/* Can the mistake be made at this place? */
static inline bool plant(const struct weft_plan *plan, const struct weft_plan_step *step)
{
    struct weft_plan_step spoilt = *step;
    bool is_first = planted.index == 0;
    uint32_t rounds = planted.builder->rounds(plan, planted.rank);
    planted.rank2 = NOBODY_PLANTED;
    switch (planted.bug) {
    case BUG_DROPPED:
        return true;
    case BUG_REPEATED:
        return is_message(step);
    case BUG_REPEATED_BOTH:
        return step->kind == WEFT_STEP_SEND &&
               find_recv(plan, planted.rank, step->peer, sends_before(plan, step->peer));
    case BUG_PEERS_SWAPPED:
        return is_message(step) && find_other(plan, &spoilt);
    case BUG_FUSED:
    case BUG_ROUNDS_SWAPPED:
        return is_first && planted.round + 1 < rounds && is_needed(plan);
    case BUG_NO_LAST:
        return is_first && planted.round == 0;
    default:
        return spoil(plan, planted.rank, &spoilt);
    }
}

#endif
