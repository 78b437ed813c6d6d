/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int reset_levels(void **state)
{
    (void)state;
    weft_log_set_rank(-1);
    return weft_log_configure("warn") == WEFT_OK ? 0 : -1;
}

static void warnings_are_on_and_infos_off_by_default(void **state)
{
    (void)state;
    for (unsigned room = 0; room < WEFT_ROOM_COUNT; room++) {
        assert_true(weft_log_is_on(room, WEFT_LOG_ERROR));
        assert_true(weft_log_is_on(room, WEFT_LOG_WARN));
        assert_false(weft_log_is_on(room, WEFT_LOG_INFO));
    }
}

static void a_bare_level_is_for_the_rooms_not_named(void **state)
{
    (void)state;
    assert_int_equal(weft_log_configure("net:debug,control:info,error"), WEFT_OK);
    assert_true(weft_log_is_on(WEFT_ROOM_net, WEFT_LOG_DEBUG));
    assert_false(weft_log_is_on(WEFT_ROOM_net, WEFT_LOG_TRACE));
    assert_true(weft_log_is_on(WEFT_ROOM_control, WEFT_LOG_INFO));
    assert_false(weft_log_is_on(WEFT_ROOM_control, WEFT_LOG_DEBUG));
    assert_true(weft_log_is_on(WEFT_ROOM_wire, WEFT_LOG_ERROR));
    assert_false(weft_log_is_on(WEFT_ROOM_wire, WEFT_LOG_WARN));
}

static void the_bare_level_may_stand_first(void **state)
{
    (void)state;
    assert_int_equal(weft_log_configure("trace,api:off"), WEFT_OK);
    assert_true(weft_log_is_on(WEFT_ROOM_cli, WEFT_LOG_TRACE));
    assert_false(weft_log_is_on(WEFT_ROOM_api, WEFT_LOG_ERROR));
}

static void rooms_not_named_fall_back_to_warn(void **state)
{
    (void)state;
    assert_int_equal(weft_log_configure("trace"), WEFT_OK);
    assert_int_equal(weft_log_configure("net:info"), WEFT_OK);
    assert_true(weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_WARN));
    assert_false(weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_INFO));
}

static void levels_are_read_in_any_case(void **state)
{
    (void)state;
    assert_int_equal(weft_log_configure("INFO"), WEFT_OK);
    assert_true(weft_log_is_on(WEFT_ROOM_net, WEFT_LOG_INFO));
}

static void a_bad_word_is_named_and_nothing_changes(void **state)
{
    static const struct {
        const char *spec, *word;
    } cases[] = {
        {"loud", "\"loud\" is not a level"},       {"trace,net:loud", "\"loud\" is not a level"},
        {"trace,attic:info", "no room \"attic\""}, {"trace,net:", "\"\" is not a level"},
        {"trace,:info", "no room \"\""},           {"trace,infos", "\"infos\" is not a level"},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        assert_int_equal(weft_log_configure(cases[i].spec), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), cases[i].word));
        assert_false(weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_INFO));
        assert_true(weft_log_is_on(WEFT_ROOM_base, WEFT_LOG_WARN));
    }
}

static void a_line_says_room_level_and_text(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    capture_begin(&capture);
    weft_log(net, WARN, "port %d is busy", 4411);
    weft_log(net, INFO, "not shown");
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "weft net warn: port 4411 is busy\n");
}

static void a_line_says_the_rank_once_it_is_known(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    weft_log_set_rank(3);
    capture_begin(&capture);
    weft_log(net, WARN, "text");
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "weft net warn [rank 3]: text\n");
}

static void *log_elsewhere(void *context)
{
    (void)context;
    weft_log(net, WARN, "text");
    return NULL;
}

static void the_rank_belongs_to_its_thread(void **state)
{
    struct capture capture;
    pthread_t thread;
    char text[256];

    (void)state;
    weft_log_set_rank(3);
    capture_begin(&capture);
    assert_int_equal(pthread_create(&thread, NULL, log_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "weft net warn: text\n");
}

static void a_stranger_cannot_forge_a_line_or_steer_the_terminal(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    capture_begin(&capture);
    weft_log(net, WARN, "host %s", "a\nweft net error: forged\x1b[2J\x7f\xc2\x9b.");
    capture_end(&capture, text, sizeof(text));
    assert_string_equal(text, "weft net warn: host a?weft net error: forged?[2J???.\n");
}

static void printable_utf8_stays(void **state)
{
    char text[] = "gr\xc3\xbc\xc3\x9f\xe2\x80\xa6";
    char same[sizeof(text)];

    (void)state;
    memcpy(same, text, sizeof(text));
    weft_text_clean(text);
    assert_string_equal(text, same);
}

static void a_long_line_is_cut_and_ends_in_a_newline(void **state)
{
    struct capture capture;
    char big[3000], text[4000];

    (void)state;
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    capture_begin(&capture);
    weft_log(net, WARN, "%s", big);
    capture_end(&capture, text, sizeof(text));
    assert_in_range(strlen(text), 512, 1024);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void logging_leaves_errno_alone(void **state)
{
    int saved = dup(STDERR_FILENO);

    (void)state;
    assert_true(saved >= 0);
    close(STDERR_FILENO); /* write fails with EBADF */
    errno = EPIPE;
    weft_log(net, WARN, "lost");
    assert_int_equal(errno, EPIPE);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
}

static void limiter_lets_one_line_a_second_through(void **state)
{
    const uint64_t second = 1000 * WEFT_NS_PER_MS;
    struct weft_log_limiter limiter = {0};
    uint32_t held_back = 99;

    (void)state;
    assert_true(weft_log_limit(&limiter, second, &held_back));
    assert_int_equal(held_back, 0);
    for (unsigned i = 0; i < 10; i++) {
        assert_false(weft_log_limit(&limiter, second + i, &held_back));
    }
    assert_false(weft_log_limit(&limiter, 2 * second - 1, &held_back));
    assert_true(weft_log_limit(&limiter, 2 * second, &held_back));
    assert_int_equal(held_back, 11);
    assert_true(weft_log_limit(&limiter, 3 * second, &held_back));
    assert_int_equal(held_back, 0);
}

#define CALLERS 4
#define CALLS 5000

struct limited {
    struct weft_log_limiter *limiter;
    unsigned passed;
};

static void *call_limiter(void *context)
{
    struct limited *limited = context;

    for (unsigned i = 0; i < CALLS; i++) {
        uint32_t held_back;

        limited->passed += weft_log_limit(limited->limiter, 1, &held_back);
    }
    return NULL;
}

static void limiter_counts_every_line_of_many_threads(void **state)
{
    struct weft_log_limiter limiter = {0};
    struct limited limited[CALLERS];
    pthread_t threads[CALLERS];
    unsigned passed = 0;

    (void)state;
    for (unsigned i = 0; i < CALLERS; i++) {
        limited[i] = (struct limited){&limiter, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, call_limiter, &limited[i]), 0);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        passed += limited[i].passed;
    }
    assert_int_equal(passed, 1);
    /* the winner may have taken what its rivals lost in the race for the first line */
    assert_in_range(atomic_load(&limiter.held_back), CALLERS * CALLS - CALLERS,
                    CALLERS * CALLS - 1);
}

static char sunk[256];

static void sink(enum weft_log_level level, const char *line)
{
    snprintf(sunk, sizeof(sunk), "%d %s", (int)level, line);
}

static void a_sink_gets_the_line_instead_of_stderr(void **state)
{
    struct capture capture;
    char text[256];

    (void)state;
    weft_log_set_sink(sink);
    capture_begin(&capture);
    weft_log(net, WARN, "seven %d", 7);
    capture_end(&capture, text, sizeof(text));
    weft_log_set_sink(NULL);
    assert_string_equal(sunk, "2 weft net warn: seven 7");
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warnings_are_on_and_infos_off_by_default),
        cmocka_unit_test_teardown(a_bare_level_is_for_the_rooms_not_named, reset_levels),
        cmocka_unit_test_teardown(the_bare_level_may_stand_first, reset_levels),
        cmocka_unit_test_teardown(rooms_not_named_fall_back_to_warn, reset_levels),
        cmocka_unit_test_teardown(levels_are_read_in_any_case, reset_levels),
        cmocka_unit_test_teardown(a_bad_word_is_named_and_nothing_changes, reset_levels),
        cmocka_unit_test_teardown(a_line_says_room_level_and_text, reset_levels),
        cmocka_unit_test_teardown(a_line_says_the_rank_once_it_is_known, reset_levels),
        cmocka_unit_test_teardown(the_rank_belongs_to_its_thread, reset_levels),
        cmocka_unit_test(a_stranger_cannot_forge_a_line_or_steer_the_terminal),
        cmocka_unit_test(printable_utf8_stays),
        cmocka_unit_test(a_long_line_is_cut_and_ends_in_a_newline),
        cmocka_unit_test(a_sink_gets_the_line_instead_of_stderr),
        cmocka_unit_test(logging_leaves_errno_alone),
        cmocka_unit_test(limiter_lets_one_line_a_second_through),
        cmocka_unit_test(limiter_counts_every_line_of_many_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
