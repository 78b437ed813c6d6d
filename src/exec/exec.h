/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec: runs plans. A job is up to three stages, one after another, each a plan over a group of the
 * communicator's ranks (all of them, those of this host, or one of each host); the jobs of one communicator
 * run in the order they were begun, one at a time. Nothing is allocated while one runs.
 */
#ifndef WEFT_EXEC_H
#define WEFT_EXEC_H

#include "exec/board.h"
#include "p2p/p2p.h"
#include "plan/plan.h"
#include "watch/watch.h"

#define WEFT_EXEC_STAGES 3

struct weft_exec;

/* Ranks that run a plan together. */
struct weft_exec_group {
    uint32_t ranks, rank;     /* mine among them */
    const uint32_t *members;  /* the communicator's ranks; NULL: the same; lent */
    struct weft_board *board; /* NULL: they share no memory; lent */
};

/* What happens to the input before a plan that adds in several places sees it. */
enum weft_exec_prelude {
    WEFT_PRELUDE_NONE,
    WEFT_PRELUDE_SCALE, /* a copy times `before` */
    WEFT_PRELUDE_WIDEN, /* (and) computed in f32, the result rounded at the end */
};

/* The data of one stage. Counts and places are in elements, [ranks of the group]; NULL: equal, in a row. */
struct weft_exec_data {
    weft_dtype_t dtype;
    weft_redop_t op;
    double before;      /* factor of every input; 1: none */
    uint32_t divide_by; /* of every result; 1: not */
    const void *in;
    void *out;
    size_t count;    /* of the vector, or of one piece; is_cut: of all pieces together */
    bool is_cut;     /* the pieces are a vector cut into as many as there are ranks */
    uint8_t prelude; /* enum weft_exec_prelude */
    const size_t *in_counts, *in_places;
    const size_t *out_counts, *out_places;
};

/* What a plan needs besides the user's memory: the same for every call of its shape. */
struct weft_exec_needs {
    uint32_t items;  /* messages under way at once */
    uint32_t staged; /* blocks that are received before they are reduced, in one round */
};
void weft_exec_measure(const struct weft_plan *plan, uint32_t rank,
                       struct weft_exec_needs *needs_p);

struct weft_exec_stage {
    struct weft_plan plan;
    struct weft_exec_needs needs;
    bool has_mapped;
    bool sends_empty; /* blocks: each rank knows only its own, and a message shows the length */
    bool may_pull;    /* by CMA: everybody can, and the inputs are long enough */
    struct weft_plan mapped; /* instead, when all buffers can be read and written by all */
    struct weft_exec_group *group;
    struct weft_exec_data data;
};

/* A short plan in shared memory with its steps resolved; made once per shape (quick.c). */
#define WEFT_EXEC_QUICK_MOVES 24
struct weft_exec_place {
    uint8_t space;
    size_t offset;
};
struct weft_exec_move {
    uint8_t kind; /* of the step */
    bool is_final;
    uint32_t peer, index;
    struct weft_exec_place to, from, own;
    size_t len, count; /* the latter in elements, of a reduction */
};
struct weft_exec_quick {
    uint32_t count;
    bool is_short; /* the slots are in the lines */
    size_t slots_len;
    struct weft_exec_move moves[WEFT_EXEC_QUICK_MOVES];
};

struct weft_exec_job {
    uint32_t stages;
    struct weft_exec_stage stage[WEFT_EXEC_STAGES];
    uint32_t signature;                  /* of the call: two that differ never exchange data */
    uint32_t number;                     /* of the call on this communicator */
    uint64_t timeout_ms;                 /* or WEFT_NO_LIMIT */
    struct weft_record_call call;        /* for the recorder */
    uint64_t record;                     /* its line there; 0: none */
    const struct weft_exec_quick *quick; /* lent; NULL: there is none */
};
/* Sets job->quick, if it has a short plan. */
void weft_exec_compile(struct weft_exec_job *job, struct weft_exec_quick *quick);

struct weft_exec_stuck {
    uint32_t missing; /* a rank that is waited for, or NO_RANK */
    bool is_late;
    bool is_waiting;     /* its caller, and does nothing else; not: it was only begun */
    uint64_t timeout_ms; /* that it had */
    unsigned percent;    /* of its rounds that are behind it */
};
struct weft_exec_gone {
    uint32_t rank; /* of the communicator */
    char text[256];
};
struct weft_exec_lengths {
    size_t came, expected;
};

struct weft_exec_spec {
    struct weft_p2p_comm *messages; /* of this communicator's collectives alone; lent */
    struct weft_recorder *recorder; /* lent */
    uint32_t ranks;
    bool is_crowded; /* more ranks than CPUs here */
    bool is_pulled;  /* by CMA wherever it may be; else whichever way is the faster one */
    void *owner;     /* for the hooks */
    /* A job waits since long (asked again every half second), or (is_late) its time of timeout_ms is up.
     * `missing`: a rank that is waited for, or NO_RANK. Not under the lock. */
    void (*stuck)(void *owner, const struct weft_exec_job *job,
                  const struct weft_exec_stuck *stuck);
    /* Has `rank` closed or died; NO_RANK: any of the group? (the communicator's number of it, words) */
    bool (*is_gone)(void *owner, const struct weft_exec_group *group, uint32_t rank,
                    struct weft_exec_gone *gone_p);
    void (*name)(void *owner, const struct weft_exec_job *job, char *text, size_t room);
    /* A rank called something else. */
    void (*differs)(void *owner, const struct weft_exec_job *job, uint32_t rank);
    /* What a rank sent has another length: its call must be another. */
    void (*differs_in_length)(void *owner, const struct weft_exec_job *job, uint32_t rank,
                              const struct weft_exec_lengths *lengths);
};

weft_status_t weft_exec_open(const struct weft_exec_spec *spec, struct weft_exec **exec_p);
/* Nothing is driven from now on, what was begun has ended. Then its messages are closed, then it. NULL is
 * fine. */
void weft_exec_stop(struct weft_exec *exec);
void weft_exec_close(struct weft_exec *exec);

/* The time of the next job to begin began then; 0: as any other's. */
void weft_exec_set_since(struct weft_exec *exec, uint64_t since_ns);
/* Is anything under way that was only begun? Then a blocking one must be begun behind it. */
bool weft_exec_is_queued(const struct weft_exec *exec);

/* Runs it here, recorded, and returns its result. */
weft_status_t weft_exec_run(struct weft_exec *exec, struct weft_exec_job *job);
/* Begins it; the request is ended when it is done, and its record by whoever made that. The job is copied. */
weft_status_t weft_exec_begin(struct weft_exec *exec, const struct weft_exec_job *job,
                              weft_request_t request);
/* Of the messages of a stage of a call: calls that differ never match. */
uint32_t weft_exec_tag(uint32_t signature, uint32_t number, uint32_t stage);
/* Bytes that runs of this rank have read and written in memory, without those in the kernel. */
uint64_t weft_exec_moved(const struct weft_exec *exec);

#endif
