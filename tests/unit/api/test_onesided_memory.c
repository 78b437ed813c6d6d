/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of weft_alloc() that other ranks may reach: how much of it can be registered, and that it stays as long
 * as it is. */
#include "unit/api/messages.h"

#define LEN 100

static int keep_what_is_registered(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const char words[] = "it is all there";
    uint8_t *memory = NULL;
    weft_mem_t mems[2], theirs[2];
    EXPECT_OK(weft_alloc(LEN, (void **)&memory));
    EXPECT_OK(weft_mem_register(comm, memory, LEN, &mems[0]));
    EXPECT_OK(weft_mem_register(comm, memory + 8, 8, &mems[1]));
    EXPECT(weft_free(memory) == WEFT_ERR_BUSY);
    EXPECT(strstr(weft_error_text(), "weft_mem_deregister") != NULL);
    EXPECT_OK(weft_mem_deregister(comm, &mems[1]));
    EXPECT(weft_free(memory) == WEFT_ERR_BUSY);
    EXPECT_OK(weft_control_allgather(comm, &mems[0], sizeof(mems[0]), theirs));
    EXPECT_OK(weft_put(comm, &theirs[1 - rank], 0, words, sizeof(words)));
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(memcmp(memory, words, sizeof(words)) == 0);
    EXPECT_OK(weft_mem_deregister(comm, &mems[0]));
    EXPECT_OK(weft_free(memory));
    return 0;
}

static void registered_memory_is_not_freed(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, keep_what_is_registered);
}

static int close_over_registration(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    void *memory = NULL;
    weft_mem_t mem;
    (void)arg;
    EXPECT_OK(weft_alloc(LEN, &memory));
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    EXPECT_OK(weft_mem_register(comm, memory, LEN, &mem));
    EXPECT_OK(weft_comm_close(comm));
    EXPECT_OK(weft_free(memory));
    return 0;
}

static void a_communicator_that_closes_lets_its_memory_go(void **state)
{
    (void)state;
    run_bodies(SHM_PROCESSES, 2, close_over_registration);
}

static int register_too_much(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = NULL;
    weft_mem_t mem;
    (void)rank;
    EXPECT_OK(weft_alloc(LEN, (void **)&memory));
    EXPECT(weft_mem_register(comm, memory, 1 << 20, &mem) == WEFT_ERR_INVALID);
    EXPECT(weft_mem_register(comm, memory, LEN + 1, &mem) == WEFT_ERR_INVALID);
    EXPECT(weft_mem_register(comm, memory + 1, LEN, &mem) == WEFT_ERR_INVALID);
    EXPECT_OK(weft_free(memory)); /* what was refused holds nothing */
    return 0;
}

static void no_more_is_registered_than_was_allocated(void **state)
{
    (void)state;
    run_ways(SHM_PROCESSES, 1, register_too_much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registered_memory_is_not_freed),
        cmocka_unit_test(a_communicator_that_closes_lets_its_memory_go),
        cmocka_unit_test(no_more_is_registered_than_was_allocated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
