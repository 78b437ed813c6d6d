/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection, from dial or accept to close.
 *
 *   client: SHAKING ------------------> OPEN -> DEAD
 *   server: SHAKING -> HELLO (owner) -> OPEN -> DEAD
 *
 * Over TCP the listener speaks first, so a client only waits for bytes, also while it connects.
 *
 * Bytes in: one receive per readiness; frames are parsed where they lie and handed up without a
 * copy; the buffer grows with the bytes that really came, never with the length a header claims.
 * Bytes out are conn_out.c's. The owner may close the connection inside any call it gets: memory is
 * then freed on the way out.
 */
#include "net/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHAKE_BUFFER_LEN 1024

static void conn_ready(struct weft_engine_source *source, uint32_t events);
static void note_peer(struct weft_net_conn *conn, bool is_local, pid_t pid);

static void conn_free(struct weft_net_conn *conn)
{
    if (conn->shake != NULL) {
        weft_wire_handshake_close(conn->shake);
        free(conn->shake);
    }
    weft_secret_wipe(conn->send_key, sizeof(conn->send_key));
    weft_secret_wipe(conn->recv_key, sizeof(conn->recv_key));
    free(conn->in);
    free(conn->out);
    free(conn);
}

static void disconnect(struct weft_net_conn *conn)
{
    int fd = conn->source.fd;
    weft_engine_remove(conn->engine, &conn->source);
    weft_fd_close(fd);
    conn->state = WEFT_CONN_DEAD;
}

void weft_net_conn_close(struct weft_net_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    if (conn->state != WEFT_CONN_DEAD) {
        weft_net_conn_uncork(conn);
    }
    if (conn->acceptor != NULL) {
        weft_net_acceptor_forget(conn->acceptor, conn);
    }
    if (conn->state != WEFT_CONN_DEAD) {
        disconnect(conn);
    }
    if (conn->is_in_call) {
        conn->is_to_free = true;
    } else {
        conn_free(conn);
    }
}

/* Strangers are the acceptor's affair; everybody else's end is told to the owner, once. */
static void lose(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    if (conn->state == WEFT_CONN_DEAD) {
        return;
    }
    disconnect(conn);
    if (conn->acceptor != NULL) {
        weft_net_acceptor_complain(conn->acceptor, conn, status, why);
        weft_net_conn_close(conn);
    } else {
        conn->ops->lost(conn, status, why);
    }
}

static void lose_errno(struct weft_net_conn *conn, int error)
{
    char why[96];
    bool is_unreached = conn->state == WEFT_CONN_SHAKING;
    conn->error = error;
    if (error == ECONNRESET || error == EPIPE) {
        lose(conn, WEFT_ERR_PEER, "closed the connection (reset)");
        return;
    }
    snprintf(why, sizeof(why), "%s", strerror(error));
    lose(conn, is_unreached ? WEFT_ERR_NETWORK : WEFT_ERR_PEER, why);
}

int weft_net_conn_detach(struct weft_net_conn *conn, uint8_t send_key[WEFT_WIRE_KEY_LEN],
                         uint8_t recv_key[WEFT_WIRE_KEY_LEN])
{
    int fd = conn->source.fd;
    assert(conn->state == WEFT_CONN_OPEN || conn->state == WEFT_CONN_DEAD);
    if (conn->state == WEFT_CONN_DEAD) {
        return -1;
    }
    if (conn->unread_len > 0 || conn->in_len > 0 || conn->out_len > 0) {
        lose(conn, WEFT_ERR_PROTOCOL, "sent bytes before its turn");
        return -1;
    }
    memcpy(send_key, conn->send_key, sizeof(conn->send_key));
    memcpy(recv_key, conn->recv_key, sizeof(conn->recv_key));
    weft_secret_wipe(conn->send_key, sizeof(conn->send_key));
    weft_secret_wipe(conn->recv_key, sizeof(conn->recv_key));
    weft_engine_remove(conn->engine, &conn->source);
    conn->state = WEFT_CONN_DEAD;
    weft_net_conn_close(conn);
    return fd;
}

/* ---- the handshake ---- */

static void become_open(struct weft_net_conn *conn)
{
    struct weft_wire_handshake *shake = conn->shake;
    memcpy(conn->send_key, shake->send_key, sizeof(conn->send_key));
    memcpy(conn->recv_key, shake->recv_key, sizeof(conn->recv_key));
    conn->is_sealed = !conn->is_local && shake->self->is_authenticated;
    conn->peer_rank = shake->peer_rank;
    conn->is_aes = shake->is_aes;
    conn->state = WEFT_CONN_OPEN;
    conn->shake = NULL;
    weft_wire_handshake_close(shake);
    free(shake);
}

/* Returns how many bytes belonged to the handshake. */
static size_t feed_shake(struct weft_net_conn *conn, const uint8_t *bytes, size_t len)
{
    struct weft_wire_handshake *shake = conn->shake;
    size_t used = 0;
    enum weft_wire_state state = weft_wire_feed(shake, bytes, len, &used);
    conn->unread_len = len - used;
    weft_net_conn_send_shake(conn);
    if (conn->state == WEFT_CONN_DEAD) {
        return len;
    }
    switch (state) {
    case WEFT_WIRE_WANT_BYTES:
        return used;
    case WEFT_WIRE_FAILED:
        conn->is_refused = true;
        conn->is_elsewhere = shake->is_elsewhere;
        conn->is_proved = shake->is_proved;
        conn->peer_rank = shake->peer_rank; /* as far as it has said */
        lose(conn, shake->status, shake->reason);
        return len;
    case WEFT_WIRE_HELLO:
        conn->state = WEFT_CONN_HELLO;
        conn->peer_rank = shake->peer_rank;
        conn->purpose = shake->purpose;
        weft_net_acceptor_forget(conn->acceptor, conn);
        conn->ops->hello(conn);
        return used;
    case WEFT_WIRE_DONE:
        if (conn->peer_addr.family == 0) { /* it was not connected yet when it was asked */
            note_peer(conn, conn->is_local, conn->peer_pid);
        }
        become_open(conn);
        conn->ops->opened(conn);
        return used;
    }
    return used;
}

bool weft_net_conn_has_spoken(const struct weft_net_conn *conn)
{
    return conn->state == WEFT_CONN_OPEN || (conn->shake != NULL && conn->shake->is_challenged);
}

const struct weft_wire_handshake *weft_net_conn_hello(const struct weft_net_conn *conn)
{
    return conn->shake;
}

void weft_net_conn_accept(struct weft_net_conn *conn)
{
    if (conn->state == WEFT_CONN_HELLO) {
        weft_wire_accept(conn->shake);
        weft_net_conn_send_shake(conn);
        become_open(conn);
    }
}

void weft_net_conn_refuse(struct weft_net_conn *conn, weft_status_t status, const char *reason)
{
    if (conn->state == WEFT_CONN_HELLO) {
        weft_wire_refuse(conn->shake, status, reason);
        weft_net_conn_send_shake(conn);
    }
    weft_net_conn_close(conn);
}

/* ---- in ---- */

/* Parses one frame at the front of the buffer; 0: not whole yet. */
static size_t take_frame(struct weft_net_conn *conn, const uint8_t *bytes, size_t len)
{
    struct weft_wire_frame frame;
    uint8_t seal[WEFT_WIRE_SEAL_LEN];
    size_t total;
    if (len < WEFT_WIRE_FRAME_LEN) {
        return 0;
    }
    if (weft_wire_frame_decode(bytes, &frame) != WEFT_OK) {
        lose(conn, WEFT_ERR_PROTOCOL, weft_error_text());
        return 0;
    }
    total = WEFT_WIRE_FRAME_LEN + (size_t)frame.len + (conn->is_sealed ? sizeof(seal) : 0);
    if (len < total) {
        return 0;
    }
    if (conn->is_sealed) {
        weft_wire_seal(conn->recv_key, conn->received_frames, bytes, WEFT_WIRE_FRAME_LEN,
                       bytes + WEFT_WIRE_FRAME_LEN, frame.len, seal);
        if (!weft_wire_is_equal(seal, bytes + total - sizeof(seal), sizeof(seal))) {
            lose(conn, WEFT_ERR_AUTH, "a frame with a wrong seal");
            return 0;
        }
    }
    conn->received_frames++;
    weft_count(weft_engine_counters(conn->engine), WEFT_COUNTER_FRAMES_IN, 1);
    conn->ops->frame(conn, &frame, bytes + WEFT_WIRE_FRAME_LEN);
    return total;
}

static void take_bytes(struct weft_net_conn *conn)
{
    size_t start = 0;
    while (start < conn->in_len && conn->state == WEFT_CONN_OPEN && !conn->is_to_free) {
        size_t used = take_frame(conn, conn->in + start, conn->in_len - start);
        if (used == 0) {
            break;
        }
        start += used;
    }
    if (conn->state == WEFT_CONN_HELLO && conn->in_len > 0) {
        lose(conn, WEFT_ERR_PROTOCOL, "sent bytes before it was accepted");
    }
    if (conn->state != WEFT_CONN_DEAD && start > 0) {
        conn->in_len -= start;
        memmove(conn->in, conn->in + start, conn->in_len);
        if (conn->in_len == 0) {
            weft_net_buffer_let_go(&conn->in, &conn->in_room);
        }
    }
}

/* Doubles when full: never more than twice what came. */
static bool reserve_in(struct weft_net_conn *conn)
{
    size_t room = conn->in_room == 0 ? WEFT_NET_BUFFER_LEN : conn->in_room * 2;
    uint8_t *grown;
    if (conn->in_len < conn->in_room) {
        return true;
    }
    grown = realloc(conn->in, room);
    if (grown == NULL) {
        lose(conn, WEFT_ERR_MEMORY, "no memory for what it sends");
        return false;
    }
    conn->in = grown;
    conn->in_room = room;
    return true;
}

/* What one receive gave; false: nothing more to do now. */
static bool note_received(struct weft_net_conn *conn, ssize_t got)
{
    if (conn->is_broken) {
        lose(conn, WEFT_ERR_MEMORY, "no memory for what is sent to it");
        return false;
    }
    if (got > 0) {
        conn->heard_ns = weft_clock_ns();
        weft_count(weft_engine_counters(conn->engine), WEFT_COUNTER_BYTES_IN, (uint64_t)got);
        return true;
    }
    if (got == 0) {
        lose(conn, WEFT_ERR_PEER, "closed the connection");
    } else if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
        lose_errno(conn, errno);
    }
    return false;
}

static ssize_t receive_into(struct weft_net_conn *conn, uint8_t *buffer, size_t room)
{
    ssize_t got;
    do {
        got = recv(conn->source.fd, buffer, room, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Before the peer has proved anything: no buffer of its own. What follows an accept is kept. */
static void receive_shake(struct weft_net_conn *conn)
{
    uint8_t bytes[SHAKE_BUFFER_LEN];
    ssize_t got = receive_into(conn, bytes, sizeof(bytes));
    size_t used = 0;
    if (!note_received(conn, got)) {
        return;
    }
    while (used < (size_t)got && conn->state == WEFT_CONN_SHAKING && !conn->is_to_free) {
        used += feed_shake(conn, bytes + used, (size_t)got - used);
    }
    if (used < (size_t)got && conn->state != WEFT_CONN_DEAD && !conn->is_to_free &&
        reserve_in(conn)) {
        memcpy(conn->in, bytes + used, (size_t)got - used); /* the buffer is larger than `bytes` */
        conn->in_len = (size_t)got - used;
        conn->unread_len = 0;
        take_bytes(conn);
    }
}

static void receive(struct weft_net_conn *conn)
{
    bool is_full = true;
    while (is_full && conn->state != WEFT_CONN_DEAD && !conn->is_to_free && reserve_in(conn)) {
        size_t room = conn->in_room - conn->in_len;
        ssize_t got = receive_into(conn, conn->in + conn->in_len, room);
        if (!note_received(conn, got)) {
            return;
        }
        conn->in_len += (size_t)got;
        is_full = (size_t)got == room;
        take_bytes(conn);
    }
}

static void conn_ready(struct weft_engine_source *source, uint32_t events)
{
    struct weft_net_conn *conn = WEFT_CONTAINER_OF(source, struct weft_net_conn, source);
    conn->is_in_call = true;
    if ((events & EPOLLOUT) != 0) {
        weft_net_conn_flush(conn);
    }
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
        if (conn->state == WEFT_CONN_SHAKING) {
            receive_shake(conn);
        } else {
            receive(conn);
        }
    }
    conn->is_in_call = false;
    if (conn->is_to_free) {
        conn_free(conn);
    }
}

/* ---- opening ---- */

/* Not watched yet. */
static weft_status_t conn_new(struct weft_engine *engine, int fd,
                              const struct weft_net_conn_ops *ops, void *owner,
                              struct weft_net_conn **conn_p)
{
    struct weft_net_conn *conn = calloc(1, sizeof(*conn));
    weft_status_t status;
    if (conn == NULL || (conn->shake = malloc(sizeof(*conn->shake))) == NULL) {
        status = weft_fail(WEFT_ERR_MEMORY, "no memory for a connection");
        goto err_free;
    }
    conn->shake->out_len = 0;
    conn->engine = engine;
    conn->ops = ops;
    conn->owner = owner;
    conn->state = WEFT_CONN_SHAKING;
    conn->peer_rank = WEFT_WIRE_NO_RANK;
    conn->since_ns = conn->heard_ns = conn->spoken_ns = weft_clock_ns();
    conn->source.ready = conn_ready;
    weft_list_open(&conn->node);
    weft_engine_adopt(&conn->source, fd, EPOLLIN);
    *conn_p = conn;
    return WEFT_OK;
err_free:
    if (conn != NULL) {
        free(conn->shake);
    }
    free(conn);
    weft_fd_close(fd);
    return status;
}

static void note_peer(struct weft_net_conn *conn, bool is_local, pid_t pid)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    conn->is_local = is_local;
    conn->peer_pid = pid;
    if (is_local) {
        snprintf(conn->peer_text, sizeof(conn->peer_text), "pid %d on this host", (int)pid);
    } else if (getpeername(conn->source.fd, (struct sockaddr *)&addr, &len) == 0) {
        weft_net_addr_print(&addr, conn->peer_text);
        weft_net_addr_to_wire(&addr, &conn->peer_addr);
    } else {
        snprintf(conn->peer_text, sizeof(conn->peer_text), "(not connected)");
    }
}

weft_status_t weft_net_conn_watch(struct weft_net_conn *conn)
{
    return conn->state == WEFT_CONN_DEAD ? WEFT_OK : weft_engine_watch(conn->engine, &conn->source);
}

weft_status_t weft_net_conn_open(struct weft_engine *engine, const struct weft_net_dial *dial,
                                 struct weft_net_conn **conn_p)
{
    struct weft_net_conn *conn;
    uint8_t nonce[WEFT_WIRE_NONCE_LEN];
    weft_status_t status = weft_random(nonce, sizeof(nonce));
    if (status != WEFT_OK) {
        weft_fd_close(dial->fd);
        return status;
    }
    status = conn_new(engine, dial->fd, dial->ops, dial->owner, &conn);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_net_conn_watch(conn);
    if (status != WEFT_OK) {
        weft_net_conn_close(conn);
        return status;
    }
    conn->purpose = (uint8_t)dial->purpose;
    *conn_p = conn;
    note_peer(*conn_p, dial->is_local, dial->peer_pid);
    weft_wire_client_open((*conn_p)->shake, dial->self, nonce, dial->purpose, dial->lane,
                          dial->payload, dial->payload_len);
    (*conn_p)->shake->security = dial->security;
    if (dial->is_local) {
        weft_wire_client_speak((*conn_p)->shake);
        weft_net_conn_send_shake(*conn_p);
    }
    return WEFT_OK;
}

weft_status_t weft_net_conn_serve(struct weft_net_acceptor *acceptor, int fd, pid_t pid,
                                  const uint8_t nonce[WEFT_WIRE_NONCE_LEN],
                                  struct weft_net_conn **conn_p)
{
    weft_status_t status = conn_new(acceptor->engine, fd, acceptor->ops, acceptor->owner, conn_p);
    if (status != WEFT_OK) {
        return status;
    }
    (*conn_p)->acceptor = acceptor;
    note_peer(*conn_p, acceptor->is_local, pid);
    weft_wire_server_open((*conn_p)->shake, acceptor->self, acceptor->is_local ? NULL : nonce);
    weft_net_conn_send_shake(*conn_p);
    return WEFT_OK;
}
