/* SPDX-License-Identifier: Apache-2.0 */
/* What two NCCL plugins say to each other. Input: which kind and mending bits, then one chunk header, note, handle or
 * greeting after the other. What decodes keeps to its bounds and is what would have been encoded. */
#include "fuzz.h"
#include "nccl-net/frame.h"

enum { KIND_CHUNK, KIND_NOTE, KIND_HANDLE, KIND_GREETING, KINDS, MEND_CRC = 4 };

#define CHUNK_CRC_AT 36
#define NOTE_CRC_AT 12

static void try_chunk(uint8_t in[WEFT_NCCL_CHUNK_LEN], bool is_mended)
{
    struct weft_nccl_chunk chunk;
    uint8_t again[WEFT_NCCL_CHUNK_LEN];

    if (is_mended) {
        put_u32(in + CHUNK_CRC_AT, weft_wire_crc32c(0, in, CHUNK_CRC_AT));
    }
    if (weft_nccl_chunk_decode(in, &chunk) == WEFT_OK) {
        FUZZ_CHECK(chunk.index < WEFT_NCCL_CHUNKS && chunk.size <= WEFT_NCCL_LEN_MAX);
        FUZZ_CHECK((uint64_t)chunk.offset + chunk.len <= chunk.size);
        weft_nccl_chunk_encode(&chunk, again);
        FUZZ_CHECK(memcmp(in, again, sizeof(again)) == 0);
    }
}

static void try_note(uint8_t in[WEFT_NCCL_NOTE_LEN], bool is_mended)
{
    struct weft_nccl_note note;
    uint8_t again[WEFT_NCCL_NOTE_LEN];

    if (is_mended) {
        put_u32(in + NOTE_CRC_AT, weft_wire_crc32c(0, in, NOTE_CRC_AT));
    }
    if (weft_nccl_note_decode(in, &note) == WEFT_OK) {
        weft_nccl_note_encode(&note, again);
        FUZZ_CHECK(memcmp(in, again, sizeof(again)) == 0);
    }
}

/* There may be bytes behind the addresses: so what was encoded again is read again. */
static void try_handle(const uint8_t in[WEFT_NCCL_HANDLE_LEN])
{
    struct weft_nccl_handle handle, read;
    uint8_t again[WEFT_NCCL_HANDLE_LEN];

    if (weft_nccl_handle_decode(in, &handle) == WEFT_OK) {
        FUZZ_CHECK(handle.count > 0 && handle.count <= WEFT_NCCL_ADDRS);
        weft_nccl_handle_encode(&handle, again);
        FUZZ_CHECK(weft_nccl_handle_decode(again, &read) == WEFT_OK);
        FUZZ_CHECK(read.count == handle.count && read.ticket == handle.ticket);
        FUZZ_CHECK(memcmp(read.token, handle.token, sizeof(read.token)) == 0);
    }
}

static void try_greeting(const uint8_t *in, size_t len)
{
    struct weft_nccl_greeting greeting;
    uint8_t again[WEFT_NCCL_GREETING_MAX];

    if (weft_nccl_greeting_decode(in, len, &greeting) == WEFT_OK) {
        FUZZ_CHECK(greeting.count <= WEFT_NCCL_LANES);
        FUZZ_CHECK(weft_nccl_greeting_encode(&greeting, again) == len);
        FUZZ_CHECK(memcmp(in, again, len) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[WEFT_NCCL_HANDLE_LEN];
    static const size_t lens[] = {WEFT_NCCL_CHUNK_LEN, WEFT_NCCL_NOTE_LEN, WEFT_NCCL_HANDLE_LEN};
    unsigned kind = size > 0 ? data[0] % KINDS : KINDS;

    if (kind == KIND_GREETING) {
        try_greeting(data + 1, size - 1);
    }
    for (size_t at = 1; kind < KIND_GREETING && size - at >= lens[kind]; at += lens[kind]) {
        memcpy(bytes, data + at, lens[kind]);
        switch (kind) {
        case KIND_CHUNK:
            try_chunk(bytes, (data[0] & MEND_CRC) != 0);
            break;
        case KIND_NOTE:
            try_note(bytes, (data[0] & MEND_CRC) != 0);
            break;
        default:
            try_handle(bytes);
        }
    }
    return 0;
}
