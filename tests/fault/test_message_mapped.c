/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank copies to or from memory of weft_alloc() of another one, directly, while the other dies, or
 * gives up and frees it: the copy ends in good order and the next call says what happened. What is
 * mapped must stay so until the copy is over, whoever hears of the end meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <pthread.h>

/* A copy of this length takes long enough for the other rank to end in it. */
#define LEN (((size_t)256 << 20) / JOB_SLOWNESS / JOB_SLOWNESS)
#define TAG 1
#define ATTEMPTS 3

#define INSIDE 0 /* copies that were begun */
#define LET_GO 1 /* rank 1 gives up */
#define ENDED 2  /* rank 0 has heard of it */

enum deed { DEED_PUT, DEED_GET, DEED_RECV };

struct plan {
    enum deed deed;
    bool is_killed;  /* otherwise rank 1 aborts and frees */
    bool is_private; /* ranks are threads, and the memory is just memory: read where it lies */
};

struct looker {
    weft_comm_t comm;
    _Atomic uint32_t is_over;
    pthread_t thread;
};

/* The other thread of the receiver: it hears of everything while the first one copies. */
static void *look_for_others(void *arg)
{
    struct looker *looker = arg;
    weft_message_t message;
    while (atomic_load(&looker->is_over) == 0) {
        (void)weft_probe(looker->comm, 1, TAG + 1, 0, &message);
    }
    return NULL;
}

static weft_status_t receive_all(weft_comm_t comm, struct harness_shared *shared, uint8_t *data)
{
    struct looker looker = {.comm = comm};
    weft_status_t status = WEFT_OK;
    if (pthread_create(&looker.thread, NULL, look_for_others, &looker) != 0) {
        return WEFT_ERR_SYSTEM;
    }
    while (status == WEFT_OK) {
        atomic_fetch_add(&shared->word[INSIDE], 1);
        status = weft_recv(comm, data, LEN, 1, TAG, NULL, NULL);
    }
    atomic_store(&looker.is_over, 1);
    pthread_join(looker.thread, NULL);
    return status;
}

static int copy_until_it_fails(weft_comm_t comm, struct harness_shared *shared, enum deed deed,
                               const weft_mem_t *mem)
{
    uint8_t *data = messages_buffer(LEN);
    weft_status_t status = deed == DEED_RECV ? receive_all(comm, shared, data) : WEFT_OK;
    while (status == WEFT_OK) {
        atomic_fetch_add(&shared->word[INSIDE], 1);
        status = deed == DEED_PUT ? weft_put(comm, mem, 0, data, LEN)
                                  : weft_get(comm, mem, 0, data, LEN);
        status = status == WEFT_OK ? weft_quiet(comm) : status;
    }
    job_returned(0, shared, status);
    atomic_store(&shared->word[ENDED], 1);
    free(data);
    return 0;
}

static bool is_let_go(void *arg)
{
    return atomic_load(&((struct harness_shared *)arg)->word[LET_GO]) != 0;
}

static weft_status_t memory_open(bool is_private, void **memory_p)
{
    if (!is_private) {
        return weft_alloc(LEN, memory_p);
    }
    *memory_p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *memory_p != MAP_FAILED ? WEFT_OK : WEFT_ERR_MEMORY;
}

static int give_up_and_free(weft_comm_t comm, struct harness_shared *shared,
                            const struct plan *plan, void *memory, const weft_mem_t *mine)
{
    enum deed deed = plan->deed;
    weft_request_t request = NULL;
    weft_status_t status = WEFT_OK;
    while (deed == DEED_RECV && status == WEFT_OK && !is_let_go(shared)) {
        int is_done = 0;
        status = weft_send(comm, memory, LEN, 0, TAG, &request);
        while (status == WEFT_OK && !is_done && !is_let_go(shared)) {
            status = weft_test(&request, &is_done);
        }
    }
    harness_wait_until(is_let_go, shared, MESSAGES_WAIT_MS);
    weft_abort(comm, "rank 1 has enough");
    if (request != NULL) {
        weft_wait(&request, MESSAGES_WAIT_MS);
    }
    if (plan->is_private) {
        munmap(memory, LEN);
    } else {
        weft_mem_deregister(comm,
                            mine); /* else it is not freed: who has not heard yet may write there */
        weft_free(memory);
    }
    harness_wait_for(&shared->word[ENDED], 1, MESSAGES_WAIT_MS);
    return 0;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    void *memory = NULL;
    weft_mem_t mine, mem[2];
    weft_comm_t comm;
    int result;
    weft_status_t status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    memset(&mine, 0, sizeof(mine));
    if (status == WEFT_OK && rank == 1) {
        status = memory_open(plan->is_private, &memory);
        status = status == WEFT_OK ? weft_mem_register(comm, memory, LEN, &mine) : status;
    }
    status = status == WEFT_OK ? weft_control_allgather(comm, &mine, sizeof(mine), mem) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    result = rank == 0 ? copy_until_it_fails(comm, shared, plan->deed, &mem[1])
                       : give_up_and_free(comm, shared, plan, memory, &mine);
    weft_comm_close(comm);
    return result;
}

/* Each attempt ends it at another moment of a copy. */
static void check(struct plan plan)
{
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct harness *harness =
            plan.is_private ? harness_start_threads(2, body, &plan) : harness_start(2, body, &plan);
        struct harness_shared *shared = harness_shared(harness);
        weft_status_t status;
        assert_harness(harness, harness_wait_reach(&shared->word[INSIDE], 3, MESSAGES_WAIT_MS));
        uint64_t at_ns = harness_now_ns() + attempt * UINT64_C(4000000);
        harness_wait_until(messages_is_past, &at_ns, 1000);
        if (plan.is_killed) {
            assert_harness(harness, harness_kill(harness, 1, SIGKILL));
        } else {
            atomic_store(&shared->word[LET_GO], 1);
        }
        messages_wait(harness, MESSAGES_WAIT_MS, "mapped memory");
        status = (weft_status_t)job_report(harness, 0)->status;
        assert_int_equal(harness_result(harness, 0)->signal, 0);
        assert_int_equal(status, plan.is_killed ? WEFT_ERR_PEER : WEFT_ERR_ABORTED);
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

static void a_put_into_memory_of_a_rank_that_is_killed_fails(void **state)
{
    (void)state;
    check((struct plan){DEED_PUT, true, false});
}

static void a_put_into_memory_that_is_freed_fails(void **state)
{
    (void)state;
    check((struct plan){DEED_PUT, false, false});
}

static void a_get_from_memory_of_a_rank_that_is_killed_fails(void **state)
{
    (void)state;
    check((struct plan){DEED_GET, true, false});
}

static void a_get_from_memory_that_is_freed_fails(void **state)
{
    (void)state;
    check((struct plan){DEED_GET, false, false});
}

static void a_receive_from_memory_that_is_freed_fails(void **state)
{
    (void)state;
    check((struct plan){DEED_RECV, false, false});
}

static void a_receive_from_memory_of_the_same_process_that_is_freed_fails(void **state)
{
    (void)state;
    messages_set("WEFT_CMA", "on");
    messages_set("WEFT_PATH", "shm");
    check((struct plan){DEED_RECV, false, true});
    unsetenv("WEFT_CMA");
}

#define STANDING_MS 700
#define READY 3
#define STANDS 4

/* The first thing between the two: the lane must be opened for it. */
static int put_to_standing(int rank, struct harness_shared *shared, void *arg)
{
    void *memory = NULL;
    weft_mem_t mine, mem[2];
    weft_comm_t comm;
    uint8_t byte = 1;
    weft_status_t status = messages_join(rank, shared, "shm", STANDING_MS, &comm);
    (void)arg;
    status = status == WEFT_OK ? weft_alloc(4096, &memory) : status;
    status = status == WEFT_OK ? weft_mem_register(comm, memory, 4096, &mine) : status;
    status = status == WEFT_OK ? weft_control_allgather(comm, &mine, sizeof(mine), mem) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[READY], 1);
    if (rank == 0) {
        harness_wait_for(&shared->word[STANDS], 1, MESSAGES_WAIT_MS);
        job_calls(0, shared);
        status = weft_put(comm, &mem[1], 0, &byte, 1);
        status = status == WEFT_OK ? weft_quiet(comm) : status;
        job_returned(0, shared, status);
        atomic_store(&shared->word[ENDED], 1);
    } else {
        harness_wait_for(&shared->word[ENDED], 1, MESSAGES_WAIT_MS);
    }
    weft_comm_close(comm);
    weft_free(memory);
    return 0;
}

static void a_put_to_a_rank_that_stands_has_one_deadline(void **state)
{
    struct harness *harness = harness_start(2, put_to_standing, NULL);
    struct harness_shared *shared = harness_shared(harness);
    const struct job_report *report = job_report(harness, 0);
    (void)state;
    assert_harness(harness, harness_wait_for(&shared->word[READY], 2, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_stop(harness, 1));
    atomic_store(&shared->word[STANDS], 1);
    assert_harness(harness, harness_wait_for(&shared->word[ENDED], 1, MESSAGES_WAIT_MS));
    assert_harness(harness, harness_continue(harness, 1));
    messages_wait(harness, MESSAGES_WAIT_MS, "a rank that stands");
    assert_int_equal(report->status, WEFT_ERR_TIMEOUT);
    assert_in_range(report->returned_ns - report->called_ns, STANDING_MS * JOB_MS_NS * 9 / 10,
                    (STANDING_MS + 400 * JOB_SLOWNESS) * JOB_MS_NS);
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_put_into_memory_of_a_rank_that_is_killed_fails),
        cmocka_unit_test(a_put_into_memory_that_is_freed_fails),
        cmocka_unit_test(a_get_from_memory_of_a_rank_that_is_killed_fails),
        cmocka_unit_test(a_get_from_memory_that_is_freed_fails),
        cmocka_unit_test(a_receive_from_memory_that_is_freed_fails),
        cmocka_unit_test(a_receive_from_memory_of_the_same_process_that_is_freed_fails),
        cmocka_unit_test(a_put_to_a_rank_that_stands_has_one_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
