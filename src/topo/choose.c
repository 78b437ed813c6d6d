/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which interfaces carry data. Each is first ruled out or given an address; of what is left the
 * best sort is taken as a whole: real ones, else what leads to containers and tunnels, else
 * loopback. A sort that the user's filter names counts as real: who writes "docker0" means it.
 */
#include "topo/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *weft_topo_use_text(enum weft_topo_use use)
{
    switch (use) {
#define USE_TEXT(id, text)                                                                         \
    case WEFT_TOPO_USE_##id:                                                                       \
        return text;
        WEFT_TOPO_USES(USE_TEXT)
#undef USE_TEXT
    }
    return "?";
}

/* 169.254.0.0/16: on servers mostly the board's own controller */
static bool is_link_local_v4(const struct sockaddr_storage *addr)
{
    return addr->ss_family == AF_INET &&
           ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 16 == 0xa9fe;
}

/* IPv4, then IPv6, then an IPv4 that came from nowhere; a link-local IPv6 never: it means nothing
 * without the reader's own scope. */
static const struct weft_topo_addr *best_addr(const struct weft_topo_iface *iface, int family)
{
    const struct weft_topo_addr *best = NULL;
    unsigned least = 3;

    for (unsigned i = 0; i < iface->addr_count; i++) {
        const struct sockaddr_storage *addr = &iface->addrs[i].addr;
        unsigned penalty = addr->ss_family == AF_INET6 ? 1 : is_link_local_v4(addr) ? 2 : 0;

        if ((family == AF_UNSPEC || family == addr->ss_family) && penalty < least &&
            !weft_topo_is_link_local(addr)) {
            least = penalty;
            best = &iface->addrs[i];
        }
    }
    return best;
}

static enum weft_topo_use rule_out(const struct weft_topo_iface *iface, const char *filter,
                                   int family)
{
    if (!weft_topo_filter(filter, iface->name)) {
        return WEFT_TOPO_USE_FILTERED;
    }
    if (!iface->is_up) {
        return WEFT_TOPO_USE_DOWN;
    }
    if (!iface->has_carrier) {
        return WEFT_TOPO_USE_NO_CARRIER;
    }
    if (!best_addr(iface, family)) {
        return iface->master[0] != '\0' ? WEFT_TOPO_USE_MEMBER : WEFT_TOPO_USE_NO_ADDR;
    }
    return WEFT_TOPO_USE_DATA;
}

enum sort { SORT_REAL, SORT_INNER, SORT_LOCAL, SORT_NONE };

static enum sort sort_of(const struct weft_topo_iface *iface, bool is_named)
{
    if (iface->kind == WEFT_TOPO_LOOPBACK) {
        return SORT_LOCAL;
    }
    if (!is_named && (iface->is_inner || is_link_local_v4(&iface->addr.addr))) {
        return SORT_INNER;
    }
    return SORT_REAL;
}

/* "eth,ib" and "=eth0" name what they mean; "" and "^lo" do not */
static bool names_interfaces(const char *filter)
{
    return filter[0] != '^' && filter[strspn(filter, "=,")] != '\0';
}

unsigned weft_topo_choose(struct weft_topo_iface *ifaces, unsigned count, const char *filter,
                          int family)
{
    bool is_named = names_interfaces(filter);
    enum sort best = SORT_NONE;
    unsigned chosen = 0;

    for (unsigned i = 0; i < count; i++) {
        memset(&ifaces[i].addr, 0, sizeof(ifaces[i].addr));
        ifaces[i].use = rule_out(&ifaces[i], filter, family);
        if (ifaces[i].use == WEFT_TOPO_USE_DATA) {
            enum sort sort;

            ifaces[i].addr = *best_addr(&ifaces[i], family);
            sort = sort_of(&ifaces[i], is_named);
            best = sort < best ? sort : best;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (ifaces[i].use != WEFT_TOPO_USE_DATA) {
            continue;
        }
        if (sort_of(&ifaces[i], is_named) == best) {
            chosen++;
        } else {
            ifaces[i].use =
                ifaces[i].kind == WEFT_TOPO_LOOPBACK ? WEFT_TOPO_USE_LOCAL : WEFT_TOPO_USE_INNER;
        }
    }
    return chosen;
}

/* An unknown distance lies between local and remote. */
static unsigned farness(const struct weft_topo_iface *iface)
{
    return iface->distance == 0 ? WEFT_TOPO_LOCAL * 2 + 1 : iface->distance * 2;
}

static int by_farness(const void *a, const void *b)
{
    const struct weft_topo_iface *first = a, *second = b;

    if (farness(first) != farness(second)) {
        return farness(first) < farness(second) ? -1 : 1;
    }
    return first->index < second->index ? -1 : first->index > second->index;
}

void weft_topo_sort_near(struct weft_topo_iface *ifaces, unsigned count)
{
    qsort(ifaces, count, sizeof(*ifaces), by_farness);
}

static weft_status_t refuse(const char *filter, int family, const struct weft_topo_iface *ifaces,
                            unsigned count)
{
    const char *version = family == AF_INET ? "IPv4 " : family == AF_INET6 ? "IPv6 " : "";
    char there[320] = "none";
    size_t used = 0;

    for (unsigned i = 0; i < count && used < sizeof(there); i++) {
        used +=
            (size_t)snprintf(there + used, sizeof(there) - used, "%s%s %s", used > 0 ? "; " : "",
                             ifaces[i].name, weft_topo_use_text(ifaces[i].use));
    }
    return weft_fail(WEFT_ERR_INVALID,
                     "no interface with an %saddress can carry data%s%.64s; there are: %s", version,
                     *filter != '\0' ? " under WEFT_SOCKET_IFNAME=" : "", filter, there);
}

/* Keeps those that carry data, in their order. */
static void keep_chosen(struct weft_topo_iface *ifaces, unsigned count)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++) {
        if (ifaces[i].use == WEFT_TOPO_USE_DATA) {
            if (i != kept) {
                ifaces[kept] = ifaces[i];
            }
            kept++;
        }
    }
}

weft_status_t weft_topo_data_nics(const char *root, const char *filter, int family,
                                  struct weft_topo_iface **nics_p, unsigned *count_p)
{
    struct weft_topo_iface *ifaces = NULL;
    unsigned count = 0, chosen;
    weft_status_t status = weft_topo_iface_list(&ifaces, &count);

    if (status != WEFT_OK) {
        return status;
    }
    for (unsigned i = 0; i < count; i++) {
        /* the facts of hundreds of container interfaces are not worth a start's time */
        if (rule_out(&ifaces[i], filter, family) == WEFT_TOPO_USE_DATA) {
            weft_topo_iface_brief(root, &ifaces[i]);
        }
    }
    chosen = weft_topo_choose(ifaces, count, filter, family);
    if (chosen == 0) {
        status = refuse(filter, family, ifaces, count);
        goto err_free;
    }
    keep_chosen(ifaces, count);
    if (chosen > 1) {
        status = weft_topo_iface_distances(root, ifaces, chosen);
        if (status != WEFT_OK) {
            goto err_free;
        }
        weft_topo_sort_near(ifaces, chosen);
    }
    *nics_p = ifaces;
    *count_p = chosen;
    return WEFT_OK;
err_free:
    free(ifaces);
    return status;
}
