/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handshakes that were recorded on the wire, or changed on it: both nonces, both ranks, the job and
 * the payload are under the proofs, so that what was said once is worth nothing a second time.
 */
#include "relay.h"
#include "start_job.h"

#define HELLO_LEN sizeof(struct weft_wire_hello)

enum { GATE_RELAYED = 1, GATE_LATE, GATE_CHANGED };

/* An id that leads to the relay instead of the root. */
static void give_relayed_id(struct job *job, unsigned slot, const struct relay *relay)
{
    struct weft_wire_id facts = job->facts;
    facts.root.port = relay->port;
    give_id(job, slot, &facts);
}

static bool has_whole_hello(void *arg)
{
    struct relay *relay = arg;
    const struct weft_wire_hello *hello = (const struct weft_wire_hello *)relay->record[RELAY_UP];
    uint32_t len = atomic_load(&relay->recorded[RELAY_UP]);
    return len >= HELLO_LEN && len >= HELLO_LEN + get_u32(hello->payload_len) + WEFT_WIRE_PROOF_LEN;
}

/* Says a recorded hello to the root on a connection of its own; the root must say that the proof is
 * wrong, and nothing else. */
static void assert_replay_refused(const struct job *job, const uint8_t *hello, size_t len)
{
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN];
    struct speaker speaker;
    speaker_dial(&speaker, job, &job->facts, 1, 2);
    weft_wire_client_open(&speaker.shake, &speaker.self, nonce, WEFT_WIRE_JOIN, 0, NULL, 0);
    assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_WANT_BYTES);
    speaker.shake.out_len = 0;
    assert_true(stranger_send(speaker.fd, hello, len, WAIT_MS));
    assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_FAILED);
    assert_int_equal(speaker.shake.status, WEFT_ERR_AUTH);
    assert_string_equal(speaker.shake.reason, "this rank's secret is not the one of the job");
    assert_true(stranger_is_closed(speaker.fd, WAIT_MS));
    close(speaker.fd);
}

/* The same bytes are worthless on every other connection, before and after they were used on their
 * own. */
static void a_recorded_hello_is_refused_on_every_other_connection(void **state)
{
    struct job job;
    struct actor actors[3] = {
        {.is_root = true, .rank = 0, .ranks = 3},
        {.rank = 1, .ranks = 3, .gate = GATE_RELAYED, .slot = SLOT_OTHER, .is_direct = true},
        {.rank = 2, .ranks = 3, .gate = GATE_LATE}};
    struct relay *relay;
    size_t len;
    (void)state;
    job_start(&job, actors, 3);
    relay = relay_open(job.port, RELAY_UP, RELAY_NEVER, true);
    give_relayed_id(&job, SLOT_OTHER, relay);
    open_gate(&job, GATE_RELAYED);
    assert_true(harness_wait_until(has_whole_hello, relay, WAIT_MS));
    len = atomic_load(&relay->recorded[RELAY_UP]);
    for (int i = 0; i < 3; i++) {
        assert_replay_refused(&job, relay->record[RELAY_UP], len);
    }
    /* where it belongs it is good, which shows that the others failed for the right reason */
    atomic_store(&relay->holds_up, false);
    assert_true(stranger_send(relay->pairs[0].fd[1], relay->record[RELAY_UP], len, WAIT_MS));
    for (int i = 0; i < 3; i++) {
        assert_replay_refused(&job, relay->record[RELAY_UP], len);
    }
    open_gate(&job, GATE_LATE);
    job_end(&job);
    assert_actors_fine(&job, 0, 1, 2);
    relay_close(relay);
    job_close(&job);
}

/* Changes one thing in a hello, and mends its CRC, as everybody can. */
static void change_hello(uint8_t *bytes, unsigned what)
{
    struct weft_wire_hello *hello = (struct weft_wire_hello *)bytes;
    switch (what) {
    case 0:
        put_u32(hello->rank, 2); /* another rank, which has not come yet */
        break;
    case 1:
        put_u32(hello->ranks, 9);
        break;
    case 2:
        hello->purpose[0] = WEFT_WIRE_ATTACH;
        break;
    case 3:
        hello->nonce[31] ^= 0x80;
        break;
    case 4:
        bytes[HELLO_LEN] ^= 1; /* the payload's first byte */
        break;
    default:
        put_u16(hello->lane, 1);
        break;
    }
    put_u32(hello->crc, weft_wire_crc32c(0, hello, offsetof(struct weft_wire_hello, crc)));
}

static void a_hello_changed_on_its_way_is_refused(void **state)
{
    enum { CHANGES = 6 };
    struct job job;
    struct actor actors[CHANGES + 3] = {{.is_root = true, .rank = 0, .ranks = 3},
                                        {.rank = 1, .ranks = 3, .gate = GATE_LATE},
                                        {.rank = 2, .ranks = 3, .gate = GATE_LATE}};
    (void)state;
    for (unsigned i = 0; i < CHANGES; i++) {
        actors[3 + i] = (struct actor){.rank = 1,
                                       .ranks = 3,
                                       .gate = GATE_CHANGED + i,
                                       .slot = SLOT_OTHER + i,
                                       .is_direct = true};
    }
    job_start(&job, actors, CHANGES + 3);
    for (unsigned i = 0; i < CHANGES; i++) {
        struct relay *relay = relay_open(job.port, RELAY_UP, RELAY_NEVER, true);
        uint8_t hello[RELAY_RECORD];
        size_t len;
        give_relayed_id(&job, SLOT_OTHER + i, relay);
        open_gate(&job, GATE_CHANGED + i);
        assert_true(harness_wait_until(has_whole_hello, relay, WAIT_MS));
        len = atomic_load(&relay->recorded[RELAY_UP]);
        memcpy(hello, relay->record[RELAY_UP], len);
        change_hello(hello, i);
        assert_true(stranger_send(relay->pairs[0].fd[1], hello, len, WAIT_MS));
        assert_harness(job.harness, harness_wait_rank(job.harness, 3 + (int)i, WAIT_MS));
        assert_said(&job, 3 + (int)i, WEFT_ERR_AUTH, NULL);
        relay_close(relay);
    }
    open_gate(&job, GATE_LATE);
    job_end(&job);
    assert_actors_fine(&job, 0, 1, 2);
    job_close(&job);
}

/* Everything a root once said, said again by somebody else to a rank that comes late. */
static void a_recorded_root_is_not_joined(void **state)
{
    struct job job;
    struct actor actors[3] = {
        {.is_root = true, .rank = 0, .ranks = 2},
        {.rank = 1, .ranks = 2, .gate = GATE_RELAYED, .slot = SLOT_OTHER, .is_direct = true},
        {.rank = 1, .ranks = 2, .gate = GATE_LATE, .slot = SLOT_THIRD, .is_direct = true}};
    struct weft_wire_id facts;
    struct relay *relay;
    uint8_t hello[HELLO_LEN + WEFT_WIRE_PROOF_LEN];
    size_t len;
    int fds[2];
    (void)state;
    job_start(&job, actors, 3);
    relay = relay_open(job.port, RELAY_UP, RELAY_NEVER, false);
    give_relayed_id(&job, SLOT_OTHER, relay);
    open_gate(&job, GATE_RELAYED);
    assert_harness(job.harness, harness_wait_rank(job.harness, 0, WAIT_MS));
    assert_harness(job.harness, harness_wait_rank(job.harness, 1, WAIT_MS));
    relay_stop(relay);
    len = atomic_load(&relay->recorded[RELAY_DOWN]);
    assert_true(len > WEFT_WIRE_CHALLENGE_LEN + sizeof(struct weft_wire_accepted));
    facts = job.facts;
    fds[0] = listen_somewhere(&facts.root.port);
    give_id(&job, SLOT_THIRD, &facts);
    open_gate(&job, GATE_LATE);
    assert_true(harness_wait_until(has_guest, fds, WAIT_MS));
    assert_true(stranger_send(fds[1], relay->record[RELAY_DOWN], WEFT_WIRE_CHALLENGE_LEN, WAIT_MS));
    assert_int_equal(stranger_read(fds[1], hello, sizeof(hello), WAIT_MS), sizeof(hello));
    stranger_send(fds[1], relay->record[RELAY_DOWN] + WEFT_WIRE_CHALLENGE_LEN,
                  len - WEFT_WIRE_CHALLENGE_LEN, WAIT_MS);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    assert_said(&job, 2, WEFT_ERR_AUTH, "the listener does not know the job's secret", NULL);
    close(fds[0]);
    close(fds[1]);
    relay_close(relay);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_hello_is_refused_on_every_other_connection),
        cmocka_unit_test(a_hello_changed_on_its_way_is_refused),
        cmocka_unit_test(a_recorded_root_is_not_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
