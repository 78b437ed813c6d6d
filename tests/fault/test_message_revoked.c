/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender whose deadline passes while its receiver stands in the middle of the message has its
 * memory back and writes something else into it. When the receiver goes on, it may have read half
 * of the old and half of the new: it must get an error, or the message exactly, never a mixture.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#define LEN (((size_t)48 << 20) / JOB_SLOWNESS) /* several go within the deadline */
#define TAG 1
#define TIMEOUT_MS (500 * JOB_SLOWNESS)
#define ATTEMPTS 4

#define ROUNDS 0
#define REVOKED 1 /* the sender has written something else */
#define DONE 2

struct plan {
    const char *path, *cma;
    bool is_shared; /* the sender's memory comes from weft_alloc() */
};

static int send_until_late(weft_comm_t comm, struct harness_shared *shared, uint8_t *data)
{
    weft_status_t status = WEFT_OK;
    messages_fill(data, LEN, 1);
    while (status == WEFT_OK) {
        status = weft_send(comm, data, LEN, 1, TAG, NULL);
    }
    memset(data, 0xa5, LEN);
    atomic_store(&shared->word[REVOKED], 1);
    harness_wait_for(&shared->word[DONE], 1, MESSAGES_WAIT_MS);
    return harness_say(shared, 0, status == WEFT_ERR_TIMEOUT ? 0 : -1, "%s", weft_error_text());
}

static int receive_until_late(weft_comm_t comm, struct harness_shared *shared, uint8_t *data)
{
    weft_status_t status = WEFT_OK;
    size_t wrong = LEN;
    while (status == WEFT_OK && wrong == LEN) {
        status = weft_recv(comm, data, LEN, 0, TAG, NULL, NULL);
        /* looked at only when it matters: the test wants to stop us in the copy, not here */
        if (status == WEFT_OK && atomic_load(&shared->word[REVOKED]) != 0) {
            wrong = messages_wrong(data, LEN, 1);
        }
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    }
    atomic_store(&shared->word[DONE], 1);
    return wrong == LEN ? 0
                        : harness_say(shared, 1, -1, "received, and wrong from byte %zu on", wrong);
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    void *data = NULL;
    weft_comm_t comm;
    setenv("WEFT_CMA", plan->cma, 1);
    weft_status_t status = messages_join(rank, shared, plan->path, TIMEOUT_MS, &comm);
    if (status == WEFT_OK && plan->is_shared) {
        status = weft_alloc(LEN, &data);
    }
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    data = plan->is_shared ? data : messages_buffer(LEN);
    int result =
        rank == 0 ? send_until_late(comm, shared, data) : receive_until_late(comm, shared, data);
    weft_comm_close(comm);
    if (plan->is_shared) {
        weft_free(data);
    } else {
        free(data);
    }
    return result;
}

static void check(struct plan plan)
{
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct harness *harness = harness_start(2, body, &plan);
        struct harness_shared *shared = harness_shared(harness);
        assert_harness(harness, harness_wait_reach(&shared->word[ROUNDS], 2, MESSAGES_WAIT_MS));
        uint64_t at_ns = harness_now_ns() + attempt * UINT64_C(3000000);
        harness_wait_until(messages_is_past, &at_ns, 1000);
        assert_harness(harness, harness_stop(harness, 1));
        assert_harness(harness, harness_wait_for(&shared->word[REVOKED], 1, MESSAGES_WAIT_MS));
        assert_harness(harness, harness_continue(harness, 1));
        messages_wait(harness, MESSAGES_WAIT_MS, plan.path);
        messages_check_fine(harness, plan.path);
        harness_close(harness);
    }
}

static void a_message_through_slots_is_exact_or_an_error(void **state)
{
    (void)state;
    check((struct plan){"shm", "off", false});
}

static void a_message_that_is_read_by_the_receiver_is_exact_or_an_error(void **state)
{
    (void)state;
    check((struct plan){"shm", "on", false});
}

static void a_message_in_mapped_memory_is_exact_or_an_error(void **state)
{
    (void)state;
    check((struct plan){"shm", "off", true});
}

static void a_message_over_tcp_is_exact_or_an_error(void **state)
{
    (void)state;
    check((struct plan){"tcp", "off", false});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_through_slots_is_exact_or_an_error),
        cmocka_unit_test(a_message_that_is_read_by_the_receiver_is_exact_or_an_error),
        cmocka_unit_test(a_message_in_mapped_memory_is_exact_or_an_error),
        cmocka_unit_test(a_message_over_tcp_is_exact_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
