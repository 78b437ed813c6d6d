/* SPDX-License-Identifier: Apache-2.0 */
/* weft run, by running it with a shell as the program. */
#include "cli_support.h"

#include <sys/prctl.h>
#include <sys/resource.h>

static void a_job_that_ends_well_is_fine(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "3", "--", "sh", "-c", "echo $WEFT_RANK of $WEFT_RANKS");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "0 of 3\n");
    assert_has(cli.out, "1 of 3\n");
    assert_has(cli.out, "2 of 3\n");
    assert_string_equal(cli.err, "");
    cli_close(&cli);
}

static void options_of_the_program_are_the_programs(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "1", "echo", "--json", "-n", "-x");
    assert_int_equal(cli.status, 0);
    assert_string_equal(cli.out, "--json -n -x\n");
    cli_close(&cli);
}

static void bad_usage_is_two(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "2");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "program");
    cli_close(&cli);
    cli_run(&cli, "run", "true");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "-n N is missing");
    cli_close(&cli);
    cli_run(&cli, "run", "-n", "0", "true");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "from 1 to 4096");
    cli_close(&cli);
    cli_run(&cli, "run", "-n", "1", "--timeout", "0", "true");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "from 1ms to 8760h");
    cli_close(&cli);
}

static void a_program_that_cannot_be_started_is_two_and_named(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "2", "--", "no-such-program-anywhere");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "cannot start no-such-program-anywhere: No such file");
    cli_close(&cli);
    cli_run(&cli, "run", "-n", "2", "--", "/etc/passwd");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "cannot start /etc/passwd: Permission denied");
    cli_close(&cli);
}

/* With few descriptors each step of starting fails in turn; none of them is bad usage. */
static void a_limit_of_the_system_is_not_bad_usage(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "1", "--", "sh", "-c",
            "l=8; while test $l -lt 24; do (ulimit -n $l; " WEFT_CLI_PATH
            " run -n 2 true; echo status $?) 2>&1; l=$((l+1)); done");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "status "), 16);
    assert_int_equal(support_count(cli.out, "status 2\n"), 0);
    assert_has(cli.out, "cannot start true: Too many open files (limit ");
    assert_null(strstr(cli.out, "--help"));
    cli_close(&cli);
}

static void the_first_rank_that_fails_ends_the_job_and_is_named(void **state)
{
    (void)state;
    struct cli cli;

    /* the others fail too, later, because they are ended */
    cli_run(&cli, "run", "-n", "4", "--", "sh", "-c",
            "test $WEFT_RANK = 2 && exit 5; trap 'exit 7' TERM; while :; do sleep 0.05; done");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "weft run: rank 2 (pid ");
    assert_has(cli.err, ") exited with status 5; the other 3 ranks were ended\n");
    cli_close(&cli);
}

static void a_rank_killed_by_a_signal_is_named_with_it(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "3", "--", "sh", "-c",
            "ulimit -c 0; test $WEFT_RANK = 1 && kill -SEGV $$; exec sleep 1000");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "weft run: rank 1 (pid ");
    assert_has(cli.err, ") was killed by SIGSEGV; the other 2 ranks were ended\n");
    cli_close(&cli);
}

/* Rank 0 fails when it is told to: the test decides when the others are ready. */
#define FAIL_ON_USR1 "test $WEFT_RANK = 0 && trap 'exit 3' USR1; "
#define FOR_EVER "while :; do sleep 0.02; done"

static void ranks_that_ignore_sigterm_are_killed_after_the_grace(void **state)
{
    (void)state;
    struct cli cli;

    cli_start(&cli, "", "run", "-n", "2", "--grace", "100ms", "--", "sh", "-c",
              "trap '' TERM USR1; " FAIL_ON_USR1 "echo ready; " FOR_EVER, NULL);
    cli_await(&cli, "ready", 2);
    kill(cli.pid, SIGUSR1);
    cli_wait(&cli);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, ") exited with status 3; the other rank was ended\n");
    cli_close(&cli);
}

static void a_job_past_its_timeout_is_ended(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "2", "--timeout", "0.1s", "--", "sleep", "1000");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "did not end within 0.100 s; its 2 ranks were ended");
    cli_close(&cli);
}

static void what_a_failed_rank_started_is_killed_with_it(void **state)
{
    (void)state;
    struct cli cli;

    /* orphans come to us, so that we see how they end */
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    cli_run(&cli, "run", "-n", "1", "--", "sh", "-c", "sleep 1000 & echo pid $!; exit 3");
    assert_int_equal(cli.status, 1);
    int pid = support_number(cli.out, "pid ", 0);
    assert_int_equal(support_reap(pid), 256 + SIGKILL);
    cli_close(&cli);
}

static void killing_the_runner_ends_the_ranks(void **state)
{
    (void)state;
    struct cli cli;

    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    cli_start(&cli, "", "run", "-n", "2", "--", "sh", "-c", "echo pid $$; exec sleep 1000", NULL);
    cli_await(&cli, "pid", 2);
    cli_await(&cli, "\n", 2);
    kill(cli.pid, SIGKILL);
    cli_wait(&cli);
    assert_int_equal(cli.status, 256 + SIGKILL);
    for (unsigned i = 0; i < 2; i++) {
        int pid = support_number(cli.out, "pid ", i);
        assert_int_equal(support_reap(pid), 256 + SIGKILL);
    }
    cli_close(&cli);
}

/* ---- signals ---- */

static void signals_are_passed_on_to_all_ranks(void **state)
{
    (void)state;
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

    for (size_t i = 0; i < WEFT_COUNT_OF(numbers); i++) {
        struct cli cli;
        cli_start(&cli, "", "run", "-n", "3", "--", "sh", "-c",
                  "for s in TERM INT HUP USR1 USR2; do trap \"echo got $s; exit 0\" $s; done; "
                  "echo ready; while :; do sleep 0.02; done",
                  NULL);
        cli_await(&cli, "ready", 3);
        kill(cli.pid, numbers[i]);
        cli_wait(&cli);
        assert_int_equal(cli.status, 0);
        char line[32];
        snprintf(line, sizeof(line), "got %s\n", sigabbrev_np(numbers[i]));
        assert_int_equal(support_count(cli.out, line), 3);
        cli_close(&cli);
    }
}

static char process_state(pid_t pid)
{
    char path[64], line[512] = "";

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return '?';
    }
    ssize_t got = read(fd, line, sizeof(line) - 1);
    close(fd);
    const char *end = got > 0 ? strrchr(line, ')') : NULL;
    return (char)(end != NULL ? end[2] : '?');
}

static void await_state(const struct cli *cli, pid_t pid, char wanted, bool is_wanted)
{
    uint64_t deadline_ns = weft_clock_after_ms(PATIENCE_MS);

    while ((process_state(pid) == wanted) != is_wanted) {
        if (weft_clock_ns() > deadline_ns) {
            kill(cli->pid, SIGKILL);
            fail_msg("process %d is in state %c", (int)pid, process_state(pid));
        }
        poll(NULL, 0, 1);
    }
}

static void stop_and_continue_reach_ranks_and_runner(void **state)
{
    (void)state;
    struct cli cli;

    cli_start(&cli, "", "run", "-n", "1", "--", "sh", "-c", "echo pid $$; exec sleep 1000", NULL);
    cli_await(&cli, "\n", 1);
    char *text = support_slurp(cli.out_fd);
    int pid = support_number(text, "pid ", 0);
    free(text);
    kill(cli.pid, SIGTSTP);
    await_state(&cli, pid, 'T', true);
    await_state(&cli, cli.pid, 'T', true);
    kill(cli.pid, SIGCONT);
    await_state(&cli, pid, 'T', false);
    await_state(&cli, cli.pid, 'T', false);
    kill(cli.pid, SIGTERM);
    cli_wait(&cli);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "was killed by SIGTERM");
    cli_close(&cli);
}

static void stopped_ranks_are_ended_too(void **state)
{
    (void)state;
    struct cli cli;

    cli_start(&cli, "", "run", "-n", "2", "--grace", "600s", "--", "sh", "-c",
              FAIL_ON_USR1 "test $WEFT_RANK = 0 || echo pid $$; "
                           "test $WEFT_RANK = 0 && echo ready; " FOR_EVER,
              NULL);
    cli_await(&cli, "ready", 1);
    cli_await(&cli, "\n", 2);
    char *text = support_slurp(cli.out_fd);
    int pid = support_number(text, "pid ", 0);
    free(text);
    kill(pid, SIGSTOP);
    await_state(&cli, pid, 'T', true);
    kill(cli.pid, SIGUSR1);
    cli_wait(&cli);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "rank 0 (pid ");
    cli_close(&cli);
}

/* ---- what a rank is given ---- */

static void only_rank_zero_has_stdin(void **state)
{
    (void)state;
    struct cli cli;

    cli_start(&cli, "words\n", "run", "-n", "3", "--", "sh", "-c",
              "while read word; do echo $WEFT_RANK $word; done; echo $(readlink /proc/$$/fd/0) end",
              NULL);
    cli_wait(&cli);
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "words"), 1);
    assert_has(cli.out, "0 words\n");
    assert_int_equal(support_count(cli.out, "/dev/null end\n"), 2);
    cli_close(&cli);
}

static void ranks_have_their_variables_and_no_stale_ones(void **state)
{
    (void)state;
    struct cli cli;

    setenv("WEFT_ROOT", "stale", 1);
    setenv("WEFT_ID", "stale", 1);
    setenv("WEFT_SECRET_FILE", "stale", 1);
    setenv("WEFT_LISTEN_FD", "99", 1);
    setenv("WEFT_JOB", "stale", 1);
    cli_run(&cli, "run", "-n", "2", "--tag-output", "--", "env");
    unsetenv("WEFT_ROOT");
    unsetenv("WEFT_ID");
    unsetenv("WEFT_SECRET_FILE");
    unsetenv("WEFT_LISTEN_FD");
    unsetenv("WEFT_JOB");
    assert_int_equal(cli.status, 0);
    assert_null(strstr(cli.out, "stale"));
    assert_has(cli.out, "[1] WEFT_RANK=1\n");
    assert_has(cli.out, "[1] WEFT_RANKS=2\n");
    assert_has(cli.out, "[1] WEFT_LOCAL_RANK=1\n");
    assert_has(cli.out, "[1] WEFT_LOCAL_RANKS=2\n");
    assert_has(cli.out, "[1] WEFT_SECRET_FD=");
    assert_has(cli.out, "[1] WEFT_JOB=run-");
    assert_has(cli.out, "[0] WEFT_LISTEN_FD=");
    assert_null(strstr(cli.out, "[1] WEFT_LISTEN_FD="));
    cli_close(&cli);
}

static void the_listener_is_rank_zeros_alone(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "-n", "2", "--tag-output", "--", "sh", "-c",
            "for f in /proc/$$/fd/*; do readlink $f; done; "
            "test $WEFT_RANK = 1 || readlink /proc/$$/fd/$WEFT_LISTEN_FD | sed s/^/listener:/");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "[0] listener:socket:");
    assert_null(strstr(cli.out, "[1] socket:"));
    assert_has(cli.out, "[1] /memfd:weft-secret");
    assert_null(strstr(cli.out, "anon_inode")); /* neither epoll nor signalfd of the runner */
    cli_close(&cli);
}

/* hex of 32 bytes, as a rank read them */
static void secret_of_a_job(char hex[65])
{
    struct cli cli;

    cli_run(&cli, "run", "-n", "2", "--", "sh", "-c",
            "s=$(od -An -v -tx1 /proc/self/fd/$WEFT_SECRET_FD | tr -d ' \\n'); echo secret $s; "
            "(echo x 1<>/proc/self/fd/$WEFT_SECRET_FD) 2>/dev/null && echo writable; "
            "cat /proc/$$/environ /proc/$$/cmdline /proc/$PPID/cmdline /proc/$PPID/environ "
            "| od -An -v -tx1 | tr -d ' \\n'");
    assert_int_equal(cli.status, 0);
    assert_int_equal(sscanf(cli.out, "secret %64s", hex), 1);
    assert_int_equal(strlen(hex), 64);
    assert_int_equal(support_count(cli.out, hex), 2); /* both ranks have it, nothing else does */
    assert_null(strstr(cli.out, "writable"));
    /* the dump is there, hex as text would have shown too */
    assert_has(cli.out, "574546545f52414e4b53"); /* WEFT_RANKS */
    char text_hex[129];
    for (size_t i = 0; i < 64; i++) {
        snprintf(text_hex + 2 * i, 3, "%02x", (unsigned)hex[i]);
    }
    assert_null(strstr(cli.out, text_hex));
    cli_close(&cli);
}

static void the_secret_is_fresh_sealed_and_in_no_environment_or_argument(void **state)
{
    (void)state;
    char first[65], second[65];

    secret_of_a_job(first);
    secret_of_a_job(second);
    assert_string_not_equal(first, second);
}

static void the_runner_raises_its_file_limit_but_not_the_ranks(void **state)
{
    (void)state;
    struct cli cli;
    struct rlimit old, low;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    cli_run(&cli, "run", "-n", "40", "--tag-output", "--", "sh", "-c", "ulimit -Sn");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "] 64\n"), 40);
    cli_close(&cli);
}

static void help_has_examples(void **state)
{
    (void)state;
    struct cli cli;

    cli_run(&cli, "run", "--help");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "examples:\n  weft run ");
    assert_has(cli.out, "--tag-output");
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_ends_well_is_fine),
        cmocka_unit_test(options_of_the_program_are_the_programs),
        cmocka_unit_test(bad_usage_is_two),
        cmocka_unit_test(a_program_that_cannot_be_started_is_two_and_named),
        cmocka_unit_test(a_limit_of_the_system_is_not_bad_usage),
        cmocka_unit_test(the_first_rank_that_fails_ends_the_job_and_is_named),
        cmocka_unit_test(a_rank_killed_by_a_signal_is_named_with_it),
        cmocka_unit_test(ranks_that_ignore_sigterm_are_killed_after_the_grace),
        cmocka_unit_test(a_job_past_its_timeout_is_ended),
        cmocka_unit_test(what_a_failed_rank_started_is_killed_with_it),
        cmocka_unit_test(killing_the_runner_ends_the_ranks),
        cmocka_unit_test(signals_are_passed_on_to_all_ranks),
        cmocka_unit_test(stop_and_continue_reach_ranks_and_runner),
        cmocka_unit_test(stopped_ranks_are_ended_too),
        cmocka_unit_test(only_rank_zero_has_stdin),
        cmocka_unit_test(ranks_have_their_variables_and_no_stale_ones),
        cmocka_unit_test(the_listener_is_rank_zeros_alone),
        cmocka_unit_test(the_secret_is_fresh_sealed_and_in_no_environment_or_argument),
        cmocka_unit_test(the_runner_raises_its_file_limit_but_not_the_ranks),
        cmocka_unit_test(help_has_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
