/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the seeds of the fuzz targets: make_corpus tests/fuzz/corpus. They come from the real
 * encoders, so that fuzzing begins behind the first checks; run it again when the bytes on the wire
 * change.
 */
#include "fuzz.h"

#include <errno.h>
#include <sys/stat.h>

static const char *folder;

/* One seed: a prefix for the target (mending bits, piece size, kind), then the bytes. */
static void save(const char *target, const char *name, const char *prefix, size_t prefix_len,
                 const void *bytes, size_t len)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, target);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        exit(1);
    }
    snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
    file = fopen(path, "wb");
    if (file == NULL || fwrite(prefix, 1, prefix_len, file) != prefix_len ||
        fwrite(bytes, 1, len, file) != len || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

struct conversation {
    const char *name;
    enum weft_wire_purpose purpose;
    size_t payload_len;
    bool is_refused, is_local;
};

/* The mending bits of the targets: whose proofs to make right, and whether the socket is local. */
static void save_client_bytes(const struct conversation *talk, const void *bytes, size_t len)
{
    const char prefix[] = {(char)((talk->is_refused ? 0x07 : 0x03) | (talk->is_local ? 0x08 : 0)),
                           talk->is_refused ? '\xff' : '\x06'};

    save("handshake_server", talk->name, prefix, sizeof(prefix), bytes, len);
}

static void save_server_bytes(const struct conversation *talk, const void *bytes, size_t len)
{
    const char prefix[] = {(char)((talk->is_refused ? 0x0b : 0x07) | (talk->is_local ? 0x10 : 0)),
                           talk->is_refused ? '\x06' : '\xff'};

    save("handshake_client", talk->name, prefix, sizeof(prefix), bytes, len);
}

/* The server's bytes seed the client's target, the client's bytes the server's. */
static void save_handshake(const struct conversation *talk)
{
    struct weft_wire_self server_self = fuzz_self(0, 8), client_self = fuzz_self(3, 8);
    struct weft_wire_handshake server, client;
    uint8_t payload[WEFT_WIRE_PAYLOAD_MAX];
    uint8_t said[1024];
    size_t said_len;

    memset(payload, 'p', sizeof(payload));
    weft_wire_server_open(&server, &server_self, talk->is_local ? NULL : fuzz_nonce[0]);
    weft_wire_client_open(&client, &client_self, fuzz_nonce[1], talk->purpose, 4, payload,
                          talk->payload_len);
    memcpy(said, server.out, server.out_len);
    said_len = server.out_len;
    if (talk->is_local) {
        weft_wire_client_speak(&client);
    }
    fuzz_feed(&client, server.out, server.out_len, SIZE_MAX);
    save_client_bytes(talk, client.out, client.out_len);
    fuzz_feed(&server, client.out, client.out_len, SIZE_MAX);
    FUZZ_CHECK(server.state == WEFT_WIRE_HELLO);
    if (talk->is_refused) {
        weft_wire_refuse(&server, WEFT_ERR_DUPLICATE, "rank 3 is taken by 10.0.0.7:4411");
    } else {
        weft_wire_accept(&server);
    }
    memcpy(said + said_len, server.out, server.out_len);
    said_len += server.out_len;
    save_server_bytes(talk, said, said_len);
}

static void save_handshakes(void)
{
    static const struct conversation talks[] = {
        {"join", WEFT_WIRE_JOIN, 10, false, false},
        {"attach", WEFT_WIRE_ATTACH, 0, false, false},
        {"lane-full", WEFT_WIRE_LANE, WEFT_WIRE_PAYLOAD_MAX, false, false},
        {"refused", WEFT_WIRE_JOIN, 10, true, false},
        {"local-join", WEFT_WIRE_JOIN, 10, false, true},
        {"local-attach", WEFT_WIRE_ATTACH, 0, false, true},
        {"local-lane-full", WEFT_WIRE_LANE, WEFT_WIRE_PAYLOAD_MAX, false, true},
        {"local-refused", WEFT_WIRE_JOIN, 10, true, true},
    };

    for (size_t i = 0; i < WEFT_COUNT_OF(talks); i++) {
        save_handshake(&talks[i]);
    }
}

static void save_strangers(void)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: weft\r\n\r\n";
    static const char other_version[] = "WEFT\x63\x00\x02\x00";
    static const char other_answer[] = "WEFT\x63\x00\x04\x00";

    save("handshake_server", "http", "\x00\x00", 2, http, sizeof(http) - 1);
    save("handshake_server", "version", "\x00\x00", 2, other_version, sizeof(other_version) - 1);
    save("handshake_client", "http", "\x00\x00", 2, http, sizeof(http) - 1);
    save("handshake_client", "version", "\x00\x00", 2, other_version, sizeof(other_version) - 1);
    save("handshake_server", "local-version", "\x08\x00", 2, other_version,
         sizeof(other_version) - 1);
    save("handshake_client", "local-version", "\x10\x00", 2, other_answer,
         sizeof(other_answer) - 1);
}

static void save_frames(void)
{
    uint8_t headers[(WEFT_WIRE_TYPE_END - 1) * WEFT_WIRE_FRAME_LEN];

    for (uint32_t type = 1; type < WEFT_WIRE_TYPE_END; type++) {
        const struct weft_wire_frame frame = {.type = (uint8_t)type,
                                              .len = 8u << type,
                                              .comm = 0x1122334455667788,
                                              .dst = type,
                                              .number = 7};

        weft_wire_frame_encode(&frame, headers + (size_t)(type - 1) * WEFT_WIRE_FRAME_LEN);
    }
    save("frame", "all", "\x01", 1, headers, sizeof(headers));
    save("frame", "one", "\x00", 1, headers, WEFT_WIRE_FRAME_LEN);
}

static void save_data(void)
{
    uint8_t headers[(WEFT_DATA_TYPE_END - 1) * WEFT_WIRE_DATA_LEN];

    for (uint32_t type = 1; type < WEFT_DATA_TYPE_END; type++) {
        const struct weft_wire_data frame = {.type = (uint8_t)type,
                                             .flags = (uint8_t)(type % 4),
                                             .len = 8u << type,
                                             .comm = 0x1122334455667788,
                                             .tag = 7,
                                             .seq = type,
                                             .a = 1,
                                             .b = 0x80000,
                                             .c = UINT64_MAX,
                                             .number = 12,
                                             .ack = 11};

        weft_wire_data_encode(&frame, headers + (size_t)(type - 1) * WEFT_WIRE_DATA_LEN);
    }
    save("data", "all", "\x01", 1, headers, sizeof(headers));
    save("data", "one", "\x00", 1, headers, WEFT_WIRE_DATA_LEN);
}

static void save_calling(void)
{
    for (uint32_t about = 0; about < WEFT_CALLING_ABOUTS; about++) {
        const struct weft_wire_calling calling = {.about = (uint8_t)about,
                                                  .coll = WEFT_ALLREDUCE,
                                                  .dtype = WEFT_F32,
                                                  .channel = 0x1122334455667788,
                                                  .rank = 1,
                                                  .missing = 2,
                                                  .number = 7,
                                                  .signature = 0xa1b2c3d4,
                                                  .count = 100,
                                                  .timeout_ms = 900};
        uint8_t out[WEFT_WIRE_CALLING_LEN];
        char name[16];

        weft_wire_calling_encode(&calling, out);
        snprintf(name, sizeof(name), "about-%u", about);
        save("calling", name, "", 0, out, sizeof(out));
    }
}

static const struct weft_wire_addr v4 = {.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}};
static const struct weft_wire_addr v6 = {
    .family = 6, .port = 4411, .scope = 2, .bytes = {0xfe, 0x80, [15] = 1}};

static void save_records(void)
{
    struct weft_wire_member member = {.rank = 3, .ranks = 8, .leader = 2, .pid = 77, .addr = v4};
    struct weft_wire_answer answer = {.parent = 2, .fan_groups = 8, .fan_local = 8, .addr = v6};
    struct weft_wire_notice notice = {.status = WEFT_ERR_PEER, .rank = 3, .number = 1};
    uint8_t out[2 * WEFT_WIRE_MEMBER_MAX];
    size_t len;

    snprintf(member.host, sizeof(member.host), "node7");
    snprintf(member.settings, sizeof(member.settings), "WEFT_HEARTBEAT=1s");
    snprintf(notice.text, sizeof(notice.text), "rank 3 closed during allreduce");
    len = weft_wire_member_encode(&member, out, sizeof(out));
    save("roster", "member", "\x00", 1, out, len);
    len += weft_wire_member_encode(&member, out + len, sizeof(out) - len);
    save("roster", "members", "\x00", 1, out, len);
    weft_wire_answer_encode(&answer, out);
    save("roster", "answer", "\x02", 1, out, WEFT_WIRE_ANSWER_LEN);
    len = weft_wire_notice_encode(&notice, out);
    save("roster", "notice", "\x03", 1, out, len);
}

static void save_table(const char *name, uint32_t ranks, uint32_t groups)
{
    struct weft_wire_table table;
    uint8_t out[2048];
    size_t len;

    FUZZ_CHECK(weft_wire_table_open(ranks, groups, &table) == WEFT_OK);
    for (uint32_t r = 0; r < ranks; r++) {
        table.group_of[r] = r % groups;
        table.pid[r] = 1000 + r;
    }
    for (uint32_t g = 0; g < groups; g++) {
        table.group[g].leader = g;
        table.group[g].addr = g % 2 == 0 ? v4 : v6;
        snprintf(table.group[g].host, WEFT_WIRE_HOST_LEN, "node%u", g);
    }
    len = weft_wire_table_encode(&table, out, sizeof(out));
    FUZZ_CHECK(len > 0);
    save("roster", name, "\x01", 1, out, len);
    weft_wire_table_close(&table);
}

static void save_id(const char *name, const struct weft_wire_addr *root, uint32_t flags)
{
    struct weft_wire_id facts = {.root = *root, .flags = flags, .epoch = 2, .job = "a fuzzed job"};
    weft_id_t id;
    char text[WEFT_ID_TEXT_LEN], text_name[64];

    memcpy(facts.secret, fuzz_key, flags != 0 ? WEFT_SECRET_LEN : 0);
    weft_wire_id_encode(&facts, &id);
    weft_wire_id_print(&id, text);
    save("id", name, "\x01", 1, &id, sizeof(id));
    snprintf(text_name, sizeof(text_name), "%s-text", name);
    save("id", text_name, "\x02", 1, text, strlen(text));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_corpus FOLDER\n");
        return 2;
    }
    folder = argv[1];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        perror(folder);
        return 1;
    }
    save_handshakes();
    save_strangers();
    save_frames();
    save_data();
    save_calling();
    save_records();
    save_table("table-1", 1, 1);
    save_table("table-8", 8, 3);
    save_id("v4", &v4, WEFT_WIRE_ID_AUTHENTICATED);
    save_id("v6-open", &v6, 0);
    return 0;
}
