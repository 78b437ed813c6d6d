/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_support.h"

#define SETTING "WEFT_TX_BINDINGS"

/* A host with eth1, eth2 and CPUs 0-127, of which we may use all but 120-127. */
static struct weft_topo_iface ifaces[2];
static struct weft_topo_scope scope;

static int make_scope(void **state)
{
    (void)state;
    strcpy(ifaces[0].name, "eth1");
    strcpy(ifaces[1].name, "eth2");
    scope = (struct weft_topo_scope){.ifaces = ifaces, .iface_count = 2};
    scope.online = cpus_of("0-127");
    scope.affinity = cpus_of("0-119");
    return 0;
}

static struct weft_topo_bindings *parse(const char *text)
{
    struct weft_topo_bindings *bindings = NULL;

    if (weft_topo_bindings_parse(SETTING, text, &scope, &bindings) != WEFT_OK) {
        fail_msg("\"%s\": %s", text, weft_error_text());
    }
    return bindings;
}

static void assert_refused(const char *text, const char *expected)
{
    struct weft_topo_bindings *bindings = NULL;

    assert_int_equal(weft_topo_bindings_parse(SETTING, text, &scope, &bindings), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(), expected);
    assert_null(bindings);
}

static void each_nic_gets_its_set(void **state)
{
    struct weft_topo_bindings *bindings = parse("eth1:8-21,112-119;eth2:60-73");

    (void)state;
    assert_int_equal(bindings->count, 2);
    assert_cpus(weft_topo_bindings_find(bindings, "eth1"), "8-21,112-119");
    assert_cpus(weft_topo_bindings_find(bindings, "eth2"), "60-73");
    assert_null(weft_topo_bindings_find(bindings, "eth3"));
    assert_null(weft_topo_bindings_find(bindings, "eth"));
    free(bindings);
}

static void single_cpus_and_overlaps_are_fine(void **state)
{
    struct weft_topo_bindings *bindings = parse("eth2:7,3-5,4-6,7");

    (void)state;
    assert_cpus(weft_topo_bindings_find(bindings, "eth2"), "3-7");
    free(bindings);
}

static void nothing_binds_nothing(void **state)
{
    struct weft_topo_bindings *bindings = parse("");

    (void)state;
    assert_int_equal(bindings->count, 0);
    assert_null(weft_topo_bindings_find(bindings, "eth1"));
    free(bindings);
}

static void an_unknown_nic_is_shown_with_those_there_are(void **state)
{
    (void)state;
    assert_refused("eth1:8-21;eth9:60-73",
                   SETTING ", column 11: there is no such interface here, only eth1, eth2: "
                           "eth1:8-21;>>eth9<<:60-73");
    assert_refused("a-name-of-seventeen:1",
                   SETTING ", column 1: there is no such interface here, only eth1, eth2: "
                           ">>a-name-of-seventeen<<:1");
}

static void a_nic_named_twice_is_shown(void **state)
{
    (void)state;
    assert_refused("eth1:1;eth2:2;eth1:3",
                   SETTING ", column 15: this NIC is named twice: eth1:1;eth2:2;>>eth1<<:3");
}

static void missing_parts_are_shown_where_they_are_missing(void **state)
{
    (void)state;
    assert_refused("eth1:1;", SETTING ", column 8: the name of a NIC is missing: eth1:1;>><<");
    assert_refused(";eth1:1", SETTING ", column 1: the name of a NIC is missing: >><<;eth1:1");
    assert_refused(":1", SETTING ", column 1: the name of a NIC is missing: >><<:1");
    assert_refused("eth1", SETTING ", column 1: CPUs are missing, as in eth1:0-3: >>eth1<<");
    assert_refused("eth1;eth2:1",
                   SETTING ", column 1: CPUs are missing, as in eth1:0-3: >>eth1<<;eth2:1");
    assert_refused("eth1:;eth2:1", SETTING
                   ", column 6: a CPU or a range such as 8-21 is missing: eth1:>><<;eth2:1");
    assert_refused("eth1:1,,2",
                   SETTING ", column 8: a CPU or a range such as 8-21 is missing: eth1:1,>><<,2");
}

static void what_is_no_range_is_shown(void **state)
{
    static const char *const words[] = {"x",  "1-", "-1",  "1-2-3", "0x10", " 1", "1 ",  "1--2",
                                        "8x", "+1", "1:2", "1.5",   "1-x",  "*",  "all", "1234567"};
    char text[64], expected[256];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(words); i++) {
        snprintf(text, sizeof(text), "eth1:0,%s;eth2:3", words[i]);
        snprintf(expected, sizeof(expected),
                 SETTING ", column 8: expected a CPU or a range such as 8-21: "
                         "eth1:0,>>%s<<;eth2:3",
                 words[i]);
        assert_refused(text, expected);
    }
}

static void a_range_that_runs_backwards_is_shown_with_the_right_one(void **state)
{
    (void)state;
    assert_refused("eth1:8-21;eth2:73-60",
                   SETTING ", column 16: the range runs backwards, write 60-73: "
                           "eth1:8-21;eth2:>>73-60<<");
}

static void cpus_that_are_not_there_or_not_ours_are_named(void **state)
{
    (void)state;
    assert_refused("eth1:8-21,100-300", SETTING
                   ", column 11: CPU 120 is outside our affinity, 0-119: eth1:8-21,>>100-300<<");
    assert_refused("eth1:128",
                   SETTING ", column 6: this host has no CPU 128, only 0-127: eth1:>>128<<");
    assert_refused("eth1:999999",
                   SETTING ", column 6: this host has no CPU 999999, only 0-127: eth1:>>999999<<");
    assert_refused("eth1:119-120",
                   SETTING ", column 6: CPU 120 is outside our affinity, 0-119: eth1:>>119-120<<");
}

static void the_longest_setting_is_still_shown_to_its_end(void **state)
{
    struct weft_topo_bindings *bindings = NULL;
    char text[WEFT_PARAM_TEXT_LEN] = "eth1:0";
    size_t len = strlen(text);
    const char *said;

    (void)state;
    for (; len + 6 < sizeof(text); len += 2) {
        memcpy(text + len, ",0", 3);
    }
    memcpy(text + len, ",9-8", 5);
    assert_int_equal(weft_topo_bindings_parse(SETTING, text, &scope, &bindings), WEFT_ERR_INVALID);
    said = weft_error_text();
    assert_string_equal(said + strlen(said) - 7, ">>9-8<<");
}

static void the_scope_of_this_host_holds_our_affinity(void **state)
{
    cpu_set_t affinity, common;

    (void)state;
    assert_int_equal(weft_topo_scope_cpus(&scope), WEFT_OK);
    assert_int_equal(weft_topo_affinity(&affinity), WEFT_OK);
    assert_true(CPU_EQUAL(&scope.affinity, &affinity));
    CPU_AND(&common, &scope.online, &affinity);
    assert_true(CPU_EQUAL(&common, &affinity));
}

/* ---- without bindings: eth1 and eth2 on these nodes of two, we on these CPUs ---- */

/* "": anywhere */
static const char *common(int first, int second, const char *affinity)
{
    static char text[128];
    struct weft_topo_iface nics[2] = {{.node = first}, {.node = second}};
    cpu_set_t ours = cpus_of(affinity), cpus;

    return weft_topo_common_cpus(root, nics, 2, &ours, &cpus)
               ? weft_topo_cpulist_print(&cpus, text, sizeof(text))
               : "";
}

static void nics_of_one_node_want_our_cpus_there(void **state)
{
    (void)state;
    plant_two_nodes();
    assert_true(weft_topo_has_nodes(root));
    assert_string_equal(common(0, 0, "0-7"), "0-3");
    assert_string_equal(common(1, 1, "0-7"), "4-7");
    assert_string_equal(common(1, 1, "2-5"), "4-5");
}

static void nics_of_several_nodes_or_unknown_ones_want_nothing(void **state)
{
    (void)state;
    plant_two_nodes();
    assert_string_equal(common(0, 1, "0-7"), "");
    assert_string_equal(common(-1, -1, "0-7"), "");
    assert_string_equal(common(0, -1, "0-7"), "");
}

static void who_is_on_one_node_is_left_alone(void **state)
{
    (void)state;
    plant_two_nodes();
    assert_string_equal(common(0, 0, "0-3"), ""); /* there already */
    assert_string_equal(common(1, 1, "0-3"), ""); /* none of ours is there */
    remove_root(state);
    make_root(state);
    plant_file("/sys/devices/system/node/online", "0\n");
    plant_file("/sys/devices/system/node/node0/cpulist", "0-7\n");
    assert_false(weft_topo_has_nodes(root));
    assert_string_equal(common(0, 0, "0-7"), "");
}

static void nobody_is_bound_to_one_core(void **state)
{
    (void)state;
    plant_two_nodes();
    assert_string_equal(common(1, 1, "0-4"), "");
    plant_file("/sys/devices/system/cpu/cpu4/topology/thread_siblings_list", "4,6\n");
    assert_string_equal(common(1, 1, "0-4,6"), ""); /* both of its threads */
    assert_string_equal(common(1, 1, "0-5"), "4-5");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, make_scope)
#define ON_HOST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(each_nic_gets_its_set),
        TEST(single_cpus_and_overlaps_are_fine),
        TEST(nothing_binds_nothing),
        TEST(an_unknown_nic_is_shown_with_those_there_are),
        TEST(a_nic_named_twice_is_shown),
        TEST(missing_parts_are_shown_where_they_are_missing),
        TEST(what_is_no_range_is_shown),
        TEST(a_range_that_runs_backwards_is_shown_with_the_right_one),
        TEST(cpus_that_are_not_there_or_not_ours_are_named),
        TEST(the_longest_setting_is_still_shown_to_its_end),
        TEST(the_scope_of_this_host_holds_our_affinity),
        ON_HOST(nics_of_one_node_want_our_cpus_there),
        ON_HOST(nics_of_several_nodes_or_unknown_ones_want_nothing),
        ON_HOST(who_is_on_one_node_is_left_alone),
        ON_HOST(nobody_is_bound_to_one_core),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
