/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan in the model: every rank has a clock, and whoever's clock is earliest does its next step. What is
 * taken in this order (cores of a host, NICs) is taken first come, first served.
 *
 * A host with more ranks than cores: in a symmetric plan all are busy at the same time and share the cores
 * evenly; in others they queue for them, as a root may work while the rest sleeps.
 */
#include "plan/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

void *weft_sim_grow(struct weft_plan_sim *sim, unsigned which, void *memory, size_t count,
                    size_t size)
{
    if (sim == NULL) { /* plain: count 0 frees */
        if (count == 0) {
            free(memory);
            return NULL;
        }
        return calloc(count, size);
    }
    if (count <= sim->room[which]) {
        return memory;
    }
    size_t room = sim->room[which] * 2 > count ? sim->room[which] * 2 : count + 64;
    void *grown = reallocarray(memory, room, size);
    if (grown != NULL) {
        sim->room[which] = room;
    }
    return grown;
}

struct weft_plan_sim *weft_plan_sim_open(void)
{
    return calloc(1, sizeof(struct weft_plan_sim));
}

void weft_plan_sim_close(struct weft_plan_sim *sim)
{
    if (sim == NULL) {
        return;
    }
    free(sim->actor);
    free(sim->host);
    free(sim->core_free);
    free(sim->shown_at);
    free(sim->event);
    free(sim->note);
    free(sim->channel);
    free(sim->hop);
    free(sim->path);
    free(sim);
}

/* ---- who is next: a heap ---- */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->time != b->time ? a->time < b->time
           : a->tie != b->tie ? a->tie < b->tie
                              : a->actor < b->actor;
}

#define AFTER_POSTING (UINT64_C(1) << 63)

/* At the same time everybody posts its receives before anybody sends, all their first ones, then all their
 * second ones, ...; further ties go by the place on the host. So every host of a symmetric plan does the
 * same. */
static struct sim_event event_of(const struct weft_plan_sim *sim, uint32_t actor, double time)
{
    const struct sim_actor *its = &sim->actor[actor];
    uint64_t place = its->rank % sim->facts->host_ranks;
    uint64_t phase = its->is_posted ? AFTER_POSTING : (uint64_t)its->index << 32;

    return (struct sim_event){time, phase | place, actor};
}

static void push(struct weft_plan_sim *sim, struct sim_event event)
{
    uint32_t at = sim->event_count++;

    while (at > 0 && is_before(&event, &sim->event[(at - 1) / 2])) {
        sim->event[at] = sim->event[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->event[at] = event;
}

static struct sim_event pop(struct weft_plan_sim *sim)
{
    struct sim_event first = sim->event[0], last = sim->event[--sim->event_count];
    uint32_t at = 0;

    for (uint32_t child = 1; child < sim->event_count; child = 2 * at + 1) {
        if (child + 1 < sim->event_count && is_before(&sim->event[child + 1], &sim->event[child])) {
            child++;
        }
        if (!is_before(&sim->event[child], &last)) {
            break;
        }
        sim->event[at] = sim->event[child];
        at = child;
    }
    sim->event[at] = last;
    return first;
}

void weft_sim_wake(struct weft_plan_sim *sim, uint32_t actor, double time)
{
    struct sim_actor *woken = &sim->actor[actor];

    if (woken->state == SIM_BLOCKED) {
        woken->state = SIM_READY;
        push(sim, event_of(sim, actor, time > woken->clock ? time : woken->clock));
    }
}

/* ---- what a rank does ---- */

static double *core_of(const struct weft_plan_sim *sim, const struct sim_actor *actor)
{
    double *core = &sim->core_free[(size_t)actor->host * sim->facts->cores], *best = core;

    for (uint32_t i = 1; i < sim->facts->cores; i++) {
        best = core[i] < *best ? &core[i] : best;
    }
    return best;
}

void weft_sim_work(struct weft_plan_sim *sim, struct sim_actor *actor, double seconds, double *part)
{
    if (sim->is_queued) {
        double *core = core_of(sim, actor);
        if (*core > actor->clock) {
            actor->parts.wait += *core - actor->clock;
            actor->clock = *core;
        }
        *core = actor->clock + seconds;
    } else {
        seconds *= sim->share;
    }
    actor->clock += seconds;
    *part += seconds;
}

void weft_sim_waited(struct weft_plan_sim *sim, struct sim_actor *actor, double wait_s)
{
    if (actor->has_waited && weft_plan_facts_oversubscribed(sim->facts)) {
        double crowd = (double)sim->facts->host_ranks / sim->facts->cores;
        weft_sim_work(sim, actor, wait_s * crowd, &actor->parts.wait);
    }
    actor->has_waited = false;
}

uint32_t weft_sim_hop(struct weft_plan_sim *sim, uint32_t parent, uint32_t offset, uint32_t round,
                      double time_s)
{
    if (sim->run->path_max == 0) {
        return WEFT_SIM_NONE;
    }
    struct sim_hop *grown =
        weft_sim_grow(sim, SIM_HOPS, sim->hop, (size_t)sim->hop_count + 1, sizeof(*sim->hop));
    if (grown == NULL) {
        sim->has_no_memory = true;
        return WEFT_SIM_NONE;
    }
    sim->hop = grown;
    sim->hop[sim->hop_count] = (struct sim_hop){parent, offset, round, time_s};
    return sim->hop_count++;
}

/* One step. false: it has to be tried again. */
static bool do_step(struct weft_plan_sim *sim, uint32_t number, const struct weft_plan_step *step)
{
    struct sim_actor *actor = &sim->actor[number];

    switch ((enum weft_step_kind)step->kind) {
    case WEFT_STEP_SEND:
        weft_sim_send(sim, number, step->peer, step->from.blocks * sim->block_bytes);
        return true;
    case WEFT_STEP_RECV: /* posted at the beginning of the round */
    case WEFT_STEP_RECV_REDUCE:
        return true;
    case WEFT_STEP_COPY:
        weft_sim_work(sim, actor, weft_sim_copy_s(sim, step), &actor->parts.copy);
        return true;
    case WEFT_STEP_REDUCE: {
        double bytes = step->to.blocks * sim->block_bytes;
        double share = (step->flags & WEFT_STEP_ANY) != 0 ? sim->plan->ranks : 1;
        weft_sim_work(sim, actor, weft_sim_reduce_s(sim, bytes, step->sources) / share,
                      &actor->parts.reduce);
        return true;
    }
    case WEFT_STEP_SHOW:
        weft_sim_show(sim, number, step->value);
        return true;
    case WEFT_STEP_AWAIT:
        return weft_sim_await(sim, number, step);
    case WEFT_STEP_AWAIT_FREE: /* operations before this one are not in the model */
    case WEFT_STEP_AWAIT_ANY:  /* everybody's share of them takes equally long */
        return true;
    }
    return true;
}

/* The receives of a round are posted together, before anything of it takes time. Posts one of them. */
static void post_next(struct weft_plan_sim *sim, uint32_t number)
{
    struct sim_actor *actor = &sim->actor[number];
    const struct weft_plan_builder *builder = sim->plan->builder;
    struct weft_plan_step step;

    while ((builder->traits & WEFT_PLAN_SHARED) == 0 && /* those have none */
           builder->step(sim->plan, actor->rank, actor->round, actor->index, &step)) {
        sim->steps++;
        actor->index++;
        if (step.kind == WEFT_STEP_RECV || step.kind == WEFT_STEP_RECV_REDUCE) {
            weft_sim_post(sim, number, step.peer, step.kind == WEFT_STEP_RECV_REDUCE);
            return;
        }
    }
    actor->is_posted = true;
    actor->index = 0;
}

/* At once when the last receive is done, not with the next turn: posting goes before sending. */
static void end_round(struct sim_actor *actor)
{
    if (actor->is_waiting && actor->first_note == WEFT_SIM_NONE) {
        actor->is_waiting = actor->is_posted = actor->has_received = false;
        actor->index = 0;
        actor->round++;
        actor->state = actor->round < actor->rounds ? SIM_READY : SIM_DONE;
    }
}

static void advance(struct weft_plan_sim *sim, uint32_t number)
{
    struct sim_actor *actor = &sim->actor[number];
    struct weft_plan_step step;
    uint32_t index = actor->index;

    if (actor->round >= actor->rounds) { /* it never had any */
        actor->state = SIM_DONE;
    } else if (!actor->is_posted) {
        post_next(sim, number);
    } else if (actor->is_waiting) {
        weft_sim_receive(sim, actor);
        end_round(actor);
    } else {
        sim->steps++;
        if (!weft_sim_read(sim->plan, actor->rank, actor->round, &index, &step)) {
            actor->is_waiting = true;
            end_round(actor);
        } else if (do_step(sim, number, &step)) {
            actor->index = index;
        }
    }
}

/* ---- a run ---- */

static bool prepare_arrays(struct weft_plan_sim *sim, uint32_t hosts)
{
    size_t actors = sim->actors, shown = actors * ((size_t)sim->plan->shows + 1);
    size_t cores = sim->is_queued ? (size_t)hosts * sim->facts->cores : 0;
    void *grown;

#define GROW(array, which, count)                                                                  \
    grown = weft_sim_grow(sim, which, sim->array, count, sizeof(*sim->array));                     \
    if (grown == NULL && (count) > 0) {                                                            \
        return false;                                                                              \
    }                                                                                              \
    sim->array = grown
    GROW(actor, SIM_ACTORS, actors);
    GROW(event, SIM_EVENTS, actors);
    GROW(host, SIM_HOSTS, hosts);
    GROW(core_free, SIM_CORES, cores);
    GROW(shown_at, SIM_SHOWN, shown);
#undef GROW
    memset(sim->host, 0, hosts * sizeof(*sim->host));
    if (cores > 0) {
        memset(sim->core_free, 0, cores * sizeof(*sim->core_free));
    }
    return true;
}

static void prepare_model(struct weft_plan_sim *sim)
{
    const struct weft_plan_facts *facts = sim->facts;
    const struct weft_plan *plan = sim->plan;
    bool is_vector =
        plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST || plan->coll == WEFT_REDUCE;
    double blocks = is_vector ? plan->parts : (double)plan->ranks * plan->segments;
    uint32_t busy = facts->host_ranks < facts->cores ? facts->host_ranks : facts->cores;
    bool is_over = weft_plan_facts_oversubscribed(facts);

    sim->block_bytes = blocks > 0 ? sim->run->bytes / blocks : 0;
    sim->symmetry = weft_sim_symmetry(plan);
    sim->actors = sim->run->is_full ? plan->ranks : weft_sim_classes(facts, sim->symmetry);
    sim->is_queued = is_over && sim->symmetry == WEFT_SYMMETRY_NONE;
    sim->share = is_over ? (double)facts->host_ranks / facts->cores : 1;
    sim->is_past_cache =
        weft_plan_facts_past_cache(facts, sim->run->whole > 0 ? sim->run->whole : sim->run->bytes);
    sim->memory_rate = facts->calibration.memory_rate / busy;
}

static bool prepare(struct weft_plan_sim *sim)
{
    prepare_model(sim);
    if (!prepare_arrays(sim, sim->actors == sim->plan->ranks ? sim->facts->hosts : 1)) {
        return false;
    }
    sim->number++;
    sim->steps = sim->messages = 0;
    sim->written = 0;
    sim->has_no_memory = false;
    sim->event_count = sim->note_count = sim->channel_count = sim->hop_count = 0;
    sim->path_count = 0;
    sim->free_note = WEFT_SIM_NONE;
    for (uint32_t i = 0; i < sim->actors; i++) {
        sim->actor[i] = (struct sim_actor){
            .rank = i,
            .host = weft_plan_facts_host(sim->facts, i),
            .rounds = sim->plan->builder->rounds(sim->plan, i),
            .first_note = WEFT_SIM_NONE,
            .first_waiter = WEFT_SIM_NONE,
            .hop = WEFT_SIM_NONE,
        };
        push(sim, event_of(sim, i, 0));
    }
    return true;
}

/* Is it enough of this run? */
static bool is_over(const struct weft_plan_sim *sim, double now)
{
    return (sim->run->steps_max > 0 && sim->steps > sim->run->steps_max) ||
           (sim->run->time_max_s > 0 && now > sim->run->time_max_s);
}

/* Runs the earliest rank for as long as it stays the earliest. */
static void turn(struct weft_plan_sim *sim)
{
    struct sim_event next = pop(sim);
    uint32_t number = next.actor;
    struct sim_actor *actor = &sim->actor[number];

    for (;;) {
        struct sim_event event = event_of(sim, number, actor->clock);
        if (sim->event_count > 0 && is_before(&sim->event[0], &event)) {
            push(sim, event);
            return;
        }
        advance(sim, number);
        if (actor->state != SIM_READY) {
            return;
        }
        if (sim->event_count == 0 &&
            is_over(sim, actor->clock)) { /* nobody else: not asked above */
            push(sim, event_of(sim, number, actor->clock));
            return;
        }
    }
}

static void sum_up(const struct weft_plan_sim *sim, struct weft_plan_cost *cost_p)
{
    double stands_for = (double)sim->plan->ranks / sim->actors, inside = 0, between = 0;
    double outputs = sim->run->bytes * sim->plan->ranks;
    struct weft_plan_cost cost = {.classes = sim->actors, .symmetry = sim->symmetry};

    for (uint32_t i = 0; i < sim->actors; i++) {
        const struct sim_actor *actor = &sim->actor[i];
        if (actor->clock > cost.time_s || i == 0) {
            cost.time_s = actor->clock;
            cost.parts = actor->parts;
            cost.last_rank = actor->rank;
        }
        inside += actor->sent_inside;
        between += actor->sent_between;
        cost.rounds = actor->rounds > cost.rounds ? actor->rounds : cost.rounds;
#define KEEP_MOST(most, value) most = (value) > (most) ? (value) : (most)
        KEEP_MOST(cost.sent_inside, actor->sent_inside);
        KEEP_MOST(cost.sent_between, actor->sent_between);
        KEEP_MOST(cost.nic_out, sim->host[actor->host].out_bytes);
        KEEP_MOST(cost.nic_in, sim->host[actor->host].in_bytes);
#undef KEEP_MOST
    }
    cost.total_inside = inside * stands_for;
    cost.total_between = between * stands_for;
    cost.messages = (uint64_t)((double)sim->messages * stands_for + 0.5);
    cost.copies = outputs > 0 ? sim->written * stands_for / outputs : 0;
    cost.steps = sim->steps;
    *cost_p = cost;
}

/* Follows the hops back from the rank that ended last; in a class run a hop is moved to where it happens. */
static bool keep_path(struct weft_plan_sim *sim, struct weft_plan_cost *cost)
{
    uint32_t most = sim->run->path_max, count = 0, rank = cost->last_rank;
    uint32_t hop = most > 0 ? sim->actor[cost->last_rank].hop : WEFT_SIM_NONE;
    struct weft_plan_hop *path = weft_sim_grow(sim, SIM_PATH, sim->path, most, sizeof(*path));

    if (path == NULL) {
        return most == 0;
    }
    sim->path = path;
    for (uint32_t at = hop; at != WEFT_SIM_NONE; at = sim->hop[at].parent) {
        cost->hops++;
    }
    for (; hop != WEFT_SIM_NONE && count < most; hop = sim->hop[hop].parent, count++) {
        const struct sim_hop *at = &sim->hop[hop];
        uint32_t from = weft_sim_back(sim, rank, at->offset);
        path[most - 1 - count] = (struct weft_plan_hop){from, rank, at->round, at->time_s};
        rank = from;
    }
    memmove(path, path + (most - count), count * sizeof(*path));
    sim->path_count = count;
    return true;
}

enum weft_plan_run_end weft_plan_sim_run(struct weft_plan_sim *sim,
                                         const struct weft_plan_facts *facts,
                                         const struct weft_plan *plan,
                                         const struct weft_plan_run *run,
                                         struct weft_plan_cost *cost_p)
{
    sim->facts = facts;
    sim->plan = plan;
    sim->run = run;
    if (!prepare(sim)) {
        return WEFT_RUN_NO_MEMORY;
    }
    while (sim->event_count > 0) {
        turn(sim);
        if (sim->has_no_memory) {
            return WEFT_RUN_NO_MEMORY;
        }
        if (sim->event_count > 0 && is_over(sim, sim->event[0].time)) {
            bool is_slower = run->time_max_s > 0 && sim->event[0].time > run->time_max_s;
            return is_slower ? WEFT_RUN_SLOWER : WEFT_RUN_TOO_LONG;
        }
    }
    for (uint32_t i = 0; i < sim->actors; i++) {
        if (sim->actor[i].state != SIM_DONE) {
            return WEFT_RUN_STUCK;
        }
    }
    sum_up(sim, cost_p);
    return keep_path(sim, cost_p) ? WEFT_RUN_DONE : WEFT_RUN_NO_MEMORY;
}

const struct weft_plan_hop *weft_plan_sim_path(const struct weft_plan_sim *sim, uint32_t *count_p)
{
    *count_p = sim->path_count;
    return sim->path;
}
