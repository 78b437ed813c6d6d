/* SPDX-License-Identifier: Apache-2.0 */
#include "cli_support.h"

#include "cli/cli.h"

static struct {
    bool flag;
    int64_t number;
    uint64_t size, duration;
    const char *text;
    struct weft_cli_list list;
} values;

static const struct weft_cli_option options[] = {
    {"flag", 'f', WEFT_CLI_FLAG, NULL, "a flag", &values.flag, 0, 0},
    {"number", 'n', WEFT_CLI_INT, "N", "a number", &values.number, 1, 9},
    {"size", 0, WEFT_CLI_SIZE, "BYTES", "a size", &values.size, 0, 0},
    {"duration", 0, WEFT_CLI_DURATION, "TIME", "a duration", &values.duration, 0, 0},
    {"text", 't', WEFT_CLI_TEXT, "WORD", "a text", &values.text, 0, 0},
    {"list", 'l', WEFT_CLI_LIST, "N,...", "a list", &values.list, 1, 99},
    {0},
};

static struct weft_cli_command command = {
    .name = "test",
    .summary = "tests",
    .usage = "[options]",
    .options = options,
    .examples = {"weft test one", "weft test two"},
};

static int rest;
static char *said; /* on stderr, of the latest parse */

/* words: "a b c"; returns what weft_cli_parse returns */
static int parse(const char *words)
{
    static char copy[256];
    static char *argv[ARGS_MAX];
    char *at = copy;
    int argc = 1;

    memset(&values, 0, sizeof(values));
    snprintf(copy, sizeof(copy), "%s", words);
    argv[0] = (char *)"test";
    for (char *word; (word = strsep(&at, " ")) != NULL && argc < ARGS_MAX - 1;) {
        if (*word != '\0') {
            argv[argc++] = word;
        }
    }
    argv[argc] = NULL;
    int saved = dup(2);
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    dup2(fd, 2);
    rest = -1;
    int status = weft_cli_parse(&command, argc, argv, &rest);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    free(said);
    said = support_slurp(fd);
    close(fd);
    return status;
}

static void every_kind_is_stored(void **state)
{
    (void)state;
    assert_int_equal(parse("-f --number 3 --size 2K --duration=5s -tword --list 2,8"), -1);
    assert_true(values.flag);
    assert_int_equal(values.number, 3);
    assert_int_equal(values.size, 2048);
    assert_int_equal(values.duration, 5000);
    assert_string_equal(values.text, "word");
    assert_int_equal(values.list.count, 2);
    assert_int_equal(values.list.value[1], 8);
    assert_string_equal(said, "");
}

static void operands_may_come_first_or_last(void **state)
{
    (void)state;
    assert_int_equal(parse("one -f two -n 4"), -1);
    assert_int_equal(rest, 4);
    assert_true(values.flag);
    assert_int_equal(values.number, 4);
}

static void a_prefix_stops_at_the_first_operand(void **state)
{
    (void)state;
    command.is_prefix_of_others = true;
    assert_int_equal(parse("-n 4 prog -f"), -1);
    command.is_prefix_of_others = false;
    assert_int_equal(rest, 3);
    assert_false(values.flag);
}

static void values_outside_their_range_are_refused(void **state)
{
    (void)state;
    assert_int_equal(parse("-n 10"), 2);
    assert_has(said, "weft test: --number 10: expected a number, from 1 to 9");
    assert_int_equal(parse("-n 0"), 2);
    assert_int_equal(parse("-l 5,100"), 2);
    assert_has(said, "--list 5,100");
    assert_int_equal(parse("--size -4"), 2);
    assert_has(said, "a size such as");
    assert_int_equal(parse("--size 18446744073709551615"), 2);
    assert_int_equal(values.size, 0);
}

static void unknown_options_are_named_with_the_nearest(void **state)
{
    (void)state;
    assert_int_equal(parse("--nubmer 3"), 2);
    assert_has(said, "there is no option --nubmer; did you mean --number?");
    assert_has(said, "see `weft test --help`");
    assert_int_equal(parse("operand -fz"), 2);
    assert_has(said, "there is no option -z\n");
}

static void a_missing_value_is_told(void **state)
{
    (void)state;
    assert_int_equal(parse("-f -n"), 2);
    assert_has(said, "-n needs a value");
    assert_int_equal(parse("--text"), 2);
    assert_has(said, "--text needs a value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_stored),
        cmocka_unit_test(operands_may_come_first_or_last),
        cmocka_unit_test(a_prefix_stops_at_the_first_operand),
        cmocka_unit_test(values_outside_their_range_are_refused),
        cmocka_unit_test(unknown_options_are_named_with_the_nearest),
        cmocka_unit_test(a_missing_value_is_told),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(said);
    return failed;
}
