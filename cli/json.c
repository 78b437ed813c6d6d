/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, written as it comes. Bytes that are not UTF-8 become U+FFFD: a reader never chokes on us.
 */
#include "cli.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Length of the well-formed UTF-8 sequence at text, 0: none. */
static unsigned utf8_len(const unsigned char *text)
{
    unsigned len = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;

    if ((text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4) {
        return 0;
    }
    for (unsigned i = 1; i < len; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0; /* also stops at the final zero */
        }
    }
    bool is_overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
    bool is_outside = (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf4 && text[1] > 0x8f);
    return is_overlong || is_outside ? 0 : len;
}

/* How many bytes at text can be written as they are. */
static size_t plain_len(const unsigned char *text)
{
    size_t len = 0;

    while (text[len] >= 0x20 && text[len] != 0x7f && text[len] != '"' && text[len] != '\\') {
        unsigned more = utf8_len(&text[len]);
        if (more == 0) {
            break;
        }
        len += more;
    }
    return len;
}

static void write_string(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    fputc('"', out);
    while (*at != '\0') {
        size_t len = plain_len(at);
        if (len > 0) {
            fwrite(at, 1, len, out);
            at += len;
            continue;
        }
        if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at == '\n') {
            fputs("\\n", out);
        } else if (*at == '\t') {
            fputs("\\t", out);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(out, "\\u%04x", *at);
        } else {
            fputs("\\ufffd", out);
        }
        at++;
    }
    fputc('"', out);
}

/* comma and key of the next item */
static void begin(struct weft_cli_json *json, const char *key)
{
    unsigned inner = json->depth - 1;

    assert((key != NULL) == (json->closer[inner] == '}'));
    if (json->has_items[inner]) {
        fputs(", ", json->out);
    }
    json->has_items[inner] = true;
    if (key != NULL) {
        write_string(json->out, key);
        fputs(": ", json->out);
    }
}

static void nest(struct weft_cli_json *json, char opener, char closer)
{
    assert(json->depth < WEFT_CLI_JSON_DEPTH);
    fputc(opener, json->out);
    json->closer[json->depth] = closer;
    json->has_items[json->depth] = false;
    json->depth++;
}

void weft_cli_json_open(struct weft_cli_json *json, FILE *out)
{
    *json = (struct weft_cli_json){.out = out};
    nest(json, '{', '}');
    weft_cli_json_text(json, "weft", weft_version());
}

bool weft_cli_json_close(struct weft_cli_json *json)
{
    while (json->depth > 0) {
        weft_cli_json_end(json);
    }
    fputc('\n', json->out);
    return fflush(json->out) == 0 && !ferror(json->out);
}

void weft_cli_json_object(struct weft_cli_json *json, const char *key)
{
    begin(json, key);
    nest(json, '{', '}');
}

void weft_cli_json_array(struct weft_cli_json *json, const char *key)
{
    begin(json, key);
    nest(json, '[', ']');
}

void weft_cli_json_end(struct weft_cli_json *json)
{
    assert(json->depth > 0);
    fputc(json->closer[--json->depth], json->out);
}

void weft_cli_json_text(struct weft_cli_json *json, const char *key, const char *text)
{
    if (text == NULL) {
        weft_cli_json_null(json, key);
        return;
    }
    begin(json, key);
    write_string(json->out, text);
}

void weft_cli_json_int(struct weft_cli_json *json, const char *key, int64_t value)
{
    begin(json, key);
    fprintf(json->out, "%lld", (long long)value);
}

void weft_cli_json_real(struct weft_cli_json *json, const char *key, double value)
{
    if (!isfinite(value)) {
        weft_cli_json_null(json, key);
        return;
    }
    begin(json, key);
    fprintf(json->out, "%.9g", value); /* the C locale: main() sets none */
}

void weft_cli_json_bool(struct weft_cli_json *json, const char *key, bool value)
{
    begin(json, key);
    fputs(value ? "true" : "false", json->out);
}

void weft_cli_json_null(struct weft_cli_json *json, const char *key)
{
    begin(json, key);
    fputs("null", json->out);
}
