/* SPDX-License-Identifier: Apache-2.0 */
/* Private to `weft sim`: one algorithm in the model (sim_run.c), scaling tables (sim_scaling.c). */
#ifndef WEFT_CLI_SIM_H
#define WEFT_CLI_SIM_H

#include "explain.h"

#define SIM_HOPS 12 /* of the critical path, from its end */

/* One algorithm, run in the model. */
struct sim_row {
    const char *name;
    uint32_t segments;
    struct weft_plan_cost cost;
    bool has_cost;     /* false: too long to run; time_s is from fewer ranks */
    double time_s;     /* < 0: not known */
    const char *phase; /* of a hierarchical one: which */
    uint32_t hop_count;
    struct weft_plan_hop hop[SIM_HOPS];
};

/* ---- sim_run.c ---- */
/* Runs the plan of this job; hierarchical: up to three rows for its phases go to phases (count them in
 * *phase_count_p), their sum is the row. */
void weft_sim_run_row(const struct explain_job *job, const struct weft_plan *plan, double time_s,
                      struct sim_row *row_p, struct sim_row phases[WEFT_PLAN_PHASES],
                      uint32_t *phase_count_p);
/* GB/s (1e9) as nccl-tests count; < 0: none (barrier) */
double weft_sim_busbw(const struct explain_job *job, double time_s);

/* ---- sim_scaling.c ---- */
#define SIM_SIZES_MAX 16
struct sim_size {
    struct explain_job job;
    const char *name;                /* of the algorithm */
    double time_s, efficiency, each; /* bytes that a rank gives */
};
/* From one host (or one rank) to the job's. Strong: the ranks together give as much as in the first row. */
uint32_t weft_sim_scale(const struct explain_job *job, bool is_strong,
                        struct sim_size size[SIM_SIZES_MAX]);
void weft_sim_scaling_print(const struct explain_job *job, bool is_strong);
void weft_sim_scaling_json(struct weft_cli_json *json, const struct explain_job *job,
                           bool is_strong);

#endif
