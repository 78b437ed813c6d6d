/* SPDX-License-Identifier: Apache-2.0 */
/* For how long a path has been silent, made of what the kernel says; kernel and clock are played. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lane/tcp/tcp.h"

#include <linux/tcp.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct tcp_info kernel;
static uint64_t passed_ms; /* since the clock stands */
static bool is_played;

/* Instead of libc's. */
/* NOLINTNEXTLINE(readability-inconsistent-*) */
int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
    if (!is_played || level != IPPROTO_TCP || name != TCP_INFO) {
        return (int)syscall(SYS_getsockopt, fd, level, name, value, len);
    }
    memcpy(value, &kernel, *len < sizeof(kernel) ? *len : sizeof(kernel));
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) /* NOLINT(readability-inconsistent-*) */
{
    if (!is_played) {
        return (int)syscall(SYS_clock_gettime, clock, time);
    }
    time->tv_sec = (time_t)(1000 + passed_ms / 1000);
    time->tv_nsec = (long)(passed_ms % 1000 * 1000000);
    return 0;
}

static struct weft_lane_tcp lane;

static int begin(void **state)
{
    (void)state;
    lane = (struct weft_lane_tcp){.source = {.fd = 0}};
    kernel = (struct tcp_info){.tcpi_bytes_acked = 1000};
    is_played = true;
    return 0;
}

static int end(void **state)
{
    (void)state;
    is_played = false;
    return 0;
}

static uint32_t look(void)
{
    return weft_lane_tcp_silent_ms(&lane.lane);
}

/* Time passes, and no word comes. */
static void pass(uint32_t ms)
{
    passed_ms += ms;
    kernel.tcpi_last_ack_recv += ms;
}

static void resend(void)
{
    kernel.tcpi_unacked = kernel.tcpi_retransmits = 1;
}

static void a_rest_before_the_first_bytes_is_no_silence(void **state)
{
    (void)state;
    assert_int_equal(look(), 0);
    pass(3000);
    resend();
    assert_int_equal(look(), 0);
    pass(600);
    assert_int_equal(look(), 600);
    pass(100);
    assert_int_equal(look(), 700);
    kernel.tcpi_unacked = kernel.tcpi_retransmits = 0; /* they came */
    kernel.tcpi_bytes_acked += 100;
    kernel.tcpi_last_ack_recv = 0;
    assert_int_equal(look(), 0);
    pass(9000);
    resend();
    assert_int_equal(look(), 0);
}

/* The last look before it found bytes on their way. */
static void nor_is_one_that_nobody_looked_at(void **state)
{
    (void)state;
    kernel.tcpi_unacked = 1;
    assert_int_equal(look(), 0);
    pass(10000);
    kernel.tcpi_bytes_acked += 100;
    resend();
    assert_int_equal(look(), 0);
    pass(500);
    assert_int_equal(look(), 500);
}

static void bytes_that_are_not_even_resent_are_no_silence(void **state)
{
    (void)state;
    kernel.tcpi_unacked = 1;
    assert_int_equal(look(), 0);
    pass(1000);
    assert_int_equal(look(), 0);
    resend();
    assert_int_equal(look(), 1000); /* since they were seen first */
}

/* Its window is full, and its kernel answers the probes. */
static void a_peer_that_is_stopped_is_not_silent(void **state)
{
    (void)state;
    kernel.tcpi_notsent_bytes = 5000;
    kernel.tcpi_probes = 2;
    assert_int_equal(look(), 0);
    pass(60000);
    kernel.tcpi_last_ack_recv = 200;
    assert_int_equal(look(), 200);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_rest_before_the_first_bytes_is_no_silence),
        TEST(nor_is_one_that_nobody_looked_at),
        TEST(bytes_that_are_not_even_resent_are_no_silence),
        TEST(a_peer_that_is_stopped_is_not_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
