/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the benchmarks: their list, figures over samples, and the bare star as a control. */
#ifndef WEFT_CLI_BENCH_H
#define WEFT_CLI_BENCH_H

#include "cli.h"

int weft_cli_bench_bootstrap(int argc, char **argv);
int weft_cli_bench_p2p(int argc, char **argv);
int weft_cli_bench_report(int argc, char **argv);
int weft_cli_bench_coll(weft_coll_t coll, int argc, char **argv);

/* ---- figures (bench.c) ---- */

struct weft_bench_figures { /* µs */
    double min, p50, avg, p90, p99, max, stddev;
};
/* Exact, not from a histogram: benchmarks have few samples. Sorts them. count ≥ 1. */
void weft_bench_figures(uint64_t *samples_ns, size_t count, struct weft_bench_figures *figures_p);
/* "time_us": {…} */
void weft_bench_json_figures(struct weft_cli_json *json, const struct weft_bench_figures *figures);
/* "host": {…} */
void weft_bench_json_host(struct weft_cli_json *json);

/* Raises a sample to ns if that is more: the slowest rank counts. */
void weft_bench_keep_slowest(_Atomic uint64_t *sample, uint64_t ns);

/* A thousand ranks need more descriptors than the usual soft limit: as many as the hard one gives.
 */
void weft_bench_raise_fd_limit(void);

/* ---- the clock of single operations ----
 * A reading costs a tenth of the shortest operation measured, so it is the CPU's counter where
 * there is one; how long a tick is comes from weft_clock_ns() over a whole batch. */

static inline uint64_t weft_bench_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return weft_clock_ns();
#endif
}

/* ---- under a launcher (bench.c) ---- */

/* Is this process a rank of a job of several? Then which. WEFT_BENCH_BROKEN_JOB: weft_error_text(). */
struct weft_bench_job {
    int rank, ranks;
    bool is_one_host; /* as far as the launcher says */
};
enum weft_bench_launch { WEFT_BENCH_ALONE, WEFT_BENCH_IN_JOB, WEFT_BENCH_BROKEN_JOB };
enum weft_bench_launch weft_bench_find_job(struct weft_bench_job *job_p);

/* ---- what the machine gives (bench_limit.c) ---- */

double weft_bench_median(double *values, size_t count); /* sorts them; count ≥ 1 */

/* No flag takes so long: the two share a core, or somebody else has one. */
#define WEFT_BENCH_BUSY_NS 2000

/* In memory that two processes or threads share; zeroed at first. */
struct weft_bench_flags {
    _Atomic bool is_again; /* the first one's decision */
    _Alignas(64) _Atomic uint32_t ping;
    _Alignas(64) _Atomic uint32_t pong;
};
/* By both at once, one of them first: the one-way time of a flag, ns (of the second one: of no use).
 * value: of each its own, 0 at first, kept from probe to probe. */
double weft_bench_probe(struct weft_bench_flags *flags, bool is_first, uint32_t *value);

/* c = a + b over and over for about so long: the best rate, of all bytes read and written, with stores
 * around the cache or plain ones, whichever is faster. c is 16-aligned; count ≥ 1. */
double weft_bench_add_gbs(float *c, const float *a, const float *b, size_t count, uint64_t time_ns);

/* A bare connection over loopback; -1: errno. Accept closes the listener. */
int weft_bench_socket_listen(uint16_t *port_p);
int weft_bench_socket_accept(int listener);
int weft_bench_socket_connect(uint16_t port);
struct weft_bench_stream {
    int fd;
    uint8_t *send, *recv; /* lent; buffer_len each, used over and over */
    size_t buffer_len;
};
/* Sends `out` and receives `in` bytes, both at once, spinning. false: errno. */
bool weft_bench_socket_move(const struct weft_bench_stream *stream, size_t out, size_t in);

/* ---- the bare star (bench_control.c) ---- */

#define WEFT_BENCH_RECORD_LEN 96

struct weft_bench_star {
    int rank, ranks;
    int listener, epoll; /* rank 0; -1 elsewhere */
    int *fds;            /* owned; rank 0: one per other rank, in order of arrival; others: one */
    int fd_count;
    uint8_t *table; /* owned; ranks × WEFT_BENCH_RECORD_LEN */
};

/* Once per rank, before any clock. Rank 0 listens, and *port_p is where. false: errno. */
bool weft_bench_star_open(struct weft_bench_star *star, int rank, int ranks, uint16_t *port_p);
void weft_bench_star_close(struct weft_bench_star *star);
/* The timed part: everybody's record to everybody. stamp is any number, equal on all ranks. */
bool weft_bench_star_meet(struct weft_bench_star *star, uint16_t port, uint32_t stamp);
/* Outside the clock: is the table what it must be? */
bool weft_bench_star_is_right(const struct weft_bench_star *star, uint32_t stamp);
/* Outside the clock: ends this meeting's connections. Rank 0 first: it resets, so that thousands of
 * meetings leave no ports in TIME_WAIT. */
void weft_bench_star_part(struct weft_bench_star *star);

#endif
