/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who stands still, for the words of a deadline: who waits names those it waits for, and they may wait themselves.
 *
 *   of this host   the kernel says who is stopped
 *   a neighbour    its beats do not come, and its host acknowledges ours
 *   anybody else   those above it say so:  HEARTBEAT up    dst: this rank stands still below me (NO_RANK: nobody)
 *
 * Nobody is judged for it. Only aside.c does more: where words wait, it goes around a parent of another host as soon as
 * that one is known to stand still (is_answered), not only when it has been silent for long.
 */
#include "control/heal.h"

#define DEAD_MS 300 /* a path whose words are unacknowledged for so long is dead */

/* When its next beat was overdue. */
static uint64_t overdue_ns(const struct weft_control *control, const struct weft_net_conn *conn)
{
    return conn->heard_ns + weft_control_heart_overdue_ns(control);
}

bool weft_control_still_is_answered(const struct weft_control *control,
                                    const struct weft_net_conn *conn)
{
    return weft_net_conn_is_acking(conn, overdue_ns(control, conn));
}

static bool is_neighbour_still(const struct weft_control *control, struct weft_net_conn *conn)
{
    return weft_clock_ns() > overdue_ns(control, conn) &&
           (weft_heal_is_stopped(control, conn->peer_rank) ||
            weft_control_still_is_answered(control, conn) ||
            (weft_control_neighbour_is_silent(control, conn->peer_rank) &&
             !weft_net_conn_is_path_dead(conn, DEAD_MS)));
}

/* ---- beats ---- */

/* The first that stands still below this rank. */
static uint32_t find_below(const struct weft_control *control)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        const struct weft_control_child *child = &control->children[i];
        if (child->conn != NULL && is_neighbour_still(control, child->conn)) {
            return child->rank;
        }
        if (child->conn != NULL && child->still != WEFT_WIRE_NO_RANK) {
            return child->still;
        }
    }
    return WEFT_WIRE_NO_RANK;
}

void weft_control_still_look(struct weft_control *control)
{
    uint32_t still = find_below(control);
    if (still != control->still) {
        control->still = still;
        if (control->parent != NULL) {
            weft_control_mend_beat(control->parent);
        }
    }
}

void weft_control_still_arrived(struct weft_control *control, const struct weft_net_conn *from,
                                const struct weft_wire_frame *beat)
{
    /* before it takes us for its parent it says nothing of others */
    uint32_t still = beat->dst == control->self.rank ? WEFT_WIRE_NO_RANK : beat->dst;
    for (uint32_t i = 0; i < control->child_count; i++) {
        struct weft_control_child *child = &control->children[i];
        if (child->conn == from && child->still != still) {
            child->still = still;
            weft_control_still_look(control);
            return;
        }
    }
}

/* ---- words ---- */

struct search {
    struct weft_control *control;
    const struct weft_control_channel *channel; /* NULL: not known here */
    uint32_t found;
    bool is_member; /* `found` is */
};

static void note(struct search *search, uint32_t rank)
{
    uint32_t its_rank;
    bool is_there = rank < search->control->self.ranks && rank != search->control->self.rank &&
                    !search->control->is_gone[rank];
    bool is_member = is_there && search->channel != NULL &&
                     weft_control_channel_is_member(search->channel, rank, &its_rank);
    if (is_there && (search->found == WEFT_WIRE_NO_RANK || (is_member && !search->is_member))) {
        search->found = rank;
        search->is_member = is_member;
    }
}

static void note_neighbour(struct search *search, struct weft_net_conn *conn)
{
    if (conn != NULL && is_neighbour_still(search->control, conn)) {
        note(search, conn->peer_rank);
    }
}

uint32_t weft_control_still_find(struct weft_control *control, uint64_t comm, bool *is_member_p)
{
    const struct weft_control_tree *tree = &control->tree;
    uint32_t group = control->table.group_of[control->self.rank];
    struct search search = {.control = control,
                            .channel = weft_control_channel_find(control, comm),
                            .found = WEFT_WIRE_NO_RANK};
    note_neighbour(&search, control->parent);
    for (uint32_t at = tree->start[group]; at < tree->start[group + 1] && !search.is_member; at++) {
        if (weft_heal_is_stopped(control, tree->order[at])) {
            note(&search, tree->order[at]);
        }
    }
    for (uint32_t i = 0; i < control->child_count && !search.is_member; i++) {
        note_neighbour(&search, control->children[i].conn);
        if (control->children[i].conn != NULL) {
            note(&search, control->children[i].still);
        }
    }
    *is_member_p = search.is_member;
    return search.found;
}

bool weft_control_stands_still(struct weft_control *control, uint32_t rank)
{
    struct weft_net_conn *conn =
        rank < control->self.ranks && rank != control->self.rank && !control->is_gone[rank]
            ? weft_control_conn_to(control, rank)
            : NULL;
    return (conn != NULL && is_neighbour_still(control, conn)) ||
           (rank < control->self.ranks && weft_heal_is_stopped(control, rank));
}
