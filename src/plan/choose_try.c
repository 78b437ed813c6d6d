/* SPDX-License-Identifier: Apache-2.0 */
/* One builder for one operation: may it, in which shape, and how long would it take. */
#include "plan/choose.h"

#define SEGMENTS_MAX 64
#define SEGMENT_MIN (8.0 * 1024) /* shorter ones cost more than they hide */
#define CLEARLY 0.98             /* more segments have to be worth it */

bool weft_plan_is_reduction(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE_SCATTER || coll == WEFT_REDUCE;
}

const char *weft_choose_refusal(const struct weft_plan_facts *facts,
                                const struct weft_plan_ask *ask,
                                const struct weft_plan_builder *builder)
{
    uint32_t traits = builder->traits;

    if ((builder->colls & 1u << ask->coll) == 0) {
        return "does not do this operation";
    }
    if (ask->is_deterministic && weft_plan_is_reduction(ask->coll) &&
        (traits & WEFT_PLAN_IN_RANK_ORDER) == 0) {
        return "does not add in rank order, as deterministic mode demands";
    }
    if ((traits & (WEFT_PLAN_SHARED | WEFT_PLAN_MAPPED)) != 0 &&
        (facts->hosts > 1 || facts->inside != WEFT_INSIDE_SHM)) {
        return "needs all ranks on one host, with shared memory";
    }
    if ((traits & WEFT_PLAN_MAPPED) != 0) {
        return "is taken by itself where all buffers are from weft_alloc()";
    }
    if (!ask->is_equal && (traits & WEFT_PLAN_EQUAL_ONLY) != 0) {
        return "needs pieces of one size";
    }
    return NULL;
}

static double block_bytes(const struct weft_choose *choose, const struct weft_plan *plan)
{
    double blocks = plan->parts > 0 ? plan->parts : (double)plan->ranks * plan->segments;

    return choose->ask->bytes / blocks;
}

/* In one segment. NULL, or why it is not possible. */
static const char *shape_messages(const struct weft_choose *choose,
                                  const struct weft_plan_builder *builder, struct weft_plan *plan_p,
                                  double *time_s_p)
{
    const struct weft_plan_ask *ask = choose->ask;

    if (!weft_plan_shape(builder, ask->coll, choose->facts->ranks, ask->root, 1, plan_p)) {
        return "is not possible for this number of ranks";
    }
    *time_s_p =
        weft_choose_predict(choose->sim, choose->facts, plan_p, ask->bytes, choose->limit_s);
    return NULL;
}

/* Doubles the segments for as long as that is faster; gives up on what stays slower than the limit. */
void weft_choose_refine(const struct weft_choose *choose, struct weft_plan *plan,
                        struct weft_plan_option *option)
{
    const struct weft_plan_builder *builder = plan->builder;
    const struct weft_plan_ask *ask = choose->ask;
    unsigned worse = 0;

    if ((builder->traits & WEFT_PLAN_PIPELINED) == 0 || (builder->traits & WEFT_PLAN_SHARED) != 0) {
        return;
    }
    for (uint32_t segments = 2; segments <= SEGMENTS_MAX; segments *= 2) {
        double limit_s = choose->limit_s, seconds;
        bool is_near = option->time_s >= 0 && (limit_s <= 0 || option->time_s * CLEARLY <= limit_s);
        struct weft_plan more;
        limit_s = is_near ? option->time_s * CLEARLY : limit_s;
        if (!weft_plan_shape(builder, ask->coll, choose->facts->ranks, ask->root, segments,
                             &more) ||
            block_bytes(choose, &more) < SEGMENT_MIN) {
            return;
        }
        seconds = weft_choose_predict(choose->sim, choose->facts, &more, ask->bytes, limit_s);
        if (seconds >= 0 && (seconds < limit_s || limit_s <= 0)) {
            option->time_s = seconds;
            option->segments = segments;
            *plan = more;
            worse = 0;
        } else if (++worse >= (is_near ? 2 : 3)) {
            return;
        }
    }
}

static const char *shape_slots(const struct weft_choose *choose,
                               const struct weft_plan_builder *builder, struct weft_plan *plan_p,
                               double *time_s_p)
{
    const char *why_not = weft_choose_shm_shape(choose->facts, choose->ask, builder, plan_p);

    if (why_not == NULL && choose->is_timed) {
        *time_s_p = weft_choose_predict(choose->sim, choose->facts, plan_p, choose->ask->bytes,
                                        choose->limit_s);
    }
    return why_not;
}

static const char *shape_hierarchical(const struct weft_choose *choose, struct weft_plan *plan_p,
                                      double *time_s_p)
{
    const char *why_not;

    *plan_p = (struct weft_plan){.builder = &weft_plan_hierarchical,
                                 .coll = (uint32_t)choose->ask->coll,
                                 .ranks = choose->facts->ranks,
                                 .root = choose->ask->root,
                                 .parts = 1,
                                 .segments = 1,
                                 .radix = choose->facts->host_ranks};
    *time_s_p = weft_choose_hierarchical_s(choose->facts, choose->ask, &why_not);
    return why_not;
}

void weft_choose_try(const struct weft_choose *choose, const struct weft_plan_builder *builder,
                     struct weft_plan *plan_p, struct weft_plan_option *option_p)
{
    double *time_s_p = &option_p->time_s;

    *option_p = (struct weft_plan_option){.name = builder->name, .time_s = WEFT_CHOOSE_UNKNOWN};
    option_p->why_not = weft_choose_refusal(choose->facts, choose->ask, builder);
    if (option_p->why_not != NULL) {
        return;
    }
    option_p->why_not = builder == &weft_plan_hierarchical
                            ? shape_hierarchical(choose, plan_p, time_s_p)
                        : (builder->traits & WEFT_PLAN_SHARED) != 0
                            ? shape_slots(choose, builder, plan_p, time_s_p)
                            : shape_messages(choose, builder, plan_p, time_s_p);
    option_p->segments = plan_p->segments;
}
