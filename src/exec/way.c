/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Through slots or by CMA: two copies that two cores share and overlap, or one that the kernel makes, page
 * by page. Which is faster depends on how near the cores are to each other, which changes within seconds on
 * a virtual machine, on who holds a core, and on the length. So it is measured all the time, by rank 0 of
 * the board, and the others do as it says.
 */
#include "exec/internal.h"

enum { BY_SLOTS, BY_CMA };

#define TRIES 6           /* of both in turn, at first */
#define TRY_EVERY 32      /* then the slower one, if it is not far behind … */
#define TRY_FAR_EVERY 512 /* … or if it is */
#define FAR 3

static struct weft_exec_way *find(const struct weft_exec_run *run)
{
    uint32_t bucket = 64 - (uint32_t)__builtin_clzll(run->binding.total_len | 1);
    bucket = bucket < WEFT_EXEC_WAY_LENS ? bucket : WEFT_EXEC_WAY_LENS - 1;
    return &run->exec->ways[run->plan->coll][bucket];
}

bool weft_exec_way_begin(struct weft_exec_run *run)
{
    struct weft_exec_way *way = find(run);
    uint32_t count = way->count++;
    uint32_t best = way->ns[BY_CMA] < way->ns[BY_SLOTS] ? BY_CMA : BY_SLOTS;
    bool is_far = way->ns[1 - best] > FAR * way->ns[best];
    uint32_t chosen = count < TRIES                                       ? count % 2
                      : count % (is_far ? TRY_FAR_EVERY : TRY_EVERY) == 0 ? 1 - best
                                                                          : best;
    run->is_pulled = run->exec->spec.is_pulled || chosen == BY_CMA;
    run->entered_ns = weft_clock_ns();
    return run->is_pulled;
}

/* Others may have been late, so the shorter times say more than the longer ones. */
void weft_exec_way_end(struct weft_exec_run *run)
{
    uint64_t took_ns = weft_clock_ns() - run->entered_ns;
    uint64_t *known_ns = &find(run)->ns[run->is_pulled ? BY_CMA : BY_SLOTS];
    bool is_longer = *known_ns != 0 && took_ns > *known_ns;
    *known_ns = is_longer ? *known_ns + (took_ns - *known_ns) / 8 : took_ns;
}
