/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records. One AEAD serves both levels: to encrypt, the bytes are its message and the head is what it
 * authenticates beside it; for integrity there is no message, and head and bytes are what it
 * authenticates. AES-256-GCM where both CPUs have it, else ChaCha20-Poly1305.
 *
 * The nonce is the record's number in its direction, which never travels: a record that is repeated,
 * left out, moved or of another lane does not open, because its number or its key is another. Keys are
 * renewed by both sides at the same numbers, long before what one key may seal: an attacker's chance against
 * GCM grows with the square of the blocks under one key, and TLS stops at 2^24.5 records of 16 KiB for it.
 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>
#include <sodium.h>

#define NONCE_LEN 12

static_assert(WEFT_WIRE_KEY_LEN == crypto_aead_aes256gcm_KEYBYTES, "keys fit");
static_assert(WEFT_WIRE_KEY_LEN == crypto_aead_chacha20poly1305_ietf_KEYBYTES, "keys fit");
static_assert(NONCE_LEN == crypto_aead_aes256gcm_NPUBBYTES, "nonces fit");
static_assert(NONCE_LEN == crypto_aead_chacha20poly1305_ietf_NPUBBYTES, "nonces fit");
static_assert(WEFT_WIRE_RECORD_TAG_LEN == crypto_aead_aes256gcm_ABYTES, "tags fit");
static_assert(WEFT_WIRE_RECORD_TAG_LEN == crypto_aead_chacha20poly1305_ietf_ABYTES, "tags fit");
static_assert(sizeof(((struct weft_wire_sealer *)0)->schedule) ==
                      sizeof(crypto_aead_aes256gcm_state) &&
                  offsetof(struct weft_wire_sealer, schedule) % 16 == 0,
              "a key that is made ready fits");

bool weft_wire_has_aes(void)
{
    return crypto_aead_aes256gcm_is_available() != 0;
}

/* What the AEAD is given. */
struct parts {
    const uint8_t *message; /* encrypted */
    size_t message_len;
    const uint8_t *beside; /* authenticated only */
    size_t beside_len;
};

/* `bytes` is where the payload is, `record` its head; to authenticate both they must be neighbours. */
static struct parts parts_of(const struct weft_wire_sealer *sealer, const uint8_t *record,
                             const uint8_t *bytes, size_t len)
{
    if (sealer->is_encrypting) {
        return (struct parts){bytes, len, record, WEFT_WIRE_RECORD_HEAD_LEN};
    }
    return (struct parts){bytes, 0, record, WEFT_WIRE_RECORD_HEAD_LEN + len};
}

static void make_key_ready(struct weft_wire_sealer *sealer)
{
    if (sealer->is_aes) {
        crypto_aead_aes256gcm_beforenm((crypto_aead_aes256gcm_state *)(void *)sealer->schedule,
                                       sealer->key);
    }
}

void weft_wire_sealer_open(struct weft_wire_sealer *sealer, const uint8_t key[WEFT_WIRE_KEY_LEN],
                           enum weft_wire_security security, bool is_aes)
{
    static const char *const labels[2][2] = {
        {"weft lane integrity chacha20poly1305", "weft lane integrity aes256gcm"},
        {"weft lane encrypt chacha20poly1305", "weft lane encrypt aes256gcm"}};
    assert(security == WEFT_SECURITY_INTEGRITY || security == WEFT_SECURITY_ENCRYPT);
    memset(sealer, 0, sizeof(*sealer));
    sealer->is_encrypting = security == WEFT_SECURITY_ENCRYPT;
    sealer->is_aes = is_aes;
    sealer->renewed_after = WEFT_WIRE_RECORDS_PER_KEY;
    weft_wire_derive(key, labels[sealer->is_encrypting][is_aes], NULL, 0, sealer->key);
    make_key_ready(sealer);
}

/* The number of the record that is sealed or opened now, as a nonce. */
static void take_nonce(struct weft_wire_sealer *sealer, uint8_t nonce[NONCE_LEN])
{
    if (sealer->number > 0 && sealer->number % sealer->renewed_after == 0 &&
        sealer->number != sealer->renewed_at) {
        weft_wire_derive(sealer->key, "weft lane next key", NULL, 0, sealer->key);
        make_key_ready(sealer);
        sealer->renewed_at = sealer->number;
    }
    memset(nonce, 0, NONCE_LEN);
    put_u64(nonce + NONCE_LEN - 8, sealer->number);
}

size_t weft_wire_record_seal(struct weft_wire_sealer *sealer, const void *bytes, size_t len,
                             uint8_t *record)
{
    uint8_t *sealed = record + WEFT_WIRE_RECORD_HEAD_LEN, *tag = sealed + len;
    uint8_t nonce[NONCE_LEN];
    struct parts parts = parts_of(sealer, record, bytes, len);

    assert(len > 0 && len <= WEFT_WIRE_RECORD_MAX);
    put_u32(record, (uint32_t)len);
    put_u32(record + 4, weft_wire_crc32c(0, record, 4));
    if (!sealer->is_encrypting && bytes != sealed) {
        memcpy(sealed, bytes, len);
    }
    take_nonce(sealer, nonce);
    if (sealer->is_aes) {
        crypto_aead_aes256gcm_encrypt_detached_afternm(
            sealed, tag, NULL, parts.message, parts.message_len, parts.beside, parts.beside_len,
            NULL, nonce, (const crypto_aead_aes256gcm_state *)(const void *)sealer->schedule);
    } else {
        crypto_aead_chacha20poly1305_ietf_encrypt_detached(
            sealed, tag, NULL, parts.message, parts.message_len, parts.beside, parts.beside_len,
            NULL, nonce, sealer->key);
    }
    sealer->number++;
    return weft_wire_record_len(len);
}

weft_status_t weft_wire_record_peek(const uint8_t head[WEFT_WIRE_RECORD_HEAD_LEN], size_t *len_p)
{
    uint32_t len = get_u32(head);

    if (get_u32(head + 4) != weft_wire_crc32c(0, head, 4)) {
        return weft_fail(WEFT_ERR_PROTOCOL, "the head of a record was damaged on its way (crc32c)");
    }
    if (len == 0 || len > WEFT_WIRE_RECORD_MAX) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a record claims %u bytes, 1 to %u are allowed", len,
                         WEFT_WIRE_RECORD_MAX);
    }
    *len_p = len;
    return WEFT_OK;
}

static bool is_genuine(struct weft_wire_sealer *sealer, const struct parts *parts,
                       const uint8_t *tag, uint8_t *out)
{
    uint8_t nonce[NONCE_LEN];

    take_nonce(sealer, nonce);
    if (sealer->is_aes) {
        return crypto_aead_aes256gcm_decrypt_detached_afternm(
                   out, NULL, parts->message, parts->message_len, tag, parts->beside,
                   parts->beside_len, nonce,
                   (const crypto_aead_aes256gcm_state *)(const void *)sealer->schedule) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
               out, NULL, parts->message, parts->message_len, tag, parts->beside, parts->beside_len,
               nonce, sealer->key) == 0;
}

weft_status_t weft_wire_record_open(struct weft_wire_sealer *sealer, const uint8_t *record,
                                    size_t len, uint8_t *out)
{
    const uint8_t *sealed = record + WEFT_WIRE_RECORD_HEAD_LEN;
    struct parts parts = parts_of(sealer, record, sealed, len);

    assert(len > 0 && len <= WEFT_WIRE_RECORD_MAX);
    if (!is_genuine(sealer, &parts, sealed + len, out)) {
        return weft_fail(
            WEFT_ERR_PROTOCOL,
            "record %llu of %zu bytes has a wrong tag: it was changed, repeated, moved "
            "or left out on its way",
            (unsigned long long)sealer->number, len);
    }
    if (!sealer->is_encrypting && out != sealed) {
        memcpy(out, sealed, len);
    }
    sealer->number++;
    return WEFT_OK;
}
