/* SPDX-License-Identifier: Apache-2.0 */
/* How tcp lanes open, and how they do not. */
#include "tcp_support.h"

#include <netinet/tcp.h>

static void a_dialled_lane_opens_on_both_ends(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    assert_int_equal(pair.a.lane->peer, 0);
    assert_int_equal(pair.b.lane->peer, 1);
    assert_true(pair.a.lane->is_up && pair.b.lane->is_up);
    assert_null(pair.b.lane->owner);
    assert_int_equal(pair.b.lane->caps, 0);
    assert_int_equal(pair.b.lane->chunk_max, WEFT_WIRE_DATA_MAX);
    assert_ptr_equal(pair.b.lane->ops, &weft_lane_tcp);
    assert_non_null(strstr(pair.b.lane->peer_text, "127.0.0.1:"));
    assert_int_equal(pair.b.opened, 1);
    assert_int_equal(pair.b.arrived + pair.a.arrived, 0); /* the greeting is nobody's business */
    pair_close(&pair);
}

static void dialling_nobody_is_a_network_error(void **state)
{
    struct pair pair;
    weft_status_t status;
    (void)state;
    pair_prepare(&pair);
    side_listen(&pair.a);
    side_listen(&pair.b);
    weft_lane_tcp.port_close(pair.b.port);
    pair.b.port = NULL;
    status = weft_lane_tcp.open(pair.a.port, CALL(0, &pair.b.address), &pair.a.lane);
    if (status == WEFT_OK) {
        assert_true(poll_until(&pair.a, NULL, &pair.a.lost, 1));
        status = pair.a.lost_status;
    }
    assert_int_equal(status, WEFT_ERR_NETWORK);
    pair_close(&pair);
}

static void another_rank_at_that_address_is_a_protocol_error(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    side_listen(&pair.a);
    side_listen(&pair.b);
    assert_int_equal(weft_lane_tcp.open(pair.a.port, CALL(5, &pair.b.address), &pair.a.lane),
                     WEFT_OK);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.lost, 1));
    assert_int_equal(pair.a.lost_status, WEFT_ERR_PROTOCOL);
    assert_string_equal(pair.a.lost_text, "rank 0 answers there instead of rank 5");
    assert_int_equal(pair.a.opened, 0);
    for (int i = 0; i < 100; i++) {
        side_poll(&pair.b); /* and there nobody has heard of it */
    }
    assert_int_equal(pair.b.opened + pair.b.lost, 0);
    pair_close(&pair);
}

static uint16_t port_from(struct weft_lane *lane)
{
    struct sockaddr_in addr = {0};
    socklen_t len = sizeof(addr);
    struct weft_net_conn *conn = weft_lane_tcp_of(lane)->conn;
    assert_true(conn == NULL || getsockname(conn->source.fd, (struct sockaddr *)&addr, &len) == 0);
    return ntohs(addr.sin_port);
}

/* A listener whose queue is full lets calls drop, as a path that is not there for a moment does. The kernel would call
 * again after a second, from the same port. */
static void a_call_that_is_not_answered_is_made_again(void **state)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    struct sockaddr_storage here = {0}, bound;
    struct weft_wire_addr addr;
    struct weft_lane_address address = {.len = WEFT_WIRE_ADDR_LEN};
    struct pair pair;
    uint16_t port;
    int fd, callers[2];
    (void)state;
    pair_prepare(&pair);
    side_listen(&pair.a);
    ((struct sockaddr_in *)&here)->sin_family = AF_INET;
    ((struct sockaddr_in *)&here)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(weft_net_listen(&here, 0, 0, &fd, &bound), WEFT_OK);
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < 2; i++) { /* one in the queue, one too many */
        callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(callers[i], (struct sockaddr *)&bound, sizeof(struct sockaddr_in));
    }
    weft_net_addr_to_wire(&bound, &addr);
    weft_wire_addr_encode(&addr, address.bytes);
    assert_int_equal(
        weft_lane_tcp.open(pair.a.port, CALL_FOR(0, &address, DEADLINE_MS), &pair.a.lane), WEFT_OK);
    port = port_from(pair.a.lane);
    while (port_from(pair.a.lane) == port && weft_clock_ns() < deadline_ns) {
        side_poll(&pair.a);
    }
    assert_int_not_equal(port_from(pair.a.lane), port);
    assert_int_equal(pair.a.lost, 0);
    close(callers[0]);
    close(callers[1]);
    weft_fd_close(fd);
    pair_close(&pair);
}

/* The other side's engine stands still: its kernel accepts, nobody speaks. */
static void a_listener_that_stays_silent_is_given_up_in_time(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    side_listen(&pair.a);
    side_listen(&pair.b);
    assert_int_equal(
        weft_lane_tcp.open(pair.a.port, CALL_FOR(0, &pair.b.address, 50), &pair.a.lane), WEFT_OK);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_FULL);
    assert_true(poll_until(&pair.a, NULL, &pair.a.lost, 1));
    assert_int_equal(pair.a.lost_status, WEFT_ERR_NETWORK);
    assert_non_null(strstr(pair.a.lost_text, "in time"));
    pair_close(&pair);
}

static void a_post_before_the_lane_is_open_is_refused_and_writable_follows(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    side_listen(&pair.a);
    side_listen(&pair.b);
    assert_int_equal(weft_lane_tcp.open(pair.a.port, CALL(0, &pair.b.address), &pair.a.lane),
                     WEFT_OK);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_FULL);
    assert_true(poll_until(&pair.a, &pair.b, &pair.a.writable, 1));
    assert_int_equal(pair.a.opened, 1);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_SENT);
    assert_true(poll_until(&pair.b, NULL, &pair.b.arrived, 1));
    assert_false(pair.b.is_wrong);
    pair_close(&pair);
}

/* At every number of polls on the way to an open lane. */
static void a_port_may_close_at_any_moment_of_opening(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 30; steps++) {
        struct pair pair;
        pair_prepare(&pair);
        side_listen(&pair.a);
        side_listen(&pair.b);
        assert_int_equal(weft_lane_tcp.open(pair.a.port, CALL(0, &pair.b.address), &pair.a.lane),
                         WEFT_OK);
        for (unsigned i = 0; i < steps; i++) {
            side_poll(i % 2 == 0 ? &pair.b : &pair.a);
        }
        pair_close(&pair);
    }
}

static void loopback_gets_a_congestion_control_that_does_not_pace(void **state)
{
    struct pair pair;
    char name[16] = "";
    socklen_t len = sizeof(name);
    (void)state;
    pair_open(&pair);
    assert_int_equal(getsockopt(weft_lane_tcp_of(pair.b.lane)->source.fd, IPPROTO_TCP,
                                TCP_CONGESTION, name, &len),
                     0);
    assert_true(strcmp(name, "cubic") == 0 || strcmp(name, "reno") == 0);
    pair_close(&pair);
}

static void a_congestion_control_that_is_not_there_ends_nothing(void **state)
{
    struct pair pair;
    (void)state;
    pair_prepare(&pair);
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_TCP_CC, "nosuch"), WEFT_OK);
    side_listen(&pair.a);
    side_listen(&pair.b);
    pair_dial(&pair);
    assert_int_equal(side_post(&pair.a, 8), WEFT_POST_SENT);
    assert_true(poll_until(&pair.b, NULL, &pair.b.arrived, 1));
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dialled_lane_opens_on_both_ends),
        cmocka_unit_test(dialling_nobody_is_a_network_error),
        cmocka_unit_test(another_rank_at_that_address_is_a_protocol_error),
        cmocka_unit_test(a_call_that_is_not_answered_is_made_again),
        cmocka_unit_test(a_listener_that_stays_silent_is_given_up_in_time),
        cmocka_unit_test(a_post_before_the_lane_is_open_is_refused_and_writable_follows),
        cmocka_unit_test(a_port_may_close_at_any_moment_of_opening),
        cmocka_unit_test(loopback_gets_a_congestion_control_that_does_not_pace),
        cmocka_unit_test(a_congestion_control_that_is_not_there_ends_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
