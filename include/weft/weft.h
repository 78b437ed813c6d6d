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
 * Threads: different communicators may be used by different threads at the same time. Messages,
 * one-sided operations and requests: any thread, several at once, also on one communicator (one
 * request belongs to one thread at a time). The collective calls on one communicator (split, the
 * control plane, closing) have one order and come from one thread at a time; a second one gets
 * ERR_BUSY. weft_abort() and weft_comm_status(): any thread, any time until weft_comm_close() begins.
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
 * called it. The new one must be closed before its parent. The death of a rank that is no member ends it as well
 * where members reached each other through it (the root, or a host's first rank): words may have been lost with it;
 * weft_comm_shrink() goes on. ERR_PEER, ERR_TIMEOUT, ERR_ABORTED,
 * ERR_MEMORY, … */
weft_status_t weft_comm_split(weft_comm_t comm, int colour, int key, weft_comm_t *comm_p);

/* A communicator of those who are left, in their order, after ranks of this one died or closed. Collective among
 * them: it returns when all who are not gone have called it, at the latest after the communicator's timeout
 * (weft_comm_set_timeout(); ERR_TIMEOUT names who has not), also when more ranks die meanwhile. The one it is made
 * from may have failed, and stays open: the new one must be closed before it. ERR_NETWORK: this rank is cut off with no
 * more than half of those who may be alive; only the other part goes on. */
weft_status_t weft_comm_shrink(weft_comm_t comm, weft_comm_t *comm_p);

/* WEFT_OK while the communicator works, else what ended it; the text names the rank. Any thread;
 * does not block. */
weft_status_t weft_comm_status(weft_comm_t comm);

/* The same in detail; itself it returns WEFT_OK. Any thread; does not block. */
typedef struct weft_error {
    weft_status_t status; /* WEFT_OK: it works */
    int rank; /* who failed, a rank of this communicator; of ERR_TIMEOUT a member that stands still, if one is
               * known to, else who was waited for; -1: nobody in particular, or not a member */
    uint32_t verdict; /* the coordinator's number; 0: this rank's own judgement */
    char text[256];
} weft_error_t;
weft_status_t weft_comm_get_error(weft_comm_t comm, weft_error_t *error_p);

/* A descriptor that is readable (poll, epoll) once the communicator has ended. It stays the communicator's: do not read
 * or close it. Any thread. ERR_SYSTEM. */
weft_status_t weft_comm_error_fd(weft_comm_t comm, int *fd_p);

/* Ends the communicator on all ranks: every call on it, also one that waits, returns ERR_ABORTED
 * with this reason (may be NULL). Any thread. Returns when the coordinator has told everybody, or after a
 * fifth of a second (0.7 s where one on the way to it is stopped, 2.1 s at most where WEFT_HEARTBEAT is long);
 * with WEFT_DUMP after another fifth at the latest. Not from a signal handler. */
weft_status_t weft_abort(weft_comm_t comm, const char *reason);

/* Writes this rank's flight recorder, its latest operations on all communicators of the job (WEFT_RECORDER
 * says how many), to a file, for `weft inspect`. path: the file, which is replaced; or a directory, in which
 * it is called weft-JOB-rank-N.dump; NULL: the directory of WEFT_DUMP. (With WEFT_DUMP every rank does so by
 * itself when a communicator fails; calls that fail wait for it, for a fifth of a second at most.) Local;
 * blocks as long as writing takes. Any thread. ERR_INVALID (no path, or one of something that is no regular
 * file), ERR_UNSUPPORTED (WEFT_RECORDER is 0), ERR_SYSTEM, ERR_MEMORY. */
weft_status_t weft_dump(weft_comm_t comm, const char *path);

/* Flushes what this rank sent, tells the others and frees everything. Local: it does not wait for
 * the other ranks, except right after a failure until they have heard of it (0.4 s at most); calls of theirs
 * that still need this rank fail with ERR_PEER "closed". So may calls between ranks that reached each other
 * through it, the root above all: let the ranks meet in a barrier before they close. Requests that are not
 * done end here and must not be used any more. NULL is fine. Always returns, within a second; within three
 * where the path to another host has just died and its last words must find another one, or while a rank
 * between it and the coordinator is stopped. ERR_FORKED (nothing is touched), ERR_BUSY (split communicators
 * are still open); ERR_TIMEOUT: closed, but a rank, which is named, has not taken the last messages to it
 * within half a second (it is stopped, or has not made any call yet): they are lost. */
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

/* ---- messages ------------------------------------------------------------------------------ */

#define WEFT_ANY_SOURCE (-1)
#define WEFT_ANY_TAG (-1)
#define WEFT_NO_LIMIT UINT32_MAX /* of a wait: until the operation's own deadline */

/* An operation that was begun and not finished. Freed, and the variable set to NULL, by the call that
 * reports its end. */
typedef struct weft_request *weft_request_t;

/* What a receive or a probe found. */
typedef struct weft_message {
    int source, tag;
    size_t len;
} weft_message_t;

/*
 * Sends len bytes (0 is fine) to rank `to` (also oneself) with tag ≥ 0. request_p NULL: blocks until
 * the memory is the caller's again, which does not mean that the message was received. Otherwise
 * returns at once and the memory is lent until the request is done.
 * Messages from one rank to another that a receive could match are received in the order of their
 * sends. Every operation ends by the communicator's deadline (weft_comm_set_timeout()).
 * ERR_INVALID, ERR_PEER (rank named), ERR_TIMEOUT (rank named; the communicator has failed),
 * ERR_ABORTED, ERR_NETWORK, ERR_PROTOCOL, ERR_SYSTEM, ERR_MEMORY. Any thread.
 */
weft_status_t weft_send(weft_comm_t comm, const void *data, size_t len, int to, int tag,
                        weft_request_t *request_p);

/*
 * Receives into data, at most `room` bytes, from rank `from` (or WEFT_ANY_SOURCE) with this tag (or
 * WEFT_ANY_TAG). message_p (may be NULL) says what came; with a request it is lent like the data and
 * written when it is done. A longer message: ERR_TRUNCATED, message_p says how long it was, the first
 * `room` bytes may have been written and the message is gone. From WEFT_ANY_SOURCE when all others have
 * closed or died: ERR_PEER. Else as weft_send().
 */
weft_status_t weft_recv(weft_comm_t comm, void *data, size_t room, int from, int tag,
                        weft_message_t *message_p, weft_request_t *request_p);

/* Waits at most timeout_ms (0: looks once; at most the communicator's limit) for a message that a receive with these arguments would
 * get, and says what it is, without receiving it. ERR_TIMEOUT: none came. Any thread. */
weft_status_t weft_probe(weft_comm_t comm, int from, int tag, uint32_t timeout_ms,
                         weft_message_t *message_p);

/* *is_done_p: 1 when the operation has ended; then its result is returned and the request freed.
 * 0: WEFT_OK, it goes on. Drives progress; does not block. */
weft_status_t weft_test(weft_request_t *request, int *is_done_p);

/* Waits at most timeout_ms. ERR_TIMEOUT with *request not NULL: the wait is over, the operation goes
 * on. Otherwise the operation's result. A request that is NULL is done already: WEFT_OK. */
weft_status_t weft_wait(weft_request_t *request, uint32_t timeout_ms);

/* Waits for one of them (NULL entries are skipped; all NULL: index -1 at once); *index_p says which,
 * also when its result, which is returned, is an error. ERR_TIMEOUT with index -1: none ended. */
weft_status_t weft_wait_any(weft_request_t *requests, int count, uint32_t timeout_ms, int *index_p);

/* Waits for all of them. Returns the first error; those still going after the timeout are not NULL. */
weft_status_t weft_wait_all(weft_request_t *requests, int count, uint32_t timeout_ms);

/* WEFT_OK: nothing has happened and nothing will, the request is freed (a NULL one was before).
 * ERR_BUSY: too late, a message was matched or is on its way; wait for it. */
weft_status_t weft_cancel(weft_request_t *request);

/* How long the operations begun from now on may take, in ms (0: as WEFT_TIMEOUT says); and this one
 * operation, from now. */
weft_status_t weft_comm_set_timeout(weft_comm_t comm, uint32_t timeout_ms);
weft_status_t weft_request_set_timeout(weft_request_t request, uint32_t timeout_ms);

/* Between begin and end, this thread's sends and receives on the communicator with request_p NULL are
 * begun only; end waits for all of them and returns the first error. So ranks may send to each other
 * without an order of who receives first. Groups nest; the outermost end waits. */
weft_status_t weft_group_begin(weft_comm_t comm);
weft_status_t weft_group_end(weft_comm_t comm);

/* ---- one-sided ------------------------------------------------------------------------------ */

/* Memory that ranks of this host read and write directly: transfers in it are one copy or none.
 * Zeroed, page-aligned, reserved at once (ERR_MEMORY instead of a later SIGBUS). Needs no
 * communicator. ERR_INVALID, ERR_MEMORY, ERR_SYSTEM. Any thread. */
weft_status_t weft_alloc(size_t len, void **memory_p);
/* Nothing may be in flight in it and no registration left. NULL is fine. ERR_INVALID: not from
 * weft_alloc(); ERR_BUSY: it is registered still, and stays. */
weft_status_t weft_free(void *memory);

/* Names a piece of a rank's memory to other ranks: plain bytes, send them as you like. */
typedef struct weft_mem {
    uint8_t bytes[64];
} weft_mem_t;

/* Lets the ranks of the communicator put into and get from memory (from anywhere; from weft_alloc()
 * is fastest) until deregistered. ERR_INVALID (also: longer than the allocation of weft_alloc() that
 * it begins in), ERR_MEMORY. Any thread. */
weft_status_t weft_mem_register(weft_comm_t comm, void *memory, size_t len, weft_mem_t *mem_p);
/* Later accesses of other ranks fail there with ERR_INVALID. ERR_INVALID: not registered here. */
weft_status_t weft_mem_deregister(weft_comm_t comm, const weft_mem_t *mem);

/*
 * Copies len bytes to mem + offset, or from there, without the other rank's help. Return when the
 * operation is begun (they wait only while too many are in flight); the local memory is lent until
 * weft_quiet(). ERR_INVALID (outside the registered memory, or mem is not of this communicator),
 * otherwise as weft_send(). What fails later is reported by the next weft_quiet().
 */
weft_status_t weft_put(weft_comm_t comm, const weft_mem_t *mem, size_t offset, const void *data,
                       size_t len);
weft_status_t weft_get(weft_comm_t comm, const weft_mem_t *mem, size_t offset, void *data,
                       size_t len);
/* As weft_put(); when the data is there, adds `add` to the 64-bit word (8-aligned) at signal_mem +
 * signal_offset, which must belong to the same rank. */
weft_status_t weft_put_signal(weft_comm_t comm, const weft_mem_t *mem, size_t offset,
                              const void *data, size_t len, const weft_mem_t *signal_mem,
                              size_t signal_offset, uint64_t add);
/* Waits until the word, which lies in memory registered here (not checked), is at least `value`.
 * ERR_TIMEOUT at timeout_ms (the communicator goes on); with WEFT_NO_LIMIT at the communicator's
 * deadline, which ends it. ERR_PEER: all other ranks have closed or died; as long as one is left it
 * waits. */
weft_status_t weft_wait_signal(weft_comm_t comm, const uint64_t *signal, uint64_t value,
                               uint32_t timeout_ms);
/* What this rank puts to a rank after the fence is there only after what it put before. */
weft_status_t weft_fence(weft_comm_t comm);
/* Blocks until everything this rank has put and got on the communicator is done, at the other side
 * too. Returns the first error since the last quiet. */
weft_status_t weft_quiet(weft_comm_t comm);

/* ---- collectives ---------------------------------------------------------------------------- */

/* name, number, bytes, text */
#define WEFT_DTYPE_LIST(X)                                                                         \
    X(I8, 0, 1, "i8")                                                                              \
    X(U8, 1, 1, "u8")                                                                              \
    X(I16, 2, 2, "i16")                                                                            \
    X(U16, 3, 2, "u16")                                                                            \
    X(I32, 4, 4, "i32")                                                                            \
    X(U32, 5, 4, "u32")                                                                            \
    X(I64, 6, 8, "i64")                                                                            \
    X(U64, 7, 8, "u64")                                                                            \
    X(F16, 8, 2, "f16")                                                                            \
    X(BF16, 9, 2, "bf16")                                                                          \
    X(F32, 10, 4, "f32")                                                                           \
    X(F64, 11, 8, "f64")                                                                           \
    X(F8E4M3, 12, 1, "f8e4m3")                                                                     \
    X(F8E5M2, 13, 1, "f8e5m2")

typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(name, number, bytes, text) WEFT_##name = (number),
    WEFT_DTYPE_LIST(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
} weft_dtype_t;
#define WEFT_DTYPES 14

/* Integers wrap around; avg of integers is that sum divided by the number of ranks, towards zero. min and
 * max of floats: a NaN wins. band, bor, bxor: integers only. scaled: every input times `scale`, then the
 * sum; floats only. */
#define WEFT_REDOP_LIST(X)                                                                         \
    X(SUM, 0, "sum")                                                                               \
    X(PROD, 1, "prod")                                                                             \
    X(MIN, 2, "min")                                                                               \
    X(MAX, 3, "max")                                                                               \
    X(AVG, 4, "avg")                                                                               \
    X(BAND, 5, "band")                                                                             \
    X(BOR, 6, "bor")                                                                               \
    X(BXOR, 7, "bxor")                                                                             \
    X(SCALED, 8, "scaled")

typedef enum weft_redop {
#define WEFT_REDOP_ENUM(name, number, text) WEFT_##name = (number),
    WEFT_REDOP_LIST(WEFT_REDOP_ENUM)
#undef WEFT_REDOP_ENUM
} weft_redop_t;
#define WEFT_REDOPS 9

#define WEFT_COLL_LIST(X)                                                                          \
    X(ALLREDUCE, 0, "allreduce")                                                                   \
    X(REDUCE_SCATTER, 1, "reduce_scatter")                                                         \
    X(ALLGATHER, 2, "allgather")                                                                   \
    X(BROADCAST, 3, "broadcast")                                                                   \
    X(REDUCE, 4, "reduce")                                                                         \
    X(GATHER, 5, "gather")                                                                         \
    X(SCATTER, 6, "scatter")                                                                       \
    X(ALLTOALL, 7, "alltoall")                                                                     \
    X(BARRIER, 8, "barrier")

typedef enum weft_coll {
#define WEFT_COLL_ENUM(name, number, text) WEFT_##name = (number),
    WEFT_COLL_LIST(WEFT_COLL_ENUM)
#undef WEFT_COLL_ENUM
} weft_coll_t;
#define WEFT_COLLS 9

/* "f32", "sum", "allreduce"; "?" for a number that is none. And bytes of one element; 0: none. */
const char *weft_dtype_name(weft_dtype_t dtype);
const char *weft_redop_name(weft_redop_t redop);
const char *weft_coll_name(weft_coll_t coll);
size_t weft_dtype_size(weft_dtype_t dtype);

/*
 * Every rank of the communicator makes the same calls in the same order, with the same count, dtype, op
 * and root (ERR_MISMATCH otherwise, on every rank, naming both calls; a rank whose part needed none of the
 * others may have got WEFT_OK before: then its next call that needs them says it). Split, duplicate and the
 * control plane's collectives are part of that order. The text of an error
 * begins with the call: "allreduce #12 (f32 x 100, sum): …". in == out is in place (see each); in and out
 * that overlap otherwise are refused (ERR_INVALID). Undefined results come of pieces of out that overlap each
 * other, and of in and out of an alltoall with places: how those lie is not looked at.
 * request_p NULL: blocks. Otherwise returns at once, the memory is lent until the request is done; those
 * of one communicator run one after another, in the order they were begun. The first one of a communicator
 * makes what its ranks share ready and waits for all of them, also with a request. In a group
 * (weft_group_begin()) with request_p NULL: begun only, weft_group_end() waits.
 * Counts are elements and may be 0; buffers of which nothing is read or written may be NULL.
 * ERR_INVALID, ERR_PEER (rank named), ERR_TIMEOUT (the ranks that are waited for are named), ERR_MISMATCH,
 * ERR_ABORTED, ERR_NETWORK, ERR_PROTOCOL, ERR_SYSTEM, ERR_MEMORY, ERR_UNSUPPORTED (the chosen algorithm
 * cannot do it; all ranks alike, before anything is sent). After ERR_INVALID and ERR_UNSUPPORTED the
 * communicator goes on, after other errors it has failed.
 * Threads: begun by one thread at a time per communicator (else ERR_BUSY); waited for by any.
 */
/* out[i] = in of rank 0 [i] op … op in of rank n-1 [i], on every rank. In place: in == out. */
weft_status_t weft_allreduce(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, weft_redop_t op, weft_request_t *request_p);
/* in: ranks × count; rank r gets the r-th piece, reduced. In place: out == in + rank × count, elements. */
weft_status_t weft_reduce_scatter(weft_comm_t comm, const void *in, void *out, size_t count,
                                  weft_dtype_t dtype, weft_redop_t op, weft_request_t *request_p);
/* out: ranks × count, rank r's in at r × count. In place: in == out + rank × count. */
weft_status_t weft_allgather(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, weft_request_t *request_p);
/* root's in to every rank's out; in is read on root only (in == out: in place), out written on all. */
weft_status_t weft_broadcast(weft_comm_t comm, const void *in, void *out, size_t count,
                             weft_dtype_t dtype, int root, weft_request_t *request_p);
/* As allreduce, out is written on root only. */
weft_status_t weft_reduce(weft_comm_t comm, const void *in, void *out, size_t count,
                          weft_dtype_t dtype, weft_redop_t op, int root, weft_request_t *request_p);
/* As allgather, out is written on root only. */
weft_status_t weft_gather(weft_comm_t comm, const void *in, void *out, size_t count,
                          weft_dtype_t dtype, int root, weft_request_t *request_p);
/* root's in: ranks × count; rank r gets the r-th piece. In place on root: out == in + root × count. */
weft_status_t weft_scatter(weft_comm_t comm, const void *in, void *out, size_t count,
                           weft_dtype_t dtype, int root, weft_request_t *request_p);
/* in and out: ranks × count; piece q of rank r's in becomes piece r of rank q's out. in must not be out. */
weft_status_t weft_alltoall(weft_comm_t comm, const void *in, void *out, size_t count,
                            weft_dtype_t dtype, weft_request_t *request_p);
weft_status_t weft_barrier(weft_comm_t comm, weft_request_t *request_p);

/* Any collective, spelled out: for pieces of different sizes, the scaled sum, one call's own deadline or
 * algorithm. Fill with WEFT_CALL_INIT. Arrays are [ranks], in elements, lent until the call's end. */
typedef struct weft_call {
    size_t size; /* sizeof(weft_call_t), for growth */
    weft_coll_t coll;
    weft_dtype_t dtype;
    weft_redop_t op;
    int root;
    const void *in;
    void *out;
    size_t count; /* as in the calls above; not used where the arrays say it */
    double scale; /* of WEFT_SCALED */
    /* Sizes and places of the pieces: in_* of reduce_scatter, scatter (on root), alltoall; out_* of
     * allgather, gather (on root), alltoall. NULL: all of `count`, one after another. Places NULL: one
     * after another. gather, scatter: `count` is this rank's own piece, and only the root has arrays. All
     * ranks of an allgather, reduce_scatter or alltoall give arrays, or none does. */
    const size_t *in_counts, *in_places;
    const size_t *out_counts, *out_places;
    uint32_t timeout_ms; /* 0: the communicator's */
    const char
        *algorithm; /* NULL: the best, as WEFT_ALGO or the model says; lent during the call */
} weft_call_t;
/* clang-format off */
#define WEFT_CALL_INIT {sizeof(weft_call_t), WEFT_BARRIER, WEFT_U8, WEFT_SUM, 0, NULL, NULL, 0, 1.0, \
                        NULL, NULL, NULL, NULL, 0, NULL}
/* clang-format on */
weft_status_t weft_collective(weft_comm_t comm, const weft_call_t *call, weft_request_t *request_p);

/* A collective that is made ready once and started many times, with the same memory and counts; arrays are
 * lent as long as it lives. Making it is local. Start: as the calls above; ERR_BUSY while the one before
 * is not done. Destroy: not while it runs (ERR_BUSY), but in any case when its communicator has failed or was
 * closed, with which it ended; NULL is fine. */
typedef struct weft_op *weft_op_t;
weft_status_t weft_op_create(weft_comm_t comm, const weft_call_t *call, weft_op_t *op_p);
weft_status_t weft_op_start(weft_op_t op);
weft_status_t weft_op_wait(weft_op_t op, uint32_t timeout_ms); /* as weft_wait() */
weft_status_t weft_op_destroy(weft_op_t op);

/* The same ranks again, with an order of calls of their own. Collective, as weft_comm_split(). */
weft_status_t weft_comm_duplicate(weft_comm_t comm, weft_comm_t *comm_p);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
