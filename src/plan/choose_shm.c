/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory of one host: a rule, not the model. Which form wins there was measured size by size; it
 * turns on caches and on who holds a core, finer than the model sees.
 *
 *   what a rank shows the others   plan
 *   up to calibration.oneshot_max  oneshot: everybody posts, everybody takes; one round of scheduling
 *   more                           staged: in chunks of chunk_cached through the slots, each rank reduces its
 *                                  slice; of chunk_past once inputs and outputs of all do not fit the cache
 *
 * Where all buffers lie in memory from weft_alloc() the executor runs the mapped form instead.
 */
#include "plan/choose.h"

#define LINE 64      /* blocks begin at multiples of it */
#define DEPTH_MAX 16 /* segments in the slots at once */
#define OVERLAPPED                                                                                 \
    4 /* segments at least, of CHUNK_MIN at least, so that filling and taking overlap */
#define CHUNK_MIN 65536

static const char *const small[] = {"oneshot", "staged", NULL};
static const char *const large[] = {"staged", "oneshot", NULL};

/* What one rank puts where others read it. */
static double shown_bytes(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask)
{
    bool is_own = ask->coll == WEFT_ALLGATHER || ask->coll == WEFT_GATHER;

    return ask->coll == WEFT_BARRIER ? 0 : is_own ? ask->bytes / facts->ranks : ask->bytes;
}

/* What goes through slots. */
static double slot_bytes(const struct weft_plan_ask *ask)
{
    return ask->widening > 0 ? ask->bytes * ask->widening : ask->bytes;
}

static double whole(double number)
{
    double floor = (double)(uint64_t)number;

    return number > floor ? floor + 1 : floor;
}

static bool fits(const struct weft_plan_facts *facts, const struct weft_plan *plan, double bytes)
{
    double blocks = plan->parts > 0 ? plan->parts : (double)plan->ranks * plan->segments;
    double slots = (double)plan->slots * plan->slot_blocks;

    return slots * LINE * whole(bytes / blocks / LINE) <= facts->slot_room;
}

/* As many segments at once as there is room for: a line is written again only long after it was read. */
static void deepen(const struct weft_plan_facts *facts, double bytes, struct weft_plan *plan_p)
{
    for (uint32_t depth = DEPTH_MAX; depth > plan_p->radix && plan_p->radix != 0; depth--) {
        struct weft_plan plan = *plan_p;
        plan.radix = depth;
        if (plan.builder->shape(&plan) && fits(facts, &plan, bytes)) {
            *plan_p = plan;
            return;
        }
    }
}

/* Who shares a core with others overlaps nothing: there every segment is a round of scheduling. */
static double chunk_of(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask)
{
    const struct weft_plan_calibration *calibration = &facts->calibration;
    double chunk = weft_plan_facts_past_cache(facts, ask->bytes) ? calibration->chunk_past
                                                                 : calibration->chunk_cached;
    double part = shown_bytes(facts, ask) / OVERLAPPED;

    if (weft_plan_facts_oversubscribed(facts) || part > chunk) {
        return chunk;
    }
    return part < CHUNK_MIN ? CHUNK_MIN : part;
}

const char *weft_choose_shm_shape(const struct weft_plan_facts *facts,
                                  const struct weft_plan_ask *ask,
                                  const struct weft_plan_builder *builder, struct weft_plan *plan_p)
{
    double chunks = shown_bytes(facts, ask) / chunk_of(facts, ask);
    uint32_t segments = chunks < 1 ? 1 : chunks > 1e6 ? 1000000 : (uint32_t)whole(chunks);
    bool is_cut = (builder->traits & WEFT_PLAN_PIPELINED) != 0;

    for (;; segments *= 2) {
        if (!weft_plan_shape(builder, ask->coll, facts->ranks, ask->root, is_cut ? segments : 1,
                             plan_p)) {
            return "is not possible for this number of ranks";
        }
        if (fits(facts, plan_p, slot_bytes(ask))) {
            deepen(facts, slot_bytes(ask), plan_p);
            return NULL;
        }
        if (!is_cut || segments > UINT32_MAX / 2 / facts->ranks / 4) {
            return "needs more shared memory than there is";
        }
    }
}

static bool is_allowed(const struct weft_plan_ask *ask, const struct weft_plan_builder *builder)
{
    bool is_ordered = (builder->traits & WEFT_PLAN_IN_RANK_ORDER) != 0;

    return (builder->traits & WEFT_PLAN_MAPPED) == 0 &&
           (is_ordered || !ask->is_deterministic || !weft_plan_is_reduction(ask->coll)) &&
           (ask->is_equal || (builder->traits & WEFT_PLAN_EQUAL_ONLY) == 0);
}

const struct weft_plan_builder *weft_choose_shm(const struct weft_plan_facts *facts,
                                                const struct weft_plan_ask *ask, const char **why_p)
{
    bool is_small = shown_bytes(facts, ask) <= facts->calibration.oneshot_max;
    struct weft_plan plan;

    if (facts->hosts > 1 || facts->inside != WEFT_INSIDE_SHM) {
        return NULL;
    }
    *why_p = is_small ? "short enough to be shown at once" : "too long to be shown at once";
    for (const char *const *name = is_small ? small : large; *name != NULL; name++) {
        const struct weft_plan_builder *builder = weft_plan_find(*name);
        if (builder != NULL && is_allowed(ask, builder) &&
            weft_choose_shm_shape(facts, ask, builder, &plan) == NULL) {
            return builder;
        }
    }
    return NULL;
}
