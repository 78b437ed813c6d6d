/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest messages have a way of their own through the library when a blocking receive waits for
 * just them. Here the next thing to arrive is not what the receive waits for, or not for it alone. */
#include "unit/api/messages.h"

#define ROUNDS 100
#define TAG 3
#define OTHER_TAG 4

static weft_status_t send_number(weft_comm_t comm, uint64_t number, int to, int tag)
{
    return weft_send(comm, &number, sizeof(number), to, tag, NULL);
}

static weft_status_t recv_number(weft_comm_t comm, uint64_t *number_p, int from, int tag)
{
    return weft_recv(comm, number_p, sizeof(*number_p), from, tag, NULL, NULL);
}

/* ---- another tag comes first ---- */

static int cross_tags(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t first = 0, second = 0;
        if (rank == 0) {
            EXPECT_OK(send_number(comm, 2 * i, 1, TAG));
            EXPECT_OK(send_number(comm, 2 * i + 1, 1, OTHER_TAG));
            EXPECT_OK(recv_number(comm, &first, 1, TAG));
        } else {
            EXPECT_OK(recv_number(comm, &second, 0, OTHER_TAG));
            EXPECT_OK(recv_number(comm, &first, 0, TAG));
            EXPECT(first == 2 * i && second == 2 * i + 1);
            EXPECT_OK(send_number(comm, i, 0, TAG));
        }
    }
    return 0;
}

static void a_receive_leaves_messages_with_another_tag_to_others(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, cross_tags);
}

/* ---- an earlier receive of the same ---- */

static int receive_twice(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t early = UINT64_MAX, late = UINT64_MAX;
        weft_request_t request = NULL;
        if (rank == 0) {
            EXPECT_OK(recv_number(comm, &early, 1, TAG)); /* both of its receives come after */
            EXPECT_OK(send_number(comm, 2 * i, 1, TAG));
            EXPECT_OK(send_number(comm, 2 * i + 1, 1, TAG));
        } else {
            EXPECT_OK(weft_recv(comm, &early, sizeof(early), i % 2 == 0 ? 0 : WEFT_ANY_SOURCE, TAG,
                                NULL, &request));
            EXPECT_OK(send_number(comm, i, 0, TAG));
            EXPECT_OK(recv_number(comm, &late, 0, TAG));
            EXPECT_OK(weft_wait(&request, WAIT_MS));
            EXPECT(early == 2 * i && late == 2 * i + 1);
        }
    }
    return 0;
}

static void a_receive_that_was_posted_earlier_gets_the_earlier_message(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, receive_twice);
}

/* ---- an earlier message that is kept ---- */

static int keep_one(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t number = UINT64_MAX;
        if (rank == 0) {
            EXPECT_OK(send_number(comm, 2 * i, 1, TAG));
            EXPECT_OK(send_number(comm, 0, 1, OTHER_TAG));
            EXPECT_OK(send_number(comm, 2 * i + 1, 1, TAG));
            EXPECT_OK(recv_number(comm, &number, 1, TAG));
        } else {
            EXPECT_OK(recv_number(comm, &number, 0, OTHER_TAG)); /* the first is kept now */
            EXPECT_OK(recv_number(comm, &number, 0, TAG));
            EXPECT(number == 2 * i);
            EXPECT_OK(recv_number(comm, &number, 0, TAG));
            EXPECT(number == 2 * i + 1);
            EXPECT_OK(send_number(comm, i, 0, TAG));
        }
    }
    return 0;
}

static void a_message_that_was_kept_comes_before_later_ones(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, keep_one);
}

/* ---- another rank, another communicator ---- */

static int cross_ranks(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t number = UINT64_MAX;
        if (rank == 1) {
            for (int k = 0; k < 2; k++) {
                int from = ((int)i + k) % 2 * 2;
                EXPECT_OK(recv_number(comm, &number, from, TAG));
                EXPECT(number == 10 * i + (uint64_t)from);
            }
            EXPECT_OK(send_number(comm, i, 0, TAG));
            EXPECT_OK(send_number(comm, i, 2, TAG));
        } else {
            EXPECT_OK(send_number(comm, 10 * i + (uint64_t)rank, 1, TAG));
            EXPECT_OK(recv_number(comm, &number, 1, TAG));
        }
    }
    return 0;
}

static void a_receive_leaves_messages_of_another_rank_to_others(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, cross_ranks);
}

static int cross_comms(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_comm_t other;
    EXPECT_OK(weft_comm_split(comm, 0, rank, &other));
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t number = UINT64_MAX;
        if (rank == 1) {
            EXPECT_OK(recv_number(other, &number, 0, TAG));
            EXPECT(number == 2 * i + 1);
            EXPECT_OK(recv_number(comm, &number, 0, TAG));
            EXPECT(number == 2 * i);
            EXPECT_OK(send_number(comm, i, 0, TAG));
        } else {
            EXPECT_OK(send_number(comm, 2 * i, 1, TAG));
            EXPECT_OK(send_number(other, 2 * i + 1, 1, TAG));
            EXPECT_OK(recv_number(comm, &number, 1, TAG));
        }
    }
    EXPECT_OK(weft_comm_close(other));
    return 0;
}

static void a_receive_leaves_messages_of_another_communicator_to_others(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, cross_comms);
}

/* ---- what a receive reports ---- */

static int report_lengths(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const uint8_t bytes[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    uint8_t room[64];
    weft_message_t message;
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        if (rank == 0) {
            EXPECT_OK(weft_send(comm, bytes, len, 1, (int)len, NULL));
            EXPECT_OK(weft_send(comm, bytes, len, 1, TAG, NULL));
            EXPECT_OK(weft_recv(comm, NULL, 0, 1, TAG, NULL, NULL));
        } else {
            memset(room, 0xee, sizeof(room));
            EXPECT_OK(weft_recv(comm, room, sizeof(room), 0, WEFT_ANY_TAG, &message, NULL));
            EXPECT(message.source == 0 && message.tag == (int)len && message.len == len);
            EXPECT(memcmp(room, bytes, len) == 0);
            EXPECT(len == sizeof(room) || room[len] == 0xee);
            /* one byte less than it has */
            EXPECT(weft_recv(comm, room, len > 0 ? len - 1 : 0, 0, TAG, &message, NULL) ==
                   (len > 0 ? WEFT_ERR_TRUNCATED : WEFT_OK));
            EXPECT(message.source == 0 && message.tag == TAG && message.len == len);
            EXPECT_OK(weft_send(comm, NULL, 0, 0, TAG, NULL));
        }
    }
    return 0;
}

static void lengths_and_tags_are_reported_and_short_buffers_refused(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, report_lengths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_leaves_messages_with_another_tag_to_others),
        cmocka_unit_test(a_receive_that_was_posted_earlier_gets_the_earlier_message),
        cmocka_unit_test(a_message_that_was_kept_comes_before_later_ones),
        cmocka_unit_test(a_receive_leaves_messages_of_another_rank_to_others),
        cmocka_unit_test(a_receive_leaves_messages_of_another_communicator_to_others),
        cmocka_unit_test(lengths_and_tags_are_reported_and_short_buffers_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
