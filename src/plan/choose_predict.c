/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a plan takes, without running more than is worth it. A pipeline of many segments is run with few of
 * the same length: then every further one takes equally long. A job of very many ranks is run with
 * fewer hosts, three sizes of them, with blocks of the same length: each doubling of the hosts adds a part
 * that stays and a part that doubles.
 */
#include "plan/choose.h"

#define STEPS_MAX UINT64_C(12000)
#define SEGMENTS_RUN 12
#define HALVINGS_MAX 24
#define RANKS_LOOKED_AT 5
#define ROUNDS_LOOKED_AT 4

struct prediction {
    struct weft_plan_sim *sim;
    const struct weft_plan_facts *facts;
    const struct weft_plan *plan;
    double bytes, limit_s;
};

static double run_one(const struct prediction *it, const struct weft_plan *plan, double bytes,
                      double limit_s)
{
    struct weft_plan_run run = {
        .bytes = bytes, .whole = it->bytes, .steps_max = STEPS_MAX * 4, .time_max_s = limit_s};
    struct weft_plan_cost cost;

    switch (weft_plan_sim_run(it->sim, it->facts, plan, &run, &cost)) {
    case WEFT_RUN_DONE:
        return cost.time_s;
    case WEFT_RUN_SLOWER:
        return WEFT_CHOOSE_SLOWER;
    default:
        return WEFT_CHOOSE_UNKNOWN;
    }
}

/* A plan of the same kind with other numbers. */
static bool reshape(const struct weft_plan *plan, uint32_t ranks, uint32_t segments,
                    struct weft_plan *plan_p)
{
    uint32_t root = plan->root < ranks ? plan->root : 0;

    return weft_plan_shape(plan->builder, (weft_coll_t)plan->coll, ranks, root, segments, plan_p);
}

static double predict_pipeline(const struct prediction *it)
{
    const struct weft_plan *plan = it->plan;
    struct weft_plan few, fewer;
    double segment = it->bytes / plan->segments, t1, t2;

    if (!reshape(plan, plan->ranks, SEGMENTS_RUN, &few) ||
        !reshape(plan, plan->ranks, SEGMENTS_RUN / 2, &fewer) || few.segments != SEGMENTS_RUN ||
        fewer.segments != SEGMENTS_RUN / 2) {
        return run_one(it, plan, it->bytes, it->limit_s);
    }
    t2 = run_one(it, &few, segment * few.segments, it->limit_s);
    if (t2 < 0) {
        return t2;
    }
    t1 = run_one(it, &fewer, segment * fewer.segments, 0);
    double each = (t2 - t1) / (few.segments - fewer.segments);
    return t1 < 0 ? t1 : t2 + each * (plan->segments - few.segments);
}

static double predict_some(const struct prediction *it)
{
    return it->plan->segments > SEGMENTS_RUN ? predict_pipeline(it)
                                             : run_one(it, it->plan, it->bytes, it->limit_s);
}

/* ---- many ranks ---- */

/* Steps of a round, found by doubling and halving: a round may have as many as there are ranks. */
static double steps_of(const struct weft_plan *plan, uint32_t rank, uint32_t round)
{
    struct weft_plan_step step;
    uint32_t low = 0, high = 1; /* below low there are some, from high on none */

    while (plan->builder->step(plan, rank, round, high - 1, &step)) {
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        *(plan->builder->step(plan, rank, round, middle - 1, &step) ? &low : &high) = middle;
    }
    return low + 1;
}

/* All rounds of a rank; the first and the last are often of their own kind. */
static double rank_steps(const struct weft_plan *plan, uint32_t rank)
{
    uint32_t rounds = plan->builder->rounds(plan, rank);
    double sum = 0;

    if (rounds <= ROUNDS_LOOKED_AT) {
        for (uint32_t round = 0; round < rounds; round++) {
            sum += steps_of(plan, rank, round);
        }
        return sum;
    }
    sum = steps_of(plan, rank, rounds / 3) + steps_of(plan, rank, rounds - 1 - rounds / 3);
    return steps_of(plan, rank, 0) + steps_of(plan, rank, rounds - 1) + sum / 2 * (rounds - 2);
}

/* About how many steps a run has, from some ranks. */
static double count_steps(const struct prediction *it)
{
    uint32_t classes = weft_sim_classes(it->facts, weft_sim_symmetry(it->plan));
    struct weft_plan few = *it->plan;
    double sum = 0;

    if (it->plan->segments > SEGMENTS_RUN) { /* it is not run in full either */
        reshape(it->plan, it->plan->ranks, SEGMENTS_RUN, &few);
    }
    for (uint32_t i = 0; i < RANKS_LOOKED_AT; i++) {
        uint32_t rank = (uint32_t)((uint64_t)(few.ranks - 1) * i / (RANKS_LOOKED_AT - 1));
        sum += rank_steps(&few, rank);
    }
    return sum / RANKS_LOOKED_AT * 2 * classes;
}

/* The same with hosts / 2^halvings hosts. */
struct smaller {
    struct weft_plan_facts facts;
    struct weft_plan plan;
    struct prediction it;
};

/* Pieces, and the parts of a vector where there is one for each rank, stay as long as they are. */
static double smaller_bytes(const struct prediction *it, const struct weft_plan *plan)
{
    bool has_all = it->plan->parts == 0 || (uint64_t)it->plan->parts * plan->ranks ==
                                               (uint64_t)plan->parts * it->plan->ranks;

    return has_all ? it->bytes * plan->ranks / it->plan->ranks : it->bytes;
}

static bool make_smaller(const struct prediction *it, uint32_t halvings, struct smaller *smaller_p)
{
    const struct weft_plan_facts *facts = it->facts;
    bool is_one = facts->hosts == 1;
    uint32_t count = (is_one ? facts->ranks : facts->hosts) >> halvings;

    smaller_p->facts = *facts;
    if (facts->host_of != NULL || count < 2) {
        return false;
    }
    smaller_p->facts.hosts = is_one ? 1 : count;
    smaller_p->facts.host_ranks = is_one ? count : facts->host_ranks;
    smaller_p->facts.ranks = smaller_p->facts.hosts * smaller_p->facts.host_ranks;
    if (!reshape(it->plan, smaller_p->facts.ranks, it->plan->segments, &smaller_p->plan)) {
        return false;
    }
    smaller_p->it = *it;
    smaller_p->it.facts = &smaller_p->facts;
    smaller_p->it.plan = &smaller_p->plan;
    smaller_p->it.bytes = smaller_bytes(it, &smaller_p->plan);
    return true;
}

static double predict_smaller(const struct prediction *it, uint32_t halvings)
{
    struct smaller smaller;

    return make_smaller(it, halvings, &smaller) ? predict_some(&smaller.it) : WEFT_CHOOSE_UNKNOWN;
}

/* How often the hosts have to be halved before it is short enough. */
static uint32_t count_halvings(const struct prediction *it)
{
    struct smaller smaller;
    uint32_t halvings = 0;

    if (count_steps(it) <= (double)STEPS_MAX) {
        return 0;
    }
    do {
        halvings++;
    } while (halvings < HALVINGS_MAX && make_smaller(it, halvings, &smaller) &&
             count_steps(&smaller.it) > (double)STEPS_MAX);
    return halvings;
}

double weft_choose_predict(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                           const struct weft_plan *plan, double bytes, double limit_s)
{
    struct prediction it = {sim, facts, plan, bytes, limit_s};
    uint32_t halvings = count_halvings(&it);
    double t0 = halvings == 0 ? predict_some(&it) : predict_smaller(&it, halvings), t1, t2;

    if (t0 < 0 || halvings == 0) {
        return t0;
    }
    it.limit_s = 0;
    t1 = predict_smaller(&it, halvings + 1);
    t2 = predict_smaller(&it, halvings + 2);
    if (t1 < 0 || t2 < 0) {
        return WEFT_CHOOSE_UNKNOWN;
    }
    /* T = a + stays · i + doubles · 2^i for 2^i hosts, through three points */
    double now = t0 - t1, before = t1 - t2;
    double doubles = now > before ? 4 * (now - before) : 0;
    double stays = doubles > 0 ? 2 * before - now : now;
    return t0 + (stays > 0 ? stays : 0) * halvings + doubles * (double)((1u << halvings) - 1);
}
