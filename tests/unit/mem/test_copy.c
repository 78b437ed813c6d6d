/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/internal.h"

#include "../base/capture.h"

#define ROOM ((size_t)24 << 10)
#define GUARD ((size_t)128)

static uint8_t source[ROOM + 2 * GUARD], target[ROOM + 2 * GUARD];

static void fill_source(void)
{
    uint32_t value = 1;

    for (size_t i = 0; i < sizeof(source); i++) {
        value = value * 1664525U + 1013904223U;
        source[i] = (uint8_t)(value >> 24);
    }
}

static bool is_untouched(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != 0xa5) {
            return false;
        }
    }
    return true;
}

typedef void copy_way(uint8_t *to, const uint8_t *from, size_t len);

/* Every byte there, and none beside it. */
static void check_one(copy_way *way, size_t to_shift, size_t from_shift, size_t len)
{
    uint8_t *to = target + GUARD + to_shift;

    memset(target, 0xa5, sizeof(target));
    way(to, source + from_shift, len);
    assert_memory_equal(to, source + from_shift, len);
    assert_true(is_untouched(target, GUARD + to_shift));
    assert_true(is_untouched(to + len, sizeof(target) - GUARD - to_shift - len));
}

static void check_way(copy_way *way)
{
    static const size_t shifts[] = {0, 1, 7, 16, 31, 33, 63};
    static const size_t lens[] = {0,    1,    63,   64,   65,   255,  256,  1023,  1024,
                                  1025, 1087, 1279, 4095, 4352, 5000, 8192, 16411, ROOM - GUARD};

    for (size_t i = 0; i < WEFT_COUNT_OF(shifts); i++) {
        for (size_t j = 0; j < WEFT_COUNT_OF(shifts); j++) {
            for (size_t k = 0; k < WEFT_COUNT_OF(lens); k++) {
                check_one(way, shifts[i], shifts[j], lens[k]);
            }
        }
    }
}

static void every_kernel_copies_every_byte_and_no_other(void **state)
{
    const struct weft_mem_kernels *kernels;
    unsigned count = 0;

    (void)state;
    for (; (kernels = weft_mem_kernels_at(count)); count++) {
        check_way(kernels->fetch);
        check_way(kernels->stream);
        check_way(kernels->fetch_stream);
    }
    assert_true(count >= 1);
}

static void copy_plain(uint8_t *to, const uint8_t *from, size_t len)
{
    weft_mem_copy(to, from, len, WEFT_COPY_PLAIN);
}
static void copy_stream(uint8_t *to, const uint8_t *from, size_t len)
{
    weft_mem_copy(to, from, len, WEFT_COPY_STREAM);
}
static void copy_fetch(uint8_t *to, const uint8_t *from, size_t len)
{
    weft_mem_copy(to, from, len, WEFT_COPY_FETCH);
}
static void copy_fetch_stream(uint8_t *to, const uint8_t *from, size_t len)
{
    weft_mem_copy(to, from, len, WEFT_COPY_FETCH_STREAM);
}

static void every_way_copies_every_byte_and_no_other(void **state)
{
    (void)state;
    check_way(copy_plain);
    check_way(copy_stream);
    check_way(copy_fetch);
    check_way(copy_fetch_stream);
}

static void nothing_may_be_copied_from_nowhere(void **state)
{
    (void)state;
    for (int how = WEFT_COPY_PLAIN; how <= WEFT_COPY_FETCH_STREAM; how++) {
        weft_mem_copy(NULL, NULL, 0, (enum weft_mem_copy)how);
    }
}

/* Len bytes that end where memory ends: one byte read or written beyond is a fault. */
static uint8_t *before_the_abyss(size_t len)
{
    size_t whole = 2 * ROOM;
    uint8_t *pages =
        mmap(NULL, whole + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + whole, 65536, PROT_NONE), 0);
    return pages + whole - len;
}

static void no_kernel_reads_or_writes_beyond_the_end(void **state)
{
    static const size_t lens[] = {1, 63, 1024, 1025, 1337, 4351, 4352, 5000, 9999};
    uint8_t *from = before_the_abyss(0), *to = before_the_abyss(0);
    const struct weft_mem_kernels *kernels;

    (void)state;
    for (size_t k = 0; k < WEFT_COUNT_OF(lens); k++) {
        size_t len = lens[k];

        memcpy(from - len, source, len);
        for (unsigned i = 0; (kernels = weft_mem_kernels_at(i)); i++) {
            memset(to - len, 0, len);
            kernels->fetch(to - len, from - len, len);
            assert_memory_equal(to - len, source, len);
            memset(to - len, 0, len);
            kernels->stream(to - len, from - len, len);
            assert_memory_equal(to - len, source, len);
            memset(to - len, 0, len);
            kernels->fetch_stream(to - len, from - len, len);
            assert_memory_equal(to - len, source, len);
        }
    }
    munmap(from - 2 * ROOM, 2 * ROOM + 65536);
    munmap(to - 2 * ROOM, 2 * ROOM + 65536);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_copies_every_byte_and_no_other),
        cmocka_unit_test(every_way_copies_every_byte_and_no_other),
        cmocka_unit_test(nothing_may_be_copied_from_nowhere),
        cmocka_unit_test(no_kernel_reads_or_writes_beyond_the_end),
    };

    fill_source();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
