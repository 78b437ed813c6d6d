/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 1 of three on one host, as its control plane is after the start; its connections are ends of nothing. */
#ifndef WEFT_TESTS_UNIT_CONTROL_LONE_H
#define WEFT_TESTS_UNIT_CONTROL_LONE_H

#include "control/heal.h"

#include <stdlib.h>

#define LONE_RANKS 3
#define LONE_SELF 1

static const uint8_t lone_key[WEFT_WIRE_KEY_LEN] = "not much of a secret, but one...";

static inline void lone_tree(struct weft_control *control)
{
    struct weft_wire_table *table = &control->table;
    assert_int_equal(weft_wire_table_open(LONE_RANKS, 1, table), WEFT_OK);
    for (uint32_t rank = 0; rank < LONE_RANKS; rank++) {
        table->pid[rank] = 1; /* it lives as long as this machine */
    }
    weft_control_tree_fans(0, LONE_RANKS - 1, 2, &table->fan_groups, &table->fan_local);
    assert_int_equal(weft_control_tree_open(table, &control->tree), WEFT_OK);
}

static inline int lone_set_up(void **state)
{
    static struct weft_params params;
    struct weft_control *control = calloc(1, sizeof(*control));
    assert_non_null(control);
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_int_equal(weft_engine_open(64, -1, &control->engine), WEFT_OK);
    control->params = &params;
    control->self = (struct weft_wire_self){.key = lone_key,
                                            .is_authenticated = true,
                                            .job = "a job that heals",
                                            .epoch = 1,
                                            .rank = LONE_SELF,
                                            .ranks = LONE_RANKS};
    control->parent_rank = 0;
    control->still.rank = WEFT_WIRE_NO_RANK;
    weft_list_open(&control->parting);
    weft_list_open(&control->channels);
    weft_list_open(&control->early);
    weft_list_open(&control->early_calls);
    weft_engine_timer_open(&control->news, weft_control_news_fire);
    weft_engine_timer_open(&control->heart, NULL);
    lone_tree(control);
    control->children = calloc(1, sizeof(*control->children));
    control->is_gone = calloc(LONE_RANKS, sizeof(*control->is_gone));
    control->is_out = calloc(LONE_RANKS, sizeof(*control->is_out));
    assert_true(control->children != NULL && control->is_gone != NULL && control->is_out != NULL);
    control->child_room = 1;
    control->beat_ns = UINT64_MAX / 2; /* it does not sleep, however busy the machine is */
    weft_control_heal_open(control);
    *state = control;
    return 0;
}

static inline int lone_tear_down(void **state)
{
    struct weft_control *control = *state;
    struct weft_engine *engine = control->engine;
    if (atomic_load(&control->is_engaged)) {
        weft_background_leave(engine);
    }
    control->is_closing = true; /* no good-byes */
    weft_control_close(control);
    weft_engine_close(engine);
    return 0;
}

static inline void lone_is_empty(struct weft_engine_source *source, uint32_t events)
{
    (void)source;
    (void)events;
}

static inline struct weft_net_conn *lone_conn(struct weft_control *control, uint32_t rank,
                                              uint32_t tag, enum weft_wire_purpose purpose)
{
    struct weft_net_conn *conn = calloc(1, sizeof(*conn));
    assert_non_null(conn);
    conn->source.ready = lone_is_empty;
    conn->ops = &weft_control_conn_ops;
    conn->owner = control;
    conn->engine = control->engine;
    conn->peer_rank = rank;
    conn->tag = tag;
    conn->purpose = (uint8_t)purpose;
    conn->state = WEFT_CONN_DEAD;
    return conn;
}

static inline void lone_ends(struct weft_control *control, struct weft_net_conn *conn)
{
    weft_engine_lock(control->engine);
    conn->ops->lost(conn, WEFT_ERR_PEER, "closed its connection");
    weft_engine_unlock(control->engine);
}

static inline void lone_speaks(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_HEARTBEAT, .src = conn->peer_rank, .dst = LONE_SELF};
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, NULL);
    weft_engine_unlock(control->engine);
}

/* With a child, rank 2, and nobody above. */
static inline struct weft_net_conn *lone_coordinator(struct weft_control *control)
{
    control->is_top = true;
    control->parent_rank = WEFT_WIRE_NO_RANK;
    control->children[0] =
        (struct weft_control_child){.rank = 2,
                                    .still = {.rank = WEFT_WIRE_NO_RANK},
                                    .conn = lone_conn(control, 2, ROLE_CHILD, WEFT_WIRE_ATTACH)};
    control->child_count = 1;
    return control->children[0].conn;
}

/* A report, or what else is said of a rank. */
static inline void lone_hears(struct weft_control *control, struct weft_net_conn *conn,
                              enum weft_wire_type type, const struct weft_wire_notice *notice)
{
    struct weft_wire_frame frame = {
        .type = (uint8_t)type, .src = conn->peer_rank, .dst = WEFT_WIRE_NO_RANK};
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    frame.len = (uint32_t)weft_wire_notice_encode(notice, bytes);
    weft_engine_lock(control->engine);
    conn->ops->frame(conn, &frame, bytes);
    weft_engine_unlock(control->engine);
}

static inline struct weft_net_conn *lone_parent(struct weft_control *control)
{
    control->parent = lone_conn(control, 0, ROLE_PARENT, WEFT_WIRE_HEAL);
    return control->parent;
}

#endif
