/* SPDX-License-Identifier: Apache-2.0 */
/* A collective that has everything it needs, and only copies and adds, still ends at its deadline. */
#include "unit/api/collectives.h"

#define LEN ((size_t)48 << 20) /* far more than a core moves within a millisecond */

struct work {
    weft_coll_t coll;
    weft_dtype_t dtype;
    enum memory memory;
    bool is_begun; /* and waited for, instead of blocking */
};

static weft_status_t call(weft_comm_t comm, const struct work *work, uint32_t timeout_ms,
                          const struct desk *desk)
{
    weft_call_t call = WEFT_CALL_INIT;
    weft_request_t request = NULL;
    weft_status_t status;
    int ranks = 1;
    weft_comm_ranks(comm, &ranks);
    call.coll = work->coll;
    call.dtype = work->dtype;
    call.in = desk->in;
    call.out = desk->out;
    call.count = LEN / weft_dtype_size(work->dtype);
    call.count /= work->coll == WEFT_ALLTOALL ? (size_t)ranks : 1;
    call.timeout_ms = timeout_ms;
    status = weft_collective(comm, &call, work->is_begun ? &request : NULL);
    return status == WEFT_OK ? weft_wait(&request, WAIT_MS) : status;
}

/* Its communicator fails with it; the others do not. */
static int run_work(weft_comm_t comm, const struct work *work, int rank,
                    struct harness_shared *shared)
{
    struct desk desk;
    weft_comm_t again = NULL;
    char text[512];
    EXPECT_OK(weft_comm_duplicate(comm, &again));
    desk_open(&desk, LEN, work->memory, work->memory);
    EXPECT_OK(weft_barrier(again, NULL)); /* making ready takes its time, too */
    weft_status_t status = call(again, work, 1, &desk);
    snprintf(text, sizeof(text), "%s", weft_error_text());
    desk_close(&desk);
    if (status != WEFT_ERR_TIMEOUT || strstr(text, "within 1 ms") == NULL) {
        return harness_say(shared, rank, FAILED, "%s: %s: %s", weft_coll_name(work->coll),
                           weft_status_name(status), status != WEFT_OK ? text : "");
    }
    EXPECT_OK(weft_comm_close(again));
    return 0;
}

static int run_blocking(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const struct work works[] = {
        {WEFT_ALLREDUCE, WEFT_F32, MEMORY_PRIVATE, false},
        {WEFT_ALLREDUCE, WEFT_F32, MEMORY_SHARED, false},
        {WEFT_ALLREDUCE, WEFT_BF16, MEMORY_PRIVATE, false},
        {WEFT_ALLTOALL, WEFT_U8, MEMORY_PRIVATE, false},
        {WEFT_ALLTOALL, WEFT_U8, MEMORY_SHARED, false},
    };
    for (size_t i = 0; i < LENS(works); i++) {
        EXPECT_PASS(run_work(comm, &works[i], rank, shared));
    }
    return 0;
}

static void work_without_waiting_ends_at_the_deadline(void **state)
{
    (void)state;
    run_ways(SHM_PROCESSES, 1, run_blocking);
    run_ways(EVERY_WAY, 2, run_blocking);
}

static int run_begun(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const struct work work = {WEFT_ALLREDUCE, WEFT_F32, MEMORY_PRIVATE, true};
    return run_work(comm, &work, rank, shared);
}

static void work_that_was_begun_ends_at_the_deadline(void **state)
{
    (void)state;
    run_ways(SHM_PROCESSES, 1, run_begun);
    run_ways(PROCESSES, 2, run_begun);
}

/* Nothing is stopped that has the time. */
static int run_long(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const struct work work = {WEFT_ALLREDUCE, WEFT_F32, MEMORY_PRIVATE, false};
    struct desk desk;
    desk_open(&desk, LEN, work.memory, work.memory);
    memset(desk.in, 0x3f, LEN); /* 0.747059… */
    EXPECT_OK(call(comm, &work, WAIT_MS, &desk));
    for (size_t i = 0; i < LEN / sizeof(float); i += 1023) {
        const float *in = (const float *)(const void *)desk.in;
        EXPECT(((const float *)(const void *)desk.out)[i] == in[i] + in[i]);
    }
    desk_close(&desk);
    return 0;
}

static void work_within_its_time_is_done(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_long);
}

/* The first call of a communicator, which met and was refused then: the next one has all its time. */
#define REFUSED_MS 2000

static bool is_past(void *until_ns)
{
    return harness_now_ns() >= *(const uint64_t *)until_ns;
}

static void let_pass(unsigned ms)
{
    uint64_t until_ns = harness_now_ns() + ms * UINT64_C(1000000);
    harness_wait_until(is_past, &until_ns, WAIT_MS);
}

static int run_refused(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_call_t call = WEFT_CALL_INIT;
    weft_comm_t again = NULL;
    int in = 1, out = 0;
    EXPECT_OK(weft_comm_duplicate(comm, &again));
    EXPECT_OK(weft_comm_set_timeout(again, REFUSED_MS));
    call.coll = WEFT_ALLREDUCE;
    call.dtype = WEFT_I32;
    call.in = &in;
    call.out = &out;
    call.count = 1;
    call.algorithm = "hierarchical"; /* there is one host */
    EXPECT(weft_collective(again, &call, NULL) == WEFT_ERR_UNSUPPORTED);
    let_pass(rank == 0 ? REFUSED_MS + 600 : REFUSED_MS + 100); /* so that one of them waits */
    EXPECT_OK(weft_barrier(again, NULL));
    EXPECT_OK(weft_comm_close(again));
    return 0;
}

static void a_refused_first_call_takes_nothing_from_the_next_one(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_without_waiting_ends_at_the_deadline),
        cmocka_unit_test(work_that_was_begun_ends_at_the_deadline),
        cmocka_unit_test(work_within_its_time_is_done),
        cmocka_unit_test(a_refused_first_call_takes_nothing_from_the_next_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
