/* SPDX-License-Identifier: Apache-2.0 */
/* What one-sided operations refuse: places nobody lets them touch, handles of elsewhere, wrong
 * arguments; and the life of memory from weft_alloc(). */
#include "unit/api/messages.h"

#define LEN 70000

struct windows {
    uint8_t *memory; /* LEN bytes, guards around them */
    weft_mem_t of[2];
};

static int open_windows(weft_comm_t comm, struct windows *windows, int rank,
                        struct harness_shared *shared)
{
    weft_mem_t mine;
    windows->memory = make_room(LEN);
    EXPECT_OK(weft_mem_register(comm, windows->memory, LEN, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), windows->of));
    return 0;
}

static int close_windows(weft_comm_t comm, struct windows *windows, int rank,
                         struct harness_shared *shared)
{
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(are_guards_whole(windows->memory, LEN));
    EXPECT_OK(weft_mem_deregister(comm, &windows->of[rank]));
    free_room(windows->memory);
    return 0;
}

/* Refused where it is called, or at the latest by the quiet behind it; never done. */
static bool is_refused(weft_comm_t comm, weft_status_t status)
{
    return status == WEFT_ERR_INVALID ||
           (status == WEFT_OK && weft_quiet(comm) == WEFT_ERR_INVALID);
}

/* ---- outside ---- */

static int reach_outside(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t places[][2] = {{LEN, 1},          {LEN - 1, 2},        {0, LEN + 1},
                                       {LEN + 1, 0},      {SIZE_MAX, 1},       {SIZE_MAX - 3, 8},
                                       {8, SIZE_MAX - 3}, {SIZE_MAX, SIZE_MAX}};
    struct windows windows;
    uint8_t *bytes = make_bytes(1, LEN + 1);
    EXPECT_PASS(open_windows(comm, &windows, rank, shared));
    for (int target = 0; target < 2; target++) { /* also one's own */
        const weft_mem_t *mem = &windows.of[target];
        for (size_t i = 0; i < LENS(places); i++) {
            size_t offset = places[i][0], len = places[i][1];
            EXPECT(weft_put(comm, mem, offset, bytes, len) == WEFT_ERR_INVALID);
            EXPECT(weft_get(comm, mem, offset, bytes, len) == WEFT_ERR_INVALID);
            EXPECT(weft_put_signal(comm, mem, offset, bytes, len, mem, 0, 1) == WEFT_ERR_INVALID);
        }
        EXPECT(weft_put_signal(comm, mem, 0, bytes, 8, mem, LEN, 1) == WEFT_ERR_INVALID);
        EXPECT(weft_put_signal(comm, mem, 0, bytes, 8, mem, SIZE_MAX - 7, 1) == WEFT_ERR_INVALID);
        EXPECT(weft_put_signal(comm, mem, 0, bytes, 8, mem, 4, 1) == WEFT_ERR_INVALID);
        EXPECT(weft_put_signal(comm, mem, 0, bytes, 8, &windows.of[1 - target], 0, 1) ==
               WEFT_ERR_INVALID); /* the word of another rank */
    }
    EXPECT_OK(weft_quiet(comm)); /* what was refused at once is not told again */
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(is_untouched(windows.memory, LEN));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_put(comm, &windows.of[1 - rank], LEN - 1, bytes, 1)); /* the last byte is in */
    EXPECT_OK(weft_put(comm, &windows.of[1 - rank], 0, bytes, 0));
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(windows.memory[LEN - 1] == bytes[0] && is_untouched(windows.memory, LEN - 1));
    free(bytes);
    return close_windows(comm, &windows, rank, shared);
}

static void nothing_outside_a_registration_is_touched(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, reach_outside);
}

/* ---- registrations that ended, or are not ours ---- */

/* Two registrations of one memory, of which the first has ended: each handle has its own life. */
static int use_one_of_two(weft_comm_t comm, uint8_t *memory, int rank,
                          struct harness_shared *shared)
{
    static const size_t lens[] = {8, 5000, LEN};
    uint8_t *bytes = make_bytes(1, LEN);
    weft_mem_t mine[2], all[4], *gone = rank == 0 ? &all[2] : &all[0], *there = gone + 1;
    EXPECT_OK(weft_mem_register(comm, memory, LEN, &mine[0]));
    EXPECT_OK(weft_mem_register(comm, memory, LEN, &mine[1]));
    EXPECT_OK(weft_control_allgather(comm, mine, sizeof(mine), all));
    EXPECT_OK(weft_put(comm, gone, 0, bytes, 1)); /* it is known there */
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_mem_deregister(comm, &mine[0]));
    EXPECT(weft_mem_deregister(comm, &mine[0]) == WEFT_ERR_INVALID);
    EXPECT(weft_mem_deregister(comm, there) == WEFT_ERR_INVALID); /* not this rank's */
    memset(memory, GUARD_BYTE, LEN);
    EXPECT_OK(weft_control_barrier(comm));
    for (size_t i = 0; i < LENS(lens); i++) {
        EXPECT(is_refused(comm, weft_put(comm, gone, 0, bytes, lens[i])));
        EXPECT(is_refused(comm, weft_get(comm, gone, 0, bytes, lens[i])));
        EXPECT(is_refused(comm, weft_put_signal(comm, there, 8, bytes, 0, gone, 0, 1)));
    }
    EXPECT(are_bytes(1, bytes, LEN));
    EXPECT_OK(weft_quiet(comm)); /* told once */
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(is_untouched(memory, LEN));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_put(comm, there, 0, bytes, LEN)); /* the other one lives */
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(are_bytes(1, memory, LEN));
    EXPECT_OK(weft_mem_deregister(comm, &mine[1]));
    EXPECT_OK(weft_comm_status(comm));
    free(bytes);
    return 0;
}

static int use_what_was_deregistered(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = NULL, *private = make_room(LEN);
    EXPECT_PASS(use_one_of_two(comm, private, rank, shared));
    EXPECT(are_guards_whole(private, LEN));
    free_room(private);
    EXPECT_OK(weft_alloc(LEN, (void **)&memory));
    EXPECT_PASS(use_one_of_two(comm, memory, rank, shared));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_free(memory));
    return 0;
}

static void a_deregistered_handle_is_refused_and_the_memory_left_alone(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, use_what_was_deregistered);
}

/* "When the data is there": if it was refused, it never is. */
static int signal_without_data(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t lens[] = {8, 5000, LEN};
    struct windows gone, there;
    uint8_t *bytes = make_bytes(1, LEN);
    EXPECT_PASS(open_windows(comm, &gone, rank, shared));
    EXPECT_PASS(open_windows(comm, &there, rank, shared));
    EXPECT_OK(weft_mem_deregister(comm, &gone.of[rank]));
    EXPECT_OK(weft_control_barrier(comm));
    for (size_t i = 0; i < LENS(lens); i++) {
        EXPECT(is_refused(comm, weft_put_signal(comm, &gone.of[1 - rank], 0, bytes, lens[i],
                                                &there.of[1 - rank], 0, 1)));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(is_untouched(gone.memory, LEN));
    EXPECT(is_untouched(there.memory, LEN));
    free(bytes);
    free_room(gone.memory);
    return close_windows(comm, &there, rank, shared);
}

static void a_signal_whose_data_was_refused_is_not_given(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, signal_without_data);
}

#define GETS 60

/* A quiet that reports an error has waited all the same: what was got is there. */
static int get_beside_a_refusal(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct windows gone, there;
    uint8_t *got = allocate((size_t)GETS * LEN);
    EXPECT_PASS(open_windows(comm, &gone, rank, shared));
    EXPECT_PASS(open_windows(comm, &there, rank, shared));
    EXPECT_OK(weft_mem_deregister(comm, &gone.of[rank]));
    fill_bytes(5, there.memory, LEN);
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_put(comm, &gone.of[1 - rank], 0, got, 8));
    for (size_t i = 0; i < GETS; i++) {
        EXPECT_OK(weft_get(comm, &there.of[1 - rank], 0, got + i * LEN, LEN));
    }
    EXPECT(weft_quiet(comm) == WEFT_ERR_INVALID);
    for (size_t i = 0; i < GETS; i++) {
        EXPECT(are_bytes(5, got + i * LEN, LEN));
    }
    EXPECT_OK(weft_quiet(comm));
    free(got);
    free_room(gone.memory);
    return close_windows(comm, &there, rank, shared);
}

static void a_quiet_with_an_error_has_waited_for_the_rest(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, get_beside_a_refusal);
}

/* Once it is deregistered, memory is its owner's again, whatever is still on its way. */
static int deregister_under_fire(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const size_t len = 4 << 20;
    uint8_t *bytes = make_bytes(1, len);
    for (uint32_t round = 1; round <= 8; round++) {
        uint8_t *memory = make_room(len);
        weft_mem_t mem;
        if (rank == 1) {
            EXPECT_OK(weft_mem_register(comm, memory, len, &mem));
        }
        EXPECT_OK(weft_control_broadcast(comm, &mem, sizeof(mem), 1));
        if (rank == 0) {
            weft_status_t status = WEFT_OK;
            for (int i = 0; i < 12 && status == WEFT_OK; i++) {
                status = weft_put(comm, &mem, 0, bytes, len);
                atomic_fetch_add(&shared->word[0], 1);
            }
            status = status == WEFT_OK ? weft_quiet(comm) : status;
            EXPECT(status == WEFT_OK || status == WEFT_ERR_INVALID);
            atomic_store(&shared->word[0], round * 100);
        } else {
            EXPECT(harness_wait_reach(&shared->word[0], (round - 1) * 100 + 3, WAIT_MS));
            EXPECT_OK(weft_mem_deregister(comm, &mem));
            memset(memory, GUARD_BYTE, len);
            EXPECT(harness_wait_reach(&shared->word[0], round * 100, WAIT_MS));
        }
        EXPECT_OK(weft_control_barrier(comm));
        EXPECT(rank == 0 || is_untouched(memory, len));
        free_room(memory);
    }
    free(bytes);
    return 0;
}

static void nothing_is_written_to_deregistered_memory_while_puts_are_on_their_way(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, deregister_under_fire);
}

/* What was refused on one communicator is that one's affair. */
static int refuse_on_one_of_two(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct windows gone, there;
    weft_comm_t second = NULL;
    uint8_t *bytes = make_bytes(1, LEN);
    EXPECT_OK(weft_comm_split(comm, 0, rank, &second));
    EXPECT_PASS(open_windows(comm, &gone, rank, shared));
    EXPECT_PASS(open_windows(second, &there, rank, shared));
    EXPECT_OK(weft_mem_deregister(comm, &gone.of[rank]));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_put(comm, &gone.of[1 - rank], 0, bytes, 8)); /* still on its way */
    EXPECT_OK(weft_put_signal(second, &there.of[1 - rank], 8, bytes, 8, &there.of[1 - rank], 0, 1));
    EXPECT_OK(weft_quiet(second));
    EXPECT(weft_quiet(comm) == WEFT_ERR_INVALID);
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(is_untouched(gone.memory, LEN));
    EXPECT(are_bytes(1, there.memory + 8, 8) && there.memory[0] == GUARD_BYTE + 1);
    free(bytes);
    free_room(gone.memory);
    EXPECT_PASS(close_windows(second, &there, rank, shared));
    EXPECT_OK(weft_comm_close(second));
    return 0;
}

static void a_refusal_is_told_on_its_own_communicator(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, refuse_on_one_of_two);
}

static int use_foreign_handles(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct windows here, there;
    weft_comm_t second = NULL;
    weft_mem_t none;
    uint8_t *bytes = make_bytes(1, LEN);
    EXPECT_OK(weft_comm_split(comm, 0, rank, &second));
    EXPECT_PASS(open_windows(comm, &here, rank, shared));
    EXPECT_PASS(open_windows(second, &there, rank, shared));
    for (int target = 0; target < 2; target++) {
        EXPECT(weft_put(comm, &there.of[target], 0, bytes, 8) == WEFT_ERR_INVALID);
        EXPECT(weft_get(second, &here.of[target], 0, bytes, 8) == WEFT_ERR_INVALID);
        EXPECT(weft_put_signal(comm, &here.of[target], 0, bytes, 8, &there.of[target], 0, 1) ==
               WEFT_ERR_INVALID);
    }
    for (int byte = 0; byte < 256; byte += 5) { /* bytes that nobody made */
        memset(&none, byte, sizeof(none));
        EXPECT(weft_put(comm, &none, 0, bytes, 8) == WEFT_ERR_INVALID);
        EXPECT(weft_get(comm, &none, 0, bytes, 8) == WEFT_ERR_INVALID);
        EXPECT(weft_mem_deregister(comm, &none) == WEFT_ERR_INVALID);
    }
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_quiet(second));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(is_untouched(here.memory, LEN) && is_untouched(there.memory, LEN));
    EXPECT_PASS(close_windows(second, &there, rank, shared));
    EXPECT_OK(weft_comm_close(second));
    free(bytes);
    return close_windows(comm, &here, rank, shared);
}

static void a_handle_of_another_communicator_is_refused(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, use_foreign_handles);
}

static int deregister_elsewhere(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct windows windows;
    weft_comm_t second = NULL;
    uint8_t byte = 1;
    EXPECT_OK(weft_comm_split(comm, 0, rank, &second));
    EXPECT_PASS(open_windows(comm, &windows, rank, shared));
    EXPECT(weft_mem_deregister(second, &windows.of[rank]) == WEFT_ERR_INVALID);
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_put(comm, &windows.of[1 - rank], 0, &byte, 1)); /* it lives */
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(second));
    return close_windows(comm, &windows, rank, shared);
}

static void memory_is_deregistered_only_where_it_was_registered(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, deregister_elsewhere);
}

/* A handle whose bytes were changed on the way is refused, or means the same: nothing crashes and
 * nothing outside the registration is written. */
static int damage_handles(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct windows windows;
    uint8_t *bytes = make_bytes(1, LEN);
    EXPECT_PASS(open_windows(comm, &windows, rank, shared));
    for (size_t i = 0; i < sizeof(weft_mem_t); i++) {
        weft_mem_t damaged = windows.of[1 - rank];
        weft_status_t status;
        damaged.bytes[i] ^= 0x41;
        status = weft_put(comm, &damaged, 0, bytes, 8);
        EXPECT(status == WEFT_OK || status == WEFT_ERR_INVALID);
        status = weft_quiet(comm);
        EXPECT(status == WEFT_OK || status == WEFT_ERR_INVALID);
    }
    EXPECT_OK(weft_put(comm, &windows.of[1 - rank], 100, bytes, 8));
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(are_bytes(1, windows.memory + 100, 8) && is_untouched(windows.memory + 108, LEN - 108));
    free(bytes);
    return close_windows(comm, &windows, rank, shared);
}

static void a_damaged_handle_harms_nobody(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, damage_handles);
}

/* ---- wrong arguments ---- */

static int give_wrong_arguments(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct windows windows;
    const weft_mem_t *mem = &windows.of[1 - rank];
    uint64_t byte = 1;
    const uint64_t *word;
    weft_mem_t made;
    EXPECT_PASS(open_windows(comm, &windows, rank, shared));
    word = (const uint64_t *)(const void *)(windows.memory + (-(uintptr_t)windows.memory & 7));
    EXPECT(weft_mem_register(NULL, &byte, 8, &made) == WEFT_ERR_INVALID);
    EXPECT(weft_mem_register(comm, NULL, 8, &made) == WEFT_ERR_INVALID);
    EXPECT(weft_mem_register(comm, &byte, 8, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_mem_deregister(NULL, mem) == WEFT_ERR_INVALID);
    EXPECT(weft_mem_deregister(comm, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_put(NULL, mem, 0, &byte, 8) == WEFT_ERR_INVALID);
    EXPECT(weft_put(comm, NULL, 0, &byte, 8) == WEFT_ERR_INVALID);
    EXPECT(weft_put(comm, mem, 0, NULL, 8) == WEFT_ERR_INVALID);
    EXPECT(weft_get(NULL, mem, 0, &byte, 8) == WEFT_ERR_INVALID);
    EXPECT(weft_get(comm, NULL, 0, &byte, 8) == WEFT_ERR_INVALID);
    EXPECT(weft_get(comm, mem, 0, NULL, 8) == WEFT_ERR_INVALID);
    EXPECT(weft_put_signal(NULL, mem, 0, &byte, 8, mem, 0, 1) == WEFT_ERR_INVALID);
    EXPECT(weft_put_signal(comm, NULL, 0, &byte, 8, mem, 0, 1) == WEFT_ERR_INVALID);
    EXPECT(weft_put_signal(comm, mem, 0, NULL, 8, mem, 0, 1) == WEFT_ERR_INVALID);
    EXPECT(weft_put_signal(comm, mem, 0, &byte, 8, NULL, 0, 1) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_signal(NULL, word, 1, 0) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_signal(comm, NULL, 1, 0) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_signal(comm, (const uint64_t *)(const void *)((const uint8_t *)word + 4), 1,
                            0) == WEFT_ERR_INVALID);
    EXPECT(weft_fence(NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_quiet(NULL) == WEFT_ERR_INVALID);
    EXPECT_OK(weft_wait_signal(comm, word, 1, 0)); /* it is more than that already */
    EXPECT(weft_wait_signal(comm, word, UINT64_MAX, 10) == WEFT_ERR_TIMEOUT);
    EXPECT_OK(weft_fence(comm));
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_comm_status(comm));
    return close_windows(comm, &windows, rank, shared);
}

/* Memory that would end behind the last address is nobody's. */
static int register_beyond_the_end(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint64_t word;
    weft_mem_t made;
    EXPECT(weft_mem_register(comm, &word, SIZE_MAX, &made) == WEFT_ERR_INVALID);
    return 0;
}

static void memory_beyond_the_last_address_is_not_registered(void **state)
{
    (void)state;
    run_ways(PROCESSES, 1, register_beyond_the_end);
}

static void wrong_arguments_are_invalid_and_harm_nothing(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, give_wrong_arguments);
}

/* ---- memory of Weft ---- */

static int live_with_memory(int rank, struct harness_shared *shared, void *arg)
{
    static const size_t lens[] = {1, 4095, 4096, 4097, 3 << 20};
    uint8_t *memory[LENS(lens)], stack[16], *heap = allocate(8192);
    void *untouched = stack;
    (void)arg;
    for (size_t i = 0; i < LENS(lens); i++) {
        EXPECT_OK(weft_alloc(lens[i], (void **)&memory[i]));
        EXPECT((uintptr_t)memory[i] % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
        for (size_t k = 0; k < lens[i]; k++) {
            EXPECT(memory[i][k] == 0);
        }
        memset(memory[i], (int)i + 1, lens[i]);
    }
    for (size_t i = 0; i < LENS(lens); i++) { /* nobody got another's */
        EXPECT(memory[i][0] == i + 1 && memory[i][lens[i] - 1] == i + 1);
    }
    EXPECT(weft_alloc(0, &untouched) == WEFT_ERR_INVALID);
    EXPECT(weft_alloc(4096, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_alloc((size_t)1 << 60, &untouched) == WEFT_ERR_MEMORY);
    EXPECT(weft_alloc(SIZE_MAX, &untouched) == WEFT_ERR_MEMORY);
    EXPECT(untouched == stack);
    EXPECT(weft_free(stack) == WEFT_ERR_INVALID);
    EXPECT(weft_free(heap) == WEFT_ERR_INVALID);
    EXPECT(weft_free(memory[4] + 4096) == WEFT_ERR_INVALID);
    EXPECT(weft_free(memory[4] + 1) == WEFT_ERR_INVALID);
    EXPECT(memory[4][lens[4] - 1] == 5);
    EXPECT_OK(weft_free(NULL));
    for (size_t i = 0; i < LENS(lens); i++) {
        EXPECT_OK(weft_free(memory[i]));
    }
    if (shared->ranks == 1) { /* among threads another may have got it since */
        EXPECT(weft_free(memory[0]) == WEFT_ERR_INVALID);
    }
    free(heap);
    return 0;
}

static void memory_of_weft_is_zeroed_aligned_and_freed_once(void **state)
{
    (void)state;
    run_processes(1, live_with_memory, NULL);
    run_threads(4, live_with_memory, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_outside_a_registration_is_touched),
        cmocka_unit_test(a_deregistered_handle_is_refused_and_the_memory_left_alone),
        cmocka_unit_test(a_signal_whose_data_was_refused_is_not_given),
        cmocka_unit_test(a_quiet_with_an_error_has_waited_for_the_rest),
        cmocka_unit_test(nothing_is_written_to_deregistered_memory_while_puts_are_on_their_way),
        cmocka_unit_test(a_refusal_is_told_on_its_own_communicator),
        cmocka_unit_test(a_handle_of_another_communicator_is_refused),
        cmocka_unit_test(memory_is_deregistered_only_where_it_was_registered),
        cmocka_unit_test(a_damaged_handle_harms_nobody),
        cmocka_unit_test(wrong_arguments_are_invalid_and_harm_nothing),
        cmocka_unit_test(memory_beyond_the_last_address_is_not_registered),
        cmocka_unit_test(memory_of_weft_is_zeroed_aligned_and_freed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
