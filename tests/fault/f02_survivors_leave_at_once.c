/* SPDX-License-Identifier: Apache-2.0 */
/* The root dies, and every survivor closes and exits the moment its call has failed, as most programs do: they have one
 * verdict all the same, with one number, though whoever coordinates leaves as soon as the others. And who shrinks does not
 * wait for those who have closed, though their processes go on and nobody is left who heard their good-bye. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#define RANKS 5
#define ROUNDS 5
#define SUMS 20 /* before the root dies */
#define DIED 9

#define SHRINK_NS (UINT64_C(3000000000) * JOB_SLOWNESS) /* alone */

#define VERDICT 0 /* + rank: number */
#define LEFT 16   /* how many have closed */
#define DONE 17   /* who stays has shrunk */

/* The others have closed, and their processes go on. */
static int shrink_alone(int rank, weft_comm_t comm, struct harness_shared *shared)
{
    weft_comm_t rest;
    uint64_t since_ns;
    int ranks = 0;
    if (!harness_wait_for(&shared->word[LEFT], RANKS - 2, MESSAGES_WAIT_MS)) {
        return harness_say(shared, rank, 4, "the others do not close");
    }
    since_ns = harness_now_ns();
    weft_status_t status = weft_comm_shrink(comm, &rest);
    uint64_t took_ns = harness_now_ns() - since_ns;
    if (status != WEFT_OK || weft_comm_ranks(rest, &ranks) != WEFT_OK || ranks != 1 ||
        took_ns > SHRINK_NS) {
        harness_say(shared, rank, 5, "%d left after %.3f s: %s", ranks, (double)took_ns / 1e9,
                    weft_error_text());
        status = WEFT_ERR_PEER;
    }
    atomic_store(&shared->word[DONE], 1);
    if (ranks > 0) {
        weft_comm_close(rest);
    }
    weft_comm_close(comm);
    return status == WEFT_OK ? 0 : 5;
}

/* stays: the rank that shrinks, or NULL. */
static int body(int rank, struct harness_shared *shared, void *arg)
{
    const int *stays = arg;
    weft_comm_t comm;
    weft_error_t error;
    weft_status_t status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    for (int i = 0; status == WEFT_OK; i++) {
        int32_t in = 1, out = 0;
        if (rank == 0 && i == SUMS) {
            _exit(DIED);
        }
        status = weft_allreduce(comm, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL);
    }
    if (status != WEFT_ERR_PEER || weft_comm_get_error(comm, &error) != WEFT_OK) {
        return harness_say(shared, rank, 2, "%s", weft_error_text());
    }
    atomic_store(&shared->word[VERDICT + rank], error.verdict);
    if (stays != NULL && rank == *stays) {
        return shrink_alone(rank, comm, shared);
    }
    weft_comm_close(comm);
    atomic_fetch_add(&shared->word[LEFT], 1);
    if (stays != NULL) {
        harness_wait_for(&shared->word[DONE], 1, MESSAGES_WAIT_MS);
    }
    return error.rank == 0 ? 0 : harness_say(shared, rank, 3, "%s", error.text);
}

/* All but the root are fine, and have the same number. */
static void check_one_verdict(struct harness *harness, const char *what)
{
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 1; rank < RANKS; rank++) {
        uint32_t number = atomic_load(&harness_shared(harness)->word[VERDICT + rank]);
        uint32_t last = atomic_load(&harness_shared(harness)->word[VERDICT + RANKS - 1]);
        if (harness_result(harness, rank)->status != 0 || number == 0 || number != last) {
            fail_msg("%s: rank %d has verdict %u, the last one %u; %s", what, rank, number, last,
                     harness_result(harness, rank)->text);
        }
    }
    harness_close(harness);
}

static void they_have_one_verdict(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        check_one_verdict(harness_start(RANKS, body, NULL), "survivors that leave at once");
    }
}

/* Everybody waits for the one before it, which leaves when it has heard of the root. */
static int ring_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm;
    weft_error_t error;
    uint8_t byte = 0;
    weft_status_t status = messages_join(rank, shared, arg, MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    if (rank == 0) {
        messages_let_pass(50); /* the others are in their call */
        _exit(DIED);
    }
    status = weft_recv(comm, &byte, 1, rank - 1, 7, NULL, NULL);
    if (status != WEFT_ERR_PEER || weft_comm_get_error(comm, &error) != WEFT_OK ||
        error.rank != 0 || !messages_names(weft_error_text(), 0)) {
        return harness_say(shared, rank, 2, "%s", weft_error_text());
    }
    atomic_store(&shared->word[VERDICT + rank], error.verdict);
    weft_comm_close(comm);
    return 0;
}

static void also_who_waits_for_a_message_of_one_that_leaves(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        check_one_verdict(harness_start(RANKS, ring_body, *state), *state);
    }
}

static void who_shrinks_does_not_wait_for_those_who_have_closed(void **state)
{
    (void)state;
    for (int stays = 1; stays < RANKS; stays++) {
        struct harness *harness = harness_start(RANKS, body, &stays);
        messages_wait(harness, MESSAGES_WAIT_MS, "a survivor that shrinks alone");
        for (int rank = 1; rank < RANKS; rank++) {
            if (harness_result(harness, rank)->status != 0) {
                fail_msg("rank %d stays: rank %d: %s", stays, rank,
                         harness_result(harness, rank)->text);
            }
        }
        harness_close(harness);
    }
}

/* ---- who has not called yet ---- */

#define READY 18
#define ENDED 19 /* how many have heard of it in a call */
#define SILENT 1
#define CALLERS (RANKS - 2)
#define LOOKS_MS 800 /* in which the new coordinator looks for strays, more than once */

static int silent_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm, rest = NULL;
    weft_error_t error;
    int ranks = 0;
    (void)arg;
    weft_status_t status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[READY], 1);
    if (rank == 0) {
        harness_wait_for(&shared->word[READY], RANKS, MESSAGES_WAIT_MS);
        messages_let_pass(50); /* the others are in their call */
        _exit(DIED);
    }
    if (rank == SILENT) {
        harness_wait_for(&shared->word[ENDED], CALLERS, MESSAGES_WAIT_MS);
        messages_let_pass(LOOKS_MS);
    }
    status = weft_control_barrier(comm);
    if (status != WEFT_ERR_PEER || weft_comm_get_error(comm, &error) != WEFT_OK ||
        error.rank != 0) {
        return harness_say(shared, rank, 2, "%s", weft_error_text());
    }
    atomic_store(&shared->word[VERDICT + rank], error.verdict);
    atomic_fetch_add(&shared->word[ENDED], 1);
    harness_wait_for(&shared->word[ENDED], CALLERS + 1, MESSAGES_WAIT_MS);
    status = weft_comm_shrink(comm, &rest);
    if (status != WEFT_OK || weft_comm_ranks(rest, &ranks) != WEFT_OK || ranks != CALLERS + 1) {
        return harness_say(shared, rank, 3, "%d go on: %s", ranks, weft_error_text());
    }
    weft_comm_close(rest);
    weft_comm_close(comm);
    return 0;
}

static void who_has_made_no_call_yet_has_not_closed(void **state)
{
    (void)state;
    check_one_verdict(harness_start(RANKS, silent_body, NULL), "a rank that makes no call");
}

int main(void)
{
    static char shm[] = "shm", tcp[] = "tcp";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_have_one_verdict),
        {"also_who_waits_for_a_message_of_one_that_leaves",
         also_who_waits_for_a_message_of_one_that_leaves, NULL, NULL, shm},
        {"also_who_waits_for_a_message_over_tcp_of_one_that_leaves",
         also_who_waits_for_a_message_of_one_that_leaves, NULL, NULL, tcp},
        cmocka_unit_test(who_shrinks_does_not_wait_for_those_who_have_closed),
        cmocka_unit_test(who_has_made_no_call_yet_has_not_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
