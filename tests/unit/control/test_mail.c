/* SPDX-License-Identifier: Apache-2.0 */
/* Tagged messages: order, tags, oneself, the window, buffers that are too small, the end. */
#include "unit/comm/comm_support.h"

#define WINDOW 65536

static int tags_in_any_order(int rank, struct harness_shared *shared, void *arg)
{
    enum { TAGS = 20, EACH = 5 };
    weft_comm_t comm = NULL;
    uint32_t value;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    if (rank != 0) {
        for (uint32_t i = 0; i < TAGS * EACH; i++) { /* tags take turns */
            value = i / TAGS * 1000 + (uint32_t)rank;
            EXPECT_OK(weft_control_send(comm, 0, i % TAGS, &value, sizeof(value)));
        }
    }
    for (uint32_t tag = TAGS; rank == 0 && tag-- > 0;) { /* the last tag first */
        for (int from = shared->ranks - 1; from > 0; from--) {
            for (uint32_t i = 0; i < EACH; i++) { /* of one tag in the order they were sent */
                size_t len = 0;
                EXPECT_OK(weft_control_recv(comm, from, tag, &value, sizeof(value), &len));
                EXPECT(len == sizeof(value));
                EXPECT(value == i * 1000 + (uint32_t)from);
            }
        }
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void messages_of_one_tag_keep_their_order_and_tags_are_independent(void **state)
{
    (void)state;
    run_processes(4, tags_in_any_order, NULL);
    run_threads(4, tags_in_any_order, NULL);
}

static int every_length_and_tag(int rank, struct harness_shared *shared, void *arg)
{
    static const size_t lens[] = {0, 1, 63, 4096, 65535, 65536};
    static const uint32_t tags[] = {0, 1, UINT32_MAX};
    static uint8_t data[65536];
    weft_comm_t comm = NULL;
    int other = shared->ranks - 1 - rank;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        for (size_t t = 0; t < sizeof(tags) / sizeof(tags[0]); t++) {
            size_t got = 12345;
            fill_bytes(i * 100 + (uint64_t)rank, data, lens[i]);
            EXPECT_OK(weft_control_send(comm, other, tags[t], data, lens[i]));
            EXPECT_OK(weft_control_recv(comm, other, tags[t], data, sizeof(data), &got));
            EXPECT(got == lens[i]);
            EXPECT(are_bytes(i * 100 + (uint64_t)other, data, got));
        }
    }
    EXPECT_OK(weft_control_send(comm, other, 7, NULL, 0)); /* no bytes, no buffer, no length */
    EXPECT_OK(weft_control_recv(comm, other, 7, NULL, 0, NULL));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void messages_of_every_length_and_tag_arrive(void **state)
{
    (void)state;
    run_processes(4, every_length_and_tag, NULL);
    run_processes(2, every_length_and_tag, NULL);
}

static int to_oneself(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    uint32_t value, got;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (uint32_t i = 0; i < 100; i++) {
        value = i;
        EXPECT_OK(weft_control_send(comm, rank, i % 3, &value, sizeof(value)));
    }
    for (uint32_t tag = 0; tag < 3; tag++) {
        for (uint32_t i = tag; i < 100; i += 3) {
            EXPECT_OK(weft_control_recv(comm, rank, tag, &got, sizeof(got), NULL));
            EXPECT(got == i);
        }
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_rank_can_send_to_itself(void **state)
{
    (void)state;
    run_processes(1, to_oneself, NULL);
    run_processes(3, to_oneself, NULL);
}

/* ---- too small a buffer ---- */

static int truncation(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    uint8_t data[100], small[99];
    size_t got = 777;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    if (rank == 0) {
        for (int way = 0; way < 2; way++) {
            fill_bytes(1, data, sizeof(data));
            if (way == 1) { /* now the receiver waits before the message comes */
                EXPECT(harness_wait_for(&shared->word[0], 1, DEADLINE_MS));
            }
            EXPECT_OK(weft_control_send(comm, 1, 3, data, sizeof(data)));
            fill_bytes(2, data, 50);
            EXPECT_OK(weft_control_send(comm, 1, 3, data, 50));
        }
    }
    for (int way = 0; rank == 1 && way < 2; way++) {
        if (way == 1) {
            atomic_store(&shared->word[0], 1);
        }
        got = 777;
        EXPECT(weft_control_recv(comm, 0, 3, small, sizeof(small), &got) == WEFT_ERR_TRUNCATED);
        EXPECT(got == 777); /* outputs only on success */
        EXPECT(strstr(weft_error_text(), "100 bytes") != NULL);
        EXPECT(weft_control_recv(comm, 0, 3, NULL, 0, NULL) == WEFT_ERR_TRUNCATED);
        EXPECT_OK(weft_comm_status(comm));
        EXPECT_OK(weft_control_recv(comm, 0, 3, data, sizeof(data), &got)); /* it stayed, first */
        EXPECT(got == 100 && are_bytes(1, data, 100));
        EXPECT_OK(weft_control_recv(comm, 0, 3, data, sizeof(data), &got));
        EXPECT(got == 50 && are_bytes(2, data, 50));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_message_longer_than_the_buffer_stays(void **state)
{
    (void)state;
    run_processes(2, truncation, NULL);
}

/* ---- the window ---- */

/* word 0: how many sends have returned; word 1: the test lets the receiver go. */
static int send_past_the_window(int rank, struct harness_shared *shared, void *arg)
{
    enum { COUNT = 12, LEN = 16384 };
    static uint8_t data[LEN];
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    if (rank == 1) {
        for (uint32_t i = 0; i < COUNT; i++) {
            fill_bytes(i, data, LEN);
            EXPECT_OK(weft_control_send(comm, 0, 1, data, LEN));
            atomic_fetch_add(&shared->word[0], 1);
        }
    }
    if (rank == 0) {
        EXPECT(harness_wait_for(&shared->word[1], 1, DEADLINE_MS));
        for (uint32_t i = 0; i < COUNT; i++) {
            /* never more than the window lies between the two */
            uint32_t sent = atomic_load(&shared->word[0]);
            EXPECT(sent <= i + WINDOW / LEN);
            EXPECT_OK(weft_control_recv(comm, 1, 1, data, LEN, NULL));
            EXPECT(are_bytes(i, data, LEN));
        }
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_sender_blocks_when_64_kib_were_not_received(void **state)
{
    struct harness *harness = harness_start(3, send_past_the_window, NULL);
    struct harness_shared *shared = harness_shared(harness);
    (void)state;
    assert_harness(harness, harness_wait_reach(&shared->word[0], 3, DEADLINE_MS));
    /* 4 × (16384 + what a message costs) are more than the window: the fourth waits */
    assert_false(harness_wait_reach(&shared->word[0], 4, 100));
    atomic_store(&shared->word[1], 1);
    finish(harness);
}

/* A full window to one rank does not keep mail from the others. */
static int full_window_to_one(int rank, struct harness_shared *shared, void *arg)
{
    static uint8_t data[WINDOW];
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    if (rank == 0) {
        EXPECT_OK(weft_control_send(comm, 1, 1, data, WINDOW)); /* full, nobody receives */
        EXPECT_OK(weft_control_send(comm, 2, 1, data, 100));
        atomic_store(&shared->word[0], 1);
    } else if (rank == 2) {
        EXPECT_OK(weft_control_recv(comm, 0, 1, data, WINDOW, NULL));
        atomic_store(&shared->word[1], 1);
    } else {
        EXPECT(harness_wait_for(&shared->word[1], 1, DEADLINE_MS));
        EXPECT_OK(weft_control_recv(comm, 0, 1, data, WINDOW, NULL));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_full_window_to_one_rank_does_not_stop_mail_to_another(void **state)
{
    (void)state;
    run_processes(3, full_window_to_one, NULL);
}

/* ---- ends ---- */

static int send_and_close(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    uint8_t data[1000];
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    if (rank == shared->ranks - 1) { /* a leaf */
        fill_bytes(3, data, sizeof(data));
        EXPECT_OK(weft_control_send(comm, 0, 3, data, sizeof(data)));
    } else if (rank == 0) {
        EXPECT_OK(weft_control_recv(comm, shared->ranks - 1, 3, data, sizeof(data), NULL));
        EXPECT(are_bytes(3, data, sizeof(data)));
        /* nothing more can come from there */
        EXPECT(weft_control_recv(comm, shared->ranks - 1, 3, data, sizeof(data), NULL) ==
               WEFT_ERR_PEER);
        EXPECT(strstr(weft_error_text(), "closed") != NULL);
    }
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void what_was_sent_before_a_close_arrives_and_then_the_peer_is_gone(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        run_processes(2, send_and_close, NULL);
    }
}

static int survive_and_close(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL, rest = NULL;
    uint8_t byte;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    EXPECT_OK(weft_control_barrier(comm));
    if (rank > 0) { /* without the root, which has closed */
        EXPECT_OK(weft_comm_shrink(comm, &rest));
    }
    if (rank == 1) {
        EXPECT(weft_control_recv(rest, 1, 3, &byte, 1, NULL) == WEFT_ERR_PEER);
        EXPECT(strstr(weft_error_text(), "rank 2 (pid") != NULL);
        EXPECT(strstr(weft_error_text(), "rank 0") == NULL);
    }
    EXPECT_OK(weft_comm_close(rest));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void of_two_that_have_closed_the_one_that_is_waited_for_is_named(void **state)
{
    (void)state;
    run_processes(3, survive_and_close, NULL);
}

static int receive_in_vain(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config();
    weft_comm_t comm = NULL;
    uint8_t byte;
    (void)arg;
    config.timeout_ms = 100;
    if (rank == 0) {
        EXPECT_OK(weft_id_create(&config, job_ids(shared)));
        atomic_store(&shared->word[ID_WORD], 1);
    }
    EXPECT(harness_wait_for(&shared->word[ID_WORD], 1, DEADLINE_MS));
    EXPECT_OK(weft_comm_create(job_ids(shared), rank, shared->ranks, &config, &comm));
    if (rank == 0) {
        EXPECT(weft_control_recv(comm, 1, 9, &byte, 1, NULL) == WEFT_ERR_TIMEOUT);
        EXPECT(strstr(weft_error_text(), "rank 1") != NULL);
        EXPECT(strstr(weft_error_text(), "tag 9") != NULL);
        EXPECT(weft_comm_status(comm) == WEFT_ERR_TIMEOUT);
        atomic_store(&shared->word[0], 1);
    }
    EXPECT(harness_wait_for(&shared->word[0], 1, DEADLINE_MS));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_message_that_never_comes_times_out_and_names_rank_and_tag(void **state)
{
    (void)state;
    run_processes(2, receive_in_vain, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_one_tag_keep_their_order_and_tags_are_independent),
        cmocka_unit_test(messages_of_every_length_and_tag_arrive),
        cmocka_unit_test(a_rank_can_send_to_itself),
        cmocka_unit_test(a_message_longer_than_the_buffer_stays),
        cmocka_unit_test(a_sender_blocks_when_64_kib_were_not_received),
        cmocka_unit_test(a_full_window_to_one_rank_does_not_stop_mail_to_another),
        cmocka_unit_test(what_was_sent_before_a_close_arrives_and_then_the_peer_is_gone),
        cmocka_unit_test(of_two_that_have_closed_the_one_that_is_waited_for_is_named),
        cmocka_unit_test(a_message_that_never_comes_times_out_and_names_rank_and_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
