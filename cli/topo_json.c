/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft topo --json. Keys are fixed: none goes, none changes its meaning. What is unknown is null,
 * sets of CPUs are written like "0-3,8", sizes are bytes.
 *
 *   host       name
 *   machine    cpus, allowed, cores, memory_bytes
 *     packages [] id, model, cores, cpus
 *     numa     [] id, package (index), memory_bytes, cores, cpus, distances [] (in the same order)
 *     caches   [] level, type (unified, data), bytes, count, shared_by
 *   process    cpus (affinity), quota (CPUs that the cgroup's time is worth), count (as Weft counts)
 *   nics     [] name, index, kind, driver, state (the kernel's), up, carrier, speed_mbps, mtu, mac,
 *              numa, distance, pci, pci_path, addresses [], data, address, reason, near_cpus,
 *              tx_cpus, rx_cpus (bindings)
 *   data     [] names of the nics that carry data, nearest first
 *   gpus     [] name, vendor, device, driver, numa, pci, pci_path
 */
#include "topo_view.h"

#include <stdlib.h>

#define LIST_LEN 8192 /* of CPUs: 1024 alternating ones take half */

static void write_cpus(struct weft_cli_json *json, const char *key, const cpu_set_t *cpus)
{
    char *list = weft_cli_alloc(1, LIST_LEN);

    if (cpus == NULL) {
        weft_cli_json_null(json, key);
    } else {
        weft_cli_json_text(
            json, key, CPU_COUNT(cpus) > 0 ? weft_topo_cpulist_print(cpus, list, LIST_LEN) : "");
    }
    free(list);
}

/* "" is unknown */
static void write_word(struct weft_cli_json *json, const char *key, const char *word)
{
    weft_cli_json_text(json, key, word[0] != '\0' ? word : NULL);
}

static void write_number(struct weft_cli_json *json, const char *key, int64_t number,
                         int64_t unknown)
{
    if (number == unknown) {
        weft_cli_json_null(json, key);
    } else {
        weft_cli_json_int(json, key, number);
    }
}

static void write_packages(struct weft_cli_json *json, const struct weft_topo_machine *machine)
{
    weft_cli_json_array(json, "packages");
    for (unsigned i = 0; i < machine->package_count; i++) {
        const struct weft_topo_package *package = &machine->packages[i];
        weft_cli_json_object(json, NULL);
        weft_cli_json_int(json, "id", package->id);
        write_word(json, "model", package->model);
        weft_cli_json_int(json, "cores", package->cores);
        write_cpus(json, "cpus", &package->cpus);
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
}

static void write_nodes(struct weft_cli_json *json, const struct topo_view *view)
{
    const struct weft_topo_machine *machine = view->machine;

    weft_cli_json_array(json, "numa");
    for (unsigned i = 0; i < machine->node_count; i++) {
        const struct weft_topo_node *node = &machine->nodes[i];
        weft_cli_json_object(json, NULL);
        weft_cli_json_int(json, "id", node->id);
        write_number(json, "package", node->package, -1);
        weft_cli_json_int(json, "memory_bytes", (int64_t)node->memory_len);
        weft_cli_json_int(json, "cores", node->cores);
        write_cpus(json, "cpus", &node->cpus);
        weft_cli_json_array(json, "distances");
        for (unsigned j = 0; j < machine->node_count; j++) {
            write_number(json, NULL, view->distances[i * machine->node_count + j], 0);
        }
        weft_cli_json_end(json);
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
}

static void write_machine(struct weft_cli_json *json, const struct topo_view *view)
{
    const struct weft_topo_machine *machine = view->machine;

    weft_cli_json_object(json, "machine");
    write_cpus(json, "cpus", &machine->cpus);
    write_cpus(json, "allowed", &machine->allowed);
    write_number(json, "cores", machine->cores, 0);
    write_number(json, "memory_bytes", (int64_t)machine->memory_len, 0);
    write_packages(json, machine);
    write_nodes(json, view);
    weft_cli_json_array(json, "caches");
    for (unsigned i = 0; i < machine->cache_count; i++) {
        const struct weft_topo_cache *cache = &machine->caches[i];
        weft_cli_json_object(json, NULL);
        weft_cli_json_int(json, "level", cache->level);
        weft_cli_json_text(json, "type", cache->is_data_only ? "data" : "unified");
        weft_cli_json_int(json, "bytes", (int64_t)cache->len);
        weft_cli_json_int(json, "count", cache->count);
        weft_cli_json_int(json, "shared_by", cache->shared_by);
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
    weft_cli_json_end(json);
}

static void write_process(struct weft_cli_json *json, const struct topo_view *view)
{
    weft_cli_json_object(json, "process");
    write_cpus(json, "cpus", &view->affinity);
    if (view->cgroup_millicpus > 0) {
        weft_cli_json_real(json, "quota", (double)view->cgroup_millicpus / 1000);
    } else {
        weft_cli_json_null(json, "quota");
    }
    weft_cli_json_int(json, "count", view->cpus);
    weft_cli_json_end(json);
}

static void write_facts(struct weft_cli_json *json, const struct weft_topo_iface *iface)
{
    char text[TOPO_WORDS_LEN];

    weft_cli_json_text(json, "name", iface->name);
    write_number(json, "index", iface->index, 0);
    weft_cli_json_text(json, "kind", weft_topo_kind_name(iface->kind));
    write_word(json, "driver", iface->driver);
    write_word(json, "state", iface->state);
    weft_cli_json_bool(json, "up", iface->is_up);
    weft_cli_json_bool(json, "carrier", iface->has_carrier);
    write_number(json, "speed_mbps", iface->speed_mbps, -1);
    write_number(json, "mtu", iface->mtu, 0);
    write_word(json, "mac", iface->mac);
    write_number(json, "numa", iface->node, -1);
    write_number(json, "distance", iface->distance, 0);
    write_word(json, "pci", iface->pci);
    write_word(json, "pci_path", iface->pci_path);
    weft_cli_json_array(json, "addresses");
    for (unsigned i = 0; i < iface->addr_count; i++) {
        weft_cli_json_text(json, NULL, weft_cli_topo_addr(&iface->addrs[i], text));
    }
    weft_cli_json_end(json);
}

static void write_nics(struct weft_cli_json *json, const struct topo_view *view)
{
    weft_cli_json_array(json, "nics");
    for (unsigned i = 0; i < view->iface_count; i++) {
        const struct weft_topo_iface *iface = &view->ifaces[i];
        bool is_data = iface->use == WEFT_TOPO_USE_DATA;
        char text[TOPO_WORDS_LEN];

        weft_cli_json_object(json, NULL);
        write_facts(json, iface);
        weft_cli_json_bool(json, "data", is_data);
        weft_cli_json_text(json, "address",
                           is_data ? weft_cli_topo_addr(&iface->addr, text) : NULL);
        weft_cli_json_text(json, "reason", is_data ? NULL : weft_cli_topo_reason(iface, text));
        write_cpus(json, "near_cpus", &view->near[i]);
        write_cpus(json, "tx_cpus", weft_topo_bindings_find(view->tx, iface->name));
        write_cpus(json, "rx_cpus", weft_topo_bindings_find(view->rx, iface->name));
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
    weft_cli_json_array(json, "data");
    for (unsigned i = 0; i < view->data_count; i++) {
        weft_cli_json_text(json, NULL, view->ifaces[view->data[i]].name);
    }
    weft_cli_json_end(json);
}

static void write_gpus(struct weft_cli_json *json, const struct topo_view *view)
{
    weft_cli_json_array(json, "gpus");
    for (unsigned i = 0; i < view->gpu_count; i++) {
        const struct weft_topo_gpu *gpu = &view->gpus[i];
        weft_cli_json_object(json, NULL);
        weft_cli_json_text(json, "name", gpu->name);
        weft_cli_json_int(json, "vendor", gpu->vendor);
        weft_cli_json_int(json, "device", gpu->device);
        write_word(json, "driver", gpu->driver);
        write_number(json, "numa", gpu->node, -1);
        weft_cli_json_text(json, "pci", gpu->pci);
        write_word(json, "pci_path", gpu->pci_path);
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
}

bool weft_cli_topo_json(const struct topo_view *view, FILE *out)
{
    struct weft_cli_json json;

    weft_cli_json_open(&json, out);
    weft_cli_json_text(&json, "command", "topo");
    weft_cli_json_text(&json, "host", view->host);
    write_machine(&json, view);
    write_process(&json, view);
    write_nics(&json, view);
    write_gpus(&json, view);
    return weft_cli_json_close(&json);
}
