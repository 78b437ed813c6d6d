/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft bench bootstrap`: the plan that the command (bench_bootstrap.c) makes and the
 * ranks (bench_bootstrap_rank.c) carry out.
 */
#ifndef WEFT_CLI_BENCH_BOOTSTRAP_H
#define WEFT_CLI_BENCH_BOOTSTRAP_H

#include "bench.h"
#include "crew.h"

enum bootstrap_kind {
    BOOTSTRAP_CONTROL,
    BOOTSTRAP_START,
    BOOTSTRAP_ALLGATHER,
    BOOTSTRAP_BARRIER,
};

/* One row of the table: samples of one operation, each the slowest rank's time. */
struct bootstrap_series {
    enum bootstrap_kind kind;
    const char *join; /* WEFT_JOIN of the communicator; NULL for the control */
    size_t count;     /* samples kept */
    size_t first;     /* index of its first in the shared samples */
};

#define BOOTSTRAP_SERIES_MAX 5

struct bootstrap_plan {
    int ranks;
    int iters, warmup;
    int operations;        /* allgathers and barriers each, warm-up not counted */
    int warmup_operations; /* before them */
    size_t len;            /* allgather: bytes per rank */
    /* [0, starts) are control and starts, interleaved; [starts, count) run on one communicator */
    struct bootstrap_series series[BOOTSTRAP_SERIES_MAX];
    int starts, count;
    size_t samples;
};

/* What the ranks share. */
struct bootstrap_shared {
    weft_id_t id;
    uint16_t star_port;
    _Atomic uint64_t sample_ns[];
};

/* The crew's body; context is the plan. */
bool weft_bench_bootstrap_rank(struct weft_crew *crew, int rank, void *context);
/* Steps each rank will do, for the progress line. */
uint64_t weft_bench_bootstrap_steps(const struct bootstrap_plan *plan);

#endif
