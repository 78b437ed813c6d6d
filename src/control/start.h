/* SPDX-License-Identifier: Apache-2.0 */
/* Private to control: what exists only while a job starts. */
#ifndef WEFT_CONTROL_START_H
#define WEFT_CONTROL_START_H

#include "control/internal.h"

/* One way to the one above: candidates are tried at the same time, the job id tells them apart. */
struct weft_control_attempt {
    struct sockaddr_storage addr; /* family 0: by its local socket */
    struct weft_net_conn *conn;   /* NULL: to be dialled again */
    uint32_t tries;
};

/* What is known of a rank that leads a group. */
struct weft_control_leader {
    struct weft_list node;
    uint32_t rank;
    struct weft_wire_addr addr;
    char host[WEFT_WIRE_HOST_LEN];
};

struct weft_control_start {
    struct weft_control *control;
    struct weft_control_spec spec;
    _Atomic uint32_t is_over;
    weft_status_t status;
    char text[TEXT_LEN];
    bool is_for_all; /* somebody above said so, of all below */
    struct weft_wire_member me;

    /* going up */
    struct weft_control_attempt attempts[WEFT_CONTROL_CANDIDATES];
    unsigned attempt_count;
    bool is_by_leader;           /* we join through this host's leader */
    struct weft_net_conn *first; /* the connection that joined us; not owned: one of attempts */
    struct weft_engine_timer retry;
    char latest[TEXT_LEN]; /* why the latest attempt failed, for the deadline's text */
    bool has_answer;       /* the first connection is not needed any more */
    struct weft_wire_answer answer;

    /* serving: root, segment root, leader */
    bool is_gatherer;
    struct weft_net_acceptor *tcp, *local, *own; /* own: my name as a tree parent */
    bool keeps_local;                            /* the local listener is not ours to close */
    struct weft_list arrivals;                   /* joined connections */
    struct weft_list attached;                   /* tree children that came before the table */
    uint32_t joined;
    struct weft_engine_timer watch; /* when to begin watching arrivals */
    bool is_watching;
    uint32_t *leader_of, *pid_of; /* [ranks], NO_RANK: not joined; owned */
    struct weft_net_conn **via;   /* [ranks] which connection brought it; owned */
    struct weft_list leaders;
    struct weft_engine_timer deadline;
    uint64_t deadline_ns; /* earliest of all that joined */
    unsigned refused;     /* ranks told to go away */
    char latest_refusal[TEXT_LEN];
    /* leader: records to pass up, once per round */
    uint8_t *batch;
    size_t batch_len, batch_room;
    struct weft_engine_task flush;
    bool is_flush_posted;

    uint8_t *table_bytes; /* as it travels; owned */
    size_t table_len;
    uint32_t children_ready;
    unsigned attaches; /* how often the parent was dialled again */
};

/* join.c */
weft_status_t weft_control_join(struct weft_control_start *start);
/* Has the right listener shown our job, and got our hello? */
bool weft_control_join_has_spoken(const struct weft_control_start *start);
void weft_control_join_close(struct weft_control_start *start);
struct weft_control_attempt *weft_control_join_attempt(struct weft_control_start *start,
                                                       struct weft_net_conn *conn);
void weft_control_join_lost(struct weft_control_start *start, struct weft_net_conn *conn,
                            weft_status_t status, const char *why);

/* gather.c */
weft_status_t weft_control_gather_open(struct weft_control_start *start);
void weft_control_gather_close(struct weft_control_start *start);
void weft_control_gather_hello(struct weft_control_start *start, struct weft_net_conn *conn);
void weft_control_gather_members(struct weft_control_start *start, struct weft_net_conn *conn,
                                 const uint8_t *payload, size_t len);
void weft_control_gather_lost(struct weft_control_start *start, struct weft_net_conn *conn,
                              weft_status_t status, const char *why);
void weft_control_gather_forward(struct weft_control_start *start,
                                 const struct weft_wire_frame *frame, const uint8_t *payload);
void weft_control_gather_up_opened(struct weft_control_start *start);
/* Lets those go who joined through us, without a word: they find the root themselves. */
void weft_control_gather_drop(struct weft_control_start *start);
/* Tells everybody below that the start failed. */
void weft_control_gather_fail(struct weft_control_start *start);

/* place.c: from the table to the tree */
void weft_control_place(struct weft_control_start *start); /* control->table is there */
void weft_control_part(struct weft_control *control, struct weft_net_conn *conn);
/* Over when the table is there, all children have it and all who joined through us are answered. */
void weft_control_place_check(struct weft_control_start *start);
void weft_control_place_attached(struct weft_control_start *start, struct weft_net_conn *conn);

/* start.c */
void weft_control_start_over(struct weft_control_start *start);

#endif
