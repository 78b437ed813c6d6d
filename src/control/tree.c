/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control tree, as arithmetic over the table: no rank stores more than its own neighbours, and
 * any rank can compute the way between any two others.
 *
 * How many children a rank may have is split between hosts and local ranks. Where the sum fits (64
 * ranks on one host, 32 hosts of 32) everybody hangs at depth one below its leader, and first
 * connections can stay. Beyond that the smaller side keeps its depth of one and the larger becomes
 * a heap.
 */
#include "control/control.h"

#include <stdlib.h>
#include <string.h>

void weft_control_tree_fans(uint32_t other_groups, uint32_t most_local, uint32_t degree,
                            uint16_t *fan_groups_p, uint16_t *fan_local_p)
{
    uint32_t half = degree / 2;
    uint32_t groups = other_groups;
    uint32_t local = most_local;
    if ((uint64_t)groups + local > degree) {
        if (local <= half) {
            groups = degree - local;
        } else if (groups <= half) {
            local = degree - groups;
        } else {
            groups = local = half;
        }
    }
    *fan_groups_p = (uint16_t)(groups > 0 ? groups : 1);
    *fan_local_p = (uint16_t)(local > 0 ? local : 1);
}

/* Counting sort by group; inside a group the leader takes position 0. */
static void fill(struct weft_control_tree *tree, const struct weft_wire_table *table,
                 uint32_t *next)
{
    for (uint32_t rank = 0; rank < table->ranks; rank++) {
        tree->start[table->group_of[rank] + 1]++;
    }
    for (uint32_t group = 0; group < table->groups; group++) {
        tree->start[group + 1] += tree->start[group];
        next[group] = tree->start[group] + 1;
    }
    for (uint32_t rank = 0; rank < table->ranks; rank++) {
        uint32_t group = table->group_of[rank];
        uint32_t place = table->group[group].leader == rank ? tree->start[group] : next[group]++;
        tree->order[place] = rank;
        tree->position[rank] = place - tree->start[group];
    }
}

weft_status_t weft_control_tree_open(const struct weft_wire_table *table,
                                     struct weft_control_tree *tree_p)
{
    struct weft_control_tree tree = {.ranks = table->ranks,
                                     .groups = table->groups,
                                     .root = table->root,
                                     .fan_groups = table->fan_groups,
                                     .fan_local = table->fan_local,
                                     .group_of = table->group_of};
    uint32_t *next = calloc(table->groups, sizeof(*next));
    tree.start = calloc((size_t)table->groups + 1, sizeof(*tree.start));
    tree.order = calloc(table->ranks, sizeof(*tree.order));
    tree.position = calloc(table->ranks, sizeof(*tree.position));
    if (next == NULL || tree.start == NULL || tree.order == NULL || tree.position == NULL) {
        free(next);
        weft_control_tree_close(&tree);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the control tree of %u ranks",
                         table->ranks);
    }
    fill(&tree, table, next);
    free(next);
    *tree_p = tree;
    return WEFT_OK;
}

void weft_control_tree_close(struct weft_control_tree *tree)
{
    free(tree->start);
    free(tree->order);
    free(tree->position);
    memset(tree, 0, sizeof(*tree));
}

static uint32_t leader_of(const struct weft_control_tree *tree, uint32_t group)
{
    return tree->order[tree->start[group]];
}

uint32_t weft_control_tree_parent(const struct weft_control_tree *tree, uint32_t rank)
{
    uint32_t group = tree->group_of[rank];
    uint32_t position = tree->position[rank];
    if (position > 0) {
        return tree->order[tree->start[group] + (position - 1) / tree->fan_local];
    }
    return group == 0 ? WEFT_WIRE_NO_RANK : leader_of(tree, (group - 1) / tree->fan_groups);
}

uint32_t weft_control_tree_children(const struct weft_control_tree *tree, uint32_t rank,
                                    uint32_t *children, uint32_t room)
{
    uint32_t group = tree->group_of[rank];
    uint32_t position = tree->position[rank];
    uint32_t size = tree->start[group + 1] - tree->start[group];
    uint32_t count = 0;
    for (uint32_t i = 0; i < tree->fan_local; i++) {
        uint64_t child = (uint64_t)position * tree->fan_local + 1 + i;
        if (child < size && count++ < room) {
            children[count - 1] = tree->order[tree->start[group] + child];
        }
    }
    for (uint32_t i = 0; position == 0 && i < tree->fan_groups; i++) {
        uint64_t child = (uint64_t)group * tree->fan_groups + 1 + i;
        if (child < tree->groups && count++ < room) {
            children[count - 1] = leader_of(tree, (uint32_t)child);
        }
    }
    return count;
}

uint32_t weft_control_tree_hop(const struct weft_control_tree *tree, uint32_t from, uint32_t to)
{
    uint32_t below = to;
    while (below != tree->root) {
        uint32_t parent = weft_control_tree_parent(tree, below);
        if (parent == from) {
            return below;
        }
        below = parent;
    }
    return weft_control_tree_parent(tree, from);
}

/* ---- with ranks that are out ----
 * Everybody has those above it that came before it in one order: groups by number, in a group its leader and then
 * the others. So whatever two ranks believe of others, nobody ever is above itself.
 */

static bool is_in(const uint8_t *is_out, uint32_t rank)
{
    return is_out == NULL || is_out[rank] == 0;
}

uint32_t weft_control_tree_first(const struct weft_control_tree *tree, const uint8_t *is_out,
                                 uint32_t group)
{
    for (uint32_t i = tree->start[group]; i < tree->start[group + 1]; i++) {
        if (is_in(is_out, tree->order[i])) {
            return tree->order[i];
        }
    }
    return WEFT_WIRE_NO_RANK;
}

static uint32_t up_in_group(const struct weft_control_tree *tree, const uint8_t *is_out,
                            uint32_t rank)
{
    uint32_t group = tree->group_of[rank];
    uint32_t first;
    for (uint32_t at = tree->position[rank]; at > 0;) {
        at = (at - 1) / tree->fan_local;
        if (is_in(is_out, tree->order[tree->start[group] + at])) {
            return tree->order[tree->start[group] + at];
        }
    }
    for (first = tree->start[group]; first < tree->start[group] + tree->position[rank]; first++) {
        if (is_in(is_out, tree->order[first])) {
            return tree->order[first];
        }
    }
    return WEFT_WIRE_NO_RANK;
}

uint32_t weft_control_tree_up(const struct weft_control_tree *tree, const uint8_t *is_out,
                              uint32_t rank)
{
    uint32_t group = tree->group_of[rank];
    uint32_t above = up_in_group(tree, is_out, rank);
    for (uint32_t at = group; at > 0 && above == WEFT_WIRE_NO_RANK;) {
        at = (at - 1) / tree->fan_groups;
        above = weft_control_tree_first(tree, is_out, at);
    }
    for (uint32_t at = 0; at < group && above == WEFT_WIRE_NO_RANK; at++) {
        above = weft_control_tree_first(tree, is_out, at);
    }
    return above;
}

bool weft_control_tree_precedes(const struct weft_control_tree *tree, uint32_t a, uint32_t b)
{
    return tree->group_of[a] != tree->group_of[b] ? tree->group_of[a] < tree->group_of[b]
                                                  : tree->position[a] < tree->position[b];
}

/* Both climb to where they meet: the later one first. */
bool weft_control_tree_passes(const struct weft_control_tree *tree, const uint8_t *is_out,
                              uint32_t from, uint32_t to, uint32_t via)
{
    while (from != to && from != via && to != via) {
        if (weft_control_tree_precedes(tree, from, to)) {
            to = weft_control_tree_up(tree, is_out, to);
        } else {
            from = weft_control_tree_up(tree, is_out, from);
        }
        if (from == WEFT_WIRE_NO_RANK || to == WEFT_WIRE_NO_RANK) {
            return false;
        }
    }
    return from == via || to == via;
}
