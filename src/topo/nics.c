/* SPDX-License-Identifier: Apache-2.0 */
/* The interfaces of this host and the choice among them. */
#include "topo/internal.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t addr_len(int family)
{
    return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static bool is_inet(const struct ifaddrs *entry)
{
    return entry->ifa_addr &&
           (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6);
}

static void nic_fill(struct weft_topo_nic *nic, const struct ifaddrs *entry)
{
    memset(nic, 0, sizeof(*nic));
    snprintf(nic->name, sizeof(nic->name), "%s", entry->ifa_name);
    memcpy(&nic->addr, entry->ifa_addr, addr_len(entry->ifa_addr->sa_family));
    /* an interface without carrier is up but not running; nothing gets through it */
    nic->is_up = (entry->ifa_flags & IFF_UP) && (entry->ifa_flags & IFF_RUNNING);
    nic->is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
}

weft_status_t weft_topo_nics(struct weft_topo_nic **nics_p, unsigned *count_p)
{
    struct ifaddrs *list;
    struct weft_topo_nic *nics;
    unsigned room = 0, count = 0;

    if (getifaddrs(&list) != 0) {
        return weft_fail_errno("listing the network interfaces");
    }
    for (const struct ifaddrs *entry = list; entry && room < WEFT_TOPO_NICS_MAX;
         entry = entry->ifa_next) {
        room += is_inet(entry);
    }
    nics = malloc((room > 0 ? room : 1) * sizeof(*nics));
    if (!nics) {
        freeifaddrs(list);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the list of %u network addresses", room);
    }
    for (const struct ifaddrs *entry = list; entry && count < room; entry = entry->ifa_next) {
        if (is_inet(entry)) {
            nic_fill(&nics[count++], entry);
        }
    }
    freeifaddrs(list);
    *nics_p = nics;
    *count_p = count;
    return WEFT_OK;
}

/* Marks in front of the list hold for all of it: "^=a,b" is neither exactly a nor exactly b. */
bool weft_topo_filter(const char *filter, const char *name)
{
    bool is_not = *filter == '^';
    bool is_exact = filter[is_not] == '=';
    bool is_empty = true;

    for (const char *word = filter + is_not + is_exact; *word != '\0';) {
        size_t len = strcspn(word, ",");

        if (len > 0) {
            is_empty = false;
            if (strncmp(word, name, len) == 0 && (!is_exact || name[len] == '\0')) {
                return !is_not;
            }
        }
        word += len + (word[len] == ',');
    }
    return is_empty || is_not;
}

bool weft_topo_is_inner_name(const char *name)
{
    static const char *const prefixes[] = {"docker",  "br-",   "virbr", "veth",  "cni",
                                           "flannel", "cali",  "lxc",   "lxdbr", "vmnet",
                                           "podman",  "vxlan", "kube",  "vnet",  "dummy"};

    for (size_t i = 0; i < WEFT_COUNT_OF(prefixes); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool weft_topo_is_link_local(const struct sockaddr_storage *addr)
{
    return addr->ss_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

/* Lower is better: what others can reach, then the kind of interface, then IPv4. */
static unsigned penalty(const struct weft_topo_nic *nic)
{
    unsigned kind = nic->is_loopback ? 2 : weft_topo_is_inner_name(nic->name) ? 1 : 0;

    return (weft_topo_is_link_local(&nic->addr) ? 8U : 0U) + kind * 2 +
           (nic->addr.ss_family == AF_INET6);
}

static void print_addr(const struct sockaddr_storage *addr, char text[INET6_ADDRSTRLEN])
{
    const void *bytes = addr->ss_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)addr)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)addr)->sin6_addr;

    if (!inet_ntop(addr->ss_family, bytes, text, INET6_ADDRSTRLEN)) {
        snprintf(text, INET6_ADDRSTRLEN, "?");
    }
}

static weft_status_t refuse_filter(const char *filter, int family, const struct weft_topo_nic *nics,
                                   unsigned count)
{
    const char *kind = family == AF_INET ? "IPv4 " : family == AF_INET6 ? "IPv6 " : "";
    char there[256] = "none";
    size_t used = 0;

    for (unsigned i = 0; i < count && used < sizeof(there); i++) {
        char text[INET6_ADDRSTRLEN];

        print_addr(&nics[i].addr, text);
        used +=
            (size_t)snprintf(there + used, sizeof(there) - used, "%s%s %s%s", used > 0 ? ", " : "",
                             nics[i].name, text, nics[i].is_up ? "" : " (down)");
    }
    if (*filter == '\0') {
        return weft_fail(WEFT_ERR_INVALID, "no interface is up with an %saddress; there are: %s",
                         kind, there);
    }
    return weft_fail(WEFT_ERR_INVALID,
                     "no interface that is up with an %saddress matches \"%s\"; there are: %s",
                     kind, filter, there);
}

weft_status_t weft_topo_pick(const char *filter, int family, struct sockaddr_storage *addr_p)
{
    struct weft_topo_nic *nics = NULL;
    const struct weft_topo_nic *best = NULL;
    unsigned count = 0;
    weft_status_t status = weft_topo_nics(&nics, &count);

    if (status != WEFT_OK) {
        return status;
    }
    for (unsigned i = 0; i < count; i++) {
        const struct weft_topo_nic *nic = &nics[i];

        if (nic->is_up && (family == AF_UNSPEC || family == nic->addr.ss_family) &&
            weft_topo_filter(filter, nic->name) && (!best || penalty(nic) < penalty(best))) {
            best = nic;
        }
    }
    if (best) {
        *addr_p = best->addr;
    } else {
        status = refuse_filter(filter, family, nics, count);
    }
    free(nics);
    return status;
}
