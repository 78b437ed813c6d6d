/* SPDX-License-Identifier: Apache-2.0 */
/* Messages when there is much of something: floods nobody receives yet, probes, communicators with
 * equal tags, threads of one rank, more ranks than cores. */
#include "unit/api/messages.h"

#define TAG 17

/* ---- floods ---- */

struct flood {
    int count;
    size_t len; /* of number i: len + i % spread */
    int spread;
};

static size_t flood_len(const struct flood *flood, int number)
{
    return flood->len + (size_t)(number % flood->spread);
}

/* All sends are begun before the other rank makes its first receive. */
static int send_flood(weft_comm_t comm, const struct flood *flood, int rank,
                      struct harness_shared *shared)
{
    size_t stride = flood->len + (size_t)flood->spread;
    uint8_t *bytes = allocate((size_t)flood->count * stride);
    weft_request_t *requests = allocate((size_t)flood->count * sizeof(weft_request_t));
    for (int i = 0; i < flood->count; i++) {
        uint8_t *at = bytes + (size_t)i * stride;
        fill_bytes((uint64_t)i, at, flood_len(flood, i));
        EXPECT_OK(weft_send(comm, at, flood_len(flood, i), 1, i % 5, &requests[i]));
    }
    atomic_store(&shared->word[0], 1);
    EXPECT_OK(weft_wait_all(requests, flood->count, WAIT_MS));
    free(bytes);
    free(requests);
    return 0;
}

static int check_flood(weft_comm_t comm, const struct flood *flood, int rank,
                       struct harness_shared *shared)
{
    if (rank == 0) {
        EXPECT_PASS(send_flood(comm, flood, rank, shared));
    } else {
        EXPECT(harness_wait_for(&shared->word[0], 1, WAIT_MS));
        for (int tag = 4; tag >= 0; tag--) { /* what arrived first is asked for last */
            for (int i = tag; i < flood->count; i += 5) {
                struct expected want = {0, tag, flood_len(flood, i), (uint64_t)i};
                EXPECT_PASS(check_recv(comm, 0, tag, &want, rank, shared));
            }
        }
        EXPECT(weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &(weft_message_t){0}) ==
               WEFT_ERR_TIMEOUT);
    }
    EXPECT_OK(weft_control_barrier(comm));
    atomic_store(&shared->word[0], 0);
    EXPECT_OK(weft_control_barrier(comm));
    return 0;
}

static int flood_small(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    EXPECT_PASS(check_flood(comm, &(struct flood){10000, 0, 60}, rank, shared));
    return check_flood(comm, &(struct flood){2000, 4000, 200}, rank, shared);
}

static int flood_large(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    EXPECT_PASS(check_flood(comm, &(struct flood){100, 65535, 3}, rank, shared));
    return check_flood(comm, &(struct flood){30, 1 << 20, 3}, rank, shared);
}

static void ten_thousand_small_messages_wait_for_their_receives(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, flood_small);
}

static void a_hundred_messages_of_64_k_wait_for_their_receives(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, flood_large);
}

/* Three ranks flood a fourth with blocking sends; it begins to receive when it sees them. */
static int flood_from_everybody(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_message_t message;
    int left = 3 * 1500;
    for (int i = 0; i < 1500 && rank != 3; i++) {
        EXPECT_OK(send_pattern(comm, 30 + (size_t)i % 50 * 40, 3, i % 3, seed_of(rank, 0, i)));
    }
    for (int source = 2; source >= 0 && rank == 3; source--) {
        EXPECT_OK(weft_probe(comm, source, 0, WAIT_MS, &message));
    }
    for (int source = 2; source >= 0 && rank == 3; source--) { /* one sender after the other */
        for (int i = 0; i < 1500; i++, left--) {
            struct expected want = {source, i % 3, 30 + (size_t)i % 50 * 40, seed_of(source, 0, i)};
            EXPECT_PASS(check_recv(comm, source, WEFT_ANY_TAG, &want, rank, shared));
        }
    }
    EXPECT(rank != 3 || left == 0);
    return 0;
}

static void a_rank_flooded_by_three_receives_from_one_after_the_other(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 4, flood_from_everybody);
}

/* ---- probes ---- */

static int probe_then_receive(weft_comm_t comm, size_t len, int rank, struct harness_shared *shared)
{
    struct expected first = {0, 5, len, 1}, second = {0, 6, len + 1, 2};
    weft_message_t message = {-7, -7, 77};
    weft_request_t requests[2];
    uint8_t *bytes[2];
    if (rank == 1) {
        EXPECT(weft_probe(comm, 0, 5, 0, &message) == WEFT_ERR_TIMEOUT);
        EXPECT(weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message) == WEFT_ERR_TIMEOUT);
        EXPECT(message.source == -7 && message.tag == -7 && message.len == 77);
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 0) {
        bytes[0] = make_bytes(1, len);
        bytes[1] = make_bytes(2, len + 1);
        EXPECT_OK(weft_send(comm, bytes[0], len, 1, 5, &requests[0]));
        EXPECT_OK(weft_send(comm, bytes[1], len + 1, 1, 6, &requests[1]));
        EXPECT_OK(weft_wait_all(requests, 2, WAIT_MS));
        free(bytes[0]);
        free(bytes[1]);
    } else {
        EXPECT_OK(weft_probe(comm, 0, 6, WAIT_MS, &message)); /* behind another */
        EXPECT(is_message(&message, &second));
        EXPECT_OK(weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message));
        EXPECT(is_message(&message, &first));
        EXPECT_OK(weft_probe(comm, WEFT_ANY_SOURCE, 5, 0, &message)); /* still there */
        EXPECT(is_message(&message, &first));
        EXPECT(weft_probe(comm, 1, WEFT_ANY_TAG, 0, &message) == WEFT_ERR_TIMEOUT);
        EXPECT(weft_probe(comm, 0, 7, 0, &message) == WEFT_ERR_TIMEOUT);
        EXPECT_PASS(check_recv(comm, 0, 6, &second, rank, shared));
        EXPECT(weft_probe(comm, 0, 6, 0, &message) == WEFT_ERR_TIMEOUT);
        EXPECT_PASS(check_recv(comm, 0, 5, &first, rank, shared));
        EXPECT(weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message) == WEFT_ERR_TIMEOUT);
    }
    return 0;
}

static int probe_each(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_message_t message;
    uint64_t begin_ns = harness_now_ns();
    EXPECT(weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 30, &message) == WEFT_ERR_TIMEOUT);
    EXPECT(harness_now_ns() - begin_ns >= UINT64_C(30000000));
    EXPECT_OK(weft_control_barrier(comm));
    for (size_t i = 0; i < LENS(message_lens); i++) {
        EXPECT_PASS(probe_then_receive(comm, message_lens[i], rank, shared));
        EXPECT_OK(weft_control_barrier(comm));
    }
    EXPECT_OK(send_pattern(comm, 30, rank, TAG, 3));
    EXPECT_OK(weft_probe(comm, rank, TAG, 0, &message)); /* to oneself: there at once */
    EXPECT(is_message(&message, &(struct expected){rank, TAG, 30, 3}));
    EXPECT_PASS(check_recv(comm, rank, TAG, &(struct expected){rank, TAG, 30, 3}, rank, shared));
    return 0;
}

static void a_probe_tells_of_a_message_and_leaves_it(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, probe_each);
}

/* ---- communicators ---- */

/* Three communicators with the same two ranks, one of them the other way round. */
static int talk_on_three(weft_comm_t comm, size_t len, weft_comm_t comms[3], int rank,
                         struct harness_shared *shared)
{
    weft_message_t message;
    if (rank == 0) {
        weft_request_t requests[3];
        uint8_t *bytes[3];
        for (int i = 0; i < 3; i++) {
            bytes[i] = make_bytes((uint64_t)i, len);
            EXPECT_OK(weft_send(comms[i], bytes[i], len, i == 2 ? 0 : 1, TAG, &requests[i]));
        }
        EXPECT_OK(weft_wait_all(requests, 3, WAIT_MS));
        for (int i = 0; i < 3; i++) {
            free(bytes[i]);
        }
    } else {
        for (int i = 2; i >= 0; i--) { /* the last one first */
            struct expected want = {i == 2 ? 1 : 0, TAG, len, (uint64_t)i};
            EXPECT_PASS(check_recv(comms[i], WEFT_ANY_SOURCE, WEFT_ANY_TAG, &want, rank, shared));
            EXPECT(weft_probe(comms[i], WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message) ==
                   WEFT_ERR_TIMEOUT);
        }
    }
    EXPECT_OK(weft_control_barrier(comm));
    return 0;
}

static int keep_communicators_apart(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_comm_t comms[3] = {comm, NULL, NULL};
    static const size_t lens[] = {0, 24, 5000, 65536, 300000};
    EXPECT_OK(weft_comm_split(comm, 0, rank, &comms[1]));
    EXPECT_OK(weft_comm_split(comm, 0, -rank, &comms[2]));
    for (size_t i = 0; i < LENS(lens); i++) {
        EXPECT_PASS(talk_on_three(comm, lens[i], comms, rank, shared));
    }
    EXPECT_OK(weft_comm_close(comms[2]));
    comms[2] = NULL;
    EXPECT_OK(weft_comm_split(comm, 0, -rank, &comms[2])); /* a new one hears nothing of the old */
    EXPECT_PASS(talk_on_three(comm, 100, comms, rank, shared));
    EXPECT_OK(weft_comm_close(comms[2]));
    EXPECT_OK(weft_comm_close(comms[1]));
    return 0;
}

static void communicators_with_equal_tags_do_not_mix(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, keep_communicators_apart);
}

/* Halves of a job: rank numbers are those of the half. */
static int talk_within_halves(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_comm_t half = NULL;
    int me = -1, number = 0;
    EXPECT_OK(weft_comm_split(comm, rank % 2, -rank, &half)); /* 4, 2, 0 and 3, 1 */
    EXPECT_OK(weft_comm_rank(half, &me));
    EXPECT(me == (rank % 2 == 0 ? 2 - rank / 2 : 1 - rank / 2));
    for (int to = 0; to < (rank % 2 == 0 ? 3 : 2); to++) {
        EXPECT_OK(send_pattern(half, 1000, to, TAG, seed_of(me, rank % 2, to)));
    }
    for (int from = 0; from < (rank % 2 == 0 ? 3 : 2); from++, number++) {
        struct expected want = {from, TAG, 1000, seed_of(from, rank % 2, me)};
        EXPECT_PASS(check_recv(half, from, TAG, &want, rank, shared));
    }
    EXPECT(weft_send(half, &me, sizeof(me), number, TAG, NULL) == WEFT_ERR_INVALID);
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(half));
    return 0;
}

static void a_half_of_a_job_has_its_own_ranks_and_messages(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 5, talk_within_halves);
}

/* ---- threads and many ranks ---- */

#define THREADS 4
#define TURNS 150

struct talker {
    weft_comm_t comm;
    struct harness_shared *shared;
    int rank, tag;
    int result;
};

/* Sends and receives with its own tag; asks anybody in every other turn. */
static int talk(struct talker *talker)
{
    struct harness_shared *shared = talker->shared;
    int rank = talker->rank, other = 1 - rank, tag = talker->tag;
    for (int i = 0; i < TURNS; i++) {
        size_t len = (size_t)(mix((uint64_t)i * THREADS + (uint64_t)tag) % 3000);
        struct expected want;
        weft_request_t request = NULL;
        uint8_t *bytes;
        len = i % 50 == 49 ? 200000 + len : i % 10 == 9 ? 50000 + len : len;
        bytes = make_bytes(seed_of(rank, tag, i), len);
        want = (struct expected){other, tag, len, seed_of(other, tag, i)};
        EXPECT_OK(weft_send(talker->comm, bytes, len, other, tag, &request));
        EXPECT_PASS(check_recv(talker->comm, i % 2 == 0 ? other : WEFT_ANY_SOURCE, tag, &want, rank,
                               shared));
        EXPECT_OK(weft_wait(&request, WAIT_MS));
        free(bytes);
    }
    return 0;
}

static void *talk_as_thread(void *arg)
{
    struct talker *talker = arg;
    talker->result = talk(talker);
    return NULL;
}

static int talk_with_threads(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct talker talkers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        talkers[i] = (struct talker){comm, shared, rank, i, FAILED};
        EXPECT(pthread_create(&threads[i], NULL, talk_as_thread, &talkers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT_PASS(talkers[i].result);
    }
    return 0;
}

static void four_threads_of_each_rank_talk_on_one_communicator(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, talk_with_threads);
}

static size_t pair_len(int from, int to, int round)
{
    size_t len = (size_t)(mix(seed_of(from, to, round)) % 4000);
    return (from + to + round) % 5 == 0 ? 100000 + len : len;
}

static int all_to_all_once(weft_comm_t comm, int round, int rank, struct harness_shared *shared)
{
    uint8_t *bytes[8], *rooms[8];
    EXPECT_OK(weft_group_begin(comm));
    for (int k = 0; k < 8; k++) {
        size_t len = pair_len(rank, k, round), room_len = pair_len(k, rank, round);
        bytes[k] = make_bytes(seed_of(rank, k, round), len);
        rooms[k] = make_room(room_len);
        EXPECT_OK(weft_send(comm, bytes[k], len, k, TAG, NULL));
        EXPECT_OK(weft_recv(comm, rooms[k], room_len, k, TAG, NULL, NULL));
    }
    EXPECT_OK(weft_group_end(comm));
    for (int k = 0; k < 8; k++) {
        size_t room_len = pair_len(k, rank, round);
        EXPECT(are_bytes(seed_of(k, rank, round), rooms[k], room_len));
        EXPECT(are_guards_whole(rooms[k], room_len));
        free(bytes[k]);
        free_room(rooms[k]);
    }
    return 0;
}

static int all_to_all(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int round = 0; round < 12; round++) {
        EXPECT_PASS(all_to_all_once(comm, round, rank, shared));
    }
    return 0;
}

static void eight_ranks_send_to_all_at_once(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 8, all_to_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_small_messages_wait_for_their_receives),
        cmocka_unit_test(a_hundred_messages_of_64_k_wait_for_their_receives),
        cmocka_unit_test(a_rank_flooded_by_three_receives_from_one_after_the_other),
        cmocka_unit_test(a_probe_tells_of_a_message_and_leaves_it),
        cmocka_unit_test(communicators_with_equal_tags_do_not_mix),
        cmocka_unit_test(a_half_of_a_job_has_its_own_ranks_and_messages),
        cmocka_unit_test(four_threads_of_each_rank_talk_on_one_communicator),
        cmocka_unit_test(eight_ranks_send_to_all_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
