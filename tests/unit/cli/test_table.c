/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"

static const struct weft_cli_column columns[] = {{"name", false}, {"ms", true}, {"note", false}};

static char *print(struct weft_cli_table *table)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    weft_cli_table_print(table, out);
    fclose(out);
    weft_cli_table_close(table);
    return text;
}

static void fill(struct weft_cli_table *table, const char *name, const char *ms, const char *note)
{
    weft_cli_table_cell(table, "%s", name);
    weft_cli_table_cell(table, "%s", ms);
    weft_cli_table_cell(table, "%s", note);
}

static void text_goes_left_and_numbers_right(void **state)
{
    (void)state;
    struct weft_cli_table *table = weft_cli_table_open(columns, 3);

    fill(table, "longer name", "1.5", "x");
    fill(table, "n", "100.25", "yy");
    char *text = print(table);
    assert_string_equal(text, "name             ms  note\n"
                              "longer name     1.5  x\n"
                              "n            100.25  yy\n");
    free(text);
}

static void utf8_counts_as_it_shows(void **state)
{
    (void)state;
    struct weft_cli_table *table = weft_cli_table_open(columns, 3);

    fill(table, "\xc3\xa9\xc3\xa9", "1", "x");
    fill(table, "abcdef", "2", "x");
    char *text = print(table);
    assert_string_equal(text, "name    ms  note\n"
                              "\xc3\xa9\xc3\xa9       1  x\n"
                              "abcdef   2  x\n");
    free(text);
}

static void an_unfinished_row_is_printed_as_far_as_it_goes(void **state)
{
    (void)state;
    struct weft_cli_table *table = weft_cli_table_open(columns, 3);

    weft_cli_table_cell(table, "a");
    char *text = print(table);
    assert_non_null(strstr(text, "\na "));
    free(text);
}

static void wide_text_gives_way_to_the_width(void **state)
{
    (void)state;
    char wide[300];
    struct weft_cli_table *table = weft_cli_table_open(columns, 3);

    memset(wide, 'w', sizeof(wide) - 1);
    wide[sizeof(wide) - 1] = '\0';
    fill(table, wide, "12345678", wide);
    char *text = print(table);
    assert_non_null(strstr(text, "12345678"));
    assert_non_null(strstr(text, "w..."));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_in_range(strlen(line), 1, WEFT_CLI_WIDTH);
    }
    free(text);
}

static void notes_are_indented_and_wrapped(void **state)
{
    (void)state;
    char note[400] = "";
    struct weft_cli_table *table = weft_cli_table_open(columns, 3);

    for (size_t i = 0; i < 30; i++) {
        memcpy(note + 11 * i, "word-ten12 ", 12);
    }
    fill(table, "a", "1", "b");
    weft_cli_table_note(table, note);
    char *text = print(table);
    unsigned words = 0, lines = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_in_range(strlen(line), 1, WEFT_CLI_WIDTH);
        lines += strncmp(line, "    word", 8) == 0;
        for (const char *at = line; (at = strstr(at, "word-ten12")) != NULL; at++) {
            words++;
        }
    }
    assert_int_equal(words, 30);
    assert_int_equal(lines, 4);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_goes_left_and_numbers_right),
        cmocka_unit_test(utf8_counts_as_it_shows),
        cmocka_unit_test(an_unfinished_row_is_printed_as_far_as_it_goes),
        cmocka_unit_test(wide_text_gives_way_to_the_width),
        cmocka_unit_test(notes_are_indented_and_wrapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
