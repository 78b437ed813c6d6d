/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the verifier: every element of every buffer of every rank is a cell, so that overlaps are what
 * they are, whatever the sizes of blocks. In place, IN and OUT have cells in common.
 *
 * Slots: AWAIT_FREE(v) says that the slots of the operation v before are free, so the slots of v operations
 * lie beside each other, used in turn; without it every operation has the same ones.
 */
#include "plan/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

static uint32_t draw_size(const struct run *run, uint64_t number)
{
    uint32_t sizes = run->size_most - run->size_least + 1;
    return run->size_least + (uint32_t)(weft_verify_mix(run->random ^ number) % sizes);
}

/* `from`: whose piece it is, where pieces of the same number differ. */
static uint32_t size_of(const struct run *run, uint32_t block, uint32_t from)
{
    const struct weft_plan *plan = run->plan;
    bool is_equal = (plan->builder->traits & WEFT_PLAN_EQUAL_ONLY) != 0 && !run->is_vector;
    return draw_size(run, is_equal ? block % plan->segments : (uint64_t)from << 32 | block);
}

static void add_up(struct run *run, uint32_t *offset, uint32_t rank, bool is_out)
{
    const struct weft_plan *plan = run->plan;
    bool is_crossed = plan->coll == WEFT_ALLTOALL;
    offset[0] = 0;
    for (uint32_t block = 0; block < run->blocks; block++) {
        uint32_t piece = run->is_vector ? 0 : block / plan->segments;
        uint32_t segment = run->is_vector ? 0 : block % plan->segments;
        uint32_t size = !is_crossed ? size_of(run, block, 0)
                        : is_out    ? size_of(run, rank * plan->segments + segment, piece)
                                    : size_of(run, block, rank);
        offset[block + 1] = offset[block] + size;
        run->longest = size > run->longest ? size : run->longest;
    }
}

static bool open_sizes(struct run *run)
{
    const struct weft_plan *plan = run->plan;
    bool is_each = plan->coll == WEFT_ALLTOALL && run->size_least < run->size_most;
    size_t len;
    run->blocks = plan->coll == WEFT_BARRIER ? 0
                  : run->is_vector           ? plan->parts
                                             : plan->ranks * plan->segments;
    len = (size_t)run->blocks + 1;
    run->longest = 1;
    run->offset = calloc(is_each ? 2 * len * run->ranks : len, sizeof(*run->offset));
    if (run->offset == NULL) {
        return weft_verify_no_memory(run);
    }
    if (!is_each) {
        add_up(run, run->offset, 0, false);
    }
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        struct actor *actor = &run->actors[rank];
        actor->in_offset = actor->out_offset = run->offset;
        if (is_each) {
            uint32_t *in = run->offset + (size_t)2 * rank * len, *out = in + len;
            add_up(run, in, rank, false);
            add_up(run, out, rank, true);
            actor->in_offset = in;
            actor->out_offset = out;
        }
    }
    return true;
}

/* ---- buffers ---- */

/* Which blocks a rank has in IN and OUT. */
static void set_ranges(const struct run *run, struct actor *actor)
{
    const struct weft_plan *plan = run->plan;
    weft_coll_t coll = (weft_coll_t)plan->coll;
    bool is_root = actor->rank == plan->root;
    bool has_in = (coll != WEFT_BROADCAST && coll != WEFT_SCATTER) || is_root;
    bool has_out = (coll != WEFT_REDUCE && coll != WEFT_GATHER) || is_root;
    uint32_t own = actor->rank * plan->segments;
    bool is_in_own = coll == WEFT_ALLGATHER || coll == WEFT_GATHER;
    bool is_out_own = coll == WEFT_REDUCE_SCATTER || coll == WEFT_SCATTER;
    actor->in_from = is_in_own ? own : 0;
    actor->in_to = !has_in ? actor->in_from : is_in_own ? own + plan->segments : run->blocks;
    actor->out_from = is_out_own ? own : 0;
    actor->out_to = !has_out ? actor->out_from : is_out_own ? own + plan->segments : run->blocks;
}

static uint32_t len_of(const uint32_t *offset, uint32_t from, uint32_t to)
{
    return offset[to] - offset[from];
}

/* Takes the cells of one rank from *cells_p on. Bases may be below zero: they are added to, modulo 2^32. */
static void place_buffers(struct run *run, struct actor *actor, uint64_t *cells_p)
{
    const struct weft_plan *plan = run->plan;
    uint32_t in_len = len_of(actor->in_offset, actor->in_from, actor->in_to);
    uint32_t out_len = len_of(actor->out_offset, actor->out_from, actor->out_to);
    bool can_be = actor->in_from < actor->in_to && actor->out_from < actor->out_to &&
                  plan->coll != WEFT_ALLTOALL;
    uint32_t least = actor->in_from < actor->out_from ? actor->in_from : actor->out_from;
    uint64_t cells = *cells_p;
    actor->is_in_place = can_be && weft_verify_random(run) % 100 < run->in_place;
    if (actor->is_in_place) {
        actor->in_base = actor->out_base = (uint32_t)cells - actor->in_offset[least];
        cells += in_len > out_len ? in_len : out_len;
    } else {
        actor->in_base = (uint32_t)cells - actor->in_offset[actor->in_from];
        cells += in_len;
        actor->out_base = (uint32_t)cells - actor->out_offset[actor->out_from];
        cells += out_len;
    }
    actor->tmp_base = (uint32_t)cells;
    cells += (uint64_t)plan->tmp_units * run->longest;
    actor->slot_base = (uint32_t)cells;
    cells += (uint64_t)run->areas * plan->slots * plan->slot_blocks * run->longest;
    *cells_p = cells;
}

static bool count_areas(struct run *run)
{
    const struct weft_plan *plan = run->plan;
    run->areas = 1;
    for (uint32_t rank = 0; run->is_shared && rank < run->ranks; rank++) {
        uint32_t rounds = plan->builder->rounds(plan, rank);
        struct weft_plan_step step;
        for (uint32_t round = 0; round < rounds; round++) {
            for (uint32_t i = 0; plan->builder->step(plan, rank, round, i, &step); i++) {
                if (step.kind == WEFT_STEP_AWAIT_FREE && step.value != run->areas) {
                    if (step.value == 0 || run->areas > 1) {
                        return weft_verify_fail(run, NULL, "AWAIT_FREE of %u and of %u", run->areas,
                                                step.value);
                    }
                    run->areas = step.value;
                }
            }
        }
    }
    return true;
}

bool weft_verify_memory_open(struct run *run)
{
    uint64_t cells = 0;
    if (!count_areas(run) || !open_sizes(run)) {
        return false;
    }
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        set_ranges(run, &run->actors[rank]);
        place_buffers(run, &run->actors[rank], &cells);
    }
    if (cells >= NOWHERE) {
        return weft_verify_fail(run, NULL, "too large to verify");
    }
    run->cells = (uint32_t)cells;
    run->value = calloc(cells + 1, sizeof(*run->value));
    run->mark = calloc(cells + 1, sizeof(*run->mark));
    run->sending = calloc(cells + 1, sizeof(*run->sending));
    if (run->is_shared) {
        run->touch = calloc(cells + 1, sizeof(*run->touch));
    }
    if (run->plan->coll == WEFT_ALLREDUCE) {
        run->tree =
            calloc((size_t)run->operations * run->offset[run->blocks] + 1, sizeof(*run->tree));
    }
    if (run->value == NULL || run->mark == NULL || run->sending == NULL ||
        (run->is_shared && run->touch == NULL) ||
        (run->plan->coll == WEFT_ALLREDUCE && run->tree == NULL)) {
        return weft_verify_no_memory(run);
    }
    for (uint32_t cell = 0; run->touch != NULL && cell < run->cells; cell++) {
        run->touch[cell].writer = run->touch[cell].reader = NOBODY;
    }
    return true;
}

void weft_verify_memory_close(struct run *run)
{
    for (uint32_t cell = 0; run->touch != NULL && cell < run->cells; cell++) {
        free(run->touch[cell].readers);
    }
    free(run->touch);
    free(run->tree);
    free(run->sending);
    free(run->mark);
    free(run->value);
    free(run->offset);
}

/* ---- where a reference lies ---- */

static bool find_user(struct run *run, const struct actor *actor, const struct weft_plan_ref *ref,
                      const struct actor *owner, bool is_out, struct extent *extent_p)
{
    const uint32_t *offset = is_out ? owner->out_offset : owner->in_offset;
    uint32_t from = is_out ? owner->out_from : owner->in_from;
    uint32_t to = is_out ? owner->out_to : owner->in_to;
    if (ref->block < from || ref->block >= to || ref->blocks > to - ref->block) {
        return weft_verify_fail(run, actor, "rank %u has no blocks %u to %u in %s", owner->rank,
                                ref->block, ref->block + ref->blocks - 1, is_out ? "OUT" : "IN");
    }
    extent_p->cell = (is_out ? owner->out_base : owner->in_base) + offset[ref->block];
    extent_p->len = len_of(offset, ref->block, ref->block + ref->blocks);
    return true;
}

/* TMP or SLOT: from `base` on, in `units` areas of unit_len elements of which it may use `span`. */
static bool find_unit(struct run *run, const struct actor *actor, const struct weft_plan_ref *ref,
                      const struct actor *owner, struct extent *extent_p)
{
    const struct weft_plan *plan = run->plan;
    bool is_slot = ref->space == WEFT_SPACE_SLOT;
    const uint32_t *offset = owner->in_offset;
    uint64_t unit_len = (uint64_t)run->longest * (is_slot ? plan->slot_blocks : 1);
    uint32_t units = is_slot ? plan->slots : plan->tmp_units;
    uint64_t from, end, len;
    if (ref->origin > ref->block || ref->block >= run->blocks ||
        ref->blocks > run->blocks - ref->block || ref->at >= units) {
        return weft_verify_fail(run, actor, "%s %u with blocks %u to %u from %u on does not exist",
                                is_slot ? "slot" : "TMP", ref->at, ref->block,
                                ref->block + ref->blocks - 1, ref->origin);
    }
    from = ref->at * unit_len + len_of(offset, ref->origin, ref->block);
    len = len_of(offset, ref->block, ref->block + ref->blocks);
    end = is_slot ? (ref->at + 1) * unit_len : units * unit_len;
    if (from + len > end) {
        return weft_verify_fail(run, actor, "blocks %u to %u go beyond the end of %s", ref->block,
                                ref->block + ref->blocks - 1, is_slot ? "the slot" : "TMP");
    }
    if (is_slot) {
        from += actor->op % run->areas * (units * unit_len) + owner->slot_base;
    } else {
        from += owner->tmp_base;
    }
    *extent_p = (struct extent){(uint32_t)from, (uint32_t)len};
    return true;
}

bool weft_verify_find(struct run *run, const struct actor *actor, const struct weft_plan_ref *ref,
                      uint32_t owner, struct extent *extent_p)
{
    const struct actor *whose = &run->actors[owner];
    bool is_mapped_only = ref->space == WEFT_SPACE_THEIR_IN || ref->space == WEFT_SPACE_ALL_OUT;
    *extent_p = (struct extent){0, 0};
    if (is_mapped_only && !run->is_mapped) {
        return weft_verify_fail(run, actor, "another rank's buffer without the trait MAPPED");
    }
    if (ref->blocks == 0) {
        return true;
    }
    switch ((enum weft_plan_space)ref->space) {
    case WEFT_SPACE_IN:
    case WEFT_SPACE_THEIR_IN:
        return find_user(run, actor, ref, whose, false, extent_p);
    case WEFT_SPACE_OUT:
    case WEFT_SPACE_ALL_OUT:
        return find_user(run, actor, ref, whose, true, extent_p);
    case WEFT_SPACE_TMP:
    case WEFT_SPACE_SLOT:
        return find_unit(run, actor, ref, whose, extent_p);
    case WEFT_SPACE_NONE:
        break;
    }
    return weft_verify_fail(run, actor, "blocks of nothing");
}

bool weft_verify_is_one_piece(const struct run *run, const struct weft_plan_ref *ref)
{
    uint32_t segments = run->plan->segments;
    bool is_user = ref->space == WEFT_SPACE_IN || ref->space == WEFT_SPACE_OUT;
    return !is_user || run->is_vector || ref->blocks == 0 ||
           ref->block / segments == (ref->block + ref->blocks - 1) / segments;
}

/* ---- who may touch it now ---- */

bool weft_verify_is_sent(const struct run *run, const struct extent *extent)
{
    for (uint32_t i = 0; i < extent->len; i++) {
        if (run->sending[extent->cell + i] > 0) {
            return true;
        }
    }
    return false;
}

/* What a cell's mark says about the present round. */
enum mark { MARK_NOT, MARK_FROM, MARK_REDUCE, MARK_RECV };
#define MARK_KINDS 4

static enum mark mark_of(const struct run *run, const struct actor *actor, uint32_t cell)
{
    uint32_t mark = run->mark[cell];
    return mark / MARK_KINDS == actor->mark ? (enum mark)(mark % MARK_KINDS) : MARK_NOT;
}

static bool set_marks(struct run *run, const struct actor *actor, const struct extent *extent,
                      enum mark mark)
{
    for (uint32_t cell = extent->cell; cell < extent->cell + extent->len; cell++) {
        enum mark before = mark_of(run, actor, cell);
        if (before == MARK_RECV || (mark == MARK_RECV && before != MARK_NOT)) {
            return weft_verify_fail(run, actor, "two receives of one round touch the same memory");
        }
        if (mark > before) {
            run->mark[cell] = actor->mark * MARK_KINDS + mark;
        }
    }
    return true;
}

bool weft_verify_mark_recv(struct run *run, const struct actor *actor,
                           const struct weft_plan_step *step)
{
    bool is_reduce = step->kind == WEFT_STEP_RECV_REDUCE;
    struct extent to, from = {0, 0};
    if (step->to.space == WEFT_SPACE_IN) {
        return weft_verify_fail(run, actor, "writes to IN");
    }
    if (!weft_verify_find(run, actor, &step->to, actor->rank, &to) ||
        (is_reduce && step->from.space != WEFT_SPACE_NONE &&
         !weft_verify_find(run, actor, &step->from, actor->rank, &from))) {
        return false;
    }
    if (is_reduce && step->from.space != WEFT_SPACE_NONE && from.len != to.len) {
        return weft_verify_fail(run, actor, "%u elements of its own for %u", from.len, to.len);
    }
    if (from.len > 0 && from.cell != to.cell && from.cell < to.cell + to.len &&
        to.cell < from.cell + from.len) {
        return weft_verify_fail(run, actor, "reduces from memory that overlaps where to");
    }
    return set_marks(run, actor, &to, is_reduce ? MARK_REDUCE : MARK_RECV) &&
           set_marks(run, actor, &from, MARK_FROM);
}

bool weft_verify_may_read(struct run *run, const struct actor *actor, const struct extent *extent)
{
    for (uint32_t i = 0; i < extent->len; i++) {
        if (mark_of(run, actor, extent->cell + i) >= MARK_REDUCE) {
            return weft_verify_fail(run, actor, "reads what its own round receives");
        }
    }
    return true;
}

bool weft_verify_may_write(struct run *run, const struct actor *actor, const struct extent *extent)
{
    for (uint32_t i = 0; i < extent->len; i++) {
        if (mark_of(run, actor, extent->cell + i) != MARK_NOT) {
            return weft_verify_fail(run, actor, "writes to what a receive of its round needs");
        }
    }
    return true;
}
