/* SPDX-License-Identifier: Apache-2.0 */
/* f16, bf16 and f8 to f32 and back: every pattern, and every place where rounding decides. */
#include "reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PATTERNS 65536
#define SIGN 0x80000000U

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t pattern_at(const struct small_format *format, const void *patterns, size_t at)
{
    return (uint32_t)element_bits(format->dtype, patterns, at);
}

/* All patterns of a format, in order. */
static size_t all_patterns(const struct small_format *format, void *patterns)
{
    size_t size = (size_t)format->bits / 8;
    uint32_t count = 1U << format->bits;

    for (uint32_t i = 0; i < count; i++) {
        memcpy((char *)patterns + i * size, &i, size);
    }
    return count;
}

static void check_widened(const struct small_format *format)
{
    static uint16_t patterns[PATTERNS];
    static float wide[PATTERNS];
    size_t count = all_patterns(format, patterns);

    memset(wide, 0xa5, sizeof(wide));
    weft_reduce_widen(format->dtype, patterns, wide, count);
    for (uint32_t i = 0; i < count; i++) {
        float wanted = small_widen(format, i);

        if (isnan(wanted)) {
            assert_true(isnan(wide[i]));
        } else {
            assert_int_equal(bits_of(wide[i]), bits_of(wanted));
        }
    }
}

/* What a pattern becomes, there and back. */
static uint32_t returned(const struct small_format *format, uint32_t pattern)
{
    uint32_t sign = 1U << (format->bits - 1);

    if (!isnan(small_widen(format, pattern))) {
        return pattern;
    }
    return format->bits == 8 ? (pattern & sign) | 0x7f : pattern | 1U << (format->fraction - 1);
}

static void check_round_trip(const struct small_format *format)
{
    static uint16_t patterns[PATTERNS], back[PATTERNS];
    static float wide[PATTERNS];
    size_t count = all_patterns(format, patterns);

    weft_reduce_widen(format->dtype, patterns, wide, count);
    weft_reduce_narrow(format->dtype, wide, back, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pattern_at(format, back, i), returned(format, i));
    }
}

static void every_pattern_has_its_value(void **state)
{
    (void)state;
    FOR_EACH_ISA
    {
        for (size_t f = 0; f < WEFT_COUNT_OF(small_formats); f++) {
            check_widened(small_format_of(small_formats[f].dtype));
        }
    }
}

static void every_pattern_comes_back(void **state)
{
    (void)state;
    FOR_EACH_ISA
    {
        for (size_t f = 0; f < WEFT_COUNT_OF(small_formats); f++) {
            check_round_trip(small_format_of(small_formats[f].dtype));
        }
    }
}

static void check_narrowed(const struct small_format *format, const float *values, size_t count)
{
    static uint16_t got[PATTERNS];

    assert_true(count <= PATTERNS);
    memset(got, 0xa5, sizeof(got));
    weft_reduce_narrow(format->dtype, values, got, count);
    for (size_t i = 0; i < count; i++) {
        uint32_t wanted = small_narrow(format, values[i]);

        if (!is_same_element(format->dtype, pattern_at(format, got, i), wanted)) {
            fail_msg("%s %s: %a becomes %x, not %x", weft_reduce_isa(),
                     weft_dtype_name(format->dtype), (double)values[i], pattern_at(format, got, i),
                     wanted);
        }
    }
}

/* Each value, the middle to the next one, and the f32s on both sides of it: up to what overflows. */
static void check_ties(const struct small_format *format)
{
    static float values[PATTERNS];
    size_t count = 0;

    for (uint32_t i = 0; i < format->infinity; i++) {
        float middle = (float)((format->values[i] + format->values[i + 1]) / 2);
        const float around[] = {(float)format->values[i], nextafterf(middle, 0), middle,
                                nextafterf(middle, INFINITY)};

        for (size_t k = 0; k < WEFT_COUNT_OF(around); k++) {
            values[count++] = around[k];
            values[count++] = -around[k];
        }
        if (count + 8 > PATTERNS) {
            check_narrowed(format, values, count);
            count = 0;
        }
    }
    check_narrowed(format, values, count);
}

static void ties_go_to_the_even_one(void **state)
{
    (void)state;
    FOR_EACH_ISA
    {
        for (size_t f = 0; f < WEFT_COUNT_OF(small_formats); f++) {
            check_ties(small_format_of(small_formats[f].dtype));
        }
    }
}

static void random_values_go_to_the_nearest_one(void **state)
{
    static float values[10007];
    uint64_t seed = 3;

    (void)state;
    FOR_EACH_ISA
    {
        for (size_t f = 0; f < WEFT_COUNT_OF(small_formats); f++) {
            for (size_t i = 0; i < WEFT_COUNT_OF(values); i++) {
                uint32_t bits = (uint32_t)(next_random(&seed) >> 16);
                uint32_t exponent = 100 + bits % 56; /* where the small ones are, and around */

                values[i] = float_of(i % 4 == 0 ? bits : (bits & 0x807fffffU) | exponent << 23);
            }
            check_narrowed(small_format_of(small_formats[f].dtype), values, WEFT_COUNT_OF(values));
        }
    }
}

/* The numbers in the documents. */
static void what_is_too_large_becomes_what_the_format_has_for_it(void **state)
{
    static const struct {
        weft_dtype_t dtype;
        float value;
        uint32_t pattern;
    } cases[] = {
        {WEFT_F16, 65504, 0x7bff},          {WEFT_F16, 65519.996F, 0x7bff},
        {WEFT_F16, 65520, 0x7c00},          {WEFT_F16, -1e30F, 0xfc00},
        {WEFT_BF16, 3.3895314e38F, 0x7f7f}, {WEFT_BF16, 3.4028235e38F, 0x7f80},
        {WEFT_F8E4M3, 448, 0x7e},           {WEFT_F8E4M3, 464, 0x7e},
        {WEFT_F8E4M3, 464.01F, 0x7f},       {WEFT_F8E4M3, -480, 0xff},
        {WEFT_F8E4M3, INFINITY, 0x7f},      {WEFT_F8E4M3, -INFINITY, 0xff},
        {WEFT_F8E5M2, 57344, 0x7b},         {WEFT_F8E5M2, 61439.996F, 0x7b},
        {WEFT_F8E5M2, 61440, 0x7c},         {WEFT_F8E5M2, -INFINITY, 0xfc},
    };

    (void)state;
    FOR_EACH_ISA
    {
        for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
            uint32_t got = 0;

            weft_reduce_narrow(cases[i].dtype, &cases[i].value, &got, 1);
            assert_int_equal(got, cases[i].pattern);
        }
    }
}

static void a_nan_keeps_what_fits_of_it(void **state)
{
    static const uint32_t nans[] = {0x7f800001U, 0x7fc00000U, 0xffffffffU, 0x7fa5a000U,
                                    0xff812345U};

    (void)state;
    FOR_EACH_ISA
    {
        for (size_t i = 0; i < WEFT_COUNT_OF(nans); i++) {
            uint32_t sign = nans[i] >> 31, f16 = 0, bf16 = 0, e4m3 = 0, e5m2 = 0;
            float value = float_of(nans[i]);

            weft_reduce_narrow(WEFT_F16, &value, &f16, 1);
            weft_reduce_narrow(WEFT_BF16, &value, &bf16, 1);
            weft_reduce_narrow(WEFT_F8E4M3, &value, &e4m3, 1);
            weft_reduce_narrow(WEFT_F8E5M2, &value, &e5m2, 1);
            assert_int_equal(f16, sign << 15 | 0x7e00 | (nans[i] >> 13 & 0x3ff));
            assert_int_equal(bf16, nans[i] >> 16 | 0x40);
            assert_int_equal(e4m3, sign << 7 | 0x7f);
            assert_int_equal(e5m2, sign << 7 | 0x7f);
        }
    }
}

/* Nothing beyond the end is written, whatever the count. */
static void any_count_is_converted_and_no_more(void **state)
{
    float wide[80], values[80];
    uint16_t patterns[80], got[80];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(values); i++) {
        values[i] = (float)i / 8 - 3;
        patterns[i] = (uint16_t)(i * 257);
    }
    FOR_EACH_ISA
    {
        for (size_t at = 0; at < WEFT_COUNT_OF(small_formats) * 70; at++) {
            const struct small_format *format = small_format_of(small_formats[at / 70].dtype);
            size_t count = at % 70, size = (size_t)format->bits / 8;

            memset(got, 0xa5, sizeof(got));
            memset(wide, 0xa5, sizeof(wide));
            weft_reduce_narrow(format->dtype, values, got, count);
            weft_reduce_widen(format->dtype, patterns, wide, count);
            for (size_t i = 0; i < count; i++) {
                float wanted = small_widen(format, pattern_at(format, patterns, i));

                assert_int_equal(pattern_at(format, got, i), small_narrow(format, values[i]));
                assert_true(bits_of(wide[i]) == bits_of(wanted) ||
                            (isnan(wide[i]) && isnan(wanted)));
            }
            assert_int_equal(((uint8_t *)got)[count * size], 0xa5);
            assert_int_equal(bits_of(wide[count]), 0xa5a5a5a5U);
        }
    }
}

/* Other libraries make the CPU flush denormals; those of f16 are none in f32. */
static void flushing_denormals_changes_nothing(void **state)
{
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();

    _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    FOR_EACH_ISA
    {
        for (size_t f = 0; f < WEFT_COUNT_OF(small_formats); f++) {
            if (small_formats[f].dtype != WEFT_BF16) { /* whose denormals are f32's */
                const struct small_format *format = small_format_of(small_formats[f].dtype);

                check_round_trip(format);
                check_ties(format);
            }
        }
    }
    _mm_setcsr(before);
#endif
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_has_its_value),
        cmocka_unit_test(every_pattern_comes_back),
        cmocka_unit_test(ties_go_to_the_even_one),
        cmocka_unit_test(random_values_go_to_the_nearest_one),
        cmocka_unit_test(what_is_too_large_becomes_what_the_format_has_for_it),
        cmocka_unit_test(a_nan_keeps_what_fits_of_it),
        cmocka_unit_test(any_count_is_converted_and_no_more),
        cmocka_unit_test(flushing_denormals_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
