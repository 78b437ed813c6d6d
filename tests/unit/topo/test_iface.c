/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_ifaddrs.h"

static struct weft_topo_iface *ifaces;
static unsigned count;

static void read_ifaces(void)
{
    assert_int_equal(weft_topo_ifaces(root, &ifaces, &count), WEFT_OK);
}

static void an_interface_is_one_entry_with_all_its_addresses(void **state)
{
    (void)state;
    plant_iface("lo", UP | IFF_LOOPBACK, 1);
    plant_iface("eth0", UP, 2);
    plant_addr("lo", UP | IFF_LOOPBACK, "127.0.0.1/8");
    plant_addr("eth0", UP, "10.0.0.7/24");
    plant_addr("eth0:1", UP, "10.0.0.8/22"); /* a label, not an interface */
    plant_addr("eth0", UP, "2001:db8::7/64");
    read_ifaces();
    assert_int_equal(count, 2);
    assert_int_equal(ifaces[0].kind, WEFT_TOPO_LOOPBACK);
    assert_string_equal(ifaces[1].name, "eth0");
    assert_int_equal(ifaces[1].index, 2);
    assert_string_equal(ifaces[1].mac, "00:00:00:00:00:02");
    assert_true(ifaces[1].is_up && ifaces[1].has_carrier);
    assert_int_equal(ifaces[1].addr_count, 3);
    assert_addr(&ifaces[1].addrs[1], "10.0.0.8");
    assert_int_equal(ifaces[1].addrs[0].prefix_len, 24);
    assert_int_equal(ifaces[1].addrs[1].prefix_len, 22);
    assert_int_equal(ifaces[1].addrs[2].prefix_len, 64);
    free(ifaces);
}

static void up_and_carrier_are_two_things(void **state)
{
    (void)state;
    plant_iface("eth0", IFF_UP, 1);
    plant_iface("eth1", 0, 2);
    read_ifaces();
    assert_true(ifaces[0].is_up);
    assert_false(ifaces[0].has_carrier);
    assert_false(ifaces[1].is_up);
    free(ifaces);
}

static void a_host_of_very_many_is_cut(void **state)
{
    char name[IF_NAMESIZE];

    (void)state;
    for (unsigned i = 0; i < WEFT_COUNT_OF(fakes); i++) {
        snprintf(name, sizeof(name), "eth%u", i);
        plant_iface(name, UP, (int)i + 1);
    }
    read_ifaces();
    assert_int_equal(count, WEFT_TOPO_NICS_MAX);
    free(ifaces);
}

static void an_interface_of_very_many_addresses_is_cut(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * WEFT_TOPO_ADDRS_MAX; i++) {
        plant_addr("eth0", UP, "10.0.0.7/24");
    }
    read_ifaces();
    assert_int_equal(count, 1);
    assert_int_equal(ifaces[0].addr_count, WEFT_TOPO_ADDRS_MAX);
    free(ifaces);
}

static void a_refused_listing_is_a_system_error(void **state)
{
    (void)state;
    is_refused = true;
    assert_int_equal(weft_topo_ifaces(root, &ifaces, &count), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "Too many open files (limit "));
}

static void distance_is_that_of_its_node(void **state)
{
    cpu_set_t affinity;
    char text[512];

    (void)state;
    /* whatever we may run on is node 1's */
    assert_int_equal(weft_topo_affinity(&affinity), WEFT_OK);
    plant_two_nodes();
    plant_file("/sys/devices/system/node/node0/cpulist", "\n");
    plant_file("/sys/devices/system/node/node1/cpulist",
               weft_topo_cpulist_print(&affinity, text, sizeof(text)));
    plant_both("eth0", 2, "10.0.0.7/24");
    plant_both("eth1", 3, "10.0.1.7/24");
    plant_both("eth2", 4, "10.0.2.7/24");
    plant_device("eth0", "pci0000:00/0000:01:00.0", "0\n");
    plant_device("eth1", "pci0000:80/0000:81:00.0", "1\n");
    plant_device("eth2", "pci0000:80/0000:82:00.0", "-1\n");
    read_ifaces();
    assert_int_equal(ifaces[0].distance, 21);
    assert_int_equal(ifaces[1].distance, 10);
    assert_int_equal(ifaces[2].distance, 0);
    free(ifaces);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_host, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(an_interface_is_one_entry_with_all_its_addresses),
        TEST(up_and_carrier_are_two_things),
        TEST(a_host_of_very_many_is_cut),
        TEST(an_interface_of_very_many_addresses_is_cut),
        TEST(a_refused_listing_is_a_system_error),
        TEST(distance_is_that_of_its_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
