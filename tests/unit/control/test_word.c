/* SPDX-License-Identifier: Apache-2.0 */
/* Who says when that all below it have the verdicts, and when who leaves for one may go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lone.h"

#define LIMIT_MS 5000

static const struct weft_wire_notice dead = {
    .status = WEFT_ERR_PEER, .rank = 0, .number = 3, .text = "rank 0 closed"};
static const struct weft_wire_notice aborted = {
    .status = WEFT_ERR_ABORTED, .rank = 1, .number = 40, .text = "rank 1 aborted"};

static void judge(struct weft_control *control, uint64_t comm,
                  const struct weft_wire_notice *notice)
{
    weft_engine_lock(control->engine);
    weft_control_judge(control, comm, notice);
    weft_engine_unlock(control->engine);
}

static bool has_word(struct weft_control *control)
{
    weft_engine_lock(control->engine);
    weft_control_word_check(control);
    weft_engine_unlock(control->engine);
    return control->word_ns > control->judged_ns;
}

/* A beat of the child or the parent. */
static void beats(struct weft_control *control, struct weft_net_conn *conn, uint64_t heard,
                  uint8_t flags)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_HEARTBEAT,
                                    .flags = flags,
                                    .comm = heard,
                                    .src = conn->peer_rank,
                                    .dst = LONE_SELF};
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, NULL);
    weft_engine_unlock(control->engine);
}

static void every_verdict_of_the_parent_is_answered_also_one_that_was_known(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *parent = lone_parent(control);
    control->is_out[2] = 1; /* nobody is below */
    lone_hears(control, parent, WEFT_WIRE_VERDICT, &aborted);
    assert_int_equal(control->heard, 1);
    lone_hears(control, parent, WEFT_WIRE_VERDICT, &aborted);
    assert_int_equal(control->heard, 2);
    assert_false(has_word(control));
    beats(control, parent, 0, 0);
    assert_false(has_word(control));
    beats(control, parent, 0, WEFT_WIRE_FLAG_WORD);
    assert_true(has_word(control));
}

static void a_child_that_beats_is_waited_for(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *child = lone_coordinator(control);
    control->is_out[0] = 1;
    beats(control, child, 0, 0);
    judge(control, 5, &aborted);
    assert_int_equal(control->children[0].told, 1);
    assert_false(has_word(control));
    beats(control, child, 0, 0); /* it was on its way when we told it */
    assert_false(has_word(control));
    beats(control, child, 1, 0);
    assert_true(has_word(control));
}

static void a_leaf_that_has_never_spoken_is_not(void **state)
{
    struct weft_control *control = *state;
    (void)lone_coordinator(control);
    control->is_out[0] = 1;
    judge(control, 5, &aborted);
    assert_true(has_word(control));
}

/* Rank 0 lives, but our new connection to it ends before it speaks; then it is dead. */
static void who_lost_a_new_parent_that_never_spoke_gives_its_word_when_it_coordinates(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = lone_conn(control, 0, ROLE_HEALING, WEFT_WIRE_HEAL);
    uint64_t until_ns = weft_clock_after_ms(LIMIT_MS);
    control->is_out[2] = control->is_gone[2] = WEFT_GONE_CLOSED;
    weft_engine_lock(control->engine);
    weft_control_heal_orphaned(control, false);
    control->heal->attempt = conn;
    control->heal->target = 0;
    weft_control_heal_opened(control, conn);
    assert_ptr_equal(control->parent, conn);
    assert_true(control->is_word_due);
    conn->ops->lost(conn, WEFT_ERR_PEER, "closed its connection");
    assert_null(control->parent);
    weft_engine_unlock(control->engine);
    judge(control, 0, &dead);
    while (!control->is_top || weft_control_heal_expects(control)) {
        assert_true(weft_clock_ns() < until_ns);
        weft_engine_poll(control->engine);
    }
    judge(control, 5, &aborted);
    assert_true(has_word(control));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            every_verdict_of_the_parent_is_answered_also_one_that_was_known, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(a_child_that_beats_is_waited_for, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(a_leaf_that_has_never_spoken_is_not, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(
            who_lost_a_new_parent_that_never_spoke_gives_its_word_when_it_coordinates, lone_set_up,
            lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
