/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <signal.h>

/* So much memory of its own has each thread that no small stack can hold it. */
static _Thread_local volatile char large[1 << 20];

static _Atomic int blocked;

/* All that can be blocked; the two that glibc keeps for itself cannot. */
static int count_blocked(void)
{
    sigset_t mask;
    int count = 0;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    for (int number = 1; number <= SIGRTMAX; number++) {
        count += sigismember(&mask, number) == 1;
    }
    return count;
}

static void *note_blocked(void *arg)
{
    *(int *)arg = 1 + large[sizeof(large) - 1];
    atomic_store(&blocked, count_blocked());
    return NULL;
}

static void a_thread_of_ours_takes_no_signals_and_the_caller_takes_its_own(void **state)
{
    pthread_t thread;
    int has_run = 0, before = count_blocked();
    const struct weft_thread spec = {.run = note_blocked, .arg = &has_run};
    (void)state;
    assert_true(before < SIGRTMIN - 1); /* or it shows nothing */
    assert_int_equal(weft_thread_start(&spec, &thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(has_run, 1);
    assert_true(atomic_load(&blocked) >= SIGSYS - 2); /* but KILL and STOP */
    assert_int_equal(count_blocked(), before);
}

static void a_stack_that_cannot_be_had_is_the_usual_one(void **state)
{
    pthread_t thread;
    int has_run = 0;
    const struct weft_thread spec = {
        .run = note_blocked, .arg = &has_run, .stack_len = (size_t)256 << 10};
    (void)state;
    assert_int_equal(weft_thread_start(&spec, &thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(has_run, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_of_ours_takes_no_signals_and_the_caller_takes_its_own),
        cmocka_unit_test(a_stack_that_cannot_be_had_is_the_usual_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
