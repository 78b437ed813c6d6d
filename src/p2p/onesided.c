/* SPDX-License-Identifier: Apache-2.0 */
/* The one-sided calls: directly where the memory can be mapped, else by frames. */
#include "p2p/handle.h"

#include <string.h>

/* Reads and checks a handle against this communicator and these bytes. */
static weft_status_t open_handle(const struct weft_p2p_comm *comm,
                                 const struct weft_p2p_target *target, size_t len,
                                 struct weft_p2p_handle *handle_p, uint32_t *rank_p)
{
    uint32_t rank;
    memcpy(handle_p, target->mem, sizeof(*handle_p));
    if (!weft_p2p_handle_is_good(handle_p)) {
        return weft_fail(WEFT_ERR_INVALID,
                         "the memory handle was not made by weft_mem_register(), or was damaged");
    }
    if (handle_p->comm != comm->id || handle_p->owner >= comm->p2p->ranks) {
        return weft_fail(WEFT_ERR_INVALID, "the memory was registered with another communicator");
    }
    rank = comm->rank_of != NULL ? comm->rank_of[handle_p->owner] : handle_p->owner;
    if (rank == WEFT_WIRE_NO_RANK) {
        return weft_fail(WEFT_ERR_INVALID, "the memory is of a rank outside of this communicator");
    }
    if (len > handle_p->len || target->offset > handle_p->len - len) {
        return weft_fail(WEFT_ERR_INVALID,
                         "%zu bytes at %zu: rank %u has registered %llu bytes there", len,
                         target->offset, rank, (unsigned long long)handle_p->len);
    }
    *rank_p = rank;
    return WEFT_OK;
}

/* Is it still registered over there? What is mapped could be written long after. */
static weft_status_t check_valid(struct weft_lane *lane, const struct weft_p2p_handle *handle)
{
    void *word;
    uint32_t index = (uint32_t)handle->registration;
    weft_status_t status =
        lane->ops->map(lane, handle->valid, index * sizeof(uint64_t), sizeof(uint64_t), &word);
    if (status != WEFT_OK) {
        return status;
    }
    return atomic_load_explicit((_Atomic uint64_t *)word, memory_order_acquire) ==
                   handle->registration
               ? WEFT_OK
               : WEFT_ERR_INVALID;
}

/* Bytes that can be touched without the lock, until they are let go. */
struct direct {
    uint8_t *memory;                  /* NULL: nowhere, by frames then */
    struct weft_mem_mapping *mapping; /* held, so that it stays when the peer goes; NULL: our own */
    bool is_pending;                  /* the mapping is being fetched */
};

static void find_direct(const struct weft_p2p_peer *peer, const struct weft_p2p_handle *handle,
                        uint64_t offset, size_t len, struct direct *direct_p)
{
    struct weft_lane *lane = peer->link.lane;
    void *memory = NULL;
    weft_status_t status;
    if (handle->region == 0 || peer->link.state != WEFT_LINK_UP ||
        (lane->caps & WEFT_LANE_MAPS) == 0) {
        return;
    }
    status = check_valid(lane, handle);
    status = status == WEFT_OK ? lane->ops->map(lane, handle->region,
                                                handle->region_offset + offset, len, &memory)
                               : status;
    direct_p->is_pending = status == WEFT_ERR_BUSY;
    if (status == WEFT_OK) {
        direct_p->mapping = lane->ops->hold(lane, memory, len);
        direct_p->memory = direct_p->mapping != NULL ? memory : NULL;
    }
}

struct access { /* a one-sided operation, made ready */
    struct weft_p2p_handle handle, signal;
    uint32_t rank;
    struct weft_p2p_peer *peer; /* NULL: oneself */
    struct direct data, word;
    uint64_t deadline_ns; /* of what has waited already; 0: nothing has */
    enum weft_record_kind kind;
    uint64_t record; /* of that wait; 0: none */
};

static void let_go(struct weft_p2p_comm *comm, struct access *access, weft_status_t status)
{
    if (access->record != 0) {
        weft_recorder_end(comm->p2p->spec.recorder, access->record, status);
    }
    weft_mem_mapping_close(access->data.mapping);
    weft_mem_mapping_close(access->word.mapping);
}

static weft_status_t own_memory(struct weft_p2p_comm *comm, const struct weft_p2p_handle *handle,
                                uint64_t offset, size_t len, uint8_t **memory_p)
{
    const struct weft_p2p_registration *it =
        weft_p2p_registration_find(comm->p2p, handle->registration);
    if (it == NULL || it->comm != comm->id || len > it->len || offset > it->len - len) {
        return weft_fail(WEFT_ERR_INVALID, "the memory was deregistered, or never was that large");
    }
    *memory_p = it->memory + offset;
    return WEFT_OK;
}

static void record_wait(struct weft_p2p_comm *comm, struct access *access, size_t len)
{
    struct weft_recorder *recorder = comm->p2p->spec.recorder;
    if (recorder != NULL) {
        const struct weft_record_call call = {
            .comm = comm->id,
            .count = len,
            .what = weft_record_what(access->kind, WEFT_U8, 0, 0, access->rank)};
        access->record = weft_recorder_begin(recorder, &call);
    }
}

/* Waits for the lane to come up when the memory could be touched directly then. */
static weft_status_t await_mapping(struct weft_p2p_comm *comm, struct access *access,
                                   const struct weft_p2p_target *target, size_t len)
{
    struct weft_p2p *p2p = comm->p2p;
    _Atomic uint32_t never = 0;
    for (;;) {
        bool is_connecting;
        access->data.is_pending = false;
        weft_engine_lock(p2p->engine);
        if (!access->peer->is_gone && access->peer->link.state != WEFT_LINK_DOWN &&
            weft_list_is_empty(&access->peer->waiting)) {
            weft_link_want(&access->peer->link);
            find_direct(access->peer, &access->handle, target->offset, len, &access->data);
        }
        is_connecting = access->handle.region != 0 && !access->peer->is_gone &&
                        (access->peer->link.state == WEFT_LINK_CALLING || access->data.is_pending);
        weft_engine_unlock(p2p->engine);
        if (!is_connecting || atomic_load(&comm->ended) != WEFT_OK) {
            return WEFT_OK;
        }
        if (access->deadline_ns == 0) {
            access->deadline_ns = weft_clock_after_ms(comm->timeout_ms);
            record_wait(comm, access, len);
        } else if (weft_clock_ns() >= access->deadline_ns) {
            return WEFT_OK; /* what follows fails by the same deadline */
        }
        weft_engine_wait(p2p->engine, &never, weft_clock_after_ms(1));
    }
}

static weft_status_t prepare(struct weft_p2p_comm *comm, const struct weft_p2p_target *target,
                             size_t len, struct access *access)
{
    struct weft_p2p *p2p = comm->p2p;
    weft_status_t status = open_handle(comm, target, len, &access->handle, &access->rank);
    if (status != WEFT_OK) {
        return status;
    }
    if (access->handle.owner == p2p->self) {
        weft_engine_lock(p2p->engine);
        status = own_memory(comm, &access->handle, target->offset, len, &access->data.memory);
        weft_engine_unlock(p2p->engine);
        return status;
    }
    weft_engine_lock(p2p->engine);
    access->peer = weft_p2p_comm_peer(comm, access->rank);
    weft_engine_unlock(p2p->engine);
    if (access->peer == NULL) {
        return WEFT_ERR_MEMORY;
    }
    return await_mapping(comm, access, target, len);
}

/* A signal may be added directly only when nothing before it is on its way. */
static weft_status_t prepare_signal(struct weft_p2p_comm *comm, struct access *access,
                                    const struct weft_p2p_target *signal)
{
    uint32_t rank;
    weft_status_t status = open_handle(comm, signal, sizeof(uint64_t), &access->signal, &rank);
    if (status != WEFT_OK) {
        return status;
    }
    if (rank != access->rank || (access->signal.region_offset + signal->offset) % 8 != 0) {
        return weft_fail(WEFT_ERR_INVALID, "the signal must be an 8-aligned word of the same rank");
    }
    weft_engine_lock(comm->p2p->engine);
    if (access->peer == NULL) {
        status = own_memory(comm, &access->signal, signal->offset, 8, &access->word.memory);
    } else if (access->data.memory != NULL &&
               comm->states[access->rank].puts == comm->states[access->rank].flushed) {
        find_direct(access->peer, &access->signal, signal->offset, 8, &access->word);
    }
    weft_engine_unlock(comm->p2p->engine);
    return status;
}

/* What the caller of a put says. */
struct put {
    const struct weft_p2p_target *target, *signal; /* signal NULL: none */
    const uint8_t *data;
    size_t len;
    uint64_t add;
};

static weft_status_t put_framed(struct weft_p2p_comm *comm, const struct access *access,
                                const struct put *put)
{
    struct weft_request request;
    weft_p2p_request_init(&request, comm, REQUEST_PUT);
    request.data = (uint8_t *)put->data; /* only read */
    request.len = put->len;
    request.offset = put->target->offset;
    request.peer = access->peer;
    request.rank = access->rank;
    request.tag = 0;
    request.registration = access->handle.registration;
    request.deadline_ns = access->deadline_ns;
    if (put->signal != NULL) {
        request.has_signal = true;
        request.signal_registration = access->signal.registration;
        request.signal_offset = put->signal->offset;
        request.add = put->add;
    }
    weft_p2p_request_record(&request, WEFT_RECORD_PUT);
    return weft_p2p_request_run(&request, NULL); /* done when the frames are with the lane */
}

static void add_directly(struct weft_p2p_comm *comm, const struct access *access, uint64_t add)
{
    const struct weft_p2p_peer *peer = access->peer;
    atomic_fetch_add_explicit((_Atomic uint64_t *)(void *)access->word.memory, add,
                              memory_order_release);
    weft_engine_lock(comm->p2p->engine);
    if (peer == NULL) {
        weft_p2p_signals_check(comm->p2p);
    } else if (peer->link.state == WEFT_LINK_UP) {
        peer->link.lane->ops->nudge(peer->link.lane);
    }
    weft_engine_unlock(comm->p2p->engine);
}

static weft_status_t put_directly(struct weft_p2p_comm *comm, const struct access *access,
                                  const struct put *put)
{
    struct put signal_only = *put;
    weft_mem_copy(access->data.memory, put->data, put->len, weft_p2p_copy_kind(put->len));
    if (put->signal != NULL && access->word.memory == NULL) {
        signal_only.len = 0;
        return put_framed(comm, access, &signal_only);
    }
    if (put->signal != NULL) {
        add_directly(comm, access, put->add);
    }
    /* It may have ended meanwhile, and the memory with its rank. */
    return weft_p2p_side_check(comm);
}

weft_status_t weft_p2p_put(struct weft_p2p_comm *comm, const struct weft_p2p_target *target,
                           const void *data, size_t len, const struct weft_p2p_target *signal,
                           uint64_t add)
{
    const struct put put = {
        .target = target, .signal = signal, .data = data, .len = len, .add = add};
    struct access access = {.kind = WEFT_RECORD_PUT};
    weft_status_t status = weft_p2p_side_check(comm);
    status = status == WEFT_OK ? prepare(comm, target, len, &access) : status;
    if (status == WEFT_OK && signal != NULL) {
        status = prepare_signal(comm, &access, signal);
    }
    if (status == WEFT_OK) {
        status = access.data.memory != NULL ? put_directly(comm, &access, &put)
                                            : put_framed(comm, &access, &put);
    }
    let_go(comm, &access, status);
    return weft_p2p_side_settle(comm, status);
}

static weft_status_t get_framed(struct weft_p2p_comm *comm, const struct access *access,
                                uint64_t offset, const struct weft_slice *slice)
{
    weft_request_t ignored;
    struct weft_request *request = weft_p2p_request_take(comm, REQUEST_GET);
    if (request == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a get");
    }
    request->data = slice->data;
    request->len = slice->len;
    request->offset = offset;
    request->peer = access->peer;
    request->rank = access->rank;
    request->tag = 0;
    request->registration = access->handle.registration;
    request->deadline_ns = access->deadline_ns;
    weft_p2p_request_record(request, WEFT_RECORD_GET);
    weft_engine_lock(comm->p2p->engine);
    comm->gets_open++;
    weft_engine_unlock(comm->p2p->engine);
    return weft_p2p_request_run(request, &ignored);
}

weft_status_t weft_p2p_get(struct weft_p2p_comm *comm, const struct weft_p2p_target *target,
                           void *data, size_t len)
{
    const struct weft_slice slice = {.data = data, .len = len};
    struct access access = {.kind = WEFT_RECORD_GET};
    weft_status_t status = weft_p2p_side_check(comm);
    status = status == WEFT_OK ? prepare(comm, target, len, &access) : status;
    if (status == WEFT_OK && len > 0) {
        if (access.data.memory != NULL) {
            weft_mem_copy(data, access.data.memory, len, weft_p2p_copy_kind(len));
            status = weft_p2p_side_check(comm);
        } else {
            status = get_framed(comm, &access, target->offset, &slice);
        }
    }
    let_go(comm, &access, status);
    return weft_p2p_side_settle(comm, status);
}
