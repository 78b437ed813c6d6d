/* SPDX-License-Identifier: Apache-2.0 */
/* A connection made while the tree heals is nothing until its other end has spoken on it; afterwards its end is a death. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/harness.h"
#include "lone.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_new_parent_that_never_spoke_is_sought_again(void **state)
{
    struct weft_control *control = *state;
    lone_ends(control, lone_parent(control));
    assert_null(control->parent);
    assert_true(control->heal->is_seeking);
    assert_int_equal(control->heal->report_count, 0);
    assert_int_equal(control->is_out[0], 0);
}

static void a_new_parent_that_spoke_has_died(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = lone_parent(control);
    lone_speaks(control, conn);
    lone_ends(control, conn);
    assert_null(control->parent);
    assert_int_equal(control->heal->report_count, 1);
    assert_int_equal(control->is_out[0], 1);
}

static void a_parent_of_the_start_has_died_whether_it_spoke_or_not(void **state)
{
    struct weft_control *control = *state;
    control->parent = lone_conn(control, 0, ROLE_PARENT, WEFT_WIRE_ATTACH);
    lone_ends(control, control->parent);
    assert_int_equal(control->heal->report_count, 1);
}

static void one_that_never_speaks_is_not_sought_for_ever(void **state)
{
    struct weft_control *control = *state;
    int ended = 0;
    while (control->heal->report_count == 0 && ended++ < 100) {
        lone_ends(control, lone_parent(control));
    }
    assert_in_range(ended, 2, 20);
}

static void a_new_child_that_never_spoke_is_called(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = lone_conn(control, 2, ROLE_CHILD, WEFT_WIRE_ADOPT);
    control->children[0] = (struct weft_control_child){.rank = 2, .conn = conn};
    control->child_count = 1;
    lone_ends(control, conn);
    assert_null(control->children[0].conn);
    assert_int_equal(control->heal->report_count, 0);
    assert_int_equal(control->is_out[2], 0);
    assert_true(control->heal->check_ns != 0); /* soon it is looked who has not come */
}

/* It has attached to us anew. */
static void visits(struct weft_control *control, uint32_t rank)
{
    struct weft_net_conn *conn = lone_conn(control, rank, ROLE_VISITOR, WEFT_WIRE_HEAL);
    weft_list_append(&control->heal->visitors, &conn->node);
    lone_speaks(control, conn);
}

/* Somebody in between has cut it. What was on its way is lost, and no call may wait for that. */
static void a_child_that_comes_anew_before_its_connection_is_seen_to_end_is_lost(void **state)
{
    struct weft_control *control = *state;
    lone_coordinator(control);
    visits(control, 2);
    assert_int_equal(control->is_gone[2], WEFT_GONE_DEAD);
    assert_null(control->children[0].conn);
    assert_int_not_equal(control->verdicts, 0);
}

static void a_child_that_comes_anew_before_it_has_spoken_is_taken(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = lone_coordinator(control);
    conn->purpose = WEFT_WIRE_HEAL;
    visits(control, 2);
    assert_int_equal(control->is_gone[2], 0);
    assert_non_null(control->children[0].conn);
    assert_int_equal(control->children[0].conn->tag, ROLE_CHILD);
}

/* ---- who is asked, and ends ---- */

static pid_t rank_0_runs(struct weft_control *control)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* it does not outlive a test that fails */
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    control->table.pid[0] = (uint32_t)child;
    return child;
}

static void ends(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void fires(struct weft_control *control, uint64_t now_ns)
{
    weft_engine_lock(control->engine);
    control->heal->timer.fire(&control->heal->timer, now_ns);
    weft_engine_unlock(control->engine);
}

static void looks_below(struct weft_control *control, uint64_t now_ns)
{
    weft_engine_lock(control->engine);
    weft_heal_below(control->heal, now_ns);
    weft_engine_unlock(control->engine);
}

/* It was killed together with its parent, its listener is closed, and its process is there for a moment yet. */
static void one_that_is_asked_while_it_ends_is_reported(void **state)
{
    struct weft_control *control = *state;
    pid_t child = rank_0_runs(control);
    uint64_t now_ns = weft_clock_ns();
    lone_ends(control, lone_parent(control));
    now_ns += RETRY_MS * WEFT_NS_PER_MS;
    fires(control, now_ns);
    assert_int_equal(control->heal->target, 0);
    assert_int_equal(control->is_out[0], 0);
    ends(child);
    fires(control, now_ns + RETRY_MS * WEFT_NS_PER_MS);
    assert_int_equal(control->is_out[0], 1);
    assert_true(weft_control_heal_is_reported(control, 0));
}

/* The same, when it stood still before. */
static void one_that_was_given_up_and_ends_later_is_reported(void **state)
{
    struct weft_control *control = *state;
    pid_t child = rank_0_runs(control);
    uint64_t now_ns = weft_clock_ns() + 60000 * WEFT_NS_PER_MS;
    lone_ends(control, lone_parent(control));
    fires(control, now_ns);
    fires(control, now_ns + 30000 * WEFT_NS_PER_MS); /* nobody is patient for so long */
    assert_int_equal(control->is_out[0], 1);
    assert_false(weft_control_heal_is_reported(control, 0));
    for (uint64_t i = 1; i <= 20; i++) {
        looks_below(control, now_ns + (30000 + 1000 * i) * WEFT_NS_PER_MS);
        assert_int_not_equal(control->heal->check_ns, 0); /* for as long as it takes */
    }
    ends(child);
    looks_below(control, now_ns + 60000 * WEFT_NS_PER_MS);
    assert_true(weft_control_heal_is_reported(control, 0));
}

static bool is_rank_2_reported(void *control)
{
    looks_below(control, weft_clock_ns());
    return weft_control_heal_is_reported(control, 2);
}

/* It died with its parent, of whom we heard long ago: we stood still meanwhile. The number of its process says nothing here. */
static void one_of_another_pid_namespace_that_does_not_listen_is_reported_however_late(void **state)
{
    struct weft_control *control = *state;
    struct weft_control_channel *channel = NULL;
    assert_int_equal(weft_control_channel_open(control, 4711, NULL, LONE_RANKS, &channel), WEFT_OK);
    channel->have_all_called = true;
    control->table.pid[2] = WEFT_WIRE_PID_FOREIGN | 1;
    lone_parent(control);
    control->is_out[0] = 1; /* rank 2 was below it */
    control->is_gone[0] = WEFT_GONE_DEAD;
    weft_engine_lock(control->engine);
    weft_heal_below_changed(control->heal, 1);
    weft_engine_unlock(control->engine);
    assert_true(harness_wait_until(is_rank_2_reported, control, 10000));
    weft_control_channel_close(channel);
}

/* ---- the next coordinator ---- */

/* The parent is gone, and there is nobody else above. */
static void become_coordinator(struct weft_control *control)
{
    struct weft_engine_timer *timer = &control->heal->timer;
    struct weft_net_conn *conn = lone_parent(control);
    lone_speaks(control, conn);
    lone_ends(control, conn);
    weft_engine_lock(control->engine);
    timer->fire(timer, weft_clock_ns());
    weft_engine_unlock(control->engine);
    assert_true(control->is_top);
}

/* It knows of no verdict. */
static struct weft_net_conn *comes(struct weft_control *control, uint32_t rank)
{
    struct weft_net_conn *conn = lone_conn(control, rank, ROLE_CHILD, WEFT_WIRE_HEAL);
    control->children[0] =
        (struct weft_control_child){.rank = rank, .conn = conn, .is_telling = true};
    control->child_count = 1;
    lone_speaks(control, conn);
    return conn;
}

/* And all that it knew has come. */
static void has_told(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_BELOW, .src = conn->peer_rank, .dst = LONE_SELF, .len = 4};
    uint8_t bytes[4];
    put32(bytes, conn->peer_rank);
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, bytes);
    weft_engine_unlock(control->engine);
}

static void a_new_coordinator_judges_when_all_others_have_told_what_they_know(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn;
    become_coordinator(control);
    assert_int_equal(control->is_gone[0], 0);
    conn = comes(control, 2);
    assert_int_equal(control->is_gone[0], 0);
    has_told(control, conn);
    assert_int_equal(control->is_gone[0], WEFT_GONE_DEAD);
    assert_int_not_equal(control->verdicts, 0);
}

static void a_verdict_that_its_coordinator_told_some_before_it_died_stays_the_first(void **state)
{
    struct weft_control *control = *state;
    struct weft_wire_notice notice = {
        .status = WEFT_ERR_PEER, .rank = 0, .number = 3, .text = "rank 0 died"};
    struct weft_net_conn *conn;
    become_coordinator(control);
    conn = comes(control, 2);
    lone_hears(control, conn, WEFT_WIRE_REPORT, &notice);
    assert_int_equal(control->is_gone[0], WEFT_GONE_DEAD);
    assert_int_equal(control->verdicts, 3);
    has_told(control, conn);
    assert_int_equal(control->verdicts, 3); /* ours of the same is not given any more */
    assert_int_equal(control->heal->report_count, 0);
}

/* Its first beat has come before the coordinator died, the rest is on its way. */
static void who_has_only_spoken_yet_is_waited_for(void **state)
{
    struct weft_control *control = *state;
    struct weft_wire_notice notice = {
        .status = WEFT_ERR_PEER, .rank = 0, .number = 3, .text = "rank 0 died"};
    struct weft_net_conn *conn = comes(control, 2);
    become_coordinator(control);
    lone_hears(control, conn, WEFT_WIRE_REPORT, &notice);
    has_told(control, conn);
    assert_int_equal(control->verdicts, 3);
}

/* Its good-bye found nobody any more. */
static void who_ended_after_the_coordinator_closed_has_closed_too(void **state)
{
    struct weft_control *control = *state;
    struct weft_wire_frame bye = {.type = WEFT_WIRE_BYE, .src = 0, .dst = LONE_SELF};
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    control->table.pid[2] = (uint32_t)child;
    control->parent = lone_conn(control, 0, ROLE_PARENT, WEFT_WIRE_ATTACH);
    weft_engine_lock(control->engine);
    control->parent->ops->frame(control->parent, &bye, NULL);
    weft_engine_unlock(control->engine);
    lone_ends(control, control->parent);
    weft_engine_lock(control->engine);
    control->heal->timer.fire(&control->heal->timer, weft_clock_ns() + 200 * WEFT_NS_PER_MS);
    assert_true(control->is_top);
    weft_heal_hear_due(control->heal, weft_clock_ns());
    weft_engine_unlock(control->engine);
    assert_int_equal(control->is_gone[2], WEFT_GONE_CLOSED);
}

static bool is_judged(void *arg)
{
    struct weft_control *control = arg;
    struct weft_engine_timer *timer = &control->heal->timer;
    weft_engine_lock(control->engine);
    timer->fire(timer, weft_clock_ns());
    weft_engine_unlock(control->engine);
    return control->is_gone[0] == WEFT_GONE_DEAD;
}

static void who_does_not_come_is_not_waited_for_for_long(void **state)
{
    struct weft_control *control = *state;
    uint64_t began_ns = weft_clock_ns();
    become_coordinator(control);
    assert_true(harness_wait_until(is_judged, control, 10000));
    assert_true(weft_clock_ns() - began_ns >= 200 * WEFT_NS_PER_MS);
}

static void who_has_died_too_is_not_waited_for(void **state)
{
    struct weft_control *control = *state;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    control->table.pid[2] = (uint32_t)child;
    become_coordinator(control);
    assert_int_equal(control->is_gone[0], 0);
    weft_heal_hear_due(control->heal, weft_clock_ns());
    assert_int_equal(control->is_gone[0], WEFT_GONE_DEAD);
    assert_int_equal(control->is_gone[2], WEFT_GONE_DEAD);
}

static void who_has_slept_since_it_last_heard_of_the_coordinator_lets_others_find_it_first(
    void **state)
{
    struct weft_control *control = *state;
    uint64_t now_ns = weft_clock_ns();
    control->woke_ns = now_ns; /* and what its parent had said is older */
    become_coordinator(control);
    assert_true(control->quiet_ns >= now_ns + ALONE_MS * WEFT_NS_PER_MS);
    assert_int_equal(control->is_gone[0], 0);
    assert_int_equal(control->heal->report_count, 1); /* kept for whoever coordinates */
}

/* ---- calls ---- */

/* Somebody else has died before. There is no way to rank 0 any more, and soon there is a verdict on it: a call that begins
 * now is not told of the one who died before. */
static void a_call_that_begins_while_the_tree_heals_waits_for_the_verdict(void **state)
{
    struct weft_control *control = *state;
    struct weft_wire_notice before = {
        .status = WEFT_ERR_PEER, .rank = 2, .number = 3, .text = "rank 2 died"};
    struct weft_net_conn *conn = lone_parent(control);
    uint32_t gone;
    lone_speaks(control, conn);
    lone_hears(control, conn, WEFT_WIRE_VERDICT, &before);
    assert_int_equal(control->gone_count, 1);
    assert_false(weft_control_is_cut(control, 0, &gone));
    lone_ends(control, conn);
    assert_null(control->parent);
    assert_false(weft_control_is_cut(control, 0, &gone));
    weft_engine_lock(control->engine);
    control->heal->timer.fire(&control->heal->timer, weft_clock_ns()); /* nobody else is above */
    weft_engine_unlock(control->engine);
    assert_int_equal(control->is_gone[0], WEFT_GONE_DEAD);
    assert_true(weft_control_is_cut(control, 0, &gone));
    assert_int_equal(gone, 0);
}

/* ---- ways ---- */

/* An answer of the coordinator to one below that was on its way to another parent. */
static void a_word_from_above_that_comes_back_from_below_is_no_way_up(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *parent = lone_parent(control);
    struct weft_net_conn *child = lone_conn(control, 2, ROLE_CHILD, WEFT_WIRE_ATTACH);
    struct weft_wire_frame frame = {.type = WEFT_WIRE_HEARTBEAT, .src = 0, .dst = LONE_SELF};
    control->children[0] = (struct weft_control_child){.rank = 2, .conn = child};
    control->child_count = 1;
    weft_control_via_open(control);
    lone_speaks(control, child);
    weft_engine_lock(control->engine);
    child->ops->frame(child, &frame, NULL);
    weft_engine_unlock(control->engine);
    assert_ptr_equal(weft_control_way_to(control, 0), parent);
    assert_ptr_equal(weft_control_way_to(control, 2), child);
}

/* ---- reports ---- */

static void what_is_reported_just_after_the_parent_closed_waits_for_the_next_one(void **state)
{
    struct weft_control *control = *state;
    struct weft_wire_notice notice = {.status = WEFT_ERR_PEER, .rank = 2, .text = "rank 2 died"};
    struct weft_wire_frame bye = {.type = WEFT_WIRE_BYE, .src = 0, .dst = LONE_SELF};
    control->parent = lone_conn(control, 0, ROLE_PARENT, WEFT_WIRE_ATTACH);
    weft_engine_lock(control->engine);
    control->parent->ops->frame(control->parent, &bye, NULL);
    weft_engine_unlock(control->engine);
    lone_ends(control, control->parent);
    weft_engine_lock(control->engine);
    weft_control_report(control, 0, &notice);
    weft_engine_unlock(control->engine);
    assert_int_equal(control->heal->report_count, 1);
    assert_int_equal(control->is_gone[2], 0); /* not judged here, without a number */
}

/* ---- whose process is over ---- */

static void a_process_has_ended_when_it_is_reaped_or_another_has_its_number(void **state)
{
    uint64_t now = weft_control_ticks_now();
    pid_t child;
    (void)state;
    assert_false(weft_control_process_has_ended(getpid(), now));
    assert_true(weft_control_process_has_ended(getpid(), 1)); /* ours is younger than the boot */
    child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(weft_control_process_has_ended(child, now));
}

static void *wait_for_word(void *fd_p)
{
    char word;
    (void)!read(*(int *)fd_p, &word, 1);
    _exit(0);
}

static bool has_no_first_thread(void *path)
{
    char text[512] = "";
    FILE *stat = fopen(path, "re");
    bool is =
        stat != NULL && fgets(text, sizeof(text), stat) != NULL && strstr(text, ") Z ") != NULL;
    if (stat != NULL) {
        fclose(stat);
    }
    return is;
}

static void a_process_whose_first_thread_has_ended_lives(void **state)
{
    uint64_t now = weft_control_ticks_now();
    int words[2];
    char path[32];
    pid_t child;
    (void)state;
    assert_int_equal(pipe(words), 0);
    child = fork();
    if (child == 0) {
        pthread_t thread;
        close(words[1]);
        if (pthread_create(&thread, NULL, wait_for_word, &words[0]) == 0) {
            pthread_exit(NULL);
        }
        _exit(1);
    }
    close(words[0]);
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)child);
    assert_true(harness_wait_until(has_no_first_thread, path, 10000));
    assert_false(weft_control_process_has_ended(child, now));
    close(words[1]); /* its other thread ends too; nobody has reaped it yet */
    assert_int_equal(waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    assert_true(weft_control_process_has_ended(child, now));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void nobody_is_over_whom_we_cannot_look_up(void **state)
{
    struct rlimit all, none;
    bool has_ended;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    has_ended = weft_control_process_has_ended(getpid(), weft_control_ticks_now());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_false(has_ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_parent_that_never_spoke_is_sought_again, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(a_new_parent_that_spoke_has_died, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(a_parent_of_the_start_has_died_whether_it_spoke_or_not,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(one_that_never_speaks_is_not_sought_for_ever, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(a_new_child_that_never_spoke_is_called, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(
            a_child_that_comes_anew_before_its_connection_is_seen_to_end_is_lost, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(a_child_that_comes_anew_before_it_has_spoken_is_taken,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_asked_while_it_ends_is_reported, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(one_that_was_given_up_and_ends_later_is_reported,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(
            one_of_another_pid_namespace_that_does_not_listen_is_reported_however_late, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(
            a_new_coordinator_judges_when_all_others_have_told_what_they_know, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(
            a_verdict_that_its_coordinator_told_some_before_it_died_stays_the_first, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(who_has_only_spoken_yet_is_waited_for, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(who_ended_after_the_coordinator_closed_has_closed_too,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(who_does_not_come_is_not_waited_for_for_long, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(who_has_died_too_is_not_waited_for, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(
            who_has_slept_since_it_last_heard_of_the_coordinator_lets_others_find_it_first,
            lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(
            a_call_that_begins_while_the_tree_heals_waits_for_the_verdict, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(a_word_from_above_that_comes_back_from_below_is_no_way_up,
                                        lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(
            what_is_reported_just_after_the_parent_closed_waits_for_the_next_one, lone_set_up,
            lone_tear_down),
        cmocka_unit_test(a_process_has_ended_when_it_is_reaped_or_another_has_its_number),
        cmocka_unit_test(a_process_whose_first_thread_has_ended_lives),
        cmocka_unit_test(nobody_is_over_whom_we_cannot_look_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
