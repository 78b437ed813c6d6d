/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_ifaddrs.h"

static struct weft_topo_iface *ifaces;
static unsigned count;

/* The interface of that name, of a fresh list. */
static const struct weft_topo_iface *facts_of(const char *name)
{
    free(ifaces);
    ifaces = NULL;
    assert_int_equal(weft_topo_ifaces(root, &ifaces, &count), WEFT_OK);
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(ifaces[i].name, name) == 0) {
            return &ifaces[i];
        }
    }
    fail_msg("no %s", name);
    return NULL;
}

static int end_host(void **state)
{
    free(ifaces);
    ifaces = NULL;
    return remove_root(state);
}

static void a_pci_nic_has_speed_place_and_driver(void **state)
{
    const struct weft_topo_iface *nic;

    (void)state;
    plant_both("eth0", 2, "10.0.0.7/24");
    plant_fact("eth0", "speed", "100000\n");
    plant_fact("eth0", "mtu", "9000\n");
    plant_fact("eth0", "operstate", "up\n");
    plant_device("eth0", "pci0000:16/0000:16:01.0/0000:17:00.0", "1\n");
    plant_file("/sys/bus/pci/drivers/mlx5_core/uevent", "");
    plant_link("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/driver",
               "/sys/bus/pci/drivers/mlx5_core");
    nic = facts_of("eth0");
    assert_int_equal(nic->kind, WEFT_TOPO_PHYSICAL);
    assert_int_equal(nic->speed_mbps, 100000);
    assert_int_equal(nic->mtu, 9000);
    assert_string_equal(nic->state, "up");
    assert_string_equal(nic->pci, "0000:17:00.0");
    assert_string_equal(nic->pci_path, "pci0000:16/0000:16:01.0/0000:17:00.0");
    assert_int_equal(nic->node, 1);
    assert_string_equal(nic->driver, "mlx5_core");
    assert_false(nic->is_inner);
}

static void a_virtio_nic_counts_as_the_pci_device_it_stands_on(void **state)
{
    const struct weft_topo_iface *nic;

    (void)state;
    plant_both("eth0", 2, "10.0.0.7/24");
    plant_file("/sys/devices/pci0000:00/0000:00:03.0/numa_node", "0\n");
    plant_device("eth0", "pci0000:00/0000:00:03.0/virtio2", "-1\n");
    nic = facts_of("eth0");
    assert_string_equal(nic->pci, "0000:00:03.0");
    assert_int_equal(nic->node, 0);
}

static void a_device_on_another_bus_has_a_node_but_no_pci(void **state)
{
    const struct weft_topo_iface *nic;

    (void)state;
    plant_both("eth0", 2, "10.0.0.7/24");
    plant_device("eth0", "LNXSYSTM:00/VMBUS:00/f8615163", "1\n");
    nic = facts_of("eth0");
    assert_int_equal(nic->kind, WEFT_TOPO_PHYSICAL);
    assert_string_equal(nic->pci, "");
    assert_int_equal(nic->node, 1);
}

static void speeds_that_mean_unknown_are_unknown(void **state)
{
    static const char *const texts[] = {"-1\n", "0\n", "4294967295\n", "", "fast\n"};

    (void)state;
    plant_both("eth0", 2, "10.0.0.7/24");
    assert_int_equal(facts_of("eth0")->speed_mbps, -1); /* no such file */
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        plant_fact("eth0", "speed", texts[i]);
        assert_int_equal(facts_of("eth0")->speed_mbps, -1);
    }
    plant_fact("eth0", "speed", "10000\n");
    assert_int_equal(facts_of("eth0")->speed_mbps, 10000);
}

static void kinds_are_told_apart(void **state)
{
    static const struct {
        const char *file, *text;
        enum weft_topo_kind kind;
        bool is_inner;
    } cases[] = {
        {"bridge/bridge_id", "8000\n", WEFT_TOPO_BRIDGE, true},
        {"bonding/mode", "802.3ad 4\n", WEFT_TOPO_BOND, false},
        {"tun_flags", "0x1002\n", WEFT_TOPO_TUNNEL, true},
        {"type", "778\n", WEFT_TOPO_TUNNEL, true},
        {"uevent", "DEVTYPE=vlan\nINTERFACE=x\n", WEFT_TOPO_VLAN, false},
        {"uevent", "INTERFACE=x\nDEVTYPE=vxlan\n", WEFT_TOPO_TUNNEL, true},
        {"uevent", "DEVTYPE=macvlan\n", WEFT_TOPO_MACVLAN, false},
        {"uevent", "DEVTYPE=wireguard", WEFT_TOPO_TUNNEL, true},
        {"uevent", "DEVTYPE=something-new\n", WEFT_TOPO_VIRTUAL, false},
        {"iflink", "7\n", WEFT_TOPO_VETH, false},
        {"type", "1\n", WEFT_TOPO_VIRTUAL, false},
    };
    char name[IF_NAMESIZE];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        const struct weft_topo_iface *nic;

        snprintf(name, sizeof(name), "net%zu", i);
        plant_both(name, (int)i + 20, "10.0.0.7/24");
        plant_fact(name, cases[i].file, cases[i].text);
        nic = facts_of(name);
        if (nic->kind != cases[i].kind || nic->is_inner != cases[i].is_inner) {
            fail_msg("%s \"%s\" is %s, inner %d", cases[i].file, cases[i].text,
                     weft_topo_kind_name(nic->kind), nic->is_inner);
        }
    }
}

static void names_of_container_managers_are_inner_unless_a_device_is_there(void **state)
{
    (void)state;
    plant_both("docker0", 3, "172.17.0.1/16");
    plant_both("vethf00", 4, "10.0.0.1/24");
    plant_fact("vethf00", "iflink", "5\n");
    plant_both("vnet0", 5, "10.0.1.1/24");
    plant_device("vnet0", "pci0000:00/0000:00:04.0", "-1\n");
    assert_true(facts_of("docker0")->is_inner);
    assert_true(facts_of("vethf00")->is_inner);
    assert_false(facts_of("vnet0")->is_inner);
}

static void a_bridge_with_a_real_port_is_the_way_out(void **state)
{
    (void)state;
    plant_both("br-lan", 3, "10.0.0.7/24");
    plant_fact("br-lan", "bridge/bridge_id", "8000\n");
    plant_both("tap0", 4, "10.9.0.1/24");
    plant_fact("tap0", "tun_flags", "0x1002\n");
    plant_link("/sys/class/net/br-lan/lower_tap0", "/sys/class/net/tap0");
    assert_true(facts_of("br-lan")->is_inner);
    plant_both("eth0", 2, "10.0.3.7/24");
    plant_device("eth0", "pci0000:80/0000:81:00.0", "1\n");
    plant_link("/sys/class/net/br-lan/lower_eth0", "/sys/class/net/eth0");
    assert_false(facts_of("br-lan")->is_inner);
    assert_int_equal(facts_of("br-lan")->node, 1);
}

static void a_vlan_of_a_bond_has_the_ports_node(void **state)
{
    (void)state;
    plant_both("bond0", 5, "10.0.0.7/24");
    plant_fact("bond0", "bonding/mode", "802.3ad 4\n");
    plant_both("bond0.7", 6, "10.0.7.7/24");
    plant_fact("bond0.7", "uevent", "DEVTYPE=vlan\n");
    plant_both("eth0", 2, "10.0.1.7/24");
    plant_device("eth0", "pci0000:80/0000:81:00.0", "1\n");
    plant_link("/sys/class/net/eth0/master", "/sys/class/net/bond0");
    plant_link("/sys/class/net/bond0/lower_eth0", "/sys/class/net/eth0");
    plant_link("/sys/class/net/bond0.7/lower_bond0", "/sys/class/net/bond0");
    assert_int_equal(facts_of("bond0.7")->node, 1);
    assert_int_equal(facts_of("bond0")->node, 1);
    assert_string_equal(facts_of("eth0")->master, "bond0");
}

/* Nothing of the kernel's makes one, but a broken tree must not hang us. */
static void interfaces_stacked_in_a_circle_end(void **state)
{
    (void)state;
    plant_both("a", 5, "10.0.0.7/24");
    plant_both("b", 6, "10.0.1.7/24");
    plant_link("/sys/class/net/a/lower_b", "/sys/class/net/b");
    plant_link("/sys/class/net/b/lower_a", "/sys/class/net/a");
    assert_int_equal(facts_of("a")->node, -1);
}

static void another_namespaces_interface_of_that_name_is_not_believed(void **state)
{
    (void)state;
    plant_both("eth0", 2, "10.0.0.7/24");
    plant_fact("eth0", "speed", "100000\n");
    plant_device("eth0", "pci0000:80/0000:81:00.0", "1\n");
    assert_int_equal(facts_of("eth0")->speed_mbps, 100000);
    plant_fact("eth0", "ifindex", "3\n");
    assert_int_equal(facts_of("eth0")->speed_mbps, -1);
    assert_int_equal(facts_of("eth0")->kind, WEFT_TOPO_VIRTUAL);
    plant_fact("eth0", "ifindex", "2\n");
    plant_fact("eth0", "address", "02:fc:00:00:00:01\n");
    assert_int_equal(facts_of("eth0")->speed_mbps, -1);
    assert_string_equal(facts_of("eth0")->pci, "");
}

static void the_driver_is_asked_where_sysfs_is_silent(void **state)
{
    struct weft_topo_driver driver;

    (void)state;
    weft_topo_driver_ask("lo", &driver); /* every namespace has one */
    assert_true(driver.mtu > 0);
    weft_topo_driver_ask("weft-not-there", &driver);
    assert_int_equal(driver.mtu, 0);
    assert_int_equal(driver.speed_mbps, -1);
    assert_string_equal(driver.name, "");
    assert_int_equal(weft_fd_count(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_host, end_host)
    const struct CMUnitTest tests[] = {
        TEST(a_pci_nic_has_speed_place_and_driver),
        TEST(a_virtio_nic_counts_as_the_pci_device_it_stands_on),
        TEST(a_device_on_another_bus_has_a_node_but_no_pci),
        TEST(speeds_that_mean_unknown_are_unknown),
        TEST(kinds_are_told_apart),
        TEST(names_of_container_managers_are_inner_unless_a_device_is_there),
        TEST(a_bridge_with_a_real_port_is_the_way_out),
        TEST(a_vlan_of_a_bond_has_the_ports_node),
        TEST(interfaces_stacked_in_a_circle_end),
        TEST(another_namespaces_interface_of_that_name_is_not_believed),
        TEST(the_driver_is_asked_where_sysfs_is_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
