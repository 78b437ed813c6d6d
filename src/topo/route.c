/* SPDX-License-Identifier: Apache-2.0 */
/* Where an address lies as seen from this host, and what the host is called. */
#include "topo/topo.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DISCARD_PORT 9 /* connect() wants one; no packet is sent to it */

/* IPv4 in IPv6's clothes ("::ffff:10.0.0.7") becomes IPv4, so that both compare equal. */
static void undress(const struct sockaddr_storage *addr, struct sockaddr_storage *plain_p)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    struct sockaddr_in *in4 = (struct sockaddr_in *)plain_p;

    if (addr->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        memset(plain_p, 0, sizeof(*plain_p));
        in4->sin_family = AF_INET;
        in4->sin_port = in6->sin6_port;
        memcpy(&in4->sin_addr, in6->sin6_addr.s6_addr + 12, sizeof(in4->sin_addr));
    } else {
        *plain_p = *addr;
    }
}

/* Host part only; an IPv6 scope counts when both have one. */
bool weft_topo_is_same_addr(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family) {
        return false;
    }
    if (a->ss_family == AF_INET) {
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    }
    if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
        const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)b;

        return memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0 &&
               (a6->sin6_scope_id == b6->sin6_scope_id || a6->sin6_scope_id == 0 ||
                b6->sin6_scope_id == 0);
    }
    return false;
}

/* 127.0.0.0/8, ::1, and the wildcards, which connect() takes for them */
static bool is_loopback(const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET) {
        uint32_t host = ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr);

        return host >> 24 == 127 || host == INADDR_ANY;
    }
    if (addr->ss_family == AF_INET6) {
        const struct in6_addr *host = &((const struct sockaddr_in6 *)addr)->sin6_addr;

        return IN6_IS_ADDR_LOOPBACK(host) || IN6_IS_ADDR_UNSPECIFIED(host);
    }
    return false;
}

static void set_port(struct sockaddr_storage *addr, uint16_t port)
{
    if (addr->ss_family == AF_INET) {
        ((struct sockaddr_in *)addr)->sin_port = htons(port);
    } else {
        ((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
    }
}

static weft_status_t refuse_route(const struct sockaddr_storage *to)
{
    int saved_errno = errno;
    char text[INET6_ADDRSTRLEN] = "?";
    const void *bytes = to->ss_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)to)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)to)->sin6_addr;

    inet_ntop(to->ss_family, bytes, text, sizeof(text));
    return weft_fail(WEFT_ERR_NETWORK, "no route to %s: %s", text, strerror(saved_errno));
}

/* As weft_topo_route(), without words: is_local asks, and "no" is no error. */
static bool find_source(int fd, const struct sockaddr_storage *to, struct sockaddr_storage *addr_p)
{
    struct sockaddr_storage there = *to;
    struct sockaddr_storage here;
    socklen_t len =
        to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    set_port(&there, DISCARD_PORT);
    if (connect(fd, (const struct sockaddr *)&there, len) != 0) {
        return false;
    }
    memset(&here, 0, sizeof(here));
    len = sizeof(here);
    if (getsockname(fd, (struct sockaddr *)&here, &len) != 0) {
        return false;
    }
    set_port(&here, 0);
    *addr_p = here;
    return true;
}

weft_status_t weft_topo_route(const struct sockaddr_storage *to, struct sockaddr_storage *addr_p)
{
    weft_status_t status = WEFT_OK;
    int fd;

    if (to->ss_family != AF_INET && to->ss_family != AF_INET6) {
        return weft_fail(WEFT_ERR_INVALID, "address family %d is neither IPv4 nor IPv6",
                         to->ss_family);
    }
    fd = weft_fd_own(socket(to->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        /* a host without IPv6 has no route to IPv6 */
        return errno == EAFNOSUPPORT ? refuse_route(to) : weft_fail_errno("socket");
    }
    if (!find_source(fd, to, addr_p)) {
        status = refuse_route(to);
    }
    weft_fd_close(fd);
    return status;
}

/*
 * The kernel reaches an own address from that same address, which three quick calls tell; only when
 * it answers with another (a remote host, or a secondary address of ours) the list is read, which
 * costs a tenth of a millisecond.
 */
weft_status_t weft_topo_is_local(const struct sockaddr_storage *addr, bool *is_local_p)
{
    struct sockaddr_storage plain, source;
    struct weft_topo_nic *nics;
    unsigned count;
    bool is_local;
    weft_status_t status;
    int fd;

    undress(addr, &plain);
    is_local = is_loopback(&plain);
    if (is_local || (plain.ss_family != AF_INET && plain.ss_family != AF_INET6)) {
        *is_local_p = is_local;
        return WEFT_OK;
    }
    fd = weft_fd_own(socket(plain.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    is_local =
        fd >= 0 && find_source(fd, &plain, &source) && weft_topo_is_same_addr(&plain, &source);
    weft_fd_close(fd);
    if (is_local) {
        *is_local_p = true;
        return WEFT_OK;
    }

    status = weft_topo_nics(&nics, &count);
    if (status != WEFT_OK) {
        return status;
    }
    for (unsigned i = 0; i < count && !is_local; i++) {
        is_local = weft_topo_is_same_addr(&plain, &nics[i].addr);
    }
    free(nics);
    *is_local_p = is_local;
    return WEFT_OK;
}

void weft_topo_hostname(char name[64])
{
    if (gethostname(name, 64) != 0 && errno != ENAMETOOLONG) {
        name[0] = '\0';
    }
    name[63] = '\0'; /* a cut name need not be terminated */
    if (name[0] == '\0') {
        snprintf(name, 64, "localhost");
    }
}
