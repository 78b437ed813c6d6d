/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of wire: a seeded generator, so that a failing run can be repeated, and the
 * two ends of a handshake with fixed facts.
 */
#ifndef WEFT_TESTS_WIRE_SUPPORT_H
#define WEFT_TESTS_WIRE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/wire.h"

#include <stdio.h>
#include <string.h>

#define HELLO_FIXED_LEN 72 /* of a hello, before its payload */
#define ACCEPT_LEN 44
#define BITS(bytes) ((size_t)(bytes)*8)

/* splitmix64 */
static inline uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *seed, uint32_t bound)
{
    return (uint32_t)(next_random(seed) % bound);
}

static inline void fill_random(uint64_t *seed, void *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        ((uint8_t *)out)[i] = (uint8_t)next_random(seed);
    }
}

/* printable text of up to room - 1 characters; the rest of the room is zeroed */
static inline void fill_text(uint64_t *seed, char *out, size_t room)
{
    size_t len = random_below(seed, (uint32_t)room);

    memset(out, 0, room);
    for (size_t i = 0; i < len; i++) {
        out[i] = (char)(' ' + random_below(seed, 95));
    }
}

static inline void fill_addr(uint64_t *seed, struct weft_wire_addr *addr)
{
    static const uint8_t families[] = {0, 4, 6};

    memset(addr, 0, sizeof(*addr));
    addr->family = families[random_below(seed, 3)];
    if (addr->family == 0) {
        return;
    }
    addr->port = (uint16_t)next_random(seed);
    addr->scope = addr->family == 6 ? (uint32_t)next_random(seed) : 0;
    fill_random(seed, addr->bytes, addr->family == 4 ? 4 : 16);
}

static inline void flip_bit(uint8_t *bytes, size_t bit)
{
    bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static inline void store_u32(uint8_t *at, uint32_t value)
{
    for (unsigned b = 0; b < 4; b++) {
        at[b] = (uint8_t)(value >> 8 * b);
    }
}

static inline void assert_hex(const uint8_t *bytes, size_t len, const char *expected)
{
    char text[4096];

    assert_true(len * 2 < sizeof(text));
    text[0] = '\0';
    for (size_t i = 0; i < len; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    assert_string_equal(text, expected);
}

/* ---- both ends of a handshake ---- */

struct talk {
    uint8_t server_key[WEFT_WIRE_KEY_LEN], client_key[WEFT_WIRE_KEY_LEN];
    uint8_t server_nonce[WEFT_WIRE_NONCE_LEN], client_nonce[WEFT_WIRE_NONCE_LEN];
    struct weft_wire_self server_self, client_self;
    struct weft_wire_handshake server, client;
    enum weft_wire_purpose purpose;
    uint16_t lane;
    const char *payload;
};

static inline void talk_prepare(struct talk *talk)
{
    memset(talk, 0xa5, sizeof(*talk)); /* the machines must not count on zeroed memory */
    memset(talk->server_key, 0x11, sizeof(talk->server_key));
    memset(talk->client_key, 0x11, sizeof(talk->client_key));
    memset(talk->server_nonce, 0x22, sizeof(talk->server_nonce));
    memset(talk->client_nonce, 0x33, sizeof(talk->client_nonce));
    talk->server_self = (struct weft_wire_self){.key = talk->server_key,
                                                .is_authenticated = true,
                                                .job = "0123456789abcde",
                                                .epoch = 7,
                                                .rank = 0,
                                                .ranks = 8};
    talk->client_self = talk->server_self;
    talk->client_self.key = talk->client_key;
    talk->client_self.rank = 3;
    talk->purpose = WEFT_WIRE_JOIN;
    talk->lane = 2;
    talk->payload = "a payload";
}

static inline void talk_open(struct talk *talk)
{
    weft_wire_server_open(&talk->server, &talk->server_self, talk->server_nonce);
    weft_wire_client_open(&talk->client, &talk->client_self, talk->client_nonce, talk->purpose,
                          talk->lane, talk->payload, strlen(talk->payload));
}

/* Feeds everything; the machine must take all of it, unless it fails. */
static inline enum weft_wire_state feed(struct weft_wire_handshake *shake, const void *bytes,
                                        size_t len)
{
    size_t used;
    enum weft_wire_state state = weft_wire_feed(shake, bytes, len, &used);

    assert_true(used <= len);
    assert_true(used == len || state != WEFT_WIRE_WANT_BYTES);
    return state;
}

/* Carries what `from` has to say to `to`. */
static inline enum weft_wire_state carry(struct weft_wire_handshake *from,
                                         struct weft_wire_handshake *to)
{
    size_t len = from->out_len;

    assert_true(len > 0);
    from->out_len = 0;
    return feed(to, from->out, len);
}

/* Feeds one byte at a time; the state must change at the last byte and not before. */
static inline enum weft_wire_state drip(struct weft_wire_handshake *from,
                                        struct weft_wire_handshake *to)
{
    size_t len = from->out_len;
    size_t used;

    from->out_len = 0;
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(to->state, WEFT_WIRE_WANT_BYTES);
        assert_int_equal(to->out_len, 0);
        weft_wire_feed(to, from->out + i, 1, &used);
        assert_int_equal(used, 1);
        weft_wire_feed(to, NULL, 0, &used);
        assert_int_equal(used, 0);
    }
    return to->state;
}

/* Puts a CRC that fits onto the fixed part of a hello. */
static inline void hello_reseal(uint8_t *hello)
{
    store_u32(hello + 68, weft_wire_crc32c(0, hello, 68));
}

/* Up to the point where the server has read a good hello. */
static inline void talk_to_hello(struct talk *talk)
{
    talk_open(talk);
    assert_int_equal(carry(&talk->server, &talk->client), WEFT_WIRE_WANT_BYTES);
    assert_int_equal(carry(&talk->client, &talk->server), WEFT_WIRE_HELLO);
}

/* The same on a local socket, where the client speaks first. */
static inline void talk_open_local(struct talk *talk)
{
    weft_wire_server_open(&talk->server, &talk->server_self, NULL);
    weft_wire_client_open(&talk->client, &talk->client_self, talk->client_nonce, talk->purpose,
                          talk->lane, talk->payload, strlen(talk->payload));
    weft_wire_client_speak(&talk->client);
}

static inline void talk_to_local_hello(struct talk *talk)
{
    talk_open_local(talk);
    assert_int_equal(carry(&talk->client, &talk->server), WEFT_WIRE_HELLO);
}

#endif
