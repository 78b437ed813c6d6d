/* SPDX-License-Identifier: Apache-2.0 */
/* A collective's results as JSON, and the page that is made of it. */
#include "bench_coll.h"

#include <math.h>
#include <stdlib.h>

#include "report.h"

static void json_args(struct weft_cli_json *json, const struct coll_arguments *arguments)
{
    weft_cli_json_object(json, "args");
    weft_cli_json_array(json, "ranks");
    for (unsigned i = 0; i < arguments->ranks.count; i++) {
        weft_cli_json_int(json, NULL, arguments->ranks.value[i]);
    }
    weft_cli_json_end(json);
    weft_cli_json_int(json, "minbytes", (int64_t)arguments->min_bytes);
    weft_cli_json_int(json, "maxbytes", (int64_t)arguments->max_bytes);
    weft_cli_json_int(json, "stepfactor", arguments->factor);
    weft_cli_json_int(json, "iters", arguments->iters);
    weft_cli_json_int(json, "warmup", arguments->warmup);
    weft_cli_json_int(json, "time_ms", (int64_t)arguments->time_ms);
    weft_cli_json_int(json, "check", arguments->check);
    weft_cli_json_int(json, "root", arguments->root);
    weft_cli_json_bool(json, "single", arguments->is_single);
    weft_cli_json_text(json, "algo", arguments->algo);
    weft_cli_json_end(json);
}

static void json_probe(struct weft_cli_json *json, const struct coll_outcome *outcome)
{
    if (!isfinite(outcome->probe_ns[0])) {
        weft_cli_json_null(json, "probe_ns");
        return;
    }
    weft_cli_json_array(json, "probe_ns");
    weft_cli_json_real(json, NULL, outcome->probe_ns[0]);
    weft_cli_json_real(json, NULL, outcome->probe_ns[1]);
    weft_cli_json_end(json);
}

static void json_what(struct weft_cli_json *json, const struct coll_arguments *arguments,
                      const struct coll_row *row)
{
    const char *known = row->outcome.algo[0] != '\0' ? row->outcome.algo : NULL;
    weft_cli_json_text(json, "op", weft_coll_name(arguments->coll));
    weft_cli_json_int(json, "ranks", row->ranks);
    weft_cli_json_int(json, "bytes", (int64_t)row->cell.bytes);
    weft_cli_json_int(json, "count", (int64_t)row->cell.count);
    weft_cli_json_text(json, "dtype", arguments->dtype_name);
    weft_cli_json_text(json, "redop",
                       weft_bench_coll_reduces(arguments->coll) ? arguments->redop_name : NULL);
    weft_cli_json_text(json, "path", weft_bench_coll_path_name(arguments));
    weft_cli_json_bool(json, "inplace", row->cell.is_inplace);
    weft_cli_json_text(json, "algo", row->cell.algo != NULL ? row->cell.algo : known);
    weft_cli_json_text(json, "alloc", arguments->alloc);
}

static void json_row(struct weft_cli_json *json, const struct coll_arguments *arguments,
                     const struct coll_row *row)
{
    const struct coll_outcome *outcome = &row->outcome;
    weft_cli_json_object(json, NULL);
    json_what(json, arguments, row);
    if (!outcome->is_done) {
        weft_cli_json_text(json, "refused", outcome->why);
        weft_cli_json_end(json);
        return;
    }
    weft_cli_json_int(json, "iters", outcome->counts.iters);
    weft_cli_json_int(json, "batches", outcome->counts.samples);
    weft_bench_json_figures(json, &outcome->figures);
    weft_cli_json_real(json, "algbw_gbs", row->algbw_gbs);
    weft_cli_json_real(json, "busbw_gbs", row->busbw_gbs);
    weft_cli_json_real(json, "limit_us", outcome->limit_us);
    weft_cli_json_real(json, "limit_pct", row->limit_pct);
    weft_cli_json_real(json, "floor_gbs", outcome->floor_gbs);
    weft_cli_json_real(json, "cpu_s_per_gb", row->cpu_s_per_gb);
    weft_cli_json_real(json, "copies_per_byte", row->copies_per_byte);
    json_probe(json, outcome);
    weft_cli_json_int(json, "wrong", (int64_t)outcome->wrong);
    weft_cli_json_end(json);
}

bool weft_bench_coll_print_json(const struct coll_arguments *arguments,
                                const struct coll_report *report, FILE *out)
{
    struct weft_cli_json json;
    weft_cli_json_open(&json, out);
    weft_cli_json_text(&json, "bench", weft_coll_name(arguments->coll));
    weft_bench_json_host(&json);
    json_args(&json, arguments);
    weft_cli_json_array(&json, "results");
    for (size_t i = 0; i < report->count; i++) {
        json_row(&json, arguments, &report->row[i]);
    }
    return weft_cli_json_close(&json);
}

bool weft_bench_coll_write_page(const struct coll_arguments *arguments,
                                const struct coll_report *report, char **why_p)
{
    char *text = NULL;
    size_t len = 0;
    FILE *memory = open_memstream(&text, &len);
    if (memory == NULL || !weft_bench_coll_print_json(arguments, report, memory) ||
        fclose(memory) != 0) {
        *why_p = weft_cli_format("no memory for it");
        return false;
    }
    bool is_written = weft_report_write(text, arguments->report, why_p);
    free(text);
    return is_written;
}
