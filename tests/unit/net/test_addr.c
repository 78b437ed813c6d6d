/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses between the kernel's form, the wire's and a person's. */
#include "net_support.h"

#include <net/if.h>

static void loopback6(struct sockaddr_storage *addr, uint16_t port, uint32_t scope)
{
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
    memset(addr, 0, sizeof(*addr));
    in6->sin6_family = AF_INET6;
    in6->sin6_addr = in6addr_loopback;
    in6->sin6_port = htons(port);
    in6->sin6_scope_id = scope;
}

static void both_families_survive_the_way_over_the_wire(void **state)
{
    struct sockaddr_storage four, six, back;
    struct weft_wire_addr wire;
    (void)state;
    loopback(&four, 4411);
    weft_net_addr_to_wire(&four, &wire);
    assert_int_equal(wire.family, 4);
    assert_int_equal(wire.port, 4411);
    assert_int_equal(weft_net_addr_from_wire(&wire, &back), WEFT_OK);
    assert_memory_equal(&back, &four, sizeof(struct sockaddr_in));
    assert_int_equal(weft_net_addr_len(&back), sizeof(struct sockaddr_in));
    loopback6(&six, 65535, 9);
    weft_net_addr_to_wire(&six, &wire);
    assert_int_equal(wire.family, 6);
    assert_int_equal(wire.scope, 9);
    assert_int_equal(weft_net_addr_from_wire(&wire, &back), WEFT_OK);
    assert_memory_equal(&back, &six, sizeof(struct sockaddr_in6));
    assert_int_equal(weft_net_addr_len(&back), sizeof(struct sockaddr_in6));
}

static void no_address_is_invalid_and_leaves_the_output_alone(void **state)
{
    struct sockaddr_storage nothing = {.ss_family = AF_UNSPEC}, untouched;
    struct weft_wire_addr wire;
    (void)state;
    memset(&untouched, 0x5a, sizeof(untouched));
    weft_net_addr_to_wire(&nothing, &wire);
    assert_int_equal(wire.family, 0);
    assert_int_equal(weft_net_addr_from_wire(&wire, &untouched), WEFT_ERR_INVALID);
    wire.family = 5;
    assert_int_equal(weft_net_addr_from_wire(&wire, &untouched), WEFT_ERR_INVALID);
    for (size_t i = 0; i < sizeof(untouched); i++) {
        assert_int_equal(((uint8_t *)&untouched)[i], 0x5a);
    }
}

static void addresses_print_as_people_write_them(void **state)
{
    struct sockaddr_storage addr;
    char text[WEFT_NET_ADDR_TEXT_LEN], name[IF_NAMESIZE], want[WEFT_NET_ADDR_TEXT_LEN];
    (void)state;
    loopback(&addr, 4411);
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "127.0.0.1:4411");
    loopback6(&addr, 4411, 0);
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "[::1]:4411");
    loopback6(&addr, 4411, if_nametoindex("lo"));
    if (if_indextoname(((struct sockaddr_in6 *)&addr)->sin6_scope_id, name) != NULL) {
        snprintf(want, sizeof(want), "[::1%%%s]:4411", name);
        weft_net_addr_print(&addr, text);
        assert_string_equal(text, want);
    }
    memset(&addr, 0, sizeof(addr));
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "(no address)");
}

static void the_port_can_be_set_in_both_families(void **state)
{
    struct sockaddr_storage addr;
    char text[WEFT_NET_ADDR_TEXT_LEN];
    (void)state;
    loopback(&addr, 0);
    weft_net_addr_set_port(&addr, 1);
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "127.0.0.1:1");
    loopback6(&addr, 0, 0);
    weft_net_addr_set_port(&addr, 65535);
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "[::1]:65535");
}

static void host_and_port_are_split_where_they_belong(void **state)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } good[] = {
        {"node7:4411", "node7", 4411},
        {"10.0.0.7:1", "10.0.0.7", 1},
        {"[fe80::1%eth0]:65535", "fe80::1%eth0", 65535},
        {"[::1]:80", "::1", 80},
    };
    static const char *const bad[] = {
        "",        "node7",       "node7:",       ":4411",
        "node7:0", "node7:65536", "node7:44x",    "node7:-1",
        "::1:80",  "[::1]",       "[::1]80",      "[]:80",
        "[::1:80", "node7:4 411", "node7:999999", "a_name_too_long_for_its_room:1",
    };
    char host[24];
    uint16_t port;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(good); i++) {
        assert_int_equal(weft_net_addr_split(good[i].text, host, sizeof(host), &port), WEFT_OK);
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        snprintf(host, sizeof(host), "untouched");
        port = 7;
        if (weft_net_addr_split(bad[i], host, sizeof(host), &port) != WEFT_ERR_INVALID) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        assert_string_equal(host, "untouched");
        assert_int_equal(port, 7);
        assert_non_null(strstr(weft_error_text(), bad[i]));
    }
}

static void names_and_numbers_resolve_and_nonsense_is_a_network_error(void **state)
{
    struct sockaddr_storage addr;
    char text[WEFT_NET_ADDR_TEXT_LEN];
    (void)state;
    assert_int_equal(weft_net_addr_resolve("127.0.0.1", 5, AF_UNSPEC, &addr), WEFT_OK);
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "127.0.0.1:5");
    assert_int_equal(weft_net_addr_resolve("::1", 6, AF_INET6, &addr), WEFT_OK);
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "[::1]:6");
    assert_int_equal(weft_net_addr_resolve("localhost", 7, AF_INET, &addr), WEFT_OK);
    weft_net_addr_print(&addr, text);
    assert_string_equal(text, "127.0.0.1:7");
    assert_int_equal(weft_net_addr_resolve("not a host", 8, AF_UNSPEC, &addr), WEFT_ERR_NETWORK);
    assert_non_null(strstr(weft_error_text(), "not a host"));
}

static void a_connection_over_loopback_stays_on_one_host(void **state)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    assert_false(weft_net_is_one_host(client)); /* it has no other end yet */
    assert_int_equal(connect(client, (struct sockaddr *)&addr, len), 0);
    assert_true(weft_net_is_one_host(client));
    close(client);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_over_loopback_stays_on_one_host),
        cmocka_unit_test(both_families_survive_the_way_over_the_wire),
        cmocka_unit_test(no_address_is_invalid_and_leaves_the_output_alone),
        cmocka_unit_test(addresses_print_as_people_write_them),
        cmocka_unit_test(the_port_can_be_set_in_both_families),
        cmocka_unit_test(host_and_port_are_split_where_they_belong),
        cmocka_unit_test(names_and_numbers_resolve_and_nonsense_is_a_network_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
