/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a plan takes, without running more than is worth it. A pipeline of many segments is run with few of
 * the same length: then every further one takes equally long. A job of very many ranks is run with
 * fewer hosts, three sizes of them: each doubling of the hosts adds as much as the one before, or twice as
 * much when time grows with the number of ranks.
 */
#include "plan/choose.h"

#define STEPS_MAX 300000
#define SEGMENTS_RUN 24
#define HALVINGS_MAX 24

static double run_one(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                      const struct weft_plan *plan, double bytes, double whole)
{
    struct weft_plan_run run = {.bytes = bytes, .whole = whole, .steps_max = STEPS_MAX};
    struct weft_plan_cost cost;

    return weft_plan_sim_run(sim, facts, plan, &run, &cost) == WEFT_RUN_DONE ? cost.time_s : -1;
}

/* A plan of the same kind with other numbers. */
static bool reshape(const struct weft_plan *plan, uint32_t ranks, uint32_t segments,
                    struct weft_plan *plan_p)
{
    uint32_t root = plan->root < ranks ? plan->root : 0;

    return weft_plan_shape(plan->builder, (weft_coll_t)plan->coll, ranks, root, segments, plan_p);
}

static double predict_pipeline(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                               const struct weft_plan *plan, double bytes)
{
    struct weft_plan few, fewer;
    double segment = bytes / plan->segments;

    if (!reshape(plan, plan->ranks, SEGMENTS_RUN, &few) ||
        !reshape(plan, plan->ranks, SEGMENTS_RUN / 2, &fewer) || few.segments != SEGMENTS_RUN ||
        fewer.segments != SEGMENTS_RUN / 2) {
        return run_one(sim, facts, plan, bytes, bytes);
    }
    double t2 = run_one(sim, facts, &few, segment * few.segments, bytes);
    double t1 = run_one(sim, facts, &fewer, segment * fewer.segments, bytes);
    double each = (t2 - t1) / (few.segments - fewer.segments);
    return t1 < 0 || t2 < 0 ? -1 : t2 + each * (plan->segments - few.segments);
}

static double predict_some(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                           const struct weft_plan *plan, double bytes)
{
    return plan->segments > SEGMENTS_RUN ? predict_pipeline(sim, facts, plan, bytes)
                                         : run_one(sim, facts, plan, bytes, bytes);
}

/* With hosts / 2^halvings hosts. What each rank has stays: the pieces get fewer. */
static double predict_fewer(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                            const struct weft_plan *plan, double bytes, uint32_t halvings)
{
    struct weft_plan_facts part = *facts;
    struct weft_plan smaller;
    bool is_one = facts->hosts == 1;
    bool is_vector =
        plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST || plan->coll == WEFT_REDUCE;
    uint32_t all = is_one ? facts->ranks : facts->hosts, count = all >> halvings;

    if (facts->host_of != NULL || count < 2) {
        return -1;
    }
    part.ranks = is_one ? count : count * facts->host_ranks;
    part.hosts = is_one ? 1 : count;
    part.host_ranks = is_one ? count : facts->host_ranks;
    if (!reshape(plan, part.ranks, plan->segments, &smaller)) {
        return -1;
    }
    return predict_some(sim, &part, &smaller,
                        is_vector ? bytes : bytes * part.ranks / facts->ranks);
}

double weft_choose_predict(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                           const struct weft_plan *plan, double bytes)
{
    double t0 = predict_some(sim, facts, plan, bytes), t1, t2;
    uint32_t halvings = 0;

    while (t0 < 0 && halvings < HALVINGS_MAX) {
        t0 = predict_fewer(sim, facts, plan, bytes, ++halvings);
    }
    if (t0 < 0 || halvings == 0) {
        return t0;
    }
    t1 = predict_fewer(sim, facts, plan, bytes, halvings + 1);
    t2 = predict_fewer(sim, facts, plan, bytes, halvings + 2);
    if (t1 < 0 || t2 < 0) {
        return -1;
    }
    bool is_linear = t0 - t1 > 1.5 * (t1 - t2);
    double doublings = is_linear ? (double)((1u << halvings) - 1) : halvings;
    return t0 + (is_linear ? 2 : 1) * (t0 - t1) * doublings;
}
