/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inbox: a ring of cells with many producers and one consumer, who looks at one line only.
 *
 * What one short message costs, once warm and with one sender: the sender owns `tail` and its own
 * line already, so the claim and the mark around it stay in its cache; the cell is fetched for
 * writing (the consumer has it, because it looks there) and fetched back by the consumer. Two
 * transfers of one line, the same as a bare flag. Everything else is told lazily (`head`, and
 * `consumed` to each sender), and read by the other side only when what it knows is used up.
 *
 * A producer that dies between claim and publish leaves a hole. Its line says so (`claiming`, set
 * before the claim, cleared after publishing), and when nobody alive is inside such a step, the
 * hole is nobody's and is passed over.
 *
 * Sleeping: the consumer stores `asleep`, fence, looks at its cell; the producer stores the stamp,
 * fence, looks at `asleep`. One of them sees the other.
 */
#include "lane/shm/internal.h"

#include <string.h>

/* A quarter of the cells may be taken without the senders knowing, an eighth of them without the
 * one who sent them: so what is not told yet never stops anybody. */
static inline uint64_t tell_head_after(const struct weft_shm_port *port)
{
    return (port->mask + 1) / 4;
}
static inline bool is_time_to_tell(const struct weft_shm_port *port, uint64_t taken)
{
    return (taken & (port->mask >> 3)) == 0;
}
/* Cells one sender may have untaken at one peer: three quarters, so that no one stops all others.
 * */
static inline uint64_t credit(const struct weft_shm_port *port)
{
    return port->mask - (port->mask >> 2);
}

/* ---- waking ---- */

static void ring(struct weft_shm_lane *lane)
{
    const struct weft_shm_mail mail = {.magic = WEFT_SHM_MAGIC, .kind = WEFT_SHM_RING};
    weft_shm_mail_send(lane->fd, &mail, -1); /* full: it is readable, which is all we want */
}

static void wake(struct weft_shm_lane *lane, uint32_t least)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&lane->there.header->asleep, memory_order_relaxed) >= least) {
        ring(lane);
    }
}

void weft_shm_wake(struct weft_shm_lane *lane)
{
    wake(lane, WEFT_SHM_ASLEEP);
}

void weft_shm_wake_wanting(struct weft_shm_lane *lane)
{
    wake(lane, WEFT_SHM_ASLEEP_WANTING_ROOM);
}

/* ---- producing ---- */

static bool has_credit(struct weft_shm_lane *lane)
{
    if (lane->posted < lane->posted_max) {
        return true;
    }
    lane->posted_max = credit(weft_shm_port_of(lane)) +
                       atomic_load_explicit(&lane->line_here->consumed, memory_order_acquire);
    return lane->posted < lane->posted_max;
}

/* The tail is read after the head: never behind it. */
static bool has_space(struct weft_shm_lane *lane, uint64_t *tail)
{
    struct weft_shm_header *header = lane->there.header;
    uint64_t mask = weft_shm_port_of(lane)->mask;
    if (*tail - lane->head_seen <= mask) {
        return true;
    }
    lane->head_seen = atomic_load_explicit(&header->head, memory_order_acquire);
    *tail = atomic_load_explicit(&header->tail, memory_order_relaxed);
    return *tail - lane->head_seen <= mask;
}

bool weft_shm_has_room(struct weft_shm_lane *lane)
{
    uint64_t tail = atomic_load_explicit(&lane->there.header->tail, memory_order_relaxed);
    return has_credit(lane) && has_space(lane, &tail);
}

/* A cell of the peer's inbox, ours to fill and publish at once; NULL: no room. */
static inline struct weft_shm_cell *claim(struct weft_shm_lane *lane, uint32_t *stamp_p)
{
    const struct weft_shm_port *port = weft_shm_port_of(lane);
    struct weft_shm_header *header = lane->there.header;
    struct weft_shm_cell *cell;
    uint64_t tail;
    if (!has_credit(lane)) {
        return NULL;
    }
    tail = atomic_load_explicit(&header->tail, memory_order_relaxed);
    atomic_store_explicit(&lane->line_there->claiming, 1, memory_order_relaxed);
    do {
        if (!has_space(lane, &tail)) {
            atomic_store_explicit(&lane->line_there->claiming, 0, memory_order_relaxed);
            return NULL;
        }
    } while (!atomic_compare_exchange_weak_explicit(&header->tail, &tail, tail + 1,
                                                    memory_order_acq_rel, memory_order_relaxed));
    cell = &lane->there.cells[tail & port->mask];
    cell->sender = (uint16_t)port->index;
    cell->lane = lane->number_there;
    *stamp_p = (uint32_t)tail + 1;
    return cell;
}

static inline void publish(struct weft_shm_lane *lane, struct weft_shm_cell *cell, uint32_t stamp)
{
    atomic_store_explicit(&cell->stamp, stamp, memory_order_release);
    atomic_store_explicit(&lane->line_there->claiming, 0, memory_order_release);
    lane->posted++;
    wake(lane, WEFT_SHM_ASLEEP);
}

static inline void fill(struct weft_shm_cell *cell, const struct weft_wire_data *frame,
                        uint16_t len)
{
    cell->type = frame->type;
    cell->flags = frame->flags;
    cell->len = len;
    cell->tag = frame->tag;
    cell->comm = frame->comm;
}

static enum weft_post send_inline(struct weft_shm_lane *lane, const struct weft_wire_data *frame,
                                  const struct weft_slice *slice)
{
    uint32_t stamp;
    struct weft_shm_cell *cell = claim(lane, &stamp);
    if (cell == NULL) {
        return weft_shm_full(lane, WEFT_SHM_WANT_CELL);
    }
    fill(cell, frame, (uint16_t)frame->len);
    if (frame->len == sizeof(uint64_t)) { /* the shortest messages have no time for a call */
        memcpy(cell->bytes, slice->data, sizeof(uint64_t));
    } else if (frame->len > 0) {
        memcpy(cell->bytes, slice->data, frame->len);
    }
    publish(lane, cell, stamp);
    return WEFT_POST_SENT;
}

enum weft_post weft_shm_say(struct weft_lane *base, uint64_t comm, uint32_t tag,
                            struct weft_slice slice)
{
    struct weft_shm_lane *lane = (struct weft_shm_lane *)base;
    uint32_t stamp;
    struct weft_shm_cell *cell = lane->state == WEFT_SHM_UP ? claim(lane, &stamp) : NULL;
    if (cell == NULL) {
        return weft_shm_full(lane, WEFT_SHM_WANT_CELL);
    }
    cell->type = WEFT_DATA_EAGER;
    cell->flags = 0;
    cell->len = (uint16_t)slice.len;
    cell->tag = tag;
    cell->comm = comm;
    if (slice.len == sizeof(uint64_t)) {
        memcpy(cell->bytes, slice.data, sizeof(uint64_t));
    } else if (slice.len > 0) {
        memcpy(cell->bytes, slice.data, slice.len);
    }
    publish(lane, cell, stamp);
    return WEFT_POST_SENT;
}

static bool is_envelope(uint8_t type)
{
    return type == WEFT_DATA_EAGER || type == WEFT_DATA_ANNOUNCE;
}

bool weft_shm_send_body(struct weft_shm_lane *lane, const struct weft_wire_data *frame,
                        const struct weft_shm_slot *slot)
{
    uint32_t stamp;
    struct weft_shm_cell *cell = claim(lane, &stamp);
    if (cell == NULL) {
        return false;
    }
    fill(cell, frame, WEFT_SHM_HAS_BODY);
    cell->body = (struct weft_shm_body){
        .a = frame->a,
        .b = frame->b,
        .c = frame->c,
        .slot = slot != NULL ? slot->index : WEFT_SHM_NO_SLOT,
        .len = frame->len,
        .generation = slot != NULL ? slot->generation : 0,
        .seq = is_envelope(frame->type) ? 0 : frame->seq,
    };
    publish(lane, cell, stamp);
    return true;
}

enum weft_post weft_shm_full(struct weft_shm_lane *lane, enum weft_shm_want want)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    if (lane->state != WEFT_SHM_UP) {
        return WEFT_POST_FULL; /* LOST says the rest */
    }
    lane->wants |= (uint8_t)want;
    if (weft_list_is_empty(&lane->waiting)) {
        weft_list_append(&port->waiting, &lane->waiting);
    }
    port->has_chores = true;
    return WEFT_POST_FULL;
}

/* Frames that say something about the payloads before them, or end the conversation. */
static bool must_wait_its_turn(uint8_t type)
{
    return type == WEFT_DATA_SIGNAL || type == WEFT_DATA_FLUSH || type == WEFT_DATA_BYE;
}

enum weft_post weft_shm_post(struct weft_lane *base, const struct weft_wire_data *frame,
                             const struct weft_slice *slice, void *cookie)
{
    struct weft_shm_lane *lane = (struct weft_shm_lane *)base;
    if (lane->state != WEFT_SHM_UP) {
        return WEFT_POST_FULL;
    }
    if (frame->type == WEFT_DATA_EAGER && frame->len <= WEFT_SHM_INLINE) {
        return send_inline(lane, frame, slice);
    }
    if (frame->len > 0) {
        return weft_shm_post_slot(lane, frame, slice, cookie);
    }
    if (!weft_list_is_empty(&lane->copying) && must_wait_its_turn(frame->type)) {
        return weft_shm_full(lane, WEFT_SHM_WANT_TURN);
    }
    return weft_shm_send_body(lane, frame, NULL) ? WEFT_POST_SENT
                                                 : weft_shm_full(lane, WEFT_SHM_WANT_CELL);
}

/* ---- consuming ---- */

static inline bool is_published(const struct weft_shm_port *port)
{
    return atomic_load_explicit(&port->cells[port->head & port->mask].stamp,
                                memory_order_acquire) == (uint32_t)port->head + 1;
}

bool weft_shm_inbox_has_cell(const struct weft_shm_port *port)
{
    return is_published(port);
}

static void lose_all(struct weft_shm_port *port, const char *why)
{
    for (uint32_t i = 0; i < port->local_count; i++) {
        if (port->lanes[i] != NULL && port->lanes[i]->state == WEFT_SHM_UP) {
            weft_shm_lose(port->lanes[i], WEFT_ERR_PROTOCOL, "%s", why);
        }
    }
}

static bool is_somebody_claiming(const struct weft_shm_port *port)
{
    for (uint32_t i = 0; i < port->local_count; i++) {
        const struct weft_shm_lane *lane = port->lanes[i];
        if (lane != NULL && lane->state != WEFT_SHM_LOST && !lane->has_ended &&
            atomic_load_explicit(&port->inbox.lines[i].claiming, memory_order_acquire) != 0) {
            return true;
        }
    }
    return false;
}

void weft_shm_inbox_unblock(struct weft_shm_port *port)
{
    while (!is_published(port)) {
        /* Before the lines: whoever has claimed by now is marked, or has published and is seen
         * below. */
        uint64_t tail = atomic_load_explicit(&port->inbox.header->tail, memory_order_acquire);
        if (tail - port->head > (uint64_t)port->mask + 1) {
            lose_all(port, "the tail of our inbox was overwritten by a peer");
            return;
        }
        if (tail == port->head || is_somebody_claiming(port) || is_published(port)) {
            return;
        }
        port->head++;
    }
}

void weft_shm_inbox_tell_head(struct weft_shm_port *port)
{
    port->head_told = port->head;
    atomic_store_explicit(&port->inbox.header->head, port->head, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < port->local_count; i++) {
        struct weft_shm_lane *lane = port->lanes[i];
        if (lane != NULL && lane->state == WEFT_SHM_UP &&
            atomic_load_explicit(&lane->there.header->asleep, memory_order_relaxed) ==
                WEFT_SHM_ASLEEP_WANTING_ROOM) {
            ring(lane);
        }
    }
}

/* NULL: of a lane that is not there any more. */
static struct weft_shm_lane *lane_of(struct weft_shm_port *port, uint16_t sender, uint16_t number)
{
    struct weft_shm_lane *lane;
    if (sender >= port->local_count) {
        lose_all(port, "a message in our inbox names no rank of this host");
        return NULL;
    }
    lane = port->lanes[sender];
    if (lane == NULL || lane->number != number || lane->is_closing) {
        return NULL;
    }
    if (lane->state == WEFT_SHM_SETTING_UP) {
        weft_shm_mail_read(lane); /* it answered our call and speaks at once */
    }
    return lane->state == WEFT_SHM_UP ? lane : NULL;
}

/* The payload's address, NULL: it lost its lane. */
static const void *payload_of(struct weft_shm_lane *lane, const struct weft_shm_body *body)
{
    struct weft_shm_pool *pool = &lane->pool;
    if (pool->segment == NULL ||
        body->slot >= pool->count[WEFT_SHM_SMALL] + pool->count[WEFT_SHM_BIG] || body->len == 0 ||
        body->len > weft_shm_kind_len(weft_shm_kind_of(pool, body->slot)) ||
        body->generation == 0 || lane->generations[body->slot] != 0) {
        weft_shm_lose(lane, WEFT_ERR_PROTOCOL, "named a slot it cannot have filled (%u, %u bytes)",
                      body->slot, body->len);
        return NULL;
    }
    lane->generations[body->slot] = body->generation;
    return weft_shm_pool_at(pool, body->slot);
}

static bool take_body(struct weft_shm_lane *lane, const struct weft_shm_body *body,
                      struct weft_done *done)
{
    done->frame.a = body->a;
    done->frame.b = body->b;
    done->frame.c = body->c;
    done->frame.seq = body->seq;
    done->frame.len = body->len;
    if (body->slot == WEFT_SHM_NO_SLOT) {
        if (body->len != 0) {
            weft_shm_lose(lane, WEFT_ERR_PROTOCOL, "sent a length without bytes");
        }
        return body->len == 0;
    }
    done->payload = payload_of(lane, body);
    done->token = body->slot + 1;
    if (done->payload != NULL) {
        __builtin_prefetch(done->payload);
    }
    return done->payload != NULL;
}

/* What a cell holds, read once: everything is judged and used from here. */
struct taken {
    uint8_t type, flags;
    uint16_t len, sender, lane;
    uint32_t tag;
    uint64_t comm;
};

static inline void read_cell(const struct weft_shm_cell *cell, struct taken *taken)
{
    *taken = (struct taken){cell->type, cell->flags, cell->len, cell->sender,
                            cell->lane, cell->tag,   cell->comm};
    __asm__ volatile("" ::: "memory"); /* not read again from where it may change */
}

static bool take_cell(struct weft_shm_lane *lane, const struct weft_shm_cell *cell,
                      const struct taken *taken, struct weft_done *done)
{
    struct weft_shm_body body;
    if (taken->type == 0 || taken->type >= WEFT_DATA_TYPE_END ||
        (taken->len != WEFT_SHM_HAS_BODY &&
         (taken->len > WEFT_SHM_INLINE || taken->type != WEFT_DATA_EAGER))) {
        weft_shm_lose(lane, WEFT_ERR_PROTOCOL, "sent what is no message (type %u, length %u)",
                      taken->type, taken->len);
        return false;
    }
    *done = (struct weft_done){.kind = WEFT_DONE_ARRIVED,
                               .lane = &lane->base,
                               .frame = {.type = taken->type,
                                         .flags = taken->flags,
                                         .len = taken->len,
                                         .tag = taken->tag,
                                         .comm = taken->comm},
                               .payload = cell->bytes};
    if (taken->len == WEFT_SHM_HAS_BODY) {
        body = cell->body;
        __asm__ volatile("" ::: "memory");
        done->payload = NULL;
        return take_body(lane, &body, done);
    }
    return true;
}

static inline void note_taken(struct weft_shm_port *port, struct weft_shm_lane *lane)
{
    if (is_time_to_tell(port, ++lane->taken)) {
        atomic_store_explicit(&lane->line_there->consumed, lane->taken, memory_order_release);
        weft_shm_wake_wanting(lane);
    }
}

/* A message is often answered at once: the cell for the answer is fetched meanwhile, for writing (which
 * the compiler's builtin does not ask for on x86). */
static inline void expect_answer(const struct weft_shm_lane *lane)
{
    uint64_t tail = atomic_load_explicit(&lane->there.header->tail, memory_order_relaxed);
    const struct weft_shm_cell *cell = &lane->there.cells[tail & weft_shm_port_of(lane)->mask];
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" ::"m"(*cell));
#else
    __builtin_prefetch(cell, 1);
#endif
}

bool weft_shm_inbox_hear(struct weft_shm_port *port, struct weft_lane_word *word_p)
{
    const struct weft_shm_cell *cell = &port->cells[port->head & port->mask];
    struct weft_shm_lane *lane;
    struct taken taken;
    if (!is_published(port) || port->head - port->head_told >= tell_head_after(port)) {
        return false;
    }
    read_cell(cell, &taken);
    if (taken.type != WEFT_DATA_EAGER || taken.len > WEFT_SHM_INLINE ||
        taken.sender >= port->local_count) {
        return false;
    }
    lane = port->lanes[taken.sender];
    if (lane == NULL || lane->number != taken.lane || lane->state != WEFT_SHM_UP ||
        lane->is_closing || lane->is_opened_news) {
        return false;
    }
    port->head++;
    expect_answer(lane);
    *word_p = (struct weft_lane_word){.lane = &lane->base,
                                      .comm = taken.comm,
                                      .tag = taken.tag,
                                      .len = taken.len,
                                      .payload = cell->bytes};
    note_taken(port, lane);
    return true;
}

unsigned weft_shm_inbox_poll(struct weft_shm_port *port, struct weft_done *done, unsigned room)
{
    unsigned count = 0;
    /* What the poll before gave out is not looked at any more: now its cells may be overwritten. */
    if (port->head - port->head_told >= tell_head_after(port)) {
        weft_shm_inbox_tell_head(port);
    }
    while (count < room && is_published(port)) {
        const struct weft_shm_cell *cell = &port->cells[port->head & port->mask];
        struct weft_shm_lane *lane;
        struct taken taken;
        read_cell(cell, &taken);
        lane = lane_of(port, taken.sender, taken.lane);
        if (lane != NULL && lane->is_opened_news) {
            break; /* first that it is open, then what it sent */
        }
        port->head++;
        if (lane == NULL) {
            continue;
        }
        count += take_cell(lane, cell, &taken, &done[count]);
        note_taken(port, lane);
    }
    return count;
}
