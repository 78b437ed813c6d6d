/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong secrets and missing ones: the offender gets ERR_AUTH, the root counts it and goes on; when
 * the offender was needed, the deadline's text says that somebody had a wrong secret.
 */
#include "start_job.h"

enum { GATE_OFFENDER = 1, GATE_RIGHT };

static void spoil_secret(struct weft_wire_id *facts)
{
    facts->secret[31] ^= 1;
}

static void take_secret_away(struct weft_wire_id *facts)
{
    facts->flags = 0;
    memset(facts->secret, 0, sizeof(facts->secret));
}

/* Both sides learn of it; the root reads what it was sent when it gets to it. */
static bool has_root_heard(void *arg)
{
    return count_in_log(arg, "ERR_AUTH") > 0;
}

static void check_offender(void (*change)(struct weft_wire_id *facts), bool is_direct,
                           const char *words)
{
    struct job job;
    struct weft_wire_id facts;
    struct actor actors[4] = {
        {.is_root = true, .rank = 0, .ranks = 3},
        {.rank = 1, .ranks = 3},
        {.rank = 2, .ranks = 3, .gate = GATE_OFFENDER, .slot = SLOT_OTHER, .is_direct = is_direct},
        {.rank = 2, .ranks = 3, .gate = GATE_RIGHT}};
    job_start(&job, actors, 4);
    facts = job.facts;
    change(&facts);
    give_id(&job, SLOT_OTHER, &facts);
    open_gate(&job, GATE_OFFENDER);
    assert_harness(job.harness, harness_wait_rank(job.harness, 2, WAIT_MS));
    assert_true(harness_wait_until(has_root_heard, &job, WAIT_MS));
    open_gate(&job, GATE_RIGHT);
    job_end(&job);
    assert_said(&job, 2, WEFT_ERR_AUTH, words, NULL);
    assert_actors_fine(&job, 0, 1, 3);
    job_close(&job);
}

static void a_rank_with_a_wrong_secret_is_refused_and_the_job_starts(void **state)
{
    (void)state;
    check_offender(spoil_secret, true, "secret is not the one of the job");
    check_offender(spoil_secret, false, "secret is not the one of the job");
}

static void a_rank_without_a_secret_is_refused_and_the_job_starts(void **state)
{
    (void)state;
    check_offender(take_secret_away, true, "this rank has none");
    check_offender(take_secret_away, false, "this rank has none");
}

static void a_wrong_secret_of_a_needed_rank_is_mentioned_at_the_deadline(void **state)
{
    struct job job;
    struct weft_wire_id facts;
    struct actor actors[3] = {
        {.is_root = true, .rank = 0, .ranks = 3, .start_timeout_ms = 600},
        {.rank = 1, .ranks = 3, .start_timeout_ms = 600},
        {.rank = 2, .ranks = 3, .gate = GATE_OFFENDER, .slot = SLOT_OTHER},
    };
    (void)state;
    job_start(&job, actors, 3);
    facts = job.facts;
    spoil_secret(&facts);
    give_id(&job, SLOT_OTHER, &facts);
    open_gate(&job, GATE_OFFENDER);
    job_end(&job);
    assert_said(&job, 2, WEFT_ERR_AUTH, NULL);
    for (int i = 0; i < 2; i++) {
        assert_said(&job, i, WEFT_ERR_TIMEOUT, "1 of 3 ranks did not join in time: 2",
                    "wrong secret", ROOT_ADDRESS ":", NULL);
    }
    job_close(&job);
}

/* Nothing is learned from an attempt: a thousand wrong proofs get the same answer. */
static void many_wrong_proofs_leave_the_root_unharmed(void **state)
{
    struct job job;
    struct weft_wire_id facts;
    struct actor actors[2] = {{.is_root = true, .rank = 0, .ranks = 2},
                              {.rank = 1, .ranks = 2, .gate = GATE_RIGHT, .is_direct = true}};
    (void)state;
    job_start(&job, actors, 2);
    facts = job.facts;
    for (int i = 0; i < 1000; i++) {
        struct speaker speaker;
        facts.secret[i % 32] ^= (uint8_t)(1 + i / 32);
        speaker_dial(&speaker, &job, &facts, 1, 2);
        speaker_join(&speaker, WEFT_WIRE_NO_RANK);
        assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_FAILED);
        assert_int_equal(speaker.shake.status, WEFT_ERR_AUTH);
        close(speaker.fd);
        facts.secret[i % 32] ^= (uint8_t)(1 + i / 32);
    }
    open_gate(&job, GATE_RIGHT);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    job_close(&job);
}

/* ---- the other way round: who answers the rank does not know the secret ---- */

static void a_false_root_is_not_joined(void **state)
{
    struct job job;
    struct actor actors[3] = {
        {.is_root = true, .rank = 0, .ranks = 2},
        {.rank = 1, .ranks = 2, .gate = GATE_OFFENDER, .slot = SLOT_OTHER, .is_direct = true},
        {.rank = 1, .ranks = 2, .gate = GATE_RIGHT}};
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN] = {7};
    struct weft_wire_accepted accepted = {.proof = {1, 2, 3}};
    struct speaker speaker;
    struct weft_wire_id facts;
    uint8_t hello[sizeof(struct weft_wire_hello) + WEFT_WIRE_PROOF_LEN];
    int fds[2];
    (void)state;
    job_start(&job, actors, 3);
    facts = job.facts;
    fds[0] = listen_somewhere(&facts.root.port);
    give_id(&job, SLOT_OTHER, &facts);
    open_gate(&job, GATE_OFFENDER);
    assert_true(harness_wait_until(has_guest, fds, WAIT_MS));
    /* it knows the job, as anybody can who has seen a challenge, and accepts everything */
    memset(&speaker, 0, sizeof(speaker));
    speaker.fd = fds[1];
    speaker.self = (struct weft_wire_self){
        .key = nonce, .is_authenticated = true, .rank = 0, .ranks = 2, .epoch = facts.epoch};
    memcpy(speaker.self.job, facts.job, sizeof(facts.job));
    weft_wire_server_open(&speaker.shake, &speaker.self, nonce);
    assert_true(speaker_say(&speaker));
    assert_int_equal(stranger_read(fds[1], hello, sizeof(hello), WAIT_MS), sizeof(hello));
    weft_wire_head_encode(WEFT_WIRE_VERSION, WEFT_WIRE_KIND_ACCEPT, 0, &accepted.head);
    assert_true(stranger_send(fds[1], &accepted, sizeof(accepted), WAIT_MS));
    assert_harness(job.harness, harness_wait_rank(job.harness, 1, WAIT_MS));
    assert_said(&job, 1, WEFT_ERR_AUTH, "the listener does not know the job's secret", NULL);
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
        cmocka_unit_test(a_rank_with_a_wrong_secret_is_refused_and_the_job_starts),
        cmocka_unit_test(a_rank_without_a_secret_is_refused_and_the_job_starts),
        cmocka_unit_test(a_wrong_secret_of_a_needed_rank_is_mentioned_at_the_deadline),
        cmocka_unit_test(many_wrong_proofs_leave_the_root_unharmed),
        cmocka_unit_test(a_false_root_is_not_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
