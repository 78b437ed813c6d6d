/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_alloc: regions that users have, found again by any address in them. Sorted by address in one
 * array under a lock: looked up once per long message, changed hardly ever. (Not a rwlock: who has taken
 * one for writing and forks cannot give it back in the child, where its thread has another id.)
 *
 * Who frees an allocation takes it out of the array first, so that nobody finds it any more, then
 * tells the watchers, then unmaps. No lock is held while a watcher runs: it may free, watch and
 * unwatch (also itself). Each round of telling keeps a cursor on the stack of its thread:
 * unwatching moves cursors off the watcher that goes, and waits for those that are inside it.
 *
 * A forked child has its copy of the array and may free what is in it, as destructors of its language
 * do: both locks are taken around fork(), so that the array is whole; the watchers are its parent's, and
 * so were the descriptors, whose numbers may be somebody else's by now.
 */
#include "mem/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_ROOM 16

struct allocation {
    struct weft_mem_region region;
    uint64_t id;
    size_t own_from, own_to; /* pages that are not the region's any more lie between */
    uint32_t holders;        /* registrations: other ranks may write there */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *table; /* owned; sorted by region.base */
static size_t table_count, table_room;
static uint64_t latest_id;

struct telling {
    struct weft_list node;            /* in tellings */
    struct weft_list *next;           /* watcher to be told next, or the end of the list */
    struct weft_mem_watcher *running; /* the one being told now */
    pthread_t thread;
};

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watch_done = PTHREAD_COND_INITIALIZER;
static struct weft_list watchers = {&watchers, &watchers};
static struct weft_list tellings = {&tellings, &tellings};

/* ---- fork ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&watch_lock);
    pthread_mutex_lock(&table_lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&table_lock);
    pthread_mutex_unlock(&watch_lock);
}

static void in_child(void)
{
    pthread_mutex_unlock(&table_lock);
    pthread_mutex_unlock(&watch_lock);
    /* Made anew: it remembers threads that wait in the parent. */
    watch_done = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    weft_list_open(&watchers);
    weft_list_open(&tellings);
    for (size_t i = 0; i < table_count; i++) {
        table[i].region.fd = -1;
        table[i].holders = 0; /* they are the parent's */
    }
}

static void install_handlers(void)
{
    if (pthread_atfork(before_fork, in_parent, in_child) != 0) {
        weft_log(mem, ERROR, "no memory for the fork handlers: forked children must not free");
    }
}

static void expect_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install_handlers);
}

/* ---- the array ---- */

/* How many allocations begin at or below the address: the one that could hold it is the last of
 * them. Under table_lock. */
static size_t count_upto(const void *address)
{
    size_t low = 0, high = table_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)table[middle].region.base <= (uintptr_t)address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Under table_lock, for writing. */
static bool make_room(void)
{
    size_t room = table_room ? table_room * 2 : FIRST_ROOM;
    struct allocation *wider;

    if (table_count < table_room) {
        return true;
    }
    wider = realloc(table, room * sizeof(*wider));
    if (!wider) {
        return false;
    }
    table = wider;
    table_room = room;
    return true;
}

static bool insert(const struct weft_mem_region *region)
{
    bool has_room;

    pthread_mutex_lock(&table_lock);
    has_room = make_room();
    if (has_room) {
        size_t at = count_upto(region->base);

        memmove(&table[at + 1], &table[at], (table_count - at) * sizeof(*table));
        table[at] = (struct allocation){.region = *region, .id = ++latest_id};
        table_count++;
    }
    pthread_mutex_unlock(&table_lock);
    return has_room;
}

/* It stays in if it has holders. */
static bool take_out(const void *memory, struct allocation *allocation_p)
{
    bool is_ours;
    size_t at;

    pthread_mutex_lock(&table_lock);
    at = count_upto(memory);
    is_ours = at > 0 && table[at - 1].region.base == memory;
    if (is_ours) {
        *allocation_p = table[at - 1];
    }
    if (is_ours && allocation_p->holders == 0) {
        memmove(&table[at - 1], &table[at], (table_count - at) * sizeof(*table));
        table_count--;
        if (table_count == 0) { /* nothing stays behind in a program that gives everything back */
            free(table);
            table = NULL;
            table_room = 0;
        }
    }
    pthread_mutex_unlock(&table_lock);
    return is_ours;
}

weft_status_t weft_mem_alloc(size_t len, void **memory_p)
{
    struct weft_mem_region region;
    weft_status_t status;

    expect_forks();
    status = weft_mem_region_open("weft-alloc", len, &region);
    if (status != WEFT_OK) {
        return status;
    }
    if (!insert(&region)) {
        weft_mem_region_close(&region);
        return weft_fail(WEFT_ERR_MEMORY, "no memory to remember an allocation of %zu bytes", len);
    }
    *memory_p = region.base;
    return WEFT_OK;
}

static void tell_watchers(uint64_t id)
{
    struct telling telling = {.thread = pthread_self()};

    pthread_mutex_lock(&watch_lock);
    weft_list_append(&tellings, &telling.node);
    telling.next = watchers.next;
    while (telling.next != &watchers) {
        telling.running = WEFT_CONTAINER_OF(telling.next, struct weft_mem_watcher, node);
        telling.next = telling.next->next;
        pthread_mutex_unlock(&watch_lock);
        telling.running->freed(telling.running, id);
        pthread_mutex_lock(&watch_lock);
        telling.running = NULL;
        pthread_cond_broadcast(&watch_done);
    }
    weft_list_remove(&telling.node);
    pthread_mutex_unlock(&watch_lock);
}

weft_status_t weft_mem_free(void *memory)
{
    struct allocation allocation;

    if (!memory) {
        return WEFT_OK;
    }
    if (!take_out(memory, &allocation)) {
        return weft_fail(WEFT_ERR_INVALID,
                         "%p was not allocated by weft_alloc(), or was freed before", memory);
    }
    if (allocation.holders > 0) {
        return weft_fail(
            WEFT_ERR_BUSY,
            "the memory at %p is registered (%u times): weft_mem_deregister() it first", memory,
            allocation.holders);
    }
    tell_watchers(allocation.id);
    weft_mem_region_close(&allocation.region);
    return WEFT_OK;
}

static struct weft_mem_place place_in(const struct allocation *allocation, uint64_t offset)
{
    return (struct weft_mem_place){
        .id = allocation->id,
        .fd = allocation->region.fd,
        .len = allocation->region.len,
        .offset = offset,
    };
}

/* Under table_lock. NULL: the bytes do not lie in one allocation. */
static struct allocation *find_holder(const void *address, size_t len, size_t *offset_p)
{
    size_t at = count_upto(address);
    struct allocation *allocation = at > 0 ? &table[at - 1] : NULL;
    size_t offset =
        allocation != NULL ? (uintptr_t)address - (uintptr_t)allocation->region.base : 0;

    *offset_p = offset;
    return allocation != NULL && offset < allocation->region.len &&
                   len <= allocation->region.len - offset
               ? allocation
               : NULL;
}

bool weft_mem_find(const void *address, size_t len, struct weft_mem_place *place_p)
{
    const struct allocation *allocation;
    bool is_found;
    size_t offset;

    pthread_mutex_lock(&table_lock);
    allocation = find_holder(address, len, &offset);
    is_found = allocation != NULL &&
               (offset >= allocation->own_to || offset + len <= allocation->own_from);
    if (is_found) {
        *place_p = place_in(allocation, offset);
    }
    pthread_mutex_unlock(&table_lock);
    return is_found;
}

/* Private pages with the content of these, in their place. */
static weft_status_t replace_pages(uint8_t *pages, size_t len)
{
    void *copy = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED) {
        return weft_fail_errno("cannot replace %zu bytes of shared memory", len);
    }
    memcpy(copy, pages, len);
    if (mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
        weft_status_t status = weft_fail_errno("cannot replace %zu bytes of shared memory", len);

        munmap(copy, len);
        return status;
    }
    return WEFT_OK;
}

weft_status_t weft_mem_disown(void *memory, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    weft_status_t status = WEFT_OK;
    struct allocation *allocation;
    size_t from, to;

    pthread_mutex_lock(&table_lock);
    allocation = find_holder(memory, len, &from);
    if (allocation != NULL && len > 0) { /* else it is ours alone already */
        to = (from + len + page - 1) & ~(page - 1);
        from &= ~(page - 1);
        status = replace_pages(allocation->region.base + from, to - from);
        if (status == WEFT_OK) {
            allocation->own_from = allocation->own_to == 0 || from < allocation->own_from
                                       ? from
                                       : allocation->own_from;
            allocation->own_to = to > allocation->own_to ? to : allocation->own_to;
        }
    }
    pthread_mutex_unlock(&table_lock);
    return status;
}

/* Once per allocation and peer: not worth a second order of the array. */
bool weft_mem_find_id(uint64_t id, struct weft_mem_place *place_p)
{
    bool is_found = false;

    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < table_count && !is_found; i++) {
        is_found = table[i].id == id;
        if (is_found) {
            *place_p = place_in(&table[i], 0);
        }
    }
    pthread_mutex_unlock(&table_lock);
    return is_found;
}

uint64_t weft_mem_hold(const void *address)
{
    uint64_t id = 0;
    size_t at;

    pthread_mutex_lock(&table_lock);
    at = count_upto(address);
    if (at > 0) {
        struct allocation *allocation = &table[at - 1];

        if ((uintptr_t)address - (uintptr_t)allocation->region.base < allocation->region.len) {
            allocation->holders++;
            id = allocation->id;
        }
    }
    pthread_mutex_unlock(&table_lock);
    return id;
}

void weft_mem_let_go(uint64_t id)
{
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < table_count && id != 0; i++) {
        if (table[i].id == id) {
            table[i].holders--;
            break;
        }
    }
    pthread_mutex_unlock(&table_lock);
}

void weft_mem_watch(struct weft_mem_watcher *watcher)
{
    expect_forks();
    pthread_mutex_lock(&watch_lock);
    weft_list_append(&watchers, &watcher->node);
    pthread_mutex_unlock(&watch_lock);
}

/* Is it being told, by another thread than this? Under watch_lock. */
static bool is_in_use(const struct weft_mem_watcher *watcher)
{
    bool is_running = false;

    for (struct weft_list *node = tellings.next; node != &tellings; node = node->next) {
        struct telling *telling = WEFT_CONTAINER_OF(node, struct telling, node);

        is_running |=
            telling->running == watcher && !pthread_equal(telling->thread, pthread_self());
    }
    return is_running;
}

static void move_cursors_off(const struct weft_mem_watcher *watcher)
{
    for (struct weft_list *node = tellings.next; node != &tellings; node = node->next) {
        struct telling *telling = WEFT_CONTAINER_OF(node, struct telling, node);

        if (telling->next == &watcher->node) {
            telling->next = watcher->node.next;
        }
    }
}

void weft_mem_unwatch(struct weft_mem_watcher *watcher)
{
    pthread_mutex_lock(&watch_lock);
    move_cursors_off(watcher);
    weft_list_remove(&watcher->node);
    while (is_in_use(watcher)) {
        pthread_cond_wait(&watch_done, &watch_lock);
    }
    pthread_mutex_unlock(&watch_lock);
}
