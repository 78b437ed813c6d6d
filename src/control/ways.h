/* SPDX-License-Identifier: Apache-2.0 */
/* Private to control: what ways.c, ways_back.c and ways_hosts.c share. */
#ifndef WEFT_CONTROL_WAYS_H
#define WEFT_CONTROL_WAYS_H

#include "control/internal.h"

#define WEFT_WAYS_CALL_LEN 8 /* round, since */

/* One of ours to one of the parent's doors. */
struct weft_way {
    const struct weft_control_nic *nic;   /* lent: one of ours; NULL: as the routes say */
    const struct sockaddr_storage *there; /* lent: one of the parent's doors */
    struct weft_net_conn *attempt;        /* owned */
    bool is_refused;                      /* in this round */
};

/* A host above ours. */
struct weft_ways_host {
    uint32_t rank; /* who told where it listens */
    uint32_t count;
    struct weft_wire_addr doors[WEFT_CONTROL_NICS];
};

struct weft_control_ways {
    struct weft_control *control;
    struct weft_control_nic nics[WEFT_CONTROL_NICS]; /* ours */
    uint32_t nic_count;
    bool has_nics; /* they were asked for */

    /* where others may come: of each of our NICs; family 0: there is none (ways_back.c) */
    struct weft_net_acceptor *doors[WEFT_CONTROL_NICS]; /* owned */
    struct weft_wire_addr door_addrs[WEFT_CONTROL_NICS];

    /* where others listen (ways_hosts.c) */
    struct weft_ways_host *hosts; /* [host_count]; owned */
    uint32_t host_count;

    /* to the parent, by another way (ways.c) */
    bool has_asked;
    struct sockaddr_storage there[WEFT_CONTROL_NICS];
    uint32_t there_count;
    struct weft_way way[WEFT_CONTROL_WAYS];
    uint32_t way_count;
    struct weft_engine_timer timer;
    bool is_seeking;
    uint32_t first, begun; /* of this round: the way to begin with, how many were begun */
    uint64_t since_ns;
};

/* ---- ways.c ---- */
/* NULL: no memory. */
struct weft_control_ways *weft_ways_of(struct weft_control *control);
/* The same, with our NICs; NULL: nobody knows them (yet). */
struct weft_control_ways *weft_ways_with_nics(struct weft_control *control);

/* ---- ways_back.c ---- */
/* A child asks. */
void weft_ways_asked(struct weft_control *control, struct weft_net_conn *from, uint32_t nic_count);
/* Those that asked when nobody knew our NICs. */
void weft_ways_answer_all(struct weft_control *control);
void weft_ways_forget_child(struct weft_control *control, uint32_t rank);
void weft_ways_doors_close(struct weft_control_ways *ways);

/* ---- ways_hosts.c ---- */
/* This rank's host, above ours, is found at `count` doors, as on the wire. Those below us are told. */
void weft_ways_learn(struct weft_control *control, uint32_t rank, const uint8_t *doors,
                     uint32_t count);

#endif
