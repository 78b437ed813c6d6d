/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of data frames. Input: mending bits, then headers back to back. What decodes is what
 * would have been encoded. */
#include "fuzz.h"

enum { MEND_CRC = 1 };

#define CRC_AT 60

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t header[WEFT_WIRE_DATA_LEN], again[WEFT_WIRE_DATA_LEN];
    struct weft_wire_data frame;

    if (size == 0) {
        return 0;
    }
    for (size_t at = 1; size - at >= sizeof(header); at += sizeof(header)) {
        memcpy(header, data + at, sizeof(header));
        if ((data[0] & MEND_CRC) != 0) {
            put_u32(header + CRC_AT, weft_wire_crc32c(0, header, CRC_AT));
        }
        if (weft_wire_data_decode(header, &frame) != WEFT_OK) {
            continue;
        }
        FUZZ_CHECK(frame.len <= WEFT_WIRE_DATA_MAX);
        FUZZ_CHECK(frame.type > 0 && frame.type < WEFT_DATA_TYPE_END);
        weft_wire_data_encode(&frame, again);
        FUZZ_CHECK(memcmp(header, again, sizeof(header)) == 0);
    }
    return 0;
}
