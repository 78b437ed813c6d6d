/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the curves in a benchmark's JSON: results of the same operation, path and number of ranks share a
 * picture, those of the same program, algorithm and place a line. An operation without bytes (barrier) has
 * its number of ranks as x.
 */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static char *copy_of(const char *text)
{
    return text != NULL ? weft_cli_format("%s", text) : NULL;
}

static bool is_true(const struct weft_cli_value *row, const char *key)
{
    return weft_cli_value_number(row, key) == 1;
}

/* ---- lines ---- */

/* Are rows of both places there? Only then the place is part of a line's name. */
static bool has_both_places(const struct weft_cli_value *results)
{
    bool has_in = false, has_out = false;
    for (const struct weft_cli_value *row = results; row != NULL; row = row->next) {
        has_in = has_in || is_true(row, "inplace");
        has_out = has_out || !is_true(row, "inplace");
    }
    return has_in && has_out;
}

/* What was asked for, not what was chosen: a line that changes its name along the way is none. */
static char *name_of(const struct weft_cli_value *row, const char *asked, bool is_with_place)
{
    const char *who = weft_cli_value_text(row, "who"), *algo = weft_cli_value_text(row, "algo");
    const char *name = who != NULL ? who : asked != NULL && algo != NULL ? algo : "weft";
    const char *place = is_true(row, "inplace") ? ", in place" : ", out of place";
    return weft_cli_format("%s%s", name, is_with_place ? place : "");
}

static struct weft_report_line *line_of(struct weft_report_group *group, const char *name)
{
    for (size_t i = 0; i < group->count; i++) {
        if (strcmp(group->line[i].name, name) == 0) {
            return &group->line[i];
        }
    }
    group->line = weft_cli_grow(group->line, group->count + 1, sizeof(group->line[0]));
    struct weft_report_line *line = &group->line[group->count++];
    *line = (struct weft_report_line){.name = copy_of(name),
                                      .is_weft = strncmp(name, "weft", strlen("weft")) == 0};
    return line;
}

/* In its place; of two with the same x the latest counts. */
static void add_point(struct weft_report_line *line, struct weft_report_point point)
{
    size_t at = 0;
    while (at < line->count && line->point[at].x < point.x) {
        at++;
    }
    if (at == line->count || line->point[at].x > point.x) {
        line->point = weft_cli_grow(line->point, line->count + 1, sizeof(point));
        memmove(line->point + at + 1, line->point + at, (line->count - at) * sizeof(point));
        line->count++;
    }
    line->point[at] = point;
}

/* ---- groups ---- */

static struct weft_report_group *group_of(struct weft_report *report,
                                          const struct weft_cli_value *row, int ranks)
{
    const char *op = weft_cli_value_text(row, "op"), *path = weft_cli_value_text(row, "path");
    const char *alloc = weft_cli_value_text(row, "alloc");
    for (size_t i = 0; i < report->count; i++) {
        struct weft_report_group *group = &report->group[i];
        if (group->ranks == ranks && is_same(group->op, op) && is_same(group->path, path) &&
            is_same(group->alloc, alloc)) {
            return group;
        }
    }
    report->group = weft_cli_grow(report->group, report->count + 1, sizeof(report->group[0]));
    struct weft_report_group *group = &report->group[report->count++];
    *group = (struct weft_report_group){
        .op = copy_of(op), .path = copy_of(path), .alloc = copy_of(alloc), .ranks = ranks};
    return group;
}

static void add_row(struct weft_report *report, const struct weft_cli_value *row, const char *asked,
                    bool is_with_place)
{
    const struct weft_cli_value *times = weft_cli_value_get(row, "time_us");
    double bytes = weft_cli_value_number(row, "bytes"), ranks = weft_cli_value_number(row, "ranks");
    double limit_us = weft_cli_value_number(row, "limit_us");
    struct weft_report_point point = {
        .x = bytes > 0 ? bytes : ranks,
        .us = weft_cli_value_number(times, "p50"),
        .p99_us = weft_cli_value_number(times, "p99"),
        .busbw_gbs = weft_cli_value_number(row, "busbw_gbs"),
        .limit_pct = weft_cli_value_number(row, "limit_pct"),
        .wrong = weft_cli_value_number(row, "wrong"),
    };
    if (weft_cli_value_text(row, "op") == NULL || !(point.x > 0) || !(point.us > 0)) {
        return; /* refused, or nothing that we know */
    }
    struct weft_report_group *group = group_of(report, row, bytes > 0 ? (int)ranks : 0);
    char *name = name_of(row, asked, is_with_place);
    add_point(line_of(group, name), point);
    free(name);
    if (limit_us > 0) {
        struct weft_report_line *limit = line_of(group, "limit");
        limit->is_limit = true;
        add_point(limit,
                  (struct weft_report_point){.x = point.x,
                                             .us = limit_us,
                                             .p99_us = NAN,
                                             .busbw_gbs = point.busbw_gbs * point.us / limit_us,
                                             .limit_pct = NAN,
                                             .wrong = NAN});
    }
}

/* The limit is drawn first, under the others. */
static void put_limits_first(struct weft_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        struct weft_report_group *group = &report->group[i];
        for (size_t k = 1; k < group->count; k++) {
            if (group->line[k].is_limit) {
                struct weft_report_line limit = group->line[k];
                memmove(group->line + 1, group->line, k * sizeof(limit));
                group->line[0] = limit;
            }
        }
    }
}

bool weft_report_open(const struct weft_cli_value *json, struct weft_report *report_p)
{
    const struct weft_cli_value *results = weft_cli_value_get(json, "results");
    const char *asked = weft_cli_value_text(weft_cli_value_get(json, "args"), "algo");
    struct weft_report report = {0};
    const struct weft_cli_value *first =
        results != NULL && results->kind == WEFT_CLI_VALUE_ARRAY ? results->first : NULL;
    bool is_with_place = has_both_places(first);
    for (const struct weft_cli_value *row = first; row != NULL; row = row->next) {
        add_row(&report, row, asked, is_with_place);
    }
    put_limits_first(&report);
    *report_p = report;
    return report.count > 0;
}

void weft_report_close(struct weft_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        struct weft_report_group *group = &report->group[i];
        for (size_t k = 0; k < group->count; k++) {
            free(group->line[k].name);
            free(group->line[k].point);
        }
        free(group->line);
        free(group->op);
        free(group->path);
        free(group->alloc);
    }
    free(report->group);
    *report = (struct weft_report){0};
}

/* ---- the file ---- */

const char *weft_report_figure(double value, char text[WEFT_REPORT_FIGURE_LEN])
{
    int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
    if (isfinite(value) && value > 0 && value < 0.01) {
        snprintf(text, WEFT_REPORT_FIGURE_LEN, "%.2g", value);
    } else if (isfinite(value)) {
        snprintf(text, WEFT_REPORT_FIGURE_LEN, "%.*f", decimals, value);
    } else {
        text[0] = '\0';
    }
    return text;
}

bool weft_report_write(const char *json_text, const char *path, char **why_p)
{
    struct weft_report report;
    struct weft_cli_value *json = weft_cli_json_read(json_text, why_p);
    if (json == NULL) {
        return false;
    }
    if (!weft_report_open(json, &report)) {
        weft_cli_value_free(json);
        *why_p = weft_cli_format("there are no results to draw");
        return false;
    }
    FILE *out = fopen(path, "we");
    bool is_written = out != NULL;
    if (out != NULL) {
        weft_report_page(out, json, &report);
        is_written = ferror(out) == 0;
        is_written = fclose(out) == 0 && is_written;
    }
    if (!is_written) {
        *why_p = weft_cli_format("%s: %s", path, strerror(errno));
    }
    weft_report_close(&report);
    weft_cli_value_free(json);
    return is_written;
}
