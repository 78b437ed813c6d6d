/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory of one host: a rule, not the model. Which form wins there was measured size by size; it
 * turns on caches and on who holds a core, finer than the model sees. Small: everybody posts its data and
 * reads everybody's (one shot, one round of scheduling). Large: chunks through slots, each rank reduces its
 * slice (staged). When all buffers are shared memory the executor reads them in place of itself.
 */
#include "plan/choose.h"

static const char *const small[] = {"oneshot", "staged", "direct_shm", NULL};
static const char *const large[] = {"staged", "direct_shm", "oneshot", NULL};

const struct weft_plan_builder *weft_choose_shm(const struct weft_plan_facts *facts,
                                                const struct weft_plan_ask *ask, const char **why_p)
{
    const struct weft_plan_calibration *calibration = &facts->calibration;
    double oneshot_max =
        facts->is_far ? calibration->oneshot_max_far : calibration->oneshot_max_near;
    bool is_small = ask->bytes <= oneshot_max || ask->coll == WEFT_BARRIER;
    struct weft_plan plan;

    if (facts->hosts > 1 || facts->inside != WEFT_INSIDE_SHM) {
        return NULL;
    }
    for (const char *const *name = is_small ? small : large; *name != NULL; name++) {
        const struct weft_plan_builder *builder = weft_plan_find(*name);
        if (builder != NULL && (builder->traits & WEFT_PLAN_MAPPED) == 0 &&
            (!ask->is_deterministic || !weft_plan_is_reduction(ask->coll) ||
             (builder->traits & WEFT_PLAN_IN_RANK_ORDER) != 0) &&
            (ask->is_equal || (builder->traits & WEFT_PLAN_EQUAL_ONLY) == 0) &&
            weft_plan_shape(builder, ask->coll, facts->ranks, ask->root, 1, &plan)) {
            *why_p = is_small ? "small enough for one shot" : "too long for one shot";
            return builder;
        }
    }
    return NULL;
}
