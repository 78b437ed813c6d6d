/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_hosts.h"

#include <sched.h>

static void this_host_is_drawn_within_the_width(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "topo");
    assert_int_equal(cli.status, 0);
    assert_string_equal(cli.err, "");
    assert_has(cli.out, "NUMA node ");
    assert_has(cli.out, "CPUs of this process\n");
    assert_has(cli.out, "data goes over, nearest first\n");
    assert_fits(cli.out);
    cli_close(&cli);
}

static void json_is_one_line_with_the_fixed_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "host",     "machine",  "cpus",      "allowed",  "cores",      "memory_bytes",
        "packages", "numa",     "caches",    "model",    "distances",  "process",
        "quota",    "count",    "nics",      "name",     "index",      "kind",
        "driver",   "state",    "up",        "carrier",  "speed_mbps", "mtu",
        "mac",      "distance", "pci",       "pci_path", "addresses",  "data",
        "address",  "reason",   "near_cpus", "tx_cpus",  "rx_cpus",    "gpus"};
    struct cli cli;

    cli_run(&cli, "topo", "--json");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n"), 1);
    assert_has(cli.out, "\"command\": \"topo\"");
    for (size_t i = 0; i < WEFT_COUNT_OF(keys); i++) {
        char key[32];
        snprintf(key, sizeof(key), "\"%s\": ", keys[i]);
        assert_has(cli.out, key);
    }
    cli_close(&cli);
}

static void affinity_and_filter_are_those_of_the_process(void **state)
{
    (void)state;
    struct cli cli;
    cpu_set_t before, single;
    int cpu = sched_getcpu();
    char expected[64];

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_true(cpu >= 0);
    CPU_ZERO(&single);
    CPU_SET((size_t)cpu, &single);
    assert_int_equal(sched_setaffinity(0, sizeof(single), &single), 0);
    setenv("WEFT_SOCKET_IFNAME", "=lo", 1);
    cli_run(&cli, "topo", "--json");
    unsetenv("WEFT_SOCKET_IFNAME");
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(cli.status, 0);
    snprintf(expected, sizeof(expected), "\"process\": {\"cpus\": \"%d\"", cpu);
    assert_has(cli.out, expected);
    assert_has(cli.out, "\"count\": 1}");
    assert_has(cli.out, "\"data\": [\"lo\"]");
    cli_close(&cli);
}

static void bindings_are_shown_with_their_nic(void **state)
{
    (void)state;
    struct cli cli;
    cpu_set_t affinity;
    char list[256], bindings[300], expected[300];

    assert_int_equal(weft_topo_affinity(&affinity), WEFT_OK);
    weft_topo_cpulist_print(&affinity, list, sizeof(list));
    snprintf(bindings, sizeof(bindings), "lo:%s", list);
    setenv("WEFT_RX_BINDINGS", bindings, 1);
    cli_run(&cli, "topo", "--json");
    unsetenv("WEFT_RX_BINDINGS");
    assert_int_equal(cli.status, 0);
    snprintf(expected, sizeof(expected), "\"tx_cpus\": null, \"rx_cpus\": \"%s\"", list);
    assert_has(cli.out, expected);
    cli_close(&cli);
}

static void a_wrong_binding_is_one_with_the_place_and_the_host_is_drawn(void **state)
{
    (void)state;
    struct cli cli;

    setenv("WEFT_TX_BINDINGS", "lo:1-0", 1);
    cli_run(&cli, "topo");
    unsetenv("WEFT_TX_BINDINGS");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "weft topo: WEFT_TX_BINDINGS, column 4: the range runs backwards, "
                        "write 0-1: lo:>>1-0<<\n");
    assert_has(cli.out, "NUMA node ");
    cli_close(&cli);
}

static void svg_goes_to_a_file_or_to_stdout(void **state)
{
    (void)state;
    struct cli cli;
    char path[] = "/tmp/weft-svg-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    cli_run(&cli, "topo", "--svg", path);
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "CPUs of this process\n");
    char *text = support_slurp(fd);
    assert_int_equal(strncmp(text, "<svg xmlns=", 11), 0);
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    cli_close(&cli);
    close(fd);
    unlink(path);
    cli_run(&cli, "topo", "--svg", "-");
    assert_int_equal(cli.status, 0);
    assert_string_equal(cli.out, text);
    free(text);
    cli_close(&cli);
}

static void what_cannot_be_written_is_one(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "topo", "--svg", "/nowhere/host.svg");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "cannot write /nowhere/host.svg: No such file or directory");
    cli_close(&cli);
    cli_run(&cli, "topo", "--svg", "/dev/full");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "cannot write /dev/full: No space left on device");
    cli_close(&cli);
}

static void bad_usage_is_two(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "topo", "eth0");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "\"eth0\" is one word too many");
    cli_close(&cli);
    cli_run(&cli, "topo", "--json", "--svg", "-");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "both want stdout");
    cli_close(&cli);
    cli_run(&cli, "topo", "--help");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "examples:\n  weft topo --svg host.svg\n");
    assert_fits(cli.out);
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_host_is_drawn_within_the_width),
        cmocka_unit_test(json_is_one_line_with_the_fixed_keys),
        cmocka_unit_test(affinity_and_filter_are_those_of_the_process),
        cmocka_unit_test(bindings_are_shown_with_their_nic),
        cmocka_unit_test(a_wrong_binding_is_one_with_the_place_and_the_host_is_drawn),
        cmocka_unit_test(svg_goes_to_a_file_or_to_stdout),
        cmocka_unit_test(what_cannot_be_written_is_one),
        cmocka_unit_test(bad_usage_is_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
