/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the table to the tree. Every rank that gathered others answers them here, root and leaders
 * alike: who is my child in the tree keeps its connection and gets the table on it; the others are
 * told who their parent is, connect there, and get the table from it. A rank is ready when all its
 * children have it.
 */
#include "control/start.h"

#include <stdlib.h>
#include <string.h>

static struct weft_control_child *find_child(struct weft_control *control, uint32_t rank)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].rank == rank) {
            return &control->children[i];
        }
    }
    return NULL;
}

static void give_table(struct weft_control_start *start, struct weft_control_child *child,
                       struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_TABLE, .src = start->me.rank, .dst = child->rank};
    weft_list_remove(&conn->node);
    conn->tag = ROLE_CHILD;
    child->conn = conn;
    start->children_ready++;
    weft_net_conn_cork(conn);
    weft_net_conn_accept(conn);
    weft_net_conn_send(conn, &frame, start->table_bytes, start->table_len);
    weft_control_ways_tell(start->control, conn);
    weft_net_conn_uncork(conn);
}

/* Names the parent of `rank` to it; conn leads to it or to a gatherer that knows it. */
static void give_answer(struct weft_control_start *start, uint32_t rank, struct weft_net_conn *conn)
{
    struct weft_control *control = start->control;
    const struct weft_wire_table *table = &control->table;
    uint32_t parent = weft_control_tree_parent(&control->tree, rank);
    struct weft_wire_answer answer = {.parent = parent,
                                      .root = table->root,
                                      .fan_groups = table->fan_groups,
                                      .fan_local = table->fan_local,
                                      .is_local = table->group_of[parent] == table->group_of[rank],
                                      .addr = table->group[table->group_of[parent]].addr};
    struct weft_wire_frame frame = {.type = WEFT_WIRE_ANSWER, .src = start->me.rank, .dst = rank};
    uint8_t bytes[WEFT_WIRE_ANSWER_LEN];
    weft_wire_answer_encode(&answer, bytes);
    weft_net_conn_cork(conn);
    weft_net_conn_accept(conn);
    weft_net_conn_send(conn, &frame, bytes, sizeof(bytes));
    weft_net_conn_uncork(conn);
}

void weft_control_part(struct weft_control *control, struct weft_net_conn *conn)
{
    conn->tag = ROLE_PARTING;
    weft_net_conn_watch(conn);
    weft_list_remove(&conn->node);
    weft_list_append(&control->parting, &conn->node);
}

static void answer_arrivals(struct weft_control_start *start)
{
    struct weft_control *control = start->control;
    struct weft_list *node = start->arrivals.next;
    while (node != &start->arrivals) {
        struct weft_net_conn *conn = WEFT_CONTAINER_OF(node, struct weft_net_conn, node);
        struct weft_control_child *child = find_child(control, conn->peer_rank);
        node = node->next;
        if (child != NULL) {
            give_table(start, child, conn);
        } else if (start->spec.is_root || start->leader_of[conn->peer_rank] == start->me.rank) {
            give_answer(start, conn->peer_rank, conn);
            weft_control_part(control, conn);
        }
    }
}

/* After the tables are out: children are watched from now on. */
static void watch_children(struct weft_control *control)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn != NULL) {
            weft_net_conn_watch(control->children[i].conn);
        }
    }
}

/* Leaders that came through the root of another segment hear of their parent through it. */
static void answer_distant_leaders(struct weft_control_start *start)
{
    const struct weft_wire_table *table = &start->control->table;
    for (uint32_t group = 1; start->spec.is_root && group < table->groups; group++) {
        uint32_t leader = table->group[group].leader;
        struct weft_net_conn *conn = start->via[leader];
        if (conn != NULL && conn->peer_rank != leader) {
            give_answer(start, leader, conn);
        }
    }
}

void weft_control_place_check(struct weft_control_start *start)
{
    struct weft_control *control = start->control;
    bool has_parent = control->parent != NULL || control->self.rank == control->table.root;
    if (start->table_bytes != NULL && has_parent && start->children_ready == control->child_count &&
        weft_list_is_empty(&start->arrivals)) {
        weft_control_start_over(start);
    }
}

void weft_control_place_attached(struct weft_control_start *start, struct weft_net_conn *conn)
{
    struct weft_control_child *child;
    weft_net_conn_watch(conn);
    if (start->table_bytes == NULL) {
        conn->tag = ROLE_ATTACHED;
        weft_list_append(&start->attached, &conn->node);
        return;
    }
    child = find_child(start->control, conn->peer_rank);
    if (child == NULL || child->conn != NULL) {
        weft_net_conn_refuse(conn, WEFT_ERR_DUPLICATE,
                             "this rank has another parent, or attached already");
        return;
    }
    give_table(start, child, conn);
    weft_control_place_check(start);
}

static weft_status_t open_children(struct weft_control *control)
{
    uint32_t ranks[DEGREE_MAX];
    control->child_count =
        weft_control_tree_children(&control->tree, control->self.rank, ranks, DEGREE_MAX);
    if (control->child_count > DEGREE_MAX) {
        control->child_count = 0;
        return weft_fail(WEFT_ERR_PROTOCOL, "the table gives this rank more than %d children",
                         DEGREE_MAX);
    }
    control->children = calloc(control->child_count + 1, sizeof(*control->children));
    control->child_room = control->child_count + 1;
    control->is_gone = calloc(control->self.ranks, sizeof(*control->is_gone));
    control->is_out = calloc(control->self.ranks, sizeof(*control->is_out));
    if (control->children == NULL || control->is_gone == NULL || control->is_out == NULL) {
        weft_fail(WEFT_ERR_MEMORY, "no memory for %u children", control->child_count);
        control->child_count = 0;
        return WEFT_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < control->child_count; i++) {
        control->children[i].rank = ranks[i];
        control->children[i].still.rank = WEFT_WIRE_NO_RANK;
    }
    return WEFT_OK;
}

void weft_control_place(struct weft_control_start *start)
{
    struct weft_control *control = start->control;
    weft_status_t status = weft_control_tree_open(&control->table, &control->tree);
    if (status == WEFT_OK) {
        status = open_children(control);
    }
    if (status != WEFT_OK) {
        weft_control_start_fail(control, status, start->me.rank, "%s", weft_error_text());
        return;
    }
    control->parent_rank = weft_control_tree_parent(&control->tree, control->self.rank);
    control->is_top = control->parent_rank == WEFT_WIRE_NO_RANK;
    control->still.rank = WEFT_WIRE_NO_RANK;
    if (control->parent != NULL && control->parent->peer_rank != control->parent_rank) {
        weft_control_start_fail(control, WEFT_ERR_PROTOCOL, control->parent->peer_rank,
                                "the table came from rank %u, but rank %u is the parent",
                                control->parent->peer_rank, control->parent_rank);
        return;
    }
    if (start->is_gatherer) {
        answer_arrivals(start);
        answer_distant_leaders(start);
        watch_children(control);
    }
    while (!weft_list_is_empty(&start->attached) && start->is_over == 0) {
        struct weft_net_conn *conn =
            WEFT_CONTAINER_OF(start->attached.next, struct weft_net_conn, node);
        weft_list_remove(&conn->node);
        weft_control_place_attached(start, conn);
    }
    weft_control_place_check(start);
}
