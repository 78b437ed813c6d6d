/* SPDX-License-Identifier: Apache-2.0 */
/* Private to net: what an acceptor and the connections it is still checking know of each other. */
#ifndef WEFT_NET_INTERNAL_H
#define WEFT_NET_INTERNAL_H

#include "net/net.h"

#define WEFT_NET_NONCES 8
#define WEFT_NET_BUFFER_LEN 1024 /* what a connection's buffers begin with */

struct weft_net_acceptor {
    struct weft_engine_source source;
    struct weft_engine_timer timer;
    struct weft_engine *engine;
    const struct weft_wire_self *self;
    const struct weft_net_conn_ops *ops;
    void *owner;
    uint64_t handshake_timeout_ms;
    struct weft_list pending; /* of conn.node, oldest first */
    unsigned pending_count;
    unsigned device; /* index of the one that its connections keep to; 0: as the routes say */
    uint32_t prefix_len;
    bool is_local;
    uid_t uid;      /* ours, when it was opened */
    bool is_full;   /* not accepting until one of the pending has moved */
    unsigned looks; /* … and so often those inside were heard since */
    uint8_t nonces[WEFT_NET_NONCES][WEFT_WIRE_NONCE_LEN]; /* drawn ahead, each used once */
    unsigned nonces_left;
    char error[160];                                 /* why accepting failed */
    void (*trouble)(void *owner, const char *error); /* is told so too; NULL: nobody */
    unsigned refused;
    char latest_refused[WEFT_NET_ADDR_TEXT_LEN];
};

/* Sockets that a listener accepts from now on know by which device they came (socket.c). */
void weft_net_note_device(int listener);
/* If this one came by it, and from its network, it leaves by it. */
void weft_net_keep_to(int fd, unsigned device, uint32_t prefix_len);
/* Server side: takes fd over, sends the challenge with this nonce. */
weft_status_t weft_net_conn_serve(struct weft_net_acceptor *acceptor, int fd, pid_t pid,
                                  const uint8_t nonce[WEFT_WIRE_NONCE_LEN],
                                  struct weft_net_conn **conn_p);
/* Writes what is queued, as far as the socket takes it (conn_out.c). */
void weft_net_conn_flush(struct weft_net_conn *conn);
/* Sends what the handshake has to say. */
void weft_net_conn_send_shake(struct weft_net_conn *conn);
/* A buffer that one large frame (a table) has grown is not kept for the small ones that follow. */
void weft_net_buffer_let_go(uint8_t **buffer, size_t *room);
/* The connection proved itself, or is gone: the acceptor forgets it. */
void weft_net_acceptor_forget(struct weft_net_acceptor *acceptor, struct weft_net_conn *conn);
/* One warning per second at most, with what was held back. */
void weft_net_acceptor_complain(struct weft_net_acceptor *acceptor,
                                const struct weft_net_conn *conn, weft_status_t status,
                                const char *why);

#endif
