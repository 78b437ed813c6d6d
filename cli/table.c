/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned tables. Cells are kept until print, because a column is as wide as its widest cell. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define GAP 2
#define NARROWEST 8 /* a text column gives way no further than this */
#define NOTE_INDENT 4

struct row {
    char **cell; /* [columns], owned */
    char *note;  /* owned, may be NULL */
};

struct weft_cli_table {
    const struct weft_cli_column *columns; /* lent */
    unsigned column_count;
    struct row *rows; /* owned */
    size_t row_count;
    unsigned filled; /* cells of the latest row; column_count when it is whole */
};

struct weft_cli_table *weft_cli_table_open(const struct weft_cli_column *columns, unsigned count)
{
    struct weft_cli_table *table = weft_cli_alloc(1, sizeof(*table));

    table->columns = columns;
    table->column_count = count;
    table->filled = count;
    return table;
}

void weft_cli_table_close(struct weft_cli_table *table)
{
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < table->row_count; i++) {
        for (unsigned j = 0; j < table->column_count; j++) {
            free(table->rows[i].cell[j]);
        }
        free(table->rows[i].cell);
        free(table->rows[i].note);
    }
    free(table->rows);
    free(table);
}

void weft_cli_table_cell(struct weft_cli_table *table, const char *fmt, ...)
{
    va_list args;

    if (table->filled == table->column_count) {
        table->rows = weft_cli_grow(table->rows, table->row_count + 1, sizeof(*table->rows));
        struct row *fresh = &table->rows[table->row_count++];
        fresh->cell = weft_cli_alloc(table->column_count, sizeof(*fresh->cell));
        fresh->note = NULL;
        table->filled = 0;
    }
    char text[512];
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    table->rows[table->row_count - 1].cell[table->filled++] = weft_cli_format("%s", text);
}

void weft_cli_table_note(struct weft_cli_table *table, const char *text)
{
    if (table->row_count > 0) {
        struct row *latest = &table->rows[table->row_count - 1];
        free(latest->note);
        latest->note = weft_cli_format("%s", text);
    }
}

/* columns on a terminal: UTF-8 continuation bytes take none */
static unsigned width_of(const char *text)
{
    unsigned width = 0;

    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

static unsigned max2(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

/* The widest text column that may still give way, or -1. */
static int widest_text(const struct weft_cli_table *table, const unsigned *widths)
{
    int widest = -1;

    for (unsigned j = 0; j < table->column_count; j++) {
        unsigned least = max2(NARROWEST, width_of(table->columns[j].name));
        if (!table->columns[j].is_number && widths[j] > least &&
            (widest < 0 || widths[j] > widths[widest])) {
            widest = (int)j;
        }
    }
    return widest;
}

static void measure(const struct weft_cli_table *table, unsigned *widths)
{
    unsigned total = 0;

    for (unsigned j = 0; j < table->column_count; j++) {
        widths[j] = width_of(table->columns[j].name);
        for (size_t i = 0; i < table->row_count; i++) {
            const char *cell = table->rows[i].cell[j];
            widths[j] = cell != NULL ? max2(widths[j], width_of(cell)) : widths[j];
        }
        total += widths[j] + (j > 0 ? GAP : 0);
    }
    for (; total > WEFT_CLI_WIDTH; total--) {
        int giving = widest_text(table, widths);
        if (giving < 0) {
            return;
        }
        widths[giving]--;
    }
}

/* bytes of the first `width` columns of text */
static int bytes_of(const char *text, unsigned width)
{
    const char *at = text;

    while (*at != '\0' && width > 0) {
        do {
            at++;
        } while (((unsigned char)*at & 0xc0) == 0x80);
        width--;
    }
    return (int)(at - text);
}

static void print_cell(FILE *out, const char *text, unsigned width, bool is_number, bool is_last)
{
    unsigned taken = width_of(text);
    bool is_cut = taken > width;
    unsigned shown = is_cut ? width - 3 : taken;
    int pad = is_cut ? 0 : (int)(width - taken);

    if (is_number) {
        fprintf(out, "%*s", pad, "");
    }
    fprintf(out, "%.*s%s", bytes_of(text, shown), text, is_cut ? "..." : "");
    if (!is_number && !is_last) {
        fprintf(out, "%*s", pad, "");
    }
}

static void print_note(FILE *out, const char *text)
{
    unsigned column = 0;

    for (const char *at = text; *at != '\0';) {
        int len = (int)strcspn(at, " ");
        char word[128];
        snprintf(word, sizeof(word), "%.*s", len, at);
        unsigned width = width_of(word);
        if (column == 0 || column + 1 + width > WEFT_CLI_WIDTH) {
            fprintf(out, "%s%*s%s", column > 0 ? "\n" : "", NOTE_INDENT, "", word);
            column = NOTE_INDENT + width;
        } else {
            fprintf(out, " %s", word);
            column += 1 + width;
        }
        at += len;
        at += strspn(at, " ");
    }
    fputc('\n', out);
}

void weft_cli_table_print(const struct weft_cli_table *table, FILE *out)
{
    unsigned *widths = weft_cli_alloc(table->column_count, sizeof(*widths));

    measure(table, widths);
    /* row 0 is the header */
    for (size_t i = 0; i <= table->row_count; i++) {
        for (unsigned j = 0; j < table->column_count; j++) {
            const char *cell = i == 0 ? table->columns[j].name : table->rows[i - 1].cell[j];
            fprintf(out, "%*s", j > 0 ? GAP : 0, "");
            print_cell(out, cell != NULL ? cell : "", widths[j], table->columns[j].is_number,
                       j + 1 == table->column_count);
        }
        fputc('\n', out);
        if (i > 0 && table->rows[i - 1].note != NULL) {
            print_note(out, table->rows[i - 1].note);
        }
    }
    free(widths);
}
