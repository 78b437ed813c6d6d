/* SPDX-License-Identifier: Apache-2.0 */
/* Which of our NICs leads to which of the peer's, and how a slot gets its lane: the higher rank dials. */
#include "link/internal.h"

#include <string.h>

#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 1000

void weft_slot_retry_later(struct weft_slot *slot)
{
    slot->state = SLOT_DOWN;
    slot->pause_ms = slot->pause_ms == 0 ? PAUSE_MIN_MS : 2 * slot->pause_ms;
    slot->pause_ms = slot->pause_ms < PAUSE_MAX_MS ? slot->pause_ms : PAUSE_MAX_MS;
    slot->retry_ns = weft_clock_after_ms(slot->pause_ms);
}

static const uint8_t *address_at(const struct weft_bundle *bundle, uint32_t there)
{
    return bundle->there + (size_t)there * WEFT_WIRE_ADDR_LEN;
}

static bool is_same_net(const struct weft_bundle *bundle, uint32_t nic, uint32_t there)
{
    const struct weft_link_nic *ours = &bundle->link->links->nics[nic];
    bool is_v6 = ours->addr.ss_family == AF_INET6;
    const uint8_t *here =
        is_v6 ? (const uint8_t *)&((const struct sockaddr_in6 *)&ours->addr)->sin6_addr
              : (const uint8_t *)&((const struct sockaddr_in *)&ours->addr)->sin_addr;
    struct weft_wire_addr addr;
    return weft_wire_addr_decode(address_at(bundle, there), &addr) == WEFT_OK &&
           addr.family == (is_v6 ? 6 : 4) &&
           weft_wire_addr_is_same_net(here, addr.bytes, ours->prefix_len);
}

/* ---- one slot ---- */

static bool is_slot_through(const struct weft_bundle *bundle, const struct weft_slot *slot)
{
    const struct weft_params *params = bundle->link->links->spec.port.params;
    return slot->state == SLOT_UP &&
           slot->lane->ops->silent_ms(slot->lane) < params->number[WEFT_PARAM_LANE_TIMEOUT];
}

bool weft_bundle_is_through(const struct weft_bundle *bundle)
{
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (is_slot_through(bundle, &bundle->slots[i])) {
            return true;
        }
    }
    return false;
}

/* Its own address. When nothing gets through, and that one did not answer, it may be that our NIC lives and the
 * peer's does not: then by turns the others that the NIC can reach. */
static uint32_t choose_there(const struct weft_bundle *bundle, const struct weft_slot *slot)
{
    if (slot->pause_ms <= PAUSE_MIN_MS || weft_bundle_is_through(bundle)) {
        return slot->home;
    }
    for (uint32_t i = 1; i < bundle->there_count; i++) {
        uint32_t there = (slot->there + i) % bundle->there_count;
        if (is_same_net(bundle, slot->nic, there)) {
            return there;
        }
    }
    return slot->home;
}

weft_status_t weft_bundle_dial_slot(struct weft_bundle *bundle, uint32_t index, uint64_t timeout_ms)
{
    struct weft_slot *slot = &bundle->slots[index];
    struct weft_link *link = bundle->link;
    struct weft_lane_address address = {.len = WEFT_WIRE_ADDR_LEN};
    const struct weft_lane_call call = {.peer = link->peer,
                                        .slot = (uint16_t)index,
                                        .generation = slot->generation + 1,
                                        .address = &address,
                                        .timeout_ms = timeout_ms};
    weft_status_t status;
    slot->there = choose_there(bundle, slot);
    memcpy(address.bytes, address_at(bundle, slot->there), WEFT_WIRE_ADDR_LEN);
    status = link->links->tcp_ops->open(link->links->tcp[slot->nic], &call, &slot->lane);
    if (status != WEFT_OK) {
        slot->lane = NULL;
        weft_slot_retry_later(slot);
        return status;
    }
    slot->generation++;
    slot->lane->owner = link;
    slot->state = SLOT_DIALLING;
    return WEFT_OK;
}

/* Otherwise two of our NICs would end in one of the peer's for good, and another of its NICs would carry nothing. */
void weft_bundle_go_home(struct weft_bundle *bundle)
{
    bool is_one_home = false;
    for (uint32_t i = 0; i < bundle->count; i++) {
        const struct weft_slot *slot = &bundle->slots[i];
        is_one_home |= slot->there == slot->home && is_slot_through(bundle, slot);
    }
    for (uint32_t i = 0; i < bundle->count && bundle->is_dialler && is_one_home; i++) {
        struct weft_slot *slot = &bundle->slots[i];
        struct weft_lane *lane = slot->lane;
        if (slot->state == SLOT_UP && slot->there != slot->home) {
            weft_bundle_lost(bundle, slot, "another is up, and this one returns to its own path");
            lane->ops->close(lane);
        }
    }
}

/* ---- all of them ---- */

struct pair {
    uint32_t nic, there;
};

/* Which of the peer's addresses shares a network with our NIC, and is used least so far; there_count: none. */
static uint32_t partner_of(const struct weft_bundle *bundle, uint32_t nic, const uint32_t *uses)
{
    uint32_t best = bundle->there_count;
    for (uint32_t i = 0; i < bundle->there_count; i++) {
        if (is_same_net(bundle, nic, i) && (best == bundle->there_count || uses[i] < uses[best])) {
            best = i;
        }
    }
    return best;
}

/* Which of our NICs with which of the peer's: those that share a network, each with another one where several do;
 * if none does, in turn. */
static uint32_t pair_nics(const struct weft_bundle *bundle, struct pair *pairs)
{
    uint32_t nics = bundle->link->links->tcp_count;
    uint32_t uses[WEFT_LINK_NICS] = {0};
    uint32_t count = bundle->there_count;
    uint32_t found = 0;
    for (uint32_t nic = 0; nic < nics; nic++) {
        uint32_t there = partner_of(bundle, nic, uses);
        if (there < count) {
            uses[there]++;
            pairs[found++] = (struct pair){nic, there};
        }
    }
    if (found == 0) {
        for (uint32_t nic = 0; nic < nics && (nic == 0 || nic < count); nic++) {
            pairs[found++] = (struct pair){nic, nic};
        }
    }
    return found;
}

static void set_slot(struct weft_bundle *bundle, uint32_t index, const struct pair *pair)
{
    struct weft_slot *slot = &bundle->slots[index];
    slot->nic = pair->nic;
    slot->home = slot->there = pair->there;
    bundle->count = index + 1;
}

/* Lane 0 has the first pair. Bulk begins with another one, so that two lanes are never one NIC; with which, depends
 * on the peer, so that those who get only one of them each use all NICs. */
static uint32_t pair_of(const struct weft_bundle *bundle, uint32_t i, uint32_t count)
{
    return count == 1 || i % count == count - 1
               ? 0
               : 1 + (weft_link_turn(bundle->link) + i % count) % (count - 1);
}

static bool is_dark(const struct weft_bundle *bundle, uint32_t index)
{
    return bundle->link->links->down_ns[bundle->slots[index].nic] != 0;
}

/* The others rest. */
static uint32_t dialled_count(const struct weft_bundle *bundle)
{
    uint32_t share = bundle->link->links->share;
    return bundle->count < share + 1 ? bundle->count : share + 1;
}

/* Those whose NIC has a carrier, or the others. Fails if not one could be dialled; with `status` if there is none. */
static weft_status_t dial_those(struct weft_bundle *bundle, bool are_dark, uint64_t timeout_ms,
                                weft_status_t status)
{
    uint32_t count = dialled_count(bundle);
    bool is_any = false;
    for (uint32_t i = 0; i < count; i++) {
        if (is_dark(bundle, i) == are_dark) {
            status = weft_bundle_dial_slot(bundle, i, timeout_ms);
            is_any |= status == WEFT_OK;
        }
    }
    return is_any ? WEFT_OK : status;
}

/* What lies on NICs without carrier is tried when they are back; at once only if there is nothing else. */
static weft_status_t dial_all(struct weft_bundle *bundle, uint64_t timeout_ms)
{
    weft_status_t status = dial_those(bundle, false, timeout_ms, WEFT_ERR_NETWORK);
    if (status != WEFT_OK) {
        return dial_those(bundle, true, timeout_ms, status);
    }
    for (uint32_t i = 0; i < dialled_count(bundle); i++) {
        if (is_dark(bundle, i)) {
            weft_slot_retry_later(&bundle->slots[i]);
        }
    }
    return status;
}

weft_status_t weft_bundle_dial(struct weft_bundle *bundle, const struct weft_wire_dialling *call)
{
    struct pair pairs[WEFT_LINK_NICS] = {{0}};
    int64_t lanes = bundle->link->links->spec.port.params->number[WEFT_PARAM_LANES];
    uint32_t count, bulk;
    uint64_t timeout_ms =
        (uint64_t)bundle->link->links->spec.port.params->number[WEFT_PARAM_START_TIMEOUT];
    weft_status_t status;
    bundle->there_count = call->tcp_len / WEFT_WIRE_ADDR_LEN;
    if (bundle->there_count == 0) {
        return weft_fail(WEFT_ERR_PROTOCOL, "rank %u has named no address", bundle->link->peer);
    }
    memcpy(bundle->there, call->tcp, call->tcp_len);
    count = pair_nics(bundle, pairs);
    bulk = count * (uint32_t)(lanes > 0 ? lanes : 1);
    bulk = bulk < WEFT_LINK_SLOTS ? bulk : WEFT_LINK_SLOTS - 1;
    set_slot(bundle, 0, &pairs[0]);
    for (uint32_t i = 0; i < bulk && bulk > 1; i++) {
        set_slot(bundle, i + 1, &pairs[pair_of(bundle, i, count)]);
    }
    for (uint32_t i = bundle->link->links->share + 1; i < bundle->count; i++) {
        bundle->slots[i].state = SLOT_RESTING;
    }
    status = dial_all(bundle, timeout_ms);
    if (status == WEFT_OK) {
        weft_bundle_watch(bundle);
    }
    return status;
}
