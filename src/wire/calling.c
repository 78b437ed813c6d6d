/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank called, told to whoever compares calls when one of them does not go on:
 *   kind (1) | about (1) | coll (1) | dtype (1) | op (1) | is waiting (1) | zeros (2) | channel (8)
 *   | rank (4) | missing (4)
 *   | number (4) | root (4) | signature (4) | tag (4) | count (8) | timeout_ms (8) | came (8) | expected (8)
 *   | chain (4) | controls (4)
 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <string.h>

void weft_wire_calling_encode(const struct weft_wire_calling *calling,
                              uint8_t out[WEFT_WIRE_CALLING_LEN])
{
    memset(out, 0, WEFT_WIRE_CALLING_LEN);
    out[0] = WEFT_WIRE_CALLING_KIND;
    out[1] = calling->about;
    out[2] = calling->coll;
    out[3] = calling->dtype;
    out[4] = calling->op;
    out[5] = calling->is_waiting;
    put_u64(out + 8, calling->channel);
    put_u32(out + 16, calling->rank);
    put_u32(out + 20, calling->missing);
    put_u32(out + 24, calling->number);
    put_u32(out + 28, calling->root);
    put_u32(out + 32, calling->signature);
    put_u32(out + 36, calling->tag);
    put_u64(out + 40, calling->count);
    put_u64(out + 48, calling->timeout_ms);
    put_u64(out + 56, calling->came);
    put_u64(out + 64, calling->expected);
    put_u32(out + 72, calling->chain);
    put_u32(out + 76, calling->controls);
}

weft_status_t weft_wire_calling_decode(const void *bytes, size_t len,
                                       struct weft_wire_calling *calling_p)
{
    const uint8_t *in = bytes;
    if (len != WEFT_WIRE_CALLING_LEN || in[0] != WEFT_WIRE_CALLING_KIND ||
        in[1] >= WEFT_CALLING_ABOUTS || in[2] >= WEFT_COLLS || in[3] >= WEFT_DTYPES ||
        in[4] >= WEFT_REDOPS || in[5] > 1 || in[6] != 0 || in[7] != 0) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a report of a call cannot be read (%zu bytes)", len);
    }
    *calling_p = (struct weft_wire_calling){
        .about = in[1],
        .coll = in[2],
        .dtype = in[3],
        .op = in[4],
        .channel = get_u64(in + 8),
        .rank = get_u32(in + 16),
        .missing = get_u32(in + 20),
        .number = get_u32(in + 24),
        .root = get_u32(in + 28),
        .signature = get_u32(in + 32),
        .tag = get_u32(in + 36),
        .count = get_u64(in + 40),
        .timeout_ms = get_u64(in + 48),
        .came = get_u64(in + 56),
        .expected = get_u64(in + 64),
        .chain = get_u32(in + 72),
        .controls = get_u32(in + 76),
        .is_waiting = in[5] != 0,
    };
    return WEFT_OK;
}
