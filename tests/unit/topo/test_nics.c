/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/topo.h"

#include <setjmp.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Interfaces come from here instead of the kernel while a test says so. */
static struct ifaddrs *planted;
static bool is_planted, is_refused;

static struct fake {
    struct ifaddrs entry;
    struct sockaddr_storage addr;
    char name[IF_NAMESIZE];
} fakes[2 * WEFT_TOPO_NICS_MAX];
static unsigned fake_count;

/* Take the place of libc's, whose list lives only as long as the host stays as it is. */
int getifaddrs(struct ifaddrs **list) /* NOLINT(readability-inconsistent-*) */
{
    if (is_refused) {
        errno = EMFILE;
        return -1;
    }
    *list = is_planted ? planted : NULL;
    return 0;
}

void freeifaddrs(struct ifaddrs *list) /* NOLINT(readability-inconsistent-*) */
{
    (void)list;
}

static int begin(void **state)
{
    (void)state;
    memset(fakes, 0, sizeof(fakes));
    fake_count = 0;
    planted = NULL;
    is_planted = true;
    is_refused = false;
    return 0;
}

#define UP (IFF_UP | IFF_RUNNING)

/* text "" makes an entry without an address, as a tunnel may have */
static void plant(const char *name, unsigned flags, const char *text)
{
    struct fake *fake = &fakes[fake_count++];
    struct sockaddr_in *in4 = (struct sockaddr_in *)&fake->addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&fake->addr;

    snprintf(fake->name, sizeof(fake->name), "%s", name);
    fake->entry.ifa_name = fake->name;
    fake->entry.ifa_flags = flags;
    if (inet_pton(AF_INET, text, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
    } else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
    }
    if (fake->addr.ss_family != AF_UNSPEC) {
        fake->entry.ifa_addr = (struct sockaddr *)&fake->addr;
    }
    if (fake_count > 1) {
        fakes[fake_count - 2].entry.ifa_next = &fake->entry;
    }
    planted = &fakes[0].entry;
}

static void plant_usual_host(void)
{
    plant("lo", UP | IFF_LOOPBACK, "127.0.0.1");
    plant("lo", UP | IFF_LOOPBACK, "::1");
    plant("tun0", UP, "");
    plant("docker0", UP, "172.17.0.1");
    plant("eth0", UP, "fe80::1");
    plant("eth0", UP, "2001:db8::7");
    plant("eth0", UP, "10.0.0.7");
    plant("eth1", IFF_UP, "10.0.1.7"); /* no carrier */
    plant("ib0", UP, "10.0.2.7");
}

static void assert_picks(const char *filter, int family, const char *expected)
{
    struct sockaddr_storage addr;
    char text[INET6_ADDRSTRLEN];
    const void *bytes;

    assert_int_equal(weft_topo_pick(filter, family, &addr), WEFT_OK);
    bytes = addr.ss_family == AF_INET
                ? (const void *)&((const struct sockaddr_in *)&addr)->sin_addr
                : (const void *)&((const struct sockaddr_in6 *)&addr)->sin6_addr;
    assert_non_null(inet_ntop(addr.ss_family, bytes, text, sizeof(text)));
    assert_string_equal(text, expected);
}

static void filter_follows_nccls_syntax(void **state)
{
    static const struct {
        const char *filter, *name;
        bool passes;
    } cases[] = {
        {"", "eth0", true},          {"eth", "eth0", true},
        {"eth0", "eth0", true},      {"eth0", "eth01", true},
        {"eth,ib", "ib0", true},     {"eth,ib", "lo", false},
        {"eth0", "eth", false},      {"=eth0", "eth0", true},
        {"=eth0", "eth01", false},   {"=eth0,ib0", "ib0", true},
        {"=eth", "eth0", false},     {"^lo", "lo", false},
        {"^lo", "eth0", true},       {"^lo,docker", "docker0", false},
        {"^lo,docker", "ib0", true}, {"^=lo", "lo", false},
        {"^=lo", "lo1", true},       {"^=lo,eth0", "eth0", false},
        {",eth", "eth0", true},      {"eth,", "ib0", false},
        {"^", "eth0", true},         {"=", "eth0", true},
        {",", "eth0", true},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        if (weft_topo_filter(cases[i].filter, cases[i].name) != cases[i].passes) {
            fail_msg("filter \"%s\" on %s", cases[i].filter, cases[i].name);
        }
    }
}

static void every_address_is_one_entry(void **state)
{
    struct weft_topo_nic *nics;
    unsigned count;

    (void)state;
    plant_usual_host();
    assert_int_equal(weft_topo_nics(&nics, &count), WEFT_OK);
    assert_int_equal(count, 8); /* the tunnel has no address */
    assert_string_equal(nics[0].name, "lo");
    assert_true(nics[0].is_loopback && nics[0].is_up);
    assert_int_equal(nics[1].addr.ss_family, AF_INET6);
    assert_string_equal(nics[6].name, "eth1");
    assert_false(nics[6].is_up);
    assert_false(nics[6].is_loopback);
    free(nics);
}

static void a_host_of_very_many_addresses_is_cut(void **state)
{
    struct weft_topo_nic *nics;
    unsigned count;

    (void)state;
    for (unsigned i = 0; i < WEFT_COUNT_OF(fakes); i++) {
        plant("eth0", UP, "10.0.0.7");
    }
    assert_int_equal(weft_topo_nics(&nics, &count), WEFT_OK);
    assert_int_equal(count, WEFT_TOPO_NICS_MAX);
    free(nics);
}

static void a_refused_listing_is_a_system_error(void **state)
{
    struct weft_topo_nic *nics;
    struct sockaddr_storage addr;
    unsigned count;

    (void)state;
    is_refused = true;
    assert_int_equal(weft_topo_nics(&nics, &count), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "Too many open files (limit "));
    assert_int_equal(weft_topo_pick("", AF_UNSPEC, &addr), WEFT_ERR_SYSTEM);
}

static void pick_prefers_a_real_interface_and_ipv4(void **state)
{
    (void)state;
    plant_usual_host();
    assert_picks("", AF_UNSPEC, "10.0.0.7");
    assert_picks("", AF_INET, "10.0.0.7");
    assert_picks("", AF_INET6, "2001:db8::7");
}

static void pick_obeys_the_filter(void **state)
{
    (void)state;
    plant_usual_host();
    assert_picks("ib", AF_UNSPEC, "10.0.2.7");
    assert_picks("docker0,lo", AF_UNSPEC, "172.17.0.1");
    assert_picks("=lo", AF_UNSPEC, "127.0.0.1");
    assert_picks("^eth0", AF_UNSPEC, "10.0.2.7");
}

static void pick_takes_bridges_before_loopback_and_link_local_last(void **state)
{
    (void)state;
    plant("lo", UP | IFF_LOOPBACK, "127.0.0.1");
    plant("docker0", UP, "172.17.0.1");
    plant("eth0", UP, "fe80::1");
    assert_picks("", AF_UNSPEC, "172.17.0.1");
    assert_picks("", AF_INET6, "fe80::1");
    assert_picks("^docker", AF_UNSPEC, "127.0.0.1");
}

static void pick_prefers_a_real_ipv6_to_a_bridges_ipv4(void **state)
{
    (void)state;
    plant("docker0", UP, "172.17.0.1");
    plant("eth0", UP, "2001:db8::7");
    assert_picks("", AF_UNSPEC, "2001:db8::7");
}

static void pick_falls_back_to_loopback(void **state)
{
    (void)state;
    plant("lo", UP | IFF_LOOPBACK, "127.0.0.1");
    plant("eth0", 0, "10.0.0.7");
    assert_picks("", AF_UNSPEC, "127.0.0.1");
}

static void a_filter_that_matches_nothing_lists_what_there_is(void **state)
{
    struct sockaddr_storage addr;

    (void)state;
    plant("lo", UP | IFF_LOOPBACK, "127.0.0.1");
    plant("eth1", IFF_UP, "10.0.1.7");
    assert_int_equal(weft_topo_pick("wlan", AF_UNSPEC, &addr), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(),
                        "no interface that is up with an address matches \"wlan\"; there are: "
                        "lo 127.0.0.1, eth1 10.0.1.7 (down)");
    assert_int_equal(weft_topo_pick("eth1", AF_UNSPEC, &addr), WEFT_ERR_INVALID);
    assert_int_equal(weft_topo_pick("", AF_INET6, &addr), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "no interface is up with an IPv6 address"));
}

static void the_list_in_the_error_is_cut_not_overrun(void **state)
{
    struct sockaddr_storage addr;

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        plant("a-long-name-015", UP, "2001:db8:1111:2222:3333:4444:5555:6666");
    }
    assert_int_equal(weft_topo_pick("wlan", AF_UNSPEC, &addr), WEFT_ERR_INVALID);
    assert_true(strlen(weft_error_text()) < WEFT_ERROR_TEXT_LEN);
}

static void a_host_without_interfaces_is_an_error(void **state)
{
    struct sockaddr_storage addr;

    (void)state;
    assert_int_equal(weft_topo_pick("", AF_UNSPEC, &addr), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "there are: none"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(filter_follows_nccls_syntax),
        TEST(every_address_is_one_entry),
        TEST(a_host_of_very_many_addresses_is_cut),
        TEST(a_refused_listing_is_a_system_error),
        TEST(pick_prefers_a_real_interface_and_ipv4),
        TEST(pick_obeys_the_filter),
        TEST(pick_takes_bridges_before_loopback_and_link_local_last),
        TEST(pick_prefers_a_real_ipv6_to_a_bridges_ipv4),
        TEST(pick_falls_back_to_loopback),
        TEST(a_filter_that_matches_nothing_lists_what_there_is),
        TEST(the_list_in_the_error_is_cut_not_overrun),
        TEST(a_host_without_interfaces_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
