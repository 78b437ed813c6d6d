/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of 100,000 ranks (12,500 hosts of 8) in virtual time, with one root and with sixteen: how long it
 * takes, and what the root and the others have to carry. sim_process.h says what is real and what is a model.
 */
#include "sim_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who joins through whom, as comm/ids.c and control/join.c do it ---- */

static uint32_t segment_first(uint32_t segment)
{
    return (uint32_t)((uint64_t)segment * RANKS / sim.roots);
}

static uint32_t segment_of(uint32_t rank)
{
    uint32_t segment = (uint32_t)((uint64_t)rank * sim.roots / RANKS);
    while (segment + 1 < sim.roots && segment_first(segment + 1) <= rank) {
        segment++;
    }
    return segment;
}

static uint32_t root_of(uint32_t rank)
{
    return segment_first(segment_of(rank));
}

/* The first to come on a host leads those who have no root here. */
static uint32_t leader_of(uint32_t rank)
{
    uint32_t first = rank / LOCALS * LOCALS, leader = NOBODY;
    if (is_same_host(rank, root_of(rank))) {
        return root_of(rank);
    }
    for (uint32_t other = first; other < first + LOCALS; other++) {
        bool is_led = !is_same_host(other, root_of(other));
        if (is_led &&
            (leader == NOBODY || sim.process[other].start_ns < sim.process[leader].start_ns)) {
            leader = other;
        }
    }
    return leader;
}

static void choose_ways(void)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct process *process = &sim.process[rank];
        process->leader = leader_of(rank);
        process->is_gatherer = process->leader == rank;
        process->above = process->leader;
        if (process->is_gatherer) {
            process->above = root_of(rank) == rank ? 0 : root_of(rank);
        }
        if (rank == 0) {
            process->above = NOBODY;
        }
    }
}

/* As control/gather.c fills it: group 0 is the root's, the others by the rank of their leader. */
static void build_table(void)
{
    uint32_t groups = 0, most = 0;
    uint32_t *index = calloc(RANKS, sizeof(*index)), *size;
    uint8_t *bytes;
    assert_non_null(index);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        index[rank] = groups;
        groups += sim.process[rank].is_gatherer;
    }
    assert_int_equal(weft_wire_table_open(RANKS, groups, &sim.table), WEFT_OK);
    size = calloc(groups, sizeof(*size));
    assert_non_null(size);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        uint32_t group = index[sim.process[rank].leader];
        sim.table.group_of[rank] = group;
        sim.table.pid[rank] = 100000 + rank;
        most = ++size[group] > most ? size[group] : most;
        if (sim.process[rank].is_gatherer) {
            struct weft_wire_group *host = &sim.table.group[group];
            host->leader = rank;
            host->addr = (struct weft_wire_addr){.family = 4, .port = 40000};
            snprintf(host->host, sizeof(host->host), "node%05u.cluster", rank / LOCALS);
        }
    }
    weft_control_tree_fans(groups - 1, most - 1, DEGREE, &sim.table.fan_groups,
                           &sim.table.fan_local);
    sim.table_len = weft_wire_table_len(&sim.table);
    bytes = malloc(sim.table_len);
    assert_non_null(bytes);
    assert_int_equal(weft_wire_table_encode(&sim.table, bytes, sim.table_len), sim.table_len);
    assert_true(sim.table_len <= WEFT_WIRE_FRAME_MAX);
    free(bytes);
    free(index);
    free(size);
    assert_int_equal(weft_control_tree_open(&sim.table, &sim.tree), WEFT_OK);
}

static size_t a_member_s_len(void)
{
    struct weft_wire_member member = {.rank = RANKS - 1,
                                      .ranks = RANKS,
                                      .pid = 4000000,
                                      .timeout_ms = 30000,
                                      .addr = {.family = 4, .port = 40000}};
    uint8_t bytes[WEFT_WIRE_MEMBER_MAX];
    snprintf(member.host, sizeof(member.host), "node%05d.cluster", HOSTS - 1);
    return weft_wire_member_encode(&member, bytes, sizeof(bytes));
}

/* ---- a run ---- */

static void sim_open(uint32_t roots, uint64_t spread_ns)
{
    uint64_t seed = 7;
    memset(&sim, 0, sizeof(sim));
    sim.roots = roots;
    queue_open();
    sim.process = calloc(RANKS, sizeof(*sim.process));
    sim.link_free_ns = calloc(HOSTS, sizeof(*sim.link_free_ns));
    assert_non_null(sim.process);
    assert_non_null(sim.link_free_ns);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct process *process = &sim.process[rank];
        process->inbox_first = process->inbox_last = NOBODY;
        process->dial_first = process->dial_last = NOBODY;
        process->arrivals_first = process->attached_first = NOBODY;
        process->next_arrival = process->next_attached = NOBODY;
        process->start_ns = spread_ns > 0 ? next_random(&seed) % spread_ns : 0;
        post(process->start_ns, START, rank, rank, 0, false);
    }
    sim.member_len = a_member_s_len();
    choose_ways();
    build_table();
}

static void sim_run(void)
{
    while (queue.heap_len > 0) {
        uint32_t at = heap_pop();
        uint64_t now_ns = queue.pool[at].at_ns;
        if (queue.pool[at].kind == STEP) {
            uint32_t rank = dequeue(&at).to;
            step(rank, now_ns);
        } else {
            arrive(at, now_ns);
        }
    }
}

static void sim_close(void)
{
    weft_control_tree_close(&sim.tree);
    weft_wire_table_close(&sim.table);
    free(sim.process);
    free(sim.link_free_ns);
    queue_close();
}

struct figures {
    double last_ms; /* from the last call to the last rank's return */
    double root_in_mb, root_out_mb;
    uint32_t root_conns_most, other_conns_most, conns_after_most, children_most;
};

static struct figures look(uint64_t spread_ns)
{
    struct figures figures = {0};
    uint64_t last_ns = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct process *process = &sim.process[rank];
        last_ns = process->ready_ns > last_ns ? process->ready_ns : last_ns;
        keep_most(&figures.other_conns_most, rank > 0 ? process->conns_most : 0);
        keep_most(&figures.conns_after_most, process->conns);
        keep_most(&figures.children_most, process->children);
    }
    figures.last_ms = (double)(last_ns - spread_ns) / 1e6;
    figures.root_in_mb = (double)sim.process[0].bytes_in / 1e6;
    figures.root_out_mb = (double)sim.process[0].bytes_out / 1e6;
    figures.root_conns_most = sim.process[0].conns_most;
    return figures;
}

static void print_head(void)
{
    print_message("%u ranks on %u hosts, record %zu B, table %.2f MB\n", RANKS, HOSTS,
                  a_member_s_len(), (double)sim.table_len / 1e6);
    print_message("roots  calls within  last call to last return  SYNs again  root in MB  out MB  "
                  "conns: root  other  after  children\n");
}

static struct figures run(uint32_t roots, uint64_t spread_ns)
{
    struct figures figures;
    sim_open(roots, spread_ns);
    sim_run();
    figures = look(spread_ns);
    if (roots == 1 && spread_ns == 0) {
        print_head();
    }
    print_message("%5u  %9.1f s  %21.0f ms  %10u  %10.1f  %6.1f  %11u  %5u  %5u  %8u\n", roots,
                  (double)spread_ns / 1e9, figures.last_ms, sim.refused_dials, figures.root_in_mb,
                  figures.root_out_mb, figures.root_conns_most, figures.other_conns_most,
                  figures.conns_after_most, figures.children_most);
    /* what must hold in every run */
    assert_int_equal(sim.joined, RANKS);
    assert_int_equal(sim.ready, RANKS); /* everybody has the table and all its children */
    assert_true(figures.children_most <= DEGREE);
    assert_true(figures.conns_after_most <= DEGREE + 1); /* and the parent */
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        uint32_t neighbours = sim.process[rank].children + (rank != 0);
        assert_int_equal(sim.process[rank].conns, neighbours); /* no first connection stays */
    }
    sim_close();
    return figures;
}

static void a_hundred_thousand_ranks_start_with_one_root_and_with_sixteen(void **state)
{
    struct figures one = run(1, 0), one_spread = run(1, UINT64_C(2000000000));
    struct figures many = run(16, 0), many_spread = run(16, UINT64_C(2000000000));
    (void)state;
    /* One root holds one connection per host; beyond its accept queue SYNs are repeated. */
    assert_int_equal(one.root_conns_most, HOSTS - 1 + LOCALS - 1);
    assert_true(one.other_conns_most <= DEGREE + 2);
    assert_true(one.last_ms < 30000); /* the default deadline */
    assert_true(one_spread.last_ms < 3000);
    /* Sixteen roots share the hosts; the first also holds the fifteen others. */
    assert_true(many.root_conns_most <= HOSTS / 16 + 1 + 15 + LOCALS - 1);
    assert_true(many.other_conns_most <= HOSTS / 16 + DEGREE + LOCALS);
    assert_true(many.last_ms < 3000);
    assert_true(many.last_ms < one.last_ms);
    assert_true(many_spread.last_ms < 3000);
    /* Records come in once, the table goes out to the children only. */
    assert_true(one.root_in_mb < 30 && many.root_in_mb < 30);
    assert_true(one.root_out_mb < 150 && many.root_out_mb < 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_thousand_ranks_start_with_one_root_and_with_sixteen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
