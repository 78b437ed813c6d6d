/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short plans in shared memory take less time than looking up what their steps mean. So the steps of such a
 * plan are resolved once per shape: to an offset in IN, in OUT, or in somebody's slot. What cannot go on at
 * once is handed to the loop in run.c, at the step where it stands.
 */
#include "exec/internal.h"
#include "reduce/reduce.h"

#include <sched.h>
#include <string.h>

#define BRIEF_LOOKS 16 /* take less than a microsecond */
#define YIELDS 64      /* then it takes long, and others must be looked after */

/* ---- resolving ---- */

static bool resolve(const struct weft_binding *binding, const struct weft_plan_ref *ref,
                    struct weft_exec_place *place_p, size_t *len_p)
{
    struct weft_exec_place place = {.space = ref->space};
    switch (ref->space) {
    case WEFT_SPACE_IN:
    case WEFT_SPACE_OUT:
        place.offset = weft_bind_offset(binding, ref->space, ref->block);
        break;
    case WEFT_SPACE_SLOT:
        place.offset = ref->at * binding->slot_len +
                       weft_bind_offset(binding, WEFT_SPACE_NONE, ref->block) -
                       weft_bind_offset(binding, WEFT_SPACE_NONE, ref->origin);
        break;
    default:
        return false;
    }
    *len_p = weft_bind_len(binding, ref->space, ref->block, ref->blocks);
    *place_p = place;
    return true;
}

static bool compile_step(const struct weft_binding *binding, const struct weft_plan_step *step,
                         struct weft_exec_move *move)
{
    size_t ignored;
    move->kind = step->kind;
    move->peer = step->peer;
    switch (step->kind) {
    case WEFT_STEP_SHOW:
    case WEFT_STEP_AWAIT:
        return step->value == 1;
    case WEFT_STEP_COPY:
        return resolve(binding, &step->from, &move->from, &move->len) &&
               resolve(binding, &step->to, &move->to, &ignored);
    case WEFT_STEP_REDUCE:
        move->is_final = (step->flags & WEFT_STEP_FINAL) != 0;
        return step->sources <= WEFT_REDUCE_SOURCES && step->self < step->sources &&
               step->from.space == WEFT_SPACE_SLOT && step->also.space == WEFT_SPACE_NONE &&
               resolve(binding, &step->from, &move->from, &ignored) &&
               resolve(binding, &step->from2, &move->own, &ignored) &&
               resolve(binding, &step->to, &move->to, &move->len);
    default:
        return false;
    }
}

/* As the way below takes it: others are waited for once the own line is shown, and sums come right after. */
static bool is_in_order(const struct weft_exec_quick *quick)
{
    bool is_shown = false;
    for (uint32_t i = 0; i < quick->count; i++) {
        uint8_t kind = quick->moves[i].kind;
        is_shown = is_shown || kind == WEFT_STEP_SHOW;
        if ((kind == WEFT_STEP_AWAIT && !is_shown) ||
            (kind == WEFT_STEP_REDUCE && (i == 0 || quick->moves[i - 1].kind != WEFT_STEP_AWAIT))) {
            return false;
        }
    }
    return is_shown;
}

void weft_exec_compile(struct weft_exec_job *job, struct weft_exec_quick *quick)
{
    const struct weft_exec_stage *stage = &job->stage[0];
    const struct weft_plan *plan = &stage->plan;
    struct weft_plan_step step;
    struct weft_binding binding;
    quick->count = 0;
    job->quick = NULL;
    if (job->stages != 1 || (plan->builder->traits & WEFT_PLAN_SHARED) == 0 || stage->has_mapped ||
        stage->group->ranks < 2 || plan->shows != 1 || stage->data.prelude != WEFT_PRELUDE_NONE ||
        plan->builder->rounds(plan, stage->group->rank) != 1) {
        return;
    }
    weft_bind(plan, stage->group, &stage->data, &binding);
    quick->slots_len = plan->slots * binding.slot_len;
    quick->is_short = quick->slots_len <= WEFT_BOARD_LINE_DATA;
    for (uint32_t i = 0; plan->builder->step(plan, stage->group->rank, 0, i, &step); i++) {
        struct weft_exec_move *move = &quick->moves[quick->count];
        if (step.kind == WEFT_STEP_AWAIT_FREE) {
            continue; /* comes first anyway */
        }
        if (quick->count == WEFT_EXEC_QUICK_MOVES || !compile_step(&binding, &step, move)) {
            return;
        }
        move->index = i;
        move->count =
            step.kind == WEFT_STEP_REDUCE ? move->len / weft_dtype_size(stage->data.dtype) : 0;
        quick->count += step.kind != WEFT_STEP_COPY || move->len > 0;
    }
    if (is_in_order(quick) && quick->slots_len <= stage->group->board->ring_len) {
        job->quick = quick;
    }
}

/* ---- running ---- */

struct scene { /* of one call */
    struct weft_exec *exec;
    struct weft_exec_job *job;
    struct weft_board *board;
    const uint8_t *in;
    uint8_t *out;
    bool is_short;
    bool is_unsettled; /* it has shown something, and may have to wake somebody */
    size_t slot_offset;
    int looks; /* so often it has looked for the others */
};

static inline uint8_t *slot(const struct scene *scene, uint32_t rank)
{
    struct weft_board *board = scene->board;
    return scene->is_short ? weft_board_line(board, rank)->data
                           : board->rings + rank * board->ring_len + scene->slot_offset;
}

static inline uint8_t *place(const struct scene *scene, const struct weft_exec_place *at,
                             uint32_t rank)
{
    return at->offset + (at->space == WEFT_SPACE_IN    ? (uint8_t *)scene->in
                         : at->space == WEFT_SPACE_OUT ? scene->out
                                                       : slot(scene, rank));
}

static inline void copy(const struct scene *scene, const struct weft_exec_move *move)
{
    const uint8_t *from = place(scene, &move->from, move->peer);
    uint8_t *to = place(scene, &move->to, scene->board->rank);
    if (move->len == sizeof(uint64_t)) {
        memcpy(to, from, sizeof(uint64_t));
    } else if (to != from) {
        memcpy(to, from, move->len);
        scene->exec->moved += 2 * move->len;
    }
}

struct sum { /* of a REDUCE */
    const void *sources[WEFT_REDUCE_SOURCES];
    void *output;
    struct weft_reduce what;
};

/* Where everything lies, while the others' lines are on their way. */
static inline void prepare(const struct scene *scene, const struct weft_exec_move *move,
                           struct sum *sum)
{
    const struct weft_exec_data *data = &scene->job->stage[0].data;
    uint32_t ranks = scene->board->ranks;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sum->sources[rank] =
            place(scene, rank == scene->board->rank ? &move->own : &move->from, rank);
    }
    sum->output = place(scene, &move->to, scene->board->rank);
    sum->what = (struct weft_reduce){.dtype = data->dtype,
                                     .op = data->op,
                                     .divide_by = move->is_final ? data->divide_by : 1,
                                     .before = data->before,
                                     .sources = ranks,
                                     .outputs = 1,
                                     .source = sum->sources,
                                     .output = &sum->output};
}

static inline void reduce(const struct scene *scene, const struct weft_exec_move *move,
                          const struct sum *sum)
{
    weft_reduce_run(&sum->what, move->count);
    scene->exec->moved += (sum->what.sources + 1) * move->len;
}

static inline bool is_shown(const struct weft_board *board, const struct weft_board_line *line)
{
    return weft_board_is_past(atomic_load_explicit(&line->head, memory_order_acquire),
                              board->clock + 1);
}

/* More ranks than CPUs: whoever we wait for gets ours. */
static __attribute__((noinline)) bool yield_for(const struct weft_board *board,
                                                const struct weft_board_line *line)
{
    for (int turn = 0; turn < YIELDS; turn++) {
        sched_yield();
        for (int look = 0; look < WEFT_EXEC_CROWDED_LOOKS; look++) {
            if (is_shown(board, line)) {
                return true;
            }
        }
    }
    return false;
}

static inline bool look_for(struct scene *scene, uint32_t rank, const struct weft_board_line *line)
{
    const struct weft_board *board = scene->board;
    int looks = 0;
    if (scene->exec->spec.is_crowded) {
        scene->looks = WEFT_EXEC_LOOKS;
        return is_shown(board, line) || yield_for(board, line);
    }
    for (; !is_shown(board, line); looks++) {
        if (looks == WEFT_EXEC_LOOKS ||
            (looks == WEFT_EXEC_FIRST_LOOKS && weft_exec_is_beside(board, rank))) {
            return false;
        }
        weft_exec_relax();
    }
    scene->looks += looks;
    return true;
}

/* false: not yet, or something else was called there. */
static inline bool await(struct scene *scene, uint32_t rank)
{
    struct weft_board *board = scene->board;
    const struct weft_board_line *line = weft_board_line(board, rank);
    if (!look_for(scene, rank, line)) {
        return false;
    }
    weft_board_ask_tsan(rank);
    board->known[rank] = board->clock;
    return line->signature == scene->job->signature;
}

static inline bool await_move(struct scene *scene, const struct weft_exec_move *move)
{
    struct weft_board *board = scene->board;
    if (move->peer != WEFT_PLAN_ALL) {
        return await(scene, move->peer);
    }
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        if (rank != board->rank && !await(scene, rank)) {
            return false;
        }
    }
    board->everybody = board->clock;
    return true;
}

/* With the sum that comes right after it, if there is one: prepared before, done when they are here. */
static inline bool await_and_reduce(struct scene *scene, const struct weft_exec_move *move,
                                    bool is_summed)
{
    struct sum sum;
    if (!is_summed) {
        return await_move(scene, move);
    }
    prepare(scene, &move[1], &sum);
    if (!await_move(scene, move)) {
        return false;
    }
    reduce(scene, &move[1], &sum);
    return true;
}

/* ---- recording: while the others' lines are on their way, and not before ours is on its ---- */

static inline void record(const struct scene *scene)
{
    if (scene->job->record == 0) {
        scene->job->record = weft_recorder_begin(scene->exec->spec.recorder, &scene->job->call);
    }
}

/* The clock takes ten nanoseconds; who had a line to move and did not wait has ended within a microsecond. */
static inline void record_end(const struct scene *scene)
{
    struct weft_recorder *recorder = scene->exec->spec.recorder;
    if (scene->is_short && scene->looks < BRIEF_LOOKS) {
        weft_recorder_end_briefly(recorder, scene->job->record);
    } else {
        weft_recorder_end(recorder, scene->job->record, WEFT_OK);
    }
}

/* Whoever sleeps is woken at once. One that just goes to sleep may be missed until our store has left this CPU;
 * to wait for that here would cost as much as the other one's line takes to come: settle() looks again when it has. */
static inline void show(struct scene *scene)
{
    const struct weft_exec_job *job = scene->job;
    weft_exec_show_line(job->stage[0].group, job->signature, 1);
    if (scene->exec->spec.is_crowded) {
        weft_exec_settle(scene->exec, job->stage[0].group);
    } else {
        weft_exec_wake(scene->exec, job->stage[0].group);
        scene->is_unsettled = true;
    }
}

static inline void settle(const struct scene *scene)
{
    if (scene->is_unsettled) {
        weft_exec_settle(scene->exec, scene->job->stage[0].group);
    }
}

/* The loop takes over; index: the step it begins with, or entry 1: the slots are not free yet. */
static __attribute__((noinline)) weft_status_t go_on(const struct scene *scene, uint32_t entry,
                                                     uint32_t index, uint32_t slots_free)
{
    struct weft_exec_run run = {0};
    const struct weft_exec_stage *stage = &scene->job->stage[0];
    weft_status_t status;
    settle(scene);
    record(scene);
    weft_exec_run_open(&run, scene->exec, scene->job);
    run.board = scene->board;
    run.group = stage->group;
    run.plan = &stage->plan;
    run.slot_offset = scene->slot_offset;
    run.slots_free = slots_free;
    run.is_short = scene->is_short;
    run.entry = entry;
    run.data = stage->data;
    if (entry == 0) {
        weft_bind(run.plan, run.group, &run.data, &run.binding);
        run.rounds = 1;
        run.index = index;
        run.is_begun = true;
    }
    status = weft_exec_finish(&run);
    weft_recorder_end(scene->exec->spec.recorder, scene->job->record, status);
    return status;
}

weft_status_t weft_exec_run_quickly(struct weft_exec *exec, struct weft_exec_job *job)
{
    const struct weft_exec_quick *quick = job->quick;
    const struct weft_exec_stage *stage = &job->stage[0];
    struct scene scene = {.exec = exec,
                          .job = job,
                          .board = stage->group->board,
                          .in = stage->data.in,
                          .out = stage->data.out,
                          .is_short = quick->is_short};
    uint32_t slow;
    uint32_t slots_free = quick->is_short
                              ? weft_board_take_line(scene.board)
                              : weft_board_take(scene.board, quick->slots_len, &scene.slot_offset);
    job->record = 0;
    if (!weft_board_has_ended(scene.board, slots_free, &slow)) {
        return go_on(&scene, 1, 0, slots_free);
    }
    for (uint32_t i = 0; i < quick->count; i++) {
        const struct weft_exec_move *move = &quick->moves[i];
        if (move->kind == WEFT_STEP_COPY) {
            copy(&scene, move);
        } else if (move->kind == WEFT_STEP_SHOW) {
            show(&scene);
            record(&scene);
        } else if (move->kind == WEFT_STEP_AWAIT) {
            bool is_summed = i + 1 < quick->count && move[1].kind == WEFT_STEP_REDUCE;
            if (!await_and_reduce(&scene, move, is_summed)) {
                return go_on(&scene, 0, move->index, slots_free);
            }
        }
    }
    weft_board_end(scene.board, 1, 0);
    settle(&scene);
    record_end(&scene);
    return WEFT_OK;
}
