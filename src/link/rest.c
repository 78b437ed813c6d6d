/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes that nobody needs. Those that carry bulk are closed when they have had nothing to do for a while, and
 * when there are so many peers that each gets fewer; they rest until there is bulk again. Lane 0 stays, and one
 * over another NIC beside it, so that a NIC that dies is still no error.
 *
 * The dialler closes and opens; the other one calls it when it has something to send. Until they are up again
 * bulk takes those that are. To close one is to lose it without alarm: what the peer may have sent meanwhile
 * goes again, as when it died.
 */
#include "link/internal.h"

#define REDIAL_MS 1500
#define NO_SLOT WEFT_LINK_SLOTS /* in place of a slot: a call to open those that rest */

static const struct weft_params *params_of(const struct weft_links *links)
{
    return links->spec.port.params;
}

/* ---- how many each peer gets ---- */

static uint32_t share_of(const struct weft_links *links)
{
    uint32_t most = (uint32_t)params_of(links)->number[WEFT_PARAM_LANES_MAX];
    uint32_t each = links->bundle_count > 0 ? most / links->bundle_count : most;
    if (most == 0) {
        return WEFT_LINK_SLOTS;
    }
    return each > 2 ? each - 1 : 1; /* besides lane 0 */
}

static void update_share(struct weft_links *links)
{
    uint32_t share = share_of(links);
    bool is_less = share < links->share && share < WEFT_LINK_SLOTS;
    links->share = share;
    for (struct weft_list *node = links->bundles.next; is_less && node != &links->bundles;
         node = node->next) {
        weft_bundle_watch(WEFT_CONTAINER_OF(node, struct weft_bundle, node));
    }
}

void weft_links_bundle_added(struct weft_links *links)
{
    links->bundle_count++;
    update_share(links);
}

void weft_links_bundle_removed(struct weft_links *links)
{
    links->bundle_count--;
    update_share(links);
}

/* ---- to rest ---- */

static void tell(struct weft_bundle *bundle, const struct weft_slot *slot)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_ACK,
                                   .flags = WEFT_DATA_REST,
                                   .tag = (uint32_t)(slot - bundle->slots),
                                   .seq = slot->generation,
                                   .c = bundle->is_asleep};
    const struct weft_slice nothing = {0};
    if (bundle->link->lane != NULL) {
        weft_link_post(bundle->link, &frame, &nothing, NULL);
    }
}

/* Nothing of ours is on its way by it. What comes by it now would come again. */
static bool may_rest(const struct weft_bundle *bundle, const struct weft_slot *slot)
{
    return slot->state == SLOT_UP && slot->lane != bundle->link->lane && slot->flying_count == 0 &&
           slot->lane->ops->queued(slot->lane) == 0;
}

static bool is_spare(const struct weft_bundle *bundle, uint32_t index)
{
    return index == 1 && bundle->slots[1].nic != bundle->slots[0].nic;
}

static uint64_t idle_ns(const struct weft_bundle *bundle)
{
    return (uint64_t)params_of(bundle->link->links)->number[WEFT_PARAM_LANE_IDLE] * WEFT_NS_PER_MS;
}

void weft_bundle_rest(struct weft_bundle *bundle, uint64_t now_ns)
{
    uint32_t share = bundle->link->links->share;
    bool is_idle = idle_ns(bundle) > 0 && weft_list_is_empty(&bundle->replay) &&
                   now_ns - bundle->bulk_ns >= idle_ns(bundle);
    if (!bundle->is_dialler || bundle->slots[0].state != SLOT_UP) {
        return;
    }
    for (uint32_t i = bundle->count - 1; i > 0; i--) {
        struct weft_slot *slot = &bundle->slots[i];
        struct weft_lane *lane = slot->lane;
        bool is_surplus = i > share;
        if ((is_surplus || (is_idle && !is_spare(bundle, i))) && may_rest(bundle, slot)) {
            bundle->is_asleep |= !is_surplus;
            weft_bundle_leave(bundle, slot);
            slot->state = SLOT_RESTING;
            tell(bundle, slot);
            weft_log(link, DEBUG, "lane %u to rank %u rests", i, bundle->link->peer);
            lane->ops->close(lane);
        }
    }
}

uint64_t weft_bundle_rest_due(const struct weft_bundle *bundle)
{
    for (uint32_t i = 1; bundle->is_dialler && idle_ns(bundle) > 0 && i < bundle->count; i++) {
        if (bundle->slots[i].state == SLOT_UP && !is_spare(bundle, i)) {
            return bundle->bulk_ns + idle_ns(bundle);
        }
    }
    return 0;
}

/* ---- to be needed again ---- */

void weft_bundle_wake(struct weft_bundle *bundle)
{
    struct weft_wire_data call = {.type = WEFT_DATA_ACK, .flags = WEFT_DATA_REST, .tag = NO_SLOT};
    const struct weft_slice nothing = {0};
    if (!bundle->is_asleep) {
        return;
    }
    bundle->bulk_ns = weft_clock_ns();
    if (!bundle->is_dialler) {
        bundle->is_asleep = bundle->link->lane == NULL ||
                            weft_link_post(bundle->link, &call, &nothing, NULL) == WEFT_POST_FULL;
        return;
    }
    bundle->is_asleep = false;
    for (uint32_t i = 1; i < bundle->count && i <= bundle->link->links->share; i++) {
        if (bundle->slots[i].state == SLOT_RESTING) {
            weft_bundle_dial_slot(bundle, i, REDIAL_MS);
        }
    }
    weft_bundle_watch(bundle);
}

/* What is told or called by the peer. */
void weft_bundle_told_rest(struct weft_bundle *bundle, const struct weft_wire_data *frame)
{
    struct weft_slot *slot = &bundle->slots[frame->tag % WEFT_LINK_SLOTS];
    struct weft_lane *lane = slot->lane;
    if (bundle->is_dialler) {
        if (frame->tag == NO_SLOT) {
            weft_bundle_wake(bundle);
        }
        return;
    }
    if (frame->tag == 0 || frame->tag >= WEFT_LINK_SLOTS || slot->generation != frame->seq ||
        (slot->state != SLOT_UP && slot->state != SLOT_DOWN)) {
        return;
    }
    if (lane != NULL && lane == bundle->link->lane) {
        return; /* what we need most, the others being down here: we shall see it end */
    }
    bundle->is_asleep |= frame->c != 0;
    if (slot->state == SLOT_UP) {
        weft_bundle_leave(bundle, slot);
        weft_link_refuse(bundle->link->links, lane); /* events of it may follow in this poll */
    }
    slot->state = SLOT_RESTING;
    if (!weft_list_is_empty(&bundle->replay)) { /* we were sending by it just then */
        weft_bundle_wake(bundle);
        weft_chunks_replay(bundle);
    }
}

/* The peer lost a lane that was put to rest, and has not heard of it. */
void weft_bundle_rest_again(struct weft_bundle *bundle, const struct weft_slot *slot)
{
    if (bundle->is_dialler && slot->state == SLOT_RESTING) {
        tell(bundle, slot);
    }
}
