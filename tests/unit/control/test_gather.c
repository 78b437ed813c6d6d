/* SPDX-License-Identifier: Apache-2.0 */
/* A host's leader: what it passes up while its own way up is being opened. */
#include "control/start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 8
#define ROUND_S 10 /* a queue that runs in a circle never ends its round */

struct leader {
    struct weft_params params;
    struct weft_control control;
    struct weft_control_start start;
    struct weft_net_conn below; /* members came through it */
};

static int leader_open(void **state)
{
    struct leader *leader = calloc(1, sizeof(*leader));
    struct weft_control_start *start = &leader->start;
    assert_non_null(leader);
    assert_int_equal(weft_params_load(&leader->params), WEFT_OK);
    assert_int_equal(weft_engine_open(1, -1, &leader->control.engine), WEFT_OK);
    leader->control.params = &leader->params;
    leader->control.self = (struct weft_wire_self){.rank = 1, .ranks = RANKS};
    leader->control.start = start;
    start->control = &leader->control;
    start->spec.deadline_ns = weft_clock_after_ms(10000);
    start->me = (struct weft_wire_member){.rank = 1, .ranks = RANKS, .timeout_ms = 1000};
    assert_int_equal(
        weft_params_agreed(&leader->params, start->me.settings, sizeof(start->me.settings)),
        WEFT_OK);
    weft_list_open(&start->arrivals);
    weft_list_open(&start->attached);
    weft_list_open(&start->leaders);
    weft_engine_timer_open(&start->deadline, NULL);
    weft_engine_lock(leader->control.engine);
    assert_int_equal(weft_control_gather_open(start), WEFT_OK);
    *state = leader;
    return 0;
}

static int leader_close(void **state)
{
    struct leader *leader = *state;
    weft_control_gather_close(&leader->start);
    weft_engine_unlock(leader->control.engine);
    weft_engine_close(leader->control.engine);
    free(leader);
    return 0;
}

static void member_comes(struct leader *leader, uint32_t rank)
{
    struct weft_wire_member member = leader->start.me;
    uint8_t bytes[WEFT_WIRE_MEMBER_MAX];
    member.rank = rank;
    member.leader = 1;
    weft_control_gather_members(&leader->start, &leader->below, bytes,
                                weft_wire_member_encode(&member, bytes, sizeof(bytes)));
}

static void run_tasks(struct leader *leader)
{
    alarm(ROUND_S);
    weft_engine_run_tasks(leader->control.engine);
    alarm(0);
}

static void members_around_the_opening_of_the_way_up_are_flushed_by_one_task(void **state)
{
    struct leader *leader = *state;
    size_t len_of_one;
    member_comes(leader, 2);
    len_of_one = leader->start.batch_len;
    assert_true(len_of_one > 0);
    weft_control_gather_up_opened(&leader->start);
    member_comes(leader, 3); /* the task of the first one has not run yet */
    run_tasks(leader);
    assert_false(leader->start.is_flush_posted);
    assert_int_equal(leader->start.batch_len, 2 * len_of_one); /* no connection took them */
    assert_int_equal(leader->start.joined, 3);
}

static void members_that_come_later_are_flushed_again(void **state)
{
    struct leader *leader = *state;
    member_comes(leader, 2);
    run_tasks(leader);
    assert_false(leader->start.is_flush_posted);
    member_comes(leader, 3);
    assert_true(leader->start.is_flush_posted);
    run_tasks(leader);
    assert_false(leader->start.is_flush_posted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            members_around_the_opening_of_the_way_up_are_flushed_by_one_task, leader_open,
            leader_close),
        cmocka_unit_test_setup_teardown(members_that_come_later_are_flushed_again, leader_open,
                                        leader_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
