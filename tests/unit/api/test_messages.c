/* SPDX-License-Identifier: Apache-2.0 */
/* What two ranks may rely on when they send: whole bytes of any size, order, selection by source
 * and tag, truncation, floods, probes, communicators that do not mix. */
#include "unit/api/messages.h"

#define TAG 17

/* ---- sizes ---- */

/* The receive waits for the message. */
static int receive_posted_first(weft_comm_t comm, size_t len, int number, int rank,
                                struct harness_shared *shared)
{
    uint64_t seed = seed_of(0, TAG, number);
    struct expected want = {0, TAG, len, seed};
    weft_message_t message = {-7, -7, 77};
    weft_request_t request = NULL;
    uint8_t *room = make_room(len);
    if (rank == 1) {
        EXPECT_OK(weft_recv(comm, room, len, 0, TAG, &message, &request));
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 0) {
        EXPECT_OK(send_pattern(comm, len, 1, TAG, seed));
    } else {
        EXPECT(request != NULL);
        EXPECT_OK(weft_wait(&request, WAIT_MS));
        EXPECT(request == NULL);
        EXPECT(is_message(&message, &want));
        EXPECT(are_bytes(seed, room, len));
        EXPECT(are_guards_whole(room, len));
    }
    free_room(room);
    return 0;
}

/* The message waits for the receive: it has been seen by a probe. */
static int message_there_first(weft_comm_t comm, size_t len, int number, int rank,
                               struct harness_shared *shared)
{
    uint64_t seed = seed_of(0, TAG, number);
    struct expected want = {0, TAG, len, seed};
    weft_request_t request = NULL;
    weft_message_t message;
    uint8_t *bytes = make_bytes(seed, len);
    if (rank == 0) {
        EXPECT_OK(weft_send(comm, bytes, len, 1, TAG, &request));
        EXPECT_OK(weft_wait(&request, WAIT_MS));
    } else {
        EXPECT_OK(weft_probe(comm, 0, TAG, WAIT_MS, &message));
        EXPECT(is_message(&message, &want));
        EXPECT_PASS(check_recv(comm, 0, TAG, &want, rank, shared));
    }
    free(bytes);
    return 0;
}

static int exchange_every_size(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (size_t i = 0; i < LENS(message_lens); i++) {
        EXPECT_PASS(receive_posted_first(comm, message_lens[i], (int)i, rank, shared));
        EXPECT_PASS(message_there_first(comm, message_lens[i], -1 - (int)i, rank, shared));
    }
    return 0;
}

static void messages_of_every_size_arrive_whole(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, exchange_every_size);
}

/* Both ends, or one of them, in memory that the ranks share. */
static int exchange_shared_memory(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const size_t longest = message_lens[LENS(message_lens) - 1];
    uint8_t *memory = NULL, *private = allocate(longest);
    EXPECT_OK(weft_alloc(longest + 64, (void **)&memory));
    for (int i = 0; i < 4 * (int)LENS(message_lens); i++) {
        size_t len = message_lens[i / 4];
        bool is_shared = (i >> rank & 1) == 0;                 /* all four pairs of memories … */
        uint8_t *bytes = is_shared ? memory + i % 3 : private; /* … and not always aligned */
        uint64_t seed = seed_of(0, TAG, i);
        if (rank == 0) {
            fill_bytes(seed, bytes, len);
            EXPECT_OK(weft_send(comm, bytes, len, 1, TAG, NULL));
        } else {
            EXPECT_OK(weft_recv(comm, bytes, len, 0, TAG, NULL, NULL));
            EXPECT(are_bytes(seed, bytes, len));
        }
    }
    EXPECT_OK(weft_control_barrier(comm)); /* nothing may be in flight in what is freed */
    EXPECT_OK(weft_free(memory));
    free(private);
    return 0;
}

static void messages_from_and_into_shared_memory_arrive_whole(void **state)
{
    (void)state;
    run_ways(PROCESSES | SHM_THREADS, 2, exchange_shared_memory);
}

/* ---- to oneself ---- */

static int send_to_oneself(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t small[] = {0, 1, 40, 41, 4096};
    for (size_t i = 0; i < LENS(message_lens); i++) {
        size_t len = message_lens[i];
        struct expected want = {rank, TAG, len, seed_of(rank, TAG, (int)i)};
        uint8_t *bytes = make_bytes(want.seed, len), *room = make_room(len);
        weft_message_t message = {-7, -7, 77};
        weft_request_t request = NULL;
        EXPECT_OK(weft_send(comm, bytes, len, rank, TAG, &request)); /* the message first */
        EXPECT_PASS(check_recv(comm, rank, TAG, &want, rank, shared));
        EXPECT_OK(weft_wait(&request, WAIT_MS));
        EXPECT_OK(weft_recv(comm, room, len, WEFT_ANY_SOURCE, TAG, &message, &request));
        EXPECT_OK(weft_send(comm, bytes, len, rank, TAG, NULL)); /* the receive first */
        EXPECT_OK(weft_wait(&request, WAIT_MS));
        EXPECT(is_message(&message, &want));
        EXPECT(are_bytes(want.seed, room, len) && are_guards_whole(room, len));
        memset(room, GUARD_BYTE, len);
        EXPECT_OK(weft_group_begin(comm)); /* no order at all */
        EXPECT_OK(weft_send(comm, bytes, len, rank, TAG, NULL));
        EXPECT_OK(weft_recv(comm, room, len, rank, WEFT_ANY_TAG, NULL, NULL));
        EXPECT_OK(weft_group_end(comm));
        EXPECT(are_bytes(want.seed, room, len) && are_guards_whole(room, len));
        free(bytes);
        free_room(room);
    }
    for (size_t i = 0; i < LENS(small); i++) { /* a small one is taken over by Weft */
        EXPECT_OK(send_pattern(comm, small[i], rank, TAG, i));
    }
    for (size_t i = 0; i < LENS(small); i++) {
        struct expected want = {rank, TAG, small[i], i};
        EXPECT_PASS(check_recv(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &want, rank, shared));
    }
    return 0;
}

static void messages_to_oneself_arrive_whole(void **state)
{
    (void)state;
    run_ways(PROCESSES, 1, send_to_oneself);
    run_ways(EVERY_WAY, 2, send_to_oneself);
}

/* ---- order and selection ---- */

#define MANY 600

/* Long and short ones in turn: a short one must not pass a long one. */
static size_t mixed_len(int number)
{
    static const size_t lens[] = {3, 70000, 0, 40, 41, 9000, 200000, 1, 65536, 8192};
    return lens[mix((uint64_t)number) % LENS(lens)];
}

static int send_many(weft_comm_t comm, int to, int (*tag_of)(int), int rank,
                     struct harness_shared *shared)
{
    weft_request_t *requests = allocate(MANY * sizeof(weft_request_t));
    uint8_t **bytes = allocate(MANY * sizeof(uint8_t *));
    for (int i = 0; i < MANY; i++) {
        bytes[i] = make_bytes(seed_of(rank, tag_of(i), i), mixed_len(i));
        EXPECT_OK(weft_send(comm, bytes[i], mixed_len(i), to, tag_of(i), &requests[i]));
    }
    EXPECT_OK(weft_wait_all(requests, MANY, WAIT_MS));
    for (int i = 0; i < MANY; i++) {
        EXPECT(requests[i] == NULL);
        free(bytes[i]);
    }
    free(requests);
    free(bytes);
    return 0;
}

static int one_tag(int number)
{
    (void)number;
    return TAG;
}

static int many_tags(int number)
{
    return (int)(mix((uint64_t)number * 3) % 7);
}

static int receive_in_order(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    if (rank == 0) {
        return send_many(comm, 1, one_tag, rank, shared);
    }
    for (int i = 0; i < MANY; i++) {
        struct expected want = {0, TAG, mixed_len(i), seed_of(0, TAG, i)};
        int from = i % 3 == 1 ? WEFT_ANY_SOURCE : 0, tag = i % 4 == 1 ? WEFT_ANY_TAG : TAG;
        EXPECT_PASS(check_recv(comm, from, tag, &want, rank, shared));
    }
    return 0;
}

static void messages_with_one_tag_are_received_in_the_order_of_their_sends(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, receive_in_order);
}

/* The last tag first: whatever was sent before it waits. */
static int receive_tag_by_tag(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    if (rank == 0) {
        return send_many(comm, 1, many_tags, rank, shared);
    }
    for (int tag = 6; tag >= 0; tag--) {
        for (int i = 0; i < MANY; i++) {
            struct expected want = {0, tag, mixed_len(i), seed_of(0, tag, i)};
            if (many_tags(i) == tag) {
                EXPECT_PASS(
                    check_recv(comm, tag % 2 == 0 ? 0 : WEFT_ANY_SOURCE, tag, &want, rank, shared));
            }
        }
    }
    return 0;
}

static void tags_are_selected_out_of_order(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, receive_tag_by_tag);
}

/* Each message goes to the first receive that was posted and could take it. */
static int receives_in_order_of_posting(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const int froms[] = {WEFT_ANY_SOURCE, 0, WEFT_ANY_SOURCE, 0, 0, WEFT_ANY_SOURCE};
    static const int tags[] = {WEFT_ANY_TAG, 5, 7, WEFT_ANY_TAG, 5, WEFT_ANY_TAG};
    static const int sent[] = {7, 5, 3, 7, 9, 5};     /* tags, in order … */
    static const int taken_by[] = {0, 1, 3, 2, 5, 4}; /* … and the receive each belongs to */
    static const size_t lens[] = {24, 100000};
    for (size_t l = 0; l < LENS(lens); l++) {
        weft_message_t messages[6];
        weft_request_t requests[6];
        uint8_t *rooms[6];
        for (int i = 0; i < 6 && rank == 1; i++) {
            rooms[i] = make_room(lens[l]);
            EXPECT_OK(
                weft_recv(comm, rooms[i], lens[l], froms[i], tags[i], &messages[i], &requests[i]));
        }
        EXPECT_OK(weft_control_barrier(comm));
        for (int i = 0; i < 6 && rank == 0; i++) {
            EXPECT_OK(send_pattern(comm, lens[l], 1, sent[i], seed_of(0, sent[i], i)));
        }
        for (int i = 0; i < 6 && rank == 1; i++) {
            struct expected want = {0, sent[i], lens[l], seed_of(0, sent[i], i)};
            int k = taken_by[i];
            EXPECT_OK(weft_wait(&requests[k], WAIT_MS));
            EXPECT(is_message(&messages[k], &want));
            EXPECT(are_bytes(want.seed, rooms[k], lens[l]));
            free_room(rooms[k]);
        }
    }
    return 0;
}

static void wildcards_and_exact_receives_match_in_the_order_of_posting(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, receives_in_order_of_posting);
}

#define EACH 60

static int receive_from_anybody(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    int next[4] = {0};
    for (int i = 0; i < EACH && rank != 0; i++) {
        EXPECT_OK(send_pattern(comm, mixed_len(i), 0, rank + i % 2 * 10, seed_of(rank, 0, i)));
    }
    for (int i = 0; i < 3 * EACH && rank == 0; i++) {
        uint8_t *room = make_room(200000);
        weft_message_t message;
        int number;
        EXPECT_OK(weft_recv(comm, room, 200000, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &message, NULL));
        EXPECT(message.source >= 1 && message.source <= 3);
        number = next[message.source]++;
        EXPECT(message.tag == message.source + number % 2 * 10);
        EXPECT(message.len == mixed_len(number));
        EXPECT(are_bytes(seed_of(message.source, 0, number), room, message.len));
        EXPECT(is_untouched(room + message.len, 200000 - message.len));
        free_room(room);
    }
    EXPECT(rank != 0 || (next[1] == EACH && next[2] == EACH && next[3] == EACH));
    return 0;
}

static void messages_of_anybody_say_whose_they_are_and_keep_each_rank_s_order(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 4, receive_from_anybody);
}

/* ---- truncation ---- */

static int receive_too_short(weft_comm_t comm, size_t len, size_t room_len, bool is_posted_first,
                             int rank, struct harness_shared *shared)
{
    uint8_t *room = make_room(room_len);
    struct expected next = {0, TAG, len, 99};
    weft_request_t request = NULL;
    weft_message_t message;
    if (rank == 1 && is_posted_first) {
        EXPECT_OK(weft_recv(comm, room, room_len, 0, TAG, NULL, &request));
    }
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == 0) {
        EXPECT_OK(send_pattern(comm, len, 1, TAG, 98));
        EXPECT_OK(send_pattern(comm, len, 1, TAG, 99));
    } else {
        if (is_posted_first) {
            EXPECT(weft_wait(&request, WAIT_MS) == WEFT_ERR_TRUNCATED);
            EXPECT(request == NULL);
        } else {
            EXPECT_OK(weft_probe(comm, 0, TAG, WAIT_MS, &message));
            EXPECT(message.len == len);
            EXPECT(weft_recv(comm, room, room_len, 0, TAG, NULL, NULL) == WEFT_ERR_TRUNCATED);
        }
        EXPECT(strlen(weft_error_text()) > 0);
        EXPECT(are_guards_whole(room, room_len));
        EXPECT_PASS(check_recv(comm, 0, TAG, &next, rank, shared));
        EXPECT(are_guards_whole(room, room_len));
        EXPECT_OK(weft_comm_status(comm));
    }
    free_room(room);
    return 0;
}

static int truncate_each(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t lens[][2] = {{1, 0},         {41, 40},    {4096, 41},   {65536, 65535},
                                     {65537, 65536}, {131073, 0}, {131073, 10}, {1 << 20, 70000}};
    for (size_t i = 0; i < LENS(lens); i++) {
        for (int is_posted_first = 0; is_posted_first <= 1; is_posted_first++) {
            EXPECT_PASS(receive_too_short(comm, lens[i][0], lens[i][1], is_posted_first == 1, rank,
                                          shared));
        }
    }
    return 0;
}

static void a_buffer_that_is_too_short_is_an_error_and_the_next_message_is_whole(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, truncate_each);
}

static int truncate_to_oneself(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (size_t len = 1; len <= 1 << 20; len = len * 16 + 1) {
        uint8_t *bytes = make_bytes(len, len), *room = make_room(len - 1);
        weft_request_t request = NULL;
        EXPECT_OK(weft_send(comm, bytes, len, rank, TAG, &request));
        EXPECT(weft_recv(comm, room, len - 1, rank, TAG, NULL, NULL) == WEFT_ERR_TRUNCATED);
        EXPECT_OK(weft_wait(&request, WAIT_MS));
        EXPECT(are_guards_whole(room, len - 1));
        free(bytes);
        free_room(room);
    }
    return 0;
}

static void a_message_to_oneself_is_truncated_like_any_other(void **state)
{
    (void)state;
    run_ways(PROCESSES, 1, truncate_to_oneself);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_every_size_arrive_whole),
        cmocka_unit_test(messages_from_and_into_shared_memory_arrive_whole),
        cmocka_unit_test(messages_to_oneself_arrive_whole),
        cmocka_unit_test(messages_with_one_tag_are_received_in_the_order_of_their_sends),
        cmocka_unit_test(tags_are_selected_out_of_order),
        cmocka_unit_test(wildcards_and_exact_receives_match_in_the_order_of_posting),
        cmocka_unit_test(messages_of_anybody_say_whose_they_are_and_keep_each_rank_s_order),
        cmocka_unit_test(a_buffer_that_is_too_short_is_an_error_and_the_next_message_is_whole),
        cmocka_unit_test(a_message_to_oneself_is_truncated_like_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
