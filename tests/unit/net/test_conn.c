/* SPDX-License-Identifier: Apache-2.0 */
/* Connections over real loopback sockets: from the handshake to frames of all sizes, and what ends
 * them. */
#include "net_support.h"

#include <netinet/tcp.h>

static void send_beat(struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_HEARTBEAT};
    assert_int_equal(weft_net_conn_send(conn, &frame, NULL, 0), WEFT_OK);
}

/* ---- the handshake ---- */

/* Where the kernel can be told. */
static void a_dead_path_is_tried_every_second_and_not_given_up_sooner(void **state)
{
    enum { RTO_MAX = 44 };
    struct scene scene = {.engine = NULL};
    int value = 0;
    socklen_t len = sizeof(value);
    (void)state;
    scene_open(&scene);
    weft_net_conn_persist(scene.client.conn);
    if (getsockopt(scene.client.conn->source.fd, IPPROTO_TCP, RTO_MAX, &value, &len) == 0) {
        assert_int_equal(value, 1000);
        assert_int_equal(
            getsockopt(scene.client.conn->source.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &len),
            0);
        assert_int_equal(value, 900000);
    }
    scene_close(&scene);
}

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
    } cases[] = {{AT_HELLO, AT_LOST, 0}, {NEVER, AT_OPENED, 0},  {AT_FRAME, AT_LOST, 1},
                 {AT_FRAME, NEVER, 3},   {AT_LOST, AT_FRAME, 1}, {AT_LOST, AT_FRAME, 3},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_know_each_other_after_the_handshake),
        cmocka_unit_test(a_dead_path_is_tried_every_second_and_not_given_up_sooner),
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
    };
    weft_log_configure("off");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
