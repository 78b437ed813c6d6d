/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that take as long as a test says, on a clock that only the test moves. */
#include "exec/internal.h"

#include "../plan/support.h"

#include <stdlib.h>
#include <time.h>

#define SHORT ((size_t)64 << 10)
#define LONG ((size_t)8 << 20)

static uint64_t now_ns = 1000000;

int clock_gettime(clockid_t clock, struct timespec *now) /* NOLINT(readability-inconsistent-*) */
{
    (void)clock;
    now->tv_sec = (time_t)(now_ns / 1000000000);
    now->tv_nsec = (long)(now_ns % 1000000000);
    return 0;
}

/* Rank 0 of a board that runs one operation after another. */
struct bench {
    struct weft_exec *exec;
    struct weft_plan plan;
    struct weft_exec_run run;
    uint64_t slots_ns, cma_ns; /* what operations take */
    uint64_t cold_ns;          /* … and so much more when the one before went the other way */
    bool was_pulled;
};

static void open_bench(struct bench *bench, size_t len)
{
    *bench = (struct bench){.exec = calloc(1, sizeof(struct weft_exec)),
                            .plan = {.coll = WEFT_BROADCAST}};
    assert_non_null(bench->exec);
    bench->run.exec = bench->exec;
    bench->run.plan = &bench->plan;
    bench->run.binding.total_len = len;
    bench->run.binding.ranks = 2;
    bench->run.binding.is_vector = true;
}

static void close_bench(struct bench *bench)
{
    free(bench->exec);
}

static void set_us(struct bench *bench, uint64_t slots_us, uint64_t cma_us)
{
    bench->slots_ns = slots_us * 1000;
    bench->cma_ns = cma_us * 1000;
}

/* One operation that takes so much longer; was it by CMA? */
static bool do_one(struct bench *bench, uint64_t more_ns)
{
    bool is_pulled = weft_exec_way_begin(&bench->run);

    assert_int_equal(is_pulled, bench->run.is_pulled);
    assert_int_equal(bench->run.entered_ns, now_ns);
    now_ns += (is_pulled ? bench->cma_ns : bench->slots_ns) + more_ns;
    now_ns += is_pulled != bench->was_pulled ? bench->cold_ns : 0;
    bench->was_pulled = is_pulled;
    weft_exec_way_end(&bench->run);
    now_ns += 100000; /* what happens between two does not count */
    return is_pulled;
}

/* How many of them go by CMA. */
static uint32_t do_many(struct bench *bench, uint32_t count)
{
    uint32_t pulled = 0;

    for (uint32_t i = 0; i < count; i++) {
        pulled += do_one(bench, 0);
    }
    return pulled;
}

/* Operations until `times` in a row went this way. */
static uint32_t count_until(struct bench *bench, bool is_pulled, uint32_t times)
{
    uint32_t count = 0, row = 0;

    while (row < times && count < 10000) {
        row = do_one(bench, 0) == is_pulled ? row + 1 : 0;
        count++;
    }
    return count - times;
}

static void both_ways_are_tried_first(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench, SHORT);
    set_us(&bench, 10, 1000); /* even if it takes long */
    assert_int_equal(do_many(&bench, 3), 0);
    assert_int_equal(do_many(&bench, 3), 3);
    assert_int_equal(do_many(&bench, 50), 0);
    close_bench(&bench);
    open_bench(&bench, LONG); /* one such operation says enough */
    set_us(&bench, 10000, 5000);
    assert_int_equal(do_many(&bench, 1), 0);
    assert_int_equal(do_many(&bench, 1), 1);
    assert_int_equal(do_many(&bench, 50), 50);
    close_bench(&bench);
    open_bench(&bench, LONG / 32); /* a piece for each of eight: 16 MB go round */
    bench.run.binding.ranks = 8;
    bench.run.binding.is_vector = false;
    set_us(&bench, 10000, 5000);
    assert_int_equal(do_many(&bench, 1), 0);
    assert_int_equal(do_many(&bench, 50), 50);
    close_bench(&bench);
}

static void expect_share(size_t len, uint64_t slots_us, uint64_t cma_us, uint32_t most_wrong)
{
    struct bench bench;
    uint32_t pulled, wrong;

    open_bench(&bench, len);
    set_us(&bench, slots_us, cma_us);
    do_many(&bench, 6);
    pulled = do_many(&bench, 2560);
    wrong = cma_us < slots_us ? 2560 - pulled : pulled;
    assert_in_range(wrong, 1, most_wrong); /* it is tried again now and then */
    close_bench(&bench);
}

static void the_faster_one_is_taken(void **state)
{
    (void)state;
    expect_share(SHORT, 10, 11, 2560 / 64 * 3);
    expect_share(SHORT, 11, 10, 2560 / 64 * 3);
    expect_share(SHORT, 10, 15, 2560 / 576 * 3 + 3); /* more rarely what is further behind */
    expect_share(SHORT, 10, 30, 2560 / 1024 * 3 + 3);
    expect_share(SHORT, 30, 10, 2560 / 256 * 3);
    expect_share(LONG, 1000, 1100, 2560 / 64);
    expect_share(LONG, 1100, 1000, 2560 / 64);
    expect_share(LONG, 3000, 1000, 2560 / 256);
}

static void the_first_operation_after_a_change_does_not_count(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench, SHORT);
    bench.cold_ns = 5000000;
    bench.was_pulled = true;
    set_us(&bench, 11, 10);
    assert_true(do_many(&bench, 2000) >= 1900);
    set_us(&bench, 5, 10);
    assert_true(count_until(&bench, false, 20) <= 256 + 3);
    assert_true(do_many(&bench, 2000) <= 100);
    close_bench(&bench);
    open_bench(&bench, SHORT); /* nor if it was shorter than what followed */
    set_us(&bench, 1, 10);
    do_many(&bench, 1);
    set_us(&bench, 20, 10);
    do_many(&bench, 5);
    assert_int_equal(do_many(&bench, 20), 20);
    close_bench(&bench);
}

static void an_operation_held_up_in_a_trial_does_not_count(void **state)
{
    struct bench bench;

    (void)state;
    for (uint32_t held_up = 1; held_up <= 2; held_up++) { /* of the two that count */
        open_bench(&bench, SHORT);
        set_us(&bench, 20, 10);
        for (uint32_t i = 0; i < 6; i++) {
            do_one(&bench, i == 3 + held_up ? 1000000 : 0);
        }
        assert_int_equal(do_many(&bench, 50), 50);
        close_bench(&bench);
    }
}

static void a_slow_operation_does_not_change_it_for_long(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench, SHORT);
    set_us(&bench, 20, 10);
    do_many(&bench, 100);
    do_one(&bench, 50000); /* six times as long as it takes: it stays as it is */
    assert_int_equal(do_many(&bench, 20), 20);
    do_one(&bench, 10000000); /* a thousand times: the other one is taken, until the next trial */
    assert_true(count_until(&bench, true, 20) <= 256 + 3);
    assert_true(do_many(&bench, 1000) >= 950);
    close_bench(&bench);
}

static void a_way_that_becomes_slow_is_left(void **state)
{
    struct bench bench;
    const size_t lens[] = {SHORT, LONG};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
        open_bench(&bench, lens[i]);
        set_us(&bench, 20, 10);
        do_many(&bench, 1000);
        set_us(&bench, 20, 200);
        assert_true(count_until(&bench, false, 20) <= 20);
        assert_true(do_many(&bench, 2560) <= 2560 / 64 * 3);
        set_us(&bench, 20, 10); /* and the other one, when it is fast again */
        assert_true(count_until(&bench, true, 20) <= (lens[i] == LONG ? 256 : 1024) + 3);
        set_us(&bench, 8, 10); /* also if only the other one changes */
        assert_true(count_until(&bench, false, 20) <= 1024 + 3);
        close_bench(&bench);
    }
}

static void each_collective_and_length_goes_its_own_way(void **state)
{
    struct bench bench;
    uint32_t colls[] = {WEFT_BROADCAST, WEFT_ALLGATHER, WEFT_ALLTOALL};
    size_t lens[] = {0, 1, SHORT, 2 * SHORT, LONG, SIZE_MAX};
    uint32_t pulled[3][6] = {0};

    (void)state;
    open_bench(&bench, SHORT);
    for (uint32_t i = 0; i < 200 * 18; i++) { /* in turn */
        uint32_t coll = i % 3, len = i / 3 % 6;
        bench.plan.coll = colls[coll];
        bench.run.binding.total_len = lens[len];
        set_us(&bench, 20, (coll + len) % 2 == 0 ? 10 : 30);
        pulled[coll][len] += do_one(&bench, 0);
    }
    for (uint32_t i = 0; i < 18; i++) {
        uint32_t coll = i % 3, len = i / 3;
        if (len == 0 || len == 1) { /* 0 and 1 bytes are one length */
            continue;
        }
        assert_true((coll + len) % 2 == 0 ? pulled[coll][len] >= 180 : pulled[coll][len] <= 20);
    }
    close_bench(&bench);
}

static void who_wants_cma_gets_it(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench, SHORT);
    set_us(&bench, 10, 1000);
    bench.exec->spec.is_pulled = true;
    assert_int_equal(do_many(&bench, 1000), 1000);
    close_bench(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_are_tried_first),
        cmocka_unit_test(the_faster_one_is_taken),
        cmocka_unit_test(the_first_operation_after_a_change_does_not_count),
        cmocka_unit_test(an_operation_held_up_in_a_trial_does_not_count),
        cmocka_unit_test(a_slow_operation_does_not_change_it_for_long),
        cmocka_unit_test(a_way_that_becomes_slow_is_left),
        cmocka_unit_test(each_collective_and_length_goes_its_own_way),
        cmocka_unit_test(who_wants_cma_gets_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
