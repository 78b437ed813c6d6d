/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weft: communication for distributed AI. The public API.
 *
 * Words used below:
 *   rank          one member of a job, 0 … ranks-1: a process, or a thread that joined by itself
 *   communicator  a rank's handle on a job or on a part of it
 *   root          the rank whose process made the id; it serves the start
 *
 * Every function returns a status. When it is not WEFT_OK, weft_error_text() says who, what and
 * what to do, for the calling thread. Outputs (names ending in _p) are written only on success.
 *
 * Threads: different communicators may be used by different threads at the same time. The calls on
 * one communicator have one order and come from one thread at a time (a second thread gets ERR_BUSY),
 * except weft_abort() and weft_comm_status(), which any thread may call at any time until
 * weft_comm_close() begins.
 *
 * Fork: a forked child finds its parent's handles dead (WEFT_ERR_FORKED) and our descriptors
 * closed.
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* the library hides everything else */
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

/* name, number, sentence: enum, names and texts all come from this one list. */
#define WEFT_STATUS_LIST(X)                                                                        \
    X(OK, 0, "fine")                                                                               \
    X(ERR_INVALID, 1, "an argument or a setting is wrong")                                         \
    X(ERR_MEMORY, 2, "out of memory")                                                              \
    X(ERR_SYSTEM, 3, "the operating system refused a request")                                     \
    X(ERR_TIMEOUT, 4, "the deadline passed")                                                       \
    X(ERR_PEER, 5, "a rank died or closed")                                                        \
    X(ERR_NETWORK, 6, "no path to the other side")                                                 \
    X(ERR_AUTH, 7, "the job's secret was wrong or missing")                                        \
    X(ERR_VERSION, 8, "the two sides speak different versions")                                    \
    X(ERR_PROTOCOL, 9, "bytes arrived that no Weft rank sends")                                    \
    X(ERR_MISMATCH, 10, "the ranks made different calls or have different settings")               \
    X(ERR_DUPLICATE, 11, "the rank is taken, or belongs to another job")                           \
    X(ERR_TRUNCATED, 12, "the message is longer than the buffer")                                  \
    X(ERR_ABORTED, 13, "a rank aborted the communicator")                                          \
    X(ERR_FORKED, 14, "the handle belongs to the parent process")                                  \
    X(ERR_BUSY, 15, "not possible at this point")                                                  \
    X(ERR_UNSUPPORTED, 16, "not supported on this host or by this build")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, number, sentence) WEFT_##name = (number),
    WEFT_STATUS_LIST(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status_t;

/* The name ("ERR_PEER") or the general sentence of a status; never NULL, any thread. */
const char *weft_status_name(weft_status_t status);
const char *weft_status_text(weft_status_t status);

/* What the calling thread's latest failed call had to say; "" before the first. Owned by Weft,
 * valid until the thread's next failing call. */
const char *weft_error_text(void);

/* "0.1.0" */
const char *weft_version(void);

/* ---- identity of a job -------------------------------------------------------------------- */

/* Says where the root listens and proves membership: address, job id, epoch and a 256-bit secret.
 * Give it to the other ranks over a channel that strangers cannot read. */
typedef struct weft_id {
    uint8_t bytes[128];
} weft_id_t;

#define WEFT_ID_TEXT_LEN 192 /* room for either printable form, with its final zero */

/* Optional settings; fill with WEFT_CONFIG_INIT and change what you need. Zero means: as the
 * environment (`weft params`) says. */
typedef struct weft_config {
    size_t size;               /* sizeof(weft_config_t), for growth */
    uint32_t start_timeout_ms; /* how long creating a communicator may take */
    uint32_t timeout_ms;       /* how long one operation may take */
    const char *interface;     /* as WEFT_SOCKET_IFNAME; lent during the call */
} weft_config_t;

/* clang-format off */
#define WEFT_CONFIG_INIT {sizeof(weft_config_t), 0, 0, NULL}
/* clang-format on */

/*
 * Makes an id and opens the root's listener at once: ranks may join before the root calls
 * weft_comm_create(), nothing is closed and bound again. The process that makes the id must also
 * create a communicator with it (it becomes the root), or call weft_id_destroy().
 * config may be NULL. Does not block.
 * ERR_INVALID (interface, port range), ERR_BUSY (no port of the range is free), ERR_SYSTEM,
 * ERR_MEMORY.
 */
weft_status_t weft_id_create(const weft_config_t *config, weft_id_t *id_p);

/* Closes the listener of an id made here that no communicator took; harmless otherwise. */
void weft_id_destroy(const weft_id_t *id);

/* The form to pass on, secret included ("weft1:…"), and the form for logs, without it. text holds
 * WEFT_ID_TEXT_LEN bytes. ERR_INVALID when id was not made by weft_id_create(); ERR_VERSION. */
weft_status_t weft_id_print(const weft_id_t *id, char *text);
weft_status_t weft_id_print_public(const weft_id_t *id, char *text);

/* Reads the form to pass on. ERR_INVALID, ERR_VERSION. */
weft_status_t weft_id_parse(const char *text, weft_id_t *id_p);

/* ---- communicators ------------------------------------------------------------------------ */

typedef struct weft_comm *weft_comm_t;

#define WEFT_RANKS_MAX 1000000

/*
 * Joins the job as `rank` of `ranks`. Blocks until every rank has joined, at most
 * config->start_timeout_ms (WEFT_START_TIMEOUT). config may be NULL.
 * ERR_INVALID, ERR_TIMEOUT (the text names the missing ranks), ERR_AUTH, ERR_VERSION, ERR_DUPLICATE
 * (the text names both addresses), ERR_MISMATCH (settings differ; names both ranks), ERR_PEER (a
 * rank joined and went away), ERR_PROTOCOL, ERR_NETWORK, ERR_SYSTEM, ERR_MEMORY.
 */
weft_status_t weft_comm_create(const weft_id_t *id, int rank, int ranks,
                               const weft_config_t *config, weft_comm_t *comm_p);

/* The same with several roots, for very large jobs: id k serves ranks k·ranks/id_count up to
 * (k+1)·ranks/id_count, and must have been made by the process of one of them. */
weft_status_t weft_comm_create_scalable(const weft_id_t *ids, int id_count, int rank, int ranks,
                                        const weft_config_t *config, weft_comm_t *comm_p);

/* Takes rank, ranks, root and secret from the environment (weft run, torchrun, Slurm, mpirun: the
 * table is in docs/bootstrap.md). ERR_INVALID when it says too little or contradicts itself; else
 * as weft_comm_create(), and ERR_BUSY (the root's port or name is taken), ERR_FORKED (the secret was
 * read by the parent process). */
weft_status_t weft_init(const weft_config_t *config, weft_comm_t *comm_p);

/* Who am I, of how many. ERR_INVALID, ERR_FORKED. */
weft_status_t weft_comm_rank(weft_comm_t comm, int *rank_p);
weft_status_t weft_comm_ranks(weft_comm_t comm, int *ranks_p);

/* Which ranks run on this host: my number among them and how many. */
weft_status_t weft_comm_local(weft_comm_t comm, int *local_rank_p, int *local_ranks_p);

/* A communicator of the ranks that gave the same colour, ordered by key, then by rank. A negative
 * colour takes part and gets none (*comm_p becomes NULL). Collective; blocks until all ranks have
 * called it. The new one must be closed before its parent. ERR_PEER, ERR_TIMEOUT, ERR_ABORTED,
 * ERR_MEMORY, … */
weft_status_t weft_comm_split(weft_comm_t comm, int colour, int key, weft_comm_t *comm_p);

/* WEFT_OK while the communicator works, else what ended it; the text names the rank. Any thread;
 * does not block. */
weft_status_t weft_comm_status(weft_comm_t comm);

/* Ends the communicator on all ranks: every call on it, also one that waits, returns ERR_ABORTED
 * with this reason (may be NULL). Any thread. Returns when the root has told everybody, or after a
 * fifth of a second. */
weft_status_t weft_abort(weft_comm_t comm, const char *reason);

/* Flushes what this rank sent, tells the others and frees everything. Local: it does not wait for
 * the other ranks; calls of theirs that still need this rank fail with ERR_PEER "closed". So do calls
 * between ranks that only reach each other through it, the root above all: let the ranks meet in a
 * barrier before they close. NULL is fine. Always returns, within a second. ERR_FORKED (nothing is touched), ERR_BUSY (split
 * communicators are still open). */
weft_status_t weft_comm_close(weft_comm_t comm);

/* ---- the control plane: small messages over the tree that start-up built ------------------- */

#define WEFT_CONTROL_MAX 65536 /* longest control message or contribution, bytes */

/*
 * Collective: every rank makes the same calls in the same order. Block until done or until the
 * communicator's deadline. ERR_INVALID, ERR_PEER (rank named), ERR_TIMEOUT (the absent ranks
 * named), ERR_MISMATCH (both calls named), ERR_ABORTED, ERR_NETWORK.
 */
weft_status_t weft_control_barrier(weft_comm_t comm);
/* every rank's len bytes to every rank: all is ranks × len (at most 32 MiB), rank r's at r × len */
weft_status_t weft_control_allgather(weft_comm_t comm, const void *mine, size_t len, void *all);
/* root's len bytes to every rank */
weft_status_t weft_control_broadcast(weft_comm_t comm, void *data, size_t len, int root);

/* Sends len ≤ WEFT_CONTROL_MAX bytes to rank `to`. Returns when the bytes are copied; blocks when
 * more than 64 KiB to that rank have not been received. ERR_TIMEOUT, ERR_PEER, … as above. */
weft_status_t weft_control_send(weft_comm_t comm, int to, uint32_t tag, const void *data,
                                size_t len);
/* Receives the next message of rank `from` with this tag. *len_p (may be NULL) is its length;
 * longer than `room`: ERR_TRUNCATED, and the message stays. Blocks. */
weft_status_t weft_control_recv(weft_comm_t comm, int from, uint32_t tag, void *data, size_t room,
                                size_t *len_p);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
