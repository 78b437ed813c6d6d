/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm: communicators. What a job is (engine, control plane, settings, key), who its members are,
 * how one splits into several, what belongs to which process. Blocks where its callers block.
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include "base/base.h"
#include "control/control.h"
#include "p2p/p2p.h"

/* What all communicators of one start share. */
struct weft_job {
    struct weft_engine *engine;   /* owned */
    struct weft_control *control; /* owned */
    struct weft_params params;
    uint8_t *key; /* owned, in memory for secrets */
    struct weft_wire_self self;

    /* messages (messages.c) */
    struct weft_p2p *p2p;                  /* owned */
    struct weft_control_observer observer; /* tells p2p what the control plane hears */
    uint32_t *local_ranks;                 /* of this host, ascending; owned */
    uint32_t local_count;
    struct weft_list collectives; /* of its communicators; under the engine's lock */
};

struct weft_collectives;

#define WEFT_COMM_MAGIC 0x636f6d6du

struct weft_comm {
    uint32_t magic;          /* gone once closed: a hint for who uses it after */
    _Atomic bool is_in_call; /* one thread at a time */
    uint32_t generation;     /* of the process that made it */
    struct weft_job *job;
    struct weft_comm *parent;             /* NULL: the first; lent */
    struct weft_control_channel *channel; /* owned */
    uint64_t id;
    uint32_t rank, ranks;
    uint32_t *members; /* [ranks] ranks of the job; NULL: the same; owned */
    uint32_t splits;   /* operations that made communicators, part of their ids */
    uint32_t open_children;
    uint64_t timeout_ms;
    _Atomic(struct weft_p2p_comm *) messages; /* owned; NULL: none were sent or received yet */
    struct weft_collectives *collectives;     /* owned; NULL: none was called yet */
};

/* Makes an id and opens its door, which waits in this process for a communicator to take it. */
weft_status_t weft_comm_id_create(const weft_config_t *config, weft_id_t *id_p);
void weft_comm_id_destroy(const weft_id_t *id);

weft_status_t weft_comm_create_by_ids(const weft_id_t *ids, int id_count, int rank, int ranks,
                                      const weft_config_t *config, struct weft_comm **comm_p);
weft_status_t weft_comm_create_by_environment(const weft_config_t *config,
                                              struct weft_comm **comm_p);
weft_status_t weft_comm_split_off(struct weft_comm *comm, int colour, int key,
                                  struct weft_comm **comm_p);
void weft_comm_local_ranks(const struct weft_comm *comm, int *local_rank_p, int *local_ranks_p);
/* (messages.c) The communicator's messages, made with the first call that needs them; NULL: see the
 * error text, *status_p. Any thread. */
struct weft_p2p_comm *weft_comm_messages(struct weft_comm *comm, weft_status_t *status_p);
/* Of the operations begun from now on; 0: as WEFT_TIMEOUT says. */
void weft_comm_timeout(struct weft_comm *comm, uint32_t timeout_ms);
/* (collectives.c) Arguments checked; one thread at a time. The first one of a communicator makes its ranks'
 * shared memory ready, for which all of them meet. */
weft_status_t weft_comm_collective(struct weft_comm *comm, const weft_call_t *call,
                                   weft_request_t *request_p);
/* Bytes that collectives of this rank have read and written in memory. */
uint64_t weft_comm_moved(const struct weft_comm *comm);
/* Name of the algorithm of its latest collective; "": none was called. */
const char *weft_comm_algorithm(const struct weft_comm *comm);
/* ERR_BUSY while communicators split off from it are open; after anything else it is gone. */
weft_status_t weft_comm_end(struct weft_comm *comm);

#endif
