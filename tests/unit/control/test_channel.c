/* SPDX-License-Identifier: Apache-2.0 */
/* One waiting call and its deadline, when the engine is busy elsewhere all the time; and channels that come late. */
#include "unit/comm/comm_support.h"

#include "comm/comm.h"
#include "control/internal.h"
#include "engine/internal.h"

#include <pthread.h>

#define TIMEOUT_MS 30

static weft_comm_t alone(void)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    weft_id_t id;
    config.timeout_ms = TIMEOUT_MS;
    assert_int_equal(weft_id_create(&config, &id), WEFT_OK);
    assert_int_equal(weft_comm_create(&id, 0, 1, &config, &comm), WEFT_OK);
    assert_int_equal(weft_control_barrier(comm),
                     WEFT_OK); /* what the first call sets up is there */
    return comm;
}

/* Somebody else's round that lasts until the caller has given up driving: a driver that lost its
 * CPU. */
struct long_round {
    struct weft_engine *engine;
    _Atomic uint32_t has_begun;
    pthread_t thread;
};

static void *hold_the_lock(void *arg)
{
    struct long_round *round = arg;
    weft_engine_lock(round->engine);
    atomic_store(&round->has_begun, 1);
    harness_wait_for(&round->engine->drivers, 1, DEADLINE_MS);
    harness_wait_for(&round->engine->drivers, 0, DEADLINE_MS);
    weft_engine_unlock(round->engine);
    return NULL;
}

static void round_begin(struct long_round *round, weft_comm_t comm)
{
    *round = (struct long_round){.engine = comm->job->engine};
    assert_int_equal(pthread_create(&round->thread, NULL, hold_the_lock, round), 0);
    assert_true(harness_wait_for(&round->has_begun, 1, DEADLINE_MS));
}

/* The deadline passes before the call has even entered the engine: it must not pass for done, and
 * nothing of it may be left behind in the queue. */
static void a_receive_that_never_entered_the_engine_times_out(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        weft_comm_t comm = alone();
        struct long_round round;
        char byte = 'x';
        size_t len = 777;
        round_begin(&round, comm);
        assert_int_equal(weft_control_recv(comm, 0, 1, &byte, 1, &len), WEFT_ERR_TIMEOUT);
        assert_int_equal(len, 777);
        pthread_join(round.thread, NULL);
        assert_int_equal(weft_comm_status(comm), WEFT_ERR_TIMEOUT);
        assert_int_equal(weft_comm_close(comm), WEFT_OK);
    }
}

/* With nobody to wait for it may also be done, late; but then it is done. */
static void an_allgather_that_never_entered_the_engine_is_done_or_timed_out(void **state)
{
    weft_comm_t comm = alone();
    struct long_round round;
    char mine = 'm', all = 'a';
    weft_status_t status;
    (void)state;
    round_begin(&round, comm);
    status = weft_control_allgather(comm, &mine, 1, &all);
    assert_true(status == WEFT_ERR_TIMEOUT || (status == WEFT_OK && all == 'm'));
    pthread_join(round.thread, NULL);
    assert_int_equal(weft_comm_close(comm), WEFT_OK);
}

/* The others, who opened theirs in time, have heard of it there. */
static void a_channel_with_a_member_that_is_known_to_be_dead_has_ended(void **state)
{
    const struct weft_wire_notice notice = {
        .status = WEFT_ERR_PEER, .rank = 0, .text = "rank 0 closed"};
    const uint32_t member = 0;
    weft_comm_t comm = alone();
    struct weft_control *control = comm->job->control;
    struct weft_control_channel *channel;
    (void)state;
    weft_engine_lock(control->engine);
    weft_control_history_add(control, 0, &notice);
    control->is_gone[0] = WEFT_GONE_DEAD;
    control->gone_count = 1;
    weft_engine_unlock(control->engine);
    assert_int_equal(weft_control_channel_open(control, 4711, &member, 1, &channel), WEFT_OK);
    assert_int_equal(atomic_load(&channel->ended), WEFT_ERR_PEER);
    assert_string_equal(channel->text, "rank 0 closed");
    weft_control_channel_close(channel);
    assert_int_equal(weft_comm_close(comm), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_that_never_entered_the_engine_times_out),
        cmocka_unit_test(an_allgather_that_never_entered_the_engine_is_done_or_timed_out),
        cmocka_unit_test(a_channel_with_a_member_that_is_known_to_be_dead_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
