/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NUMA nodes from sysfs: their CPUs and how far they are from ours. Enough to order NICs and to
 * bind threads, at a hundredth of what hwloc costs.
 */
#include "topo/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_FOLDER "/sys/devices/system/node"

static bool read_set(const char *root, const char *file, cpu_set_t *set_p)
{
    char path[PATH_MAX], text[8192];

    return snprintf(path, sizeof(path), "%s" NODES_FOLDER "/%s", root, file) < (int)sizeof(path) &&
           weft_file_read(path, text, sizeof(text)) && weft_topo_cpulist_read(text, set_p);
}

static bool read_node_cpus(const char *root, int node, cpu_set_t *cpus_p)
{
    char file[48];

    snprintf(file, sizeof(file), "node%d/cpulist", node);
    return read_set(root, file, cpus_p);
}

/* One node's row, "10 21 21 31": a number per online node, in their order. Returns how many. */
static unsigned read_row(const char *root, int node, unsigned *row, unsigned room)
{
    char path[PATH_MAX], text[4096];
    const char *at = text;
    unsigned count = 0;

    if (snprintf(path, sizeof(path), "%s" NODES_FOLDER "/node%d/distance", root, node) >=
            (int)sizeof(path) ||
        !weft_file_read(path, text, sizeof(text))) {
        return 0;
    }
    while (count < room) {
        char *end;
        unsigned long distance;

        errno = 0;
        distance = strtoul(at, &end, 10);
        if (end == at || errno != 0 || distance > UINT_MAX) {
            break;
        }
        row[count++] = (unsigned)distance;
        at = end;
    }
    return count;
}

/* Nodes near the CPUs of `from` come nearer to us. */
static weft_status_t approach(const char *root, const struct weft_topo_numa *from,
                              struct weft_topo_numa *nodes, unsigned count)
{
    unsigned *row = malloc(count * sizeof(*row));
    unsigned known;

    if (!row) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the distances of %u NUMA nodes", count);
    }
    known = read_row(root, from->id, row, count);
    for (unsigned i = 0; i < known; i++) {
        if (row[i] > 0 && (nodes[i].distance == 0 || row[i] < nodes[i].distance)) {
            nodes[i].distance = row[i];
        }
    }
    free(row);
    return WEFT_OK;
}

weft_status_t weft_topo_numa(const char *root, const cpu_set_t *affinity,
                             struct weft_topo_numa **nodes_p, unsigned *count_p)
{
    struct weft_topo_numa *nodes;
    weft_status_t status = WEFT_OK;
    cpu_set_t online; /* of nodes, not CPUs; written the same way */
    unsigned count = 0;

    if (!read_set(root, "online", &online)) {
        CPU_ZERO(&online);
    }
    nodes = calloc((size_t)CPU_COUNT(&online) + 1, sizeof(*nodes));
    if (!nodes) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %d NUMA nodes", CPU_COUNT(&online));
    }
    for (int id = 0; id < CPU_SETSIZE; id++) {
        if (CPU_ISSET((size_t)id, &online)) {
            nodes[count].id = id;
            read_node_cpus(root, id, &nodes[count].cpus);
            count++;
        }
    }
    for (unsigned i = 0; i < count && status == WEFT_OK; i++) {
        cpu_set_t ours;

        CPU_AND(&ours, &nodes[i].cpus, affinity);
        if (CPU_COUNT(&ours) > 0) {
            nodes[i].distance = WEFT_TOPO_LOCAL;
            status = approach(root, &nodes[i], nodes, count);
        }
    }
    if (status != WEFT_OK) {
        free(nodes);
        return status;
    }
    *nodes_p = nodes;
    *count_p = count;
    return WEFT_OK;
}

unsigned weft_topo_numa_distance(const char *root, int from, int to)
{
    unsigned row[CPU_SETSIZE];
    unsigned column = 0, count;
    cpu_set_t online;

    if (from < 0 || to < 0 || to >= CPU_SETSIZE || !read_set(root, "online", &online) ||
        !CPU_ISSET((size_t)to, &online)) {
        return 0;
    }
    for (int id = 0; id < to; id++) {
        column += CPU_ISSET((size_t)id, &online) != 0;
    }
    count = read_row(root, from, row, WEFT_COUNT_OF(row));
    return column < count ? row[column] : 0;
}

void weft_topo_near_cpus(const char *root, int node, const cpu_set_t *affinity, cpu_set_t *cpus_p)
{
    cpu_set_t cpus;

    if (node >= 0 && read_node_cpus(root, node, &cpus)) {
        CPU_AND(&cpus, &cpus, affinity);
        if (CPU_COUNT(&cpus) > 0) {
            *cpus_p = cpus;
            return;
        }
    }
    *cpus_p = *affinity;
}

bool weft_topo_has_nodes(const char *root)
{
    cpu_set_t online;

    return read_set(root, "online", &online) && CPU_COUNT(&online) > 1;
}
