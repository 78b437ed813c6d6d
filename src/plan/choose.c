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

#define SEGMENTS_MAX 64
#define SEGMENT_MIN (8.0 * 1024) /* shorter ones cost more than they hide */
#define CLEARLY 0.98             /* more segments have to be worth it */

struct chooser {
    const struct weft_plan_facts *facts;
    const struct weft_plan_ask *ask;
    bool is_explained; /* all are predicted, also where that does not decide */
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

static double block_bytes(const struct chooser *chooser, const struct weft_plan *plan)
{
    double blocks = plan->parts > 0 ? plan->parts : (double)plan->ranks * plan->segments;

    return chooser->ask->bytes / blocks;
}

/* Doubles the segments for as long as that is faster. NULL, or why it is not possible. */
static const char *shape_messages(const struct chooser *chooser,
                                  const struct weft_plan_builder *builder, struct weft_plan *plan_p,
                                  double *time_s_p)
{
    const struct weft_plan_ask *ask = chooser->ask;
    uint32_t most = (builder->traits & WEFT_PLAN_PIPELINED) != 0 ? SEGMENTS_MAX : 1;
    unsigned worse = 0;

    for (uint32_t segments = 1; segments <= most && worse < 2; segments *= 2) {
        struct weft_plan plan;
        if (!weft_plan_shape(builder, ask->coll, chooser->facts->ranks, ask->root, segments,
                             &plan) ||
            (segments > 1 && block_bytes(chooser, &plan) < SEGMENT_MIN)) {
            return segments > 1 ? NULL : "is not possible for this number of ranks";
        }
        double seconds = weft_choose_predict(chooser->sim, chooser->facts, &plan, ask->bytes);
        if (segments == 1 || (seconds >= 0 && seconds < *time_s_p * CLEARLY)) {
            *time_s_p = seconds;
            *plan_p = plan;
            worse = 0;
        } else {
            worse++;
        }
    }
    return NULL;
}

static const char *shape_slots(const struct chooser *chooser,
                               const struct weft_plan_builder *builder, struct weft_plan *plan_p,
                               double *time_s_p)
{
    const char *why_not = weft_choose_shm_shape(chooser->facts, chooser->ask, builder, plan_p);

    if (why_not == NULL && chooser->is_explained) {
        *time_s_p = weft_choose_predict(chooser->sim, chooser->facts, plan_p, chooser->ask->bytes);
    }
    return why_not;
}

static void try_builder(const struct chooser *chooser, const struct weft_plan_builder *builder,
                        struct weft_plan *plan_p, struct weft_plan_option *option_p)
{
    *option_p = (struct weft_plan_option){.name = builder->name, .time_s = -1};
    option_p->why_not = refusal(chooser, builder);
    if (option_p->why_not == NULL) {
        option_p->why_not = (builder->traits & WEFT_PLAN_SHARED) != 0
                                ? shape_slots(chooser, builder, plan_p, &option_p->time_s)
                                : shape_messages(chooser, builder, plan_p, &option_p->time_s);
        option_p->segments = plan_p->segments;
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

/* Possible before refused, known before unknown, the faster first; equal ones keep their order. */
static bool is_better(const struct weft_plan_option *a, const struct weft_plan_option *b)
{
    if ((a->why_not == NULL) != (b->why_not == NULL)) {
        return a->why_not == NULL;
    }
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

static bool does(const struct weft_plan_builder *builder, const struct weft_plan_facts *facts,
                 weft_coll_t coll)
{
    return (builder->colls & 1u << coll) != 0 &&
           (builder != &weft_plan_hierarchical || facts->hosts > 1);
}

static void try_one(struct chooser *chooser, const struct weft_plan_builder *builder)
{
    struct weft_plan_option option;
    struct weft_plan plan = {0};

    if (builder == &weft_plan_hierarchical) {
        try_hierarchical(chooser, &plan, &option);
    } else {
        try_builder(chooser, builder, &plan, &option);
    }
    insert(chooser, &option, &plan);
}

/* All but one, which may be NULL. */
static void try_others(struct chooser *chooser, const struct weft_plan_builder *but)
{
    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        if (*at != but && does(*at, chooser->facts, chooser->ask->coll)) {
            try_one(chooser, *at);
        }
    }
    if (but != &weft_plan_hierarchical &&
        does(&weft_plan_hierarchical, chooser->facts, chooser->ask->coll)) {
        try_one(chooser, &weft_plan_hierarchical);
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

/* ---- what decides ---- */

static weft_status_t refuse(const struct chooser *chooser, const char *name, const char *why)
{
    const struct weft_plan_choice *choice = chooser->choice;
    char can[256] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < choice->count && used < sizeof(can); i++) {
        if (choice->option[i].why_not == NULL) {
            used += (size_t)snprintf(can + used, sizeof(can) - used, "%s%s", used > 0 ? ", " : "",
                                     choice->option[i].name);
        }
    }
    return weft_fail(WEFT_ERR_UNSUPPORTED, "%s with %u ranks: %s %s; possible: %s",
                     weft_coll_name(chooser->ask->coll), chooser->facts->ranks, name, why,
                     used > 0 ? can : "none");
}

/* Takes this one, whatever the model says of it; the others only to be shown. */
static weft_status_t take(struct chooser *chooser, const struct weft_plan_builder *builder)
{
    struct weft_plan_choice *choice = chooser->choice;

    try_one(chooser, builder);
    const char *why_not = choice->option[0].why_not;
    if (why_not != NULL) {
        try_others(chooser, builder);
        return refuse(chooser, builder->name, why_not);
    }
    if (chooser->is_explained) {
        try_others(chooser, builder);
        for (uint32_t i = 0; i < choice->count; i++) {
            if (choice->option[i].name == builder->name) {
                move_to_front(chooser, i);
            }
        }
    }
    return WEFT_OK;
}

static weft_status_t take_named(struct chooser *chooser, const char *name)
{
    const struct weft_plan_builder *builder = strcmp(name, weft_plan_hierarchical.name) == 0
                                                  ? &weft_plan_hierarchical
                                                  : weft_plan_find(name);

    snprintf(chooser->choice->reason, sizeof(chooser->choice->reason), "%s was asked for by name",
             name);
    return take(chooser, builder);
}

static weft_status_t take_rule(struct chooser *chooser, const struct weft_plan_builder *rule,
                               const char *why)
{
    snprintf(chooser->choice->reason, sizeof(chooser->choice->reason),
             "%s is the rule for shared memory of one host: %s", rule->name, why);
    return take(chooser, rule);
}

static weft_status_t take_fastest(struct chooser *chooser)
{
    struct weft_plan_choice *choice = chooser->choice;
    const struct weft_plan_option *first = &choice->option[0], *second = first + 1;
    uint32_t possible = 0;

    try_others(chooser, NULL);
    while (possible < choice->count && choice->option[possible].why_not == NULL) {
        possible++;
    }
    if (possible == 0) {
        return refuse(chooser, "every algorithm", "is refused");
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
    return WEFT_OK;
}

static bool can(const struct chooser *chooser, const char *name)
{
    const struct weft_plan_builder *builder = weft_plan_find(name);

    return does(builder != NULL ? builder : &weft_plan_hierarchical, chooser->facts,
                chooser->ask->coll);
}

static weft_status_t decide(struct chooser *chooser)
{
    const struct weft_plan_ask *ask = chooser->ask;
    const char *algo = ask->algo != NULL ? ask->algo : "", *why;
    char name[WEFT_PLAN_NAME_LEN];
    weft_status_t status = weft_plan_algo_of(algo, ask->coll, name);

    if (status != WEFT_OK) {
        return status;
    }
    /* a bare name is for the operations that it can do */
    if (name[0] != '\0' && (can(chooser, name) || weft_choose_is_meant(algo, ask->coll))) {
        return take_named(chooser, name);
    }
    const struct weft_plan_builder *rule = weft_choose_shm(chooser->facts, ask, &why);
    return rule != NULL ? take_rule(chooser, rule, why) : take_fastest(chooser);
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
    room->chooser.is_explained = why_p != NULL;
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
