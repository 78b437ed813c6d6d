/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft tune` shows: the settings that were tried, fastest first, and the sweet spot. */
#include "tune.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 15

void weft_tune_values(const struct tune_space *space, const struct tune_setting *setting,
                      struct tune_values *values_p)
{
    *values_p = (struct tune_values){.is_usual = false};
    for (unsigned axis = 0; axis < TUNE_AXES; axis++) {
        values_p->value[axis] = space->value[axis][setting->at[axis]];
    }
}

/* Owned by the caller. */
static struct tune_ref *sorted_points(const struct tune_search *search)
{
    struct tune_ref *list = weft_cli_alloc(search->count, sizeof(*list));
    for (unsigned i = 0; i < search->count; i++) {
        list[i].point = &search->point[i];
    }
    weft_tune_sort(list, search->count);
    return list;
}

static const char *verdict(const struct tune_search *search, const struct tune_point *point)
{
    const struct tune_point *top = &search->point[search->top];
    if (point == &search->point[search->best]) {
        return "<- sweet spot";
    }
    if (point->is_hopeless) {
        return "given up";
    }
    return point->gbs * (1 + point->noise) >= top->gbs * (1 - top->noise) ? "within the noise"
                                                                          : "-";
}

static void add_row(struct weft_cli_table *table, const struct tune_search *search,
                    const struct tune_point *point)
{
    struct tune_values values;
    char chunk[24];
    weft_tune_values(search->space, &point->setting, &values);
    weft_cli_table_cell(table, "%u", values.value[TUNE_WINDOW]);
    weft_cli_table_cell(table, "%s", weft_cli_print_size(values.value[TUNE_CHUNK], chunk));
    weft_cli_table_cell(table, "%u", values.value[TUNE_LANES]);
    weft_cli_table_cell(table, "%s", weft_tune_strategy_name(values.value[TUNE_STRATEGY]));
    weft_cli_table_cell(table, "%.3f", point->gbs);
    weft_cli_table_cell(table, "%.1f", 100 * point->noise);
    weft_cli_table_cell(table, "%.1f", 100 * point->gbs / search->point[search->top].gbs);
    weft_cli_table_cell(table, "%u", point->sample_count);
    weft_cli_table_cell(table, "%s", verdict(search, point));
}

/* "lanes: 1 0.441, 2 0.463, 4 0.462": the best that was seen with each value */
static void print_axis(const struct tune_search *search, enum tune_axis axis, const char *name)
{
    printf("  %-9s", name);
    for (unsigned v = 0; v < search->space->count[axis]; v++) {
        double best = 0;
        uint32_t value = search->space->value[axis][v];
        char size[24];
        for (unsigned i = 0; i < search->count; i++) {
            const struct tune_point *point = &search->point[i];
            best = point->setting.at[axis] == v && point->gbs > best ? point->gbs : best;
        }
        printf("%s%s ", v > 0 ? ", " : "",
               axis == TUNE_STRATEGY ? weft_tune_strategy_name(value)
                                     : weft_cli_print_size(value, size));
        if (best > 0) {
            printf("%.3f", best);
        } else {
            printf("-");
        }
    }
    printf("\n");
}

static void print_rows(const struct tune_search *search)
{
    static const struct weft_cli_column columns[] = {
        {"window", true}, {"chunk", true},   {"lanes", true}, {"strategy", false}, {"GB/s", true},
        {"+-%", true},    {"of best", true}, {"n", true},     {"remark", false},
    };
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));
    struct tune_ref *list = sorted_points(search);
    for (unsigned i = 0; i < search->count; i++) {
        if (i < ROWS_MAX || list[i].point == &search->point[search->best]) {
            add_row(table, search, list[i].point);
        }
    }
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
    if (search->count > ROWS_MAX) {
        printf("and %u more, the slowest %.3f GB/s (--json has all)\n", search->count - ROWS_MAX,
               list[search->count - 1].point->gbs);
    }
    free(list);
}

void weft_tune_print_table(const struct tune_report *report)
{
    const struct tune_search *search = report->search;
    const struct tune_point *best = &search->point[search->best];
    struct tune_values values;
    char bytes[24], chunk[24];
    printf("tcp from %.40s to %.40s\n%u messages of %s in flight; %u of %u settings in %.1f s\n\n",
           report->hosts[0], report->hosts[1], report->inflight,
           weft_cli_print_size(report->bytes, bytes), search->count,
           weft_tune_space_size(search->space), search->seconds);
    print_rows(search);
    printf("\nbest GB/s seen with each value:\n");
    print_axis(search, TUNE_WINDOW, "window");
    print_axis(search, TUNE_CHUNK, "chunk");
    print_axis(search, TUNE_LANES, "lanes");
    print_axis(search, TUNE_STRATEGY, "strategy");
    weft_tune_values(search->space, &best->setting, &values);
    printf("\nsweet spot: window %u, chunk %s, %u lane%s per NIC, %s: %.3f GB/s",
           values.value[TUNE_WINDOW], weft_cli_print_size(values.value[TUNE_CHUNK], chunk),
           values.value[TUNE_LANES], values.value[TUNE_LANES] == 1 ? "" : "s",
           weft_tune_strategy_name(values.value[TUNE_STRATEGY]), best->gbs);
    if (report->usual != NULL && report->usual->gbs > 0) {
        printf("\nwithout a profile: %.3f GB/s, so this is %+.1f %%", report->usual->gbs,
               100 * (best->gbs / report->usual->gbs - 1));
    }
    printf("\n");
    if (search->is_cut) {
        printf("the time was too short to look at everything worth it: --time %.0f\n",
               2 * (double)search->budget_ms / 1e3);
    }
    if (report->profile != NULL) {
        printf("profile: %s\n", report->profile);
    }
}

/* ---- JSON ---- */

static void write_point(struct weft_cli_json *json, const char *key,
                        const struct tune_search *search, const struct tune_point *point)
{
    struct tune_values values;
    weft_tune_values(search->space, &point->setting, &values);
    weft_cli_json_object(json, key);
    weft_cli_json_int(json, "window", values.value[TUNE_WINDOW]);
    weft_cli_json_int(json, "chunk", values.value[TUNE_CHUNK]);
    weft_cli_json_int(json, "lanes", values.value[TUNE_LANES]);
    weft_cli_json_text(json, "strategy", weft_tune_strategy_name(values.value[TUNE_STRATEGY]));
    weft_cli_json_real(json, "gbs", point->gbs);
    weft_cli_json_real(json, "noise_pct", 100 * point->noise);
    weft_cli_json_int(json, "samples", point->sample_count);
    weft_cli_json_bool(json, "given_up", point->is_hopeless);
    weft_cli_json_end(json);
}

bool weft_tune_print_json(const struct tune_report *report)
{
    const struct tune_search *search = report->search;
    struct tune_ref *list = sorted_points(search);
    struct weft_cli_json json;
    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "command", "tune");
    weft_cli_json_text(&json, "mode", "p2p");
    weft_cli_json_array(&json, "hosts");
    weft_cli_json_text(&json, NULL, report->hosts[0]);
    weft_cli_json_text(&json, NULL, report->hosts[1]);
    weft_cli_json_end(&json);
    weft_cli_json_int(&json, "bytes", (int64_t)report->bytes);
    weft_cli_json_int(&json, "inflight", report->inflight);
    weft_cli_json_bool(&json, "exhaustive", search->is_exhaustive);
    weft_cli_json_real(&json, "seconds", search->seconds);
    weft_cli_json_int(&json, "tried", search->count);
    weft_cli_json_int(&json, "of", weft_tune_space_size(search->space));
    weft_cli_json_bool(&json, "cut_short", search->is_cut);
    weft_cli_json_text(&json, "profile", report->profile);
    write_point(&json, "best", search, &search->point[search->best]);
    weft_cli_json_real(&json, "default_gbs", report->usual != NULL ? report->usual->gbs : 0);
    weft_cli_json_array(&json, "results");
    for (unsigned i = 0; i < search->count; i++) {
        write_point(&json, NULL, search, list[i].point);
    }
    free(list);
    return weft_cli_json_close(&json);
}
