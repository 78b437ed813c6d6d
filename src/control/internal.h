/* SPDX-License-Identifier: Apache-2.0 */
/* Private to control: the object that all its files share. Everything here is under the engine's
 * lock, except what is marked atomic. */
#ifndef WEFT_CONTROL_INTERNAL_H
#define WEFT_CONTROL_INTERNAL_H

#include "control/control.h"
#include "net/net.h"

#define DEGREE_MAX 64
#define TEXT_LEN WEFT_WIRE_REASON_LEN

struct weft_control_start;

/* What a connection is to us: kept in conn->tag. */
enum weft_control_role {
    ROLE_UP,        /* ours, to the one we join through */
    ROLE_PARENT,    /* ours, to the parent in the tree (may be the same one, promoted) */
    ROLE_ARRIVAL,   /* a rank that joins through us */
    ROLE_ATTACHED,  /* a tree child that came before the table */
    ROLE_CHILD,     /* a tree child */
    ROLE_PARTING,   /* answered; it goes when it has attached elsewhere */
    ROLE_SEEKING,   /* ours, to the parent again, by another way (ways.c) */
    ROLE_RETURNING, /* a tree child's, which has not left its old connection yet */
    ROLE_ASIDE,     /* beside the tree, around one who stands still (aside.c) */
    ROLE_HEALING,   /* ours, to who is above us now that our parent is gone (heal.c) */
    ROLE_ADOPTING,  /* ours, to one who is below us now and cannot know where we are */
    ROLE_VISITOR,   /* one that is to be below us has come, and said nothing yet */
    ROLE_ADOPTER,   /* the same of one above */
};

/* Who stands still somewhere below. */
struct weft_control_still {
    uint32_t rank; /* NO_RANK: nobody */
    bool are_more; /* not only this one */
};

struct weft_control_child {
    uint32_t rank;
    struct weft_net_conn *conn;       /* NULL: not attached yet, or gone */
    struct weft_control_mend *mend;   /* owned; NULL: its connection is never replaced */
    struct weft_control_watch *watch; /* owned */
    bool is_telling; /* it has come while the tree heals, and not all that it knows has (BELOW) */
    uint64_t told,
        heard; /* verdicts over this connection; of these it and all below it know so many (word.c) */
    struct weft_control_still still; /* below it, it says */
};

struct weft_control_watch;   /* heart.c */
struct weft_control_ways;    /* ways.c */
struct weft_control_heal;    /* heal.c */
struct weft_control_aside;   /* aside.c */
struct weft_control_shrinks; /* shrink.c */

/* How a rank is gone. */
enum { WEFT_GONE_DEAD = 1, WEFT_GONE_CLOSED, WEFT_GONE_UNREACHED };

/* What outlives a connection to a neighbour: kept in conn->edge (mend.c). */
struct weft_control_mend {
    struct weft_control *control;
    uint32_t rank;              /* the neighbour */
    bool counts_out, counts_in; /* frames of that direction count */
    bool is_resuming;           /* the connection is new: the neighbour has not said what it has */
    uint32_t sent, acked;       /* ours: the latest, and all that have come there */
    uint32_t received, told;    /* the neighbour's */
    size_t untold_len;
    uint8_t *kept; /* ours behind acked, as on the wire; owned */
    size_t kept_start, kept_len, kept_room;
    uint32_t round; /* child: the latest begun; parent: the latest taken */
    uint32_t since; /* child: of the connection it uses; 0: the first */
    /* the parent's */
    bool is_asking;
    uint32_t nics_there;
    struct weft_net_conn *returning; /* owned; NULL: none */
};

struct weft_control {
    struct weft_engine *engine;       /* lent */
    const struct weft_params *params; /* lent */
    struct weft_wire_self self;
    struct weft_wire_table table;
    struct weft_control_tree tree;

    struct weft_control_start *start; /* owned; NULL once started */
    bool has_door;                    /* others were told to join here */
    struct weft_net_conn *parent;     /* NULL: root, or gone */
    uint32_t parent_rank;
    struct weft_control_mend *parent_mend; /* owned; NULL: it is never replaced */
    struct weft_control_ways *ways;        /* owned; NULL: not needed yet */
    struct weft_control_child *children;   /* [child_count], owned */
    uint32_t child_count, child_room;
    bool is_top;                      /* nobody is above us: we coordinate */
    struct weft_control_heal *heal;   /* owned; NULL: no memory, or a job of one rank */
    struct weft_control_aside *aside; /* owned; NULL: not needed yet */
    struct weft_list parting;         /* first connections that were answered, on their way out */

    _Atomic bool is_engaged; /* the background thread serves our engine */
    struct weft_engine_timer heart;
    uint64_t beat_ns;  /* the latest */
    uint64_t woke_ns;  /* when one was overdue: we had slept */
    uint64_t quiet_ns; /* until then nothing is judged: what was said meanwhile is read */
    struct weft_control_watch *parent_watch; /* owned */
    struct weft_engine_timer news;           /* coordinator: closed ranks to tell */
    uint32_t *closed; /* ranks that closed in good order since the last news; owned */
    uint32_t closed_count, closed_room;
    uint8_t *is_gone; /* [ranks]: closed or dead; owned */
    uint8_t *is_out;  /* [ranks]: gone, or seems so to us: no way leads over it; owned */
    uint32_t *
        via; /* [ranks]: by which child a rank was heard of, or NO_RANK; owned; NULL: nobody is gone */
    uint32_t verdicts;  /* coordinator: how many were given */
    uint64_t judged_ns; /* when the latest came; 0: none has */
    uint64_t told,
        heard; /* verdicts by our parent; of these so many are known to all below us (word.c) */
    bool is_word_due;  /* our parent told it, and has not said yet that all others have it */
    bool is_word_owed; /* the same of us and our children: beats to them do not say it */
    uint64_t word_ns;  /* when we last knew that all have it */
    struct weft_control_still still; /* below us */
    uint32_t gone_count; /* how many are gone: mostly nobody, and then nothing needs asking */

    struct weft_control_observer *observer; /* lent */
    struct weft_list early_calls;           /* that came before there was one */
    struct weft_list channels;
    unsigned early_count, early_verdicts; /* the latter among the former */
    /* A verdict that found no memory among the early frames; its len 0: there is none. */
    struct weft_wire_frame last_verdict_frame;
    uint8_t last_verdict[WEFT_WIRE_NOTICE_MAX];
    struct weft_list early;               /* frames for channels that are not open here yet */
    struct weft_control_history *history; /* owned; NULL: nothing happened */
    struct weft_control_shrinks *shrinks; /* owned; NULL: nobody asked */
    uint64_t ended[64];                   /* ids of closed channels: their frames are sunk */
    unsigned ended_next;
    bool is_closing;
};

/* ---- close.c ---- */
void weft_control_close_list(struct weft_list *list); /* of connections */

/* ---- start.c ---- */
extern const struct weft_net_conn_ops weft_control_conn_ops;
void weft_control_start_fail(struct weft_control *control, weft_status_t status, uint32_t rank,
                             const char *fmt, ...) WEFT_PRINTF(4, 5);

/* ---- route.c: frames between neighbours ---- */
/* Ranks may hang elsewhere than the tree says when others are gone: where they do is remembered. */
void weft_control_via_open(struct weft_control *control);
void weft_control_tell_below(struct weft_control *control, struct weft_net_conn *conn);
/* Does this way lead over a child that has not told everything yet? */
bool weft_control_is_telling(const struct weft_control *control, const struct weft_net_conn *way);
/* To this rank of the job, by way of the tree; to myself: handled at once. False: no way there. */
bool weft_control_route(struct weft_control *control, struct weft_wire_frame *frame,
                        const void *payload, size_t len);
/* Down to all children. */
void weft_control_flood(struct weft_control *control, struct weft_wire_frame *frame,
                        const void *payload, size_t len);
/* A frame that arrived from a neighbour after the start. */
void weft_control_arrived(struct weft_control *control, struct weft_net_conn *from,
                          const struct weft_wire_frame *frame, const uint8_t *payload);
/* Frames of a channel that is not open here yet are kept for it; of an ended one sunk. */
void weft_control_deliver(struct weft_control *control, const struct weft_wire_frame *frame,
                          const uint8_t *payload);
void weft_control_deliver_early(struct weft_control *control, struct weft_control_channel *channel);
void weft_control_early_close(struct weft_control *control);

/* (observe.c) */
void weft_control_call_arrived(struct weft_control *control, const struct weft_wire_frame *frame,
                               const uint8_t *payload);
void weft_control_calls_close(struct weft_control *control);

/* The connection to this neighbour; NULL: none (any more). */
struct weft_net_conn *weft_control_conn_to(struct weft_control *control, uint32_t rank);
/* The neighbour on the way there; NULL: there is none now. */
struct weft_net_conn *weft_control_way_to(struct weft_control *control, uint32_t to);
/* Is `to` gone, or is there no way to it now? *gone_p: it, or who is gone on the way. */
bool weft_control_is_cut(struct weft_control *control, uint32_t to, uint32_t *gone_p);

/* ---- mend.c: what makes connections replaceable ---- */
/* NULL: no memory. close takes NULL. */
struct weft_control_mend *weft_control_mend_open(struct weft_control *control, uint32_t rank);
void weft_control_mend_close(struct weft_control_mend *mend);
/* To a neighbour: every frame after the start, but heartbeats. As weft_net_conn_send(). */
weft_status_t weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                               const void *payload, size_t len);
/* A frame of those came; so many of ours have come there; say how many came, as a heartbeat. */
void weft_control_mend_count(struct weft_net_conn *conn, const struct weft_wire_frame *frame);
void weft_control_mend_acked(struct weft_net_conn *conn, uint32_t number);
void weft_control_mend_beat(struct weft_net_conn *conn);
/* Have frames come that the neighbour does not know of? Does it owe its word on ours? */
bool weft_control_mend_has_news(const struct weft_net_conn *conn);
bool weft_control_mend_is_owed(const struct weft_net_conn *conn);
/* This connection replaces the one before; then our RESUME; then the neighbour's (false: it cannot be). */
void weft_control_mend_move(struct weft_control_mend *mend, struct weft_net_conn *conn);
void weft_control_mend_resume(struct weft_net_conn *conn);
bool weft_control_mend_resumed(struct weft_net_conn *conn, uint32_t number);

/* ---- pairs.c: by which way, in which order ---- */
#define WEFT_CONTROL_WAYS 32
struct weft_control_pair {
    uint32_t nic; /* of ours; WEFT_CONTROL_NICS: as the routes say */
    uint32_t door;
};
/* Returns how many. */
uint32_t weft_control_pair(const struct weft_control_nic *nics, uint32_t nic_count,
                           const struct sockaddr_storage *doors, uint32_t door_count,
                           struct weft_control_pair pairs[WEFT_CONTROL_WAYS]);

/* ---- ways.c, ways_back.c, ways_hosts.c: how they are replaced ---- */
/* Our NICs, while all is well: who must find another host will need them. */
void weft_control_ways_note_nics(struct weft_control *control);
/* With every heartbeat. */
void weft_control_ways_beat(struct weft_control *control);
/* The path to the parent is dead; false: there is no other, or it is looked for already. */
bool weft_control_ways_seek(struct weft_control *control);
bool weft_control_ways_is_seeking(const struct weft_control *control);
/* Frames: WAYS, RESUME */
void weft_control_ways_arrived(struct weft_control *control, struct weft_net_conn *from,
                               const struct weft_wire_frame *frame, const uint8_t *payload);
void weft_control_ways_resumed(struct weft_control *control, struct weft_net_conn *conn,
                               const struct weft_wire_frame *frame);
/* Of a SEEKING connection: it is open; it is not to be. */
void weft_control_ways_opened(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_ways_missed(struct weft_control *control, struct weft_net_conn *conn);
/* A RETURNING one came; the child has given it up. */
void weft_control_ways_hello(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_ways_left(struct weft_net_conn *conn);
/* A child's connection has ended: true if another one had come before, which takes its place. */
bool weft_control_ways_replace(struct weft_control *control, struct weft_net_conn *conn);
/* Who led this host is gone: its doors are ours. false: not all of them yet. */
bool weft_control_ways_inherit(struct weft_control *control);
/* Where hosts above ours listen: a DOORS frame; all that is known, to a new child. */
void weft_control_ways_doors_arrived(struct weft_control *control, const struct weft_net_conn *from,
                                     const struct weft_wire_frame *frame, const uint8_t *payload);
void weft_control_ways_tell(const struct weft_control *control, struct weft_net_conn *conn);
/* The ways to a host, besides the address that everybody heard of: 1 … count. By which of them does a connection go (0: none)?
 * Begins to connect to whoever leads that host. */
uint32_t weft_control_ways_count(struct weft_control *control, uint32_t rank);
uint32_t weft_control_ways_used(struct weft_control *control, const struct weft_net_conn *conn);
weft_status_t weft_control_ways_connect(struct weft_control *control, uint32_t rank, uint32_t way,
                                        struct weft_net_dial *dial_p);
/* There is another parent: its ways are not known. */
void weft_control_ways_renew(struct weft_control *control);
/* This neighbour is lost. */
void weft_control_ways_forget(struct weft_control *control, uint32_t rank);
void weft_control_ways_close(struct weft_control *control);

/* ---- verdict.c ---- */
uint32_t weft_control_next_verdict(uint32_t latest, uint32_t rank, uint32_t ranks);
void weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                 weft_status_t status, const char *why);
/* Something failed: up to the coordinator, who numbers it and floods it. comm 0: all channels with
 * `rank`. */
void weft_control_report(struct weft_control *control, uint64_t comm,
                         const struct weft_wire_notice *notice);
/* The same for what this rank itself found out about itself or its way to another: with its name, where the words
 * alone would not tell whose memory or system it was. */
void weft_control_report_own(struct weft_control *control, uint64_t comm,
                             const struct weft_wire_notice *notice);
/* It is so: here, and for everybody below. */
void weft_control_judge(struct weft_control *control, uint64_t comm,
                        const struct weft_wire_notice *notice);
/* Which ranks have closed in good order, to a new neighbour. */
void weft_control_tell_closed(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_notice_arrived(struct weft_control *control, const struct weft_net_conn *from,
                                 const struct weft_wire_frame *frame, const uint8_t *payload);
void weft_control_closed_arrived(struct weft_control *control, struct weft_net_conn *from,
                                 const struct weft_wire_frame *frame, const uint8_t *payload);
void weft_control_rank_closed(struct weft_control *control, uint32_t rank);
void weft_control_news_flush(struct weft_control *control);
void weft_control_news_fire(struct weft_engine_timer *timer, uint64_t now_ns);

/* ---- word.c: who leaves for a verdict waits until all others have it ---- */
/* Do they now? Who waits for that from us is told. */
void weft_control_word_check(struct weft_control *control);
/* A beat. */
void weft_control_word_arrived(struct weft_control *control, const struct weft_net_conn *from,
                               const struct weft_wire_frame *beat);
/* Our parent has told a verdict; there is another one, or none. */
void weft_control_word_told(struct weft_control *control);
void weft_control_word_new_parent(struct weft_control *control);

/* ---- history.c: what was said, for those who were not there ---- */
/* Keeps a verdict. */
void weft_control_history_add(struct weft_control *control, uint64_t comm,
                              const struct weft_wire_notice *notice);
bool weft_control_history_has(const struct weft_control *control, uint64_t comm);
/* The verdict on a rank; NULL: there is none. */
const struct weft_wire_notice *weft_control_history_find(const struct weft_control *control,
                                                         uint32_t rank);
/* All of it to a new neighbour; type: REPORT or VERDICT. Returns how many. */
uint32_t weft_control_history_tell(struct weft_control *control, struct weft_net_conn *conn,
                                   enum weft_wire_type type);
void weft_control_history_close(struct weft_control *control);

/* ---- heal.c and its neighbours: who hangs below whom when ranks are gone ---- */
/* The start is over: from now on we can be found by those of this host. */
void weft_control_heal_open(struct weft_control *control);
/* Somebody is gone: others may come to us, or may have to be called. is_calm: it closed in good order. */
void weft_control_heal_changed(struct weft_control *control, bool is_calm);
/* Our parent is gone; is_cut: its host cannot be reached. */
void weft_control_heal_orphaned(struct weft_control *control, bool is_cut);
/* What was reported is kept until it is judged (false: no memory), so that a new parent hears it, too. */
bool weft_control_heal_keep(struct weft_control *control, uint64_t comm,
                            const struct weft_wire_notice *notice);
void weft_control_heal_judged(struct weft_control *control, uint64_t comm, uint32_t rank);
/* If it is of this host and its process has ended, everybody hears of that; false: as far as we see, it lives. */
bool weft_control_heal_check(struct weft_control *control, uint32_t rank);
/* Is anything reported, and not judged yet? */
bool weft_control_heal_has_reports(const struct weft_control *control);
/* Is its end reported, and not judged yet? */
bool weft_control_heal_is_reported(const struct weft_control *control, uint32_t rank);
/* Are we on the way to a new parent, and not for long? */
bool weft_control_heal_is_hopeful(const struct weft_control *control);
/* A HEAL or ADOPT connection came; its first frame (false: it is closed); one of ours is open; one is over that was
 * nobody's yet. */
void weft_control_heal_hello(struct weft_control *control, struct weft_net_conn *conn);
bool weft_control_heal_first(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_heal_opened(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_heal_missed(struct weft_control *control, struct weft_net_conn *conn);
/* Is there somebody who should hang below us and has not come yet? Or do we look for a parent? */
bool weft_control_heal_expects(struct weft_control *control);
/* We coordinate since a moment ago, and others may know of verdicts that we have not heard of: nothing is numbered. */
bool weft_control_heal_is_hearing(const struct weft_control *control);
/* All that these ranks (as on the wire) knew has come. */
void weft_control_heal_told(struct weft_control *control, const uint8_t *ranks, size_t count);
/* A connection was heard for the first time. */
void weft_control_heal_heard(struct weft_control *control);
/* The end of a connection made to heal the tree, on which its other end never spoke: that one may live, and have found
 * meanwhile that it cannot be. It is looked for once more; who is really gone is found so. false: it is a loss like any
 * other. */
bool weft_control_heal_again(struct weft_control *control, struct weft_net_conn *conn);
/* For those on other hosts: a leader's listener stays when the start is over; the root, whose port the next job may
 * need, opens one at the same address, and *addr becomes that (port 0: there is none). */
void weft_control_heal_take(struct weft_control *control, struct weft_net_acceptor *acceptor);
void weft_control_heal_open_port(struct weft_control *control, struct weft_wire_addr *addr);
void weft_control_heal_close(struct weft_control *control);

/* ---- majority.c: what part of the job the coordinator speaks for ---- */
enum weft_control_part { WEFT_PART_MOST, WEFT_PART_UNKNOWN, WEFT_PART_FEW };
enum weft_control_part weft_control_part_of(struct weft_control *control);
bool weft_control_is_majority(uint32_t count, uint32_t of, bool has_lowest);

/* ---- aside.c: words around one who stands still ---- */
/* A report waits for its verdict, and will be looked at again; false: no memory. */
bool weft_control_aside_due(struct weft_control *control);
/* With every heartbeat. */
void weft_control_aside_beat(struct weft_control *control, uint64_t now_ns);
/* Those above stand still: we judge in the coordinator's place. */
bool weft_control_aside_stands_in(const struct weft_control *control);
/* It has said beside the tree that it closes: its end is no death. */
bool weft_control_aside_is_leaving(const struct weft_control *control, uint32_t rank);
/* To those below, to the one above that we reach beside the tree. */
void weft_control_aside_flood(const struct weft_control *control, struct weft_wire_frame *frame,
                              const void *payload, size_t len);
void weft_control_aside_up(const struct weft_control *control, struct weft_wire_frame *frame,
                           const void *payload, size_t len);
/* Our parent does not answer now: what we have said takes longer. */
bool weft_control_aside_is_needed(struct weft_control *control);
/* We close: does nobody need to hear of it beside the tree, or have they? Tries to tell. */
bool weft_control_aside_has_left(struct weft_control *control);
/* Of ASIDE connections: one came; ours is open; a frame; its end. */
void weft_control_aside_hello(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_aside_opened(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_aside_frame(struct weft_control *control, struct weft_net_conn *conn,
                              const struct weft_wire_frame *frame, const uint8_t *payload);
void weft_control_aside_lost(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_aside_close(struct weft_control *control);

/* ---- still.c: who stands still ---- */
/* Of another host: its engine is late, and its kernel answers. */
bool weft_control_still_is_answered(const struct weft_control *control,
                                    const struct weft_net_conn *conn);
/* So that there is something to answer. */
void weft_control_still_ask(const struct weft_control *control, struct weft_net_conn *conn);
/* With every heartbeat; a beat came. */
void weft_control_still_look(struct weft_control *control);
void weft_control_still_arrived(struct weft_control *control, const struct weft_net_conn *from,
                                const struct weft_wire_frame *beat);
/* One who is known here to stand still, best a member of this channel (*is_member_p: it is); NO_RANK: there is none. */
uint32_t weft_control_still_find(struct weft_control *control, uint64_t comm, bool *is_member_p);
/* It does, or is behind one who says so of several. */
bool weft_control_may_stand_still(struct weft_control *control, uint32_t rank);

/* ---- who.c ---- */
/* Who is above all that we do not know to be gone; perhaps ourselves. */
uint32_t weft_control_coordinator(const struct weft_control *control);

/* ---- shrink.c ---- */
void weft_control_shrink_arrived(struct weft_control *control, struct weft_net_conn *from,
                                 const struct weft_wire_frame *frame, const uint8_t *payload);
/* Somebody is gone, or we coordinate: can anything be decided now? */
void weft_control_shrink_check(struct weft_control *control);
/* Somebody aborts while this rank shrinks: it goes its own way. */
void weft_control_shrink_abort(struct weft_control_channel *channel, const char *text);
/* There is another coordinator: who waits asks it. */
void weft_control_shrink_moved(struct weft_control *control);
/* What was decided, to a new neighbour. */
void weft_control_shrink_tell(struct weft_control *control, struct weft_net_conn *conn);
void weft_control_shrinks_close(struct weft_control *control);

/* ---- process.c ---- */
/* Is the process that had this number at that time (of our pid namespace) over? Where nobody can tell, it is not. */
bool weft_control_process_has_ended(pid_t pid, uint64_t lived_ticks);
/* The same, or about to be: what it had open may be closed already. */
bool weft_control_process_is_ending(pid_t pid, uint64_t lived_ticks);
uint64_t weft_control_ticks_now(void);
bool weft_control_process_is_stopped(pid_t pid);

/* ---- heart.c ---- */
weft_status_t weft_control_heart_open(struct weft_control *control);
/* We have slept, stopped or starved, and have not read yet what was said meanwhile. */
bool weft_control_heart_is_waking(struct weft_control *control);
/* We have slept, a second ago at most, and have not heard since then from who was heard at that time. */
bool weft_control_heart_has_slept(struct weft_control *control, uint64_t heard_ns);
/* Who was not heard for so long has missed a beat. */
uint64_t weft_control_heart_overdue_ns(const struct weft_control *control);
/* The process of a neighbour has ended: what it said last is read. */
void weft_control_neighbour_ended(struct weft_control *control, uint32_t rank);
/* For a neighbour; owned by the caller; NULL: no memory. */
struct weft_control_watch *weft_control_watch_open(struct weft_control *control, uint32_t rank);
void weft_control_watch_close(struct weft_control_watch *watch);           /* NULL is fine */
bool weft_control_watch_is_silent(const struct weft_control_watch *watch); /* the same */
bool weft_control_neighbour_is_silent(const struct weft_control *control, uint32_t rank);
void weft_control_heart_close(struct weft_control *control);

/* ---- channel.c and the files of its operations ---- */
enum weft_control_call { WEFT_CALL_BARRIER = 1, WEFT_CALL_ALLGATHER, WEFT_CALL_BROADCAST };

/* What a rank called, as it travels in front of contributions and results. ALLGATHER: root is what for, enum
 * weft_control_purpose in the lowest byte, behind it the collective. */
struct weft_control_signature {
    uint32_t kind, len, root;
};

struct weft_control_op; /* collect.c, mail.c: one waiting call */

struct weft_control_channel {
    struct weft_control *control; /* lent */
    struct weft_list node;
    uint64_t id;
    uint32_t rank, count; /* of the channel */
    uint32_t *members;    /* [count] ranks of the job; owned */
    uint32_t *rank_of;    /* [ranks of the job] or NULL when the same; owned */

    _Atomic uint32_t ended; /* the abort word: a status; what follows is written before */
    char text[TEXT_LEN];
    uint32_t ended_rank,
        ended_number; /* of the job, or NO_RANK; of the verdict, 0: there was none */
    int ended_fd;     /* eventfd, owned; -1: nobody asked for one */
    /* collect.c: the collective in progress or about to be */
    uint32_t depth, height;       /* of this rank, of the whole tree */
    uint32_t parent, child_count; /* channel ranks */
    uint32_t children[DEGREE_MAX];
    uint32_t calls;                     /* number of the next collective */
    bool have_all_called;               /* one has succeeded */
    struct weft_control_op *collect;    /* the caller waiting, NULL: not called yet */
    struct weft_control_signature seen; /* of the first child that contributed; kind 0: none */
    uint32_t seen_rank;
    uint8_t has_come[DEGREE_MAX];
    uint32_t come_count;
    uint8_t *gathered; /* entries {rank, bytes}; owned */
    size_t gathered_len, gathered_room;
    uint32_t gathered_count;

    /* mail.c */
    struct weft_list inbox;         /* messages not received yet */
    struct weft_list mail_ops;      /* callers waiting */
    struct weft_list aborts;        /* callers of abort, waiting for their own verdict */
    struct weft_control_op *shrink; /* shrink.c: who waits; NULL: nobody */
    uint32_t
        *unreceived; /* [count] bytes on their way to each rank; owned, made at the first send */
};

/* NULL: it is not open here. */
struct weft_control_channel *weft_control_channel_find(const struct weft_control *control,
                                                       uint64_t id);
bool weft_control_channel_is_member(const struct weft_control_channel *channel, uint32_t job_rank,
                                    uint32_t *rank_p);
/* Ends it (once) and fails every waiting call, by our own judgement. rank: of the job, who is to blame, or NO_RANK. */
void weft_control_channel_end(struct weft_control_channel *channel, weft_status_t status,
                              uint32_t rank, const char *text);
/* The same, by a verdict. */
void weft_control_channel_end_by(struct weft_control_channel *channel,
                                 const struct weft_wire_notice *notice);
/* A rank closed in good order: fails what waits for it or for somebody behind it. */
void weft_control_channel_rank_closed(struct weft_control_channel *channel, uint32_t job_rank);
/* Is a member out of reach? Then words why, for who calls now. */
bool weft_control_channel_is_cut(const struct weft_control_channel *channel, char text[TEXT_LEN]);

void weft_control_collect_arrived(struct weft_control_channel *channel,
                                  const struct weft_wire_frame *frame, const uint8_t *payload);
void weft_control_mail_arrived(struct weft_control_channel *channel,
                               const struct weft_wire_frame *frame, const uint8_t *payload);
/* Somebody waits for us there at its deadline, in the call that we are in: if we wait for others ourselves, the notice
 * names those. */
void weft_control_collect_late(struct weft_control *control, uint64_t comm,
                               struct weft_wire_notice *notice);
void weft_control_collect_end(struct weft_control_channel *channel, weft_status_t status,
                              const char *text);
void weft_control_mail_end(struct weft_control_channel *channel, weft_status_t status,
                           const char *text);
/* Fails what waits for ranks that are out of reach now. */
void weft_control_mail_cut(struct weft_control_channel *channel);
void weft_control_mail_close(struct weft_control_channel *channel);

/* One call that waits: completed by a round, with a status and words. */
struct weft_control_op {
    struct weft_engine_task task; /* how it enters the engine */
    struct weft_control_channel *channel;
    struct weft_list node;
    _Atomic uint32_t is_done;
    weft_status_t status;
    char text[TEXT_LEN];
    uint32_t blamed; /* at its deadline: the rank of the job that it waits for, or NO_RANK */
};
/* Runs under the lock when a call's deadline has passed: leaves its words in op->text, whom in op->blamed, and reports
 * them. Not zero: it has reason to wait so many ms longer, and will be asked once more. */
typedef uint64_t (*weft_control_give_up_fn)(struct weft_control_op *op);
/* Posts and waits: op->task.run is set. After a timeout the verdict that comes back, or its absence,
 * ends the channel and with it the op. Sets the error text. */
weft_status_t weft_control_op_run(struct weft_control_op *op, uint64_t timeout_ms,
                                  weft_control_give_up_fn give_up);
void weft_control_op_done(struct weft_control_op *op, weft_status_t status, const char *text);

static inline uint32_t get32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}
static inline void put32(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
    bytes[2] = (uint8_t)(value >> 16);
    bytes[3] = (uint8_t)(value >> 24);
}

#endif
