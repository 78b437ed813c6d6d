/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/topo.h"

#include <setjmp.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_storage addr_of(const char *text, uint16_t port)
{
    struct sockaddr_storage addr;
    struct sockaddr_in *in4 = (struct sockaddr_in *)&addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&addr;

    memset(&addr, 0, sizeof(addr));
    if (inet_pton(AF_INET, text, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
        in4->sin_port = htons(port);
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
    }
    return addr;
}

static bool is_local(const char *text)
{
    struct sockaddr_storage addr = addr_of(text, 4411);
    bool answer;

    assert_int_equal(weft_topo_is_local(&addr, &answer), WEFT_OK);
    return answer;
}

static bool has_ipv6(void)
{
    struct sockaddr_storage addr = addr_of("::1", 0);
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool answer = fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(struct sockaddr_in6)) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return answer;
}

static void the_way_to_loopback_is_loopback_with_port_zero(void **state)
{
    struct sockaddr_storage to = addr_of("127.0.0.1", 4411);
    struct sockaddr_storage from;

    (void)state;
    assert_int_equal(weft_topo_route(&to, &from), WEFT_OK);
    assert_int_equal(from.ss_family, AF_INET);
    assert_int_equal(((struct sockaddr_in *)&from)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(((struct sockaddr_in *)&from)->sin_port, 0);

    to = addr_of("127.0.0.1", 0); /* a route needs no port */
    assert_int_equal(weft_topo_route(&to, &from), WEFT_OK);
}

static void the_way_to_ipv6_loopback_is_itself(void **state)
{
    struct sockaddr_storage to = addr_of("::1", 4411);
    struct sockaddr_storage from;

    (void)state;
    if (!has_ipv6()) {
        skip();
    }
    assert_int_equal(weft_topo_route(&to, &from), WEFT_OK);
    assert_int_equal(from.ss_family, AF_INET6);
    assert_true(IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&from)->sin6_addr));
    assert_int_equal(((struct sockaddr_in6 *)&from)->sin6_port, 0);
}

static void an_address_nobody_routes_to_is_named(void **state)
{
    struct sockaddr_storage to = addr_of("255.255.255.255", 1); /* connect() refuses broadcast */
    struct sockaddr_storage from;

    (void)state;
    memset(&from, 0x5a, sizeof(from));
    assert_int_equal(weft_topo_route(&to, &from), WEFT_ERR_NETWORK);
    assert_non_null(strstr(weft_error_text(), "no route to 255.255.255.255: "));
    assert_int_equal(((unsigned char *)&from)[0], 0x5a);
    assert_int_equal(weft_fd_count(), 0);
}

static void another_family_is_refused(void **state)
{
    struct sockaddr_storage to, from;
    bool answer = true;

    (void)state;
    memset(&to, 0, sizeof(to));
    to.ss_family = AF_UNIX;
    assert_int_equal(weft_topo_route(&to, &from), WEFT_ERR_INVALID);
    assert_int_equal(weft_topo_is_local(&to, &answer), WEFT_OK);
    assert_false(answer);
}

static void all_of_loopback_is_local(void **state)
{
    (void)state;
    assert_true(is_local("127.0.0.1"));
    assert_true(is_local("127.3.2.1"));
    assert_true(is_local("::1"));
    assert_true(is_local("::ffff:127.0.0.1"));
    assert_true(is_local("0.0.0.0"));
    assert_true(is_local("::"));
}

static void every_address_of_every_interface_is_local(void **state)
{
    struct weft_topo_nic *nics;
    unsigned count;

    (void)state;
    assert_int_equal(weft_topo_nics(&nics, &count), WEFT_OK);
    assert_true(count > 0);
    for (unsigned i = 0; i < count; i++) {
        bool answer = false;

        assert_int_equal(weft_topo_is_local(&nics[i].addr, &answer), WEFT_OK);
        assert_true(answer);
    }
    free(nics);
    assert_int_equal(weft_fd_count(), 0);
}

static void an_ipv4_address_in_ipv6_clothes_is_the_same(void **state)
{
    struct weft_topo_nic *nics;
    unsigned count;

    (void)state;
    assert_int_equal(weft_topo_nics(&nics, &count), WEFT_OK);
    for (unsigned i = 0; i < count; i++) {
        struct sockaddr_storage dressed = addr_of("::ffff:0.0.0.0", 1);
        bool answer = false;

        if (nics[i].addr.ss_family == AF_INET) {
            memcpy(((struct sockaddr_in6 *)&dressed)->sin6_addr.s6_addr + 12,
                   &((struct sockaddr_in *)&nics[i].addr)->sin_addr, 4);
            assert_int_equal(weft_topo_is_local(&dressed, &answer), WEFT_OK);
            assert_true(answer);
        }
    }
    free(nics);
}

/* Addresses that no host has: documentation and benchmarking ranges. */
static void addresses_of_others_are_not_local(void **state)
{
    (void)state;
    assert_false(is_local("203.0.113.77"));
    assert_false(is_local("198.18.99.99"));
    assert_false(is_local("255.255.255.255"));
    assert_false(is_local("2001:db8:dead:beef::77"));
    assert_false(is_local("::ffff:203.0.113.77"));
}

/* F23 */
static void no_descriptor_left_is_a_system_error(void **state)
{
    struct sockaddr_storage to = addr_of("127.0.0.1", 1);
    struct sockaddr_storage other = addr_of("203.0.113.77", 1);
    struct sockaddr_storage from;
    struct rlimit before, none;
    weft_status_t route, local;
    bool answer;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    route = weft_topo_route(&to, &from);
    local = weft_topo_is_local(&other, &answer);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(route, WEFT_ERR_SYSTEM);
    assert_int_equal(local, WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "(limit 0, "));
    assert_int_equal(weft_topo_route(&to, &from), WEFT_OK);
}

static void the_hostname_is_the_kernels_cut_to_fit(void **state)
{
    char name[64], expected[256];

    (void)state;
    memset(name, 'x', sizeof(name));
    weft_topo_hostname(name);
    assert_non_null(memchr(name, '\0', sizeof(name)));
    assert_true(strlen(name) > 0);
    assert_int_equal(gethostname(expected, sizeof(expected)), 0);
    expected[63] = '\0';
    if (expected[0] != '\0') {
        assert_string_equal(name, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_to_loopback_is_loopback_with_port_zero),
        cmocka_unit_test(the_way_to_ipv6_loopback_is_itself),
        cmocka_unit_test(an_address_nobody_routes_to_is_named),
        cmocka_unit_test(another_family_is_refused),
        cmocka_unit_test(all_of_loopback_is_local),
        cmocka_unit_test(every_address_of_every_interface_is_local),
        cmocka_unit_test(an_ipv4_address_in_ipv6_clothes_is_the_same),
        cmocka_unit_test(addresses_of_others_are_not_local),
        cmocka_unit_test(no_descriptor_left_is_a_system_error),
        cmocka_unit_test(the_hostname_is_the_kernels_cut_to_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
