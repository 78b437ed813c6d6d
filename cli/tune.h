/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft tune`: the search (tune_search.c), which knows nothing of ranks; the two ranks that
 * measure one setting after the other (tune_rank.c); what is shown (tune_report.c) and kept
 * (tune_profile.c). tune.c joins them.
 */
#ifndef WEFT_CLI_TUNE_H
#define WEFT_CLI_TUNE_H

#include "cli.h"

int weft_cli_tune_collectives(int argc, char **argv); /* tune_coll.c */

/* ---- settings ---- */

enum tune_axis { TUNE_WINDOW, TUNE_CHUNK, TUNE_LANES, TUNE_STRATEGY, TUNE_AXES };

#define TUNE_VALUES_MAX 8
#define TUNE_POINTS_MAX 512
#define TUNE_SAMPLES_MAX 256 /* of one point; more say nothing new */

/* An index into the values of each axis. */
struct tune_setting {
    uint8_t at[TUNE_AXES];
};

struct tune_space {
    unsigned count[TUNE_AXES];
    uint32_t value[TUNE_AXES][TUNE_VALUES_MAX]; /* rising; strategy: enum tune_strategy */
    struct tune_setting usual; /* nearest to what holds without a profile: wins among equals */
};

enum tune_strategy { TUNE_SPLIT, TUNE_RR };

/* What `weft tune p2p` sweeps. */
void weft_tune_space(struct tune_space *space_p);
unsigned weft_tune_space_size(const struct tune_space *space);
const char *weft_tune_strategy_name(uint32_t strategy);

/* ---- points: settings that were tried ---- */

struct tune_point {
    struct tune_setting setting;
    unsigned sample_count;
    float samples[TUNE_SAMPLES_MAX]; /* GB/s */
    double gbs;                      /* their median */
    double noise;                    /* how far off that may be, as a part of it */
    bool is_hopeless;                /* given up after the first samples */
};

/* Median and noise over the samples. */
void weft_tune_point_rate(struct tune_point *point);

struct tune_ref {
    struct tune_point *point; /* lent */
};
void weft_tune_sort(struct tune_ref *list, unsigned count); /* fastest first */

/* ---- the search (tune_search.c) ---- */

/* Measures one setting for about so long and adds samples to the point; stops early when they are
 * below hopeless_gbs. false: it failed, which ends the search. */
typedef bool (*tune_measure_fn)(void *context, const struct tune_setting *setting, uint64_t ms,
                                double hopeless_gbs, struct tune_point *point);
typedef uint64_t (*tune_clock_fn)(void *context); /* ns */

struct tune_search {
    const struct tune_space *space; /* lent */
    uint64_t budget_ms;             /* for all of it */
    bool is_exhaustive;             /* every setting, all equally long */
    tune_measure_fn measure;
    tune_clock_fn clock;
    void *context; /* lent */
    /* what comes out */
    struct tune_point *point; /* owned: TUNE_POINTS_MAX */
    unsigned count;
    unsigned best; /* index of the sweet spot */
    unsigned top;  /* index of the highest rate; within the noise of it is the sweet spot */
    double seconds;
    bool is_cut; /* the budget ended before the refinement did */
    /* inside */
    uint64_t began_ns;
};

bool weft_tune_search(struct tune_search *search);
void weft_tune_search_close(struct tune_search *search);
/* NULL: not tried */
struct tune_point *weft_tune_find(const struct tune_search *search,
                                  const struct tune_setting *setting);
/* Part of the budget that is used, 0 … 1. */
double weft_tune_progress(const struct tune_search *search);

/* ---- two ranks (tune_rank.c) ---- */

#define TUNE_TEXT_LEN 640

struct tune_pair; /* two ranks: this one and the other, forked here or started by a launcher */

struct tune_pair_spec {
    size_t bytes;
    unsigned inflight;
};

/* Under a launcher (WEFT_RANK, …, SLURM_PROCID) joins it, otherwise forks the other rank. Returns NULL
 * with the reason in why. */
struct tune_pair *weft_tune_pair_open(const struct tune_pair_spec *spec, char why[TUNE_TEXT_LEN]);
int weft_tune_pair_rank(const struct tune_pair *pair); /* 0 searches, 1 serves */
bool weft_tune_pair_is_local(const struct tune_pair *pair);
const char *weft_tune_pair_host(const struct tune_pair *pair, int rank);
/* Rank 0: a tune_measure_fn with the values instead of a setting; what went wrong is in why. */
struct tune_values {
    uint32_t value[TUNE_AXES];
    bool is_usual; /* what holds without a profile; value does not count */
};
bool weft_tune_pair_measure(struct tune_pair *pair, const struct tune_values *values, uint64_t ms,
                            double hopeless_gbs, struct tune_point *point);
/* Rank 1: measures until rank 0 says the end; *text_p is then what rank 0 had to say (a profile's
 * settings, for this host; "" nothing), owned by the pair. */
bool weft_tune_pair_serve(struct tune_pair *pair, const char **text_p);
/* Rank 0: the end. text: at most 4 KiB. */
bool weft_tune_pair_finish(struct tune_pair *pair, const char *text);
const char *weft_tune_pair_why(const struct tune_pair *pair);
void weft_tune_pair_close(struct tune_pair *pair); /* NULL is fine */

/* ---- the profile (tune_profile.c) ---- */

/* The lines that set something, and comments on how they were found: the same on every host. */
void weft_tune_profile_body(const struct tune_values *values, const char *how, char *text,
                            size_t room);
/* Is there a folder for it, or is it our own place, which is made? Asked before anything is measured. NULL is
 * fine. false: why. */
bool weft_tune_profile_has_folder(const char *path, char why[TUNE_TEXT_LEN]);
/* Writes head (this machine) and body to path, whole or not at all; folders are made in our own place. false:
 * why. */
bool weft_tune_profile_write(const char *path, const char *body, char why[TUNE_TEXT_LEN]);

/* ---- showing it (tune_report.c) ---- */

struct tune_report {
    const struct tune_search *search; /* lent */
    const struct tune_point *usual;   /* lent: without a profile; NULL: unknown */
    const char *hosts[2];             /* lent */
    size_t bytes;
    unsigned inflight;
    const char *profile; /* lent: where it was written; NULL: nowhere */
};

void weft_tune_print_table(const struct tune_report *report);
bool weft_tune_print_json(const struct tune_report *report);
void weft_tune_values(const struct tune_space *space, const struct tune_setting *setting,
                      struct tune_values *values_p);

#endif
