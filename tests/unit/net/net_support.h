/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of net: a listener on loopback with its acceptor, clients that dial it, and
 * owners that write down what they are told. Both ends live on engines that the test itself drives,
 * so that nothing happens between two steps.
 */
#ifndef WEFT_TESTS_NET_SUPPORT_H
#define WEFT_TESTS_NET_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/harness.h"
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 10000 /* never reached unless something is broken */
#define SERVER_RANK 0
#define CLIENT_RANK 3
#define RANKS 8

static const uint8_t the_key[WEFT_WIRE_KEY_LEN] = "the key of all tests of net, 32.";
static const uint8_t other_key[WEFT_WIRE_KEY_LEN] = "a key that belongs to other jobs";

static inline struct weft_wire_self self_of(uint32_t rank)
{
    return (struct weft_wire_self){.key = the_key,
                                   .is_authenticated = true,
                                   .job = "job of net tests",
                                   .epoch = 1,
                                   .rank = rank,
                                   .ranks = RANKS};
}

static inline void loopback(struct sockaddr_storage *addr, uint16_t port)
{
    struct sockaddr_in *in = (struct sockaddr_in *)addr;
    memset(addr, 0, sizeof(*addr));
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in->sin_port = htons(port);
}

/* ---- an owner: what it was told ---- */

enum moment { NEVER, AT_HELLO, AT_OPENED, AT_FRAME, AT_LOST };

struct owner {
    struct weft_engine *engine;
    struct weft_net_conn *conn; /* the one that said hello, or the client's; NULL once closed */
    unsigned hellos, opened, frames, lost;
    weft_status_t lost_status;
    char lost_why[128];
    struct weft_wire_frame frame; /* the latest */
    size_t bytes;                 /* of all payloads */
    bool is_wrong;                /* a payload was not what pattern_fill() makes */
    bool does_hold_back;          /* the hello is left unanswered */
    bool does_refuse;
    bool does_echo;
    enum moment closes; /* the owner closes its connection inside this call */
    unsigned closes_at; /* … with this frame */
};

static inline uint8_t pattern_at(uint32_t seed, size_t i)
{
    return (uint8_t)((seed + i) * UINT32_C(2654435761) >> 24);
}

static inline void pattern_fill(uint32_t seed, uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bytes[i] = pattern_at(seed, i);
    }
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

static inline void owner_close(struct owner *owner)
{
    struct weft_net_conn *conn = owner->conn;
    owner->conn = NULL;
    weft_net_conn_close(conn);
}

static inline void owner_at(struct owner *owner, enum moment moment)
{
    if (owner->closes == moment) {
        owner_close(owner);
    }
}

static inline void owner_hello(struct weft_net_conn *conn)
{
    struct owner *owner = conn->owner;
    owner->hellos++;
    owner->conn = conn;
    weft_net_conn_watch(conn);
    if (owner->does_refuse) {
        owner->conn = NULL;
        weft_net_conn_refuse(conn, WEFT_ERR_DUPLICATE, "the seat is taken");
        return;
    }
    if (owner->closes == AT_HELLO) {
        owner_close(owner);
    } else if (!owner->does_hold_back) {
        weft_net_conn_accept(conn);
    }
}

static inline void owner_opened(struct weft_net_conn *conn)
{
    struct owner *owner = conn->owner;
    owner->opened++;
    owner_at(owner, AT_OPENED);
}

static inline void owner_frame(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                               const uint8_t *payload)
{
    struct owner *owner = conn->owner;
    owner->frames++;
    owner->frame = *frame;
    owner->bytes += frame->len;
    owner->is_wrong |= !pattern_is(frame->number, payload, frame->len);
    if (owner->does_echo) {
        struct weft_wire_frame back = *frame;
        weft_net_conn_send(conn, &back, payload, frame->len);
    }
    if (owner->frames == owner->closes_at) {
        owner_at(owner, AT_FRAME);
    }
}

static inline void owner_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct owner *owner = conn->owner;
    owner->lost++;
    owner->lost_status = status;
    snprintf(owner->lost_why, sizeof(owner->lost_why), "%s", why);
    owner_at(owner, AT_LOST);
}

static const struct weft_net_conn_ops owner_ops = {
    .hello = owner_hello, .opened = owner_opened, .frame = owner_frame, .lost = owner_lost};

/* ---- driving ---- */

static inline void drive_briefly(struct weft_engine *engine)
{
    const _Atomic uint32_t never = 0;
    weft_engine_wait(engine, &never, weft_clock_ns() + 50000);
}

/* Drives `engine` (and `other`, may be NULL) until *count ≥ value. */
static inline bool drive_until(struct weft_engine *engine, struct weft_engine *other,
                               const unsigned *count, unsigned value)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (*count < value && weft_clock_ns() < deadline_ns) {
        drive_briefly(engine);
        if (other != NULL) {
            drive_briefly(other);
        }
    }
    return *count >= value;
}

static inline struct weft_engine *engine_new(void)
{
    struct weft_engine *engine = NULL;
    assert_int_equal(weft_wire_crypto_open(), WEFT_OK);
    assert_int_equal(weft_engine_open(64, -1, &engine), WEFT_OK);
    weft_engine_set_load(engine, 1);
    return engine;
}

/* ---- a listener and a client ---- */

struct scene {
    struct weft_engine *engine; /* both ends, where nothing else is said */
    struct weft_net_acceptor *acceptor;
    struct weft_wire_self server_self, client_self;
    struct owner server, client;
    struct sockaddr_storage addr;
    uint64_t handshake_timeout_ms;
    unsigned fds_before;
};

static inline void scene_listen_as(struct scene *scene, const struct weft_net_conn_ops *ops,
                                   void *owner)
{
    struct sockaddr_storage any;
    int fd = -1;
    scene->fds_before = weft_fd_count();
    scene->engine = scene->server.engine = scene->client.engine = engine_new();
    scene->server_self = self_of(SERVER_RANK);
    scene->client_self = self_of(CLIENT_RANK);
    loopback(&any, 0);
    assert_int_equal(weft_net_listen(&any, 0, 0, &fd, &scene->addr), WEFT_OK);
    assert_int_equal(
        weft_net_acceptor_open(scene->engine, fd, &scene->server_self,
                               scene->handshake_timeout_ms > 0 ? scene->handshake_timeout_ms : 2000,
                               ops, owner, &scene->acceptor),
        WEFT_OK);
}

static inline void scene_listen(struct scene *scene)
{
    scene_listen_as(scene, &owner_ops, &scene->server);
}

static inline void scene_dial_on(struct scene *scene, struct weft_net_dial *dial)
{
    dial->self = &scene->client_self;
    dial->purpose = WEFT_WIRE_JOIN;
    dial->payload = "who I am";
    dial->payload_len = 8;
    dial->ops = &owner_ops;
    dial->owner = &scene->client;
    assert_int_equal(weft_net_conn_open(scene->client.engine, dial, &scene->client.conn), WEFT_OK);
}

static inline void scene_dial_at(struct scene *scene, const struct sockaddr_storage *addr)
{
    struct weft_net_dial dial;
    assert_int_equal(weft_net_connect(addr, &dial), WEFT_OK);
    scene_dial_on(scene, &dial);
}

static inline void scene_open(struct scene *scene)
{
    scene_listen(scene);
    scene_dial_at(scene, &scene->addr);
    assert_true(drive_until(scene->engine, NULL, &scene->client.opened, 1));
}

static inline void scene_close(struct scene *scene)
{
    owner_close(&scene->client);
    owner_close(&scene->server);
    weft_net_acceptor_close(scene->acceptor);
    weft_engine_close(scene->engine);
    assert_int_equal(weft_fd_count(), scene->fds_before);
}

/* Frame number `number` with a payload that its reader can check. */
static inline void send_pattern(struct weft_net_conn *conn, uint32_t number, size_t len)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_MAIL, .comm = 77, .src = 1, .dst = 2, .number = number};
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    pattern_fill(number, bytes, len);
    assert_int_equal(weft_net_conn_send(conn, &frame, bytes, len), WEFT_OK);
    free(bytes);
}

#endif
