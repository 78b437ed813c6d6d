/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with a wrong idea of the job: the offender is told with both values, the others never
 * notice, and the job starts as soon as the right rank comes.
 */
#include "start_job.h"

/* actor 0: the root; 1: joins rightly; 2: the offender; 3: the right one, after the offender */
enum { GATE_RIGHT = 1, GATE_OFFENDER, GATE_LAST };

static void start_crew(struct job *job, struct actor actors[4])
{
    for (int i = 0; i < 4; i++) {
        actors[i].is_root = i == 0;
    }
    actors[1].gate = GATE_RIGHT;
    actors[2].gate = GATE_OFFENDER;
    actors[3].gate = GATE_LAST;
    job_start(job, actors, 4);
}

/* Lets the offender in, waits for what it returns, then lets the last one in. */
static void finish_crew(struct job *job)
{
    open_gate(job, GATE_OFFENDER);
    assert_harness(job->harness, harness_wait_rank(job->harness, 2, WAIT_MS));
    open_gate(job, GATE_RIGHT);
    open_gate(job, GATE_LAST);
    job_end(job);
    assert_actors_fine(job, 0, 1, 3);
}

static unsigned count_in(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* Does the root know rank 1 already? Asked by one with other settings, who is never taken: a taken
 * number is the reason it hears first. */
static bool is_rank_taken(void *arg)
{
    const struct job *job = arg;
    struct speaker speaker;
    bool is_taken;
    uint8_t payload[WEFT_WIRE_MEMBER_MAX];
    struct weft_wire_member member = {.rank = 1,
                                      .ranks = 3,
                                      .leader = WEFT_WIRE_NO_RANK,
                                      .timeout_ms = START_MS,
                                      .settings = "WEFT_TREE_DEGREE=7"};
    size_t len = weft_wire_member_encode(&member, payload, sizeof(payload));
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN];
    speaker_dial(&speaker, job, &job->facts, 1, 3);
    weft_wire_client_open(&speaker.shake, &speaker.self, nonce, WEFT_WIRE_JOIN, 0, payload, len);
    is_taken = speaker_listen(&speaker) == WEFT_WIRE_WANT_BYTES && speaker_say(&speaker) &&
               speaker_listen(&speaker) == WEFT_WIRE_FAILED &&
               speaker.shake.status == WEFT_ERR_DUPLICATE;
    close(speaker.fd);
    return is_taken;
}

/* address: how one of the two is called */
static void check_duplicate(bool is_direct, const char *address)
{
    struct job job;
    const char *said;
    char pids[2][32];
    struct actor actors[4] = {{.rank = 0, .ranks = 3},
                              {.rank = 1, .ranks = 3, .is_direct = is_direct},
                              {.rank = 1, .ranks = 3, .is_direct = is_direct},
                              {.rank = 2, .ranks = 3, .is_direct = is_direct}};
    start_crew(&job, actors);
    open_gate(&job, GATE_RIGHT);
    assert_true(harness_wait_until(is_rank_taken, &job, WAIT_MS));
    for (int i = 0; i < 2; i++) {
        snprintf(pids[i], sizeof(pids[i]), "pid %d ", (int)harness_pid(job.harness, 1 + i));
    }
    finish_crew(&job);
    assert_said(&job, 2, WEFT_ERR_DUPLICATE, "rank 1 is taken by", "came second", NULL);
    said = strstr(harness_result(job.harness, 2)->text, "is taken by");
    assert_int_equal(count_in(said, address), 2);
    if (!is_direct) {
        assert_said(&job, 2, WEFT_ERR_DUPLICATE, pids[0], pids[1], NULL);
    }
    job_close(&job);
}

static void a_second_rank_of_the_same_number_is_told_both_addresses(void **state)
{
    (void)state;
    check_duplicate(true, ROOT_ADDRESS ":");
}

static void a_second_rank_of_the_same_number_on_one_host_is_told_both_processes(void **state)
{
    (void)state;
    check_duplicate(false, "pid ");
}

static void a_second_root_rank_is_told_who_has_it(void **state)
{
    struct job job;
    struct actor actors[4] = {{.rank = 0, .ranks = 3},
                              {.rank = 1, .ranks = 3},
                              {.rank = 0, .ranks = 3, .is_direct = true},
                              {.rank = 2, .ranks = 3}};
    char pid[32];
    (void)state;
    start_crew(&job, actors);
    snprintf(pid, sizeof(pid), "pid %d ", (int)harness_pid(job.harness, 0));
    finish_crew(&job);
    assert_said(&job, 2, WEFT_ERR_DUPLICATE, "rank 0 is taken by", pid, ROOT_ADDRESS ":", NULL);
    job_close(&job);
}

static void a_rank_that_counts_other_ranks_is_told_both_counts(void **state)
{
    (void)state;
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        struct job job;
        struct actor actors[4] = {{.rank = 0, .ranks = 3},
                                  {.rank = 1, .ranks = 3},
                                  {.rank = 2, .ranks = 5, .is_direct = is_direct != 0},
                                  {.rank = 2, .ranks = 3}};
        start_crew(&job, actors);
        finish_crew(&job);
        assert_said(&job, 2, WEFT_ERR_MISMATCH, "rank 2", "5 ranks", "rank 0", "says 3", NULL);
        job_close(&job);
    }
}

static void a_rank_not_below_the_number_of_ranks_is_told_at_once(void **state)
{
    struct job job;
    struct actor actors[4] = {{.rank = 0, .ranks = 3},
                              {.rank = 1, .ranks = 3},
                              {.rank = 3, .ranks = 3},
                              {.rank = 2, .ranks = 3}};
    (void)state;
    start_crew(&job, actors);
    finish_crew(&job);
    assert_said(&job, 2, WEFT_ERR_INVALID, "rank 3 of 3", NULL);
    job_close(&job);
}

/* The API does not let such a rank out; one that has the secret and its own program may say it. */
static void a_rank_out_of_range_on_the_wire_is_refused_with_both_numbers(void **state)
{
    static const uint32_t ranks[] = {3, 4, UINT32_MAX - 1, UINT32_MAX};
    struct job job;
    struct actor actors[2] = {{.is_root = true, .rank = 0, .ranks = 2},
                              {.rank = 1, .ranks = 2, .gate = GATE_RIGHT}};
    (void)state;
    job_start(&job, actors, 2);
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        struct speaker speaker;
        char number[32];
        speaker_dial(&speaker, &job, &job.facts, ranks[i], 2);
        speaker_join(&speaker, WEFT_WIRE_NO_RANK);
        assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_FAILED);
        assert_int_equal(speaker.shake.status, WEFT_ERR_INVALID);
        snprintf(number, sizeof(number), "rank %u ", ranks[i]);
        assert_non_null(strstr(speaker.shake.reason, number));
        assert_non_null(strstr(speaker.shake.reason, "the number of ranks, 2"));
        close(speaker.fd);
    }
    open_gate(&job, GATE_RIGHT);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    job_close(&job);
}

static void crossed_jobs_are_told_apart_and_both_start(void **state)
{
    struct job first, second;
    struct actor firsts[3] = {
        {.is_root = true, .rank = 0, .ranks = 2},
        {.rank = 1, .ranks = 2, .gate = GATE_OFFENDER, .slot = SLOT_OTHER, .is_direct = true},
        {.rank = 1, .ranks = 2, .gate = GATE_LAST}};
    struct actor seconds[2] = {{.is_root = true, .rank = 0, .ranks = 2},
                               {.rank = 1, .ranks = 2, .gate = GATE_LAST, .is_direct = true}};
    char port[32];
    (void)state;
    job_start(&second, seconds, 2);
    job_start(&first, firsts, 3);
    struct weft_wire_id crossed = first.facts;
    crossed.root = second.facts.root;
    give_id(&first, SLOT_OTHER, &crossed);
    open_gate(&first, GATE_OFFENDER);
    assert_harness(first.harness, harness_wait_rank(first.harness, 1, WAIT_MS));
    open_gate(&first, GATE_LAST);
    open_gate(&second, GATE_LAST);
    job_end(&first);
    job_end(&second);
    snprintf(port, sizeof(port), ROOT_ADDRESS ":%u", second.port);
    assert_said(&first, 1, WEFT_ERR_MISMATCH, port, "another job", NULL);
    assert_actors_fine(&first, 0, 2);
    assert_actors_fine(&second, 0, 1);
    job_close(&first);
    job_close(&second);
}

static void a_rank_of_another_start_of_the_job_is_told_both_epochs(void **state)
{
    struct job job;
    struct actor actors[4] = {{.rank = 0, .ranks = 3},
                              {.rank = 1, .ranks = 3},
                              {.rank = 2, .ranks = 3, .slot = SLOT_OTHER, .is_direct = true},
                              {.rank = 2, .ranks = 3}};
    (void)state;
    start_crew(&job, actors);
    struct weft_wire_id other = job.facts;
    other.epoch = 41;
    give_id(&job, SLOT_OTHER, &other);
    finish_crew(&job);
    assert_said(&job, 2, WEFT_ERR_MISMATCH, "epoch 0", "epoch 41", NULL);
    job_close(&job);
}

static void a_setting_of_one_rank_alone_is_named_with_both_ranks(void **state)
{
    (void)state;
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        struct job job;
        struct actor actors[4] = {{.rank = 0, .ranks = 3},
                                  {.rank = 1, .ranks = 3},
                                  {.rank = 2,
                                   .ranks = 3,
                                   .setting = "WEFT_HEARTBEAT",
                                   .value = "100ms",
                                   .is_direct = is_direct != 0},
                                  {.rank = 2, .ranks = 3}};
        start_crew(&job, actors);
        finish_crew(&job);
        assert_said(&job, 2, WEFT_ERR_MISMATCH, "WEFT_HEARTBEAT is 100ms on rank 2", "on rank 0",
                    NULL);
        assert_true(count_in_log(&job, "refused: settings differ") > 0);
        job_close(&job);
    }
}

static void settings_that_differ_are_named_with_both_values(void **state)
{
    struct job job;
    struct actor actors[4] = {
        {.rank = 0, .ranks = 3, .setting = "WEFT_HEARTBEAT", .value = "200ms"},
        {.rank = 1, .ranks = 3, .setting = "WEFT_HEARTBEAT", .value = "200ms"},
        {.rank = 2, .ranks = 3, .setting = "WEFT_HEARTBEAT", .value = "100ms"},
        {.rank = 2, .ranks = 3, .setting = "WEFT_HEARTBEAT", .value = "200ms"}};
    (void)state;
    start_crew(&job, actors);
    finish_crew(&job);
    assert_said(&job, 2, WEFT_ERR_MISMATCH, "WEFT_HEARTBEAT is 100ms on rank 2", "200ms on rank 0",
                NULL);
    job_close(&job);
}

/* Nobody sends what another rank protects. */
static void a_rank_with_another_security_level_is_named(void **state)
{
    struct job job;
    struct actor actors[4] = {
        {.rank = 0, .ranks = 3, .setting = "WEFT_SECURITY", .value = "encrypt"},
        {.rank = 1, .ranks = 3, .setting = "WEFT_SECURITY", .value = "encrypt"},
        {.rank = 2, .ranks = 3},
        {.rank = 2, .ranks = 3, .setting = "WEFT_SECURITY", .value = "encrypt"}};
    (void)state;
    start_crew(&job, actors);
    finish_crew(&job);
    assert_said(&job, 2, WEFT_ERR_MISMATCH, "WEFT_SECURITY is the default on rank 2",
                "encrypt on rank 0", NULL);
    job_close(&job);
}

/* Where the root may be on one of several ports, who looks for it may find another rank of the job there: one that has started
 * already, while its own answer from the root is on its way. A word of that one would end its start. */
static void a_rank_that_is_not_the_root_says_nothing_to_who_looks_for_it(void **state)
{
    struct job job, there;
    struct speaker speaker;
    uint16_t port;
    char range[16];
    struct actor actors[2] = {{.is_root = true, .ranks = 2, .leaves = GATE_LAST},
                              {.rank = 1, .ranks = 2, .leaves = GATE_LAST, .is_direct = true}};
    (void)state;
    close(listen_somewhere(&port));
    snprintf(range, sizeof(range), "%u-%u", port, port);
    actors[1].setting = "WEFT_PORT_RANGE";
    actors[1].value = range;
    job_start(&job, actors, 2);
    assert_true(harness_wait_reach(&harness_shared(job.harness)->word[WORD_BARRIERS], 2, WAIT_MS));
    there = job;
    there.port = port;
    speaker_dial(&speaker, &there, &job.facts, 1, 2);
    speaker_join(&speaker, WEFT_WIRE_NO_RANK);
    assert_int_equal(speaker_listen(&speaker), WEFT_WIRE_WANT_BYTES); /* it heard no refusal … */
    assert_true(stranger_is_closed(speaker.fd, WAIT_MS));             /* … but the end */
    close(speaker.fd);
    open_gate(&job, GATE_LAST);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_rank_of_the_same_number_is_told_both_addresses),
        cmocka_unit_test(a_second_rank_of_the_same_number_on_one_host_is_told_both_processes),
        cmocka_unit_test(a_second_root_rank_is_told_who_has_it),
        cmocka_unit_test(a_rank_that_counts_other_ranks_is_told_both_counts),
        cmocka_unit_test(a_rank_not_below_the_number_of_ranks_is_told_at_once),
        cmocka_unit_test(a_rank_out_of_range_on_the_wire_is_refused_with_both_numbers),
        cmocka_unit_test(crossed_jobs_are_told_apart_and_both_start),
        cmocka_unit_test(a_rank_of_another_start_of_the_job_is_told_both_epochs),
        cmocka_unit_test(a_setting_of_one_rank_alone_is_named_with_both_ranks),
        cmocka_unit_test(settings_that_differ_are_named_with_both_values),
        cmocka_unit_test(a_rank_with_another_security_level_is_named),
        cmocka_unit_test(a_rank_that_is_not_the_root_says_nothing_to_who_looks_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
