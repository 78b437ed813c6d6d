/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the benchmarks: their list, figures over samples, and the bare star as a control. */
#ifndef WEFT_CLI_BENCH_H
#define WEFT_CLI_BENCH_H

#include "cli.h"

int weft_cli_bench_bootstrap(int argc, char **argv);
int weft_cli_bench_p2p(int argc, char **argv);

/* ---- figures (bench.c) ---- */

struct weft_bench_figures { /* µs */
    double min, p50, avg, p90, p99, max, stddev;
};
/* Exact, not from a histogram: benchmarks have few samples. Sorts them. count ≥ 1. */
void weft_bench_figures(uint64_t *samples_ns, size_t count, struct weft_bench_figures *figures_p);
/* "time_us": {…} */
void weft_bench_json_figures(struct weft_cli_json *json, const struct weft_bench_figures *figures);

/* Raises a sample to ns if that is more: the slowest rank counts. */
void weft_bench_keep_slowest(_Atomic uint64_t *sample, uint64_t ns);

/* A thousand ranks need more descriptors than the usual soft limit: as many as the hard one gives.
 */
void weft_bench_raise_fd_limit(void);

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
