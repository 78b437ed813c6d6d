/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared-memory builders have in common. */
#ifndef WEFT_PLAN_SHM_H
#define WEFT_PLAN_SHM_H

#include "plan/plan.h"

/* Writing a builder as the list of its steps: each take_step() is the next one, true when it is the one
 * that was asked for. */
struct weft_plan_list {
    uint32_t left; /* steps before it */
    struct weft_plan_step *step;
};
static inline bool weft_plan_take(struct weft_plan_list *list, struct weft_plan_step step)
{
    if (list->left > 0) {
        list->left--;
        return false;
    }
    *list->step = step;
    return true;
}
/* Are the next `count` steps all before it? */
static inline bool weft_plan_skip(struct weft_plan_list *list, uint32_t count)
{
    if (list->left < count) {
        return false;
    }
    list->left -= count;
    return true;
}

static inline bool weft_plan_is_vector(const struct weft_plan *plan)
{
    return plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST ||
           plan->coll == WEFT_REDUCE || plan->coll == WEFT_BARRIER;
}
static inline bool weft_plan_has_own_in(const struct weft_plan *plan)
{
    return plan->coll == WEFT_ALLGATHER || plan->coll == WEFT_GATHER;
}
static inline struct weft_plan_ref weft_plan_in(uint8_t space, uint32_t block, uint32_t blocks)
{
    return (struct weft_plan_ref){
        .space = space, .origin = block, .block = block, .blocks = blocks};
}
static inline struct weft_plan_step weft_plan_show(uint32_t value)
{
    return (struct weft_plan_step){.kind = WEFT_STEP_SHOW, .value = value};
}
static inline struct weft_plan_step weft_plan_await(uint32_t peer, uint32_t value)
{
    return (struct weft_plan_step){.kind = WEFT_STEP_AWAIT, .peer = peer, .value = value};
}
static inline struct weft_plan_step weft_plan_copy(struct weft_plan_ref to,
                                                   struct weft_plan_ref from, uint32_t peer)
{
    return (struct weft_plan_step){.kind = WEFT_STEP_COPY, .peer = peer, .to = to, .from = from};
}

extern const struct weft_plan_builder weft_plan_oneshot, weft_plan_staged, weft_plan_mapped;

#endif
