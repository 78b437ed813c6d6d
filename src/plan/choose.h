/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the chooser: choose.c, choose_name.c, choose_predict.c, choose_shm.c, choose_hierarchical.c. */
#ifndef WEFT_PLAN_CHOOSE_H
#define WEFT_PLAN_CHOOSE_H

#include "plan/model.h"

bool weft_plan_is_reduction(weft_coll_t coll);

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

/* ---- choose_predict.c ---- */
/* Seconds; < 0: not known. Runs parts of what is too long to run, and goes on from there. */
double weft_choose_predict(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                           const struct weft_plan *plan, double bytes);

/* ---- choose_hierarchical.c ---- */
/* Predicted time; < 0: *why_not_p says why not. */
double weft_choose_hierarchical_s(const struct weft_plan_facts *facts,
                                  const struct weft_plan_ask *ask, const char **why_not_p);

/* ---- choose_name.c ---- */
/* Is the name given for this operation alone ("allreduce:ring")? */
bool weft_choose_is_meant(const char *algo, weft_coll_t coll);

#endif
