/* SPDX-License-Identifier: Apache-2.0 */
/* A pen for pictures made of boxes and words (topo_pen.c). Colours are classes of its style sheet,
 * which has a light and a dark half. */
#ifndef WEFT_CLI_TOPO_SVG_H
#define WEFT_CLI_TOPO_SVG_H

#include "topo_view.h"

struct weft_cli_pen;

struct weft_cli_pen *weft_cli_pen_open(void);
/* class: package, node, card, data, gpu */
void weft_cli_pen_box(struct weft_cli_pen *pen, int x, int y, int w, int h, const char *class);
void weft_cli_pen_square(struct weft_cli_pen *pen, int x, int y, int side, const char *class);
/* class: line (thin), message, added (with a head at the second point) */
void weft_cli_pen_line(struct weft_cli_pen *pen, const int from[2], const int to[2],
                       const char *class);
/* Words with their base line at y, cut where they would be wider than w. class: title, b (bold), t,
 * s (second rank), i (slanted). The second one ends at x instead of beginning there. */
void weft_cli_pen_text(struct weft_cli_pen *pen, int x, int y, int w, const char *class,
                       const char *fmt, ...) WEFT_PRINTF(6, 7);
void weft_cli_pen_text_end(struct weft_cli_pen *pen, int x, int y, int w, const char *class,
                           const char *fmt, ...) WEFT_PRINTF(6, 7);
/* Writes the picture, of this size and with this title, and lets the pen go. */
void weft_cli_pen_close(struct weft_cli_pen *pen, int w, int h, const char *title, FILE *out);

#endif
