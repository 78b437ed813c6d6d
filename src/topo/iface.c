/* SPDX-License-Identifier: Apache-2.0 */
/* The list of interfaces, one entry each, with their addresses. */
#include "topo/internal.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *weft_topo_kind_name(enum weft_topo_kind kind)
{
    switch (kind) {
#define KIND_NAME(id, name)                                                                        \
    case WEFT_TOPO_##id:                                                                           \
        return name;
        WEFT_TOPO_KINDS(KIND_NAME)
#undef KIND_NAME
    }
    return "virtual";
}

/* An IPv4 address may carry a label, "eth0:1": the interface is what stands before the colon. */
static struct weft_topo_iface *find_or_add(struct weft_topo_iface *ifaces, unsigned *count,
                                           const struct ifaddrs *entry)
{
    size_t len = strcspn(entry->ifa_name, ":");
    struct weft_topo_iface *fresh;

    for (unsigned i = 0; i < *count; i++) {
        if (strncmp(ifaces[i].name, entry->ifa_name, len) == 0 && ifaces[i].name[len] == '\0') {
            return &ifaces[i];
        }
    }
    if (*count == WEFT_TOPO_NICS_MAX || len >= IF_NAMESIZE) {
        return NULL;
    }
    fresh = &ifaces[(*count)++];
    memset(fresh, 0, sizeof(*fresh));
    memcpy(fresh->name, entry->ifa_name, len);
    fresh->is_up = (entry->ifa_flags & IFF_UP) != 0;
    /* running: the driver sees a carrier, and the protocol below (a bond's) is done */
    fresh->has_carrier = (entry->ifa_flags & IFF_RUNNING) != 0;
    fresh->kind = entry->ifa_flags & IFF_LOOPBACK ? WEFT_TOPO_LOOPBACK : WEFT_TOPO_VIRTUAL;
    fresh->speed_mbps = -1;
    fresh->node = -1;
    return fresh;
}

static unsigned prefix_len(const struct sockaddr *mask)
{
    const uint8_t *bytes;
    size_t len;
    unsigned bits = 0;

    if (!mask || (mask->sa_family != AF_INET && mask->sa_family != AF_INET6)) {
        return 0;
    }
    bytes = mask->sa_family == AF_INET
                ? (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr
                : (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
    len = mask->sa_family == AF_INET ? 4 : 16;
    for (size_t i = 0; i < len; i++) {
        bits += (unsigned)__builtin_popcount(bytes[i]);
    }
    return bits;
}

static void add_entry(struct weft_topo_iface *iface, const struct ifaddrs *entry)
{
    int family = entry->ifa_addr ? entry->ifa_addr->sa_family : AF_UNSPEC;

    if (family == AF_PACKET) {
        const struct sockaddr_ll *link = (const struct sockaddr_ll *)(const void *)entry->ifa_addr;

        iface->index = link->sll_ifindex > 0 ? (unsigned)link->sll_ifindex : 0;
        if (link->sll_halen == 6) {
            const uint8_t *mac = link->sll_addr;

            snprintf(iface->mac, sizeof(iface->mac), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0],
                     mac[1], mac[2], mac[3], mac[4], mac[5]);
        }
    } else if ((family == AF_INET || family == AF_INET6) &&
               iface->addr_count < WEFT_TOPO_ADDRS_MAX) {
        struct weft_topo_addr *addr = &iface->addrs[iface->addr_count++];

        memcpy(&addr->addr, entry->ifa_addr,
               family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        addr->prefix_len = prefix_len(entry->ifa_netmask);
    }
}

static int by_index(const void *a, const void *b)
{
    const struct weft_topo_iface *first = a, *second = b;

    return first->index < second->index ? -1 : first->index > second->index;
}

weft_status_t weft_topo_iface_list(struct weft_topo_iface **ifaces_p, unsigned *count_p)
{
    struct ifaddrs *list;
    struct weft_topo_iface *ifaces;
    unsigned entries = 0, count = 0;

    if (getifaddrs(&list) != 0) {
        return weft_fail_errno("listing the network interfaces");
    }
    for (const struct ifaddrs *entry = list; entry && entries < WEFT_TOPO_NICS_MAX;
         entry = entry->ifa_next) {
        entries++;
    }
    ifaces = malloc((entries + 1) * sizeof(*ifaces));
    if (!ifaces) {
        freeifaddrs(list);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a list of network interfaces");
    }
    for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
        struct weft_topo_iface *iface = find_or_add(ifaces, &count, entry);

        if (iface) {
            add_entry(iface, entry);
        }
    }
    freeifaddrs(list);
    qsort(ifaces, count, sizeof(*ifaces), by_index);
    *ifaces_p = ifaces;
    *count_p = count;
    return WEFT_OK;
}

/* The distance of each one's node from the calling thread's CPUs. */
static weft_status_t measure(const char *root, struct weft_topo_iface *ifaces, unsigned count)
{
    struct weft_topo_numa *nodes = NULL;
    unsigned node_count = 0;
    cpu_set_t affinity;
    weft_status_t status = weft_topo_affinity(&affinity);

    if (status == WEFT_OK) {
        status = weft_topo_numa(root, &affinity, &nodes, &node_count);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < node_count; j++) {
            if (ifaces[i].node == nodes[j].id) {
                ifaces[i].distance = nodes[j].distance;
            }
        }
    }
    free(nodes);
    return WEFT_OK;
}

weft_status_t weft_topo_iface_distances(const char *root, struct weft_topo_iface *ifaces,
                                        unsigned count)
{
    bool is_known = false;

    for (unsigned i = 0; i < count; i++) {
        is_known |= ifaces[i].node >= 0;
    }
    return is_known ? measure(root, ifaces, count) : WEFT_OK;
}

weft_status_t weft_topo_ifaces(const char *root, struct weft_topo_iface **ifaces_p,
                               unsigned *count_p)
{
    struct weft_topo_iface *ifaces = NULL;
    unsigned count = 0;
    weft_status_t status = weft_topo_iface_list(&ifaces, &count);

    if (status != WEFT_OK) {
        return status;
    }
    for (unsigned i = 0; i < count; i++) {
        weft_topo_iface_facts(root, &ifaces[i]);
    }
    status = weft_topo_iface_distances(root, ifaces, count);
    if (status != WEFT_OK) {
        free(ifaces);
        return status;
    }
    if (count > 1) {
        qsort(ifaces, count, sizeof(*ifaces), by_index); /* sysfs may have told an index */
    }
    *ifaces_p = ifaces;
    *count_p = count;
    return WEFT_OK;
}
