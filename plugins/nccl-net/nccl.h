/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's one implementation, which the versions of the ABI (v8.c … v12.c) adapt.
 *
 * A connection (comm) leads one way, from isend to irecv, over several lanes: TCP connections, over every NIC of its
 * device. Messages are cut into chunks; whichever lane has room takes the next one. The receiver says when
 * messages have landed; until then the sender's memory is lent (small messages are copied, and done when a socket has
 * them), so that what a dead lane carried can go again.
 *
 * Who does what:
 *   set-up, lanes that come and go, silence   under the engine's lock: whoever calls connect or accept, and
 *                                             the background thread
 *   moving bytes                              whoever owns the lane for the moment: a caller of test(), or the
 *                                             helper thread that the lane belongs to
 *   messages and chunks of a comm             under the comm's lock, which nobody holds across a system call
 * Order: engine, then a lane, then a comm, then a helper.
 */
#ifndef WEFT_NCCL_H
#define WEFT_NCCL_H

#include "abi.h"
#include "frame.h"

#include "engine/engine.h"
#include "net/net.h"
#include "topo/topo.h"
#include "watch/watch.h"

#include <pthread.h>

#define WEFT_NCCL_NICS 8
#define WEFT_NCCL_HELPERS 16
#define WEFT_NCCL_GROUP 8                    /* receives of one irecv */
#define WEFT_NCCL_SENDS 64                   /* sent and not known to have landed */
#define WEFT_NCCL_RECEIVES 256               /* ≥ requests × group */
#define WEFT_NCCL_COPIES ((size_t)256 << 10) /* of sends that have not landed */
#define WEFT_NCCL_SMALL 4096 /* up to here a message may be read together with its header */
#define WEFT_NCCL_STAGE (WEFT_NCCL_SMALL + WEFT_NCCL_CHUNK_LEN)

/* ---- counters: X(ID, "name", "sentence") ---- */

#define WEFT_NCCL_COUNTERS(X)                                                                      \
    X(MESSAGES_OUT, "messages_out", "messages sent")                                               \
    X(MESSAGES_IN, "messages_in", "messages received whole")                                       \
    X(BYTES_OUT, "bytes_out", "payload bytes given to sockets")                                    \
    X(BYTES_IN, "bytes_in", "payload bytes taken from sockets")                                    \
    X(CHUNKS_OUT, "chunks_out", "chunks begun")                                                    \
    X(CHUNKS_AGAIN, "chunks_again", "chunks sent again, because their lane was lost")              \
    X(CHUNKS_SUNK, "chunks_sunk", "chunks that had landed before")                                 \
    X(NOTES_OUT, "notes_out", "notes that messages have landed")                                   \
    X(LANES_OPENED, "lanes_opened", "lanes that came up")                                          \
    X(LANES_LOST, "lanes_lost", "lanes that ended while their connection went on")                 \
    X(WAITED, "waited", "times bytes came before their receive was posted")                        \
    X(HELPER_WAKES, "helper_wakes", "times a helper thread was woken")
enum weft_nccl_counter {
#define WEFT_NCCL_COUNTER_ENUM(id, name, sentence) WEFT_NCCL_COUNT_##id,
    WEFT_NCCL_COUNTERS(WEFT_NCCL_COUNTER_ENUM)
#undef WEFT_NCCL_COUNTER_ENUM
        WEFT_NCCL_COUNTER_COUNT
};

/* ---- log (log.c) ---- */

void weft_nccl_log_open(nccl_logger_t given);
void weft_nccl_say(int level, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* The level for something that may come often: INFO once a second, else TRACE. */
int weft_nccl_news_level(void);
/* Says the thread's error text as a warning, and how NCCL calls such a thing. */
int weft_nccl_result(weft_status_t status);

/* ---- devices (devices.c) ---- */

struct weft_nccl_nic {
    char name[IF_NAMESIZE];
    struct sockaddr_storage addr;
    uint32_t prefix_len;
};

struct weft_nccl_device {
    char name[128];
    char pci_path[WEFT_TOPO_PCI_PATH_LEN + 16]; /* "": none */
    uint64_t guid;
    int speed_mbps;
    float latency_us;
    uint32_t count; /* NICs */
    uint8_t nics[WEFT_NCCL_NICS];
};

struct weft_nccl_devices {
    uint32_t nic_count, count;
    struct weft_nccl_nic nics[WEFT_NCCL_NICS];
    struct weft_nccl_device device[WEFT_NCCL_NICS];
    bool has_cpus; /* helpers run on these */
    cpu_set_t cpus;
};

weft_status_t weft_nccl_devices_find(const struct weft_params *params,
                                     struct weft_nccl_devices *devices_p);

/* ---- the process (core.c) ---- */

struct weft_nccl_comm;
struct weft_nccl_helper;

struct weft_nccl_core {
    struct weft_params params;                  /* as at the first init */
    struct weft_nccl_devices devices;           /* the same */
    uint64_t counters[WEFT_NCCL_COUNTER_COUNT]; /* atomic */
    /* while anything is open: */
    struct weft_engine *engine;
    uint32_t process;
    uint8_t *key; /* secret, owned */
    struct weft_wire_self self;
    struct weft_net_acceptor *acceptors[WEFT_NCCL_NICS];
    struct weft_wire_addr addrs[WEFT_NCCL_NICS];
    struct weft_engine_timer tick;
    struct weft_engine_source carrier; /* fd -1: no news of NICs */
    bool is_nic_down[WEFT_NCCL_NICS];  /* as far as that was heard */
    struct weft_list listeners, comms; /* engine lock */
    struct weft_list leaving;          /* leave.c; engine lock */
    _Atomic uint32_t lanes;            /* of all connections, those that are dialled included */
    uint32_t helper_count;
    struct weft_nccl_helper *helpers; /* owned */
};

extern struct weft_nccl_core weft_nccl_core;

static inline void weft_nccl_count(enum weft_nccl_counter which, uint64_t by)
{
    __atomic_fetch_add(&weft_nccl_core.counters[which], by, __ATOMIC_RELAXED);
}

weft_status_t weft_nccl_init(nccl_logger_t logger);
/* The first opens all that the process shares, the last closes it. */
weft_status_t weft_nccl_core_take(void);
void weft_nccl_core_give(void);
bool weft_nccl_core_take_open(void); /* false: nothing is open */
/* The job that a process with this key serves: shown to all who come. */
void weft_nccl_core_job(const uint8_t key[WEFT_WIRE_KEY_LEN], uint8_t job[16]);
/* Was it made before this process was forked? Then it is the parent's. */
bool weft_nccl_is_foreign(uint32_t process);

/* ---- lanes (lane.c) ---- */

enum weft_nccl_lane_state {
    WEFT_NCCL_LANE_DEAD, /* its place may be taken */
    WEFT_NCCL_LANE_DIALLING,
    WEFT_NCCL_LANE_UP,
    WEFT_NCCL_LANE_RETIRING, /* takes no more chunks, and is closed when all of its have landed */
};

/* What is wanted of a lane's owner. */
#define WEFT_NCCL_OWNED UINT32_C(1)
#define WEFT_NCCL_READ UINT32_C(2)
#define WEFT_NCCL_WRITE UINT32_C(4)
#define WEFT_NCCL_NOTES UINT32_C(8)
#define WEFT_NCCL_KILL UINT32_C(16)
#define WEFT_NCCL_END UINT32_C(32) /* with READ: there is an end to be found */

struct weft_nccl_lane {
    _Atomic uint32_t wanted; /* bits; whoever sets OWNED does what is wanted until nothing is */
    struct weft_nccl_comm *comm;
    uint8_t index;                             /* in the comm */
    _Atomic(struct weft_nccl_helper *) helper; /* NULL: callers drive it */
    /* under the comm's lock, once it is known there */
    enum weft_nccl_lane_state state;
    uint32_t id;
    uint16_t slot;
    uint8_t nic, there;          /* which of ours, which of the peer's addresses */
    uint64_t last_number;        /* the latest message it carried a part of */
    double rate;                 /* bytes per second that it drains; 0: not known */
    uint64_t backlog, looked_ns; /* bytes in its socket, and when that was */
    uint64_t since_ns, drained;  /* begin of the sample */
    uint64_t sampled_ns;         /* end of the last one */
    /* engine lock */
    struct weft_net_conn *conn; /* while it is dialled */
    uint64_t dialled_ns, stuck_ns, stuck_bytes;
    _Atomic(const char *) kill_why;
    /* the helper's kick lock */
    uint32_t kicked; /* bits; 0: not among the kicked */
    struct weft_nccl_lane *next_kicked;
    /* the owner's */
    int fd;
    bool is_parked; /* waits for a receive */
    bool has_frame, is_sunk;
    bool is_opening;              /* its frame only opens the lane */
    bool is_ending;               /* epoll has seen its end: it is to be read up to there */
    bool has_ended;               /* … and it was no reset */
    struct weft_nccl_chunk frame; /* on its way out, or in */
    uint8_t head[WEFT_NCCL_CHUNK_LEN];
    size_t head_left;
    uint64_t written; /* bytes, to its socket */
    uint8_t *data;    /* lent: where the next of its payload is, or goes */
    size_t left;
    size_t in_start, in_end;
    uint8_t in[WEFT_NCCL_STAGE];
};

/* Does what is wanted, unless somebody is at it: then they do. */
void weft_nccl_lane_drive(struct weft_nccl_lane *lane, uint32_t bits);
/* Returns when whoever is at it now has let go. */
void weft_nccl_lane_settle(struct weft_nccl_lane *lane);
/* Ends it and waits until nobody touches it; what the kernel has taken still goes out. Engine lock. */
void weft_nccl_lane_stop(struct weft_nccl_lane *lane);
/* A socket whose peer is proved. Engine lock. */
void weft_nccl_lane_begin(struct weft_nccl_lane *lane, int fd);
/* Bytes wait, and the peer's host has not acknowledged any for so many ms. Engine lock. */
uint32_t weft_nccl_lane_silent_ms(struct weft_nccl_lane *lane);
/* A new one, DIALLING; NULL: no memory, or too many. Engine lock. */
struct weft_nccl_lane *weft_nccl_lane_new(struct weft_nccl_comm *comm);
/* It did not come up. Engine lock. */
void weft_nccl_lane_drop(struct weft_nccl_lane *lane);
/* The sender has closed: says no more by this lane, for good. Engine lock. */
void weft_nccl_lane_hush(struct weft_nccl_lane *lane);

/* ---- sockets of senders that have closed (leave.c); engine lock ---- */

/* What the socket has taken still goes out. */
void weft_nccl_leave(struct weft_nccl_comm *comm, int fd);
/* Now and then. Could all of them be left to the kernel? */
bool weft_nccl_leaving_tend(uint64_t now_ns);
void weft_nccl_leaving_end(void);

/* ---- connections (comm.c) ---- */

struct weft_nccl_request {
    struct weft_nccl_comm *comm;
    bool is_used;
    uint32_t count;          /* messages of it */
    _Atomic uint32_t landed; /* of them; all: what else is here is written before */
    uint64_t number;         /* of the first */
    /* receiver */
    struct weft_nccl_place {
        void *data;
        uint32_t room, tag;
        bool is_matched;
        uint32_t len; /* what came */
    } place[WEFT_NCCL_GROUP];
    bool has_twins; /* two places with one tag: matched in the order of the sends */
};

/* One message, at the sender. */
struct weft_nccl_send {
    uint8_t *data; /* lent, or in the comm's copies */
    uint32_t size, tag, chunk_len;
    uint32_t begun, again; /* chunks given to lanes so far; of them, to be sent again */
    uint32_t count;        /* chunks */
    uint32_t writers;      /* lanes that are in the middle of one */
    bool is_eager;
    uint64_t copied;                   /* then: how far the ring was used with it */
    struct weft_nccl_request *request; /* NULL: done */
    uint8_t lane_of[WEFT_NCCL_CHUNKS]; /* index, or AGAIN */
};
#define WEFT_NCCL_AGAIN 0xff

/* One message, at the receiver. */
struct weft_nccl_receive {
    struct weft_nccl_request *request;
    uint8_t place; /* of the request */
    bool is_begun, is_whole;
    uint32_t size, landed;
    uint64_t chunks[WEFT_NCCL_CHUNKS / 64]; /* those that landed */
};

struct weft_nccl_comm {
    bool is_sender;
    uint32_t process; /* that made it */
    const struct weft_nccl_device *device;
    uint64_t id;
    char peer_text[WEFT_NET_ADDR_TEXT_LEN];
    _Atomic int result; /* nccl_result: what all calls say from now on */
    pthread_mutex_t lock;
    struct weft_nccl_lane *lanes[WEFT_NCCL_LANES]; /* owned; only ever added */
    _Atomic uint32_t lane_count;
    /* Lanes that are up, a bit for each; written under the lock. */
    _Atomic uint32_t by_callers, by_helpers; /* who drives them */
    uint32_t parked, deaf;
    uint32_t turn; /* of helpers */
    struct weft_nccl_request requests[NCCL_REQUESTS];

    /* engine lock */
    struct weft_list node;
    bool is_closing;
    struct weft_nccl_leaver *leaver; /* then, of a sender: lent by leave.c */
    uint64_t alone_ns;               /* since when no lane is up; 0: one is */
    struct weft_engine_task poke;    /* something to do before the next tick */
    _Atomic bool is_poked;

    /* sender; engine lock */
    struct weft_nccl_handle *handle; /* secret, owned */
    struct weft_wire_self self;
    uint64_t ticket, deadline_ns;
    const void *context; /* NCCL's, while it has a ticket */
    uint32_t pair_count, slot_count;
    struct weft_nccl_pair {
        uint8_t nic, there;
        bool is_down;      /* nothing came through, or its NIC is down */
        uint64_t retry_ns; /* then: when it is tried again */
    } pairs[WEFT_NCCL_NICS];
    uint32_t next_id;
    uint32_t refusals; /* in a row, while no lane is up */
    bool
        is_refused; /* the peer has closed: no more lanes, but what is in those that are up counts */
    _Atomic bool wants_lanes, is_up;
    /* sender; comm's lock */
    struct weft_nccl_send *sends; /* owned, ring by number */
    uint8_t *copies;              /* owned, ring of COPIES bytes: eager ones, with their headers */
    uint64_t copied, freed;       /* bytes of it, ever */
    uint64_t next_number, first_unsent;
    uint64_t landed, retired; /* all below: have landed; and nobody reads their memory any more */
    uint32_t again;           /* chunks to be sent again, by lanes that were dialled */
    uint32_t again_min_id;    /* … after the latest was lost */
    _Atomic bool has_left;    /* a lane did not take a chunk, because it is slow */
    uint64_t offer_ns;        /* the caller's: when it is offered again */
    bool is_checked;
    uint32_t chunk_len, eager_len;

    /* receiver; engine lock */
    struct weft_nccl_listener *listener; /* NULL: it is closed, or has handed it out */
    struct weft_list pending;
    uint8_t token[WEFT_NCCL_TOKEN_LEN];
    /* receiver; comm's lock */
    bool is_left;  /* the sender has said that it has closed: no notes any more */
    bool is_ended; /* a lane ended as those of a process do that has closed, or was killed */
    struct weft_nccl_receive *receives; /* owned, ring by number */
    uint64_t posted, floor;             /* receives; all messages below have landed */
    uint64_t told;                      /* of the floor, to the sender */
    uint32_t untold_len;                /* bytes that came since then, and nobody waits for */
    uint32_t begun;                     /* messages of which a part has come, and not all */
    bool owes_notes;
    uint32_t down[WEFT_NCCL_LANES]; /* ids of lanes that we gave up, to be told */
    uint32_t down_count;
};

struct weft_nccl_listener {
    uint32_t process; /* that made it */
    const struct weft_nccl_device *device;
    uint8_t token[WEFT_NCCL_TOKEN_LEN];
    struct weft_list node, pending;
};

struct weft_nccl_comm *weft_nccl_comm_new(bool is_sender, const struct weft_nccl_device *device);
/* Lanes are stopped, requests end, memory goes. Not under the engine's lock. */
void weft_nccl_comm_free(struct weft_nccl_comm *comm);
void weft_nccl_comm_fail(struct weft_nccl_comm *comm, int result, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
/* A lane came or went, or more are wanted: looked after soon, under the engine's lock. Any thread. */
void weft_nccl_comm_poke(struct weft_nccl_comm *comm);
/* Lanes that are up, a bit for each. */
static inline uint32_t weft_nccl_comm_up(struct weft_nccl_comm *comm)
{
    return atomic_load(&comm->by_callers) | atomic_load(&comm->by_helpers);
}
/* Drives those that no helper does. */
void weft_nccl_comm_drive(struct weft_nccl_comm *comm, uint32_t bits);
struct weft_nccl_request *weft_nccl_request_new(struct weft_nccl_comm *comm);

/* ---- sending and receiving (send.c, recv.c): what a lane's owner does ---- */

/* false: the lane is lost, *why_p says why. *is_more_p: there is more to do at once. */
bool weft_nccl_send_write(struct weft_nccl_lane *lane, bool *is_more_p, const char **why_p);
bool weft_nccl_send_read(struct weft_nccl_lane *lane, const char **why_p);
bool weft_nccl_recv_read(struct weft_nccl_lane *lane, bool *is_more_p, const char **why_p);
bool weft_nccl_recv_notes(struct weft_nccl_lane *lane, const char **why_p);
/* Tells the sender what has landed. No lock. */
void weft_nccl_recv_tell(struct weft_nccl_comm *comm);
/* It came up: the first thing to say. */
void weft_nccl_send_open(struct weft_nccl_lane *lane);
/* Before closing: what was called done and is in no socket, because its lane was lost, goes out. Waits for that, at most
 * WEFT_PATH_TIMEOUT. No lock. */
void weft_nccl_send_flush(struct weft_nccl_comm *comm);
/* The sender has closed. Engine lock. */
void weft_nccl_recv_left(struct weft_nccl_comm *comm);
/* The lane is lost: comm's lock. */
void weft_nccl_send_lost(struct weft_nccl_lane *lane);
void weft_nccl_recv_lost(struct weft_nccl_lane *lane);

/* ---- which lane a chunk is for, where they are of different speed (rate.c) ---- */

/* The owner, before it takes a chunk. */
void weft_nccl_rate_look(struct weft_nccl_lane *lane);
/* Comm's lock. Would so many bytes arrive about as soon by this lane as by any other? */
bool weft_nccl_rate_fits(struct weft_nccl_lane *lane, uint32_t len);
/* Now and then: what was left is offered again. */
void weft_nccl_rate_offer(struct weft_nccl_comm *comm);

/* ---- lanes come and go (connect.c: the first; heal.c: all others); engine lock ---- */

weft_status_t weft_nccl_dial(struct weft_nccl_comm *comm, uint16_t slot, uint32_t pair);
/* One connection: from which NIC to which address of the handle, and what it says. */
struct weft_nccl_call {
    const struct weft_nccl_handle *handle;
    const struct weft_nccl_pair *pair;
    const struct weft_wire_self *self; /* these live as long as the connection */
    const struct weft_net_conn_ops *ops;
    void *owner;
};
weft_status_t weft_nccl_call(const struct weft_nccl_call *call,
                             const struct weft_nccl_greeting *greeting,
                             struct weft_net_conn **conn_p);
/* Calls of a connection's owner that cannot come. */
void weft_nccl_never(struct weft_net_conn *conn);
void weft_nccl_never_frame(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                           const uint8_t *payload);
void weft_nccl_tend(struct weft_nccl_comm *comm, uint64_t now_ns);
/* What one who dialled was told. */
enum weft_nccl_answer {
    WEFT_NCCL_SILENT, /* nothing */
    WEFT_NCCL_NOBODY, /* the host is there, and not who was called */
    WEFT_NCCL_BUSY,   /* not now */
    WEFT_NCCL_CLOSED, /* never again */
};
void weft_nccl_heal_lost(struct weft_nccl_lane *lane, enum weft_nccl_answer answer);
void weft_nccl_heal_up(struct weft_nccl_lane *lane);
void weft_nccl_heal_carrier(uint32_t nic, bool is_up);
extern const struct weft_net_conn_ops weft_nccl_server_ops;

/* ---- helper threads (helpers.c) ---- */

/* By the settings, else by how many CPUs there are. */
uint32_t weft_nccl_helpers_wanted(unsigned cpus);
weft_status_t weft_nccl_helpers_open(uint32_t count);
void weft_nccl_helpers_close(void);
/* Which one serves this slot of a connection; NULL: the callers of test(). */
struct weft_nccl_helper *weft_nccl_helper_for(const struct weft_nccl_comm *comm, uint32_t slot);
weft_status_t weft_nccl_helper_watch(struct weft_nccl_lane *lane);
void weft_nccl_helper_unwatch(struct weft_nccl_lane *lane);
/* It looks at the lane soon. */
void weft_nccl_helper_kick(struct weft_nccl_lane *lane, uint32_t bits);
/* Returns when no helper remembers the lanes of a comm; they are all stopped. */
void weft_nccl_helpers_forget(struct weft_nccl_comm *comm);

/* ---- what the adapters call ---- */

int weft_nccl_devices_count(int *count_p);
const struct weft_nccl_device *weft_nccl_device(int device); /* NULL: there is none */
int weft_nccl_listen(int device, void *handle, void **listener_p);
int weft_nccl_connect(const void *context, int device, void *handle, void **comm_p);
/* Ends what was begun with connect in this context, and not called again until it was there. */
void weft_nccl_connect_end(const void *context);
int weft_nccl_accept(void *handle,
                     void **comm_p); /* here and below: what listen, connect or accept gave */
int weft_nccl_isend(void *handle, void *data, size_t len, int tag, void **request_p);
int weft_nccl_irecv(void *handle, int count, void **data, const size_t *lens, const int *tags,
                    void **request_p);
int weft_nccl_test(void *handle, int *is_done_p, int *lens);
int weft_nccl_close_listen(void *handle);
int weft_nccl_close(void *handle);
/* Host memory needs none of these. */
int weft_nccl_reg_mr(void *comm, void *data, size_t len, int type, void **region_p);
int weft_nccl_dereg_mr(void *comm, void *region);
int weft_nccl_iflush(void *comm, int count, void **data, int *lens, void **regions,
                     void **request_p);

#endif
