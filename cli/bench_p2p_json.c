/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench p2p: its report as JSON. */
#include "bench_p2p.h"

#include <math.h>

#include "topo/topo.h"

static void json_args(struct weft_cli_json *json, const struct p2p_arguments *arguments)
{
    weft_cli_json_object(json, "args");
    weft_cli_json_array(json, "ranks");
    for (unsigned i = 0; i < arguments->ranks.count; i++) {
        weft_cli_json_int(json, NULL, arguments->ranks.value[i]);
    }
    weft_cli_json_end(json);
    weft_cli_json_text(json, "mode", arguments->modes);
    weft_cli_json_int(json, "minbytes", (int64_t)arguments->min_bytes);
    weft_cli_json_int(json, "maxbytes", (int64_t)arguments->max_bytes);
    weft_cli_json_int(json, "stepfactor", arguments->factor);
    weft_cli_json_int(json, "iters", arguments->iters);
    weft_cli_json_int(json, "warmup", arguments->warmup);
    weft_cli_json_int(json, "check", arguments->check);
    weft_cli_json_end(json);
}

static void json_lanes(struct weft_cli_json *json, const struct p2p_arguments *arguments,
                       const struct p2p_row *row, const struct p2p_settings *settings)
{
    weft_cli_json_int(json, "lanes", settings->lanes);
    weft_cli_json_int(json, "window", settings->window);
    weft_cli_json_int(json, "chunk", settings->chunk);
    weft_cli_json_text(json, "strategy", settings->strategy);
    weft_cli_json_int(json, "threads", arguments->is_threads);
    weft_cli_json_object(json, "nic_bytes");
    for (unsigned i = 0; i < row->nics.count; i++) {
        const struct p2p_nic *nic = &row->nics.nic[i];
        if (weft_bench_p2p_nics_counts(nic)) {
            weft_cli_json_int(json, nic->name, (int64_t)nic->sent);
        }
    }
    weft_cli_json_end(json);
}

static void json_pairs(struct weft_cli_json *json, const struct p2p_row *row)
{
    weft_cli_json_array(json, "pairs");
    for (int from = 0; from < row->ranks; from++) {
        for (int to = 0; to < row->ranks; to++) {
            if (from != to) {
                weft_cli_json_object(json, NULL);
                weft_cli_json_int(json, "from", from);
                weft_cli_json_int(json, "to", to);
                weft_cli_json_real(json, "gbs", row->pair_gbs[from * row->ranks + to]);
                weft_cli_json_end(json);
            }
        }
    }
    weft_cli_json_end(json);
}

static void json_row(struct weft_cli_json *json, const struct p2p_arguments *arguments,
                     const struct p2p_row *row, const struct p2p_settings *settings)
{
    const struct p2p_series *series = &row->series;
    weft_cli_json_object(json, NULL);
    weft_cli_json_text(json, "op", weft_bench_p2p_op_name(series->op));
    weft_cli_json_int(json, "ranks", row->ranks);
    weft_cli_json_int(json, "bytes", (int64_t)series->bytes);
    weft_cli_json_int(json, "count", (int64_t)series->bytes);
    weft_cli_json_text(json, "dtype", "u8");
    weft_cli_json_null(json, "redop"); /* as in every benchmark's rows; of collectives */
    weft_cli_json_text(json, "path", arguments->path_name != NULL ? arguments->path_name : "auto");
    weft_cli_json_bool(json, "inplace", false);
    weft_cli_json_null(json, "algo");
    weft_cli_json_text(json, "alloc", arguments->alloc);
    weft_cli_json_int(json, "inflight", series->inflight);
    json_lanes(json, arguments, row, settings);
    weft_cli_json_int(json, "iters", (int64_t)series->samples);
    weft_bench_json_figures(json, &row->figures);
    weft_cli_json_real(json, "algbw_gbs", row->gbs);
    weft_cli_json_real(json, "busbw_gbs", row->gbs);
    weft_cli_json_real(json, "limit_us", row->limit_us);
    weft_cli_json_real(json, "limit_pct", row->limit_pct);
    weft_cli_json_real(json, "cpu_s_per_gb", row->cpu_s_per_gb);
    weft_cli_json_null(json, "copies_per_byte"); /* nothing counts them yet */
    if (series->op == P2P_MESH) {
        weft_cli_json_int(json, "pairs", (int64_t)(series->samples / (size_t)series->iters));
    } else if (row->pair_gbs != NULL) {
        json_pairs(json, row);
    }
    if (weft_bench_p2p_is_mesh(series->op)) {
        weft_cli_json_real(json, "pass_us", row->pass_us);
    }
    if (isfinite(row->probe_ns[0])) {
        weft_cli_json_array(json, "probe_ns");
        weft_cli_json_real(json, NULL, row->probe_ns[0]);
        weft_cli_json_real(json, NULL, row->probe_ns[1]);
        weft_cli_json_end(json);
    } else {
        weft_cli_json_null(json, "probe_ns");
    }
    weft_cli_json_int(json, "wrong", (int64_t)row->wrong);
    weft_cli_json_end(json);
}

bool weft_bench_p2p_print_json(const struct p2p_arguments *arguments,
                               const struct p2p_report *report)
{
    struct weft_cli_json json;
    struct p2p_settings settings = {0};
    weft_bench_p2p_settings(report, &settings);
    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "bench", "p2p");
    weft_cli_json_object(&json, "host");
    weft_cli_json_int(&json, "cores", weft_topo_cpus(""));
    weft_cli_json_end(&json);
    json_args(&json, arguments);
    weft_cli_json_array(&json, "results");
    for (size_t i = 0; i < report->count; i++) {
        json_row(&json, arguments, &report->row[i], &settings);
    }
    return weft_cli_json_close(&json);
}
