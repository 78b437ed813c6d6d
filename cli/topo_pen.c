/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes and words as SVG. The picture has a ground of its own, so that it can be read on any page;
 * where the reader prefers dark pages it turns dark. Nobody can ask for the width of a word here:
 * it is estimated, on the generous side.
 */
#include "topo_svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct weft_cli_pen {
    FILE *body; /* owned; memory: the size is written before it */
    char *text; /* owned */
    size_t len;
};

static const char style[] =
    "text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px;"
    "fill:#1f2328}\n"
    ".title{font-size:22px;font-weight:600}\n"
    ".b{font-weight:600}\n"
    ".s{fill:#57606a}\n"
    ".i{fill:#57606a;font-style:italic}\n"
    "rect{stroke-width:1}\n"
    ".ground{fill:#fff;stroke:#d0d7de}\n"
    ".package{fill:#f6f8fa;stroke:#d0d7de}\n"
    ".node{fill:#fff;stroke:#d0d7de}\n"
    ".card{fill:#f6f8fa;stroke:#d0d7de}\n"
    ".data{fill:#ddf4ff;stroke:#218bff}\n"
    ".gpu{fill:#fff8c5;stroke:#bf8700}\n"
    ".ours{fill:#2da44e;stroke:#1a7f37}\n"
    ".pu{fill:#eaeef2;stroke:#afb8c1}\n"
    ".line{stroke:#d0d7de;fill:none}\n"
    ".message{stroke:#218bff;stroke-width:1.5;fill:#218bff}\n"
    ".added{stroke:#bf8700;stroke-width:1.5;fill:#bf8700}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}.s,.i{fill:#9da7b3}\n"
    ".ground,.node{fill:#0d1117;stroke:#3d444d}.package,.card{fill:#161b22;stroke:#3d444d}\n"
    ".data{fill:#0c2d6b;stroke:#388bfd}.gpu{fill:#3b2300;stroke:#bb8009}\n"
    ".ours{fill:#2ea043;stroke:#56d364}.pu{fill:#21262d;stroke:#484f58}\n"
    ".line{stroke:#3d444d}\n"
    "}\n";

struct weft_cli_pen *weft_cli_pen_open(void)
{
    struct weft_cli_pen *pen = weft_cli_alloc(1, sizeof(*pen));

    pen->body = open_memstream(&pen->text, &pen->len);
    if (pen->body == NULL) {
        fputs("weft: out of memory\n", stderr);
        exit(WEFT_CLI_FAILED);
    }
    return pen;
}

void weft_cli_pen_box(struct weft_cli_pen *pen, int x, int y, int w, int h, const char *class)
{
    fprintf(pen->body,
            "<rect class=\"%s\" x=\"%d.5\" y=\"%d.5\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n",
            class, x, y, w - 1, h - 1);
}

void weft_cli_pen_square(struct weft_cli_pen *pen, int x, int y, int side, const char *class)
{
    fprintf(pen->body,
            "<rect class=\"%s\" x=\"%d.5\" y=\"%d.5\" width=\"%d\" height=\"%d\" rx=\"2\"/>\n",
            class, x, y, side - 1, side - 1);
}

/* The head is drawn: markers do not take the colour of their line everywhere. */
void weft_cli_pen_line(struct weft_cli_pen *pen, const int from[2], const int to[2],
                       const char *class)
{
    double dx = to[0] - from[0], dy = to[1] - from[1], len = sqrt(dx * dx + dy * dy);

    fprintf(pen->body, "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", class,
            from[0], from[1], to[0], to[1]);
    if (strcmp(class, "line") != 0 && len > 0) {
        double x = to[0] - dx / len * 8, y = to[1] - dy / len * 8;
        fprintf(pen->body, "<path class=\"%s\" d=\"M%d %dL%.1f %.1fL%.1f %.1fz\"/>\n", class, to[0],
                to[1], x - dy / len * 3, y + dx / len * 3, x + dy / len * 3, y - dx / len * 3);
    }
}

/* Tenths of the letter size that a character is wide, at most, in the usual fonts. */
static int tenths(char letter, bool is_bold)
{
    int width = strchr("iljtfrI.,:;'|()[]/ -", letter) != NULL ? 4
                : strchr("mwMW@%", letter) != NULL             ? 10
                : letter >= 'A' && letter <= 'Z'               ? 8
                                                               : 6;

    return width + is_bold;
}

/* Bytes of text that fit into w. */
static size_t fitting(const char *text, int w, bool is_bold, int size)
{
    int used = 0, dots = 3 * 4 * size;
    size_t with_dots = 0;

    for (size_t i = 0; text[i] != '\0'; i++) {
        if (((unsigned char)text[i] & 0xc0) == 0x80) {
            continue;
        }
        if (used + dots <= w * 10) {
            with_dots = i;
        }
        used += tenths(text[i], is_bold) * size;
        if (used > w * 10) {
            return with_dots;
        }
    }
    return strlen(text);
}

/* XML has no way to write control characters; they were cleaned out. */
static void write_escaped(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        switch (text[i]) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            /* an interface may be called anything; a lone byte of UTF-8 would break the file */
            fputc((unsigned char)text[i] < 0x80 ? text[i] : '?', out);
        }
    }
}

static void put(struct weft_cli_pen *pen, int x, int y, int w, const char *class,
                const char *anchor, char *text)
{
    bool is_title = strcmp(class, "title") == 0;
    size_t whole = strlen(text);
    size_t shown;

    weft_text_clean(text);
    shown = fitting(text, w, is_title || strcmp(class, "b") == 0, is_title ? 22 : 12);
    fprintf(pen->body, "<text class=\"%s\" x=\"%d\" y=\"%d\"%s>", class, x, y, anchor);
    write_escaped(pen->body, text, shown);
    fprintf(pen->body, "%s</text>\n", shown < whole ? "..." : "");
}

void weft_cli_pen_text(struct weft_cli_pen *pen, int x, int y, int w, const char *class,
                       const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    put(pen, x, y, w, class, "", text);
}

void weft_cli_pen_text_end(struct weft_cli_pen *pen, int x, int y, int w, const char *class,
                           const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    put(pen, x, y, w, class, " text-anchor=\"end\"", text);
}

void weft_cli_pen_close(struct weft_cli_pen *pen, int w, int h, const char *title, FILE *out)
{
    char *clean = weft_cli_format("%s", title);

    fclose(pen->body);
    weft_text_clean(clean);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
            w, h, w, h);
    write_escaped(out, clean, strlen(clean));
    fprintf(out,
            "</title>\n<style>\n%s</style>\n"
            "<rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n",
            style, w - 1, h - 1);
    fwrite(pen->text, 1, pen->len, out);
    fputs("</svg>\n", out);
    free(clean);
    free(pen->text);
    free(pen);
}
