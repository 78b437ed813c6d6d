/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which plan is taken: a pure function of facts that all ranks share. Every builder that can do the
 * operation is run in the model (sim.c), with as many segments as pay; the fastest is taken. Two things
 * go before: what the user asked for, and the rule for shared memory of one host.
 *
 * The choice is made first, the same way whether it is to be explained or not; then, if it is, the others
 * are looked at again without haste.
 */
#include "plan/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABOUT 1.15 /* as long: the model is not more exact than that */
#define TIED 1.035 /* as long: it may be either of them */
#define CALM_MIN 1048576.0
#define CALM_RANKS 64

struct chooser {
    struct weft_plan_facts facts;
    struct weft_choose ask;     /* what choose_try.c needs */
    struct weft_plan_ask known; /* of what was asked for: what all ranks know */
    double bytes;               /* the whole of it */
    const char *name;           /* asked for by WEFT_ALGO, or "" */
    struct weft_plan plan;      /* the chosen one */
    struct weft_plan_option chosen;
    char reason[256];
    struct weft_plan_choice *all; /* to be explained; NULL: not */
};

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

/* ---- all builders of an operation ---- */

static bool does(const struct chooser *chooser, const struct weft_plan_builder *builder)
{
    return (builder->colls & 1u << chooser->ask.ask->coll) != 0 &&
           (builder != &weft_plan_hierarchical ||
            (chooser->ask.facts->hosts > 1 &&
             (chooser->ask.facts->composed & 1u << chooser->ask.ask->coll) != 0));
}

/* The next one after `at` (NULL: the first); hierarchical, which is in no table, is the last. */
static const struct weft_plan_builder *next_builder(const struct chooser *chooser, uint32_t *at)
{
    const struct weft_plan_builder *builder;

    do {
        builder = weft_plan_builders[*at];
        *at += builder != NULL;
        if (builder == NULL) {
            builder = &weft_plan_hierarchical;
            if (*at == UINT32_MAX || !does(chooser, builder)) {
                return NULL;
            }
            *at = UINT32_MAX;
        }
    } while (!does(chooser, builder));
    return builder;
}

static const struct weft_plan_builder *find(const char *name)
{
    const struct weft_plan_builder *builder = weft_plan_find(name);

    return builder != NULL                                  ? builder
           : strcmp(name, weft_plan_hierarchical.name) == 0 ? &weft_plan_hierarchical
                                                            : NULL;
}

/* ---- what decides ---- */

/* Says who could do it. Whether they may and are possible counts, not how fast they are. */
static weft_status_t refuse(struct chooser *chooser, const char *name, const char *why)
{
    const struct weft_plan_builder *builder;
    const struct weft_plan_ask *ask = chooser->ask.ask;
    struct weft_plan_option option;
    struct weft_plan plan;
    char can[256] = "";
    size_t used = 0;

    chooser->ask.limit_s = 1e-12; /* do not run them */
    for (uint32_t at = 0; at != UINT32_MAX && (builder = next_builder(chooser, &at)) != NULL;) {
        weft_choose_try(&chooser->ask, builder, &plan, &option);
        if (option.why_not == NULL && used < sizeof(can)) {
            used += (size_t)snprintf(can + used, sizeof(can) - used, "%s%s", used > 0 ? ", " : "",
                                     builder->name);
        }
    }
    return weft_fail(WEFT_ERR_UNSUPPORTED, "%s with %u ranks: %s %s; possible: %s",
                     weft_coll_name(ask->coll), chooser->ask.facts->ranks, name, why,
                     used > 0 ? can : "none");
}

/* Takes this one, whatever the model says of it. */
static weft_status_t take(struct chooser *chooser, const struct weft_plan_builder *builder)
{
    weft_choose_try(&chooser->ask, builder, &chooser->plan, &chooser->chosen);
    if (chooser->chosen.why_not != NULL) {
        return refuse(chooser, builder->name, chooser->chosen.why_not);
    }
    weft_choose_refine(&chooser->ask, &chooser->plan, &chooser->chosen);
    return WEFT_OK;
}

/* a before b: known before unknown, the faster first; the one in the table first among equals. */
static bool is_faster(const struct weft_plan_option *a, const struct weft_plan_option *b)
{
    return b->time_s < 0 ? a->time_s >= 0 : a->time_s >= 0 && a->time_s < b->time_s;
}

struct candidates {
    uint32_t count;
    struct weft_plan plan[WEFT_PLAN_OPTIONS];
    struct weft_plan_option option[WEFT_PLAN_OPTIONS];
};

static void keep(struct chooser *chooser, const struct candidates *of, uint32_t at)
{
    chooser->chosen = of->option[at];
    chooser->plan = of->plan[at];
    chooser->ask.limit_s = chooser->chosen.time_s > 0 ? chooser->chosen.time_s * TIED : 0;
}

static void keep_faster(struct chooser *chooser, const struct candidates *of, uint32_t at)
{
    if (at == 0 || is_faster(&of->option[at], &chooser->chosen)) {
        keep(chooser, of, at);
    }
}

/* The model does not see how announcements queue behind the data of other messages, which costs plans of many
 * short messages between hosts: long ones in few rounds are taken if they are about as fast. */
static void prefer_hierarchical(struct chooser *chooser, const struct candidates *of)
{
    for (uint32_t i = 0; i < of->count; i++) {
        if (of->plan[i].builder == &weft_plan_hierarchical && of->option[i].time_s > 0 &&
            of->option[i].time_s <= ABOUT * chooser->chosen.time_s) {
            keep(chooser, of, i);
        }
    }
}

/* Messages that one rank sends in one round, at most. */
static uint32_t sends_at_once(const struct weft_plan *plan)
{
    struct weft_plan_step step;
    uint32_t most = 0;

    for (uint32_t rank = 0; rank < plan->ranks; rank++) {
        uint32_t rounds = plan->builder->rounds(plan, rank);
        for (uint32_t round = 0; round < rounds; round++) {
            uint32_t sends = 0;
            for (uint32_t i = 0; plan->builder->step(plan, rank, round, i, &step); i++) {
                sends += step.kind == WEFT_STEP_SEND;
            }
            most = sends > most ? sends : most;
        }
    }
    return most;
}

/* Where ranks share cores, many long messages at once push each other out of the caches, which the model does
 * not see: of those that are as fast the one with the fewest at once is taken. */
static bool prefer_calm(struct chooser *chooser, const struct candidates *of)
{
    const struct weft_plan_facts *facts = chooser->ask.facts;
    double limit_s = chooser->chosen.time_s * TIED;
    uint32_t fewest;
    bool is_other = false;

    if (!weft_plan_facts_oversubscribed(facts) || facts->hosts > 1 || facts->ranks > CALM_RANKS ||
        chooser->ask.ask->bytes < CALM_MIN || chooser->chosen.time_s <= 0) {
        return false;
    }
    fewest = sends_at_once(&chooser->plan);
    for (uint32_t i = 0; i < of->count; i++) {
        uint32_t sends = of->option[i].time_s > 0 && of->option[i].time_s <= limit_s
                             ? sends_at_once(&of->plan[i])
                             : fewest;
        if (sends < fewest) {
            fewest = sends;
            keep(chooser, of, i);
            is_other = true;
        }
    }
    return is_other;
}

/* All in one segment, then all in more: by then there is a limit that ends most runs early. */
static weft_status_t take_fastest(struct chooser *chooser)
{
    struct candidates of = {.count = 0};
    const struct weft_plan_builder *builder;
    bool is_calmer;

    for (uint32_t at = 0; at != UINT32_MAX && of.count < WEFT_PLAN_OPTIONS &&
                          (builder = next_builder(chooser, &at)) != NULL;) {
        weft_choose_try(&chooser->ask, builder, &of.plan[of.count], &of.option[of.count]);
        if (of.option[of.count].why_not == NULL) {
            keep_faster(chooser, &of, of.count++);
        }
    }
    if (of.count == 0) {
        return refuse(chooser, "every algorithm", "is refused");
    }
    for (uint32_t i = 0; i < of.count; i++) {
        weft_choose_refine(&chooser->ask, &of.plan[i], &of.option[i]);
        if (is_faster(&of.option[i], &chooser->chosen)) {
            keep_faster(chooser, &of, i);
        }
    }
    prefer_hierarchical(chooser, &of);
    is_calmer = prefer_calm(chooser, &of);
    if (of.count == 1) {
        snprintf(chooser->reason, sizeof(chooser->reason), "%s is the only one possible",
                 chooser->chosen.name);
    } else {
        snprintf(chooser->reason, sizeof(chooser->reason), "%s is the fastest of %u in the model%s",
                 chooser->chosen.name, of.count,
                 is_calmer ? ", or as fast with fewer messages at once"
                 : chooser->plan.builder == &weft_plan_hierarchical ? ", or about as fast"
                 : chooser->known.is_private ? ", of empty pieces: not all ranks know their lengths"
                                             : "");
    }
    return WEFT_OK;
}

static weft_status_t name_origin(const struct weft_plan_ask *ask, weft_status_t status)
{
    char text[WEFT_ERROR_TEXT_LEN];

    snprintf(text, sizeof(text), "%s", weft_error_text());
    return weft_fail(status, "%s: %s", ask->is_demanded ? "algorithm" : "WEFT_ALGO", text);
}

static weft_status_t decide(struct chooser *chooser)
{
    const struct weft_plan_ask *ask = chooser->ask.ask;
    const char *algo = ask->algo != NULL ? ask->algo : "", *why;
    char name[WEFT_PLAN_NAME_LEN];
    weft_status_t status = weft_plan_algo_of(algo, ask->coll, name);
    const struct weft_plan_builder *named, *rule;

    if (status != WEFT_OK) {
        return name_origin(ask, status); /* there is no name */
    }
    named = find(name);
    /* a bare name of WEFT_ALGO is for the operations that it can do */
    if (named != NULL &&
        (does(chooser, named) || ask->is_demanded || weft_choose_is_meant(algo, ask->coll))) {
        snprintf(chooser->reason, sizeof(chooser->reason), "%s was asked for by name", name);
        return take(chooser, named);
    }
    rule = weft_choose_shm(chooser->ask.facts, ask, &why);
    if (rule != NULL) {
        snprintf(chooser->reason, sizeof(chooser->reason),
                 "%s is the rule for shared memory of one host: %s", rule->name, why);
        return take(chooser, rule);
    }
    return take_fastest(chooser);
}

/* ---- lengths that are not known to all ---- */

/* Of gather and scatter only the root knows whether its pieces differ: so they may, always. */
void weft_plan_ask_lengths(struct weft_plan_ask *ask, double bytes, bool has_arrays)
{
    bool is_rooted = ask->coll == WEFT_GATHER || ask->coll == WEFT_SCATTER;

    ask->is_private = is_rooted || (ask->coll == WEFT_ALLTOALL && has_arrays);
    ask->is_equal = !is_rooted && !has_arrays;
    ask->bytes = ask->coll == WEFT_BARRIER ? 0 : bytes;
}

/* It was chosen without them; how long it takes they say nevertheless. */
static void time_again(struct chooser *chooser, const struct weft_plan *plan,
                       struct weft_plan_option *option)
{
    if (chooser->known.is_private && chooser->ask.is_timed && option->why_not == NULL) {
        option->time_s =
            weft_choose_predict(chooser->ask.sim, chooser->ask.facts, plan, chooser->bytes, 0);
    }
}

/* ---- the explanation ---- */

/* Possible before refused, then by time. */
static bool is_shown_before(const struct weft_plan_option *a, const struct weft_plan_option *b)
{
    return (a->why_not == NULL) != (b->why_not == NULL) ? a->why_not == NULL : is_faster(a, b);
}

static void insert(struct weft_plan_choice *choice, const struct weft_plan_option *option)
{
    uint32_t at = choice->count;

    if (at == WEFT_PLAN_OPTIONS) {
        return;
    }
    choice->count++;
    for (; at > 1 && is_shown_before(option, &choice->option[at - 1]); at--) {
        choice->option[at] = choice->option[at - 1];
    }
    choice->option[at] = *option;
}

static void explain(struct chooser *chooser)
{
    struct weft_plan_choice *all = chooser->all;
    const struct weft_plan_builder *builder;
    struct weft_plan_option option;
    size_t used = strlen(chooser->reason);

    memset(all, 0, sizeof(*all));
    all->option[all->count++] = chooser->chosen;
    chooser->ask.limit_s = 0;
    for (uint32_t at = 0; at != UINT32_MAX && (builder = next_builder(chooser, &at)) != NULL;) {
        struct weft_plan plan = {0};
        if (builder->name != chooser->chosen.name) {
            weft_choose_try(&chooser->ask, builder, &plan, &option);
            if (option.why_not == NULL) {
                weft_choose_refine(&chooser->ask, &plan, &option);
            }
            time_again(chooser, &plan, &option);
            insert(all, &option);
        }
    }
    if (all->count > 1 && all->option[1].time_s > 0 && chooser->chosen.time_s > 0) {
        double times = all->option[1].time_s / chooser->chosen.time_s;
        snprintf(chooser->reason + used, sizeof(chooser->reason) - used,
                 "; %s would take %.2fx as long", all->option[1].name, times);
    }
    memcpy(all->reason, chooser->reason, sizeof(all->reason));
}

/* ---- */

/* Ranks that lie host by host need no list: then one host can stand for all. */
static bool is_host_by_host(const struct weft_plan_facts *facts)
{
    for (uint32_t rank = 0; rank < facts->ranks; rank++) {
        if (facts->host_of[rank] != rank / facts->host_ranks) {
            return false;
        }
    }
    return true;
}

static weft_status_t choose(struct chooser *chooser)
{
    weft_status_t status;

    chooser->known = *chooser->ask.ask;
    chooser->bytes = chooser->known.bytes;
    if (chooser->known.is_private) {
        chooser->known.bytes = 0;
        chooser->known.is_equal = false;
    }
    chooser->ask.ask = &chooser->known;
    if (chooser->facts.host_of != NULL && is_host_by_host(&chooser->facts)) {
        chooser->facts.host_of = NULL;
    }
    chooser->ask.facts = &chooser->facts;
    chooser->ask.sim = weft_plan_sim_open();
    if (chooser->ask.sim == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to choose a plan in");
    }
    status = decide(chooser);
    if (status == WEFT_OK) {
        time_again(chooser, &chooser->plan, &chooser->chosen);
    }
    if (status == WEFT_OK && chooser->all != NULL) {
        explain(chooser);
    }
    weft_plan_sim_close(chooser->ask.sim);
    return status;
}

weft_status_t weft_plan_choose(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask,
                               struct weft_plan *plan_p, struct weft_plan_choice *why_p)
{
    struct chooser chooser = {
        .facts = *facts, .ask = {.ask = ask, .is_timed = why_p != NULL}, .all = why_p};
    weft_status_t status = choose(&chooser);

    if (status == WEFT_OK) {
        *plan_p = chooser.plan;
    }
    return status;
}

weft_status_t weft_plan_predict(const struct weft_plan_facts *facts,
                                const struct weft_plan_ask *ask, struct weft_plan *plan_p,
                                double *time_s_p)
{
    struct chooser chooser = {.facts = *facts, .ask = {.ask = ask, .is_timed = true}};
    weft_status_t status = choose(&chooser);

    if (status == WEFT_OK) {
        *plan_p = chooser.plan;
        *time_s_p = chooser.chosen.time_s;
    }
    return status;
}
