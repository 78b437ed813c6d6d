/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/messages.h"

#include <sodium.h>

#define CHALLENGE_CRC_LEN offsetof(struct weft_wire_challenge, crc)
#define HELLO_CRC_LEN offsetof(struct weft_wire_hello, crc)
#define REFUSAL_CRC_LEN offsetof(struct weft_wire_refusal, crc)

void weft_wire_head_encode(uint16_t version, uint8_t kind, uint8_t flags,
                           struct weft_wire_head *head)
{
    memcpy(head->magic, WEFT_WIRE_MAGIC, sizeof(head->magic));
    put_u16(head->version, version);
    head->kind[0] = kind;
    head->flags[0] = flags;
}

static uint8_t self_flags(const struct weft_wire_self *self)
{
    return (uint8_t)((self->is_authenticated ? WEFT_WIRE_FLAG_AUTHENTICATED : 0) |
                     (self->has_aes ? WEFT_WIRE_FLAG_AES : 0));
}

void weft_wire_challenge_encode(const struct weft_wire_self *self,
                                const uint8_t nonce[WEFT_WIRE_NONCE_LEN],
                                struct weft_wire_challenge *challenge)
{
    weft_wire_head_encode(WEFT_WIRE_VERSION, WEFT_WIRE_KIND_CHALLENGE, self_flags(self),
                          &challenge->head);
    weft_wire_job_tag(self->job, challenge->tag);
    put_u32(challenge->epoch, self->epoch);
    put_u32(challenge->rank, self->rank);
    put_u32(challenge->ranks, self->ranks);
    memcpy(challenge->nonce, nonce, WEFT_WIRE_NONCE_LEN);
    put_u32(challenge->crc, weft_wire_crc32c(0, challenge, CHALLENGE_CRC_LEN));
}

void weft_wire_challenge_imply(const struct weft_wire_self *self,
                               struct weft_wire_challenge *challenge)
{
    static const uint8_t no_nonce[WEFT_WIRE_NONCE_LEN];
    struct weft_wire_self anybody = *self;

    anybody.rank = WEFT_WIRE_NO_RANK;
    anybody.ranks = 0;
    anybody.has_aes = false; /* nothing is sealed there, and both sides must imply the same */
    weft_wire_challenge_encode(&anybody, no_nonce, challenge);
    challenge->head.kind[0] = WEFT_WIRE_KIND_IMPLIED;
}

bool weft_wire_challenge_is_whole(const struct weft_wire_challenge *challenge)
{
    return get_u32(challenge->crc) == weft_wire_crc32c(0, challenge, CHALLENGE_CRC_LEN);
}

void weft_wire_hello_encode(const struct weft_wire_self *self, const struct weft_wire_call *call,
                            struct weft_wire_hello *hello)
{
    weft_wire_head_encode(WEFT_WIRE_VERSION, WEFT_WIRE_KIND_HELLO, self_flags(self), &hello->head);
    hello->purpose[0] = call->purpose;
    hello->security[0] = call->security;
    put_u16(hello->lane, call->lane);
    put_u32(hello->rank, self->rank);
    put_u32(hello->ranks, self->ranks);
    put_u32(hello->epoch, self->epoch);
    weft_wire_job_tag(self->job, hello->tag);
    memcpy(hello->nonce, call->nonce, WEFT_WIRE_NONCE_LEN);
    put_u32(hello->payload_len, call->payload_len);
    put_u32(hello->crc, weft_wire_crc32c(0, hello, HELLO_CRC_LEN));
}

bool weft_wire_hello_is_whole(const struct weft_wire_hello *hello)
{
    return get_u32(hello->crc) == weft_wire_crc32c(0, hello, HELLO_CRC_LEN);
}

static uint32_t refusal_crc(const struct weft_wire_refusal *refusal, const uint8_t *reason,
                            uint32_t reason_len)
{
    return weft_wire_crc32c(weft_wire_crc32c(0, refusal, REFUSAL_CRC_LEN), reason, reason_len);
}

size_t weft_wire_refusal_encode(weft_status_t status, uint8_t flags, const char *reason,
                                uint8_t *out)
{
    struct weft_wire_refusal *refusal = (struct weft_wire_refusal *)out;
    uint8_t *text = out + sizeof(*refusal);
    uint32_t len = (uint32_t)weft_wire_text_put(reason, WEFT_WIRE_REASON_LEN - 1, text);

    weft_wire_head_encode(WEFT_WIRE_VERSION, WEFT_WIRE_KIND_REFUSE, flags, &refusal->head);
    put_u32(refusal->status, (uint32_t)status);
    put_u32(refusal->reason_len, len);
    put_u32(refusal->crc, refusal_crc(refusal, text, len));
    return sizeof(*refusal) + len;
}

bool weft_wire_refusal_is_whole(const struct weft_wire_refusal *refusal, const uint8_t *reason,
                                uint32_t reason_len)
{
    return get_u32(refusal->crc) == refusal_crc(refusal, reason, reason_len);
}

/* A start asks for the tag of one job with every connection: the latest is remembered. */
void weft_wire_job_tag(const uint8_t job[16], uint8_t tag[WEFT_WIRE_TAG_LEN])
{
    static const uint8_t nobody[WEFT_WIRE_KEY_LEN];
    static _Thread_local struct {
        uint8_t job[16];
        uint8_t tag[WEFT_WIRE_TAG_LEN];
        bool is_set;
    } latest;
    uint8_t digest[32];

    if (!latest.is_set || memcmp(latest.job, job, sizeof(latest.job)) != 0) {
        weft_wire_derive(nobody, "weft job tag", job, 16, digest);
        memcpy(latest.job, job, sizeof(latest.job));
        memcpy(latest.tag, digest, sizeof(latest.tag));
        latest.is_set = true;
    }
    memcpy(tag, latest.tag, WEFT_WIRE_TAG_LEN);
}

void weft_wire_hello_proof(const struct weft_wire_self *self,
                           const struct weft_wire_challenge *challenge,
                           const struct weft_wire_hello *hello, const uint8_t *payload,
                           uint8_t proof[WEFT_WIRE_PROOF_LEN])
{
    static const char label[] = "weft hello";
    crypto_generichash_state hash;

    crypto_generichash_init(&hash, self->key, WEFT_WIRE_KEY_LEN, WEFT_WIRE_PROOF_LEN);
    crypto_generichash_update(&hash, (const uint8_t *)label, sizeof(label));
    crypto_generichash_update(&hash, self->job, sizeof(self->job));
    crypto_generichash_update(&hash, (const uint8_t *)challenge, sizeof(*challenge));
    crypto_generichash_update(&hash, (const uint8_t *)hello, sizeof(*hello));
    crypto_generichash_update(&hash, payload, get_u32(hello->payload_len));
    crypto_generichash_final(&hash, proof, WEFT_WIRE_PROOF_LEN);
    sodium_memzero(&hash, sizeof(hash)); /* it holds the key */
}

void weft_wire_refusal_proof(const struct weft_wire_self *self,
                             const struct weft_wire_refusal *refusal, size_t len,
                             const uint8_t hello_proof[WEFT_WIRE_PROOF_LEN],
                             uint8_t proof[WEFT_WIRE_PROOF_LEN])
{
    weft_wire_seal(self->key, 0, hello_proof, WEFT_WIRE_PROOF_LEN, refusal, len, proof);
    weft_wire_derive(self->key, "weft refuse", proof, WEFT_WIRE_SEAL_LEN, proof);
}

void weft_wire_accept_proof(const struct weft_wire_self *self, const uint8_t rank[4],
                            const uint8_t hello_proof[WEFT_WIRE_PROOF_LEN],
                            uint8_t proof[WEFT_WIRE_PROOF_LEN])
{
    uint8_t under[4 + WEFT_WIRE_PROOF_LEN];

    memcpy(under, rank, 4);
    memcpy(under + 4, hello_proof, WEFT_WIRE_PROOF_LEN);
    weft_wire_derive(self->key, "weft accept", under, sizeof(under), proof);
    sodium_memzero(under, sizeof(under));
}

void weft_wire_context(const struct weft_wire_self *self,
                       const struct weft_wire_challenge *challenge,
                       const struct weft_wire_hello *hello, uint8_t context[WEFT_WIRE_CONTEXT_LEN])
{
    struct context_layout {
        uint8_t server_nonce[WEFT_WIRE_NONCE_LEN];
        uint8_t client_nonce[WEFT_WIRE_NONCE_LEN];
        uint8_t job[16];
        uint8_t server_rank[4], client_rank[4], ranks[4], epoch[4];
        uint8_t lane[2], purpose[1], zero[1];
    } *layout = (struct context_layout *)context;

    static_assert(sizeof(*layout) == WEFT_WIRE_CONTEXT_LEN, "layout");
    memcpy(layout->server_nonce, challenge->nonce, WEFT_WIRE_NONCE_LEN);
    memcpy(layout->client_nonce, hello->nonce, WEFT_WIRE_NONCE_LEN);
    memcpy(layout->job, self->job, sizeof(self->job));
    memcpy(layout->server_rank, challenge->rank, 4);
    memcpy(layout->client_rank, hello->rank, 4);
    memcpy(layout->ranks, hello->ranks, 4);
    memcpy(layout->epoch, hello->epoch, 4);
    memcpy(layout->lane, hello->lane, 2);
    layout->purpose[0] = hello->purpose[0];
    layout->zero[0] = 0;
}
