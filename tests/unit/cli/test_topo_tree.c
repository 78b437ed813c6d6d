/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_hosts.h"

static void a_small_host_is_drawn_exactly(void **state)
{
    (void)state;
    make_machine(1, 2, 2);
    add_nic("eth0", 0, "10.0.0.7", WEFT_TOPO_USE_DATA)->distance = 10;
    add_nic("eth10", 1, "10.0.1.7", WEFT_TOPO_USE_NO_CARRIER)->has_carrier = false;
    near_sets[0] = nodes[0].cpus;
    add_gpu(1);
    add_nic("lo", -1, "127.0.0.1", WEFT_TOPO_USE_LOCAL)->pci[0] = '\0';
    ifaces[2].kind = WEFT_TOPO_LOOPBACK;
    ifaces[2].speed_mbps = -1;
    ifaces[2].driver[0] = '\0';

    char *text = printed(weft_cli_topo_tree);
    assert_string_equal(
        text, "node17: 1 package, 4 cores, 8 PUs, 128.0 GiB\n"
              "├─ package 0: Made-up CPU 9000\n"
              "│  ├─ NUMA node 0: 64.0 GiB, 2 cores x 2 threads, PUs 0-3\n"
              "│  │  └─ eth0   100 Gbit/s  up          data  10.0.0.7/24\n"
              "│  │        physical, driver mlx5_core, mtu 9000, PCI 0000:10:00.0\n"
              "│  └─ NUMA node 1: 64.0 GiB, 2 cores x 2 threads, PUs 4-7\n"
              "│     ├─ eth10  100 Gbit/s  no carrier  -     10.0.1.7/24\n"
              "│     │     physical, driver mlx5_core, mtu 9000, PCI 0000:11:00.0\n"
              "│     └─ GPU 0  NVIDIA H100 80GB HBM3, PCI 0000:81:00.0, driver nvidia\n"
              "└─ lo       ? Gbit/s  up          -     127.0.0.1/24\n"
              "      loopback, mtu 9000\n"
              "\n"
              "distances between NUMA nodes (10 is local)\n"
              "           0    1\n"
              "      0   10   12\n"
              "      1   12   10\n"
              "\n"
              "CPUs of this process\n"
              "  affinity  all 8 PUs: 0-7\n"
              "  quota     none from cgroups\n"
              "  counted   8 CPUs: more ranks than that share them\n"
              "\n"
              "data goes over, nearest first\n"
              "  nic   address           speed  distance  near CPUs  sent by  received by\n"
              "  eth0  10.0.0.7/24  100 Gbit/s        10  0-3        near     near\n"
              "\n"
              "and not over\n"
              "  eth10  has no carrier\n"
              "  lo     leads only to this host, and there are others\n");
    free(text);
}

static void a_large_host_fits_and_says_everything(void **state)
{
    static const char *const parts[] = {
        "NUMA node 3: 64.0 GiB, 24 cores x 2 threads, PUs 144-191, ours: none",
        "affinity  48 of 192 PUs: 0-47 (taskset, numactl or the launcher)",
        "quota     the cgroup's time is that of 12.5 CPUs",
        "counted   13 CPUs",
        "docker0          leads to containers or a tunnel, and there are real ones",
        "a-long-name-015  belongs to a-bridge, which has the address",
        "eth9             is left out by WEFT_SOCKET_IFNAME",
        "WEFT_SOCKET_IFNAME is ^eth9",
        "GPU 7  NVIDIA",
    };

    (void)state;
    make_large_host();
    view.filter = "^eth9";
    char *text = printed(weft_cli_topo_tree);
    for (size_t i = 0; i < WEFT_COUNT_OF(parts); i++) {
        assert_has(text, parts[i]);
    }
    assert_fits(text);
    free(text);
}

static void long_lists_and_strange_names_are_tamed(void **state)
{
    (void)state;
    make_machine(1, 1, 96);
    for (unsigned cpu = 0; cpu < 192; cpu += 2) {
        CPU_CLR(cpu, &view.affinity);
    }
    struct weft_topo_iface *iface = add_nic("\033[31mred", -1, "10.0.0.7", WEFT_TOPO_USE_DATA);
    for (unsigned i = 1; i < WEFT_TOPO_ADDRS_MAX; i++) {
        iface->addrs[i] = iface->addrs[0];
    }
    iface->addr_count = WEFT_TOPO_ADDRS_MAX;
    near_sets[0] = view.affinity;
    char *text = printed(weft_cli_topo_tree);
    assert_null(strchr(text, '\033'));
    assert_has(text, "?[31mred");
    assert_has(text, "...\n");
    assert_fits(text);
    free(text);
}

static void a_host_without_hwloc_still_has_its_devices(void **state)
{
    (void)state;
    CPU_SET(0, &machine.cpus);
    machine.allowed = view.affinity = machine.cpus;
    add_nic("eth0", 1, "10.0.0.7", WEFT_TOPO_USE_DATA);
    char *text = printed(weft_cli_topo_tree);
    assert_has(text, "node17: 1 PUs\n└─ eth0  100 Gbit/s");
    free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_view, forget_view)
    const struct CMUnitTest tests[] = {
        TEST(a_small_host_is_drawn_exactly),
        TEST(a_large_host_fits_and_says_everything),
        TEST(long_lists_and_strange_names_are_tamed),
        TEST(a_host_without_hwloc_still_has_its_devices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
