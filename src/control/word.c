/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word: all others have the verdicts, so who leaves for one may go. Were it to go at once, it may have been the only
 * one who knew: what it told may be on its way still when somebody in between dies, or orphans may not have found us
 * yet, and they would judge anew.
 *
 *   HEARTBEAT up    comm: so many of the verdicts that you told me are known here and to all below me
 *   HEARTBEAT down  WORD: all others know all that I told you
 *
 * Both are said at once when they become true, and again with later beats, should one be lost with its path. Who does
 * not beat yet (a leaf that has never called anything) cannot answer, and who stands still does not: they are not waited
 * for. Those below the latter hear beside the tree (aside.c).
 */
#include "control/heal.h"

#define WORD_MS 1000 /* nobody waits for it any more */

/* Whoever has children of its own beats in a moment. */
static bool can_answer(const struct weft_control *control, const struct weft_control_child *child)
{
    return (child->conn->is_beating ||
            weft_control_tree_children(&control->tree, child->rank, NULL, 0) > 0) &&
           !weft_control_watch_is_silent(child->watch) &&
           !weft_heal_is_stopped(control, child->rank);
}

/* As far as we know, those who are on their way to us included. */
static bool have_all_below(struct weft_control *control)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        const struct weft_control_child *child = &control->children[i];
        if (child->conn != NULL && child->heard != child->told && can_answer(control, child)) {
            return false;
        }
    }
    return !weft_control_heal_expects(control);
}

void weft_control_word_told(struct weft_control *control)
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
            return;
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
