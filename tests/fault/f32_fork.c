/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User code forks and executes other programs (a DataLoader's workers): the child finds our
 * descriptors closed and its handles dead, may start a job of its own, and never hides its parent's
 * death from the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/internal.h"
#include "fault/job.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define CHILD_S 20 /* no child outlives this */

/* ---- the background thread, held inside a poll round ---- */

int __real_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms);
int __wrap_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms);

enum { HOLD_NO, HOLD_WANTED, HOLD_HELD };
static _Atomic uint32_t hold;

int __wrap_epoll_wait(int epfd, struct epoll_event *events, int room, int timeout_ms)
{
    uint32_t wanted = HOLD_WANTED;
    /* a round of an engine; the thread's own sleep asks for fewer events */
    if (room == WEFT_ENGINE_BATCH && timeout_ms == 0 && gettid() != getpid() &&
        atomic_compare_exchange_strong(&hold, &wanted, HOLD_HELD)) {
        harness_wait_for(&hold, HOLD_NO, 5000);
    }
    return __real_epoll_wait(epfd, events, room, timeout_ms);
}

/* ---- children ---- */

/* Without the handlers that fork() runs, as vfork-like libraries do. */
static pid_t fork_behind_our_back(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

/* 0: what the child checked holds. */
static int wait_child(pid_t child)
{
    int wait_status = 0;
    if (child < 0 || waitpid(child, &wait_status, 0) != child) {
        return -1;
    }
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1000 + WTERMSIG(wait_status);
}

/* Until the test closes its end of the pipe, or is gone. */
static _Noreturn void sleep_in_child(int pipe_fd)
{
    char byte;
    alarm(CHILD_S);
    while (read(pipe_fd, &byte, 1) > 0) {
    }
    _exit(0);
}

/* ---- what the child finds ---- */

/* Number of the claim that does not hold; 0: all hold. */
static int check_handles(weft_comm_t comm, unsigned fds_before)
{
    int a, b;
    weft_comm_t part;
    if (harness_count_fds() != fds_before) {
        return 1;
    }
    const weft_status_t statuses[] = {
        weft_comm_rank(comm, &a),
        weft_comm_ranks(comm, &a),
        weft_comm_local(comm, &a, &b),
        weft_comm_status(comm),
        weft_comm_split(comm, 0, 0, &part),
        weft_control_barrier(comm),
        weft_control_allgather(comm, &a, 0, &b),
        weft_control_broadcast(comm, &a, sizeof(a), 0),
        weft_control_send(comm, 0, 0, &a, sizeof(a)),
        weft_control_recv(comm, 0, 0, &a, sizeof(a), NULL),
        weft_abort(comm, "from the child"),
        weft_comm_close(comm),
    };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        if (statuses[i] != WEFT_ERR_FORKED) {
            return 2 + (int)i;
        }
    }
    return 0;
}

static int child_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 5000);
    unsigned fds_before = harness_count_fds();
    int claim = 0;
    weft_comm_t comm;
    setenv("WEFT_JOIN", arg, 1);
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_S);
        _exit(check_handles(comm, fds_before));
    }
    claim = wait_child(child);
    if (claim != 0) {
        return harness_say(shared, rank, -1, "claim %d does not hold in the child", claim);
    }
    /* the parent is unharmed */
    weft_status_t status = weft_control_barrier(comm);
    status = status == WEFT_OK ? weft_comm_status(comm) : status;
    weft_comm_close(comm);
    return (int)status;
}

static void a_forked_child_finds_our_descriptors_closed_and_its_handles_dead(void **state)
{
    static const char *const joins[] = {"auto", "direct"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct harness *harness = harness_start(2, child_body, (void *)joins[i]);
        assert_harness(harness, harness_wait(harness, 10000));
        assert_harness(harness, harness_check_status(harness, 0));
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

/* ---- a child that outlives its rank ---- */

struct orphan_plan {
    const char *join;
    bool is_behind_our_back;
    const char *heartbeat;
    bool is_watched; /* dies only when the root watches its process */
    int pipe_fds[2];
};

static int orphan_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct orphan_plan *plan = arg;
    weft_config_t config = job_config(5000, 10000);
    weft_comm_t comm;
    close(plan->pipe_fds[1]);
    setenv("WEFT_JOIN", plan->join, 1);
    setenv("WEFT_HEARTBEAT", plan->heartbeat, 1);
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    if (rank == 1) {
        pid_t child = plan->is_behind_our_back ? fork_behind_our_back() : fork();
        if (child == 0) {
            sleep_in_child(plan->pipe_fds[0]);
        }
    }
    atomic_fetch_add(&shared->word[0], 1);
    if (rank == 1) {
        harness_wait_for(&shared->word[1], 1, 10000); /* killed here */
    }
    job_calls(rank, shared);
    int status = job_returned(rank, shared, weft_control_barrier(comm));
    job_close(rank, shared, comm);
    return status;
}

/* Rank 0 holds the pidfds of both others. */
static bool is_watching(void *arg)
{
    char path[64], target[64];
    int count = 0;
    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)*(const pid_t *)arg, fd);
        ssize_t len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        count += strcmp(target, "anon_inode:[pidfd]") == 0;
    }
    return count >= 2;
}

static void check_orphan(struct orphan_plan plan)
{
    assert_int_equal(pipe2(plan.pipe_fds, O_CLOEXEC), 0);
    struct harness *harness = harness_start(3, orphan_body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    close(plan.pipe_fds[0]);
    assert_harness(harness, harness_wait_for(&shared->word[0], 3, 10000));
    pid_t root = harness_pid(harness, 0);
    assert_harness(harness, !plan.is_watched || harness_wait_until(is_watching, &root, 5000));
    uint64_t end_ns = harness_now_ns();
    assert_harness(harness, harness_kill(harness, 1, SIGKILL));
    assert_harness(harness, harness_wait_rank(harness, 1, 2000)); /* reaped: no zombie either */
    assert_harness(harness, harness_wait(harness, 5000));
    for (int rank = 0; rank < 3; rank += 2) {
        const struct job_report *report = job_report(harness, rank);
        const char *text = harness_result(harness, rank)->text;
        if (report->status != WEFT_ERR_PEER || strstr(text, "rank 1 (") == NULL) {
            fail_msg("rank %d returned %s", rank, text);
        }
        if (report->returned_ns - end_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
            fail_msg("rank %d returned after %.3f s", rank,
                     (double)(report->returned_ns - end_ns) / 1e9);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    close(plan.pipe_fds[1]);
}

static void a_sleeping_child_does_not_hide_the_death_of_its_rank(void **state)
{
    (void)state;
    check_orphan((struct orphan_plan){.join = "auto", .heartbeat = "10s"});
    check_orphan((struct orphan_plan){.join = "direct", .heartbeat = "250ms"});
}

/* Only the process's end tells: the child holds a copy of the socket. */
static void not_even_a_child_that_kept_our_sockets(void **state)
{
    (void)state;
    check_orphan((struct orphan_plan){
        .join = "auto", .is_behind_our_back = true, .heartbeat = "100ms", .is_watched = true});
}

static void not_even_when_the_rank_dies_before_the_first_beat(void **state)
{
    (void)state;
    check_orphan(
        (struct orphan_plan){.join = "auto", .is_behind_our_back = true, .heartbeat = "300ms"});
}

/* ---- exec ---- */

static int count_in_executed(void)
{
    pid_t child = fork_behind_our_back();
    if (child == 0) {
        execl("/proc/self/exe", "fault.fork", "--count-fds", (char *)NULL);
        _exit(255);
    }
    return wait_child(child);
}

static int exec_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 5000);
    weft_comm_t comm;
    weft_id_t unused;
    int before = count_in_executed();
    setenv("WEFT_JOIN", arg, 1);
    if (weft_id_create(&config, &unused) != WEFT_OK ||
        job_join(rank, 0, shared, &config, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    int after = count_in_executed();
    weft_id_destroy(&unused);
    weft_status_t status = weft_control_barrier(comm);
    weft_comm_close(comm);
    if (before < 3 || before == 255 || after != before) {
        return harness_say(shared, rank, -1, "%d descriptors, with a job %d", before, after);
    }
    return (int)status;
}

static void an_executed_program_inherits_nothing_of_ours(void **state)
{
    static const char *const joins[] = {"auto", "direct"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct harness *harness = harness_start(2, exec_body, (void *)joins[i]);
        assert_harness(harness, harness_wait(harness, 10000));
        assert_harness(harness, harness_check_status(harness, 0));
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

/* ---- a job of its own ---- */

static int own_job(void)
{
    weft_config_t config = job_config(2000, 2000);
    weft_comm_t comm;
    weft_id_t id;
    weft_status_t status = weft_id_create(&config, &id);
    status = status == WEFT_OK ? weft_comm_create(&id, 0, 1, &config, &comm) : status;
    status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    return (int)(status == WEFT_OK ? weft_comm_close(comm) : status);
}

static int own_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 5000);
    weft_comm_t comm;
    (void)arg;
    setenv("WEFT_HEARTBEAT", "20ms", 1);
    if (job_join(rank, 0, shared, &config, &comm) != WEFT_OK ||
        weft_control_barrier(comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    /* the worst moment: the background thread is at work and holds what it holds then */
    atomic_store(&hold, HOLD_WANTED);
    if (!harness_wait_for(&hold, HOLD_HELD, 5000)) {
        return harness_say(shared, rank, -1, "the background thread never beat");
    }
    pid_t child = fork();
    if (child == 0) {
        atomic_store(&hold, HOLD_NO);
        alarm(4);
        _exit(own_job());
    }
    atomic_store(&hold, HOLD_NO);
    int outcome = wait_child(child);
    weft_status_t status = weft_control_barrier(comm);
    weft_comm_close(comm);
    if (outcome != 0) {
        return harness_say(shared, rank, -1, "the child's job: %d (1014: it hung)", outcome);
    }
    return (int)status;
}

static void a_forked_child_can_start_a_job_of_its_own(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* that sanitizer lets no child of a process with threads start one */
#endif
    struct harness *harness = harness_start(2, own_body, NULL);
    assert_harness(harness, harness_wait(harness, 15000));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

/* ---- the natural way: make the id, fork the ranks ---- */

static int family_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 5000);
    weft_comm_t comm;
    weft_id_t id;
    (void)arg;
    if (weft_id_create(&config, &id) != WEFT_OK) {
        return harness_say(shared, rank, -1, "%s", weft_error_text());
    }
    pid_t child = fork();
    weft_status_t status = weft_comm_create(&id, child == 0 ? 1 : 0, 2, &config, &comm);
    if (status == WEFT_OK) {
        status = weft_control_barrier(comm);
        weft_comm_close(comm);
    }
    if (child == 0) {
        _exit((int)status);
    }
    int outcome = wait_child(child);
    return harness_say(shared, rank, (int)status + outcome, "parent %d, child %d", (int)status,
                       outcome);
}

static void a_forked_child_joins_the_job_whose_id_its_parent_made(void **state)
{
    (void)state;
    struct harness *harness = harness_start(1, family_body, NULL);
    assert_harness(harness, harness_wait(harness, 10000));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_finds_our_descriptors_closed_and_its_handles_dead),
        cmocka_unit_test(a_sleeping_child_does_not_hide_the_death_of_its_rank),
        cmocka_unit_test(not_even_a_child_that_kept_our_sockets),
        cmocka_unit_test(not_even_when_the_rank_dies_before_the_first_beat),
        cmocka_unit_test(an_executed_program_inherits_nothing_of_ours),
        cmocka_unit_test(a_forked_child_can_start_a_job_of_its_own),
        cmocka_unit_test(a_forked_child_joins_the_job_whose_id_its_parent_made),
    };
    if (argc > 1 && strcmp(argv[1], "--count-fds") == 0) {
        return (int)harness_count_fds();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
