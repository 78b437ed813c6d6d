/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared-memory lane between real processes and between threads: traffic, sleep and waking, the
 * death of a peer, and what a port costs and leaves behind.
 */
#include "shm_support.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MESSAGES 20000u
#define LONG_MS 30000

/* Ranks use no asserts of cmocka: they return what went wrong. */
static int rank_open(struct node *node, int rank, int ranks, uint32_t epoch)
{
    node_prepare(node, (uint32_t)rank, (uint32_t)ranks);
    node->self.epoch = epoch;
    return weft_params_load(&node->params) == WEFT_OK &&
                   node_try_open(node, (uint32_t)ranks) == WEFT_OK
               ? 0
               : 1;
}

static bool rank_connect(struct node *node, uint32_t peer, bool is_dialler)
{
    struct weft_lane_address address;
    weft_status_t status = WEFT_OK;
    OPS->address(node->port, &address);
    if (is_dialler) {
        weft_engine_lock(node->engine);
        status = OPS->open(node->port, CALL(peer, &address), &node->lane[peer]);
        weft_engine_unlock(node->engine);
    }
    return status == WEFT_OK && step_until(node, NULL, &node->opened, node->opened + 1);
}

/* Sends numbered messages of both kinds and takes the peer's; both at once. */
static int exchange(struct node *node, uint32_t peer, uint32_t count)
{
    uint32_t posted = 0, seen = 0;
    uint64_t deadline_ns = weft_clock_after_ms(LONG_MS);
    while ((posted < count || seen < count) && weft_clock_ns() < deadline_ns) {
        for (int i = 0; i < 50 && posted < count; i++) {
            uint32_t len = posted % 50 == 0 ? 20000 : posted % 5 == 0 ? 777 : posted % 41;
            if (post_eager(node, peer, posted, len) == WEFT_POST_FULL) {
                break;
            }
            posted++;
        }
        if (node_poll(node, 32) == 0) {
            weft_engine_poll(node->engine);
        }
        for (; seen < node->arrived; seen++) {
            const struct arrival *arrival = &node->log[seen % LOG_MAX];
            uint32_t len = arrival->frame.len < 64 ? arrival->frame.len : 64;
            if (arrival->frame.tag != seen || !is_pattern(arrival->bytes, len, seen)) {
                return 10;
            }
        }
    }
    return posted == count && seen == count ? 0 : 11;
}

static int run_exchange(int rank, struct harness_shared *shared, void *arg)
{
    struct node node;
    int result = rank_open(&node, rank, 2, *(uint32_t *)arg);
    if (result != 0) {
        return harness_say(shared, rank, result, "%s", weft_error_text());
    }
    if (!rank_connect(&node, (uint32_t)(1 - rank), rank == 1)) {
        result = 2;
    }
    if (result == 0 && (shm_lane(&node, (uint32_t)(1 - rank))->base.caps & WEFT_LANE_PULLS) == 0) {
        result = 3; /* the same user's processes, nothing in the way */
    }
    if (result == 0) {
        result = exchange(&node, (uint32_t)(1 - rank), MESSAGES);
    }
    /* who is done first closes only when the other has taken everything */
    atomic_fetch_add(&shared->word[0], 1);
    harness_wait_reach(&shared->word[0], 2, DEADLINE_MS);
    node_close(&node);
    return result;
}

static void test_two_processes_exchange_messages(void **state)
{
    uint32_t epoch = (uint32_t)getpid();
    struct harness *harness = harness_start(2, run_exchange, &epoch);
    (void)state;
    assert_harness(harness, harness_wait(harness, 4 * DEADLINE_MS));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void test_two_threads_exchange_messages(void **state)
{
    uint32_t epoch = (uint32_t)getpid();
    struct harness *harness = harness_start_threads(2, run_exchange, &epoch);
    (void)state;
    assert_harness(harness, harness_wait(harness, 4 * DEADLINE_MS));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

/* ---- many threads into one inbox, and the receiver's slots go back late ---- */

#define SENDERS 3
#define EACH 4000u

static int run_fan_in(int rank, struct harness_shared *shared, void *arg)
{
    struct node node;
    uint32_t posted = 0, taken[NODES_MAX] = {0}, seen = 0;
    int result = rank_open(&node, rank, SENDERS + 1, *(uint32_t *)arg);
    uint64_t deadline_ns = weft_clock_after_ms(LONG_MS);
    if (result != 0) {
        return harness_say(shared, rank, result, "%s", weft_error_text());
    }
    if (rank > 0 && !rank_connect(&node, 0, true)) {
        result = 2;
    }
    while (rank > 0 && result == 0 && posted < EACH && weft_clock_ns() < deadline_ns) {
        if (post_eager(&node, 0, posted, posted % 3 == 0 ? 600 : 8) != WEFT_POST_FULL) {
            posted++;
        } else if (node_poll(&node, 4) == 0) {
            weft_engine_poll(node.engine);
        }
    }
    while (rank == 0 && seen < SENDERS * EACH && weft_clock_ns() < deadline_ns && result == 0) {
        node_step(&node);
        for (; seen < node.arrived; seen++) {
            const struct arrival *arrival = &node.log[seen % LOG_MAX];
            result = arrival->frame.tag == taken[arrival->lane->peer]++ ? result : 20;
        }
    }
    if (rank == 0 ? seen != SENDERS * EACH : posted != EACH) {
        result = result != 0 ? result : 21;
    }
    atomic_fetch_add(&shared->word[0], 1);
    harness_wait_reach(&shared->word[0], SENDERS + 1, LONG_MS);
    node_close(&node);
    return result;
}

static void test_several_threads_send_to_one(void **state)
{
    uint32_t epoch = (uint32_t)getpid();
    struct harness *harness = harness_start_threads(SENDERS + 1, run_fan_in, &epoch);
    (void)state;
    assert_harness(harness, harness_wait(harness, 4 * DEADLINE_MS));
    assert_harness(harness, harness_check_status(harness, 0));
    harness_close(harness);
}

/* ---- sleeping ---- */

static bool is_readable(const struct node *node, uint32_t peer)
{
    struct pollfd pollfd = {.fd = shm_lane(node, peer)->fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) == 1;
}

static bool arm(struct node *node)
{
    bool may_sleep;
    weft_engine_lock(node->engine);
    may_sleep = OPS->arm(node->port);
    weft_engine_unlock(node->engine);
    return may_sleep;
}

static void disarm(struct node *node)
{
    weft_engine_lock(node->engine);
    OPS->disarm(node->port);
    weft_engine_unlock(node->engine);
}

static void test_a_sleeper_is_rung_and_one_who_is_awake_is_not(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    assert_int_equal(post_eager(&pair.a, 1, 1, 8), WEFT_POST_SENT);
    assert_false(is_readable(&pair.b, 0)); /* awake: no system call is made for it */
    assert_false(arm(&pair.b));            /* there is something to take */
    node_poll(&pair.b, 4);
    assert_true(arm(&pair.b));
    assert_false(is_readable(&pair.b, 0));
    assert_int_equal(post_eager(&pair.a, 1, 2, 8), WEFT_POST_SENT);
    assert_true(is_readable(&pair.b, 0));
    disarm(&pair.b);
    node_step(&pair.b);
    assert_int_equal(pair.b.arrived, 2);
    assert_false(is_readable(&pair.b, 0));
    assert_true(arm(&pair.b));
    weft_engine_lock(pair.a.engine);
    OPS->nudge(pair.a.lane[1]); /* something was written into its memory */
    weft_engine_unlock(pair.a.engine);
    assert_true(is_readable(&pair.b, 0));
    disarm(&pair.b);
    pair_close(&pair);
}

static void test_who_sleeps_wanting_room_is_rung_when_there_is_some(void **state)
{
    struct pair pair;
    uint32_t posted = 0;
    (void)state;
    pair_open(&pair);
    while (post_eager(&pair.a, 1, posted, 8) == WEFT_POST_SENT) {
        posted++;
    }
    assert_true(arm(&pair.a));
    while (node_poll(&pair.b, 32) > 0) {
    }
    assert_true(is_readable(&pair.a, 1));
    disarm(&pair.a);
    assert_true(step_until(&pair.a, NULL, &pair.a.writable, 1));

    pair.b.does_release = false;
    for (posted = 0; post_eager(&pair.a, 1, posted, 500) == WEFT_POST_SENT; posted++) {
        node_poll(&pair.b, 32);
    }
    assert_true(arm(&pair.a));
    assert_false(is_readable(&pair.a, 1));
    OPS->release(pair.b.lane[0], pair.b.log[pair.b.arrived - 1].token);
    assert_true(is_readable(&pair.a, 1));
    disarm(&pair.a);
    pair_close(&pair);
}

static void test_who_takes_all_and_sleeps_has_told_the_senders(void **state)
{
    struct node nodes[3];
    uint32_t posted = 0;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        node_open(&nodes[i], i, 3);
    }
    connect_nodes(&nodes[1], &nodes[0]);
    connect_nodes(&nodes[2], &nodes[0]);
    for (uint32_t i = 1; i < 3; i++) {
        while (post_eager(&nodes[i], 0, 1, 8) == WEFT_POST_SENT) {
            posted++;
        }
    }
    assert_int_equal(posted, shm_port(&nodes[0])->mask + 1); /* together they fill it */
    assert_int_equal(node_poll(&nodes[0], 256), posted);
    assert_true(arm(&nodes[0]));
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(node_poll(&nodes[i], 4), 1);
        assert_int_equal(nodes[i].writable, 1);
    }
    disarm(&nodes[0]);
    for (uint32_t i = 0; i < 3; i++) {
        node_close(&nodes[i]);
    }
}

/* ---- death ---- */

static int run_until_killed(int rank, struct harness_shared *shared, void *arg)
{
    struct node node;
    uint32_t posted = 0;
    int result = rank_open(&node, rank, 2, *(uint32_t *)arg);
    if (result != 0 || !rank_connect(&node, (uint32_t)(1 - rank), rank == 1)) {
        return harness_say(shared, rank, 1, "%s", weft_error_text());
    }
    if (rank == 1) { /* the victim: fills what it can, says how much, waits for its end */
        while (posted < 60 &&
               post_eager(&node, 0, posted, posted % 2 ? 8 : 900) == WEFT_POST_SENT) {
            posted++;
        }
        atomic_store(&shared->word[1], posted);
        harness_wait_reach(&shared->word[2], 1, LONG_MS);
        return 9;
    }
    node.does_release = false;
    if (!harness_wait_reach(&shared->word[3], 1, DEADLINE_MS) ||
        !step_until(&node, NULL, &node.lost, 1)) {
        return harness_say(shared, rank, 2, "its death was not noticed");
    }
    if (node.lost_status != WEFT_ERR_PEER || node.arrived != atomic_load(&shared->word[1])) {
        return harness_say(shared, rank, 3, "%u of its messages arrived", node.arrived);
    }
    for (uint32_t i = 0; i < node.arrived; i += 2) { /* its memory is still there */
        if (!is_pattern(node.log[i].payload, 900, i)) {
            return harness_say(shared, rank, 4, "message %u is damaged", i);
        }
    }
    node_close(&node);
    return 0;
}

static void test_what_a_killed_peer_had_sent_is_delivered(void **state)
{
    uint32_t epoch = (uint32_t)getpid();
    struct harness *harness = harness_start(2, run_until_killed, &epoch);
    struct harness_shared *shared = harness_shared(harness);
    (void)state;
    assert_harness(harness, harness_wait_reach(&shared->word[1], 60, DEADLINE_MS));
    assert_true(harness_kill(harness, 1, SIGKILL));
    assert_harness(harness, harness_wait_rank(harness, 1, DEADLINE_MS));
    atomic_store(&shared->word[3], 1);
    assert_harness(harness, harness_wait(harness, 2 * DEADLINE_MS));
    assert_int_equal(harness_result(harness, 0)->status, 0);
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

/* ---- what it costs, and what is left ---- */

static size_t inbox_bytes(const struct node *node)
{
    struct stat stat;
    assert_int_equal(fstat(shm_port(node)->inbox.segment->region.fd, &stat), 0);
    return (size_t)stat.st_blocks * 512;
}

static void test_memory_grows_by_little_per_rank_of_the_host(void **state)
{
    struct node node;
    unsigned fds_before = weft_fd_count();
    const size_t fixed = (size_t)512 << 10;
    (void)state;
    node_open(&node, 0, 2);
    assert_true(inbox_bytes(&node) < fixed);
    assert_true(shm_port(&node)->pool.segment->region.len <= (size_t)6 << 20); /* for all peers */
    node_close(&node);
    node_open(&node, 500, 1000);
    assert_true(inbox_bytes(&node) < fixed + ((size_t)1000 << 10));
    node_close(&node);
    assert_int_equal(weft_fd_count(), fds_before);
}

/* A file size limit makes the kernel refuse shared memory as a full host would. */
static void limit_files(rlim_t len)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = len;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_no_shared_memory_is_an_error_and_leaves_nothing(void **state)
{
    struct node node;
    unsigned fds_before = weft_fd_count();
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    node_prepare(&node, 0, 2);
    assert_int_equal(weft_params_load(&node.params), WEFT_OK);
    limit_files(8192); /* the inbox does not fit */
    assert_int_equal(node_try_open(&node, 2), WEFT_ERR_SYSTEM);
    limit_files(1 << 20); /* the inbox does, the pool does not */
    weft_engine_close(node.engine);
    assert_int_equal(node_try_open(&node, 2), WEFT_ERR_SYSTEM);
    limit_files(RLIM_INFINITY);
    weft_engine_close(node.engine);
    free(node.log);
    assert_int_equal(weft_fd_count(), fds_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes_exchange_messages),
        cmocka_unit_test(test_two_threads_exchange_messages),
        cmocka_unit_test(test_several_threads_send_to_one),
        cmocka_unit_test(test_a_sleeper_is_rung_and_one_who_is_awake_is_not),
        cmocka_unit_test(test_who_sleeps_wanting_room_is_rung_when_there_is_some),
        cmocka_unit_test(test_who_takes_all_and_sleeps_has_told_the_senders),
        cmocka_unit_test(test_what_a_killed_peer_had_sent_is_delivered),
        cmocka_unit_test(test_memory_grows_by_little_per_rank_of_the_host),
        cmocka_unit_test(test_no_shared_memory_is_an_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
