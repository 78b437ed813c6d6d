/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which plan is taken: a pure function of facts that all ranks share. Every builder that can do the
 * operation is run in the model (sim.c), with as many segments as pay; the fastest is taken. Two things
 * go before: what the user asked for, and the rule for shared memory of one host.
 */
#include "plan/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 400000
#define SEGMENTS_MAX 64
#define SEGMENT_MIN (8.0 * 1024) /* shorter ones cost more than they hide */
#define CLEARLY 0.98             /* more segments have to be worth it */

struct chooser {
    const struct weft_plan_facts *facts;
    const struct weft_plan_ask *ask;
    struct weft_plan_sim *sim;
    struct weft_plan_choice *choice;
    struct weft_plan plan[WEFT_PLAN_OPTIONS]; /* of the options */
};

bool weft_plan_is_reduction(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE_SCATTER || coll == WEFT_REDUCE;
}

uint32_t weft_plan_bucket(double bytes)
{
    uint32_t bucket = 0;
    double low = 1;

    while (low * 2 <= bytes) {
        low *= 2;
        bucket += 4;
    }
    return bytes < 1 ? 0 : 1 + bucket + (uint32_t)((bytes / low - 1) * 4);
}

/* ---- one builder ---- */

static const char *refusal(const struct chooser *chooser, const struct weft_plan_builder *builder)
{
    const struct weft_plan_facts *facts = chooser->facts;
    const struct weft_plan_ask *ask = chooser->ask;
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

/* Predicted time of one shape; < 0: the model cannot say. */
static double predict(const struct chooser *chooser, const struct weft_plan *plan)
{
    struct weft_plan_run run = {.bytes = chooser->ask->bytes, .steps_max = STEPS_MAX};
    struct weft_plan_cost cost;

    if (weft_plan_sim_run(chooser->sim, chooser->facts, plan, &run, &cost) != WEFT_RUN_DONE) {
        return -1;
    }
    return cost.time_s;
}

static double block_bytes(const struct chooser *chooser, const struct weft_plan *plan)
{
    double blocks = plan->parts > 0 ? plan->parts : (double)plan->ranks * plan->segments;

    return chooser->ask->bytes / blocks;
}

/* Doubles the segments for as long as that is faster. */
static void try_builder(const struct chooser *chooser, const struct weft_plan_builder *builder,
                        struct weft_plan *plan_p, struct weft_plan_option *option_p)
{
    const struct weft_plan_ask *ask = chooser->ask;
    uint32_t most = (builder->traits & WEFT_PLAN_PIPELINED) != 0 ? SEGMENTS_MAX : 1;
    unsigned worse = 0;

    *option_p = (struct weft_plan_option){.name = builder->name, .time_s = -1};
    option_p->why_not = refusal(chooser, builder);
    if (option_p->why_not != NULL) {
        return;
    }
    option_p->why_not = "is not possible for this number of ranks";
    for (uint32_t segments = 1; segments <= most && worse < 2; segments *= 2) {
        struct weft_plan plan;
        if (!weft_plan_shape(builder, ask->coll, chooser->facts->ranks, ask->root, segments,
                             &plan) ||
            (segments > 1 && block_bytes(chooser, &plan) < SEGMENT_MIN)) {
            break;
        }
        double seconds = predict(chooser, &plan);
        if (seconds < 0) {
            option_p->why_not = option_p->time_s < 0 ? "is too long to be predicted" : NULL;
            break;
        }
        if (option_p->time_s < 0 || seconds < option_p->time_s * CLEARLY) {
            *option_p = (struct weft_plan_option){builder->name, segments, seconds, NULL};
            *plan_p = plan;
            worse = 0;
        } else {
            worse++;
        }
    }
}

static void try_hierarchical(const struct chooser *chooser, struct weft_plan *plan_p,
                             struct weft_plan_option *option_p)
{
    *option_p = (struct weft_plan_option){.name = weft_plan_hierarchical.name, .time_s = -1};
    option_p->why_not = refusal(chooser, &weft_plan_hierarchical);
    if (option_p->why_not == NULL) {
        option_p->time_s =
            weft_choose_hierarchical_s(chooser->facts, chooser->ask, &option_p->why_not);
        option_p->segments = 1;
    }
    *plan_p = (struct weft_plan){.builder = &weft_plan_hierarchical,
                                 .coll = (uint32_t)chooser->ask->coll,
                                 .ranks = chooser->facts->ranks,
                                 .root = chooser->ask->root,
                                 .parts = 1,
                                 .segments = 1,
                                 .radix = chooser->facts->host_ranks};
}

/* ---- all of them ---- */

/* Before: possible before refused, the faster first; equal ones keep their order. */
static bool is_better(const struct weft_plan_option *a, const struct weft_plan_option *b)
{
    return b->time_s < 0 ? a->time_s >= 0 : a->time_s >= 0 && a->time_s < b->time_s;
}

static void insert(struct chooser *chooser, const struct weft_plan_option *option,
                   const struct weft_plan *plan)
{
    struct weft_plan_choice *choice = chooser->choice;
    uint32_t at = choice->count;

    if (at == WEFT_PLAN_OPTIONS) {
        return;
    }
    choice->count++;
    for (; at > 0 && is_better(option, &choice->option[at - 1]); at--) {
        choice->option[at] = choice->option[at - 1];
        chooser->plan[at] = chooser->plan[at - 1];
    }
    choice->option[at] = *option;
    chooser->plan[at] = *plan;
}

static void try_all(struct chooser *chooser)
{
    struct weft_plan_option option;
    struct weft_plan plan;

    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        if (((*at)->colls & 1u << chooser->ask->coll) != 0) {
            memset(&plan, 0, sizeof(plan));
            try_builder(chooser, *at, &plan, &option);
            insert(chooser, &option, &plan);
        }
    }
    if (chooser->facts->hosts > 1 && chooser->facts->host_ranks > 1 &&
        (weft_plan_hierarchical.colls & 1u << chooser->ask->coll) != 0) {
        try_hierarchical(chooser, &plan, &option);
        insert(chooser, &option, &plan);
    }
}

static void move_to_front(struct chooser *chooser, uint32_t at)
{
    struct weft_plan_option option = chooser->choice->option[at];
    struct weft_plan plan = chooser->plan[at];

    for (; at > 0; at--) {
        chooser->choice->option[at] = chooser->choice->option[at - 1];
        chooser->plan[at] = chooser->plan[at - 1];
    }
    chooser->choice->option[0] = option;
    chooser->plan[0] = plan;
}

/* Its place among the options; count: it is not there. */
static uint32_t find(const struct chooser *chooser, const char *name)
{
    uint32_t at = 0;

    while (at < chooser->choice->count && strcmp(chooser->choice->option[at].name, name) != 0) {
        at++;
    }
    return at;
}

/* ---- what decides ---- */

static weft_status_t refuse(const struct chooser *chooser, const char *name, const char *why)
{
    const struct weft_plan_choice *choice = chooser->choice;
    char can[256] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < choice->count && used < sizeof(can); i++) {
        if (choice->option[i].time_s >= 0) {
            used += (size_t)snprintf(can + used, sizeof(can) - used, "%s%s", used > 0 ? ", " : "",
                                     choice->option[i].name);
        }
    }
    return weft_fail(WEFT_ERR_UNSUPPORTED, "%s with %u ranks: %s %s; possible: %s",
                     weft_coll_name(chooser->ask->coll), chooser->facts->ranks, name, why,
                     used > 0 ? can : "none");
}

static weft_status_t take_named(struct chooser *chooser, const char *name)
{
    uint32_t at = find(chooser, name);
    const struct weft_plan_option *option = &chooser->choice->option[at];

    if (at == chooser->choice->count) {
        return refuse(chooser, name, "does not do this operation here");
    }
    if (option->time_s < 0) {
        return refuse(chooser, name, option->why_not);
    }
    move_to_front(chooser, at);
    snprintf(chooser->choice->reason, sizeof(chooser->choice->reason), "%s was asked for by name",
             name);
    return WEFT_OK;
}

static void take_fastest(struct chooser *chooser)
{
    struct weft_plan_choice *choice = chooser->choice;
    const struct weft_plan_option *first = &choice->option[0], *second = first + 1;
    uint32_t possible = 0;

    while (possible < choice->count && choice->option[possible].time_s >= 0) {
        possible++;
    }
    if (possible == 1) {
        snprintf(choice->reason, sizeof(choice->reason), "%s is the only one possible",
                 first->name);
    } else {
        double times = first->time_s > 0 ? second->time_s / first->time_s : 1;
        snprintf(choice->reason, sizeof(choice->reason),
                 "%s is the fastest of %u in the model, %.2fx ahead of %s", first->name, possible,
                 times, second->name);
    }
}

static weft_status_t decide(struct chooser *chooser)
{
    const struct weft_plan_ask *ask = chooser->ask;
    char name[WEFT_PLAN_NAME_LEN];
    const char *why = "";
    weft_status_t status = weft_plan_algo_of(ask->algo != NULL ? ask->algo : "", ask->coll, name);

    if (status != WEFT_OK) {
        return status;
    }
    try_all(chooser);
    /* a bare name is for the operations that it can do */
    if (name[0] != '\0' && (find(chooser, name) < chooser->choice->count ||
                            weft_choose_is_meant(ask->algo, ask->coll))) {
        return take_named(chooser, name);
    }
    if (chooser->choice->count == 0 || chooser->choice->option[0].time_s < 0) {
        return refuse(chooser, "every algorithm", "is refused");
    }
    const struct weft_plan_builder *rule = weft_choose_shm(chooser->facts, ask, &why);
    uint32_t at = rule != NULL ? find(chooser, rule->name) : chooser->choice->count;
    if (at < chooser->choice->count && chooser->choice->option[at].time_s >= 0) {
        move_to_front(chooser, at);
        snprintf(chooser->choice->reason, sizeof(chooser->choice->reason),
                 "%s is the rule for shared memory of one host: %s", rule->name, why);
        return WEFT_OK;
    }
    take_fastest(chooser);
    return WEFT_OK;
}

weft_status_t weft_plan_choose(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask,
                               struct weft_plan *plan_p, struct weft_plan_choice *why_p)
{
    struct {
        struct chooser chooser;
        struct weft_plan_choice choice;
    } *room = calloc(1, sizeof(*room));
    weft_status_t status = WEFT_ERR_MEMORY;

    if (room == NULL) {
        return weft_fail(status, "no memory to choose a plan in");
    }
    room->chooser.facts = facts;
    room->chooser.ask = ask;
    room->chooser.choice = &room->choice;
    room->chooser.sim = weft_plan_sim_open();
    if (room->chooser.sim == NULL) {
        status = weft_fail(WEFT_ERR_MEMORY, "no memory to choose a plan in");
        goto err_free;
    }
    status = decide(&room->chooser);
    if (status == WEFT_OK) {
        *plan_p = room->chooser.plan[0];
        if (why_p != NULL) {
            *why_p = room->choice;
        }
    }
    weft_plan_sim_close(room->chooser.sim);
err_free:
    free(room);
    return status;
}
