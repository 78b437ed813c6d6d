/* SPDX-License-Identifier: Apache-2.0 */
/* weft sim OP: collectives in the cost model, at any scale, without a network. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_MAX WEFT_PLAN_OPTIONS

static struct explain_wish wish = {.bytes = (uint64_t)1 << 30};
static bool is_json, has_no_scaling;

static const struct weft_cli_option options[] = {
    {"ranks", 'n', WEFT_CLI_INT, "N", "how many ranks, default: what the topology has", &wish.ranks,
     1, WEFT_RANKS_MAX},
    {"bytes", 'b', WEFT_CLI_SIZE, "SIZE", "of the operation, default 1G", &wish.bytes, 0, 0},
    {"topology", 't', WEFT_CLI_TEXT, "SPEC",
     "hosts=12500,ranks=8,nics=4,rate=100G,latency=5us,cores=64", &wish.topology, 0, 0},
    {"algo", 'a', WEFT_CLI_TEXT, "NAME", "this algorithm instead of the fastest; all: every one",
     &wish.algo, 0, 0},
    {"root", 'r', WEFT_CLI_INT, "RANK", "of broadcast, reduce, gather, scatter, default 0",
     &wish.root, 0, WEFT_RANKS_MAX},
    {"deterministic", 0, WEFT_CLI_FLAG, NULL, "only plans that add in rank order",
     &wish.is_deterministic, 0, 0},
    {"no-scaling", 0, WEFT_CLI_FLAG, NULL, "leave the scaling tables out", &has_no_scaling, 0, 0},
    {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &is_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "sim",
    .summary =
        "Run a collective operation in the cost model: its time, the bytes over every kind of "
        "link,\n"
        "the critical path, and how it scales. Where all hosts do the same, one of them is run.\n"
        "In the topology ranks, nics and cores are per host, rate is one NIC's, in bits per "
        "second.\n"
        "Obeys WEFT_ALGO, WEFT_DETERMINISTIC, WEFT_COSTS. A plan of too many steps is not run (?): "
        "its\n"
        "time is estimated.\n\n"
        "JSON keys: op, ranks, bytes, topology {}, results [] {algo, segments, time_us, "
        "busbw_gbs,\n"
        "parts_us, rounds, messages, bytes {}, copies_per_byte, path [] {from, to, round, "
        "time_us},\n"
        "phases []}, strong [], weak [] {ranks, hosts, bytes, algo, time_us, busbw_gbs, "
        "efficiency}",
    .usage = "OP [options]   (OP: allreduce, broadcast, ...)",
    .options = options,
    .examples = {"weft sim allreduce -n 100000 --bytes 1G -t ranks=8,nics=4,rate=100G,latency=5us",
                 "weft sim alltoall -t hosts=64,ranks=8,rate=25G --bytes 64M --algo all --json"},
};

struct run {
    struct explain_job job;
    uint32_t count;
    struct sim_row row[ROWS_MAX];
    uint32_t phase_count; /* of the first row */
    struct sim_row phase[WEFT_PLAN_PHASES];
};

/* ---- running ---- */

static int complain(weft_status_t status)
{
    return status == WEFT_ERR_INVALID ? weft_cli_usage_error(&command, "%s", weft_error_text())
                                      : weft_cli_fail(&command, "%s", weft_error_text());
}

static int run_chosen(struct run *run)
{
    struct weft_plan plan;
    double time_s;
    weft_status_t status = weft_plan_predict(&run->job.facts, &run->job.ask, &plan, &time_s);

    if (status != WEFT_OK) {
        return complain(status);
    }
    weft_sim_run_row(&run->job, &plan, time_s, &run->row[0], run->phase, &run->phase_count);
    run->count = 1;
    return WEFT_CLI_OK;
}

/* Every algorithm that is possible here, the fastest first. */
static int run_all(struct run *run)
{
    struct weft_plan_choice *choice = weft_cli_alloc(1, sizeof(*choice));
    struct sim_row unused[WEFT_PLAN_PHASES] = {0};
    struct weft_plan plan;
    weft_status_t status;

    run->job.ask.algo = "";
    status = weft_plan_choose(&run->job.facts, &run->job.ask, &plan, choice);
    for (uint32_t i = 0; status == WEFT_OK && i < choice->count; i++) {
        const struct weft_plan_option *option = &choice->option[i];
        struct explain_job job = run->job;
        double time_s;
        uint32_t unused_count;
        job.ask.algo = option->name;
        if (option->why_not != NULL ||
            weft_plan_predict(&job.facts, &job.ask, &plan, &time_s) != WEFT_OK) {
            continue;
        }
        weft_cli_progress("running %s", option->name);
        bool is_first = run->count == 0;
        weft_sim_run_row(&job, &plan, time_s, &run->row[run->count], is_first ? run->phase : unused,
                         is_first ? &run->phase_count : &unused_count);
        run->count++;
    }
    weft_cli_progress_clear();
    free(choice);
    return status == WEFT_OK ? WEFT_CLI_OK : complain(status);
}

/* ---- text ---- */

static void add_bytes(struct weft_cli_table *table, const struct sim_row *row, double bytes)
{
    char text[EXPLAIN_WORD_LEN];

    weft_cli_table_cell(table, "%s", row->has_cost ? weft_explain_bytes(bytes, text) : "?");
}

static void add_row(struct weft_cli_table *table, const struct run *run, const struct sim_row *row)
{
    double busbw = weft_sim_busbw(&run->job, row->time_s);
    char text[EXPLAIN_WORD_LEN];

    weft_cli_table_cell(table, "%s%s%s", row->name, row->phase != NULL ? ", " : "",
                        row->phase != NULL ? row->phase : "");
    weft_cli_table_cell(table, "%u", row->segments);
    weft_cli_table_cell(table, "%s", weft_explain_time(row->time_s, text));
    if (busbw >= 0 && row->phase == NULL && row->time_s > 0) {
        weft_cli_table_cell(table, "%.3g", busbw);
    } else {
        weft_cli_table_cell(table, "-");
    }
    if (row->has_cost) {
        weft_cli_table_cell(table, "%u", row->cost.rounds);
        weft_cli_table_cell(table, "%llu", (unsigned long long)row->cost.messages);
    } else {
        weft_cli_table_cell(table, "?");
        weft_cli_table_cell(table, "?");
    }
    add_bytes(table, row, row->cost.sent_inside);
    add_bytes(table, row, row->cost.sent_between);
    add_bytes(table, row, row->cost.nic_out);
    add_bytes(table, row, row->cost.nic_in);
}

static void print_table(const struct run *run)
{
    static const struct weft_cli_column columns[] = {
        {"algorithm", false}, {"seg", true},      {"time", true},    {"busbw GB/s", true},
        {"rounds", true},     {"messages", true}, {"rank in", true}, {"rank out", true},
        {"host out", true},   {"host in", true}};
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));

    for (uint32_t i = 0; i < run->count; i++) {
        add_row(table, run, &run->row[i]);
        for (uint32_t k = 0; i == 0 && k < run->phase_count; k++) {
            add_row(table, run, &run->phase[k]);
        }
    }
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
    printf("rank in, rank out: bytes that the busiest rank sends inside and out of its host; host "
           "out,\nhost in: bytes through the NICs of the busiest host\n");
}

static void print_path(const struct sim_row *row)
{
    const struct weft_plan_cost *cost = &row->cost;
    char parts[EXPLAIN_TEXT_LEN], time[EXPLAIN_WORD_LEN];

    if (!row->has_cost) {
        printf("\n%s is too long to be run: its time is predicted from fewer ranks\n", row->name);
        return;
    }
    printf("\ncritical path of %s, %s: ", row->name, weft_explain_time(cost->time_s, time));
    if (cost->hops == 0) {
        printf("a rank's own work, nothing is waited for\n");
    } else {
        printf("%u message%s or flags, one after another\n", cost->hops,
               cost->hops == 1 ? "" : "s");
    }
    printf("%s\n", weft_explain_parts(&cost->parts, cost->time_s, parts));
    if (row->hop_count > 0 && row->hop_count < cost->hops) {
        printf("its last %u:\n", row->hop_count);
    }
    for (uint32_t i = 0; i < row->hop_count; i++) {
        const struct weft_plan_hop *hop = &row->hop[i];
        printf("  %9s  rank %u > %u, in its round %u\n", weft_explain_time(hop->time_s, time),
               hop->from, hop->to, hop->round);
    }
    printf("ended last: rank %u; %u rank%s run, %llu steps\n", cost->last_rank, cost->classes,
           cost->classes == 1 ? " was" : "s were", (unsigned long long)cost->steps);
}

static void print_run(const struct run *run)
{
    char where[EXPLAIN_TEXT_LEN], bytes[EXPLAIN_WORD_LEN];

    printf("%s of %s, %s\n\n", weft_coll_name(run->job.ask.coll),
           weft_explain_bytes(run->job.ask.bytes, bytes),
           weft_explain_where(&run->job.facts, where));
    print_table(run);
    if (run->phase_count == 0) {
        print_path(&run->row[0]);
    }
    for (uint32_t i = 0; i < run->phase_count; i++) {
        print_path(&run->phase[i]);
    }
    if (!has_no_scaling) {
        weft_sim_scaling_print(&run->job, true);
        weft_sim_scaling_print(&run->job, false);
    }
}

/* ---- JSON ---- */

static void write_row(struct weft_cli_json *json, const struct run *run, const struct sim_row *row)
{
    weft_cli_json_text(json, "algo", row->name);
    weft_cli_json_int(json, "segments", row->segments);
    if (row->has_cost) {
        weft_explain_cost_json(json, &row->cost);
    } else {
        weft_cli_json_real(json, "time_us", row->time_s * 1e6);
    }
    if (row->phase != NULL) {
        weft_cli_json_text(json, "where", row->phase);
    } else {
        weft_cli_json_real(json, "busbw_gbs", weft_sim_busbw(&run->job, row->time_s));
    }
    weft_cli_json_int(json, "path_length", row->has_cost ? row->cost.hops : 0);
    weft_cli_json_array(json, "path");
    for (uint32_t i = 0; i < row->hop_count; i++) {
        weft_cli_json_object(json, NULL);
        weft_cli_json_int(json, "from", row->hop[i].from);
        weft_cli_json_int(json, "to", row->hop[i].to);
        weft_cli_json_int(json, "round", row->hop[i].round);
        weft_cli_json_real(json, "time_us", row->hop[i].time_s * 1e6);
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
}

static bool write_json(const struct run *run)
{
    struct weft_cli_json json;

    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "command", "sim");
    weft_cli_json_text(&json, "op", weft_coll_name(run->job.ask.coll));
    weft_cli_json_int(&json, "ranks", run->job.facts.ranks);
    weft_cli_json_real(&json, "bytes", run->job.ask.bytes);
    weft_explain_topology_json(&json, &run->job.facts);
    weft_cli_json_array(&json, "results");
    for (uint32_t i = 0; i < run->count; i++) {
        weft_cli_json_object(&json, NULL);
        write_row(&json, run, &run->row[i]);
        weft_cli_json_array(&json, "phases");
        for (uint32_t k = 0; i == 0 && k < run->phase_count; k++) {
            weft_cli_json_object(&json, NULL);
            write_row(&json, run, &run->phase[k]);
            weft_cli_json_end(&json);
        }
        weft_cli_json_end(&json);
        weft_cli_json_end(&json);
    }
    weft_cli_json_end(&json);
    if (!has_no_scaling) {
        weft_sim_scaling_json(&json, &run->job, true);
        weft_sim_scaling_json(&json, &run->job, false);
    }
    return weft_cli_json_close(&json);
}

int weft_cli_sim(int argc, char **argv)
{
    char why[EXPLAIN_WHY_LEN];
    bool is_all;
    int rest, status = weft_cli_parse(&command, argc, argv, &rest);

    if (status >= 0) {
        return status;
    }
    if (argc - rest != 1) {
        return weft_cli_usage_error(&command, rest == argc ? "which operation? (allreduce, ...)"
                                                           : "one operation, not more");
    }
    if (wish.ranks == 0 && wish.topology == NULL) {
        return weft_cli_usage_error(&command, "how many ranks? -n N, or --topology");
    }
    is_all = wish.algo != NULL && strcmp(wish.algo, "all") == 0;
    struct run *run = weft_cli_alloc(1, sizeof(*run));
    if (!weft_explain_job(argv[rest], &wish, &run->job, why)) {
        status = weft_cli_usage_error(&command, "%s", why);
    } else {
        status = is_all ? run_all(run) : run_chosen(run);
    }
    if (status < 0) {
        status = WEFT_CLI_FAILED;
    }
    if (run->count > 0) {
        status = WEFT_CLI_OK;
        if (is_json) {
            status = write_json(run) ? WEFT_CLI_OK : WEFT_CLI_FAILED;
        } else {
            print_run(run);
        }
    }
    free(run);
    return status;
}
