/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes that come and go. The sender dials: each slot has a home, a pair of NICs; while nothing comes through there, it
 * goes by another pair, and home is tried once a second. A lane is given up when it ends, when its NIC loses its
 * carrier, when bytes wait and the peer's host has acknowledged none for WEFT_LANE_TIMEOUT, or when the peer says so.
 * The receiver waits to be dialled. A connection without any lane fails: at once when the peer's words say that it is
 * over, after GONE_MS when nobody is there any more (its port refuses, or its lanes ended without a reset), else
 * after WEFT_PATH_TIMEOUT.
 */
#include "nccl.h"

#define ANSWER_MS 1000 /* a lane that is dialled must come up in this time */
#define RETRY_MS 1000
#define RETRY_ALONE_MS 50
#define GONE_MS 1000
#define GONE_REFUSALS 3

static uint64_t param_ns(enum weft_param param)
{
    return (uint64_t)weft_nccl_core.params.number[param] * WEFT_NS_PER_MS;
}

static uint32_t home_of(const struct weft_nccl_comm *comm, uint32_t slot)
{
    return slot % comm->pair_count;
}

static uint32_t pair_of(const struct weft_nccl_comm *comm, const struct weft_nccl_lane *lane)
{
    uint32_t i = 0;
    while (i + 1 < comm->pair_count &&
           (comm->pairs[i].nic != lane->nic || comm->pairs[i].there != lane->there)) {
        i++;
    }
    return i;
}

static void set_down(struct weft_nccl_comm *comm, uint32_t pair, uint64_t now_ns)
{
    uint64_t pause_ms = weft_nccl_comm_up(comm) != 0 ? RETRY_MS : RETRY_ALONE_MS;
    comm->pairs[pair].is_down = true;
    comm->pairs[pair].retry_ns = now_ns + pause_ms * WEFT_NS_PER_MS;
}

static void give_up(struct weft_nccl_lane *lane, const char *why)
{
    atomic_store(&lane->kill_why, why);
    weft_nccl_lane_drive(lane, WEFT_NCCL_KILL);
}

static void give_up_all(struct weft_nccl_comm *comm)
{
    uint32_t up = weft_nccl_comm_up(comm);
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        struct weft_nccl_lane *lane = comm->lanes[i];
        if (lane->conn != NULL) {
            weft_net_conn_close(lane->conn);
            lane->conn = NULL;
            weft_nccl_lane_drop(lane);
        } else if ((up >> i & 1) != 0) {
            give_up(lane, "its connection has failed");
        }
    }
}

static enum weft_nccl_lane_state state_of(struct weft_nccl_lane *lane)
{
    enum weft_nccl_lane_state state;
    pthread_mutex_lock(&lane->comm->lock);
    state = lane->state;
    pthread_mutex_unlock(&lane->comm->lock);
    return state;
}

/* ---- dialling what is missing ---- */

/* Has the slot a lane, up or about to be? And one at home? */
static void find_lanes(struct weft_nccl_comm *comm, uint32_t slot, bool *has_any_p,
                       bool *has_home_p)
{
    *has_any_p = *has_home_p = false;
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        struct weft_nccl_lane *lane = comm->lanes[i];
        enum weft_nccl_lane_state state = state_of(lane);
        if (lane->slot == slot &&
            (state == WEFT_NCCL_LANE_UP || state == WEFT_NCCL_LANE_DIALLING)) {
            *has_any_p = true;
            *has_home_p |= pair_of(comm, lane) == home_of(comm, slot);
        }
    }
}

static bool is_due(const struct weft_nccl_comm *comm, uint32_t pair, uint64_t now_ns)
{
    return !weft_nccl_core.is_nic_down[comm->pairs[pair].nic] &&
           (!comm->pairs[pair].is_down || now_ns >= comm->pairs[pair].retry_ns);
}

static void dial(struct weft_nccl_comm *comm, uint32_t slot, uint32_t pair, uint64_t now_ns)
{
    if (weft_nccl_dial(comm, (uint16_t)slot, pair) != WEFT_OK || comm->pairs[pair].is_down) {
        set_down(comm, pair, now_ns); /* tried again after a while, and not for every slot */
    }
}

static void fill_slot(struct weft_nccl_comm *comm, uint32_t slot, uint64_t now_ns)
{
    uint32_t home = home_of(comm, slot);
    bool has_any, has_home;
    find_lanes(comm, slot, &has_any, &has_home);
    if (has_home) {
        return;
    }
    if (is_due(comm, home, now_ns)) {
        dial(comm, slot, home, now_ns);
        has_any |= !comm->pairs[home].is_down;
    }
    for (uint32_t i = 1; i < comm->pair_count && !has_any; i++) {
        uint32_t pair = (home + i) % comm->pair_count;
        if (is_due(comm, pair, now_ns)) {
            dial(comm, slot, pair, now_ns);
            return;
        }
    }
}

/* What a lost lane carried goes by those only that were dialled later. */
static bool needs_fresh(struct weft_nccl_comm *comm)
{
    bool is_needed;
    pthread_mutex_lock(&comm->lock);
    is_needed = comm->again > 0;
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        const struct weft_nccl_lane *lane = comm->lanes[i];
        is_needed &= (lane->state != WEFT_NCCL_LANE_UP && lane->state != WEFT_NCCL_LANE_DIALLING) ||
                     lane->id < comm->again_min_id;
    }
    pthread_mutex_unlock(&comm->lock);
    return is_needed;
}

static void fill_slots(struct weft_nccl_comm *comm, uint64_t now_ns)
{
    uint32_t most = (uint32_t)weft_nccl_core.params.number[WEFT_PARAM_LANES_MAX];
    uint32_t count = atomic_load(&comm->wants_lanes) ? comm->slot_count : 1;
    /* With many connections each has fewer, and always one. */
    for (uint32_t slot = 0;
         slot < count && (slot == 0 || most == 0 || atomic_load(&weft_nccl_core.lanes) < most);
         slot++) {
        fill_slot(comm, slot, now_ns);
    }
    /* All slots have theirs, and what was lost was on its way out: one gets another, which takes its place. */
    for (uint32_t pair = 0; pair < comm->pair_count && needs_fresh(comm); pair++) {
        if (is_due(comm, pair, now_ns)) {
            dial(comm, pair, pair, now_ns);
        }
    }
}

/* ---- looking after those that are there ---- */

static void check_dialled(struct weft_nccl_comm *comm, struct weft_nccl_lane *lane, uint64_t now_ns)
{
    if (lane->conn != NULL && now_ns - lane->dialled_ns > ANSWER_MS * WEFT_NS_PER_MS) {
        weft_net_conn_close(lane->conn);
        lane->conn = NULL;
        weft_nccl_lane_drop(lane);
        set_down(comm, pair_of(comm, lane), now_ns);
    }
}

static void check_up(struct weft_nccl_comm *comm, struct weft_nccl_lane *lane, bool is_waiting,
                     uint64_t now_ns)
{
    uint64_t silent_ns = is_waiting ? weft_nccl_lane_silent_ms(lane) * WEFT_NS_PER_MS : 0;
    if (silent_ns >= param_ns(WEFT_PARAM_LANE_TIMEOUT)) {
        set_down(comm, pair_of(comm, lane), now_ns);
        give_up(lane, "its path is dead");
    } else if (is_waiting && atomic_load(&lane->helper) == NULL) {
        /* Small sends are done before they have landed: perhaps nobody tests any more. */
        weft_nccl_lane_drive(lane, WEFT_NCCL_READ | WEFT_NCCL_WRITE);
    }
}

static void check_retiring(struct weft_nccl_comm *comm, struct weft_nccl_lane *lane)
{
    bool is_done;
    pthread_mutex_lock(&comm->lock);
    is_done = comm->landed > lane->last_number || comm->next_number == 0;
    pthread_mutex_unlock(&comm->lock);
    if (is_done) {
        weft_nccl_lane_stop(lane);
    }
}

static void check_lanes(struct weft_nccl_comm *comm, uint64_t now_ns)
{
    bool is_waiting;
    pthread_mutex_lock(&comm->lock);
    is_waiting = comm->landed < comm->next_number;
    pthread_mutex_unlock(&comm->lock);
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        struct weft_nccl_lane *lane = comm->lanes[i];
        switch (state_of(lane)) {
        case WEFT_NCCL_LANE_DIALLING:
            check_dialled(comm, lane, now_ns);
            break;
        case WEFT_NCCL_LANE_UP:
            check_up(comm, lane, is_waiting, now_ns);
            break;
        case WEFT_NCCL_LANE_RETIRING:
            check_up(comm, lane, is_waiting, now_ns);
            check_retiring(comm, lane);
            break;
        case WEFT_NCCL_LANE_DEAD:
            break;
        }
    }
}

/* ---- when it is over ---- */

static void check_sender(struct weft_nccl_comm *comm, uint64_t now_ns)
{
    bool was_up = atomic_load(&comm->is_up);
    uint64_t alone_ns = comm->alone_ns != 0 ? now_ns - comm->alone_ns : 0;
    uint64_t gone_ns = was_up ? GONE_MS * WEFT_NS_PER_MS : param_ns(WEFT_PARAM_PATH_TIMEOUT);
    if (comm->is_refused && comm->alone_ns != 0) {
        weft_nccl_comm_fail(comm, NCCL_REMOTE_ERROR, "it refuses us: it has closed, or failed");
    } else if (comm->refusals >= GONE_REFUSALS && alone_ns >= gone_ns) {
        weft_nccl_comm_fail(comm, NCCL_REMOTE_ERROR, "nobody listens there any more");
    } else if (was_up && alone_ns >= param_ns(WEFT_PARAM_PATH_TIMEOUT)) {
        weft_nccl_comm_fail(comm, NCCL_REMOTE_ERROR, "no way leads there any more");
    } else if (!was_up && now_ns >= comm->deadline_ns) {
        weft_nccl_comm_fail(comm, NCCL_REMOTE_ERROR, "no answer in WEFT_START_TIMEOUT");
    }
}

/* What its lanes say when they end: see the rules in the README. */
static uint64_t grace_ns(bool is_over)
{
    uint64_t gone_ns = 2 * param_ns(WEFT_PARAM_LANE_TIMEOUT);
    gone_ns = gone_ns > GONE_MS * WEFT_NS_PER_MS ? gone_ns : GONE_MS * WEFT_NS_PER_MS;
    return is_over || gone_ns > param_ns(WEFT_PARAM_PATH_TIMEOUT)
               ? gone_ns
               : param_ns(WEFT_PARAM_PATH_TIMEOUT);
}

static void check_receiver(struct weft_nccl_comm *comm, uint64_t now_ns)
{
    bool is_waiting = false, owes_notes, is_over, is_deaf;
    pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < NCCL_REQUESTS; i++) {
        is_waiting |=
            comm->requests[i].is_used && comm->requests[i].landed < comm->requests[i].count;
    }
    owes_notes = comm->owes_notes || comm->down_count > 0;
    is_over = comm->is_left || comm->is_ended;
    is_deaf = (comm->deaf & weft_nccl_comm_up(comm)) != 0;
    pthread_mutex_unlock(&comm->lock);
    if (comm->alone_ns != 0 && is_waiting && now_ns - comm->alone_ns >= grace_ns(is_over)) {
        weft_nccl_comm_fail(comm, NCCL_REMOTE_ERROR, "all its connections have ended");
    } else if (comm->alone_ns == 0 && owes_notes) {
        weft_nccl_recv_tell(comm);
    }
    /* A sender waits for what lies here, or for a note that cannot go before its lane's first words are read, also when
     * nobody tests any more. */
    if (is_waiting || (owes_notes && is_deaf)) {
        weft_nccl_comm_drive(comm, WEFT_NCCL_READ);
    }
}

void weft_nccl_tend(struct weft_nccl_comm *comm, uint64_t now_ns)
{
    if (atomic_load(&comm->result) != NCCL_SUCCESS) {
        give_up_all(comm);
        return;
    }
    if (comm->is_sender) {
        check_lanes(comm, now_ns);
    }
    if (weft_nccl_comm_up(comm) != 0) {
        comm->alone_ns = 0;
        comm->refusals = 0;
    } else if (comm->alone_ns == 0) {
        comm->alone_ns = now_ns;
    }
    if (!comm->is_sender) {
        check_receiver(comm, now_ns);
        return;
    }
    check_sender(comm, now_ns);
    if (!comm->is_refused && atomic_load(&comm->result) == NCCL_SUCCESS) {
        fill_slots(comm, now_ns);
    }
}

/* ---- news ---- */

void weft_nccl_heal_lost(struct weft_nccl_lane *lane, enum weft_nccl_answer answer)
{
    struct weft_nccl_comm *comm = lane->comm;
    set_down(comm, pair_of(comm, lane), weft_clock_ns());
    comm->is_refused |= answer == WEFT_NCCL_CLOSED;
    comm->refusals += answer == WEFT_NCCL_NOBODY; /* a path that is dead gives no answer at all */
    weft_nccl_comm_poke(comm);
}

/* What went elsewhere meanwhile comes home. */
static void retire_others(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        struct weft_nccl_lane *other = comm->lanes[i];
        if (other != lane && other->slot == lane->slot && other->state == WEFT_NCCL_LANE_UP) {
            other->state = WEFT_NCCL_LANE_RETIRING;
        }
    }
    pthread_mutex_unlock(&comm->lock);
}

void weft_nccl_heal_up(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    comm->alone_ns = 0;
    if (!comm->is_sender) {
        pthread_mutex_lock(&comm->lock);
        comm->is_ended = false;
        pthread_mutex_unlock(&comm->lock);
        return;
    }
    comm->refusals = 0;
    comm->pairs[pair_of(comm, lane)].is_down = false;
    retire_others(lane);
    if (!atomic_exchange(&comm->is_up, true)) {
        weft_nccl_say(NCCL_LOG_INFO, "connected to %s by %s, up to %u lanes over %u NICs",
                      comm->peer_text, comm->device->name, comm->slot_count, comm->pair_count);
    }
    weft_nccl_comm_poke(comm);
    /* What waited for a lane goes now. */
    if (atomic_load(&lane->helper) != NULL) {
        weft_nccl_helper_kick(lane, WEFT_NCCL_WRITE);
    } else {
        weft_nccl_lane_drive(lane, WEFT_NCCL_WRITE);
    }
}

static void carrier_lost(struct weft_nccl_comm *comm, uint32_t nic)
{
    uint32_t up = weft_nccl_comm_up(comm), hit = 0;
    for (uint32_t left = up; left != 0; left &= left - 1) {
        hit |= comm->lanes[__builtin_ctz(left)]->nic == nic ? left & -left : 0;
    }
    if (hit == up) {
        return; /* nobody could take over: the kernel goes on trying */
    }
    for (; hit != 0; hit &= hit - 1) {
        struct weft_nccl_lane *lane = comm->lanes[__builtin_ctz(hit)];
        pthread_mutex_lock(&comm->lock);
        if (!comm->is_sender && comm->down_count < WEFT_NCCL_LANES) {
            comm->down[comm->down_count++] = lane->id;
        }
        pthread_mutex_unlock(&comm->lock);
        give_up(lane, "its NIC has no carrier");
    }
}

void weft_nccl_heal_carrier(uint32_t nic, bool is_up)
{
    struct weft_list *all = &weft_nccl_core.comms;
    weft_nccl_core.is_nic_down[nic] = !is_up;
    weft_nccl_say(NCCL_LOG_INFO, "%s %s", weft_nccl_core.devices.nics[nic].name,
                  is_up ? "is back" : "has lost its carrier");
    for (struct weft_list *node = all->next; node != all; node = node->next) {
        struct weft_nccl_comm *comm = WEFT_CONTAINER_OF(node, struct weft_nccl_comm, node);
        for (uint32_t i = 0; i < comm->pair_count; i++) {
            if (comm->pairs[i].nic == nic) {
                comm->pairs[i].is_down = !is_up;
                comm->pairs[i].retry_ns = 0;
            }
        }
        if (!is_up) {
            carrier_lost(comm, nic);
        }
        weft_nccl_comm_poke(comm);
    }
}
