/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting with a deadline: look, nap for a fraction of a millisecond, look again. */
#include "harness/harness.h"

#include <time.h>

#define NAP_NS 200000

uint64_t harness_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

bool harness_wait_until(bool (*is_true)(void *arg), void *arg, unsigned deadline_ms)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t deadline_ns = harness_now_ns() + deadline_ms * UINT64_C(1000000);
    while (!is_true(arg)) {
        if (harness_now_ns() >= deadline_ns) {
            return is_true(arg);
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

struct wanted {
    const _Atomic uint32_t *word;
    uint32_t value;
};

static bool is_equal(void *arg)
{
    const struct wanted *wanted = arg;
    return atomic_load(wanted->word) == wanted->value;
}

static bool is_reached(void *arg)
{
    const struct wanted *wanted = arg;
    return atomic_load(wanted->word) >= wanted->value;
}

bool harness_wait_for(const _Atomic uint32_t *word, uint32_t value, unsigned deadline_ms)
{
    struct wanted wanted = {word, value};
    return harness_wait_until(is_equal, &wanted, deadline_ms);
}

bool harness_wait_reach(const _Atomic uint32_t *word, uint32_t value, unsigned deadline_ms)
{
    struct wanted wanted = {word, value};
    return harness_wait_until(is_reached, &wanted, deadline_ms);
}
