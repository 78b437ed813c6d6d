/* SPDX-License-Identifier: Apache-2.0 */
/* All builders, by name; shapes and their hash. */
#include "plan/shm.h"
#include "plan/steps.h"

#include <string.h>

const struct weft_plan_builder *const weft_plan_builders[] = {
    &weft_plan_oneshot,  &weft_plan_staged,        &weft_plan_mapped,
    &weft_plan_ring,     &weft_plan_doubling,      &weft_plan_halving,
    &weft_plan_binomial, &weft_plan_binary,        &weft_plan_double_binary,
    &weft_plan_chain,    &weft_plan_bruck,         &weft_plan_pairwise,
    &weft_plan_spread,   &weft_plan_direct,        &weft_plan_star,
    &weft_plan_linear,   &weft_plan_dissemination, NULL,
};

const struct weft_plan_builder *weft_plan_find(const char *name)
{
    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        if (strcmp((*at)->name, name) == 0) {
            return *at;
        }
    }
    return NULL;
}

static bool has_root(weft_coll_t coll)
{
    return coll == WEFT_BROADCAST || coll == WEFT_REDUCE || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER;
}

bool weft_plan_shape(const struct weft_plan_builder *builder, weft_coll_t coll, uint32_t ranks,
                     uint32_t root, uint32_t segments, struct weft_plan *plan_p)
{
    /* What makes no difference is not part of a shape: one shape, one hash. */
    struct weft_plan plan = {.builder = builder,
                             .coll = (uint32_t)coll,
                             .ranks = ranks,
                             .root = has_root(coll) ? root : 0,
                             .segments = segments > 0 ? segments : 1};
    if ((builder->traits & WEFT_PLAN_PIPELINED) == 0) {
        plan.segments = 1;
    }
    if (ranks == 0 || plan.root >= ranks || (builder->colls & 1u << coll) == 0 ||
        !builder->shape(&plan)) {
        return false;
    }
    *plan_p = plan;
    return true;
}

/* FNV-1a */
static uint64_t add_byte(uint64_t hash, uint8_t byte)
{
    return (hash ^ byte) * UINT64_C(0x100000001b3);
}

static uint64_t add_number(uint64_t hash, uint32_t number)
{
    for (unsigned shift = 0; shift < 32; shift += 8) {
        hash = add_byte(hash, (uint8_t)(number >> shift));
    }
    return hash;
}

uint64_t weft_plan_hash(const struct weft_plan *plan)
{
    const uint32_t numbers[] = {plan->coll,     plan->ranks,     plan->root,  plan->parts,
                                plan->segments, plan->tmp_units, plan->slots, plan->slot_blocks,
                                plan->shows,    plan->radix};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = plan->builder->name; *at != '\0'; at++) {
        hash = add_byte(hash, (uint8_t)*at);
    }
    hash = add_byte(hash, 0);
    for (size_t i = 0; i < WEFT_COUNT_OF(numbers); i++) {
        hash = add_number(hash, numbers[i]);
    }
    return hash;
}
