/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/internal.h"

#include "../base/capture.h"

#include <stdio.h>
#include <sys/sysinfo.h>

static void the_cache_is_of_a_size_that_caches_have(void **state)
{
    size_t len = weft_mem_cache_len();

    (void)state;
    assert_in_range(len, (size_t)128 << 10, (size_t)8 << 30);
    assert_int_equal(weft_mem_cache_len(), len);
    assert_int_equal(weft_fd_count(), 0);
}

/* The kernel's own list of caches has one of this size at its highest level. */
static void the_cache_is_the_one_the_system_lists(void **state)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    unsigned long kib;

    (void)state;
    if (!file) {
        skip();
    }
    assert_int_equal(fscanf(file, "%luK", &kib), 1); /* NOLINT(cert-err34-c): a test of the text */
    fclose(file);
    assert_int_equal(weft_mem_cache_len(), kib << 10);
}

static void no_more_can_be_had_than_there_is(void **state)
{
    struct sysinfo info;
    uint64_t obtainable = weft_mem_obtainable();

    (void)state;
    assert_int_equal(sysinfo(&info), 0);
    assert_true(obtainable > (1 << 20));
    assert_true(obtainable <= (uint64_t)(info.totalram + info.totalswap) * info.mem_unit);
    assert_int_equal(weft_fd_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cache_is_of_a_size_that_caches_have),
        cmocka_unit_test(the_cache_is_the_one_the_system_lists),
        cmocka_unit_test(no_more_can_be_had_than_there_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
