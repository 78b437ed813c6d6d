/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a false listener may send to a rank. Input: mending bits, size of the pieces, then the bytes
 * of the connection. The client is done only if a server that knows the key would have sent exactly
 * these bytes. One mending bit makes it a local socket: no challenge, the answer comes at once.
 */
#include "fuzz.h"

enum { MEND_FACTS = 1, MEND_CRC = 2, MEND_ACCEPT = 4, MEND_REFUSE = 8, IS_LOCAL = 16 };

#define CHALLENGE_LEN sizeof(struct weft_wire_challenge)

static const char payload[] = "a payload";

/* The client under test, before any byte came. */
static void client_open(struct weft_wire_handshake *client, const struct weft_wire_self *self,
                        bool is_local)
{
    weft_wire_client_open(client, self, fuzz_nonce[1], WEFT_WIRE_JOIN, 4, payload, sizeof(payload));
    if (is_local) {
        weft_wire_client_speak(client);
    }
}

/* An honest server that sent this challenge (NULL: none, on a local socket) and accepts as `rank`,
 * which it may have learned in between; false when no honest server would have. */
static bool play_server(const struct weft_wire_challenge *challenge, const uint8_t rank[4],
                        struct weft_wire_handshake *server)
{
    struct weft_wire_self server_self = fuzz_self(WEFT_WIRE_NO_RANK, 8);
    struct weft_wire_self client_self = fuzz_self(3, 8);
    struct weft_wire_handshake client;

    if (challenge != NULL) {
        server_self.rank = get_u32(challenge->rank);
        server_self.ranks = get_u32(challenge->ranks);
    }
    weft_wire_server_open(server, &server_self, challenge != NULL ? challenge->nonce : NULL);
    client_open(&client, &client_self, challenge == NULL);
    fuzz_feed(&client, server->out, server->out_len, SIZE_MAX);
    fuzz_feed(server, client.out, client.out_len, SIZE_MAX);
    FUZZ_CHECK(server->state == WEFT_WIRE_HELLO);
    server_self.rank = get_u32(rank);
    weft_wire_accept(server);
    server->self = NULL;
    return challenge == NULL || memcmp(server->challenge, challenge, CHALLENGE_LEN) == 0;
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
    struct weft_wire_accepted *accepted = (struct weft_wire_accepted *)answer;
    struct weft_wire_refusal *refusal = (struct weft_wire_refusal *)answer;
    struct weft_wire_handshake server;

    if ((bits & MEND_ACCEPT) != 0 && len >= sizeof(*accepted)) {
        play_server(challenge, accepted->rank, &server);
        memcpy(accepted->proof, ((const struct weft_wire_accepted *)server.out)->proof,
               WEFT_WIRE_PROOF_LEN);
    } else if ((bits & MEND_REFUSE) != 0 && len >= sizeof(*refusal) &&
               get_u32(refusal->reason_len) <= len - sizeof(*refusal)) {
        uint32_t crc = weft_wire_crc32c(0, refusal, offsetof(struct weft_wire_refusal, crc));

        put_u32(refusal->crc,
                weft_wire_crc32c(crc, answer + sizeof(*refusal), get_u32(refusal->reason_len)));
    }
}

static void mend(uint8_t bits, uint8_t *bytes, size_t len)
{
    if ((bits & IS_LOCAL) != 0) {
        mend_answer(bits, NULL, bytes, len);
    } else if (len >= CHALLENGE_LEN) {
        mend_challenge(bits, (struct weft_wire_challenge *)bytes);
        mend_answer(bits, (const struct weft_wire_challenge *)bytes, bytes + CHALLENGE_LEN,
                    len - CHALLENGE_LEN);
    }
}

static void check_done(const struct weft_wire_handshake *client, bool is_local,
                       const uint8_t *bytes, size_t used)
{
    size_t challenge_len = is_local ? 0 : CHALLENGE_LEN;
    const struct weft_wire_challenge *challenge = (const struct weft_wire_challenge *)bytes;
    const struct weft_wire_accepted *accepted =
        (const struct weft_wire_accepted *)(bytes + challenge_len);
    struct weft_wire_handshake server;

    FUZZ_CHECK(play_server(is_local ? NULL : challenge, accepted->rank, &server));
    FUZZ_CHECK(used == challenge_len + server.out_len);
    FUZZ_CHECK(memcmp(accepted, server.out, server.out_len) == 0);
    FUZZ_CHECK(memcmp(client->send_key, server.recv_key, WEFT_WIRE_KEY_LEN) == 0);
    FUZZ_CHECK(memcmp(client->recv_key, server.send_key, WEFT_WIRE_KEY_LEN) == 0);
    FUZZ_CHECK(client->peer_rank == get_u32(accepted->rank));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_wire_handshake whole, pieces;
    struct weft_wire_self self = fuzz_self(3, 8);
    uint8_t bytes[1024];
    size_t len, used, pieces_used;
    bool is_local;

    if (size < 2 || size - 2 > sizeof(bytes)) {
        return 0;
    }
    len = size - 2;
    memcpy(bytes, data + 2, len);
    is_local = (data[0] & IS_LOCAL) != 0;
    mend(data[0], bytes, len);
    client_open(&whole, &self, is_local);
    client_open(&pieces, &self, is_local);
    used = fuzz_feed(&whole, bytes, len, SIZE_MAX);
    pieces_used = fuzz_feed(&pieces, bytes, len, (size_t)data[1] + 1);
    fuzz_check_same(&whole, &pieces);
    FUZZ_CHECK(pieces_used == used || whole.state == WEFT_WIRE_FAILED);
    FUZZ_CHECK(whole.state != WEFT_WIRE_HELLO);
    FUZZ_CHECK(!is_local || whole.state != WEFT_WIRE_FAILED || whole.out_len == 0);
    if (whole.state == WEFT_WIRE_DONE) {
        check_done(&whole, is_local, bytes, used);
    }
    weft_wire_handshake_close(&whole);
    weft_wire_handshake_close(&pieces);
    return 0;
}
