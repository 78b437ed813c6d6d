/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_support.h"

static struct weft_topo_machine *machine;

static void two_packages_of_one_node_each(void **state)
{
    (void)state;
    assert_int_equal(
        weft_topo_machine_open("pack:2 [numa(memory=2147483648)] l3:1 core:4 pu:2", &machine),
        WEFT_OK);
    assert_int_equal(machine->package_count, 2);
    assert_int_equal(machine->node_count, 2);
    assert_int_equal(machine->cores, 8);
    assert_cpus(&machine->cpus, "0-15");
    assert_cpus(&machine->allowed, "0-15");
    assert_int_equal(machine->memory_len, UINT64_C(4) << 30);
    assert_int_equal(machine->packages[1].cores, 4);
    assert_cpus(&machine->packages[1].cpus, "8-15");
    assert_int_equal(machine->nodes[1].id, 1);
    assert_int_equal(machine->nodes[1].package, 1);
    assert_int_equal(machine->nodes[1].cores, 4);
    assert_cpus(&machine->nodes[1].cpus, "8-15");
    assert_int_equal(machine->nodes[1].memory_len, UINT64_C(2) << 30);
    assert_int_equal(machine->cache_count, 1);
    assert_int_equal(machine->caches[0].level, 3);
    assert_false(machine->caches[0].is_data_only);
    assert_int_equal(machine->caches[0].count, 2);
    assert_int_equal(machine->caches[0].shared_by, 8);
    weft_topo_machine_close(machine);
}

static void several_nodes_of_one_package_belong_to_it(void **state)
{
    (void)state;
    assert_int_equal(weft_topo_machine_open("pack:2 group:2 [numa] core:2 pu:1", &machine),
                     WEFT_OK);
    assert_int_equal(machine->node_count, 4);
    assert_int_equal(machine->nodes[1].package, 0);
    assert_int_equal(machine->nodes[2].package, 1);
    assert_cpus(&machine->nodes[2].cpus, "4-5");
    weft_topo_machine_close(machine);
}

static void a_node_of_several_packages_belongs_to_none(void **state)
{
    (void)state;
    assert_int_equal(weft_topo_machine_open("[numa] pack:2 core:2 pu:1", &machine), WEFT_OK);
    assert_int_equal(machine->node_count, 1);
    assert_int_equal(machine->nodes[0].package, -1);
    assert_int_equal(machine->nodes[0].cores, 4);
    weft_topo_machine_close(machine);
}

static void a_description_that_means_nothing_is_refused(void **state)
{
    (void)state;
    assert_int_equal(weft_topo_machine_open("pack:two", &machine), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "pack:two"));
}

static void this_host_has_what_we_run_on(void **state)
{
    cpu_set_t affinity, common;

    (void)state;
    assert_int_equal(weft_topo_machine_open(NULL, &machine), WEFT_OK);
    assert_int_equal(weft_topo_affinity(&affinity), WEFT_OK);
    CPU_AND(&common, &affinity, &machine->cpus);
    assert_true(CPU_EQUAL(&common, &affinity));
    assert_true(machine->cores >= 1);
    assert_true(machine->node_count >= 1);
    assert_true(machine->memory_len > 0);
    weft_topo_machine_close(machine);
    weft_topo_machine_close(NULL);
}

/* The milliseconds that hwloc takes must not be paid by whoever only starts a job. */
static void hwloc_is_not_in_a_process_that_did_not_ask_for_the_machine(void **state)
{
    static char maps[1 << 20];
    struct weft_topo_iface *nics = NULL;
    unsigned count = 0;

    (void)state;
    weft_topo_data_nics("", "", AF_UNSPEC, &nics, &count);
    free(nics);
    assert_true(weft_file_read("/proc/self/maps", maps, sizeof(maps)));
    assert_non_null(strstr(maps, "libc.so"));
    assert_null(strstr(maps, "hwloc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: the others load it */
        cmocka_unit_test(hwloc_is_not_in_a_process_that_did_not_ask_for_the_machine),
        cmocka_unit_test(two_packages_of_one_node_each),
        cmocka_unit_test(several_nodes_of_one_package_belong_to_it),
        cmocka_unit_test(a_node_of_several_packages_belongs_to_none),
        cmocka_unit_test(a_description_that_means_nothing_is_refused),
        cmocka_unit_test(this_host_has_what_we_run_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
