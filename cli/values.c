/* SPDX-License-Identifier: Apache-2.0 */
/* Values as people write them: numbers, sizes, durations, lists; names that are nearly right. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool weft_cli_read_int(const char *text, int64_t *value_p)
{
    char *end;

    if (text[0] != '-' && (text[0] < '0' || text[0] > '9')) {
        return false; /* strtoll would take spaces and signs */
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0) {
        return false;
    }
    *value_p = value;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* digits, then one of the units (compared without case), within uint64_t */
static bool read_with_unit(const char *text, const struct unit *units, size_t count,
                           uint64_t *value_p)
{
    uint64_t value = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            return false;
        }
    }
    if (at == text) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(at, units[i].name) == 0) {
            return !__builtin_mul_overflow(value, units[i].factor, value_p);
        }
    }
    return false;
}

bool weft_cli_read_size(const char *text, uint64_t *bytes_p)
{
    static const struct unit units[] = {{"", 1},
                                        {"B", 1},
                                        {"K", UINT64_C(1) << 10},
                                        {"M", UINT64_C(1) << 20},
                                        {"G", UINT64_C(1) << 30}};
    uint64_t bytes;

    if (!read_with_unit(text, units, WEFT_COUNT_OF(units), &bytes)) {
        return false;
    }
    *bytes_p = bytes;
    return true;
}

bool weft_cli_read_duration(const char *text, uint64_t *ms_p)
{
    int64_t ms;

    if (!weft_value_parse(WEFT_PARAM_DURATION, text, &ms)) {
        return false;
    }
    *ms_p = (uint64_t)ms;
    return true;
}

bool weft_cli_read_list(const char *text, struct weft_cli_list *list_p)
{
    struct weft_cli_list list = {0};
    char word[24];

    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= sizeof(word) || list.count == WEFT_CLI_LIST_MAX) {
            return false;
        }
        memcpy(word, at, len);
        word[len] = '\0';
        if (!weft_cli_read_int(word, &list.value[list.count])) {
            return false;
        }
        list.count++;
        at += len;
        if (*at == '\0') {
            *list_p = list;
            return true;
        }
    }
}

const char *weft_cli_print_size(uint64_t bytes, char *text)
{
    static const char units[] = {'G', 'M', 'K'};

    for (size_t i = 0; i < WEFT_COUNT_OF(units); i++) {
        uint64_t unit = UINT64_C(1) << (30 - 10 * i);
        if (bytes >= unit && bytes % unit == 0) {
            snprintf(text, 24, "%llu%c", (unsigned long long)(bytes / unit), units[i]);
            return text;
        }
    }
    snprintf(text, 24, "%llu", (unsigned long long)bytes);
    return text;
}

#define NEAREST_LEN 64

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;

    return least < c ? least : c;
}

/* Levenshtein, one row at a time; words longer than NEAREST_LEN are far from everything */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[NEAREST_LEN + 1];
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);

    if (a_len > NEAREST_LEN || b_len > NEAREST_LEN) {
        return NEAREST_LEN;
    }
    for (unsigned j = 0; j <= b_len; j++) {
        row[j] = j;
    }
    for (unsigned i = 1; i <= a_len; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b_len; j++) {
            unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = min3(row[j] + 1, row[j - 1] + 1, replaced);
        }
    }
    return row[b_len];
}

const char *weft_cli_nearest(const char *word, const char *const *names, size_t count)
{
    const char *near = NULL;
    unsigned least = (unsigned)(strlen(word) / 3 + 2); /* farther than this is another word */

    for (size_t i = 0; i < count; i++) {
        unsigned far = distance(word, names[i]);
        /* as many edits as the name has letters would make anything of anything */
        if (far < least && far < strlen(names[i])) {
            least = far;
            near = names[i];
        }
    }
    return near;
}

static void *or_die(void *memory)
{
    if (memory == NULL) {
        fputs("weft: out of memory\n", stderr);
        exit(WEFT_CLI_FAILED);
    }
    return memory;
}

void *weft_cli_alloc(size_t count, size_t size)
{
    return or_die(calloc(count > 0 ? count : 1, size));
}

void *weft_cli_grow(void *memory, size_t count, size_t size)
{
    return or_die(reallocarray(memory, count, size));
}

char *weft_cli_format(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, fmt);
    int len = vasprintf(&text, fmt, args);
    va_end(args);
    return or_die(len < 0 ? NULL : text);
}
