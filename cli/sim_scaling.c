/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How time grows with the job, from one host (of a job of one host: from one rank) to its size. Weak: every
 * rank gives as much as in the job that was asked for. Strong: all ranks together give as much in every
 * row, each 1/n of it.
 */
#include "sim.h"

#include <stdlib.h>

static bool is_vector(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_BROADCAST || coll == WEFT_REDUCE;
}

/* 1, 2, 4, …, or 1, 4, 16, …, and the number itself. */
static uint32_t count_up(uint32_t most, uint32_t numbers[SIM_SIZES_MAX])
{
    uint32_t count = 0, factor = most > 1024 ? 4 : 2;

    for (uint64_t number = 1; number < most && count < SIM_SIZES_MAX - 1; number *= factor) {
        numbers[count++] = (uint32_t)number;
    }
    numbers[count++] = most;
    return count;
}

static struct explain_job resize(const struct explain_job *job, uint32_t number)
{
    struct explain_job other = *job;

    if (job->facts.hosts > 1) {
        other.facts.hosts = number;
        other.facts.ranks =
            number == job->facts.hosts ? job->facts.ranks : number * job->facts.host_ranks;
    } else {
        other.facts.ranks = other.facts.host_ranks = number;
    }
    other.ask.root = job->ask.root % other.facts.ranks;
    return other;
}

static void fill(struct sim_size *size, const struct sim_size *first, const struct explain_job *job,
                 bool is_strong)
{
    double n = size->job.facts.ranks, n_first = first->job.facts.ranks, n_asked = job->facts.ranks;
    bool vector = is_vector(job->ask.coll);
    struct weft_plan plan;

    /* what a rank gives in the weak case; the strong one begins with the same */
    double each = vector ? job->ask.bytes : job->ask.bytes / n_asked;
    size->each = is_strong ? each * n_first / n : each;
    size->job.ask.bytes = vector ? size->each : size->each * n;
    if (weft_plan_predict(&size->job.facts, &size->job.ask, &plan, &size->time_s) == WEFT_OK) {
        size->name = plan.builder->name;
        double ideal = is_strong ? first->time_s * n_first / n : first->time_s;
        size->efficiency = size->time_s > 0 ? ideal / size->time_s : 0;
    }
}

uint32_t weft_sim_scale(const struct explain_job *job, bool is_strong,
                        struct sim_size size[SIM_SIZES_MAX])
{
    uint32_t numbers[SIM_SIZES_MAX];
    uint32_t count = count_up(job->facts.hosts > 1 ? job->facts.hosts : job->facts.ranks, numbers);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct sim_size *it = &size[kept];
        *it = (struct sim_size){.job = resize(job, numbers[i]), .name = "none", .time_s = -1};
        if (it->job.facts.ranks < 2 && count > 1) {
            continue; /* alone there is nothing to compare with */
        }
        weft_cli_progress("%s scaling: %u ranks", is_strong ? "strong" : "weak",
                          it->job.facts.ranks);
        fill(it, &size[0], job, is_strong);
        if (kept == 0) {
            it->efficiency = 1;
        }
        kept++;
    }
    weft_cli_progress_clear();
    return kept;
}

void weft_sim_scaling_print(const struct explain_job *job, bool is_strong)
{
    static const struct weft_cli_column columns[] = {
        {"ranks", true}, {"hosts", true},      {"bytes/rank", true}, {"algorithm", false},
        {"time", true},  {"busbw GB/s", true}, {"efficiency", true}};
    struct sim_size *size = weft_cli_alloc(SIM_SIZES_MAX, sizeof(*size));
    uint32_t count = weft_sim_scale(job, is_strong, size);
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));
    char text[EXPLAIN_WORD_LEN];

    for (uint32_t i = 0; i < count; i++) {
        double busbw = weft_sim_busbw(&size[i].job, size[i].time_s);
        weft_cli_table_cell(table, "%u", size[i].job.facts.ranks);
        weft_cli_table_cell(table, "%u", size[i].job.facts.hosts);
        weft_cli_table_cell(table, "%s", weft_explain_bytes(size[i].each, text));
        weft_cli_table_cell(table, "%s", size[i].name);
        weft_cli_table_cell(table, "%s", weft_explain_time(size[i].time_s, text));
        if (busbw >= 0 && size[i].time_s > 0) {
            weft_cli_table_cell(table, "%.3g", busbw);
        } else {
            weft_cli_table_cell(table, "-");
        }
        weft_cli_table_cell(table, "%.1f %%", 100 * size[i].efficiency);
    }
    printf("\n%s\n", is_strong ? "strong scaling: all ranks together give the same"
                               : "weak scaling: every rank gives the same");
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
    free(size);
}

void weft_sim_scaling_json(struct weft_cli_json *json, const struct explain_job *job,
                           bool is_strong)
{
    struct sim_size *size = weft_cli_alloc(SIM_SIZES_MAX, sizeof(*size));
    uint32_t count = weft_sim_scale(job, is_strong, size);

    weft_cli_json_array(json, is_strong ? "strong" : "weak");
    for (uint32_t i = 0; i < count; i++) {
        weft_cli_json_object(json, NULL);
        weft_cli_json_int(json, "ranks", size[i].job.facts.ranks);
        weft_cli_json_int(json, "hosts", size[i].job.facts.hosts);
        weft_cli_json_real(json, "bytes", size[i].job.ask.bytes);
        weft_cli_json_text(json, "algo", size[i].name);
        weft_cli_json_real(json, "time_us", size[i].time_s * 1e6);
        weft_cli_json_real(json, "busbw_gbs", weft_sim_busbw(&size[i].job, size[i].time_s));
        weft_cli_json_real(json, "efficiency", size[i].efficiency);
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
    free(size);
}
