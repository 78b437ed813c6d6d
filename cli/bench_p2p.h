/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft bench p2p`: the plan that the command (bench_p2p.c) makes, what the ranks
 * (bench_p2p_rank.c, _ops.c, _mesh.c) do with it, the limit they measure beside it (_limit.c), the
 * bytes they check (_data.c) and how it is shown (_report.c).
 */
#ifndef WEFT_CLI_BENCH_P2P_H
#define WEFT_CLI_BENCH_P2P_H

#include "bench.h"
#include "crew.h"

enum p2p_op {
    P2P_LAT,       /* half a round trip of one message */
    P2P_BW,        /* a window of messages one way, then an answer */
    P2P_BIBW,      /* the same both ways at once */
    P2P_RTT,       /* a round trip */
    P2P_PUT_NBI,   /* a window of puts, then quiet */
    P2P_PUT_QUIET, /* quiet after each put */
    P2P_PUT_BATCH, /* quiet after every P2P_PUTS_PER_QUIET */
    P2P_MESH,      /* every rank with every other */
    P2P_OPS,
};

#define P2P_PUTS_PER_QUIET 16

/* One row: samples of one operation at one size. */
struct p2p_series {
    enum p2p_op op;
    size_t bytes;  /* of one message or put */
    int window;    /* messages in flight */
    int per_clock; /* messages between two readings of the clock: a sample is their mean */
    int slots;     /* buffers that messages in flight take in turn */
    int iters, warmup;
    int batch;             /* samples between two checks */
    size_t samples, first; /* how many, and the index of the first in the shared ones */
};

enum p2p_path { P2P_AUTO, P2P_SHM, P2P_TCP };

struct p2p_plan {
    int ranks;
    enum p2p_path path;
    bool is_threads, is_shared_alloc, is_checked, has_puts;
    struct p2p_series *series; /* owned by the command */
    size_t count;
    size_t samples;    /* of all series */
    size_t buffer_len; /* the longest slots × bytes */
    int window_max;
};

struct p2p_arguments {
    struct weft_cli_list ranks;
    bool is_wanted[P2P_OPS];
    const char *modes, *path_name, *alloc;
    enum p2p_path path;
    uint64_t min_bytes, max_bytes;
    int64_t factor, iters, warmup, window, check; /* iters, window 0 and warmup -1: by size */
    bool is_threads, is_shared_alloc, is_json;
};

/* "lat,bw" or "all". false: *word_p (may point into text) is no mode. */
bool weft_bench_p2p_read_modes(const char *text, bool is_wanted[P2P_OPS], const char **word_p);
/* series is freed by the caller */
void weft_bench_p2p_plan(const struct p2p_arguments *arguments, int ranks, struct p2p_plan *plan_p);

/* ---- what the ranks share ---- */

struct p2p_barrier { /* those that are not measured must not disturb: they sleep in it */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation;
};

/* What one series brought. */
struct p2p_outcome {
    double probe_ns[2];      /* flag from core to core before and after, one way */
    double limit_us;         /* what one message would take at the limit; NaN: unknown */
    double pass_us;          /* mesh: the whole mesh once, the median of the slowest rank's times */
    _Atomic uint64_t cpu_ns; /* of all ranks measured, in the timed parts */
    uint64_t moved;          /* bytes in the timed parts, all directions */
    _Atomic uint64_t wrong;  /* bytes that differed */
};

#define P2P_TEXT_LEN 256

struct p2p_shared {
    weft_id_t id;
    weft_mem_t mem; /* rank 1's receive buffer */
    uint16_t port;  /* of the bare socket */
    _Atomic bool is_wrong;
    char wrong_text[P2P_TEXT_LEN]; /* the first difference, complete when the crew has ended */
    _Atomic uint64_t series_done;
    struct p2p_barrier all, pair;
    _Atomic bool is_probe_again; /* rank 0's decision */
    _Alignas(64) _Atomic uint32_t ping;
    _Alignas(64) _Atomic uint32_t pong;
    _Alignas(64) _Atomic uint64_t pass_ns;
};

size_t weft_bench_p2p_shared_len(const struct p2p_plan *plan);
struct p2p_outcome *weft_bench_p2p_outcomes(struct p2p_shared *shared);
/* picoseconds: an 8-byte put takes few nanoseconds */
uint64_t *weft_bench_p2p_samples(struct p2p_shared *shared, const struct p2p_plan *plan);

/* ---- a rank (bench_p2p_rank.c) ---- */

struct p2p_rank {
    struct weft_crew *crew;
    const struct p2p_plan *plan; /* lent */
    struct p2p_shared *shared;   /* lent */
    int rank;
    weft_comm_t comm;
    uint8_t *send, *recv;      /* owned; plan->buffer_len each */
    weft_request_t *requests;  /* owned; two windows */
    weft_message_t *messages;  /* owned; one window */
    uint64_t *ticks;           /* owned; one batch */
    int socket;                /* to the other of ranks 0 and 1; -1: none */
    _Alignas(64) uint32_t say; /* the latest flag, so that probes may follow each other */
};

/* The crew's body; context is the plan. With threads the crew has one process for all ranks. */
bool weft_bench_p2p_rank(struct weft_crew *crew, int rank, void *context);
/* Keeps the text with the rank's number, returns false. */
bool weft_bench_p2p_fail(struct p2p_rank *rank, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool weft_bench_p2p_fail_status(struct p2p_rank *rank, const char *what, weft_status_t status);
void weft_bench_p2p_barrier(struct p2p_barrier *barrier, int ranks);
void weft_bench_p2p_found_wrong(struct p2p_rank *rank, const struct p2p_series *series, size_t at,
                                uint64_t wrong);

/* ---- the clock of single operations ----
 * A reading costs a tenth of the shortest operation measured, so it is the CPU's counter where
 * there is one; how long a tick is comes from weft_clock_ns() over a whole batch. */

static inline uint64_t weft_bench_p2p_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return weft_clock_ns();
#endif
}

/* ---- operations (bench_p2p_ops.c, bench_p2p_mesh.c) ---- */

/* count samples; rank 0 writes the ticks of each (with all its messages), the others nothing.
 * Called by ranks 0 and 1. */
typedef bool (*p2p_op_fn)(struct p2p_rank *rank, const struct p2p_series *series, int count,
                          uint64_t *ticks);
p2p_op_fn weft_bench_p2p_op(enum p2p_op op);
/* A whole series of P2P_MESH; called by all ranks. */
bool weft_bench_p2p_mesh(struct p2p_rank *rank, const struct p2p_series *series,
                         struct p2p_outcome *outcome);

/* ---- the limit (bench_p2p_limit.c): by ranks 0 and 1 together ---- */

/* No flag takes so long: the two share a core, or somebody else has one. */
#define P2P_BUSY_NS 2000

/* One-way time of a flag between the two, ns. */
double weft_bench_p2p_probe(struct p2p_rank *rank);
/* What one message of the series takes at best, in *us_p at rank 0. NaN: not known. probe_ns: rank
 * 0's. */
bool weft_bench_p2p_limit(struct p2p_rank *rank, const struct p2p_series *series, double probe_ns,
                          double *us_p);
/* A bare TCP connection over loopback between the two; only for P2P_TCP. */
bool weft_bench_p2p_socket_open(struct p2p_rank *rank);
double weft_bench_p2p_median(double *values, size_t count);

/* ---- the bytes (bench_p2p_data.c) ---- */

/* What every byte is follows from its place and the seed (size, batch, sender). */
uint64_t weft_bench_p2p_seed(size_t bytes, uint32_t batch, int sender);
void weft_bench_p2p_fill(uint8_t *data, size_t len, uint64_t seed);
/* How many bytes differ; *at_p is the first of them. */
uint64_t weft_bench_p2p_differ(const uint8_t *data, size_t len, uint64_t seed, size_t *at_p);

/* ---- showing it (bench_p2p_report.c) ---- */

struct p2p_row {
    struct p2p_series series;
    int ranks;
    struct weft_bench_figures figures; /* of one message */
    double gbs, limit_us, limit_pct, cpu_s_per_gb, pass_us;
    double probe_ns[2];
    uint64_t wrong;
};

struct p2p_report {
    struct p2p_row *row; /* owned */
    size_t count;
    uint64_t wrong;
    char wrong_text[P2P_TEXT_LEN];
};

void weft_bench_p2p_report_add(struct p2p_report *report, const struct p2p_plan *plan,
                               struct p2p_shared *shared);
void weft_bench_p2p_print_table(const struct p2p_arguments *arguments,
                                const struct p2p_report *report);
bool weft_bench_p2p_print_json(const struct p2p_arguments *arguments,
                               const struct p2p_report *report);
const char *weft_bench_p2p_op_name(enum p2p_op op);

#endif
