/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keep: a ring of short frames with their payload, oldest first. First those that were sent and
 * are not acknowledged, then those that wait for the lane.
 *
 *   | entry | entry | entry | … skip to the start |
 *
 * An entry is contiguous: one that does not fit before the end leaves a skip there.
 *
 * Lanes are lent its memory. When the peer has a frame, the lane that brought it is done with it; but a former lead,
 * or a new one, may have the same frame still to send. They are told before the memory is used again.
 */
#include "link/internal.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    uint32_t size; /* with this head, a multiple of 64 */
    bool is_skip;
    struct weft_wire_data frame;
    uint8_t payload[];
};

static size_t entry_size(size_t len)
{
    return (sizeof(struct entry) + len + 63) & ~(size_t)63;
}

static struct entry *entry_at(const struct weft_link *link, size_t offset)
{
    return (struct entry *)(void *)(link->keep + offset % link->links->keep_room);
}

static size_t keep_end(const struct weft_link *link)
{
    return (link->keep_start + link->keep_len) % link->links->keep_room;
}

/* What an entry of this size takes, with the skip that it may need. */
static size_t needed(const struct weft_link *link, size_t size)
{
    size_t to_end = link->links->keep_room - keep_end(link);
    return size <= to_end ? size : to_end + size;
}

bool weft_link_keep_has_room(const struct weft_link *link, size_t len)
{
    return needed(link, entry_size(len)) <= link->links->keep_room - link->keep_len;
}

weft_status_t weft_link_keep_open(struct weft_link *link)
{
    if (link->keep == NULL) {
        link->keep = aligned_alloc(64, link->links->keep_room);
        link->keep_start = link->keep_len = link->keep_unsent = link->keep_again = 0;
    }
    return link->keep != NULL
               ? WEFT_OK
               : weft_fail(WEFT_ERR_MEMORY, "no memory for messages to rank %u", link->peer);
}

void *weft_link_keep_add(struct weft_link *link, const struct weft_wire_data *frame,
                         const struct weft_slice *slice, bool is_sent)
{
    size_t size = entry_size(slice->len);
    size_t taken = needed(link, size);
    struct entry *entry = entry_at(link, keep_end(link));
    if (taken > size) {
        entry->size = (uint32_t)(taken - size);
        entry->is_skip = true;
        entry = entry_at(link, 0);
    }
    entry->size = (uint32_t)size;
    entry->is_skip = false;
    entry->frame = *frame;
    if (slice->len > 0) {
        memcpy(entry->payload, slice->data, slice->len);
    }
    link->keep_len += taken;
    link->keep_unsent += is_sent ? 0 : taken;
    return entry->payload;
}

static void drop_oldest(struct weft_link *link)
{
    size_t size = entry_at(link, link->keep_start)->size;
    link->keep_start = (link->keep_start + size) % link->links->keep_room;
    link->keep_len -= size;
    link->keep_again -= size < link->keep_again ? size : link->keep_again;
    if (link->keep_len == 0) {
        link->keep_start = 0; /* the longest needs all of it in one piece */
    }
}

bool weft_link_keep_flush(struct weft_link *link)
{
    bool is_sure = (link->lane->caps & WEFT_LANE_SURE) != 0;
    while (link->keep_unsent > 0) {
        size_t offset = link->keep_start + link->keep_len - link->keep_unsent;
        struct entry *entry = entry_at(link, offset);
        struct weft_slice slice = {.data = entry->payload, .len = entry->frame.len};
        if (!entry->is_skip && weft_link_post(link, &entry->frame, &slice,
                                              is_sure ? NULL : slice.data) == WEFT_POST_FULL) {
            return false;
        }
        link->keep_unsent -= entry->size;
        if (is_sure) {
            drop_oldest(link);
        }
    }
    if (is_sure) {
        free(link->keep);
        link->keep = NULL;
    }
    return true;
}

void weft_link_keep_rewind(struct weft_link *link)
{
    size_t sent = link->keep_len - link->keep_unsent;
    link->keep_again = sent > link->keep_again ? sent : link->keep_again;
    link->keep_unsent = link->keep_len;
}

bool weft_link_keep_holds(const struct weft_link *link, uint64_t comm)
{
    size_t done = 0;
    while (done < link->keep_len) {
        const struct entry *entry = entry_at(link, link->keep_start + done);
        if (!entry->is_skip && entry->frame.comm == comm && entry->frame.type != WEFT_DATA_BYE) {
            return true;
        }
        done += entry->size;
    }
    return false;
}

/* The peer has it: whoever has not sent it yet need not. One that has begun goes on, from a copy. */
static void take_back(struct weft_link *link, const struct entry *entry)
{
    const struct weft_wire_data instead = {
        .type = WEFT_DATA_ACK, .a = link->eager_consumed, .ack = link->received};
    for (uint32_t i = 0; i < link->bundle->count; i++) {
        const struct weft_slot *slot = &link->bundle->slots[i];
        struct weft_lane *lane = slot->lane;
        if (slot->state != SLOT_UP || lane->ops->queued(lane) == 0) {
            continue;
        }
        while (lane->ops->replace(lane, entry->payload, &instead)) {
        }
        lane->ops->forget(lane, entry->payload, true);
    }
}

void weft_link_keep_acked(struct weft_link *link, uint32_t number)
{
    link->acked = number;
    while (link->keep_len > 0) {
        const struct entry *entry = entry_at(link, link->keep_start);
        if (!entry->is_skip && (int32_t)(entry->frame.number - number) > 0) {
            return;
        }
        if (link->keep_len == link->keep_unsent) {
            link->keep_unsent -= entry->size; /* it was to go again, for nothing */
        }
        if (link->keep_again > 0 && !entry->is_skip) {
            take_back(link, entry);
        }
        drop_oldest(link);
    }
}
