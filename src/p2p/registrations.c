/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other ranks may reach. */
#include "p2p/handle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HANDLE_MAGIC 0x6d656d31u
static_assert(sizeof(struct weft_p2p_handle) <= sizeof(weft_mem_t), "a handle fits");

static uint32_t handle_check(const struct weft_p2p_handle *handle)
{
    return weft_wire_crc32c(0, handle, offsetof(struct weft_p2p_handle, check));
}

bool weft_p2p_handle_is_good(const struct weft_p2p_handle *handle)
{
    return handle->magic == HANDLE_MAGIC && handle->zero == 0 &&
           handle->check == handle_check(handle);
}

static weft_status_t grow(struct weft_p2p *p2p)
{
    uint32_t room = p2p->registration_room == 0 ? 16 : p2p->registration_room * 2;
    struct weft_p2p_registration *grown;
    if (p2p->registration_count < p2p->registration_room) {
        return WEFT_OK;
    }
    grown = realloc(p2p->registrations, room * sizeof(*grown));
    if (grown == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a registration");
    }
    p2p->registrations = grown;
    p2p->registration_room = room;
    return WEFT_OK;
}

static uint32_t find_free(struct weft_p2p *p2p)
{
    uint32_t i = 0;
    while (i < p2p->registration_count && p2p->registrations[i].id != 0) {
        i++;
    }
    p2p->registration_count += i == p2p->registration_count;
    return i;
}

/* false: no memory for the words, then shared memory is reached by frames too. */
static bool open_words(struct weft_p2p *p2p)
{
    struct weft_mem_place place;
    void *words;
    if (p2p->valid == NULL &&
        weft_mem_alloc((WEFT_P2P_WORDS + WEFT_P2P_GUARDS) * sizeof(*p2p->valid), &words) ==
            WEFT_OK) {
        weft_mem_find(words, 1, &place);
        p2p->valid = words;
        p2p->valid_region = place.id;
    }
    return p2p->valid != NULL;
}

/* Before the memory is anybody else's: the fence keeps what its owner writes there behind the word. */
static void clear_word(struct weft_p2p *p2p, uint32_t index)
{
    atomic_store_explicit(&p2p->valid[index], 0, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
}

/* The number of a word's next use; 0 would mean none. */
static uint64_t next_serial(struct weft_p2p *p2p)
{
    p2p->registration_serial += p2p->registration_serial == UINT32_MAX ? 2 : 1;
    return (uint64_t)p2p->registration_serial << 32;
}

static void note_region(struct weft_p2p *p2p, uint32_t index, struct weft_p2p_handle *handle)
{
    struct weft_mem_place place;
    if (index < WEFT_P2P_WORDS &&
        weft_mem_find(p2p->registrations[index].memory, handle->len, &place) && open_words(p2p)) {
        handle->region = place.id;
        handle->region_offset = place.offset;
        handle->valid = p2p->valid_region;
        atomic_store_explicit(&p2p->valid[index], handle->registration, memory_order_release);
    }
}

weft_status_t weft_p2p_register(struct weft_p2p_comm *comm, void *memory, size_t len,
                                weft_mem_t *mem_p)
{
    struct weft_p2p *p2p = comm->p2p;
    struct weft_p2p_handle handle = {.magic = HANDLE_MAGIC,
                                     .owner = p2p->self,
                                     .comm = comm->id,
                                     .len = len,
                                     .region_offset = (uintptr_t)memory % sizeof(uint64_t)};
    struct weft_mem_place place;
    weft_status_t status;
    if (weft_mem_find(memory, 1, &place) && len > place.len - place.offset) {
        return weft_fail(WEFT_ERR_INVALID,
                         "weft_mem_register: %zu bytes, but the allocation of weft_alloc() ends "
                         "after %zu",
                         len, (size_t)(place.len - place.offset));
    }
    weft_engine_lock(p2p->engine);
    status = grow(p2p);
    if (status == WEFT_OK) {
        uint32_t index = find_free(p2p);
        handle.registration = next_serial(p2p) | index;
        p2p->registrations[index] = (struct weft_p2p_registration){.id = handle.registration,
                                                                   .memory = memory,
                                                                   .len = len,
                                                                   .comm = comm->id,
                                                                   .held = weft_mem_hold(memory)};
        note_region(p2p, index, &handle);
    }
    weft_engine_unlock(p2p->engine);
    if (status == WEFT_OK) {
        handle.check = handle_check(&handle);
        memset(mem_p, 0, sizeof(*mem_p));
        memcpy(mem_p, &handle, sizeof(handle));
    }
    return status;
}

struct weft_p2p_registration *weft_p2p_registration_find(struct weft_p2p *p2p, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    return id != 0 && index < p2p->registration_count && p2p->registrations[index].id == id
               ? &p2p->registrations[index]
               : NULL;
}

/* Nobody may touch it any more, and nothing of ours does when this returns. */
static void drop(struct weft_p2p_comm *comm, struct weft_p2p_registration *registration)
{
    struct weft_p2p *p2p = comm->p2p;
    uint64_t id = registration->id, held = registration->held;
    registration->id = 0;
    if (p2p->valid != NULL && (uint32_t)id < WEFT_P2P_WORDS) {
        clear_word(p2p, (uint32_t)id);
    }
    weft_p2p_target_stop(comm, id); /* may let go of the lock: the table may have grown after it */
    weft_mem_let_go(held);
}

void weft_p2p_registrations_close(struct weft_p2p_comm *comm)
{
    const struct weft_p2p *p2p = comm->p2p;
    for (uint32_t i = 0; i < p2p->registration_count; i++) {
        if (p2p->registrations[i].id != 0 && p2p->registrations[i].comm == comm->id) {
            drop(comm, &p2p->registrations[i]);
        }
    }
}

weft_status_t weft_p2p_deregister(struct weft_p2p_comm *comm, const weft_mem_t *mem)
{
    struct weft_p2p *p2p = comm->p2p;
    struct weft_p2p_registration *registration;
    struct weft_p2p_handle handle;
    memcpy(&handle, mem, sizeof(handle));
    weft_engine_lock(p2p->engine);
    registration =
        handle.owner == p2p->self ? weft_p2p_registration_find(p2p, handle.registration) : NULL;
    registration = registration != NULL && registration->comm == comm->id ? registration : NULL;
    if (registration != NULL) {
        drop(comm, registration);
    }
    weft_engine_unlock(p2p->engine);
    return registration != NULL
               ? WEFT_OK
               : weft_fail(WEFT_ERR_INVALID, "weft_mem_deregister: not registered here (any more)");
}

/* ---- guards: the words after those of registrations ---- */

bool weft_p2p_guard_take(struct weft_request *request, struct weft_lane *lane,
                         struct weft_p2p_source *source_p)
{
    struct weft_p2p *p2p = request->comm->p2p;
    struct weft_mem_place place;
    if (p2p->guards == WEFT_P2P_GUARDS || !open_words(p2p) ||
        !weft_mem_find((const void *)p2p->valid, 1, &place) ||
        lane->ops->share(lane, &place) != WEFT_OK) {
        return false;
    }
    for (uint32_t i = 0; i < WEFT_P2P_GUARDS; i++) {
        uint32_t index = WEFT_P2P_WORDS + (request->peer->next_id + i) % WEFT_P2P_GUARDS;
        if (atomic_load_explicit(&p2p->valid[index], memory_order_relaxed) == 0) {
            uint64_t value = next_serial(p2p) | index;
            atomic_store_explicit(&p2p->valid[index], value, memory_order_release);
            p2p->guards++;
            request->guard = index;
            source_p->guard_region = place.id;
            source_p->guard = index;
            source_p->guard_value = value;
            return true;
        }
    }
    return false;
}

void weft_p2p_guard_give(struct weft_request *request)
{
    struct weft_p2p *p2p = request->comm->p2p;
    clear_word(p2p, request->guard);
    if (request->status != WEFT_OK) { /* else its reader has said that it is through */
        weft_p2p_readers_leave();
    }
    request->guard = 0;
    p2p->guards--;
}
