/* SPDX-License-Identifier: Apache-2.0 */
/* Groups, which end together; operations that end badly: deadlines, ranks that leave, aborts; and
 * what every call on messages says to wrong arguments. */
#include "unit/api/messages.h"

#define TAG 17

/* ---- groups ---- */

#define LONG_LEN ((size_t)1 << 20)

/* Everybody sends 1 MB to everybody before anybody receives. */
static int send_to_each_other(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int round = 0; round < 3; round++) {
        uint8_t *bytes = make_bytes(seed_of(rank, TAG, round), LONG_LEN), *rooms[4];
        weft_message_t messages[4];
        EXPECT_OK(weft_group_begin(comm));
        for (int k = 0; k < shared->ranks; k++) {
            EXPECT_OK(weft_send(comm, bytes, LONG_LEN, k, TAG, NULL));
        }
        for (int k = 0; k < shared->ranks; k++) {
            rooms[k] = make_room(LONG_LEN);
            EXPECT_OK(weft_recv(comm, rooms[k], LONG_LEN, k, TAG, &messages[k], NULL));
        }
        EXPECT_OK(weft_group_end(comm));
        for (int k = 0; k < shared->ranks; k++) {
            struct expected want = {k, TAG, LONG_LEN, seed_of(k, TAG, round)};
            EXPECT(is_message(&messages[k], &want));
            EXPECT(are_bytes(want.seed, rooms[k], LONG_LEN));
            EXPECT(are_guards_whole(rooms[k], LONG_LEN));
            free_room(rooms[k]);
        }
        free(bytes);
    }
    return 0;
}

static void ranks_in_groups_send_to_each_other_without_an_order(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, send_to_each_other);
    run_ways(EVERY_WAY, 4, send_to_each_other);
}

/* An inner end does not wait: the receive it would wait for is matched behind it. */
static int nest_groups(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *bytes = make_bytes((uint64_t)rank, LONG_LEN), *room = make_room(LONG_LEN);
    weft_request_t request = NULL;
    EXPECT_OK(weft_group_begin(comm));
    EXPECT_OK(weft_group_begin(comm));
    EXPECT_OK(weft_recv(comm, room, LONG_LEN, 1 - rank, TAG, NULL, NULL));
    EXPECT_OK(weft_group_end(comm));
    EXPECT_OK(weft_send(comm, bytes, LONG_LEN, 1 - rank, TAG, NULL));
    EXPECT_OK(weft_send(comm, bytes, 8, 1 - rank, TAG + 1, &request)); /* this one is its own */
    EXPECT_OK(weft_group_end(comm));
    EXPECT(are_bytes(1 - (uint64_t)rank, room, LONG_LEN));
    EXPECT(request != NULL);
    EXPECT_OK(weft_recv(comm, room, 8, 1 - rank, TAG + 1, NULL, NULL));
    EXPECT_OK(weft_wait(&request, WAIT_MS));
    EXPECT_OK(weft_group_begin(comm)); /* empty */
    EXPECT_OK(weft_group_end(comm));
    EXPECT(weft_group_end(comm) == WEFT_ERR_INVALID); /* none is open */
    free(bytes);
    free_room(room);
    return 0;
}

static void groups_nest_and_the_outermost_end_waits(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, nest_groups);
}

/* The error of one comes from the end; the others are done all the same. */
static int fail_in_a_group(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint8_t *bytes = make_bytes(5, LONG_LEN), *rooms[2] = {make_room(9), make_room(LONG_LEN)};
    struct expected want = {1 - rank, TAG, 10, 5};
    EXPECT_OK(weft_group_begin(comm));
    EXPECT_OK(weft_recv(comm, rooms[0], 9, 1 - rank, TAG, NULL, NULL));
    EXPECT_OK(weft_recv(comm, rooms[1], LONG_LEN, 1 - rank, TAG, NULL, NULL));
    EXPECT_OK(weft_send(comm, bytes, 10, 1 - rank, TAG, NULL));
    EXPECT(weft_send(comm, bytes, 10, 2, TAG, NULL) == WEFT_ERR_INVALID); /* not begun at all */
    EXPECT_OK(weft_send(comm, bytes, LONG_LEN, 1 - rank, TAG, NULL));
    EXPECT(weft_group_end(comm) == WEFT_ERR_TRUNCATED);
    EXPECT(are_bytes(5, rooms[1], LONG_LEN) && are_guards_whole(rooms[0], 9));
    EXPECT_OK(weft_send(comm, bytes, 10, 1 - rank, TAG, NULL)); /* the next is a fresh one */
    EXPECT_PASS(check_recv(comm, 1 - rank, TAG, &want, rank, shared));
    free(bytes);
    free_room(rooms[0]);
    free_room(rooms[1]);
    return 0;
}

static void a_group_returns_its_first_error_and_finishes_the_rest(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, fail_in_a_group);
}

struct other_thread {
    weft_comm_t comm;
    weft_status_t status;
    uint8_t bytes[100];
};

static void *receive_in_other_thread(void *arg)
{
    struct other_thread *other = arg;
    other->status = weft_recv(other->comm, other->bytes, 100, 0, TAG, NULL, NULL);
    return NULL;
}

/* A group is one thread's and one communicator's: elsewhere a receive still blocks. */
static int group_is_ones_own(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct other_thread other = {.comm = comm, .status = WEFT_ERR_BUSY};
    struct expected want = {0, TAG, 100, 4};
    weft_comm_t second = NULL;
    uint8_t *room = make_room(100);
    pthread_t thread;
    EXPECT_OK(weft_comm_split(comm, 0, rank, &second));
    if (rank == 0) {
        for (uint64_t i = 3; i <= 5; i++) {
            EXPECT_OK(send_pattern(i == 4 ? second : comm, 100, 1, i == 5 ? 5 : TAG, i));
        }
    } else {
        EXPECT_OK(weft_group_begin(comm));
        EXPECT_OK(weft_recv(comm, room, 100, 0, 5, NULL, NULL));
        EXPECT(pthread_create(&thread, NULL, receive_in_other_thread, &other) == 0);
        EXPECT_PASS(check_recv(second, 0, TAG, &want, rank, shared));
        pthread_join(thread, NULL);
        EXPECT(other.status == WEFT_OK && are_bytes(3, other.bytes, 100));
        EXPECT_OK(weft_group_end(comm));
        EXPECT(are_bytes(5, room, 100));
    }
    free_room(room);
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(second));
    return 0;
}

static void a_group_is_its_thread_s_and_its_communicator_s(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, group_is_ones_own);
}

/* ---- bad ends ---- */

/* Ends without a last barrier: the communicator has failed. */
static int meet_and_close(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    atomic_fetch_add(&shared->word[9], 1);
    EXPECT(harness_wait_reach(&shared->word[9], (uint32_t)shared->ranks, WAIT_MS));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

/* The request's own deadline, the communicator's for a request, and for a blocking call. */
static int pass_a_deadline(int kind, int rank, struct harness_shared *shared)
{
    weft_comm_t comm = NULL;
    weft_request_t request = NULL;
    uint64_t begin_ns, took_ns;
    uint8_t byte;
    weft_status_t status;
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    if (rank == 0) {
        begin_ns = harness_now_ns();
        if (kind > 0) {
            EXPECT_OK(weft_comm_set_timeout(comm, 100));
        }
        if (kind < 2) {
            EXPECT_OK(weft_recv(comm, &byte, 1, 1, TAG, NULL, &request));
        }
        if (kind == 0) {
            EXPECT_OK(weft_request_set_timeout(request, 100));
        }
        status = kind < 2 ? weft_wait(&request, WEFT_NO_LIMIT)
                          : weft_recv(comm, &byte, 1, 1, TAG, NULL, NULL);
        took_ns = harness_now_ns() - begin_ns;
        EXPECT(status == WEFT_ERR_TIMEOUT && request == NULL);
        EXPECT(strstr(weft_error_text(), "rank 1") != NULL);
        EXPECT(strstr(weft_error_text(), "bytes came") == NULL); /* nothing was announced */
        EXPECT(took_ns >= UINT64_C(99000000) && took_ns < UINT64_C(10000000000));
        EXPECT(weft_comm_status(comm) != WEFT_OK);
        EXPECT(weft_send(comm, &byte, 1, 1, TAG, NULL) != WEFT_OK);
    }
    return meet_and_close(comm, rank, shared);
}

static int pass_own_deadline(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return pass_a_deadline(0, rank, shared);
}

static int pass_communicators_deadline(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return pass_a_deadline(1, rank, shared);
}

static int pass_blocking_deadline(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return pass_a_deadline(2, rank, shared);
}

static void an_operation_s_deadline_names_the_rank_and_fails_the_communicator(void **state)
{
    (void)state;
    run_bodies(EVERY_WAY, 2, pass_own_deadline);
    run_bodies(PROCESSES, 2, pass_communicators_deadline);
    run_bodies(PROCESSES, 2, pass_blocking_deadline);
}

enum { BY_CLOSE, BY_DEATH, BY_ABORT };

/* Rank 0 waits with a receive and with a large send, neither of which rank 1 will answer. */
static int lose_the_other(int how, int rank, struct harness_shared *shared)
{
    weft_status_t want = how == BY_ABORT ? WEFT_ERR_ABORTED : WEFT_ERR_PEER;
    weft_comm_t comm = NULL;
    weft_request_t requests[2] = {NULL};
    uint8_t *bytes = make_bytes(1, 4 * LONG_LEN), *room = make_room(100);
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 0) {
        EXPECT_OK(weft_recv(comm, room, 100, 1, TAG, NULL, &requests[0]));
        EXPECT_OK(weft_send(comm, bytes, 4 * LONG_LEN, 1, TAG, &requests[1]));
        EXPECT(weft_wait(&requests[0], 20) == WEFT_ERR_TIMEOUT);
        atomic_store(&shared->word[0], 1);
        for (int i = 0; i < 2; i++) {
            EXPECT(weft_wait(&requests[i], WAIT_MS) == want && requests[i] == NULL);
            EXPECT(how == BY_ABORT || strstr(weft_error_text(), "rank 1") != NULL);
            EXPECT(how != BY_ABORT || strstr(weft_error_text(), "enough") != NULL);
        }
        EXPECT(weft_recv(comm, room, 100, 1, TAG, NULL, NULL) == want); /* from now on, at once */
        EXPECT(is_untouched(room, 100));
        atomic_store(&shared->word[0], 2);
    } else {
        EXPECT(harness_wait_for(&shared->word[0], 1, WAIT_MS));
        if (how == BY_DEATH) {
            _exit(0);
        }
        if (how == BY_ABORT) { /* that it closes then must not be heard first */
            EXPECT_OK(weft_abort(comm, "enough"));
            EXPECT(harness_wait_for(&shared->word[0], 2, WAIT_MS));
        }
    }
    EXPECT_OK(weft_comm_close(comm));
    free(bytes);
    free_room(room);
    return 0;
}

static int lose_by_close(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return lose_the_other(BY_CLOSE, rank, shared);
}

static int lose_by_abort(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return lose_the_other(BY_ABORT, rank, shared);
}

static int lose_by_death(int rank, struct harness_shared *shared, void *arg)
{
    (void)arg;
    return lose_the_other(BY_DEATH, rank, shared);
}

static void operations_with_a_rank_that_leaves_end_and_name_it(void **state)
{
    struct harness *harness;
    (void)state;
    run_bodies(EVERY_WAY, 2, lose_by_close);
    run_bodies(EVERY_WAY, 2, lose_by_abort);
    for (int is_tcp = 0; is_tcp <= 1; is_tcp++) {
        setenv("WEFT_PATH", is_tcp ? "tcp" : "shm", 1);
        harness = harness_start(2, lose_by_death, NULL);
        assert_harness(harness, harness_wait(harness, WATCH_MS));
        if (harness_result(harness, 0)->status != 0) {
            fail_msg("%s: %s", is_tcp ? "tcp" : "shm", harness_result(harness, 0)->text);
        }
        harness_close(harness);
    }
}

static int probe_who_left(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    weft_message_t message;
    (void)arg;
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT(rank == 1 || weft_probe(comm, 1, TAG, 5000, &message) == WEFT_ERR_PEER);
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_probe_of_a_rank_that_leaves_ends_and_names_it(void **state)
{
    (void)state;
    run_bodies(PROCESSES, 2, probe_who_left);
}

/* ---- nobody is left ---- */

/* Rank 1 leaves without a word: no receive of anybody has anything to wait for any more. */
static int wait_for_anybody(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    weft_request_t request = NULL;
    weft_message_t message;
    uint8_t room[8];
    (void)arg;
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    if (rank == 0) {
        EXPECT_OK(weft_recv(comm, room, sizeof(room), WEFT_ANY_SOURCE, TAG, NULL, &request));
        atomic_store(&shared->word[0], 1);
        EXPECT(weft_wait(&request, WAIT_MS) == WEFT_ERR_PEER);
        EXPECT(weft_recv(comm, room, sizeof(room), WEFT_ANY_SOURCE, TAG, NULL, NULL) ==
               WEFT_ERR_PEER);
        EXPECT(weft_probe(comm, WEFT_ANY_SOURCE, TAG, WAIT_MS, &message) == WEFT_ERR_PEER);
    } else {
        EXPECT(harness_wait_for(&shared->word[0], 1, WAIT_MS));
    }
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_receive_of_anybody_ends_when_all_others_have_left(void **state)
{
    (void)state;
    run_bodies(EVERY_WAY, 2, wait_for_anybody);
}

/* ---- a communicator that one side has closed, without ever having used it ---- */

static int send_to_a_closed_one(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_comm_t part;
    uint8_t *bytes = make_bytes(1, 4 * LONG_LEN);
    EXPECT_OK(weft_comm_split(comm, 0, rank, &part));
    if (rank == 0) {
        /* The first may come before it is closed there, the second comes after. */
        EXPECT(weft_send(part, bytes, 4 * LONG_LEN, 1, TAG, NULL) == WEFT_ERR_PEER);
        EXPECT(strstr(weft_error_text(), "rank 1") != NULL);
        EXPECT(weft_send(part, bytes, 4 * LONG_LEN, 1, TAG, NULL) == WEFT_ERR_PEER);
        for (int i = 0; i < 100; i++) { /* more than may wait for their receives */
            weft_status_t status = weft_send(part, bytes, 60000, 1, TAG, NULL);
            EXPECT(status == WEFT_OK || status == WEFT_ERR_PEER);
        }
        EXPECT_OK(weft_comm_close(part));
        EXPECT_OK(weft_send(comm, bytes, 8, 1, TAG, NULL));
    } else {
        EXPECT_OK(weft_comm_close(part));
        EXPECT_OK(weft_recv(comm, bytes, 8, 0, TAG, NULL, NULL));
    }
    free(bytes);
    return 0;
}

static void messages_to_a_communicator_that_was_closed_there_do_not_wait(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, send_to_a_closed_one);
}

/* ---- a probe without a limit has the communicator's ---- */

static int probe_for_ever(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_message_t message;
    if (rank == 0) {
        EXPECT_OK(weft_comm_set_timeout(comm, 100));
        EXPECT(weft_probe(comm, 1, TAG, UINT32_MAX, &message) == WEFT_ERR_TIMEOUT);
    }
    return 0;
}

static void a_probe_without_a_limit_ends_with_the_communicator_s(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, probe_for_ever);
}

/* ---- ended in the middle of a copy to oneself ---- */

struct killer {
    weft_comm_t comm;
    pthread_t thread;
};

static void *abort_it(void *arg)
{
    weft_abort(((struct killer *)arg)->comm, "enough");
    return NULL;
}

static int abort_a_copy(int rank, struct harness_shared *shared, void *arg)
{
    const size_t len = 64 << 20;
    uint8_t *from = make_bytes(1, len), *to = allocate(len);
    weft_request_t requests[2] = {NULL};
    struct killer killer = {.comm = NULL};
    (void)arg;
    EXPECT_OK(job_join(rank, shared, NULL, &killer.comm));
    EXPECT_OK(weft_recv(killer.comm, to, len, rank, TAG, NULL, &requests[0]));
    EXPECT_OK(weft_send(killer.comm, from, len, rank, TAG, &requests[1]));
    EXPECT(pthread_create(&killer.thread, NULL, abort_it, &killer) == 0);
    for (int i = 0; i < 2; i++) {
        weft_status_t status = weft_wait(&requests[i], WAIT_MS);
        EXPECT(status == WEFT_OK || status == WEFT_ERR_ABORTED);
    }
    EXPECT(pthread_join(killer.thread, NULL) == 0);
    weft_comm_close(killer.comm);
    free(from);
    free(to);
    return 0;
}

static void a_message_to_oneself_ends_when_its_communicator_does(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        run_bodies(SHM_PROCESSES, 1, abort_a_copy);
    }
}

/* ---- wrong arguments ---- */

static int give_wrong_arguments(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_request_t none = NULL, request = NULL;
    weft_message_t message;
    uint8_t byte = 1;
    int number = 77;
    static const int ranks[] = {-1, -2, 2, INT32_MAX, INT32_MIN}, tags[] = {-1, -2, INT32_MIN};
    static const size_t lens[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX >> 7};
    for (size_t i = 0; i < LENS(ranks); i++) {
        EXPECT(weft_send(comm, &byte, 1, ranks[i], TAG, NULL) == WEFT_ERR_INVALID);
        EXPECT(weft_send(comm, &byte, 1, ranks[i], TAG, &request) == WEFT_ERR_INVALID);
        EXPECT(request == NULL);
        if (ranks[i] != WEFT_ANY_SOURCE) {
            EXPECT(weft_recv(comm, &byte, 1, ranks[i], TAG, NULL, NULL) == WEFT_ERR_INVALID);
            EXPECT(weft_probe(comm, ranks[i], TAG, 0, &message) == WEFT_ERR_INVALID);
        }
    }
    for (size_t i = 0; i < LENS(tags); i++) {
        EXPECT(weft_send(comm, &byte, 1, 0, tags[i], NULL) == WEFT_ERR_INVALID);
        if (tags[i] != WEFT_ANY_TAG) {
            EXPECT(weft_recv(comm, &byte, 1, 0, tags[i], NULL, &request) == WEFT_ERR_INVALID);
            EXPECT(weft_probe(comm, 0, tags[i], 0, &message) == WEFT_ERR_INVALID);
        }
    }
    for (size_t i = 0; i < LENS(lens); i++) {
        EXPECT(weft_send(comm, &byte, lens[i], 1 - rank, TAG, NULL) == WEFT_ERR_INVALID);
        EXPECT(weft_recv(comm, &byte, lens[i], 1 - rank, TAG, NULL, &request) == WEFT_ERR_INVALID);
    }
    EXPECT(weft_send(comm, NULL, 1, 0, TAG, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_recv(comm, NULL, 1, 0, TAG, NULL, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_probe(comm, 0, TAG, 0, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_test(NULL, &number) == WEFT_ERR_INVALID);
    EXPECT(weft_wait(NULL, 0) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_any(NULL, 1, 0, &number) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_any(&none, -1, 0, &number) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_any(&none, 1, 0, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_all(NULL, 1, 0) == WEFT_ERR_INVALID);
    EXPECT(weft_wait_all(&none, -1, 0) == WEFT_ERR_INVALID);
    EXPECT(weft_cancel(NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_request_set_timeout(NULL, 5) == WEFT_ERR_INVALID);
    EXPECT(number == 77);
    EXPECT_OK(weft_comm_status(comm)); /* none of this is the communicator's end */
    return 0;
}

/* A request that was reported is NULL, and NULL is done. */
static int use_a_reported_request(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_request_t request = NULL;
    int is_done = 77;
    EXPECT_OK(weft_recv(comm, NULL, 0, rank, TAG, NULL, &request));
    EXPECT(weft_test(&request, NULL) == WEFT_ERR_INVALID && request != NULL);
    EXPECT_OK(weft_send(comm, NULL, 0, rank, TAG, NULL));
    EXPECT_OK(weft_wait(&request, WAIT_MS));
    EXPECT(request == NULL);
    EXPECT_OK(weft_wait(&request, WAIT_MS));
    EXPECT_OK(weft_test(&request, &is_done));
    EXPECT(is_done == 1);
    EXPECT_OK(weft_send(comm, NULL, 0, rank, INT32_MAX, NULL)); /* the greatest tag is one */
    EXPECT_OK(weft_recv(comm, NULL, 0, rank, INT32_MAX, NULL, NULL));
    EXPECT_OK(weft_comm_set_timeout(comm, 0));
    return 0;
}

static int give_no_communicator(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_request_t request = NULL;
    weft_message_t message;
    uint8_t byte = 1;
    (void)comm;
    EXPECT(weft_send(NULL, &byte, 1, 0, TAG, NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_recv(NULL, &byte, 1, 0, TAG, NULL, &request) == WEFT_ERR_INVALID);
    EXPECT(weft_probe(NULL, 0, TAG, 0, &message) == WEFT_ERR_INVALID);
    EXPECT(weft_comm_set_timeout(NULL, 5) == WEFT_ERR_INVALID);
    EXPECT(weft_group_begin(NULL) == WEFT_ERR_INVALID);
    EXPECT(weft_group_end(NULL) == WEFT_ERR_INVALID);
    return 0;
}

static void wrong_arguments_are_invalid_and_harm_nothing(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, give_wrong_arguments);
    run_ways(PROCESSES, 1, use_a_reported_request);
    run_ways(SHM_PROCESSES, 1, give_no_communicator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_in_groups_send_to_each_other_without_an_order),
        cmocka_unit_test(groups_nest_and_the_outermost_end_waits),
        cmocka_unit_test(a_group_returns_its_first_error_and_finishes_the_rest),
        cmocka_unit_test(a_group_is_its_thread_s_and_its_communicator_s),
        cmocka_unit_test(an_operation_s_deadline_names_the_rank_and_fails_the_communicator),
        cmocka_unit_test(operations_with_a_rank_that_leaves_end_and_name_it),
        cmocka_unit_test(a_probe_of_a_rank_that_leaves_ends_and_names_it),
        cmocka_unit_test(a_receive_of_anybody_ends_when_all_others_have_left),
        cmocka_unit_test(messages_to_a_communicator_that_was_closed_there_do_not_wait),
        cmocka_unit_test(a_probe_without_a_limit_ends_with_the_communicator_s),
        cmocka_unit_test(a_message_to_oneself_ends_when_its_communicator_does),
        cmocka_unit_test(wrong_arguments_are_invalid_and_harm_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
