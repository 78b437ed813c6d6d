/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_ifaddrs.h"

/* A made-up list; no kernel, no sysfs. */
static struct weft_topo_iface list[16];
static unsigned list_count;

static int begin_list(void **state)
{
    memset(list, 0, sizeof(list));
    list_count = 0;
    return begin_host(state);
}

static struct weft_topo_iface *add(const char *name, enum weft_topo_kind kind, const char *addr)
{
    struct weft_topo_iface *iface = &list[list_count++];

    snprintf(iface->name, sizeof(iface->name), "%s", name);
    iface->index = list_count;
    iface->kind = kind;
    iface->is_up = iface->has_carrier = true;
    iface->node = -1;
    if (*addr != '\0') {
        set_addr(&iface->addrs[iface->addr_count++], addr);
    }
    return iface;
}

/* Names of those that carry data, "eth0 eth1" */
static const char *choose(const char *filter, int family)
{
    static char names[256];
    unsigned count = weft_topo_choose(list, list_count, filter, family), seen = 0;

    size_t used = 0;

    names[0] = '\0';
    for (unsigned i = 0; i < list_count; i++) {
        if (list[i].use == WEFT_TOPO_USE_DATA) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     seen > 0 ? " " : "", list[i].name);
            seen++;
        }
    }
    assert_int_equal(seen, count);
    return names;
}

static void usual_host(void)
{
    add("lo", WEFT_TOPO_LOOPBACK, "127.0.0.1/8");
    add("eth0", WEFT_TOPO_PHYSICAL, "10.0.0.7/24");
    add("eth1", WEFT_TOPO_PHYSICAL, "10.0.1.7/24");
    add("docker0", WEFT_TOPO_BRIDGE, "172.17.0.1/16")->is_inner = true;
    add("down0", WEFT_TOPO_PHYSICAL, "10.0.2.7/24")->is_up = false;
    add("pulled0", WEFT_TOPO_PHYSICAL, "10.0.3.7/24")->has_carrier = false;
    add("bare0", WEFT_TOPO_PHYSICAL, "");
    strcpy(add("port0", WEFT_TOPO_PHYSICAL, "")->master, "bond0");
}

static void all_real_interfaces_carry_data_and_each_other_has_its_reason(void **state)
{
    (void)state;
    usual_host();
    assert_string_equal(choose("", AF_UNSPEC), "eth0 eth1");
    assert_int_equal(list[0].use, WEFT_TOPO_USE_LOCAL);
    assert_int_equal(list[3].use, WEFT_TOPO_USE_INNER);
    assert_int_equal(list[4].use, WEFT_TOPO_USE_DOWN);
    assert_int_equal(list[5].use, WEFT_TOPO_USE_NO_CARRIER);
    assert_int_equal(list[6].use, WEFT_TOPO_USE_NO_ADDR);
    assert_int_equal(list[7].use, WEFT_TOPO_USE_MEMBER);
    assert_addr(&list[1].addr, "10.0.0.7");
    assert_int_equal(list[1].addr.prefix_len, 24);
}

static void the_filter_leaves_out(void **state)
{
    (void)state;
    usual_host();
    assert_string_equal(choose("eth1", AF_UNSPEC), "eth1");
    assert_int_equal(list[1].use, WEFT_TOPO_USE_FILTERED);
    assert_int_equal(list[0].use, WEFT_TOPO_USE_FILTERED);
    assert_string_equal(choose("^eth1", AF_UNSPEC), "eth0");
    assert_string_equal(choose("=eth", AF_UNSPEC), "");
}

static void containers_are_used_when_named_or_when_there_is_nothing_else(void **state)
{
    (void)state;
    usual_host();
    assert_string_equal(choose("docker0", AF_UNSPEC), "docker0");
    assert_string_equal(choose("eth0,docker", AF_UNSPEC), "eth0 docker0");
    assert_string_equal(choose("^eth", AF_UNSPEC), "docker0");
    assert_string_equal(choose("^lo", AF_UNSPEC), "eth0 eth1"); /* names what it does not mean */
    assert_string_equal(choose(",", AF_UNSPEC), "eth0 eth1");
}

static void loopback_is_used_alone_when_there_is_nothing(void **state)
{
    (void)state;
    usual_host();
    assert_string_equal(choose("^eth,docker", AF_UNSPEC), "lo");
    assert_string_equal(choose("=lo", AF_UNSPEC), "lo");
    assert_string_equal(choose("lo,eth0", AF_UNSPEC), "eth0");
}

static void ipv4_comes_first_then_global_ipv6_never_link_local(void **state)
{
    struct weft_topo_iface *iface = add("eth0", WEFT_TOPO_PHYSICAL, "fe80::1/64");

    (void)state;
    assert_string_equal(choose("", AF_UNSPEC), "");
    assert_int_equal(iface->use, WEFT_TOPO_USE_NO_ADDR);
    set_addr(&iface->addrs[iface->addr_count++], "2001:db8::7/64");
    assert_string_equal(choose("", AF_UNSPEC), "eth0");
    assert_addr(&iface->addr, "2001:db8::7");
    assert_string_equal(choose("", AF_INET), "");
    set_addr(&iface->addrs[iface->addr_count++], "10.0.0.7/24");
    assert_string_equal(choose("", AF_UNSPEC), "eth0");
    assert_addr(&iface->addr, "10.0.0.7");
    assert_string_equal(choose("", AF_INET6), "eth0");
    assert_addr(&iface->addr, "2001:db8::7");
}

/* A server's board controller is reached over such a link, and nothing else is. */
static void an_ipv4_from_nowhere_is_for_want_of_others(void **state)
{
    (void)state;
    add("usb0", WEFT_TOPO_PHYSICAL, "169.254.3.1/24");
    assert_string_equal(choose("", AF_UNSPEC), "usb0");
    add("eth0", WEFT_TOPO_PHYSICAL, "10.0.0.7/24");
    assert_string_equal(choose("", AF_UNSPEC), "eth0");
    assert_string_equal(choose("usb", AF_UNSPEC), "usb0");
}

static void nearest_come_first_and_unknown_ones_between(void **state)
{
    static const char *const order[] = {"near", "near2", "unknown", "far", "farther"};

    (void)state;
    add("farther", WEFT_TOPO_PHYSICAL, "10.0.0.1/24")->distance = 32;
    add("unknown", WEFT_TOPO_PHYSICAL, "10.0.1.1/24");
    add("near", WEFT_TOPO_PHYSICAL, "10.0.2.1/24")->distance = 10;
    add("far", WEFT_TOPO_PHYSICAL, "10.0.3.1/24")->distance = 11;
    add("near2", WEFT_TOPO_PHYSICAL, "10.0.4.1/24")->distance = 10;
    weft_topo_sort_near(list, list_count);
    for (unsigned i = 0; i < list_count; i++) {
        assert_string_equal(list[i].name, order[i]);
    }
}

/* ---- and on a made-up host ---- */

static void data_nics_are_ordered_by_distance_from_this_thread(void **state)
{
    struct weft_topo_iface *nics;
    unsigned count;
    cpu_set_t affinity;
    char text[512];

    (void)state;
    assert_int_equal(weft_topo_affinity(&affinity), WEFT_OK);
    plant_two_nodes();
    plant_file("/sys/devices/system/node/node0/cpulist", "\n");
    plant_file("/sys/devices/system/node/node1/cpulist",
               weft_topo_cpulist_print(&affinity, text, sizeof(text)));
    plant_iface("lo", UP | IFF_LOOPBACK, 1);
    plant_addr("lo", UP | IFF_LOOPBACK, "127.0.0.1/8");
    plant_both("eth0", 2, "10.0.0.7/24");
    plant_device("eth0", "pci0000:00/0000:01:00.0", "0\n");
    plant_both("eth1", 3, "10.0.1.7/24");
    plant_device("eth1", "pci0000:80/0000:81:00.0", "1\n");
    plant_both("eth2", 4, "10.0.2.7/24");
    plant_device("eth2", "pci0000:80/0000:82:00.0", "1\n");
    plant_both("docker0", 5, "172.17.0.1/16");
    assert_int_equal(weft_topo_data_nics(root, "", AF_UNSPEC, &nics, &count), WEFT_OK);
    assert_int_equal(count, 3);
    assert_string_equal(nics[0].name, "eth1");
    assert_string_equal(nics[1].name, "eth2");
    assert_string_equal(nics[2].name, "eth0");
    assert_addr(&nics[2].addr, "10.0.0.7");
    free(nics);
}

static void a_host_with_loopback_alone_uses_it(void **state)
{
    struct weft_topo_iface *nics;
    unsigned count;

    (void)state;
    plant_iface("lo", UP | IFF_LOOPBACK, 1);
    plant_addr("lo", UP | IFF_LOOPBACK, "127.0.0.1/8");
    plant_iface("eth0", IFF_UP, 2);
    plant_addr("eth0", IFF_UP, "10.0.0.7/24");
    assert_int_equal(weft_topo_data_nics(root, "", AF_UNSPEC, &nics, &count), WEFT_OK);
    assert_int_equal(count, 1);
    assert_string_equal(nics[0].name, "lo");
    free(nics);
}

static void when_nothing_is_left_the_error_says_why_of_each(void **state)
{
    struct weft_topo_iface *nics = NULL;
    unsigned count = 0;

    (void)state;
    plant_iface("lo", UP | IFF_LOOPBACK, 1);
    plant_addr("lo", UP | IFF_LOOPBACK, "127.0.0.1/8");
    plant_iface("eth1", IFF_UP, 2);
    plant_addr("eth1", IFF_UP, "10.0.1.7/24");
    assert_int_equal(weft_topo_data_nics(root, "eth", AF_INET, &nics, &count), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(),
                        "no interface with an IPv4 address can carry data under "
                        "WEFT_SOCKET_IFNAME=eth; there are: lo is left out by WEFT_SOCKET_IFNAME; "
                        "eth1 has no carrier");
    assert_null(nics);
}

static void a_refused_listing_is_a_system_error(void **state)
{
    struct weft_topo_iface *nics;
    unsigned count;

    (void)state;
    is_refused = true;
    assert_int_equal(weft_topo_data_nics(root, "", AF_UNSPEC, &nics, &count), WEFT_ERR_SYSTEM);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_list, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(all_real_interfaces_carry_data_and_each_other_has_its_reason),
        TEST(the_filter_leaves_out),
        TEST(containers_are_used_when_named_or_when_there_is_nothing_else),
        TEST(loopback_is_used_alone_when_there_is_nothing),
        TEST(ipv4_comes_first_then_global_ipv6_never_link_local),
        TEST(an_ipv4_from_nowhere_is_for_want_of_others),
        TEST(nearest_come_first_and_unknown_ones_between),
        TEST(data_nics_are_ordered_by_distance_from_this_thread),
        TEST(a_host_with_loopback_alone_uses_it),
        TEST(when_nothing_is_left_the_error_says_why_of_each),
        TEST(a_refused_listing_is_a_system_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
