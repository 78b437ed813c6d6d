/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL gets to see: one device over all NICs that carry data, or one for each. Merged, every connection uses all
 * NICs, whichever GPU it serves; NICs that differ are left apart unless WEFT_NCCL_MERGE says otherwise, since NCCL
 * plans with one speed per device.
 */
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPEED_UNKNOWN_MBPS 10000 /* virtual NICs do not say: what NCCL assumes itself */

static const char *filter_of(const struct weft_params *params)
{
    const char *filter = params->text[WEFT_PARAM_SOCKET_IFNAME];
    const char *nccl = getenv("NCCL_SOCKET_IFNAME"); /* the same syntax */
    return filter[0] == '\0' && nccl != NULL ? nccl : filter;
}

static int family_of(const struct weft_params *params)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    return families[params->number[WEFT_PARAM_SOCKET_FAMILY]];
}

static int64_t speed_of(const struct weft_params *params, const struct weft_topo_iface *iface)
{
    int64_t wanted = params->number[WEFT_PARAM_NCCL_SPEED];
    return wanted > 0 ? wanted : iface->speed_mbps > 0 ? iface->speed_mbps : SPEED_UNKNOWN_MBPS;
}

static void add_device(struct weft_nccl_devices *devices, const struct weft_topo_iface *iface)
{
    struct weft_nccl_device *device = &devices->device[devices->count++];
    uint32_t nic = devices->nic_count;
    devices->nics[nic] =
        (struct weft_nccl_nic){.addr = iface->addr.addr, .prefix_len = iface->addr.prefix_len};
    memcpy(devices->nics[nic].name, iface->name, sizeof(iface->name));
    snprintf(device->name, sizeof(device->name), "%s", iface->name);
    if (iface->pci_path[0] != '\0') {
        snprintf(device->pci_path, sizeof(device->pci_path), "/sys/devices/%s", iface->pci_path);
    }
    device->guid = (uint64_t)iface->index;
    device->count = 1;
    device->nics[0] = (uint8_t)nic;
    devices->nic_count++;
}

static void merge(struct weft_nccl_devices *devices)
{
    struct weft_nccl_device *all = &devices->device[0];
    for (uint32_t i = 1; i < devices->count; i++) {
        const struct weft_nccl_device *one = &devices->device[i];
        size_t len = strlen(all->name);
        snprintf(all->name + len, sizeof(all->name) - len, "+%s", one->name);
        all->nics[all->count++] = one->nics[0];
        all->speed_mbps += one->speed_mbps;
    }
    devices->count = 1;
}

static bool are_alike(const struct weft_nccl_devices *devices)
{
    bool are = true;
    for (uint32_t i = 1; i < devices->count; i++) {
        are &= devices->device[i].speed_mbps == devices->device[0].speed_mbps;
    }
    return are;
}

static void bind_near(struct weft_nccl_devices *devices, const struct weft_topo_iface *data,
                      uint32_t count)
{
    cpu_set_t affinity;
    devices->has_cpus = weft_topo_affinity(&affinity) == WEFT_OK &&
                        weft_topo_common_cpus("", data, count, &affinity, &devices->cpus);
}

weft_status_t weft_nccl_devices_find(const struct weft_params *params,
                                     struct weft_nccl_devices *devices_p)
{
    struct weft_nccl_devices devices = {0};
    struct weft_topo_iface *ifaces, *data;
    unsigned count, used = 0;
    int64_t wanted = params->number[WEFT_PARAM_NCCL_MERGE];
    weft_status_t status;
    /* For the error, which lists what there is. */
    status = weft_topo_data_nics("", filter_of(params), family_of(params), &data, &count);
    if (status != WEFT_OK) {
        return status;
    }
    free(data);
    status = weft_topo_ifaces("", &ifaces, &count); /* with their places on the PCI tree */
    if (status != WEFT_OK) {
        return status;
    }
    weft_topo_choose(ifaces, count, filter_of(params), family_of(params));
    weft_topo_sort_near(ifaces, count);
    for (unsigned i = 0; i < count && devices.nic_count < WEFT_NCCL_NICS; i++) {
        if (ifaces[i].use == WEFT_TOPO_USE_DATA) {
            add_device(&devices, &ifaces[i]);
            devices.device[devices.count - 1].speed_mbps = (int)speed_of(params, &ifaces[i]);
            devices.device[devices.count - 1].latency_us =
                (float)params->number[WEFT_PARAM_NCCL_LATENCY];
            ifaces[used++] = ifaces[i];
        }
    }
    bind_near(&devices, ifaces, used);
    free(ifaces);
    if (devices.nic_count == 0) {
        return weft_fail(WEFT_ERR_NETWORK, "no network interface carries data");
    }
    if (wanted == 1 || (wanted < 0 && are_alike(&devices))) {
        merge(&devices);
    }
    *devices_p = devices;
    return WEFT_OK;
}
