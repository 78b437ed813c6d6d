/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many calls in a row on one communicator, drawn from lists: what the quick and the full test of every
 * collective have in common.
 */
#ifndef WEFT_TESTS_API_COLLECTIVES_SWEEP_H
#define WEFT_TESTS_API_COLLECTIVES_SWEEP_H

#include "plan/plan.h"
#include "unit/api/collectives.h"

/* Around what an implementation may care for: one line, one slot, vector widths, eager, chunks. */
static const size_t sweep_counts[] = {0,  1,  2,  3,    7,    8,    13,   14,    15,    16,   17,
                                      63, 64, 65, 1000, 1021, 4097, 8193, 16385, 65537, 70001};
#define SWEEP_LARGE ((size_t)270001) /* past a megabyte in f32 */

struct sweep {
    weft_comm_t comm;
    int rank, me, ranks;
    struct harness_shared *shared;
    struct desk desk;
    uint64_t turn; /* makes each call another one */
};

/* most: elements of the longest vector, or of all pieces together. */
static inline int sweep_open(struct sweep *sweep, weft_comm_t comm, size_t most, int rank,
                             struct harness_shared *shared)
{
    *sweep = (struct sweep){.comm = comm, .rank = rank, .shared = shared};
    EXPECT_OK(weft_comm_rank(comm, &sweep->me));
    EXPECT_OK(weft_comm_ranks(comm, &sweep->ranks));
    desk_open(&sweep->desk, most * 8 + 1024, MEMORY_PRIVATE, MEMORY_PRIVATE);
    return 0;
}

/* Longest pieces that the desk has room for, in elements of 8 bytes, or of this dtype. */
static inline size_t sweep_limit(const struct sweep *sweep, weft_coll_t coll, weft_dtype_t dtype)
{
    size_t pieces = trial_has_pieces(coll) ? (size_t)sweep->ranks : 1;
    return (sweep->desk.len - 1024) / weft_dtype_size(dtype) / pieces;
}

/* A call with what the list says; the rest turns round and round. */
static inline struct trial sweep_draw(struct sweep *sweep, weft_coll_t coll, size_t count)
{
    uint64_t turn = sweep->turn++;
    struct trial trial = {.coll = coll,
                          .count = coll == WEFT_BARRIER ? 0 : count,
                          .root = (int)(turn % (uint64_t)sweep->ranks),
                          .seed = values_mix(turn),
                          .scale = trial_scale(turn),
                          .is_in_place = turn / 3 % 2 == 0,
                          .desk = &sweep->desk,
                          .me = sweep->me,
                          .ranks = sweep->ranks};
    trial_pair((size_t)turn, &trial.dtype, &trial.op);
    return trial;
}

static inline int sweep_run(struct sweep *sweep, struct trial *trial)
{
    size_t limit = sweep_limit(sweep, trial->coll, trial->dtype);
    trial->count = trial->count < limit ? trial->count : limit;
    return trial_run(trial, sweep->comm, sweep->rank, sweep->shared);
}

/* ---- algorithms ---- */

/* One call by this algorithm. What it cannot do must be refused as such, and the communicator goes on. */
static inline int sweep_run_by(struct sweep *sweep, struct trial *trial)
{
    size_t limit = sweep_limit(sweep, trial->coll, trial->dtype);
    int rank = sweep->rank;
    struct harness_shared *shared = sweep->shared;
    weft_status_t status;
    trial->count = trial->count < limit ? trial->count : limit;
    trial_prepare(trial);
    status = trial_begin(trial, sweep->comm, NULL);
    if (status == WEFT_ERR_UNSUPPORTED) {
        EXPECT(strstr(weft_error_text(), trial->algorithm) != NULL);
        EXPECT_OK(weft_comm_status(sweep->comm));
        return 0;
    }
    EXPECT_PASS(trial_expect_ok(trial, status, rank, shared));
    return trial_check(trial, rank, shared);
}

/* Runs every call that `next` names (false: there are no more) by every algorithm that knows the
 * collective. */
static inline int sweep_algorithms(struct sweep *sweep,
                                   bool (*next)(struct sweep *sweep, weft_coll_t coll, size_t k,
                                                struct trial *trial_p))
{
    struct trial trial;
    for (size_t b = 0; weft_plan_builders[b] != NULL; b++) {
        const struct weft_plan_builder *builder = weft_plan_builders[b];
        for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
            bool is_known = (builder->colls >> coll & 1) != 0;
            for (size_t k = 0; is_known && next(sweep, coll, k, &trial); k++) {
                trial.algorithm = builder->name;
                EXPECT_PASS(sweep_run_by(sweep, &trial));
            }
        }
    }
    return 0;
}

#endif
