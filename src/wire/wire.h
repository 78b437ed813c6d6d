/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: every byte that crosses a process border, and nothing else. Pure functions and state
 * machines: bytes in, bytes and facts out; no sockets, no clock, no randomness (nonces are given).
 * Everything here meets hostile bytes, so everything here is a fuzz target. All integers are
 * little-endian.
 */
#ifndef WEFT_WIRE_H
#define WEFT_WIRE_H

#include "base/base.h"

/* Grows when bytes on the wire change meaning; both sides must have the same. */
#define WEFT_WIRE_VERSION 1

#define WEFT_WIRE_NO_RANK UINT32_MAX

/* ---- crc32c (crc32c.c) ---- */

/* Castagnoli; start with crc = 0, chainable. SSE4.2 / ARMv8 CRC where the CPU has them. */
uint32_t weft_wire_crc32c(uint32_t crc, const void *data, size_t len);
/* The same without help of the CPU; a test compares the two. */
uint32_t weft_wire_crc32c_portable(uint32_t crc, const void *data, size_t len);

/* ---- keys and MACs (mac.c, libsodium) ---- */

#define WEFT_WIRE_KEY_LEN 32
#define WEFT_WIRE_NONCE_LEN 32
#define WEFT_WIRE_PROOF_LEN 32 /* MACs of the handshake */
#define WEFT_WIRE_SEAL_LEN 16  /* MACs of frames */

/* Once per process, cheap afterwards. ERR_SYSTEM. */
weft_status_t weft_wire_crypto_open(void);

/* out = BLAKE2b-256(key, label || 0 || data). label is a constant of ours. */
void weft_wire_derive(const uint8_t key[WEFT_WIRE_KEY_LEN], const char *label, const void *data,
                      size_t len, uint8_t out[32]);
/* The well-known key of a job without secret: keeps jobs apart, stops nobody. */
void weft_wire_open_key(const uint8_t job[16], uint8_t key[WEFT_WIRE_KEY_LEN]);
/* Seal of frame number `number` in one direction: over number, header and payload. */
void weft_wire_seal(const uint8_t key[WEFT_WIRE_KEY_LEN], uint64_t number, const void *header,
                    size_t header_len, const void *payload, size_t payload_len,
                    uint8_t seal[WEFT_WIRE_SEAL_LEN]);
/* Constant time. */
bool weft_wire_is_equal(const void *a, const void *b, size_t len);

/* ---- addresses (addr.c) ---- */

struct weft_wire_addr {
    uint8_t family; /* 0 none, 4, 6 */
    uint8_t zero;   /* instead of padding: addresses may be compared as memory */
    uint16_t port;
    uint32_t scope;
    uint8_t bytes[16]; /* IPv4: the first four */
};
#define WEFT_WIRE_ADDR_LEN 24 /* encoded */
#define WEFT_WIRE_ADDR_TEXT_LEN 72
void weft_wire_addr_encode(const struct weft_wire_addr *addr, uint8_t out[WEFT_WIRE_ADDR_LEN]);
/* Bytes that mean nothing must be zero, and are in the result. ERR_PROTOCOL. */
weft_status_t weft_wire_addr_decode(const uint8_t in[WEFT_WIRE_ADDR_LEN],
                                    struct weft_wire_addr *addr_p);
/* Of two addresses of one family, as bytes: are the first prefix_len bits equal? */
bool weft_wire_addr_is_same_net(const uint8_t *a, const uint8_t *b, uint32_t prefix_len);
/* "10.0.0.1:4411", "[fe80::1%2]:4411", "nowhere" */
void weft_wire_addr_print(const struct weft_wire_addr *addr, char text[WEFT_WIRE_ADDR_TEXT_LEN]);

/* ---- the id (id.c) ---- */

enum { WEFT_WIRE_ID_AUTHENTICATED = 1 };

struct weft_wire_id {
    struct weft_wire_addr root;
    uint32_t flags;
    uint32_t epoch; /* counts starts of one job */
    uint8_t job[16];
    uint8_t secret[WEFT_SECRET_LEN]; /* zero without authentication */
};
void weft_wire_id_encode(const struct weft_wire_id *id, weft_id_t *id_p);
/* Checks magic, version and CRC. ERR_INVALID, ERR_VERSION. */
weft_status_t weft_wire_id_decode(const weft_id_t *id, struct weft_wire_id *id_p);
/* "weft1:" + base64url; WEFT_ID_TEXT_LEN bytes */
void weft_wire_id_print(const weft_id_t *id, char *text);
weft_status_t weft_wire_id_parse(const char *text, weft_id_t *id_p);
/* "job 5f3c2a91 at 10.0.0.1:4411, epoch 0, authenticated" */
weft_status_t weft_wire_id_print_public(const weft_id_t *id, char *text);
/* Name of an abstract socket of this job, without the leading zero byte: "weft-" + 32 hex digits,
 * from the job's key, so that strangers cannot guess it. what: "root", "leader", "rank". */
#define WEFT_WIRE_NAME_LEN 40
void weft_wire_local_name(const uint8_t key[WEFT_WIRE_KEY_LEN], const uint8_t job[16],
                          uint32_t epoch, const char *what, uint32_t rank,
                          char name[WEFT_WIRE_NAME_LEN]);

/* ---- handshake (handshake.c, messages.h) ----
 *
 *   server                                  client
 *      | -- challenge: version, job, nonce --> |      the server speaks first: one trip less
 *      | <-- hello: who, nonce, payload, MAC - |      MAC over challenge and hello
 *      | -- accept: who, MAC  |  refuse: why > |      MAC over who, challenge and hello
 *
 * On a local socket the client speaks first and there is no challenge: the kernel vouches for the
 * other side's user, and who could record a hello there could read the secret itself. The hello
 * still proves the secret, and the accept answers the client's nonce. It saves a wake-up per rank,
 * a third of a start on a crowded host.
 *
 * The first 8 bytes of each message (magic, version, kind) never change, so that two versions can
 * tell each other. Under the MACs: both nonces, both ranks, ranks, job, epoch, purpose, lane,
 * payload: nothing can be replayed or spliced. The key is the job's secret, or weft_wire_open_key()
 * without one.
 */
#define WEFT_WIRE_PAYLOAD_MAX 1024 /* of a hello: all that an unproven peer can make us keep */
#define WEFT_WIRE_REASON_LEN 256
#define WEFT_WIRE_CHALLENGE_LEN 64
#define WEFT_WIRE_CONTEXT_LEN 100
#define WEFT_WIRE_IN_LEN 312 /* all of a message but the payload */

enum weft_wire_purpose {
    WEFT_WIRE_JOIN = 1,   /* payload: a member record */
    WEFT_WIRE_ATTACH = 2, /* to the parent in the control tree; no payload */
    WEFT_WIRE_LANE = 3,   /* a data lane */
    WEFT_WIRE_RETURN = 4, /* to the parent again, by another path; payload: see control/ways.c */
    WEFT_WIRE_HEAL = 5,   /* to who is above now that the parent is gone; no payload */
    WEFT_WIRE_ADOPT = 6,  /* to who is below now; no payload */
    WEFT_WIRE_ASIDE = 7,  /* around one who stands still; no payload */
};

/* What one side brings. Lent: must outlive the handshake. */
struct weft_wire_self {
    const uint8_t *key; /* WEFT_WIRE_KEY_LEN */
    bool is_authenticated;
    uint8_t job[16];
    uint32_t epoch;
    uint32_t rank;  /* NO_RANK where it has none yet */
    uint32_t ranks; /* 0 where it is not known yet */
    bool has_aes;   /* weft_wire_has_aes(): lanes may be sealed with it, if both sides have */
};

enum weft_wire_state {
    WEFT_WIRE_WANT_BYTES, /* feed more */
    WEFT_WIRE_HELLO,      /* server: peer facts are there; accept or refuse */
    WEFT_WIRE_DONE,       /* keys are there */
    WEFT_WIRE_FAILED,     /* status and reason are there; send out (if any), then close */
};

struct weft_wire_handshake {
    const struct weft_wire_self *self; /* lent */
    bool is_server;
    enum weft_wire_state state;
    weft_status_t status;
    char reason[WEFT_WIRE_REASON_LEN]; /* why it failed, in words for this side */

    /* to be sent; the owner sends out[0 … out_len) and sets out_len to 0 */
    uint8_t out[256 + WEFT_WIRE_PAYLOAD_MAX];
    size_t out_len;

    /* the peer, once known (server: at HELLO; client: its rank at DONE, the rest
     * from the challenge, if there is one) */
    uint16_t peer_version;
    uint32_t peer_rank, peer_ranks, peer_epoch;
    uint8_t purpose;
    uint16_t lane;
    uint8_t security; /* enum weft_wire_security, of a data lane; client: set it before it speaks */
    bool is_aes;      /* at DONE: both sides have it */
    uint8_t payload[WEFT_WIRE_PAYLOAD_MAX]; /* server: received; client: to send */
    uint32_t payload_len;

    /* at DONE: one key per direction, for weft_wire_seal(); zero on local sockets */
    uint8_t send_key[WEFT_WIRE_KEY_LEN], recv_key[WEFT_WIRE_KEY_LEN];

    /* private */
    bool is_elsewhere;       /* failed: another job or epoch is served there */
    bool is_proved;          /* failed: the refusal came from one who knows the secret */
    bool is_local;           /* no challenge, and no keys: nothing is sealed */
    bool is_challenged;      /* client: the hello is out */
    uint8_t part;            /* which part of a message is being read */
    uint32_t in_len, in_end; /* how far it is read, where it ends */
    uint8_t in[WEFT_WIRE_IN_LEN];
    uint8_t nonce[WEFT_WIRE_NONCE_LEN]; /* client: its own */
    uint8_t challenge[WEFT_WIRE_CHALLENGE_LEN];
    uint8_t proof[WEFT_WIRE_PROOF_LEN]; /* the hello's, as computed here */
    uint8_t context[WEFT_WIRE_CONTEXT_LEN];
};

/* Server: out holds the challenge afterwards. nonce NULL: a local socket, no challenge. */
void weft_wire_server_open(struct weft_wire_handshake *shake, const struct weft_wire_self *self,
                           const uint8_t nonce[WEFT_WIRE_NONCE_LEN]);
/* Client: sends nothing before the challenge came. payload may be NULL; ≤ WEFT_WIRE_PAYLOAD_MAX. */
void weft_wire_client_open(struct weft_wire_handshake *shake, const struct weft_wire_self *self,
                           const uint8_t nonce[WEFT_WIRE_NONCE_LEN], enum weft_wire_purpose purpose,
                           uint16_t lane, const void *payload, size_t payload_len);
/* Client, on a local socket, right after opening: out holds the hello. */
void weft_wire_client_speak(struct weft_wire_handshake *shake);
/* Consumes up to len bytes; *used_p says how many (less when the state changed: what follows is the
 * connection's). Returns the state. After FAILED it consumes nothing. A first byte that is not ours
 * fails at once, with no out: strangers get no answer. */
enum weft_wire_state weft_wire_feed(struct weft_wire_handshake *shake, const void *bytes,
                                    size_t len, size_t *used_p);
/* Server, in state HELLO. accept → DONE, refuse → FAILED; both fill out. reason: for the peer. */
void weft_wire_accept(struct weft_wire_handshake *shake);
void weft_wire_refuse(struct weft_wire_handshake *shake, weft_status_t status, const char *reason);
/* Wipes the keys. */
void weft_wire_handshake_close(struct weft_wire_handshake *shake);

/* ---- control frames (frame.c) ---- */

enum weft_wire_type {
    WEFT_WIRE_HEARTBEAT = 1,
    WEFT_WIRE_MEMBERS,  /* up during start: member records gathered below */
    WEFT_WIRE_REJECT,   /* down during start: dst is refused; payload: status, reason */
    WEFT_WIRE_ANSWER,   /* down during start: your parent in the tree */
    WEFT_WIRE_TABLE,    /* down: all ranks */
    WEFT_WIRE_GATHER,   /* up: contributions to a collective */
    WEFT_WIRE_SPREAD,   /* down: its result */
    WEFT_WIRE_MAIL,     /* a tagged message */
    WEFT_WIRE_MAIL_ACK, /* its bytes were received */
    WEFT_WIRE_REPORT,   /* up to the coordinator: something failed */
    WEFT_WIRE_VERDICT,  /* down to all: this communicator has ended, and why */
    WEFT_WIRE_BYE,      /* the sender closes in good order */
    WEFT_WIRE_CLOSED,   /* up, then down: these ranks closed in good order */
    WEFT_WIRE_CALL,     /* dst: let us have a lane; payload: see dialling.c */
    WEFT_WIRE_WAYS,     /* up: how many NICs are here; down: addresses where one may come again */
    WEFT_WIRE_DOORS,    /* down: those that src, of another host, was heard to have */
    WEFT_WIRE_RESUME,   /* first on a connection that replaces another: number frames had come */
    WEFT_WIRE_SHRINK,   /* up: the sender asks who goes on; payload: see control/shrink.c */
    WEFT_WIRE_SHRUNK,   /* to all: these do */
    WEFT_WIRE_BELOW, /* up: these ranks are reached by way of the sender now, and all they know has come */
    WEFT_WIRE_TYPE_END
};
#define WEFT_WIRE_FLAG_WORD 1 /* HEARTBEAT, down: all others have all verdicts (control/word.c) */
#define WEFT_WIRE_FLAG_STILL_MORE 2 /* the same, up: not only dst stands still (control/still.c) */

/*
 *  0      2    3     4       8                 16      20      24       28
 *  | magic|type|flags| len   | communicator id | src   | dst   | number | crc32c of 0…27 |
 * number: operation number or tag. src, dst: ranks of the job (not of the communicator).
 * Then len bytes of payload, then, on sealed connections, WEFT_WIRE_SEAL_LEN bytes of seal.
 */
#define WEFT_WIRE_FRAME_LEN 32
#define WEFT_WIRE_FRAME_MAX (64u << 20) /* longest payload */

struct weft_wire_frame {
    uint8_t type;
    uint8_t flags;
    uint32_t len;
    uint64_t comm;
    uint32_t src, dst;
    uint32_t number;
};
void weft_wire_frame_encode(const struct weft_wire_frame *frame, uint8_t out[WEFT_WIRE_FRAME_LEN]);
/* ERR_PROTOCOL: magic, type, length or CRC. */
weft_status_t weft_wire_frame_decode(const uint8_t in[WEFT_WIRE_FRAME_LEN],
                                     struct weft_wire_frame *frame_p);

/* ---- data frames (data.c): what travels on lanes between hosts ---- */

enum weft_wire_data_type {
    WEFT_DATA_EAGER = 1, /* a whole message; tag, seq */
    WEFT_DATA_ANNOUNCE,  /* a long one; tag, seq, a = its id at the sender, b = length; its chunks
                            follow at once when flags has FOLLOWS; c: lane's own use */
    WEFT_DATA_GRANT,     /* a = id: send its chunks now, all of them */
    WEFT_DATA_CHUNK,     /* a = id, b = offset: bytes of an announced message */
    WEFT_DATA_DONE,      /* a = id: it is there, or not wanted (b = status) */
    WEFT_DATA_HINT,      /* a long receive is posted; tag, a = room, seq = envelopes seen so far */
    WEFT_DATA_PUT,       /* a = registration, b = offset, c = operation id */
    WEFT_DATA_GET,    /* a = registration, b = offset, c = operation id; length: tag + seq << 32 */
    WEFT_DATA_PART,   /* answer to GET; c = operation id, b = offset in the answer */
    WEFT_DATA_SIGNAL, /* a = registration, b = offset, c = what to add; after all puts before it: bulk
                          up to number seq */
    WEFT_DATA_FLUSH, /* a = number of a quiet: answer when all puts before it (as SIGNAL) are applied */
    WEFT_DATA_FLUSHED, /* a = that number, b = first status that was not fine */
    WEFT_DATA_ACK, /* ack, a = credit; flags SLOT: c bulk frames have come by slot tag, generation
                          seq; flags DOWN: that slot is given up, c: its NIC is dead, so are later generations;
                          REST: it is closed for want of work, or (no slot) they are wanted again;
                          END: the link is closed;
                          LEAD: numbered frames come by this lane from now on, seq counts, b = slots of the dialler, c = those
                          that are slow. A lane's first frame, by its dialler:
                          tag = slot, seq = generation */
    WEFT_DATA_BYE, /* the communicator is closed here; a = 1: is it closed there (BYE is the answer, when it
                          is); comm 0: nothing is, only say what has come */
    WEFT_DATA_ENDED, /* the communicator has failed here, a = status: nobody need wait for us */
    WEFT_DATA_TYPE_END
};
enum {
    WEFT_DATA_FOLLOWS = 1,
    WEFT_DATA_CHECKED = 2,
    WEFT_DATA_SLOT = 4,
    WEFT_DATA_DOWN = 8,
    WEFT_DATA_END = 16,
    WEFT_DATA_LEAD = 32,
    WEFT_DATA_REST = 64,
};

/*
 *  0      2    3     4    8      16   20   24  32  40  48       52   56            60
 *  | magic|type|flags|len | comm |tag |seq | a | b | c | number |ack | payload crc | crc32c of 0…59 |
 * seq counts the envelopes (EAGER, ANNOUNCE) of one communicator from this rank to that one. number
 * counts the frames kept for replay, 0: not kept; ack: all of those numbers up to it have arrived. Bulk
 * has numbers of its own, and any lane (seq: of two copies the one with the higher seq counts; flags SLOT: tell at once that it came); everything
 * else goes over one lane in order. Then len bytes of
 * payload; payload crc counts when flags has CHECKED.
 */
#define WEFT_WIRE_DATA_LEN 64
#define WEFT_WIRE_DATA_MAX (64u << 20) /* longest payload of one frame */

struct weft_wire_data {
    uint8_t type, flags;
    uint32_t len;
    uint64_t comm;
    uint32_t tag, seq;
    uint64_t a, b, c;
    uint32_t number, ack;
    uint32_t payload_crc;
};
/* Pieces of something long: they may travel on any lane and have numbers of their own. */
static inline bool weft_wire_data_is_bulk(const struct weft_wire_data *data)
{
    return data->len > 0 && (data->type == WEFT_DATA_CHUNK || data->type == WEFT_DATA_PUT ||
                             data->type == WEFT_DATA_PART);
}
void weft_wire_data_encode(const struct weft_wire_data *data, uint8_t out[WEFT_WIRE_DATA_LEN]);
/* ERR_PROTOCOL: magic, type, length or CRC. */
weft_status_t weft_wire_data_decode(const uint8_t in[WEFT_WIRE_DATA_LEN],
                                    struct weft_wire_data *data_p);

/* ---- records (record.c): the bytes of a lane whose frames are sealed (WEFT_SECURITY) ----
 *
 *  0     4                8           8 + len
 *  | len | crc32c of len  | len bytes | tag, 16 bytes |
 *
 * A record holds a piece of the lane's stream: a few frames, or a piece of one. Nothing of it counts before
 * its tag was right. The CRC is no protection: it only finds a length that was damaged by chance before so many
 * bytes are waited for.
 */
enum weft_wire_security { WEFT_SECURITY_AUTH, WEFT_SECURITY_INTEGRITY, WEFT_SECURITY_ENCRYPT };
#define WEFT_WIRE_RECORD_HEAD_LEN 8
#define WEFT_WIRE_RECORD_TAG_LEN 16
#define WEFT_WIRE_RECORD_MAX (32u << 10) /* bytes of the stream in one record */
#define WEFT_WIRE_RECORDS_PER_KEY (UINT64_C(1) << 22)

/* One direction of a lane. Private, and secret: keep it in memory from weft_secret_map(). */
struct weft_wire_sealer {
    _Alignas(16) uint8_t schedule[512]; /* AES: the key, made ready */
    uint8_t key[WEFT_WIRE_KEY_LEN];
    uint64_t number;                    /* of the next record */
    uint64_t renewed_after, renewed_at; /* records of one key; number of the latest renewal */
    bool is_encrypting, is_aes;
};

/* Has this CPU AES-256-GCM? After weft_wire_crypto_open(). */
bool weft_wire_has_aes(void);
/* key: of the handshake, for this direction. Both sides must give the same level and cipher. */
void weft_wire_sealer_open(struct weft_wire_sealer *sealer, const uint8_t key[WEFT_WIRE_KEY_LEN],
                           enum weft_wire_security security, bool is_aes);
static inline size_t weft_wire_record_len(size_t len)
{
    return WEFT_WIRE_RECORD_HEAD_LEN + len + WEFT_WIRE_RECORD_TAG_LEN;
}
/* 0 < len ≤ RECORD_MAX. Writes weft_wire_record_len(len) bytes and returns how many. `bytes` may lie where
 * they will be in the record. */
size_t weft_wire_record_seal(struct weft_wire_sealer *sealer, const void *bytes, size_t len,
                             uint8_t *record);
/* How many bytes the record will give. ERR_PROTOCOL. */
weft_status_t weft_wire_record_peek(const uint8_t head[WEFT_WIRE_RECORD_HEAD_LEN], size_t *len_p);
/* The whole record, len as peek gave it. `out` gets len bytes, and may be where they lie in the record; what it
 * holds means nothing when it fails. ERR_PROTOCOL: it is not the next one of this direction. */
weft_status_t weft_wire_record_open(struct weft_wire_sealer *sealer, const uint8_t *record,
                                    size_t len, uint8_t *out);

/* ---- calls for a lane (dialling.c): how two ranks agree on a lane, over the control plane ----
 * The higher rank dials the lower one, so that two that call at once make one lane. ASK: the higher
 * one wants to know where; HERE: the lower one says where it listens; NO: whoever says it found no
 * way, with why: words in `shm`, one byte of status in `tcp`. */
enum { WEFT_DIALLING_ASK = 1, WEFT_DIALLING_HERE = 2, WEFT_DIALLING_NO = 3 };
#define WEFT_WIRE_DIALLING_ADDRESS_MAX (8 * WEFT_WIRE_ADDR_LEN)
#define WEFT_WIRE_DIALLING_MAX (4 + 2 * WEFT_WIRE_DIALLING_ADDRESS_MAX)
struct weft_wire_dialling {
    uint8_t kind;
    uint8_t shm_len, tcp_len; /* 0: not that way */
    uint8_t shm[WEFT_WIRE_DIALLING_ADDRESS_MAX];
    uint8_t tcp[WEFT_WIRE_DIALLING_ADDRESS_MAX]; /* one address after the other, of each NIC */
};
size_t weft_wire_dialling_encode(const struct weft_wire_dialling *call,
                                 uint8_t out[WEFT_WIRE_DIALLING_MAX]);
/* ERR_PROTOCOL */
weft_status_t weft_wire_dialling_decode(const void *bytes, size_t len,
                                        struct weft_wire_dialling *call_p);

/* ---- what a rank called, when a collective does not go on (calling.c) ---- */
#define WEFT_WIRE_CALLING_KIND 0xc0 /* its first byte: no call for a lane begins so */
#define WEFT_WIRE_CALLING_LEN 80
enum weft_wire_calling_about {
    WEFT_CALLING_REPORT,  /* this I called, and I wait (or: I was asked) */
    WEFT_CALLING_LATE,    /* the same, and my time is up */
    WEFT_CALLING_LENGTH,  /* the same, and what you sent has another length than I expected */
    WEFT_CALLING_WHERE,   /* have you made call `number`? Then report it to me */
    WEFT_CALLING_STRAY,   /* a message of yours with `tag` lies here: report its call to me */
    WEFT_CALLING_HISTORY, /* this I called, long ago */
    WEFT_CALLING_ABOUTS
};
struct weft_wire_calling {
    uint8_t about; /* enum weft_wire_calling_about */
    uint8_t coll, dtype, op;
    uint64_t channel;
    uint32_t rank, missing; /* of the communicator: who says it, whom it waits for (or NO_RANK);
                             * WHERE: on whose behalf */
    uint32_t number;        /* of the call */
    uint32_t root, signature;
    uint32_t tag; /* STRAY */
    uint64_t count, timeout_ms;
    uint64_t came, expected; /* LENGTH: bytes */
    uint32_t chain;          /* of the signatures of all calls up to this one */
    uint32_t controls;       /* calls of the control plane that were made before it */
    bool is_waiting;         /* its caller, for nothing else */
};
void weft_wire_calling_encode(const struct weft_wire_calling *calling,
                              uint8_t out[WEFT_WIRE_CALLING_LEN]);
/* ERR_PROTOCOL */
weft_status_t weft_wire_calling_decode(const void *bytes, size_t len,
                                       struct weft_wire_calling *calling_p);

/* ---- start-up records (roster.c) ---- */

#define WEFT_WIRE_HOST_LEN 64
#define WEFT_WIRE_SETTINGS_LEN 384

/* With a pid: it is no number of its leader's pid namespace, so that others cannot look that process up. */
#define WEFT_WIRE_PID_FOREIGN (UINT32_C(1) << 31)

/* One rank that joins, as it travels up. */
struct weft_wire_member {
    uint32_t rank;
    uint32_t ranks;
    uint32_t leader; /* rank through which its host joined; its own when it came directly */
    uint32_t pid;
    uint32_t timeout_ms;        /* what it has left, so that the root answers in time */
    struct weft_wire_addr addr; /* where it listens for tree children; family 0: nowhere */
    char host[WEFT_WIRE_HOST_LEN];
    char settings[WEFT_WIRE_SETTINGS_LEN]; /* weft_params_agreed() */
};
#define WEFT_WIRE_MEMBER_MAX 512 /* encoded; a hello's payload can hold one */
/* Returns the encoded length; 0: it does not fit into room. */
size_t weft_wire_member_encode(const struct weft_wire_member *member, uint8_t *out, size_t room);
/* Decodes one from the front; *used_p bytes. Texts are made printable. What the numbers mean
 * (range, duplicates) is the caller's to judge. ERR_PROTOCOL. */
weft_status_t weft_wire_member_decode(const void *bytes, size_t len,
                                      struct weft_wire_member *member_p, size_t *used_p);

/* (table.c) All ranks, as it travels down. A group is the ranks that joined through one leader: a
 * host. */
struct weft_wire_group {
    uint32_t leader;
    struct weft_wire_addr addr;
    char host[WEFT_WIRE_HOST_LEN];
};
struct weft_wire_table {
    uint32_t ranks, groups;
    uint32_t root;                  /* rank of the tree's root, leader of group 0 */
    uint16_t fan_groups, fan_local; /* see control/tree.c */
    uint32_t *group_of;             /* [ranks], owned */
    uint32_t *pid;                  /* [ranks], owned; see WEFT_WIRE_PID_FOREIGN */
    struct weft_wire_group *group;  /* [groups], owned */
};
/* Allocates the arrays. ERR_MEMORY. */
weft_status_t weft_wire_table_open(uint32_t ranks, uint32_t groups,
                                   struct weft_wire_table *table_p);
void weft_wire_table_close(struct weft_wire_table *table); /* zeroes it; twice is harmless */
size_t weft_wire_table_len(const struct weft_wire_table *table);
/* Returns the encoded length; 0: it does not fit into room. */
size_t weft_wire_table_encode(const struct weft_wire_table *table, uint8_t *out, size_t room);
/* Checks everything a reader relies on: group_of < groups, leaders are members of their group, the
 * root leads group 0, fans ≥ 1, no trailing bytes; counts are checked against len before
 * allocating. ERR_PROTOCOL, ERR_MEMORY. */
weft_status_t weft_wire_table_decode(const void *bytes, size_t len,
                                     struct weft_wire_table *table_p);

/* Where a rank's parent in the tree is; for ranks that do not keep their first connection. */
struct weft_wire_answer {
    uint32_t parent;
    uint32_t root;
    uint16_t fan_groups, fan_local;
    bool is_local;              /* through the parent's abstract socket */
    struct weft_wire_addr addr; /* else here */
};
#define WEFT_WIRE_ANSWER_LEN 40
void weft_wire_answer_encode(const struct weft_wire_answer *answer,
                             uint8_t out[WEFT_WIRE_ANSWER_LEN]);
weft_status_t weft_wire_answer_decode(const void *bytes, size_t len,
                                      struct weft_wire_answer *answer_p);

/* Status, a rank and words: payload of REJECT, REPORT and VERDICT. */
struct weft_wire_notice {
    uint32_t status; /* weft_status_t; never OK */
    uint32_t rank;   /* the one that failed; NO_RANK: nobody in particular */
    uint32_t number; /* of the verdict; 0: not numbered */
    char text[WEFT_WIRE_REASON_LEN];
};
#define WEFT_WIRE_NOTICE_MAX (16 + WEFT_WIRE_REASON_LEN)
size_t weft_wire_notice_encode(const struct weft_wire_notice *notice,
                               uint8_t out[WEFT_WIRE_NOTICE_MAX]);
/* Text is made printable (control bytes and broken UTF-8 become '?'). ERR_PROTOCOL. */
weft_status_t weft_wire_notice_decode(const void *bytes, size_t len,
                                      struct weft_wire_notice *notice_p);

#endif
