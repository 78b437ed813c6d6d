/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest plans of each kind, written out here so that the model is tested against sums by hand. */
#ifndef TOY_PLANS_H
#define TOY_PLANS_H

#include "plan/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct weft_plan_ref toy_blocks(uint8_t space, uint32_t block, uint32_t blocks)
{
    return (struct weft_plan_ref){.space = space, .block = block, .blocks = blocks};
}

/* ---- ring allgather: every rank passes on what it got ---- */

static bool toy_ring_shape(struct weft_plan *plan)
{
    return plan->ranks >= 1;
}
static uint32_t toy_ring_rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)rank;
    return plan->ranks - 1;
}
static bool toy_ring_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                          uint32_t index, struct weft_plan_step *step_p)
{
    uint32_t n = plan->ranks, b = plan->segments;
    uint32_t send = (rank + n - round % n) % n, recv = (send + n - 1) % n;
    *step_p = (struct weft_plan_step){.kind = index == 0 ? WEFT_STEP_SEND : WEFT_STEP_RECV,
                                      .peer = index == 0 ? (rank + 1) % n : (rank + n - 1) % n};
    if (index == 0) {
        step_p->from = toy_blocks(WEFT_SPACE_OUT, send * b, b);
    } else {
        step_p->to = toy_blocks(WEFT_SPACE_OUT, recv * b, b);
    }
    return index < 2;
}
static const struct weft_plan_builder toy_ring = {
    .name = "toy_ring",
    .colls = 1u << WEFT_ALLGATHER,
    .shape = toy_ring_shape,
    .rounds = toy_ring_rounds,
    .step = toy_ring_step,
};

/* ---- chain broadcast: rank r to r + 1, in `segments` blocks ---- */

static bool toy_chain_shape(struct weft_plan *plan)
{
    plan->parts = plan->segments;
    return true;
}
static uint32_t toy_chain_rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)rank;
    return plan->parts + 1;
}
/* round i: send block i - 1, receive block i */
static bool toy_chain_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                           uint32_t index, struct weft_plan_step *step_p)
{
    bool sends = round > 0 && rank + 1 < plan->ranks, receives = round < plan->parts && rank > 0;

    if (sends && index == 0) {
        *step_p = (struct weft_plan_step){.kind = WEFT_STEP_SEND,
                                          .peer = rank + 1,
                                          .from = toy_blocks(WEFT_SPACE_OUT, round - 1, 1)};
        return true;
    }
    if (receives && index == (sends ? 1u : 0u)) {
        *step_p = (struct weft_plan_step){
            .kind = WEFT_STEP_RECV, .peer = rank - 1, .to = toy_blocks(WEFT_SPACE_OUT, round, 1)};
        return true;
    }
    return false;
}
static const struct weft_plan_builder toy_chain = {
    .name = "toy_chain",
    .colls = 1u << WEFT_BROADCAST,
    .traits = WEFT_PLAN_PIPELINED,
    .shape = toy_chain_shape,
    .rounds = toy_chain_rounds,
    .step = toy_chain_step,
};

/* ---- recursive doubling allreduce, 2^k ranks ---- */

static bool toy_doubling_shape(struct weft_plan *plan)
{
    plan->parts = 1;
    plan->tmp_units = 1;
    return (plan->ranks & (plan->ranks - 1)) == 0;
}
static uint32_t toy_doubling_rounds(const struct weft_plan *plan, uint32_t rank)
{
    uint32_t rounds = 0;
    (void)rank;
    while ((1u << rounds) < plan->ranks) {
        rounds++;
    }
    return rounds;
}
static bool toy_doubling_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                              uint32_t index, struct weft_plan_step *step_p)
{
    (void)plan;
    *step_p = (struct weft_plan_step){.kind = index == 0 ? WEFT_STEP_SEND : WEFT_STEP_RECV_REDUCE,
                                      .peer = rank ^ 1u << round};
    if (index == 0) {
        step_p->from = toy_blocks(WEFT_SPACE_OUT, 0, 1);
    } else {
        step_p->to = toy_blocks(WEFT_SPACE_OUT, 0, 1);
    }
    return index < 2;
}
static const struct weft_plan_builder toy_doubling = {
    .name = "toy_doubling",
    .colls = 1u << WEFT_ALLREDUCE,
    .shape = toy_doubling_shape,
    .rounds = toy_doubling_rounds,
    .step = toy_doubling_step,
};

/* ---- star allreduce: rank 0 takes all and gives back ---- */

static bool toy_star_shape(struct weft_plan *plan)
{
    plan->parts = 1;
    return true;
}
static uint32_t toy_star_rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan;
    (void)rank;
    return 2;
}
static bool toy_star_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                          uint32_t index, struct weft_plan_step *step_p)
{
    struct weft_plan_ref all = toy_blocks(WEFT_SPACE_OUT, 0, 1);
    bool receives = (rank == 0) == (round == 0);

    *step_p = (struct weft_plan_step){.kind = !receives    ? WEFT_STEP_SEND
                                              : round == 0 ? WEFT_STEP_RECV_REDUCE
                                                           : WEFT_STEP_RECV,
                                      .peer = rank == 0 ? index + 1 : 0};
    if (receives) {
        step_p->to = all;
    } else {
        step_p->from = all;
    }
    return index < (rank == 0 ? plan->ranks - 1 : 1);
}
static const struct weft_plan_builder toy_star = {
    .name = "toy_star",
    .colls = 1u << WEFT_ALLREDUCE,
    .traits = WEFT_PLAN_IN_RANK_ORDER,
    .shape = toy_star_shape,
    .rounds = toy_star_rounds,
    .step = toy_star_step,
};

/* ---- shared memory: post, show, await all, reduce all ---- */

static bool toy_slots_shape(struct weft_plan *plan)
{
    plan->parts = 1;
    plan->slots = 1;
    plan->slot_blocks = 1;
    plan->shows = 1;
    return true;
}
static uint32_t toy_slots_rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan;
    (void)rank;
    return 1;
}
static bool toy_slots_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                           uint32_t index, struct weft_plan_step *step_p)
{
    static const uint8_t kinds[] = {WEFT_STEP_COPY, WEFT_STEP_SHOW, WEFT_STEP_AWAIT,
                                    WEFT_STEP_REDUCE};
    (void)rank;
    (void)round;
    if (index >= WEFT_COUNT_OF(kinds)) {
        return false;
    }
    *step_p = (struct weft_plan_step){.kind = kinds[index],
                                      .peer = WEFT_PLAN_ALL,
                                      .value = 1,
                                      .sources = plan->ranks,
                                      .self = plan->ranks};
    if (step_p->kind == WEFT_STEP_COPY) {
        step_p->from = toy_blocks(WEFT_SPACE_IN, 0, 1);
        step_p->to = toy_blocks(WEFT_SPACE_SLOT, 0, 1);
    } else if (step_p->kind == WEFT_STEP_REDUCE) {
        step_p->from = toy_blocks(WEFT_SPACE_SLOT, 0, 1);
        step_p->to = toy_blocks(WEFT_SPACE_OUT, 0, 1);
    }
    return true;
}
static const struct weft_plan_builder toy_slots = {
    .name = "toy_slots",
    .colls = 1u << WEFT_ALLREDUCE,
    .traits = WEFT_PLAN_SHARED | WEFT_PLAN_IN_RANK_ORDER,
    .shape = toy_slots_shape,
    .rounds = toy_slots_rounds,
    .step = toy_slots_step,
};

#endif
