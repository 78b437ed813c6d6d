/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: between the kernel's form, the wire's and a person's. */
#include "net/net.h"
#include "topo/topo.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft_net_addr_to_wire(const struct sockaddr_storage *addr, struct weft_wire_addr *wire_p)
{
    memset(wire_p, 0, sizeof(*wire_p));
    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
        wire_p->family = 4;
        wire_p->port = ntohs(in->sin_port);
        memcpy(wire_p->bytes, &in->sin_addr, 4);
    } else if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
        wire_p->family = 6;
        wire_p->port = ntohs(in6->sin6_port);
        wire_p->scope = in6->sin6_scope_id;
        memcpy(wire_p->bytes, &in6->sin6_addr, 16);
    }
}

weft_status_t weft_net_addr_from_wire(const struct weft_wire_addr *wire,
                                      struct sockaddr_storage *addr_p)
{
    if (wire->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)addr_p;
        memset(addr_p, 0, sizeof(*addr_p));
        in->sin_family = AF_INET;
        in->sin_port = htons(wire->port);
        memcpy(&in->sin_addr, wire->bytes, 4);
        return WEFT_OK;
    }
    if (wire->family == 6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr_p;
        memset(addr_p, 0, sizeof(*addr_p));
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(wire->port);
        in6->sin6_scope_id = wire->scope;
        memcpy(&in6->sin6_addr, wire->bytes, 16);
        return WEFT_OK;
    }
    return weft_fail(WEFT_ERR_INVALID, "no address is known");
}

socklen_t weft_net_addr_len(const struct sockaddr_storage *addr)
{
    return addr->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void weft_net_addr_set_port(struct sockaddr_storage *addr, uint16_t port)
{
    if (addr->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)addr)->sin_port = htons(port);
    }
}

bool weft_net_addr_is_same_net(const struct sockaddr_storage *a, const struct sockaddr_storage *b,
                               uint32_t prefix_len)
{
    struct weft_wire_addr left, right;
    weft_net_addr_to_wire(a, &left);
    weft_net_addr_to_wire(b, &right);
    return left.family == right.family && left.family != 0 &&
           weft_wire_addr_is_same_net(left.bytes, right.bytes, prefix_len);
}

void weft_net_addr_print(const struct sockaddr_storage *addr, char text[WEFT_NET_ADDR_TEXT_LEN])
{
    char host[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = "?";
    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(text, WEFT_NET_ADDR_TEXT_LEN, "%s:%u", host, ntohs(in->sin_port));
    } else if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
        char name[IF_NAMESIZE] = "";
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        if (in6->sin6_scope_id != 0 && if_indextoname(in6->sin6_scope_id, name) != NULL) {
            size_t len = strlen(host);
            snprintf(host + len, sizeof(host) - len, "%%%s", name);
        }
        snprintf(text, WEFT_NET_ADDR_TEXT_LEN, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        snprintf(text, WEFT_NET_ADDR_TEXT_LEN, "(no address)");
    }
}

weft_status_t weft_net_addr_resolve(const char *host, uint16_t port, int family,
                                    struct sockaddr_storage *addr_p)
{
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int error = getaddrinfo(host, NULL, &hints, &found);
    if (error != 0) {
        return weft_fail(WEFT_ERR_NETWORK, "cannot resolve the root's host \"%s\": %s", host,
                         gai_strerror(error));
    }
    memset(addr_p, 0, sizeof(*addr_p));
    memcpy(addr_p, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    weft_net_addr_set_port(addr_p, port);
    return WEFT_OK;
}

weft_status_t weft_net_addr_split(const char *text, char *host, size_t room, uint16_t *port_p)
{
    const char *colon = strrchr(text, ':');
    const char *start = text;
    const char *end = colon;
    char *rest;
    unsigned long port;
    if (colon != NULL && text[0] == '[') {
        start = text + 1;
        end = colon - 1;
        if (end < start || *end != ']') {
            colon = NULL;
        }
    } else if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL) {
        colon = NULL; /* an IPv6 address needs its brackets */
    }
    if (colon == NULL || end == start || (size_t)(end - start) >= room) {
        return weft_fail(WEFT_ERR_INVALID, "\"%s\": expected host:port or [v6]:port", text);
    }
    port = strtoul(colon + 1, &rest, 10);
    if (rest == colon + 1 || *rest != '\0' || port == 0 || port > 65535) {
        return weft_fail(WEFT_ERR_INVALID, "\"%s\": the port must be between 1 and 65535", text);
    }
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *port_p = (uint16_t)port;
    return WEFT_OK;
}

weft_status_t weft_net_addr_towards(const char *filter, const struct sockaddr_storage *there,
                                    struct sockaddr_storage *here_p)
{
    return filter[0] != '\0' ? weft_topo_pick(filter, there->ss_family, here_p)
                             : weft_topo_route(there, here_p);
}

bool weft_net_is_one_host(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    struct weft_wire_addr near, far;
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    if (getsockname(fd, (struct sockaddr *)&here, &here_len) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_len) != 0) {
        return false;
    }
    weft_net_addr_to_wire(&here, &near);
    weft_net_addr_to_wire(&there, &far);
    return (far.family == 4 && far.bytes[0] == 127) ||
           memcmp(near.bytes, far.bytes, sizeof(far.bytes)) == 0;
}
