/* SPDX-License-Identifier: Apache-2.0 */
/* The harness must find what it is there to find: each test plants a fault or a leak. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "harness/harness.h"

#define DEADLINE_MS 10000 /* never reached unless something is broken */

/* Sanitizer builds would rightly report a planted memory leak; other leaks are planted everywhere.
 */
static int finish(struct harness_shared *shared, int rank)
{
    atomic_fetch_add(&shared->word[0], 1);
    return harness_say(shared, rank, rank * 10, "rank %d was here", rank);
}

static int return_ten_times(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return finish(shared, rank);
}

/* The rank named by arg waits for a word nobody writes; the others return. */
static int hang_if_named(int rank, struct harness_shared *shared, void *arg)
{
    if (rank == *(const int *)arg) {
        harness_say(shared, rank, 0, "waits for ever");
        atomic_fetch_add(&shared->word[1], 1);
        harness_wait_for(&shared->word[63], 1, UINT32_MAX);
    }
    return finish(shared, rank);
}

static void each_rank_has_its_own_status_and_text(void **state)
{
    (void)state;
    struct harness *harness = harness_start(4, return_ten_times, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_harness(harness, harness_check_clean(harness));
    for (int rank = 0; rank < 4; rank++) {
        char want[32];
        snprintf(want, sizeof(want), "rank %d was here", rank);
        const struct harness_result *result = harness_result(harness, rank);
        assert_true(result->is_returned);
        assert_int_equal(result->status, rank * 10);
        assert_string_equal(result->text, want);
        assert_int_equal(result->exit_code, 0);
        assert_int_equal(result->signal, 0);
        assert_true(result->end_ns >= result->begin_ns);
    }
    assert_int_equal(atomic_load(&harness_shared(harness)->word[0]), 4);
    harness_close(harness);
}

static void check_status_names_the_rank_that_differs(void **state)
{
    (void)state;
    struct harness *harness = harness_start(2, return_ten_times, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_false(harness_check_status(harness, 0));
    assert_non_null(strstr(harness_error(harness), "rank 1 returned 10 (rank 1 was here)"));
    assert_null(strstr(harness_error(harness), "rank 0"));
    harness_close(harness);
}

static void a_hanging_rank_is_named_and_killed(void **state)
{
    (void)state;
    int hangs = 2;
    struct harness *harness = harness_start(3, hang_if_named, &hangs);
    assert_true(harness_wait_for(&harness_shared(harness)->word[0], 2, DEADLINE_MS));
    assert_true(harness_wait_rank(harness, 0, DEADLINE_MS));
    assert_true(harness_wait_rank(harness, 1, DEADLINE_MS));
    pid_t pid = harness_pid(harness, 2);
    assert_false(harness_wait(harness, 50));
    assert_non_null(strstr(harness_error(harness), "rank 2 (waits for ever)"));
    assert_null(strstr(harness_error(harness), "rank 1"));
    assert_int_equal(harness_result(harness, 2)->signal, SIGKILL);
    assert_int_equal(kill(pid, 0), -1);
    harness_close(harness);
}

static void a_hanging_thread_is_named_and_killed(void **state)
{
    (void)state;
    int hangs = 1;
    struct harness *harness = harness_start_threads(3, hang_if_named, &hangs);
    assert_true(harness_wait_for(&harness_shared(harness)->word[0], 2, DEADLINE_MS));
    assert_true(harness_wait_for(&harness_shared(harness)->word[1], 1, DEADLINE_MS));
    assert_false(harness_wait(harness, 50));
    assert_non_null(strstr(harness_error(harness), "rank 1 (waits for ever)"));
    assert_int_equal(harness_result(harness, 1)->signal, SIGKILL);
    harness_close(harness);
}

static void kill_ends_one_rank_and_is_recorded(void **state)
{
    (void)state;
    int hangs = 1;
    struct harness *harness = harness_start(3, hang_if_named, &hangs);
    assert_true(harness_wait_for(&harness_shared(harness)->word[1], 1, DEADLINE_MS));
    assert_harness(harness, harness_kill(harness, 1, SIGTERM));
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_false(harness_result(harness, 1)->is_returned);
    assert_int_equal(harness_result(harness, 1)->signal, SIGTERM);
    assert_int_equal(harness_result(harness, 0)->signal, 0);
    assert_false(harness_kill(harness, 1, SIGTERM)); /* gone: not some other process's pid */
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static int count_until_told(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    while (atomic_load(&shared->word[2]) == 0) {
        atomic_fetch_add(&shared->word[1], 1);
    }
    return finish(shared, rank);
}

static void a_stopped_rank_stands_until_continued(void **state)
{
    (void)state;
    struct harness *harness = harness_start(1, count_until_told, NULL);
    struct harness_shared *shared = harness_shared(harness);
    assert_true(harness_wait_reach(&shared->word[1], 1, DEADLINE_MS));
    assert_harness(harness, harness_stop(harness, 0));
    uint32_t standing = atomic_load(&shared->word[1]);
    assert_false(harness_wait_reach(&shared->word[1], standing + 1, 20));
    assert_harness(harness, harness_continue(harness, 0));
    assert_true(harness_wait_reach(&shared->word[1], standing + 1, DEADLINE_MS));
    atomic_store(&shared->word[2], 1);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    harness_close(harness);
}

/* ---- leaks ---- */

static int leak_fd(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return rank == 1 && dup(0) < 0 ? -1 : finish(shared, rank);
}

static int leak_map(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    int fd = memfd_create("leak", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096) < 0 ||
        mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) {
        return -1;
    }
    close(fd);
    return finish(shared, rank);
}

static void *sleep_for_ever(void *arg)
{
    (void)arg;
    for (;;) {
        pause();
    }
    return NULL;
}

static int leak_thread(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0) {
        return -1;
    }
    pthread_detach(thread);
    return finish(shared, rank);
}

static void expect_leak(struct harness *harness, const char *text)
{
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_false(harness_check_clean(harness));
    assert_non_null(strstr(harness_error(harness), text));
    harness_close(harness);
}

static void a_leaked_fd_is_found_and_its_rank_named(void **state)
{
    (void)state;
    expect_leak(harness_start(3, leak_fd, NULL), "rank 1 leaks");
}

static void a_leaked_map_is_found(void **state)
{
    (void)state;
    struct harness *harness = harness_start(1, leak_map, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    const struct harness_result *result = harness_result(harness, 0);
    assert_int_equal(result->after.shared_maps, result->before.shared_maps + 1);
    assert_int_equal(result->after.fds, result->before.fds);
    expect_leak(harness, "rank 0 leaks");
}

static void a_leaked_thread_is_found(void **state)
{
    (void)state;
    struct harness *harness = harness_start(1, leak_thread, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    const struct harness_result *result = harness_result(harness, 0);
    assert_int_equal(result->after.threads, result->before.threads + 1);
    expect_leak(harness, "rank 0 leaks");
}

static void threads_of_one_process_are_checked_together(void **state)
{
    (void)state;
    struct harness *harness = harness_start_threads(4, return_ten_times, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_harness(harness, harness_check_clean(harness));
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(harness_result(harness, rank)->status, rank * 10);
    }
    harness_close(harness);
    expect_leak(harness_start_threads(3, leak_fd, NULL), "leaks");
}

static int exit_in_the_middle(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    if (rank == 1) {
        _exit(7);
    }
    return finish(shared, rank);
}

static void an_exit_is_no_return(void **state)
{
    (void)state;
    struct harness *harness = harness_start(2, exit_in_the_middle, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    assert_false(harness_result(harness, 1)->is_returned);
    assert_int_equal(harness_result(harness, 1)->exit_code, 7);
    assert_false(harness_check_status(harness, 0));
    assert_non_null(strstr(harness_error(harness), "rank 1 did not return (exit 7"));
    harness_close(harness);
}

/* A rank that is itself a test program: its own rank tells its pid, then it dies without cleaning
 * up. */
static int orphan_a_rank(int rank, struct harness_shared *shared, void *arg)
{
    int hangs = 0;
    (void)arg;
    struct harness *inner = harness_start(1, hang_if_named, &hangs);
    if (!harness_wait_for(&harness_shared(inner)->word[1], 1, DEADLINE_MS)) {
        return -1;
    }
    atomic_store(&shared->word[1], (uint32_t)harness_pid(inner, 0));
    kill(getpid(), SIGKILL);
    return finish(shared, rank);
}

static bool is_gone(void *arg)
{
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%u/stat", *(uint32_t *)arg);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return true;
    }
    char *got = fgets(line, sizeof(line), file);
    fclose(file);
    const char *behind_name = got != NULL ? strrchr(line, ')') : NULL;
    return behind_name == NULL || behind_name[2] == 'Z'; /* dead, whoever reaps it */
}

static void no_rank_outlives_its_test(void **state)
{
    (void)state;
    struct harness *harness = harness_start(1, orphan_a_rank, NULL);
    assert_harness(harness, harness_wait(harness, DEADLINE_MS));
    uint32_t pid = atomic_load(&harness_shared(harness)->word[1]);
    assert_int_not_equal(pid, 0);
    assert_true(harness_wait_until(is_gone, &pid, DEADLINE_MS));
    harness_close(harness);
}

static void the_harness_itself_leaks_nothing(void **state)
{
    (void)state;
    struct harness_holdings before, after;
    harness_count(&before);
    for (int i = 0; i < 5; i++) {
        struct harness *harness = harness_start(2, return_ten_times, NULL);
        harness_close(harness); /* also when ranks may still run */
    }
    harness_count(&after);
    assert_int_equal(after.fds, before.fds);
    assert_int_equal(after.shared_maps, before.shared_maps);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, no zombie */
}

/* ---- strangers ---- */

static int listen_at(const struct sockaddr *addr, socklen_t len)
{
    int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, addr, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static int listen_tcp(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return listen_at((struct sockaddr *)&addr, sizeof(addr));
}

static void talk(int stranger, int server)
{
    char bytes[8] = {0};
    assert_true(stranger >= 0 && server >= 0);
    assert_true(stranger_send(stranger, "knock", 5, DEADLINE_MS));
    assert_int_equal(stranger_read(server, bytes, 5, DEADLINE_MS), 5);
    assert_string_equal(bytes, "knock");
    assert_int_equal(stranger_read(stranger, bytes, 1, 10), 0);
    assert_false(stranger_is_closed(stranger, 10));
    close(server);
    assert_true(stranger_is_closed(stranger, DEADLINE_MS));
    close(stranger);
}

static void a_stranger_talks_over_tcp(void **state)
{
    (void)state;
    uint16_t port = harness_free_port();
    assert_int_not_equal(port, 0);
    assert_int_equal(stranger_connect("127.0.0.1", port, DEADLINE_MS), -1);
    int listener = listen_tcp(port);
    int stranger = stranger_connect("127.0.0.1", port, DEADLINE_MS);
    talk(stranger, accept(listener, NULL, NULL));
    close(listener);
}

static void a_stranger_talks_over_an_abstract_socket(void **state)
{
    (void)state;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char name[64];
    int len = snprintf(name, sizeof(name), "harness-test-%d", (int)getpid());
    memcpy(addr.sun_path + 1, name, (size_t)len);
    int listener = listen_at((struct sockaddr *)&addr,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len));
    int stranger = stranger_connect_unix(name, DEADLINE_MS);
    talk(stranger, accept(listener, NULL, NULL));
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_has_its_own_status_and_text),
        cmocka_unit_test(check_status_names_the_rank_that_differs),
        cmocka_unit_test(a_hanging_rank_is_named_and_killed),
        cmocka_unit_test(a_hanging_thread_is_named_and_killed),
        cmocka_unit_test(kill_ends_one_rank_and_is_recorded),
        cmocka_unit_test(a_stopped_rank_stands_until_continued),
        cmocka_unit_test(a_leaked_fd_is_found_and_its_rank_named),
        cmocka_unit_test(a_leaked_map_is_found),
        cmocka_unit_test(a_leaked_thread_is_found),
        cmocka_unit_test(threads_of_one_process_are_checked_together),
        cmocka_unit_test(an_exit_is_no_return),
        cmocka_unit_test(no_rank_outlives_its_test),
        cmocka_unit_test(the_harness_itself_leaks_nothing),
        cmocka_unit_test(a_stranger_talks_over_tcp),
        cmocka_unit_test(a_stranger_talks_over_an_abstract_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
