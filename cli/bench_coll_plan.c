/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft bench` of a collective will run: sizes, in and out of place, algorithms, how often; and what
 * follows from the operation alone: its bytes, its factors. */
#include "bench_coll.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/model.h"

#define BATCH_S 0.010
#define ITERS_MAX 5000
#define BATCHES_MAX 100
#define LONG_S 2.0 /* a batch of COLL_ITERS_MIN must not take longer; then it is one operation */
#define SINGLES_MIN 10
#define COLD_S 0.020
#define WARM_S 0.02
#define WARM_MAX 1000
#define WARM_TRIES 3

/* ---- operations ---- */

bool weft_bench_coll_has_root(weft_coll_t coll)
{
    return coll == WEFT_BROADCAST || coll == WEFT_REDUCE || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER;
}

bool weft_bench_coll_reduces(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE_SCATTER || coll == WEFT_REDUCE;
}

bool weft_bench_coll_is_cut(weft_coll_t coll)
{
    return coll == WEFT_REDUCE_SCATTER || coll == WEFT_ALLGATHER || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER || coll == WEFT_ALLTOALL;
}

double weft_bench_coll_bus_factor(weft_coll_t coll, int ranks)
{
    double n = ranks;
    switch (coll) {
    case WEFT_ALLREDUCE:
        return 2 * (n - 1) / n;
    case WEFT_BROADCAST:
    case WEFT_REDUCE:
        return 1;
    case WEFT_BARRIER:
        return NAN;
    default:
        return (n - 1) / n;
    }
}

/* Every input is read once, every output written once; in place a rank's own part stays where it is. */
double weft_bench_coll_memory_bytes(weft_coll_t coll, int ranks, const struct coll_cell *cell)
{
    double n = ranks, bytes = (double)cell->bytes, own = cell->is_inplace ? 1 : 0;
    switch (coll) {
    case WEFT_ALLREDUCE:
    case WEFT_ALLTOALL:
        return 2 * n * bytes;
    case WEFT_REDUCE_SCATTER:
    case WEFT_REDUCE:
        return (n + 1) * bytes;
    case WEFT_ALLGATHER:
    case WEFT_BROADCAST:
        return (n + 1 - own) * bytes;
    case WEFT_GATHER:
    case WEFT_SCATTER:
        return 2 * bytes * (n - own) / n;
    default:
        return 0;
    }
}

double weft_bench_coll_wire_bytes(weft_coll_t coll, int ranks, size_t bytes)
{
    double n = ranks;
    switch (coll) {
    case WEFT_ALLREDUCE:
        return 2 * (n - 1) * (double)bytes;
    case WEFT_GATHER:
    case WEFT_SCATTER:
        return (n - 1) / n * (double)bytes;
    case WEFT_BARRIER:
        return 0;
    default:
        return (n - 1) * (double)bytes;
    }
}

/* ---- how often ---- */

bool weft_bench_coll_turns(const struct coll_arguments *arguments)
{
    return arguments->root < 0 &&
           (arguments->coll == WEFT_BROADCAST || arguments->coll == WEFT_REDUCE);
}

static int clamp(double value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

int weft_bench_coll_warm(int tries, int count, double seconds)
{
    bool is_enough = tries >= WARM_TRIES || (tries > 0 && count >= WARM_MAX) ||
                     count * seconds >= (tries > 0 ? WARM_S / 2 : COLD_S);
    return is_enough ? 0 : clamp(WARM_S / seconds, COLL_ITERS_MIN, WARM_MAX);
}

struct coll_counts weft_bench_coll_counts(const struct coll_arguments *arguments, double seconds)
{
    double time_s = (double)arguments->time_ms / 1e3;
    int64_t asked = arguments->iters;
    if (arguments->is_single) {
        double wanted = asked > 0 ? (double)asked : time_s / seconds;
        return (struct coll_counts){1,
                                    clamp(wanted, asked > 0 ? 1 : SINGLES_MIN, COLL_SAMPLES_MAX)};
    }
    int iters = asked > 0 ? (int)asked : clamp(BATCH_S / seconds, COLL_ITERS_MIN, ITERS_MAX);
    if (asked == 0 && iters * seconds > LONG_S) {
        iters = 1;
    }
    return (struct coll_counts){iters, clamp(time_s / (iters * seconds), 1, BATCHES_MAX)};
}

/* ---- algorithms ---- */

/* MAPPED ones are not asked for: they are taken by themselves where all buffers are shared. */
static bool can_do(const struct coll_arguments *arguments, int ranks,
                   const struct weft_plan_builder *builder)
{
    struct weft_plan plan;
    bool is_shared = builder->traits & WEFT_PLAN_SHARED;
    return (builder->colls >> arguments->coll & 1) != 0 &&
           !(is_shared && arguments->path == COLL_TCP) && !(builder->traits & WEFT_PLAN_MAPPED) &&
           weft_plan_shape(builder, arguments->coll, (uint32_t)ranks, 0, 1, &plan);
}

/* Which is in no table: plans of plans. */
static bool is_composed(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE;
}

static char *append(char *names, const char *name)
{
    char *longer = weft_cli_format("%s, %s", names, name);
    free(names);
    return longer;
}

bool weft_bench_coll_knows_algo(weft_coll_t coll, const char *name, char **names_p)
{
    bool is_known = false;
    char *names = weft_cli_format("all");
    for (size_t i = 0; weft_plan_builders[i] != NULL; i++) {
        if ((weft_plan_builders[i]->colls >> coll & 1) != 0) {
            names = append(names, weft_plan_builders[i]->name);
            is_known = is_known || strcmp(name, weft_plan_builders[i]->name) == 0;
        }
    }
    if (is_composed(coll)) {
        names = append(names, weft_plan_hierarchical.name);
        is_known = is_known || strcmp(name, weft_plan_hierarchical.name) == 0;
    }
    *names_p = names;
    return is_known || strcmp(name, "all") == 0;
}

/* ---- cells ---- */

static void add_cell(struct coll_plan *plan, struct coll_cell cell)
{
    plan->cell = weft_cli_grow(plan->cell, plan->count + 1, sizeof(cell));
    plan->cell[plan->count++] = cell;
    plan->buffer_len = cell.bytes > plan->buffer_len ? cell.bytes : plan->buffer_len;
}

/* Out of place, then in place. */
static void add_places(struct coll_plan *plan, struct coll_cell cell)
{
    const struct coll_arguments *arguments = plan->arguments;
    bool has_inplace = arguments->coll != WEFT_ALLTOALL && arguments->coll != WEFT_BARRIER;
    if (!arguments->is_inplace || !has_inplace) {
        add_cell(plan, cell);
    }
    if (!arguments->is_outplace && has_inplace) {
        cell.is_inplace = true;
        add_cell(plan, cell);
    }
}

static void add_algorithms(struct coll_plan *plan, struct coll_cell cell)
{
    const char *algo = plan->arguments->algo;
    bool is_all = algo != NULL && strcmp(algo, "all") == 0;
    cell.algo = is_all ? NULL : algo;
    add_places(plan, cell); /* of all, the library's own choice is the first row */
    if (!is_all) {
        return;
    }
    for (size_t i = 0; weft_plan_builders[i] != NULL; i++) {
        if (can_do(plan->arguments, plan->ranks, weft_plan_builders[i])) {
            cell.algo = weft_plan_builders[i]->name;
            add_places(plan, cell);
        }
    }
    if (plan->is_spread && is_composed(plan->arguments->coll)) {
        cell.algo = weft_plan_hierarchical.name;
        add_places(plan, cell);
    }
}

static struct coll_cell cell_of(const struct coll_arguments *arguments, int ranks, uint64_t bytes)
{
    size_t len = weft_dtype_size(arguments->dtype), pieces = 1;
    if (weft_bench_coll_is_cut(arguments->coll)) {
        pieces = (size_t)ranks;
    }
    size_t count = (size_t)bytes / len / pieces;
    count = count > 0 ? count : 1;
    return (struct coll_cell){.bytes = count * len * pieces, .count = count};
}

void weft_bench_coll_plan(const struct coll_arguments *arguments, int ranks, bool is_spread,
                          struct coll_plan *plan_p)
{
    *plan_p = (struct coll_plan){
        .arguments = arguments, .ranks = ranks, .is_spread = is_spread, .buffer_len = 4096};
    if (arguments->coll == WEFT_BARRIER) {
        add_algorithms(plan_p, (struct coll_cell){0});
        return;
    }
    size_t before = 0;
    for (uint64_t bytes = arguments->min_bytes; bytes <= arguments->max_bytes;
         bytes *= (uint64_t)arguments->factor) {
        struct coll_cell cell = cell_of(arguments, ranks, bytes);
        if (cell.bytes != before) { /* the smallest sizes may become the same */
            add_algorithms(plan_p, cell);
        }
        before = cell.bytes;
    }
}

size_t weft_bench_coll_shared_len(const struct coll_plan *plan)
{
    return sizeof(struct coll_shared) + plan->count * sizeof(struct coll_outcome);
}
