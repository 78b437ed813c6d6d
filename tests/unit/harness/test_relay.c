/* SPDX-License-Identifier: Apache-2.0 */
/* The relays of the fault tests: delayed bytes stay whole and in order, datagrams meet what the weather says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/relay.h"
#include "fault/relay_udp.h"

#define WAIT_MS 10000
#define PACKETS 500
#define LEN ((size_t)100000)

/* ---- tcp ---- */

/* A listener, a relay before it and a connection through it. */
struct line {
    int listener, client, root;
    struct relay *relay;
};

static bool has_guest(void *arg)
{
    struct line *line = arg;
    line->root = accept4(line->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return line->root >= 0;
}

static struct line line_open(const struct weather *weather, size_t cut_after)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct line line = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    assert_int_equal(bind(line.listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(line.listener, 4), 0);
    assert_int_equal(getsockname(line.listener, (struct sockaddr *)&addr, &len), 0);
    line.relay = relay_open_in(ntohs(addr.sin_port), RELAY_UP, cut_after, false, weather);
    line.client = stranger_connect("127.0.0.1", line.relay->port, WAIT_MS);
    assert_true(line.client >= 0);
    assert_true(harness_wait_until(has_guest, &line, WAIT_MS));
    return line;
}

static void line_close(struct line *line)
{
    relay_close(line->relay);
    close(line->client);
    close(line->root);
    close(line->listener);
}

static void delayed_bytes_arrive_whole_in_order_and_not_before(void **state)
{
    const struct weather slow = {.seed = 3, .delay_min_us = 20000, .delay_max_us = 40000};
    struct line line = line_open(&slow, RELAY_NEVER);
    static uint8_t out[LEN], in[LEN];
    (void)state;
    for (size_t i = 0; i < LEN; i++) {
        out[i] = (uint8_t)(i * 31 >> 3);
    }
    uint64_t begin_ns = harness_now_ns();
    assert_true(stranger_send(line.client, out, LEN, WAIT_MS));
    assert_int_equal(stranger_read(line.root, in, 1, WAIT_MS), 1);
    assert_true(harness_now_ns() - begin_ns >= slow.delay_min_us * UINT64_C(1000));
    assert_int_equal(stranger_read(line.root, in + 1, LEN - 1, WAIT_MS), LEN - 1);
    assert_memory_equal(in, out, LEN);
    /* and back; the end comes behind the last byte */
    assert_true(stranger_send(line.root, out, 1000, WAIT_MS));
    shutdown(line.root, SHUT_WR);
    assert_int_equal(stranger_read(line.client, in, LEN, WAIT_MS), 1000);
    assert_memory_equal(in, out, 1000);
    assert_true(stranger_is_closed(line.client, WAIT_MS));
    line_close(&line);
}

static void a_cut_comes_behind_what_was_delayed(void **state)
{
    const struct weather slow = {.seed = 4, .delay_min_us = 1000, .delay_max_us = 3000};
    struct line line = line_open(&slow, 700);
    uint8_t bytes[1000] = {0};
    (void)state;
    assert_true(stranger_send(line.client, bytes, sizeof(bytes), WAIT_MS));
    assert_int_equal(stranger_read(line.root, bytes, sizeof(bytes), WAIT_MS), 700);
    assert_true(stranger_is_closed(line.root, WAIT_MS));
    line_close(&line);
}

/* ---- udp ---- */

struct talk {
    int far, near;
    unsigned got[PACKETS]; /* how often each came */
    unsigned total, expected, overtaken;
    uint32_t latest;
};

/* Everything that has come; true: all that should. */
static bool has_all(void *arg)
{
    struct talk *talk = arg;
    uint32_t number;
    while (recv(talk->far, &number, sizeof(number), MSG_DONTWAIT) == (ssize_t)sizeof(number)) {
        assert_in_range(number, 0, PACKETS - 1);
        talk->got[number]++;
        talk->total++;
        talk->overtaken += number < talk->latest;
        talk->latest = number > talk->latest ? number : talk->latest;
    }
    return talk->total >= talk->expected;
}

/* Sends all packets through such weather; what came is in *talk_p. */
static void send_through(const struct weather *weather, struct talk *talk_p)
{
    struct sockaddr_in far, near, relay_addr;
    struct talk talk = {0};
    talk.far = relay_udp_socket(&far);
    talk.near = relay_udp_socket(&near);
    struct relay_udp *relay = relay_udp_open(ntohs(far.sin_port), weather);
    relay_addr = far;
    relay_addr.sin_port = htons(relay->port);
    for (uint32_t number = 0; number < PACKETS; number++) {
        talk.expected += weather_fate(weather, 0, number).copies;
        assert_int_equal(sendto(talk.near, &number, sizeof(number), 0,
                                (struct sockaddr *)&relay_addr, sizeof(relay_addr)),
                         sizeof(number));
    }
    assert_true(harness_wait_until(has_all, &talk, WAIT_MS));
    assert_int_equal(atomic_load(&relay->seen), PACKETS);
    for (uint32_t number = 0; number < PACKETS; number++) {
        assert_int_equal(talk.got[number], weather_fate(weather, 0, number).copies);
    }
    relay_udp_close(relay);
    close(talk.far);
    close(talk.near);
    *talk_p = talk;
}

static void datagrams_are_lost_doubled_and_overtaken_as_the_seed_says(void **state)
{
    struct weather storm = {.seed = 11,
                            .delay_min_us = 100,
                            .delay_max_us = 300,
                            .loss = 100,
                            .duplication = 50,
                            .reordering = 100,
                            .reordering_us = 20000};
    static struct talk one, same, other;
    (void)state;
    send_through(&storm, &one);
    send_through(&storm, &same);
    storm.seed++;
    send_through(&storm, &other);
    assert_true(one.overtaken > 0);
    assert_true(one.total != PACKETS);
    assert_memory_equal(one.got, same.got, sizeof(one.got));
    assert_memory_not_equal(one.got, other.got, sizeof(one.got));
}

static void in_calm_all_arrive_in_order_and_answers_come_back(void **state)
{
    const struct weather calm = {.seed = 1};
    struct sockaddr_in far, near, from, relay_addr;
    socklen_t from_len = sizeof(from);
    static struct talk talk;
    char bytes[8] = "";
    (void)state;
    send_through(&calm, &talk);
    assert_int_equal(talk.total, PACKETS);
    assert_int_equal(talk.overtaken, 0);
    int far_fd = relay_udp_socket(&far), near_fd = relay_udp_socket(&near);
    struct relay_udp *relay = relay_udp_open(ntohs(far.sin_port), &calm);
    relay_addr = far;
    relay_addr.sin_port = htons(relay->port);
    assert_int_equal(
        sendto(near_fd, "ask", 3, 0, (struct sockaddr *)&relay_addr, sizeof(relay_addr)), 3);
    struct pollfd polled = {.fd = far_fd, .events = POLLIN};
    assert_int_equal(poll(&polled, 1, WAIT_MS), 1);
    assert_int_equal(recvfrom(far_fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &from_len),
                     3);
    assert_int_equal(sendto(far_fd, "answer", 6, 0, (struct sockaddr *)&from, from_len), 6);
    polled.fd = near_fd;
    assert_int_equal(poll(&polled, 1, WAIT_MS), 1);
    assert_int_equal(recv(near_fd, bytes, sizeof(bytes), 0), 6);
    assert_memory_equal(bytes, "answer", 6);
    relay_udp_close(relay);
    close(far_fd);
    close(near_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delayed_bytes_arrive_whole_in_order_and_not_before),
        cmocka_unit_test(a_cut_comes_behind_what_was_delayed),
        cmocka_unit_test(datagrams_are_lost_doubled_and_overtaken_as_the_seed_says),
        cmocka_unit_test(in_calm_all_arrive_in_order_and_answers_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
