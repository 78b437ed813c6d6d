/* SPDX-License-Identifier: Apache-2.0 */
/* Flight recorders, read: what was recorded comes back; what was cut or changed is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "wire/dump.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES 16
#define LEN (sizeof(struct weft_recording) + ENTRIES * sizeof(struct weft_record))

struct sample {
    struct weft_recorder recorder;
    struct weft_recording *copy;
};

static uint64_t record(struct sample *sample, uint32_t number, uint32_t kind, uint32_t peer)
{
    const struct weft_record_call call = {
        .comm = 77,
        .count = 100,
        .number = number,
        .signature = 0xabcd0000u + number,
        .chain = 5,
        .what = weft_record_what(kind, WEFT_F32, WEFT_MAX,
                                 weft_recorder_name(&sample->recorder, "ring"), peer)};
    return weft_recorder_begin(&sample->recorder, &call);
}

static void open_sample(struct sample *sample)
{
    const struct weft_recorder_spec spec = {
        .entries = ENTRIES, .job = "a job", .epoch = 1, .rank = 2, .ranks = 4, .host = "node7"};
    weft_recorder_open(&spec, &sample->recorder);
    assert_int_equal(weft_recorder_len(&sample->recorder), LEN);
    sample->copy = aligned_alloc(4096, (LEN + 4095) / 4096 * 4096);
    assert_non_null(sample->copy);
    memset(sample->copy, 0, LEN);
    weft_recorder_comm_open(&sample->recorder, 77, 1, 3);
    weft_recorder_comm_calls(&sample->recorder, 77, 9);
    weft_recorder_end(&sample->recorder, record(sample, 0, WEFT_ALLREDUCE, 0), WEFT_OK);
    weft_recorder_end(&sample->recorder, record(sample, 1, WEFT_BROADCAST, 2), WEFT_ERR_PEER);
    weft_recorder_note(&sample->recorder, record(sample, 0, WEFT_RECORD_RECV, 3), 3, 40);
    weft_recorder_copy(&sample->recorder, sample->copy);
    sample->copy->head.reason = WEFT_RECORD_FAILED;
    sample->copy->head.status = WEFT_ERR_PEER;
    sample->copy->head.blamed = 1 + 1;
    strcpy(sample->copy->head.text, "rank 1\ndied");
    weft_wire_dump_seal(sample->copy, LEN);
}

static void close_sample(struct sample *sample)
{
    free(sample->copy);
    weft_recorder_close(&sample->recorder);
}

static void what_was_recorded_comes_back(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    struct weft_dump_entry entry;
    char name[WEFT_RECORD_NAME_LEN];
    struct weft_dump_comm comm;
    (void)state;
    open_sample(&sample);
    assert_int_equal(weft_wire_dump_open(sample.copy, LEN, NULL, &dump), WEFT_OK);
    assert_int_equal(dump.rank, 2);
    assert_int_equal(dump.ranks, 4);
    assert_int_equal(dump.status, WEFT_ERR_PEER);
    assert_int_equal(dump.blamed, 1);
    assert_string_equal(dump.host, "node7");
    assert_string_equal(dump.text, "rank 1?died");
    assert_true(weft_wire_dump_comm(&dump, 0, &comm));
    assert_true(comm.id == 77 && comm.rank == 1 && comm.ranks == 3 && comm.control_calls == 9);
    assert_false(weft_wire_dump_comm(&dump, 1, &comm));
    assert_true(weft_wire_dump_entry(&dump, 0, &entry));
    assert_int_equal(entry.state, WEFT_DUMP_ENDED);
    assert_int_equal(entry.status, WEFT_OK);
    assert_true(entry.kind == WEFT_ALLREDUCE && entry.dtype == WEFT_F32 && entry.op == WEFT_MAX);
    assert_true(entry.comm == 77 && entry.count == 100 && entry.number == 0 && entry.tag == 5);
    assert_int_equal(entry.signature, 0xabcd0000u);
    assert_string_equal(weft_wire_dump_name(&dump, entry.name, name), "ring");
    assert_true(weft_wire_dump_entry(&dump, 1, &entry));
    assert_int_equal(entry.status, WEFT_ERR_PEER);
    assert_int_equal(entry.peer, 2);
    assert_true(weft_wire_dump_entry(&dump, 2, &entry));
    assert_int_equal(entry.state, WEFT_DUMP_GOING);
    assert_true(entry.waits_for == 3 && entry.percent == 40 && entry.ended_ns == 0);
    assert_false(weft_wire_dump_entry(&dump, 3, &entry));
    close_sample(&sample);
}

static void times_are_those_of_the_wall(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    struct weft_dump_entry entry;
    int64_t before_ns = (int64_t)weft_clock_real_ns(), after_ns;
    (void)state;
    open_sample(&sample);
    after_ns = (int64_t)weft_clock_real_ns();
    assert_int_equal(weft_wire_dump_open(sample.copy, LEN, NULL, &dump), WEFT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(weft_wire_dump_entry(&dump, i, &entry));
        /* the counter's rate comes from a short time here: a millisecond is near enough */
        assert_in_range(entry.began_ns, before_ns - 1000000, after_ns + 1000000);
        assert_true(entry.ended_ns == 0 || entry.ended_ns >= entry.began_ns);
    }
    close_sample(&sample);
}

/* A rank's memory has no checksum, and says itself that it is none of a dump. */
static void memory_of_a_rank_is_read_with_the_time_of_reading(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    struct weft_recorder_time now;
    (void)state;
    open_sample(&sample);
    now = weft_recorder_now();
    assert_int_equal(weft_wire_dump_open(sample.recorder.image, LEN, &now, &dump), WEFT_OK);
    assert_int_equal(dump.taken.ns, now.ns);
    assert_int_equal(weft_wire_dump_open(sample.recorder.image, LEN, NULL, &dump),
                     WEFT_ERR_PROTOCOL);
    assert_int_equal(weft_wire_dump_open(sample.copy, LEN, &now, &dump), WEFT_ERR_PROTOCOL);
    close_sample(&sample);
}

static void every_cut_is_refused(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    (void)state;
    open_sample(&sample);
    for (size_t len = 0; len < LEN; len++) {
        uint8_t *cut = malloc(len + 1); /* to the byte, for the sanitizer */
        assert_non_null(cut);
        memcpy(cut, sample.copy, len);
        assert_int_equal(weft_wire_dump_open(cut, len, NULL, &dump), WEFT_ERR_PROTOCOL);
        free(cut);
    }
    close_sample(&sample);
}

static void every_flipped_bit_is_refused(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    uint8_t *bytes;
    (void)state;
    open_sample(&sample);
    bytes = (uint8_t *)sample.copy;
    for (size_t i = 0; i < LEN * 8; i++) {
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        assert_int_not_equal(weft_wire_dump_open(bytes, LEN, NULL, &dump), WEFT_OK);
        bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    assert_int_equal(weft_wire_dump_open(bytes, LEN, NULL, &dump), WEFT_OK);
    close_sample(&sample);
}

/* Without a checksum, whatever a byte of it becomes: nothing outside of the tables, nothing that crashes. */
static void live_memory_may_hold_anything(void **state)
{
    static const uint8_t planted[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    static const struct weft_recorder_time now = {UINT64_MAX, UINT64_MAX, INT64_MAX};
    struct sample sample;
    struct weft_dump dump;
    struct weft_dump_entry entry;
    uint8_t *bytes;
    (void)state;
    open_sample(&sample);
    bytes = (uint8_t *)sample.copy;
    sample.copy->head.reason = WEFT_RECORD_LIVE;
    for (size_t i = 0; i < LEN * sizeof(planted); i++) {
        uint8_t old = bytes[i / sizeof(planted)];
        bytes[i / sizeof(planted)] = planted[i % sizeof(planted)];
        if (weft_wire_dump_open(bytes, LEN, &now, &dump) == WEFT_OK) {
            for (uint32_t slot = 0; slot < dump.entries; slot++) {
                if (weft_wire_dump_entry(&dump, slot, &entry) && entry.state != WEFT_DUMP_TORN) {
                    assert_true(weft_record_kind_name(entry.kind) != NULL &&
                                entry.dtype < WEFT_DTYPES && entry.op < WEFT_REDOPS &&
                                entry.name <= dump.name_count);
                }
            }
        }
        bytes[i / sizeof(planted)] = old;
    }
    close_sample(&sample);
}

static void another_version_is_named(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    (void)state;
    open_sample(&sample);
    sample.copy->head.version = 9;
    weft_wire_dump_seal(sample.copy, LEN);
    assert_int_equal(weft_wire_dump_open(sample.copy, LEN, NULL, &dump), WEFT_ERR_VERSION);
    assert_non_null(strstr(weft_error_text(), "version 9; this weft reads version 1"));
    close_sample(&sample);
}

static void torn_lines_and_lost_ends_are_told_apart(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    struct weft_dump_entry entry;
    (void)state;
    open_sample(&sample);
    atomic_store(&sample.copy->entry[0].stamp, 1);
    atomic_store(&sample.copy->entry[1].end, sample.copy->entry[1].end ^ 1);
    atomic_store(&sample.copy->entry[2].count, 101); /* of another operation */
    weft_wire_dump_seal(sample.copy, LEN);
    assert_int_equal(weft_wire_dump_open(sample.copy, LEN, NULL, &dump), WEFT_OK);
    assert_true(weft_wire_dump_entry(&dump, 0, &entry));
    assert_int_equal(entry.state, WEFT_DUMP_TORN);
    assert_true(weft_wire_dump_entry(&dump, 1, &entry));
    assert_int_equal(entry.state, WEFT_DUMP_UNKNOWN);
    assert_true(weft_wire_dump_entry(&dump, 2, &entry));
    assert_int_equal(entry.state, WEFT_DUMP_TORN);
    close_sample(&sample);
}

/* Indices have 32 bits in a line, of which one is used up. */
static void a_ring_may_go_around_for_ever(void **state)
{
    struct sample sample;
    struct weft_dump dump;
    struct weft_dump_entry entry;
    uint64_t first = (UINT64_C(5) << 31) - 3;
    (void)state;
    open_sample(&sample);
    atomic_store(&sample.recorder.image->head.next, first);
    for (uint32_t i = 0; i < 6; i++) {
        weft_recorder_end(&sample.recorder, record(&sample, i, WEFT_BARRIER, 0), WEFT_OK);
    }
    weft_recorder_copy(&sample.recorder, sample.copy);
    sample.copy->head.reason = WEFT_RECORD_ASKED;
    weft_wire_dump_seal(sample.copy, LEN);
    assert_int_equal(weft_wire_dump_open(sample.copy, LEN, NULL, &dump), WEFT_OK);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(weft_wire_dump_entry(&dump, (uint32_t)((first + i) % ENTRIES), &entry));
        assert_int_equal(entry.state, WEFT_DUMP_ENDED);
        assert_true(entry.index == first + i && entry.number == i);
    }
    close_sample(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_recorded_comes_back),
        cmocka_unit_test(times_are_those_of_the_wall),
        cmocka_unit_test(memory_of_a_rank_is_read_with_the_time_of_reading),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(live_memory_may_hold_anything),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(a_ring_may_go_around_for_ever),
        cmocka_unit_test(torn_lines_and_lost_ends_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
