/* SPDX-License-Identifier: Apache-2.0 */
/* Senders that close, or end, before the receiver has looked: what test() called done arrives. */
#include "plugin.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 8, LEN = 32000, PATIENCE = 3000 };

static char out[LEN], in[LEN];

static bool make_small(int fd)
{
    const int len = 4096;
    return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &len, sizeof(len)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &len, sizeof(len)) == 0;
}

/* Sends as long as the plugin calls each one done after a while; says how many, closes and ends. */
static void send_and_leave(const struct plugin *plugin, struct board *board, bool is_small)
{
    void *comm, *request;
    int is_done = 1, count = 0;
    meet_peer(plugin, board, true, &comm);
    if (is_small) {
        for_connections(make_small, 100);
    }
    for (int i = 0; i < COUNT && is_done; i++) {
        pattern_fill(out, LEN, (unsigned)i);
        request = NULL;
        is_done = 0;
        if (plugin_isend(plugin, comm, out, LEN, 5, &request) != 0 || request == NULL) {
            break;
        }
        for (int tries = 0; tries < PATIENCE && !is_done; tries++) {
            if (plugin_test(plugin, request, &is_done, NULL) != 0) {
                _exit(2);
            }
        }
        count += is_done;
    }
    board->count = count;
    plugin_close_send(plugin, comm);
    _exit(0);
}

static void wait_for_end(pid_t pid)
{
    double start = now_s();
    int status = -1;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
    assert_int_equal(0, status);
}

/* The receiver posts nothing before the sender's process is gone. */
static void receive_from_the_departed(bool is_small)
{
    struct board *board = board_open();
    struct plugin plugin;
    struct pair pair = {0};
    pid_t pid = fork();
    plugin_open(11, &plugin);
    if (pid == 0) {
        send_and_leave(&plugin, board, is_small);
    }
    meet_peer(&plugin, board, false, &pair.receiver);
    if (is_small) {
        for_connections(make_small, 100);
    }
    wait_for_end(pid);
    assert_true(board->count > 0);
    print_message("%d sends of %d bytes were done\n", board->count, LEN);
    for (int i = 0; i < board->count; i++) {
        assert_int_equal(LEN, pair_wait(&plugin, pair_recv(&plugin, &pair, in, LEN)));
        assert_true(pattern_is(in, LEN, (unsigned)i));
    }
    plugin_close_recv(&plugin, pair.receiver);
    board_close(board);
}

static void they_arrive_after_the_sender_has_ended(void **state)
{
    (void)state;
    receive_from_the_departed(false);
}

static void they_arrive_through_small_buffers(void **state)
{
    (void)state;
    receive_from_the_departed(true);
}

static void they_arrive_though_their_lane_was_lost(void **state)
{
    struct plugin plugin;
    struct pair pair;
    (void)state;
    plugin_open(11, &plugin);
    for (int round = 0; round < 5; round++) {
        pair_open(&plugin, &pair);
        for (int i = 0; i < 3; i++) {
            pattern_fill(out, LEN, (unsigned)i);
            pair_wait(&plugin, pair_send(&plugin, &pair, out, LEN));
        }
        reset_lanes(100);
        plugin_close_send(&plugin, pair.sender);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(LEN, pair_wait(&plugin, pair_recv(&plugin, &pair, in, LEN)));
            assert_true(pattern_is(in, LEN, (unsigned)i));
        }
        plugin_close_recv(&plugin, pair.receiver);
    }
}

/* Bells of threads that are made when they are first rung. */
#define BELLS 2

/* Its receiver does not read: closing is soon all the same, and leaves nothing behind when that one closes, too. */
static void closing_does_not_wait_for_the_receiver(void **state)
{
    static char large[4 << 20];
    struct plugin plugin;
    struct pair pair, other;
    unsigned fds;
    double start;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &other);
    fds = count_fds();
    for (int round = 0; round <= BELLS; round++) {
        pair_open(&plugin, &pair);
        pair_send(&plugin, &pair, large, sizeof(large));
        start = now_s();
        plugin_close_send(&plugin, pair.sender);
        assert_true(now_s() - start < 1);
        plugin_close_recv(&plugin, pair.receiver);
        while (count_fds() > fds + BELLS) {
            assert_true(now_s() - start < PLUGIN_DEADLINE_S);
            sched_yield();
        }
    }
    pair_close(&plugin, &other);
}

/* ---- senders that are not heard of ---- */

static void wait_for_count(struct board *board, int count)
{
    double start = now_s();
    while (board->count < count) {
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
}

/* Sends a message for each count that the other side puts on the board. */
static void send_when_told(const struct plugin *plugin, struct board *board)
{
    struct pair pair = {0};
    meet_peer(plugin, board, true, &pair.sender);
    for (int i = 1; i <= 2; i++) {
        wait_for_count(board, i);
        pattern_fill(out, LEN, (unsigned)i);
        pair_wait(plugin, pair_send(plugin, &pair, out, LEN));
    }
    plugin_close_send(plugin, pair.sender);
    _exit(0);
}

static pid_t start_sender(struct plugin *plugin_p, struct board *board, struct pair *pair_p)
{
    pid_t pid = fork();
    plugin_open(11, plugin_p);
    if (pid == 0) {
        alarm(2 * PLUGIN_DEADLINE_S);
        send_when_told(plugin_p, board);
    }
    meet_peer(plugin_p, board, false, &pair_p->receiver);
    board->count = 1;
    assert_int_equal(LEN, pair_wait(plugin_p, pair_recv(plugin_p, pair_p, in, LEN)));
    return pid;
}

/* It cannot dial again for longer than it takes to believe that a process is dead: its lanes were reset, which says
 * nothing about that. */
static void a_sender_that_is_held_up_may_come_back(void **state)
{
    struct board *board = board_open();
    struct plugin plugin;
    struct pair pair = {0};
    pid_t pid = start_sender(&plugin, board, &pair);
    double start;
    int is_done = 0;
    (void)state;
    assert_int_equal(0, kill(pid, SIGSTOP));
    assert_int_equal(pid, waitpid(pid, NULL, WUNTRACED));
    void *recv = pair_recv(&plugin, &pair, in, LEN);
    reset_lanes(100);
    for (start = now_s(); now_s() - start < 1.7;) {
        assert_int_equal(0, plugin_test(&plugin, recv, &is_done, NULL));
        assert_int_equal(0, is_done);
    }
    assert_int_equal(0, kill(pid, SIGCONT));
    board->count = 2;
    assert_int_equal(LEN, pair_wait(&plugin, recv));
    assert_true(pattern_is(in, LEN, 2));
    wait_for_end(pid);
    plugin_close_recv(&plugin, pair.receiver);
    board_close(board);
}

/* How long it took to know it. */
static double kill_sender(void)
{
    struct board *board = board_open();
    struct plugin plugin;
    struct pair pair = {0};
    pid_t pid = start_sender(&plugin, board, &pair);
    double start = now_s(), took;
    void *recv = pair_recv(&plugin, &pair, in, LEN);
    assert_int_equal(0, kill(pid, SIGKILL));
    assert_int_equal(pid, waitpid(pid, NULL, 0));
    assert_int_equal(NCCL_REMOTE_ERROR, pair_wait_failed(&plugin, recv));
    took = now_s() - start;
    plugin_close_recv(&plugin, pair.receiver);
    board_close(board);
    return took;
}

/* Of its path it would be 10 s. (One that is killed before it has read all that we said leaves a reset behind, and a reset
 * says nothing: that can happen, not every time.) */
static void a_sender_that_was_killed_is_known_to_be_dead_soon(void **state)
{
    double took = 10;
    (void)state;
    for (int i = 0; i < 3 && took >= 6; i++) {
        took = kill_sender();
    }
    assert_true(took < 6);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_arrive_after_the_sender_has_ended),
        cmocka_unit_test(they_arrive_through_small_buffers),
        cmocka_unit_test(they_arrive_though_their_lane_was_lost),
        cmocka_unit_test(closing_does_not_wait_for_the_receiver),
        cmocka_unit_test(a_sender_that_is_held_up_may_come_back),
        cmocka_unit_test(a_sender_that_was_killed_is_known_to_be_dead_soon),
    };
    setenv("WEFT_PATH_TIMEOUT", "10s", 1);
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
