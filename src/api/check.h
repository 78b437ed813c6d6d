/* SPDX-License-Identifier: Apache-2.0 */
/* Private to api: the checks every call begins with. `call` is the public name, for the text. */
#ifndef WEFT_API_CHECK_H
#define WEFT_API_CHECK_H

#include "comm/comm.h"

/* No handle, somebody else's handle. */
weft_status_t weft_api_check_comm(weft_comm_t comm, const char *call);
weft_status_t weft_api_check_pointer(const void *pointer, const char *call, const char *name);
weft_status_t weft_api_refuse_rank(weft_comm_t comm, int rank, const char *call);
static inline weft_status_t weft_api_check_rank(weft_comm_t comm, int rank, const char *call)
{
    return (uint32_t)rank < comm->ranks ? WEFT_OK : weft_api_refuse_rank(comm, rank, call);
}
/* Would check_comm() find nothing? Without a call, for the way of every message. */
static inline bool weft_api_is_usable(weft_comm_t comm)
{
    return comm != NULL && comm->magic == WEFT_COMM_MAGIC &&
           comm->generation == atomic_load_explicit(&weft_process_number, memory_order_relaxed);
}

/* What a call that may have waited returns: when its communicator has failed, that is in a file first. */
weft_status_t weft_api_failed(struct weft_job *job, weft_status_t status);
static inline weft_status_t weft_api_settle(weft_comm_t comm, weft_status_t status)
{
    return status == WEFT_OK ? WEFT_OK : weft_api_failed(comm->job, status);
}

/* ---- check_call.c: of a collective ---- */
static inline bool weft_api_is_rooted(weft_coll_t coll)
{
    return coll == WEFT_BROADCAST || coll == WEFT_REDUCE || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER;
}

static inline bool weft_api_is_summed(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE || coll == WEFT_REDUCE_SCATTER;
}

weft_status_t weft_api_check_kinds(weft_comm_t comm, const weft_call_t *call, const char *name);
weft_status_t weft_api_check_buffers(weft_comm_t comm, const weft_call_t *call, const char *name);

#endif
