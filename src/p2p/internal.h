/* SPDX-License-Identifier: Apache-2.0 */
/* Private to p2p: the objects its files share. Everything is under the engine's lock, except a
 * request's is_done and what one thread prepares before it begins. */
#ifndef WEFT_P2P_INTERNAL_H
#define WEFT_P2P_INTERNAL_H

#include "p2p/p2p.h"

#define WEFT_REQUEST_MAGIC 0x77656274u
#define WEFT_P2P_BULK ((size_t)16 << 10) /* longer copies run without the lock */
#define WEFT_P2P_PIECE ((size_t)4 << 20) /* of a copy that is pulled */
#define WEFT_P2P_TURN                                                                              \
    ((size_t)8 << 20)     /* of one stream; shorter ones go whole, which caches like */
#define WEFT_P2P_WINDOW 4 /* chunks lent to a lane that only copies them */
#define WEFT_P2P_JOBS 64
#define WEFT_P2P_HINTS 4
#define WEFT_P2P_HEARD_BETWEEN 16 /* polls: then more than the shortest messages has its turn */
#define WEFT_P2P_CLOSED 64
#define WEFT_P2P_TEXT 320

struct weft_p2p_peer;

enum weft_request_kind {
    REQUEST_SEND,
    REQUEST_RECV,
    REQUEST_PROBE,
    REQUEST_PUT,    /* until it is given to the lane */
    REQUEST_GET,    /* until its bytes are here */
    REQUEST_ANSWER, /* serves a peer's get; nobody waits for it */
    REQUEST_FLUSH,  /* until the peer has applied all puts */
    REQUEST_QUIET,  /* until no get is open */
    REQUEST_SIGNAL, /* until a word is large enough */
    REQUEST_OUTER,  /* until whoever made it says so */
};

struct weft_request {
    _Atomic uint32_t is_done; /* set last: its owner may free it from then on */
    uint32_t magic;
    enum weft_request_kind kind;
    weft_status_t status;
    struct weft_p2p_comm *comm;
    struct weft_p2p_peer *peer; /* NULL: oneself, or not known yet */
    uint32_t rank, tag;         /* of the communicator, or ANY */
    uint8_t *data;              /* lent */
    size_t len;
    weft_message_t *message_p; /* lent; NULL: not asked for */
    weft_message_t message;

    struct weft_match_receive receive;
    struct weft_list node;   /* in one list of its peer */
    struct weft_list stream; /* among the peer's streams */
    struct weft_list active; /* in its communicator: what deadlines and failures find */
    struct weft_engine_task task;
    struct weft_request *next;  /* in a group, or free */
    struct weft_request *older; /* pooled: the one allocated before it */
    _Atomic uint32_t *bell;     /* of a wait for any of several; lent; NULL: none */

    uint64_t record;       /* in the flight recorder; 0: none */
    uint64_t total, moved; /* bytes of a long one; posted, or landed */
    uint32_t id, pass;
    uint32_t lent, works; /* memory in the lane's hands; copies under way */
    bool is_ended;        /* only lent and works keep it from being done */
    bool is_late;         /* its deadline has passed and was reported */
    bool is_pooled;       /* from the pool; else on its caller's stack */
    uint64_t timeout_ms, deadline_ns;
    char *text; /* owned; NULL: the status says it */

    /* one-sided */
    uint64_t registration, offset;
    uint64_t signal_registration, signal_offset, add;
    bool has_signal;
    const _Atomic uint64_t *word; /* SIGNAL; lent */
    uint64_t value;
    uint32_t guard; /* SEND that the receiver may read by itself: its word; 0: none */
};

/* What the caller of a send, a receive or a probe says. */
struct weft_request_args {
    struct weft_slice slice;
    uint32_t rank, tag;        /* or ANY */
    weft_message_t *message_p; /* NULL: not asked for */
};

/* What an announcement says about the sender's memory, where the receiver may read it itself. The
 * sender clears the guard before it gives the memory back: what was copied counts only if the guard is
 * there afterwards. */
struct weft_p2p_source {
    uint64_t region, offset; /* an allocation of weft_alloc(); 0: none */
    uint64_t address;        /* in the sender's address space; 0: not that way */
    uint64_t guard_region, guard, guard_value;
};

/* A message that came before its receive. */
struct weft_p2p_arrival {
    struct weft_match_arrival match;
    struct weft_p2p_comm *comm;
    struct weft_p2p_peer *peer; /* NULL: oneself */
    uint64_t len;
    uint8_t type; /* EAGER or ANNOUNCE */
    uint8_t flags;
    uint8_t size;  /* which of the sizes that are kept its memory has; see arrivals.c */
    bool is_whole; /* EAGER: all bytes are there */
    struct weft_request *receive; /* that waits for them */
    struct weft_request *sender;  /* ANNOUNCE by oneself */
    uint32_t id;
    struct weft_p2p_source source; /* ANNOUNCE: where to pull from */
    uint8_t data[];
};

#define WEFT_P2P_ARRIVAL_SIZES 4

enum weft_p2p_placing {
    PLACE_NOTHING,
    PLACE_RECV,
    PLACE_ARRIVAL,
    PLACE_ORPHAN,
    PLACE_CHUNK,
    PLACE_PART,
    PLACE_PUT,
    PLACE_SINK
};

/* Bulk on its way into memory. */
struct weft_p2p_piece {
    enum weft_p2p_placing placing;
    struct weft_request *request; /* CHUNK and PART; NULL: nobody's any more */
    uint64_t registration;        /* PUT */
};

/* A frame of a communicator that is not open here yet. */
struct weft_p2p_orphan {
    struct weft_list node;
    struct weft_p2p_peer *peer;
    bool is_whole;
    struct weft_done done;
    uint8_t payload[];
};

/* A short frame that could not be sent at once. */
struct weft_p2p_reply {
    struct weft_list node;
    struct weft_wire_data frame;
};

/* A rank of the job that we have to do with. */
struct weft_p2p_peer {
    struct weft_link link;
    struct weft_p2p *p2p;
    struct weft_list waiting;  /* requests whose next frame the link did not take, in order */
    struct weft_list streams;  /* SEND and ANSWER with chunks to go */
    struct weft_list sends;    /* announced, until DONE */
    struct weft_list incoming; /* RECV whose chunks come */
    struct weft_list gets, flushes;
    struct weft_list replies;
    uint32_t lent; /* chunks in the lane's hands */
    uint32_t next_id;

    /* the envelope that is being placed */
    enum weft_p2p_placing placing;
    struct weft_request *placing_request;
    struct weft_p2p_arrival *placing_arrival;
    struct weft_p2p_orphan *placing_orphan;
    struct weft_p2p_piece pieces[WEFT_LINK_SLOTS]; /* bulk that is being placed, by lane */

    /* one-sided, as target: a flush or a signal waits for copies before it */
    uint32_t put_works;
    struct weft_list held; /* weft_p2p_reply: SIGNAL and FLUSH frames */
    uint32_t flush_number; /* one-sided, as origin */

    bool is_going, is_gone;         /* going: to be failed once its lane is silent */
    struct weft_engine_timer grace; /* its lane is lost; the control plane may know why */
    unsigned graces;                /* that it had */
    weft_status_t gone_status;
    char gone_text[WEFT_P2P_TEXT];
    struct weft_list node; /* among all */
};

struct weft_p2p_hint {
    uint32_t tag, count;
};

/* A rank of a communicator, as its messages see it. */
struct weft_p2p_member {
    uint32_t sent, received; /* envelopes */
    uint32_t unhinted;       /* the latest that no hint had asked for */
    uint32_t hinted;         /* how many hints are there in all */
    struct weft_p2p_hint hints[WEFT_P2P_HINTS];
    uint32_t puts, flushed; /* frames of one-sided operations to it; how many it has confirmed */
    weft_status_t refused;  /* of its puts here, since its last flush */
    bool is_closed;         /* it has said so */
    bool is_asked;          /* … or would, when it does */
};

/* A message that nobody receives is a sign that ranks made different calls: its sender is asked, and asked
 * again after twice as many sweeps. */
struct weft_p2p_strays {
    weft_p2p_stray_fn ask; /* NULL: not of interest */
    void *owner;
    uint32_t source, tag; /* of the oldest at the last sweep */
    uint32_t sweeps;      /* since it is the oldest */
};

struct weft_p2p_comm {
    struct weft_p2p *p2p;
    struct weft_list node;
    uint64_t id;
    uint64_t channel; /* what the control plane calls it */
    uint32_t rank, ranks;
    const uint32_t *members;        /* lent; NULL: the job's ranks */
    uint32_t *rank_of;              /* [ranks of the job], owned; NULL: the same */
    struct weft_p2p_member *states; /* [ranks], owned */
    struct weft_p2p_peer **peers;   /* [ranks], NULL: nothing to do with it yet; owned */
    struct weft_match match;
    struct weft_list active; /* requests */
    struct weft_list probes;
    struct weft_p2p_group *_Atomic groups;      /* that threads have open (group.c); owned */
    struct weft_p2p_group *_Atomic spare_group; /* owned; NULL: none */
    _Atomic uint64_t timeout_ms;                /* read by whoever begins something */
    uint32_t closed_count;                      /* members that have closed it */
    uint32_t gets_open;
    struct weft_list quiets;
    weft_status_t side_status; /* first error of one-sided operations */
    char side_text[WEFT_P2P_TEXT];
    struct weft_p2p_strays strays; /* of collectives' messages */
    _Atomic uint32_t told;         /* how a member says that it has failed there; 0: nobody does */
    _Atomic uint32_t ended;        /* status; text before */
    char text[WEFT_P2P_TEXT];
};

struct weft_p2p_registration {
    uint64_t id; /* 0: free */
    uint8_t *memory;
    size_t len;
    uint64_t comm;
    uint64_t held; /* the allocation of weft_alloc() that it lies in; 0: none */
};

/* A copy that runs without the lock. */
struct weft_p2p_job {
    struct weft_engine_work work;
    struct weft_p2p *p2p;
    struct weft_p2p_job *next; /* free */
    void (*done)(struct weft_p2p_job *job);
    uint8_t *to;
    const uint8_t *from;
    uint64_t address; /* pull from here instead, by the lane */
    size_t len;
    enum weft_mem_copy how;
    struct weft_lane *lane; /* NULL: nothing to release or pull */
    uint32_t token;
    const _Atomic uint64_t *guard; /* of the sender; NULL: the memory cannot go */
    uint64_t guard_value;
    struct weft_mem_mapping *held[2]; /* guarded: where `from` and `guard` lie */
    struct weft_request *request, *other;
    struct weft_p2p_peer *peer;
    weft_status_t status;
};

struct weft_p2p {
    struct weft_p2p_spec spec;
    struct weft_engine *engine;
    struct weft_links *links; /* owned */
    uint32_t self, ranks;
    uint32_t generation; /* of the process that made it */
    size_t eager;
    bool may_pull;
    struct weft_engine_poller poller;
    struct weft_engine_timer sweep;
    bool is_polled; /* the poller is with the engine */
    uint32_t polls;

    struct weft_p2p_comm *latest; /* of the latest frame */
    struct weft_list comms, all_peers;
    struct weft_p2p_peer **peers; /* [ranks of the job], owned */
    struct weft_list orphans;     /* frames of communicators that are not open here yet */
    uint64_t closed[WEFT_P2P_CLOSED];
    uint32_t closed_next;
    struct weft_list signals; /* requests that wait for a word */
    uint32_t going;

    struct weft_p2p_registration *registrations; /* owned */
    uint32_t registration_count, registration_room;
    uint32_t registration_serial;
    /* One word per registration, in shared memory: its id while it lasts. Whoever writes to mapped memory
     * looks there first. NULL: none of shared memory yet. */
    _Atomic uint64_t *valid; /* owned, of weft_mem_alloc() */
    uint64_t valid_region;
    uint32_t guards; /* how many of the last words are taken by sends */

    struct weft_p2p_job jobs[WEFT_P2P_JOBS], *free_jobs;
    _Atomic uint32_t pool_lock;
    struct weft_request *pool;                      /* free requests */
    struct weft_request *newest;                    /* of all that were allocated */
    struct weft_list spare[WEFT_P2P_ARRIVAL_SIZES]; /* memory for arrivals, owned */
    unsigned spare_count[WEFT_P2P_ARRIVAL_SIZES];
    bool has_gone; /* some rank of the job has closed or died */
};

/* ---- request.c ---- */
/* Its owner's call is recorded until it is done. Not those of the shortest way, which wait for nothing. */
void weft_p2p_request_record(struct weft_request *request, enum weft_record_kind kind);

/* ---- p2p.c ---- */
void weft_p2p_orphan_landed(struct weft_p2p_peer *peer);
/* One of the shortest messages came. */
void weft_p2p_word_heard(struct weft_p2p *p2p, const struct weft_lane_word *word);
struct weft_p2p_comm *weft_p2p_find_comm(struct weft_p2p *p2p, uint64_t id);
/* Frames that came before this communicator was opened. */
void weft_p2p_adopt_orphans(struct weft_p2p *p2p, struct weft_p2p_comm *comm);

/* ---- inner.c ---- */
/* Members whose links are up hear that it has failed here. */
void weft_p2p_tell_ended(struct weft_p2p_comm *comm, weft_status_t status);
void weft_p2p_ended_arrived(struct weft_p2p_comm *comm, const struct weft_wire_data *frame);
/* A message is kept: the sweep will look at it. */
void weft_p2p_strays_watch(const struct weft_p2p_comm *comm);
/* At a sweep; false: there is none. */
bool weft_p2p_strays_look(struct weft_p2p_comm *comm);

/* ---- closing.c ---- */
bool weft_p2p_is_closed(const struct weft_p2p *p2p, uint64_t id);
/* A frame of a communicator that is closed here: its sender must not wait for it. */
void weft_p2p_sink(struct weft_p2p_peer *peer, const struct weft_wire_data *frame);
/* The rank that it needs has closed the communicator, or is gone: then it ends. */
bool weft_p2p_end_if_gone(struct weft_request *request);
void weft_p2p_bye_arrived(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                          const struct weft_wire_data *frame);
/* Receives and signals have waited: have their ranks closed, and could not say so? */
void weft_p2p_ask(struct weft_p2p_comm *comm);
void weft_p2p_ask_anybody(struct weft_p2p_comm *comm);

/* ---- peers.c ---- */
/* The communicator's rank of a peer; NO_RANK: not a member. */
static inline uint32_t weft_p2p_source(const struct weft_p2p_comm *comm,
                                       const struct weft_p2p_peer *peer)
{
    return comm->rank_of != NULL ? comm->rank_of[peer->link.peer] : peer->link.peer;
}
/* Its lane has ended. */
void weft_p2p_peer_lost(struct weft_p2p_peer *peer, weft_status_t status, const char *text);
/* A peer is lost to us that the control plane believes well: the communicator's members must hear. */
void weft_p2p_tell_members(const struct weft_p2p_comm *comm, const struct weft_p2p_peer *peer);
void weft_p2p_fail_going(struct weft_p2p *p2p);
/* Have all other ranks of the communicator closed or died? */
#define WEFT_P2P_ALONE "all other ranks of the communicator have closed or died"
bool weft_p2p_is_alone(const struct weft_p2p_comm *comm);
/* It has closed or died, and what it sent before was taken. */
bool weft_p2p_has_left(const struct weft_p2p_comm *comm, uint32_t rank);
/* Receives, probes and signals of anybody, where nobody is left. */
void weft_p2p_fail_of_anybody(struct weft_p2p_comm *comm);
void weft_p2p_fail_of_anybody_everywhere(struct weft_p2p *p2p);
void weft_p2p_replies_free(struct weft_list *list);
struct weft_p2p_peer *weft_p2p_peer_of(struct weft_p2p *p2p, uint32_t job_rank);
/* The peer of a communicator's rank; NULL: oneself, or (then status is set) no memory. */
struct weft_p2p_peer *weft_p2p_comm_peer(struct weft_p2p_comm *comm, uint32_t rank);
uint32_t weft_p2p_job_rank(const struct weft_p2p_comm *comm, uint32_t rank);
/* "rank 3 of the communicator (pid …)" */
void weft_p2p_name(const struct weft_p2p_comm *comm, uint32_t rank, char *text, size_t room);
/* Sends a short frame, later if it must be. */
void weft_p2p_reply(struct weft_p2p_peer *peer, const struct weft_wire_data *frame);
/* Whatever waits for the link goes on. */
void weft_p2p_pump(struct weft_p2p_peer *peer);
/* Everything that needs it fails, at the end of a poll. text: after its name. */
void weft_p2p_peer_fail(struct weft_p2p_peer *peer, weft_status_t status, const char *text);

/* ---- registrations.c ---- */
/* Its communicator closes. */
void weft_p2p_registrations_close(struct weft_p2p_comm *comm);
/* A word that says until when a send's memory may be read; false: none is free. */
bool weft_p2p_guard_take(struct weft_request *request, struct weft_lane *lane,
                         struct weft_p2p_source *source_p);
void weft_p2p_guard_give(struct weft_request *request);

/* ---- copies.c ---- */
/* Copies now, or as a job when it is long and one is free. job->done runs under the lock. */
void weft_p2p_copy(struct weft_p2p *p2p, const struct weft_p2p_job *what);
/* A frame's payload to the place in the request's memory that the frame names. */
void weft_p2p_copy_payload(struct weft_request *request, const struct weft_done *done,
                           enum weft_mem_copy how, void (*copied)(struct weft_p2p_job *job));
/* The best way to write `total` bytes that nobody reads soon. */
enum weft_mem_copy weft_p2p_copy_kind(size_t total);

/* Memory whose guard is cleared is not read any more by ranks of this process. */
void weft_p2p_readers_leave(void);

/* ---- request.c ---- */
struct weft_request *weft_p2p_request_take(struct weft_p2p_comm *comm, enum weft_request_kind kind);
void weft_p2p_request_give(struct weft_p2p *p2p, struct weft_request *request);
void weft_p2p_request_init(struct weft_request *request, struct weft_p2p_comm *comm,
                           enum weft_request_kind kind);
/* It has ended; done as soon as nothing of ours holds its memory. text "": the status says it. */
void weft_p2p_request_end(struct weft_request *request, weft_status_t status, const char *text);
/* lent or works went down. */
void weft_p2p_request_settle(struct weft_request *request);
/* Begins it under the lock (now, or by the driver) and waits for it, or hands it out. */
weft_status_t weft_p2p_request_run(struct weft_request *request, weft_request_t *request_p);
/* Their communicator goes: their owners can do nothing with them any more. */
void weft_p2p_requests_end_with(const struct weft_p2p_comm *comm);

/* ---- deadlines.c ---- */
/* It will take a while: deadlines and failures must find it. */
void weft_p2p_request_list(struct weft_request *request);
void weft_p2p_sweep(struct weft_engine_timer *timer, uint64_t now_ns);

/* ---- comm.c ---- */
/* The user's memory comes back, whatever the peer does; copies that run are waited for elsewhere. */
void weft_p2p_take_back(struct weft_request *request, bool is_there);

/* ---- group.c ---- */
/* Has this thread begun one? Then blocking operations are only begun, and added to it. */
bool weft_p2p_group_has(const struct weft_p2p_comm *comm);
static inline bool weft_p2p_group_is_open(const struct weft_p2p_comm *comm)
{
    return atomic_load_explicit(&comm->groups, memory_order_relaxed) != NULL &&
           weft_p2p_group_has(comm);
}
/* All threads', when the communicator is closed; their requests end with that. */
void weft_p2p_groups_forget(struct weft_p2p_comm *comm);
void weft_p2p_group_add(struct weft_p2p_comm *comm, struct weft_request *request);

/* The number of the next long message or get of this link; never 0, which is none. */
static inline uint32_t weft_p2p_next_id(const struct weft_p2p_peer *peer)
{
    return peer->next_id + 1 != 0 ? peer->next_id + 1 : 1;
}

/* ---- send.c ---- */
void weft_p2p_send_begin(struct weft_request *request);
/* An envelope goes out: was its receive announced? */
bool weft_p2p_hint_take(struct weft_p2p_member *member, uint32_t tag);
/* One that waits gets its envelope out. */
enum weft_p2p_step {
    STEP_FULL,  /* not now */
    STEP_TAKEN, /* it is done, or soon: not to be touched any more */
    STEP_BEGUN, /* announced: the rest follows */
};
enum weft_p2p_step weft_p2p_send_advance(struct weft_request *request);
/* One piece further, of a send or of an answer to a get; false: the link is full. */
bool weft_p2p_stream_advance(struct weft_request *request);
void weft_p2p_stream_start(struct weft_request *request, uint32_t pass);
void weft_p2p_grant_arrived(struct weft_p2p_peer *peer, const struct weft_wire_data *frame);
void weft_p2p_done_arrived(struct weft_p2p_peer *peer, const struct weft_wire_data *frame);
void weft_p2p_hint_arrived(struct weft_p2p_comm *comm, uint32_t source,
                           const struct weft_wire_data *frame);
void weft_p2p_sent(struct weft_p2p_peer *peer, struct weft_request *request);

/* ---- recv.c ---- */
void weft_p2p_recv_begin(struct weft_request *request);
void weft_p2p_probe_begin(struct weft_request *request);
/* EAGER or ANNOUNCE; done->payload is there. */
void weft_p2p_envelope_arrived(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                               const struct weft_done *done);
/* One of the shortest. */
void weft_p2p_word_arrived(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                           const struct weft_lane_word *word);
/* EAGER whose payload is still to come. */
void weft_p2p_envelope_place(struct weft_p2p_comm *comm, struct weft_p2p_peer *peer,
                             const struct weft_done *done);
void weft_p2p_recv_end(struct weft_request *request); /* all of it came, or what fits */
/* The frame that was placed is whole. */
void weft_p2p_landed(struct weft_p2p_peer *peer, const struct weft_done *done);
void weft_p2p_place(struct weft_p2p_peer *peer, const struct weft_done *done,
                    enum weft_p2p_placing placing, void *data);
/* The piece that comes by this slot is not the request's (or registration's) any more. */
void weft_p2p_unplace_pieces(struct weft_p2p_peer *peer, const struct weft_request *request);
/* Signals and flushes whose pieces are all there now. */
void weft_p2p_held_check(struct weft_p2p_peer *peer);
/* Somebody sends to oneself: NULL when no receive takes it. */
void weft_p2p_self_arrived(struct weft_request *sender);
/* What is being placed will not be wanted: its rest goes to the sink, if the lane still is there. */
void weft_p2p_arrival_drop(struct weft_p2p_arrival *arrival);

/* ---- incoming.c ---- */
/* Receive and announcement have met. */
void weft_p2p_begin_long(struct weft_request *request, const struct weft_p2p_arrival *arrival);
void weft_p2p_chunk_arrived(struct weft_p2p_peer *peer, const struct weft_done *done);
void weft_p2p_chunk_place(struct weft_p2p_peer *peer, const struct weft_done *done);
void weft_p2p_chunk_landed(struct weft_request *request, size_t len);

/* ---- origin.c ---- */
/* Whose the memory is that puts have lent to the link: one member's, so that the puts of a communicator that ends
 * are taken back and no others. Nobody counts them, so nothing need be read through it: it may outlive the member. */
static inline void *weft_p2p_puts_cookie(const struct weft_p2p_member *member)
{
    return (uint8_t *)member + 1; /* no object of ours begins there */
}
static inline bool weft_p2p_is_puts_cookie(const void *cookie)
{
    return ((uintptr_t)cookie & 1) != 0;
}
/* PUT, GET or FLUSH gets its next frame out; false: the link is full. */
bool weft_p2p_side_advance(struct weft_request *request);
void weft_p2p_side_begin(struct weft_request *request);
void weft_p2p_origin_arrived(struct weft_p2p_peer *peer, const struct weft_done *done);
void weft_p2p_part_place(struct weft_p2p_peer *peer, const struct weft_done *done);
void weft_p2p_part_landed(struct weft_request *request, size_t len);
void weft_p2p_get_ended(struct weft_request *request);
void weft_p2p_signals_check(struct weft_p2p *p2p);

/* ---- quiet.c ---- */
/* OK, or what ended the communicator. */
weft_status_t weft_p2p_side_check(const struct weft_p2p_comm *comm);
/* What a failed call was lent is its caller's again: copies of an ended communicator that wait or run
 * are over. Returns status, with its text. */
weft_status_t weft_p2p_side_settle(struct weft_p2p_comm *comm, weft_status_t status);

/* ---- target.c ---- */
/* Nothing touches the memory of this registration any more. */
void weft_p2p_target_stop(struct weft_p2p_comm *comm, uint64_t registration);
void weft_p2p_target_arrived(struct weft_p2p_peer *peer, const struct weft_done *done);
void weft_p2p_put_place(struct weft_p2p_peer *peer, const struct weft_done *done);

/* ---- arrivals.c ---- */
/* With room for a message of len bytes, otherwise not set but for its size; NULL: no memory. */
struct weft_p2p_arrival *weft_p2p_arrival_take(struct weft_p2p *p2p, size_t len);
void weft_p2p_arrival_give(struct weft_p2p_arrival *arrival);
void weft_p2p_arrivals_open(struct weft_p2p *p2p);
void weft_p2p_arrivals_close(struct weft_p2p *p2p);

#endif
