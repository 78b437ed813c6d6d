/* SPDX-License-Identifier: Apache-2.0 */
/* weft explain OP: which plan an operation would run, why, what else there is, and its steps. */
#include "explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct explain_wish wish = {.bytes = (uint64_t)4 << 20};
static int64_t rounds_shown = 16;
static const char *svg_path;
static bool is_json;

static const struct weft_cli_option options[] = {
    {"ranks", 'n', WEFT_CLI_INT, "N", "how many ranks, default: what the topology has", &wish.ranks,
     1, WEFT_RANKS_MAX},
    {"bytes", 'b', WEFT_CLI_SIZE, "SIZE", "of the operation, default 4M", &wish.bytes, 0, 0},
    {"hosts", 0, WEFT_CLI_INT, "H", "spread over H hosts, default 1", &wish.hosts, 1,
     WEFT_RANKS_MAX},
    {"path", 0, WEFT_CLI_TEXT, "PATH", "between ranks of a host: shm (default) or tcp", &wish.path,
     0, 0},
    {"cores", 0, WEFT_CLI_INT, "C", "per host, default: this host's", &wish.cores, 1, 100000},
    {"topology", 't', WEFT_CLI_TEXT, "SPEC",
     "hosts=16,ranks=8,nics=4,rate=100G,latency=5us,cores=64", &wish.topology, 0, 0},
    {"root", 'r', WEFT_CLI_INT, "RANK", "of broadcast, reduce, gather, scatter, default 0",
     &wish.root, 0, WEFT_RANKS_MAX},
    {"algo", 'a', WEFT_CLI_TEXT, "NAME", "this algorithm instead of the fastest", &wish.algo, 0, 0},
    {"deterministic", 0, WEFT_CLI_FLAG, NULL, "only plans that add in rank order",
     &wish.is_deterministic, 0, 0},
    {"rounds", 0, WEFT_CLI_INT, "N", "show the steps of so many rounds, default 16", &rounds_shown,
     0, 1000000},
    {"svg", 0, WEFT_CLI_TEXT, "FILE", "also draw the steps into FILE (- is stdout)", &svg_path, 0,
     0},
    {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &is_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "explain",
    .summary =
        "Say which plan a collective operation runs for this size and topology, why, how long the\n"
        "others would take in the cost model, and what every rank does in every round.\n"
        "Obeys WEFT_ALGO, WEFT_DETERMINISTIC, WEFT_COSTS. A plan of too many steps is not run: "
        "its\n"
        "time is estimated.\n\n"
        "JSON keys: op, ranks, bytes, topology {}, algo, segments, reason, cost {time_us, "
        "parts_us,\n"
        "rounds, messages, bytes {}, copies_per_byte}, options [] {algo, segments, time_us, "
        "why_not}",
    .usage = "OP [options]   (OP: allreduce, broadcast, ...)",
    .options = options,
    .examples = {"weft explain allreduce -n 8 --bytes 4M --path tcp",
                 "weft explain broadcast -t hosts=4,ranks=2,rate=10G,latency=20us --svg plan.svg"},
};

struct answer {
    struct explain_job job;
    struct weft_plan plan;
    struct weft_plan_choice choice;
    struct weft_plan_cost cost;
    bool has_cost; /* hierarchical has no steps of its own */
};

static void run_plan(struct answer *answer)
{
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {.bytes = answer->job.ask.bytes,
                                .steps_max = weft_explain_steps_max(&answer->job.facts)};

    answer->has_cost = sim != NULL && answer->plan.builder != &weft_plan_hierarchical &&
                       weft_plan_sim_run(sim, &answer->job.facts, &answer->plan, &run,
                                         &answer->cost) == WEFT_RUN_DONE;
    weft_plan_sim_close(sim);
}

/* ---- text ---- */

static void print_options(const struct weft_plan_choice *choice)
{
    static const struct weft_cli_column columns[] = {{"algorithm", false},
                                                     {"segments", true},
                                                     {"predicted", true},
                                                     {"times", true},
                                                     {"", false}};
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));
    double best = choice->option[0].time_s;
    char time[EXPLAIN_WORD_LEN];

    for (uint32_t i = 0; i < choice->count; i++) {
        const struct weft_plan_option *option = &choice->option[i];
        weft_cli_table_cell(table, "%s", option->name);
        if (option->why_not != NULL) {
            weft_cli_table_cell(table, "-");
            weft_cli_table_cell(table, "-");
            weft_cli_table_cell(table, "-");
            weft_cli_table_cell(table, "%s", option->why_not);
            continue;
        }
        weft_cli_table_cell(table, "%u", option->segments);
        weft_cli_table_cell(table, "%s", weft_explain_time(option->time_s, time));
        if (best > 0 && option->time_s >= 0) {
            weft_cli_table_cell(table, "%.2f", option->time_s / best);
        } else {
            weft_cli_table_cell(table, "-");
        }
        weft_cli_table_cell(table, "%s", i == 0 ? "<- chosen" : "");
    }
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
}

static void print_cost(const struct answer *answer)
{
    const struct weft_plan_cost *cost = &answer->cost;
    char parts[EXPLAIN_TEXT_LEN], inside[EXPLAIN_WORD_LEN], between[EXPLAIN_WORD_LEN];

    printf("%u round%s, %llu message%s in all; a rank sends %s inside its host and %s out of it\n",
           cost->rounds, cost->rounds == 1 ? "" : "s", (unsigned long long)cost->messages,
           cost->messages == 1 ? "" : "s", weft_explain_bytes(cost->sent_inside, inside),
           weft_explain_bytes(cost->sent_between, between));
    printf("%.2f bytes written by cores per byte of a rank's data\ntime: %s\n", cost->copies,
           weft_explain_parts(&cost->parts, cost->time_s, parts));
}

static void print_phases(const struct answer *answer)
{
    struct weft_plan_phase phase[WEFT_PLAN_PHASES];
    uint32_t count = weft_plan_phases(&answer->job.facts, &answer->job.ask, phase);
    struct weft_plan_choice *choice = weft_cli_alloc(1, sizeof(*choice));
    struct weft_plan plan;
    char bytes[EXPLAIN_WORD_LEN], time[EXPLAIN_WORD_LEN];

    for (uint32_t i = 0; i < count; i++) {
        if (weft_plan_choose(&phase[i].facts, &phase[i].ask, &plan, choice) == WEFT_OK) {
            printf("phase %u    %s of %s %s: %s, %s\n", i + 1, weft_coll_name(phase[i].ask.coll),
                   weft_explain_bytes(phase[i].ask.bytes, bytes),
                   phase[i].is_between ? "between hosts, from all their ranks at once"
                                       : "inside every host",
                   choice->option[0].name, weft_explain_time(choice->option[0].time_s, time));
        }
    }
    free(choice);
}

/* The reason and, on a line of its own, what the next best would take. */
static void print_reason(const char *reason)
{
    const char *other = strstr(reason, "; ");

    printf("%.*s\n", other != NULL ? (int)(other - reason) : (int)strlen(reason), reason);
    if (other != NULL) {
        printf("%s\n", other + 2);
    }
}

static void print_answer(const struct answer *answer)
{
    char where[EXPLAIN_TEXT_LEN], bytes[EXPLAIN_WORD_LEN];
    const struct weft_plan_ask *ask = &answer->job.ask;

    printf("%s of %s, %s\n", weft_coll_name(ask->coll), weft_explain_bytes(ask->bytes, bytes),
           weft_explain_where(&answer->job.facts, where));
    print_reason(answer->choice.reason);
    printf("\n");
    print_options(&answer->choice);
    printf("\n%s: %s\n", answer->plan.builder->name, answer->plan.builder->summary);
    if (answer->plan.builder == &weft_plan_hierarchical) {
        print_phases(answer);
        return;
    }
    if (answer->has_cost) {
        print_cost(answer);
    }
    if (rounds_shown > 0) {
        printf("\nr: the rank itself; + the receiver adds it\n");
        weft_explain_steps(&answer->plan, ask->bytes, (uint32_t)rounds_shown, stdout);
    }
}

/* ---- JSON and picture ---- */

static bool write_json(const struct answer *answer)
{
    struct weft_cli_json json;

    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "command", "explain");
    weft_cli_json_text(&json, "op", weft_coll_name(answer->job.ask.coll));
    weft_cli_json_int(&json, "ranks", answer->job.facts.ranks);
    weft_cli_json_real(&json, "bytes", answer->job.ask.bytes);
    weft_explain_topology_json(&json, &answer->job.facts);
    weft_cli_json_text(&json, "algo", answer->choice.option[0].name);
    weft_cli_json_int(&json, "segments", answer->choice.option[0].segments);
    weft_cli_json_text(&json, "reason", answer->choice.reason);
    weft_cli_json_object(&json, "cost");
    if (answer->has_cost) {
        weft_explain_cost_json(&json, &answer->cost);
    } else {
        weft_cli_json_real(&json, "time_us", answer->choice.option[0].time_s * 1e6);
    }
    weft_cli_json_end(&json);
    weft_cli_json_array(&json, "options");
    for (uint32_t i = 0; i < answer->choice.count; i++) {
        const struct weft_plan_option *option = &answer->choice.option[i];
        weft_cli_json_object(&json, NULL);
        weft_cli_json_text(&json, "algo", option->name);
        weft_cli_json_int(&json, "segments", option->segments);
        if (option->time_s >= 0) {
            weft_cli_json_real(&json, "time_us", option->time_s * 1e6);
        } else {
            weft_cli_json_null(&json, "time_us");
        }
        weft_cli_json_text(&json, "why_not", option->why_not);
        weft_cli_json_end(&json);
    }
    weft_cli_json_end(&json);
    return weft_cli_json_close(&json);
}

static int draw(const struct answer *answer)
{
    bool is_stdout = strcmp(svg_path, "-") == 0;
    char bytes[EXPLAIN_WORD_LEN];

    if (answer->plan.builder == &weft_plan_hierarchical) {
        return weft_cli_fail(&command, "hierarchical has no steps of its own to draw: draw its "
                                       "phases, with -n and --hosts of one");
    }
    FILE *out = is_stdout ? stdout : fopen(svg_path, "we");
    if (out == NULL) {
        return weft_cli_fail(&command, "cannot write %s: %s", svg_path, strerror(errno));
    }
    char *title = weft_cli_format("%s of %s by %s, %u ranks", weft_coll_name(answer->job.ask.coll),
                                  weft_explain_bytes(answer->job.ask.bytes, bytes),
                                  answer->plan.builder->name, answer->plan.ranks);
    weft_explain_svg(&answer->plan, answer->job.ask.bytes, title, out);
    free(title);
    if (is_stdout) {
        return WEFT_CLI_OK;
    }
    bool is_bad = ferror(out) != 0;
    if (fclose(out) != 0 || is_bad) {
        return weft_cli_fail(&command, "cannot write %s: %s", svg_path, strerror(errno));
    }
    return WEFT_CLI_OK;
}

static int show(const struct answer *answer)
{
    bool takes_stdout = svg_path != NULL && strcmp(svg_path, "-") == 0;
    int status = svg_path != NULL ? draw(answer) : WEFT_CLI_OK;

    if (is_json) {
        return write_json(answer) ? status : WEFT_CLI_FAILED;
    }
    if (!takes_stdout) {
        print_answer(answer);
    }
    return status;
}

int weft_cli_explain(int argc, char **argv)
{
    char why[EXPLAIN_WHY_LEN];
    weft_status_t chosen;
    int rest, status = weft_cli_parse(&command, argc, argv, &rest);

    if (status >= 0) {
        return status;
    }
    if (argc - rest != 1) {
        return weft_cli_usage_error(&command, rest == argc ? "which operation? (allreduce, ...)"
                                                           : "one operation, not more");
    }
    if (is_json && svg_path != NULL && strcmp(svg_path, "-") == 0) {
        return weft_cli_usage_error(&command, "--json and --svg - both want stdout");
    }
    if (wish.ranks == 0 && wish.topology == NULL) {
        return weft_cli_usage_error(&command, "how many ranks? -n N, or --topology");
    }
    struct answer *answer = weft_cli_alloc(1, sizeof(*answer));
    if (!weft_explain_job(argv[rest], &wish, &answer->job, why)) {
        status = weft_cli_usage_error(&command, "%s", why);
    } else if ((chosen = weft_plan_choose(&answer->job.facts, &answer->job.ask, &answer->plan,
                                          &answer->choice)) != WEFT_OK) {
        status = chosen == WEFT_ERR_INVALID
                     ? weft_cli_usage_error(&command, "%s", weft_error_text())
                     : weft_cli_fail(&command, "%s", weft_error_text());
    } else {
        run_plan(answer);
        status = show(answer);
    }
    free(answer);
    return status;
}
