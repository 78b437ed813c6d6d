/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose time to shrink is up withdraws, and hears whether the others go on without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/harness.h"
#include "lone.h"

#include <pthread.h>

#define CHANNEL 77
#define NUMBER 3
#define SHORT_MS 30
#define WAIT_MS 10000
#define WITHDRAW 1  /* flags, as src/control/shrink.c has them */
#define WITHDRAWN 2 /* the same */

static _Atomic uint32_t asked, withdrawals; /* that went up */
static _Atomic uint32_t decided;            /* told to all below */
static uint64_t timeout_ms;

/* There is nobody above; what would go there is looked at here. */
weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len);

weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len)
{
    (void)conn;
    (void)payload;
    (void)len;
    atomic_fetch_add(&asked, frame->type == WEFT_WIRE_SHRINK);
    atomic_fetch_add(&decided, frame->type == WEFT_WIRE_SHRUNK && frame->flags == 0 &&
                                   frame->dst == WEFT_WIRE_NO_RANK);
    if (frame->type == WEFT_WIRE_SHRINK && (frame->flags & WITHDRAW) != 0) {
        atomic_fetch_add(&withdrawals, 1);
    }
    return WEFT_OK;
}

struct caller {
    struct weft_control_channel *channel;
    pthread_t thread;
    uint32_t ranks[LONE_RANKS], count;
    weft_status_t status;
};

static void *shrink(void *arg)
{
    struct caller *caller = arg;
    caller->status = weft_control_shrink_wait(caller->channel, NUMBER, caller->ranks,
                                              &caller->count, timeout_ms);
    return NULL;
}

static void open_channel(struct weft_control *control, struct caller *caller)
{
    control->parent = lone_conn(control, 0, ROLE_PARENT, WEFT_WIRE_ATTACH);
    assert_int_equal(
        weft_control_channel_open(control, CHANNEL, NULL, LONE_RANKS, &caller->channel), WEFT_OK);
    assert_int_equal(pthread_create(&caller->thread, NULL, shrink, caller), 0);
}

/* The call has begun, its time is up, and it has withdrawn. */
static void begin(struct weft_control *control, struct caller *caller)
{
    timeout_ms = SHORT_MS;
    atomic_store(&withdrawals, 0);
    open_channel(control, caller);
    assert_true(harness_wait_reach(&withdrawals, 1, WAIT_MS));
}

static void tell(struct weft_control *control, uint8_t flags, const uint32_t *ranks, uint32_t count)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRUNK,
                                    .flags = flags,
                                    .comm = CHANNEL,
                                    .src = 0,
                                    .dst = WEFT_WIRE_NO_RANK,
                                    .number = NUMBER,
                                    .len = 8 + 4 * count};
    uint8_t bytes[8 + 4 * LONE_RANKS] = {0};
    put32(bytes + 4, count);
    for (uint32_t i = 0; i < count; i++) {
        put32(bytes + 8 + 4 * (size_t)i, ranks[i]);
    }
    weft_engine_lock(control->engine);
    weft_control_shrink_arrived(control, control->parent, &frame, bytes);
    weft_engine_unlock(control->engine);
}

static void end(struct caller *caller)
{
    assert_int_equal(pthread_join(caller->thread, NULL), 0);
    weft_control_channel_close(caller->channel);
}

static void a_decision_that_crosses_the_withdrawal_counts(void **state)
{
    struct weft_control *control = *state;
    const uint32_t both[] = {1, 2};
    struct caller caller = {.count = 0};
    begin(control, &caller);
    tell(control, 0, both, 2);
    end(&caller);
    assert_int_equal(caller.status, WEFT_OK);
    assert_int_equal(caller.count, 2);
    assert_int_equal(caller.ranks[1], 2);
}

static void who_has_withdrawn_is_told_so_and_the_call_ends_by_its_deadline(void **state)
{
    struct weft_control *control = *state;
    struct caller caller = {.count = 0};
    begin(control, &caller);
    tell(control, WITHDRAWN, NULL, 0);
    end(&caller);
    assert_int_equal(caller.status, WEFT_ERR_TIMEOUT);
}

static void an_abort_ends_it(void **state)
{
    struct weft_control *control = *state;
    struct caller caller = {.count = 0};
    timeout_ms = WAIT_MS;
    atomic_store(&withdrawals, 0);
    atomic_store(&asked, 0);
    open_channel(control, &caller);
    assert_true(harness_wait_reach(&asked, 1, WAIT_MS));
    assert_int_equal(weft_control_channel_abort(caller.channel, "enough"), WEFT_OK);
    end(&caller);
    assert_int_equal(caller.status, WEFT_ERR_ABORTED);
    assert_true(atomic_load(&withdrawals) > 0);
}

static void without_an_answer_the_call_ends_all_the_same(void **state)
{
    struct weft_control *control = *state;
    struct caller caller = {.count = 0};
    begin(control, &caller);
    end(&caller);
    assert_int_equal(caller.status, WEFT_ERR_TIMEOUT);
}

/* A member's wish reaches the coordinator. */
static void ask(struct weft_control *control, uint32_t rank)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRINK,
                                    .comm = CHANNEL,
                                    .src = rank,
                                    .dst = WEFT_WIRE_NO_RANK,
                                    .number = NUMBER,
                                    .len = 4 * LONE_RANKS};
    uint8_t bytes[4 * LONE_RANKS];
    for (uint32_t i = 0; i < LONE_RANKS; i++) {
        put32(bytes + 4 * (size_t)i, i);
    }
    weft_engine_lock(control->engine);
    weft_control_shrink_arrived(control, NULL, &frame, bytes);
    weft_engine_unlock(control->engine);
}

/* It asked by one who has died since, and has no parent at the moment. */
static void nothing_is_decided_before_there_is_a_way_to_each(void **state)
{
    struct weft_control *control = *state;
    struct weft_net_conn *conn = lone_coordinator(control);
    control->is_gone[0] = WEFT_GONE_DEAD;
    control->gone_count = 1;
    control->children[0].conn = NULL;
    atomic_store(&decided, 0);
    ask(control, LONE_SELF);
    ask(control, 2);
    assert_int_equal(atomic_load(&decided), 0);
    control->children[0].conn = conn;
    ask(control, 2); /* as who has a new parent does */
    assert_int_equal(atomic_load(&decided), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_decision_that_crosses_the_withdrawal_counts, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(
            who_has_withdrawn_is_told_so_and_the_call_ends_by_its_deadline, lone_set_up,
            lone_tear_down),
        cmocka_unit_test_setup_teardown(an_abort_ends_it, lone_set_up, lone_tear_down),
        cmocka_unit_test_setup_teardown(without_an_answer_the_call_ends_all_the_same, lone_set_up,
                                        lone_tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_decided_before_there_is_a_way_to_each,
                                        lone_set_up, lone_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
