/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, read whole into a tree: what `weft bench --json` and bench/compare.py have written. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 32

struct reader {
    const char *begin, *at;
    const char *wrong; /* what was expected; NULL: fine so far */
};

static struct weft_cli_value *read_value(struct reader *reader, unsigned depth);

static void *complain(struct reader *reader, const char *expected)
{
    reader->wrong = reader->wrong != NULL ? reader->wrong : expected;
    return NULL;
}

static void skip_space(struct reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static bool take(struct reader *reader, char letter)
{
    skip_space(reader);
    if (*reader->at != letter) {
        return false;
    }
    reader->at++;
    return true;
}

/* ---- texts ---- */

/* Appends a code point as UTF-8; returns behind it. */
static char *put_utf8(char *to, unsigned code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Four hexadecimal digits behind \u. */
static bool read_unit(const char *at, unsigned *unit_p)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    unsigned unit = 0;
    for (int i = 0; i < 4; i++) {
        const char *found = at[i] != '\0' ? strchr(digits, at[i]) : NULL;
        if (found == NULL) {
            return false;
        }
        unsigned digit = (unsigned)(found - digits);
        unit = unit * 16 + (digit < 16 ? digit : digit - 6);
    }
    *unit_p = unit;
    return true;
}

/* \uXXXX, or two of them for what lies beyond 16 bits; at is behind the first \u. */
static const char *read_code(const char *at, unsigned *code_p)
{
    unsigned low;
    if (!read_unit(at, code_p)) {
        return NULL;
    }
    at += 4;
    if (*code_p >= 0xd800 && *code_p < 0xdc00 && at[0] == '\\' && at[1] == 'u' &&
        read_unit(at + 2, &low) && low >= 0xdc00 && low < 0xe000) {
        *code_p = 0x10000 + ((*code_p - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    } else if (*code_p >= 0xd800 && *code_p < 0xe000) {
        *code_p = 0xfffd; /* half of a pair */
    }
    return at;
}

/* Up to the closing quote, or to where the file ends. */
static size_t text_len(const char *at)
{
    size_t len = 0;
    while (at[len] != '\0' && at[len] != '"') {
        len += at[len] == '\\' && at[len + 1] != '\0' ? 2 : 1;
    }
    return len;
}

/* Behind the opening quote. The result is never longer than what it was read from. */
static char *read_text(struct reader *reader)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char *text = weft_cli_alloc(text_len(reader->at) + 1, 1), *to = text;
    const char *at = reader->at;
    while (*at != '"' && (unsigned char)*at >= 0x20) {
        const char *found;
        unsigned code;
        if (*at != '\\') {
            *to++ = *at++;
        } else if (at[1] == 'u' && (found = read_code(at + 2, &code)) != NULL) {
            to = put_utf8(to, code);
            at = found;
        } else if (at[1] != '\0' && (found = strchr(letters, at[1])) != NULL) {
            *to++ = meant[found - letters];
            at += 2;
        } else {
            break;
        }
    }
    reader->at = at;
    if (*at != '"') {
        free(text);
        return complain(reader, "the end of a text");
    }
    reader->at++;
    return weft_cli_grow(text, (size_t)(to - text) + 1, 1);
}

/* ---- values ---- */

static struct weft_cli_value *new_value(enum weft_cli_value_kind kind)
{
    struct weft_cli_value *value = weft_cli_alloc(1, sizeof(*value));
    value->kind = kind;
    return value;
}

static struct weft_cli_value *read_word(struct reader *reader)
{
    static const struct {
        const char *word;
        enum weft_cli_value_kind kind;
        double number;
    } words[] = {{"null", WEFT_CLI_VALUE_NULL, 0},
                 {"true", WEFT_CLI_VALUE_BOOL, 1},
                 {"false", WEFT_CLI_VALUE_BOOL, 0}};
    for (size_t i = 0; i < WEFT_COUNT_OF(words); i++) {
        size_t len = strlen(words[i].word);
        if (strncmp(reader->at, words[i].word, len) == 0) {
            struct weft_cli_value *value = new_value(words[i].kind);
            value->number = words[i].number;
            reader->at += len;
            return value;
        }
    }
    char *end;
    double number = strtod(reader->at, &end);
    if (end == reader->at || !isfinite(number) || strchr("+.iInN", *reader->at) != NULL) {
        return complain(reader, "a value");
    }
    struct weft_cli_value *value = new_value(WEFT_CLI_VALUE_NUMBER);
    value->number = number;
    reader->at = end;
    return value;
}

static char *read_key(struct reader *reader)
{
    char *key = take(reader, '"') ? read_text(reader) : complain(reader, "a key");
    if (key != NULL && !take(reader, ':')) {
        free(key);
        return complain(reader, "\":\"");
    }
    return key;
}

/* Behind the opening bracket. */
static struct weft_cli_value *read_items(struct reader *reader, bool is_object, unsigned depth)
{
    struct weft_cli_value *whole =
        new_value(is_object ? WEFT_CLI_VALUE_OBJECT : WEFT_CLI_VALUE_ARRAY);
    struct weft_cli_value **next = &whole->first;
    char closer = is_object ? '}' : ']';
    if (take(reader, closer)) {
        return whole;
    }
    do {
        char *key = is_object ? read_key(reader) : NULL;
        struct weft_cli_value *item = reader->wrong == NULL ? read_value(reader, depth + 1) : NULL;
        if (item == NULL) {
            free(key);
            weft_cli_value_free(whole);
            return NULL;
        }
        item->key = key;
        *next = item;
        next = &item->next;
    } while (take(reader, ','));
    if (!take(reader, closer)) {
        weft_cli_value_free(whole);
        return complain(reader, is_object ? "\",\" or \"}\"" : "\",\" or \"]\"");
    }
    return whole;
}

static struct weft_cli_value *read_value(struct reader *reader, unsigned depth)
{
    if (depth > DEPTH_MAX) {
        return complain(reader, "fewer levels");
    }
    if (take(reader, '{')) {
        return read_items(reader, true, depth);
    }
    if (take(reader, '[')) {
        return read_items(reader, false, depth);
    }
    if (take(reader, '"')) {
        char *text = read_text(reader);
        struct weft_cli_value *value = text != NULL ? new_value(WEFT_CLI_VALUE_TEXT) : NULL;
        if (value != NULL) {
            value->text = text;
        }
        return value;
    }
    return read_word(reader);
}

struct weft_cli_value *weft_cli_json_read(const char *text, char **why_p)
{
    struct reader reader = {.begin = text, .at = text};
    struct weft_cli_value *value = read_value(&reader, 0);
    skip_space(&reader);
    if (value != NULL && *reader.at != '\0') {
        weft_cli_value_free(value);
        value = complain(&reader, "the end");
    }
    if (value == NULL) {
        unsigned line = 1;
        for (const char *at = text; at < reader.at; at++) {
            line += *at == '\n';
        }
        *why_p = weft_cli_format("line %u: expected %s", line, reader.wrong);
    }
    return value;
}

void weft_cli_value_free(struct weft_cli_value *value)
{
    while (value != NULL) {
        struct weft_cli_value *next = value->next;
        weft_cli_value_free(value->first);
        free(value->key);
        free(value->text);
        free(value);
        value = next;
    }
}

/* ---- looking ---- */

const struct weft_cli_value *weft_cli_value_get(const struct weft_cli_value *object,
                                                const char *key)
{
    const struct weft_cli_value *item =
        object != NULL && object->kind == WEFT_CLI_VALUE_OBJECT ? object->first : NULL;
    while (item != NULL && strcmp(item->key, key) != 0) {
        item = item->next;
    }
    return item;
}

const char *weft_cli_value_text(const struct weft_cli_value *object, const char *key)
{
    const struct weft_cli_value *value = weft_cli_value_get(object, key);
    return value != NULL && value->kind == WEFT_CLI_VALUE_TEXT ? value->text : NULL;
}

double weft_cli_value_number(const struct weft_cli_value *object, const char *key)
{
    const struct weft_cli_value *value = weft_cli_value_get(object, key);
    bool is_number = value != NULL &&
                     (value->kind == WEFT_CLI_VALUE_NUMBER || value->kind == WEFT_CLI_VALUE_BOOL);
    return is_number ? value->number : NAN;
}
