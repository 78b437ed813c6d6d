/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one host, one of them in a container that counts its processes itself: the number that another rank has
 * elsewhere says nothing there. The root dies; a rank that computes, and so does not listen yet, is not taken for dead, and one
 * that dies together with the root is found though nobody can look at its process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define RANKS 3
#define MORE_RANKS 4
#define ROOT 0
#define ELSEWHERE 1
#define COMPUTES 2
#define COMPUTES_MS 800 /* longer than anybody is patient with one who does not come */
#define NO_NAMESPACES 42
#define DIED 9

#define JOINED 0
#define DYING 1
#define SHRINK_MS 3000ull /* of MESSAGES_TIMEOUT_MS: it is not waited for */

typedef int (*work_fn)(int rank, struct harness_shared *shared);

static int lose_the_root(int rank, struct harness_shared *shared)
{
    weft_comm_t comm, fewer;
    int ranks = 0;
    weft_status_t status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[JOINED], 1);
    if (rank == ROOT) {
        harness_wait_reach(&shared->word[JOINED], RANKS, MESSAGES_WAIT_MS);
        _exit(DIED);
    }
    if (rank == COMPUTES) {
        harness_wait_reach(&shared->word[JOINED], RANKS, MESSAGES_WAIT_MS);
        messages_let_pass(COMPUTES_MS);
    }
    status = weft_control_barrier(comm);
    if (status != WEFT_ERR_PEER) {
        return harness_say(shared, rank, 2, "barrier: %s", weft_status_name(status));
    }
    status = weft_comm_shrink(comm, &fewer);
    if (status != WEFT_OK || weft_comm_ranks(fewer, &ranks) != WEFT_OK || ranks != RANKS - 1) {
        return harness_say(shared, rank, 3, "shrink: %d ranks, %s", ranks, weft_error_text());
    }
    status = weft_control_barrier(fewer);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 4, "after it: %s", weft_error_text());
    }
    weft_comm_close(fewer);
    weft_comm_close(comm);
    return 0;
}

/* The root and the rank elsewhere die at once, after a call of all. */
static int lose_two(int rank, struct harness_shared *shared)
{
    weft_comm_t comm, fewer;
    int ranks = 0;
    uint64_t since_ns;
    weft_status_t status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    messages_let_pass(100); /* by then everybody listens */
    if (rank == ROOT || rank == ELSEWHERE) {
        atomic_fetch_add(&shared->word[DYING], 1);
        harness_wait_reach(&shared->word[DYING], 2, MESSAGES_WAIT_MS);
        _exit(DIED);
    }
    status = weft_control_barrier(comm);
    if (status != WEFT_ERR_PEER) {
        return harness_say(shared, rank, 2, "barrier: %s", weft_status_name(status));
    }
    since_ns = harness_now_ns();
    status = weft_comm_shrink(comm, &fewer);
    if (status != WEFT_OK || weft_comm_ranks(fewer, &ranks) != WEFT_OK || ranks != MORE_RANKS - 2) {
        return harness_say(shared, rank, 3, "shrink: %d ranks, %s", ranks, weft_error_text());
    }
    if (harness_now_ns() - since_ns > SHRINK_MS * JOB_SLOWNESS * JOB_MS_NS) {
        return harness_say(shared, rank, 4, "shrink waited for the dead");
    }
    status = weft_control_barrier(fewer);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 5, "after it: %s", weft_error_text());
    }
    weft_comm_close(fewer);
    weft_comm_close(comm);
    return 0;
}

/* The first of its namespace, which sees no others. */
static int work_alone(int rank, struct harness_shared *shared, work_fn work)
{
    bool is_alone = getpid() == 1 && unshare(CLONE_NEWNS) == 0 &&
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                    mount("proc", "/proc", "proc", 0, NULL) == 0;
    return is_alone ? work(rank, shared) : NO_NAMESPACES;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const work_fn work = *(const work_fn *)arg;
    pid_t child;
    int end = 0;
    if (rank != ELSEWHERE) {
        return work(rank, shared);
    }
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        return NO_NAMESPACES;
    }
    child = fork();
    if (child == 0) {
        _exit(work_alone(rank, shared, work));
    }
    if (child < 0 || waitpid(child, &end, 0) != child) {
        return NO_NAMESPACES;
    }
    return WIFEXITED(end) ? WEXITSTATUS(end) : 1000 + WTERMSIG(end);
}

/* dead: rank ELSEWHERE dies, too */
static void run(int ranks, work_fn work, bool is_dead)
{
    struct harness *harness = harness_start(ranks, body, &work);
    const struct harness_result *elsewhere = harness_result(harness, ELSEWHERE);
    bool is_possible;
    messages_wait(harness, MESSAGES_WAIT_MS, "a rank in another pid namespace");
    is_possible = elsewhere->status != NO_NAMESPACES;
    for (int rank = ELSEWHERE; rank < ranks && is_possible; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (result->status != (rank == ELSEWHERE && is_dead ? DIED : 0)) {
            fail_msg("rank %d returned %d: %s", rank, result->status, result->text);
        }
    }
    harness_close(harness);
    if (!is_possible) {
        skip(); /* not allowed here */
    }
}

static void a_rank_that_computes_is_not_dead_because_its_number_is_of_another_namespace(
    void **state)
{
    (void)state;
    run(RANKS, lose_the_root, false);
}

static void a_rank_of_another_namespace_that_dies_with_its_parent_is_not_waited_for(void **state)
{
    (void)state;
    run(MORE_RANKS, lose_two, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_rank_that_computes_is_not_dead_because_its_number_is_of_another_namespace),
        cmocka_unit_test(a_rank_of_another_namespace_that_dies_with_its_parent_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
