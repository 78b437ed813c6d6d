/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stranger may send to a listener. Input: mending bits, size of the pieces, then the bytes
 * of the connection. A hello is believed only if a client that knows the key would have sent
 * exactly these bytes. One mending bit makes it a local socket, where no challenge is sent.
 */
#include "fuzz.h"

enum { MEND_CRC = 1, MEND_PROOF = 2, REFUSE_IT = 4, IS_LOCAL = 8 };

#define HELLO_LEN sizeof(struct weft_wire_hello)

static void mend(uint8_t bits, const struct weft_wire_self *self, uint8_t *bytes, size_t len)
{
    struct weft_wire_hello *hello = (struct weft_wire_hello *)bytes;
    struct weft_wire_challenge challenge;
    size_t payload_len;

    if (len < HELLO_LEN) {
        return;
    }
    if ((bits & MEND_CRC) != 0) {
        put_u32(hello->crc, weft_wire_crc32c(0, hello, offsetof(struct weft_wire_hello, crc)));
    }
    payload_len = get_u32(hello->payload_len);
    if ((bits & MEND_PROOF) != 0 && payload_len <= WEFT_WIRE_PAYLOAD_MAX &&
        len >= HELLO_LEN + payload_len + WEFT_WIRE_PROOF_LEN) {
        if ((bits & IS_LOCAL) != 0) {
            weft_wire_challenge_imply(self, &challenge);
        } else {
            weft_wire_challenge_encode(self, fuzz_nonce[0], &challenge);
        }
        weft_wire_hello_proof(self, &challenge, hello, bytes + HELLO_LEN,
                              bytes + HELLO_LEN + payload_len);
    }
}

/* Plays the client that the server believes to have met, to the end. */
static void check_hello(struct weft_wire_handshake *server, const uint8_t *bytes, size_t used,
                        uint8_t bits)
{
    const struct weft_wire_hello *hello = (const struct weft_wire_hello *)bytes;
    struct weft_wire_self self = fuzz_self(server->peer_rank, server->peer_ranks);
    struct weft_wire_handshake client;

    self.has_aes = (hello->head.flags[0] & WEFT_WIRE_FLAG_AES) != 0;
    weft_wire_client_open(&client, &self, hello->nonce, server->purpose, server->lane,
                          server->payload, server->payload_len);
    client.security = server->security;
    if ((bits & IS_LOCAL) != 0) {
        weft_wire_client_speak(&client);
    } else {
        fuzz_feed(&client, server->challenge, sizeof(server->challenge), SIZE_MAX);
    }
    FUZZ_CHECK(client.state == WEFT_WIRE_WANT_BYTES);
    FUZZ_CHECK(client.out_len == used && memcmp(client.out, bytes, used) == 0);
    if ((bits & REFUSE_IT) != 0) {
        weft_wire_refuse(server, WEFT_ERR_DUPLICATE, "taken");
        fuzz_feed(&client, server->out, server->out_len, SIZE_MAX);
        FUZZ_CHECK(client.state == WEFT_WIRE_FAILED && client.status == WEFT_ERR_DUPLICATE);
        return;
    }
    weft_wire_accept(server);
    fuzz_feed(&client, server->out, server->out_len, SIZE_MAX);
    FUZZ_CHECK(client.state == WEFT_WIRE_DONE && server->state == WEFT_WIRE_DONE);
    FUZZ_CHECK(client.peer_rank == server->self->rank);
    FUZZ_CHECK(client.is_aes == server->is_aes);
    FUZZ_CHECK(memcmp(client.send_key, server->recv_key, WEFT_WIRE_KEY_LEN) == 0);
    FUZZ_CHECK(memcmp(client.recv_key, server->send_key, WEFT_WIRE_KEY_LEN) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_wire_handshake whole, pieces;
    struct weft_wire_self self = fuzz_self(0, 8);
    const uint8_t *nonce;
    uint8_t bytes[2048];
    size_t len, used, pieces_used;

    if (size < 2 || size - 2 > sizeof(bytes)) {
        return 0;
    }
    len = size - 2;
    memcpy(bytes, data + 2, len);
    mend(data[0], &self, bytes, len);
    nonce = (data[0] & IS_LOCAL) != 0 ? NULL : fuzz_nonce[0];
    weft_wire_server_open(&whole, &self, nonce);
    weft_wire_server_open(&pieces, &self, nonce);
    used = fuzz_feed(&whole, bytes, len, SIZE_MAX);
    pieces_used = fuzz_feed(&pieces, bytes, len, (size_t)data[1] + 1);
    fuzz_check_same(&whole, &pieces);
    FUZZ_CHECK(pieces_used == used || whole.state == WEFT_WIRE_FAILED);
    FUZZ_CHECK(whole.state != WEFT_WIRE_DONE);
    if (whole.state == WEFT_WIRE_HELLO) {
        check_hello(&whole, bytes, used, data[0]);
    }
    weft_wire_handshake_close(&whole);
    weft_wire_handshake_close(&pieces);
    return 0;
}
