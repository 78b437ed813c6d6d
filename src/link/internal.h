/* SPDX-License-Identifier: Apache-2.0 */
/* Private to link: the ports that all links share, the bundle of lanes to one peer, and what its files do
 * for each other. */
#ifndef WEFT_LINK_INTERNAL_H
#define WEFT_LINK_INTERNAL_H

#include "link/link.h"
#include "topo/topo.h"

struct weft_links {
    struct weft_links_spec spec;
    const struct weft_lane_ops *tcp_ops;        /* lent */
    struct weft_lane_port *shm;                 /* owned; NULL: not opened */
    struct weft_lane_port *tcp[WEFT_LINK_NICS]; /* owned; one per NIC that carries data */
    struct weft_link_nic nics[WEFT_LINK_NICS];
    uint64_t down_ns[WEFT_LINK_NICS]; /* when it lost its carrier; 0: it has it */
    uint32_t tcp_count;
    uint32_t bundle_count;      /* peers over tcp */
    uint32_t share;             /* lanes for bulk that each of them may have */
    bool is_shm_broken;         /* it could not be opened here */
    struct weft_lane_lack lack; /* the latest reason why there is no port, or not for everybody */
    size_t keep_room;           /* bytes of each keep */
    uint32_t tell_len;          /* so many came since we told the peer last: tell it now */
    struct weft_list roomy;     /* links that are due a WRITABLE */
    struct weft_list acked;     /* chunks whose SENT is due */
    struct weft_lane *refused;  /* lanes nobody wants, closed when the events are through */
    struct weft_list broken;    /* links whose LOST is due */
    struct weft_list calling;   /* links that have called, and have no lane yet */
    struct weft_engine_timer call_again;
    uint64_t call_pause_ms;
    struct weft_list bundles; /* of bundle.node */
    struct weft_done
        *batch; /* lent: what the poll under way will report; its user has seen none of it yet */
    unsigned batch_count;
    struct weft_engine_source carrier; /* news of NICs; fd -1: there is one only, or nobody tells */
};

/* ---- the bundle: all lanes to a peer that can die alone ---- */

/* On its way: sent and not acknowledged, or to be sent again. */
struct weft_link_chunk {
    struct weft_list node; /* in its slot (oldest first), in replay, acked, or free */
    struct weft_link *link;
    struct weft_wire_data frame;
    struct weft_slice slice; /* lent */
    void *cookie;            /* NULL: nobody waits for it any more */
    uint64_t due_ns;         /* by then its slot should have brought it, with much patience */
    bool is_ghost;           /* a copy took over; it only counts (overtake.c) */
    bool is_copy;
};

enum weft_slot_state { SLOT_EMPTY, SLOT_DIALLING, SLOT_UP, SLOT_DOWN, SLOT_RESTING };

struct weft_slot {
    enum weft_slot_state state;
    struct weft_lane *lane; /* owned; DIALLING or UP */
    uint32_t nic;           /* ours */
    uint32_t generation;
    /* the dialler's */
    uint32_t home, there; /* which of the peer's addresses is its own, and which was dialled */
    uint64_t retry_ns, pause_ms;

    /* out */
    struct weft_list flying;            /* chunks, oldest first */
    uint32_t flying_count, ghost_count; /* of flying_count: those that a copy took over */
    uint64_t flying_len;
    uint32_t sent, acked;       /* chunks by this connection */
    double rate;                /* bytes per second that it drains; 0: not known yet */
    uint64_t rate_ns, rate_len; /* since when it is measured, and how much was acknowledged since */
    uint64_t known_ns;          /* when that gave the rate */
    uint64_t acked_ns;          /* when anything was acknowledged, the latest time */
    uint32_t overdue;           /* ticks in a row that found it so */
    bool is_slow;               /* its NIC is: it is no lead if another can be */
    /* in */
    uint32_t received, told; /* chunks by this connection */
    uint64_t untold_len;
    uint32_t placing; /* number of the chunk that comes now */
    uint32_t placing_epoch;
    bool is_placing; /* … and it is wanted */
    bool is_asked;   /* the user of the link has not said yet where the envelope or chunk goes */
    bool is_stale;   /* the envelope or chunk that comes now has come by another lane */
};

struct weft_bundle {
    struct weft_link *link;
    struct weft_list node; /* among all */
    bool is_dialler;
    uint8_t there[WEFT_WIRE_DIALLING_ADDRESS_MAX]; /* the dialler's: where the peer listens */
    uint32_t there_count;
    uint32_t count; /* slots that were ever used, from 0; the dialler's: all that there will be */
    uint32_t told_count; /* by the dialler: how many it has; 0: not yet */
    struct weft_engine_timer tick;
    bool is_dozing;     /* the tick comes late, only to look for lanes to close */
    bool is_asleep;     /* some rest that are to be opened when there is bulk */
    uint32_t peer_slow; /* slots that the peer finds slow, as bits */
    uint64_t tick_ns;   /* the latest */
    uint64_t bulk_ns;   /* when there was some, the latest time */
    uint64_t opened_ns; /* when a slot came up, the latest time */
    uint64_t
        mute_ns; /* since then slots were given up for their silence, and nothing came by others; 0: not */
    uint64_t stir_ns;   /* when a slot had something to bring, or was silent; the latest tick */
    uint64_t broken_ns; /* no slot was up since; 0: one is */
    char broken_text[128];

    struct weft_link_chunk *chunks; /* owned */
    struct weft_list free, replay;
    uint32_t epoch; /* grows whenever a slot goes or comes: copies sent later count */
    uint32_t sent;  /* number of the latest chunk */
    uint32_t acked; /* all up to it are */
    uint64_t acked_more[WEFT_LINK_CHUNKS / 64];
    uint32_t landed; /* all of the peer's up to it have */
    uint64_t landed_more[WEFT_LINK_CHUNKS / 64];

    struct weft_slot slots[WEFT_LINK_SLOTS];
};

static inline struct weft_slot *weft_slot_of(const struct weft_lane *lane)
{
    return &((struct weft_link *)lane->owner)->bundle->slots[lane->slot];
}

/* Which of several NICs comes first is different from peer to peer. */
static inline uint32_t weft_link_turn(const struct weft_link *link)
{
    return link->peer + link->links->spec.port.self->rank - 1;
}

/* ---- connect.c ---- */
void weft_links_call_again(struct weft_engine_timer *timer, uint64_t now_ns);
/* A dial failed, or the lane was lost before it was up: is there another way? */
bool weft_link_try_elsewhere(struct weft_link *link);
void weft_link_give_up(struct weft_link *link);
void weft_link_fail(struct weft_link *link, weft_status_t status, const char *text);

/* ---- dial.c ---- */
/* The peer listens at these addresses: dials all slots. Fails if not one could be dialled. */
weft_status_t weft_bundle_dial(struct weft_bundle *bundle, const struct weft_wire_dialling *call);
weft_status_t weft_bundle_dial_slot(struct weft_bundle *bundle, uint32_t index,
                                    uint64_t timeout_ms);
/* Does anything get through by what is up? */
bool weft_bundle_is_through(const struct weft_bundle *bundle);
/* Slots that went astray because nothing else got through are dialled anew, at their own address. */
void weft_bundle_go_home(struct weft_bundle *bundle);
/* It is down, and will be dialled after a pause that grows. */
void weft_slot_retry_later(struct weft_slot *slot);

/* ---- bundle.c: slots come and go ---- */
weft_status_t weft_bundle_open(struct weft_link *link);
void weft_bundle_close(struct weft_bundle *bundle); /* NULL is fine */
/* A lane is up; false: it is not wanted. */
bool weft_bundle_opened(struct weft_bundle *bundle, struct weft_lane *lane);
/* One is over; its lane is closed by the caller. true: it was the last, and no other is dialled. */
bool weft_bundle_lost(struct weft_bundle *bundle, struct weft_slot *slot, const char *why);
/* The peer gave up a slot. */
void weft_bundle_told_down(struct weft_bundle *bundle, const struct weft_wire_data *frame);
/* The one where all but bulk should go; NULL: none is up. */
struct weft_lane *weft_bundle_find_lead(struct weft_bundle *bundle);
/* Gives one up that is of no use any more. */
void weft_bundle_drop(struct weft_bundle *bundle, struct weft_slot *slot, const char *why);
/* Says so to the peer, if anything is up. */
void weft_bundle_tell_down(struct weft_bundle *bundle, const struct weft_slot *slot);
/* Could no other take over? */
bool weft_bundle_is_last_up(const struct weft_bundle *bundle, const struct weft_slot *slot);
/* Something is on its way that must be watched. */
void weft_bundle_watch(struct weft_bundle *bundle);
void weft_bundle_name_nics(const struct weft_bundle *bundle, char *text, size_t room);

/* It has no lane any more, which is the caller's to close; what was on its way goes again. */
void weft_bundle_leave(struct weft_bundle *bundle, struct weft_slot *slot);
/* What the slot brings goes nowhere: whoever was going to get it hears so, if he knows of it. */
void weft_bundle_unplace(struct weft_bundle *bundle, const struct weft_slot *slot);

/* ---- carrier.c ---- */
/* Without news a dead NIC is noticed later, by its silence. */
void weft_links_watch_carriers(struct weft_links *links);
void weft_links_carrier(struct weft_links *links, const char *nic, bool is_up);

/* ---- rest.c: lanes that nobody needs ---- */
/* A peer more, a peer less: how many lanes is each to have? */
void weft_links_bundle_added(struct weft_links *links);
void weft_links_bundle_removed(struct weft_links *links);
/* Closes those that had nothing to do, or are too many; and: when to look for them again; 0: never. */
void weft_bundle_rest(struct weft_bundle *bundle, uint64_t now_ns);
uint64_t weft_bundle_rest_due(const struct weft_bundle *bundle);
/* There is bulk: those that rest are wanted. */
void weft_bundle_wake(struct weft_bundle *bundle);
/* The peer's word; it says that a slot is down. */
void weft_bundle_told_rest(struct weft_bundle *bundle, const struct weft_wire_data *frame);
void weft_bundle_rest_again(struct weft_bundle *bundle, const struct weft_slot *slot);

/* ---- chunks.c: bulk over the slots ---- */
enum weft_post weft_chunk_send(struct weft_bundle *bundle, const struct weft_wire_data *frame,
                               const struct weft_slice *slice, void *cookie);
/* What was on its way over a slot goes again; false: something waits still. */
bool weft_chunks_replay(struct weft_bundle *bundle);
/* May bulk go by it now? */
bool weft_slot_carries_bulk(const struct weft_bundle *bundle, uint32_t index);
/* Of the fastest, as far as it is known; at least 1. */
double weft_bundle_best_rate(const struct weft_bundle *bundle);
void weft_chunks_lost(struct weft_bundle *bundle, struct weft_slot *slot);
void weft_chunks_acked(struct weft_bundle *bundle, const struct weft_wire_data *frame);
/* Has the peer not got some that belong to this communicator, and are wanted? */
bool weft_chunks_fly(const struct weft_bundle *bundle, uint64_t comm);
/* Nobody waits for these any more; returns how many SENT will not come. */
unsigned weft_chunks_forget(struct weft_bundle *bundle, const void *cookie, bool is_there);
/* The header of one came; false: it has come before, and goes to the sink. */
bool weft_chunk_arriving(struct weft_bundle *bundle, const struct weft_done *done);
/* All of it came; false: nobody needs it. */
bool weft_chunk_landed(struct weft_bundle *bundle, const struct weft_done *done);
/* Tells the peer what came by this slot, if it was not told. */
void weft_chunks_tell(struct weft_bundle *bundle, struct weft_slot *slot);
/* The same of all slots, whether it was told or not. */
void weft_chunks_tell_again(struct weft_bundle *bundle);

/* ---- overtake.c ---- */
/* Slots that are slow as we see it, as bits; and the peer's word on them. */
uint32_t weft_bundle_slow(const struct weft_bundle *bundle);
void weft_bundle_told_slow(struct weft_bundle *bundle, uint32_t slots);
/* What slots hold for too long is to go by others: it waits in replay then. */
void weft_chunks_overtake(struct weft_bundle *bundle, uint64_t now_ns);

/* ---- link.c ---- */
enum weft_post weft_link_post(struct weft_link *link, struct weft_wire_data *frame,
                              const struct weft_slice *slice, void *cookie);
/* The lead died, or there is a better one. */
void weft_link_set_lead(struct weft_link *link, struct weft_lane *lane);
/* Nothing came back in time: LOST is due. */
void weft_link_broke(struct weft_link *link);

/* ---- links.c ---- */
/* Closed when the events of this poll are through. */
void weft_link_refuse(struct weft_links *links, struct weft_lane *lane);
/* A HEADER of this lane that the poll under way was going to report is not reported; false: there is none. Its
 * payload is to be answered with the sink. */
bool weft_links_withdraw(struct weft_links *links, const struct weft_lane *lane);

/* ---- events.c ---- */
/* Behind what the batch holds already lie `count` reports of lanes: those that links report stay. */
void weft_links_filter(struct weft_links *links, unsigned count);
/* There may be room again; false: nobody waits for it. */
bool weft_link_writable(struct weft_link *link);

/* ---- keep.c ---- */
/* Room for one frame of this payload? */
bool weft_link_keep_has_room(const struct weft_link *link, size_t len);
/* ERR_MEMORY: there is no ring yet and no memory for one. */
weft_status_t weft_link_keep_open(struct weft_link *link);
/* Returns where the payload lies now. */
void *weft_link_keep_add(struct weft_link *link, const struct weft_wire_data *frame,
                         const struct weft_slice *slice, bool is_sent);
/* Gives what was kept unsent to the lane; false: it is full. */
bool weft_link_keep_flush(struct weft_link *link);
/* Something of this communicator, other than BYE? */
bool weft_link_keep_holds(const struct weft_link *link, uint64_t comm);
/* Everything up to this number has arrived there. */
void weft_link_keep_acked(struct weft_link *link, uint32_t number);
/* Everything that is not acknowledged is to be sent (again). */
void weft_link_keep_rewind(struct weft_link *link);

#endif
