/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft tune collectives`: what is measured (tune_coll_ranks.c), the calibration that it makes
 * (tune_coll_fit.c, pure), the command (tune_coll.c).
 */
#ifndef WEFT_CLI_TUNE_COLL_H
#define WEFT_CLI_TUNE_COLL_H

#include "cli.h"
#include "plan/model.h"

/* Messages between two ranks of this host. */
struct tune_coll_path {
    double half_s;    /* of a round trip of 8 bytes */
    double message_s; /* of one of many short ones in a row */
    double rate;      /* of long ones */
};

/* Zero: not measured. */
struct tune_coll_seen {
    struct tune_coll_path shm, tcp;
    double flag_s;
    double copy_rate, add_rate; /* of one core in its cache; add: of results */
    double write_rate, read_rate;
    double memory_rate;    /* of all cores: bytes read and written */
    uint32_t cores, crowd; /* ranks of the last two: more than cores */
    double crowd_tcp_s;    /* allreduce of 8 bytes by doubling */
    double crowd_shm_s;    /* by one shot */
};

/* Begins with the defaults. */
void weft_tune_coll_fit(const struct tune_coll_seen *seen,
                        struct weft_plan_calibration *calibration_p);

/* false: why (WEFT_CREW_TEXT_LEN) says it. */
bool weft_tune_coll_measure(struct tune_coll_seen *seen_p, char *why);

#endif
