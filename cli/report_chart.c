/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One picture: curves over logarithmic axes, as inline SVG. Lines differ in colour, in their marks and,
 * from the eighth on, in dashes, so that they can be told apart in grey print too; colours are classes of
 * the page's style sheet.
 */
#include "report.h"

#include <math.h>
#include <string.h>

#define WIDTH 470
#define HEIGHT 300
#define LEFT 58
#define RIGHT 14
#define TOP 14
#define BOTTOM 40
#define COLOURS 7
#define X_LABELS_MAX 9

struct chart {
    FILE *out;
    const struct weft_report_group *group;
    enum weft_report_axis axis;
    double x0, x1, y0, y1; /* logarithms: of 2, of 10 */
};

static double value_of(const struct chart *chart, const struct weft_report_point *point)
{
    return chart->axis == WEFT_REPORT_TIME ? point->us : point->busbw_gbs;
}

/* Where values lie. false: there is none. */
static bool find_range(struct chart *chart)
{
    double low = INFINITY, high = -INFINITY;
    chart->x0 = INFINITY;
    chart->x1 = -INFINITY;
    for (size_t i = 0; i < chart->group->count; i++) {
        const struct weft_report_line *line = &chart->group->line[i];
        for (size_t k = 0; k < line->count; k++) {
            double value = value_of(chart, &line->point[k]);
            if (isfinite(value) && value > 0) {
                low = fmin(low, log10(value));
                high = fmax(high, log10(value));
                chart->x0 = fmin(chart->x0, log2(line->point[k].x));
                chart->x1 = fmax(chart->x1, log2(line->point[k].x));
            }
        }
    }
    if (!(high >= low)) {
        return false;
    }
    if (chart->x1 - chart->x0 < 1) { /* one size only */
        chart->x0 -= 1;
        chart->x1 += 1;
    }
    double gap = fmax(0.04 * (high - low), 0.05);
    chart->y0 = low - gap;
    chart->y1 = high + gap;
    return true;
}

static double place_x(const struct chart *chart, double x)
{
    double span = WIDTH - LEFT - RIGHT;
    return LEFT + 6 + (log2(x) - chart->x0) / (chart->x1 - chart->x0) * (span - 12);
}

static double place_y(const struct chart *chart, double value)
{
    double span = HEIGHT - TOP - BOTTOM;
    return TOP + (chart->y1 - log10(value)) / (chart->y1 - chart->y0) * span;
}

/* ---- axes ---- */

static void grid_line(const struct chart *chart, const char *class, double x1, double y1, double x2,
                      double y2)
{
    fprintf(chart->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
            class, x1, y1, x2, y2);
}

static void draw_x_axis(const struct chart *chart)
{
    char size[24];
    int first = (int)ceil(chart->x0 - 1e-9), last = (int)floor(chart->x1 + 1e-9);
    int step = 1;
    while ((last - first) / step >= X_LABELS_MAX) {
        step++;
    }
    for (int power = first; power <= last; power += step) {
        double value = ldexp(1, power), x = place_x(chart, value);
        grid_line(chart, "g", x, TOP, x, HEIGHT - BOTTOM);
        fprintf(chart->out, "<text class=\"a m\" x=\"%.1f\" y=\"%d\">%s</text>\n", x,
                HEIGHT - BOTTOM + 16, value >= 1 ? weft_cli_print_size((uint64_t)value, size) : "");
    }
    fprintf(chart->out, "<text class=\"a m\" x=\"%d\" y=\"%d\">%s</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, chart->group->ranks > 0 ? "bytes" : "ranks");
}

/* 10⁻⁵, 0.2, 30, 4k: what a label says of a power of ten times 1, 2 or 5. */
static void print_label(double value, char *text, size_t len)
{
    static const char *const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    int power = (int)ceil(-log10(value) - 1e-9);
    long times = lround(value * pow(10, power));
    if (value < 9e-4 && power < 10 && times == 1) {
        snprintf(text, len, "10⁻%s", digits[power]);
    } else if (value < 9e-4 && power < 10) {
        snprintf(text, len, "%ld·10⁻%s", times, digits[power]);
    } else if (value >= 1e6) {
        snprintf(text, len, "%gM", value / 1e6);
    } else if (value >= 1e3) {
        snprintf(text, len, "%gk", value / 1e3);
    } else {
        snprintf(text, len, "%g", value);
    }
}

static void draw_y_axis(const struct chart *chart)
{
    static const double parts[] = {1, 2, 5};
    double decades = chart->y1 - chart->y0;
    size_t count = decades < 2.2 ? WEFT_COUNT_OF(parts) : 1;
    int step = decades > 9 ? 2 : 1;
    for (int power = (int)floor(chart->y0); power <= (int)ceil(chart->y1); power++) {
        for (size_t i = 0; i < count; i++) {
            double value = parts[i] * pow(10, power), y = place_y(chart, value);
            char text[24];
            if (log10(value) < chart->y0 || log10(value) > chart->y1) {
                continue;
            }
            grid_line(chart, "g", LEFT, y, WIDTH - RIGHT, y);
            if (power % step == 0) {
                print_label(value, text, sizeof(text));
                fprintf(chart->out, "<text class=\"a e\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT - 6,
                        y + 4, text);
            }
        }
    }
    fprintf(chart->out,
            "<text class=\"a m\" transform=\"translate(13 %d) rotate(-90)\">%s</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, chart->axis == WEFT_REPORT_TIME ? "µs" : "busbw, GB/s");
    fprintf(chart->out, "<rect class=\"f\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
            TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
}

/* ---- lines ---- */

/* Which colour, marks and dashes: the limit has its own and is not counted. */
static unsigned number_of(const struct weft_report_group *group, size_t index)
{
    unsigned number = 0;
    for (size_t i = 0; i < index; i++) {
        number += !group->line[i].is_limit;
    }
    return number;
}

static void print_class(FILE *out, const struct weft_report_group *group, size_t index)
{
    unsigned number = number_of(group, index);
    if (group->line[index].is_limit) {
        fputs("l lim", out);
        return;
    }
    fprintf(out, "l c%u%s%s", number % COLOURS, number >= COLOURS ? " d" : "",
            group->line[index].is_weft ? " w" : "");
}

static void print_mark(FILE *out, unsigned number, double x, double y)
{
    switch (number % 4) {
    case 0:
        fprintf(out, "<circle class=\"p c%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\">", number % COLOURS,
                x, y);
        return;
    case 1:
        fprintf(out, "<path class=\"p c%u\" d=\"M%.1f %.1fh5.4v5.4h-5.4z\">", number % COLOURS,
                x - 2.7, y - 2.7);
        return;
    case 2:
        fprintf(out, "<path class=\"p c%u\" d=\"M%.1f %.1fl3.6 6.2h-7.2z\">", number % COLOURS, x,
                y - 3.8);
        return;
    default:
        fprintf(out, "<path class=\"p c%u\" d=\"M%.1f %.1fl3.6 3.6l-3.6 3.6l-3.6 -3.6z\">",
                number % COLOURS, x, y - 3.6);
    }
}

static void end_mark(FILE *out, unsigned number)
{
    fputs(number % 4 == 0 ? "</circle>\n" : "</path>\n", out);
}

static void draw_line(const struct chart *chart, size_t index)
{
    const struct weft_report_line *line = &chart->group->line[index];
    bool is_begun = false;
    fputs("<path class=\"", chart->out);
    print_class(chart->out, chart->group, index);
    fputs("\" d=\"", chart->out);
    for (size_t i = 0; i < line->count; i++) {
        double value = value_of(chart, &line->point[i]);
        if (isfinite(value) && value > 0) {
            fprintf(chart->out, "%c%.1f %.1f", is_begun ? 'L' : 'M',
                    place_x(chart, line->point[i].x), place_y(chart, value));
            is_begun = true;
        }
    }
    fputs("\"/>\n", chart->out);
}

/* Hovering over a mark says what it is. */
static void draw_marks(const struct chart *chart, size_t index)
{
    const struct weft_report_line *line = &chart->group->line[index];
    unsigned number = number_of(chart->group, index);
    for (size_t i = 0; !line->is_limit && i < line->count; i++) {
        double value = value_of(chart, &line->point[i]);
        char size[24], text[WEFT_REPORT_FIGURE_LEN];
        if (!isfinite(value) || value <= 0) {
            continue;
        }
        print_mark(chart->out, number, place_x(chart, line->point[i].x), place_y(chart, value));
        fputs("<title>", chart->out);
        weft_report_escape(chart->out, line->name);
        fprintf(chart->out, ", %s%s: %s %s</title>",
                weft_cli_print_size((uint64_t)line->point[i].x, size),
                chart->group->ranks > 0 ? "" : " ranks", weft_report_figure(value, text),
                chart->axis == WEFT_REPORT_TIME ? "µs" : "GB/s");
        end_mark(chart->out, number);
    }
}

void weft_report_chart(FILE *out, const struct weft_report_group *group, enum weft_report_axis axis)
{
    struct chart chart = {.out = out, .group = group, .axis = axis};
    if (!find_range(&chart)) {
        return;
    }
    fprintf(out, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
            WIDTH, HEIGHT, axis == WEFT_REPORT_TIME ? "time" : "bus bandwidth");
    draw_x_axis(&chart);
    draw_y_axis(&chart);
    for (size_t i = 0; i < group->count; i++) {
        draw_line(&chart, i);
    }
    for (size_t i = 0; i < group->count; i++) {
        draw_marks(&chart, i);
    }
    fputs("</svg>\n", out);
}

void weft_report_swatch(FILE *out, const struct weft_report_group *group, size_t index)
{
    unsigned number = number_of(group, index);
    fputs("<svg class=\"swatch\" viewBox=\"0 0 28 12\"><path class=\"", out);
    print_class(out, group, index);
    fputs("\" d=\"M1 6H27\"/>", out);
    if (!group->line[index].is_limit) {
        print_mark(out, number, 14, 6);
        end_mark(out, number);
    }
    fputs("</svg>", out);
}
