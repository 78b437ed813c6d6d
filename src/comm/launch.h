/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to comm: what the launcher's environment says about this job. Reading it is pure
 * (variables come through a function), so that every launcher can be tested without being there.
 */
#ifndef WEFT_COMM_LAUNCH_H
#define WEFT_COMM_LAUNCH_H

#include "base/base.h"

#define WEFT_LAUNCH_PORTS 16
#define WEFT_LAUNCH_HOST_LEN 256

enum weft_launcher {
    WEFT_LAUNCHER_OWN, /* WEFT_RANK, WEFT_RANKS, …: weft run, or by hand */
    WEFT_LAUNCHER_TORCHRUN,
    WEFT_LAUNCHER_SLURM,
    WEFT_LAUNCHER_OPENMPI,
    WEFT_LAUNCHER_PMI, /* MPICH and its kin */
};

struct weft_launch {
    enum weft_launcher launcher;
    int rank, ranks;
    int local_ranks;                 /* -1: not said */
    bool is_one_host;                /* root found by its abstract socket, no address needed */
    char host[WEFT_LAUNCH_HOST_LEN]; /* name or address of the root; "" with is_one_host or an id */
    /* candidates in order; the root takes the first it can bind, ranks tell them apart by the job
     * id in the challenge */
    uint16_t port[WEFT_LAUNCH_PORTS];
    unsigned port_count;
    /* what the job id is made from: launcher, its job and step ids, root; the same on all ranks,
     * different for other jobs */
    char job_name[WEFT_PARAM_TEXT_LEN];
    const char *id_text; /* WEFT_ID, lent from params; NULL: none */
};

typedef const char *(*weft_launch_getenv_fn)(const char *name, void *context);

/* ERR_INVALID: says which variable is missing, or which two contradict each other and how. */
weft_status_t weft_launch_detect(const struct weft_params *params, weft_launch_getenv_fn get,
                                 void *context, struct weft_launch *launch_p);
/* Does anybody say that this process is a rank? Also true when that is said wrongly: detect says how. */
bool weft_launch_is_there(const struct weft_params *params, weft_launch_getenv_fn get,
                          void *context);
const char *weft_launcher_name(enum weft_launcher launcher);

/* Slurm: first host of a node list such as "gpu[07-09,12],login1" → "gpu07". ERR_INVALID. */
weft_status_t weft_launch_first_host(const char *nodelist, char *host, size_t room);

/* The job id (from the job's name) and the key of its handshakes (the secret; NULL: none, and the key
 * is well known). Here only, because `weft run` needs the same to open rank 0's listener.
 * ERR_SYSTEM. */
weft_status_t weft_comm_job_key(const uint8_t *secret, const char *job_name, uint8_t job[16],
                                uint8_t key[WEFT_SECRET_LEN]);

/* Reads the secret named by WEFT_SECRET_FD or WEFT_SECRET_FILE straight into `secret` (vault
 * memory, see weft_secret_take). *is_found_p false: the job has none. WEFT_SECRET_FD: 32 raw bytes
 * with pread, so that ranks may share the descriptor; it is closed after the first reading and the
 * secret is kept for later starts of this process. File: must be regular, owned by us or root, no
 * group or other bits (mode 0600 or 0400); content is 32 raw bytes, or text of at least 16
 * characters that is hashed; trailing newline ignored. ERR_INVALID names the file, its mode and the
 * chmod that mends it. */
weft_status_t weft_launch_secret(const struct weft_params *params, uint8_t secret[WEFT_SECRET_LEN],
                                 bool *is_found_p);

/* ---- between launch.c and launch_root.c ---- */

/* A launcher's variable as a number from 0; -1: not set. ERR_INVALID with the variable and its
 * value. */
weft_status_t weft_launch_number(weft_launch_getenv_fn get, void *context, const char *name,
                                 int *number_p);
/* Given launcher, rank, ranks and local_ranks: fills is_one_host, host, port, job_name, id_text. */
weft_status_t weft_launch_root(const struct weft_params *params, weft_launch_getenv_fn get,
                               void *context, struct weft_launch *launch);

#endif
