/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench p2p, the command itself, briefly; by itself and as a rank of a job. */
#include "cli_support.h"

#include "cli/bench_p2p.h"

static void bad_usage_is_two_and_says_what(void **state)
{
    static const struct {
        const char *option, *value, *words;
    } cases[] = {
        {"--mode", "lat,bandwidth", "\"bandwidth\" is none of lat"},
        {"--path", "udp", "expected auto, shm or tcp"},
        {"--alloc", "mine", "expected private or shared"},
        {"-n", "1", "from 2 to 1024"},
        {"-f", "1", "--stepfactor 1"},
        {"-b", "128M", "is more than --maxbytes"},
        {"-c", "2", "--check 2"},
        {"--", "operand", "is not an option"},
        {"--strategy", "zigzag", "--strategy zigzag: expected split, rr or auto"},
        {"--lanes", "9", "--lanes 9"},
        {"--window", "129", "--window 129"},
        {"--chunk", "17M", "--chunk 17M"},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct cli cli;
        cli_run(&cli, "bench", "p2p", cases[i].option, cases[i].value);
        assert_int_equal(cli.status, 2);
        assert_has(cli.err, cases[i].words);
        assert_string_equal(cli.out, "");
        cli_close(&cli);
    }
}

static void help_has_two_examples(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "--help");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n  weft bench p2p "), 1);
    assert_int_equal(support_count(cli.out, "\n  weft lab "), 1);
    cli_close(&cli);
}

static void every_mode_runs_and_checks_its_bytes(void **state)
{
    static const char *const paths[] = {"shm", "tcp"}, *const allocs[] = {"shared", "private"};
    static const char *const keys[] = {
        "\"bench\": \"p2p\"", "\"probe_ns\": [",  "\"limit_pct\": ",    "\"lanes\": 1",
        "\"chunk\": 1048576", "\"nic_bytes\": {", "\"threads\": 0",     "\"strategy\": \"auto\"",
        "\"time_us\": {",     "\"algbw_gbs\": ",  "\"cpu_s_per_gb\": ", "\"inflight\": 3",
        "\"window\": 16",
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(paths); i++) {
        struct cli cli;
        cli_run(&cli, "bench", "p2p", "--mode", "all", "-b", "1", "-e", "1M", "-f", "1024",
                "--iters", "5", "--inflight", "3", "--path", paths[i], "--alloc", allocs[i],
                "--json");
        assert_string_equal(cli.err, "");
        assert_int_equal(cli.status, 0);
        for (enum p2p_op op = P2P_LAT; op < P2P_OPS; op++) {
            char part[64];
            snprintf(part, sizeof(part), "\"op\": \"%s\"", weft_bench_p2p_op_name(op));
            assert_int_equal(support_count(cli.out, part), op == P2P_MESH ? 1 : 3);
        }
        for (size_t k = 0; k < WEFT_COUNT_OF(keys); k++) {
            assert_has(cli.out, keys[k]);
        }
        assert_int_equal(support_count(cli.out, "\"wrong\": 0"), 25);
        cli_close(&cli);
    }
}

static void ranks_may_be_threads(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "--mode", "all", "-e", "64K", "-f", "8192", "--iters", "5",
            "--inflight", "3", "--threads", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\"threads\": 1"), 17);
    assert_int_equal(support_count(cli.out, "\"wrong\": 0"), 17);
    cli_close(&cli);
}

static void lanes_are_set_for_the_ranks(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "-m", "bw", "-b", "1M", "-e", "1M", "--iters", "2", "--path",
            "tcp", "--lanes", "2", "--window", "5", "--chunk", "64K", "--strategy", "rr", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\"lanes\": 2, \"window\": 5, \"chunk\": 65536, \"strategy\": \"rr\"");
    assert_has(cli.out, "\"nic_bytes\": {\"lo\": ");
    assert_true(support_number(cli.out, "\"nic_bytes\": {\"lo\": ", 0) > 2 * 64 << 20);
    cli_close(&cli);
}

static void a_rank_of_a_job_joins_it(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "3", "--", WEFT_CLI_PATH, "bench", "p2p", "--mode", "all", "-e",
            "64K", "-f", "8192", "--iters", "5", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\"bench\": \"p2p\""), 1); /* rank 0's alone */
    assert_int_equal(support_count(cli.out, "\"ranks\": 3,"), 17);
    assert_int_equal(support_count(cli.out, "\"wrong\": 0"), 17);
    assert_int_equal(support_count(cli.out, "\"probe_ns\": null"), 17);
    assert_int_equal(support_number(cli.out, "\"pairs\": ", 0), 3);
    assert_null(strstr(cli.out, "\"min\": 0,"));     /* a pair whose time did not come to rank 0 */
    assert_null(strstr(cli.out, "\"pass_us\": 0,")); /* nor the slowest rank's */
    cli_close(&cli);
}

static void a_job_on_one_host_has_the_bare_socket_beside_it(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "2", "--", WEFT_CLI_PATH, "bench", "p2p", "-m", "bw,lat", "-b",
            "64K", "-e", "64K", "--iters", "5", "--path", "tcp");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "p2p on 1 host; ranks are processes of a job");
    assert_has(cli.out, "limit: bare loopback sockets");
    for (const char *line = cli.out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= WEFT_CLI_WIDTH);
    }
    cli_close(&cli);
}

static void a_job_keeps_its_ranks(void **state)
{
    static const struct {
        const char *option, *value, *words;
    } cases[] = {{"--threads", "--json", "--threads: this is rank "},
                 {"-n", "3", "--ranks 3: this is rank "},
                 {"-n", "2,3", "--ranks 3: this is rank "}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct cli cli;
        cli_run(&cli, "run", "-n", "2", "--", WEFT_CLI_PATH, "bench", "p2p", cases[i].option,
                cases[i].value);
        assert_int_equal(cli.status, 1);
        assert_has(cli.err, cases[i].words);
        assert_string_equal(cli.out, "");
        cli_close(&cli);
    }
}

/* `srun --pty bash` is a job of one rank: its benchmarks fork theirs. */
static void a_job_of_one_rank_is_none(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "1", "--", WEFT_CLI_PATH, "bench", "p2p", "-m", "lat", "-e", "8",
            "--iters", "5", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\"ranks\": 2,");
    assert_has(cli.out, "\"probe_ns\": [");
    cli_close(&cli);
}

static void a_job_that_is_said_wrongly_is_an_error(void **state)
{
    struct cli cli;
    (void)state;
    assert_int_equal(setenv("WEFT_RANK", "1", 1), 0);
    cli_run(&cli, "bench", "p2p", "-m", "lat", "-e", "8", "--iters", "5");
    unsetenv("WEFT_RANK");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "WEFT_RANK=1 is set, but WEFT_RANKS is not");
    assert_string_equal(cli.out, "");
    cli_close(&cli);
}

static void a_mesh_reports_every_pair(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "-n", "2,5", "--mode", "mesh", "--iters", "4", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_number(cli.out, "\"pairs\": ", 0), 1);
    assert_int_equal(support_number(cli.out, "\"pairs\": ", 1), 10);
    assert_int_equal(support_number(cli.out, "\"iters\": ", 2), 40);
    assert_null(strstr(cli.out, "\"min\": 0,")); /* a pair that was forgotten */
    cli_close(&cli);
}

static void meshbw_reports_every_pair_each_way(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "-n", "3", "--mode", "meshbw", "-b", "64K", "-e", "64K",
            "--iters", "4", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "{\"from\": "), 6);
    assert_has(cli.out, "{\"from\": 2, \"to\": 1, \"gbs\": ");
    assert_null(strstr(cli.out, "\"gbs\": null")); /* a pair without a time */
    assert_null(strstr(cli.out, "\"min\": 0,"));
    assert_int_equal(support_number(cli.out, "\"iters\": ", 1), 24);
    cli_close(&cli);
}

static void the_table_fits_and_names_the_mesh(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "-n", "3", "--mode", "lat,put_quiet,mesh,meshbw", "-e", "8",
            "--iters", "10", "--path", "tcp");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "CPU s/GB");
    assert_has(cli.out, "all 3 pairs once: ");
    assert_has(cli.out, ", from row to column:\n\nfrom ");
    for (const char *line = cli.out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= WEFT_CLI_WIDTH);
    }
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_usage_is_two_and_says_what),
        cmocka_unit_test(help_has_two_examples),
        cmocka_unit_test(every_mode_runs_and_checks_its_bytes),
        cmocka_unit_test(ranks_may_be_threads),
        cmocka_unit_test(lanes_are_set_for_the_ranks),
        cmocka_unit_test(a_rank_of_a_job_joins_it),
        cmocka_unit_test(a_job_on_one_host_has_the_bare_socket_beside_it),
        cmocka_unit_test(a_job_keeps_its_ranks),
        cmocka_unit_test(a_job_of_one_rank_is_none),
        cmocka_unit_test(a_job_that_is_said_wrongly_is_an_error),
        cmocka_unit_test(a_mesh_reports_every_pair),
        cmocka_unit_test(meshbw_reports_every_pair_each_way),
        cmocka_unit_test(the_table_fits_and_names_the_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
