/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots of a link: connections over all NICs that two hosts share. They are dialled by the higher rank,
 * die alone, and come back. docs/lanes.md has the whole protocol.
 *
 * Ten times a second, while anything is on its way, a tick looks whether the peer's host still acknowledges
 * what each slot has sent, tells what came, and dials what is down. What the tick finds late, netlink
 * mostly has said at once.
 */
#include "link/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 100
#define REDIAL_MS 1500 /* an attempt takes no longer: the path may be up again before the next */
#ifndef WEFT_LINK_POOL_PER_SLOT /* fuzzing takes less */
#define WEFT_LINK_POOL_PER_SLOT 128
#endif
#define LATE_NS UINT64_C(1000000000) /* what came before its NIC lost its carrier is read by then */
#define DARK_NS UINT64_C(3000000000) /* a NIC without carrier is let alone for so long */

static void tick(struct weft_engine_timer *timer, uint64_t now_ns);

static const struct weft_params *params_of(const struct weft_bundle *bundle)
{
    return bundle->link->links->spec.port.params;
}

weft_status_t weft_bundle_open(struct weft_link *link)
{
    struct weft_links *links = link->links;
    int64_t lanes = links->spec.port.params->number[WEFT_PARAM_LANES];
    uint32_t bulk = links->tcp_count * (uint32_t)(lanes > 0 ? lanes : 1);
    struct weft_bundle *bundle = calloc(1, sizeof(*bundle));
    struct weft_link_chunk *chunks;
    uint32_t count;
    bulk = bulk < links->share ? bulk : links->share;
    count = (bulk + 1 < WEFT_LINK_SLOTS ? bulk + 1 : WEFT_LINK_SLOTS) * WEFT_LINK_POOL_PER_SLOT;
    chunks = calloc(count, sizeof(*chunks));
    if (bundle == NULL || chunks == NULL) {
        free(bundle);
        free(chunks);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for lanes to rank %u", link->peer);
    }
    bundle->link = link;
    bundle->chunks = chunks;
    bundle->is_dialler = links->spec.port.self->rank > link->peer;
    weft_list_open(&bundle->free);
    weft_list_open(&bundle->replay);
    for (uint32_t i = 0; i < count; i++) {
        weft_list_append(&bundle->free, &chunks[i].node);
    }
    for (uint32_t i = 0; i < WEFT_LINK_SLOTS; i++) {
        weft_list_open(&bundle->slots[i].flying);
    }
    weft_engine_timer_open(&bundle->tick, tick);
    weft_list_append(&links->bundles, &bundle->node);
    link->bundle = bundle;
    weft_links_bundle_added(links);
    return WEFT_OK;
}

void weft_bundle_close(struct weft_bundle *bundle)
{
    struct weft_list *acked, *node;
    if (bundle == NULL) {
        return;
    }
    weft_engine_timer_cancel(bundle->link->links->spec.port.engine, &bundle->tick);
    for (uint32_t i = 0; i < WEFT_LINK_SLOTS; i++) {
        if (bundle->slots[i].lane != NULL) {
            bundle->slots[i].lane->ops->close(bundle->slots[i].lane);
        }
    }
    acked = &bundle->link->links->acked;
    for (node = acked->next; node != acked;) {
        struct weft_list *next = node->next;
        if (WEFT_CONTAINER_OF(node, struct weft_link_chunk, node)->link == bundle->link) {
            weft_list_remove(node);
        }
        node = next;
    }
    weft_list_remove(&bundle->node);
    weft_links_bundle_removed(bundle->link->links);
    bundle->link->bundle = NULL;
    free(bundle->chunks);
    free(bundle);
}

static const char *nic_of(const struct weft_bundle *bundle, const struct weft_slot *slot)
{
    const struct weft_link_nic *nic = &bundle->link->links->nics[slot->nic];
    return nic->name[0] != '\0' ? nic->name : nic->said[0] != '\0' ? nic->said : "tcp";
}

/* ---- up ---- */

struct weft_lane *weft_bundle_find_lead(struct weft_bundle *bundle)
{
    uint32_t slow = weft_bundle_slow(bundle) | bundle->peer_slow;
    struct weft_lane *first = NULL;
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (bundle->slots[i].state == SLOT_UP && (slow >> i & 1) == 0) {
            return bundle->slots[i].lane;
        }
        if (first == NULL && bundle->slots[i].state == SLOT_UP) {
            first = bundle->slots[i].lane;
        }
    }
    return first;
}

static uint32_t find_nic(const struct weft_links *links, const struct weft_lane *lane)
{
    for (uint32_t i = 0; i < links->tcp_count; i++) {
        if (links->tcp[i] == lane->port) {
            return i;
        }
    }
    return 0;
}

static bool is_without_carrier(const struct weft_links *links, uint32_t nic)
{
    return links->down_ns[nic] != 0 && weft_clock_ns() - links->down_ns[nic] < LATE_NS;
}

/* The peer dialled again before we knew that the old connection is over. */
static bool take_call(struct weft_bundle *bundle, struct weft_lane *lane)
{
    struct weft_slot *slot = &bundle->slots[lane->slot];
    if (bundle->is_dialler ||
        (slot->state != SLOT_EMPTY && (int32_t)(lane->generation - slot->generation) <= 0)) {
        return false;
    }
    if (slot->lane != NULL) {
        struct weft_lane *old = slot->lane;
        weft_bundle_lost(bundle, slot, "replaced by a new connection");
        weft_link_refuse(bundle->link->links, old);
    }
    slot->lane = lane;
    slot->generation = lane->generation;
    slot->nic = find_nic(bundle->link->links, lane);
    lane->owner = bundle->link;
    return true;
}

bool weft_bundle_opened(struct weft_bundle *bundle, struct weft_lane *lane)
{
    struct weft_link *link = bundle->link;
    struct weft_slot *slot;
    if (lane->slot >= WEFT_LINK_SLOTS) {
        return false;
    }
    if (is_without_carrier(link->links, find_nic(link->links, lane)) && lane->owner == NULL &&
        weft_bundle_find_lead(bundle) != NULL) {
        return false; /* the news of its NIC was read first, and no more will come */
    }
    if (lane->owner == NULL && !take_call(bundle, lane)) {
        return false;
    }
    slot = &bundle->slots[lane->slot];
    bundle->count = bundle->count > lane->slot ? bundle->count : lane->slot + 1u;
    slot->state = SLOT_UP;
    slot->pause_ms = 0;
    slot->sent = slot->acked = slot->received = slot->told = 0;
    slot->untold_len = 0;
    slot->rate = 0;
    slot->is_slow = false;
    slot->overdue = 0;
    slot->known_ns = slot->acked_ns = weft_clock_ns();
    slot->is_placing = slot->is_stale = slot->is_asked = false;
    bundle->epoch++;
    bundle->broken_ns = bundle->mute_ns = 0;
    bundle->bulk_ns = bundle->opened_ns = weft_clock_ns();
    weft_log(link, INFO, "rank %u by %s, lane %u (%s)", link->peer, nic_of(bundle, slot),
             lane->slot, lane->peer_text);
    weft_link_set_lead(link, weft_bundle_find_lead(bundle));
    weft_chunks_replay(bundle);
    weft_bundle_watch(bundle);
    return true;
}

/* ---- down ---- */

void weft_bundle_tell_down(struct weft_bundle *bundle, const struct weft_slot *slot)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_ACK,
                                   .flags = WEFT_DATA_DOWN,
                                   .tag = (uint32_t)(slot - bundle->slots),
                                   .seq = slot->generation,
                                   .c = is_without_carrier(bundle->link->links, slot->nic)};
    const struct weft_slice nothing = {0};
    if (bundle->link->lane != NULL) {
        weft_link_post(bundle->link, &frame, &nothing, NULL);
    }
}

void weft_bundle_unplace(struct weft_bundle *bundle, const struct weft_slot *slot)
{
    const struct weft_links_spec *spec = &bundle->link->links->spec;
    if (!weft_links_withdraw(bundle->link->links, slot->lane)) {
        spec->unplace(spec->context, bundle->link, (uint32_t)(slot - bundle->slots));
    }
}

void weft_bundle_leave(struct weft_bundle *bundle, struct weft_slot *slot)
{
    struct weft_link *link = bundle->link;
    struct weft_lane *lane = slot->lane;
    bundle->epoch++;
    weft_chunks_lost(bundle, slot);
    if (slot->is_placing) {
        weft_bundle_unplace(bundle, slot);
    } else if (lane != NULL) {
        weft_links_withdraw(link->links, lane); /* an envelope whose copy will be the first */
    }
    slot->is_placing = slot->is_asked = false;
    if (link->placed_lane == lane) {
        link->placed_lane = NULL; /* a copy will complete it */
    }
    slot->lane = NULL;
}

static bool is_any_left(const struct weft_bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (bundle->slots[i].state == SLOT_UP || bundle->slots[i].state == SLOT_DIALLING) {
            return true;
        }
    }
    return false;
}

bool weft_bundle_lost(struct weft_bundle *bundle, struct weft_slot *slot, const char *why)
{
    struct weft_link *link = bundle->link;
    bool was_up = slot->state == SLOT_UP;
    weft_bundle_leave(bundle, slot);
    weft_slot_retry_later(slot);
    if (was_up) {
        weft_log(link, INFO, "lane %u to rank %u by %s is over: %s",
                 (unsigned)(slot - bundle->slots), link->peer, nic_of(bundle, slot), why);
        weft_link_set_lead(link, weft_bundle_find_lead(bundle));
        weft_bundle_tell_down(bundle, slot);
        if (bundle->is_dialler) { /* to the other one the end of a lane that rests looks the same */
            weft_bundle_wake(bundle);
        }
        weft_chunks_replay(bundle);
    }
    weft_bundle_watch(bundle);
    if (weft_bundle_find_lead(bundle) == NULL && bundle->broken_ns == 0) {
        bundle->broken_ns = weft_clock_ns();
        snprintf(bundle->broken_text, sizeof(bundle->broken_text), "%s", why);
    }
    return !is_any_left(bundle);
}

void weft_bundle_drop(struct weft_bundle *bundle, struct weft_slot *slot, const char *why)
{
    struct weft_lane *lane = slot->lane;
    weft_bundle_lost(bundle, slot, why);
    weft_log(link, WARN, "lane %u to rank %u by %s is given up: %s; %s",
             (unsigned)(slot - bundle->slots), bundle->link->peer, nic_of(bundle, slot), why,
             weft_bundle_find_lead(bundle) != NULL ? "the others take over" : "no other is left");
    lane->is_given_up = true;
    lane->ops->close(lane);
}

void weft_bundle_told_down(struct weft_bundle *bundle, const struct weft_wire_data *frame)
{
    struct weft_slot *slot = &bundle->slots[frame->tag % WEFT_LINK_SLOTS];
    int32_t later = (int32_t)(slot->generation - frame->seq);
    if (frame->tag < WEFT_LINK_SLOTS && slot->state == SLOT_UP &&
        (later == 0 || (later > 0 && frame->c != 0))) {
        struct weft_lane *lane = slot->lane;
        weft_bundle_lost(bundle, slot, "the peer gave it up");
        weft_link_refuse(bundle->link->links, lane); /* events of it may follow in this poll */
    } else if (frame->tag < WEFT_LINK_SLOTS) {
        weft_bundle_rest_again(bundle, slot);
    }
}

void weft_bundle_name_nics(const struct weft_bundle *bundle, char *text, size_t room)
{
    size_t len = 0;
    uint32_t seen = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < bundle->count && len < room; i++) {
        const struct weft_slot *slot = &bundle->slots[i];
        if ((seen >> slot->nic & 1) == 0) {
            seen |= 1u << slot->nic;
            len += (size_t)snprintf(text + len, room - len, "%s%s", len > 0 ? ", " : "",
                                    nic_of(bundle, slot));
        }
    }
}

/* ---- what must be watched ---- */

void weft_bundle_watch(struct weft_bundle *bundle)
{
    if (weft_list_is_empty(&bundle->tick.node) || bundle->is_dozing) {
        bundle->is_dozing = false;
        weft_engine_timer_set(bundle->link->links->spec.port.engine, &bundle->tick,
                              weft_clock_after_ms(TICK_MS));
    }
}

bool weft_bundle_is_last_up(const struct weft_bundle *bundle, const struct weft_slot *slot)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (bundle->slots[i].state == SLOT_UP && &bundle->slots[i] != slot) {
            return false;
        }
    }
    return true;
}

/* For how long it was silent, if that is too long. The last one has more time, which began when the first of them
 * fell silent: what those had to bring has come to it only since. 0: it may stay. */
static uint64_t silent_too_long_ns(const struct weft_bundle *bundle, const struct weft_slot *slot,
                                   uint64_t now_ns)
{
    const int64_t *number = params_of(bundle)->number;
    uint64_t lane_ns = (uint64_t)number[WEFT_PARAM_LANE_TIMEOUT] * WEFT_NS_PER_MS;
    uint64_t path_ns = (uint64_t)number[WEFT_PARAM_PATH_TIMEOUT] * WEFT_NS_PER_MS;
    uint64_t silent_ns = slot->lane->ops->silent_ms(slot->lane) * WEFT_NS_PER_MS;
    if (!weft_bundle_is_last_up(bundle, slot)) {
        return silent_ns >= lane_ns ? silent_ns : 0;
    }
    if (silent_ns >= lane_ns && bundle->mute_ns != 0 && now_ns - bundle->mute_ns > silent_ns) {
        silent_ns = now_ns - bundle->mute_ns;
    }
    return silent_ns >= path_ns ? silent_ns : 0;
}

static void drop_silent(struct weft_bundle *bundle, struct weft_slot *slot, uint64_t silent_ns,
                        uint64_t now_ns)
{
    bool is_last = weft_bundle_is_last_up(bundle, slot);
    uint64_t since_ns = now_ns - silent_ns;
    char why[64];
    snprintf(why, sizeof(why), "nothing acknowledged for %llu ms",
             (unsigned long long)(silent_ns / WEFT_NS_PER_MS));
    weft_bundle_drop(bundle, slot, why);
    if (bundle->mute_ns == 0) {
        bundle->mute_ns = since_ns;
    }
    if (is_last) { /* another may have been up in that time, and may be again: the tick decides */
        bundle->broken_ns = bundle->opened_ns > since_ns ? bundle->opened_ns : since_ns;
    }
}

static bool look_at(struct weft_bundle *bundle, struct weft_slot *slot, uint64_t now_ns)
{
    bool is_lead = slot->lane == bundle->link->lane;
    bool is_busy = slot->flying_count > 0 || (is_lead && bundle->link->keep_len > 0);
    uint64_t silent_ns = silent_too_long_ns(bundle, slot, now_ns);
    if (silent_ns > 0) {
        drop_silent(bundle, slot, silent_ns, now_ns);
        return true;
    }
    weft_chunks_tell(bundle, slot);
    return is_busy || slot->lane->ops->silent_ms(slot->lane) > 0;
}

/* Nothing is on its way: only lanes that nobody needs are looked for. */
static void doze(struct weft_bundle *bundle, uint64_t now_ns)
{
    uint64_t due_ns = weft_bundle_rest_due(bundle);
    uint64_t next_ns = now_ns + TICK_MS * WEFT_NS_PER_MS;
    bundle->is_dozing = true;
    weft_engine_timer_set(bundle->link->links->spec.port.engine, &bundle->tick,
                          due_ns > next_ns ? due_ns : next_ns);
}

/* Of a NIC without carrier we hear when it is back. Until then nothing is tried by it: the kernel would ask for the
 * peer's hardware address in vain, and then not again for a second, carrier or not. But news may be lost. Nobody
 * pauses when nothing gets through by what is up, if anything is. */
static bool may_dial(const struct weft_bundle *bundle, const struct weft_slot *down,
                     uint64_t now_ns)
{
    uint64_t down_ns = bundle->link->links->down_ns[down->nic];
    if (down_ns != 0 && now_ns - down_ns < DARK_NS) {
        return false;
    }
    return now_ns >= down->retry_ns || (down_ns == 0 && !weft_bundle_is_through(bundle));
}

static void tick(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_bundle *bundle = WEFT_CONTAINER_OF(timer, struct weft_bundle, tick);
    uint64_t limit_ns =
        (uint64_t)params_of(bundle)
            ->number[bundle->link->was_up ? WEFT_PARAM_PATH_TIMEOUT : WEFT_PARAM_START_TIMEOUT] *
        WEFT_NS_PER_MS;
    bool is_busy = bundle->broken_ns != 0 || !weft_list_is_empty(&bundle->replay);
    bundle->is_dozing = false;
    if (bundle->link->state == WEFT_LINK_DOWN) {
        return; /* its user has heard, or will: nothing brings it back */
    }
    for (uint32_t i = 0; i < bundle->count; i++) {
        struct weft_slot *slot = &bundle->slots[i];
        if (slot->state == SLOT_UP && slot->lane != NULL) {
            if (look_at(bundle, slot, now_ns)) {
                is_busy = true;
                bundle->stir_ns = now_ns;
            }
        } else if (slot->state == SLOT_DOWN) {
            is_busy = true;
            weft_bundle_tell_down(bundle,
                                  slot); /* the word before may have gone by a lane that died too */
            if (bundle->is_dialler && may_dial(bundle, slot, now_ns)) {
                weft_bundle_dial_slot(bundle, i, REDIAL_MS);
            }
        }
        is_busy |= slot->state == SLOT_DIALLING;
    }
    if (now_ns - bundle->stir_ns > LATE_NS) {
        bundle->mute_ns = 0; /* nobody has had anything to say */
    }
    if (bundle->broken_ns != 0 && now_ns - bundle->broken_ns >= limit_ns) {
        weft_link_broke(bundle->link);
        return;
    }
    weft_bundle_go_home(bundle);
    weft_chunks_overtake(bundle, now_ns);
    weft_link_set_lead(bundle->link, weft_bundle_find_lead(bundle));
    weft_chunks_replay(bundle);
    if (bundle->link->told != bundle->link->received) {
        weft_link_tell(bundle->link);
    }
    weft_bundle_rest(bundle, now_ns);
    if (is_busy) {
        weft_bundle_watch(bundle);
    } else if (weft_bundle_rest_due(bundle) > 0) {
        doze(bundle, now_ns);
    }
}
