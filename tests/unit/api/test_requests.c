/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that were begun: testing, waiting, cancelling, deadlines, groups; and what every call
 * on messages says to wrong arguments. */
#include "unit/api/messages.h"

#define TAG 17

static const size_t lens[] = {24, 9000, 200000}; /* each takes another way */

/* A word of the harness: the order of what two ranks do, without Weft. */
static void tell(struct harness_shared *shared, int word)
{
    atomic_fetch_add(&shared->word[word], 1);
}

/* ---- test and wait ---- */

static int test_until_done(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (size_t i = 0; i < LENS(lens); i++) {
        uint8_t *bytes = make_bytes(i, lens[i]), *room = make_room(lens[i]);
        uint64_t deadline_ns = harness_now_ns() + WAIT_MS * UINT64_C(1000000);
        weft_message_t message = {-7, -7, 77};
        weft_request_t request = NULL;
        int is_done = 7;
        if (rank == 0) {
            EXPECT(harness_wait_reach(&shared->word[0], (uint32_t)i + 1, WAIT_MS));
            EXPECT_OK(weft_send(comm, bytes, lens[i], 1, TAG, &request));
        } else {
            EXPECT_OK(weft_recv(comm, room, lens[i], 0, TAG, &message, &request));
            for (int k = 0; k < 100; k++) {
                EXPECT_OK(weft_test(&request, &is_done));
                EXPECT(is_done == 0 && request != NULL);
            }
            EXPECT(is_untouched(room, lens[i]) && message.source == -7);
            tell(shared, 0);
        }
        do {
            EXPECT_OK(weft_test(&request, &is_done));
        } while (is_done == 0 && harness_now_ns() < deadline_ns);
        EXPECT(is_done == 1 && request == NULL);
        EXPECT(rank == 0 || (are_bytes(i, room, lens[i]) && message.len == lens[i]));
        EXPECT_OK(weft_wait(&request, 0)); /* done already */
        free(bytes);
        free_room(room);
    }
    return 0;
}

static void a_test_says_when_the_operation_has_ended(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, test_until_done);
}

/* A wait that is over is not the operation's end: neither a receive's nor a send's. */
static int wait_in_vain(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (size_t i = 0; i < LENS(lens); i++) {
        uint8_t *bytes = make_bytes(i, lens[i]), *room = make_room(lens[i]);
        struct expected want = {1, TAG, lens[i], i};
        weft_request_t request = NULL;
        uint64_t begin_ns;
        if (rank == 0) {
            EXPECT_OK(weft_recv(comm, room, lens[i], 1, TAG, NULL, &request));
            begin_ns = harness_now_ns();
            EXPECT(weft_wait(&request, 20) == WEFT_ERR_TIMEOUT);
            EXPECT(request != NULL);
            EXPECT(harness_now_ns() - begin_ns >= UINT64_C(20000000));
            EXPECT(weft_wait(&request, 0) == WEFT_ERR_TIMEOUT && request != NULL);
            EXPECT(weft_wait_all(&request, 1, 1) == WEFT_ERR_TIMEOUT && request != NULL);
            EXPECT_OK(weft_comm_status(comm));
            tell(shared, 0);
            EXPECT_OK(weft_wait(&request, WEFT_NO_LIMIT));
            EXPECT(request == NULL && are_bytes(i, room, lens[i]));
            EXPECT(harness_wait_reach(&shared->word[1], (uint32_t)i + 1, WAIT_MS));
            EXPECT_PASS(check_recv(comm, 1, TAG, &want, rank, shared));
        } else {
            EXPECT(harness_wait_reach(&shared->word[0], (uint32_t)i + 1, WAIT_MS));
            EXPECT_OK(weft_send(comm, bytes, lens[i], 0, TAG, NULL));
            EXPECT_OK(weft_send(comm, bytes, lens[i], 0, TAG, &request));
            if (weft_wait(&request, 10) == WEFT_ERR_TIMEOUT) { /* a small one may be done */
                EXPECT(request != NULL);
            }
            tell(shared, 1);
            EXPECT_OK(weft_wait(&request, WAIT_MS));
            EXPECT(request == NULL);
        }
        free(bytes);
        free_room(room);
    }
    return 0;
}

static void a_wait_that_times_out_leaves_the_operation_alive(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, wait_in_vain);
}

/* ---- any and all ---- */

#define FEW 8

/* Of message i of `order`; the room of number 6 is too short for its message. */
static size_t any_len(int i)
{
    return lens[(size_t)i % LENS(lens)];
}

static const int order[FEW] = {5, 0, 7, 2, 6, 1, 4, 3};

static int send_when_told(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int i = 0; i < FEW; i++) {
        EXPECT(harness_wait_reach(&shared->word[0], (uint32_t)i + 1, WAIT_MS));
        EXPECT_OK(
            send_pattern(comm, any_len(i) + (order[i] == 6), 1, order[i], (uint64_t)order[i]));
    }
    return 0;
}

static int wait_for_any(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_request_t requests[FEW + 1] = {NULL};
    uint8_t *rooms[FEW];
    int index = 77;
    if (rank == 0) {
        return send_when_told(comm, rank, shared);
    }
    EXPECT_OK(weft_wait_any(requests, FEW + 1, 0, &index)); /* all NULL */
    EXPECT(index == -1);
    for (int i = 0; i < FEW; i++) { /* entry 4 stays NULL: those behind it move up */
        int tag = order[i];
        rooms[tag] = make_room(any_len(i));
        EXPECT_OK(
            weft_recv(comm, rooms[tag], any_len(i), 0, tag, NULL, &requests[tag + (tag >= 4)]));
    }
    index = 77;
    EXPECT(weft_wait_any(requests, FEW + 1, 5, &index) == WEFT_ERR_TIMEOUT);
    EXPECT(index == -1);
    for (int i = 0; i < FEW; i++) {
        int tag = order[i], want = tag + (tag >= 4);
        tell(shared, 0);
        EXPECT(weft_wait_any(requests, FEW + 1, WAIT_MS, &index) ==
               (tag == 6 ? WEFT_ERR_TRUNCATED : WEFT_OK));
        EXPECT(index == want && requests[want] == NULL);
        EXPECT(tag == 6 || are_bytes((uint64_t)tag, rooms[tag], any_len(i)));
        free_room(rooms[tag]);
    }
    EXPECT_OK(weft_wait_any(requests, FEW + 1, WAIT_MS, &index));
    EXPECT(index == -1);
    return 0;
}

static void wait_any_says_which_one_ended_and_how(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, wait_for_any);
}

static int wait_for_all(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_request_t requests[FEW] = {NULL};
    uint8_t *rooms[FEW];
    int left = 0;
    if (rank == 0) {
        for (int i = 0; i < FEW; i += 2) {
            EXPECT_OK(send_pattern(comm, lens[(size_t)i % 3] + (i == 4), 1, i, (uint64_t)i));
        }
        EXPECT(harness_wait_for(&shared->word[0], 1, WAIT_MS));
        for (int i = 1; i < FEW; i += 2) {
            EXPECT_OK(send_pattern(comm, lens[(size_t)i % 3], 1, i, (uint64_t)i));
        }
        return 0;
    }
    for (int i = 0; i < FEW; i++) {
        rooms[i] = make_room(200000);
        EXPECT_OK(weft_recv(comm, rooms[i], lens[(size_t)i % 3], 0, i, NULL, &requests[i]));
    }
    for (int i = 0; i < FEW; i += 2) {
        EXPECT(weft_wait(&requests[i], WAIT_MS) == (i == 4 ? WEFT_ERR_TRUNCATED : WEFT_OK));
    }
    EXPECT(weft_wait_all(requests, FEW, 20) == WEFT_ERR_TIMEOUT);
    for (int i = 0; i < FEW; i++) {
        left += requests[i] != NULL;
    }
    EXPECT(left == FEW / 2);
    tell(shared, 0);
    EXPECT_OK(weft_wait_all(requests, FEW, WAIT_MS));
    for (int i = 0; i < FEW; i++) {
        EXPECT(requests[i] == NULL);
        EXPECT(i == 4 || are_bytes((uint64_t)i, rooms[i], lens[(size_t)i % 3]));
        free_room(rooms[i]);
    }
    EXPECT_OK(weft_wait_all(requests, FEW, 0));
    EXPECT_OK(weft_wait_all(NULL, 0, 0));
    return 0;
}

static void wait_all_leaves_what_still_goes_on(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, wait_for_all);
}

/* One of three fails: it is told, and the other two are finished all the same. */
static int fail_one_of_all(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    weft_request_t requests[3] = {NULL};
    uint8_t *rooms[3];
    for (int i = 0; i < 3; i++) {
        rooms[i] = make_room(lens[i]);
        if (rank == 0) {
            EXPECT_OK(send_pattern(comm, lens[i], 1, i, (uint64_t)i));
        } else {
            size_t room = i == 1 ? lens[i] - 1 : lens[i];
            EXPECT_OK(weft_recv(comm, rooms[i], room, 0, i, NULL, &requests[i]));
        }
    }
    if (rank == 1) {
        EXPECT(weft_wait_all(requests, 3, WAIT_MS) == WEFT_ERR_TRUNCATED);
        EXPECT(requests[0] == NULL && requests[1] == NULL && requests[2] == NULL);
        EXPECT(are_bytes(0, rooms[0], lens[0]) && are_bytes(2, rooms[2], lens[2]));
    }
    for (int i = 0; i < 3; i++) {
        free_room(rooms[i]);
    }
    return 0;
}

static void wait_all_returns_the_error_of_one_and_finishes_the_others(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, fail_one_of_all);
}

/* ---- cancelling ---- */

static int cancel_before_matching(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (size_t i = 0; i < LENS(lens); i++) {
        uint8_t *rooms[3];
        weft_request_t requests[3];
        for (int k = 0; k < 3 && rank == 1; k++) { /* the one in the middle and the last remain */
            rooms[k] = make_room(lens[i]);
            EXPECT_OK(weft_recv(comm, rooms[k], lens[i], k == 1 ? 0 : WEFT_ANY_SOURCE,
                                k == 2 ? WEFT_ANY_TAG : TAG, NULL, &requests[k]));
        }
        if (rank == 1) {
            EXPECT_OK(weft_cancel(&requests[0]));
            EXPECT(requests[0] == NULL);
        }
        EXPECT_OK(weft_control_barrier(comm));
        for (int k = 1; k < 3; k++) {
            if (rank == 0) {
                EXPECT_OK(send_pattern(comm, lens[i], 1, TAG, (uint64_t)k));
            } else if (rank == 1) {
                EXPECT_OK(weft_wait(&requests[k], WAIT_MS));
                EXPECT(are_bytes((uint64_t)k, rooms[k], lens[i]));
            }
        }
        for (int k = 0; k < 3 && rank == 1; k++) {
            EXPECT(k > 0 || is_untouched(rooms[k], lens[i]));
            free_room(rooms[k]);
        }
    }
    return 0;
}

static void a_receive_cancelled_before_matching_harms_no_message(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, cancel_before_matching);
}

static int cancel_too_late(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (size_t i = 0; i < LENS(lens); i++) {
        uint8_t *room = make_room(lens[i]);
        weft_request_t request = NULL;
        weft_message_t message;
        if (rank == 0) {
            EXPECT_OK(send_pattern(comm, lens[i], 1, TAG, i));
            EXPECT_OK(send_pattern(comm, lens[i], 1, TAG, i + 50));
        } else {
            EXPECT_OK(weft_probe(comm, 0, TAG, WAIT_MS, &message)); /* the receive finds it */
            EXPECT_OK(weft_recv(comm, room, lens[i], 0, TAG, NULL, &request));
            EXPECT(weft_cancel(&request) == WEFT_ERR_BUSY);
            EXPECT(request != NULL);
            EXPECT_OK(weft_wait(&request, WAIT_MS));
            EXPECT(are_bytes(i, room, lens[i]));
            EXPECT_PASS(check_recv(comm, 0, TAG, &(struct expected){0, TAG, lens[i], i + 50}, rank,
                                   shared));
        }
        free_room(room);
    }
    return 0;
}

static void a_matched_receive_cannot_be_cancelled(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, cancel_too_late);
}

/* Whatever cancel says of a send is true: it never comes, or it comes once. */
static int cancel_send(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint32_t i = 0; i < LENS(lens); i++) {
        struct expected next = {0, TAG, 8, 1000}, first = {0, TAG, lens[i], i};
        weft_request_t request = NULL;
        uint8_t *bytes = make_bytes(i, lens[i]);
        if (rank == 0) {
            weft_status_t status;
            EXPECT_OK(weft_send(comm, bytes, lens[i], 1, TAG, &request));
            status = weft_cancel(&request);
            EXPECT(status == WEFT_OK || status == WEFT_ERR_BUSY);
            EXPECT((request == NULL) == (status == WEFT_OK));
            atomic_store(&shared->word[4 + i], status == WEFT_OK ? 1 : 2);
            if (status == WEFT_OK) {
                memset(bytes, GUARD_BYTE, lens[i]); /* ours again */
            }
            EXPECT_OK(send_pattern(comm, 8, 1, TAG, 1000));
            EXPECT_OK(weft_wait(&request, WAIT_MS));
        } else {
            EXPECT(harness_wait_reach(&shared->word[4 + i], 1, WAIT_MS));
            if (atomic_load(&shared->word[4 + i]) == 2) {
                EXPECT_PASS(check_recv(comm, 0, TAG, &first, rank, shared));
            }
            EXPECT_PASS(check_recv(comm, 0, TAG, &next, rank, shared));
        }
        free(bytes);
    }
    return 0;
}

static void a_send_is_cancelled_wholly_or_not_at_all(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, cancel_send);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_test_says_when_the_operation_has_ended),
        cmocka_unit_test(a_wait_that_times_out_leaves_the_operation_alive),
        cmocka_unit_test(wait_any_says_which_one_ended_and_how),
        cmocka_unit_test(wait_all_leaves_what_still_goes_on),
        cmocka_unit_test(wait_all_returns_the_error_of_one_and_finishes_the_others),
        cmocka_unit_test(a_receive_cancelled_before_matching_harms_no_message),
        cmocka_unit_test(a_matched_receive_cannot_be_cancelled),
        cmocka_unit_test(a_send_is_cancelled_wholly_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
