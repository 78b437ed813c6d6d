/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft bench bootstrap: how long an authenticated start takes, beside the fastest bare star we can
 * write, interleaved in one run; then small control operations on one communicator.
 */
#include "bench_bootstrap.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

#define DEFAULT_ITERS 20
#define OPERATIONS_PER_ITER 50
#define WARMUP_OPERATIONS 10
#define RANKS_MAX 8192
#define PATIENCE_MS 40000 /* a crew that stands still for so long is killed */

struct arguments {
    struct weft_cli_list ranks;
    int64_t iters; /* 0: DEFAULT_ITERS, fewer for many ranks */
    int64_t warmup;
    const char *join; /* NULL: auto, and direct beside it */
    uint64_t len;
    bool is_json;
};

struct row {
    struct bootstrap_series series;
    int ranks;
    struct weft_bench_figures figures;
    double ratio; /* NaN: not comparable */
};

struct report {
    struct row *row; /* owned */
    size_t count;
};

static const char *const op_names[] = {
    [BOOTSTRAP_CONTROL] = "control",
    [BOOTSTRAP_START] = "start",
    [BOOTSTRAP_ALLGATHER] = "allgather",
    [BOOTSTRAP_BARRIER] = "barrier",
};

/* ---- the plan ---- */

static void plan_add(struct bootstrap_plan *plan, enum bootstrap_kind kind, const char *join,
                     int count)
{
    plan->series[plan->count++] = (struct bootstrap_series){
        .kind = kind,
        .join = join,
        .count = (size_t)count,
        .first = plan->samples,
    };
    plan->samples += (size_t)count;
}

/* On few cores a thousand ranks need a second per start and its closing: fewer show as much. */
static int default_iters(int ranks)
{
    return ranks <= 64 ? DEFAULT_ITERS : ranks <= 256 ? DEFAULT_ITERS / 2 : DEFAULT_ITERS / 4;
}

static void plan_make(const struct arguments *arguments, int ranks, struct bootstrap_plan *plan_p)
{
    const char *join = arguments->join != NULL ? arguments->join : "auto";
    int iters = arguments->iters > 0 ? (int)arguments->iters : default_iters(ranks);
    *plan_p = (struct bootstrap_plan){
        .ranks = ranks,
        .iters = iters,
        .warmup = (int)arguments->warmup,
        .operations = iters * OPERATIONS_PER_ITER,
        .warmup_operations = WARMUP_OPERATIONS,
        .len = (size_t)arguments->len,
    };
    plan_add(plan_p, BOOTSTRAP_CONTROL, NULL, iters);
    plan_add(plan_p, BOOTSTRAP_START, join, iters);
    if (arguments->join == NULL) {
        plan_add(plan_p, BOOTSTRAP_START, "direct", iters);
    }
    plan_p->starts = plan_p->count;
    plan_add(plan_p, BOOTSTRAP_ALLGATHER, join, plan_p->operations);
    plan_add(plan_p, BOOTSTRAP_BARRIER, join, plan_p->operations);
}

/* ---- running it ---- */

static void show_progress(uint64_t steps, void *context)
{
    const struct bootstrap_plan *plan = context;
    double done = (double)steps / (double)weft_bench_bootstrap_steps(plan);
    weft_cli_progress("bootstrap, %d ranks: %.0f %%", plan->ranks, 100 * done);
}

static void report_add(struct report *report, const struct bootstrap_plan *plan,
                       const struct bootstrap_shared *shared)
{
    double control_us = NAN;
    report->row =
        weft_cli_grow(report->row, report->count + (size_t)plan->count, sizeof(report->row[0]));
    for (int k = 0; k < plan->count; k++) {
        const struct bootstrap_series *series = &plan->series[k];
        struct row *row = &report->row[report->count++];
        uint64_t *samples = weft_cli_alloc(series->count, sizeof(samples[0]));
        for (size_t i = 0; i < series->count; i++) {
            samples[i] = atomic_load(&shared->sample_ns[series->first + i]);
        }
        *row = (struct row){.series = *series, .ranks = plan->ranks, .ratio = NAN};
        weft_bench_figures(samples, series->count, &row->figures);
        free(samples);
        if (series->kind == BOOTSTRAP_CONTROL) {
            control_us = row->figures.p50;
        }
        if (k < plan->starts) {
            row->ratio = row->figures.p50 / control_us;
        }
    }
}

/* false: why says what went wrong. */
static bool run_plan(struct bootstrap_plan *plan, struct report *report, char *why)
{
    struct weft_crew_spec spec = {
        .ranks = plan->ranks,
        .shared_len = sizeof(struct bootstrap_shared) + plan->samples * sizeof(_Atomic uint64_t),
        .stall_ms = PATIENCE_MS,
        .body = weft_bench_bootstrap_rank,
        .context = plan,
    };
    struct weft_crew *crew = weft_crew_open(&spec);
    if (crew == NULL) {
        snprintf(why, WEFT_CREW_TEXT_LEN, "no shared memory for %d ranks: %s", plan->ranks,
                 strerror(errno));
        return false;
    }
    bool is_fine = weft_crew_run(crew, show_progress, plan, why);
    weft_cli_progress_clear();
    if (is_fine) {
        report_add(report, plan, weft_crew_shared(crew));
    }
    weft_crew_close(crew);
    return is_fine;
}

/* ---- showing it ---- */

static void print_table(const struct arguments *arguments, const struct report *report)
{
    static const struct weft_cli_column columns[] = {
        {"op", false}, {"join", false},  {"ranks", true},     {"iters", true},
        {"min", true}, {"median", true}, {"avg", true},       {"p90", true},
        {"max", true}, {"stddev", true}, {"x control", true},
    };
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));
    for (size_t i = 0; i < report->count; i++) {
        const struct row *row = &report->row[i];
        const struct weft_bench_figures *us = &row->figures;
        weft_cli_table_cell(table, "%s", op_names[row->series.kind]);
        weft_cli_table_cell(table, "%s", row->series.join != NULL ? row->series.join : "-");
        weft_cli_table_cell(table, "%d", row->ranks);
        weft_cli_table_cell(table, "%zu", row->series.count);
        const double cells[] = {us->min, us->p50, us->avg, us->p90, us->max, us->stddev};
        for (size_t k = 0; k < WEFT_COUNT_OF(cells); k++) {
            weft_cli_table_cell(table, "%.*f", cells[k] < 10000 ? 1 : 0, cells[k]);
        }
        if (isnan(row->ratio)) {
            weft_cli_table_cell(table, "-");
        } else {
            weft_cli_table_cell(table, "%.2f", row->ratio);
        }
    }
    printf("bootstrap on %u CPUs; times in us, of the slowest rank; first %d dropped; "
           "allgather of %llu B\n"
           "control: bare TCP star without authentication; start: authenticated\n\n",
           weft_topo_cpus(""), (int)arguments->warmup, (unsigned long long)arguments->len);
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
}

static bool print_json(const struct arguments *arguments, const struct report *report)
{
    struct weft_cli_json json;
    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "bench", "bootstrap");
    weft_cli_json_object(&json, "host");
    weft_cli_json_int(&json, "cores", weft_topo_cpus(""));
    weft_cli_json_end(&json);
    weft_cli_json_object(&json, "args");
    weft_cli_json_array(&json, "ranks");
    for (unsigned i = 0; i < arguments->ranks.count; i++) {
        weft_cli_json_int(&json, NULL, arguments->ranks.value[i]);
    }
    weft_cli_json_end(&json);
    weft_cli_json_int(&json, "iters", arguments->iters > 0 ? arguments->iters : DEFAULT_ITERS);
    weft_cli_json_int(&json, "warmup", arguments->warmup);
    weft_cli_json_int(&json, "len", (int64_t)arguments->len);
    weft_cli_json_text(&json, "join", arguments->join);
    weft_cli_json_end(&json);
    weft_cli_json_array(&json, "results");
    for (size_t i = 0; i < report->count; i++) {
        const struct row *row = &report->row[i];
        weft_cli_json_object(&json, NULL);
        weft_cli_json_text(&json, "op", op_names[row->series.kind]);
        weft_cli_json_text(&json, "join", row->series.join);
        weft_cli_json_int(&json, "ranks", row->ranks);
        weft_cli_json_int(&json, "iters", (int64_t)row->series.count);
        weft_bench_json_figures(&json, &row->figures);
        weft_cli_json_real(&json, "ratio", row->ratio);
        weft_cli_json_end(&json);
    }
    return weft_cli_json_close(&json);
}

/* ---- the command ---- */

static bool is_join(const char *join)
{
    return strcmp(join, "auto") == 0 || strcmp(join, "direct") == 0 || strcmp(join, "local") == 0;
}

static int run_all(const struct weft_cli_command *command, const struct arguments *arguments)
{
    struct report report = {0};
    char why[WEFT_CREW_TEXT_LEN];
    bool is_fine = true;

    weft_bench_raise_fd_limit();
    for (unsigned i = 0; is_fine && i < arguments->ranks.count; i++) {
        struct bootstrap_plan plan;
        plan_make(arguments, (int)arguments->ranks.value[i], &plan);
        if (arguments->iters == 0 && plan.iters != DEFAULT_ITERS) {
            fprintf(stderr, "%d ranks: %d iterations instead of %d; --iters overrides\n",
                    plan.ranks, plan.iters, DEFAULT_ITERS);
        }
        is_fine = run_plan(&plan, &report, why);
    }
    bool is_written = true;
    if (arguments->is_json && is_fine) {
        is_written = print_json(arguments, &report);
    } else if (!arguments->is_json && report.count > 0) {
        print_table(arguments, &report);
        is_written = fflush(stdout) == 0;
    }
    free(report.row);
    if (!is_fine) {
        return weft_cli_fail(command, "%s", why);
    }
    return is_written ? WEFT_CLI_OK : weft_cli_fail(command, "cannot write the result");
}

int weft_cli_bench_bootstrap(int argc, char **argv)
{
    struct arguments arguments = {.ranks = {.count = 1, .value = {8}}, .warmup = 1, .len = 64};
    const struct weft_cli_option options[] = {
        {"ranks", 'n', WEFT_CLI_LIST, "LIST", "how many ranks; a list runs each (8)",
         &arguments.ranks, 1, RANKS_MAX},
        {"iters", 0, WEFT_CLI_INT, "N", "starts of each kind (20; fewer above 64 ranks)",
         &arguments.iters, 1, 100000},
        {"warmup", 0, WEFT_CLI_INT, "N", "first iterations not counted (1)", &arguments.warmup, 0,
         100000},
        {"join", 0, WEFT_CLI_TEXT, "WAY", "auto, direct or local (auto, and direct beside it)",
         &arguments.join, 0, 0},
        {"len", 0, WEFT_CLI_SIZE, "BYTES", "bytes per rank of the allgather (64)", &arguments.len,
         1, WEFT_CONTROL_MAX},
        {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &arguments.is_json, 0, 0},
        {0},
    };
    const struct weft_cli_command command = {
        .name = "bench bootstrap",
        .summary = "start-up time, allgather and barrier, beside a bare control",
        .usage = "[options]",
        .options = options,
        .examples = {"weft bench bootstrap -n 8 --iters 20",
                     "weft bench bootstrap -n 2,8,64,256 --json"},
    };
    int rest = argc;
    int exit_status = weft_cli_parse(&command, argc, argv, &rest);
    if (exit_status >= 0) {
        return exit_status;
    }
    if (rest < argc) {
        return weft_cli_usage_error(&command, "\"%s\" is not an option", argv[rest]);
    }
    if (arguments.join != NULL && !is_join(arguments.join)) {
        return weft_cli_usage_error(&command, "--join %s: expected auto, direct or local",
                                    arguments.join);
    }
    return run_all(&command, &arguments);
}
