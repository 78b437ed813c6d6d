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

/* Braces and quotes close, nothing follows, commas separate. */
static void assert_json(const char *text)
{
    int depth = 0;
    bool is_text = false;
    const char *at = text;

    assert_int_equal(*at, '{');
    for (; *at != '\0' && *at != '\n'; at++) {
        if (is_text) {
            at += *at == '\\';
            is_text = *at != '"';
        } else {
            is_text = *at == '"';
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            assert_true(depth > 0 || at[1] == '\n');
            assert_false(*at == ',' && (at[1] == ',' || at[1] == '}' || at[1] == ']'));
        }
    }
    assert_int_equal(depth, 0);
    assert_string_equal(at, "\n");
}

static void the_choice_comes_with_reason_runners_up_and_steps(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "allreduce", "-n", "8", "--bytes", "4M", "--path", "tcp", "--cores",
            "2");
    assert_int_equal(cli.status, 0);
    assert_string_equal(cli.err, "");
    assert_has(cli.out, "allreduce of 4M, 8 ranks on 1 host (2 cores, tcp)\n");
    assert_has(cli.out, " is the fastest of ");
    assert_has(cli.out, "<- chosen\n");
    assert_has(cli.out, "\nhalving ");
    assert_has(cli.out, "\nring ");
    assert_has(cli.out, "needs all ranks on one host, with shared memory\n");
    assert_has(cli.out, "\nround 0 ");
    assert_narrow(cli.out);
    cli_close(&cli);
}

static void a_ring_is_one_line_per_kind_of_round(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "allreduce", "-n", "4", "--bytes", "4M", "--path", "tcp", "--algo",
            "ring");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "ring was asked for by name");
    assert_has(cli.out, "\nround 3    send block r (1M) to r+1; receive block r-1 (1M) from r-1\n");
    assert_has(cli.out, "; receive and add block r (1M) from r-1\n");
    assert_has(cli.out, "6 rounds, 24 messages in all; a rank sends 6M inside its host");
    cli_close(&cli);
    cli_run(&cli, "explain", "allreduce", "-n", "16", "--bytes", "16M", "--path", "tcp", "-a",
            "ring");
    assert_has(cli.out, "\n0-14       send 1 block (1M) to r+1; receive and add");
    assert_has(cli.out, "\n15-29      send 1 block (1M) to r+1; receive 1 block");
    cli_close(&cli);
}

static void an_algorithm_that_cannot_do_it_is_refused(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "broadcast", "-n", "4", "--algo", "ring");
    assert_int_not_equal(cli.status, 0);
    assert_has(cli.err, "ring does not do this operation; possible: ");
    cli_close(&cli);
}

/* A job never takes a plan that needs pieces of one size there: only the root would know. */
static void plans_of_a_scatter_are_those_of_a_job(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "scatter", "-n", "8", "--bytes", "4M");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "linear is the only one possible");
    assert_has(cli.out, "needs pieces of one size");
    cli_close(&cli);
    cli_run(&cli, "sim", "gather", "-n", "8", "--bytes", "4M", "--algo", "binomial");
    assert_int_not_equal(cli.status, 0);
    assert_has(cli.err, "binomial needs pieces of one size");
    cli_close(&cli);
}

static void a_tree_is_arrows(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "broadcast", "-n", "4", "--bytes", "1K", "--path", "tcp", "--algo",
            "star");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "0 > 1 1K, 0 > 2 1K, 0 > 3 1K\n");
    cli_close(&cli);
}

static void several_hosts_are_composed(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "allreduce", "-t",
            "hosts=2,ranks=4,nics=1,rate=1G,latency=50us,cores=4", "--bytes", "64M");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "8 ranks on 2 hosts (4 cores each, shm, 1 NIC of 1 Gbit/s, 50.0 us)\n");
    assert_has(cli.out, "hierarchical is the fastest of ");
    assert_has(cli.out, "phase 1    reduce_scatter of 64M inside every host: staged");
    assert_has(cli.out, "phase 2    allreduce of 16M between hosts, from all their ranks at once");
    assert_has(cli.out, "phase 3    allgather of 64M inside every host: staged");
    assert_narrow(cli.out);
    cli_close(&cli);
}

static void json_has_the_fixed_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "command", "op",     "ranks",   "bytes",        "topology",   "hosts",
        "cores",   "path",   "algo",    "segments",     "reason",     "cost",
        "time_us", "rounds", "options", "parts_us",     "messages",   "copies_per_byte",
        "why_not", "nics",   "host_in", "rank_between", "latency_us", "total_inside"};
    struct cli cli;

    cli_run(&cli, "explain", "reduce_scatter", "-n", "6", "--bytes", "1M", "--json");
    assert_int_equal(cli.status, 0);
    assert_json(cli.out);
    for (size_t i = 0; i < WEFT_COUNT_OF(keys); i++) {
        char key[32];
        snprintf(key, sizeof(key), "\"%s\": ", keys[i]);
        assert_has(cli.out, key);
    }
    assert_has(cli.out, "\"op\": \"reduce_scatter\", \"ranks\": 6, \"bytes\": 1048576");
    cli_close(&cli);
}

static void the_picture_goes_to_a_file_or_to_stdout(void **state)
{
    (void)state;
    struct cli cli;
    char path[] = "/tmp/weft-plan-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    cli_run(&cli, "explain", "allreduce", "-n", "4", "--path", "tcp", "--algo", "ring", "--svg",
            path);
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "round 0");
    char *text = support_slurp(fd);
    assert_int_equal(strncmp(text, "<svg xmlns=", 11), 0);
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    /* 4 ranks, 3 rounds of adding, 3 of passing on, one of each in the legend */
    assert_int_equal(support_count(text, "<line class=\"added\""), 12 + 1);
    assert_int_equal(support_count(text, "<line class=\"message\""), 12 + 1);
    free(text);
    cli_close(&cli);
    close(fd);
    unlink(path);
    cli_run(&cli, "explain", "barrier", "-n", "70", "--path", "tcp", "--svg", "-");
    assert_int_equal(cli.status, 0);
    assert_int_equal(strncmp(cli.out, "<svg xmlns=", 11), 0);
    assert_has(cli.out, "the first 64 ranks");
    cli_close(&cli);
    cli_run(&cli, "explain", "allreduce", "-n", "4", "--svg", "/nowhere/x.svg");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "weft explain: cannot write /nowhere/x.svg: ");
    cli_close(&cli);
}

static void settings_count_as_in_a_job(void **state)
{
    (void)state;
    struct cli cli;

    setenv("WEFT_ALGO", "allreduce:halving", 1);
    cli_run(&cli, "explain", "allreduce", "-n", "4", "--path", "tcp");
    unsetenv("WEFT_ALGO");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "halving was asked for by name");
    cli_close(&cli);
    setenv("WEFT_DETERMINISTIC", "1", 1);
    cli_run(&cli, "explain", "allreduce", "-n", "4", "--path", "tcp", "--algo", "ring");
    unsetenv("WEFT_DETERMINISTIC");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err,
               "ring does not add in rank order, as deterministic mode demands; possible:");
    cli_close(&cli);
    setenv("WEFT_COSTS", "oneshot=10M", 1);
    cli_run(&cli, "explain", "allreduce", "-n", "2", "-b", "1M");
    assert_has(cli.out, "oneshot is the rule");
    cli_close(&cli);
    setenv("WEFT_COSTS", "oneshot=lots", 1);
    cli_run(&cli, "explain", "allreduce", "-n", "2");
    unsetenv("WEFT_COSTS");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "WEFT_COSTS: expected a rate or size");
    cli_close(&cli);
}

static void every_operation_is_explained(void **state)
{
    (void)state;
    static const char *const paths[] = {"shm", "tcp"};

    for (unsigned i = 0; i < 2 * WEFT_COLLS; i++) {
        struct cli cli;
        cli_run(&cli, "explain", weft_coll_name((weft_coll_t)(i / 2)), "-n", "5", "--path",
                paths[i % 2], "--root", "3");
        assert_int_equal(cli.status, 0);
        assert_has(cli.out, "<- chosen");
        assert_narrow(cli.out);
        cli_close(&cli);
    }
}

struct mistake {
    const char *args[8];
    const char *text;
};

static void mistakes_are_said(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {{NULL}, "which operation?"},
        {{"allreduce"}, "how many ranks? -n N, or --topology"},
        {{"allreduce", "broadcast", "-n", "4"}, "one operation, not more"},
        {{"allredcue", "-n", "4"},
         "there is no operation \"allredcue\"; did you mean \"allreduce\"?"},
        {{"fly", "-n", "4"}, "there is no operation \"fly\": allreduce, "},
        {{"allreduce", "-n", "0"}, "--ranks 0: expected a number, from 1"},
        {{"allreduce", "-n", "4", "--path", "pigeon"}, "--path pigeon: expected shm or tcp"},
        {{"broadcast", "-n", "4", "--root", "4"}, "--root 4: there are 4 ranks"},
        {{"allreduce", "-n", "4", "--algo", "rong"}, "there is no algorithm \"rong\""},
        {{"allreduce", "-n", "4", "--svg", "-", "--json"}, "both want stdout"},
        {{"allreduce", "-t", "hosts=2,ranks=x"}, "ranks=x: expected ranks=8 (per host)"},
        {{"allreduce", "-t", "hosts=2,speed=3"}, "there is no \"speed\" in a topology"},
        {{"allreduce", "-t", "hosts"}, "\"hosts\" in the topology: expected NAME=VALUE"},
        {{"allreduce", "-t", "hosts=2,rate=5"}, "rate=5: expected rate=100G"},
        {{"allreduce", "-t", "hosts=2,latency=5"}, "latency=5: expected latency=5us"},
        {{"allreduce", "-t", "hosts=0"}, "hosts=0: expected hosts=16"},
        {{"allreduce", "-n", "7", "-t", "hosts=2,ranks=3"},
         "7 ranks do not fill 2 hosts with 3 each"},
        {{"allreduce", "-t", "hosts=2,path=air"}, "path=air: expected path=shm or path=tcp"},
    };

    for (size_t i = 0; i < WEFT_COUNT_OF(mistakes); i++) {
        const char *const *args = mistakes[i].args;
        struct cli cli;
        cli_run(&cli, "explain", args[0], args[1], args[2], args[3], args[4], args[5], args[6]);
        if (cli.status != 2) {
            fail_msg("%s: status %d", mistakes[i].text, cli.status);
        }
        assert_has(cli.err, mistakes[i].text);
        assert_string_equal(cli.out, "");
        cli_close(&cli);
    }
}

static void help_has_two_examples(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "--help");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n  weft explain "), 2);
    assert_has(cli.out, "--svg");
    assert_narrow(cli.out);
    cli_close(&cli);
}

/* As many as a job can have, and not more. */
static void more_ranks_than_a_job_can_have_are_refused(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "barrier", "-n", "1000000");
    assert_int_equal(cli.status, 0);
    cli_close(&cli);
    cli_run(&cli, "explain", "barrier", "-n", "1000001");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "1000000");
    cli_close(&cli);
    cli_run(&cli, "explain", "barrier", "-t", "hosts=200000,ranks=6");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "1000000");
    cli_close(&cli);
}

#ifdef __SANITIZE_THREAD__ /* a hundred times slower */
#define VERY_MANY "10000"
#else
#define VERY_MANY "300000"
#endif

/* Every rank does very many things in every round: what is shown of it does not take longer for that. */
static void the_steps_of_very_many_ranks_are_shown_soon(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "explain", "alltoall", "-n", VERY_MANY, "--bytes", "1M");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "round 0");
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_ranks_than_a_job_can_have_are_refused),
        cmocka_unit_test(the_steps_of_very_many_ranks_are_shown_soon),
        cmocka_unit_test(the_choice_comes_with_reason_runners_up_and_steps),
        cmocka_unit_test(a_ring_is_one_line_per_kind_of_round),
        cmocka_unit_test(an_algorithm_that_cannot_do_it_is_refused),
        cmocka_unit_test(plans_of_a_scatter_are_those_of_a_job),
        cmocka_unit_test(a_tree_is_arrows),
        cmocka_unit_test(several_hosts_are_composed),
        cmocka_unit_test(json_has_the_fixed_keys),
        cmocka_unit_test(the_picture_goes_to_a_file_or_to_stdout),
        cmocka_unit_test(settings_count_as_in_a_job),
        cmocka_unit_test(every_operation_is_explained),
        cmocka_unit_test(mistakes_are_said),
        cmocka_unit_test(help_has_two_examples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
