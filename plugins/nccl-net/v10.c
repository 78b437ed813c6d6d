/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL 2.26 and 2.27: a profiler and a traffic class, which we leave alone. */
#include "adapters.h"

static int init(nccl_logger_t logger, nccl_profiler_t profiler)
{
    (void)profiler;
    return weft_nccl_result(weft_nccl_init(logger));
}

static int connect_comm(int device, struct nccl_config *config, void *handle, void **comm,
                        struct nccl_device_handle **device_comm)
{
    (void)config;
    (void)device_comm;
    return weft_nccl_connect(NULL, device, handle, comm);
}

int weft_nccl_isend_profiled(void *comm, void *data, size_t len, int tag, void *region,
                             void *profile, void **request)
{
    (void)region;
    (void)profile;
    return weft_nccl_isend(comm, data, len, tag, request);
}

int weft_nccl_irecv_profiled(void *comm, int count, void **data, size_t *lens, int *tags,
                             void **regions, void **profiles, void **request)
{
    (void)regions;
    (void)profiles;
    return weft_nccl_irecv(comm, count, data, lens, tags, request);
}

WEFT_NCCL_EXPORT const struct nccl_net_v10 ncclNetPlugin_v10;
const struct nccl_net_v10 ncclNetPlugin_v10 = {.name = WEFT_NCCL_NAME,
                                               .init = init,
                                               .devices = weft_nccl_devices_count,
                                               .get_properties = weft_nccl_properties_v9,
                                               .listen = weft_nccl_listen,
                                               .connect = connect_comm,
                                               .accept = weft_nccl_accept_plain,
                                               .reg_mr = weft_nccl_reg_mr,
                                               .dereg_mr = weft_nccl_dereg_mr,
                                               .isend = weft_nccl_isend_profiled,
                                               .irecv = weft_nccl_irecv_profiled,
                                               .iflush = weft_nccl_iflush,
                                               .test = weft_nccl_test,
                                               .close_send = weft_nccl_close,
                                               .close_recv = weft_nccl_close,
                                               .close_listen = weft_nccl_close_listen};
