/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int open_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void owning_counts_and_closing_closes(void **state)
{
    int fd = open_null();

    (void)state;
    assert_int_equal(weft_fd_count(), 0);
    assert_int_equal(weft_fd_own(fd), fd);
    assert_int_equal(weft_fd_count(), 1);
    assert_int_equal(weft_fd_own(fd), fd); /* twice is once */
    assert_int_equal(weft_fd_count(), 1);
    weft_fd_close(fd);
    assert_int_equal(weft_fd_count(), 0);
    assert_false(is_open(fd));
}

static void a_released_descriptor_stays_open_and_uncounted(void **state)
{
    int fd = weft_fd_own(open_null());

    (void)state;
    assert_int_equal(weft_fd_release(fd), fd);
    assert_int_equal(weft_fd_count(), 0);
    assert_true(is_open(fd));
    close(fd);
}

static void a_failed_creating_call_passes_through(void **state)
{
    (void)state;
    errno = EMFILE;
    assert_int_equal(weft_fd_own(-1), -1);
    assert_int_equal(errno, EMFILE);
    assert_int_equal(weft_fd_release(-1), -1);
    weft_fd_close(-1);
    assert_int_equal(weft_fd_count(), 0);
}

static void numbers_beyond_the_map_are_left_alone(void **state)
{
    (void)state;
    assert_int_equal(weft_fd_own(1 << 20), 1 << 20);
    assert_int_equal(weft_fd_own(INT32_MAX), INT32_MAX);
    assert_int_equal(weft_fd_count(), 0);
}

struct fork_case {
    int ours, released, foreign, high;
    uint32_t generation;
};

static int grandchild_sees_another_generation(void *context)
{
    return weft_process_generation() == *(uint32_t *)context + 1 ? 0 : 1;
}

static int child_forgot_its_parent(void *context)
{
    struct fork_case *fork_case = context;
    uint32_t generation = weft_process_generation();

    if (is_open(fork_case->ours) || is_open(fork_case->high)) {
        return 1;
    }
    if (!is_open(fork_case->released) || !is_open(fork_case->foreign)) {
        return 2;
    }
    if (generation != fork_case->generation + 1) {
        return 3;
    }
    if (weft_fd_count() != 0) {
        return 4;
    }
    /* the register works on in the child */
    weft_fd_close(weft_fd_own(open("/dev/null", O_RDONLY | O_CLOEXEC)));
    if (weft_fd_count() != 0) {
        return 5;
    }
    return run_child(grandchild_sees_another_generation, &generation) == 0 ? 0 : 6;
}

static void a_forked_child_closes_ours_and_only_ours(void **state)
{
    struct fork_case fork_case;

    (void)state;
    fork_case.ours = weft_fd_own(open_null());
    fork_case.released = weft_fd_release(weft_fd_own(open_null()));
    fork_case.foreign = open_null();
    fork_case.high = weft_fd_own(fcntl(fork_case.foreign, F_DUPFD_CLOEXEC, 900));
    assert_true(fork_case.high >= 900);
    fork_case.generation = weft_process_generation();
    assert_int_not_equal(fork_case.generation, 0);

    assert_int_equal(run_child(child_forgot_its_parent, &fork_case), 0);

    assert_true(is_open(fork_case.ours) && is_open(fork_case.high));
    assert_int_equal(weft_process_generation(), fork_case.generation);
    assert_int_equal(weft_fd_count(), 2);
    weft_fd_close(fork_case.ours);
    weft_fd_close(fork_case.high);
    close(fork_case.released);
    close(fork_case.foreign);
}

/* F32: the peer of a rank sees it close although a forked child of the rank lives on. */
static void a_sleeping_child_does_not_hold_our_sockets(void **state)
{
    int pair[2], hold[2], ready[2];
    struct pollfd peer;
    pid_t child;
    char byte;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pipe(hold), 0);
    assert_int_equal(pipe(ready), 0);
    weft_fd_own(pair[0]);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(hold[1]);
        _exit(write(ready[1], "r", 1) == 1 && read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    weft_fd_close(pair[0]);
    peer = (struct pollfd){pair[1], POLLIN, 0};
    assert_int_equal(poll(&peer, 1, 5000), 1);
    assert_int_equal(read(pair[1], &byte, 1), 0);

    close(hold[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(pair[1]);
    close(hold[0]);
    close(ready[0]);
    close(ready[1]);
}

static void a_process_has_an_id_of_its_own_and_a_forked_child_another(void **state)
{
    uint64_t first = 0, again = 0, child_id = 0;
    int ends[2];
    pid_t child;

    (void)state;
    assert_int_equal(weft_process_id(&first), WEFT_OK);
    assert_int_equal(weft_process_id(&again), WEFT_OK);
    assert_true(first != 0 && first == again);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        bool is_there = weft_process_id(&child_id) == WEFT_OK;
        _exit(is_there && write(ends[1], &child_id, sizeof(child_id)) == sizeof(child_id) ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(read(ends[0], &child_id, sizeof(child_id)), sizeof(child_id));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(child_id != 0 && child_id != first);
    assert_int_equal(weft_process_id(&again), WEFT_OK);
    assert_int_equal(again, first);
    close(ends[0]);
    close(ends[1]);
}

#define THREADS 4
#define ROUNDS 2000

static void *own_and_close(void *context)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        int fd = weft_fd_own(open("/dev/null", O_RDONLY | O_CLOEXEC));

        if (fd < 0) {
            *(bool *)context = true;
        }
        weft_fd_close(fd);
    }
    return NULL;
}

static void many_threads_leave_the_count_at_zero(void **state)
{
    pthread_t threads[THREADS];
    bool has_failed[THREADS] = {false};

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, own_and_close, &has_failed[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(has_failed[i]);
    }
    assert_int_equal(weft_fd_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owning_counts_and_closing_closes),
        cmocka_unit_test(a_released_descriptor_stays_open_and_uncounted),
        cmocka_unit_test(a_failed_creating_call_passes_through),
        cmocka_unit_test(numbers_beyond_the_map_are_left_alone),
        cmocka_unit_test(a_forked_child_closes_ours_and_only_ours),
        cmocka_unit_test(a_sleeping_child_does_not_hold_our_sockets),
        cmocka_unit_test(a_process_has_an_id_of_its_own_and_a_forked_child_another),
        cmocka_unit_test(many_threads_leave_the_count_at_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
