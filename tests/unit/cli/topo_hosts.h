/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up hosts for the tests of `weft topo`. */
#ifndef WEFT_TESTS_TOPO_HOSTS_H
#define WEFT_TESTS_TOPO_HOSTS_H

#include "cli_support.h"

#include "cli/topo_view.h"

#include <arpa/inet.h>

static struct topo_view view;
static struct weft_topo_machine machine;
static struct weft_topo_package packages[4];
static struct weft_topo_node nodes[8];
static struct weft_topo_iface ifaces[24];
static struct weft_topo_gpu gpus[8];
static unsigned data[24], distances[64];
static cpu_set_t near_sets[24];
static struct weft_topo_bindings *none;

static inline int make_view(void **state)
{
    (void)state;
    memset(&view, 0, sizeof(view));
    memset(&machine, 0, sizeof(machine));
    memset(packages, 0, sizeof(packages));
    memset(nodes, 0, sizeof(nodes));
    memset(ifaces, 0, sizeof(ifaces));
    memset(gpus, 0, sizeof(gpus));
    none = calloc(1, sizeof(*none));
    strcpy(view.host, "node17");
    machine.packages = packages;
    machine.nodes = nodes;
    view.machine = &machine;
    view.ifaces = ifaces;
    view.gpus = gpus;
    view.data = data;
    view.near = near_sets;
    view.distances = distances;
    view.tx = view.rx = none;
    view.filter = "";
    return none ? 0 : -1;
}

static inline int forget_view(void **state)
{
    (void)state;
    free(none);
    return 0;
}

/* Packages of as many nodes of as many cores with two threads; CPUs in order. */
static inline void make_machine(unsigned package_count, unsigned nodes_each, unsigned cores_each)
{
    unsigned cpu = 0;

    machine.package_count = package_count;
    machine.node_count = package_count * nodes_each;
    machine.cores = machine.node_count * cores_each;
    for (unsigned i = 0; i < machine.node_count; i++) {
        nodes[i].id = (int)i;
        nodes[i].package = (int)(i / nodes_each);
        nodes[i].memory_len = UINT64_C(64) << 30;
        nodes[i].cores = cores_each;
        machine.memory_len += nodes[i].memory_len;
        for (unsigned j = 0; j < 2 * cores_each; j++, cpu++) {
            CPU_SET(cpu, &nodes[i].cpus);
            CPU_SET(cpu, &machine.cpus);
        }
        for (unsigned j = 0; j < machine.node_count; j++) {
            distances[i * machine.node_count + j] = i == j                                 ? 10
                                                    : nodes[j].package == nodes[i].package ? 12
                                                                                           : 21;
        }
    }
    for (unsigned i = 0; i < package_count; i++) {
        packages[i].id = (int)i;
        strcpy(packages[i].model, "Made-up CPU 9000");
    }
    machine.allowed = machine.cpus;
    view.affinity = machine.cpus;
    view.cpus = (unsigned)CPU_COUNT(&machine.cpus);
}

static inline struct weft_topo_iface *add_nic(const char *name, int node, const char *addr,
                                              enum weft_topo_use use)
{
    struct weft_topo_iface *iface = &ifaces[view.iface_count];
    struct sockaddr_in *in4 = (struct sockaddr_in *)&iface->addrs[0].addr;

    snprintf(iface->name, sizeof(iface->name), "%s", name);
    iface->index = view.iface_count + 1;
    iface->node = node;
    iface->is_up = iface->has_carrier = true;
    iface->speed_mbps = 100000;
    iface->mtu = 9000;
    strcpy(iface->driver, "mlx5_core");
    snprintf(iface->pci, sizeof(iface->pci), "0000:%02x:00.0", 0x10 + view.iface_count);
    in4->sin_family = AF_INET;
    assert_int_equal(inet_pton(AF_INET, addr, &in4->sin_addr), 1);
    iface->addrs[0].prefix_len = 24;
    iface->addr_count = 1;
    iface->use = use;
    if (use == WEFT_TOPO_USE_DATA) {
        iface->addr = iface->addrs[0];
        data[view.data_count++] = view.iface_count;
    }
    view.iface_count++;
    return iface;
}

static inline void add_gpu(int node)
{
    struct weft_topo_gpu *gpu = &gpus[view.gpu_count++];

    strcpy(gpu->name, "NVIDIA H100 80GB HBM3");
    strcpy(gpu->driver, "nvidia");
    snprintf(gpu->pci, sizeof(gpu->pci), "0000:%02x:00.0", 0x80 + view.gpu_count);
    gpu->node = node;
}

static inline void make_large_host(void)
{
    make_machine(2, 2, 24);
    for (int i = 0; i < 8; i++) {
        char name[IF_NAMESIZE], addr[32];
        snprintf(name, sizeof(name), "eth%d", i);
        snprintf(addr, sizeof(addr), "10.%d.0.17", i);
        add_nic(name, i / 2, addr, WEFT_TOPO_USE_DATA);
        add_gpu(i / 2);
    }
    add_nic("lo", -1, "127.0.0.1", WEFT_TOPO_USE_LOCAL)->speed_mbps = -1;
    add_nic("docker0", -1, "172.17.0.1", WEFT_TOPO_USE_INNER)->kind = WEFT_TOPO_BRIDGE;
    strcpy(add_nic("a-long-name-015", 3, "192.168.100.200", WEFT_TOPO_USE_MEMBER)->master,
           "a-bridge");
    add_nic("eth9", 3, "192.168.100.201", WEFT_TOPO_USE_FILTERED);
    for (unsigned cpu = 48; cpu < 192; cpu++) {
        CPU_CLR(cpu, &view.affinity);
    }
    view.cgroup_millicpus = 12500;
    view.cpus = 13;
}

static inline char *printed(void (*print)(const struct topo_view *, FILE *))
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    print(&view, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* Every line within the width, as a terminal counts. */
static inline void assert_fits(char *text)
{
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (weft_cli_topo_width(line) > WEFT_CLI_WIDTH) {
            fail_msg("too wide: %s", line);
        }
    }
}

#endif
