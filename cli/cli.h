/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subcommands of `weft` share: options, tables, JSON, the progress line. One file per
 * subcommand; each returns its exit status. Running out of memory here ends the program (status 1):
 * a command line has nothing to save.
 */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum weft_cli_exit {
    WEFT_CLI_OK = 0,
    WEFT_CLI_FAILED = 1, /* it ran and failed */
    WEFT_CLI_USAGE = 2,  /* it was asked wrongly */
};

/* ---- subcommands: argv[0] is the subcommand's own name ---- */

int weft_cli_bench(int argc, char **argv);
int weft_cli_explain(int argc, char **argv);
int weft_cli_inspect(int argc, char **argv);
int weft_cli_lab(int argc, char **argv);
int weft_cli_params(int argc, char **argv);
int weft_cli_run(int argc, char **argv);
int weft_cli_sim(int argc, char **argv);
int weft_cli_topo(int argc, char **argv);
int weft_cli_tune(int argc, char **argv);

/* ---- options (options.c) ---- */

enum weft_cli_kind {
    WEFT_CLI_FLAG,     /* bool: set to true */
    WEFT_CLI_INT,      /* int64_t */
    WEFT_CLI_SIZE,     /* uint64_t bytes: 64, 4K, 1M, 2G (binary) */
    WEFT_CLI_DURATION, /* uint64_t ms: 250ms, 5s, 2min; a bare number is seconds */
    WEFT_CLI_TEXT,     /* const char *, lent from argv */
    WEFT_CLI_LIST,     /* struct weft_cli_list: "2,8,64", each within min … max */
    WEFT_CLI_SERIES,   /* the same; given again, it grows */
};

#define WEFT_CLI_LIST_MAX 64
struct weft_cli_list {
    unsigned count;
    int64_t value[WEFT_CLI_LIST_MAX];
};

struct weft_cli_option {
    const char *name; /* long name without dashes; NULL ends the table */
    char letter;      /* short name; 0: none */
    enum weft_cli_kind kind;
    const char *argument; /* "N", "FILE": for --help; NULL for flags */
    const char *help;     /* one line */
    void *value;          /* where it goes, see the kind; it holds the default before */
    int64_t min, max;     /* of numbers; both 0: anything ≥ 0 */
};

struct weft_cli_command {
    const char *name;    /* "run", "bench bootstrap" */
    const char *summary; /* one line */
    const char *usage;   /* what follows the name: "-n N [options] -- program [args...]" */
    const struct weft_cli_option *options;
    const char *examples[2];  /* whole command lines */
    bool is_prefix_of_others; /* options end at the first word that is none (weft run … prog -x) */
};

/*
 * Reads the options. Returns -1 to go on, with *rest_p the index of the first operand (argc when
 * there is none; all operands are moved behind the options); otherwise the exit status: --help was
 * printed, or an error was said. Each --help and -h is understood without being in the table.
 */
int weft_cli_parse(const struct weft_cli_command *command, int argc, char **argv, int *rest_p);

/* "weft run: text", then where --help is. Returns WEFT_CLI_USAGE. */
int weft_cli_usage_error(const struct weft_cli_command *command, const char *fmt, ...)
    WEFT_PRINTF(2, 3);
/* "weft run: text". Returns WEFT_CLI_FAILED. */
int weft_cli_fail(const struct weft_cli_command *command, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* ---- values (values.c) ---- */

/* false: not understood, nothing written */
bool weft_cli_read_int(const char *text, int64_t *value_p);
bool weft_cli_read_size(const char *text, uint64_t *bytes_p);
bool weft_cli_read_duration(const char *text, uint64_t *ms_p);
bool weft_cli_read_list(const char *text, struct weft_cli_list *list_p);
/* bytes as a person writes them, "512K", "1M", "100"; returns text (at least 24 bytes) */
const char *weft_cli_print_size(uint64_t bytes, char *text);

/* The name nearest to word, or NULL when none is near. */
const char *weft_cli_nearest(const char *word, const char *const *names, size_t count);

/* calloc, realloc and printf that end the program when there is no memory */
void *weft_cli_alloc(size_t count, size_t size); /* zeroed */
void *weft_cli_grow(void *memory, size_t count, size_t size);
char *weft_cli_format(const char *fmt, ...) WEFT_PRINTF(1, 2); /* owned by the caller */

/* ---- tables (table.c) ---- */

#define WEFT_CLI_WIDTH 100

struct weft_cli_column {
    const char *name;
    bool is_number; /* right-aligned */
};
struct weft_cli_table;

/* columns is lent until close */
struct weft_cli_table *weft_cli_table_open(const struct weft_cli_column *columns, unsigned count);
/* The next cell, from left to right; the row ends by itself after the last column. */
void weft_cli_table_cell(struct weft_cli_table *table, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* A sentence under the latest row, indented and wrapped. */
void weft_cli_table_note(struct weft_cli_table *table, const char *text);
/* Columns as wide as their widest cell, two spaces between; a text column gives way (its cells are
 * cut with "...") where the table would not fit WEFT_CLI_WIDTH. */
void weft_cli_table_print(const struct weft_cli_table *table, FILE *out);
void weft_cli_table_close(struct weft_cli_table *table); /* NULL is fine */

/* ---- JSON (json.c): written as it comes, one object per command ---- */

#define WEFT_CLI_JSON_DEPTH 16
struct weft_cli_json {
    FILE *out; /* lent */
    unsigned depth;
    char closer[WEFT_CLI_JSON_DEPTH];
    bool has_items[WEFT_CLI_JSON_DEPTH];
};

/* Opens the outer object, which begins with "weft": version. key is NULL inside arrays. */
void weft_cli_json_open(struct weft_cli_json *json, FILE *out);
void weft_cli_json_object(struct weft_cli_json *json, const char *key);
void weft_cli_json_array(struct weft_cli_json *json, const char *key);
void weft_cli_json_end(struct weft_cli_json *json); /* of the innermost object or array */
void weft_cli_json_text(struct weft_cli_json *json, const char *key,
                        const char *text); /* NULL: null */
void weft_cli_json_int(struct weft_cli_json *json, const char *key, int64_t value);
void weft_cli_json_real(struct weft_cli_json *json, const char *key,
                        double value); /* NaN, inf: null */
void weft_cli_json_bool(struct weft_cli_json *json, const char *key, bool value);
void weft_cli_json_null(struct weft_cli_json *json, const char *key);
/* Ends everything that is open, and the line. False: the output could not be written. */
bool weft_cli_json_close(struct weft_cli_json *json);

/* ---- JSON, read (json_read.c) ---- */

enum weft_cli_value_kind {
    WEFT_CLI_VALUE_NULL,
    WEFT_CLI_VALUE_BOOL,
    WEFT_CLI_VALUE_NUMBER,
    WEFT_CLI_VALUE_TEXT,
    WEFT_CLI_VALUE_ARRAY,
    WEFT_CLI_VALUE_OBJECT,
};
struct weft_cli_value {
    enum weft_cli_value_kind kind;
    double number;                       /* bool: 0 or 1 */
    char *key, *text;                    /* owned; key: in an object */
    struct weft_cli_value *first, *next; /* owned: of an array or object; beside it */
};
/* NULL: *why_p (freed by the caller) says in which line what was expected. */
struct weft_cli_value *weft_cli_json_read(const char *text, char **why_p);
void weft_cli_value_free(struct weft_cli_value *value); /* NULL is fine */
/* Of an object (NULL is fine); NULL or NaN when it is not there or of another kind. */
const struct weft_cli_value *weft_cli_value_get(const struct weft_cli_value *object,
                                                const char *key);
const char *weft_cli_value_text(const struct weft_cli_value *object, const char *key);
double weft_cli_value_number(const struct weft_cli_value *object, const char *key);

/* ---- progress (progress.c): one line on stderr that rewrites itself; nothing in a pipe ---- */

void weft_cli_progress(const char *fmt, ...) WEFT_PRINTF(1, 2); /* at most ten times a second */
void weft_cli_progress_clear(void);                             /* before other output */

#endif
