/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts are numbered by whoever coordinates; several may, one after the other or at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lone.h"

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

/* ---- on communicators that this rank has not ---- */

static void judge(struct weft_control *control, uint64_t comm)
{
    struct weft_wire_notice notice = {
        .status = WEFT_ERR_ABORTED, .rank = 0, .number = 1, .text = "rank 0 aborted"};
    weft_engine_lock(control->engine);
    weft_control_judge(control, comm, &notice);
    weft_engine_unlock(control->engine);
}

static void verdicts_on_communicators_of_others_take_bounded_memory(void **state)
{
    enum { MANY = 10000, KEPT = 1024 };
    struct weft_control *control = *state;
    struct weft_control_channel *channel;
    for (uint64_t comm = 1; comm <= MANY; comm++) {
        judge(control, comm);
    }
    assert_in_range(control->early_count, 1, KEPT);
    assert_int_equal(weft_control_channel_open(control, MANY, NULL, LONE_RANKS, &channel), WEFT_OK);
    assert_int_equal(weft_control_channel_status(channel), WEFT_ERR_ABORTED); /* it was kept */
    assert_in_range(control->early_count, 1, KEPT - 1);
    weft_control_channel_close(channel);
}

/* ---- what a coordinator does not judge (yet) ---- */

static const struct weft_wire_notice unreached = {
    .status = WEFT_ERR_NETWORK, .rank = 2, .text = "rank 2 cannot be reached"};
static const struct weft_wire_notice dead = {
    .status = WEFT_ERR_PEER, .rank = 0, .text = "rank 0 closed"};

static void report(struct weft_control *control, const struct weft_wire_notice *notice)
{
    weft_engine_lock(control->engine);
    weft_control_report(control, 0, notice);
    weft_engine_unlock(control->engine);
}

static void one_that_cannot_be_reached_is_judged(void **state)
{
    struct weft_control *control = *state;
    weft_net_conn_close(lone_coordinator(control));
    control->children[0].conn = NULL;
    report(control, &unreached);
    assert_int_equal(control->is_gone[2], WEFT_GONE_UNREACHED);
    assert_int_not_equal(control->verdicts, 0);
}

static void one_that_has_come_back_meanwhile_is_not(void **state)
{
    struct weft_control *control = *state;
    lone_coordinator(control);
    report(control, &unreached);
    assert_int_equal(control->is_gone[2], 0);
    assert_int_equal(control->heal->report_count, 0);
}

static void a_coordinator_that_has_slept_reads_before_it_judges(void **state)
{
    const struct weft_wire_notice theirs = {.status = WEFT_ERR_PEER,
                                            .rank = 0,
                                            .number = 5,
                                            .text = "rank 0 closed, says who stood in"};
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    control->beat_ns = 1; /* long ago */
    report(control, &dead);
    assert_int_equal(control->is_gone[0], 0);
    assert_int_equal(control->heal->report_count, 1);
    lone_hears(control, child, WEFT_WIRE_REPORT, &theirs);
    assert_int_equal(control->is_gone[0], WEFT_GONE_DEAD);
    assert_int_equal(control->verdicts, 5);
    assert_int_equal(control->heal->report_count, 0);
}

static void a_coordinator_that_has_slept_judges_when_nobody_has(void **state)
{
    struct weft_control *control = *state;
    lone_coordinator(control);
    control->beat_ns = 1;
    report(control, &dead);
    assert_int_equal(control->is_gone[0], 0);
    control->beat_ns = UINT64_MAX / 2;
    control->quiet_ns = 0; /* it is awake, and all is read */
    weft_engine_lock(control->engine);
    weft_heal_report_again(control->heal, false);
    weft_engine_unlock(control->engine);
    assert_int_equal(control->is_gone[0], WEFT_GONE_DEAD);
    assert_int_equal(control->verdicts, weft_control_next_verdict(0, LONE_SELF, LONE_RANKS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_begins_with_one),
        cmocka_unit_test(numbers_grow_and_no_two_ranks_give_the_same),
        cmocka_unit_test_setup_teardown(verdicts_on_communicators_of_others_take_bounded_memory,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(one_that_cannot_be_reached_is_judged, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(one_that_has_come_back_meanwhile_is_not, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(a_coordinator_that_has_slept_reads_before_it_judges,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(a_coordinator_that_has_slept_judges_when_nobody_has,
                                        lone_set_up, lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
