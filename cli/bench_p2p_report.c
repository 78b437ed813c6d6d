/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench p2p: samples become figures, a table or JSON. */
#include "bench_p2p.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

const char *weft_bench_p2p_op_name(enum p2p_op op)
{
    static const char *const names[P2P_OPS] = {
        [P2P_LAT] = "lat",
        [P2P_BW] = "bw",
        [P2P_BIBW] = "bibw",
        [P2P_RTT] = "rtt",
        [P2P_PUT_NBI] = "put_nbi",
        [P2P_PUT_QUIET] = "put_quiet",
        [P2P_PUT_BATCH] = "put_batch",
        [P2P_MESH] = "mesh",
        [P2P_MESHBW] = "meshbw",
    };
    return names[op];
}

/* ---- figures ---- */

/* The samples are picoseconds, figures take nanoseconds for microseconds. */
static void figures_of(const uint64_t *samples_ps, size_t count, struct weft_bench_figures *us_p)
{
    uint64_t *samples = weft_cli_alloc(count, sizeof(samples[0]));
    memcpy(samples, samples_ps, count * sizeof(samples[0]));
    weft_bench_figures(samples, count, us_p);
    free(samples);
    double *const all[] = {&us_p->min, &us_p->p50, &us_p->avg,   &us_p->p90,
                           &us_p->p99, &us_p->max, &us_p->stddev};
    for (size_t i = 0; i < WEFT_COUNT_OF(all); i++) {
        *all[i] /= 1e3;
    }
}

static double gbs_of(const struct p2p_row *row)
{
    const struct p2p_series *series = &row->series;
    double bytes = (double)series->bytes;
    if (series->op == P2P_MESHBW) { /* all that moves at once */
        double messages = (double)series->samples / series->iters;
        return messages * bytes / row->pass_us / 1e3;
    }
    bool is_both = series->op == P2P_BIBW || series->op == P2P_RTT || series->op == P2P_MESH;
    return (is_both ? 2 : 1) * bytes / row->figures.p50 / 1e3;
}

void weft_bench_p2p_report_add(struct p2p_report *report, const struct p2p_plan *plan,
                               struct p2p_shared *shared)
{
    const uint64_t *samples = weft_bench_p2p_samples(shared, plan);
    report->row = weft_cli_grow(report->row, report->count + plan->count, sizeof(report->row[0]));
    for (size_t i = 0; i < plan->count; i++) {
        const struct p2p_series *series = &plan->series[i];
        struct p2p_outcome *outcome = &weft_bench_p2p_outcomes(shared)[i];
        struct p2p_row *row = &report->row[report->count++];
        *row = (struct p2p_row){
            .series = *series,
            .ranks = plan->ranks,
            .limit_us = outcome->limit_us,
            .pass_us = weft_bench_p2p_is_mesh(series->op) ? outcome->pass_us : NAN,
            .probe_ns = {outcome->probe_ns[0], outcome->probe_ns[1]},
            .wrong = atomic_load(&outcome->wrong),
            .nics = outcome->nics,
        };
        figures_of(samples + series->first, series->samples, &row->figures);
        row->gbs = gbs_of(row);
        if (series->op == P2P_MESHBW) {
            row->pair_gbs = weft_bench_p2p_matrix(series, plan->ranks, samples + series->first);
        }
        row->limit_pct = row->limit_us / row->figures.p50 * 100;
        row->moved = outcome->moved;
        row->cpu_s_per_gb = (double)atomic_load(&outcome->cpu_ns) / (double)outcome->moved;
        report->wrong += row->wrong;
    }
    if (report->wrong > 0 && report->wrong_text[0] == '\0') {
        memcpy(report->wrong_text, shared->wrong_text, sizeof(report->wrong_text));
    }
}

void weft_bench_p2p_report_close(struct p2p_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        free(report->row[i].pair_gbs);
    }
    free(report->row);
}

/* ---- the settings ---- */

#define CHUNK_SINGLE ((int64_t)1 << 20) /* what WEFT_CHUNK=0 means, as `weft params` says */
#define CHUNK_SEVERAL ((int64_t)512 << 10)

static unsigned count_nics(const struct weft_params *params)
{
    struct weft_topo_iface *nics = NULL;
    unsigned count = 1;
    if (weft_topo_data_nics("", params->text[WEFT_PARAM_SOCKET_IFNAME], AF_UNSPEC, &nics, &count) ==
        WEFT_OK) {
        free(nics);
    }
    return count;
}

bool weft_bench_p2p_settings(const struct p2p_report *report, struct p2p_settings *settings_p)
{
    struct weft_params *params = weft_cli_alloc(1, sizeof(*params));
    char strategy[WEFT_PARAM_TEXT_LEN];
    bool is_read = weft_params_load(params) == WEFT_OK;
    if (is_read) {
        int64_t lanes = params->number[WEFT_PARAM_LANES], chunk = params->number[WEFT_PARAM_CHUNK];
        lanes = lanes > 0 ? lanes : 1;
        int64_t all_lanes = lanes * (report->hosts > 1 ? (int64_t)count_nics(params) : 1);
        *settings_p = (struct p2p_settings){
            .lanes = lanes,
            .window = params->number[WEFT_PARAM_WINDOW],
            .chunk = chunk > 0       ? chunk
                     : all_lanes > 1 ? CHUNK_SEVERAL
                                     : CHUNK_SINGLE,
        };
        weft_params_print(params, WEFT_PARAM_STRATEGY, strategy);
        snprintf(settings_p->strategy, sizeof(settings_p->strategy), "%.15s", strategy);
    }
    free(params);
    return is_read;
}

/* ---- the table ---- */

/* Four digits that count, whatever the magnitude. */
static void number_cell(struct weft_cli_table *table, double value)
{
    if (!isfinite(value)) {
        weft_cli_table_cell(table, "-");
        return;
    }
    int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : value >= 1 ? 3 : 4;
    weft_cli_table_cell(table, "%.*f", decimals, value);
}

static bool is_busy(const struct p2p_row *row)
{
    return row->probe_ns[0] > WEFT_BENCH_BUSY_NS || row->probe_ns[1] > WEFT_BENCH_BUSY_NS;
}

static void add_row(struct weft_cli_table *table, const struct p2p_row *row)
{
    char size[24];
    weft_cli_table_cell(table, "%s", weft_bench_p2p_op_name(row->series.op));
    weft_cli_table_cell(table, "%d", row->ranks);
    weft_cli_table_cell(table, "%s", weft_cli_print_size(row->series.bytes, size));
    weft_cli_table_cell(table, "%d", row->series.inflight);
    weft_cli_table_cell(table, "%zu", row->series.samples);
    number_cell(table, row->figures.p50);
    number_cell(table, row->figures.p99);
    number_cell(table, row->gbs);
    if (isfinite(row->limit_pct)) {
        weft_cli_table_cell(table, "%.1f", row->limit_pct);
    } else {
        weft_cli_table_cell(table, "-");
    }
    number_cell(table, row->cpu_s_per_gb);
    if (is_busy(row)) {
        weft_cli_table_cell(table, "busy");
    } else if (isfinite(row->probe_ns[0])) {
        weft_cli_table_cell(table, "%.0f-%.0f", row->probe_ns[0], row->probe_ns[1]);
    } else {
        weft_cli_table_cell(table, "-");
    }
    weft_cli_table_cell(table, "%llu", (unsigned long long)row->wrong);
    if (row->series.op == P2P_MESH) {
        size_t pairs = row->series.samples / (size_t)row->series.iters;
        char *note = weft_cli_format("all %zu pairs once: %.1f us (the slowest rank, median), "
                                     "%.2f us per pair",
                                     pairs, row->pass_us, row->pass_us / (double)pairs);
        weft_cli_table_note(table, note);
        free(note);
    }
}

/* What the NICs have sent, when there are several and it is not just the traffic of others. */
static bool has_nic_lines(const struct p2p_row *row)
{
    uint64_t sent = 0;
    unsigned several = 0;
    for (unsigned i = 0; i < row->nics.count; i++) {
        bool is_lo = strcmp(row->nics.nic[i].name, "lo") == 0;
        several += !is_lo;
        sent += is_lo ? 0 : row->nics.nic[i].sent;
    }
    return several > 1 && (double)sent > (double)row->moved / 10;
}

static void add_nics(struct weft_cli_table *table, const struct p2p_row *row)
{
    uint64_t total = 0;
    char size[24];
    for (unsigned i = 0; i < row->nics.count; i++) {
        total += row->nics.nic[i].sent;
    }
    for (unsigned i = 0; i < row->nics.count; i++) {
        const struct p2p_nic *nic = &row->nics.nic[i];
        if (weft_bench_p2p_nics_counts(nic)) {
            weft_cli_table_cell(table, "%s", weft_bench_p2p_op_name(row->series.op));
            weft_cli_table_cell(table, "%s", weft_cli_print_size(row->series.bytes, size));
            weft_cli_table_cell(table, "%s", nic->name);
            weft_cli_table_cell(table, "%.1f", (double)nic->sent / 1e6);
            weft_cli_table_cell(table, "%.1f", 100.0 * (double)nic->sent / (double)total);
        }
    }
}

static void print_nics(const struct p2p_report *report)
{
    static const struct weft_cli_column columns[] = {
        {"op", false}, {"bytes", true}, {"NIC", false}, {"sent MB", true}, {"%", true},
    };
    struct weft_cli_table *table = NULL;
    for (size_t i = 0; i < report->count; i++) {
        if (has_nic_lines(&report->row[i])) {
            table = table != NULL ? table : weft_cli_table_open(columns, WEFT_COUNT_OF(columns));
            add_nics(table, &report->row[i]);
        }
    }
    if (table != NULL) {
        printf("\nsent by rank 0's host, while the clock ran:\n\n");
        weft_cli_table_print(table, stdout);
        weft_cli_table_close(table);
    }
}

static void print_head(const struct p2p_arguments *arguments, const struct p2p_report *report)
{
    struct p2p_settings settings;
    char chunk[24];
    char *where = report->hosts == 0
                      ? weft_cli_format("%u CPUs", weft_topo_cpus(""))
                      : weft_cli_format("%d host%s", report->hosts, report->hosts > 1 ? "s" : "");
    printf("p2p on %s; ranks are %s, path %s, %s buffers; times of one message\n", where,
           report->hosts > 0       ? "processes of a job"
           : arguments->is_threads ? "threads"
                                   : "processes",
           arguments->path_name != NULL ? arguments->path_name : "auto", arguments->alloc);
    free(where);
    if (arguments->path != P2P_SHM && weft_bench_p2p_settings(report, &settings)) {
        printf("%lld lane%s per NIC, window %lld, chunk %s, strategy %s\n",
               (long long)settings.lanes, settings.lanes > 1 ? "s" : "", (long long)settings.window,
               weft_cli_print_size((uint64_t)settings.chunk, chunk), settings.strategy);
    }
    if (report->hosts == 0) {
        printf("limit: %s, before each row; probe: a flag from core to core, before-after\n",
               arguments->path == P2P_TCP ? "bare loopback sockets" : "the probe and one memcpy");
    } else if (report->hosts == 1) {
        printf("limit: %s, before each row\n",
               arguments->path == P2P_TCP ? "bare loopback sockets" : "one memcpy");
    }
    printf("\n");
}

void weft_bench_p2p_print_table(const struct p2p_arguments *arguments,
                                const struct p2p_report *report)
{
    static const struct weft_cli_column columns[] = {
        {"op", false},     {"ranks", true},    {"bytes", true},    {"flight", true},
        {"iters", true},   {"p50 us", true},   {"p99 us", true},   {"GB/s", true},
        {"limit %", true}, {"CPU s/GB", true}, {"probe ns", true}, {"wrong", true},
    };
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));
    size_t busy = 0;
    for (size_t i = 0; i < report->count; i++) {
        add_row(table, &report->row[i]);
        busy += is_busy(&report->row[i]);
    }
    print_head(arguments, report);
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
    for (size_t i = 0; i < report->count; i++) {
        if (report->row[i].pair_gbs != NULL) {
            weft_bench_p2p_print_matrix(&report->row[i]);
        }
    }
    print_nics(report);
    if (busy > 0) {
        printf("\nbusy, probe above %d ns, in %zu of %zu rows: other work had a core, they mean "
               "little\n",
               WEFT_BENCH_BUSY_NS, busy, report->count);
    }
}
