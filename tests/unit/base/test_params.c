/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <stdio.h>
#include <stdlib.h>

static struct weft_params params; /* static: several KiB */

/* Every test starts without a WEFT_ variable, whatever the shell has set. */
static int clean_environment(void **state)
{
    (void)state;
    for (char **entry = environ; *entry;) {
        char name[256];

        if (strncmp(*entry, "WEFT_", 5) != 0) {
            entry++;
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (unsetenv(name) != 0) {
            return -1;
        }
        entry = environ; /* the list has moved */
    }
    memset(&params, 0xee, sizeof(params));
    return weft_log_configure("warn") == WEFT_OK ? 0 : -1;
}

static void put(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void every_default_passes_its_own_check(void **state)
{
    (void)state;
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    for (unsigned i = 0; i < WEFT_PARAM_COUNT; i++) {
        const struct weft_param_info *info = weft_param_info(i);

        assert_int_equal(params.origin[i], WEFT_ORIGIN_DEFAULT);
        assert_string_equal(params.text[i], info->fallback);
        assert_int_equal(weft_params_set(&params, i, info->fallback), WEFT_OK);
        assert_int_equal(params.origin[i], WEFT_ORIGIN_CONFIG);
    }
}

static void every_setting_is_described(void **state)
{
    (void)state;
    for (unsigned i = 0; i < WEFT_PARAM_COUNT; i++) {
        const struct weft_param_info *info = weft_param_info(i);

        assert_int_equal(strncmp(info->env, "WEFT_", 5), 0);
        assert_true(strlen(info->sentence) > 10);
        assert_int_equal(info->type == WEFT_PARAM_CHOICE, info->choices != NULL);
        assert_true(info->type != WEFT_PARAM_TEXT || info->max < WEFT_PARAM_TEXT_LEN);
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(info->env, weft_param_info(j)->env);
        }
    }
}

static void defaults_have_their_values(void **state)
{
    (void)state;
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_int_equal(params.number[WEFT_PARAM_RANK], -1);
    assert_int_equal(params.number[WEFT_PARAM_TREE_DEGREE], 64);
    assert_int_equal(params.number[WEFT_PARAM_HEARTBEAT], 250);
    assert_int_equal(params.number[WEFT_PARAM_START_TIMEOUT], 30000);
    assert_int_equal(params.number[WEFT_PARAM_JOIN], 0);
    assert_string_equal(params.text[WEFT_PARAM_LOG], "warn");
    assert_string_equal(params.text[WEFT_PARAM_ROOT], "");
}

static void the_environment_is_read(void **state)
{
    (void)state;
    put("WEFT_RANK", "3");
    put("WEFT_HEARTBEAT", "2s");
    put("WEFT_JOIN", "local");
    put("WEFT_ROOT", "node1:4411");
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_int_equal(params.number[WEFT_PARAM_RANK], 3);
    assert_int_equal(params.number[WEFT_PARAM_HEARTBEAT], 2000);
    assert_int_equal(params.number[WEFT_PARAM_JOIN], 2);
    assert_string_equal(params.text[WEFT_PARAM_ROOT], "node1:4411");
    assert_int_equal(params.origin[WEFT_PARAM_RANK], WEFT_ORIGIN_ENV);
    assert_int_equal(params.origin[WEFT_PARAM_ROOT], WEFT_ORIGIN_ENV);
    assert_int_equal(params.origin[WEFT_PARAM_RANKS], WEFT_ORIGIN_DEFAULT);
}

static void a_name_that_only_begins_alike_is_another(void **state)
{
    (void)state;
    put("WEFT_RANK", "3");
    put("WEFT_RANKS", "8");
    put("WEFT_HEART", "abc"); /* no setting: neither checked nor taken */
    put("WEFT_RANKS_PER_HOST", "abc");
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_int_equal(params.number[WEFT_PARAM_RANK], 3);
    assert_int_equal(params.number[WEFT_PARAM_RANKS], 8);
    assert_int_equal(params.number[WEFT_PARAM_LOCAL_RANKS], -1);
}

static void an_empty_variable_counts_as_unset(void **state)
{
    (void)state;
    put("WEFT_RANK", "");
    put("WEFT_LOG", "");
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_int_equal(params.number[WEFT_PARAM_RANK], -1);
    assert_int_equal(params.origin[WEFT_PARAM_RANK], WEFT_ORIGIN_DEFAULT);
    assert_string_equal(params.text[WEFT_PARAM_LOG], "warn");
}

static void of_two_variables_of_a_name_the_first_counts(void **state)
{
    char first[] = "WEFT_RANK=1", second[] = "WEFT_RANK=2";
    char *both[] = {first, second, NULL};
    char **saved = environ;

    (void)state;
    environ = both;
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    environ = saved;
    assert_int_equal(params.number[WEFT_PARAM_RANK], 1);
}

static void a_program_without_environment_gets_the_defaults(void **state)
{
    char **saved = environ;

    (void)state;
    environ = NULL;
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    environ = saved;
    assert_int_equal(params.number[WEFT_PARAM_RANK], -1);
}

static void each_kind_of_bad_value_says_what_was_expected(void **state)
{
    static const struct {
        const char *name, *value, *text;
    } cases[] = {
        {"WEFT_HEARTBEAT", "abc", "WEFT_HEARTBEAT=abc: expected a duration between 10ms and 60s"},
        {"WEFT_HEARTBEAT", "9ms", "WEFT_HEARTBEAT=9ms: expected a duration between 10ms and 60s"},
        {"WEFT_HEARTBEAT", "61", "WEFT_HEARTBEAT=61: expected a duration between 10ms and 60s"},
        {"WEFT_TREE_DEGREE", "1", "WEFT_TREE_DEGREE=1: expected a number between 2 and 64"},
        {"WEFT_TREE_DEGREE", "65", "WEFT_TREE_DEGREE=65: expected a number between 2 and 64"},
        {"WEFT_PORT", "http", "WEFT_PORT=http: expected a number between 0 and 65535"},
        {"WEFT_RANK", "99999999999999999999",
         "WEFT_RANK=99999999999999999999: expected a number between -1 and 2147483647"},
        {"WEFT_JOIN", "maybe", "WEFT_JOIN=maybe: expected one of auto|direct|local"},
        {"WEFT_JOIN", "auto|direct", "WEFT_JOIN=auto|direct: expected one of auto|direct|local"},
        {"WEFT_JOIN", "loc", "WEFT_JOIN=loc: expected one of auto|direct|local"},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        put(cases[i].name, cases[i].value);
        assert_int_equal(weft_params_load(&params), WEFT_ERR_INVALID);
        assert_string_equal(weft_error_text(), cases[i].text);
        assert_int_equal(unsetenv(cases[i].name), 0);
    }
}

static void a_failed_load_writes_nothing(void **state)
{
    struct weft_params *before = malloc(sizeof(*before));

    (void)state;
    assert_non_null(before);
    *before = params;
    put("WEFT_RANK", "3");
    put("WEFT_HEARTBEAT", "abc");
    assert_int_equal(weft_params_load(&params), WEFT_ERR_INVALID);
    assert_memory_equal(&params, before, sizeof(params));
    free(before);
}

static void a_text_too_long_is_refused(void **state)
{
    char big[WEFT_PARAM_TEXT_LEN + 10];

    (void)state;
    memset(big, 'x', sizeof(big));
    big[255] = '\0';
    put("WEFT_ROOT", big);
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_string_equal(params.text[WEFT_PARAM_ROOT], big);
    big[255] = 'x';
    big[256] = '\0';
    put("WEFT_ROOT", big);
    assert_int_equal(weft_params_load(&params), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "expected at most 255 characters"));
}

static void the_log_setting_takes_effect(void **state)
{
    (void)state;
    put("WEFT_LOG", "net:debug,error");
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_true(weft_log_is_on(WEFT_ROOM_net, WEFT_LOG_DEBUG));
    assert_false(weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_WARN));
    put("WEFT_LOG", "loud");
    assert_int_equal(weft_params_load(&params), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "\"loud\" is not a level"));
}

static void a_log_level_set_by_the_program_survives_a_load(void **state)
{
    (void)state;
    assert_int_equal(weft_log_configure("debug"), WEFT_OK);
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_true(weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_DEBUG));
}

static void load_and_capture(char *text, size_t room)
{
    struct capture capture;

    capture_begin(&capture);
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    capture_end(&capture, text, room);
}

static void an_unknown_variable_is_warned_about_once_with_the_nearest_name(void **state)
{
    char text[1024];

    (void)state;
    put("WEFT_HARTBEAT", "1s");
    load_and_capture(text, sizeof(text));
    assert_string_equal(text, "weft base warn: WEFT_HARTBEAT is not a setting; did you mean "
                              "WEFT_HEARTBEAT?\n");
    load_and_capture(text, sizeof(text));
    assert_string_equal(text, "");
    put("WEFT_QUUX_ZORK", "1s");
    load_and_capture(text, sizeof(text));
    assert_string_equal(
        text, "weft base warn: WEFT_QUUX_ZORK is not a setting; `weft params` lists them\n");
}

static void what_other_faces_read_is_not_warned_about(void **state)
{
    char text[1024];

    (void)state;
    put("WEFT_LIBRARY", "/opt/weft/libweft.so");
    load_and_capture(text, sizeof(text));
    assert_string_equal(text, "");
}

static void a_warning_obeys_a_log_setting_that_comes_after_it(void **state)
{
    char unknown[] = "WEFT_FIRST_OF_ALL=1", log[] = "WEFT_LOG=off";
    char *list[] = {unknown, log, NULL};
    char **saved = environ;
    char text[1024];

    (void)state;
    environ = list;
    load_and_capture(text, sizeof(text));
    environ = saved;
    assert_string_equal(text, "");
}

/* F36 */
static void the_secret_of_an_id_is_never_printed(void **state)
{
    char big[WEFT_PARAM_TEXT_LEN + 64];
    char value[WEFT_PARAM_TEXT_LEN], text[1024];

    (void)state;
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    weft_params_print(&params, WEFT_PARAM_ID, value);
    assert_string_equal(value, "");

    put("WEFT_ID", "weft1:sesame");
    put("WEFT_IDD", "weft1:sesame");
    load_and_capture(text, sizeof(text));
    assert_non_null(strstr(text, "WEFT_IDD"));
    assert_null(strstr(text, "sesame"));
    assert_string_equal(params.text[WEFT_PARAM_ID], "weft1:sesame");
    weft_params_print(&params, WEFT_PARAM_ID, value);
    assert_string_equal(value, "(hidden)");

    memset(big, 's', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    put("WEFT_ID", big);
    assert_int_equal(weft_params_load(&params), WEFT_ERR_INVALID);
    assert_string_equal(weft_error_text(), "WEFT_ID=(hidden): expected at most 255 characters");
}

static void set_checks_like_load(void **state)
{
    (void)state;
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    assert_int_equal(weft_params_set(&params, WEFT_PARAM_TIMEOUT, "90s"), WEFT_OK);
    assert_int_equal(params.number[WEFT_PARAM_TIMEOUT], 90000);
    assert_int_equal(params.origin[WEFT_PARAM_TIMEOUT], WEFT_ORIGIN_CONFIG);
    assert_int_equal(weft_params_set(&params, WEFT_PARAM_TIMEOUT, "1ms"), WEFT_ERR_INVALID);
    assert_int_equal(weft_params_set(&params, WEFT_PARAM_TIMEOUT, ""), WEFT_ERR_INVALID);
    assert_int_equal(params.number[WEFT_PARAM_TIMEOUT], 90000);
    assert_string_equal(params.text[WEFT_PARAM_TIMEOUT], "90s");
}

static void values_are_printed_as_people_write_them(void **state)
{
    static const struct {
        enum weft_param param;
        const char *value, *printed;
    } cases[] = {
        {WEFT_PARAM_HEARTBEAT, "0.25", "250ms"},
        {WEFT_PARAM_TIMEOUT, "300", "5min"},
        {WEFT_PARAM_RANK, "7", "7"},
        {WEFT_PARAM_JOIN, "local", "local"},
        {WEFT_PARAM_JOIN, "auto", "auto"},
        {WEFT_PARAM_JOIN, "direct", "direct"},
        {WEFT_PARAM_ROOT, "[::1]:7", "[::1]:7"},
    };

    (void)state;
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        char text[WEFT_PARAM_TEXT_LEN];

        assert_int_equal(weft_params_set(&params, cases[i].param, cases[i].value), WEFT_OK);
        weft_params_print(&params, cases[i].param, text);
        assert_string_equal(text, cases[i].printed);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean_environment)
    const struct CMUnitTest tests[] = {
        TEST(every_default_passes_its_own_check),
        TEST(every_setting_is_described),
        TEST(defaults_have_their_values),
        TEST(the_environment_is_read),
        TEST(a_name_that_only_begins_alike_is_another),
        TEST(an_empty_variable_counts_as_unset),
        TEST(of_two_variables_of_a_name_the_first_counts),
        TEST(a_program_without_environment_gets_the_defaults),
        TEST(each_kind_of_bad_value_says_what_was_expected),
        TEST(a_failed_load_writes_nothing),
        TEST(a_text_too_long_is_refused),
        TEST(the_log_setting_takes_effect),
        TEST(a_log_level_set_by_the_program_survives_a_load),
        TEST(an_unknown_variable_is_warned_about_once_with_the_nearest_name),
        TEST(what_other_faces_read_is_not_warned_about),
        TEST(a_warning_obeys_a_log_setting_that_comes_after_it),
        TEST(the_secret_of_an_id_is_never_printed),
        TEST(set_checks_like_load),
        TEST(values_are_printed_as_people_write_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
