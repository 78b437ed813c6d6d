/* SPDX-License-Identifier: Apache-2.0 */
/* Long copies: whoever drives runs them, and nobody sleeps while one waits. */
#include "engine_support.h"

/* Sleeps in epoll until the word is set: it has no timer, only its deadline. */
struct sleeper {
    struct weft_engine *engine;
    const _Atomic uint32_t *word;
    weft_status_t status;
    uint64_t end_ns;
    pthread_t thread;
};

static void *sleep_until_set(void *arg)
{
    struct sleeper *sleeper = arg;
    sleeper->status =
        weft_engine_wait(sleeper->engine, sleeper->word, weft_clock_after_ms(DEADLINE_MS));
    sleeper->end_ns = weft_clock_ns();
    return NULL;
}

/* Its counter is raised after its last look under the lock. */
static bool has_slept(void *arg)
{
    struct weft_engine *engine = arg;
    return weft_counter_read(weft_engine_counters(engine), WEFT_COUNTER_SLEEPS) != 0;
}

static struct weft_engine *engine_with_sleeper(struct sleeper *sleeper,
                                               const _Atomic uint32_t *word)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    weft_engine_set_load(engine, 100);
    *sleeper = (struct sleeper){.engine = engine, .word = word};
    return engine;
}

static void sleeper_start(struct sleeper *sleeper)
{
    assert_int_equal(pthread_create(&sleeper->thread, NULL, sleep_until_set, sleeper), 0);
    assert_true(harness_wait_until(has_slept, sleeper->engine, DEADLINE_MS));
}

static void sleeper_ends_soon_after(struct sleeper *sleeper, uint64_t begin_ns)
{
    pthread_join(sleeper->thread, NULL);
    assert_int_equal(sleeper->status, WEFT_OK);
    assert_true(sleeper->end_ns - begin_ns < SOON_MS * WEFT_NS_PER_MS);
}

/* As a send does that only posts. */
static void a_copy_that_is_added_wakes_a_driver_that_sleeps(void **state)
{
    struct sleeper sleeper;
    struct errand copy = {0};
    struct weft_engine *engine = engine_with_sleeper(&sleeper, &copy.done);
    uint64_t begin_ns;
    (void)state;
    errand_open(engine, &copy);
    sleeper_start(&sleeper);
    begin_ns = weft_clock_ns();
    weft_engine_lock(engine);
    weft_engine_work_add(engine, &copy.work);
    weft_engine_unlock(engine);
    sleeper_ends_soon_after(&sleeper, begin_ns);
    weft_engine_close(engine);
}

/* The next piece of a long transfer, when its driver has what it waited for. */
static void a_copy_that_another_led_to_is_not_left_behind(void **state)
{
    struct sleeper sleeper;
    struct errand first, next = {0};
    struct weft_engine *engine = engine_with_sleeper(&sleeper, &next.done);
    uint64_t begin_ns;
    (void)state;
    errand_open(engine, &first);
    errand_open(engine, &next);
    first.next = &next;
    sleeper_start(&sleeper);
    weft_engine_lock(engine);
    weft_engine_work_add(engine, &first.work);
    begin_ns = weft_clock_ns();
    assert_true(weft_engine_work_run(engine));
    weft_engine_unlock(engine); /* and never comes back */
    sleeper_ends_soon_after(&sleeper, begin_ns);
    weft_engine_close(engine);
}

/* Whoever polls adds a copy, once. */
struct post {
    struct mail mail;
    struct errand *copy;
};

static bool post_poll(struct weft_engine_poller *poller)
{
    struct mail *mail = WEFT_CONTAINER_OF(poller, struct mail, poller);
    struct post *post = WEFT_CONTAINER_OF(mail, struct post, mail);
    if (post->copy != NULL) {
        weft_engine_work_add(mail->engine, &post->copy->work);
        post->copy = NULL;
        return true;
    }
    return mail_poll(poller);
}

/* A slot was copied: that its sender may have it back is for a poll round, and no bell rings for it. */
static void what_a_copy_led_to_is_polled_before_its_driver_leaves(void **state)
{
    struct sleeper sleeper;
    struct errand copy;
    struct post post = {0};
    struct weft_engine *engine = engine_with_sleeper(&sleeper, &post.mail.is_read);
    uint64_t begin_ns;
    (void)state;
    mail_open(engine, &post.mail);
    post.mail.poller.poll = post_poll;
    errand_open(engine, &copy);
    copy.mail = &post.mail;
    sleeper_start(&sleeper);
    begin_ns = weft_clock_ns();
    weft_engine_lock(engine);
    post.copy = &copy;
    weft_engine_unlock(engine);
    weft_engine_poll(engine);
    sleeper_ends_soon_after(&sleeper, begin_ns);
    mail_close(&post.mail);
    weft_engine_close(engine);
}

/* What "does not block" may take: gigabytes come as a chain of copies. */
static void a_poll_runs_one_copy_and_the_next_poll_the_next(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct errand copy;
    (void)state;
    errand_open(engine, &copy);
    copy.again = 9;
    weft_engine_lock(engine);
    weft_engine_work_add(engine, &copy.work);
    weft_engine_unlock(engine);
    for (uint32_t i = 1; i <= 10; i++) {
        weft_engine_poll(engine);
        assert_int_equal(atomic_load(&copy.done), i);
    }
    weft_engine_close(engine);
}

static void the_background_thread_runs_what_is_added_while_nobody_drives(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct errand copy;
    struct mail mail;
    (void)state;
    mail_open(engine, &mail);
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    for (uint32_t i = 0; i < 20; i++) {
        mail_send(&mail);
        assert_true(harness_wait_for(&mail.is_read, 1, DEADLINE_MS));
        atomic_store(&mail.is_read, 0);
        assert_true(harness_wait_for(&engine->armed, 1, DEADLINE_MS)); /* it sleeps */
        errand_open(engine, &copy);
        weft_engine_lock(engine);
        weft_engine_work_add(engine, &copy.work);
        weft_engine_unlock(engine);
        assert_true(harness_wait_for(&copy.done, 1, SOON_MS));
    }
    weft_background_leave(engine);
    mail_close(&mail);
    weft_engine_close(engine);
}

static void *run_one(void *arg)
{
    struct weft_engine *engine = arg;
    weft_engine_lock(engine);
    weft_engine_work_run(engine);
    weft_engine_unlock(engine);
    return NULL;
}

/* The first runs on another thread while everything is flushed, and leads to the second. */
static void flushing_leaves_none_behind(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    _Atomic uint32_t may_end = 0;
    struct errand first, next, last;
    pthread_t thread;
    (void)state;
    errand_open(engine, &first);
    errand_open(engine, &next);
    errand_open(engine, &last);
    first.may_end = &may_end;
    first.next = &next;
    weft_engine_lock(engine);
    weft_engine_work_add(engine, &first.work);
    weft_engine_unlock(engine);
    assert_int_equal(pthread_create(&thread, NULL, run_one, engine), 0);
    assert_true(harness_wait_for(&first.begun, 1, DEADLINE_MS));
    weft_engine_lock(engine);
    weft_engine_work_add(engine, &last.work);
    atomic_store(&may_end, 1);
    weft_engine_work_flush(engine);
    assert_int_equal(atomic_load(&first.done), 1);
    assert_int_equal(atomic_load(&next.done), 1);
    assert_int_equal(atomic_load(&last.done), 1);
    assert_false(weft_engine_has_works(engine));
    weft_engine_unlock(engine);
    pthread_join(thread, NULL);
    weft_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_that_is_added_wakes_a_driver_that_sleeps),
        cmocka_unit_test(a_copy_that_another_led_to_is_not_left_behind),
        cmocka_unit_test(what_a_copy_led_to_is_polled_before_its_driver_leaves),
        cmocka_unit_test(a_poll_runs_one_copy_and_the_next_poll_the_next),
        cmocka_unit_test(the_background_thread_runs_what_is_added_while_nobody_drives),
        cmocka_unit_test(flushing_leaves_none_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
