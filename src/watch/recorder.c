/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a flight recorder, and what is rare about it; operations are recorded inline (recorder.h). */
#include "watch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRIES 16 /* to copy a line that is being written */

/* Names and communicators of all recorders: they change rarely. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const char *weft_record_kind_name(uint8_t kind)
{
    switch (kind) {
#define KIND_NAME(id, number, text)                                                                \
    case number:                                                                                   \
        return text;
        WEFT_RECORD_KINDS(KIND_NAME)
#undef KIND_NAME
    default:
        return kind < WEFT_COLLS ? weft_coll_name((weft_coll_t)kind) : NULL;
    }
}

/* ---- life ---- */

/* Pages are taken at once: a rank must not die for them later. -1: there is no such memory. */
static int make_file(uint32_t rank, size_t len)
{
    char name[sizeof(WEFT_RECORD_MEMFD) + 16];
    int fd;
    snprintf(name, sizeof(name), "%s%u", WEFT_RECORD_MEMFD, rank);
    fd = weft_fd_own(memfd_create(name, MFD_CLOEXEC));
    if (fd >= 0 && (weft_file_exceeds_limit(len) || ftruncate(fd, (off_t)len) != 0 ||
                    fallocate(fd, 0, 0, (off_t)len) != 0)) {
        weft_fd_close(fd);
        return -1;
    }
    return fd;
}

static struct weft_recording *map(uint32_t rank, size_t len, int *fd_p)
{
    int fd = make_file(rank, len);
    void *image = MAP_FAILED;
    if (fd >= 0) {
        image = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (image == MAP_FAILED) {
        weft_fd_close(fd);
        fd = -1;
        image = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (image == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(image, len, MADV_DONTFORK); /* a child's handles are dead */
    *fd_p = fd;
    return image;
}

struct weft_recorder_time weft_recorder_now(void)
{
    return (struct weft_recorder_time){
        .ticks = weft_clock_ticks(), .ns = weft_clock_ns(), .real_ns = weft_clock_real_ns()};
}

static void fill_head(const struct weft_recorder_spec *spec, uint32_t entries,
                      struct weft_record_head *head)
{
    struct weft_recorder_time since = spec->since != NULL ? *spec->since : weft_recorder_now();
    head->version = WEFT_RECORD_VERSION;
    head->head_len = sizeof(struct weft_recording);
    head->entry_len = sizeof(struct weft_record);
    head->entries = entries;
    head->reason = WEFT_RECORD_LIVE;
    memcpy(head->job, spec->job, sizeof(head->job));
    head->epoch = spec->epoch;
    head->rank = spec->rank;
    head->ranks = spec->ranks;
    head->pid = (uint32_t)getpid();
    snprintf(head->host, sizeof(head->host), "%s", spec->host);
    head->opened_ticks = since.ticks;
    head->opened_ns = since.ns;
    head->opened_real_ns = since.real_ns;
    /* last: whoever looks in earlier finds no recorder */
    memcpy(head->magic, WEFT_RECORD_MAGIC, sizeof(head->magic));
}

void weft_recorder_open(const struct weft_recorder_spec *spec, struct weft_recorder *recorder_p)
{
    struct weft_recorder it = {.fd = -1};
    uint32_t entries = WEFT_RECORD_ENTRIES_MIN;
    while (entries < spec->entries && entries < WEFT_RECORD_ENTRIES_MAX) {
        entries *= 2;
    }
    *recorder_p = it;
    if (spec->entries == 0) {
        return;
    }
    it.image = map(spec->rank, weft_recording_len(entries), &it.fd);
    if (it.image == NULL) {
        weft_log(watch, INFO, "no memory for a flight recorder: %s", strerror(errno));
        return;
    }
    if (it.fd < 0) {
        weft_log(watch, INFO,
                 "the flight recorder is in private memory: weft inspect --pid will "
                 "not find it");
    }
    fill_head(spec, entries, &it.image->head);
    it.opened_ticks = it.image->head.opened_ticks;
    it.mask = entries - 1;
    it.shift = (uint32_t)__builtin_ctz(entries);
    *recorder_p = it;
}

void weft_recorder_close(struct weft_recorder *recorder)
{
    if (recorder->image != NULL) {
        munmap(recorder->image, weft_recorder_len(recorder));
        weft_fd_close(recorder->fd);
    }
    *recorder = (struct weft_recorder){.fd = -1};
}

/* ---- communicators and names ---- */

/* A free one, else the one that was closed and opened first; NULL: all are in use. */
static struct weft_record_comm *find_slot(struct weft_recording *image)
{
    struct weft_record_comm *best = NULL;
    for (unsigned i = 0; i < WEFT_RECORD_COMMS; i++) {
        struct weft_record_comm *slot = &image->comms[i];
        if (atomic_load(&slot->id) == 0) {
            return slot;
        }
        if (slot->is_closed != 0 && (best == NULL || slot->opened < best->opened)) {
            best = slot;
        }
    }
    return best;
}

void weft_recorder_comm_open(struct weft_recorder *recorder, uint64_t id, uint32_t rank,
                             uint32_t ranks)
{
    struct weft_record_comm *slot;
    if (recorder->image == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    slot = find_slot(recorder->image);
    if (slot != NULL) {
        atomic_store(&slot->id, 0);
        slot->rank = rank;
        slot->ranks = ranks;
        slot->opened = weft_clock_ticks() - recorder->opened_ticks;
        slot->is_closed = 0;
        atomic_store(&slot->control_calls, 0);
        atomic_store(&slot->id, id);
    }
    pthread_mutex_unlock(&lock);
}

/* Of this communicator; NULL: there was no room for it. */
static struct weft_record_comm *slot_of(struct weft_recording *image, uint64_t id)
{
    for (unsigned i = 0; i < WEFT_RECORD_COMMS; i++) {
        if (atomic_load(&image->comms[i].id) == id) {
            return &image->comms[i];
        }
    }
    return NULL;
}

void weft_recorder_comm_close(struct weft_recorder *recorder, uint64_t id)
{
    struct weft_record_comm *slot;
    if (recorder->image == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    slot = slot_of(recorder->image, id);
    if (slot != NULL) {
        slot->is_closed = 1;
    }
    pthread_mutex_unlock(&lock);
}

void weft_recorder_comm_calls(struct weft_recorder *recorder, uint64_t id, uint32_t calls)
{
    struct weft_record_comm *slot;
    if (recorder->image == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    slot = slot_of(recorder->image, id);
    if (slot != NULL) {
        atomic_store_explicit(&slot->control_calls, calls, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

uint8_t weft_recorder_name(struct weft_recorder *recorder, const char *name)
{
    struct weft_record_head *head;
    uint32_t i;
    if (recorder->image == NULL) {
        return 0;
    }
    head = &recorder->image->head;
    pthread_mutex_lock(&lock);
    for (i = 0; i < head->name_count; i++) {
        if (strncmp(head->names[i], name, WEFT_RECORD_NAME_LEN - 1) == 0) {
            break;
        }
    }
    if (i == head->name_count && i < WEFT_RECORD_NAMES) {
        snprintf(head->names[i], WEFT_RECORD_NAME_LEN, "%s", name);
        head->name_count++;
    }
    pthread_mutex_unlock(&lock);
    return i < WEFT_RECORD_NAMES ? (uint8_t)(i + 1) : 0;
}

void weft_recorder_note(struct weft_recorder *recorder, uint64_t record, uint32_t waits_for,
                        unsigned percent)
{
    struct weft_record *line;
    uint64_t more;
    if (record == 0) {
        return;
    }
    line = &recorder->image->entry[(record - 1) & recorder->mask];
    more = atomic_load_explicit(&line->more, memory_order_relaxed);
    if ((uint32_t)atomic_load_explicit(&line->stamp, memory_order_acquire) ==
        (uint32_t)(2 * record)) {
        /* should the line be taken over right now, this fails or says it of the wrong one until its end */
        atomic_compare_exchange_strong(
            &line->more, &more,
            (uint32_t)more | (uint64_t)(waits_for < WEFT_RANKS_MAX ? waits_for + 1 : 0) << 32 |
                (uint64_t)(percent < 100 ? percent : 100) << 56);
    }
}

/* ---- copying ---- */

size_t weft_recorder_len(const struct weft_recorder *recorder)
{
    return recorder->image != NULL ? weft_recording_len(recorder->image->head.entries) : 0;
}

static void copy_word(_Atomic uint64_t *to, const _Atomic uint64_t *from)
{
    atomic_store_explicit(to, atomic_load_explicit(from, memory_order_acquire),
                          memory_order_relaxed);
}

/* Its stamp is odd in the copy if it never was whole. */
static void copy_line(struct weft_record *to, const struct weft_record *from)
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t stamp = atomic_load_explicit(&from->stamp, memory_order_acquire);
        copy_word(&to->began, &from->began);
        copy_word(&to->end, &from->end);
        copy_word(&to->comm, &from->comm);
        copy_word(&to->call, &from->call);
        copy_word(&to->count, &from->count);
        copy_word(&to->what, &from->what);
        copy_word(&to->more, &from->more);
        atomic_store_explicit(&to->stamp, stamp | 1, memory_order_relaxed);
        if (stamp % 2 == 0 && atomic_load_explicit(&from->stamp, memory_order_relaxed) == stamp) {
            atomic_store_explicit(&to->stamp, stamp, memory_order_relaxed);
            return;
        }
    }
}

void weft_recorder_copy(struct weft_recorder *recorder, struct weft_recording *copy)
{
    struct weft_recording *image = recorder->image;
    struct weft_recorder_time taken;
    pthread_mutex_lock(&lock);
    memcpy(copy, image, offsetof(struct weft_record_head, next));
    atomic_store_explicit(&copy->head.next,
                          atomic_load_explicit(&image->head.next, memory_order_acquire),
                          memory_order_relaxed);
    copy->head.name_count = image->head.name_count;
    memcpy(copy->head.names, image->head.names, sizeof(copy->head.names));
    memcpy(copy->comms, image->comms, sizeof(copy->comms));
    pthread_mutex_unlock(&lock);
    for (uint32_t i = 0; i < image->head.entries; i++) {
        copy_line(&copy->entry[i], &image->entry[i]);
    }
    taken = weft_recorder_now();
    copy->head.taken_ticks = taken.ticks;
    copy->head.taken_ns = taken.ns;
    copy->head.taken_real_ns = taken.real_ns;
}
