/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection has to say: frames are appended to one buffer and written at once; what the
 * socket does not take waits for EPOLLOUT.
 */
#include "net/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_LEN (64u << 10)

void weft_net_buffer_let_go(uint8_t **buffer, size_t *room)
{
    if (*room > KEPT_LEN) {
        free(*buffer);
        *buffer = NULL;
        *room = 0;
    }
}

void weft_net_conn_flush(struct weft_net_conn *conn)
{
    while (conn->out_len > 0) {
        ssize_t sent =
            send(conn->source.fd, conn->out + conn->out_start, conn->out_len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
                /* What the peer said before it closed may still be unread: reading finds the end.
                 */
                conn->out_len = 0;
            }
            break;
        }
        conn->out_start += (size_t)sent;
        conn->out_len -= (size_t)sent;
        weft_count(weft_engine_counters(conn->engine), WEFT_COUNTER_BYTES_OUT, (uint64_t)sent);
    }
    if (conn->out_len == 0) {
        conn->out_start = 0;
        weft_net_buffer_let_go(&conn->out, &conn->out_room);
    }
    conn->spoken_ns = weft_clock_ns();
    weft_engine_want(conn->engine, &conn->source, conn->out_len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Not `lost` at once: whoever sends may hold what its owner would free. */
void weft_net_conn_break(struct weft_net_conn *conn)
{
    if (conn->state != WEFT_CONN_DEAD) {
        conn->is_broken = true;
        conn->out_len = 0;
        shutdown(conn->source.fd, SHUT_RDWR);
    }
}

static weft_status_t reserve_out(struct weft_net_conn *conn, size_t len)
{
    size_t room = conn->out_room > 0 ? conn->out_room : WEFT_NET_BUFFER_LEN;
    uint8_t *grown;
    if (conn->out_start > 0) {
        memmove(conn->out, conn->out + conn->out_start, conn->out_len);
        conn->out_start = 0;
    }
    while (room < conn->out_len + len) {
        room *= 2;
    }
    if (room == conn->out_room) {
        return WEFT_OK;
    }
    grown = realloc(conn->out, room);
    if (grown == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %zu bytes to %s", len, conn->peer_text);
    }
    conn->out = grown;
    conn->out_room = room;
    return WEFT_OK;
}

static void append(struct weft_net_conn *conn, const void *bytes, size_t len)
{
    if (len > 0) {
        memcpy(conn->out + conn->out_start + conn->out_len, bytes, len);
        conn->out_len += len;
    }
}

weft_status_t weft_net_conn_send(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                 const void *payload, size_t len)
{
    uint8_t header[WEFT_WIRE_FRAME_LEN];
    uint8_t seal[WEFT_WIRE_SEAL_LEN];
    size_t total = sizeof(header) + len + (conn->is_sealed ? sizeof(seal) : 0);
    weft_status_t status;
    if (conn->state != WEFT_CONN_OPEN || conn->is_broken) {
        return WEFT_OK;
    }
    status = reserve_out(conn, total);
    if (status != WEFT_OK) {
        weft_net_conn_break(conn); /* a peer that misses one frame would wait for it for ever */
        return status;
    }
    frame->len = (uint32_t)len;
    weft_wire_frame_encode(frame, header);
    append(conn, header, sizeof(header));
    append(conn, payload, len);
    if (conn->is_sealed) {
        weft_wire_seal(conn->send_key, conn->sent_frames, header, sizeof(header), payload, len,
                       seal);
        append(conn, seal, sizeof(seal));
    }
    conn->sent_frames++;
    weft_count(weft_engine_counters(conn->engine), WEFT_COUNTER_FRAMES_OUT, 1);
    if (!conn->is_corked) {
        weft_net_conn_flush(conn);
    }
    return WEFT_OK;
}

void weft_net_conn_cork(struct weft_net_conn *conn)
{
    conn->is_corked = true;
}

void weft_net_conn_uncork(struct weft_net_conn *conn)
{
    conn->is_corked = false;
    if (conn->state != WEFT_CONN_DEAD && conn->out_len > 0) {
        weft_net_conn_flush(conn);
    }
}

size_t weft_net_conn_queued(const struct weft_net_conn *conn)
{
    return conn->state == WEFT_CONN_DEAD ? 0 : conn->out_len;
}

/* Handshake messages leave at once, so that who has proved nothing needs no buffer; only with a table behind
 * them (corked), or into a full socket, do they take the common way. */
void weft_net_conn_send_shake(struct weft_net_conn *conn)
{
    struct weft_wire_handshake *shake = conn->shake;
    ssize_t sent = 0;
    if (shake->out_len == 0) {
        return;
    }
    if (!conn->is_corked && conn->out_len == 0) {
        sent = send(conn->source.fd, shake->out, shake->out_len, MSG_NOSIGNAL);
        sent = sent > 0 ? sent : 0; /* a broken socket is found by reading it */
    }
    if ((size_t)sent < shake->out_len && reserve_out(conn, shake->out_len) != WEFT_OK) {
        weft_net_conn_break(conn);
    } else if ((size_t)sent < shake->out_len) {
        append(conn, shake->out + sent, shake->out_len - (size_t)sent);
        if (!conn->is_corked) {
            weft_net_conn_flush(conn);
        }
    }
    shake->out_len = 0;
}
