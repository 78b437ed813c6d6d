/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes for the simulation of the start (test_start_sim.c).
 *
 * What is real: who joins through whom (segments, leaders), the table and its bytes, records and
 * their bytes, the tree, its degree, the order of messages (hello, members, table or answer, attach,
 * table). What is modelled: time. Every process is one CPU that does one thing after the other, every
 * host has one link out; the constants below are what this code costs on a server of 2020 or so,
 * rounded up. Listeners keep at most WEFT_NET_PENDING_MAX unproven connections; a TCP connection that
 * finds the accept queue full comes again when the kernel repeats its SYN.
 */
#ifndef WEFT_TESTS_SIM_PROCESS_H
#define WEFT_TESTS_SIM_PROCESS_H

#include "sim_queue.h"

#include "control/control.h"
#include "net/net.h"

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

static inline bool is_same_host(uint32_t a, uint32_t b)
{
    return a / LOCALS == b / LOCALS;
}

static inline void work(uint32_t rank, uint64_t ns)
{
    sim.process[rank].free_ns += ns;
}

static inline uint64_t byte_ns(size_t len, bool is_local)
{
    return (uint64_t)len * (is_local ? PLAIN_BYTE_PS : SEALED_BYTE_PS) / 1000;
}

/* Bytes on the wire of a frame with this payload. */
static inline size_t frame_len(size_t payload_len, bool is_local)
{
    return WEFT_WIRE_FRAME_LEN + payload_len + (is_local ? 0 : WEFT_WIRE_SEAL_LEN);
}

static inline void deliver(uint32_t from, uint32_t to, enum kind kind, uint32_t arg, bool is_attach,
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

static inline void send_frame(uint32_t from, uint32_t to, enum kind kind, uint32_t arg,
                              size_t payload_len)
{
    bool is_local = is_same_host(from, to);
    work(from, FRAME_NS + byte_ns(payload_len, is_local));
    deliver(from, to, kind, arg, false, frame_len(payload_len, is_local));
}

static inline void count_conn(uint32_t rank, int change)
{
    struct process *process = &sim.process[rank];
    process->conns = (uint32_t)((int)process->conns + change);
    process->conns_most =
        process->conns > process->conns_most ? process->conns : process->conns_most;
}

static inline void dial(uint32_t from, uint32_t to, bool is_attach)
{
    work(from, CONNECT_NS);
    count_conn(from, 1);
    deliver(from, to, DIAL, 0, is_attach, 0);
}

static inline size_t hello_len(bool is_attach)
{
    return 72 + (is_attach ? 0 : sim.member_len) + WEFT_WIRE_PROOF_LEN;
}

/* ---- from the table to the tree ---- */

static inline void give_table(uint32_t from, uint32_t to)
{
    send_frame(from, to, TABLE, 0, sim.table_len);
    sim.process[from].given++;
}

static inline void give_answer(uint32_t from, uint32_t to, uint32_t whom)
{
    send_frame(from, to, ANSWER, whom, WEFT_WIRE_ANSWER_LEN);
}

static inline bool is_child(uint32_t rank, uint32_t of)
{
    return weft_control_tree_parent(&sim.tree, rank) == of;
}

static inline void check_ready(uint32_t rank)
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
static inline void place(uint32_t rank)
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

static inline void take_members(uint32_t rank, uint32_t count)
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

static inline void flush(uint32_t rank)
{
    struct process *process = &sim.process[rank];
    process->is_flush_posted = false;
    if (process->is_up && process->batch > 0) {
        send_frame(rank, process->above, MEMBERS, process->batch, process->batch * sim.member_len);
        process->batch = 0;
    }
}

/* ---- one thing a process does ---- */

static inline void take_hello(uint32_t rank, uint32_t from, bool is_attach)
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

static inline void take_answer(uint32_t rank, uint32_t whom)
{
    work(rank, FRAME_NS);
    if (whom != rank) {
        give_answer(rank, whom, whom); /* I am the root of a segment */
        return;
    }
    sim.process[rank].has_first = true;
    dial(rank, weft_control_tree_parent(&sim.tree, rank), true);
}

static inline void handle(uint32_t rank, const struct message *message)
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

static inline void schedule(uint32_t rank, uint64_t now_ns)
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
static inline void step(uint32_t rank, uint64_t now_ns)
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

static inline void arrive(uint32_t at, uint64_t now_ns)
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

#endif
