/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners among strangers: how many are kept, who goes first, who always gets in. */
#include "net/internal.h"
#include "net_support.h"

#include <poll.h>

enum { CROWD = 3 * WEFT_NET_PENDING_MAX };

static uint16_t port_of(const struct scene *scene)
{
    return ntohs(((const struct sockaddr_in *)&scene->addr)->sin_port);
}

static uint64_t counted(const struct scene *scene, enum weft_counter which)
{
    return weft_counter_read(weft_engine_counters(scene->engine), which);
}

static int stranger_at(const struct scene *scene)
{
    int fd = stranger_connect("127.0.0.1", port_of(scene), DEADLINE_MS);
    assert_true(fd >= 0);
    return fd;
}

/* Looks past what the listener said before. */
static bool is_closed_now(int fd)
{
    uint8_t sink[4096];
    ssize_t got;
    do {
        got = recv(fd, sink, sizeof(sink), MSG_DONTWAIT);
    } while (got > 0);
    return got == 0 || errno != EAGAIN;
}

/* Drives until the listener has closed it. */
static bool is_put_out(struct scene *scene, int fd)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (weft_clock_ns() < deadline_ns) {
        if (is_closed_now(fd)) {
            return true;
        }
        drive_briefly(scene->engine);
    }
    return false;
}

static bool drive_until_counted(struct scene *scene, enum weft_counter which, uint64_t value)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (counted(scene, which) < value && weft_clock_ns() < deadline_ns) {
        drive_briefly(scene->engine);
    }
    return counted(scene, which) >= value;
}

static void every_stranger_gets_a_challenge_and_nothing_else(void **state)
{
    struct scene scene = {.engine = NULL};
    uint8_t bytes[2 * WEFT_WIRE_CHALLENGE_LEN];
    int fd;
    (void)state;
    scene_listen(&scene);
    fd = stranger_at(&scene);
    assert_true(drive_until_counted(&scene, WEFT_COUNTER_ACCEPTED, 1));
    assert_int_equal(stranger_read(fd, bytes, sizeof(bytes), 20), WEFT_WIRE_CHALLENGE_LEN);
    close(fd);
    scene_close(&scene);
}

static void no_two_challenges_have_the_same_nonce(void **state)
{
    enum { COUNT = 40 };
    struct scene scene = {.engine = NULL};
    static uint8_t seen[COUNT][WEFT_WIRE_CHALLENGE_LEN];
    (void)state;
    scene_listen(&scene);
    for (unsigned i = 0; i < COUNT; i++) {
        int fd = stranger_at(&scene);
        assert_true(drive_until_counted(&scene, WEFT_COUNTER_ACCEPTED, i + 1));
        assert_int_equal(stranger_read(fd, seen[i], sizeof(seen[i]), DEADLINE_MS), sizeof(seen[i]));
        close(fd);
        for (unsigned k = 0; k < i; k++) {
            assert_memory_not_equal(seen[i] + 28, seen[k] + 28, WEFT_WIRE_NONCE_LEN);
        }
    }
    scene_close(&scene);
}

static void garbage_is_closed_at_once_counted_and_never_told_to_the_owner(void **state)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "WEFT????",
                                          "x"};
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_listen(&scene);
    for (unsigned i = 0; i < WEFT_COUNT_OF(garbage); i++) {
        int fd = stranger_at(&scene);
        assert_true(stranger_send(fd, garbage[i], strlen(garbage[i]), DEADLINE_MS));
        assert_true(is_put_out(&scene, fd));
        close(fd);
        assert_int_equal(counted(&scene, WEFT_COUNTER_STRANGERS), i + 1);
    }
    assert_int_equal(scene.server.hellos + scene.server.lost, 0);
    scene_dial_at(&scene, &scene.addr); /* a rank still gets in */
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    scene_close(&scene);
}

static void a_silent_stranger_goes_when_the_handshake_takes_too_long(void **state)
{
    struct scene scene = {.handshake_timeout_ms = 30};
    uint64_t begin_ns;
    int fd;
    (void)state;
    scene_listen(&scene);
    fd = stranger_at(&scene);
    assert_true(drive_until_counted(&scene, WEFT_COUNTER_ACCEPTED, 1));
    begin_ns = weft_clock_ns();
    assert_true(is_put_out(&scene, fd));
    assert_true(weft_clock_ns() - begin_ns >= 25 * WEFT_NS_PER_MS); /* and not before */
    assert_int_equal(counted(&scene, WEFT_COUNTER_STRANGERS), 1);
    close(fd);
    scene_close(&scene);
}

/* A rank that is open is no longer on trial. */
static void an_open_connection_outlives_the_handshake_s_time(void **state)
{
    struct scene scene = {.handshake_timeout_ms = 20};
    uint64_t until_ns;
    (void)state;
    scene_open(&scene);
    until_ns = weft_clock_after_ms(60);
    while (weft_clock_ns() < until_ns) {
        drive_briefly(scene.engine);
    }
    assert_int_equal(scene.client.lost + scene.server.lost, 0);
    scene_close(&scene);
}

static unsigned living(const int *fds, unsigned count)
{
    unsigned open = 0;
    for (unsigned i = 0; i < count; i++) {
        open += !is_closed_now(fds[i]);
    }
    return open;
}

static void a_crowd_of_silent_strangers_is_kept_to_the_limit_and_the_oldest_goes(void **state)
{
    struct scene scene = {.handshake_timeout_ms = 60000};
    int crowd[CROWD];
    unsigned open;
    (void)state;
    scene_listen(&scene);
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = stranger_at(&scene);
    }
    assert_true(drive_until_counted(&scene, WEFT_COUNTER_ACCEPTED, CROWD));
    open = living(crowd, CROWD);
    assert_true(open <= WEFT_NET_PENDING_MAX);
    assert_true(counted(&scene, WEFT_COUNTER_EVICTED) >= CROWD - WEFT_NET_PENDING_MAX);
    assert_int_equal(living(crowd, CROWD - WEFT_NET_PENDING_MAX), 0); /* the first to come */
    assert_int_equal(counted(&scene, WEFT_COUNTER_STRANGERS), 0);
    for (int i = 0; i < CROWD; i++) {
        close(crowd[i]);
    }
    scene_close(&scene);
}

static void a_rank_gets_in_soon_through_a_crowd_of_silent_strangers(void **state)
{
    struct scene scene = {.handshake_timeout_ms = 60000};
    int crowd[CROWD];
    uint64_t begin_ns;
    (void)state;
    scene_listen(&scene);
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = stranger_at(&scene);
    }
    begin_ns = weft_clock_ns();
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    assert_true(weft_clock_ns() - begin_ns < 1000 * WEFT_NS_PER_MS);
    for (int i = 0; i < CROWD; i++) {
        close(crowd[i]);
    }
    scene_close(&scene);
}

static void accept_and_keep(struct weft_net_conn *conn)
{
    weft_list_append(conn->owner, &conn->node);
    weft_net_conn_accept(conn);
}

/* Ranks that come all at once make room by answering: nobody is put out. */
static void a_crowd_of_ranks_gets_in_without_a_loss(void **state)
{
    struct weft_net_conn_ops keeping = owner_ops;
    struct scene scene = {.engine = NULL};
    static struct owner ranks[CROWD];
    struct weft_list served;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    unsigned opened = 0;
    (void)state;
    weft_list_open(&served);
    keeping.hello = accept_and_keep;
    scene_listen_as(&scene, &keeping, &served);
    for (int i = 0; i < CROWD; i++) {
        struct weft_net_dial dial;
        ranks[i] = (struct owner){.engine = scene.engine};
        assert_int_equal(weft_net_connect(&scene.addr, &dial), WEFT_OK);
        dial.self = &scene.client_self;
        dial.purpose = WEFT_WIRE_JOIN;
        dial.ops = &owner_ops;
        dial.owner = &ranks[i];
        assert_int_equal(weft_net_conn_open(scene.engine, &dial, &ranks[i].conn), WEFT_OK);
    }
    while (opened < CROWD && weft_clock_ns() < deadline_ns) {
        drive_briefly(scene.engine);
        opened = 0;
        for (int i = 0; i < CROWD; i++) {
            opened += ranks[i].opened;
            assert_int_equal(ranks[i].lost, 0);
        }
    }
    assert_int_equal(opened, CROWD);
    assert_int_equal(counted(&scene, WEFT_COUNTER_EVICTED), 0);
    for (int i = 0; i < CROWD; i++) {
        owner_close(&ranks[i]);
    }
    while (!weft_list_is_empty(&served)) {
        struct weft_net_conn *conn = WEFT_CONTAINER_OF(served.next, struct weft_net_conn, node);
        weft_list_remove(&conn->node);
        weft_net_conn_close(conn);
    }
    scene_close(&scene);
}

static void closing_the_listener_puts_everybody_out_who_is_on_trial(void **state)
{
    struct scene scene = {.engine = NULL};
    int crowd[10];
    (void)state;
    scene_listen(&scene);
    for (unsigned i = 0; i < WEFT_COUNT_OF(crowd); i++) {
        crowd[i] = stranger_at(&scene);
    }
    assert_true(drive_until_counted(&scene, WEFT_COUNTER_ACCEPTED, WEFT_COUNT_OF(crowd)));
    weft_net_acceptor_close(scene.acceptor);
    scene.acceptor = NULL; /* NULL is fine, too */
    for (unsigned i = 0; i < WEFT_COUNT_OF(crowd); i++) {
        assert_true(stranger_is_closed(crowd[i], DEADLINE_MS));
        close(crowd[i]);
    }
    assert_int_equal(stranger_connect("127.0.0.1", port_of(&scene), 100), -1);
    scene_close(&scene);
}

static void a_released_listener_listens_on(void **state)
{
    struct scene scene = {.engine = NULL};
    struct pollfd wait = {.events = POLLIN};
    int fd, stranger;
    (void)state;
    scene_listen(&scene);
    fd = weft_net_acceptor_release(scene.acceptor);
    scene.acceptor = NULL;
    stranger = stranger_at(&scene);
    wait.fd = fd;
    assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
    close(stranger);
    weft_fd_close(fd);
    scene_close(&scene);
}

/* ---- by which device ---- */

static void assert_keeps_to(const struct scene *scene, const char *device)
{
    char name[16] = "";
    socklen_t len = sizeof(name);
    assert_int_equal(
        getsockopt(scene->server.conn->source.fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len), 0);
    assert_string_equal(len > 0 ? name : "", device);
}

static void a_connection_leaves_by_the_device_that_it_came_by(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_listen(&scene);
    weft_net_acceptor_keep_to(scene.acceptor, "lo", 8);
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    assert_keeps_to(&scene, "lo");
    scene_close(&scene);
}

static void one_that_came_by_another_device_is_left_to_the_routes(void **state)
{
    struct scene scene = {.engine = NULL};
    (void)state;
    scene_listen(&scene);
    weft_net_acceptor_keep_to(scene.acceptor, "lo", 8);
    scene.acceptor->device += 12345; /* as if it were not lo's */
    scene_dial_at(&scene, &scene.addr);
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    assert_keeps_to(&scene, "");
    scene_close(&scene);
}

/* The device may have no route to it. */
static void one_from_another_network_is_left_to_the_routes(void **state)
{
    struct scene scene = {.engine = NULL};
    struct sockaddr_storage from;
    struct weft_net_dial dial;
    (void)state;
    scene_listen(&scene);
    weft_net_acceptor_keep_to(scene.acceptor, "lo", 24);
    loopback(&from, 0);
    ((struct sockaddr_in *)&from)->sin_addr.s_addr = htonl(0x7f000701);
    assert_int_equal(weft_net_connect_from(&from, "", &scene.addr, &dial), WEFT_OK);
    scene_dial_on(&scene, &dial);
    assert_true(drive_until(scene.engine, NULL, &scene.client.opened, 1));
    assert_keeps_to(&scene, "");
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stranger_gets_a_challenge_and_nothing_else),
        cmocka_unit_test(no_two_challenges_have_the_same_nonce),
        cmocka_unit_test(garbage_is_closed_at_once_counted_and_never_told_to_the_owner),
        cmocka_unit_test(a_silent_stranger_goes_when_the_handshake_takes_too_long),
        cmocka_unit_test(an_open_connection_outlives_the_handshake_s_time),
        cmocka_unit_test(a_crowd_of_silent_strangers_is_kept_to_the_limit_and_the_oldest_goes),
        cmocka_unit_test(a_rank_gets_in_soon_through_a_crowd_of_silent_strangers),
        cmocka_unit_test(a_crowd_of_ranks_gets_in_without_a_loss),
        cmocka_unit_test(closing_the_listener_puts_everybody_out_who_is_on_trial),
        cmocka_unit_test(a_released_listener_listens_on),
        cmocka_unit_test(a_connection_leaves_by_the_device_that_it_came_by),
        cmocka_unit_test(one_that_came_by_another_device_is_left_to_the_routes),
        cmocka_unit_test(one_from_another_network_is_left_to_the_routes),
    };
    weft_log_configure("off");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
