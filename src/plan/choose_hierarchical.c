/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hierarchical: several hosts with several ranks each. An allreduce is a reduce-scatter inside every host,
 * allreduces of the slices between the hosts, from all ranks at the same time, and an allgather inside. Each
 * phase is an operation of its own with a plan of its own; whoever runs it makes the groups.
 */
#include "plan/choose.h"

static bool no_shape(struct weft_plan *plan)
{
    (void)plan;
    return false;
}

static uint32_t no_rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan;
    (void)rank;
    return 0;
}

static bool no_step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                    struct weft_plan_step *step_p)
{
    (void)plan;
    (void)rank;
    (void)round;
    (void)index;
    (void)step_p;
    return false;
}

const struct weft_plan_builder weft_plan_hierarchical = {
    .name = "hierarchical",
    .summary =
        "inside each host, then slices between hosts from all ranks at once, then inside again",
    .colls = 1u << WEFT_ALLREDUCE | 1u << WEFT_BROADCAST | 1u << WEFT_REDUCE | 1u << WEFT_BARRIER,
    .traits = 0,
    .shape = no_shape,
    .rounds = no_rounds,
    .step = no_step,
};

struct composition {
    weft_coll_t inside, between, after;
};

/* The same number on every host; which ranks they are does not matter. */
static bool is_even(const struct weft_plan_facts *facts)
{
    if (facts->hosts < 2 || facts->host_ranks < 2 ||
        (uint64_t)facts->hosts * facts->host_ranks != facts->ranks) {
        return false; /* host_ranks is the fullest: less than the product, and one has fewer */
    }
    return true;
}

static struct weft_plan_phase inside_of(const struct weft_plan_facts *facts,
                                        const struct weft_plan_ask *ask, weft_coll_t coll)
{
    struct weft_plan_phase phase = {.ask = *ask, .facts = *facts, .at_once = 1};

    phase.facts.ranks = facts->host_ranks;
    phase.facts.hosts = 1;
    phase.facts.host_of = NULL;
    phase.ask.coll = coll;
    phase.ask.algo = "";
    phase.ask.root =
        coll == WEFT_SCATTER || coll == WEFT_GATHER ? ask->root % facts->host_ranks : 0;
    phase.ask.is_equal = true;
    phase.ask.widening = 1; /* only what goes between hosts is */
    return phase;
}

static struct weft_plan_phase between_of(const struct weft_plan_facts *facts,
                                         const struct weft_plan_ask *ask, weft_coll_t coll)
{
    struct weft_plan_phase phase = {
        .is_between = true, .ask = *ask, .facts = *facts, .at_once = facts->host_ranks};
    uint32_t cores = facts->cores / facts->host_ranks;

    phase.facts.ranks = facts->hosts;
    phase.facts.host_ranks = 1;
    phase.facts.host_of = NULL;
    phase.facts.cores = cores > 0 ? cores : 1;
    /* all groups send at once: each has its share of the NICs */
    phase.facts.nic_rate = facts->nic_rate * facts->nics / facts->host_ranks;
    phase.facts.nics = 1;
    phase.facts.cache = facts->cache / facts->host_ranks;
    phase.ask.coll = coll;
    phase.ask.algo = "";
    phase.ask.bytes = ask->bytes / facts->host_ranks;
    phase.ask.root = weft_plan_facts_host(facts, ask->root);
    return phase;
}

uint32_t weft_plan_phases(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask,
                          struct weft_plan_phase phase[WEFT_PLAN_PHASES])
{
    static const struct composition compositions[WEFT_COLLS] = {
        [WEFT_ALLREDUCE] = {WEFT_REDUCE_SCATTER, WEFT_ALLREDUCE, WEFT_ALLGATHER},
        [WEFT_BROADCAST] = {WEFT_SCATTER, WEFT_BROADCAST, WEFT_ALLGATHER},
        [WEFT_REDUCE] = {WEFT_REDUCE_SCATTER, WEFT_REDUCE, WEFT_GATHER},
        [WEFT_BARRIER] = {WEFT_BARRIER, WEFT_BARRIER, WEFT_BARRIER},
    };
    const struct composition *made = &compositions[ask->coll];

    if ((facts->composed & 1u << ask->coll) == 0 ||
        (weft_plan_hierarchical.colls & 1u << ask->coll) == 0 || !is_even(facts)) {
        return 0;
    }
    phase[0] = inside_of(facts, ask, made->inside);
    phase[1] = between_of(facts, ask, made->between);
    phase[2] = inside_of(facts, ask, made->after);
    return WEFT_PLAN_PHASES;
}

double weft_choose_hierarchical_s(const struct weft_plan_facts *facts,
                                  const struct weft_plan_ask *ask, const char **why_not_p)
{
    struct weft_plan_phase phase[WEFT_PLAN_PHASES];
    struct weft_plan plan;
    double seconds = 0, each;
    uint32_t count = weft_plan_phases(facts, ask, phase);

    *why_not_p = count > 0               ? NULL
                 : facts->hosts < 2      ? "there is one host"
                 : facts->host_ranks < 2 ? "there is one rank per host"
                 : !is_even(facts)       ? "hosts have different numbers of ranks"
                                         : "this operation is not composed";
    for (uint32_t i = 0; i < count; i++) {
        if (weft_plan_predict(&phase[i].facts, &phase[i].ask, &plan, &each) != WEFT_OK) {
            *why_not_p = "one of its phases has no plan";
            return WEFT_CHOOSE_UNKNOWN;
        }
        if (each < 0) {
            return each;
        }
        seconds += each;
    }
    return count > 0 ? seconds : WEFT_CHOOSE_UNKNOWN;
}
