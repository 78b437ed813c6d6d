/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before and after plans that add in several places. There an input cannot be scaled where it is added, and
 * short floats would be rounded at every hop: so the plan runs over a copy, scaled or in f32.
 */
#include "exec/internal.h"
#include "reduce/reduce.h"

#define ALIGN ((size_t)64)

struct extent {
    size_t in, out; /* elements */
};

/* Where the last piece of IN ends. */
static size_t furthest(const struct weft_exec_data *data, uint32_t ranks)
{
    size_t sum = 0, most = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        size_t count = data->in_counts != NULL ? data->in_counts[i] : data->count;
        size_t end = (data->in_places != NULL ? data->in_places[i] : sum) + count;
        sum += count;
        most = end > most ? end : most;
    }
    return most;
}

/* Only reductions have a prelude. */
static struct extent extent_of(const struct weft_exec_stage *stage)
{
    const struct weft_exec_data *data = &stage->data;
    uint32_t ranks = stage->group->ranks;
    struct extent extent = {.in = data->count, .out = data->count};
    if (stage->plan.coll == WEFT_REDUCE_SCATTER && !data->is_cut) {
        extent.in = furthest(data, ranks);
        extent.out = data->in_counts != NULL ? data->in_counts[stage->group->rank] : data->count;
    }
    return extent;
}

static size_t copy_element(const struct weft_exec_data *data)
{
    return data->prelude == WEFT_PRELUDE_WIDEN ? sizeof(float) : weft_dtype_size(data->dtype);
}

static size_t in_len(const struct weft_exec_stage *stage)
{
    size_t len = extent_of(stage).in * copy_element(&stage->data);
    return (len + ALIGN - 1) / ALIGN * ALIGN;
}

size_t weft_exec_prelude_len(const struct weft_exec_stage *stage)
{
    if (stage->data.prelude == WEFT_PRELUDE_NONE) {
        return 0;
    }
    return in_len(stage) +
           (stage->data.prelude == WEFT_PRELUDE_WIDEN ? extent_of(stage).out * sizeof(float) : 0);
}

static void scale(weft_dtype_t dtype, double factor, const void *from, void *to, size_t count)
{
    const struct weft_reduce what = {.dtype = dtype,
                                     .op = WEFT_SUM,
                                     .before = factor,
                                     .divide_by = 1,
                                     .sources = 1,
                                     .outputs = 1,
                                     .source = &from,
                                     .output = &to};
    weft_reduce_run(&what, count);
}

void weft_exec_prelude(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    const struct weft_exec_data *data = &stage->data;
    uint8_t *copies = run->exec->copies;
    size_t count;
    run->data = *data;
    if (data->prelude == WEFT_PRELUDE_NONE) {
        return;
    }
    count = extent_of(stage).in;
    run->data.in = copies;
    if (data->prelude == WEFT_PRELUDE_WIDEN) {
        weft_reduce_widen(data->dtype, data->in, (float *)copies, count);
        run->data.dtype = WEFT_F32;
        run->data.out = copies + in_len(stage);
    }
    if (data->before != 1.0) {
        bool is_wide = data->prelude == WEFT_PRELUDE_WIDEN;
        scale(run->data.dtype, data->before, is_wide ? copies : data->in, copies, count);
        run->data.before = 1.0;
    }
    run->exec->moved += 2 * count * weft_dtype_size(data->dtype);
}

void weft_exec_postlude(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    const struct weft_exec_data *data = &stage->data;
    bool has_out = stage->plan.coll != WEFT_REDUCE || stage->plan.root == stage->group->rank;
    if (data->prelude == WEFT_PRELUDE_WIDEN && has_out) {
        weft_reduce_narrow(data->dtype, run->data.out, data->out, extent_of(stage).out);
    }
}
