/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: the table, one reading of profile and environment, checks. Loading is part of a start that
 * takes a fraction of a millisecond: one pass over environ, no allocation, one look for
 * a profile. The value of WEFT_ID
 * holds a secret: no function here prints it, also not in an error; nor the value of an unknown
 * variable, which may be WEFT_ID misspelt.
 */
#include "base/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "WEFT_"
#define PREFIX_LEN (sizeof(PREFIX) - 1)
#define UNKNOWN_MAX 16 /* warned about per reading */
#define HIDDEN "(hidden)"

static const struct weft_param_info infos[WEFT_PARAM_COUNT] = {
#define PARAM_INFO(id, env, type, def, min, max, agreed, choices, sentence)                        \
    {env, WEFT_PARAM_##type, def, min, max, agreed, choices, sentence},
    WEFT_PARAMS(PARAM_INFO)
#undef PARAM_INFO
};

const struct weft_param_info *weft_param_info(enum weft_param param)
{
    return &infos[param];
}

unsigned weft_params_find(const char *name, size_t len)
{
    unsigned param = 0;

    while (param < WEFT_PARAM_COUNT &&
           (strncmp(infos[param].env, name, len) != 0 || infos[param].env[len] != '\0')) {
        param++;
    }
    return param;
}

/* ---- checking one value ---- */

static bool find_choice(const char *choices, const char *value, int64_t *index_p)
{
    size_t value_len = strlen(value);
    int64_t index = 0;

    for (const char *choice = choices;; index++) {
        size_t len = strcspn(choice, "|");

        if (len == value_len && memcmp(choice, value, len) == 0) {
            *index_p = index;
            return true;
        }
        if (choice[len] == '\0') {
            return false;
        }
        choice += len + 1;
    }
}

static bool read_value(const struct weft_param_info *info, const char *value, int64_t *number_p)
{
    switch (info->type) {
    case WEFT_PARAM_TEXT:
        *number_p = (int64_t)strlen(value);
        break;
    case WEFT_PARAM_CHOICE:
        return find_choice(info->choices, value, number_p);
    case WEFT_PARAM_INT:
    case WEFT_PARAM_SIZE:
    case WEFT_PARAM_DURATION:
        if (!weft_value_parse(info->type, value, number_p)) {
            return false;
        }
        break;
    }
    return *number_p >= info->min && *number_p <= info->max;
}

static void explain(enum weft_param param, const char *value, char text[WEFT_REFUSAL_LEN])
{
    const struct weft_param_info *info = &infos[param];
    const char *shown = param == WEFT_PARAM_ID ? HIDDEN : value;
    const char *kind = "a number";
    char min[32], max[32];

    switch (info->type) {
    case WEFT_PARAM_TEXT:
        snprintf(text, WEFT_REFUSAL_LEN, "%s=%.64s: expected at most %" PRId64 " characters",
                 info->env, shown, info->max);
        return;
    case WEFT_PARAM_CHOICE:
        snprintf(text, WEFT_REFUSAL_LEN, "%s=%.64s: expected one of %s", info->env, shown,
                 info->choices);
        return;
    case WEFT_PARAM_SIZE:
        kind = "a size";
        break;
    case WEFT_PARAM_DURATION:
        kind = "a duration";
        break;
    case WEFT_PARAM_INT:
        break;
    }
    weft_value_print(info->type, info->min, min, sizeof(min));
    weft_value_print(info->type, info->max, max, sizeof(max));
    snprintf(text, WEFT_REFUSAL_LEN, "%s=%.64s: expected %s between %s and %s", info->env, shown,
             kind, min, max);
}

bool weft_params_refuse(enum weft_param param, const char *value, char text[WEFT_REFUSAL_LEN])
{
    int64_t number;

    if (strlen(value) < WEFT_PARAM_TEXT_LEN && read_value(&infos[param], value, &number)) {
        return false;
    }
    explain(param, value, text);
    return true;
}

bool weft_params_keep(struct weft_params *params, enum weft_param param, const char *value,
                      enum weft_param_origin origin)
{
    size_t len = strlen(value);
    int64_t number;

    if (len >= WEFT_PARAM_TEXT_LEN || !read_value(&infos[param], value, &number)) {
        return false;
    }
    params->number[param] = number;
    memcpy(params->text[param], value, len + 1);
    params->origin[param] = origin;
    return true;
}

/* Checks and keeps one value; a setting for the log takes effect at once. */
static weft_status_t store(struct weft_params *params, enum weft_param param, const char *value,
                           enum weft_param_origin origin)
{
    char text[WEFT_REFUSAL_LEN];

    if (param == WEFT_PARAM_LOG && origin != WEFT_ORIGIN_DEFAULT &&
        strlen(value) < WEFT_PARAM_TEXT_LEN) {
        weft_status_t status = weft_log_configure(value);

        if (status != WEFT_OK) {
            return status;
        }
    }
    if (weft_params_keep(params, param, value, origin)) {
        return WEFT_OK;
    }
    explain(param, value, text);
    return weft_fail(WEFT_ERR_INVALID, "%s", text);
}

/* ---- reading the environment ---- */

uint64_t weft_params_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (const char *at = text; *at != '\0'; at++) { /* FNV-1a */
        hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    }
    return hash;
}

bool weft_params_is_news(const char *text)
{
    static _Atomic uint64_t warned[256]; /* hashes; when it is full we are silent */
    uint64_t hash = weft_params_hash(text);

    for (size_t i = 0; i < WEFT_COUNT_OF(warned); i++) {
        uint64_t seen = 0;

        if (atomic_compare_exchange_strong_explicit(&warned[i], &seen, hash, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            return true;
        }
        if (seen == hash) {
            return false;
        }
    }
    return false;
}

/* Not a setting, and ours all the same: where Python looks for the library. */
static bool is_known_elsewhere(const char *entry)
{
    static const char python[] = "WEFT_LIBRARY=";
    return strncmp(entry, python, sizeof(python) - 1) == 0;
}

static void warn_unknown(const char *entry)
{
    char name[64];
    const char *nearest;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(entry, "="), entry);
    if (!weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_WARN) || !weft_params_is_news(name)) {
        return;
    }
    nearest = weft_params_nearest(name);
    if (nearest) {
        weft_log(base, WARN, "%s is not a setting; did you mean %s?", name, nearest);
    } else {
        weft_log(base, WARN, "%s is not a setting; `weft params` lists them", name);
    }
}

/* Warnings wait until the end, as WEFT_LOG may come last and silence them. */
static weft_status_t read_environment(struct weft_params *params)
{
    const char *unknown[UNKNOWN_MAX];
    unsigned unknown_count = 0;

    for (char **entry = environ; entry && *entry; entry++) {
        size_t len;
        unsigned param;

        if (strncmp(*entry, PREFIX, PREFIX_LEN) != 0) {
            continue;
        }
        len = strcspn(*entry, "=");
        param = weft_params_find(*entry, len);
        if (param == WEFT_PARAM_COUNT) {
            if (unknown_count < UNKNOWN_MAX && !is_known_elsewhere(*entry)) {
                unknown[unknown_count++] = *entry;
            }
        } else if ((*entry)[len] == '=' && (*entry)[len + 1] != '\0' &&
                   params->origin[param] != WEFT_ORIGIN_ENV) {
            /* "NAME=" is how scripts unset; of two of a name the first counts, as in getenv */
            weft_status_t status = store(params, param, *entry + len + 1, WEFT_ORIGIN_ENV);

            if (status != WEFT_OK) {
                return status;
            }
        }
    }
    for (unsigned i = 0; i < unknown_count; i++) {
        warn_unknown(unknown[i]);
    }
    return WEFT_OK;
}

weft_status_t weft_params_load(struct weft_params *params_p)
{
    struct weft_params params;
    char text[WEFT_PROFILE_TEXT_LEN];
    weft_status_t status = WEFT_OK;

    for (unsigned param = 0; param < WEFT_PARAM_COUNT && status == WEFT_OK; param++) {
        status = store(&params, param, infos[param].fallback, WEFT_ORIGIN_DEFAULT);
    }
    if (status == WEFT_OK) {
        weft_profile_load(&params, text);
        status = read_environment(&params);
    }
    if (status == WEFT_OK) {
        if (text[0] != '\0' && weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_WARN) &&
            weft_params_is_news(text)) {
            weft_log(base, WARN, "%s", text); /* only now, as WEFT_LOG may silence it */
        }
        for (unsigned param = 0; param < WEFT_PARAM_COUNT; param++) {
            /* the used part only: most of the array stays untouched */
            memcpy(params_p->text[param], params.text[param], strlen(params.text[param]) + 1);
        }
        memcpy(params_p->number, params.number, sizeof(params.number));
        memcpy(params_p->origin, params.origin, sizeof(params.origin));
    }
    weft_secret_wipe(params.text[WEFT_PARAM_ID], sizeof(params.text[WEFT_PARAM_ID]));
    return status;
}

weft_status_t weft_params_set(struct weft_params *params, enum weft_param param, const char *value)
{
    return store(params, param, value, WEFT_ORIGIN_CONFIG);
}

void weft_params_print(const struct weft_params *params, enum weft_param param, char *text)
{
    const struct weft_param_info *info = &infos[param];
    const char *choice;

    switch (info->type) {
    case WEFT_PARAM_TEXT:
        snprintf(text, WEFT_PARAM_TEXT_LEN, "%s",
                 param == WEFT_PARAM_ID && params->text[param][0] != '\0' ? HIDDEN
                                                                          : params->text[param]);
        break;
    case WEFT_PARAM_CHOICE:
        choice = info->choices;
        for (int64_t i = 0; i < params->number[param]; i++) {
            choice += strcspn(choice, "|") + 1;
        }
        snprintf(text, WEFT_PARAM_TEXT_LEN, "%.*s", (int)strcspn(choice, "|"), choice);
        break;
    case WEFT_PARAM_INT:
    case WEFT_PARAM_SIZE:
    case WEFT_PARAM_DURATION:
        weft_value_print(info->type, params->number[param], text, WEFT_PARAM_TEXT_LEN);
        break;
    }
}
