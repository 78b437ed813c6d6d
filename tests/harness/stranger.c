/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers: connections from somebody who is no rank. All waits have deadlines. */
#include "harness/harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

uint16_t harness_free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return 0;
    }
    bool is_bound = bind(fd, (struct sockaddr *)&addr, len) == 0 &&
                    getsockname(fd, (struct sockaddr *)&addr, &len) == 0;
    close(fd);
    return is_bound ? ntohs(addr.sin_port) : 0;
}

static uint64_t deadline_after(unsigned ms)
{
    return harness_now_ns() + ms * UINT64_C(1000000);
}

/* false: the deadline passed, errno is ETIMEDOUT */
static bool wait_ready(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = harness_now_ns();
        uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        struct pollfd wanted = {.fd = fd, .events = events};
        int ready = poll(&wanted, 1, (int)((left_ns + 999999) / 1000000));
        if (ready > 0) {
            return true;
        }
        if (ready == 0 && left_ns == 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static int connect_to(const struct sockaddr *addr, socklen_t len, unsigned deadline_ms)
{
    uint64_t deadline_ns = deadline_after(deadline_ms);
    int error = 0;
    socklen_t error_len = sizeof(error);
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    if (connect(fd, addr, len) == 0) {
        return fd;
    }
    error = errno;
    if (error == EINPROGRESS) {
        if (wait_ready(fd, POLLOUT, deadline_ns)) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len);
        } else {
            error = ETIMEDOUT;
        }
    }
    if (error != 0) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int stranger_connect(const char *address, uint16_t port, unsigned deadline_ms)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
        return connect_to((struct sockaddr *)&v4, sizeof(v4), deadline_ms);
    }
    if (inet_pton(AF_INET6, address, &v6.sin6_addr) == 1) {
        return connect_to((struct sockaddr *)&v6, sizeof(v6), deadline_ms);
    }
    errno = EINVAL;
    return -1;
}

int stranger_connect_unix(const char *name, unsigned deadline_ms)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    if (len >= sizeof(addr.sun_path)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(addr.sun_path + 1, name, len);
    return connect_to((struct sockaddr *)&addr,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len), deadline_ms);
}

bool stranger_send(int fd, const void *bytes, size_t len, unsigned deadline_ms)
{
    uint64_t deadline_ns = deadline_after(deadline_ms);
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            len -= (size_t)sent;
        } else if (errno != EAGAIN && errno != EINTR) {
            return false;
        } else if (!wait_ready(fd, POLLOUT, deadline_ns)) {
            return false;
        }
    }
    return true;
}

/* Like recv(), but waits: -1 with ETIMEDOUT at the deadline. */
static ssize_t receive(int fd, void *bytes, size_t room, uint64_t deadline_ns)
{
    for (;;) {
        ssize_t got = recv(fd, bytes, room, MSG_DONTWAIT);
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
            return got;
        }
        if (!wait_ready(fd, POLLIN, deadline_ns)) {
            return -1;
        }
    }
}

size_t stranger_read(int fd, void *bytes, size_t room, unsigned deadline_ms)
{
    uint64_t deadline_ns = deadline_after(deadline_ms);
    size_t got = 0;
    while (got < room) {
        ssize_t more = receive(fd, (uint8_t *)bytes + got, room - got, deadline_ns);
        if (more <= 0) {
            break;
        }
        got += (size_t)more;
    }
    return got;
}

bool stranger_is_closed(int fd, unsigned deadline_ms)
{
    uint64_t deadline_ns = deadline_after(deadline_ms);
    uint8_t sink[4096];
    for (;;) {
        ssize_t got = receive(fd, sink, sizeof(sink), deadline_ns);
        if (got == 0) {
            return true;
        }
        if (got < 0) {
            return errno != ETIMEDOUT;
        }
        if (harness_now_ns() >= deadline_ns) {
            return false; /* a peer that talks for ever */
        }
    }
}
