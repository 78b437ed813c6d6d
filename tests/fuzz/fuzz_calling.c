/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank says that it called. Whatever decodes holds numbers that tables may be indexed with, and
 * encodes to the same bytes.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_wire_calling calling;
    uint8_t out[WEFT_WIRE_CALLING_LEN];

    if (weft_wire_calling_decode(data, size, &calling) == WEFT_OK) {
        FUZZ_CHECK(size == sizeof(out) && data[0] == WEFT_WIRE_CALLING_KIND);
        FUZZ_CHECK(calling.about < WEFT_CALLING_ABOUTS);
        FUZZ_CHECK(strcmp(weft_coll_name((weft_coll_t)calling.coll), "?") != 0);
        FUZZ_CHECK(strcmp(weft_dtype_name((weft_dtype_t)calling.dtype), "?") != 0);
        FUZZ_CHECK(strcmp(weft_redop_name((weft_redop_t)calling.op), "?") != 0);
        weft_wire_calling_encode(&calling, out);
        FUZZ_CHECK(memcmp(data, out, size) == 0);
    }
    return 0;
}
