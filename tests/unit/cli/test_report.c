/* SPDX-License-Identifier: Apache-2.0 */
/* The page of results: which curves there are, and that it is one whole, well-formed file. */
#include "cli_support.h"

#include <math.h>

#include "cli/report.h"

#define ROW(op, ranks, bytes, more)                                                                \
    "{\"op\": \"" op "\", \"ranks\": " #ranks ", \"bytes\": " #bytes ", " more "}"
#define TIME(us) "\"time_us\": {\"p50\": " #us ", \"p99\": 9.5}, \"busbw_gbs\": 0.5"

static struct weft_cli_value *json;
static struct weft_report report;

static void open_report(const char *text)
{
    char *why = NULL;
    json = weft_cli_json_read(text, &why);
    if (json == NULL) {
        fail_msg("%s", why);
    }
    assert_true(weft_report_open(json, &report));
}

static void close_report(void)
{
    weft_report_close(&report);
    weft_cli_value_free(json);
}

static char *page(void)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    weft_report_page(out, json, &report);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* ---- curves ---- */

static void results_become_groups_and_lines(void **state)
{
    (void)state;
    open_report(
        "{\"results\": [" ROW("allreduce", 2, 64, "\"path\": \"shm\", \"inplace\": false, " TIME(2)) "," ROW(
            "allreduce", 2, 8,
            "\"path\": \"shm\", \"inplace\": false, " TIME(
                1)) "," ROW("allreduce", 2, 8,
                            "\"path\": \"shm\", \"inplace\": true, " TIME(
                                3)) "," ROW("allreduce", 4, 8,
                                            "\"path\": \"shm\", \"inplace\": true, " TIME(
                                                4)) "," ROW("allgather", 2, 8,
                                                            "\"path\": \"shm\", \"inplace\": "
                                                            "true, " TIME(
                                                                5)) "," ROW("allreduce", 2, 8,
                                                                            "\"path\": \"tcp\", "
                                                                            "\"inplace\": "
                                                                            "true, " TIME(
                                                                                6)) "," ROW("allred"
                                                                                            "uce",
                                                                                            2, 16,
                                                                                            "\"path"
                                                                                            "\": "
                                                                                            "\"shm"
                                                                                            "\", "
                                                                                            "\"refu"
                                                                                            "sed\":"
                                                                                            " \"no"
                                                                                            "\"") "]}");
    assert_int_equal(report.count, 4);
    assert_int_equal(report.group[0].count, 2);
    assert_string_equal(report.group[0].line[0].name, "weft, out of place");
    assert_string_equal(report.group[0].line[1].name, "weft, in place");
    assert_int_equal(report.group[0].line[0].count, 2); /* sorted */
    assert_float_equal(report.group[0].line[0].point[0].us, 1, 0);
    assert_float_equal(report.group[0].line[0].point[1].us, 2, 0);
    assert_int_equal(report.group[1].ranks, 4);
    assert_string_equal(report.group[2].op, "allgather");
    assert_string_equal(report.group[3].path, "tcp");
    close_report();
}

static void lines_are_named_by_program_or_by_the_algorithm_asked_for(void **state)
{
    (void)state;
    open_report("{\"args\": {\"algo\": \"all\"}, \"results\": [" ROW(
        "reduce", 2, 8,
        "\"algo\": \"ring\", " TIME(
            1)) "," ROW("reduce", 2, 8,
                        "\"algo\": \"tree\", " TIME(
                            1)) "," ROW("reduce", 2, 8,
                                        "\"algo\": \"tree\", \"who\": \"openmpi\", " TIME(1)) "]}");
    assert_int_equal(report.group[0].count, 3);
    assert_string_equal(report.group[0].line[0].name, "ring");
    assert_string_equal(report.group[0].line[1].name, "tree");
    assert_string_equal(report.group[0].line[2].name, "openmpi");
    close_report();
    open_report("{\"args\": {\"algo\": null}, \"results\": [" ROW(
        "reduce", 2, 8,
        "\"algo\": \"ring\", " TIME(1)) "," ROW("reduce", 2, 64,
                                                "\"algo\": \"tree\", " TIME(1)) "]}");
    assert_int_equal(report.group[0].count, 1); /* chosen, not asked for */
    assert_true(report.group[0].line[0].is_weft);
    close_report();
}

static void the_limit_is_a_line_of_its_own(void **state)
{
    (void)state;
    open_report("{\"results\": [" ROW("reduce", 2, 8, "\"limit_us\": 0.5, " TIME(2)) "]}");
    assert_int_equal(report.group[0].count, 2);
    assert_true(report.group[0].line[0].is_limit);
    assert_float_equal(report.group[0].line[0].point[0].us, 0.5, 0);
    assert_float_equal(report.group[0].line[0].point[0].busbw_gbs, 2, 1e-12);
    close_report();
}

static void a_barrier_is_drawn_over_its_ranks(void **state)
{
    (void)state;
    open_report(
        "{\"results\": [" ROW("barrier", 4, 0, TIME(2)) "," ROW("barrier", 2, 0, TIME(1)) "]}");
    assert_int_equal(report.count, 1);
    assert_int_equal(report.group[0].ranks, 0);
    assert_int_equal(report.group[0].line[0].count, 2);
    assert_float_equal(report.group[0].line[0].point[0].x, 2, 0);
    char *text = page();
    assert_has(text, ">ranks</text>");
    assert_null(strstr(text, "nan"));
    free(text);
    close_report();
}

static void without_results_there_is_no_page(void **state)
{
    static const char *const texts[] = {"{}", "[]", "{\"results\": {}}", "{\"results\": [1, null]}",
                                        "{\"results\": [{\"op\": \"reduce\", \"bytes\": 8}]}"};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        char *why = NULL;
        json = weft_cli_json_read(texts[i], &why);
        assert_non_null(json);
        assert_false(weft_report_open(json, &report));
        close_report();
    }
}

/* ---- the page ---- */

/* Every element that is opened is closed, in order; <meta> and <!…> are not. */
static void assert_well_formed(const char *text)
{
    static char stack[64][16];
    unsigned depth = 0;
    for (const char *at = text; (at = strchr(at, '<')) != NULL; at++) {
        const char *end = strchr(at, '>');
        bool is_closing = at[1] == '/';
        char name[16] = "";
        assert_non_null(end);
        size_t len = strcspn(at + 1 + is_closing, " >/\n");
        assert_true(len < sizeof(name));
        memcpy(name, at + 1 + is_closing, len);
        if (is_closing) {
            assert_true(depth > 0);
            assert_string_equal(stack[--depth], name);
        } else if (name[0] != '!' && strcmp(name, "meta") != 0 && end[-1] != '/') {
            assert_true(depth < WEFT_COUNT_OF(stack));
            memcpy(stack[depth++], name, sizeof(name));
        }
    }
    assert_int_equal(depth, 0);
}

/* All coordinates lie in the picture. */
static void assert_inside(const char *text)
{
    unsigned marks = 0;
    for (const char *at = text; (at = strstr(at, "<circle")) != NULL; at++, marks++) {
        double x = strtod(strstr(at, "cx=\"") + 4, NULL), y = strtod(strstr(at, "cy=\"") + 4, NULL);
        assert_true(x >= 0 && x <= 470 && y >= 0 && y <= 300);
    }
    assert_true(marks > 0);
}

static void the_page_is_whole_and_stands_alone(void **state)
{
    (void)state;
    open_report(
        "{\"weft\": \"0.1.0\", \"title\": \"<b> & \\\"\", \"date\": \"2026-01-01\", \"peers\": "
        "\"Open MPI 4\", \"host\": {\"cores\": 2, \"cpu\": \"A & B\"}, \"notes\": [\"a < b\"], "
        "\"tables\": [{\"title\": \"Ratios\", \"shade\": true, \"columns\": [\"op\", \"n\", "
        "\"8\"], \"rows\": [[\"allreduce\", \"2\", \"2.50\"], [\"allreduce\", \"4\", "
        "\"0.90\"], [\"reduce\", \"4\", \"-\"]]}], \"results\": [" ROW(
            "allreduce", 2, 8,
            "\"who\": \"weft\", " TIME(
                0.05)) "," ROW("allreduce", 2, 67108864,
                               "\"who\": \"weft\", " TIME(
                                   12345)) "," ROW("allreduce", 2, 8,
                                                   "\"who\": \"open<mpi\", \"wrong\": 3, " TIME(
                                                       0.3)) "]}");
    char *text = page();
    assert_well_formed(text);
    assert_inside(text);
    assert_null(strstr(text, "<b>"));
    assert_has(text, "&lt;b&gt; &amp; &quot;</h1>");
    assert_has(text, "open&lt;mpi");
    assert_has(text, "A &amp; B");
    assert_has(text, "2026-01-01");
    assert_has(text, "<td class=\"good\">2.50</td>");
    assert_has(text, "<td class=\"bad\">0.90</td>");
    assert_has(text, "<td class=\"\">-</td>");
    assert_int_equal(support_count(text, "<svg class=\"chart\""), 2);
    static const char *const foreign[] = {
        "<script", "http:", "https:", "src=", "href=", "url(", "@import", "nan", "inf\""};
    for (size_t i = 0; i < WEFT_COUNT_OF(foreign); i++) {
        assert_null(strstr(text, foreign[i]));
    }
    free(text);
    close_report();
}

static void many_lines_and_single_points_are_drawn(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    (void)state;
    assert_non_null(out);
    fprintf(out, "{\"results\": [");
    for (int i = 0; i < 20; i++) {
        fprintf(out, "%s" ROW("reduce", 2, 8, "\"who\": \"p%d\", " TIME(1)), i > 0 ? "," : "", i);
    }
    fprintf(out, "]}");
    assert_int_equal(fclose(out), 0);
    open_report(text);
    free(text);
    assert_int_equal(report.group[0].count, 20);
    text = page();
    assert_well_formed(text);
    assert_inside(text);
    assert_has(text, "l c0 d"); /* dashes tell apart what has the same colour */
    free(text);
    close_report();
}

static void small_figures_keep_their_digits(void **state)
{
    char text[WEFT_REPORT_FIGURE_LEN];
    (void)state;
    assert_string_equal(weft_report_figure(0.00021, text), "0.00021");
    assert_string_equal(weft_report_figure(0.0571, text), "0.057");
    assert_string_equal(weft_report_figure(12345.6, text), "12346");
    assert_string_equal(weft_report_figure(0, text), "0.000");
    assert_string_equal(weft_report_figure(NAN, text), "");
}

/* ---- the command ---- */

static void the_command_makes_the_page(void **state)
{
    struct cli cli;
    char folder[] = "/tmp/weft-report-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    char *target = weft_cli_format("%s/out.html", folder);
    cli_start(&cli, "{\"results\": [" ROW("reduce", 2, 8, TIME(1)) "]}", "bench", "report", "-",
              "--output", target, NULL);
    cli_wait(&cli);
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    int fd = open(target, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    char *text = support_slurp(fd);
    assert_well_formed(text);
    close(fd);
    free(text);
    cli_close(&cli);
    unlink(target);
    rmdir(folder);
    free(target);
}

static void bad_files_are_named(void **state)
{
    static const struct {
        const char *input, *file, *output, *words;
        int status;
    } cases[] = {
        {"{", "-", "/nonexistent/x", "line 1", 1},
        {"{}", "-", "/nonexistent/x", "no results", 1},
        {"{\"results\": [" ROW("reduce", 2, 8, TIME(1)) "]}", "-", "/nonexistent/x",
         "/nonexistent/x: No such file", 1},
        {"", "/nonexistent/results.json", "/tmp/x", "/nonexistent/results.json: No such file", 1},
    };
    struct cli cli;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        cli_start(&cli, cases[i].input, "bench", "report", cases[i].file, "--output",
                  cases[i].output, NULL);
        cli_wait(&cli);
        assert_int_equal(cli.status, cases[i].status);
        assert_has(cli.err, cases[i].words);
        cli_close(&cli);
    }
    cli_run(&cli, "bench", "report");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "expected one file");
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_become_groups_and_lines),
        cmocka_unit_test(lines_are_named_by_program_or_by_the_algorithm_asked_for),
        cmocka_unit_test(the_limit_is_a_line_of_its_own),
        cmocka_unit_test(a_barrier_is_drawn_over_its_ranks),
        cmocka_unit_test(without_results_there_is_no_page),
        cmocka_unit_test(the_page_is_whole_and_stands_alone),
        cmocka_unit_test(many_lines_and_single_points_are_drawn),
        cmocka_unit_test(small_figures_keep_their_digits),
        cmocka_unit_test(the_command_makes_the_page),
        cmocka_unit_test(bad_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
