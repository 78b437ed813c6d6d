/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of 100,000 ranks (12,500 hosts of 8) in virtual time, with one root and with sixteen.
 *
 * What is real: who joins through whom (segments, leaders), the table and its bytes, records and
 * their bytes, the tree, its degree, the order of messages (hello, members, table or answer, attach,
 * table). What is modelled: time. Every process is one CPU that does one thing after the other, every
 * host has one link out; the constants below are what this code costs on a server of 2020 or so,
 * rounded up. Listeners keep at most WEFT_NET_PENDING_MAX unproven connections; a TCP connection that
 * finds the accept queue full comes again when the kernel repeats its SYN.
 */
#include "sim_queue.h"

#include "control/control.h"
#include "net/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model's constants ---- */

#define NET_LATENCY_NS 20000   /* one way, between hosts */
#define LOCAL_LATENCY_NS 5000  /* a unix socket, with the wake-up */
#define LINK_BYTES_PER_US 3125 /* 25 Gb/s out of a host */
#define CONNECT_NS 20000       /* socket, connect, the handshake's client side */
#define ACCEPT_NS 15000        /* accept, epoll, the challenge */
#define HELLO_NS 15000         /* receive, check the MAC, record, answer */
#define FRAME_NS 4000          /* one frame sent or received, with its system call */
#define SEALED_BYTE_PS 2000    /* sealing or checking, and the copy: per byte, in picoseconds */
#define PLAIN_BYTE_PS 500      /* the copy alone (local sockets) */
#define MEMBER_NS 200          /* one record read and kept */
#define TABLE_RANK_NS 50       /* building or reading the table and the tree, per rank */
#define BACKLOG 4096
#define SYN_AGAIN_NS UINT64_C(1000000000) /* then doubling */

#define HOSTS 12500
#define LOCALS 8
#define RANKS 100000 /* HOSTS * LOCALS */
_Static_assert(RANKS == HOSTS * LOCALS, "hosts are full");
#define DEGREE 64

/* ---- processes ---- */

struct process {
    uint64_t free_ns, start_ns, ready_ns;
    uint64_t bytes_in, bytes_out;
    uint32_t inbox_first, inbox_last; /* messages; NOBODY: none */
    uint32_t dial_first, dial_last, dials;
    uint32_t pending;
    uint32_t leader, above; /* through whom; NOBODY: the root */
    uint32_t conns, conns_most;
    uint32_t batch, children, given;
    uint32_t arrivals_first, attached_first; /* lists of ranks, by next_arrival */
    uint32_t next_arrival, next_attached;
    bool is_gatherer, is_up, is_flush_posted, has_table, is_scheduled, has_first;
};

static struct {
    struct process *process; /* [RANKS] */
    uint64_t *link_free_ns;  /* [HOSTS] */
    struct weft_wire_table table;
    struct weft_control_tree tree;
    size_t table_len, member_len;
    uint32_t joined, roots, refused_dials, ready;
} sim;

/* ---- sending: the sender's time, the host's link, the way ---- */

static bool is_same_host(uint32_t a, uint32_t b)
{
    return a / LOCALS == b / LOCALS;
}

static void work(uint32_t rank, uint64_t ns)
{
    sim.process[rank].free_ns += ns;
}

static uint64_t byte_ns(size_t len, bool is_local)
{
    return (uint64_t)len * (is_local ? PLAIN_BYTE_PS : SEALED_BYTE_PS) / 1000;
}

/* Bytes on the wire of a frame with this payload. */
static size_t frame_len(size_t payload_len, bool is_local)
{
    return WEFT_WIRE_FRAME_LEN + payload_len + (is_local ? 0 : WEFT_WIRE_SEAL_LEN);
}

static void deliver(uint32_t from, uint32_t to, enum kind kind, uint32_t arg, bool is_attach,
                    size_t len)
{
    struct process *sender = &sim.process[from];
    uint64_t at_ns = sender->free_ns;
    if (is_same_host(from, to)) {
        at_ns += LOCAL_LATENCY_NS;
    } else {
        uint64_t *link = &sim.link_free_ns[from / LOCALS];
        *link = (*link > at_ns ? *link : at_ns) + (uint64_t)len * 1000 / LINK_BYTES_PER_US;
        at_ns = *link + NET_LATENCY_NS;
    }
    sender->bytes_out += len;
    sim.process[to].bytes_in += len;
    post(at_ns, kind, from, to, arg, is_attach);
}

static void send_frame(uint32_t from, uint32_t to, enum kind kind, uint32_t arg, size_t payload_len)
{
    bool is_local = is_same_host(from, to);
    work(from, FRAME_NS + byte_ns(payload_len, is_local));
    deliver(from, to, kind, arg, false, frame_len(payload_len, is_local));
}

static void count_conn(uint32_t rank, int change)
{
    struct process *process = &sim.process[rank];
    process->conns = (uint32_t)((int)process->conns + change);
    process->conns_most =
        process->conns > process->conns_most ? process->conns : process->conns_most;
}

static void dial(uint32_t from, uint32_t to, bool is_attach)
{
    work(from, CONNECT_NS);
    count_conn(from, 1);
    deliver(from, to, DIAL, 0, is_attach, 0);
}

static size_t hello_len(bool is_attach)
{
    return 72 + (is_attach ? 0 : sim.member_len) + WEFT_WIRE_PROOF_LEN;
}

/* ---- from the table to the tree ---- */

static void give_table(uint32_t from, uint32_t to)
{
    send_frame(from, to, TABLE, 0, sim.table_len);
    sim.process[from].given++;
}

static void give_answer(uint32_t from, uint32_t to, uint32_t whom)
{
    send_frame(from, to, ANSWER, whom, WEFT_WIRE_ANSWER_LEN);
}

static bool is_child(uint32_t rank, uint32_t of)
{
    return weft_control_tree_parent(&sim.tree, rank) == of;
}

static void check_ready(uint32_t rank)
{
    struct process *process = &sim.process[rank];
    if (process->has_table && process->given == process->children && process->ready_ns == 0) {
        process->ready_ns = process->free_ns;
        sim.ready++;
        if (process->has_first) { /* the first connection is not the tree's */
            process->has_first = false;
            count_conn(rank, -1);
            deliver(rank, process->above, CLOSE, 0, false, 0);
        }
    }
}

/* The root has built the table, or it came from the parent. */
static void place(uint32_t rank)
{
    struct process *process = &sim.process[rank];
    uint32_t children[DEGREE];
    process->has_table = true;
    process->children = weft_control_tree_children(&sim.tree, rank, children, DEGREE);
    for (uint32_t at = process->arrivals_first; at != NOBODY; at = sim.process[at].next_arrival) {
        if (is_child(at, rank)) {
            give_table(rank, at);
        } else if (process->above == NOBODY || sim.process[at].leader == rank) {
            give_answer(rank, at, at);
        }
    }
    for (uint32_t group = 1; process->above == NOBODY && group < sim.table.groups; group++) {
        uint32_t leader = sim.table.group[group].leader;
        if (sim.process[leader].above != rank) { /* it came through the root of a segment */
            give_answer(rank, sim.process[leader].above, leader);
        }
    }
    for (uint32_t at = process->attached_first; at != NOBODY; at = sim.process[at].next_attached) {
        give_table(rank, at);
    }
    check_ready(rank);
}

static void take_members(uint32_t rank, uint32_t count)
{
    struct process *process = &sim.process[rank];
    work(rank, (uint64_t)count * MEMBER_NS);
    if (process->above != NOBODY) {
        process->batch += count;
        if (!process->is_flush_posted) {
            process->is_flush_posted = true;
            post(process->free_ns, FLUSH, rank, rank, 0, false);
        }
        return;
    }
    sim.joined += count;
    if (sim.joined == RANKS) {
        work(rank, (uint64_t)RANKS * TABLE_RANK_NS);
        place(rank);
    }
}

static void flush(uint32_t rank)
{
    struct process *process = &sim.process[rank];
    process->is_flush_posted = false;
    if (process->is_up && process->batch > 0) {
        send_frame(rank, process->above, MEMBERS, process->batch, process->batch * sim.member_len);
        process->batch = 0;
    }
}

/* ---- one thing a process does ---- */

static void take_hello(uint32_t rank, uint32_t from, bool is_attach)
{
    struct process *process = &sim.process[rank];
    work(rank, HELLO_NS);
    process->pending--;
    if (is_attach && process->has_table) {
        give_table(rank, from);
        check_ready(rank);
    } else if (is_attach) {
        sim.process[from].next_attached = process->attached_first;
        process->attached_first = from;
    } else {
        sim.process[from].next_arrival = process->arrivals_first;
        process->arrivals_first = from;
        if (sim.process[from].is_gatherer) {
            deliver(rank, from, ACCEPTED, 0, false, 40);
        }
        take_members(rank, 1);
    }
}

static void take_answer(uint32_t rank, uint32_t whom)
{
    work(rank, FRAME_NS);
    if (whom != rank) {
        give_answer(rank, whom, whom); /* I am the root of a segment */
        return;
    }
    sim.process[rank].has_first = true;
    dial(rank, weft_control_tree_parent(&sim.tree, rank), true);
}

static void handle(uint32_t rank, const struct message *message)
{
    struct process *process = &sim.process[rank];
    bool is_local = is_same_host(rank, message->from);
    switch (message->kind) {
    case START:
        if (process->above != NOBODY) {
            dial(rank, process->above, false);
        } else {
            take_members(rank, 1); /* the root itself */
        }
        break;
    case CHALLENGE:
        deliver(rank, message->from, HELLO, 0, message->is_attach, hello_len(message->is_attach));
        break;
    case HELLO:
        take_hello(rank, message->from, message->is_attach);
        break;
    case ACCEPTED:
        process->is_up = true;
        flush(rank);
        break;
    case FLUSH:
        flush(rank);
        break;
    case MEMBERS:
        work(rank, FRAME_NS + byte_ns(message->arg * sim.member_len, is_local));
        take_members(rank, message->arg);
        break;
    case ANSWER:
        take_answer(rank, message->arg);
        break;
    case TABLE:
        work(rank, FRAME_NS + byte_ns(sim.table_len, is_local) + (uint64_t)RANKS * TABLE_RANK_NS);
        place(rank);
        break;
    case CLOSE:
        count_conn(rank, -1);
        break;
    case STEP:
    case DIAL:
        break;
    }
}

static void schedule(uint32_t rank, uint64_t now_ns)
{
    struct process *process = &sim.process[rank];
    bool has_work = process->inbox_first != NOBODY ||
                    (process->dial_first != NOBODY && process->pending < WEFT_NET_PENDING_MAX);
    if (!process->is_scheduled && has_work) {
        process->is_scheduled = true;
        post(process->free_ns > now_ns ? process->free_ns : now_ns, STEP, rank, rank, 0, false);
    }
}

/* Accepts as long as there is room for unproven ones, else hears what the accepted have to say. */
static void step(uint32_t rank, uint64_t now_ns)
{
    struct process *process = &sim.process[rank];
    process->is_scheduled = false;
    process->free_ns = process->free_ns > now_ns ? process->free_ns : now_ns;
    if (process->dial_first != NOBODY && process->pending < WEFT_NET_PENDING_MAX) {
        struct message message = dequeue(&process->dial_first);
        process->dials--;
        process->pending++;
        count_conn(rank, 1);
        work(rank, ACCEPT_NS);
        if (is_same_host(rank, message.from)) { /* local: the hello came with the connection */
            process->bytes_in += hello_len(message.is_attach);
            take_hello(rank, message.from, message.is_attach);
        } else {
            deliver(rank, message.from, CHALLENGE, 0, message.is_attach, WEFT_WIRE_CHALLENGE_LEN);
        }
    } else if (process->inbox_first != NOBODY) {
        struct message message = dequeue(&process->inbox_first);
        handle(rank, &message);
    }
    schedule(rank, now_ns);
}

static void arrive(uint32_t at, uint64_t now_ns)
{
    struct message *message = &queue.pool[at];
    struct process *process = &sim.process[message->to];
    uint32_t rank = message->to;
    if (message->kind == DIAL && process->dials >= BACKLOG && !is_same_host(rank, message->from)) {
        uint64_t again_ns = now_ns + (SYN_AGAIN_NS << message->arg);
        sim.refused_dials++;
        post(again_ns, DIAL, message->from, rank, message->arg + 1, message->is_attach);
        dequeue(&at);
        return;
    }
    message->next = NOBODY;
    if (message->kind == DIAL) {
        process->dials++;
        enqueue(&process->dial_first, &process->dial_last, at);
    } else {
        enqueue(&process->inbox_first, &process->inbox_last, at);
    }
    schedule(rank, now_ns);
}

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
