/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer, a stranger or the path between can do to a tcp lane: end it, and nothing else. */
#include "tcp_support.h"

#include <poll.h>

/* ---- a rank that proved itself and then says what it likes ---- */

struct puppet {
    int fd;
    unsigned opened, lost;
    weft_status_t lost_status;
    char lost_text[160];
    struct weft_net_conn *conn;
};

static void puppet_opened(struct weft_net_conn *conn)
{
    struct puppet *puppet = conn->owner;
    uint8_t keys[2][WEFT_WIRE_KEY_LEN];
    puppet->fd = weft_net_conn_detach(conn, keys[0], keys[1]);
    puppet->conn = NULL;
    puppet->opened++;
}

static void puppet_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct puppet *puppet = conn->owner;
    puppet->lost++;
    puppet->lost_status = status;
    snprintf(puppet->lost_text, sizeof(puppet->lost_text), "%s", why);
    puppet->conn = NULL;
    weft_net_conn_close(conn);
}

static const struct weft_net_conn_ops puppet_ops = {.opened = puppet_opened, .lost = puppet_lost};

static void puppet_dial(struct puppet *puppet, struct pair *pair, enum weft_wire_purpose purpose)
{
    struct weft_wire_addr wire;
    struct sockaddr_storage addr;
    struct weft_net_dial dial;
    memset(puppet, 0, sizeof(*puppet));
    puppet->fd = -1;
    assert_int_equal(weft_wire_addr_decode(pair->b.address.bytes, &wire), WEFT_OK);
    assert_int_equal(weft_net_addr_from_wire(&wire, &addr), WEFT_OK);
    assert_int_equal(weft_net_connect(&addr, &dial), WEFT_OK);
    dial.self = &pair->a.self;
    dial.purpose = purpose;
    dial.ops = &puppet_ops;
    dial.owner = puppet;
    assert_int_equal(weft_net_conn_open(pair->a.engine, &dial, &puppet->conn), WEFT_OK);
    assert_true(poll_until(&pair->a, &pair->b,
                           purpose == WEFT_WIRE_LANE ? &puppet->opened : &puppet->lost, 1));
}

static void puppet_say(const struct puppet *puppet, const void *bytes, size_t len)
{
    assert_true(stranger_send(puppet->fd, bytes, len, DEADLINE_MS));
}

static void puppet_greet(struct puppet *puppet, struct pair *pair)
{
    const struct weft_wire_data ack = {.type = WEFT_DATA_ACK};
    uint8_t header[WEFT_WIRE_DATA_LEN];
    unsigned opened = pair->b.opened + 1;
    weft_wire_data_encode(&ack, header);
    puppet_say(puppet, header, sizeof(header));
    assert_true(poll_until(&pair->b, NULL, &pair->b.opened, opened));
}

/* The lane of b ends with this status; b forgets it, so that the next puppet finds it fresh. */
static void expect_lost(struct pair *pair, weft_status_t status, const char *word)
{
    assert_true(poll_until(&pair->b, NULL, &pair->b.lost, 1));
    assert_int_equal(pair->b.lost_status, status);
    assert_non_null(strstr(pair->b.lost_text, word));
    assert_false(pair->b.is_wrong);
    weft_lane_tcp.close(pair->b.lane);
    pair->b.lane = NULL;
    pair->b.lost = pair->b.numbered = pair->b.arrived = pair->b.landed = pair->b.headers = 0;
}

static void hostile_open(struct pair *pair)
{
    pair_prepare(pair);
    side_listen(&pair->a);
    side_listen(&pair->b);
}

/* Frame `number` with its payload, as it travels. */
static size_t frame_bytes(uint32_t number, uint8_t type, size_t len, uint8_t *out)
{
    struct weft_wire_data frame = frame_of(number, len);
    frame.type = type;
    weft_wire_data_encode(&frame, out);
    for (size_t i = 0; i < len; i++) {
        out[WEFT_WIRE_DATA_LEN + i] = pattern_at(number, i);
    }
    return WEFT_WIRE_DATA_LEN + len;
}

/* ---- cuts ---- */

/* A whole frame, then `cut` bytes of another, then the end: the first came, nothing of the other. */
static void cut_at(struct pair *pair, uint8_t type, size_t len, size_t cut)
{
    uint8_t bytes[2 * (WEFT_WIRE_DATA_LEN + 20000)];
    struct puppet puppet;
    size_t whole = frame_bytes(1, WEFT_DATA_EAGER, 40, bytes);
    frame_bytes(2, type, len, bytes + whole);
    puppet_dial(&puppet, pair, WEFT_WIRE_LANE);
    puppet_greet(&puppet, pair);
    puppet_say(&puppet, bytes, whole + cut);
    weft_fd_close(puppet.fd);
    assert_true(poll_until(&pair->b, NULL, &pair->b.lost, 1));
    assert_int_equal(pair->b.arrived, 1);
    assert_int_equal(pair->b.landed, 0);
    expect_lost(pair, WEFT_ERR_PEER, "closed the connection");
}

static void an_end_at_any_byte_of_any_frame_tells_nothing_of_it(void **state)
{
    enum { LEN = 40 };
    struct pair pair;
    (void)state;
    hostile_open(&pair);
    for (unsigned type = 1; type < WEFT_DATA_TYPE_END; type++) {
        for (size_t cut = 0; cut < WEFT_WIRE_DATA_LEN + LEN; cut++) {
            cut_at(&pair, (uint8_t)type, LEN, cut);
        }
    }
    pair_close(&pair);
}

static void an_end_inside_a_long_payload_tells_nothing_of_it(void **state)
{
    enum { LEN = 20000 };
    struct pair pair;
    (void)state;
    hostile_open(&pair);
    for (size_t cut = 0; cut < WEFT_WIRE_DATA_LEN + LEN; cut += 997) {
        pair.b.does_sink = cut % 2 == 0;
        cut_at(&pair, WEFT_DATA_CHUNK, LEN, cut);
    }
    cut_at(&pair, WEFT_DATA_CHUNK, LEN, WEFT_WIRE_DATA_LEN + LEN - 1);
    pair_close(&pair);
}

/* ---- bytes in pieces, bytes that are wrong ---- */

static void frames_in_the_smallest_pieces_arrive_whole(void **state)
{
    static const size_t lens[] = {0, 1, 40, 2048, 2049, 5000};
    uint8_t bytes[WEFT_WIRE_DATA_LEN + 5000];
    struct pair pair;
    struct puppet puppet;
    (void)state;
    hostile_open(&pair);
    puppet_dial(&puppet, &pair, WEFT_WIRE_LANE);
    puppet_greet(&puppet, &pair);
    for (uint32_t n = 1; n <= WEFT_COUNT_OF(lens); n++) {
        size_t len = frame_bytes(n, WEFT_DATA_EAGER, lens[n - 1], bytes);
        for (size_t i = 0; i < len; i++) {
            puppet_say(&puppet, bytes + i, 1);
            side_poll(&pair.b);
        }
        assert_true(poll_until(&pair.b, NULL, &pair.b.numbered, n));
    }
    assert_int_equal(pair.b.arrived, 4);
    assert_int_equal(pair.b.landed, 2);
    assert_false(pair.b.is_wrong);
    weft_fd_close(puppet.fd);
    expect_lost(&pair, WEFT_ERR_PEER, "closed the connection");
    pair_close(&pair);
}

/* A receive that fails half way: its memory is the user's again, the stream goes on. */
static void the_rest_of_a_payload_can_still_go_to_the_sink(void **state)
{
    enum { LEN = 20000, HALF = 9000 };
    const struct weft_slice nowhere = {NULL, 0};
    uint8_t bytes[2 * WEFT_WIRE_DATA_LEN + LEN + 8];
    struct pair pair;
    struct puppet puppet;
    size_t len = frame_bytes(1, WEFT_DATA_CHUNK, LEN, bytes);
    (void)state;
    len += frame_bytes(2, WEFT_DATA_EAGER, 8, bytes + len);
    hostile_open(&pair);
    puppet_dial(&puppet, &pair, WEFT_WIRE_LANE);
    puppet_greet(&puppet, &pair);
    puppet_say(&puppet, bytes, HALF);
    assert_true(poll_until(&pair.b, NULL, &pair.b.headers, 1));
    for (unsigned i = 0; i < 10; i++) {
        side_poll(&pair.b);
    }
    pair.b.does_sink = true;
    weft_lane_tcp.place(pair.b.lane, &nowhere);
    memset(pair.b.memory, 0xee, LEN + GUARD);
    puppet_say(&puppet, bytes + HALF, len - HALF);
    assert_true(poll_until(&pair.b, NULL, &pair.b.numbered, 2));
    assert_int_equal(pair.b.landed, 1);
    assert_int_equal(pair.b.arrived, 1);
    for (size_t i = 0; i < LEN; i++) {
        assert_int_equal(pair.b.memory[i], 0xee);
    }
    weft_fd_close(puppet.fd);
    expect_lost(&pair, WEFT_ERR_PEER, "closed the connection");
    pair_close(&pair);
}

static void a_flipped_bit_of_a_header_ends_the_lane(void **state)
{
    uint8_t bytes[3 * (WEFT_WIRE_DATA_LEN + 8)];
    struct pair pair;
    (void)state;
    hostile_open(&pair);
    for (size_t bit = 0; bit < (size_t)WEFT_WIRE_DATA_LEN * 8; bit += 3) {
        struct puppet puppet;
        size_t len = frame_bytes(1, WEFT_DATA_EAGER, 8, bytes);
        len += frame_bytes(2, WEFT_DATA_EAGER, 8, bytes + len);
        bytes[WEFT_WIRE_DATA_LEN + 8 + bit / 8] ^= (uint8_t)(1u << bit % 8);
        len += frame_bytes(3, WEFT_DATA_EAGER, 8, bytes + len);
        puppet_dial(&puppet, &pair, WEFT_WIRE_LANE);
        puppet_greet(&puppet, &pair);
        puppet_say(&puppet, bytes, len);
        assert_true(poll_until(&pair.b, NULL, &pair.b.lost, 1));
        assert_int_equal(pair.b.arrived, 1);
        expect_lost(&pair, WEFT_ERR_PROTOCOL, "a data ");
        assert_true(stranger_is_closed(puppet.fd, DEADLINE_MS));
        weft_fd_close(puppet.fd);
    }
    pair_close(&pair);
}

static void a_claim_of_64_mib_is_asked_about_and_takes_no_memory(void **state)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_CHUNK, .len = WEFT_WIRE_DATA_MAX, .number = 1};
    uint8_t header[WEFT_WIRE_DATA_LEN];
    struct pair pair;
    struct puppet puppet;
    (void)state;
    hostile_open(&pair);
    puppet_dial(&puppet, &pair, WEFT_WIRE_LANE);
    puppet_greet(&puppet, &pair);
    weft_wire_data_encode(&frame, header);
    puppet_say(&puppet, header, sizeof(header));
    assert_true(poll_until(&pair.b, NULL, &pair.b.headers, 1));
    assert_int_equal(pair.b.frame.len, WEFT_WIRE_DATA_MAX);
    weft_fd_close(puppet.fd);
    expect_lost(&pair, WEFT_ERR_PEER, "closed the connection");
    pair_close(&pair);
}

/* ---- who may call ---- */

static void who_does_not_begin_with_a_greeting_is_no_lane(void **state)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    uint8_t bytes[WEFT_WIRE_DATA_LEN + 8];
    struct pair pair;
    (void)state;
    hostile_open(&pair);
    for (size_t i = 0; i < 3; i++) {
        struct puppet puppet;
        puppet_dial(&puppet, &pair, WEFT_WIRE_LANE);
        frame_bytes(1, i == 0 ? WEFT_DATA_ACK : WEFT_DATA_EAGER, 8,
                    bytes); /* an ACK has no payload */
        bytes[0] ^= i == 2;
        puppet_say(&puppet, bytes, sizeof(bytes));
        while (poll(&(struct pollfd){.fd = puppet.fd, .events = POLLIN}, 1, 0) == 0) {
            assert_true(weft_clock_ns() < deadline_ns);
            side_poll(&pair.b);
        }
        assert_true(stranger_is_closed(puppet.fd, DEADLINE_MS));
        weft_fd_close(puppet.fd);
    }
    assert_int_equal(pair.b.opened + pair.b.lost + pair.b.arrived, 0);
    pair_close(&pair);
}

static void another_purpose_is_refused_with_words(void **state)
{
    static const enum weft_wire_purpose purposes[] = {WEFT_WIRE_JOIN, WEFT_WIRE_ATTACH};
    struct pair pair;
    (void)state;
    hostile_open(&pair);
    for (size_t i = 0; i < WEFT_COUNT_OF(purposes); i++) {
        struct puppet puppet;
        puppet_dial(&puppet, &pair, purposes[i]);
        assert_int_equal(puppet.lost_status, WEFT_ERR_PROTOCOL);
        assert_non_null(strstr(puppet.lost_text, "data lanes only"));
    }
    assert_int_equal(pair.b.opened + pair.b.lost, 0);
    pair_close(&pair);
}

static void strangers_on_the_port_do_no_harm(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: weft\r\n\r\n";
    uint8_t noise[4096];
    struct weft_wire_addr wire;
    struct pair pair;
    int strangers[3];
    (void)state;
    pair_open(&pair);
    assert_int_equal(weft_wire_addr_decode(pair.b.address.bytes, &wire), WEFT_OK);
    memset(noise, 0x57, sizeof(noise));
    for (int i = 0; i < 3; i++) {
        strangers[i] = stranger_connect("127.0.0.1", wire.port, DEADLINE_MS);
        assert_true(strangers[i] >= 0);
    }
    assert_true(stranger_send(strangers[0], http, sizeof(http), DEADLINE_MS));
    assert_true(stranger_send(strangers[1], noise, sizeof(noise), DEADLINE_MS));
    for (unsigned i = 1; i <= 100; i++) { /* the third stays silent */
        assert_int_not_equal(side_post(&pair.a, 5000), WEFT_POST_FULL);
        assert_true(poll_until(&pair.b, &pair.a, &pair.b.numbered, i));
    }
    assert_true(stranger_is_closed(strangers[0], DEADLINE_MS));
    assert_true(stranger_is_closed(strangers[1], DEADLINE_MS));
    assert_int_equal(pair.b.opened, 1);
    assert_int_equal(pair.b.lost, 0);
    assert_false(pair.b.is_wrong);
    for (int i = 0; i < 3; i++) {
        close(strangers[i]);
    }
    pair_close(&pair);
}

static void another_secret_opens_no_lane(void **state)
{
    struct pair pair;
    (void)state;
    hostile_open(&pair);
    pair.a.self.key = (const uint8_t *)"a key that belongs to other jobs";
    assert_int_equal(weft_lane_tcp.open(pair.a.port, CALL(0, &pair.b.address), &pair.a.lane),
                     WEFT_OK);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.lost, 1));
    assert_int_equal(pair.a.lost_status, WEFT_ERR_AUTH);
    assert_int_equal(pair.a.opened + pair.b.opened + pair.b.lost, 0);
    pair_close(&pair);
}

/* ---- a relay between the two: real lanes, and a path that damages ---- */

struct relay {
    int listener, near, far;
    size_t passed;  /* a → b */
    size_t flip_at; /* … and the byte that is damaged on its way */
};

/* a dials the relay instead of b. The first `drops` calls are closed without a word. */
static void relay_open(struct relay *relay, struct pair *pair, unsigned drops)
{
    struct sockaddr_storage bound;
    struct weft_wire_addr wire;
    struct weft_lane_address address = {.len = WEFT_WIRE_ADDR_LEN};
    struct pollfd wait = {.events = POLLIN};
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    *relay = (struct relay){.flip_at = SIZE_MAX};
    assert_int_equal(weft_net_listen(&pair->a.addr, 0, 0, &relay->listener, &bound), WEFT_OK);
    weft_net_addr_to_wire(&bound, &wire);
    weft_wire_addr_encode(&wire, address.bytes);
    assert_int_equal(weft_lane_tcp.open(pair->a.port, CALL(0, &address), &pair->a.lane), WEFT_OK);
    wait.fd = relay->listener;
    for (unsigned i = 0; i <= drops; i++) {
        while (poll(&wait, 1, 0) == 0) {
            assert_true(weft_clock_ns() < deadline_ns);
            side_poll(&pair->a);
        }
        relay->near = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert_true(relay->near >= 0);
        if (i < drops) {
            close(relay->near);
        }
    }
    assert_int_equal(weft_wire_addr_decode(pair->b.address.bytes, &wire), WEFT_OK);
    relay->far = stranger_connect("127.0.0.1", wire.port, DEADLINE_MS);
    assert_true(relay->far >= 0);
}

static void relay_step(struct relay *relay, struct pair *pair)
{
    static uint8_t bytes[1 << 16];
    ssize_t got = recv(relay->far, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
        assert_true(stranger_send(relay->near, bytes, (size_t)got, DEADLINE_MS));
    }
    got = recv(relay->near, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
        if (relay->flip_at >= relay->passed && relay->flip_at < relay->passed + (size_t)got) {
            bytes[relay->flip_at - relay->passed] ^= 0x04;
        }
        relay->passed += (size_t)got;
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

static void relay_close(struct relay *relay)
{
    close(relay->near);
    close(relay->far);
    weft_fd_close(relay->listener);
}

/* A listener whose house is full puts callers out: they come back. */
static void a_dialler_that_was_put_out_dials_again(void **state)
{
    struct pair pair;
    struct relay relay;
    (void)state;
    hostile_open(&pair);
    relay_open(&relay, &pair, 3);
    relay_until(&relay, &pair, &pair.b.opened, 1);
    assert_int_equal(pair.a.lost, 0);
    assert_int_equal(side_post(&pair.a, 40), WEFT_POST_SENT);
    relay_until(&relay, &pair, &pair.b.numbered, 1);
    relay_close(&relay);
    pair_close(&pair);
}

static void damage_payload(const char *checksum, size_t len, size_t at)
{
    struct pair pair;
    struct relay relay;
    bool is_checked = strcmp(checksum, "on") == 0;
    pair_prepare(&pair);
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_CHECKSUM, checksum), WEFT_OK);
    side_listen(&pair.a);
    side_listen(&pair.b);
    relay_open(&relay, &pair, 0);
    relay_until(&relay, &pair, &pair.b.opened, 1);
    assert_int_not_equal(side_post(&pair.a, len), WEFT_POST_FULL);
    relay_until(&relay, &pair, &pair.b.numbered, 1);
    relay.flip_at = relay.passed + WEFT_WIRE_DATA_LEN + at;
    assert_int_not_equal(side_post(&pair.a, len), WEFT_POST_FULL);
    if (is_checked) {
        relay_until(&relay, &pair, &pair.b.lost, 1);
        assert_int_equal(pair.b.numbered, 1); /* what was damaged is never told */
        expect_lost(&pair, WEFT_ERR_PROTOCOL, "payload damaged");
    } else {
        relay_until(&relay, &pair, &pair.b.numbered, 2); /* the test's own eye sees it */
        assert_true(pair.b.is_wrong);
    }
    relay_close(&relay);
    pair_close(&pair);
}

static void a_damaged_payload_ends_a_checked_lane(void **state)
{
    static const size_t lens[] = {1, 40, 2048, 3000, 16320, 30000, 300000};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
        damage_payload("on", lens[i], 0);
        damage_payload("on", lens[i], lens[i] / 2);
        damage_payload("on", lens[i], lens[i] - 1);
    }
    damage_payload("off", 40, 20); /* the relay does damage */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_at_any_byte_of_any_frame_tells_nothing_of_it),
        cmocka_unit_test(an_end_inside_a_long_payload_tells_nothing_of_it),
        cmocka_unit_test(frames_in_the_smallest_pieces_arrive_whole),
        cmocka_unit_test(the_rest_of_a_payload_can_still_go_to_the_sink),
        cmocka_unit_test(a_flipped_bit_of_a_header_ends_the_lane),
        cmocka_unit_test(a_claim_of_64_mib_is_asked_about_and_takes_no_memory),
        cmocka_unit_test(who_does_not_begin_with_a_greeting_is_no_lane),
        cmocka_unit_test(another_purpose_is_refused_with_words),
        cmocka_unit_test(strangers_on_the_port_do_no_harm),
        cmocka_unit_test(another_secret_opens_no_lane),
        cmocka_unit_test(a_dialler_that_was_put_out_dials_again),
        cmocka_unit_test(a_damaged_payload_ends_a_checked_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
