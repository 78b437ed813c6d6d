/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the seeds of the fuzz targets: make_corpus tests/fuzz/corpus. They come from the real
 * encoders, so that fuzzing begins behind the first checks; run it again when the bytes on the wire
 * change.
 */
#include "fuzz.h"
#include "nccl-net/frame.h"
#include "wire/dump.h"

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

static void save_sealed(void)
{
    static const size_t lens[] = {1, 64, 100, 300};
    static const struct {
        const char *name, *prefix;
    } kinds[] = {
        {"integrity", "\x03"}, {"encrypt", "\x07"}, {"encrypt-aes", "\x0f"}, {"damaged", "\x01"}};
    uint8_t bytes[300] = {7}, records[1024];

    for (size_t kind = 0; kind < WEFT_COUNT_OF(kinds); kind++) {
        struct weft_wire_sealer sealer;
        size_t len = 0;

        weft_wire_sealer_open(&sealer, fuzz_key, WEFT_SECURITY_ENCRYPT, false);
        for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
            len += weft_wire_record_seal(&sealer, bytes, lens[i], records + len);
        }
        save("record", kinds[kind].name, kinds[kind].prefix, 1, records, len);
    }
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

/* A short ring that has gone around; the target's prefix says dump (with its checksum made right) or live. */
static void save_dump(void)
{
    static const struct weft_recorder_spec spec = {
        .entries = 16, .job = "a fuzzed job", .rank = 1, .ranks = 4, .host = "node7"};
    struct weft_recorder recorder;
    struct weft_recording *copy;
    size_t len;

    weft_recorder_open(&spec, &recorder);
    len = weft_recorder_len(&recorder);
    copy = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    FUZZ_CHECK(copy != NULL);
    memset(copy, 0, len);
    weft_recorder_comm_open(&recorder, 7, 1, 4);
    for (uint32_t i = 0; i < 20; i++) {
        const struct weft_record_call call = {
            .comm = 7,
            .number = i,
            .count = 100,
            .what = weft_record_what(i % 2 == 0 ? WEFT_ALLREDUCE : WEFT_RECORD_SEND, WEFT_F32,
                                     WEFT_SUM, weft_recorder_name(&recorder, "ring"), 0)};
        uint64_t record = weft_recorder_begin(&recorder, &call);

        if (i < 18) {
            weft_recorder_end(&recorder, record, i == 17 ? WEFT_ERR_PEER : WEFT_OK);
        }
    }
    weft_recorder_copy(&recorder, copy);
    save("dump", "live", "\x01", 1, copy, len);
    copy->head.reason = WEFT_RECORD_FAILED;
    copy->head.status = WEFT_ERR_PEER;
    weft_wire_dump_seal(copy, len);
    save("dump", "failed", "\x02", 1, copy, len);
    save("dump", "sealed", "\x00", 1, copy, len);
    free(copy);
    weft_recorder_close(&recorder);
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

static void save_dialling(void)
{
    struct weft_wire_dialling call = {.kind = WEFT_DIALLING_HERE, .shm_len = 20, .tcp_len = 0};
    uint8_t out[WEFT_WIRE_DIALLING_MAX];

    memcpy(call.shm, "a name of a socket..", 20);
    for (uint8_t i = 0; i < 3; i++) {
        weft_wire_addr_encode(i % 2 == 0 ? &v4 : &v6, call.tcp + call.tcp_len);
        call.tcp_len = (uint8_t)(call.tcp_len + WEFT_WIRE_ADDR_LEN);
    }
    save("dialling", "here", "", 0, out, weft_wire_dialling_encode(&call, out));
    call = (struct weft_wire_dialling){.kind = WEFT_DIALLING_ASK};
    save("dialling", "ask", "", 0, out, weft_wire_dialling_encode(&call, out));
    call = (struct weft_wire_dialling){
        .kind = WEFT_DIALLING_NO, .shm_len = 6, .tcp_len = 1, .shm = "no way", .tcp = {5}};
    save("dialling", "no", "", 0, out, weft_wire_dialling_encode(&call, out));
}

/* As people write them; the prefix says which parser. */
static void save_texts(void)
{
    static const struct {
        const char *name, *prefix, *text;
    } texts[] = {
        {"int", "\x00", "-12"},
        {"size", "\x01", "512K"},
        {"duration", "\x02", "250ms"},
        {"setting", "\x03",
         "\x12"
         "auto"},
        {"calibration", "\x04", "loopback=2us:5.5G:1us:4us copy=12G"},
        {"cpus", "\x05", "0-3,8"},
        {"bindings", "\x06", "eth1:8-21,12;eth0:60-63"},
        {"nodes", "\x07", "gpu[07-09,12],login1"},
        {"differences", "\x08", "WEFT_PATH=shm;WEFT_EAGER=1K|WEFT_PATH=tcp"},
    };
    static const char profile[] = "# machine: some\n# more\n\nWEFT_CHUNK = 512K\nWEFT_WINDOW=8\n";

    save("settings", "int", "\x00", 1, texts[0].text, strlen(texts[0].text));
    for (size_t i = 1; i < WEFT_COUNT_OF(texts); i++) {
        save("settings", texts[i].name, texts[i].prefix, 1, texts[i].text, strlen(texts[i].text));
    }
    save("profile", "two", "", 0, profile, sizeof(profile) - 1);
    save("profile", "without-machine", "", 0, profile + 24, sizeof(profile) - 25);
    save("profile", "forbidden", "", 0, "WEFT_ROOT=10.0.0.1:99\n", 22);
}

/* Frames of a peer gone mad, as fuzz_link.c reads them: how, type less 1, flags, length, communicator, tag, seq, a, b, c,
 * number, ack. */
static void save_link(void)
{
    static const uint8_t frames[][12] = {
        {2, WEFT_DATA_EAGER - 1, 0, 2, 0, 3, 1, 0, 0, 0, 1, 0},
        {2, WEFT_DATA_ANNOUNCE - 1, 0, 0, 0, 4, 1, 1, 253, 0, 1, 0},
        {3, WEFT_DATA_CHUNK - 1, 0, 100, 0, 0, 1, 1, 0, 0, 1, 0},
        {2, WEFT_DATA_GRANT - 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0},
        {2, WEFT_DATA_DONE - 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0},
        {2, WEFT_DATA_PUT - 1, 0, 8, 0, 0, 1, 1, 0, 1, 1, 0},
        {2, WEFT_DATA_GET - 1, 0, 0, 0, 64, 0, 1, 0, 1, 1, 0},
        {2, WEFT_DATA_PART - 1, 0, 8, 0, 0, 1, 0, 0, 1, 1, 0},
        {2, WEFT_DATA_SIGNAL - 1, 0, 0, 0, 0, 0, 1, 8, 1, 1, 0},
        {2, WEFT_DATA_FLUSH - 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0},
        {2, WEFT_DATA_ACK - 1, WEFT_DATA_SLOT, 0, 0, 0, 1, 200, 0, 1, 0, 1},
        {3, WEFT_DATA_ACK - 1, WEFT_DATA_LEAD, 0, 0, 1, 1, 0, 3, 0, 0, 1},
        {2, WEFT_DATA_BYE - 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0},
        {2, WEFT_DATA_ENDED - 1, 0, 0, 1, 0, 0, 5, 0, 0, 1, 0},
    };
    char name[16];

    for (unsigned i = 0; i < WEFT_COUNT_OF(frames); i++) {
        snprintf(name, sizeof(name), "type-%u", frames[i][1]);
        save("link", name, "", 0, frames[i], sizeof(frames[i]));
    }
    save("link", "all", "", 0, frames, sizeof(frames));
}

/* As fuzz_control.c reads them. Of rank 0: 0, from whom; then type (a number of its list), flags, communicator, source,
 * destination, number, half the length, payload. */
static void save_control_top(void)
{
    struct weft_wire_notice notice = {.status = WEFT_ERR_PEER, .rank = 3, .number = 1};
    uint8_t out[256] = {0, 1, 3, 0, 1, 2, 0, 1}, bytes[WEFT_WIRE_NOTICE_MAX];
    size_t len;
    static const uint8_t closed[] = {0, 1, 2, 0, 0, 2, 0, 0, 4, 3, 0, 0, 0, 4, 0, 0, 0};
    static const uint8_t shrink[] = {0, 1, 6, 0, 1, 2, 0, 1, 12, 0, 0, 0, 0, 1, 0, 0, 0,
                                     2, 0, 0, 0, 3, 0, 0, 0, 4,  0, 0, 0, 5, 0, 0, 0};
    static const uint8_t gather[] = {0, 1, 8, 0, 1, 1, 0, 0, 10, 1, 0, 0, 0, 0, 0,
                                     0, 0, 0, 0, 0, 0, 1, 0, 0,  0, 0, 0, 0, 0};
    static const uint8_t mail[] = {0,   1,  10, 0, 1, 2, 0, 7, 2,  'h', 'e', 'y',
                                   '!', 11, 0,  1, 2, 0, 0, 2, 67, 0,   0,   0};

    snprintf(notice.text, sizeof(notice.text), "rank 3 closed");
    len = weft_wire_notice_encode(&notice, bytes);
    out[8] = (uint8_t)((len + 1) / 2);
    memcpy(out + 9, bytes, len);
    save("control", "report", "", 0, out, 9 + len);
    save("control", "closed", "", 0, closed, sizeof(closed));
    save("control", "shrink", "", 0, shrink, sizeof(shrink));
    save("control", "gather", "", 0, gather, sizeof(gather));
    save("control", "mail", "", 0, mail, sizeof(mail));
}

/* As fuzz_nccl.c reads them: the kind, and then what a plugin would say. */
static void save_nccl(void)
{
    struct weft_nccl_chunk chunk = {
        .flags = WEFT_NCCL_AWAITED, .number = 7, .offset = 1, .len = 2, .size = 9};
    struct weft_nccl_note note = {.type = WEFT_NCCL_TYPE_LANDED, .value = 8};
    struct weft_nccl_handle handle = {
        .ticket = 1, .count = 2, .addrs = {{.family = 4, .port = 4411}, {.family = 6}}};
    struct weft_nccl_greeting greeting = {
        .comm = 5, .is_first = true, .id = 65537, .count = 2, .alive = {1, 2}};
    uint8_t bytes[WEFT_NCCL_GREETING_MAX];

    weft_nccl_chunk_encode(&chunk, bytes);
    save("nccl", "chunk", "\4", 1, bytes, WEFT_NCCL_CHUNK_LEN);
    weft_nccl_note_encode(&note, bytes);
    save("nccl", "note", "\5", 1, bytes, WEFT_NCCL_NOTE_LEN);
    weft_nccl_handle_encode(&handle, bytes);
    save("nccl", "handle", "\2", 1, bytes, WEFT_NCCL_HANDLE_LEN);
    save("nccl", "greeting", "\3", 1, bytes, weft_nccl_greeting_encode(&greeting, bytes));
}

/* Of a rank in the middle: 1, then steps: the low half says what (0 time passes, 1 somebody comes, 2 a connection is
 * lost, 3 a frame), the high one by which connection (0 the parent's, then children's); then what that needs. */
static void save_control_middle(void)
{
    static const uint8_t ways[] = {1, 0x03, 13, 0, 0, 0, 2, 0, 9, 4, 0, 0, 80, 127, 0, 0, 1,
                                   0, 0,    0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,   0, 0, 0};
    static const uint8_t resume[] = {1, 0x13, 14, 0, 0, 6, 2, 0, 0, 0x03, 14, 0, 0, 0, 2, 1, 0};
    static const uint8_t returns[] = {1, 0x01, 0, 6, 0x33, 14, 0, 0, 6, 2, 0, 0, 0x12, 0};
    static const uint8_t orphan[] = {1, 0x02, 0, 0x00, 1, 0x00, 2, 0x00, 3, 0x00, 4, 0x00, 4};
    static const uint8_t adopted[] = {1, 0x02, 0, 0x01, 1, 0, 0x03, 0, 0, 0, 0, 2, 0, 0, 0x00, 1};
    static const uint8_t visited[] = {1, 0x12, 0, 0x01, 2, 7, 0x13, 5, 0,
                                      0, 7,    2, 0,    2, 7, 0,    0, 0};
    static const uint8_t below[] = {1,  0x13, 5, 0, 0,    6,  2, 0, 4, 10, 0, 0, 0,
                                    11, 0,    0, 0, 0x03, 10, 0, 1, 0, 10, 7, 0};
    static const uint8_t spread[] = {1, 0x03, 9, 0, 1, 0, 2, 0, 6, 1, 0,
                                     0, 0,    0, 0, 0, 0, 0, 0, 0, 0};

    save("control", "middle-spread", "", 0, spread, sizeof(spread));
    save("control", "middle-ways", "", 0, ways, sizeof(ways));
    save("control", "middle-resume", "", 0, resume, sizeof(resume));
    save("control", "middle-returns", "", 0, returns, sizeof(returns));
    save("control", "middle-orphan", "", 0, orphan, sizeof(orphan));
    save("control", "middle-adopted", "", 0, adopted, sizeof(adopted));
    save("control", "middle-visited", "", 0, visited, sizeof(visited));
    save("control", "middle-below", "", 0, below, sizeof(below));
}

/* As fuzz_inspect.c reads them: how many less 1, then of each: reason, job, rank, ranks; communicators less none: id, rank,
 * ranks, control calls; lines: kind, communicator, number, signature, peer, tag, how, when it began and ended. */
static void save_inspect(void)
{
#define RANK(reason, rank) reason, 0, rank, 2, 1, 1, rank, 2, 3
#define DID(kind, number, how) kind, 1, number, 1, 0, 1, how, 10, 20
    static const uint8_t agree[] = {1, RANK(1, 0), 1, DID(WEFT_ALLREDUCE, 0, 1), 0,
                                    0, RANK(1, 1), 1, DID(WEFT_ALLREDUCE, 0, 1), 0,
                                    0};
    static const uint8_t mismatch[] = {
        1, RANK(2, 0), 1, WEFT_ALLREDUCE, 1, 0, 1, 0, 1, 0, 10, 20, 0,
        0, RANK(2, 1), 1, WEFT_BROADCAST, 1, 0, 2, 0, 1, 0, 10, 20, 0,
        0};
    static const uint8_t history[] = {1, RANK(2, 0), 1, WEFT_ALLREDUCE, 1, 4, 1, 0, 8, 0, 10, 20, 0,
                                      0, RANK(2, 1), 1, WEFT_ALLREDUCE, 1, 4, 1, 0, 9, 0, 10, 20, 0,
                                      0};
    static const uint8_t missing[] = {1, RANK(2, 0), 1, DID(WEFT_BARRIER, 0, 0),     0,
                                      0, RANK(2, 1), 1, DID(WEFT_RECORD_RECV, 0, 0), 0,
                                      0};
    static const uint8_t control[] = {1,
                                      RANK(0, 0),
                                      1,
                                      DID(WEFT_RECORD_CONTROL_BARRIER, 3, 0),
                                      0,
                                      200,
                                      RANK(0, 1),
                                      1,
                                      DID(WEFT_ALLREDUCE, 0, 0),
                                      1,
                                      200};
    static const uint8_t stuck[] = {1, RANK(2, 0), 1, DID(WEFT_ALLREDUCE, 0, 0x20), 0,
                                    0, RANK(2, 1), 1, DID(WEFT_ALLREDUCE, 0, 0x10), 0,
                                    0};
    static const uint8_t many[] = {0, 2,   0,   254, 255, 3,   1,   3,   255, 0,
                                   2, 4,   255, 255, 3,   254, 255, 252, 1,   WEFT_ALLREDUCE,
                                   1, 252, 1,   0,   1,   0,   10,  20,  0,   0};
#undef RANK
#undef DID
    save("inspect", "agree", "", 0, agree, sizeof(agree));
    save("inspect", "mismatch", "", 0, mismatch, sizeof(mismatch));
    save("inspect", "history", "", 0, history, sizeof(history));
    save("inspect", "missing", "", 0, missing, sizeof(missing));
    save("inspect", "control", "", 0, control, sizeof(control));
    save("inspect", "stuck", "", 0, stuck, sizeof(stuck));
    save("inspect", "many", "", 0, many, sizeof(many));
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
    save_sealed();
    save_calling();
    save_dump();
    save_records();
    save_dialling();
    save_texts();
    save_link();
    save_control_top();
    save_control_middle();
    save_inspect();
    save_nccl();
    save_table("table-1", 1, 1);
    save_table("table-8", 8, 3);
    save_id("v4", &v4, WEFT_WIRE_ID_AUTHENTICATED);
    save_id("v6-open", &v6, 0);
    return 0;
}
