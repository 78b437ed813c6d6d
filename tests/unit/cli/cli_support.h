/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the built `weft` and keeps what it prints. Output goes to memory files: nothing can block.
 */
#ifndef WEFT_TESTS_CLI_SUPPORT_H
#define WEFT_TESTS_CLI_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

#define PATIENCE_MS 20000
#define ARGS_MAX 24

struct cli {
    pid_t pid;
    int stdin_fd, out_fd, err_fd;
    int status;      /* exit status, or 256 + signal */
    char *out, *err; /* what was printed, ended with a zero */
};

static inline char *support_slurp(int fd)
{
    struct stat facts;

    assert_int_equal(fstat(fd, &facts), 0);
    char *text = calloc(1, (size_t)facts.st_size + 1);
    assert_non_null(text);
    assert_int_equal(pread(fd, text, (size_t)facts.st_size, 0), facts.st_size);
    return text;
}

/* Where stdout goes instead of the memory file; -1: there. */
static int support_stdout_fd = -1;
static bool support_has_no_stdout; /* it is closed */

/* input: what stdin holds. args are those behind "weft", ended with NULL. */
static inline void cli_start(struct cli *cli, const char *input, ...)
{
    char *args[ARGS_MAX] = {(char *)"weft"};
    va_list list;

    va_start(list, input);
    for (size_t i = 1; i < ARGS_MAX - 1 && (args[i] = va_arg(list, char *)) != NULL; i++) {
    }
    va_end(list);
    memset(cli, 0, sizeof(*cli));
    cli->stdin_fd = memfd_create("stdin", MFD_CLOEXEC);
    cli->out_fd = memfd_create("stdout", MFD_CLOEXEC);
    cli->err_fd = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(cli->stdin_fd >= 0 && cli->out_fd >= 0 && cli->err_fd >= 0);
    assert_int_equal(pwrite(cli->stdin_fd, input, strlen(input), 0), strlen(input));
    cli->pid = fork();
    assert_true(cli->pid >= 0);
    if (cli->pid == 0) {
        /* output of several processes must not overwrite itself: the offset is shared, appending */
        fcntl(cli->out_fd, F_SETFL, O_APPEND);
        fcntl(cli->err_fd, F_SETFL, O_APPEND);
        dup2(cli->stdin_fd, 0);
        dup2(support_stdout_fd >= 0 ? support_stdout_fd : cli->out_fd, 1);
        dup2(cli->err_fd, 2);
        if (support_has_no_stdout) {
            close(1);
        }
        execv(WEFT_CLI_PATH, args);
        _exit(126);
    }
}

/* Without a pidfd; false: it still runs. */
static inline bool support_await_end(pid_t pid)
{
    uint64_t deadline_ns = weft_clock_after_ms(PATIENCE_MS);
    siginfo_t facts = {0};

    while (facts.si_pid == 0 && weft_clock_ns() < deadline_ns) {
        assert_int_equal(waitid(P_PID, (id_t)pid, &facts, WEXITED | WNOHANG | WNOWAIT), 0);
        poll(NULL, 0, 1);
    }
    return facts.si_pid != 0;
}

/* Waits for a child, an adopted one too; kills it at the deadline. Returns exit status, or 256 +
 * signal. */
static inline int support_reap(pid_t pid)
{
    struct pollfd exited = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    int status;
    bool is_late;

    if (exited.fd >= 0) {
        is_late = poll(&exited, 1, PATIENCE_MS) != 1;
        close(exited.fd);
    } else { /* a valgrind does not know it */
        assert_int_equal(errno, ENOSYS);
        is_late = !support_await_end(pid);
    }
    if (is_late) {
        kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (is_late) {
        fail_msg("process %d did not end", (int)pid);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static inline void cli_wait(struct cli *cli)
{
    cli->status = support_reap(cli->pid);
    cli->out = support_slurp(cli->out_fd);
    cli->err = support_slurp(cli->err_fd);
}

static inline void cli_close(struct cli *cli)
{
    close(cli->stdin_fd);
    close(cli->out_fd);
    close(cli->err_fd);
    free(cli->out);
    free(cli->err);
}

#define cli_run(cli, ...)                                                                          \
    do {                                                                                           \
        cli_start(cli, "", __VA_ARGS__, NULL);                                                     \
        cli_wait(cli);                                                                             \
    } while (0)

static inline unsigned support_count(const char *text, const char *part)
{
    unsigned count = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

/* Until `part` was printed `count` times; fails at the deadline. */
static inline void cli_await(struct cli *cli, const char *part, unsigned count)
{
    uint64_t deadline_ns = weft_clock_after_ms(PATIENCE_MS);

    for (;;) {
        char *text = support_slurp(cli->out_fd);
        bool is_there = support_count(text, part) >= count;
        if (!is_there && weft_clock_ns() > deadline_ns) {
            kill(cli->pid, SIGKILL);
            fail_msg("no \"%s\" in \"%s\"", part, text);
        }
        free(text);
        if (is_there) {
            return;
        }
        poll(NULL, 0, 1);
    }
}

/* The number that follows the nth `before` in text (n from 0). */
static inline int support_number(const char *text, const char *before, unsigned n)
{
    const char *at = text;
    char *end;

    for (;; n--) {
        at = strstr(at, before);
        assert_non_null(at);
        at += strlen(before);
        if (n == 0) {
            break;
        }
    }
    long number = strtol(at, &end, 10);
    assert_true(end > at);
    return (int)number;
}

#define assert_has(text, part)                                                                     \
    do {                                                                                           \
        if (strstr(text, part) == NULL) {                                                          \
            fail_msg("no \"%s\" in \"%s\"", part, text);                                           \
        }                                                                                          \
    } while (0)

#endif
