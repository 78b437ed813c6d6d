/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine itself gives, measured between the same two ranks, on the same buffers, right
 * before Weft is: without that a figure says more about the minute than about the library (cores of
 * a virtual machine move near and far).
 *
 *   shm   a flag from core to core (the probe), and one core's memcpy of the message
 *   tcp   a bare loopback socket: no delay, Weft's congestion control, 1 MiB writes, both sides
 *         spinning on it
 */
#include "bench_p2p.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "topo/topo.h"

#define PROBE_BLOCKS 5
#define PROBE_BLOCK 100 /* 500 ping-pongs, < 0.3 ms */
#define PROBE_WARMUP 50
#define PROBE_TRIES 5
#define POLLS_BEFORE_YIELD 200
#define COPY_SAMPLES 9
#define COPY_BYTES ((size_t)256 << 10) /* at least so much between two readings of the clock */
#define COPIES_MAX 4096
#define MOVES_MAX 301
#define MOVES_MIN 5
#define MOVE_BYTES ((size_t)256 << 20) /* no more than this for one limit, moves permitting */
#define WRITE_LEN ((size_t)1 << 20)

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double weft_bench_p2p_median(double *values, size_t count)
{
    qsort(values, count, sizeof(values[0]), compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* One more poll that found nothing. Yields when the other one may need this core. */
static void be_patient(unsigned *polls)
{
    if (++*polls % POLLS_BEFORE_YIELD == 0) {
        sched_yield();
    } else {
        relax();
    }
}

/* ---- the flag ---- */

static void await_flag(const _Atomic uint32_t *flag, uint32_t value)
{
    unsigned polls = 0;
    while (atomic_load_explicit(flag, memory_order_acquire) != value) {
        be_patient(&polls);
    }
}

static void bounce(struct p2p_rank *rank, int count)
{
    struct p2p_shared *shared = rank->shared;
    for (int i = 0; i < count; i++) {
        uint32_t value = ++rank->say;
        if (rank->rank == 0) {
            atomic_store_explicit(&shared->ping, value, memory_order_release);
            await_flag(&shared->pong, value);
        } else {
            await_flag(&shared->ping, value);
            atomic_store_explicit(&shared->pong, value, memory_order_release);
        }
    }
}

static double probe_once(struct p2p_rank *rank)
{
    double one_way_ns[PROBE_BLOCKS] = {0};
    bounce(rank, PROBE_WARMUP);
    for (int block = 0; block < PROBE_BLOCKS; block++) {
        uint64_t begin_ns = weft_clock_ns();
        bounce(rank, PROBE_BLOCK);
        one_way_ns[block] = (double)(weft_clock_ns() - begin_ns) / (2.0 * PROBE_BLOCK);
    }
    return weft_bench_p2p_median(one_way_ns, PROBE_BLOCKS);
}

/* Two that were just woken may sit on one core until the scheduler moves one: then again. */
double weft_bench_p2p_probe(struct p2p_rank *rank)
{
    _Atomic bool *is_again = &rank->shared->is_probe_again;
    if (!rank->ground->is_shared) {
        return NAN;
    }
    for (int tries = 1;; tries++) {
        double one_way_ns = probe_once(rank);
        if (rank->rank == 0) {
            atomic_store(is_again, one_way_ns > P2P_BUSY_NS && tries < PROBE_TRIES);
        }
        bounce(rank, 1); /* rank 1 sees the decision; rank 0 makes the next one only with it */
        if (!atomic_load(is_again)) {
            return one_way_ns;
        }
    }
}

/* ---- memcpy ---- */

/* One core copies a message, buffer after buffer as the transfer does; microseconds. */
static double copy_us(struct p2p_rank *rank, const struct p2p_series *series)
{
    double us[COPY_SAMPLES] = {0};
    size_t wanted = COPY_BYTES / series->bytes + 1;
    size_t copies = wanted < COPIES_MAX ? wanted : COPIES_MAX;
    size_t slots = (size_t)series->slots;
    for (int sample = -1; sample < COPY_SAMPLES; sample++) { /* the first one warms up */
        uint64_t begin_ns = weft_clock_ns();
        for (size_t i = 0; i < copies; i++) {
            size_t at = (i % slots) * series->bytes;
            memcpy(rank->recv + at, rank->send + at, series->bytes);
            __asm__ volatile("" ::: "memory"); /* the compiler must not drop a copy */
        }
        if (sample >= 0) {
            us[sample] = (double)(weft_clock_ns() - begin_ns) / 1e3 / (double)copies;
        }
    }
    return weft_bench_p2p_median(us, COPY_SAMPLES);
}

static double shm_limit(struct p2p_rank *rank, const struct p2p_series *series, double probe_ns)
{
    bool is_both = series->op == P2P_BIBW; /* then both cores copy, at the same time */
    if (rank->rank != 0 && !is_both) {
        return NAN;
    }
    double copy = copy_us(rank, series);
    switch (series->op) {
    case P2P_LAT:
        return probe_ns / 1e3 + copy;
    case P2P_RTT:
    case P2P_MESH:
        return 2 * (probe_ns / 1e3 + copy);
    default:
        return copy;
    }
}

/* ---- the bare socket ---- */

static bool set_up(int fd)
{
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
        return false;
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", sizeof("cubic") - 1) != 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", sizeof("reno") - 1); /* else as it is */
    }
    return true;
}

/* Rank 1 listens, rank 0 connects. false: errno. */
static bool connect_pair(struct p2p_rank *rank)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool is_fine = set_up(fd); /* an accepted socket inherits it */
    if (rank->rank == 1) {
        is_fine = is_fine && bind(fd, (struct sockaddr *)&addr, len) == 0 && listen(fd, 1) == 0 &&
                  getsockname(fd, (struct sockaddr *)&addr, &len) == 0;
        rank->shared->port = ntohs(addr.sin_port);
    }
    if (!is_fine) {
        close(fd);
        return false;
    }
    if (!rank->ground->tell(rank, &rank->shared->port, sizeof(rank->shared->port))) {
        close(fd);
        return false;
    }
    if (rank->rank == 1) {
        rank->socket = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        close(fd);
        return rank->socket >= 0;
    }
    rank->socket = fd;
    addr.sin_port = htons(rank->shared->port);
    return connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;
}

bool weft_bench_p2p_socket_open(struct p2p_rank *rank)
{
    if (rank->plan->path != P2P_TCP || rank->rank > 1 || !rank->has_limit) {
        return true;
    }
    return connect_pair(rank) ||
           weft_bench_p2p_fail(rank, "no bare socket over loopback: %s", strerror(errno));
}

/* What of `left` bytes may go in one call: from or to the same buffers as the transfer's. */
static size_t piece(size_t left, size_t done, size_t buffer_len)
{
    size_t room = buffer_len - done % buffer_len;
    size_t len = left < room ? left : room;
    return len < WRITE_LEN ? len : WRITE_LEN;
}

static bool is_just_empty(ssize_t moved)
{
    return moved < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Sends `out` and receives `in` bytes, both at once. false: errno. */
static bool move_bytes(struct p2p_rank *rank, size_t buffer_len, size_t out, size_t in)
{
    unsigned polls = 0;
    for (size_t sent = 0, got = 0; sent < out || got < in;) {
        ssize_t moved = 0;
        bool is_idle = true;
        if (sent < out) {
            moved = send(rank->socket, rank->send + sent % buffer_len,
                         piece(out - sent, sent, buffer_len), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (moved < 0 && !is_just_empty(moved)) {
                return false;
            }
            sent += moved > 0 ? (size_t)moved : 0;
            is_idle = moved <= 0;
        }
        if (got < in) {
            moved = recv(rank->socket, rank->recv + got % buffer_len,
                         piece(in - got, got, buffer_len), MSG_DONTWAIT);
            if (moved == 0) {
                errno = ECONNRESET;
            }
            if (moved <= 0 && !is_just_empty(moved)) {
                return false;
            }
            got += moved > 0 ? (size_t)moved : 0;
            is_idle = is_idle && moved <= 0;
        }
        if (is_idle) {
            be_patient(&polls);
        }
    }
    return true;
}

/* One sample of the series, over the bare socket. */
static bool move_sample(struct p2p_rank *rank, const struct p2p_series *series)
{
    size_t buffer_len = series->bytes * (size_t)series->slots;
    size_t total = series->bytes * (size_t)series->per_clock;
    bool is_first = rank->rank == 0;
    switch (series->op) {
    case P2P_LAT:
    case P2P_RTT:
    case P2P_MESH:
        return move_bytes(rank, buffer_len, is_first ? total : 0, is_first ? 0 : total) &&
               move_bytes(rank, buffer_len, is_first ? 0 : total, is_first ? total : 0);
    case P2P_BIBW:
        return move_bytes(rank, buffer_len, total, total);
    default: /* one way, and an answer of one byte */
        return move_bytes(rank, buffer_len, is_first ? total : 0, is_first ? 0 : total) &&
               move_bytes(rank, buffer_len, is_first ? 0 : 1, is_first ? 1 : 0);
    }
}

static bool tcp_limit(struct p2p_rank *rank, const struct p2p_series *series, double *us_p)
{
    double us[MOVES_MAX] = {0};
    size_t moves = MOVE_BYTES / (series->bytes * (size_t)series->per_clock);
    moves = moves < MOVES_MIN ? MOVES_MIN : moves > MOVES_MAX ? MOVES_MAX : moves;
    for (size_t i = 0; i <= moves; i++) {
        uint64_t begin_ns = weft_clock_ns();
        if (!move_sample(rank, series)) {
            return weft_bench_p2p_fail(rank, "bare socket: %s", strerror(errno));
        }
        if (i > 0) { /* the first one warms up */
            us[i - 1] = (double)(weft_clock_ns() - begin_ns) / 1e3;
        }
    }
    int messages = series->op == P2P_LAT ? 2 : series->per_clock;
    *us_p = weft_bench_p2p_median(us, moves) / messages;
    return true;
}

bool weft_bench_p2p_limit(struct p2p_rank *rank, const struct p2p_series *series, double probe_ns,
                          double *us_p)
{
    struct p2p_series bare = *series;
    if (weft_bench_p2p_is_mesh(series->op)) {
        bare.slots = 1; /* its slots are what partners sent; two ranks need one */
    }
    if (rank->plan->path == P2P_TCP) {
        return tcp_limit(rank, &bare, us_p);
    }
    *us_p = shm_limit(rank, &bare, probe_ns);
    return true;
}
