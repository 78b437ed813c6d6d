/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Through slots or by CMA: two copies that two cores share and overlap, or one that the kernel makes, page
 * by page. Which is faster depends on how near the cores are to each other, which changes within seconds on
 * a virtual machine, on who holds a core, and on the length. So it is measured all the time, by rank 0 of
 * the board, and the others do as it says.
 */
#include "exec/internal.h"

enum { BY_SLOTS, BY_CMA };

#define LONG_LEN ((size_t)16 << 20) /* all ranks together: one such operation says enough */
#define TRIAL 3 /* operations in a row by the way that is tried; the first one does not count */
#define TRY_EVERY 64   /* operations between two trials of a way that is about as fast, … */
#define TRY_RARELY 16  /* … so many times more for each time that it takes longer, … */
#define TRY_LEAST 1024 /* … at most, and of long operations a quarter of it */
#define WEIGHT 0.1     /* of the latest operation, … */
#define HELD_UP 3 /* … which counts so many times the usual at most: a rank may have been late */

static struct weft_exec_way *find(const struct weft_exec_run *run)
{
    uint32_t bucket = 64 - (uint32_t)__builtin_clzll(run->binding.total_len | 1);
    bucket = bucket < WEFT_EXEC_WAY_LENS ? bucket : WEFT_EXEC_WAY_LENS - 1;
    return &run->exec->ways[run->plan->coll][bucket];
}

static uint32_t trial_of(const struct weft_exec_run *run)
{
    const struct weft_binding *binding = &run->binding;
    size_t per_rank = LONG_LEN / binding->ranks;
    return binding->total_len < (binding->is_vector ? per_rank : per_rank / binding->ranks) ? TRIAL
                                                                                            : 1;
}

/* Trials of what takes twice as long cost no more in all than of what takes as long. */
static uint32_t pause_of(double times, uint32_t trial)
{
    double most = trial > 1 ? TRY_LEAST : TRY_LEAST / 4;
    double pause = TRY_EVERY * (1 + TRY_RARELY * (times - 1));
    return (uint32_t)(pause < most ? pause : most);
}

/* At first both are tried, then the one that seemed slower now and then. */
static uint32_t choose(struct weft_exec_way *way, uint32_t trial)
{
    uint32_t best = way->ns[BY_CMA] < way->ns[BY_SLOTS] ? BY_CMA : BY_SLOTS;
    if (way->count < 2 * trial) {
        way->next = way->count + TRY_EVERY;
        return way->count < trial ? BY_SLOTS : BY_CMA;
    }
    if (way->chosen != best && way->trial < trial) {
        return way->chosen;
    }
    if ((int32_t)(way->count - way->next) < 0) {
        return best;
    }
    way->next = way->count + pause_of(way->ns[1 - best] / way->ns[best], trial);
    return 1 - best;
}

bool weft_exec_way_begin(struct weft_exec_run *run)
{
    struct weft_exec_way *way = find(run);
    uint32_t chosen = run->exec->spec.is_pulled ? BY_CMA : choose(way, trial_of(run));
    way->trial = chosen == way->chosen ? way->trial + 1 : 1;
    way->chosen = chosen;
    way->count++;
    run->is_pulled = chosen == BY_CMA;
    run->entered_ns = weft_clock_ns();
    return run->is_pulled;
}

/* A trial is short: its shortest operation counts, for others may have been held up. */
void weft_exec_way_end(struct weft_exec_run *run)
{
    struct weft_exec_way *way = find(run);
    double took_ns = (double)(weft_clock_ns() - run->entered_ns);
    double *known_ns = &way->ns[run->is_pulled ? BY_CMA : BY_SLOTS];
    uint32_t trial = trial_of(run), first = trial > 1 ? 2 : 1;
    if (way->trial == first || (way->trial <= trial && took_ns < *known_ns)) {
        *known_ns = took_ns;
    } else if (way->trial > trial) {
        took_ns = took_ns < HELD_UP * *known_ns ? took_ns : HELD_UP * *known_ns;
        *known_ns += WEIGHT * (took_ns - *known_ns);
    }
}
