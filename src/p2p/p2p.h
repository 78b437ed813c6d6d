/* SPDX-License-Identifier: Apache-2.0 */
/*
 * p2p: messages and one-sided operations between ranks. Requests, matching, groups, the eager and the
 * announced way of a message, put, get, signal, quiet. Knows links and frames, not lanes' kinds, not
 * the control plane: comm hands it what it needs from there.
 *
 * Messages up to WEFT_EAGER travel at once, as long as the peer has room for what nobody waits for
 * yet. Longer ones are announced and their bytes follow when the receive is known: pulled by the
 * receiver (shared memory it can map, or the sender's address space), or sent in chunks. A receive
 * that is posted first sends a hint ahead, and then the chunks follow the announcement at once.
 */
#ifndef WEFT_P2P_H
#define WEFT_P2P_H

#include "link/link.h"
#include "p2p/match.h"
#include "watch/watch.h"

struct weft_p2p;      /* all of one rank */
struct weft_p2p_comm; /* one communicator's part */

struct weft_p2p_failure {
    uint64_t comm;
    weft_status_t status;
    uint32_t rank; /* of the job, or NO_RANK */
    const char *text;
};

struct weft_p2p_spec {
    struct weft_links_spec links;   /* call and find are filled in here; port must live as long */
    bool is_crowded;                /* more ranks on this host than CPUs */
    struct weft_recorder *recorder; /* of what users wait for; lent; NULL: none */
    void *context;
    bool (*call)(void *context, uint32_t to, const void *payload, size_t len);
    /* "rank 3 (pid 4411 on node7)", of the job */
    void (*name)(void *context, uint32_t rank, char *text, size_t room);
    bool (*is_gone)(void *context, uint32_t rank);
    /* Its lanes are lost: has it ended, and will the verdict come? NULL: nobody knows. */
    bool (*is_ending)(void *context, uint32_t rank);
    /* An operation's deadline passed: end its communicator everywhere; is_final: at least here. */
    void (*fail)(void *context, const struct weft_p2p_failure *failure, bool is_final);
    uint64_t verdict_ms; /* so long that may take, before it is final */
};

weft_status_t weft_p2p_open(const struct weft_p2p_spec *spec, struct weft_p2p **p2p_p);
/* After its communicators. NULL is fine. */
void weft_p2p_close(struct weft_p2p *p2p);

/* From the control plane, under the engine's lock. */
void weft_p2p_called(struct weft_p2p *p2p, uint32_t from, const uint8_t *payload, size_t len);
void weft_p2p_gone(struct weft_p2p *p2p, uint32_t rank, weft_status_t status, const char *text);
/* By lanes, whatever the control plane sees; as weft_link_reaches(). */
bool weft_p2p_reaches(struct weft_p2p *p2p, uint32_t rank, bool *is_alive_p);
void weft_p2p_ended(struct weft_p2p *p2p, uint64_t id, weft_status_t status, const char *text);

/* members: [ranks] ranks of the job, lent; NULL: the same. */
weft_status_t weft_p2p_comm_open(struct weft_p2p *p2p, uint64_t id, uint32_t rank, uint32_t ranks,
                                 const uint32_t *members, struct weft_p2p_comm **comm_p);
/* Flushes for at most half a second, ends what is left. NULL is fine. ERR_TIMEOUT: messages that were
 * sent are lost, because a rank did not take them (named). */
weft_status_t weft_p2p_comm_close(struct weft_p2p_comm *comm);
/* Under the engine's lock. A communicator is closed, also one that never had messages here: its frames are
 * sunk from now on, and those that came already. */
void weft_p2p_forget(struct weft_p2p *p2p, uint64_t id);
/* The same: its members (as above) hear it, those that we have a link to. */
void weft_p2p_say_closed(struct weft_p2p *p2p, uint64_t id, const uint32_t *members,
                         uint32_t ranks);
void weft_p2p_comm_set_timeout(struct weft_p2p_comm *comm, uint64_t timeout_ms);

/* ---- operations: as in weft.h, arguments checked; ranks are the communicator's ---- */

weft_status_t weft_p2p_send(struct weft_p2p_comm *comm, const void *data, size_t len, uint32_t to,
                            uint32_t tag, weft_request_t *request_p);
/* from, tag: or WEFT_MATCH_ANY */
weft_status_t weft_p2p_recv(struct weft_p2p_comm *comm, const struct weft_slice *room,
                            uint32_t from, uint32_t tag, weft_message_t *message_p,
                            weft_request_t *request_p);
weft_status_t weft_p2p_probe(struct weft_p2p_comm *comm, uint32_t from, uint32_t tag,
                             uint32_t timeout_ms, weft_message_t *message_p);
weft_status_t weft_p2p_test(weft_request_t *request, int *is_done_p);
weft_status_t weft_p2p_wait(weft_request_t *request, uint32_t timeout_ms);
weft_status_t weft_p2p_wait_any(weft_request_t *requests, int count, uint32_t timeout_ms,
                                int *index_p);
weft_status_t weft_p2p_wait_all(weft_request_t *requests, int count, uint32_t timeout_ms);
weft_status_t weft_p2p_cancel(weft_request_t *request);
weft_status_t weft_p2p_request_set_timeout(weft_request_t request, uint32_t timeout_ms);
bool weft_p2p_request_is_valid(weft_request_t request);
bool weft_p2p_request_is_ours(weft_request_t request); /* not the parent process's */
/* Of the messages it belongs to, as weft_p2p_open() got it. */
void *weft_p2p_request_context(weft_request_t request);
weft_status_t weft_p2p_group_begin(struct weft_p2p_comm *comm);
weft_status_t weft_p2p_group_end(struct weft_p2p_comm *comm);

weft_status_t weft_p2p_register(struct weft_p2p_comm *comm, void *memory, size_t len,
                                weft_mem_t *mem_p);
weft_status_t weft_p2p_deregister(struct weft_p2p_comm *comm, const weft_mem_t *mem);
struct weft_p2p_target { /* where a one-sided operation goes */
    const weft_mem_t *mem;
    size_t offset;
};
weft_status_t weft_p2p_put(struct weft_p2p_comm *comm, const struct weft_p2p_target *target,
                           const void *data, size_t len, const struct weft_p2p_target *signal,
                           uint64_t add); /* signal may be NULL */
weft_status_t weft_p2p_get(struct weft_p2p_comm *comm, const struct weft_p2p_target *target,
                           void *data, size_t len);
weft_status_t weft_p2p_wait_signal(struct weft_p2p_comm *comm, const uint64_t *signal,
                                   uint64_t value, uint32_t timeout_ms);
weft_status_t weft_p2p_fence(struct weft_p2p_comm *comm);
weft_status_t weft_p2p_quiet(struct weft_p2p_comm *comm);

/* ---- for collectives (inner.c) ---- */

struct weft_engine *weft_p2p_engine(const struct weft_p2p_comm *comm);
/* Failures of this one are told the control plane under this id. */
void weft_p2p_comm_set_channel(struct weft_p2p_comm *comm, uint64_t channel);
/* Not WEFT_OK: it has ended; the text is there then. */
const _Atomic uint32_t *weft_p2p_comm_ended(const struct weft_p2p_comm *comm);
const char *weft_p2p_comm_text(const struct weft_p2p_comm *comm);
void weft_p2p_comm_name(const struct weft_p2p_comm *comm, uint32_t rank, char *text, size_t room);
/* Asks the coordinator to end it on all ranks; is_final: here at least. rank: or NO_RANK. */
void weft_p2p_comm_fail(struct weft_p2p_comm *comm, weft_status_t status, uint32_t rank,
                        const char *text, bool is_final);

/* Not WEFT_OK: a member says over its link that it has failed there. The control plane's verdict has better
 * words, but may not have a way here. */
const _Atomic uint32_t *weft_p2p_comm_told(const struct weft_p2p_comm *comm);
/* A message has lain here for long and nobody receives it; under the lock. */
typedef void (*weft_p2p_stray_fn)(void *owner, uint32_t rank, uint32_t tag);
void weft_p2p_comm_set_stray(struct weft_p2p_comm *comm, weft_p2p_stray_fn ask, void *owner);

struct weft_p2p_item { /* a send or a receive whose end rings */
    bool is_send;
    struct weft_slice slice;
    uint32_t rank, tag;
    _Atomic uint32_t *bell; /* becomes 1; lent */
};
weft_status_t weft_p2p_post(struct weft_p2p_comm *comm, const struct weft_p2p_item *item,
                            weft_request_t *request_p);
/* Then weft_p2p_wait() returns at once. */
bool weft_p2p_is_done(weft_request_t request);
weft_status_t weft_p2p_result(weft_request_t request); /* of one that is done */
size_t weft_p2p_received(weft_request_t request);      /* of a receive that is done */
/* A request that is not a message: whoever made it ends it, under the lock. is_grouped: this thread's group
 * waits for it. NULL: no memory. */
weft_request_t weft_p2p_outer_open(struct weft_p2p_comm *comm, bool is_grouped);
void weft_p2p_outer_record(weft_request_t request, uint64_t record); /* ends with it */
void weft_p2p_outer_end(weft_request_t request, weft_status_t status, const char *text);
/* Under the lock: the time its owner has set for it; false: none. */
bool weft_p2p_outer_limit(weft_request_t request, uint64_t *deadline_ns_p, uint64_t *timeout_ms_p);
bool weft_p2p_has_group(const struct weft_p2p_comm *comm);

/* Under the lock. Memory of a rank of this host, by weft_mem_find(); held until weft_mem_mapping_close().
 * ERR_BUSY: on its way, try later. */
struct weft_p2p_place {
    uint64_t region, offset;
    size_t len;
};
weft_status_t weft_p2p_map(struct weft_p2p_comm *comm, uint32_t rank,
                           const struct weft_p2p_place *place, void **memory_p,
                           struct weft_mem_mapping **mapping_p);
/* Wakes it if it sleeps. */
void weft_p2p_nudge(struct weft_p2p_comm *comm, uint32_t rank);

#endif
