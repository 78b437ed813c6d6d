/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong: lanes that end, peers that die, strangers, closing in the middle, and nothing left behind. */
#include "plugin.h"

#include <setjmp.h>
#include <stdarg.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <dirent.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 8 << 20 };

/* Nothing of it lands while the receive is not posted, so the lanes are cut in the middle for sure. */
static void cut_and_finish(const struct plugin *plugin, const struct pair *pair, int cuts,
                           unsigned seed)
{
    char *out = malloc(LONG), *in = malloc(LONG);
    int len = 0, is_done;
    pattern_fill(out, LONG, seed);
    void *send = pair_send(plugin, pair, out, LONG);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(0, plugin_test(plugin, send, &is_done, NULL));
        assert_int_equal(0, is_done);
    }
    reset_lanes(cuts);
    void *recv = pair_recv(plugin, pair, in, LONG);
    pair_wait_both(plugin, send, recv, &len);
    assert_int_equal(LONG, len);
    assert_true(pattern_is(in, LONG, seed));
    free(out);
    free(in);
}

static void lanes_that_end_do_not_fail_the_connection(void **state)
{
    struct plugin plugin;
    struct pair pair;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    pair_move(&plugin, &pair, LONG); /* all lanes are wanted now */
    for (unsigned round = 0; round < 4; round++) {
        cut_and_finish(&plugin, &pair, 1 + (int)round % 2 * 2, round);
    }
    cut_and_finish(&plugin, &pair, 100, 9); /* all of them */
    pair_close(&plugin, &pair);
}

/* Small ones are done before they have arrived: they must arrive all the same, once and in order. */
static void small_messages_survive_their_lane(void **state)
{
    enum { COUNT = 20 };
    struct plugin plugin;
    struct pair pair;
    char out[COUNT][100], in[COUNT][100];
    (void)state;
    plugin_open(10, &plugin);
    pair_open(&plugin, &pair);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            pattern_fill(out[i], sizeof(out[i]), round * COUNT + i);
            pair_wait(&plugin, pair_send(&plugin, &pair, out[i], sizeof(out[i])));
        }
        reset_lanes(100);
        for (unsigned i = 0; i < COUNT; i++) {
            void *recv = pair_recv(&plugin, &pair, in[i], sizeof(in[i]));
            assert_int_equal(sizeof(in[i]), pair_wait(&plugin, recv));
            assert_true(pattern_is(in[i], sizeof(in[i]), round * COUNT + i));
        }
    }
    pair_close(&plugin, &pair);
}

/* ---- peers that die ---- */

static void survive_the_other(bool is_sender)
{
    static char memory[LONG];
    struct board *board = board_open();
    struct plugin plugin;
    void *comm, *request = NULL, *data = memory;
    size_t len = LONG;
    int tag = 0, status, result;
    double start;
    pid_t pid = fork();
    plugin_open(11, &plugin);
    if (pid == 0) {
        meet_peer(&plugin, board, !is_sender, &comm);
        pause();
        _exit(0);
    }
    meet_peer(&plugin, board, is_sender, &comm);
    assert_int_equal(0, is_sender ? plugin_isend(&plugin, comm, memory, LONG, 0, &request)
                                  : plugin_irecv(&plugin, comm, 1, &data, &len, &tag, &request));
    assert_non_null(request);
    while (board->is_connected < 2) {
        sched_yield();
    }
    kill(pid, SIGKILL);
    assert_int_equal(pid, waitpid(pid, &status, 0));
    start = now_s();
    result = pair_wait_failed(&plugin, request);
    assert_true(result == NCCL_REMOTE_ERROR || result == NCCL_SYSTEM_ERROR);
    assert_true(now_s() - start < 10);
    assert_int_equal(result, plugin_isend(&plugin, comm, memory, 1, 0, &request)); /* from now on */
    plugin_close_send(&plugin, comm);
    board_close(board);
}

static void a_killed_receiver_is_a_remote_error(void **state)
{
    (void)state;
    survive_the_other(true);
}

static void a_killed_sender_is_a_remote_error(void **state)
{
    (void)state;
    survive_the_other(false);
}

static void connecting_to_nobody_ends_in_time(void **state)
{
    struct plugin plugin;
    char handle[NCCL_HANDLE_LEN];
    void *listener, *comm = NULL;
    int result = 0;
    double start = now_s();
    (void)state;
    plugin_open(9, &plugin);
    assert_int_equal(0, plugin_listen(&plugin, handle, &listener));
    plugin_close_listen(&plugin, listener); /* and with it the port */
    while (result == 0) {
        result = plugin_connect(&plugin, handle, &comm);
        assert_null(comm);
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
    assert_int_equal(NCCL_REMOTE_ERROR, result);
}

static void a_listener_that_closed_refuses(void **state)
{
    struct plugin plugin;
    char handles[2][NCCL_HANDLE_LEN];
    void *listeners[2], *comm = NULL;
    int result = 0;
    double start = now_s();
    (void)state;
    plugin_open(9, &plugin);
    assert_int_equal(0, plugin_listen(&plugin, handles[0], &listeners[0]));
    assert_int_equal(0, plugin_listen(&plugin, handles[1], &listeners[1]));
    plugin_close_listen(&plugin, listeners[0]); /* the port stays, for the other */
    while (result == 0) {
        result = plugin_connect(&plugin, handles[0], &comm);
        assert_null(comm);
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
    }
    assert_int_equal(NCCL_REMOTE_ERROR, result);
    assert_true(now_s() - start < 4); /* at once, by the other's words */
    plugin_close_listen(&plugin, listeners[1]);
}

/* ---- closing ---- */

static void closing_with_requests_in_flight_is_fine(void **state)
{
    (void)state;
    for (int version = PLUGIN_FIRST; version <= PLUGIN_LAST;
         version += 3) { /* they share the code */
        static char out[LONG], in[LONG];
        struct plugin plugin;
        struct pair pair;
        plugin_open(version, &plugin);
        for (int order = 0; order < 2; order++) {
            void *last_recv = NULL, *last_send = NULL;
            pair_open(&plugin, &pair);
            for (int i = 0; i < 3 - order;
                 i++) { /* the last one of the side that stays has no partner */
                last_recv = pair_recv(&plugin, &pair, in, LONG);
            }
            for (int i = 0; i < 2 + order; i++) {
                last_send = pair_send(&plugin, &pair, out, LONG);
            }
            if (order == 0) {
                plugin_close_send(&plugin, pair.sender);
                assert_int_equal(NCCL_REMOTE_ERROR, pair_wait_failed(&plugin, last_recv));
                plugin_close_recv(&plugin, pair.receiver);
            } else {
                plugin_close_recv(&plugin, pair.receiver);
                assert_int_equal(NCCL_REMOTE_ERROR, pair_wait_failed(&plugin, last_send));
                plugin_close_send(&plugin, pair.sender);
            }
        }
    }
}

/* The receiver has it and closes. The sender's other lanes end, new ones are refused, and what the first has to say
 * counts all the same. */
static void a_send_that_landed_is_done_though_the_receiver_closed(void **state)
{
    enum { LEN = 900000 };
    static char out[LEN], in[LEN];
    struct plugin plugin;
    struct pair pair;
    char handle[NCCL_HANDLE_LEN];
    void *listener, *nobody = NULL;
    (void)state;
    plugin_open(11, &plugin);
    assert_int_equal(0, plugin_listen(&plugin, handle, &listener)); /* the port stays */
    for (int i = 0; i < 5; i++) {
        int is_sent = 0, is_received = 0;
        pair_open(&plugin, &pair);
        pair_move(&plugin, &pair, LONG); /* all lanes are up */
        void *recv = pair_recv(&plugin, &pair, in, LEN);
        void *send = pair_send(&plugin, &pair, out, LEN);
        while (is_received == 0) {
            assert_int_equal(0, plugin_test(&plugin, recv, &is_received, NULL));
            if (is_received == 0 && is_sent == 0) {
                assert_int_equal(0, plugin_test(&plugin, send, &is_sent, NULL));
            }
        }
        plugin_close_recv(&plugin, pair.receiver);
        for (double start = now_s();
             now_s() - start < 0.05;) { /* the sender finds out, and is refused */
            assert_int_equal(0, plugin_accept(&plugin, listener, &nobody));
            assert_null(nobody);
        }
        if (is_sent == 0) {
            assert_int_equal(LEN, pair_wait(&plugin, send));
        }
        plugin_close_send(&plugin, pair.sender);
    }
    plugin_close_listen(&plugin, listener);
}

/* What isend has taken arrives, also when the sender closes at once. */
static void what_was_sent_before_closing_arrives(void **state)
{
    enum { COUNT = 30 };
    struct plugin plugin;
    struct pair pair;
    char out[COUNT][4000], in[4000];
    (void)state;
    plugin_open(12, &plugin);
    for (unsigned round = 0; round < 5; round++) {
        pair_open(&plugin, &pair);
        for (unsigned i = 0; i < COUNT; i++) {
            pattern_fill(out[i], sizeof(out[i]), i);
            pair_wait(&plugin, pair_send(&plugin, &pair, out[i], sizeof(out[i])));
        }
        plugin_close_send(&plugin, pair.sender);
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(sizeof(in),
                             pair_wait(&plugin, pair_recv(&plugin, &pair, in, sizeof(in))));
            assert_true(pattern_is(in, sizeof(in), i));
        }
        plugin_close_recv(&plugin, pair.receiver);
    }
}

static size_t used_memory(void)
{
    return mallinfo2().uordblks;
}

static void set_ups_and_tear_downs_leave_nothing(void **state)
{
    struct plugin plugin;
    struct pair pair;
    unsigned fds, threads;
    size_t memory = 0;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    pair_move(&plugin, &pair, 300000);
    pair_close(&plugin, &pair);
    fds = count_fds();
    threads = count_threads();
    for (int i = 0; i < 200; i++) {
        pair_open(&plugin, &pair);
        pair_move(&plugin, &pair, i % 10 == 0 ? 300000 : 100);
        pair_close(&plugin, &pair);
        memory = i == 100 ? used_memory() : memory;
    }
    assert_int_equal(fds, count_fds());
    await_threads(threads);
    assert_true(used_memory() < memory + 65536);
}

/* ---- strangers ---- */

/* The port of a handle, as anybody could find it who scans the host. */
static int call_port(const char handle[NCCL_HANDLE_LEN])
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(4, handle[64]);
    addr.sin_port =
        htons((uint16_t)((unsigned char)handle[65] | (unsigned)(unsigned char)handle[66] << 8));
    memcpy(&addr.sin_addr, handle + 67, 4);
    assert_int_equal(0, connect(fd, (struct sockaddr *)&addr, sizeof(addr)));
    return fd;
}

struct crowd {
    const char *handle;
    _Atomic bool is_over;
};

static void *crowd_main(void *argument)
{
    static const char *const words[] = {"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x02",
                                        "\0\0\0\0\0\0\0\0", "",
                                        "WN\x01\x01zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"};
    struct crowd *crowd = argument;
    for (unsigned i = 0; !crowd->is_over; i++) {
        const char *word = words[i % 5];
        int fd = call_port(crowd->handle);
        (void)!send(fd, word, strlen(word), MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static void strangers_do_no_harm(void **state)
{
    struct plugin plugin;
    struct pair pair;
    char handle[NCCL_HANDLE_LEN], forged[NCCL_HANDLE_LEN];
    void *listener, *comm = NULL;
    struct crowd crowd = {.handle = handle};
    pthread_t thread;
    int result = 0, silent[20];
    double start = now_s();
    (void)state;
    plugin_open(11, &plugin);
    assert_int_equal(0, plugin_listen(&plugin, handle, &listener));
    for (int i = 0; i < 20; i++) {
        silent[i] = call_port(handle); /* says nothing */
    }
    assert_int_equal(0, pthread_create(&thread, NULL, crowd_main, &crowd));
    for (int i = 0; i < 10; i++) {
        pair_open(&plugin, &pair);
        pair_move(&plugin, &pair, 200000);
        pair_close(&plugin, &pair);
    }
    /* Who knows the process's key but not this listener's secret, and who knows neither. */
    for (int at = 8; at <= 40; at += 32) {
        memcpy(forged, handle, sizeof(forged));
        forged[at] ^= 1;
        for (result = 0; result == 0;) {
            result = plugin_connect(&plugin, forged, &comm);
            assert_null(comm);
            assert_true(now_s() - start < 2 * PLUGIN_DEADLINE_S);
        }
        assert_int_equal(NCCL_REMOTE_ERROR, result);
    }
    assert_int_equal(0, plugin_accept(&plugin, listener, &comm));
    assert_null(comm);
    crowd.is_over = true;
    pthread_join(thread, NULL);
    for (int i = 0; i < 20; i++) {
        close(silent[i]);
    }
    plugin_close_listen(&plugin, listener);
}

static void a_forked_child_has_dead_handles(void **state)
{
    struct plugin plugin;
    struct pair pair;
    int status;
    pid_t pid;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    pair_move(&plugin, &pair, 200000);
    pid = fork();
    if (pid == 0) {
        void *request = NULL;
        char byte = 0;
        if (plugin_isend(&plugin, pair.sender, &byte, 1, 0, &request) != NCCL_SYSTEM_ERROR) {
            _exit(1);
        }
#ifndef __SANITIZE_THREAD__ /* which cannot follow threads of a child of many threads */
        struct pair own;    /* it may have connections of its own; those stay dead */
        pair_open(&plugin, &own);
        pair_move(&plugin, &own, 200000);
#endif
        _exit(plugin_isend(&plugin, pair.sender, &byte, 1, 0, &request) != NCCL_SYSTEM_ERROR);
    }
    assert_int_equal(pid, waitpid(pid, &status, 0));
    assert_int_equal(0, status);
    pair_move(&plugin, &pair, 200000);
    pair_close(&plugin, &pair);
}

/* ---- manners ---- */

/* As NCCL does when it aborts: it does not call again, and ends its context. */
static void an_unfinished_connect_ends_with_its_context(void **state)
{
    struct plugin plugin;
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    char handle[NCCL_HANDLE_LEN];
    void *listener, *comm = NULL;
    unsigned fds, threads;
    int silent = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    plugin_open(11, &plugin);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(0, bind(silent, (struct sockaddr *)&addr, len));
    assert_int_equal(0, listen(silent, 10));
    assert_int_equal(0, getsockname(silent, (struct sockaddr *)&addr, &len));
    assert_int_equal(0, plugin_listen(&plugin, handle, &listener));
    plugin_close_listen(&plugin, listener);
    handle[65] = (char)ntohs(addr.sin_port); /* nobody answers there */
    handle[66] = (char)(ntohs(addr.sin_port) >> 8);
    fds = count_fds();
    threads = count_threads();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(0, plugin_connect(&plugin, handle, &comm));
        assert_null(comm);
    }
    assert_int_equal(0, plugin.net.v11->finalize(plugin.context));
    assert_int_equal(fds, count_fds());
    await_threads(threads);
    close(silent);
}

/* Of a thread that is ending the kernel says that it blocks nothing; is_there_p: it is not. */
static uint64_t blocked_signals(const char *task, bool *is_there_p)
{
    char path[300], line[256];
    uint64_t blocked = 0;
    FILE *file;
    *is_there_p = false;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "State:", 6) == 0) {
            *is_there_p = strpbrk(line + 6, "XZ") == NULL;
        } else if (strncmp(line, "SigBlk:", 7) == 0) {
            blocked = strtoull(line + 7, NULL, 16);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return blocked;
}

/* Or is not there any more: one that was just ending when it was looked at is not the next time. */
static bool is_blocking(const char *task)
{
    bool is_there;
    uint64_t blocked = blocked_signals(task, &is_there);
    return (blocked >> (SIGUSR1 - 1) & 1) != 0 || !is_there;
}

static void threads_of_ours_take_no_signals(void **state)
{
    struct plugin plugin;
    struct pair pair;
    struct dirent *entry;
    unsigned count = 0;
    (void)state;
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    DIR *tasks = opendir("/proc/self/task");
    while ((entry = readdir(tasks)) != NULL) {
        bool is_there;
        if (entry->d_name[0] != '.' && strtol(entry->d_name, NULL, 10) != getpid()) {
            for (double start = now_s(); !is_blocking(entry->d_name);) {
                assert_true(now_s() - start < PLUGIN_DEADLINE_S);
            }
            (void)blocked_signals(entry->d_name, &is_there);
            count += is_there;
        }
    }
    closedir(tasks);
    assert_true(count >= 2); /* the background thread and a helper */
    pair_close(&plugin, &pair);
}

static void lost_lanes_are_told_of(void **state)
{
    struct plugin plugin;
    struct pair pair;
    double start = now_s();
    (void)state;
    setenv("PLUGIN_INFO", "info", 1);
    plugin_open(11, &plugin);
    pair_open(&plugin, &pair);
    while (strstr(plugin_said(), "was lost") == NULL) { /* at most once a second */
        reset_lanes(100);
        pair_move(&plugin, &pair, 100);
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
    }
    pair_close(&plugin, &pair);
    unsetenv("PLUGIN_INFO");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_that_end_do_not_fail_the_connection),
        cmocka_unit_test(small_messages_survive_their_lane),
        cmocka_unit_test(a_killed_receiver_is_a_remote_error),
        cmocka_unit_test(a_killed_sender_is_a_remote_error),
        cmocka_unit_test(connecting_to_nobody_ends_in_time),
        cmocka_unit_test(a_listener_that_closed_refuses),
        cmocka_unit_test(closing_with_requests_in_flight_is_fine),
        cmocka_unit_test(a_send_that_landed_is_done_though_the_receiver_closed),
        cmocka_unit_test(what_was_sent_before_closing_arrives),
        cmocka_unit_test(set_ups_and_tear_downs_leave_nothing),
        cmocka_unit_test(strangers_do_no_harm),
        cmocka_unit_test(a_forked_child_has_dead_handles),
        cmocka_unit_test(an_unfinished_connect_ends_with_its_context),
        cmocka_unit_test(threads_of_ours_take_no_signals),
        cmocka_unit_test(lost_lanes_are_told_of),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
