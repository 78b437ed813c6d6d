/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to lane/tcp: a port (listener, lanes, who is looked at) and a lane (one connection).
 *
 *   dialled:  DIALLING -> UP -> LOST        net runs the handshake, then hands the descriptor over
 *   accepted: GREETING -> UP -> LOST        the dialler's first frame is an ACK: it opens the lane
 *
 * The one who accepts says nothing before that ACK: so nothing can be unread in the connection when
 * its descriptor is taken out of it.
 */
#ifndef WEFT_LANE_TCP_H
#define WEFT_LANE_TCP_H

#include "lane/lane.h"
#include "net/net.h"

#define WEFT_LANE_TCP_IN_LEN (16u << 10)
#define WEFT_LANE_TCP_POSTS 64
#define WEFT_LANE_TCP_HOT 2
/* Of one system call, so that rounds stay short: a header and the usual chunk. */
#define WEFT_LANE_TCP_IO_MAX (((size_t)1 << 20) + WEFT_WIRE_DATA_LEN)

struct weft_lane_tcp_port {
    struct weft_lane_port_spec spec;
    struct weft_net_acceptor *acceptor;
    struct weft_wire_addr addr; /* where it listens */
    struct weft_list lanes;     /* of lane.node */
    struct weft_list ready;     /* of lane.ready_node: to be looked at by the next poll */
    struct weft_lane_tcp *hot[WEFT_LANE_TCP_HOT]; /* polled without being asked to; NULL: nobody */
    uint32_t round;                               /* number of the poll */
    bool has_warned;                              /* of a congestion control that is not there */
};

/* A post that did not leave at once. */
struct weft_lane_tcp_post {
    uint8_t header[WEFT_WIRE_DATA_LEN];
    struct weft_slice slice; /* lent, unless it is `owned` */
    void *cookie;
    void *owned;    /* a copy of ours: who lent it wanted it back; else NULL */
    size_t copied;  /* bytes of the lane's copies that it holds; 0: none */
    size_t written; /* of header and slice together; on a sealed lane: sealed */
    bool is_silent; /* nobody above waits for its SENT */
    bool is_zerocopy;
    /* system calls with MSG_ZEROCOPY that carried a part of it: their first number, how many they
     * were, and how many of them the kernel has not reported yet */
    uint32_t zero_first, zero_count, zero_left;
};

enum weft_lane_tcp_state {
    WEFT_LANE_TCP_DIALLING,
    WEFT_LANE_TCP_GREETING,
    WEFT_LANE_TCP_UP,
    WEFT_LANE_TCP_LOST,
};

enum weft_lane_tcp_reading {
    WEFT_LANE_TCP_HEADER,  /* a frame begins at in_start */
    WEFT_LANE_TCP_ASKED,   /* its header was told, place() has not answered yet */
    WEFT_LANE_TCP_PLACING, /* its payload goes to `into` */
    WEFT_LANE_TCP_SINKING, /* its payload goes nowhere */
};

struct weft_lane_tcp_seal;

struct weft_lane_tcp {
    struct weft_lane lane;
    struct weft_engine_source source; /* fd -1: not connected */
    struct weft_list node, ready_node;
    enum weft_lane_tcp_state state;
    uint32_t round;  /* the poll that looked at it last */
    uint32_t events; /* what epoll said since */
    uint32_t misses; /* while hot: fruitless looks in a row */
    bool is_hot;
    bool is_known;   /* somebody above has it: its end must be told */
    bool is_told;    /* … and was */
    bool is_starved; /* a post was refused: WRITABLE is owed … */
    size_t lacked;   /* … when a copy of so many bytes has room; 0: it was not for that */
    weft_status_t lost_status;
    char lost_text[160];
    enum weft_wire_security security;
    struct weft_lane_tcp_seal *seal; /* owned; NULL: the stream is sent as it is (seal.c) */

    /* opening, by the side that dials (dial.c) */
    struct weft_net_conn *conn; /* owned, while the handshake runs */
    struct weft_engine_timer timer;
    struct sockaddr_storage addr;
    uint64_t deadline_ns, pause_ms, answer_ms;

    /* in (in.c) */
    enum weft_lane_tcp_reading reading;
    struct weft_wire_data frame; /* the one whose payload is being read */
    uint8_t *into;               /* lent */
    size_t left;                 /* bytes of its payload still to come */
    uint32_t crc;
    bool has_more; /* whole frames may lie in the buffer already */
    uint32_t in_start, in_end;

    /* out (out.c): head … next are written, next … tail are not; free-running */
    uint32_t head, next, tail;
    int out_error; /* errno; nothing leaves any more, reading will find the end */
    bool is_checked;
    size_t queued;
    size_t zerocopy_min; /* SIZE_MAX: never */
    uint64_t
        stuck_ns; /* since silent_ms() finds bytes on their way and none acknowledged; 0: not */
    uint64_t stuck_bytes; /* acknowledged until then */
    uint32_t zero_sent, zero_done;
    /* copies of answers (copies.c): head … tail are held; free-running, from 0 when none is */
    uint8_t *copies; /* owned; NULL: payloads are not checked */
    size_t copies_room, copies_head, copies_tail;
    struct weft_lane_tcp_post posts[WEFT_LANE_TCP_POSTS];

    uint8_t in[WEFT_LANE_TCP_IN_LEN];
};

/* Where a poll writes down what happened. */
struct weft_lane_tcp_tell {
    struct weft_done *done;
    unsigned room, count;
};

static inline bool weft_lane_tcp_can_tell(const struct weft_lane_tcp_tell *tell)
{
    return tell->count < tell->room;
}

static inline struct weft_done *weft_lane_tcp_tell(struct weft_lane_tcp_tell *tell,
                                                   struct weft_lane_tcp *lane,
                                                   enum weft_done_kind kind)
{
    struct weft_done *done = &tell->done[tell->count++];
    *done = (struct weft_done){.kind = kind, .lane = &lane->lane};
    return done;
}

static inline struct weft_lane_tcp *weft_lane_tcp_of(const struct weft_lane *lane)
{
    return WEFT_CONTAINER_OF(lane, struct weft_lane_tcp, lane);
}

static inline struct weft_lane_tcp_post *weft_lane_tcp_post_at(struct weft_lane_tcp *lane,
                                                               uint32_t index)
{
    return &lane->posts[index % WEFT_LANE_TCP_POSTS];
}

static inline struct weft_lane_tcp_port *weft_lane_tcp_port_of(const struct weft_lane_port *port)
{
    return (struct weft_lane_tcp_port *)(void *)port;
}

/* port.c */
void weft_lane_tcp_make_ready(struct weft_lane_tcp *lane, uint32_t events);

/* dial.c */
extern const struct weft_net_conn_ops weft_lane_tcp_server_ops;
weft_status_t weft_lane_tcp_open(struct weft_lane_port *base, const struct weft_lane_call *call,
                                 struct weft_lane **lane_p);
uint32_t weft_lane_tcp_silent_ms(struct weft_lane *base);
bool weft_lane_tcp_is_held(const struct weft_lane *base);
void weft_lane_tcp_close(struct weft_lane *base);
/* The connection is over; the next poll says so. Lent memory is not touched from now on. */
void weft_lane_tcp_lose(struct weft_lane_tcp *lane, weft_status_t status, const char *text);

/* in.c */
/* Reads once, unless whole frames are left from last time; tells what that gave. true: some came. */
bool weft_lane_tcp_receive(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell);
void weft_lane_tcp_place(struct weft_lane *base, const struct weft_slice *slice);

/* out.c */
enum weft_post weft_lane_tcp_post(struct weft_lane *base, const struct weft_wire_data *frame,
                                  const struct weft_slice *slice, void *cookie);
/* The dialler's first frame. */
void weft_lane_tcp_greet(struct weft_lane_tcp *lane);
/* Writes once what waits. */
void weft_lane_tcp_flush(struct weft_lane_tcp *lane);
/* Takes the kernel's word on what MSG_ZEROCOPY has finished. */
void weft_lane_tcp_reap(struct weft_lane_tcp *lane);
/* Tells SENT and WRITABLE; true: there is more to tell than there was room for. */
bool weft_lane_tcp_tell_sent(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell);
void weft_lane_tcp_relocate(struct weft_lane *base, void *memory);
bool weft_lane_tcp_replace(struct weft_lane *base, const void *cookie,
                           const struct weft_wire_data *frame);
unsigned weft_lane_tcp_forget(struct weft_lane *base, const void *cookie, bool is_there);
/* What is left in the ring goes. */
void weft_lane_tcp_drop_posts(struct weft_lane_tcp *lane);
size_t weft_lane_tcp_queued(const struct weft_lane *base);
/* Moves `sent` bytes from what waits to what is written, or sealed. */
void weft_lane_tcp_advance(struct weft_lane_tcp *lane, size_t sent);
/* What a send returned: bytes taken. */
size_t weft_lane_tcp_note_sent(struct weft_lane_tcp *lane, ssize_t sent);

/* copies.c, the first two where payloads are checked only */
/* Once, for the life of the lane. ERR_MEMORY. */
weft_status_t weft_lane_tcp_copies_open(struct weft_lane_tcp *lane);
/* The post sends a copy of what it was lent. false: no room until copies before it have left. */
bool weft_lane_tcp_copies_add(struct weft_lane_tcp *lane, struct weft_lane_tcp_post *post);
/* Is there room for what was refused? */
bool weft_lane_tcp_copies_fit(const struct weft_lane_tcp *lane);
void weft_lane_tcp_copies_close(struct weft_lane_tcp *lane); /* none are fine */

/* seal.c, all but the first with lane->seal only */
/* Keys as the handshake gave them; the lane's level says how. ERR_MEMORY. */
weft_status_t weft_lane_tcp_seal_open(struct weft_lane_tcp *lane, const uint8_t *send_key,
                                      const uint8_t *recv_key, bool is_aes);
void weft_lane_tcp_seal_close(struct weft_lane_tcp *lane); /* no seal is fine */
/* Seals and writes until the socket takes no more; true: nothing is left. */
bool weft_lane_tcp_seal_flush(struct weft_lane_tcp *lane);
/* Bytes that are sealed and not written. */
size_t weft_lane_tcp_seal_queued(const struct weft_lane_tcp *lane);
/* As recvmsg, of bytes that are proved; reads at most once. A record that is wrong ends the lane. */
ssize_t weft_lane_tcp_seal_receive(struct weft_lane_tcp *lane, struct iovec *iov, unsigned count);
/* Would the next receive give bytes that epoll does not know of? */
bool weft_lane_tcp_seal_has_more(const struct weft_lane_tcp *lane);

#endif
