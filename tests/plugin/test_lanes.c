/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that are replaced, lost and numbered in ways that take long, or luck, from outside. */
#include "inside.h"

#include <setjmp.h>
#include <stdarg.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <linux/filter.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
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
    inside_hold();
    assert_int_equal(WEFT_OK, weft_nccl_dial(comm, 0, 0));
    inside_let_go();
    inside_await_state(comm, old->index, WEFT_NCCL_LANE_RETIRING);
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

/* Nothing that is sent to this end arrives any more. */
static void make_black_hole(struct weft_nccl_comm *comm, uint32_t id)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog program = {.len = 1, .filter = &drop};
    int count = 0;
    pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        count +=
            comm->lanes[i]->id == id && setsockopt(comm->lanes[i]->fd, SOL_SOCKET, SO_ATTACH_FILTER,
                                                   &program, sizeof(program)) == 0;
    }
    pthread_mutex_unlock(&comm->lock);
    assert_int_equal(1, count);
}

static void a_retiring_lane_that_falls_silent_is_given_up(void **state)
{
    struct inside inside;
    (void)state;
    pattern_fill(out, LEN, 1);
    inside_open(0, &inside);
    void *send = fill(&inside);
    uint32_t id = replace(inside.sender)->id;
    make_black_hole(inside.receiver, id);
    make_black_hole(inside.sender, id);
    receive(&inside, send);
    inside_close(&inside);
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
    inside_hold();
    assert_true(old->has_frame);
    inside_let_go();
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
    inside_hold();
    assert_true(inside.sender->next_id > 65536);
    inside_let_go();
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
    inside_await_state(inside.sender, WEFT_NCCL_LANES - 1, WEFT_NCCL_LANE_UP);
    pair_move(&inside.plugin, &inside.pair, LEN);
    pair_move(&inside.plugin, &inside.pair, 100);
    inside_close(&inside);
}

/* Without helpers the receiver's lanes are read by those who test for a receive, and there is none. */
static void a_lost_note_is_said_again_though_nobody_tests(void **state)
{
    struct inside inside;
    int is_sent = 0, is_received = 0;
    (void)state;
    inside_open(0, &inside);
    void *recv = pair_recv(&inside.plugin, &inside.pair, in, 200000);
    inside_hold();
    void *send = pair_send(&inside.plugin, &inside.pair, out, 200000);
    for (int i = 0; i < 3; i++) { /* all of it is out, and there is no answer yet */
        assert_int_equal(0, plugin_test(&inside.plugin, send, &is_sent, NULL));
        assert_int_equal(0, is_sent);
    }
    while (!is_received) {
        assert_int_equal(0, plugin_test(&inside.plugin, recv, &is_received, NULL));
    }
    inside_reset(inside_lane_of_slot(inside.sender, 0));
    inside_let_go();
    pair_wait(&inside.plugin, send);
    inside_close(&inside);
}

/* The receiver has no place for a lane for a while, and says so to who dials. */
static void a_refusal_for_want_of_room_is_not_for_ever(void **state)
{
    struct weft_nccl_lane *taken[WEFT_NCCL_LANES], *lane;
    struct inside inside;
    uint32_t count = 0, id;
    (void)state;
    inside_open(0, &inside);
    inside_hold();
    while ((lane = weft_nccl_lane_new(inside.receiver)) != NULL) {
        taken[count++] = lane;
    }
    id = inside.sender->next_id;
    assert_int_equal(WEFT_OK, weft_nccl_dial(inside.sender, 1, 0));
    inside_let_go();
    inside_await_state(inside.sender, 1, WEFT_NCCL_LANE_DEAD); /* it was refused */
    inside_hold();
    while (count > 0) {
        weft_nccl_lane_drop(taken[--count]);
    }
    inside_let_go();
    inside_reset(inside_lane_of_slot(inside.sender, 0));
    pair_move(&inside.plugin, &inside.pair, LEN);
    inside_hold();
    assert_true(inside.sender->next_id > id + 1);
    inside_let_go();
    inside_close(&inside);
}

/* Nobody dials meanwhile. */
static void short_messages_go_by_helpers_while_the_first_lane_is_missing(void **state)
{
    struct inside inside;
    (void)state;
    inside_open(1, &inside);
    pair_move(&inside.plugin, &inside.pair, LEN);
    inside_await_lanes(&inside, 2);
    inside_hold();
    inside_reset(inside_lane_of_slot(inside.sender, 0));
    weft_nccl_comm_drive(inside.sender, WEFT_NCCL_READ); /* it is lost before the first of them */
    for (int i = 0; i < 3; i++) {
        pair_move(&inside.plugin, &inside.pair, 1000);
    }
    assert_null(inside_lane_of_slot(inside.sender, 0));
    inside_let_go();
    inside_close(&inside);
}

static void a_nic_whose_address_is_gone_is_done_without(void **state)
{
    struct weft_nccl_devices *devices = &weft_nccl_core.devices;
    struct inside inside;
    struct sockaddr_in gone = {.sin_family = AF_INET};
    (void)state;
    inside_open(0, &inside); /* which finds the devices */
    inside_close(&inside);
    assert_int_equal(1, inet_pton(AF_INET, "192.0.2.77", &gone.sin_addr));
    devices->nics[1] = (struct weft_nccl_nic){.name = "gone0", .prefix_len = 24};
    memcpy(&devices->nics[1].addr, &gone, sizeof(gone));
    for (uint8_t first = 0; first < 2; first++) {
        devices->nic_count = devices->device[0].count = 2;
        devices->device[0].nics[0] = first;
        devices->device[0].nics[1] = !first;
        inside_open(1, &inside);
        pair_move(&inside.plugin, &inside.pair, LEN);
        inside_close(&inside);
    }
    devices->nic_count = devices->device[0].count = 1;
    devices->device[0].nics[0] = 0;
}

/* The kernel had too much to tell, and it was lost. */
static void a_nic_is_used_again_though_nobody_said_that_it_is_back(void **state)
{
    struct inside inside;
    double start = now_s();
    bool is_down = true;
    (void)state;
    inside_open(0, &inside);
    inside_hold();
    weft_nccl_heal_carrier(0, false);
    inside_let_go();
    while (is_down) {
        inside_hold();
        is_down = weft_nccl_core.is_nic_down[0];
        inside_let_go();
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
    pair_move(&inside.plugin, &inside.pair, LEN);
    inside_close(&inside);
}

/* Both ends of it are in this process: two. */
static void beyond_lanes_max_a_connection_has_one_lane(void **state)
{
    struct inside inside;
    int64_t *most = &weft_nccl_core.params.number[WEFT_PARAM_LANES_MAX], before;
    (void)state;
    inside_open(1, &inside);
    before = *most;
    for (int extra = 0; extra < 2; extra++) {
        inside_hold();
        *most = 2 + extra;
        inside_let_go();
        pair_move(&inside.plugin, &inside.pair, LEN); /* which wants lanes */
        inside_hold();
        weft_nccl_tend(inside.sender, weft_clock_ns());
        assert_int_equal(1 + extra, inside.sender->lane_count);
        inside_let_go();
    }
    inside_close(&inside);
    *most = before;
    assert_int_equal(0, weft_nccl_core.lanes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_retiring_lane_carried_goes_again_when_it_is_lost),
        cmocka_unit_test(a_retiring_lane_that_falls_silent_is_given_up),
        cmocka_unit_test(a_retiring_lane_that_is_stopped_in_a_chunk_holds_up_nobody),
        cmocka_unit_test(lanes_may_be_dialled_more_than_65536_times),
        cmocka_unit_test(the_last_place_for_a_lane_is_as_good_as_any),
        cmocka_unit_test(beyond_lanes_max_a_connection_has_one_lane),
        cmocka_unit_test(a_lost_note_is_said_again_though_nobody_tests),
        cmocka_unit_test(a_refusal_for_want_of_room_is_not_for_ever),
        cmocka_unit_test(short_messages_go_by_helpers_while_the_first_lane_is_missing),
        cmocka_unit_test(a_nic_is_used_again_though_nobody_said_that_it_is_back),
        cmocka_unit_test(a_nic_whose_address_is_gone_is_done_without),
    };
    alarm(55);
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
