/* SPDX-License-Identifier: Apache-2.0 */
/* weft topo on a terminal: the host as a tree, then what this process may use and what data uses. */
#include "topo_view.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 4
#define PREFIX_LEN 64 /* three columns of up to three bytes each per depth */
#define MATRIX_MAX 16 /* NUMA nodes whose distances fit side by side */

/* A tree as its lines from top to bottom. */
struct entry {
    unsigned depth;
    char *text, *more; /* owned; more is a second line, or NULL */
};
struct tree {
    struct entry *entries; /* owned */
    unsigned count;
};

/* Takes both texts over. */
static void add(struct tree *tree, unsigned depth, char *text, char *more)
{
    tree->entries = weft_cli_grow(tree->entries, tree->count + 1, sizeof(*tree->entries));
    tree->entries[tree->count++] = (struct entry){depth, text, more};
}

/* Is no later entry its sibling? */
static bool is_last(const struct tree *tree, unsigned index)
{
    unsigned depth = tree->entries[index].depth;

    for (unsigned i = index + 1; i < tree->count && tree->entries[i].depth >= depth; i++) {
        if (tree->entries[i].depth == depth) {
            return false;
        }
    }
    return true;
}

static bool has_children(const struct tree *tree, unsigned index)
{
    return index + 1 < tree->count && tree->entries[index + 1].depth > tree->entries[index].depth;
}

/* One line of at most WEFT_CLI_WIDTH columns; interface and GPU names are others' bytes. */
static void print_line(FILE *out, const char *prefix, char *text)
{
    unsigned room = WEFT_CLI_WIDTH - weft_cli_topo_width(prefix);
    const char *end = text;

    weft_text_clean(text);
    if (weft_cli_topo_width(text) <= room) {
        fprintf(out, "%s%s\n", prefix, text);
        return;
    }
    for (unsigned width = 0; width < room - 3; width++) {
        do {
            end++;
        } while (((unsigned char)*end & 0xc0) == 0x80);
    }
    fprintf(out, "%s%.*s...\n", prefix, (int)(end - text), text);
}

static void append(char text[PREFIX_LEN], const char *part)
{
    size_t used = strlen(text);

    snprintf(text + used, PREFIX_LEN - used, "%s", part);
}

static void print_tree(const struct tree *tree, FILE *out)
{
    bool is_open[DEPTH_MAX + 1] = {false}; /* a sibling of that depth still comes */

    for (unsigned i = 0; i < tree->count; i++) {
        const struct entry *entry = &tree->entries[i];
        char prefix[PREFIX_LEN] = "", below[PREFIX_LEN] = "";

        is_open[entry->depth] = !is_last(tree, i);
        for (unsigned depth = 1; depth < entry->depth; depth++) {
            append(prefix, is_open[depth] ? "│  " : "   ");
        }
        append(below, prefix);
        if (entry->depth > 0) {
            append(prefix, is_open[entry->depth] ? "├─ " : "└─ ");
            append(below, is_open[entry->depth] ? "│  " : "   ");
        }
        append(below, has_children(tree, i) ? "│  " : "   ");
        print_line(out, prefix, entry->text);
        if (entry->more != NULL) {
            print_line(out, below, entry->more);
        }
    }
}

static void forget_tree(struct tree *tree)
{
    for (unsigned i = 0; i < tree->count; i++) {
        free(tree->entries[i].text);
        free(tree->entries[i].more);
    }
    free(tree->entries);
}

/* ---- what hangs where ---- */

/* Widths that line the NICs up, wherever in the tree they are. */
struct widths {
    int name, speed;
};

static struct widths measure(const struct topo_view *view)
{
    struct widths widths = {0};
    char text[TOPO_WORDS_LEN];

    for (unsigned i = 0; i < view->iface_count; i++) {
        int name = (int)strlen(view->ifaces[i].name);
        int speed = (int)strlen(weft_cli_topo_speed(view->ifaces[i].speed_mbps, text));
        widths.name = name > widths.name ? name : widths.name;
        widths.speed = speed > widths.speed ? speed : widths.speed;
    }
    return widths;
}

static char *nic_details(const struct weft_topo_iface *iface)
{
    char mtu[32] = "", master[32] = "";

    if (iface->mtu > 0) {
        snprintf(mtu, sizeof(mtu), ", mtu %u", iface->mtu);
    }
    if (iface->master[0] != '\0') {
        snprintf(master, sizeof(master), ", of %s", iface->master);
    }
    return weft_cli_format("%s%s%s%s%s%s%s", weft_topo_kind_name(iface->kind),
                           iface->driver[0] != '\0' ? ", driver " : "", iface->driver, mtu,
                           iface->pci[0] != '\0' ? ", PCI " : "", iface->pci, master);
}

static void add_nic(struct tree *tree, unsigned depth, const struct weft_topo_iface *iface,
                    struct widths widths)
{
    char speed[TOPO_WORDS_LEN], text[TOPO_WORDS_LEN], addrs[512] = "no address";
    size_t used = 0;

    for (unsigned i = 0; i < iface->addr_count && used < sizeof(addrs); i++) {
        used += (size_t)snprintf(addrs + used, sizeof(addrs) - used, "%s%s", i > 0 ? ", " : "",
                                 weft_cli_topo_addr(&iface->addrs[i], text));
    }
    add(tree, depth,
        weft_cli_format("%-*s  %*s  %-10s  %-4s  %s", widths.name, iface->name, widths.speed,
                        weft_cli_topo_speed(iface->speed_mbps, speed), weft_cli_topo_state(iface),
                        iface->use == WEFT_TOPO_USE_DATA ? "data" : "-", addrs),
        nic_details(iface));
}

/* Everything on one node, or what is on none (-1). */
static void add_devices(struct tree *tree, unsigned depth, const struct topo_view *view, int place)
{
    struct widths widths = measure(view);

    for (unsigned i = 0; i < view->iface_count; i++) {
        if (weft_cli_topo_place(view, view->ifaces[i].node) == place) {
            add_nic(tree, depth, &view->ifaces[i], widths);
        }
    }
    for (unsigned i = 0; i < view->gpu_count; i++) {
        const struct weft_topo_gpu *gpu = &view->gpus[i];
        if (weft_cli_topo_place(view, gpu->node) == place) {
            add(tree, depth,
                weft_cli_format("GPU %u  %s, PCI %s%s%s", i, gpu->name, gpu->pci,
                                gpu->driver[0] != '\0' ? ", driver " : ", no driver", gpu->driver),
                NULL);
        }
    }
}

static void add_node(struct tree *tree, unsigned depth, const struct topo_view *view,
                     unsigned index)
{
    const struct weft_topo_node *node = &view->machine->nodes[index];
    char memory[TOPO_WORDS_LEN], cores[TOPO_WORDS_LEN], list[48], ours[80] = "";
    cpu_set_t cpus;

    CPU_AND(&cpus, &node->cpus, &view->affinity);
    if (!CPU_EQUAL(&cpus, &node->cpus)) {
        snprintf(ours, sizeof(ours), ", ours: %s",
                 weft_topo_cpulist_print(&cpus, list, sizeof(list)));
    }
    add(tree, depth,
        weft_cli_format("NUMA node %d: %s, %s%s", node->id,
                        weft_cli_topo_memory(node->memory_len, memory),
                        weft_cli_topo_cores(node->cores, &node->cpus, cores), ours),
        NULL);
    add_devices(tree, depth + 1, view, (int)index);
}

static void add_nodes(struct tree *tree, unsigned depth, const struct topo_view *view, int package)
{
    for (unsigned i = 0; i < view->machine->node_count; i++) {
        if (view->machine->nodes[i].package == package) {
            add_node(tree, depth, view, i);
        }
    }
}

static char *caches(const struct weft_topo_machine *machine)
{
    char text[256] = "";
    size_t used = 0;

    for (unsigned i = 0; i < machine->cache_count && used < sizeof(text); i++) {
        const struct weft_topo_cache *cache = &machine->caches[i];
        char size[24];
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%sL%u%s %u x %s",
                                 i > 0 ? ", " : "caches: ", cache->level,
                                 cache->is_data_only ? "d" : "", cache->count,
                                 weft_cli_print_size(cache->len, size));
    }
    return text[0] != '\0' ? weft_cli_format("%s", text) : NULL;
}

static void add_machine(struct tree *tree, const struct topo_view *view)
{
    const struct weft_topo_machine *machine = view->machine;
    char memory[TOPO_WORDS_LEN];

    if (machine->package_count == 0) {
        add(tree, 0, weft_cli_format("%s: %d PUs", view->host, CPU_COUNT(&machine->cpus)), NULL);
    } else {
        add(tree, 0,
            weft_cli_format("%s: %u package%s, %u core%s, %d PU%s, %s", view->host,
                            machine->package_count, machine->package_count == 1 ? "" : "s",
                            machine->cores, machine->cores == 1 ? "" : "s",
                            CPU_COUNT(&machine->cpus), CPU_COUNT(&machine->cpus) == 1 ? "" : "s",
                            weft_cli_topo_memory(machine->memory_len, memory)),
            caches(machine));
    }
    for (unsigned i = 0; i < machine->package_count; i++) {
        const struct weft_topo_package *package = &machine->packages[i];
        add(tree, 1,
            weft_cli_format("package %d%s%s", package->id, package->model[0] != '\0' ? ": " : "",
                            package->model),
            NULL);
        add_nodes(tree, 2, view, (int)i);
    }
    add_nodes(tree, 1, view, -1);
    add_devices(tree, 1, view, -1);
}

/* ---- below the tree ---- */

static void print_distances(const struct topo_view *view, FILE *out)
{
    const struct weft_topo_machine *machine = view->machine;
    unsigned count = machine->node_count < MATRIX_MAX ? machine->node_count : MATRIX_MAX;

    if (count < 2) {
        return;
    }
    fprintf(out, "\ndistances between NUMA nodes (10 is local)\n       ");
    for (unsigned i = 0; i < count; i++) {
        fprintf(out, "%5d", machine->nodes[i].id);
    }
    for (unsigned i = 0; i < count; i++) {
        fprintf(out, "\n  %5d", machine->nodes[i].id);
        for (unsigned j = 0; j < count; j++) {
            unsigned distance = view->distances[i * machine->node_count + j];
            if (distance > 0) {
                fprintf(out, "%5u", distance);
            } else {
                fprintf(out, "    ?");
            }
        }
    }
    fputc('\n', out);
}

static void print_process(const struct topo_view *view, FILE *out)
{
    char lines[4][TOPO_WORDS_LEN];
    unsigned count = weft_cli_topo_process(view, lines);

    fprintf(out, "\nCPUs of this process\n");
    for (unsigned i = 0; i < count; i++) {
        print_line(out, "  ", lines[i]);
    }
}

static void cpus_cell(struct weft_cli_table *table, const cpu_set_t *cpus)
{
    char list[64];

    weft_cli_table_cell(table, "%s",
                        cpus != NULL ? weft_topo_cpulist_print(cpus, list, sizeof(list)) : "near");
}

static void print_used(const struct topo_view *view, FILE *out)
{
    static const struct weft_cli_column columns[] = {
        {"  nic", false},     {"address", false}, {"speed", true},        {"distance", true},
        {"near CPUs", false}, {"sent by", false}, {"received by", false},
    };
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));

    for (unsigned i = 0; i < view->data_count; i++) {
        const struct weft_topo_iface *iface = &view->ifaces[view->data[i]];
        char text[TOPO_WORDS_LEN], name[IF_NAMESIZE];
        snprintf(name, sizeof(name), "%s", iface->name);
        weft_text_clean(name);
        weft_cli_table_cell(table, "  %s", name);
        weft_cli_table_cell(table, "%s", weft_cli_topo_addr(&iface->addr, text));
        weft_cli_table_cell(table, "%s", weft_cli_topo_speed(iface->speed_mbps, text));
        weft_cli_table_cell(table, iface->distance > 0 ? "%u" : "-", iface->distance);
        cpus_cell(table, &view->near[view->data[i]]);
        cpus_cell(table, weft_topo_bindings_find(view->tx, iface->name));
        cpus_cell(table, weft_topo_bindings_find(view->rx, iface->name));
    }
    fprintf(out, "\ndata goes over%s\n", view->data_count == 0 ? " nothing" : ", nearest first");
    if (view->data_count > 0) {
        weft_cli_table_print(table, out);
    }
    weft_cli_table_close(table);
}

static void print_unused(const struct topo_view *view, FILE *out)
{
    struct widths widths = measure(view);
    bool is_first = true;

    for (unsigned i = 0; i < view->iface_count; i++) {
        const struct weft_topo_iface *iface = &view->ifaces[i];
        char text[TOPO_WORDS_LEN];
        if (iface->use == WEFT_TOPO_USE_DATA) {
            continue;
        }
        fprintf(out, "%s", is_first ? "\nand not over\n" : "");
        is_first = false;
        char *line = weft_cli_format("%-*s  %s", widths.name, iface->name,
                                     weft_cli_topo_reason(iface, text));
        print_line(out, "  ", line);
        free(line);
    }
    if (view->filter[0] != '\0') {
        char *line = weft_cli_format("WEFT_SOCKET_IFNAME is %s", view->filter);
        print_line(out, "  ", line);
        free(line);
    }
}

void weft_cli_topo_tree(const struct topo_view *view, FILE *out)
{
    struct tree tree = {0};

    add_machine(&tree, view);
    print_tree(&tree, out);
    forget_tree(&tree);
    print_distances(view, out);
    print_process(view, out);
    print_used(view, out);
    print_unused(view, out);
}
