/* SPDX-License-Identifier: Apache-2.0 */
/* Two tcp ports over loopback: frames of all sizes, full and writable, ends. */
#include "tcp_support.h"

#include <pthread.h>

/* ---- frames ---- */

static void pass(struct side *from, struct side *to, size_t len)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    assert_int_not_equal(side_post(from, len), WEFT_POST_FULL);
    while (to->numbered < from->posted && weft_clock_ns() < deadline_ns) {
        side_poll(to);
        side_poll(from);
    }
    assert_int_equal(to->numbered, from->posted);
    assert_int_equal(to->frame.len, len);
    assert_int_equal(to->frame.type, frame_of(from->posted, len).type);
    assert_int_equal(to->frame.comm, 77);
    assert_int_equal(to->frame.a, from->posted);
    assert_false(to->is_wrong);
}

static void pass_all_sizes(struct pair *pair)
{
    static const size_t sizes[] = {2047,  2048,  2049,    16319,   16320,         16321,
                                   16384, 16385, 1000000, 1 << 20, (1 << 20) + 1, 3 << 20};
    for (size_t len = 0; len <= 300; len++) {
        pass(&pair->a, &pair->b, len);
    }
    for (size_t len = 512; len <= 1 << 20; len *= 2) {
        for (size_t at = len - 65; at <= len + 1; at += 11) {
            pass(&pair->b, &pair->a, at);
        }
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(sizes); i++) {
        pass(&pair->a, &pair->b, sizes[i]);
        pass(&pair->b, &pair->a, sizes[i]);
    }
    assert_true(pair->b.landed > 0 && pair->b.arrived > 0);
    assert_int_equal(pair->b.landed, pair->b.headers);
}

static void frames_of_all_sizes_pass_both_ways(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    pass_all_sizes(&pair);
    pair_close(&pair);
}

static void frames_of_all_sizes_pass_checked(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    pair_secure(&pair, "auth"); /* a tag makes it superfluous */
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_CHECKSUM, "on"), WEFT_OK);
    assert_int_equal(weft_params_set(&pair.b.params, WEFT_PARAM_CHECKSUM, "on"), WEFT_OK);
    side_listen(&pair.a);
    side_listen(&pair.b);
    pair_dial(&pair);
    pass_all_sizes(&pair);
    assert_int_equal(pair.b.frame.flags, WEFT_DATA_CHECKED);
    pair_close(&pair);
}

/* The kernel says when it has read the memory: until then it stays lent. */
static void frames_of_all_sizes_pass_with_zero_copy(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    pair_secure(&pair, "auth"); /* what is sealed is a copy */
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_TCP_ZEROCOPY, "100"), WEFT_OK);
    side_listen(&pair.a);
    side_listen(&pair.b);
    pair_dial(&pair);
    for (unsigned i = 0; i < 40; i++) {
        enum weft_post result = side_post(&pair.a, i % 2 == 0 ? 300000 : 10);
        assert_true(result == WEFT_POST_LENT || (i % 2 == 1 && result == WEFT_POST_SENT));
    }
    assert_true(weft_lane_tcp_of(pair.a.lane)->zero_sent > 0);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.sent, pair.a.sent + pair.a.lent));
    assert_int_equal(weft_lane_tcp_of(pair.a.lane)->zero_done,
                     weft_lane_tcp_of(pair.a.lane)->zero_sent);
    assert_true(poll_until(&pair.b, NULL, &pair.b.numbered, 40));
    assert_int_equal(pair.a.lent, 0);
    pass_all_sizes(&pair);
    pair_close(&pair);
}

/* Sends frames of mixed sizes without waiting, `room` values per poll; all must come, in order. */
static void stream(struct pair *pair, unsigned frames, size_t len_max, unsigned room)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    uint64_t seed = 7;
    pair->b.room = room;
    while (pair->b.numbered < frames && weft_clock_ns() < deadline_ns) {
        while (pair->a.posted < frames) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            if (side_post(&pair->a, (size_t)(seed >> 33) % (len_max + 1)) == WEFT_POST_FULL) {
                break;
            }
        }
        side_poll(&pair->a);
        side_poll(&pair->b);
    }
    assert_int_equal(pair->b.numbered, frames);
    assert_false(pair->b.is_wrong);
    while (pair->a.lent > 0 && weft_clock_ns() < deadline_ns) {
        side_poll(&pair->a);
    }
    assert_int_equal(pair->a.lent, 0);
    assert_int_equal(weft_lane_tcp.queued(pair->a.lane), 0);
}

static void streams_of_small_and_large_frames_keep_their_order(void **state)
{
    static const struct {
        unsigned frames;
        size_t len_max;
        unsigned room;
    } cases[] = {
        {20000, 200, 16}, {20000, 40, 4}, {3000, 5000, 4}, {500, 100000, 5}, {40, 2000000, 4}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct pair pair;
        pair_open(&pair);
        stream(&pair, cases[i].frames, cases[i].len_max, cases[i].room);
        pair_close(&pair);
    }
}

static void both_directions_at_once(void **state)
{
    enum { FRAMES = 24 };
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    struct pair pair;
    (void)state;
    pair_open(&pair);
    while ((pair.a.numbered < FRAMES || pair.b.numbered < FRAMES) &&
           weft_clock_ns() < deadline_ns) {
        struct side *sides[] = {&pair.a, &pair.b};
        for (int i = 0; i < 2; i++) {
            while (sides[i]->posted < FRAMES && side_post(sides[i], 1 << 20) != WEFT_POST_FULL) {
            }
            side_poll(sides[i]);
        }
    }
    assert_int_equal(pair.a.numbered + pair.b.numbered, 2 * FRAMES);
    assert_false(pair.a.is_wrong || pair.b.is_wrong);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.sent, pair.a.sent + pair.a.lent));
    assert_true(poll_until(&pair.a, &pair.b, &pair.b.sent, pair.b.sent + pair.b.lent));
    pair_close(&pair);
}

static void what_goes_to_the_sink_leaves_no_trace(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    for (unsigned i = 0; i < 30; i++) {
        pair.b.does_sink = i % 3 != 0;
        pass(&pair.a, &pair.b, 20000 + i * 9973);
    }
    assert_true(pair.b.landed > 0);
    assert_int_equal(pair.b.landed, pair.b.headers);
    pair_close(&pair);
}

/* The receiver stands still: 64 posts are taken beside what the socket swallows, no more. */
static void a_full_lane_says_so_and_says_when_it_has_room(void **state)
{
    struct pair pair;
    unsigned taken = 0, lent;
    (void)state;
    pair_open(&pair);
    while (side_post(&pair.a, 256 << 10) != WEFT_POST_FULL) {
        assert_true(++taken < 1000);
        side_poll(&pair.a);
    }
    lent = pair.a.lent;
    assert_int_equal(lent, WEFT_LANE_TCP_POSTS);
    assert_true(weft_lane_tcp.queued(pair.a.lane) > (size_t)63 * (256 << 10));
    side_poll(&pair.a);
    assert_int_equal(pair.a.writable, 0);
    assert_int_equal(side_post(&pair.a, 0), WEFT_POST_FULL);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.writable, 1));
    assert_true(pair.a.sent > 0);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.sent, lent));
    assert_true(poll_until(&pair.b, NULL, &pair.b.numbered, taken));
    assert_int_equal(pair.a.writable, 1);
    assert_int_equal(weft_lane_tcp.queued(pair.a.lane), 0);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_SENT);
    assert_true(poll_until(&pair.b, NULL, &pair.b.numbered, taken + 1));
    assert_false(pair.b.is_wrong);
    pair_close(&pair);
}

static void nothing_to_poll_means_that_sleeping_is_fine(void **state)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    struct pair pair;
    (void)state;
    pair_open(&pair);
    while (side_poll(&pair.b) > 0 || !weft_lane_tcp.arm(pair.b.port)) {
        assert_true(weft_clock_ns() < deadline_ns);
    }
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(side_post(&pair.a, 8), WEFT_POST_SENT);
    }
    pair.b.room = 4; /* not all of them fit: there is something to poll after all */
    assert_true(poll_until(&pair.b, NULL, &pair.b.arrived, 4));
    assert_false(weft_lane_tcp.arm(pair.b.port));
    weft_lane_tcp.disarm(pair.b.port);
    assert_true(poll_until(&pair.b, NULL, &pair.b.arrived, 20));
    pair_close(&pair);
}

static void a_lane_is_hot_while_bytes_come_and_cold_when_they_stay_away(void **state)
{
    struct weft_lane_tcp_port *port;
    struct pair pair;
    (void)state;
    pair_open(&pair);
    port = weft_lane_tcp_port_of(pair.b.port);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_SENT);
    assert_true(poll_until(&pair.b, NULL, &pair.b.arrived, 1));
    assert_ptr_equal(port->hot[0], pair.b.lane);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_SENT);
    for (unsigned i = 0; i < 1000000 && pair.b.arrived < 2; i++) { /* without a word of epoll */
        struct weft_done done[ROOM];
        unsigned count = weft_lane_tcp.poll(pair.b.port, done, ROOM);
        for (unsigned k = 0; k < count; k++) {
            side_note(&pair.b, &done[k]);
        }
    }
    assert_int_equal(pair.b.arrived, 2);
    for (unsigned i = 0; i < 2100; i++) {
        assert_int_equal(side_poll(&pair.b), 0);
    }
    assert_null(port->hot[0]);
    assert_null(port->hot[1]);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_SENT);
    assert_true(poll_until(&pair.b, NULL, &pair.b.arrived, 3));
    pair_close(&pair);
}

static void abilities_that_tcp_lacks_are_refused_not_missing(void **state)
{
    struct pair pair;
    struct weft_slice slice = {NULL, 0};
    void *memory;
    (void)state;
    pair_open(&pair);
    assert_int_equal(weft_lane_tcp.map(pair.a.lane, 1, 0, 8, &memory), WEFT_ERR_UNSUPPORTED);
    assert_int_equal(weft_lane_tcp.share(pair.a.lane, NULL), WEFT_ERR_UNSUPPORTED);
    assert_int_equal(weft_lane_tcp.pull(pair.a.lane, 0, &slice), WEFT_ERR_UNSUPPORTED);
    weft_lane_tcp.nudge(pair.a.lane);
    weft_lane_tcp.release(pair.a.lane, 0);
    weft_lane_tcp.close(NULL);
    weft_lane_tcp.port_close(NULL);
    pair_close(&pair);
}

/* ---- ends ---- */

static void expect_end(struct pair *pair, const char *words)
{
    assert_true(poll_until(&pair->b, NULL, &pair->b.lost, 1));
    assert_int_equal(pair->b.lost_status, WEFT_ERR_PEER);
    assert_string_equal(pair->b.lost_text, words);
    assert_false(pair->b.lane->is_up);
    assert_int_equal(side_post(&pair->b, 8), WEFT_POST_FULL);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(side_poll(&pair->b), 0); /* told once */
    }
    assert_true(weft_lane_tcp.arm(pair->b.port));
}

static void frames_sent_before_a_close_arrive_before_the_end(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    pair.b.room = 4;
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(side_post(&pair.a, i), WEFT_POST_SENT);
    }
    weft_lane_tcp.close(pair.a.lane);
    pair.a.lane = NULL;
    expect_end(&pair, "closed the connection");
    assert_int_equal(pair.b.arrived, 50);
    assert_false(pair.b.is_wrong);
    pair_close(&pair);
}

static void a_reset_is_told_as_one(void **state)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    struct pair pair;
    (void)state;
    pair_open(&pair);
    setsockopt(weft_lane_tcp_of(pair.a.lane)->source.fd, SOL_SOCKET, SO_LINGER, &at_once,
               sizeof(at_once));
    weft_lane_tcp.close(pair.a.lane);
    pair.a.lane = NULL;
    side_post(&pair.b, 8); /* whoever writes first must not hide what is to be read */
    expect_end(&pair, "closed the connection (reset)");
    pair_close(&pair);
}

/* ---- two threads, each with its engine ---- */

#define ROUNDS 1000

static void *echo(void *arg)
{
    struct side *side = arg;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (side->numbered < ROUNDS && side->lost == 0 && weft_clock_ns() < deadline_ns) {
        side_poll(side);
        while (side->lane != NULL && side->posted < side->numbered) {
            if (side_post(side, side->posted % 100 == 0 ? 200000 : 8) == WEFT_POST_FULL) {
                break;
            }
        }
    }
    return NULL;
}

static void two_threads_with_two_engines_play_ping_pong(void **state)
{
    struct pair pair;
    pthread_t thread;
    (void)state;
    pair_prepare(&pair);
    side_listen(&pair.a);
    side_listen(&pair.b);
    assert_int_equal(weft_lane_tcp.open(pair.a.port, CALL(0, &pair.b.address), &pair.a.lane),
                     WEFT_OK);
    assert_int_equal(pthread_create(&thread, NULL, echo, &pair.b), 0);
    assert_true(poll_until(&pair.a, NULL, &pair.a.opened, 1));
    for (unsigned i = 1; i <= ROUNDS; i++) {
        assert_int_not_equal(side_post(&pair.a, i % 70 == 0 ? 300000 : 8), WEFT_POST_FULL);
        if (i < ROUNDS) {
            assert_true(poll_until(&pair.a, NULL, &pair.a.numbered, i));
        }
    }
    assert_true(poll_until(&pair.a, NULL, &pair.a.sent, pair.a.sent + pair.a.lent));
    pthread_join(thread, NULL);
    assert_int_equal(pair.b.numbered, ROUNDS);
    assert_false(pair.a.is_wrong || pair.b.is_wrong);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_all_sizes_pass_both_ways),
        cmocka_unit_test(frames_of_all_sizes_pass_checked),
        cmocka_unit_test(frames_of_all_sizes_pass_with_zero_copy),
        cmocka_unit_test(streams_of_small_and_large_frames_keep_their_order),
        cmocka_unit_test(both_directions_at_once),
        cmocka_unit_test(what_goes_to_the_sink_leaves_no_trace),
        cmocka_unit_test(a_full_lane_says_so_and_says_when_it_has_room),
        cmocka_unit_test(nothing_to_poll_means_that_sleeping_is_fine),
        cmocka_unit_test(a_lane_is_hot_while_bytes_come_and_cold_when_they_stay_away),
        cmocka_unit_test(abilities_that_tcp_lacks_are_refused_not_missing),
        cmocka_unit_test(frames_sent_before_a_close_arrive_before_the_end),
        cmocka_unit_test(a_reset_is_told_as_one),
        cmocka_unit_test(two_threads_with_two_engines_play_ping_pong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
