/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include <setjmp.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ENTRIES 64
#define THREADS 4
#define CALLS 20000u

static struct weft_recorder open_recorder(uint32_t entries)
{
    const struct weft_recorder_spec spec = {
        .entries = entries, .job = "a job", .epoch = 1, .rank = 2, .ranks = 4, .host = "node7"};
    struct weft_recorder recorder;
    weft_recorder_open(&spec, &recorder);
    return recorder;
}

static struct weft_recording *copy_of(struct weft_recorder *recorder)
{
    size_t len = weft_recorder_len(recorder);
    struct weft_recording *copy = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    assert_non_null(copy);
    memset(copy, 0, len);
    weft_recorder_copy(recorder, copy);
    return copy;
}

/* Every word of an operation follows from its number. */
static uint64_t record_one(struct weft_recorder *recorder, uint32_t number)
{
    const struct weft_record_call call = {.comm = number * 3ull,
                                          .count = number * 5ull,
                                          .what = number * 7ull,
                                          .number = number,
                                          .signature = ~number,
                                          .chain = number * 11};
    return weft_recorder_begin(recorder, &call);
}

static bool is_as_recorded(const struct weft_record *line)
{
    uint32_t number = (uint32_t)line->call;
    return line->call >> 32 == (uint32_t)~number && line->comm == number * 3ull &&
           line->count == number * 5ull && line->what == number * 7ull &&
           (uint32_t)line->more == number * 11;
}

static bool is_whole(const struct weft_record *line)
{
    uint64_t words = line->began ^ line->comm ^ line->call ^ line->count ^ line->what;
    return line->stamp ==
           weft_record_stamp(((uint32_t)line->stamp - 2) / 2, words ^ (uint32_t)line->more);
}

static void the_ring_keeps_the_latest(void **state)
{
    struct weft_recorder recorder = open_recorder(ENTRIES);
    struct weft_recording *copy;
    (void)state;
    for (uint32_t i = 0; i < 3 * ENTRIES + 5; i++) {
        weft_recorder_end(&recorder, record_one(&recorder, i), WEFT_OK);
    }
    copy = copy_of(&recorder);
    assert_int_equal(copy->head.next, 3 * ENTRIES + 5);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        uint32_t number = (i < 5 ? 3u : 2u) * ENTRIES + i;
        assert_int_equal((uint32_t)copy->entry[i].stamp, 2 * number + 2);
        assert_true(is_whole(&copy->entry[i]));
        assert_int_equal((uint32_t)copy->entry[i].call, number);
        assert_true(is_as_recorded(&copy->entry[i]));
    }
    free(copy);
    weft_recorder_close(&recorder);
}

static void sizes_become_powers_of_two(void **state)
{
    static const uint32_t asked[] = {1, 16, 17, 1000, 1024}, made[] = {16, 16, 32, 1024, 1024};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(asked); i++) {
        struct weft_recorder recorder = open_recorder(asked[i]);
        assert_int_equal(weft_recorder_len(&recorder), weft_recording_len(made[i]));
        weft_recorder_close(&recorder);
    }
}

static void off_records_nothing(void **state)
{
    struct weft_recorder recorder = open_recorder(0);
    (void)state;
    assert_int_equal(record_one(&recorder, 1), 0);
    weft_recorder_end(&recorder, 0, WEFT_OK);
    weft_recorder_note(&recorder, 0, 1, 50);
    weft_recorder_comm_open(&recorder, 1, 0, 1);
    weft_recorder_comm_close(&recorder, 1);
    assert_int_equal(weft_recorder_name(&recorder, "ring"), 0);
    assert_int_equal(weft_recorder_len(&recorder), 0);
    weft_recorder_close(&recorder);
}

static void one_that_was_brief_ended_when_it_began(void **state)
{
    struct weft_recorder recorder = open_recorder(16);
    const struct weft_record *line;
    struct weft_recording *copy;
    (void)state;
    for (uint32_t i = 0; i < 20; i++) { /* so that the ring has gone around */
        weft_recorder_end_briefly(&recorder, record_one(&recorder, i));
    }
    copy = copy_of(&recorder);
    line = &copy->entry[3];
    assert_int_equal((uint32_t)line->call, 19);
    assert_int_equal(line->end >> 12, line->began >> 4 | 1);
    assert_int_equal(line->end & 0xfff, WEFT_OK << 7 | 1);
    free(copy);
    weft_recorder_end_briefly(&recorder, 0); /* of one that was not recorded */
    weft_recorder_close(&recorder);
}

/* Its line has another owner since. */
static void a_late_end_does_not_end_another_operation(void **state)
{
    struct weft_recorder recorder = open_recorder(16);
    struct weft_recording *copy;
    uint64_t old = record_one(&recorder, 0), new = 0;
    (void)state;
    for (uint32_t i = 1; i <= 16; i++) {
        new = record_one(&recorder, i);
    }
    assert_int_equal((new - 1) & recorder.mask, (old - 1) & recorder.mask);
    weft_recorder_end(&recorder, old, WEFT_OK);
    weft_recorder_note(&recorder, old, 3, 10);
    copy = copy_of(&recorder);
    assert_int_not_equal(copy->entry[0].end & 127, 1); /* an end, but not of the second round */
    assert_int_equal(copy->entry[0].more >> 32, 0);
    free(copy);
    weft_recorder_end(&recorder, new, WEFT_ERR_PEER);
    weft_recorder_note(&recorder, new, 3, 10);
    copy = copy_of(&recorder);
    assert_int_equal(copy->entry[0].end & 127, 1);
    assert_int_equal(copy->entry[0].end >> 7 & 31, WEFT_ERR_PEER);
    assert_int_equal(copy->entry[0].more >> 32 & 0xffffff, 4);
    assert_int_equal(copy->entry[0].more >> 56, 10);
    free(copy);
    weft_recorder_close(&recorder);
}

/* Somebody was stopped in the middle of writing. */
static void lines_that_are_not_whole_are_known(void **state)
{
    struct weft_recorder recorder = open_recorder(16);
    struct weft_recording *copy;
    (void)state;
    record_one(&recorder, 0);
    record_one(&recorder, 1);
    record_one(&recorder, 2);
    atomic_store(&recorder.image->entry[1].stamp, 2 * 1 + 1);
    atomic_store(&recorder.image->entry[2].count, 99); /* somebody's who slept for a round */
    copy = copy_of(&recorder);
    assert_true(is_whole(&copy->entry[0]));
    assert_false(is_whole(&copy->entry[1]));
    assert_false(is_whole(&copy->entry[2]));
    assert_int_equal(copy->entry[1].stamp, 3);
    assert_int_equal(copy->entry[3].stamp, 0);
    free(copy);
    weft_recorder_close(&recorder);
}

struct crowd {
    struct weft_recorder *recorder;
    _Atomic uint32_t number;
    _Atomic bool is_enough;
};

static void *record_many(void *context)
{
    struct crowd *crowd = context;
    for (uint32_t i = 0; i < CALLS || !atomic_load(&crowd->is_enough); i++) {
        uint64_t record = record_one(crowd->recorder, atomic_fetch_add(&crowd->number, 1));
        weft_recorder_note(crowd->recorder, record, 1, 1);
        weft_recorder_end(crowd->recorder, record, WEFT_OK);
        if (i % 1000 == 0) {
            weft_recorder_comm_open(crowd->recorder, i + 1, 0, 1);
            (void)weft_recorder_name(crowd->recorder, i % 2000 == 0 ? "ring" : "tree");
            weft_recorder_comm_close(crowd->recorder, i + 1);
        }
    }
    return NULL;
}

/* While threads write, whatever a copy calls whole is; they write until enough such lines were seen. */
static void copies_of_a_busy_ring_have_whole_lines(void **state)
{
    struct weft_recorder recorder = open_recorder(ENTRIES);
    struct crowd crowd = {.recorder = &recorder};
    pthread_t threads[THREADS];
    unsigned whole = 0, wrong = 0;
    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, &crowd), 0);
    }
    do {
        struct weft_recording *copy = copy_of(&recorder);
        for (uint32_t i = 0; i < ENTRIES; i++) {
            if (copy->entry[i].stamp != 0 && is_whole(&copy->entry[i])) {
                wrong += !is_as_recorded(&copy->entry[i]);
                wrong += ((uint32_t)copy->entry[i].stamp - 2) / 2 % ENTRIES != i;
                whole++;
            }
        }
        free(copy);
    } while (whole < ENTRIES && wrong == 0);
    atomic_store(&crowd.is_enough, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(recorder.image->head.next, atomic_load(&crowd.number));
    assert_int_equal(recorder.image->head.name_count, 2);
    weft_recorder_close(&recorder);
}

static void communicators_are_kept_after_their_end_while_there_is_room(void **state)
{
    struct weft_recorder recorder = open_recorder(16);
    struct weft_record_comm *comms = recorder.image->comms;
    (void)state;
    for (uint64_t id = 1; id <= WEFT_RECORD_COMMS; id++) {
        weft_recorder_comm_open(&recorder, id, 1, 4);
    }
    weft_recorder_comm_open(&recorder, 1000, 1, 4); /* all are in use: it goes without */
    weft_recorder_comm_close(&recorder, 5);
    weft_recorder_comm_close(&recorder, 4);
    assert_int_equal(comms[4].id, 5);
    weft_recorder_comm_open(&recorder, 1001, 2, 3);
    assert_int_equal(comms[3].id, 1001); /* the oldest that is closed */
    assert_int_equal(comms[3].rank, 2);
    assert_int_equal(comms[3].is_closed, 0);
    assert_int_equal(comms[4].id, 5);
    weft_recorder_close(&recorder);
}

static void others_find_it_among_the_descriptors(void **state)
{
    unsigned before = weft_fd_count();
    struct weft_recorder recorder = open_recorder(16);
    char path[64], target[128] = "";
    (void)state;
    assert_int_equal(weft_fd_count(), before + 1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", recorder.fd);
    assert_true(readlink(path, target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "/memfd:weft recorder rank 2 (deleted)");
    weft_recorder_close(&recorder);
    assert_int_equal(weft_fd_count(), before);
}

/* The kernel would answer with a signal, which nobody here catches. */
static void what_no_file_may_have_is_recorded_in_private_memory(void **state)
{
    unsigned before = weft_fd_count();
    struct weft_recorder recorder;
    struct weft_recording *copy;
    struct rlimit all, little;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    little = (struct rlimit){.rlim_cur = weft_recording_len(16) - 1, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    recorder = open_recorder(16);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(recorder.fd, -1);
    assert_int_equal(weft_fd_count(), before);
    weft_recorder_end(&recorder, record_one(&recorder, 7), WEFT_OK);
    copy = copy_of(&recorder);
    assert_true(is_whole(&copy->entry[0]) && is_as_recorded(&copy->entry[0]));
    free(copy);
    weft_recorder_close(&recorder);
    assert_int_equal(weft_fd_count(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_keeps_the_latest),
        cmocka_unit_test(sizes_become_powers_of_two),
        cmocka_unit_test(off_records_nothing),
        cmocka_unit_test(one_that_was_brief_ended_when_it_began),
        cmocka_unit_test(a_late_end_does_not_end_another_operation),
        cmocka_unit_test(lines_that_are_not_whole_are_known),
        cmocka_unit_test(copies_of_a_busy_ring_have_whole_lines),
        cmocka_unit_test(communicators_are_kept_after_their_end_while_there_is_room),
        cmocka_unit_test(others_find_it_among_the_descriptors),
        cmocka_unit_test(what_no_file_may_have_is_recorded_in_private_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
