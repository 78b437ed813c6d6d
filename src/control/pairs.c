/* SPDX-License-Identifier: Apache-2.0 */
/* By which of our NICs to which of another host's doors, in the order in which they are tried. */
#include "control/internal.h"

struct near {
    uint8_t nic[WEFT_CONTROL_NICS];
    uint32_t count;
    uint32_t turn; /* doors before it in the same network */
};

static bool is_near(const struct weft_control_nic *nic, const struct sockaddr_storage *door)
{
    return nic->name[0] != '\0' && weft_net_addr_is_same_net(&nic->addr, door, nic->prefix_len);
}

static struct near find_near(const struct weft_control_nic *nics, uint32_t nic_count,
                             const struct sockaddr_storage *doors, uint32_t door)
{
    struct near near = {.count = 0};
    for (uint32_t i = 0; i < nic_count; i++) {
        if (is_near(&nics[i], &doors[door])) {
            near.nic[near.count++] = (uint8_t)i;
        }
    }
    for (uint32_t i = 0; i < door && near.count > 0; i++) {
        near.turn += is_near(&nics[near.nic[0]], &doors[i]);
    }
    return near;
}

/* First each door from another NIC of its network, then, as often as there are such NICs, from the next one: so the
 * second pair has neither the NIC nor the door of the first. A door in no network of ours is tried once. */
uint32_t weft_control_pair(const struct weft_control_nic *nics, uint32_t nic_count,
                           const struct sockaddr_storage *doors, uint32_t door_count,
                           struct weft_control_pair pairs[WEFT_CONTROL_WAYS])
{
    uint32_t count = 0;
    for (uint32_t pass = 0; pass == 0 || pass < nic_count; pass++) {
        for (uint32_t i = 0; i < door_count && count < WEFT_CONTROL_WAYS; i++) {
            struct near near = find_near(nics, nic_count, doors, i);
            if (pass < near.count) {
                pairs[count++] =
                    (struct weft_control_pair){near.nic[(near.turn + pass) % near.count], i};
            } else if (pass == 0) {
                uint32_t any = nic_count > 1 ? i % nic_count : WEFT_CONTROL_NICS;
                pairs[count++] = (struct weft_control_pair){any, i};
            }
        }
    }
    return count;
}
