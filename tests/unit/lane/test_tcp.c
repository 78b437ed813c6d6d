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

/* Who reads memory from afar gets it as it was at some time. */
static void an_answer_whose_memory_changes_on_its_way_is_not_damaged(void **state)
{
    const size_t len = 1 << 20;
    uint8_t *memory = malloc(len);
    const struct weft_slice slice = {memory, len};
    struct weft_wire_data frame;
    struct pair pair;
    enum weft_post result;
    (void)state;
    assert_non_null(memory);
    pair_prepare(&pair);
    pair_secure(&pair, "auth");
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_CHECKSUM, "on"), WEFT_OK);
    side_listen(&pair.a);
    side_listen(&pair.b);
    pair_dial(&pair);
    do { /* until the socket is full */
        frame = frame_of(pair.a.posted + 1, len);
        frame.type = WEFT_DATA_PART;
        for (size_t i = 0; i < len; i++) {
            memory[i] = pattern_at(frame.number, i);
        }
        result = weft_lane_tcp.post(pair.a.lane, &frame, &slice, memory);
        assert_true(result != WEFT_POST_FULL);
        pair.a.posted++;
    } while (result == WEFT_POST_SENT);
    memset(memory, 0x11, len);
    pair.a.kept[(pair.a.sent + pair.a.lent++) % KEPT] = memory; /* freed when it is given back */
    assert_true(poll_until(&pair.b, &pair.a, &pair.b.numbered, pair.a.posted));
    pair_close(&pair);
}

/* What was lent moves in the middle of its way: the rest is read from there, and nobody hears of SENT. */
static void lent_memory_may_move_once_it_was_copied(void **state)
{
    const size_t len = 1 << 20;
    uint8_t *first = malloc(len), *second = malloc(len);
    const struct weft_slice slice = {first, len};
    struct weft_wire_data frame;
    struct pair pair;
    enum weft_post result;
    (void)state;
    assert_true(first != NULL && second != NULL);
    pair_open(&pair);
    do { /* until the socket is full */
        frame = frame_of(pair.a.posted + 1, len);
        for (size_t i = 0; i < len; i++) {
            first[i] = pattern_at(frame.number, i);
        }
        result = weft_lane_tcp.post(pair.a.lane, &frame, &slice, NULL);
        assert_true(result != WEFT_POST_FULL);
        pair.a.posted++;
    } while (result == WEFT_POST_SENT);
    memcpy(second, first, len);
    weft_lane_tcp.relocate(pair.a.lane, second);
    memset(first, 0x11, len);
    assert_true(poll_until(&pair.b, &pair.a, &pair.b.numbered, pair.a.posted));
    assert_int_equal(pair.a.sent, 0);
    pair_close(&pair);
    free(first);
    free(second);
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

/* Two of three posts are wanted back while the peer stands still; it gets all three nonetheless. */
static void what_is_wanted_back_is_the_users_again_and_still_arrives(void **state)
{
    enum { LEN = 4 << 20, POSTS = 3 };
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    struct pair pair;
    struct weft_done done[ROOM];
    uint8_t *memory[POSTS];
    int mine = 0, other = 0;
    unsigned sent = 0;
    (void)state;
    pair_open(&pair);
    for (uint32_t n = 1; n <= POSTS; n++) {
        struct weft_wire_data frame = frame_of(n, LEN);
        memory[n - 1] = malloc(LEN);
        assert_non_null(memory[n - 1]);
        for (size_t i = 0; i < LEN; i++) {
            memory[n - 1][i] = pattern_at(n, i);
        }
        assert_int_equal(weft_lane_tcp.post(pair.a.lane, &frame,
                                            &(struct weft_slice){memory[n - 1], LEN},
                                            n == 2 ? &other : &mine),
                         WEFT_POST_LENT);
    }
    assert_int_equal(weft_lane_tcp.forget(pair.a.lane, &mine, false),
                     2); /* the first is half out */
    assert_int_equal(weft_lane_tcp.forget(pair.a.lane, &mine, false), 0);
    free(memory[0]);
    free(memory[2]);
    while ((pair.b.numbered < POSTS || sent == 0) && weft_clock_ns() < deadline_ns) {
        unsigned count;
        weft_engine_poll(pair.a.engine);
        count = weft_lane_tcp.poll(pair.a.port, done, ROOM);
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(done[i].kind, WEFT_DONE_SENT);
            assert_ptr_equal(done[i].cookie, &other);
            sent++;
        }
        side_poll(&pair.b);
    }
    assert_int_equal(sent, 1);
    assert_int_equal(pair.b.numbered, POSTS);
    assert_false(pair.b.is_wrong);
    free(memory[1]);
    pair_close(&pair);
}

/* What goes by another lane after all: only what has begun to leave must go on. */
static void what_has_not_begun_to_leave_is_replaced(void **state)
{
    enum { LEN = 4 << 20, POSTS = 3 };
    struct pair pair;
    uint8_t *memory = calloc(1, LEN);
    int cookie[POSTS] = {0};
    size_t queued;
    (void)state;
    assert_non_null(memory);
    pair_open(&pair);
    for (uint32_t n = 1; n <= POSTS; n++) {
        struct weft_wire_data frame = frame_of(n, LEN);
        assert_int_equal(weft_lane_tcp.post(pair.a.lane, &frame, &(struct weft_slice){memory, LEN},
                                            &cookie[n - 1]),
                         WEFT_POST_LENT);
    }
    queued = weft_lane_tcp.queued(pair.a.lane);
    for (uint32_t n = 1; n <= POSTS; n++) {
        const struct weft_wire_data nothing = {.type = WEFT_DATA_CHUNK, .len = 1, .number = n};
        assert_int_equal(weft_lane_tcp.replace(pair.a.lane, &cookie[n - 1], &nothing), n > 1);
    }
    assert_int_equal(weft_lane_tcp.queued(pair.a.lane), queued - (size_t)2 * (LEN - 1));
    assert_int_equal(weft_lane_tcp.forget(pair.a.lane, &cookie[0], true), 1);
    memset(memory, 0xff, LEN);
    free(memory);
    pair.b.does_sink = true;
    for (uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
         pair.b.numbered < POSTS && weft_clock_ns() < deadline_ns;) {
        struct weft_done done[ROOM];
        weft_engine_poll(pair.a.engine);
        weft_lane_tcp.poll(pair.a.port, done, ROOM);
        side_poll(&pair.b);
    }
    assert_int_equal(pair.b.numbered, POSTS); /* in order: it counts them */
    assert_int_equal(pair.b.frame.len, 1);
    assert_false(pair.b.is_wrong);
    assert_int_equal(weft_lane_tcp.queued(pair.a.lane), 0);
    pair_close(&pair);
}

/* The same of what was moved before: nothing is sent instead, or the rest from a copy; none is heard of. */
static void what_was_moved_is_replaced_too(void **state)
{
    enum { LEN = 4 << 20, POSTS = 3 };
    struct weft_wire_data nothing = {.type = WEFT_DATA_ACK};
    struct pair pair;
    uint8_t *memory = calloc(POSTS, LEN);
    (void)state;
    assert_non_null(memory);
    pair_open(&pair);
    for (uint32_t n = 1; n <= POSTS; n++) {
        struct weft_wire_data frame = frame_of(n, LEN);
        uint8_t *moved = memory + (size_t)(n - 1) * LEN;
        for (size_t i = 0; i < LEN; i++) {
            moved[i] = pattern_at(n, i);
        }
        assert_int_equal(
            weft_lane_tcp.post(pair.a.lane, &frame, &(struct weft_slice){moved, LEN}, &pair),
            WEFT_POST_LENT);
        weft_lane_tcp.relocate(pair.a.lane, moved);
    }
    assert_false(weft_lane_tcp.replace(pair.a.lane, memory, &nothing)); /* it is half out */
    assert_int_equal(weft_lane_tcp.forget(pair.a.lane, memory, true), 0);
    assert_int_equal(weft_lane_tcp.forget(pair.a.lane, &pair, true), 0); /* not its name any more */
    for (uint32_t n = 2; n <= POSTS; n++) {
        uint8_t *moved = memory + (size_t)(n - 1) * LEN;
        nothing.number = n;
        assert_true(weft_lane_tcp.replace(pair.a.lane, moved, &nothing));
        assert_false(weft_lane_tcp.replace(pair.a.lane, moved, &nothing)); /* once */
    }
    memset(memory, 0xff, (size_t)POSTS * LEN);
    free(memory);
    assert_true(poll_until(&pair.b, &pair.a, &pair.b.numbered, POSTS));
    assert_int_equal(weft_lane_tcp.queued(pair.a.lane), 0);
    assert_int_equal(pair.a.sent, 0);
    assert_int_equal(pair.b.frame.len, 0);
    assert_false(pair.b.is_wrong);
    pair_close(&pair);
}

/* Nor does anything leak when the lane ends before they could leave. */
static void a_lane_may_end_with_copies_still_queued(void **state)
{
    struct pair pair;
    unsigned lent;
    (void)state;
    pair_open(&pair);
    while (side_post(&pair.a, 1 << 20) != WEFT_POST_FULL) {
    }
    lent = pair.a.lent;
    for (unsigned i = 0; i < lent; i++) {
        assert_int_equal(weft_lane_tcp.forget(pair.a.lane, pair.a.kept[i], false), 1);
    }
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
        cmocka_unit_test(an_answer_whose_memory_changes_on_its_way_is_not_damaged),
        cmocka_unit_test(lent_memory_may_move_once_it_was_copied),
        cmocka_unit_test(frames_of_all_sizes_pass_with_zero_copy),
        cmocka_unit_test(streams_of_small_and_large_frames_keep_their_order),
        cmocka_unit_test(both_directions_at_once),
        cmocka_unit_test(what_goes_to_the_sink_leaves_no_trace),
        cmocka_unit_test(a_full_lane_says_so_and_says_when_it_has_room),
        cmocka_unit_test(what_is_wanted_back_is_the_users_again_and_still_arrives),
        cmocka_unit_test(what_has_not_begun_to_leave_is_replaced),
        cmocka_unit_test(what_was_moved_is_replaced_too),
        cmocka_unit_test(a_lane_may_end_with_copies_still_queued),
        cmocka_unit_test(nothing_to_poll_means_that_sleeping_is_fine),
        cmocka_unit_test(a_lane_is_hot_while_bytes_come_and_cold_when_they_stay_away),
        cmocka_unit_test(abilities_that_tcp_lacks_are_refused_not_missing),
        cmocka_unit_test(frames_sent_before_a_close_arrive_before_the_end),
        cmocka_unit_test(a_reset_is_told_as_one),
        cmocka_unit_test(two_threads_with_two_engines_play_ping_pong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
