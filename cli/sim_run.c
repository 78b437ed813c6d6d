/* SPDX-License-Identifier: Apache-2.0 */
/* One algorithm in the model; a hierarchical one phase by phase. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

double weft_sim_busbw(const struct explain_job *job, double time_s)
{
    double n = job->facts.ranks, factor = (n - 1) / n;

    switch (job->ask.coll) {
    case WEFT_BARRIER:
        return -1;
    case WEFT_ALLREDUCE:
        factor *= 2;
        break;
    case WEFT_BROADCAST:
    case WEFT_REDUCE:
        factor = 1;
        break;
    default:
        break;
    }
    return time_s > 0 ? job->ask.bytes * factor / time_s / 1e9 : 0;
}

static void run_plan(const struct weft_plan_facts *facts, const struct weft_plan *plan,
                     double bytes, struct sim_row *row)
{
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {
        .bytes = bytes, .steps_max = weft_explain_steps_max(facts), .path_max = SIM_HOPS};
    const struct weft_plan_hop *path;

    row->name = plan->builder->name;
    row->segments = plan->segments;
    row->has_cost =
        sim != NULL && weft_plan_sim_run(sim, facts, plan, &run, &row->cost) == WEFT_RUN_DONE;
    if (row->has_cost) {
        row->time_s = row->cost.time_s;
        path = weft_plan_sim_path(sim, &row->hop_count);
        memcpy(row->hop, path, row->hop_count * sizeof(*path));
    }
    weft_plan_sim_close(sim);
}

/* groups: how many do the same at the same time; at_once: how many of them share a host's NICs */
static void add_phase(struct sim_row *row, const struct sim_row *phase, double groups,
                      double at_once)
{
    struct weft_plan_cost *sum = &row->cost;
    const struct weft_plan_cost *its = &phase->cost;

    row->has_cost = row->has_cost && phase->has_cost;
    row->time_s = row->time_s < 0 || phase->time_s < 0 ? -1 : row->time_s + phase->time_s;
    sum->time_s += its->time_s;
    sum->parts.message += its->parts.message;
    sum->parts.copy += its->parts.copy;
    sum->parts.reduce += its->parts.reduce;
    sum->parts.wire += its->parts.wire;
    sum->parts.latency += its->parts.latency;
    sum->parts.wait += its->parts.wait;
    sum->sent_inside += its->sent_inside;
    sum->sent_between += its->sent_between;
    sum->nic_out += its->nic_out * at_once;
    sum->nic_in += its->nic_in * at_once;
    sum->total_inside += its->total_inside * groups;
    sum->total_between += its->total_between * groups;
    sum->messages += (uint64_t)((double)its->messages * groups);
    sum->rounds += its->rounds;
    sum->hops += its->hops;
    sum->steps += its->steps;
    sum->classes = its->classes > sum->classes ? its->classes : sum->classes;
}

static void run_phases(const struct explain_job *job, struct sim_row *row,
                       struct sim_row phases[WEFT_PLAN_PHASES], uint32_t *count_p)
{
    struct weft_plan_phase phase[WEFT_PLAN_PHASES];
    uint32_t count = weft_plan_phases(&job->facts, &job->ask, phase);
    struct weft_plan plan;

    row->has_cost = count > 0;
    row->time_s = 0;
    for (uint32_t i = 0; i < count; i++) {
        double groups = phase[i].is_between ? job->facts.host_ranks : job->facts.hosts;
        phases[i].phase = phase[i].is_between ? "between hosts" : "inside hosts";
        phases[i].time_s = -1;
        if (weft_plan_predict(&phase[i].facts, &phase[i].ask, &plan, &phases[i].time_s) ==
            WEFT_OK) {
            run_plan(&phase[i].facts, &plan, phase[i].ask.bytes, &phases[i]);
        }
        add_phase(row, &phases[i], groups, phase[i].at_once);
    }
    *count_p = count;
}

void weft_sim_run_row(const struct explain_job *job, const struct weft_plan *plan, double time_s,
                      struct sim_row *row_p, struct sim_row phases[WEFT_PLAN_PHASES],
                      uint32_t *phase_count_p)
{
    *row_p =
        (struct sim_row){.name = plan->builder->name, .segments = plan->segments, .time_s = time_s};
    *phase_count_p = 0;
    if (plan->builder == &weft_plan_hierarchical) {
        run_phases(job, row_p, phases, phase_count_p);
    } else {
        run_plan(&job->facts, plan, job->ask.bytes, row_p);
    }
}
