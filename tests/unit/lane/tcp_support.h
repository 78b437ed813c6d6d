/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of lane/tcp: two ports on loopback, each with an engine that the test drives,
 * and a reader that checks every frame it is told: numbers in order, payloads as pattern_at() makes
 * them.
 */
#ifndef WEFT_TESTS_LANE_TCP_SUPPORT_H
#define WEFT_TESTS_LANE_TCP_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/harness.h"
#include "lane/tcp/tcp.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What open() is told. */
#define CALL_FOR(rank, where, ms)                                                                  \
    (&(const struct weft_lane_call){.peer = (rank), .address = (where), .timeout_ms = (ms)})
#define CALL(rank, where) CALL_FOR(rank, where, 10000)

#define DEADLINE_MS 20000 /* never reached unless something is broken */
#define FRAME_MAX ((size_t)4 << 20)
#define GUARD 64
#define ROOM 16
#define KEPT 128

static const uint8_t the_key[WEFT_WIRE_KEY_LEN] = "the key of all tests of lanes 32";

struct side {
    struct weft_engine *engine;
    struct weft_params params;
    struct weft_wire_self self;
    struct sockaddr_storage addr;
    struct weft_lane_port *port;
    struct weft_lane_address address;
    struct weft_lane *lane;
    unsigned room; /* of a poll; 0: ROOM */
    bool does_sink;

    /* what it was told */
    unsigned opened, arrived, headers, landed, sent, writable, lost;
    weft_status_t lost_status;
    char lost_text[160];
    struct weft_wire_data frame; /* the latest header, arrival or landing */
    uint32_t numbered;           /* of the latest frame that came whole */
    bool is_wrong;
    uint8_t *memory; /* where long payloads land */

    uint32_t posted; /* number of the latest frame that was taken */
    unsigned lent;   /* posts whose SENT is still to come, oldest at kept[sent % KEPT] */
    void *kept[KEPT];
};

struct pair {
    struct side a, b; /* a dials b */
    unsigned fds_before;
};

static inline uint8_t pattern_at(uint32_t seed, size_t i)
{
    return (uint8_t)((seed + i) * UINT32_C(2654435761) >> 24);
}

static inline bool pattern_is(uint32_t seed, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != pattern_at(seed, i)) {
            return false;
        }
    }
    return true;
}

/* ---- opening and closing ---- */

static inline void side_prepare(struct side *side, uint32_t rank)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&side->addr;
    memset(side, 0, sizeof(*side));
    assert_int_equal(weft_wire_crypto_open(), WEFT_OK);
    assert_int_equal(weft_params_load(&side->params), WEFT_OK);
    assert_int_equal(weft_params_set(&side->params, WEFT_PARAM_CHUNK, "16M"), WEFT_OK);
    weft_log_configure("off");
    side->self = (struct weft_wire_self){.key = the_key,
                                         .is_authenticated = true,
                                         .job = "job of lanetests",
                                         .epoch = 1,
                                         .rank = rank,
                                         .ranks = 8,
                                         .has_aes = weft_wire_has_aes()};
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    side->memory = malloc(FRAME_MAX + GUARD);
    assert_non_null(side->memory);
}

static inline void side_listen(struct side *side)
{
    const struct weft_lane_port_spec spec = {
        .params = &side->params, .self = &side->self, .addr = &side->addr, .nic = ""};
    struct weft_lane_port_spec with_engine = spec;
    assert_int_equal(weft_engine_open(64, -1, &side->engine), WEFT_OK);
    with_engine.engine = side->engine;
    assert_int_equal(weft_lane_tcp.port_open(&with_engine, &side->port), WEFT_OK);
    weft_lane_tcp.address(side->port, &side->address);
}

static inline void side_close(struct side *side)
{
    weft_lane_tcp.close(side->lane);
    weft_lane_tcp.port_close(side->port);
    weft_engine_close(side->engine);
    while (side->lent > 0) { /* a lane that is closed gives nothing back */
        free(side->kept[side->sent++ % KEPT]);
        side->lent--;
    }
    free(side->memory);
}

static inline void pair_prepare(struct pair *pair)
{
    pair->fds_before = weft_fd_count();
    side_prepare(&pair->a, 1);
    side_prepare(&pair->b, 0);
}

static inline void pair_secure(struct pair *pair, const char *level)
{
    assert_int_equal(weft_params_set(&pair->a.params, WEFT_PARAM_SECURITY, level), WEFT_OK);
    assert_int_equal(weft_params_set(&pair->b.params, WEFT_PARAM_SECURITY, level), WEFT_OK);
}

static inline void pair_close(struct pair *pair)
{
    side_close(&pair->a);
    side_close(&pair->b);
    assert_int_equal(weft_fd_count(), pair->fds_before);
}

/* ---- reading ---- */

static inline void note_whole(struct side *side, const struct weft_wire_data *frame,
                              const uint8_t *payload)
{
    side->frame = *frame;
    side->is_wrong |= frame->number != ++side->numbered;
    side->is_wrong |= payload != NULL && !pattern_is(frame->number, payload, frame->len);
}

static inline void note_header(struct side *side, const struct weft_done *done)
{
    struct weft_slice slice = {side->does_sink ? NULL : side->memory, done->frame.len};
    side->headers++;
    side->frame = done->frame;
    if (done->frame.len > FRAME_MAX) {
        slice.data = NULL;
    }
    memset(side->memory, 0xee, (done->frame.len < FRAME_MAX ? done->frame.len : FRAME_MAX) + GUARD);
    weft_lane_tcp.place(done->lane, &slice);
}

static inline void note_landed(struct side *side, const struct weft_done *done)
{
    static const uint8_t untouched[GUARD] = {[0 ... GUARD - 1] = 0xee};
    side->landed++;
    note_whole(side, &done->frame, side->does_sink ? NULL : side->memory);
    side->is_wrong |=
        memcmp(side->memory + (side->does_sink ? 0 : done->frame.len), untouched, GUARD) != 0;
}

static inline void note_sent(struct side *side, const struct weft_done *done)
{
    side->is_wrong |= done->cookie != side->kept[side->sent % KEPT];
    memset(done->cookie, 0x11, 1);
    free(done->cookie);
    side->sent++;
    side->lent--;
}

static inline void note_lost(struct side *side, const struct weft_done *done)
{
    side->lost++;
    side->lost_status = done->status;
    snprintf(side->lost_text, sizeof(side->lost_text), "%s", done->text);
}

static inline void side_note(struct side *side, const struct weft_done *done)
{
    switch (done->kind) {
    case WEFT_DONE_OPENED:
        side->opened++;
        side->is_wrong |= side->lane != NULL && side->lane != done->lane;
        side->lane = done->lane;
        break;
    case WEFT_DONE_ARRIVED:
        side->arrived++;
        note_whole(side, &done->frame, done->payload);
        break;
    case WEFT_DONE_HEADER:
        note_header(side, done);
        break;
    case WEFT_DONE_LANDED:
        note_landed(side, done);
        break;
    case WEFT_DONE_SENT:
        note_sent(side, done);
        break;
    case WEFT_DONE_WRITABLE:
        side->writable++;
        break;
    case WEFT_DONE_LOST:
        note_lost(side, done);
        break;
    }
}

static inline unsigned side_poll(struct side *side)
{
    struct weft_done done[ROOM];
    unsigned count;
    weft_engine_poll(side->engine);
    weft_engine_lock(side->engine);
    count = weft_lane_tcp.poll(side->port, done, side->room > 0 ? side->room : ROOM);
    for (unsigned i = 0; i < count; i++) {
        side_note(side, &done[i]);
    }
    weft_engine_unlock(side->engine);
    if (count == 0) {
        sched_yield(); /* the other side may be a thread that needs this CPU */
    }
    return count;
}

/* Polls `side` (and `other`, may be NULL) until *count ≥ value. */
static inline bool poll_until(struct side *side, struct side *other, const unsigned *count,
                              unsigned value)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (*count < value && weft_clock_ns() < deadline_ns) {
        side_poll(side);
        if (other != NULL) {
            side_poll(other);
        }
    }
    return *count >= value;
}

static inline void pair_dial(struct pair *pair)
{
    assert_int_equal(
        weft_lane_tcp.open(pair->a.port, CALL(pair->b.self.rank, &pair->b.address), &pair->a.lane),
        WEFT_OK);
    assert_true(poll_until(&pair->a, &pair->b, &pair->b.opened, 1));
    assert_int_equal(pair->a.opened, 1);
}

static inline void pair_open(struct pair *pair)
{
    pair_prepare(pair);
    side_listen(&pair->a);
    side_listen(&pair->b);
    pair_dial(pair);
}

/* ---- writing ---- */

static inline struct weft_wire_data frame_of(uint32_t number, size_t len)
{
    static const uint8_t types[] = {WEFT_DATA_ANNOUNCE, WEFT_DATA_GRANT, WEFT_DATA_DONE,
                                    WEFT_DATA_GET,      WEFT_DATA_BYE,   WEFT_DATA_SIGNAL};
    return (struct weft_wire_data){.type = types[number % WEFT_COUNT_OF(types)],
                                   .len = (uint32_t)len,
                                   .comm = 77,
                                   .a = number,
                                   .number = number};
}

/* The next frame, from memory that is scribbled over as soon as the lane says that it may be. */
static inline enum weft_post side_post(struct side *side, size_t len)
{
    struct weft_wire_data frame = frame_of(side->posted + 1, len);
    uint8_t *bytes = malloc(len + 1);
    const struct weft_slice slice = {bytes, len};
    enum weft_post result;
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        bytes[i] = pattern_at(frame.number, i);
    }
    result = weft_lane_tcp.post(side->lane, &frame, &slice, bytes);
    if (result == WEFT_POST_LENT) {
        side->kept[(side->sent + side->lent++) % KEPT] = bytes;
    } else {
        memset(bytes, 0x11, len);
        free(bytes);
    }
    side->posted += result != WEFT_POST_FULL;
    return result;
}

#endif
