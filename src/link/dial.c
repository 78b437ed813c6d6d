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

bool weft_bundle_dial_slot(struct weft_bundle *bundle, uint32_t index, uint64_t timeout_ms)
{
    struct weft_slot *slot = &bundle->slots[index];
    struct weft_link *link = bundle->link;
    const struct weft_lane_call call = {.peer = link->peer,
                                        .slot = (uint16_t)index,
                                        .generation = slot->generation + 1,
                                        .address = &slot->there,
                                        .timeout_ms = timeout_ms};
    if (link->links->tcp_ops->open(link->links->tcp[slot->nic], &call, &slot->lane) != WEFT_OK) {
        slot->lane = NULL;
        weft_slot_retry_later(slot);
        return false;
    }
    slot->generation++;
    slot->lane->owner = link;
    slot->state = SLOT_DIALLING;
    return true;
}

static bool is_same_net(const struct weft_link_nic *nic, const struct weft_wire_addr *there)
{
    bool is_v6 = nic->addr.ss_family == AF_INET6;
    const uint8_t *here =
        is_v6 ? (const uint8_t *)&((const struct sockaddr_in6 *)&nic->addr)->sin6_addr
              : (const uint8_t *)&((const struct sockaddr_in *)&nic->addr)->sin_addr;
    return there->family == (is_v6 ? 6 : 4) &&
           weft_wire_addr_is_same_net(here, there->bytes, nic->prefix_len);
}

struct pair {
    uint32_t nic, there;
};

/* Which of our NICs with which of the peer's: those that share a network; if none does, in turn. */
static uint32_t pair_nics(const struct weft_bundle *bundle, const uint8_t *addresses,
                          uint32_t count, struct pair *pairs)
{
    const struct weft_links *links = bundle->link->links;
    uint32_t found = 0;
    for (uint32_t nic = 0; nic < links->tcp_count; nic++) {
        for (uint32_t i = 0; i < count; i++) {
            struct weft_wire_addr there;
            if (weft_wire_addr_decode(addresses + (size_t)i * WEFT_WIRE_ADDR_LEN, &there) ==
                    WEFT_OK &&
                is_same_net(&links->nics[nic], &there)) {
                pairs[found++] = (struct pair){nic, i};
                break;
            }
        }
    }
    if (found == 0) {
        for (uint32_t nic = 0; nic < links->tcp_count && (nic == 0 || nic < count); nic++) {
            pairs[found++] = (struct pair){nic, nic % count};
        }
    }
    return found;
}

static void set_slot(struct weft_bundle *bundle, uint32_t index, const struct pair *pair,
                     const uint8_t *addresses)
{
    struct weft_slot *slot = &bundle->slots[index];
    slot->nic = pair->nic;
    slot->there.len = WEFT_WIRE_ADDR_LEN;
    memcpy(slot->there.bytes, addresses + (size_t)pair->there * WEFT_WIRE_ADDR_LEN,
           WEFT_WIRE_ADDR_LEN);
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

bool weft_bundle_dial(struct weft_bundle *bundle, const struct weft_wire_dialling *call)
{
    struct pair pairs[WEFT_LINK_NICS] = {{0}};
    uint32_t there = call->tcp_len / WEFT_WIRE_ADDR_LEN;
    uint32_t count = there > 0 ? pair_nics(bundle, call->tcp, there, pairs) : 0;
    int64_t lanes = bundle->link->links->spec.port.params->number[WEFT_PARAM_LANES];
    uint32_t bulk = count * (uint32_t)(lanes > 0 ? lanes : 1);
    uint64_t timeout_ms =
        (uint64_t)bundle->link->links->spec.port.params->number[WEFT_PARAM_START_TIMEOUT];
    bool is_any = false;
    if (count == 0) {
        weft_fail_record(WEFT_ERR_PROTOCOL, "rank %u has named no address", bundle->link->peer);
        return false;
    }
    bulk = bulk < WEFT_LINK_SLOTS ? bulk : WEFT_LINK_SLOTS - 1;
    set_slot(bundle, 0, &pairs[0], call->tcp);
    for (uint32_t i = 0; i < bulk && bulk > 1; i++) {
        set_slot(bundle, i + 1, &pairs[pair_of(bundle, i, count)], call->tcp);
    }
    for (uint32_t i = 0; i < bundle->count; i++) {
        if (i > bundle->link->links->share) {
            bundle->slots[i].state = SLOT_RESTING;
        } else {
            is_any |= weft_bundle_dial_slot(bundle, i, timeout_ms);
        }
    }
    if (is_any) {
        weft_bundle_watch(bundle);
    }
    return is_any;
}
