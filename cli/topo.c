/* SPDX-License-Identifier: Apache-2.0 */
/* weft topo: what this host has, what this process may use of it, and what data would go over. */
#include "topo_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool as_json;
static const char *svg_path;

static const struct weft_cli_option options[] = {
    {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &as_json, 0, 0},
    {"svg", 0, WEFT_CLI_TEXT, "FILE", "also draw a picture into FILE (- is stdout)", &svg_path, 0,
     0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "topo",
    .summary =
        "Draw this host: packages, NUMA nodes, cores, NICs, GPUs; the CPUs that this process may\n"
        "use and why; the NICs that data would go over, nearest first, and why not the others.\n"
        "Obeys WEFT_SOCKET_IFNAME, WEFT_SOCKET_FAMILY, WEFT_TX_BINDINGS, WEFT_RX_BINDINGS.\n\n"
        "JSON keys: host; machine {cpus, allowed, cores, memory_bytes, packages [], numa [],\n"
        "caches []}; process {cpus, quota, count}; nics [] {name, index, kind, driver, state, up,\n"
        "carrier, speed_mbps, mtu, mac, numa, distance, pci, pci_path, addresses [], data, "
        "address,\n"
        "reason, near_cpus, tx_cpus, rx_cpus}; data [] (names, nearest first); gpus [] {name,\n"
        "vendor, device, driver, numa, pci, pci_path}",
    .usage = "[--json] [--svg FILE]",
    .options = options,
    .examples = {"weft topo --svg host.svg",
                 "taskset -c 0-3 env WEFT_SOCKET_IFNAME=eth weft topo --json"},
};

static int complain(void)
{
    return weft_cli_fail(&command, "%s", weft_error_text());
}

static int family_of(const struct weft_params *params)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6}; /* as the table lists them */

    return families[params->number[WEFT_PARAM_SOCKET_FAMILY]];
}

/* Without hwloc there is still all that sysfs tells. */
static int read_machine(struct topo_view *view)
{
    if (weft_topo_machine_open(NULL, &view->machine) == WEFT_OK) {
        return WEFT_CLI_OK;
    }
    int status = complain();
    view->machine = weft_cli_alloc(1, sizeof(*view->machine));
    if (!weft_topo_online("", &view->machine->cpus)) {
        view->machine->cpus = view->affinity;
    }
    view->machine->allowed = view->machine->cpus;
    return status;
}

static void read_distances(struct topo_view *view)
{
    const struct weft_topo_machine *machine = view->machine;
    unsigned count = machine->node_count;

    view->distances = weft_cli_alloc((size_t)count * count, sizeof(*view->distances));
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < count; j++) {
            view->distances[i * count + j] =
                weft_topo_numa_distance("", machine->nodes[i].id, machine->nodes[j].id);
        }
    }
}

/* The order that weft_topo_data_nics() gives, as indices. */
static void rank_data(struct topo_view *view)
{
    struct weft_topo_iface *sorted = weft_cli_alloc(view->iface_count, sizeof(*sorted));

    memcpy(sorted, view->ifaces, view->iface_count * sizeof(*sorted));
    weft_topo_sort_near(sorted, view->iface_count);
    view->data = weft_cli_alloc(view->iface_count, sizeof(*view->data));
    for (unsigned i = 0; i < view->iface_count; i++) {
        if (sorted[i].use != WEFT_TOPO_USE_DATA) {
            continue;
        }
        for (unsigned j = 0; j < view->iface_count; j++) {
            if (strcmp(sorted[i].name, view->ifaces[j].name) == 0) {
                view->data[view->data_count++] = j;
            }
        }
    }
    free(sorted);
}

static bool read_nics(struct topo_view *view, const struct weft_params *params)
{
    if (weft_topo_ifaces("", &view->ifaces, &view->iface_count) != WEFT_OK) {
        return false;
    }
    view->filter = params->text[WEFT_PARAM_SOCKET_IFNAME];
    weft_topo_choose(view->ifaces, view->iface_count, view->filter, family_of(params));
    rank_data(view);
    view->near = weft_cli_alloc(view->iface_count, sizeof(*view->near));
    for (unsigned i = 0; i < view->iface_count; i++) {
        weft_topo_near_cpus("", view->ifaces[i].node, &view->affinity, &view->near[i]);
    }
    return true;
}

/* A binding that is wrong is said; the host is drawn all the same, as it helps to mend it. */
static int read_bindings(struct topo_view *view, const struct weft_params *params)
{
    static const enum weft_param settings[] = {WEFT_PARAM_TX_BINDINGS, WEFT_PARAM_RX_BINDINGS};
    struct weft_topo_bindings **bindings[] = {&view->tx, &view->rx};
    struct weft_topo_scope scope = {.ifaces = view->ifaces, .iface_count = view->iface_count};
    int status = WEFT_CLI_OK;

    if (weft_topo_scope_cpus(&scope) != WEFT_OK) {
        return complain();
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(settings); i++) {
        if (weft_topo_bindings_parse(weft_param_info(settings[i])->env, params->text[settings[i]],
                                     &scope, bindings[i]) != WEFT_OK) {
            status = complain();
            *bindings[i] = weft_cli_alloc(1, sizeof(**bindings[i]));
        }
    }
    return status;
}

static int read_host(struct topo_view *view, const struct weft_params *params)
{
    weft_topo_hostname(view->host);
    view->cgroup_millicpus = weft_topo_cgroup_millicpus("");
    view->cpus = weft_topo_cpus("");
    if (weft_topo_affinity(&view->affinity) != WEFT_OK || !read_nics(view, params) ||
        weft_topo_gpus("", &view->gpus, &view->gpu_count) != WEFT_OK) {
        return complain();
    }
    int machine_status = read_machine(view);
    read_distances(view);
    int status = read_bindings(view, params);
    return machine_status != WEFT_CLI_OK ? machine_status : status;
}

static void forget_host(struct topo_view *view)
{
    weft_topo_machine_close(view->machine);
    free(view->ifaces);
    free(view->data);
    free(view->near);
    free(view->gpus);
    free(view->distances);
    free(view->tx);
    free(view->rx);
}

static int draw(const struct topo_view *view, const char *path)
{
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *out = is_stdout ? stdout : fopen(path, "we");

    if (out == NULL) {
        return weft_cli_fail(&command, "cannot write %s: %s", path, strerror(errno));
    }
    weft_cli_topo_svg(view, out);
    if (is_stdout) {
        return WEFT_CLI_OK; /* main() sees whether it left */
    }
    bool is_bad = ferror(out) != 0;
    if (fclose(out) != 0 || is_bad) {
        return weft_cli_fail(&command, "cannot write %s: %s", path, strerror(errno));
    }
    return WEFT_CLI_OK;
}

static int show(const struct topo_view *view)
{
    int status = svg_path != NULL ? draw(view, svg_path) : WEFT_CLI_OK;

    if (as_json) {
        return weft_cli_topo_json(view, stdout) ? status : WEFT_CLI_FAILED;
    }
    if (svg_path == NULL || strcmp(svg_path, "-") != 0) {
        weft_cli_topo_tree(view, stdout);
    }
    return status;
}

int weft_cli_topo(int argc, char **argv)
{
    struct topo_view view = {0};
    int rest;
    int status = weft_cli_parse(&command, argc, argv, &rest);

    if (status >= 0) {
        return status;
    }
    if (rest < argc) {
        return weft_cli_usage_error(&command, "\"%s\" is one word too many", argv[rest]);
    }
    if (as_json && svg_path != NULL && strcmp(svg_path, "-") == 0) {
        return weft_cli_usage_error(&command, "--json and --svg - both want stdout");
    }
    struct weft_params *params = weft_cli_alloc(1, sizeof(*params));
    if (weft_params_load(params) != WEFT_OK) {
        status = complain();
    } else {
        status = read_host(&view, params);
        if (view.tx != NULL && view.rx != NULL) { /* all was read, if not all was right */
            int shown = show(&view);
            status = status != WEFT_CLI_OK ? status : shown;
        }
    }
    forget_host(&view);
    free(params);
    return status;
}
