/* SPDX-License-Identifier: Apache-2.0 */
/* Records of sealed lanes. Input: mending bits, then records back to back, as a lane would read them. A record
 * opens if and only if its sender has sealed it. */
#include "fuzz.h"

enum { MEND_CRC = 1, MEND_TAG = 2, ENCRYPT = 4, AES = 8 };

static uint8_t *copy_of(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len); /* exactly as long: the sanitizer sees a byte too many */

    FUZZ_CHECK(copy != NULL);
    memcpy(copy, bytes, len);
    return copy;
}

/* Opens the record at the front; returns how long it is, 0 when a lane would end here. */
static size_t open_one(struct weft_wire_sealer *ends, uint8_t mending, const uint8_t *bytes,
                       size_t size)
{
    uint8_t head[WEFT_WIRE_RECORD_HEAD_LEN];
    uint8_t *record, *out;
    size_t len = 0;
    bool is_open;

    memcpy(head, bytes, sizeof(head));
    if ((mending & MEND_CRC) != 0) {
        put_u32(head + 4, weft_wire_crc32c(0, head, 4));
    }
    if (weft_wire_record_peek(head, &len) != WEFT_OK) {
        return 0;
    }
    FUZZ_CHECK(len > 0 && len <= WEFT_WIRE_RECORD_MAX);
    if (size < weft_wire_record_len(len)) {
        return 0;
    }
    record = copy_of(bytes, weft_wire_record_len(len));
    out = copy_of(bytes, len);
    memcpy(record, head, sizeof(head));
    if ((mending & MEND_TAG) != 0) {
        weft_wire_record_seal(&ends[0], bytes + sizeof(head), len, record);
    }
    is_open = weft_wire_record_open(&ends[1], record, len, out) == WEFT_OK;
    FUZZ_CHECK(is_open == ((mending & MEND_TAG) != 0));
    FUZZ_CHECK(!is_open || memcmp(out, bytes + sizeof(head), len) == 0);
    free(record);
    free(out);
    return is_open ? weft_wire_record_len(len) : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_wire_sealer ends[2];
    size_t at = 1, used = 1;

    if (size == 0 || weft_wire_crypto_open() != WEFT_OK) {
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        weft_wire_sealer_open(
            &ends[i], fuzz_nonce[0], /* not the key of the seeds: those must not open */
            (data[0] & ENCRYPT) != 0 ? WEFT_SECURITY_ENCRYPT : WEFT_SECURITY_INTEGRITY,
            (data[0] & AES) != 0 && weft_wire_has_aes());
        ends[i].renewed_after = 2;
    }
    while (used > 0 && size - at >= WEFT_WIRE_RECORD_HEAD_LEN) {
        used = open_one(ends, data[0], data + at, size - at);
        at += used;
    }
    return 0;
}
