/* SPDX-License-Identifier: Apache-2.0 */
#include "frame.h"

#include <endian.h>
#include <string.h>

#define MAGIC 0x4e57 /* "WN" */
#define HANDLE_MAGIC 0x314e5457
#define HANDLE_ADDRS_AT 64

static void put(uint8_t *at, uint64_t value, size_t len)
{
    value = htole64(value);
    memcpy(at, &value, len);
}

static uint64_t get(const uint8_t *at, size_t len)
{
    uint64_t value = 0;
    memcpy(&value, at, len);
    return le64toh(value);
}

/* ---- chunks ---- */

void weft_nccl_chunk_encode(const struct weft_nccl_chunk *chunk, uint8_t out[WEFT_NCCL_CHUNK_LEN])
{
    put(out, MAGIC, 2);
    out[2] = WEFT_NCCL_TYPE_CHUNK;
    out[3] = chunk->flags;
    put(out + 4, chunk->tag, 4);
    put(out + 8, chunk->number, 8);
    put(out + 16, chunk->offset, 4);
    put(out + 20, chunk->len, 4);
    put(out + 24, chunk->size, 4);
    put(out + 28, chunk->index, 2);
    put(out + 30, 0, 2);
    put(out + 32, chunk->payload_crc, 4);
    put(out + 36, weft_wire_crc32c(0, out, 36), 4);
}

weft_status_t weft_nccl_chunk_decode(const uint8_t in[WEFT_NCCL_CHUNK_LEN],
                                     struct weft_nccl_chunk *chunk_p)
{
    struct weft_nccl_chunk chunk = {.flags = in[3],
                                    .tag = (uint32_t)get(in + 4, 4),
                                    .number = get(in + 8, 8),
                                    .offset = (uint32_t)get(in + 16, 4),
                                    .len = (uint32_t)get(in + 20, 4),
                                    .size = (uint32_t)get(in + 24, 4),
                                    .index = (uint16_t)get(in + 28, 2),
                                    .payload_crc = (uint32_t)get(in + 32, 4)};
    bool is_ours = get(in, 2) == MAGIC && in[2] == WEFT_NCCL_TYPE_CHUNK &&
                   get(in + 36, 4) == weft_wire_crc32c(0, in, 36);
    bool is_inside = chunk.size <= WEFT_NCCL_LEN_MAX && chunk.offset <= chunk.size &&
                     chunk.len <= chunk.size - chunk.offset && chunk.index < WEFT_NCCL_CHUNKS;
    bool is_sound = (chunk.len > 0 || chunk.size == 0) && get(in + 30, 2) == 0 &&
                    (chunk.flags & ~(WEFT_NCCL_AWAITED | WEFT_NCCL_CHECKED | WEFT_NCCL_OPENS)) == 0;
    if (!is_ours || !is_inside || !is_sound) {
        return weft_fail(WEFT_ERR_PROTOCOL, "%s",
                         is_ours ? "a chunk that reaches beyond its message" : "no chunk of ours");
    }
    *chunk_p = chunk;
    return WEFT_OK;
}

/* ---- notes ---- */

void weft_nccl_note_encode(const struct weft_nccl_note *note, uint8_t out[WEFT_NCCL_NOTE_LEN])
{
    put(out, MAGIC, 2);
    out[2] = note->type;
    out[3] = 0;
    put(out + 4, note->value, 8);
    put(out + 12, weft_wire_crc32c(0, out, 12), 4);
}

weft_status_t weft_nccl_note_decode(const uint8_t in[WEFT_NCCL_NOTE_LEN],
                                    struct weft_nccl_note *note_p)
{
    bool is_known = in[2] == WEFT_NCCL_TYPE_LANDED || in[2] == WEFT_NCCL_TYPE_DOWN;
    if (get(in, 2) != MAGIC || !is_known || in[3] != 0 ||
        get(in + 12, 4) != weft_wire_crc32c(0, in, 12)) {
        return weft_fail(WEFT_ERR_PROTOCOL, "no note of ours");
    }
    *note_p = (struct weft_nccl_note){.type = in[2], .value = get(in + 4, 8)};
    return WEFT_OK;
}

/* ---- handles ---- */

static size_t addr_len(const struct weft_wire_addr *addr)
{
    return addr->family == 4 ? 4 : 16;
}

/* Family, port, then 4 or 16 bytes, one address after the other, as many as there is room for: 8 of IPv4, 3 of
 * IPv6. Scopes mean nothing to another host. */
static uint8_t put_addrs(const struct weft_nccl_handle *handle, uint8_t *at, size_t room)
{
    uint8_t count = 0;
    for (uint32_t i = 0; i < handle->count && 3 + addr_len(&handle->addrs[i]) <= room; i++) {
        const struct weft_wire_addr *addr = &handle->addrs[i];
        at[0] = addr->family;
        put(at + 1, addr->port, 2);
        memcpy(at + 3, addr->bytes, addr_len(addr));
        room -= 3 + addr_len(addr);
        at += 3 + addr_len(addr);
        count++;
    }
    return count;
}

void weft_nccl_handle_encode(const struct weft_nccl_handle *handle,
                             uint8_t out[WEFT_NCCL_HANDLE_LEN])
{
    memset(out, 0, WEFT_NCCL_HANDLE_LEN);
    put(out, HANDLE_MAGIC, 4);
    out[4] = WEFT_WIRE_VERSION;
    memcpy(out + 8, handle->key, WEFT_WIRE_KEY_LEN);
    memcpy(out + 40, handle->token, WEFT_NCCL_TOKEN_LEN);
    put(out + 56, handle->ticket, 8);
    out[5] = put_addrs(handle, out + HANDLE_ADDRS_AT, WEFT_NCCL_HANDLE_LEN - HANDLE_ADDRS_AT);
}

static bool get_addrs(const uint8_t *at, size_t room, struct weft_nccl_handle *handle)
{
    for (uint32_t i = 0; i < handle->count; i++) {
        struct weft_wire_addr *addr = &handle->addrs[i];
        if (room < 3 || (at[0] != 4 && at[0] != 6)) {
            return false;
        }
        addr->family = at[0];
        addr->port = (uint16_t)get(at + 1, 2);
        if (room < 3 + addr_len(addr)) {
            return false;
        }
        memcpy(addr->bytes, at + 3, addr_len(addr));
        room -= 3 + addr_len(addr);
        at += 3 + addr_len(addr);
    }
    return true;
}

weft_status_t weft_nccl_handle_decode(const uint8_t in[WEFT_NCCL_HANDLE_LEN],
                                      struct weft_nccl_handle *handle_p)
{
    struct weft_nccl_handle handle = {.ticket = get(in + 56, 8), .count = in[5]};
    if (get(in, 4) != HANDLE_MAGIC) {
        return weft_fail(WEFT_ERR_INVALID, "the handle is not one of Weft's: do all ranks have "
                                           "NCCL_NET_PLUGIN=weft?");
    }
    if (in[4] != WEFT_WIRE_VERSION) {
        return weft_fail(WEFT_ERR_INVALID, "the peer's plugin speaks version %u, this one %u",
                         in[4], WEFT_WIRE_VERSION);
    }
    memcpy(handle.key, in + 8, WEFT_WIRE_KEY_LEN);
    memcpy(handle.token, in + 40, WEFT_NCCL_TOKEN_LEN);
    if (handle.count == 0 || handle.count > WEFT_NCCL_ADDRS ||
        !get_addrs(in + HANDLE_ADDRS_AT, WEFT_NCCL_HANDLE_LEN - HANDLE_ADDRS_AT, &handle)) {
        weft_secret_wipe(&handle, sizeof(handle));
        return weft_fail(WEFT_ERR_INVALID, "the handle holds no address");
    }
    *handle_p = handle;
    weft_secret_wipe(&handle, sizeof(handle));
    return WEFT_OK;
}

/* ---- greetings ---- */

enum { GREETS_FIRST = 1, GREETS_LAST };

size_t weft_nccl_greeting_encode(const struct weft_nccl_greeting *greeting,
                                 uint8_t out[WEFT_NCCL_GREETING_MAX])
{
    memcpy(out, greeting->token, WEFT_NCCL_TOKEN_LEN);
    put(out + 16, greeting->comm, 8);
    put(out + 24, greeting->is_last ? GREETS_LAST : greeting->is_first ? GREETS_FIRST : 0, 2);
    put(out + 26, greeting->slot, 2);
    put(out + 28, greeting->id, 4);
    put(out + 32, greeting->count, 2);
    for (uint32_t i = 0; i < greeting->count; i++) {
        put(out + WEFT_NCCL_GREETING_LEN + (size_t)4 * i, greeting->alive[i], 4);
    }
    return WEFT_NCCL_GREETING_LEN + (size_t)4 * greeting->count;
}

weft_status_t weft_nccl_greeting_decode(const void *bytes, size_t len,
                                        struct weft_nccl_greeting *greeting_p)
{
    const uint8_t *in = bytes;
    struct weft_nccl_greeting greeting = {0};
    if (len < WEFT_NCCL_GREETING_LEN) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a greeting that is too short");
    }
    memcpy(greeting.token, in, WEFT_NCCL_TOKEN_LEN);
    greeting.comm = get(in + 16, 8);
    greeting.is_first = get(in + 24, 2) == GREETS_FIRST;
    greeting.is_last = get(in + 24, 2) == GREETS_LAST;
    greeting.slot = (uint16_t)get(in + 26, 2);
    greeting.id = (uint32_t)get(in + 28, 4);
    greeting.count = (uint16_t)get(in + 32, 2);
    if (get(in + 24, 2) > GREETS_LAST || greeting.count > WEFT_NCCL_LANES ||
        len != WEFT_NCCL_GREETING_LEN + (size_t)4 * greeting.count) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a greeting of the wrong length");
    }
    for (uint32_t i = 0; i < greeting.count; i++) {
        greeting.alive[i] = (uint32_t)get(in + WEFT_NCCL_GREETING_LEN + (size_t)4 * i, 4);
    }
    *greeting_p = greeting;
    return WEFT_OK;
}
