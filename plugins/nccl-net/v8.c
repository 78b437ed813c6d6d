/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL 2.20 to 2.23: sizes are ints. */
#include "adapters.h"

static int init(nccl_logger_t logger)
{
    return weft_nccl_result(weft_nccl_init(logger));
}

static int get_properties(int device, struct nccl_properties_v8 *properties)
{
    const struct weft_nccl_device *own = weft_nccl_device(device);
    if (own == NULL) {
        return NCCL_INVALID_ARGUMENT;
    }
    *properties = (struct nccl_properties_v8){.name = own->name,
                                              .pci_path = weft_nccl_pci_path(own),
                                              .guid = own->guid,
                                              .pointers = NCCL_POINTER_HOST,
                                              .speed_mbps = own->speed_mbps,
                                              .latency_us = own->latency_us,
                                              .max_comms = 65536,
                                              .max_receives = 1};
    return NCCL_SUCCESS;
}

static int connect_comm(int device, void *handle, void **comm,
                        struct nccl_device_handle **device_comm)
{
    (void)device_comm;
    return weft_nccl_connect(NULL, device, handle, comm);
}

int weft_nccl_accept_plain(void *listener, void **comm, struct nccl_device_handle **device_comm)
{
    (void)device_comm;
    return weft_nccl_accept(listener, comm);
}

static int isend(void *comm, void *data, int len, int tag, void *region, void **request)
{
    (void)region;
    return len < 0 ? NCCL_INVALID_ARGUMENT : weft_nccl_isend(comm, data, (size_t)len, tag, request);
}

static int irecv(void *comm, int count, void **data, int *lens, int *tags, void **regions,
                 void **request)
{
    size_t sizes[WEFT_NCCL_GROUP] = {0};
    (void)regions;
    for (int i = 0; i < count && i < WEFT_NCCL_GROUP; i++) {
        if (lens[i] < 0) {
            return NCCL_INVALID_ARGUMENT;
        }
        sizes[i] = (size_t)lens[i];
    }
    return weft_nccl_irecv(comm, count, data, sizes, tags, request);
}

WEFT_NCCL_EXPORT const struct nccl_net_v8 ncclNetPlugin_v8; /* for -Wmissing-declarations */
const struct nccl_net_v8 ncclNetPlugin_v8 = {.name = WEFT_NCCL_NAME,
                                             .init = init,
                                             .devices = weft_nccl_devices_count,
                                             .get_properties = get_properties,
                                             .listen = weft_nccl_listen,
                                             .connect = connect_comm,
                                             .accept = weft_nccl_accept_plain,
                                             .reg_mr = weft_nccl_reg_mr,
                                             .dereg_mr = weft_nccl_dereg_mr,
                                             .isend = isend,
                                             .irecv = irecv,
                                             .iflush = weft_nccl_iflush,
                                             .test = weft_nccl_test,
                                             .close_send = weft_nccl_close,
                                             .close_recv = weft_nccl_close,
                                             .close_listen = weft_nccl_close_listen};
