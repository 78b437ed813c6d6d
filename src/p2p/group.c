/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: between begin and end a thread's blocking sends and receives on a communicator are only begun.
 * A thread may have one group on each of several communicators. */
#include "p2p/internal.h"

#include <stdio.h>
#include <stdlib.h>

struct weft_p2p_group {
    struct weft_p2p_group *next;
    struct weft_p2p_comm *comm;
    unsigned depth;
    struct weft_request *first, *last;
};

_Thread_local struct weft_p2p_group *weft_p2p_groups WEFT_P2P_TLS;

static struct weft_p2p_group **find(const struct weft_p2p_comm *comm)
{
    struct weft_p2p_group **at = &weft_p2p_groups;
    while (*at != NULL && (*at)->comm != comm) {
        at = &(*at)->next;
    }
    return at;
}

bool weft_p2p_group_has(const struct weft_p2p_comm *comm)
{
    return *find(comm) != NULL;
}

void weft_p2p_group_add(struct weft_p2p_comm *comm, struct weft_request *request)
{
    struct weft_p2p_group *group = *find(comm);
    request->next = NULL;
    if (group->first == NULL) {
        group->first = request;
    } else {
        group->last->next = request;
    }
    group->last = request;
}

void weft_p2p_group_forget(const struct weft_p2p_comm *comm)
{
    struct weft_p2p_group **at = find(comm);
    struct weft_p2p_group *group = *at;
    if (group != NULL) {
        *at = group->next;
        free(group);
    }
}

weft_status_t weft_p2p_group_begin(struct weft_p2p_comm *comm)
{
    struct weft_p2p_group *group = *find(comm);
    if (group == NULL) {
        group = calloc(1, sizeof(*group));
        if (group == NULL) {
            return weft_fail(WEFT_ERR_MEMORY, "no memory for a group");
        }
        group->comm = comm;
        group->next = weft_p2p_groups;
        weft_p2p_groups = group;
    }
    group->depth++;
    return WEFT_OK;
}

weft_status_t weft_p2p_group_end(struct weft_p2p_comm *comm)
{
    struct weft_p2p_group **at = find(comm);
    struct weft_p2p_group *group = *at;
    weft_status_t first = WEFT_OK;
    char text[WEFT_ERROR_TEXT_LEN];
    if (group == NULL) {
        return weft_fail(WEFT_ERR_INVALID, "weft_group_end: this thread has begun no group here");
    }
    if (--group->depth > 0) {
        return WEFT_OK;
    }
    *at = group->next;
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
    free(group);
    return first == WEFT_OK ? WEFT_OK : weft_fail(first, "%s", text);
}
