/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of data frames. Encoding is on the way of every small message: stores and one CRC. */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>

#define DATA_MAGIC 0x6457u /* "Wd" */

struct data_layout {
    uint8_t magic[2];
    uint8_t type[1];
    uint8_t flags[1];
    uint8_t len[4];
    uint8_t comm[8];
    uint8_t tag[4];
    uint8_t seq[4];
    uint8_t a[8];
    uint8_t b[8];
    uint8_t c[8];
    uint8_t number[4];
    uint8_t ack[4];
    uint8_t payload_crc[4];
    uint8_t crc[4];
};
static_assert(sizeof(struct data_layout) == WEFT_WIRE_DATA_LEN, "a data header is 64 bytes");
static_assert(offsetof(struct data_layout, type) == 2, "layout");
static_assert(offsetof(struct data_layout, flags) == 3, "layout");
static_assert(offsetof(struct data_layout, len) == 4, "layout");
static_assert(offsetof(struct data_layout, comm) == 8, "layout");
static_assert(offsetof(struct data_layout, tag) == 16, "layout");
static_assert(offsetof(struct data_layout, seq) == 20, "layout");
static_assert(offsetof(struct data_layout, a) == 24, "layout");
static_assert(offsetof(struct data_layout, b) == 32, "layout");
static_assert(offsetof(struct data_layout, c) == 40, "layout");
static_assert(offsetof(struct data_layout, number) == 48, "layout");
static_assert(offsetof(struct data_layout, ack) == 52, "layout");
static_assert(offsetof(struct data_layout, payload_crc) == 56, "layout");
static_assert(offsetof(struct data_layout, crc) == 60, "layout");

void weft_wire_data_encode(const struct weft_wire_data *data, uint8_t out[WEFT_WIRE_DATA_LEN])
{
    struct data_layout *layout = (struct data_layout *)out;

    assert(data->type > 0 && data->type < WEFT_DATA_TYPE_END);
    assert(data->len <= WEFT_WIRE_DATA_MAX);
    put_u16(layout->magic, DATA_MAGIC);
    layout->type[0] = data->type;
    layout->flags[0] = data->flags;
    put_u32(layout->len, data->len);
    put_u64(layout->comm, data->comm);
    put_u32(layout->tag, data->tag);
    put_u32(layout->seq, data->seq);
    put_u64(layout->a, data->a);
    put_u64(layout->b, data->b);
    put_u64(layout->c, data->c);
    put_u32(layout->number, data->number);
    put_u32(layout->ack, data->ack);
    put_u32(layout->payload_crc, data->payload_crc);
    put_u32(layout->crc, weft_wire_crc32c(0, out, offsetof(struct data_layout, crc)));
}

weft_status_t weft_wire_data_decode(const uint8_t in[WEFT_WIRE_DATA_LEN],
                                    struct weft_wire_data *data_p)
{
    const struct data_layout *layout = (const struct data_layout *)in;
    uint8_t type = layout->type[0];
    uint32_t len = get_u32(layout->len);

    if (get_u16(layout->magic) != DATA_MAGIC) {
        return weft_fail(WEFT_ERR_PROTOCOL,
                         "a data frame begins with %02x%02x: the stream is out of step", in[0],
                         in[1]);
    }
    if (get_u32(layout->crc) != weft_wire_crc32c(0, in, offsetof(struct data_layout, crc))) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a data header was damaged on its way (crc32c)");
    }
    if (type == 0 || type >= WEFT_DATA_TYPE_END) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a data frame has the unknown type %u", type);
    }
    if (len > WEFT_WIRE_DATA_MAX) {
        return weft_fail(WEFT_ERR_PROTOCOL,
                         "a data frame of type %u claims %u bytes, at most %u are allowed", type,
                         len, WEFT_WIRE_DATA_MAX);
    }
    data_p->type = type;
    data_p->flags = layout->flags[0];
    data_p->len = len;
    data_p->comm = get_u64(layout->comm);
    data_p->tag = get_u32(layout->tag);
    data_p->seq = get_u32(layout->seq);
    data_p->a = get_u64(layout->a);
    data_p->b = get_u64(layout->b);
    data_p->c = get_u64(layout->c);
    data_p->number = get_u32(layout->number);
    data_p->ack = get_u32(layout->ack);
    data_p->payload_crc = get_u32(layout->payload_crc);
    return WEFT_OK;
}
