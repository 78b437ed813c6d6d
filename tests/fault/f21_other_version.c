/* SPDX-License-Identifier: Apache-2.0 */
/* Another version of the protocol, calling or answering: both sides learn both versions. */
#include "start_job.h"

enum { GATE_OFFENDER = 1, GATE_RIGHT };

#define OTHER_VERSION (WEFT_WIRE_VERSION + 1)

static void make_head(struct weft_wire_head *head, uint16_t version, uint8_t kind)
{
    weft_wire_head_encode(version, kind, 1, head);
}

/* A caller of the next version: whatever it sends after the eight bytes that never change. */
static void call_with_other_version(const struct job *job, size_t tail_len)
{
    struct speaker speaker;
    uint8_t hello[sizeof(struct weft_wire_head) + 512] = {0};
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN];
    speaker_dial(&speaker, job, &job->facts, 1, 2);
    weft_wire_client_open(&speaker.shake, &speaker.self, nonce, WEFT_WIRE_JOIN, 0, NULL, 0);
    assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_WANT_BYTES);
    make_head((struct weft_wire_head *)hello, OTHER_VERSION, WEFT_WIRE_KIND_HELLO);
    assert_true(
        stranger_send(speaker.fd, hello, sizeof(struct weft_wire_head) + tail_len, WAIT_MS));
    speaker.shake.out_len = 0;
    assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_FAILED);
    assert_int_equal(speaker.shake.status, WEFT_ERR_VERSION);
    assert_non_null(strstr(speaker.shake.reason, "the listener speaks version 1"));
    assert_non_null(strstr(speaker.shake.reason, "this rank version 2"));
    assert_true(stranger_is_closed(speaker.fd, WAIT_MS));
    close(speaker.fd);
}

static void a_caller_of_another_version_is_told_both_and_the_job_starts(void **state)
{
    static const size_t tails[] = {0, 1, 96, 512};
    struct job job;
    struct actor actors[2] = {{.is_root = true, .rank = 0, .ranks = 2},
                              {.rank = 1, .ranks = 2, .gate = GATE_RIGHT}};
    (void)state;
    job_start(&job, actors, 2);
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        call_with_other_version(&job, tails[i]);
    }
    open_gate(&job, GATE_RIGHT);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    assert_true(count_in_log(&job, "ERR_VERSION") > 0);
    assert_true(count_in_log(&job, "the other side speaks version 2, this side version 1") > 0);
    job_close(&job);
}

/* A root of the next version, with a longer challenge than ours: the rank gives up with both
 * versions in its words, and answers eight bytes, from which that root can tell ours. */
static void a_root_of_another_version_is_named_with_both(void **state)
{
    struct job job;
    struct actor actors[3] = {
        {.is_root = true, .rank = 0, .ranks = 2},
        {.rank = 1, .ranks = 2, .gate = GATE_OFFENDER, .slot = SLOT_OTHER, .is_direct = true},
        {.rank = 1, .ranks = 2, .gate = GATE_RIGHT}};
    struct weft_wire_id facts;
    uint8_t challenge[200] = {0};
    struct weft_wire_head answer;
    char port[32];
    int fds[2];
    (void)state;
    job_start(&job, actors, 3);
    facts = job.facts;
    fds[0] = listen_somewhere(&facts.root.port);
    give_id(&job, SLOT_OTHER, &facts);
    open_gate(&job, GATE_OFFENDER);
    assert_true(harness_wait_until(has_guest, fds, WAIT_MS));
    make_head((struct weft_wire_head *)challenge, OTHER_VERSION, WEFT_WIRE_KIND_CHALLENGE);
    assert_true(stranger_send(fds[1], challenge, sizeof(challenge), WAIT_MS));
    assert_int_equal(stranger_read(fds[1], &answer, sizeof(answer), WAIT_MS), sizeof(answer));
    assert_memory_equal(answer.magic, WEFT_WIRE_MAGIC, sizeof(answer.magic));
    assert_int_equal(get_u16(answer.version), WEFT_WIRE_VERSION);
    assert_true(stranger_is_closed(fds[1], WAIT_MS));
    assert_harness(job.harness, harness_wait_rank(job.harness, 1, WAIT_MS));
    snprintf(port, sizeof(port), ROOT_ADDRESS ":%u", facts.root.port);
    assert_said(&job, 1, WEFT_ERR_VERSION, port, "version 2", "version 1", NULL);
    close(fds[0]);
    close(fds[1]);
    open_gate(&job, GATE_RIGHT);
    job_end(&job);
    assert_actors_fine(&job, 0, 2);
    job_close(&job);
}

static void an_id_of_another_version_is_refused_before_anything_is_sent(void **state)
{
    struct job job;
    struct actor actors[3] = {{.is_root = true, .rank = 0, .ranks = 2},
                              {.rank = 1, .ranks = 2, .gate = GATE_OFFENDER, .slot = SLOT_OTHER},
                              {.rank = 1, .ranks = 2, .gate = GATE_RIGHT}};
    weft_id_t *other;
    (void)state;
    job_start(&job, actors, 3);
    other = shared_id(harness_shared(job.harness), SLOT_OTHER);
    *other = job.id;
    other->bytes[4]++; /* the version follows the magic */
    open_gate(&job, GATE_OFFENDER);
    assert_harness(job.harness, harness_wait_rank(job.harness, 1, WAIT_MS));
    assert_said(&job, 1, WEFT_ERR_VERSION, "version 2", NULL);
    open_gate(&job, GATE_RIGHT);
    job_end(&job);
    assert_actors_fine(&job, 0, 2);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_of_another_version_is_told_both_and_the_job_starts),
        cmocka_unit_test(a_root_of_another_version_is_named_with_both),
        cmocka_unit_test(an_id_of_another_version_is_refused_before_anything_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
