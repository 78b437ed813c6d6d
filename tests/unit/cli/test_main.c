/* SPDX-License-Identifier: Apache-2.0 */
#include "cli_support.h"

static void help_lists_the_subcommands(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "--help");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\n  run ");
    assert_has(cli.out, "\n  bench ");
    assert_has(cli.out, "\n  params ");
    assert_string_equal(cli.err, "");
    cli_close(&cli);
}

static void version_is_the_librarys(void **state)
{
    (void)state;
    struct cli cli;
    char expected[64];

    snprintf(expected, sizeof(expected), "weft %s\n", weft_version());
    cli_run(&cli, "--version");
    assert_int_equal(cli.status, 0);
    assert_string_equal(cli.out, expected);
    cli_close(&cli);
}

static void an_unknown_subcommand_is_two_with_the_nearest_name(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "prams");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "\"prams\"; did you mean \"params\"?");
    assert_string_equal(cli.out, "");
    cli_close(&cli);
    cli_run(&cli, "frobnicate");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "weft --help");
    cli_close(&cli);
}

static void no_subcommand_is_two(void **state)
{
    (void)state;
    struct cli cli;

    cli_start(&cli, "", NULL);
    cli_wait(&cli);
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "usage: weft");
    cli_close(&cli);
}

static void output_that_cannot_be_written_is_one(void **state)
{
    (void)state;
    static const char *const words[][2] = {{"--help", NULL},
                                           {"--version", NULL},
                                           {"run", "--help"},
                                           {"params", NULL},
                                           {"params", "--json"}};

    for (size_t i = 0; i < WEFT_COUNT_OF(words); i++) {
        struct cli cli;
        support_stdout_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
        assert_true(support_stdout_fd >= 0);
        cli_run(&cli, words[i][0], words[i][1]);
        close(support_stdout_fd);
        support_stdout_fd = -1;
        assert_int_equal(cli.status, 1);
        assert_has(cli.err, "cannot write: No space left on device");
        cli_close(&cli);
    }
}

/* Nor does it go into what was opened in its place. */
static void output_that_has_no_place_to_go_is_one(void **state)
{
    (void)state;
    static const char *const words[][6] = {{"params", "--json", NULL},
                                           {"explain", "barrier", "-n", "4", NULL},
                                           {"run", "--json", "-n1", "--", "true", NULL}};

    for (size_t i = 0; i < WEFT_COUNT_OF(words); i++) {
        const char *const *it = words[i];
        struct cli cli;
        support_has_no_stdout = true;
        cli_run(&cli, it[0], it[1], it[2], it[3], it[4], it[5]);
        support_has_no_stdout = false;
        assert_int_equal(cli.status, 1);
        assert_has(cli.err, "cannot write: Bad file descriptor");
        cli_close(&cli);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_lists_the_subcommands),
        cmocka_unit_test(version_is_the_librarys),
        cmocka_unit_test(an_unknown_subcommand_is_two_with_the_nearest_name),
        cmocka_unit_test(no_subcommand_is_two),
        cmocka_unit_test(output_that_cannot_be_written_is_one),
        cmocka_unit_test(output_that_has_no_place_to_go_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
