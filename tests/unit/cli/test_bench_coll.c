/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench allreduce and the other collectives, the command itself, briefly; by itself and as a rank of a
 * job. */
#include "cli_support.h"

#include "cli/bench_coll.h"

static void assert_fits(const char *text)
{
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        if (strcspn(line, "\n") > WEFT_CLI_WIDTH) {
            fail_msg("too long: %.*s", (int)strcspn(line, "\n"), line);
        }
    }
}

static void bad_usage_is_two_and_says_what(void **state)
{
    static const struct {
        const char *op, *option, *value, *words;
    } cases[] = {
        {"allreduce", "--path", "udp", "expected auto, shm or tcp"},
        {"allreduce", "--alloc", "mine", "expected private or shared"},
        {"allreduce", "-n", "0", "from 1 to 1024"},
        {"allreduce", "-f", "1", "--stepfactor 1"},
        {"allreduce", "-b", "128M", "is more than --maxbytes"},
        {"allreduce", "-c", "2", "--check 2"},
        {"allreduce", "-d", "f31", "expected i8 u8"},
        {"allreduce", "-o", "sub", "sum prod min"},
        {"allreduce", "-o", "band", "-o band is not defined for -d f32"},
        {"allreduce", "--algo", "zigzag", "--algo zigzag: expected one of all, "},
        {"broadcast", "-r", "2", "there are 2 ranks"},
        {"alltoall", "--inplace", NULL, "alltoall is never in place"},
        {"allreduce", "operand", NULL, "is not an option"},
        {"allreduse", NULL, NULL, "did you mean \"allreduce\"?"},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct cli cli;
        if (strcmp(cases[i].op, "broadcast") == 0) {
            cli_run(&cli, "bench", cases[i].op, "-n", "2", cases[i].option, cases[i].value);
        } else {
            cli_run(&cli, "bench", cases[i].op, cases[i].option, cases[i].value);
        }
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
    cli_run(&cli, "bench", "reduce_scatter", "--help");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n  weft bench reduce_scatter "), 1);
    assert_int_equal(support_count(cli.out, "\n  weft run "), 1);
    assert_fits(cli.out);
    cli_close(&cli);
    cli_run(&cli, "bench", "--help");
    assert_int_equal(cli.status, 0);
    for (unsigned i = 0; i < WEFT_COLLS; i++) {
        assert_has(cli.out, weft_coll_name((weft_coll_t)i));
    }
    cli_close(&cli);
}

static void every_collective_runs_and_checks_its_results(void **state)
{
    static const char *const keys[] = {
        "\"host\": {\"cores\": ",
        "\"probe_ns\": [",
        "\"limit_pct\": ",
        "\"time_us\": {",
        "\"cpu_s_per_gb\": ",
        "\"algbw_gbs\": ",
        "\"busbw_gbs\": ",
        "\"dtype\": \"f32\"",
        "\"path\": \"shm\"",
        "\"redop\": ",
        "\"copies_per_byte\": ",
        "\"alloc\": \"",
        "\"algo\": ",
        "\"ranks\": 3,",
        "\"inplace\": false",
        "\"count\": ",
    };
    (void)state;
    for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
        struct cli cli;
        const char *op = weft_coll_name((weft_coll_t)coll);
        char bench[64];
        cli_run(&cli, "bench", op, "-n", "3", "-b", "64", "-e", "64K", "-f", "1024", "--time",
                "5ms", "--path", "shm", "--alloc", coll % 2 == 0 ? "private" : "shared", "--json");
        assert_string_equal(cli.err, "");
        assert_int_equal(cli.status, 0);
        snprintf(bench, sizeof(bench), "\"bench\": \"%s\"", op);
        assert_has(cli.out, bench);
        for (size_t k = 0; k < WEFT_COUNT_OF(keys); k++) {
            assert_has(cli.out, keys[k]);
        }
        unsigned rows = coll == WEFT_BARRIER ? 1 : coll == WEFT_ALLTOALL ? 2 : 4;
        assert_int_equal(support_count(cli.out, "\"wrong\": 0"), rows);
        assert_int_equal(support_count(cli.out, "\"wrong\": "), rows);
        cli_close(&cli);
    }
}

static void over_tcp_the_bare_socket_is_beside_it(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "allreduce", "-n", "2,3", "-b", "64", "-e", "64K", "-f", "1024",
            "--time", "5ms", "--path", "tcp");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "limit: the bytes that must be sent, over bare loopback sockets");
    assert_int_equal(support_count(cli.out, "two processes over a bare socket"), 2);
    assert_fits(cli.out);
    cli_close(&cli);
}

static void the_table_is_that_of_nccl_tests_and_fits(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "allgather", "-n", "1,2", "-b", "1K", "-e", "3M", "-f", "3000", "--time",
            "2ms", "--path", "shm", "-d", "f8e4m3");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out,
               "size      count   type  redop root     time  algbw  busbw #wrong     time");
    assert_has(cli.out, "      1K        512 f8e4m3      -    -");
    assert_int_equal(support_count(cli.out, "p99 us"), 2); /* one for each number of ranks */
    assert_has(cli.out, "\n1 rank\n");
    assert_has(cli.out, "\n2 ranks\n");
    assert_has(cli.out, "two processes' c = a + b");
    assert_fits(cli.out);
    cli_close(&cli);
}

static void algorithms_get_a_row_each(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "allreduce", "-n", "2", "-b", "1K", "-e", "1K", "--algo", "all",
            "--time", "2ms", "--path", "shm");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "count algorithm ");
    assert_true(support_count(cli.out, "\n      1K ") >= 2);
    assert_fits(cli.out);
    cli_close(&cli);
}

static void singles_are_timed_one_by_one(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "reduce", "-n", "2", "-b", "8", "-e", "8", "--single", "--iters", "100",
            "--outplace", "-o", "max", "-d", "i16", "--path", "shm", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\"single\": true");
    assert_has(cli.out, "\"iters\": 1, \"batches\": 100");
    assert_has(cli.out, "\"redop\": \"max\"");
    cli_close(&cli);
}

static void a_rank_of_a_job_joins_it(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "3", "--", WEFT_CLI_PATH, "bench", "broadcast", "-b", "1K", "-e",
            "1K", "--time", "5ms", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\"bench\": \"broadcast\""), 1); /* rank 0's alone */
    assert_int_equal(support_count(cli.out, "\"ranks\": 3,"), 2);
    assert_int_equal(support_count(cli.out, "\"wrong\": 0"), 2);
    assert_has(cli.out, "\"probe_ns\": null");
    cli_close(&cli);
    cli_run(&cli, "run", "-n", "2", "--", WEFT_CLI_PATH, "bench", "broadcast", "-n", "3");
    assert_true(cli.status != 0);
    assert_has(cli.err, "of a job of 2, as its launcher says");
    cli_close(&cli);
}

static void the_report_is_written_and_named(void **state)
{
    struct cli cli;
    char path[] = "/tmp/weft-page-XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    cli_run(&cli, "bench", "allreduce", "-n", "2", "-b", "8", "-e", "512", "-f", "8", "--time",
            "2ms", "--path", "shm", "--report", path);
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, path);
    char *page = support_slurp(fd);
    assert_int_equal(support_count(page, "<svg class=\"chart\""), 2);
    assert_has(page, "weft, in place");
    free(page);
    cli_close(&cli);
    close(fd);
    unlink(path);
    cli_run(&cli, "bench", "barrier", "-n", "2", "--time", "2ms", "--report", "/nonexistent/x.html",
            "--path", "shm");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "no page: /nonexistent/x.html: No such file");
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_usage_is_two_and_says_what),
        cmocka_unit_test(help_has_two_examples),
        cmocka_unit_test(every_collective_runs_and_checks_its_results),
        cmocka_unit_test(over_tcp_the_bare_socket_is_beside_it),
        cmocka_unit_test(the_table_is_that_of_nccl_tests_and_fits),
        cmocka_unit_test(algorithms_get_a_row_each),
        cmocka_unit_test(singles_are_timed_one_by_one),
        cmocka_unit_test(a_rank_of_a_job_joins_it),
        cmocka_unit_test(the_report_is_written_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
