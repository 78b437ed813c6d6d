/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs as PCI shows them: display controllers (class 0x03) and processing accelerators (0x12) of
 * vendors that make GPUs. The little display chip of a server's board controller is none.
 */
#include "topo/internal.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES "/sys/bus/pci/devices"

static const char *vendor_name(int64_t vendor)
{
    switch (vendor) {
    case 0x10de:
        return "NVIDIA";
    case 0x1002:
        return "AMD";
    case 0x8086:
        return "Intel";
    case 0x1da3:
        return "Habana";
    default:
        return NULL;
    }
}

static bool is_gpu(const char *folder, int64_t *vendor_p)
{
    int64_t class;

    if (!weft_topo_sysfs_number(&class, "%s/class", folder)) {
        return false;
    }
    class >>= 16; /* base class, subclass, interface: a byte each */
    return (class == 0x03 || class == 0x12) &&
           weft_topo_sysfs_number(vendor_p, "%s/vendor", folder) && vendor_name(*vendor_p) != NULL;
}

/* NVIDIA's driver tells the model: "Model: \t\t NVIDIA H200" */
static bool read_model(const char *root, const char *pci, char *name, size_t room)
{
    char path[PATH_MAX], text[1024];
    char *model;

    if (snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s/information", root, pci) >=
            (int)sizeof(path) ||
        !weft_file_read(path, text, sizeof(text))) {
        return false;
    }
    model = strstr(text, "Model:");
    if (!model) {
        return false;
    }
    model += strlen("Model:");
    model += strspn(model, " \t");
    model[strcspn(model, "\n")] = '\0';
    if (*model == '\0') {
        return false;
    }
    snprintf(name, room, "%s", model);
    return true;
}

static void fill(const char *root, const char *folder, int64_t vendor, struct weft_topo_gpu *gpu)
{
    struct weft_topo_pci pci;
    int64_t device = 0;

    memset(gpu, 0, sizeof(*gpu));
    gpu->node = -1;
    gpu->vendor = (uint16_t)vendor;
    snprintf(gpu->pci, sizeof(gpu->pci), "%.15s", strrchr(folder, '/') + 1);
    weft_topo_sysfs_number(&device, "%s/device", folder);
    gpu->device = (uint16_t)device;
    if (weft_topo_sysfs_pci(&pci, "%s", folder)) {
        snprintf(gpu->pci_path, sizeof(gpu->pci_path), "%s", pci.path);
        gpu->node = pci.node;
    }
    weft_topo_sysfs_link_name(gpu->driver, sizeof(gpu->driver), "%s/driver", folder);
    if (!read_model(root, gpu->pci, gpu->name, sizeof(gpu->name))) {
        snprintf(gpu->name, sizeof(gpu->name), "%s GPU %04x:%04x", vendor_name(vendor), gpu->vendor,
                 gpu->device);
    }
}

weft_status_t weft_topo_gpus(const char *root, struct weft_topo_gpu **gpus_p, unsigned *count_p)
{
    char path[PATH_MAX];
    struct dirent **entries = NULL;
    struct weft_topo_gpu *gpus = NULL;
    int entry_count = 0;
    unsigned count = 0;

    if (snprintf(path, sizeof(path), "%s" DEVICES, root) < (int)sizeof(path)) {
        entry_count = scandir(path, &entries, NULL, alphasort);
    }
    if (entry_count < 0) {
        entry_count = 0; /* no PCI: no GPUs */
    }
    gpus = malloc(((size_t)entry_count + 1) * sizeof(*gpus));
    for (int i = 0; i < entry_count; i++) {
        char folder[PATH_MAX];
        int64_t vendor = 0;

        if (gpus && entries[i]->d_name[0] != '.' &&
            snprintf(folder, sizeof(folder), "%s/%s", path, entries[i]->d_name) <
                (int)sizeof(folder) &&
            is_gpu(folder, &vendor)) {
            fill(root, folder, vendor, &gpus[count++]);
        }
        free(entries[i]);
    }
    free(entries);
    if (!gpus) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a list of %d PCI devices", entry_count);
    }
    *gpus_p = gpus;
    *count_p = count;
    return WEFT_OK;
}
