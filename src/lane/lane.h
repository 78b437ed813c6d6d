/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane: one path to one peer. A port is one rank's end of one kind of path (shm: its inbox and pool;
 * tcp: its listener and its connections); a lane is what leads from a port to one peer. Frames go down
 * by post; what happened comes up as values returned by poll, never by a call upward.
 *
 * Everything runs under the engine's lock, except where it says otherwise. Nothing blocks.
 */
#ifndef WEFT_LANE_H
#define WEFT_LANE_H

#include "engine/engine.h"
#include "mem/mem.h"
#include "wire/wire.h"

#include <stdio.h>

struct weft_lane_port;

enum weft_lane_caps {
    WEFT_LANE_SURE = 1,  /* cannot die alone: needs no acknowledgements and no replay */
    WEFT_LANE_MAPS = 2,  /* memory from weft_alloc() can be mapped on both sides */
    WEFT_LANE_PULLS = 4, /* the peer's private memory can be read (CMA); per lane, after probing */
    WEFT_LANE_SAYS = 8,  /* say() and hear() */
};

/* The shortest messages have a way of their own through all layers, because they take less time than
 * filling in a frame does. */
#define WEFT_LANE_SAY_MAX 40
struct weft_lane_word {
    struct weft_lane *lane;
    uint64_t comm;
    uint32_t tag, len;
    const void *payload; /* valid until the next poll */
};

/* Embedded first in each kind's own struct. */
struct weft_lane {
    const struct weft_lane_ops *ops;
    struct weft_lane_port *port;
    uint32_t peer; /* rank of the job */
    uint32_t caps;
    uint32_t chunk_max; /* longest payload of one post */
    uint16_t slot;      /* which one of several to this peer; the dialler says it in its greeting */
    uint32_t generation; /* of the slot */
    bool is_up;
    bool is_given_up;               /* the link's: what it still had to send is for nobody */
    void *owner;                    /* the link's */
    struct weft_lane *next_refused; /* the link's */
    char peer_text[96];             /* "10.0.0.7:4411", "pid 4411 on this host" */
};

enum weft_done_kind {
    WEFT_DONE_OPENED,  /* a lane is up: one that we dialled, or (owner NULL) one that a peer did */
    WEFT_DONE_ARRIVED, /* a frame with its payload at `payload`, in the lane's memory. token 0: valid
                           until the next poll; else until release(lane, token) */
    WEFT_DONE_HEADER, /* a frame whose payload is still on its way, or (not SURE) of bulk: answer with
                           place() at once */
    WEFT_DONE_LANDED,   /* the payload of that frame is where it was asked to be */
    WEFT_DONE_SENT,     /* memory lent with a post is free again */
    WEFT_DONE_WRITABLE, /* a lane that was full has room */
    WEFT_DONE_LOST,     /* status, text: the lane is of no use any more; close it */
};

struct weft_done {
    enum weft_done_kind kind;
    struct weft_lane *lane;      /* NULL: of none in particular */
    void *owner;                 /* the link's; set there */
    struct weft_wire_data frame; /* ARRIVED, HEADER, LANDED */
    const void *payload;
    uint32_t token;
    void *cookie; /* SENT: as given to post */
    weft_status_t status;
    const char *text; /* LOST: valid until the lane is closed */
};

enum weft_post {
    WEFT_POST_FULL, /* not taken; WRITABLE will come */
    WEFT_POST_SENT, /* taken, the memory is free */
    WEFT_POST_LENT, /* taken, the memory is lent until SENT */
};

/* Not SURE: longest payload that is posted, unless WEFT_CHUNK asks for longer ones. */
#define WEFT_LANE_CHUNK (1u << 20)

#define WEFT_LANE_ADDRESS_LEN 96
/* What a peer needs to dial a port; encoded by the port that opens it, read by the same kind. */
struct weft_lane_address {
    uint8_t bytes[WEFT_LANE_ADDRESS_LEN];
    uint32_t len; /* 0: this port takes no calls */
};

struct weft_lane_call {
    uint32_t peer;
    uint16_t slot;
    uint32_t generation;
    const struct weft_lane_address *address;
    uint64_t timeout_ms;
};

/* Why a port was not opened, or sent a caller away: kept for the link that then finds no way. */
struct weft_lane_lack {
    weft_status_t status; /* WEFT_OK: it lacked nothing so far */
    char text[160];
};

static inline void weft_lane_lacks(struct weft_lane_lack *lack, weft_status_t status,
                                   const char *text)
{
    if (lack != NULL) {
        lack->status = status;
        snprintf(lack->text, sizeof(lack->text), "%s", text);
    }
}

struct weft_lane_port_spec {
    struct weft_engine *engine; /* lent, as all pointers here, while the port lives */
    const struct weft_params *params;
    const struct weft_wire_self *self;
    const struct sockaddr_storage *addr; /* tcp: where to listen, port 0 */
    const char *nic;             /* tcp: the device that its lanes go by; "": as the routes say */
    uint32_t prefix_len;         /* tcp: of addr's network */
    const uint32_t *local_ranks; /* shm: ranks of this host, ascending, self included */
    uint32_t local_count;
    struct weft_lane_lack *lack; /* NULL: nobody asks */
};

struct weft_lane_ops {
    const char *name;
    weft_status_t (*port_open)(const struct weft_lane_port_spec *spec,
                               struct weft_lane_port **port_p);
    void (*port_close)(struct weft_lane_port *port); /* after its lanes; NULL is fine */
    void (*address)(const struct weft_lane_port *port, struct weft_lane_address *address_p);
    /* What happened, at most `room` (≥ 4) values; returns how many. */
    unsigned (*poll)(struct weft_lane_port *port, struct weft_done *done, unsigned room);
    /* The word that becomes *value_p when the next thing arrives; NULL: polling only will tell. */
    const _Atomic uint32_t *(*watch)(const struct weft_lane_port *port, uint32_t *value_p);
    /* About to sleep in epoll: false when there is something to poll after all. disarm: awake. */
    bool (*arm)(struct weft_lane_port *port);
    void (*disarm)(struct weft_lane_port *port);

    /* Dials. OPENED or LOST follows. */
    weft_status_t (*open)(struct weft_lane_port *port, const struct weft_lane_call *call,
                          struct weft_lane **lane_p);
    /* frame->len == slice->len ≤ chunk_max. */
    enum weft_post (*post)(struct weft_lane *lane, const struct weft_wire_data *frame,
                           const struct weft_slice *slice, void *cookie);
    /* SAYS. As posting an EAGER frame of at most SAY_MAX bytes: SENT or FULL. */
    enum weft_post (*say)(struct weft_lane *lane, uint64_t comm, uint32_t tag,
                          struct weft_slice slice);
    /* SAYS. The next thing to poll, if it is such a message; false: poll. */
    bool (*hear)(struct weft_lane_port *port, struct weft_lane_word *word_p);
    /* Answers HEADER: memory for exactly frame.len bytes, lent until LANDED or LOST; data NULL: to the
     * sink (LANDED follows all the same). Again, with data NULL: the rest of it goes to the sink. */
    void (*place)(struct weft_lane *lane, const struct weft_slice *slice);
    void (*release)(struct weft_lane *lane, uint32_t token); /* of ARRIVED; also after LOST */
    /* MAPS. Where the peer's allocation `region` lies here. ERR_BUSY: it was asked for, try later. */
    weft_status_t (*map)(struct weft_lane *lane, uint64_t region, uint64_t offset, size_t len,
                         void **memory_p);
    /* MAPS. The mapping in which bytes that map() gave lie, held; NULL: they are not mapped any more.
     * Needed by whoever touches them without the lock: the peer may free them, the lane may go. */
    struct weft_mem_mapping *(*hold)(const struct weft_lane *lane, const void *memory, size_t len);
    /* MAPS. Makes our allocation known to the peer before frames that name it. */
    weft_status_t (*share)(struct weft_lane *lane, const struct weft_mem_place *place);
    /* PULLS. Any thread, without the lock: copies from the peer's address space. ERR_SYSTEM. */
    weft_status_t (*pull)(struct weft_lane *lane, uint64_t address, const struct weft_slice *slice);
    /* Wakes the peer if it sleeps: something was written into its memory. */
    void (*nudge)(struct weft_lane *lane);
    /* What was lent with this cookie is wanted back, whatever the peer does; is_there: it has it all. Returns
     * for how many posts the lane has made its own copy: their SENT does not come; that of the others
     * comes soon. */
    unsigned (*forget)(struct weft_lane *lane, const void *cookie, bool is_there);
    /* Not SURE. The post with this cookie goes by another lane: this frame instead, with a payload of one byte
     * that means nothing or none, unless it has begun to leave (false). Its SENT does not come. */
    bool (*replace)(struct weft_lane *lane, const void *cookie, const struct weft_wire_data *frame);
    /* Not SURE. What the latest post was lent has been copied to `memory`, which is read from now on, and is
     * its cookie; its SENT does not come. */
    void (*relocate)(struct weft_lane *lane, void *memory);
    /* Not SURE. Bytes are on their way, and for so many ms the peer's host has not said that any came; 0:
     * nothing wrong. A process that is stopped does not make its host silent. Time before the first call that finds
     * such bytes does not count: there may have been nothing to say. */
    uint32_t (*silent_ms)(struct weft_lane *lane);
    /* Not SURE. Do bytes wait for the path, and not for the peer to read? */
    bool (*is_held)(const struct weft_lane *lane);
    /* Bytes taken by post that have not left yet. */
    size_t (*queued)(const struct weft_lane *lane);
    void (*close)(struct weft_lane *lane); /* at once; NULL is fine */
};

extern const struct weft_lane_ops weft_lane_shm, weft_lane_tcp;

#endif
