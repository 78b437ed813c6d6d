/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"

static char *text;
static size_t text_len;
static struct weft_cli_json json;

static void begin(void)
{
    FILE *out = open_memstream(&text, &text_len);

    assert_non_null(out);
    weft_cli_json_open(&json, out);
}

/* Checks what follows the opening, which is the same for all. */
static void end_and_compare(const char *expected)
{
    char opening[64];

    snprintf(opening, sizeof(opening), "{\"weft\": \"%s\"", weft_version());
    assert_true(weft_cli_json_close(&json));
    fclose(json.out);
    assert_int_equal(strncmp(text, opening, strlen(opening)), 0);
    assert_string_equal(text + strlen(opening), expected);
    free(text);
}

static void empty_object_has_the_version(void **state)
{
    (void)state;
    begin();
    end_and_compare("}\n");
}

static void values_and_nesting_are_separated_right(void **state)
{
    (void)state;
    begin();
    weft_cli_json_array(&json, "a");
    weft_cli_json_int(&json, NULL, -3);
    weft_cli_json_object(&json, NULL);
    weft_cli_json_bool(&json, "t", true);
    weft_cli_json_bool(&json, "f", false);
    weft_cli_json_end(&json);
    weft_cli_json_array(&json, NULL);
    weft_cli_json_end(&json);
    weft_cli_json_end(&json);
    weft_cli_json_real(&json, "r", 1.25);
    end_and_compare(", \"a\": [-3, {\"t\": true, \"f\": false}, []], \"r\": 1.25}\n");
}

static void close_ends_what_is_open(void **state)
{
    (void)state;
    begin();
    weft_cli_json_array(&json, "a");
    weft_cli_json_object(&json, NULL);
    end_and_compare(", \"a\": [{}]}\n");
}

static void what_is_no_number_becomes_null(void **state)
{
    (void)state;
    begin();
    weft_cli_json_real(&json, "nan", (double)NAN);
    weft_cli_json_real(&json, "inf", -(double)INFINITY);
    weft_cli_json_text(&json, "text", NULL);
    end_and_compare(", \"nan\": null, \"inf\": null, \"text\": null}\n");
}

static void strings_are_escaped(void **state)
{
    (void)state;
    begin();
    weft_cli_json_text(&json, "a\"b", "\\ \" \n \t \x01 \x7f \xc3\xa9");
    end_and_compare(", \"a\\\"b\": \"\\\\ \\\" \\n \\t \\u0001 \\u007f \xc3\xa9\"}\n");
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    begin();
    weft_cli_json_text(&json, "cut", "\xe2\x82");
    weft_cli_json_text(&json, "overlong", "\xc0\xaf");
    weft_cli_json_text(&json, "surrogate", "\xed\xa0\x80");
    weft_cli_json_text(&json, "whole", "\xe2\x82\xac\xf0\x9f\x98\x80");
    end_and_compare(", \"cut\": \"\\ufffd\\ufffd\", \"overlong\": \"\\ufffd\\ufffd\", "
                    "\"surrogate\": \"\\ufffd\\ufffd\\ufffd\", "
                    "\"whole\": \"\xe2\x82\xac\xf0\x9f\x98\x80\"}\n");
}

static void an_output_that_cannot_be_written_is_told(void **state)
{
    (void)state;
    FILE *out = fopen("/dev/full", "w");

    assert_non_null(out);
    weft_cli_json_open(&json, out);
    assert_false(weft_cli_json_close(&json));
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_object_has_the_version),
        cmocka_unit_test(values_and_nesting_are_separated_right),
        cmocka_unit_test(close_ends_what_is_open),
        cmocka_unit_test(what_is_no_number_becomes_null),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(an_output_that_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
