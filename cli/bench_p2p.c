/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft bench p2p: latency, bandwidth and puts between two ranks, and the mesh of all, each beside
 * the limit that the machine gives at that moment. Here: options, and running the plan. The ranks are
 * processes that it forks, or it is itself one rank of a job that a launcher has started.
 */
#include "bench_p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 1024
#define THREADS_MAX 256
#define BYTES_MAX ((int64_t)4 << 30)
#define PATIENCE_MS 40000 /* a crew that stands still for so long is killed */

/* ---- running it ---- */

struct watch {
    const struct p2p_plan *plan;
    struct p2p_shared *shared;
};

void weft_bench_p2p_progress(const struct p2p_plan *plan, size_t series_done)
{
    char size[24];
    if (series_done < plan->count) {
        const struct p2p_series *series = &plan->series[series_done];
        weft_cli_progress("p2p, %d ranks: %s %s, %.0f %%", plan->ranks,
                          weft_bench_p2p_op_name(series->op),
                          weft_cli_print_size(series->bytes, size),
                          100.0 * (double)series_done / (double)plan->count);
    }
}

static void show_progress(uint64_t steps, void *context)
{
    const struct watch *watch = context;
    (void)steps; /* batches: their number says little */
    weft_bench_p2p_progress(watch->plan, (size_t)atomic_load(&watch->shared->series_done));
}

/* A crew of one process says "rank 0 of 1: " of whatever its threads say. */
static void drop_prefix(char *why)
{
    const char *text = strstr(why, ": ");
    if (text != NULL) {
        memmove(why, text + 2, strlen(text + 2) + 1);
    }
}

/* false: why says what went wrong. */
static bool run_plan(struct p2p_plan *plan, struct p2p_report *report, char *why)
{
    struct weft_crew_spec spec = {
        .ranks = plan->is_threads ? 1 : plan->ranks,
        .shared_len = weft_bench_p2p_shared_len(plan),
        .stall_ms = PATIENCE_MS,
        .body = weft_bench_p2p_rank,
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
        weft_bench_p2p_report_add(report, plan, watch.shared);
    } else if (plan->is_threads) {
        drop_prefix(why);
    }
    weft_crew_close(crew);
    return is_fine;
}

/* The ranks inherit it. */
static void set_environment(const struct p2p_arguments *arguments)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"WEFT_LANES", (uint64_t)arguments->lanes},
        {"WEFT_WINDOW", (uint64_t)arguments->window},
        {"WEFT_CHUNK", arguments->chunk},
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(numbers); i++) {
        char text[24];
        snprintf(text, sizeof(text), "%llu", (unsigned long long)numbers[i].value);
        if (numbers[i].value > 0) {
            setenv(numbers[i].name, text, 1);
        }
    }
    if (arguments->strategy != NULL) {
        setenv("WEFT_STRATEGY", arguments->strategy, 1);
    }
    if (arguments->path_name != NULL) {
        setenv("WEFT_PATH", arguments->path_name, 1);
    }
}

static bool run_own(const struct p2p_arguments *arguments, struct p2p_report *report, char *why)
{
    bool is_fine = true;
    for (unsigned i = 0; is_fine && i < arguments->ranks.count; i++) {
        struct p2p_plan plan;
        weft_bench_p2p_plan(arguments, (int)arguments->ranks.value[i], &plan);
        is_fine = run_plan(&plan, report, why);
        free(plan.series);
    }
    return is_fine;
}

static bool run_in_job(const struct p2p_arguments *arguments, const struct weft_bench_job *job,
                       struct p2p_report *report, char *why)
{
    struct p2p_plan plan;
    weft_bench_p2p_plan(arguments, job->ranks, &plan);
    bool is_fine = weft_bench_p2p_run_in_job(job, &plan, report, why);
    free(plan.series);
    return is_fine;
}

/* job: NULL: the ranks are our own. Of a job only rank 0 has something to print. */
static int run_all(const struct weft_cli_command *command, const struct p2p_arguments *arguments,
                   const struct weft_bench_job *job)
{
    struct p2p_report report = {0};
    char why[WEFT_CREW_TEXT_LEN];

    weft_bench_raise_fd_limit();
    bool is_fine =
        job != NULL ? run_in_job(arguments, job, &report, why) : run_own(arguments, &report, why);
    bool is_written = true;
    if (arguments->is_json && is_fine && (job == NULL || job->rank == 0)) {
        is_written = weft_bench_p2p_print_json(arguments, &report);
    } else if (!arguments->is_json && report.count > 0) {
        weft_bench_p2p_print_table(arguments, &report);
        is_written = fflush(stdout) == 0;
    }
    weft_bench_p2p_report_close(&report);
    if (!is_fine) {
        return weft_cli_fail(command, "%s", why);
    }
    if (report.wrong > 0) {
        return weft_cli_fail(command, "%s", report.wrong_text);
    }
    return is_written ? WEFT_CLI_OK : weft_cli_fail(command, "cannot write the result");
}

/* ---- options ---- */

static bool read_path(const char *text, enum p2p_path *path_p)
{
    static const char *const names[] = {[P2P_AUTO] = "auto", [P2P_SHM] = "shm", [P2P_TCP] = "tcp"};
    for (enum p2p_path path = P2P_AUTO; path <= P2P_TCP; path++) {
        if (strcmp(text, names[path]) == 0) {
            *path_p = path;
            return true;
        }
    }
    return false;
}

/* What the option table cannot say. -1: fine. */
static int refuse(const struct weft_cli_command *command, struct p2p_arguments *arguments)
{
    const char *word = NULL;
    if (!weft_bench_p2p_read_modes(arguments->modes, arguments->is_wanted, &word)) {
        return weft_cli_usage_error(command,
                                    "--mode: \"%.*s\" is none of lat, bw, bibw, rtt, put_nbi, "
                                    "put_quiet, put_batch, mesh, meshbw, all",
                                    (int)strcspn(word, ","), word);
    }
    if (arguments->path_name == NULL) {
        arguments->path_name = getenv("WEFT_PATH"); /* the limit must be that of the path */
    }
    if (arguments->path_name != NULL && !read_path(arguments->path_name, &arguments->path)) {
        return weft_cli_usage_error(command, "--path (or WEFT_PATH) %s: expected auto, shm or tcp",
                                    arguments->path_name);
    }
    if (arguments->strategy != NULL && strcmp(arguments->strategy, "split") != 0 &&
        strcmp(arguments->strategy, "rr") != 0 && strcmp(arguments->strategy, "auto") != 0) {
        return weft_cli_usage_error(command, "--strategy %s: expected split, rr or auto",
                                    arguments->strategy);
    }
    arguments->is_shared_alloc = strcmp(arguments->alloc, "shared") == 0;
    if (!arguments->is_shared_alloc && strcmp(arguments->alloc, "private") != 0) {
        return weft_cli_usage_error(command, "--alloc %s: expected private or shared",
                                    arguments->alloc);
    }
    if (arguments->min_bytes > arguments->max_bytes) {
        return weft_cli_usage_error(command, "--minbytes %llu is more than --maxbytes %llu",
                                    (unsigned long long)arguments->min_bytes,
                                    (unsigned long long)arguments->max_bytes);
    }
    for (unsigned i = 0; arguments->is_threads && i < arguments->ranks.count; i++) {
        if (arguments->ranks.value[i] > THREADS_MAX) {
            return weft_cli_usage_error(command, "--ranks %lld: at most %d with --threads",
                                        (long long)arguments->ranks.value[i], THREADS_MAX);
        }
    }
    return -1;
}

/* In a job, what only the command's own ranks can do. -1: fine. */
static int refuse_in_job(const struct weft_cli_command *command,
                         const struct p2p_arguments *arguments, const struct weft_bench_job *job)
{
    const struct weft_cli_list *ranks = &arguments->ranks;
    if (arguments->is_threads) {
        return weft_cli_usage_error(
            command, "--threads: this is rank %d of a job of %d, whose ranks are processes",
            job->rank, job->ranks);
    }
    for (unsigned i = 0; i < ranks->count; i++) {
        if (ranks->value[i] != job->ranks) {
            return weft_cli_usage_error(
                command, "--ranks %lld: this is rank %d of a job of %d, as its launcher says",
                (long long)ranks->value[i], job->rank, job->ranks);
        }
    }
    return -1;
}

/* Its own ranks, or as a rank of a job. */
static int begin(const struct weft_cli_command *command, struct p2p_arguments *arguments)
{
    struct weft_bench_job job = {0};
    set_environment(arguments);
    enum weft_bench_launch launch = weft_bench_find_job(&job);
    if (launch == WEFT_BENCH_BROKEN_JOB) {
        return weft_cli_fail(command, "%s", weft_error_text());
    }
    if (launch == WEFT_BENCH_IN_JOB) {
        int exit_status = refuse_in_job(command, arguments, &job);
        arguments->ranks = (struct weft_cli_list){.count = 1, .value = {job.ranks}};
        return exit_status >= 0 ? exit_status : run_all(command, arguments, &job);
    }
    if (arguments->ranks.count == 0) {
        arguments->ranks = (struct weft_cli_list){.count = 1, .value = {2}};
    }
    return run_all(command, arguments, NULL);
}

int weft_cli_bench_p2p(int argc, char **argv)
{
    struct p2p_arguments arguments = {
        .modes = "lat,bw",
        .alloc = "private",
        .min_bytes = 8,
        .max_bytes = (uint64_t)64 << 20,
        .factor = 2,
        .warmup = -1,
        .check = 1,
    };
    const struct weft_cli_option options[] = {
        {"ranks", 'n', WEFT_CLI_LIST, "LIST",
         "how many ranks; a list runs each; all but meshes use ranks 0 and 1 (2, or the job's)",
         &arguments.ranks, 2, RANKS_MAX},
        {"mode", 'm', WEFT_CLI_TEXT, "LIST",
         "lat,bw,bibw,rtt,put_nbi,put_quiet,put_batch,mesh,meshbw, or all (lat,bw)",
         &arguments.modes, 0, 0},
        {"minbytes", 'b', WEFT_CLI_SIZE, "BYTES", "smallest message; the mesh's (8)",
         &arguments.min_bytes, 1, BYTES_MAX},
        {"maxbytes", 'e', WEFT_CLI_SIZE, "BYTES", "longest message (64M)", &arguments.max_bytes, 1,
         BYTES_MAX},
        {"stepfactor", 'f', WEFT_CLI_INT, "N", "from one size to the next (2)", &arguments.factor,
         2, 1 << 30},
        {"iters", 0, WEFT_CLI_INT, "N", "samples of each row (by size)", &arguments.iters, 1,
         10000000},
        {"warmup", 0, WEFT_CLI_INT, "N", "samples before them (a tenth)", &arguments.warmup, 0,
         10000000},
        {"check", 'c', WEFT_CLI_INT, "0|1", "check every byte, outside the clock (1)",
         &arguments.check, 0, 1},
        {"path", 0, WEFT_CLI_TEXT, "PATH", "auto, shm or tcp (as WEFT_PATH says, else auto)",
         &arguments.path_name, 0, 0},
        {"alloc", 0, WEFT_CLI_TEXT, "KIND", "buffers: private, or shared, of weft_alloc (private)",
         &arguments.alloc, 0, 0},
        {"threads", 0, WEFT_CLI_FLAG, NULL, "ranks are threads of one process",
         &arguments.is_threads, 0, 0},
        {"inflight", 0, WEFT_CLI_INT, "N",
         "messages in flight of bw, bibw, put_nbi (64, less if big)", &arguments.inflight, 1,
         65536},
        {"lanes", 0, WEFT_CLI_INT, "N", "connections over each NIC (as WEFT_LANES says)",
         &arguments.lanes, 1, 8},
        {"window", 0, WEFT_CLI_INT, "N", "pieces on their way in one lane (as WEFT_WINDOW says)",
         &arguments.window, 1, 128},
        {"chunk", 0, WEFT_CLI_SIZE, "BYTES", "longest piece (as WEFT_CHUNK says)", &arguments.chunk,
         1, 16 << 20},
        {"strategy", 0, WEFT_CLI_TEXT, "HOW",
         "long messages over lanes: split, rr, auto (as WEFT_STRATEGY says)", &arguments.strategy,
         0, 0},
        {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &arguments.is_json, 0, 0},
        {0},
    };
    const struct weft_cli_command command = {
        .name = "bench p2p",
        .summary = "latency, bandwidth and puts between two ranks, and the mesh of all,\n"
                   "beside what the machine itself gives; as a rank of a job, under a launcher",
        .usage = "[options]",
        .options = options,
        .examples = {"weft bench p2p -b 8 -e 1M -f 4 --path tcp",
                     "weft lab --nics 4 --rate 1G -- weft bench p2p -m bw -b 64M"},
    };
    int rest = argc;
    int exit_status = weft_cli_parse(&command, argc, argv, &rest);
    if (exit_status >= 0) {
        return exit_status;
    }
    if (rest < argc) {
        return weft_cli_usage_error(&command, "\"%s\" is not an option", argv[rest]);
    }
    exit_status = refuse(&command, &arguments);
    return exit_status >= 0 ? exit_status : begin(&command, &arguments);
}
