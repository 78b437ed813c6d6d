/* SPDX-License-Identifier: Apache-2.0 */
/* Steps within memory: where a reference lies, copies, reductions. */
#include "exec/internal.h"
#include "reduce/reduce.h"

#include <string.h>

#define FETCHED ((size_t)8 << 10) /* shorter copies do not gain from fetching ahead */

static uint8_t *slot_base(const struct weft_exec_run *run, uint32_t rank)
{
    const struct weft_board *board = run->board;
    return run->is_short ? weft_board_line(board, rank)->data
                         : board->rings + rank * board->ring_len + run->slot_offset;
}

/* How far into its unit or slot a reference begins. */
static size_t displacement(const struct weft_exec_run *run, const struct weft_plan_ref *ref)
{
    if (ref->block == ref->origin) {
        return 0;
    }
    return weft_bind_offset(&run->binding, WEFT_SPACE_NONE, ref->block) -
           weft_bind_offset(&run->binding, WEFT_SPACE_NONE, ref->origin);
}

struct weft_slice weft_exec_resolve(const struct weft_exec_run *run,
                                    const struct weft_plan_ref *ref, uint32_t rank)
{
    const struct weft_binding *binding = &run->binding;
    const struct weft_exec_data *data = binding->data;
    struct weft_slice slice = {NULL, 0};
    switch (ref->space) {
    case WEFT_SPACE_IN:
        slice.data = (uint8_t *)data->in + weft_bind_offset(binding, WEFT_SPACE_IN, ref->block);
        slice.len = weft_bind_len(binding, WEFT_SPACE_IN, ref->block, ref->blocks);
        break;
    case WEFT_SPACE_OUT:
        slice.data = (uint8_t *)data->out + weft_bind_offset(binding, WEFT_SPACE_OUT, ref->block);
        slice.len = weft_bind_len(binding, WEFT_SPACE_OUT, ref->block, ref->blocks);
        break;
    case WEFT_SPACE_TMP:
        slice.data =
            run->exec->scratch + ref->at * weft_bind_unit(binding) + displacement(run, ref);
        slice.len = weft_bind_len(binding, WEFT_SPACE_TMP, ref->block, ref->blocks);
        break;
    case WEFT_SPACE_SLOT:
        slice.data = slot_base(run, rank) + ref->at * binding->slot_len + displacement(run, ref);
        slice.len = weft_bind_len(binding, WEFT_SPACE_SLOT, ref->block, ref->blocks);
        break;
    case WEFT_SPACE_THEIR_IN:
        /* Everybody's buffers are cut alike; only a piece of one's own lies elsewhere. */
        slice.data = run->exec->views[rank].in +
                     (binding->is_in_own
                          ? weft_bind_offset(binding, WEFT_SPACE_NONE, ref->block) -
                                weft_bind_offset(binding, WEFT_SPACE_NONE, rank * binding->segments)
                          : weft_bind_offset(binding, WEFT_SPACE_NONE, ref->block));
        slice.len = weft_bind_len(binding, WEFT_SPACE_NONE, ref->block, ref->blocks);
        break;
    case WEFT_SPACE_ALL_OUT: /* of one of them */
        slice.data =
            run->exec->views[rank].out + weft_bind_offset(binding, WEFT_SPACE_NONE, ref->block);
        slice.len = weft_bind_len(binding, WEFT_SPACE_NONE, ref->block, ref->blocks);
        break;
    default:
        break;
    }
    return slice;
}

#define PACED ((size_t)32 << 10)
#define SLOW_RATE 5.0 /* bytes per ns of a plain copy */
#define FAST_RATE 8.0
#define SLOW_TIMES 4
#define TRY_EVERY 64

/* Long ones with a look at the clock in between. */
static bool copy_blocks(struct weft_exec_run *run, const struct weft_slice *to, const void *from,
                        enum weft_mem_copy how)
{
    const size_t most = WEFT_EXEC_WORK / 2;
    for (size_t at = 0; at < to->len; at += most) {
        size_t n = to->len - at < most ? to->len - at : most;
        weft_mem_copy((uint8_t *)to->data + at, (const uint8_t *)from + at, n, how);
        if (!weft_exec_worked(run, 2 * n)) {
            return false;
        }
    }
    return true;
}

static void fill_slot(struct weft_exec_run *run, const struct weft_slice *to, const void *from)
{
    struct weft_exec_pace *pace = &run->exec->pace;
    bool is_tried = pace->is_streamed && ++pace->copies % TRY_EVERY == 0;
    bool is_plain = !run->is_out_streamed && (!pace->is_streamed || is_tried);
    uint64_t began_ns = is_plain ? weft_clock_ns() : 0;
    double rate;
    weft_mem_copy(to->data, from, to->len, is_plain ? WEFT_COPY_PLAIN : WEFT_COPY_STREAM);
    if (!is_plain) {
        return;
    }
    rate = (double)to->len / (double)(weft_clock_ns() - began_ns + 1);
    if (is_tried) {
        pace->is_streamed = rate < FAST_RATE;
        pace->slow = 0;
    } else {
        pace->slow = rate < SLOW_RATE ? pace->slow + 1 : 0;
        pace->is_streamed = pace->slow >= SLOW_TIMES;
    }
}

bool weft_exec_copy(struct weft_exec_run *run, const struct weft_plan_step *step)
{
    struct weft_slice from = weft_exec_resolve(run, &step->from, step->peer);
    struct weft_slice to = weft_exec_resolve(run, &step->to, run->group->rank);
    bool is_out = step->to.space == WEFT_SPACE_OUT;
    enum weft_mem_copy how = WEFT_COPY_PLAIN;
    if (step->from.space == WEFT_SPACE_THEIR_IN && run->exec->views[step->peer].pid != 0) {
        return weft_exec_pull(run, step->peer, &from, to.data);
    }
    if (from.len == 0 || from.data == to.data) {
        return true;
    }
    if (from.len == sizeof(uint64_t)) {
        memcpy(to.data, from.data, sizeof(uint64_t));
        return true;
    }
    run->exec->moved += 2 * from.len;
    if (step->to.space == WEFT_SPACE_SLOT && from.len >= PACED) {
        fill_slot(run, &to, from.data);
        return weft_exec_worked(run, 2 * from.len);
    }
    if (from.len >= FETCHED) {
        bool is_streamed = is_out && run->is_out_streamed;
        bool is_fetched = step->from.space == WEFT_SPACE_SLOT;
        how = is_streamed ? (is_fetched ? WEFT_COPY_FETCH_STREAM : WEFT_COPY_STREAM)
                          : (is_fetched ? WEFT_COPY_FETCH : WEFT_COPY_PLAIN);
    }
    to.len = from.len;
    return copy_blocks(run, &to, from.data, how);
}

/* ---- reductions ---- */

/* Elements of a block: so many take about WEFT_EXEC_WORK bytes to be read and written. */
static size_t block_count(const struct weft_exec_run *run, const struct weft_reduce *what)
{
    size_t element = run->binding.element;
    return WEFT_EXEC_WORK / element / (what->sources + what->outputs);
}

/* Apart from the usual way: what is longer than a block. */
static __attribute__((noinline)) bool reduce_blocks(struct weft_exec_run *run,
                                                    const struct weft_reduce *whole, size_t count)
{
    const void *sources[WEFT_REDUCE_SOURCES];
    void *outputs[WEFT_REDUCE_SOURCES];
    struct weft_reduce what = *whole;
    size_t element = run->binding.element, most = block_count(run, whole);
    what.source = sources;
    what.output = outputs;
    for (size_t at = 0; at < count; at += most) {
        size_t n = count - at < most ? count - at : most;
        for (uint32_t i = 0; i < what.sources; i++) {
            sources[i] = (const uint8_t *)whole->source[i] + at * element;
        }
        for (uint32_t i = 0; i < what.outputs; i++) {
            outputs[i] = (uint8_t *)whole->output[i] + at * element;
        }
        weft_reduce_run(&what, n);
        if (!weft_exec_worked(run, (what.sources + what.outputs) * n * element)) {
            return false;
        }
    }
    return true;
}

/* At most as many sources and outputs as a pass takes. */
static bool reduce(struct weft_exec_run *run, const struct weft_reduce *what, size_t count)
{
    size_t len = (what->sources + what->outputs) * count * run->binding.element;
    run->exec->moved += len;
    if (len > WEFT_EXEC_WORK) {
        return reduce_blocks(run, what, count);
    }
    weft_reduce_run(what, count);
    return weft_exec_worked(run, len);
}

static struct weft_reduce begin_reduce(const struct weft_exec_run *run,
                                       const struct weft_plan_step *step)
{
    const struct weft_exec_data *data = run->binding.data;
    return (struct weft_reduce){
        .dtype = data->dtype,
        .op = data->op,
        .before = 1.0,
        .divide_by = (step->flags & WEFT_STEP_FINAL) != 0 ? data->divide_by : 1,
    };
}

static const void *source_at(const struct weft_exec_run *run, const struct weft_plan_step *step,
                             uint32_t index)
{
    struct weft_plan_ref ref = step->from;
    if (index == step->self) {
        return weft_exec_resolve(run, &step->from2, run->group->rank).data;
    }
    if (ref.space == WEFT_SPACE_TMP) {
        ref.at += index - (index > step->self);
    }
    return weft_exec_resolve(run, &ref, index).data;
}

/* More sources than a pass takes: piece by piece, each in several passes over memory of our own, because
 * the output may be one of the sources that come later. */
#define PIECE 4096

static bool fold_many(struct weft_exec_run *run, const struct weft_plan_step *step,
                      const struct weft_reduce *whole, size_t count)
{
    _Alignas(64) uint8_t partial[PIECE];
    size_t element = run->binding.element, most = PIECE / element;
    for (size_t at = 0; at < count; at += most) {
        size_t n = count - at < most ? count - at : most;
        uint32_t done = 0;
        while (done < step->sources) {
            const void *sources[WEFT_REDUCE_SOURCES];
            void *outputs[WEFT_REDUCE_SOURCES];
            struct weft_reduce what = *whole;
            what.source = sources;
            what.output = outputs;
            what.sources = 0;
            if (done > 0) {
                sources[what.sources++] = partial;
            }
            while (what.sources < WEFT_REDUCE_SOURCES && done < step->sources) {
                sources[what.sources++] =
                    (const uint8_t *)source_at(run, step, done++) + at * element;
            }
            if (done < step->sources) {
                outputs[0] = partial;
                what.outputs = 1;
                what.divide_by = 1;
                what.is_streamed = false;
            } else {
                for (uint32_t i = 0; i < what.outputs; i++) {
                    outputs[i] = (uint8_t *)whole->output[i] + at * element;
                }
            }
            weft_reduce_run(&what, n);
        }
        if (!weft_exec_worked(run, (step->sources + whole->outputs) * n * element)) {
            return false;
        }
    }
    return true;
}

static bool fold(struct weft_exec_run *run, const struct weft_plan_step *step,
                 struct weft_reduce what, size_t count)
{
    const void *sources[WEFT_REDUCE_SOURCES];
    if (step->sources > WEFT_REDUCE_SOURCES) {
        run->exec->moved += (step->sources + what.outputs) * count * run->binding.element;
        return fold_many(run, step, &what, count);
    }
    for (uint32_t i = 0; i < step->sources; i++) {
        sources[i] = source_at(run, step, i);
    }
    what.source = sources;
    what.sources = step->sources;
    return reduce(run, &what, count);
}

static bool reduce_to_all(struct weft_exec_run *run, const struct weft_plan_step *step,
                          struct weft_reduce what)
{
    void *outputs[WEFT_REDUCE_SOURCES];
    size_t len = 0;
    for (uint32_t rank = 0; rank < run->group->ranks; rank++) {
        struct weft_slice to = weft_exec_resolve(run, &step->to, rank);
        outputs[rank] = to.data;
        len = to.len;
    }
    what.output = outputs;
    what.outputs = run->group->ranks;
    return fold(run, step, what, len / run->binding.element);
}

bool weft_exec_reduce(struct weft_exec_run *run, const struct weft_plan_step *step)
{
    struct weft_reduce what = begin_reduce(run, step);
    struct weft_slice to;
    void *outputs[2];
    what.before = run->binding.data->before;
    if (step->to.space == WEFT_SPACE_ALL_OUT) {
        what.is_streamed = run->is_out_streamed;
        return reduce_to_all(run, step, what);
    }
    to = weft_exec_resolve(run, &step->to, run->group->rank);
    if (to.len == 0) {
        return true;
    }
    outputs[0] = to.data;
    what.outputs = 1;
    what.is_streamed = run->is_out_streamed;
    if (step->also.space != WEFT_SPACE_NONE) {
        outputs[what.outputs++] = weft_exec_resolve(run, &step->also, run->group->rank).data;
    }
    what.output = outputs;
    return fold(run, step, what, to.len / run->binding.element);
}

bool weft_exec_apply(struct weft_exec_run *run, const struct weft_exec_item *item)
{
    struct weft_reduce what = begin_reduce(run, &item->step);
    struct weft_slice to = weft_exec_resolve(run, &item->step.to, run->group->rank);
    const void *sources[2] = {to.data, item->slice.data};
    void *output = to.data;
    if (item->step.from.space != WEFT_SPACE_NONE) {
        sources[0] = weft_exec_resolve(run, &item->step.from, run->group->rank).data;
    }
    what.sources = 2;
    what.outputs = 1;
    what.source = sources;
    what.output = &output;
    return reduce(run, &what, to.len / run->binding.element);
}
