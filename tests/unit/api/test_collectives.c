/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every collective, every dtype with every op it has, 1 … 9 ranks, counts around the edges, every root,
 * in place and not, over shm and over tcp, by every algorithm: a choice that covers each of these and
 * most pairs of them. The full product is collectives_product's.
 */
#include "unit/api/collectives_sweep.h"

#define RANKS_MOST 9

#if IS_THREAD_SANITIZED || IS_ADDRESS_SANITIZED
#define MOST_COUNT ((size_t)8193)
#else
#define MOST_COUNT SWEEP_LARGE
#endif

static bool is_small(size_t count)
{
    return count <= MOST_COUNT;
}

/* ---- every collective with every count ---- */

static int run_counts(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, MOST_COUNT + 1024, rank, shared));
    sweep.turn = (uint64_t)sweep.ranks * 1000;
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
        for (size_t i = 0; i < LENS(sweep_counts); i++) {
            struct trial trial = sweep_draw(&sweep, coll, sweep_counts[i]);
            if (is_small(trial.count)) {
                EXPECT_PASS(sweep_run(&sweep, &trial));
            }
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static void every_collective_is_right_at_every_edge_of_the_count(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        run_ways(PROCESSES, ranks, run_counts);
    }
}

/* More ranks than anybody here has cores for; not a power of two, and one. */
static int run_crowd(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t counts[] = {1, 40, 3000};
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 130000, rank, shared));
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
        for (size_t i = 0; i < LENS(counts); i++) {
            struct trial trial = sweep_draw(&sweep, coll, counts[i]);
            EXPECT_PASS(sweep_run(&sweep, &trial));
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static void a_crowd_of_ranks_is_right(void **state)
{
    (void)state;
    run_ways(PROCESSES, 16, run_crowd);
    run_ways(SHM_PROCESSES | TCP_THREADS, 23, run_crowd);
}

/* ---- every pair of dtype and op ---- */

static int run_pairs(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const weft_coll_t colls[] = {WEFT_ALLREDUCE, WEFT_REDUCE_SCATTER, WEFT_REDUCE};
    static const size_t counts[] = {5, 17, 130, 1000};
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 16384, rank, shared));
    for (size_t pair = 0; pair < (size_t)WEFT_DTYPES * WEFT_REDOPS; pair++) {
        weft_dtype_t dtype = (weft_dtype_t)(pair % WEFT_DTYPES);
        weft_redop_t op = (weft_redop_t)(pair / WEFT_DTYPES);
        for (size_t i = 0; i < LENS(colls) && values_is_defined(dtype, op); i++) {
            struct trial trial = sweep_draw(&sweep, colls[i], counts[sweep.turn % LENS(counts)]);
            trial.dtype = dtype;
            trial.op = op;
            EXPECT_PASS(sweep_run(&sweep, &trial));
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static void every_dtype_and_op_is_right(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        run_ways(PROCESSES, ranks, run_pairs);
    }
}

/* ---- every root, in place and not ---- */

static int run_roots(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t counts[] = {1, 14, 1000, 20000};
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 200000, rank, shared));
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
        for (int k = 0; k < 2 * sweep.ranks && coll != WEFT_BARRIER; k++) {
            struct trial trial = sweep_draw(&sweep, coll, counts[sweep.turn / 2 % LENS(counts)]);
            trial.root = k / 2;
            trial.is_in_place = k % 2 != 0;
            EXPECT_PASS(sweep_run(&sweep, &trial));
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static void every_root_is_right_in_place_and_not(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MOST; ranks += ranks < 5 ? 1 : 2) {
        run_ways(ranks == 3 ? EVERY_WAY : PROCESSES, ranks, run_roots);
    }
}

/* ---- every algorithm ---- */

static bool next_edge(struct sweep *sweep, weft_coll_t coll, size_t k, struct trial *trial_p)
{
    static const size_t counts[] = {0, 1, 3, 17, 1000, 4097, 40000};
    if (k >= LENS(counts) || (coll == WEFT_BARRIER && k > 0)) {
        return false;
    }
    *trial_p = sweep_draw(sweep, coll, counts[k]);
    return true;
}

static int run_algorithms(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 120000, rank, shared));
    EXPECT_PASS(sweep_algorithms(&sweep, next_edge));
    desk_close(&sweep.desk);
    return 0;
}

static void every_algorithm_is_right_or_refuses(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        run_ways(PROCESSES, ranks, run_algorithms);
    }
}

/* ---- over and over: slots are used again ---- */

static int run_repeats(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t counts[] = {1, 7, 100, 3000, 20000};
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 100000, rank, shared));
    for (int i = 0; i < 400; i++) {
        uint64_t random = values_mix(sweep.turn + 77);
        weft_coll_t coll = (weft_coll_t)(random % WEFT_COLLS);
        struct trial trial = sweep_draw(&sweep, coll, counts[random / 16 % LENS(counts)]);
        if (random / 256 % 8 == (uint64_t)rank) {
            sched_yield(); /* another one is slow each time */
        }
        EXPECT_PASS(sweep_run(&sweep, &trial));
    }
    desk_close(&sweep.desk);
    return 0;
}

static void a_long_row_of_calls_stays_right(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, run_repeats);
    run_ways(EVERY_WAY, 5, run_repeats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_is_right_at_every_edge_of_the_count),
        cmocka_unit_test(a_crowd_of_ranks_is_right),
        cmocka_unit_test(every_dtype_and_op_is_right),
        cmocka_unit_test(every_root_is_right_in_place_and_not),
        cmocka_unit_test(every_algorithm_is_right_or_refuses),
        cmocka_unit_test(a_long_row_of_calls_stays_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
