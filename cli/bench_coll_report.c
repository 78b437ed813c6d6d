/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A collective's results as tables. The first is nccl-tests' own: size, count, type, redop, root; time,
 * algbw, busbw and wrong elements, out of place and in place side by side. With algorithms asked for, their
 * name takes the place of what is the same in every row. The second has what nccl-tests lacks.
 */
#include "bench_coll.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

/* ---- rows ---- */

void weft_bench_coll_report_add(struct coll_report *report, const struct coll_plan *plan,
                                const struct coll_shared *shared)
{
    report->row = weft_cli_grow(report->row, report->count + plan->count, sizeof(report->row[0]));
    for (size_t i = 0; i < plan->count; i++) {
        const struct coll_outcome *outcome = &shared->outcome[i];
        struct coll_row *row = &report->row[report->count++];
        double us = outcome->is_done ? outcome->figures.p50 : NAN;
        double algbw = plan->cell[i].bytes > 0 ? (double)plan->cell[i].bytes / us / 1e3 : NAN;
        *row = (struct coll_row){
            .cell = plan->cell[i],
            .ranks = plan->ranks,
            .outcome = *outcome,
            .algbw_gbs = algbw,
            .busbw_gbs = algbw * weft_bench_coll_bus_factor(plan->arguments->coll, plan->ranks),
            .limit_pct = outcome->limit_us / us * 100,
            .cpu_s_per_gb = outcome->cpu_s / outcome->bytes_done * 1e9,
            .copies_per_byte = outcome->copies / outcome->bytes_done,
        };
    }
}

const struct coll_row *weft_bench_coll_first_wrong(const struct coll_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        if (report->row[i].outcome.wrong > 0) {
            return &report->row[i];
        }
    }
    return NULL;
}

const char *weft_bench_coll_path_name(const struct coll_arguments *arguments)
{
    return arguments->path_name != NULL ? arguments->path_name : "auto";
}

/* ---- figures ---- */

#define FIGURE_LEN 24

/* Four digits that count, whatever the magnitude; returns text. */
static const char *figure(double value, char text[FIGURE_LEN])
{
    int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
    if (isfinite(value)) {
        snprintf(text, FIGURE_LEN, "%.*f", decimals, value);
    } else {
        snprintf(text, FIGURE_LEN, "-");
    }
    return text;
}

/* GB/s, as nccl-tests has them: two decimals, but not 0.00 for the small. */
static const char *rate(double value, char text[FIGURE_LEN])
{
    if (isfinite(value) && value >= 0.1) {
        snprintf(text, FIGURE_LEN, "%.2f", value);
        return text;
    }
    return figure(value, text);
}

/* ---- nccl-tests' table ---- */

static void print_half(const struct coll_row *row)
{
    char time[FIGURE_LEN], algbw[FIGURE_LEN], busbw[FIGURE_LEN], wrong[FIGURE_LEN];
    if (row == NULL || !row->outcome.is_done) {
        printf(" %8s %6s %6s %6s", row == NULL ? "" : "refused", "", "", "");
        return;
    }
    snprintf(wrong, sizeof(wrong), "%llu", (unsigned long long)row->outcome.wrong);
    printf(" %8s %6s %6s %6s", figure(row->outcome.figures.p50, time), rate(row->algbw_gbs, algbw),
           rate(row->busbw_gbs, busbw), wrong);
}

static void print_line(const struct coll_arguments *arguments, const struct coll_row *out,
                       const struct coll_row *in)
{
    const struct coll_row *row = out != NULL ? out : in;
    char size[24], root[16] = "-";
    if (weft_bench_coll_has_root(arguments->coll)) {
        bool is_all = weft_bench_coll_turns(arguments);
        snprintf(root, sizeof(root), is_all ? "all" : "%d",
                 arguments->root > 0 ? (int)arguments->root : 0);
    }
    printf("%8s %10zu ", weft_cli_print_size(row->cell.bytes, size), row->cell.count);
    if (arguments->algo != NULL) {
        printf("%-18.18s", row->cell.algo != NULL ? row->cell.algo : "(the best)");
    } else {
        printf("%6s %6s %4s", arguments->dtype_name,
               weft_bench_coll_reduces(arguments->coll) ? arguments->redop_name : "-", root);
    }
    print_half(out);
    print_half(in);
    printf("\n");
}

static void print_names(const struct coll_arguments *arguments)
{
    const char *const half = "     time  algbw  busbw #wrong";
    printf("%19s %-18s %-30s%s\n", "", "", "          out of place", "          in place");
    printf("%8s %10s ", "size", "count");
    if (arguments->algo != NULL) {
        printf("%-18s", "algorithm");
    } else {
        printf("%6s %6s %4s", "type", "redop", "root");
    }
    printf("%s%s\n%19s %-18s", half, half, "", "");
    printf("%9s %6s %6s %6s%10s %6s %6s\n", "us", "GB/s", "GB/s", "", "us", "GB/s", "GB/s");
}

static bool are_pair(const struct coll_row *out, const struct coll_row *in)
{
    return !out->cell.is_inplace && in->cell.is_inplace && out->ranks == in->ranks &&
           out->cell.bytes == in->cell.bytes && out->cell.algo == in->cell.algo;
}

static void print_first(const struct coll_arguments *arguments, const struct coll_row *row,
                        size_t count)
{
    print_names(arguments);
    for (size_t i = 0; i < count; i++) {
        bool is_pair = i + 1 < count && are_pair(&row[i], &row[i + 1]);
        print_line(arguments, row[i].cell.is_inplace ? NULL : &row[i],
                   row[i].cell.is_inplace ? &row[i]
                   : is_pair              ? &row[i + 1]
                                          : NULL);
        i += is_pair;
    }
}

/* ---- what nccl-tests lacks ---- */

static bool is_busy(const struct coll_outcome *outcome)
{
    return outcome->probe_ns[0] > WEFT_BENCH_BUSY_NS || outcome->probe_ns[1] > WEFT_BENCH_BUSY_NS;
}

static void add_detail(struct weft_cli_table *table, const struct coll_row *row)
{
    const struct coll_outcome *outcome = &row->outcome;
    char size[24], text[FIGURE_LEN];
    weft_cli_table_cell(table, "%s", weft_cli_print_size(row->cell.bytes, size));
    weft_cli_table_cell(table, "%s", row->cell.is_inplace ? "in" : "out");
    weft_cli_table_cell(table, "%s",
                        row->cell.algo != NULL     ? row->cell.algo
                        : outcome->algo[0] != '\0' ? outcome->algo
                                                   : "-");
    weft_cli_table_cell(table, "%d", outcome->counts.samples);
    weft_cli_table_cell(table, "%d", outcome->counts.iters);
    weft_cli_table_cell(table, "%s", figure(outcome->figures.p50, text));
    weft_cli_table_cell(table, "%s", figure(outcome->figures.p99, text));
    if (isfinite(row->limit_pct)) {
        weft_cli_table_cell(table, "%.0f", row->limit_pct);
    } else {
        weft_cli_table_cell(table, "-");
    }
    weft_cli_table_cell(table, "%s", figure(row->cpu_s_per_gb, text));
    weft_cli_table_cell(table, "%s", figure(row->copies_per_byte, text));
    if (is_busy(outcome)) {
        weft_cli_table_cell(table, "busy");
    } else if (isfinite(outcome->probe_ns[0])) {
        weft_cli_table_cell(table, "%.0f-%.0f", outcome->probe_ns[0], outcome->probe_ns[1]);
    } else {
        weft_cli_table_cell(table, "-");
    }
}

static void print_second(const struct coll_arguments *arguments, const struct coll_row *row,
                         size_t count)
{
    const struct weft_cli_column columns[] = {
        {"size", true},       {"place", false},
        {"algorithm", false}, {arguments->is_single ? "ops" : "batches", true},
        {"x ops", true},      {"p50 us", true},
        {"p99 us", true},     {"limit %", true},
        {"CPU s/GB", true},   {"copies/B", true},
        {"probe ns", true},
    };
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));
    for (size_t i = 0; i < count; i++) {
        if (row[i].outcome.is_done) {
            add_detail(table, &row[i]);
        }
    }
    printf("\n");
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
}

/* ---- around them ---- */

static void print_head(const struct coll_arguments *arguments, const struct coll_report *report)
{
    char *where = report->hosts == 0
                      ? weft_cli_format("%u CPUs", weft_topo_cpus(""))
                      : weft_cli_format("%d host%s", report->hosts, report->hosts > 1 ? "s" : "");
    printf("%s on %s; ranks are processes%s, path %s, %s buffers\n",
           weft_coll_name(arguments->coll), where, report->hosts > 0 ? " of a job" : "",
           weft_bench_coll_path_name(arguments), arguments->alloc);
    free(where);
    printf("time: %s, the slowest rank's, the median\n",
           arguments->is_single ? "of one operation, each timed by itself"
                                : "of one operation, the mean of a batch back to back");
    if (arguments->algo != NULL) {
        printf("type %s", arguments->dtype_name);
        if (weft_bench_coll_reduces(arguments->coll)) {
            printf(", redop %s", arguments->redop_name);
        }
        printf("\n");
    }
    if (report->hosts <= 1) {
        printf("limit: %s\n", arguments->path == COLL_TCP
                                  ? "the bytes that must be sent, over bare loopback sockets"
                                  : "a flag (the probe, before-after) and the bytes that must be "
                                    "read and written");
    }
}

/* The rate behind the limit of the largest size, where it is memory's or the wire's. */
static void print_floor(const struct coll_arguments *arguments, const struct coll_row *row,
                        size_t count)
{
    char size[24], text[FIGURE_LEN];
    const struct coll_row *last = &row[count - 1];
    if (isfinite(last->outcome.floor_gbs) && last->outcome.floor_gbs > 0) {
        printf("floor: %s GB/s, %s of %s\n", rate(last->outcome.floor_gbs, text),
               arguments->path == COLL_TCP ? "two processes over a bare socket, both ways, buffers"
                                           : "two processes' c = a + b in buffers",
               weft_cli_print_size(last->cell.bytes, size));
    }
}

/* Has the algorithm of row `index` been refused in a row before it? */
static bool was_refused(const struct coll_row *row, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (!row[i].outcome.is_done && row[i].cell.algo == row[index].cell.algo) {
            return true;
        }
    }
    return false;
}

static size_t print_notes(const struct coll_row *row, size_t count)
{
    size_t busy = 0;
    for (size_t i = 0; i < count; i++) {
        busy += is_busy(&row[i].outcome);
        if (!row[i].outcome.is_done && !was_refused(row, i)) { /* up to what would be possible */
            printf("refused: %s: %.*s\n", row[i].cell.algo, (int)strcspn(row[i].outcome.why, ";\n"),
                   row[i].outcome.why);
        }
    }
    return busy;
}

void weft_bench_coll_print_tables(const struct coll_arguments *arguments,
                                  const struct coll_report *report)
{
    size_t busy = 0;
    print_head(arguments, report);
    for (size_t first = 0, count = 0; first < report->count; first += count) {
        const struct coll_row *row = &report->row[first];
        for (count = 0; first + count < report->count && row[count].ranks == row->ranks; count++) {
        }
        printf("\n%d rank%s\n", row->ranks, row->ranks > 1 ? "s" : "");
        print_first(arguments, row, count);
        print_second(arguments, row, count);
        print_floor(arguments, row, count);
        busy += print_notes(row, count);
    }
    if (busy > 0) {
        printf("\nbusy, probe above %d ns, in %zu of %zu rows: other work had a core, they mean "
               "little\n",
               WEFT_BENCH_BUSY_NS, busy, report->count);
    }
}
