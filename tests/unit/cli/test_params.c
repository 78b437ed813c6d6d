/* SPDX-License-Identifier: Apache-2.0 */
#include "cli_support.h"

static void every_setting_is_listed_within_the_width(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "params");
    assert_int_equal(cli.status, 0);
    for (int i = 0; i < WEFT_PARAM_COUNT; i++) {
        const struct weft_param_info *info = weft_param_info((enum weft_param)i);
        char line[64];
        snprintf(line, sizeof(line), "\n%s ", info->env);
        assert_has(cli.out, line);
    }
    assert_has(cli.out, "how often an idle control connection says that its rank is alive");
    for (char *line = strtok(cli.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_in_range(strlen(line), 1, 100);
    }
    cli_close(&cli);
}

static void value_and_origin_come_from_the_environment(void **state)
{
    (void)state;
    struct cli cli;

    setenv("WEFT_HEARTBEAT", "100ms", 1);
    cli_run(&cli, "params", "heartbeat", "--json");
    unsetenv("WEFT_HEARTBEAT");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out,
               "\"name\": \"WEFT_HEARTBEAT\", \"type\": \"duration\", \"value\": \"100ms\", "
               "\"origin\": \"env\", \"default\": \"250ms\", \"range\": \"10ms .. 1min\", "
               "\"agreed\": true, \"sentence\": \"how often");
    assert_int_equal(support_count(cli.out, "\"name\""), 1);
    assert_int_equal(support_count(cli.out, "\n"), 1);
    cli_close(&cli);
    cli_run(&cli, "params", "WEFT_HEARTBEAT");
    assert_has(cli.out, "250ms  default  250ms");
    cli_close(&cli);
}

static void the_id_is_hidden_because_it_holds_the_secret(void **state)
{
    (void)state;
    struct cli cli;

    setenv("WEFT_ID", "weft1:topsecret", 1);
    cli_run(&cli, "params");
    assert_null(strstr(cli.out, "topsecret"));
    assert_null(strstr(cli.err, "topsecret"));
    assert_has(cli.out, "(hidden)");
    cli_close(&cli);
    cli_run(&cli, "params", "--json");
    unsetenv("WEFT_ID");
    assert_null(strstr(cli.out, "topsecret"));
    assert_has(cli.out, "(hidden)");
    cli_close(&cli);
}

static void a_setting_that_is_wrong_is_one_and_all_are_listed(void **state)
{
    (void)state;
    struct cli cli;

    setenv("WEFT_HEARTBEAT", "never", 1);
    setenv("WEFT_ID", "topsecret\n", 1);
    cli_run(&cli, "params");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "weft params: WEFT_HEARTBEAT=never");
    assert_has(cli.out, "  never ");
    assert_has(cli.out, "  env, refused  250ms ");
    assert_null(strstr(cli.out, "topsecret"));
    assert_null(strstr(cli.err, "topsecret"));
    for (int i = 0; i < WEFT_PARAM_COUNT; i++) {
        assert_has(cli.out, weft_param_info((enum weft_param)i)->env);
    }
    cli_close(&cli);
    cli_run(&cli, "params", "--json", "heartbeat");
    unsetenv("WEFT_HEARTBEAT");
    unsetenv("WEFT_ID");
    assert_int_equal(cli.status, 1);
    assert_has(cli.out, "\"value\": \"never\", \"origin\": \"env, refused\"");
    cli_close(&cli);
}

static void control_characters_do_not_reach_the_terminal(void **state)
{
    (void)state;
    struct cli cli;

    setenv("WEFT_HEARTBEAT", "1\033[31m", 1);
    setenv("WEFT_SECRET_FILE", "/a\033[2J\nb", 1);
    cli_run(&cli, "params");
    unsetenv("WEFT_HEARTBEAT");
    unsetenv("WEFT_SECRET_FILE");
    assert_null(strchr(cli.out, '\033'));
    assert_null(strchr(cli.err, '\033'));
    assert_has(cli.out, "1?[31m");
    assert_has(cli.out, "/a?[2J?b");
    cli_close(&cli);
}

static void an_unknown_name_is_two_with_the_nearest(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "params", "hartbeat");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "did you mean WEFT_HEARTBEAT?");
    cli_close(&cli);
    cli_run(&cli, "params", "log", "join");
    assert_int_equal(cli.status, 2);
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_is_listed_within_the_width),
        cmocka_unit_test(value_and_origin_come_from_the_environment),
        cmocka_unit_test(the_id_is_hidden_because_it_holds_the_secret),
        cmocka_unit_test(a_setting_that_is_wrong_is_one_and_all_are_listed),
        cmocka_unit_test(control_characters_do_not_reach_the_terminal),
        cmocka_unit_test(an_unknown_name_is_two_with_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
