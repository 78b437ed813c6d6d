/* SPDX-License-Identifier: Apache-2.0 */
/* The facts that plans are judged by. */
#include "plan/model.h"

#define LAST_LEVEL_CACHE (32.0 * 1024 * 1024)
#define SLOT_ROOM (4.0 * 1024 * 1024)
#define NIC_RATE 1.25e9 /* 10 Gbit/s: of a network that nobody has described */
#define EAGER_MAX (128.0 * 1024)

void weft_plan_facts_default(uint32_t ranks, uint32_t cores, struct weft_plan_facts *facts_p)
{
    *facts_p = (struct weft_plan_facts){
        .ranks = ranks,
        .hosts = 1,
        .host_ranks = ranks,
        .cores = cores > 0 ? cores : 1,
        .inside = WEFT_INSIDE_SHM,
        .composed = 1u << WEFT_ALLREDUCE,
        .nics = 1,
        .nic_rate = NIC_RATE,
        .cache = LAST_LEVEL_CACHE,
        .slot_room = SLOT_ROOM,
        .eager_max = EAGER_MAX,
    };
    weft_plan_calibration_default(&facts_p->calibration);
}

uint32_t weft_plan_facts_host(const struct weft_plan_facts *facts, uint32_t rank)
{
    return facts->host_of != NULL ? facts->host_of[rank] : rank / facts->host_ranks;
}

bool weft_plan_facts_oversubscribed(const struct weft_plan_facts *facts)
{
    return facts->host_ranks > facts->cores;
}

bool weft_plan_facts_past_cache(const struct weft_plan_facts *facts, double bytes)
{
    return 2 * bytes * facts->host_ranks > facts->cache;
}
