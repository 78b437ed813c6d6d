/* SPDX-License-Identifier: Apache-2.0 */
/* Reads back what a test's subject wrote to stderr; and runs part of a test in a forked child. */
#ifndef TEST_CAPTURE_H
#define TEST_CAPTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct capture {
    int file, saved;
};

static inline void capture_begin(struct capture *capture)
{
    capture->file = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(capture->file >= 0);
    capture->saved = dup(STDERR_FILENO);
    assert_true(capture->saved >= 0);
    assert_int_equal(dup2(capture->file, STDERR_FILENO), STDERR_FILENO);
}

static inline void capture_end(struct capture *capture, char *text, size_t room)
{
    ssize_t len;

    assert_int_equal(dup2(capture->saved, STDERR_FILENO), STDERR_FILENO);
    len = pread(capture->file, text, room - 1, 0);
    assert_true(len >= 0);
    text[len] = '\0';
    close(capture->saved);
    close(capture->file);
}

/* The child's verdict is its exit status: 0, or the number of the claim that did not hold. */
static inline int run_child(int (*body)(void *), void *context)
{
    int wait_status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        _exit(body(context));
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFEXITED(wait_status));
    return WEXITSTATUS(wait_status);
}

#endif
