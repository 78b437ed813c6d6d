/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the data path change its speed, not what arrives: messages of every size, put and
 * got memory, with each setting at its ends. */
#include "unit/api/messages.h"

#define ROUNDS 2
#define COUNT ((int)LENS(lens))

static const size_t lens[] = {0,      1,      40,     41,     4096,   8193,    65536,        65537,
                              131073, 146182, 200000, 300000, 700000, 1 << 20, (9 << 20) + 5};

/* All of them both ways at once; those of the second round wait for their receives. */
static int exchange(weft_comm_t comm, int round, int rank, struct harness_shared *shared)
{
    weft_request_t requests[2 * LENS(lens)] = {NULL};
    uint8_t *bytes[LENS(lens)], *rooms[LENS(lens)];
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < COUNT; i++) {
            size_t len = lens[i];
            if (turn == round) {
                rooms[i] = make_room(len);
                EXPECT_OK(weft_recv(comm, rooms[i], len, 1 - rank, i % 3, NULL, &requests[i]));
            } else {
                bytes[i] = make_bytes(seed_of(rank, round, i), len);
                EXPECT_OK(weft_send(comm, bytes[i], len, 1 - rank, i % 3, &requests[COUNT + i]));
            }
        }
        EXPECT_OK(weft_control_barrier(comm));
    }
    EXPECT_OK(weft_wait_all(requests, 2 * COUNT, WAIT_MS));
    for (int i = 0; i < COUNT; i++) {
        EXPECT(are_bytes(seed_of(1 - rank, round, i), rooms[i], lens[i]));
        EXPECT(are_guards_whole(rooms[i], lens[i]));
        free(bytes[i]);
        free_room(rooms[i]);
    }
    return 0;
}

static int put_and_get(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const size_t len = (2 << 20) + 1;
    uint8_t *memory = make_room(len), *bytes = make_bytes((uint64_t)rank, len);
    weft_mem_t mine, all[2];
    EXPECT_OK(weft_mem_register(comm, memory, len, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), all));
    EXPECT_OK(weft_put(comm, &all[1 - rank], 0, bytes, len));
    EXPECT_OK(weft_quiet(comm));
    memset(bytes, 0, len);
    EXPECT_OK(weft_get(comm, &all[1 - rank], 0, bytes, len));
    EXPECT_OK(weft_quiet(comm));
    EXPECT(are_bytes((uint64_t)rank, bytes, len));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(are_bytes(1 - (uint64_t)rank, memory, len) && are_guards_whole(memory, len));
    EXPECT_OK(weft_mem_deregister(comm, &mine));
    free(bytes);
    free_room(memory);
    return 0;
}

static int exchange_everything(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int round = 0; round < ROUNDS; round++) {
        EXPECT_PASS(exchange(comm, round, rank, shared));
    }
    return put_and_get(comm, rank, shared);
}

/* Also after a test that failed in the middle. */
static int forget_settings(void **state)
{
    static const char *const names[] = {"WEFT_EAGER",    "WEFT_CHUNK",    "WEFT_CMA",
                                        "WEFT_SHM_POOL", "WEFT_CHECKSUM", "WEFT_TCP_ZEROCOPY",
                                        "WEFT_SPIN",     "WEFT_SECURITY"};
    (void)state;
    for (size_t i = 0; i < LENS(names); i++) {
        unsetenv(names[i]);
    }
    return 0;
}

/* One way only, so that nothing but acknowledgements makes room again. */
static int stream_odd_lengths(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const size_t longest = 128 << 10;
    uint8_t *room = allocate(longest);
    EXPECT_OK(weft_comm_set_timeout(comm, WAIT_MS));
    for (uint64_t i = 0; i < 3000; i++) {
        size_t len = (size_t)(mix(i) % (longest + 1));
        if (rank == 0) {
            EXPECT_OK(weft_send(comm, room, len, 1, 1, NULL));
        } else {
            EXPECT_OK(weft_recv(comm, room, longest, 0, 1, NULL, NULL));
        }
    }
    free(room);
    return 0;
}

static void run_with(int ways, const char *name, const char *value)
{
    forget_settings(NULL);
    setenv(name, value, 1);
    snprintf(run_note, sizeof(run_note), ", %s=%s", name, value);
    run_ways(ways, 2, exchange_everything);
}

static void nothing_is_sent_before_its_receive_is_known(void **state)
{
    (void)state;
    run_with(PROCESSES, "WEFT_EAGER", "0");
}

static void much_is_sent_over_shm_before_its_receive_is_known(void **state)
{
    (void)state;
    run_with(SHM_PROCESSES, "WEFT_EAGER", "128K");
}

static void much_is_sent_over_tcp_before_its_receive_is_known(void **state)
{
    (void)state;
    run_with(TCP_PROCESSES, "WEFT_EAGER", "128K");
    run_ways(TCP_PROCESSES, 2, stream_odd_lengths);
}

static void pieces_are_small_or_large(void **state)
{
    (void)state;
    run_with(PROCESSES, "WEFT_CHUNK", "4096");
    run_with(PROCESSES, "WEFT_CHUNK", "16M");
}

static void memory_is_read_straight_or_never(void **state)
{
    (void)state;
    run_with(PROCESSES, "WEFT_CMA", "on");
    run_with(PROCESSES, "WEFT_CMA", "off");
}

static void the_pool_is_small_or_large(void **state)
{
    (void)state;
    run_with(PROCESSES, "WEFT_SHM_POOL", "1M");
    run_with(PROCESSES, "WEFT_SHM_POOL", "64M");
}

static void payloads_are_checked_or_sent_without_a_copy(void **state)
{
    (void)state;
    run_with(PROCESSES, "WEFT_CHECKSUM", "on");
    run_with(PROCESSES, "WEFT_TCP_ZEROCOPY", "4096");
}

static void payloads_are_sealed(void **state)
{
    (void)state;
    run_with(TCP_PROCESSES, "WEFT_SECURITY", "integrity");
    run_with(TCP_PROCESSES, "WEFT_SECURITY", "encrypt");
    run_ways(TCP_PROCESSES, 2, stream_odd_lengths);
}

#define MUCH ((size_t)64 << 20)

/* The kernel is reading what is sent when it is wanted back: that takes a connection, and no more. */
static int abort_another(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *bytes = make_bytes(3, MUCH);
    weft_comm_t other;
    weft_request_t request = NULL;
    uint64_t word = (uint64_t)rank;
    weft_status_t status;
    EXPECT_OK(weft_comm_duplicate(comm, &other));
    EXPECT_OK(weft_send(comm, &word, sizeof(word), 1 - rank, 0, NULL));
    EXPECT_OK(weft_recv(comm, &word, sizeof(word), 1 - rank, 0, NULL, NULL)); /* there is a link */
    word = (uint64_t)rank;
    if (rank == 1) {
        EXPECT_OK(weft_recv(other, bytes, MUCH, 0, 0, NULL, &request));
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 0) {
        EXPECT_OK(weft_send(other, bytes, MUCH, 1, 0, &request));
        EXPECT_OK(weft_abort(other, "enough"));
    }
    status = weft_wait(&request, WAIT_MS);
    EXPECT(status == WEFT_OK || status == WEFT_ERR_ABORTED); /* it may have been quick */
    for (int i = 0; i < 20; i++) {
        EXPECT_OK(weft_send(comm, &word, sizeof(word), 1 - rank, i, NULL));
        EXPECT_OK(weft_recv(comm, &word, sizeof(word), 1 - rank, i, NULL, NULL));
    }
    EXPECT(word == (uint64_t)rank);
    EXPECT_OK(weft_comm_status(comm));
    EXPECT_OK(weft_comm_close(other));
    free(bytes);
    return 0;
}

static void what_is_sent_without_a_copy_is_given_up_without_the_link(void **state)
{
    (void)state;
    setenv("WEFT_TCP_ZEROCOPY", "64K", 1);
    run_ways(TCP_PROCESSES, 2, abort_another);
}

static void waiting_ranks_sleep_at_once(void **state)
{
    (void)state;
    run_with(PROCESSES, "WEFT_SPIN", "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_sent_before_its_receive_is_known),
        cmocka_unit_test(much_is_sent_over_shm_before_its_receive_is_known),
        cmocka_unit_test(much_is_sent_over_tcp_before_its_receive_is_known),
        cmocka_unit_test(pieces_are_small_or_large),
        cmocka_unit_test(memory_is_read_straight_or_never),
        cmocka_unit_test(the_pool_is_small_or_large),
        cmocka_unit_test(payloads_are_checked_or_sent_without_a_copy),
        cmocka_unit_test(payloads_are_sealed),
        cmocka_unit_test(what_is_sent_without_a_copy_is_given_up_without_the_link),
        cmocka_unit_test(waiting_ranks_sleep_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, forget_settings);
}
