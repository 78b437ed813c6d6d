/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"

static struct weft_cli_value *must_read(const char *text)
{
    char *why = NULL;
    struct weft_cli_value *value = weft_cli_json_read(text, &why);
    if (value == NULL) {
        fail_msg("%s: %s", text, why);
    }
    return value;
}

static void what_we_write_we_read(void **state)
{
    struct weft_cli_json json;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    (void)state;
    assert_non_null(out);
    weft_cli_json_open(&json, out);
    weft_cli_json_object(&json, "host");
    weft_cli_json_int(&json, "cores", 2);
    weft_cli_json_end(&json);
    weft_cli_json_text(&json, "odd", "a \"b\"\\\n\tc \x01 µs");
    weft_cli_json_real(&json, "none", NAN);
    weft_cli_json_bool(&json, "yes", true);
    weft_cli_json_array(&json, "list");
    weft_cli_json_real(&json, NULL, -2.5e-3);
    weft_cli_json_text(&json, NULL, "");
    assert_true(weft_cli_json_close(&json));
    assert_int_equal(fclose(out), 0);

    struct weft_cli_value *read = must_read(text);
    assert_string_equal(weft_cli_value_text(read, "weft"), weft_version());
    assert_float_equal(weft_cli_value_number(weft_cli_value_get(read, "host"), "cores"), 2, 0);
    assert_string_equal(weft_cli_value_text(read, "odd"), "a \"b\"\\\n\tc \x01 µs");
    assert_int_equal(weft_cli_value_get(read, "none")->kind, WEFT_CLI_VALUE_NULL);
    assert_true(isnan(weft_cli_value_number(read, "none")));
    assert_float_equal(weft_cli_value_number(read, "yes"), 1, 0);
    const struct weft_cli_value *list = weft_cli_value_get(read, "list");
    assert_float_equal(list->first->number, -2.5e-3, 1e-12);
    assert_string_equal(list->first->next->text, "");
    assert_null(list->first->next->next);
    weft_cli_value_free(read);
    free(text);
}

static void escapes_become_utf8(void **state)
{
    (void)state;
    struct weft_cli_value *read =
        must_read("[\"\\u0041\\u00b5\\u20Ac\\uD83d\\ude00\\/\\b\\f\\r\", \"\\ud83dx\"]");
    assert_string_equal(read->first->text, "A\xc2\xb5\xe2\x82\xac\xf0\x9f\x98\x80/\b\f\r");
    assert_string_equal(read->first->next->text, "\xef\xbf\xbdx"); /* half of a pair */
    weft_cli_value_free(read);
}

static void what_is_not_there_is_nothing(void **state)
{
    (void)state;
    struct weft_cli_value *read = must_read(" {\"a\": 1, \"b\": []} ");
    assert_null(weft_cli_value_get(read, "c"));
    assert_null(weft_cli_value_text(read, "a"));
    assert_true(isnan(weft_cli_value_number(read, "b")));
    assert_null(weft_cli_value_get(weft_cli_value_get(read, "b"), "a"));
    assert_null(weft_cli_value_text(NULL, "a"));
    weft_cli_value_free(read);
    weft_cli_value_free(NULL);
}

static void bad_json_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "line 1: expected a value"},
        {"{\"a\": 1,\n}", "line 2: expected a key"},
        {"{\"a\" 1}", "expected \":\""},
        {"{\"a\": 1", "expected \",\" or \"}\""},
        {"[1 2]", "expected \",\" or \"]\""},
        {"[1,]", "expected a value"},
        {"\n\n[nul]", "line 3: expected a value"},
        {"[nan]", "expected a value"},
        {"[+1]", "expected a value"},
        {"[1e999]", "expected a value"},
        {"\"a", "the end of a text"},
        {"\"a\nb\"", "the end of a text"},
        {"\"\\x\"", "the end of a text"},
        {"\"\\u12g4\"", "the end of a text"},
        {"\"a\\", "the end of a text"},
        {"[1] 2", "expected the end"},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        char *why = NULL;
        assert_null(weft_cli_json_read(cases[i].text, &why));
        if (why == NULL || strstr(why, cases[i].why) == NULL) {
            fail_msg("%s: said \"%s\"", cases[i].text, why != NULL ? why : "nothing");
        }
        free(why);
    }
}

static void a_tower_of_brackets_is_refused(void **state)
{
    char text[100001], *why = NULL;
    (void)state;
    memset(text, '[', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_null(weft_cli_json_read(text, &why));
    assert_non_null(strstr(why, "fewer levels"));
    free(why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_we_write_we_read),
        cmocka_unit_test(escapes_become_utf8),
        cmocka_unit_test(what_is_not_there_is_nothing),
        cmocka_unit_test(bad_json_is_refused_with_its_line),
        cmocka_unit_test(a_tower_of_brackets_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
