/* SPDX-License-Identifier: Apache-2.0 */
/* Counts that no 32-bit number holds, signed or not. Skipped where the memory is not there, and under
 * sanitizers. */
#include "unit/api/collectives.h"

#define PAGE ((size_t)4096)
#define LEN_2G (((size_t)1 << 31) + 2 * PAGE + 5) /* elements: past a signed 32-bit number */
#define LEN_4G (((size_t)1 << 32) + 3 * PAGE + 5)
#define DEADLINE_LONG_MS 100000

static bool is_memory_there(size_t len)
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
    return available_kb / 1024 > (len >> 20) * 5 / 4 + 1024;
}

static uint8_t *map_huge(size_t len)
{
    uint8_t *memory =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    madvise(memory, len, MADV_HUGEPAGE); /* a million page faults would take longer than the rest */
    return memory;
}

/* Every page says which it is, at an odd place; the last byte is there, too. */
static uint8_t *stamp_of(uint8_t *memory, size_t page)
{
    return memory + page * PAGE + 8 * (page % 500);
}

static uint64_t stamp_at(size_t page, uint64_t salt)
{
    return values_mix(page ^ values_mix(salt));
}

static void stamp(uint8_t *memory, size_t len, uint64_t salt)
{
    for (size_t page = 0; page < len / PAGE; page++) {
        uint64_t word = stamp_at(page, salt);
        memcpy(stamp_of(memory, page), &word, sizeof(word));
    }
    memory[len - 1] = (uint8_t)salt;
}

/* Does every page say the stamps of all these salts, xored? */
static bool is_stamped(uint8_t *memory, size_t len, uint64_t first, uint64_t last)
{
    uint8_t end = 0;
    for (size_t page = 0; page < len / PAGE; page++) {
        uint64_t want = 0, word;
        for (uint64_t salt = first; salt <= last; salt++) {
            want ^= stamp_at(page, salt);
        }
        memcpy(&word, stamp_of(memory, page), sizeof(word));
        if (word != want) {
            return false;
        }
    }
    for (uint64_t salt = first; salt <= last; salt++) {
        end ^= (uint8_t)salt;
    }
    return memory[len - 1] == end;
}

static int reduce_huge(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = map_huge(LEN_2G);
    EXPECT(memory != NULL);
    EXPECT_OK(weft_comm_set_timeout(comm, DEADLINE_LONG_MS));
    stamp(memory, LEN_2G, (uint64_t)rank + 1);
    EXPECT_OK(weft_allreduce(comm, memory, memory, LEN_2G, WEFT_U8, WEFT_BXOR, NULL));
    EXPECT(is_stamped(memory, LEN_2G, 1, (uint64_t)shared->ranks));
    munmap(memory, LEN_2G);
    return 0;
}

static int broadcast_huge(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = map_huge(LEN_4G);
    EXPECT(memory != NULL);
    EXPECT_OK(weft_comm_set_timeout(comm, DEADLINE_LONG_MS));
    if (rank == 1) {
        stamp(memory, LEN_4G, 5);
    }
    EXPECT_OK(weft_broadcast(comm, memory, memory, LEN_4G, WEFT_U8, 1, NULL));
    EXPECT(is_stamped(memory, LEN_4G, 5, 5));
    munmap(memory, LEN_4G);
    return 0;
}

/* Each piece is below 2^32 bytes, their sum is not. */
static int gather_huge(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    size_t piece = LEN_2G / PAGE * PAGE;
    uint8_t *memory = map_huge(2 * piece);
    EXPECT(memory != NULL);
    EXPECT_OK(weft_comm_set_timeout(comm, DEADLINE_LONG_MS));
    stamp(memory + (size_t)rank * piece, piece, (uint64_t)rank + 7);
    EXPECT_OK(weft_allgather(comm, memory + (size_t)rank * piece, memory, piece, WEFT_U8, NULL));
    EXPECT(is_stamped(memory, piece, 7, 7) && is_stamped(memory + piece, piece, 8, 8));
    munmap(memory, 2 * piece);
    return 0;
}

static void run_huge(messages_fn fn, size_t len)
{
    if (IS_THREAD_SANITIZED || IS_ADDRESS_SANITIZED || !is_memory_there(2 * len)) {
        skip();
    }
    run_ways(PROCESSES, 2, fn);
}

static void a_reduction_of_more_than_2_to_the_31_elements_is_right(void **state)
{
    (void)state;
    run_huge(reduce_huge, LEN_2G);
}

static void a_broadcast_of_more_than_2_to_the_32_elements_is_right(void **state)
{
    (void)state;
    run_huge(broadcast_huge, LEN_4G);
}

static void pieces_of_more_than_2_to_the_31_elements_are_right(void **state)
{
    (void)state;
    run_huge(gather_huge, LEN_4G);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reduction_of_more_than_2_to_the_31_elements_is_right),
        cmocka_unit_test(a_broadcast_of_more_than_2_to_the_32_elements_is_right),
        cmocka_unit_test(pieces_of_more_than_2_to_the_31_elements_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
