/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: every size and order that NCCL may ask for, by every version, both ends in one process. */
#include "plugin.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void both_orders_connect(void **state)
{
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        struct plugin plugin;
        char handle[NCCL_HANDLE_LEN];
        void *listener, *sender = NULL, *receiver = NULL;
        double start = now_s();
        plugin_open(version, &plugin);
        assert_int_equal(0, plugin_listen(&plugin, handle, &listener));
        assert_int_equal(0, plugin_accept(&plugin, listener, &receiver)); /* nobody has come */
        assert_null(receiver);
        while (sender == NULL) { /* nobody accepts meanwhile */
            assert_int_equal(0, plugin_connect(&plugin, handle, &sender));
            assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        }
        while (receiver == NULL) {
            assert_int_equal(0, plugin_accept(&plugin, listener, &receiver));
            assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        }
        plugin_close_listen(&plugin, listener);
        pair_move(&plugin, &(struct pair){sender, receiver}, 100);
        plugin_close_recv(&plugin, receiver);
        plugin_close_send(&plugin, sender);
    }
}

static void one_handle_serves_several(void **state)
{
    struct plugin plugin;
    char handle[NCCL_HANDLE_LEN], copies[3][NCCL_HANDLE_LEN];
    void *listener;
    struct pair pairs[3] = {{0}};
    unsigned senders = 0, receivers = 0;
    double start = now_s();
    (void)state;
    plugin_open(11, &plugin);
    assert_int_equal(0, plugin_listen(&plugin, handle, &listener));
    for (int i = 0; i < 3; i++) {
        memcpy(copies[i], handle, sizeof(handle));
    }
    while (senders < 3 || receivers < 3) {
        if (senders < 3) {
            assert_int_equal(0, plugin_connect(&plugin, copies[senders], &pairs[senders].sender));
            senders += pairs[senders].sender != NULL;
        }
        if (receivers < 3) {
            assert_int_equal(0, plugin_accept(&plugin, listener, &pairs[receivers].receiver));
            receivers += pairs[receivers].receiver != NULL;
        }
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
    }
    for (int i = 0; i < 3; i++) { /* one after the other came up, so they pair */
        pair_move(&plugin, &pairs[i], 1000);
        pair_close(&plugin, &pairs[i]);
    }
    plugin_close_listen(&plugin, listener);
}

static void every_size_arrives_whole(void **state)
{
    static const size_t sizes[] = {
        0,     1,      7,      512,    4095,          4096,    4097,
        16384, 131071, 131072, 131073, (1 << 20) - 3, 1 << 20, (3 << 20) + 5};
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        struct plugin plugin;
        struct pair pair;
        plugin_open(version, &plugin);
        pair_open(&plugin, &pair);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            pair_move(&plugin, &pair, sizes[i]);
        }
        pair_close(&plugin, &pair);
    }
}

static void long_ones_arrive_whole(void **state)
{
    struct plugin plugin;
    struct pair pair;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    pair_move(&plugin, &pair, ((size_t)64 << 20) + 13);
    if (getenv("PLUGIN_LONG") != NULL) { /* 4 GiB of memory */
        pair_move(&plugin, &pair, INT32_MAX);
    }
    pair_close(&plugin, &pair);
}

static void a_larger_receive_tells_the_real_size(void **state)
{
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        struct plugin plugin;
        struct pair pair;
        char out[300], in[1000];
        int len = -1;
        plugin_open(version, &plugin);
        pair_open(&plugin, &pair);
        memset(in, 9, sizeof(in));
        pattern_fill(out, sizeof(out), 3);
        void *recv = pair_recv(&plugin, &pair, in, sizeof(in));
        void *send = pair_send(&plugin, &pair, out, sizeof(out));
        pair_wait_both(&plugin, send, recv, &len);
        assert_int_equal(300, len);
        assert_true(pattern_is(in, 300, 3) && in[300] == 9);
        pair_close(&plugin, &pair);
    }
}

static void a_smaller_receive_is_an_error(void **state)
{
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        struct plugin plugin;
        struct pair pair;
        static char out[200000], in[100001];
        int is_done;
        plugin_open(version, &plugin);
        pair_open(&plugin, &pair);
        in[100000] = 77;
        void *recv = pair_recv(&plugin, &pair, in, 100000);
        void *send = pair_send(&plugin, &pair, out, sizeof(out));
        assert_int_equal(0, plugin_test(&plugin, send, &is_done, NULL));
        assert_int_equal(NCCL_INVALID_USAGE, pair_wait_failed(&plugin, recv));
        assert_int_equal(NCCL_REMOTE_ERROR, pair_wait_failed(&plugin, send)); /* it is told */
        assert_int_equal(77, in[100000]);
        assert_non_null(strstr(plugin_said(), "room for 100000"));
        plugin_forget_said();
        pair_close(&plugin, &pair);
    }
}

static void too_long_for_an_int_is_refused(void **state)
{
    struct plugin plugin;
    struct pair pair;
    char byte = 0;
    void *request = NULL;
    (void)state;
    plugin_open(9, &plugin);
    pair_open(&plugin, &pair);
    assert_int_equal(NCCL_INVALID_ARGUMENT,
                     plugin_isend(&plugin, pair.sender, &byte, (size_t)INT32_MAX + 1, 0, &request));
    assert_null(request);
    pair_close(&plugin, &pair);
}

/* 32 receives and 32 sends at once, of mixed sizes, tested in an order of their own. */
enum { FLIGHT = NCCL_REQUESTS, ROOM = 300000, STEP = 9000 };

struct flight {
    char *out, *in;
    void *sends[FLIGHT], *recvs[FLIGHT];
    int left;
};

static void test_one(const struct plugin *plugin, struct flight *flight, int at)
{
    int is_done = 0, len = -1;
    if (flight->sends[at] != NULL) {
        assert_int_equal(0, plugin_test(plugin, flight->sends[at], &is_done, NULL));
        flight->sends[at] = is_done ? NULL : flight->sends[at];
        flight->left -= is_done;
    }
    is_done = 0;
    if (flight->recvs[at] != NULL) {
        assert_int_equal(0, plugin_test(plugin, flight->recvs[at], &is_done, &len));
    }
    if (is_done) {
        assert_int_equal(at * STEP, len);
        assert_true(pattern_is(flight->in + (size_t)at * ROOM, (size_t)at * STEP, (unsigned)at));
        flight->recvs[at] = NULL;
        flight->left--;
    }
}

static void post_all(const struct plugin *plugin, const struct pair *pair, struct flight *flight)
{
    void *more = NULL, *data = flight->in;
    size_t room = ROOM;
    int tag = 0;
    for (int i = 0; i < FLIGHT; i++) {
        flight->recvs[i] = pair_recv(plugin, pair, flight->in + (size_t)i * ROOM, ROOM);
    }
    assert_int_equal(0, plugin_irecv(plugin, pair->receiver, 1, &data, &room, &tag, &more));
    assert_null(more); /* back-pressure, no error */
    for (int i = 0; i < FLIGHT; i++) {
        char *data_out = flight->out + (size_t)i * ROOM;
        pattern_fill(data_out, (size_t)i * STEP, (unsigned)i);
        flight->sends[i] = pair_send(plugin, pair, data_out, (size_t)i * STEP);
    }
    flight->left = 2 * FLIGHT;
}

static void thirty_two_are_in_flight_and_keep_their_order(void **state)
{
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST; version++) {
        struct plugin plugin;
        struct pair pair;
        struct flight flight = {.out = malloc((size_t)FLIGHT * ROOM),
                                .in = malloc((size_t)FLIGHT * ROOM)};
        double start = now_s();
        plugin_open(version, &plugin);
        pair_open(&plugin, &pair);
        post_all(&plugin, &pair, &flight);
        for (int i = 0; flight.left > 0; i++) {
            test_one(&plugin, &flight, i * 7 % FLIGHT); /* not in their order */
            assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        }
        pair_close(&plugin, &pair);
        free(flight.out);
        free(flight.in);
    }
}

/* Sends with no receive in sight: at some point the plugin says "later", and nothing is lost. */
static void sends_without_receives_are_held_back(void **state)
{
    enum { COUNT = 200 };
    struct plugin plugin;
    struct pair pair;
    char out[COUNT][64], in[COUNT][64];
    void *request;
    int posted = 0, is_done;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    for (int i = 0; i < COUNT; i++) {
        pattern_fill(out[i], sizeof(out[i]), (unsigned)i);
    }
    for (request = out; request != NULL;) {
        assert_int_equal(0, plugin_isend(&plugin, pair.sender, out[posted], 64, 0, &request));
        if (request != NULL) {
            posted++;
            assert_int_equal(0, plugin_test(&plugin, request, &is_done, NULL));
            assert_int_equal(1, is_done); /* small: copied */
        }
        assert_true(posted < COUNT);
    }
    assert_true(posted >= 32);
    for (int i = 0; i < COUNT; i++) {
        request = pair_recv(&plugin, &pair, in[i], 64);
        if (i >= posted) {
            pair_wait(&plugin, pair_send(&plugin, &pair, out[i], 64));
        }
        assert_int_equal(64, pair_wait(&plugin, request));
        assert_true(pattern_is(in[i], 64, (unsigned)i));
    }
    pair_close(&plugin, &pair);
}

static void groups_are_matched_by_tag(void **state)
{
    static char out[4][70000], in[4][70000];
    struct plugin plugin;
    struct pair pair;
    void *data[4] = {in[0], in[1], in[2], in[3]}, *recv = NULL, *sends[4];
    size_t lens[4] = {70000, 70000, 70000, 70000};
    int tags[4] = {10, 11, 12, 11}, sent_tags[4] = {12, 11, 10, 11}, got[4], is_done = 0;
    int place_of[4] = {2, 1, 0, 3}; /* of two with one tag the first send fills the first */
    double start = now_s();
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    for (int i = 0; i < 4; i++) {
        pattern_fill(out[i], sizeof(out[i]), (unsigned)i);
        sends[i] = NULL;
        assert_int_equal(0, plugin_isend(&plugin, pair.sender, out[i], (size_t)(i + 1) * 16000,
                                         sent_tags[i], &sends[i]));
    }
    assert_int_equal(0, plugin_irecv(&plugin, pair.receiver, 4, data, lens, tags, &recv));
    while (is_done == 0) {
        int is_sent;
        for (int i = 0; i < 4; i++) {
            if (sends[i] != NULL) {
                assert_int_equal(0, plugin_test(&plugin, sends[i], &is_sent, NULL));
                sends[i] = is_sent ? NULL : sends[i];
            }
        }
        assert_int_equal(0, plugin_test(&plugin, recv, &is_done, got));
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal((i + 1) * 16000, got[place_of[i]]);
        assert_true(pattern_is(in[place_of[i]], (size_t)(i + 1) * 16000, (unsigned)i));
    }
    pair_close(&plugin, &pair);
}

/* ---- several threads, several processes ---- */

static void *thread_main(void *argument)
{
    struct plugin plugin;
    struct pair pair;
    plugin_open(*(const int *)argument, &plugin);
    for (int round = 0; round < 3; round++) {
        pair_open(&plugin, &pair);
        for (size_t len = 1; len < (size_t)1 << 20; len = len * 5 + 3) {
            pair_move(&plugin, &pair, len);
        }
        pair_close(&plugin, &pair);
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    pthread_t threads[4];
    int versions[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        versions[i] = PLUGIN_FIRST + i;
        assert_int_equal(0, pthread_create(&threads[i], NULL, thread_main, &versions[i]));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

struct ring_board {
    _Atomic int listening;
    char handles[8][NCCL_HANDLE_LEN];
};

/* Each sends what it got to the next, so that everybody has seen all of it after a round. */
static void ring_rank(struct ring_board *board, int rank, int ranks)
{
    enum { LEN = 500000 };
    struct plugin plugin;
    struct pair pair = {0};
    void *listener;
    char *out = malloc(LEN), *in = malloc(LEN);
    char handle[NCCL_HANDLE_LEN];
    plugin_open(11, &plugin);
    assert_int_equal(0, plugin_listen(&plugin, board->handles[rank], &listener));
    board->listening++;
    while (board->listening < ranks) {
        sched_yield();
    }
    memcpy(handle, board->handles[(rank + 1) % ranks], sizeof(handle));
    while (pair.sender == NULL || pair.receiver == NULL) {
        if (pair.sender == NULL) {
            assert_int_equal(0, plugin_connect(&plugin, handle, &pair.sender));
        }
        if (pair.receiver == NULL) {
            assert_int_equal(0, plugin_accept(&plugin, listener, &pair.receiver));
        }
    }
    pattern_fill(out, LEN, (unsigned)rank);
    for (int round = 1; round < ranks; round++) {
        char *swap = out;
        int len;
        void *recv = pair_recv(&plugin, &pair, in, LEN);
        void *send = pair_send(&plugin, &pair, out, LEN);
        pair_wait_both(&plugin, send, recv, &len);
        assert_true(pattern_is(in, LEN, (unsigned)((rank - round + ranks) % ranks)));
        out = in;
        in = swap;
    }
    pair_close(&plugin, &pair);
    plugin_close_listen(&plugin, listener);
}

static void a_ring_of_processes_passes_everything_on(void **state)
{
    enum { RANKS = 4 };
    struct ring_board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[RANKS];
    int status;
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(PLUGIN_DEADLINE_S);
            ring_rank(board, i, RANKS);
            _exit(0);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pids[i], waitpid(pids[i], &status, 0));
        assert_int_equal(0, status);
    }
    munmap(board, sizeof(*board));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_orders_connect),
        cmocka_unit_test(one_handle_serves_several),
        cmocka_unit_test(every_size_arrives_whole),
        cmocka_unit_test(long_ones_arrive_whole),
        cmocka_unit_test(a_larger_receive_tells_the_real_size),
        cmocka_unit_test(a_smaller_receive_is_an_error),
        cmocka_unit_test(too_long_for_an_int_is_refused),
        cmocka_unit_test(thirty_two_are_in_flight_and_keep_their_order),
        cmocka_unit_test(sends_without_receives_are_held_back),
        cmocka_unit_test(groups_are_matched_by_tag),
        cmocka_unit_test(threads_do_not_disturb_each_other),
        cmocka_unit_test(a_ring_of_processes_passes_everything_on),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
