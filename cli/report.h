/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page of results: one HTML file with everything in it, made of the JSON that benchmarks write (report.c
 * finds the curves in it, report_page.c writes the page, report_chart.c one picture).
 *
 * Read of the JSON: "title", "date", "peers", "host" {name: value}, "args" {…}, "notes" [text], "tables"
 * [{"title", "columns" [text], "rows" [[text]], "shade": ratios are coloured}], and "results", rows as in
 * `weft bench --json`, in which "who" may name another program.
 */
#ifndef WEFT_CLI_REPORT_H
#define WEFT_CLI_REPORT_H

#include "cli.h"

struct weft_report_point {
    double x; /* bytes, or ranks */
    double us, p99_us, busbw_gbs, limit_pct, wrong;
};

struct weft_report_line {
    char *name;                      /* owned: an algorithm, a peer */
    struct weft_report_point *point; /* owned; x ascending */
    size_t count;
    bool is_limit; /* what the machine would take */
    bool is_weft;
};

/* What belongs into one picture: an operation over one path, with so many ranks. */
struct weft_report_group {
    char *op, *path, *alloc;       /* owned; alloc NULL: of several kinds */
    int ranks;                     /* 0: they are the x axis */
    struct weft_report_line *line; /* owned */
    size_t count;
};

struct weft_report {
    struct weft_report_group *group; /* owned */
    size_t count;
};

/* false: there is no result in it. */
bool weft_report_open(const struct weft_cli_value *json, struct weft_report *report_p);
void weft_report_close(struct weft_report *report);

enum weft_report_axis { WEFT_REPORT_TIME, WEFT_REPORT_BUSBW };
/* Inline SVG. */
void weft_report_chart(FILE *out, const struct weft_report_group *group,
                       enum weft_report_axis axis);
/* A piece of line `index` of the group, as it is drawn, for the legend. */
void weft_report_swatch(FILE *out, const struct weft_report_group *group, size_t index);

/* The whole page; json is what the report was opened with. */
void weft_report_page(FILE *out, const struct weft_cli_value *json,
                      const struct weft_report *report);
/* Text as HTML. */
void weft_report_escape(FILE *out, const char *text);
/* Four digits that count; returns text. NaN: "". */
#define WEFT_REPORT_FIGURE_LEN 24
const char *weft_report_figure(double value, char text[WEFT_REPORT_FIGURE_LEN]);

/* From the JSON's text to a file. false: *why_p (freed by the caller). */
bool weft_report_write(const char *json_text, const char *path, char **why_p);

#endif
