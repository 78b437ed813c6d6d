/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thousand connections that never say a word, on the root's port or on its local socket: at most
 * 64 are kept, the oldest go at once, and real ranks join hardly later than in calm. The
 * handshake's own timeout is a minute here, so that it explains nothing.
 */
#include "start_job.h"

#include <errno.h>
#include <sys/resource.h>

#define STRANGERS 1000
#define KEPT_MAX 64
#define RANKS 4
#define DELAY_MAX_MS 1000

enum { GATE_ROOT = 1, GATE_RANKS };

struct crowd {
    int fds[STRANGERS];
    int count;
};

static void crowd_add(struct crowd *crowd, const struct job *job, bool is_local, int count)
{
    for (int i = 0; i < count; i++) {
        int fd = is_local ? stranger_connect_unix(job->local_name, WAIT_MS)
                          : stranger_connect(ROOT_ADDRESS, job->port, WAIT_MS);
        assert_true(fd >= 0);
        crowd->fds[crowd->count++] = fd;
    }
}

static void crowd_close(struct crowd *crowd)
{
    for (int i = 0; i < crowd->count; i++) {
        if (crowd->fds[i] >= 0) {
            close(crowd->fds[i]);
        }
    }
    crowd->count = 0;
}

static bool is_open(int fd)
{
    uint8_t sink[256];
    ssize_t got;
    do {
        got = recv(fd, sink, sizeof(sink), MSG_DONTWAIT);
    } while (got > 0);
    return got < 0 && errno == EAGAIN;
}

/* How many are still connected; forgets the others. */
static int crowd_left(struct crowd *crowd)
{
    int left = 0;
    for (int i = 0; i < crowd->count; i++) {
        if (crowd->fds[i] >= 0 && !is_open(crowd->fds[i])) {
            close(crowd->fds[i]);
            crowd->fds[i] = -1;
        }
        left += crowd->fds[i] >= 0;
    }
    return left;
}

static bool is_crowd_thinned(void *arg)
{
    return crowd_left(arg) <= KEPT_MAX;
}

static void start_ranks(struct job *job, struct actor actors[RANKS], bool is_local)
{
    for (int rank = 0; rank < RANKS; rank++) {
        actors[rank] = (struct actor){.is_root = rank == 0,
                                      .rank = rank,
                                      .ranks = RANKS,
                                      .gate = rank == 0 ? GATE_ROOT : GATE_RANKS,
                                      .is_direct = !is_local};
    }
    job_start(job, actors, RANKS);
}

/* From here until all ranks are in. */
static double time_start_ms(struct job *job)
{
    uint64_t begin_ns = harness_now_ns();
    open_gate(job, GATE_ROOT);
    open_gate(job, GATE_RANKS);
    job_wait_created(job, RANKS);
    return ms_since(begin_ns);
}

static void end_job(struct job *job)
{
    job_end(job);
    assert_actors_fine(job, 0, 1, 2, 3);
    job_close(job);
}

static double calm_ms(bool is_local)
{
    struct job job;
    struct actor actors[RANKS];
    double took_ms;
    start_ranks(&job, actors, is_local);
    took_ms = time_start_ms(&job);
    end_job(&job);
    return took_ms;
}

static void assert_little_later(double took_ms, bool is_local)
{
    double calm = calm_ms(is_local);
    if (took_ms > calm + DELAY_MAX_MS) {
        fail_msg("the start took %.1f ms, in calm %.1f ms", took_ms, calm);
    }
}

/* They wait in the listener's queue when the root begins to serve. */
static void check_strangers_first(bool is_local)
{
    struct job job;
    struct actor actors[RANKS];
    struct crowd crowd = {.count = 0};
    double took_ms;
    start_ranks(&job, actors, is_local);
    crowd_add(&crowd, &job, is_local, STRANGERS);
    took_ms = time_start_ms(&job);
    crowd_close(&crowd);
    end_job(&job);
    assert_little_later(took_ms, is_local);
}

static void strangers_that_came_first_do_not_keep_ranks_out(void **state)
{
    (void)state;
    check_strangers_first(false);
}

static void local_strangers_that_came_first_do_not_keep_ranks_out(void **state)
{
    (void)state;
    check_strangers_first(true);
}

/* All places are taken by those who stayed when the ranks come. */
static void check_full_house(bool is_local)
{
    struct job job;
    struct actor actors[RANKS];
    struct crowd crowd = {.count = 0};
    double took_ms;
    start_ranks(&job, actors, is_local);
    open_gate(&job, GATE_ROOT);
    crowd_add(&crowd, &job, is_local, STRANGERS);
    assert_true(harness_wait_until(is_crowd_thinned, &crowd, 5000));
    took_ms = time_start_ms(&job);
    crowd_close(&crowd);
    end_job(&job);
    assert_little_later(took_ms, is_local);
}

static void ranks_join_a_root_that_is_full_of_strangers(void **state)
{
    (void)state;
    check_full_house(false);
}

static void ranks_join_a_root_that_is_full_of_local_strangers(void **state)
{
    (void)state;
    check_full_house(true);
}

static void ranks_join_while_strangers_pour_in(void **state)
{
    struct job job;
    struct actor actors[RANKS];
    struct crowd crowd = {.count = 0};
    uint64_t begin_ns;
    double took_ms;
    (void)state;
    start_ranks(&job, actors, false);
    open_gate(&job, GATE_ROOT);
    crowd_add(&crowd, &job, false, STRANGERS / 4);
    begin_ns = harness_now_ns();
    open_gate(&job, GATE_RANKS);
    /* until the ranks are in, then the port is closed */
    while (crowd.count < STRANGERS) {
        int fd = stranger_connect(ROOT_ADDRESS, job.port, WAIT_MS);
        if (fd < 0) {
            break;
        }
        crowd.fds[crowd.count++] = fd;
    }
    job_wait_created(&job, RANKS);
    took_ms = ms_since(begin_ns);
    crowd_close(&crowd);
    end_job(&job);
    assert_little_later(took_ms, false);
}

/* A stranger that talks is closed: the root serves. */
static void wait_served(const struct job *job, bool is_local)
{
    int fd = is_local ? stranger_connect_unix(job->local_name, WAIT_MS)
                      : stranger_connect(ROOT_ADDRESS, job->port, WAIT_MS);
    assert_true(fd >= 0 && stranger_send(fd, "?", 1, WAIT_MS));
    assert_true(stranger_is_closed(fd, WAIT_MS));
    close(fd);
}

static void check_kept(bool is_local)
{
    struct job job;
    struct actor actors[RANKS];
    struct crowd crowd = {.count = 0};
    unsigned before, most = 0;
    uint64_t deadline_ns;
    pid_t root;
    start_ranks(&job, actors, is_local);
    root = harness_pid(job.harness, 0);
    open_gate(&job, GATE_ROOT);
    wait_served(&job, is_local);
    before = fds_of(root);
    deadline_ns = harness_now_ns() + WAIT_MS * UINT64_C(1000000);
    while (crowd.count < STRANGERS || crowd_left(&crowd) > KEPT_MAX) {
        unsigned now;
        crowd_add(&crowd, &job, is_local, crowd.count < STRANGERS ? 25 : 0);
        now = fds_of(root);
        most = now > most ? now : most;
        assert_true(harness_now_ns() < deadline_ns);
    }
    if (most > before + KEPT_MAX) {
        fail_msg("the root held %u strangers at once", most - before);
    }
    /* and not by turning everybody away: those who came last are still looked at */
    assert_in_range(crowd_left(&crowd), 1, KEPT_MAX);
    time_start_ms(&job);
    crowd_close(&crowd);
    end_job(&job);
}

static void at_most_64_silent_connections_are_kept(void **state)
{
    (void)state;
    check_kept(false);
}

static void at_most_64_silent_local_connections_are_kept(void **state)
{
    (void)state;
    check_kept(true);
}

/* Without a crowd, too, silence has its time. */
static void a_silent_connection_is_closed_when_its_handshake_takes_too_long(void **state)
{
    struct job job;
    struct actor actors[2] = {{.is_root = true, .rank = 0, .ranks = 2, .handshake_timeout_ms = 100},
                              {.rank = 1, .ranks = 2, .gate = GATE_RANKS}};
    uint64_t begin_ns;
    int fd;
    (void)state;
    job_start(&job, actors, 2);
    begin_ns = harness_now_ns();
    fd = stranger_connect(ROOT_ADDRESS, job.port, WAIT_MS);
    assert_true(fd >= 0 && stranger_send(fd, "WEF", 3, WAIT_MS));
    assert_true(stranger_is_closed(fd, WAIT_MS));
    assert_true(ms_since(begin_ns) > 50 && ms_since(begin_ns) < 2000);
    close(fd);
    open_gate(&job, GATE_RANKS);
    job_end(&job);
    assert_actors_fine(&job, 0, 1);
    job_close(&job);
}

static int raise_limit(void **state)
{
    struct rlimit limit;
    (void)state;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_max >= STRANGERS + 200 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_that_came_first_do_not_keep_ranks_out),
        cmocka_unit_test(local_strangers_that_came_first_do_not_keep_ranks_out),
        cmocka_unit_test(ranks_join_a_root_that_is_full_of_strangers),
        cmocka_unit_test(ranks_join_a_root_that_is_full_of_local_strangers),
        cmocka_unit_test(ranks_join_while_strangers_pour_in),
        cmocka_unit_test(at_most_64_silent_connections_are_kept),
        cmocka_unit_test(at_most_64_silent_local_connections_are_kept),
        cmocka_unit_test(a_silent_connection_is_closed_when_its_handshake_takes_too_long),
    };
    return cmocka_run_group_tests(tests, raise_limit, NULL);
}
