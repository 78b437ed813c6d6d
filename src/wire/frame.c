/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>

#define FRAME_MAGIC 0x6657u /* "Wf" */

struct frame_layout {
    uint8_t magic[2];
    uint8_t type[1];
    uint8_t flags[1];
    uint8_t len[4];
    uint8_t comm[8];
    uint8_t src[4];
    uint8_t dst[4];
    uint8_t number[4];
    uint8_t crc[4];
};
static_assert(sizeof(struct frame_layout) == WEFT_WIRE_FRAME_LEN, "a frame header is 32 bytes");
static_assert(offsetof(struct frame_layout, type) == 2, "layout");
static_assert(offsetof(struct frame_layout, len) == 4, "layout");
static_assert(offsetof(struct frame_layout, comm) == 8, "layout");
static_assert(offsetof(struct frame_layout, src) == 16, "layout");
static_assert(offsetof(struct frame_layout, number) == 24, "layout");
static_assert(offsetof(struct frame_layout, crc) == 28, "layout");

void weft_wire_frame_encode(const struct weft_wire_frame *frame, uint8_t out[WEFT_WIRE_FRAME_LEN])
{
    struct frame_layout *layout = (struct frame_layout *)out;

    assert(frame->type > 0 && frame->type < WEFT_WIRE_TYPE_END);
    assert(frame->len <= WEFT_WIRE_FRAME_MAX);
    put_u16(layout->magic, FRAME_MAGIC);
    layout->type[0] = frame->type;
    layout->flags[0] = frame->flags;
    put_u32(layout->len, frame->len);
    put_u64(layout->comm, frame->comm);
    put_u32(layout->src, frame->src);
    put_u32(layout->dst, frame->dst);
    put_u32(layout->number, frame->number);
    put_u32(layout->crc, weft_wire_crc32c(0, out, offsetof(struct frame_layout, crc)));
}

weft_status_t weft_wire_frame_decode(const uint8_t in[WEFT_WIRE_FRAME_LEN],
                                     struct weft_wire_frame *frame_p)
{
    const struct frame_layout *layout = (const struct frame_layout *)in;
    uint8_t type = layout->type[0];
    uint32_t len = get_u32(layout->len);

    if (get_u16(layout->magic) != FRAME_MAGIC) {
        return weft_fail(WEFT_ERR_PROTOCOL,
                         "a frame begins with %02x%02x: the stream is out of step", in[0], in[1]);
    }
    if (get_u32(layout->crc) != weft_wire_crc32c(0, in, offsetof(struct frame_layout, crc))) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a frame header was damaged on its way (crc32c)");
    }
    if (type == 0 || type >= WEFT_WIRE_TYPE_END) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a frame has the unknown type %u", type);
    }
    if (len > WEFT_WIRE_FRAME_MAX) {
        return weft_fail(WEFT_ERR_PROTOCOL,
                         "a frame of type %u claims %u bytes, at most %u are allowed", type, len,
                         WEFT_WIRE_FRAME_MAX);
    }
    frame_p->type = type;
    frame_p->flags = layout->flags[0];
    frame_p->len = len;
    frame_p->comm = get_u64(layout->comm);
    frame_p->src = get_u32(layout->src);
    frame_p->dst = get_u32(layout->dst);
    frame_p->number = get_u32(layout->number);
    return WEFT_OK;
}
