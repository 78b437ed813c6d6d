/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to wire: little-endian integers, a reader that cannot run past its end, and text from
 * strangers.
 *
 * Wire layouts are structs whose members are all uint8_t arrays: no padding, no alignment, and
 * offsets that static_assert can pin. Integers in them go through put_… and get_….
 */
#ifndef WEFT_WIRE_BYTES_H
#define WEFT_WIRE_BYTES_H

#include "base/base.h"

#include <endian.h>
#include <string.h>

static inline void put_u16(uint8_t *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof(value));
}

static inline void put_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
}

static inline void put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

static inline uint16_t get_u16(const uint8_t *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof(value));
    return le16toh(value);
}

static inline uint32_t get_u32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static inline uint64_t get_u64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

static inline bool is_zero(const uint8_t *at, size_t len)
{
    uint8_t any = 0;

    for (size_t i = 0; i < len; i++) {
        any |= at[i];
    }
    return any == 0;
}

/* What is left of a message. */
struct weft_wire_reader {
    const uint8_t *at; /* lent */
    size_t left;
};

/* The next len bytes, or NULL (and nothing consumed) when there are fewer. */
static inline const uint8_t *reader_take(struct weft_wire_reader *reader, size_t len)
{
    const uint8_t *at = reader->at;

    if (len > reader->left) {
        return NULL;
    }
    reader->at += len;
    reader->left -= len;
    return at;
}

/* Copies len bytes and a final zero. Whatever could steer a terminal or break a log line (control
 * characters, zero bytes, broken UTF-8) becomes '?': the result has the same length. */
void weft_wire_text_get(const uint8_t *bytes, size_t len, char *text);
/* Copies a text of at most max bytes (cut there) without its final zero; returns its length. */
size_t weft_wire_text_put(const char *text, size_t max, uint8_t *out);

/* Is this number one of our errors (not OK, not something a later version may know)? */
bool weft_wire_is_error(uint32_t status);

#endif
