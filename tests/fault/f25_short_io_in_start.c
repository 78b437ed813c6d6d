/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system gives a byte where many were asked for, or EAGAIN, EINTR, ENOBUFS, ENOMEM,
 * ECONNABORTED: none of it may show. The executable is linked so that these calls come through here; what they do
 * follows from a seed that is printed when a run fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define RANKS 3
#define SEEDS 6
#define ROUNDS 20

ssize_t __real_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
int __real_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __real_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms);
ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms);

static _Atomic uint64_t dice; /* 0: the system as it is */
static _Atomic uint32_t tricks;

/* 0 … sides-1; several threads may roll (splitmix64) */
static unsigned roll(unsigned sides)
{
    uint64_t z = atomic_fetch_add(&dice, UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) % sides);
}

static int trick(int error)
{
    atomic_fetch_add(&tricks, 1);
    errno = error;
    return -1;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags)
{
    if (atomic_load(&dice) == 0) {
        return __real_recv(fd, bytes, room, flags);
    }
    switch (roll(6)) {
    case 0:
        return trick(EINTR);
    case 1:
        return trick(EAGAIN);
    case 2:
        return __real_recv(fd, bytes, room, flags);
    default:
        return __real_recv(fd, bytes, room < 1 + roll(3) ? room : 1 + roll(3), flags);
    }
}

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    if (atomic_load(&dice) == 0) {
        return __real_send(fd, bytes, len, flags);
    }
    switch (roll(6)) {
    case 0:
        return trick(EINTR);
    case 1:
        return trick(EAGAIN);
    case 2:
        return trick(roll(2) == 0 ? ENOBUFS : ENOMEM);
    case 3:
        return __real_send(fd, bytes, len, flags);
    default:
        return __real_send(fd, bytes, len < 7 ? len : 1 + roll(7), flags);
    }
}

int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    static const int errors[] = {EINTR, EAGAIN, ECONNABORTED};
    if (atomic_load(&dice) == 0 || roll(2) == 0) {
        return __real_accept4(fd, addr, len, flags);
    }
    return trick(errors[roll(3)]);
}

int __wrap_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms)
{
    if (atomic_load(&dice) != 0 && roll(4) == 0) {
        return trick(EINTR);
    }
    /* also: not all that are ready are told */
    return __real_epoll_wait(epfd, events, atomic_load(&dice) != 0 ? 1 : room, timeout_ms);
}

struct plan {
    const char *join, *degree;
    uint64_t seed;
};

static weft_status_t work(weft_comm_t comm, int rank)
{
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < ROUNDS && status == WEFT_OK; i++) {
        uint8_t mine[300], all[RANKS * sizeof(mine)];
        memset(mine, i * 16 + rank, sizeof(mine));
        status = weft_control_allgather(comm, mine, sizeof(mine), all);
        for (size_t k = 0; k < sizeof(all) && status == WEFT_OK; k++) {
            int from = (int)(k / sizeof(mine));
            status = all[k] == (uint8_t)(i * 16 + from) ? WEFT_OK : WEFT_ERR_PROTOCOL;
        }
        int next = (rank + 1) % RANKS, before = (rank + RANKS - 1) % RANKS, got = -1;
        status = status == WEFT_OK ? weft_control_send(comm, next, 5, &i, sizeof(i)) : status;
        status = status == WEFT_OK ? weft_control_recv(comm, before, 5, &got, sizeof(got), NULL)
                                   : status;
        status = status == WEFT_OK && got != i ? WEFT_ERR_PROTOCOL : status;
    }
    return status == WEFT_OK ? weft_control_barrier(comm) : status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_config_t config = job_config(15000, 15000);
    weft_comm_t comm;
    setenv("WEFT_JOIN", plan->join, 1);
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    atomic_store(&dice, plan->seed * 1000 + (uint64_t)rank + 1);
    weft_status_t status = job_join(rank, 0, shared, &config, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, (int)status, "seed %lu: %s", (unsigned long)plan->seed,
                           weft_error_text());
    }
    status = work(comm, rank);
    harness_say(shared, rank, 0, "seed %lu: %s", (unsigned long)plan->seed, weft_error_text());
    weft_comm_close(comm);
    atomic_store(&dice, 0);
    return atomic_load(&tricks) > 0 ? (int)status : harness_say(shared, rank, -1, "no tricks");
}

static void check(const char *join, const char *degree)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct plan plan = {join, degree, seed};
        struct harness *harness = harness_start(RANKS, body, &plan);
        assert_harness(harness, harness_wait(harness, 40000));
        assert_harness(harness, harness_check_status(harness, 0));
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

static void bytes_in_drops_do_not_show(void **state)
{
    (void)state;
    check("auto", "64");
}

static void bytes_in_drops_do_not_show_over_tcp(void **state)
{
    (void)state;
    check("direct", "64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_in_drops_do_not_show),
        cmocka_unit_test(bytes_in_drops_do_not_show_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
