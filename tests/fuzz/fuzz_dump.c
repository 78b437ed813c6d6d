/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A dump of a flight recorder, or a rank's memory (bit 0 of the first byte; bit 1 makes the checksum right).
 * Whatever is accepted has numbers that tables may be indexed with, and words that steer no terminal.
 */
#include "fuzz.h"
#include "wire/dump.h"

static void check_entries(const struct weft_dump *dump)
{
    struct weft_dump_entry entry;
    char name[WEFT_RECORD_NAME_LEN];

    for (uint32_t i = 0; i < dump->entries; i++) {
        if (!weft_wire_dump_entry(dump, i, &entry) || entry.state == WEFT_DUMP_TORN) {
            continue;
        }
        FUZZ_CHECK(weft_record_kind_name(entry.kind) != NULL);
        FUZZ_CHECK(strcmp(weft_dtype_name((weft_dtype_t)entry.dtype), "?") != 0);
        FUZZ_CHECK(strcmp(weft_redop_name((weft_redop_t)entry.op), "?") != 0);
        FUZZ_CHECK(entry.status <= WEFT_ERR_UNSUPPORTED && entry.percent <= 100);
        FUZZ_CHECK(entry.began_ns >= 0 && entry.ended_ns >= 0);
        FUZZ_CHECK(fuzz_is_printable(weft_wire_dump_name(dump, entry.name, name), sizeof(name)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct weft_recorder_time now = {UINT64_MAX / 2, UINT64_MAX / 2, INT64_MAX};
    uint8_t *bytes;
    size_t len = size > 0 ? size - 1 : 0;
    struct weft_dump dump;
    struct weft_dump_comm comm;

    if (size == 0) {
        return 0;
    }
    bytes = aligned_alloc(4096, (len + 4096) / 4096 * 4096);
    FUZZ_CHECK(bytes != NULL);
    memcpy(bytes, data + 1, len);
    if ((data[0] & 2) != 0 && len >= sizeof(struct weft_recording)) {
        weft_wire_dump_seal((struct weft_recording *)(void *)bytes, len);
    }
    if (weft_wire_dump_open(bytes, len, (data[0] & 1) != 0 ? &now : NULL, &dump) == WEFT_OK) {
        FUZZ_CHECK(dump.rank < dump.ranks && dump.status <= WEFT_ERR_UNSUPPORTED);
        FUZZ_CHECK(len == weft_recording_len(dump.entries));
        FUZZ_CHECK(fuzz_is_printable(dump.host, sizeof(dump.host)));
        FUZZ_CHECK(fuzz_is_printable(dump.text, sizeof(dump.text)));
        for (uint32_t i = 0; i < WEFT_RECORD_COMMS; i++) {
            FUZZ_CHECK(!weft_wire_dump_comm(&dump, i, &comm) ||
                       (comm.rank < comm.ranks && comm.ranks <= dump.ranks));
        }
        check_entries(&dump);
    }
    free(bytes);
    return 0;
}
