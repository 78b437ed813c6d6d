/* SPDX-License-Identifier: Apache-2.0 */
/* Puts and gets as their header describes them: into memory of either kind, to ranks that compute,
 * with signals that count exactly, and never where nobody let them. */
#include "unit/api/messages.h"

#define LONGEST ((9u << 20) + 5)
#define WINDOW (LONGEST + 3 * GUARD_LEN)
#define RANKS_MAX 4

/* Memory of one rank that all the others know. */
struct window {
    uint8_t *memory;
    size_t len;
    bool is_shared; /* of weft_alloc() */
    weft_mem_t mine, of[RANKS_MAX];
};

static int window_open(weft_comm_t comm, bool is_shared, size_t len, struct window *window,
                       int rank, struct harness_shared *shared)
{
    window->len = len;
    window->is_shared = is_shared;
    if (is_shared) {
        EXPECT_OK(weft_alloc(len, (void **)&window->memory));
    } else {
        window->memory = allocate(len);
    }
    memset(window->memory, GUARD_BYTE, len);
    EXPECT_OK(weft_mem_register(comm, window->memory, len, &window->mine));
    EXPECT_OK(weft_control_allgather(comm, &window->mine, sizeof(weft_mem_t), window->of));
    return 0;
}

static int window_close(weft_comm_t comm, struct window *window, int rank,
                        struct harness_shared *shared)
{
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_mem_deregister(comm, &window->mine));
    if (window->is_shared) {
        EXPECT_OK(weft_free(window->memory));
    } else {
        free(window->memory);
    }
    return 0;
}

/* ---- puts and gets ---- */

/* Rank 0 puts, rank 1 looks, rank 0 gets it back; both local and remote memory of either kind. */
static int put_and_get(weft_comm_t comm, const struct window *window, size_t len, uint8_t *local,
                       int rank, struct harness_shared *shared)
{
    size_t offset = GUARD_LEN + len % 7; /* not always aligned */
    uint64_t seed = mix(len);
    if (rank == 0) {
        fill_bytes(seed, local, len);
        EXPECT_OK(weft_put(comm, &window->of[1], offset, local, len));
        EXPECT_OK(weft_quiet(comm));
        memset(local, 0, len); /* ours again */
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 1) {
        EXPECT(are_bytes(seed, window->memory + offset, len));
        EXPECT(is_untouched(window->memory, offset));
        EXPECT(is_untouched(window->memory + offset + len, GUARD_LEN));
    } else {
        memset(local + len, GUARD_BYTE, GUARD_LEN);
        EXPECT_OK(weft_get(comm, &window->of[1], offset, local, len));
        EXPECT_OK(weft_quiet(comm));
        EXPECT(are_bytes(seed, local, len) && is_untouched(local + len, GUARD_LEN));
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 1) {
        memset(window->memory, GUARD_BYTE, offset + len + GUARD_LEN);
    }
    EXPECT_OK(weft_control_barrier(comm));
    return 0;
}

static int put_and_get_every_size(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *local = NULL, *private = allocate(WINDOW);
    EXPECT_OK(weft_alloc(WINDOW, (void **)&local));
    for (int is_shared = 0; is_shared <= 1; is_shared++) {
        struct window window;
        EXPECT_PASS(window_open(comm, is_shared == 1, WINDOW, &window, rank, shared));
        for (size_t i = 0; i < LENS(message_lens); i++) {
            EXPECT_PASS(put_and_get(comm, &window, message_lens[i], local, rank, shared));
            EXPECT_PASS(put_and_get(comm, &window, message_lens[i], private, rank, shared));
        }
        EXPECT_PASS(window_close(comm, &window, rank, shared));
    }
    EXPECT_OK(weft_free(local));
    free(private);
    return 0;
}

static void puts_and_gets_of_every_size_arrive_whole(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, put_and_get_every_size);
}

/* Rank 1 spins outside of Weft until rank 0 says that it is through. */
static int serve_while_computing(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t lens[] = {8, 5000, 100000, 1 << 20};
    struct window window;
    uint8_t *local = allocate(1 << 20);
    EXPECT_PASS(window_open(comm, false, 1 << 20, &window, rank, shared));
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 1) {
        uint64_t begin_ns = harness_now_ns(), end_ns = begin_ns + WAIT_MS * UINT64_C(1000000);
        while (harness_now_ns() < begin_ns + UINT64_C(50000000) ||
               (atomic_load(&shared->word[0]) == 0 && harness_now_ns() < end_ns)) {
        }
        EXPECT(atomic_load(&shared->word[0]) == 1);
    } else {
        for (size_t i = 0; i < LENS(lens); i++) {
            fill_bytes(i, local, lens[i]);
            EXPECT_OK(weft_put(comm, &window.of[1], 0, local, lens[i]));
            EXPECT_OK(weft_quiet(comm));
            memset(local, 0, lens[i]);
            EXPECT_OK(weft_get(comm, &window.of[1], 0, local, lens[i]));
            EXPECT_OK(weft_quiet(comm));
            EXPECT(are_bytes(i, local, lens[i]));
        }
        atomic_store(&shared->word[0], 1);
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(rank == 0 || are_bytes(3, window.memory, 1 << 20));
    free(local);
    return window_close(comm, &window, rank, shared);
}

static void a_rank_that_computes_is_put_to_and_got_from(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, serve_while_computing);
}

#define MANY ((size_t)5000)

/* More in flight than anything can hold, to oneself and to the other, before one quiet. */
static int put_many(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint64_t *values = allocate(MANY * sizeof(uint64_t)), *got = allocate(MANY * sizeof(uint64_t));
    struct window window;
    EXPECT_PASS(window_open(comm, false, 2 * MANY * sizeof(uint64_t), &window, rank, shared));
    for (size_t i = 0; i < MANY; i++) {
        values[i] = mix((uint64_t)rank * MANY + i);
        for (size_t to = 0; to < 2; to++) {
            EXPECT_OK(weft_put(comm, &window.of[to], ((size_t)rank * MANY + i) * 8, &values[i], 8));
        }
    }
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    for (size_t i = 0; i < 2 * MANY; i++) {
        EXPECT(((uint64_t *)(void *)window.memory)[i] == mix(i));
    }
    for (size_t i = 0; i < MANY; i++) {
        EXPECT_OK(weft_get(comm, &window.of[1 - rank], (MANY - 1 - i) * 8, &got[i], 8));
    }
    EXPECT_OK(weft_quiet(comm));
    for (size_t i = 0; i < MANY; i++) {
        EXPECT(got[i] == mix(MANY - 1 - i));
    }
    free(values);
    free(got);
    return window_close(comm, &window, rank, shared);
}

static void thousands_of_puts_and_gets_are_there_after_one_quiet(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, put_many);
}

/* ---- signals ---- */

#define SLOTS ((size_t)40)
#define SLOT_LEN ((size_t)20000)

/* When the count says so, the data is there: every sender's slots, in its order. */
static int signal_data(weft_comm_t comm, bool is_shared, int rank, struct harness_shared *shared)
{
    size_t len = SLOTS * SLOT_LEN, words = (size_t)8 * RANKS_MAX;
    struct window data, counts;
    uint8_t *bytes = allocate(len);
    EXPECT_PASS(window_open(comm, is_shared, len * 3, &data, rank, shared));
    EXPECT_PASS(window_open(comm, is_shared, words, &counts, rank, shared));
    memset(counts.memory, 0, words);
    EXPECT_OK(weft_control_barrier(comm));
    for (size_t i = 0; i < SLOTS && rank != 0; i++) {
        size_t at = (size_t)(rank - 1) * len + i * SLOT_LEN, slot = i % 3 == 0 ? 8 : SLOT_LEN;
        fill_bytes(seed_of(rank, 0, (int)i), bytes + i * SLOT_LEN, slot);
        EXPECT_OK(weft_put_signal(comm, &data.of[0], at, bytes + i * SLOT_LEN, slot, &counts.of[0],
                                  (size_t)rank * 8, (UINT64_C(1) << 40) + 1));
    }
    for (size_t i = 0; i < SLOTS && rank == 0; i++) {
        for (int source = 1; source < shared->ranks; source++) {
            const uint64_t *word = (const uint64_t *)(const void *)counts.memory + source;
            size_t at = (size_t)(source - 1) * len + i * SLOT_LEN, slot = i % 3 == 0 ? 8 : SLOT_LEN;
            EXPECT_OK(weft_wait_signal(comm, word, (i + 1) * ((UINT64_C(1) << 40) + 1), WAIT_MS));
            if (i + 1 == SLOTS) { /* all of this rank's, whatever came first */
                EXPECT(*word == SLOTS * ((UINT64_C(1) << 40) + 1));
                EXPECT(are_bytes(seed_of(source, 0, (int)i), data.memory + at, slot));
            }
        }
    }
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    for (size_t i = 0; i < SLOTS * 3 && rank == 0; i++) {
        size_t slot = i % SLOTS % 3 == 0 ? 8 : SLOT_LEN;
        EXPECT(are_bytes(seed_of((int)(i / SLOTS) + 1, 0, (int)(i % SLOTS)),
                         data.memory + i * SLOT_LEN, slot));
    }
    free(bytes);
    EXPECT_PASS(window_close(comm, &counts, rank, shared));
    return window_close(comm, &data, rank, shared);
}

static int signal_private(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    return signal_data(comm, false, rank, shared);
}

static int signal_shared(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    return signal_data(comm, true, rank, shared);
}

static void signals_of_three_ranks_come_after_their_data(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 4, signal_private);
    run_ways(EVERY_WAY, 4, signal_shared);
}

/* One put_signal at a time: the word moves only when the bytes are there. */
static int signal_each_size(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int is_shared = 0; is_shared <= 1; is_shared++) {
        struct window window;
        uint8_t *bytes = allocate(LONGEST);
        const uint64_t *word;
        EXPECT_PASS(window_open(comm, is_shared == 1, WINDOW, &window, rank, shared));
        word = (const uint64_t *)(const void *)window.memory;
        memset(window.memory, 0, 8);
        EXPECT_OK(weft_control_barrier(comm));
        for (uint64_t i = 0; i < LENS(message_lens); i++) {
            size_t len = message_lens[i];
            if (rank == 0) {
                fill_bytes(i, bytes, len);
                EXPECT_OK(weft_put_signal(comm, &window.of[1], GUARD_LEN, bytes, len, &window.of[1],
                                          0, 1));
                EXPECT_OK(weft_quiet(comm));
            } else {
                EXPECT_OK(weft_wait_signal(comm, word, i + 1, WAIT_MS));
                EXPECT(*word == i + 1 && are_bytes(i, window.memory + GUARD_LEN, len));
                EXPECT(weft_wait_signal(comm, word, i + 2, 1) == WEFT_ERR_TIMEOUT);
            }
            EXPECT_OK(weft_control_barrier(comm)); /* or the next would overwrite it */
        }
        EXPECT_OK(weft_comm_status(comm));
        free(bytes);
        EXPECT_PASS(window_close(comm, &window, rank, shared));
    }
    return 0;
}

static void a_signal_comes_once_and_when_the_bytes_are_there(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, signal_each_size);
}

/* Four threads of each of four ranks add to one word, in every way that there is. */
struct adder {
    weft_comm_t comm;
    const weft_mem_t *mem;
    size_t offset; /* where its data goes */
    weft_status_t status;
    pthread_t thread;
};

static void *add_signals(void *arg)
{
    struct adder *adder = arg;
    uint64_t zero = 0;
    for (int i = 0; i < 200 && adder->status == WEFT_OK; i++) {
        adder->status = weft_put_signal(adder->comm, adder->mem, adder->offset, &zero,
                                        i % 2 == 0 ? 8 : 0, adder->mem, 0, 3);
    }
    return NULL;
}

static int add_from_everywhere(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int is_shared = 0; is_shared <= 1; is_shared++) {
        uint64_t want = UINT64_C(3) * 200 * 4 * (uint64_t)shared->ranks;
        struct adder adders[4];
        struct window window;
        EXPECT_PASS(window_open(comm, is_shared == 1, 8 + 16 * 8, &window, rank, shared));
        memset(window.memory, 0, 8);
        EXPECT_OK(weft_control_barrier(comm));
        for (int i = 0; i < 4; i++) {
            adders[i] = (struct adder){
                .comm = comm, .mem = &window.of[0], .offset = 8 + 8 * (size_t)(4 * rank + i)};
            EXPECT(pthread_create(&adders[i].thread, NULL, add_signals, &adders[i]) == 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(adders[i].thread, NULL);
            EXPECT(adders[i].status == WEFT_OK);
        }
        EXPECT_OK(weft_quiet(comm));
        EXPECT_OK(weft_control_barrier(comm));
        EXPECT(rank != 0 || *(uint64_t *)(void *)window.memory == want);
        EXPECT_PASS(window_close(comm, &window, rank, shared));
    }
    return 0;
}

static void signals_of_all_threads_of_all_ranks_are_counted_exactly(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 4, add_from_everywhere);
}

/* ---- quiet ---- */

#define QUIET_TURNS 3000
#define QUIET_LEN ((size_t)12000) /* so that a quiet takes a while */

/* Puts, is quiet, and looks into the target's memory, which the ranks of this test share. */
struct looker {
    weft_comm_t comm;
    const weft_mem_t *mem;
    const uint8_t *memory;
    size_t offset;
    weft_status_t status;
    int missing; /* puts that were not there */
    pthread_t thread;
};

static void *put_and_look(void *arg)
{
    struct looker *looker = arg;
    uint8_t bytes[QUIET_LEN];
    const volatile uint8_t *last = looker->memory + looker->offset + QUIET_LEN - 1;
    for (int i = 1; i <= QUIET_TURNS && looker->status == WEFT_OK; i++) {
        memset(bytes, i, sizeof(bytes));
        looker->status = weft_put(looker->comm, looker->mem, looker->offset, bytes, sizeof(bytes));
        if (looker->status == WEFT_OK) {
            looker->status = weft_quiet(looker->comm);
        }
        looker->missing += *last != (uint8_t)i;
    }
    return NULL;
}

/* A thread's quiet is about its own puts, also while another thread waits in one. */
static int be_quiet_in_threads(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = shared->scratch + HARNESS_SCRATCH_LEN - 4 * QUIET_LEN; /* behind the id */
    weft_mem_t mem;
    EXPECT_OK(weft_mem_register(comm, memory, 4 * QUIET_LEN, &mem));
    EXPECT_OK(weft_control_broadcast(comm, &mem, sizeof(mem), 1));
    if (rank == 0) {
        struct looker lookers[4];
        for (size_t i = 0; i < 4; i++) {
            lookers[i] = (struct looker){
                .comm = comm, .mem = &mem, .memory = memory, .offset = i * QUIET_LEN};
            EXPECT(pthread_create(&lookers[i].thread, NULL, put_and_look, &lookers[i]) == 0);
        }
        for (size_t i = 0; i < 4; i++) {
            pthread_join(lookers[i].thread, NULL);
        }
        for (size_t i = 0; i < 4; i++) {
            EXPECT(lookers[i].status == WEFT_OK && lookers[i].missing == 0);
        }
    }
    return 0;
}

static void a_quiet_of_one_thread_does_not_end_before_its_own_puts(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, be_quiet_in_threads);
}

/* ---- fence ---- */

/* A long put, a fence, a short one: whoever sees the short one has the long one. */
static int fence_each(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const size_t len = (2 << 20) + 1;
    for (int is_shared = 0; is_shared <= 1; is_shared++) {
        struct window window;
        uint8_t *bytes = allocate(len);
        EXPECT_PASS(window_open(comm, is_shared == 1, len + 64, &window, rank, shared));
        memset(window.memory, 0, 8);
        for (uint64_t i = 1; i <= 10; i++) {
            const _Atomic uint64_t *word = (const _Atomic uint64_t *)(const void *)window.memory;
            uint64_t deadline_ns = harness_now_ns() + WAIT_MS * UINT64_C(1000000);
            EXPECT_OK(weft_control_barrier(comm));
            if (rank == 0) {
                fill_bytes(i, bytes, len);
                EXPECT_OK(weft_put(comm, &window.of[1], 64, bytes, len));
                EXPECT_OK(weft_fence(comm));
                EXPECT_OK(weft_put(comm, &window.of[1], 0, &i, 8));
                EXPECT_OK(weft_quiet(comm));
            } else if (i % 2 == 0 || IS_THREAD_SANITIZED) {
                EXPECT_OK(weft_wait_signal(comm, (const uint64_t *)word, i, WAIT_MS));
                EXPECT(are_bytes(i, window.memory + 64, len));
            } else { /* without a call into Weft */
                while (atomic_load(word) != i && harness_now_ns() < deadline_ns) {
                }
                EXPECT(are_bytes(i, window.memory + 64, len));
            }
        }
        free(bytes);
        EXPECT_PASS(window_close(comm, &window, rank, shared));
    }
    return 0;
}

static void what_is_put_after_a_fence_is_there_after_what_was_put_before(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, fence_each);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_and_gets_of_every_size_arrive_whole),
        cmocka_unit_test(a_rank_that_computes_is_put_to_and_got_from),
        cmocka_unit_test(thousands_of_puts_and_gets_are_there_after_one_quiet),
        cmocka_unit_test(signals_of_three_ranks_come_after_their_data),
        cmocka_unit_test(a_signal_comes_once_and_when_the_bytes_are_there),
        cmocka_unit_test(signals_of_all_threads_of_all_ranks_are_counted_exactly),
        cmocka_unit_test(a_quiet_of_one_thread_does_not_end_before_its_own_puts),
        cmocka_unit_test(what_is_put_after_a_fence_is_there_after_what_was_put_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
