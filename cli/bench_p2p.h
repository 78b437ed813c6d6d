/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft bench p2p`: the plan (bench_p2p_plan.c) that the command (bench_p2p.c) makes, what
 * the ranks (_rank.c, _ops.c, _mesh.c) do with it, where they meet (_ground.c when the command has
 * forked them, _job.c when a launcher has started them), the limit they measure beside it (_limit.c),
 * the bytes they check (_data.c), what the NICs have sent (_nics.c) and how it is shown (_report.c).
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
    P2P_MESH,      /* every rank with every other, pair after pair */
    P2P_MESHBW,    /* every rank to every other, all at once */
    P2P_OPS,
};

#define P2P_PUTS_PER_QUIET 16

/* One row: samples of one operation at one size. */
struct p2p_series {
    enum p2p_op op;
    size_t bytes;  /* of one message or put */
    int inflight;  /* messages in flight */
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
    size_t buffer_len; /* what receives: the longest slots × bytes */
    size_t send_len;   /* what is sent: in a mesh the same to all */
    int inflight_max;  /* of one rank */
};

struct p2p_arguments {
    struct weft_cli_list ranks;
    bool is_wanted[P2P_OPS];
    const char *modes, *path_name, *alloc;
    const char *strategy; /* NULL, and 0 of the next: as the environment says */
    int64_t lanes, window;
    uint64_t chunk;
    enum p2p_path path;
    uint64_t min_bytes, max_bytes;
    int64_t factor, iters, warmup, inflight, check; /* iters, inflight 0 and warmup -1: by size */
    bool is_threads, is_shared_alloc, is_json;
};

/* ---- the plan (bench_p2p_plan.c) ---- */

/* "lat,bw" or "all". false: *word_p (may point into text) is no mode. */
bool weft_bench_p2p_read_modes(const char *text, bool is_wanted[P2P_OPS], const char **word_p);
/* series is freed by the caller */
void weft_bench_p2p_plan(const struct p2p_arguments *arguments, int ranks, struct p2p_plan *plan_p);

/* ---- what the ranks share ---- */

struct p2p_barrier { /* those that are not measured must not disturb: they sleep in it */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t generation;
};

#define P2P_NICS_MAX 32

/* What each interface has sent. */
struct p2p_nics {
    unsigned count;
    struct p2p_nic {
        char name[16];
        uint64_t sent;
    } nic[P2P_NICS_MAX];
};

/* What one series brought. */
struct p2p_outcome {
    double probe_ns[2];      /* flag from core to core before and after, one way; NaN: none */
    double limit_us;         /* what one message would take at the limit; NaN: unknown */
    double pass_us;          /* meshes: the whole once, the median of the slowest rank's times */
    _Atomic uint64_t cpu_ns; /* of all ranks measured, in the timed parts */
    uint64_t moved;          /* bytes in the timed parts, all directions */
    _Atomic uint64_t wrong;  /* bytes that differed */
    struct p2p_nics nics;    /* of rank 0's host, in the timed parts */
};

#define P2P_TEXT_LEN 256

/* One for all ranks when the command has forked them; one each as ranks of a job. */
struct p2p_shared {
    weft_id_t id;
    weft_mem_t mem; /* rank 1's receive buffer */
    uint16_t port;  /* of the bare socket */
    int hosts;      /* of the job */
    _Atomic bool is_wrong;
    char wrong_text[P2P_TEXT_LEN]; /* the first difference, complete when the crew has ended */
    _Atomic uint64_t series_done;
    struct p2p_barrier all, pair;
    struct weft_bench_flags flags;
    _Alignas(64) _Atomic uint64_t pass_ns;
};

size_t weft_bench_p2p_shared_len(const struct p2p_plan *plan);
struct p2p_outcome *weft_bench_p2p_outcomes(struct p2p_shared *shared);
/* picoseconds: an 8-byte put takes few nanoseconds */
uint64_t *weft_bench_p2p_samples(struct p2p_shared *shared, const struct p2p_plan *plan);

/* ---- a rank (bench_p2p_rank.c) ---- */

struct p2p_rank;
struct p2p_report;

/* Where ranks meet: in memory that they share, or by the control plane of their job. All but step
 * return false when the rank has failed, and have said why by weft_bench_p2p_fail(). */
struct p2p_ground {
    bool (*create)(struct p2p_rank *rank); /* the communicator, and has_limit */
    bool (*meet)(struct p2p_rank *rank);   /* all ranks */
    bool (*meet_pair)(struct p2p_rank *rank);
    /* ranks 0 and 1: what rank 1 has written to data, a part of its `shared`, is also rank 0's */
    bool (*tell)(struct p2p_rank *rank, void *data, size_t len);
    /* all ranks, after a series: what the others have found comes to rank 0 */
    bool (*collect)(struct p2p_rank *rank, const struct p2p_series *series);
    void (*step)(struct p2p_rank *rank, const char *what);
    bool (*fail)(struct p2p_rank *rank, const char *text); /* false */
    bool is_shared;                                        /* `shared` is one */
};
extern const struct p2p_ground weft_bench_p2p_crew_ground, weft_bench_p2p_job_ground;

struct p2p_rank {
    const struct p2p_ground *ground;
    struct weft_crew *crew;      /* NULL: a rank of a job */
    const struct p2p_plan *plan; /* lent */
    struct p2p_shared *shared;   /* lent */
    int rank;
    weft_comm_t comm;
    uint8_t *send, *recv;      /* owned; plan->send_len and buffer_len */
    weft_request_t *requests;  /* owned; twice the most in flight */
    weft_message_t *messages;  /* owned; the most in flight */
    uint64_t *ticks;           /* owned; one batch */
    double *pass_us;           /* owned; the mesh's, one per iteration: of all ranks at rank 0 */
    bool has_limit;            /* ranks 0 and 1 are on one host */
    int socket;                /* to the other of ranks 0 and 1; -1: none */
    int net_dev;               /* rank 0's counters of its host's NICs; -1: none */
    char *why;                 /* lent; of a rank of a job: WEFT_CREW_TEXT_LEN */
    _Alignas(64) uint32_t say; /* the latest flag, so that probes may follow each other */
};

/* The crew's body; context is the plan. With threads the crew has one process for all ranks. */
bool weft_bench_p2p_rank(struct weft_crew *crew, int rank, void *context);
/* Takes buffers, joins, runs all series, leaves. Set: ground, crew, plan, shared, rank, why. */
bool weft_bench_p2p_serve(struct p2p_rank *rank);
/* Keeps the text with the rank's number, returns false. */
bool weft_bench_p2p_fail(struct p2p_rank *rank, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool weft_bench_p2p_fail_status(struct p2p_rank *rank, const char *what, weft_status_t status);
void weft_bench_p2p_found_wrong(struct p2p_rank *rank, const struct p2p_series *series, size_t at,
                                uint64_t wrong);

/* As that rank. At rank 0 the report is filled. false: why (WEFT_CREW_TEXT_LEN) says what failed. */
bool weft_bench_p2p_run_in_job(const struct weft_bench_job *job, struct p2p_plan *plan,
                               struct p2p_report *report, char *why);
void weft_bench_p2p_progress(const struct p2p_plan *plan, size_t series_done);

/* ---- NICs (bench_p2p_nics.c) ---- */

/* From the text of /proc/net/dev; interfaces that have never sent are left out. */
void weft_bench_p2p_nics_parse(const char *text, struct p2p_nics *nics_p);
/* fd: of /proc/self/net/dev; -1, or unreadable: none */
void weft_bench_p2p_nics_read(int fd, struct p2p_nics *nics_p);
void weft_bench_p2p_nics_add(struct p2p_nics *sum, const struct p2p_nics *before,
                             const struct p2p_nics *after);
/* Has something to tell: not a loopback that has sent nothing. */
bool weft_bench_p2p_nics_counts(const struct p2p_nic *nic);

/* ---- operations (bench_p2p_ops.c, bench_p2p_mesh.c, bench_p2p_meshbw.c) ---- */

/* count samples; rank 0 writes the ticks of each (with all its messages), the others nothing.
 * Called by ranks 0 and 1. */
typedef bool (*p2p_op_fn)(struct p2p_rank *rank, const struct p2p_series *series, int count,
                          uint64_t *ticks);
p2p_op_fn weft_bench_p2p_op(enum p2p_op op);
bool weft_bench_p2p_is_mesh(enum p2p_op op);
/* The samples of one iteration that this rank takes, of those of all ranks. */
void weft_bench_p2p_mesh_own(const struct p2p_series *series, int rank, int ranks, size_t *first_p,
                             size_t *count_p);
/* A whole series of a mesh; called by all ranks. */
bool weft_bench_p2p_mesh(struct p2p_rank *rank, const struct p2p_series *series,
                         struct p2p_outcome *outcome);
/* One round of P2P_MESHBW. samples_ps: of all ranks, this rank writes its own; NULL: warming up. */
bool weft_bench_p2p_flood(struct p2p_rank *rank, const struct p2p_series *series,
                          uint64_t *samples_ps);
/* Where the sample of a message is among those of one round: receivers in rows. */
size_t weft_bench_p2p_flood_index(int from, int to, int ranks);

/* ---- the limit (bench_p2p_limit.c): by ranks 0 and 1 together ---- */

/* One-way time of a flag between the two, ns; NaN without shared memory. */
double weft_bench_p2p_probe(struct p2p_rank *rank);
/* What one message of the series takes at best, in *us_p at rank 0. NaN: not known. probe_ns: rank
 * 0's. */
bool weft_bench_p2p_limit(struct p2p_rank *rank, const struct p2p_series *series, double probe_ns,
                          double *us_p);
/* A bare TCP connection over loopback between the two; only for P2P_TCP. */
bool weft_bench_p2p_socket_open(struct p2p_rank *rank);

/* ---- the bytes (bench_p2p_data.c) ---- */

/* What every byte is follows from its place and the seed (size, batch, sender). */
uint64_t weft_bench_p2p_seed(size_t bytes, uint32_t batch, int sender);
void weft_bench_p2p_fill(uint8_t *data, size_t len, uint64_t seed);
/* How many bytes differ; *at_p is the first of them. */
uint64_t weft_bench_p2p_differ(const uint8_t *data, size_t len, uint64_t seed, size_t *at_p);

/* ---- showing it (bench_p2p_report.c, bench_p2p_json.c, bench_p2p_meshbw.c) ---- */

struct p2p_row {
    struct p2p_series series;
    int ranks;
    struct weft_bench_figures figures; /* of one message */
    double gbs, limit_us, limit_pct, cpu_s_per_gb, pass_us;
    double probe_ns[2];
    uint64_t moved, wrong;
    struct p2p_nics nics;
    double *pair_gbs; /* of P2P_MESHBW, owned: ranks × ranks, from row to column; NaN: to itself */
};

struct p2p_report {
    struct p2p_row *row; /* owned */
    size_t count;
    int hosts; /* of a job; 0: ranks are the command's own */
    uint64_t wrong;
    char wrong_text[P2P_TEXT_LEN];
};

/* Of the lanes, as they hold for this report's ranks. */
struct p2p_settings {
    int64_t lanes, window, chunk;
    char strategy[16];
};
bool weft_bench_p2p_settings(const struct p2p_report *report, struct p2p_settings *settings_p);
void weft_bench_p2p_report_add(struct p2p_report *report, const struct p2p_plan *plan,
                               struct p2p_shared *shared);
void weft_bench_p2p_report_close(struct p2p_report *report);
/* Owned by the caller; see pair_gbs. */
double *weft_bench_p2p_matrix(const struct p2p_series *series, int ranks,
                              const uint64_t *samples_ps);
/* Under the table: every pair of a row of P2P_MESHBW. */
void weft_bench_p2p_print_matrix(const struct p2p_row *row);
void weft_bench_p2p_print_table(const struct p2p_arguments *arguments,
                                const struct p2p_report *report);
bool weft_bench_p2p_print_json(const struct p2p_arguments *arguments,
                               const struct p2p_report *report);
const char *weft_bench_p2p_op_name(enum p2p_op op);

#endif
