/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control: how ranks find each other and what they tell each other besides data. The start (one
 * connection per rank to the root, or per host through a leader), the tree that stays, small
 * collectives and messages over it, heartbeats, verdicts. Knows channels, not communicators.
 */
#ifndef WEFT_CONTROL_H
#define WEFT_CONTROL_H

#include "engine/engine.h"
#include "wire/wire.h"

#include <sys/socket.h>

#define WEFT_CONTROL_CANDIDATES 16

/* ---- the tree (tree.c): pure arithmetic ---- */

/*
 * Groups (hosts) form a heap over their leaders, the ranks of a group a heap below their leader:
 * parent of position p is (p-1)/fan. A leader has at most fan_groups + fan_local children. Group 0
 * is the root's.
 */
struct weft_control_tree {
    uint32_t ranks, groups, root;
    uint32_t fan_groups, fan_local;
    uint32_t *start;          /* [groups+1]: where a group's ranks begin in `order`; owned */
    uint32_t *order;          /* [ranks]: leader first, then ascending; owned */
    uint32_t *position;       /* [ranks]: in its group; owned */
    const uint32_t *group_of; /* lent: the table's */
};

/* Splits `degree` between child leaders and local children: other_groups and most_local are how
 * many there are at most. Both fans ≥ 1. */
void weft_control_tree_fans(uint32_t other_groups, uint32_t most_local, uint32_t degree,
                            uint16_t *fan_groups_p, uint16_t *fan_local_p);
weft_status_t weft_control_tree_open(const struct weft_wire_table *table,
                                     struct weft_control_tree *tree_p);
void weft_control_tree_close(struct weft_control_tree *tree);
/* NO_RANK for the root */
uint32_t weft_control_tree_parent(const struct weft_control_tree *tree, uint32_t rank);
/* Fills children[0 … count) up to `room`; returns how many there are. */
uint32_t weft_control_tree_children(const struct weft_control_tree *tree, uint32_t rank,
                                    uint32_t *children, uint32_t room);
/* The neighbour of `from` on the way to `to` (to ≠ from). */
uint32_t weft_control_tree_hop(const struct weft_control_tree *tree, uint32_t from, uint32_t to);
/* The same with ranks that are out (is_out[rank] not 0; NULL: nobody is): who is above `rank` now? NO_RANK: nobody. */
uint32_t weft_control_tree_up(const struct weft_control_tree *tree, const uint8_t *is_out,
                              uint32_t rank);
/* Who leads a group now; NO_RANK: nobody of it is left. */
uint32_t weft_control_tree_first(const struct weft_control_tree *tree, const uint8_t *is_out,
                                 uint32_t group);
/* Nobody is ever above one that precedes it. */
bool weft_control_tree_precedes(const struct weft_control_tree *tree, uint32_t a, uint32_t b);
/* Does the way from one to the other lead over `via`, an end of it included? */
bool weft_control_tree_passes(const struct weft_control_tree *tree, const uint8_t *is_out,
                              uint32_t from, uint32_t to, uint32_t via);

/* ---- doors (door.c): the listeners of a root, open from the making of an id on ---- */

struct weft_control_door {
    int tcp, local;    /* descriptors; -1: none */
    bool is_inherited; /* `local` was handed to this process: it is not ours to close */
    struct weft_wire_addr addr;
};
/* addr may be NULL (no TCP), local_name may be NULL. ports "" or "first-last". ERR_BUSY: taken. */
weft_status_t weft_control_door_open(const struct sockaddr_storage *addr, const char *ports,
                                     const char *local_name, struct weft_control_door *door_p);
void weft_control_door_close(struct weft_control_door *door);
/* Where the root is: from an id, or by name (blocks in the resolver; ERR_NETWORK). */
weft_status_t weft_control_root_addr(const struct weft_wire_addr *wire,
                                     struct sockaddr_storage *addr_p);
weft_status_t weft_control_root_resolve(const char *host, uint16_t port, int family,
                                        struct sockaddr_storage *addr_p);
void weft_control_root_port(struct sockaddr_storage *addr, uint16_t port);

/* ---- the start (start.c) ---- */

enum weft_control_join { WEFT_JOIN_AUTO, WEFT_JOIN_DIRECT, WEFT_JOIN_LOCAL };

/* All pointers are lent for the call, except engine, params and self.key: while the control lives.
 */
struct weft_control_spec {
    struct weft_engine *engine;
    const struct weft_params *params;
    struct weft_wire_self self;
    const char *host;
    uint64_t deadline_ns;
    uint32_t timeout_ms; /* the same, for texts */
    enum weft_control_join join;

    struct weft_control_door *door; /* I serve a start here; NULL: I do not. Taken over. */
    bool is_root;                   /* I serve the whole of it */
    bool has_segments;              /* there are several roots */
    /* else: where the one above me is */
    struct sockaddr_storage above[WEFT_CONTROL_CANDIDATES];
    unsigned above_count;
    char above_local[WEFT_WIRE_NAME_LEN]; /* its abstract socket; "": unknown */
    bool is_above_here; /* it is on this host: only its local socket may be late */
    bool is_above_up;   /* its listener was open before we heard of it: refused means gone */
};

struct weft_control;
/* Blocks until every rank has joined and this one has its place in the tree. */
weft_status_t weft_control_open(const struct weft_control_spec *spec,
                                struct weft_control **control_p);
/* After a verdict: until all others have it, as far as we hear (0.4 s at most). */
void weft_control_await_word(struct weft_control *control);
/* Waits for orphans right after a verdict (0.4 s at most), says good-bye, flushes for at most half a second, or two more
 * where a path has just died; frees. NULL is fine. */
void weft_control_close(struct weft_control *control);
/* Do these two ranks run on one host? */
bool weft_control_is_same_host(const struct weft_control *control, uint32_t a, uint32_t b);
/* Equal for ranks of one host, and mostly for no others. */
uint32_t weft_control_host_hash(const struct weft_control *control, uint32_t rank);
/* Where the root of the tree can be reached from other hosts; false: it did not say. */
bool weft_control_tree_root_addr(const struct weft_control *control,
                                 struct sockaddr_storage *addr_p);
/* "rank 3 (pid 4411 on node7, 10.0.0.7)"; the address where there are several hosts, and it has one */
void weft_control_name_rank(const struct weft_control *control, uint32_t rank, char *text,
                            size_t room);

#define WEFT_CONTROL_RANK_LEN 36
/* "rank 1", and "rank 1 (6 of the job)" where the communicator counts otherwise. Returns text. */
const char *weft_control_print_rank(uint32_t rank, uint32_t job_rank,
                                    char text[WEFT_CONTROL_RANK_LEN]);

/* From now on the background thread serves the engine. ERR_SYSTEM. */
weft_status_t weft_control_engage(struct weft_control *control);

/* ---- what rooms beside control hear (observe.c); all under the engine's lock ---- */

#define WEFT_CONTROL_NICS 8 /* used at once */
/* A NIC that carries data; name "": whatever the routes say. */
struct weft_control_nic {
    char name[16];
    struct sockaddr_storage addr;
    uint32_t prefix_len;
};

/* What ended a channel, or is to. */
struct weft_control_failure {
    uint64_t channel;
    weft_status_t status;
    uint32_t rank; /* of the job, or NO_RANK */
    const char *text;
};

struct weft_control_observer {
    /* rank `from` called us with these bytes */
    void (*called)(struct weft_control_observer *observer, uint32_t from, const uint8_t *payload,
                   size_t len);
    /* a rank of the job has closed (ERR_PEER) or died; words */
    void (*gone)(struct weft_control_observer *observer, uint32_t rank, weft_status_t status,
                 const char *text);
    /* a channel has ended */
    void (*ended)(struct weft_control_observer *observer,
                  const struct weft_control_failure *failure);
    /* Its control connection is dead; may messages still reach it by other ways? *is_alive_p: they do, as far
     * as is known; else it is being tried. */
    bool (*reaches)(struct weft_control_observer *observer, uint32_t rank, bool *is_alive_p);
    /* Which NICs may a control connection go by? Returns how many; asked until there are some. */
    uint32_t (*nics)(struct weft_control_observer *observer,
                     struct weft_control_nic nics[WEFT_CONTROL_NICS]);
};
/* One observer, lent; NULL: none any more. Calls that came before are handed over now. Not under the
 * lock. */
void weft_control_observe(struct weft_control *control, struct weft_control_observer *observer);
/* May be lost when ranks die, so who gets no answer calls again. False: it is gone. */
bool weft_control_call(struct weft_control *control, uint32_t to, const void *payload, size_t len);
bool weft_control_is_gone(const struct weft_control *control, uint32_t rank);
/* How long a call past its deadline waits for the coordinator's words. */
uint64_t weft_control_verdict_ms(const struct weft_control *control);
/* Of this host or a neighbour: is it stopped, or silent while its host answers? */
bool weft_control_stands_still(struct weft_control *control, uint32_t rank);
/* Its lanes are lost: has it ended as far as we see, or was reported, and the verdict has not come? If it has closed, the
 * observer hears so at once. */
bool weft_control_is_ending(struct weft_control *control, uint32_t rank);
/* Something failed on the channel with this id: the coordinator is asked to tell all its members, and
 * us. is_final: its word did not come back in time, so it ends here and now. */
void weft_control_fail(struct weft_control *control, const struct weft_control_failure *failure,
                       bool is_final);

/* ---- channels (channel.c): one communicator's part of the control plane ---- */

struct weft_control_channel;
/* members[r] is the job's rank of the channel's rank r; copied. NULL: all ranks. */
weft_status_t weft_control_channel_open(struct weft_control *control, uint64_t id,
                                        const uint32_t *members, uint32_t count,
                                        struct weft_control_channel **channel_p);
void weft_control_channel_close(struct weft_control_channel *channel);
/* Any thread: OK, or what ended it (sets the error text). */
weft_status_t weft_control_channel_status(struct weft_control_channel *channel);
/* The same, and who failed (its rank here; NO_RANK: nobody in particular, or no member) by which verdict (0: none). */
weft_status_t weft_control_channel_error(struct weft_control_channel *channel, uint32_t *rank_p,
                                         uint32_t *number_p);
/* Readable once it has ended; stays the channel's. Any thread. */
weft_status_t weft_control_channel_fd(struct weft_control_channel *channel, int *fd_p);
/* Any thread. Ends it on all ranks. */
weft_status_t weft_control_channel_abort(struct weft_control_channel *channel, const char *reason);

/* Ranks here are the channel's. Block at most timeout_ms; then the channel has ended. */
weft_status_t weft_control_barrier_wait(struct weft_control_channel *channel, uint64_t timeout_ms);
weft_status_t weft_control_allgather_wait(struct weft_control_channel *channel, const void *mine,
                                          size_t len, void *all, uint64_t timeout_ms);
/* An allgather that is part of another call: that one is named, and compared. */
enum weft_control_purpose {
    WEFT_PURPOSE_ITSELF,
    WEFT_PURPOSE_SPLIT,
    WEFT_PURPOSE_DUPLICATE,
    WEFT_PURPOSE_MEET, /* the first collective */
};
struct weft_control_gather {
    enum weft_control_purpose purpose;
    weft_coll_t coll; /* MEET: not compared */
    const void *mine;
    size_t len;
    void *all;
};
weft_status_t weft_control_gather_wait(struct weft_control_channel *channel,
                                       const struct weft_control_gather *gather,
                                       uint64_t timeout_ms);
/* Such calls of this rank that are over; nobody makes one meanwhile. */
uint32_t weft_control_channel_calls(const struct weft_control_channel *channel);
/* Under the lock: is this rank in one (number `calls`)? Then words for it. */
bool weft_control_channel_is_in_call(const struct weft_control_channel *channel, char *text,
                                     size_t room);
weft_status_t weft_control_broadcast_wait(struct weft_control_channel *channel, void *data,
                                          size_t len, uint32_t root, uint64_t timeout_ms);
/* Who of its members goes on: those who call this with the same number, and everybody else is gone. Ranks of the job,
 * room for all members. Also of a channel that has ended. ERR_NETWORK: this rank is in the smaller part. */
weft_status_t weft_control_shrink_wait(struct weft_control_channel *channel, uint32_t number,
                                       uint32_t *ranks, uint32_t *count_p, uint64_t timeout_ms);
weft_status_t weft_control_mail_send(struct weft_control_channel *channel, uint32_t to,
                                     uint32_t tag, const void *data, size_t len,
                                     uint64_t timeout_ms);
weft_status_t weft_control_mail_recv(struct weft_control_channel *channel, uint32_t from,
                                     uint32_t tag, void *data, size_t room, size_t *len_p,
                                     uint64_t timeout_ms);

#endif
