/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one rank that others read and write themselves: allocations of weft_alloc(), sent once
 * per lane as descriptors and mapped by the peer, and private memory, which the kernel copies out where it
 * lets us: for the trial the peer names the address of 16 random bytes of its own and their value.
 */
#include "lane/shm/internal.h"

#include <stdlib.h>
#include <string.h>

#define ASK_AGAIN 4096

/* ---- what is known ---- */

static struct weft_shm_known *find(const struct weft_shm_known_list *list, uint64_t id)
{
    for (unsigned i = list->count; i > 0; i--) {
        if (list->items[i - 1].id == id) {
            return &list->items[i - 1];
        }
    }
    return NULL;
}

static struct weft_shm_known *add(struct weft_shm_known_list *list, uint64_t id)
{
    if (list->count == list->room) {
        unsigned room = list->room > 0 ? list->room * 2 : 8;
        struct weft_shm_known *grown = realloc(list->items, room * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        list->items = grown;
        list->room = room;
    }
    list->items[list->count] = (struct weft_shm_known){.id = id};
    return &list->items[list->count++];
}

static void drop(struct weft_shm_known_list *list, struct weft_shm_known *known)
{
    *known = list->items[--list->count];
}

void weft_shm_regions_close(struct weft_shm_lane *lane)
{
    for (unsigned i = 0; i < lane->mapped.count; i++) {
        weft_mem_mapping_close(lane->mapped.items[i].mapping);
    }
    free(lane->mapped.items);
    free(lane->shared.items);
}

/* ---- ours, at the peer ---- */

static struct weft_shm_mail region_mail(enum weft_shm_mail_kind kind, uint64_t id, size_t len)
{
    return (struct weft_shm_mail){.magic = WEFT_SHM_MAGIC, .kind = kind, .id = id, .len = len};
}

/* Under the share lock, so that no allocation we have found goes: who frees it takes the lock first. */
static weft_status_t share(struct weft_shm_lane *lane, const struct weft_mem_place *place)
{
    const struct weft_shm_mail mail = region_mail(WEFT_SHM_REGION, place->id, place->len);
    if (find(&lane->shared, place->id) != NULL) {
        return WEFT_OK;
    }
    if (add(&lane->shared, place->id) == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to share an allocation");
    }
    if (!weft_shm_mail_send(lane->fd, &mail, place->fd)) {
        lane->shared.count--;
        return weft_fail(WEFT_ERR_BUSY, "the socket to rank %u is full", lane->base.peer);
    }
    return WEFT_OK;
}

weft_status_t weft_shm_share(struct weft_lane *base, const struct weft_mem_place *place)
{
    struct weft_shm_lane *lane = (struct weft_shm_lane *)base;
    struct weft_shm_port *port = weft_shm_port_of(lane);
    weft_status_t status;
    if (lane->state != WEFT_SHM_UP) {
        return weft_fail(WEFT_ERR_PEER, "the lane to rank %u is not up", base->peer);
    }
    pthread_mutex_lock(&port->share_lock);
    status = share(lane, place);
    pthread_mutex_unlock(&port->share_lock);
    return status;
}

void weft_shm_answer_want(struct weft_shm_lane *lane, uint64_t id)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    struct weft_mem_place place;
    const struct weft_shm_mail gone = region_mail(WEFT_SHM_GONE, id, 0);
    pthread_mutex_lock(&port->share_lock);
    if (!weft_mem_find_id(id, &place)) {
        weft_shm_mail_send(lane->fd, &gone, -1);
    } else {
        (void)share(lane, &place); /* no room now: it asks again */
    }
    pthread_mutex_unlock(&port->share_lock);
}

/* From any thread, without the engine's lock; not a word about those the peer never heard of. */
void weft_shm_freed(struct weft_mem_watcher *watcher, uint64_t id)
{
    struct weft_shm_port *port = WEFT_CONTAINER_OF(watcher, struct weft_shm_port, watcher);
    const struct weft_shm_mail mail = region_mail(WEFT_SHM_GONE, id, 0);
    pthread_mutex_lock(&port->share_lock);
    for (uint32_t i = 0; i < port->local_count; i++) {
        struct weft_shm_lane *lane = port->lanes[i];
        struct weft_shm_known *known = lane != NULL ? find(&lane->shared, id) : NULL;
        if (known == NULL) {
            continue;
        }
        if (weft_shm_mail_send(lane->fd, &mail, -1)) {
            drop(&lane->shared, known);
        } else {
            known->is_gone = true;
            atomic_store_explicit(&port->has_gone, true, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&port->share_lock);
}

void weft_shm_tell_gone(struct weft_shm_lane *lane)
{
    struct weft_shm_port *port = weft_shm_port_of(lane);
    pthread_mutex_lock(&port->share_lock);
    for (unsigned i = lane->shared.count; i > 0; i--) {
        struct weft_shm_known *known = &lane->shared.items[i - 1];
        const struct weft_shm_mail mail = region_mail(WEFT_SHM_GONE, known->id, 0);
        if (!known->is_gone) {
            continue;
        }
        if (lane->fd < 0 || lane->has_ended || weft_shm_mail_send(lane->fd, &mail, -1)) {
            drop(&lane->shared, known);
        } else {
            atomic_store_explicit(&port->has_gone, true, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&port->share_lock);
}

/* ---- the peer's, here ---- */

weft_status_t weft_shm_take_region(struct weft_shm_lane *lane, const struct weft_shm_mail *mail,
                                   int fd)
{
    struct weft_mem_mapping *mapping;
    struct weft_shm_known *known;
    weft_status_t status;
    if (fd < 0 || mail->len > SIZE_MAX / 2 || find(&lane->mapped, mail->id) != NULL) {
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_PROTOCOL,
                         "shared an allocation twice, or without its descriptor");
    }
    status = weft_mem_mapping_open(fd, mail->len, &mapping);
    if (status != WEFT_OK) {
        return status;
    }
    known = add(&lane->mapped, mail->id);
    if (known == NULL) {
        weft_mem_mapping_close(mapping);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a peer's allocation");
    }
    known->mapping = mapping;
    lane->wanted = lane->wanted == mail->id ? 0 : lane->wanted;
    return WEFT_OK;
}

void weft_shm_take_gone(struct weft_shm_lane *lane, uint64_t id)
{
    struct weft_shm_known *known = find(&lane->mapped, id);
    if (known != NULL) {
        weft_mem_mapping_close(known->mapping);
        drop(&lane->mapped, known);
    }
    lane->refused = id;
    lane->wanted = lane->wanted == id ? 0 : lane->wanted;
}

static weft_status_t ask_for(struct weft_shm_lane *lane, uint64_t id)
{
    const struct weft_shm_mail mail = region_mail(WEFT_SHM_WANT, id, 0);
    if (lane->refused == id) {
        lane->refused = 0;
        return weft_fail(WEFT_ERR_INVALID, "rank %u has no allocation %llu (any more)",
                         lane->base.peer, (unsigned long long)id);
    }
    /* Again from time to time: the answer may not have fitted into the socket. */
    if ((lane->wanted != id || ++lane->asks % ASK_AGAIN == 0) &&
        weft_shm_mail_send(lane->fd, &mail, -1)) {
        lane->wanted = id;
    }
    return WEFT_ERR_BUSY; /* not a failure: no words for it */
}

weft_status_t weft_shm_map(struct weft_lane *base, uint64_t region, uint64_t offset, size_t len,
                           void **memory_p)
{
    struct weft_shm_lane *lane = (struct weft_shm_lane *)base;
    struct weft_shm_known *known = find(&lane->mapped, region);
    if (known == NULL) {
        weft_shm_mail_read(lane);
        known = find(&lane->mapped, region);
    }
    if (known == NULL && lane->state != WEFT_SHM_UP) {
        return weft_fail(WEFT_ERR_PEER, "the lane to rank %u is not up", base->peer);
    }
    if (known == NULL) {
        return ask_for(lane, region);
    }
    if (offset > known->mapping->region.len || len > known->mapping->region.len - offset) {
        return weft_fail(WEFT_ERR_INVALID,
                         "%zu bytes at %llu are outside an allocation of %zu bytes "
                         "of rank %u",
                         len, (unsigned long long)offset, known->mapping->region.len, base->peer);
    }
    *memory_p = known->mapping->region.base + offset;
    return WEFT_OK;
}

struct weft_mem_mapping *weft_shm_hold(const struct weft_lane *base, const void *memory, size_t len)
{
    const struct weft_shm_lane *lane = (const struct weft_shm_lane *)base;
    for (unsigned i = 0; i < lane->mapped.count; i++) {
        struct weft_mem_mapping *mapping = lane->mapped.items[i].mapping;
        size_t offset = (uintptr_t)memory - (uintptr_t)mapping->region.base;
        if (offset <= mapping->region.len && len <= mapping->region.len - offset) {
            weft_mem_mapping_hold(mapping);
            return mapping;
        }
    }
    return NULL;
}

/* ---- CMA ---- */

weft_status_t weft_shm_pull(struct weft_lane *base, uint64_t address,
                            const struct weft_slice *slice)
{
    const struct weft_shm_lane *lane = (const struct weft_shm_lane *)base;
    if (lane->is_same_process) { /* no need to ask the kernel */
        weft_mem_copy(slice->data, weft_mem_there(address), slice->len, WEFT_COPY_PLAIN);
        return WEFT_OK;
    }
    if (!weft_mem_pull(lane->pid, address, slice)) {
        return weft_fail_errno("cannot read %zu bytes of the memory of rank %u (%s)", slice->len,
                               base->peer, base->peer_text);
    }
    return WEFT_OK;
}
