/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft bench allreduce` and the other collectives: the cells (bench_coll_plan.c) that the
 * command (bench_coll.c) asks for, what a rank does with them (_rank.c, _ops.c), where ranks meet
 * (_ground.c), what the machine itself would take (_limit.c), the bytes they check (_data.c), and how it
 * is shown (_report.c, _json.c).
 */
#ifndef WEFT_CLI_BENCH_COLL_H
#define WEFT_CLI_BENCH_COLL_H

#include "bench.h"
#include "crew.h"

#define COLL_TEXT_LEN 256
#define COLL_SAMPLES_MAX 4096 /* of one cell: what a control message holds */
#define COLL_SCALE 0.5        /* of the scaled sum: exact in every float */

enum coll_path { COLL_AUTO, COLL_SHM, COLL_TCP };

struct coll_arguments {
    weft_coll_t coll;
    struct weft_cli_list ranks;
    uint64_t min_bytes, max_bytes, time_ms;
    int64_t factor, iters, warmup, check, root,
        lanes; /* iters 0, warmup, root -1: see the options */
    const char *dtype_name, *redop_name, *path_name, *alloc, *algo, *report;
    weft_dtype_t dtype;
    weft_redop_t redop;
    enum coll_path path;
    bool is_inplace, is_outplace, is_single, is_json, is_shared_alloc;
};

/* What one half of a row measures. */
struct coll_cell {
    size_t bytes, count; /* as nccl-tests has them: the larger buffer; and the call's count */
    bool is_inplace;
    const char *algo; /* NULL: the library's choice */
};

struct coll_plan {
    const struct coll_arguments *arguments; /* lent */
    int ranks;
    bool is_spread;         /* over hosts, perhaps */
    struct coll_cell *cell; /* owned by the command */
    size_t count;
    size_t buffer_len; /* of the input and of the output */
};

/* ---- the plan (bench_coll_plan.c) ---- */

/* cell is freed by the caller. Algorithms that cannot do it at all are left out. */
void weft_bench_coll_plan(const struct coll_arguments *arguments, int ranks, bool is_spread,
                          struct coll_plan *plan_p);
bool weft_bench_coll_has_root(weft_coll_t coll);
bool weft_bench_coll_reduces(weft_coll_t coll);
/* Does the root turn, so that no rank runs ahead? A given one stays. */
bool weft_bench_coll_turns(const struct coll_arguments *arguments);
/* Is each rank's part of the buffer one n-th of it? */
bool weft_bench_coll_is_cut(weft_coll_t coll);
/* What becomes of algbw to be busbw; NaN: barrier. */
double weft_bench_coll_bus_factor(weft_coll_t coll, int ranks);
/* Bytes that all ranks together must read and write in memory at least, and send over wires. */
double weft_bench_coll_memory_bytes(weft_coll_t coll, int ranks, const struct coll_cell *cell);
double weft_bench_coll_wire_bytes(weft_coll_t coll, int ranks, size_t bytes);
/* Is there such an algorithm for the operation? *names_p (freed by the caller) lists all. */
bool weft_bench_coll_knows_algo(weft_coll_t coll, const char *name, char **names_p);

/* How often, from what one operation takes; the rule that bench/peers/peer.h has too. */
struct coll_counts {
    int iters;   /* in a batch; 1: single operations */
    int samples; /* batches, or operations */
};
#define COLL_ITERS_MIN 3
#define COLL_ONCE_BYTES ((size_t)8 << 20) /* from here on one operation is a warm-up */
struct coll_counts weft_bench_coll_counts(const struct coll_arguments *arguments, double seconds);
/* How many more operations warm up, when the latest `count` came after so many tries and the best took
 * `seconds` each; 0: enough. */
int weft_bench_coll_warm(int tries, int count, double seconds);

/* ---- the bytes (bench_coll_data.c) ---- */

#define COLL_PERIOD 1009 /* prime: a piece in a wrong place is seen */

/* The elements that a rank gives or must get, over one period. */
struct coll_pattern {
    weft_dtype_t dtype;
    double tolerance; /* relative; 0: every bit counts */
    uint8_t bytes[COLL_PERIOD * 8];
};
/* What rank gives. redop counts for operations that reduce; others: WEFT_SUM. */
void weft_bench_coll_given(weft_dtype_t dtype, weft_redop_t redop, int ranks, int rank,
                           struct coll_pattern *pattern_p);
/* What a reduction of all ranks' must give. */
void weft_bench_coll_wanted(weft_dtype_t dtype, weft_redop_t redop, int ranks,
                            struct coll_pattern *pattern_p);
/* count elements, of which the first is number `first` of the pattern that goes on and on. */
void weft_bench_coll_fill(const struct coll_pattern *pattern, void *data, size_t count,
                          size_t first);
/* How many elements differ; *at_p is the first of them. */
uint64_t weft_bench_coll_differ(const struct coll_pattern *pattern, const void *data, size_t count,
                                size_t first, size_t *at_p);

/* ---- what the ranks share ---- */

/* What one cell brought; rank 0 writes it. */
struct coll_outcome {
    bool is_done;                      /* false: the algorithm has refused, why says so */
    struct weft_bench_figures figures; /* of one operation */
    struct coll_counts counts;
    double probe_ns[2];      /* a flag from core to core before and after, one way; NaN: none */
    double limit_us;         /* at the limit; NaN: unknown */
    double floor_gbs;        /* what the limit was computed with */
    double cpu_s, copies;    /* of all ranks, in the timed parts; bytes copied, NaN: not known */
    double bytes_done;       /* bytes of the cell × operations timed */
    uint64_t wrong;          /* elements */
    char algo[32];           /* "": not known */
    char why[COLL_TEXT_LEN]; /* refused, or what was wrong first */
};

/* One for all ranks when the command has forked them; one each as ranks of a job. */
struct coll_shared {
    weft_id_t id;
    int hosts;
    _Atomic uint64_t cells_done;
    struct weft_bench_flags flags;
    struct coll_outcome outcome[];
};
size_t weft_bench_coll_shared_len(const struct coll_plan *plan);

/* ---- a rank (bench_coll_rank.c) ---- */

struct coll_rank;

/* Where ranks meet. meet and create return false when the rank has failed, and have said why. */
struct coll_ground {
    bool (*create)(struct coll_rank *rank);
    bool (*meet)(struct coll_rank *rank); /* asleep: nobody who waits disturbs who is measured */
    void (*step)(struct coll_rank *rank, const char *what);
    bool (*fail)(struct coll_rank *rank, const char *text); /* false */
    bool is_shared;                                         /* `shared` is one */
};
extern const struct coll_ground weft_bench_coll_crew_ground, weft_bench_coll_job_ground;

#define COLL_LIMITS_MAX 64

struct coll_limit { /* what the machine gave */
    size_t bytes;   /* gone through, or sent, by each of the two */
    double gbs, us; /* of both together; us: tcp */
};

struct coll_rank {
    const struct coll_ground *ground;
    struct weft_crew *crew;       /* NULL: a rank of a job */
    const struct coll_plan *plan; /* lent */
    struct coll_shared *shared;   /* lent */
    int rank;
    weft_comm_t comm;
    uint8_t *in, *out;                   /* owned; plan->buffer_len each */
    uint64_t *samples_ps;                /* owned; COLL_SAMPLES_MAX: this rank's */
    uint64_t *all_ps;                    /* owned; ranks × COLL_SAMPLES_MAX */
    struct coll_pattern *given, *wanted; /* owned */
    int root;                            /* of the operation just done */
    uint32_t flag;                       /* the latest of the probe's */
    int socket;                          /* to the other of ranks 0 and 1; -1: none */
    int hosts;
    struct coll_limit limit[COLL_LIMITS_MAX]; /* rank 0's; found so far */
    int limit_count;
    char *why; /* lent; of a rank of a job: WEFT_CREW_TEXT_LEN */
};

/* The crew's body; context is the plan. */
bool weft_bench_coll_rank(struct weft_crew *crew, int rank, void *context);
/* Takes buffers, joins, runs all cells, leaves. Set: ground, crew, plan, shared, rank, why. */
bool weft_bench_coll_serve(struct coll_rank *rank);
/* Keeps the text with the rank's number, returns false. */
bool weft_bench_coll_fail(struct coll_rank *rank, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool weft_bench_coll_fail_status(struct coll_rank *rank, const char *what, weft_status_t status);
void weft_bench_coll_progress(const struct coll_plan *plan, size_t cells_done);

/* ---- the calls (bench_coll_ops.c) ---- */

/* The operation of the cell, count times back to back. The root turns before each, unless it is given.
 * ticks (may be NULL) gets what each took. */
weft_status_t weft_bench_coll_run(struct coll_rank *rank, const struct coll_cell *cell, int count,
                                  uint64_t *ticks);
/* Fills input and output for a run whose results will be checked; or, for the clock, in place, with what
 * stays as it is when it is reduced over and over: zeros. */
void weft_bench_coll_prepare(struct coll_rank *rank, const struct coll_cell *cell,
                             bool is_for_check);
/* How many elements of this rank's output are not what they must be; why (COLL_TEXT_LEN) names the
 * first. */
uint64_t weft_bench_coll_check(struct coll_rank *rank, const struct coll_cell *cell, char *why);

/* ---- the limit (bench_coll_limit.c) ---- */

/* By all ranks; those beyond 0 and 1 sleep meanwhile. NaN where there is none. */
bool weft_bench_coll_probe(struct coll_rank *rank, double *ns_p);
/* *limit_p is NULL where there is none, and on all ranks but 0. */
bool weft_bench_coll_limit(struct coll_rank *rank, const struct coll_cell *cell,
                           const struct coll_limit **limit_p);
double weft_bench_coll_limit_us(const struct coll_plan *plan, const struct coll_cell *cell,
                                const struct coll_limit *limit, double probe_ns);
bool weft_bench_coll_socket_open(struct coll_rank *rank);

/* ---- showing it (bench_coll_report.c, bench_coll_json.c) ---- */

struct coll_row {
    struct coll_cell cell;
    int ranks;
    struct coll_outcome outcome;
    double algbw_gbs, busbw_gbs, limit_pct, cpu_s_per_gb, copies_per_byte;
};

struct coll_report {
    struct coll_row *row; /* owned */
    size_t count;
    int hosts; /* of a job; 0: ranks are the command's own */
};

void weft_bench_coll_report_add(struct coll_report *report, const struct coll_plan *plan,
                                const struct coll_shared *shared);
/* The first row with wrong elements; NULL: none. */
const struct coll_row *weft_bench_coll_first_wrong(const struct coll_report *report);
void weft_bench_coll_print_tables(const struct coll_arguments *arguments,
                                  const struct coll_report *report);
bool weft_bench_coll_print_json(const struct coll_arguments *arguments,
                                const struct coll_report *report, FILE *out);
/* Writes arguments->report; false: *why_p (freed by the caller). */
bool weft_bench_coll_write_page(const struct coll_arguments *arguments,
                                const struct coll_report *report, char **why_p);
/* "auto", "shm", "tcp" */
const char *weft_bench_coll_path_name(const struct coll_arguments *arguments);

#endif
