/* SPDX-License-Identifier: Apache-2.0 */
/* What the versions' adapters share. */
#ifndef WEFT_NCCL_ADAPTERS_H
#define WEFT_NCCL_ADAPTERS_H

#include "nccl.h"

#define WEFT_NCCL_EXPORT __attribute__((visibility("default")))
#define WEFT_NCCL_NAME "Weft"

static inline const char *weft_nccl_pci_path(const struct weft_nccl_device *device)
{
    return device->pci_path[0] != '\0' ? device->pci_path : NULL;
}

/* From v9 on: all but what lies behind the virtual device. */
#define WEFT_NCCL_FILL(properties, own, index)                                                     \
    do {                                                                                           \
        (properties)->name = (own)->name;                                                          \
        (properties)->pci_path = weft_nccl_pci_path(own);                                          \
        (properties)->guid = (own)->guid;                                                          \
        (properties)->pointers = NCCL_POINTER_HOST;                                                \
        (properties)->speed_mbps = (own)->speed_mbps;                                              \
        (properties)->latency_us = (own)->latency_us;                                              \
        (properties)->max_comms = 65536;                                                           \
        (properties)->max_receives = 1;                                                            \
        (properties)->virtual_device.count = 1;                                                    \
        (properties)->virtual_device.devices[0] = (index);                                         \
        (properties)->max_p2p_len = WEFT_NCCL_LEN_MAX;                                             \
        (properties)->max_collective_len = WEFT_NCCL_LEN_MAX;                                      \
    } while (0)

int weft_nccl_properties_v9(int device, struct nccl_properties_v9 *properties);
int weft_nccl_accept_plain(void *listener, void **comm, struct nccl_device_handle **device_comm);
int weft_nccl_isend_profiled(void *comm, void *data, size_t len, int tag, void *region,
                             void *profile, void **request);
int weft_nccl_irecv_profiled(void *comm, int count, void **data, size_t *lens, int *tags,
                             void **regions, void **profiles, void **request);
int weft_nccl_init_context(void **context, uint64_t id, struct nccl_config *config,
                           nccl_logger_t logger, nccl_profiler_t profiler);
int weft_nccl_listen_context(void *context, int device, void *handle, void **comm);
int weft_nccl_connect_context(void *context, int device, void *handle, void **comm,
                              struct nccl_device_handle **device_comm);
int weft_nccl_finalize(void *context);

#endif
