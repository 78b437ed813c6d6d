/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control of `weft bench bootstrap`: the fastest bare star we can write, since a slow control
 * would flatter us. TCP on 127.0.0.1, one connection and one 96-byte record per rank, the table of
 * all records back; nobody proves anything. Chosen by measurement on two cores, at 8 and at 64
 * ranks:
 *
 *  - the root polls and yields instead of blocking: 0.16 against 0.20 ms at 8 ranks. The ranks it
 * waits for run in the yielded time, and no wake-up of the root is paid;
 *  - leaves switch quick acks off before connecting: the kernel then lets the record carry the last
 *    ack of the handshake, and the root mostly finds it at accept: 0.14 against 0.16 ms;
 *  - blocking leaves, one recv with MSG_WAITALL;
 *  - no difference seen: edge-triggered or one-shot epoll, TCP_DEFER_ACCEPT, one accept per
 * wake-up, blocking or non-blocking sockets at the root.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_PER_WAIT 256
#define YIELDS_BEFORE_BLOCKING 20000 /* some 10 ms: only a rank in trouble is that late */

struct record {
    uint32_t rank;
    uint32_t stamp;
    uint8_t rest[WEFT_BENCH_RECORD_LEN - 8];
};

static void record_fill(struct record *record, int rank, uint32_t stamp)
{
    memset(record, (int)((unsigned)rank & 0xff), sizeof(*record));
    record->rank = (uint32_t)rank;
    record->stamp = stamp;
}

static void set_nodelay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static bool listener_open(struct weft_bench_star *star, uint16_t *port_p)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct epoll_event want = {.events = EPOLLIN, .data.fd = -1};

    star->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    star->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (star->listener < 0 || star->epoll < 0) {
        return false;
    }
    set_nodelay(star->listener); /* accepted sockets inherit it */
    want.data.fd = star->listener;
    if (bind(star->listener, (struct sockaddr *)&addr, len) < 0 ||
        listen(star->listener, star->ranks) < 0 ||
        getsockname(star->listener, (struct sockaddr *)&addr, &len) < 0 ||
        epoll_ctl(star->epoll, EPOLL_CTL_ADD, star->listener, &want) < 0) {
        return false;
    }
    *port_p = ntohs(addr.sin_port);
    return true;
}

bool weft_bench_star_open(struct weft_bench_star *star, int rank, int ranks, uint16_t *port_p)
{
    *star = (struct weft_bench_star){
        .rank = rank,
        .ranks = ranks,
        .listener = -1,
        .epoll = -1,
        .fds = weft_cli_alloc((size_t)ranks, sizeof(int)),
        .table = weft_cli_alloc((size_t)ranks, WEFT_BENCH_RECORD_LEN),
    };
    return rank != 0 || listener_open(star, port_p);
}

void weft_bench_star_close(struct weft_bench_star *star)
{
    weft_bench_star_part(star);
    if (star->listener >= 0) {
        close(star->listener);
    }
    if (star->epoll >= 0) {
        close(star->epoll);
    }
    free(star->fds);
    free(star->table);
}

/* 1: the record is in the table. 0: not here yet. -1: errno. */
static int take_record(struct weft_bench_star *star, int fd, uint32_t stamp)
{
    struct record record;
    ssize_t got = recv(fd, &record, sizeof(record), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (got != sizeof(record) || record.rank >= (uint32_t)star->ranks || record.stamp != stamp) {
        errno = got < 0 ? errno : EPROTO;
        return -1;
    }
    memcpy(star->table + (size_t)record.rank * sizeof(record), &record, sizeof(record));
    return 1;
}

/* Takes all that wait; returns how many came with their record already, or -1. */
static int accept_ready(struct weft_bench_star *star, uint32_t stamp)
{
    int taken = 0;
    while (star->fd_count < star->ranks - 1) {
        int fd = accept4(star->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            return errno == EAGAIN || errno == EINTR ? taken : -1;
        }
        star->fds[star->fd_count++] = fd;
        int here = take_record(star, fd, stamp);
        struct epoll_event want = {.events = EPOLLIN, .data.fd = fd};
        if (here < 0 || (here == 0 && epoll_ctl(star->epoll, EPOLL_CTL_ADD, fd, &want) < 0)) {
            return -1;
        }
        taken += here;
    }
    return taken;
}

static int wait_ready(const struct weft_bench_star *star, struct epoll_event *events)
{
    for (int yields = 0; yields < YIELDS_BEFORE_BLOCKING; yields++) {
        int count = epoll_wait(star->epoll, events, EVENTS_PER_WAIT, 0);
        if (count != 0) {
            return count;
        }
        sched_yield();
    }
    return epoll_wait(star->epoll, events, EVENTS_PER_WAIT, -1);
}

static bool send_table(const struct weft_bench_star *star)
{
    size_t len = (size_t)star->ranks * WEFT_BENCH_RECORD_LEN;
    for (int i = 0; i < star->fd_count; i++) {
        if (send(star->fds[i], star->table, len, MSG_NOSIGNAL) != (ssize_t)len) {
            return false;
        }
    }
    return true;
}

static bool meet_as_root(struct weft_bench_star *star, uint32_t stamp)
{
    struct epoll_event events[EVENTS_PER_WAIT];
    struct record mine;
    record_fill(&mine, 0, stamp);
    memcpy(star->table, &mine, sizeof(mine));

    int missing = star->ranks - 1;
    while (missing > 0) {
        int count = wait_ready(star, events);
        if (count < 0 && errno != EINTR) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            int taken =
                fd == star->listener ? accept_ready(star, stamp) : take_record(star, fd, stamp);
            if (taken < 0) {
                return false;
            }
            missing -= taken;
        }
    }
    return send_table(star);
}

static bool meet_as_leaf(struct weft_bench_star *star, uint16_t port, uint32_t stamp)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct record mine;
    record_fill(&mine, star->rank, stamp);

    int off = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    star->fds[0] = fd;
    star->fd_count = 1;
    set_nodelay(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof(off));
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        send(fd, &mine, sizeof(mine), MSG_NOSIGNAL) != sizeof(mine)) {
        return false;
    }
    ssize_t len = (ssize_t)star->ranks * WEFT_BENCH_RECORD_LEN;
    ssize_t got = recv(fd, star->table, (size_t)len, MSG_WAITALL);
    if (got >= 0 && got != len) {
        errno = EPROTO;
    }
    return got == len;
}

bool weft_bench_star_meet(struct weft_bench_star *star, uint16_t port, uint32_t stamp)
{
    return star->rank == 0 ? meet_as_root(star, stamp) : meet_as_leaf(star, port, stamp);
}

bool weft_bench_star_is_right(const struct weft_bench_star *star, uint32_t stamp)
{
    for (int rank = 0; rank < star->ranks; rank++) {
        struct record want;
        record_fill(&want, rank, stamp);
        if (memcmp(star->table + (size_t)rank * sizeof(want), &want, sizeof(want)) != 0) {
            return false;
        }
    }
    return true;
}

void weft_bench_star_part(struct weft_bench_star *star)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < star->fd_count; i++) {
        if (star->rank == 0) {
            setsockopt(star->fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        }
        close(star->fds[i]);
    }
    star->fd_count = 0;
}
