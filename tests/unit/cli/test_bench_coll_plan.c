/* SPDX-License-Identifier: Apache-2.0 */
/* What a collective's benchmark will run, how often, and what follows from the operation alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench_coll.h"

static struct coll_arguments arguments_of(weft_coll_t coll)
{
    return (struct coll_arguments){.coll = coll,
                                   .dtype = WEFT_F32,
                                   .min_bytes = 8,
                                   .max_bytes = 1024,
                                   .factor = 2,
                                   .time_ms = 200,
                                   .warmup = -1,
                                   .root = -1};
}

/* ---- cells ---- */

static void sizes_go_from_min_to_max_in_both_places(void **state)
{
    struct coll_arguments arguments = arguments_of(WEFT_ALLREDUCE);
    struct coll_plan plan;
    (void)state;
    weft_bench_coll_plan(&arguments, 4, false, &plan);
    assert_int_equal(plan.count, 16);
    assert_int_equal(plan.cell[0].bytes, 8);
    assert_int_equal(plan.cell[0].count, 2);
    assert_false(plan.cell[0].is_inplace);
    assert_true(plan.cell[1].is_inplace);
    assert_int_equal(plan.cell[15].bytes, 1024);
    assert_null(plan.cell[0].algo);
    assert_true(plan.buffer_len >= 1024);
    free(plan.cell);
    arguments.is_inplace = true;
    weft_bench_coll_plan(&arguments, 4, false, &plan);
    assert_int_equal(plan.count, 8);
    assert_true(plan.cell[0].is_inplace);
    free(plan.cell);
    arguments.is_inplace = false;
    arguments.is_outplace = true;
    weft_bench_coll_plan(&arguments, 4, false, &plan);
    assert_int_equal(plan.count, 8);
    assert_false(plan.cell[7].is_inplace);
    free(plan.cell);
}

static void pieces_are_whole_and_not_empty(void **state)
{
    struct coll_arguments arguments = arguments_of(WEFT_ALLGATHER);
    struct coll_plan plan;
    (void)state;
    arguments.is_outplace = true;
    weft_bench_coll_plan(&arguments, 8, false, &plan);
    /* 8, 16 and 32 bytes are all one element of each rank */
    assert_int_equal(plan.cell[0].count, 1);
    assert_int_equal(plan.cell[0].bytes, 32);
    assert_int_equal(plan.cell[1].bytes, 64);
    assert_int_equal(plan.count, 6);
    free(plan.cell);
    arguments.min_bytes = 100;
    weft_bench_coll_plan(&arguments, 3, false, &plan);
    assert_int_equal(plan.cell[0].count, 8);
    assert_int_equal(plan.cell[0].bytes, 96);
    free(plan.cell);
}

static void alltoall_and_barrier_are_never_in_place(void **state)
{
    struct coll_arguments arguments = arguments_of(WEFT_ALLTOALL);
    struct coll_plan plan;
    (void)state;
    weft_bench_coll_plan(&arguments, 2, false, &plan);
    for (size_t i = 0; i < plan.count; i++) {
        assert_false(plan.cell[i].is_inplace);
    }
    free(plan.cell);
    arguments = arguments_of(WEFT_BARRIER);
    weft_bench_coll_plan(&arguments, 2, false, &plan);
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.cell[0].bytes, 0);
    free(plan.cell);
}

static void all_algorithms_get_a_row_each_where_they_can(void **state)
{
    struct coll_arguments arguments = arguments_of(WEFT_ALLREDUCE);
    struct coll_plan plan;
    char *names = NULL;
    (void)state;
    arguments.algo = "all";
    arguments.is_outplace = true;
    arguments.max_bytes = 8;
    weft_bench_coll_plan(&arguments, 4, false, &plan);
    size_t everywhere = plan.count;
    assert_true(everywhere > 2);
    assert_null(plan.cell[0].algo); /* the library's own choice first */
    for (size_t i = 1; i < plan.count; i++) {
        assert_true(weft_bench_coll_knows_algo(WEFT_ALLREDUCE, plan.cell[i].algo, &names));
        assert_non_null(strstr(names, plan.cell[i].algo));
        free(names);
        for (size_t k = 1; k < i; k++) {
            assert_string_not_equal(plan.cell[i].algo, plan.cell[k].algo);
        }
    }
    free(plan.cell);
    weft_bench_coll_plan(&arguments, 4, true, &plan); /* over hosts one more */
    assert_int_equal(plan.count, everywhere + 1);
    assert_string_equal(plan.cell[plan.count - 1].algo, "hierarchical");
    assert_true(weft_bench_coll_knows_algo(WEFT_ALLREDUCE, "hierarchical", &names));
    assert_non_null(strstr(names, "hierarchical"));
    free(names);
    free(plan.cell);
    arguments.path = COLL_TCP; /* without those through shared memory */
    weft_bench_coll_plan(&arguments, 4, false, &plan);
    assert_true(plan.count > 1 && plan.count < everywhere);
    free(plan.cell);
    assert_false(weft_bench_coll_knows_algo(WEFT_ALLREDUCE, "zigzag", &names));
    assert_int_equal(strncmp(names, "all, ", 5), 0);
    free(names);
}

/* ---- how often ---- */

static void batches_last_ten_milliseconds(void **state)
{
    struct coll_arguments arguments = arguments_of(WEFT_ALLREDUCE);
    (void)state;
    struct coll_counts counts = weft_bench_coll_counts(&arguments, 100e-6);
    assert_int_equal(counts.iters, 100);
    assert_int_equal(counts.samples, 20);
    counts = weft_bench_coll_counts(&arguments, 50e-9); /* short ones: not endlessly many */
    assert_int_equal(counts.iters, 5000);
    assert_int_equal(counts.samples, 100);
    counts = weft_bench_coll_counts(&arguments, 0.1); /* long ones: three at least */
    assert_int_equal(counts.iters, 3);
    assert_int_equal(counts.samples, 1);
    counts = weft_bench_coll_counts(&arguments, 1.5); /* unless they take seconds */
    assert_int_equal(counts.iters, 1);
    arguments.iters = 7;
    counts = weft_bench_coll_counts(&arguments, 100e-6);
    assert_int_equal(counts.iters, 7);
}

static void singles_fit_into_one_message(void **state)
{
    struct coll_arguments arguments = arguments_of(WEFT_ALLREDUCE);
    (void)state;
    arguments.is_single = true;
    struct coll_counts counts = weft_bench_coll_counts(&arguments, 100e-6);
    assert_int_equal(counts.iters, 1);
    assert_int_equal(counts.samples, 2000);
    assert_int_equal(weft_bench_coll_counts(&arguments, 1e-9).samples, COLL_SAMPLES_MAX);
    assert_int_equal(weft_bench_coll_counts(&arguments, 10).samples, 10);
    arguments.iters = 3;
    assert_int_equal(weft_bench_coll_counts(&arguments, 1e-9).samples, 3);
    assert_true(COLL_SAMPLES_MAX * sizeof(uint64_t) <= WEFT_CONTROL_MAX);
}

/* A hiccup in the first batch must not decide how many operations a batch has. */
static void warming_up_ends_when_a_batch_has_lasted(void **state)
{
    (void)state;
    assert_int_equal(weft_bench_coll_warm(0, 3, 0.01), 0);       /* 30 ms: long operations */
    assert_int_equal(weft_bench_coll_warm(0, 3, 100e-6), 200);   /* 0.3 ms: once more, 20 ms */
    assert_int_equal(weft_bench_coll_warm(1, 200, 100e-6), 0);   /* it lasted */
    assert_int_equal(weft_bench_coll_warm(1, 20, 400e-9), 1000); /* the first was a hiccup */
    assert_int_equal(weft_bench_coll_warm(2, 1000, 100e-9), 0);
    assert_int_equal(weft_bench_coll_warm(3, 20, 1e-9), 0); /* not for ever */
}

/* ---- what follows from the operation ---- */

static void bus_factors_are_those_of_nccl_tests(void **state)
{
    (void)state;
    assert_float_equal(weft_bench_coll_bus_factor(WEFT_ALLREDUCE, 8), 1.75, 1e-12);
    assert_float_equal(weft_bench_coll_bus_factor(WEFT_REDUCE_SCATTER, 4), 0.75, 1e-12);
    assert_float_equal(weft_bench_coll_bus_factor(WEFT_ALLTOALL, 2), 0.5, 1e-12);
    assert_float_equal(weft_bench_coll_bus_factor(WEFT_BROADCAST, 8), 1, 1e-12);
    assert_float_equal(weft_bench_coll_bus_factor(WEFT_REDUCE, 8), 1, 1e-12);
    assert_true(isnan(weft_bench_coll_bus_factor(WEFT_BARRIER, 8)));
}

static void floors_count_every_byte_once(void **state)
{
    struct coll_cell out = {.bytes = 100}, in = {.bytes = 100, .is_inplace = true};
    (void)state;
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_ALLREDUCE, 4, &out), 800, 1e-9);
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_REDUCE_SCATTER, 4, &out), 500, 1e-9);
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_ALLGATHER, 4, &out), 500, 1e-9);
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_ALLGATHER, 4, &in), 400, 1e-9);
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_BROADCAST, 4, &in), 400, 1e-9);
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_GATHER, 4, &out), 200, 1e-9);
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_SCATTER, 4, &in), 150, 1e-9);
    assert_float_equal(weft_bench_coll_memory_bytes(WEFT_ALLTOALL, 4, &out), 800, 1e-9);
    assert_float_equal(weft_bench_coll_wire_bytes(WEFT_ALLREDUCE, 4, 100), 600, 1e-9);
    assert_float_equal(weft_bench_coll_wire_bytes(WEFT_BROADCAST, 4, 100), 300, 1e-9);
    assert_float_equal(weft_bench_coll_wire_bytes(WEFT_GATHER, 4, 100), 75, 1e-9);
    assert_float_equal(weft_bench_coll_wire_bytes(WEFT_BARRIER, 4, 100), 0, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_go_from_min_to_max_in_both_places),
        cmocka_unit_test(pieces_are_whole_and_not_empty),
        cmocka_unit_test(alltoall_and_barrier_are_never_in_place),
        cmocka_unit_test(all_algorithms_get_a_row_each_where_they_can),
        cmocka_unit_test(batches_last_ten_milliseconds),
        cmocka_unit_test(singles_fit_into_one_message),
        cmocka_unit_test(warming_up_ends_when_a_batch_has_lasted),
        cmocka_unit_test(bus_factors_are_those_of_nccl_tests),
        cmocka_unit_test(floors_count_every_byte_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
