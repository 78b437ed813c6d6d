/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

static void every_status_has_a_name_and_a_sentence(void **state)
{
    (void)state;
#define CHECK_STATUS(name, number, sentence)                                                       \
    assert_int_equal(WEFT_##name, number);                                                         \
    assert_string_equal(weft_status_name(WEFT_##name), #name);                                     \
    assert_string_equal(weft_status_text(WEFT_##name), sentence);
    WEFT_STATUS_LIST(CHECK_STATUS)
#undef CHECK_STATUS
}

static void a_status_out_of_range_has_texts_too(void **state)
{
    (void)state;
    assert_string_equal(weft_status_name((weft_status_t)999), "ERR_UNKNOWN");
    assert_non_null(weft_status_text((weft_status_t)999));
}

static void version_is_the_headers(void **state)
{
    char expected[32];

    (void)state;
    snprintf(expected, sizeof(expected), "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
             WEFT_VERSION_PATCH);
    assert_string_equal(weft_version(), expected);
}

static void fail_keeps_the_text_and_returns_the_status(void **state)
{
    (void)state;
    assert_int_equal(weft_fail(WEFT_ERR_PEER, "rank %d left", 3), WEFT_ERR_PEER);
    assert_string_equal(weft_error_text(), "rank 3 left");
}

static void fail_can_wrap_the_text_before_it(void **state)
{
    (void)state;
    weft_fail(WEFT_ERR_PEER, "inner");
    weft_fail(WEFT_ERR_PEER, "outer: %s", weft_error_text());
    assert_string_equal(weft_error_text(), "outer: inner");
}

static void fail_cuts_what_is_too_long(void **state)
{
    char big[2 * WEFT_ERROR_TEXT_LEN];

    (void)state;
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    weft_fail(WEFT_ERR_INVALID, "%s", big);
    assert_int_equal(strlen(weft_error_text()), WEFT_ERROR_TEXT_LEN - 1);
}

static void fail_disarms_control_characters(void **state)
{
    (void)state;
    weft_fail(WEFT_ERR_PROTOCOL, "host %s", "a\n\x1b[2Jb");
    assert_string_equal(weft_error_text(), "host a??[2Jb");
}

static void fail_leaves_errno_alone(void **state)
{
    (void)state;
    errno = EPIPE;
    weft_fail(WEFT_ERR_PEER, "x");
    assert_int_equal(errno, EPIPE);
    weft_fail_errno("x");
    assert_int_equal(errno, EPIPE);
}

static void *fail_elsewhere(void *context)
{
    const char **before_p = context;

    *before_p = weft_error_text()[0] == '\0' ? "empty" : "inherited";
    weft_fail(WEFT_ERR_PEER, "of the other thread");
    return NULL;
}

static void texts_belong_to_their_thread(void **state)
{
    pthread_t thread;
    const char *before = NULL;

    (void)state;
    weft_fail(WEFT_ERR_PEER, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &before), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(before, "empty");
    assert_string_equal(weft_error_text(), "mine");
}

static void fail_errno_appends_the_reason(void **state)
{
    (void)state;
    errno = ECONNREFUSED;
    assert_int_equal(weft_fail_errno("connect to %s", "10.0.0.7:4411"), WEFT_ERR_SYSTEM);
    assert_string_equal(weft_error_text(), "connect to 10.0.0.7:4411: Connection refused");
}

static void fail_errno_tells_memory_apart(void **state)
{
    (void)state;
    errno = ENOMEM;
    assert_int_equal(weft_fail_errno("mmap"), WEFT_ERR_MEMORY);
}

static void fail_errno_keeps_the_reason_behind_a_long_subject(void **state)
{
    char big[2 * WEFT_ERROR_TEXT_LEN];
    const char *text;

    (void)state;
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    errno = ECONNREFUSED;
    weft_fail_errno("%s", big);
    text = weft_error_text();
    assert_int_equal(strlen(text), WEFT_ERROR_TEXT_LEN - 1);
    assert_string_equal(text + strlen(text) - strlen("x: Connection refused"),
                        "x: Connection refused");
}

/* F23, with real exhaustion: the limit in the text is the one in force, the count is ours. */
static void running_out_of_descriptors_names_the_limit(void **state)
{
    struct rlimit before, small;
    int ours = weft_fd_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
    char expected[160];

    (void)state;
    assert_true(ours >= 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    small = before;
    small.rlim_cur = (rlim_t)ours + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    /* ours was the lowest free number, so none is left */
    assert_int_equal(open("/dev/null", O_RDONLY | O_CLOEXEC), -1);
    assert_int_equal(weft_fail_errno("socket"), WEFT_ERR_SYSTEM);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);

    snprintf(expected, sizeof(expected),
             "socket: Too many open files (limit %d, of which 1 are Weft's; raise it with "
             "ulimit -n)",
             ours + 1);
    assert_string_equal(weft_error_text(), expected);
    weft_fd_close(ours);
}

static void a_full_host_names_its_setting(void **state)
{
    (void)state;
    errno = ENFILE;
    assert_int_equal(weft_fail_errno("socket"), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "sysctl fs.file-max"));
}

static void failures_are_logged_at_info(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    assert_int_equal(weft_log_configure("info"), WEFT_OK);
    capture_begin(&capture);
    weft_fail(WEFT_ERR_PEER, "rank 3 left");
    capture_end(&capture, text, sizeof(text));
    assert_int_equal(weft_log_configure("warn"), WEFT_OK);
    assert_string_equal(text, "weft base info: ERR_PEER: rank 3 left\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_sentence),
        cmocka_unit_test(a_status_out_of_range_has_texts_too),
        cmocka_unit_test(version_is_the_headers),
        cmocka_unit_test(fail_keeps_the_text_and_returns_the_status),
        cmocka_unit_test(fail_can_wrap_the_text_before_it),
        cmocka_unit_test(fail_cuts_what_is_too_long),
        cmocka_unit_test(fail_disarms_control_characters),
        cmocka_unit_test(fail_leaves_errno_alone),
        cmocka_unit_test(texts_belong_to_their_thread),
        cmocka_unit_test(fail_errno_appends_the_reason),
        cmocka_unit_test(fail_errno_tells_memory_apart),
        cmocka_unit_test(fail_errno_keeps_the_reason_behind_a_long_subject),
        cmocka_unit_test(running_out_of_descriptors_names_the_limit),
        cmocka_unit_test(a_full_host_names_its_setting),
        cmocka_unit_test(failures_are_logged_at_info),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
