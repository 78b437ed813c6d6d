/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL 2.24 and 2.25: sizes are size_t, devices may be virtual. */
#include "adapters.h"

static int init(nccl_logger_t logger)
{
    return weft_nccl_result(weft_nccl_init(logger));
}

int weft_nccl_properties_v9(int device, struct nccl_properties_v9 *properties)
{
    const struct weft_nccl_device *own = weft_nccl_device(device);
    if (own == NULL) {
        return NCCL_INVALID_ARGUMENT;
    }
    *properties = (struct nccl_properties_v9){0};
    WEFT_NCCL_FILL(properties, own, device);
    return NCCL_SUCCESS;
}

static int connect_comm(int device, void *handle, void **comm,
                        struct nccl_device_handle **device_comm)
{
    (void)device_comm;
    return weft_nccl_connect(NULL, device, handle, comm);
}

static int isend(void *comm, void *data, size_t len, int tag, void *region, void **request)
{
    (void)region;
    return weft_nccl_isend(comm, data, len, tag, request);
}

static int irecv(void *comm, int count, void **data, size_t *lens, int *tags, void **regions,
                 void **request)
{
    (void)regions;
    return weft_nccl_irecv(comm, count, data, lens, tags, request);
}

WEFT_NCCL_EXPORT const struct nccl_net_v9 ncclNetPlugin_v9;
const struct nccl_net_v9 ncclNetPlugin_v9 = {.name = WEFT_NCCL_NAME,
                                             .init = init,
                                             .devices = weft_nccl_devices_count,
                                             .get_properties = weft_nccl_properties_v9,
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
