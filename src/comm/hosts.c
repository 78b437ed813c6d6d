/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks share a host. Comparing each with the first of every host would take long in large jobs: so
 * hosts are found by a hash, and compared when that says so. */
#include "comm/hosts.h"

#include <stdlib.h>

struct table {
    uint32_t *slots; /* the first rank of a host + 1; 0: free */
    uint32_t mask;
};

static uint32_t room_for(uint32_t ranks)
{
    uint32_t room = 16;
    while (room < 2 * (uint64_t)ranks && room < UINT32_C(1) << 31) {
        room *= 2;
    }
    return room;
}

/* The first rank of this one's host. */
static uint32_t find_first(const struct table *table, const struct weft_comm_places *places,
                           uint32_t rank)
{
    uint32_t at = places->hash(places->owner, rank) & table->mask;
    while (table->slots[at] != 0 &&
           !places->is_same_host(places->owner, table->slots[at] - 1, rank)) {
        at = (at + 1) & table->mask;
    }
    if (table->slots[at] == 0) {
        table->slots[at] = rank + 1;
    }
    return table->slots[at] - 1;
}

weft_status_t weft_comm_number_hosts(const struct weft_comm_places *places, uint32_t *first,
                                     uint32_t *index, bool *is_even_p)
{
    uint32_t ranks = places->ranks, room = room_for(ranks);
    struct table table = {.slots = calloc(room, sizeof(*table.slots)), .mask = room - 1};
    uint32_t *sizes = calloc(ranks, sizeof(*sizes));
    bool is_even = true;
    if (table.slots == NULL || sizes == NULL) {
        free(table.slots);
        free(sizes);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for collectives of %u ranks", ranks);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        first[rank] = find_first(&table, places, rank);
        index[rank] = sizes[first[rank]]++;
    }
    for (uint32_t rank = 0; is_even && rank < ranks; rank++) {
        is_even = first[rank] != rank || sizes[rank] == sizes[0];
    }
    free(table.slots);
    free(sizes);
    *is_even_p = is_even;
    return WEFT_OK;
}
