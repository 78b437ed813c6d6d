/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of the control tree for many shapes: hosts, ranks per host, degree, and random groups.
 * The walk between two ranks is compared with a search that knows only who is whose neighbour.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/control.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEGREE 64
#define FAR UINT32_MAX

static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- tables ---- */

static uint32_t most_local(const struct weft_wire_table *table)
{
    uint32_t *size = calloc(table->groups, sizeof(*size));
    uint32_t most = 0;
    assert_non_null(size);
    for (uint32_t rank = 0; rank < table->ranks; rank++) {
        uint32_t now = ++size[table->group_of[rank]];
        most = now > most ? now : most;
    }
    free(size);
    return most;
}

static void set_fans(struct weft_wire_table *table, uint32_t degree)
{
    weft_control_tree_fans(table->groups - 1, most_local(table) - 1, degree, &table->fan_groups,
                           &table->fan_local);
}

/* Host h has ranks h·locals … */
static void even_table(uint32_t hosts, uint32_t locals, uint32_t degree,
                       struct weft_wire_table *table)
{
    assert_int_equal(weft_wire_table_open(hosts * locals, hosts, table), WEFT_OK);
    for (uint32_t rank = 0; rank < table->ranks; rank++) {
        table->group_of[rank] = rank / locals;
    }
    for (uint32_t group = 0; group < hosts; group++) {
        table->group[group].leader = group * locals;
    }
    table->root = 0;
    set_fans(table, degree);
}

/* Any rank may be anywhere, any member may lead. */
static void random_table(uint64_t *seed, uint32_t ranks, uint32_t groups, uint32_t degree,
                         struct weft_wire_table *table)
{
    assert_int_equal(weft_wire_table_open(ranks, groups, table), WEFT_OK);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        table->group_of[rank] =
            rank < groups ? rank : (uint32_t)(next_random(seed) % groups); /* none is empty */
    }
    for (uint32_t rank = ranks - 1; rank > 0; rank--) {
        uint32_t other = (uint32_t)(next_random(seed) % (rank + 1));
        uint32_t group = table->group_of[rank];
        table->group_of[rank] = table->group_of[other];
        table->group_of[other] = group;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) { /* the last of many dice wins */
        struct weft_wire_group *group = &table->group[table->group_of[rank]];
        if (group->host[0] == '\0' || next_random(seed) % 3 == 0) {
            group->leader = rank;
            group->host[0] = 'h';
        }
    }
    table->root = table->group[0].leader;
    set_fans(table, degree);
}

/* ---- properties ---- */

static uint32_t parents_are_children(const struct weft_control_tree *tree, uint32_t degree)
{
    uint32_t children[MAX_DEGREE];
    uint32_t seen = 0, most = 0;
    for (uint32_t rank = 0; rank < tree->ranks; rank++) {
        uint32_t count = weft_control_tree_children(tree, rank, children, MAX_DEGREE);
        assert_true(count <= degree);
        most = count > most ? count : most;
        seen += count;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(weft_control_tree_parent(tree, children[i]), rank);
            for (uint32_t k = 0; k < i; k++) {
                assert_int_not_equal(children[i], children[k]);
            }
        }
    }
    assert_int_equal(seen, tree->ranks - 1); /* everybody but the root is one child */
    return most;
}

static uint32_t depth_of(const struct weft_control_tree *tree, uint32_t rank)
{
    uint32_t depth = 0;
    while (rank != tree->root) {
        uint32_t parent = weft_control_tree_parent(tree, rank);
        assert_int_not_equal(parent, WEFT_WIRE_NO_RANK);
        /* a leader's parent is a leader: between hosts only leaders talk */
        if (tree->group_of[parent] != tree->group_of[rank]) {
            assert_int_equal(tree->position[rank], 0);
            assert_int_equal(tree->position[parent], 0);
        }
        rank = parent;
        assert_true(++depth <= tree->ranks);
    }
    return depth;
}

static void everybody_reaches_the_root(const struct weft_control_tree *tree)
{
    assert_int_equal(weft_control_tree_parent(tree, tree->root), WEFT_WIRE_NO_RANK);
    for (uint32_t rank = 0; rank < tree->ranks; rank++) {
        depth_of(tree, rank);
    }
}

static uint32_t distance(const struct weft_control_tree *tree, uint32_t a, uint32_t b)
{
    uint32_t deep_a = depth_of(tree, a), deep_b = depth_of(tree, b), steps = 0;
    while (a != b) {
        if (deep_a >= deep_b) {
            a = weft_control_tree_parent(tree, a);
            deep_a--;
        } else {
            b = weft_control_tree_parent(tree, b);
            deep_b--;
        }
        steps++;
    }
    return steps;
}

/* Every hop is to a neighbour and brings one nearer; the way back is the same way. */
static void walk_is_shortest_both_ways(const struct weft_control_tree *tree, uint32_t from,
                                       uint32_t to)
{
    uint32_t way[1024] = {0};
    uint32_t len = 0, at = from, left = distance(tree, from, to);
    assert_true(left < 1024);
    while (at != to) {
        uint32_t next = weft_control_tree_hop(tree, at, to);
        way[len++] = at;
        assert_true(weft_control_tree_parent(tree, at) == next ||
                    weft_control_tree_parent(tree, next) == at);
        assert_int_equal(distance(tree, next, to), left - 1);
        left--;
        at = next;
    }
    while (at != from) {
        at = weft_control_tree_hop(tree, at, from);
        assert_int_equal(at, way[--len]);
    }
    assert_int_equal(len, 0);
}

static void check_table(const struct weft_wire_table *table, uint32_t degree, uint64_t seed)
{
    struct weft_control_tree tree;
    assert_int_equal(weft_control_tree_open(table, &tree), WEFT_OK);
    parents_are_children(&tree, degree);
    everybody_reaches_the_root(&tree);
    for (int i = 0; i < 60 && tree.ranks > 1; i++) {
        uint32_t from = (uint32_t)(next_random(&seed) % tree.ranks);
        uint32_t to = (uint32_t)(next_random(&seed) % tree.ranks);
        if (from != to) {
            walk_is_shortest_both_ways(&tree, from, to);
        }
    }
    weft_control_tree_close(&tree);
}

/* ---- tests ---- */

static void fans_fit_the_degree_and_leave_nobody_without(void **state)
{
    (void)state;
    for (uint32_t degree = 2; degree <= MAX_DEGREE; degree++) {
        for (uint32_t others = 0; others < 200; others += 1 + others / 9) {
            for (uint32_t local = 0; local < 200; local += 1 + local / 9) {
                uint16_t fan_groups, fan_local;
                weft_control_tree_fans(others, local, degree, &fan_groups, &fan_local);
                assert_true(fan_groups >= 1 && fan_local >= 1);
                assert_true((others > 0 ? fan_groups : 0) + (local > 0 ? fan_local : 0) <=
                            (int)degree);
                if (others + local <= degree) { /* everybody at depth one below its leader */
                    assert_true(fan_groups >= others && fan_local >= local);
                }
            }
        }
    }
}

static void trees_of_even_hosts_hold_for_every_shape_and_degree(void **state)
{
    static const uint32_t hosts[] = {1, 2, 3, 5, 16, 33, 64, 65, 130};
    static const uint32_t locals[] = {1, 2, 3, 7, 8, 40, 65};
    static const uint32_t degrees[] = {2, 3, 4, 8, 63, 64};
    (void)state;
    for (size_t h = 0; h < WEFT_COUNT_OF(hosts); h++) {
        for (size_t l = 0; l < WEFT_COUNT_OF(locals); l++) {
            for (size_t d = 0; d < WEFT_COUNT_OF(degrees); d++) {
                struct weft_wire_table table;
                even_table(hosts[h], locals[l], degrees[d], &table);
                check_table(&table, degrees[d], h * 100 + l * 10 + d);
                weft_wire_table_close(&table);
            }
        }
    }
}

static void trees_of_random_groups_hold(void **state)
{
    (void)state;
    for (uint64_t run = 0; run < 300; run++) {
        uint64_t seed = run;
        uint32_t ranks = 1 + (uint32_t)(next_random(&seed) % 400);
        uint32_t groups = 1 + (uint32_t)(next_random(&seed) % ranks);
        uint32_t degree = 2 + (uint32_t)(next_random(&seed) % (MAX_DEGREE - 1));
        struct weft_wire_table table;
        random_table(&seed, ranks, groups, degree, &table);
        check_table(&table, degree, seed);
        weft_wire_table_close(&table);
    }
}

static void all_pairs_of_a_small_tree_walk_the_shortest_way(void **state)
{
    (void)state;
    for (uint32_t degree = 2; degree <= 5; degree++) {
        struct weft_wire_table table;
        struct weft_control_tree tree;
        even_table(9, 4, degree, &table);
        assert_int_equal(weft_control_tree_open(&table, &tree), WEFT_OK);
        for (uint32_t from = 0; from < tree.ranks; from++) {
            for (uint32_t to = 0; to < tree.ranks; to++) {
                if (from != to) {
                    walk_is_shortest_both_ways(&tree, from, to);
                }
            }
        }
        weft_control_tree_close(&tree);
        weft_wire_table_close(&table);
    }
}

/* Whoever is out: all that are left hang below one of them, nobody below one that it precedes. */
static void check_rest(const struct weft_control_tree *tree, const uint8_t *is_out)
{
    uint32_t top = WEFT_WIRE_NO_RANK;
    for (uint32_t rank = 0; rank < tree->ranks; rank++) {
        uint32_t at = rank;
        uint32_t above;
        while (!is_out[rank] &&
               (above = weft_control_tree_up(tree, is_out, at)) != WEFT_WIRE_NO_RANK) {
            assert_false(is_out[above]);
            assert_true(weft_control_tree_precedes(tree, above, at));
            at = above;
        }
        assert_true(is_out[rank] || top == WEFT_WIRE_NO_RANK || top == at);
        top = is_out[rank] ? top : at;
    }
}

static void whoever_is_out_the_rest_is_one_tree(void **state)
{
    (void)state;
    for (uint64_t run = 0; run < 300; run++) {
        uint64_t seed = run;
        uint32_t ranks = 1 + (uint32_t)(next_random(&seed) % 60);
        uint32_t groups = 1 + (uint32_t)(next_random(&seed) % ranks);
        uint32_t degree = 2 + (uint32_t)(next_random(&seed) % 6);
        uint64_t share = next_random(&seed) % 10;
        uint8_t is_out[60];
        struct weft_wire_table table;
        struct weft_control_tree tree;
        random_table(&seed, ranks, groups, degree, &table);
        assert_int_equal(weft_control_tree_open(&table, &tree), WEFT_OK);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            is_out[rank] = next_random(&seed) % 10 < share;
        }
        check_rest(&tree, is_out);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            assert_int_equal(weft_control_tree_up(&tree, NULL, rank),
                             weft_control_tree_parent(&tree, rank));
        }
        weft_control_tree_close(&tree);
        weft_wire_table_close(&table);
    }
}

static void a_way_passes_those_on_it_and_nobody_else(void **state)
{
    struct weft_wire_table table;
    struct weft_control_tree tree;
    (void)state;
    even_table(5, 4, 3, &table);
    assert_int_equal(weft_control_tree_open(&table, &tree), WEFT_OK);
    for (uint32_t from = 0; from < tree.ranks; from++) {
        for (uint32_t to = 0; to < tree.ranks; to++) {
            uint32_t passed = 1, on_it = 0;
            for (uint32_t at = from; at != to; at = weft_control_tree_hop(&tree, at, to)) {
                assert_true(weft_control_tree_passes(&tree, NULL, from, to, at));
                passed++;
            }
            for (uint32_t via = 0; via < tree.ranks; via++) {
                on_it += weft_control_tree_passes(&tree, NULL, from, to, via);
            }
            assert_int_equal(on_it, passed);
        }
    }
    weft_control_tree_close(&tree);
    weft_wire_table_close(&table);
}

static void a_job_within_the_degree_is_a_star(void **state)
{
    struct weft_wire_table table;
    struct weft_control_tree tree;
    (void)state;
    even_table(1, 65, 64, &table);
    assert_int_equal(weft_control_tree_open(&table, &tree), WEFT_OK);
    for (uint32_t rank = 1; rank < 65; rank++) {
        assert_int_equal(weft_control_tree_parent(&tree, rank), 0);
    }
    weft_control_tree_close(&tree);
    weft_wire_table_close(&table);
}

static void a_hundred_thousand_ranks_are_a_few_hops_deep(void **state)
{
    struct weft_wire_table table;
    struct weft_control_tree tree;
    uint32_t deepest = 0;
    (void)state;
    even_table(12500, 8, 64, &table);
    assert_int_equal(weft_control_tree_open(&table, &tree), WEFT_OK);
    assert_int_equal(parents_are_children(&tree, 64), 64);
    for (uint32_t rank = 0; rank < tree.ranks; rank += 7) {
        uint32_t depth = depth_of(&tree, rank);
        deepest = depth > deepest ? depth : deepest;
    }
    assert_true(deepest <= 4); /* three of hosts, one inside the host */
    weft_control_tree_close(&tree);
    weft_wire_table_close(&table);
}

/* Room for fewer than there are: the count is right, nothing is written behind the room. */
static void children_are_counted_beyond_the_room(void **state)
{
    struct weft_wire_table table;
    struct weft_control_tree tree;
    uint32_t children[4] = {FAR, FAR, FAR, FAR};
    (void)state;
    even_table(1, 20, 64, &table);
    assert_int_equal(weft_control_tree_open(&table, &tree), WEFT_OK);
    assert_int_equal(weft_control_tree_children(&tree, 0, children, 2), 19);
    assert_int_equal(children[0], 1);
    assert_int_equal(children[1], 2);
    assert_int_equal(children[2], FAR);
    weft_control_tree_close(&tree);
    weft_wire_table_close(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fans_fit_the_degree_and_leave_nobody_without),
        cmocka_unit_test(trees_of_even_hosts_hold_for_every_shape_and_degree),
        cmocka_unit_test(trees_of_random_groups_hold),
        cmocka_unit_test(all_pairs_of_a_small_tree_walk_the_shortest_way),
        cmocka_unit_test(whoever_is_out_the_rest_is_one_tree),
        cmocka_unit_test(a_way_passes_those_on_it_and_nobody_else),
        cmocka_unit_test(a_job_within_the_degree_is_a_star),
        cmocka_unit_test(a_hundred_thousand_ranks_are_a_few_hops_deep),
        cmocka_unit_test(children_are_counted_beyond_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
