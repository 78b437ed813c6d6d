/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word: all others have the verdicts, so who leaves for one may go. Were it to go at once, it may have been the only
 * one who knew: whoever it had told may die before it tells those below it, or orphans may not have found us yet, and
 * they would judge anew.
 *
 *   HEARTBEAT up    comm: so many of the verdicts that you told me are known to all below me
 *   HEARTBEAT down  WORD: all others know all that I told you
 *
 * Both are said with every beat, so it does not matter if one is lost with its path. Who has nobody below it is not
 * waited for: it reads what it was told, or dies. (A leaf that has never called anything does not even beat.) Nor is who
 * stands still: those below it hear beside the tree (aside.c).
 */
#include "control/internal.h"

#define WORD_MS 1000 /* nobody waits for it any more */

static bool is_awaited(const struct weft_control_child *child)
{
    return child->conn != NULL && child->heard != child->told &&
           !weft_control_watch_is_silent(child->watch);
}

static bool is_any_awaited(const struct weft_control *control)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (is_awaited(&control->children[i])) {
            return true;
        }
    }
    return false;
}

static bool is_awaited_rank(const struct weft_control *control, uint32_t rank)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].rank == rank) {
            return is_awaited(&control->children[i]);
        }
    }
    return false;
}

/* As far as we know, those who are on their way to us or to our children included. */
static bool have_all_below(struct weft_control *control)
{
    if (weft_control_heal_expects(control)) {
        return false;
    }
    for (uint32_t rank = 0; is_any_awaited(control) && rank < control->self.ranks; rank++) {
        if (!control->is_out[rank] && rank != control->self.rank &&
            is_awaited_rank(control, weft_control_tree_up(&control->tree, control->is_out, rank))) {
            return false;
        }
    }
    return true;
}

void weft_control_word_said(struct weft_control *control)
{
    control->is_word_due = true;
    control->told++;
}

void weft_control_word_new_parent(struct weft_control *control)
{
    control->is_word_due = control->parent != NULL; /* what we told it, others may not have yet */
    control->told = control->heard = 0;
}

void weft_control_word_arrived(struct weft_control *control, const struct weft_net_conn *from,
                               const struct weft_wire_frame *beat)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        struct weft_control_child *child = &control->children[i];
        if (child->conn == from && child->heard != beat->comm) {
            child->heard = beat->comm;
            weft_control_word_check(control);
        }
    }
    if (from == control->parent && (beat->flags & WEFT_WIRE_FLAG_WORD) != 0) {
        control->is_word_due = false;
        weft_control_word_check(control);
    }
}

void weft_control_word_check(struct weft_control *control)
{
    bool is_long_ago =
        control->judged_ns == 0 || weft_clock_ns() > control->judged_ns + WORD_MS * WEFT_NS_PER_MS;
    bool was_owed = control->is_word_owed;
    bool is_below = is_long_ago || have_all_below(control);
    if (is_below && control->parent != NULL && control->heard != control->told) {
        control->heard = control->told;
        weft_control_mend_beat(control->parent);
    }
    if (!is_below || (control->is_word_due && !is_long_ago)) {
        return;
    }
    control->word_ns = weft_clock_ns();
    control->is_word_owed = false;
    for (uint32_t i = 0; was_owed && i < control->child_count; i++) {
        if (control->children[i].conn != NULL) {
            weft_control_mend_beat(control->children[i].conn);
        }
    }
}
