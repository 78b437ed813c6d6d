/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts are numbered by whoever coordinates; several may, one after the other or at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/internal.h"

static void the_root_begins_with_one(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks < 100; ranks++) {
        assert_int_equal(weft_control_next_verdict(0, 0, ranks), 1);
    }
}

static void numbers_grow_and_no_two_ranks_give_the_same(void **state)
{
    enum { RANKS = 9, LATEST = 40 };
    (void)state;
    for (uint32_t ranks = 1; ranks <= RANKS; ranks++) {
        uint32_t giver[LATEST + 2 * RANKS] = {0}; /* rank + 1 */
        for (uint32_t latest = 0; latest < LATEST; latest++) {
            for (uint32_t rank = 0; rank < ranks; rank++) {
                uint32_t number = weft_control_next_verdict(latest, rank, ranks);
                assert_in_range(number, latest + 1, latest + ranks);
                assert_true(giver[number] == 0 || giver[number] == rank + 1);
                giver[number] = rank + 1;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_begins_with_one),
        cmocka_unit_test(numbers_grow_and_no_two_ranks_give_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
