/* SPDX-License-Identifier: Apache-2.0 */
/* What `weft bench p2p` will run: series after series, how many samples of each, in which buffers. */
#include "bench_p2p.h"

#include <string.h>

#define INFLIGHT 64
#define INFLIGHT_BYTES ((size_t)64 << 20) /* in flight at most, by default */
#define SLOTS_BYTES ((size_t)4 << 20)     /* of buffers in turn: what peers' benchmarks keep hot */
#define SERIES_BYTES ((size_t)640 << 20)  /* per direction of a series, if iterations permit */
#define BATCH_BYTES ((size_t)2 << 30)
#define BATCHES 8

bool weft_bench_p2p_read_modes(const char *text, bool is_wanted[P2P_OPS], const char **word_p)
{
    bool wanted[P2P_OPS] = {0};
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        bool is_known = false;
        for (enum p2p_op op = P2P_LAT; op < P2P_OPS; op++) {
            const char *name = weft_bench_p2p_op_name(op);
            bool is_it = (strlen(name) == len && strncmp(at, name, len) == 0) ||
                         (len == 3 && strncmp(at, "all", len) == 0);
            wanted[op] = wanted[op] || is_it;
            is_known = is_known || is_it;
        }
        if (!is_known) {
            *word_p = at;
            return false;
        }
        at += len;
        if (*at == '\0') {
            memcpy(is_wanted, wanted, sizeof(wanted));
            return true;
        }
    }
}

static size_t clamp(size_t value, size_t least, size_t most)
{
    return value < least ? least : value > most ? most : value;
}

static int default_inflight(size_t bytes)
{
    return (int)clamp(INFLIGHT_BYTES / bytes, 2, INFLIGHT);
}

static bool has_window(enum p2p_op op)
{
    return op == P2P_BW || op == P2P_BIBW || op == P2P_PUT_NBI;
}

static size_t default_iters(const struct p2p_series *series, size_t pairs)
{
    size_t sample_bytes = series->bytes * (size_t)series->per_clock;
    if (series->op == P2P_MESH) {
        return clamp(20000 / pairs, 3, 500);
    }
    if (series->op == P2P_MESHBW) {
        return clamp(SERIES_BYTES / (2 * pairs * series->bytes), 5, 200);
    }
    return clamp(SERIES_BYTES / sample_bytes, 10, series->per_clock > 1 ? 500 : 2000);
}

static struct p2p_series make_series(const struct p2p_arguments *arguments, enum p2p_op op,
                                     size_t bytes, int ranks)
{
    size_t pairs = (size_t)ranks * (size_t)(ranks - 1) / 2;
    struct p2p_series series = {.op = op, .bytes = bytes, .inflight = 1, .per_clock = 1};
    if (has_window(op)) {
        series.inflight =
            arguments->inflight > 0 ? (int)arguments->inflight : default_inflight(bytes);
        series.per_clock = series.inflight;
    } else if (op == P2P_PUT_BATCH) {
        series.inflight = P2P_PUTS_PER_QUIET;
        series.per_clock = P2P_PUTS_PER_QUIET;
    }
    series.slots = (int)clamp(SLOTS_BYTES / bytes, 1, (size_t)series.inflight);
    size_t iters = arguments->iters > 0 ? (size_t)arguments->iters : default_iters(&series, pairs);
    series.iters = (int)iters;
    series.warmup =
        (int)(arguments->warmup >= 0 ? (size_t)arguments->warmup : clamp(iters / 10, 1, 100));
    series.samples = iters;
    if (weft_bench_p2p_is_mesh(op)) {
        series.slots = ranks;
        series.samples = iters * pairs * (op == P2P_MESHBW ? 2 : 1); /* each way is one */
    }
    size_t most = clamp(BATCH_BYTES / (bytes * (size_t)series.per_clock), 1, iters);
    series.batch = (int)clamp((iters + BATCHES - 1) / BATCHES, 1, most);
    return series;
}

static void plan_add(struct p2p_plan *plan, struct p2p_series series)
{
    bool is_mesh = weft_bench_p2p_is_mesh(series.op);
    size_t buffer_len = series.bytes * (size_t)series.slots;
    size_t send_len = is_mesh ? series.bytes : buffer_len;
    int inflight = is_mesh ? plan->ranks : series.inflight;
    series.first = plan->samples;
    plan->series = weft_cli_grow(plan->series, plan->count + 1, sizeof(series));
    plan->series[plan->count++] = series;
    plan->samples += series.samples;
    plan->buffer_len = buffer_len > plan->buffer_len ? buffer_len : plan->buffer_len;
    plan->send_len = send_len > plan->send_len ? send_len : plan->send_len;
    plan->inflight_max = inflight > plan->inflight_max ? inflight : plan->inflight_max;
}

void weft_bench_p2p_plan(const struct p2p_arguments *arguments, int ranks, struct p2p_plan *plan_p)
{
    *plan_p = (struct p2p_plan){
        .ranks = ranks,
        .path = arguments->path,
        .is_threads = arguments->is_threads,
        .is_shared_alloc = arguments->is_shared_alloc,
        .is_checked = arguments->check != 0,
        .has_puts = arguments->is_wanted[P2P_PUT_NBI] || arguments->is_wanted[P2P_PUT_QUIET] ||
                    arguments->is_wanted[P2P_PUT_BATCH],
    };
    for (enum p2p_op op = P2P_LAT; op < P2P_OPS; op++) {
        uint64_t bytes = arguments->min_bytes;
        while (arguments->is_wanted[op] && bytes <= arguments->max_bytes) {
            plan_add(plan_p, make_series(arguments, op, (size_t)bytes, ranks));
            bytes = op == P2P_MESH ? UINT64_MAX : bytes * (uint64_t)arguments->factor;
        }
    }
}

size_t weft_bench_p2p_shared_len(const struct p2p_plan *plan)
{
    return sizeof(struct p2p_shared) + plan->count * sizeof(struct p2p_outcome) +
           plan->samples * sizeof(uint64_t);
}

struct p2p_outcome *weft_bench_p2p_outcomes(struct p2p_shared *shared)
{
    return (struct p2p_outcome *)(void *)(shared + 1);
}

uint64_t *weft_bench_p2p_samples(struct p2p_shared *shared, const struct p2p_plan *plan)
{
    return (uint64_t *)(void *)(weft_bench_p2p_outcomes(shared) + plan->count);
}
