/* SPDX-License-Identifier: Apache-2.0 */
/* Where one-sided operations end: waits that time out, communicators and ranks that close, words that
 * are not where words can be, numbers that begin again. */
#include "unit/api/messages.h"

#include "comm/comm.h"
#include "p2p/internal.h"

#define LEN ((size_t)1 << 16)

/* ---- waits that time out ---- */

struct looker {
    weft_comm_t comm;
    uint64_t word;
    weft_status_t status;
    pthread_t thread;
};

static void *look_at_signal(void *arg)
{
    struct looker *looker = arg;
    looker->status = weft_wait_signal(looker->comm, &looker->word, 1, 0);
    return NULL;
}

static bool is_locker_there(void *arg)
{
    return atomic_load(&((struct weft_engine_front *)arg)->lockers) != 0;
}

/* Somebody else drives all the time: what waits is begun only after it is over. */
static int look_while_another_one_drives(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct looker looker = {.comm = comm};
    weft_mem_t mem;
    struct weft_p2p *p2p;
    bool is_there, is_forgotten;
    EXPECT_OK(weft_mem_register(comm, &looker.word, 8, &mem));
    p2p = atomic_load(&comm->messages)->p2p;
    weft_engine_lock(p2p->engine);
    if (pthread_create(&looker.thread, NULL, look_at_signal, &looker) != 0) {
        abort();
    }
    is_there = harness_wait_until(is_locker_there, p2p->engine, WAIT_MS);
    weft_engine_unlock(p2p->engine);
    pthread_join(looker.thread, NULL);
    EXPECT(is_there && looker.status == WEFT_ERR_TIMEOUT);
    weft_engine_lock(p2p->engine);
    weft_engine_run_tasks(p2p->engine);
    is_forgotten = weft_list_is_empty(&p2p->signals);
    weft_engine_unlock(p2p->engine);
    EXPECT(is_forgotten);
    EXPECT_OK(weft_mem_deregister(comm, &mem));
    return 0;
}

static void a_wait_that_timed_out_is_not_begun_later(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, look_while_another_one_drives);
}

/* ---- communicators and ranks that close ---- */

static int close_what_is_registered(weft_comm_t comm, bool is_shared, int rank,
                                    struct harness_shared *shared)
{
    uint8_t *bytes = make_bytes(1, LEN), *memory = NULL;
    weft_comm_t part;
    weft_mem_t mine, of[2];
    EXPECT_OK(weft_comm_split(comm, 0, rank, &part));
    if (is_shared) {
        EXPECT_OK(weft_alloc(LEN, (void **)&memory));
    } else {
        memory = allocate(LEN);
    }
    EXPECT_OK(weft_mem_register(part, memory, LEN, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), of));
    EXPECT_OK(weft_put(part, &of[1 - rank], 0, bytes, LEN));
    EXPECT_OK(weft_quiet(part));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(are_bytes(1, memory, LEN));
    if (rank == 0) {
        EXPECT_OK(weft_comm_close(part)); /* and with it what was registered */
        memset(memory, GUARD_BYTE, LEN);
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 1) {
        (void)weft_put(part, &of[0], 0, bytes, LEN);
        EXPECT_OK(weft_send(comm, bytes, 8, 0, 0, NULL)); /* after it, on the same way */
    } else {
        EXPECT_OK(weft_recv(comm, bytes, 8, 1, 0, NULL, NULL));
        EXPECT(is_untouched(memory, LEN));
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 1) {
        EXPECT_OK(weft_comm_close(part));
    }
    if (is_shared) {
        EXPECT_OK(weft_free(memory));
    } else {
        free(memory);
    }
    free(bytes);
    return 0;
}

static int close_private(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    return close_what_is_registered(comm, false, rank, shared);
}

static int close_shared(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    return close_what_is_registered(comm, true, rank, shared);
}

static void nothing_is_put_into_memory_of_a_closed_communicator(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, close_private);
    run_ways(EVERY_WAY, 2, close_shared);
}

/* Rank 1 goes on, and so does their other communicator. */
static int need_one_that_closed(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = allocate(LEN);
    weft_comm_t part;
    weft_mem_t mine, of[2];
    uint64_t word = 0;
    EXPECT_OK(weft_comm_duplicate(comm, &part));
    EXPECT_OK(weft_mem_register(part, memory, LEN, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), of));
    if (rank == 1) {
        EXPECT_OK(weft_comm_close(part));
        EXPECT_OK(weft_control_barrier(comm));
    } else {
        weft_status_t status;
        EXPECT_OK(weft_comm_set_timeout(part, WAIT_MS / 3));
        EXPECT_OK(weft_control_barrier(comm));
        EXPECT(weft_recv(part, &word, sizeof(word), 1, 0, NULL, NULL) == WEFT_ERR_PEER);
        EXPECT(strstr(weft_error_text(), "closed") != NULL);
        EXPECT(weft_send(part, &word, sizeof(word), 1, 0, NULL) == WEFT_ERR_PEER);
        status = weft_put(part, &of[1], 0, memory, 8);
        EXPECT((status != WEFT_OK ? status : weft_quiet(part)) == WEFT_ERR_PEER);
        status = weft_get(part, &of[1], 0, memory, 8);
        EXPECT((status != WEFT_OK ? status : weft_quiet(part)) == WEFT_ERR_PEER);
        EXPECT_OK(weft_comm_status(part));
        EXPECT_OK(weft_comm_close(part));
    }
    EXPECT_OK(weft_send(comm, &word, sizeof(word), 1 - rank, 0, NULL));
    EXPECT_OK(weft_recv(comm, &word, sizeof(word), 1 - rank, 0, NULL, NULL));
    free(memory);
    return 0;
}

static void a_rank_that_closed_one_communicator_is_missed_there(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, need_one_that_closed);
}

/* The first thing that is asked for is a put: there was no link, nobody could have said anything. */
static int put_into_what_closed(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = allocate(LEN);
    weft_comm_t part;
    weft_mem_t mine, of[2];
    EXPECT_OK(weft_comm_duplicate(comm, &part));
    EXPECT_OK(weft_mem_register(part, memory, LEN, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), of));
    if (rank == 1) {
        EXPECT_OK(weft_comm_close(part));
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 0) {
        EXPECT_OK(weft_comm_set_timeout(part, WAIT_MS / 3));
        EXPECT_OK(weft_put(part, &of[1], 0, memory, LEN));
        EXPECT_OK(weft_get(part, &of[1], 0, memory, LEN));
        EXPECT(weft_quiet(part) == WEFT_ERR_PEER);
        EXPECT_OK(weft_comm_close(part));
    }
    free(memory);
    return 0;
}

static void what_is_put_to_a_closed_communicator_is_an_error_of_quiet(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, put_into_what_closed);
}

#define PUT 0
#define CLOSED 1

static int put_to_one_that_closes(int rank, struct harness_shared *shared, void *arg)
{
    uint8_t *memory = allocate(LEN);
    weft_mem_t mine, of[2];
    weft_comm_t comm;
    (void)arg;
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    EXPECT_OK(weft_mem_register(comm, memory, LEN, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), of));
    if (rank == 1) {
        EXPECT(harness_wait_for(&shared->word[PUT], 1, WAIT_MS));
        EXPECT_OK(weft_comm_close(comm));
        atomic_store(&shared->word[CLOSED], 1);
    } else {
        weft_status_t status;
        EXPECT_OK(weft_put(comm, &of[1], 0, memory, 8));
        atomic_store(&shared->word[PUT], 1);
        EXPECT(harness_wait_for(&shared->word[CLOSED], 1, WAIT_MS));
        status = weft_quiet(comm); /* whether it came there is not known */
        EXPECT(status == WEFT_OK || status == WEFT_ERR_PEER);
        EXPECT_OK(weft_quiet(comm)); /* told once */
        EXPECT_OK(weft_comm_close(comm));
    }
    free(memory);
    return 0;
}

static void a_rank_that_closed_is_missed_once(void **state)
{
    (void)state;
    run_bodies(EVERY_WAY, 2, put_to_one_that_closes);
}

/* ---- words ---- */

/* Registered from four bytes on: what is aligned there is not what is aligned in the registration. */
static int signal_crooked(weft_comm_t comm, bool is_shared, int rank, struct harness_shared *shared)
{
    uint8_t *memory = NULL;
    weft_mem_t mine, of[2];
    if (is_shared) {
        EXPECT_OK(weft_alloc(LEN, (void **)&memory));
    } else {
        memory = allocate(LEN);
    }
    EXPECT_OK(weft_mem_register(comm, memory + 4, 60, &mine));
    EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), of));
    for (int target = 0; target < 2; target++) {
        for (size_t offset = 0; offset < 24; offset++) {
            weft_status_t status = weft_put_signal(comm, &of[target], 40, &offset, 8, &of[target],
                                                   offset, offset == 12 ? 1 : 7);
            EXPECT(status == (offset % 8 == 4 ? WEFT_OK : WEFT_ERR_INVALID));
        }
    }
    EXPECT_OK(weft_quiet(comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(((uint64_t *)(void *)memory)[0] == 0 && ((uint64_t *)(void *)memory)[1] == 14);
    EXPECT(((uint64_t *)(void *)memory)[2] == 2 && ((uint64_t *)(void *)memory)[3] == 14);
    EXPECT_OK(weft_mem_deregister(comm, &mine));
    if (is_shared) {
        EXPECT_OK(weft_free(memory));
    } else {
        free(memory);
    }
    return 0;
}

static int signal_private(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    return signal_crooked(comm, false, rank, shared);
}

static int signal_shared(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    return signal_crooked(comm, true, rank, shared);
}

static void signals_are_added_to_aligned_words_only(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, signal_private);
    run_ways(EVERY_WAY, 2, signal_shared);
}

/* ---- numbers ---- */

static int register_around_the_end(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *memory = allocate(LEN), *bytes = make_bytes(2, 8);
    weft_mem_t mine, of[2];
    struct weft_p2p_comm *messages;
    EXPECT_OK(weft_mem_register(comm, memory, 8, &mine)); /* the place that had number 0 */
    EXPECT_OK(weft_mem_deregister(comm, &mine));
    messages = atomic_load(&comm->messages);
    messages->p2p->registration_serial = UINT32_MAX - 1;
    for (int i = 0; i < 4; i++) {
        memset(memory, 0, 8);
        EXPECT_OK(weft_mem_register(comm, memory, 8, &mine));
        EXPECT_OK(weft_control_allgather(comm, &mine, sizeof(mine), of));
        EXPECT_OK(weft_put(comm, &of[1 - rank], 0, bytes, 8));
        EXPECT_OK(weft_quiet(comm));
        EXPECT_OK(weft_control_barrier(comm));
        EXPECT(are_bytes(2, memory, 8));
        EXPECT_OK(weft_mem_deregister(comm, &mine));
    }
    free(memory);
    free(bytes);
    return 0;
}

static void registrations_are_numbered_on_after_the_last_number(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, register_around_the_end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_that_timed_out_is_not_begun_later),
        cmocka_unit_test(nothing_is_put_into_memory_of_a_closed_communicator),
        cmocka_unit_test(a_rank_that_closed_is_missed_once),
        cmocka_unit_test(a_rank_that_closed_one_communicator_is_missed_there),
        cmocka_unit_test(what_is_put_to_a_closed_communicator_is_an_error_of_quiet),
        cmocka_unit_test(signals_are_added_to_aligned_words_only),
        cmocka_unit_test(registrations_are_numbered_on_after_the_last_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
