/* SPDX-License-Identifier: Apache-2.0 */
/* What callers rely on besides the values: in place, any place, any instruction set. */
#include "reference.h"

#include <sys/mman.h>

#define MOST ((size_t)1300)

static const size_t counts[] = {1, 2, 15, 16, 17, 63, 64, 65, 100, 257, 1000, MOST};

/* ---- in place ---- */

static float vectors[5][MOST], originals[5][MOST];

static void fill_vectors(void)
{
    uint64_t seed = 9;

    for (size_t s = 0; s < WEFT_COUNT_OF(vectors); s++) {
        for (size_t i = 0; i < MOST; i++) {
            originals[s][i] = (float)((double)(next_random(&seed) % 20001) / 7 - 1400);
        }
    }
    memcpy(vectors, originals, sizeof(vectors));
}

static float sum_at(size_t sources, size_t i)
{
    float sum = originals[0][i];

    for (size_t s = 1; s < sources; s++) {
        sum += originals[s][i];
    }
    return sum;
}

/* The sum of the first four, into `output` and into a vector beside them. */
static void check_in_place(size_t output, size_t count, bool is_streamed)
{
    const void *source[] = {vectors[0], vectors[1], vectors[2], vectors[3]};
    void *outputs[] = {vectors[output], vectors[4]};
    struct weft_reduce what = {
        .dtype = WEFT_F32,
        .op = WEFT_SUM,
        .before = 1.0,
        .is_streamed = is_streamed,
        .sources = 4,
        .outputs = 2,
        .source = source,
        .output = outputs,
    };

    fill_vectors();
    weft_reduce_run(&what, count);
    for (size_t i = 0; i < MOST; i++) {
        float wanted = sum_at(4, i);

        assert_true(vectors[output][i] == (i < count ? wanted : originals[output][i]));
        assert_true(vectors[4][i] == (i < count ? wanted : originals[4][i]));
    }
}

static void the_output_may_be_any_of_the_sources(void **state)
{
    (void)state;
    FOR_EACH_ISA
    {
        for (size_t c = 0; c < WEFT_COUNT_OF(counts); c++) {
            for (size_t output = 0; output < 4; output++) {
                check_in_place(output, counts[c], false);
                check_in_place(output, counts[c], true);
            }
        }
    }
}

static void a_source_may_come_twice(void **state)
{
    const void *source[] = {vectors[0], vectors[0], vectors[1]};
    void *output[] = {vectors[0]};
    struct weft_reduce what = {
        .dtype = WEFT_F32,
        .op = WEFT_PROD,
        .before = 1.0,
        .sources = 3,
        .outputs = 1,
        .source = source,
        .output = output,
    };

    (void)state;
    FOR_EACH_ISA
    {
        fill_vectors();
        weft_reduce_run(&what, MOST);
        for (size_t i = 0; i < MOST; i++) {
            volatile float square = originals[0][i] * originals[0][i];

            assert_true(vectors[0][i] == square * originals[1][i]);
        }
    }
}

/* ---- places ---- */

#define PAGE ((size_t)4096)
#define ROOM (4 * PAGE)

/* Memory with nothing mapped before and after it: one byte read or written there is a fault. */
static uint8_t *island(void)
{
    uint8_t *pages = mmap(NULL, ROOM + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + PAGE, ROOM, PROT_READ | PROT_WRITE), 0);
    return pages + PAGE;
}

static void run_on_islands(uint8_t *const *islands, weft_dtype_t dtype, size_t count, bool at_end)
{
    size_t start = at_end ? ROOM - count * weft_dtype_size(dtype) : 0;
    const void *source[] = {islands[0] + start, islands[1] + start};
    void *output[] = {islands[2] + start};
    struct weft_reduce what = {
        .dtype = dtype,
        .op = WEFT_SUM,
        .before = 1.0,
        .sources = 2,
        .outputs = 1,
        .source = source,
        .output = output,
    };

    weft_reduce_run(&what, count);
    what.is_streamed = true;
    weft_reduce_run(&what, count);
    what.divide_by = 3;
    weft_reduce_run(&what, count);
}

static void nothing_beside_the_vectors_is_read_or_written(void **state)
{
    uint8_t *islands[] = {island(), island(), island()};

    (void)state;
    FOR_EACH_ISA
    {
        for (unsigned dtype = 0; dtype < WEFT_DTYPES; dtype++) {
            for (size_t c = 0; c < WEFT_COUNT_OF(counts); c++) {
                run_on_islands(islands, (weft_dtype_t)dtype, counts[c], false);
                run_on_islands(islands, (weft_dtype_t)dtype, counts[c], true);
            }
        }
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(islands); i++) {
        munmap(islands[i] - PAGE, ROOM + 2 * PAGE);
    }
}

static void nothing_may_be_reduced_from_nowhere(void **state)
{
    const void *source[] = {NULL, NULL};
    void *output[] = {NULL};
    struct weft_reduce what = {
        .op = WEFT_SUM,
        .before = 1.0,
        .sources = 2,
        .outputs = 1,
        .source = source,
        .output = output,
    };

    (void)state;
    for (unsigned dtype = 0; dtype < WEFT_DTYPES; dtype++) {
        what.dtype = (weft_dtype_t)dtype;
        weft_reduce_run(&what, 0);
        what.is_streamed = true;
        weft_reduce_run(&what, 0);
    }
}

/* ---- values that min and max are asked about ---- */

static double reduce_two(weft_redop_t op, double a, double b)
{
    const void *source[] = {&a, &b};
    double result = 42;
    void *output[] = {&result};
    struct weft_reduce what = {
        .dtype = WEFT_F64,
        .op = op,
        .before = 1.0,
        .sources = 2,
        .outputs = 1,
        .source = source,
        .output = output,
    };

    weft_reduce_run(&what, 1);
    return result;
}

static void a_nan_wins_from_both_sides(void **state)
{
    static const double others[] = {0, 1, -1, INFINITY, -INFINITY, 5e-324};

    (void)state;
    FOR_EACH_ISA
    {
        for (size_t i = 0; i < WEFT_COUNT_OF(others); i++) {
            assert_true(isnan(reduce_two(WEFT_MIN, NAN, others[i])));
            assert_true(isnan(reduce_two(WEFT_MIN, others[i], NAN)));
            assert_true(isnan(reduce_two(WEFT_MAX, NAN, others[i])));
            assert_true(isnan(reduce_two(WEFT_MAX, others[i], -NAN)));
        }
    }
}

static void the_order_of_zeros_does_not_matter(void **state)
{
    (void)state;
    FOR_EACH_ISA
    {
        assert_true(signbit(reduce_two(WEFT_MIN, 0.0, -0.0)));
        assert_true(signbit(reduce_two(WEFT_MIN, -0.0, 0.0)));
        assert_false(signbit(reduce_two(WEFT_MAX, 0.0, -0.0)));
        assert_false(signbit(reduce_two(WEFT_MAX, -0.0, 0.0)));
    }
}

/* a + b · before is rounded twice, whatever the CPU could do in one. */
static void nothing_is_contracted(void **state)
{
    volatile double before = 1 + 0x1p-30, product = before * before;
    double a[MOST], b[MOST], result[MOST];
    const void *source[] = {a, b};
    void *output[] = {result};
    struct weft_reduce what = {
        .dtype = WEFT_F64,
        .op = WEFT_SUM,
        .before = before,
        .sources = 2,
        .outputs = 1,
        .source = source,
        .output = output,
    };

    (void)state;
    for (size_t i = 0; i < MOST; i++) {
        a[i] = -1;
        b[i] = before;
    }
    FOR_EACH_ISA
    {
        weft_reduce_run(&what, MOST - 1);
        for (size_t i = 0; i < MOST - 1; i++) {
            assert_true(result[i] == product - before);
        }
    }
}

/* ---- instruction sets ---- */

static void an_instruction_set_is_chosen_by_name(void **state)
{
    (void)state;
    FOR_EACH_ISA
    {
        assert_string_equal(weft_reduce_isa(), isas[isa_at]);
    }
    assert_true(weft_reduce_set_isa("scalar"));
#if defined(__x86_64__)
    assert_int_equal(weft_reduce_set_isa("avx2"), __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(weft_reduce_set_isa("avx512"), __builtin_cpu_supports("avx512bw") != 0);
#endif
}

static void an_unknown_instruction_set_changes_nothing(void **state)
{
    (void)state;
    assert_true(weft_reduce_set_isa("scalar"));
    assert_false(weft_reduce_set_isa("avx1024"));
    assert_string_equal(weft_reduce_isa(), "scalar");
}

static void no_name_means_the_best(void **state)
{
    const char *best = NULL;

    (void)state;
    FOR_EACH_ISA
    {
        best = isas[isa_at]; /* the last that there is */
    }
    assert_true(weft_reduce_set_isa("scalar"));
    assert_true(weft_reduce_set_isa(NULL));
    assert_string_equal(weft_reduce_isa(), best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_output_may_be_any_of_the_sources),
        cmocka_unit_test(a_source_may_come_twice),
        cmocka_unit_test(nothing_beside_the_vectors_is_read_or_written),
        cmocka_unit_test(nothing_may_be_reduced_from_nowhere),
        cmocka_unit_test(a_nan_wins_from_both_sides),
        cmocka_unit_test(the_order_of_zeros_does_not_matter),
        cmocka_unit_test(nothing_is_contracted),
        cmocka_unit_test(an_instruction_set_is_chosen_by_name),
        cmocka_unit_test(an_unknown_instruction_set_changes_nothing),
        cmocka_unit_test(no_name_means_the_best),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
