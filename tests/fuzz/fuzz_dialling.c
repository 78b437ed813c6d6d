/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for a lane. Whatever decodes has lengths that fit, and encodes to the same bytes. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_wire_dialling call;
    uint8_t out[WEFT_WIRE_DIALLING_MAX];

    if (weft_wire_dialling_decode(data, size, &call) == WEFT_OK) {
        FUZZ_CHECK(call.kind >= WEFT_DIALLING_ASK && call.kind <= WEFT_DIALLING_NO);
        FUZZ_CHECK(call.shm_len <= sizeof(call.shm) && call.tcp_len <= sizeof(call.tcp));
        FUZZ_CHECK(call.kind != WEFT_DIALLING_NO || call.tcp_len == 0 ||
                   weft_wire_is_error(call.tcp[0]));
        FUZZ_CHECK(weft_wire_dialling_encode(&call, out) == size);
        FUZZ_CHECK(memcmp(data, out, size) == 0);
    }
    return 0;
}
