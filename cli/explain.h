/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft explain` and `weft sim`: the job that is looked at (explain_job.c), times and sizes in
 * words (explain_words.c), the steps of a plan as text (explain_steps.c) and as a picture (explain_svg.c).
 */
#ifndef WEFT_CLI_EXPLAIN_H
#define WEFT_CLI_EXPLAIN_H

#include "cli.h"
#include "plan/model.h"

/* ---- explain_job.c ---- */

/* What the options of both commands say. */
struct explain_wish {
    const char *topology;              /* SPEC or NULL */
    const char *path;                  /* "shm", "tcp" or NULL */
    int64_t ranks, root, cores, hosts; /* 0: not said (root: 0) */
    uint64_t bytes;
    const char *algo; /* or NULL */
    bool is_deterministic;
};

struct explain_job {
    struct weft_plan_facts facts;
    struct weft_plan_ask ask;
};

/* How many steps of a plan are run in the model: some seconds' worth. With more the estimate has to do. */
static inline uint64_t weft_explain_steps_max(const struct weft_plan_facts *facts)
{
    return facts->ranks <= 200000 ? 15000000 : 4000000; /* which no cache holds any more */
}

#define EXPLAIN_WHY_LEN 256
/* The operation's name, then the wish. false: why says what is wrong. */
bool weft_explain_job(const char *coll, const struct explain_wish *wish, struct explain_job *job_p,
                      char why[EXPLAIN_WHY_LEN]);
/* "8 ranks on 2 hosts (64 cores, 4 NICs of 100 Gbit/s, 5 us)" */
#define EXPLAIN_TEXT_LEN 192
const char *weft_explain_where(const struct weft_plan_facts *facts, char text[EXPLAIN_TEXT_LEN]);
void weft_explain_topology_json(struct weft_cli_json *json, const struct weft_plan_facts *facts);

/* ---- explain_words.c ---- */

#define EXPLAIN_WORD_LEN 32
const char *weft_explain_time(double seconds, char text[EXPLAIN_WORD_LEN]); /* "1.23 ms" */
const char *weft_explain_bytes(double bytes, char text[EXPLAIN_WORD_LEN]);  /* "512K", "1.5M" */
/* "80 % wire, 15 % latency": the largest parts of a time */
const char *weft_explain_parts(const struct weft_plan_parts *parts, double time_s,
                               char text[EXPLAIN_TEXT_LEN]);
void weft_explain_cost_json(struct weft_cli_json *json, const struct weft_plan_cost *cost);

/* ---- explain_steps.c, explain_svg.c ---- */

void weft_explain_steps(const struct weft_plan *plan, double bytes, uint32_t rounds_max, FILE *out);
void weft_explain_svg(const struct weft_plan *plan, double bytes, const char *title, FILE *out);

#endif
