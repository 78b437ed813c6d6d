/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a collective's benchmark give and must get, against sums made another way. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench_coll.h"
#include "reduce/reduce.h"

static struct coll_pattern given[64], wanted;

/* The library's kernels, which are tested by themselves, in two orders. */
static void reduce(weft_dtype_t dtype, weft_redop_t redop, int ranks, bool is_backward, void *out)
{
    const void *sources[64];
    void *outputs[1] = {out};
    bool is_sum = redop == WEFT_AVG || redop == WEFT_SCALED;
    for (int i = 0; i < ranks; i++) {
        sources[i] = given[is_backward ? ranks - 1 - i : i].bytes;
    }
    struct weft_reduce what = {.dtype = dtype,
                               .op = is_sum ? WEFT_SUM : redop,
                               .divide_by = redop == WEFT_AVG ? (uint32_t)ranks : 1,
                               .before = redop == WEFT_SCALED ? COLL_SCALE : 1.0,
                               .sources = (uint32_t)ranks,
                               .outputs = 1,
                               .source = sources,
                               .output = outputs};
    weft_reduce_run(&what, COLL_PERIOD);
}

static void every_type_and_op_has_the_result_that_is_wanted(void **state)
{
    static const int numbers[] = {1, 2, 3, 8, 33, 64};
    static uint8_t out[sizeof(wanted.bytes)];
    size_t at = 0;
    (void)state;
    for (unsigned d = 0; d < WEFT_DTYPES; d++) {
        for (unsigned o = 0; o < WEFT_REDOPS; o++) {
            weft_dtype_t dtype = (weft_dtype_t)d;
            weft_redop_t redop = (weft_redop_t)o;
            for (size_t k = 0; k < WEFT_COUNT_OF(numbers) && weft_reduce_is_defined(dtype, redop);
                 k++) {
                int ranks = numbers[k];
                for (int rank = 0; rank < ranks; rank++) {
                    weft_bench_coll_given(dtype, redop, ranks, rank, &given[rank]);
                }
                weft_bench_coll_wanted(dtype, redop, ranks, &wanted);
                for (int backward = 0; backward < 2; backward++) {
                    reduce(dtype, redop, ranks, backward, out);
                    uint64_t wrong = weft_bench_coll_differ(&wanted, out, COLL_PERIOD, 0, &at);
                    if (wrong > 0) {
                        fail_msg("%s %s, %d ranks: %llu differ, the first is %zu",
                                 weft_dtype_name(dtype), weft_redop_name(redop), ranks,
                                 (unsigned long long)wrong, at);
                    }
                }
            }
        }
    }
}

/* A rank that is missing, or there twice, is seen, wherever a sum is checked. */
static void a_missing_or_doubled_rank_is_seen(void **state)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F8E4M3, WEFT_I8};
    static uint8_t out[sizeof(wanted.bytes)];
    size_t at = 0;
    (void)state;
    for (size_t d = 0; d < WEFT_COUNT_OF(dtypes); d++) {
        for (int ranks = 2; ranks <= 20; ranks += 6) {
            for (int rank = 0; rank < ranks; rank++) {
                weft_bench_coll_given(dtypes[d], WEFT_SUM, ranks, rank, &given[rank]);
            }
            weft_bench_coll_wanted(dtypes[d], WEFT_SUM, ranks, &wanted);
            reduce(dtypes[d], WEFT_SUM, ranks - 1, false, out);
            assert_true(weft_bench_coll_differ(&wanted, out, COLL_PERIOD, 0, &at) > 10);
            given[ranks - 1] = given[0];
            reduce(dtypes[d], WEFT_SUM, ranks, false, out);
            assert_true(weft_bench_coll_differ(&wanted, out, COLL_PERIOD, 0, &at) > 10);
        }
    }
}

static void averages_may_be_rounded_but_not_wrong(void **state)
{
    float out[COLL_PERIOD];
    size_t at = 0;
    (void)state;
    weft_bench_coll_wanted(WEFT_F32, WEFT_AVG, 3, &wanted);
    memcpy(out, wanted.bytes, sizeof(out));
    for (size_t i = 0; i < COLL_PERIOD; i++) {
        out[i] = nextafterf(out[i], INFINITY);
    }
    assert_int_equal(weft_bench_coll_differ(&wanted, out, COLL_PERIOD, 0, &at), 0);
    out[5] *= 1.001F;
    out[9] = NAN;
    out[11] = INFINITY;
    assert_int_equal(weft_bench_coll_differ(&wanted, out, COLL_PERIOD, 0, &at), 3);
    assert_int_equal(at, 5);
}

static void what_is_filled_is_found_again_at_any_phase(void **state)
{
    static const size_t counts[] = {0, 1, 1008, 1009, 1010, 5000};
    (void)state;
    weft_bench_coll_given(WEFT_U16, WEFT_SUM, 4, 2, &given[0]);
    for (size_t i = 0; i < WEFT_COUNT_OF(counts); i++) {
        for (size_t first = 0; first < 3000; first += 997) {
            size_t at = 99;
            uint16_t *data = calloc(counts[i] + 1, sizeof(*data));
            assert_non_null(data);
            data[counts[i]] = 0x5a5a;
            weft_bench_coll_fill(&given[0], data, counts[i], first);
            assert_int_equal(data[counts[i]], 0x5a5a);
            assert_int_equal(weft_bench_coll_differ(&given[0], data, counts[i], first, &at), 0);
            assert_int_equal(at, 99);
            if (counts[i] > 3) {
                data[3] ^= 1;
                data[counts[i] - 1] ^= 1;
                assert_int_equal(weft_bench_coll_differ(&given[0], data, counts[i], first, &at), 2);
                assert_int_equal(at, 3);
                assert_true(weft_bench_coll_differ(&given[0], data, counts[i], first + 1, &at) >
                            counts[i] / 2); /* a piece in the wrong place */
            }
            free(data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_op_has_the_result_that_is_wanted),
        cmocka_unit_test(a_missing_or_doubled_rank_is_seen),
        cmocka_unit_test(averages_may_be_rounded_but_not_wrong),
        cmocka_unit_test(what_is_filled_is_found_again_at_any_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
