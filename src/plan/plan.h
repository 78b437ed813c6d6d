/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: collectives as data. A plan is a shape over blocks: what each rank does in which round, without
 * buffers, counts or a network. Pure; the same plans are run (exec), proved right (verify.c), drawn
 * (explain) and timed in a model (sim).
 *
 * A builder is one algorithm in one file: a table of two functions. `rounds` says how many rounds a rank
 * has, `step` gives its i-th step of a round; both are pure and cheap, so that nothing is ever stored,
 * and 100,000 ranks can be looked at one by one.
 *
 * What the steps of a rank mean:
 *   - The steps of a round are begun in their order. A round begins when the rank has finished all of the
 *     round before, except SENDs, which may still be under way: a step that writes to memory that an
 *     unfinished SEND of this rank reads waits for it.
 *   - SEND and RECV between two ranks match in order. A SEND may have to wait for its RECV (nothing is
 *     buffered).
 *   - RECV and RECV_REDUCE of one round are posted together; RECV_REDUCEs are applied in their order.
 *   - COPY and REDUCE are done at once: they do not wait for the RECVs of their own round.
 *
 * Blocks. The data of an operation is cut into blocks; a step names a range of them. Which bytes they are,
 * the binding knows (exec). B = plan->segments:
 *   allreduce, broadcast, reduce   one vector, cut into plan->parts blocks, numbered 0 … parts-1
 *   reduce_scatter, allgather, gather, scatter   the piece of rank q is cut into B blocks, q·B … q·B+B-1
 *   alltoall   IN: the piece for rank q is q·B …; OUT: the piece from rank q is q·B …
 * A rank's own piece (IN of allgather and gather, OUT of reduce_scatter and scatter) keeps its global
 * numbers: rank r has r·B … r·B+B-1.
 */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "base/base.h"

#define WEFT_PLAN_ALL UINT32_MAX /* every rank of the host, as a peer of AWAIT */

enum weft_plan_space {
    WEFT_SPACE_NONE,
    WEFT_SPACE_IN,   /* the user's input; never written */
    WEFT_SPACE_OUT,  /* the user's output */
    WEFT_SPACE_TMP,  /* private scratch: plan->tmp_units units, each as long as the longest block */
    WEFT_SPACE_SLOT, /* the rank's shared slots: plan->slots of plan->slot_blocks blocks each */
    /* Only in plans with the trait MAPPED, where every rank's buffers lie in memory shared with all: */
    WEFT_SPACE_THEIR_IN, /* IN of rank `peer` (COPY), or of rank i for source i (REDUCE) */
    WEFT_SPACE_ALL_OUT,  /* as `to`: the same blocks of OUT of every rank that has them */
};

/* A piece of memory: the blocks [block, block + blocks), which lie one after another. In IN and OUT the
 * numbers say where. In TMP and SLOT they begin at unit (or slot) `at`, moved up by as many bytes as lie
 * between block `origin` and block `block`. */
struct weft_plan_ref {
    uint8_t space;
    uint32_t at, origin;
    uint32_t block, blocks; /* blocks 0: nothing (a message without bytes) */
};

enum weft_step_kind {
    WEFT_STEP_SEND,        /* from → peer */
    WEFT_STEP_RECV,        /* peer → to */
    WEFT_STEP_RECV_REDUCE, /* to = from op what peer sent; from: NONE means `to` itself */
    WEFT_STEP_COPY,        /* to = from (of rank `peer` when from is a SLOT) */
    /* to = source 0 op source 1 op …, in one pass, in this order. Source number `self` is `from2`; the
     * others are, in TMP, from, from + 1 unit, from + 2 units, …; in SLOT and THEIR_IN `from` of rank i for
     * source i (self ≥ sources: all of them). `also` (SLOT, or NONE) gets the same. */
    WEFT_STEP_REDUCE,
    /* shared memory of a host: SHOW makes everything this rank did before visible and raises its count to
     * `value`; AWAIT returns when the count of `peer` (or ALL) is at least `value`. Counts begin at 0 in
     * each operation; a rank's values rise; the last SHOW of every rank has plan->shows. */
    WEFT_STEP_SHOW,
    WEFT_STEP_AWAIT,
    /* Everybody has ended the operation `value` operations ago (of those with slots): its slots are free. */
    WEFT_STEP_AWAIT_FREE,
    WEFT_STEP_AWAIT_ANY, /* all steps marked ANY of this operation are done, whoever did them */
};

enum weft_step_flags {
    WEFT_STEP_FINAL = 1, /* this reduction is the last one of these blocks: what avg divides */
    WEFT_STEP_ANY =
        2, /* whichever rank of the host gets here first does it (disjoint, order free) */
};

struct weft_plan_step {
    uint8_t kind, flags;
    uint32_t peer;  /* SEND, RECV, RECV_REDUCE, AWAIT, COPY from SLOT */
    uint32_t value; /* SHOW, AWAIT, AWAIT_FREE */
    struct weft_plan_ref to, from, from2, also;
    uint32_t sources, self; /* REDUCE */
};

struct weft_plan_builder;

/* A shape: everything the steps depend on. Compared and hashed as bytes: no padding, no pointers other than
 * the builder. */
struct weft_plan {
    const struct weft_plan_builder *builder;
    uint32_t coll; /* weft_coll_t */
    uint32_t ranks, root;
    uint32_t parts;    /* vector operations: blocks */
    uint32_t segments; /* the others: blocks per piece; also free for builders of vector operations
                          (pipelining depth): parts is what counts */
    uint32_t tmp_units;
    uint32_t slots, slot_blocks; /* shared memory; 0: none */
    uint32_t shows;              /* shared memory: the last count of every rank */
    uint32_t radix;              /* trees and the like; 0: the builder's own */
};

enum weft_plan_traits {
    WEFT_PLAN_SHARED = 1,        /* all ranks on one host, through shared slots */
    WEFT_PLAN_IN_RANK_ORDER = 2, /* adds in rank order at one owner per element */
    WEFT_PLAN_EQUAL_ONLY = 4,    /* pieces of different sizes are not possible */
    WEFT_PLAN_PIPELINED = 8,     /* `segments` beyond 1 (parts beyond the fewest) make sense */
    /* SHARED, and needs all buffers in memory from weft_alloc(). Nobody begins before all have shown each
     * other where their buffers are: what is in them is there. */
    WEFT_PLAN_MAPPED = 16,
};

struct weft_plan_builder {
    const char *name;    /* "ring" */
    const char *summary; /* one line for explain */
    uint32_t colls;      /* bit 1 << weft_coll_t */
    uint32_t traits;
    /* Completes a plan whose builder, coll, ranks, root and wished segments (≥ 1) are set; false: not
     * possible for these. */
    bool (*shape)(struct weft_plan *plan);
    uint32_t (*rounds)(const struct weft_plan *plan, uint32_t rank);
    /* The i-th step of a round; false: there are no more. */
    bool (*step)(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p);
};

/* ---- builders.c: all of them, ended by NULL; and by name ---- */
extern const struct weft_plan_builder *const weft_plan_builders[];
const struct weft_plan_builder *weft_plan_find(const char *name); /* NULL: none */
/* Shapes a plan. false: this builder cannot do it. */
bool weft_plan_shape(const struct weft_plan_builder *builder, weft_coll_t coll, uint32_t ranks,
                     uint32_t root, uint32_t segments, struct weft_plan *plan_p);
uint64_t weft_plan_hash(const struct weft_plan *plan); /* the same on every machine */

/* ---- verify.c ---- */
struct weft_plan_verdict {
    bool is_right;
    char text[256]; /* what is wrong: which rank, round, step */
};
/* Runs all ranks symbolically, nothing buffered, `operations` times in a row on the same slots (2 and more
 * for plans with slots), in an order of ranks drawn from seed. */
void weft_plan_verify(const struct weft_plan *plan, uint32_t operations, uint64_t seed,
                      struct weft_plan_verdict *verdict_p);

#endif
