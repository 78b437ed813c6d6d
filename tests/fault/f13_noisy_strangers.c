/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers that talk: port scanners, browsers, TLS clients, noise, and connections that are closed
 * or reset at once, on the root's port and on its local socket. They are closed with the first byte
 * that no rank sends, get no answer, fill no log, and the job starts.
 */
#include "start_job.h"

#include "fault/strangers.h"

#include <errno.h>

#define STRANGERS 10000
#define TRIES 60

enum { GATE_RANKS = 1, GATE_LAST, GATE_LEAVE };

static int connect_to_root(const struct job *job, bool is_local)
{
    int fd = is_local ? stranger_connect_unix(job->local_name, WAIT_MS)
                      : stranger_connect(ROOT_ADDRESS, job->port, WAIT_MS);
    return fd;
}

/* How long after its first byte is such a stranger closed? Nothing but the challenge may have come.
 */
static double time_closing_ms(const struct job *job, bool is_local, size_t speech)
{
    uint8_t heard[WEFT_WIRE_CHALLENGE_LEN];
    size_t greeting_len = is_local ? 0 : sizeof(heard); /* on a local socket the caller begins */
    size_t len;
    uint64_t begin_ns;
    double took_ms;
    int fd = connect_to_root(job, is_local);
    assert_true(fd >= 0);
    len = stranger_read(fd, heard, greeting_len, WAIT_MS);
    assert_int_equal(len, greeting_len);
    begin_ns = harness_now_ns();
    assert_true(stranger_send(fd, strangers_speeches[speech].bytes, strangers_speeches[speech].len,
                              WAIT_MS));
    len = stranger_read(fd, heard, 1, WAIT_MS);
    took_ms = ms_since(begin_ns);
    assert_int_equal(len, 0); /* no answer */
    assert_true(stranger_is_closed(fd, 0));
    close(fd);
    return took_ms;
}

static void check_closed_at_once(bool is_local)
{
    struct job job;
    struct actor actors[2] = {{.is_root = true, .rank = 0, .ranks = 2},
                              {.rank = 1, .ranks = 2, .gate = GATE_RANKS, .is_direct = !is_local}};
    double took_ms[TRIES];
    job_start(&job, actors, 2);
    for (size_t i = 0; i < TRIES; i++) {
        took_ms[i] = time_closing_ms(&job, is_local, i % STRANGERS_SPEECHES);
    }
    open_gate(&job, GATE_RANKS);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    job_close(&job);
    qsort(took_ms, TRIES, sizeof(took_ms[0]), strangers_by_size);
    /* the promise is 10 ms; single ones may have waited for a CPU */
    if (took_ms[TRIES / 2] > 10 || took_ms[TRIES - 1] > 1000) {
        fail_msg("closed after %.1f ms (median), %.1f ms (worst)", took_ms[TRIES / 2],
                 took_ms[TRIES - 1]);
    }
}

static void a_stranger_is_closed_with_its_first_bad_byte(void **state)
{
    (void)state;
    check_closed_at_once(false);
}

static void a_local_stranger_is_closed_with_its_first_bad_byte(void **state)
{
    (void)state;
    check_closed_at_once(true);
}

/* false: the port is closed. */
static bool visit(const struct job *job, bool is_local, unsigned number)
{
    int fd = connect_to_root(job, is_local);
    if (fd < 0) {
        return false;
    }
    assert_true(strangers_misbehave(fd, number));
    return true;
}

static void check_crowd(bool is_local, unsigned strangers)
{
    struct job job;
    struct actor actors[4];
    uint64_t begin_ns;
    for (int rank = 0; rank < 4; rank++) {
        actors[rank] = (struct actor){.is_root = rank == 0,
                                      .rank = rank,
                                      .ranks = 4,
                                      /* the last rank lets the door stay open until the end */
                                      .gate = rank == 0   ? 0
                                              : rank == 3 ? GATE_LAST
                                                          : GATE_RANKS,
                                      .is_direct = !is_local};
    }
    job_start(&job, actors, 4);
    begin_ns = harness_now_ns();
    for (unsigned i = 0; i < strangers; i++) {
        if (i == strangers / 2) {
            open_gate(&job, GATE_RANKS);
        }
        assert_true(visit(&job, is_local, i));
    }
    open_gate(&job, GATE_LAST);
    job_end(&job);
    assert_actors_fine(&job, 0, 1, 2, 3);
    /* one warning of a kind per second at most, with how many it speaks for */
    static const char *const kinds[] = {": ERR_PROTOCOL: ", ": ERR_PEER: ", ": ERR_TIMEOUT: "};
    unsigned warnings = count_in_log(&job, "closed a connection from");
    unsigned most = (unsigned)(ms_since(begin_ns) / 1000) + 2;
    assert_true(warnings > 0);
    for (size_t i = 0; i < WEFT_COUNT_OF(kinds); i++) {
        unsigned of_kind = count_in_log(&job, kinds[i]);
        assert_in_range(of_kind, 0, most);
        warnings -= of_kind;
    }
    assert_int_equal(warnings, 0); /* there are no others */
    job_close(&job);
}

static void ten_thousand_strangers_do_not_disturb_a_start(void **state)
{
    (void)state;
    check_crowd(false, STRANGERS);
}

static void local_strangers_do_not_disturb_a_start(void **state)
{
    (void)state;
    check_crowd(true, STRANGERS / 5);
}

/* Only with --long: ten thousand again, over a hundred starts. */
static bool is_long;

static void a_hundred_starts_are_not_disturbed(void **state)
{
    (void)state;
    if (!is_long) {
        skip();
    }
    for (int i = 0; i < 100; i++) {
        check_crowd(i % 4 == 3, STRANGERS / 100);
    }
}

/* After the start nobody listens any more: there is no port to disturb. */
static void strangers_find_no_open_door_during_work(void **state)
{
    struct job job;
    struct actor actors[2] = {{.is_root = true, .rank = 0, .ranks = 2, .leaves = GATE_LEAVE},
                              {.rank = 1, .ranks = 2, .leaves = GATE_LEAVE}};
    (void)state;
    job_start(&job, actors, 2);
    assert_harness(job.harness,
                   harness_wait_for(&harness_shared(job.harness)->word[WORD_BARRIERS], 2, WAIT_MS));
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(stranger_connect(ROOT_ADDRESS, job.port, WAIT_MS), -1);
        assert_int_equal(errno, ECONNREFUSED);
        assert_int_equal(stranger_connect_unix(job.local_name, WAIT_MS), -1);
        assert_int_equal(errno, ECONNREFUSED);
    }
    open_gate(&job, GATE_LEAVE);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    job_close(&job);
}

/* Those who were let in but had proved nothing when the start ended are gone with it. */
static void strangers_that_were_waiting_are_closed_when_the_job_has_started(void **state)
{
    struct job job;
    struct actor actors[2] = {{.is_root = true, .rank = 0, .ranks = 2, .leaves = GATE_LEAVE},
                              {.rank = 1, .ranks = 2, .gate = GATE_RANKS, .leaves = GATE_LEAVE}};
    int fds[8];
    (void)state;
    job_start(&job, actors, 2);
    for (int i = 0; i < 8; i++) {
        uint8_t challenge[WEFT_WIRE_CHALLENGE_LEN];
        fds[i] = connect_to_root(&job, i % 2 == 0);
        assert_true(fds[i] >= 0 && stranger_send(fds[i], "WEFT", (size_t)i / 2, WAIT_MS));
        assert_true(i % 2 == 0 || stranger_read(fds[i], challenge, sizeof(challenge), WAIT_MS) ==
                                      sizeof(challenge));
    }
    open_gate(&job, GATE_RANKS);
    job_wait_created(&job, 2);
    for (int i = 0; i < 8; i++) {
        assert_true(stranger_is_closed(fds[i], 2000));
        close(fds[i]);
    }
    open_gate(&job, GATE_LEAVE);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    job_close(&job);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_is_closed_with_its_first_bad_byte),
        cmocka_unit_test(a_local_stranger_is_closed_with_its_first_bad_byte),
        cmocka_unit_test(ten_thousand_strangers_do_not_disturb_a_start),
        cmocka_unit_test(local_strangers_do_not_disturb_a_start),
        cmocka_unit_test(a_hundred_starts_are_not_disturbed),
        cmocka_unit_test(strangers_find_no_open_door_during_work),
        cmocka_unit_test(strangers_that_were_waiting_are_closed_when_the_job_has_started),
    };
    is_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
