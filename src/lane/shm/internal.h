/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the shared-memory lane: what lies in shared memory, and the objects around it.
 *
 *   inbox.c    cells: claiming, publishing, taking; sleeping and waking
 *   pool.c     slots: payloads of more than 40 bytes
 *   lane.c     one lane: dialling, set-up, loss, closing
 *   mail.c     the pair's socket: descriptors, doorbell, sign of death
 *   regions.c  memory from weft_alloc() on both sides
 *   segment.c  shared memory itself, and who of this process has it mapped already
 *   port.c     the port and the ops table
 *
 * Whatever lies in shared memory can be scribbled by a peer gone mad: it is read once, judged, and
 * then used from private memory. Nobody's private state is ever computed from it unjudged.
 */
#ifndef WEFT_LANE_SHM_INTERNAL_H
#define WEFT_LANE_SHM_INTERNAL_H

#include "lane/lane.h"
#include "net/net.h"

#include <assert.h>
#include <pthread.h>

#define WEFT_SHM_MAGIC UINT32_C(0x6d687377)
#define WEFT_SHM_VERSION 1u
/* Of one inbox, powers of two. While the cells of both directions stay in the first-level cache, a
 * message takes 50 ns instead of 68 (near) or 200 instead of 260 (far), measured: 64 lines each are
 * within, 256 are not. So few of them, and more only where many ranks share an inbox. */
#define WEFT_SHM_CELLS_MIN 128u
#define WEFT_SHM_CELLS_MAX 4096u
#define WEFT_SHM_CELLS_PER_RANK 16u
#define WEFT_SHM_INLINE 40u
#define WEFT_SHM_SMALL_LEN (8u << 10)
#define WEFT_SHM_BIG_LEN (128u << 10)
#define WEFT_SHM_HAS_BODY UINT16_C(0xffff) /* in a cell's len */
#define WEFT_SHM_NO_SLOT UINT32_MAX

/* ---- in shared memory ---- */

/* What does not fit into the cell: a frame's numbers, and where its payload is. */
struct weft_shm_body {
    uint64_t a, b, c;
    uint32_t slot, len;
    uint32_t generation; /* of the slot: what to write to free it */
    uint32_t seq;        /* not of envelopes: their order is the lane's */
};

/* One message: one cache line. The stamp is the low half of its position + 1, stored last: never
 * what was there before, so that the consumer needs to clear nothing. */
struct weft_shm_cell {
    _Atomic uint32_t stamp;
    uint8_t type, flags;
    uint16_t len;    /* of the payload in `bytes`, or HAS_BODY */
    uint16_t sender; /* its place among the ranks of this host */
    uint16_t lane;   /* the number under which the consumer knows the lane */
    uint32_t tag;
    uint64_t comm;
    union {
        uint8_t bytes[WEFT_SHM_INLINE];
        struct weft_shm_body body;
    };
};
static_assert(sizeof(struct weft_shm_cell) == 64, "a cell is a cache line");
static_assert(offsetof(struct weft_shm_cell, bytes) == 24, "40 bytes are left for the payload");
static_assert(sizeof(struct weft_shm_body) == WEFT_SHM_INLINE, "both forms have the same room");

enum { WEFT_SHM_AWAKE, WEFT_SHM_ASLEEP, WEFT_SHM_ASLEEP_WANTING_ROOM };

/* First page of an inbox. Lines of different writers are 128 bytes apart: adjacent ones travel in
 * pairs. */
struct weft_shm_header {
    uint32_t magic, version, rank, local_count;
    _Alignas(128) _Atomic uint64_t tail; /* next position; producers claim with it */
    _Alignas(128) _Atomic uint64_t head; /* taken by the owner, who tells it now and then */
    _Alignas(128) _Atomic uint32_t asleep;
    _Alignas(128) uint8_t end;
};
#define WEFT_SHM_HEADER_LEN 4096u
static_assert(sizeof(struct weft_shm_header) <= WEFT_SHM_HEADER_LEN, "the header is a page");

/* One per rank of the host, written by that rank alone. */
struct weft_shm_line {
    _Alignas(64) _Atomic uint32_t claiming; /* it is between claim and publish in this inbox */
    _Atomic uint64_t consumed;              /* cells of the owner it has taken from its own inbox */
};
static_assert(sizeof(struct weft_shm_line) == 64, "one cache line per rank");

/* One per slot of a pool, written by whoever holds the slot: the generation it is done with. */
struct weft_shm_slot_line {
    _Alignas(64) _Atomic uint32_t freed;
};
static_assert(sizeof(struct weft_shm_slot_line) == 64, "one cache line per slot");

enum weft_shm_mail_kind {
    WEFT_SHM_RING = 1, /* wake up */
    WEFT_SHM_SETUP,    /* with the inbox */
    WEFT_SHM_READY,    /* the dialler has mapped ours too: the lane is up */
    WEFT_SHM_POOL,     /* with the sender's pool */
    WEFT_SHM_REGION,   /* with an allocation */
    WEFT_SHM_WANT,     /* send me this allocation */
    WEFT_SHM_GONE,     /* it was freed, or never was */
};

/* What the pair's socket carries, always whole. */
struct weft_shm_mail {
    uint32_t magic;
    uint32_t kind;
    uint64_t id;  /* of the segment or the allocation */
    uint64_t len; /* of it */
    union {
        struct {
            uint32_t version, rank;
            uint32_t local_count, lane; /* put `lane` into the cells you send me */
            uint64_t probe_address;
            uint8_t probe[16];
        } setup;
        struct {
            uint32_t small_count, big_count;
        } pool;
    };
};
static_assert(sizeof(struct weft_shm_mail) == 64, "the frame of the socket");

/* ---- segments (segment.c) ---- */

/* Shared memory as mapped in this process, once: ranks that are threads use their owner's mapping.
 * */
struct weft_shm_segment {
    struct weft_list node; /* in the process's register; empty: another process's */
    uint64_t id;           /* random */
    unsigned refs;         /* under the register's lock */
    struct weft_mem_region region;
};
weft_status_t weft_shm_segment_create(const char *name, size_t len,
                                      struct weft_shm_segment **segment_p);
/* The segment `id` a peer sent as fd, which is taken over, also when it fails. ERR_PROTOCOL,
 * ERR_SYSTEM, ERR_MEMORY. */
weft_status_t weft_shm_segment_map(int fd, uint64_t id, size_t len,
                                   struct weft_shm_segment **segment_p);
bool weft_shm_segment_is_local(const struct weft_shm_segment *segment); /* of this process */
void weft_shm_segment_close(struct weft_shm_segment *segment);          /* NULL is fine */

/* An inbox as mapped here. */
struct weft_shm_inbox {
    struct weft_shm_segment *segment; /* one reference */
    struct weft_shm_header *header;
    struct weft_shm_line *lines;
    struct weft_shm_cell *cells;
};
uint32_t weft_shm_cell_count(uint32_t local_count);
size_t weft_shm_inbox_len(uint32_t local_count);
void weft_shm_inbox_lay_out(struct weft_shm_inbox *inbox, struct weft_shm_segment *segment,
                            uint32_t local_count);

enum weft_shm_kind { WEFT_SHM_SMALL, WEFT_SHM_BIG, WEFT_SHM_KINDS };

/* A pool as mapped here. Slots 0 … count[SMALL] - 1 are small ones. */
struct weft_shm_pool {
    struct weft_shm_segment *segment; /* one reference; NULL: not there (yet) */
    uint32_t count[WEFT_SHM_KINDS];
    struct weft_shm_slot_line *lines;
    uint8_t *base[WEFT_SHM_KINDS];
};
size_t weft_shm_pool_len(const uint32_t count[WEFT_SHM_KINDS]);
void weft_shm_pool_lay_out(struct weft_shm_pool *pool, struct weft_shm_segment *segment,
                           const uint32_t count[WEFT_SHM_KINDS]);

static inline enum weft_shm_kind weft_shm_kind_of(const struct weft_shm_pool *pool, uint32_t slot)
{
    return slot < pool->count[WEFT_SHM_SMALL] ? WEFT_SHM_SMALL : WEFT_SHM_BIG;
}
static inline uint32_t weft_shm_kind_len(enum weft_shm_kind kind)
{
    return kind == WEFT_SHM_SMALL ? WEFT_SHM_SMALL_LEN : WEFT_SHM_BIG_LEN;
}
static inline uint8_t *weft_shm_pool_at(const struct weft_shm_pool *pool, uint32_t slot)
{
    return slot < pool->count[WEFT_SHM_SMALL]
               ? pool->base[WEFT_SHM_SMALL] + (size_t)slot * WEFT_SHM_SMALL_LEN
               : pool->base[WEFT_SHM_BIG] +
                     (size_t)(slot - pool->count[WEFT_SHM_SMALL]) * WEFT_SHM_BIG_LEN;
}

/* ---- the port ---- */

struct weft_shm_lane;

/* One of our own slots, as its owner sees it. */
struct weft_shm_slot {
    struct weft_engine_work work;
    struct weft_list node;       /* free, at a peer (oldest first), or being copied for a lane */
    struct weft_list sent;       /* among the port's SENT that poll has not given yet */
    struct weft_shm_lane *lane;  /* who has it; NULL: nobody */
    struct weft_wire_data frame; /* lent posts: what is published when the copy is done */
    const void *from;
    void *cookie;
    uint32_t index;
    uint32_t generation; /* of the latest use; never 0 once used */
    bool is_copied;
    enum weft_mem_copy how;
    uint64_t copy_ns;
};

struct weft_shm_port {
    /* polling: one or two lines */
    struct weft_shm_cell *cells;
    uint64_t head;                /* private: what the header says is only for others */
    uint64_t head_told;           /* to the producers */
    uint32_t mask;                /* cells - 1; in all inboxes of the host */
    struct weft_shm_lane **lanes; /* owned; by local index */
    uint32_t local_count, index;
    bool is_armed;
    bool has_chores;       /* one of the lists below is not empty */
    _Atomic bool has_gone; /* a GONE waits for room in its socket */

    struct weft_list news;      /* of lane.news: OPENED, WRITABLE or LOST to be given by poll */
    struct weft_list sent;      /* of slot.sent */
    struct weft_list waiting;   /* of lane.waiting: FULL was given */
    struct weft_list ended;     /* of lane.ended: lost once the inbox is drained up to its end */
    struct weft_list lingering; /* of lane.news: closed here, the peer still has slots of ours */

    struct weft_shm_inbox inbox;
    struct weft_engine *engine;         /* lent */
    const struct weft_params *params;   /* lent */
    struct weft_lane_lack *lack;        /* lent; NULL: nobody asks */
    const struct weft_wire_self *self;  /* lent */
    uint32_t *local_ranks;              /* owned */
    struct weft_net_acceptor *acceptor; /* owned */
    uint16_t lane_numbers;              /* given so far */
    uint8_t probe[16];                  /* read by peers that try CMA */

    struct weft_shm_pool pool; /* ours: what we send from */
    uint32_t pool_count[WEFT_SHM_KINDS];
    struct weft_shm_slot *slots; /* owned; with the pool */
    struct weft_list idle[WEFT_SHM_KINDS], flying[WEFT_SHM_KINDS];
    bool is_pool_touched;
    bool is_far; /* plain stores into slots are slow now: go around the cache */
    unsigned slow_copies, streamed_copies;

    /* Freeing memory tells the peers from any thread, without the engine's lock: under this one,
     * which also covers the lanes' `shared` and the closing of their sockets. */
    pthread_mutex_t share_lock;
    struct weft_mem_watcher watcher;
};

/* ---- lanes ---- */

enum weft_shm_state {
    WEFT_SHM_DIALLING,
    WEFT_SHM_SETTING_UP, /* the socket is ours; the peer's SETUP has not come */
    WEFT_SHM_UP,
    WEFT_SHM_LOST,
};

enum weft_shm_want {
    WEFT_SHM_WANT_SMALL = 1 << WEFT_SHM_SMALL,
    WEFT_SHM_WANT_BIG = 1 << WEFT_SHM_BIG,
    WEFT_SHM_WANT_CELL = 4,
    WEFT_SHM_WANT_TURN = 8, /* lent posts before it must leave first */
};

/* An allocation of ours that the peer knows, or one of its that is mapped here. */
struct weft_shm_known {
    uint64_t id;
    bool is_gone;                     /* ours: GONE did not fit into the socket yet */
    struct weft_mem_mapping *mapping; /* the peer's; held once */
};
struct weft_shm_known_list {
    struct weft_shm_known *items; /* owned */
    unsigned count, room;
};

struct weft_shm_lane {
    struct weft_lane base;
    enum weft_shm_state state;

    /* producing */
    struct weft_shm_inbox there;      /* the peer's */
    struct weft_shm_line *line_there; /* ours in its inbox */
    struct weft_shm_line *line_here;  /* its in ours */
    uint64_t posted, posted_max;   /* cells; max: what the peer's `consumed` allows, as last seen */
    uint64_t head_seen;            /* of the peer's inbox */
    uint16_t number_there;         /* for our cells */
    uint32_t held[WEFT_SHM_KINDS]; /* slots of ours at the peer */
    struct weft_list copying;      /* of slot.node: lent posts in order */

    /* consuming */
    uint16_t number; /* in its cells */
    uint64_t taken;
    struct weft_shm_pool pool; /* the peer's */
    uint32_t *generations;     /* owned: of its slots that are held here; 0: not held */

    /* the pair's socket */
    int fd; /* owned; -1: not there */
    struct weft_engine_source source;
    struct weft_shm_mail in;
    unsigned in_len;
    int in_fd; /* came with it */
    bool is_same_process, has_ended, is_closing, is_lingering;
    pid_t pid;
    uint64_t drain_end; /* has_ended: cells before this position may be its */

    /* dialling */
    bool is_dialler;
    bool is_known;              /* to the link: it opened the lane, or got OPENED */
    struct weft_net_conn *conn; /* owned */
    struct weft_engine_timer timer;
    unsigned tries;

    /* memory of weft_alloc() */
    struct weft_shm_known_list shared, mapped;
    uint64_t wanted, refused;
    unsigned asks;

    /* for poll */
    struct weft_list news, waiting, ended;
    bool is_opened_news, is_writable_news, is_lost_news;
    uint8_t wants; /* of enum weft_shm_want: why FULL was given */
    weft_status_t status;
    char text[160];
};

static inline struct weft_shm_port *weft_shm_port_of(const struct weft_shm_lane *lane)
{
    return (struct weft_shm_port *)lane->base.port;
}
/* inbox.c */
enum weft_post weft_shm_post(struct weft_lane *base, const struct weft_wire_data *frame,
                             const struct weft_slice *slice, void *cookie);
/* A frame whose payload (if it has one) lies in slot (NULL: none). false: no room. */
bool weft_shm_send_body(struct weft_shm_lane *lane, const struct weft_wire_data *frame,
                        const struct weft_shm_slot *slot);
bool weft_shm_has_room(struct weft_shm_lane *lane); /* for one more cell */
enum weft_post weft_shm_full(struct weft_shm_lane *lane, enum weft_shm_want want);
enum weft_post weft_shm_say(struct weft_lane *base, uint64_t comm, uint32_t tag,
                            struct weft_slice slice);
bool weft_shm_inbox_hear(struct weft_shm_port *port, struct weft_lane_word *word_p);
unsigned weft_shm_inbox_poll(struct weft_shm_port *port, struct weft_done *done, unsigned room);
bool weft_shm_inbox_has_cell(const struct weft_shm_port *port);
/* Passes over cells whose claimer is gone. Rare: reads lines of others. */
void weft_shm_inbox_unblock(struct weft_shm_port *port);
void weft_shm_inbox_tell_head(struct weft_shm_port *port);
void weft_shm_wake(struct weft_shm_lane *lane);
/* Something the peer may wait for has room again. */
void weft_shm_wake_wanting(struct weft_shm_lane *lane);

/* pool.c */
enum weft_post weft_shm_post_slot(struct weft_shm_lane *lane, const struct weft_wire_data *frame,
                                  const struct weft_slice *slice, void *cookie);
/* Publishes lent posts whose copy is done, in order. */
void weft_shm_send_copied(struct weft_shm_lane *lane);
bool weft_shm_has_slot(struct weft_shm_lane *lane, enum weft_shm_kind kind);
void weft_shm_release(struct weft_lane *base, uint32_t token);
/* The peer is gone: what it held is ours again. */
void weft_shm_reclaim(struct weft_shm_lane *lane);
weft_status_t weft_shm_take_pool(struct weft_shm_lane *lane, const struct weft_shm_mail *mail,
                                 int fd);
/* Reserved with the port, so that a host without memory is known before anything is sent. */
weft_status_t weft_shm_pool_open(struct weft_shm_port *port);
void weft_shm_pool_close(struct weft_shm_port *port);

/* lane.c */
extern const struct weft_net_conn_ops weft_shm_caller_ops; /* of the port's acceptor */
weft_status_t weft_shm_open(struct weft_lane_port *base, const struct weft_lane_call *call,
                            struct weft_lane **lane_p);
void weft_shm_close(struct weft_lane *base);
void weft_shm_lane_free(struct weft_shm_lane *lane);
/* The peer's inbox and pool are mapped. */
weft_status_t weft_shm_set_up(struct weft_shm_lane *lane);
void weft_shm_describe_pool(const struct weft_shm_port *port, struct weft_shm_mail *mail_p);
/* The dialler: says so; the other one: was told. */
weft_status_t weft_shm_take_ready(struct weft_shm_lane *lane);
weft_status_t weft_shm_take_setup(struct weft_shm_lane *lane, const struct weft_shm_mail *mail,
                                  int fd);
void weft_shm_lose(struct weft_shm_lane *lane, weft_status_t status, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
/* The peer's end of the socket is closed. */
void weft_shm_end(struct weft_shm_lane *lane);
void weft_shm_add_news(struct weft_shm_lane *lane);

/* mail.c */
/* fd -1: none. false: the socket is full (or broken, which reading it will find). Any thread. */
bool weft_shm_mail_send(int to, const struct weft_shm_mail *mail, int fd);
void weft_shm_mail_read(struct weft_shm_lane *lane);
void weft_shm_mail_ready(struct weft_engine_source *source, uint32_t events);

/* regions.c */
weft_status_t weft_shm_share(struct weft_lane *base, const struct weft_mem_place *place);
weft_status_t weft_shm_map(struct weft_lane *base, uint64_t region, uint64_t offset, size_t len,
                           void **memory_p);
struct weft_mem_mapping *weft_shm_hold(const struct weft_lane *base, const void *memory,
                                       size_t len);
weft_status_t weft_shm_pull(struct weft_lane *base, uint64_t address,
                            const struct weft_slice *slice);
weft_status_t weft_shm_take_region(struct weft_shm_lane *lane, const struct weft_shm_mail *mail,
                                   int fd);
void weft_shm_answer_want(struct weft_shm_lane *lane, uint64_t id);
void weft_shm_take_gone(struct weft_shm_lane *lane, uint64_t id);
void weft_shm_freed(struct weft_mem_watcher *watcher, uint64_t id);
void weft_shm_tell_gone(struct weft_shm_lane *lane); /* what did not fit into the socket before */
void weft_shm_regions_close(struct weft_shm_lane *lane);

#endif
