/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to wire: the four messages of the handshake and what is computed over them. handshake.c
 * decides when, messages.c knows how.
 */
#ifndef WEFT_WIRE_MESSAGES_H
#define WEFT_WIRE_MESSAGES_H

#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>

enum {
    WEFT_WIRE_KIND_IMPLIED = 0, /* never sent: a proof over it fits no challenge that was */
    WEFT_WIRE_KIND_CHALLENGE = 1,
    WEFT_WIRE_KIND_HELLO = 2,
    WEFT_WIRE_KIND_ACCEPT = 3,
    WEFT_WIRE_KIND_REFUSE = 4,
};

#define WEFT_WIRE_MAGIC "WEFT"
#define WEFT_WIRE_FLAG_AUTHENTICATED 1 /* of challenge and hello: the sender has a secret */
#define WEFT_WIRE_FLAG_ELSEWHERE 2     /* of refuse: another job or epoch is served here */
#define WEFT_WIRE_FLAG_PROVED 4        /* of refuse: a proof follows the reason */
#define WEFT_WIRE_FLAG_AES 8 /* of challenge and hello: the sender's CPU has AES-256-GCM */
#define WEFT_WIRE_TAG_LEN 8

/* The same in all versions, for ever. */
struct weft_wire_head {
    uint8_t magic[4];
    uint8_t version[2];
    uint8_t kind[1];
    uint8_t flags[1];
};

struct weft_wire_challenge {
    struct weft_wire_head head;
    uint8_t tag[WEFT_WIRE_TAG_LEN];
    uint8_t epoch[4];
    uint8_t rank[4];
    uint8_t ranks[4];
    uint8_t nonce[WEFT_WIRE_NONCE_LEN];
    uint8_t crc[4]; /* of all before it */
};

/* Followed by payload_len bytes of payload and the proof. */
struct weft_wire_hello {
    struct weft_wire_head head;
    uint8_t purpose[1];
    uint8_t security[1]; /* of a data lane, else 0 */
    uint8_t lane[2];
    uint8_t rank[4];
    uint8_t ranks[4];
    uint8_t epoch[4];
    uint8_t tag[WEFT_WIRE_TAG_LEN];
    uint8_t nonce[WEFT_WIRE_NONCE_LEN];
    uint8_t payload_len[4];
    uint8_t crc[4]; /* of all before it */
};

struct weft_wire_accepted {
    struct weft_wire_head head;
    uint8_t rank[4]; /* the server's */
    uint8_t proof[WEFT_WIRE_PROOF_LEN];
};

/* Followed by reason_len bytes of text. The server's version is in the head. */
struct weft_wire_refusal {
    struct weft_wire_head head;
    uint8_t status[4];
    uint8_t reason_len[4];
    uint8_t crc[4]; /* of all before it and of the reason */
};

static_assert(sizeof(struct weft_wire_head) == 8, "a head is 8 bytes");
static_assert(offsetof(struct weft_wire_head, version) == 4, "never changes");
static_assert(offsetof(struct weft_wire_head, kind) == 6, "never changes");
static_assert(sizeof(struct weft_wire_challenge) == WEFT_WIRE_CHALLENGE_LEN, "layout");
static_assert(offsetof(struct weft_wire_challenge, nonce) == 28, "layout");
static_assert(offsetof(struct weft_wire_challenge, crc) == 60, "layout");
static_assert(sizeof(struct weft_wire_hello) == 72, "layout");
static_assert(offsetof(struct weft_wire_hello, tag) == 24, "layout");
static_assert(offsetof(struct weft_wire_hello, nonce) == 32, "layout");
static_assert(offsetof(struct weft_wire_hello, crc) == 68, "layout");
static_assert(sizeof(struct weft_wire_accepted) == 44, "layout");
static_assert(sizeof(struct weft_wire_refusal) == 20, "layout");
static_assert(offsetof(struct weft_wire_refusal, crc) == 16, "layout");

/* What a hello says, beside what its sender is. */
struct weft_wire_call {
    uint8_t purpose, security;
    uint16_t lane;
    const uint8_t *nonce;   /* lent */
    const uint8_t *payload; /* lent */
    uint32_t payload_len;
};

void weft_wire_head_encode(uint16_t version, uint8_t kind, uint8_t flags,
                           struct weft_wire_head *head);
void weft_wire_challenge_encode(const struct weft_wire_self *self,
                                const uint8_t nonce[WEFT_WIRE_NONCE_LEN],
                                struct weft_wire_challenge *challenge);
/* What both sides of a local socket put in its place. Its kind is none that a client would take, so
 * that no false listener can ask for a hello which a local socket would believe. */
void weft_wire_challenge_imply(const struct weft_wire_self *self,
                               struct weft_wire_challenge *challenge);
bool weft_wire_challenge_is_whole(const struct weft_wire_challenge *challenge);
/* Head part alone. */
void weft_wire_hello_encode(const struct weft_wire_self *self, const struct weft_wire_call *call,
                            struct weft_wire_hello *hello);
bool weft_wire_hello_is_whole(const struct weft_wire_hello *hello);
/* Returns the length of the whole message; out has room for WEFT_WIRE_REFUSAL_MAX bytes. */
#define WEFT_WIRE_REFUSAL_MAX                                                                      \
    (sizeof(struct weft_wire_refusal) + WEFT_WIRE_REASON_LEN - 1 + WEFT_WIRE_PROOF_LEN)
size_t weft_wire_refusal_encode(weft_status_t status, uint8_t flags, const char *reason,
                                uint8_t *out);
/* MAC over the refusal, its reason and the hello's proof: only who knows the secret can say no. */
void weft_wire_refusal_proof(const struct weft_wire_self *self,
                             const struct weft_wire_refusal *refusal, size_t len,
                             const uint8_t hello_proof[WEFT_WIRE_PROOF_LEN],
                             uint8_t proof[WEFT_WIRE_PROOF_LEN]);
/* The refusal and its reason, reason_len bytes (already checked against the bounds). */
bool weft_wire_refusal_is_whole(const struct weft_wire_refusal *refusal, const uint8_t *reason,
                                uint32_t reason_len);

/* What strangers may see of a job id. */
void weft_wire_job_tag(const uint8_t job[16], uint8_t tag[WEFT_WIRE_TAG_LEN]);
/* MAC over the job, the challenge, the hello and its payload. */
void weft_wire_hello_proof(const struct weft_wire_self *self,
                           const struct weft_wire_challenge *challenge,
                           const struct weft_wire_hello *hello, const uint8_t *payload,
                           uint8_t proof[WEFT_WIRE_PROOF_LEN]);
/* MAC over the server's rank and the hello's proof, and so over everything that is under it. */
void weft_wire_accept_proof(const struct weft_wire_self *self, const uint8_t rank[4],
                            const uint8_t hello_proof[WEFT_WIRE_PROOF_LEN],
                            uint8_t proof[WEFT_WIRE_PROOF_LEN]);

/* What the connection's keys depend on: both nonces, job, both ranks, ranks, epoch, lane, purpose.
 */
void weft_wire_context(const struct weft_wire_self *self,
                       const struct weft_wire_challenge *challenge,
                       const struct weft_wire_hello *hello, uint8_t context[WEFT_WIRE_CONTEXT_LEN]);

#endif
