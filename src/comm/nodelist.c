/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slurm's node lists: names with commas between, each of text and groups of numbers.
 *   list  = name *("," name)
 *   name  = 1*(text / group)            gpu[07-09,12]-ib[0-1]  →  gpu07-ib0, …
 *   group = "[" span *("," span) "]"
 *   span  = digits ["-" digits]         leading zeros belong to the name
 * The whole list is checked, the first host is kept: a list cut off somewhere must not pass.
 */
#include "comm/launch.h"

#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

struct output {
    char *text;
    size_t room, len; /* len grows past room when it does not fit */
};

static void put(struct output *out, const char *text, size_t len)
{
    if (out->len < out->room && len < out->room - out->len) {
        memcpy(out->text + out->len, text, len);
    }
    out->len += len;
}

/* digits, not more than a long can hold; 0: none */
static size_t number_len(const char *text)
{
    size_t len = strspn(text, DIGITS);

    return len <= 15 ? len : 0;
}

/* One span; NULL: malformed. */
static const char *read_span(const char *at, struct output *out)
{
    size_t len = number_len(at);
    long first = strtol(at, NULL, 10);

    if (len == 0) {
        return NULL;
    }
    put(out, at, len);
    at += len;
    if (*at != '-') {
        return at;
    }
    len = number_len(at + 1);
    if (len == 0 || strtol(at + 1, NULL, 10) < first) {
        return NULL;
    }
    return at + 1 + len;
}

/* A group from behind its "[" to behind its "]"; its first number goes to out. */
static const char *read_group(const char *at, struct output *out)
{
    struct output ignored = {0};

    for (at = read_span(at, out); at != NULL && *at == ','; at = read_span(at + 1, &ignored)) {
    }
    return at != NULL && *at == ']' ? at + 1 : NULL;
}

static const char *read_name(const char *at, struct output *out)
{
    const char *start = at;

    while (at != NULL && *at != ',' && *at != '\0') {
        size_t len = strspn(at, LETTERS);
        if (*at == '[') {
            at = read_group(at + 1, out);
        } else if (len > 0) {
            put(out, at, len);
            at += len;
        } else {
            return NULL;
        }
    }
    return at == start ? NULL : at;
}

weft_status_t weft_launch_first_host(const char *nodelist, char *host, size_t room)
{
    char name[WEFT_LAUNCH_HOST_LEN];
    struct output first = {name, sizeof(name), 0};
    struct output ignored = {0};
    const char *at = read_name(nodelist, &first);

    while (at != NULL && *at == ',') {
        at = read_name(at + 1, &ignored);
    }
    if (at == NULL || first.len >= sizeof(name) || first.len >= room) {
        return weft_fail(WEFT_ERR_INVALID, "\"%.200s\" is not a node list of Slurm's", nodelist);
    }
    memcpy(host, name, first.len);
    host[first.len] = '\0';
    return WEFT_OK;
}
