/* SPDX-License-Identifier: Apache-2.0 */
/* All builders, by name. */
#include "plan/plan.h"
#include "plan/shm.h"

#include <string.h>

const struct weft_plan_builder *const weft_plan_builders[] = {
    &weft_plan_oneshot,
    &weft_plan_staged,
    &weft_plan_mapped,
    NULL,
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

bool weft_plan_shape(const struct weft_plan_builder *builder, weft_coll_t coll, uint32_t ranks,
                     uint32_t root, uint32_t segments, struct weft_plan *plan_p)
{
    struct weft_plan plan = {.builder = builder,
                             .coll = (uint32_t)coll,
                             .ranks = ranks,
                             .root = root,
                             .segments = segments > 0 ? segments : 1};
    if ((builder->colls & 1u << coll) == 0 || !builder->shape(&plan)) {
        return false;
    }
    *plan_p = plan;
    return true;
}
