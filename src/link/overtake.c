/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane whose rate collapses holds what it was given: a window of chunks, seconds long. When they are long
 * overdue and another lane gets through, that one brings copies, of a later epoch, which take over at the peer.
 *
 * The lane lives on, and what it had stays in its list as ghosts: the peer counts what comes by a connection, in
 * order, also when it goes to the sink. What had not begun to leave becomes a byte of a number that is through long
 * ago; of the rest the lane keeps its own copy. A ghost's acknowledgement means nothing but that it was counted: it
 * may have gone to the sink while its copy was on its way.
 *
 * Envelopes leave such a NIC, too: until it is quick again none of its lanes is the lead, on both sides.
 */
#include "link/internal.h"

#define FRESH_NS (100 * (uint64_t)WEFT_NS_PER_MS) /* a lane that got through so lately can help */

#define LATE_NS (250 * (uint64_t)WEFT_NS_PER_MS) /* between two ticks: the engine was not driven */
#define OVERDUE_TICKS 2
#define SLOW_PART 8 /* so much slower than the best is slow */

static struct weft_link_chunk *chunk_at(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct weft_link_chunk, node);
}

static struct weft_link_chunk *oldest(struct weft_slot *slot)
{
    for (struct weft_list *node = slot->flying.next; node != &slot->flying; node = node->next) {
        if (!chunk_at(node)->is_ghost) {
            return chunk_at(node);
        }
    }
    return NULL;
}

static bool has_helper(const struct weft_bundle *bundle, const struct weft_slot *slow,
                       uint64_t now_ns)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        const struct weft_slot *slot = &bundle->slots[i];
        if (slot != slow && weft_slot_carries_bulk(bundle, i) &&
            (slot->flying_count == 0 || now_ns - slot->acked_ns < FRESH_NS)) {
            return true;
        }
    }
    return false;
}

static void make_ghost(struct weft_bundle *bundle, struct weft_slot *slot,
                       struct weft_link_chunk *chunk)
{
    const struct weft_wire_data nothing = {
        .type = WEFT_DATA_CHUNK, .len = 1, .tag = UINT32_MAX, .number = bundle->acked};
    struct weft_lane *lane = slot->lane;
    chunk->is_ghost = true;
    chunk->cookie = NULL;
    slot->ghost_count++;
    if (lane->ops->replace(lane, chunk, &nothing)) {
        slot->flying_len -= chunk->slice.len - 1;
        chunk->slice.len = 1;
    } else {
        lane->ops->forget(lane, chunk, true);
    }
    chunk->slice.data = NULL; /* it is not ours to read any more */
}

/* Copies of all that the slot still has to bring; in order, and behind what waits already. */
static unsigned overtake(struct weft_bundle *bundle, struct weft_slot *slot)
{
    unsigned count = 0;
    bundle->epoch++;
    for (struct weft_list *node = slot->flying.next; node != &slot->flying; node = node->next) {
        struct weft_link_chunk *chunk = chunk_at(node);
        struct weft_list *free = chunk->is_ghost ? NULL : weft_list_take(&bundle->free);
        if (free != NULL) {
            struct weft_link_chunk *copy = chunk_at(free);
            copy->link = chunk->link;
            copy->frame = chunk->frame;
            copy->slice = chunk->slice;
            copy->cookie = chunk->cookie;
            copy->is_ghost = false;
            copy->is_copy = true;
            weft_list_append(&bundle->replay, &copy->node);
            make_ghost(bundle, slot, chunk);
            count++;
        }
    }
    return count;
}

/* ---- the lead keeps away from it ---- */

uint32_t weft_bundle_slow(const struct weft_bundle *bundle)
{
    uint32_t slots = 0;
    for (uint32_t i = 0; i < bundle->count; i++) {
        slots |= (uint32_t)bundle->slots[i].is_slow << i;
    }
    return slots;
}

/* Each side tells what it has found when its lead moves. What the peer has found is not told back, or neither
 * could ever take it back. */
void weft_bundle_told_slow(struct weft_bundle *bundle, uint32_t slots)
{
    if (bundle->peer_slow != slots) {
        bundle->peer_slow = slots;
        weft_link_set_lead(bundle->link, weft_bundle_find_lead(bundle));
    }
}

static void mark_nic(struct weft_bundle *bundle, uint32_t nic, bool is_slow)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (bundle->slots[i].nic == nic) {
            bundle->slots[i].is_slow = is_slow;
        }
    }
}

/* Bulk tries it now and then: is it nearly as good as the others again? */
static void look_at_slow(struct weft_bundle *bundle)
{
    double least = weft_bundle_best_rate(bundle) / SLOW_PART;
    for (uint32_t i = 1; i < bundle->count; i++) {
        const struct weft_slot *slot = &bundle->slots[i];
        if (slot->is_slow && slot->state == SLOT_UP && slot->rate > least) {
            mark_nic(bundle, slot->nic, false);
            weft_log(link, INFO, "lane %u to rank %u is quick again: %.1f MB/s, the best %.1f", i,
                     bundle->link->peer, slot->rate / 1e6, weft_bundle_best_rate(bundle) / 1e6);
        }
    }
}

/* ---- what is overdue ---- */

/* What is known of it is too good: it brought less than one more chunk in all this time. */
static void lower_rate(struct weft_slot *slot, uint64_t len, uint64_t now_ns)
{
    double seconds = (double)(now_ns - slot->rate_ns) / 1e9;
    double rate = seconds > 0 ? (double)(slot->rate_len + len) / seconds : slot->rate;
    slot->rate = slot->rate == 0 || rate < slot->rate ? rate : slot->rate;
    slot->rate_ns = slot->known_ns = now_ns;
    slot->rate_len = 0;
}

static bool is_overdue(struct weft_slot *slot, uint64_t now_ns)
{
    const struct weft_link_chunk *chunk =
        slot->state == SLOT_UP && slot->flying_count > slot->ghost_count ? oldest(slot) : NULL;
    return chunk != NULL && now_ns > chunk->due_ns && slot->lane->ops->is_held(slot->lane);
}

void weft_chunks_overtake(struct weft_bundle *bundle, uint64_t now_ns)
{
    /* We may have been the ones who slept, and its acknowledgements lie here unread. */
    bool is_late = now_ns - bundle->tick_ns > LATE_NS;
    unsigned count;
    bundle->tick_ns = now_ns;
    look_at_slow(bundle);
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct weft_slot *slot = &bundle->slots[i];
        slot->overdue = is_late || !is_overdue(slot, now_ns) ? 0 : slot->overdue + 1;
        if (slot->overdue >= OVERDUE_TICKS && has_helper(bundle, slot, now_ns)) {
            lower_rate(slot, oldest(slot)->slice.len, now_ns);
            mark_nic(bundle, slot->nic, true);
            count = overtake(bundle, slot);
            weft_log(link, INFO, "lane %u to rank %u is overdue: %u pieces go by others", i,
                     bundle->link->peer, count);
        }
    }
}
