/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and MACs, all of them keyed BLAKE2b. A derived key and a seal have different output lengths,
 * which BLAKE2b mixes in, so that neither can stand in for the other under one key.
 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>
#include <sodium.h>

static_assert(WEFT_WIRE_KEY_LEN >= crypto_generichash_KEYBYTES_MIN &&
                  WEFT_WIRE_KEY_LEN <= crypto_generichash_KEYBYTES_MAX,
              "libsodium takes keys of our length");
static_assert(WEFT_WIRE_SEAL_LEN >= crypto_generichash_BYTES_MIN,
              "libsodium makes seals this short");
static_assert(WEFT_SECRET_LEN == WEFT_WIRE_KEY_LEN, "a secret is used as a key as it is");

weft_status_t weft_wire_crypto_open(void)
{
    if (sodium_init() < 0) {
        return weft_fail(WEFT_ERR_SYSTEM, "libsodium found no source of randomness");
    }
    return WEFT_OK;
}

void weft_wire_derive(const uint8_t key[WEFT_WIRE_KEY_LEN], const char *label, const void *data,
                      size_t len, uint8_t out[32])
{
    crypto_generichash_state hash;

    crypto_generichash_init(&hash, key, WEFT_WIRE_KEY_LEN, 32);
    crypto_generichash_update(&hash, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&hash, data, len);
    crypto_generichash_final(&hash, out, 32);
    sodium_memzero(&hash, sizeof(hash)); /* it holds the key */
}

void weft_wire_open_key(const uint8_t job[16], uint8_t key[WEFT_WIRE_KEY_LEN])
{
    static const uint8_t nobody[WEFT_WIRE_KEY_LEN];

    weft_wire_derive(nobody, "weft open job", job, 16, key);
}

void weft_wire_seal(const uint8_t key[WEFT_WIRE_KEY_LEN], uint64_t number, const void *header,
                    size_t header_len, const void *payload, size_t payload_len,
                    uint8_t seal[WEFT_WIRE_SEAL_LEN])
{
    crypto_generichash_state hash;
    uint8_t prefix[16];

    put_u64(prefix, number);
    put_u64(prefix + 8, header_len); /* or a byte could wander between header and payload */
    crypto_generichash_init(&hash, key, WEFT_WIRE_KEY_LEN, WEFT_WIRE_SEAL_LEN);
    crypto_generichash_update(&hash, prefix, sizeof(prefix));
    crypto_generichash_update(&hash, header, header_len);
    crypto_generichash_update(&hash, payload, payload_len);
    crypto_generichash_final(&hash, seal, WEFT_WIRE_SEAL_LEN);
    sodium_memzero(&hash, sizeof(hash));
}

bool weft_wire_is_equal(const void *a, const void *b, size_t len)
{
    return sodium_memcmp(a, b, len) == 0;
}
