/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo: this host. How much CPU we really have, which NUMA nodes, interfaces and GPUs there are,
 * which interfaces carry data, and what is near what. Reads the system, changes nothing.
 *
 * It has three prices: addresses, routes, affinity and the NICs that carry data are system calls, a
 * tenth of a millisecond; all that is known of interfaces, NUMA nodes and GPUs is read from sysfs,
 * about as much for each; the whole machine comes from hwloc, which costs milliseconds and is loaded
 * when it is first asked for, never by a start.
 *
 * `root` is "" or a folder that stands in for / (tests). CPUs above 1023 are not seen as sets.
 */
#ifndef WEFT_TOPO_H
#define WEFT_TOPO_H

#include "base/base.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>

/* ---- CPUs: how many (cpus.c), which (cpuset.c) ---- */

/* CPUs this process may use: affinity, cut by cgroup limits (v2 cpu.max of every ancestor, v1
 * cfs quota), rounded up, at least 1. */
unsigned weft_topo_cpus(const char *root);
/* The cgroup part alone, in thousandths of a CPU; 0: no limit. */
uint64_t weft_topo_cgroup_millicpus(const char *root);

/* CPUs the calling thread may run on. ERR_SYSTEM. */
weft_status_t weft_topo_affinity(cpu_set_t *cpus_p);
/* CPUs of the host that are online; false: sysfs does not say. */
bool weft_topo_online(const char *root, cpu_set_t *cpus_p);
/* Sets as the kernel writes them, "0-3,8". false: not understood, nothing written. */
bool weft_topo_cpulist_read(const char *text, cpu_set_t *cpus_p);
/* Returns text; what does not fit ends in "...". An empty set is "none". */
const char *weft_topo_cpulist_print(const cpu_set_t *cpus, char *text, size_t room);

/* ---- NUMA nodes, by sysfs alone (numa.c) ---- */

#define WEFT_TOPO_LOCAL 10 /* the kernel's distance of a node from itself */

struct weft_topo_numa {
    int id;
    cpu_set_t cpus;    /* none: memory only */
    unsigned distance; /* from the nearest node that `affinity` has CPUs of; 0: unknown */
};
/* *nodes_p is malloc'ed; a kernel without NUMA has none. ERR_MEMORY. */
weft_status_t weft_topo_numa(const char *root, const cpu_set_t *affinity,
                             struct weft_topo_numa **nodes_p, unsigned *count_p);
/* Between two nodes, as the firmware says: 10 is local; 0: unknown. */
unsigned weft_topo_numa_distance(const char *root, int from, int to);
/* The CPUs of `affinity` that are near: those on `node`; all of them when the node is unknown (-1)
 * or has none of ours. Threads are bound to this set, never to one core. */
void weft_topo_near_cpus(const char *root, int node, const cpu_set_t *affinity, cpu_set_t *cpus_p);
/* Has this host several nodes? Cheap. */
bool weft_topo_has_nodes(const char *root);

/* ---- addresses and the one to listen on (nics.c) ---- */

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

/* ---- interfaces with all that is known of them (iface.c, iface_facts.c, ethtool.c) ---- */

/* X(ID, "as people call it") */
#define WEFT_TOPO_KINDS(X)                                                                         \
    X(PHYSICAL, "physical") /* a device stands behind it, a virtual machine's too */               \
    X(LOOPBACK, "loopback")                                                                        \
    X(VETH, "veth")                                                                                \
    X(BRIDGE, "bridge")                                                                            \
    X(BOND, "bond")                                                                                \
    X(VLAN, "vlan")                                                                                \
    X(MACVLAN, "macvlan")                                                                          \
    X(TUNNEL, "tunnel")                                                                            \
    X(DUMMY, "dummy")                                                                              \
    X(VIRTUAL, "virtual") /* none of these, or nobody says */
enum weft_topo_kind {
#define WEFT_TOPO_KIND_ENUM(id, name) WEFT_TOPO_##id,
    WEFT_TOPO_KINDS(WEFT_TOPO_KIND_ENUM)
#undef WEFT_TOPO_KIND_ENUM
};
const char *weft_topo_kind_name(enum weft_topo_kind kind);

/* Does it carry data, and if not, why. X(ID, "what follows the interface's name") */
#define WEFT_TOPO_USES(X)                                                                          \
    X(DATA, "carries data")                                                                        \
    X(FILTERED, "is left out by WEFT_SOCKET_IFNAME")                                               \
    X(DOWN, "is down")                                                                             \
    X(NO_CARRIER, "has no carrier")                                                                \
    X(MEMBER, "belongs to a bridge or bond, which has the address")                                \
    X(NO_ADDR, "has no address for other hosts")                                                   \
    X(INNER, "leads to containers or a tunnel, and there are real ones")                           \
    X(LOCAL, "leads only to this host, and there are others")
enum weft_topo_use {
#define WEFT_TOPO_USE_ENUM(id, text) WEFT_TOPO_USE_##id,
    WEFT_TOPO_USES(WEFT_TOPO_USE_ENUM)
#undef WEFT_TOPO_USE_ENUM
};
const char *weft_topo_use_text(enum weft_topo_use use);

struct weft_topo_addr {
    struct sockaddr_storage addr; /* port 0 */
    unsigned prefix_len;          /* 24 of 10.0.0.7/24 */
};

#define WEFT_TOPO_ADDRS_MAX 8
#define WEFT_TOPO_PCI_LEN 16
#define WEFT_TOPO_PCI_PATH_LEN 128

struct weft_topo_iface {
    char name[IF_NAMESIZE];
    unsigned index; /* 0: unknown */
    char mac[18];   /* "" none, or not Ethernet's */
    enum weft_topo_kind kind;
    bool is_up, has_carrier;
    bool is_inner;            /* leads to containers, VMs or a tunnel: used if there is no other */
    char state[16];           /* the kernel's operstate; "" unknown */
    char driver[32];          /* "" unknown */
    char master[IF_NAMESIZE]; /* the bridge or bond it belongs to; "" none */
    int64_t speed_mbps;       /* -1: unknown */
    unsigned mtu;             /* 0: unknown */
    int node;                 /* NUMA node; -1: unknown. Of a bond or vlan: of what lies below */
    unsigned distance;        /* of that node from the calling thread's CPUs; 0: unknown */
    char pci[WEFT_TOPO_PCI_LEN];           /* "0000:17:00.0"; "" none */
    char pci_path[WEFT_TOPO_PCI_PATH_LEN]; /* "pci0000:16/0000:16:01.0/0000:17:00.0" */
    unsigned addr_count;
    struct weft_topo_addr addrs[WEFT_TOPO_ADDRS_MAX];
    /* the choice (choose.c) */
    enum weft_topo_use use;
    struct weft_topo_addr addr; /* of what carries data: where */
};

/* All interfaces of this host (the first WEFT_TOPO_NICS_MAX), by index, the choice not yet made.
 * *ifaces_p is malloc'ed. ERR_SYSTEM, ERR_MEMORY. */
weft_status_t weft_topo_ifaces(const char *root, struct weft_topo_iface **ifaces_p,
                               unsigned *count_p);

/* ---- which of them carry data (choose.c) ---- */

/*
 * The interfaces that data goes over, nearest to the calling thread first (NUMA distance, then
 * index), each with the address to use: IPv4, else a global IPv6; `family` AF_INET or AF_INET6
 * allows only that. Up, with carrier, passing the filter (WEFT_SOCKET_IFNAME; "" all); what leads
 * to containers or tunnels only when the filter names it or there is nothing else; loopback alone
 * when there is nothing at all. *nics_p is malloc'ed, *count_p at least 1. ERR_INVALID (nothing is
 * left: lists what there is), ERR_SYSTEM, ERR_MEMORY. A tenth of a millisecond and 0.02 ms per NIC;
 * state, master and pci_path stay empty, distance is measured only when there are several.
 */
weft_status_t weft_topo_data_nics(const char *root, const char *filter, int family,
                                  struct weft_topo_iface **nics_p, unsigned *count_p);
/* The choice alone, on any list: fills use and addr. Returns how many carry data. */
unsigned weft_topo_choose(struct weft_topo_iface *ifaces, unsigned count, const char *filter,
                          int family);
/* Sorts nearest first: local, unknown, remote by distance; equally near by index. */
void weft_topo_sort_near(struct weft_topo_iface *ifaces, unsigned count);

/* ---- bindings of NICs to CPUs (bindings.c) ---- */

struct weft_topo_binding {
    char nic[IF_NAMESIZE];
    cpu_set_t cpus;
};
struct weft_topo_bindings {
    unsigned count;
    struct weft_topo_binding binding[];
};
/* What a binding may name. */
struct weft_topo_scope {
    const struct weft_topo_iface *ifaces; /* lent */
    unsigned iface_count;
    cpu_set_t online;   /* the host's CPUs */
    cpu_set_t affinity; /* those we may use */
};
/* The CPUs of a scope, from this host. ERR_SYSTEM. */
weft_status_t weft_topo_scope_cpus(struct weft_topo_scope *scope);
/*
 * Reads "eth1:8-21,112-125;eth2:60-73"; "" has none. `setting` is the variable's name.
 * *bindings_p goes with free(). ERR_INVALID (syntax, unknown NIC or one named twice, a reversed
 * range, a CPU that is not there or not ours), ERR_MEMORY. The text shows the place between >> <<:
 * "WEFT_TX_BINDINGS, column 6: the range runs backwards, write 8-9: eth1:>>9-8<<;eth2:60-73".
 */
weft_status_t weft_topo_bindings_parse(const char *setting, const char *text,
                                       const struct weft_topo_scope *scope,
                                       struct weft_topo_bindings **bindings_p);
/* Without bindings: where one thread that serves all of these NICs should run. The CPUs of `affinity` on their
 * node, if they are all on one; false: anywhere, because they are not, or that would be all of `affinity`, none of
 * it, or one core. */
bool weft_topo_common_cpus(const char *root, const struct weft_topo_iface *nics, unsigned count,
                           const cpu_set_t *affinity, cpu_set_t *cpus_p);
/* NULL: this NIC has none. */
const cpu_set_t *weft_topo_bindings_find(const struct weft_topo_bindings *bindings,
                                         const char *nic);

/* ---- GPUs, by sysfs (gpus.c) ---- */

struct weft_topo_gpu {
    char name[64]; /* "NVIDIA H200", or the vendor's name and the ids: never empty */
    uint16_t vendor, device;
    char driver[32]; /* "" none */
    int node;        /* -1: unknown */
    char pci[WEFT_TOPO_PCI_LEN];
    char pci_path[WEFT_TOPO_PCI_PATH_LEN];
};
/* By PCI address. *gpus_p is malloc'ed. ERR_MEMORY. */
weft_status_t weft_topo_gpus(const char *root, struct weft_topo_gpu **gpus_p, unsigned *count_p);

/* ---- the whole machine, by hwloc (machine.c, hwloc.c) ---- */

struct weft_topo_package {
    int id;
    char model[64]; /* "" unknown */
    unsigned cores;
    cpu_set_t cpus;
};
struct weft_topo_node {
    int id;
    int package; /* index into packages; -1: of several or of none */
    uint64_t memory_len;
    unsigned cores;
    cpu_set_t cpus; /* none: memory only */
};
struct weft_topo_cache {
    unsigned level;
    bool is_data_only; /* false: instructions too */
    uint64_t len;
    unsigned count, shared_by; /* PUs that share one */
};
#define WEFT_TOPO_CACHES_MAX 16
struct weft_topo_machine {
    cpu_set_t cpus;    /* PUs */
    cpu_set_t allowed; /* of them those that the cgroup's cpuset leaves */
    unsigned cores;
    uint64_t memory_len;
    unsigned package_count, node_count, cache_count;
    struct weft_topo_package *packages; /* owned */
    struct weft_topo_node *nodes;       /* owned */
    struct weft_topo_cache caches[WEFT_TOPO_CACHES_MAX];
};
/* Milliseconds: never on the way of a start. `synthetic` is NULL for this host, or a made-up one
 * ("pack:2 numa:1 core:4 pu:2"). ERR_UNSUPPORTED (no hwloc here: says what to install),
 * ERR_INVALID (synthetic), ERR_SYSTEM, ERR_MEMORY. */
weft_status_t weft_topo_machine_open(const char *synthetic, struct weft_topo_machine **machine_p);
void weft_topo_machine_close(struct weft_topo_machine *machine); /* NULL is fine */

/* ---- where an address lies (route.c) ---- */

/* The local address the kernel would use to reach `to` (a connected UDP socket, nothing is sent),
 * port 0. ERR_NETWORK when there is no route. */
weft_status_t weft_topo_route(const struct sockaddr_storage *to, struct sockaddr_storage *addr_p);
/* The same address, whatever the port? */
bool weft_topo_is_same_addr(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/* Is this address one of this host's own? */
weft_status_t weft_topo_is_local(const struct sockaddr_storage *addr, bool *is_local_p);
/* ---- interfaces that come and go (carrier.c) ---- */

/* A descriptor that is readable when there is news. ERR_SYSTEM. */
weft_status_t weft_topo_carrier_open(int *fd_p);
struct weft_topo_carrier {
    char name[IF_NAMESIZE];
    bool is_up; /* and has carrier */
};
/* Returns how many; never blocks. */
unsigned weft_topo_carrier_read(int fd, struct weft_topo_carrier *news, unsigned room);
/* How it is now; false: nobody knows such an interface, or there is no descriptor to ask with. */
bool weft_topo_carrier_ask(const char *name, bool *is_up_p);

/* Host name, at most 63 bytes, never empty. */
void weft_topo_hostname(char name[64]);

#endif
