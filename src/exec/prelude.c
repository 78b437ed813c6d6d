/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before and after plans that add in several places. There an input cannot be scaled where it is added, and
 * short floats would be rounded at every hop: so the plan runs over a copy, scaled or in f32.
 */
#include "exec/internal.h"
#include "reduce/reduce.h"

#define ALIGN ((size_t)64)
#define BLOCK (WEFT_EXEC_WORK / 8) /* elements, between two looks at the clock */

struct extent {
    size_t in, out; /* elements */
};

static size_t count_of(const struct weft_exec_data *data, uint32_t piece)
{
    return data->in_counts != NULL ? data->in_counts[piece] : data->count;
}

static size_t sum_of(const struct weft_exec_data *data, uint32_t ranks)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        sum += count_of(data, i);
    }
    return sum;
}

/* Only reductions have a prelude. */
static struct extent extent_of(const struct weft_exec_stage *stage)
{
    const struct weft_exec_data *data = &stage->data;
    uint32_t ranks = stage->group->ranks;
    struct extent extent = {.in = data->count, .out = data->count};
    if (stage->plan.coll == WEFT_REDUCE_SCATTER && !data->is_cut) {
        extent.in = sum_of(data, ranks);
        extent.out = count_of(data, stage->group->rank);
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

/* In f32 or not, scaled or not. */
static void copy_block(const struct weft_exec_data *data, const void *from, uint8_t *to,
                       size_t count)
{
    bool is_wide = data->prelude == WEFT_PRELUDE_WIDEN;
    if (is_wide) {
        weft_reduce_widen(data->dtype, from, (void *)to, count);
    }
    if (data->before != 1.0) {
        scale(is_wide ? WEFT_F32 : data->dtype, data->before, is_wide ? to : from, to, count);
    }
}

static bool copy(struct weft_exec_run *run, const void *from, uint8_t *to, size_t count)
{
    const struct weft_exec_data *data = &run->job->stage[run->stage].data;
    size_t element = weft_dtype_size(data->dtype);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        copy_block(data, (const uint8_t *)from + at * element, to + at * copy_element(data), n);
        if (!weft_exec_worked(run, n * (element + copy_element(data)))) {
            return false;
        }
    }
    return true;
}

/* Pieces with places may have anything between them, also nothing that can be read: the copy has them in a
 * row. */
static bool copy_pieces(struct weft_exec_run *run, uint32_t ranks, uint8_t *to)
{
    const struct weft_exec_data *data = &run->job->stage[run->stage].data;
    size_t element = weft_dtype_size(data->dtype);
    for (uint32_t i = 0; i < ranks; i++) {
        size_t count = count_of(data, i);
        if (!copy(run, (const uint8_t *)data->in + data->in_places[i] * element, to, count)) {
            return false;
        }
        to += count * copy_element(data);
    }
    return true;
}

bool weft_exec_prelude(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    const struct weft_exec_data *data = &stage->data;
    uint8_t *copies = run->exec->copies;
    size_t count;
    run->data = *data;
    if (data->prelude == WEFT_PRELUDE_NONE) {
        return true;
    }
    count = extent_of(stage).in;
    run->exec->moved += 2 * count * weft_dtype_size(data->dtype);
    if (!(data->in_places != NULL ? copy_pieces(run, stage->group->ranks, copies)
                                  : copy(run, data->in, copies, count))) {
        return false;
    }
    run->data.in = copies;
    run->data.in_places = NULL;
    run->data.before = 1.0;
    if (data->prelude == WEFT_PRELUDE_WIDEN) {
        run->data.dtype = WEFT_F32;
        run->data.out = copies + in_len(stage);
    }
    return true;
}

bool weft_exec_postlude(struct weft_exec_run *run)
{
    const struct weft_exec_stage *stage = &run->job->stage[run->stage];
    const struct weft_exec_data *data = &stage->data;
    bool has_out = stage->plan.coll != WEFT_REDUCE || stage->plan.root == stage->group->rank;
    size_t element = weft_dtype_size(data->dtype), count = extent_of(stage).out;
    if (data->prelude != WEFT_PRELUDE_WIDEN || !has_out) {
        return true;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        weft_reduce_narrow(data->dtype, (const float *)run->data.out + at,
                           (uint8_t *)data->out + at * element, n);
        if (!weft_exec_worked(run, n * (element + sizeof(float)))) {
            return false;
        }
    }
    return true;
}
