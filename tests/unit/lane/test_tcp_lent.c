/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of memory that is lent to a tcp lane: it is written, moves, or is wanted back while it is on its way. */
#include "tcp_support.h"

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

/* Posts what a peer gets and scribbles over it at once, whatever the lane says. */
static enum weft_post post_answer(struct side *side, size_t len)
{
    struct weft_wire_data frame = frame_of(side->posted + 1, len);
    uint8_t *bytes = malloc(len);
    const struct weft_slice slice = {bytes, len};
    enum weft_post result;
    assert_non_null(bytes);
    frame.type = WEFT_DATA_PART;
    for (size_t i = 0; i < len; i++) {
        bytes[i] = pattern_at(frame.number, i);
    }
    result = weft_lane_tcp.post(side->lane, &frame, &slice, bytes);
    memset(bytes, 0x11, len);
    if (result == WEFT_POST_LENT) {
        side->kept[(side->sent + side->lent++) % KEPT] = bytes;
    } else {
        free(bytes);
    }
    side->posted += result != WEFT_POST_FULL;
    return result;
}

static void pair_open_checked(struct pair *pair, const char *chunk, const char *zerocopy)
{
    pair_prepare(pair);
    pair_secure(pair, "auth");
    assert_int_equal(weft_params_set(&pair->a.params, WEFT_PARAM_CHECKSUM, "on"), WEFT_OK);
    assert_int_equal(weft_params_set(&pair->a.params, WEFT_PARAM_CHUNK, chunk), WEFT_OK);
    assert_int_equal(weft_params_set(&pair->a.params, WEFT_PARAM_TCP_ZEROCOPY, zerocopy), WEFT_OK);
    side_listen(&pair->a);
    side_listen(&pair->b);
    pair_dial(pair);
}

/* Lengths that leave the ends of the ring unused now and then. */
static size_t answer_len(uint32_t i)
{
    static const size_t lens[] = {1 << 20, 700000, 1, 300000, 1 << 20, 17, 900001, 512 << 10};
    return lens[i % WEFT_COUNT_OF(lens)];
}

/* Until the lane takes no more. */
static void fill_with_answers(struct side *side)
{
    while (post_answer(side, answer_len(side->posted)) != WEFT_POST_FULL) {
    }
}

/* What is told to have room has it: an answer is refused once, not again and again. */
static void check_answers(const char *chunk, size_t room, const char *zerocopy)
{
    enum { ANSWERS = 100 };
    struct pair pair;
    pair_open_checked(&pair, chunk, zerocopy);
    fill_with_answers(&pair.a);
    while (pair.a.posted < ANSWERS) {
        unsigned told = pair.a.writable;
        assert_true(pair.a.lent < WEFT_LANE_TCP_POSTS); /* it was not for want of posts */
        assert_in_range(weft_lane_tcp.queued(pair.a.lane), 0,
                        room + (size_t)pair.a.lent * WEFT_WIRE_DATA_LEN);
        assert_int_not_equal(side_post(&pair.a, 8), WEFT_POST_FULL); /* others need no room */
        assert_int_equal(post_answer(&pair.a, answer_len(pair.a.posted - 1)), WEFT_POST_FULL);
        assert_true(poll_until(&pair.a, &pair.b, &pair.a.writable, told + 1));
        assert_int_not_equal(post_answer(&pair.a, answer_len(pair.a.posted - 1)), WEFT_POST_FULL);
        fill_with_answers(&pair.a);
    }
    assert_true(poll_until(&pair.b, &pair.a, &pair.b.numbered, pair.a.posted));
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.sent, pair.a.sent + pair.a.lent));
    assert_false(pair.b.is_wrong);
    pair_close(&pair);
}

static void answers_wait_for_room_for_their_copies(void **state)
{
    (void)state;
    check_answers("0", 2 << 20, "0");
    check_answers("64K", 2 << 20, "0");
    check_answers("2M", 4 << 20, "0");
}

/* The kernel reads the copies: they are held until it has. */
static void copies_that_the_kernel_reads_are_held(void **state)
{
    (void)state;
    check_answers("0", 2 << 20, "100");
}

/* Nothing is copied twice, and the copies go with the lane. */
static void copied_answers_may_be_wanted_back(void **state)
{
    struct pair pair;
    const struct weft_lane_tcp *lane;
    (void)state;
    pair_open_checked(&pair, "0", "0");
    fill_with_answers(&pair.a);
    lane = weft_lane_tcp_of(pair.a.lane);
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        void *bytes = pair.a.kept[pair.a.sent % KEPT];
        assert_int_equal(weft_lane_tcp.forget(pair.a.lane, bytes, false), 1);
        assert_null(lane->posts[i % WEFT_LANE_TCP_POSTS].owned);
        free(bytes);
        pair.a.sent++;
        pair.a.lent--;
    }
    assert_true(poll_until(&pair.b, &pair.a, &pair.b.numbered, pair.a.posted));
    assert_false(pair.b.is_wrong);
    fill_with_answers(&pair.a);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_whose_memory_changes_on_its_way_is_not_damaged),
        cmocka_unit_test(answers_wait_for_room_for_their_copies),
        cmocka_unit_test(copies_that_the_kernel_reads_are_held),
        cmocka_unit_test(copied_answers_may_be_wanted_back),
        cmocka_unit_test(lent_memory_may_move_once_it_was_copied),
        cmocka_unit_test(what_is_wanted_back_is_the_users_again_and_still_arrives),
        cmocka_unit_test(what_has_not_begun_to_leave_is_replaced),
        cmocka_unit_test(what_was_moved_is_replaced_too),
        cmocka_unit_test(a_lane_may_end_with_copies_still_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
