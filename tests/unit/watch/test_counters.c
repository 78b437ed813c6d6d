/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/watch.h"

#include <setjmp.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#define THREADS 4
#define COUNTS 10000U

static void every_counter_has_its_own_name_and_a_sentence(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WEFT_COUNTER_COUNT; i++) {
        assert_true(strlen(weft_counter_name(i)) > 0);
        assert_true(strlen(weft_counter_sentence(i)) > strlen(weft_counter_name(i)));
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(weft_counter_name(i), weft_counter_name(j));
        }
    }
    assert_string_equal(weft_counter_name(WEFT_COUNTER_ROUNDS), "rounds");
    assert_string_equal(weft_counter_name(WEFT_COUNTER_SILENCES), "silences");
}

static void counting_changes_one_counter_only(void **state)
{
    struct weft_counters counters = {0};

    (void)state;
    weft_count(&counters, WEFT_COUNTER_BYTES_IN, 100);
    weft_count(&counters, WEFT_COUNTER_BYTES_IN, 28);
    for (unsigned i = 0; i < WEFT_COUNTER_COUNT; i++) {
        assert_int_equal(weft_counter_read(&counters, i), i == WEFT_COUNTER_BYTES_IN ? 128 : 0);
    }
}

static void *count_many(void *context)
{
    for (unsigned i = 0; i < COUNTS; i++) {
        weft_count(context, WEFT_COUNTER_FRAMES_OUT, 1);
    }
    return NULL;
}

static void counts_of_many_threads_add_up(void **state)
{
    struct weft_counters counters = {0};
    pthread_t threads[THREADS];

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, &counters), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(weft_counter_read(&counters, WEFT_COUNTER_FRAMES_OUT), THREADS * COUNTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_counter_has_its_own_name_and_a_sentence),
        cmocka_unit_test(counting_changes_one_counter_only),
        cmocka_unit_test(counts_of_many_threads_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
