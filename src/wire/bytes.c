/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/bytes.h"

/* Length of the printable UTF-8 sequence of more than one byte at `at`, 0 when there is none. */
static size_t utf8_len(const uint8_t *at, size_t left)
{
    static const uint32_t least[] = {0, 0, 0xa0, 0x800,
                                     0x10000}; /* U+0080 … U+009F steer terminals */
    size_t len = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    uint32_t code;

    if (at[0] < 0xc2 || at[0] > 0xf4 || len > left) {
        return 0;
    }
    code = at[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (at[i] & 0x3fu);
    }
    if (code < least[len] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return 0;
    }
    return len;
}

void weft_wire_text_get(const uint8_t *bytes, size_t len, char *text)
{
    size_t i = 0;

    while (i < len) {
        bool is_ascii = bytes[i] >= 0x20 && bytes[i] < 0x7f;
        size_t step = is_ascii ? 1 : utf8_len(bytes + i, len - i);

        if (step == 0) {
            text[i++] = '?';
            continue;
        }
        memcpy(text + i, bytes + i, step);
        i += step;
    }
    text[len] = '\0';
}

size_t weft_wire_text_put(const char *text, size_t max, uint8_t *out)
{
    size_t len = strnlen(text, max);

    memcpy(out, text, len);
    return len;
}

bool weft_wire_is_error(uint32_t status)
{
    switch (status) {
#define WEFT_STATUS_CASE(name, number, sentence) case (number):
        WEFT_STATUS_LIST(WEFT_STATUS_CASE)
#undef WEFT_STATUS_CASE
        return status != WEFT_OK;
    default:
        return false;
    }
}
