/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender that has closed. What its sockets have taken is to arrive, however late the receiver posts. The kernel sees to that as
 * long as nothing comes back: a note for a socket that is closed resets it, and what it still has to send is lost. So
 * sockets with bytes that the peer's host has not acknowledged stay open here, and notes are read and dropped. If that lasts, the
 * receiver is told, by a connection of its own, since the lanes may be full of messages without a receive: it answers no
 * more and ends its direction of each lane. After that a process may end, too.
 */
#include "nccl.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define PATIENCE_MS 5 /* an acknowledgement is mostly sooner than that */
#define ANSWER_MS 1000
#define RETRY_MS 50

struct weft_nccl_leaver {
    struct weft_list node;
    struct weft_nccl_handle *handle; /* secret, owned */
    struct weft_wire_self self;
    uint64_t comm;
    uint32_t pair_count, tries;
    struct weft_nccl_pair pairs[WEFT_NCCL_NICS];
    struct weft_net_conn *conn; /* by which the receiver is told */
    uint64_t next_ns;           /* when it is to have answered, or is called again */
    bool is_told;
    uint32_t count;
    struct {
        int fd;
        bool is_hushed; /* nothing comes any more */
    } sockets[WEFT_NCCL_LANES];
};

static bool has_said_all(int fd)
{
    int waiting = 0;
    return ioctl(fd, SIOCOUTQ, &waiting) != 0 || waiting == 0;
}

/* Closing with notes unread would be a reset. 0: the end of them; < 0: none for now, or none ever. */
static ssize_t drop_notes(int fd)
{
    char dropped[1024];
    ssize_t len;
    do {
        len = recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT);
    } while (len > 0 || (len < 0 && errno == EINTR));
    return len;
}

/* ---- telling the receiver ---- */

static void told(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct weft_nccl_leaver *leaver = conn->owner;
    (void)why;
    leaver->is_told = conn->is_proved && status == WEFT_ERR_PEER;
    leaver->conn = NULL;
    leaver->next_ns = weft_clock_after_ms(RETRY_MS);
    weft_net_conn_close(conn);
}

static const struct weft_net_conn_ops farewell_ops = {.hello = weft_nccl_never,
                                                      .opened = weft_nccl_never,
                                                      .frame = weft_nccl_never_frame,
                                                      .lost = told}; /* it is always refused */

static void tell(struct weft_nccl_leaver *leaver)
{
    struct weft_nccl_call call = {.handle = leaver->handle,
                                  .pair = &leaver->pairs[leaver->tries % leaver->pair_count],
                                  .self = &leaver->self,
                                  .ops = &farewell_ops,
                                  .owner = leaver};
    struct weft_nccl_greeting greeting = {.comm = leaver->comm, .is_last = true};
    memcpy(greeting.token, leaver->handle->token, sizeof(greeting.token));
    leaver->tries++;
    leaver->next_ns = weft_clock_after_ms(
        weft_nccl_call(&call, &greeting, &leaver->conn) == WEFT_OK ? ANSWER_MS : RETRY_MS);
    weft_secret_wipe(&greeting, sizeof(greeting));
}

/* ---- their life ---- */

static struct weft_nccl_leaver *leaver_new(struct weft_nccl_comm *comm)
{
    struct weft_nccl_leaver *leaver = calloc(1, sizeof(*leaver));
    if (leaver != NULL) {
        leaver->handle = comm->handle;
        comm->handle = NULL;
        leaver->self = comm->self;
        leaver->comm = comm->id;
        leaver->pair_count = comm->pair_count;
        memcpy(leaver->pairs, comm->pairs, sizeof(leaver->pairs));
        leaver->next_ns = weft_clock_after_ms(PATIENCE_MS);
        weft_list_append(&weft_nccl_core.leaving, &leaver->node);
    }
    return leaver;
}

static void leaver_close(struct weft_nccl_leaver *leaver)
{
    for (uint32_t i = 0; i < leaver->count; i++) {
        weft_fd_close(leaver->sockets[i].fd);
    }
    weft_net_conn_close(leaver->conn);
    weft_secret_unmap(leaver->handle, sizeof(*leaver->handle));
    weft_list_remove(&leaver->node);
    free(leaver);
}

void weft_nccl_leave(struct weft_nccl_comm *comm, int fd)
{
    bool is_late = !has_said_all(fd);
    drop_notes(fd);
    if (is_late && atomic_load(&comm->result) == NCCL_SUCCESS && comm->leaver == NULL) {
        comm->leaver = leaver_new(comm);
    }
    if (is_late && comm->leaver != NULL) {
        shutdown(fd, SHUT_WR);
        comm->leaver->sockets[comm->leaver->count++].fd = fd;
    } else {
        weft_fd_close(fd);
    }
}

/* Closes what has said all, or cannot; are the others as good as closed? */
static bool sweep(struct weft_nccl_leaver *leaver)
{
    bool is_safe = true;
    for (uint32_t i = leaver->count; i-- > 0;) {
        int fd = leaver->sockets[i].fd;
        ssize_t len = drop_notes(fd);
        leaver->sockets[i].is_hushed |= len == 0;
        if ((len < 0 && errno != EAGAIN) || has_said_all(fd)) {
            weft_fd_close(fd);
            leaver->sockets[i] = leaver->sockets[--leaver->count];
        } else {
            is_safe &= leaver->sockets[i].is_hushed;
        }
    }
    return is_safe;
}

bool weft_nccl_leaving_tend(uint64_t now_ns)
{
    struct weft_list *all = &weft_nccl_core.leaving;
    bool is_safe = true;
    for (struct weft_list *node = all->next, *next; node != all; node = next) {
        struct weft_nccl_leaver *leaver = WEFT_CONTAINER_OF(node, struct weft_nccl_leaver, node);
        next = node->next;
        is_safe &= sweep(leaver);
        if (leaver->count == 0) {
            leaver_close(leaver);
        } else if (!leaver->is_told && now_ns >= leaver->next_ns) {
            weft_net_conn_close(leaver->conn); /* no answer: by another NIC */
            leaver->conn = NULL;
            tell(leaver);
        }
    }
    return is_safe;
}

void weft_nccl_leaving_end(void)
{
    struct weft_list *all = &weft_nccl_core.leaving;
    while (all->next != all) {
        leaver_close(WEFT_CONTAINER_OF(all->next, struct weft_nccl_leaver, node));
    }
}
