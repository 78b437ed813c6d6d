/* SPDX-License-Identifier: Apache-2.0 */
/* Private to comm: which ranks share a host. */
#ifndef WEFT_COMM_HOSTS_H
#define WEFT_COMM_HOSTS_H

#include "base/base.h"

struct weft_comm_places {
    uint32_t ranks;
    const void *owner;                                  /* for both below */
    uint32_t (*hash)(const void *owner, uint32_t rank); /* of its host: equal for ranks of one */
    bool (*is_same_host)(const void *owner, uint32_t a, uint32_t b);
};

/* first[rank]: the first one of its host; index[rank]: how many of its host come before it. *is_even_p: all
 * hosts have as many. ERR_MEMORY. */
weft_status_t weft_comm_number_hosts(const struct weft_comm_places *places, uint32_t *first,
                                     uint32_t *index, bool *is_even_p);

#endif
