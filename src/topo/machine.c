/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packages, NUMA nodes, cores and caches, as hwloc sees them, copied into plain structs: nobody else
 * includes hwloc's header, and its own tree (a megabyte on a large host) goes at once.
 */
#include "topo/hwloc_calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const struct weft_topo_hwloc *hwloc;
    hwloc_topology_t topology;
    struct weft_topo_machine *machine;
};

static void copy_set(const struct reader *reader, hwloc_const_bitmap_t from, cpu_set_t *to_p)
{
    CPU_ZERO(to_p);
    for (unsigned cpu = 0; from && cpu < CPU_SETSIZE; cpu++) {
        if (reader->hwloc->bitmap_isset(from, cpu)) {
            CPU_SET(cpu, to_p);
        }
    }
}

/* How many there are of a type, and the depth where they are. */
static unsigned count_of(const struct reader *reader, hwloc_obj_type_t type, int *depth_p)
{
    *depth_p = reader->hwloc->get_type_depth(reader->topology, type);
    if (*depth_p == HWLOC_TYPE_DEPTH_UNKNOWN || *depth_p == HWLOC_TYPE_DEPTH_MULTIPLE) {
        return 0;
    }
    return reader->hwloc->get_nbobjs_by_depth(reader->topology, *depth_p);
}

static unsigned cores_inside(const struct reader *reader, const cpu_set_t *cpus)
{
    int depth;
    unsigned count = count_of(reader, HWLOC_OBJ_CORE, &depth);
    unsigned inside = 0;

    for (unsigned i = 0; i < count; i++) {
        hwloc_obj_t core = reader->hwloc->get_obj_by_depth(reader->topology, depth, i);
        cpu_set_t pus, shared;

        copy_set(reader, core->cpuset, &pus);
        CPU_AND(&shared, &pus, cpus);
        inside += CPU_COUNT(&pus) > 0 && CPU_EQUAL(&shared, &pus);
    }
    return inside;
}

static int os_index(hwloc_obj_t object)
{
    return object->os_index <= INT32_MAX ? (int)object->os_index : (int)object->logical_index;
}

static void read_packages(const struct reader *reader)
{
    struct weft_topo_machine *machine = reader->machine;
    int depth;

    count_of(reader, HWLOC_OBJ_PACKAGE, &depth);
    for (unsigned i = 0; i < machine->package_count; i++) {
        struct weft_topo_package *package = &machine->packages[i];
        hwloc_obj_t object = reader->hwloc->get_obj_by_depth(reader->topology, depth, i);

        package->id = os_index(object);
        copy_set(reader, object->cpuset, &package->cpus);
        package->cores = cores_inside(reader, &package->cpus);
        for (unsigned j = 0; j < object->infos_count; j++) {
            if (strcmp(object->infos[j].name, "CPUModel") == 0) {
                snprintf(package->model, sizeof(package->model), "%s", object->infos[j].value);
            }
        }
    }
}

/* hwloc hangs a node's memory where its CPUs are; a package above it is its own. */
static int package_of(hwloc_obj_t node)
{
    for (hwloc_obj_t above = node->parent; above; above = above->parent) {
        if (above->type == HWLOC_OBJ_PACKAGE) {
            return (int)above->logical_index;
        }
    }
    return -1;
}

static void read_nodes(const struct reader *reader)
{
    struct weft_topo_machine *machine = reader->machine;
    int depth;

    count_of(reader, HWLOC_OBJ_NUMANODE, &depth);
    for (unsigned i = 0; i < machine->node_count; i++) {
        struct weft_topo_node *node = &machine->nodes[i];
        hwloc_obj_t object = reader->hwloc->get_obj_by_depth(reader->topology, depth, i);

        node->id = os_index(object);
        node->package = machine->package_count == 1 ? 0 : package_of(object);
        node->memory_len = object->attr->numanode.local_memory;
        machine->memory_len += node->memory_len;
        copy_set(reader, object->cpuset, &node->cpus);
        node->cores = cores_inside(reader, &node->cpus);
    }
}

static void add_caches(const struct reader *reader, hwloc_obj_type_t type)
{
    struct weft_topo_machine *machine = reader->machine;
    struct weft_topo_cache *cache = &machine->caches[machine->cache_count];
    hwloc_obj_t first;
    int depth;
    unsigned count = count_of(reader, type, &depth);

    if (count == 0 || machine->cache_count == WEFT_TOPO_CACHES_MAX) {
        return;
    }
    first = reader->hwloc->get_obj_by_depth(reader->topology, depth, 0);
    cache->level = first->attr->cache.depth;
    cache->is_data_only = first->attr->cache.type == HWLOC_OBJ_CACHE_DATA;
    cache->len = first->attr->cache.size;
    cache->count = count;
    cache->shared_by = (unsigned)reader->hwloc->bitmap_weight(first->cpuset);
    machine->cache_count++;
}

static weft_status_t fill(const struct reader *reader)
{
    static const hwloc_obj_type_t caches[] = {
        HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE,
        HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L1CACHE, /* hwloc leaves those of instructions out */
    };
    struct weft_topo_machine *machine = reader->machine;
    int depth;

    machine->package_count = count_of(reader, HWLOC_OBJ_PACKAGE, &depth);
    machine->node_count = count_of(reader, HWLOC_OBJ_NUMANODE, &depth);
    machine->packages = calloc(machine->package_count + 1, sizeof(*machine->packages));
    machine->nodes = calloc(machine->node_count + 1, sizeof(*machine->nodes));
    if (!machine->packages || !machine->nodes) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %u packages and %u NUMA nodes",
                         machine->package_count, machine->node_count);
    }
    copy_set(reader, reader->hwloc->get_obj_by_depth(reader->topology, 0, 0)->cpuset,
             &machine->cpus);
    copy_set(reader, reader->hwloc->topology_get_allowed_cpuset(reader->topology),
             &machine->allowed);
    machine->cores = count_of(reader, HWLOC_OBJ_CORE, &depth);
    read_packages(reader);
    read_nodes(reader);
    for (size_t i = 0; i < WEFT_COUNT_OF(caches); i++) {
        add_caches(reader, caches[i]);
    }
    return WEFT_OK;
}

/* Also CPUs that our cgroup forbids: the tree shows them, as not ours. */
static weft_status_t load(struct reader *reader, const char *synthetic)
{
    const struct weft_topo_hwloc *hwloc = reader->hwloc;

    if (hwloc->topology_init(&reader->topology) != 0) {
        return weft_fail_errno("starting hwloc");
    }
    if (synthetic && hwloc->topology_set_synthetic(reader->topology, synthetic) != 0) {
        hwloc->topology_destroy(reader->topology);
        return weft_fail(WEFT_ERR_INVALID, "hwloc does not understand the machine \"%.128s\"",
                         synthetic);
    }
    if (hwloc->topology_set_flags(reader->topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
        hwloc->topology_load(reader->topology) != 0) {
        weft_status_t status = weft_fail_errno("reading the machine by hwloc");

        hwloc->topology_destroy(reader->topology);
        return status;
    }
    return WEFT_OK;
}

weft_status_t weft_topo_machine_open(const char *synthetic, struct weft_topo_machine **machine_p)
{
    struct reader reader = {0};
    weft_status_t status = weft_topo_hwloc_load(&reader.hwloc);

    if (status != WEFT_OK) {
        return status;
    }
    reader.machine = calloc(1, sizeof(*reader.machine));
    if (!reader.machine) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the description of the machine");
    }
    status = load(&reader, synthetic);
    if (status == WEFT_OK) {
        status = fill(&reader);
        reader.hwloc->topology_destroy(reader.topology);
    }
    if (status != WEFT_OK) {
        weft_topo_machine_close(reader.machine);
        return status;
    }
    *machine_p = reader.machine;
    return WEFT_OK;
}

void weft_topo_machine_close(struct weft_topo_machine *machine)
{
    if (machine) {
        free(machine->packages);
        free(machine->nodes);
        free(machine);
    }
}
