/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft bench p2p: latency, bandwidth and puts between two ranks, and the mesh of all, each beside
 * the limit that the machine gives at that moment. Here: options, the plan, and running it.
 */
#include "bench_p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 1024
#define THREADS_MAX 256
#define BYTES_MAX ((int64_t)4 << 30)
#define PATIENCE_MS 40000 /* a crew that stands still for so long is killed */
#define WINDOW 64
#define WINDOW_BYTES ((size_t)64 << 20)  /* in flight at most, by default */
#define SLOTS_BYTES ((size_t)4 << 20)    /* of buffers in turn: what peers' benchmarks keep hot */
#define SERIES_BYTES ((size_t)640 << 20) /* per direction of a series, if iterations permit */
#define BATCH_BYTES ((size_t)2 << 30)
#define BATCHES 8

/* ---- the plan ---- */

static size_t clamp(size_t value, size_t least, size_t most)
{
    return value < least ? least : value > most ? most : value;
}

static int default_window(size_t bytes)
{
    return (int)clamp(WINDOW_BYTES / bytes, 2, WINDOW);
}

static bool is_windowed(enum p2p_op op)
{
    return op == P2P_BW || op == P2P_BIBW || op == P2P_PUT_NBI;
}

static size_t default_iters(const struct p2p_series *series, size_t pairs)
{
    size_t sample_bytes = series->bytes * (size_t)series->per_clock;
    if (series->op == P2P_MESH) {
        return clamp(20000 / pairs, 3, 500);
    }
    return clamp(SERIES_BYTES / sample_bytes, 10, series->per_clock > 1 ? 500 : 2000);
}

static struct p2p_series make_series(const struct p2p_arguments *arguments, enum p2p_op op,
                                     size_t bytes, int ranks)
{
    size_t pairs = (size_t)ranks * (size_t)(ranks - 1) / 2;
    struct p2p_series series = {.op = op, .bytes = bytes, .window = 1, .per_clock = 1};
    if (is_windowed(op)) {
        series.window = arguments->window > 0 ? (int)arguments->window : default_window(bytes);
        series.per_clock = series.window;
    } else if (op == P2P_PUT_BATCH) {
        series.window = P2P_PUTS_PER_QUIET;
        series.per_clock = P2P_PUTS_PER_QUIET;
    }
    series.slots = (int)clamp(SLOTS_BYTES / bytes, 1, (size_t)series.window);
    size_t iters = arguments->iters > 0 ? (size_t)arguments->iters : default_iters(&series, pairs);
    series.iters = (int)iters;
    series.warmup =
        (int)(arguments->warmup >= 0 ? (size_t)arguments->warmup : clamp(iters / 10, 1, 100));
    series.samples = iters;
    if (op == P2P_MESH) {
        series.slots = ranks;
        series.samples = iters * pairs;
    }
    size_t most = clamp(BATCH_BYTES / (bytes * (size_t)series.per_clock), 1, iters);
    series.batch = (int)clamp((iters + BATCHES - 1) / BATCHES, 1, most);
    return series;
}

static void plan_add(struct p2p_plan *plan, struct p2p_series series)
{
    size_t buffer_len = series.bytes * (size_t)series.slots;
    series.first = plan->samples;
    plan->series = weft_cli_grow(plan->series, plan->count + 1, sizeof(series));
    plan->series[plan->count++] = series;
    plan->samples += series.samples;
    plan->buffer_len = buffer_len > plan->buffer_len ? buffer_len : plan->buffer_len;
    plan->window_max = series.window > plan->window_max ? series.window : plan->window_max;
}

void weft_bench_p2p_plan(const struct p2p_arguments *arguments, int ranks, struct p2p_plan *plan_p)
{
    *plan_p = (struct p2p_plan){
        .ranks = ranks,
        .path = arguments->path,
        .is_threads = arguments->is_threads,
        .is_shared_alloc = arguments->is_shared_alloc,
        .is_checked = arguments->check != 0,
        .has_puts = arguments->is_wanted[P2P_PUT_NBI] || arguments->is_wanted[P2P_PUT_QUIET] ||
                    arguments->is_wanted[P2P_PUT_BATCH],
    };
    for (enum p2p_op op = P2P_LAT; op < P2P_OPS; op++) {
        uint64_t bytes = arguments->min_bytes;
        while (arguments->is_wanted[op] && bytes <= arguments->max_bytes) {
            plan_add(plan_p, make_series(arguments, op, (size_t)bytes, ranks));
            bytes = op == P2P_MESH ? UINT64_MAX : bytes * (uint64_t)arguments->factor;
        }
    }
}

size_t weft_bench_p2p_shared_len(const struct p2p_plan *plan)
{
    return sizeof(struct p2p_shared) + plan->count * sizeof(struct p2p_outcome) +
           plan->samples * sizeof(uint64_t);
}

struct p2p_outcome *weft_bench_p2p_outcomes(struct p2p_shared *shared)
{
    return (struct p2p_outcome *)(void *)(shared + 1);
}

uint64_t *weft_bench_p2p_samples(struct p2p_shared *shared, const struct p2p_plan *plan)
{
    return (uint64_t *)(void *)(weft_bench_p2p_outcomes(shared) + plan->count);
}

/* ---- running it ---- */

struct watch {
    const struct p2p_plan *plan;
    struct p2p_shared *shared;
};

static void show_progress(uint64_t steps, void *context)
{
    const struct watch *watch = context;
    size_t at = (size_t)atomic_load(&watch->shared->series_done);
    char size[24];
    (void)steps; /* batches: their number says little */
    if (at < watch->plan->count) {
        const struct p2p_series *series = &watch->plan->series[at];
        weft_cli_progress("p2p, %d ranks: %s %s, %.0f %%", watch->plan->ranks,
                          weft_bench_p2p_op_name(series->op),
                          weft_cli_print_size(series->bytes, size),
                          100.0 * (double)at / (double)watch->plan->count);
    }
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

static int run_all(const struct weft_cli_command *command, const struct p2p_arguments *arguments)
{
    struct p2p_report report = {0};
    char why[WEFT_CREW_TEXT_LEN];
    bool is_fine = true;

    weft_bench_raise_fd_limit();
    if (arguments->path_name != NULL) {
        setenv("WEFT_PATH", arguments->path_name, 1); /* the ranks inherit it */
    }
    for (unsigned i = 0; is_fine && i < arguments->ranks.count; i++) {
        struct p2p_plan plan;
        weft_bench_p2p_plan(arguments, (int)arguments->ranks.value[i], &plan);
        is_fine = run_plan(&plan, &report, why);
        free(plan.series);
    }
    bool is_written = true;
    if (arguments->is_json && is_fine) {
        is_written = weft_bench_p2p_print_json(arguments, &report);
    } else if (!arguments->is_json && report.count > 0) {
        weft_bench_p2p_print_table(arguments, &report);
        is_written = fflush(stdout) == 0;
    }
    free(report.row);
    if (!is_fine) {
        return weft_cli_fail(command, "%s", why);
    }
    if (report.wrong > 0) {
        return weft_cli_fail(command, "%s", report.wrong_text);
    }
    return is_written ? WEFT_CLI_OK : weft_cli_fail(command, "cannot write the result");
}

/* ---- options ---- */

bool weft_bench_p2p_read_modes(const char *text, bool is_wanted[P2P_OPS], const char **word_p)
{
    bool wanted[P2P_OPS] = {0};
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        bool is_known = false;
        for (enum p2p_op op = P2P_LAT; op < P2P_OPS; op++) {
            const char *name = weft_bench_p2p_op_name(op);
            bool is_it = (strlen(name) == len && strncmp(at, name, len) == 0) ||
                         (len == 3 && strncmp(at, "all", len) == 0);
            wanted[op] = wanted[op] || is_it;
            is_known = is_known || is_it;
        }
        if (!is_known) {
            *word_p = at;
            return false;
        }
        at += len;
        if (*at == '\0') {
            memcpy(is_wanted, wanted, sizeof(wanted));
            return true;
        }
    }
}

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
                                    "put_quiet, put_batch, mesh, all",
                                    (int)strcspn(word, ","), word);
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

int weft_cli_bench_p2p(int argc, char **argv)
{
    struct p2p_arguments arguments = {
        .ranks = {.count = 1, .value = {2}},
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
         "how many ranks; a list runs each; all but mesh use ranks 0 and 1 (2)", &arguments.ranks,
         2, RANKS_MAX},
        {"mode", 'm', WEFT_CLI_TEXT, "LIST",
         "lat,bw,bibw,rtt,put_nbi,put_quiet,put_batch,mesh, or all (lat,bw)", &arguments.modes, 0,
         0},
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
        {"window", 0, WEFT_CLI_INT, "N",
         "messages in flight of bw, bibw, put_nbi (64, less if big)", &arguments.window, 1, 65536},
        {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &arguments.is_json, 0, 0},
        {0},
    };
    const struct weft_cli_command command = {
        .name = "bench p2p",
        .summary = "latency, bandwidth and puts between two ranks, and the mesh of all,\n"
                   "beside what the machine itself gives",
        .usage = "[options]",
        .options = options,
        .examples = {"weft bench p2p -b 8 -e 1M -f 4 --path tcp",
                     "weft bench p2p -n 2,8 --mode lat,mesh -e 8 --json"},
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
    return exit_status >= 0 ? exit_status : run_all(&command, &arguments);
}
