/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WEFT_TX_BINDINGS and WEFT_RX_BINDINGS: on which CPUs the work for each NIC is done. The library has one
 * thread of its own, which sends and receives for all NICs while nobody waits; it is bound to all CPUs that the
 * settings name together. The user's threads stay where their owner put them.
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
