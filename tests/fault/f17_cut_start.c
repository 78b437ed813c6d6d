/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that end after any byte of a start. Either the rank dials again and all ranks start,
 * or all ranks learn that they have not: nobody's first barrier succeeds alone.
 */
#include "relay.h"
#include "start_job.h"

#define HELLO_LEN sizeof(struct weft_wire_hello)
#define ACCEPT_LEN sizeof(struct weft_wire_accepted)
#define SEALED_LEN(len) (WEFT_WIRE_FRAME_LEN + (len) + WEFT_WIRE_SEAL_LEN)

enum { GATE_RELAYED = 1 };

static struct weather weather; /* on the way; calm but for one test */

/* What crossed the relay until the rank had started, per direction. */
struct extent {
    size_t up, down;
};

/* One start of these actors (the last one is relayed), its connection cut after a byte. Learns the
 * extent of an uncut one. Returns how many actors came through. */
static int start_cut(const struct actor *actors, int count, int direction, size_t cut_after,
                     struct extent *extent_p)
{
    struct job job;
    struct relay *relay;
    struct weft_wire_id facts;
    int fine = 0;
    job_start(&job, actors, count);
    relay = relay_open_in(job.port, direction, cut_after, false, &weather);
    facts = job.facts;
    facts.root.port = relay->port;
    give_id(&job, SLOT_OTHER, &facts);
    open_gate(&job, GATE_RELAYED);
    job_end(&job);
    relay_stop(relay);
    for (int i = 0; i < count; i++) {
        const struct harness_result *result = harness_result(job.harness, i);
        assert_true(result->is_returned);
        fine += result->status == WEFT_OK;
        assert_true(result->status == WEFT_OK || result->text[0] != '\0');
    }
    if (fine != 0 && fine != count) {
        fail_msg("cut %s after byte %zu: %d of %d ranks started",
                 direction == RELAY_UP ? "up" : "down", cut_after, fine, count);
    }
    if (extent_p != NULL) {
        const uint8_t *up = relay->record[RELAY_UP], *down = relay->record[RELAY_DOWN];
        const struct weft_wire_hello *hello = (const struct weft_wire_hello *)up;
        struct weft_wire_frame frame;
        assert_int_equal(
            weft_wire_frame_decode(down + WEFT_WIRE_CHALLENGE_LEN + ACCEPT_LEN, &frame), WEFT_OK);
        extent_p->up = HELLO_LEN + get_u32(hello->payload_len) + WEFT_WIRE_PROOF_LEN;
        extent_p->down = WEFT_WIRE_CHALLENGE_LEN + ACCEPT_LEN + SEALED_LEN(frame.len);
    }
    relay_close(relay);
    job_close(&job);
    return fine;
}

static const struct actor three[3] = {
    {.is_root = true, .rank = 0, .ranks = 3},
    {.rank = 1, .ranks = 3},
    {.rank = 2, .ranks = 3, .gate = GATE_RELAYED, .slot = SLOT_OTHER, .is_direct = true}};

static void a_start_survives_a_cut_before_the_hello_is_whole(void **state)
{
    struct extent extent;
    (void)state;
    assert_int_equal(start_cut(three, 3, RELAY_UP, RELAY_NEVER, &extent), 3);
    for (size_t cut = 0; cut < extent.up; cut++) {
        assert_int_equal(start_cut(three, 3, RELAY_UP, cut, NULL), 3);
    }
    start_cut(three, 3, RELAY_UP, extent.up, NULL);
}

/* Bytes that are late by 10 to 30 ms each way; one cut among them. */
static void a_slow_way_is_only_slow(void **state)
{
    (void)state;
    weather = (struct weather){.seed = 7, .delay_min_us = 10000, .delay_max_us = 30000};
    assert_int_equal(start_cut(three, 3, RELAY_UP, RELAY_NEVER, NULL), 3);
    assert_int_equal(start_cut(three, 3, RELAY_UP, HELLO_LEN / 2, NULL), 3);
    weather = (struct weather){0};
}

static void a_start_survives_a_cut_challenge(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < WEFT_WIRE_CHALLENGE_LEN; cut++) {
        assert_int_equal(start_cut(three, 3, RELAY_DOWN, cut, NULL), 3);
    }
}

static void a_cut_answer_never_counts_as_a_start(void **state)
{
    struct extent extent;
    (void)state;
    assert_int_equal(start_cut(three, 3, RELAY_UP, RELAY_NEVER, &extent), 3);
    for (size_t cut = WEFT_WIRE_CHALLENGE_LEN; cut <= extent.down; cut++) {
        int fine = start_cut(three, 3, RELAY_DOWN, cut, NULL);
        /* at the very end of the challenge the hello may or may not have left */
        assert_true(fine == 0 || cut == WEFT_WIRE_CHALLENGE_LEN);
    }
}

/* In a deep tree the answer names the parent; a parent whose child never attaches waits until its
 * deadline, so only some bytes are tried. */
static void a_cut_answer_in_a_deep_tree_never_counts_as_a_start(void **state)
{
    struct actor actors[4];
    struct extent extent;
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        actors[rank] = (struct actor){.is_root = rank == 0,
                                      .rank = rank,
                                      .ranks = 4,
                                      .gate = rank == 3 ? GATE_RELAYED : 0,
                                      .slot = rank == 3 ? SLOT_OTHER : SLOT_OWN,
                                      .is_direct = true,
                                      .setting = "WEFT_TREE_DEGREE",
                                      .value = "2"};
    }
    assert_int_equal(start_cut(actors, 4, RELAY_UP, RELAY_NEVER, &extent), 4);
    for (int rank = 0; rank < 4; rank++) {
        actors[rank].start_timeout_ms = 400;
    }
    for (size_t cut = WEFT_WIRE_CHALLENGE_LEN + 1; cut < extent.down; cut += 13) {
        assert_int_equal(start_cut(actors, 4, RELAY_DOWN, cut, NULL), 0);
    }
}

/* A leader that goes in the middle of its members: the frame is whole or nothing. */
static void a_cut_list_of_members_never_counts(void **state)
{
    uint8_t record[WEFT_WIRE_MEMBER_MAX];
    uint8_t bytes[SEALED_LEN(WEFT_WIRE_MEMBER_MAX)];
    const struct weft_wire_frame frame = {
        .type = WEFT_WIRE_MEMBERS, .src = 1, .len = (uint32_t)encode_member(record, 2, 3, 1)};
    (void)state;
    for (size_t cut = 0; cut <= SEALED_LEN(frame.len); cut++) {
        const struct actor root = {.is_root = true, .rank = 0, .ranks = 3};
        struct speaker speaker;
        struct job job;
        job_start(&job, &root, 1);
        speaker_dial(&speaker, &job, &job.facts, 1, 3);
        speaker_join(&speaker, 1);
        assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_DONE);
        speaker_frame(&speaker, 0, frame, record, bytes);
        assert_true(stranger_send(speaker.fd, bytes, cut, WAIT_MS));
        close(speaker.fd);
        job_end(&job);
        assert_said(&job, 0, WEFT_ERR_PEER, "rank 1", NULL);
        /* only the whole frame completes the start; then the rank is missed by the first call */
        assert_int_equal(strncmp(harness_result(job.harness, 0)->text, "after the start", 15) == 0,
                         cut == SEALED_LEN(frame.len));
        job_close(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_survives_a_cut_before_the_hello_is_whole),
        cmocka_unit_test(a_slow_way_is_only_slow),
        cmocka_unit_test(a_start_survives_a_cut_challenge),
        cmocka_unit_test(a_cut_answer_never_counts_as_a_start),
        cmocka_unit_test(a_cut_answer_in_a_deep_tree_never_counts_as_a_start),
        cmocka_unit_test(a_cut_list_of_members_never_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
