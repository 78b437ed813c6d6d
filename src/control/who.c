/* SPDX-License-Identifier: Apache-2.0 */
/* What the table says of ranks: their hosts, their names, the root's address. */
#include "control/internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* One group, or two ranks that joined directly from the same address of the same host. */
bool weft_control_is_same_host(const struct weft_control *control, uint32_t a, uint32_t b)
{
    const struct weft_wire_group *left = &control->table.group[control->table.group_of[a]];
    const struct weft_wire_group *right = &control->table.group[control->table.group_of[b]];
    return left == right ||
           (strcmp(left->host, right->host) == 0 && left->addr.family == right->addr.family &&
            memcmp(left->addr.bytes, right->addr.bytes, sizeof(left->addr.bytes)) == 0);
}

static uint32_t mix_bytes(uint32_t hash, const void *bytes, size_t len)
{
    for (const uint8_t *at = bytes; at < (const uint8_t *)bytes + len; at++) {
        hash = (hash ^ *at) * 0x01000193u;
    }
    return hash ^ hash >> 15;
}

uint32_t weft_control_host_hash(const struct weft_control *control, uint32_t rank)
{
    const struct weft_wire_group *group = &control->table.group[control->table.group_of[rank]];
    uint32_t hash = mix_bytes(0x811c9dc5u, group->host, strlen(group->host));
    hash = mix_bytes(hash, &group->addr.family, sizeof(group->addr.family));
    return mix_bytes(hash, group->addr.bytes, sizeof(group->addr.bytes));
}

bool weft_control_tree_root_addr(const struct weft_control *control,
                                 struct sockaddr_storage *addr_p)
{
    const struct weft_wire_addr *addr = &control->table.group[0].addr;
    return addr->family != 0 && weft_net_addr_from_wire(addr, addr_p) == WEFT_OK;
}

const char *weft_control_print_rank(uint32_t rank, uint32_t job_rank,
                                    char text[WEFT_CONTROL_RANK_LEN])
{
    int len = snprintf(text, WEFT_CONTROL_RANK_LEN, "rank %u", rank);
    if (job_rank != rank) {
        snprintf(text + len, WEFT_CONTROL_RANK_LEN - (size_t)len, " (%u of the job)", job_rank);
    }
    return text;
}

/* Or where everybody is. */
static bool is_nowhere(const struct weft_wire_addr *addr)
{
    static const uint8_t loopback[16] = {[15] = 1};
    return addr->family == 0 || (addr->family == 4 && addr->bytes[0] == 127) ||
           (addr->family == 6 && memcmp(addr->bytes, loopback, sizeof(loopback)) == 0);
}

void weft_control_name_rank(const struct weft_control *control, uint32_t rank, char *text,
                            size_t room)
{
    const struct weft_wire_group *group = &control->table.group[control->table.group_of[rank]];
    uint32_t pid = control->table.pid[rank] & ~WEFT_WIRE_PID_FOREIGN;
    char addr[INET6_ADDRSTRLEN];
    if (control->table.groups < 2 || is_nowhere(&group->addr) ||
        inet_ntop(group->addr.family == 4 ? AF_INET : AF_INET6, group->addr.bytes, addr,
                  sizeof(addr)) == NULL ||
        (size_t)snprintf(text, room, "rank %u (pid %u on %s, %s)", rank, pid, group->host, addr) >=
            room) {
        snprintf(text, room, "rank %u (pid %u on %s)", rank, pid, group->host);
    }
}

uint32_t weft_control_coordinator(const struct weft_control *control)
{
    uint32_t rank = control->self.rank, up = rank;
    while (up != WEFT_WIRE_NO_RANK) {
        rank = up;
        up = weft_control_tree_up(&control->tree, control->is_out, rank);
    }
    return rank;
}
