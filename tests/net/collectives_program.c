/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a sweep over every collective and algorithm, wherever a launcher puts it: every result is
 * compared with a plain reference.
 *
 *   collectives_program HERE    as many ranks as this must be on its host; 0: any number
 *
 * Exit status 0: all right; else it says what is wrong.
 */
#include "unit/api/collectives_sweep.h"

int __wrap_harness_say(struct harness_shared *shared, int rank, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* There is no harness here. */
int __wrap_harness_say(struct harness_shared *shared, int rank, int status, const char *fmt, ...)
{
    va_list args;
    (void)shared;
    va_start(args, fmt);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    return status;
}

static bool next_count(struct sweep *sweep, weft_coll_t coll, size_t k, struct trial *trial_p)
{
    static const size_t counts[] = {0, 1, 17, 4097, 40000};
    if (k >= LENS(counts) || (coll == WEFT_BARRIER && k > 0)) {
        return false;
    }
    *trial_p = sweep_draw(sweep, coll, counts[k]);
    return true;
}

/* It is no builder of its own: every dtype and op, at every count, in place and not. */
static int sweep_hierarchical(struct sweep *sweep)
{
    struct trial trial;
    for (size_t i = 0; i < LENS(sweep_counts); i++) {
        for (size_t pair = 0; pair < 24; pair++) {
            trial = sweep_draw(sweep, WEFT_ALLREDUCE, sweep_counts[i]);
            trial.algorithm = "hierarchical";
            trial_pair(i * 24 + pair, &trial.dtype, &trial.op);
            trial.is_in_place = pair % 2 == 0;
            EXPECT_PASS(sweep_run_by(sweep, &trial));
        }
    }
    trial = sweep_draw(sweep, WEFT_ALLREDUCE, SWEEP_LARGE);
    trial.algorithm = "hierarchical";
    return sweep_run_by(sweep, &trial);
}

static int run(weft_comm_t comm, int rank, int here, struct harness_shared *shared)
{
    struct sweep sweep;
    int local_rank, local_ranks;
    EXPECT_OK(weft_comm_ranks(comm, &shared->ranks));
    EXPECT_OK(weft_comm_local(comm, &local_rank, &local_ranks));
    EXPECT(here == 0 || local_ranks == here);
    EXPECT_PASS(sweep_open(&sweep, comm, SWEEP_LARGE, rank, shared));
    EXPECT_PASS(sweep_hierarchical(&sweep));
    EXPECT_PASS(sweep_algorithms(&sweep, next_count));
    desk_close(&sweep.desk);
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

int main(int argc, char **argv)
{
    static struct harness_shared shared;
    weft_comm_t comm;
    int rank = -1, result;
    if (weft_init(NULL, &comm) != WEFT_OK || weft_comm_rank(comm, &rank) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    result = run(comm, rank, argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0, &shared);
    weft_comm_close(comm);
    return result == 0 ? 0 : 1;
}
