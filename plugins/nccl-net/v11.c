/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL 2.28 and 2.29: a context for each communicator. It holds nothing, and is known by its address. */
#include "adapters.h"

#include <stdatomic.h>

int weft_nccl_init_context(void **context, uint64_t id, struct nccl_config *config,
                           nccl_logger_t logger, nccl_profiler_t profiler)
{
    static char contexts[4096]; /* used again when so many communicators were made since */
    static _Atomic unsigned count;
    (void)id;
    (void)config;
    (void)profiler;
    *context = &contexts[atomic_fetch_add(&count, 1) % sizeof(contexts)];
    return weft_nccl_result(weft_nccl_init(logger));
}

int weft_nccl_finalize(void *context)
{
    weft_nccl_connect_end(context);
    return NCCL_SUCCESS;
}

static int get_properties(int device, struct nccl_properties_v11 *properties)
{
    properties->max_multi_request = 1;
    return weft_nccl_properties_v9(device, &properties->base);
}

int weft_nccl_listen_context(void *context, int device, void *handle, void **comm)
{
    (void)context;
    return weft_nccl_listen(device, handle, comm);
}

int weft_nccl_connect_context(void *context, int device, void *handle, void **comm,
                              struct nccl_device_handle **device_comm)
{
    (void)device_comm;
    return weft_nccl_connect(context, device, handle, comm);
}

WEFT_NCCL_EXPORT const struct nccl_net_v11 ncclNetPlugin_v11;
const struct nccl_net_v11 ncclNetPlugin_v11 = {.name = WEFT_NCCL_NAME,
                                               .init = weft_nccl_init_context,
                                               .devices = weft_nccl_devices_count,
                                               .get_properties = get_properties,
                                               .listen = weft_nccl_listen_context,
                                               .connect = weft_nccl_connect_context,
                                               .accept = weft_nccl_accept_plain,
                                               .reg_mr = weft_nccl_reg_mr,
                                               .dereg_mr = weft_nccl_dereg_mr,
                                               .isend = weft_nccl_isend_profiled,
                                               .irecv = weft_nccl_irecv_profiled,
                                               .iflush = weft_nccl_iflush,
                                               .test = weft_nccl_test,
                                               .close_send = weft_nccl_close,
                                               .close_recv = weft_nccl_close,
                                               .close_listen = weft_nccl_close_listen,
                                               .finalize = weft_nccl_finalize};
