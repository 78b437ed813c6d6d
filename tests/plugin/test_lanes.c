/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that are replaced, lost and numbered in ways that take long, or luck, from outside. */
#include "inside.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <sched.h>
#include <unistd.h>

enum { LEN = 8 << 20 };

static char out[LEN], in[LEN];

/* Sends until the sockets are full; no receive is posted. */
static void *fill(struct inside *inside)
{
    void *request = pair_send(&inside->plugin, &inside->pair, out, LEN);
    int is_done = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(0, plugin_test(&inside->plugin, request, &is_done, NULL));
        assert_int_equal(0, is_done);
    }
    return request;
}

/* A new lane takes the place of the slot's old one, as one that comes home does. */
static struct weft_nccl_lane *replace(struct weft_nccl_comm *comm)
{
    struct weft_nccl_lane *old = inside_lane_of_slot(comm, 0);
    double start = now_s();
    bool is_retiring = false;
    inside_hold();
    assert_int_equal(WEFT_OK, weft_nccl_dial(comm, 0, 0));
    inside_let_go();
    while (!is_retiring) {
        pthread_mutex_lock(&comm->lock);
        is_retiring = old->state == WEFT_NCCL_LANE_RETIRING;
        pthread_mutex_unlock(&comm->lock);
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
    return old;
}

static void receive(struct inside *inside, void *send)
{
    void *recv = pair_recv(&inside->plugin, &inside->pair, in, LEN);
    int len = 0;
    pair_wait_both(&inside->plugin, send, recv, &len);
    assert_int_equal(LEN, len);
    assert_true(pattern_is(in, LEN, 1));
}

static void what_a_retiring_lane_carried_goes_again_when_it_is_lost(void **state)
{
    struct inside inside;
    (void)state;
    pattern_fill(out, LEN, 1);
    for (int helpers = 0; helpers < 2; helpers++) {
        inside_open(helpers, &inside);
        void *send = fill(&inside);
        inside_reset(replace(inside.sender));
        receive(&inside, send);
        inside_close(&inside);
    }
}

/* The message has landed, by copies that another lane brought, while the lane was in the middle of it. */
static void a_retiring_lane_that_is_stopped_in_a_chunk_holds_up_nobody(void **state)
{
    struct inside inside;
    (void)state;
    inside_open(0, &inside);
    inside.sender->chunk_len = LEN; /* so that the other lane has nothing to do */
    void *send = fill(&inside);
    struct weft_nccl_lane *old = replace(inside.sender);
    assert_true(old->has_frame);
    pthread_mutex_lock(&inside.sender->lock);
    inside.sender->landed = inside.sender->next_number;
    pthread_mutex_unlock(&inside.sender->lock);
    pair_wait(&inside.plugin, send);
    inside_close(&inside);
}

static void lanes_may_be_dialled_more_than_65536_times(void **state)
{
    struct inside inside;
    (void)state;
    pattern_fill(out, LEN, 1);
    inside_open(1, &inside);
    pair_move(&inside.plugin, &inside.pair, LEN);
    inside_hold();
    inside.sender->next_id = 65530;
    inside_let_go();
    for (int i = 0; i < 10; i++) {
        void *send = fill(&inside);
        reset_lanes(1 + i % 4);
        receive(&inside, send);
    }
    assert_true(inside.sender->next_id > 65536);
    inside_close(&inside);
}

/* All places but the last are taken. */
static void the_last_place_for_a_lane_is_as_good_as_any(void **state)
{
    struct inside inside;
    (void)state;
    inside_open(0, &inside);
    inside_hold();
    while (atomic_load(&inside.sender->lane_count) < WEFT_NCCL_LANES - 1) {
        assert_non_null(weft_nccl_lane_new(inside.sender));
    }
    assert_int_equal(WEFT_OK, weft_nccl_dial(inside.sender, 0, 0));
    inside_let_go();
    inside_await_lanes(&inside, 1);
    pair_move(&inside.plugin, &inside.pair, 100);
    while (inside.sender->lanes[WEFT_NCCL_LANES - 1]->state != WEFT_NCCL_LANE_UP) {
        sched_yield();
    }
    pair_move(&inside.plugin, &inside.pair, LEN);
    pair_move(&inside.plugin, &inside.pair, 100);
    inside_close(&inside);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_retiring_lane_carried_goes_again_when_it_is_lost),
        cmocka_unit_test(a_retiring_lane_that_is_stopped_in_a_chunk_holds_up_nobody),
        cmocka_unit_test(lanes_may_be_dialled_more_than_65536_times),
        cmocka_unit_test(the_last_place_for_a_lane_is_as_good_as_any),
    };
    alarm(55);
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
