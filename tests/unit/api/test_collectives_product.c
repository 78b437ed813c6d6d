/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The full product: every collective × dtype × op × 1 … 9 ranks × count × root × in place or not, over shm
 * and over tcp; and every algorithm with all counts, roots and dtypes in turn. Minutes.
 *
 * PRODUCT_RANKS=n runs that many ranks only.
 */
#include "unit/api/collectives_sweep.h"

#define RANKS_MOST 9

/* Sanitizers take their time: a third of the ranks' numbers, and no long vectors. */
#define IS_SHORTENED (IS_THREAD_SANITIZED || IS_ADDRESS_SANITIZED)

/* Long vectors for the pairs that differ in kind, not for each of a hundred. */
static bool is_worth_it(const struct trial *trial)
{
    bool is_usual = trial->op == WEFT_SUM || trial->op == WEFT_AVG;
    return trial->count <= (IS_SHORTENED ? 65 : 4097) ||
           (!IS_SHORTENED && is_usual && trial->root == trial->ranks / 2);
}

static int run_pair(struct sweep *sweep, weft_coll_t coll, weft_dtype_t dtype, weft_redop_t op)
{
    int roots = trial_is_rooted(coll) ? sweep->ranks : 1;
    for (size_t i = 0; i <= LENS(sweep_counts); i++) {
        for (int k = 0; k < 2 * roots; k++) {
            size_t count = i < LENS(sweep_counts) ? sweep_counts[i] : SWEEP_LARGE;
            struct trial trial = sweep_draw(sweep, coll, count);
            trial.dtype = dtype;
            trial.op = op;
            trial.root = roots > 1 ? k / 2 : trial.ranks / 2;
            trial.is_in_place = k % 2 != 0;
            if (is_worth_it(&trial)) {
                int result = sweep_run(sweep, &trial);
                if (result != 0) {
                    return result;
                }
            }
        }
    }
    return 0;
}

static int run_product(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, SWEEP_LARGE + 1024, rank, shared));
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll < WEFT_BARRIER; coll++) {
        for (weft_dtype_t dtype = WEFT_I8; dtype <= WEFT_F8E5M2; dtype++) {
            weft_redop_t last = trial_reduces(coll) ? WEFT_SCALED : WEFT_SUM;
            for (weft_redop_t op = WEFT_SUM; op <= last; op++) {
                if (values_is_defined(dtype, op)) {
                    EXPECT_PASS(run_pair(&sweep, coll, dtype, op));
                }
            }
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

static bool next_of_all(struct sweep *sweep, weft_coll_t coll, size_t k, struct trial *trial_p)
{
    size_t roots = trial_is_rooted(coll) ? (size_t)sweep->ranks : 1, count = k / (2 * roots);
    if (count > LENS(sweep_counts) || (coll == WEFT_BARRIER && k > 8)) {
        return false;
    }
    *trial_p =
        sweep_draw(sweep, coll, count < LENS(sweep_counts) ? sweep_counts[count] : SWEEP_LARGE);
    trial_p->root = (int)(k / 2 % roots);
    trial_p->is_in_place = k % 2 != 0;
    trial_p->count = IS_SHORTENED && trial_p->count > 4097 ? 4097 : trial_p->count;
    return true;
}

static int run_algorithms(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, SWEEP_LARGE + 1024, rank, shared));
    EXPECT_PASS(sweep_algorithms(&sweep, next_of_all));
    desk_close(&sweep.desk);
    return 0;
}

static void run_all(messages_fn fn)
{
    const char *only = getenv("PRODUCT_RANKS");
    for (int ranks = 1; ranks <= RANKS_MOST; ranks += IS_SHORTENED ? 3 : 1) {
        if (only == NULL || strtol(only, NULL, 10) == ranks) {
            run_ways(PROCESSES, ranks, fn);
        }
    }
}

static void every_combination_is_right(void **state)
{
    (void)state;
    run_all(run_product);
}

static void every_algorithm_is_right_or_refuses_in_every_combination(void **state)
{
    (void)state;
    run_all(run_algorithms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_right),
        cmocka_unit_test(every_algorithm_is_right_or_refuses_in_every_combination),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
