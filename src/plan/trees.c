/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on a tree of ranks, in segments that follow each other through it. In round t a rank
 *
 *   up     adds segment t of its children to its own and sends segment t - 1 to its parent
 *          (a leaf has nothing to wait for and sends segment t)
 *   down   receives segment t - late from its parent and sends segment t - late - 1 to its children
 *
 * Broadcast has only `down`, reduce only `up`. What `late` is: nobody may wait in a round for somebody who
 * waits for him. One tree of broadcasts: 0. In two, a rank's parent in the one is below it in the other, but
 * with late = depth - 1 everybody waits for what its parent sends in the same round, before it waits itself.
 * Allreduce goes both ways at once: a rank in round t needs its children in the same round and its parent in
 * an earlier one. With late = depth + 1 that is so: the parent sends segment s down in round s + depth + 1,
 * when its round s + depth is over; that needed segment s + depth of the rank, which sent it in round
 * s + depth + 1 at the latest and waits for s only there. (One less would do but for this: segment t - 1 may
 * not be sent and overwritten in one round.)
 */
#include "plan/trees.h"

#define WINDOW 4 /* sums of a reduce that are on their way to the parent at once */

struct course {
    bool is_up, is_down;
    bool is_root, is_leaf;
    uint32_t up_late;   /* in round t segment t - up_late is sent to the parent */
    uint32_t recv_late; /* in round t segment t - recv_late comes from it, */
    uint32_t send_late; /* and this one goes to the children */
};

static struct course course_of(const struct tree_form *form, const struct weft_plan *plan,
                               const struct tree_place *place)
{
    struct course course = {
        .is_up = plan->coll != WEFT_BROADCAST,
        .is_down = plan->coll != WEFT_REDUCE,
        .is_root = place->parent == TREE_NOBODY,
        .is_leaf = place->children == 0,
    };
    course.up_late = course.is_leaf ? 0 : 1;
    course.recv_late = course.is_up                         ? place->depth + 1
                       : form->trees > 1 && !course.is_root ? place->depth - 1
                                                            : 0;
    course.send_late = course.is_root ? (course.is_up ? 1 : 0) : course.recv_late + 1;
    return course;
}

bool weft_tree_shape(const struct tree_form *form, struct weft_plan *plan)
{
    if (plan->coll == WEFT_BARRIER) {
        plan->segments = 1;
        return true;
    }
    plan->parts = plan->segments * form->trees;
    if (plan->coll == WEFT_REDUCE && plan->ranks > 2) {
        plan->tmp_units = form->trees * least(plan->segments, WINDOW);
    }
    return true;
}

uint32_t weft_tree_rounds(const struct tree_form *form, const struct weft_plan *plan, uint32_t rank)
{
    uint32_t latest = 0;
    if (plan->ranks == 1) {
        return 1;
    }
    for (uint32_t tree = 0; tree < form->trees; tree++) {
        struct tree_place place;
        struct course course;
        form->place(plan, tree, rank, &place);
        course = course_of(form, plan, &place);
        if (course.is_up && !course.is_root) {
            latest = most(latest, course.up_late);
        }
        if (course.is_down) {
            latest = most(latest, course.is_leaf ? course.recv_late : course.send_late);
        }
    }
    return latest + plan->segments;
}

/* Is there a segment with this delay in the round? */
static bool has_segment(const struct weft_plan *plan, uint32_t round, uint32_t late,
                        uint32_t *segment_p)
{
    *segment_p = round - late;
    return round >= late && round - late < plan->segments;
}

/* Where a segment is summed up. */
static struct weft_plan_ref sum_at(const struct weft_plan *plan, const struct course *course,
                                   uint32_t tree, uint32_t segment)
{
    uint32_t block = tree * plan->segments + segment, window = least(plan->segments, WINDOW);
    return plan->coll == WEFT_ALLREDUCE || course->is_root
               ? ref_out(block, 1)
               : ref_tmp(tree * window + segment % window, block, 1);
}

static bool take_sends(const struct tree_form *form, const struct weft_plan *plan, uint32_t tree,
                       const struct tree_place *place, uint32_t round, uint32_t *index,
                       struct weft_plan_step *step_p)
{
    struct course course = course_of(form, plan, place);
    bool is_empty = plan->coll == WEFT_BARRIER;
    uint32_t base = tree * plan->segments, segment, i;
    if (course.is_up && !course.is_root && has_segment(plan, round, course.up_late, &segment) &&
        take_one(index, true)) {
        return step_send(step_p, place->parent,
                         is_empty         ? ref_none()
                         : course.is_leaf ? ref_in(base + segment, 1)
                                          : sum_at(plan, &course, tree, segment));
    }
    if (course.is_down && has_segment(plan, round, course.send_late, &segment) &&
        take(index, place->children, &i)) {
        bool is_input = course.is_root && plan->coll == WEFT_BROADCAST;
        return step_send(step_p, place->child[place->children - 1 - i],
                         is_empty   ? ref_none()
                         : is_input ? ref_in(base + segment, 1)
                                    : ref_out(base + segment, 1));
    }
    return false;
}

static bool take_recvs(const struct tree_form *form, const struct weft_plan *plan, uint32_t tree,
                       const struct tree_place *place, uint32_t round, uint32_t *index,
                       struct weft_plan_step *step_p)
{
    struct course course = course_of(form, plan, place);
    bool is_empty = plan->coll == WEFT_BARRIER;
    uint32_t base = tree * plan->segments, segment, i;
    if (course.is_up && has_segment(plan, round, 0, &segment) && take(index, place->children, &i)) {
        if (is_empty) {
            return step_recv(step_p, place->child[i], ref_none());
        }
        return step_recv_reduce(step_p, place->child[i], sum_at(plan, &course, tree, segment),
                                i == 0 ? ref_in(base + segment, 1) : ref_none(),
                                course.is_root && i == place->children - 1);
    }
    if (course.is_down && !course.is_root && has_segment(plan, round, course.recv_late, &segment) &&
        take_one(index, true)) {
        return step_recv(step_p, place->parent, is_empty ? ref_none() : ref_out(base + segment, 1));
    }
    return false;
}

bool weft_tree_step(const struct tree_form *form, const struct weft_plan *plan, uint32_t rank,
                    uint32_t round, uint32_t index, struct weft_plan_step *step_p)
{
    struct tree_place places[2];
    if (plan->ranks == 1) {
        return step_alone(plan, index, step_p);
    }
    for (uint32_t tree = 0; tree < form->trees; tree++) {
        form->place(plan, tree, rank, &places[tree]);
        if (take_sends(form, plan, tree, &places[tree], round, &index, step_p)) {
            return true;
        }
    }
    for (uint32_t tree = 0; tree < form->trees; tree++) {
        if (take_recvs(form, plan, tree, &places[tree], round, &index, step_p)) {
            return true;
        }
    }
    /* Last of all: nothing of the root's waits for it. */
    return plan->coll == WEFT_BROADCAST && rank == plan->root && round == plan->segments - 1 &&
           take_one(&index, true) &&
           step_copy(step_p, ref_out(0, plan->parts), ref_in(0, plan->parts));
}
