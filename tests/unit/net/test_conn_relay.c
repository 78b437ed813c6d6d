/* SPDX-License-Identifier: Apache-2.0 */
/* A relay stands between two ends and plays with the bytes: nothing it makes up may be taken. */
#include "net_support.h"

#include <poll.h>

struct relay {
    int listener, near, far;
    struct sockaddr_storage addr;
    uint8_t kept[1 << 16]; /* client → server since `keeps`, held back */
    size_t kept_len;
    bool keeps;
};

static void relay_open(struct relay *relay)
{
    struct sockaddr_storage any;
    memset(relay, 0, sizeof(*relay));
    relay->near = relay->far = -1;
    loopback(&any, 0);
    assert_int_equal(weft_net_listen(&any, 0, 0, &relay->listener, &relay->addr), WEFT_OK);
}

static void relay_connect(struct relay *relay, const struct sockaddr_storage *to)
{
    struct weft_net_dial dial;
    struct pollfd wait = {.fd = relay->listener, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
    relay->near = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(relay->near >= 0);
    assert_int_equal(weft_net_connect(to, &dial), WEFT_OK);
    relay->far = dial.fd;
}

static void relay_write(int fd, const uint8_t *bytes, size_t len)
{
    assert_true(stranger_send(fd, bytes, len, DEADLINE_MS));
}

static void relay_step(struct relay *relay)
{
    uint8_t bytes[4096];
    ssize_t got = recv(relay->far, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
        relay_write(relay->near, bytes, (size_t)got);
    }
    got = recv(relay->near, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0 && relay->keeps) {
        assert_true(relay->kept_len + (size_t)got <= sizeof(relay->kept));
        memcpy(relay->kept + relay->kept_len, bytes, (size_t)got);
        relay->kept_len += (size_t)got;
    } else if (got > 0) {
        relay_write(relay->far, bytes, (size_t)got);
    }
}

static bool relay_until(struct relay *relay, struct weft_engine *engine, const unsigned *count,
                        unsigned value)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (*count < value && weft_clock_ns() < deadline_ns) {
        relay_step(relay);
        drive_briefly(engine);
    }
    return *count >= value;
}

static void relay_keep(struct relay *relay, struct weft_engine *engine, size_t len)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (relay->kept_len < len && weft_clock_ns() < deadline_ns) {
        relay_step(relay);
        drive_briefly(engine);
    }
    assert_int_equal(relay->kept_len, len);
}

static void relay_close(struct relay *relay)
{
    close(relay->near);
    weft_fd_close(relay->far);
    weft_fd_close(relay->listener);
}

#define PAYLOAD_LEN 40
#define FRAME_TOTAL ((size_t)WEFT_WIRE_FRAME_LEN + PAYLOAD_LEN + WEFT_WIRE_SEAL_LEN)

/* Both ends open, three frames of the client lie in the relay's hands. */
static void relay_scene(struct scene *scene, struct relay *relay)
{
    unsigned fds_before = weft_fd_count();
    relay_open(relay);
    scene_listen(scene);
    scene->fds_before = fds_before;
    scene_dial_at(scene, &relay->addr);
    relay_connect(relay, &scene->addr);
    assert_true(relay_until(relay, scene->engine, &scene->client.opened, 1));
    relay->keeps = true;
    for (uint32_t i = 1; i <= 3; i++) {
        send_pattern(scene->client.conn, i, PAYLOAD_LEN);
    }
    relay_keep(relay, scene->engine, 3 * FRAME_TOTAL);
}

static void frames_through_an_honest_relay_arrive(void **state)
{
    struct scene scene = {.engine = NULL};
    struct relay relay;
    (void)state;
    relay_scene(&scene, &relay);
    for (size_t i = 0; i < relay.kept_len; i++) { /* in the smallest pieces */
        relay_write(relay.far, relay.kept + i, 1);
        drive_briefly(scene.engine);
    }
    assert_true(relay_until(&relay, scene.engine, &scene.server.frames, 3));
    assert_false(scene.server.is_wrong);
    assert_int_equal(scene.server.lost, 0);
    relay_close(&relay);
    scene_close(&scene);
}

static struct {
    struct scene scene;
    struct relay relay;
} hostile;

static void hostile_open(void)
{
    memset(&hostile, 0, sizeof(hostile));
    relay_scene(&hostile.scene, &hostile.relay);
}

/* These bytes arrive: the server takes `frames` of them, then its connection ends with `status`. */
static void expect_lost(const uint8_t *bytes, size_t len, unsigned frames, weft_status_t status)
{
    struct owner *server = &hostile.scene.server;
    relay_write(hostile.relay.far, bytes, len);
    assert_true(relay_until(&hostile.relay, hostile.scene.engine, &server->lost, 1));
    assert_int_equal(server->lost_status, status);
    assert_int_equal(server->frames, frames);
    assert_false(server->is_wrong);
    relay_close(&hostile.relay);
    scene_close(&hostile.scene);
}

static void a_flipped_bit_of_payload_or_seal_is_an_authentication_error(void **state)
{
    static const size_t places[] = {WEFT_WIRE_FRAME_LEN, WEFT_WIRE_FRAME_LEN + PAYLOAD_LEN - 1,
                                    WEFT_WIRE_FRAME_LEN + PAYLOAD_LEN, FRAME_TOTAL - 1};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(places); i++) {
        hostile_open();
        hostile.relay.kept[FRAME_TOTAL + places[i]] ^= 0x10; /* in the second frame */
        expect_lost(hostile.relay.kept, 3 * FRAME_TOTAL, 1, WEFT_ERR_AUTH);
    }
}

static void a_flipped_bit_of_a_header_is_a_protocol_error(void **state)
{
    (void)state;
    for (size_t at = 0; at < WEFT_WIRE_FRAME_LEN; at += 5) {
        hostile_open();
        hostile.relay.kept[FRAME_TOTAL + at] ^= 0x01;
        expect_lost(hostile.relay.kept, 3 * FRAME_TOTAL, 1, WEFT_ERR_PROTOCOL);
    }
}

/* A header with a good CRC that somebody else made: only the seal can tell. */
static void a_forged_header_with_a_good_crc_is_an_authentication_error(void **state)
{
    struct weft_wire_frame frame;
    (void)state;
    hostile_open();
    assert_int_equal(weft_wire_frame_decode(hostile.relay.kept, &frame), WEFT_OK);
    frame.dst++;
    weft_wire_frame_encode(&frame, hostile.relay.kept);
    expect_lost(hostile.relay.kept, 3 * FRAME_TOTAL, 0, WEFT_ERR_AUTH);
}

static void a_frame_played_twice_is_an_authentication_error(void **state)
{
    uint8_t twice[2 * FRAME_TOTAL];
    (void)state;
    hostile_open();
    memcpy(twice, hostile.relay.kept, FRAME_TOTAL);
    memcpy(twice + FRAME_TOTAL, hostile.relay.kept, FRAME_TOTAL);
    expect_lost(twice, sizeof(twice), 1, WEFT_ERR_AUTH);
}

static void a_frame_left_out_or_out_of_order_is_an_authentication_error(void **state)
{
    (void)state;
    hostile_open();
    expect_lost(hostile.relay.kept + FRAME_TOTAL, 2 * FRAME_TOTAL, 0, WEFT_ERR_AUTH);
}

/* The frame goes back to the one who made it: each direction has a key of its own. */
static void a_frame_reflected_to_its_sender_is_an_authentication_error(void **state)
{
    (void)state;
    hostile_open();
    relay_write(hostile.relay.near, hostile.relay.kept, FRAME_TOTAL);
    assert_true(relay_until(&hostile.relay, hostile.scene.engine, &hostile.scene.client.lost, 1));
    assert_int_equal(hostile.scene.client.lost_status, WEFT_ERR_AUTH);
    assert_int_equal(hostile.scene.client.frames, 0);
    shutdown(hostile.relay.far, SHUT_WR);
    expect_lost(NULL, 0, 0, WEFT_ERR_PEER);
}

/* A cut at any byte is an end, never a part of a frame. */
static void a_cut_inside_a_frame_delivers_nothing_of_it(void **state)
{
    (void)state;
    for (size_t cut = 1; cut < FRAME_TOTAL; cut += 9) {
        hostile_open();
        relay_write(hostile.relay.far, hostile.relay.kept, FRAME_TOTAL + cut);
        shutdown(hostile.relay.far, SHUT_WR);
        expect_lost(NULL, 0, 1, WEFT_ERR_PEER);
    }
}

/* A header may claim 64 MiB; memory follows what came. */
static void a_long_claim_does_not_take_memory_before_its_bytes_come(void **state)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_MAIL, .len = WEFT_WIRE_FRAME_MAX};
    uint8_t header[WEFT_WIRE_FRAME_LEN];
    uint64_t before, deadline_ns;
    struct weft_counters *counters;
    (void)state;
    hostile_open();
    counters = weft_engine_counters(hostile.scene.engine);
    before = weft_counter_read(counters, WEFT_COUNTER_BYTES_IN);
    weft_wire_frame_encode(&frame, header);
    relay_write(hostile.relay.far, header, sizeof(header));
    relay_write(hostile.relay.far, hostile.relay.kept, 3 * FRAME_TOTAL);
    deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (weft_counter_read(counters, WEFT_COUNTER_BYTES_IN) < before + 3 * FRAME_TOTAL) {
        assert_true(weft_clock_ns() < deadline_ns);
        drive_briefly(hostile.scene.engine);
    }
    assert_true(hostile.scene.server.conn->in_room <= 8192);
    shutdown(hostile.relay.far, SHUT_WR);
    expect_lost(NULL, 0, 0, WEFT_ERR_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_through_an_honest_relay_arrive),
        cmocka_unit_test(a_flipped_bit_of_payload_or_seal_is_an_authentication_error),
        cmocka_unit_test(a_flipped_bit_of_a_header_is_a_protocol_error),
        cmocka_unit_test(a_forged_header_with_a_good_crc_is_an_authentication_error),
        cmocka_unit_test(a_frame_played_twice_is_an_authentication_error),
        cmocka_unit_test(a_frame_left_out_or_out_of_order_is_an_authentication_error),
        cmocka_unit_test(a_frame_reflected_to_its_sender_is_an_authentication_error),
        cmocka_unit_test(a_cut_inside_a_frame_delivers_nothing_of_it),
        cmocka_unit_test(a_long_claim_does_not_take_memory_before_its_bytes_come),
    };
    weft_log_configure("off");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
