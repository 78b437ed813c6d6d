/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay for datagrams on the loopback interface, with weather: each is lost, doubled, delayed or overtaken as its
 * seed, its flow and its number say. Every sender gets a socket of its own towards the far end, as behind a
 * router, so that answers find their way. Flow 2 k is the k-th sender's to the far end, 2 k + 1 the way back.
 * Runs as a thread: open it after ranks were forked.
 */
#ifndef WEFT_TESTS_RELAY_UDP_H
#define WEFT_TESTS_RELAY_UDP_H

#include "fault/weather.h"
#include "harness/harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RELAY_UDP_SENDERS 16
#define RELAY_UDP_PENDING 4096
#define RELAY_UDP_LEN 65536

struct relay_udp_packet {
    uint64_t due_ns;
    uint32_t flow;
    size_t len;
    uint8_t *bytes; /* owned */
};

struct relay_udp_sender {
    struct sockaddr_in addr;
    int fd;             /* towards the far end */
    uint64_t passed[2]; /* per direction: the next packet's number */
};

struct relay_udp {
    uint16_t port;
    int fd; /* towards the senders */
    struct sockaddr_in far;
    struct weather weather;
    _Atomic uint32_t is_stopped;
    pthread_t thread;
    struct relay_udp_sender senders[RELAY_UDP_SENDERS];
    unsigned sender_count;
    struct relay_udp_packet pending[RELAY_UDP_PENDING]; /* the one that is due first is first */
    unsigned pending_count;
    _Atomic uint32_t seen, lost, doubled; /* for the test's own words */
    uint8_t bytes[RELAY_UDP_LEN];
};

static inline int relay_udp_socket(struct sockaddr_in *addr_p)
{
    const int room = 4 << 20;
    socklen_t len = sizeof(*addr_p);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *addr_p =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)addr_p, len) != 0 ||
        getsockname(fd, (struct sockaddr *)addr_p, &len) != 0) {
        abort();
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    return fd;
}

static inline struct relay_udp_sender *relay_udp_sender_of(struct relay_udp *relay,
                                                           const struct sockaddr_in *addr)
{
    struct sockaddr_in own;
    struct relay_udp_sender *sender;
    for (unsigned i = 0; i < relay->sender_count; i++) {
        sender = &relay->senders[i];
        if (sender->addr.sin_port == addr->sin_port &&
            sender->addr.sin_addr.s_addr == addr->sin_addr.s_addr) {
            return sender;
        }
    }
    if (relay->sender_count == RELAY_UDP_SENDERS) {
        return NULL;
    }
    sender = &relay->senders[relay->sender_count++];
    *sender = (struct relay_udp_sender){.addr = *addr, .fd = relay_udp_socket(&own)};
    return sender;
}

/* Behind those that are due before it, or at the same time. What finds no place is lost. */
static inline void relay_udp_keep(struct relay_udp *relay, const struct relay_udp_packet *packet)
{
    unsigned at = relay->pending_count;
    uint8_t *bytes = at < RELAY_UDP_PENDING ? malloc(packet->len + 1) : NULL;
    if (bytes == NULL) {
        return;
    }
    memcpy(bytes, packet->bytes, packet->len);
    while (at > 0 && relay->pending[at - 1].due_ns > packet->due_ns) {
        relay->pending[at] = relay->pending[at - 1];
        at--;
    }
    relay->pending[at] = *packet;
    relay->pending[at].bytes = bytes;
    relay->pending_count++;
}

static inline void relay_udp_arrived(struct relay_udp *relay, struct relay_udp_sender *sender,
                                     unsigned direction, size_t len)
{
    uint32_t flow = 2 * (uint32_t)(sender - relay->senders) + direction;
    struct weather_fate fate = weather_fate(&relay->weather, flow, sender->passed[direction]++);
    struct relay_udp_packet packet = {.flow = flow, .len = len, .bytes = relay->bytes};
    uint64_t now_ns = harness_now_ns();
    atomic_fetch_add(&relay->seen, 1);
    atomic_fetch_add(&relay->lost, fate.copies == 0);
    atomic_fetch_add(&relay->doubled, fate.copies == 2);
    for (unsigned copy = 0; copy < fate.copies; copy++) {
        packet.due_ns = now_ns + fate.delay_us[copy] * UINT64_C(1000);
        relay_udp_keep(relay, &packet);
    }
}

/* All that has come on this socket; sender NULL: from senders, known or not. */
static inline void relay_udp_read(struct relay_udp *relay, struct relay_udp_sender *sender)
{
    struct sockaddr_in from;
    for (;;) {
        socklen_t from_len = sizeof(from);
        ssize_t got = recvfrom(sender != NULL ? sender->fd : relay->fd, relay->bytes,
                               sizeof(relay->bytes), 0, (struct sockaddr *)&from, &from_len);
        if (got < 0) {
            return;
        }
        struct relay_udp_sender *whose =
            sender != NULL ? sender : relay_udp_sender_of(relay, &from);
        if (whose != NULL) {
            relay_udp_arrived(relay, whose, sender != NULL, (size_t)got);
        }
    }
}

static inline void relay_udp_send(const struct relay_udp *relay,
                                  const struct relay_udp_packet *packet)
{
    const struct relay_udp_sender *sender = &relay->senders[packet->flow / 2];
    bool is_back = packet->flow % 2 == 1;
    const struct sockaddr_in *to = is_back ? &sender->addr : &relay->far;
    sendto(is_back ? relay->fd : sender->fd, packet->bytes, packet->len, 0,
           (const struct sockaddr *)to, sizeof(*to));
}

static inline void relay_udp_pass(struct relay_udp *relay)
{
    uint64_t now_ns = harness_now_ns();
    unsigned due = 0;
    while (due < relay->pending_count && relay->pending[due].due_ns <= now_ns) {
        relay_udp_send(relay, &relay->pending[due]);
        free(relay->pending[due++].bytes);
    }
    relay->pending_count -= due;
    memmove(relay->pending, relay->pending + due, relay->pending_count * sizeof(relay->pending[0]));
}

static inline void *relay_udp_run(void *arg)
{
    struct relay_udp *relay = arg;
    while (atomic_load(&relay->is_stopped) == 0) {
        struct pollfd polled[1 + RELAY_UDP_SENDERS];
        unsigned senders = relay->sender_count;
        polled[0] = (struct pollfd){.fd = relay->fd, .events = POLLIN};
        for (unsigned i = 0; i < senders; i++) {
            polled[1 + i] = (struct pollfd){.fd = relay->senders[i].fd, .events = POLLIN};
        }
        poll(polled, 1 + senders, 1); /* the stop word and what is pending are looked at too */
        if (polled[0].revents != 0) {
            relay_udp_read(relay, NULL);
        }
        for (unsigned i = 0; i < senders; i++) {
            if (polled[1 + i].revents != 0) {
                relay_udp_read(relay, &relay->senders[i]);
            }
        }
        relay_udp_pass(relay);
    }
    return NULL;
}

/* To 127.0.0.1:far_port. */
static inline struct relay_udp *relay_udp_open(uint16_t far_port, const struct weather *weather)
{
    struct sockaddr_in own;
    struct relay_udp *relay = calloc(1, sizeof(*relay));
    if (relay == NULL) {
        abort();
    }
    relay->weather = *weather;
    relay->far = (struct sockaddr_in){.sin_family = AF_INET,
                                      .sin_port = htons(far_port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    relay->fd = relay_udp_socket(&own);
    relay->port = ntohs(own.sin_port);
    if (pthread_create(&relay->thread, NULL, relay_udp_run, relay) != 0) {
        abort();
    }
    return relay;
}

static inline void relay_udp_close(struct relay_udp *relay)
{
    atomic_store(&relay->is_stopped, 1);
    pthread_join(relay->thread, NULL);
    for (unsigned i = 0; i < relay->pending_count; i++) {
        free(relay->pending[i].bytes);
    }
    for (unsigned i = 0; i < relay->sender_count; i++) {
        close(relay->senders[i].fd);
    }
    close(relay->fd);
    free(relay);
}

#endif
