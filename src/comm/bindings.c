/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which CPUs the library's own thread runs. There is one per process, which sends and receives for all NICs while
 * nobody waits. WEFT_TX_BINDINGS and WEFT_RX_BINDINGS bind it to all CPUs that they name together; without them it
 * stays near the NICs, where they all are on one NUMA node. The user's threads stay where their owner put them.
 */
#include "comm/internal.h"
#include "topo/topo.h"

#include <stdlib.h>

static weft_status_t add(enum weft_param which, const char *text,
                         const struct weft_topo_scope *scope, cpu_set_t *cpus)
{
    struct weft_topo_bindings *bindings = NULL;
    weft_status_t status =
        weft_topo_bindings_parse(weft_param_info(which)->env, text, scope, &bindings);
    for (unsigned i = 0; status == WEFT_OK && i < bindings->count; i++) {
        CPU_OR(cpus, cpus, &bindings->binding[i].cpus);
    }
    free(bindings);
    return status;
}

weft_status_t weft_comm_bind(const struct weft_params *params)
{
    const char *tx = params->text[WEFT_PARAM_TX_BINDINGS];
    const char *rx = params->text[WEFT_PARAM_RX_BINDINGS];
    struct weft_topo_iface *ifaces = NULL;
    struct weft_topo_scope scope = {0};
    weft_status_t status;
    cpu_set_t cpus;
    if (tx[0] == '\0' && rx[0] == '\0') {
        return WEFT_OK;
    }
    CPU_ZERO(&cpus);
    status = weft_topo_ifaces("", &ifaces, &scope.iface_count);
    scope.ifaces = ifaces;
    status = status == WEFT_OK ? weft_topo_scope_cpus(&scope) : status;
    status = status == WEFT_OK ? add(WEFT_PARAM_TX_BINDINGS, tx, &scope, &cpus) : status;
    status = status == WEFT_OK ? add(WEFT_PARAM_RX_BINDINGS, rx, &scope, &cpus) : status;
    free(ifaces);
    if (status == WEFT_OK) {
        weft_background_bind(&cpus);
    }
    return status;
}

/* Only when there are ranks elsewhere: a thread that serves shared memory has no reason to be near a NIC. */
void weft_comm_bind_near(const struct weft_job *job)
{
    const struct weft_params *params = &job->params;
    struct weft_topo_iface *nics = NULL;
    unsigned count = 0;
    cpu_set_t ours, cpus;
    char text[128];
    if (params->text[WEFT_PARAM_TX_BINDINGS][0] != '\0' ||
        params->text[WEFT_PARAM_RX_BINDINGS][0] != '\0' || job->local_count == job->self.ranks ||
        !weft_topo_has_nodes("")) {
        return;
    }
    if (weft_topo_affinity(&ours) == WEFT_OK &&
        weft_topo_data_nics("", params->text[WEFT_PARAM_SOCKET_IFNAME], weft_comm_family(params),
                            &nics, &count) == WEFT_OK &&
        weft_topo_common_cpus("", nics, count, &ours, &cpus)) {
        weft_background_bind(&cpus);
        weft_log(comm, INFO, "our own thread runs on CPUs %s, near %s",
                 weft_topo_cpulist_print(&cpus, text, sizeof(text)), nics[0].name);
    }
    free(nics);
}
