/* SPDX-License-Identifier: Apache-2.0 */
/* The weather of the relays: the same seed means the same, chances and delays are as told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/weather.h"

#define PACKETS 100000

static const struct weather storm = {.seed = 42,
                                     .delay_min_us = 100,
                                     .delay_max_us = 900,
                                     .loss = 50,
                                     .duplication = 20,
                                     .reordering = 100,
                                     .reordering_us = 5000};

static bool is_same(const struct weather_fate *a, const struct weather_fate *b)
{
    return a->copies == b->copies && a->delay_us[0] == b->delay_us[0] &&
           a->delay_us[1] == b->delay_us[1];
}

/* How many of them differ between two weathers, or two flows of one. */
static unsigned count_differences(const struct weather *one, uint32_t flow,
                                  const struct weather *other, uint32_t other_flow)
{
    unsigned count = 0;
    for (uint64_t number = 0; number < PACKETS; number++) {
        struct weather_fate a = weather_fate(one, flow, number);
        struct weather_fate b = weather_fate(other, other_flow, number);
        count += !is_same(&a, &b);
    }
    return count;
}

static void the_same_seed_gives_the_same_decisions(void **state)
{
    struct weather again = storm;
    (void)state;
    assert_int_equal(count_differences(&storm, 0, &again, 0), 0);
    assert_int_equal(count_differences(&storm, 7, &again, 7), 0);
}

static void another_seed_or_flow_gives_others(void **state)
{
    struct weather other = storm;
    (void)state;
    other.seed++;
    assert_true(count_differences(&storm, 0, &other, 0) > PACKETS / 2);
    assert_true(count_differences(&storm, 0, &storm, 1) > PACKETS / 2);
}

static void chances_and_delays_are_as_told(void **state)
{
    unsigned lost = 0, doubled = 0, late = 0;
    uint32_t least = UINT32_MAX, most = 0;
    (void)state;
    for (uint64_t number = 0; number < PACKETS; number++) {
        struct weather_fate fate = weather_fate(&storm, 3, number);
        lost += fate.copies == 0;
        doubled += fate.copies == 2;
        late += fate.copies > 0 && fate.delay_us[0] >= storm.reordering_us;
        if (fate.copies > 0 && fate.delay_us[0] < storm.reordering_us) {
            least = fate.delay_us[0] < least ? fate.delay_us[0] : least;
            most = fate.delay_us[0] > most ? fate.delay_us[0] : most;
        }
    }
    assert_in_range(lost, PACKETS / 20 - 400, PACKETS / 20 + 400);
    assert_in_range(doubled, PACKETS / 50 - 400, PACKETS / 50 + 400);
    assert_in_range(late, PACKETS / 10 - 1000, PACKETS / 10 + 1000);
    assert_int_equal(least, storm.delay_min_us);
    assert_int_equal(most, storm.delay_max_us);
}

static void calm_does_nothing(void **state)
{
    const struct weather calm = {.seed = 9};
    (void)state;
    for (uint64_t number = 0; number < 1000; number++) {
        struct weather_fate fate = weather_fate(&calm, 0, number);
        assert_int_equal(fate.copies, 1);
        assert_int_equal(fate.delay_us[0], 0);
    }
    assert_false(weather_delays(&calm));
    assert_true(weather_delays(&storm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_decisions),
        cmocka_unit_test(another_seed_or_flow_gives_others),
        cmocka_unit_test(chances_and_delays_are_as_told),
        cmocka_unit_test(calm_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
