/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/bench.h"

static void the_median_of_some(void **state)
{
    double odd[] = {9, 1, 5}, even[] = {1, 8, 2, 4}, one[] = {7};
    (void)state;
    assert_float_equal(weft_bench_median(odd, 3), 5, 1e-12);
    assert_float_equal(weft_bench_median(even, 4), 3, 1e-12);
    assert_float_equal(weft_bench_median(one, 1), 7, 1e-12);
}

static struct weft_bench_flags flags;

static void *answer(void *context)
{
    uint32_t *value = context;
    weft_bench_probe(&flags, false, value);
    weft_bench_probe(&flags, false, value);
    return NULL;
}

static void flags_go_between_two(void **state)
{
    uint32_t mine = 0, theirs = 0;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, answer, &theirs), 0);
    double first = weft_bench_probe(&flags, true, &mine);
    double second = weft_bench_probe(&flags, true, &mine);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(first > 0 && isfinite(first) && second > 0 && isfinite(second));
    assert_int_equal(mine, theirs);
    assert_true(mine >= 2 * 500); /* ping-pongs */
}

static void a_plus_b_is_c(void **state)
{
    static const size_t counts[] = {1, 3, 4, 1003, 100000};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(counts); i++) {
        size_t count = counts[i];
        float *c = aligned_alloc(64, (count * sizeof(*c) + 127) / 64 * 64);
        float *a = calloc(count, sizeof(*a)), *b = calloc(count, sizeof(*b));
        assert_non_null(a);
        assert_non_null(b);
        assert_non_null(c);
        for (size_t k = 0; k < count; k++) {
            a[k] = (float)(k % 1000);
            b[k] = 2 * a[k];
            c[k] = -1;
        }
        c[count] = 77; /* behind it */
        assert_true(weft_bench_add_gbs(c, a, b, count, 100000) > 0);
        for (size_t k = 0; k < count; k++) {
            assert_true(c[k] == 3 * a[k]);
        }
        assert_true(c[count] == 77);
        free(a);
        free(b);
        free(c);
    }
}

/* ---- sockets ---- */

#define LEN 100000
#define TOTAL ((size_t)3 * LEN + 7)

struct side {
    struct weft_bench_stream stream;
    bool is_fine;
};

static void *move_both_ways(void *context)
{
    struct side *side = context;
    side->is_fine = weft_bench_socket_move(&side->stream, TOTAL, TOTAL);
    return NULL;
}

static void bytes_cross_both_ways(void **state)
{
    static uint8_t buffers[4][LEN];
    struct side left = {.stream = {.send = buffers[0], .recv = buffers[1], .buffer_len = LEN}};
    struct side right = {.stream = {.send = buffers[2], .recv = buffers[3], .buffer_len = LEN}};
    uint16_t port = 0;
    pthread_t thread;
    (void)state;
    memset(buffers[0], 1, LEN);
    memset(buffers[2], 2, LEN);
    int listener = weft_bench_socket_listen(&port);
    assert_true(listener >= 0 && port > 0);
    left.stream.fd = weft_bench_socket_connect(port);
    right.stream.fd = weft_bench_socket_accept(listener);
    assert_true(left.stream.fd >= 0 && right.stream.fd >= 0);
    assert_int_equal(pthread_create(&thread, NULL, move_both_ways, &right), 0);
    move_both_ways(&left);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(left.is_fine && right.is_fine);
    assert_memory_equal(buffers[1], buffers[2], LEN);
    assert_memory_equal(buffers[3], buffers[0], LEN);
    close(right.stream.fd);
    assert_false(weft_bench_socket_move(&left.stream, 0, 1)); /* the other side is gone */
    close(left.stream.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_of_some),
        cmocka_unit_test(flags_go_between_two),
        cmocka_unit_test(a_plus_b_is_c),
        cmocka_unit_test(bytes_cross_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
