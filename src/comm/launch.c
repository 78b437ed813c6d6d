/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who am I, of how many: the launcher's variables. More than one launcher may have left its set,
 * since children inherit: srun starts torchrun's agents, a batch script calls mpirun, torchrun runs
 * under mpirun. The rule must give the same launcher on every rank of a job, so it looks at which
 * sets are there, never at whether this rank's numbers happen to agree.
 *
 *   sets that are there, first match      speaks    must agree with it in rank and ranks
 *   ------------------------------------  --------  --------------------------------------------
 *   WEFT_RANK, WEFT_RANKS and             own       torchrun, Open MPI, PMI (which of the two is
 *     WEFT_SECRET_FD: by weft run                     the inner one cannot be told); not Slurm,
 *                                                     which is always the outer one
 *   WEFT_RANK, WEFT_RANKS: by hand        own       whichever below would speak without them
 *   RANK, WORLD_SIZE and                  torchrun  nobody: the other sets are its agent's
 *     TORCHELASTIC_RUN_ID: by torchrun
 *   RANK, WORLD_SIZE and MASTER_ADDR:     torchrun  Open MPI, PMI and Slurm: scripts copy RANK
 *     by hand                                         from these
 *   OMPI_COMM_WORLD_RANK, …_SIZE          Open MPI  PMI of Hydra; not Slurm: mpirun in a batch job
 *   PMI_RANK, PMI_SIZE with               PMI       nobody: as above
 *     MPI_LOCALNRANKS: by Hydra
 *   SLURM_PROCID, SLURM_STEP_ID, …        Slurm     PMI_RANK, PMI_SIZE without MPI_LOCALNRANKS:
 *                                                     srun --mpi=pmi2 sets them
 *   PMI_RANK, PMI_SIZE alone              PMI
 *
 * Slurm's set counts only inside a step: a batch script and an interactive shell have
 * SLURM_PROCID=0 too, without being a rank. A set with rank but without ranks, or the reverse, is
 * an error.
 */
#include "comm/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one launcher said. Names are kept because errors speak of variables. */
struct set {
    bool is_there;
    bool is_marked; /* certainly of the innermost launcher: see the table */
    enum weft_launcher launcher;
    const char *rank_name, *ranks_name, *local_name;
    int rank, ranks, local_ranks; /* local_ranks -1: not said */
};

struct sets {
    struct set own, torch, openmpi, pmi, slurm;
};

struct reader {
    weft_launch_getenv_fn get;
    void *context;
};

const char *weft_launcher_name(enum weft_launcher launcher)
{
    static const char *const names[] = {
        [WEFT_LAUNCHER_OWN] = "own",     [WEFT_LAUNCHER_TORCHRUN] = "torchrun",
        [WEFT_LAUNCHER_SLURM] = "slurm", [WEFT_LAUNCHER_OPENMPI] = "openmpi",
        [WEFT_LAUNCHER_PMI] = "pmi",
    };

    return names[launcher];
}

static bool is_set(const struct reader *reader, const char *name)
{
    const char *value = reader->get(name, reader->context);

    return value != NULL && value[0] != '\0';
}

weft_status_t weft_launch_number(weft_launch_getenv_fn get, void *context, const char *name,
                                 int *number_p)
{
    const char *text = get(name, context);
    int64_t number = 0;

    if (text == NULL || text[0] == '\0') {
        *number_p = -1;
        return WEFT_OK;
    }
    for (const char *at = text; *at != '\0'; at++) {
        number = number * 10 + (*at - '0');
        if (*at < '0' || *at > '9' || number > INT32_MAX) {
            return weft_fail(WEFT_ERR_INVALID, "%s=%s: expected a number from 0 to %d", name, text,
                             INT32_MAX);
        }
    }
    *number_p = (int)number;
    return WEFT_OK;
}

/* Both or none, ranks ≥ 1, rank < ranks, local_ranks within. */
static weft_status_t check_set(struct set *set)
{
    if (set->rank < 0 && set->ranks < 0) {
        return WEFT_OK;
    }
    if (set->rank < 0 || set->ranks < 0) {
        bool has_rank = set->rank >= 0;
        return weft_fail(WEFT_ERR_INVALID, "%s=%d is set, but %s is not: set both or none",
                         has_rank ? set->rank_name : set->ranks_name,
                         has_rank ? set->rank : set->ranks,
                         has_rank ? set->ranks_name : set->rank_name);
    }
    if (set->ranks < 1) {
        return weft_fail(WEFT_ERR_INVALID, "%s=%d: a job has at least one rank", set->ranks_name,
                         set->ranks);
    }
    if (set->rank >= set->ranks) {
        return weft_fail(WEFT_ERR_INVALID, "%s=%d, but %s=%d: ranks count from 0 to %d",
                         set->rank_name, set->rank, set->ranks_name, set->ranks, set->ranks - 1);
    }
    if (set->local_ranks == 0 || set->local_ranks > set->ranks) {
        return weft_fail(WEFT_ERR_INVALID, "%s=%d, but %s=%d: this host has from 1 to %d of them",
                         set->local_name, set->local_ranks, set->ranks_name, set->ranks,
                         set->ranks);
    }
    set->is_there = true;
    return WEFT_OK;
}

static weft_status_t read_set(const struct reader *reader, struct set *set)
{
    weft_status_t status;

    status = weft_launch_number(reader->get, reader->context, set->rank_name, &set->rank);
    if (status == WEFT_OK) {
        status = weft_launch_number(reader->get, reader->context, set->ranks_name, &set->ranks);
    }
    set->local_ranks = -1;
    if (status == WEFT_OK && set->local_name != NULL) {
        status =
            weft_launch_number(reader->get, reader->context, set->local_name, &set->local_ranks);
    }
    return status == WEFT_OK ? check_set(set) : status;
}

/* Our own come through params, which have checked that they are numbers. */
static weft_status_t read_own(const struct weft_params *params, struct set *set)
{
    *set = (struct set){
        .launcher = WEFT_LAUNCHER_OWN,
        .is_marked = params->number[WEFT_PARAM_SECRET_FD] >= 0,
        .rank_name = "WEFT_RANK",
        .ranks_name = "WEFT_RANKS",
        .local_name = "WEFT_LOCAL_RANKS",
        .rank = (int)params->number[WEFT_PARAM_RANK],
        .ranks = (int)params->number[WEFT_PARAM_RANKS],
        .local_ranks = (int)params->number[WEFT_PARAM_LOCAL_RANKS],
    };
    return check_set(set);
}

static weft_status_t read_torch(const struct reader *reader, struct set *set)
{
    *set = (struct set){
        .launcher = WEFT_LAUNCHER_TORCHRUN,
        .is_marked = is_set(reader, "TORCHELASTIC_RUN_ID"),
        .rank_name = "RANK",
        .ranks_name = "WORLD_SIZE",
        .local_name = "LOCAL_WORLD_SIZE",
    };
    /* RANK and WORLD_SIZE are words anybody may use; only together with these they mean torch */
    bool is_whole =
        is_set(reader, "RANK") && is_set(reader, "WORLD_SIZE") && is_set(reader, "MASTER_ADDR");
    if (!set->is_marked && !is_whole) {
        return WEFT_OK;
    }
    return read_set(reader, set);
}

static bool is_in_slurm_step(const struct reader *reader)
{
    const char *step = reader->get("SLURM_STEP_ID", reader->context);

    if (step == NULL || step[0] == '\0') {
        return false;
    }
    /* the batch script's, the interactive shell's and their kin's steps are numbered from the top
     */
    return strtoull(step, NULL, 10) < UINT64_C(0xfffffff0);
}

static weft_status_t read_slurm(const struct reader *reader, struct set *set)
{
    int nodes;
    bool has_step_tasks = is_set(reader, "SLURM_STEP_NUM_TASKS");
    const char *nodes_name =
        is_set(reader, "SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";

    *set = (struct set){
        .launcher = WEFT_LAUNCHER_SLURM,
        .rank_name = "SLURM_PROCID",
        .ranks_name = has_step_tasks ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
    };
    if (!is_in_slurm_step(reader)) {
        return WEFT_OK;
    }
    weft_status_t status = read_set(reader, set);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_launch_number(reader->get, reader->context, nodes_name, &nodes);
    if (status == WEFT_OK && nodes == 1) {
        set->local_ranks = set->ranks;
    }
    return status;
}

static weft_status_t read_sets(const struct weft_params *params, const struct reader *reader,
                               struct sets *sets)
{
    weft_status_t status = read_own(params, &sets->own);

    if (status == WEFT_OK) {
        status = read_torch(reader, &sets->torch);
    }
    if (status == WEFT_OK) {
        sets->openmpi = (struct set){.launcher = WEFT_LAUNCHER_OPENMPI,
                                     .rank_name = "OMPI_COMM_WORLD_RANK",
                                     .ranks_name = "OMPI_COMM_WORLD_SIZE",
                                     .local_name = "OMPI_COMM_WORLD_LOCAL_SIZE"};
        status = read_set(reader, &sets->openmpi);
    }
    if (status == WEFT_OK) {
        sets->pmi = (struct set){.launcher = WEFT_LAUNCHER_PMI,
                                 .is_marked = is_set(reader, "MPI_LOCALNRANKS"),
                                 .rank_name = "PMI_RANK",
                                 .ranks_name = "PMI_SIZE",
                                 .local_name = "MPI_LOCALNRANKS"};
        status = read_set(reader, &sets->pmi);
    }
    return status == WEFT_OK ? read_slurm(reader, &sets->slurm) : status;
}

static weft_status_t compare(const struct set *speaker, const struct set *other)
{
    if (!other->is_there) {
        return WEFT_OK;
    }
    if (speaker->rank != other->rank) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "%s=%d contradicts %s=%d: unset the set of variables that is not this job's",
            speaker->rank_name, speaker->rank, other->rank_name, other->rank);
    }
    if (speaker->ranks != other->ranks) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "%s=%d contradicts %s=%d: unset the set of variables that is not this job's",
            speaker->ranks_name, speaker->ranks, other->ranks_name, other->ranks);
    }
    return WEFT_OK;
}

/* Who speaks without own variables; NULL: nobody. */
static const struct set *pick_foreign(const struct sets *sets)
{
    bool is_pmi_of_srun = !sets->pmi.is_marked && sets->slurm.is_there;

    if (sets->torch.is_there) {
        return &sets->torch;
    }
    if (sets->openmpi.is_there) {
        return &sets->openmpi;
    }
    if (sets->pmi.is_there && !is_pmi_of_srun) {
        return &sets->pmi;
    }
    return sets->slurm.is_there ? &sets->slurm : NULL;
}

static weft_status_t check_foreign(const struct sets *sets, const struct set *speaker)
{
    weft_status_t status = WEFT_OK;

    if (speaker == &sets->torch && !speaker->is_marked) {
        const struct set *others[] = {&sets->openmpi, &sets->pmi, &sets->slurm};
        for (size_t i = 0; i < WEFT_COUNT_OF(others) && status == WEFT_OK; i++) {
            status = compare(speaker, others[i]);
        }
    } else if (speaker == &sets->openmpi && sets->pmi.is_marked) {
        status = compare(speaker, &sets->pmi);
    } else if (speaker == &sets->slurm) {
        status = compare(speaker, &sets->pmi);
    }
    return status;
}

/* NULL: ERR_INVALID, said. */
static const struct set *choose(const struct sets *sets, const struct reader *reader)
{
    const struct set *own = &sets->own;
    const struct set *foreign = pick_foreign(sets);

    if (own->is_there) {
        bool is_compared = foreign != NULL && !(own->is_marked && foreign == &sets->slurm);
        return !is_compared || compare(own, foreign) == WEFT_OK ? own : NULL;
    }
    if (foreign == NULL) {
        weft_fail(
            WEFT_ERR_INVALID,
            "found no rank: start with weft run, torchrun, srun or mpirun, or set WEFT_RANK and "
            "WEFT_RANKS%s",
            is_set(reader, "SLURM_PROCID")
                ? " (SLURM_PROCID is set, but this is not a step: use srun)"
                : "");
        return NULL;
    }
    return check_foreign(sets, foreign) == WEFT_OK ? foreign : NULL;
}

/* WEFT_LOCAL_RANKS may add what the launcher does not say, not contradict it. */
static weft_status_t merge_local(const struct weft_params *params, const struct set *set,
                                 int *local_ranks_p)
{
    int64_t own = params->number[WEFT_PARAM_LOCAL_RANKS];

    if (own < 0) {
        *local_ranks_p = set->local_ranks;
        return WEFT_OK;
    }
    if (set->local_ranks >= 0 && set->local_ranks != own) {
        return weft_fail(
            WEFT_ERR_INVALID, "WEFT_LOCAL_RANKS=%lld contradicts %s=%d: unset it", (long long)own,
            set->local_name != NULL ? set->local_name : set->ranks_name, set->local_ranks);
    }
    if (own < 1 || own > set->ranks) {
        return weft_fail(WEFT_ERR_INVALID,
                         "WEFT_LOCAL_RANKS=%lld, but %s=%d: this host has from 1 to %d of them",
                         (long long)own, set->ranks_name, set->ranks, set->ranks);
    }
    *local_ranks_p = (int)own;
    return WEFT_OK;
}

bool weft_launch_is_there(const struct weft_params *params, weft_launch_getenv_fn get,
                          void *context)
{
    const struct reader reader = {get, context};
    struct sets sets = {0};
    return read_sets(params, &reader, &sets) != WEFT_OK || sets.own.is_there ||
           pick_foreign(&sets) != NULL;
}

weft_status_t weft_launch_detect(const struct weft_params *params, weft_launch_getenv_fn get,
                                 void *context, struct weft_launch *launch_p)
{
    const struct reader reader = {get, context};
    struct weft_launch launch = {0};
    struct sets sets = {0};

    weft_status_t status = read_sets(params, &reader, &sets);
    if (status != WEFT_OK) {
        return status;
    }
    const struct set *speaker = choose(&sets, &reader);
    if (speaker == NULL) {
        return WEFT_ERR_INVALID;
    }
    launch.launcher = speaker->launcher;
    launch.rank = speaker->rank;
    launch.ranks = speaker->ranks;
    status = merge_local(params, speaker, &launch.local_ranks);
    if (status == WEFT_OK) {
        status = weft_launch_root(params, get, context, &launch);
    }
    if (status == WEFT_OK) {
        *launch_p = launch;
    }
    return status;
}
