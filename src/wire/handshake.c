/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake as a state machine. A message is read in parts; when one is whole, `part_done`
 * looks at it and says which comes next, so that feeding byte by byte and feeding all at once are
 * the same thing. Lengths are checked before the part that they announce is begun: `in` and
 * `payload` cannot overflow.
 *
 *   server:  HEAD, HELLO, PAYLOAD, PROOF
 *   client:  HEAD, CHALLENGE, then HEAD, ACCEPT or HEAD, REFUSE, REASON, perhaps PROOF
 *            (on a local socket from the second HEAD on)
 *
 * Who gets which answer: bytes that are not ours get none. A hello that is ours, but of another
 * version, job, epoch or secret, is read to its end and refused with a reason: closing with unread
 * bytes would reset the connection, and the peer might never see why.
 */
#include "wire/messages.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    PART_HEAD,
    PART_HELLO,
    PART_PAYLOAD, /* the only one that is read into `payload`; all others go to `in` */
    PART_PROOF,
    PART_CHALLENGE,
    PART_ACCEPT,
    PART_REFUSE,
    PART_REASON,
    PART_REFUSE_PROOF,
};

#define HEAD_LEN sizeof(struct weft_wire_head)
#define HELLO_LEN sizeof(struct weft_wire_hello)

static_assert(WEFT_WIRE_IN_LEN >= HELLO_LEN + WEFT_WIRE_PROOF_LEN, "a hello fits");
static_assert(WEFT_WIRE_IN_LEN >= WEFT_WIRE_REFUSAL_MAX, "a refusal fits");
static_assert(sizeof(((struct weft_wire_handshake *)0)->out) >=
                  HELLO_LEN + WEFT_WIRE_PAYLOAD_MAX + WEFT_WIRE_PROOF_LEN,
              "the longest hello can be sent");
static_assert(sizeof(struct weft_wire_handshake) <= 4096 - 512,
              "an unproven connection costs less than 4 KiB, the acceptor's share included");

static void want(struct weft_wire_handshake *shake, uint8_t part, size_t from, size_t end)
{
    shake->part = part;
    shake->in_len = (uint32_t)from;
    shake->in_end = (uint32_t)end;
}

static void fail(struct weft_wire_handshake *shake, weft_status_t status, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

static void fail(struct weft_wire_handshake *shake, weft_status_t status, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(shake->reason, sizeof(shake->reason), fmt, args);
    va_end(args);
    shake->state = WEFT_WIRE_FAILED;
    shake->status = status;
    shake->out_len = 0;
}

/* After fail(): tells the peer too. */
static void tell(struct weft_wire_handshake *shake, const char *reason)
{
    uint8_t flags = shake->is_elsewhere ? WEFT_WIRE_FLAG_ELSEWHERE : 0;

    shake->out_len = weft_wire_refusal_encode(shake->status, flags, reason, shake->out);
}

static void fail_elsewhere(struct weft_wire_handshake *shake)
{
    shake->is_elsewhere = true;
    shake->status = WEFT_ERR_MISMATCH;
}

/* ---- opening ---- */

/* Not a memset: the buffers are most of the struct and are written before they are read. */
static void shake_open(struct weft_wire_handshake *shake, const struct weft_wire_self *self)
{
    shake->self = self;
    shake->state = WEFT_WIRE_WANT_BYTES;
    shake->status = WEFT_OK;
    shake->reason[0] = '\0';
    shake->out_len = 0;
    shake->is_elsewhere = false;
    shake->is_proved = false;
    shake->is_local = false;
    shake->is_challenged = false;
    shake->peer_version = 0;
    shake->peer_rank = WEFT_WIRE_NO_RANK;
    shake->peer_ranks = 0;
    shake->peer_epoch = 0;
    shake->purpose = 0;
    shake->lane = 0;
    shake->security = WEFT_SECURITY_AUTH;
    shake->is_aes = false;
    shake->payload_len = 0;
    memset(shake->send_key, 0, sizeof(shake->send_key));
    memset(shake->recv_key, 0, sizeof(shake->recv_key));
    want(shake, PART_HEAD, 0, HEAD_LEN);
}

void weft_wire_server_open(struct weft_wire_handshake *shake, const struct weft_wire_self *self,
                           const uint8_t nonce[WEFT_WIRE_NONCE_LEN])
{
    shake_open(shake, self);
    shake->is_server = true;
    if (nonce == NULL) {
        shake->is_local = true;
        weft_wire_challenge_imply(self, (struct weft_wire_challenge *)shake->challenge);
        return;
    }
    weft_wire_challenge_encode(self, nonce, (struct weft_wire_challenge *)shake->challenge);
    memcpy(shake->out, shake->challenge, sizeof(shake->challenge));
    shake->out_len = sizeof(shake->challenge);
}

void weft_wire_client_open(struct weft_wire_handshake *shake, const struct weft_wire_self *self,
                           const uint8_t nonce[WEFT_WIRE_NONCE_LEN], enum weft_wire_purpose purpose,
                           uint16_t lane, const void *payload, size_t payload_len)
{
    assert(payload_len <= WEFT_WIRE_PAYLOAD_MAX);
    shake_open(shake, self);
    shake->is_server = false;
    shake->purpose = (uint8_t)purpose;
    shake->lane = lane;
    memcpy(shake->nonce, nonce, WEFT_WIRE_NONCE_LEN);
    if (payload_len > 0) {
        memcpy(shake->payload, payload, payload_len);
    }
    shake->payload_len = (uint32_t)payload_len;
}

/* ---- the end of a good handshake ---- */

static void finish(struct weft_wire_handshake *shake)
{
    const uint8_t *key = shake->self->key;
    bool is_server = shake->is_server;

    shake->state = WEFT_WIRE_DONE;
    if (shake->is_local) {
        return;
    }
    weft_wire_derive(key, "weft key to server", shake->context, sizeof(shake->context),
                     is_server ? shake->recv_key : shake->send_key);
    weft_wire_derive(key, "weft key to client", shake->context, sizeof(shake->context),
                     is_server ? shake->send_key : shake->recv_key);
}

/* ---- server ---- */

static void hello_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_hello *hello = (const struct weft_wire_hello *)shake->in;
    uint32_t payload_len = get_u32(hello->payload_len);
    uint8_t purpose = hello->purpose[0], security = hello->security[0];

    if (!weft_wire_hello_is_whole(hello)) {
        fail(shake, WEFT_ERR_PROTOCOL, "a hello was damaged on its way (crc32c)");
        return;
    }
    if (purpose < WEFT_WIRE_JOIN || purpose > WEFT_WIRE_ASIDE) {
        fail(shake, WEFT_ERR_PROTOCOL, "a hello has the unknown purpose %u", purpose);
        return;
    }
    if (security > (purpose == WEFT_WIRE_LANE ? WEFT_SECURITY_ENCRYPT : WEFT_SECURITY_AUTH)) {
        fail(shake, WEFT_ERR_PROTOCOL, "a hello has the unknown security level %u", security);
        return;
    }
    if (payload_len > WEFT_WIRE_PAYLOAD_MAX) {
        fail(shake, WEFT_ERR_PROTOCOL, "a hello claims %u bytes of payload, at most %d are allowed",
             payload_len, WEFT_WIRE_PAYLOAD_MAX);
        return;
    }
    shake->peer_rank = get_u32(hello->rank);
    shake->peer_ranks = get_u32(hello->ranks);
    shake->peer_epoch = get_u32(hello->epoch);
    shake->purpose = purpose;
    shake->lane = get_u16(hello->lane);
    shake->security = security;
    shake->is_aes = shake->self->has_aes && (hello->head.flags[0] & WEFT_WIRE_FLAG_AES) != 0;
    shake->payload_len = payload_len;
    want(shake, PART_PAYLOAD, 0, payload_len);
}

/* Does the hello belong to this job, this epoch, and to the same kind of job? If not, says so to
 * both. */
static bool is_ours(struct weft_wire_handshake *shake, const struct weft_wire_hello *hello)
{
    const struct weft_wire_challenge *mine = (const struct weft_wire_challenge *)shake->challenge;
    const struct weft_wire_self *self = shake->self;
    bool has_secret = (hello->head.flags[0] & WEFT_WIRE_FLAG_AUTHENTICATED) != 0;

    if (memcmp(hello->tag, mine->tag, sizeof(mine->tag)) != 0) {
        fail(shake, WEFT_ERR_MISMATCH, "a peer that says it is rank %u belongs to another job",
             shake->peer_rank);
        fail_elsewhere(shake);
        tell(shake, "the listener belongs to another job");
        return false;
    }
    if (shake->peer_epoch != self->epoch) {
        fail(shake, WEFT_ERR_MISMATCH,
             "rank %u is at epoch %u of the job, this listener at epoch %u", shake->peer_rank,
             shake->peer_epoch, self->epoch);
        fail_elsewhere(shake);
        tell(shake, shake->reason);
        return false;
    }
    if (has_secret != self->is_authenticated) {
        fail(shake, WEFT_ERR_AUTH,
             has_secret ? "rank %u has a secret, this listener has none: give all ranks the same "
                          "secret, or none of them"
                        : "rank %u has no secret, this listener wants one: give all ranks the same "
                          "secret (WEFT_SECRET_FILE)",
             shake->peer_rank);
        tell(shake, shake->reason);
        return false;
    }
    return true;
}

static void proof_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_challenge *mine = (const struct weft_wire_challenge *)shake->challenge;
    const struct weft_wire_hello *hello = (const struct weft_wire_hello *)shake->in;
    const struct weft_wire_self *self = shake->self;

    if (!is_ours(shake, hello)) {
        return;
    }
    weft_wire_hello_proof(self, mine, hello, shake->payload, shake->proof);
    if (!weft_wire_is_equal(shake->proof, shake->in + HELLO_LEN, WEFT_WIRE_PROOF_LEN)) {
        /* the right proof must not linger beside the wrong one */
        sodium_memzero(shake->proof, sizeof(shake->proof));
        fail(shake, WEFT_ERR_AUTH, "a peer that says it is rank %u does not know the job's secret",
             shake->peer_rank);
        tell(shake, "this rank's secret is not the one of the job");
        return;
    }
    weft_wire_context(self, mine, hello, shake->context);
    shake->state = WEFT_WIRE_HELLO;
}

void weft_wire_accept(struct weft_wire_handshake *shake)
{
    struct weft_wire_accepted *accepted = (struct weft_wire_accepted *)shake->out;

    assert(shake->is_server && shake->state == WEFT_WIRE_HELLO);
    weft_wire_head_encode(WEFT_WIRE_VERSION, WEFT_WIRE_KIND_ACCEPT, 0, &accepted->head);
    put_u32(accepted->rank, shake->self->rank);
    weft_wire_accept_proof(shake->self, accepted->rank, shake->proof, accepted->proof);
    shake->out_len = sizeof(*accepted);
    finish(shake);
}

void weft_wire_refuse(struct weft_wire_handshake *shake, weft_status_t status, const char *reason)
{
    assert(shake->is_server && shake->state == WEFT_WIRE_HELLO && status != WEFT_OK);
    fail(shake, status, "%s", reason);
    shake->out_len = weft_wire_refusal_encode(status, WEFT_WIRE_FLAG_PROVED, reason, shake->out);
    weft_wire_refusal_proof(shake->self, (const struct weft_wire_refusal *)shake->out,
                            shake->out_len, shake->proof, shake->out + shake->out_len);
    shake->out_len += WEFT_WIRE_PROOF_LEN;
}

/* ---- client ---- */

/* Does the challenge come from a listener of this job? `hello` is the answer that is about to be
 * given. */
static bool is_for_us(struct weft_wire_handshake *shake,
                      const struct weft_wire_challenge *challenge,
                      const struct weft_wire_hello *hello)
{
    const struct weft_wire_self *self = shake->self;

    if (memcmp(challenge->tag, hello->tag, sizeof(hello->tag)) != 0) {
        fail(shake, WEFT_ERR_MISMATCH, "the listener belongs to another job");
        fail_elsewhere(shake);
        return false;
    }
    if (shake->peer_epoch != self->epoch) {
        fail(shake, WEFT_ERR_MISMATCH,
             "the listener is at epoch %u of the job, this rank at epoch %u", shake->peer_epoch,
             self->epoch);
        fail_elsewhere(shake);
        return false;
    }
    return true;
}

/* One side has a secret, the other has none. A hello without proof lets the listener know it as
 * well. */
static void fail_unequal_secrets(struct weft_wire_handshake *shake, struct weft_wire_hello *hello)
{
    const struct weft_wire_call call = {.purpose = shake->purpose,
                                        .security = shake->security,
                                        .lane = shake->lane,
                                        .nonce = shake->nonce};

    fail(shake, WEFT_ERR_AUTH,
         shake->self->is_authenticated
             ? "this rank has a secret, the listener has none: give all ranks the same secret "
               "(WEFT_SECRET_FILE), or none of them"
             : "the listener wants the job's secret, this rank has none: give all ranks the same "
               "secret (WEFT_SECRET_FILE)");
    weft_wire_hello_encode(shake->self, &call, hello);
    memset(shake->out + HELLO_LEN, 0, WEFT_WIRE_PROOF_LEN);
    shake->out_len = HELLO_LEN + WEFT_WIRE_PROOF_LEN;
}

/* `hello` lies in out; payload and proof follow it. */
static void prove(struct weft_wire_handshake *shake, const struct weft_wire_challenge *challenge,
                  const struct weft_wire_hello *hello)
{
    weft_wire_hello_proof(shake->self, challenge, hello, shake->payload, shake->proof);
    weft_wire_context(shake->self, challenge, hello, shake->context);
    memcpy(shake->out + HELLO_LEN, shake->payload, shake->payload_len);
    memcpy(shake->out + HELLO_LEN + shake->payload_len, shake->proof, WEFT_WIRE_PROOF_LEN);
    shake->out_len = HELLO_LEN + shake->payload_len + WEFT_WIRE_PROOF_LEN;
    shake->is_challenged = true;
    want(shake, PART_HEAD, 0, HEAD_LEN);
}

static struct weft_wire_call call_of(const struct weft_wire_handshake *shake)
{
    return (struct weft_wire_call){.purpose = shake->purpose,
                                   .security = shake->security,
                                   .lane = shake->lane,
                                   .nonce = shake->nonce,
                                   .payload = shake->payload,
                                   .payload_len = shake->payload_len};
}

void weft_wire_client_speak(struct weft_wire_handshake *shake)
{
    const struct weft_wire_call call = call_of(shake);
    struct weft_wire_hello *hello = (struct weft_wire_hello *)shake->out;
    struct weft_wire_challenge implied;

    shake->is_local = true;
    weft_wire_challenge_imply(shake->self, &implied);
    weft_wire_hello_encode(shake->self, &call, hello);
    prove(shake, &implied, hello);
}

static void challenge_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_challenge *challenge = (const struct weft_wire_challenge *)shake->in;
    const struct weft_wire_call call = call_of(shake);
    struct weft_wire_hello *hello = (struct weft_wire_hello *)shake->out;
    bool has_secret = (challenge->head.flags[0] & WEFT_WIRE_FLAG_AUTHENTICATED) != 0;

    if (!weft_wire_challenge_is_whole(challenge)) {
        fail(shake, WEFT_ERR_PROTOCOL, "the challenge was damaged on its way (crc32c)");
        return;
    }
    shake->peer_rank = get_u32(challenge->rank);
    shake->peer_ranks = get_u32(challenge->ranks);
    shake->peer_epoch = get_u32(challenge->epoch);
    shake->is_aes = shake->self->has_aes && (challenge->head.flags[0] & WEFT_WIRE_FLAG_AES) != 0;
    weft_wire_hello_encode(shake->self, &call, hello);
    if (!is_for_us(shake, challenge, hello)) {
        return;
    }
    if (has_secret != shake->self->is_authenticated) {
        fail_unequal_secrets(shake, hello);
        return;
    }
    prove(shake, challenge, hello);
}

static void accept_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_accepted *accepted = (const struct weft_wire_accepted *)shake->in;
    uint8_t expected[WEFT_WIRE_PROOF_LEN];

    weft_wire_accept_proof(shake->self, accepted->rank, shake->proof, expected);
    if (weft_wire_is_equal(expected, accepted->proof, sizeof(expected))) {
        shake->peer_rank = get_u32(accepted->rank);
        finish(shake);
    } else {
        fail(shake, WEFT_ERR_AUTH, "the listener does not know the job's secret");
    }
    sodium_memzero(expected, sizeof(expected));
}

static void refuse_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_refusal *refusal = (const struct weft_wire_refusal *)shake->in;
    uint32_t reason_len = get_u32(refusal->reason_len);

    if (reason_len >= WEFT_WIRE_REASON_LEN) {
        fail(shake, WEFT_ERR_PROTOCOL, "a refusal claims a reason of %u bytes", reason_len);
        return;
    }
    want(shake, PART_REASON, sizeof(*refusal), sizeof(*refusal) + reason_len);
}

static void reason_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_refusal *refusal = (const struct weft_wire_refusal *)shake->in;
    const uint8_t *reason = shake->in + sizeof(*refusal);
    uint32_t reason_len = get_u32(refusal->reason_len);
    uint32_t status = get_u32(refusal->status);

    if (!weft_wire_refusal_is_whole(refusal, reason, reason_len) || !weft_wire_is_error(status)) {
        fail(shake, WEFT_ERR_PROTOCOL, "a refusal was damaged on its way or has an unknown status");
        return;
    }
    if ((refusal->head.flags[0] & WEFT_WIRE_FLAG_PROVED) != 0 && shake->part == PART_REASON) {
        size_t len = sizeof(*refusal) + reason_len;

        want(shake, PART_REFUSE_PROOF, len, len + WEFT_WIRE_PROOF_LEN);
        return;
    }
    shake->is_elsewhere = (refusal->head.flags[0] & WEFT_WIRE_FLAG_ELSEWHERE) != 0;
    fail(shake, (weft_status_t)status, "%s", weft_status_text((weft_status_t)status));
    if (reason_len > 0) {
        weft_wire_text_get(reason, reason_len, shake->reason);
    }
}

static void refuse_proof_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_refusal *refusal = (const struct weft_wire_refusal *)shake->in;
    size_t len = sizeof(*refusal) + get_u32(refusal->reason_len);
    uint8_t expected[WEFT_WIRE_PROOF_LEN];

    weft_wire_refusal_proof(shake->self, refusal, len, shake->proof, expected);
    if (!weft_wire_is_equal(expected, shake->in + len, sizeof(expected))) {
        fail(shake, WEFT_ERR_AUTH, "a refusal came from one who does not know the job's secret");
        return;
    }
    shake->is_proved = true;
    reason_done(shake);
}

/* ---- both ---- */

static bool head_is_begun_well(const struct weft_wire_handshake *shake)
{
    size_t len = shake->in_len < 4 ? shake->in_len : 4;

    return memcmp(shake->in, WEFT_WIRE_MAGIC, len) == 0;
}

static void fail_version(struct weft_wire_handshake *shake)
{
    fail(shake, WEFT_ERR_VERSION,
         "the other side speaks version %u, this side version %u: use the same Weft on all hosts",
         shake->peer_version, WEFT_WIRE_VERSION);
    if (shake->is_server) {
        char reason[WEFT_WIRE_REASON_LEN];

        snprintf(reason, sizeof(reason), "the listener speaks version %u, this rank version %u",
                 (unsigned)WEFT_WIRE_VERSION, shake->peer_version);
        tell(shake, reason);
    } else if (!shake->is_challenged) {
        /* a bare head: the listener learns the version from it and expects nothing after it */
        weft_wire_head_encode(WEFT_WIRE_VERSION, WEFT_WIRE_KIND_HELLO, 0,
                              (struct weft_wire_head *)shake->out);
        shake->out_len = HEAD_LEN;
    }
}

static void head_done(struct weft_wire_handshake *shake)
{
    const struct weft_wire_head *head = (const struct weft_wire_head *)shake->in;
    bool is_challenged = shake->is_challenged;
    uint8_t kind = head->kind[0];
    uint8_t flags = head->flags[0];

    shake->peer_version = get_u16(head->version);
    if (shake->peer_version != WEFT_WIRE_VERSION) {
        fail_version(shake);
        return;
    }
    if (shake->is_server && kind == WEFT_WIRE_KIND_HELLO) {
        flags &= (uint8_t) ~(WEFT_WIRE_FLAG_AUTHENTICATED | WEFT_WIRE_FLAG_AES);
        want(shake, PART_HELLO, HEAD_LEN, HELLO_LEN);
    } else if (!shake->is_server && !is_challenged && kind == WEFT_WIRE_KIND_CHALLENGE) {
        flags &= (uint8_t) ~(WEFT_WIRE_FLAG_AUTHENTICATED | WEFT_WIRE_FLAG_AES);
        want(shake, PART_CHALLENGE, HEAD_LEN, WEFT_WIRE_CHALLENGE_LEN);
    } else if (is_challenged && kind == WEFT_WIRE_KIND_ACCEPT) {
        want(shake, PART_ACCEPT, HEAD_LEN, sizeof(struct weft_wire_accepted));
    } else if (is_challenged && kind == WEFT_WIRE_KIND_REFUSE) {
        flags &= (uint8_t) ~(WEFT_WIRE_FLAG_ELSEWHERE | WEFT_WIRE_FLAG_PROVED);
        want(shake, PART_REFUSE, HEAD_LEN, sizeof(struct weft_wire_refusal));
    } else {
        fail(shake, WEFT_ERR_PROTOCOL, "a message of kind %u came where none may come", kind);
        return;
    }
    if (flags != 0) {
        fail(shake, WEFT_ERR_PROTOCOL, "a message of kind %u has unknown flags %02x", kind, flags);
    }
}

static void part_done(struct weft_wire_handshake *shake)
{
    switch (shake->part) {
    case PART_HEAD:
        head_done(shake);
        break;
    case PART_HELLO:
        hello_done(shake);
        break;
    case PART_PAYLOAD:
        want(shake, PART_PROOF, HELLO_LEN, HELLO_LEN + WEFT_WIRE_PROOF_LEN);
        break;
    case PART_PROOF:
        proof_done(shake);
        break;
    case PART_CHALLENGE:
        challenge_done(shake);
        break;
    case PART_ACCEPT:
        accept_done(shake);
        break;
    case PART_REFUSE:
        refuse_done(shake);
        break;
    case PART_REFUSE_PROOF:
        refuse_proof_done(shake);
        break;
    default:
        reason_done(shake);
        break;
    }
}

enum weft_wire_state weft_wire_feed(struct weft_wire_handshake *shake, const void *bytes,
                                    size_t len, size_t *used_p)
{
    struct weft_wire_reader reader = {bytes, len};

    while (shake->state == WEFT_WIRE_WANT_BYTES) {
        uint8_t *into = shake->part == PART_PAYLOAD ? shake->payload : shake->in;
        size_t missing = shake->in_end - shake->in_len;
        size_t take = missing < reader.left ? missing : reader.left;

        if (take > 0) {
            memcpy(into + shake->in_len, reader_take(&reader, take), take);
            shake->in_len += (uint32_t)take;
        }
        if (shake->part == PART_HEAD && !head_is_begun_well(shake)) {
            fail(shake, WEFT_ERR_PROTOCOL, "bytes arrived that no Weft rank sends");
        } else if (shake->in_len < shake->in_end) {
            break;
        } else {
            part_done(shake);
        }
    }
    *used_p = len - reader.left;
    return shake->state;
}

void weft_wire_handshake_close(struct weft_wire_handshake *shake)
{
    sodium_memzero(shake->send_key, sizeof(shake->send_key));
    sodium_memzero(shake->recv_key, sizeof(shake->recv_key));
    sodium_memzero(shake->proof, sizeof(shake->proof));
}
