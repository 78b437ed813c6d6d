/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections over real loopback sockets: from the handshake to frames of all sizes, and everything
 * that ends one. For what happens to bytes on their way a relay stands between the two ends.
 */
#include "net_support.h"

#include <poll.h>

static void send_beat(struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_HEARTBEAT};
    assert_int_equal(weft_net_conn_send(conn, &frame, NULL, 0), WEFT_OK);
}

/* ---- the handshake ---- */

static void both_ends_know_each_other_after_the_handshake(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_open(&scene);
    assert_int_equal(scene.server.hellos, 1);
    assert_int_equal(scene.server.conn->peer_rank, CLIENT_RANK);
    assert_int_equal(scene.server.conn->purpose, WEFT_WIRE_JOIN);
    assert_int_equal(scene.client.conn->peer_rank, SERVER_RANK);
    assert_non_null(strstr(scene.server.conn->peer_text, "127.0.0.1:"));
    assert_true(scene.client.conn->is_sealed);
    assert_int_equal(scene.server.opened + scene.client.hellos, 0);
    scene_close(&scene);
}

static void the_hello_waits_for_the_owner_and_its_payload_can_be_read(void **state)
{
    struct scene scene = {.server = {.does_hold_back = true}};
    (void)state;
    scene_listen(&scene);
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.server.hellos, 1));
    assert_int_equal(weft_net_conn_hello(scene.server.conn)->payload_len, 8);
    assert_memory_equal(weft_net_conn_hello(scene.server.conn)->payload, "who I am", 8);
    assert_int_equal(scene.client.opened, 0);
    weft_net_conn_accept(scene.server.conn);
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    scene_close(&scene);
}

static void a_refused_client_hears_status_and_reason(void **state)
{
    struct scene scene = {.server = {.does_refuse = true}};
    (void)state;
    scene_listen(&scene);
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.client.lost, 1));
    assert_int_equal(scene.client.lost_status, WEFT_ERR_DUPLICATE);
    assert_non_null(strstr(scene.client.lost_why, "the seat is taken"));
    assert_int_equal(scene.client.opened, 0);
    scene_close(&scene);
}

static void a_wrong_secret_is_refused_before_any_owner_hears_of_it(void **state)
{
    struct scene scene = {.engine = NULL};
    const char *latest;
    (void)state;
    scene_listen(&scene);
    scene.client_self.key = other_key;
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.client.lost, 1));
    assert_int_equal(scene.client.lost_status, WEFT_ERR_AUTH);
    assert_int_equal(scene.server.hellos + scene.server.lost, 0);
    assert_int_equal(weft_net_acceptor_refused(scene.acceptor, &latest), 1);
    assert_non_null(strstr(latest, "127.0.0.1:"));
    scene_close(&scene);
}

static void dialling_a_port_nobody_listens_on_is_a_network_error(void **state)
{
    struct scene scene = {.engine = NULL};
    struct sockaddr_storage addr;
    struct weft_net_dial dial;
    (void)state;
    scene_listen(&scene);
    loopback(&addr, harness_free_port());
    if (weft_net_connect(&addr, &dial) == WEFT_OK) {
        scene_dial_on(&scene, &dial);
        assert_true(drive_until(scene.engine, NULL, &scene.client.lost, 1));
        assert_int_equal(scene.client.lost_status, WEFT_ERR_NETWORK);
    }
    scene_close(&scene);
}

/* A client that talks on before it was accepted is no rank of ours. */
static void bytes_before_the_hello_was_answered_end_the_connection(void **state)
{
    struct scene scene = {.server = {.does_hold_back = true}};
    (void)state;
    scene_listen(&scene);
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.server.hellos, 1));
    assert_int_equal(send(scene.client.conn->source.fd, "x", 1, MSG_NOSIGNAL), 1);
    assert_true(drive_until(scene.engine, NULL, &scene.server.lost, 1));
    assert_int_equal(scene.server.lost_status, WEFT_ERR_PROTOCOL);
    scene_close(&scene);
}

/* ---- frames ---- */

static void echo_of(struct scene *scene, uint32_t number, size_t len)
{
    unsigned before = scene->client.frames;
    send_pattern(scene->client.conn, number, len);
    assert_true(drive_until(scene->engine, NULL, &scene->client.frames, before + 1));
    assert_int_equal(scene->server.frame.len, len);
    assert_int_equal(scene->client.frame.len, len);
    assert_int_equal(scene->client.frame.number, number);
    assert_int_equal(scene->client.frame.comm, 77);
    assert_int_equal(scene->client.frame.src, 1);
    assert_int_equal(scene->client.frame.dst, 2);
}

static void frames_of_all_sizes_up_to_one_mib_pass_both_ways(struct scene *scene)
{
    uint32_t number = 0;
    scene->server.does_echo = true;
    for (size_t len = 0; len <= 300; len++) {
        echo_of(scene, ++number, len);
    }
    for (size_t len = 512; len <= 1 << 20; len *= 2) { /* around every power of two */
        for (size_t at = len - 49; at <= len + 1; at += len < 65536 ? 7 : 25) {
            echo_of(scene, ++number, at);
        }
        echo_of(scene, ++number, len);
    }
    assert_false(scene->server.is_wrong);
    assert_false(scene->client.is_wrong);
    assert_int_equal(scene->server.frames, number);
    assert_int_equal(weft_net_conn_queued(scene->client.conn), 0);
}

static void frames_of_all_sizes_pass_both_ways_sealed(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_open(&scene);
    frames_of_all_sizes_up_to_one_mib_pass_both_ways(&scene);
    scene_close(&scene);
}

static void frames_of_all_sizes_pass_both_ways_without_a_secret(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_listen(&scene);
    scene.server_self.is_authenticated = scene.client_self.is_authenticated = false;
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    assert_false(scene.client.conn->is_sealed);
    frames_of_all_sizes_up_to_one_mib_pass_both_ways(&scene);
    scene_close(&scene);
}

static void frames_of_all_sizes_pass_both_ways_over_a_local_socket(void **state)
{
    struct scene scene = {.engine = NULL};
    struct weft_net_acceptor *local;
    struct weft_net_dial dial;
    char name[WEFT_WIRE_NAME_LEN];
    int fd = -1;
    (void)state;
    scene_listen(&scene);
    snprintf(name, sizeof(name), "weft-test-conn-%d", (int)getpid());
    assert_int_equal(weft_net_listen_local(name, &fd), WEFT_OK);
    assert_int_equal(weft_net_acceptor_open(scene.engine, fd, &scene.server_self, 2000, &owner_ops,
                                            &scene.server, &local),
                     WEFT_OK);
    assert_int_equal(weft_net_connect_local(name, weft_clock_after_ms(DEADLINE_MS), &dial),
                     WEFT_OK);
    scene_dial_on(&scene, &dial);
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    assert_false(scene.client.conn->is_sealed); /* the kernel vouches */
    assert_int_equal(scene.server.conn->peer_pid, getpid());
    frames_of_all_sizes_up_to_one_mib_pass_both_ways(&scene);
    weft_net_acceptor_close(local);
    scene_close(&scene);
}

static void a_thousand_frames_sent_at_once_keep_their_order(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_open(&scene);
    for (uint32_t i = 1; i <= 1000; i++) {
        send_pattern(scene.client.conn, i, i % 97);
    }
    for (unsigned i = 1; i <= 1000; i += 50) {
        assert_true(drive_until(scene.engine, NULL, &scene.server.frames, i));
        assert_int_equal(scene.server.frame.number, scene.server.frames);
    }
    assert_true(drive_until(scene.engine, NULL, &scene.server.frames, 1000));
    assert_false(scene.server.is_wrong);
    scene_close(&scene);
}

/* Corked frames leave in one system call: nothing before uncork, all of them after. */
static void nothing_leaves_while_corked_and_everything_after(void **state)
{
    struct scene scene = {.engine = NULL};
    struct weft_counters *counters;
    uint64_t before;
    (void)state;
    scene_open(&scene);
    counters = weft_engine_counters(scene.engine);
    before = weft_counter_read(counters, WEFT_COUNTER_BYTES_OUT);
    weft_net_conn_cork(scene.client.conn);
    for (uint32_t i = 1; i <= 10; i++) {
        send_pattern(scene.client.conn, i, 100);
    }
    drive_briefly(scene.engine);
    assert_int_equal(weft_counter_read(counters, WEFT_COUNTER_BYTES_OUT), before);
    assert_int_equal(weft_net_conn_queued(scene.client.conn),
                     10 * (WEFT_WIRE_FRAME_LEN + 100 + WEFT_WIRE_SEAL_LEN));
    assert_int_equal(scene.server.frames, 0);
    weft_net_conn_uncork(scene.client.conn);
    assert_int_equal(weft_net_conn_queued(scene.client.conn), 0);
    assert_true(drive_until(scene.engine, NULL, &scene.server.frames, 10));
    assert_false(scene.server.is_wrong);
    scene_close(&scene);
}

/* The server lives on an engine of its own, which stands still for a while. */
static void a_peer_that_does_not_read_costs_memory_not_time_and_gets_all_later(void **state)
{
    enum { COUNT = 64, LEN = 1 << 18 };
    struct scene scene = {.engine = NULL};
    struct weft_engine *client_engine;
    uint64_t begin_ns;
    (void)state;
    scene_listen(&scene);
    scene.client.engine = client_engine = engine_new();
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, client_engine, &scene.client.opened, 1));
    begin_ns = weft_clock_ns();
    for (uint32_t i = 1; i <= COUNT; i++) { /* more than any socket buffer takes */
        send_pattern(scene.client.conn, i, LEN);
    }
    drive_briefly(client_engine);
    assert_true(weft_clock_ns() - begin_ns < 5000 * WEFT_NS_PER_MS); /* nothing waited */
    assert_true(weft_net_conn_queued(scene.client.conn) > 0);
    assert_int_equal(scene.client.lost, 0);
    assert_true(drive_until(scene.engine, client_engine, &scene.server.frames, COUNT));
    assert_false(scene.server.is_wrong);
    assert_int_equal(scene.server.bytes, (size_t)COUNT * LEN);
    assert_int_equal(weft_net_conn_queued(scene.client.conn), 0);
    owner_close(&scene.client);
    weft_engine_close(client_engine);
    scene_close(&scene);
}

/* ---- ends ---- */

static void the_end_of_the_peer_is_told_once(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_open(&scene);
    owner_close(&scene.client);
    assert_true(drive_until(scene.engine, NULL, &scene.server.lost, 1));
    assert_int_equal(scene.server.lost_status, WEFT_ERR_PEER);
    for (int i = 0; i < 5; i++) { /* sending on it is harmless and tells nothing anew */
        send_beat(scene.server.conn);
        drive_briefly(scene.engine);
    }
    assert_int_equal(scene.server.lost, 1);
    assert_int_equal(weft_net_conn_queued(scene.server.conn), 0);
    scene_close(&scene);
}

static void a_reset_is_told_once_as_the_end_of_the_peer(void **state)
{
    struct scene scene = {.engine = NULL};
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    (void)state;
    scene_open(&scene);
    setsockopt(scene.client.conn->source.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    owner_close(&scene.client);
    assert_true(drive_until(scene.engine, NULL, &scene.server.lost, 1));
    assert_int_equal(scene.server.lost_status, WEFT_ERR_PEER);
    drive_briefly(scene.engine);
    assert_int_equal(scene.server.lost, 1);
    scene_close(&scene);
}

/* What was sent before a close arrives before the end is told. */
static void frames_sent_before_a_close_arrive_before_the_end(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_open(&scene);
    weft_net_conn_cork(scene.client.conn); /* closing uncorks */
    send_pattern(scene.client.conn, 1, 5000);
    send_pattern(scene.client.conn, 2, 10);
    owner_close(&scene.client);
    assert_true(drive_until(scene.engine, NULL, &scene.server.lost, 1));
    assert_int_equal(scene.server.frames, 2);
    assert_false(scene.server.is_wrong);
    scene_close(&scene);
}

/* Memory that a callback frees under the feet of its caller is for the address sanitizer to see. */
static void the_owner_may_close_inside_every_call(void **state)
{
    static const struct {
        enum moment server, client;
        unsigned frames;
    } cases[] = {{AT_HELLO, AT_LOST, 0},   {NEVER, AT_OPENED, 0}, {AT_FRAME, AT_LOST, 1},
                 {AT_FRAME, NEVER, 3},     {AT_LOST, AT_FRAME, 1}, {AT_LOST, AT_FRAME, 3},
                 {AT_LOST, AT_OPENED, 0}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct scene scene = {
            .server = {.closes = cases[i].server, .closes_at = cases[i].frames, .does_echo = true},
            .client = {.closes = cases[i].client, .closes_at = cases[i].frames}};
        unsigned *end = &scene.client.lost;
        scene_listen(&scene);
        scene_dial_at(&scene, &scene.addr);
        if (cases[i].client == AT_OPENED) {
            end = &scene.client.opened;
        } else if (cases[i].client == AT_FRAME) {
            end = &scene.server.lost;
        }
        if (cases[i].frames > 0) {
            assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
            weft_net_conn_cork(scene.client.conn); /* all in one read of the peer */
            for (uint32_t k = 1; k <= 5; k++) {
                send_pattern(scene.client.conn, k, 64);
            }
            weft_net_conn_uncork(scene.client.conn);
        }
        assert_true(drive_until(scene.engine, NULL, end, 1));
        if (cases[i].server == AT_FRAME) {
            assert_int_equal(scene.server.frames, cases[i].frames); /* not one more */
        }
        scene_close(&scene);
    }
}

/* ---- a relay between the ends ---- */

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
#define FRAME_TOTAL (WEFT_WIRE_FRAME_LEN + PAYLOAD_LEN + WEFT_WIRE_SEAL_LEN)

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
    assert_true(
        relay_until(&hostile.relay, hostile.scene.engine, &hostile.scene.client.lost, 1));
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
        cmocka_unit_test(both_ends_know_each_other_after_the_handshake),
        cmocka_unit_test(the_hello_waits_for_the_owner_and_its_payload_can_be_read),
        cmocka_unit_test(a_refused_client_hears_status_and_reason),
        cmocka_unit_test(a_wrong_secret_is_refused_before_any_owner_hears_of_it),
        cmocka_unit_test(dialling_a_port_nobody_listens_on_is_a_network_error),
        cmocka_unit_test(bytes_before_the_hello_was_answered_end_the_connection),
        cmocka_unit_test(frames_of_all_sizes_pass_both_ways_sealed),
        cmocka_unit_test(frames_of_all_sizes_pass_both_ways_without_a_secret),
        cmocka_unit_test(frames_of_all_sizes_pass_both_ways_over_a_local_socket),
        cmocka_unit_test(a_thousand_frames_sent_at_once_keep_their_order),
        cmocka_unit_test(nothing_leaves_while_corked_and_everything_after),
        cmocka_unit_test(a_peer_that_does_not_read_costs_memory_not_time_and_gets_all_later),
        cmocka_unit_test(the_end_of_the_peer_is_told_once),
        cmocka_unit_test(a_reset_is_told_once_as_the_end_of_the_peer),
        cmocka_unit_test(frames_sent_before_a_close_arrive_before_the_end),
        cmocka_unit_test(the_owner_may_close_inside_every_call),
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
