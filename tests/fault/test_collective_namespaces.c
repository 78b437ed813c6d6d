/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one host in containers that count their processes themselves: all of them are number 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#include <sched.h>
#include <sys/wait.h>

#define RANKS 2
#define PIECE ((size_t)1 << 20)
#define ROUNDS 40 /* both ways to the data are tried by then */
#define NO_NAMESPACES 42

static bool is_right(const uint8_t *out)
{
    for (size_t i = 0; i < RANKS * PIECE; i++) {
        if (out[i] != 1 + i / PIECE) {
            return false;
        }
    }
    return true;
}

static int gather(int rank, struct harness_shared *shared)
{
    uint8_t *in = messages_buffer(PIECE), *out = messages_buffer(RANKS * PIECE);
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, "shm", 20000, &comm);
    bool is_good = true;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    memset(in, 1 + rank, PIECE);
    for (int i = 0; i < ROUNDS && status == WEFT_OK && is_good; i++) {
        memset(out, 0, RANKS * PIECE);
        status = weft_allgather(comm, in, out, PIECE, WEFT_U8, NULL);
        is_good = is_right(out);
    }
    if (status != WEFT_OK || !is_good) {
        return harness_say(shared, rank, 2, "%s: %s", is_good ? "right" : "wrong data",
                           weft_error_text());
    }
    status = weft_comm_close(comm);
    free(in);
    free(out);
    return status == WEFT_OK ? 0 : 3;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    pid_t child;
    int end = 0;
    (void)arg;
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        return NO_NAMESPACES;
    }
    child = fork();
    if (child == 0) {
        _exit(getpid() == 1 ? gather(rank, shared) : NO_NAMESPACES);
    }
    if (child < 0 || waitpid(child, &end, 0) != child) {
        return NO_NAMESPACES;
    }
    return WIFEXITED(end) ? WEXITSTATUS(end) : 1000 + WTERMSIG(end);
}

static void ranks_with_one_pid_are_not_one_process(void **state)
{
    struct harness *harness = harness_start(RANKS, body, NULL);
    bool is_possible = true;
    (void)state;
    assert_harness(harness, harness_wait(harness, MESSAGES_WAIT_MS));
    for (int rank = 0; rank < RANKS; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (result->status == NO_NAMESPACES) {
            is_possible = false;
        } else if (result->status != 0) {
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_with_one_pid_are_not_one_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
