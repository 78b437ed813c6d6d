/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: where payloads lie that do not fit into a cell. Each rank owns one pool and sends from it;
 * the receiver reads the payload where it lies and frees the slot by storing its generation into
 * the slot's line, without a message. The owner looks at those lines only when it has no idle slot
 * left, oldest first, and collects all that came back.
 *
 * Slots are used in turn, so that a line is rewritten as late as possible: plain stores into lines
 * which another core still caches are several times slower than into lines it has forgotten. When
 * the two cores are far apart even that does not help, and stores that go around the cache do;
 * which of the two it is changes within seconds, so it is measured from the copies themselves.
 *
 * The pool's pages are reserved when the port opens, so that a host without memory says so before
 * anything is sent, and not by SIGBUS later; they are touched with the first use.
 */
#include "lane/shm/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LEND_LEN (16u << 10)    /* longer ones are copied without the engine's lock */
#define STREAM_LEN (8u << 10)   /* shorter ones never go around the cache */
#define MEASURE_LEN (32u << 10) /* shorter ones say nothing about the rate */
#define SLOW_BYTES_PER_NS 4
#define CHECK_EVERY 64 /* streamed copies until a plain one asks whether the machine has changed */

/* ---- making it ---- */

weft_status_t weft_shm_pool_open(struct weft_shm_port *port)
{
    struct weft_shm_segment *segment;
    uint32_t count = port->pool_count[WEFT_SHM_SMALL] + port->pool_count[WEFT_SHM_BIG];
    weft_status_t status;
    struct weft_shm_slot *slots = calloc(count, sizeof(*slots));
    if (slots == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %u slots", count);
    }
    status = weft_shm_segment_create("weft-pool", weft_shm_pool_len(port->pool_count), &segment);
    if (status != WEFT_OK) {
        free(slots);
        return status;
    }
    weft_shm_pool_lay_out(&port->pool, segment, port->pool_count);
    port->slots = slots;
    for (uint32_t i = 0; i < count; i++) {
        slots[i].index = i;
        weft_list_open(&slots[i].sent);
        weft_list_append(&port->idle[weft_shm_kind_of(&port->pool, i)], &slots[i].node);
    }
    return WEFT_OK;
}

void weft_shm_pool_close(struct weft_shm_port *port)
{
    weft_shm_segment_close(port->pool.segment);
    free(port->slots);
}

void weft_shm_describe_pool(const struct weft_shm_port *port, struct weft_shm_mail *mail_p)
{
    *mail_p = (struct weft_shm_mail){.magic = WEFT_SHM_MAGIC,
                                     .kind = WEFT_SHM_POOL,
                                     .id = port->pool.segment->id,
                                     .len = port->pool.segment->region.len};
    mail_p->pool.small_count = port->pool.count[WEFT_SHM_SMALL];
    mail_p->pool.big_count = port->pool.count[WEFT_SHM_BIG];
}

/* Without it the first copies would be slow for another reason than the one that is measured. */
static void touch_pool(struct weft_shm_port *port)
{
    if (!port->is_pool_touched) {
        port->is_pool_touched = true;
        (void)madvise(port->pool.segment->region.base, port->pool.segment->region.len,
                      MADV_POPULATE_WRITE);
    }
}

weft_status_t weft_shm_take_pool(struct weft_shm_lane *lane, const struct weft_shm_mail *mail,
                                 int fd)
{
    const uint32_t count[WEFT_SHM_KINDS] = {mail->pool.small_count, mail->pool.big_count};
    struct weft_shm_segment *segment;
    weft_status_t status;
    if (lane->there.segment == NULL || lane->pool.segment != NULL || count[0] > UINT16_MAX ||
        count[1] > UINT16_MAX || mail->len != weft_shm_pool_len(count)) {
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_PROTOCOL, "its pool is not what it says");
    }
    lane->generations = calloc((size_t)count[0] + count[1] + 1, sizeof(*lane->generations));
    if (lane->generations == NULL) {
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a peer's pool");
    }
    status = weft_shm_segment_map(fd, mail->id, mail->len, &segment);
    if (status != WEFT_OK) {
        return status;
    }
    weft_shm_pool_lay_out(&lane->pool, segment, count);
    return weft_shm_set_up(lane);
}

/* ---- slots come and go ---- */

static void give_back(struct weft_shm_port *port, struct weft_shm_slot *slot)
{
    enum weft_shm_kind kind = weft_shm_kind_of(&port->pool, slot->index);
    if (slot->lane != NULL) {
        slot->lane->held[kind]--;
        slot->lane = NULL;
    }
    weft_list_remove(&slot->node);
    weft_list_append(&port->idle[kind], &slot->node);
}

static bool is_back(const struct weft_shm_port *port, const struct weft_shm_slot *slot)
{
    return atomic_load_explicit(&port->pool.lines[slot->index].freed, memory_order_acquire) ==
               slot->generation &&
           weft_list_is_empty(&slot->sent);
}

static void collect(struct weft_shm_port *port, enum weft_shm_kind kind)
{
    struct weft_list *node = port->flying[kind].next;
    while (node != &port->flying[kind]) {
        struct weft_shm_slot *slot = WEFT_CONTAINER_OF(node, struct weft_shm_slot, node);
        node = node->next;
        if (is_back(port, slot)) {
            give_back(port, slot);
        }
    }
}

/* One peer that does not take its messages must not stop those to all others. */
static bool has_share_left(const struct weft_shm_port *port, const struct weft_shm_lane *lane,
                           enum weft_shm_kind kind)
{
    return lane->held[kind] < port->pool.count[kind] - port->pool.count[kind] / 4;
}

bool weft_shm_has_slot(struct weft_shm_lane *lane, enum weft_shm_kind kind)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    if (weft_list_is_empty(&port->idle[kind]) || !has_share_left(port, lane, kind)) {
        collect(port, kind);
    }
    return !weft_list_is_empty(&port->idle[kind]) && has_share_left(port, lane, kind);
}

static struct weft_shm_slot *take(struct weft_shm_lane *lane, enum weft_shm_kind kind)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    struct weft_shm_slot *slot;
    if (!weft_shm_has_slot(lane, kind)) {
        return NULL;
    }
    slot = WEFT_CONTAINER_OF(weft_list_take(&port->idle[kind]), struct weft_shm_slot, node);
    slot->lane = lane;
    slot->generation = slot->generation == UINT32_MAX ? 1 : slot->generation + 1;
    lane->held[kind]++;
    return slot;
}

static void fly(struct weft_shm_port *port, struct weft_shm_slot *slot)
{
    weft_list_remove(&slot->node);
    weft_list_append(&port->flying[weft_shm_kind_of(&port->pool, slot->index)], &slot->node);
}

void weft_shm_reclaim(struct weft_shm_lane *lane)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    uint32_t count = port->pool.count[WEFT_SHM_SMALL] + port->pool.count[WEFT_SHM_BIG];
    for (uint32_t i = 0; i < count; i++) {
        if (port->slots[i].lane == lane) {
            weft_list_remove(&port->slots[i].sent);
            give_back(port, &port->slots[i]);
        }
    }
}

void weft_shm_release(struct weft_lane *base, uint32_t token)
{
    struct weft_shm_lane *lane = (struct weft_shm_lane *)base;
    uint32_t slot = token - 1;
    uint32_t generation;
    if (token == 0 || lane->pool.segment == NULL ||
        slot >= lane->pool.count[WEFT_SHM_SMALL] + lane->pool.count[WEFT_SHM_BIG]) {
        return;
    }
    generation = lane->generations[slot];
    if (generation != 0) {
        lane->generations[slot] = 0;
        atomic_store_explicit(&lane->pool.lines[slot].freed, generation, memory_order_release);
        if (lane->fd >= 0) {
            weft_shm_wake_wanting(lane);
        }
    }
}

/* ---- copying in ---- */

static enum weft_mem_copy choose_copy(struct weft_shm_port *port, size_t len)
{
    if (len < STREAM_LEN || !port->is_far) {
        return WEFT_COPY_PLAIN;
    }
    return ++port->streamed_copies % CHECK_EVERY == 0 ? WEFT_COPY_PLAIN : WEFT_COPY_STREAM;
}

static void note_copy(struct weft_shm_port *port, size_t len, uint64_t ns, enum weft_mem_copy how)
{
    if (how != WEFT_COPY_PLAIN || len < MEASURE_LEN) {
        return;
    }
    /* Once may be a page fault or another process's turn. */
    port->slow_copies = len < ns * SLOW_BYTES_PER_NS ? port->slow_copies + 1 : 0;
    port->is_far = port->slow_copies >= 2;
}

static void copy_in(struct weft_shm_port *port, const struct weft_shm_slot *slot, const void *from,
                    size_t len)
{
    enum weft_mem_copy how = choose_copy(port, len);
    uint64_t begin_ns = len >= MEASURE_LEN ? weft_clock_ns() : 0;
    weft_mem_copy(weft_shm_pool_at(&port->pool, slot->index), from, len, how);
    if (len >= MEASURE_LEN) {
        note_copy(port, len, weft_clock_ns() - begin_ns, how);
    }
}

/* Without the lock. */
static void run_copy(struct weft_engine_work *work)
{
    struct weft_shm_slot *slot = WEFT_CONTAINER_OF(work, struct weft_shm_slot, work);
    const struct weft_shm_port *port = weft_shm_port_of(slot->lane);
    uint64_t begin_ns = weft_clock_ns();
    weft_mem_copy(weft_shm_pool_at(&port->pool, slot->index), slot->from, slot->frame.len,
                  slot->how);
    slot->copy_ns = weft_clock_ns() - begin_ns;
}

void weft_shm_send_copied(struct weft_shm_lane *lane)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    while (!weft_list_is_empty(&lane->copying)) {
        struct weft_shm_slot *slot =
            WEFT_CONTAINER_OF(lane->copying.next, struct weft_shm_slot, node);
        if (!slot->is_copied) {
            return;
        }
        if (lane->state != WEFT_SHM_UP || weft_shm_send_body(lane, &slot->frame, slot)) {
            fly(port, slot); /* of a lost lane: until it is closed */
        } else {
            weft_shm_full(lane, WEFT_SHM_WANT_CELL); /* poll tries again */
            return;
        }
    }
}

/* Under the lock again. The memory is the caller's from here on, whether or not there is room for
 * the cell. */
static void finish_copy(struct weft_engine_work *work)
{
    struct weft_shm_slot *slot = WEFT_CONTAINER_OF(work, struct weft_shm_slot, work);
    struct weft_shm_lane *lane = slot->lane;
    struct weft_shm_port *port = weft_shm_port_of(lane);
    note_copy(port, slot->frame.len, slot->copy_ns, slot->how);
    slot->is_copied = true;
    weft_list_append(&port->sent, &slot->sent);
    port->has_chores = true;
    weft_shm_send_copied(lane);
}

static void lend(struct weft_shm_lane *lane, struct weft_shm_slot *slot,
                 const struct weft_wire_data *frame, const struct weft_slice *slice, void *cookie)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    slot->work.run = run_copy;
    slot->work.done = finish_copy;
    slot->frame = *frame;
    slot->from = slice->data;
    slot->cookie = cookie;
    slot->is_copied = false;
    slot->how = choose_copy(port, frame->len);
    weft_list_append(&lane->copying, &slot->node);
    weft_engine_work_add(port->engine, &slot->work);
}

/* Pieces of something longer: their order among each other is kept, but short messages pass. */
static bool is_piece(uint8_t type)
{
    return type == WEFT_DATA_CHUNK || type == WEFT_DATA_PART || type == WEFT_DATA_PUT;
}

enum weft_post weft_shm_post_slot(struct weft_shm_lane *lane, const struct weft_wire_data *frame,
                                  const struct weft_slice *slice, void *cookie)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    enum weft_shm_kind kind = frame->len <= WEFT_SHM_SMALL_LEN ? WEFT_SHM_SMALL : WEFT_SHM_BIG;
    struct weft_shm_slot *slot;
    if (!weft_shm_has_room(lane)) {
        return weft_shm_full(lane, WEFT_SHM_WANT_CELL);
    }
    touch_pool(port);
    slot = take(lane, kind);
    if (slot == NULL) {
        return weft_shm_full(lane, (enum weft_shm_want)(1 << kind));
    }
    if (is_piece(frame->type) && (frame->len > LEND_LEN || !weft_list_is_empty(&lane->copying))) {
        lend(lane, slot, frame, slice, cookie);
        return WEFT_POST_LENT;
    }
    copy_in(port, slot, slice->data, frame->len);
    if (!weft_shm_send_body(lane, frame, slot)) {
        give_back(port, slot); /* others were faster; seldom enough to copy again */
        return weft_shm_full(lane, WEFT_SHM_WANT_CELL);
    }
    fly(port, slot);
    return WEFT_POST_SENT;
}
