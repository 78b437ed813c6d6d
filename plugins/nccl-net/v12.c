/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL 2.30: as v11, with more said of devices. */
#include "adapters.h"

static int get_properties(int device, struct nccl_properties_v12 *properties)
{
    const struct weft_nccl_device *own = weft_nccl_device(device);
    if (own == NULL) {
        return NCCL_INVALID_ARGUMENT;
    }
    *properties = (struct nccl_properties_v12){.max_multi_request = 1, .rail = -1, .plane = -1};
    WEFT_NCCL_FILL(properties, own, device);
    return NCCL_SUCCESS;
}

WEFT_NCCL_EXPORT const struct nccl_net_v12 ncclNetPlugin_v12;
const struct nccl_net_v12 ncclNetPlugin_v12 = {.name = WEFT_NCCL_NAME,
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
