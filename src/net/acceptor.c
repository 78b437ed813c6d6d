/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener and the connections that have not proved themselves yet.
 *
 * At most WEFT_NET_PENDING_MAX of those are kept. When the house is full, nothing more is accepted
 * for GRACE_MS: the ranks among the pending answer their challenge in that time (they are only
 * waiting for a CPU) and make room. Then each is heard a few times more, for we may have had no CPU
 * either. Those who are still silent go, oldest first, as many as wait outside. So a thousand silent
 * strangers delay a rank by a fraction of a second, and a thousand ranks that come at once lose
 * nobody. A rank that was put out all the same dials again.
 */
#include "net/internal.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRACE_MS 10
#define LOOK_MS 1 /* more, LOOKS times, in which the others are heard */
#define LOOKS 3
#define BREATHER_MS 20 /* after EMFILE: room may come back */

void weft_net_acceptor_forget(struct weft_net_acceptor *acceptor, struct weft_net_conn *conn)
{
    conn->acceptor = NULL;
    weft_list_remove(&conn->node);
    acceptor->pending_count--;
    if (acceptor->is_full) {
        acceptor->is_full = false;
        weft_engine_want(acceptor->engine, &acceptor->source, EPOLLIN);
    }
}

void weft_net_acceptor_complain(struct weft_net_acceptor *acceptor,
                                const struct weft_net_conn *conn, weft_status_t status,
                                const char *why)
{
    static struct weft_log_limiter
        limiters[WEFT_ERR_UNSUPPORTED + 1]; /* one must not hide another */
    struct weft_log_limiter *limiter = &limiters[status <= WEFT_ERR_UNSUPPORTED ? status : 0];
    uint32_t held_back;
    weft_count(weft_engine_counters(acceptor->engine), WEFT_COUNTER_STRANGERS, 1);
    if (status == WEFT_ERR_AUTH) {
        acceptor->refused++;
        snprintf(acceptor->latest_refused, sizeof(acceptor->latest_refused), "%s", conn->peer_text);
    }
    if (weft_log_is_on(WEFT_ROOM_net, WEFT_LOG_WARN) &&
        weft_log_limit(limiter, weft_clock_ns(), &held_back)) {
        weft_log(net, WARN, "closed a connection from %s: %s: %s (%u more like it)",
                 conn->peer_text, weft_status_name(status), why, held_back);
    }
}

static struct weft_net_conn *oldest(struct weft_net_acceptor *acceptor)
{
    return WEFT_CONTAINER_OF(acceptor->pending.next, struct weft_net_conn, node);
}

static void evict(struct weft_net_acceptor *acceptor, uint64_t silent_since_ns,
                  enum weft_counter counter)
{
    while (!weft_list_is_empty(&acceptor->pending) &&
           oldest(acceptor)->since_ns <= silent_since_ns) {
        weft_count(weft_engine_counters(acceptor->engine), counter, 1);
        weft_net_conn_close(oldest(acceptor));
    }
}

/* When does the oldest overstay? Full house: soon; otherwise when its handshake takes too long. */
static void set_timer(struct weft_net_acceptor *acceptor)
{
    uint64_t patience_ms = acceptor->is_full ? GRACE_MS : acceptor->handshake_timeout_ms;
    acceptor->looks = 0;
    if (weft_list_is_empty(&acceptor->pending)) {
        weft_engine_timer_cancel(acceptor->engine, &acceptor->timer);
    } else {
        weft_engine_timer_set(acceptor->engine, &acceptor->timer,
                              oldest(acceptor)->since_ns + patience_ms * WEFT_NS_PER_MS);
    }
}

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_net_acceptor *acceptor = WEFT_CONTAINER_OF(timer, struct weft_net_acceptor, timer);
    uint64_t patience_ms = acceptor->is_full ? GRACE_MS : acceptor->handshake_timeout_ms;
    if (acceptor->is_full && acceptor->looks++ < LOOKS) {
        /* Perhaps it was us who had no CPU: what has come meanwhile is heard first. */
        weft_engine_timer_set(acceptor->engine, timer, now_ns + LOOK_MS * WEFT_NS_PER_MS);
        return;
    }
    evict(acceptor, now_ns - patience_ms * WEFT_NS_PER_MS,
          acceptor->is_full ? WEFT_COUNTER_EVICTED : WEFT_COUNTER_STRANGERS);
    weft_engine_want(acceptor->engine, &acceptor->source, EPOLLIN);
    set_timer(acceptor);
}

/* Another user's process on this host is a stranger, whatever it knows. */
static bool is_same_user(int fd, uid_t uid, pid_t *pid_p)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.uid != uid) {
        return false;
    }
    *pid_p = peer.pid;
    return true;
}

static const uint8_t *next_nonce(struct weft_net_acceptor *acceptor)
{
    if (acceptor->nonces_left == 0) {
        if (weft_random(acceptor->nonces, sizeof(acceptor->nonces)) != WEFT_OK) {
            return NULL;
        }
        acceptor->nonces_left = WEFT_NET_NONCES;
    }
    return acceptor->nonces[--acceptor->nonces_left];
}

static const uint8_t no_nonce[WEFT_WIRE_NONCE_LEN]; /* local sockets need none */

static void admit(struct weft_net_acceptor *acceptor, int fd)
{
    struct weft_net_conn *conn;
    const uint8_t *nonce = acceptor->is_local ? no_nonce : next_nonce(acceptor);
    pid_t pid = 0;
    weft_fd_own(fd);
    if (acceptor->device != 0) {
        weft_net_keep_to(fd, acceptor->device, acceptor->prefix_len);
    }
    weft_count(weft_engine_counters(acceptor->engine), WEFT_COUNTER_ACCEPTED, 1);
    if (nonce == NULL || (acceptor->is_local && !is_same_user(fd, acceptor->uid, &pid))) {
        weft_count(weft_engine_counters(acceptor->engine), WEFT_COUNTER_STRANGERS, 1);
        weft_fd_close(fd);
        return;
    }
    if (weft_net_conn_serve(acceptor, fd, pid, nonce, &conn) != WEFT_OK) {
        return;
    }
    weft_list_append(&acceptor->pending, &conn->node);
    acceptor->pending_count++;
    if (acceptor->is_local) {
        conn->source.ready(&conn->source, EPOLLIN); /* a local hello comes with the connection */
    }
    /* Proved by now, or gone: not ours any more. */
    if (acceptor->pending.prev == &conn->node && weft_net_conn_watch(conn) != WEFT_OK) {
        weft_net_conn_close(conn);
    }
}

/* Out of descriptors: those who have proved nothing are the ones to go. */
static void out_of_fds(struct weft_net_acceptor *acceptor, int error)
{
    static struct weft_log_limiter limiter;
    uint32_t held_back;
    uint64_t now_ns = weft_clock_ns();
    errno = error;
    weft_fail_errno("cannot accept a connection");
    snprintf(acceptor->error, sizeof(acceptor->error), "%s", weft_error_text());
    if (weft_log_limit(&limiter, now_ns, &held_back)) {
        weft_log(net, WARN, "%s", acceptor->error);
    }
    if (acceptor->trouble != NULL) {
        acceptor->trouble(acceptor->owner, acceptor->error);
    }
    evict(acceptor, now_ns - GRACE_MS * WEFT_NS_PER_MS, WEFT_COUNTER_EVICTED);
    weft_engine_want(acceptor->engine, &acceptor->source, 0);
    weft_engine_timer_set(acceptor->engine, &acceptor->timer,
                          now_ns + BREATHER_MS * WEFT_NS_PER_MS);
}

static void acceptor_ready(struct weft_engine_source *source, uint32_t events)
{
    struct weft_net_acceptor *acceptor =
        WEFT_CONTAINER_OF(source, struct weft_net_acceptor, source);
    (void)events;
    while (acceptor->pending_count < WEFT_NET_PENDING_MAX) {
        int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            acceptor->error[0] = '\0';
            admit(acceptor, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            out_of_fds(acceptor, errno);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            set_timer(acceptor);
            return;
        }
    }
    acceptor->is_full = true;
    weft_engine_want(acceptor->engine, &acceptor->source, 0);
    set_timer(acceptor);
}

weft_status_t weft_net_acceptor_open(struct weft_engine *engine, int fd,
                                     const struct weft_wire_self *self,
                                     uint64_t handshake_timeout_ms,
                                     const struct weft_net_conn_ops *ops, void *owner,
                                     struct weft_net_acceptor **acceptor_p)
{
    struct weft_net_acceptor *acceptor = calloc(1, sizeof(*acceptor));
    int domain = 0;
    socklen_t len = sizeof(domain);
    weft_status_t status;
    if (acceptor == NULL) {
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a listener");
    }
    acceptor->engine = engine;
    acceptor->self = self;
    acceptor->ops = ops;
    acceptor->owner = owner;
    acceptor->handshake_timeout_ms = handshake_timeout_ms;
    acceptor->uid = geteuid();
    acceptor->source.ready = acceptor_ready;
    weft_list_open(&acceptor->pending);
    weft_engine_timer_open(&acceptor->timer, timer_fired);
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    acceptor->is_local = domain == AF_UNIX;
    status = weft_engine_add(engine, &acceptor->source, fd, EPOLLIN);
    if (status != WEFT_OK) {
        free(acceptor);
        weft_fd_close(fd);
        return status;
    }
    *acceptor_p = acceptor;
    return WEFT_OK;
}

void weft_net_acceptor_keep_to(struct weft_net_acceptor *acceptor, const char *device,
                               uint32_t prefix_len)
{
    acceptor->device = if_nametoindex(device);
    acceptor->prefix_len = prefix_len;
    weft_net_note_device(acceptor->source.fd);
}

int weft_net_acceptor_release(struct weft_net_acceptor *acceptor)
{
    int fd = acceptor->source.fd;
    evict(acceptor, WEFT_NEVER, WEFT_COUNTER_STRANGERS);
    weft_engine_timer_cancel(acceptor->engine, &acceptor->timer);
    weft_engine_remove(acceptor->engine, &acceptor->source);
    free(acceptor);
    return fd;
}

void weft_net_acceptor_close(struct weft_net_acceptor *acceptor)
{
    if (acceptor != NULL) {
        weft_fd_close(weft_net_acceptor_release(acceptor));
    }
}

void weft_net_acceptor_tell_trouble(struct weft_net_acceptor *acceptor,
                                    void (*trouble)(void *owner, const char *error))
{
    acceptor->trouble = trouble;
}

const char *weft_net_acceptor_error(const struct weft_net_acceptor *acceptor)
{
    return acceptor->error;
}

unsigned weft_net_acceptor_refused(const struct weft_net_acceptor *acceptor, const char **latest_p)
{
    *latest_p = acceptor->latest_refused;
    return acceptor->refused;
}
