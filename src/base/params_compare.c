/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of two ranks compared, names compared: what all ranks must agree on travels as a short
 * text, "WEFT_A=1;WEFT_B=2", empty while everybody has the defaults. The other rank's text is
 * foreign: it may hold anything up to its final zero, and what is shown of it is cut and cleaned.
 */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_LEN 48 /* nothing longer is taken for a misspelt setting */
#define PREFIX_LEN (sizeof("WEFT_") - 1)

static bool is_default(const struct weft_params *params, enum weft_param param)
{
    const struct weft_param_info *info = weft_param_info(param);
    int64_t number;

    switch (info->type) {
    case WEFT_PARAM_TEXT:
        return strcmp(params->text[param], info->fallback) == 0;
    case WEFT_PARAM_CHOICE: {
        char value[WEFT_PARAM_TEXT_LEN];

        weft_params_print(params, param, value);
        return strcmp(value, info->fallback) == 0;
    }
    case WEFT_PARAM_INT:
    case WEFT_PARAM_SIZE:
    case WEFT_PARAM_DURATION:
        break;
    }
    /* by value: "1s" and "1000ms" agree */
    return weft_value_parse(info->type, info->fallback, &number) && number == params->number[param];
}

weft_status_t weft_params_agreed(const struct weft_params *params, char *text, size_t room)
{
    size_t used = 0;

    if (room == 0) {
        return weft_fail(WEFT_ERR_INVALID, "no room for the settings that all ranks share");
    }
    text[0] = '\0';
    for (unsigned param = 0; param < WEFT_PARAM_COUNT; param++) {
        char value[WEFT_PARAM_TEXT_LEN];
        int len;

        if (!weft_param_info(param)->is_agreed || is_default(params, param)) {
            continue;
        }
        weft_params_print(params, param, value);
        len = snprintf(text + used, room - used, "%s%s=%s", used > 0 ? ";" : "",
                       weft_param_info(param)->env, value);
        if (len < 0 || (size_t)len >= room - used) {
            text[0] = '\0';
            return weft_fail(WEFT_ERR_INVALID,
                             "the settings that all ranks share need more than %zu bytes", room);
        }
        used += (size_t)len;
    }
    return WEFT_OK;
}

/* One "NAME=value" of such a text, lent from it. */
struct entry {
    const char *name, *value;
    size_t name_len, value_len;
};

static bool next_entry(const char **text, struct entry *entry_p)
{
    size_t len = strcspn(*text, ";");
    size_t name_len = strcspn(*text, "=;");

    if (**text == '\0') {
        return false;
    }
    entry_p->name = *text;
    entry_p->name_len = name_len;
    entry_p->value = *text + name_len + (name_len < len);
    entry_p->value_len = len - (size_t)(entry_p->value - *text);
    *text += len + ((*text)[len] == ';');
    return true;
}

static bool find_entry(const char *text, const char *name, size_t name_len, struct entry *entry_p)
{
    while (next_entry(&text, entry_p)) {
        if (entry_p->name_len == name_len && memcmp(entry_p->name, name, name_len) == 0) {
            return true;
        }
    }
    return false;
}

static void show(const char *bytes, size_t len, char *text)
{
    if (len >= WEFT_PARAM_TEXT_LEN) {
        len = WEFT_PARAM_TEXT_LEN - 1;
    }
    memcpy(text, bytes, len);
    text[len] = '\0';
    weft_text_clean(text);
}

static void show_value(const struct entry *entry, bool is_set, char *text)
{
    if (is_set) {
        show(entry->value, entry->value_len, text);
    } else {
        show("the default", strlen("the default"), text);
    }
}

/* where the two texts are, and where the answer goes */
struct comparison {
    const char *mine, *theirs;
    char *name, *mine_value, *theirs_value;
};

static bool differ_in(const struct comparison *comparison, const char *name, size_t name_len)
{
    struct entry mine, theirs;
    bool is_mine = find_entry(comparison->mine, name, name_len, &mine);
    bool is_theirs = find_entry(comparison->theirs, name, name_len, &theirs);

    if (is_mine == is_theirs &&
        (!is_mine || (mine.value_len == theirs.value_len &&
                      memcmp(mine.value, theirs.value, mine.value_len) == 0))) {
        return false;
    }
    show(name, name_len, comparison->name);
    show_value(&mine, is_mine, comparison->mine_value);
    show_value(&theirs, is_theirs, comparison->theirs_value);
    return true;
}

bool weft_params_differ(const char *mine, const char *theirs, char *name, char *mine_value,
                        char *theirs_value)
{
    const struct comparison comparison = {mine, theirs, name, mine_value, theirs_value};
    const char *const texts[] = {mine, theirs};

    if (strcmp(mine, theirs) == 0) {
        return false;
    }
    for (unsigned param = 0; param < WEFT_PARAM_COUNT; param++) {
        const char *env = weft_param_info(param)->env;

        if (differ_in(&comparison, env, strlen(env))) {
            return true;
        }
    }
    /* names that only another build knows */
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        const char *rest = texts[i];
        struct entry entry;

        while (next_entry(&rest, &entry)) {
            if (differ_in(&comparison, entry.name, entry.name_len)) {
                return true;
            }
        }
    }
    return false;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Edits that turn a into b: a letter more, less, other, or two neighbours swapped. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned rows[3][NAME_MAX_LEN + 1];
    size_t a_len = strlen(a), b_len = strlen(b);

    for (unsigned j = 0; j <= b_len; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        const unsigned *before = rows[(i - 1) % 3];
        const unsigned *before_that = rows[(i + 1) % 3];
        unsigned *row = rows[i % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] = before[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(row[j], least(before[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], before_that[j - 2] + 1);
            }
        }
    }
    return rows[a_len % 3][b_len];
}

const char *weft_params_nearest(const char *env)
{
    const char *nearest = NULL;
    unsigned nearest_distance;
    size_t len = strlen(env);

    if (len <= PREFIX_LEN || len > NAME_MAX_LEN) {
        return NULL;
    }
    /* a third of what follows the prefix, which all names share */
    nearest_distance = (unsigned)(len - PREFIX_LEN) / 3 + 1;
    for (unsigned param = 0; param < WEFT_PARAM_COUNT; param++) {
        const char *known = weft_param_info(param)->env;
        unsigned distance;

        if (strlen(known) > NAME_MAX_LEN) {
            continue;
        }
        distance = edit_distance(env, known);
        if (distance < nearest_distance) {
            nearest = known;
            nearest_distance = distance;
        }
    }
    return nearest;
}
