/* SPDX-License-Identifier: Apache-2.0 */
/* weft params: every setting, with its value and where that comes from. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool as_json;

static const struct weft_cli_option options[] = {
    {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &as_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "params",
    .summary = "List every setting: value, origin, default, range, meaning. Settings marked "
               "\"agreed\"\nmust be equal on all ranks; they are compared at start.",
    .usage = "[--json] [NAME]",
    .options = options,
    .examples = {"weft params", "WEFT_HEARTBEAT=100ms weft params heartbeat --json"},
};

/* Values of the environment that were refused, as given; owned; NULL: none. */
static char *refused[WEFT_PARAM_COUNT];

static const char *origin_name(const struct weft_params *params, enum weft_param param)
{
    if (refused[param] != NULL) {
        return "env, refused";
    }
    switch (params->origin[param]) {
    case WEFT_ORIGIN_PROFILE:
        return "profile";
    case WEFT_ORIGIN_ENV:
        return "env";
    case WEFT_ORIGIN_CONFIG:
        return "config";
    case WEFT_ORIGIN_DEFAULT:
        break;
    }
    return "default";
}

/* A printed id holds the job's secret: it goes to no screen and no log. */
static void print_value(const struct weft_params *params, enum weft_param param, char *text)
{
    if (param == WEFT_PARAM_ID && (refused[param] != NULL || params->text[param][0] != '\0')) {
        snprintf(text, WEFT_PARAM_TEXT_LEN, "(hidden)");
        return;
    }
    if (refused[param] != NULL) {
        snprintf(text, WEFT_PARAM_TEXT_LEN, "%s", refused[param]);
        return;
    }
    weft_params_print(params, param, text);
}

/* "250" → "250ms", "60000" → "60s": the largest unit that is exact */
static void print_duration(int64_t ms, char *text, size_t room)
{
    if (ms % 60000 == 0 && ms > 0) {
        snprintf(text, room, "%lldmin", (long long)(ms / 60000));
    } else if (ms % 1000 == 0) {
        snprintf(text, room, "%llds", (long long)(ms / 1000));
    } else {
        snprintf(text, room, "%lldms", (long long)ms);
    }
}

static void print_bound(const struct weft_param_info *info, int64_t bound, char *text, size_t room)
{
    char size[24];

    if (info->type == WEFT_PARAM_DURATION) {
        print_duration(bound, text, room);
    } else if (info->type == WEFT_PARAM_SIZE && bound >= 0) {
        snprintf(text, room, "%s", weft_cli_print_size((uint64_t)bound, size));
    } else if (bound == INT32_MAX) {
        snprintf(text, room, "2^31-1");
    } else {
        snprintf(text, room, "%lld", (long long)bound);
    }
}

static void print_range(const struct weft_param_info *info, char *text, size_t room)
{
    char least[32], most[32];

    if (info->choices != NULL) {
        snprintf(text, room, "%s", info->choices);
    } else if (info->type == WEFT_PARAM_TEXT) {
        snprintf(text, room, "text");
    } else {
        print_bound(info, info->min, least, sizeof(least));
        print_bound(info, info->max, most, sizeof(most));
        snprintf(text, room, "%s .. %s", least, most);
    }
}

static void print_table(const struct weft_params *params, int only)
{
    static const struct weft_cli_column columns[] = {
        {"name", false},    {"value", false}, {"origin", false},
        {"default", false}, {"range", false}, {"agreed", false},
    };
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));

    for (int i = 0; i < WEFT_PARAM_COUNT; i++) {
        const struct weft_param_info *info = weft_param_info((enum weft_param)i);
        char value[WEFT_PARAM_TEXT_LEN], range[WEFT_PARAM_TEXT_LEN];
        if (only >= 0 && i != only) {
            continue;
        }
        print_value(params, (enum weft_param)i, value);
        weft_text_clean(value);
        print_range(info, range, sizeof(range));
        weft_cli_table_cell(table, "%s", info->env);
        weft_cli_table_cell(table, "%s", value[0] != '\0' ? value : "-");
        weft_cli_table_cell(table, "%s", origin_name(params, (enum weft_param)i));
        weft_cli_table_cell(table, "%s", info->fallback[0] != '\0' ? info->fallback : "-");
        weft_cli_table_cell(table, "%s", range);
        weft_cli_table_cell(table, "%s", info->is_agreed ? "yes" : "no");
        weft_cli_table_note(table, info->sentence);
    }
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
}

static void write_param(struct weft_cli_json *json, const struct weft_params *params,
                        enum weft_param param)
{
    static const char *const types[] = {
        [WEFT_PARAM_INT] = "int",           [WEFT_PARAM_SIZE] = "size",
        [WEFT_PARAM_DURATION] = "duration", [WEFT_PARAM_CHOICE] = "choice",
        [WEFT_PARAM_TEXT] = "text",
    };
    const struct weft_param_info *info = weft_param_info(param);
    char text[WEFT_PARAM_TEXT_LEN];

    weft_cli_json_object(json, NULL);
    weft_cli_json_text(json, "name", info->env);
    weft_cli_json_text(json, "type", types[info->type]);
    print_value(params, param, text);
    weft_cli_json_text(json, "value", text);
    weft_cli_json_text(json, "origin", origin_name(params, param));
    weft_cli_json_text(json, "default", info->fallback);
    print_range(info, text, sizeof(text));
    weft_cli_json_text(json, "range", text);
    weft_cli_json_bool(json, "agreed", info->is_agreed);
    weft_cli_json_text(json, "sentence", info->sentence);
    weft_cli_json_end(json);
}

static bool print_json(const struct weft_params *params, int only)
{
    struct weft_cli_json json;

    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "command", "params");
    weft_cli_json_array(&json, "params");
    for (int i = 0; i < WEFT_PARAM_COUNT; i++) {
        if (only < 0 || i == only) {
            write_param(&json, params, (enum weft_param)i);
        }
    }
    return weft_cli_json_close(&json);
}

/* WEFT_HEARTBEAT, heartbeat; -1: none */
static int find_param(const char *name)
{
    for (int i = 0; i < WEFT_PARAM_COUNT; i++) {
        const char *env = weft_param_info((enum weft_param)i)->env;
        if (strcasecmp(name, env) == 0 || strcasecmp(name, env + strlen("WEFT_")) == 0) {
            return i;
        }
    }
    return -1;
}

static int refuse_name(const char *name)
{
    char full[WEFT_PARAM_TEXT_LEN];

    snprintf(full, sizeof(full), "%s%s", strncasecmp(name, "WEFT_", 5) == 0 ? "" : "WEFT_", name);
    for (char *at = full; *at != '\0'; at++) {
        *at = (char)(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
    }
    const char *near = weft_params_nearest(full);
    if (near != NULL) {
        return weft_cli_usage_error(&command, "there is no setting %s; did you mean %s?", full,
                                    near);
    }
    return weft_cli_usage_error(&command, "there is no setting %s", full);
}

/* Says what is wrong with each value of the environment, and takes it out, so that the others can
 * be read. False: some were refused. */
static bool sort_out(struct weft_params *scratch)
{
    bool is_fine = true;

    for (int i = 0; i < WEFT_PARAM_COUNT; i++) {
        const char *env = weft_param_info((enum weft_param)i)->env;
        const char *value = getenv(env);
        if (value != NULL && value[0] != '\0' &&
            weft_params_set(scratch, (enum weft_param)i, value) != WEFT_OK) {
            weft_cli_fail(&command, "%s", weft_error_text());
            refused[i] = weft_cli_format("%s", value);
            unsetenv(env);
            is_fine = false;
        }
    }
    return is_fine;
}

int weft_cli_params(int argc, char **argv)
{
    struct weft_params *params;
    int rest, only = -1;
    int status = weft_cli_parse(&command, argc, argv, &rest);

    if (status >= 0) {
        return status;
    }
    if (argc - rest > 1) {
        return weft_cli_usage_error(&command, "one NAME at most, not \"%s\" too", argv[rest + 1]);
    }
    if (rest < argc && (only = find_param(argv[rest])) < 0) {
        return refuse_name(argv[rest]);
    }
    params = weft_cli_alloc(1, sizeof(*params));
    status = sort_out(params) ? WEFT_CLI_OK : WEFT_CLI_FAILED;
    if (weft_params_load(params) != WEFT_OK) {
        status = weft_cli_fail(&command, "%s", weft_error_text());
    } else if (!as_json) {
        print_table(params, only); /* main() sees whether it left */
    } else if (!print_json(params, only)) {
        status = WEFT_CLI_FAILED;
    }
    for (int i = 0; i < WEFT_PARAM_COUNT; i++) {
        free(refused[i]);
        refused[i] = NULL;
    }
    free(params);
    return status;
}
