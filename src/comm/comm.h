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
#include "watch/watch.h"

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
    struct weft_link_nic nics[WEFT_LINK_NICS]; /* that carry data, if there are several */
    uint32_t nic_count;                        /* under the engine's lock */
    struct weft_engine_timer nics_timer;       /* they are looked for soon after the start */
    struct weft_list collectives;              /* of its communicators; under the engine's lock */

    /* (record.c) opened with the first operation; off until then */
    struct weft_recorder recorder;
    _Atomic bool is_recorded;

    /* (dump.c) because of a failure; under the engine's lock */
    uint64_t dumped_ns;              /* 0: not yet */
    struct weft_comm_writer *writer; /* of the latest file; shared; NULL: none */
};

struct weft_collectives;
struct weft_comm;

/* What an operation that was made once and is started often has of its communicator; it may outlive it. */
struct weft_comm_tie {
    struct weft_list node;  /* of the communicator; under the engine's lock */
    struct weft_comm *comm; /* NULL: it was closed; lent */
    weft_request_t request; /* NULL: it does not run */
};

/* (record.c) A control call from before there is a recorder, which is opened for it when it waits for long. */
struct weft_comm_early {
    struct weft_engine_timer timer; /* under the engine's lock */
    struct weft_engine_task task;   /* sets it */
    _Atomic bool is_posted;
    struct weft_recorder_time began; /* from here on under a lock of record.c */
    struct weft_record_call call;
    bool is_going;
};

#define WEFT_COMM_MAGIC 0x636f6d6du

struct weft_comm {
    uint32_t magic;            /* gone once closed: a hint for who uses it after */
    _Atomic bool is_in_call;   /* one thread at a time */
    _Atomic uint32_t aborting; /* threads in weft_abort(): it is closed when they are through */
    uint32_t generation;       /* of the process that made it */
    struct weft_job *job;
    struct weft_comm *parent;             /* NULL: the first; lent */
    struct weft_control_channel *channel; /* owned */
    uint64_t id;
    uint32_t rank, ranks;
    uint32_t *members; /* [ranks] ranks of the job; NULL: the same; owned */
    uint32_t splits;   /* operations that made communicators, part of their ids */
    uint32_t shrinks;
    uint32_t open_children;
    struct weft_list ties; /* of its operations */
    uint64_t timeout_ms;
    _Atomic(struct weft_p2p_comm *) messages; /* owned; NULL: none were sent or received yet */
    struct weft_collectives *collectives;     /* owned; NULL: none was called yet */
    _Atomic bool is_recorded;                 /* it is in the recorder's table */
    _Atomic uint32_t control_calls;           /* of the control plane, that all ranks make */
    uint32_t calls;                           /* … and others, while there is no recorder */
    uint64_t control_record;                  /* of the one that is made now; 0: none */
    bool is_early;                            /* the one that is made now; its thread's */
    struct weft_comm_early early;
};

/* What the job calls a rank of this communicator. */
static inline uint32_t weft_comm_job_rank(const struct weft_comm *comm, uint32_t rank)
{
    return comm->members != NULL ? comm->members[rank] : rank;
}

/* Makes an id and opens its door, which waits in this process for a communicator to take it. */
weft_status_t weft_comm_id_create(const weft_config_t *config, weft_id_t *id_p);
void weft_comm_id_destroy(const weft_id_t *id);
/* Any thread, until it is being closed: who closes because of it waits for it to be through. */
weft_status_t weft_comm_abort(struct weft_comm *comm, const char *reason);

weft_status_t weft_comm_create_by_ids(const weft_id_t *ids, int id_count, int rank, int ranks,
                                      const weft_config_t *config, struct weft_comm **comm_p);
weft_status_t weft_comm_create_by_environment(const weft_config_t *config,
                                              struct weft_comm **comm_p);
weft_status_t weft_comm_split_off(struct weft_comm *comm, int colour, int key,
                                  struct weft_comm **comm_p);
weft_status_t weft_comm_shrink_to(struct weft_comm *comm, struct weft_comm **comm_p);
weft_status_t weft_comm_copy(struct weft_comm *comm, struct weft_comm **comm_p);
void weft_comm_tie_open(struct weft_comm *comm, struct weft_comm_tie *tie);
/* Whose request is over. */
void weft_comm_tie_close(struct weft_comm_tie *tie);
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
/* (record.c) The rank's flight recorder, which knows this communicator. Any thread. */
struct weft_recorder *weft_comm_recorder(struct weft_comm *comm);
/* A call of the control plane begins and ends; one thread at a time. peer: or root. */
void weft_comm_record_control(struct weft_comm *comm, enum weft_record_kind kind, size_t count,
                              uint32_t peer, uint32_t tag);
void weft_comm_record_control_end(struct weft_comm *comm, weft_status_t status);
/* (dump.c) Writes the recorder to a file, or into a directory; NULL: into that of WEFT_DUMP. ERR_INVALID,
 * ERR_UNSUPPORTED (it is off), ERR_MEMORY, ERR_SYSTEM. Any thread. */
weft_status_t weft_comm_dump(struct weft_comm *comm, const char *path);
/* A call is about to return with a failure: its file is there when it does, or a fifth of a second after the
 * failure. Any thread, without the engine's lock. */
void weft_comm_dump_await(struct weft_job *job);
/* ERR_BUSY while communicators split off from it are open; after anything else it is gone. */
weft_status_t weft_comm_end(struct weft_comm *comm);

#endif
