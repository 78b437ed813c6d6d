/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On the data path the system gives a byte where many were asked for, or EAGAIN, EINTR, ENOBUFS,
 * ENOMEM: none of it may show. The executable is linked so that these calls come through here;
 * what they do follows from a seed that is printed when a run fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define RANKS 3
#define SEEDS 4
#define TAG 2

ssize_t __real_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
int __real_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms);
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count,
                                unsigned long flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
int __wrap_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count,
                                unsigned long flags);

/* ---- tricks ---- */

static _Atomic uint64_t dice; /* 0: the system as it is */
static _Atomic uint32_t tricks;
static bool is_drops; /* hardly ever more than some bytes at once */

/* 0 … sides-1; several threads may roll */
static unsigned roll(unsigned sides)
{
    return (unsigned)(messages_mix(atomic_fetch_add(&dice, UINT64_C(0x9e3779b97f4a7c15))) % sides);
}

static int trick(int error)
{
    atomic_fetch_add(&tricks, 1);
    errno = error;
    return -1;
}

/* How much of `len` the system deigns to take or give. */
static size_t deign(size_t len)
{
    size_t most = roll(3) == 0 ? 7 : is_drops ? 300 : 70000;
    size_t part = 1 + roll((unsigned)most);
    if (part < len) {
        atomic_fetch_add(&tricks, 1);
    }
    return part < len ? part : len;
}

/* Only what comes over a network hesitates, or comes in pieces. */
static bool is_network(int fd)
{
    int domain = 0;
    socklen_t len = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain != AF_UNIX;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags)
{
    if (atomic_load(&dice) == 0 || (flags & MSG_ERRQUEUE) != 0) {
        return __real_recv(fd, bytes, room, flags);
    }
    if (roll(8) == 0) {
        return trick(EINTR);
    }
    if (!is_network(fd)) { /* what was sent is there, the kernel never hesitates */
        return __real_recv(fd, bytes, room, flags);
    }
    return roll(4) == 0 ? trick(EAGAIN) : __real_recv(fd, bytes, deign(room), flags);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    if (atomic_load(&dice) == 0) {
        return __real_send(fd, bytes, len, flags);
    }
    switch (roll(8)) {
    case 0:
        return trick(EINTR);
    case 1:
        return trick(EAGAIN);
    case 2:
        return trick(roll(2) == 0 ? ENOBUFS : ENOMEM);
    default:
        return __real_send(fd, bytes, deign(len), flags);
    }
}

/* The first bytes of a list. */
static size_t shorten(const struct msghdr *message, struct iovec *iov, size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < message->msg_iovlen && room > 0; i++) {
        iov[count] = message->msg_iov[i];
        iov[count].iov_len = iov[count].iov_len < room ? iov[count].iov_len : room;
        room -= iov[count++].iov_len;
    }
    return count;
}

static size_t total(const struct msghdr *message)
{
    size_t len = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        len += message->msg_iov[i].iov_len;
    }
    return len;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    struct iovec iov[64];
    struct msghdr part = *message;
    if (atomic_load(&dice) == 0 || (flags & MSG_ERRQUEUE) != 0 || message->msg_iovlen > 64) {
        return __real_recvmsg(fd, message, flags);
    }
    if (roll(8) == 0) {
        return trick(EINTR);
    }
    if (!is_network(fd)) {
        return __real_recvmsg(fd, message, flags);
    }
    if (roll(4) == 0) {
        return trick(EAGAIN);
    }
    part.msg_iov = iov;
    part.msg_iovlen = shorten(message, iov, deign(total(message)));
    return __real_recvmsg(fd, &part, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec iov[64];
    struct msghdr part = *message;
    if (atomic_load(&dice) == 0 || message->msg_iovlen > 64) {
        return __real_sendmsg(fd, message, flags);
    }
    switch (roll(8)) {
    case 0:
        return trick(EINTR);
    case 1:
        return trick(roll(2) == 0 ? ENOBUFS : ENOMEM);
    default:
        break;
    }
    if (!is_network(fd)) {
        return __real_sendmsg(fd, message, flags);
    }
    if (roll(8) == 0) {
        return trick(EAGAIN);
    }
    part.msg_iov = iov;
    part.msg_iovlen = shorten(message, iov, deign(total(message)));
    return __real_sendmsg(fd, &part, flags);
}

int __wrap_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms)
{
    if (atomic_load(&dice) != 0 && roll(4) == 0) {
        return trick(EINTR);
    }
    /* also: not all that are ready are told */
    return __real_epoll_wait(epfd, events, atomic_load(&dice) != 0 ? 1 : room, timeout_ms);
}

/* The kernel may stop at any page. */
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count,
                                unsigned long flags)
{
    struct iovec part = here[0];
    if (atomic_load(&dice) == 0 || here_count != 1 || part.iov_len < 4096) {
        return __real_process_vm_readv(pid, here, here_count, there, there_count, flags);
    }
    part.iov_len = deign(part.iov_len);
    return __real_process_vm_readv(pid, &part, 1, there, there_count, flags);
}

/* ---- work ---- */

struct plan {
    const char *path, *cma, *checksum;
    uint64_t seed;
    bool is_drops;
    bool is_late; /* the lanes are up before the tricks begin */
};

#define LONGEST ((size_t)400000)

static const size_t lengths[] = {0,    1,    40,    41,    63,    64,    65,     1000,
                                 2047, 2049, 16384, 20000, 65536, 65537, 100001, LONGEST};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static char found[64]; /* what was wrong */

static weft_status_t found_wrong(const char *what, size_t len, size_t at)
{
    snprintf(found, sizeof(found), "a %s of %zu bytes is wrong at %zu", what, len, at);
    return WEFT_ERR_PROTOCOL;
}

static uint64_t key(uint64_t round, int from)
{
    return round * 16 + (uint64_t)from;
}

/* Each to each, in a group: nobody knows who comes first. */
static weft_status_t exchange(weft_comm_t comm, int rank, size_t len, uint64_t round)
{
    static uint8_t out[LONGEST], in[RANKS][LONGEST + 1];
    weft_message_t message[RANKS];
    weft_status_t status = weft_group_begin(comm);
    messages_fill(out, len, key(round, rank));
    for (int peer = 0; peer < RANKS && status == WEFT_OK; peer++) {
        status = weft_recv(comm, in[peer], len + 1, peer, TAG, &message[peer], NULL);
        status = status == WEFT_OK ? weft_send(comm, out, len, peer, TAG, NULL) : status;
    }
    weft_status_t end = weft_group_end(comm);
    status = status == WEFT_OK ? end : status;
    for (int peer = 0; peer < RANKS && status == WEFT_OK; peer++) {
        size_t wrong = messages_wrong(in[peer], len, key(round, peer));
        if (message[peer].len != len || wrong != len) {
            return found_wrong("message", message[peer].len, wrong);
        }
    }
    return status;
}

struct memory {
    uint64_t signal;
    uint8_t bytes[LONGEST];
};

static weft_status_t put_and_get(weft_comm_t comm, int rank, struct memory *memory,
                                 const weft_mem_t *mem)
{
    static uint8_t data[LONGEST], back[LONGEST];
    int next = (rank + 1) % RANKS, before = (rank + RANKS - 1) % RANKS;
    messages_fill(data, sizeof(data), (uint64_t)rank);
    weft_status_t status =
        weft_put_signal(comm, &mem[next], offsetof(struct memory, bytes), data, sizeof(data),
                        &mem[next], offsetof(struct memory, signal), 3);
    status = status == WEFT_OK ? weft_wait_signal(comm, &memory->signal, 3, WEFT_NO_LIMIT) : status;
    if (status == WEFT_OK && !messages_are_right(memory->bytes, LONGEST, (uint64_t)before)) {
        return found_wrong("put", LONGEST,
                           messages_wrong(memory->bytes, LONGEST, (uint64_t)before));
    }
    status = status == WEFT_OK ? weft_quiet(comm) : status; /* a get does not wait for a put */
    status = status == WEFT_OK
                 ? weft_get(comm, &mem[next], offsetof(struct memory, bytes), back, sizeof(back))
                 : status;
    weft_status_t quiet = weft_quiet(comm);
    status = status == WEFT_OK ? quiet : status;
    return status == WEFT_OK && memcmp(back, data, sizeof(back)) != 0
               ? found_wrong("get", LONGEST, messages_wrong(back, LONGEST, (uint64_t)rank))
               : status;
}

static weft_status_t work(weft_comm_t comm, int rank, const struct plan *plan)
{
    static struct memory memory;
    weft_mem_t mine, mem[RANKS];
    weft_status_t status = weft_mem_register(comm, &memory, sizeof(memory), &mine);
    status = status == WEFT_OK ? weft_control_allgather(comm, &mine, sizeof(mine), mem) : status;
    for (uint64_t i = 0; i < 2 * LENGTHS && status == WEFT_OK; i++) {
        status = exchange(comm, rank, lengths[messages_mix(plan->seed * 100 + i) % LENGTHS], i);
    }
    status = status == WEFT_OK ? put_and_get(comm, rank, &memory, mem) : status;
    return status == WEFT_OK ? weft_control_barrier(comm) : status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm;
    setenv("WEFT_CMA", plan->cma, 1);
    setenv("WEFT_CHECKSUM", plan->checksum, 1);
    is_drops = plan->is_drops;
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, (int)status, "%s", weft_error_text());
    }
    status = plan->is_late ? exchange(comm, rank, 1000, 0) : WEFT_OK;
    atomic_store(&dice, plan->seed * 1000 + (uint64_t)rank + 1);
    status = status == WEFT_OK ? work(comm, rank, plan) : status;
    harness_say(shared, rank, 0, "%s", found[0] != '\0' ? found : weft_error_text());
    weft_comm_close(comm);
    atomic_store(&dice, 0);
    return atomic_load(&tricks) > 0 ? (int)status : harness_say(shared, rank, -1, "no tricks");
}

static void check(struct plan plan, uint64_t seeds)
{
    for (plan.seed = 1; plan.seed <= seeds; plan.seed++) {
        char what[64];
        struct harness *harness = harness_start(RANKS, body, &plan);
        snprintf(what, sizeof(what), "%s, seed %lu", plan.path, (unsigned long)plan.seed);
        messages_wait(harness, 2 * MESSAGES_WAIT_MS, what);
        messages_check_fine(harness, what);
        harness_close(harness);
    }
}

static void drops_do_not_show_over_tcp(void **state)
{
    (void)state;
    check((struct plan){.path = "tcp", .cma = "auto", .checksum = "off", .is_drops = true}, 1);
    check((struct plan){.path = "tcp", .cma = "auto", .checksum = "on", .is_drops = true}, 1);
}

static void pieces_do_not_show_over_tcp(void **state)
{
    (void)state;
    check((struct plan){.path = "tcp", .cma = "auto", .checksum = "off"}, SEEDS);
    check((struct plan){.path = "tcp", .cma = "auto", .checksum = "on"}, SEEDS);
}

static void a_moody_system_does_not_show_over_shared_memory(void **state)
{
    (void)state;
    check((struct plan){.path = "shm", .cma = "off", .checksum = "off", .is_late = true}, SEEDS);
    check((struct plan){.path = "shm", .cma = "on", .checksum = "off", .is_late = true}, SEEDS);
}

static void not_even_while_lanes_come_up(void **state)
{
    (void)state;
    check((struct plan){.path = "shm", .cma = "on", .checksum = "off"}, 2UL * SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drops_do_not_show_over_tcp),
        cmocka_unit_test(pieces_do_not_show_over_tcp),
        cmocka_unit_test(a_moody_system_does_not_show_over_shared_memory),
        cmocka_unit_test(not_even_while_lanes_come_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
