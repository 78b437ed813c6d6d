/* SPDX-License-Identifier: Apache-2.0 */
/* Beside the tree comes only what must be heard while its ranks stand still: reports, verdicts, and who is leaving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lone.h"

static uint32_t told_above; /* verdicts said to the parent: number of the latest */

weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len);

weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len)
{
    const struct weft_control *control = conn->owner;
    struct weft_wire_notice notice;
    if (conn == control->parent && frame->type == WEFT_WIRE_VERDICT) {
        assert_int_equal(weft_wire_notice_decode(payload, len, &notice), WEFT_OK);
        told_above = notice.number;
    }
    return WEFT_OK;
}

static const struct weft_wire_notice dead = {
    .status = WEFT_ERR_PEER, .rank = 0, .text = "rank 0 closed (its process has ended)"};

/* Of rank 2, which has gone around somebody. */
static struct weft_net_conn *edge(struct weft_control *control)
{
    struct weft_net_conn *conn = lone_conn(control, 2, ROLE_ASIDE, WEFT_WIRE_ASIDE);
    weft_engine_lock(control->engine);
    weft_control_aside_take(control, conn);
    weft_engine_unlock(control->engine);
    return conn;
}

static void says_that_rank_0_leaves(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_CLOSED, .src = 2, .dst = WEFT_WIRE_NO_RANK, .len = 4};
    const uint8_t rank_0[4] = {0};
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, rank_0);
    weft_engine_unlock(control->engine);
}

static void a_death_that_is_reported_beside_the_tree_is_judged(void **state)
{
    struct weft_control *control = *state;
    lone_coordinator(control);
    lone_hears(control, edge(control), WEFT_WIRE_REPORT, &dead);
    assert_int_equal(control->is_gone[0], WEFT_GONE_DEAD);
}

static void the_end_of_a_process_that_was_leaving_is_no_death(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = edge(control);
    lone_coordinator(control);
    says_that_rank_0_leaves(control, conn);
    assert_true(weft_control_aside_is_leaving(control, 0));
    assert_int_equal(control->is_gone[0], 0); /* what it sent may be under way still */
    lone_hears(control, conn, WEFT_WIRE_REPORT, &dead);
    assert_int_equal(control->is_gone[0], 0);
}

/* Or it would hear that we close before it hears why. */
static void a_verdict_that_comes_around_the_parent_is_told_to_it(void **state)
{
    const struct weft_wire_notice verdict = {
        .status = WEFT_ERR_PEER, .rank = 2, .number = 4, .text = "rank 2 closed"};
    struct weft_control *control = *state;
    struct weft_net_conn *conn = edge(control);
    lone_parent(control);
    told_above = 0;
    lone_hears(control, conn, WEFT_WIRE_VERDICT, &verdict);
    assert_int_equal(control->is_gone[2], WEFT_GONE_DEAD);
    assert_int_equal(told_above, 4);
}

static void a_verdict_of_the_parents_is_not_told_to_it(void **state)
{
    const struct weft_wire_notice verdict = {
        .status = WEFT_ERR_PEER, .rank = 2, .number = 4, .text = "rank 2 closed"};
    struct weft_control *control = *state;
    told_above = 0;
    lone_hears(control, lone_parent(control), WEFT_WIRE_VERDICT, &verdict);
    assert_int_equal(control->is_gone[2], WEFT_GONE_DEAD);
    assert_int_equal(told_above, 0);
}

static int count_edges(const struct weft_control *control)
{
    int count = 0;
    for (struct weft_list *node = control->aside->edges.next; node != &control->aside->edges;
         node = node->next) {
        count++;
    }
    return count;
}

/* Either may have brought a verdict already, and who brought it may be about to leave. */
static void of_two_that_call_each_other_at_once_both_connections_stay(void **state)
{
    struct weft_control *control = *state;
    edge(control);
    WEFT_CONTAINER_OF(control->aside->edges.next, struct weft_control_edge, node)->is_ours = true;
    edge(control);
    assert_int_equal(count_edges(control), 2);
    edge(control); /* it comes again: its last one is of no use to it */
    assert_int_equal(count_edges(control), 2);
}

static bool stands_in_at(struct weft_control *control, uint64_t now_ns)
{
    bool stands_in;
    weft_engine_lock(control->engine);
    weft_control_aside_beat(control, now_ns);
    stands_in = weft_control_aside_stands_in(control);
    weft_engine_unlock(control->engine);
    return stands_in;
}

/* Who stood in has judged, nothing waits any more, and it must not leave before those who look for it have found it. */
static void a_parent_of_another_host_that_stood_still_does_so_until_it_speaks(void **state)
{
    struct weft_control *control = *state;
    uint64_t now_ns = weft_clock_ns();
    struct weft_net_conn *parent;
    edge(control);
    parent = lone_parent(control);
    control->table.group_of[0] = 1;
    control->aside->around_ns = now_ns; /* it was found to stand still */
    control->aside->up = WEFT_WIRE_NO_RANK;
    parent->heard_ns = 0;
    assert_true(stands_in_at(control, now_ns));
    parent->heard_ns = weft_clock_ns();
    assert_false(stands_in_at(control, weft_clock_ns()));
    control->table.group_of[0] = 0;
}

static void anything_else_ends_the_connection(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = edge(control);
    assert_false(weft_list_is_empty(&control->aside->edges));
    lone_speaks(control, conn);
    assert_true(weft_list_is_empty(&control->aside->edges));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_death_that_is_reported_beside_the_tree_is_judged,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_a_process_that_was_leaving_is_no_death,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(a_verdict_that_comes_around_the_parent_is_told_to_it,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(a_verdict_of_the_parents_is_not_told_to_it, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(of_two_that_call_each_other_at_once_both_connections_stay,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(
            a_parent_of_another_host_that_stood_still_does_so_until_it_speaks, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(anything_else_ends_the_connection, lone_set_up,
                                        lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
