/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the harness: the memory that the test and its ranks share. */
#ifndef WEFT_TESTS_HARNESS_PRIVATE_H
#define WEFT_TESTS_HARNESS_PRIVATE_H

#include "harness/harness.h"

struct harness_map {
    struct harness_shared shared; /* first: harness_say() finds the results behind it */
    struct harness_result result[];
};

struct harness {
    int ranks;
    bool is_threads;
    harness_fn fn;
    void *arg;               /* lent */
    struct harness_map *map; /* owned mapping */
    size_t map_len;
    int processes; /* ranks, or 1 */
    pid_t *pid;    /* owned, per process; 0: ended */
    int *pidfd;    /* owned, per process; -1: ended */
    char error[1024];
};

/* The life of one forked process: as one rank, or as all of them in threads (rank -1). */
_Noreturn void harness_be_rank(struct harness *harness, int rank, pid_t parent);

#endif
