/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes between two plugins: what is written is read, and nothing else is. */
#include "frame.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

static const struct weft_nccl_chunk sample = {.flags = WEFT_NCCL_AWAITED,
                                              .tag = 0xdeadbeef,
                                              .number = UINT64_C(0x123456789abc),
                                              .offset = 131072,
                                              .len = 1000,
                                              .size = 132072,
                                              .index = 1,
                                              .payload_crc = 7};

static void chunks_come_back(void **state)
{
    uint8_t bytes[WEFT_NCCL_CHUNK_LEN];
    struct weft_nccl_chunk got;
    (void)state;
    weft_nccl_chunk_encode(&sample, bytes);
    assert_int_equal(WEFT_OK, weft_nccl_chunk_decode(bytes, &got));
    assert_true(got.flags == sample.flags && got.tag == sample.tag && got.number == sample.number);
    assert_true(got.offset == sample.offset && got.len == sample.len && got.size == sample.size);
    assert_true(got.index == sample.index && got.payload_crc == sample.payload_crc);
}

static void every_flipped_bit_is_found(void **state)
{
    uint8_t chunk[WEFT_NCCL_CHUNK_LEN], note[WEFT_NCCL_NOTE_LEN];
    struct weft_nccl_chunk got;
    struct weft_nccl_note heard, landed = {.type = WEFT_NCCL_TYPE_LANDED, .value = 99};
    (void)state;
    weft_nccl_chunk_encode(&sample, chunk);
    for (size_t i = 0; i < sizeof(chunk) * 8; i++) {
        chunk[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(WEFT_ERR_PROTOCOL, weft_nccl_chunk_decode(chunk, &got));
        chunk[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    weft_nccl_note_encode(&landed, note);
    assert_int_equal(WEFT_OK, weft_nccl_note_decode(note, &heard));
    assert_int_equal(99, heard.value);
    for (size_t i = 0; i < sizeof(note) * 8; i++) {
        note[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(WEFT_ERR_PROTOCOL, weft_nccl_note_decode(note, &heard));
        note[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

static void chunks_beyond_their_message_are_refused(void **state)
{
    uint8_t bytes[WEFT_NCCL_CHUNK_LEN];
    struct weft_nccl_chunk bad[] = {sample, sample, sample, sample, sample}, got;
    (void)state;
    bad[0].len = 1001;
    bad[1].offset = 132073;
    bad[2].offset = UINT32_MAX; /* wraps with len */
    bad[3].size = UINT32_MAX;
    bad[4].index = WEFT_NCCL_CHUNKS;
    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        weft_nccl_chunk_encode(&bad[i], bytes);
        assert_int_equal(WEFT_ERR_PROTOCOL, weft_nccl_chunk_decode(bytes, &got));
    }
}

static void handles_hold_what_fits(void **state)
{
    struct weft_nccl_handle handle = {.ticket = 5, .count = WEFT_NCCL_ADDRS}, got;
    uint8_t bytes[WEFT_NCCL_HANDLE_LEN];
    (void)state;
    for (uint8_t i = 0; i < WEFT_NCCL_ADDRS; i++) {
        handle.addrs[i] =
            (struct weft_wire_addr){.family = 4, .port = 4000, .bytes = {10, 0, i, 1}};
    }
    weft_nccl_handle_encode(&handle, bytes);
    assert_int_equal(WEFT_OK, weft_nccl_handle_decode(bytes, &got));
    assert_int_equal(WEFT_NCCL_ADDRS, got.count);
    assert_memory_equal(handle.addrs, got.addrs, sizeof(got.addrs));
    assert_int_equal(5, got.ticket);
    for (uint8_t i = 0; i < WEFT_NCCL_ADDRS; i++) {
        handle.addrs[i].family = 6;
    }
    weft_nccl_handle_encode(&handle, bytes);
    assert_int_equal(WEFT_OK, weft_nccl_handle_decode(bytes, &got));
    assert_int_equal(3, got.count);
    assert_memory_equal(handle.addrs, got.addrs, 3 * sizeof(got.addrs[0]));
    bytes[64] = 5; /* no such family */
    assert_int_equal(WEFT_ERR_INVALID, weft_nccl_handle_decode(bytes, &got));
}

static void greetings_have_one_length(void **state)
{
    struct weft_nccl_greeting greeting = {
        .comm = 77, .is_first = true, .id = 65545, .slot = 3, .count = 2, .alive = {4, 65544}};
    struct weft_nccl_greeting got;
    uint8_t bytes[WEFT_NCCL_GREETING_MAX];
    size_t len = weft_nccl_greeting_encode(&greeting, bytes);
    (void)state;
    assert_int_equal(WEFT_OK, weft_nccl_greeting_decode(bytes, len, &got));
    assert_true(got.comm == 77 && got.is_first && !got.is_last);
    assert_true(got.id == 65545 && got.slot == 3);
    assert_true(got.count == 2 && got.alive[0] == 4 && got.alive[1] == 65544);
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(WEFT_ERR_PROTOCOL, weft_nccl_greeting_decode(bytes, i, &got));
    }
    bytes[32] = WEFT_NCCL_LANES + 1;
    assert_int_equal(WEFT_ERR_PROTOCOL, weft_nccl_greeting_decode(bytes, len, &got));
    len = weft_nccl_greeting_encode(&(struct weft_nccl_greeting){.is_last = true}, bytes);
    assert_int_equal(WEFT_OK, weft_nccl_greeting_decode(bytes, len, &got));
    assert_true(got.is_last && !got.is_first);
    bytes[24] = 3; /* no such kind */
    assert_int_equal(WEFT_ERR_PROTOCOL, weft_nccl_greeting_decode(bytes, len, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_come_back),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(chunks_beyond_their_message_are_refused),
        cmocka_unit_test(handles_hold_what_fits),
        cmocka_unit_test(greetings_have_one_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
