/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crew: n rank processes of one benchmark, forked once and kept over all iterations, asleep on a
 * futex whenever they wait for each other. They and the parent share one anonymous mapping; nothing
 * of a crew outlives the parent.
 */
#ifndef WEFT_CLI_CREW_H
#define WEFT_CLI_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_CREW_TEXT_LEN 640

struct weft_crew;

/* What each rank runs. false: it failed and has said why by weft_crew_fail(), or a barrier told it
 * that another one did. */
typedef bool (*weft_crew_fn)(struct weft_crew *crew, int rank, void *context);

struct weft_crew_spec {
    int ranks;
    size_t shared_len; /* zeroed memory that parent and ranks share */
    uint32_t stall_ms; /* so long without a weft_crew_step() of any rank is a failure */
    weft_crew_fn body;
    void *context; /* lent; a rank has its own copy, as it was at the fork */
};

/* Makes the mapping, no process yet. NULL: errno says why. */
struct weft_crew *weft_crew_open(const struct weft_crew_spec *spec);
/* Kills what still runs; NULL is fine. */
void weft_crew_close(struct weft_crew *crew);

int weft_crew_ranks(const struct weft_crew *crew);
void *weft_crew_shared(struct weft_crew *crew);

/* ---- for the parent ---- */

/* Called some times a second while the crew works; steps: how many the slowest rank has done. */
typedef void (*weft_crew_progress_fn)(uint64_t steps, void *context);

/* Forks the ranks and waits for all of them. false: why (WEFT_CREW_TEXT_LEN) names the first rank
 * that failed and what it said, or one that the others wait for when all stand still. */
bool weft_crew_run(struct weft_crew *crew, weft_crew_progress_fn progress, void *context,
                   char *why);

/* ---- for a rank ---- */

/* Sleeps until all ranks are here. false: one has failed, so leave. */
bool weft_crew_barrier(struct weft_crew *crew);
/* Says what this rank does next, for the parent's watch and for its error text. what: a constant.
 */
void weft_crew_step(struct weft_crew *crew, const char *what);
/* Keeps the text (the first of the crew counts), wakes the others, returns false. */
bool weft_crew_fail(struct weft_crew *crew, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
