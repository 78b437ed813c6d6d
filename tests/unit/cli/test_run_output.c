/* SPDX-License-Identifier: Apache-2.0 */
/* What weft run does with the ranks' output: whole lines, slow readers, readers that are gone. */
#include "cli_support.h"

static void tagged_lines_stay_whole(void **state)
{
    (void)state;
    struct cli cli;
    unsigned seen[4] = {0};

    /* each line in three writes */
    cli_run(&cli, "run", "-n", "4", "--tag-output", "--", "sh", "-c",
            "i=0; while test $i -lt 50; do printf 'a%s' $WEFT_RANK; printf b; printf 'c\\n'; "
            "i=$((i+1)); done");
    assert_int_equal(cli.status, 0);
    for (char *line = strtok(cli.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char expected[] = "[0] a0bc";
        expected[1] = expected[5] = line[1];
        assert_string_equal(line, expected);
        assert_in_range(line[1], '0', '3');
        seen[line[1] - '0']++;
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(seen[i], 50);
    }
    cli_close(&cli);
}

static void long_lines_and_unfinished_ones_stay_whole_too(void **state)
{
    (void)state;
    struct cli cli;
    unsigned longs = 0, ends = 0;

    cli_run(&cli, "run", "-n", "2", "--tag-output", "--", "sh", "-c",
            "head -c 300000 /dev/zero | tr '\\0' x; echo; printf 'no newline'");
    assert_int_equal(cli.status, 0);
    for (char *line = strtok(cli.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strcmp(line + 4, "no newline") == 0) {
            ends++;
        } else {
            assert_int_equal(strspn(line + 4, "x"), 300000);
            assert_int_equal(strlen(line), 300004);
            longs++;
        }
    }
    assert_int_equal(longs, 2);
    assert_int_equal(ends, 2);
    cli_close(&cli);
}

static void tagged_stderr_stays_stderr(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "1", "--tag-output", "--", "sh", "-c", "echo out; echo err >&2");
    assert_string_equal(cli.out, "[0] out\n");
    assert_string_equal(cli.err, "[0] err\n");
    cli_close(&cli);
}

/* Starts with stdout in a pipe; returns its read end. */
static int pipe_for_stdout(int flags)
{
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, flags), 0);
    support_stdout_fd = ends[1];
    return ends[0];
}

static void close_write_end(void)
{
    close(support_stdout_fd);
    support_stdout_fd = -1;
}

static void output_that_nobody_reads_does_not_hold_up_the_timeout(void **state)
{
    (void)state;
    struct cli cli;
    uint64_t start_ns = weft_clock_ns();
    int unread = pipe_for_stdout(0);

    cli_start(&cli, "", "run", "-n", "2", "--tag-output", "--timeout", "200ms", "--grace", "200ms",
              "yes", NULL);
    close_write_end();
    cli_wait(&cli);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "did not end within 0.200 s; its 2 ranks were ended");
    assert_true(weft_clock_ns() - start_ns < 5000 * WEFT_NS_PER_MS);
    close(unread);
    cli_close(&cli);
}

static void output_that_nobody_reads_does_not_hold_up_signals(void **state)
{
    (void)state;
    struct cli cli;
    int unread = pipe_for_stdout(0);

    cli_start(&cli, "", "run", "-n", "2", "--tag-output", "--grace", "100ms", "yes", NULL);
    struct pollfd full = {.fd = support_stdout_fd, .events = POLLOUT};
    uint64_t deadline_ns = weft_clock_after_ms(PATIENCE_MS);
    while (poll(&full, 1, 0) == 1 && weft_clock_ns() < deadline_ns) {
        poll(NULL, 0, 1);
    }
    close_write_end();
    kill(cli.pid, SIGTERM);
    cli_wait(&cli);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "was killed by SIGTERM");
    close(unread);
    cli_close(&cli);
}

static void the_lost_end_of_output_is_a_failure(void **state)
{
    (void)state;
    struct cli cli;
    int unread = pipe_for_stdout(0);

    cli_start(&cli, "", "run", "-n", "1", "--tag-output", "--grace", "50ms", "seq", "20000", NULL);
    close_write_end();
    cli_wait(&cli);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "output was not read, and is lost");
    close(unread);
    cli_close(&cli);
}

/* Reads in small pieces, with a pause after each. */
static void a_slow_reader_gets_every_line(void **state)
{
    (void)state;
    static const int flags[] = {0, O_NONBLOCK};
    enum { LINES = 40000, PIECE = 8192 };

    for (size_t i = 0; i < WEFT_COUNT_OF(flags); i++) {
        struct cli cli;
        char piece[PIECE];
        unsigned lines[2] = {0}, starts = 0;
        char last = '\n', before = 0;
        ssize_t got;
        int fd = pipe_for_stdout(flags[i]);
        cli_start(&cli, "", "run", "-n", "2", "--tag-output", "seq", "40000", NULL);
        close_write_end();
        while ((got = read(fd, piece, sizeof(piece))) > 0) {
            for (ssize_t k = 0; k < got; k++) {
                starts += last == '\n' && piece[k] == '[';
                if (last == '[' && before == '\n') {
                    assert_in_range(piece[k], '0', '1');
                    lines[piece[k] - '0']++;
                }
                before = last;
                last = piece[k];
            }
            poll(NULL, 0, 1);
        }
        cli_wait(&cli);
        assert_int_equal(cli.status, 0);
        assert_string_equal(cli.err, "");
        assert_int_equal(starts, 2 * LINES);
        assert_int_equal(lines[0], LINES);
        assert_int_equal(lines[1], LINES);
        close(fd);
        cli_close(&cli);
    }
}

static void output_that_cannot_be_written_is_a_failure(void **state)
{
    (void)state;
    struct cli cli;

    support_stdout_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(support_stdout_fd >= 0);
    cli_run(&cli, "run", "-n", "2", "--tag-output", "echo", "hello");
    close_write_end();
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "weft run: cannot write: No space left on device");
    cli_close(&cli);
}

static void json_is_one_object_and_all_else_goes_to_stderr(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "2", "--json", "--", "echo", "hello");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\"command\": \"run\", \"ranks\": 2, \"status\": 0, \"failed\": null, ");
    assert_has(cli.out, "\"ranks_result\": [{\"rank\": 0, \"pid\": ");
    assert_int_equal(support_count(cli.out, "\"exit\": 0, \"signal\": null"), 2);
    assert_int_equal(support_count(cli.out, "\n"), 1);
    assert_string_equal(cli.err, "hello\nhello\n");
    cli_close(&cli);
    cli_run(&cli, "run", "-n", "2", "--json", "--", "sh", "-c", "exit $WEFT_RANK");
    assert_int_equal(cli.status, 1);
    assert_has(cli.out, "\"status\": 1, \"failed\": {\"rank\": 1, \"reason\": \"rank 1 (pid ");
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tagged_lines_stay_whole),
        cmocka_unit_test(long_lines_and_unfinished_ones_stay_whole_too),
        cmocka_unit_test(tagged_stderr_stays_stderr),
        cmocka_unit_test(output_that_nobody_reads_does_not_hold_up_the_timeout),
        cmocka_unit_test(output_that_nobody_reads_does_not_hold_up_signals),
        cmocka_unit_test(the_lost_end_of_output_is_a_failure),
        cmocka_unit_test(a_slow_reader_gets_every_line),
        cmocka_unit_test(output_that_cannot_be_written_is_a_failure),
        cmocka_unit_test(json_is_one_object_and_all_else_goes_to_stderr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
