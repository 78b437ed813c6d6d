/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of shared memory in the model: when a rank showed what, and who waits for it. */
#include "plan/sim.h"

void weft_sim_show(struct weft_plan_sim *sim, uint32_t number, uint32_t value)
{
    struct sim_actor *actor = &sim->actor[number];
    double *shown_at = &sim->shown_at[(size_t)number * (sim->plan->shows + 1)];
    uint32_t waiter = actor->first_waiter;

    for (uint32_t v = actor->shown + 1; v <= value && v <= sim->plan->shows; v++) {
        shown_at[v] = actor->clock;
    }
    actor->shown = value <= sim->plan->shows ? value : sim->plan->shows;
    actor->first_waiter = WEFT_SIM_NONE;
    while (waiter != WEFT_SIM_NONE) {
        uint32_t next = sim->actor[waiter].next_waiter;
        weft_sim_wake(sim, waiter, actor->clock);
        waiter = next;
    }
}

/* false: blocked until that rank shows more, or to be tried again later. In a class run `other` may be the
 * actor itself, standing for a rank that does the same at the same time. */
static bool await_one(struct weft_plan_sim *sim, uint32_t number, uint32_t other, uint32_t value)
{
    struct sim_actor *actor = &sim->actor[number], *peer = &sim->actor[other];
    double flag_s = weft_sim_flag_s(sim), seen;

    if (value == 0) {
        return true;
    }
    if (peer->shown < value) {
        actor->state = SIM_BLOCKED;
        actor->next_waiter = peer->first_waiter;
        peer->first_waiter = number;
        return false;
    }
    seen = sim->shown_at[(size_t)other * (sim->plan->shows + 1) + value] + flag_s;
    if (seen <= actor->clock) {
        return true;
    }
    double latency = seen - actor->clock < flag_s ? seen - actor->clock : flag_s;
    actor->parts.latency += latency;
    actor->parts.wait += seen - actor->clock - latency;
    actor->clock = seen;
    actor->has_waited = true;
    actor->hop = weft_sim_hop(sim, peer->hop, weft_sim_offset(sim, peer->rank, actor->rank),
                              actor->round, seen);
    return false;
}

bool weft_sim_await(struct weft_plan_sim *sim, uint32_t number, const struct weft_plan_step *step)
{
    struct sim_actor *actor = &sim->actor[number];

    bool is_class = sim->actors < sim->plan->ranks;

    if (step->peer != WEFT_PLAN_ALL) {
        if (!await_one(sim, number, step->peer % sim->actors, step->value)) {
            return false;
        }
    } else {
        for (; actor->awaited < sim->actors; actor->awaited++) {
            if (sim->actor[actor->awaited].host == actor->host &&
                (actor->awaited != number || is_class) &&
                !await_one(sim, number, actor->awaited, step->value)) {
                return false;
            }
        }
        actor->awaited = 0;
    }
    weft_sim_waited(sim, actor, sim->facts->calibration.flag_wait_s);
    return true;
}
