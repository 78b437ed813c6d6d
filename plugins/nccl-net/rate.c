/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Striping by speed, where lanes go by different NICs. A socket takes bytes long before they are out: left alone, a slow
 * lane would fill its buffer with chunks that the fast one could have brought sooner. So each lane has an estimate of
 * how fast it drains, and takes a chunk only if it is expected to arrive there about as soon as by the best other
 * lane. What it leaves is offered again after a moment.
 */
#include "nccl.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#define WINDOW_NS (5 * WEFT_NS_PER_MS) /* drained for at least so long: a sample */
#define SLACK_S 0.003                  /* estimates are rough; a lane must not run dry for them */
#define STALE_NS (1000 * WEFT_NS_PER_MS)
#define OFFER_NS (WEFT_NS_PER_MS)

void weft_nccl_rate_look(struct weft_nccl_lane *lane)
{
    struct weft_nccl_comm *comm = lane->comm;
    uint64_t now_ns = weft_clock_ns(), drained;
    int queued = 0;
    if (comm->pair_count < 2 || ioctl(lane->fd, SIOCOUTQ, &queued) != 0) {
        return;
    }
    drained = lane->written - (uint64_t)queued;
    pthread_mutex_lock(&comm->lock);
    if (queued == 0 || lane->backlog == 0) { /* it rested: that says nothing about its speed */
        lane->since_ns = now_ns;
        lane->drained = drained;
        lane->rate =
            now_ns - lane->sampled_ns < STALE_NS ? lane->rate : 0; /* it may be better now */
    } else if (now_ns - lane->since_ns >= WINDOW_NS) {
        double rate = 1e9 * (double)(drained - lane->drained) / (double)(now_ns - lane->since_ns);
        lane->rate = lane->rate > 0 ? 0.75 * lane->rate + 0.25 * rate : rate;
        lane->since_ns = lane->sampled_ns = now_ns;
        lane->drained = drained;
    }
    lane->backlog = (uint64_t)queued;
    lane->looked_ns = now_ns;
    pthread_mutex_unlock(&comm->lock);
}

/* When would len more bytes be through? Unknown rates: at once. */
static double arrival_s(const struct weft_nccl_lane *lane, uint32_t len, uint64_t now_ns)
{
    double left = (double)lane->backlog - lane->rate * 1e-9 * (double)(now_ns - lane->looked_ns);
    return lane->rate > 0 ? ((left > 0 ? left : 0) + len) / lane->rate : 0;
}

bool weft_nccl_rate_fits(struct weft_nccl_lane *lane, uint32_t len)
{
    struct weft_nccl_comm *comm = lane->comm;
    uint64_t now_ns;
    double mine;
    if (comm->pair_count < 2) {
        return true;
    }
    if (lane->rate <= 0) { /* to be found out, with little */
        if (lane->backlog > len) {
            atomic_store(&comm->has_left, true);
        }
        return lane->backlog <= len;
    }
    now_ns = weft_clock_ns();
    mine = arrival_s(lane, len, now_ns) - SLACK_S;
    for (uint32_t i = 0, count = atomic_load(&comm->lane_count); i < count; i++) {
        const struct weft_nccl_lane *other = comm->lanes[i];
        if (other != lane && other->state == WEFT_NCCL_LANE_UP && other->rate > 0 &&
            arrival_s(other, len, now_ns) < mine) {
            atomic_store(&comm->has_left, true);
            return false;
        }
    }
    return true;
}

void weft_nccl_rate_offer(struct weft_nccl_comm *comm)
{
    uint32_t lanes = atomic_load(&comm->by_helpers);
    uint64_t now_ns = weft_clock_ns();
    if (now_ns < comm->offer_ns) {
        return;
    }
    comm->offer_ns = now_ns + OFFER_NS;
    atomic_store(&comm->has_left, false);
    for (; lanes != 0; lanes &= lanes - 1) {
        weft_nccl_helper_kick(comm->lanes[__builtin_ctz(lanes)], WEFT_NCCL_WRITE);
    }
}
