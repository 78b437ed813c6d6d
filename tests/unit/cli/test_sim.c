/* SPDX-License-Identifier: Apache-2.0 */
#include "cli_support.h"

static void assert_narrow(const char *text)
{
    for (const char *line = text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        if (len > 100) {
            fail_msg("%zu columns: %.*s", len, (int)len, line);
        }
        line += len + (line[len] == '\n');
    }
}

static double support_real(const char *text, const char *before)
{
    const char *at = strstr(text, before);

    assert_non_null(at);
    return strtod(at + strlen(before), NULL);
}

static void a_hundred_thousand_ranks_scale(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "sim", "allreduce", "-n", "100000", "--bytes", "1G", "--topology",
            "hosts=12500,ranks=8,nics=4,rate=100G,latency=5us,cores=64");
    assert_int_equal(cli.status, 0);
    assert_string_equal(cli.err, "");
    assert_has(cli.out,
               "allreduce of 1G, 100000 ranks on 12500 hosts (64 cores each, shm, 4 NICs of "
               "100 Gbit/s, 5.00 us)\n");
    assert_has(cli.out, "\nhierarchical ");
    assert_has(cli.out, "\ncritical path of ");
    assert_has(cli.out, "\nstrong scaling: all ranks together give the same\n");
    assert_has(cli.out, "\nweak scaling: every rank gives the same\n");
    assert_int_equal(support_count(cli.out, "\n100000  12500 "), 2);
    assert_narrow(cli.out);
    cli_close(&cli);
}

static void a_chain_has_its_critical_path(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "sim", "broadcast", "-t", "hosts=5,ranks=1,rate=1G,latency=1ms", "--bytes", "1K",
            "--algo", "chain", "--no-scaling");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "4 messages or flags, one after another\n");
    assert_has(cli.out, "rank 0 > 1, in its round 0\n");
    assert_has(cli.out, "rank 3 > 4, in its round 0\n");
    assert_has(cli.out, "ended last: rank 4; ");
    assert_has(cli.out, "% latency");
    assert_null(strstr(cli.out, "scaling"));
    cli_close(&cli);
}

/* 64 MB round four hosts at 1 Gbit/s: three quarters of it, twice. */
static void a_slow_wire_decides(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "sim", "allreduce", "-t", "hosts=4,ranks=1,rate=1G,latency=50us", "--bytes",
            "64M", "--algo", "ring", "--no-scaling", "--json");
    assert_int_equal(cli.status, 0);
    double wire_us = 1.5 * 67108864.0 / 125.0 / 0.956; /* headers are bytes too */
    double time_us = support_real(cli.out, "\"time_us\": ");
    assert_true(time_us > wire_us && time_us < 1.05 * wire_us);
    assert_true(support_real(cli.out, "\"host_out\": ") == 1.5 * 67108864);
    cli_close(&cli);
}

static void all_algorithms_are_rows_the_fastest_first(void **state)
{
    (void)state;
    struct cli cli;
    double before = 0;

    cli_run(&cli, "sim", "alltoall", "-t", "hosts=8,ranks=1,rate=10G,latency=10us", "--bytes", "1M",
            "--algo", "all", "--no-scaling", "--json");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\"algo\": \"bruck\"");
    assert_has(cli.out, "\"algo\": \"pairwise\"");
    assert_has(cli.out, "\"algo\": \"spread\"");
    for (const char *at = cli.out; (at = strstr(at, "{\"algo\": ")) != NULL; at++) {
        double time_us = support_real(at, "\"time_us\": ");
        assert_true(time_us >= before);
        before = time_us;
    }
    assert_true(before > 0);
    cli_close(&cli);
}

static void json_has_the_fixed_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "command", "op",       "ranks",     "bytes",  "topology", "results",    "algo",
        "time_us", "path",     "rounds",    "phases", "strong",   "weak",       "efficiency",
        "from",    "messages", "busbw_gbs", "hosts",  "parts_us", "path_length"};
    struct cli cli;

    cli_run(&cli, "sim", "broadcast", "-t", "hosts=8,ranks=1,rate=10G,latency=10us", "--json",
            "--bytes", "1K");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n"), 1);
    for (size_t i = 0; i < WEFT_COUNT_OF(keys); i++) {
        char key[32];
        snprintf(key, sizeof(key), "\"%s\": ", keys[i]);
        assert_has(cli.out, key);
    }
    cli_close(&cli);
}

static void one_host_scales_by_its_ranks(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "sim", "allgather", "-n", "8", "-t", "cores=8,path=tcp", "--bytes", "8M");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\n    2      1          1M  "); /* the first row of both tables */
    assert_has(cli.out, "100.0 %\n");
    assert_narrow(cli.out);
    cli_close(&cli);
}

static void mistakes_are_said(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "sim");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "weft sim: which operation?");
    cli_close(&cli);
    cli_run(&cli, "sim", "allreduce");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "how many ranks?");
    cli_close(&cli);
    cli_run(&cli, "sim", "allreduce", "-n", "10", "-t", "hosts=2,ranks=8");
    assert_int_equal(cli.status, 0); /* the last host may have fewer */
    cli_close(&cli);
    cli_run(&cli, "sim", "allreduce", "-n", "8", "-t", "hosts=2,ranks=8");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "8 ranks do not fill 2 hosts with 8 each");
    cli_close(&cli);
    cli_run(&cli, "sim", "alltoall", "-n", "8", "--algo", "alltoall:ring");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "ring does not do this operation; possible: ");
    cli_close(&cli);
    cli_run(&cli, "sim", "alltoall", "-n", "8", "--algo", "rong");
    assert_int_equal(cli.status, 2);
    cli_close(&cli);
    cli_run(&cli, "sim", "--help");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n  weft sim "), 2);
    assert_narrow(cli.out);
    cli_close(&cli);
}

/* As many as a job can have, and not more. */
static void more_ranks_than_a_job_can_have_are_refused(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "sim", "barrier", "-n", "1000000");
    assert_int_equal(cli.status, 0);
    cli_close(&cli);
    cli_run(&cli, "sim", "barrier", "-n", "1000001");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "1000000");
    cli_close(&cli);
    cli_run(&cli, "sim", "barrier", "-t", "hosts=200000,ranks=6");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "1000000");
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_ranks_than_a_job_can_have_are_refused),
        cmocka_unit_test(a_hundred_thousand_ranks_scale),
        cmocka_unit_test(a_chain_has_its_critical_path),
        cmocka_unit_test(a_slow_wire_decides),
        cmocka_unit_test(all_algorithms_are_rows_the_fastest_first),
        cmocka_unit_test(json_has_the_fixed_keys),
        cmocka_unit_test(one_host_scales_by_its_ranks),
        cmocka_unit_test(mistakes_are_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
