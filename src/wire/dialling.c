/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <string.h>

/*  0      1         2         3
 *  | kind | shm len | tcp len | 0 | shm address | tcp address |  */

size_t weft_wire_dialling_encode(const struct weft_wire_dialling *call,
                                 uint8_t out[WEFT_WIRE_DIALLING_MAX])
{
    out[0] = call->kind;
    out[1] = call->shm_len;
    out[2] = call->tcp_len;
    out[3] = 0;
    memcpy(out + 4, call->shm, call->shm_len);
    memcpy(out + 4 + call->shm_len, call->tcp, call->tcp_len);
    return (size_t)4 + call->shm_len + call->tcp_len;
}

weft_status_t weft_wire_dialling_decode(const void *bytes, size_t len,
                                        struct weft_wire_dialling *call_p)
{
    const uint8_t *in = bytes;
    struct weft_wire_dialling call = {0};
    if (len < 4 || in[1] > WEFT_WIRE_DIALLING_ADDRESS_MAX ||
        in[2] > WEFT_WIRE_DIALLING_ADDRESS_MAX || len != (size_t)4 + in[1] + in[2] || in[3] != 0 ||
        in[0] < WEFT_DIALLING_ASK || in[0] > WEFT_DIALLING_NO) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a call for a lane cannot be read (%zu bytes)", len);
    }
    call.kind = in[0];
    call.shm_len = in[1];
    call.tcp_len = in[2];
    memcpy(call.shm, in + 4, call.shm_len);
    memcpy(call.tcp, in + 4 + call.shm_len, call.tcp_len);
    if (call.kind == WEFT_DIALLING_NO &&
        (call.tcp_len > 1 || (call.tcp_len == 1 && !weft_wire_is_error(call.tcp[0])))) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a rank found no way, with a status that is none");
    }
    *call_p = call;
    return WEFT_OK;
}
