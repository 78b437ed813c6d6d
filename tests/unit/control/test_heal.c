/* SPDX-License-Identifier: Apache-2.0 */
/* A connection made while the tree heals is nothing until its other end has spoken on it; afterwards its end is a death.
 * Rank 1 of three on one host, as it is after the start; its connections are ends of nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/heal.h"

#include <stdlib.h>

#define RANKS 3
#define SELF 1

static const uint8_t key[WEFT_WIRE_KEY_LEN] = "not much of a secret, but one...";

static void open_tree(struct weft_control *control)
{
    struct weft_wire_table *table = &control->table;
    assert_int_equal(weft_wire_table_open(RANKS, 1, table), WEFT_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        table->pid[rank] = 1; /* it lives as long as this machine */
    }
    weft_control_tree_fans(0, RANKS - 1, 2, &table->fan_groups, &table->fan_local);
    assert_int_equal(weft_control_tree_open(table, &control->tree), WEFT_OK);
}

static int set_up(void **state)
{
    static struct weft_params params;
    struct weft_control *control = calloc(1, sizeof(*control));
    assert_non_null(control);
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_int_equal(weft_engine_open(64, -1, &control->engine), WEFT_OK);
    control->params = &params;
    control->self = (struct weft_wire_self){.key = key,
                                            .is_authenticated = true,
                                            .job = "a job that heals",
                                            .epoch = 1,
                                            .rank = SELF,
                                            .ranks = RANKS};
    control->parent_rank = 0;
    weft_list_open(&control->parting);
    weft_list_open(&control->channels);
    weft_list_open(&control->early);
    weft_list_open(&control->early_calls);
    weft_engine_timer_open(&control->news, weft_control_news_fire);
    weft_engine_timer_open(&control->heart, NULL);
    open_tree(control);
    control->children = calloc(1, sizeof(*control->children));
    control->is_gone = calloc(RANKS, sizeof(*control->is_gone));
    control->is_out = calloc(RANKS, sizeof(*control->is_out));
    assert_true(control->children != NULL && control->is_gone != NULL && control->is_out != NULL);
    control->child_room = 1;
    weft_control_heal_open(control);
    *state = control;
    return 0;
}

static int tear_down(void **state)
{
    struct weft_control *control = *state;
    struct weft_engine *engine = control->engine;
    control->is_closing = true; /* no good-byes */
    weft_control_close(control);
    weft_engine_close(engine);
    return 0;
}

static struct weft_net_conn *conn_to(struct weft_control *control, uint32_t rank, uint32_t tag,
                                     enum weft_wire_purpose purpose)
{
    struct weft_net_conn *conn = calloc(1, sizeof(*conn));
    assert_non_null(conn);
    conn->ops = &weft_control_conn_ops;
    conn->owner = control;
    conn->engine = control->engine;
    conn->peer_rank = rank;
    conn->tag = tag;
    conn->purpose = (uint8_t)purpose;
    conn->state = WEFT_CONN_DEAD;
    return conn;
}

static void ends(struct weft_control *control, struct weft_net_conn *conn)
{
    weft_engine_lock(control->engine);
    conn->ops->lost(conn, WEFT_ERR_PEER, "closed its connection");
    weft_engine_unlock(control->engine);
}

static void speaks(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_HEARTBEAT, .src = conn->peer_rank, .dst = SELF};
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, NULL);
    weft_engine_unlock(control->engine);
}

static struct weft_net_conn *new_parent(struct weft_control *control)
{
    control->parent = conn_to(control, 0, ROLE_PARENT, WEFT_WIRE_HEAL);
    return control->parent;
}

static void a_new_parent_that_never_spoke_is_sought_again(void **state)
{
    struct weft_control *control = *state;
    ends(control, new_parent(control));
    assert_null(control->parent);
    assert_true(control->heal->is_seeking);
    assert_int_equal(control->heal->report_count, 0);
    assert_int_equal(control->is_out[0], 0);
}

static void a_new_parent_that_spoke_has_died(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = new_parent(control);
    speaks(control, conn);
    ends(control, conn);
    assert_null(control->parent);
    assert_int_equal(control->heal->report_count, 1);
    assert_int_equal(control->is_out[0], 1);
}

static void a_parent_of_the_start_has_died_whether_it_spoke_or_not(void **state)
{
    struct weft_control *control = *state;
    control->parent = conn_to(control, 0, ROLE_PARENT, WEFT_WIRE_ATTACH);
    ends(control, control->parent);
    assert_int_equal(control->heal->report_count, 1);
}

static void one_that_never_speaks_is_not_sought_for_ever(void **state)
{
    struct weft_control *control = *state;
    int ended = 0;
    while (control->heal->report_count == 0 && ended++ < 100) {
        ends(control, new_parent(control));
    }
    assert_in_range(ended, 2, 20);
}

static void a_new_child_that_never_spoke_is_called(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = conn_to(control, 2, ROLE_CHILD, WEFT_WIRE_ADOPT);
    control->children[0] = (struct weft_control_child){.rank = 2, .conn = conn};
    control->child_count = 1;
    ends(control, conn);
    assert_null(control->children[0].conn);
    assert_int_equal(control->heal->report_count, 0);
    assert_int_equal(control->is_out[2], 0);
    assert_true(control->heal->check_ns != 0); /* soon it is looked who has not come */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_parent_that_never_spoke_is_sought_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_new_parent_that_spoke_has_died, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_parent_of_the_start_has_died_whether_it_spoke_or_not,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_never_speaks_is_not_sought_for_ever, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_new_child_that_never_spoke_is_called, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
