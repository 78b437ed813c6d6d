/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets. Options that accepted sockets inherit (no delay, keepalive) are set on the listener
 * once. Keepalive is only the last resort against half-open connections; liveness is our own
 * heartbeat.
 */
#include "net/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096

weft_status_t weft_net_port_range(const char *text, uint16_t *first_p, uint16_t *last_p)
{
    char *end;
    unsigned long first, last;
    if (text[0] == '\0') {
        *first_p = *last_p = 0;
        return WEFT_OK;
    }
    first = strtoul(text, &end, 10);
    last = first;
    if (end != text && *end == '-') {
        const char *second = end + 1;
        last = strtoul(second, &end, 10);
        if (end == second) {
            first = 0;
        }
    }
    if (end == text || *end != '\0' || first < 1 || last > 65535 || first > last) {
        return weft_fail(WEFT_ERR_INVALID,
                         "WEFT_PORT_RANGE=%s: expected first-last with 1 <= first <= last <= 65535",
                         text);
    }
    *first_p = (uint16_t)first;
    *last_p = (uint16_t)last;
    return WEFT_OK;
}

static void tune(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static weft_status_t bind_one(const struct sockaddr_storage *addr, int *fd_p)
{
    const int on = 1;
    weft_status_t status;
    char text[WEFT_NET_ADDR_TEXT_LEN];
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return weft_fail_errno("socket");
    }
    weft_fd_own(fd);
    /* Lets a restarted job take its fixed port while old connections linger; never shares a live
     * one. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    tune(fd);
    if (bind(fd, (const struct sockaddr *)addr, weft_net_addr_len(addr)) != 0 ||
        listen(fd, BACKLOG) != 0) {
        weft_net_addr_print(addr, text);
        status = errno == EADDRINUSE ? weft_fail(WEFT_ERR_BUSY, "%s is in use", text)
                                     : weft_fail_errno("cannot listen on %s", text);
        weft_fd_close(fd);
        return status;
    }
    *fd_p = fd;
    return WEFT_OK;
}

weft_status_t weft_net_listen(const struct sockaddr_storage *addr, uint16_t first, uint16_t last,
                              int *fd_p, struct sockaddr_storage *bound_p)
{
    struct sockaddr_storage try = *addr;
    socklen_t len = sizeof(*bound_p);
    weft_status_t status = WEFT_OK;
    bool is_fixed =
        ((const struct sockaddr_in *)addr)->sin_port != 0; /* same place in both families */
    for (unsigned port = first; port <= last; port++) {
        if (!is_fixed) {
            weft_net_addr_set_port(&try, (uint16_t)port);
        }
        status = bind_one(&try, fd_p);
        if (status != WEFT_ERR_BUSY || is_fixed) {
            break;
        }
    }
    if (status == WEFT_ERR_BUSY && !is_fixed) {
        return weft_fail(WEFT_ERR_BUSY, "no port of WEFT_PORT_RANGE=%u-%u is free", first, last);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (getsockname(*fd_p, (struct sockaddr *)bound_p, &len) != 0) {
        status = weft_fail_errno("getsockname");
        weft_fd_close(*fd_p);
    }
    return status;
}

static socklen_t local_addr(const char *name, struct sockaddr_un *addr_p)
{
    size_t len = strnlen(name, sizeof(addr_p->sun_path) - 1);
    memset(addr_p, 0, sizeof(*addr_p));
    addr_p->sun_family = AF_UNIX;
    memcpy(addr_p->sun_path + 1, name, len); /* a leading zero byte: no file */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

weft_status_t weft_net_listen_local(const char *name, int *fd_p)
{
    struct sockaddr_un addr;
    socklen_t len = local_addr(name, &addr);
    weft_status_t status;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return weft_fail_errno("socket(unix)");
    }
    weft_fd_own(fd);
    if (bind(fd, (const struct sockaddr *)&addr, len) != 0 || listen(fd, BACKLOG) != 0) {
        status = errno == EADDRINUSE ? WEFT_ERR_BUSY
                                     : weft_fail_errno("cannot listen on a local socket");
        weft_fd_close(fd);
        return status;
    }
    *fd_p = fd;
    return WEFT_OK;
}

/* So that it leaves by that device, also when the routes prefer another. */
static weft_status_t bind_to(int fd, const struct sockaddr_storage *from, const char *device)
{
    struct sockaddr_storage any_port = *from;
    char text[WEFT_NET_ADDR_TEXT_LEN];
    const int on = 1;
    if (device[0] != '\0') { /* refused: the address alone must do */
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device));
    }
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    weft_net_addr_set_port(&any_port, 0);
    if (bind(fd, (const struct sockaddr *)&any_port, weft_net_addr_len(&any_port)) != 0) {
        int error = errno;
        weft_net_addr_print(from, text);
        return weft_fail(WEFT_ERR_NETWORK, "cannot send from %s: %s", text, strerror(error));
    }
    return WEFT_OK;
}

/* ---- by which device it came ---- */

static bool is_v6(int fd)
{
    int domain = 0;
    socklen_t len = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_INET6;
}

void weft_net_note_device(int listener)
{
    const int on = 1;
    if (is_v6(listener)) {
        setsockopt(listener, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
    } else {
        setsockopt(listener, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on));
    }
}

/* 0: not known. What the kernel tells of an accepted socket is the packet that completed it. */
static unsigned device_of(int fd)
{
    bool has_v6 = is_v6(fd);
    _Alignas(struct cmsghdr) uint8_t told[256];
    struct msghdr msg = {.msg_control = told};
    socklen_t len = sizeof(told);
    if (getsockopt(fd, has_v6 ? IPPROTO_IPV6 : IPPROTO_IP,
                   has_v6 ? IPV6_2292PKTOPTIONS : IP_PKTOPTIONS, told, &len) != 0) {
        return 0;
    }
    msg.msg_controllen = len;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&msg); one != NULL; one = CMSG_NXTHDR(&msg, one)) {
        if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(one), sizeof(info));
            return (unsigned)info.ipi_ifindex;
        }
        if (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(one), sizeof(info));
            return info.ipi6_ifindex;
        }
    }
    return 0;
}

static bool is_neighbour(int fd, uint32_t prefix_len)
{
    struct sockaddr_storage here, there;
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 &&
           weft_net_addr_is_same_net(&here, &there, prefix_len);
}

/* A device need not have a route to those who are not neighbours. */
void weft_net_keep_to(int fd, unsigned device, uint32_t prefix_len)
{
    char name[IF_NAMESIZE];
    if (is_neighbour(fd, prefix_len) && device_of(fd) == device &&
        if_indextoname(device, name) != NULL) {
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)strlen(name));
    }
}

/* ---- dialling ---- */

weft_status_t weft_net_connect(const struct sockaddr_storage *addr, struct weft_net_dial *dial_p)
{
    return weft_net_connect_from(NULL, "", addr, dial_p);
}

weft_status_t weft_net_connect_from(const struct sockaddr_storage *from, const char *device,
                                    const struct sockaddr_storage *addr,
                                    struct weft_net_dial *dial_p)
{
    char text[WEFT_NET_ADDR_TEXT_LEN];
    weft_status_t status;
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return weft_fail_errno("socket");
    }
    weft_fd_own(fd);
    tune(fd);
    status = from != NULL ? bind_to(fd, from, device) : WEFT_OK;
    if (status != WEFT_OK) {
        weft_fd_close(fd);
        return status;
    }
    if (connect(fd, (const struct sockaddr *)addr, weft_net_addr_len(addr)) != 0 &&
        errno != EINPROGRESS) {
        int error = errno;
        weft_net_addr_print(addr, text);
        status = weft_fail(WEFT_ERR_NETWORK, "cannot connect to %s: %s", text, strerror(error));
        weft_fd_close(fd);
        return status;
    }
    *dial_p = (struct weft_net_dial){.fd = fd};
    return WEFT_OK;
}

/* A unix socket cannot say when a full queue has room again, so the connect itself blocks, at most
 * until the deadline. */
static int connect_waiting(int fd, const struct sockaddr_un *addr, socklen_t len,
                           uint64_t deadline_ns)
{
    int left_ms = weft_clock_ms_until(deadline_ns);
    struct timeval left = {.tv_sec = left_ms / 1000, .tv_usec = (left_ms % 1000) * 1000L + 1};
    int result;
    fcntl(fd, F_SETFL, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left));
    do {
        result = connect(fd, (const struct sockaddr *)addr, len);
    } while (result != 0 && errno == EINTR && weft_clock_ns() < deadline_ns);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return result;
}

weft_status_t weft_net_connect_local(const char *name, uint64_t deadline_ns,
                                     struct weft_net_dial *dial_p)
{
    struct sockaddr_un addr;
    struct ucred peer;
    socklen_t peer_len = sizeof(peer);
    socklen_t len = local_addr(name, &addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int result;
    weft_status_t status;
    if (fd < 0) {
        return weft_fail_errno("socket(unix)");
    }
    weft_fd_own(fd);
    result = connect(fd, (const struct sockaddr *)&addr, len);
    if (result != 0 && errno == EAGAIN) {
        result = connect_waiting(fd, &addr, len, deadline_ns);
    }
    if (result != 0) {
        status = errno == ECONNREFUSED
                     ? weft_fail(WEFT_ERR_NETWORK,
                                 "nobody listens on the local socket (not there yet, or another "
                                 "secret or another WEFT_JOB)")
                 : errno == EAGAIN
                     ? weft_fail(WEFT_ERR_BUSY, "too many wait to be let in at the local socket")
                     : weft_fail_errno("connect(unix)");
        weft_fd_close(fd);
        return status;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) != 0 || peer.uid != geteuid()) {
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_AUTH, "the local socket of this job belongs to another user");
    }
    *dial_p = (struct weft_net_dial){.fd = fd, .is_local = true, .peer_pid = peer.pid};
    return WEFT_OK;
}
