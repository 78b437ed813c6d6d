/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of different sizes, with nothing in some and gaps between them; and memory of every kind: from
 * malloc, from weft_alloc(), of a file, not to be written, all ranks the same or each another.
 */
#include "unit/api/collectives_sweep.h"

#include <sys/mman.h>
#include <unistd.h>

static const weft_coll_t piece_colls[] = {WEFT_REDUCE_SCATTER, WEFT_ALLGATHER, WEFT_GATHER,
                                          WEFT_SCATTER, WEFT_ALLTOALL};

static int run_one(struct sweep *sweep, weft_coll_t coll, size_t most, const char *algorithm)
{
    size_t counts[TRIAL_RANKS * TRIAL_RANKS];
    struct trial trial = sweep_draw(sweep, coll, most);
    int pieces = coll == WEFT_ALLTOALL ? sweep->ranks * sweep->ranks : sweep->ranks;
    int rank = sweep->rank;
    struct harness_shared *shared = sweep->shared;
    weft_status_t status;
    trial_draw_counts(trial.seed, most, counts, pieces);
    trial.has_gaps = trial.seed % 3 == 0;
    trial.counts = trial.has_gaps && trial.seed % 4 == 0 ? NULL : counts;
    trial.algorithm = algorithm;
    trial_prepare(&trial);
    status = trial_begin(&trial, sweep->comm, NULL);
    if (algorithm != NULL && status == WEFT_ERR_UNSUPPORTED) {
        EXPECT_OK(weft_comm_status(sweep->comm));
        return 0;
    }
    EXPECT_PASS(trial_expect_ok(&trial, status, rank, shared));
    return trial_check(&trial, rank, shared);
}

static int run_pieces(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t most[] = {1, 3, 20, 300, 5000};
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 60000, rank, shared));
    sweep.turn = (uint64_t)sweep.ranks * 100;
    for (size_t i = 0; i < LENS(piece_colls); i++) {
        for (size_t k = 0; k < 6 * LENS(most); k++) {
            EXPECT_PASS(run_one(&sweep, piece_colls[i], most[k % LENS(most)], NULL));
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static void pieces_of_any_size_and_place_are_right(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++) {
        run_ways(ranks == 4 ? EVERY_WAY : PROCESSES, ranks, run_pieces);
    }
}

/* A few long ones: some past every limit, some of nothing, beside each other. */
static int run_long_pieces(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 1000000, rank, shared));
    for (size_t i = 0; i < LENS(piece_colls); i++) {
        for (int k = 0; k < 3; k++) {
            EXPECT_PASS(run_one(&sweep, piece_colls[i], 200000, NULL));
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static void long_pieces_of_any_size_are_right(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_long_pieces);
    run_ways(PROCESSES, 4, run_long_pieces);
}

static int run_pieces_by(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 60000, rank, shared));
    for (size_t b = 0; weft_plan_builders[b] != NULL; b++) {
        const struct weft_plan_builder *builder = weft_plan_builders[b];
        for (size_t i = 0; i < LENS(piece_colls); i++) {
            bool is_known = (builder->colls >> piece_colls[i] & 1) != 0;
            for (int k = 0; k < 4 && is_known; k++) {
                EXPECT_PASS(run_one(&sweep, piece_colls[i], k < 2 ? 20 : 3000, builder->name));
            }
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static void pieces_are_right_or_refused_by_every_algorithm(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_pieces_by);
    run_ways(PROCESSES, 5, run_pieces_by);
    run_ways(PROCESSES, 8, run_pieces_by);
}

/* ---- kinds of memory ---- */

/* Which kinds a rank has: some all alike, some mixed. */
static void pick_kinds(int mixture, int rank, enum memory *in_p, enum memory *out_p)
{
    uint64_t random = values_mix((uint64_t)mixture * 64 + (uint64_t)rank);
    *in_p = MEMORY_SHARED;
    *out_p = MEMORY_SHARED;
    if (mixture == 1) { /* one of them alone is private */
        *in_p = rank == 1 ? MEMORY_PRIVATE : MEMORY_SHARED;
    } else if (mixture == 2) {
        *out_p = rank == 0 ? MEMORY_PRIVATE : MEMORY_SHARED;
    } else if (mixture == 3) {
        *in_p = MEMORY_READ_ONLY;
    } else if (mixture > 3) {
        *in_p = (enum memory)(random % MEMORIES);
        *out_p = (enum memory)(random / 16 % MEMORY_READ_ONLY);
    }
}

#define MIXTURES 7

static int run_mixture(weft_comm_t comm, int mixture, int rank, struct harness_shared *shared)
{
    static const size_t counts[] = {1, 9, 100, 3000, 40000, 140001};
    enum memory in, out;
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 1, rank, shared));
    desk_close(&sweep.desk);
    pick_kinds(mixture, rank, &in, &out);
    desk_open(&sweep.desk, (size_t)8 * 150000, in, out);
    sweep.turn = (uint64_t)mixture * 31;
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll < WEFT_BARRIER; coll++) {
        for (size_t i = 0; i < LENS(counts); i++) {
            struct trial trial = sweep_draw(&sweep, coll, counts[i]);
            if (IS_THREAD_SANITIZED && counts[i] > 10000) {
                continue;
            }
            EXPECT_PASS(sweep_run(&sweep, &trial));
        }
        EXPECT_PASS(run_one(&sweep, piece_colls[coll % LENS(piece_colls)], 2000, NULL));
    }
    /* freed while the others may still be reading it, if the call returned too early */
    desk_close(&sweep.desk);
    return 0;
}

static int run_mixtures(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int mixture = 0; mixture < MIXTURES; mixture++) {
        EXPECT_PASS(run_mixture(comm, mixture, rank, shared));
    }
    return 0;
}

static void memory_of_every_kind_and_mixture_is_right(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, run_mixtures);
    run_ways(PROCESSES, 3, run_mixtures);
    run_ways(PROCESSES, 7, run_mixtures);
}

/* The same memory at another address of the same file, and memory that is given back and taken again:
 * whoever remembers a mapping must notice. */
static int run_changing(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 1, rank, shared));
    desk_close(&sweep.desk);
    for (int round = 0; round < 40; round++) {
        size_t count = round % 4 == 0 ? 100000 : 2000;
        enum memory kind = round % 3 == 2 ? MEMORY_PRIVATE : MEMORY_SHARED;
        struct trial trial;
        desk_open(&sweep.desk, count * 8 + 1024, kind, kind);
        trial = sweep_draw(&sweep, (weft_coll_t)(round % WEFT_BARRIER), count);
        EXPECT_PASS(sweep_run(&sweep, &trial));
        desk_close(&sweep.desk);
    }
    return 0;
}

static void memory_that_comes_and_goes_is_right(void **state)
{
    (void)state;
    run_ways(PROCESSES, 4, run_changing);
    run_ways(SHM_THREADS, 3, run_changing);
}

/* What lies between two pieces is not ours: here nobody may even read it. */
static int run_gap(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { COUNT = 8 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t places[2] = {page / sizeof(float) - COUNT, 2 * page / sizeof(float)};
    float out[COUNT] = {0};
    weft_call_t call = WEFT_CALL_INIT;
    uint8_t *memory =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED && shared->ranks == 2);
    EXPECT(mprotect(memory + page, page, PROT_NONE) == 0);
    for (size_t piece = 0; piece < 2; piece++) {
        float *at = (float *)(void *)memory + places[piece];
        for (size_t i = 0; i < COUNT; i++) {
            at[i] = (float)(100 * piece + i);
        }
    }
    call.coll = WEFT_REDUCE_SCATTER;
    call.dtype = WEFT_F32;
    call.op = WEFT_SCALED;
    call.scale = 0.5;
    call.in = memory;
    call.out = out;
    call.count = COUNT;
    call.in_places = places;
    call.algorithm = "ring";
    EXPECT_OK(weft_collective(comm, &call, NULL));
    for (int i = 0; i < COUNT; i++) {
        EXPECT(out[i] == (float)(100 * rank + i));
    }
    EXPECT(munmap(memory, 3 * page) == 0);
    return 0;
}

static void gaps_between_pieces_are_not_touched(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_gap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size_and_place_are_right),
        cmocka_unit_test(long_pieces_of_any_size_are_right),
        cmocka_unit_test(pieces_are_right_or_refused_by_every_algorithm),
        cmocka_unit_test(gaps_between_pieces_are_not_touched),
        cmocka_unit_test(memory_of_every_kind_and_mixture_is_right),
        cmocka_unit_test(memory_that_comes_and_goes_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
