/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor leaves its connection after the handshake: nothing is lost or left behind. */
#include "net_support.h"

/* Takes descriptor and keys out of its connection inside the call that says it is open. */
struct keeper {
    bool does_wait;  /* leaves the connection open, for later */
    bool does_speak; /* server: sends a frame together with its accept */
    struct weft_net_conn *conn;
    int fd;
    unsigned ends; /* of the handshake: detached, or lost */
    weft_status_t lost_status;
    unsigned lost;
    uint16_t lane;
    uint8_t send_key[WEFT_WIRE_KEY_LEN], recv_key[WEFT_WIRE_KEY_LEN];
};

static void keeper_take(struct keeper *keeper)
{
    keeper->fd = weft_net_conn_detach(keeper->conn, keeper->send_key, keeper->recv_key);
    if (keeper->fd >= 0) {
        keeper->conn = NULL;
        keeper->ends++;
    }
}

static void keeper_hello(struct weft_net_conn *conn)
{
    struct keeper *keeper = conn->owner;
    keeper->conn = conn;
    keeper->lane = weft_net_conn_hello(conn)->lane;
    if (keeper->does_speak) {
        weft_net_conn_cork(conn);
    }
    weft_net_conn_accept(conn);
    if (keeper->does_speak) {
        send_pattern(conn, 1, 10);
        weft_net_conn_uncork(conn);
    }
    if (!keeper->does_wait) {
        keeper_take(keeper);
    }
}

static void keeper_opened(struct weft_net_conn *conn)
{
    struct keeper *keeper = conn->owner;
    keeper->conn = conn;
    if (keeper->does_wait) {
        keeper->ends++;
    } else {
        keeper_take(keeper);
    }
}

static void keeper_frame(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                         const uint8_t *payload)
{
    (void)conn;
    (void)frame;
    (void)payload;
    fail_msg("a frame after its connection was taken apart");
}

static void keeper_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct keeper *keeper = conn->owner;
    (void)why;
    keeper->ends++;
    keeper->lost++;
    keeper->lost_status = status;
    keeper->conn = NULL;
    weft_net_conn_close(conn);
}

static const struct weft_net_conn_ops keeper_ops = {
    .hello = keeper_hello, .opened = keeper_opened, .frame = keeper_frame, .lost = keeper_lost};

/* A scene whose two owners are keepers. */
static void open_keepers(struct scene *scene, struct keeper *server, struct keeper *client)
{
    struct weft_net_dial dial;
    server->fd = client->fd = -1;
    scene_listen_as(scene, &keeper_ops, server);
    assert_int_equal(weft_net_connect(&scene->addr, &dial), WEFT_OK);
    dial.self = &scene->client_self;
    dial.purpose = WEFT_WIRE_LANE;
    dial.lane = 517;
    dial.ops = &keeper_ops;
    dial.owner = client;
    assert_int_equal(weft_net_conn_open(scene->engine, &dial, &client->conn), WEFT_OK);
    assert_true(drive_until(scene->engine, NULL, &client->ends, 1));
}

static void close_keepers(struct scene *scene, struct keeper *server, struct keeper *client)
{
    weft_net_conn_close(server->conn);
    weft_net_conn_close(client->conn);
    weft_fd_close(server->fd);
    weft_fd_close(client->fd);
    scene_close(scene);
}

/* Bytes pass between the bare descriptors, and the engine hears nothing of them. */
static void assert_joined(struct scene *scene, const struct keeper *a, const struct keeper *b)
{
    char bytes[8] = "";
    assert_true(stranger_send(a->fd, "to and", 7, DEADLINE_MS));
    drive_briefly(scene->engine);
    assert_int_equal(stranger_read(b->fd, bytes, 7, DEADLINE_MS), 7);
    assert_string_equal(bytes, "to and");
    assert_memory_equal(a->send_key, b->recv_key, WEFT_WIRE_KEY_LEN);
    assert_memory_not_equal(a->send_key, a->recv_key, WEFT_WIRE_KEY_LEN);
}

static void both_descriptors_can_be_taken_inside_the_calls_that_open_them(void **state)
{
    struct scene scene = {.engine = NULL};
    struct keeper server = {.fd = -1}, client = {.fd = -1};
    (void)state;
    open_keepers(&scene, &server, &client);
    assert_true(server.fd >= 0 && client.fd >= 0);
    assert_int_equal(server.lost + client.lost, 0);
    /* engine, listener, and the two that are ours now: still registered */
    assert_int_equal(weft_fd_count(), scene.fds_before + 4);
    assert_joined(&scene, &server, &client);
    assert_joined(&scene, &client, &server);
    close_keepers(&scene, &server, &client);
}

static void both_descriptors_can_be_taken_later(void **state)
{
    struct scene scene = {.engine = NULL};
    struct keeper server = {.does_wait = true}, client = {.does_wait = true};
    (void)state;
    open_keepers(&scene, &server, &client);
    keeper_take(&server);
    keeper_take(&client);
    assert_joined(&scene, &server, &client);
    close_keepers(&scene, &server, &client);
}

/* The accept and a frame come in one read: the frame would be lost with the connection. */
static void a_peer_that_spoke_before_its_turn_is_lost_instead(void **state)
{
    struct scene scene = {.engine = NULL};
    struct keeper server = {.does_wait = true, .does_speak = true}, client = {.fd = -1};
    (void)state;
    open_keepers(&scene, &server, &client);
    assert_int_equal(client.fd, -1);
    assert_int_equal(client.lost, 1);
    assert_int_equal(client.lost_status, WEFT_ERR_PROTOCOL);
    assert_true(drive_until(scene.engine, NULL, &server.lost, 1));
    assert_int_equal(server.lost_status, WEFT_ERR_PEER);
    close_keepers(&scene, &server, &client);
}

static void a_connection_with_bytes_to_send_is_lost_instead(void **state)
{
    struct scene scene = {.engine = NULL};
    struct keeper server = {.does_wait = true}, client = {.does_wait = true};
    (void)state;
    open_keepers(&scene, &server, &client);
    weft_net_conn_cork(client.conn);
    send_pattern(client.conn, 1, 10);
    keeper_take(&client);
    assert_int_equal(client.fd, -1);
    assert_int_equal(client.lost_status, WEFT_ERR_PROTOCOL);
    assert_true(drive_until(scene.engine, NULL, &server.lost, 1));
    close_keepers(&scene, &server, &client);
}

static void a_lost_connection_has_no_descriptor(void **state)
{
    struct scene scene = {.engine = NULL};
    uint8_t keys[2][WEFT_WIRE_KEY_LEN];
    (void)state;
    scene_open(&scene);
    owner_close(&scene.client);
    assert_true(drive_until(scene.engine, NULL, &scene.server.lost, 1));
    assert_int_equal(weft_net_conn_detach(scene.server.conn, keys[0], keys[1]), -1);
    assert_int_equal(scene.server.lost, 1);
    scene_close(&scene);
}

static void the_lane_number_comes_with_the_hello(void **state)
{
    struct scene scene = {.engine = NULL};
    struct keeper server = {.fd = -1}, client = {.fd = -1};
    (void)state;
    open_keepers(&scene, &server, &client);
    assert_int_equal(server.lane, 517);
    close_keepers(&scene, &server, &client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_descriptors_can_be_taken_inside_the_calls_that_open_them),
        cmocka_unit_test(both_descriptors_can_be_taken_later),
        cmocka_unit_test(a_peer_that_spoke_before_its_turn_is_lost_instead),
        cmocka_unit_test(a_connection_with_bytes_to_send_is_lost_instead),
        cmocka_unit_test(a_lost_connection_has_no_descriptor),
        cmocka_unit_test(the_lane_number_comes_with_the_hello),
    };
    weft_log_configure("off");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
