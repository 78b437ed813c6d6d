/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: between begin and end a thread's blocking sends and receives on a communicator are only begun.
 * They hang on the communicator, one per thread, so that closing it finds those of all threads. */
#include "p2p/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weft_p2p_group {
    struct weft_p2p_group *next;
    uint64_t thread;
    unsigned depth;
    struct weft_request *first, *last;
};

/* Of the lists of all communicators; what is in a group is its thread's own. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Unlike what the system calls threads, never given twice: one may end with its group open. */
static uint64_t this_thread(void)
{
    static _Atomic uint64_t count;
    static _Thread_local uint64_t number;
    if (number == 0) {
        number = atomic_fetch_add(&count, 1) + 1;
    }
    return number;
}

static struct weft_p2p_group *find(const struct weft_p2p_comm *comm)
{
    uint64_t thread = this_thread();
    struct weft_p2p_group *group;
    pthread_mutex_lock(&lock);
    group = atomic_load_explicit(&comm->groups, memory_order_relaxed);
    while (group != NULL && group->thread != thread) {
        group = group->next;
    }
    pthread_mutex_unlock(&lock);
    return group;
}

static void add(struct weft_p2p_comm *comm, struct weft_p2p_group *group)
{
    pthread_mutex_lock(&lock);
    group->next = atomic_load_explicit(&comm->groups, memory_order_relaxed);
    atomic_store_explicit(&comm->groups, group, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

static void take_out(struct weft_p2p_comm *comm, const struct weft_p2p_group *group)
{
    struct weft_p2p_group *first;
    pthread_mutex_lock(&lock);
    first = atomic_load_explicit(&comm->groups, memory_order_relaxed);
    if (first == group) {
        atomic_store_explicit(&comm->groups, group->next, memory_order_relaxed);
    } else {
        while (first->next != group) {
            first = first->next;
        }
        first->next = group->next;
    }
    pthread_mutex_unlock(&lock);
}

bool weft_p2p_group_has(const struct weft_p2p_comm *comm)
{
    return find(comm) != NULL;
}

void weft_p2p_group_add(struct weft_p2p_comm *comm, struct weft_request *request)
{
    struct weft_p2p_group *group = find(comm);
    request->next = NULL;
    if (group->first == NULL) {
        group->first = request;
    } else {
        group->last->next = request;
    }
    group->last = request;
}

void weft_p2p_groups_forget(struct weft_p2p_comm *comm)
{
    struct weft_p2p_group *group;
    while ((group = atomic_load_explicit(&comm->groups, memory_order_relaxed)) != NULL) {
        take_out(comm, group);
        free(group);
    }
    free(atomic_exchange(&comm->spare_group, NULL));
}

weft_status_t weft_p2p_group_begin(struct weft_p2p_comm *comm)
{
    struct weft_p2p_group *group = find(comm);
    if (group == NULL) {
        group = atomic_exchange(&comm->spare_group, NULL);
        group = group != NULL ? group : malloc(sizeof(*group));
        if (group == NULL) {
            return weft_fail(WEFT_ERR_MEMORY, "no memory for a group");
        }
        memset(group, 0, sizeof(*group));
        group->thread = this_thread();
        add(comm, group);
    }
    group->depth++;
    return WEFT_OK;
}

weft_status_t weft_p2p_group_end(struct weft_p2p_comm *comm)
{
    struct weft_p2p_group *group = find(comm);
    weft_status_t first = WEFT_OK;
    char text[WEFT_ERROR_TEXT_LEN];
    if (group == NULL) {
        return weft_fail(WEFT_ERR_INVALID, "weft_group_end: this thread has begun no group here");
    }
    if (--group->depth > 0) {
        return WEFT_OK;
    }
    take_out(comm, group);
    while (group->first != NULL) {
        struct weft_request *request = group->first;
        weft_status_t status;
        group->first = request->next;
        status = weft_p2p_wait(&request, WEFT_NO_LIMIT);
        if (first == WEFT_OK && status != WEFT_OK) {
            first = status;
            snprintf(text, sizeof(text), "%s", weft_error_text());
        }
    }
    free(atomic_exchange(&comm->spare_group, group)); /* for the next one */
    return first == WEFT_OK ? WEFT_OK : weft_fail(first, "%s", text);
}
