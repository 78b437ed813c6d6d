/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of the shared-memory lane: ranks of one host in one process, each with its
 * own engine and port, driven by hand, that write down what poll gave them.
 */
#ifndef WEFT_TESTS_SHM_SUPPORT_H
#define WEFT_TESTS_SHM_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/harness.h"
#include "lane/shm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What open() is told. */
#define CALL_FOR(rank, where, ms)                                                                  \
    (&(const struct weft_lane_call){.peer = (rank), .address = (where), .timeout_ms = (ms)})
#define CALL(rank, where) CALL_FOR(rank, where, 10000)

#define DEADLINE_MS 10000 /* never reached unless something is broken */
#define NODES_MAX 8
#define LOG_MAX 8192
#define OPS (&weft_lane_shm)

static const uint8_t the_key[WEFT_WIRE_KEY_LEN] = "the key of all tests of shm, 32.";

struct arrival {
    struct weft_wire_data frame;
    struct weft_lane *lane;
    const uint8_t *payload; /* slots: while it is not released */
    uint32_t token;
    uint8_t bytes[64]; /* its beginning */
};

struct node {
    struct weft_engine *engine;
    struct weft_params params;
    struct weft_wire_self self;
    struct weft_lane_port *port;
    struct weft_lane *lane[NODES_MAX]; /* by rank */
    unsigned opened, lost, writable, sent, arrived;
    weft_status_t lost_status;
    char lost_text[160];
    void *sent_cookie[64];
    struct arrival *log; /* owned */
    bool does_release;   /* slots at once */
};

static inline struct weft_shm_port *shm_port(const struct node *node)
{
    return (struct weft_shm_port *)node->port;
}
static inline struct weft_shm_lane *shm_lane(const struct node *node, uint32_t peer)
{
    return (struct weft_shm_lane *)node->lane[peer];
}

static inline void note_arrival(struct node *node, const struct weft_done *done)
{
    struct arrival *arrival = &node->log[node->arrived++ % LOG_MAX];
    *arrival = (struct arrival){
        .frame = done->frame, .lane = done->lane, .payload = done->payload, .token = done->token};
    if (done->frame.len > 0) {
        memcpy(arrival->bytes, done->payload,
               done->frame.len < sizeof(arrival->bytes) ? done->frame.len : sizeof(arrival->bytes));
    }
    if (node->does_release && done->token != 0) {
        OPS->release(done->lane, done->token);
    }
}

static inline void note(struct node *node, const struct weft_done *done)
{
    switch (done->kind) {
    case WEFT_DONE_OPENED:
        node->opened++;
        node->lane[done->lane->peer] = done->lane;
        break;
    case WEFT_DONE_LOST:
        node->lost++;
        node->lost_status = done->status;
        snprintf(node->lost_text, sizeof(node->lost_text), "%s", done->text);
        break;
    case WEFT_DONE_WRITABLE:
        node->writable++;
        break;
    case WEFT_DONE_SENT:
        node->sent_cookie[node->sent++ % 64] = done->cookie;
        break;
    case WEFT_DONE_ARRIVED:
        note_arrival(node, done);
        break;
    case WEFT_DONE_HEADER:
    case WEFT_DONE_LANDED:
        abort(); /* not of this kind of lane */
    }
}

/* One poll of the port, at most `room` values. */
static inline unsigned node_poll(struct node *node, unsigned room)
{
    struct weft_done done[256];
    unsigned count;
    weft_engine_lock(node->engine);
    count = OPS->poll(node->port, done, room);
    for (unsigned i = 0; i < count; i++) {
        note(node, &done[i]);
    }
    weft_engine_unlock(node->engine);
    return count;
}

static inline void node_step(struct node *node)
{
    weft_engine_poll(node->engine);
    node_poll(node, 32);
}

/* Drives both until *count ≥ value. */
static inline bool step_until(struct node *node, struct node *other, const unsigned *count,
                              unsigned value)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (*count < value && weft_clock_ns() < deadline_ns) {
        node_step(node);
        if (other != NULL) {
            node_step(other);
        }
    }
    return *count >= value;
}

static inline void node_prepare(struct node *node, uint32_t rank, uint32_t ranks)
{
    memset(node, 0, sizeof(*node));
    node->log = calloc(LOG_MAX, sizeof(*node->log));
    node->does_release = true;
    node->self = (struct weft_wire_self){.key = the_key,
                                         .is_authenticated = true,
                                         .job = "job of shm test",
                                         .epoch = (uint32_t)getpid(),
                                         .rank = rank,
                                         .ranks = ranks};
}

static inline weft_status_t node_try_open(struct node *node, uint32_t local_count)
{
    uint32_t *ranks = calloc(local_count, sizeof(*ranks));
    struct weft_lane_port_spec spec = {.params = &node->params,
                                       .self = &node->self,
                                       .local_ranks = ranks,
                                       .local_count = local_count};
    weft_status_t status = weft_wire_crypto_open();
    for (uint32_t i = 0; i < local_count; i++) {
        ranks[i] = i;
    }
    if (status == WEFT_OK) {
        status = weft_engine_open(64, -1, &node->engine);
    }
    spec.engine = node->engine;
    if (status == WEFT_OK) {
        weft_engine_set_load(node->engine, 1);
        weft_engine_lock(node->engine);
        status = OPS->port_open(&spec, &node->port);
        weft_engine_unlock(node->engine);
    }
    free(ranks);
    return status;
}

static inline void node_open(struct node *node, uint32_t rank, uint32_t local_count)
{
    node_prepare(node, rank, local_count);
    assert_int_equal(weft_params_load(&node->params), WEFT_OK);
    assert_int_equal(node_try_open(node, local_count), WEFT_OK);
}

static inline void node_dial(struct node *node, uint32_t peer)
{
    struct weft_lane_address address;
    OPS->address(node->port, &address);
    weft_engine_lock(node->engine);
    assert_int_equal(OPS->open(node->port, CALL(peer, &address), &node->lane[peer]), WEFT_OK);
    weft_engine_unlock(node->engine);
}

static inline void node_hang_up(struct node *node, uint32_t peer)
{
    weft_engine_lock(node->engine);
    OPS->close(node->lane[peer]);
    weft_engine_unlock(node->engine);
    node->lane[peer] = NULL;
}

static inline void node_close(struct node *node)
{
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        node_hang_up(node, i);
    }
    weft_engine_lock(node->engine);
    OPS->port_close(node->port);
    weft_engine_unlock(node->engine);
    weft_engine_close(node->engine);
    free(node->log);
}

/* The lane between two nodes, dialled by the first. */
static inline void connect_nodes(struct node *node, struct node *other)
{
    unsigned opened = node->opened, other_opened = other->opened;
    node_dial(node, other->self.rank);
    assert_true(step_until(node, other, &node->opened, opened + 1));
    assert_true(step_until(node, other, &other->opened, other_opened + 1));
}

/* ---- a pair of ranks, connected ---- */

struct pair {
    struct node a, b;
    unsigned fds_before;
};

static inline void pair_open(struct pair *pair)
{
    pair->fds_before = weft_fd_count();
    node_open(&pair->a, 0, 2);
    node_open(&pair->b, 1, 2);
    connect_nodes(&pair->b, &pair->a);
}

static inline void pair_close(struct pair *pair)
{
    node_close(&pair->a);
    node_close(&pair->b);
    assert_int_equal(weft_fd_count(), pair->fds_before);
}

/* ---- posting ---- */

static inline void fill_pattern(uint8_t *bytes, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)(((size_t)seed * 31 + i) * UINT32_C(2654435761) >> 24);
    }
}

static inline bool is_pattern(const uint8_t *bytes, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != (uint8_t)(((size_t)seed * 31 + i) * UINT32_C(2654435761) >> 24)) {
            return false;
        }
    }
    return true;
}

static inline enum weft_post post_from(struct node *node, uint32_t peer,
                                       const struct weft_wire_data *frame, const void *data,
                                       void *cookie)
{
    struct weft_slice slice = {.data = (void *)data, .len = frame->len};
    enum weft_post post;
    weft_engine_lock(node->engine);
    post = OPS->post(node->lane[peer], frame, &slice, cookie);
    weft_engine_unlock(node->engine);
    return post;
}

/* An eager message of this length whose bytes follow from its tag. */
static inline enum weft_post post_eager(struct node *node, uint32_t peer, uint32_t tag,
                                        uint32_t len)
{
    static _Thread_local uint8_t bytes[WEFT_SHM_BIG_LEN];
    struct weft_wire_data frame = {.type = WEFT_DATA_EAGER, .len = len, .comm = 77, .tag = tag};
    fill_pattern(bytes, len, tag);
    return post_from(node, peer, &frame, bytes, NULL);
}

#endif
