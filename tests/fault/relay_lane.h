/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay between two ranks' data lane, for f18_damaged_lane.c: the ranks' connect() comes through here (the
 * executable is linked so), and leads to a thread that passes bytes on, cuts the first connection after a byte, or
 * flips a bit. It knows where frames begin as soon as one header has passed: so it can flip bits of headers only, and
 * tells whether the damage came before the last message. Of sealed lanes it knows nothing but bytes.
 */
#ifndef WEFT_TESTS_RELAY_LANE_H
#define WEFT_TESTS_RELAY_LANE_H

#include "harness/harness.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TAG_LAST 77 /* of the last message */

enum { UP, DOWN }; /* to the rank that listens, rank 0; from it */
enum damage_kind { DAMAGE_NONE, DAMAGE_CUT, DAMAGE_END, DAMAGE_FLIP, DAMAGE_FLIP_HEADER };

struct damage {
    enum damage_kind kind;
    int direction;
    size_t at; /* byte of the connection, or number of a header, not counting the first */
    unsigned bit;
};

struct way { /* one direction of the first connection */
    size_t passed;
    bool is_in_step;
    uint8_t header[WEFT_WIRE_DATA_LEN];
    size_t header_len; /* held back; not in step: the latest bytes */
    size_t payload_left;
    size_t headers;
    bool is_last; /* the frame that is passing is the last message */
    bool has_last_passed;
};

static struct {
    int listener;
    uint16_t port;
    _Atomic uint32_t target_port;
    _Atomic uint32_t is_on, is_stopped;
    pthread_t thread;
    int fd[4][2]; /* [connection][towards the direction's end]; -1: closed */
    unsigned connections;
    struct way way[2];
    struct damage damage;
    bool is_sealed;         /* headers cannot be told apart: bytes pass as they come */
    uint8_t seen[48 << 10]; /* what passed, in both directions */
    size_t seen_len;
    bool was_in_step, had_last_passed; /* when the damage was done */
    _Atomic uint64_t damaged_ns;       /* 0: not yet */
} relay;

static _Thread_local bool is_relay; /* whose own connections lead where they should */

int __real_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len);

int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    struct sockaddr_in to;
    int type = 0;
    socklen_t type_len = sizeof(type);
    if (is_relay || addr->sa_family != AF_INET || atomic_load(&relay.is_on) == 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) != 0 || type != SOCK_STREAM) {
        return __real_connect(fd, addr, len);
    }
    memcpy(&to, addr, sizeof(to));
    atomic_store(&relay.target_port, ntohs(to.sin_port));
    to.sin_port = htons(relay.port);
    return __real_connect(fd, (const struct sockaddr *)&to, sizeof(to));
}

static void note_damage(const struct way *way)
{
    relay.was_in_step = way->is_in_step || relay.is_sealed; /* those plans spare the handshake */
    relay.had_last_passed = way->has_last_passed;
    atomic_store(&relay.damaged_ns, harness_now_ns());
}

static bool is_damage(enum damage_kind kind, int direction)
{
    return relay.damage.kind == kind && relay.damage.direction == direction &&
           atomic_load(&relay.damaged_ns) == 0;
}

/* A header is whole, or seems to be. */
static void note_header(struct way *way, int direction)
{
    struct weft_wire_data frame;
    bool is_good = weft_wire_data_decode(way->header, &frame) == WEFT_OK;
    if (!is_good) {
        return; /* not in step yet; in step, a cut or a flip is behind us and nothing matters */
    }
    way->has_last_passed |= way->is_last;
    way->is_last = frame.type == WEFT_DATA_EAGER && frame.tag == TAG_LAST;
    way->payload_left = frame.len;
    if (way->is_in_step && is_damage(DAMAGE_FLIP_HEADER, direction) &&
        way->headers++ == relay.damage.at) {
        way->header[relay.damage.bit / 8] ^= (uint8_t)(1u << relay.damage.bit % 8);
        note_damage(way);
    }
    way->is_in_step = true;
    way->header_len = 0;
}

/* Takes one byte in; what may leave is appended to out. */
static void take(struct way *way, int direction, uint8_t byte, uint8_t *out, size_t *out_len)
{
    if (is_damage(DAMAGE_FLIP, direction) && way->passed == relay.damage.at) {
        byte ^= (uint8_t)(1u << relay.damage.bit);
        note_damage(way);
    }
    way->passed++;
    if (relay.is_sealed || way->payload_left > 0) {
        way->payload_left -= way->payload_left > 0;
        out[(*out_len)++] = byte;
        return;
    }
    if (!way->is_in_step) {
        out[(*out_len)++] = byte;
        memmove(way->header, way->header + 1, sizeof(way->header) - 1);
        way->header[sizeof(way->header) - 1] = byte;
        note_header(way, direction);
        return;
    }
    way->header[way->header_len++] = byte;
    if (way->header_len == sizeof(way->header)) {
        note_header(way, direction);
        memcpy(out + *out_len, way->header, sizeof(way->header));
        *out_len += sizeof(way->header);
        way->header_len = 0;
    }
}

static void close_connection(unsigned connection)
{
    for (int side = 0; side < 2; side++) {
        if (relay.fd[connection][side] >= 0) {
            close(relay.fd[connection][side]);
        }
        relay.fd[connection][side] = -1;
    }
}

/* What was held back of a header goes too: a cut is at a byte. */
static void release_held(struct way *way, uint8_t *out, size_t *out_len)
{
    if (way->is_in_step) {
        memcpy(out + *out_len, way->header, way->header_len);
        *out_len += way->header_len;
        way->header_len = 0;
    }
}

static void pass(unsigned connection, int direction)
{
    static uint8_t in[16384], out[16384 + WEFT_WIRE_DATA_LEN];
    struct way *way = &relay.way[direction];
    size_t out_len = 0;
    bool is_cut = false;
    ssize_t got = recv(relay.fd[connection][1 - direction], in, sizeof(in), MSG_DONTWAIT);
    if (got <= 0) {
        close_connection(connection);
        return;
    }
    for (ssize_t i = 0; i < got && relay.seen_len < sizeof(relay.seen); i++) {
        relay.seen[relay.seen_len++] = in[i];
    }
    if (connection > 0) { /* only the first one is damaged */
        memcpy(out, in, (size_t)got);
        out_len = (size_t)got;
    }
    for (ssize_t i = 0; i < got && connection == 0 && !is_cut; i++) {
        is_cut = (is_damage(DAMAGE_CUT, direction) || is_damage(DAMAGE_END, direction)) &&
                 way->passed == relay.damage.at;
        if (is_cut) {
            note_damage(way);
            release_held(way, out, &out_len);
        } else {
            take(way, direction, in[i], out, &out_len);
        }
    }
    if (!stranger_send(relay.fd[connection][direction], out, out_len, 2000) || is_cut) {
        close_connection(connection);
    }
}

static void accept_connection(void)
{
    const int on = 1;
    int dialler = accept4(relay.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int target = -1;
    bool is_over = relay.damage.kind == DAMAGE_END && atomic_load(&relay.damaged_ns) != 0;
    if (dialler >= 0 && relay.connections < 4 && !is_over) {
        target = stranger_connect("127.0.0.1", (uint16_t)atomic_load(&relay.target_port), 1000);
    }
    if (target < 0) {
        close(dialler);
        return;
    }
    setsockopt(dialler, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(target, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    relay.fd[relay.connections][UP] = target;
    relay.fd[relay.connections][DOWN] = dialler;
    relay.connections++;
}

static void *run_relay(void *arg)
{
    (void)arg;
    is_relay = true;
    while (atomic_load(&relay.is_stopped) == 0) {
        struct pollfd polled[9] = {{.fd = relay.listener, .events = POLLIN}};
        unsigned count = relay.connections;
        for (unsigned i = 0; i < count; i++) {
            polled[1 + 2 * i] = (struct pollfd){.fd = relay.fd[i][DOWN], .events = POLLIN};
            polled[2 + 2 * i] = (struct pollfd){.fd = relay.fd[i][UP], .events = POLLIN};
        }
        if (poll(polled, 1 + 2 * count, 2) <= 0) { /* the stop word is polled too */
            continue;
        }
        for (unsigned i = 0; i < 2 * count; i++) {
            int direction = i % 2 == 0 ? UP : DOWN;
            if (polled[1 + i].revents != 0 && relay.fd[i / 2][1 - direction] >= 0) {
                pass(i / 2, direction);
            }
        }
        if (polled[0].revents != 0) {
            accept_connection();
        }
    }
    return NULL;
}

static bool relay_open(const struct damage *damage, bool is_sealed)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    memset(&relay, 0, sizeof(relay));
    relay.damage = *damage;
    relay.is_sealed = is_sealed;
    relay.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(relay.listener, (struct sockaddr *)&addr, len) != 0 ||
        listen(relay.listener, 8) != 0 ||
        getsockname(relay.listener, (struct sockaddr *)&addr, &len) != 0) {
        return false;
    }
    relay.port = ntohs(addr.sin_port);
    return pthread_create(&relay.thread, NULL, run_relay, NULL) == 0;
}

static void relay_close(void)
{
    atomic_store(&relay.is_on, 0);
    atomic_store(&relay.is_stopped, 1);
    pthread_join(relay.thread, NULL);
    for (unsigned i = 0; i < relay.connections; i++) {
        close_connection(i);
    }
    close(relay.listener);
}

#endif
