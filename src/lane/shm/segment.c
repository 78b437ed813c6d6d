/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory, mapped once per process.
 *
 * Ranks may be threads of one process. A second mapping of the same pages would work, but the two
 * sides would then speak through different addresses, and neither a sanitizer nor a debugger could
 * see that they do. So every segment has a random id, those made in this process are registered,
 * and a peer's segment is looked for there first. It lives until its last user lets go.
 *
 * inbox: | header, one page | a line per rank of the host, whole pages | cells |
 * pool:  | a line per slot, whole pages | small slots | big slots |
 */
#include "lane/shm/internal.h"

#include <stdlib.h>

#define PAGE ((size_t)4096)

static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list segments = {&segments, &segments};

static size_t whole_pages(size_t len)
{
    return (len + PAGE - 1) & ~(PAGE - 1);
}

uint32_t weft_shm_cell_count(uint32_t local_count)
{
    uint32_t count = WEFT_SHM_CELLS_MIN;
    while (count < WEFT_SHM_CELLS_MAX && count < local_count * WEFT_SHM_CELLS_PER_RANK) {
        count *= 2;
    }
    return count;
}

size_t weft_shm_inbox_len(uint32_t local_count)
{
    return WEFT_SHM_HEADER_LEN + whole_pages(local_count * sizeof(struct weft_shm_line)) +
           weft_shm_cell_count(local_count) * sizeof(struct weft_shm_cell);
}

void weft_shm_inbox_lay_out(struct weft_shm_inbox *inbox, struct weft_shm_segment *segment,
                            uint32_t local_count)
{
    uint8_t *base = segment->region.base;
    inbox->segment = segment;
    inbox->header = (struct weft_shm_header *)base;
    inbox->lines = (struct weft_shm_line *)(base + WEFT_SHM_HEADER_LEN);
    inbox->cells =
        (struct weft_shm_cell *)(base + WEFT_SHM_HEADER_LEN +
                                 whole_pages(local_count * sizeof(struct weft_shm_line)));
}

size_t weft_shm_pool_len(const uint32_t count[WEFT_SHM_KINDS])
{
    size_t slots = (size_t)count[WEFT_SHM_SMALL] + count[WEFT_SHM_BIG];
    return whole_pages(slots * sizeof(struct weft_shm_slot_line)) +
           (size_t)count[WEFT_SHM_SMALL] * WEFT_SHM_SMALL_LEN +
           (size_t)count[WEFT_SHM_BIG] * WEFT_SHM_BIG_LEN;
}

void weft_shm_pool_lay_out(struct weft_shm_pool *pool, struct weft_shm_segment *segment,
                           const uint32_t count[WEFT_SHM_KINDS])
{
    size_t slots = (size_t)count[WEFT_SHM_SMALL] + count[WEFT_SHM_BIG];
    pool->segment = segment;
    pool->count[WEFT_SHM_SMALL] = count[WEFT_SHM_SMALL];
    pool->count[WEFT_SHM_BIG] = count[WEFT_SHM_BIG];
    pool->lines = (struct weft_shm_slot_line *)segment->region.base;
    pool->base[WEFT_SHM_SMALL] =
        segment->region.base + whole_pages(slots * sizeof(struct weft_shm_slot_line));
    pool->base[WEFT_SHM_BIG] =
        pool->base[WEFT_SHM_SMALL] + (size_t)count[WEFT_SHM_SMALL] * WEFT_SHM_SMALL_LEN;
}

static struct weft_shm_segment *segment_new(void)
{
    struct weft_shm_segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        weft_fail(WEFT_ERR_MEMORY, "no memory for a shared segment");
        return NULL;
    }
    segment->refs = 1;
    weft_list_open(&segment->node);
    return segment;
}

weft_status_t weft_shm_segment_create(const char *name, size_t len,
                                      struct weft_shm_segment **segment_p)
{
    struct weft_shm_segment *segment = segment_new();
    weft_status_t status;
    if (segment == NULL) {
        return WEFT_ERR_MEMORY;
    }
    status = weft_random(&segment->id, sizeof(segment->id));
    if (status == WEFT_OK) {
        status = weft_mem_region_open(name, len, &segment->region);
    }
    if (status != WEFT_OK) {
        free(segment);
        return status;
    }
    pthread_mutex_lock(&register_lock);
    weft_list_append(&segments, &segment->node);
    pthread_mutex_unlock(&register_lock);
    *segment_p = segment;
    return WEFT_OK;
}

/* One of this process; counted. */
static struct weft_shm_segment *find(uint64_t id, size_t len)
{
    struct weft_shm_segment *found = NULL;
    pthread_mutex_lock(&register_lock);
    for (struct weft_list *node = segments.next; node != &segments && found == NULL;
         node = node->next) {
        struct weft_shm_segment *segment = WEFT_CONTAINER_OF(node, struct weft_shm_segment, node);
        if (segment->id == id && segment->region.len == len) {
            found = segment;
            found->refs++;
        }
    }
    pthread_mutex_unlock(&register_lock);
    return found;
}

weft_status_t weft_shm_segment_map(int fd, uint64_t id, size_t len,
                                   struct weft_shm_segment **segment_p)
{
    struct weft_shm_segment *segment;
    weft_status_t status;
    if (fd < 0) {
        return weft_fail(WEFT_ERR_PROTOCOL, "named shared memory without its descriptor");
    }
    segment = find(id, len);
    if (segment != NULL) {
        weft_fd_close(fd);
        *segment_p = segment;
        return WEFT_OK;
    }
    segment = segment_new();
    if (segment == NULL) {
        weft_fd_close(fd);
        return WEFT_ERR_MEMORY;
    }
    segment->id = id;
    status = weft_mem_region_map(fd, len, &segment->region);
    if (status != WEFT_OK) {
        free(segment);
        return status;
    }
    *segment_p = segment;
    return WEFT_OK;
}

bool weft_shm_segment_is_local(const struct weft_shm_segment *segment)
{
    bool is_local;
    pthread_mutex_lock(&register_lock);
    is_local = !weft_list_is_empty(&segment->node);
    pthread_mutex_unlock(&register_lock);
    return is_local;
}

void weft_shm_segment_close(struct weft_shm_segment *segment)
{
    bool is_last;
    if (segment == NULL) {
        return;
    }
    pthread_mutex_lock(&register_lock);
    is_last = --segment->refs == 0;
    if (is_last) {
        weft_list_remove(&segment->node);
    }
    pthread_mutex_unlock(&register_lock);
    if (is_last) {
        weft_mem_region_close(&segment->region);
        free(segment);
    }
}
