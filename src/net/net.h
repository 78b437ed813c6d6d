/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net: sockets, and connections that have proved that they belong to the job. Knows frames, not
 * what they mean. A listener hands out connections only after their hello was proved; strangers are
 * closed here and nobody above hears of them. Used by control, by data lanes and by the NCCL plugin
 * alike.
 */
#ifndef WEFT_NET_H
#define WEFT_NET_H

#include "engine/engine.h"
#include "wire/wire.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define WEFT_NET_ADDR_TEXT_LEN 80

struct weft_net_conn;
struct weft_net_conn_ops;

/* ---- addresses (addr.c) ---- */

void weft_net_addr_to_wire(const struct sockaddr_storage *addr, struct weft_wire_addr *wire_p);
/* Are both ends of this connection on one host? Then memory bounds its rate, and a modelled path only slows it down. */
bool weft_net_is_one_host(int fd);
/* ERR_INVALID when it holds no address. */
weft_status_t weft_net_addr_from_wire(const struct weft_wire_addr *wire,
                                      struct sockaddr_storage *addr_p);
socklen_t weft_net_addr_len(const struct sockaddr_storage *addr);
void weft_net_addr_set_port(struct sockaddr_storage *addr, uint16_t port);
/* Do the two lie in one network, by the first prefix_len bits? */
bool weft_net_addr_is_same_net(const struct sockaddr_storage *a, const struct sockaddr_storage *b,
                               uint32_t prefix_len);
/* Where to listen for those who come from where `there` is: an interface of the filter, or as the routes say.
 * ERR_INVALID, ERR_NETWORK. */
weft_status_t weft_net_addr_towards(const char *filter, const struct sockaddr_storage *there,
                                    struct sockaddr_storage *here_p);
/* "10.0.0.7:4411", "[fe80::1%eth0]:4411" */
void weft_net_addr_print(const struct sockaddr_storage *addr, char text[WEFT_NET_ADDR_TEXT_LEN]);
/* Name or number; blocks in the resolver. family AF_UNSPEC takes the first answer. ERR_NETWORK. */
weft_status_t weft_net_addr_resolve(const char *host, uint16_t port, int family,
                                    struct sockaddr_storage *addr_p);
/* "host:port" or "[v6]:port" → its parts; ERR_INVALID. */
weft_status_t weft_net_addr_split(const char *text, char *host, size_t room, uint16_t *port_p);

/* ---- sockets (socket.c); descriptors are registered with weft_fd_own() ---- */

/* "first-last" → both; "" → 0, 0 (any port). ERR_INVALID. */
weft_status_t weft_net_port_range(const char *text, uint16_t *first_p, uint16_t *last_p);
/* Binds addr (its port, or with port 0 any port of the range) and listens. ERR_BUSY: taken. */
weft_status_t weft_net_listen(const struct sockaddr_storage *addr, uint16_t first, uint16_t last,
                              int *fd_p, struct sockaddr_storage *bound_p);
/* Abstract unix socket. ERR_BUSY: another process has it. */
weft_status_t weft_net_listen_local(const char *name, int *fd_p);
/* A connection about to be made: connecting fills the first part, its owner the second. self, ops:
 * lent while it lives. */
struct weft_net_dial {
    int fd;
    bool is_local;
    pid_t peer_pid; /* local only */

    const struct weft_wire_self *self;
    enum weft_wire_purpose purpose;
    uint16_t lane;       /* which one of several, for data lanes */
    uint8_t security;    /* enum weft_wire_security, for data lanes */
    const void *payload; /* of the hello */
    size_t payload_len;
    const struct weft_net_conn_ops *ops;
    void *owner;
};

/* Starts connecting; the socket becomes writable when it has an answer. */
weft_status_t weft_net_connect(const struct sockaddr_storage *addr, struct weft_net_dial *dial_p);
/* The same from an address of ours (its port does not matter), by the device of that name if we may. */
weft_status_t weft_net_connect_from(const struct sockaddr_storage *from, const char *device,
                                    const struct sockaddr_storage *addr,
                                    struct weft_net_dial *dial_p);
/* Connects to an abstract socket of a process of the same user, else ERR_AUTH; ERR_NETWORK: nobody
 * listens. Blocks only while the listener's queue is full; ERR_BUSY: until the deadline. */
weft_status_t weft_net_connect_local(const char *name, uint64_t deadline_ns,
                                     struct weft_net_dial *dial_p);

/* ---- connections (conn.c) ---- */

/* What the owner is told, under the engine's lock. It may close the connection inside any of them.
 */
struct weft_net_conn_ops {
    /* server: the peer proved membership; accept or refuse it, now or later */
    void (*hello)(struct weft_net_conn *conn);
    /* client: the listener proved membership and accepted us */
    void (*opened)(struct weft_net_conn *conn);
    void (*frame)(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                  const uint8_t *payload);
    /* it is gone (ERR_PEER: closed or reset; or what the handshake or a bad frame gave); only
     * closing it is left to do */
    void (*lost)(struct weft_net_conn *conn, weft_status_t status, const char *why);
};

struct weft_net_conn {
    struct weft_engine_source source;
    struct weft_engine *engine;          /* lent */
    const struct weft_net_conn_ops *ops; /* lent */
    void *owner;                         /* the owner's, untouched here */
    struct weft_list node;               /* the owner's */
    uint32_t peer_rank;                  /* from the handshake */
    uint32_t tag;                        /* the owner's */
    bool is_beating, is_answered;        /* the owner's */
    void *edge;                          /* the owner's */
    uint8_t purpose;
    bool is_aes;                            /* both sides have it (open) */
    bool is_local;                          /* unix socket: no seals, the kernel vouches */
    pid_t peer_pid;                         /* local only */
    struct weft_wire_addr peer_addr;        /* TCP only */
    char peer_text[WEFT_NET_ADDR_TEXT_LEN]; /* its address, or "pid 4411 on this host" */
    uint64_t heard_ns, spoken_ns;           /* last bytes in, last bytes out */
    uint32_t resent;                        /* TCP: what had gone twice by then (path.c) */

    /* private */
    enum { WEFT_CONN_SHAKING, WEFT_CONN_HELLO, WEFT_CONN_OPEN, WEFT_CONN_DEAD } state;
    struct weft_wire_handshake *shake;  /* owned; NULL once open */
    struct weft_net_acceptor *acceptor; /* while it has not proved itself */
    uint64_t since_ns;
    uint64_t stuck_ns,
        stuck_bytes;   /* what was acknowledged, and since when no more; 0: nothing waits */
    bool is_refused;   /* lost: the handshake failed, by the peer's word or its bytes */
    bool is_elsewhere; /* … because another job or epoch is served there */
    bool is_proved;    /* … by one who knows the secret */
    int error;         /* lost: the errno that ended it, 0: none */
    bool is_sealed, is_corked, is_in_call, is_to_free;
    bool is_broken; /* bytes for the peer found no memory; its end is about to be read */
    uint8_t send_key[WEFT_WIRE_KEY_LEN], recv_key[WEFT_WIRE_KEY_LEN];
    uint64_t sent_frames, received_frames;
    uint8_t *in, *out; /* owned */
    size_t in_len, in_room, out_start, out_len, out_room;
    size_t unread_len; /* what came behind a handshake message and is not in `in` yet */
};

/* Client: proves itself as soon as the listener has spoken. Takes dial->fd over, also when it fails. */
weft_status_t weft_net_conn_open(struct weft_engine *engine, const struct weft_net_dial *dial,
                                 struct weft_net_conn **conn_p);
/* Connections that a local listener hands out with their hello are not watched yet: a system call that their
 * owner can do when it has time. Until then their end is not noticed. Twice is harmless. ERR_SYSTEM. */
weft_status_t weft_net_conn_watch(struct weft_net_conn *conn);
/* Closes at once (what is queued is tried once more) and frees; NULL is fine. */
void weft_net_conn_close(struct weft_net_conn *conn);

/* Takes the descriptor out of an open connection, for somebody who drives it himself: removed from
 * the engine, still registered with weft_fd_own(). The connection is freed; may be called inside
 * `opened`, and inside `hello` after accepting. -1: the peer spoke before its turn, or had no room
 * for the handshake; its owner has heard `lost` (ERR_PROTOCOL), and closes it as ever. */
int weft_net_conn_detach(struct weft_net_conn *conn, uint8_t send_key[WEFT_WIRE_KEY_LEN],
                         uint8_t recv_key[WEFT_WIRE_KEY_LEN]);

/* Client: the listener showed our job, and our hello is out. */
bool weft_net_conn_has_spoken(const struct weft_net_conn *conn);
/* Server, after hello: */
const struct weft_wire_handshake *weft_net_conn_hello(const struct weft_net_conn *conn);
void weft_net_conn_accept(struct weft_net_conn *conn);
/* Tells the peer why, and closes. */
void weft_net_conn_refuse(struct weft_net_conn *conn, weft_status_t status, const char *reason);

/* Queues a frame and writes what the socket takes; never blocks. frame->len is set from len.
 * Sending on a dead connection is harmless: its owner hears `lost` (again never more than once).
 * ERR_MEMORY: the frame is gone, and with it the connection: `lost` comes with the next poll. */
weft_status_t weft_net_conn_send(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                 const void *payload, size_t len);
/* What should have been said cannot be: ends the connection at the next poll, with ERR_MEMORY; the peer sees it
 * closed at once. */
void weft_net_conn_break(struct weft_net_conn *conn);
/* Between cork and uncork nothing is written: several frames leave in one system call. */
void weft_net_conn_cork(struct weft_net_conn *conn);
void weft_net_conn_uncork(struct weft_net_conn *conn);
size_t weft_net_conn_queued(const struct weft_net_conn *conn);
/* Did bytes get lost on their way, that the kernel sends again? To close now would lose them for good. */
bool weft_net_conn_is_resending(const struct weft_net_conn *conn);
/* TCP, where the kernel lets itself be told (Linux 6.15): a dead path is tried every second, and given up no sooner
 * for it. Else it waits twice as long each time: a path that was away for a minute is not tried for most of another. */
void weft_net_conn_persist(const struct weft_net_conn *conn);
/* Has the peer's host said anything since we dialled? */
bool weft_net_conn_is_answered(const struct weft_net_conn *conn);
/* TCP: has the kernel of the peer left our bytes unacknowledged for this long, though they were sent again? */
bool weft_net_conn_is_path_dead(struct weft_net_conn *conn, uint64_t for_ms);
/* TCP: has the kernel of the peer acknowledged all that we said, the last of it after that time, and at the first try? Where
 * something of ours got lost since weft_net_conn_note_resent(), something of the peer's may have, too, and be late: false. */
bool weft_net_conn_is_acking(const struct weft_net_conn *conn, uint64_t since_ns);
void weft_net_conn_note_resent(struct weft_net_conn *conn);
#define WEFT_NET_NIC_TEXT_LEN 80
/* TCP: by which of our NICs it goes: "10.1.0.1 (eth0)"; the address alone where no NIC has it any more. */
void weft_net_conn_nic(const struct weft_net_conn *conn, char text[WEFT_NET_NIC_TEXT_LEN]);

/* ---- acceptors (acceptor.c) ---- */

/* Connections that have not proved themselves: at most this many per listener are kept; when the
 * house is full, the oldest that stayed silent goes. */
#define WEFT_NET_PENDING_MAX 64

struct weft_net_acceptor;
/* Takes fd over (listening, TCP or unix), also when it fails. self->rank is what challenges say;
 * self, ops: lent. */
weft_status_t weft_net_acceptor_open(struct weft_engine *engine, int fd,
                                     const struct weft_wire_self *self,
                                     uint64_t handshake_timeout_ms,
                                     const struct weft_net_conn_ops *ops, void *owner,
                                     struct weft_net_acceptor **acceptor_p);
/* Connections of the device's own network that come in by it leave by it too: where several NICs are in one
 * network the routes would prefer one of them. Everybody else is left to the routes. */
void weft_net_acceptor_keep_to(struct weft_net_acceptor *acceptor, const char *device,
                               uint32_t prefix_len);
/* Closes the listener and everything that has not proved itself; NULL is fine. */
void weft_net_acceptor_close(struct weft_net_acceptor *acceptor);
/* Hands the listening descriptor back instead of closing it (an inherited one). */
int weft_net_acceptor_release(struct weft_net_acceptor *acceptor);
/* Why connections could not be accepted, the latest time; "": they could. */
const char *weft_net_acceptor_error(const struct weft_net_acceptor *acceptor);
/* The owner hears of it each time, under the engine's lock. */
void weft_net_acceptor_tell_trouble(struct weft_net_acceptor *acceptor,
                                    void (*trouble)(void *owner, const char *error));
/* How many connections were refused for a wrong secret, for error texts; and the latest such peer.
 */
unsigned weft_net_acceptor_refused(const struct weft_net_acceptor *acceptor, const char **latest_p);

#endif
