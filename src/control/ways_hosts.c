/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everybody heard of one address per host in the start, and that NIC may be dead when somebody there must be found. A
 * parent's doors (ways.c) are told to all below, rank by rank, so that whoever leads a host after its leader knows them, too:
 *
 *   parent                leader of another host          the ranks of its host, and the leaders below it
 *     | -- WAYS: doors ------> | -- DOORS: those of rank 0 -----> |
 *
 * Who told of its doors is found there; whoever leads that host after it, at the same addresses by the port that everybody heard
 * of (mostly the doors have that one, too).
 */
#include "control/ways.h"

#include <stdlib.h>
#include <string.h>

/* Of ranks that joined directly each leads a group of its own, and has a port of its own, also on one host. */
static struct weft_ways_host *find(const struct weft_control *control, uint32_t rank)
{
    const struct weft_control_ways *ways = control->ways;
    const uint32_t *group_of = control->table.group_of;
    for (uint32_t i = 0; ways != NULL && rank < control->self.ranks && i < ways->host_count; i++) {
        if (group_of[ways->hosts[i].rank] == group_of[rank]) {
            return &ways->hosts[i];
        }
    }
    return NULL;
}

/* NULL: no memory. */
static struct weft_ways_host *add(struct weft_control *control)
{
    struct weft_control_ways *ways = weft_ways_of(control);
    struct weft_ways_host *grown =
        ways != NULL ? realloc(ways->hosts, (ways->host_count + 1) * sizeof(*grown)) : NULL;
    if (grown == NULL) {
        return NULL;
    }
    ways->hosts = grown;
    memset(&grown[ways->host_count], 0, sizeof(*grown));
    return &grown[ways->host_count++];
}

static void say(const struct weft_control *control, struct weft_net_conn *conn,
                const struct weft_ways_host *host)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_DOORS, .src = host->rank, .dst = conn->peer_rank};
    uint8_t bytes[WEFT_CONTROL_NICS * WEFT_WIRE_ADDR_LEN];
    for (uint32_t i = 0; i < host->count; i++) {
        weft_wire_addr_encode(&host->doors[i], bytes + (size_t)i * WEFT_WIRE_ADDR_LEN);
    }
    if (!weft_control_is_same_host(control, host->rank, conn->peer_rank)) {
        weft_control_say(conn, &frame, bytes, (size_t)host->count * WEFT_WIRE_ADDR_LEN);
    }
}

void weft_ways_learn(struct weft_control *control, uint32_t rank, const uint8_t *doors,
                     uint32_t count)
{
    struct weft_ways_host told = {.rank = rank};
    struct weft_ways_host *host = find(control, rank);
    for (uint32_t i = 0; i < count && told.count < WEFT_CONTROL_NICS; i++) {
        struct weft_wire_addr *door = &told.doors[told.count];
        struct sockaddr_storage addr;
        told.count +=
            weft_wire_addr_decode(doors + (size_t)i * WEFT_WIRE_ADDR_LEN, door) == WEFT_OK &&
            weft_net_addr_from_wire(door, &addr) == WEFT_OK;
    }
    if (told.count == 0 || (host != NULL && memcmp(host, &told, sizeof(told)) == 0)) {
        return;
    }
    if (host == NULL && (host = add(control)) == NULL) {
        return; /* that host is looked for as if there were no doors */
    }
    *host = told;
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn != NULL) {
            say(control, control->children[i].conn, host);
        }
    }
}

void weft_control_ways_doors_arrived(struct weft_control *control, const struct weft_net_conn *from,
                                     const struct weft_wire_frame *frame, const uint8_t *payload)
{
    if (from == control->parent && frame->src < control->self.ranks &&
        !weft_control_is_same_host(control, frame->src, control->self.rank)) {
        weft_ways_learn(control, frame->src, payload, frame->len / WEFT_WIRE_ADDR_LEN);
    }
}

void weft_control_ways_tell(const struct weft_control *control, struct weft_net_conn *conn)
{
    const struct weft_control_ways *ways = control->ways;
    for (uint32_t i = 0; ways != NULL && i < ways->host_count; i++) {
        say(control, conn, &ways->hosts[i]);
    }
}

/* ---- who looks for somebody there ---- */

/* From which of our NICs to which door; returns how many. Who told us of its doors has them where it said. */
static uint32_t pair(struct weft_control *control, const struct weft_ways_host *host, uint32_t rank,
                     struct sockaddr_storage there[WEFT_CONTROL_NICS],
                     struct weft_control_pair pairs[WEFT_CONTROL_WAYS])
{
    const struct weft_control_ways *ways = weft_ways_with_nics(control);
    uint16_t port = control->table.group[control->table.group_of[rank]].addr.port;
    for (uint32_t i = 0; i < host->count; i++) {
        (void)weft_net_addr_from_wire(&host->doors[i], &there[i]); /* it could when it was learnt */
        if (rank != host->rank) {
            weft_net_addr_set_port(&there[i], port);
        }
    }
    return ways != NULL ? weft_control_pair(ways->nics, ways->nic_count, there, host->count, pairs)
                        : weft_control_pair(NULL, 0, there, host->count, pairs);
}

uint32_t weft_control_ways_count(struct weft_control *control, uint32_t rank)
{
    const struct weft_ways_host *host = find(control, rank);
    struct sockaddr_storage there[WEFT_CONTROL_NICS];
    struct weft_control_pair pairs[WEFT_CONTROL_WAYS];
    return host != NULL ? pair(control, host, rank, there, pairs) : 0;
}

uint32_t weft_control_ways_used(struct weft_control *control, const struct weft_net_conn *conn)
{
    const struct weft_ways_host *host = find(control, conn->peer_rank);
    struct sockaddr_storage there[WEFT_CONTROL_NICS];
    struct weft_control_pair pairs[WEFT_CONTROL_WAYS];
    uint32_t count = host != NULL ? pair(control, host, conn->peer_rank, there, pairs) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct weft_wire_addr *door = &host->doors[pairs[i].door];
        if (door->family == conn->peer_addr.family &&
            memcmp(door->bytes, conn->peer_addr.bytes, sizeof(door->bytes)) == 0) {
            return i + 1;
        }
    }
    return 0;
}

weft_status_t weft_control_ways_connect(struct weft_control *control, uint32_t rank, uint32_t way,
                                        struct weft_net_dial *dial_p)
{
    struct sockaddr_storage there[WEFT_CONTROL_NICS];
    struct weft_control_pair pairs[WEFT_CONTROL_WAYS];
    const struct weft_control_nic *nic;
    const struct weft_control_pair *by = &pairs[way - 1];
    (void)pair(control, find(control, rank), rank, there, pairs);
    nic = by->nic < WEFT_CONTROL_NICS ? &control->ways->nics[by->nic] : NULL;
    return nic != NULL ? weft_net_connect_from(&nic->addr, nic->name, &there[by->door], dial_p)
                       : weft_net_connect(&there[by->door], dial_p);
}
