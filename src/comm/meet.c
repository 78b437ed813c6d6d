/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before the first collective: who is on which host, who shares memory with whom, what everybody can do. The
 * lowest rank of each host allocates a board, the others map it over their link to it.
 */
#include "comm/collectives.h"
#include "comm/hosts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAP_MS 5000

/* ---- the board ---- */

struct offer {       /* of every rank to all others */
    uint64_t region; /* of its board; 0: it has none */
    uint64_t ring_len;
    uint64_t cache_len;
    uint64_t process;
    uint64_t probe_address; /* of these bytes in its memory, for those who try to read them there */
    uint8_t probe[WEFT_COLLECTIVE_PROBE];
    uint32_t cores;
    int32_t pid;
    uint32_t nics; /* 0: nobody is on another host, or not known */
    uint32_t nic_mbps;
};

weft_status_t weft_comm_find_local(struct weft_collectives *it)
{
    struct weft_comm *comm = it->comm;
    it->local_members = malloc(comm->ranks * sizeof(*it->local_members));
    if (it->local_members == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for collectives of %u ranks", comm->ranks);
    }
    it->local.ranks = 0;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        if (weft_control_is_same_host(comm->job->control, weft_comm_job_rank(comm, comm->rank),
                                      weft_comm_job_rank(comm, rank))) {
            it->local.rank = rank == comm->rank ? it->local.ranks : it->local.rank;
            it->local_members[it->local.ranks++] = rank;
        }
    }
    it->local.members = it->local_members;
    it->whole = (struct weft_exec_group){.ranks = comm->ranks, .rank = comm->rank};
    return WEFT_OK;
}

static uint32_t hash_host(const void *owner, uint32_t rank)
{
    const struct weft_comm *comm = owner;
    return weft_control_host_hash(comm->job->control, weft_comm_job_rank(comm, rank));
}

static bool is_same_host(const void *owner, uint32_t a, uint32_t b)
{
    const struct weft_comm *comm = owner;
    return weft_control_is_same_host(comm->job->control, weft_comm_job_rank(comm, a),
                                     weft_comm_job_rank(comm, b));
}

static weft_status_t number_hosts(const struct weft_comm *comm, uint32_t *first, uint32_t *index,
                                  bool *is_even_p)
{
    const struct weft_comm_places places = {
        .ranks = comm->ranks, .owner = comm, .hash = hash_host, .is_same_host = is_same_host};
    return weft_comm_number_hosts(&places, first, index, is_even_p);
}

/* One rank of each host, when all hosts have as many. */
weft_status_t weft_comm_find_cross(struct weft_collectives *it)
{
    struct weft_comm *comm = it->comm;
    uint32_t *first, *index;
    weft_status_t status;
    bool is_even;
    if (it->local.ranks == comm->ranks || it->local.ranks == 1) {
        return WEFT_OK;
    }
    first = calloc(comm->ranks, sizeof(*first));
    index = calloc(comm->ranks, sizeof(*index));
    it->cross_members = malloc(comm->ranks * sizeof(*it->cross_members));
    if (first == NULL || index == NULL || it->cross_members == NULL) {
        free(first);
        free(index);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for collectives of %u ranks", comm->ranks);
    }
    status = number_hosts(comm, first, index, &is_even);
    if (status == WEFT_OK && is_even) {
        for (uint32_t rank = 0; rank < comm->ranks; rank++) {
            if (index[rank] == it->local.rank) {
                it->cross.rank = rank == comm->rank ? it->cross.ranks : it->cross.rank;
                it->cross_members[it->cross.ranks++] = rank;
            }
        }
        it->cross.members = it->cross_members;
    }
    free(first);
    free(index);
    return status;
}

static void make_board(struct weft_collectives *it, struct offer *offer)
{
    enum { TCP = 2 }; /* of WEFT_PATH */
    size_t ring_len = weft_board_ring_len(it->local.ranks);
    struct weft_mem_place place;
    if (it->local.rank != 0 || it->local.ranks < 2 ||
        it->comm->job->params.number[WEFT_PARAM_PATH] == TCP) {
        return;
    }
    if (weft_mem_alloc(weft_board_len(it->local.ranks, ring_len), &it->board_memory) != WEFT_OK) {
        weft_log(comm, INFO, "no shared memory for collectives (%s): messages carry them",
                 weft_error_text());
        it->board_memory = NULL;
        return;
    }
    weft_mem_find(it->board_memory, 1, &place);
    offer->region = place.id;
    offer->ring_len = ring_len;
}

/* All of it together has the time of one call. At least one, for the words of who gives up. */
static uint64_t ms_until(uint64_t deadline_ns)
{
    uint64_t now_ns = weft_clock_ns();
    return now_ns < deadline_ns ? (deadline_ns - now_ns) / WEFT_NS_PER_MS + 1 : 1;
}

/* Maps the board of the first rank of this host. That rank may stand still: half of the time is left to do without. */
static weft_status_t map_board(struct weft_collectives *it, const struct offer *offer,
                               uint64_t call_ns, void **memory_p)
{
    struct weft_engine *engine = it->comm->job->engine;
    const struct weft_p2p_place place = {.region = offer->region,
                                         .len = weft_board_len(it->local.ranks, offer->ring_len)};
    uint64_t half_ms = ms_until(call_ns) / 2;
    uint64_t deadline_ns = weft_clock_after_ms(half_ms < MAP_MS ? half_ms : MAP_MS);
    weft_status_t status;
    do {
        _Atomic uint32_t never = 0;
        weft_engine_lock(engine);
        status = weft_p2p_map(it->messages, it->local_members[0], &place, memory_p, &it->mapping);
        weft_engine_unlock(engine);
        if (status == WEFT_ERR_BUSY) {
            weft_engine_wait(engine, &never, weft_clock_ns() + 20000);
        }
    } while (status == WEFT_ERR_BUSY && weft_clock_ns() < deadline_ns &&
             atomic_load(weft_p2p_comm_ended(it->messages)) == WEFT_OK);
    return status;
}

static bool take_board(struct weft_collectives *it, const struct offer *offer, uint64_t call_ns)
{
    void *memory = it->board_memory;
    if (offer->region == 0) {
        return false;
    }
    if (memory == NULL && map_board(it, offer, call_ns, &memory) != WEFT_OK) {
        weft_log(comm, INFO, "cannot share memory with rank %u (%s): messages carry collectives",
                 it->local_members[0], weft_error_text());
        return false;
    }
    return weft_board_open(memory, offer->ring_len, it->local.ranks, it->local.rank, &it->board) ==
           WEFT_OK;
}

/* Can we read the memory of everybody here, by CMA? */
static bool can_pull(const struct weft_collectives *it, const struct offer *offers)
{
    enum { OFF = 2 }; /* of WEFT_CMA */
    const struct offer *mine = &offers[it->comm->rank];
    bool can = it->comm->job->params.number[WEFT_PARAM_CMA] != OFF;
    for (uint32_t i = 0; i < it->local.ranks && can; i++) {
        const struct offer *offer = &offers[it->local_members[i]];
        can = (offer->process == mine->process && offer->pid == mine->pid) ||
              weft_mem_can_pull(offer->pid, offer->probe_address, offer->probe);
    }
    return can;
}

/* The poorest of them counts for all. */
static weft_status_t gather_facts(struct weft_collectives *it, const struct offer *offers)
{
    struct weft_comm *comm = it->comm;
    struct weft_plan_facts *facts = &it->facts;
    uint32_t *first = calloc(comm->ranks, sizeof(*first));
    uint32_t *index = calloc(comm->ranks, sizeof(*index));
    bool is_even = false;
    weft_status_t status;
    it->host_of = calloc(comm->ranks, sizeof(*it->host_of));
    status = first != NULL && index != NULL && it->host_of != NULL
                 ? number_hosts(comm, first, index, &is_even)
                 : weft_fail(WEFT_ERR_MEMORY, "no memory for collectives of %u ranks", comm->ranks);
    if (status != WEFT_OK) {
        free(first);
        free(index);
        return status;
    }
    weft_plan_facts_default(comm->ranks, offers[0].cores, facts);
    facts->hosts = facts->host_ranks = 0;
    facts->cache = (double)offers[0].cache_len;
    facts->inside = it->have_all_boards ? WEFT_INSIDE_SHM : WEFT_INSIDE_TCP;
    uint32_t nics = offers[0].nics, nic_mbps = offers[0].nic_mbps;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        const struct offer *offer = &offers[rank];
        it->host_of[rank] = first[rank] == rank ? facts->hosts++ : it->host_of[first[rank]];
        facts->host_ranks =
            index[rank] + 1 > facts->host_ranks ? index[rank] + 1 : facts->host_ranks;
        facts->cores = offer->cores < facts->cores ? offer->cores : facts->cores;
        nics = offer->nics < nics ? offer->nics : nics;
        nic_mbps = offer->nic_mbps < nic_mbps ? offer->nic_mbps : nic_mbps;
        facts->cache =
            (double)offer->cache_len < facts->cache ? (double)offer->cache_len : facts->cache;
        if (offer->region != 0 && (double)offer->ring_len < facts->slot_room) {
            facts->slot_room = (double)offer->ring_len;
        }
    }
    facts->host_of = it->host_of;
    facts->nics = nics > 0 ? nics : facts->nics;
    facts->nic_rate = nic_mbps > 0 ? nic_mbps * 1e6 / 8 : facts->nic_rate;
    facts->eager_max = (double)comm->job->params.number[WEFT_PARAM_EAGER];
    if (it->has_board && weft_plan_facts_oversubscribed(facts) &&
        it->board.ring_len > WEFT_BOARD_CROWDED_LEN) {
        it->board.short_len = WEFT_BOARD_CROWDED_LEN;
    }
    facts->composed = is_even && it->have_all_boards ? 1u << WEFT_ALLREDUCE : 0;
    free(first);
    free(index);
    return WEFT_OK;
}

/* One calibration for all: rank 0's. */
static weft_status_t take_costs(struct weft_collectives *it, uint64_t call_ns)
{
    struct weft_comm *comm = it->comm;
    char costs[WEFT_PARAM_TEXT_LEN];
    const char *why;
    memcpy(costs, comm->job->params.text[WEFT_PARAM_COSTS], sizeof(costs));
    weft_status_t status =
        weft_control_broadcast_wait(comm->channel, costs, sizeof(costs), 0, ms_until(call_ns));
    costs[sizeof(costs) - 1] = '\0';
    if (status == WEFT_OK && !weft_plan_calibration_parse(costs, &it->facts.calibration, &why) &&
        comm->rank == 0) {
        weft_log(comm, WARN, "WEFT_COSTS is not used: %s", why);
    }
    return status;
}

/* Who has a board, and can pull: everybody of a host, or nobody. */
weft_status_t weft_comm_meet(struct weft_collectives *it, weft_coll_t coll, uint64_t call_ns)
{
    enum { BOARD = 1, PULL = 2 };
    struct weft_comm *comm = it->comm;
    struct offer mine = {.cache_len = weft_mem_cache_len(),
                         .cores = weft_comm_cpus(),
                         .probe_address = (uintptr_t)it->probe,
                         .pid = getpid()};
    struct offer *offers = malloc(comm->ranks * sizeof(*offers));
    uint8_t *have = malloc(comm->ranks);
    struct weft_control_gather gather = {
        .purpose = WEFT_PURPOSE_MEET, .coll = coll, .mine = &mine, .len = sizeof(mine)};
    uint8_t is_mine;
    weft_status_t status =
        offers != NULL && have != NULL
            ? WEFT_OK
            : weft_fail(WEFT_ERR_MEMORY, "no memory for collectives of %u ranks", comm->ranks);
    if (status == WEFT_OK) {
        make_board(it, &mine);
        if (it->local.ranks < comm->ranks) {
            weft_comm_find_nics(comm->job, &mine.nics, &mine.nic_mbps);
        }
        status = weft_random(it->probe, sizeof(it->probe));
        status = status == WEFT_OK ? weft_process_id(&mine.process) : status;
        memcpy(mine.probe, it->probe, sizeof(mine.probe));
    }
    if (status == WEFT_OK) {
        gather.all = offers;
        status = weft_control_gather_wait(comm->channel, &gather, ms_until(call_ns));
    }
    if (status == WEFT_OK) {
        it->has_board = take_board(it, &offers[it->local_members[0]], call_ns);
        it->can_pull = it->has_board && can_pull(it, offers);
        is_mine = (uint8_t)((it->has_board ? BOARD : 0) | (it->can_pull ? PULL : 0));
        gather = (struct weft_control_gather){WEFT_PURPOSE_MEET, coll, &is_mine, 1, have};
        status = weft_control_gather_wait(comm->channel, &gather, ms_until(call_ns));
    }
    for (uint32_t i = 0; status == WEFT_OK && i < it->local.ranks; i++) {
        it->has_board &= (have[it->local_members[i]] & BOARD) != 0;
        it->can_pull &= (have[it->local_members[i]] & PULL) != 0;
    }
    it->have_all_boards = true;
    for (uint32_t i = 0; status == WEFT_OK && i < comm->ranks; i++) {
        it->have_all_boards &= (have[i] & BOARD) != 0;
    }
    if (status == WEFT_OK) {
        status = gather_facts(it, offers);
    }
    status = status == WEFT_OK ? take_costs(it, call_ns) : status;
    free(offers);
    free(have);
    return status;
}

void weft_comm_drop_board(struct weft_collectives *it)
{
    weft_board_close(&it->board);
    weft_mem_mapping_close(it->mapping);
    (void)weft_mem_free(it->board_memory);
    it->mapping = NULL;
    it->board_memory = NULL;
}
