/* SPDX-License-Identifier: Apache-2.0 */
/* Time in ns since an arbitrary point, and deadlines made of it. */
#include "base/base.h"

#include <limits.h>
#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t weft_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t weft_clock_after_ms(uint64_t ms)
{
    uint64_t after_ns;

    if (__builtin_mul_overflow(ms, WEFT_NS_PER_MS, &after_ns) ||
        __builtin_add_overflow(after_ns, weft_clock_ns(), &after_ns)) {
        return WEFT_NEVER;
    }
    return after_ns;
}

int weft_clock_ms_until(uint64_t deadline_ns)
{
    uint64_t now_ns, left_ms;

    if (deadline_ns == WEFT_NEVER) {
        return -1;
    }
    now_ns = weft_clock_ns();
    if (deadline_ns <= now_ns) {
        return 0;
    }
    /* up, or a sleeper would wake just before its deadline and spin until it */
    left_ms = (deadline_ns - now_ns - 1) / WEFT_NS_PER_MS + 1;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

uint64_t weft_clock_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t weft_clock_real_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}
