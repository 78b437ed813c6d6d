/* SPDX-License-Identifier: Apache-2.0 */
/* Listening and connecting: port ranges, ports that are taken, local sockets. */
#include "net_support.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/un.h>

static uint16_t port_of(const struct sockaddr_storage *addr)
{
    return ntohs(((const struct sockaddr_in *)addr)->sin_port);
}

static void a_name(char *name, size_t room, const char *what)
{
    snprintf(name, room, "weft-test-%s-%d", what, (int)getpid());
}

static void port_ranges_are_read_and_nonsense_is_refused(void **state)
{
    static const char *const bad[] = {"0-5",   "5-4", "1-65536", "x", "5-",    "-5", "5-x",
                                      "5-6-7", "5 6", "0",       "-", "70000", "5,6"};
    uint16_t first = 1, last = 1;
    (void)state;
    assert_int_equal(weft_net_port_range("", &first, &last), WEFT_OK);
    assert_int_equal(first, 0);
    assert_int_equal(last, 0);
    assert_int_equal(weft_net_port_range("5000-5010", &first, &last), WEFT_OK);
    assert_int_equal(first, 5000);
    assert_int_equal(last, 5010);
    assert_int_equal(weft_net_port_range("1-65535", &first, &last), WEFT_OK);
    assert_int_equal(last, 65535);
    assert_int_equal(weft_net_port_range("4411", &first, &last), WEFT_OK);
    assert_int_equal(first, 4411);
    assert_int_equal(last, 4411);
    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        first = last = 7;
        if (weft_net_port_range(bad[i], &first, &last) != WEFT_ERR_INVALID) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        assert_int_equal(first, 7);
        assert_int_equal(last, 7);
    }
}

/* Finds a range of free ports by asking the kernel; others may take one in between, so the test
 * looks for another range then. */
static bool bind_two_neighbours(int fd[2], struct sockaddr_storage bound[2], uint16_t *first_p)
{
    struct sockaddr_storage addr;
    for (int tries = 0; tries < 50; tries++) {
        uint16_t first = harness_free_port();
        if (first == 0 || first == 65535) {
            continue;
        }
        loopback(&addr, 0);
        if (weft_net_listen(&addr, first, (uint16_t)(first + 1), &fd[0], &bound[0]) != WEFT_OK) {
            continue;
        }
        if (port_of(&bound[0]) == first &&
            weft_net_listen(&addr, first, (uint16_t)(first + 1), &fd[1], &bound[1]) == WEFT_OK) {
            *first_p = first;
            return true;
        }
        weft_fd_close(fd[0]);
    }
    return false;
}

static void a_range_is_used_port_by_port_and_is_busy_when_it_is_full(void **state)
{
    struct sockaddr_storage addr, bound[2], third;
    uint16_t first = 0;
    int fd[2], full = -1;
    char want[64];
    (void)state;
    assert_true(bind_two_neighbours(fd, bound, &first));
    assert_int_equal(port_of(&bound[0]), first);
    assert_int_equal(port_of(&bound[1]), first + 1);
    loopback(&addr, 0);
    assert_int_equal(weft_net_listen(&addr, first, (uint16_t)(first + 1), &full, &third),
                     WEFT_ERR_BUSY);
    snprintf(want, sizeof(want), "%u-%u", first, first + 1u);
    assert_non_null(strstr(weft_error_text(), want));
    assert_int_equal(full, -1);
    weft_fd_close(fd[0]);
    weft_fd_close(fd[1]);
    assert_int_equal(weft_fd_count(), 0);
}

static void a_fixed_port_that_is_taken_is_busy_and_named(void **state)
{
    struct sockaddr_storage any, bound, again;
    int fd = -1, second = -1;
    char text[WEFT_NET_ADDR_TEXT_LEN];
    (void)state;
    loopback(&any, 0);
    assert_int_equal(weft_net_listen(&any, 0, 0, &fd, &bound), WEFT_OK);
    assert_int_equal(weft_net_listen(&bound, 1, 65535, &second, &again), WEFT_ERR_BUSY);
    weft_net_addr_print(&bound, text);
    assert_non_null(strstr(weft_error_text(), text));
    weft_fd_close(fd);
    assert_int_equal(weft_net_listen(&bound, 0, 0, &second, &again), WEFT_OK); /* free again */
    assert_int_equal(port_of(&again), port_of(&bound));
    weft_fd_close(second);
}

static void listening_on_an_address_of_another_host_is_a_system_error(void **state)
{
    struct sockaddr_storage addr, bound;
    int fd = -1;
    (void)state;
    loopback(&addr, 0);
    ((struct sockaddr_in *)&addr)->sin_addr.s_addr =
        htonl(0xc0000201); /* 192.0.2.1: for documents */
    assert_int_equal(weft_net_listen(&addr, 0, 0, &fd, &bound), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "192.0.2.1"));
    assert_int_equal(weft_fd_count(), 0);
}

static void our_sockets_close_on_exec_do_not_block_and_do_not_delay(void **state)
{
    struct sockaddr_storage any, bound;
    int listener = -1, client, no_delay = 0;
    struct weft_net_dial dial;
    socklen_t len = sizeof(no_delay);
    (void)state;
    loopback(&any, 0);
    assert_int_equal(weft_net_listen(&any, 0, 0, &listener, &bound), WEFT_OK);
    assert_int_equal(weft_net_connect(&bound, &dial), WEFT_OK);
    client = dial.fd;
    assert_false(dial.is_local);
    assert_true((fcntl(listener, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(client, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(listener, F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(client, F_GETFL) & O_NONBLOCK) != 0);
    assert_int_equal(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &no_delay, &len), 0);
    assert_true(no_delay != 0);
    assert_int_equal(weft_fd_count(), 2);
    weft_fd_close(client);
    weft_fd_close(listener);
}

/* ---- local sockets ---- */

static void a_local_name_is_taken_once_and_free_after_close(void **state)
{
    char name[WEFT_WIRE_NAME_LEN];
    int first = -1, second = -1;
    (void)state;
    a_name(name, sizeof(name), "once");
    assert_int_equal(weft_net_listen_local(name, &first), WEFT_OK);
    assert_int_equal(weft_net_listen_local(name, &second), WEFT_ERR_BUSY);
    assert_int_equal(second, -1);
    weft_fd_close(first);
    assert_int_equal(weft_net_listen_local(name, &second), WEFT_OK);
    weft_fd_close(second);
    assert_int_equal(weft_fd_count(), 0);
}

static void a_local_name_nobody_listens_on_is_a_network_error(void **state)
{
    char name[WEFT_WIRE_NAME_LEN];
    struct weft_net_dial dial = {.fd = -1};
    (void)state;
    a_name(name, sizeof(name), "nobody");
    assert_int_equal(weft_net_connect_local(name, weft_clock_after_ms(DEADLINE_MS), &dial),
                     WEFT_ERR_NETWORK);
    assert_int_equal(dial.fd, -1);
    assert_int_equal(weft_fd_count(), 0);
}

static void a_local_connection_reaches_its_listener_and_does_not_block(void **state)
{
    char name[WEFT_WIRE_NAME_LEN];
    struct weft_net_dial dial;
    int listener = -1, served;
    (void)state;
    a_name(name, sizeof(name), "reach");
    assert_int_equal(weft_net_listen_local(name, &listener), WEFT_OK);
    assert_int_equal(weft_net_connect_local(name, weft_clock_after_ms(DEADLINE_MS), &dial),
                     WEFT_OK);
    assert_true((fcntl(dial.fd, F_GETFL) & O_NONBLOCK) != 0);
    assert_true(dial.is_local);
    assert_int_equal(dial.peer_pid, getpid());
    served = accept(listener, NULL, NULL);
    assert_true(served >= 0);
    close(served);
    weft_fd_close(dial.fd);
    weft_fd_close(listener);
}

/* The queue is full and nobody accepts: the connect ends by its deadline, and not before. */
static void connecting_to_a_full_local_queue_ends_at_the_deadline(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char name[WEFT_WIRE_NAME_LEN];
    socklen_t len;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct weft_net_dial dial, late;
    uint64_t begin_ns, deadline_ns;
    (void)state;
    a_name(name, sizeof(name), "full");
    memcpy(addr.sun_path + 1, name, strlen(name));
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(listener, 0), 0); /* room for one */
    assert_int_equal(weft_net_connect_local(name, weft_clock_after_ms(DEADLINE_MS), &dial),
                     WEFT_OK);
    begin_ns = weft_clock_ns();
    deadline_ns = weft_clock_after_ms(50);
    assert_int_equal(weft_net_connect_local(name, deadline_ns, &late), WEFT_ERR_BUSY);
    assert_true(weft_clock_ns() - begin_ns >= 45 * WEFT_NS_PER_MS);
    assert_true(weft_clock_ns() < deadline_ns + 2000 * WEFT_NS_PER_MS);
    weft_fd_close(dial.fd);
    close(listener);
    assert_int_equal(weft_fd_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(port_ranges_are_read_and_nonsense_is_refused),
        cmocka_unit_test(a_range_is_used_port_by_port_and_is_busy_when_it_is_full),
        cmocka_unit_test(a_fixed_port_that_is_taken_is_busy_and_named),
        cmocka_unit_test(listening_on_an_address_of_another_host_is_a_system_error),
        cmocka_unit_test(our_sockets_close_on_exec_do_not_block_and_do_not_delay),
        cmocka_unit_test(a_local_name_is_taken_once_and_free_after_close),
        cmocka_unit_test(a_local_name_nobody_listens_on_is_a_network_error),
        cmocka_unit_test(a_local_connection_reaches_its_listener_and_does_not_block),
        cmocka_unit_test(connecting_to_a_full_local_queue_ends_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
