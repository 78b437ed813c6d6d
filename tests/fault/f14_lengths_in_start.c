/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lengths, counts and ranks that claim too much: refused before anything is allocated for them, and
 * whoever has not proved itself costs a few kilobytes at most.
 */
#include "start_job.h"

#define UNPROVEN 64         /* as many as are kept */
#define UNPROVEN_COST_KIB 4 /* each */
#define GROWTH_MAX_KIB 512  /* of the root, whatever is claimed */
#define ROUNDING_KIB 128    /* what else may happen in its heap */

enum { GATE_RIGHT = 1, GATE_OFFENDER };

static void start_pair(struct job *job, struct actor actors[2])
{
    actors[0] = (struct actor){.is_root = true, .rank = 0, .ranks = 2};
    actors[1] = (struct actor){.rank = 1, .ranks = 2, .gate = GATE_RIGHT};
    job_start(job, actors, 2);
}

static void finish_pair(struct job *job)
{
    open_gate(job, GATE_RIGHT);
    job_end(job);
    assert_actors_fine(job, 0, 1);
    job_close(job);
}

static void assert_little_growth(long before_kib, long after_kib, long most_kib)
{
    if (!IS_SANITIZED && after_kib - before_kib > most_kib) { /* sanitizers have their own ideas */
        fail_msg("the root grew from %ld to %ld KiB, at most %ld are allowed", before_kib,
                 after_kib, most_kib);
    }
}

/* A hello as far as its payload, with any length in it; its CRC is right. */
static void make_hello(const struct job *job, uint32_t payload_len, struct weft_wire_hello *hello)
{
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN];
    const struct weft_wire_call call = {
        .purpose = WEFT_WIRE_JOIN, .nonce = nonce, .payload_len = payload_len};
    struct weft_wire_self self = {.is_authenticated = true, .rank = 1, .ranks = 2};
    memcpy(self.job, job->facts.job, sizeof(self.job));
    weft_wire_hello_encode(&self, &call, hello);
}

static int connect_and_wait(const struct job *job)
{
    uint8_t challenge[WEFT_WIRE_CHALLENGE_LEN];
    int fd = stranger_connect(ROOT_ADDRESS, job->port, WAIT_MS);
    assert_true(fd >= 0);
    assert_int_equal(stranger_read(fd, challenge, sizeof(challenge), WAIT_MS), sizeof(challenge));
    return fd;
}

static void a_hello_that_claims_too_much_is_closed_at_once(void **state)
{
    static const uint32_t lens[] = {WEFT_WIRE_PAYLOAD_MAX + 1,
                                    65536,
                                    INT32_MAX,
                                    (uint32_t)INT32_MAX + 1,
                                    UINT32_MAX - sizeof(struct weft_wire_hello) + 1,
                                    UINT32_MAX - WEFT_WIRE_PROOF_LEN + 1,
                                    UINT32_MAX};
    struct job job;
    struct actor actors[2];
    long before_kib, after_kib;
    (void)state;
    start_pair(&job, actors);
    close(connect_and_wait(&job)); /* warm */
    before_kib = memory_of(harness_pid(job.harness, 0));
    for (unsigned i = 0; i < 50 * sizeof(lens) / sizeof(lens[0]); i++) {
        struct weft_wire_hello hello;
        uint64_t begin_ns;
        int fd = connect_and_wait(&job);
        make_hello(&job, lens[i % (sizeof(lens) / sizeof(lens[0]))], &hello);
        begin_ns = harness_now_ns();
        assert_true(stranger_send(fd, &hello, sizeof(hello), WAIT_MS));
        assert_true(stranger_is_closed(fd, WAIT_MS));
        assert_true(ms_since(begin_ns) < 1000);
        close(fd);
    }
    after_kib = memory_of(harness_pid(job.harness, 0));
    finish_pair(&job);
    assert_little_growth(before_kib, after_kib, GROWTH_MAX_KIB);
}

/* The longest hello that is allowed, all but its last byte, on every place there is. */
static void an_unproven_connection_costs_at_most_four_kilobytes(void **state)
{
    struct job job;
    struct actor actors[2];
    uint8_t bytes[sizeof(struct weft_wire_hello) + WEFT_WIRE_PAYLOAD_MAX + WEFT_WIRE_PROOF_LEN - 1];
    int fds[UNPROVEN];
    long before_kib, after_kib;
    (void)state;
    start_pair(&job, actors);
    memset(bytes, 0, sizeof(bytes));
    make_hello(&job, WEFT_WIRE_PAYLOAD_MAX, (struct weft_wire_hello *)bytes);
    close(connect_and_wait(&job));
    before_kib = memory_of(harness_pid(job.harness, 0));
    for (int i = 0; i < UNPROVEN - 1; i++) {
        fds[i] = connect_and_wait(&job);
        assert_true(stranger_send(fds[i], bytes, sizeof(bytes), WAIT_MS));
    }
    fds[UNPROVEN - 1] = connect_and_wait(&job); /* all before it have been read */
    after_kib = memory_of(harness_pid(job.harness, 0));
    for (int i = 0; i < UNPROVEN; i++) {
        close(fds[i]);
    }
    finish_pair(&job);
    assert_little_growth(before_kib, after_kib, UNPROVEN * UNPROVEN_COST_KIB + ROUNDING_KIB);
}

/* ---- somebody who has the secret ---- */

/* Joins as a leader, who is accepted at once and may send members. */
static void join_as_leader(struct speaker *speaker, const struct job *job)
{
    speaker_dial(speaker, job, &job->facts, 1, 3);
    speaker_join(speaker, 1);
    assert_int_equal(speaker_listen(speaker), WEFT_WIRE_DONE);
}

static void start_root_of_three(struct job *job, struct actor actors[1])
{
    actors[0] = (struct actor){.is_root = true, .rank = 0, .ranks = 3};
    job_start(job, actors, 1);
}

/* A header with any length, its CRC right. */
static void make_header(uint32_t len, uint8_t header[WEFT_WIRE_FRAME_LEN])
{
    const struct weft_wire_frame frame = {.type = WEFT_WIRE_MEMBERS, .src = 1};
    weft_wire_frame_encode(&frame, header);
    put_u32(header + 4, len);
    put_u32(header + 28, weft_wire_crc32c(0, header, 28));
}

static void a_frame_that_claims_too_much_ends_the_start(void **state)
{
    static const uint32_t lens[] = {WEFT_WIRE_FRAME_MAX + 1, (uint32_t)INT32_MAX + 1,
                                    UINT32_MAX - WEFT_WIRE_FRAME_LEN + 1, UINT32_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct job job;
        struct actor actors[1];
        struct speaker speaker;
        uint8_t header[WEFT_WIRE_FRAME_LEN];
        char claim[48];
        start_root_of_three(&job, actors);
        join_as_leader(&speaker, &job);
        make_header(lens[i], header);
        assert_true(stranger_send(speaker.fd, header, sizeof(header), WAIT_MS));
        job_end(&job);
        snprintf(claim, sizeof(claim), "claims %u bytes", lens[i]);
        assert_said(&job, 0, WEFT_ERR_PROTOCOL, "rank 1", claim, NULL);
        close(speaker.fd);
        job_close(&job);
    }
}

static void memory_follows_the_bytes_that_came_not_the_length_that_was_claimed(void **state)
{
    struct job job;
    struct actor actors[1];
    struct speaker speaker;
    uint8_t header[WEFT_WIRE_FRAME_LEN];
    static const uint8_t part[65536];
    long before_kib, after_kib;
    (void)state;
    start_root_of_three(&job, actors);
    join_as_leader(&speaker, &job);
    before_kib = memory_of(harness_pid(job.harness, 0));
    make_header(WEFT_WIRE_FRAME_MAX, header);
    assert_true(stranger_send(speaker.fd, header, sizeof(header), WAIT_MS));
    assert_true(stranger_send(speaker.fd, part, sizeof(part), WAIT_MS));
    close(connect_and_wait(&job)); /* it has been read */
    after_kib = memory_of(harness_pid(job.harness, 0));
    close(speaker.fd);
    job_end(&job);
    assert_said(&job, 0, WEFT_ERR_PEER, "rank 1", "joined and then", NULL);
    job_close(&job);
    assert_little_growth(before_kib, after_kib, GROWTH_MAX_KIB);
}

/* Sends one MEMBERS frame, whose seal is right, and returns what the root made of it. */
static void check_members(const void *payload, uint32_t len, const char *words)
{
    struct job job;
    struct actor actors[1];
    struct speaker speaker;
    uint8_t bytes[WEFT_WIRE_FRAME_LEN + 4096 + WEFT_WIRE_SEAL_LEN];
    const struct weft_wire_frame frame = {.type = WEFT_WIRE_MEMBERS, .src = 1, .len = len};
    start_root_of_three(&job, actors);
    join_as_leader(&speaker, &job);
    assert_true(stranger_send(speaker.fd, bytes, speaker_frame(&speaker, 0, frame, payload, bytes),
                              WAIT_MS));
    job_end(&job);
    assert_said(&job, 0, WEFT_ERR_PROTOCOL, "rank 1", words, NULL);
    close(speaker.fd);
    job_close(&job);
}

static void members_that_cannot_be_read_end_the_start(void **state)
{
    uint8_t record[WEFT_WIRE_MEMBER_MAX];
    size_t len = encode_member(record, 2, 3, 1);
    uint8_t noise[300];
    (void)state;
    memset(noise, 0xff, sizeof(noise));
    check_members(record, (uint32_t)len - 1, "cannot be read");
    check_members(noise, sizeof(noise), "cannot be read");
    len = encode_member(record, 2, 3, UINT32_MAX - 1); /* a leader that cannot exist */
    check_members(record, (uint32_t)len, "cannot be read");
}

/* ---- what a rank believes a root that has the secret ---- */

static void serve_table(const struct job *job, int fd, const uint8_t *table, size_t len)
{
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN] = {9};
    struct speaker speaker = {.fd = fd};
    uint8_t bytes[WEFT_WIRE_FRAME_LEN + 4096 + WEFT_WIRE_SEAL_LEN];
    const struct weft_wire_frame frame = {
        .type = WEFT_WIRE_TABLE, .src = 0, .dst = 1, .len = (uint32_t)len};
    speaker.self = (struct weft_wire_self){.key = job->facts.secret,
                                           .is_authenticated = true,
                                           .rank = 0,
                                           .ranks = 2,
                                           .epoch = job->facts.epoch};
    memcpy(speaker.self.job, job->facts.job, sizeof(speaker.self.job));
    weft_wire_server_open(&speaker.shake, &speaker.self, nonce);
    assert_true(speaker_say(&speaker));
    assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_HELLO);
    weft_wire_accept(&speaker.shake);
    assert_true(speaker_say(&speaker));
    assert_true(stranger_send(fd, bytes, speaker_frame(&speaker, 0, frame, table, bytes), WAIT_MS));
}

/* A table of two ranks on one host, with one of its first words (counts, root, fans) replaced. */
static size_t make_table(uint8_t bytes[4096], unsigned word, uint32_t value)
{
    struct weft_wire_table table;
    size_t len;
    assert_int_equal(weft_wire_table_open(2, 1, &table), WEFT_OK);
    table.fan_groups = table.fan_local = 64;
    len = weft_wire_table_encode(&table, bytes, 4096);
    assert_in_range(len, 16, 4096);
    weft_wire_table_close(&table);
    put_u32(bytes + 4 * (size_t)word, value);
    return len;
}

static void a_table_that_claims_too_much_is_refused_by_the_rank(void **state)
{
    static const uint32_t values[] = {UINT32_MAX, (uint32_t)INT32_MAX + 1, 100000000, 0};
    (void)state;
    for (unsigned i = 0; i < 12; i++) { /* three words, four values */
        struct job job;
        struct actor actors[2] = {
            {.is_root = true, .rank = 0, .ranks = 2, .gate = GATE_RIGHT},
            {.rank = 1, .ranks = 2, .gate = GATE_OFFENDER, .slot = SLOT_OTHER, .is_direct = true}};
        struct weft_wire_id facts;
        uint8_t table[4096];
        int fds[2];
        if (i == 8 + 3) {
            continue; /* root 0 is right */
        }
        job_start(&job, actors, 2);
        facts = job.facts;
        fds[0] = listen_somewhere(&facts.root.port);
        give_id(&job, SLOT_OTHER, &facts);
        open_gate(&job, GATE_OFFENDER);
        assert_true(harness_wait_until(has_guest, fds, WAIT_MS));
        serve_table(&job, fds[1], table, make_table(table, i / 4, values[i % 4]));
        assert_harness(job.harness, harness_wait_rank(job.harness, 1, WAIT_MS));
        assert_said(&job, 1, WEFT_ERR_PROTOCOL, NULL);
        close(fds[0]);
        close(fds[1]);
        assert_true(harness_kill(job.harness, 0, SIGKILL));
        job_end(&job);
        job_close(&job);
    }
}

static void a_refusal_that_claims_too_long_a_reason_is_not_believed(void **state)
{
    struct job job;
    struct actor actors[3] = {
        {.is_root = true, .rank = 0, .ranks = 2},
        {.rank = 1, .ranks = 2, .gate = GATE_OFFENDER, .slot = SLOT_OTHER, .is_direct = true},
        {.rank = 1, .ranks = 2, .gate = GATE_RIGHT}};
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN] = {9};
    struct speaker speaker;
    struct weft_wire_id facts;
    uint8_t refusal[WEFT_WIRE_REFUSAL_MAX];
    uint8_t hello[sizeof(struct weft_wire_hello) + WEFT_WIRE_PROOF_LEN];
    int fds[2];
    (void)state;
    job_start(&job, actors, 3);
    facts = job.facts;
    fds[0] = listen_somewhere(&facts.root.port);
    give_id(&job, SLOT_OTHER, &facts);
    open_gate(&job, GATE_OFFENDER);
    assert_true(harness_wait_until(has_guest, fds, WAIT_MS));
    memset(&speaker, 0, sizeof(speaker));
    speaker.fd = fds[1];
    speaker.self =
        (struct weft_wire_self){.key = nonce, .is_authenticated = true, .epoch = facts.epoch};
    memcpy(speaker.self.job, facts.job, sizeof(facts.job));
    weft_wire_server_open(&speaker.shake, &speaker.self, nonce);
    assert_true(speaker_say(&speaker));
    assert_int_equal(stranger_read(fds[1], hello, sizeof(hello), WAIT_MS), sizeof(hello));
    weft_wire_refusal_encode(WEFT_ERR_BUSY, 0, "go away", refusal);
    put_u32(((struct weft_wire_refusal *)refusal)->reason_len, UINT32_MAX);
    assert_true(stranger_send(fds[1], refusal, sizeof(struct weft_wire_refusal), WAIT_MS));
    assert_harness(job.harness, harness_wait_rank(job.harness, 1, WAIT_MS));
    assert_said(&job, 1, WEFT_ERR_PROTOCOL, "4294967295", NULL);
    close(fds[0]);
    close(fds[1]);
    open_gate(&job, GATE_RIGHT);
    job_end(&job);
    assert_actors_fine(&job, 0, 2);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_that_claims_too_much_is_closed_at_once),
        cmocka_unit_test(an_unproven_connection_costs_at_most_four_kilobytes),
        cmocka_unit_test(a_frame_that_claims_too_much_ends_the_start),
        cmocka_unit_test(memory_follows_the_bytes_that_came_not_the_length_that_was_claimed),
        cmocka_unit_test(members_that_cannot_be_read_end_the_start),
        cmocka_unit_test(a_table_that_claims_too_much_is_refused_by_the_rank),
        cmocka_unit_test(a_refusal_that_claims_too_long_a_reason_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
