/* SPDX-License-Identifier: Apache-2.0 */
/* The root dies, and every survivor closes and exits the moment its call has failed, as most programs do: they have one
 * verdict all the same, with one number, though whoever coordinates leaves as soon as the others. */
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

#define VERDICT 0 /* + rank: number */

static int body(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm;
    weft_error_t error;
    weft_status_t status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    (void)arg;
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
    weft_comm_close(comm);
    return error.rank == 0 ? 0 : harness_say(shared, rank, 3, "%s", error.text);
}

static void they_have_one_verdict(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct harness *harness = harness_start(RANKS, body, NULL);
        messages_wait(harness, MESSAGES_WAIT_MS, "survivors that leave at once");
        for (int rank = 1; rank < RANKS; rank++) {
            uint32_t number = atomic_load(&harness_shared(harness)->word[VERDICT + rank]);
            uint32_t first = atomic_load(&harness_shared(harness)->word[VERDICT + 1]);
            if (harness_result(harness, rank)->status != 0 || number == 0 || number != first) {
                fail_msg("round %d: rank %d has verdict %u, rank 1 %u; %s", round, rank, number,
                         first, harness_result(harness, rank)->text);
            }
        }
        harness_close(harness);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(they_have_one_verdict)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
