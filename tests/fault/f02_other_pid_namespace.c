/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one host, one of them in a container that counts its processes itself: the number that another rank has
 * elsewhere says nothing there. The root dies; a rank that computes, and so does not listen yet, is not taken for dead. */
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
#define ROOT 0
#define ELSEWHERE 1
#define COMPUTES 2
#define COMPUTES_MS 800 /* longer than anybody is patient with one who does not come */
#define NO_NAMESPACES 42
#define DIED 9

#define JOINED 0

static int work(int rank, struct harness_shared *shared)
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

/* The first of its namespace, which sees no others. */
static int work_alone(int rank, struct harness_shared *shared)
{
    bool is_alone = getpid() == 1 && unshare(CLONE_NEWNS) == 0 &&
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                    mount("proc", "/proc", "proc", 0, NULL) == 0;
    return is_alone ? work(rank, shared) : NO_NAMESPACES;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    pid_t child;
    int end = 0;
    (void)arg;
    if (rank != ELSEWHERE) {
        return work(rank, shared);
    }
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        return NO_NAMESPACES;
    }
    child = fork();
    if (child == 0) {
        _exit(work_alone(rank, shared));
    }
    if (child < 0 || waitpid(child, &end, 0) != child) {
        return NO_NAMESPACES;
    }
    return WIFEXITED(end) ? WEXITSTATUS(end) : 1000 + WTERMSIG(end);
}

static void a_rank_that_computes_is_not_dead_because_its_number_is_of_another_namespace(
    void **state)
{
    struct harness *harness = harness_start(RANKS, body, NULL);
    const struct harness_result *elsewhere = harness_result(harness, ELSEWHERE);
    bool is_possible;
    (void)state;
    messages_wait(harness, MESSAGES_WAIT_MS, "a rank in another pid namespace");
    is_possible = elsewhere->status != NO_NAMESPACES;
    for (int rank = ELSEWHERE; rank < RANKS && is_possible; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (result->status != 0) {
            fail_msg("rank %d returned %d: %s", rank, result->status, result->text);
        }
    }
    harness_close(harness);
    if (!is_possible) {
        skip(); /* not allowed here */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_rank_that_computes_is_not_dead_because_its_number_is_of_another_namespace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
