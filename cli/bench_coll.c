/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft bench allreduce, reduce_scatter, … barrier: what nccl-tests measures, beside what the machine gives.
 * Here: options, and running the plan. The ranks are processes that it forks, or it is itself one rank of
 * a job that a launcher has started.
 */
#include "bench_coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

#define RANKS_MAX 1024
#define BYTES_MAX ((int64_t)64 << 30)
#define PATIENCE_MS 40000 /* a crew that stands still for so long is killed */

/* ---- running it ---- */

struct watch {
    const struct coll_plan *plan;
    struct coll_shared *shared;
};

void weft_bench_coll_progress(const struct coll_plan *plan, size_t cells_done)
{
    char size[24];
    if (cells_done < plan->count) {
        const struct coll_cell *cell = &plan->cell[cells_done];
        weft_cli_progress("%s, %d ranks: %s %s, %.0f %%", weft_coll_name(plan->arguments->coll),
                          plan->ranks, weft_cli_print_size(cell->bytes, size),
                          cell->algo != NULL ? cell->algo : "",
                          100.0 * (double)cells_done / (double)plan->count);
    }
}

static void show_progress(uint64_t steps, void *context)
{
    const struct watch *watch = context;
    (void)steps; /* batches: their number says little */
    weft_bench_coll_progress(watch->plan, (size_t)atomic_load(&watch->shared->cells_done));
}

/* false: why says what went wrong. */
static bool run_crew(struct coll_plan *plan, struct coll_report *report, char *why)
{
    struct weft_crew_spec spec = {
        .ranks = plan->ranks,
        .shared_len = weft_bench_coll_shared_len(plan),
        .stall_ms = PATIENCE_MS,
        .body = weft_bench_coll_rank,
        .context = plan,
    };
    struct weft_crew *crew = weft_crew_open(&spec);
    if (crew == NULL) {
        snprintf(why, WEFT_CREW_TEXT_LEN, "no shared memory for %d ranks: %s", plan->ranks,
                 strerror(errno));
        return false;
    }
    struct watch watch = {.plan = plan, .shared = weft_crew_shared(crew)};
    bool is_fine = weft_crew_run(crew, show_progress, &watch, why);
    weft_cli_progress_clear();
    if (is_fine) {
        weft_bench_coll_report_add(report, plan, watch.shared);
    }
    weft_crew_close(crew);
    return is_fine;
}

static bool run_own(const struct coll_arguments *arguments, struct coll_report *report, char *why)
{
    bool is_fine = true;
    for (unsigned i = 0; is_fine && i < arguments->ranks.count; i++) {
        struct coll_plan plan;
        weft_bench_coll_plan(arguments, (int)arguments->ranks.value[i], false, &plan);
        is_fine = run_crew(&plan, report, why);
        free(plan.cell);
    }
    return is_fine;
}

static bool run_in_job(const struct coll_arguments *arguments, const struct weft_bench_job *job,
                       struct coll_report *report, char *why)
{
    struct coll_plan plan;
    weft_bench_coll_plan(arguments, job->ranks, !job->is_one_host, &plan);
    size_t len = (weft_bench_coll_shared_len(&plan) + 63) / 64 * 64;
    struct coll_shared *shared = aligned_alloc(64, len);
    why[0] = '\0';
    if (shared == NULL) {
        snprintf(why, WEFT_CREW_TEXT_LEN, "no memory for the results");
        free(plan.cell);
        return false;
    }
    memset(shared, 0, len);
    struct coll_rank rank = {
        .ground = &weft_bench_coll_job_ground,
        .plan = &plan,
        .shared = shared,
        .rank = job->rank,
        .why = why,
    };
    bool is_fine = weft_bench_coll_serve(&rank);
    weft_cli_progress_clear();
    if (is_fine && job->rank == 0) {
        report->hosts = shared->hosts;
        weft_bench_coll_report_add(report, &plan, shared);
    }
    free(shared);
    free(plan.cell);
    return is_fine;
}

/* Of a job only rank 0 has something to show. -1: shown. */
static int show(const struct weft_cli_command *command, const struct coll_arguments *arguments,
                const struct coll_report *report)
{
    bool is_written = true;
    if (arguments->is_json) {
        is_written = weft_bench_coll_print_json(arguments, report, stdout);
    } else {
        weft_bench_coll_print_tables(arguments, report);
        is_written = fflush(stdout) == 0;
    }
    if (!is_written) {
        return weft_cli_fail(command, "cannot write the result");
    }
    if (arguments->report != NULL) {
        char *why = NULL;
        if (!weft_bench_coll_write_page(arguments, report, &why)) {
            int exit_status = weft_cli_fail(command, "no page: %s", why);
            free(why);
            return exit_status;
        }
        fprintf(arguments->is_json ? stderr : stdout, "the page: %s\n", arguments->report);
    }
    return -1;
}

/* job: NULL: the ranks are our own. */
static int run_all(const struct weft_cli_command *command, const struct coll_arguments *arguments,
                   const struct weft_bench_job *job)
{
    struct coll_report report = {0};
    char why[WEFT_CREW_TEXT_LEN];
    int exit_status = -1;

    weft_bench_raise_fd_limit();
    bool is_fine =
        job != NULL ? run_in_job(arguments, job, &report, why) : run_own(arguments, &report, why);
    if ((is_fine || !arguments->is_json) && report.count > 0) {
        exit_status = show(command, arguments, &report);
    }
    const struct coll_row *wrong = weft_bench_coll_first_wrong(&report);
    if (!is_fine) {
        exit_status = weft_cli_fail(command, "%s", why);
    } else if (wrong != NULL) {
        exit_status = weft_cli_fail(command, "%d ranks: %s", wrong->ranks, wrong->outcome.why);
    }
    free(report.row);
    return exit_status >= 0 ? exit_status : WEFT_CLI_OK;
}

/* ---- options ---- */

static bool read_path(const char *text, enum coll_path *path_p)
{
    static const char *const names[] = {
        [COLL_AUTO] = "auto", [COLL_SHM] = "shm", [COLL_TCP] = "tcp"};
    for (enum coll_path path = COLL_AUTO; path <= COLL_TCP; path++) {
        if (strcmp(text, names[path]) == 0) {
            *path_p = path;
            return true;
        }
    }
    return false;
}

static bool read_types(struct coll_arguments *arguments)
{
    bool has_dtype = false, has_redop = false;
    for (unsigned i = 0; i < WEFT_DTYPES; i++) {
        if (strcmp(arguments->dtype_name, weft_dtype_name((weft_dtype_t)i)) == 0) {
            arguments->dtype = (weft_dtype_t)i;
            has_dtype = true;
        }
    }
    for (unsigned i = 0; i < WEFT_REDOPS; i++) {
        if (strcmp(arguments->redop_name, weft_redop_name((weft_redop_t)i)) == 0) {
            arguments->redop = (weft_redop_t)i;
            has_redop = true;
        }
    }
    return has_dtype && has_redop;
}

static bool is_float(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64 ||
           dtype == WEFT_F8E4M3 || dtype == WEFT_F8E5M2;
}

static int refuse_types(const struct weft_cli_command *command, struct coll_arguments *arguments)
{
    if (!read_types(arguments)) {
        return weft_cli_usage_error(command,
                                    "-d %s -o %s: expected i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 "
                                    "f32 f64 f8e4m3 f8e5m2, and "
                                    "sum prod min max avg band bor bxor scaled",
                                    arguments->dtype_name, arguments->redop_name);
    }
    bool is_bits = arguments->redop == WEFT_BAND || arguments->redop == WEFT_BOR ||
                   arguments->redop == WEFT_BXOR;
    if ((is_bits && is_float(arguments->dtype)) ||
        (arguments->redop == WEFT_SCALED && !is_float(arguments->dtype))) {
        return weft_cli_usage_error(command, "-o %s is not defined for -d %s",
                                    arguments->redop_name, arguments->dtype_name);
    }
    return -1;
}

static int refuse_algo(const struct weft_cli_command *command,
                       const struct coll_arguments *arguments)
{
    char *names = NULL;
    if (arguments->algo == NULL) {
        return -1;
    }
    bool is_known = weft_bench_coll_knows_algo(arguments->coll, arguments->algo, &names);
    int exit_status = is_known ? -1
                               : weft_cli_usage_error(command, "--algo %s: expected one of %s",
                                                      arguments->algo, names);
    free(names);
    return exit_status;
}

/* What the option table cannot say. -1: fine. */
static int refuse(const struct weft_cli_command *command, struct coll_arguments *arguments)
{
    int exit_status = refuse_types(command, arguments);
    exit_status = exit_status >= 0 ? exit_status : refuse_algo(command, arguments);
    if (exit_status >= 0) {
        return exit_status;
    }
    if (arguments->path_name == NULL) {
        arguments->path_name = getenv("WEFT_PATH"); /* the limit must be that of the path */
    }
    if (arguments->path_name != NULL && !read_path(arguments->path_name, &arguments->path)) {
        return weft_cli_usage_error(command, "--path (or WEFT_PATH) %s: expected auto, shm or tcp",
                                    arguments->path_name);
    }
    arguments->is_shared_alloc = strcmp(arguments->alloc, "shared") == 0;
    if (!arguments->is_shared_alloc && strcmp(arguments->alloc, "private") != 0) {
        return weft_cli_usage_error(command, "--alloc %s: expected private or shared",
                                    arguments->alloc);
    }
    if (arguments->is_inplace && arguments->is_outplace) {
        return weft_cli_usage_error(command, "--inplace and --outplace exclude each other");
    }
    if (arguments->is_inplace && arguments->coll == WEFT_ALLTOALL) {
        return weft_cli_usage_error(command, "--inplace: alltoall is never in place");
    }
    if (arguments->min_bytes > arguments->max_bytes) {
        return weft_cli_usage_error(command, "--minbytes %llu is more than --maxbytes %llu",
                                    (unsigned long long)arguments->min_bytes,
                                    (unsigned long long)arguments->max_bytes);
    }
    return -1;
}

/* Once it is known how many ranks there are. -1: fine. */
static int refuse_ranks(const struct weft_cli_command *command,
                        const struct coll_arguments *arguments, const struct weft_bench_job *job)
{
    for (unsigned i = 0; i < arguments->ranks.count; i++) {
        int64_t ranks = arguments->ranks.value[i];
        if (job != NULL && ranks != job->ranks) {
            return weft_cli_usage_error(
                command, "--ranks %lld: this is rank %d of a job of %d, as its launcher says",
                (long long)ranks, job->rank, job->ranks);
        }
        if (arguments->root >= ranks) {
            return weft_cli_usage_error(command, "--root %lld: there are %lld ranks",
                                        (long long)arguments->root, (long long)ranks);
        }
    }
    return -1;
}

/* The ranks inherit it. */
static void set_environment(const struct coll_arguments *arguments)
{
    char text[24];
    if (arguments->path_name != NULL) {
        setenv("WEFT_PATH", arguments->path_name, 1);
    }
    if (arguments->lanes > 0) {
        snprintf(text, sizeof(text), "%lld", (long long)arguments->lanes);
        setenv("WEFT_LANES", text, 1);
    }
}

/* Its own ranks, or as a rank of a job. */
static int begin(const struct weft_cli_command *command, struct coll_arguments *arguments)
{
    struct weft_bench_job job = {0};
    set_environment(arguments);
    enum weft_bench_launch launch = weft_bench_find_job(&job);
    if (launch == WEFT_BENCH_BROKEN_JOB) {
        return weft_cli_fail(command, "%s", weft_error_text());
    }
    bool is_job = launch == WEFT_BENCH_IN_JOB;
    if (arguments->ranks.count == 0) {
        unsigned cpus = weft_topo_cpus("");
        arguments->ranks = (struct weft_cli_list){.count = 1,
                                                  .value = {is_job     ? job.ranks
                                                            : cpus > 2 ? (int64_t)cpus
                                                                       : 2}};
    }
    int exit_status = refuse_ranks(command, arguments, is_job ? &job : NULL);
    return exit_status >= 0 ? exit_status : run_all(command, arguments, is_job ? &job : NULL);
}

static int parse_and_begin(const struct weft_cli_option *options, int argc, char **argv,
                           struct coll_arguments *arguments)
{
    const char *op = weft_coll_name(arguments->coll);
    char *name = weft_cli_format("bench %s", op);
    char *first = weft_cli_format("weft bench %s -n 2,8 -b 8 -e 64M -f 8 --report %s.html", op, op);
    char *second = weft_cli_format("weft run -n 4 -- weft bench %s --path tcp --json", op);
    const struct weft_cli_command command = {
        .name = name,
        .summary =
            "time of the collective as nccl-tests has it, but the slowest rank's; results are\n"
            "checked; as a rank of a job, under a launcher",
        .usage = "[options]",
        .options = options,
        .examples = {first, second},
    };
    int rest = argc;
    int exit_status = weft_cli_parse(&command, argc, argv, &rest);
    if (exit_status < 0 && rest < argc) {
        exit_status = weft_cli_usage_error(&command, "\"%s\" is not an option", argv[rest]);
    }
    exit_status = exit_status >= 0 ? exit_status : refuse(&command, arguments);
    exit_status = exit_status >= 0 ? exit_status : begin(&command, arguments);
    free(name);
    free(first);
    free(second);
    return exit_status;
}

int weft_cli_bench_coll(weft_coll_t coll, int argc, char **argv)
{
    struct coll_arguments arguments = {
        .coll = coll,
        .dtype_name = "f32",
        .redop_name = "sum",
        .alloc = "private",
        .min_bytes = 8,
        .max_bytes = (uint64_t)64 << 20,
        .time_ms = 200,
        .factor = 2,
        .warmup = -1,
        .check = 1,
        .root = -1,
    };
    const struct weft_cli_option options[] = {
        {"ranks", 'n', WEFT_CLI_LIST, "LIST",
         "how many ranks; a list runs each (one per CPU, or the job's)", &arguments.ranks, 1,
         RANKS_MAX},
        {"minbytes", 'b', WEFT_CLI_SIZE, "BYTES", "smallest buffer (8)", &arguments.min_bytes, 1,
         BYTES_MAX},
        {"maxbytes", 'e', WEFT_CLI_SIZE, "BYTES", "largest buffer (64M)", &arguments.max_bytes, 1,
         BYTES_MAX},
        {"stepfactor", 'f', WEFT_CLI_INT, "N", "from one size to the next (2)", &arguments.factor,
         2, 1 << 30},
        {"datatype", 'd', WEFT_CLI_TEXT, "TYPE",
         "i8 … u64, f16, bf16, f32, f64, f8e4m3, f8e5m2 (f32)", &arguments.dtype_name, 0, 0},
        {"op", 'o', WEFT_CLI_TEXT, "OP", "sum, prod, min, max, avg, band, bor, bxor, scaled (sum)",
         &arguments.redop_name, 0, 0},
        {"root", 'r', WEFT_CLI_INT, "RANK",
         "one root (broadcast, reduce: every rank in turn; gather, scatter: 0)", &arguments.root, 0,
         RANKS_MAX - 1},
        {"inplace", 0, WEFT_CLI_FLAG, NULL, "only in place (both)", &arguments.is_inplace, 0, 0},
        {"outplace", 0, WEFT_CLI_FLAG, NULL, "only out of place", &arguments.is_outplace, 0, 0},
        {"algo", 0, WEFT_CLI_TEXT, "NAME", "this algorithm, or all: one row each (the best)",
         &arguments.algo, 0, 0},
        {"path", 0, WEFT_CLI_TEXT, "PATH", "auto, shm or tcp (as WEFT_PATH says, else auto)",
         &arguments.path_name, 0, 0},
        {"lanes", 0, WEFT_CLI_INT, "N", "connections over each NIC (as WEFT_LANES says)",
         &arguments.lanes, 1, 8},
        {"alloc", 0, WEFT_CLI_TEXT, "KIND", "buffers: private, or shared, of weft_alloc (private)",
         &arguments.alloc, 0, 0},
        {"iters", 0, WEFT_CLI_INT, "N", "operations of a batch; with --single of all (by time)",
         &arguments.iters, 1, 10000000},
        {"warmup", 0, WEFT_CLI_INT, "N", "operations before (by time)", &arguments.warmup, 1,
         10000000},
        {"time", 0, WEFT_CLI_DURATION, "T", "how long the batches of a row take, about (200ms)",
         &arguments.time_ms, 1, 3600000},
        {"single", 0, WEFT_CLI_FLAG, NULL, "time every operation by itself", &arguments.is_single,
         0, 0},
        {"check", 'c', WEFT_CLI_INT, "0|1", "check every element, outside the clock (1)",
         &arguments.check, 0, 1},
        {"report", 0, WEFT_CLI_TEXT, "FILE", "write a page with curves, FILE.html",
         &arguments.report, 0, 0},
        {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &arguments.is_json, 0, 0},
        {0},
    };
    return parse_and_begin(options, argc, argv, &arguments);
}
