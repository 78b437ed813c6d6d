/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: everything that leads to one peer. Finds the ways (shared memory on one host, else tcp over all NICs
 * that carry data), dials on demand, numbers and keeps what may have to go again, spreads bulk over its
 * lanes, counts credit.
 *
 * A link is always willing: before a lane is up, short frames are copied into the keep (a ring) and
 * count as sent. On lanes that can die alone they stay there until the peer has acknowledged them, so
 * that another lane can carry them again.
 *
 * Who dials: the higher rank, so that two ranks that want each other at once make one lane. The lower
 * one says over the control plane where it listens (HERE), by itself or when asked (ASK).
 *
 * Everything under the engine's lock.
 */
#ifndef WEFT_LINK_H
#define WEFT_LINK_H

#include "lane/lane.h"

#include <netinet/in.h>

#ifndef WEFT_LINK_KEEP /* fuzzing takes less */
#define WEFT_LINK_KEEP                                                                             \
    ((size_t)256 << 10) /* least bytes of the keep: per link over tcp, or not up */
#endif
#define WEFT_LINK_CREDIT ((uint64_t)1 << 20)
#define WEFT_LINK_SMALL 128   /* what keeping a message costs at least */
#define WEFT_LINK_NICS 8      /* used at once */
#define WEFT_LINK_SLOTS 32    /* lanes to one peer */
#define WEFT_LINK_CHUNKS 1024 /* pieces of bulk on their way to one peer */

struct weft_links;
struct weft_bundle;

/* A NIC that carries data; "": whatever the routes say. */
struct weft_link_nic {
    char name[16]; /* "": lanes go as the routes say … */
    char said[16]; /* … which is by this one, as far as is known: for people */
    struct sockaddr_storage addr;
    uint32_t prefix_len;
};

enum weft_link_state { WEFT_LINK_IDLE, WEFT_LINK_CALLING, WEFT_LINK_UP, WEFT_LINK_DOWN };

/* Embedded in its user's own struct for the peer. */
struct weft_link {
    struct weft_links *links;
    uint32_t peer; /* rank of the job */
    enum weft_link_state state;
    struct weft_lane
        *lane; /* the lead, where all but bulk goes; NULL: none. Owned if bundle is NULL */
    struct weft_bundle
        *bundle;          /* owned; its lanes, where they can die alone; NULL: shared memory */
    weft_status_t status; /* DOWN: why */
    char text[192];
    bool wants_room;     /* a send was refused: WRITABLE is due */
    bool was_up;         /* over tcp: what is lost now may come back */
    bool is_ended;       /* … but not this: the peer has closed in good order */
    bool owes_lead;      /* the peer has not been told yet by which lane numbered frames come */
    uint32_t lead_count; /* leads so far, ours; the peer's: the latest, and its slot */
    uint32_t peer_lead_count;
    uint16_t peer_lead;
    bool owes_ack;            /* the lane was full when the peer should have been told */
    struct weft_list roomy;   /* among those whose keep has room again */
    struct weft_list calling; /* among those that wait for the peer's word */
    bool wants_tcp;           /* … on this */

    /* numbers of the frames that are kept */
    uint32_t sent, received; /* the latest */
    uint32_t acked;          /* of ours, by the peer */
    uint32_t told;           /* of the peer's, by us */
    uint32_t untold_len;     /* bytes received since */
    /* credit for what arrives before its receive: cumulative bytes */
    uint64_t eager_sent, eager_freed;    /* ours; freed: as the peer said */
    uint64_t eager_consumed, eager_told; /* the peer's */
    uint64_t eager_held;                 /* the peer's, kept here now */

    uint8_t *keep; /* ring, owned; NULL: not needed (any more) */
    size_t keep_start, keep_len;
    size_t keep_unsent; /* of keep_len, at its end: not given to a lane yet */
    size_t keep_again;  /* of keep_len, at its start: several lanes may have it */
    bool is_shm_tried;

    /* an envelope whose payload is on its way into memory */
    uint32_t placed_number; /* 0: none */
    struct weft_slice placed;
    struct weft_lane *placed_lane; /* NULL: its lane is gone, a copy will come */
    struct weft_list broken;       /* among those whose LOST is due */
};

struct weft_links_spec {
    struct weft_lane_port_spec port; /* both ports are opened from it */
    const struct weft_lane_ops *tcp; /* lent; NULL: weft_lane_tcp. Tests have lanes of their own */
    bool has_shm, has_tcp;           /* ways that the settings allow */
    /* Which NICs carry data: asked when the first tcp lane needs it; at least one. */
    weft_status_t (*choose_nics)(void *context, struct weft_link_nic nics[WEFT_LINK_NICS],
                                 uint32_t *count_p);
    void *nics_context;
    /* Over the control plane; false: no way. */
    bool (*call)(void *context, uint32_t to, const void *payload, size_t len);
    void *context;
    /* The user's link for a rank (a new one when it calls us first); NULL: no memory. */
    struct weft_link *(*find)(void *context, uint32_t rank);
    /* What was placed for the bulk that came by this slot is not needed: a copy comes, or will. */
    void (*unplace)(void *context, struct weft_link *link, uint32_t slot);
};

/* Copies spec; opens nothing yet. */
weft_status_t weft_links_open(const struct weft_links_spec *spec, struct weft_links **links_p);
/* After its links; NULL is fine. */
void weft_links_close(struct weft_links *links);
/* A call came for us. */
void weft_links_called(struct weft_links *links, uint32_t from, const uint8_t *payload, size_t len);
/* What happened; done[].owner is the link. LOST: the link is DOWN, lane may be NULL. OPENED: it is UP. */
unsigned weft_links_poll(struct weft_links *links, struct weft_done *done, unsigned room);
/* The next thing to poll, if it is one of the shortest messages; its lane's owner is the link. */
bool weft_links_hear(struct weft_links *links, struct weft_lane_word *word_p);
/* Where such a message shows itself first, as *value_p; NULL: nowhere, or something else comes first. */
const _Atomic uint32_t *weft_links_ear(const struct weft_links *links, uint32_t *value_p);
/* As in lane.h. */
const _Atomic uint32_t *weft_links_watch(const struct weft_links *links, uint32_t *value_p);
bool weft_links_arm(struct weft_links *links);
void weft_links_disarm(struct weft_links *links);

void weft_link_open(struct weft_links *links, uint32_t peer, struct weft_link *link);
void weft_link_close(struct weft_link *link);
/* Begins to connect, if it has not. */
void weft_link_want(struct weft_link *link);
/* Short (≤ the eager limit): numbered and kept where that is needed, and then free again at once. LENT
 * (only on a lane that is SURE): until SENT with cookie; with cookie NULL nobody hears of SENT, so then
 * the slice must be empty. FULL: WRITABLE (or LOST) will come. */
enum weft_post weft_link_send(struct weft_link *link, struct weft_wire_data *frame,
                              const struct weft_slice *slice, void *cookie);
/* A piece of something long, whose memory is lent anyway: not kept here. Only when UP. Over lanes that can
 * die alone it is LENT until the peer has it. */
enum weft_post weft_link_stream(struct weft_link *link, struct weft_wire_data *frame,
                                const struct weft_slice *slice, void *cookie);
/* Answers HEADER, which came by this lane: see lane.h. */
void weft_link_place(struct weft_link *link, struct weft_done const *done,
                     const struct weft_slice *slice);
/* What was placed is wanted back: the rest goes to the sink. */
void weft_link_unplace_envelope(struct weft_link *link);
void weft_link_unplace_slot(struct weft_link *link, uint32_t slot);
/* What was lent with this cookie is wanted back (is_there: the peer has it all); returns for how many posts
 * SENT will not come. */
unsigned weft_link_forget(struct weft_link *link, const void *cookie, bool is_there);
/* The same of what was lent with pieces of bulk up to a number, which the peer has: weft_link_chunks_sent()
 * of then. */
unsigned weft_link_forget_landed(struct weft_link *link, const void *cookie, uint32_t number);
/* Longest piece of bulk. Only when UP. */
uint32_t weft_link_chunk_max(const struct weft_link *link);
/* Does bulk keep its order with everything else, also when lanes come and go? */
bool weft_link_keeps_order(const struct weft_link *link);
/* The number of the latest piece of bulk; and: has all of the peer's up to a number landed? */
uint32_t weft_link_chunks_sent(const struct weft_link *link);
bool weft_link_has_landed(const struct weft_link *link, uint32_t number);
/* What a message that came ahead costs its receiver. */
static inline uint64_t weft_link_cost(size_t len)
{
    return len > WEFT_LINK_SMALL ? len : WEFT_LINK_SMALL;
}
/* May a message of len bytes go ahead of its receive? */
static inline bool weft_link_has_credit(const struct weft_link *link, size_t len)
{
    return link->eager_sent + weft_link_cost(len) - link->eager_freed <= WEFT_LINK_CREDIT;
}
static inline void weft_link_spend(struct weft_link *link, size_t len)
{
    link->eager_sent += weft_link_cost(len);
}
/* A message that came ahead has found its receive. */
void weft_link_tell(struct weft_link *link);
static inline void weft_link_consumed(struct weft_link *link, size_t len)
{
    link->eager_consumed += weft_link_cost(len);
    if (link->eager_consumed - link->eager_told >= WEFT_LINK_CREDIT / 4) {
        weft_link_tell(link);
    }
}
/* A message is kept for a receive that has not come; false: more than the peer may send ahead. */
static inline bool weft_link_hold(struct weft_link *link, size_t len)
{
    link->eager_held += weft_link_cost(len);
    return link->eager_held <= WEFT_LINK_CREDIT;
}
static inline void weft_link_unhold(struct weft_link *link, size_t len)
{
    link->eager_held -= weft_link_cost(len);
}
/* Are there several ways to the peer, and is not every one known to be dead? Tries them: if all are, the link
 * says so in time, with the devices' names. *is_alive_p: something gets through by one of them. */
bool weft_link_reaches(struct weft_link *link, bool *is_alive_p);
/* Is everything that was sent for this communicator on its way, and acknowledged where that is the custom? What
 * others send over the same link does not count, nor does BYE. */
bool weft_link_is_flushed(const struct weft_link *link, uint64_t comm);

#endif
