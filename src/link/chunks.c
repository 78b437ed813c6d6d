/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk over the slots of a bundle. Every chunk has a number; it is remembered here until the peer has it,
 * and goes again, with its number, when its slot dies before. The peer counts per connection, which keeps
 * order, and remembers which numbers have landed, so that a chunk that came twice is applied once.
 *
 * A chunk goes where it is expected to arrive first. Where that slot has its window full, the chunk waits:
 * a slower one would only bring it later.
 */
#include "link/internal.h"

#define RATE_NS UINT64_C(2000000)      /* at least so long is measured, … */
#define RATE_LEN ((uint64_t)256 << 10) /* … and so much: less only shows how long a word takes */
#define FLYING_MAX 128
#define TELL_LEN ((uint64_t)2 << 20) /* over one lane nobody waits for it */
#define TELL_SMALL 8                 /* short ones */
#define SMALL_LEN (64u << 10)
#define DUE_GRACE_NS UINT64_C(100000000)
#define DUE_TIMES 3e9                       /* as long as it should take, in ns */
#define DUE_UNKNOWN_NS UINT64_C(1000000000) /* of the first ones of all */

/* ---- which numbers are through: all up to *base, and some of the next ---- */

static bool has_passed(uint32_t base, const uint64_t *more, uint32_t number)
{
    int32_t ahead = (int32_t)(number - base);
    return ahead <= 0 || (ahead <= WEFT_LINK_CHUNKS &&
                          (more[number % WEFT_LINK_CHUNKS / 64] >> (number % 64) & 1) != 0);
}

static void pass(uint32_t *base, uint64_t *more, uint32_t number)
{
    if (has_passed(*base, more, number)) {
        return;
    }
    more[number % WEFT_LINK_CHUNKS / 64] |= UINT64_C(1) << (number % 64);
    while ((more[(*base + 1) % WEFT_LINK_CHUNKS / 64] >> ((*base + 1) % 64) & 1) != 0) {
        ++*base;
        more[*base % WEFT_LINK_CHUNKS / 64] &= ~(UINT64_C(1) << (*base % 64));
    }
}

/* ---- out ---- */

static struct weft_link_chunk *chunk_at(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct weft_link_chunk, node);
}

/* Slot 0 is left to envelopes while others carry bulk; those that are too many are left to drain. */
bool weft_slot_carries_bulk(const struct weft_bundle *bundle, uint32_t index)
{
    const struct weft_slot *slot = &bundle->slots[index];
    bool is_surplus = bundle->is_dialler && index > bundle->link->links->share;
    if (slot->state != SLOT_UP || index > 0) {
        return slot->state == SLOT_UP && !is_surplus;
    }
    for (uint32_t i = 1; i < bundle->count; i++) {
        if (weft_slot_carries_bulk(bundle, i)) {
            return false;
        }
    }
    return true;
}

static bool has_room(const struct weft_bundle *bundle, const struct weft_slot *slot, size_t len)
{
    const struct weft_params *params = bundle->link->links->spec.port.params;
    uint64_t most = (uint64_t)params->number[WEFT_PARAM_WINDOW] * weft_link_chunk_max(bundle->link);
    if (bundle->count == 1 && most < 2 * TELL_LEN) {
        most = 2 * TELL_LEN; /* or we would wait for what the peer does not tell yet */
    }
    return slot->flying_count == 0 ||
           (slot->flying_count < FLYING_MAX && slot->flying_len + len <= most);
}

/* The next one would wait: so this one is to be acknowledged at once. */
static bool fills_window(const struct weft_bundle *bundle, const struct weft_slot *slot, size_t len)
{
    struct weft_slot then = {.flying_count = slot->flying_count + 1,
                             .flying_len = slot->flying_len + len};
    return !has_room(bundle, &then, len);
}

double weft_bundle_best_rate(const struct weft_bundle *bundle)
{
    double best = 1;
    for (uint32_t i = 0; i < bundle->count; i++) {
        best = bundle->slots[i].rate > best ? bundle->slots[i].rate : best;
    }
    return best;
}

/* What is known of a slot that nobody uses grows old: twice the hope every half second, so that one that was
 * slow for a while is tried again. */
static double hoped_rate(const struct weft_slot *slot)
{
    uint64_t idle_ms;
    if (slot->flying_len >= SMALL_LEN) {
        return slot->rate;
    }
    idle_ms = (weft_clock_ns() - slot->known_ns) / WEFT_NS_PER_MS;
    return slot->rate * (double)(1u << (idle_ms < 5000 ? idle_ms / 500 : 10));
}

/* Where it would arrive first; NULL: that one is full, or none is up. */
static struct weft_slot *choose_fastest(struct weft_bundle *bundle, size_t len)
{
    struct weft_slot *best = NULL;
    double best_time = 0, unknown = weft_bundle_best_rate(bundle);
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct weft_slot *slot = &bundle->slots[i];
        double time;
        if (!weft_slot_carries_bulk(bundle, i)) {
            continue;
        }
        time = (double)(slot->flying_len + len) / (slot->rate > 0 ? hoped_rate(slot) : unknown);
        if (best == NULL || time < best_time) {
            best = slot;
            best_time = time;
        }
    }
    return best != NULL && has_room(bundle, best, len) ? best : NULL;
}

static bool takes_turns(const struct weft_bundle *bundle, uint32_t index)
{
    return weft_slot_carries_bulk(bundle, index) && bundle->slots[index].ghost_count == 0;
}

/* Whole messages in turn: their ids count up. */
static struct weft_slot *choose_in_turn(struct weft_bundle *bundle, uint64_t id, size_t len)
{
    uint32_t up = 0;
    for (uint32_t i = 0; i < bundle->count; i++) {
        up += takes_turns(bundle, i);
    }
    for (uint32_t i = 0, n = 0; up > 0 && i < bundle->count; i++) {
        if (takes_turns(bundle, i) && n++ == id % up) {
            return has_room(bundle, &bundle->slots[i], len) ? &bundle->slots[i] : NULL;
        }
    }
    return NULL;
}

static struct weft_slot *choose(struct weft_bundle *bundle, const struct weft_link_chunk *chunk)
{
    enum { AUTO, SPLIT, IN_TURN }; /* as in the table of settings */
    const struct weft_wire_data *frame = &chunk->frame;
    struct weft_link *link = bundle->link;
    if (link->lane == NULL) {
        return NULL;
    }
    if (frame->type == WEFT_DATA_CHUNK && frame->tag == 0) {
        /* It follows its announcement without having been asked for: so by the same lane. */
        struct weft_slot *lead = &bundle->slots[link->lane->slot];
        return has_room(bundle, lead, frame->len) ? lead : NULL;
    }
    if (link->links->spec.port.params->number[WEFT_PARAM_STRATEGY] == IN_TURN &&
        frame->type == WEFT_DATA_CHUNK && !chunk->is_copy) {
        return choose_in_turn(bundle, frame->a, frame->len);
    }
    return choose_fastest(bundle, frame->len);
}

/* How long it may take by this slot before others try, too. */
static uint64_t patience_ns(const struct weft_bundle *bundle, const struct weft_slot *slot,
                            size_t len)
{
    double rate = slot->rate > 0 ? hoped_rate(slot) : weft_bundle_best_rate(bundle);
    return rate > 1 ? DUE_GRACE_NS + (uint64_t)(DUE_TIMES * (double)(slot->flying_len + len) / rate)
                    : DUE_UNKNOWN_NS;
}

static bool post_chunk(struct weft_bundle *bundle, struct weft_link_chunk *chunk)
{
    struct weft_link *link = bundle->link;
    struct weft_slot *slot = choose(bundle, chunk);
    uint64_t patience;
    enum weft_post how;
    if (slot == NULL) {
        return false;
    }
    chunk->frame.ack = link->received;
    chunk->frame.seq = bundle->epoch;
    chunk->frame.flags = fills_window(bundle, slot, chunk->slice.len) ? WEFT_DATA_SLOT : 0;
    patience = patience_ns(bundle, slot, chunk->slice.len);
    how = slot->lane->ops->post(slot->lane, &chunk->frame, &chunk->slice, chunk);
    if (how == WEFT_POST_FULL) {
        return false;
    }
    link->told = link->received;
    link->untold_len = 0;
    bundle->bulk_ns = weft_clock_ns();
    chunk->due_ns = bundle->bulk_ns + patience;
    if (slot->flying_count++ == 0) {
        slot->rate_ns = bundle->bulk_ns;
        slot->rate_len = 0;
    }
    slot->flying_len += chunk->slice.len;
    slot->sent++;
    weft_list_append(&slot->flying, &chunk->node);
    weft_bundle_watch(bundle);
    return true;
}

enum weft_post weft_chunk_send(struct weft_bundle *bundle, const struct weft_wire_data *frame,
                               const struct weft_slice *slice, void *cookie)
{
    struct weft_list *node = NULL;
    struct weft_link_chunk *chunk;
    weft_bundle_wake(bundle);
    if (weft_chunks_replay(bundle) && bundle->sent - bundle->acked < WEFT_LINK_CHUNKS) {
        node = weft_list_take(&bundle->free);
    }
    if (node == NULL) {
        bundle->link->wants_room = true;
        return WEFT_POST_FULL;
    }
    chunk = chunk_at(node);
    chunk->link = bundle->link;
    chunk->frame = *frame;
    chunk->frame.number = bundle->sent + 1;
    chunk->slice = *slice;
    chunk->cookie = cookie;
    chunk->is_ghost = chunk->is_copy = false;
    if (!post_chunk(bundle, chunk)) {
        weft_list_append(&bundle->free, &chunk->node);
        bundle->link->wants_room = true;
        return WEFT_POST_FULL;
    }
    bundle->sent++;
    return WEFT_POST_LENT;
}

/* Its memory is its owner's again, but its number must not stay open: a byte that belongs to no message. */
static void make_void(struct weft_link_chunk *chunk)
{
    static uint8_t nothing[1];
    chunk->slice = (struct weft_slice){.data = nothing, .len = 1};
    chunk->frame = (struct weft_wire_data){.type = WEFT_DATA_CHUNK,
                                           .len = 1,
                                           .tag = UINT32_MAX,
                                           .comm = chunk->frame.comm,
                                           .number = chunk->frame.number};
}

bool weft_chunks_replay(struct weft_bundle *bundle)
{
    while (!weft_list_is_empty(&bundle->replay)) {
        struct weft_link_chunk *chunk = chunk_at(bundle->replay.next);
        if (bundle->link->keep_unsent > 0) {
            return false; /* envelopes first */
        }
        weft_list_remove(&chunk->node);
        if (chunk->cookie == NULL) {
            make_void(chunk);
        }
        if (!post_chunk(bundle, chunk)) {
            weft_list_append(bundle->replay.next, &chunk->node); /* first again */
            return false;
        }
    }
    return true;
}

void weft_chunks_lost(struct weft_bundle *bundle, struct weft_slot *slot)
{
    struct weft_list *node;
    while ((node = weft_list_take(&slot->flying)) != NULL) {
        weft_list_append(chunk_at(node)->is_ghost ? &bundle->free : &bundle->replay, node);
    }
    slot->flying_count = slot->ghost_count = 0;
    slot->flying_len = 0;
}

static void note_rate(struct weft_slot *slot, uint64_t len)
{
    uint64_t now_ns = weft_clock_ns();
    uint64_t time_ns = now_ns - slot->rate_ns;
    double rate;
    slot->rate_len += len;
    slot->acked_ns = now_ns;
    if (time_ns < RATE_NS || slot->rate_len < RATE_LEN) {
        return;
    }
    rate = (double)slot->rate_len * 1e9 / (double)time_ns;
    if (slot->flying_count == 0 && rate < slot->rate) {
        rate = slot->rate; /* it could have drained more, had it had more */
    }
    slot->rate = slot->rate > 0 ? 0.7 * slot->rate + 0.3 * rate : rate;
    slot->rate_ns = slot->known_ns = now_ns;
    slot->rate_len = 0;
}

void weft_chunks_acked(struct weft_bundle *bundle, const struct weft_wire_data *frame)
{
    struct weft_slot *slot = &bundle->slots[frame->tag % WEFT_LINK_SLOTS];
    uint32_t count = (uint32_t)frame->c - slot->acked;
    uint64_t len = 0;
    uint64_t drained = 0; /* without ghosts: they may have arrived before the slot was slow */
    if (frame->tag >= WEFT_LINK_SLOTS || slot->state != SLOT_UP || slot->generation != frame->seq ||
        count > slot->sent - slot->acked) {
        return; /* of a connection before */
    }
    for (; count > 0; count--) {
        struct weft_link_chunk *chunk = chunk_at(weft_list_take(&slot->flying));
        len += chunk->slice.len;
        drained += chunk->is_ghost ? 0 : chunk->slice.len;
        slot->acked++;
        slot->flying_count--;
        slot->ghost_count -= chunk->is_ghost;
        if (!chunk->is_ghost) {
            pass(&bundle->acked, bundle->acked_more, chunk->frame.number);
        }
        weft_list_append(chunk->cookie != NULL ? &bundle->link->links->acked : &bundle->free,
                         &chunk->node);
    }
    slot->flying_len -= len;
    note_rate(slot, drained);
}

static bool has_any_of(const struct weft_list *list, uint64_t comm)
{
    for (struct weft_list *node = list->next; node != list; node = node->next) {
        if (chunk_at(node)->frame.comm == comm && chunk_at(node)->cookie != NULL) {
            return true;
        }
    }
    return false;
}

bool weft_chunks_fly(const struct weft_bundle *bundle, uint64_t comm)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (has_any_of(&bundle->slots[i].flying, comm)) {
            return true;
        }
    }
    return has_any_of(&bundle->replay, comm);
}

/* Which chunks are wanted back: those of a cookie, up to a number. */
struct wanted {
    const void *cookie;
    uint32_t upto;
    bool is_there; /* the peer has them */
};

static bool is_wanted(const struct weft_link_chunk *chunk, const struct wanted *wanted)
{
    return chunk->cookie == wanted->cookie && (int32_t)(chunk->frame.number - wanted->upto) <= 0;
}

static unsigned forget_in(struct weft_list *list, struct weft_lane *lane,
                          const struct wanted *wanted)
{
    unsigned count = 0;
    for (struct weft_list *node = list->next; node != list; node = node->next) {
        struct weft_link_chunk *chunk = chunk_at(node);
        if (is_wanted(chunk, wanted)) {
            chunk->cookie = NULL;
            count++;
            if (lane != NULL) {
                lane->ops->forget(lane, chunk, wanted->is_there);
            }
        }
    }
    return count;
}

/* Those that are through already, but nobody was told yet. */
static unsigned forget_acked(struct weft_bundle *bundle, const struct wanted *wanted)
{
    struct weft_list *acked = &bundle->link->links->acked;
    struct weft_list *node = acked->next;
    unsigned count = 0;
    while (node != acked) {
        struct weft_link_chunk *chunk = chunk_at(node);
        node = node->next;
        if (chunk->link == bundle->link && is_wanted(chunk, wanted)) {
            weft_list_remove(&chunk->node);
            weft_list_append(&bundle->free, &chunk->node);
            count++;
        }
    }
    return count;
}

static unsigned forget(struct weft_bundle *bundle, const struct wanted *wanted)
{
    unsigned count = forget_in(&bundle->replay, NULL, wanted) + forget_acked(bundle, wanted);
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct weft_slot *slot = &bundle->slots[i];
        if (slot->state == SLOT_UP && slot->flying_count > 0) {
            count += forget_in(&slot->flying, slot->lane, wanted);
        }
    }
    return count;
}

unsigned weft_chunks_forget(struct weft_bundle *bundle, const void *cookie, bool is_there)
{
    const struct wanted wanted = {cookie, bundle->sent, is_there};
    return forget(bundle, &wanted);
}

unsigned weft_link_forget_landed(struct weft_link *link, const void *cookie, uint32_t number)
{
    const struct wanted wanted = {cookie, number, true};
    return link->bundle != NULL ? forget(link->bundle, &wanted) : 0;
}

/* ---- in ---- */

/* A copy comes by another slot. The later one counts, because the sender has given up the other's lane: what
 * that one still brings goes to the sink. false: this one is the earlier. */
static bool take_from_others(struct weft_bundle *bundle, const struct weft_slot *slot,
                             const struct weft_wire_data *frame)
{
    const struct weft_slice sink = {0};
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct weft_slot *other = &bundle->slots[i];
        if (other != slot && other->state == SLOT_UP && other->is_placing &&
            other->placing == frame->number) {
            if ((int32_t)(frame->seq - other->placing_epoch) <= 0) {
                return false;
            }
            weft_bundle_unplace(bundle, other);
            other->is_placing = false;
            other->is_stale = true;
            other->lane->ops->place(other->lane, &sink);
        }
    }
    return true;
}

bool weft_chunk_arriving(struct weft_bundle *bundle, const struct weft_done *done)
{
    const struct weft_slice sink = {0};
    struct weft_slot *slot = &bundle->slots[done->lane->slot];
    uint32_t number = done->frame.number;
    slot->is_placing = false;
    if (has_passed(bundle->landed, bundle->landed_more, number) ||
        (int32_t)(number - bundle->landed) > WEFT_LINK_CHUNKS ||
        !take_from_others(bundle, slot, &done->frame)) {
        slot->is_stale = true;
        done->lane->ops->place(done->lane, &sink);
        return false;
    }
    slot->is_stale = false;
    slot->is_placing = slot->is_asked = true;
    slot->placing = number;
    slot->placing_epoch = done->frame.seq;
    return true;
}

void weft_chunks_tell(struct weft_bundle *bundle, struct weft_slot *slot)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_ACK,
                                   .flags = WEFT_DATA_SLOT,
                                   .tag = (uint32_t)(slot - bundle->slots),
                                   .seq = slot->generation,
                                   .c = slot->received};
    const struct weft_slice nothing = {0};
    if (slot->told != slot->received && bundle->link->lane != NULL &&
        weft_link_post(bundle->link, &frame, &nothing, NULL) != WEFT_POST_FULL) {
        slot->told = slot->received;
        slot->untold_len = 0;
    }
}

void weft_chunks_tell_again(struct weft_bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct weft_slot *slot = &bundle->slots[i];
        if (slot->state == SLOT_UP && slot->received != 0) {
            slot->told = slot->received - 1;
            weft_chunks_tell(bundle, slot);
        }
    }
}

bool weft_chunk_landed(struct weft_bundle *bundle, const struct weft_done *done)
{
    struct weft_slot *slot = &bundle->slots[done->lane->slot];
    uint32_t untold = ++slot->received - slot->told;
    bool is_wanted = slot->is_placing;
    slot->untold_len += done->frame.len;
    bundle->bulk_ns = weft_clock_ns();
    if (is_wanted) {
        pass(&bundle->landed, bundle->landed_more, slot->placing);
    }
    slot->is_placing = slot->is_stale = false;
    /* With several slots the sender learns from this how fast each is. */
    if ((done->frame.flags & WEFT_DATA_SLOT) != 0 || /* it asks for it */
        (bundle->count > 1 ? untold >= TELL_SMALL || slot->untold_len >= SMALL_LEN
                           : untold >= FLYING_MAX / 2 || slot->untold_len >= TELL_LEN)) {
        weft_chunks_tell(bundle, slot);
    }
    weft_bundle_watch(bundle);
    return is_wanted;
}

bool weft_link_has_landed(const struct weft_link *link, uint32_t number)
{
    const struct weft_bundle *bundle = link->bundle;
    return bundle == NULL || (int32_t)(number - bundle->landed) <= 0;
}

uint32_t weft_link_chunks_sent(const struct weft_link *link)
{
    return link->bundle != NULL ? link->bundle->sent : 0;
}
