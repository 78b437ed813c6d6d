/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine itself gives, measured in the same minute as Weft: without that a figure says more
 * about the minute than about the library (cores of a virtual machine move near and far).
 *
 *   the flag     from core to core and back
 *   c = a + b    the rate at which one process reads two vectors and writes a third
 *   the socket   a bare loopback connection: no delay, Weft's congestion control, 1 MiB writes, both
 *                sides spinning on it
 */
#include "bench.h"

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

#define PROBE_BLOCKS 5
#define PROBE_BLOCK 100 /* 500 ping-pongs, < 0.3 ms */
#define PROBE_WARMUP 50
#define PROBE_TRIES 5
#define POLLS_BEFORE_YIELD 200
#define WRITE_LEN ((size_t)1 << 20)
#define ADD_PASSES_MIN 6
#define ADD_BYTES ((size_t)256 << 10)

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double weft_bench_median(double *values, size_t count)
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

static void bounce(struct weft_bench_flags *flags, bool is_first, uint32_t *value, int count)
{
    for (int i = 0; i < count; i++) {
        uint32_t next = ++*value;
        if (is_first) {
            atomic_store_explicit(&flags->ping, next, memory_order_release);
            await_flag(&flags->pong, next);
        } else {
            await_flag(&flags->ping, next);
            atomic_store_explicit(&flags->pong, next, memory_order_release);
        }
    }
}

static double probe_once(struct weft_bench_flags *flags, bool is_first, uint32_t *value)
{
    double one_way_ns[PROBE_BLOCKS] = {0};
    bounce(flags, is_first, value, PROBE_WARMUP);
    for (int block = 0; block < PROBE_BLOCKS; block++) {
        uint64_t begin_ns = weft_clock_ns();
        bounce(flags, is_first, value, PROBE_BLOCK);
        one_way_ns[block] = (double)(weft_clock_ns() - begin_ns) / (2.0 * PROBE_BLOCK);
    }
    return weft_bench_median(one_way_ns, PROBE_BLOCKS);
}

/* Two that were just woken may sit on one core until the scheduler moves one: then again. */
double weft_bench_probe(struct weft_bench_flags *flags, bool is_first, uint32_t *value)
{
    for (int tries = 1;; tries++) {
        double one_way_ns = probe_once(flags, is_first, value);
        if (is_first) {
            atomic_store(&flags->is_again, one_way_ns > WEFT_BENCH_BUSY_NS && tries < PROBE_TRIES);
        }
        /* The other one sees the decision; the first makes the next one only with it. */
        bounce(flags, is_first, value, 1);
        if (!atomic_load(&flags->is_again)) {
            return one_way_ns;
        }
    }
}

/* ---- c = a + b ---- */

#if defined(__x86_64__)
#include <immintrin.h>

static void add_streamed(float *c, const float *a, const float *b, size_t count)
{
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        _mm_stream_ps(c + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
    }
    for (; i < count; i++) {
        c[i] = a[i] + b[i];
    }
    _mm_sfence();
}
#else
static void add_streamed(float *c, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        c[i] = a[i] + b[i];
    }
}
#endif

static void add_plain(float *restrict c, const float *restrict a, const float *restrict b,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        c[i] = a[i] + b[i];
    }
}

double weft_bench_add_gbs(float *c, const float *a, const float *b, size_t count, uint64_t time_ns)
{
    size_t bytes = 3 * count * sizeof(float);
    size_t repeats = 1 + ADD_BYTES / bytes; /* between two readings of the clock */
    uint64_t until_ns = weft_clock_ns() + time_ns;
    double best = 0;
    for (int pass = 0; pass < ADD_PASSES_MIN || weft_clock_ns() < until_ns; pass++) {
        uint64_t begin_ns = weft_clock_ns();
        for (size_t i = 0; i < repeats; i++) {
            if (pass % 2 == 0) {
                add_streamed(c, a, b, count);
            } else {
                add_plain(c, a, b, count);
            }
            __asm__ volatile("" ::: "memory"); /* the compiler must not drop a pass */
        }
        double gbs = (double)(bytes * repeats) / (double)(weft_clock_ns() - begin_ns);
        best = pass > 1 && gbs > best ? gbs : best; /* the first of each warm up */
    }
    return best;
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

static int open_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !set_up(fd)) {
        close(fd);
        return -1;
    }
    return fd;
}

int weft_bench_socket_listen(uint16_t *port_p)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = open_socket(); /* an accepted socket inherits what is set */
    if (fd < 0) {
        return -1;
    }
    if (bind(fd, (struct sockaddr *)&addr, len) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &len) != 0) {
        close(fd);
        return -1;
    }
    *port_p = ntohs(addr.sin_port);
    return fd;
}

int weft_bench_socket_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    return fd;
}

int weft_bench_socket_connect(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = open_socket();
    if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
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

bool weft_bench_socket_move(const struct weft_bench_stream *stream, size_t out, size_t in)
{
    size_t buffer_len = stream->buffer_len;
    unsigned polls = 0;
    for (size_t sent = 0, got = 0; sent < out || got < in;) {
        ssize_t moved = 0;
        bool is_idle = true;
        if (sent < out) {
            moved = send(stream->fd, stream->send + sent % buffer_len,
                         piece(out - sent, sent, buffer_len), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (moved < 0 && !is_just_empty(moved)) {
                return false;
            }
            sent += moved > 0 ? (size_t)moved : 0;
            is_idle = moved <= 0;
        }
        if (got < in) {
            moved = recv(stream->fd, stream->recv + got % buffer_len,
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
