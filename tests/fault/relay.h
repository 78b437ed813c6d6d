/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay on the loopback interface between ranks and their root: passes bytes on, keeps those of
 * the first connection, and can close that connection after a given byte of one direction. With weather
 * (weather.h) what it reads at once is passed on later, in order; flow 2 k is the k-th connection's way up, 2 k + 1
 * its way down. When the root does not listen any more, neither does the relay. Runs as a thread: open it after
 * the ranks were forked.
 */
#ifndef WEFT_TESTS_RELAY_H
#define WEFT_TESTS_RELAY_H

#include "fault/weather.h"
#include "harness/harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RELAY_NEVER SIZE_MAX
#define RELAY_PAIRS 16
#define RELAY_RECORD 8192

enum { RELAY_UP, RELAY_DOWN }; /* to the root, from the root */

/* What was read and is not due yet; len 0: the end. */
struct relay_piece {
    struct relay_piece *next;
    uint64_t due_ns;
    size_t len;
    uint8_t bytes[];
};

struct relay_pair {
    int fd[2]; /* the rank's, the root's; -1: closed */
    size_t passed[2];
    uint64_t pieces[2];                     /* per direction: the next piece's number */
    struct relay_piece *first[2], *last[2]; /* owned */
    bool has_ended[2];                      /* nothing more is read there */
};

struct relay {
    uint16_t port, root_port;
    int listener;
    size_t cut_after[2];    /* bytes of the first connection, per direction */
    _Atomic bool holds_up;  /* keeps what the ranks say and passes none of it on */
    struct weather weather; /* only its delays */
    _Atomic uint32_t is_stopped;
    _Atomic uint32_t connections;
    pthread_t thread;
    struct relay_pair pairs[RELAY_PAIRS];
    _Atomic uint32_t recorded[2];
    uint8_t record[2][RELAY_RECORD]; /* what arrived on the first connection */
};

static inline void relay_close_pair(struct relay_pair *pair)
{
    for (int side = 0; side < 2; side++) {
        if (pair->fd[side] >= 0) {
            close(pair->fd[side]);
        }
        pair->fd[side] = -1;
        while (pair->first[side] != NULL) {
            struct relay_piece *piece = pair->first[side];
            pair->first[side] = piece->next;
            free(piece);
        }
    }
}

/* Later, but never before what came before it. */
static inline void relay_delay(struct relay *relay, struct relay_pair *pair, int direction,
                               const uint8_t *bytes, size_t len)
{
    uint32_t flow = 2 * (uint32_t)(pair - relay->pairs) + (uint32_t)direction;
    struct weather_fate fate = weather_fate(&relay->weather, flow, pair->pieces[direction]++);
    struct relay_piece *piece = malloc(sizeof(*piece) + len), *last = pair->last[direction];
    if (piece == NULL) {
        abort();
    }
    *piece = (struct relay_piece){.len = len};
    piece->due_ns = harness_now_ns() + fate.delay_us[0] * UINT64_C(1000);
    if (len > 0) {
        memcpy(piece->bytes, bytes, len);
    }
    if (pair->first[direction] == NULL) {
        pair->first[direction] = piece;
    } else {
        piece->due_ns = piece->due_ns > last->due_ns ? piece->due_ns : last->due_ns;
        last->next = piece;
    }
    pair->last[direction] = piece;
}

static inline void relay_pass_due(struct relay_pair *pair, int direction)
{
    uint64_t now_ns = harness_now_ns();
    while (pair->first[direction] != NULL && pair->first[direction]->due_ns <= now_ns) {
        struct relay_piece *piece = pair->first[direction];
        bool is_end = piece->len == 0 ||
                      !stranger_send(pair->fd[1 - direction], piece->bytes, piece->len, 1000);
        pair->first[direction] = piece->next;
        free(piece);
        if (is_end) {
            relay_close_pair(pair);
        }
    }
}

static inline void relay_pass_all_due(struct relay *relay)
{
    for (uint32_t i = 0; i < atomic_load(&relay->connections); i++) {
        relay_pass_due(&relay->pairs[i], RELAY_UP);
        relay_pass_due(&relay->pairs[i], RELAY_DOWN);
    }
}

static inline void relay_accept(struct relay *relay)
{
    const int on = 1;
    uint32_t number = atomic_load(&relay->connections);
    int rank_fd = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (rank_fd < 0) {
        return;
    }
    int root_fd = number < RELAY_PAIRS ? stranger_connect("127.0.0.1", relay->root_port, 1000) : -1;
    if (root_fd < 0) {
        close(relay->listener); /* first: the rank that dials again must find nobody */
        relay->listener = -1;
        close(rank_fd);
        return;
    }
    setsockopt(rank_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(root_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    relay->pairs[number] = (struct relay_pair){.fd = {rank_fd, root_fd}};
    atomic_store(&relay->connections, number + 1);
}

static inline void relay_keep(struct relay *relay, int direction, const uint8_t *bytes, size_t len)
{
    uint32_t have = atomic_load(&relay->recorded[direction]);
    size_t room = RELAY_RECORD - have;
    memcpy(relay->record[direction] + have, bytes, len < room ? len : room);
    atomic_store(&relay->recorded[direction], have + (uint32_t)(len < room ? len : room));
}

/* Both sides learn it, when what was said before has been passed on. */
static inline void relay_end(struct relay *relay, struct relay_pair *pair, int direction)
{
    if (weather_delays(&relay->weather)) {
        pair->has_ended[direction] = true;
        relay_delay(relay, pair, direction, NULL, 0);
    } else {
        relay_close_pair(pair);
    }
}

static inline void relay_pass(struct relay *relay, struct relay_pair *pair, int direction)
{
    uint8_t bytes[4096];
    bool is_first = pair == relay->pairs;
    size_t cut = is_first ? relay->cut_after[direction] : RELAY_NEVER;
    ssize_t got = recv(pair->fd[direction], bytes, sizeof(bytes), MSG_DONTWAIT);
    size_t pass = got > 0 ? (size_t)got : 0;
    if (got <= 0) {
        relay_end(relay, pair, direction);
        return;
    }
    if (is_first) {
        relay_keep(relay, direction, bytes, pass);
    }
    if (relay->holds_up && direction == RELAY_UP) {
        return;
    }
    if (pass > cut - pair->passed[direction]) {
        pass = cut - pair->passed[direction];
    }
    pair->passed[direction] += pass;
    if (weather_delays(&relay->weather)) {
        relay_delay(relay, pair, direction, bytes, pass);
        if (pair->passed[direction] >= cut) {
            relay_end(relay, pair, direction);
        }
    } else if (!stranger_send(pair->fd[1 - direction], bytes, pass, 1000) ||
               pair->passed[direction] >= cut) {
        relay_close_pair(pair);
    }
}

static inline void *relay_run(void *arg)
{
    struct relay *relay = arg;
    while (atomic_load(&relay->is_stopped) == 0) {
        struct pollfd polled[1 + 2 * RELAY_PAIRS];
        uint32_t pairs = atomic_load(&relay->connections);
        polled[0] = (struct pollfd){.fd = relay->listener, .events = POLLIN};
        for (uint32_t i = 0; i < 2 * pairs; i++) {
            const struct relay_pair *pair = &relay->pairs[i / 2];
            int fd = pair->has_ended[i % 2] ? -1 : pair->fd[i % 2];
            polled[1 + i] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
        int ready =
            poll(polled, 1 + 2 * pairs, 1); /* what is due and the stop word are looked at too */
        relay_pass_all_due(relay);
        if (ready <= 0) {
            continue;
        }
        for (uint32_t i = 0; i < 2 * pairs; i++) {
            if (polled[1 + i].revents != 0 && relay->pairs[i / 2].fd[i % 2] >= 0) {
                relay_pass(relay, &relay->pairs[i / 2], (int)(i % 2));
            }
        }
        if (polled[0].revents != 0) {
            relay_accept(relay);
        }
    }
    return NULL;
}

static inline struct relay *relay_open_in(uint16_t root_port, int cut_direction, size_t cut_after,
                                          bool holds_up, const struct weather *weather)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct relay *relay = calloc(1, sizeof(*relay));
    if (relay == NULL) {
        abort();
    }
    relay->root_port = root_port;
    relay->holds_up = holds_up;
    relay->weather = *weather;
    relay->cut_after[RELAY_UP] = relay->cut_after[RELAY_DOWN] = RELAY_NEVER;
    relay->cut_after[cut_direction] = cut_after;
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(relay->listener, (struct sockaddr *)&addr, len) != 0 ||
        listen(relay->listener, 64) != 0 ||
        getsockname(relay->listener, (struct sockaddr *)&addr, &len) != 0) {
        abort();
    }
    relay->port = ntohs(addr.sin_port);
    if (pthread_create(&relay->thread, NULL, relay_run, relay) != 0) {
        abort();
    }
    return relay;
}

static inline struct relay *relay_open(uint16_t root_port, int cut_direction, size_t cut_after,
                                       bool holds_up)
{
    const struct weather calm = {0};
    return relay_open_in(root_port, cut_direction, cut_after, holds_up, &calm);
}

/* Ends the thread and all connections; the record can still be read. */
static inline void relay_stop(struct relay *relay)
{
    if (atomic_exchange(&relay->is_stopped, 1) == 0) {
        pthread_join(relay->thread, NULL);
        for (int i = 0; i < RELAY_PAIRS && i < (int)atomic_load(&relay->connections); i++) {
            relay_close_pair(&relay->pairs[i]);
        }
        if (relay->listener >= 0) {
            close(relay->listener);
        }
    }
}

static inline void relay_close(struct relay *relay)
{
    relay_stop(relay);
    free(relay);
}

#endif
