/* SPDX-License-Identifier: Apache-2.0 */
/* An environment of the test's own, read as a launcher's. */
#ifndef WEFT_TESTS_LAUNCH_SUPPORT_H
#define WEFT_TESTS_LAUNCH_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/launch.h"

static struct weft_params params;
static struct weft_launch launch;

static inline const char *support_get(const char *name, void *context)
{
    (void)context;
    return getenv(name);
}

/* variables: "A=1 B=2"; values have no spaces */
static inline void support_setenv(const char *variables)
{
    char copy[1024];
    char *rest = copy;
    char *word;

    clearenv();
    assert_true(strlen(variables) < sizeof(copy));
    strncpy(copy, variables, sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    while ((word = strsep(&rest, " ")) != NULL) {
        char *value = strchr(word, '=');
        if (value != NULL) {
            *value = '\0';
            assert_int_equal(setenv(word, value + 1, 1), 0);
        }
    }
    assert_int_equal(weft_params_load(&params), WEFT_OK);
}

static inline weft_status_t detect(const char *variables)
{
    support_setenv(variables);
    memset(&launch, 0x5a, sizeof(launch)); /* outputs must be written, and only on success */
    return weft_launch_detect(&params, support_get, NULL, &launch);
}

/* Refused, and the text has both parts. */
#define assert_refused(variables, part, other)                                                     \
    do {                                                                                           \
        assert_int_equal(detect(variables), WEFT_ERR_INVALID);                                     \
        if (strstr(weft_error_text(), part) == NULL || strstr(weft_error_text(), other) == NULL) { \
            fail_msg("\"%s\" lacks \"%s\" or \"%s\"", weft_error_text(), part, other);             \
        }                                                                                          \
        assert_int_equal(launch.rank, 0x5a5a5a5a);                                                 \
    } while (0)

#define assert_rank(of_launcher, of_rank, of_ranks)                                                \
    do {                                                                                           \
        assert_int_equal(launch.launcher, of_launcher);                                            \
        assert_int_equal(launch.rank, of_rank);                                                    \
        assert_int_equal(launch.ranks, of_ranks);                                                  \
    } while (0)

#define TORCHRUN                                                                                   \
    "RANK=3 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node7 MASTER_PORT=29500 "                  \
    "TORCHELASTIC_RUN_ID=r1 "
#define TORCH_BY_HAND "RANK=3 WORLD_SIZE=8 MASTER_ADDR=node7 MASTER_PORT=29500 "
#define SLURM                                                                                      \
    "SLURM_PROCID=5 SLURM_NTASKS=16 SLURM_JOB_ID=4711 SLURM_STEP_ID=2 "                            \
    "SLURM_STEP_NODELIST=gpu[07-09,12],login1 "
#define OPENMPI                                                                                    \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 "                  \
    "PMIX_NAMESPACE=2029518849 "
#define HYDRA "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 "

#endif
