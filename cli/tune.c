/* SPDX-License-Identifier: Apache-2.0 */
/* weft tune: finds how messages are best cut and spread over lanes here, and keeps it as a profile. */
#include "tune.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((int64_t)1 << 30)
#define INFLIGHT 4
#define SEARCH_MS 30000
#define EXHAUSTIVE_MS 1000 /* for each setting */
#define USUAL_MS 500
#define BODY_LEN 2048

static uint64_t bytes = (uint64_t)4 << 20, time_ms;
static const char *output;
static bool is_exhaustive, is_json;

static const struct weft_cli_option options[] = {
    {"output", 'o', WEFT_CLI_TEXT, "FILE", "where the profile goes, default ~/.config/weft/profile",
     &output, 0, 0},
    {"bytes", 'b', WEFT_CLI_SIZE, "SIZE", "of one message, default 4M", &bytes, 131072, BYTES_MAX},
    {"time", 't', WEFT_CLI_DURATION, "SECONDS", "for the whole search, default 30", &time_ms, 1000,
     86400000},
    {"exhaustive", 0, WEFT_CLI_FLAG, NULL, "every setting, all equally long: minutes",
     &is_exhaustive, 0, 0},
    {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &is_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "tune",
    .summary = "Find the window, chunk size, lanes per NIC and strategy that move long messages "
               "fastest over\n"
               "tcp, and write them to a profile, which later runs load (`weft params` shows the "
               "origin).\n"
               "Alone it measures between two ranks of this host, over loopback; under a launcher "
               "with two\n"
               "ranks, between their hosts, and each host gets its profile.",
    .usage = "[p2p] [options], or: weft tune collectives [options]",
    .options = options,
    .examples = {"srun -N 2 -n 2 weft tune", "weft lab --nics 4 -- weft tune --output lab.profile"},
};

void weft_tune_space(struct tune_space *space_p)
{
    *space_p = (struct tune_space){
        .count = {5, 7, 3, 2},
        .value = {{8, 16, 32, 64, 128},
                  {64u << 10, 128u << 10, 256u << 10, 512u << 10, 1u << 20, 2u << 20, 4u << 20},
                  {1, 2, 4},
                  {TUNE_SPLIT, TUNE_RR}},
        .usual = {{1, 3, 0, 0}},
    };
}

const char *weft_tune_strategy_name(uint32_t strategy)
{
    return strategy == TUNE_RR ? "rr" : "split";
}

/* ---- the search, with ranks and a progress line ---- */

struct tuning {
    struct tune_space space;
    struct tune_search search;
    struct tune_pair *pair;
    struct tune_point usual;
};

static uint64_t read_clock(void *context)
{
    (void)context;
    return weft_clock_ns();
}

static void show_progress(const struct tuning *tuning)
{
    const struct tune_search *search = &tuning->search;
    double part = search->is_exhaustive
                      ? (double)search->count / weft_tune_space_size(&tuning->space)
                      : weft_tune_progress(search);
    double best = 0;
    char bar[21];
    for (unsigned i = 0; i < search->count; i++) {
        best = search->point[i].gbs > best ? search->point[i].gbs : best;
    }
    for (unsigned i = 0; i < sizeof(bar) - 1; i++) {
        bar[i] = i < part * (sizeof(bar) - 1) ? '#' : '.';
    }
    bar[sizeof(bar) - 1] = '\0';
    weft_cli_progress("tune [%s] %3.0f %%, %.0f s left, %u settings, best %.3f GB/s", bar,
                      100 * part, (1 - part) * (double)search->budget_ms / 1e3, search->count,
                      best);
}

static bool measure(void *context, const struct tune_setting *setting, uint64_t ms,
                    double hopeless_gbs, struct tune_point *point)
{
    struct tuning *tuning = context;
    struct tune_values values;
    weft_tune_values(&tuning->space, setting, &values);
    show_progress(tuning);
    return weft_tune_pair_measure(tuning->pair, &values, ms, hopeless_gbs, point);
}

static bool measure_usual(struct tuning *tuning)
{
    struct tune_values usual = {.is_usual = true};
    bool is_fine = weft_tune_pair_measure(tuning->pair, &usual, USUAL_MS, 0, &tuning->usual);
    weft_tune_point_rate(&tuning->usual);
    return is_fine;
}

static bool run_search(struct tuning *tuning)
{
    weft_tune_space(&tuning->space);
    tuning->search = (struct tune_search){
        .space = &tuning->space,
        .budget_ms = time_ms > 0 ? time_ms
                     : is_exhaustive
                         ? (uint64_t)weft_tune_space_size(&tuning->space) * EXHAUSTIVE_MS
                         : SEARCH_MS,
        .is_exhaustive = is_exhaustive,
        .measure = measure,
        .clock = read_clock,
        .context = tuning,
    };
    bool is_fine = weft_tune_search(&tuning->search) && measure_usual(tuning);
    weft_cli_progress_clear();
    return is_fine;
}

/* ---- what comes of it ---- */

static void make_body(const struct tuning *tuning, char body[BODY_LEN])
{
    const struct tune_search *search = &tuning->search;
    const struct tune_point *best = &search->point[search->best];
    struct tune_values values;
    char *how;
    weft_tune_values(&tuning->space, &best->setting, &values);
    how = weft_cli_format("tcp from %s to %s, %.3f GB/s, without a profile %.3f GB/s",
                          weft_tune_pair_host(tuning->pair, 0),
                          weft_tune_pair_host(tuning->pair, 1), best->gbs, tuning->usual.gbs);
    weft_tune_profile_body(&values, how, body, BODY_LEN);
    free(how);
}

/* Where the profile goes; NULL: nowhere. A lab's NICs are not this machine's: its profile is kept only
 * when somebody says where. */
static const char *choose_path(bool is_told)
{
    static char path[WEFT_PROFILE_PATH_LEN];
    const char *lab = getenv("WEFT_LAB");
    if (output != NULL) {
        return output;
    }
    if (lab != NULL && lab[0] != '\0') {
        if (is_told) {
            fprintf(stderr, "weft tune: no profile written, as this is a lab: --output FILE\n");
        }
        return NULL;
    }
    if (!weft_profile_path(path)) {
        if (is_told) {
            fprintf(stderr, "weft tune: no profile written, as HOME is not set: --output FILE\n");
        }
        return NULL;
    }
    return path;
}

static int lead(struct tuning *tuning, const char *path)
{
    char body[BODY_LEN], why[TUNE_TEXT_LEN];
    int status = WEFT_CLI_OK;
    if (!run_search(tuning)) {
        weft_cli_progress_clear();
        return weft_cli_fail(&command, "%s", weft_tune_pair_why(tuning->pair));
    }
    make_body(tuning, body);
    if (path != NULL && !weft_tune_profile_write(path, body, why)) {
        status = weft_cli_fail(&command, "%s", why);
        path = NULL;
    }
    struct tune_report report = {
        .search = &tuning->search,
        .usual = &tuning->usual,
        .hosts = {weft_tune_pair_host(tuning->pair, 0), weft_tune_pair_host(tuning->pair, 1)},
        .bytes = (size_t)bytes,
        .inflight = INFLIGHT,
        .profile = path,
    };
    if (is_json && !weft_tune_print_json(&report)) {
        status = WEFT_CLI_FAILED;
    } else if (!is_json) {
        weft_tune_print_table(&report);
    }
    if (!weft_tune_pair_finish(tuning->pair, body)) {
        status = weft_cli_fail(&command, "%s", weft_tune_pair_why(tuning->pair));
    }
    return status;
}

/* The other host's rank: it takes the same settings, with a word on its own machine. */
static int follow(struct tuning *tuning, const char *path)
{
    char why[TUNE_TEXT_LEN];
    const char *body;
    if (!weft_tune_pair_serve(tuning->pair, &body)) {
        return weft_cli_fail(&command, "rank 1: %s", weft_tune_pair_why(tuning->pair));
    }
    if (path != NULL && !weft_tune_pair_is_local(tuning->pair) &&
        !weft_tune_profile_write(path, body, why)) {
        return weft_cli_fail(&command, "on %s: %s", weft_tune_pair_host(tuning->pair, 1), why);
    }
    return WEFT_CLI_OK;
}

int weft_cli_tune(int argc, char **argv)
{
    struct tune_pair_spec spec = {.inflight = INFLIGHT};
    char why[TUNE_TEXT_LEN];
    if (argc > 1 && strcmp(argv[1], "collectives") == 0) {
        return weft_cli_tune_collectives(argc - 1, argv + 1);
    }
    int rest, status = weft_cli_parse(&command, argc, argv, &rest);
    if (status >= 0) {
        return status;
    }
    if (rest < argc && strcmp(argv[rest], "p2p") != 0) {
        return weft_cli_usage_error(&command, "\"%s\" cannot be tuned: p2p and collectives can",
                                    argv[rest]);
    }
    if (argc - rest > 1) {
        return weft_cli_usage_error(&command, "one word at most, not \"%s\" too", argv[rest + 1]);
    }
    if (!weft_tune_profile_has_folder(output, why)) {
        return weft_cli_usage_error(&command, "%s", why);
    }
    spec.bytes = (size_t)bytes;
    struct tuning *tuning = weft_cli_alloc(1, sizeof(*tuning));
    tuning->pair = weft_tune_pair_open(&spec, why);
    if (tuning->pair == NULL) {
        free(tuning);
        return weft_cli_fail(&command, "%s", why);
    }
    bool is_lead = weft_tune_pair_rank(tuning->pair) == 0;
    const char *path = choose_path(is_lead);
    status = is_lead ? lead(tuning, path) : follow(tuning, path);
    weft_tune_pair_close(tuning->pair);
    weft_tune_search_close(&tuning->search);
    free(tuning);
    return status;
}
