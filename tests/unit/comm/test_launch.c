/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_support.h"

/* ---- each launcher's own set ---- */

static void own_variables_give_the_rank(void **state)
{
    (void)state;
    assert_int_equal(detect("WEFT_RANK=2 WEFT_RANKS=4 WEFT_ROOT=h:1 WEFT_LOCAL_RANKS=2"), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_OWN, 2, 4);
    assert_int_equal(launch.local_ranks, 2);
}

static void torchrun_gives_the_rank(void **state)
{
    (void)state;
    assert_int_equal(detect(TORCHRUN), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_TORCHRUN, 3, 8);
    assert_int_equal(launch.local_ranks, 4);
}

static void slurm_gives_the_rank(void **state)
{
    (void)state;
    assert_int_equal(detect(SLURM), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_SLURM, 5, 16);
    assert_int_equal(launch.local_ranks, -1);
}

static void slurm_counts_the_tasks_of_the_step_before_those_of_the_job(void **state)
{
    (void)state;
    assert_int_equal(detect(SLURM "SLURM_STEP_NUM_TASKS=6"), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_SLURM, 5, 6);
}

static void slurm_on_one_node_says_how_many_are_local(void **state)
{
    (void)state;
    assert_int_equal(detect(SLURM "SLURM_NNODES=1"), WEFT_OK);
    assert_int_equal(launch.local_ranks, 16);
    assert_int_equal(detect(SLURM "SLURM_NNODES=1 SLURM_STEP_NUM_NODES=2"), WEFT_OK);
    assert_int_equal(launch.local_ranks, -1);
}

static void openmpi_gives_the_rank(void **state)
{
    (void)state;
    assert_int_equal(detect(OPENMPI), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_OPENMPI, 1, 2);
    assert_int_equal(launch.local_ranks, 2);
}

static void pmi_gives_the_rank(void **state)
{
    (void)state;
    assert_int_equal(detect(HYDRA), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_PMI, 1, 2);
    assert_int_equal(launch.local_ranks, 2);
}

static void no_launcher_is_an_error_that_says_what_to_do(void **state)
{
    (void)state;
    assert_refused("HOME=/", "WEFT_RANK and WEFT_RANKS", "weft run");
}

/* ---- sets that are not whole, or not numbers ---- */

static void half_a_set_is_refused(void **state)
{
    (void)state;
    assert_refused("WEFT_RANK=2", "WEFT_RANK=2 is set", "WEFT_RANKS is not");
    assert_refused("WEFT_RANKS=2", "WEFT_RANKS=2 is set", "WEFT_RANK is not");
    assert_refused("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE");
    assert_refused("PMI_SIZE=3", "PMI_SIZE=3", "PMI_RANK");
    assert_refused("TORCHELASTIC_RUN_ID=x RANK=0", "RANK=0", "WORLD_SIZE");
    assert_refused("SLURM_PROCID=1 SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS");
}

static void words_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    assert_refused("PMI_RANK=one PMI_SIZE=2", "PMI_RANK=one", "number");
    assert_refused("PMI_RANK=1 PMI_SIZE=2x", "PMI_SIZE=2x", "number");
    assert_refused("PMI_RANK=-1 PMI_SIZE=2", "PMI_RANK=-1", "number");
    assert_refused("PMI_RANK=0 PMI_SIZE=99999999999", "PMI_SIZE=99999999999", "number");
}

static void rank_beyond_ranks_is_refused_with_both(void **state)
{
    (void)state;
    assert_refused("WEFT_RANK=4 WEFT_RANKS=4", "WEFT_RANK=4", "WEFT_RANKS=4");
    assert_refused("OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=9",
                   "OMPI_COMM_WORLD_SIZE=2");
}

static void no_ranks_at_all_is_refused(void **state)
{
    (void)state;
    assert_refused("WEFT_RANK=0 WEFT_RANKS=0", "WEFT_RANKS=0", "at least one");
}

static void more_local_ranks_than_ranks_are_refused(void **state)
{
    (void)state;
    assert_refused("WEFT_RANK=0 WEFT_RANKS=2 WEFT_LOCAL_RANKS=3", "WEFT_LOCAL_RANKS=3",
                   "WEFT_RANKS=2");
    assert_refused(SLURM "WEFT_LOCAL_RANKS=17", "WEFT_LOCAL_RANKS=17", "SLURM_NTASKS=16");
}

static void local_ranks_that_contradict_the_launcher_are_refused(void **state)
{
    (void)state;
    assert_refused(OPENMPI "WEFT_LOCAL_RANKS=1", "WEFT_LOCAL_RANKS=1",
                   "OMPI_COMM_WORLD_LOCAL_SIZE=2");
}

static void a_word_rank_alone_is_not_torch(void **state)
{
    (void)state;
    assert_int_equal(detect(HYDRA "RANK=7"), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_PMI, 1, 2);
    assert_int_equal(detect(HYDRA "RANK=seven WORLD_SIZE=many"), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_PMI, 1, 2);
}

static void a_batch_script_is_not_a_rank(void **state)
{
    (void)state;
    assert_refused("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=1", "SLURM_PROCID", "srun");
    assert_refused("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=4294967291", "SLURM_PROCID",
                   "srun");
}

/* ---- more than one set: the table in launch.c, row by row ---- */

static void own_by_hand_contradicting_a_launcher_is_refused(void **state)
{
    (void)state;
    assert_refused("WEFT_RANK=0 WEFT_RANKS=2 WEFT_LOCAL_RANKS=2 " OPENMPI, "WEFT_RANK=0",
                   "OMPI_COMM_WORLD_RANK=1");
    assert_refused("WEFT_RANK=1 WEFT_RANKS=3 WEFT_LOCAL_RANKS=3 " HYDRA, "WEFT_RANKS=3",
                   "PMI_SIZE=2");
    assert_refused("WEFT_RANK=1 WEFT_RANKS=16 WEFT_ROOT=h:1 " SLURM, "WEFT_RANK=1",
                   "SLURM_PROCID=5");
    assert_refused("WEFT_RANK=3 WEFT_RANKS=9 WEFT_ROOT=h:1 " TORCHRUN, "WEFT_RANKS=9",
                   "WORLD_SIZE=8");
}

static void own_agreeing_with_a_launcher_speaks(void **state)
{
    (void)state;
    assert_int_equal(detect("WEFT_RANK=1 WEFT_RANKS=2 WEFT_ROOT=h:1 " OPENMPI), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_OWN, 1, 2);
}

static void own_is_compared_with_the_inner_launcher_only(void **state)
{
    (void)state;
    assert_int_equal(detect("WEFT_RANK=3 WEFT_RANKS=8 WEFT_ROOT=h:1 " TORCHRUN SLURM), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_OWN, 3, 8);
}

#define BY_WEFT_RUN "WEFT_RANK=1 WEFT_RANKS=4 WEFT_LOCAL_RANKS=4 WEFT_SECRET_FD=3 WEFT_JOB=run-1 "

static void weft_run_inside_a_slurm_step_speaks(void **state)
{
    (void)state;
    assert_int_equal(detect(BY_WEFT_RUN SLURM), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_OWN, 1, 4);
}

static void weft_run_around_or_inside_mpirun_is_refused(void **state)
{
    (void)state;
    assert_refused(BY_WEFT_RUN OPENMPI, "WEFT_RANKS=4", "OMPI_COMM_WORLD_SIZE=2");
    assert_refused(BY_WEFT_RUN TORCHRUN, "WEFT_RANK=1", "RANK=3");
}

static void torchrun_speaks_over_the_sets_its_agent_inherited(void **state)
{
    (void)state;
    assert_int_equal(detect(TORCHRUN SLURM), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_TORCHRUN, 3, 8);
    assert_int_equal(detect(TORCHRUN OPENMPI HYDRA), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_TORCHRUN, 3, 8);
}

static void rank_set_by_hand_must_agree_with_the_launcher(void **state)
{
    (void)state;
    assert_refused(TORCH_BY_HAND SLURM, "RANK=3", "SLURM_PROCID=5");
    assert_refused(TORCH_BY_HAND OPENMPI, "RANK=3", "OMPI_COMM_WORLD_RANK=1");
    assert_refused(TORCH_BY_HAND "PMI_RANK=3 PMI_SIZE=2222", "WORLD_SIZE=8", "PMI_SIZE=2222");
    assert_int_equal(detect(TORCH_BY_HAND "SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_STEP_ID=0"),
                     WEFT_OK);
    assert_rank(WEFT_LAUNCHER_TORCHRUN, 3, 8);
}

/* Rank 0 of mpirun agrees with the batch script's SLURM_PROCID=0 by chance, the others do not: all
 * must choose alike. */
static void mpirun_in_a_batch_job_speaks_on_every_rank(void **state)
{
    (void)state;
#define BATCH "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=a,b "
    for (int rank = 0; rank < 2; rank++) {
        char variables[256];
        snprintf(variables, sizeof(variables),
                 BATCH
                 "OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                 rank);
        assert_int_equal(detect(variables), WEFT_OK);
        assert_rank(WEFT_LAUNCHER_OPENMPI, rank, 2);
        snprintf(variables, sizeof(variables), BATCH "PMI_RANK=%d PMI_SIZE=2 MPI_LOCALNRANKS=2",
                 rank);
        assert_int_equal(detect(variables), WEFT_OK);
        assert_rank(WEFT_LAUNCHER_PMI, rank, 2);
    }
}

static void two_mpi_launchers_that_disagree_are_refused(void **state)
{
    (void)state;
    assert_refused(OPENMPI "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2", "OMPI_COMM_WORLD_RANK=1",
                   "PMI_RANK=0");
}

static void pmi_of_srun_leaves_slurm_to_speak_and_must_agree(void **state)
{
    (void)state;
    assert_int_equal(detect(SLURM "PMI_RANK=5 PMI_SIZE=16"), WEFT_OK);
    assert_rank(WEFT_LAUNCHER_SLURM, 5, 16);
    assert_refused(SLURM "PMI_RANK=4 PMI_SIZE=16", "SLURM_PROCID=5", "PMI_RANK=4");
}

static void launchers_have_names(void **state)
{
    (void)state;
    assert_string_equal(weft_launcher_name(WEFT_LAUNCHER_OWN), "own");
    assert_string_equal(weft_launcher_name(WEFT_LAUNCHER_PMI), "pmi");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_variables_give_the_rank),
        cmocka_unit_test(torchrun_gives_the_rank),
        cmocka_unit_test(slurm_gives_the_rank),
        cmocka_unit_test(slurm_counts_the_tasks_of_the_step_before_those_of_the_job),
        cmocka_unit_test(slurm_on_one_node_says_how_many_are_local),
        cmocka_unit_test(openmpi_gives_the_rank),
        cmocka_unit_test(pmi_gives_the_rank),
        cmocka_unit_test(no_launcher_is_an_error_that_says_what_to_do),
        cmocka_unit_test(half_a_set_is_refused),
        cmocka_unit_test(words_that_are_no_numbers_are_refused),
        cmocka_unit_test(rank_beyond_ranks_is_refused_with_both),
        cmocka_unit_test(no_ranks_at_all_is_refused),
        cmocka_unit_test(more_local_ranks_than_ranks_are_refused),
        cmocka_unit_test(local_ranks_that_contradict_the_launcher_are_refused),
        cmocka_unit_test(a_word_rank_alone_is_not_torch),
        cmocka_unit_test(a_batch_script_is_not_a_rank),
        cmocka_unit_test(own_by_hand_contradicting_a_launcher_is_refused),
        cmocka_unit_test(own_agreeing_with_a_launcher_speaks),
        cmocka_unit_test(own_is_compared_with_the_inner_launcher_only),
        cmocka_unit_test(weft_run_inside_a_slurm_step_speaks),
        cmocka_unit_test(weft_run_around_or_inside_mpirun_is_refused),
        cmocka_unit_test(torchrun_speaks_over_the_sets_its_agent_inherited),
        cmocka_unit_test(rank_set_by_hand_must_agree_with_the_launcher),
        cmocka_unit_test(mpirun_in_a_batch_job_speaks_on_every_rank),
        cmocka_unit_test(two_mpi_launchers_that_disagree_are_refused),
        cmocka_unit_test(pmi_of_srun_leaves_slurm_to_speak_and_must_agree),
        cmocka_unit_test(launchers_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
