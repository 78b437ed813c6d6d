/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of puts and gets is lent until quiet. When the communicator ends meanwhile, quiet fails; but
 * when it has returned, nothing touches that memory any more: it can be taken away at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <sys/mman.h>

#define LEN ((size_t)4 << 20)
#define ATTEMPTS 6

#define ROUNDS 0
#define LET_GO 1 /* rank 1 gives up */
#define ENDED 2  /* rank 0 has seen it */
#define CLOSED 3 /* rank 1 has closed */

struct plan {
    const char *path;
    bool is_get;
    bool is_killed; /* rank 1; otherwise it aborts */
};

static int put_or_get_until_it_fails(weft_comm_t comm, struct harness_shared *shared,
                                     const struct plan *plan, const weft_mem_t *mem)
{
    bool is_get = plan->is_get;
    void *data = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    weft_status_t status = data != MAP_FAILED ? WEFT_OK : WEFT_ERR_MEMORY;
    for (uint32_t i = 1; status == WEFT_OK; i++) {
        status = is_get ? weft_get(comm, mem, 0, data, LEN) : weft_put(comm, mem, 0, data, LEN);
        status = status == WEFT_OK && i % 8 == 0 ? weft_quiet(comm) : status;
        atomic_store(&shared->word[ROUNDS], i);
    }
    job_returned(0, shared, status);
    if (weft_quiet(comm) == WEFT_OK) {
        return harness_say(shared, 0, -1, "quiet has nothing to say");
    }
    munmap(data, LEN);
    atomic_store(&shared->word[ENDED], 1);
    if (!plan->is_killed) {
        harness_wait_for(&shared->word[CLOSED], 1, MESSAGES_WAIT_MS);
    }
    weft_comm_close(comm); /* what was left to copy is copied now at the latest */
    return 0;
}

static bool is_let_go(void *arg)
{
    return atomic_load(&((struct harness_shared *)arg)->word[LET_GO]) != 0;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    uint8_t *memory = messages_buffer(LEN);
    weft_mem_t mine, mem[2];
    weft_comm_t comm;
    int result = 0;
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? weft_mem_register(comm, memory, LEN, &mine) : status;
    status = status == WEFT_OK ? weft_control_allgather(comm, &mine, sizeof(mine), mem) : status;
    if (status != WEFT_OK) {
        free(memory);
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    if (rank == 0) {
        result = put_or_get_until_it_fails(comm, shared, plan, &mem[1]);
    } else {
        harness_wait_until(is_let_go, shared, MESSAGES_WAIT_MS);
        weft_abort(comm, "rank 1 has enough");
        harness_wait_for(&shared->word[ENDED], 1, MESSAGES_WAIT_MS);
        weft_comm_close(comm);
        atomic_store(&shared->word[CLOSED], 1);
    }
    free(memory);
    return result;
}

static void check(struct plan plan)
{
    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct harness *harness = harness_start(2, body, &plan);
        struct harness_shared *shared = harness_shared(harness);
        assert_harness(harness,
                       harness_wait_reach(&shared->word[ROUNDS], 9 + attempt, MESSAGES_WAIT_MS));
        if (plan.is_killed) {
            assert_harness(harness, harness_kill(harness, 1, SIGKILL));
        } else {
            atomic_store(&shared->word[LET_GO], 1);
        }
        messages_wait(harness, MESSAGES_WAIT_MS, plan.path);
        assert_int_equal(harness_result(harness, 0)->signal, 0);
        assert_int_equal(job_report(harness, 0)->status,
                         plan.is_killed ? WEFT_ERR_PEER : WEFT_ERR_ABORTED);
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
    }
}

static void memory_of_puts_is_free_after_a_failed_quiet(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        check((struct plan){messages_paths[path], false, false});
        check((struct plan){messages_paths[path], false, true});
    }
}

static void memory_of_gets_is_free_after_a_failed_quiet(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        check((struct plan){messages_paths[path], true, false});
        check((struct plan){messages_paths[path], true, true});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_puts_is_free_after_a_failed_quiet),
        cmocka_unit_test(memory_of_gets_is_free_after_a_failed_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
