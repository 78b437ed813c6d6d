/* SPDX-License-Identifier: Apache-2.0 */
/* Options of subcommands from one table each: parsing, errors and --help cannot drift apart. */
#include "cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 32
#define HELP_CODE 0x100 /* codes of options without a letter begin behind it */

static int complain(const struct weft_cli_command *command, int status, const char *fmt,
                    va_list args) WEFT_PRINTF(3, 0);

static int complain(const struct weft_cli_command *command, int status, const char *fmt,
                    va_list args)
{
    weft_cli_progress_clear();
    fprintf(stderr, "weft %s: ", command->name);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    if (status == WEFT_CLI_USAGE) {
        fprintf(stderr, "see `weft %s --help`\n", command->name);
    }
    return status;
}

int weft_cli_usage_error(const struct weft_cli_command *command, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int status = complain(command, WEFT_CLI_USAGE, fmt, args);
    va_end(args);
    return status;
}

int weft_cli_fail(const struct weft_cli_command *command, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int status = complain(command, WEFT_CLI_FAILED, fmt, args);
    va_end(args);
    return status;
}

static void print_help(const struct weft_cli_command *command)
{
    char left[64];

    printf("usage: weft %s %s\n\n%s\n\noptions:\n", command->name, command->usage,
           command->summary);
    for (const struct weft_cli_option *option = command->options; option->name != NULL; option++) {
        int len = option->letter != 0 ? snprintf(left, sizeof(left), "-%c, ", option->letter)
                                      : snprintf(left, sizeof(left), "    ");
        snprintf(left + len, sizeof(left) - (size_t)len, "--%s%s%s", option->name,
                 option->argument != NULL ? " " : "",
                 option->argument != NULL ? option->argument : "");
        printf("  %-24s %s\n", left, option->help);
    }
    printf("  %-24s %s\n\nexamples:\n", "-h, --help", "print this");
    for (size_t i = 0; i < WEFT_COUNT_OF(command->examples); i++) {
        if (command->examples[i] != NULL) {
            printf("  %s\n", command->examples[i]);
        }
    }
}

static const char *expected(enum weft_cli_kind kind)
{
    switch (kind) {
    case WEFT_CLI_SIZE:
        return "a size such as 64, 4K, 1M";
    case WEFT_CLI_DURATION:
        return "a duration such as 250ms, 0.5s, 2min";
    case WEFT_CLI_LIST:
    case WEFT_CLI_SERIES:
        return "numbers such as 2,8,64";
    default:
        return "a number";
    }
}

/* min and max of 0 mean: anything that is not negative */
static bool is_within(const struct weft_cli_option *option, int64_t value)
{
    bool is_open = option->min == 0 && option->max == 0;

    return value >= option->min && (is_open || value <= option->max);
}

static bool store_unsigned(const struct weft_cli_option *option, const char *text)
{
    uint64_t value;
    bool is_read = option->kind == WEFT_CLI_SIZE ? weft_cli_read_size(text, &value)
                                                 : weft_cli_read_duration(text, &value);

    if (!is_read || value > INT64_MAX || !is_within(option, (int64_t)value)) {
        return false;
    }
    *(uint64_t *)option->value = value;
    return true;
}

static bool store_int(const struct weft_cli_option *option, const char *text)
{
    int64_t value;

    if (!weft_cli_read_int(text, &value) || !is_within(option, value)) {
        return false;
    }
    *(int64_t *)option->value = value;
    return true;
}

static bool store_list(const struct weft_cli_option *option, const char *text)
{
    struct weft_cli_list list;

    if (!weft_cli_read_list(text, &list)) {
        return false;
    }
    for (unsigned i = 0; i < list.count; i++) {
        if (!is_within(option, list.value[i])) {
            return false;
        }
    }
    struct weft_cli_list *kept = option->value;
    kept->count = option->kind == WEFT_CLI_SERIES ? kept->count : 0;
    if (list.count > WEFT_CLI_LIST_MAX - kept->count) {
        return false;
    }
    memcpy(kept->value + kept->count, list.value, list.count * sizeof(list.value[0]));
    kept->count += list.count;
    return true;
}

static bool store(const struct weft_cli_option *option, const char *text)
{
    switch (option->kind) {
    case WEFT_CLI_FLAG:
        *(bool *)option->value = true;
        return true;
    case WEFT_CLI_TEXT:
        *(const char **)option->value = text;
        return true;
    case WEFT_CLI_INT:
        return store_int(option, text);
    case WEFT_CLI_LIST:
    case WEFT_CLI_SERIES:
        return store_list(option, text);
    case WEFT_CLI_SIZE:
    case WEFT_CLI_DURATION:
        return store_unsigned(option, text);
    }
    return false;
}

static int refuse_value(const struct weft_cli_command *command,
                        const struct weft_cli_option *option, const char *text)
{
    if (option->max == 0) {
        return weft_cli_usage_error(command, "--%s %s: expected %s", option->name, text,
                                    expected(option->kind));
    }
    char least[32], most[32];
    enum weft_param_type type = option->kind == WEFT_CLI_DURATION ? WEFT_PARAM_DURATION
                                : option->kind == WEFT_CLI_SIZE   ? WEFT_PARAM_SIZE
                                                                  : WEFT_PARAM_INT;
    weft_value_print(type, option->min, least, sizeof(least));
    weft_value_print(type, option->max, most, sizeof(most));
    return weft_cli_usage_error(command, "--%s %s: expected %s, from %s to %s", option->name, text,
                                expected(option->kind), least, most);
}

static int refuse_option(const struct weft_cli_command *command, const char *word)
{
    const char *names[OPTIONS_MAX];
    size_t count = 0;

    for (const struct weft_cli_option *option = command->options;
         option->name != NULL && count < OPTIONS_MAX; option++) {
        names[count++] = option->name;
    }
    const char *near =
        strncmp(word, "--", 2) == 0 ? weft_cli_nearest(word + 2, names, count) : NULL;
    if (near != NULL) {
        return weft_cli_usage_error(command, "there is no option %s; did you mean --%s?", word,
                                    near);
    }
    return weft_cli_usage_error(command, "there is no option %s", word);
}

/* What getopt_long works from, made of our table. */
struct getopt_tables {
    struct option longs[OPTIONS_MAX + 2];
    char shorts[2 * OPTIONS_MAX + 8];
};

static void make_tables(const struct weft_cli_command *command, struct getopt_tables *tables)
{
    size_t count = 0;
    size_t len = 0;

    memset(tables, 0, sizeof(*tables));
    if (command->is_prefix_of_others) {
        tables->shorts[len++] = '+';
    }
    tables->shorts[len++] = ':'; /* tells a missing argument from an unknown option */
    tables->shorts[len++] = 'h';
    for (const struct weft_cli_option *option = command->options;
         option->name != NULL && count < OPTIONS_MAX; option++, count++) {
        int has_arg = option->kind == WEFT_CLI_FLAG ? no_argument : required_argument;
        tables->longs[count] =
            (struct option){option->name, has_arg, NULL, HELP_CODE + 1 + (int)count};
        if (option->letter != 0) {
            tables->shorts[len++] = option->letter;
            if (has_arg == required_argument) {
                tables->shorts[len++] = ':';
            }
        }
    }
    tables->longs[count] = (struct option){"help", no_argument, NULL, HELP_CODE};
}

static const struct weft_cli_option *find_option(const struct weft_cli_command *command, int code)
{
    if (code > HELP_CODE) {
        return &command->options[code - HELP_CODE - 1];
    }
    for (const struct weft_cli_option *option = command->options; option->name != NULL; option++) {
        if (option->letter == code) {
            return option;
        }
    }
    return NULL;
}

/* getopt says '?': an unknown letter is in optopt, an unknown long name is the word just passed. */
static int refuse_unknown(const struct weft_cli_command *command, char **argv)
{
    char word[3] = {'-', (char)optopt, '\0'};

    return refuse_option(command, optopt > 0 && optopt < HELP_CODE ? word : argv[optind - 1]);
}

int weft_cli_parse(const struct weft_cli_command *command, int argc, char **argv, int *rest_p)
{
    struct getopt_tables tables;
    int code;

    make_tables(command, &tables);
    optind = 0; /* 0, not 1: glibc then forgets an earlier scan's state */
    opterr = 0;
    while ((code = getopt_long(argc, argv, tables.shorts, tables.longs, NULL)) != -1) {
        if (code == 'h' || code == HELP_CODE) {
            print_help(command);
            return WEFT_CLI_OK;
        }
        if (code == ':') {
            return weft_cli_usage_error(command, "%s needs a value", argv[optind - 1]);
        }
        const struct weft_cli_option *option = code == '?' ? NULL : find_option(command, code);
        if (option == NULL) {
            return refuse_unknown(command, argv);
        }
        if (!store(option, optarg)) {
            return refuse_value(command, option, optarg);
        }
    }
    *rest_p = optind;
    return -1;
}
