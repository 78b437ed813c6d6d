/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies, and so does the root while it tells of it: some have heard, others have not. The survivors have one first
 * verdict all the same, by one number, and word for word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include "control/internal.h"

#include <string.h>
#include <unistd.h>

#define RANKS 7
#define FIRST 3 /* it dies by itself */
#define SUMS 20 /* before that */
#define DIED 9

#define VERDICT 0 /* + rank: number */
#define BLAMED 16 /* + rank */

static bool is_root;
static int breath;        /* so many verdicts it says; then it dies */
static bool is_heir_last; /* who coordinates next would be told after all others */

/* At once: a process with much memory, as the sanitizers' have, takes its time to end, and its connections end last. */
static void die(void)
{
    close_range(3, ~0u, 0);
    _exit(DIED);
}

weft_status_t __real_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len);
weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len);

weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len)
{
    weft_status_t status;
    if (is_root && frame->type == WEFT_WIRE_VERDICT && is_heir_last && conn->peer_rank == 1) {
        return WEFT_OK; /* it does not come to that */
    }
    status = __real_weft_control_say(conn, frame, payload, len);
    if (is_root && frame->type == WEFT_WIRE_VERDICT && --breath == 0) {
        die();
    }
    return status;
}

struct plan {
    int told;
    bool is_heir_last;
    const char *degree;
};

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm;
    weft_error_t error;
    weft_status_t status;
    is_root = rank == 0;
    breath = plan->told;
    is_heir_last = plan->is_heir_last;
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    for (int i = 0; status == WEFT_OK; i++) {
        int32_t in = 1, out = 0;
        if (rank == FIRST && i == SUMS) {
            die();
        }
        status = weft_allreduce(comm, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL);
    }
    if (status != WEFT_ERR_PEER || weft_comm_get_error(comm, &error) != WEFT_OK) {
        return harness_say(shared, rank, 2, "%s", weft_error_text());
    }
    atomic_store(&shared->word[VERDICT + rank], error.verdict);
    atomic_store(&shared->word[BLAMED + rank], (uint32_t)error.rank);
    weft_comm_close(comm);
    return harness_say(shared, rank, 0, "%s", error.text);
}

static void check(struct plan plan)
{
    struct harness *harness = harness_start(RANKS, body, &plan);
    const _Atomic uint32_t *word = harness_shared(harness)->word;
    const struct harness_result *one = harness_result(harness, 1);
    messages_wait(harness, MESSAGES_WAIT_MS, "a root that dies while it tells");
    assert_int_not_equal(word[VERDICT + 1], 0);
    for (int rank = 1; rank < RANKS; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (rank != FIRST &&
            (result->status != 0 || word[VERDICT + rank] != word[VERDICT + 1] ||
             word[BLAMED + rank] != word[BLAMED + 1] || strcmp(result->text, one->text) != 0)) {
            fail_msg("%d told%s, degree %s: rank %d has verdict %u (%s), rank 1 %u (%s)", plan.told,
                     plan.is_heir_last ? ", rank 1 not" : "", plan.degree, rank,
                     word[VERDICT + rank], result->text, word[VERDICT + 1], one->text);
        }
    }
    harness_close(harness);
}

static void however_many_have_heard_there_is_one_first_verdict(void **state)
{
    (void)state;
    for (int told = 1; told < RANKS - 2; told++) {
        check((struct plan){told, true, "64"});
        check((struct plan){told, false, "64"});
    }
    for (int round = 0; round < 3; round++) {
        check((struct plan){1, true, "2"});
        check((struct plan){1, false, "2"});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(however_many_have_heard_there_is_one_first_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
