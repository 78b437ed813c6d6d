/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies, and so does another while it tells of it, the root or one below: some have heard, and leave for that at once,
 * others have not. The survivors have one first verdict all the same, by one number, and word for word. */
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
#define FIRST 6 /* it dies by itself */
#define SUMS 20 /* before that */
#define DIED 9

#define VERDICT 0 /* + rank: number */
#define BLAMED 16 /* + rank */
#define LEFT 32   /* how many have closed */

#define PATIENCE_MS 100
#define KEPT 99 /* it says all, but what it says to rank 4 is on its way still when it dies */

static struct harness_shared *common;
static bool is_teller, is_patient;
static int breath;        /* so many verdicts it says; then it dies */
static bool is_heir_last; /* who coordinates next would be told after all others */

/* At once: a process with much memory, as the sanitizers' have, takes its time to end, and its connections end last. */
static void die(void)
{
    if (is_patient) { /* who has heard may leave first */
        harness_wait_reach(&common->word[LEFT], 1, PATIENCE_MS);
    }
    close_range(3, ~0u, 0);
    _exit(DIED);
}

static void *die_later(void *arg)
{
    (void)arg;
    die();
    return NULL;
}

weft_status_t __real_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len);
weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len);

weft_status_t __wrap_weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                                      const void *payload, size_t len)
{
    weft_status_t status;
    bool is_telling = is_teller && frame->type == WEFT_WIRE_VERDICT;
    if (is_telling && is_heir_last && conn->peer_rank == 1) {
        return WEFT_OK; /* it does not come to that */
    }
    if (is_telling && breath > RANKS && conn->peer_rank == 4) {
        pthread_t thread;
        return pthread_create(&thread, NULL, die_later, NULL) == 0 ? WEFT_OK : WEFT_ERR_SYSTEM;
    }
    if (is_telling && breath == 0) {
        die();
    }
    status = __real_weft_control_say(conn, frame, payload, len);
    breath -= is_telling;
    if (is_telling && breath == 0) {
        die();
    }
    return status;
}

struct plan {
    int teller, told; /* so many verdicts it says, then it dies */
    bool is_heir_last;
    const char *degree;
    bool is_abort; /* FIRST does not die, it aborts */
};

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm;
    weft_error_t error;
    weft_status_t status;
    common = shared;
    is_teller = rank == plan->teller;
    is_patient = is_teller && rank != 0; /* nobody leaves before the root says that all know */
    breath = plan->told;
    is_heir_last = plan->is_heir_last;
    setenv("WEFT_TREE_DEGREE", plan->degree, 1);
    status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, 1, "could not start: %s", weft_error_text());
    }
    for (int i = 0; status == WEFT_OK; i++) {
        int32_t in = 1, out = 0;
        if (rank == FIRST && i == SUMS && !plan->is_abort) {
            die();
        } else if (rank == FIRST && i == SUMS) {
            weft_abort(comm, "the test says so");
        }
        status = weft_allreduce(comm, &in, &out, 1, WEFT_I32, WEFT_SUM, NULL);
    }
    if (status != (plan->is_abort ? WEFT_ERR_ABORTED : WEFT_ERR_PEER) ||
        weft_comm_get_error(comm, &error) != WEFT_OK) {
        return harness_say(shared, rank, 2, "%s", weft_error_text());
    }
    atomic_store(&shared->word[VERDICT + rank], error.verdict);
    atomic_store(&shared->word[BLAMED + rank], (uint32_t)error.rank);
    weft_comm_close(comm);
    atomic_fetch_add(&shared->word[LEFT], 1);
    return harness_say(shared, rank, 0, "%s", error.text);
}

static void check(struct plan plan)
{
    struct harness *harness = harness_start(RANKS, body, &plan);
    const _Atomic uint32_t *word = harness_shared(harness)->word;
    const int one = 2; /* it survives always */
    const char *said = harness_result(harness, one)->text;
    messages_wait(harness, MESSAGES_WAIT_MS, "a rank that dies while it tells");
    assert_int_not_equal(word[VERDICT + one], 0);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if ((rank != FIRST || plan.is_abort) && rank != plan.teller &&
            (result->status != 0 || word[VERDICT + rank] != word[VERDICT + one] ||
             word[BLAMED + rank] != word[BLAMED + one] || strcmp(result->text, said) != 0)) {
            fail_msg("rank %d told %d%s, degree %s: rank %d has verdict %u (%s), rank %d %u (%s)",
                     plan.teller, plan.told, plan.is_heir_last ? ", rank 1 not" : "", plan.degree,
                     rank, word[VERDICT + rank], result->text, one, word[VERDICT + one], said);
        }
    }
    harness_close(harness);
}

static void however_many_have_heard_there_is_one_first_verdict(void **state)
{
    (void)state;
    for (int told = 1; told < RANKS - 2; told++) {
        check((struct plan){0, told, true, "64", false});
        check((struct plan){0, told, false, "64", false});
    }
    for (int round = 0; round < 3; round++) {
        check((struct plan){0, 1, true, "2", false});
        check((struct plan){0, 1, false, "2", false});
    }
}

/* Rank 1 is between the root and ranks 3 and 4. */
static void who_has_heard_stays_until_those_below_others_have(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        check((struct plan){1, 0, false, "2", false});
        check((struct plan){1, 1, false, "2", false});
        check((struct plan){1, KEPT, false, "2", false});
    }
}

/* … and then it hears of the death of rank 1, too. */
static void who_hears_of_an_abort_late_hears_of_it_first(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        check((struct plan){1, 0, false, "2", true});
        check((struct plan){1, 1, false, "2", true});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(however_many_have_heard_there_is_one_first_verdict),
        cmocka_unit_test(who_has_heard_stays_until_those_below_others_have),
        cmocka_unit_test(who_hears_of_an_abort_late_hears_of_it_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
