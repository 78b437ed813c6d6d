/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions: argument checks and handles, then one call down. */
#include "api/check.h"
#include "wire/wire.h"

#include <stdio.h>
#include <stdlib.h>

/* Every call on a communicator begins here: no handle, somebody else's handle. */
weft_status_t weft_api_check_comm(weft_comm_t comm, const char *call)
{
    if (comm == NULL) {
        return weft_fail(WEFT_ERR_INVALID, "%s: the communicator is NULL", call);
    }
    if (comm->magic != WEFT_COMM_MAGIC) {
        return weft_fail(WEFT_ERR_INVALID, "%s: this communicator was closed, or never was one",
                         call);
    }
    if (comm->generation != atomic_load_explicit(&weft_process_number, memory_order_relaxed)) {
        return weft_fail(
            WEFT_ERR_FORKED,
            "%s: this communicator was made by the parent process; a forked child cannot use it",
            call);
    }
    return WEFT_OK;
}

weft_status_t weft_api_failed(struct weft_job *job, weft_status_t status)
{
    weft_comm_dump_await(job);
    return status;
}

/* The calls of one communicator come from one thread at a time. */
static weft_status_t enter(weft_comm_t comm, const char *call)
{
    weft_status_t status = weft_api_check_comm(comm, call);
    if (status == WEFT_OK && atomic_exchange(&comm->is_in_call, true)) {
        return weft_fail(
            WEFT_ERR_BUSY,
            "%s: another thread is in a call on this communicator; split it, or take turns", call);
    }
    return status;
}

/* … and is recorded. peer: or root. */
static weft_status_t enter_call(weft_comm_t comm, const char *call, enum weft_record_kind kind,
                                size_t count, int peer, uint32_t tag)
{
    weft_status_t status = enter(comm, call);
    if (status == WEFT_OK) {
        weft_comm_record_control(comm, kind, count, (uint32_t)peer, tag);
    }
    return status;
}

static weft_status_t leave(weft_comm_t comm, weft_status_t status)
{
    weft_comm_record_control_end(comm, status);
    status = weft_api_settle(comm, status);
    atomic_store(&comm->is_in_call, false);
    return status;
}

static weft_status_t check_config(const weft_config_t *config, const char *call)
{
    if (config != NULL && config->size != sizeof(*config)) {
        return weft_fail(WEFT_ERR_INVALID,
                         "%s: config.size is %zu, expected %zu; begin with WEFT_CONFIG_INIT", call,
                         config->size, sizeof(*config));
    }
    return WEFT_OK;
}

weft_status_t weft_api_check_pointer(const void *pointer, const char *call, const char *name)
{
    return pointer != NULL ? WEFT_OK : weft_fail(WEFT_ERR_INVALID, "%s: %s is NULL", call, name);
}

/* ---- ids ---- */

weft_status_t weft_id_create(const weft_config_t *config, weft_id_t *id_p)
{
    weft_status_t status = weft_api_check_pointer(id_p, __func__, "id_p");
    status = status == WEFT_OK ? check_config(config, __func__) : status;
    return status == WEFT_OK ? weft_comm_id_create(config, id_p) : status;
}

void weft_id_destroy(const weft_id_t *id)
{
    if (id != NULL) {
        weft_comm_id_destroy(id);
    }
}

weft_status_t weft_id_print(const weft_id_t *id, char *text)
{
    struct weft_wire_id decoded;
    weft_status_t status = weft_api_check_pointer(id, __func__, "id");
    status = status == WEFT_OK ? weft_api_check_pointer(text, __func__, "text") : status;
    status = status == WEFT_OK ? weft_wire_id_decode(id, &decoded) : status;
    if (status == WEFT_OK) {
        weft_secret_wipe(&decoded, sizeof(decoded));
        weft_wire_id_print(id, text);
    }
    return status;
}

weft_status_t weft_id_print_public(const weft_id_t *id, char *text)
{
    weft_status_t status = weft_api_check_pointer(id, __func__, "id");
    status = status == WEFT_OK ? weft_api_check_pointer(text, __func__, "text") : status;
    return status == WEFT_OK ? weft_wire_id_print_public(id, text) : status;
}

weft_status_t weft_id_parse(const char *text, weft_id_t *id_p)
{
    weft_status_t status = weft_api_check_pointer(text, __func__, "text");
    status = status == WEFT_OK ? weft_api_check_pointer(id_p, __func__, "id_p") : status;
    return status == WEFT_OK ? weft_wire_id_parse(text, id_p) : status;
}

/* ---- communicators ---- */

static weft_status_t check_place(int id_count, int rank, int ranks, const char *call)
{
    if (ranks < 1 || rank < 0 || rank >= ranks) {
        return weft_fail(WEFT_ERR_INVALID, "%s: rank %d of %d; expected 0 <= rank < ranks", call,
                         rank, ranks);
    }
    if (ranks > WEFT_RANKS_MAX) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %d ranks; at most %d are supported", call, ranks,
                         WEFT_RANKS_MAX);
    }
    if (id_count < 1 || id_count > ranks) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %d ids for %d ranks; expected 1 to %d", call,
                         id_count, ranks, ranks);
    }
    return WEFT_OK;
}

weft_status_t weft_comm_create_scalable(const weft_id_t *ids, int id_count, int rank, int ranks,
                                        const weft_config_t *config, weft_comm_t *comm_p)
{
    weft_status_t status = weft_api_check_pointer(ids, __func__, "ids");
    status = status == WEFT_OK ? weft_api_check_pointer(comm_p, __func__, "comm_p") : status;
    status = status == WEFT_OK ? check_config(config, __func__) : status;
    status = status == WEFT_OK ? check_place(id_count, rank, ranks, __func__) : status;
    return status == WEFT_OK ? weft_comm_create_by_ids(ids, id_count, rank, ranks, config, comm_p)
                             : status;
}

weft_status_t weft_comm_create(const weft_id_t *id, int rank, int ranks,
                               const weft_config_t *config, weft_comm_t *comm_p)
{
    weft_status_t status = weft_api_check_pointer(id, __func__, "the id");
    status = status == WEFT_OK ? weft_api_check_pointer(comm_p, __func__, "comm_p") : status;
    status = status == WEFT_OK ? check_config(config, __func__) : status;
    status = status == WEFT_OK ? check_place(1, rank, ranks, __func__) : status;
    return status == WEFT_OK ? weft_comm_create_by_ids(id, 1, rank, ranks, config, comm_p) : status;
}

weft_status_t weft_init(const weft_config_t *config, weft_comm_t *comm_p)
{
    weft_status_t status = weft_api_check_pointer(comm_p, __func__, "comm_p");
    status = status == WEFT_OK ? check_config(config, __func__) : status;
    return status == WEFT_OK ? weft_comm_create_by_environment(config, comm_p) : status;
}

weft_status_t weft_comm_rank(weft_comm_t comm, int *rank_p)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    status = status == WEFT_OK ? weft_api_check_pointer(rank_p, __func__, "rank_p") : status;
    if (status == WEFT_OK) {
        *rank_p = (int)comm->rank;
    }
    return status;
}

weft_status_t weft_comm_ranks(weft_comm_t comm, int *ranks_p)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    status = status == WEFT_OK ? weft_api_check_pointer(ranks_p, __func__, "ranks_p") : status;
    if (status == WEFT_OK) {
        *ranks_p = (int)comm->ranks;
    }
    return status;
}

weft_status_t weft_comm_local(weft_comm_t comm, int *local_rank_p, int *local_ranks_p)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    status =
        status == WEFT_OK ? weft_api_check_pointer(local_rank_p, __func__, "local_rank_p") : status;
    status = status == WEFT_OK ? weft_api_check_pointer(local_ranks_p, __func__, "local_ranks_p")
                               : status;
    if (status == WEFT_OK) {
        weft_comm_local_ranks(comm, local_rank_p, local_ranks_p);
    }
    return status;
}

weft_status_t weft_comm_split(weft_comm_t comm, int colour, int key, weft_comm_t *comm_p)
{
    weft_status_t status = weft_api_check_pointer(comm_p, __func__, "comm_p");
    status = status == WEFT_OK ? enter_call(comm, __func__, WEFT_RECORD_SPLIT, 0, 0, 0) : status;
    return status == WEFT_OK ? leave(comm, weft_comm_split_off(comm, colour, key, comm_p)) : status;
}

weft_status_t weft_comm_shrink(weft_comm_t comm, weft_comm_t *comm_p)
{
    weft_status_t status = weft_api_check_pointer(comm_p, __func__, "comm_p");
    status = status == WEFT_OK ? enter_call(comm, __func__, WEFT_RECORD_SHRINK, 0, 0, 0) : status;
    return status == WEFT_OK ? leave(comm, weft_comm_shrink_to(comm, comm_p)) : status;
}

weft_status_t weft_comm_duplicate(weft_comm_t comm, weft_comm_t *comm_p)
{
    weft_status_t status = weft_api_check_pointer(comm_p, __func__, "comm_p");
    status =
        status == WEFT_OK ? enter_call(comm, __func__, WEFT_RECORD_DUPLICATE, 0, 0, 0) : status;
    return status == WEFT_OK ? leave(comm, weft_comm_copy(comm, comm_p)) : status;
}

weft_status_t weft_comm_status(weft_comm_t comm)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    return status == WEFT_OK ? weft_control_channel_status(comm->channel) : status;
}

weft_status_t weft_comm_get_error(weft_comm_t comm, weft_error_t *error_p)
{
    uint32_t rank;
    weft_status_t status = weft_api_check_pointer(error_p, __func__, "error_p");
    status = status == WEFT_OK ? weft_api_check_comm(comm, __func__) : status;
    if (status != WEFT_OK) {
        return status;
    }
    *error_p = (weft_error_t){0};
    error_p->status = weft_control_channel_error(comm->channel, &rank, &error_p->verdict);
    error_p->rank = rank == WEFT_WIRE_NO_RANK ? -1 : (int)rank;
    if (error_p->status != WEFT_OK) {
        snprintf(error_p->text, sizeof(error_p->text), "%s", weft_error_text());
    }
    return WEFT_OK;
}

weft_status_t weft_comm_error_fd(weft_comm_t comm, int *fd_p)
{
    weft_status_t status = weft_api_check_pointer(fd_p, __func__, "fd_p");
    status = status == WEFT_OK ? weft_api_check_comm(comm, __func__) : status;
    return status == WEFT_OK ? weft_control_channel_fd(comm->channel, fd_p) : status;
}

weft_status_t weft_abort(weft_comm_t comm, const char *reason)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    return status == WEFT_OK ? weft_comm_abort(comm, reason) : status;
}

weft_status_t weft_dump(weft_comm_t comm, const char *path)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    return status == WEFT_OK ? weft_comm_dump(comm, path) : status;
}

weft_status_t weft_comm_close(weft_comm_t comm)
{
    weft_status_t status = comm == NULL ? WEFT_OK : enter(comm, __func__);
    if (status != WEFT_OK || comm == NULL) {
        return status;
    }
    status = weft_comm_end(comm);
    return status == WEFT_ERR_BUSY ? leave(comm, status) : status;
}

/* ---- the control plane ---- */

static weft_status_t check_data(const void *data, size_t len, const char *call)
{
    if (data == NULL && len > 0) {
        return weft_fail(WEFT_ERR_INVALID, "%s: the buffer is NULL", call);
    }
    if (len > WEFT_CONTROL_MAX) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %zu bytes; the control plane carries at most %d",
                         call, len, WEFT_CONTROL_MAX);
    }
    return WEFT_OK;
}

weft_status_t weft_api_refuse_rank(weft_comm_t comm, int rank, const char *call)
{
    return weft_fail(WEFT_ERR_INVALID, "%s: rank %d; this communicator has ranks 0 to %u", call,
                     rank, comm->ranks - 1);
}

weft_status_t weft_control_barrier(weft_comm_t comm)
{
    weft_status_t status = enter_call(comm, __func__, WEFT_RECORD_CONTROL_BARRIER, 0, 0, 0);
    return status == WEFT_OK
               ? leave(comm, weft_control_barrier_wait(comm->channel, comm->timeout_ms))
               : status;
}

weft_status_t weft_control_allgather(weft_comm_t comm, const void *mine, size_t len, void *all)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    status = status == WEFT_OK ? check_data(mine, len, __func__) : status;
    status = status == WEFT_OK ? check_data(all, len, __func__) : status;
    status = status == WEFT_OK
                 ? enter_call(comm, __func__, WEFT_RECORD_CONTROL_ALLGATHER, len, 0, 0)
                 : status;
    return status == WEFT_OK ? leave(comm, weft_control_allgather_wait(comm->channel, mine, len,
                                                                       all, comm->timeout_ms))
                             : status;
}

weft_status_t weft_control_broadcast(weft_comm_t comm, void *data, size_t len, int root)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    status = status == WEFT_OK ? check_data(data, len, __func__) : status;
    status = status == WEFT_OK ? weft_api_check_rank(comm, root, __func__) : status;
    status = status == WEFT_OK
                 ? enter_call(comm, __func__, WEFT_RECORD_CONTROL_BROADCAST, len, root, 0)
                 : status;
    return status == WEFT_OK
               ? leave(comm, weft_control_broadcast_wait(comm->channel, data, len, (uint32_t)root,
                                                         comm->timeout_ms))
               : status;
}

weft_status_t weft_control_send(weft_comm_t comm, int to, uint32_t tag, const void *data,
                                size_t len)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    status = status == WEFT_OK ? check_data(data, len, __func__) : status;
    status = status == WEFT_OK ? weft_api_check_rank(comm, to, __func__) : status;
    status = status == WEFT_OK ? enter_call(comm, __func__, WEFT_RECORD_CONTROL_SEND, len, to, tag)
                               : status;
    return status == WEFT_OK ? leave(comm, weft_control_mail_send(comm->channel, (uint32_t)to, tag,
                                                                  data, len, comm->timeout_ms))
                             : status;
}

weft_status_t weft_control_recv(weft_comm_t comm, int from, uint32_t tag, void *data, size_t room,
                                size_t *len_p)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    status = status == WEFT_OK && data == NULL && room > 0
                 ? weft_api_check_pointer(data, __func__, "the buffer")
                 : status;
    status = status == WEFT_OK ? weft_api_check_rank(comm, from, __func__) : status;
    status = status == WEFT_OK
                 ? enter_call(comm, __func__, WEFT_RECORD_CONTROL_RECV, room, from, tag)
                 : status;
    return status == WEFT_OK
               ? leave(comm, weft_control_mail_recv(comm->channel, (uint32_t)from, tag, data, room,
                                                    len_p, comm->timeout_ms))
               : status;
}
