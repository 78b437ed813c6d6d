/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo: this host. How much CPU we really have, which interfaces there are, which of them to use.
 * (NUMA, PCI and GPUs come later.) Reads the system, changes nothing.
 */
#ifndef WEFT_TOPO_H
#define WEFT_TOPO_H

#include "base/base.h"

#include <net/if.h>
#include <netinet/in.h>

/* CPUs this process may use: affinity, cut by cgroup limits (v2 cpu.max of every ancestor, v1
 * cfs quota), rounded up, at least 1. `root` is "" or a folder that stands in for / (tests). */
unsigned weft_topo_cpus(const char *root);
/* The cgroup part alone, in thousandths of a CPU; 0: no limit. */
uint64_t weft_topo_cgroup_millicpus(const char *root);

struct weft_topo_nic {
    char name[IF_NAMESIZE];
    struct sockaddr_storage addr; /* one entry per address */
    bool is_up, is_loopback;
};
#define WEFT_TOPO_NICS_MAX 256
/* All IPv4 and IPv6 addresses of this host. *nics_p is malloc'ed. ERR_SYSTEM, ERR_MEMORY. */
weft_status_t weft_topo_nics(struct weft_topo_nic **nics_p, unsigned *count_p);
/* Does an interface name pass a filter in NCCL's syntax: "eth,ib" prefixes; "=eth0" exact; "^lo"
 * not these prefixes; "^=lo" not exactly these; "" everything. */
bool weft_topo_filter(const char *filter, const char *name);
/* Picks the address to listen on when none is implied by a route: an up interface passing the
 * filter; without a filter real ones before docker and virtual bridges before loopback; `family`
 * AF_UNSPEC prefers IPv4; link-local IPv6 last. ERR_INVALID (filter matches nothing: lists what
 * there is). */
weft_status_t weft_topo_pick(const char *filter, int family, struct sockaddr_storage *addr_p);
/* The local address the kernel would use to reach `to` (a connected UDP socket, nothing is sent),
 * port 0. ERR_NETWORK when there is no route. */
weft_status_t weft_topo_route(const struct sockaddr_storage *to, struct sockaddr_storage *addr_p);
/* The same address, whatever the port? */
bool weft_topo_is_same_addr(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/* Is this address one of this host's own? */
weft_status_t weft_topo_is_local(const struct sockaddr_storage *addr, bool *is_local_p);
/* Host name, at most 63 bytes, never empty. */
void weft_topo_hostname(char name[64]);

#endif
