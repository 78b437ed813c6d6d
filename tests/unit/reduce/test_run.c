/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel against the reference, and what lies beside the outputs stays as it was. */
#include "reference.h"

#include <assert.h>

#define MOST ((size_t)33600) /* bytes: long vectors are done by lines */
#define GUARD ((size_t)128)
#define SOURCES 8
#define OUTPUTS 3
#define SHIFTS ((size_t)256) /* more than the last of the vectors is shifted */
#define ROOM (MOST + 2 * GUARD + SHIFTS)
static_assert(ROOM % 64 == 0, "the vectors begin at a line");

static const size_t counts[] = {0,  1,  2,  3,  4,  7,   8,   9,    15,   16,  17,
                                31, 33, 63, 64, 65, 100, 257, 1000, 4200, MOST};

static _Alignas(64) uint8_t inputs[SOURCES][ROOM], results[OUTPUTS][ROOM];
static uint8_t expected[MOST];

/* Elements of the longest vector. Small floats have no way of their own for long ones. */
static size_t most_of(weft_dtype_t dtype)
{
    return small_format_of(dtype) ? 4200 : MOST / weft_dtype_size(dtype);
}

/* Numbers as people have them, and sometimes bits as they fall: infinities, NaNs, denormals. */
static uint64_t random_float(weft_dtype_t dtype, uint64_t *seed)
{
    uint64_t bits = next_random(seed);
    double f64 = ((double)(next_random(seed) % 2001) - 1000) / 64;
    float f32 = (float)f64;

    if (bits % 4 == 0) {
        return next_random(seed);
    }
    if (small_format_of(dtype)) {
        return small_narrow(small_format_of(dtype), f32);
    }
    memcpy(&bits, &f64, sizeof(f64));
    if (dtype == WEFT_F32) {
        memcpy(&bits, &f32, sizeof(f32));
    }
    return bits;
}

static void fill_input(weft_dtype_t dtype, uint8_t *input, uint64_t *seed)
{
    size_t size = is_float_dtype(dtype) ? weft_dtype_size(dtype) : 8;

    for (size_t at = 0; at < most_of(dtype) * weft_dtype_size(dtype); at += size) {
        uint64_t bits = is_float_dtype(dtype) ? random_float(dtype, seed) : next_random(seed);

        memcpy(input + at, &bits, size);
    }
}

/* shift: how far from a line the vectors begin, each differently. */
struct layout {
    uint8_t *input[SOURCES];
    const void *source[SOURCES];
    void *output[OUTPUTS];
};

static struct layout layout_of(size_t shift)
{
    struct layout layout;

    for (size_t s = 0; s < SOURCES; s++) {
        layout.source[s] = layout.input[s] = inputs[s] + GUARD + shift * (s + 1);
    }
    for (size_t o = 0; o < OUTPUTS; o++) {
        layout.output[o] = results[o] + GUARD + shift * (o + 1);
    }
    return layout;
}

static void fill_inputs(weft_dtype_t dtype, const struct layout *layout, uint64_t seed)
{
    for (size_t s = 0; s < SOURCES; s++) {
        fill_input(dtype, layout->input[s], &seed);
    }
}

static bool is_untouched(const uint8_t *from, const uint8_t *to)
{
    for (; from < to; from++) {
        if (*from != 0xa5) {
            return false;
        }
    }
    return true;
}

static void check_elements(const struct weft_reduce *what, const uint8_t *output, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t got = element_bits(what->dtype, output, i);
        uint64_t wanted = element_bits(what->dtype, expected, i);

        if (!is_same_element(what->dtype, got, wanted)) {
            fail_msg("%s %s %s, %u sources, element %zu of %zu: %llx is not %llx",
                     weft_reduce_isa(), weft_dtype_name(what->dtype), weft_redop_name(what->op),
                     what->sources, i, count, (unsigned long long)got, (unsigned long long)wanted);
        }
    }
}

static void check_results(const struct weft_reduce *what, size_t count)
{
    size_t len = count * weft_dtype_size(what->dtype);

    for (uint32_t o = 0; o < what->outputs; o++) {
        const uint8_t *output = what->output[o];

        if (memcmp(output, expected, len) != 0) { /* perhaps only another NaN */
            check_elements(what, output, count);
        }
        assert_true(is_untouched(results[o], output));
        assert_true(is_untouched(output + len, output + len + GUARD));
    }
}

/* All counts, plain and streamed, with every instruction set. */
static void check_all_ways(struct weft_reduce *what)
{
    size_t size = weft_dtype_size(what->dtype);

    for (size_t i = 0; i < most_of(what->dtype); i++) {
        uint64_t bits = expected_element(what, i);
        memcpy(expected + i * size, &bits, size);
    }
    FOR_EACH_ISA
    {
        for (size_t c = 0; c < WEFT_COUNT_OF(counts) * 2; c++) {
            size_t most = most_of(what->dtype);
            size_t count = counts[c / 2] < most ? counts[c / 2] : most;

            what->is_streamed = c % 2 == 1;
            for (uint32_t o = 0; o < what->outputs; o++) {
                memset(results[o], 0xa5, GUARD + SHIFTS + count * size + GUARD);
            }
            weft_reduce_run(what, count);
            check_results(what, count);
        }
    }
}

/* Sources and outputs in all numbers, and the vectors at several distances from a line. */
static void check_pair(weft_dtype_t dtype, weft_redop_t op)
{
    static const uint32_t sources[] = {1, 2, 3, 4, 5, 8};
    const size_t shifts[] = {0, weft_dtype_size(dtype), 5, 24};

    for (size_t i = 0; i < WEFT_COUNT_OF(sources) * OUTPUTS; i++) {
        struct layout layout = layout_of(shifts[i % WEFT_COUNT_OF(shifts)]);
        struct weft_reduce what = {
            .dtype = dtype,
            .op = op,
            .divide_by = op == WEFT_AVG ? sources[i / OUTPUTS] : 0,
            .before = op == WEFT_SCALED ? 0.3 : 1.0,
            .sources = sources[i / OUTPUTS],
            .outputs = (uint32_t)(i % OUTPUTS + 1),
            .source = layout.source,
            .output = layout.output,
        };

        fill_inputs(dtype, &layout, i + 1);
        check_all_ways(&what);
    }
}

static void check_op(weft_redop_t op)
{
    for (unsigned dtype = 0; dtype < WEFT_DTYPES; dtype++) {
        if (weft_reduce_is_defined((weft_dtype_t)dtype, op)) {
            check_pair((weft_dtype_t)dtype, op);
        }
    }
}

static void every_kernel_gives_the_sum(void **state)
{
    (void)state;
    check_op(WEFT_SUM);
}

static void every_kernel_gives_the_product(void **state)
{
    (void)state;
    check_op(WEFT_PROD);
}

static void every_kernel_gives_the_least_and_the_largest(void **state)
{
    (void)state;
    check_op(WEFT_MIN);
    check_op(WEFT_MAX);
}

static void every_kernel_gives_the_average(void **state)
{
    (void)state;
    check_op(WEFT_AVG);
}

static void every_kernel_gives_the_bits(void **state)
{
    (void)state;
    check_op(WEFT_BAND);
    check_op(WEFT_BOR);
    check_op(WEFT_BXOR);
}

static void every_kernel_gives_the_scaled_sum(void **state)
{
    (void)state;
    check_op(WEFT_SCALED);
}

/* Scaled and divided at once, by what is no power of two and by what does not fit the type. */
static void sums_are_scaled_first_and_divided_last(void **state)
{
    static const uint32_t divisors[] = {2, 3, 7, 64, 300, 70000, 0xfffffffbU};

    (void)state;
    for (unsigned dtype = 0; dtype < WEFT_DTYPES; dtype++) {
        struct layout layout = layout_of(weft_dtype_size((weft_dtype_t)dtype));

        for (size_t i = 0; i < WEFT_COUNT_OF(divisors); i++) {
            struct weft_reduce what = {
                .dtype = (weft_dtype_t)dtype,
                .op = WEFT_SUM,
                .divide_by = divisors[i],
                .before = is_float_dtype((weft_dtype_t)dtype) ? 1.0 / 3 : 1.0,
                .sources = 3,
                .outputs = 1,
                .source = layout.source,
                .output = layout.output,
            };

            fill_inputs(what.dtype, &layout, i + 1);
            check_all_ways(&what);
        }
    }
}

static void as_many_sources_as_there_may_be(void **state)
{
    struct layout layout = layout_of(0);
    const void *source[WEFT_REDUCE_SOURCES];
    struct weft_reduce what = {
        .dtype = WEFT_F32,
        .op = WEFT_SUM,
        .before = 1.0,
        .sources = WEFT_REDUCE_SOURCES,
        .outputs = 1,
        .source = source,
        .output = layout.output,
    };

    (void)state;
    for (size_t s = 0; s < WEFT_REDUCE_SOURCES; s++) {
        source[s] = layout.source[s % SOURCES];
    }
    fill_inputs(WEFT_F32, &layout, 5);
    check_all_ways(&what);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_gives_the_sum),
        cmocka_unit_test(every_kernel_gives_the_product),
        cmocka_unit_test(every_kernel_gives_the_least_and_the_largest),
        cmocka_unit_test(every_kernel_gives_the_average),
        cmocka_unit_test(every_kernel_gives_the_bits),
        cmocka_unit_test(every_kernel_gives_the_scaled_sum),
        cmocka_unit_test(sums_are_scaled_first_and_divided_last),
        cmocka_unit_test(as_many_sources_as_there_may_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
