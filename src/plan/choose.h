/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the chooser: choose.c (what decides), choose_try.c (one builder), choose_predict.c (its time),
 * choose_name.c (WEFT_ALGO), choose_shm.c (the rule for shared memory), choose_hierarchical.c.
 */
#ifndef WEFT_PLAN_CHOOSE_H
#define WEFT_PLAN_CHOOSE_H

#include "plan/sim.h"

#define WEFT_CHOOSE_UNKNOWN (-1.0) /* as a time */
#define WEFT_CHOOSE_SLOWER (-2.0)  /* than the limit */

struct weft_choose {
    const struct weft_plan_facts *facts;
    const struct weft_plan_ask *ask;
    struct weft_plan_sim *sim;
    bool is_timed;  /* the time is wanted, also where it does not decide */
    double limit_s; /* nobody asks how much slower than this it is; 0: everybody */
};

/* ---- choose_try.c ---- */
bool weft_plan_is_reduction(weft_coll_t coll);
/* NULL, or why it may not. */
const char *weft_choose_refusal(const struct weft_plan_facts *facts,
                                const struct weft_plan_ask *ask,
                                const struct weft_plan_builder *builder);
/* In one segment if it is one of messages; refined: in as many as pay. */
void weft_choose_try(const struct weft_choose *choose, const struct weft_plan_builder *builder,
                     struct weft_plan *plan_p, struct weft_plan_option *option_p);
void weft_choose_refine(const struct weft_choose *choose, struct weft_plan *plan,
                        struct weft_plan_option *option);

/* ---- choose_predict.c ---- */
/* Seconds, or UNKNOWN, or SLOWER than the limit (0: none). */
double weft_choose_predict(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                           const struct weft_plan *plan, double bytes, double limit_s);

/* ---- choose_shm.c: ranks of one host through shared memory ---- */
/* The rule's builder for this operation, or NULL when it says nothing; *why_p: a clause for the reason. */
const struct weft_plan_builder *weft_choose_shm(const struct weft_plan_facts *facts,
                                                const struct weft_plan_ask *ask,
                                                const char **why_p);
/* Shapes a plan with slots, in as many segments as the rule says. NULL, or why not. */
const char *weft_choose_shm_shape(const struct weft_plan_facts *facts,
                                  const struct weft_plan_ask *ask,
                                  const struct weft_plan_builder *builder,
                                  struct weft_plan *plan_p);

/* ---- choose_hierarchical.c ---- */
/* Predicted time; *why_not_p: NULL, or why it is not possible. */
double weft_choose_hierarchical_s(const struct weft_plan_facts *facts,
                                  const struct weft_plan_ask *ask, const char **why_not_p);

/* ---- choose_name.c ---- */
/* Is the name given for this operation alone ("allreduce:ring")? */
bool weft_choose_is_meant(const char *algo, weft_coll_t coll);

#endif
