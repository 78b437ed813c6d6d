/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What elements hold, and the steps within memory. A value is a set of contributions; what is added must be
 * the same element of the same block, and in the end every output is looked at: all contributions, each
 * once, FINAL applied once; of an allreduce, added in the same order on every rank.
 */
#include "plan/verify.h"

#include <string.h>

/* ---- values ---- */

static struct value contribution(const struct run *run, uint32_t op, uint32_t rank, uint32_t block,
                                 uint32_t element)
{
    uint64_t key = run->key[(size_t)op * run->ranks + rank];
    return (struct value){.keys = key,
                          .tree = key,
                          .block = block,
                          .element = element,
                          .ranks = 1,
                          .rank = rank & 0x3fffffff,
                          .is_there = 1};
}

static void forget(struct run *run, uint32_t base, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        run->value[base + i].is_there = 0;
    }
}

void weft_verify_fill(struct run *run, struct actor *actor)
{
    const uint32_t *in = actor->in_offset, *out = actor->out_offset;
    forget(run, actor->out_base + out[actor->out_from], out[actor->out_to] - out[actor->out_from]);
    forget(run, actor->tmp_base, run->plan->tmp_units * run->longest);
    for (uint32_t block = actor->in_from; block < actor->in_to; block++) {
        for (uint32_t i = 0; i < in[block + 1] - in[block]; i++) {
            run->value[actor->in_base + in[block] + i] =
                contribution(run, actor->op, actor->rank, block, i);
        }
    }
}

bool weft_verify_read(struct run *run, const struct actor *actor, uint32_t cell,
                      struct value *value_p)
{
    *value_p = run->value[cell];
    if (!value_p->is_there) {
        return weft_verify_fail(run, actor, "reads memory before it is written");
    }
    return true;
}

bool weft_verify_add(struct run *run, const struct actor *actor, const struct value *other,
                     struct value *sum)
{
    uint64_t a = sum->tree, b = other->tree;
    if (sum->block != other->block || sum->element != other->element) {
        return weft_verify_fail(run, actor, "adds block %u to block %u", other->block, sum->block);
    }
    if (sum->is_final || other->is_final) {
        return weft_verify_fail(run, actor, "adds to block %u after FINAL", sum->block);
    }
    sum->keys += other->keys;
    sum->ranks += other->ranks;
    /* a op b is b op a to the bit, but (a op b) op c is not a op (b op c). */
    sum->tree = weft_verify_mix(a + b) ^ weft_verify_mix((a ^ b) + 1);
    return true;
}

bool weft_verify_finish(struct run *run, const struct actor *actor, uint8_t flags,
                        struct value *sum)
{
    if ((flags & WEFT_STEP_FINAL) == 0) {
        return true;
    }
    if (sum->is_final) {
        return weft_verify_fail(run, actor, "FINAL twice");
    }
    sum->is_final = 1;
    return true;
}

/* ---- the end ---- */

static bool say_wrong(struct run *run, const struct actor *actor, const struct value *got,
                      const struct value *wanted)
{
    const uint64_t *key = &run->key[(size_t)actor->op * run->ranks];
    if (!got->is_there) {
        return weft_verify_fail(run, actor, "block %u of OUT was never written", wanted->block);
    }
    if (got->block != wanted->block || got->element != wanted->element) {
        return weft_verify_fail(run, actor, "OUT has block %u, element %u instead of %u, %u",
                                got->block, got->element, wanted->block, wanted->element);
    }
    for (uint32_t rank = 0; got->keys != wanted->keys && rank < run->ranks; rank++) {
        if (wanted->keys - got->keys == key[rank]) {
            return weft_verify_fail(run, actor, "block %u of OUT lacks rank %u", got->block, rank);
        }
        if (got->keys - wanted->keys == key[rank]) {
            return weft_verify_fail(run, actor, "block %u of OUT has rank %u twice", got->block,
                                    rank);
        }
    }
    if (got->keys != wanted->keys) {
        return weft_verify_fail(run, actor, "block %u of OUT has %u wrong contributions",
                                got->block, got->ranks);
    }
    return weft_verify_fail(run, actor, "block %u of OUT %s FINAL", got->block,
                            got->is_final ? "should not be" : "was never");
}

/* What an element of OUT should be; of sums only what is compared. */
static struct value wanted_at(const struct run *run, const struct actor *actor, uint32_t block,
                              uint32_t element)
{
    const struct weft_plan *plan = run->plan;
    uint32_t piece = run->is_vector ? 0 : block / plan->segments;
    struct value wanted;
    switch ((weft_coll_t)plan->coll) {
    case WEFT_ALLGATHER:
    case WEFT_GATHER:
        return contribution(run, actor->op, piece, block, element);
    case WEFT_ALLTOALL:
        block = actor->rank * plan->segments + block % plan->segments;
        return contribution(run, actor->op, piece, block, element);
    case WEFT_BROADCAST:
    case WEFT_SCATTER:
        return contribution(run, actor->op, plan->root, block, element);
    default:
        wanted = contribution(run, actor->op, 0, block, element);
        wanted.keys = run->all_keys[actor->op];
        wanted.is_final = 1;
        return wanted;
    }
}

static bool is_same_everywhere(struct run *run, const struct actor *actor, const struct value *got,
                               uint32_t at)
{
    uint64_t *tree = &run->tree[(size_t)actor->op * run->offset[run->blocks] + at];
    if (*tree == 0) {
        *tree = got->tree;
    }
    return *tree == got->tree ||
           weft_verify_fail(run, actor,
                            "block %u was added in another order than elsewhere: bits "
                            "of ranks may differ",
                            got->block);
}

bool weft_verify_result(struct run *run, const struct actor *actor)
{
    const uint32_t *offset = actor->out_offset;
    bool is_in_order =
        run->is_reduced && (run->plan->builder->traits & WEFT_PLAN_IN_RANK_ORDER) != 0;
    for (uint32_t block = actor->out_from; block < actor->out_to; block++) {
        for (uint32_t i = 0; i < offset[block + 1] - offset[block]; i++) {
            struct value wanted = wanted_at(run, actor, block, i);
            const struct value *got = &run->value[actor->out_base + offset[block] + i];
            if (!got->is_there || got->keys != wanted.keys || got->block != wanted.block ||
                got->element != wanted.element || got->is_final != wanted.is_final) {
                return say_wrong(run, actor, got, &wanted);
            }
            if (is_in_order && !got->is_in_order) {
                return weft_verify_fail(run, actor,
                                        "block %u was not added in rank order in one "
                                        "pass",
                                        block);
            }
            if (run->tree != NULL && !is_same_everywhere(run, actor, got, offset[block] + i)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- COPY and REDUCE ---- */

static bool overlaps_partly(const struct extent *a, const struct extent *b)
{
    return a->cell != b->cell && a->cell < b->cell + b->len && b->cell < a->cell + a->len;
}

static uint32_t owner_of(const struct actor *actor, const struct weft_plan_ref *ref, uint32_t rank)
{
    return ref->space == WEFT_SPACE_SLOT || ref->space == WEFT_SPACE_THEIR_IN ? rank : actor->rank;
}

/* Something to read: by now, and in order. */
static bool open_source(struct run *run, const struct actor *actor, const struct weft_plan_ref *ref,
                        uint32_t owner, struct extent *extent_p)
{
    if (owner >= run->ranks) {
        return weft_verify_fail(run, actor, "there is no rank %u", owner);
    }
    return weft_verify_find(run, actor, ref, owner, extent_p) &&
           weft_verify_may_read(run, actor, extent_p) &&
           (!run->is_shared || weft_verify_touch_read(run, actor, extent_p));
}

/* The targets of a step, one by one: `to` (of every rank that has the blocks), then `also`. */
struct targets {
    const struct weft_plan_step *step;
    uint32_t next; /* rank, or beyond */
};

static bool next_target(struct run *run, const struct actor *actor, struct targets *targets,
                        struct extent *extent_p)
{
    const struct weft_plan_ref *to = &targets->step->to, *also = &targets->step->also;
    if (to->space != WEFT_SPACE_ALL_OUT && targets->next == 0) {
        targets->next = run->ranks;
        return weft_verify_find(run, actor, to, actor->rank, extent_p);
    }
    while (targets->next < run->ranks) {
        uint32_t rank = targets->next++;
        if (to->block >= run->actors[rank].out_from && to->block < run->actors[rank].out_to) {
            return weft_verify_find(run, actor, to, rank, extent_p);
        }
    }
    if (targets->next == run->ranks && also->space != WEFT_SPACE_NONE) {
        targets->next++;
        return weft_verify_find(run, actor, also, actor->rank, extent_p);
    }
    return false;
}

/* Can all of them be written to now? */
static enum turn open_targets(struct run *run, struct actor *actor,
                              const struct weft_plan_step *step, uint32_t len)
{
    struct targets targets = {.step = step};
    struct extent to;
    bool is_also_slot = step->also.space == WEFT_SPACE_NONE || step->also.space == WEFT_SPACE_SLOT;
    if (step->to.space == WEFT_SPACE_IN || step->to.space == WEFT_SPACE_THEIR_IN || !is_also_slot) {
        weft_verify_say(run, actor, "writes to IN, or also to something that is no slot");
        return TURN_FAILED;
    }
    while (next_target(run, actor, &targets, &to)) {
        if (to.len != len) {
            weft_verify_say(run, actor, "%u elements for %u", len, to.len);
            return TURN_FAILED;
        }
        if (weft_verify_is_sent(run, &to)) {
            actor->waiting = WAIT_SENT;
            return TURN_WAIT;
        }
        if (!weft_verify_may_write(run, actor, &to)) {
            return TURN_FAILED;
        }
    }
    return run->verdict->is_right ? TURN_ON : TURN_FAILED;
}

static bool write_targets(struct run *run, const struct actor *actor,
                          const struct weft_plan_step *step, uint32_t element,
                          const struct value *value)
{
    struct targets targets = {.step = step};
    struct extent to;
    while (next_target(run, actor, &targets, &to)) {
        struct extent one = {to.cell + element, 1};
        if (run->is_shared && !weft_verify_touch_write(run, actor, &one)) {
            return false;
        }
        run->value[one.cell] = *value;
    }
    return run->verdict->is_right;
}

/* No target may lie across a source: the rest of it would be read too late. */
static bool is_apart(struct run *run, const struct actor *actor, const struct weft_plan_step *step,
                     const struct extent *source)
{
    struct targets targets = {.step = step};
    struct extent to;
    while (next_target(run, actor, &targets, &to)) {
        if (overlaps_partly(source, &to)) {
            return weft_verify_fail(run, actor, "writes across what it reads");
        }
    }
    return run->verdict->is_right;
}

/* In place a copy of IN to OUT is nothing. */
static bool is_itself(struct run *run, const struct actor *actor, const struct weft_plan_step *step,
                      const struct extent *from)
{
    struct targets targets = {.step = step};
    struct extent to;
    return step->to.space == WEFT_SPACE_OUT && next_target(run, actor, &targets, &to) &&
           to.cell == from->cell;
}

enum turn weft_verify_copy(struct run *run, struct actor *actor, const struct weft_plan_step *step)
{
    struct extent from;
    struct value value;
    enum turn turn;
    if (!open_source(run, actor, &step->from, owner_of(actor, &step->from, step->peer), &from)) {
        return TURN_FAILED;
    }
    turn = open_targets(run, actor, step, from.len);
    if (turn != TURN_ON || is_itself(run, actor, step, &from)) {
        return turn;
    }
    if (!is_apart(run, actor, step, &from)) {
        return TURN_FAILED;
    }
    for (uint32_t i = 0; i < from.len; i++) {
        if (!weft_verify_read(run, actor, from.cell + i, &value) ||
            !write_targets(run, actor, step, i, &value)) {
            return TURN_FAILED;
        }
    }
    return TURN_ON;
}

static bool find_source(struct run *run, const struct actor *actor,
                        const struct weft_plan_step *step, uint32_t number, struct extent *extent_p)
{
    struct weft_plan_ref ref = step->from;
    if (number == step->self) {
        return open_source(run, actor, &step->from2, actor->rank, extent_p);
    }
    if (ref.space == WEFT_SPACE_TMP) {
        ref.at += number - (number > step->self);
    } else if (ref.space != WEFT_SPACE_SLOT && ref.space != WEFT_SPACE_THEIR_IN) {
        return weft_verify_fail(run, actor, "reduces several sources from one buffer");
    }
    return open_source(run, actor, &ref, owner_of(actor, &ref, number), extent_p);
}

/* One element of all sources. */
static bool sum_up(struct run *run, const struct actor *actor, const struct weft_plan_step *step,
                   uint32_t element, struct value *sum_p)
{
    bool is_in_order = step->sources == run->ranks;
    struct value sum = {0}, other;
    for (uint32_t i = 0; i < step->sources; i++) {
        if (!weft_verify_read(run, actor, run->sources[i].cell + element, &other)) {
            return false;
        }
        is_in_order = is_in_order && other.ranks == 1 && other.rank == i;
        if (i == 0) {
            sum = other;
        } else if (!weft_verify_add(run, actor, &other, &sum)) {
            return false;
        }
    }
    sum.is_in_order = is_in_order;
    *sum_p = sum;
    return weft_verify_finish(run, actor, step->flags, sum_p);
}

enum turn weft_verify_reduce(struct run *run, struct actor *actor,
                             const struct weft_plan_step *step)
{
    struct extent *sources = run->sources;
    struct value sum;
    enum turn turn;
    if (step->sources == 0 || step->sources > run->ranks) {
        weft_verify_say(run, actor, "reduces %u sources", step->sources);
        return TURN_FAILED;
    }
    for (uint32_t i = 0; i < step->sources; i++) {
        if (!find_source(run, actor, step, i, &sources[i]) ||
            !is_apart(run, actor, step, &sources[i])) {
            return TURN_FAILED;
        }
        if (sources[i].len != sources[0].len) {
            weft_verify_say(run, actor, "sources of %u and %u elements", sources[0].len,
                            sources[i].len);
            return TURN_FAILED;
        }
    }
    turn = open_targets(run, actor, step, sources[0].len);
    for (uint32_t i = 0; turn == TURN_ON && i < sources[0].len; i++) {
        if (!sum_up(run, actor, step, i, &sum) || !write_targets(run, actor, step, i, &sum)) {
            return TURN_FAILED;
        }
    }
    return turn;
}
