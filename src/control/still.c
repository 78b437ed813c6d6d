/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who stands still, for the words of a deadline: who waits names those it waits for, and they may wait themselves.
 *
 *   of this host   the kernel says who is stopped
 *   a neighbour    its beats do not come, and its host acknowledges ours
 *   anybody else   those above it say so:  HEARTBEAT up    dst: this rank stands still below me (NO_RANK: nobody)
 *                                                         STILL_MORE: and others, too
 *
 * Nobody is judged for it. Only aside.c does more: where words wait, it goes around a parent of another host as soon as
 * that one is known to stand still (is_answered), not only when it has been silent for long.
 */
#include "control/heal.h"

/* Of the kernel's clock, by which it knows when something was acknowledged, at most. */
#define TICK_MS 10

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

void weft_control_still_ask(const struct weft_control *control, struct weft_net_conn *conn)
{
    if (conn->spoken_ns <= overdue_ns(control, conn) + TICK_MS * WEFT_NS_PER_MS &&
        weft_net_conn_queued(conn) == 0) {
        weft_control_mend_beat(conn);
    }
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

static void add(const struct weft_control *control, struct weft_control_still *still, uint32_t rank)
{
    if (rank >= control->self.ranks || rank == control->self.rank || control->is_gone[rank]) {
        return; /* it has died since, or who says so has not taken us for its parent yet */
    }
    still->are_more = still->are_more || (still->rank != WEFT_WIRE_NO_RANK && still->rank != rank);
    still->rank = still->rank == WEFT_WIRE_NO_RANK ? rank : still->rank;
}

static struct weft_control_still find_below(const struct weft_control *control)
{
    struct weft_control_still still = {.rank = WEFT_WIRE_NO_RANK};
    for (uint32_t i = 0; i < control->child_count; i++) {
        const struct weft_control_child *child = &control->children[i];
        if (child->conn != NULL && is_neighbour_still(control, child->conn)) {
            add(control, &still, child->rank);
        } else if (child->conn != NULL) { /* what it said last is old otherwise */
            add(control, &still, child->still.rank);
            still.are_more = still.are_more || child->still.are_more;
        }
    }
    return still;
}

void weft_control_still_look(struct weft_control *control)
{
    struct weft_control_still still = find_below(control);
    if (still.rank != control->still.rank || still.are_more != control->still.are_more) {
        control->still = still;
        if (control->parent != NULL) {
            weft_control_mend_beat(control->parent);
        }
    }
}

void weft_control_still_arrived(struct weft_control *control, const struct weft_net_conn *from,
                                const struct weft_wire_frame *beat)
{
    const struct weft_control_still still = {
        .rank = beat->dst, .are_more = (beat->flags & WEFT_WIRE_FLAG_STILL_MORE) != 0};
    for (uint32_t i = 0; i < control->child_count; i++) {
        struct weft_control_child *child = &control->children[i];
        if (child->conn == from &&
            (child->still.rank != still.rank || child->still.are_more != still.are_more)) {
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
        struct weft_net_conn *conn = control->children[i].conn;
        if (conn != NULL) {
            bool is_still = is_neighbour_still(control, conn);
            note(&search, is_still ? conn->peer_rank : control->children[i].still.rank);
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

/* As far as beats tell: is it the one that the way to it speaks of, or one of more? */
static bool is_told_of(struct weft_control *control, uint32_t rank)
{
    const struct weft_net_conn *way = weft_control_way_to(control, rank);
    for (uint32_t i = 0; way != NULL && i < control->child_count; i++) {
        const struct weft_control_child *child = &control->children[i];
        if (child->conn == way && !is_neighbour_still(control, child->conn)) {
            return child->still.rank == rank || child->still.are_more;
        }
    }
    return false;
}

bool weft_control_may_stand_still(struct weft_control *control, uint32_t rank)
{
    return rank < control->self.ranks && rank != control->self.rank &&
           (weft_control_stands_still(control, rank) || is_told_of(control, rank));
}
