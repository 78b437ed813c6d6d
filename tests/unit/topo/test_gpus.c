/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_support.h"

static struct weft_topo_gpu *gpus;
static unsigned count;

static void plant_pci(const char *parent, const char *pci, const char *class, const char *vendor)
{
    char file[256], entry[256];

    snprintf(file, sizeof(file), "/sys/devices/%s/%s/class", parent, pci);
    plant_file(file, class);
    snprintf(file, sizeof(file), "/sys/devices/%s/%s/vendor", parent, pci);
    plant_file(file, vendor);
    snprintf(file, sizeof(file), "/sys/devices/%s/%s/device", parent, pci);
    plant_file(file, "0x2335\n");
    snprintf(file, sizeof(file), "/sys/devices/%s/%s/numa_node", parent, pci);
    plant_file(file, "1\n");
    snprintf(file, sizeof(file), "/sys/devices/%s/%s", parent, pci);
    snprintf(entry, sizeof(entry), "/sys/bus/pci/devices/%s", pci);
    plant_link(entry, file);
}

static void read_gpus(void)
{
    assert_int_equal(weft_topo_gpus(root, &gpus, &count), WEFT_OK);
}

static void a_host_without_pci_has_none(void **state)
{
    (void)state;
    read_gpus();
    assert_int_equal(count, 0);
    free(gpus);
}

static void gpus_are_display_controllers_and_accelerators_of_gpu_makers(void **state)
{
    (void)state;
    plant_pci("pci0000:00", "0000:00:02.0", "0x030000\n", "0x1a03\n"); /* a board controller's */
    plant_pci("pci0000:00", "0000:00:03.0", "0x020000\n", "0x10de\n"); /* Ethernet */
    plant_pci("pci0000:b0", "0000:b1:00.0", "0x030200\n", "0x10de\n");
    plant_pci("pci0000:40", "0000:41:00.0", "0x038000\n", "0x1002\n");
    plant_pci("pci0000:50", "0000:51:00.0", "0x120000\n", "0x1da3\n");
    read_gpus();
    assert_int_equal(count, 3);
    assert_string_equal(gpus[0].pci, "0000:41:00.0");
    assert_string_equal(gpus[0].name, "AMD GPU 1002:2335");
    assert_string_equal(gpus[1].pci, "0000:51:00.0");
    assert_string_equal(gpus[2].pci, "0000:b1:00.0");
    assert_int_equal(gpus[2].node, 1);
    assert_string_equal(gpus[2].pci_path, "pci0000:b0/0000:b1:00.0");
    assert_string_equal(gpus[2].driver, "");
    free(gpus);
}

static void the_driver_tells_the_model(void **state)
{
    (void)state;
    plant_pci("pci0000:b0", "0000:b1:00.0", "0x030200\n", "0x10de\n");
    plant_file("/proc/driver/nvidia/gpus/0000:b1:00.0/information",
               "Model: \t\t NVIDIA H200\nIRQ:   \t\t 120\n");
    plant_file("/sys/bus/pci/drivers/nvidia/uevent", "");
    plant_link("/sys/devices/pci0000:b0/0000:b1:00.0/driver", "/sys/bus/pci/drivers/nvidia");
    read_gpus();
    assert_int_equal(count, 1);
    assert_string_equal(gpus[0].name, "NVIDIA H200");
    assert_string_equal(gpus[0].driver, "nvidia");
    free(gpus);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(a_host_without_pci_has_none),
        TEST(gpus_are_display_controllers_and_accelerators_of_gpu_makers),
        TEST(the_driver_tells_the_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
