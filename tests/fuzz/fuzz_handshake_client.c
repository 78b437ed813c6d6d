/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a false listener may send to a rank. Input: mending bits, size of the pieces, then the bytes
 * of the connection. The client is done only if a server that knows the key would have sent exactly
 * these bytes.
 */
#include "fuzz.h"

enum { MEND_FACTS = 1, MEND_CRC = 2, MEND_ACCEPT = 4, MEND_REFUSE = 8 };

#define CHALLENGE_LEN sizeof(struct weft_wire_challenge)

static const char payload[] = "a payload";

/* The client under test, before any byte came. */
static void client_open(struct weft_wire_handshake *client, const struct weft_wire_self *self)
{
    weft_wire_client_open(client, self, fuzz_nonce[1], WEFT_WIRE_JOIN, 4, payload, sizeof(payload));
}

/* An honest server that sent this challenge and accepts; false when no honest server would have. */
static bool play_server(const struct weft_wire_challenge *challenge,
                        struct weft_wire_handshake *server, struct weft_wire_self *server_self)
{
    struct weft_wire_self self = fuzz_self(3, 8);
    struct weft_wire_handshake client;

    *server_self = fuzz_self(get_u32(challenge->rank), get_u32(challenge->ranks));
    weft_wire_server_open(server, server_self, challenge->nonce);
    client_open(&client, &self);
    fuzz_feed(&client, server->out, server->out_len, SIZE_MAX);
    fuzz_feed(server, client.out, client.out_len, SIZE_MAX);
    FUZZ_CHECK(server->state == WEFT_WIRE_HELLO);
    weft_wire_accept(server);
    return memcmp(server->challenge, challenge, CHALLENGE_LEN) == 0;
}

static void mend_challenge(uint8_t bits, struct weft_wire_challenge *challenge)
{
    struct weft_wire_self self = fuzz_self(0, 8);

    if ((bits & MEND_FACTS) != 0) {
        weft_wire_job_tag(self.job, challenge->tag);
        put_u32(challenge->epoch, self.epoch);
    }
    if ((bits & MEND_CRC) != 0) {
        put_u32(challenge->crc,
                weft_wire_crc32c(0, challenge, offsetof(struct weft_wire_challenge, crc)));
    }
}

static void mend_answer(uint8_t bits, const struct weft_wire_challenge *challenge, uint8_t *answer,
                        size_t len)
{
    struct weft_wire_refusal *refusal = (struct weft_wire_refusal *)answer;
    struct weft_wire_handshake server;
    struct weft_wire_self self;

    if ((bits & MEND_ACCEPT) != 0 && len >= sizeof(struct weft_wire_accepted)) {
        play_server(challenge, &server, &self);
        memcpy(answer + sizeof(struct weft_wire_head), server.out + sizeof(struct weft_wire_head),
               WEFT_WIRE_PROOF_LEN);
    } else if ((bits & MEND_REFUSE) != 0 && len >= sizeof(*refusal) &&
               get_u32(refusal->reason_len) <= len - sizeof(*refusal)) {
        uint32_t crc = weft_wire_crc32c(0, refusal, offsetof(struct weft_wire_refusal, crc));

        put_u32(refusal->crc,
                weft_wire_crc32c(crc, answer + sizeof(*refusal), get_u32(refusal->reason_len)));
    }
}

static void check_done(const struct weft_wire_handshake *client, const uint8_t *bytes, size_t used)
{
    struct weft_wire_handshake server;
    struct weft_wire_self self;

    FUZZ_CHECK(play_server((const struct weft_wire_challenge *)bytes, &server, &self));
    FUZZ_CHECK(used == CHALLENGE_LEN + server.out_len);
    FUZZ_CHECK(memcmp(bytes + CHALLENGE_LEN, server.out, server.out_len) == 0);
    FUZZ_CHECK(memcmp(client->send_key, server.recv_key, WEFT_WIRE_KEY_LEN) == 0);
    FUZZ_CHECK(memcmp(client->recv_key, server.send_key, WEFT_WIRE_KEY_LEN) == 0);
    FUZZ_CHECK(client->peer_rank == self.rank);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_wire_handshake whole, pieces;
    struct weft_wire_self self = fuzz_self(3, 8);
    uint8_t bytes[1024];
    size_t len, used, pieces_used;

    if (size < 2 || size - 2 > sizeof(bytes)) {
        return 0;
    }
    len = size - 2;
    memcpy(bytes, data + 2, len);
    if (len >= CHALLENGE_LEN) {
        mend_challenge(data[0], (struct weft_wire_challenge *)bytes);
        mend_answer(data[0], (const struct weft_wire_challenge *)bytes, bytes + CHALLENGE_LEN,
                    len - CHALLENGE_LEN);
    }
    client_open(&whole, &self);
    client_open(&pieces, &self);
    used = fuzz_feed(&whole, bytes, len, SIZE_MAX);
    pieces_used = fuzz_feed(&pieces, bytes, len, (size_t)data[1] + 1);
    fuzz_check_same(&whole, &pieces);
    FUZZ_CHECK(pieces_used == used || whole.state == WEFT_WIRE_FAILED);
    FUZZ_CHECK(whole.state != WEFT_WIRE_HELLO);
    if (whole.state == WEFT_WIRE_DONE) {
        check_done(&whole, bytes, used);
    }
    weft_wire_handshake_close(&whole);
    weft_wire_handshake_close(&pieces);
    return 0;
}
