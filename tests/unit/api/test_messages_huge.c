/* SPDX-License-Identifier: Apache-2.0 */
/* One message, one put and one get of more than 4 GiB: lengths and offsets that no 32-bit number
 * holds. Skipped where the memory for both sides is not there, and under sanitizers. */
#include "unit/api/messages.h"

#include <sys/mman.h>

#define TAG 17
#define PAGE ((size_t)4096)
#define LEN (((size_t)4 << 30) + 3 * PAGE + 5)
#define DEADLINE_LONG_MS 50000

static bool is_memory_there(void)
{
    unsigned long long available_kb = 0;
    char line[128];
    FILE *info = fopen("/proc/meminfo", "r");
    if (info == NULL) {
        return false;
    }
    while (fgets(line, sizeof(line), info) != NULL) {
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            available_kb = strtoull(line + 13, NULL, 10);
        }
    }
    fclose(info);
    return available_kb / 1024 > 5 * (LEN >> 20) / 2;
}

static uint8_t *map_huge(void)
{
    uint8_t *memory =
        mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    madvise(memory, LEN, MADV_HUGEPAGE); /* a million page faults would take longer than the rest */
    return memory;
}

/* Every page says which it is, at an odd place; the last byte is there, too. */
static uint64_t *stamp_of(uint8_t *memory, size_t page)
{
    return (uint64_t *)(void *)(memory + page * PAGE + 8 * (page % 500));
}

static void stamp(uint8_t *memory, uint64_t salt)
{
    for (size_t page = 0; page < LEN / PAGE; page++) {
        *stamp_of(memory, page) = mix(page ^ salt);
    }
    memory[LEN - 1] = (uint8_t)salt;
}

static bool is_stamped(uint8_t *memory, uint64_t salt)
{
    for (size_t page = 0; page < LEN / PAGE; page++) {
        if (*stamp_of(memory, page) != mix(page ^ salt)) {
            return false;
        }
    }
    return memory[LEN - 1] == (uint8_t)salt;
}

static int send_huge(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = map_huge();
    weft_message_t message = {-7, -7, 77};
    EXPECT(memory != NULL);
    EXPECT_OK(weft_comm_set_timeout(comm, DEADLINE_LONG_MS));
    if (rank == 0) {
        stamp(memory, 1);
        EXPECT_OK(weft_send(comm, memory, LEN, 1, TAG, NULL));
    } else {
        EXPECT_OK(weft_recv(comm, memory, LEN, 0, TAG, &message, NULL));
        EXPECT(message.source == 0 && message.tag == TAG && message.len == LEN);
        EXPECT(is_stamped(memory, 1));
    }
    munmap(memory, LEN);
    return 0;
}

static int put_huge(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = map_huge();
    weft_mem_t mine, all[2];
    EXPECT(memory != NULL);
    EXPECT_OK(weft_comm_set_timeout(comm, DEADLINE_LONG_MS));
    EXPECT_OK(weft_mem_register(comm, memory, LEN, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), all));
    if (rank == 0) {
        stamp(memory, 2);
        EXPECT_OK(weft_put(comm, &all[1], 0, memory, LEN));
        EXPECT_OK(weft_quiet(comm));
        EXPECT(madvise(memory, LEN, MADV_DONTNEED) == 0); /* all zero again */
        EXPECT_OK(weft_get(comm, &all[1], 0, memory, LEN));
        EXPECT_OK(weft_quiet(comm));
        EXPECT(is_stamped(memory, 2));
        atomic_store(&shared->word[0], 1);
    } else { /* longer than a barrier may take: wait without Weft */
        EXPECT(harness_wait_for(&shared->word[0], 1, DEADLINE_LONG_MS));
        EXPECT(is_stamped(memory, 2));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_mem_deregister(comm, &mine));
    munmap(memory, LEN);
    return 0;
}

static void run_huge(messages_fn fn)
{
    if (IS_THREAD_SANITIZED || IS_ADDRESS_SANITIZED || !is_memory_there()) {
        skip();
    }
    run_ways(PROCESSES, 2, fn);
}

static void a_message_of_more_than_4_gib_arrives_whole(void **state)
{
    (void)state;
    run_huge(send_huge);
}

static void a_put_and_a_get_of_more_than_4_gib_arrive_whole(void **state)
{
    (void)state;
    run_huge(put_huge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_of_more_than_4_gib_arrives_whole),
        cmocka_unit_test(a_put_and_a_get_of_more_than_4_gib_arrive_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
