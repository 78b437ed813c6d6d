/* SPDX-License-Identifier: Apache-2.0 */
/* Beside the tree comes only what must be heard while its ranks stand still: reports, verdicts, and who is leaving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lone.h"

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
        cmocka_unit_test_setup_teardown(anything_else_ends_the_connection, lone_set_up,
                                        lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
