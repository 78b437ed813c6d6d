/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks with two communicators, over lanes that move when the test says so (unit/link/fake.h). Everything in
 * one thread: calls that would wait for the other rank are not made here.
 */
#ifndef WEFT_TESTS_P2P_TWO_H
#define WEFT_TESTS_P2P_TWO_H

#include "unit/link/ends.h"

#include "p2p/internal.h"

#define WORLD 101u
#define DUP 102u

struct rank {
    struct end end; /* what the lanes know of it */
    struct weft_p2p *p2p;
    struct weft_p2p_comm *world, *dup; /* NULL: closed */
    struct rank *other;
};

struct two {
    struct rank rank[2]; /* 1 dials 0 */
};

static inline bool two_call(void *context, uint32_t to, const void *payload, size_t len)
{
    struct rank *rank = context;
    assert_int_equal(to, rank->other->end.self.rank);
    weft_p2p_called(rank->other->p2p, rank->end.self.rank, payload, len);
    return true;
}

static inline void two_name(void *context, uint32_t rank, char *text, size_t room)
{
    (void)context;
    snprintf(text, room, "rank %u", rank);
}

static inline bool two_is_gone(void *context, uint32_t rank)
{
    (void)context;
    (void)rank;
    return false;
}

/* What would end a communicator everywhere ends it here. */
static inline void two_fail(void *context, const struct weft_p2p_failure *failure, bool is_final)
{
    struct rank *rank = context;
    (void)is_final;
    weft_p2p_ended(rank->p2p, failure->comm, failure->status, failure->text);
}

static inline struct weft_link *link_of(struct rank *rank)
{
    return &weft_p2p_peer_of(rank->p2p, rank->other->end.self.rank)->link;
}

static inline struct fake_lane *lane_at(struct rank *rank, uint32_t slot)
{
    struct weft_bundle *bundle = link_of(rank)->bundle;
    return bundle != NULL && bundle->slots[slot].lane != NULL ? fake_of(bundle->slots[slot].lane)
                                                              : NULL;
}

static inline void poll_rank(struct rank *rank)
{
    while (rank->p2p->poller.poll(&rank->p2p->poller)) {
    }
}

static inline bool two_move(struct fake_lane *fake)
{
    if (fake->other == NULL && fake->lane.is_up && weft_list_is_empty(&fake->pipe) &&
        fake->begun == NULL) {
        fake_end(fake); /* it hears of it at last */
        return true;
    }
    bool has_arrived = fake_arrive(fake);
    return fake_body(fake) || has_arrived;
}

static inline void redial(struct rank *rank)
{
    struct weft_bundle *bundle = link_of(rank)->bundle;
    for (uint32_t i = 0; bundle != NULL && i < bundle->count; i++) {
        bundle->slots[i].retry_ns = 0;
    }
    if (bundle != NULL) {
        bundle->tick.fire(&bundle->tick, weft_clock_ns());
    }
}

static inline bool connect_lane_0(struct fake_lane *fake)
{
    return fake->lane.slot == 0 && fake_connect(fake);
}

/* All that is on its way arrives; what was dialled comes up if `connect` says so. */
static inline void settle_lanes(struct two *two, bool (*connect)(struct fake_lane *))
{
    unsigned idle = 0;
    for (int i = 0; i < 5000 && idle < 4; i++) {
        unsigned moved = 0;
        for (int k = 0; k < 2; k++) {
            struct rank *rank = &two->rank[k];
            moved += each_lane(&rank->end, connect);
            poll_rank(rank);
            moved += each_lane(&rank->end, two_move);
            poll_rank(rank);
        }
        idle = moved == 0 ? idle + 1 : 0;
        if (moved == 0) {
            redial(&two->rank[0]);
            redial(&two->rank[1]);
        }
    }
    assert_int_equal(idle, 4);
}

/* … and whatever is down comes up. */
static inline void settle_two(struct two *two)
{
    settle_lanes(two, fake_connect);
}

static inline void rank_open(struct two *two, uint32_t number, uint32_t nics)
{
    struct rank *rank = &two->rank[number];
    struct end *end = &rank->end;
    struct weft_p2p_spec spec;
    rank->other = &two->rank[1 - number];
    end->nics = nics;
    end->self = (struct weft_wire_self){.rank = number, .ranks = 2};
    assert_int_equal(weft_params_load(&end->params), WEFT_OK);
    assert_int_equal(weft_engine_open(64, -1, &end->engine), WEFT_OK);
    spec = (struct weft_p2p_spec){
        .links = {.port = {.engine = end->engine, .params = &end->params, .self = &end->self},
                  .tcp = &fake_ops,
                  .has_tcp = true,
                  .choose_nics = end_choose_nics,
                  .nics_context = end},
        .context = rank,
        .call = two_call,
        .name = two_name,
        .is_gone = two_is_gone,
        .fail = two_fail,
        .verdict_ms = 600};
    assert_int_equal(weft_p2p_open(&spec, &rank->p2p), WEFT_OK);
    assert_int_equal(weft_p2p_comm_open(rank->p2p, WORLD, number, 2, NULL, &rank->world), WEFT_OK);
    assert_int_equal(weft_p2p_comm_open(rank->p2p, DUP, number, 2, NULL, &rank->dup), WEFT_OK);
}

static inline void two_open_lanes(struct two *two, uint32_t nics,
                                  bool (*connect)(struct fake_lane *))
{
    memset(two, 0, sizeof(*two));
    weft_log_configure("off");
    rank_open(two, 0, nics);
    rank_open(two, 1, nics);
    weft_link_want(link_of(&two->rank[0]));
    settle_lanes(two, connect);
    assert_int_equal(link_of(&two->rank[0])->state, WEFT_LINK_UP);
}

/* Both links are up over all lanes. */
static inline void two_open(struct two *two, uint32_t nics)
{
    two_open_lanes(two, nics, fake_connect);
}

/* Whoever still has something on its way has ended before, or nobody would take it. */
static inline void two_close(struct two *two)
{
    for (int i = 0; i < 2; i++) {
        struct rank *rank = &two->rank[i];
        if (rank->world != NULL) {
            weft_p2p_ended(rank->p2p, WORLD, WEFT_ERR_ABORTED, "the test is over");
        }
        if (rank->dup != NULL) {
            weft_p2p_ended(rank->p2p, DUP, WEFT_ERR_ABORTED, "the test is over");
        }
    }
    for (int i = 0; i < 2; i++) {
        weft_p2p_comm_close(two->rank[i].world);
        weft_p2p_comm_close(two->rank[i].dup);
    }
    for (int i = 0; i < 2; i++) {
        weft_p2p_close(two->rank[i].p2p);
        weft_engine_close(two->rank[i].end.engine);
    }
}

#endif
