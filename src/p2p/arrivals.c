/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for messages that nobody waits for yet. It comes in four sizes and is kept for the next one, so that ranks
 * that send a little ahead of their receivers, as they always do, allocate only in the beginning. What is kept
 * is bounded: less than 5 MiB per rank. Under the engine's lock.
 */
#include "p2p/internal.h"

#include <stdlib.h>

static const struct {
    size_t room; /* bytes of the message */
    unsigned kept_max;
} sizes[WEFT_P2P_ARRIVAL_SIZES] = {{256, 64}, {4 << 10, 32}, {32 << 10, 16}, {128 << 10, 32}};

struct weft_p2p_arrival *weft_p2p_arrival_take(struct weft_p2p *p2p, size_t len)
{
    struct weft_p2p_arrival *arrival;
    unsigned size = 0;
    while (size < WEFT_P2P_ARRIVAL_SIZES && sizes[size].room < len) {
        size++;
    }
    if (size < WEFT_P2P_ARRIVAL_SIZES && !weft_list_is_empty(&p2p->spare[size])) {
        p2p->spare_count[size]--;
        return WEFT_CONTAINER_OF(weft_list_take(&p2p->spare[size]), struct weft_p2p_arrival,
                                 match.node);
    }
    arrival = malloc(sizeof(*arrival) + (size < WEFT_P2P_ARRIVAL_SIZES ? sizes[size].room : len));
    if (arrival != NULL) {
        arrival->size = (uint8_t)size;
    }
    return arrival;
}

void weft_p2p_arrival_give(struct weft_p2p_arrival *arrival)
{
    struct weft_p2p *p2p = arrival->comm->p2p;
    unsigned size = arrival->size;
    if (size == WEFT_P2P_ARRIVAL_SIZES || p2p->spare_count[size] == sizes[size].kept_max) {
        free(arrival);
        return;
    }
    weft_list_open(&arrival->match.node);
    weft_list_append(&p2p->spare[size], &arrival->match.node);
    p2p->spare_count[size]++;
}

void weft_p2p_arrivals_open(struct weft_p2p *p2p)
{
    for (unsigned size = 0; size < WEFT_P2P_ARRIVAL_SIZES; size++) {
        weft_list_open(&p2p->spare[size]);
    }
}

void weft_p2p_arrivals_close(struct weft_p2p *p2p)
{
    struct weft_list *node;
    for (unsigned size = 0; size < WEFT_P2P_ARRIVAL_SIZES; size++) {
        while ((node = weft_list_take(&p2p->spare[size])) != NULL) {
            free(WEFT_CONTAINER_OF(node, struct weft_p2p_arrival, match.node));
        }
    }
}
