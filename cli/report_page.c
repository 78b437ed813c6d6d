/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page around the pictures: what was measured where and when, tables that came with the results, and
 * for each picture its figures. No scripts, nothing from elsewhere; light or dark as the reader likes, light
 * on paper, and no picture is torn at the end of a sheet.
 */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

static const char style[] =
    ":root{--ink:#1f2328;--soft:#59636e;--ground:#fff;--line:#d1d9e0;--grid:#eaeef2;--band:#f6f8fa;"
    "--c0:#0550ae;--c1:#d1570b;--c2:#1a7f4b;--c3:#a0358a;--c4:#0b93a8;--c5:#b58105;--c6:#6e7781;"
    "--good:#cdebd6;--fair:#e6f4ea;--poor:#fff1c9;--bad:#ffd3cf}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b3;"
    "--ground:#0d1117;--line:#3d444d;--grid:#21262d;--band:#161b22;--c0:#58a6ff;--c1:#f0883e;"
    "--c2:#3fb950;--c3:#db61a2;--c4:#39c5cf;--c5:#d4a72c;--c6:#8b949e;--good:#12432a;--fair:#"
    "0f2e1f;"
    "--poor:#4d3800;--bad:#67120e}}\n"
    "body{margin:2rem auto;max-width:1040px;padding:0 "
    "1rem;color:var(--ink);background:var(--ground);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\n"
    "h1{font-size:1.7rem;margin:0}"
    "h2{font-size:1.1rem;margin:1.6rem 0 .2rem}\n"
    ".facts,.note{color:var(--soft);margin:.2rem 0}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.3rem 0;font-size:.9rem}\n"
    ".legend span{white-space:nowrap}.swatch{width:28px;height:12px;margin-right:.4rem;"
    "vertical-align:baseline}\n"
    ".charts{display:flex;flex-wrap:wrap;gap:0 1.2rem}.chart{flex:1 1 400px;min-width:0;"
    "max-width:520px}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;"
    "font-variant-numeric:tabular-nums;margin:.4rem 0}\n"
    "th,td{padding:.12rem .6rem;text-align:right;border-bottom:1px solid var(--grid);"
    "white-space:nowrap}th{border-bottom:1px solid var(--line);font-weight:600}\n"
    "td.t,th.t{text-align:left}td small{color:var(--soft)}\n"
    ".good{background:var(--good)}.fair{background:var(--fair)}.poor{background:var(--poor)}"
    ".bad{background:var(--bad)}\n"
    "svg text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;"
    "fill:var(--soft)}.m{text-anchor:middle}.e{text-anchor:end}\n"
    ".g{stroke:var(--grid)}.f{fill:none;stroke:var(--line)}\n"
    ".l{fill:none;stroke-width:1.6;stroke-linejoin:round}.l.w{stroke-width:2.6}"
    ".l.d{stroke-dasharray:6 3}.l.lim{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:2 3}\n"
    ".l.c0{stroke:var(--c0)}.l.c1{stroke:var(--c1)}.l.c2{stroke:var(--c2)}.l.c3{stroke:var(--c3)}"
    ".l.c4{stroke:var(--c4)}.l.c5{stroke:var(--c5)}.l.c6{stroke:var(--c6)}\n"
    ".p{stroke:var(--ground);stroke-width:.8}.p.c0{fill:var(--c0)}.p.c1{fill:var(--c1)}"
    ".p.c2{fill:var(--c2)}.p.c3{fill:var(--c3)}.p.c4{fill:var(--c4)}.p.c5{fill:var(--c5)}"
    ".p.c6{fill:var(--c6)}\n"
    "@media print{@page{margin:14mm}body{margin:0;max-width:none;font-size:10pt}"
    ".group,table{break-inside:avoid}.charts{flex-wrap:nowrap}"
    ".chart{flex:1 1 0}.scroll{overflow:visible}table{font-size:7.5pt}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n";

void weft_report_escape(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

/* ---- the head ---- */

static void write_fact(FILE *out, const char *name, const struct weft_cli_value *value)
{
    char text[32];
    if (value->kind != WEFT_CLI_VALUE_NUMBER && value->kind != WEFT_CLI_VALUE_TEXT) {
        return;
    }
    fputs(" · ", out);
    weft_report_escape(out, name);
    fputc(' ', out);
    snprintf(text, sizeof(text), "%g", value->number);
    weft_report_escape(out, value->kind == WEFT_CLI_VALUE_TEXT ? value->text : text);
}

static void write_date(FILE *out, const struct weft_cli_value *json)
{
    const char *date = weft_cli_value_text(json, "date");
    char today[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (date == NULL && localtime_r(&now, &parts) != NULL) {
        strftime(today, sizeof(today), "%Y-%m-%d %H:%M", &parts);
        date = today;
    }
    weft_report_escape(out, date != NULL ? date : "");
}

static void write_facts(FILE *out, const struct weft_cli_value *json)
{
    const struct weft_cli_value *host = weft_cli_value_get(json, "host");
    const char *version = weft_cli_value_text(json, "weft");
    const char *peers = weft_cli_value_text(json, "peers");
    fputs("<p class=\"facts\">", out);
    write_date(out, json);
    if (version != NULL) {
        fputs(" · weft ", out);
        weft_report_escape(out, version);
    }
    for (const struct weft_cli_value *fact = host != NULL ? host->first : NULL; fact != NULL;
         fact = fact->next) {
        write_fact(out, fact->key != NULL ? fact->key : "", fact);
    }
    fputs("</p>\n", out);
    if (peers != NULL) {
        fputs("<p class=\"facts\">", out);
        weft_report_escape(out, peers);
        fputs("</p>\n", out);
    }
}

static void write_notes(FILE *out, const struct weft_cli_value *json)
{
    const struct weft_cli_value *notes = weft_cli_value_get(json, "notes");
    for (const struct weft_cli_value *note = notes != NULL ? notes->first : NULL; note != NULL;
         note = note->next) {
        if (note->kind == WEFT_CLI_VALUE_TEXT) {
            fputs("<p class=\"note\">", out);
            weft_report_escape(out, note->text);
            fputs("</p>\n", out);
        }
    }
}

/* ---- tables that came along ---- */

/* Of a ratio: how good it is. */
static const char *shade_of(const char *text)
{
    char *end;
    double ratio = strtod(text, &end);
    if (end == text) {
        return "";
    }
    return ratio >= 2 ? "good" : ratio >= 1.2 ? "fair" : ratio >= 1 ? "poor" : "bad";
}

static void write_cells(FILE *out, const struct weft_cli_value *row, const char *tag,
                        bool is_shaded)
{
    size_t column = 0;
    fputs("<tr>", out);
    for (const struct weft_cli_value *cell = row != NULL ? row->first : NULL; cell != NULL;
         cell = cell->next, column++) {
        const char *text = cell->kind == WEFT_CLI_VALUE_TEXT ? cell->text : "";
        const char *shade = is_shaded && column > 1 ? shade_of(text) : "";
        fprintf(out, "<%s class=\"%s%s\">", tag, column == 0 ? "t" : "", shade);
        weft_report_escape(out, text);
        fprintf(out, "</%s>", tag);
    }
    fputs("</tr>\n", out);
}

static void write_tables(FILE *out, const struct weft_cli_value *json)
{
    const struct weft_cli_value *tables = weft_cli_value_get(json, "tables");
    for (const struct weft_cli_value *table = tables != NULL ? tables->first : NULL; table != NULL;
         table = table->next) {
        const char *title = weft_cli_value_text(table, "title");
        const struct weft_cli_value *rows = weft_cli_value_get(table, "rows");
        bool is_shaded = weft_cli_value_number(table, "shade") == 1;
        fputs("<div class=\"group\"><h2>", out);
        weft_report_escape(out, title != NULL ? title : "");
        fputs("</h2><div class=\"scroll\"><table>\n", out);
        write_cells(out, weft_cli_value_get(table, "columns"), "th", false);
        for (const struct weft_cli_value *row = rows != NULL ? rows->first : NULL; row != NULL;
             row = row->next) {
            write_cells(out, row, "td", is_shaded);
        }
        fputs("</table></div></div>\n", out);
    }
}

/* ---- groups ---- */

static void write_legend(FILE *out, const struct weft_report_group *group)
{
    fputs("<p class=\"legend\">", out);
    for (size_t i = 0; i < group->count; i++) {
        fputs("<span>", out);
        weft_report_swatch(out, group, i);
        weft_report_escape(out, group->line[i].name);
        fputs("</span>\n", out);
    }
    fputs("</p>\n", out);
}

static const struct weft_report_point *point_at(const struct weft_report_line *line, double x)
{
    for (size_t i = 0; i < line->count; i++) {
        if (line->point[i].x == x) {
            return &line->point[i];
        }
    }
    return NULL;
}

/* The smallest x of all lines that is more than this one; NaN: none. */
static double next_x(const struct weft_report_group *group, double x)
{
    double next = NAN;
    for (size_t i = 0; i < group->count; i++) {
        for (size_t k = 0; k < group->line[i].count; k++) {
            double here = group->line[i].point[k].x;
            next = here > x && !(here >= next) ? here : next;
        }
    }
    return next;
}

static void write_row(FILE *out, const struct weft_report_group *group, double x)
{
    char text[WEFT_REPORT_FIGURE_LEN];
    fprintf(out, "<tr><td class=\"t\">%s</td>", weft_cli_print_size((uint64_t)x, text));
    for (size_t i = 0; i < group->count; i++) {
        const struct weft_report_point *point = point_at(&group->line[i], x);
        fprintf(out, "<td%s>%s", point != NULL && point->wrong > 0 ? " class=\"bad\"" : "",
                weft_report_figure(point != NULL ? point->us : NAN, text));
        if (point != NULL && isfinite(point->p99_us)) {
            fprintf(out, " <small>%s</small>", weft_report_figure(point->p99_us, text));
        }
        fprintf(out, "</td><td>%s</td>",
                weft_report_figure(point != NULL ? point->busbw_gbs : NAN, text));
    }
    fputs("</tr>\n", out);
}

static bool has_p99(const struct weft_report_line *line)
{
    return line->count > 0 && isfinite(line->point[0].p99_us);
}

static void write_figures(FILE *out, const struct weft_report_group *group)
{
    fputs("<div class=\"scroll\"><table>\n<tr><th class=\"t\" rowspan=\"2\">", out);
    fputs(group->ranks > 0 ? "size</th>" : "ranks</th>", out);
    for (size_t i = 0; i < group->count; i++) {
        fputs("<th colspan=\"2\">", out);
        weft_report_escape(out, group->line[i].name);
        fputs("</th>", out);
    }
    fputs("</tr>\n<tr>", out);
    for (size_t i = 0; i < group->count; i++) {
        fprintf(out, "<th>%s</th><th>GB/s</th>",
                has_p99(&group->line[i]) ? "µs <small>p99</small>" : "µs");
    }
    fputs("</tr>\n", out);
    double x = next_x(group, 0);
    while (isfinite(x)) {
        write_row(out, group, x);
        x = next_x(group, x);
    }
    fputs("</table></div>\n", out);
}

static void write_group(FILE *out, const struct weft_report_group *group)
{
    fputs("<div class=\"group\"><h2>", out);
    weft_report_escape(out, group->op);
    if (group->ranks > 0) {
        fprintf(out, ", %d ranks", group->ranks);
    }
    if (group->path != NULL) {
        fputs(", ", out);
        weft_report_escape(out, group->path);
    }
    if (group->alloc != NULL) {
        fputs(", ", out);
        weft_report_escape(out, group->alloc);
        fputs(" buffers", out);
    }
    fputs("</h2>\n", out);
    write_legend(out, group);
    fputs("<div class=\"charts\">\n", out);
    weft_report_chart(out, group, WEFT_REPORT_TIME);
    weft_report_chart(out, group, WEFT_REPORT_BUSBW);
    fputs("</div>\n", out);
    write_figures(out, group);
    fputs("</div>\n", out);
}

void weft_report_page(FILE *out, const struct weft_cli_value *json,
                      const struct weft_report *report)
{
    const char *title = weft_cli_value_text(json, "title");
    const char *bench = weft_cli_value_text(json, "bench");
    char *usual = weft_cli_format("weft bench %s", bench != NULL ? bench : "");
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          out);
    weft_report_escape(out, title != NULL ? title : usual);
    fprintf(out, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
    weft_report_escape(out, title != NULL ? title : usual);
    fputs("</h1>\n", out);
    free(usual);
    write_facts(out, json);
    write_notes(out, json);
    write_tables(out, json);
    for (size_t i = 0; i < report->count; i++) {
        write_group(out, &report->group[i]);
    }
    fputs("</body></html>\n", out);
}
