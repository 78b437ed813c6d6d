/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_support.h"

static struct weft_topo_numa *nodes;
static unsigned count;

static void read_nodes(const char *affinity)
{
    cpu_set_t cpus = cpus_of(affinity);

    free(nodes);
    nodes = NULL;
    assert_int_equal(weft_topo_numa(root, &cpus, &nodes, &count), WEFT_OK);
}

static int forget(void **state)
{
    free(nodes);
    nodes = NULL;
    return remove_root(state);
}

static void a_kernel_without_numa_has_no_nodes(void **state)
{
    (void)state;
    read_nodes("0-7");
    assert_int_equal(count, 0);
    assert_int_equal(weft_topo_numa_distance(root, 0, 0), 0);
}

static void distance_is_from_where_we_may_run(void **state)
{
    (void)state;
    plant_two_nodes();
    read_nodes("0-3");
    assert_int_equal(count, 2);
    assert_int_equal(nodes[0].distance, 10);
    assert_int_equal(nodes[1].distance, 21);
    assert_cpus(&nodes[1].cpus, "4-7");
    read_nodes("7");
    assert_int_equal(nodes[0].distance, 21);
    assert_int_equal(nodes[1].distance, 10);
}

static void a_thread_of_both_nodes_is_local_to_both(void **state)
{
    (void)state;
    plant_two_nodes();
    read_nodes("3-4");
    assert_int_equal(nodes[0].distance, 10);
    assert_int_equal(nodes[1].distance, 10);
}

static void the_nearest_of_our_nodes_counts(void **state)
{
    (void)state;
    plant_file("/sys/devices/system/node/online", "0-2\n");
    plant_file("/sys/devices/system/node/node0/cpulist", "0-1\n");
    plant_file("/sys/devices/system/node/node1/cpulist", "2-3\n");
    plant_file("/sys/devices/system/node/node2/cpulist", "4-5\n");
    plant_file("/sys/devices/system/node/node0/distance", "10 12 31\n");
    plant_file("/sys/devices/system/node/node1/distance", "12 10 20\n");
    plant_file("/sys/devices/system/node/node2/distance", "31 20 10\n");
    read_nodes("1-2");
    assert_int_equal(nodes[0].distance, 10);
    assert_int_equal(nodes[1].distance, 10);
    assert_int_equal(nodes[2].distance, 20);
    read_nodes("0");
    assert_int_equal(nodes[2].distance, 31);
}

/* Columns of a row are online nodes in their order, not ids. */
static void gaps_between_ids_do_not_shift_the_row(void **state)
{
    (void)state;
    plant_file("/sys/devices/system/node/online", "0,2,8\n");
    plant_file("/sys/devices/system/node/node0/cpulist", "0-1\n");
    plant_file("/sys/devices/system/node/node2/cpulist", "2-3\n");
    plant_file("/sys/devices/system/node/node8/cpulist", "\n"); /* memory only */
    plant_file("/sys/devices/system/node/node0/distance", "10 20 80\n");
    plant_file("/sys/devices/system/node/node2/distance", "20 10 40\n");
    plant_file("/sys/devices/system/node/node8/distance", "80 40 10\n");
    read_nodes("0-1");
    assert_int_equal(count, 3);
    assert_int_equal(nodes[1].id, 2);
    assert_int_equal(nodes[1].distance, 20);
    assert_int_equal(nodes[2].id, 8);
    assert_int_equal(nodes[2].distance, 80);
    assert_int_equal(weft_topo_numa_distance(root, 2, 8), 40);
    assert_int_equal(weft_topo_numa_distance(root, 8, 2), 40);
    assert_int_equal(weft_topo_numa_distance(root, 0, 1), 0); /* there is no node 1 */
    assert_int_equal(weft_topo_numa_distance(root, -1, 0), 0);
}

static void nodes_without_distances_are_local_or_unknown(void **state)
{
    (void)state;
    plant_file("/sys/devices/system/node/online", "0-1\n");
    plant_file("/sys/devices/system/node/node0/cpulist", "0-3\n");
    plant_file("/sys/devices/system/node/node1/cpulist", "4-7\n");
    read_nodes("0");
    assert_int_equal(nodes[0].distance, WEFT_TOPO_LOCAL);
    assert_int_equal(nodes[1].distance, 0);
}

static void near_cpus_are_the_nodes_inside_our_affinity(void **state)
{
    cpu_set_t affinity = cpus_of("2-5"), cpus;

    (void)state;
    plant_two_nodes();
    weft_topo_near_cpus(root, 0, &affinity, &cpus);
    assert_cpus(&cpus, "2-3");
    weft_topo_near_cpus(root, 1, &affinity, &cpus);
    assert_cpus(&cpus, "4-5");
}

static void near_cpus_are_all_of_ours_when_the_node_says_nothing(void **state)
{
    cpu_set_t affinity = cpus_of("0-2"), cpus;

    (void)state;
    plant_two_nodes();
    weft_topo_near_cpus(root, -1, &affinity, &cpus);
    assert_cpus(&cpus, "0-2");
    weft_topo_near_cpus(root, 1, &affinity, &cpus); /* none of ours is there */
    assert_cpus(&cpus, "0-2");
    weft_topo_near_cpus(root, 9, &affinity, &cpus);
    assert_cpus(&cpus, "0-2");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, forget)
    const struct CMUnitTest tests[] = {
        TEST(a_kernel_without_numa_has_no_nodes),
        TEST(distance_is_from_where_we_may_run),
        TEST(a_thread_of_both_nodes_is_local_to_both),
        TEST(the_nearest_of_our_nodes_counts),
        TEST(gaps_between_ids_do_not_shift_the_row),
        TEST(nodes_without_distances_are_local_or_unknown),
        TEST(near_cpus_are_the_nodes_inside_our_affinity),
        TEST(near_cpus_are_all_of_ours_when_the_node_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
