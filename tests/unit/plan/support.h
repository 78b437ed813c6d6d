/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of plan: a seeded generator, and walks over all builders and operations. */
#ifndef WEFT_TESTS_PLAN_SUPPORT_H
#define WEFT_TESTS_PLAN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

/* splitmix64 */
static inline uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *seed, uint32_t bound)
{
    return (uint32_t)(next_random(seed) % bound);
}

/* Every builder of messages with every operation it has. */
typedef void (*pair_fn)(const struct weft_plan_builder *builder, weft_coll_t coll);

static inline void for_every_pair(pair_fn fn)
{
    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
            if (((*at)->colls & 1u << coll) != 0 && ((*at)->traits & WEFT_PLAN_SHARED) == 0) {
                fn(*at, (weft_coll_t)coll);
            }
        }
    }
}

static inline bool is_pipelined(const struct weft_plan_builder *builder)
{
    return (builder->traits & WEFT_PLAN_PIPELINED) != 0;
}

static inline bool has_root(weft_coll_t coll)
{
    return coll == WEFT_BROADCAST || coll == WEFT_REDUCE || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER;
}

static inline void expect_right(const struct weft_plan *plan, uint32_t operations, uint64_t seed)
{
    struct weft_plan_verdict verdict;

    weft_plan_verify(plan, operations, seed, &verdict);
    if (!verdict.is_right) {
        fail_msg("root %u, %u segments, seed %llu: %s", plan->root, plan->segments,
                 (unsigned long long)seed, verdict.text);
    }
}

#endif
