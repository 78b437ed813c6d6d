/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes between two plugins, beyond the handshake, which is wire's. Pure. All integers little-endian.
 *
 * Forward, on every lane: chunks.
 *  0      2    3     4    8        16      20    24    28     30    32           36
 *  | magic|type|flags|tag | number | offset| len | size| index| zero| payload crc| crc32c of 0…35 |
 * A message has a number (0, 1, … in the order of the sends), a size, and chunks counted by index; len bytes
 * of it follow, to lie at offset.
 *
 * Backward, 16 bytes: a note.
 *  0      2    3     4       12
 *  | magic|type|zero | value | crc32c of 0…11 |
 * LANDED: all messages with numbers below value have arrived whole. DOWN: the lane with this id is given up.
 */
#ifndef WEFT_NCCL_FRAME_H
#define WEFT_NCCL_FRAME_H

#include "wire/wire.h"

#define WEFT_NCCL_CHUNK_LEN 40
#define WEFT_NCCL_NOTE_LEN 16
#define WEFT_NCCL_CHUNKS 512 /* of one message, at most */
#define WEFT_NCCL_LEN_MAX INT32_MAX

enum { WEFT_NCCL_TYPE_CHUNK = 1, WEFT_NCCL_TYPE_LANDED, WEFT_NCCL_TYPE_DOWN };
enum {
    WEFT_NCCL_AWAITED = 1, /* the sender waits to hear that it has landed */
    WEFT_NCCL_CHECKED = 2, /* payload_crc counts */
    WEFT_NCCL_OPENS = 4,   /* no chunk at all: the dialler says that notes may come by this lane */
};

struct weft_nccl_chunk {
    uint8_t flags;
    uint32_t tag;
    uint64_t number;
    uint32_t offset, len, size;
    uint16_t index;
    uint32_t payload_crc;
};
void weft_nccl_chunk_encode(const struct weft_nccl_chunk *chunk, uint8_t out[WEFT_NCCL_CHUNK_LEN]);
/* ERR_PROTOCOL: not one of ours, damaged, or reaching beyond its message. */
weft_status_t weft_nccl_chunk_decode(const uint8_t in[WEFT_NCCL_CHUNK_LEN],
                                     struct weft_nccl_chunk *chunk_p);

struct weft_nccl_note {
    uint8_t type;
    uint64_t value;
};
void weft_nccl_note_encode(const struct weft_nccl_note *note, uint8_t out[WEFT_NCCL_NOTE_LEN]);
weft_status_t weft_nccl_note_decode(const uint8_t in[WEFT_NCCL_NOTE_LEN],
                                    struct weft_nccl_note *note_p);

/* What NCCL carries from the listening side to the connecting one: 128 bytes. */
#define WEFT_NCCL_HANDLE_LEN 128
#define WEFT_NCCL_TOKEN_LEN 16
#define WEFT_NCCL_ADDRS 8
struct weft_nccl_handle {
    uint8_t key[WEFT_WIRE_KEY_LEN];     /* of the listening process */
    uint8_t token[WEFT_NCCL_TOKEN_LEN]; /* of the listener: its secret */
    uint64_t ticket;                    /* the connecting side's own, 0 on arrival */
    uint32_t count;
    struct weft_wire_addr addrs[WEFT_NCCL_ADDRS]; /* those that fit */
};
void weft_nccl_handle_encode(const struct weft_nccl_handle *handle,
                             uint8_t out[WEFT_NCCL_HANDLE_LEN]);
/* ERR_INVALID */
weft_status_t weft_nccl_handle_decode(const uint8_t in[WEFT_NCCL_HANDLE_LEN],
                                      struct weft_nccl_handle *handle_p);

/* What a lane says of itself when it is dialled: the payload of its hello. */
#define WEFT_NCCL_LANES 32        /* of one connection at once, those that end included */
#define WEFT_NCCL_GREETING_LEN 34 /* and 4 for each lane that lives on */
#define WEFT_NCCL_GREETING_MAX (WEFT_NCCL_GREETING_LEN + 4 * WEFT_NCCL_LANES)
struct weft_nccl_greeting {
    uint8_t token[WEFT_NCCL_TOKEN_LEN];
    uint64_t comm;
    bool is_first; /* a new connection */
    bool is_last;  /* no lane at all: the sender has closed, and reads no more notes */
    uint32_t id;   /* of the lane; they grow, and none comes twice */
    uint16_t slot;
    uint16_t count; /* lanes with lower ids that live on; all others with lower ids are given up */
    uint32_t alive[WEFT_NCCL_LANES];
};
size_t weft_nccl_greeting_encode(const struct weft_nccl_greeting *greeting,
                                 uint8_t out[WEFT_NCCL_GREETING_MAX]);
weft_status_t weft_nccl_greeting_decode(const void *bytes, size_t len,
                                        struct weft_nccl_greeting *greeting_p);

#endif
