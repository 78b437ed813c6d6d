/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft lab: hosts with several NICs, as namespaces on this machine. In five files: lab.c (options,
 * what is said), lab_values.c (rates, percentages, milliseconds as people write them), lab_hosts.c
 * (namespaces and their keepers), lab_net.c (links, addresses, rates, loss, by ip, tc, nft and
 * iptables), lab_queue.c (delay and reordering).
 *
 *     h0 (keeper, ranks)                 switch (keeper)                h1 (keeper, ranks)
 *     eth0 10.1.0.1/24 ----- veth ----- p0-0 = br0 = p1-0 ----- veth ----- eth0 10.1.0.2/24
 *     eth1 10.2.0.1/24 ----- veth ----- p0-1 = br1 = p1-1 ----- veth ----- eth1 10.2.0.2/24
 */
#ifndef WEFT_CLI_LAB_H
#define WEFT_CLI_LAB_H

#include "cli.h"

#include <limits.h>
#include <sys/types.h>

#define WEFT_LAB_HOSTS_MAX 64
#define WEFT_LAB_NICS_MAX 16
#define WEFT_LAB_REASON_LEN 320
#define WEFT_LAB_PPM 1000000u

/* Of every limited link, at both ends. The burst takes several whole TSO segments (64 KB) and what
 * passes while a timer is late; measured, 1G and 2.5G give 0.956 of themselves to TCP payload,
 * which is all that headers leave. */
#define WEFT_LAB_BURST_BYTES 262144u
#define WEFT_LAB_LATENCY_MS 10u

struct weft_lab_spec {
    unsigned hosts, nics, ranks_per_host;
    uint64_t rate[WEFT_LAB_NICS_MAX]; /* bit/s; 0: no limit */
    unsigned mtu;                     /* 0: the kernel's */
    unsigned loss_ppm, reorder_ppm;
    uint64_t delay_ns;
};

/* A namespace (network, names, mounts, IPC, PIDs), alive as long as its keeper, which is its first
 * process: when that ends, by us or with us, the kernel ends all others in it. */
struct weft_lab_place {
    pid_t pid; /* the keeper's; 0: none */
    int pidfd; /* owned */
};

struct weft_lab {
    struct weft_lab_spec spec;
    char name[32];
    char folder[PATH_MAX]; /* where ranks start: ours */
    int home_fd;           /* owned: our own PID namespace */
    int leash[2];          /* owned: a pipe; keepers leave when nobody holds its other end */
    struct weft_lab_place place[WEFT_LAB_HOSTS_MAX + 1]; /* the hosts, then the switch */
    char reason[WEFT_LAB_REASON_LEN];
};

#define WEFT_LAB_NONE                                                                              \
    {                                                                                              \
        .home_fd = -1, .leash = {-1, -1},                                                          \
    }

/* lab_values.c: false: not understood, nothing written */
bool weft_lab_read_rates(const char *text, uint64_t rate_p[WEFT_LAB_NICS_MAX], unsigned *count_p);
bool weft_lab_read_percent(const char *text, unsigned *ppm_p);
bool weft_lab_read_delay(const char *text, uint64_t *ns_p);
const char *weft_lab_print_rate(uint64_t bits, char *text); /* at least 24 bytes; returns it */

/* lab_hosts.c: false: said in lab->reason */
bool weft_lab_open(struct weft_lab *lab); /* the namespaces, not connected yet */
void weft_lab_close(struct weft_lab *lab);
/* fork() into the PIDs of a place; errno when it returns -1 */
pid_t weft_lab_fork(struct weft_lab *lab, unsigned index);
/* A child of ours goes there; `flags` of setns(2). The folder stays the same. */
bool weft_lab_enter(const struct weft_lab *lab, unsigned index, int flags);
bool weft_lab_enter_as_rank(const struct weft_lab *lab, unsigned index);
const char *weft_lab_place_name(const struct weft_lab *lab, unsigned index, char text[16]);
bool weft_lab_fail(struct weft_lab *lab, const char *fmt, ...) WEFT_PRINTF(2, 3); /* false */

/* lab_net.c */
bool weft_lab_has_means(struct weft_lab *lab); /* capabilities and programs */
bool weft_lab_connect(struct weft_lab *lab);
void weft_lab_address(unsigned host, unsigned nic, char text[16]);

/* lab_queue.c, for the keeper of a host */
bool weft_lab_queue_open(int *fd_p); /* false: see errno */
/* Holds what the host receives; returns when the leash is let go. */
void weft_lab_queue_serve(int fd, int leash_fd, const struct weft_lab_spec *spec, uint64_t seed);

#endif
