/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft topo` knows of the host, and the three ways it shows it. */
#ifndef WEFT_CLI_TOPO_VIEW_H
#define WEFT_CLI_TOPO_VIEW_H

#include "cli.h"
#include "topo/topo.h"

struct topo_view {
    char host[64];
    struct weft_topo_machine *machine; /* owned; no package, no node where hwloc is missing */
    struct weft_topo_iface *ifaces;    /* owned; by index, the choice made */
    unsigned iface_count;
    unsigned *data; /* owned; indices of those that carry data, nearest first */
    unsigned data_count;
    cpu_set_t *near;            /* owned; of each interface: the CPUs near it that are ours */
    struct weft_topo_gpu *gpus; /* owned */
    unsigned gpu_count;
    unsigned *distances; /* owned; [from * node_count + to], as machine->nodes; 0: unknown */
    struct weft_topo_bindings *tx, *rx; /* owned */
    const char *filter;                 /* lent; WEFT_SOCKET_IFNAME */
    cpu_set_t affinity;
    uint64_t cgroup_millicpus; /* 0: no limit */
    unsigned cpus;             /* how many Weft counts */
};

/* ---- the three ways (topo_tree.c, topo_json.c, topo_svg.c) ---- */

void weft_cli_topo_tree(const struct topo_view *view, FILE *out);
bool weft_cli_topo_json(const struct topo_view *view, FILE *out); /* false: could not be written */
void weft_cli_topo_svg(const struct topo_view *view, FILE *out);

/* ---- words (topo_words.c); each returns text, which it fills ---- */

#define TOPO_WORDS_LEN 128

/* "100 Gbit/s", "2.5 Gbit/s", "? Gbit/s" */
const char *weft_cli_topo_speed(int64_t mbps, char text[TOPO_WORDS_LEN]);
/* "251.7 GiB" */
const char *weft_cli_topo_memory(uint64_t len, char text[TOPO_WORDS_LEN]);
/* "10.0.0.7/24" */
const char *weft_cli_topo_addr(const struct weft_topo_addr *addr, char text[TOPO_WORDS_LEN]);
/* "up", "down", "no carrier" */
const char *weft_cli_topo_state(const struct weft_topo_iface *iface);
/* "8 cores x 2 threads, PUs 0-15" */
const char *weft_cli_topo_cores(unsigned cores, const cpu_set_t *cpus, char text[TOPO_WORDS_LEN]);
/* Why there are so many CPUs: a line per limit; returns how many. */
unsigned weft_cli_topo_process(const struct topo_view *view, char lines[4][TOPO_WORDS_LEN]);
/* Why it does not carry data, "belongs to br0, which has the address"; "" when it does. */
const char *weft_cli_topo_reason(const struct weft_topo_iface *iface, char text[TOPO_WORDS_LEN]);

/* The node under which a device is drawn, an index into machine->nodes; -1: under the machine. */
int weft_cli_topo_place(const struct topo_view *view, int node);
unsigned weft_cli_topo_width(const char *text); /* columns on a terminal */

#endif
