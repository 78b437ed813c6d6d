/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed lanes with somebody on the path between the two: what he may read, and what becomes of what he changes,
 * repeats, moves, leaves out or puts in. (That frames of all kinds pass is test_tcp.c's, which runs with each level.)
 */
#include "tcp_support.h"

#include <poll.h>
#include <sys/socket.h>

static const char *const levels[] = {"integrity", "encrypt"};

/* ---- a relay that holds records in its hand ---- */

#define HELD_MAX ((size_t)4 << 20)

struct relay {
    int listener, near, far;
    bool is_held;  /* a's bytes are kept, not passed */
    uint8_t *held; /* owned */
    size_t held_len;
    uint8_t *seen; /* owned: all of a's bytes that were passed */
    size_t seen_len;
};

static void relay_step(struct relay *relay, struct pair *pair)
{
    static uint8_t bytes[1 << 16];
    ssize_t got = recv(relay->far, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
        assert_true(stranger_send(relay->near, bytes, (size_t)got, DEADLINE_MS));
    }
    got = recv(relay->near, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0 && relay->is_held) {
        assert_true(relay->held_len + (size_t)got <= HELD_MAX);
        memcpy(relay->held + relay->held_len, bytes, (size_t)got);
        relay->held_len += (size_t)got;
    } else if (got > 0) {
        assert_true(relay->seen_len + (size_t)got <= HELD_MAX);
        memcpy(relay->seen + relay->seen_len, bytes, (size_t)got);
        relay->seen_len += (size_t)got;
        assert_true(stranger_send(relay->far, bytes, (size_t)got, DEADLINE_MS));
    }
    side_poll(&pair->a);
    side_poll(&pair->b);
}

static void relay_until(struct relay *relay, struct pair *pair, const unsigned *count,
                        unsigned value)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (*count < value) {
        assert_true(weft_clock_ns() < deadline_ns);
        relay_step(relay, pair);
    }
}

/* a dials the relay instead of b; the lane is up afterwards. */
static void relay_open(struct relay *relay, struct pair *pair, const char *level)
{
    struct sockaddr_storage bound;
    struct weft_wire_addr wire;
    struct weft_lane_address address = {.len = WEFT_WIRE_ADDR_LEN};
    struct pollfd wait = {.events = POLLIN};
    pair_prepare(pair);
    pair_secure(pair, level);
    side_listen(&pair->a);
    side_listen(&pair->b);
    *relay = (struct relay){.held = malloc(HELD_MAX), .seen = malloc(HELD_MAX)};
    assert_true(relay->held != NULL && relay->seen != NULL);
    assert_int_equal(weft_net_listen(&pair->a.addr, 0, 0, &relay->listener, &bound), WEFT_OK);
    weft_net_addr_to_wire(&bound, &wire);
    weft_wire_addr_encode(&wire, address.bytes);
    assert_int_equal(weft_lane_tcp.open(pair->a.port, CALL(0, &address), &pair->a.lane), WEFT_OK);
    wait.fd = relay->listener;
    assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
    relay->near = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(relay->near >= 0);
    assert_int_equal(weft_wire_addr_decode(pair->b.address.bytes, &wire), WEFT_OK);
    relay->far = stranger_connect("127.0.0.1", wire.port, DEADLINE_MS);
    assert_true(relay->far >= 0);
    relay_until(relay, pair, &pair->b.opened, 1);
    relay->is_held = true;
}

static void relay_close(struct relay *relay, struct pair *pair)
{
    close(relay->near);
    close(relay->far);
    weft_fd_close(relay->listener);
    free(relay->held);
    free(relay->seen);
    pair_close(pair);
}

/* a posts a frame; its records come into the relay's hand. Returns where they begin there. */
static size_t hold(struct relay *relay, struct pair *pair, size_t len)
{
    size_t start = relay->held_len, at = start, payload_len = 0, done = 0;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    assert_int_not_equal(side_post(&pair->a, len), WEFT_POST_FULL);
    while (done < len + WEFT_WIRE_DATA_LEN) {
        assert_true(weft_clock_ns() < deadline_ns);
        relay_step(relay, pair);
        while (relay->held_len >= at + WEFT_WIRE_RECORD_HEAD_LEN) {
            assert_int_equal(weft_wire_record_peek(relay->held + at, &payload_len), WEFT_OK);
            if (relay->held_len < at + weft_wire_record_len(payload_len)) {
                break;
            }
            at += weft_wire_record_len(payload_len);
            done += payload_len;
        }
    }
    return start;
}

static void pass_on(const struct relay *relay, size_t start, size_t end)
{
    assert_true(stranger_send(relay->far, relay->held + start, end - start, DEADLINE_MS));
}

/* b finds it out, says whose fault it was, and has told nothing of the frames after `told`. */
static void expect_refused(struct relay *relay, struct pair *pair, uint32_t told)
{
    relay_until(relay, pair, &pair->b.lost, 1);
    assert_int_equal(pair->b.lost_status, WEFT_ERR_PROTOCOL);
    assert_non_null(strstr(pair->b.lost_text, "record"));
    assert_int_equal(pair->b.numbered, told);
    assert_false(pair->b.is_wrong);
}

/* ---- what is changed ---- */

static void flip(const char *level, size_t len, size_t at, bool is_from_end)
{
    struct relay relay;
    struct pair pair;
    size_t second;
    relay_open(&relay, &pair, level);
    hold(&relay, &pair, len);
    second = hold(&relay, &pair, len);
    relay.held[is_from_end ? relay.held_len - 1 - at : second + at] ^= 0x04;
    pass_on(&relay, 0, second);
    relay_until(&relay, &pair, &pair.b.numbered, 1);
    pass_on(&relay, second, relay.held_len);
    expect_refused(&relay, &pair, 1);
    relay_close(&relay, &pair);
}

static void a_changed_bit_ends_the_lane_and_is_never_told(void **state)
{
    static const size_t lens[] = {0, 40, 8000, 30000, 300000};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
        for (size_t k = 0; k < WEFT_COUNT_OF(levels); k++) {
            flip(levels[k], lens[i], 0, false);                             /* a length */
            flip(levels[k], lens[i], WEFT_WIRE_RECORD_HEAD_LEN + 9, false); /* a header */
            flip(levels[k], lens[i], 17, true);                             /* the end of it */
            flip(levels[k], lens[i], 3, true);                              /* a tag */
        }
    }
}

/* The relay's own test: without it the flips would prove nothing. */
static void what_is_not_changed_passes(void **state)
{
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT_OF(levels); k++) {
        struct relay relay;
        struct pair pair;
        relay_open(&relay, &pair, levels[k]);
        hold(&relay, &pair, 300000);
        hold(&relay, &pair, 40);
        pass_on(&relay, 0, relay.held_len);
        relay_until(&relay, &pair, &pair.b.numbered, 2);
        assert_false(pair.b.is_wrong);
        assert_int_equal(pair.b.lost, 0);
        relay_close(&relay, &pair);
    }
}

/* ---- what is repeated, moved, left out, put in ---- */

enum trick { REPEAT, SWAP, DROP, REFLECT, TRICKS };

static void play(const char *level, size_t len, enum trick trick)
{
    struct relay relay;
    struct pair pair;
    size_t second, third;
    relay_open(&relay, &pair, level);
    hold(&relay, &pair, len);
    second = hold(&relay, &pair, len);
    third = hold(&relay, &pair, len);
    pass_on(&relay, 0, second);
    relay_until(&relay, &pair, &pair.b.numbered, 1);
    switch (trick) {
    case REPEAT:
        pass_on(&relay, 0, second);
        break;
    case SWAP:
        pass_on(&relay, third, relay.held_len);
        pass_on(&relay, second, third);
        break;
    case DROP:
        pass_on(&relay, third, relay.held_len);
        break;
    default: /* what a has said, as if b had, and with the right number: the other direction has another key */
        assert_int_not_equal(side_post(&pair.b, 40), WEFT_POST_FULL);
        relay_until(&relay, &pair, &pair.a.numbered, 1);
        assert_true(stranger_send(relay.near, relay.held, second, DEADLINE_MS));
        relay_until(&relay, &pair, &pair.a.lost, 1);
        assert_int_equal(pair.a.lost_status, WEFT_ERR_PROTOCOL);
        assert_int_equal(pair.a.numbered, 1);
        relay_close(&relay, &pair);
        return;
    }
    expect_refused(&relay, &pair, 1);
    relay_close(&relay, &pair);
}

static void repeated_moved_lost_and_reflected_records_end_the_lane(void **state)
{
    (void)state;
    for (enum trick trick = REPEAT; trick < TRICKS; trick++) {
        for (size_t k = 0; k < WEFT_COUNT_OF(levels); k++) {
            play(levels[k], 40, trick);
            play(levels[k], 40000, trick);
        }
    }
}

/* Records of one lane on another of the same two ranks: each connection has keys of its own. */
static void records_of_another_lane_end_the_lane(void **state)
{
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT_OF(levels); k++) {
        struct relay one, other;
        struct pair first, second;
        relay_open(&one, &first, levels[k]);
        hold(&one, &first, 40);
        relay_open(&other, &second, levels[k]);
        assert_true(stranger_send(other.far, one.held, one.held_len, DEADLINE_MS));
        expect_refused(&other, &second, 0);
        relay_close(&other, &second);
        relay_close(&one, &first);
    }
}

/* ---- what can be read ---- */

/* The longest piece of the payload that passed as it is. */
static bool is_readable(const struct relay *relay, uint32_t number, size_t len)
{
    uint8_t piece[32];
    for (size_t at = 0; at + sizeof(piece) <= len; at += sizeof(piece)) {
        for (size_t i = 0; i < sizeof(piece); i++) {
            piece[i] = pattern_at(number, at + i);
        }
        if (memmem(relay->seen, relay->seen_len, piece, sizeof(piece)) != NULL) {
            return true;
        }
    }
    return false;
}

static void only_encryption_keeps_payloads_from_being_read(void **state)
{
    static const size_t lens[] = {64, 3000, 50000};
    static const char *const all[] = {"auth", "integrity", "encrypt"};
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT_OF(all); k++) {
        for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
            struct relay relay;
            struct pair pair;
            relay_open(&relay, &pair, all[k]);
            relay.is_held = false;
            assert_int_not_equal(side_post(&pair.a, lens[i]), WEFT_POST_FULL);
            relay_until(&relay, &pair, &pair.b.numbered, 1);
            assert_int_equal(is_readable(&relay, 1, lens[i]), k < 2);
            relay_close(&relay, &pair);
        }
    }
}

/* ---- opening ---- */

static void ranks_with_different_levels_make_no_lane_and_are_named(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    pair_secure(&pair, "auth");
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_SECURITY, "encrypt"), WEFT_OK);
    side_listen(&pair.a);
    side_listen(&pair.b);
    assert_int_equal(weft_lane_tcp.open(pair.a.port, CALL(0, &pair.b.address), &pair.a.lane),
                     WEFT_OK);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.lost, 1));
    assert_int_equal(pair.a.lost_status, WEFT_ERR_MISMATCH);
    assert_non_null(strstr(pair.a.lost_text, "rank 1 has WEFT_SECURITY=encrypt, rank 0 has auth"));
    assert_int_equal(pair.a.opened + pair.b.opened, 0);
    pair_close(&pair);
}

/* With CPUs that differ both use what both have. */
static void one_cpu_without_aes_is_enough_for_the_other_cipher(void **state)
{
    (void)state;
    for (unsigned who = 0; who < 4; who++) {
        for (size_t k = 0; k < WEFT_COUNT_OF(levels); k++) {
            struct pair pair;
            pair_prepare(&pair);
            pair_secure(&pair, levels[k]);
            pair.a.self.has_aes &= (who & 1) != 0;
            pair.b.self.has_aes &= (who & 2) != 0;
            side_listen(&pair.a);
            side_listen(&pair.b);
            pair_dial(&pair);
            assert_int_not_equal(side_post(&pair.a, 100000), WEFT_POST_FULL);
            assert_int_not_equal(side_post(&pair.b, 100000), WEFT_POST_FULL);
            assert_true(poll_until(&pair.a, &pair.b, &pair.b.numbered, 1));
            assert_true(poll_until(&pair.a, &pair.b, &pair.a.numbered, 1));
            assert_false(pair.a.is_wrong || pair.b.is_wrong);
            pair_close(&pair);
        }
    }
}

/* Zero copy would let the kernel read a buffer that is sealed into again. */
static void zero_copy_is_off_on_sealed_lanes(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    pair_secure(&pair, "encrypt");
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_TCP_ZEROCOPY, "100"), WEFT_OK);
    side_listen(&pair.a);
    side_listen(&pair.b);
    pair_dial(&pair);
    for (unsigned i = 1; i <= 20; i++) {
        assert_int_not_equal(side_post(&pair.a, 300000), WEFT_POST_FULL);
        assert_true(poll_until(&pair.b, &pair.a, &pair.b.numbered, i));
    }
    assert_int_equal(weft_lane_tcp_of(pair.a.lane)->zero_sent, 0);
    assert_false(pair.b.is_wrong);
    pair_close(&pair);
}

/* The flags of the mapping that holds address, as smaps prints them; "": the kernel has none. */
static void find_flags(const void *address, char *flags, int room)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    uintptr_t at = (uintptr_t)address;
    bool is_here = false;
    assert_non_null(file);
    while (fgets(flags, room, file) != NULL) {
        char *rest;
        uintptr_t begin = strtoul(flags, &rest, 16);
        if (rest != flags && *rest == '-') {
            is_here = at >= begin && at < strtoul(rest + 1, NULL, 16);
        } else if (is_here && strncmp(flags, "VmFlags:", 8) == 0) {
            fclose(file);
            return;
        }
    }
    fclose(file);
    flags[0] = '\0';
}

/* F36 */
static void keys_are_left_out_of_core_dumps_and_forked_children(void **state)
{
    struct pair pair;
    char flags[512];
    (void)state;
    pair_prepare(&pair);
    pair_secure(&pair, "encrypt");
    side_listen(&pair.a);
    side_listen(&pair.b);
    pair_dial(&pair);
    find_flags(weft_lane_tcp_of(pair.a.lane)->seal, flags, sizeof(flags));
    pair_close(&pair);
    if (flags[0] == '\0') {
        skip();
    }
    assert_non_null(strstr(flags, " dd "));
    assert_non_null(strstr(flags, " wf "));
}

/* Posts that are sealed count as sent: closing must not lose them. */
static void what_was_posted_before_closing_arrives(void **state)
{
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT_OF(levels); k++) {
        struct pair pair;
        pair_prepare(&pair);
        pair_secure(&pair, levels[k]);
        side_listen(&pair.a);
        side_listen(&pair.b);
        pair_dial(&pair);
        for (unsigned i = 0; i < 30; i++) {
            assert_int_equal(side_post(&pair.a, 100), WEFT_POST_SENT);
        }
        weft_lane_tcp.close(pair.a.lane);
        pair.a.lane = NULL;
        assert_true(poll_until(&pair.b, NULL, &pair.b.lost, 1));
        assert_int_equal(pair.b.numbered, 30);
        assert_int_equal(pair.b.lost_status, WEFT_ERR_PEER);
        pair_close(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_changed_passes),
        cmocka_unit_test(a_changed_bit_ends_the_lane_and_is_never_told),
        cmocka_unit_test(repeated_moved_lost_and_reflected_records_end_the_lane),
        cmocka_unit_test(records_of_another_lane_end_the_lane),
        cmocka_unit_test(only_encryption_keeps_payloads_from_being_read),
        cmocka_unit_test(ranks_with_different_levels_make_no_lane_and_are_named),
        cmocka_unit_test(one_cpu_without_aes_is_enough_for_the_other_cipher),
        cmocka_unit_test(zero_copy_is_off_on_sealed_lanes),
        cmocka_unit_test(keys_are_left_out_of_core_dumps_and_forked_children),
        cmocka_unit_test(what_was_posted_before_closing_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
